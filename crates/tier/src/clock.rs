//! The only place in a tier that reads a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes of one machine share; or, in tests, a
/// time that the test moves.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    Monotonic,
    Thread,
    Manual(ManualClock),
}

/// A time that a test moves.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl Clock {
    pub const fn monotonic() -> Self {
        Self(Source::Monotonic)
    }

    /// The time for which a core has worked for the thread that asks: it stands still while the thread waits, or the
    /// process is suspended.
    pub const fn of_this_thread() -> Self {
        Self(Source::Thread)
    }

    /// A clock that shows what `manual` was set to.
    pub fn manual(manual: &ManualClock) -> Self {
        Self(Source::Manual(manual.clone()))
    }

    #[inline]
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            Source::Monotonic => read(ClockId::Monotonic),
            Source::Thread => read(ClockId::ThreadCPUTime),
            Source::Manual(manual) => manual.0.load(Ordering::SeqCst),
        }
    }
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // The machine's time since its start is neither negative nor beyond 584 years.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

impl ManualClock {
    /// Moves the time forward.
    pub fn advance(&self, nanoseconds: u64) {
        self.0.fetch_add(nanoseconds, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread works for less time than it slept for, however busy the machine is.
    #[test]
    fn the_time_of_a_thread_stands_still_while_it_sleeps() {
        let clocks = [Clock::of_this_thread(), Clock::monotonic()];
        let begun = clocks.each_ref().map(Clock::now_ns);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let [worked_ns, passed_ns] = [0, 1].map(|clock| clocks[clock].now_ns() - begun[clock]);
        assert!(worked_ns + 50_000_000 <= passed_ns, "{worked_ns} of {passed_ns}");
    }
}
