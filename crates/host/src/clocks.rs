//! How another host's monotonic clock stands to this one's, from pings over the agent's pipe.
//!
//! A ping says: at some moment between `sent_ns` and `received_ns` here it was `there_ns` there. Half
//! of the time between is the most that the middle can be wrong by, whatever the two ways took.
//! Calendar clocks and what keeps them in step are never asked.

use kendall_units::exact_f64;
use serde_json::{Value as Json, json};

/// Pings before a run and after it.
pub const PINGS: usize = 50;

/// Share of the pings that is used: the quickest ones, which did not wait.
const QUICKEST: usize = 10;

/// Clocks that drift apart by more than this cannot be trusted: quartz is below 0.0001.
const MOST_DRIFT: f64 = 1e-3;

/// A drift that is not known better than this is not fitted.
const KNOWN_DRIFT: f64 = 2e-4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping {
    /// Before it was asked, by the clock here.
    pub sent_ns: u64,
    /// When it was answered, by the clock there.
    pub there_ns: u64,
    /// When the answer had come, by the clock here.
    pub received_ns: u64,
}

impl Ping {
    fn round_trip(&self) -> u64 {
        self.received_ns.saturating_sub(self.sent_ns)
    }

    /// The moment here that is taken for the moment there.
    fn middle(&self) -> u64 {
        self.sent_ns + self.round_trip() / 2
    }

    /// Clock there minus clock here.
    fn offset(&self) -> i128 {
        i128::from(self.there_ns) - i128::from(self.middle())
    }

    fn half(&self) -> f64 {
        exact_f64(self.round_trip()) / 2.0
    }
}

/// A straight line from a clock there to the clock here, good for a stated time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockFit {
    /// The moment there at which `offset_ns` holds.
    at_ns: u64,
    /// Clock there minus clock here at that moment.
    offset_ns: i128,
    /// By how much that grows in a nanosecond.
    drift: f64,
    /// The most that a mapped moment can be wrong by, between the first and the last ping, if both
    /// clocks run evenly; as far as the pings show that they do not, it is larger.
    pub bound_ns: f64,
    pub round_trip_ns: u64,
    pub pings: usize,
}

impl ClockFit {
    /// From pings in the order of time. `None` where there are none.
    ///
    /// The line goes through the quickest tenth of the first third of the time and that of the last.
    /// What it can be wrong by at the best ping of each end is half its round trip and its distance
    /// from the line; a line that is wrong by no more at both ends is wrong by no more between them.
    pub fn of(pings: &[Ping]) -> Option<Self> {
        let (first, last) = (pings.first()?, pings.last()?);
        let third = last.there_ns.saturating_sub(first.there_ns) / 3;
        let early =
            quickest(pings.iter().filter(|p| p.there_ns <= first.there_ns.saturating_add(third)));
        let late =
            quickest(pings.iter().filter(|p| p.there_ns.saturating_add(third) >= last.there_ns));
        let at_ns = early.first()?.there_ns;
        let base = early.first()?.offset();
        let (a, b) = (center(&early, at_ns, base), center(&late, at_ns, base));
        let apart = b.0 - a.0;
        let half = |pings: &[Ping]| pings.iter().map(Ping::half).fold(f64::INFINITY, f64::min);
        // Over a short time, or a busy network, round trips say more than the drift of any clock.
        let known = apart > 0.0 && (half(&early) + half(&late)) / apart < KNOWN_DRIFT;
        let drift = if known { (b.1 - a.1) / apart } else { 0.0 };
        let offset = if known { drift.mul_add(-a.0, a.1) } else { (a.1 + b.1) / 2.0 };
        let line = |ping: &Ping| {
            let x = signed(i128::from(ping.there_ns) - i128::from(at_ns));
            (signed(ping.offset() - base) - drift.mul_add(x, offset)).abs()
        };
        let best = |pings: &[Ping]| {
            pings.iter().map(|ping| line(ping) + ping.half()).fold(f64::INFINITY, f64::min)
        };
        let ends = best(&early).max(best(&late));
        // A ping whose own limits exclude the line shows that a clock did not run evenly.
        let bent = pings.iter().map(|ping| line(ping) - ping.half()).fold(0.0, f64::max);
        let unbelievable = if drift.abs() > MOST_DRIFT { f64::INFINITY } else { 0.0 };
        Some(Self {
            at_ns,
            offset_ns: base.saturating_add(rounded(offset)),
            drift,
            bound_ns: ends + bent + unbelievable,
            round_trip_ns: pings.iter().map(Ping::round_trip).min()?,
            pings: pings.len(),
        })
    }

