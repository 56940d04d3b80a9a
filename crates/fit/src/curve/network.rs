//! The closed system as a network of queues, solved exactly for every population of the curve.
//!
//! Two networks. The first is the textbook's: network as a delay, for each instance of the tier its
//! network thread and its workers, and behind them the processors of each server. It knows no
//! machine that they share, so it cannot see that full cores slow every worker down. The second knows the processor and that a worker is *held* while
//! the processor works: a pool of workers around a delay and the host's cores.

use kendall_protocols::snapshot::WORKER_THREAD;
use kendall_protocols::topology::Part;
use kendall_queueing::model::{Class, Model, ModelError, Pool, Station};
use kendall_queueing::solver::Solution;
use kendall_units::{Seconds, counted, exact_f64, whole_u64};

use crate::measured::{
    BATCHES, OperatingPoint, ProcessView, ThreadView, TierView, place_of_maximum,
};
use crate::model::Parameter;
use crate::resource::ResourceId;
use crate::score::{Compared, Comparison, Device, StandsFor, Variable};

use super::calibrated::{Builder, Solved, calibrated, customers, parameter, solved};

/// Delay, network threads, workers, and the processes behind them.
pub(super) fn threads_workers_servers(curve: &[OperatingPoint]) -> Vec<Comparison> {
    let Some((lowest, tier)) = curve.first().and_then(|p| Some((p, p.first_tier()?))) else {
        return Vec::new();
    };
    if curve.len() < 2 || tier.workers == 0 || tier.service_time_s <= 0.0 {
        return Vec::new();
    }
    let busiest = place_of_maximum(curve).unwrap_or(0);
    // A worker that serves ever more at once has no service time to keep: `layers` has a model.
    if curve[busiest].first_tier().is_some_and(|tier| tier.mean_batch() > BATCHES) {
        return Vec::new();
    }
    let parts = Parts::calibrated(lowest, &curve[busiest], tier);
    let calibration =
        if busiest > 0 && parts.knows_processors() { vec![0, busiest] } else { vec![0] };
    let setup = Setup {
        curve,
        calibration,
        model: format!("network: {}", parts.centers()),
        assumes: parts.assumes(),
        calibrated_on: parts.calibrated_on(lowest.load(), curve[busiest].load()),
    };
    setup.compare(&parts)
}

/// Delay outside, and a pool of workers around a delay and the host's cores.
pub(super) fn pool_and_cores(curve: &[OperatingPoint]) -> Vec<Comparison> {
    let Some(maximum) = place_of_maximum(curve).filter(|place| *place > 0) else {
        return Vec::new();
    };
    let Some(cores) = Cores::calibrated(&curve[0], &curve[maximum]) else { return Vec::new() };
    let pool = cores.workers.map_or_else(
        || "no worker limit".to_owned(),
        |workers| {
            format!(
                "a pool of {}, each held while the cores work for it",
                counted(workers, "worker")
            )
        },
    );
    let setup = Setup {
        curve,
        calibration: vec![0, maximum],
        model: "network: delay, worker pool, cores".to_owned(),
        assumes: format!(
            "{}, {pool}; the processor time of a request does not depend on the load",
            cores.shared()
        ),
        calibrated_on: format!(
            "delays from the lowest load (N = {}): {} outside the workers, {} while one is held; \
             processor time {} a request, all processes, from the highest throughput (N = {})",
            curve[0].load(),
            Seconds::new(cores.outside_s),
            Seconds::new(cores.inside_s),
            Seconds::new(cores.hosts.iter().map(|host| host.demand_s).sum()),
            curve[maximum].load()
        ),
    };
    setup.compare(&cores)
}

/// What a network thread needs for a request, and how it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum NetworkThread {
    /// By the operating system's account of the threads that are not workers.
    Measured { service_time_s: f64, threads_each: u64 },
    /// The process's CPU time less what its workers do themselves: workers wait for a core too, so
    /// this is a lower bound.
    AtLeast { service_time_s: f64 },
}

