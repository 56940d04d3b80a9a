//! Customers that do not join a long queue (balking) or leave it unserved (reneging).

use kendall_units::exact_f64;

use super::birth_death::{BirthDeath, number_moments, solved};
use super::law::StateLaw;
use super::{Accuracy, Moments, StationError, StationSolution, positive, servers_of};
use crate::model::Balking;

/// M/M/m+M (Erlang A): customers that wait leave unserved after an exponential patience with mean
/// 1/`abandonment_rate`. There is a steady state at any load.
///
/// Waiting and response times are means over all customers that are let in, those that leave
/// included.
///
/// # Errors
/// [`StationError::Number`] for rates that are not positive.
///
/// # Source
/// Palm 1957; Garnett, Mandelbaum, Reiman 2002 \[GMR02\]: births λ, deaths min(n, m)·µ +
/// max(n − m, 0)·θ.
pub fn mmm_impatient(
    arrival_rate: f64,
    service_rate: f64,
    servers: u64,
    abandonment_rate: f64,
    capacity: Option<u64>,
) -> Result<StationSolution, StationError> {
    let rates = Rates { lambda: arrival_rate, mu: service_rate, servers, theta: abandonment_rate };
    positive("abandonment rate", abandonment_rate)?;
    let mut solution = rates.solve(&Balking::Never, capacity)?;
    solution.notation = match capacity {
        None => format!("M/M/{servers}+M"),
        Some(capacity) => format!("M/M/{servers}/{capacity}+M"),
    };
    solution.method = "Erlang A [GMR02]";
    Ok(solution)
}

/// M/M/m with balking: who finds n customers joins with the probability that `balking` gives.
///
/// # Errors
/// [`StationError::TooLarge`] when the probabilities do not fall enough for a steady state.
///
/// # Source
/// Birth–death process [Jain91 §31.1]; 1/(n+1) is the discouraged arrivals of [Kleinrock75 §3.3].
pub fn mmm_balking(
    arrival_rate: f64,
    service_rate: f64,
    servers: u64,
    balking: &Balking,
    capacity: Option<u64>,
) -> Result<StationSolution, StationError> {
    let rates = Rates { lambda: arrival_rate, mu: service_rate, servers, theta: 0.0 };
    let mut solution = rates.solve(balking, capacity)?;
    solution.notation = match capacity {
        None => format!("M/M/{servers} with balking"),
        Some(capacity) => format!("M/M/{servers}/{capacity} with balking"),
    };
    solution.method = "birth–death process [Jain91 §31.1]";
    Ok(solution)
}

struct Rates {
    lambda: f64,
    mu: f64,
    servers: u64,
    theta: f64,
}

/// Probability that who finds n customers joins.
pub(super) fn joins(balking: &Balking, n: u64) -> f64 {
    match balking {
        Balking::Never => 1.0,
        Balking::Reciprocal => 1.0 / (exact_f64(n) + 1.0),
        Balking::Table(table) => {
            let index = usize::try_from(n).unwrap_or(usize::MAX).min(table.len().max(1) - 1);
            table.get(index).copied().unwrap_or(1.0)
        }
    }
}

impl Rates {
    fn solve(
        &self,
        balking: &Balking,
        capacity: Option<u64>,
    ) -> Result<StationSolution, StationError> {
        let lambda = positive("arrival rate", self.lambda)?;
        let mu = positive("service rate", self.mu)?;
        let servers = servers_of(self.servers)?;
        let m = exact_f64(servers);
        self.check_tail(balking, capacity)?;
        let births = |n: u64| lambda * joins(balking, n);
        let deaths = |n: u64| {
            let n = exact_f64(n);
            mu * n.min(m) + self.theta * (n - m).max(0.0)
        };
        let process = BirthDeath { births: &births, deaths: &deaths, last: capacity };
        let (states, ln_p0) = solved(&process)?;
        let (number, number_waiting) = number_moments(&states, servers);
        let accepted: f64 = states
            .iter()
            .zip(0_u64..)
            .map(|(p, n)| if capacity == Some(n) { 0.0 } else { p * births(n) })
            .sum();
        // Who does not come in, as a sum: λ less the accepted is a difference of nearly equal numbers.
        let refused: f64 = states
            .iter()
            .zip(0_u64..)
            .map(|(p, n)| if capacity == Some(n) { *p } else { p * (1.0 - joins(balking, n)) })
            .sum();
        let abandoning = self.theta * number_waiting.mean;
        let busy: f64 =
            states.iter().zip(0_u64..).map(|(p, n)| p * exact_f64(n.min(servers))).sum();
        let throughput = mu * busy;
        let waiting = number_waiting.mean / accepted;
        let response = number.mean / accepted;
        let queueing: f64 = states
            .iter()
            .zip(0_u64..)
            .filter(|(_, n)| *n >= servers && capacity != Some(*n))
            .map(|(p, n)| p * births(n))
            // The sum of nothing is −0.
            .fold(0.0, |sum, p| sum + p)
            / accepted;
        Ok(StationSolution {
            notation: String::new(),
            method: "",
            accuracy: Accuracy::Exact,
            arrival_rate: lambda,
            throughput,
            offered_load: lambda / mu,
            utilization: busy / m,
            p0: Some(states[0]),
            ln_p0: Some(ln_p0),
            p_queueing: Some(queueing),
            loss_probability: refused + abandoning / lambda,
            number,
            number_waiting,
            response_time: Moments::mean_only(response),
            waiting_time: Moments::mean_only(waiting),
            busy_period: None,
            states: Some(StateLaw::new(states, 0.0)),
            response_law: None,
            waiting_law: None,
            more: vec![
                ("accepted_rate_per_s", accepted),
                ("balking_probability", refused),
                ("abandonment_probability", abandoning / accepted),
                ("abandonment_rate_per_s", abandoning),
            ],
        })
    }

    /// Without limit and without impatience, the last joining probability must be stable.
    fn check_tail(&self, balking: &Balking, capacity: Option<u64>) -> Result<(), StationError> {
        if capacity.is_some() || self.theta > 0.0 {
            return Ok(());
        }
        let last = match balking {
            Balking::Never => 1.0,
            Balking::Reciprocal => 0.0,
            Balking::Table(table) => table.last().copied().unwrap_or(1.0),
        };
        super::stable(self.lambda * last / self.mu, self.servers, self.lambda * last)
    }
}
