//! Percentiles of response time in a series of single servers.

use crate::model::{Discipline, Model, Place, Workload};
use crate::numeric::{Complex, falls_to, invert_laplace};

/// Rates µ − λ of the stations, when the model is a series of M/M/1 stations that every customer
/// goes through once, in one order. Then nobody overtakes, the times at the stations are
/// independent and exponential, and the response is their sum.
///
/// # Source
/// Reich 1957, Burke 1972; [HB13 ch. 17].
pub(super) fn rates(model: &Model, visits: &[Vec<f64>]) -> Option<Vec<f64>> {
    let [class] = &model.classes[..] else { return None };
    let Workload::Open { arrival_rate_per_s, interarrival, .. } = &class.workload else {
        return None;
    };
    let straight = model.routes.iter().all(|leg| (leg.probability - 1.0).abs() < 1e-12);
    // Without routes an order is assumed; with visits of 1 any order is a series.
    let entered = model.routes.iter().filter(|leg| leg.from == Place::Outside).count() <= 1;
    if !(straight && entered && interarrival.is_exponential() && model.pools.is_empty()) {
        return None;
    }
    let mut rates = Vec::new();
    for (station, visits) in model.stations.iter().zip(visits) {
        let demand = station.demand_at(0)?;
        let single = !station.is_delay()
            && station.servers == 1
            && station.discipline == Discipline::Fcfs
            && station.rate_multipliers.is_empty()
            && station.fork.is_none();
        let once = (visits[0] - 1.0).abs() < 1e-12;
        if !(single && once && demand.service.is_exponential() && demand.service.mean() > 0.0) {
            return None;
        }
        rates.push(1.0 / demand.service.mean() - arrival_rate_per_s);
    }
    rates.iter().all(|rate| *rate > 0.0).then_some(rates)
}

/// Quantile of a sum of independent exponential times; about 1e-8.
pub(super) fn quantile(rates: &[f64], quantile: f64) -> Option<f64> {
    if !(quantile > 0.0 && quantile < 1.0) {
        return None;
    }
    let mean: f64 = rates.iter().map(|rate| 1.0 / rate).sum();
    let one = Complex::new(1.0, 0.0);
    let survival = |t: f64| {
        if t <= 0.0 {
            return 1.0;
        }
        let transform = |s: Complex| {
            let sum = rates
                .iter()
                .map(|rate| one.over(one.plus(s.scaled(1.0 / rate))))
                .fold(one, Complex::times);
            one.plus(sum.scaled(-1.0)).over(s)
        };
        invert_laplace(transform, t).clamp(0.0, 1.0)
    };
    falls_to(survival, 1.0 - quantile, mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two equal stages: P(T > t) = (1 + rt)·e^(−rt); at t = 3/r that is 4·e^(−3).
    #[test]
    fn equal_stages_are_erlang() {
        let level = 4.0 * (-3.0_f64).exp();
        let t = quantile(&[2.0, 2.0], 1.0 - level).unwrap();
        assert!((t - 1.5).abs() < 1e-7, "{t}");
        // Unequal ones: P(T > t) = (a·e^(−bt) − b·e^(−at))/(a − b).
        let (a, b, t) = (3.0_f64, 1.0_f64, 2.0);
        let level = (a * (-b * t).exp() - b * (-a * t).exp()) / (a - b);
        let found = quantile(&[a, b], 1.0 - level).unwrap();
        assert!((found - t).abs() < 1e-7, "{found}");
        assert!(quantile(&[1.0], 1.5).is_none());
    }
}
