//! `kendall serve cache-front`: one address for several build caches.

use kendall_build_cluster::front::{CacheFront, FrontOptions, Server, WhenDown};
use kendall_tier::{Clock, Stop};
use kendall_units::Seconds;

use super::cache::{ClientFlags, PeerFlags, once, start_error};
use super::{Running, TierFlags};
use crate::exit::Exit;

/// Runs a front over several build caches
///
/// Each blob is on one of them, chosen by weighted rendezvous hashing: an added server takes its
/// share, and nothing else moves. A batch becomes one call per server. The caches run with
/// --behind-front, since only the front can check whether everything that a result names is
/// present.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    kendall serve cache --listen 127.0.0.1:9201 --data /var/cache/a --behind-front\n  \
    kendall serve cache --listen 127.0.0.1:9202 --data /var/cache/b --behind-front\n  \
    kendall serve cache-front --listen 127.0.0.1:9092 --server 127.0.0.1:9201 --server 127.0.0.1:9202:2\n  \
    bazel build --remote_cache=grpc://127.0.0.1:9092 //...")]
#[command(override_usage = "kendall serve cache-front [OPTIONS] --listen <HOST:PORT> \\\n    \
    --server <HOST:PORT[:WEIGHT]>")]
pub(crate) struct CacheFrontFlags {
    #[command(flatten)]
    tier: TierFlags,

    /// A cache; repeat the option for each. A weight of 2 gives it twice the share of one without.
    /// All fronts of the same caches must spell the addresses alike
    #[arg(long = "server", value_name = "HOST:PORT[:WEIGHT]", value_parser = server, required = true)]
    servers: Vec<Server>,

    /// A cache for the results of actions only; by default the servers store them; may be repeated
    #[arg(long = "results-server", value_name = "HOST:PORT[:WEIGHT]", value_parser = server)]
    results_servers: Vec<Server>,

    /// What happens to the share of an unreachable server
    #[arg(long, value_enum, default_value_t)]
    when_down: WhenDownFlag,

    /// Longest wait for a server's answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::some_time)]
    server_patience: Seconds,

    #[command(flatten)]
    clients: ClientFlags,

    #[command(flatten)]
    peers: PeerFlags,

    /// Threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
}

/// What happens to the share of an unreachable server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum WhenDownFlag {
    /// Results of actions are misses, and all else is UNAVAILABLE.
    #[default]
    Miss,
    /// The other servers take it over until the server is back.
    LeaveOut,
}

impl CacheFrontFlags {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let stop = Stop::on_signals()?;
        let results = match self.results_servers.as_slice() {
            [] => self.servers.clone(),
            some => some.to_vec(),
        };
        for (flag, servers) in [("--server", &self.servers), ("--results-server", &results)] {
            once(flag, servers.iter().map(|server| server.name.as_str()))?;
        }
        let options = FrontOptions {
            listen: self.clients.listen(self.tier.listen)?,
            storage: self.servers.clone(),
            results,
            trust: self.peers.trust()?,
            when_down: match self.when_down {
                WhenDownFlag::Miss => WhenDown::Miss,
                WhenDownFlag::LeaveOut => WhenDown::LeaveOut,
            },
            patience: self.server_patience.as_duration(),
            threads: usize::from(self.threads),
        };
        let front = CacheFront::start(options, Clock::monotonic()).map_err(start_error)?;
        let (page, listen) = (&self.tier.page, vec![front.address()]);
        Running::start(page, front.instruments(), front.routes(), &stop, listen)?
            .until_stopped(|| front.stop())
    }
}

/// `HOST:PORT`, with `:WEIGHT` behind it or without.
fn server(text: &str) -> Result<Server, String> {
    if let Ok(address) = super::address(text) {
        return Ok(Server { name: text.to_owned(), address, weight: 1 });
    }
    let (name, weight) =
        text.rsplit_once(':').ok_or("write it as HOST:PORT or HOST:PORT:WEIGHT")?;
    let weight = weight.parse::<u32>().ok().filter(|weight| (1..=10_000).contains(weight));
    let weight = weight.ok_or("a weight is a number from 1 to 10000")?;
    Ok(Server { name: name.to_owned(), address: super::address(name)?, weight })
}
