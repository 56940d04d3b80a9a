//! `kendall serve proxy`: the memcached middleware.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use kendall_memcached_proxy::{
    ClientTls, Config, Mode, Options, Placement, Pool, Proxy as Middleware, Reloader, Server,
    ServerTls, StartError, hash_tag, server, size as bytes, time as duration,
};
use kendall_tier::{Clock, Hangups, Routes, Stop};

use super::{PageFlags, Running, TlsFlags, address};
use crate::exit::{Exit, exit_with, refused};
use crate::output;

/// A network thread that did not come to the end of a turn in this time is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// Longest wait for the network thread at a stop: it gives clients five seconds for their answers.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Runs a memcached proxy in front of several servers
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  kendall serve proxy --listen 127.0.0.1:11211 --server \
    127.0.0.1:11212 --server 127.0.0.1:11213 --workers 64 --shard-multigets\n  \
    kendall serve proxy --config proxy.toml --metrics 127.0.0.1:9100")]
pub(crate) struct Proxy {
    /// Address for clients; port 0 takes a free one, which the line `ready …` names
    #[arg(long, value_name = "HOST:PORT", value_parser = address, required_unless_present = "config")]
    listen: Option<SocketAddr>,

    #[command(flatten)]
    page: PageFlags,

    /// A TOML file with pools, routes and everything that the flags below set; SIGHUP reloads it
    /// without losing a request
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Settings", "TlsFlags"])]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

/// What a file says in their place.
#[derive(Debug, clap::Args)]
struct Settings {
    /// A server; repeat the option for each. A weight of 2 gives it twice the keys of one without
    /// (--placement hash)
    #[arg(long = "server", value_name = "HOST:PORT[:WEIGHT]|unix:PATH[:WEIGHT]",
        required_unless_present = "config", value_parser = server)]
    servers: Vec<Server>,

    /// A server that replaces ejected servers, instead of the remaining ones
    #[arg(long, value_name = "HOST:PORT[:WEIGHT]|unix:PATH[:WEIGHT]", value_parser = server)]
    failover: Vec<Server>,

    /// A Unix socket for clients of this machine, in addition to --listen
    #[arg(long, value_name = "PATH")]
    listen_unix: Option<PathBuf>,

    #[command(flatten)]
    clients: TlsFlags,

    /// Authority (PEM) of the servers' certificates: TLS is used to servers with a port
    #[arg(long, value_name = "FILE")]
    server_ca: Option<PathBuf>,

    /// Name in the servers' certificates; by default their address
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

    /// Longest time without a byte from a server that owes an answer
    #[arg(long, default_value = "1s", value_parser = duration)]
    timeout: Duration,

    /// Failures in a row after which a server is ejected
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    eject_after: u32,

    /// How often an ejected server is probed
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
        let hangups = Hangups::new()?;
        let options = self.options().map_err(refused)?;
        let middleware = Middleware::bind(options, Clock::monotonic()).map_err(|error| {
            let refused = matches!(error, StartError::Plan(_));
            exit_with(if refused { Exit::Refused } else { Exit::NotReady }, error)
        })?;
        let instruments = middleware.instruments().clone();
        let listen = vec![middleware.address()];
        let pulses = middleware.pulses();
        let beats = move || pulses.iter().all(|pulse| pulse.beats_within(STUCK_AFTER));
        let routes = Routes::new().healthy_while(beats);
        let running = Running::start(&self.page, &instruments, routes, &stop, listen)?;
        let reloader = middleware.reloader();
        let asked = stop.clone();
        let (ended, end) = sync_channel(1);
        std::thread::Builder::new().name("network".into()).spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| middleware.run(&asked)));
            // However it ended, the program must not wait for a signal that nobody sends.
            asked.request();
            // Nobody listens when it came too late.
            ended.send(outcome).unwrap_or_default();
        })?;
        std::thread::Builder::new()
            .name("reload".into())
            .spawn(move || self.reload_at_hangups(hangups, &reloader))?;
        running.wait();
        let exit = match end.recv_timeout(STOP_WITHIN) {
            Ok(Ok(outcome)) => outcome.map(|()| Exit::Done)?,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => {
                output::note("the network thread did not stop; requests in flight are lost");
                Exit::Failure
            }
        };
        running.finish().map(|done| if exit == Exit::Done { done } else { exit })
    }

    /// Reads the file, or what the flags name, at each SIGHUP, for as long as the process lives.
    fn reload_at_hangups(self, mut hangups: Hangups, reloader: &Reloader) {
        let from =
            self.config.as_ref().map_or("the flags".into(), |path| path.display().to_string());
        loop {
            hangups.wait();
            let reloaded = self
                .options()
                .and_then(|options| reloader.reload(options).map_err(anyhow::Error::new));
            match reloaded {
                Ok(()) => output::note(&format!("reloaded {from}")),
                Err(error) => {
                    output::note(&format!("not reloaded, nothing has changed: {error:#}"));
                }
            }
        }
    }

    fn options(&self) -> anyhow::Result<Options> {
        let Some(path) = &self.config else {
            let listen = self.listen.ok_or_else(|| anyhow::anyhow!("--listen is missing"))?;
            return self.settings.options(listen);
        };
        let config = Config::from_file(path)?;
        let listen = self.listen.or(config.listen).ok_or_else(|| {
            anyhow::anyhow!(
                "{}: no address to listen on; write listen = \"127.0.0.1:11211\", or --listen",
                path.display()
            )
        })?;
        Ok(Options { listen, ..config.options })
    }
}

impl Settings {
    fn options(&self, listen: SocketAddr) -> anyhow::Result<Options> {
        let client_tls = self.clients.tls().as_ref().map(ClientTls::new).transpose()?;
        let tls = match &self.server_ca {
            Some(authority) => Some(ServerTls::from_files(authority, self.server_name.as_deref())?),
            None => None,
        };
        let pool = Pool {
            tls,
            failover: self.failover.clone(),
            placement: match self.placement {
                PlacementName::Replicate => Placement::Replicate,
                PlacementName::Hash => Placement::Hash,
            },
            hash_tag: self.hash_tag,
            shard_multigets: self.shard_multigets,
            timeout: self.timeout,
            eject_after: self.eject_after,
            probe_every: self.probe_every,
            ..Pool::new("main", self.servers.clone())
        };
        Ok(Options {
            client_tls,
            mode: match self.mode {
                ModeName::Worker => Mode::Workers(self.workers),
                ModeName::Pipelined => Mode::Pipelined { connections: self.connections },
            },
            value_bytes: self.max_value,
            queue_length: self.queue,
            connections: self.max_clients,
            listen_unix: self.listen_unix.clone(),
            threads: self.threads,
            pools: vec![pool],
            ..Options::new(listen, Vec::new())
        })
    }
}
