//! One station for the whole system or for one tier: M/M/1, and M/M/m with m = all workers of the
//! tier, or all connections to the backend behind it.
//!
//! All take the measured rate of arrivals at each point, and predict the response time.
//! In a closed loop arrivals are not Poisson (a client that waits sends nothing), which is the
//! largest error of these models near saturation, and is printed beside them.
//!
//! Where a worker serves several requests at once, the customer of these stations is the batch: it
//! arrives at the measured rate of batches, and its service time is that of a batch. What such a
//! model cannot know is that batches grow with the load, which is printed, too; `layers` does.

use kendall_queueing::model::{Class, Model, ModelError, Station};
use kendall_queueing::solver::{Solver, solve};
use kendall_queueing::station::StationSolution;
use kendall_units::{Seconds, counted, exact_f64};

use crate::measured::{BATCHES, ConnectionView, OperatingPoint, TierView, View, place_of_maximum};
use crate::model::Calibrated;
use crate::resource::ResourceId;
use crate::saturation::PLATEAU;
use crate::score::{Compared, Comparison, Device, StandsFor, Variable};

use super::calibrated::parameter;

/// M/M/1 with μ = the highest throughput of the curve.
pub(super) fn mm1(curve: &[OperatingPoint]) -> Vec<Comparison> {
    single_server(curve, Subject::Whole)
}

/// M/M/1 for the backend: μ = the most exchanges a second of the curve.
pub(super) fn mm1_of_backend(curve: &[OperatingPoint]) -> Vec<Comparison> {
    single_server(curve, Subject::Connections)
}

/// M/M/m with m = all workers and the service time of the lowest load.
pub(super) fn mmm_from_lowest(curve: &[OperatingPoint]) -> Vec<Comparison> {
    from_lowest(curve, Subject::Workers)
}

/// M/M/m with m = all workers and the service time at the highest throughput.
pub(super) fn mmm_from_maximum(curve: &[OperatingPoint]) -> Vec<Comparison> {
    from_maximum(curve, Subject::Workers)
}

/// M/M/m with m = all connections to the backend, and the exchange of the lowest load.
pub(super) fn backend_from_lowest(curve: &[OperatingPoint]) -> Vec<Comparison> {
    from_lowest(curve, Subject::Connections)
}

/// M/M/m with m = all connections to the backend, and the exchange at the highest throughput.
pub(super) fn backend_from_maximum(curve: &[OperatingPoint]) -> Vec<Comparison> {
    from_maximum(curve, Subject::Connections)
}

/// The resource that the station represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// The first tier with all behind it, or the clients' view where no tier reports.
    Whole,
    /// The workers of the first tier.
    Workers,
    /// The connections to the backend behind it.
    Connections,
}

/// A subject at one point.
struct Seen {
    /// Customers that arrive a second: requests, batches, or exchanges.
    arrivals_per_s: f64,
    /// Those that are served.
    served_per_s: f64,
    response_time_s: f64,
    /// Time of one customer in service.
    service_time_s: f64,
    servers: u32,
    busy: f64,
    /// Customers a request.
    visits: f64,
}

impl Subject {
    fn seen(self, point: &OperatingPoint) -> Option<Seen> {
        match self {
            Self::Whole => Some(whole(point)),
            Self::Workers => {
                point.first_tier().filter(|tier| tier.workers > 0).map(|tier| workers(point, tier))
            }
            Self::Connections => {
                let tier = point.first_tier()?;
                Some(connections(tier.connections.as_ref()?, tier))
            }
        }
    }

    fn variable(self, point: &OperatingPoint) -> Variable {
        match self {
            Self::Connections => Variable::BackendResponseTime,
            _ if point.first_tier().is_some() => Variable::TierResponseTime,
            _ => Variable::ClientResponseTime,
        }
    }

