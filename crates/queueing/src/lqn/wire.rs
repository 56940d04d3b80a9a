//! The keys of a file with a layered model, and what they say.

use kendall_keys::{Form, Key, Problem, Section, did_you_mean};
use toml::{Table, Value};

use crate::model::{list, put, whole};

use super::{Call, CallKind, Copies, Entry, Fork, Layered, Phase, Processor, Role, Sharing, Task};

const COPIES: Form = Form::Either(&[
    Form::Count { from: 1, to: 4_503_599_627_370_496 },
    Form::Choice(&["unlimited"]),
]);
const NUMBERS: Form = Form::Named(&Form::Number);

/// The whole file.
pub const LAYERED: &[Key] = &[
    Key::text("name", "its name").or("''"),
    Key::text("description", "free text for the reader of the file").optional(),
    Key::new("processors", Form::Tables(&[PROCESSOR]), "where tasks run"),
    Key::new("tasks", Form::Tables(&[TASK]), "customers, and processes with threads"),
    Key::new("entries", Form::Tables(&[ENTRY, PHASE]), "what a task does for a call"),
];

/// `[[processors]]`.
pub const PROCESSOR: &[Key] = &[
    Key::text("name", "its name"),
    Key::new("servers", COPIES, "cores, or \"unlimited\"").or("1"),
    Key::choice("discipline", &["fcfs", "ps"], "how tasks share them").or("'fcfs'"),
];

/// `[[tasks]]`.
pub const TASK: &[Key] = &[
    Key::text("name", "its name"),
    Key::text("processor", "where it runs"),
    Key::new("threads", COPIES, "of a server; or \"unlimited\"").or("1"),
    Key::new(
        "population",
        Form::Count { from: 0, to: 4_503_599_627_370_496 },
        "of customers, who run the only entry again and again; then there are no threads",
    )
    .optional(),
    Key::number("think_time_s", "of customers, between two runs"),
];

/// `[[entries]]`, beside the keys of its only phase.
pub const ENTRY: &[Key] = &[
    Key::text("name", "its name"),
    Key::text("task", "whose it is"),
    Key::number("arrival_rate_per_s", "Poisson arrivals from outside"),
    Key::new("forwards", NUMBERS, "entries that answer in its place, with probabilities")
        .optional(),
    Key::new(
        "phases",
        Form::Tables(&[PHASE]),
        "one to three; the first ends with the reply. Without them, the keys of one are given here",
    )
    .optional(),
];

/// `[[entries.phases]]`.
pub const PHASE: &[Key] = &[
    Key::number("service_demand_s", "mean time on the processor, in slices between the calls"),
    Key::new("service_scv", Form::Number, "squared coefficient of variation of a slice").or("1"),
    Key::number("pause_time_s", "mean time that a thread is held without the processor"),
    Key::new("calls", NUMBERS, "entries that it calls and waits for, with mean numbers").optional(),
    Key::new("asynchronous_calls", NUMBERS, "the same without waiting").optional(),
    Key::new(
        "calls_at_once",
        Form::Tables(&[FORK]),
        "entries that it calls at once, and goes on when all have replied",
    )
    .optional(),
    Key::flag(
        "deterministic_calls",
        "as many calls as their means, rather than geometrically many",
    )
    .or("false"),
];

/// `[[entries.calls_at_once]]`.
pub const FORK: &[Key] = &[
    Key::new("entries", Form::Texts, "who is called, each once"),
    Key::new("number", Form::Number, "how often in the mean").or("1"),
];

