//! The method of layers: each task and processor as a station of its own, whose clients are delayed
//! elsewhere for as long as the other stations say, round after round until nothing changes.

use std::collections::BTreeMap;

use super::plan::{Plan, Siblings, Visit};
use super::station::{Counts, Flow, Found, LARGEST_STEPS, largest, overtaking};
use super::{Call, CallKind, Layered, LayeredError, Part, Role};
use crate::network::MeasuredError;
use crate::network::accelerate::Anderson;

/// Most rounds of an iteration; of one with fewer customers, which another begins with; and most of an iteration that
/// are accelerated.
const MOST_ROUNDS: u32 = 100_000;
const MOST_OF_A_STAGE: u32 = 150;
const MOST_ACCELERATED: u32 = 400;
/// Rounds that an acceleration remembers, and after which its steps are halved.
const REMEMBERED: usize = 5;
const PATIENCE: u32 = 50;
/// Relative change from which on it is accelerated.
const NEAR: f64 = 0.3;
/// Most customers of a reference task with whom it begins anywhere, and for whom errors are measured by `ERRORS`.
const FEW: f64 = 8.0;
/// Most visits and pairs of all rounds together: some seconds; and of all solutions with a customer less besides.
const MOST_WORK: usize = 300_000_000;
const MOST_WORK_IN_ALL: usize = 10 * MOST_WORK;
/// Relative change at which it has settled; and with fewer customers.
const TOLERANCE: f64 = 1e-9;
const ROUGHLY: f64 = 1e-4;
/// By how much a station may be busier than it can be.
const MOST_EXCESS: f64 = 5e-7;
/// Relative change that is let pass when rounds run out.
const SETTLED: f64 = 1e-6;
/// Largest share of a station that arrivals may take which nothing holds back.
const MOST_OPEN: f64 = 0.9999;
/// Longest wait, in service times.
const MOST_WAIT: f64 = 1e18;
/// The largest errors over random models of up to four layers, eight customers of each of up to three
/// reference tasks and six threads (`tests/all/layered.rs`): with exponential slices in one phase and
/// calls that wait; with one of other slices, second phases, calls at once, asynchronous calls and
/// arrivals; and with more of these.
const ERRORS: [MeasuredError; 3] = [
    MeasuredError::new(29.0, 72.0),
    MeasuredError::new(48.0, 90.0),
    MeasuredError::new(88.0, 1170.0),
];
/// The largest over those and over models of 100 to 800 customers: as above; with second phases, calls at once, or
/// asynchronous calls and arrivals. Other slices, and several of these, were not measured with so many.
const ERRORS_OF_MANY: [MeasuredError; 2] =
    [MeasuredError::new(37.0, 540.0), MeasuredError::new(48.0, 1440.0)];
/// Most layers of those models, with that of the reference tasks, and most customers.
const MOST_LAYERS: usize = 4;
const MANY: f64 = 800.0;

/// What the method found. Lists are in the model's order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LayeredSolution {
    /// By entry.
    pub entries: Vec<EntryResult>,
    /// By task.
    pub tasks: Vec<TaskResult>,
    /// By processor.
    pub processors: Vec<ProcessorResult>,
    /// Rounds, and the largest relative change in the last.
    pub iterations: (u32, f64),
    /// How far it was off at most over random models; `None` beyond what they had.
    pub measured_error: Option<MeasuredError>,
}

/// An entry.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryResult {
    /// X in 1/s.
    pub throughput: f64,
    /// By phase.
    pub phases: Vec<PhaseResult>,
    /// Mean wait of arrivals from outside, in s.
    pub arrival_waiting: Option<f64>,
}

/// A phase of an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseResult {
    /// Mean time in s, waits for processors and replies included.
    pub service_time: f64,
    /// Mean wait for the processor in s, all slices together.
    pub processor_waiting: f64,
    /// Calls, those that others forward included.
    pub calls: Vec<CallResult>,
}

/// A call of a phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallResult {
    /// Who answers.
    pub entry: usize,
    /// Mean number in a run of the phase.
    pub number: f64,
    /// Whether the caller waits for the reply.
    pub synchronous: bool,
    /// The fork of the phase that it belongs to.
    pub fork: Option<usize>,
    /// Mean wait of one for a thread, in s.
    pub waiting: f64,
}

/// A task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskResult {
    /// X in 1/s.
    pub throughput: f64,
    /// Mean number of busy threads, or of customers that do not think.
    pub busy: f64,
    /// The same, as a share of one; none without a limit.
    pub utilization: Option<f64>,
    /// R of a reference task in s, think time excluded.
    pub response: Option<f64>,
}

/// A processor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessorResult {
    /// Mean number of busy cores.
    pub busy: f64,
    /// The same, as a share of one; none without a limit.
    pub utilization: Option<f64>,
}

