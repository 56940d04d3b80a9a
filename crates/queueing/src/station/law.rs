//! Distributions of what happens at a station: of the number there, and of times.

use kendall_units::exact_f64;

use super::lattice::{Lattice, covers};
use super::transform::residual_gap;
use crate::Distribution;
use crate::numeric::{Complex, falls_to, invert_laplace, one_minus_exp_over, poisson_window};

/// Probabilities of the number at a station: a table, and a geometric tail behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct StateLaw {
    table: Vec<f64>,
    /// 1 − p(n+1)/p(n) from the last entry of the table on; 1 when nothing follows. Near
    /// saturation the ratio itself has lost what matters.
    gap: f64,
}

impl StateLaw {
    /// From the probabilities of 0, 1, … and the ratio with which they go on.
    #[must_use]
    pub fn new(table: Vec<f64>, ratio: f64) -> Self {
        Self { table, gap: 1.0 - ratio }
    }

    /// From the probabilities of 0, 1, … and 1 less the ratio with which they go on.
    #[must_use]
    pub fn with_tail(table: Vec<f64>, gap: f64) -> Self {
        Self { table, gap }
    }

    /// P(n).
    #[must_use]
    pub fn probability(&self, n: u64) -> f64 {
        match usize::try_from(n).ok().and_then(|index| self.table.get(index)) {
            Some(p) => *p,
            None => self.last() * self.decay(n),
        }
    }

    /// P(at least n).
    #[must_use]
    pub fn at_least(&self, n: u64) -> f64 {
        let beyond = self.last() / self.gap;
        match usize::try_from(n) {
            Ok(index) if index < self.table.len() => {
                let rest: f64 = self.table[index..self.table.len() - 1].iter().rev().sum();
                (rest + beyond).min(1.0)
            }
            _ => beyond * self.decay(n),
        }
    }

    /// P(at least n), P(at least n + 1), … up to where only the geometric tail is left, and 1 less
    /// the ratio with which that goes on. Never empty.
    pub(super) fn tails(&self, n: u64) -> (Vec<f64>, f64) {
        let from = usize::try_from(n).unwrap_or(usize::MAX);
        if from >= self.table.len() {
            return (vec![self.at_least(n)], self.gap);
        }
        let mut sum = self.last() / self.gap;
        let mut list = vec![sum.min(1.0)];
        for p in self.table[from..self.table.len() - 1].iter().rev() {
            sum += p;
            list.push(sum.min(1.0));
        }
        list.reverse();
        (list, self.gap)
    }

    /// P(at most n).
    #[must_use]
    pub fn at_most(&self, n: u64) -> f64 {
        let upto: f64 = self.table.iter().zip(0..=n).map(|(p, _)| p).sum();
        if exact_f64(n) < exact_f64(self.table.len()) {
            upto.min(1.0)
        } else {
            1.0 - self.at_least(n + 1)
        }
    }

    /// Least n with P(more than n) ≤ `probability`: places that suffice but for that share of the time.
    /// `None` for 0 or less with an infinite tail.
    #[must_use]
    pub fn exceeded_with(&self, probability: f64) -> Option<u64> {
        let beyond = self.last() / self.gap;
        let end = exact_f64(self.table.len());
        if beyond > probability {
            // beyond·ratio^(n+1−(len−1)) ≤ probability.
            let steps = ((probability / beyond).ln() / (-self.gap).ln_1p()).ceil();
            return (steps.is_finite() && steps < 1e15)
                .then(|| kendall_units::whole_u64(end - 2.0 + steps.max(1.0)));
        }
        let mut above = beyond;
        let mut n = self.table.len() - 1;
        while n > 0 && above <= probability {
            n -= 1;
            above += self.table[n];
        }
        let least = if above <= probability { 0 } else { n };
        Some(u64::try_from(least).unwrap_or(u64::MAX))
    }

    /// The first `count` probabilities.
    #[must_use]
    pub fn first(&self, count: u64) -> Vec<f64> {
        (0..count).map(|n| self.probability(n)).collect()
    }