impl NetworkThread {
    pub(super) fn of(point: &OperatingPoint, tier: &TierView) -> Self {
        let throughput = point.client.throughput_per_s;
        let process = point.process(&tier.part()).filter(|process| !process.threads.is_empty());
        if let Some(process) = process.filter(|_| throughput > 0.0) {
            let others = || process.threads.iter().filter(|group| group.name != WORKER_THREAD);
            let cpu: f64 = others().map(|group| group.cpu_cores).sum();
            let busiest = others().max_by(|a, b| a.cpu_cores.total_cmp(&b.cpu_cores));
            let threads = busiest.map_or(1.0, |group| group.threads);
            let threads_each = whole_u64(threads) / u64::from(tier.instances.max(1));
            return Self::Measured {
                service_time_s: cpu / throughput,
                threads_each: threads_each.max(1),
            };
        }
        let own_work_s = (tier.service_time_s - tier.backend_time_s.unwrap_or(0.0)).max(0.0);
        let cpu_s = point.cpu_demand_s(&tier.part()).unwrap_or(0.0);
        Self::AtLeast { service_time_s: (cpu_s - own_work_s).max(0.0) }
    }

    pub(super) fn service_time_s(self) -> f64 {
        match self {
            Self::Measured { service_time_s, .. } | Self::AtLeast { service_time_s } => {
                service_time_s
            }
        }
    }

    pub(super) fn threads_each(self) -> u64 {
        match self {
            Self::Measured { threads_each, .. } => threads_each,
            Self::AtLeast { .. } => 1,
        }
    }
}

/// A tier behind the workers, as processors.
struct Backend {
    part: Part,
    instances: u64,
    threads_each: u64,
    /// CPU time that a request costs on all instances together.
    demand_s: f64,
}

/// The first network.
struct Parts {
    /// Lowest load, and that of the highest throughput.
    loads: (f64, f64),
    tier: String,
    instances: u64,
    workers_each: u64,
    delay_s: f64,
    thread: NetworkThread,
    service_time_s: f64,
    backends: Vec<Backend>,
}

impl Parts {
    /// Delay and the time that a worker is held from the lowest load, where nothing waits;
    /// processor times from the highest throughput, where U/X is surest.
    fn calibrated(lowest: &OperatingPoint, busiest: &OperatingPoint, tier: &TierView) -> Self {
        let thread = NetworkThread::of(busiest, busiest.first_tier().unwrap_or(tier));
        let backends: Vec<Backend> = busiest
            .backends()
            .filter_map(|process| {
                let demand_s =
                    busiest.cpu_demand_s(&process.part).filter(|demand| *demand > 0.0)?;
                let instances = u64::from(process.instances.max(1));
                // Threads that are not known are taken to be one a process.
                let threads = process.working_threads().map_or(instances, whole_u64);
                let threads_each = (threads / instances).max(1);
                Some(Backend { part: process.part.clone(), instances, threads_each, demand_s })
            })
            .collect();
        // The processors' times lie within what clients and workers wait for anyway. They are
        // taken off the delay, so that the light-load response time stays what was measured and
        // every center keeps its own bound on the throughput: 1/D, and W/S.
        let processors_s =
            thread.service_time_s() + backends.iter().map(|b| b.demand_s).sum::<f64>();
        let outside_s = lowest.client.response_time_s - tier.view.response_time_s - processors_s;
        let instances = u64::from(tier.instances.max(1));
        Self {
            loads: (lowest.load(), busiest.load()),
            tier: tier.name.clone(),
            instances,
            workers_each: (u64::from(tier.workers) / instances).max(1),
            delay_s: outside_s.max(0.0),
            thread,
            // Where there is no delay to take them off, they are part of what holds a worker.
            service_time_s: (tier.service_time_s + outside_s.min(0.0)).max(0.0),
            backends,
        }
    }

    fn knows_processors(&self) -> bool {
        !self.backends.is_empty() || matches!(self.thread, NetworkThread::Measured { .. })
    }

    /// `delay, network threads, workers, servers`.
    fn centers(&self) -> String {
        let mut centers = vec!["delay"];
        if self.thread.service_time_s() > 0.0 {
            centers.push("network threads");
        }
        centers.push("workers");
        centers.extend(self.backends.iter().map(|backend| backend.part.name.as_str()));
        centers.join(", ")
    }