    fn device(self, point: &OperatingPoint) -> String {
        let tier = point.first_tier();
        match self {
            Self::Whole => "the whole system".to_owned(),
            Self::Workers => format!("workers of {}", tier.map_or("", |tier| tier.name.as_str())),
            Self::Connections => format!("connections to {}", backend(point)),
        }
    }

    fn stands_for(self, point: &OperatingPoint) -> Option<StandsFor> {
        let tier = || point.first_tier().map(|tier| tier.name.clone());
        Some(match self {
            Self::Whole => StandsFor::System,
            Self::Workers => StandsFor::Resource(ResourceId::Workers(tier()?)),
            Self::Connections => StandsFor::Resource(ResourceId::Connections {
                of: tier()?,
                to: backend(point).to_owned(),
            }),
        })
    }

    /// Prefix of the model's name.
    fn prefix(self, point: &OperatingPoint) -> String {
        if self == Self::Connections { format!("{} ", backend(point)) } else { String::new() }
    }
}

fn backend(point: &OperatingPoint) -> &str {
    let connections = point.first_tier().and_then(|tier| tier.connections.as_ref());
    connections.map_or("backend", |connections| connections.backend.as_str())
}

/// What is compared: the tier where there is one, else the clients.
fn view(point: &OperatingPoint) -> View {
    point.first_tier().map_or(point.client, |tier| tier.view)
}

fn whole(point: &OperatingPoint) -> Seen {
    let View { throughput_per_s, response_time_s } = view(point);
    Seen {
        arrivals_per_s: point.arrivals_per_s(point.first_tier()),
        served_per_s: throughput_per_s,
        response_time_s,
        service_time_s: response_time_s,
        servers: 1,
        busy: f64::NAN,
        visits: 1.0,
    }
}

fn workers(point: &OperatingPoint, tier: &TierView) -> Seen {
    let visits = tier.visits();
    Seen {
        arrivals_per_s: point.arrivals_per_s(Some(tier)) * visits,
        served_per_s: tier.view.throughput_per_s * visits,
        response_time_s: tier.view.response_time_s,
        service_time_s: tier.held_time_s(),
        servers: tier.workers,
        busy: tier.workers_busy,
        visits,
    }
}

fn connections(of: &ConnectionView, tier: &TierView) -> Seen {
    let throughput = tier.view.throughput_per_s;
    Seen {
        arrivals_per_s: of.exchanges_per_s,
        served_per_s: of.exchanges_per_s,
        response_time_s: of.response_time_s(),
        service_time_s: of.exchange_time_s,
        servers: of.connections,
        busy: of.busy(),
        visits: if throughput > 0.0 { of.exchanges_per_s / throughput } else { 1.0 },
    }
}

fn single_server(curve: &[OperatingPoint], subject: Subject) -> Vec<Comparison> {
    let Some(calibration) = place_of_maximum(curve).filter(|_| curve.len() > 1) else {
        return Vec::new();
    };
    let at = &curve[calibration];
    let Some(seen) = subject.seen(at).filter(|seen| seen.served_per_s > 0.0) else {
        return Vec::new();
    };
    let service_rate = seen.served_per_s;
    let (what, rate) = match subject {
        Subject::Connections => ("the backend is one server", "exchanges"),
        _ => ("one server does all the work", "throughput"),
    };
    let comparison = compare(&Setup {
        curve,
        calibration,
        subject,
        model: format!("{}M/M/1", subject.prefix(at)),
        family: format!("{}M/M/1", subject.prefix(at)),
        assumes: format!("{what}; Poisson arrivals, exponential service"),
        calibrated_on: format!(
            "service rate {service_rate:.1}/s: the highest {rate} of the curve, at load {}",
            at.load()
        ),
        servers: 1,
        service_time_s: 1.0 / service_rate,
        rule: "one over the highest rate of the curve",
        // All loads of a plateau have the highest throughput, to what a measurement can tell: their
        // distance from it is noise, and so would be the queue.
        known_to: PLATEAU,
    });
    vec![comparison]
}