    fn last(&self) -> f64 {
        self.table.last().copied().unwrap_or(0.0)
    }

    fn decay(&self, n: u64) -> f64 {
        let steps = exact_f64(n) - (exact_f64(self.table.len()) - 1.0);
        geometric(self.gap, steps)
    }
}

/// Distribution of a waiting or response time, in s.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TimeLaw {
    /// P(T > t) = `weight`·e^(−`rate`·t).
    Exponential {
        /// P(T > 0).
        weight: f64,
        /// 1/s.
        rate: f64,
    },
    /// Exponential service after an exponential wait that only some have: M/M/m.
    WaitAndServe {
        /// Probability of waiting.
        weight: f64,
        /// Rate of the wait.
        wait_rate: f64,
        /// Rate of the service.
        service_rate: f64,
    },
    /// A random number of exponential stages with the same rate.
    Stages {
        /// Rate of every stage.
        rate: f64,
        /// P(more than i stages), from i = 0.
        tails: Vec<f64>,
        /// Ratio with which they go on behind the table.
        ratio: f64,
    },
    /// Waiting time of M/D/m, from the probabilities of its states.
    DeterministicService {
        /// λ.
        arrival_rate: f64,
        /// D.
        service_time: f64,
        /// m.
        servers: u64,
        /// P(more than i waiting), from i = 0.
        above: Vec<f64>,
        /// 1 less the ratio with which they go on.
        gap: f64,
        /// Whether D is added: the response time.
        and_service: bool,
    },
    /// M/G/1, also with priorities, by inversion of its transform; about 1e-8.
    InLine(Line),
    /// M/G/1, first come, first served, on a grid; quantiles to about 2e-4.
    OnGrid(Line),
    /// An atom at 0 and a gamma distribution that has the right mean and variance: an
    /// approximation.
    TwoMoments {
        /// P(T > 0).
        weight: f64,
        /// Mean of T.
        mean: f64,
        /// Variance of T.
        variance: f64,
    },
}

impl TimeLaw {
    /// P(T ≤ t).
    #[must_use]
    pub fn cdf(&self, t: f64) -> f64 {
        if t < 0.0 { 0.0 } else { 1.0 - self.survival(t) }
    }

    /// P(T > t).
    #[must_use]
    pub fn survival(&self, t: f64) -> f64 {
        if t < 0.0 {
            return 1.0;
        }
        match self {
            Self::Exponential { weight, rate } => weight * (-rate * t).exp(),
            Self::WaitAndServe { weight, wait_rate, service_rate } => {
                // e^(−µt)·(1 − C) + C·(both), where both = e^(−µt) + ∫ of the wait's density.
                let x = (wait_rate - service_rate) * t;
                let late = if x >= 0.0 {
                    (-service_rate * t).exp() * one_minus_exp_over(x)
                } else {
                    (-wait_rate * t).exp() * one_minus_exp_over(-x)
                };
                (-service_rate * t).exp()
                    + weight
                        * (late * wait_rate * t - (-service_rate * t).exp()
                            + (-wait_rate * t).exp())
            }
            Self::Stages { rate, tails, ratio } => stages_survival(*rate * t, tails, *ratio),
            Self::DeterministicService {
                arrival_rate,
                service_time,
                servers,
                above,
                gap,
                and_service,
            } => {
                let t = if *and_service { t - service_time } else { t };
                if t < 0.0 {
                    return 1.0;
                }
                deterministic_survival((*arrival_rate, *service_time, *servers), above, *gap, t)
            }
            Self::InLine(line) => line.survival(t),
            Self::OnGrid(line) => {
                let end = if t > 0.0 { t } else { line.shortest() };
                let grid = line.on_grid((end, FINE));
                grid.map_or(0.0, |grid| grid.survival(t))
            }
            Self::TwoMoments { weight, mean, variance } => {
                gamma_survival(*weight, *mean, *variance, t)
            }
        }
    }