    fn assumes(&self) -> String {
        let thread = if self.thread.service_time_s() > 0.0 { "network thread M/M/1, " } else { "" };
        let behind: Vec<String> = self
            .backends
            .iter()
            .map(|b| format!(", then {} × ({} M/M/{})", b.instances, b.part, b.threads_each))
            .collect();
        format!(
            "{} × ({thread}workers M/M/{}){} behind a delay; every service time stays what it was; \
             a worker is held for its whole service time, which includes what it waits for behind it",
            self.instances,
            self.workers_each,
            behind.concat()
        )
    }

    fn calibrated_on(&self, lowest: f64, busiest: f64) -> String {
        let thread = match self.thread {
            NetworkThread::Measured { service_time_s, .. } => format!(
                "{} of the network thread (CPU of the tier's threads that are not workers)",
                Seconds::new(service_time_s)
            ),
            NetworkThread::AtLeast { service_time_s } => format!(
                "at least {} of the network thread (CPU outside the workers; threads were not \
                 counted by themselves)",
                Seconds::new(service_time_s)
            ),
        };
        let behind: Vec<String> = self
            .backends
            .iter()
            .map(|b| format!(", {} of {}", Seconds::new(b.demand_s), b.part))
            .collect();
        format!(
            "the lowest load (N = {lowest}): worker held for {}, and {} of delay; processor time a \
             request from the highest throughput (N = {busiest}): {thread}{}",
            Seconds::new(self.service_time_s),
            Seconds::new(self.delay_s),
            behind.concat()
        )
    }

    /// Every center with its station, delay first.
    fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let visits = 1.0 / exact_f64(self.instances);
        let thread_s = self.thread.service_time_s();
        for (place, instance) in (1..=self.instances).enumerate() {
            if thread_s > 0.0 {
                let name = format!("network thread of {} {instance}", self.tier);
                places.push(Place {
                    shown: Some(name.clone()),
                    name,
                    stands_for: StandsFor::NetworkThreadsOf(self.tier.clone(), place),
                    servers: self.thread.threads_each(),
                    visits,
                    service_time_s: thread_s,
                });
            }
            let name = format!("workers of {} {instance}", self.tier);
            places.push(Place {
                shown: Some(name.clone()),
                name,
                stands_for: StandsFor::WorkersOf(self.tier.clone(), place),
                servers: self.workers_each,
                visits,
                service_time_s: self.service_time_s,
            });
        }
        for backend in &self.backends {
            for instance in 1..=backend.instances {
                let each = if backend.instances > 1 { "each of " } else { "" };
                places.push(Place {
                    name: format!("CPU of {} {instance}", backend.part),
                    // Of equal centers one is shown.
                    shown: (instance == 1).then(|| format!("{each}{}", backend.part)),
                    stands_for: StandsFor::Resource(ResourceId::Cpu(backend.part.clone())),
                    servers: backend.threads_each,
                    visits: 1.0 / exact_f64(backend.instances),
                    service_time_s: backend.demand_s,
                });
            }
        }
        places
    }
}

impl Builder for Parts {
    fn model(&self, name: &str, class: Class) -> Result<Model, ModelError> {
        let delay = Station::delay("network").with_service_time(0, self.delay_s);
        let queue = |place: Place| {
            Station::queue(&place.name, place.servers)
                .with_service_time(0, place.service_time_s)
                .with_visits(0, place.visits)
        };
        let stations = std::iter::once(delay).chain(self.places().into_iter().map(queue));
        Model::new(name, vec![class], stations.collect())
    }

    fn devices(&self, solution: &Solution) -> Vec<Device> {
        let throughput = solution.classes[0].throughput;
        let mut devices = vec![delay_device("network", self.delay_s, throughput)];
        for (place, found) in self.places().into_iter().zip(solution.stations.iter().skip(1)) {
            let Some(name) = place.shown else { continue };
            devices.push(Device {
                name,
                stands_for: Some(place.stands_for),
                servers: Some(exact_f64(place.servers)),
                visits: place.visits,
                service_time_s: place.service_time_s,
                utilization: Some(found.utilization.iter().sum()),
                number_at_center: Some(found.number.iter().sum()),
                measured_utilization: None,
            });
        }
        devices
    }

