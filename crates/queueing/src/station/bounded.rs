//! M/G/1/B: one server with any service distribution and a limited number of places.

use super::birth_death::number_moments;
use super::general::{MOST_EMBEDDED, arrivals_in_service, embedded_states};
use super::law::StateLaw;
use super::{BusyPeriod, Moments, StationError, StationSolution, at_most, positive};
use crate::Distribution;

/// M/G/1/B: Poisson arrivals, one server, places for `capacity` customers with the one in service;
/// arrivals that find it full are lost. There is a steady state at any load.
///
/// Exact for service whose number of arrivals has a closed form: exponential, Erlang, gamma,
/// deterministic, hyper-exponential. Means, probabilities and the variance of the number; times by
/// Little's law, so that their variances are left out.
///
/// # Errors
/// [`StationError::Number`] for another distribution or a capacity of 0, [`StationError::TooLarge`] beyond
/// 4,000 places.
///
/// # Source
/// The states below B are proportional to those of M/G/1; the loss from them, Keilson 1966,
/// [Tijms03 §9.2.2].
pub fn mg1k(
    arrival_rate: f64,
    service: &Distribution,
    capacity: u64,
) -> Result<StationSolution, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mean = positive("mean service time", service.mean())?;
    if service.is_exponential() {
        return super::mm1k(lambda, 1.0 / mean, capacity);
    }
    if capacity == 0 {
        return Err(StationError::Number {
            name: "capacity",
            value: 0.0,
            expected: "1 or above: it includes customers in service",
        });
    }
    at_most("capacity", capacity, exact_limit())?;
    let a = lambda * mean;
    let states = states(lambda, service, capacity).ok_or(StationError::Number {
        name: "service distribution (scv)",
        value: service.scv(),
        expected: "of an exponential, Erlang, gamma, deterministic or hyper-exponential: simulate \
                   others",
    })?;
    let loss = states[states.len() - 1];
    let p0 = states[0];
    // From 0: the sum of nothing is −0.
    let waits = states[1..states.len() - 1].iter().fold(0.0, |sum, p| sum + p);
    // Busy time by its parts: 1 − P(0) and 1 − loss lose what matters at light and at heavy load.
    let busy = waits + loss;
    let accepted = busy / mean;
    let (number, number_waiting) = number_moments(&states, 1);
    let response = number.mean / accepted;
    Ok(StationSolution {
        notation: format!("M/{}/1/{capacity}", service.letter()),
        method: "M/G/1/B [Tijms03 §9.2.2]",
        throughput: accepted,
        utilization: busy,
        p0: Some(p0),
        ln_p0: (p0 > 0.0).then(|| p0.ln()),
        p_queueing: Some(waits * lambda / accepted),
        loss_probability: loss,
        number,
        number_waiting,
        response_time: Moments::mean_only(response),
        waiting_time: Moments::mean_only(number_waiting.mean / accepted),
        busy_period: (p0 > 0.0).then(|| BusyPeriod {
            duration: Moments::mean_only(busy / (p0 * lambda)),
            served: Moments::mean_only(accepted / (p0 * lambda)),
        }),
        states: Some(StateLaw::new(states, 0.0)),
        more: vec![("loss_rate_per_s", lambda * loss)],
        ..StationSolution::lossless(lambda, a, 1)
    })
}

fn exact_limit() -> u64 {
    u64::try_from(MOST_EMBEDDED).unwrap_or(u64::MAX)
}

/// P(0), …, P(B).
fn states(lambda: f64, service: &Distribution, capacity: u64) -> Option<Vec<f64>> {
    let rho = lambda * service.mean();
    let last = usize::try_from(capacity).ok()?;
    // With T = P(at least B) without a limit nothing cancels, however small the loss is.
    if rho < 0.999
        && let Some(endless) = embedded_states(lambda, service)
    {
        let beyond = endless.at_least(capacity);
        let norm = 1.0 / (1.0 - rho * beyond);
        let mut states: Vec<f64> = endless.first(capacity).into_iter().map(|p| p * norm).collect();
        states.push(beyond * (1.0 - rho) * norm);
        return Some(states);
    }
    let arrivals = arrivals_in_service(lambda, service, MOST_EMBEDDED)?;
    if arrivals[0] < 1e-290 {
        // A service without an arrival is all but impossible: every departure leaves B − 1 behind.
        let norm = if last == 1 { 1.0 + rho } else { rho };
        let mut states = vec![0.0; last - 1];
        states.push(1.0 / norm);
        states.push((norm - 1.0) / norm);
        return Some(states);
    }
    // P(more than n arrivals); above the table nothing is left but rounding.
    let mut above = vec![0.0; MOST_EMBEDDED];
    let mut sum = 0.0;
    for (more, p) in above.iter_mut().zip(&arrivals) {
        sum += p;
        *more = (1.0 - sum).max(0.0);
    }
    let mut table = vec![1.0];
    for n in 0..last - 1 {
        let mut sum = table[0] * above[n];
        for j in 1..=n {
            sum += table[j] * above[n + 1 - j];
        }
        table.push(sum / arrivals[0]);
        let largest = table[table.len() - 1];
        if largest > 1e200 {
            table.iter_mut().for_each(|p| *p /= largest);
        }
    }
    let total: f64 = table.iter().sum();
    let empty = table[0] / total;
    let norm = empty + rho;
    let mut states: Vec<f64> = table.iter().map(|p| p / total / norm).collect();
    states.push((empty + (rho - 1.0)) / norm);
    Some(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: M/D/1/1 loses ρ/(1+ρ), whatever the service is.
    #[test]
    fn one_place_is_the_loss_model() {
        for rho in [0.3, 0.9995, 2.0] {
            let s = mg1k(rho, &Distribution::deterministic(1.0).unwrap(), 1).unwrap();
            assert!((s.loss_probability - rho / (1.0 + rho)).abs() < 1e-12, "{rho}");
            assert!(s.little_error() < 1e-9);
        }
    }

    /// So much load that the chance of a service without an arrival, e^(−ρ), is no number any more: one
    /// is in service, and every other place is taken but for the time of one departure. Refused until
    /// then, as if the distribution were one that has no formula.
    #[test]
    fn a_load_of_thousands_is_answered() {
        for (rho, capacity) in [(1_000.0, 5), (5_000.0, 1), (20_000.0, 4_000)] {
            let s = mg1k(rho, &Distribution::deterministic(1.0).unwrap(), capacity).unwrap();
            let loss = if capacity == 1 { rho / (1.0 + rho) } else { 1.0 - 1.0 / rho };
            assert!((s.loss_probability / loss - 1.0).abs() < 1e-15, "{rho}: {s:?}");
            let busy = if capacity == 1 { rho / (1.0 + rho) } else { 1.0 };
            assert!((s.utilization / busy - 1.0).abs() < 1e-12, "{rho}: {}", s.utilization);
            assert!(s.little_error() < 1e-9);
        }
    }

    /// M/D/1/2: P(0) from e^ρ by the embedded chain, π₀ = e^(−ρ).
    #[test]
    fn two_places_with_constant_service() {
        for rho in [0.5_f64, 1.5] {
            let s = mg1k(rho, &Distribution::deterministic(1.0).unwrap(), 2).unwrap();
            let want = (-rho).exp() / ((-rho).exp() + rho);
            assert!((s.p0.unwrap() - want).abs() < 1e-12, "{rho}");
        }
    }
}
