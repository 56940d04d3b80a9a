//! Which resource limits the throughput, and what speaks for it.
//!
//! There are two kinds of resources. A core is hardware. A worker pool is software: a worker
//! is *held* while layers below it are visited, so a full pool in front of a full processor is a
//! symptom, not the cause.

use kendall_protocols::topology::Role;
use serde::{Deserialize, Serialize};

use crate::measured::{BATCHES, HostView, LinkView, OperatingPoint, ProcessView, TierView};
use crate::resource::{ResourceId, ResourceKind};

/// How busy one resource was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    pub id: ResourceId,
    /// What it is called in the report.
    pub name: String,
    /// Hardware or software.
    pub kind: ResourceKind,
    /// Mean number of servers that were busy.
    pub busy: f64,
    /// Number of servers.
    pub servers: f64,
    /// `busy / servers`.
    pub utilization: f64,
    /// V: how often a request visits it. A batch is one visit for all its requests; of a processor,
    /// all that it does for a request counts as one.
    pub visits: f64,
    /// D = busy/X = V·S: what one request needs of it.
    pub demand_s: Option<f64>,
    /// Requests that waited for it, where known.
    pub queue_length: Option<f64>,
    /// Mean time that a request waited for it, where known.
    pub waiting_time_s: Option<f64>,
}

/// The resource that limits, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// Every resource that was measured, busiest first.
    pub resources: Vec<Resource>,
    /// Name of the one that limits; `None` when nothing measured is near its limit.
    pub limiting: Option<String>,
    /// What speaks for it, in words with figures.
    pub evidence: Vec<String>,
    /// The load generator is among the busiest: what was measured may be the generator's limit.
    pub generator_suspected: bool,
    /// Programs outside the study used much of the host.
    pub disturbed: bool,
    /// Why the limit cannot be determined, and what would show it; `None` where it can.
    pub cannot_tell: Option<String>,
}

impl Resource {
    /// S = D/V: time of one visit.
    pub fn service_time_s(&self) -> Option<f64> {
        self.demand_s.filter(|_| self.visits > 0.0).map(|demand| demand / self.visits)
    }

    /// Visits a second, by the utilization law: busy/S.
    pub fn throughput_per_s(&self) -> Option<f64> {
        self.service_time_s().filter(|time| *time > 0.0).map(|time| self.busy / time)
    }
}

/// Utilization from which a resource is taken to limit. At 0.9 an M/M/1 already holds a request
/// ten times its service time; the highest of several is named only above it.
pub const LIMITING: f64 = 0.9;

/// Share of the host's busy time, used by programs outside the study, from which they are reported. Below
/// it lie the kernel's own threads and interrupts, which no process accounts for.
const OTHERS_DISTURB: f64 = 0.2;

/// The system's own resource that leaves the least to gain, if it is at least `least` busy: by the
/// utilization law X = U·m/D, no more than 1/U − 1 of today's throughput can be added while a
/// request needs as much of it. The load generator and a host that others use do not count.
pub fn full_resource(point: &OperatingPoint, least: f64) -> Option<Resource> {
    let harness =
        |id: &ResourceId| matches!(id, ResourceId::Cpu(part) if !part.role.is_of_the_system());
    resources(point)
        .into_iter()
        .filter(|resource| resource.utilization >= least)
        .filter(|resource| !is_disturbed(point, &resource.id))
        .filter(|resource| !harness(&resource.id) && !is_of_generators(point, &resource.id))
        .max_by(|a, b| a.utilization.total_cmp(&b.utilization))
}

