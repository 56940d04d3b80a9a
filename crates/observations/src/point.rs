//! From the stored window of a run to the operating point that the laws and models take.

use std::collections::{BTreeMap, BTreeSet};

use kendall_fit::measured::{
    BatchView, ConnectionView, HostView, LinkView, NetworkView, OperatingPoint, ProcessView,
    ThreadView, TierView, View,
};
use kendall_protocols::snapshot::stage;
use kendall_protocols::topology::{Edge, End, Part, PoolKind, Role, TierId};
use kendall_protocols::waiting::Waiting;
use kendall_stats::histogram::Histogram;
use kendall_store::{HostUse, Measured, MeasuredTier, ProcessUse, ThreadUse};
use kendall_units::exact_f64;

/// Name of the tier nearest the clients that reports stages; rows come by their distance from them.
pub(crate) fn first_tier(measured: &Measured) -> Option<&str> {
    measured.tiers.iter().find(|tier| is_station(tier)).map(|tier| tier.tier.as_str())
}

pub(crate) fn is_station(tier: &MeasuredTier) -> bool {
    tier.role == Role::Tier && !tier.period.requests.is_empty()
}

pub fn of(measured: &Measured) -> OperatingPoint {
    let closed = measured.generators.iter().all(|generator| generator.r#loop == "closed");
    let mut names: Vec<&str> = Vec::new();
    for tier in measured.tiers.iter().filter(|tier| is_station(tier)) {
        if !names.contains(&tier.tier.as_str()) {
            names.push(&tier.tier);
        }
    }
    let before = Before::of(measured, names.first().copied());
    let used = measured.hosts_in_use();
    let host = match used.as_slice() {
        [host] => Some(*host),
        _ => None,
    };
    OperatingPoint {
        duration_s: measured.window.length_s(),
        population: closed.then(|| exact_f64(measured.clients)),
        think_time_s: measured.think_time_mean_s,
        arrival_rate_per_s: measured.arrival_rate_per_s,
        client: View {
            throughput_per_s: measured.throughput_per_s,
            // A job need not say what each of its tasks took.
            response_time_s: measured.response_time.mean().unwrap_or(f64::NAN) / 1e9,
        },
        client_link_round_trip_s: 2.0 * before.delay_s,
        backend_link_round_trip_s: 2.0 * before.behind_s,
        silent_before: before.silent,
        tiers: names.into_iter().map(|name| tier_view(measured, name)).collect(),
        processes: processes(measured, &used),
        host_cores: host.map_or(0.0, |host| f64::from(host.cores)),
        host_busy_cores: host.map(|host| host.utilization() * f64::from(host.cores)),
        host_network: host.filter(|host| host.length_s > 0.0).map(|host| NetworkView {
            in_bytes_per_s: exact_f64(host.network_in_bytes) / host.length_s,
            out_bytes_per_s: exact_f64(host.network_out_bytes) / host.length_s,
        }),
        hosts: if host.is_some() { Vec::new() } else { hosts(measured, &used) },
        links: links(measured),
    }
}

/// Each host with what the study's processes used there.
fn hosts(measured: &Measured, used: &[&HostUse]) -> Vec<HostView> {
    let view = |host: &HostUse| {
        let mut view = HostView {
            name: host.host.clone(),
            cores: f64::from(host.cores),
            busy_cores: host.utilization() * f64::from(host.cores),
            run_queue_wait: Some(0.0),
            ..HostView::default()
        };
        let there = measured.processes.iter().filter(|process| process.host == host.host);
        for process in there.filter(|process| process.length_s > 0.0) {
            view.own_cores += process.cores_busy();
            view.run_queue_wait = sum(view.run_queue_wait, process.run_queue_wait());
            if process.part.role == Role::Generator {
                view.generator_cores += process.cores_busy();
            }
        }
        view
    };
    used.iter().map(|host| view(host)).collect()
}

/// Links with a bandwidth, by what their relays carried the way that was fuller.
fn links(measured: &Measured) -> Vec<LinkView> {
    let limited = measured.graph.edges.iter().filter_map(|edge| {
        let link = edge.link.as_ref()?;
        let relays =
            || measured.tiers.iter().filter(|t| t.role == Role::Link && t.tier == link.name);
        let into: f64 = relays().map(|relay| per_second(relay.period.bytes_in, relay)).sum();
        let out: f64 = relays().map(|relay| per_second(relay.period.bytes_out, relay)).sum();
        let limits = [link.bandwidth_bytes_per_s, link.bandwidth_back_bytes_per_s];
        let ways = [into, out].into_iter().zip(limits).zip(["", ", answers"]);
        let limited = ways.filter_map(|((bytes, limit), way)| Some((bytes, limit?, way)));
        let (bytes_per_s, bandwidth_bytes_per_s, way) =
            limited.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))?;
        let way = if limits[0] == limits[1] { "" } else { way };
        Some(LinkView {
            name: format!("{}{way}", link.name),
            bytes_per_s,
            bandwidth_bytes_per_s,
            // Each host that asks has a relay of its own.
            routes: measured.graph.tier(&edge.to)?.instances
                * u32::try_from(relays().count()).ok()?,
        })
    });
    limited.filter(|link| link.bytes_per_s > 0.0).collect()
}

