//! `protocol = "queue"`.

use kendall_keys::Form;
use kendall_protocols::queue::{OPEN_CALLS, streams_needed};
use kendall_units::counted;
use serde_json::json;
use toml::Value;

use crate::section::{Key, Problem, Section};
use crate::workload::{Driver, Jobs, Protocol, weights};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "queue", keys: &[KEYS], read, jobs: Jobs::Never };

const KEYS: &[Key] = &[
    Key::choice(
        "calls",
        &["single", "stream"],
        "`single`: one call per operation; `stream`: the operations of a connection share one stream, for a \
         fraction of the CPU time",
    )
    .or("'single'"),
    Key::new(
        "mix",
        Form::Named(&Form::Number),
        "weights of `send`, `receive`, `read`, `lease`, `list`",
    )
    .or("{ send = 1, receive = 1 }"),
    Key::text("message_size", "size of messages: `200B` or `uniform:50B..2kB`").or("'200B'"),
    Key::choice("peers", &["any", "next", "random"], "which client may take a message").or("'any'"),
    Key::count("queues", 1, 1_000, "queues, over which the clients are spread in turn").or("1"),
    Key::text("wait", "how long a receive waits for a message").or("'0s'"),
    Key::count("waiting", 0, 10_000_000, "messages that each generator sends before the load")
        .or("0"),
    Key::count(
        "connections",
        1,
        100_000,
        "connections that the clients of a generator share; by default one per client, with streams one per \
         middleware and thread, and at least one per 512 clients",
    )
    .optional(),
    Key::text(
        "token_file",
        "file with an administrator's token, or the middlewares' file of tokens, whose first administrator's \
         token is used",
    )
    .optional(),
    Key::text("tls_name", "uses TLS; the middlewares' certificate must be issued for this name")
        .optional(),
    Key::text("tls_root", "file (PEM) of the authority of their certificates").optional(),
    Key::texts("options", "further arguments of `kendall load queue`"),
];

/// What `kendall load queue --mix` takes.
const OPERATIONS: [&str; 5] = ["send", "receive", "read", "lease", "list"];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let mut options = vec!["--mix".to_owned(), mix(section)?];
    options.extend(section.options(&["calls", "message_size", "peers", "queues", "wait"])?);
    options.extend(["--prefill".to_owned(), section.count("waiting")?.to_string()]);
    if section.has("connections") && section.text("calls")? == "stream" {
        let connections = section.small("connections")?;
        check_streams(section, connections)?;
    }
    options.extend(section.options(&["connections", "token_file", "tls_name", "tls_root"])?);
    if section.has("tls_root") && !section.has("tls_name") {
        let what = "has no effect without `tls_name`, with which the load uses TLS";
        return Err(section.problem("tls_root", what));
    }
    options.extend(section.words("options")?);
    Ok(Driver { options, ..Driver::default() })
}

/// Refuses more clients of a generator than can have a call on its streams, as the load would.
fn check_streams(section: &mut Section<'_>, connections: u32) -> Result<(), Problem> {
    let clients = section.count("clients")?;
    let generators = section.count("generators")?;
    let threads = section.count("threads")?;
    let needed = streams_needed(clients.div_ceil(generators), threads);
    if u64::from(connections) >= needed {
        return Ok(());
    }
    let what = format!(
        "`{connections}` is too few for {} of {} with {} each: a stream carries {OPEN_CALLS} calls \
         at a time; write {needed} or more, or leave it out",
        counted(clients, "client"),
        counted(generators, "generator"),
        counted(threads, "thread")
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
