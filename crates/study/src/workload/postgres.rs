//! `protocol = "postgres"`.

use kendall_keys::Form;

use crate::section::{Key, Problem, Section};
use crate::workload::{Driver, Jobs, Protocol, named};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "postgres", keys: &[KEYS], read, jobs: Jobs::Never };

const KEYS: &[Key] = &[
    Key::texts(
        "scripts",
        "files with transactions, each with `@` and its weight where it is not 1",
    ),
    Key::text("sql", "a transaction, such as `SELECT * FROM items WHERE id = :id`").optional(),
    Key::text("user", "of the database").or("'postgres'"),
    Key::text("database", "its name; that of the user unless given").optional(),
    Key::new(
        "define",
        Form::Named(&Form::Special("a text or a number")),
        "values of `:name` that stay the same, such as `{ scale = 10 }`; factors vary them as \
         `workload.define.scale`",
    )
    .optional(),
    Key::new(
        "vary",
        Form::Named(&Form::Special("values as `kendall load postgres --vary` takes them")),
        "values of `:name` that are drawn for each request, such as `{ id = \"zipf:1000,1.1\" }`",
    )
    .optional(),
    Key::texts("options", "further arguments of `kendall load postgres`, such as `--tls`"),
];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let mut options = vec!["--user".to_owned(), section.text("user")?];
    let scripts = section.words("scripts")?;
    let sql = section.opt_text("sql")?;
    if scripts.is_empty() && sql.is_none() {
        return Err(section.problem("scripts", "is missing; write [\"FILE\"], or `sql`"));
    }
    for script in scripts {
        options.extend(["--script".to_owned(), script]);
    }
    for (option, text) in [("--sql", sql), ("--database", section.opt_text("database")?)] {
        options.extend(text.into_iter().flat_map(|text| [option.to_owned(), text]));
    }
    for (option, key) in [("--define", "define"), ("--vary", "vary")] {
        options.extend(named(section, option, key)?);
    }
    options.extend(section.words("options")?);
    Ok(Driver { options, ..Driver::default() })
}
