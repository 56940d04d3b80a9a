//! `protocol = "queue"`.

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
        options.extend(["--connections".to_owned(), connections.to_string()]);
    }
    options.extend(section.words("options", &[])?);
    Ok(Driver { options, prefill: None, target: TargetForm::Address })
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