/// Finds the limiting resource of one operating point.
pub fn bottleneck(point: &OperatingPoint) -> Bottleneck {
    let mut resources = resources(point);
    resources.sort_by(|a, b| b.utilization.total_cmp(&a.utilization));
    // Among what is near its limit, hardware explains software: a pool is held while cores work.
    // A whole host at its limit explains each process on it.
    let near = |kind| {
        resources.iter().find(|resource| resource.kind == kind && resource.utilization >= LIMITING)
    };
    let others = disturbing_share(point);
    // Cores that others filled do not explain what the system's own resources do.
    let host = || near(ResourceKind::HostCpu);
    let full_of_own = |resource: &&Resource| {
        resource.kind == ResourceKind::HostCpu
            && resource.utilization >= LIMITING
            && !is_disturbed(point, &resource.id)
            && !is_of_generators(point, &resource.id)
    };
    let limiting = resources
        .iter()
        .find(full_of_own)
        .or_else(|| near(ResourceKind::ProcessCpu))
        .or_else(|| near(ResourceKind::Bandwidth))
        .or_else(|| near(ResourceKind::ConnectionPool).filter(|pool| waited_for(pool)))
        .or_else(|| near(ResourceKind::WorkerPool));
    let cannot_tell = others.filter(|_| limiting.is_none() && host().is_some()).map(|share| {
        format!(
            "programs outside the study took {:.0} % of the busy cores' time, so a full host says \
             nothing about the system; a quieter machine would tell",
            100.0 * share
        )
    });
    let generator_suspected = resources.iter().any(|resource| {
        let is_generator =
            matches!(&resource.id, ResourceId::Cpu(part) if part.role == Role::Generator);
        resource.utilization >= LIMITING && (is_generator || is_of_generators(point, &resource.id))
    });
    let mut evidence = Vec::new();
    match (limiting, &cannot_tell) {
        (Some(resource), _) => {
            evidence.push(busy_sentence(resource) + &largest_user(point, resource));
        }
        (None, Some(why)) => evidence.push(format!("cannot tell: {why}")),
        (None, None) => evidence.extend(nothing_near(&resources, point)),
    }
    evidence.extend(held_workers(point));
    evidence.extend(shares_of_cpu(point, limiting));
    if let Some(share) = others.filter(|_| cannot_tell.is_none()) {
        evidence.push(format!(
            "{:.0} % of the busy cores' time went to programs outside the study: on a quiet \
             machine the system's limit may lie higher",
            100.0 * share
        ));
    }
    if generator_suspected {
        evidence.push(
            "the load generator itself is at its limit, so the system's own limit may lie higher"
                .to_owned(),
        );
    }
    let limiting = limiting.map(|resource| resource.name.clone());
    let disturbed = others.is_some();
    Bottleneck { resources, limiting, evidence, generator_suspected, disturbed, cannot_tell }
}

/// Share of the host's busy time that programs outside the study took, where they delayed what was
/// measured; of several hosts, the largest. A service that sleeps uses little of a machine: most of its
/// busy time is then others', which is no sign of a disturbance. They disturb where they may have kept the study's
/// threads waiting for a notable share of the response time, or where the machine had no core left.
pub fn disturbing_share(point: &OperatingPoint) -> Option<f64> {
    let there = of_others(point).into_iter().filter(|others| {
        let full = others.utilization >= LIMITING && others.share > OTHERS_DISTURB;
        full || others.delays()
    });
    there.map(|others| others.share).reduce(f64::max)
}

/// Whether programs outside the study may have kept its threads waiting for a notable share of the
/// response time.
pub fn is_delayed(point: &OperatingPoint) -> bool {
    of_others(point).iter().any(Others::delays)
}

/// Cores that programs outside the study used, on all hosts together.
pub fn cores_of_others(point: &OperatingPoint) -> f64 {
    of_others(point).iter().map(|others| others.cores).sum()
}

/// Cores that programs outside the study used, and the largest share of the response time by which
/// they can have delayed requests; `None` where that is not known or none did.
pub fn others_in_words(point: &OperatingPoint) -> Option<String> {
    let worst = of_others(point)
        .into_iter()
        .filter(|others| others.share > OTHERS_DISTURB)
        .max_by(|a, b| a.delay.total_cmp(&b.delay))?;
    Some(format!(
        "other programs used {:.2} cores, which can have delayed requests by at most {:.1} %",
        worst.cores,
        100.0 * worst.delay
    ))
}

/// Parts of the system, without the load and the study.
fn of_system(point: &OperatingPoint) -> impl Iterator<Item = &ProcessView> {
    point.processes.iter().filter(|process| process.part.role.is_of_the_system())
}

fn used_cores(point: &OperatingPoint) -> f64 {
    of_system(point).map(|process| process.cpu_cores).sum()
}

/// Threads of the system that ran or waited for a core, on average; `None` where nothing says who waited, or no process
/// of it is seen.
pub fn ready_threads(point: &OperatingPoint) -> Option<f64> {
    let waited = of_system(point).map(|process| process.run_queue_wait);
    waited.reduce(|a, b| Some(a? + b?))?.map(|waited| used_cores(point) + waited)
}

