//! Layered queueing networks: tasks that wait for other tasks while they hold a thread, and share
//! processors.
//!
//! A [`Layered`] model is what LQNS solves: reference tasks bring customers, the entries of other
//! tasks serve calls in one or more phases, of which all but the first run after the reply. Left
//! out: activities that are no forks and joins of calls, priorities, replication, semaphores.

mod plan;
mod solve;
mod station;
mod wire;

pub use solve::{
    CallResult, EntryResult, LayeredSolution, PhaseResult, ProcessorResult, TaskResult, solve,
};
pub use wire::{ENTRY, FORK, LAYERED, PHASE, PROCESSOR, TASK};

/// Most phases of an entry.
pub const MOST_PHASES: usize = 3;
/// Most tasks of a circle that are named.
const MOST_SHOWN: usize = 20;
/// Most calls of a fork.
pub const MOST_BRANCHES: usize = 64;

/// A layered model. Tasks, entries and calls name others by their place in these lists.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layered {
    /// What it is called.
    pub name: String,
    /// Where tasks run.
    pub processors: Vec<Processor>,
    /// Who does the work.
    pub tasks: Vec<Task>,
    /// What a task does for a call.
    pub entries: Vec<Entry>,
}

/// How many servers or threads there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// This many, at least 1.
    Limited(u64),
    /// As many as there are requests: no queue.
    Unlimited,
}

/// In which order a processor serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// First come, first served.
    Fcfs,
    /// Processor sharing.
    Ps,
}

/// A processor.
#[derive(Debug, Clone, PartialEq)]
pub struct Processor {
    /// What it is called.
    pub name: String,
    /// How many cores it has.
    pub copies: Copies,
    /// How it shares them.
    pub sharing: Sharing,
}

/// A task: a process with threads, or customers.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// What it is called.
    pub name: String,
    /// Where it runs.
    pub processor: usize,
    /// Customers, or a server.
    pub role: Role,
}

/// What a task is there for.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Role {
    /// N customers, who run its only entry again and again, Z s between two runs.
    Reference { population: u64, think_time: f64 },
    /// It serves calls, first come, first served, with this many threads.
    Server(Copies),
}

/// An entry of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What it is called.
    pub name: String,
    /// Whose it is.
    pub task: usize,
    /// λ of Poisson arrivals from outside, in 1/s.
    pub arrival_rate: f64,
    /// The first ends with the reply.
    pub phases: Vec<Phase>,
    /// Entries that answer in its place, and how probably.
    pub forwards: Vec<(usize, f64)>,
}

/// A phase of an entry: slices of work with calls between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Mean time on the processor in s, all slices together.
    pub demand: f64,
    /// Squared coefficient of variation of a slice.
    pub scv: f64,
    /// Mean pause in s, which holds the thread.
    pub think_time: f64,
    /// Mean numbers of calls.
    pub calls: Vec<Call>,
    /// Calls that are made at once.
    pub forks: Vec<Fork>,
    /// Whether calls are exactly as many as their means, rather than geometrically distributed.
    pub deterministic: bool,
}

impl Default for Phase {
    fn default() -> Self {
        let (calls, forks) = (Vec::new(), Vec::new());
        Self { demand: 0.0, scv: 1.0, think_time: 0.0, calls, forks, deterministic: false }
    }
}

impl Phase {
    /// Mean number of slices of work: one, and one behind each call or fork.
    #[must_use]
    pub fn slices(&self) -> f64 {
        let calls: f64 = self.calls.iter().map(|call| call.mean).sum();
        1.0 + calls + self.forks.iter().map(|fork| fork.mean).sum::<f64>()
    }
}

/// Calls of an entry in a phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// Who is called.
    pub entry: usize,
    /// How often in the mean.
    pub mean: f64,
    /// Whether it waits.
    pub kind: CallKind,
}

/// Calls that a phase makes at once, and goes on when all have replied.
#[derive(Debug, Clone, PartialEq)]
pub struct Fork {
    /// Who is called, each once.
    pub entries: Vec<usize>,
    /// How often in the mean.
    pub mean: f64,
}

/// Whether a caller waits for the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// It does (rendezvous).
    Synchronous,
    /// It goes on (send without reply).
    Asynchronous,
}

