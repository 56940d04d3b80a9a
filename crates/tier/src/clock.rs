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
    Manual(ManualClock),
}

/// A time that a test moves.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl Clock {
    pub const fn monotonic() -> Self {
        Self(Source::Monotonic)
    }

    /// A clock that shows what `manual` was set to.
    pub fn manual(manual: &ManualClock) -> Self {
        Self(Source::Manual(manual.clone()))
    }

    #[inline]
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            Source::Monotonic => {
                let now = clock_gettime(ClockId::Monotonic);
                // The machine's time since its start is neither negative nor beyond 584 years.
                now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
            }
            Source::Manual(manual) => manual.0.load(Ordering::SeqCst),
        }
    }
}

impl ManualClock {
    /// Moves the time forward.
    pub fn advance(&self, nanoseconds: u64) {
        self.0.fetch_add(nanoseconds, Ordering::SeqCst);
    }
}
