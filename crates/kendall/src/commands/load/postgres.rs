//! `kendall load postgres`.

use std::path::{Path, PathBuf};

use kendall_loadgen::http::Values;
use kendall_loadgen::postgres::{self, PostgresLoadError, PostgresPlan, Script, given};

use super::super::serve::pair;
use super::common::{Common, load_error, resolve, varied};
use super::secure::SecureFlags;
use crate::exit::{Exit, exit_with, refused, stop_at_a_signal};

/// Loads PostgreSQL with transactions
///
/// A request is a script: SQL statements, prepared once on each connection, with `:NAME` for parameters, which are
/// drawn anew for each request. Scripts of pgbench do as they are, with `\set`, `\sleep`, `\if` and `\gset`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall load postgres 127.0.0.1:5432 --user app --sql 'SELECT * FROM items WHERE id = \
                  :id' --vary id=zipf:100000,1.1\n  \
                  kendall load postgres 127.0.0.1:5432 --script tpcb.sql --define scale=10 --clients 16\n  \
                  kendall load postgres db.example:5432 --tls --script read.sql@9 --script write.sql --rate 200/s"
)]
pub(crate) struct LoadPostgres {
    /// Servers; the clients are spread over them in turn
    #[arg(required = true, value_name = "HOST:PORT")]
    targets: Vec<String>,

    /// File with a transaction; `@` and a number behind it are its weight; may be repeated
    #[arg(long, short = 'f', value_name = "FILE[@WEIGHT]", required_unless_present = "sql")]
    script: Vec<String>,

    #[arg(long, value_name = "SQL")]
    sql: Option<String>,

    /// Value of `:NAME`, the same in all requests; may be repeated
    #[arg(long, short = 'D', value_name = "NAME=VALUE", value_parser = pair)]
    define: Vec<(String, String)>,

    /// Value of `:NAME`, drawn anew for each request: a whole number (`uniform:1..40`, `zipf:1000,0.99`,
    /// `sequential:1..1000`) or a line of a file (`file:PATH`); may be repeated
    #[arg(long, value_name = "NAME=VALUES", value_parser = varied)]
    vary: Vec<(String, Values)>,

    #[arg(long, env = "PGUSER", value_name = "NAME")]
    user: String,

    /// Password; better from the environment, since others see arguments
    #[arg(long, env = "PGPASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    password: Option<String>,

    #[arg(long, env = "PGDATABASE", value_name = "NAME")]
    database: Option<String>,

    #[command(flatten)]
    secure: SecureFlags,

    #[command(flatten)]
    common: Common,
}

impl LoadPostgres {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let content = self.content()?;
        let targets = resolve(&self.targets, "127.0.0.1:5432")?;
        let plan = self.common.plan(targets, self.common.clients().into())?;
        let stop = stop_at_a_signal()?;
        let result = postgres::run(&plan, &content, &stop, &mut self.common.progress()?);
        self.common.print(&result.map_err(postgres_error)?)
    }

    fn content(&self) -> anyhow::Result<PostgresPlan> {
        let (defined, varied) = (self.define.clone(), self.vary.clone());
        let names = given(&defined, &varied);
        let own = defined.len() + varied.len();
        if let Some(at) = (1..own).find(|at| names[..*at].contains(&names[*at])) {
            return Err(refused(format!("`:{}` is given twice", names[at])));
        }
        let mut scripts: Vec<Script> = Vec::new();
        for text in &self.script {
            let (path, weight) = weighted(text)?;
            let sql = kendall_tier::read_text(&path, kendall_tier::LARGEST_FILE)
                .map_err(|error| refused(format!("--script {}: {error}", path.display())))?;
            let name = name_of(&path);
            if scripts.iter().any(|script| script.name == name) {
                return Err(refused(format!("two scripts are called `{name}`; rename one")));
            }
            scripts.push(Script::parse((&name, weight), &sql, &names).map_err(refused)?);
        }
        if let Some(sql) = &self.sql {
            scripts.push(Script::parse(("sql", 1.0), sql, &names).map_err(refused)?);
        }
        Ok(PostgresPlan {
            user: self.user.clone(),
            password: self.password.clone(),
            database: self.database.clone().unwrap_or_else(|| self.user.clone()),
            tls: self.secure.names(&self.targets)?,
            scripts,
            defined,
            varied,
        })
    }
}

/// A path and the weight behind its `@`.
fn weighted(text: &str) -> anyhow::Result<(PathBuf, f64)> {
    let Some((path, weight)) = text.rsplit_once('@') else { return Ok((text.into(), 1.0)) };
    match weight.parse::<f64>() {
        Ok(weight) if weight.is_finite() && weight > 0.0 => Ok((path.into(), weight)),
        _ => Err(refused(format!(
            "`{weight}` is not a weight; write a script of weight 2 like `{path}@2`"
        ))),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn postgres_error(error: PostgresLoadError) -> anyhow::Error {
    match error {
        PostgresLoadError::Load(error) => load_error(error),
        PostgresLoadError::Script(_) | PostgresLoadError::Tls(_) => refused(error),
        PostgresLoadError::Statement { .. } => exit_with(Exit::NotReady, error),
    }
}
