//! What was measured at one operating point, as plain numbers that a model can take.
//!
//! Means over the steady part of a run, or over the repetitions of one. Where several instances of
//! a tier share the load, rates, levels and CPU are sums over them and times are means per request.

use std::collections::BTreeMap;

use kendall_protocols::snapshot::stage;
use kendall_protocols::topology::{Part, Role};
use kendall_protocols::waiting::Waiting;
use serde::{Deserialize, Serialize};

/// One system under one load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatingPoint {
    /// Length of the steady part that was measured.
    pub duration_s: f64,
    /// N: clients of a closed loop; `None` for an open one.
    pub population: Option<f64>,
    /// Z: mean think time of a client.
    pub think_time_s: f64,
    /// λ that an open loop offered; `None` for a closed one.
    pub arrival_rate_per_s: Option<f64>,
    /// As the clients saw it.
    pub client: View,
    /// Delay of the emulated links on the way from the clients to the first tier that reports, both
    /// ways together.
    pub client_link_round_trip_s: f64,
    /// Delay of the emulated links on the ways behind that tier, both ways together.
    pub backend_link_round_trip_s: f64,
    /// Tiers between the clients and the first one that reports; these report nothing.
    pub silent_before: Vec<String>,
    /// The tiers that report their stages, by their distance from the clients.
    pub tiers: Vec<TierView>,
    /// CPU by role, load generators included.
    pub processes: Vec<ProcessView>,
    /// Cores of the host; 0 where unknown.
    pub host_cores: f64,
    /// Busy cores of the host, by any program; `None` where not recorded.
    pub host_busy_cores: Option<f64>,
    /// Bytes that the host received and sent a second, loopback included; `None` where not
    /// recorded.
    pub host_network: Option<NetworkView>,
    /// Each host, where the study ran on several; the three fields above are then of no use.
    #[serde(default)]
    pub hosts: Vec<HostView>,
    /// Emulated links with a bandwidth.
    #[serde(default)]
    pub links: Vec<LinkView>,
}

/// One of several hosts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// Its name in the study.
    pub name: String,
    pub cores: f64,
    /// Busy cores, by any program.
    pub busy_cores: f64,
    /// Cores that processes of the study used there.
    pub own_cores: f64,
    /// The part of these that load generators used.
    pub generator_cores: f64,
    /// Threads of the study that waited for a core there; `None` if unknown.
    pub run_queue_wait: Option<f64>,
}

/// Bytes that crossed a place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkView {
    pub in_bytes_per_s: f64,
    pub out_bytes_per_s: f64,
}

/// What crossed an emulated link, and what it can carry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkView {
    /// Its ends, as the study file writes them: `clients -> proxies`.
    pub name: String,
    /// Bytes a second the way that was fuller, over all routes.
    pub bytes_per_s: f64,
    /// Limit of one route that way.
    pub bandwidth_bytes_per_s: f64,
    /// Routes: one for each instance of the tier behind it.
    pub routes: u32,
}

/// Throughput and response time as seen from one place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// X: requests completed per second.
    pub throughput_per_s: f64,
    /// R: mean response time.
    pub response_time_s: f64,
}

/// What one tier reported.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TierView {
    /// Its name in the study.
    pub name: String,
    /// Processes that share its load.
    pub instances: u32,
    /// Workers of all instances together; 0 where there is no worker limit.
    pub workers: u32,
    /// As the tier saw it: `replied − arrived`.
    pub view: View,
    /// Requests that arrived; `None` where only those that were answered were counted.
    pub arrivals_per_s: Option<f64>,
    /// W: `dequeued − arrived`.
    pub waiting_time_s: f64,
    /// S: `replied − dequeued`, the time that a worker is held.
    pub service_time_s: f64,
    /// `received − sent`: the part of S spent on waiting for backends; `None` for a tier without.
    pub backend_time_s: Option<f64>,
    /// Time-weighted mean of the requests that waited for a worker.
    pub queue_length: f64,
    /// Time-weighted mean of the workers that served.
    pub workers_busy: f64,
    /// The same of each instance.
    #[serde(default)]
    pub instances_busy: Vec<f64>,
    /// Bytes from its clients and to them.
    #[serde(default)]
    pub network: NetworkView,
    /// Outcomes that it counts (hits, misses, errors by kind), per second.
    #[serde(default)]
    pub outcomes_per_s: BTreeMap<String, f64>,
    /// What it does at a stretch, where a worker serves several requests at once; `None` where it
    /// serves them one by one.
    pub batches: Option<BatchView>,
    /// The pool of connections that workers share; `None` where each has its own, or none.
    pub connections: Option<ConnectionView>,
    /// Mean over requests of the time until there was a connection; 0 where nothing says so.
    #[serde(default)]
    pub connection_wait_s: f64,
    /// How many times the mean of each stage is of, by the stage's name: what weighs it beside other runs.
    #[serde(default)]
    pub recorded: BTreeMap<String, f64>,
}

