//! The closed system as a network of queues, solved exactly for every population of the curve.
//!
//! Two networks. The first is the textbook's: network as a delay, and for each instance of the
//! tier its network thread and its workers. It knows no processor, so it cannot see that a full
//! one slows every worker down. The second knows the processor and that a worker is *held* while
//! the processor works: a pool of workers around a delay and the host's cores.

use kendall_queueing::network::{
    Load, Network, NetworkError, NetworkSolution, Resource, convolution, pool_rates,
};
use kendall_units::{Seconds, exact_f64, whole_u64};

use crate::measured::{OperatingPoint, TierView};
use crate::score::{Compared, Comparison, Device, Variable};

use super::place_of_maximum;

/// Delay, network threads and workers.
pub(super) fn threads_and_workers(curve: &[OperatingPoint]) -> Vec<Comparison> {
    let Some((lowest, tier)) = curve.first().and_then(|p| Some((p, p.first_tier()?))) else {
        return Vec::new();
    };
    if curve.len() < 2 || tier.workers == 0 || tier.service_time_s <= 0.0 {
        return Vec::new();
    }
    let delay_s = (lowest.client.response_time_s - tier.view.response_time_s).max(0.0);
    let thread_s = network_thread_s(lowest, tier);
    let instances = u64::from(tier.instances.max(1));
    let parts = Parts::new(instances, tier, delay_s, thread_s);
    let calibrated_on = format!(
        "the lowest load (N = {}): delay {} between clients and tier, {} of processor time a \
         request outside the workers, worker held for {}",
        lowest.load(),
        Seconds::new(delay_s),
        Seconds::new(thread_s),
        Seconds::new(tier.service_time_s)
    );
    let setup = Setup {
        curve,
        calibration: vec![0],
        model: "network: delay, network threads, workers".to_owned(),
        assumes: format!(
            "{instances} × (network thread M/M/1, workers M/M/{}) behind a delay; every service \
             time stays what it was at the lowest load",
            parts.workers_each
        ),
        calibrated_on,
    };
    setup.compare(&|population, think_time_s| parts.solve(population, think_time_s))
}

/// Delay outside, and a pool of workers around a delay and the host's cores.
pub(super) fn pool_and_cores(curve: &[OperatingPoint]) -> Vec<Comparison> {
    let Some(maximum) = place_of_maximum(curve).filter(|place| *place > 0) else {
        return Vec::new();
    };
    let Some(cores) = Cores::calibrated(&curve[0], &curve[maximum]) else { return Vec::new() };
    let pool = cores.workers.map_or_else(
        || "no worker limit".to_owned(),
        |workers| format!("a pool of {workers} workers, each held while the cores work for it"),
    );
    let setup = Setup {
        curve,
        calibration: vec![0, maximum],
        model: "network: delay, worker pool, cores".to_owned(),
        assumes: format!(
            "{} cores that all processes share, {pool}; the processor time of a request does not \
             depend on the load",
            cores.cores
        ),
        calibrated_on: format!(
            "delays from the lowest load (N = {}): {} outside the workers, {} while one is held; \
             processor time {} a request, all processes, from the highest throughput (N = {})",
            curve[0].load(),
            Seconds::new(cores.outside_s),
            Seconds::new(cores.inside_s),
            Seconds::new(cores.demand_s),
            curve[maximum].load()
        ),
    };
    setup.compare(&|population, think_time_s| cores.solve(population, think_time_s))
}

/// Processor time of the tier that its workers do not account for. Workers wait for a core too,
/// so this is a lower bound; what a network thread of its own would need is at least this.
fn network_thread_s(point: &OperatingPoint, tier: &TierView) -> f64 {
    let own_work_s = (tier.service_time_s - tier.backend_time_s.unwrap_or(0.0)).max(0.0);
    let cpu_s = point.cpu_demand_s(&tier.name).unwrap_or(0.0);
    (cpu_s - own_work_s).max(0.0)
}

/// The first network.
struct Parts {
    tier: String,
    instances: u64,
    workers_each: u64,
    delay_s: f64,
    thread_s: f64,
    service_time_s: f64,
}

impl Parts {
    fn new(instances: u64, tier: &TierView, delay_s: f64, thread_s: f64) -> Self {
        Self {
            tier: tier.name.clone(),
            instances,
            workers_each: (u64::from(tier.workers) / instances).max(1),
            delay_s,
            thread_s,
            service_time_s: tier.service_time_s,
        }
    }

