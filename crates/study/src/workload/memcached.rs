//! `protocol = "memcached"`.

use kendall_keys::Form;
use toml::Value;

use crate::section::{Key, Problem, Section};
use crate::workload::{Driver, Jobs, KEYSPACE, Protocol, weights};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "memcached", keys: &[KEYS, KEYSPACE], read, jobs: Jobs::Never };

const KEYS: &[Key] = &[
    Key::new(
        "mix",
        Form::Named(&Form::Number),
        "weights of `get`, `gets`, `gat`, `set`, `add`, `replace`, `delete`, `touch`, `multi-get`, \
         such as `{ set = 1, get = 10 }`",
    ),
    Key::count("multiget", 1, 10_000, "keys of a multi-get; above 1, each `get` is one").or("1"),
    Key::texts("options", "further arguments of `kendall load memcached`, such as `--tls`"),
];

/// What `kendall load memcached --mix` takes.
const OPERATIONS: [&str; 9] =
    ["get", "gets", "multi-get", "gat", "set", "add", "replace", "delete", "touch"];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let mix = mix(section)?;
    let filled = section.flag("prefill")?;
    let mut shared = section.options(&["keys", "value_size"])?;
    shared.extend(section.words("options")?);
    let mut options = shared.clone();
    options.extend(["--mix".into(), mix]);
    options.extend(section.options(&["key_distribution", "multiget"])?);
    let prefill = filled.then(|| [&shared[..], &["--prefill-only".to_owned()]].concat());
    Ok(Driver { options, prefill, ..Driver::default() })
}

/// `{ set = 1, get = 10 }` as `set=1,get=10`.
fn mix(section: &mut Section<'_>) -> Result<String, Problem> {
    let form = "a table of weights such as { set = 1, get = 10 }";
    let refuse = |section: &Section<'_>, what: String| Err(section.problem("mix", what));
    let table = match section.raw("mix") {
        None => return refuse(section, format!("is missing; write {form}")),
        Some(Value::Table(table)) if !table.is_empty() => table,
        Some(other) => return refuse(section, format!("`{other}` is not {form}")),
    };
    weights(section, table, &OPERATIONS, form)
}