/// Share of the response time by which other programs may have delayed requests, from which it is
/// said.
const DELAY_DISTURBS: f64 = 0.05;
/// Share of a host's cores that they must have used for that: where a request now and then is all that runs, its own
/// wake-ups are its waits, and the kernel's threads most of what else computes.
const LEAST_TAKEN: f64 = 0.05;

/// What a stolen core delays, over the response time: of runs of one configuration, those with 0.06 to 0.12 of a core
/// stolen were 9 to 11 % slower than those with none, those with 0.2 and more 26 to 40 %.
const STOLEN_DELAYS: f64 = 1.3;
/// A run that weighs less than this is called disturbed.
pub const DISTURBED: f64 = 0.5;

/// What a run weighs beside an undisturbed one, as the variance of such a one over its own: by what other programs delayed
/// its requests, and by what was stolen from its hosts, in cores.
pub fn weight(point: &OperatingPoint, stolen_cores: f64) -> f64 {
    let delays = of_others(point).iter().map(|others| others.delay).fold(0.0, f64::max);
    let off = delays + STOLEN_DELAYS * stolen_cores.max(0.0);
    1.0 / (1.0 + (off / DELAY_DISTURBS).powi(2))
}

/// What programs outside the study did on one host.
struct Others {
    cores: f64,
    /// Share of the busy time.
    share: f64,
    /// Utilization of the host by all.
    utilization: f64,
    /// Threads of the study that waited for a core, over the requests in the system, times the share
    /// of the busy time that was others': their part of the waiting, over the response time.
    delay: f64,
}

impl Others {
    /// Whether they may have delayed requests notably.
    fn delays(&self) -> bool {
        self.delay > DELAY_DISTURBS && self.share * self.utilization > LEAST_TAKEN
    }
}

fn of_others(point: &OperatingPoint) -> Vec<Others> {
    let requests = point.client.throughput_per_s * point.client.response_time_s;
    let others = |cores: f64, busy: f64, own: f64, waiting: Option<f64>| {
        let share = foreign(busy, own)?;
        // Where nothing says who waited, all that others did may have delayed something.
        let waiting = waiting.filter(|_| requests > 0.0).map_or(1.0, |wait| wait / requests);
        let delay = share * waiting.min(1.0);
        let utilization = if cores > 0.0 { busy / cores } else { 1.0 };
        Some(Others { cores: share * busy, share, utilization, delay })
    };
    let own: f64 = point.processes.iter().map(|process| process.cpu_cores).sum();
    let waits = point.processes.iter().map(|process| process.run_queue_wait).sum();
    let host = point.host_busy_cores.and_then(|busy| others(point.host_cores, busy, own, waits));
    let hosts = point.hosts.iter().filter_map(|host| {
        others(host.cores, host.busy_cores, host.own_cores, host.run_queue_wait)
    });
    host.into_iter().chain(hosts).collect()
}

/// Share of the busy time of cores that no process of the study accounts for.
fn foreign(busy_cores: f64, own_cores: f64) -> Option<f64> {
    let known = busy_cores > 0.0 && own_cores > 0.0;
    known.then(|| (1.0 - own_cores / busy_cores).max(0.0))
}

/// That share of one of several hosts.
fn others_there(host: &HostView) -> Option<f64> {
    foreign(host.busy_cores, host.own_cores)
}

fn host_of<'a>(point: &'a OperatingPoint, id: &ResourceId) -> Option<&'a HostView> {
    let ResourceId::HostOf(name) = id else { return None };
    point.hosts.iter().find(|host| host.name == *name)
}

/// Share of a host's cores that the system must have used for its waiting threads to count: what sleeps
/// most of the time waits for a core, too, where others filled them.
const LEAST_USED: f64 = 0.25;

/// Whether others than the study filled a host enough for its load to be no evidence about the system. Where the system
/// used a notable part of it and as many of its threads were ready as there are cores, it would have filled
/// them by itself.
fn is_disturbed(point: &OperatingPoint, id: &ResourceId) -> bool {
    let (share, used, ready, cores) = match (id, host_of(point, id)) {
        (ResourceId::Host, _) => {
            (others_share(point), used_cores(point), ready_threads(point), point.host_cores)
        }
        (_, Some(host)) => {
            let waited = host.run_queue_wait.filter(|_| host.generator_cores <= 0.0);
            let ready = waited.map(|waited| host.own_cores + waited);
            (others_there(host), host.own_cores, ready, host.cores)
        }
        (_, None) => return false,
    };
    let wants = |ready: f64| ready >= LIMITING * cores && used >= LEAST_USED * cores;
    share.is_some_and(|share| share > OTHERS_DISTURB) && !ready.is_some_and(wants)
}

