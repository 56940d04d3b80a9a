//! A folder of results without running anything: a closed system of links, two proxies with
//! workers, and three servers, whose numbers follow the operational laws exactly, with a little
//! noise between repetitions.
#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a test fails by panicking; levels are compared with themselves"
)]

use std::collections::BTreeMap;
use std::path::Path;

use kendall_protocols::topology::{
    Edge, EdgeLink, End, Graph, Part, Pool, PoolKind, Role, TierId, TierNode,
};
use kendall_stats::estimate::Caveat;
use kendall_stats::histogram::Histogram;
use kendall_store::{
    Extent, FactorLevel, Generator, GeneratorThread, HostSample, Level, MeasuredWindow,
    OperationCounts, OperationPeriod, Process, ProcessSample, Results, Run, RunId, RunRecord,
    Status, Study, Tier, TierBackend, TierPeriod, TierRequests,
};
use kendall_units::{exact_f64, whole_u64};

const SECOND: u64 = 1_000_000_000;

/// The measured window of a load of so many seconds, of which the first and the last are cut.
fn window(seconds: u64) -> (u64, u64) {
    (SECOND, (seconds - 1) * SECOND)
}

/// What to make.
pub(crate) struct Synthetic {
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) design: &'static str,
    /// Factors and their levels, as in a study file.
    pub(crate) factors: Vec<(&'static str, Vec<f64>)>,
    pub(crate) repetitions: u32,
    pub(crate) open: bool,
    /// A message queue, whose workers serve several requests at once.
    pub(crate) batches: bool,
    /// The tier that clients talk to is `zfront`, behind it over a link of 5 ms `abackend`; both
    /// report.
    pub(crate) chain: bool,
    /// Largest difference between runs of one configuration, as a share.
    pub(crate) spread: f64,
    /// Cores that programs outside the study keep busy.
    pub(crate) others: f64,
    /// Further lines at the top of the study file.
    pub(crate) lines: &'static str,
    /// Whether the runs have a speed probe, and whether it sees what they differ by (to a thousandth).
    pub(crate) probe: Option<bool>,
    /// Seconds of load.
    pub(crate) seconds: u64,
    /// What else is made of a run before it is stored.
    pub(crate) change: fn(&mut RunRecord),
}

impl Synthetic {
    /// Workers 8, 16, 32, 64 × clients 6 … 198, as in the published study.
    pub(crate) fn writes() -> Self {
        Self {
            name: "memcached-writes",
            title: "Throughput for writes: two proxies before three memcached servers".to_owned(),
            design: "full",
            factors: vec![
                ("system.workers", vec![8.0, 16.0, 32.0, 64.0]),
                ("workload.clients", (0..9_u32).map(|i| f64::from(6 + 24 * i)).collect()),
            ],
            repetitions: 3,
            open: false,
            batches: false,
            chain: false,
            spread: 0.01,
            others: 0.0025,
            lines: "",
            probe: None,
            seconds: 8,
            change: |_| {},
        }
    }

    /// An open loop of rates 20, 60 and 95 a second over an idle server, on a machine that other
    /// programs fill.
    pub(crate) fn idle() -> Self {
        Self {
            name: "nginx-rates",
            title: "What does nginx carry?".to_owned(),
            factors: vec![("workload.rate", vec![20.0, 60.0, 95.0])],
            open: true,
            others: 1.97,
            ..Self::writes()
        }
    }

    /// 2^3 r: servers 2|3, proxies 1|2, workers 8|32.
    pub(crate) fn two_level() -> Self {
        Self {
            name: "memcached-2k",
            title: "What matters for writes: servers, proxies or workers?".to_owned(),
            design: "2kr",
            factors: vec![
                ("system.servers", vec![2.0, 3.0]),
                ("system.proxies", vec![1.0, 2.0]),
                ("system.workers", vec![8.0, 32.0]),
            ],
            ..Self::writes()
        }
    }

    /// Clients 10 … 400 of a message queue.
    pub(crate) fn queue() -> Self {
        Self {
            name: "message-queue-clients",
            title: "Message queue: number of clients".to_owned(),
            factors: vec![("workload.clients", vec![10.0, 50.0, 100.0, 200.0, 400.0])],
            repetitions: 2,
            batches: true,
            ..Self::writes()
        }
    }