/// M/M/m of the workers and of the connections to the backend, with the service time of that very point.
pub(super) fn of_one_point(point: &OperatingPoint) -> Vec<Comparison> {
    let one = std::slice::from_ref(point);
    let of = |subject| mmm(one, 0, "this configuration", subject);
    [Subject::Workers, Subject::Connections].into_iter().flat_map(of).collect()
}

fn from_lowest(curve: &[OperatingPoint], subject: Subject) -> Vec<Comparison> {
    if curve.len() > 1 { mmm(curve, 0, "the lowest load", subject) } else { Vec::new() }
}

fn from_maximum(curve: &[OperatingPoint], subject: Subject) -> Vec<Comparison> {
    place_of_maximum(curve)
        .filter(|place| *place > 0)
        .map_or_else(Vec::new, |place| mmm(curve, place, "the highest throughput", subject))
}

fn mmm(
    curve: &[OperatingPoint],
    calibration: usize,
    at: &str,
    subject: Subject,
) -> Vec<Comparison> {
    let point = &curve[calibration];
    let Some(seen) = subject.seen(point) else { return Vec::new() };
    let service_time_s = seen.service_time_s;
    if seen.servers == 0 || service_time_s <= 0.0 {
        return Vec::new();
    }
    let servers = u64::from(seen.servers);
    let one = if subject == Subject::Connections { "connections" } else { "workers" };
    let whose = if subject == Subject::Connections { "an exchange" } else { "a worker" };
    let size = batch(point).map_or_else(String::new, |size| format!(" of a batch of {size:.2}"));
    let comparison = compare(&Setup {
        curve,
        calibration,
        subject,
        model: format!("{}M/M/{servers}, service time of {at}", subject.prefix(point)),
        family: format!("{}M/M/m, service time of {at}", subject.prefix(point)),
        assumes: format!(
            "each of the {servers} {one} is a server that no other resource slows down; Poisson \
             arrivals, exponential service"
        ),
        calibrated_on: format!(
            "service time {} of {whose}{size} at {at} (load {})",
            Seconds::new(service_time_s),
            point.load()
        ),
        servers,
        service_time_s,
        rule: "time in service, measured once for each that is served",
        known_to: ROUNDING,
    });
    vec![comparison]
}

/// The mean batch of a tier whose workers serve several requests at once.
fn batch(point: &OperatingPoint) -> Option<f64> {
    point.first_tier().map(TierView::mean_batch).filter(|size| *size > BATCHES)
}

struct Setup<'a> {
    curve: &'a [OperatingPoint],
    /// Index of the point that the parameters were taken from.
    calibration: usize,
    subject: Subject,
    model: String,
    family: String,
    assumes: String,
    calibrated_on: String,
    servers: u64,
    service_time_s: f64,
    rule: &'a str,
    /// How well the rate of service is known, as a share: so near to ρ = 1 there is no answer.
    known_to: f64,
}

/// λ·(1/λ) may round to just below 1, and a queue without end to 10¹⁵.
const ROUNDING: f64 = 1e-9;

