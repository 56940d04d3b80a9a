//! The two clocks of a study: the monotonic one, which all processes of a machine share, and the
//! calendar's.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds since 1970.
pub(crate) fn unix_ns() -> u64 {
    nanoseconds(ClockId::Realtime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// A moment up to which several things are waited for, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until(u64);

impl Until {
    pub(crate) fn after(time: std::time::Duration) -> Self {
        Self(monotonic_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// What is left; nothing after it.
    pub(crate) fn left(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.saturating_sub(monotonic_ns()))
    }
}
