//! One server that goes from queue to queue, and customers who come again when it is busy.

use super::{StationError, positive, stable};
use crate::Distribution;

/// How long the server stays at a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// Until it is empty.
    Exhaustive,
    /// For those who were there when it came.
    Gated,
    /// For one customer at most.
    Limited,
}

/// One server at several equal queues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Polling {
    /// Busy share, without switching.
    pub utilization: f64,
    /// Mean wait in s.
    pub waiting_time: f64,
    /// Mean wait and service in s.
    pub response_time: f64,
    /// Mean time from one visit of a queue to the next in s.
    pub cycle_time: f64,
}

/// One server that visits `queues` equal queues in turn, with Poisson arrivals of `arrival_rate` at all
/// of them together, and takes `switching` from each to the next. Means, exact.
///
/// # Errors
/// [`StationError::Unstable`] when λ·E\[S\] ≥ 1, with one customer a visit λ·(E\[S\] + E\[switching\]) ≥ 1.
///
/// # Source
/// Takagi 1986, symmetric systems; without switching the conservation law of Kleinrock.
pub fn polling(
    arrival_rate: f64,
    service: &Distribution,
    queues: u32,
    switching: &Distribution,
    visit: Visit,
) -> Result<Polling, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mean = positive("mean service time", service.mean())?;
    let count = positive("queues", f64::from(queues))?;
    let switch = switching.mean();
    if !(0.0..=1e90).contains(&switch) {
        let expected = "0 or above";
        return Err(StationError::Number { name: "mean switching time", value: switch, expected });
    }
    let load = lambda * mean;
    let taken = if visit == Visit::Limited { load + lambda * switch } else { load };
    stable(taken, 1, lambda)?;
    let second = lambda * (mean * mean + service.variance());
    let spread = switching.variance();
    let (more, spread_share) = match visit {
        Visit::Exhaustive => (switch * (count - load), 0.0),
        Visit::Gated => (switch * (count + load), 0.0),
        Visit::Limited => (switch * (count + load), lambda * spread),
    };
    let residual = if switch > 0.0 { spread / (2.0 * switch) } else { 0.0 };
    let wait = residual + (second + more + spread_share) / (2.0 * (1.0 - taken));
    Ok(Polling {
        utilization: load,
        waiting_time: wait,
        response_time: wait + mean,
        cycle_time: count * switch / (1.0 - load),
    })
}

/// One server without a queue: who finds it busy tries again after an exponential time with mean
/// `retry_time`, as often as it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retrial {
    /// Busy share.
    pub utilization: f64,
    /// Mean time until service begins in s.
    pub waiting_time: f64,
    /// Mean time until service ends in s.
    pub response_time: f64,
    /// Mean number of customers who will try again.
    pub number_waiting: f64,
    /// Mean number of attempts of a customer.
    pub attempts: f64,
}

/// M/G/1 with retrials. Means, exact.
///
/// # Errors
/// [`StationError::Unstable`] when λ·E\[S\] ≥ 1.
///
/// # Source
/// Falin 1990; Falin, Templeton 1997: the wait of M/G/1 and ρ/(1 − ρ) retry times more.
pub fn mg1_retrial(
    arrival_rate: f64,
    service: &Distribution,
    retry_time: f64,
) -> Result<Retrial, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mean = positive("mean service time", service.mean())?;
    let retry = positive("mean retry time", retry_time)?;
    let rho = lambda * mean;
    stable(rho, 1, lambda)?;
    let second = mean * mean + service.variance();
    let wait = lambda * second / (2.0 * (1.0 - rho)) + retry * rho / (1.0 - rho);
    Ok(Retrial {
        utilization: rho,
        waiting_time: wait,
        response_time: wait + mean,
        number_waiting: lambda * wait,
        // Each of those in orbit tries again at the rate 1/retry time.
        attempts: 1.0 + wait / retry,
    })
}
