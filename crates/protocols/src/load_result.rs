//! What a load test found: the JSON of `kendall load … --format json`, and of any other program
//! that is to be the load of a study (`docs/load.md`, "Any program"): fields that have a default there
//! may be left out.
//!
//! Keys carry their unit. Times are nanoseconds of `CLOCK_MONOTONIC`, which all processes of one
//! machine share, so that windows line up with what the tiers said of themselves.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::snapshot::EncodedHistogram;
use crate::version::{self, Versioned};

/// Version of this message; raised when a field changes its meaning.
///
/// 2: requests that were answered after the end are in `drained` and no longer in the last window;
/// rejections and caveats say of what kind they are. Version 1 is read too.
pub const RESULT_VERSION: u32 = 2;

/// The `loop` of a load that is a job with an end: a build, a batch. Its response variables are its
/// makespan, from `started_ns` to `ended_ns`, and the tasks that it completed in that time.
pub const JOB_LOOP: &str = "job";

/// One load test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// [`RESULT_VERSION`] of the writer; one that this program does not know is refused.
    #[serde(deserialize_with = "version::known::<_, LoadResult>")]
    pub version: u32,
    /// `memcached`, `http`, …
    #[serde(default)]
    pub protocol: String,
    /// Addresses that were loaded.
    #[serde(default)]
    pub targets: Vec<String>,
    /// `closed`, `open` or [`JOB_LOOP`].
    pub r#loop: String,
    /// Closed loop: the population N. Open loop: connections. A job: tasks under way at most.
    #[serde(default)]
    pub clients: u64,
    /// Message queue: `single`, each operation a call of its own, or `stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<String>,
    /// Start of the load (after connecting and prefill), `CLOCK_MONOTONIC`. A job may leave out this
    /// and the end: then its process's life is meant.
    #[serde(default)]
    pub started_ns: u64,
    /// End of the load, `CLOCK_MONOTONIC`.
    #[serde(default)]
    pub ended_ns: u64,
    /// Closed loop: mean think time that was asked for.
    #[serde(default)]
    pub think_time_mean_ns: u64,
    /// Open loop: the rate that was asked for.
    pub arrival_rate_per_s: Option<f64>,
    /// Windows of one second, in order, counted by the moment of completion. None lies behind the
    /// end of the load that was planned. A job needs none.
    #[serde(default)]
    pub windows: Vec<Window>,
    /// By operation: what was under way at the planned end and was waited for. In no window.
    #[serde(default)]
    pub drained: BTreeMap<String, Operation>,
    /// The whole test by operation, `drained` included.
    pub operations: BTreeMap<String, Operation>,
    /// Parts of requests that are counted by themselves, in their order: the requests of a sequence. They are in no
    /// operation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// What was drawn for requests whose content varies, by name: how many draws, and their mean.
    #[serde(default)]
    pub drawn: BTreeMap<String, Drawn>,
    /// Planned to sent: how late the generator was against its own schedule.
    #[serde(default)]
    pub lateness: EncodedHistogram,
    /// Open loop: gaps between sends.
    #[serde(default)]
    pub gaps: EncodedHistogram,
    /// Open loop: due to a free connection, of the arrivals that found none free. It is part of
    /// their response time and no part of the lateness.
    #[serde(default)]
    pub connection_wait: EncodedHistogram,
    /// Open loop: arrivals that were due and could not be sent before the end.
    #[serde(default)]
    pub unsent: u64,
    /// Open loop: was the stream of requests the one that was asked for?
    pub gap_check: Option<GapCheck>,
    /// Connections that had to be made again.
    #[serde(default)]
    pub reconnects: u64,
    /// HTTP and gRPC: requests that a leaving server did not take, and that were sent once more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sent_anew: u64,
    /// Seed of all draws.
    #[serde(default)]
    pub seed: u64,
    /// Redis: redirects of a cluster that were followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirects: Option<Redirects>,
    /// HTTP: replies by status code.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub statuses: BTreeMap<u16, u64>,
    /// Closed loop: times in which nothing completed although requests were under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
    /// Requests that still waited at the end, for far longer than any that was answered. They are in
    /// no response time and no error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Unanswered>,
    /// One per generator thread.
    #[serde(default)]
    pub threads: Vec<GeneratorThread>,
    /// Reasons why this test must not be used; empty when valid.
    #[serde(default)]
    pub rejections: Vec<Remark>,
    /// Caveats, which do not reject it.
    #[serde(default)]
    pub caveats: Vec<Remark>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Versioned for LoadResult {
    const WHAT: &'static str = "result of a load";
    const NEWEST: u32 = RESULT_VERSION;
}

