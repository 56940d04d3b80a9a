//! The wait of a client at one station of a layer.

use std::ops::{Add, AddAssign, Mul, Sub};

use kendall_units::exact_f64;

use super::plan::Station;

/// Requests of one client at a station.
#[derive(Debug, Clone, Default)]
pub(super) struct Flow {
    /// 1/s.
    pub(super) rate: f64,
    /// Of the time until the reply: rate times mean, and rate times mean square.
    first: [f64; 2],
    /// Of what the server does after it.
    second: [f64; 2],
    /// Which part is on behalf of a waiting customer, by reference task: rate times share.
    shares: Vec<f64>,
}

/// Mean numbers at a station.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) waiting: f64,
    pub(super) first: f64,
    pub(super) second: f64,
}

/// What an arrival finds: the work that waits, the numbers in service before and after the reply, and
/// the work that these have left.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    waiting: f64,
    first: f64,
    second: f64,
    first_left: f64,
    second_left: f64,
}

impl Flow {
    pub(super) fn new(references: usize) -> Self {
        Self { shares: vec![0.0; references], ..Self::default() }
    }

    /// Adds requests: means and mean squares of the time until the reply and after it.
    pub(super) fn add(
        &mut self,
        rate: f64,
        first: [f64; 2],
        second: [f64; 2],
        shares: Option<&[f64]>,
    ) {
        self.rate += rate;
        for place in 0..2 {
            self.first[place] += rate * first[place];
            self.second[place] += rate * second[place];
        }
        for (sum, share) in self.shares.iter_mut().zip(shares.unwrap_or_default()) {
            *sum += rate * share;
        }
    }

    fn mean(&self, sum: f64) -> f64 {
        if self.rate > 0.0 { sum / self.rate } else { 0.0 }
    }

    pub(super) fn first(&self) -> f64 {
        self.mean(self.first[0])
    }

    pub(super) fn second(&self) -> f64 {
        self.mean(self.second[0])
    }

    pub(super) fn share(&self, reference: usize) -> f64 {
        self.mean(self.shares[reference])
    }

    /// Part that is on behalf of no waiting customer.
    pub(super) fn unbound(&self) -> f64 {
        (1.0 - self.mean(self.shares.iter().sum())).clamp(0.0, 1.0)
    }

    /// Mean number of servers that it keeps busy.
    pub(super) fn busy(&self) -> f64 {
        self.first[0] + self.second[0]
    }

    /// Mean numbers, with this wait.
    pub(super) fn counts(&self, wait: f64) -> Counts {
        Counts { waiting: self.rate * wait, first: self.first[0], second: self.second[0] }
    }

    /// Work of so many; at a processor that is shared, a request each. At a busy station, `load` of its
    /// capacity, clients come back as others begin to be served, and find their whole service
    /// rather than what is left of it at a random moment.
    pub(super) fn found(&self, counts: Counts, station: Station, load: f64) -> Found {
        let Counts { waiting, first, second } = counts;
        let left = |sums: [f64; 2]| {
            let at_random = if sums[0] > 0.0 { 0.5 * sums[1] / sums[0] } else { 0.0 };
            load * self.mean(sums[0]) + (1.0 - load) * at_random
        };
        let (work, first_left) = if station.ps {
            (1.0, 1.0)
        } else {
            (self.first() + self.second(), left(self.first) + self.second())
        };
        Found {
            waiting: waiting * work,
            first,
            second,
            first_left: first * first_left,
            second_left: second * left(self.second),
        }
    }

    /// What is left of the second phase of a request, when it is found.
    pub(super) fn second_left(&self) -> f64 {
        if self.second[0] > 0.0 { 0.5 * self.second[1] / self.second[0] } else { 0.0 }
    }
}

impl Counts {
    /// A mixture of two.
    pub(super) fn mixed(self, share: f64, other: Self) -> Self {
        let mix = |a: f64, b: f64| a * share + b * (1.0 - share);
        Self {
            waiting: mix(self.waiting, other.waiting),
            first: mix(self.first, other.first),
            second: mix(self.second, other.second),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            waiting: self.waiting + other.waiting,
            first: self.first + other.first,
            second: self.second + other.second,
        }
    }

    pub(super) fn scaled(self, factor: f64) -> Self {
        self.mixed(factor, Self::default())
    }
}

impl Found {
    fn each(self, other: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            waiting: with(self.waiting, other.waiting),
            first: with(self.first, other.first),
            second: with(self.second, other.second),
            first_left: with(self.first_left, other.first_left),
            second_left: with(self.second_left, other.second_left),
        }
    }

    /// The other, cut to the work of this one where it has more.
    pub(super) fn least(self, other: Self) -> Self {
        let work = |found: &Self| found.waiting + found.first_left + found.second_left;
        // Rounding may leave less than nothing.
        let (most, all) = (work(&self).max(0.0), work(&other));
        other * if all > most { most / all } else { 1.0 }
    }

    /// Time until a server takes up the arrival, which finds the second phase of its own last request
    /// with probability `overtaken`, and then `own_left` of it.
    ///
    /// A server is free with 1 − ρ^(√(2(m+1))−1), ρ the busy share of m \[Sakasegawa77\]; for m = 1
    /// this is the sum of what waits and what is left in service.
    pub(super) fn wait(self, station: Station, overtaken: f64, own_left: f64) -> f64 {
        let m = station.servers;
        if m.is_infinite() {
            return 0.0;
        }
        // While its own second phase lasts, that server has no other one.
        let others = 1.0 - overtaken / m;
        let busy = self.first + others * self.second + overtaken;
        if busy <= 0.0 {
            return self.waiting / m;
        }
        let left = (self.first_left + others * self.second_left + overtaken * own_left) / busy;
        (self.waiting + all_busy(busy, m) * left) / m
    }
}