/// Solves a layered model approximately.
///
/// A request finds at a task or processor what its own customer does not cause: the numbers of the
/// model with one customer less, and these again by Schweitzer's estimate. A customer who waits
/// below one task calls no other, so requests on its behalf never meet (interlocking). FCFS stations
/// count work rather than requests, second phases delay later arrivals, and requests without a
/// waiting customer (asynchronous, from outside, of second phases) are Poisson or come unbounded.
///
/// # Errors
/// [`LayeredError`]: [`LayeredError::Unstable`] and [`LayeredError::NotSettled`] among them.
///
/// # Source
/// Rolia and Sevcik 1995 \[RS95\]; Franks, Al-Omari, Woodside, Das and Derisavi 2009. Errors: the table
/// of `docs/models.md`.
pub fn solve(model: &Layered) -> Result<LayeredSolution, LayeredError> {
    let plan = Plan::new(model)?;
    let customers: Vec<f64> = plan
        .references
        .iter()
        .map(|(task, _)| match model.tasks[*task].role {
            Role::Reference { population, .. } => kendall_units::exact_f64(population),
            Role::Server(_) => 0.0,
        })
        .collect();
    let arrivals = model.entries.iter().any(|entry| entry.arrival_rate > 0.0);
    if !arrivals && customers.iter().all(|customers| *customers <= 0.0) {
        return Err(LayeredError::Empty("customers or arrivals"));
    }
    let mut left = MOST_WORK_IN_ALL;
    let mut start = grown(&plan, &customers, &mut left);
    let mut reduced = Vec::new();
    for reference in 0..customers.len() {
        let mut fewer = customers.clone();
        fewer[reference] = (fewer[reference] - 1.0).max(0.0);
        let mut rounds = Rounds::new(&plan, fewer, None);
        rounds.begin(start.as_deref());
        rounds.settle(&mut left, TOLERANCE, MOST_ROUNDS)?;
        start = start.map(|_| rounds.state());
        reduced.push(rounds.counts);
    }
    let mut rounds = Rounds::new(&plan, customers, Some(&reduced));
    rounds.begin(start.as_deref());
    let iterations = rounds.settle(&mut left, TOLERANCE, MOST_ROUNDS)?;
    rounds.result(iterations)
}

/// Where an iteration of many customers begins: they are doubled again and again from few on, and waits and throughputs
/// go on as from the number before. None for few.
fn grown(plan: &Plan<'_>, customers: &[f64], left: &mut usize) -> Option<Vec<f64>> {
    let most = customers.iter().copied().fold(0.0, f64::max);
    let mut share = 1.0;
    while share * most > FEW {
        share *= 0.5;
    }
    let mut known: Vec<Vec<f64>> = Vec::new();
    let ahead = |known: &[Vec<f64>]| match known {
        [.., before, last] => {
            Some(last.iter().zip(before).map(|(b, a)| 3.0 * b - 2.0 * a).collect())
        }
        [only] => Some(only.clone()),
        [] => None,
    };
    while share < 1.0 {
        let some = customers.iter().map(|customers| customers * share).collect();
        let mut rounds = Rounds::new(plan, some, None);
        rounds.begin(ahead(&known).as_deref());
        match rounds.settle(left, ROUGHLY, MOST_OF_A_STAGE) {
            // One that has not settled yet is near.
            Ok(_) | Err(LayeredError::NotSettled { .. }) => known.push(rounds.state()),
            Err(_) => known.clear(),
        }
        if known.last().is_some_and(|state| !state.iter().all(|value| value.is_finite())) {
            known.clear();
        }
        share *= 2.0;
    }
    ahead(&known)
}

/// Where an iteration has arrived.
struct Rounds<'a> {
    plan: &'a Plan<'a>,
    customers: Vec<f64>,
    /// Of each task, as a client.
    populations: Vec<f64>,
    /// Numbers by pair with a customer of each reference task less.
    reduced: Option<&'a [Vec<Counts>]>,
    /// X of reference tasks.
    throughput: Vec<f64>,
    /// By pair; where a processor is shared, in service times.
    wait: Vec<f64>,
    /// Of arrivals that nothing bounds, by station.
    open_wait: Vec<f64>,
    /// By station, what keeps it at its capacity; and whether anything does yet.
    held: Vec<f64>,
    holding: bool,
    counts: Vec<Counts>,
    entries: Vec<Running>,
    flows: Vec<Flow>,
    open: Vec<Flow>,
    /// X of each task, and its mean number of busy threads or of customers that do not think.
    tasks: Vec<(f64, f64)>,
    /// By task and caller: rate of calls that wait; and by task, its visits, and those on behalf of
    /// a waiting caller.
    called: Vec<Vec<f64>>,
    bound: Vec<(f64, f64)>,
    /// By two tasks, in their order: how probably requests of both are the same caller's, so that
    /// they never meet.
    met: Vec<Vec<f64>>,
    /// Likewise, what part of the requests of one those of the other find because both are calls of one
    /// fork; and of calls of one fork to the same task.
    beside: Vec<Vec<f64>>,
    twins: Vec<f64>,
}

