//! Fork–join: a request is copied to several servers and waits for all of them, or for some.

use super::{Accuracy, NetworkError};

/// What a fork–join station in an open stream does. Times in s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForkJoin {
    /// Mean time until enough copies are done.
    pub response_time: f64,
    /// Mean time of one branch: λ, µ as M/M/1.
    pub branch_response_time: f64,
    /// Nobody is faster than one branch.
    pub lower_bound: f64,
    /// Branches that were independent would be slower.
    pub upper_bound: f64,
    /// Exact for one branch and for two that are both needed.
    pub accuracy: Accuracy,
    /// Formula and source.
    pub method: &'static str,
}

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
/// \[NT88\], within 5 % for 2 ≤ K ≤ 32. Some of K: order statistics of independent branches, an
/// approximation from above for branches that wait together.
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
    let lower_bound = if needed == branches { one } else { 0.0 };
    Ok(ForkJoin {
        response_time,
        branch_response_time: one,
        lower_bound,
        upper_bound: independent,
        accuracy,
        method,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_branches_at_no_load_take_the_larger_of_two() {
        let f = fork_join(1e-9, 1.0, 2, 2).unwrap();
        assert!((f.response_time - 1.5).abs() < 1e-8);
        let f = fork_join(1e-9, 1.0, 5, 5).unwrap();
        assert!((f.response_time - harmonic(5)).abs() < 1e-8);
        let f = fork_join(0.5, 1.0, 3, 1).unwrap();
        assert!((f.response_time - 2.0 / 3.0).abs() < 1e-12);
        assert!(fork_join(1.0, 1.0, 2, 2).is_err() && fork_join(0.5, 1.0, 2, 3).is_err());
    }
}
