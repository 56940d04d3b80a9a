//! Fork–join: a request is copied to several servers and waits for all of them, or for some.

use statrs::function::beta::checked_beta_reg;

use super::{Accuracy, MeasuredError, NetworkError};
use crate::Distribution;
use crate::station::{StationError, TimeLaw, mg1};

/// Most branches whose service is not exponential: the distribution of the slowest is integrated.
const MOST_GENERAL: u32 = 10_000;

/// What a fork–join station in an open stream does. Times in s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForkJoin {
    /// Mean time until enough copies are done.
    pub response_time: f64,
    /// Mean time of one branch: λ, µ as M/M/1.
    pub branch_response_time: f64,
    /// The response time is at least that of one branch, if all are needed; of some what their services take.
    pub lower_bound: f64,
    /// Independent branches would be slower, if all are needed; else it and the later ones take at most all together.
    pub upper_bound: f64,
    /// Exact for one branch and for two that are both needed.
    pub accuracy: Accuracy,
    /// Formula and source.
    pub method: &'static str,
    /// How far the response time was off at most over random ones, where it is an approximation.
    pub measured_error: Option<MeasuredError>,
}

/// Of up to 32 equal branches, utilization 0.1 to 0.9: all of exponential ones.
const ALL: MeasuredError = MeasuredError::new(0.0, 4.5);
/// Some of exponential ones.
const SOME: MeasuredError = MeasuredError::new(0.0, 57.0);
/// All of others: lognormal, Weibull, gamma, hyper-exponential, c² 0.1 to 4.
const ALL_GENERAL: MeasuredError = MeasuredError::new(0.0, 8.0);
/// Of up to 16 exponential branches, the fastest ten times as fast as the slowest.
const UNEQUAL: MeasuredError = MeasuredError::new(0.0, 2.5);
/// Highest utilization that was measured.
const BUSIEST: f64 = 0.9;
/// Most equal and most unequal branches that were measured.
const MEASURED: (u32, u32) = (32, 16);
/// How many times as fast as the slowest branch the fastest was at most.
const MOST_UNEQUAL: f64 = 10.0;

/// H_n = 1 + 1/2 + … + 1/n.
#[must_use]
pub fn harmonic(n: u32) -> f64 {
    (1..=n).rev().map(|i| 1.0 / f64::from(i)).sum()
}

/// Mean of the k-th of n independent exponential times with mean 1: H_n − H_(n−k).
///
/// # Source
/// Order statistics of the exponential distribution [Trivedi02 §3.9].
#[must_use]
pub fn order_statistic_factor(branches: u32, needed: u32) -> f64 {
    (branches - needed.min(branches) + 1..=branches).rev().map(|i| 1.0 / f64::from(i)).sum()
}

/// Fork–join of `branches` equal M/M/1 servers under Poisson arrivals, until `needed` are done.
///
/// # Errors
/// [`NetworkError::Unstable`] when λ·S ≥ 1, [`NetworkError::Number`] for numbers without sense.
///
/// # Source
/// All of two: Flatto and Hahn 1984, (12 − ρ)/8 of M/M/1. All of K: Nelson and Tantawi 1988
/// \[NT88\], within 5 % for 2 ≤ K ≤ 32. Some of K: order statistics of independent branches, which
/// is far too low where few of many busy branches are needed, since those wait together.
pub fn fork_join(
    arrival_rate: f64,
    service_time: f64,
    branches: u32,
    needed: u32,
) -> Result<ForkJoin, NetworkError> {
    let number = |name: &str, value: f64, expected| {
        Err(NetworkError::Number { name: name.to_owned(), value, expected })
    };
    if !(arrival_rate > 0.0 && arrival_rate.is_finite()) {
        return number("arrival rate", arrival_rate, "above 0 and finite");
    }
    if !(service_time > 0.0 && service_time.is_finite()) {
        return number("service time", service_time, "above 0 and finite");
    }
    if needed == 0 || needed > branches || branches > 1_000_000 {
        return number("needed", f64::from(needed), "1 to the number of branches (at most 1e6)");
    }
    let rho = arrival_rate * service_time;
    if rho >= 1.0 {
        return Err(NetworkError::Unstable {
            resource: 0,
            offered: rho,
            capacity: 1.0,
            share: 1.0 / rho,
        });
    }
    let one = service_time / (1.0 - rho);
    let independent = one * order_statistic_factor(branches, needed);
    let pair = one * (12.0 - rho) / 8.0;
    let (response_time, accuracy, method) = if branches == 1 {
        (one, Accuracy::Exact, "M/M/1")
    } else if needed < branches {
        (independent, Accuracy::Approximation, "order statistics of independent branches")
    } else if branches == 2 {
        (pair, Accuracy::Exact, "Flatto–Hahn, two branches [NT88]")
    } else {
        let h = harmonic(branches) / 1.5;
        let factor = h + 4.0 / 11.0 * (1.0 - h) * rho;
        (pair * factor, Accuracy::Approximation, "Nelson–Tantawi [NT88]")
    };
    let all = needed == branches;
    let unqueued = service_time * order_statistic_factor(branches, needed);
    Ok(ForkJoin {
        response_time,
        branch_response_time: one,
        lower_bound: if all { one } else { unqueued },
        upper_bound: if all { independent } else { some_at_most(one, branches, needed) },
        accuracy,
        method,
        measured_error: if_measured(rho, branches, if needed == branches { ALL } else { SOME })
            .filter(|_| accuracy == Accuracy::Approximation),
    })
}

