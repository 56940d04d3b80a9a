//! A layered model as the rounds of its solution need it: who uses which station how often.

use std::collections::BTreeMap;

use super::{CallKind, Entry, Layered, LayeredError, Role, Sharing};

/// Most visits, and pairs of a client and a station times reference tasks.
const MOST_SIZE: usize = 200_000;

/// Requests beside one that a caller waits for, in second phases and from outside: more than there
/// may be.
const MOST_OTHERS: f64 = 16.0;

/// Where a task or processor stands as a station.
#[derive(Debug, Clone, Copy)]
pub(super) struct Station {
    /// m; infinite where there is no queue.
    pub(super) servers: f64,
    /// Whether a visit's wait grows with its own service time.
    pub(super) ps: bool,
}

/// What a phase of an entry asks of a station.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit {
    /// Mean number in a run of the phase.
    pub(super) number: f64,
    /// Processors, then tasks.
    pub(super) station: usize,
    /// Which closed client comes; none for those who come unbounded.
    pub(super) pair: Option<usize>,
    /// The entry that is called; none for a slice on the processor.
    pub(super) entry: Option<usize>,
    /// Whether the phase waits for it.
    pub(super) waits: bool,
}

/// A client task of finite population at a station.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) task: usize,
    pub(super) station: usize,
}

