//! Models of LQNS: its text files (`.lqn`) here, its XML (`.lqnx`) in `xml`.

mod activities;
mod text;
mod xml;

use std::collections::{BTreeMap, BTreeSet};

use kendall_queueing::lqn::{
    Call, CallKind, Copies, Entry, Fork, Layered, MOST_PHASES, Phase, Processor, Role, Sharing,
    Task,
};

use activities::Graph;

use crate::jmva::{JmvaError, wrong};

pub use xml::write;

/// A model, and what of the document it does not say.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub model: Layered,
    /// What was left out, or means something else.
    pub notes: Vec<String>,
}

/// Most activities and calls of activities that entries are made of.
const MOST_FOLDED: usize = 50_000;
/// Most problems, or notes, that are listed.
const MOST_SHOWN: usize = 50;

/// Reads a document.
type Reader = fn(&str) -> Result<Read, JmvaError>;

/// What reads files of LQNS with this ending; none where a file is another's.
pub fn reader(ending: &str) -> Option<Reader> {
    match ending {
        "lqnx" | "lqxo" => Some(xml::read),
        "lqn" => Some(text::read),
        _ => None,
    }
}

/// What a document says so far: names are looked up at its end.
#[derive(Debug, Default)]
struct Draft {
    processors: Vec<(Processor, f64)>,
    tasks: Vec<DraftTask>,
    entries: Vec<DraftEntry>,
    /// What a model has no place for.
    problems: BTreeSet<String>,
    notes: BTreeSet<String>,
}

#[derive(Debug)]
struct DraftTask {
    name: String,
    processor: String,
    role: Role,
    graph: Graph,
}

#[derive(Debug, Default)]
struct DraftEntry {
    name: String,
    task: usize,
    arrival_rate: f64,
    phases: Vec<DraftPhase>,
    forwards: Vec<(String, f64)>,
    /// Its first activity.
    start: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct DraftPhase {
    phase: Phase,
    calls: Vec<(String, f64, CallKind)>,
    /// Named branches in parallel, and how often in the mean.
    forks: Vec<(Vec<(String, DraftPhase)>, f64)>,
    /// How many activities it is made of that do something.
    parts: usize,
}

impl DraftPhase {
    /// Whether it does nothing: it joins others.
    fn is_idle(&self) -> bool {
        self.phase.demand + self.phase.think_time <= 0.0 && self.calls.is_empty()
    }

    /// Does another as well, so many times in the mean.
    fn add(&mut self, other: &Self, times: f64) {
        let phase = &mut self.phase;
        phase.demand += times * other.phase.demand;
        phase.think_time += times * other.phase.think_time;
        if other.parts > 0 {
            let first = self.parts == 0;
            phase.scv = if first { other.phase.scv } else { 1.0 };
            let once = (times - 1.0).abs() < 1e-12;
            phase.deterministic =
                once && other.phase.deterministic && (first || phase.deterministic);
            self.parts += other.parts;
        }
        let calls = other.calls.iter().map(|(to, mean, kind)| (to.clone(), times * mean, *kind));
        self.calls.extend(calls);
        let forks = other.forks.iter().map(|(branches, mean)| (branches.clone(), times * mean));
        self.forks.extend(forks);
    }
}

impl Draft {
    /// A processor; `scheduling` as LQNS's XML calls it.
    fn processor(&mut self, name: &str, scheduling: &str, copies: Option<u64>, speed: f64) {
        let (sharing, unlimited) = match scheduling {
            "fcfs" => (Sharing::Fcfs, false),
            "ps" => (Sharing::Ps, false),
            "inf" => (Sharing::Fcfs, true),
            "rand" => {
                self.notes.insert(format!(
                    "`{name}` serves in random order: taken as first come, first served"
                ));
                (Sharing::Fcfs, false)
            }
            other => {
                self.problems.insert(format!("scheduling `{other}` of processor `{name}`"));
                (Sharing::Fcfs, false)
            }
        };
        let copies =
            if unlimited { Copies::Unlimited } else { Copies::Limited(copies.unwrap_or(1)) };
        self.processors.push((Processor { name: name.to_owned(), copies, sharing }, speed));
    }

    /// A task; `scheduling` as LQNS's XML calls it. Copies are none where they are unlimited.
    fn task(
        &mut self,
        name: &str,
        scheduling: &str,
        processor: &str,
        copies: Option<u64>,
        think_time: f64,
    ) {
        let threads = copies.map_or(Copies::Unlimited, Copies::Limited);
        let role = match scheduling {
            "ref" => Role::Reference { population: copies.unwrap_or(1), think_time },
            "inf" => Role::Server(Copies::Unlimited),
            "fcfs" => Role::Server(threads),
            other => {
                self.problems.insert(format!("scheduling `{other}` of task `{name}`"));
                Role::Server(threads)
            }
        };
        let graph = Graph::of(name);
        self.tasks.push(DraftTask {
            name: name.to_owned(),
            processor: processor.to_owned(),
            role,
            graph,
        });
    }