/// Whether a host has nothing of the system, but load generators: its limit is theirs.
fn is_of_generators(point: &OperatingPoint, id: &ResourceId) -> bool {
    const NEARLY_ALL: f64 = 0.99;
    host_of(point, id).is_some_and(|host| {
        host.generator_cores > 0.0 && host.generator_cores > NEARLY_ALL * host.own_cores
    })
}

/// That share of the host, where there is one.
fn others_share(point: &OperatingPoint) -> Option<f64> {
    foreign(point.host_busy_cores?, point.processes.iter().map(|process| process.cpu_cores).sum())
}

fn resources(point: &OperatingPoint) -> Vec<Resource> {
    let throughput = point.client.throughput_per_s;
    let demand = |busy: f64| (throughput > 0.0).then(|| busy / throughput);
    let mut resources = Vec::new();
    for tier in point.tiers.iter().filter(|tier| tier.workers > 0) {
        let servers = f64::from(tier.workers);
        resources.push(Resource {
            id: ResourceId::Workers(tier.name.clone()),
            name: format!("workers of {}", tier.name),
            kind: ResourceKind::WorkerPool,
            busy: tier.workers_busy,
            servers,
            utilization: tier.workers_busy / servers,
            visits: tier.visits(),
            demand_s: demand(tier.workers_busy),
            queue_length: Some(tier.queue_length),
            waiting_time_s: Some(tier.waiting_time_s),
        });
    }
    resources.extend(point.tiers.iter().filter_map(|tier| connections(point, tier)));
    for process in point.processes.iter().filter(|process| process.cpu_cores_limit > 0.0) {
        let role = &process.part;
        let name = match process.threads.first() {
            // One thread an instance: it can be full while cores are idle.
            Some(busiest) if process.working_threads() == Some(f64::from(process.instances)) => {
                format!("CPU of {role} (one thread each, `{}`)", busiest.name)
            }
            _ => format!("CPU of {role}"),
        };
        let busy = process.busy_cores();
        resources.push(Resource {
            id: ResourceId::Cpu(process.part.clone()),
            name,
            kind: ResourceKind::ProcessCpu,
            busy,
            servers: process.cpu_cores_limit,
            utilization: busy / process.cpu_cores_limit,
            visits: 1.0,
            demand_s: demand(busy),
            queue_length: process.run_queue_wait,
            waiting_time_s: process.run_queue_wait.and_then(demand),
        });
    }
    resources.extend(point.links.iter().filter_map(|link| bandwidth(link, throughput)));
    if let Some(busy) = point.host_busy_cores.filter(|_| point.host_cores > 0.0) {
        let waits: Option<f64> = point.processes.iter().map(|p| p.run_queue_wait).sum();
        let name = "CPU of the host".to_owned();
        let cores = (busy, point.host_cores);
        resources.push(host_resource((ResourceId::Host, name), cores, waits, throughput));
    }
    // Processors are shared by what is placed on one host, and not beyond it.
    for host in point.hosts.iter().filter(|host| host.cores > 0.0) {
        let name = (ResourceId::HostOf(host.name.clone()), format!("CPU of host {}", host.name));
        let cores = (host.busy_cores, host.cores);
        resources.push(host_resource(name, cores, host.run_queue_wait, throughput));
    }
    resources
}

/// The processors of a host: those that are busy, and how many there are.
fn host_resource(
    (id, name): (ResourceId, String),
    (busy, cores): (f64, f64),
    waits: Option<f64>,
    throughput: f64,
) -> Resource {
    let demand = |busy: f64| (throughput > 0.0).then(|| busy / throughput);
    Resource {
        id,
        name,
        kind: ResourceKind::HostCpu,
        busy,
        servers: cores,
        utilization: busy / cores,
        visits: 1.0,
        demand_s: demand(busy),
        queue_length: waits,
        waiting_time_s: waits.and_then(demand),
    }
}