    /// Stores all runs in `folder`.
    pub(crate) fn store(&self, folder: &Path) {
        let mut results = Results::create(folder, &self.study()).unwrap();
        let combinations = self.combinations();
        let mut position = 0;
        for repetition in 0..self.repetitions {
            // A fixed shuffle: multiply by a number that has no factor in common with the count.
            let count = combinations.len();
            for place in 0..count {
                let configuration = (place * 7 + usize::try_from(repetition).unwrap() * 3) % count;
                let levels = &combinations[configuration];
                let run = self.run(configuration, repetition, position, levels);
                let mut record = record(run, self.open);
                if self.batches {
                    batched(&mut record);
                }
                if self.chain {
                    chained(&mut record);
                }
                (self.change)(&mut record);
                results.store_run(&record).unwrap();
                position += 1;
            }
        }
    }

    fn study(&self) -> Study {
        Study {
            name: self.name.to_owned(),
            title: self.title.clone(),
            file_name: format!("{}.toml", self.name),
            file: format!(
                "{}name = \"{}\"\n[system]\nkind = \"memcached-proxy\"\n",
                self.lines, self.name
            ),
            fingerprint: "0f1e2d3c".to_owned(),
            seed: 42,
            design: self.design.to_owned(),
            confidence: 0.95,
            planned_runs: None,
            created_unix_ns: 1_795_253_400 * SECOND,
        }
    }

    fn combinations(&self) -> Vec<Vec<f64>> {
        self.factors.iter().fold(vec![Vec::new()], |made, (_, levels)| {
            made.iter()
                .flat_map(|head| {
                    levels.iter().map(move |&level| {
                        let mut next = head.clone();
                        next.push(level);
                        next
                    })
                })
                .collect()
        })
    }

    fn unit_ns(&self, configuration: u32, repetition: u32) -> Option<f64> {
        let number = configuration * 31 + repetition;
        let apart = |scale: f64, number: u32| 1.0 + scale * (noise(number) - 0.5);
        // The slower the machine, the longer a unit takes.
        let sees = |sees: bool| {
            if sees {
                50_000.0 / apart(self.spread, number) * apart(0.002, number + 5_000)
            } else {
                50_000.0 * apart(self.spread, number + 9_000)
            }
        };
        self.probe.map(sees)
    }

    fn run(&self, configuration: usize, repetition: u32, position: u32, levels: &[f64]) -> Run {
        let factors = self.factors.iter().zip(levels).map(|((key, all), &value)| FactorLevel {
            factor: (*key).to_owned(),
            level: u32::try_from(all.iter().position(|l| *l == value).unwrap()).unwrap(),
            text: value.to_string(),
            number: Some(value),
        });
        let started = 1_795_253_400 * SECOND + u64::from(position) * (self.seconds + 2) * SECOND;
        Run {
            id: RunId::default(),
            configuration: u32::try_from(configuration).unwrap(),
            repetition,
            position,
            attempt: 0,
            status: Status::Done,
            reasons: Vec::new(),
            caveats: vec![Caveat::SharedMachine { cores: 2 }],
            factors: factors.collect(),
            settings: serde_json::json!({
                "synthetic": { "spread": self.spread, "others": self.others, "seconds": self.seconds },
                "links": {
                    "clients -> proxies": { "delay": "0.5ms" },
                    "proxies -> servers": { "delay": "0.5ms" },
                },
            }),
            environment: serde_json::json!({
                "machine": { "cpu": "synthetic", "cores": 2, "kernel": "6.1" },
                "revision": "none",
            }),
            started_unix_ns: started,
            ended_unix_ns: started + self.seconds * SECOND,
            started_ns: 0,
            ended_ns: self.seconds * SECOND,
            measured: Some(MeasuredWindow {
                from_ns: window(self.seconds).0,
                to_ns: window(self.seconds).1,
                rule: "1 s cut at either end".to_owned(),
            }),
            purpose: kendall_store::Purpose::Design,
            speed_unit_ns: self.unit_ns(u32::try_from(configuration).unwrap(), repetition),
            one_client_of: None,
        }
    }
}

/// The numbers of one run, which satisfy the laws.
struct Truth {
    clients: f64,
    throughput: f64,
    response: f64,
    tier_response: f64,
    waiting: f64,
    service: f64,
    proxies: u32,
    servers: usize,
    workers: u32,
    seconds: u64,
}