impl Setup<'_> {
    /// The station under arrivals at a rate.
    fn model(&self, arrival_rate_per_s: f64) -> Result<Model, ModelError> {
        let name = self.subject.device(&self.curve[self.calibration]);
        let station = Station::queue(&name, self.servers).with_service_time(0, self.service_time_s);
        let class = Class::open("customers", arrival_rate_per_s);
        Model::new(&self.model, vec![class], vec![station])
    }

    /// All that it says under arrivals at a rate; an error says why it has no answer.
    fn solution(&self, arrival_rate_per_s: f64) -> Result<StationSolution, String> {
        let (offered, servers) = (arrival_rate_per_s * self.service_time_s, self.servers);
        if offered >= exact_f64(servers) * (1.0 - self.known_to) {
            let (rho, percent) = (offered / exact_f64(servers), 100.0 * self.known_to);
            if rho >= 1.0 - ROUNDING {
                let growth = arrival_rate_per_s * (1.0 - 1.0 / rho);
                return Err(format!(
                    "ρ = {rho:.3}: as much arrives as it can serve, or more, so the queue grows without \
                     end, by {:.1} jobs/s",
                    growth.max(0.0)
                ));
            }
            return Err(format!(
                "ρ = {rho:.3}, and the rate of service is known to within {percent:.0} %: it may as \
                 well be 1, where the queue has no end"
            ));
        }
        let model = self.model(arrival_rate_per_s).map_err(|error| error.to_string())?;
        let solution = solve(&model, Solver::Auto).map_err(|error| error.to_string())?;
        solution.station.ok_or_else(|| "it is not a single station".to_owned())
    }

    /// As it is handed on, under the arrivals of a point.
    fn calibrated(&self, (point, seen): (&OperatingPoint, &Seen)) -> Option<Calibrated> {
        let name = self.subject.device(&self.curve[self.calibration]);
        let at = [self.curve[self.calibration].load()];
        let servers = exact_f64(self.servers);
        Some(Calibrated {
            model: self.model(seen.arrivals_per_s).ok()?,
            parameters: vec![
                parameter(&name, "servers", servers, &[], "the study's setting, all instances"),
                parameter(&name, "service_time_s", self.service_time_s, &at, self.rule),
                parameter(
                    "customers",
                    "arrival_rate_per_s",
                    seen.arrivals_per_s,
                    &[point.load()],
                    "the measured rate",
                ),
            ],
        })
    }
}

fn compare(setup: &Setup<'_>) -> Comparison {
    let at = &setup.curve[setup.calibration];
    let seen: Vec<Seen> =
        setup.curve.iter().filter_map(|point| setup.subject.seen(point)).collect();
    let solutions: Vec<Result<StationSolution, String>> =
        seen.iter().map(|seen| setup.solution(seen.arrivals_per_s)).collect();
    let points = setup.curve.iter().zip(seen.iter().zip(&solutions)).enumerate().map(
        |(place, (point, (seen, solution)))| Compared {
            load: point.load(),
            measured: seen.response_time_s,
            predicted: match solution {
                Ok(solution) => Ok(solution.response_time.mean),
                Err(why) => Err(why.clone()),
            },
            calibration: place == setup.calibration,
        },
    );
    let solved = |place: &usize| solutions[*place].is_ok();
    let last = (0..seen.len()).rfind(solved);
    // Under arrivals that leave a steady state.
    let handed_on = Some(setup.calibration).filter(solved).or(last);
    let last = last.and_then(|place| Some((solutions[place].as_ref().ok()?, &seen[place])));
    Comparison {
        model: setup.model.clone(),
        family: setup.family.clone(),
        assumes: setup.assumes.clone(),
        calibrated_on: setup.calibrated_on.clone(),
        variable: setup.subject.variable(at),
        points: points.collect(),
        devices: last.map(|(solution, seen)| device(setup, solution, seen)).into_iter().collect(),
        bottleneck: Some(setup.subject.device(at)),
        caveats: caveats(setup),
        calibrated: handed_on
            .and_then(|place| setup.calibrated((&setup.curve[place], &seen[place]))),
        solutions: solutions.iter().map(|solution| solution.as_ref().ok().cloned()).collect(),
    }
}

