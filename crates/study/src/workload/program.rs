//! `protocol = "program"`: whatever prints the documented result of a load.

use kendall_keys::Form;
use serde_json::json;
use toml::Value;

use crate::section::{Key, Problem, Section};
use crate::workload::{Driver, Jobs, Program, Protocol};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "program", keys: &[KEYS], read, jobs: Jobs::Asked };

const KEYS: &[Key] = &[
    Key::new(
        "command",
        Form::Texts,
        "program and arguments: a list, or one text split at spaces; `{target}`, `{each:targets}`, \
         `{clients}`, `{seconds}`, `{rate_per_s}`, `{seed}`, `{generator}`, `{folder}`, `{kendall}` \
         and any dotted key are filled in",
    ),
    Key::new("environment", Form::Named(&Form::Text), "environment variables, filled in likewise")
        .optional(),
    Key::new(
        "parameters",
        Form::Named(&Form::Special("a text or a number")),
        "values of your own, for `{workload.parameters.name}`; factors vary them under that key",
    )
    .optional(),
];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let command = if section.has("command") { section.words("command")? } else { Vec::new() };
    if command.is_empty() {
        let form =
            "is missing; write the program and its arguments, such as [\"./load\", \"{target}\"]";
        return Err(section.problem("command", form));
    }
    let mut table = section.section("environment")?;
    let mut environment = Vec::new();
    for (key, value) in table.entries() {
        let text = kendall_keys::text_of(value);
        table.effective(key, json!(text));
        environment.push((key.to_owned(), text));
    }
    section.effective("environment", table.named());
    let mut table = section.section("parameters")?;
    for (key, value) in table.entries() {
        if matches!(value, Value::Table(_) | Value::Array(_)) {
            return Err(table.problem(key, "is not one value: write a text or a number"));
        }
        table.effective(key, serde_json::to_value(value).unwrap_or_default());
    }
    section.effective("parameters", table.named());
    Ok(Driver { program: Some(Program { command, environment }), ..Driver::default() })
}