    /// As [`Self::survival`], for many times up to `end`: those of a grid on one.
    pub(crate) fn survival_up_to(&self, end: f64) -> Box<dyn Fn(f64) -> f64 + '_> {
        if let Self::OnGrid(line) = self
            && let Some(grid) = line.on_grid((end, FINE))
        {
            return Box::new(move |t| grid.survival(t));
        }
        Box::new(|t| self.survival(t))
    }

    /// Least t with P(T ≤ t) ≥ `quantile`; `None` outside 0 to 1.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        if !(quantile > 0.0 && quantile < 1.0) {
            return None;
        }
        let level = 1.0 - quantile;
        match self {
            Self::Exponential { weight, rate } => {
                Some(if *weight <= level { 0.0 } else { (weight / level).ln() / rate })
            }
            Self::OnGrid(line) => line.quantile_on_grid(level),
            _ => falls_to(|t| self.survival(t), level, self.scale()),
        }
    }

    /// Whether the numbers are right up to rounding (or up to 1e-8, for a numerical inversion, or 2e-4 on a grid).
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !matches!(self, Self::TwoMoments { .. })
    }

    fn scale(&self) -> f64 {
        match self {
            Self::Exponential { rate, .. } => 1.0 / rate,
            Self::WaitAndServe { wait_rate, service_rate, .. } => {
                1.0 / wait_rate + 1.0 / service_rate
            }
            Self::Stages { rate, .. } => 1.0 / rate,
            Self::DeterministicService { service_time, .. } => *service_time,
            Self::InLine(line) | Self::OnGrid(line) => line.scale(),
            Self::TwoMoments { mean, .. } => *mean,
        }
    }
}

/// P(sum of the stages > t) = Σ Poisson(i; rate·t)·P(more than i stages): all terms positive.
fn stages_survival(mean: f64, tails: &[f64], ratio: f64) -> f64 {
    let (first, terms) = poisson_window(mean);
    let last = tails.last().copied().unwrap_or(0.0);
    let end = exact_f64(tails.len());
    terms
        .iter()
        .zip(first..)
        .map(|(p, i)| {
            let tail = match usize::try_from(i).ok().and_then(|index| tails.get(index)) {
                Some(tail) => *tail,
                None if ratio == 0.0 => 0.0,
                None => last * ratio.powf(exact_f64(i) - end + 1.0),
            };
            p * tail
        })
        .sum::<f64>()
        .min(1.0)
}

/// ratio^steps from 1 − ratio.
fn geometric(gap: f64, steps: f64) -> f64 {
    if gap >= 1.0 {
        0.0
    } else if gap > 0.01 {
        // Here 1 − gap keeps its figures, and the power has one rounding where the other has two.
        (1.0 - gap).powf(steps)
    } else {
        (steps * (-gap).ln_1p()).exp()
    }
}

/// P(W > t) of M/D/m, of which λ, D and m are given. For (k−1)·D ≤ t < k·D, a sum over Poisson
/// probabilities of the arrivals in k·D − t, in which all terms are positive, where the older
/// formula of Erlang alternates.
///
/// # Source
/// Franx 2001 (`docs/references.md`, \[Franx01\]).
fn deterministic_survival(
    (arrival_rate, d, servers): (f64, f64, u64),
    above: &[f64],
    gap: f64,
    t: f64,
) -> f64 {
    let k = (t / d).floor() + 1.0;
    let rest = (k * d - t).max(0.0);
    let top = k * exact_f64(servers) - 1.0;
    let end = exact_f64(above.len()) - 1.0;
    let (first, terms) = poisson_window(arrival_rate * rest);
    let mut sum = 0.0;
    for (p, j) in terms.iter().zip(first..) {
        let waiting = top - exact_f64(j);
        let more = if waiting < 0.0 {
            1.0
        } else if waiting <= end {
            above[usize::try_from(kendall_units::whole_u64(waiting)).unwrap_or(0)]
        } else {
            above[above.len() - 1] * geometric(gap, waiting - end)
        };
        sum += p * more;
    }
    sum.clamp(0.0, 1.0)
}

