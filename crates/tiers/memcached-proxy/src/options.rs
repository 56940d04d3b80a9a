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
    Pipelined {
        /// Connections to each server.
        connections: u32,
    },
}

/// Which servers hold a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// All of them: writes go to all, reads to one in turn.
    Replicate,
    /// One, by consistent hashing.
    Hash,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A port.
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

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Where it listens.
    pub address: Address,
    /// Its share of the keys with [`Placement::Hash`], beside the weights of the others.
    pub weight: u32,
}

impl From<SocketAddr> for Server {
    fn from(address: SocketAddr) -> Self {
        Self { address: Address::Tcp(address), weight: 1 }
    }
}

/// All choices, with the bounds that protect the proxy and its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where clients of this machine connect besides: a socket in the file system.
    pub listen_unix: Option<PathBuf>,
    /// The servers, one at least.
    pub servers: Vec<Server>,
    /// Servers that stand in: with [`Placement::Hash`] for those that are ejected, else when all are.
    pub failover: Vec<Server>,
    /// With [`Placement::Hash`], the marks around the part of a key that places it.
    pub hash_tag: Option<[u8; 2]>,
    /// TLS for clients that connect to `listen`.
    pub client_tls: Option<ClientTls>,
    /// TLS to servers that have a port.
    pub server_tls: Option<ServerTls>,
    /// Network threads. Workers, the queue and clients are divided among them.
    pub threads: u32,
    /// Workers or pipelining.
    pub mode: Mode,
    /// Where keys are.
    pub placement: Placement,
    /// Whether a `get` of several keys is split over all servers (with [`Placement::Replicate`]).
    pub shard_multigets: bool,
    /// Longest wait for a server that gives no byte.
    pub timeout: Duration,
    /// Failures in a row after which a server is no longer asked.
    pub eject_after: u32,
    /// How often a server that is not asked is probed.
    pub probe_every: Duration,
    /// Longest value; as the servers' `-I`.
    pub value_bytes: usize,
    /// Requests that may wait for a worker.
    pub queue_length: usize,
    /// Clients that may be connected.
    pub connections: usize,
}

impl Options {
    /// The defaults for those servers.
    #[must_use]
    pub fn new(listen: SocketAddr, servers: Vec<SocketAddr>) -> Self {
        Self {
            listen,
            listen_unix: None,
            servers: servers.into_iter().map(Server::from).collect(),
            failover: Vec::new(),
            hash_tag: None,
            client_tls: None,
            server_tls: None,
            threads: 1,
            mode: Mode::Workers(64),
            placement: Placement::Replicate,
            shard_multigets: false,
            timeout: Duration::from_secs(1),
            eject_after: 3,
            probe_every: Duration::from_secs(1),
            value_bytes: 1 << 20,
            queue_length: 100_000,
            connections: 16_384,
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
/// Bytes of answers that one client may leave unread, beside eight times the longest value.
pub(crate) const ANSWERS_CLIENT: usize = 64 << 20;
/// Bytes of answers that all clients together may leave unread, beside sixteen times the longest
/// value; then the one that is furthest behind is closed.
pub(crate) const ANSWERS_TOTAL: usize = 256 << 20;
/// Bytes written to one client in a turn, and calls for that: others have a turn too.
pub(crate) const TURN_WRITE_BYTES: usize = 256 << 10;
pub(crate) const TURN_WRITES: usize = 16;
/// Requests taken from one client in a turn.
pub(crate) const TURN_REQUESTS: usize = 256;
/// Unfinished requests and unread answers that held more bytes than this: when most of it is free it
/// goes back to the system.
pub(crate) const TRIM_BYTES: usize = 16 << 20;
/// Bytes of unfinished requests that all clients together may leave with the proxy.
pub(crate) const REQUESTS_TOTAL: usize = 256 << 20;
/// Bytes of a multi-get's answer that is put together from several servers.
pub(crate) const GATHER_BYTES: usize = 64 << 20;
/// Longest line of `get` and `gets`.
pub(crate) const GET_LINE_BYTES: usize = 1 << 20;
/// Bytes read at once.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// A buffer that grew beyond this is given back when it is empty.
pub(crate) const KEEP_BYTES: usize = 16 << 10;
/// How often time-outs are looked for while something is under way.
pub(crate) const TICK_NS: u64 = 10_000_000;
