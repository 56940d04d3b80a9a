//! The clock of the measured path: `CLOCK_MONOTONIC` in nanoseconds, which all processes of one
//! machine share.

use rustix::time::{ClockId, Timespec, clock_gettime};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

pub(crate) const MILLISECOND_NS: u64 = 1_000_000;

/// Now, in nanoseconds. Costs no system call (vDSO).
pub(crate) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time of the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

pub(crate) fn timespec(nanoseconds: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(nanoseconds / SECOND_NS).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanoseconds % SECOND_NS).unwrap_or(0),
    }
}

#[expect(clippy::cast_sign_loss, reason = "neither clock is ever negative")]
fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}
