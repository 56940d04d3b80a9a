//! Models of LQNS: its text files (`.lqn`) here, its XML (`.lqnx`) in `xml`.

mod text;
mod xml;

use std::collections::{BTreeMap, BTreeSet};

use kendall_queueing::lqn::{
    Call, CallKind, Copies, Entry, Layered, MOST_PHASES, Phase, Processor, Role, Sharing, Task,
};

use crate::jmva::{JmvaError, wrong};

pub use xml::write;

/// A model, and what of the document it does not say.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub model: Layered,
    /// What was left out, or means something else.
    pub notes: Vec<String>,
}

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
    activities: BTreeMap<String, DraftPhase>,
    /// The activity behind each.
    next: BTreeMap<String, String>,
    /// Which entries each replies to.
    replies: Vec<(String, String)>,
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
}

impl DraftTask {
    fn new(name: &str, processor: &str, role: Role) -> Self {
        Self {
            name: name.to_owned(),
            processor: processor.to_owned(),
            role,
            activities: BTreeMap::new(),
            next: BTreeMap::new(),
            replies: Vec::new(),
        }
    }

    /// The activities of an entry one behind the other: those to the reply are its first phase.
    fn folded(&self, entry: &str, start: &str) -> Result<Vec<DraftPhase>, String> {
        let mut phases = vec![DraftPhase::default()];
        let mut parts = [0, 0];
        let (mut at, mut passed) = (Some(start), BTreeSet::new());
        while let Some(name) = at {
            let activity = self.activities.get(name);
            let activity = activity
                .ok_or_else(|| format!("`{name}`, which is no activity of `{}`", self.name))?;
            if !passed.insert(name) {
                return Err(format!("activities of `{}` in a circle", self.name));
            }
            let place = phases.len() - 1;
            let (DraftPhase { phase, calls }, own) = (&mut phases[place], &activity.phase);
            phase.demand += own.demand;
            phase.think_time += own.think_time;
            phase.scv = if parts[place] == 0 { own.scv } else { 1.0 };
            phase.deterministic = own.deterministic && (parts[place] == 0 || phase.deterministic);
            calls.extend(activity.calls.iter().cloned());
            parts[place] += 1;
            at = self.next.get(name).map(String::as_str);
            if at.is_some()
                && place == 0
                && self.replies.iter().any(|(from, to)| from == name && to == entry)
            {
                phases.push(DraftPhase::default());
            }
        }
        Ok(phases)
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
        self.tasks.push(DraftTask::new(name, processor, role));
    }

    fn finished(mut self, name: &str) -> Result<Read, JmvaError> {
        let mut model = Layered { name: name.to_owned(), ..Layered::default() };
        let mut places = BTreeMap::new();
        for (place, entry) in self.entries.iter().enumerate() {
            if places.insert(entry.name.clone(), place).is_some() {
                self.problems.insert(format!("two entries called `{}`", entry.name));
            }
        }
        let mut speeds = Vec::new();
        for task in &self.tasks {
            let processor = self.processors.iter().position(|(own, _)| own.name == task.processor);
            let Some(processor) = processor else {
                self.problems.insert(format!(
                    "task `{}` on `{}`, which is no processor",
                    task.name, task.processor
                ));
                continue;
            };
            speeds.push(self.processors[processor].1);
            model.tasks.push(Task { name: task.name.clone(), processor, role: task.role });
        }
        let entries = std::mem::take(&mut self.entries);
        for entry in entries {
            let mut phases = entry.phases;
            if let (Some(start), Some(task)) = (&entry.start, self.tasks.get(entry.task)) {
                match task.folded(&entry.name, start) {
                    Ok(folded) => phases = folded,
                    Err(problem) => drop(self.problems.insert(problem)),
                }
            }
            let mut place = |to: &str| {
                let place = places.get(to).copied();
                if place.is_none() {
                    self.problems
                        .insert(format!("`{}` calls `{to}`, which is no entry", entry.name));
                }
                place
            };
            let speed = speeds.get(entry.task).copied().unwrap_or(1.0);
            let forwards =
                entry.forwards.iter().filter_map(|(to, share)| Some((place(to)?, *share)));
            let forwards = forwards.collect();
            let mut finished = Vec::new();
            for DraftPhase { mut phase, calls } in phases {
                phase.demand /= speed;
                phase.calls = calls
                    .iter()
                    .filter_map(|(to, mean, kind)| {
                        Some(Call { entry: place(to)?, mean: *mean, kind: *kind })
                    })
                    .collect();
                finished.push(phase);
            }
            let (name, task, arrival_rate) = (entry.name, entry.task, entry.arrival_rate);
            model.entries.push(Entry { name, task, arrival_rate, phases: finished, forwards });
        }
        if !self.problems.is_empty() {
            let problems: Vec<String> = self.problems.into_iter().collect();
            return Err(wrong(
                "the model",
                format!("there is no place for {}", problems.join("; ")),
            ));
        }
        model.processors = self.processors.into_iter().map(|(processor, _)| processor).collect();
        Ok(Read { model, notes: self.notes.into_iter().collect() })
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