/// Something that a load generator noticed about itself or its load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// What it is about: remarks of one kind are the same remark with other figures.
    pub kind: RemarkKind,
    /// A sentence with its figures.
    pub text: String,
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Kinds of remarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemarkKind {
    /// No request succeeded.
    NothingSucceeded,
    /// The generator sent later than its own schedule.
    GeneratorLate,
    /// The generator was busy nearly all the time.
    GeneratorSaturated,
    /// The generator's threads waited for a core.
    GeneratorWaitedForCore,
    /// The generator's lateness is a notable part of the response time.
    LatenessInResponse,
    /// Arrivals that could not be sent before the end: all connections were taken.
    Unsent,
    /// Arrivals that could not be sent while the generator kept its schedule: the system's limit, or
    /// that of a machine that they share.
    SystemOverloaded,
    /// Nothing completed for a notable part of the time.
    Stalled,
    /// Requests that waited to the end, for far longer than any that was answered.
    Unanswered,
    /// Arrivals that waited for a free connection.
    WaitedForConnection,
    /// Requests failed.
    Failed,
    /// The service refused requests, and said why.
    Refused,
    /// Any other; a result of another program, or of version 1, may have it.
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for Remark {
    /// A bare sentence is a remark of kind `other`: so version 1 wrote all of them.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Wire {
            Text(String),
            Remark { kind: RemarkKind, text: String },
        }
        Ok(match Wire::deserialize(deserializer)? {
            Wire::Text(text) => Self { kind: RemarkKind::Other, text },
            Wire::Remark { kind, text } => Self { kind, text },
        })
    }
}

/// What was drawn for one part of the requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Drawn {
    /// Draws.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
}

/// The stream of requests as planned beside the stream as sent.
///
/// Requests that had to wait for a free connection are sent late and change the stream: that is
/// the server's doing, and [`LoadResult::connection_wait`] says how often it happened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GapCheck {
    /// Requests that were checked: the first few million.
    pub requests: u64,
    /// Rate from the first to the last request, planned.
    pub planned_rate_per_s: f64,
    /// Rate from the first to the last request, sent.
    pub sent_rate_per_s: f64,
    /// Coefficient of variation of the gaps, planned: 0 when even, 1 for a Poisson process.
    pub planned_variation: f64,
    /// Coefficient of variation of the gaps, sent.
    pub sent_variation: f64,
    /// Kolmogorov–Smirnov distance between planned and sent gaps. Says little for even gaps,
    /// which any jitter at all moves off their one value.
    pub distance_to_plan: f64,
    /// Poisson arrivals: Kolmogorov–Smirnov distance of the sent gaps to the exponential
    /// distribution.
    pub distance_to_exponential: Option<f64>,
    /// Variance over mean of the counts in windows of several lengths: 1 for a Poisson process.
    pub dispersion: Vec<Dispersion>,
}

/// Times in which nothing completed, far longer than the usual time between two completions.
///
/// A closed loop sends nothing while it waits for a server that stands still, so that a stall is
/// a handful of slow requests in its percentiles, whatever its length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// How many, in the generator thread that saw least of them.
    pub count: u64,
    /// Their share of the load's time.
    pub share: f64,
    /// The longest.
    pub longest_ns: u64,
    /// Silences longer than this are counted: 20 times the mean time between completions, twice
    /// the 99th percentile of the silences, and 5 ms at least.
    pub limit_ns: u64,
    /// 99th percentile of what an arrival at a random moment would have had to wait for the end
    /// of a stall.
    pub arrival_wait_p99_ns: u64,
}