/// The way from the clients to the first tier that reports, and what lies behind it.
#[derive(Default)]
struct Before {
    /// Tiers on the way that say nothing of themselves.
    silent: Vec<String>,
    /// Stated delay of the links on the way, one way.
    delay_s: f64,
    /// Stated delay of all other links, one way.
    behind_s: f64,
}

impl Before {
    fn of(measured: &Measured, first: Option<&str>) -> Self {
        let graph = &measured.graph;
        let delay_s = |edge: &Edge| {
            edge.link
                .as_ref()
                .map_or(0.0, |link| kendall_units::Seconds::from_nanos(link.delay_ns).get())
        };
        // Where no tier reports, the system is what lies behind the clients' own link.
        let first = first.map(TierId::stored).or_else(|| graph.entry().cloned());
        let Some(first) = first else { return Self::default() };
        let way = graph.way_to(&first);
        let silent = way.iter().filter_map(|edge| match &edge.from {
            End::Clients => None,
            End::Tier(tier) => Some(tier.to_string()),
        });
        let behind = graph.edges.iter().filter(|edge| !way.contains(edge));
        Self {
            silent: silent.collect(),
            delay_s: way.iter().map(|edge| delay_s(edge)).sum(),
            behind_s: behind.map(delay_s).sum(),
        }
    }
}

fn tier_view(measured: &Measured, name: &str) -> TierView {
    let instances: Vec<&MeasuredTier> =
        measured.tiers.iter().filter(|tier| tier.tier == name).collect();
    let mut recorded = BTreeMap::new();
    let mut merged = |stage: &str| {
        let mut histogram = Histogram::new();
        for instance in &instances {
            histogram.add(&instance.period.stage(stage));
        }
        recorded.insert(stage.to_owned(), exact_f64(histogram.count()));
        histogram.mean().map(|ns| ns / 1e9)
    };
    let response_time_s = merged(stage::RESPONSE_TIME).unwrap_or(0.0);
    let waiting_time_s = merged(stage::WAITING_TIME).unwrap_or(0.0);
    let service_time_s = merged(stage::SERVICE_TIME).unwrap_or(0.0);
    let backend_time_s = merged(stage::BACKEND_TIME);
    let connection_wait_s = merged(stage::CONNECTION_WAIT_TIME);
    let sum = |value: fn(&MeasuredTier) -> f64| instances.iter().map(|tier| value(tier)).sum();
    TierView {
        name: name.to_owned(),
        instances: u32::try_from(instances.len()).unwrap_or(u32::MAX),
        workers: instances.iter().map(|tier| tier.period.workers).sum(),
        view: View { throughput_per_s: sum(MeasuredTier::throughput_per_s), response_time_s },
        arrivals_per_s: Some(sum(MeasuredTier::arrivals_per_s)),
        waiting_time_s,
        service_time_s,
        backend_time_s,
        queue_length: sum(|tier| tier.period.queue_length.mean),
        workers_busy: sum(|tier| tier.period.workers_busy.mean),
        instances_busy: instances.iter().map(|tier| tier.period.workers_busy.mean).collect(),
        network: NetworkView {
            in_bytes_per_s: sum(|tier| per_second(tier.period.bytes_in, tier)),
            out_bytes_per_s: sum(|tier| per_second(tier.period.bytes_out, tier)),
        },
        outcomes_per_s: outcomes(&instances),
        batches: batches(&instances),
        connections: connections(measured, &instances, connection_wait_s),
        connection_wait_s: connection_wait_s.unwrap_or(0.0),
        recorded,
    }
}