    fn parameters(&self) -> Vec<Parameter> {
        let (low, high) = self.loads;
        let workers = format!("workers of {}", self.tier);
        let thread = format!("network thread of {}", self.tier);
        let mut parameters = vec![
            parameter(
                "network",
                "service_time_s",
                self.delay_s,
                &[low],
                "R of the clients less R of the tier and the processor times below",
            ),
            parameter(
                &workers,
                "servers",
                exact_f64(self.workers_each),
                &[],
                "the study's setting, of each instance",
            ),
            parameter(
                &workers,
                "service_time_s",
                self.service_time_s,
                &[low],
                "time that a worker is held, where nothing waits",
            ),
        ];
        if self.thread.service_time_s() > 0.0 {
            let rule = match self.thread {
                NetworkThread::Measured { .. } => "U/X of the tier's threads that are not workers",
                NetworkThread::AtLeast { .. } => {
                    "CPU of the tier less what its workers do themselves, a lower bound"
                }
            };
            parameters.push(parameter(
                &thread,
                "service_time_s",
                self.thread.service_time_s(),
                &[high],
                rule,
            ));
        }
        parameters.extend(self.backends.iter().map(|backend| {
            let of = format!("CPU of {}", backend.part);
            parameter(&of, "service_time_s", backend.demand_s, &[high], "U/X of its processes")
        }));
        parameters
    }
}

/// A center of the first network.
struct Place {
    name: String,
    /// As a device; `None` where an equal one is shown.
    shown: Option<String>,
    stands_for: StandsFor,
    servers: u64,
    visits: f64,
    service_time_s: f64,
}

pub(super) fn delay_device(name: &str, delay_s: f64, throughput_per_s: f64) -> Device {
    Device {
        name: name.to_owned(),
        stands_for: None,
        servers: None,
        visits: 1.0,
        service_time_s: delay_s,
        utilization: None,
        number_at_center: Some(throughput_per_s * delay_s),
        measured_utilization: None,
    }
}

/// The second network.
struct Cores {
    /// Lowest load, and that of the highest throughput.
    loads: (f64, f64),
    tier: String,
    hosts: Vec<HostCores>,
    workers: Option<u64>,
    outside_s: f64,
    inside_s: f64,
}

/// Cores that are shared by what is placed on one host, and not beyond it.
struct HostCores {
    id: ResourceId,
    name: String,
    cores: u64,
    demand_s: f64,
    /// Whether a worker is held while they work: not where there are generators alone.
    held: bool,
}

impl HostCores {
    /// Of each host that does something for a request.
    fn all(busiest: &OperatingPoint) -> Option<Vec<Self>> {
        let throughput = busiest.client.throughput_per_s;
        if busiest.hosts.is_empty() {
            let cores = whole_u64(busiest.host_cores);
            let demand_s = busiest.cpu_demand_total_s();
            let demand_s = demand_s.filter(|demand| *demand > 0.0 && cores > 0)?;
            let name = "CPU of the host".to_owned();
            return Some(vec![Self { id: ResourceId::Host, name, cores, demand_s, held: true }]);
        }
        let used = busiest.hosts.iter().filter(|host| host.own_cores > 0.0);
        let all: Vec<Self> = used
            .map(|host| Self {
                id: ResourceId::HostOf(host.name.clone()),
                name: format!("CPU of host {}", host.name),
                cores: whole_u64(host.cores),
                demand_s: host.own_cores / throughput,
                held: host.own_cores > host.generator_cores,
            })
            .collect();
        let known = throughput > 0.0 && !all.is_empty() && all.iter().all(|host| host.cores > 0);
        known.then_some(all)
    }
}

