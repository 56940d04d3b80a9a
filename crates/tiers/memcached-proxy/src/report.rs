//! What the proxy reports, by name.

use kendall_protocols::memcached::{Command, Request, Store};
use kendall_tier::{Layout, Limit, Outcome, RequestType};

/// Names of the request types; [`request_type`] gives their numbers.
const REQUEST_TYPES: &[&str] = &[
    "get",
    "multi-get",
    "gets",
    "gat",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas",
    "incr",
    "decr",
    "delete",
    "touch",
    "meta-get",
    "meta-set",
    "meta-delete",
    "meta-arithmetic",
    "other",
];

pub(crate) const OTHER: RequestType = RequestType(18);

const OUTCOMES: &[&str] = &[
    "hits",
    "misses",
    "client_errors",
    "server_errors",
    "backend_timeouts",
    "backend_failures",
    "no_backend",
    "servers_disagree",
    "retries",
    "ejections",
    "readmissions",
    "warmed",
    "shadow_copies",
    "shadow_failures",
    "reloads",
];

pub(crate) const HITS: Outcome = Outcome(0);
pub(crate) const MISSES: Outcome = Outcome(1);
pub(crate) const CLIENT_ERRORS: Outcome = Outcome(2);
pub(crate) const SERVER_ERRORS: Outcome = Outcome(3);
pub(crate) const BACKEND_TIMEOUTS: Outcome = Outcome(4);
pub(crate) const BACKEND_FAILURES: Outcome = Outcome(5);
pub(crate) const NO_BACKEND: Outcome = Outcome(6);
pub(crate) const SERVERS_DISAGREE: Outcome = Outcome(7);
pub(crate) const RETRIES: Outcome = Outcome(8);
pub(crate) const EJECTIONS: Outcome = Outcome(9);
pub(crate) const READMISSIONS: Outcome = Outcome(10);
pub(crate) const WARMED: Outcome = Outcome(11);
pub(crate) const SHADOW_COPIES: Outcome = Outcome(12);
pub(crate) const SHADOW_FAILURES: Outcome = Outcome(13);
pub(crate) const RELOADS: Outcome = Outcome(14);

const LIMITS: &[&str] = &[
    "request_queue",
    "client_requests",
    "client_answers",
    "client_stalled",
    "connections",
    "request_memory",
    "gathered_answer",
    "shadow",
    "handshake",
];

pub(crate) const REQUEST_QUEUE: Limit = Limit(0);
pub(crate) const CLIENT_REQUESTS: Limit = Limit(1);
pub(crate) const CLIENT_ANSWERS: Limit = Limit(2);
pub(crate) const CLIENT_STALLED: Limit = Limit(3);
pub(crate) const CONNECTIONS: Limit = Limit(4);
pub(crate) const REQUEST_MEMORY: Limit = Limit(5);
pub(crate) const GATHERED_ANSWER: Limit = Limit(6);
pub(crate) const SHADOW: Limit = Limit(7);
pub(crate) const HANDSHAKE: Limit = Limit(8);

/// Backends come with the pools.
pub(crate) fn layout() -> Layout {
    Layout {
        tier: "memcached-proxy",
        request_types: REQUEST_TYPES,
        stages: &[],
        outcomes: OUTCOMES,
        limits: LIMITS,
        backends: Vec::new(),
    }
}

pub(crate) fn request_type(request: &Request) -> RequestType {
    RequestType(match request.command {
        Command::Get if request.keys > 1 => 1,
        Command::Get => 0,
        Command::Gets => 2,
        Command::Gat | Command::Gats => 3,
        Command::Store(Store::Set) => 4,
        Command::Store(Store::Add) => 5,
        Command::Store(Store::Replace) => 6,
        Command::Store(Store::Append) => 7,
        Command::Store(Store::Prepend) => 8,
        Command::Store(Store::Cas) => 9,
        Command::Incr => 10,
        Command::Decr => 11,
        Command::Delete => 12,
        Command::Touch => 13,
        Command::MetaGet => 14,
        Command::MetaSet => 15,
        Command::MetaDelete => 16,
        Command::MetaArithmetic => 17,
        _ => OTHER.0,
    })
}