/// Redirects of a Redis cluster that were followed. Each is a further round trip of its request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirects {
    /// To the node that has the slot now.
    pub moved: u64,
    /// To the node that a slot is on its way to, for one command.
    pub ask: u64,
}

/// Requests without an answer when the load ended, that had waited for far longer than any that was
/// answered: the clients of a server that answers some of them no more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// How many: those that waited for more than twice the slowest answer and 10 ms; all that were
    /// under way where none was answered.
    pub count: u64,
    /// How long the longest of them had waited, to within 50 ms.
    pub longest_ns: u64,
    /// The slowest answer; 0 where there was none.
    pub slowest_answered_ns: u64,
}

/// Variance over mean of the counts in windows of one length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Dispersion {
    /// Length of the windows.
    pub window_ns: u64,
    /// Of the requests as planned.
    pub planned: f64,
    /// Of the requests as sent.
    pub sent: f64,
}

/// One second of a load test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Start, `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// End (excluded).
    pub to_ns: u64,
    /// By operation.
    pub operations: BTreeMap<String, Operation>,
    /// Parts of requests, as [`LoadResult::steps`] has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

/// What happened to the requests of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// Requests sent; 0 where it was not counted.
    pub sent: u64,
    /// Requests answered without an error (misses included).
    pub completed: u64,
    /// Keys found; message queue: answers with a message.
    pub hits: u64,
    /// Keys not found; message queue: answers that no message is there.
    pub misses: u64,
    /// Errors by kind.
    pub errors: BTreeMap<String, u64>,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Due to done, of those completed.
    pub response_time: EncodedHistogram,
    /// The same as single values in nanoseconds, from programs that write no histograms: they are
    /// added to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_times_ns: Vec<u64>,
}

/// What happened to one part of requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The operation that it is a part of.
    pub of: String,
    /// What it is called.
    pub name: String,
    /// Counted as operations are.
    #[serde(flatten)]
    pub operation: Operation,
}

/// What one generator thread cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorThread {
    /// CPU time in user mode, spinning left out.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel, spinning left out.
    pub cpu_system_ns: u64,
    /// Wall time of the thread's loop.
    pub wall_ns: u64,
    /// Time that it was ready to run and had no core.
    pub run_queue_wait_ns: u64,
    /// Time that it stayed awake for the next moment instead of sleeping (`--spin`).
    #[serde(default)]
    pub spun_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: u32, caveats: &str) -> Result<LoadResult, serde_json::Error> {
        serde_json::from_str(&format!(
            r#"{{"version": {version}, "protocol": "http", "targets": [], "loop": "closed",
                "clients": 1, "started_ns": 0, "ended_ns": 1, "think_time_mean_ns": 0,
                "arrival_rate_per_s": null, "windows": [], "operations": {{}}, "lateness": "",
                "gaps": "", "threads": [], "rejections": [], "caveats": {caveats}}}"#
        ))
    }

    #[test]
    fn a_version_that_is_not_known_is_refused_by_name() {
        assert!(written(RESULT_VERSION, "[]").is_ok());
        let error = written(RESULT_VERSION + 1, "[]").unwrap_err().to_string();
        assert!(error.contains("result of a load has version 3"), "{error}");
        assert!(written(0, "[]").is_err());
    }

    #[test]
    fn sentences_of_version_1_are_remarks_of_no_kind() {
        let result = written(1, r#"["late"]"#).unwrap();
        assert_eq!(result.caveats, [Remark { kind: RemarkKind::Other, text: "late".to_owned() }]);
        let result = written(2, r#"[{"kind": "unsent", "text": "7"}]"#).unwrap();
        assert_eq!(result.caveats[0].kind, RemarkKind::Unsent);
        let result = written(2, r#"[{"kind": "of-another-program", "text": "7"}]"#).unwrap();
        assert_eq!(result.caveats[0].kind, RemarkKind::Other);
    }
}