impl Truth {
    fn of(run: &Run) -> Self {
        let level =
            |key: &str, default: f64| run.factor(key).and_then(|l| l.number).unwrap_or(default);
        let clients = level("workload.clients", 198.0);
        let workers = level("system.workers", 32.0);
        let proxies = level("system.proxies", 2.0);
        let servers = level("system.servers", 3.0);
        let seconds = run.setting("synthetic.seconds").and_then(serde_json::Value::as_u64).unwrap();
        let spread = run.setting("synthetic.spread").and_then(serde_json::Value::as_f64).unwrap();
        let noise = 1.0 + spread * (noise(run.configuration * 31 + run.repetition) - 0.5);
        // Lightly loaded: 1 ms of links, 2 ms of service. A smooth minimum of what clients,
        // workers and processors allow.
        let limits = [clients / 0.003_1, workers * proxies / 0.002, 21_000.0 / servers.sqrt()];
        let throughput =
            limits.iter().map(|limit| limit.powi(-6)).sum::<f64>().powf(-1.0 / 6.0) * noise;
        // An open loop has what it offers, and an idle server.
        let offered = run.factor("workload.rate").and_then(|level| level.number);
        let throughput = offered.unwrap_or(throughput);
        let response = offered.map_or(clients / throughput, |_| 0.003_1 * noise);
        let tier_response = response - 0.001_05;
        let service = 0.002_f64.min(tier_response);
        Self {
            clients,
            throughput,
            response,
            tier_response,
            waiting: tier_response - service,
            service,
            proxies: u32::try_from(whole_u64(proxies)).unwrap(),
            servers: usize::try_from(whole_u64(servers)).unwrap(),
            workers: u32::try_from(whole_u64(workers)).unwrap(),
            seconds,
        }
    }
}

/// From 0 to 1, the same for the same number.
fn noise(number: u32) -> f64 {
    let mixed = number.wrapping_mul(2_654_435_761).rotate_left(13).wrapping_mul(0x85eb_ca6b);
    f64::from(mixed >> 8) / f64::from(1_u32 << 24)
}

/// `count` times around `mean`: half constant, half exponential.
pub(crate) fn times(mean: f64, count: u64) -> Histogram {
    const STEPS: u32 = 400;
    let mut histogram = Histogram::new();
    for step in 0..STEPS {
        let quantile = (f64::from(step) + 0.5) / f64::from(STEPS);
        let value = mean * (0.5 - 0.5 * (1.0 - quantile).ln());
        let share =
            count / u64::from(STEPS) + u64::from(u64::from(step) < count % u64::from(STEPS));
        if share > 0 {
            histogram.record_n(whole_u64(value * 1e9), share);
        }
    }
    histogram
}

fn record(run: Run, open: bool) -> RunRecord {
    let truth = Truth::of(&run);
    RunRecord {
        generators: vec![generator(&truth, open)],
        tiers: (0..truth.proxies).map(|instance| proxy(&truth, instance)).collect(),
        processes: processes(&truth),
        hosts: hosts(
            &truth,
            run.setting("synthetic.others").and_then(serde_json::Value::as_f64).unwrap(),
        ),
        graph: graph(&truth, ("proxies", "servers"), Vec::new()),
        speeds: Vec::new(),
        run,
    }
}

/// Clients, a tier with workers, and what lies behind it, with links of half a millisecond.
fn graph(truth: &Truth, tiers: (&'static str, &'static str), more: Vec<Pool>) -> Graph {
    let (front, back) = (TierId::fixed(tiers.0), TierId::fixed(tiers.1));
    let node = |tier: &TierId, instances, pools| TierNode {
        tier: tier.clone(),
        kind: String::new(),
        instances,
        pools,
    };
    let edge = |from: End, name: &str, to: &TierId| Edge {
        from,
        link: Some(EdgeLink {
            name: format!("{name} -> {to}"),
            delay_ns: 500_000,
            bandwidth_bytes_per_s: None,
            bandwidth_back_bytes_per_s: None,
        }),
        to: to.clone(),
    };
    let workers = Pool { of: PoolKind::Workers, servers: truth.workers };
    let pools = std::iter::once(workers).chain(more).collect();
    Graph {
        tiers: vec![
            node(&front, truth.proxies, pools),
            node(&back, u32::try_from(truth.servers).unwrap(), Vec::new()),
        ],
        edges: vec![
            edge(End::Clients, "clients", &front),
            edge(End::Tier(front.clone()), front.as_str(), &back),
        ],
    }
}

