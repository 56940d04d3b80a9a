//! The studies that `kendall init --template` writes.

use crate::exit::{Exit, exit_with};

/// Name, what it is for, and the file.
const TEMPLATES: [(&str, &str, &str); 7] = [
    (
        "demo",
        "a memcached proxy: how many workers it needs",
        include_str!("../../../../../studies/demo.toml"),
    ),
    (
        "processes",
        "your own service, started by commands (nginx as the example)",
        include_str!("../../../../../studies/processes/nginx.toml"),
    ),
    (
        "memcached",
        "memcached behind the proxy: writes",
        include_str!("../../../../../studies/memcached/writes.toml"),
    ),
    (
        "queue",
        "the message queue: throughput by clients",
        include_str!("../../../../../studies/message-queue/clients.toml"),
    ),
    (
        "compute",
        "the compute service by its threads",
        include_str!("../../../../../studies/compute/threads.toml"),
    ),
    (
        "two-level",
        "a 2^k design: which factor matters",
        include_str!("../../../../../studies/memcached/2k-writes.toml"),
    ),
    (
        "adaptive",
        "an adaptive search: where it saturates, in few runs",
        include_str!("../../../../../studies/memcached/saturation.toml"),
    ),
];

pub(super) fn list() -> String {
    let mut text = "A study of your own service:\n  \
        kendall init -- COMMAND … {address} …       starts it on an address that the study chooses\n  \
        kendall init --attach http://HOST:PORT/     loads what runs already\n\n\
        Templates (kendall init --template NAME):\n"
        .to_owned();
    for (name, what, _) in TEMPLATES {
        text.push_str(&format!("  {name:<10} {what}\n"));
    }
    text
}

pub(super) fn text(name: &str) -> anyhow::Result<(String, &'static str)> {
    let found = TEMPLATES.iter().find(|template| template.0 == name);
    found.map(|(name, _, text)| ((*name).to_owned(), *text)).ok_or_else(|| {
        let names = TEMPLATES.map(|template| template.0);
        let close = kendall_keys::closest(name, names)
            .map_or_else(String::new, |close| format!("; did you mean `{close}`?"));
        exit_with(
            Exit::Refused,
            format!("there is no template `{name}`{close} (there are {})", names.join(", ")),
        )
    })
}
