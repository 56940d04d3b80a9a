//! A station without arrivals (λ = 0).

use super::general::service_law;
use super::impatient::joins;
use super::law::{StateLaw, TimeLaw};
use super::{BusyPeriod, Moments, StationError, StationSolution, notation, positive, servers_of};
use crate::model::{Batch, Station, Workload};

/// What the formulas of the other stations tend to as λ goes to 0: the station is empty, and the times
/// are those of the first customer (or batch), which finds the station empty.
///
/// # Errors
/// [`StationError::Number`] for a service time that is not positive, and where there is no server.
pub(crate) fn unvisited(
    station: &Station,
    arrivals: &Workload,
    service: &crate::Distribution,
) -> Result<StationSolution, StationError> {
    let mean = positive("mean service time", service.mean())?;
    let Workload::Open { interarrival, batch, .. } = arrivals else {
        let name = "arrival rate";
        return Err(StationError::Number { name, value: 0.0, expected: "of an open class" });
    };
    let alone = *batch == Batch::Fixed(1);
    let (response_law, waiting_law) = if alone {
        (service_law(service), Some(TimeLaw::Exponential { weight: 0.0, rate: 1.0 / mean }))
    } else {
        (None, None)
    };
    let (response, waiting) = if alone {
        (Moments::new(mean, service.variance()), Moments::new(0.0, 0.0))
    } else {
        let wait = mean * place(batch);
        (Moments::mean_only(mean + wait), Moments::mean_only(wait))
    };
    Ok(StationSolution {
        notation: name(station, interarrival, service, alone)?,
        method: "a station without arrivals: times are those of a first customer",
        p0: Some(1.0),
        ln_p0: Some(0.0),
        p_queueing: alone.then_some(0.0),
        loss_probability: 1.0 - joins(&station.balking, 0),
        number: Moments::new(0.0, 0.0),
        number_waiting: Moments::new(0.0, 0.0),
        response_time: response,
        waiting_time: waiting,
        busy_period: alone.then(|| BusyPeriod {
            duration: Moments::new(mean, service.variance()),
            served: Moments::new(1.0, 0.0),
        }),
        states: Some(StateLaw::with_tail(vec![1.0], 1.0)),
        response_law,
        waiting_law,
        ..StationSolution::lossless(0.0, 0.0, 1)
    })
}

/// How many of its batch a customer picked at random finds before it, on average.
fn place(batch: &Batch) -> f64 {
    let (size, second) = (batch.mean(), batch.second_moment());
    (second - size) / (2.0 * size)
}

fn name(
    station: &Station,
    interarrival: &crate::Distribution,
    service: &crate::Distribution,
    alone: bool,
) -> Result<String, StationError> {
    let arrivals = if alone { interarrival.letter().to_owned() } else { "M^[x]".to_owned() };
    let letter = service.letter();
    if station.is_delay() {
        return Ok(format!("{arrivals}/{letter}/∞"));
    }
    let servers = servers_of(station.servers)?;
    if let Some(capacity) = station.capacity.filter(|capacity| *capacity < servers) {
        return Err(StationError::Number {
            name: "capacity",
            value: kendall_units::exact_f64(capacity),
            expected: "at least the number of servers: it includes customers in service",
        });
    }
    let patience = if station.patience.is_some() { "+M" } else { "" };
    let balking =
        if station.balking == crate::model::Balking::Never { "" } else { " with balking" };
    let plain = notation(&arrivals, letter, servers, station.capacity);
    Ok(format!("{plain}{patience}{balking}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Distribution;
    use crate::model::{Class, Model};
    use crate::solver::{Solver, solve};

    /// Every number is the limit of what λ = 10⁻⁹ gives (times: the load adds 10⁻⁹ of them).
    #[test]
    fn the_answer_is_the_limit_of_few_arrivals() {
        let at = |rate: f64, service: &Distribution, servers: u64| {
            let station = Station::queue("s", servers).with_service(0, service.clone());
            let model = Model::new("m", vec![Class::open("c", rate)], vec![station]).unwrap();
            solve(&model, Solver::Auto).unwrap().station.unwrap()
        };
        for (service, servers) in [
            (Distribution::exponential(0.2).unwrap(), 1),
            (Distribution::exponential(0.2).unwrap(), 3),
            (Distribution::deterministic(0.2).unwrap(), 1),
            (Distribution::erlang(3, 0.2).unwrap(), 1),
            (Distribution::hyperexponential_balanced(0.2, 4.0).unwrap(), 1),
        ] {
            let (none, few) = (at(0.0, &service, servers), at(1e-9, &service, servers));
            // Inverted transforms are right to 1e-8 of a probability.
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs());
            let label = &few.notation;
            assert_eq!(&none.notation, label);
            assert!(none.utilization == 0.0 && none.p0 == Some(1.0), "{label}");
            assert!(near(none.response_time.mean, few.response_time.mean), "{label}");
            let variances = (none.response_time.variance, few.response_time.variance);
            let (Some(zero), Some(little)) = variances else { panic!("{label}") };
            assert!((zero - little).abs() < 1e-8, "{label}: {zero} {little}");
            for quantile in [0.5, 0.99] {
                let (zero, little) =
                    (none.response_quantile(quantile), few.response_quantile(quantile));
                assert!(near(zero.unwrap(), little.unwrap()), "{label}: {zero:?} {little:?}");
                assert_eq!(none.waiting_quantile(quantile), Some(0.0), "{label}");
            }
            if let (Some(zero), Some(little)) = (&none.busy_period, &few.busy_period) {
                assert!(near(zero.duration.mean, little.duration.mean), "{label}");
                assert!(near(zero.served.mean, little.served.mean), "{label}");
            }
        }
    }

    /// A batch of three that finds the station empty: its customers take 1, 2 and 3 services.
    #[test]
    fn a_batch_waits_for_itself() {
        let mut class = Class::open("c", 0.0);
        if let Workload::Open { batch, .. } = &mut class.workload {
            *batch = Batch::Fixed(3);
        }
        let station = Station::queue("s", 1).with_service_time(0, 0.5);
        let solved = solve(&Model::new("m", vec![class], vec![station]).unwrap(), Solver::Auto);
        let solved = solved.unwrap().station.unwrap();
        assert!((solved.response_time.mean - 1.0).abs() < 1e-15);
        assert!((solved.waiting_time.mean - 0.5).abs() < 1e-15);
        assert_eq!(solved.notation, "M^[x]/M/1");
    }
}