/// An entry in this round.
#[derive(Debug, Clone, Default)]
struct Running {
    rate: f64,
    /// Part of the rate that is asynchronous or arrives from outside.
    open: f64,
    shares: Vec<f64>,
    /// Mean and variance of each phase.
    phases: Vec<(f64, f64)>,
    /// By phase, how long each fork lasts.
    forks: Vec<Vec<f64>>,
}

impl Running {
    fn first(&self) -> (f64, f64) {
        self.phases.first().copied().unwrap_or_default()
    }

    fn second(&self) -> (f64, f64) {
        self.phases.iter().skip(1).fold((0.0, 0.0), |sum, phase| (sum.0 + phase.0, sum.1 + phase.1))
    }

    fn total(&self) -> f64 {
        self.phases.iter().map(|phase| phase.0).sum()
    }
}

fn square((mean, variance): (f64, f64)) -> [f64; 2] {
    [mean, mean * mean + variance]
}

/// Relative change of a wait; infinite where it has left all bounds.
fn moved(now: f64, next: f64, unit: f64) -> f64 {
    if next < MOST_WAIT * unit { (next - now).abs() / (unit + next) } else { f64::INFINITY }
}

impl<'a> Rounds<'a> {
    fn new(plan: &'a Plan<'a>, customers: Vec<f64>, reduced: Option<&'a [Vec<Counts>]>) -> Self {
        let (references, tasks) = (plan.references.len(), plan.model.tasks.len());
        let phases = |entry: &super::Entry| vec![(0.0, 0.0); entry.phases.len()];
        let entries = plan.model.entries.iter().map(|entry| Running {
            shares: vec![0.0; references],
            phases: phases(entry),
            forks: vec![Vec::new(); entry.phases.len()],
            ..Running::default()
        });
        let mut rounds = Self {
            plan,
            populations: plan.populations(&customers),
            customers,
            reduced,
            throughput: vec![0.0; references],
            wait: vec![0.0; plan.pairs.len()],
            open_wait: vec![0.0; plan.stations.len()],
            held: vec![0.0; plan.stations.len()],
            holding: false,
            counts: vec![Counts::default(); plan.pairs.len()],
            entries: entries.collect(),
            flows: vec![Flow::new(references); plan.pairs.len()],
            open: vec![Flow::new(references); plan.stations.len()],
            tasks: vec![(0.0, 0.0); tasks],
            called: vec![vec![0.0; tasks]; tasks],
            bound: vec![(0.0, 0.0); tasks],
            met: vec![vec![0.0; tasks]; tasks],
            beside: vec![vec![0.0; tasks]; tasks],
            twins: vec![0.0; tasks],
        };
        rounds.times();
        for reference in 0..references {
            rounds.throughput[reference] = rounds.best(reference);
        }
        rounds
    }

    /// X of a reference task, with the times of this round.
    fn best(&self, reference: usize) -> f64 {
        let (task, entry) = self.plan.references[reference];
        let Role::Reference { think_time, .. } = self.plan.model.tasks[task].role else {
            return 0.0;
        };
        let cycle = think_time + self.entries[entry].total();
        if cycle > 0.0 { self.customers[reference] / cycle } else { 0.0 }
    }

    /// Begins with what another iteration came to, or a line through two of them.
    fn begin(&mut self, start: Option<&[f64]>) {
        let Some(start) = start else { return };
        self.set(start);
        self.held.fill(0.0);
        for reference in 0..self.throughput.len() {
            if self.customers[reference] <= 0.0 {
                self.throughput[reference] = 0.0;
            } else if self.throughput[reference] <= 0.0 {
                self.throughput[reference] = self.best(reference);
            }
        }
    }

    fn state(&self) -> Vec<f64> {
        let lists = [&self.wait, &self.open_wait, &self.held, &self.throughput];
        lists.into_iter().flatten().copied().collect()
    }

    fn set(&mut self, state: &[f64]) {
        let lists = [&mut self.wait, &mut self.open_wait, &mut self.held, &mut self.throughput];
        for (place, value) in lists.into_iter().flatten().zip(state) {
            *place = value.max(0.0);
        }
        self.times();
    }

    /// What parts of the state are measured in.
    fn units(&mut self) -> Vec<f64> {
        self.flows();
        let time = |flow: &Flow| flow.first() + flow.second();
        let shared = |station: usize| self.plan.stations[station].ps;
        let pairs = self.flows.iter().zip(&self.plan.pairs);
        let waits = pairs.map(|(flow, pair)| if shared(pair.station) { 1.0 } else { time(flow) });
        let open = self.open.iter().enumerate();
        let open = open.map(|(at, flow)| if shared(at) { 1.0 } else { time(flow) });
        let held = self.held.iter().map(|_| 1.0);
        let units = waits.chain(open).chain(held).chain(self.throughput.iter().copied());
        units.map(|unit| if unit > 0.0 { unit } else { 1.0 }).collect()
    }