/// Why a layered model has no solution.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum LayeredError {
    #[error("the model has no {0}: give at least one")]
    Empty(&'static str),
    #[error("{place} names {what} {index}, and there are {count}")]
    Missing { place: String, what: &'static str, index: usize, count: usize },
    #[error("{name} is {}; it must be {expected}", kendall_units::echo(value))]
    Number { part: Part, name: String, value: f64, expected: &'static str },
    #[error("task `{task}` {what}")]
    Role { part: Part, task: String, what: &'static str },
    #[error("tasks call each other in a circle: {path}; a layered model has none")]
    Cycle { part: Part, path: String },
    #[error(
        "no steady state at `{name}`: with asynchronous requests and arrivals, {} of {} would be \
         busy; lower their rates, or give it more copies",
        kendall_units::echo(format_args!("{offered:.6}")),
        kendall_units::echo(capacity)
    )]
    Unstable { part: Part, name: String, offered: f64, capacity: f64 },
    #[error("the model has {size} calls and pairs of tasks or more; the limit is {limit}")]
    TooLarge { size: usize, limit: usize },
    #[error(
        "the layers did not settle: after {rounds} rounds waiting times still change by \
         {change:.2e}; give it fewer customers, or more copies of the task nearest to saturation, or \
         simulate it as a network with pools"
    )]
    NotSettled { rounds: u32, change: f64 },
}

/// An element of a layered model, by its place in its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Part {
    Processor(usize),
    Task(usize),
    Entry(usize),
}

impl LayeredError {
    /// The path of the element that it is about, as model files have it.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        let (Self::Number { part, .. }
        | Self::Role { part, .. }
        | Self::Cycle { part, .. }
        | Self::Unstable { part, .. }) = self
        else {
            return None;
        };
        Some(match part {
            Part::Processor(index) => format!("processors.{index}"),
            Part::Task(index) => format!("tasks.{index}"),
            Part::Entry(index) => format!("entries.{index}"),
        })
    }
}

impl Copies {
    pub(crate) fn count(self) -> f64 {
        match self {
            Self::Limited(count) => kendall_units::exact_f64(count),
            Self::Unlimited => f64::INFINITY,
        }
    }
}

impl Layered {
    /// Checks names of others, numbers and roles, and that tasks do not call each other in a circle.
    ///
    /// # Errors
    /// [`LayeredError`] for the first that makes no sense.
    pub fn check(&self) -> Result<(), LayeredError> {
        let lists = [
            ("processors", self.processors.len()),
            ("tasks", self.tasks.len()),
            ("entries", self.entries.len()),
        ];
        if let Some((what, _)) = lists.iter().find(|(_, length)| *length == 0) {
            return Err(LayeredError::Empty(what));
        }
        for (index, processor) in self.processors.iter().enumerate() {
            copies(Part::Processor(index), &processor.name, processor.copies)?;
        }
        let mut entries = vec![0_usize; self.tasks.len()];
        for entry in &self.entries {
            index(&entry.name, "task", entry.task, self.tasks.len())?;
            entries[entry.task] += 1;
        }
        for (task, entries) in entries.into_iter().enumerate() {
            self.check_task(task, entries)?;
        }
        for entry in 0..self.entries.len() {
            self.check_entry(entry)?;
        }
        self.order().map(drop)
    }

    fn check_task(&self, at: usize, entries: usize) -> Result<(), LayeredError> {
        let (task, part) = (&self.tasks[at], Part::Task(at));
        index(&task.name, "processor", task.processor, self.processors.len())?;
        match task.role {
            Role::Server(threads) => copies(part, &task.name, threads),
            Role::Reference { population, think_time } => {
                number(part, &format!("think time of `{}`", task.name), think_time)?;
                if population > 1 << 52 {
                    let name = format!("population of `{}`", task.name);
                    let (value, expected) = (f64::MAX, "below 2^52");
                    return Err(LayeredError::Number { part, name, value, expected });
                }
                if entries != 1 {
                    let what = "is a reference task, which has exactly one entry";
                    return self.role(part, at, what);
                }
                Ok(())
            }
        }
    }

    fn role(&self, part: Part, task: usize, what: &'static str) -> Result<(), LayeredError> {
        Err(LayeredError::Role { part, task: self.tasks[task].name.clone(), what })
    }