/// What the instances counted, per second.
fn outcomes(instances: &[&MeasuredTier]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for instance in instances {
        for (name, count) in &instance.period.outcomes {
            *sums.entry(name.clone()).or_default() += per_second(*count, instance);
        }
    }
    sums
}

/// How often, and how long, workers were taken, where they say so.
fn batches(instances: &[&MeasuredTier]) -> Option<BatchView> {
    let mut held = Histogram::new();
    let mut per_s = 0.0;
    for instance in instances {
        held.add(&instance.period.held_time);
        per_s += per_second(instance.period.held_time.count(), instance);
    }
    Some(BatchView { per_s, held_time_s: held.mean()? / 1e9 })
}

/// The pool of connections to a backend that the workers share, as the study set it. `wait_s` is the
/// mean over requests of the time until there was a connection, which of a batch the first of its
/// requests records, and the others 0.
fn connections(
    measured: &Measured,
    instances: &[&MeasuredTier],
    wait_s: Option<f64>,
) -> Option<ConnectionView> {
    let wait_s = wait_s?;
    let tier = measured.graph.tier(&TierId::stored(instances.first()?.tier.as_str()))?;
    let (backend, each) = tier.pools.iter().find_map(|pool| match &pool.of {
        PoolKind::Connections(to) => Some((to.to_string(), pool.servers)),
        PoolKind::Workers | PoolKind::Threads => None,
    })?;
    let mut times = Histogram::new();
    let (mut exchanges_per_s, mut requests_per_s) = (0.0, 0.0);
    for instance in instances {
        let [backend] = instance.period.backends.as_slice() else { return None };
        times.add(&backend.backend_time);
        exchanges_per_s += per_second(backend.requests, instance);
        requests_per_s += instance.throughput_per_s();
    }
    Some(ConnectionView {
        backend,
        connections: each.saturating_mul(u32::try_from(instances.len()).ok()?),
        exchanges_per_s,
        exchange_time_s: times.mean()? / 1e9,
        waiting_time_s: if exchanges_per_s > 0.0 {
            wait_s * requests_per_s / exchanges_per_s
        } else {
            0.0
        },
    })
}

fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? + b?)
}

fn per_second(count: u64, tier: &MeasuredTier) -> f64 {
    let length_s = tier.period.length_s();
    if length_s > 0.0 { exact_f64(count) / length_s } else { 0.0 }
}

/// What each part used. The study itself is one of them where it shares a host with the system.
fn processes(measured: &Measured, used: &[&HostUse]) -> Vec<ProcessView> {
    let counts = |process: &&ProcessUse| {
        process.length_s > 0.0
            && (process.part.role != Role::Study
                || used.iter().any(|host| host.host == process.host))
    };
    let generator_threads: usize =
        measured.generators.iter().map(|generator| generator.threads.len()).sum();
    let mut views: Vec<ProcessView> = Vec::new();
    for process in measured.processes.iter().filter(counts) {
        let place = views.iter().position(|view| view.part == process.part);
        let place = place.unwrap_or_else(|| {
            views.push(ProcessView {
                part: process.part.clone(),
                run_queue_wait: Some(0.0),
                waiting: Some(Waiting::default()),
                ..ProcessView::default()
            });
            views.len() - 1
        });
        let view = &mut views[place];
        view.instances += 1;
        view.cpu_cores += process.cores_busy();
        view.switches_per_s += process.voluntary_switches_per_s;
        view.run_queue_wait = sum(view.run_queue_wait, process.run_queue_wait());
        view.preemptions_per_s += process.involuntary_switches_per_s;
        view.waiting = view.waiting.zip(process.waiting).map(|(a, b)| a.plus(b));
        for group in &process.threads {
            add_threads(&mut view.threads, group, process.instance as usize);
        }
    }
    for view in &mut views {
        view.threads.sort_by(|a, b| b.cpu_cores.total_cmp(&a.cpu_cores));
        for group in &mut view.threads {
            let instances = group.each_cores.len().max(view.instances as usize);
            group.each_cores.resize(instances, 0.0);
        }
        let cores = cores_of(measured, used, &view.part);
        let generator = view.part.role == Role::Generator;
        let threads = if generator && generator_threads > 0 {
            exact_f64(generator_threads)
        } else {
            view.working_threads().unwrap_or(cores)
        };
        view.cpu_cores_limit = threads.min(cores);
        view.host_cores = cores;
        view.spun_cores = spun(measured, &view.part);
    }
    views
}