impl Cores {
    /// Delays from the lowest load, processor time from the highest throughput.
    fn calibrated(lowest: &OperatingPoint, busiest: &OperatingPoint) -> Option<Self> {
        let hosts = HostCores::all(busiest)?;
        let demand_s: f64 = hosts.iter().map(|host| host.demand_s).sum();
        let at_rest_s = lowest.cpu_demand_total_s().unwrap_or(demand_s);
        let delay_s = (lowest.client.response_time_s - at_rest_s).max(0.0);
        let tier = lowest.first_tier().filter(|tier| tier.workers > 0);
        // While a worker is held, the processor works for the tier and its backends.
        let generator_s = lowest.cpu_demand_s(&Part::generator()).unwrap_or(0.0);
        let inside_s = tier.map_or(0.0, |tier| {
            (tier.service_time_s - (at_rest_s - generator_s)).clamp(0.0, delay_s)
        });
        Some(Self {
            loads: (lowest.load(), busiest.load()),
            tier: tier.map_or_else(String::new, |tier| tier.name.clone()),
            hosts,
            workers: tier.map(|tier| u64::from(tier.workers)),
            outside_s: delay_s - inside_s,
            inside_s,
        })
    }

    /// Who shares which cores.
    fn shared(&self) -> String {
        match self.hosts.as_slice() {
            [host] => format!("{} that all processes share", counted(host.cores, "core")),
            hosts => {
                let of = |host: &HostCores| format!("{}: {}", host.name, host.cores);
                let all: Vec<String> = hosts.iter().map(of).collect();
                format!("cores that the processes on one host share ({})", all.join(", "))
            }
        }
    }

    fn pool_name(&self) -> String {
        format!("workers of {}", self.tier)
    }
}

impl Builder for Cores {
    fn model(&self, name: &str, class: Class) -> Result<Model, ModelError> {
        let delay = |name: &str, time_s: f64| Station::delay(name).with_service_time(0, time_s);
        let mut stations = vec![delay("outside the workers", self.outside_s)];
        let mut held = Vec::new();
        for host in &self.hosts {
            if host.held {
                held.push(stations.len());
            }
            let station = Station::queue(&host.name, host.cores);
            stations.push(station.with_service_time(0, host.demand_s));
        }
        held.push(stations.len());
        let Some(workers) = self.workers else {
            return Model::new(name, vec![class], stations);
        };
        stations.push(delay("held while others work", self.inside_s));
        Model::new(name, vec![class], stations)?.with_pools(vec![Pool {
            name: self.pool_name(),
            tokens: workers,
            stations: held,
            classes: vec![0],
            queue_capacity: None,
        }])
    }

    fn devices(&self, solution: &Solution) -> Vec<Device> {
        let throughput = solution.classes[0].throughput;
        let mut devices = vec![delay_device("outside the workers", self.outside_s, throughput)];
        devices.extend(self.hosts.iter().map(|host| Device {
            name: host.name.clone(),
            stands_for: Some(StandsFor::Resource(host.id.clone())),
            servers: Some(exact_f64(host.cores)),
            visits: 1.0,
            service_time_s: host.demand_s,
            utilization: Some(throughput * host.demand_s / exact_f64(host.cores)),
            number_at_center: None,
            measured_utilization: None,
        }));
        if let (Some(workers), Some(pool)) = (self.workers, solution.pools.first()) {
            devices.push(Device {
                name: self.pool_name(),
                stands_for: Some(StandsFor::Resource(ResourceId::Workers(self.tier.clone()))),
                servers: Some(exact_f64(workers)),
                visits: 1.0,
                service_time_s: if throughput > 0.0 { pool.in_use / throughput } else { 0.0 },
                utilization: Some(pool.utilization),
                number_at_center: Some(pool.in_use + pool.number_waiting),
                measured_utilization: None,
            });
        }
        devices
    }

    fn parameters(&self) -> Vec<Parameter> {
        let (low, high) = self.loads;
        let mut parameters = vec![parameter(
            "outside the workers",
            "service_time_s",
            self.outside_s,
            &[low],
            "R of the clients less processor time and the time below",
        )];
        for host in &self.hosts {
            let (name, cores) = (&host.name, exact_f64(host.cores));
            parameters.push(parameter(name, "servers", cores, &[], "cores of the host"));
            let origin = "U·m/X of all measured processes";
            parameters.push(parameter(name, "service_time_s", host.demand_s, &[high], origin));
        }
        if let Some(workers) = self.workers {
            let pool = self.pool_name();
            parameters.push(parameter(
                &pool,
                "tokens",
                exact_f64(workers),
                &[],
                "the study's setting, all instances",
            ));
            parameters.push(parameter(
                "held while others work",
                "service_time_s",
                self.inside_s,
                &[low],
                "time that a worker is held less processor time",
            ));
        }
        parameters
    }
}