    fn check_entry(&self, at: usize) -> Result<(), LayeredError> {
        let (entry, part) = (&self.entries[at], Part::Entry(at));
        let name = &entry.name;
        number(part, &format!("arrival rate of `{name}`"), entry.arrival_rate)?;
        let task = entry.task;
        let is_reference = |task: usize| matches!(self.tasks[task].role, Role::Reference { .. });
        if is_reference(task) && (entry.arrival_rate > 0.0 || !entry.forwards.is_empty()) {
            let what = "is a reference task, which takes no arrivals and forwards nothing";
            return self.role(part, task, what);
        }
        if entry.phases.len() > MOST_PHASES {
            return self.role(part, task, "has an entry with more than three phases");
        }
        let mut share = 0.0;
        for (to, probability) in &entry.forwards {
            index(name, "entry", *to, self.entries.len())?;
            number(part, &format!("forwarding probability of `{name}`"), *probability)?;
            share += probability;
        }
        if share > 1.0 + 1e-9 {
            let name = format!("sum of forwarding probabilities of `{name}`");
            return Err(LayeredError::Number { part, name, value: share, expected: "at most 1" });
        }
        for to in entry.targets() {
            index(name, "entry", to, self.entries.len())?;
            let server = self.entries[to].task;
            if is_reference(server) {
                return self.role(part, server, "is a reference task, which cannot be called");
            }
        }
        for phase in &entry.phases {
            number(part, &format!("host demand of `{name}`"), phase.demand)?;
            number(part, &format!("variation of the host demand of `{name}`"), phase.scv)?;
            number(part, &format!("think time of `{name}`"), phase.think_time)?;
            if phase.forks.iter().any(|fork| !(1..=MOST_BRANCHES).contains(&fork.entries.len())) {
                return self.role(part, task, "makes no call at once, or more than 64");
            }
            let calls = phase.calls.iter().map(|call| call.mean);
            for mean in calls.chain(phase.forks.iter().map(|fork| fork.mean)) {
                number(part, &format!("number of calls of `{name}`"), mean)?;
            }
        }
        Ok(())
    }

    /// Tasks, callers first.
    pub(crate) fn order(&self) -> Result<Vec<usize>, LayeredError> {
        let mut called = vec![Vec::new(); self.tasks.len()];
        for entry in &self.entries {
            called[entry.task].extend(entry.targets().map(|to| self.entries[to].task));
        }
        let mut callers = vec![0_usize; self.tasks.len()];
        for to in called.iter().flatten() {
            callers[*to] += 1;
        }
        let mut order: Vec<usize> =
            (0..self.tasks.len()).filter(|task| callers[*task] == 0).collect();
        let mut done = 0;
        while let Some(task) = order.get(done).copied() {
            done += 1;
            for to in &called[task] {
                callers[*to] -= 1;
                if callers[*to] == 0 {
                    order.push(*to);
                }
            }
        }
        if order.len() == self.tasks.len() {
            return Ok(order);
        }
        Err(self.circle(&called, &callers))
    }

    /// A circle among the tasks that still have callers: each of them has one that is left as well.
    fn circle(&self, called: &[Vec<usize>], callers: &[usize]) -> LayeredError {
        let mut caller = vec![None; called.len()];
        for (task, to) in called.iter().enumerate().filter(|(task, _)| callers[*task] > 0) {
            for to in to {
                caller[*to].get_or_insert(task);
            }
        }
        let mut path: Vec<usize> =
            (0..called.len()).find(|task| callers[*task] > 0).into_iter().collect();
        let mut places = vec![None; called.len()];
        while let Some(last) = path.last().copied() {
            places[last] = Some(path.len() - 1);
            let Some(next) = caller[last] else { break };
            path.push(next);
            if let Some(start) = places[next] {
                path.drain(..start);
                break;
            }
        }
        path.reverse();
        let part = Part::Task(path.first().copied().unwrap_or_default());
        let more = path.len().saturating_sub(MOST_SHOWN);
        let names = path.iter().map(|task| format!("`{}`", self.tasks[*task].name));
        let mut names: Vec<String> = names.take(MOST_SHOWN).collect();
        if more > 0 {
            names.push(format!("{more} more"));
        }
        LayeredError::Cycle { part, path: names.join(" → ") }
    }
}

impl Entry {
    /// Whom it calls or forwards to.
    fn targets(&self) -> impl Iterator<Item = usize> {
        let calls = self.phases.iter().flat_map(|phase| &phase.calls).map(|call| call.entry);
        let forks = self.phases.iter().flat_map(|phase| &phase.forks);
        let forks = forks.flat_map(|fork| fork.entries.iter().copied());
        calls.chain(forks).chain(self.forwards.iter().map(|(to, _)| *to))
    }
}

fn index(place: &str, what: &'static str, index: usize, count: usize) -> Result<(), LayeredError> {
    if index < count {
        return Ok(());
    }
    Err(LayeredError::Missing { place: format!("`{place}`"), what, index, count })
}

fn number(part: Part, name: &str, value: f64) -> Result<(), LayeredError> {
    if value == 0.0 || (1e-50..=1e50).contains(&value) {
        return Ok(());
    }
    let expected = "0, or from 1e-50 to 1e50";
    Err(LayeredError::Number { part, name: name.to_owned(), value, expected })
}

fn copies(part: Part, name: &str, copies: Copies) -> Result<(), LayeredError> {
    match copies {
        Copies::Limited(count) if count == 0 || count > 1 << 52 => {
            let name = format!("number of copies of `{name}`");
            let value = if count == 0 { 0.0 } else { f64::MAX };
            let expected = "from 1 to 2^52, or unlimited";
            Err(LayeredError::Number { part, name, value, expected })
        }
        _ => Ok(()),
    }
}
