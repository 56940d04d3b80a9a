//! Models of LQNS: its text files (`.lqn`) here, its XML (`.lqnx`) in `xml`.

mod activities;
mod text;
mod xml;

use std::collections::{BTreeMap, BTreeSet};

use kendall_keys::Lines;
use kendall_queueing::lqn::{
    Call, CallKind, Copies, Entry, Fork, Layered, MOST_PHASES, Phase, Processor, Role, Sharing,
    Task,
};

use activities::Graph;

use crate::jmva::{Ends, JmvaError, first, listed, wrong};

pub use xml::write;

/// A model, and what of the document it does not say.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub model: Layered,
    /// What was left out, or means something else.
    pub notes: Vec<String>,
    /// Where processors, tasks and entries stand in the document.
    pub lines: Lines,
}

/// Most activities and calls of activities that entries are made of.
const MOST_FOLDED: usize = 50_000;
/// Most elements of which one note says the same.
const MOST_NAMED: usize = 5;

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
    processors: Vec<DraftProcessor>,
    tasks: Vec<DraftTask>,
    entries: Vec<DraftEntry>,
    /// What a model has no place for, behind where it begins in the text.
    problems: BTreeSet<(usize, String)>,
    notes: BTreeSet<String>,
}

#[derive(Debug)]
struct DraftProcessor {
    processor: Processor,
    speed: f64,
    at: usize,
}

#[derive(Debug)]
struct DraftTask {
    name: String,
    at: usize,
    processor: String,
    role: Role,
    graph: Graph,
}

#[derive(Debug, Default)]
struct DraftEntry {
    name: String,
    at: usize,
    task: usize,
    arrival_rate: f64,
    phases: Vec<DraftPhase>,
    forwards: Vec<(Named, f64)>,
    /// Its first activity.
    start: Option<Named>,
}

/// The name of another element, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    name: String,
    at: usize,
}

#[derive(Debug, Clone, Default)]
struct DraftPhase {
    /// Whether the document has it.
    known: bool,
    phase: Phase,
    calls: Vec<(Named, f64, CallKind)>,
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
    fn problem(&mut self, at: usize, what: impl Into<String>) {
        self.problems.insert((at, what.into()));
    }