fn all_busy(busy: f64, m: f64) -> f64 {
    (busy / m).min(1.0).powf((2.0 * (m + 1.0)).sqrt() - 1.0)
}

impl Add for Found {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }
}

impl AddAssign for Found {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Found {
    type Output = Self;
    /// Never below nothing.
    fn sub(self, other: Self) -> Self {
        self.each(other, |a, b| (a - b).max(0.0))
    }
}

impl Mul<f64> for Found {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        self.each(self, |a, _| a * factor)
    }
}

/// Probability that a client is back before the second phase of its last request is over: both
/// exponential, the client away for one of two mean times, as it calls again in the same run or in the
/// next.
///
/// # Source
/// The two-state race of Rolia and Sevcik 1995 \[RS95\], with the client's own states set apart as by
/// Franks and Woodside 1999, who keep all of them.
pub(super) fn overtaking(second: f64, visits: f64, active: f64, cycle: f64, response: f64) -> f64 {
    if second <= 0.0 || visits <= 0.0 {
        return 0.0;
    }
    let away = (cycle / visits - response).max(0.0);
    let again = visits / (1.0 + visits);
    let soon = ((active - visits * response) / (1.0 + visits)).clamp(0.0, away);
    let late = ((away - again * soon) / (1.0 - again)).max(0.0);
    let before = |away: f64| second / (second + away);
    again * before(soon) + (1.0 - again) * before(late)
}

/// Points of the integral in [`largest`].
pub(super) const LARGEST_STEPS: usize = 256;

/// Mean and variance of the largest of independent times with these: exponential behind a constant, or
/// hyper-exponential with balanced means where they vary more than an exponential one.
pub(super) fn largest(times: &[(f64, f64)]) -> (f64, f64) {
    if let [time] = times {
        return *time;
    }
    // Constant part, and a mixture of exponential ones.
    let fitted = |(mean, variance): &(f64, f64)| {
        let variance = variance.max(0.0);
        let scv = variance / (mean * mean);
        if scv > 1.0 {
            let p = 0.5 * (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt());
            (0.0, [(p, 0.5 * mean / p), (1.0 - p, 0.5 * mean / (1.0 - p))])
        } else {
            (mean - variance.sqrt(), [(1.0, variance.sqrt()), (0.0, 0.0)])
        }
    };
    let laws: Vec<_> = times.iter().map(fitted).collect();
    // None is done before the longest constant part; behind it all are smooth.
    let start = laws.iter().map(|law| law.0).fold(0.0, f64::max);
    let slowest = laws.iter().flat_map(|law| law.1).map(|part| part.1).fold(0.0, f64::max);
    if !(slowest > 0.0 && (start + slowest).is_finite()) {
        return (start + slowest, 0.0);
    }
    let (mut mean, mut square) = (start, start * start);
    for step in 0..LARGEST_STEPS {
        // t = start − slowest·ln u.
        let u = (exact_f64(step) + 0.5) / exact_f64(LARGEST_STEPS);
        let t = start - slowest * u.ln();
        let done: f64 = laws
            .iter()
            .map(|(constant, parts)| {
                let late = parts.iter().filter(|part| part.0 > 0.0 && part.1 > 0.0);
                1.0 - late.map(|(p, mean)| p * (-(t - constant) / mean).exp()).sum::<f64>()
            })
            .product();
        let width = slowest / u / exact_f64(LARGEST_STEPS);
        mean += (1.0 - done) * width;
        square += 2.0 * t * (1.0 - done) * width;
    }
    (mean, (square - mean * mean).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_cut_to_nothing() {
        let nothing = Found::default();
        let less = Found { waiting: -1e-17, ..nothing };
        let station = Station { servers: 1.0, ps: false };
        assert!(less.least(nothing).wait(station, 0.0, 0.0).abs() < 1e-16);
    }

    /// H_n of exponential ones; inclusion and exclusion; a constant beside an exponential one.
    #[test]
    fn the_largest_of_independent_times_is_known() {
        let exp = |mean: f64| (mean, mean * mean);
        let cases = [
            (vec![exp(1.0); 2], 1.5, 1.25),
            (vec![exp(1.0); 8], 761.0 / 280.0, 1.527_422_1),
            (vec![exp(1.0), exp(0.2)], 1.2 - 1.0 / 6.0, f64::NAN),
            (vec![(2.0, 0.0), (1.0, 0.0)], 2.0, 0.0),
            (vec![(1.0, 0.0), exp(1.0)], 1.0 + (-1.0_f64).exp(), f64::NAN),
        ];
        for (times, mean, variance) in cases {
            let found = largest(&times);
            assert!((found.0 / mean - 1.0).abs() < 2e-3, "{times:?}: {found:?}");
            // What the midpoint rule leaves of 2n·ln u between 0 and 1: n·ln 2 a step.
            let left_over = exact_f64(times.len()) * 2.0_f64.ln() / exact_f64(LARGEST_STEPS);
            let is_known = variance.is_finite();
            let off = (found.1 - variance).abs();
            assert!(!is_known || off < 1.1 * left_over + 1e-9, "{times:?}: {found:?}");
        }
        assert_eq!(largest(&[(3.0, 7.0)]), (3.0, 7.0));
        assert!(largest(&[(f64::INFINITY, 1.0), (1.0, 1.0)]).0.is_infinite());
    }
}
