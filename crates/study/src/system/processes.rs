//! `kind = "processes"`: the user's own service, started by commands.

use std::time::Duration;

use kendall_host::launch::{AddressFrom, Ready, StopSignal};
use kendall_keys::Form;
use serde_json::json;
use toml::Value;

use crate::section::{Key, Problem, Quantities as _, Section, TIME};
use crate::system::SystemKind;
use crate::topology::{Source, Started, TierSpec, Topology, entry, tier_name};

pub(super) const KIND: SystemKind = SystemKind {
    name: "processes",
    protocol: "http",
    keys: &[KEYS],
    read,
    programs: &[],
    database: None,
    check: None,
    sometimes: &[],
};

const KEYS: &[Key] = &[
    Key::text(
        "entry",
        "the tier that clients talk to; unless given, the one that no other names as its backend",
    )
    .optional(),
    Key::new(
        "parameters",
        Form::Named(&Form::Special("a text or a number")),
        "values of your own: commands take them as `{name}`, factors vary them as \
         `system.parameters.name`",
    )
    .optional(),
    Key::new("tiers", Form::Tables(&[TIER]), "one table per tier"),
];

pub(super) const TIER: &[Key] = &[
    Key::text("name", "name of the tier, used by links and in the report"),
    Key::new("command", Form::Texts, "program and arguments: a list, or one text split at spaces"),
    Key::count("instances", 1, 256, "processes of this tier").or("1"),
    Key::texts("backends", "tiers that it talks to; they are started first"),
    Key::new("environment", Form::Named(&Form::Text), "environment variables").optional(),
    Key::choice(
        "address",
        &["chosen", "ready-line"],
        "`chosen`: the study chooses a free port for `{port}` or `{address}`; `ready-line`: the \
         process prints `ready … listen=HOST:PORT metrics=HOST:PORT` on standard error, as \
         `kendall serve` does",
    )
    .or("'chosen'"),
    Key::new(
        "ready",
        Form::Either(&[Form::Choice(&["tcp"]), Form::Table(&[READY])]),
        "`\"tcp\"` (accepts a connection), `{ http = \"/path\" }` (answers 2xx or 3xx), \
         `{ command = [\"program\", …] }` (ends with 0)",
    )
    .or("'tcp'"),
    Key::quantity("ready_deadline", &TIME, "how long that may take").or("'10s'"),
    Key::choice("stop", &["SIGTERM", "SIGINT", "SIGQUIT"], "asks for a graceful stop")
        .or("'SIGTERM'"),
    Key::quantity("stop_deadline", &TIME, "how long that may take, before it is killed")
        .or("'10s'"),
    Key::flag("fill", "whether the workload fills each instance before a run (memcached)")
        .or("false"),
    Key::text("kind", "what the report calls it").or("'process'"),
];

const READY: &[Key] = &[
    Key::text("http", "a path that answers 2xx or 3xx").optional(),
    Key::texts("command", "a program that ends with 0"),
];

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let parameters = parameters(section)?;
    let (mut tiers, mut filled, mut effective) = (Vec::new(), Vec::new(), Vec::new());
    for mut tier in section.sections("tiers")? {
        let spec = self::tier(&mut tier, &parameters, &tiers)?;
        tiers.push(spec);
        if tier.flag("fill")? {
            filled.extend(tiers.last().map(|tier: &TierSpec| tier.name.to_string()));
        }
        effective.push(tier.finish()?);
    }
    section.effective("tiers", json!(effective));
    let entry = entry(section, &tiers)?;
    Ok(Topology { tiers, entry, filled })
}

/// The user's own values, which commands take as `{name}` and factors vary.
fn parameters(section: &mut Section<'_>) -> Result<Vec<(String, String)>, Problem> {
    let mut table = section.section("parameters")?;
    let mut parameters = Vec::new();
    for (key, value) in table.entries() {
        if matches!(value, Value::Table(_) | Value::Array(_)) {
            return Err(table.problem(key, "is not one value: write a text or a number"));
        }
        parameters.push((key.to_owned(), kendall_keys::text_of(value)));
        table.effective(key, serde_json::to_value(value).unwrap_or_default());
    }
    section.effective("parameters", table.named());
    Ok(parameters)
}

fn tier(
    section: &mut Section<'_>,
    parameters: &[(String, String)],
    before: &[TierSpec],
) -> Result<TierSpec, Problem> {
    let name = tier_name(section, before)?;
    let instances = section.small("instances")?;
    let with_parameters = |text: &String| replace(text, parameters);
    let written = if section.has("command") { section.words("command")? } else { Vec::new() };
    let command: Vec<String> = written.iter().map(with_parameters).collect();
    if command.is_empty() {
        let form = "is missing; write the program and its arguments, such as [\"nginx\", \"-p\", \"{folder}\"]";
        return Err(section.problem("command", form));
    }
    let mut started = Started::command(instances, command);
    started.environment = environment(section, parameters)?;
    let from = [("chosen", AddressFrom::Chosen), ("ready-line", AddressFrom::ReadyLine)];
    started.address = section.choice("address", &from)?;
    started.ready = ready(section, parameters)?;
    started.ready_deadline = duration(section, "ready_deadline")?;
    let signals = [
        ("SIGTERM", StopSignal::Terminate),
        ("SIGINT", StopSignal::Interrupt),
        ("SIGQUIT", StopSignal::Quit),
    ];
    started.stop = section.choice("stop", &signals)?;
    started.stop_deadline = duration(section, "stop_deadline")?;
    Ok(TierSpec {
        kind: section.text("kind")?,
        backends: section.words("backends")?,
        joins: Vec::new(),
        pools: Vec::new(),
        source: Source::Started(started),
        name,
    })
}

fn duration(section: &mut Section<'_>, key: &str) -> Result<Duration, Problem> {
    Ok(section.seconds(key)?.as_duration())
}

fn environment(
    section: &mut Section<'_>,
    parameters: &[(String, String)],
) -> Result<Vec<(String, String)>, Problem> {
    let mut table = section.section("environment")?;
    let mut variables = Vec::new();
    for (key, value) in table.entries() {
        variables.push((key.to_owned(), replace(&kendall_keys::text_of(value), parameters)));
        table.effective(key, json!(kendall_keys::text_of(value)));
    }
    section.effective("environment", table.named());
    Ok(variables)
}

fn ready(section: &mut Section<'_>, parameters: &[(String, String)]) -> Result<Ready, Problem> {
    if !matches!(section.raw("ready"), Some(Value::Table(_))) {
        if section.text("ready")? != "tcp" {
            let forms = "\"tcp\", { http = \"/path\" } or { command = [\"program\"] }";
            return Err(section.problem("ready", format!("is not known; write {forms}")));
        }
        return Ok(Ready::Tcp);
    }
    let mut table = section.section("ready")?;
    let ready = if table.has("http") {
        Ready::Http(table.text("http")?)
    } else {
        let words = table.words("command")?;
        if words.is_empty() {
            return Err(table.problem(
                "command",
                "is missing; write { http = \"/path\" } or { command = [\"program\"] }",
            ));
        }
        Ready::Command(words.iter().map(|word| replace(word, parameters)).collect())
    };
    let effective = table.finish()?;
    section.effective("ready", effective);
    Ok(ready)
}

/// `{name}` of each parameter; other placeholders are left for the start.
fn replace(text: &str, parameters: &[(String, String)]) -> String {
    parameters
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}
