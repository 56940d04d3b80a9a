//! The time of day, for what is shown to clients: never for what is measured.

use rustix::time::{ClockId, clock_gettime};

use crate::wire::protobuf::Timestamp;

/// Nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    // After 1970 and before 2554.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// As messages have it.
pub fn timestamp(unix_ns: u64) -> Timestamp {
    let seconds = i64::try_from(unix_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(unix_ns % 1_000_000_000).unwrap_or(0);
    Timestamp { seconds, nanos }
}

/// How far the time of day is ahead of the machine's monotonic clock: makes stamps of the latter
/// ones of the former, in their order even when the time of day is set meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Ahead(u64);

impl Ahead {
    /// As it is at the moment `now_ns` of the monotonic clock.
    pub fn at(now_ns: u64) -> Self {
        Self(unix_ns().saturating_sub(now_ns))
    }

    /// The time of day of a moment.
    pub fn timestamp(self, monotonic_ns: u64) -> Timestamp {
        timestamp(self.unix_ns(monotonic_ns))
    }

    /// Nanoseconds since 1970 of a moment.
    pub fn unix_ns(self, monotonic_ns: u64) -> u64 {
        self.0.saturating_add(monotonic_ns)
    }
}
