//! `protocol = "queue"`.

use kendall_loadgen::queue::{OPEN_CALLS, streams_needed};
use serde_json::json;
use toml::Value;

use crate::section::{Problem, Section};
use crate::workload::{Driver, Protocol, TargetForm, weights};

pub(super) const PROTOCOL: Protocol = Protocol { name: "queue", read };

/// What `kendall load queue --mix` takes.
const OPERATIONS: [&str; 4] = ["send", "receive", "read", "lease"];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let ways = [("single", "single"), ("stream", "stream")];
    let calls = section.choice("calls", &ways, Some("single"))?;
    let mix = mix(section)?;
    let message_size = section.text("message_size", Some("200B"))?;
    let any = [("any", "any"), ("next", "next"), ("random", "random")];
    let peers = section.choice("peers", &any, Some("any"))?;
    let queues = section.small("queues", Some(1), 1..=1_000)?;
    let wait = section.text("wait", Some("0s"))?;
    let waiting = section.count("waiting", Some(0), 0..=10_000_000)?;
    let mut options: Vec<String> = [
        ("--calls", calls.to_owned()),
        ("--mix", mix),
        ("--message-size", message_size),
        ("--peers", peers.to_owned()),
        ("--queues", queues.to_string()),
        ("--wait", wait),
        ("--prefill", waiting.to_string()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect();
    if section.has("connections") {
        let connections = section.small("connections", None, 1..=100_000)?;
        if calls == "stream" {
            room(section, connections)?;
        }
        options.extend(["--connections".to_owned(), connections.to_string()]);
    }
    options.extend(section.words("options", &[])?);
    Ok(Driver { options, prefill: None, target: TargetForm::Address })
}

/// Refuses more clients of a generator than can have a call on its streams, as the load would.
fn room(section: &mut Section<'_>, connections: u32) -> Result<(), Problem> {
    let clients = section.count("clients", Some(1), 1..=1_000_000)?;
    let generators = section.count("generators", Some(1), 1..=64)?;
    let threads = section.count("threads", Some(1), 1..=256)?;
    let needed = streams_needed(clients.div_ceil(generators), threads);
    if u64::from(connections) >= needed {
        return Ok(());
    }
    let what = format!(
        "`{connections}` is too few for {clients} clients of {generators} generators with {threads} \
         threads each: a stream carries {OPEN_CALLS} calls at a time; write {needed} or more, or \
         leave it out"
    );
    Err(section.problem("connections", what))
}

/// `{ send = 1, receive = 1 }` as `send=1,receive=1`.
fn mix(section: &mut Section<'_>) -> Result<String, Problem> {
    let form = "a table of weights such as { send = 1, receive = 1 }";
    let refuse = |section: &Section<'_>, what: String| Err(section.problem("mix", what));
    let Some(value) = section.raw("mix") else {
        section.effective("mix", json!({ "send": 1, "receive": 1 }));
        return Ok("send=1,receive=1".to_owned());
    };
    let Value::Table(table) = value else {
        return refuse(section, format!("`{value}` is not {form}"));
    };
    weights(section, table, &OPERATIONS, form)
}