/// Requests that a worker serves at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchView {
    /// Batches a second: how often a worker was taken.
    pub per_s: f64,
    /// H: mean time that a worker was held for a batch.
    pub held_time_s: f64,
}

/// Connections to a backend that workers wait for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionView {
    /// Name of the backend in the study.
    pub backend: String,
    /// Connections of all instances together.
    pub connections: u32,
    /// Exchanges a second: one a request, or one a batch.
    pub exchanges_per_s: f64,
    /// Mean time of an exchange.
    pub exchange_time_s: f64,
    /// Mean time that an exchange waited for its connection.
    pub waiting_time_s: f64,
}

impl ConnectionView {
    /// Response time of the backend as workers see it: the wait for a connection, and the exchange.
    pub fn response_time_s(&self) -> f64 {
        self.waiting_time_s + self.exchange_time_s
    }

    /// Connections in use: by Little's law, from exchanges and their time.
    pub fn busy(&self) -> f64 {
        self.exchanges_per_s * self.exchange_time_s
    }
}

impl TierView {
    pub fn part(&self) -> Part {
        Part { role: Role::Tier, name: self.name.clone() }
    }

    /// V: how often a request makes a worker be taken. 1, or one over the mean batch.
    pub fn visits(&self) -> f64 {
        match self.batches {
            Some(batches) if self.view.throughput_per_s > 0.0 => {
                batches.per_s / self.view.throughput_per_s
            }
            _ => 1.0,
        }
    }

    /// Requests that a worker serves at once, on average over batches. 1 at least: where there are
    /// more visits than requests, some were for clients that had gone.
    pub fn mean_batch(&self) -> f64 {
        let visits = self.visits();
        if visits > 0.0 { (1.0 / visits).max(1.0) } else { 1.0 }
    }

    /// The mean time in a stage, by its name in `kendall_protocols::snapshot::stage`; `None` for a stage
    /// that it does not have.
    pub fn time_s(&self, stage: &str) -> Option<f64> {
        match stage {
            stage::RESPONSE_TIME => Some(self.view.response_time_s),
            stage::WAITING_TIME => Some(self.waiting_time_s),
            stage::SERVICE_TIME => Some(self.service_time_s),
            stage::BACKEND_TIME => self.backend_time_s,
            stage::CONNECTION_WAIT_TIME => Some(self.connection_wait_s),
            _ => None,
        }
    }

    /// How many times the mean of a stage is of.
    pub fn recorded(&self, stage: &str) -> f64 {
        self.recorded.get(stage).copied().unwrap_or(0.0)
    }

    /// Share of what was looked up that it did not have; `None` where there was no lookup. What never
    /// happened is not counted.
    pub fn miss_share(&self) -> Option<f64> {
        let of = |name: &str| self.outcomes_per_s.get(name).copied().unwrap_or(0.0);
        let (hits, misses) = (of("hits"), of("misses"));
        (hits + misses > 0.0).then(|| misses / (hits + misses))
    }

    /// Time that a worker is held at a stretch: for a request, or for a batch.
    pub fn held_time_s(&self) -> f64 {
        self.batches.map_or(self.service_time_s, |batches| batches.held_time_s)
    }
}

/// CPU of the processes of one part of a study.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessView {
    /// Who they are: a tier, a link, the generators or the study.
    pub part: Part,
    pub instances: u32,
    /// CPU seconds per second, all of them together.
    pub cpu_cores: f64,
    /// Cores that they may use together: the smaller of their busy threads and the host's cores.
    pub cpu_cores_limit: f64,
    /// Cores of the hosts that they ran on, each host once.
    #[serde(default)]
    pub host_cores: f64,
    /// Seconds per second in which their threads were ready and had no core; `None` if unknown.
    pub run_queue_wait: Option<f64>,
    /// Their threads by name, busiest first; empty where they were not counted.
    pub threads: Vec<ThreadView>,
    /// Times a second that one of their threads waited for something.
    #[serde(default)]
    pub switches_per_s: f64,
    /// Times a second that another thread took the core of one of theirs.
    #[serde(default)]
    pub preemptions_per_s: f64,
    /// Cores that were kept awake for the next moment, which is not work.
    #[serde(default)]
    pub spun_cores: f64,
    /// What their threads and connections waited for, all together; `None` where it is unknown.
    pub waiting: Option<Waiting>,
}