fn device(setup: &Setup<'_>, solution: &StationSolution, seen: &Seen) -> Device {
    let same = u64::from(seen.servers) == setup.servers && seen.busy.is_finite();
    Device {
        name: setup.subject.device(&setup.curve[setup.calibration]),
        stands_for: setup.subject.stands_for(&setup.curve[setup.calibration]),
        servers: Some(exact_f64(setup.servers)),
        visits: seen.visits,
        service_time_s: setup.service_time_s,
        utilization: Some(solution.utilization),
        number_at_center: Some(solution.number.mean),
        measured_utilization: same.then(|| seen.busy / f64::from(seen.servers)),
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
    caveats.extend(batching(setup.curve));
    if setup.curve.len() < 4 {
        caveats.push(format!("held out: only {}", counted(setup.curve.len() - 1, "point")));
    }
    caveats
}

/// What batches that grow do to models of one service time.
fn batching(curve: &[OperatingPoint]) -> Option<String> {
    let sizes = curve.iter().filter_map(OperatingPoint::first_tier).map(TierView::mean_batch);
    let sizes: Vec<f64> = sizes.collect();
    let (least, most) =
        sizes.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), size| (a.min(*size), b.max(*size)));
    (most > BATCHES * least.max(1.0)).then(|| {
        format!(
            "a worker serves what waits together: batches grow from {least:.2} to {most:.2} \
             requests along the curve, and the time of one with them. M/M/m takes a batch as a \
             customer, with the measured rate of batches and the service time of one point; M/M/1 \
             knows no batches, and takes a lone request to be served as fast as one among many"
        )
    })
}

#[cfg(test)]
mod tests {
    use kendall_queueing::station::mmm as solve_mmm;

    use super::super::beside;
    use super::*;
    use crate::measured::TierView;
    use crate::saturation::{MeasuredLoad, saturation};

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
                        ..TierView::default()
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
        assert!(comparison.errors().unwrap().mean < 1e-9);
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
        // As a file it has the arrivals of the highest load that leaves a steady state.
        let solved = solve(&comparison.calibrated.as_ref().unwrap().model, Solver::Auto).unwrap();
        assert!((solved.classes[0].throughput - 60.0).abs() < 1e-9);
    }

    /// An open loop over an idle server: its highest throughput is what was offered, and as a
    /// service rate it errs by as much as one likes. Left out, with the reason.
    #[test]
    fn the_offered_rate_is_no_service_rate() {
        let idle = curve(4, 0.000_1, &[20.0, 60.0, 95.0]);
        let loads: Vec<MeasuredLoad> = idle
            .iter()
            .map(|point| MeasuredLoad {
                load: point.load(),
                point: point.clone(),
                runs: Vec::new(),
            })
            .collect();
        let found = saturation(&loads, 0.95).unwrap();
        let beside = beside(&idle, Some(&found));
        assert!(beside.comparisons.iter().all(|one| one.family != "M/M/1"));
        let left_out = beside.left_out.iter().find(|one| one.model == "M/M/1").unwrap();
        assert!(left_out.why.contains("follows the load"), "{left_out:?}");
        // Best first.
        let errors: Vec<f64> =
            beside.comparisons.iter().filter_map(|one| Some(one.errors()?.mean)).collect();
        assert!(errors.len() > 1 && errors.is_sorted(), "{errors:?}");
    }

    /// 49·(1/49) is less than 1 in binary, and M/M/1 would have a queue of 10¹⁵.
    #[test]
    fn the_rate_of_service_itself_has_no_steady_state_however_it_rounds() {
        for most in [49.0, 90.0, 98.0, 103.0, 107.0] {
            let rising = curve(1, 0.9 / most, &[0.2 * most, 0.6 * most, most]);
            let comparison = &mm1(&rising)[0];
            assert!(comparison.points[2].predicted.is_err(), "{most}: {comparison:?}");
            // A load of the plateau differs from the maximum by noise alone.
            let plateau = curve(1, 0.9 / most, &[0.2 * most, 0.99 * most, most]);
            assert!(mm1(&plateau)[0].points[1].predicted.is_err());
        }
    }

    #[test]
    fn one_point_is_nothing_to_hold_out() {
        let curve = curve(1, 0.01, &[20.0]);
        assert!(beside(&curve, None).comparisons.is_empty());
    }
}
