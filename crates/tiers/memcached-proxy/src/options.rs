//! What can be chosen.

use std::net::SocketAddr;
use std::time::Duration;

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

/// All choices, with the bounds that protect the proxy and its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The servers, one at least.
    pub servers: Vec<SocketAddr>,
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
            servers,
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
/// Bytes of answers a client may leave unread before the server's connection waits for it.
pub(crate) const ANSWERS_PAUSE: usize = 16 << 20;
/// The same once all clients together left [`ANSWERS_TOTAL`] unread.
pub(crate) const ANSWERS_PAUSE_TIGHT: usize = 64 << 10;
/// Bytes of answers that all clients together may leave unread before each gets less.
pub(crate) const ANSWERS_TOTAL: usize = 128 << 20;
/// How long a connection waits for a client that reads nothing; then the client is closed.
pub(crate) const STALL_WORKERS_NS: u64 = 3_000_000_000;
/// The same where other clients share the connection.
pub(crate) const STALL_SHARED_NS: u64 = 1_000_000_000;
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