    /// Work of a round.
    fn size(&self) -> usize {
        let plan = self.plan;
        let visits: usize = plan.visits.iter().flatten().map(Vec::len).sum();
        let size = visits + plan.pairs.len() * (1 + plan.references.len()) + plan.stations.len();
        let size = size + plan.at.iter().map(|pairs| pairs.len() * pairs.len()).sum::<usize>();
        let size = size + plan.model.tasks.len() * plan.model.tasks.len() + plan.siblings.len();
        let phases = plan.model.entries.iter().flat_map(|entry| &entry.phases);
        let branches = phases.flat_map(|phase| &phase.forks).map(|fork| fork.entries.len());
        let size = size + branches.sum::<usize>() * 2 * LARGEST_STEPS;
        (size + plan.model.entries.len() * (1 + plan.references.len())).max(1)
    }

    /// Rounds until nothing changes. Near that they are accelerated, unless this does not help.
    fn settle(
        &mut self,
        left: &mut usize,
        tolerance: f64,
        most: u32,
    ) -> Result<(u32, f64), LayeredError> {
        for (reference, (task, _)) in self.plan.references.iter().enumerate() {
            if self.customers[reference] > 0.0 && self.throughput[reference] <= 0.0 {
                let (part, task) = (Part::Task(*task), self.plan.model.tasks[*task].name.clone());
                let what = "takes no time: give it a demand, calls, or a think time";
                return Err(LayeredError::Role { part, task, what });
            }
        }
        let (size, units) = (self.size(), self.units());
        let affordable = u32::try_from(MOST_WORK.min(*left) / size).unwrap_or(MOST_ROUNDS);
        let most = affordable.clamp(1, most);
        let (mut step, mut last) = (1.0_f64, f64::INFINITY);
        let mut anderson = Anderson::cautious(REMEMBERED);
        for round in 1..=most {
            *left = left.saturating_sub(size);
            let before = self.state();
            let change = self.round();
            if !change.is_finite() {
                self.stable(|rounds, station| rounds.busy(station))?;
                return Err(LayeredError::NotSettled { rounds: round, change });
            }
            if change <= tolerance {
                self.times();
                self.flows();
                if self.holding || self.most_excess() <= MOST_EXCESS.max(10.0 * tolerance) {
                    return Ok((round, change));
                }
            }
            self.holding |= change <= tolerance || round > MOST_ACCELERATED;
            let mut again = change <= tolerance || change > NEAR || round > MOST_ACCELERATED;
            if round < MOST_ACCELERATED && round % PATIENCE == 0 {
                (step, again) = (step * 0.5, true);
            } else if round == MOST_ACCELERATED {
                step = 1.0;
            } else if round > MOST_ACCELERATED && change > last {
                // An iteration that swings is slowed down.
                step = (step * 0.8).max(0.01);
            }
            last = change;
            let scaled = |state: &[f64]| -> Vec<f64> {
                state.iter().zip(&units).map(|(value, unit)| value / unit).collect()
            };
            let before = scaled(&before);
            let mut next = scaled(&self.state());
            for (next, before) in next.iter_mut().zip(&before) {
                *next = before + step * (*next - before);
            }
            if again {
                anderson = Anderson::cautious(REMEMBERED);
            } else {
                anderson.step(&before, &mut next);
            }
            for (next, unit) in next.iter_mut().zip(&units) {
                *next *= unit;
            }
            self.set(&next);
        }
        self.stable(|rounds, station| rounds.open[station].busy())?;
        if last <= SETTLED {
            return Ok((most, last));
        }
        Err(LayeredError::NotSettled { rounds: most, change: last })
    }

    /// By how much of its capacity the busiest station exceeds it.
    fn most_excess(&self) -> f64 {
        let stations = self.plan.stations.iter().enumerate();
        stations.map(|(at, station)| self.busy(at) / station.servers - 1.0).fold(0.0, f64::max)
    }

    /// What is asked of each station is within what it can do.
    fn stable(&self, asked: impl Fn(&Self, usize) -> f64) -> Result<(), LayeredError> {
        for (index, station) in self.plan.stations.iter().enumerate() {
            let (offered, capacity) = (asked(self, index), station.servers);
            if offered >= MOST_OPEN * capacity && capacity.is_finite() {
                let (part, name) = self.station(index);
                return Err(LayeredError::Unstable { part, name, offered, capacity });
            }
        }
        Ok(())
    }

    /// Mean number of busy servers.
    fn busy(&self, station: usize) -> f64 {
        let pairs = self.plan.at[station].iter().map(|pair| self.flows[*pair].busy());
        pairs.sum::<f64>() + self.open[station].busy()
    }