fn generator(truth: &Truth, open: bool) -> Generator {
    let period = |extent, from_ns: u64, to_ns: u64| {
        let completed = whole_u64(truth.throughput * exact_f64(to_ns - from_ns) / 1e9);
        OperationPeriod {
            extent,
            from_ns,
            to_ns,
            operation: "set".to_owned(),
            counts: OperationCounts {
                sent: completed,
                completed,
                response_time: times(truth.response, completed),
                ..OperationCounts::default()
            },
        }
    };
    let mut operations: Vec<OperationPeriod> =
        (0..truth.seconds).map(|s| period(Extent::Second, s * SECOND, (s + 1) * SECOND)).collect();
    let (from_ns, to_ns) = window(truth.seconds);
    operations.push(period(Extent::Measured, from_ns, to_ns));
    Generator {
        host: "localhost".to_owned(),
        protocol: "memcached".to_owned(),
        r#loop: if open { "open" } else { "closed" }.to_owned(),
        arrival_rate_per_s: open.then_some(truth.throughput),
        clients: whole_u64(truth.clients),
        ended_ns: truth.seconds * SECOND,
        lateness: times(0.000_02, 1000),
        threads: vec![GeneratorThread {
            cpu_user_ns: SECOND,
            cpu_system_ns: SECOND,
            wall_ns: truth.seconds * SECOND,
            run_queue_wait_ns: SECOND / 10,
            spun_ns: 0,
        }],
        operations,
        ..Generator::default()
    }
}

fn proxy(truth: &Truth, instance: u32) -> Tier {
    let share = 1.0 / f64::from(truth.proxies);
    let rate = truth.throughput * share;
    let (from_ns, to_ns) = window(truth.seconds);
    let completions = whole_u64(rate * exact_f64(to_ns - from_ns) / 1e9);
    let stage = |name: &str, mean: f64| (name.to_owned(), times(mean, completions));
    let level = |mean: f64| Level { mean, maximum: whole_u64(mean * 3.0) };
    let requests = TierRequests {
        arrivals: completions,
        completions,
        stages: BTreeMap::from([
            stage("waiting_time", truth.waiting),
            stage("service_time", truth.service),
            stage("backend_time", truth.service * 0.8),
            stage("response_time", truth.tier_response),
        ]),
    };
    let backend = |number: usize| TierBackend {
        address: format!("127.0.0.1:{}", 20_000 + number),
        requests: completions,
        keys: completions,
        errors: 0,
        backend_time: times(truth.service * (0.7 + 0.02 * exact_f64(number)), completions),
    };
    let period = TierPeriod {
        extent: Extent::Measured,
        from_ns,
        to_ns,
        workers: truth.workers,
        queue_length: level(rate * truth.waiting),
        workers_busy: level(rate * truth.service),
        held_time: Histogram::new(),
        connections: level(truth.clients * share),
        bytes_in: completions * 1100,
        bytes_out: completions * 8,
        cpu_user_ns: SECOND,
        cpu_system_ns: SECOND,
        spun_ns: None,
        outcomes: BTreeMap::new(),
        limits_hit: BTreeMap::new(),
        requests: BTreeMap::from([("set".to_owned(), requests)]),
        backends: (0..truth.servers).map(backend).collect(),
        counted: Vec::new(),
    };
    Tier {
        tier: "proxies".to_owned(),
        instance,
        kind: "memcached-proxy".to_owned(),
        host: "localhost".to_owned(),
        periods: vec![period],
        ..Tier::default()
    }
}

/// CPU by role, microseconds a request.
const CPU_US: [(&str, f64); 3] = [("generator", 20.0), ("proxies", 60.0), ("servers", 45.0)];

fn processes(truth: &Truth) -> Vec<Process> {
    CPU_US
        .iter()
        .map(|(role, us)| {
            let cpu = |seconds: u64| whole_u64(us * 1e3 * truth.throughput * exact_f64(seconds));
            let sample = |seconds: u64| ProcessSample {
                at_ns: seconds * SECOND,
                cpu_user_ns: cpu(seconds) / 3,
                cpu_system_ns: cpu(seconds) - cpu(seconds) / 3,
                run_queue_wait_ns: Some(cpu(seconds) / 5),
                resident_bytes: 20_000_000,
                threads: 4,
                ..ProcessSample::default()
            };
            Process {
                part: match *role {
                    "generator" => Part::generator(),
                    tier => Part { role: Role::Tier, name: tier.to_owned() },
                },
                host: "localhost".to_owned(),
                samples: (0..=truth.seconds).map(sample).collect(),
                ..Process::default()
            }
        })
        .collect()
}

