//! `kendall serve proxy`: the memcached middleware.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use kendall_memcached_proxy::{
    Address, ClientTls, Mode, Options, Placement, Proxy as Middleware, Server, ServerTls, TlsError,
};
use kendall_tier::{Clock, Routes, Stop};
use kendall_units::{parse_bytes, parse_seconds};

use super::{Running, TierFlags, address};
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

    /// A server; repeat it for each. With a weight, it holds so many times as many keys as one
    /// without (--placement hash)
    #[arg(long = "server", value_name = "HOST:PORT[:WEIGHT]|unix:PATH[:WEIGHT]", required = true,
        value_parser = server)]
    servers: Vec<Server>,

    /// A server that stands in for those that are ejected, instead of the ones left
    #[arg(long, value_name = "HOST:PORT[:WEIGHT]|unix:PATH[:WEIGHT]", value_parser = server)]
    failover: Vec<Server>,

    /// A socket in the file system for clients of this machine, besides --listen
    #[arg(long, value_name = "PATH")]
    listen_unix: Option<PathBuf>,

    /// Certificate chain (PEM) for clients of --listen: they speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Authority (PEM) whose certificate every client must show
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// Authority (PEM) of the servers' certificates: servers with a port are spoken to with TLS
    #[arg(long, value_name = "FILE")]
    server_ca: Option<PathBuf>,

    /// Name in the servers' certificates; their address without it
    #[arg(long, value_name = "NAME", requires = "server_ca")]
    server_name: Option<String>,

    /// Network threads; workers, the queue and clients are divided among them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,

    /// The two marks around the part of a key that places it, such as {} (--placement hash)
    #[arg(long, value_name = "MARKS", value_parser = hash_tag)]
    hash_tag: Option<[u8; 2]>,

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

    /// Failures in a row after which a server is ejected
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
        let options = self.options().map_err(|error| exit_with(Exit::Refused, error))?;
        let middleware = Middleware::bind(options, Clock::monotonic())
            .map_err(|error| exit_with(Exit::NotReady, error))?;
        let instruments = middleware.instruments().clone();
        let listen = vec![middleware.address()];
        let pulses = middleware.pulses();
        let beats = move || pulses.iter().all(|pulse| pulse.beats_within(STUCK_AFTER));
        let routes = Routes::new().healthy_while(beats);
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

    fn options(&self) -> Result<Options, TlsError> {
        let client_tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(ClientTls::from_files(certificate, key, self.tls_client_ca.as_deref())?)
            }
            _ => None,
        };
        let server_tls = match &self.server_ca {
            Some(authority) => Some(ServerTls::from_files(authority, self.server_name.as_deref())?),
            None => None,
        };
        Ok(Options {
            client_tls,
            server_tls,
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
            listen: self.tier.listen,
            listen_unix: self.listen_unix.clone(),
            servers: self.servers.clone(),
            failover: self.failover.clone(),
            hash_tag: self.hash_tag,
            threads: self.threads,
        })
    }
}

/// `HOST:PORT` or `unix:PATH`, with `:WEIGHT` behind it or without.
fn server(text: &str) -> Result<Server, String> {
    let (place, weight) = match text.rsplit_once(':') {
        Some((place, weight)) if has_port(place) => {
            let weight = weight.parse::<u32>().ok().filter(|weight| (1..=10_000).contains(weight));
            (place, weight.ok_or_else(|| "a weight is a number from 1 to 10000".to_owned())?)
        }
        _ => (text, 1),
    };
    let address = match place.strip_prefix("unix:") {
        Some("") => return Err("a path is missing; write it as unix:/run/memcached.sock".into()),
        Some(path) => Address::Unix(path.into()),
        None => Address::Tcp(address(place)?),
    };
    Ok(Server { address, weight })
}

/// Whether what stands before the last colon is whole by itself, so that a weight follows.
fn has_port(place: &str) -> bool {
    if let Some(path) = place.strip_prefix("unix:") {
        return !path.is_empty();
    }
    // The colons of an IPv6 address stand in brackets.
    let behind_host = place.rsplit_once(']').map_or(place, |(_, rest)| rest);
    behind_host.contains(':')
}

fn hash_tag(text: &str) -> Result<[u8; 2], String> {
    let marks: Option<[u8; 2]> = text.as_bytes().try_into().ok();
    marks
        .filter(u8_pair_is_plain)
        .ok_or_else(|| format!("`{text}` is not two marks; write them like `{{}}`"))
}

fn u8_pair_is_plain(marks: &[u8; 2]) -> bool {
    marks.iter().all(u8::is_ascii_graphic)
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