/// Steps of a grid, and of one that tells how far it must reach.
const FINE: u32 = 2048;
const COARSE: u32 = 256;
/// Least probability of a time beyond a percentile from a grid: a rounding below that of 99.99 %.
const RAREST: f64 = 0.99e-4;

/// Who is served before a customer of one class at a server, with whom in order of arrival, and after it; all
/// come as Poisson streams.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// λ and S of the classes that go before.
    pub before: Vec<(f64, Distribution)>,
    /// Of those in its own line, itself among them.
    pub alike: Vec<(f64, Distribution)>,
    /// Of those that go after, but are not interrupted.
    pub after: Vec<(f64, Distribution)>,
    /// Its own service, where that is added to the wait: the response time.
    pub own: Option<Distribution>,
    /// Whether those before interrupt it.
    pub interrupted: bool,
    /// How often customers wait, over how often the server is busy: 1, unless it stands for several.
    pub waits: f64,
}

impl Line {
    /// M/G/1, first come, first served.
    pub(super) fn of_one(arrival_rate: f64, service: &Distribution, and_service: bool) -> Self {
        Self {
            before: Vec::new(),
            alike: vec![(arrival_rate, service.clone())],
            after: Vec::new(),
            own: and_service.then(|| service.clone()),
            interrupted: false,
            waits: 1.0,
        }
    }

    /// The distribution of its times: by inversion, which needs smooth functions, where all services have densities;
    /// else on a grid, where all wait in order of arrival.
    #[must_use]
    pub fn law(self) -> Option<TimeLaw> {
        let smooth = self.everyone().all(|(_, service)| has_smooth_transform(service));
        if smooth && self.own.as_ref().is_none_or(has_smooth_transform) {
            return Some(TimeLaw::InLine(self));
        }
        let in_turn = self.before.is_empty() && self.after.is_empty();
        (in_turn && covers(&self.alike)).then_some(TimeLaw::OnGrid(self))
    }