    fn station(&self, index: usize) -> (Part, String) {
        let model = self.plan.model;
        match model.processors.get(index) {
            Some(processor) => (Part::Processor(index), processor.name.clone()),
            None => {
                let task = index - model.processors.len();
                (Part::Task(task), model.tasks[task].name.clone())
            }
        }
    }

    /// Returns the largest relative change.
    fn round(&mut self) -> f64 {
        self.flows();
        let mut change = 0.0_f64;
        for station in 0..self.plan.stations.len() {
            if self.plan.stations[station].servers.is_finite() {
                change = change.max(self.serve(station));
            }
        }
        self.times();
        for reference in 0..self.throughput.len() {
            let best = self.best(reference);
            let now = &mut self.throughput[reference];
            if best > 0.0 {
                change = change.max((best - *now).abs() / best);
            }
            *now = best;
        }
        change
    }

    /// Rates of entries, and the arrivals at each station with their times there, callers first.
    fn flows(&mut self) {
        let plan = self.plan;
        for (running, entry) in self.entries.iter_mut().zip(&plan.model.entries) {
            running.rate = entry.arrival_rate;
            running.open = entry.arrival_rate;
            running.shares.fill(0.0);
        }
        self.called.iter_mut().for_each(|row| row.fill(0.0));
        self.bound.fill((0.0, 0.0));
        let references = plan.references.len();
        self.flows.fill(Flow::new(references));
        self.open.fill(Flow::new(references));
        for (reference, (_, entry)) in plan.references.iter().enumerate() {
            self.entries[*entry].rate = self.throughput[reference];
            self.entries[*entry].shares[reference] = self.throughput[reference];
        }
        for entry in &plan.order {
            self.flow_of(*entry);
        }
        self.tasks.fill((0.0, 0.0));
        for (running, entry) in self.entries.iter().zip(&plan.model.entries) {
            let (rate, active) = &mut self.tasks[entry.task];
            *rate += running.rate;
            *active += running.rate * running.total();
        }
        self.meet();
    }

    fn flow_of(&mut self, index: usize) {
        let plan = self.plan;
        let entry = &plan.model.entries[index];
        let Running { rate, open, .. } = self.entries[index];
        if rate <= 0.0 {
            return;
        }
        let mut shares = std::mem::take(&mut self.entries[index].shares);
        for share in &mut shares {
            *share /= rate;
        }
        for (to, probability) in &entry.forwards {
            self.entries[*to].rate += open * probability;
            self.entries[*to].open += open * probability;
        }
        if entry.arrival_rate > 0.0 {
            let running = &self.entries[index];
            let (first, second) = (square(running.first()), square(running.second()));
            self.open[plan.task_station(entry.task)].add(entry.arrival_rate, first, second, None);
        }
        let customer = matches!(plan.model.tasks[entry.task].role, Role::Reference { .. });
        for (number, visits) in plan.visits[index].iter().enumerate() {
            let bound = (customer || number == 0).then_some(&shares[..]);
            for visit in visits {
                let rate = rate * visit.number;
                let (first, second) = self.service(index, number, visit);
                let flow = match visit.pair {
                    Some(pair) => &mut self.flows[pair],
                    None => &mut self.open[visit.station],
                };
                let shares = bound.filter(|_| visit.waits);
                flow.add(rate, first, second, shares);
                let (visits, of_callers) = &mut self.bound[entry.task];
                *visits += rate;
                *of_callers += bound.map_or(0.0, |_| rate);
                let Some(to) = visit.entry else { continue };
                let running = &mut self.entries[to];
                running.rate += rate;
                if visit.waits {
                    self.called[plan.model.entries[to].task][entry.task] += rate;
                } else {
                    running.open += rate;
                }
                if let Some(shares) = shares {
                    for (sum, share) in running.shares.iter_mut().zip(shares) {
                        *sum += rate * share;
                    }
                }
            }
        }
        self.entries[index].shares = shares;
    }

    /// Moments of what a visit takes of its server, before the reply and after it.
    fn service(&self, entry: usize, phase: usize, visit: &Visit) -> ([f64; 2], [f64; 2]) {
        if let Some(to) = visit.entry {
            let running = &self.entries[to];
            return (square(running.first()), square(running.second()));
        }
        let phase = &self.plan.model.entries[entry].phases[phase];
        let slice = phase.demand / visit.number;
        (square((slice, phase.scv * slice * slice)), [0.0; 2])
    }

