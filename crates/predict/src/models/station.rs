//! The whole system as one station: M/M/1, and M/M/m with m = all workers.
//!
//! Both take the measured throughput of each point as its arrival rate, and predict the response
//! time. In a closed loop arrivals are not Poisson (a client that waits sends nothing), which is
//! the largest error of these models near saturation, and is said beside them.

use kendall_queueing::station::{
    StationError, StationSolution, mm1 as solve_mm1, mmm as solve_mmm,
};
use kendall_units::Seconds;

use crate::measured::{OperatingPoint, View};
use crate::score::{Compared, Comparison, Device, Variable};

use super::place_of_maximum;

/// M/M/1 with μ = the highest throughput of the curve.
pub(super) fn mm1(curve: &[OperatingPoint]) -> Vec<Comparison> {
    let Some(calibration) = place_of_maximum(curve).filter(|_| curve.len() > 1) else {
        return Vec::new();
    };
    let at = &curve[calibration];
    let service_rate = view(at).throughput_per_s;
    let comparison = compare(&Setup {
        curve,
        calibration,
        model: "M/M/1".to_owned(),
        assumes: "one server does all the work; Poisson arrivals, exponential service".to_owned(),
        calibrated_on: format!(
            "service rate {service_rate:.1}/s: the highest throughput of the curve, at load {}",
            at.load()
        ),
        device: "the whole system".to_owned(),
        servers: 1,
        service_time_s: 1.0 / service_rate,
        solve: &|arrival_rate| solve_mm1(arrival_rate, service_rate),
    });
    vec![comparison]
}

/// M/M/m with m = all workers and the service time of the lowest load.
pub(super) fn mmm_from_lowest(curve: &[OperatingPoint]) -> Vec<Comparison> {
    mmm(curve, 0, "the lowest load")
}

/// M/M/m with m = all workers and the service time at the highest throughput.
pub(super) fn mmm_from_maximum(curve: &[OperatingPoint]) -> Vec<Comparison> {
    place_of_maximum(curve)
        .filter(|place| *place > 0)
        .map_or_else(Vec::new, |place| mmm(curve, place, "the highest throughput"))
}

fn mmm(curve: &[OperatingPoint], calibration: usize, at: &str) -> Vec<Comparison> {
    let Some(tier) = curve.get(calibration).and_then(OperatingPoint::first_tier) else {
        return Vec::new();
    };
    let service_time_s = tier.service_time_s;
    if curve.len() < 2 || tier.workers == 0 || service_time_s <= 0.0 {
        return Vec::new();
    }
    let servers = u64::from(tier.workers);
    let comparison = compare(&Setup {
        curve,
        calibration,
        model: format!("M/M/{servers}, service time of {at}"),
        assumes: format!(
            "each of the {servers} workers is a server that no other resource slows down; Poisson \
             arrivals, exponential service"
        ),
        calibrated_on: format!(
            "service time {} of a worker at {at} (load {})",
            Seconds::new(service_time_s),
            curve[calibration].load()
        ),
        device: format!("workers of {}", tier.name),
        servers,
        service_time_s,
        solve: &|arrival_rate| solve_mmm(arrival_rate, 1.0 / service_time_s, servers),
    });
    vec![comparison]
}

struct Setup<'a> {
    curve: &'a [OperatingPoint],
    /// Index of the point that the parameters were taken from.
    calibration: usize,
    model: String,
    assumes: String,
    calibrated_on: String,
    device: String,
    servers: u64,
    service_time_s: f64,
    solve: &'a dyn Fn(f64) -> Result<StationSolution, StationError>,
}

/// What is compared: the tier where there is one, else the clients.
fn view(point: &OperatingPoint) -> View {
    point.first_tier().map_or(point.client, |tier| tier.view)
}

