//! Maximum likelihood of a mixture of two exponentials (hyper-exponential with free branches).

use super::Sample;

/// Rounds of the search from one start; each is two steps of EM and a jump along them.
const MOST_ROUNDS: usize = 150;

/// Rounds from a start that is next to the maximum.
const FEW_ROUNDS: usize = 20;

/// Gain in the logarithm of the likelihood, over all times, below which a search has arrived.
const ARRIVED: f64 = 1e-6;

/// Times beyond which the first search is made on evenly spaced order statistics.
const MOST_TIMES: usize = 20_000;

/// p, and the means of the two branches; the first has the smaller mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Branches {
    pub(super) p: f64,
    pub(super) means: (f64, f64),
}

impl Branches {
    pub(super) fn mean(&self) -> f64 {
        self.p * self.means.0 + (1.0 - self.p) * self.means.1
    }

    /// Squared coefficient of variation.
    pub(super) fn scv(&self) -> f64 {
        let second = 2.0 * (self.p * self.means.0.powi(2) + (1.0 - self.p) * self.means.1.powi(2));
        second / self.mean().powi(2) - 1.0
    }

    pub(super) fn log_density(&self, t: f64) -> f64 {
        let (a, b) = (
            self.p.ln() - self.means.0.ln() - t / self.means.0,
            (1.0 - self.p).ln() - self.means.1.ln() - t / self.means.1,
        );
        let top = a.max(b);
        top + ((a - top).exp() + (b - top).exp()).ln()
    }

    /// Unbounded coordinates, in which a step may be prolonged.
    fn free(&self) -> [f64; 3] {
        [(self.p / (1.0 - self.p)).ln(), self.means.0.ln(), self.means.1.ln()]
    }

    fn of_free(free: [f64; 3]) -> Self {
        let p = 1.0 / (1.0 + (-free[0]).exp());
        Self { p: p.clamp(1e-9, 1.0 - 1e-9), means: (free[1].exp(), free[2].exp()) }
    }

    fn sorted(self) -> Self {
        if self.means.0 <= self.means.1 {
            self
        } else {
            Self { p: 1.0 - self.p, means: (self.means.1, self.means.0) }
        }
    }
}

/// The most likely branches; `None` where two are no more likely than one.
///
/// # Source
/// EM: Dempster, Laird, Rubin 1977; prolonged steps: Varadhan, Roland 2008 (SQUAREM), taken back
/// where they lose likelihood.
pub(super) fn fit(sample: &Sample<'_>, start: Option<Branches>) -> Option<Branches> {
    let thinned: Vec<f64>;
    let times = if sample.sorted.len() > MOST_TIMES {
        let step = sample.sorted.len() / (MOST_TIMES / 2);
        thinned = sample.sorted.iter().skip(step / 2).step_by(step).copied().collect();
        thinned.as_slice()
    } else {
        sample.sorted
    };
    let mean = times.iter().sum::<f64>() / kendall_units::exact_f64(times.len());
    // A sample of the bootstrap starts next to its maximum.
    let (starts, rounds) = match start {
        Some(start) => (vec![start], FEW_ROUNDS),
        None => (starts(times, mean, sample.scv()), MOST_ROUNDS),
    };
    let best = starts
        .into_iter()
        .map(|start| climb(times, start, rounds))
        .max_by(|a, b| likelihood(times, a).total_cmp(&likelihood(times, b)))?;
    let best = if times.len() < sample.sorted.len() {
        climb(sample.sorted, best, FEW_ROUNDS)
    } else {
        best
    };
    let single = -sample.n * (sample.mean.ln() + 1.0);
    let gained = likelihood(sample.sorted, &best) - single;
    (gained > ARRIVED).then(|| best.sorted())
}

/// Balanced means, and splits at several order statistics.
fn starts(times: &[f64], mean: f64, scv: f64) -> Vec<Branches> {
    let mut starts = Vec::new();
    if scv > 1.0 {
        let p = f64::midpoint(1.0, ((scv - 1.0) / (scv + 1.0)).sqrt()).min(1.0 - 1e-6);
        starts.push(Branches { p, means: (mean / (2.0 * p), mean / (2.0 * (1.0 - p))) });
    }
    for tenths in [3, 5, 7, 9] {
        let at = (times.len() * tenths / 10).clamp(1, times.len() - 1);
        let of = |part: &[f64]| part.iter().sum::<f64>() / kendall_units::exact_f64(part.len());
        let (low, high) = (of(&times[..at]), of(&times[at..]));
        if low > 0.0 && high > low {
            starts.push(Branches {
                p: kendall_units::exact_f64(at) / kendall_units::exact_f64(times.len()),
                means: (low, high),
            });
        }
    }
    starts
}

fn likelihood(times: &[f64], branches: &Branches) -> f64 {
    times.iter().map(|t| branches.log_density(*t)).sum()
}

fn climb(times: &[f64], start: Branches, rounds: usize) -> Branches {
    let mut here = start;
    let mut height = likelihood(times, &here);
    for _ in 0..rounds {
        let first = step(times, &here);
        let second = step(times, &first);
        let (a, b, c) = (here.free(), first.free(), second.free());
        let r = [b[0] - a[0], b[1] - a[1], b[2] - a[2]];
        let v = [c[0] - b[0] - r[0], c[1] - b[1] - r[1], c[2] - b[2] - r[2]];
        let length = |x: [f64; 3]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let stretch = if length(v) > 0.0 { (length(r) / length(v)).clamp(1.0, 50.0) } else { 1.0 };
        let jump = [0, 1, 2].map(|i| a[i] + 2.0 * stretch * r[i] + stretch * stretch * v[i]);
        let prolonged = Branches::of_free(jump);
        let prolonged = if jump.iter().all(|x| x.is_finite() && x.abs() < 600.0) {
            step(times, &prolonged)
        } else {
            second
        };
        let mut next = (likelihood(times, &prolonged), prolonged);
        if next.0.is_nan() || next.0 < height {
            next = (likelihood(times, &second), second);
        }
        let gained = next.0 - height;
        (height, here) = next;
        if gained.is_nan() || gained < ARRIVED {
            break;
        }
    }
    here
}

/// One step of EM.
fn step(times: &[f64], branches: &Branches) -> Branches {
    let (mut weight, mut first, mut second) = (0.0, 0.0, 0.0);
    let ratio = (1.0 - branches.p) / branches.means.1 * branches.means.0 / branches.p;
    let rate = 1.0 / branches.means.0 - 1.0 / branches.means.1;
    for t in times {
        let share = 1.0 / (1.0 + ratio * (rate * t).exp());
        weight += share;
        first += share * t;
        second += (1.0 - share) * t;
    }
    let count = kendall_units::exact_f64(times.len());
    let tiny = f64::MIN_POSITIVE;
    Branches {
        p: (weight / count).clamp(1e-9, 1.0 - 1e-9),
        means: (
            (first / weight.max(tiny)).max(tiny),
            (second / (count - weight).max(tiny)).max(tiny),
        ),
    }
}
