//! `protocol = "postgres"`.

use kendall_keys::Form;

use crate::section::{Key, Problem, Section};
use crate::workload::{Driver, Jobs, Protocol};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "postgres", keys: &[KEYS], read, jobs: Jobs::Never };

const KEYS: &[Key] = &[
    Key::texts(
        "scripts",
        "files with transactions, each with `@` and its weight where it is not 1",
    ),
    Key::text("sql", "a transaction, such as `SELECT * FROM items WHERE id = :id`").optional(),
    Key::text("user", "user of the database").or("'postgres'"),
    Key::text("database", "database; that of the user's name unless given").optional(),
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
    let scripts = section.words("scripts")?;
    if scripts.is_empty() && !section.has("sql") {
        return Err(section.problem("scripts", "is missing; write [\"FILE\"], or `sql`"));
    }
    let mut options: Vec<String> =
        scripts.into_iter().flat_map(|script| ["--script".to_owned(), script]).collect();
    options.extend(section.options(&["user", "sql", "database", "define", "vary"])?);
    options.extend(section.words("options")?);
    Ok(Driver { options, ..Driver::default() })
}