impl Layered {
    /// Reads a layered model from the table that its file is.
    ///
    /// # Errors
    /// [`Problem`] with the path of the key. Values are checked by [`check`](Self::check).
    pub fn read(table: &Table) -> Result<Self, Problem> {
        let mut root = Section::new("", table, &[LAYERED]);
        root.known()?;
        root.opt_text("description")?;
        let mut model = Self { name: root.text("name")?, ..Self::default() };
        for mut section in root.sections("processors")? {
            section.known()?;
            let name = section.text("name")?;
            let copies = copies(&mut section, "servers")?;
            let disciplines = [("fcfs", Sharing::Fcfs), ("ps", Sharing::Ps)];
            let sharing = section.choice("discipline", &disciplines)?;
            model.processors.push(Processor { name, copies, sharing });
        }
        for mut section in root.sections("tasks")? {
            section.known()?;
            let processors = model.processors.iter().map(|processor| processor.name.as_str());
            let processor = place(&mut section, "processor", processors)?;
            let think_time = section.number("think_time_s")?;
            let role = match section.opt_count("population")? {
                Some(_) if section.has("threads") => {
                    return Err(section.problem("threads", "is beside a population: write one"));
                }
                Some(population) => {
                    Role::Reference { population, think_time: think_time.unwrap_or(0.0) }
                }
                None if think_time.is_some() => {
                    let what =
                        "is of customers: give a population, or write pause_time_s in entries";
                    return Err(section.problem("think_time_s", what));
                }
                None => Role::Server(copies(&mut section, "threads")?),
            };
            model.tasks.push(Task { name: section.text("name")?, processor, role });
        }
        let mut sections = root.sections("entries")?;
        let mut names = Vec::new();
        for section in &mut sections {
            section.known()?;
            names.push(section.text("name")?);
        }
        for (mut section, name) in sections.into_iter().zip(&names) {
            let task =
                place(&mut section, "task", model.tasks.iter().map(|task| task.name.as_str()))?;
            let phases = if section.has("phases") {
                let only = PHASE.iter().find(|key| section.has(key.name));
                if let Some(key) = only {
                    return Err(
                        section.problem(key.name, "is beside phases: write it in one of them")
                    );
                }
                let phases = section.sections("phases")?;
                phases
                    .into_iter()
                    .map(|mut part| phase(&mut part, &names))
                    .collect::<Result<_, _>>()?
            } else {
                vec![phase(&mut section, &names)?]
            };
            model.entries.push(Entry {
                name: name.clone(),
                task,
                arrival_rate: section.number("arrival_rate_per_s")?.unwrap_or(0.0),
                phases,
                forwards: calls(&mut section, "forwards", &names)?,
            });
        }
        Ok(model)
    }

    /// The model as TOML, which read again is the same model.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut file = Table::new();
        put(&mut file, "name", self.name.as_str());
        let processors = self.processors.iter().map(|processor| {
            let mut table = Table::new();
            put(&mut table, "name", processor.name.as_str());
            put(&mut table, "servers", written(processor.copies));
            if processor.sharing == Sharing::Ps {
                put(&mut table, "discipline", "ps");
            }
            table
        });
        put(&mut file, "processors", list(processors));
        let tasks = self.tasks.iter().map(|task| {
            let mut table = Table::new();
            put(&mut table, "name", task.name.as_str());
            put(&mut table, "processor", self.processors[task.processor].name.as_str());
            match task.role {
                Role::Server(threads) => put(&mut table, "threads", written(threads)),
                Role::Reference { population, think_time } => {
                    put(&mut table, "population", written(Copies::Limited(population)));
                    put(&mut table, "think_time_s", think_time);
                }
            }
            table
        });
        put(&mut file, "tasks", list(tasks));
        let entries = self.entries.iter().map(|entry| {
            let mut table = Table::new();
            put(&mut table, "name", entry.name.as_str());
            put(&mut table, "task", self.tasks[entry.task].name.as_str());
            if entry.arrival_rate > 0.0 {
                put(&mut table, "arrival_rate_per_s", entry.arrival_rate);
            }
            self.put_calls(&mut table, "forwards", entry.forwards.iter().copied());
            match &entry.phases[..] {
                [only] => table.extend(self.phase_table(only)),
                phases => {
                    let phases = phases.iter().map(|phase| self.phase_table(phase));
                    put(&mut table, "phases", list(phases));
                }
            }
            table
        });
        put(&mut file, "entries", list(entries));
        file.to_string()
    }

    fn put_calls(&self, to: &mut Table, key: &str, calls: impl Iterator<Item = (usize, f64)>) {
        let mut table = Table::new();
        for (entry, mean) in calls {
            let name = &self.entries[entry].name;
            let known = table.get(name).and_then(Value::as_float).unwrap_or(0.0);
            put(&mut table, name, known + mean);
        }
        if !table.is_empty() {
            put(to, key, table);
        }
    }

    fn phase_table(&self, phase: &Phase) -> Table {
        let mut table = Table::new();
        put(&mut table, "service_demand_s", phase.demand);
        if (phase.scv - 1.0).abs() > 0.0 {
            put(&mut table, "service_scv", phase.scv);
        }
        if phase.think_time > 0.0 {
            put(&mut table, "pause_time_s", phase.think_time);
        }
        for (key, kind) in KINDS {
            let calls = phase.calls.iter().filter(|call| call.kind == kind);
            self.put_calls(&mut table, key, calls.map(|call| (call.entry, call.mean)));
        }
        let forks = phase.forks.iter().map(|fork| {
            let mut table = Table::new();
            let names = fork.entries.iter().map(|entry| self.entries[*entry].name.as_str());
            put(&mut table, "entries", list(names));
            put(&mut table, "number", fork.mean);
            table
        });
        if !phase.forks.is_empty() {
            put(&mut table, "calls_at_once", list(forks));
        }
        if phase.deterministic {
            put(&mut table, "deterministic_calls", true);
        }
        table
    }
}