/// The bandwidth of an emulated link: routes are its servers, bytes keep them busy.
fn bandwidth(link: &LinkView, throughput: f64) -> Option<Resource> {
    let servers = f64::from(link.routes);
    let busy = link.bytes_per_s / link.bandwidth_bytes_per_s;
    (servers > 0.0 && busy.is_finite()).then(|| Resource {
        id: ResourceId::Link(link.name.clone()),
        name: format!("bandwidth of the link {}", link.name),
        kind: ResourceKind::Bandwidth,
        busy,
        servers,
        utilization: busy / servers,
        visits: 1.0,
        demand_s: (throughput > 0.0).then(|| busy / throughput),
        queue_length: None,
        waiting_time_s: None,
    })
}

/// Whether requests wait for it long enough to name it. As many connections as workers are all in use when
/// the workers are, and more of them would change nothing.
fn waited_for(pool: &Resource) -> bool {
    const NOTABLE: f64 = 0.05;
    pool.queue_length.is_some_and(|length| length > NOTABLE * pool.servers)
}

/// The connections that the workers of a tier share.
fn connections(point: &OperatingPoint, tier: &TierView) -> Option<Resource> {
    let of = tier.connections.as_ref().filter(|of| of.connections > 0)?;
    let throughput = point.client.throughput_per_s;
    let demand = (throughput > 0.0).then(|| of.busy() / throughput);
    let servers = f64::from(of.connections);
    Some(Resource {
        id: ResourceId::Connections { of: tier.name.clone(), to: of.backend.clone() },
        name: format!("connections to {}", of.backend),
        kind: ResourceKind::ConnectionPool,
        busy: of.busy(),
        servers,
        utilization: of.busy() / servers,
        visits: if throughput > 0.0 { of.exchanges_per_s / throughput } else { 1.0 },
        demand_s: demand,
        queue_length: Some(of.exchanges_per_s * of.waiting_time_s),
        waiting_time_s: Some(of.waiting_time_s),
    })
}

fn busy_sentence(resource: &Resource) -> String {
    let Resource { name, busy, servers, utilization, .. } = resource;
    let mut sentence = format!(
        "{name}: {busy:.2} of {servers} busy on average (utilization {:.0} %)",
        utilization * 100.0
    );
    // A queue that prints as 0.0 is left out.
    let length = resource.queue_length.filter(|length| *length >= 0.05);
    if let (Some(length), Some(wait)) = (length, resource.waiting_time_s) {
        let wait = kendall_units::Seconds::new(wait);
        sentence += &match resource.kind {
            ResourceKind::WorkerPool => {
                format!("; {length:.1} requests wait for it, {wait} each")
            }
            ResourceKind::ConnectionPool => {
                format!("; {length:.1} workers wait for one, {wait} each time")
            }
            ResourceKind::HostCpu | ResourceKind::ProcessCpu | ResourceKind::Bandwidth => {
                format!("; {length:.2} threads wait for a core, {wait} a request")
            }
        };
    }
    sentence
}

fn nothing_near(resources: &[Resource], point: &OperatingPoint) -> Vec<String> {
    let Some(busiest) = resources.first() else {
        return vec!["no utilization was recorded".to_owned()];
    };
    let mut evidence = vec![format!(
        "no measured resource is near its limit; the busiest is {}",
        busy_sentence(busiest)
    )];
    let delay = point.client_link_round_trip_s + point.backend_link_round_trip_s;
    let response = point.client.response_time_s;
    if delay > 0.5 * response && response > 0.0 {
        evidence.push(format!(
            "the links' delay makes up {:.0} % of the response time: throughput is limited by the \
             number of clients, not by a resource",
            100.0 * delay / response
        ));
    }
    evidence
}

/// What a worker does while it is held.
fn held_workers(point: &OperatingPoint) -> Option<String> {
    let tier = point.first_tier().filter(|tier| tier.workers > 0 && tier.service_time_s > 0.0)?;
    let backend = tier.backend_time_s?;
    let held_s = tier.held_time_s();
    let size = tier.mean_batch();
    let what = if size > BATCHES {
        format!("for a batch of {size:.2} requests")
    } else {
        "a request".to_owned()
    };
    let share = match &tier.connections {
        Some(of) => of.busy() / tier.workers_busy.max(f64::MIN_POSITIVE),
        None => backend / tier.service_time_s,
    };
    Some(format!(
        "a worker of {} is held for {} {what}, {:.0} % of it waiting for backends",
        tier.name,
        kendall_units::Seconds::new(held_s),
        100.0 * share
    ))
}

