//! What can be chosen.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::tls::{ClientTls, ServerTls};

/// The port that ketama's libraries leave out of a server's name.
const DEFAULT_PORT: u16 = 11211;

/// How requests reach the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At most so many requests in service, each with a connection of its own to every server.
    Workers(u32),
    /// No limit: requests of many clients share so many connections to every server.
    Pipelined { connections: u32 },
}

/// Which servers hold a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// All of them: writes go to all, reads to one in turn.
    Replicate,
    /// One, by consistent hashing.
    Hash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Address {
    /// The name from which ketama makes a server's points.
    pub(crate) fn point_name(&self) -> String {
        match self {
            Self::Tcp(address) if address.port() == DEFAULT_PORT => address.ip().to_string(),
            Self::Tcp(address) => format!("{}:{}", address.ip(), address.port()),
            Self::Unix(path) => path.display().to_string(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub address: Address,
    /// Its share of the keys with [`Placement::Hash`], beside the weights of the others.
    pub weight: u32,
}

impl From<SocketAddr> for Server {
    fn from(address: SocketAddr) -> Self {
        Self { address: Address::Tcp(address), weight: 1 }
    }
}

/// Servers that hold the same keys, and how they are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// What routes and other pools call it.
    pub name: String,
    /// The servers, one at least.
    pub servers: Vec<Server>,
    /// Servers for failover: with [`Placement::Hash`] for those that are ejected, else when all are.
    pub failover: Vec<Server>,
    pub placement: Placement,
    /// With [`Placement::Hash`], the marks around the part of a key that places it.
    pub hash_tag: Option<[u8; 2]>,
    /// Whether a `get` of several keys is split over all servers (with [`Placement::Replicate`]).
    pub shard_multigets: bool,
    /// TLS to servers that have a port.
    pub tls: Option<ServerTls>,
    /// Longest wait for a server that gives no byte.
    pub timeout: Duration,
    /// Failures in a row after which a server is no longer asked.
    pub eject_after: u32,
    /// How often a server that is not asked is probed.
    pub probe_every: Duration,
    /// Another pool, whose items are brought over when they are asked for and not here.
    pub warm_up: Option<WarmUp>,
    /// Another pool, which gets a copy of the requests.
    pub shadow: Option<Shadow>,
}

/// Where a cold pool has its items from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmUp {
    /// The name of the pool that has them.
    pub from: String,
    /// Longest time that an item stays which was brought over; else as long as it has left there.
    pub longest: Option<Duration>,
}

/// Who gets copies of a pool's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// The name of the pool that gets them.
    pub pool: String,
    /// Keys of which requests are copied, in millionths: always the same keys.
    pub millionths: u32,
}

pub(crate) const MILLION: u32 = 1_000_000;

impl Pool {
    /// The defaults for those servers.
    pub fn new(name: &str, servers: Vec<Server>) -> Self {
        Self {
            name: name.to_owned(),
            servers,
            failover: Vec::new(),
            placement: Placement::Replicate,
            hash_tag: None,
            shard_multigets: false,
            tls: None,
            timeout: Duration::from_secs(1),
            eject_after: 3,
            probe_every: Duration::from_secs(1),
            warm_up: None,
            shadow: None,
        }
    }

    /// Whether connections that were made for the one are right for the other.
    pub(crate) fn has_same_servers(&self, other: &Self) -> bool {
        let bare = |pool: &Self| Self { warm_up: None, shadow: None, ..pool.clone() };
        bare(self) == bare(other)
    }
}

/// Keys that go to a pool of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// What they begin with. The longest prefix counts.
    pub prefix: Vec<u8>,
    pub pool: String,
}

/// All choices, with the bounds that protect the proxy and its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub listen: SocketAddr,
    /// Where clients of this machine connect besides: a socket in the file system.
    pub listen_unix: Option<PathBuf>,
    pub client_tls: Option<ClientTls>,
    /// Network threads. Workers, the queue and clients are divided among them.
    pub threads: u32,
    /// Workers or pipelining.
    pub mode: Mode,
    /// Longest value; as the servers' `-I`.
    pub value_bytes: usize,
    /// Requests that may wait for a worker.
    pub queue_length: usize,
    pub connections: usize,
    /// The pools. The first has the keys for which there is no route.
    pub pools: Vec<Pool>,
    /// Keys that go to another pool than the first.
    pub routes: Vec<Route>,
}

impl Options {
    /// The defaults for one pool of those servers.
    pub fn new(listen: SocketAddr, servers: Vec<SocketAddr>) -> Self {
        Self {
            listen,
            listen_unix: None,
            client_tls: None,
            threads: 1,
            mode: Mode::Workers(64),
            value_bytes: 1 << 20,
            queue_length: 100_000,
            connections: 16_384,
            pools: vec![Pool::new("main", servers.into_iter().map(Server::from).collect())],
            routes: Vec::new(),
        }
    }

    /// Connections to each server of a pool that clients' requests go over, of one network thread; and
    /// where requests share them, how many there are for each size of answers: small, large, unknown.
    pub(crate) fn lanes(&self) -> (usize, usize) {
        match self.mode {
            Mode::Workers(workers) => (workers.max(1) as usize, 0),
            Mode::Pipelined { connections } => {
                (3 * connections.max(1) as usize, connections.max(1) as usize)
            }
        }
    }
}

