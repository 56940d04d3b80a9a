//! What a tier says about itself: the JSON of `GET /snapshot` on its metrics address.
//!
//! Everything is cumulative since the start, so a reader takes two snapshots and subtracts: the
//! difference describes exactly the period between their `at_ns`, and any number of readers can
//! do so without disturbing one another. Times are nanoseconds of `CLOCK_MONOTONIC`, which all
//! processes of one machine share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::version::{self, Versioned};

/// Version of this message; raised when a field changes its meaning.
pub const SNAPSHOT_VERSION: u32 = 1;

/// Cumulative state of one tier at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TierSnapshot {
    /// [`SNAPSHOT_VERSION`] of the writer; one that this program does not know is refused.
    #[serde(deserialize_with = "version::known::<_, TierSnapshot>")]
    pub version: u32,
    /// Kind of tier, such as `memcached-proxy`.
    pub tier: String,
    /// Process that wrote it.
    pub pid: u32,
    /// When it was taken, `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// When the tier started, `CLOCK_MONOTONIC`.
    pub started_ns: u64,
    /// Workers at this moment (an experimental factor); 0 where there is no worker limit.
    pub workers: u32,
    /// By request type, such as `get`, `set`, `multi-get`.
    pub requests: BTreeMap<String, RequestSnapshot>,
    /// Requests that wait for a worker.
    pub queue_length: LevelSnapshot,
    /// Workers that serve a request.
    pub workers_busy: LevelSnapshot,
    /// How long workers were held at a stretch, where one may serve several requests at once:
    /// one entry a batch. Empty where a worker serves one request at a time, since the service
    /// time says it then.
    #[serde(default)]
    pub held_time: EncodedHistogram,
    /// Client connections that are open.
    pub connections: LevelSnapshot,
    /// One per backend, in the order of the command line.
    pub backends: Vec<BackendSnapshot>,
    /// Hits, misses, and errors by kind.
    pub outcomes: BTreeMap<String, u64>,
    /// Bytes read from clients.
    pub bytes_in: u64,
    /// Bytes written to clients.
    pub bytes_out: u64,
    /// How often each bound was hit, by its name.
    pub limits_hit: BTreeMap<String, u64>,
    /// CPU time of the process so far: user.
    pub cpu_user_ns: u64,
    /// CPU time of the process so far: system.
    pub cpu_system_ns: u64,
    /// Part of the CPU time that was spent awake for the next timer instead of sleeping; none
    /// where the tier does not spin or does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spun_ns: Option<u64>,
    /// What takes time beside the stages of requests and is known by its sum alone, such as statements
    /// of a database; empty where a tier has none, or where another instance reports it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<CountedTime>,
}

/// Things of one name that were counted, and the time that they took together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedTime {
    /// What is counted: one of [`counted`].
    pub kind: String,
    /// Which of them.
    pub name: String,
    /// How many.
    pub count: u64,
    /// What they were about: rows of a statement, operations of a batch.
    pub items: u64,
    /// The time of all of them together.
    pub time_ns: u64,
}

/// Kinds of [`CountedTime`].
pub mod counted {
    /// A statement of requests as the database counts it: calls, rows, execution inside the database.
    pub const STATEMENT: &str = "statement";
    /// A statement that no request waits for, such as housekeeping, counted likewise.
    pub const ASIDE: &str = "aside";
    /// What the database writes to its log and flushes to the disk.
    pub const LOG: &str = "log";
    /// Requests that one worker serves together, by what they do: batches, their operations, and the
    /// time from sending them to the backend until its last answer.
    pub const BATCH: &str = "batch";
    /// Queries of the database's counters ([`STATEMENT`], [`ASIDE`], [`LOG`]), which are older than the
    /// snapshot: their number, and as the time the moment of the last one. The difference of two snapshots is the time
    /// over which those kinds were counted.
    pub const LOOK: &str = "look";
}

impl Versioned for TierSnapshot {
    const WHAT: &'static str = "snapshot of a tier";
    const NEWEST: u32 = SNAPSHOT_VERSION;
}

/// What the threads of a tier's worker pool are called, without the number that each has.
pub const WORKER_THREAD: &str = "worker";

/// Requests of one type.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestSnapshot {
    /// Requests whose last byte was read.
    pub arrivals: u64,
    /// Requests whose answer was handed to the kernel.
    pub completions: u64,
    /// Time in each stage, by the stage's name (see [`stage`]), as encoded histograms of
    /// nanoseconds.
    pub stages: BTreeMap<String, EncodedHistogram>,
}

/// Names of the stages that every tier reports.
pub mod stage {
    /// `dequeued − arrived`.
    pub const WAITING_TIME: &str = "waiting_time";
    /// `replied − dequeued`.
    pub const SERVICE_TIME: &str = "service_time";
    /// `received − sent`, until the last backend answered.
    pub const BACKEND_TIME: &str = "backend_time";
    /// `replied − arrived`.
    pub const RESPONSE_TIME: &str = "response_time";
    /// Until there was a connection to the backend, of tiers whose workers share connections. Of a
    /// batch the first request has it, and the others 0.
    pub const CONNECTION_WAIT_TIME: &str = "connection_wait_time";
}

/// A level that goes up and down, such as a queue length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelSnapshot {
    /// The level now.
    pub current: u64,
    /// The highest level since the previous whole second of the tier.
    pub recent_maximum: u64,
    /// The highest level ever.
    pub maximum: u64,
    /// ∫ level dt in level·ns: the difference of two, over the time between them, is the
    /// time-weighted mean.
    pub integral_ns: u64,
}

/// What was sent to one backend.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendSnapshot {
    /// `host:port`.
    pub address: String,
    /// Requests sent to it.
    pub requests: u64,
    /// Keys sent to it.
    pub keys: u64,
    /// Requests that it failed.
    pub errors: u64,
    /// `received − sent`.
    pub backend_time: EncodedHistogram,
}

/// A histogram of nanoseconds in HdrHistogram's V2 + DEFLATE encoding, as base64; the empty text
/// is the empty histogram. `kendall-stats` reads and writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EncodedHistogram(pub String);