    fn solve(&self, population: u64, think_time: f64) -> Result<Solved, NetworkError> {
        let share = 1.0 / exact_f64(self.instances);
        let mut resources = vec![Resource::delay(&[self.delay_s])];
        let has_thread = self.thread_s > 0.0;
        for _ in 0..self.instances {
            if has_thread {
                resources.push(Resource::queue(&[self.thread_s * share]));
            }
            resources.push(Resource::servers(self.workers_each, &[self.service_time_s * share]));
        }
        let network = Network { classes: vec![Load::Closed { population, think_time }], resources };
        let solution = convolution(&network)?;
        let mut devices = vec![delay_device("network", self.delay_s, solution.throughput[0])];
        for instance in 0..self.instances {
            let index = usize::try_from(instance).unwrap_or(usize::MAX);
            let place = 1 + index * if has_thread { 2 } else { 1 };
            if has_thread {
                let name = format!("network thread of {} {}", self.tier, instance + 1);
                devices.push(device(name, 1, share, self.thread_s, place, &solution));
            }
            let name = format!("workers of {} {}", self.tier, instance + 1);
            let place = place + usize::from(has_thread);
            devices.push(device(
                name,
                self.workers_each,
                share,
                self.service_time_s,
                place,
                &solution,
            ));
        }
        Ok(Solved {
            throughput_per_s: solution.throughput[0],
            response_time_s: solution.system_response[0],
            devices,
        })
    }
}

fn delay_device(name: &str, delay_s: f64, throughput_per_s: f64) -> Device {
    Device {
        name: name.to_owned(),
        servers: None,
        visits: 1.0,
        service_time_s: delay_s,
        utilization: None,
        number_at_center: Some(throughput_per_s * delay_s),
        measured_utilization: None,
    }
}

fn device(
    name: String,
    servers: u64,
    visits: f64,
    service_time_s: f64,
    place: usize,
    solution: &NetworkSolution,
) -> Device {
    Device {
        name,
        servers: Some(exact_f64(servers)),
        visits,
        service_time_s,
        utilization: Some(solution.total_utilization(place)),
        number_at_center: Some(solution.total_number(place)),
        measured_utilization: None,
    }
}

/// The second network.
struct Cores {
    tier: String,
    cores: u64,
    workers: Option<u64>,
    outside_s: f64,
    inside_s: f64,
    demand_s: f64,
}

impl Cores {
    /// Delays from the lowest load, processor time from the highest throughput.
    fn calibrated(lowest: &OperatingPoint, busiest: &OperatingPoint) -> Option<Self> {
        let cores = whole_u64(busiest.host_cores);
        let demand_s = busiest.cpu_demand_total_s().filter(|demand| *demand > 0.0 && cores > 0)?;
        let at_rest_s = lowest.cpu_demand_total_s().unwrap_or(demand_s);
        let delay_s = (lowest.client.response_time_s - at_rest_s).max(0.0);
        let tier = lowest.first_tier().filter(|tier| tier.workers > 0);
        // While a worker is held, the processor works for the tier and its backends.
        let generator_s = lowest.cpu_demand_s(crate::bottleneck::GENERATOR).unwrap_or(0.0);
        let inside_s = tier.map_or(0.0, |tier| {
            (tier.service_time_s - (at_rest_s - generator_s)).clamp(0.0, delay_s)
        });
        Some(Self {
            tier: tier.map_or_else(String::new, |tier| tier.name.clone()),
            cores,
            workers: tier.map(|tier| u64::from(tier.workers)),
            outside_s: delay_s - inside_s,
            inside_s,
            demand_s,
        })
    }