/// Requests of one client that may be unanswered; its further ones stay in its socket.
pub(crate) const CLIENT_REQUESTS: usize = 256;
/// Bytes of answers a client may leave unread before its further requests wait.
pub(crate) const ANSWERS_ADMIT: usize = 256 << 10;
/// Bytes of answers that a client's unanswered reads may have, as far as is known, before further
/// ones wait; one may always be under way.
pub(crate) const CLIENT_WINDOW: usize = 1 << 20;
/// The least that an answer is thought to have: it bounds the reads of a client under way to 64.
pub(crate) const EXPECTED_LEAST: usize = 16 << 10;
/// A client whose answers have so many bytes a key has its requests on connections for large
/// answers, where requests share connections.
pub(crate) const BULK_BYTES: usize = 32 << 10;
/// Bytes of large answers, as far as is known, that servers are asked for at once, for each of them; further
/// such requests wait: while a server thread sends large values, its other connections are blocked.
pub(crate) const BULK_AT_ONCE: usize = 1 << 20;
/// What the first answer of a client counts for until its length is known, where the first answers of
/// others were small of late: sixteen such reads may be at a server at once.
pub(crate) const UNKNOWN_LEAST: usize = 64 << 10;
/// Bytes of answers that one client may leave unread, beside eight times the longest value.
pub(crate) const ANSWERS_CLIENT: usize = 64 << 20;
/// Memory of the answers that all clients together may leave unread, or sixteen times the longest value;
/// then the one that is furthest behind is closed. With what else the proxy needs it stays below 256 MiB.
pub(crate) const ANSWERS_TOTAL: usize = 192 << 20;
/// Memory of unread answers beyond which further large answers wait.
pub(crate) const ANSWERS_LARGE: usize = 128 << 20;
/// The longest that they wait for a client that takes nothing: then it is closed.
pub(crate) const STALLED_NS: u64 = 5_000_000_000;
/// Memory of answers beyond which idle clients keep no buffer for their next ones.
pub(crate) const ANSWERS_KEPT: usize = 32 << 20;
/// Bytes of a part of a buffer.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Bytes written to one client in a turn, and calls for that: others have a turn too.
pub(crate) const TURN_WRITE_BYTES: usize = 64 << 10;
pub(crate) const TURN_WRITES: usize = 16;
/// A client that has to get more than this is written to behind those that have to get less.
pub(crate) const LARGE_BYTES: usize = 16 << 10;
/// Bytes written to all those clients in a turn: while twenty of them have space for 256 KiB each, a
/// turn would take milliseconds, and a small request waits for two or three turns.
pub(crate) const TURN_LARGE_BYTES: usize = 128 << 10;
/// Requests taken from one client in a turn.
pub(crate) const TURN_REQUESTS: usize = 256;
/// Unfinished requests and unread answers that held more bytes than this: when most of it is free it
/// goes back to the system.
pub(crate) const TRIM_BYTES: usize = 16 << 20;
/// How long it must have been free: to give tens of megabytes back takes milliseconds, and to get them again as
/// long, in which no client is served.
pub(crate) const TRIM_AFTER_NS: u64 = 1_000_000_000;
/// Longest time from a client's connection to the end of its TLS handshake. Until then it has shown no
/// certificate, and takes the place of one that has.
pub(crate) const HANDSHAKE_NS: u64 = 10_000_000_000;
/// Bytes of unfinished requests that all clients together may leave with the proxy.
pub(crate) const REQUESTS_TOTAL: usize = 256 << 20;
/// Bytes of a multi-get's answer that is put together from several servers.
pub(crate) const GATHER_BYTES: usize = 64 << 20;
/// Longest line of `get` and `gets`.
pub(crate) const GET_LINE_BYTES: usize = 1 << 20;
pub(crate) const READ_BYTES: usize = 64 << 10;
/// A buffer that grew beyond this is given back when it is empty.
pub(crate) const KEEP_BYTES: usize = 16 << 10;
/// How often timeouts are checked while something is under way.
pub(crate) const TICK_NS: u64 = 10_000_000;
/// Pools of one configuration, servers of one pool, routes, and bytes of a prefix.
pub(crate) const POOLS: usize = 64;
pub(crate) const POOL_SERVERS: usize = 1024;
pub(crate) const ROUTES: usize = 10_000;
pub(crate) const PREFIX_BYTES: usize = 250;
/// Connections of one network thread to the servers of one pool.
pub(crate) const POOL_CONNECTIONS: usize = 1 << 19;
/// Descriptors that neither clients nor servers take: for the metrics page with some connections, the sockets that are
/// listened on, logs and signals, and 16 to spare.
pub(crate) const FILES_SPARE: usize = 40;
/// Requests on a connection to a server after which its version is asked: a reply too many or too few before shows then.
pub(crate) const COUNT_EVERY: usize = 64;
/// Copies that a shadow server owes an answer to, and bytes of those that wait to be written; further
/// ones are dropped.
pub(crate) const SHADOW_REQUESTS: usize = 1024;
pub(crate) const SHADOW_BYTES: usize = 4 << 20;
/// Items that one request has brought over from the warm pool at once.
pub(crate) const WARM_WINDOW: usize = 16;
