//! Servers of different speed.

use kendall_units::exact_f64;

use super::{Accuracy, StationError, StationSolution, mmm, positive, stable};

/// M/M/m with a rate of its own for each server: as M/M/m with the mean rate.
///
/// Exact means exist only for given rules of who takes the next customer; this approximation knows
/// none, and is right in the utilization and, nearly, in the queue when the station is busy.
///
/// # Errors
/// As [`mmm`].
///
/// # Source
/// [Bolch06 §10.4], asymmetric M/M/m.
pub fn mmm_unequal(
    arrival_rate: f64,
    service_rates: &[f64],
) -> Result<StationSolution, StationError> {
    let servers = u64::try_from(service_rates.len()).unwrap_or(u64::MAX);
    for rate in service_rates {
        positive("service rate", *rate)?;
    }
    if servers == 0 {
        return Err(StationError::Number {
            name: "service rates",
            value: 0.0,
            expected: "one for each server",
        });
    }
    let total: f64 = service_rates.iter().sum();
    let mean = total / exact_f64(servers);
    stable(arrival_rate / mean, servers, arrival_rate)?;
    let mut solution = mmm(arrival_rate, mean, servers)?;
    solution.notation = format!("M/M/{servers} (unequal servers)");
    solution.method = "M/M/m with the mean service rate [Bolch06 §10.4]";
    solution.accuracy = Accuracy::Approximation;
    for moments in [
        &mut solution.number,
        &mut solution.number_waiting,
        &mut solution.response_time,
        &mut solution.waiting_time,
    ] {
        moments.variance = None;
    }
    solution.response_law = None;
    solution.waiting_law = None;
    solution.states = None;
    solution.busy_period = None;
    Ok(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Octave package's test of its `qsammm`.
    #[test]
    fn the_published_example_is_met() {
        let s = mmm_unequal(73.0, &[10.0, 15.0, 20.0, 20.0, 25.0]).unwrap();
        assert!((s.utilization - 0.81).abs() < 0.005);
        assert!((s.number.mean - 6.5278).abs() < 0.5e-4, "{}", s.number.mean);
    }
}