    /// A processor; `scheduling` as LQNS's XML calls it.
    fn processor(&mut self, of: &Named, scheduling: &str, copies: Option<u64>, speed: f64) {
        let Named { name, at } = of.clone();
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
                self.problem(at, format!("scheduling `{other}` of processor `{name}`"));
                (Sharing::Fcfs, false)
            }
        };
        let copies =
            if unlimited { Copies::Unlimited } else { Copies::Limited(copies.unwrap_or(1)) };
        self.processors.push(DraftProcessor {
            processor: Processor { name, copies, sharing },
            speed,
            at,
        });
    }

    /// A task; `scheduling` as LQNS's XML calls it. Copies are none where they are unlimited.
    fn task(
        &mut self,
        of: &Named,
        scheduling: &str,
        processor: &str,
        copies: Option<u64>,
        think_time: f64,
    ) {
        let Named { name, at } = of.clone();
        let threads = copies.map_or(Copies::Unlimited, Copies::Limited);
        let role = match scheduling {
            "ref" if copies.is_none() => {
                self.problem(at, format!("customers without number at `{name}`"));
                Role::Server(threads)
            }
            "ref" => Role::Reference { population: copies.unwrap_or(1), think_time },
            "inf" => Role::Server(Copies::Unlimited),
            "fcfs" => Role::Server(threads),
            other => {
                self.problem(at, format!("scheduling `{other}` of task `{name}`"));
                Role::Server(threads)
            }
        };
        if think_time > 0.0 && matches!(role, Role::Server(_)) {
            self.problem(at, format!("a think time of task `{name}`, which is no reference task"));
        }
        let graph = Graph::of(&name);
        let processor = processor.to_owned();
        self.tasks.push(DraftTask { name, at, processor, role, graph });
    }

    fn finished(mut self, name: &str, text: &str) -> Result<Read, JmvaError> {
        let mut model = Layered { name: name.to_owned(), ..Layered::default() };
        let problems = &mut self.problems;
        let entries = self.entries.iter().map(|entry| (entry.name.as_str(), entry.at));
        let places = named_once("entries", entries, problems);
        let places = places.into_iter().map(|(name, place)| (name.to_owned(), place)).collect();
        let processors = self.processors.iter().map(|one| (one.processor.name.as_str(), one.at));
        let processors = named_once("processors", processors, problems);
        let tasks = self.tasks.iter().map(|task| (task.name.as_str(), task.at));
        named_once("tasks", tasks, problems);
        for task in &self.tasks {
            let Some(processor) = processors.get(task.processor.as_str()).copied() else {
                let DraftTask { name, processor, .. } = task;
                let what = format!("task `{name}` on `{processor}`, which is no processor");
                self.problems.insert((task.at, what));
                continue;
            };
            model.tasks.push(Task { name: task.name.clone(), processor, role: task.role });
        }
        let lines = self.lines(&Ends::of(text));
        let entries = std::mem::take(&mut self.entries);
        let (own, branches) = (entries.len(), Vec::new());
        let mut finish = Finish { places, own, branches, draft: &mut self, model, folded: 0 };
        finish.graphs(&entries);
        for entry in entries {
            finish.entry(entry);
        }
        let Finish { mut model, branches, .. } = finish;
        model.entries.extend(branches);
        if !self.problems.is_empty() {
            let problems = listed(text, self.problems);
            return Err(wrong("the model", format!("there is no place for {problems}")));
        }
        model.processors = self.processors.into_iter().map(|one| one.processor).collect();
        self.notes.extend(self.tasks.iter().filter_map(|task| {
            let what = format!("activities of task `{}` to which no entry comes:", task.name);
            some(&what, &task.graph.unreached().collect::<Vec<_>>())
        }));
        self.notes.extend(unused(&model));
        Ok(Read { model, notes: first(self.notes.into_iter()), lines })
    }

    /// Where processors, tasks and entries stand.
    fn lines(&self, ends: &Ends) -> Lines {
        let processors = self.processors.iter().map(|one| one.at).enumerate();
        let tasks = self.tasks.iter().map(|one| one.at).enumerate();
        let entries = self.entries.iter().map(|one| one.at).enumerate();
        let all = processors.map(|one| ("processors", one));
        let all = all.chain(tasks.map(|one| ("tasks", one)));
        let all = all.chain(entries.map(|one| ("entries", one)));
        all.map(|(list, (index, at))| (format!("{list}.{index}"), ends.line_at(at))).collect()
    }
}

/// What a model has without effect.
fn unused(model: &Layered) -> Vec<String> {
    let mut called = vec![false; model.entries.len()];
    for entry in &model.entries {
        let calls = entry.phases.iter().flat_map(|phase| phase.calls.iter().map(|call| call.entry));
        let forks = entry.phases.iter().flat_map(|phase| &phase.forks);
        let forks = forks.flat_map(|fork| fork.entries.iter().copied());
        for to in calls.chain(forks).chain(entry.forwards.iter().map(|(to, _)| *to)) {
            called[to] = true;
        }
    }
    let starts = |entry: &Entry| {
        entry.arrival_rate > 0.0
            || matches!(
                model.tasks.get(entry.task),
                Some(Task { role: Role::Reference { .. }, .. })
            )
    };
    let idle =
        model.entries.iter().zip(called).filter(|(entry, called)| !*called && !starts(entry));
    let idle: Vec<&str> = idle.map(|(entry, _)| entry.name.as_str()).collect();
    let empty = model.processors.iter().enumerate();
    let empty = empty.filter(|(at, _)| model.tasks.iter().all(|task| task.processor != *at));
    let empty: Vec<&str> = empty.map(|(_, one)| one.name.as_str()).collect();
    some("no task runs on", &empty).into_iter().chain(some("nobody calls", &idle)).collect()
}

