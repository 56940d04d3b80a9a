//! Classes of different priority at one station.

use kendall_units::exact_f64;

use super::{StationError, erlang_c, positive, servers_of, stable};
use crate::Distribution;

/// One priority class; the first of a list is served first.
#[derive(Debug, Clone, PartialEq)]
pub struct PriorityClass {
    /// λ in 1/s.
    pub arrival_rate: f64,
    /// S.
    pub service: Distribution,
}

/// Whether a newcomer interrupts who is in service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// Who is in service stays ("head of the line").
    NonPreemptive,
    /// Who is in service is interrupted, and goes on later where it was.
    PreemptiveResume,
}

/// What one class sees. Means; times in s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriorityResult {
    /// Share of the servers that the class keeps busy.
    pub utilization: f64,
    /// w: all time at the station that is not service.
    pub waiting_time: f64,
    /// r.
    pub response_time: f64,
    /// n.
    pub number: f64,
    /// n_q.
    pub number_waiting: f64,
}

/// M/G/1 with priorities.
///
/// # Errors
/// [`StationError::Unstable`] when the classes together offer 1 erlang or more.
///
/// # Source
/// Cobham 1954; [HB13 ch. 31–32], [Bolch06 §6.4]: with R₀ = Σλᵢ·E\[Sᵢ²\]/2 and σₖ the load of
/// classes 1 to k, waits are R₀/((1−σₖ₋₁)(1−σₖ)), and pre-emption counts classes 1 to k only in R₀
/// and stretches service by 1/(1−σₖ₋₁).
pub fn mg1_priority(
    classes: &[PriorityClass],
    scheduling: Scheduling,
) -> Result<Vec<PriorityResult>, StationError> {
    let mut total = 0.0;
    let mut rate = 0.0;
    for class in classes {
        positive("arrival rate", class.arrival_rate)?;
        positive("mean service time", class.service.mean())?;
        total += class.arrival_rate * class.service.mean();
        rate += class.arrival_rate;
    }
    stable(total, 1, rate)?;
    let residual = |class: &PriorityClass| {
        let mean = class.service.mean();
        class.arrival_rate * mean * mean * (1.0 + class.service.scv()) / 2.0
    };
    let all: f64 = classes.iter().map(residual).sum();
    let mut above = 0.0;
    let mut residual_above = 0.0;
    let mut results = Vec::with_capacity(classes.len());
    for class in classes {
        let mean = class.service.mean();
        let load = class.arrival_rate * mean;
        let upto = above + load;
        residual_above += residual(class);
        let (waiting_time, response_time) = match scheduling {
            Scheduling::NonPreemptive => {
                let wait = all / ((1.0 - above) * (1.0 - upto));
                (wait, wait + mean)
            }
            Scheduling::PreemptiveResume => {
                let wait = residual_above / ((1.0 - above) * (1.0 - upto));
                let response = wait + mean / (1.0 - above);
                (response - mean, response)
            }
        };
        results.push(PriorityResult {
            utilization: load,
            waiting_time,
            response_time,
            number: class.arrival_rate * response_time,
            number_waiting: class.arrival_rate * waiting_time,
        });
        above = upto;
    }
    Ok(results)
}

/// M/M/m with priorities and one service rate for all classes, given by their arrival rates.
///
/// # Errors
/// [`StationError::Unstable`] when the classes together offer m erlangs or more.
///
/// # Source
/// Without pre-emption [Bolch06 §6.4.2]: C/(m·µ)/((1−σₖ₋₁)(1−σₖ)). With pre-emption classes
/// 1 to k see an M/M/m of their own, whatever comes below them.
pub fn mmm_priority(
    arrival_rates: &[f64],
    service_rate: f64,
    servers: u64,
    scheduling: Scheduling,
) -> Result<Vec<PriorityResult>, StationError> {
    let mu = positive("service rate", service_rate)?;
    let servers = servers_of(servers)?;
    let m = exact_f64(servers);
    let mut total = 0.0;
    for rate in arrival_rates {
        total += positive("arrival rate", *rate)?;
    }
    stable(total / mu, servers, total)?;
    let all = erlang_c(total / mu, servers)? / (m * mu);
    let mut rate_above = 0.0;
    let mut number_above = 0.0;
    let mut results = Vec::with_capacity(arrival_rates.len());
    for rate in arrival_rates {
        let upto = rate_above + rate;
        let waiting_time = match scheduling {
            Scheduling::NonPreemptive => {
                all / ((1.0 - rate_above / (m * mu)) * (1.0 - upto / (m * mu)))
            }
            Scheduling::PreemptiveResume => {
                let a = upto / mu;
                let number = a + erlang_c(a, servers)? * upto / (m * mu - upto);
                let own = number - number_above;
                number_above = number;
                own / rate - 1.0 / mu
            }
        };
        let response_time = waiting_time + 1.0 / mu;
        results.push(PriorityResult {
            utilization: rate / (m * mu),
            waiting_time,
            response_time,
            number: rate * response_time,
            number_waiting: rate * waiting_time,
        });
        rate_above = upto;
    }
    Ok(results)
}
