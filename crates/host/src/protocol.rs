//! What a study and its agents say to each other: one line of JSON each, described in
//! `docs/hosts.md`. Both ends are the same program, which the study carries to the host.

use kendall_store::HostSample;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::launch::{Announced, AwaitReady, Launch, StopSignal};
use crate::sample::{Accounting, Sampled};

/// Bytes of a file in one answer.
pub const PIECE: u64 = 256 << 10;

pub const LONGEST_LINE: u64 = 256 << 20;

/// A request of the study. Answers bear its number and may come in any order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum What {
    /// The clock there; answered before anything else is done.
    Clock,
    /// Which of these programs are not there.
    Missing { programs: Vec<String> },
    /// Runs Kendall's own program with these arguments, to its end: whether it ends well.
    Check { arguments: Vec<String> },
    /// A free port of this address.
    FreePort { address: String },
    /// Starts a process.
    Start(Launch),
    /// Waits until a process may be used.
    Ready(AwaitReady),
    /// Asks a process to stop.
    Signal { process: u32, signal: StopSignal },
    /// The end of what a process has said so far, as an error quotes it.
    Tail { process: u32 },
    /// Waits for the end of a process, kills it at the deadline, and forgets it.
    Finish { process: u32, deadline_ms: u64 },
    /// Snapshots, counters of processes, counters of the host.
    Look { snapshots: Vec<String>, accounts: Vec<Accounting> },
    /// Length and digest of a file below the agent's folder.
    Measure { file: String },
    /// A piece of it.
    Read { file: String, offset: u64 },
    /// Removes a folder below the agent's folder.
    Remove { folder: String },
    /// Times of connections to this address.
    RoundTrips { address: String, count: u32 },
    /// Answers one probe of the network at this address of the host; its port.
    ServeProbe { address: String },
    /// Probes the way to where another answers.
    Probe { address: String },
    /// The end; nothing is left.
    Bye,
}

/// A line of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum Line {
    /// The first line.
    Hello(Hello),
    /// To the request of this number.
    Answer {
        id: u64,
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// A process ended.
    Ended { process: u32, end: End },
    /// The agent ends by itself, and what it started with it.
    End { why: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Answer to [`What::Clock`].
    ClockNs(u64),
    Ok(Json),
    Error(String),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub version: String,
    /// What the host calls itself.
    pub machine: String,
    /// Changes with each start of the kernel.
    pub boot_id: String,
    pub kernel: String,
    pub architecture: String,
    /// That the agent may use.
    pub cores: u64,
    pub memory_bytes: Option<u64>,
    pub cpu_model: Option<String>,
    pub clock_source: Option<String>,
    /// Where the agent's folder is.
    pub free_bytes: u64,
    pub program: String,
    /// Everything of a study lies below; removed at the end.
    pub folder: String,
    pub pid: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// In the operating system's words.
    pub status: String,
    pub success: bool,
    /// The end of its log, as an error quotes it.
    pub tail: String,
    /// When it was started and when its end was seen, by the clock there.
    pub life_ns: (u64, u64),
}

/// Answer to [`What::Start`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartedProcess {
    pub process: u32,
    pub pid: u32,
    /// Processors that it is pinned to instead of a limit by a control group.
    #[serde(default)]
    pub processors: Vec<usize>,
}

/// Answer to [`What::Ready`], which may be what is wrong with the process.
pub type ReadyAnswer = Result<Announced, Unready>;

/// Why a process over there cannot be used, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unready {
    /// It has ended: another program may have taken its port.
    Ended(String),
    Other(String),
}

/// Answer to [`What::Look`], in the order of the question.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Looked {
    /// Pages as they are: who reads them says what is wrong with one.
    pub snapshots: Vec<Option<String>>,
    pub accounts: Vec<Option<Sampled>>,
    pub host: Option<HostSample>,
    /// Room where the agent's folder is.
    pub free_bytes: Option<u64>,
    /// CPU time that all of it took there.
    #[serde(default)]
    pub cost_ns: u64,
}

/// Answer to [`What::Measure`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    pub length: u64,
    /// SHA-256, hexadecimal.
    pub sha256: String,
}