/// The first of these names behind what is said of them; none where there are none.
fn some(what: &str, names: &[&str]) -> Option<String> {
    let more = names.len().saturating_sub(MOST_NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let first: Vec<String> =
        names.iter().take(MOST_NAMED).map(|name| format!("`{name}`")).collect();
    (!first.is_empty()).then(|| format!("{what} {}{rest}", first.join(", ")))
}

/// Where each name stands. Two of one name, and names that a terminal does not show, are problems.
fn named_once<'a>(
    what: &str,
    names: impl Iterator<Item = (&'a str, usize)>,
    problems: &mut BTreeSet<(usize, String)>,
) -> BTreeMap<&'a str, usize> {
    let mut places = BTreeMap::new();
    for (place, (name, at)) in names.enumerate() {
        if !kendall_units::is_printable(name) {
            problems.insert((at, format!("the name `{}`", name.escape_debug())));
        } else if places.insert(name, place).is_some() {
            problems.insert((at, format!("two {what} called `{name}`")));
        }
    }
    places
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
    /// Refuses what activities of tasks name, and is not there.
    fn graphs(&mut self, entries: &[DraftEntry]) {
        let mut own: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); self.draft.tasks.len()];
        for entry in entries {
            if let Some(own) = own.get_mut(entry.task) {
                own.insert(&entry.name);
            }
        }
        for (task, own) in self.draft.tasks.iter().zip(own) {
            self.draft.problems.extend(task.graph.unknown(&own));
        }
    }

    fn entry(&mut self, entry: DraftEntry) {
        let DraftEntry { name, at, task, arrival_rate, mut phases, forwards, start } = entry;
        if let (Some(start), Some(draft)) = (&start, self.draft.tasks.get_mut(task)) {
            if !phases.is_empty() {
                let what =
                    format!("phases of `{name}`, which begins with activity `{}`", start.name);
                self.draft.problems.insert((start.at, what));
            }
            if self.folded <= MOST_FOLDED {
                self.folded += draft.graph.size();
            }
            let waits = !matches!(draft.role, Role::Reference { .. });
            let folded = if self.folded <= MOST_FOLDED {
                draft.graph.phases(&name, start)
            } else {
                Err((at, format!("entries of more than {MOST_FOLDED} activities and calls")))
            };
            match folded {
                Ok((folded, replied)) => {
                    if waits && !replied {
                        let what = format!("no activity replies to `{name}`: its end does");
                        self.draft.notes.insert(what);
                    }
                    phases = folded;
                }
                Err(problem) => drop(self.draft.problems.insert(problem)),
            }
        }
        let forwards =
            forwards.iter().filter_map(|(to, share)| Some((self.place(&name, to)?, *share)));
        let forwards = forwards.collect();
        let phases = phases.into_iter().map(|phase| self.phase(&name, task, phase)).collect();
        self.model.entries.push(Entry { name, task, arrival_rate, phases, forwards });
    }

    fn place(&mut self, from: &str, to: &Named) -> Option<usize> {
        let place = self.places.get(&to.name).copied();
        if place.is_none() {
            let what = format!("`{from}` calls `{}`, which is no entry", to.name);
            self.draft.problem(to.at, what);
        }
        place
    }

    fn phase(&mut self, entry: &str, task: usize, draft: DraftPhase) -> Phase {
        let DraftPhase { mut phase, calls, forks, .. } = draft;
        let processor = self.model.tasks.get(task).map(|task| task.processor);
        let speed = processor.and_then(|processor| self.draft.processors.get(processor));
        phase.demand /= speed.map_or(1.0, |processor| processor.speed);
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
