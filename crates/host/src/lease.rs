//! When either end of a pipe speaks, and when it gives the other up. It reads no clock: the moments are
//! those of its caller, and a test goes through cuts and deaths with moments of its own.
//!
//! The lease lies between two bounds, which `docs/hosts.md` ("How soon an end is noticed") adds up. From
//! below: a network that was down for `RIDDEN_OUT` must not end a run. TCP sends what was lost again
//! after growing pauses, each twice the one before, and so may wait once more for as long as the network
//! was down; before that up to a beat had passed. From above: a host that dies must be a failed run
//! within `STATED_WITHIN`, everything stopped and stored.

use std::time::Duration;

use crate::clock::nanos;

pub const BEAT: Duration = Duration::from_secs(1);

/// How long either end waits for a word of the other.
pub const LEASE: Duration = Duration::from_millis(7_500);

/// How often either end looks whether the lease is over.
pub const LOOK: Duration = Duration::from_millis(100);

/// What generators have to stop, all together, when a host is lost; and after them the tiers. What has
/// not stopped by then is killed.
pub const HURRIED_STOP: Duration = Duration::from_millis(500);

/// How long after the death of a host its run must have failed.
const STATED_WITHIN: Duration = Duration::from_secs(10);

/// What is left of that for bringing back logs, for storing, and for a machine that is busy.
const MARGIN: Duration = Duration::from_secs(1);

/// An interruption of the network that a run outlives, with a caveat.
const RIDDEN_OUT: Duration = Duration::from_secs(3);

/// The first pause of TCP, up to which that holds: Linux takes 200 ms and the round trip.
const FIRST_PAUSE: Duration = Duration::from_millis(420);

// The arithmetic of the document; nothing is built where it does not hold.
const _: () = {
    let lost = LEASE.as_millis() + LOOK.as_millis() + 2 * HURRIED_STOP.as_millis();
    assert!(lost + MARGIN.as_millis() <= STATED_WITHIN.as_millis(), "a death is stated too late");
    let silent = BEAT.as_millis() + 2 * RIDDEN_OUT.as_millis() + FIRST_PAUSE.as_millis();
    assert!(silent < LEASE.as_millis(), "a short cut would end a run");
};

/// What is due at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    Nothing,
    /// A word of one's own.
    Beat,
    /// The other end has been silent for longer than the lease.
    GiveUp,
}

/// One end of a pipe.
#[derive(Debug, Clone, Copy)]
pub struct Beats {
    lease_ns: u64,
    next_ns: u64,
}

impl Beats {
    /// The first beat comes one beat after this moment.
    pub fn from(now_ns: u64, lease: Duration) -> Self {
        Self { lease_ns: nanos(lease), next_ns: now_ns.saturating_add(nanos(BEAT)) }
    }

    /// What is due, from the moment of the last beat of the other end.
    pub fn due(&mut self, heard_ns: u64, now_ns: u64) -> Due {
        if now_ns.saturating_sub(heard_ns) > self.lease_ns {
            return Due::GiveUp;
        }
        if now_ns < self.next_ns {
            return Due::Nothing;
        }
        self.next_ns = now_ns.saturating_add(nanos(BEAT));
        Due::Beat
    }
}