/// CPU of the threads of one name in one role.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadView {
    /// Their name, without a number at its end.
    pub name: String,
    /// How many there are, over all instances.
    pub threads: f64,
    /// CPU seconds per second, all of them together.
    pub cpu_cores: f64,
    /// Seconds per second in which they were ready and had no core.
    #[serde(default)]
    pub run_queue_wait: f64,
    /// CPU of those of each instance.
    #[serde(default)]
    pub each_cores: Vec<f64>,
}

/// Growth of the mean batch, along a curve or above 1, from which requests are no longer taken to be
/// served one by one: below it, models that take them so are off by less than other things make them.
pub(crate) const BATCHES: f64 = 1.1;

/// Share of a role's CPU time from which the threads of one name count as doing its work; below it
/// lie pages of metrics, logs and clocks.
const WORKING_SHARE: f64 = 0.1;

impl ProcessView {
    /// Threads that do the work, over all instances; `None` where they were not counted.
    pub fn working_threads(&self) -> Option<f64> {
        let mut working = self.working().peekable();
        working.peek()?;
        Some(working.map(|group| group.threads).sum())
    }

    /// Cores in use of those of the limit: where the threads that do the work are the limit, by them alone.
    pub fn busy_cores(&self) -> f64 {
        match self.working_threads() {
            Some(threads) if threads <= self.cpu_cores_limit => {
                self.working().map(|group| group.cpu_cores).sum()
            }
            _ => self.cpu_cores,
        }
    }

    fn working(&self) -> impl Iterator<Item = &ThreadView> {
        let total: f64 = self.threads.iter().map(|group| group.cpu_cores).sum();
        self.threads
            .iter()
            .filter(move |group| total > 0.0 && group.cpu_cores >= WORKING_SHARE * total)
    }
}

impl OperatingPoint {
    /// λ: arrivals at a tier, or at the system where there is none. In a closed loop they are what is answered.
    pub fn arrivals_per_s(&self, tier: Option<&TierView>) -> f64 {
        match tier {
            Some(tier) => tier
                .arrivals_per_s
                .filter(|_| self.population.is_none())
                .unwrap_or(tier.view.throughput_per_s),
            None => self.offered_per_s().unwrap_or(self.client.throughput_per_s),
        }
    }

    /// λ that an open loop offered; `None` in a closed one.
    pub fn offered_per_s(&self) -> Option<f64> {
        self.arrival_rate_per_s.filter(|_| self.population.is_none())
    }

    /// CPU that one request costs in one part, in seconds: U/X.
    pub fn cpu_demand_s(&self, part: &Part) -> Option<f64> {
        let process = self.process(part)?;
        per_request(process.cpu_cores, self.client.throughput_per_s)
    }

    /// CPU that one request costs in all measured processes together, in seconds.
    pub fn cpu_demand_total_s(&self) -> Option<f64> {
        let cores: f64 = self.processes.iter().map(|process| process.cpu_cores).sum();
        (!self.processes.is_empty())
            .then(|| per_request(cores, self.client.throughput_per_s))
            .flatten()
    }

    /// The processes of one part.
    pub fn process(&self, part: &Part) -> Option<&ProcessView> {
        self.processes.iter().find(|process| process.part == *part)
    }

    /// Tiers behind the first one, by the CPU of their processes.
    pub fn backends(&self) -> impl Iterator<Item = &ProcessView> {
        let front = self.first_tier().map(TierView::part);
        self.processes.iter().filter(move |process| {
            process.part.role == Role::Tier
                && Some(&process.part) != front.as_ref()
                && !self.silent_before.contains(&process.part.name)
        })
    }

    /// The tier nearest the clients that reports its stages: the one that they speak to, unless
    /// [`silent_before`](Self::silent_before) names some in between.
    pub fn first_tier(&self) -> Option<&TierView> {
        self.tiers.first()
    }

    /// The abscissa of a load curve: N, or λ of an open loop.
    pub fn load(&self) -> f64 {
        self.population.or(self.arrival_rate_per_s).unwrap_or(self.client.throughput_per_s)
    }
}

fn per_request(amount: f64, throughput_per_s: f64) -> Option<f64> {
    (throughput_per_s > 0.0).then(|| amount / throughput_per_s)
}

/// Index of the point of highest throughput.
pub(crate) fn place_of_maximum(curve: &[OperatingPoint]) -> Option<usize> {
    let throughput = |place: &usize| curve[*place].client.throughput_per_s;
    (0..curve.len()).max_by(|a, b| throughput(a).total_cmp(&throughput(b)))
}
