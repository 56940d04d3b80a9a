//! `protocol = "memcached"`.

use toml::Value;

use crate::section::{Problem, Section};
use crate::workload::{Driver, Protocol, TargetForm, weights};

pub(super) const PROTOCOL: Protocol = Protocol { name: "memcached", read };

/// What `kendall load memcached --mix` takes.
const OPERATIONS: [&str; 9] =
    ["get", "gets", "multi-get", "gat", "set", "add", "replace", "delete", "touch"];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let mix = mix(section)?;
    let keys = section.count("keys", Some(10_000), 1..=u64::MAX)?;
    let multiget = section.small("multiget", Some(1), 1..=1_000)?;
    let value_size = section.text("value_size", Some("1KiB"))?;
    let key_distribution = section.text("key_distribution", Some("uniform"))?;
    let filled = section.flag("prefill", true)?;
    let shared: Vec<String> =
        ["--keys".into(), keys.to_string(), "--value-size".into(), value_size].into();
    let mut options = shared.clone();
    options.extend(["--mix".into(), mix]);
    options.extend(["--key-distribution".into(), key_distribution]);
    if multiget > 1 {
        options.extend(["--multiget".into(), multiget.to_string()]);
    }
    let prefill = filled.then(|| {
        let mut arguments = shared;
        arguments.push("--prefill-only".into());
        arguments
    });
    Ok(Driver { options, prefill, target: TargetForm::Address })
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