    /// With so many steps up to a time.
    fn on_grid(&self, grid: (f64, u32)) -> Option<Lattice<'_>> {
        Lattice::new(&self.alike, self.own.as_ref(), grid)
    }

    /// Where P(T > t) comes down to `level`, on a grid that ends less than twice as late, however long other services
    /// are. `None` for what is rarer than a grid knows.
    fn quantile_on_grid(&self, level: f64) -> Option<f64> {
        if level < RAREST {
            return None;
        }
        let mut end = self.shortest();
        for _ in 0..120 {
            if self.on_grid((end, COARSE))?.survival(end) <= 0.9 * level {
                let grid = self.on_grid((end, FINE))?;
                return falls_to(|t| grid.survival(t), level, end);
            }
            end *= 2.0;
        }
        None
    }

    fn everyone(&self) -> impl Iterator<Item = &(f64, Distribution)> {
        self.before.iter().chain(&self.alike).chain(&self.after)
    }

    /// The least mean service.
    fn shortest(&self) -> f64 {
        self.means().filter(|mean| *mean > 0.0).fold(f64::INFINITY, f64::min)
    }

    /// A time of the right order.
    fn scale(&self) -> f64 {
        self.means().fold(0.0, f64::max)
    }

    fn means(&self) -> impl Iterator<Item = f64> {
        let services = self.everyone().map(|(_, service)| service).chain(&self.own);
        services.map(Distribution::mean)
    }

    /// P(T > t). With q = 1 − r*, r* the transform of the residual life of a service, and σ(s) = s + Σ λ·(1 −
    /// Θ(s)) for those before, Θ their busy period: s = σ·(1 − Σ ρ·r*(σ)), and the wait has the transform
    /// 1 − Σ ρ·q(σ)/(1 − ρₖ + Σₖ ρ·q(σ)), in which nothing cancels at any load. The first sum is of all, ρₖ and
    /// the second of those up to the own line.
    ///
    /// # Source
    /// Pollaczek and Khinchine; with priorities Kesten and Runnenburg 1957, Takács 1964.
    fn survival(&self, t: f64) -> f64 {
        let idle = |upto: &mut dyn Iterator<Item = &(f64, Distribution)>| {
            upto.fold(1.0, |idle, (rate, service)| (-rate).mul_add(service.mean(), idle))
        };
        let (idle_upto, idle_all) =
            (idle(&mut self.before.iter().chain(&self.alike)), idle(&mut self.everyone()));
        if t <= 0.0 {
            return if self.own.is_some() { 1.0 } else { (self.waits * (1.0 - idle_all)).min(1.0) };
        }
        let one = Complex::new(1.0, 0.0);
        let gap = |service: &Distribution, z| residual_gap(service, z).unwrap_or(one);
        let sum = |classes: &[(f64, Distribution)], z: Complex| {
            let of = |(rate, service): &(f64, Distribution)| {
                gap(service, z).scaled(rate * service.mean())
            };
            classes.iter().map(of).fold(Complex::new(0.0, 0.0), Complex::plus)
        };
        let transform = |s: Complex| {
            let z = self.stretched(s, |z| sum(&self.before, z));
            let (upto, after) =
                (sum(&self.before, z).plus(sum(&self.alike, z)), sum(&self.after, z));
            let below = one.over(upto.plus(Complex::new(idle_upto, 0.0)));
            // (1 − W*)/s, and for the response W*·(1 − B*)/s more.
            let wait = upto.plus(after).scaled(self.waits).times(below).over(s);
            let Some(own) = &self.own else { return wait };
            let of = if self.interrupted { z } else { s };
            let residual = one.plus(gap(own, of).scaled(-1.0)).scaled(own.mean());
            // Nothing cancels in W* either: at once with 1 − ρ, or behind one of those after.
            let late: f64 = idle_upto - idle_all;
            let at_once = Complex::new(idle_all + late, 0.0).plus(after.scaled(-1.0));
            let none = upto.plus(Complex::new(idle_upto, 0.0)).scaled(1.0 - self.waits);
            let waited = at_once.scaled(self.waits).plus(none).times(below);
            wait.plus(waited.times(residual).times(of.over(s)))
        };
        invert_laplace(transform, t).clamp(0.0, 1.0)
    }

    /// σ of those before, from its equation; each round leaves at most their load of the error.
    fn stretched(&self, s: Complex, gaps: impl Fn(Complex) -> Complex) -> Complex {
        let load: f64 = self.before.iter().map(|(rate, service)| rate * service.mean()).sum();
        if load <= 0.0 {
            return s;
        }
        let mut z = s.scaled(1.0 / (1.0 - load));
        for _ in 0..100_000 {
            let busy = Complex::new(load, 0.0).plus(gaps(z).scaled(-1.0));
            let next = s.plus(z.times(busy));
            let change = (next.re - z.re).hypot(next.im - z.im);
            z = next;
            if change <= 1e-15 * z.re.hypot(z.im) {
                break;
            }
        }
        z
    }
}

/// Whether the distribution has a density without jumps, and a transform in closed form.
pub(super) fn has_smooth_transform(service: &Distribution) -> bool {
    super::transform::service_transform(service, Complex::new(1.0, 0.0)).is_some()
}

fn gamma_survival(weight: f64, mean: f64, variance: f64, t: f64) -> f64 {
    if weight <= 0.0 || mean <= 0.0 {
        return 0.0;
    }
    // Moments of T given T > 0.
    let conditional = mean / weight;
    let second = (variance + mean * mean) / weight;
    let spread = second - conditional * conditional;
    if spread <= 1e-12 * second {
        return if t < conditional { weight } else { 0.0 };
    }
    let shape = (conditional * conditional / spread).min(1e8);
    let x = shape * t / conditional;
    if x <= 0.0 {
        return weight;
    }
    weight * statrs::function::gamma::checked_gamma_ur(shape, x).unwrap_or(0.0)
}