    /// Waits at one station; returns the largest relative change.
    fn serve(&mut self, index: usize) -> f64 {
        let plan = self.plan;
        let station = plan.stations[index];
        let pairs = &plan.at[index];
        let mut all = Found::default();
        for pair in pairs {
            let flow = &self.flows[*pair];
            let task = plan.pairs[*pair].task;
            let wait = self.wait[*pair] * if station.ps { flow.first() } else { 1.0 };
            // No more than the client has, while the iteration still asks for more.
            let active = self.tasks[task].1;
            let scale =
                if active > self.populations[task] { self.populations[task] / active } else { 1.0 };
            self.counts[*pair] = flow.counts(wait).scaled(scale);
            all += flow.found(self.counts[*pair], station, 0.0);
        }
        let mut change = self.serve_open(index, all);
        let open = self.open_found(index);
        let load = self.busy(index) / station.servers;
        change = change.max(self.hold(index, load - 1.0));
        let load = load.min(1.0);
        let own = |pair: &usize| self.flows[*pair].found(self.counts[*pair], station, load);
        let own: Vec<Found> = pairs.iter().map(own).collect();
        let task = index.checked_sub(plan.model.processors.len());
        let twins = task.map_or(0.0, |task| self.twins[task]);
        for pair in pairs {
            let flow = &self.flows[*pair];
            if flow.rate <= 0.0 {
                continue;
            }
            let mut found = open;
            for (own, other) in own.iter().zip(pairs) {
                let task = plan.pairs[*other].task;
                let meet = 1.0 - self.met[plan.pairs[*pair].task][task];
                let fewer = self.flows[*other].found(self.fewer(flow, *other), station, load);
                found += (*own * meet).least(fewer);
                let mut beside = self.beside[plan.pairs[*pair].task][task];
                if other == pair {
                    beside += twins;
                }
                found += *own * beside;
            }
            let overtaken = self.overtaken(*pair);
            let mut wait = found.wait(station, overtaken, flow.second_left());
            let unit = if station.ps { 1.0 } else { flow.busy() / flow.rate };
            wait += self.held[index] * unit;
            let now = &mut self.wait[*pair];
            change = change.max(moved(*now, wait, unit));
            *now = wait;
        }
        change
    }

    /// Numbers of a pair that a request of `flow` finds: without what its customer causes and waits
    /// for.
    fn fewer(&self, flow: &Flow, other: usize) -> Counts {
        let Some(reduced) = self.reduced else { return self.counts[other] };
        let unbound = self.flows[other].unbound();
        let mut sum = self.counts[other].scaled(flow.unbound());
        for (reference, reduced) in reduced.iter().enumerate() {
            let fewer = self.counts[other].mixed(unbound, reduced[other]);
            sum = sum.plus(fewer.scaled(flow.share(reference)));
        }
        sum
    }

    /// A thread or customer that waits has one request below it. So requests that both come from task
    /// c are of one thread with probability 1/N_c; those of two tasks come from the callers of the later
    /// one, and so on upwards. Calls of a fork do meet: as long as it lasts, each finds the other.
    fn meet(&mut self) {
        let plan = self.plan;
        let from = |rounds: &Self, task: usize, caller: usize| {
            let (visits, bound) = rounds.bound[task];
            let served: f64 = rounds.called[task].iter().sum();
            let open = rounds.tasks[task].0 - served;
            let all = served + open.max(0.0);
            if all <= 0.0 || visits <= 0.0 {
                0.0
            } else {
                rounds.called[task][caller] / all * bound / visits
            }
        };
        let forks = self.forks();
        for (place, later) in plan.tasks.iter().enumerate() {
            let callers = &plan.callers[*later];
            let shares: Vec<f64> =
                callers.iter().map(|(caller, _)| from(self, *later, *caller)).collect();
            let above = |of: &[Vec<f64>], other: usize| -> f64 {
                callers
                    .iter()
                    .zip(&shares)
                    .map(|((caller, _), share)| share * of[*caller][other])
                    .sum()
            };
            let called =
                |one: usize, other: usize| forks.get(&[one.max(other), one.min(other)]).copied();
            for earlier in &plan.tasks[..place] {
                let met = above(&self.met, *earlier);
                let beside = above(&self.beside, *earlier);
                let beside = beside + called(*later, *earlier).unwrap_or_default();
                for (one, other) in [(*later, *earlier), (*earlier, *later)] {
                    self.met[one][other] = met;
                    self.beside[one][other] = beside;
                }
            }
            let both = |of: &[Vec<f64>]| -> f64 {
                callers
                    .iter()
                    .zip(&shares)
                    .map(|((caller, _), share)| share * above(of, *caller))
                    .sum()
            };
            let (twice, beside) = (both(&self.met), both(&self.beside));
            let one = 1.0 / self.populations[*later].max(1.0);
            self.met[*later][*later] = twice.max(one);
            self.twins[*later] = called(*later, *later).unwrap_or_default();
            self.beside[*later][*later] = beside + self.twins[*later];
        }
    }