/// Most that the `needed`-th of `branches` with this mean can take: it and the later ones are no more than all
/// together. Branches that wait together may be slower than independent ones here.
fn some_at_most(mean: f64, branches: u32, needed: u32) -> f64 {
    mean * f64::from(branches) / f64::from(branches - needed + 1)
}

fn if_measured(rho: f64, branches: u32, measured: MeasuredError) -> Option<MeasuredError> {
    (rho <= BUSIEST && branches <= MEASURED.0).then_some(measured)
}

/// Fork–join of `branches` equal M/G/1 servers under Poisson arrivals, until `needed` are done.
///
/// Branches wait alike, because they have the same arrivals, and are served each for itself. If c
/// is the share of E\[max\] − E\[R\] of independent branches that is left, then √(1 − c²) would be
/// the correlation of normal response times. It is taken as the correlation r of the waits times
/// the share that waits have in the variance of the response, and r as 1/(1 + k·c_s²): 1 where
/// service is constant and all branches do the same. k follows from Nelson and Tantawi's formula,
/// which this gives back for exponential service. Light loads come out exactly (independent
/// service), constant service too (one M/D/1).
///
/// Against simulations (Erlang, gamma, uniform, lognormal and hyper-exponential service, c_s² 0.1 to
/// 10, ρ 0.2 to 0.9) within 9 % for 2 to 8 branches, within 10 % for 32, but for uniform service,
/// which no branch can exceed: up to 20 % too high there (`tests/edges.rs` holds a part of these).
///
/// # Errors
/// As [`fork_join`], and beyond 10,000 branches.
///
/// # Source
/// \[NT88\] for exponential service; independent branches are slower: Baccelli, Makowski, Shwartz
/// 1989. The interpolation is this project's own: `docs/models.md`.
pub fn fork_join_general(
    arrival_rate: f64,
    service: &Distribution,
    branches: u32,
    needed: u32,
) -> Result<ForkJoin, NetworkError> {
    let exponential = fork_join(arrival_rate, service.mean(), branches, needed)?;
    if service.is_exponential() {
        return Ok(exponential);
    }
    let number = |name: &str, value: f64, expected| {
        Err(NetworkError::Number { name: name.to_owned(), value, expected })
    };
    if branches > MOST_GENERAL {
        let expected = "at most 10000 where service is not exponential";
        return number("branches", f64::from(branches), expected);
    }
    let rho = arrival_rate * service.mean();
    let alone = mg1(arrival_rate, service).map_err(|error| match error {
        StationError::Unstable { offered, .. } => {
            NetworkError::Unstable { resource: 0, offered, capacity: 1.0, share: 1.0 / offered }
        }
        other => NetworkError::Number {
            name: format!("branch ({other})"),
            value: service.scv(),
            expected: "one for which M/G/1 is known",
        },
    })?;
    let one = alone.response_time.mean;
    let constant = matches!(service, Distribution::Deterministic { .. });
    let law = alone.response_law.clone().filter(|_| !constant && branches > 1);
    let Some(law) = law.or_else(|| two_moments(&alone, service, constant || branches == 1)) else {
        return Ok(ForkJoin {
            response_time: one,
            branch_response_time: one,
            lower_bound: one,
            upper_bound: one,
            accuracy: Accuracy::Exact,
            method: "M/G/1: all branches do the same",
            measured_error: None,
        });
    };
    let independent = order_statistic(&law, one, branches, needed);
    let waits = alone.waiting_time.variance.unwrap_or_else(|| wait_variance(&alone, service));
    let together =
        waits / (waits + service.variance()) / (1.0 + grown(branches, rho) * service.scv());
    let kept = (1.0 - together).max(0.0).sqrt();
    Ok(ForkJoin {
        response_time: one + (independent - one) * kept,
        branch_response_time: one,
        lower_bound: if needed == branches { one } else { 0.0 },
        upper_bound: if needed == branches {
            independent
        } else {
            some_at_most(one, branches, needed)
        },
        accuracy: Accuracy::Approximation,
        method: "independent M/G/1 branches, corrected for waiting together after [NT88]",
        measured_error: if_measured(rho, branches, ALL_GENERAL)
            .filter(|_| needed == branches && (0.1..=4.0).contains(&service.scv())),
    })
}

