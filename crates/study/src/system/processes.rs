//! `kind = "processes"`: the user's own service, started by commands.

use std::time::Duration;

use serde_json::json;
use toml::Value;

use crate::factor::text_of;
use crate::section::{Problem, Section};
use crate::system::SystemKind;
use crate::topology::{AddressFrom, Ready, Source, Started, StopSignal, TierSpec, Topology};

pub(super) const KIND: SystemKind =
    SystemKind { name: "processes", protocol: "http", read, programs: &[] };

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let parameters = parameters(section)?;
    let (mut tiers, mut filled, mut effective) = (Vec::new(), Vec::new(), Vec::new());
    for mut tier in section.sections("tiers")? {
        tiers.push(self::tier(&mut tier, &parameters)?);
        if tier.flag("fill", false)? {
            filled.extend(tiers.last().map(|tier: &TierSpec| tier.name.clone()));
        }
        effective.push(tier.finish()?);
    }
    section.effective("tiers", json!(effective));
    let first = tiers
        .first()
        .map(|tier| tier.name.clone())
        .ok_or_else(|| section.problem("tiers", "is missing; write `[[system.tiers]]`"))?;
    let entry = section.text("entry", Some(&first))?;
    if !tiers.iter().any(|tier| tier.name == entry) {
        return Err(section.problem("entry", format!("`{entry}` is none of the tiers")));
    }
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
        parameters.push((key.to_owned(), text_of(value)));
        table.effective(key, serde_json::to_value(value).unwrap_or_default());
    }
    let effective = table.finish()?;
    section.effective("parameters", effective);
    Ok(parameters)
}

fn tier(section: &mut Section<'_>, parameters: &[(String, String)]) -> Result<TierSpec, Problem> {
    let name = section.text("name", None)?;
    let instances = section.small("instances", Some(1), 1..=256)?;
    let with_parameters = |text: &String| replace(text, parameters);
    let command: Vec<String> = section.words("command", &[])?.iter().map(with_parameters).collect();
    if command.is_empty() {
        let form = "is missing; write the program and its arguments, such as [\"nginx\", \"-p\", \"{folder}\"]";
        return Err(section.problem("command", form));
    }
    let mut started = Started::command(instances, command);
    started.environment = environment(section, parameters)?;
    let from = [("chosen", AddressFrom::Chosen), ("ready-line", AddressFrom::ReadyLine)];
    started.address = section.choice("address", &from, Some("chosen"))?;
    started.ready = ready(section, parameters)?;
    started.ready_deadline = duration(section, "ready_deadline")?;
    let signals = [
        ("SIGTERM", StopSignal::Terminate),
        ("SIGINT", StopSignal::Interrupt),
        ("SIGQUIT", StopSignal::Quit),
    ];
    started.stop = section.choice("stop", &signals, Some("SIGTERM"))?;
    started.stop_deadline = duration(section, "stop_deadline")?;
    Ok(TierSpec {
        kind: section.text("kind", Some("process"))?,
        backends: section.words("backends", &[])?,
        source: Source::Started(started),
        name,
    })
}

fn duration(section: &mut Section<'_>, key: &str) -> Result<Duration, Problem> {
    Ok(section.seconds(key, Some("10s"))?.as_duration())
}

fn environment(
    section: &mut Section<'_>,
    parameters: &[(String, String)],
) -> Result<Vec<(String, String)>, Problem> {
    let mut table = section.section("environment")?;
    let mut variables = Vec::new();
    for (key, value) in table.entries() {
        variables.push((key.to_owned(), replace(&text_of(value), parameters)));
        table.effective(key, json!(text_of(value)));
    }
    let effective = table.finish()?;
    section.effective("environment", effective);
    Ok(variables)
}

fn ready(section: &mut Section<'_>, parameters: &[(String, String)]) -> Result<Ready, Problem> {
    if !matches!(section.raw("ready"), Some(Value::Table(_))) {
        section.choice("ready", &[("tcp", ())], Some("tcp")).map_err(|_| {
            let forms = "\"tcp\", { http = \"/path\" } or { command = [\"program\"] }";
            section.problem("ready", format!("is not known; write {forms}"))
        })?;
        return Ok(Ready::Tcp);
    }
    let mut table = section.section("ready")?;
    let ready = if table.has("http") {
        Ready::Http(table.text("http", None)?)
    } else {
        let words = table.words("command", &[])?;
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