/// The part of the system that uses most of a host that limits.
fn largest_user(point: &OperatingPoint, limiting: &Resource) -> String {
    let largest = of_system(point)
        .filter(|_| limiting.id == ResourceId::Host)
        .max_by(|a, b| a.cpu_cores.total_cmp(&b.cpu_cores));
    largest.map_or_else(String::new, |process| {
        format!("; of the system, {} used most: {:.2} cores", process.part, process.cpu_cores)
    })
}

/// Who uses the host, where the host is what limits.
fn shares_of_cpu(point: &OperatingPoint, limiting: Option<&Resource>) -> Option<String> {
    limiting.filter(|resource| resource.kind == ResourceKind::HostCpu)?;
    let total: f64 = point.processes.iter().map(|process| process.cpu_cores).sum();
    let mut roles: Vec<_> = point.processes.iter().collect();
    roles.sort_by(|a, b| b.cpu_cores.total_cmp(&a.cpu_cores));
    let shares: Vec<String> = roles
        .iter()
        .filter(|process| process.cpu_cores > 0.0)
        .map(|process| format!("{} {:.0} %", process.part, 100.0 * process.cpu_cores / total))
        .collect();
    (!shares.is_empty())
        .then(|| format!("of the CPU time of the study's processes: {}", shares.join(", ")))
}

#[cfg(test)]
mod tests {
    use kendall_protocols::topology::Part;

    use super::*;
    use crate::measured::{ThreadView, View};

    fn point() -> OperatingPoint {
        OperatingPoint {
            client: View { throughput_per_s: 10_000.0, response_time_s: 0.006 },
            tiers: vec![TierView {
                name: "proxies".to_owned(),
                instances: 1,
                workers: 8,
                view: View { throughput_per_s: 10_000.0, response_time_s: 0.005 },
                waiting_time_s: 0.004,
                service_time_s: 0.0008,
                backend_time_s: Some(0.0006),
                queue_length: 40.0,
                workers_busy: 7.9,
                ..TierView::default()
            }],
            processes: vec![ProcessView {
                part: Part { role: Role::Tier, name: "proxy".to_owned() },
                instances: 1,
                cpu_cores: 0.6,
                cpu_cores_limit: 2.0,
                run_queue_wait: Some(0.2),
                ..ProcessView::default()
            }],
            host_cores: 2.0,
            host_busy_cores: Some(1.2),
            ..OperatingPoint::default()
        }
    }

    #[test]
    fn a_full_pool_over_idle_cores_is_the_bottleneck() {
        let found = bottleneck(&point());
        assert_eq!(found.limiting.as_deref(), Some("workers of proxies"));
        assert!(found.evidence[0].contains("40.0 requests wait"), "{:?}", found.evidence);
        assert!(found.evidence[1].contains("75 % of it waiting for backends"));
    }

    #[test]
    fn a_full_pool_over_full_cores_is_a_symptom() {
        let mut point = OperatingPoint { host_busy_cores: Some(1.98), ..point() };
        point.processes[0].cpu_cores = 1.7;
        assert_eq!(bottleneck(&point).limiting.as_deref(), Some("CPU of the host"));
        // Unless others filled them.
        point.processes[0].cpu_cores = 0.6;
        assert_eq!(bottleneck(&point).limiting.as_deref(), Some("workers of proxies"));
    }

    #[test]
    fn nothing_near_its_limit_names_nothing() {
        let mut point = point();
        point.tiers[0].workers_busy = 2.0;
        let found = bottleneck(&point);
        assert_eq!(found.limiting, None);
        assert!(found.evidence[0].contains("no measured resource is near its limit"));
    }

    /// Workers that are held while bytes leave through a full link are a symptom.
    #[test]
    fn a_full_link_is_the_limit_and_a_half_full_one_is_a_row() {
        let mut point = point();
        let link = |bytes_per_s| LinkView {
            name: "clients -> proxies".to_owned(),
            bytes_per_s,
            bandwidth_bytes_per_s: 1e7,
            routes: 2,
        };
        point.links = vec![link(1.9e7)];
        let found = bottleneck(&point);
        assert_eq!(found.limiting.as_deref(), Some("bandwidth of the link clients -> proxies"));
        point.links = vec![link(1e7)];
        let found = bottleneck(&point);
        assert_eq!(found.limiting.as_deref(), Some("workers of proxies"));
        let row = found.resources.iter().find(|one| one.kind == ResourceKind::Bandwidth).unwrap();
        assert!((row.utilization - 0.5).abs() < 1e-12);
    }