    /// A moment there, by the clock here.
    pub fn here(&self, there_ns: u64) -> u64 {
        // An agent may say anything of its clock; what cannot be is rejected by its bound.
        let since = signed(i128::from(there_ns) - i128::from(self.at_ns));
        let here = i128::from(there_ns).saturating_sub(self.offset_ns);
        let here = here.saturating_sub(rounded(self.drift * since));
        u64::try_from(here.max(0)).unwrap_or(u64::MAX)
    }

    /// A moment here, by the clock there.
    pub fn there(&self, here_ns: u64) -> u64 {
        let guess = i128::from(here_ns).saturating_add(self.offset_ns);
        let since = signed(guess.saturating_sub(i128::from(self.at_ns)));
        let there = guess.saturating_add(rounded(self.drift / (1.0 - self.drift) * since));
        u64::try_from(there.max(0)).unwrap_or(u64::MAX)
    }

    /// Clock there minus clock here, in seconds, at the first pings.
    pub fn offset_s(&self) -> f64 {
        signed(self.offset_ns) / 1e9
    }

    pub fn json(&self) -> Json {
        json!({
            "offset_ns": i64::try_from(self.offset_ns).unwrap_or(i64::MAX),
            "drift_ppm": self.drift * 1e6,
            "bound_ns": if self.bound_ns.is_finite() { json!(self.bound_ns) } else { Json::Null },
            "round_trip_least_ns": self.round_trip_ns,
            "pings": self.pings,
        })
    }
}

/// The quickest tenth, one at least.
fn quickest<'a>(pings: impl Iterator<Item = &'a Ping>) -> Vec<Ping> {
    let mut pings: Vec<Ping> = pings.copied().collect();
    pings.sort_by_key(Ping::round_trip);
    pings.truncate(pings.len().div_ceil(QUICKEST));
    pings
}

/// Mean moment and mean offset, from these origins; a quick ping counts for more.
fn center(pings: &[Ping], at_ns: u64, base: i128) -> (f64, f64) {
    let (mut weights, mut x, mut y) = (0.0, 0.0, 0.0);
    for ping in pings {
        let weight = 1.0 / (ping.half() + 1.0).powi(2);
        weights += weight;
        x += weight * signed(i128::from(ping.there_ns) - i128::from(at_ns));
        y += weight * signed(ping.offset() - base);
    }
    (x / weights, y / weights)
}

#[expect(clippy::cast_precision_loss, reason = "differences within a run: far below 2^53 ns")]
fn signed(difference: i128) -> f64 {
    difference as f64
}