#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) model: &'a Layered,
    pub(super) stations: Vec<Station>,
    /// Reference tasks, with their entry.
    pub(super) references: Vec<(usize, usize)>,
    /// Tasks, callers first.
    pub(super) tasks: Vec<usize>,
    /// Entries, callers first.
    pub(super) order: Vec<usize>,
    /// By entry and phase.
    pub(super) visits: Vec<Vec<Vec<Visit>>>,
    pub(super) pairs: Vec<Pair>,
    /// Pairs of each station.
    pub(super) at: Vec<Vec<usize>>,
    /// Tasks that wait for replies of a task.
    pub(super) callers: Vec<Vec<usize>>,
    /// Whether all who have requests at a task wait for them.
    waited: Vec<bool>,
    /// Whether it goes on after a reply.
    later: Vec<bool>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(model: &'a Layered) -> Result<Self, LayeredError> {
        model.check()?;
        let tasks = model.order()?;
        let processors = model.processors.iter().map(|processor| Station {
            servers: processor.copies.count(),
            ps: processor.sharing == Sharing::Ps,
        });
        let servers = model.tasks.iter().map(|task| match task.role {
            Role::Reference { .. } => Station { servers: f64::INFINITY, ps: false },
            Role::Server(threads) => Station { servers: threads.count(), ps: false },
        });
        let stations: Vec<Station> = processors.chain(servers).collect();
        let mut position = vec![0; model.tasks.len()];
        for (place, task) in tasks.iter().enumerate() {
            position[*task] = place;
        }
        let mut order: Vec<usize> = (0..model.entries.len()).collect();
        order.sort_by_key(|entry| position[model.entries[*entry].task]);
        let is_reference = |entry: &&usize| {
            matches!(model.tasks[model.entries[**entry].task].role, Role::Reference { .. })
        };
        let references: Vec<(usize, usize)> = order
            .iter()
            .filter(is_reference)
            .map(|entry| (model.entries[*entry].task, *entry))
            .collect();
        let mut plan = Self {
            model,
            references,
            tasks,
            order,
            visits: Vec::new(),
            pairs: Vec::new(),
            at: vec![Vec::new(); stations.len()],
            stations,
            callers: vec![Vec::new(); model.tasks.len()],
            waited: vec![true; model.tasks.len()],
            later: vec![false; model.tasks.len()],
        };
        plan.add_callers(&position);
        plan.add_visits(&position)?;
        Ok(plan)
    }

    pub(super) fn task_station(&self, task: usize) -> usize {
        self.model.processors.len() + task
    }

    /// Calls that a phase waits for, with those that are answered elsewhere; and the others.
    fn calls(&self, entry: usize, phase: usize, position: &[usize]) -> Vec<(usize, f64, bool)> {
        let model = self.model;
        let calls = &model.entries[entry].phases[phase].calls;
        let place = |entry: usize| (position[model.entries[entry].task], entry);
        // By the place in the order, so that each is complete before it is forwarded.
        let mut waiting: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        let mut list = Vec::new();
        for call in calls.iter().filter(|call| call.mean > 0.0) {
            match call.kind {
                CallKind::Synchronous => {
                    *waiting.entry(place(call.entry)).or_default() += call.mean;
                }
                CallKind::Asynchronous => list.push((call.entry, call.mean, false)),
            }
        }
        while let Some(((_, to), mean)) = waiting.pop_first() {
            list.push((to, mean, true));
            for (next, probability) in &model.entries[to].forwards {
                if *probability > 0.0 {
                    *waiting.entry(place(*next)).or_default() += mean * probability;
                }
            }
        }
        list
    }

    fn add_callers(&mut self, position: &[usize]) {
        let model = self.model;
        for entry in &self.order {
            let Entry { task, arrival_rate, phases, forwards, .. } = &model.entries[*entry];
            let server = matches!(model.tasks[*task].role, Role::Server(_));
            self.waited[*task] &= *arrival_rate <= 0.0;
            self.later[*task] |= server && phases.len() > 1;
            for phase in 0..phases.len() {
                for (to, _, waits) in self.calls(*entry, phase, position) {
                    let to = model.entries[to].task;
                    self.waited[to] &= waits;
                    if waits && !self.callers[to].contains(task) {
                        self.callers[to].push(*task);
                    }
                }
            }
            // What is forwarded may have no caller who waits.
            let waited = self.waited[*task];
            for (to, _) in forwards {
                self.waited[model.entries[*to].task] &= waited;
            }
        }
    }

    /// How many requests of each task there are at most below it: its threads, or those above it who
    /// wait for them, whichever is less.
    pub(super) fn populations(&self, customers: &[f64]) -> Vec<f64> {
        let mut populations = vec![0.0; self.model.tasks.len()];
        for ((task, _), customers) in self.references.iter().zip(customers) {
            populations[*task] = *customers;
        }
        for task in &self.tasks {
            if let Role::Server(threads) = self.model.tasks[*task].role {
                let above: f64 = self.callers[*task].iter().map(|task| populations[*task]).sum();
                let above = if self.callers[*task].is_empty() && !self.waited[*task] {
                    f64::INFINITY
                } else if self.waited[*task] && !self.later[*task] {
                    above
                } else {
                    above * MOST_OTHERS
                };
                populations[*task] = threads.count().min(above);
            }
        }
        populations
    }

    fn add_visits(&mut self, position: &[usize]) -> Result<(), LayeredError> {
        let model = self.model;
        let bounded = self.populations(&vec![1.0; self.references.len()]);
        let mut pairs: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut size = 0;
        for (index, entry) in model.entries.iter().enumerate() {
            let mut phases = Vec::new();
            for (number, phase) in entry.phases.iter().enumerate() {
                let mut visits = Vec::new();
                let mut pair = |plan: &mut Self, station: usize, waits: bool| {
                    if !waits || bounded[entry.task].is_infinite() {
                        return None;
                    }
                    Some(*pairs.entry((station, entry.task)).or_insert_with(|| {
                        plan.at[station].push(plan.pairs.len());
                        plan.pairs.push(Pair { task: entry.task, station });
                        plan.pairs.len() - 1
                    }))
                };
                if phase.demand > 0.0 {
                    let station = model.tasks[entry.task].processor;
                    let number = 1.0 + phase.calls.iter().map(|call| call.mean).sum::<f64>();
                    let pair = pair(self, station, true);
                    let (entry, waits) = (None, true);
                    visits.push(Visit { number, station, pair, entry, waits });
                }
                for (to, mean, waits) in self.calls(index, number, position) {
                    let station = self.task_station(model.entries[to].task);
                    let pair = pair(self, station, waits);
                    let entry = Some(to);
                    visits.push(Visit { number: mean, station, pair, entry, waits });
                }
                size += visits.len();
                let size = size + self.pairs.len() * self.references.len();
                let size = size + model.tasks.len() * model.tasks.len();
                if size > MOST_SIZE {
                    return Err(LayeredError::TooLarge { size, limit: MOST_SIZE });
                }
                phases.push(visits);
            }
            self.visits.push(phases);
        }
        Ok(())
    }
}