fn compare(setup: &Setup<'_>) -> Comparison {
    let solutions: Vec<Result<StationSolution, StationError>> =
        setup.curve.iter().map(|point| (setup.solve)(view(point).throughput_per_s)).collect();
    let points =
        setup.curve.iter().zip(&solutions).enumerate().map(|(place, (point, solution))| Compared {
            load: point.load(),
            measured: view(point).response_time_s,
            predicted: match solution {
                Ok(solution) => Ok(solution.response_time.mean),
                Err(error) => Err(error.to_string()),
            },
            calibration: place == setup.calibration,
        });
    let has_tier = setup.curve.iter().any(|point| point.first_tier().is_some());
    let last =
        solutions.iter().zip(setup.curve).rev().find_map(|(s, p)| Some((s.as_ref().ok()?, p)));
    Comparison {
        model: setup.model.clone(),
        assumes: setup.assumes.clone(),
        calibrated_on: setup.calibrated_on.clone(),
        variable: if has_tier { Variable::TierResponseTime } else { Variable::ClientResponseTime },
        points: points.collect(),
        devices: last.map(|(solution, point)| device(setup, solution, point)).into_iter().collect(),
        bottleneck: Some(setup.device.clone()),
        caveats: caveats(setup),
    }
}

fn device(setup: &Setup<'_>, solution: &StationSolution, point: &OperatingPoint) -> Device {
    let tier = point.first_tier().filter(|tier| u64::from(tier.workers) == setup.servers);
    Device {
        name: setup.device.clone(),
        servers: Some(kendall_units::exact_f64(setup.servers)),
        visits: 1.0,
        service_time_s: setup.service_time_s,
        utilization: Some(solution.utilization),
        number_at_center: Some(solution.number.mean),
        measured_utilization: tier.map(|tier| tier.workers_busy / f64::from(tier.workers)),
    }
}

fn caveats(setup: &Setup<'_>) -> Vec<String> {
    let mut caveats = Vec::new();
    if setup.curve.iter().any(|point| point.population.is_some()) {
        caveats.push(
            "the load is a closed loop: a client that waits sends nothing, so arrivals are \
             smoother than Poisson and the model's queue has no bound where the system's has"
                .to_owned(),
        );
    }
    if setup.curve.len() < 4 {
        caveats.push(format!("only {} points were held out", setup.curve.len() - 1));
    }
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::TierView;

    /// A tier that is M/M/m itself, so that the model must be right wherever it is calibrated.
    fn curve(servers: u32, service_time_s: f64, rates: &[f64]) -> Vec<OperatingPoint> {
        rates
            .iter()
            .map(|&rate| {
                let truth = solve_mmm(rate, 1.0 / service_time_s, u64::from(servers)).unwrap();
                let view =
                    View { throughput_per_s: rate, response_time_s: truth.response_time.mean };
                OperatingPoint {
                    arrival_rate_per_s: Some(rate),
                    client: view,
                    tiers: vec![TierView {
                        name: "tier".to_owned(),
                        instances: 1,
                        workers: servers,
                        view,
                        waiting_time_s: truth.waiting_time.mean,
                        service_time_s,
                        backend_time_s: None,
                        queue_length: truth.number_waiting.mean,
                        workers_busy: truth.utilization * f64::from(servers),
                    }],
                    ..OperatingPoint::default()
                }
            })
            .collect()
    }

    #[test]
    fn a_system_that_is_the_model_has_no_error() {
        let curve = curve(4, 0.01, &[50.0, 200.0, 350.0]);
        let comparison = &mmm_from_lowest(&curve)[0];
        assert!(comparison.mean_absolute_error().unwrap() < 1e-9);
        assert!(comparison.points[0].calibration);
        let device = &comparison.devices[0];
        let gap = device.utilization.unwrap() - device.measured_utilization.unwrap();
        assert!(gap.abs() < 1e-9);
    }

    #[test]
    fn mm1_from_its_maximum_leaves_that_point_out() {
        let curve = curve(1, 0.01, &[20.0, 60.0, 90.0]);
        let comparison = &mm1(&curve)[0];
        assert!(comparison.points[2].calibration);
        assert!(comparison.points[2].predicted.is_err(), "λ = μ has no steady state");
        // Calibrated on 90/s where the server could do 100/s: 1/(90 − 60) against 1/(100 − 60).
        let error = comparison.points[1].relative_error().unwrap();
        assert!((error - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn one_point_is_nothing_to_hold_out() {
        let curve = curve(1, 0.01, &[20.0]);
        assert!(super::super::compare(&curve).is_empty());
    }
}
