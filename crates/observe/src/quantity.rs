//! What monitoring is asked about a tier.

use serde::Deserialize;

/// What a process has used of its processors.
pub(crate) const CPU_TIME: &str = "process_cpu_seconds_total";

/// What is asked about a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// m: workers, servers or cores.
    Servers,
    /// λ, 1/s.
    Arrivals,
    /// X, 1/s.
    Throughput,
    /// R, mean, s.
    ResponseTime,
    /// Mean number of busy servers: U·m.
    Busy,
    /// Q: requests in the tier, waiting and served.
    Number,
    /// Failed requests, 1/s.
    Errors,
    /// Hits, 1/s.
    Hits,
    /// Misses, 1/s.
    Misses,
    /// Cumulative histogram of response times: rates by `le`.
    Buckets,
    /// X of each class of requests, 1/s: one series a class.
    Classes,
    /// R of each class, mean, s: one series a class.
    ClassTimes,
    /// Mean time in each stage, s: one series a stage.
    Stages,
    /// X of each server of a tier whose servers have a queue each, 1/s: one series a server.
    Each,
}

impl Quantity {
    /// All of them, with their names in system files.
    pub const ALL: [(Self, &'static str); 14] = [
        (Self::Servers, "servers"),
        (Self::Arrivals, "arrivals"),
        (Self::Throughput, "throughput"),
        (Self::ResponseTime, "response_time"),
        (Self::Busy, "busy"),
        (Self::Number, "number"),
        (Self::Errors, "errors"),
        (Self::Hits, "hits"),
        (Self::Misses, "misses"),
        (Self::Buckets, "buckets"),
        (Self::Classes, "classes"),
        (Self::ClassTimes, "class_times"),
        (Self::Stages, "stages"),
        (Self::Each, "each"),
    ];

    /// Whether its query gives one series a class, stage or server.
    pub fn is_split(self) -> bool {
        matches!(self, Self::Classes | Self::ClassTimes | Self::Stages | Self::Each)
    }

    /// Name in a system file.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(quantity, _)| *quantity == self).map_or("", |(_, name)| name)
    }
}