fn hosts(truth: &Truth, others: f64) -> Vec<HostSample> {
    let own_us: f64 = CPU_US.iter().map(|(_, us)| us).sum();
    let busy = (own_us * truth.throughput / 1e6 + others).min(2.0);
    (0..=truth.seconds)
        .map(|second| {
            let spent = whole_u64(busy * 1e9 * exact_f64(second));
            HostSample {
                host: "localhost".to_owned(),
                at_ns: second * SECOND,
                cores: 2,
                cpu_user_ns: spent / 2,
                cpu_system_ns: spent - spent / 2,
                cpu_idle_ns: 2 * SECOND * second - spent,
                ..HostSample::default()
            }
        })
        .collect()
}

/// Time that a worker is held for a batch: 0.8 ms and 0.2 ms a request.
pub(crate) fn held_s(batch: f64) -> f64 {
    0.000_8 + 0.000_2 * batch
}

/// Requests of a batch at this many clients.
pub(crate) fn batch(clients: f64) -> f64 {
    1.0 + clients / 40.0
}

/// Makes the proxies of a run middlewares of a queue: two types of requests, one database behind
/// four connections each, and batches that grow with the clients.
fn batched(record: &mut RunRecord) {
    let clients = record.run.factor("workload.clients").and_then(|level| level.number).unwrap();
    let batch = batch(clients);
    let pool = Pool { of: PoolKind::Connections(TierId::fixed("database")), servers: 4 };
    record.graph = graph(&Truth::of(&record.run), ("middlewares", "database"), vec![pool]);
    for tier in &mut record.tiers {
        tier.tier = "middlewares".to_owned();
        tier.kind = "message-queue".to_owned();
        let period = &mut tier.periods[0];
        let completions = period.completions();
        let batches = whole_u64(exact_f64(completions) / batch);
        period.held_time = times(held_s(batch), batches);
        // By the histogram's own mean, which is not quite what was asked for.
        let held = period.held_time.mean().unwrap() / 1e9;
        let busy = exact_f64(batches) / period.length_s() * held;
        period.workers_busy = Level { mean: busy, maximum: u64::from(period.workers) };
        period.backends = vec![TierBackend {
            address: "database".to_owned(),
            requests: batches,
            keys: completions,
            errors: 0,
            backend_time: times(0.9 * held_s(batch), batches),
        }];
        let mut half = period.requests.remove("set").unwrap();
        half.arrivals /= 2;
        half.completions = completions / 2;
        half.stages.insert("connection_wait_time".to_owned(), times(0.000_01, completions / 2));
        let other = TierRequests { completions: completions - half.completions, ..half.clone() };
        period.requests =
            BTreeMap::from([("send".to_owned(), half), ("receive".to_owned(), other)]);
    }
    record.tiers.push(Tier {
        tier: "database".to_owned(),
        kind: "postgresql".to_owned(),
        host: "localhost".to_owned(),
        ..Tier::default()
    });
    for process in &mut record.processes {
        match process.part.name.as_str() {
            "proxies" => process.part.name = "middlewares".to_owned(),
            "servers" => process.part.name = "database".to_owned(),
            _ => {}
        }
    }
}

/// Renames the proxies to `zfront` and lets the servers report as `abackend`: an alphabet that says
/// nothing of who is in front.
fn chained(record: &mut RunRecord) {
    let truth = Truth::of(&record.run);
    record.graph = graph(&truth, ("zfront", "abackend"), Vec::new());
    if let Some(link) = &mut record.graph.edges[1].link {
        link.delay_ns = 5_000_000;
    }
    let mut behind = record.tiers.clone();
    behind.truncate(1);
    for tier in &mut record.tiers {
        tier.tier = "zfront".to_owned();
    }
    for tier in &mut behind {
        tier.tier = "abackend".to_owned();
        let period = &mut tier.periods[0];
        period.backends.clear();
        for requests in period.requests.values_mut() {
            requests.stages.insert("response_time".to_owned(), times(0.000_1, 1_000));
        }
    }
    record.tiers.extend(behind);
    for process in &mut record.processes {
        match process.part.name.as_str() {
            "proxies" => process.part.name = "zfront".to_owned(),
            "servers" => process.part.name = "abackend".to_owned(),
            _ => {}
        }
    }
}