/// A response time known by its moments only, unless none is asked for.
fn two_moments(
    alone: &crate::station::StationSolution,
    service: &Distribution,
    same: bool,
) -> Option<TimeLaw> {
    let variance = wait_variance(alone, service) + service.variance();
    let mean = alone.response_time.mean;
    (!same).then_some(TimeLaw::TwoMoments { weight: 1.0, mean, variance })
}

/// Variance of the wait with the third moment of a gamma distribution, where none is known.
fn wait_variance(alone: &crate::station::StationSolution, service: &Distribution) -> f64 {
    let (mean, scv) = (service.mean(), service.scv());
    let third = mean.powi(3) * (1.0 + scv) * (1.0 + 2.0 * scv);
    let wait = alone.waiting_time.mean;
    alone.arrival_rate * third / (3.0 * (1.0 - alone.utilization)) + wait * wait
}

/// k of [`fork_join_general`], from what [`fork_join`] keeps of independent exponential branches.
fn grown(branches: u32, rho: f64) -> f64 {
    // Below this load both go to 0 alike, and their rounding would not.
    let rho = rho.max(1e-6);
    let h = harmonic(branches);
    let exponential = (12.0 - rho) / 8.0 * (h / 1.5 + 4.0 / 11.0 * (1.0 - h / 1.5) * rho);
    let kept = (exponential - 1.0) / (h - 1.0);
    let waits = 1.0 - (1.0 - rho).powi(2);
    (waits / (1.0 - kept * kept) - 1.0).max(0.0)
}

/// Mean of the `needed`-th of `branches` independent times: ∫ P(fewer than that are done by t).
fn order_statistic(law: &TimeLaw, mean: f64, branches: u32, needed: u32) -> f64 {
    const STEPS: u32 = 256;
    let (n, k) = (f64::from(branches), f64::from(needed));
    let waiting = |survival: f64| {
        if needed == branches {
            return -(n * (-survival).ln_1p()).exp_m1();
        }
        // P(Binomial(n, 1 − survival) < k) is a regularized incomplete beta function.
        checked_beta_reg(n - k + 1.0, k, survival.clamp(0.0, 1.0)).unwrap_or(0.0)
    };
    // Beyond this time the slowest of all is later with probability 1e-6; the inversion of
    // transforms is good for 1e-9 of a single one.
    let last = law.quantile(1.0 - (1e-6 / n).max(1e-8)).unwrap_or(50.0 * mean);
    let survival = law.survival_up_to(last);
    // Simpson's rule in √t: finer where most times are.
    let h = 1.0 / f64::from(STEPS);
    let mut sum = 0.0;
    for i in 1..=STEPS {
        let x = h * f64::from(i);
        let weight = if i == STEPS {
            1.0
        } else if i % 2 == 1 {
            4.0
        } else {
            2.0
        };
        sum += weight * 2.0 * x * waiting(survival(last * x * x));
    }
    sum * h / 3.0 * last
}