/// Cores that a part spent awake for its next moment.
fn spun(measured: &Measured, part: &Part) -> f64 {
    let share = |spun_ns: u64, length_ns: u64| exact_f64(spun_ns) / exact_f64(length_ns.max(1));
    match part.role {
        Role::Generator => measured
            .generators
            .iter()
            .flat_map(|generator| &generator.threads)
            .map(|thread| share(thread.spun_ns, thread.wall_ns))
            .sum(),
        Role::Tier | Role::Link => measured
            .tiers
            .iter()
            .filter(|tier| tier.role == part.role && tier.tier == part.name)
            .map(|tier| {
                let length = tier.period.to_ns.saturating_sub(tier.period.from_ns);
                share(tier.period.spun_ns.unwrap_or(0), length)
            })
            .sum(),
        Role::Study => 0.0,
    }
}

/// Cores of the hosts that a part ran on, each host once: what it could have used at most.
fn cores_of(measured: &Measured, used: &[&HostUse], part: &Part) -> f64 {
    let of_tiers = measured.topology.iter().filter(|tier| {
        matches!(part.role, Role::Tier | Role::Link)
            && tier.role == part.role
            && tier.tier == part.name
    });
    let of_generators =
        measured.generators.iter().filter(|_| part.role == Role::Generator).map(|one| &one.host);
    let on: Vec<&String> = of_tiers.map(|tier| &tier.host).chain(of_generators).collect();
    // What runs nowhere that is known could have used any.
    let own = used.iter().filter(|host| on.is_empty() || on.contains(&&host.host));
    own.map(|host| f64::from(host.cores)).sum()
}

fn add_threads(views: &mut Vec<ThreadView>, group: &ThreadUse, instance: usize) {
    let place = views.iter().position(|view| view.name == group.name).unwrap_or_else(|| {
        views.push(ThreadView { name: group.name.clone(), ..ThreadView::default() });
        views.len() - 1
    });
    let view = &mut views[place];
    view.threads += exact_f64(group.threads);
    view.cpu_cores += group.cores_busy;
    view.run_queue_wait += group.run_queue_wait;
    view.each_cores.resize(view.each_cores.len().max(instance + 1), 0.0);
    view.each_cores[instance] += group.cores_busy;
}

fn of_threads(
    point: &OperatingPoint,
    part: &Part,
    name: &str,
    value: impl Fn(&ThreadView) -> f64,
) -> f64 {
    let process = point.process(part);
    let mut groups = process.into_iter().flat_map(|process| &process.threads);
    groups.find(|group| group.name == name).map_or(0.0, value)
}

/// Means over the runs of one configuration: of rates and levels over the runs, of times over the
/// requests, whatever the runs that they were in.
struct Together<'a> {
    points: &'a [&'a OperatingPoint],
}

