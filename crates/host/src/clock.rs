//! The two clocks of a study: the monotonic one, which all processes of a machine share, and the
//! calendar's.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    nanoseconds(ClockId::Realtime)
}

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// A time in nanoseconds, or as many as there are.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A moment up to which something is waited for, or several things one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Until(u64);

impl Until {
    pub fn after(time: Duration) -> Self {
        Self(monotonic_ns().saturating_add(nanos(time)))
    }

    /// What is left; nothing after it.
    pub fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(monotonic_ns()))
    }

    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}