/// Fork–join of M/M/1 branches that differ, until all are done.
///
/// The mean of the largest of independent responses, times what equal branches gain by waiting
/// together: (1 − ρ/12) for two, [`fork_join`]'s formula over H_K for more, at the load of the
/// slowest branch. With one branch far slower than the others, both factors go to what is exact.
///
/// # Errors
/// As [`fork_join`].
///
/// # Source
/// Bounds: association of the branches, Baccelli, Makowski, Shwartz 1989 (independent ones are
/// slower). The correction is that of \[NT88\]; against Markov chains of two branches it errs by
/// 1 % at most (`tests/independent.rs`).
pub fn fork_join_unequal(
    arrival_rate: f64,
    service_times: &[f64],
) -> Result<ForkJoin, NetworkError> {
    let count = u32::try_from(service_times.len()).unwrap_or(u32::MAX);
    let slowest = service_times.iter().copied().fold(0.0, f64::max);
    let fastest = service_times.iter().copied().fold(f64::INFINITY, f64::min);
    if count == 0 || count > 10_000 || service_times.iter().any(|s| !(*s > 0.0 && s.is_finite())) {
        return Err(NetworkError::Number {
            name: "branch service time".to_owned(),
            value: fastest,
            expected: "above 0 and finite, for 1 to 10000 branches",
        });
    }
    let equal = fork_join(arrival_rate, slowest, count, count)?;
    let alike = service_times.iter().all(|s| (s - slowest).abs() <= 1e-12 * slowest);
    if alike {
        return Ok(equal);
    }
    let rates: Vec<f64> = service_times.iter().map(|s| 1.0 / s - arrival_rate).collect();
    let independent = largest_of(&rates);
    let together = equal.response_time / equal.upper_bound;
    // How much the slowest branch alone decides: then nothing is gained by waiting together.
    let alone = equal.branch_response_time / independent;
    let least = 1.0 / order_statistic_factor(count, count);
    let weight = ((1.0 - alone) / (1.0 - least)).clamp(0.0, 1.0);
    let response_time = independent * (1.0 - weight * (1.0 - together));
    Ok(ForkJoin {
        response_time: response_time.max(equal.branch_response_time),
        branch_response_time: equal.branch_response_time,
        lower_bound: equal.branch_response_time,
        upper_bound: independent,
        accuracy: Accuracy::Approximation,
        method: "largest of independent branches, corrected after Nelson–Tantawi [NT88]",
        measured_error: if_measured(arrival_rate * slowest, count, UNEQUAL)
            .filter(|_| count <= MEASURED.1 && slowest <= MOST_UNEQUAL * fastest),
    })
}

/// Mean of the largest of independent exponential times, ∫ 1 − Π(1 − e^(−rt)) dt by Simpson's rule
/// in x = e^(−r₀t) of the slowest.
fn largest_of(rates: &[f64]) -> f64 {
    const STEPS: u32 = 20_000;
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    // (1 − Π(1 − x^(r/r₀)))/x over 0 < x ≤ 1: bounded, and 1 or more at 0.
    let f = |x: f64| {
        let none: f64 = rates.iter().map(|rate| (-x.powf(rate / slowest)).ln_1p()).sum();
        -none.exp_m1() / x
    };
    let h = 1.0 / f64::from(STEPS);
    let at_zero = rates.iter().filter(|rate| **rate <= slowest * (1.0 + 1e-12)).count();
    let mut sum = f64::from(u32::try_from(at_zero).unwrap_or(u32::MAX)) + 1.0;
    for i in 1..STEPS {
        let weight = if i % 2 == 1 { 4.0 } else { 2.0 };
        sum += weight * f(h * f64::from(i));
    }
    sum * h / 3.0 / slowest
}

#[cfg(test)]
mod tests {
    /// Inclusion and exclusion for two: 1/a + 1/b − 1/(a+b).
    #[test]
    fn the_largest_of_two_is_known() {
        for (a, b) in [(1.0, 1.0), (1.0, 3.0), (0.2, 7.0)] {
            let want = 1.0 / a + 1.0 / b - 1.0 / (a + b);
            assert!((largest_of(&[a, b]) / want - 1.0).abs() < 1e-5, "{a} {b}");
        }
        let equal = fork_join_unequal(0.5, &[1.0, 1.0]).unwrap();
        assert!((equal.response_time - 2.0 * 11.5 / 8.0).abs() < 1e-12);
        assert!(fork_join_unequal(0.5, &[1.0, 2.5]).is_err());
        assert!(fork_join_unequal(0.5, &[]).is_err());
    }

    use super::*;

    #[test]
    fn two_branches_at_no_load_take_the_larger_of_two() {
        let f = fork_join(1e-9, 1.0, 2, 2).unwrap();
        assert!((f.response_time - 1.5).abs() < 1e-8);
        let f = fork_join(1e-9, 1.0, 5, 5).unwrap();
        assert!((f.response_time - harmonic(5)).abs() < 1e-8);
        let f = fork_join(0.5, 1.0, 3, 1).unwrap();
        assert!((f.response_time - 2.0 / 3.0).abs() < 1e-12);
        // A simulation of 300,000 requests gives 0.807 here, and 2.28 for two of four at 0.7.
        assert!(f.lower_bound < 0.80 && 0.81 < f.upper_bound, "{f:?}");
        let f = fork_join(0.7, 1.0, 4, 2).unwrap();
        assert!(f.lower_bound < 2.2 && 2.3 < f.upper_bound, "{f:?}");
        assert!(fork_join(1.0, 1.0, 2, 2).is_err() && fork_join(0.5, 1.0, 2, 3).is_err());
    }
}