    #[test]
    fn cores_that_others_use_are_told_apart() {
        let point = OperatingPoint { host_busy_cores: Some(2.0), ..point() };
        let found = bottleneck(&point);
        assert!(found.disturbed);
        assert!(found.evidence.iter().any(|line| line.starts_with("70 % of the busy")));
    }

    /// On a machine at rest, the little that others compute is a large share, and wake-ups are all waits.
    #[test]
    fn others_that_hardly_compute_disturb_nothing() {
        let mut point = OperatingPoint { host_busy_cores: Some(0.1), ..point() };
        point.client = View { throughput_per_s: 50.0, response_time_s: 0.000_45 };
        point.processes[0].cpu_cores = 0.08;
        assert!(!is_delayed(&point) && disturbing_share(&point).is_none());
        point.host_busy_cores = Some(0.3);
        assert!(is_delayed(&point) && disturbing_share(&point).is_some());
    }

    /// A host that others filled is not a limit of the system, whatever else is idle: what is known
    /// then is nothing.
    #[test]
    fn a_host_that_others_filled_is_never_the_limit() {
        let mut point = OperatingPoint { host_busy_cores: Some(1.98), ..point() };
        point.tiers[0].workers_busy = 0.5;
        point.processes[0].cpu_cores = 0.02;
        let found = bottleneck(&point);
        assert_eq!(found.limiting, None);
        let why = found.cannot_tell.unwrap();
        assert!(why.contains("99 %") && why.contains("a quieter machine would tell"), "{why}");
        assert!(found.evidence[0].starts_with("cannot tell"), "{:?}", found.evidence);
    }

    /// As many threads of the system were ready as there are cores: it would fill them alone.
    #[test]
    fn a_host_that_the_system_would_fill_alone_is_the_limit_beside_others() {
        let mut point = OperatingPoint { host_busy_cores: Some(1.99), ..point() };
        point.tiers[0].workers_busy = 0.5;
        point.processes[0].cpu_cores = 1.06;
        point.processes[0].run_queue_wait = Some(0.95);
        let found = bottleneck(&point);
        assert_eq!(found.limiting.as_deref(), Some("CPU of the host"));
        let said = &found.evidence[0];
        assert!(said.ends_with("of the system, proxy used most: 1.06 cores"), "{said}");
        assert!(found.disturbed && found.cannot_tell.is_none());
        assert_eq!(full_resource(&point, 0.95).map(|r| r.id), Some(ResourceId::Host));
        // Threads that hardly wait leave the others' work the reason, and so do those that hardly compute.
        point.processes[0].run_queue_wait = Some(0.1);
        assert!(bottleneck(&point).cannot_tell.is_some());
        point.processes[0].cpu_cores = 0.2;
        point.processes[0].run_queue_wait = Some(2.0);
        assert!(bottleneck(&point).cannot_tell.is_some());
    }

    /// A full host limits what is placed on it, whatever another host has left; one that only
    /// generates load limits nothing of the system.
    #[test]
    fn each_host_is_a_resource_of_its_own() {
        let host = |name: &str, busy, own, generator| HostView {
            name: name.to_owned(),
            cores: 2.0,
            busy_cores: busy,
            own_cores: own,
            generator_cores: generator,
            run_queue_wait: Some(0.5),
        };
        let mut point = OperatingPoint {
            host_cores: 0.0,
            host_busy_cores: None,
            hosts: vec![host("db", 1.99, 1.95, 0.0), host("load", 0.4, 0.35, 0.35)],
            ..point()
        };
        let found = bottleneck(&point);
        assert_eq!(found.limiting.as_deref(), Some("CPU of host db"));
        let names: Vec<&str> = found.resources.iter().map(|r| r.name.as_str()).collect();
        assert!(names.contains(&"CPU of host load") && !names.contains(&"CPU of the host"));
        assert_eq!(full_resource(&point, 0.95).unwrap().id, ResourceId::HostOf("db".to_owned()));
        assert!(!found.disturbed && !found.generator_suspected);
        point.hosts[0] = host("db", 0.5, 0.45, 0.0);
        point.hosts[1] = host("load", 1.99, 1.95, 1.95);
        let found = bottleneck(&point);
        assert_eq!(found.limiting.as_deref(), Some("workers of proxies"));
        assert!(found.generator_suspected);
        assert_ne!(
            full_resource(&point, 0.95).map(|r| r.id),
            Some(ResourceId::HostOf("load".into()))
        );
        // Other programs on one host are no evidence against the other host.
        point.hosts = vec![host("db", 1.96, 0.3, 0.0), host("load", 0.4, 0.35, 0.35)];
        point.tiers[0].workers_busy = 1.0;
        let found = bottleneck(&point);
        assert!(found.disturbed && found.limiting.is_none() && found.cannot_tell.is_some());
    }

