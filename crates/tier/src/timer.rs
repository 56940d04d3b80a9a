//! Waiting to the nanosecond, for event loops.

use std::io;
use std::num::NonZeroU64;

use rustix::time::Timespec;

/// A longer wait is cut in two, because the kernel may be late by 0.1 % of it.
const LONG_WAIT_NS: u64 = 10_000_000;

/// Asks the kernel to end this thread's waits on time. By default it may be 50 µs late, to spare
/// wake-ups.
///
/// # Errors
/// When the kernel refuses.
pub fn precise_waits() -> io::Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    Ok(())
}

/// How long to wait at `now_ns` for what is due at `due_ns`. May end before it, never much after;
/// so look at the clock again and wait for what is left.
#[must_use]
pub fn time_left(due_ns: u64, now_ns: u64) -> Timespec {
    let left_ns = due_ns.saturating_sub(now_ns);
    let wait_ns = if left_ns > LONG_WAIT_NS { left_ns - left_ns / 500 } else { left_ns };
    Timespec {
        tv_sec: i64::try_from(wait_ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(wait_ns % 1_000_000_000).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_ends_early_and_a_past_moment_is_not_waited_for() {
        let wait = |due_ns, now_ns| {
            let Timespec { tv_sec, tv_nsec } = time_left(due_ns, now_ns);
            (tv_sec, tv_nsec)
        };
        assert_eq!(wait(1_000_000, 400_000), (0, 600_000));
        assert_eq!(wait(5, 6), (0, 0));
        assert_eq!(wait(10_000_000_000, 0), (9, 980_000_000));
    }
}