    fn solve(&self, population: u64, think_time: f64) -> Result<Solved, NetworkError> {
        let cores = Resource::servers(self.cores, &[self.demand_s]);
        let held = match self.workers {
            Some(workers) => {
                let inside = [Resource::delay(&[self.inside_s]), cores];
                pool_rates(&inside, workers, population)?.resource()
            }
            None => cores,
        };
        let network = Network {
            classes: vec![Load::Closed { population, think_time }],
            resources: vec![Resource::delay(&[self.outside_s]), held],
        };
        let solution = convolution(&network)?;
        let throughput = solution.throughput[0];
        let mut devices = vec![
            delay_device("outside the workers", self.outside_s, throughput),
            Device {
                name: "CPU of the host".to_owned(),
                servers: Some(exact_f64(self.cores)),
                visits: 1.0,
                service_time_s: self.demand_s,
                utilization: Some(throughput * self.demand_s / exact_f64(self.cores)),
                number_at_center: None,
                measured_utilization: None,
            },
        ];
        if let Some(workers) = self.workers {
            devices.push(self.pool(workers, population, &solution));
        }
        Ok(Solved {
            throughput_per_s: throughput,
            response_time_s: solution.system_response[0],
            devices,
        })
    }

    fn pool(&self, workers: u64, population: u64, solution: &NetworkSolution) -> Device {
        let at_center = solution.total_number(1);
        // Held at once: at most all of them; the rest wait for one.
        let busy = solution.marginals.get(1).and_then(Option::as_ref).map(|marginals| {
            let held = marginals.iter().enumerate().map(|(number, probability)| {
                probability * exact_f64(number.min(usize::try_from(workers).unwrap_or(usize::MAX)))
            });
            held.sum::<f64>()
        });
        let busy = busy.unwrap_or(at_center.min(exact_f64(workers.min(population))));
        let throughput = solution.throughput[0];
        Device {
            name: format!("workers of {}", self.tier),
            servers: Some(exact_f64(workers)),
            visits: 1.0,
            service_time_s: if throughput > 0.0 { busy / throughput } else { 0.0 },
            utilization: Some(busy / exact_f64(workers)),
            number_at_center: Some(at_center),
            measured_utilization: None,
        }
    }
}

/// A network at one population.
struct Solved {
    throughput_per_s: f64,
    response_time_s: f64,
    devices: Vec<Device>,
}

struct Setup<'a> {
    curve: &'a [OperatingPoint],
    /// Indices of the points that the parameters were taken from.
    calibration: Vec<usize>,
    model: String,
    assumes: String,
    calibrated_on: String,
}

type Solve<'a> = &'a dyn Fn(u64, f64) -> Result<Solved, NetworkError>;

impl Setup<'_> {
    fn compare(&self, solve: Solve<'_>) -> Vec<Comparison> {
        if self.curve.iter().any(|point| point.population.is_none()) {
            return Vec::new();
        }
        let solved: Vec<Result<Solved, NetworkError>> = self
            .curve
            .iter()
            .map(|point| {
                let population = whole_u64(point.population.unwrap_or(0.0).round());
                solve(population, point.think_time_s)
            })
            .collect();
        vec![
            self.comparison(
                Variable::Throughput,
                &solved,
                |solved| solved.throughput_per_s,
                |point| point.client.throughput_per_s,
            ),
            self.comparison(
                Variable::ClientResponseTime,
                &solved,
                |solved| solved.response_time_s,
                |point| point.client.response_time_s,
            ),
        ]
    }

    fn comparison(
        &self,
        variable: Variable,
        solved: &[Result<Solved, NetworkError>],
        predicted: fn(&Solved) -> f64,
        measured: fn(&OperatingPoint) -> f64,
    ) -> Comparison {
        let points =
            self.curve.iter().zip(solved).enumerate().map(|(place, (point, solved))| Compared {
                load: point.load(),
                measured: measured(point),
                predicted: match solved {
                    Ok(solved) => Ok(predicted(solved)),
                    Err(error) => Err(error.to_string()),
                },
                calibration: self.calibration.contains(&place),
            });
        let last =
            self.curve.iter().zip(solved).rev().find_map(|(p, s)| Some((p, s.as_ref().ok()?)));
        let devices = last.map_or_else(Vec::new, |(point, solved)| beside(&solved.devices, point));
        let busiest = devices
            .iter()
            .filter(|device| device.utilization.is_some())
            .max_by(|a, b| a.utilization.unwrap_or(0.0).total_cmp(&b.utilization.unwrap_or(0.0)));
        let held_out = self.curve.len().saturating_sub(self.calibration.len());
        let caveats = if held_out < 3 {
            vec![format!("only {held_out} points were held out")]
        } else {
            vec![]
        };
        Comparison {
            model: self.model.clone(),
            assumes: self.assumes.clone(),
            calibrated_on: self.calibrated_on.clone(),
            variable,
            points: points.collect(),
            bottleneck: busiest.map(|device| device.name.clone()),
            devices,
            caveats,
        }
    }
}