/// A lease as messages say it: `7.5 s`.
pub fn in_seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// All in milliseconds, of a clock that is moved by hand.
#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A network that is down for a while, under connections that send again what was lost.
    struct Network {
        down: Range<u64>,
        round_trip: u64,
        /// Moments after the loss at which it is sent again.
        pauses: Vec<u64>,
    }

    impl Network {
        /// Each pause is twice the one before. With `probe`, as on Linux, one more try after the first.
        fn new(down: Range<u64>, round_trip: u64, first_pause: u64, probe: bool) -> Self {
            let mut pauses = Vec::new();
            let (mut after, mut pause) = (0, first_pause);
            for number in 0..10 {
                after += pause;
                pauses.push(after);
                if number > 0 || !probe {
                    pause *= 2;
                }
            }
            Self { down, round_trip, pauses }
        }

        /// When something that is sent at this moment goes through, if it ever does.
        fn through(&self, sent: u64) -> Option<u64> {
            let tries = std::iter::once(sent).chain(self.pauses.iter().map(|after| sent + after));
            tries.into_iter().find(|at| !self.down.contains(at))
        }

        /// When the answer to a beat of this moment arrives: a round trip.
        fn answered(&self, sent: u64) -> Option<u64> {
            let there = self.through(sent)? + self.round_trip / 2;
            Some(self.through(there)? + self.round_trip / 2)
        }
    }

    /// When the study gives the host up, and its longest silence before that. Its looks begin at `phase`.
    fn followed(network: &Network, phase: u64, until: u64) -> (Option<u64>, u64) {
        let mut beats = Beats::from(phase * MS, LEASE);
        let (mut heard, mut longest) = (phase, 0);
        let mut coming: Vec<u64> = Vec::new();
        // What was sent before goes through first: nothing overtakes it.
        let mut last = 0;
        let mut now = phase;
        while now < until {
            now += u64::try_from(LOOK.as_millis()).unwrap();
            coming.sort_unstable();
            for answer in coming.extract_if(.., |answer| *answer <= now) {
                longest = longest.max(answer.saturating_sub(heard));
                heard = heard.max(answer);
            }
            match beats.due(heard * MS, now * MS) {
                Due::Nothing => {}
                Due::GiveUp => return (Some(now), longest.max(now - heard)),
                Due::Beat => {
                    if let Some(answer) = network.answered(now) {
                        last = last.max(answer);
                        coming.push(last);
                    }
                }
            }
        }
        (None, longest)
    }

    fn millis(time: Duration) -> u64 {
        u64::try_from(time.as_millis()).unwrap()
    }

    /// Whenever it begins, and however TCP spaces its tries.
    #[test]
    fn a_cut_of_three_seconds_never_ends_a_run_and_is_always_noticed() {
        let cut = 10_000..10_000 + millis(RIDDEN_OUT);
        let (mut shortest, mut worst) = (u64::MAX, 0);
        for first_pause in (200..=millis(FIRST_PAUSE)).step_by(10) {
            for probe in [false, true] {
                let round_trip = (first_pause - 200).clamp(1, 100);
                let network = Network::new(cut.clone(), round_trip, first_pause, probe);
                for phase in (0..1_000).step_by(5) {
                    let (lost, longest) = followed(&network, phase, 30_000);
                    assert_eq!(lost, None, "pauses from {first_pause} ms, phase {phase} ms");
                    shortest = shortest.min(longest);
                    worst = worst.max(longest);
                }
            }
        }
        // The caveat stands from 2.5 s on. The bound of the constants is not far from what comes about.
        assert!(shortest > 2_500, "{shortest}");
        assert!(worst > 7_000 && worst < millis(LEASE), "{worst}");
    }

    /// Up to here nothing is measured by time: a death at any moment, seen from any phase.
    #[test]
    fn a_host_that_dies_is_given_up_so_early_that_ten_seconds_suffice() {
        let stops = 2 * millis(HURRIED_STOP);
        let mut worst = 0;
        for phase in (0..1_000).step_by(3) {
            for dies in [10_000, 10_001, 10_500, 10_999] {
                let network = Network::new(dies..u64::MAX, 1, 200, true);
                let (lost, _) = followed(&network, phase, 60_000);
                let after = lost.expect("it is given up") - dies;
                // Its last word came up to a beat before it died.
                assert!(after + millis(BEAT) + millis(LOOK) >= millis(LEASE), "{after}");
                worst = worst.max(after);
            }
        }
        assert!(worst <= millis(LEASE) + millis(LOOK), "{worst}");
        assert!(worst + stops + millis(MARGIN) <= millis(STATED_WITHIN), "{worst}");
    }

    #[test]
    fn a_cut_of_fifteen_seconds_is_the_end_on_both_sides() {
        for phase in (0..1_000).step_by(7) {
            let network = Network::new(10_000..25_000, 1, 200, true);
            let (lost, _) = followed(&network, phase, 60_000);
            assert!(lost.is_some_and(|at| at < 25_000), "{lost:?}");
        }
        // The agent gets a beat each second, and gives up by the same rule.
        let mut there = Beats::from(0, LEASE);
        let heard = 10_000 * MS;
        assert_ne!(there.due(heard, heard + nanos(LEASE)), Due::GiveUp);
        assert_eq!(there.due(heard, heard + nanos(LEASE) + 1), Due::GiveUp);
    }

    #[test]
    fn a_beat_is_due_once_a_second_and_again_after_a_pause() {
        use Due::{Beat, Nothing};
        let mut beats = Beats::from(0, LEASE);
        let due: Vec<Due> = [500, 1_000, 1_100, 2_000, 5_000, 5_100]
            .map(|now: u64| beats.due(now * MS, now * MS))
            .into();
        assert_eq!(due, [Nothing, Beat, Nothing, Beat, Beat, Nothing]);
        assert_eq!(in_seconds(LEASE), "7.5 s");
    }
}
