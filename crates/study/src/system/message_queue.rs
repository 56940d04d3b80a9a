//! `kind = "message-queue"`: Kendall's middlewares before one PostgreSQL, which the study makes for
//! each run and throws away after it.

use std::time::Duration;

use kendall_host::launch::AddressFrom;
use kendall_protocols::topology::{Pool, PoolKind, TierId};

use crate::section::{Key, Problem, Section};
use crate::system::SystemKind;
use crate::topology::{Started, TierSpec, Topology};

pub(super) const KIND: SystemKind = SystemKind {
    database: Some(DATABASE),
    check: Some(check),
    ..SystemKind::new("message-queue", "queue", &[KEYS], read)
};

const KEYS: &[Key] = &[
    Key::count("middlewares", 1, 64, "brokers; clients are spread over them in turn").or("1"),
    Key::count("workers", 1, 4096, "batches in service at once; other requests wait").or("4"),
    Key::count("connections", 1, 1024, "connections to PostgreSQL that the workers share").or("4"),
    Key::count("batch", 1, 1000, "most operations per commit; 1 gives each its own").or("128"),
    Key::text(
        "middleware_cores",
        "cores that the brokers may use: `0`, `0-1`, `0,2` (by `taskset`)",
    )
    .or("'all'"),
    Key::text("database_cores", "likewise for the database").or("'all'"),
    Key::text(
        "tokens",
        "file of tokens that clients need, one per line: `TOKEN client NAME` for that client, `TOKEN admin` \
         to act as any client and to change queues; without it anyone may act as any client",
    )
    .optional(),
    Key::text("tls_certificate", "file (PEM) of the brokers' certificate: they speak TLS")
        .optional(),
    Key::text("tls_key", "file (PEM) of its private key").optional(),
    Key::texts("middleware_options", "further arguments of `kendall serve queue`"),
    Key::texts("database_settings", "settings of PostgreSQL such as `fsync=off`"),
];

const DATABASE: &str = "database";
const MIDDLEWARES: &str = "middlewares";

/// A cluster is made from nothing, on a disk that may be slow.
const DATABASE_DEADLINE: Duration = Duration::from_secs(120);

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let instances = section.small("middlewares")?;
    let workers = section.small("workers")?;
    let connections = section.small("connections")?;
    let middleware_cores = cores(section, "middleware_cores")?;
    let database_cores = cores(section, "database_cores")?;
    let mut arguments: Vec<String> = ["queue", "--listen", "{host}:0"].map(str::to_owned).into();
    let keys = ["workers", "connections", "batch", "tokens", "tls_certificate", "tls_key"];
    arguments.extend(section.options(&keys)?);
    if section.has("tls_certificate") != section.has("tls_key") {
        let what = "`tls_certificate` and `tls_key` go together: write both, or neither";
        return Err(section.problem("tls_certificate", what));
    }
    arguments.extend(section.words("middleware_options")?);
    let mut started = Started::kendall(instances, arguments);
    started.command.splice(0..0, middleware_cores);
    // In the environment, where other users of the machine do not see it.
    let url = format!("postgres://kendall:{{secret}}@{{{DATABASE}}}/kendall");
    started.environment = vec![("KENDALL_QUEUE_DATABASE".into(), url)];
    let middlewares = TierSpec {
        backends: vec![DATABASE.into()],
        pools: vec![
            Pool { of: PoolKind::Workers, servers: workers },
            Pool { of: PoolKind::Connections(TierId::fixed(DATABASE)), servers: connections },
        ],
        ..TierSpec::started(MIDDLEWARES, "message-queue", started)
    };
    let database = database(section, database_cores)?;
    Ok(Topology {
        tiers: vec![database, middlewares],
        entry: MIDDLEWARES.into(),
        filled: Vec::new(),
    })
}

/// Longest content, in characters, unless `--content-characters` says another.
const CONTENT_CHARACTERS: u64 = 2000;

/// Refuses messages that no broker takes.
fn check(system: &serde_json::Value, load: &serde_json::Value) -> Result<(), Problem> {
    let Some(size) = load["message_size"].as_str() else { return Ok(()) };
    let options = system["middleware_options"].as_array().into_iter().flatten();
    let options: Vec<&str> = options.filter_map(serde_json::Value::as_str).collect();
    let stated = options.iter().enumerate().find_map(|(at, option)| {
        match option.strip_prefix("--content-characters")? {
            "" => options.get(at + 1)?.parse().ok(),
            value => value.strip_prefix('=')?.parse().ok(),
        }
    });
    let most = stated.unwrap_or(CONTENT_CHARACTERS);
    let largest = size.rsplit("..").next().unwrap_or(size);
    let largest = largest.rsplit(':').next().unwrap_or(largest);
    match kendall_units::parse_bytes(largest) {
        Ok(bytes) if bytes > most => {
            let what = format!(
                "`{size}` is more than a message may have, which is {most} characters; write less, or \
                 `middleware_options = [\"--content-characters={bytes}\"]` in `[system]`"
            );
            Err(Problem { key: "workload.message_size".into(), what })
        }
        Ok(_) => Ok(()),
        Err(error) => Err(Problem { key: "workload.message_size".into(), what: error.to_string() }),
    }
}

fn database(section: &mut Section<'_>, cores: Vec<String>) -> Result<TierSpec, Problem> {
    let line = "{kendall} serve queue-database --listen {host}:0 --data {folder}/data --temporary";
    let mut command = cores;
    command.extend(line.split(' ').map(str::to_owned));
    for setting in section.words("database_settings")? {
        if !setting.contains('=') {
            let what = format!("`{setting}` is not a setting; write it like `fsync=off`");
            return Err(section.problem("database_settings", what));
        }
        command.extend(["--set".to_owned(), setting]);
    }
    let mut started = Started::command(1, command);
    started.address = AddressFrom::ReadyLine;
    started.ready_deadline = DATABASE_DEADLINE;
    // Its programs are in no folder of PATH on many systems; it knows where to look itself.
    started.check = Some(&["serve", "queue-database", "--check"]);
    started.environment = vec![("KENDALL_QUEUE_PASSWORD".into(), "{secret}".into())];
    Ok(TierSpec::started(DATABASE, "postgresql", started))
}

/// What to put before a command so that it runs on these cores only: nothing for `all`.
fn cores(section: &mut Section<'_>, key: &str) -> Result<Vec<String>, Problem> {
    let text = section.text(key)?;
    if text == "all" {
        return Ok(Vec::new());
    }
    let number = |text: &str| text.parse::<u16>().is_ok();
    let part = |part: &str| match part.split_once('-') {
        Some((from, to)) => number(from) && number(to),
        None => number(part),
    };
    if !text.split(',').all(part) {
        let what = format!("`{text}` names no cores; write \"all\", \"0\", \"0-1\" or \"0,2\"");
        return Err(section.problem(key, what));
    }
    Ok(["taskset", "--cpu-list", &text].map(str::to_owned).into())
}