    fn finished(mut self, name: &str) -> Result<Read, JmvaError> {
        let mut model = Layered { name: name.to_owned(), ..Layered::default() };
        let problems = &mut self.problems;
        let entries = self.entries.iter().map(|entry| entry.name.as_str());
        let places = named_once("entries", entries, problems);
        let places = places.into_iter().map(|(name, place)| (name.to_owned(), place)).collect();
        let processors = self.processors.iter().map(|(processor, _)| processor.name.as_str());
        let processors = named_once("processors", processors, problems);
        named_once("tasks", self.tasks.iter().map(|task| task.name.as_str()), problems);
        for task in &self.tasks {
            let Some(processor) = processors.get(task.processor.as_str()).copied() else {
                self.problems.insert(format!(
                    "task `{}` on `{}`, which is no processor",
                    task.name, task.processor
                ));
                continue;
            };
            model.tasks.push(Task { name: task.name.clone(), processor, role: task.role });
        }
        let entries = std::mem::take(&mut self.entries);
        let (own, branches) = (entries.len(), Vec::new());
        let mut finish = Finish { places, own, branches, draft: &mut self, model, folded: 0 };
        for entry in entries {
            finish.entry(entry);
        }
        let Finish { mut model, branches, .. } = finish;
        model.entries.extend(branches);
        if !self.problems.is_empty() {
            let problems = first(self.problems).join("; ");
            return Err(wrong("the model", format!("there is no place for {problems}")));
        }
        model.processors = self.processors.into_iter().map(|(processor, _)| processor).collect();
        Ok(Read { model, notes: first(self.notes) })
    }
}

/// Where each name stands. Two of one name, and names that a terminal does not show, are problems.
fn named_once<'a>(
    what: &str,
    names: impl Iterator<Item = &'a str>,
    problems: &mut BTreeSet<String>,
) -> BTreeMap<&'a str, usize> {
    let mut places = BTreeMap::new();
    for (place, name) in names.enumerate() {
        if !kendall_units::is_printable(name) {
            problems.insert(format!("the name {name:?}"));
        } else if places.insert(name, place).is_some() {
            problems.insert(format!("two {what} called `{name}`"));
        }
    }
    places
}

/// The first of them, and how many more there are.
fn first(all: BTreeSet<String>) -> Vec<String> {
    let more = all.len().saturating_sub(MOST_SHOWN);
    let rest = (more > 0).then(|| format!("and {more} more"));
    all.into_iter().take(MOST_SHOWN).chain(rest).collect()
}

/// What turns a draft into a model.
struct Finish<'a> {
    draft: &'a mut Draft,
    /// Where named entries stand.
    places: BTreeMap<String, usize>,
    /// How many there are; those of branches stand behind them.
    own: usize,
    branches: Vec<Entry>,
    model: Layered,
    /// How many activities and calls of activities became phases.
    folded: usize,
}

impl Finish<'_> {
    fn entry(&mut self, entry: DraftEntry) {
        let DraftEntry { name, task, arrival_rate, mut phases, forwards, start } = entry;
        if let (Some(start), Some(task)) = (&start, self.draft.tasks.get(task)) {
            if self.folded <= MOST_FOLDED {
                self.folded += task.graph.size();
            }
            let folded = if self.folded <= MOST_FOLDED {
                task.graph.phases(&name, start)
            } else {
                Err(format!("entries of more than {MOST_FOLDED} activities and calls"))
            };
            match folded {
                Ok(folded) => phases = folded,
                Err(problem) => drop(self.draft.problems.insert(problem)),
            }
        }
        let forwards =
            forwards.iter().filter_map(|(to, share)| Some((self.place(&name, to)?, *share)));
        let forwards = forwards.collect();
        let phases = phases.into_iter().map(|phase| self.phase(&name, task, phase)).collect();
        self.model.entries.push(Entry { name, task, arrival_rate, phases, forwards });
    }

    fn place(&mut self, from: &str, to: &str) -> Option<usize> {
        let place = self.places.get(to).copied();
        if place.is_none() {
            self.draft.problems.insert(format!("`{from}` calls `{to}`, which is no entry"));
        }
        place
    }

    fn phase(&mut self, entry: &str, task: usize, draft: DraftPhase) -> Phase {
        let DraftPhase { mut phase, calls, forks, .. } = draft;
        let processor = self.model.tasks.get(task).map(|task| task.processor);
        let speed = processor.and_then(|processor| self.draft.processors.get(processor));
        phase.demand /= speed.map_or(1.0, |processor| processor.1);
        for (to, mean, kind) in calls {
            phase.calls.extend(self.place(entry, &to).map(|entry| Call { entry, mean, kind }));
        }
        for (branches, mean) in forks {
            let entries = branches
                .into_iter()
                .filter_map(|(activity, draft)| self.branch(entry, task, &activity, draft));
            let fork = Fork { entries: entries.collect(), mean };
            phase.forks.push(fork);
        }
        phase
    }

    /// The entry that does a branch: the one that it only calls, or one of a task of its own, which
    /// runs on the same processor with as many threads as it needs.
    fn branch(
        &mut self,
        entry: &str,
        task: usize,
        activity: &str,
        draft: DraftPhase,
    ) -> Option<usize> {
        let Phase { demand, think_time, deterministic, .. } = draft.phase;
        if let ([(to, mean, CallKind::Synchronous)], true) =
            (&draft.calls[..], draft.forks.is_empty())
            && deterministic
            && demand + think_time <= 0.0
            && (mean - 1.0).abs() < 1e-12
        {
            return self.place(entry, to);
        }
        let name = format!("{entry}/{activity}");
        let phase = self.phase(&name, task, draft);
        let processor = self.model.tasks.get(task)?.processor;
        let (role, task) = (Role::Server(Copies::Unlimited), self.model.tasks.len());
        self.model.tasks.push(Task { name: name.clone(), processor, role });
        let (phases, forwards) = (vec![phase], Vec::new());
        self.branches.push(Entry { name, task, arrival_rate: 0.0, phases, forwards });
        Some(self.own + self.branches.len() - 1)
    }
}

impl DraftEntry {
    /// A phase by its number from 1.
    fn phase(&mut self, number: usize) -> Option<&mut DraftPhase> {
        if !(1..=MOST_PHASES).contains(&number) {
            return None;
        }
        while self.phases.len() < number {
            self.phases.push(DraftPhase::default());
        }
        self.phases.get_mut(number - 1)
    }
}
