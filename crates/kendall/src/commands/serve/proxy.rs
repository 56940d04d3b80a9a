//! `kendall serve proxy`: the memcached middleware.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use kendall_memcached_proxy::{Mode, Options, Placement, Proxy as Middleware};
use kendall_tier::{Clock, Routes, Stop};
use kendall_units::{parse_bytes, parse_seconds};

use super::{Running, ServerFlags, TierFlags};
use crate::exit::{Exit, exit_with};
use crate::output;

/// A network thread that did not come to the end of a turn in this time is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// Longest wait for the network thread at a stop: it gives clients five seconds for their answers.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Runs the memcached middleware: clients do not know that it is there
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  kendall serve proxy --listen 127.0.0.1:11211 --server \
    127.0.0.1:11212 --server 127.0.0.1:11213 --workers 64 --shard-multigets")]
pub(crate) struct Proxy {
    #[command(flatten)]
    tier: TierFlags,

    #[command(flatten)]
    servers: ServerFlags,

    /// Requests in service at once; each worker has a connection of its own to every server
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,

    /// How requests reach the servers: by workers, or pipelined over few shared connections
    #[arg(long, value_enum, default_value_t)]
    mode: ModeName,

    /// Connections to each server in pipelined mode
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: u32,

    /// Which servers hold a key: all of them, or one by consistent hashing (ketama)
    #[arg(long, value_enum, default_value_t)]
    placement: PlacementName,

    /// Splits a get of several keys over all servers
    #[arg(long)]
    shard_multigets: bool,

    /// Longest wait for a server that gives no byte
    #[arg(long, default_value = "1s", value_parser = duration)]
    timeout: Duration,

    /// Failures in a row after which a server is asked no more
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    eject_after: u32,

    /// How often a server that is asked no more is probed
    #[arg(long, default_value = "1s", value_parser = duration)]
    probe_every: Duration,

    /// Longest value; as memcached's -I
    #[arg(long, default_value = "1MiB", value_parser = bytes)]
    max_value: usize,

    /// Requests that may wait for a worker; further ones are refused
    #[arg(long, default_value_t = 100_000)]
    queue: usize,

    /// Clients that may be connected; further ones wait
    #[arg(long, default_value_t = 16_384)]
    max_clients: usize,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum ModeName {
    /// At most --workers requests in service, the others wait in a queue
    #[default]
    Worker,
    /// No limit on requests in service
    Pipelined,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum PlacementName {
    /// Writes to all servers, reads to one in turn
    #[default]
    Replicate,
    /// One server a key
    Hash,
}

impl Proxy {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let stop = Stop::on_signals()?;
        let middleware = Middleware::bind(self.options(), Clock::monotonic())
            .map_err(|error| exit_with(Exit::NotReady, error))?;
        let instruments = middleware.instruments().clone();
        let listen = vec![middleware.address()];
        let pulse = middleware.pulse();
        let routes = Routes::new().healthy_while(move || pulse.beats_within(STUCK_AFTER));
        let running = Running::start(&self.tier, &instruments, routes, &stop, listen)?;
        let asked = stop.clone();
        let (ended, end) = sync_channel(1);
        std::thread::Builder::new().name("network".into()).spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| middleware.run(&asked)));
            // However it ended, the program must not wait for a signal that nobody sends.
            asked.request();
            // Nobody listens when it came too late.
            ended.send(outcome).unwrap_or_default();
        })?;
        running.wait();
        let exit = match end.recv_timeout(STOP_WITHIN) {
            Ok(Ok(outcome)) => outcome.map(|()| Exit::Done)?,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => {
                output::note("the network thread did not stop; what was under way is lost");
                Exit::Failure
            }
        };
        running.finish().map(|done| if exit == Exit::Done { done } else { exit })
    }

    fn options(&self) -> Options {
        Options {
            mode: match self.mode {
                ModeName::Worker => Mode::Workers(self.workers),
                ModeName::Pipelined => Mode::Pipelined { connections: self.connections },
            },
            placement: match self.placement {
                PlacementName::Replicate => Placement::Replicate,
                PlacementName::Hash => Placement::Hash,
            },
            shard_multigets: self.shard_multigets,
            timeout: self.timeout,
            eject_after: self.eject_after,
            probe_every: self.probe_every,
            value_bytes: self.max_value,
            queue_length: self.queue,
            connections: self.max_clients,
            ..Options::new(self.tier.listen, self.servers.servers.clone())
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let seconds = parse_seconds(text).map_err(|error| error.to_string())?;
    if seconds.get() <= 0.0 {
        return Err(format!("`{text}` is no time to wait; write it like `500ms`"));
    }
    Ok(seconds.as_duration())
}

fn bytes(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes).map_err(|_| format!("`{text}` is more than this machine can hold"))
}