    #[test]
    fn a_busy_generator_is_suspected() {
        let mut point = point();
        point.processes.push(ProcessView {
            part: Part::generator(),
            instances: 1,
            cpu_cores: 0.97,
            cpu_cores_limit: 1.0,
            ..ProcessView::default()
        });
        assert!(bottleneck(&point).generator_suspected);
        // A shortage of the generator is no evidence about the system.
        point.tiers[0].workers_busy = 2.0;
        assert_eq!(full_resource(&point, 0.95), None);
    }

    /// A tier may be called what it likes: `generators` is not a generator, and its full CPU is the
    /// system's own limit.
    #[test]
    fn a_tier_is_not_taken_for_the_generator_by_its_name() {
        let mut point = point();
        point.tiers[0].workers_busy = 2.0;
        point.processes.push(ProcessView {
            part: Part { role: Role::Tier, name: "generator-of-reports".to_owned() },
            instances: 1,
            cpu_cores: 0.97,
            cpu_cores_limit: 1.0,
            ..ProcessView::default()
        });
        let found = bottleneck(&point);
        assert!(!found.generator_suspected);
        assert_eq!(found.limiting.as_deref(), Some("CPU of generator-of-reports"));
        assert!(full_resource(&point, 0.95).is_some());
    }

    /// Four connections for four workers: both are full, and no worker waits for a connection. Two for
    /// four: workers wait for them, and they are what limits.
    #[test]
    fn connections_limit_only_where_workers_wait_for_them() {
        let mut point = point();
        let connections = |connections, waiting_time_s| crate::measured::ConnectionView {
            backend: "database".to_owned(),
            connections,
            exchanges_per_s: 1_000.0,
            exchange_time_s: f64::from(connections) * 0.98e-3,
            waiting_time_s,
        };
        point.tiers[0].connections = Some(connections(8, 1e-6));
        assert_eq!(bottleneck(&point).limiting.as_deref(), Some("workers of proxies"));
        point.tiers[0].connections = Some(connections(2, 5e-3));
        let found = bottleneck(&point);
        assert_eq!(found.limiting.as_deref(), Some("connections to database"));
        assert!(found.evidence[0].contains("5.0 workers wait for one"), "{:?}", found.evidence);
        let pool = found.resources.iter().find(|r| r.kind == ResourceKind::ConnectionPool).unwrap();
        // 10,000 requests a second share 1,000 exchanges: V = 0.1, and D = V·S.
        assert!((pool.visits - 0.1).abs() < 1e-12);
        assert!((pool.service_time_s().unwrap() - 1.96e-3).abs() < 1e-12);
        assert!((pool.demand_s.unwrap() - 1.96e-4).abs() < 1e-12);
        assert!((pool.throughput_per_s().unwrap() - 1_000.0).abs() < 1e-6);
    }

    /// A process with one thread is full at one core, however many the host has.
    #[test]
    fn the_one_thread_of_a_proxy_is_its_limit() {
        let mut point = point();
        point.tiers[0].workers_busy = 6.0;
        let thread = |name: &str, cpu_cores| ThreadView {
            name: name.to_owned(),
            threads: 1.0,
            cpu_cores,
            ..ThreadView::default()
        };
        point.processes[0] = ProcessView {
            cpu_cores: 1.02,
            cpu_cores_limit: 1.0,
            threads: vec![thread("network", 0.96), thread("metrics", 0.06)],
            ..point.processes[0].clone()
        };
        let found = bottleneck(&point);
        let name = "CPU of proxy (one thread each, `network`)";
        assert_eq!(found.limiting.as_deref(), Some(name));
        let full = full_resource(&point, 0.95).unwrap();
        // The thread of the metrics takes nothing of the core of the other.
        assert_eq!((full.name.as_str(), full.utilization), (name, 0.96));
    }
}