#[expect(clippy::cast_possible_truncation, reason = "differences within a run, finite")]
fn rounded(difference: f64) -> i128 {
    difference.round() as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A stream of numbers that is the same every time.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self, below: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            (self.0 >> 33) % below
        }
    }

    /// Where the clock there stands at a moment here.
    fn truth(here: u64, offset: i128, drift_ppb: i128) -> u64 {
        let there = i128::from(here) + offset + i128::from(here) * drift_ppb / 1_000_000_000;
        u64::try_from(there).unwrap()
    }

    /// Fifty pings, one each second for a minute, fifty more; each way takes 20 µs and up to `jitter`
    /// more, by itself.
    fn pings(offset: i128, drift_ppb: i128, jitter: u64, seed: u64) -> Vec<Ping> {
        let mut numbers = Numbers(seed);
        let start = 5_000 * SECOND;
        let before = (0..50).map(|i| start + i * 300_000);
        let during = (1..60).map(|i| start + i * SECOND);
        let after = (0..50).map(|i| start + 60 * SECOND + i * 300_000);
        let ping = |sent_ns: u64| {
            let asked = sent_ns + 20_000 + numbers.next(jitter);
            let received_ns = asked + 20_000 + numbers.next(jitter);
            Ping { sent_ns, there_ns: truth(asked, offset, drift_ppb), received_ns }
        };
        before.chain(during).chain(after).map(ping).collect()
    }

    #[test]
    fn moments_are_mapped_within_the_stated_bound_whatever_offset_and_drift() {
        for (index, seed) in (1..=200).enumerate() {
            let offset = [1_000_000_000_000, -3_000_000_000_000, 17, 0][index % 4];
            let drift = [0, 40_000, -100_000][index % 3];
            let fit = ClockFit::of(&pings(offset, drift, 400_000, seed)).unwrap();
            // Half of the least possible round trip is 20 µs; the quickest of fifty comes near it.
            assert!(fit.bound_ns < 150_000.0, "{fit:?}");
            for second in 0..=60 {
                let here = 5_000 * SECOND + second * SECOND;
                let there = truth(here, offset, drift);
                let wrong = fit.here(there).abs_diff(here);
                assert!(exact_f64(wrong) <= fit.bound_ns + 2.0, "seed {seed}: {wrong} {fit:?}");
                assert!(fit.there(fit.here(there)).abs_diff(there) <= 100, "{fit:?}");
            }
        }
    }

    /// Ways that differ are what no ping can see: the error is theirs, and the bound covers it.
    #[test]
    fn a_way_that_is_slower_than_the_other_stays_within_the_bound() {
        let one_way: Vec<Ping> = (0..200)
            .map(|i| {
                let sent_ns = SECOND + i * 10_000_000;
                Ping { sent_ns, there_ns: sent_ns + 900_000 + 77, received_ns: sent_ns + 910_000 }
            })
            .collect();
        let fit = ClockFit::of(&one_way).unwrap();
        let wrong = fit.here(2 * SECOND + 77).abs_diff(2 * SECOND);
        assert!(wrong > 400_000 && exact_f64(wrong) <= fit.bound_ns, "{wrong} {fit:?}");
    }

    #[test]
    fn a_clock_that_jumps_within_a_run_is_noticed() {
        let mut jumped = pings(0, 0, 1_000, 3);
        let fit = ClockFit::of(&jumped).unwrap();
        assert!(fit.bound_ns < 30_000.0, "{fit:?}");
        // Half a minute late by 50 ms, and back before the end.
        for ping in jumped.iter_mut().skip(70).take(20) {
            ping.there_ns += 50_000_000;
        }
        let fit = ClockFit::of(&jumped).unwrap();
        assert!(fit.bound_ns > 49_000_000.0, "{fit:?}");
        // And one that stays ahead afterwards would be a drift that no clock has.
        let mut stepped = pings(0, 0, 1_000, 3);
        for ping in stepped.iter_mut().skip(70) {
            ping.there_ns += 100_000_000;
        }
        assert!(ClockFit::of(&stepped).unwrap().bound_ns > 10_000_000.0);
    }

    /// A run of two seconds on a busy machine: round trips of milliseconds are not a drift of a clock.
    #[test]
    fn slow_pings_over_a_short_time_widen_the_bound_and_are_no_drift() {
        for seed in 1..=100 {
            let mut numbers = Numbers(seed);
            let ping = |number: u64| {
                let sent_ns = 9 * SECOND + number * 40_000_000;
                let asked = sent_ns + 500_000 + numbers.next(4_000_000);
                let there_ns = truth(asked, 77, 0);
                Ping { sent_ns, there_ns, received_ns: asked + 500_000 + numbers.next(4_000_000) }
            };
            let slow: Vec<Ping> = (0..50).map(ping).collect();
            let fit = ClockFit::of(&slow).unwrap();
            assert!(fit.bound_ns.is_finite() && fit.bound_ns < 10_000_000.0, "{fit:?}");
            let wrong = fit.here(10 * SECOND + 77).abs_diff(10 * SECOND);
            assert!(exact_f64(wrong) <= fit.bound_ns, "seed {seed}: {wrong} {fit:?}");
        }
    }

    #[test]
    fn few_pings_are_still_bounded_and_none_say_nothing() {
        assert_eq!(ClockFit::of(&[]), None);
        let one = Ping { sent_ns: 1_000, there_ns: 50_000, received_ns: 3_000 };
        let fit = ClockFit::of(&[one]).unwrap();
        assert_eq!((fit.here(50_000), fit.bound_ns.round()), (2_000, 1_000.0));
    }
}