impl Together<'_> {
    /// What a part waited for, over the runs in which that is known.
    fn waiting(&self, part: &Part) -> Option<Waiting> {
        Waiting::mean(self.points.iter().filter_map(|point| point.process(part)?.waiting))
    }

    /// Of a rate or a level.
    fn mean(&self, value: impl Fn(&OperatingPoint) -> f64) -> f64 {
        self.points.iter().map(|point| value(point)).sum::<f64>() / exact_f64(self.points.len())
    }

    /// `None` where one of them is not known.
    fn mean_of(&self, value: impl Fn(&OperatingPoint) -> Option<f64>) -> Option<f64> {
        let sum: Option<f64> = self.points.iter().map(|point| value(point)).sum();
        sum.map(|sum| sum / exact_f64(self.points.len()))
    }

    /// Of a time, by how often it was measured; by runs where nothing says how often.
    fn time(
        &self,
        time: impl Fn(&OperatingPoint) -> f64,
        often: impl Fn(&OperatingPoint) -> f64,
    ) -> f64 {
        let all: f64 = self.points.iter().map(|point| often(point)).sum();
        if all > 0.0 {
            self.points.iter().map(|point| often(point) * time(point)).sum::<f64>() / all
        } else {
            self.mean(time)
        }
    }

    fn tier(&self, place: usize, first: &TierView) -> TierView {
        let of = |point: &OperatingPoint, value: fn(&TierView) -> f64| {
            point.tiers.get(place).map_or(0.0, value)
        };
        let rate = |value: fn(&TierView) -> f64| self.mean(|point| of(point, value));
        // Each stage by its own count: the mean of all its times, as of one histogram.
        let recorded = |point: &OperatingPoint, stage: &str| {
            point.tiers.get(place).map_or(0.0, |tier| tier.recorded(stage))
        };
        let time = |stage: &'static str| {
            let mean = |point: &OperatingPoint| {
                point.tiers.get(place).and_then(|tier| tier.time_s(stage)).unwrap_or(0.0)
            };
            self.time(mean, |point| recorded(point, stage))
        };
        let busy = |instance: usize| {
            let of = |tier: &TierView| tier.instances_busy.get(instance).copied();
            self.mean(|point| point.tiers.get(place).and_then(of).unwrap_or(0.0))
        };
        let all = |stage: &String| self.points.iter().map(|point| recorded(point, stage)).sum();
        let mut of_each = self.points.iter().filter_map(|point| point.tiers.get(place));
        let has_backends = of_each.any(|tier| tier.backend_time_s.is_some());
        let outcome = |name: &String| {
            self.mean(|point| {
                let tier = point.tiers.get(place);
                tier.and_then(|tier| tier.outcomes_per_s.get(name)).copied().unwrap_or(0.0)
            })
        };
        TierView {
            name: first.name.clone(),
            instances: first.instances,
            workers: first.workers,
            view: View {
                throughput_per_s: rate(|t| t.view.throughput_per_s),
                response_time_s: time(stage::RESPONSE_TIME),
            },
            arrivals_per_s: first.arrivals_per_s.map(|_| rate(|t| t.arrivals_per_s.unwrap_or(0.0))),
            waiting_time_s: time(stage::WAITING_TIME),
            service_time_s: time(stage::SERVICE_TIME),
            backend_time_s: has_backends.then(|| time(stage::BACKEND_TIME)),
            queue_length: rate(|t| t.queue_length),
            workers_busy: rate(|t| t.workers_busy),
            instances_busy: (0..first.instances_busy.len()).map(busy).collect(),
            network: NetworkView {
                in_bytes_per_s: rate(|t| t.network.in_bytes_per_s),
                out_bytes_per_s: rate(|t| t.network.out_bytes_per_s),
            },
            outcomes_per_s: self
                .outcomes(place)
                .into_iter()
                .map(|name| (name.clone(), outcome(name)))
                .collect(),
            batches: first.batches.map(|_| self.batches(place)),
            connections: self.connections(place),
            connection_wait_s: time(stage::CONNECTION_WAIT_TIME),
            recorded: first.recorded.keys().map(|stage| (stage.clone(), all(stage))).collect(),
        }
    }

    /// Outcomes that any run counted.
    fn outcomes(&self, place: usize) -> BTreeSet<&String> {
        let tiers = self.points.iter().filter_map(|point| point.tiers.get(place));
        tiers.flat_map(|tier| tier.outcomes_per_s.keys()).collect()
    }

    fn batches(&self, place: usize) -> BatchView {
        let per_s = |point: &OperatingPoint| {
            point.tiers.get(place).and_then(|tier| tier.batches).map_or(0.0, |of| of.per_s)
        };
        let held =
            |point: &OperatingPoint| point.tiers.get(place).map_or(0.0, TierView::held_time_s);
        BatchView {
            per_s: self.mean(per_s),
            held_time_s: self.time(held, |point| per_s(point) * point.duration_s),
        }
    }

    /// The connections that the workers of one tier share; `None` where they share none.
    fn connections(&self, place: usize) -> Option<ConnectionView> {
        let of = |point: &OperatingPoint, value: fn(&ConnectionView) -> f64| {
            let tier = point.tiers.get(place);
            tier.and_then(|tier| tier.connections.as_ref()).map_or(0.0, value)
        };
        let first =
            self.points.iter().find_map(|point| point.tiers.get(place)?.connections.as_ref())?;
        let often =
            |point: &OperatingPoint| of(point, |view| view.exchanges_per_s) * point.duration_s;
        Some(ConnectionView {
            exchanges_per_s: self.mean(|point| of(point, |view| view.exchanges_per_s)),
            exchange_time_s: self.time(|point| of(point, |view| view.exchange_time_s), often),
            waiting_time_s: self.time(|point| of(point, |view| view.waiting_time_s), often),
            ..first.clone()
        })
    }

    fn host(&self, view: &HostView) -> HostView {
        let mean = |value: fn(&HostView) -> f64| {
            let of = |point: &OperatingPoint| {
                point.hosts.iter().find(|h| h.name == view.name).map(value)
            };
            self.mean(|point| of(point).unwrap_or(0.0))
        };
        HostView {
            name: view.name.clone(),
            cores: view.cores,
            busy_cores: mean(|host| host.busy_cores),
            own_cores: mean(|host| host.own_cores),
            generator_cores: mean(|host| host.generator_cores),
            run_queue_wait: self.mean_of(|point| {
                let host = point.hosts.iter().find(|host| host.name == view.name);
                host.map_or(Some(0.0), |host| host.run_queue_wait)
            }),
        }
    }

    fn process(&self, view: &ProcessView) -> ProcessView {
        let mean = |value: fn(&ProcessView) -> f64| {
            self.mean(|point| point.process(&view.part).map_or(0.0, value))
        };
        ProcessView {
            cpu_cores: mean(|p| p.cpu_cores),
            run_queue_wait: self.mean_of(|point| {
                point.process(&view.part).map_or(Some(0.0), |process| process.run_queue_wait)
            }),
            cpu_cores_limit: mean(|p| p.cpu_cores_limit),
            switches_per_s: mean(|p| p.switches_per_s),
            preemptions_per_s: mean(|p| p.preemptions_per_s),
            spun_cores: mean(|p| p.spun_cores),
            waiting: self.waiting(&view.part),
            threads: view
                .threads
                .iter()
                .map(|group| {
                    let mean = |value: fn(&ThreadView) -> f64| {
                        self.mean(|point| of_threads(point, &view.part, &group.name, value))
                    };
                    let each = |instance: usize| {
                        let of = |group: &ThreadView| {
                            group.each_cores.get(instance).copied().unwrap_or(0.0)
                        };
                        self.mean(|point| of_threads(point, &view.part, &group.name, of))
                    };
                    ThreadView {
                        cpu_cores: mean(|group| group.cpu_cores),
                        run_queue_wait: mean(|group| group.run_queue_wait),
                        each_cores: (0..group.each_cores.len()).map(each).collect(),
                        ..group.clone()
                    }
                })
                .collect(),
            ..view.clone()
        }
    }
}

