//! `kind = "processes"`: the user's own service, started by commands.

use std::time::Duration;

use kendall_host::launch::{AddressFrom, Ready, StopSignal};
use kendall_keys::Form;
use kendall_protocols::topology::{Pool, PoolKind, TierId};
use serde_json::json;
use toml::Value;

use crate::section::{Key, Problem, Quantities as _, Section, TIME};
use crate::system::{SystemKind, listed};
use crate::topology::{Source, Started, TierSpec, Topology, tier_name};

pub(super) const KIND: SystemKind = SystemKind::new("processes", "http", &[KEYS], read);

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
    Key::new("workers", POOL, "requests that each instance serves at a time, where you know it")
        .optional(),
    Key::new("threads", POOL, "threads that compute in each instance, where you know it")
        .optional(),
    Key::new("connections", POOL, "connections of each instance to its one backend").optional(),
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

const POOL: Form = Form::Either(&[
    Form::Count { from: 1, to: 1_000_000 },
    Form::Special("`{name}` of a parameter"),
]);

const READY: &[Key] = &[
    Key::text("http", "a path that answers 2xx or 3xx").optional(),
    Key::texts("command", "a program that ends with 0"),
];

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let parameters = parameters(section)?;
    listed(section, |section, before| tier(section, &parameters, before))
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
    let backends = section.words("backends")?;
    Ok(TierSpec {
        kind: section.text("kind")?,
        pools: pools(section, parameters, &backends)?,
        backends,
        joins: Vec::new(),
        source: Source::Started(started),
        name,
    })
}

/// How many requests a tier works on at a time, where the file states it.
fn pools(
    section: &mut Section<'_>,
    parameters: &[(String, String)],
    backends: &[String],
) -> Result<Vec<Pool>, Problem> {
    let mut pools = Vec::new();
    for key in ["workers", "threads", "connections"] {
        let Some(value) = section.raw(key) else { continue };
        let text = replace(&kendall_keys::text_of(value), parameters);
        let servers = text.parse().ok().filter(|servers| *servers >= 1);
        let Some(servers) = servers else {
            let what = format!(
                "is {text:?}; write a number from 1, or `{{name}}` of a parameter that is one"
            );
            return Err(section.problem(key, what));
        };
        let of = match (key, backends) {
            ("workers", _) => PoolKind::Workers,
            ("threads", _) => PoolKind::Threads,
            (_, [backend]) => PoolKind::Connections(TierId::stored(backend)),
            _ => return Err(section.problem(key, "needs exactly one backend, which they lead to")),
        };
        section.effective(key, json!(servers));
        pools.push(Pool { of, servers });
    }
    Ok(pools)
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

#[cfg(test)]
mod tests {
    use kendall_protocols::topology::{Pool, PoolKind, TierId};

    use crate::file::StudyFile;

    fn pools(keys: &str) -> Result<Vec<Pool>, String> {
        let text = format!(
            "name = 'x'\n[system]\nkind = 'processes'\nparameters = {{ many = 8 }}\n\
             [[system.tiers]]\nname = 'db'\ncommand = 'true'\n\
             [[system.tiers]]\nname = 'app'\ncommand = 'true {{many}}'\n{keys}\n[workload]\npath = '/'\n"
        );
        let study = StudyFile::parse("x.toml", text, false, &[]).map_err(|e| e.to_string())?;
        let settings = study.settings(&[]).map_err(|error| error.to_string())?;
        let app = settings.graph().tiers.into_iter().find(|node| node.tier == "app");
        Ok(app.unwrap().pools)
    }

    #[test]
    fn pools_are_numbers_or_parameters() {
        let found = pools("backends = ['db']\nworkers = '{many}'\nconnections = 5").unwrap();
        let to = PoolKind::Connections(TierId::stored("db"));
        let workers = Pool { of: PoolKind::Workers, servers: 8 };
        assert_eq!(found, [workers, Pool { of: to, servers: 5 }]);
        assert_eq!(pools("backends = ['db']").unwrap(), []);
        for (wrong, says) in [
            ("backends = ['db']\nworkers = 'few'", "a number from 1"),
            ("backends = ['db']\nthreads = 0", "threads"),
            ("backends = ['db']\nworkers = '{few}'", "a number from 1"),
            ("entry = 'app'\nconnections = 5", "exactly one backend"),
        ] {
            let said = pools(wrong).unwrap_err();
            assert!(said.contains(says), "{wrong}: {said}");
        }
    }
}