    /// By two tasks that are called at once: how probable both are of such a call, over the mean number
    /// of such calls under way; and half of it, since of two that begin at once either is first.
    fn forks(&self) -> BTreeMap<[usize; 2], f64> {
        let mut forks = BTreeMap::new();
        for Siblings { tasks, numbers, of: [entry, phase, fork] } in &self.plan.siblings {
            let running = &self.entries[*entry];
            let called = self.plan.model.entries[*entry].phases[*phase].forks[*fork].mean;
            let last = running.forks[*phase].get(*fork).copied().unwrap_or_default();
            let under_way = running.rate * called * last;
            if under_way > 0.0 {
                let share = |place: usize| {
                    (running.rate * numbers[place] / self.tasks[tasks[place]].0).min(1.0)
                };
                *forks.entry(*tasks).or_default() += 0.5 * share(0) * share(1) / under_way;
            }
        }
        forks
    }

    /// Arrivals that nothing bounds find what is there on average.
    fn serve_open(&mut self, index: usize, closed: Found) -> f64 {
        let station = self.plan.stations[index];
        let open = &self.open[index];
        if open.rate <= 0.0 {
            return 0.0;
        }
        let busy = open.found(open.counts(0.0), station, 0.0);
        let rest = (1.0 - open.busy() / station.servers).max(1.0 - MOST_OPEN);
        let wait = (closed + busy).wait(station, 0.0, 0.0) / rest;
        let unit = if station.ps { 1.0 } else { open.first() + open.second() };
        let now = &mut self.open_wait[index];
        let change = moved(*now, wait, unit);
        *now = wait;
        change
    }

    fn open_found(&self, index: usize) -> Found {
        let (open, station) = (&self.open[index], self.plan.stations[index]);
        let wait = self.open_wait[index] * if station.ps { open.first() } else { 1.0 };
        open.found(open.counts(wait), station, 0.0)
    }

    /// What is found may be too little for a station that is saturated: a wait, in service times, that
    /// grows as long as it is busier than it can be. By as many service times as its clients have
    /// requests for each server it takes all of these off.
    fn hold(&mut self, index: usize, excess: f64) -> f64 {
        let held = self.held[index];
        if !self.holding || (excess <= 0.0 && held <= 0.0) {
            return 0.0;
        }
        let (plan, servers) = (self.plan, self.plan.stations[index].servers);
        let clients = plan.at[index].iter().map(|pair| self.populations[plan.pairs[*pair].task]);
        let gain = (clients.sum::<f64>() / servers).max(1.0 + held);
        let next = (held + excess * gain).max(0.0);
        self.held[index] += 0.5 * (next - held);
        excess.abs().min((next - held).abs() / (1.0 + next))
    }

    fn overtaken(&self, pair: usize) -> f64 {
        let plan = self.plan;
        let (flow, super::plan::Pair { task, station }) = (&self.flows[pair], plan.pairs[pair]);
        let (rate, active) = self.tasks[task];
        if rate <= 0.0 || plan.stations[station].servers.is_infinite() {
            return 0.0;
        }
        let response = self.wait[pair] + flow.first();
        let (active, cycle) = (active / rate, self.populations[task] / rate);
        overtaking(flow.second(), flow.rate / rate, active, cycle, response)
    }

    /// Mean and variance of each phase, callees first.
    fn times(&mut self) {
        for entry in self.plan.order.iter().rev() {
            for phase in 0..self.entries[*entry].phases.len() {
                let (time, forks) = self.time(*entry, phase);
                self.entries[*entry].phases[phase] = time;
                self.entries[*entry].forks[phase] = forks;
            }
        }
    }

    /// Wait of one visit.
    fn waiting(&self, entry: usize, phase: usize, visit: &Visit) -> f64 {
        let station = self.plan.stations[visit.station];
        let wait = visit.pair.map_or(self.open_wait[visit.station], |pair| self.wait[pair]);
        if station.ps { wait * self.service(entry, phase, visit).0[0] } else { wait }
    }

