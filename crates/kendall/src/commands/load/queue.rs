//! `kendall load queue`.

use std::path::PathBuf;

use kendall_loadgen::queue::{self, QueueLoadError, QueuePlan};
use kendall_units::{Seconds, parse_seconds};

use super::super::queue::flags::Access;
use super::common::{Common, TlsAdvice, resolve};
use crate::exit::{Exit, exit_with, refused, stop_at_a_signal};

/// Loads the message queue
///
/// Each client of the load sends under one name and receives under another, since no client may
/// receive what they sent themselves. Every message that is received is checked: what its sender
/// wrote, for this client or for anyone, and it was not delivered before. Where the middlewares need a token,
/// it must be an administrator's.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall load queue 127.0.0.1:7070 --clients 64 --duration 10s\n  \
                  kendall load queue 127.0.0.1:7070 127.0.0.1:7072 --clients 600 --think-time 50ms \
                  --message-size 2000B --peers random\n  \
                  kendall load queue 127.0.0.1:7070 --rate 2000/s --mix send=1,lease=1\n  \
                  kendall load queue 127.0.0.1:7070 --clients 64 --calls stream --connections 2\n  \
                  KENDALL_QUEUE_TOKEN=… kendall load queue queue.example:7070 --tls-name queue.example"
)]
pub(crate) struct LoadQueue {
    /// Middlewares; the clients are spread over them in turn
    #[arg(required = true, value_name = "HOST:PORT")]
    targets: Vec<String>,

    #[arg(long, value_name = "HOW")]
    calls: String,

    /// Operations with their weights: send, receive, read, list, lease (the client's next request
    /// acknowledges the leased message); each client alternates between them
    #[arg(long, default_value = "send=1,receive=1", value_name = "OPERATION=WEIGHT,…")]
    mix: String,

    #[arg(long, value_name = "SIZE")]
    message_size: String,

    #[arg(long, value_name = "WHO")]
    peers: String,

    /// Name of the queue; created if it does not exist
    #[arg(long, default_value = "load", value_name = "NAME")]
    queue: String,

    #[arg(long)]
    queues: u32,

    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    wait: Seconds,

    /// How long a leased message is hidden from others
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_seconds)]
    lease: Seconds,

    #[arg(long)]
    connections: Option<u32>,

    #[command(flatten)]
    access: Access,

    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// Messages in the queue when the load begins
    #[arg(long, default_value_t = 0, value_name = "N")]
    prefill: u64,

    #[command(flatten)]
    common: Common,
}

impl LoadQueue {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let tls = self.access.trust();
        let tls = self.access.tls_name.as_deref().map(|name| (name, &tls));
        let token = match &self.token_file {
            Some(path) => Some(queue::Access::token_of(path).map_err(refused)?),
            None => self.access.token.clone(),
        };
        let access = queue::Access::new(token.as_deref(), tls).map_err(refused)?;
        let content = QueuePlan {
            access,
            calls: QueuePlan::parse_calls(&self.calls).map_err(refused)?,
            mix: QueuePlan::parse_mix(&self.mix).map_err(refused)?,
            queue: self.queue.clone(),
            queues: self.queues as usize,
            message_size: QueuePlan::parse_size(&self.message_size).map_err(refused)?,
            peers: QueuePlan::parse_peers(&self.peers).map_err(refused)?,
            wait_ms: self.wait.as_nanos() / 1_000_000,
            lease_ms: (self.lease.as_nanos() / 1_000_000).max(1),
            connections: self.connections.map(|connections| connections as usize),
            prefill: self.prefill,
        };
        content
            .check(self.common.clients() as usize, self.common.threads as usize)
            .map_err(refused)?;
        // With streams there are few, and with `--connections` as many as it says.
        let own = if self.calls == "stream" { 0 } else { self.common.clients() };
        let connections = self.connections.unwrap_or(own).into();
        let plan = self.common.plan(resolve(&self.targets, "127.0.0.1:7070")?, connections)?;
        if content.wait_ms * 1_000_000 >= plan.timeout_ns {
            return Err(refused("--wait must be below --timeout, or every empty wait times out"));
        }
        let stop = stop_at_a_signal()?;
        let result = queue::run(&plan, &content, &stop, &mut self.common.progress()?)
            .map_err(queue_error)?;
        self.common.print(&result)
    }
}

fn queue_error(error: QueueLoadError) -> anyhow::Error {
    match error {
        QueueLoadError::Load(error) => {
            let trust = "--tls-root FILE names its authority, --tls-name NAME its name";
            TlsAdvice { trust, authority: "", plain: "no --tls-name" }.explain(error)
        }
        refused @ (QueueLoadError::Refused { .. } | QueueLoadError::Tls) => {
            exit_with(Exit::NotReady, refused)
        }
    }
}