const KINDS: [(&str, CallKind); 2] =
    [("calls", CallKind::Synchronous), ("asynchronous_calls", CallKind::Asynchronous)];

fn phase(section: &mut Section<'_>, names: &[String]) -> Result<Phase, Problem> {
    section.known()?;
    let mut phase = Phase {
        demand: section.number("service_demand_s")?.unwrap_or(0.0),
        scv: section.number("service_scv")?.unwrap_or(1.0),
        think_time: section.number("pause_time_s")?.unwrap_or(0.0),
        deterministic: section.flag("deterministic_calls")?,
        ..Phase::default()
    };
    for (key, kind) in KINDS {
        let calls = calls(section, key, names)?;
        phase.calls.extend(calls.into_iter().map(|(entry, mean)| Call { entry, mean, kind }));
    }
    for mut section in section.sections("calls_at_once")? {
        section.known()?;
        let entries = section.words("entries")?;
        let entries = entries.iter().map(|name| find(&section, "entries", name, names));
        let entries = entries.collect::<Result<_, _>>()?;
        phase.forks.push(Fork { entries, mean: section.number("number")?.unwrap_or(1.0) });
    }
    Ok(phase)
}

fn copies(section: &mut Section<'_>, key: &str) -> Result<Copies, Problem> {
    match section.raw(key) {
        Some(Value::String(word)) if word == "unlimited" => Ok(Copies::Unlimited),
        _ => section.count(key).map(Copies::Limited),
    }
}

fn place<'a>(
    section: &mut Section<'_>,
    key: &str,
    names: impl Iterator<Item = &'a str>,
) -> Result<usize, Problem> {
    let name = section.text(key)?;
    find(section, key, &name, &names.collect::<Vec<_>>())
}

fn find(
    section: &Section<'_>,
    key: &str,
    name: &str,
    names: &[impl AsRef<str>],
) -> Result<usize, Problem> {
    let mut found = (0..names.len()).filter(|place| names[*place].as_ref() == name);
    match (found.next(), found.next()) {
        (Some(place), None) => Ok(place),
        (Some(_), Some(_)) => Err(section.problem(key, format!("`{name}` is the name of several"))),
        _ => {
            let close = did_you_mean(name, names.iter().map(AsRef::as_ref));
            Err(section.problem(key, format!("`{name}` is not there{close}")))
        }
    }
}

fn calls(
    section: &mut Section<'_>,
    key: &str,
    names: &[String],
) -> Result<Vec<(usize, f64)>, Problem> {
    let calls = section.section(key)?;
    let mut list = Vec::new();
    for (name, value) in calls.entries() {
        let number = match value {
            Value::Integer(number) => number.to_string().parse().ok(),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        let number =
            number.ok_or_else(|| calls.problem(name, format!("`{value}` is not a number")))?;
        list.push((find(&calls, name, name, names)?, number));
    }
    Ok(list)
}

fn written(copies: Copies) -> Value {
    match copies {
        Copies::Limited(count) => whole(count).into(),
        Copies::Unlimited => "unlimited".into(),
    }
}