pub(super) struct Setup<'a> {
    pub(super) curve: &'a [OperatingPoint],
    /// Indices of the points that the parameters were taken from.
    pub(super) calibration: Vec<usize>,
    pub(super) model: String,
    pub(super) assumes: String,
    pub(super) calibrated_on: String,
}

impl Setup<'_> {
    pub(super) fn compare(&self, builder: &dyn Builder) -> Vec<Comparison> {
        if self.curve.iter().any(|point| point.population.is_none()) {
            return Vec::new();
        }
        let solved: Vec<Result<Solved, String>> =
            self.curve.iter().map(|point| solved(builder, &self.model, customers(point))).collect();
        let busiest = place_of_maximum(self.curve).map(|place| customers(&self.curve[place]));
        let handed_on = busiest.and_then(|class| calibrated(builder, &self.model, class));
        let comparisons = [
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
        ];
        comparisons
            .into_iter()
            .map(|one| Comparison { calibrated: handed_on.clone(), ..one })
            .collect()
    }

    fn comparison(
        &self,
        variable: Variable,
        solved: &[Result<Solved, String>],
        predicted: fn(&Solved) -> f64,
        measured: fn(&OperatingPoint) -> f64,
    ) -> Comparison {
        let points =
            self.curve.iter().zip(solved).enumerate().map(|(place, (point, solved))| Compared {
                load: point.load(),
                measured: measured(point),
                predicted: match solved {
                    Ok(solved) => Ok(predicted(solved)),
                    Err(why) => Err(why.clone()),
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
            vec![format!("held out: only {}", counted(held_out, "point"))]
        } else {
            vec![]
        };
        Comparison {
            model: self.model.clone(),
            family: self.model.clone(),
            assumes: self.assumes.clone(),
            calibrated_on: self.calibrated_on.clone(),
            variable,
            points: points.collect(),
            bottleneck: busiest.map(|device| device.name.clone()),
            devices,
            caveats,
            calibrated: None,
            solutions: Vec::new(),
        }
    }
}

/// The devices with what was measured of them at the same load.
fn beside(devices: &[Device], point: &OperatingPoint) -> Vec<Device> {
    devices
        .iter()
        .map(|device| Device {
            measured_utilization: measured_utilization(device.stands_for.as_ref(), point),
            ..device.clone()
        })
        .collect()
}

/// Measured utilization of the resource that a device represents; found by its identity, not its name.
fn measured_utilization(of: Option<&StandsFor>, point: &OperatingPoint) -> Option<f64> {
    let tier = |name: &String| point.tiers.iter().find(|tier| tier.name == *name);
    match of? {
        StandsFor::System => None,
        StandsFor::NetworkThreads(of) => {
            network_threads(point.process(&tier(of)?.part())?, |group| Some(group.cpu_cores))
        }
        StandsFor::NetworkThreadsOf(of, instance) => {
            let process = point.process(&tier(of)?.part())?;
            let each = f64::from(process.instances.max(1));
            let of_all = |group: &ThreadView| Some(each * group.each_cores.get(*instance)?);
            network_threads(process, of_all)
        }
        StandsFor::WorkersOf(of, instance) => {
            let tier = tier(of).filter(|tier| tier.workers > 0)?;
            let each = f64::from(tier.workers) / f64::from(tier.instances.max(1));
            Some(tier.instances_busy.get(*instance)? / each)
        }
        StandsFor::Resource(ResourceId::Workers(of)) => {
            let tier = tier(of).filter(|tier| tier.workers > 0)?;
            Some(tier.workers_busy / f64::from(tier.workers))
        }
        StandsFor::Resource(ResourceId::Connections { of, .. }) => {
            let of = tier(of)?.connections.as_ref().filter(|of| of.connections > 0)?;
            Some(of.busy() / f64::from(of.connections))
        }
        StandsFor::Resource(ResourceId::Host) => {
            let cpu: f64 = point.processes.iter().map(|process| process.cpu_cores).sum();
            (point.host_cores > 0.0 && cpu > 0.0).then(|| cpu / point.host_cores)
        }
        StandsFor::Resource(ResourceId::HostOf(name)) => {
            let host = point.hosts.iter().find(|host| host.name == *name)?;
            (host.cores > 0.0 && host.own_cores > 0.0).then(|| host.own_cores / host.cores)
        }
        StandsFor::Resource(ResourceId::Link(_)) => None,
        StandsFor::Resource(ResourceId::Cpu(part)) => {
            let process = point.process(part)?;
            let threads = process.working_threads().unwrap_or(f64::from(process.instances));
            (threads > 0.0).then(|| process.busy_cores() / threads)
        }
    }
}

/// Busy share of the threads of a process that are not workers, by the CPU of each group of them.
fn network_threads(process: &ProcessView, cpu: impl Fn(&ThreadView) -> Option<f64>) -> Option<f64> {
    let others = || process.threads.iter().filter(|group| group.name != WORKER_THREAD);
    let busiest = others().max_by(|a, b| a.cpu_cores.total_cmp(&b.cpu_cores))?;
    let cpu: f64 = others().map(cpu).sum::<Option<f64>>()?;
    (busiest.threads > 0.0).then(|| cpu / busiest.threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::View;

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
        let truth = Parts {
            loads: (1.0, 64.0),
            tier: "proxies".to_owned(),
            instances: 2,
            workers_each: 4,
            delay_s: DELAY,
            thread: NetworkThread::AtLeast { service_time_s: 0.0 },
            service_time_s: SERVICE,
            backends: Vec::new(),
        };
        populations
            .iter()
            .map(|&population| {
                let solved =
                    solved(&truth, "truth", Class::closed("customers", population, 0.0)).unwrap();
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
        let comparisons = threads_workers_servers(&textbook(&[1, 4, 16, 64]));
        assert_eq!(comparisons.len(), 2);
        for comparison in comparisons {
            assert!(comparison.errors().unwrap().mean < 1e-9, "{comparison:?}");
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
                part: Part { name: "proxies".to_owned(), ..Part::default() },
                instances: 1,
                cpu_cores: throughput * 0.000_2,
                cpu_cores_limit: 2.0,
                ..ProcessView::default()
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

    /// A proxy whose one thread needs 50 µs and whose three servers need 90 µs of CPU between them:
    /// both are centers, with the utilization that the operating system saw, and light load keeps
    /// the response time that was measured.
    #[test]
    fn the_network_thread_and_the_servers_are_centers_of_their_own() {
        let point = |population: f64, throughput: f64, response: f64| {
            let thread = |name: &str, threads, cpu_cores| ThreadView {
                name: name.to_owned(),
                threads,
                cpu_cores,
                each_cores: vec![cpu_cores],
                ..ThreadView::default()
            };
            let process = |name: &str, instances, threads: Vec<_>, each_s: f64| ProcessView {
                part: Part { name: name.to_owned(), ..Part::default() },
                instances,
                cpu_cores: throughput * each_s,
                threads,
                ..ProcessView::default()
            };
            OperatingPoint {
                population: Some(population),
                client: View { throughput_per_s: throughput, response_time_s: response },
                tiers: vec![TierView {
                    name: "proxies".to_owned(),
                    instances: 1,
                    workers: 64,
                    view: View { throughput_per_s: throughput, response_time_s: response - 0.001 },
                    service_time_s: 0.001,
                    workers_busy: throughput * 0.001,
                    ..TierView::default()
                }],
                processes: vec![
                    process("proxies", 1, vec![thread("network", 1.0, throughput * 50e-6)], 50e-6),
                    process(
                        "servers",
                        3,
                        vec![thread("mc-worker", 3.0, throughput * 90e-6)],
                        90e-6,
                    ),
                ],
                ..OperatingPoint::default()
            }
        };
        let curve =
            [point(1.0, 500.0, 0.002), point(16.0, 7_000.0, 0.0023), point(64.0, 19_000.0, 0.0034)];
        let comparison = &threads_workers_servers(&curve)[0];
        assert_eq!(comparison.model, "network: delay, network threads, workers, servers");
        assert_eq!(comparison.bottleneck.as_deref(), Some("network thread of proxies 1"));
        let light = comparison.points[0].predicted.clone().unwrap();
        assert!((light / 500.0 - 1.0).abs() < 1e-9, "{light}");
        let device = |name: &str| comparison.devices.iter().find(|d| d.name == name).unwrap();
        let thread = device("network thread of proxies 1");
        assert!((thread.measured_utilization.unwrap() - 0.95).abs() < 1e-9);
        let server = device("each of servers");
        assert!(
            (server.visits - 1.0 / 3.0).abs() < 1e-12
                && (server.service_time_s - 90e-6).abs() < 1e-12
        );
        assert!((server.measured_utilization.unwrap() - 0.57).abs() < 1e-9);
    }

    /// A backend may be called `workers`: what was measured of it is its own CPU and not the pool of
    /// the proxy before it.
    #[test]
    fn a_backend_is_not_taken_for_the_pool_by_its_name() {
        for name in ["workers", "caches", "connections", "CPU", "network thread"] {
            let point = |population: f64, throughput: f64, response: f64| OperatingPoint {
                population: Some(population),
                client: View { throughput_per_s: throughput, response_time_s: response },
                tiers: vec![TierView {
                    name: "proxies".to_owned(),
                    instances: 1,
                    workers: 4,
                    view: View { throughput_per_s: throughput, response_time_s: response },
                    service_time_s: 0.001,
                    workers_busy: throughput * 0.001,
                    instances_busy: vec![throughput * 0.001],
                    ..TierView::default()
                }],
                processes: vec![ProcessView {
                    part: Part { name: name.to_owned(), ..Part::default() },
                    instances: 1,
                    cpu_cores: 0.128 * throughput / 3_900.0,
                    ..ProcessView::default()
                }],
                ..OperatingPoint::default()
            };
            let curve = [point(1.0, 900.0, 0.001_1), point(32.0, 3_900.0, 0.008)];
            let comparison = &threads_workers_servers(&curve)[0];
            let device = comparison.devices.iter().find(|device| device.name == name).unwrap();
            assert!((device.measured_utilization.unwrap() - 0.128).abs() < 1e-9, "{device:?}");
            let pool = comparison.devices.iter().find(|d| d.name == "workers of proxies 1");
            assert!((pool.unwrap().measured_utilization.unwrap() - 0.975).abs() < 1e-9);
        }
    }

    /// Two proxies of four workers and a network thread each, of which one has more of the requests.
    #[test]
    fn each_instance_stands_beside_what_was_measured_of_it() {
        let mut curve = textbook(&[1, 16]);
        for point in &mut curve {
            point.tiers[0].instances = 2;
            point.tiers[0].workers = 8;
            point.tiers[0].instances_busy = vec![3.6, 2.0];
            point.processes = vec![ProcessView {
                part: point.tiers[0].part(),
                instances: 2,
                cpu_cores: 0.9,
                threads: vec![ThreadView {
                    name: "network".to_owned(),
                    threads: 2.0,
                    cpu_cores: 0.9,
                    each_cores: vec![0.6, 0.3],
                    ..ThreadView::default()
                }],
                ..ProcessView::default()
            }];
        }
        let comparison = &threads_workers_servers(&curve)[0];
        let measured = |name: &str| {
            let device = comparison.devices.iter().find(|device| device.name == name).unwrap();
            device.measured_utilization.unwrap()
        };
        let tier = curve[0].tiers[0].name.clone();
        assert!((measured(&format!("workers of {tier} 1")) - 0.9).abs() < 1e-12);
        assert!((measured(&format!("workers of {tier} 2")) - 0.5).abs() < 1e-12);
        assert!((measured(&format!("network thread of {tier} 1")) - 0.6).abs() < 1e-12);
        assert!((measured(&format!("network thread of {tier} 2")) - 0.3).abs() < 1e-12);
    }

    #[test]
    fn an_open_loop_is_not_a_closed_network() {
        let mut curve = textbook(&[1, 4]);
        curve[1].population = None;
        assert!(threads_workers_servers(&curve).is_empty());
    }
}
