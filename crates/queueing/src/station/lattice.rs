//! Waits in order of arrival at one server on a grid, for services without a smooth transform.

use crate::Distribution;

/// Largest load: the error of quantiles, about 2e-6/(1 − ρ) of them, is below 2e-4 up to there.
const MOST_LOAD: f64 = 0.99;
/// Most values of a list of service times, all of which are looked at for each step.
const MOST_VALUES: usize = 100;

/// Whether a grid knows classes with these rates and services: the load is not too near 1, and all services are known
/// by more than moments.
pub(super) fn covers(classes: &[(f64, Distribution)]) -> bool {
    let load: f64 = classes.iter().map(|(rate, service)| rate * service.mean()).sum();
    let known = |service: &Distribution| {
        let long = |values: &[f64]| values.len() > MOST_VALUES;
        let long = matches!(service, Distribution::Empirical { values_s } if long(values_s));
        !long && service.below(2, service.mean()).is_some()
    };
    load <= MOST_LOAD && classes.iter().all(|(_, service)| known(service))
}

/// Wait, and service of a class where that is given, up to some time.
///
/// # Source
/// Pollaczek and Khinchine: the wait is a geometric sum of residual lives R of services. Each is divided between the
/// two multiples of the step around it such that its mean stays (Gerber 1982), and the sum follows by the recursion
/// of Panjer 1981, which only adds.
pub(super) struct Lattice<'a> {
    own: Option<&'a Distribution>,
    step: f64,
    /// P(no wait).
    idle: f64,
    /// Probabilities of waits around 0, 1, 2, … steps, without those of none.
    masses: Vec<f64>,
}

impl<'a> Lattice<'a> {
    pub(super) fn new(
        classes: &[(f64, Distribution)],
        own: Option<&'a Distribution>,
        (end, steps): (f64, u32),
    ) -> Option<Self> {
        let step = end / f64::from(steps);
        let idle = classes.iter().fold(1.0, |idle, (rate, s)| (-rate).mul_add(s.mean(), idle));
        // ρ·E[min(R, x)].
        let least = |k: u32| -> Option<f64> {
            let x = step * f64::from(k);
            let of = |(rate, service): &(f64, Distribution)| {
                let above = 1.0 - service.below(0, x)?;
                let rest = service.mean() - service.below(1, x)?;
                Some(rate * (service.below(2, x)? / 2.0 + x * rest - x * x / 2.0 * above))
            };
            classes.iter().map(of).sum()
        };
        let sums = std::iter::once(Some(0.0)).chain((1..=steps + 1).map(least));
        let sums = sums.collect::<Option<Vec<f64>>>()?;
        let around = |three: &[f64]| ((2.0 * three[1] - three[0] - three[2]) / step).max(0.0);
        let lives: Vec<f64> = sums.windows(3).map(around).collect();
        // 1 less the mass of a life around 0.
        let first = idle + sums[1] / step;
        let mut masses = vec![idle / first];
        for k in 1..=lives.len() {
            let pairs = lives[..k].iter().zip(masses.iter().rev());
            let sum: f64 = pairs.map(|(life, mass)| life * mass).sum();
            masses.push(sum / first);
        }
        masses[0] -= idle;
        Some(Self { own, step, idle, masses })
    }

    /// P(T > t) for t up to the end: waits around a multiple are spread over a step.
    pub(super) fn survival(&self, t: f64) -> f64 {
        let below = |order: u32, x: f64, missing: f64| {
            self.own.map_or(missing, |own| own.below(order, x).unwrap_or(missing))
        };
        // E[min(S, x)].
        let least = |x: f64| {
            if x > 0.0 { below(1, x, 0.0) + x * (1.0 - below(0, x, 1.0)) } else { x }
        };
        let mut done = self.idle * below(0, t, 1.0);
        let mut above = least(t + 0.5 * self.step);
        for (mass, k) in self.masses.iter().zip(0_u32..) {
            let from = t - self.step * (f64::from(k) + 0.5);
            let under = least(from);
            done += mass * (1.0 - (above - under) / self.step);
            if from <= 0.0 {
                break;
            }
            above = under;
        }
        (1.0 - done).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::station::law::Line;
    use crate::station::{md1, mm1};

    /// Against M/M/1 and M/D/1, whose waits are known: a class of two that are alike.
    #[test]
    fn a_grid_finds_the_waits_that_are_known() {
        let laws = [
            (Distribution::exponential(1.0).unwrap(), mm1(0.7, 1.0).unwrap()),
            (Distribution::deterministic(1.0).unwrap(), md1(0.7, 1.0).unwrap()),
        ];
        for (service, known) in laws {
            let classes = [(0.4, service.clone()), (0.3, service.clone())];
            assert!(covers(&classes));
            let wait = Lattice::new(&classes, None, (20.0, 2048)).unwrap();
            let response = Lattice::new(&classes, Some(&service), (20.0, 2048)).unwrap();
            for t in [0.3, 0.9, 1.7, 4.0, 11.0] {
                let (have, want) = (wait.survival(t), known.waiting_law.as_ref().unwrap());
                assert!((have - want.survival(t)).abs() < 1e-5, "{service:?} {t}: {have}");
                let (have, want) = (response.survival(t), known.response_law.as_ref().unwrap());
                assert!((have - want.survival(t)).abs() < 1e-5, "{service:?} {t}: {have}");
            }
        }
        // Below the shorter service, P(W ≤ x) = P(no wait)·e^(λx), however long the other is.
        let constant = |s: f64| Distribution::deterministic(s).unwrap();
        for long in [3.0, 100.0, 1e6] {
            let alike = vec![(50.0, constant(0.01)), (0.1 / long, constant(long))];
            let (rate, idle) = (50.0 + 0.1 / long, 0.4);
            let line = Line { alike, ..Line::of_one(1.0, &constant(1.0), false) };
            let have = line.law().unwrap().quantile(0.5).unwrap();
            let want = (0.5_f64 / idle).ln() / rate;
            assert!((have / want - 1.0).abs() < 2e-4, "{long}: {have} {want}");
        }
        assert!(!covers(&[(0.5, Distribution::general(1.0, 2.0, None).unwrap())]));
        assert!(!covers(&[(0.995, Distribution::deterministic(1.0).unwrap())]));
    }
}
