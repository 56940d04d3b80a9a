//! A layered model as the rounds of its solution need it: who uses which station how often.

use std::collections::{BTreeMap, BTreeSet};

use super::{Call, CallKind, Entry, Layered, LayeredError, Role, Sharing};

/// Most visits, and pairs of a client and a station times reference tasks.
const MOST_SIZE: usize = 200_000;

/// Requests beside one that a caller waits for, in second phases and from outside: more than there
/// may be.
const MOST_OTHERS: f64 = 16.0;

/// Whether something is no larger than a plan may be.
fn within(size: usize) -> Result<(), LayeredError> {
    if size > MOST_SIZE {
        return Err(LayeredError::TooLarge { size, limit: MOST_SIZE });
    }
    Ok(())
}

/// Index of a task or processor as a station.
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
    /// Which branch of which fork of the phase it belongs to.
    pub(super) branch: Option<(usize, usize)>,
}

/// A call of a phase, or of who answers it elsewhere.
#[derive(Debug, Clone, Copy)]
struct Called {
    entry: usize,
    mean: f64,
    waits: bool,
    branch: Option<(usize, usize)>,
}

/// Two tasks that a phase calls at once, or one that it calls twice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Siblings {
    pub(super) tasks: [usize; 2],
    /// Mean numbers of calls of each in a run of the phase.
    pub(super) numbers: [f64; 2],
    /// Entry, phase and fork.
    pub(super) of: [usize; 3],
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
    /// Tasks that wait for replies of a task, and for how many at once.
    pub(super) callers: Vec<Vec<(usize, f64)>>,
    pub(super) siblings: Vec<Siblings>,
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
        // Tables of two tasks, and rows of what there is with a column for each reference task.
        within(model.tasks.len() * model.tasks.len())?;
        within((stations.len() + order.len()) * (1 + references.len()) / 10)?;
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
            siblings: Vec::new(),
            waited: vec![true; model.tasks.len()],
            later: vec![false; model.tasks.len()],
        };
        plan.add_callers(&position)?;
        plan.free_stations();
        plan.add_visits(&position)?;
        Ok(plan)
    }

    /// Tasks on the longest chain of calls.
    pub(super) fn layers(&self) -> usize {
        let mut layer = vec![1; self.model.tasks.len()];
        for entry in self.order.iter().map(|entry| &self.model.entries[*entry]) {
            for to in entry.targets().map(|to| self.model.entries[to].task) {
                layer[to] = layer[to].max(layer[entry.task] + 1);
            }
        }
        layer.into_iter().max().unwrap_or(0)
    }

    pub(super) fn task_station(&self, task: usize) -> usize {
        self.model.processors.len() + task
    }

    /// Calls that a phase waits for, with those that are answered elsewhere; and the others.
    fn calls(
        &self,
        entry: usize,
        phase: usize,
        position: &[usize],
    ) -> Result<Vec<Called>, LayeredError> {
        let model = self.model;
        let phase = &model.entries[entry].phases[phase];
        let place = |entry: usize| (position[model.entries[entry].task], entry);
        // By branch, and by the place in the order, so that each is complete before it is forwarded.
        let mut waiting = BTreeMap::new();
        let mut list = Vec::new();
        for Call { entry, mean, kind } in phase.calls.iter().filter(|call| call.mean > 0.0) {
            match kind {
                CallKind::Synchronous => {
                    *waiting.entry((None, place(*entry))).or_default() += mean;
                }
                CallKind::Asynchronous => {
                    list.push(Called { entry: *entry, mean: *mean, waits: false, branch: None });
                }
            }
        }
        for (number, fork) in phase.forks.iter().enumerate().filter(|(_, fork)| fork.mean > 0.0) {
            for (branch, entry) in fork.entries.iter().enumerate() {
                waiting.insert((Some((number, branch)), place(*entry)), fork.mean);
            }
        }
        let mut size = 0;
        while let Some(((branch, (_, entry)), mean)) = waiting.pop_first() {
            list.push(Called { entry, mean, waits: true, branch });
            let forwards = &model.entries[entry].forwards;
            size += 1 + forwards.len();
            within(size)?;
            for (next, probability) in forwards {
                if *probability > 0.0 {
                    *waiting.entry((branch, place(*next))).or_default() += mean * probability;
                }
            }
        }
        Ok(list)
    }

    fn add_callers(&mut self, position: &[usize]) -> Result<(), LayeredError> {
        let model = self.model;
        let mut size = 0;
        for entry in self.order.clone() {
            let Entry { task, arrival_rate, phases, forwards, .. } = &model.entries[entry];
            let server = matches!(model.tasks[*task].role, Role::Server(_));
            self.waited[*task] &= *arrival_rate <= 0.0;
            self.later[*task] |= server && phases.len() > 1;
            for phase in 0..phases.len() {
                let calls = self.calls(entry, phase, position)?;
                size += calls.len();
                within(size)?;
                for called in &calls {
                    let to = model.entries[called.entry].task;
                    self.waited[to] &= called.waits;
                }
                self.add_waits(entry, phase, &calls);
                within(self.siblings.len())?;
            }
            // A forwarded call may have no waiting caller.
            let waited = self.waited[*task];
            for (to, _) in forwards {
                self.waited[model.entries[*to].task] &= waited;
            }
        }
        Ok(())
    }

    /// Adds how many replies each task waits for at once, by the task that replies; calls of one fork are adjacent.
    fn add_waits(&mut self, entry: usize, phase: usize, calls: &[Called]) {
        let model = self.model;
        let caller = model.entries[entry].task;
        let fork = |called: &Called| called.branch.map(|(fork, _)| fork);
        for calls in calls.chunk_by(|a, b| fork(a) == fork(b)) {
            if self.siblings.len() > MOST_SIZE {
                return;
            }
            let mut branches: BTreeMap<usize, (BTreeSet<_>, f64)> = BTreeMap::new();
            for called in calls.iter().filter(|called| called.waits) {
                let (own, number) = branches.entry(model.entries[called.entry].task).or_default();
                own.insert(called.branch);
                *number += called.mean;
            }
            for (to, (own, _)) in &branches {
                let width = kendall_units::exact_f64(own.len());
                match self.callers[*to].iter_mut().find(|known| known.0 == caller) {
                    Some((_, known)) => *known = known.max(width),
                    None => self.callers[*to].push((caller, width)),
                }
            }
            let Some(fork) = calls.first().and_then(fork) else { continue };
            for (one, (own, a)) in &branches {
                let of = [entry, phase, fork];
                for (other, (others, b)) in branches.range(..one) {
                    if own.len() > 1 || own != others {
                        self.siblings.push(Siblings {
                            tasks: [*one, *other],
                            numbers: [*a, *b],
                            of,
                        });
                    }
                }
                if own.len() > 1 {
                    let others = 1.0 - 1.0 / kendall_units::exact_f64(own.len());
                    let numbers = [*a, a * others];
                    self.siblings.push(Siblings { tasks: [*one; 2], numbers, of });
                }
            }
        }
    }

    /// Makes a delay of each station that has as many servers as requests can be there at once.
    fn free_stations(&mut self) {
        let mut most = vec![0.0; self.model.tasks.len()];
        for task in self.tasks.clone() {
            most[task] = match self.model.tasks[task].role {
                Role::Reference { population, .. } => kendall_units::exact_f64(population),
                Role::Server(threads) if self.waited[task] && !self.later[task] => {
                    let above = self.callers[task].iter();
                    let above: f64 = above.map(|(caller, width)| most[*caller] * width).sum();
                    if above <= threads.count() {
                        let station = self.task_station(task);
                        self.stations[station].servers = f64::INFINITY;
                    }
                    threads.count().min(above)
                }
                Role::Server(threads) => threads.count(),
            };
        }
        for (processor, station) in
            self.stations.iter_mut().take(self.model.processors.len()).enumerate()
        {
            let tasks = self.model.tasks.iter().zip(&most);
            let asked = tasks.filter(|(task, _)| task.processor == processor);
            if asked.map(|(_, most)| most).sum::<f64>() <= station.servers {
                station.servers = f64::INFINITY;
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
                let above = self.callers[*task].iter();
                let above: f64 = above.map(|(task, width)| populations[*task] * width).sum();
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
                    let number = phase.slices();
                    let pair = pair(self, station, true);
                    let (entry, waits, branch) = (None, true, None);
                    visits.push(Visit { number, station, pair, entry, waits, branch });
                }
                for Called { entry, mean, waits, branch } in self.calls(index, number, position)? {
                    let station = self.task_station(model.entries[entry].task);
                    let pair = pair(self, station, waits);
                    let entry = Some(entry);
                    visits.push(Visit { number: mean, station, pair, entry, waits, branch });
                }
                size += visits.len();
                let size = size + self.pairs.len() * self.references.len();
                within(size + model.tasks.len() * model.tasks.len() + self.siblings.len())?;
                phases.push(visits);
            }
            self.visits.push(phases);
        }
        Ok(())
    }
}
