//! `kendall serve cache`: the build cache.

use std::path::PathBuf;

use kendall_build_cluster::cache::{Cache, CacheOptions};
use kendall_build_cluster::listen::{LINE, ListenError, ListenOptions, StartError, Tokens};
use kendall_build_cluster::peer::{Trust, TrustFiles};
use kendall_tier::{Clock, Stop};

use super::{Running, TierFlags, TlsFlags};
use crate::exit::{Exit, exit_with, refused};

/// Runs a build cache for Bazel and similar tools
///
/// It speaks the Remote Execution API 2.0 to 2.12 over gRPC, and the HTTP cache protocol (/cas/,
/// /ac/) on the same port. Blobs are stored on disk; acknowledged ones survive a kill of the
/// process.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    kendall serve cache --listen 127.0.0.1:9092 --data /var/cache/kendall --quota 50GiB\n  \
    kendall serve cache --listen 0.0.0.0:9092 --tokens tokens.txt --tls-certificate cert.pem \
    --tls-key key.pem --metrics 127.0.0.1:9100\n  \
    bazel build --remote_cache=grpc://127.0.0.1:9092 //...")]
pub(crate) struct CacheFlags {
    #[command(flatten)]
    tier: TierFlags,

    /// Folder of the stored blobs
    #[arg(long, value_name = "DIR", default_value = "kendall-cache")]
    data: PathBuf,

    /// Most bytes on disk; the least recently used blobs are evicted first
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = kendall_units::parse_bytes)]
    quota: u64,

    /// An instance name with its own store and quota, such as `ci=20GiB`; may be repeated. Without
    /// it, all names share one store, and only results of actions are separate
    #[arg(long = "instance", value_name = "NAME=SIZE", value_parser = instance, conflicts_with = "quota")]
    instances: Vec<(String, u64)>,

    /// Network threads; by default one per core
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,

    #[command(flatten)]
    clients: ClientFlags,

    /// Refuses all changes of results of actions
    #[arg(long)]
    read_only_results: bool,

    /// Keeps below /ac/ over HTTP also what is no ActionResult, as ccache's layout `bazel` stores it
    #[arg(long)]
    any_results: bool,

    /// For caches behind `kendall serve cache-front`: the front checks whether everything that a
    /// result names is present, since only it knows all caches
    #[arg(long)]
    behind_front: bool,
}

/// Who may connect, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientFlags {
    /// Most client connections; a further one replaces the longest idle, or waits
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = super::at_least_one::<u32>())]
    client_connections: u32,

    #[command(flatten)]
    access: AccessFlags,
}

/// Who may do what, and the certificate of the tier.
#[derive(Debug, clap::Args)]
pub(crate) struct AccessFlags {
    /// File of tokens, one per line: `read TOKEN`, `write TOKEN`, or `work TOKEN` for workers;
    /// `read *` lets all clients read
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsFlags,
}

/// How the other tiers of the cluster are known, and this one to them.
#[derive(Debug, clap::Args)]
pub(crate) struct PeerFlags {
    /// PEM file with the authority of the certificates of cache and scheduler; only TLS is then
    /// used to reach them
    #[arg(long, value_name = "FILE")]
    peer_certificate: Option<PathBuf>,

    /// The name in their certificates; by default their address
    #[arg(long, value_name = "NAME", requires = "peer_certificate")]
    peer_name: Option<String>,

    /// PEM file with the client certificate to send them
    #[arg(long, value_name = "FILE", requires_all = ["peer_certificate", "own_key"])]
    own_certificate: Option<PathBuf>,

    /// PEM file with its key
    #[arg(long, value_name = "FILE", requires = "own_certificate")]
    own_key: Option<PathBuf>,

    /// File with the token to send them
    #[arg(long, value_name = "FILE")]
    peer_token: Option<PathBuf>,
}

impl PeerFlags {
    pub(crate) fn trust(&self) -> anyhow::Result<Trust> {
        let files = TrustFiles {
            certificate: self.peer_certificate.clone(),
            name: self.peer_name.clone(),
            own: self.own_certificate.clone().zip(self.own_key.clone()),
            token: self.peer_token.clone(),
        };
        Trust::read(&files).map_err(refused)
    }
}

impl ClientFlags {
    /// How a tier listens at `address`.
    pub(crate) fn listen(&self, address: std::net::SocketAddr) -> anyhow::Result<ListenOptions> {
        self.access.listen(address, usize::try_from(self.client_connections).unwrap_or(usize::MAX))
    }
}

impl AccessFlags {
    /// How a tier listens at `address`, for so many connections.
    pub(crate) fn listen(
        &self,
        address: std::net::SocketAddr,
        connections: usize,
    ) -> anyhow::Result<ListenOptions> {
        let mut options = ListenOptions::new(address);
        options.edge.connections = connections;
        if let Some(path) = &self.tokens {
            options.tokens = Some(Tokens::read(path, &LINE).map_err(refused)?.into());
        }
        options.edge.tls = self.tls.tls();
        Ok(options)
    }
}

/// Refuses a flag that names one thing twice.
pub(super) fn once<'a>(flag: &str, names: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(refused(format!("{flag} {} is there twice", twice[0]))),
        None => Ok(()),
    }
}

impl CacheFlags {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let stop = Stop::on_signals()?;
        once("--instance", self.instances.iter().map(|(name, _)| name.as_str()))?;
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let options = CacheOptions {
            listen: self.clients.listen(self.tier.listen)?,
            data: self.data.clone(),
            quota: self.quota,
            instances: self.instances.iter().cloned().collect(),
            threads: self.threads.and_then(|n| usize::try_from(n).ok()).unwrap_or(cores),
            read_only_results: self.read_only_results,
            any_results: self.any_results,
            behind_front: self.behind_front,
        };
        let cache = Cache::start(&options, Clock::monotonic()).map_err(start_error)?;
        let (page, listen) = (&self.tier.page, vec![cache.address()]);
        Running::start(page, cache.instruments(), cache.routes(), &stop, listen)?
            .until_stopped(|| cache.stop())
    }
}

pub(super) fn start_error(error: StartError) -> anyhow::Error {
    let exit = match error {
        StartError::Listen(ListenError::Tls(_)) => Exit::Refused,
        StartError::Threads(_) | StartError::Reflection(_) => Exit::Failure,
        StartError::Listen(_) | StartError::Kept(_) => Exit::NotReady,
    };
    exit_with(exit, error)
}

fn instance(text: &str) -> Result<(String, u64), String> {
    let (name, size) =
        text.rsplit_once('=').ok_or_else(|| "write it as NAME=SIZE, like ci=20GiB".to_owned())?;
    let size = kendall_units::parse_bytes(size).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), size))
}
