//! `protocol = "redis"`.

use kendall_keys::Form;
use toml::Value;

use crate::section::{Key, Problem, Section};
use crate::workload::{Driver, Jobs, KEYSPACE, Protocol, weights};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "redis", keys: &[KEYS, KEYSPACE], read, jobs: Jobs::Never };

const KEYS: &[Key] = &[
    Key::new(
        "mix",
        Form::Named(&Form::Number),
        "weights of `get` and `set`, such as `{ set = 1, get = 10 }`, which they are unless there are `commands`",
    )
    .optional(),
    Key::texts(
        "commands",
        "others, as `kendall load redis --command` takes them, such as `[\"3 INCR {key}\"]`",
    ),
    Key::count("pipeline", 1, 10_000, "commands that are sent together, as one request").or("1"),
    Key::texts("options", "further arguments of `kendall load redis`, such as `--vary`"),
];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let form = "a table of weights such as { set = 1, get = 10 }";
    let mut options = section.options(&["keys", "pipeline", "value_size", "key_distribution"])?;
    match section.raw("mix") {
        None => {}
        Some(Value::Table(table)) if !table.is_empty() => {
            options.extend(["--mix".to_owned(), weights(section, table, &["get", "set"], form)?]);
        }
        Some(other) => return Err(section.problem("mix", format!("`{other}` is not {form}"))),
    }
    for command in section.words("commands")? {
        options.extend(["--command".to_owned(), command]);
    }
    let filled = section.flag("prefill")?;
    options.extend(section.words("options")?);
    // How the server lets the load in is among the options.
    let prefill = filled.then(|| [&options[..], &["--prefill-only".to_owned()]].concat());
    Ok(Driver { options, prefill, ..Driver::default() })
}