    /// A phase is a slice, and as many pairs of a call and a slice as there are calls: a geometric
    /// number, or the mean. Waits count as exponential. Also how long each fork lasts.
    fn time(&self, entry: usize, phase: usize) -> ((f64, f64), Vec<f64>) {
        let about = &self.plan.model.entries[entry].phases[phase];
        let (mut slice, mut slices, mut calls) = ((0.0, 0.0), 0.0, 0.0);
        let (mut call, mut call_square) = (0.0, 0.0);
        let mut forks: Vec<Vec<(f64, f64)>> =
            about.forks.iter().map(|fork| vec![(0.0, 0.0); fork.entries.len()]).collect();
        for visit in &self.plan.visits[entry][phase] {
            let wait = self.waiting(entry, phase, visit);
            let [mean, second] = self.service(entry, phase, visit).0;
            let (mean, variance) = (mean + wait, second - mean * mean + wait * wait);
            match (visit.entry, visit.branch) {
                (None, _) => (slice, slices) = ((mean, variance), visit.number),
                (_, Some((fork, branch))) => {
                    let share = visit.number / about.forks[fork].mean;
                    let time = &mut forks[fork][branch];
                    time.0 += share * mean;
                    time.1 += share * (variance + (1.0 - share) * mean * mean);
                }
                _ => {
                    calls += visit.number;
                    if visit.waits {
                        call += visit.number * mean;
                        call_square += visit.number * (variance + mean * mean);
                    }
                }
            }
        }
        let forks = forks.iter().map(|branches| largest(branches));
        let forks: Vec<f64> = forks
            .zip(&about.forks)
            .map(|((mean, variance), fork)| {
                calls += fork.mean;
                call += fork.mean * mean;
                call_square += fork.mean * (variance + mean * mean);
                mean
            })
            .collect();
        let mean = slice.0 * slices + call + about.think_time;
        let mut variance = slice.1 + about.think_time * about.think_time;
        if calls > 0.0 {
            let each = slice.0 + call / calls;
            let spread = slice.1 + call_square / calls - (call / calls) * (call / calls);
            let numbers = if about.deterministic { 0.0 } else { calls * (1.0 + calls) };
            variance += calls * spread + numbers * each * each;
        }
        ((mean, variance), forks)
    }

    fn result(&self, iterations: (u32, f64)) -> Result<LayeredSolution, LayeredError> {
        self.stable(|rounds, station| rounds.open[station].busy())?;
        let model = self.plan.model;
        let entries: Vec<EntryResult> =
            (0..model.entries.len()).map(|entry| self.entry(entry)).collect();
        let share = |busy: f64, count: f64| count.is_finite().then(|| busy / count);
        let tasks = model.tasks.iter().enumerate().map(|(index, task)| {
            let (throughput, busy) = self.tasks[index];
            let reference = self.plan.references.iter().find(|(task, _)| *task == index);
            let count = match task.role {
                Role::Reference { population, .. } => kendall_units::exact_f64(population),
                Role::Server(threads) => threads.count(),
            };
            let response = reference.map(|(_, entry)| self.entries[*entry].total());
            TaskResult { throughput, busy, utilization: share(busy, count), response }
        });
        let processors = model.processors.iter().enumerate().map(|(index, processor)| {
            let busy = self.busy(index);
            ProcessorResult { busy, utilization: share(busy, processor.copies.count()) }
        });
        Ok(LayeredSolution {
            tasks: tasks.collect(),
            processors: processors.collect(),
            entries,
            iterations,
            measured_error: self.measured_error(),
        })
    }

    fn measured_error(&self) -> Option<MeasuredError> {
        let most = self.customers.iter().copied().fold(0.0, f64::max);
        let [slices, others @ ..] = self.features();
        let others = others.into_iter().filter(|found| *found).count();
        match usize::from(slices) + others {
            _ if self.plan.layers() > MOST_LAYERS || most > MANY => None,
            features if most <= FEW => Some(ERRORS[features.min(2)]),
            features if !slices => ERRORS_OF_MANY.get(features).copied(),
            _ => None,
        }
    }

    /// Slices that are not exponential, calls at once, second phases, arrivals and asynchronous calls.
    fn features(&self) -> [bool; 4] {
        let entries = &self.plan.model.entries;
        let phases = || entries.iter().flat_map(|entry| &entry.phases);
        let unawaited = |call: &Call| call.kind == CallKind::Asynchronous;
        [
            phases().any(|phase| (phase.scv - 1.0).abs() > 1e-9),
            phases().any(|phase| !phase.forks.is_empty()),
            entries.iter().any(|entry| entry.phases.len() > 1),
            entries.iter().any(|entry| entry.arrival_rate > 0.0)
                || phases().flat_map(|phase| &phase.calls).any(unawaited),
        ]
    }

    fn entry(&self, index: usize) -> EntryResult {
        let (entry, running) = (&self.plan.model.entries[index], &self.entries[index]);
        let phase = |(number, visits): (usize, &Vec<Visit>)| {
            let calls = visits.iter().filter_map(|visit| {
                Some(CallResult {
                    entry: visit.entry?,
                    number: visit.number,
                    synchronous: visit.waits,
                    fork: visit.branch.map(|(fork, _)| fork),
                    waiting: self.waiting(index, number, visit),
                })
            });
            let host = visits.iter().filter(|visit| visit.entry.is_none());
            let waiting = host.map(|visit| visit.number * self.waiting(index, number, visit));
            PhaseResult {
                service_time: running.phases[number].0,
                processor_waiting: waiting.sum(),
                calls: calls.collect(),
            }
        };
        let station = self.plan.task_station(entry.task);
        EntryResult {
            throughput: running.rate,
            phases: self.plan.visits[index].iter().enumerate().map(phase).collect(),
            arrival_waiting: (entry.arrival_rate > 0.0).then(|| self.open_wait[station]),
        }
    }
}