/// Several runs of one configuration as one operating point.
pub(crate) fn together(points: &[&OperatingPoint]) -> OperatingPoint {
    let Some(&first) = points.first() else { return OperatingPoint::default() };
    let all = Together { points };
    let tiers = first.tiers.iter().enumerate().map(|(place, tier)| all.tier(place, tier));
    let answered = |point: &OperatingPoint| point.client.throughput_per_s * point.duration_s;
    let network = |value: fn(&NetworkView) -> f64| {
        all.mean(|point| point.host_network.as_ref().map_or(0.0, value))
    };
    OperatingPoint {
        duration_s: all.mean(|point| point.duration_s),
        client: View {
            throughput_per_s: all.mean(|point| point.client.throughput_per_s),
            response_time_s: all.time(|point| point.client.response_time_s, answered),
        },
        tiers: tiers.collect(),
        processes: first.processes.iter().map(|view| all.process(view)).collect(),
        host_busy_cores: first
            .host_busy_cores
            .map(|_| all.mean(|point| point.host_busy_cores.unwrap_or(0.0))),
        host_network: first.host_network.map(|_| NetworkView {
            in_bytes_per_s: network(|of| of.in_bytes_per_s),
            out_bytes_per_s: network(|of| of.out_bytes_per_s),
        }),
        hosts: first.hosts.iter().map(|view| all.host(view)).collect(),
        links: (first.links.iter().enumerate())
            .map(|(place, link)| LinkView {
                bytes_per_s: all
                    .mean(|point| point.links.get(place).map_or(0.0, |link| link.bytes_per_s)),
                ..link.clone()
            })
            .collect(),
        ..first.clone()
    }
}
