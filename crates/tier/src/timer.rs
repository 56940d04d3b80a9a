//! Waiting to the nanosecond, for event loops.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::clock::Clock;

/// A longer wait is cut in two, because the kernel may be late by 0.1 % of it.
const LONG_WAIT_NS: u64 = 10_000_000;

/// Asks the kernel to end this thread's waits on time. By default it may be 50 µs late, to spare
/// wake-ups.
pub fn precise_waits() -> io::Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    Ok(())
}

/// How long to wait at `now_ns` for what is due at `due_ns`. May end before it, never much after;
/// so read the clock again and wait for what is left.
pub fn time_left(due_ns: u64, now_ns: u64) -> Timespec {
    let left_ns = due_ns.saturating_sub(now_ns);
    let wait_ns = if left_ns > LONG_WAIT_NS { left_ns - left_ns / 500 } else { left_ns };
    Timespec {
        tv_sec: i64::try_from(wait_ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(wait_ns % 1_000_000_000).unwrap_or(0),
    }
}

/// Waits that end on time although a core that sleeps wakes up late.
///
/// How late is learned from the waits that ran to their end, and the next ones end so much earlier;
/// what is left is spent awake, asking for events without waiting. A core takes 20 to 150 µs to
/// wake up on the machines that we saw. Staying awake costs at most a quarter of a core: beyond it,
/// waits end as late as they do.
///
/// # Example
/// ```
/// use kendall_tier::Waits;
///
/// let mut waits = Waits::default();
/// // Due in 1 ms; the first wait is not shortened yet.
/// assert_eq!(waits.until(1_000_000, 0).tv_nsec, 1_000_000);
/// // It ended 60 µs late, with no event: the next one ends a little earlier.
/// waits.woke(1_060_000, false);
/// assert!(waits.until(3_060_000, 2_060_000).tv_nsec < 1_000_000);
/// ```
#[derive(Debug, Default)]
pub struct Waits {
    early_ns: u64,
    /// When the wait should end, or since when there was none.
    begun: Option<Begun>,
    /// Time that may yet be spent awake.
    credit_ns: u64,
    credited_ns: u64,
}

#[derive(Debug, Clone, Copy)]
enum Begun {
    Asleep { until_ns: u64 },
    Awake { since_ns: u64 },
}

/// Longest time that a wait ends early.
const MOST_EARLY_NS: u64 = 200_000;
/// Three in four waits shall end in time: lengthened by three when late, shortened by one when not.
const LATER_NS: u64 = 2_000;
const EARLIER_NS: u64 = 3 * LATER_NS;
/// Share of a core that may be spent awake, as a divisor, and how much of it may be saved up.
const AWAKE_DIVISOR: u64 = 4;
const MOST_CREDIT_NS: u64 = 5_000_000;

impl Waits {
    /// How long to wait for events at `now_ns` for what is due at `due_ns`; see [`time_left`].
    pub fn until(&mut self, due_ns: u64, now_ns: u64) -> Timespec {
        let earned_ns = now_ns.saturating_sub(self.credited_ns) / AWAKE_DIVISOR;
        self.credit_ns = self.credit_ns.saturating_add(earned_ns).min(MOST_CREDIT_NS);
        self.credited_ns = now_ns;
        let early_ns = self.early_ns.min(self.credit_ns);
        let left_ns = due_ns.saturating_sub(now_ns);
        if left_ns == 0 {
            self.begun = None;
        } else if left_ns <= early_ns {
            self.begun = Some(Begun::Awake { since_ns: now_ns });
            return time_left(now_ns, now_ns);
        } else {
            self.begun = Some(Begun::Asleep { until_ns: due_ns - early_ns });
        }
        time_left(due_ns - early_ns.min(left_ns), now_ns)
    }

    /// Waits for events for so long, and takes note of how it ended.
    pub fn wait(
        &mut self,
        epoll: &OwnedFd,
        events: &mut Vec<epoll::Event>,
        timeout: Option<Timespec>,
        clock: &Clock,
    ) -> io::Result<()> {
        match epoll::wait(epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if self.is_learning() {
            self.woke(clock.now_ns(), !events.is_empty());
        }
        Ok(())
    }

    /// Takes note of the end of the wait; whether there were events.
    pub fn woke(&mut self, now_ns: u64, events: bool) {
        match self.begun.take() {
            Some(Begun::Awake { since_ns }) => {
                let awake_ns = now_ns.saturating_sub(since_ns);
                self.credit_ns = self.credit_ns.saturating_sub(awake_ns);
            }
            // A wait that was cut in two ends before its time and says nothing.
            Some(Begun::Asleep { until_ns }) if !events && now_ns >= until_ns => {
                let late_ns = now_ns - until_ns;
                self.early_ns = if late_ns > self.early_ns {
                    (self.early_ns + EARLIER_NS).min(MOST_EARLY_NS)
                } else {
                    self.early_ns.saturating_sub(LATER_NS)
                };
            }
            _ => {}
        }
    }

    /// Whether [`Self::woke`] has something to learn: the clock need not be asked otherwise.
    pub fn is_learning(&self) -> bool {
        self.begun.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wakes up as late as it is told; how far from the moment the last hundred ended.
    fn lateness(late_ns: u64, gap_ns: u64) -> (u64, u64) {
        let mut waits = Waits::default();
        let (mut now_ns, mut due_ns, mut late, mut awake_ns) = (0, 0, Vec::new(), 0);
        for _ in 0..1_000 {
            due_ns += gap_ns;
            while now_ns < due_ns {
                let wait = waits.until(due_ns, now_ns);
                let wait_ns = u64::try_from(wait.tv_nsec).unwrap();
                let before_ns = now_ns;
                now_ns += if wait_ns == 0 { 500 } else { wait_ns + late_ns };
                awake_ns += if wait_ns == 0 { now_ns - before_ns } else { 0 };
                waits.woke(now_ns, false);
            }
            late.push(now_ns - due_ns);
        }
        let last: u64 = late[900..].iter().sum();
        (last / 100, awake_ns * 1_000 / now_ns)
    }

    #[test]
    fn waits_learn_how_late_the_core_wakes_up() {
        // Within what a shortened wait swings around the lateness of the core: three steps.
        let (late_ns, _) = lateness(80_000, 2_000_000);
        assert!(late_ns < 3 * EARLIER_NS, "{late_ns}");
    }

    #[test]
    fn staying_awake_costs_no_more_than_its_share_of_a_core() {
        for gap_ns in [20_000, 100_000, 300_000, 2_000_000] {
            let (_, awake_per_mille) = lateness(150_000, gap_ns);
            // The credit that was saved up at first is gone after a thousand waits.
            assert!(awake_per_mille <= 1_000 / AWAKE_DIVISOR + 30, "{gap_ns}: {awake_per_mille}");
        }
    }

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
