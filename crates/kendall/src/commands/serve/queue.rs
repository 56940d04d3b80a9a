//! `kendall serve queue`: the persistent message queue over PostgreSQL.

use std::path::PathBuf;

use kendall_message_queue::{
    Access, Database, DatabaseError, Limits, QueueOptions, Server, ServerError,
};
use kendall_tier::serve::ListenError;
use kendall_tier::{Clock, PageResponse, Routes, Stop};
use kendall_units::Seconds;

use super::{Running, TierFlags, TlsFlags, at_least_one};
use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// Runs a persistent message queue over PostgreSQL
///
/// Clients speak gRPC (kendall.queue.v1, with reflection and health). Any number of middlewares may
/// share one database. Every answered change is committed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    kendall serve queue --listen 127.0.0.1:7070 --console\n  \
    kendall serve queue --listen 127.0.0.1:7070 --database postgres://queue@db.example/queue \
    --workers 8 --connections 8 --metrics 127.0.0.1:9100\n  \
    kendall serve queue --listen 0.0.0.0:7070 --tokens tokens.txt --tls-certificate queue.pem --tls-key queue.key")]
pub(crate) struct QueueFlags {
    #[command(flatten)]
    tier: TierFlags,

    /// A PostgreSQL (15 or later); by default a private one is started from the installed programs.
    /// `?sslmode=verify-full` requires TLS with a verified server
    #[arg(long, value_name = "URL", env = "KENDALL_QUEUE_DATABASE", hide_env_values = true)]
    database: Option<String>,

    /// PEM file with the authority of PostgreSQL's certificate; by default those that the system
    /// trusts
    #[arg(long, value_name = "FILE", requires = "database")]
    database_root_certificate: Option<PathBuf>,

    /// Folder of the private PostgreSQL
    #[arg(long, value_name = "DIR", default_value = "kendall-queue", conflicts_with = "database")]
    data: PathBuf,

    #[arg(long)]
    workers: u32,

    #[arg(long)]
    connections: u32,

    #[arg(long)]
    batch: u32,

    /// Most requests that wait; further ones are refused with RESOURCE_EXHAUSTED
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one::<u32>())]
    queue_capacity: u32,

    /// Most client connections; a further one replaces the longest idle, or waits
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = at_least_one::<u32>())]
    client_connections: u32,

    /// Longest wait for a connection to PostgreSQL
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = super::some_time)]
    database_timeout: Seconds,

    /// How long PostgreSQL may take for an operation; ten times as long for purges and similar ones
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = super::some_time)]
    operation_timeout: Seconds,

    /// Network threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,

    /// Serves the management console, and prints the address to open, with an access token. The console
    /// has no TLS; for other machines, use an SSH tunnel
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:7071", value_parser = super::address)]
    console: Option<std::net::SocketAddr>,

    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsFlags,

    /// Allows an address that other hosts can reach without tokens or without TLS
    #[arg(long)]
    open_to_anyone: bool,

    /// Most characters of a message's content
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    content_characters: u32,

    /// Most queues
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    queues: u32,

    /// Most messages in one batch request
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch_messages: u32,

    /// Longest wait of a receive
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = kendall_units::parse_seconds)]
    longest_wait: Seconds,

    /// Most clients that wait for a message at the same time
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    waiting_clients: u32,
}

impl QueueFlags {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let stop = Stop::on_signals()?;
        let server = Server::start(&self.options(), Clock::monotonic())
            .map_err(|error| exit_with(exit_of(&error), error))?;
        let listen = vec![server.address()];
        let instruments = server.instruments().clone();
        let snapshot = server.snapshot();
        let routes = Routes::new()
            .healthy_while(server.health())
            .with_metrics(server.queue_metrics())
            .with("GET", "/snapshot", move |_| PageResponse::json(&snapshot()));
        let running = Running::start(&self.tier.page, &instruments, routes, &stop, listen)?;
        if let Some(address) = server.console() {
            output::note(&format!("console {address}"));
        }
        running.wait();
        let untold = server.untold();
        server.stop();
        if let (Some(why), Format::Human) = (untold, self.tier.page.format) {
            // A study keeps it as a caveat of the run.
            output::result(&format!(
                "remark inside: PostgreSQL's own counters of statements and its log are not known: {why}"
            ));
        }
        running.finish()
    }

    fn options(&self) -> QueueOptions {
        let size = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        QueueOptions {
            listen: self.tier.listen,
            database: match &self.database {
                Some(url) => Database::Url(url.clone()),
                None => Database::Private(self.data.clone()),
            },
            root_certificate: self.database_root_certificate.clone(),
            workers: size(self.workers),
            connections: size(self.connections),
            batch: size(self.batch),
            queue_capacity: size(self.queue_capacity),
            client_connections: size(self.client_connections),
            database_timeout: self.database_timeout.as_duration(),
            operation_timeout: self.operation_timeout.as_duration(),
            threads: size(self.threads),
            console: self.console,
            access: Access {
                tokens: self.tokens.clone(),
                tls: self.tls.tls(),
                open_to_anyone: self.open_to_anyone,
            },
            limits: Limits {
                content_characters: size(self.content_characters),
                queues: size(self.queues),
                batch_messages: size(self.batch_messages),
                wait_ms: self.longest_wait.as_nanos() / 1_000_000,
                waiting_clients: size(self.waiting_clients),
            },
        }
    }
}

fn exit_of(error: &ServerError) -> Exit {
    match error {
        ServerError::Database(
            DatabaseError::Url { .. }
            | DatabaseError::SslMode { .. }
            | DatabaseError::RootCertificate { .. },
        )
        | ServerError::Open { .. }
        | ServerError::Tokens(_)
        | ServerError::Listen(ListenError::Tls(_)) => Exit::Refused,
        ServerError::Threads(_) | ServerError::Reflection(_) => Exit::Failure,
        _ => Exit::NotReady,
    }
}