/// The devices with what was measured of them at the same load.
fn beside(devices: &[Device], point: &OperatingPoint) -> Vec<Device> {
    let workers = point
        .first_tier()
        .filter(|tier| tier.workers > 0)
        .map(|tier| tier.workers_busy / f64::from(tier.workers));
    let cpu: f64 = point.processes.iter().map(|process| process.cpu_cores).sum();
    let cpu = (point.host_cores > 0.0 && cpu > 0.0).then(|| cpu / point.host_cores);
    devices
        .iter()
        .map(|device| Device {
            measured_utilization: match device.name.as_str() {
                name if name.starts_with("workers") => workers,
                name if name.starts_with("CPU") => cpu,
                _ => None,
            },
            ..device.clone()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::{ProcessView, View};

    const DELAY: f64 = 0.001;
    const SERVICE: f64 = 0.004;

    /// A system that is the first network itself: two instances of 4 workers behind a delay.
    fn textbook(populations: &[u64]) -> Vec<OperatingPoint> {
        let tier = TierView {
            name: "proxies".to_owned(),
            instances: 2,
            workers: 8,
            service_time_s: SERVICE,
            backend_time_s: Some(SERVICE),
            ..TierView::default()
        };
        let truth = Parts::new(2, &tier, DELAY, 0.0);
        populations
            .iter()
            .map(|&population| {
                let solved = truth.solve(population, 0.0).unwrap();
                let tier_view = View {
                    throughput_per_s: solved.throughput_per_s,
                    response_time_s: solved.response_time_s - DELAY,
                };
                OperatingPoint {
                    population: Some(exact_f64(population)),
                    client: View {
                        throughput_per_s: solved.throughput_per_s,
                        response_time_s: solved.response_time_s,
                    },
                    tiers: vec![TierView { view: tier_view, ..tier.clone() }],
                    ..OperatingPoint::default()
                }
            })
            .collect()
    }

    #[test]
    fn a_system_that_is_the_textbook_network_is_predicted_without_error() {
        let comparisons = threads_and_workers(&textbook(&[1, 4, 16, 64]));
        assert_eq!(comparisons.len(), 2);
        for comparison in comparisons {
            assert!(comparison.mean_absolute_error().unwrap() < 1e-9, "{comparison:?}");
            assert!(comparison.bottleneck.unwrap().starts_with("workers of proxies"));
        }
    }

    /// Workers enough, cores not: the pool's model says cores, and X → cores/D.
    #[test]
    fn full_cores_behind_idle_workers_are_named() {
        let point = |population: f64, throughput: f64, response: f64| OperatingPoint {
            population: Some(population),
            client: View { throughput_per_s: throughput, response_time_s: response },
            tiers: vec![TierView {
                name: "proxies".to_owned(),
                instances: 1,
                workers: 64,
                service_time_s: 0.001_2,
                workers_busy: throughput * 0.001_2,
                ..TierView::default()
            }],
            processes: vec![ProcessView {
                role: "proxies".to_owned(),
                instances: 1,
                cpu_cores: throughput * 0.000_2,
                cpu_cores_limit: 2.0,
                run_queue_wait: None,
            }],
            host_cores: 2.0,
            ..OperatingPoint::default()
        };
        let curve = [
            point(1.0, 450.0, 1.0 / 450.0),
            point(50.0, 9_700.0, 50.0 / 9_700.0),
            point(100.0, 9_990.0, 100.0 / 9_990.0),
        ];
        let comparisons = pool_and_cores(&curve);
        let throughput = &comparisons[0];
        assert_eq!(throughput.bottleneck.as_deref(), Some("CPU of the host"));
        let predicted = throughput.points[2].predicted.clone().unwrap();
        assert!((predicted / 10_000.0 - 1.0).abs() < 0.01, "{predicted}");
        assert_eq!(throughput.points.iter().filter(|p| p.calibration).count(), 2);
    }

    #[test]
    fn an_open_loop_is_not_a_closed_network() {
        let mut curve = textbook(&[1, 4]);
        curve[1].population = None;
        assert!(threads_and_workers(&curve).is_empty());
    }
}
