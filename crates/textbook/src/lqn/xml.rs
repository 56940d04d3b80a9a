//! `.lqnx`: read, and written.

use kendall_queueing::lqn::{Call, CallKind, Copies, Entry, Layered, Phase, Role, Sharing};
use roxmltree::Node;

use super::activities::{After, Link};
use super::{Draft, DraftEntry, DraftPhase, Named, Read};
use crate::jmva::{JmvaError, coded, document, named, number, wrong};
use crate::vocabulary::{Row, elements, tag, unknown};

const CALL: &[&str] = &["dest", "calls-mean", "fanin", "fanout"];

/// What LQNS's schema has, and this reader looks at, refuses or lists as left out.
const KNOWN: &[Row] = &[
    (
        "lqn-model",
        &["name", "description", "lqn-schema-version", "lqncore-schema-version", "xml-debug"],
        &[
            "processor",
            "solver-params",
            "slot",
            "plot-control",
            "lqx",
            "spex-*",
            "run-control",
            "result-*",
        ],
    ),
    (
        "processor",
        &["name", "multiplicity", "speed-factor", "scheduling", "replication", "quantum"],
        &["task", "group", "result-*"],
    ),
    (
        "task",
        &[
            "name",
            "multiplicity",
            "replication",
            "scheduling",
            "think-time",
            "priority",
            "queue-length",
            "activity-graph",
            "initially",
        ],
        &["entry", "task-activities", "service", "fan-in", "fan-out", "result-*"],
    ),
    (
        "entry",
        &["name", "type", "priority", "open-arrival-rate", "semaphore", "rwlock"],
        &[
            "forwarding",
            "entry-phase-activities",
            "entry-activity-graph",
            "service-time-distribution",
            "result-*",
        ],
    ),
    ("forwarding", &["dest", "prob", "fanin", "fanout"], &["result-*"]),
    ("entry-phase-activities", &[], &["activity"]),
    (
        "activity",
        &[
            "name",
            "phase",
            "bound-to-entry",
            "host-demand-mean",
            "host-demand-cvsq",
            "think-time",
            "max-service-time",
            "call-order",
            "prob",
            "count",
        ],
        &["synch-call", "asynch-call", "service-time-distribution", "result-*"],
    ),
    ("synch-call", CALL, &["result-*"]),
    ("asynch-call", CALL, &["result-*"]),
    ("task-activities", &[], &["activity", "precedence", "reply-entry"]),
    ("reply-entry", &["name"], &["reply-activity"]),
    ("reply-activity", &["name"], &[]),
    ("precedence", &[], &["pre", "pre-OR", "pre-AND", "post", "post-OR", "post-AND", "post-LOOP"]),
    ("pre", &[], &["activity"]),
    ("pre-OR", &[], &["activity"]),
    ("pre-AND", &["quorum"], &["activity", "result-*"]),
    ("post", &[], &["activity"]),
    ("post-OR", &[], &["activity"]),
    ("post-AND", &[], &["activity"]),
    ("post-LOOP", &["end"], &["activity"]),
];

/// Reads a document.
///
/// # Errors
/// [`JmvaError`] for what is not XML, and in one list for what does not map.
pub(super) fn read(text: &str) -> Result<Read, JmvaError> {
    let document = document(text)?;
    let root = document.root_element();
    if !root.has_tag_name("lqn-model") {
        return Err(wrong(tag(root), "expected <lqn-model>, as LQNS writes it").within(root));
    }
    let mut draft = Draft::default();
    for processor in elements(root) {
        match processor.tag_name().name() {
            "processor" => draft.read_processor(processor)?,
            "solver-params" => {
                let pragmas = elements(processor).filter(|part| part.has_tag_name("pragma"));
                draft.notes.extend(pragmas.map(|pragma| {
                    format!(
                        "pragma `{}` is left out",
                        pragma.attribute("param").unwrap_or_default()
                    )
                }));
            }
            _ => drop(draft.notes.insert(format!("{} is left out", tag(processor)))),
        }
    }
    let unknown = unknown(root, KNOWN).into_iter();
    draft
        .problems
        .extend(unknown.map(|(at, what)| (at, format!("{what}, which LQNS does not know"))));
    if root.descendants().any(|element| element.tag_name().name().starts_with("result-")) {
        draft.notes.insert("stored results are left out".to_owned());
    }
    draft.finished(root.attribute("name").unwrap_or_default(), text)
}

/// Where an element begins.
fn at(of: Node<'_, '_>) -> usize {
    of.range().start
}

/// Its name, as what others name.
fn own_name(of: Node<'_, '_>) -> Result<Named, JmvaError> {
    let name = named(of, &tag(of))?.to_owned();
    Ok(Named { name, at: at(of) })
}

/// A number, 0 or `missing` where it is not written; what SPEX would put in is refused.
fn real(of: Node<'_, '_>, name: &str, missing: f64) -> Result<f64, JmvaError> {
    let Some(text) = of.attribute(name) else { return Ok(missing) };
    let called = of.attribute("name").or(of.attribute("dest")).unwrap_or_default();
    let place = format!("{} `{called}`, attribute `{name}`", tag(of));
    if text.starts_with('$') {
        let what = format!("`{text}` is a variable of SPEX: write its value");
        return Err(wrong(place, what).within(of));
    }
    number(&place, text).map_err(|error| error.within(of))
}

/// How many; none where there is no limit.
fn copies(of: Node<'_, '_>) -> Result<Option<u64>, JmvaError> {
    match of.attribute("multiplicity") {
        Some("inf" | "@infinity") => Ok(None),
        _ => {
            let copies = real(of, "multiplicity", 1.0)?;
            whole(copies).map(Some).ok_or_else(|| {
                let name = of.attribute("name").unwrap_or_default();
                wrong(
                    format!("{} `{name}`, attribute `multiplicity`", tag(of)),
                    format!("`{copies}` is not a whole number from 1 to 1e15"),
                )
                .within(of)
            })
        }
    }
}

/// A whole number from 1 to 1e15.
pub(super) fn whole(number: f64) -> Option<u64> {
    ((1.0..1e15).contains(&number) && number.fract() == 0.0)
        .then(|| kendall_units::whole_u64(number))
}

impl Draft {
    fn read_processor(&mut self, of: Node<'_, '_>) -> Result<(), JmvaError> {
        let name = own_name(of)?;
        let copies = copies(of)?;
        let scheduling = of.attribute("scheduling").unwrap_or("fcfs");
        let scheduling = if copies.is_none() { "inf" } else { scheduling };
        let speed = real(of, "speed-factor", 1.0)?;
        if speed <= 0.0 {
            let what = "its speed factor must be above 0";
            return Err(wrong(format!("<processor> `{}`", name.name), what).within(of));
        }
        self.processor(&name, scheduling, copies, speed);
        self.refuse(of, &name)?;
        for part in elements(of) {
            match part.tag_name().name() {
                "task" => self.read_task(part, &name.name)?,
                "group" => {
                    self.problem(at(part), format!("groups with shares at `{}`", name.name));
                    for task in elements(part).filter(|part| part.has_tag_name("task")) {
                        self.read_task(task, &name.name)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Attributes that change what a processor or task does.
    fn refuse(&mut self, of: Node<'_, '_>, name: &Named) -> Result<(), JmvaError> {
        if (real(of, "replication", 1.0)? - 1.0).abs() > 0.0 {
            self.problem(at(of), format!("replication of `{}`", name.name));
        }
        Ok(())
    }

    fn read_task(&mut self, of: Node<'_, '_>, processor: &str) -> Result<(), JmvaError> {
        let task_name = own_name(of)?;
        let name = &task_name.name;
        let scheduling = of.attribute("scheduling").unwrap_or("fcfs");
        let scheduling = if scheduling == "n" { "fcfs" } else { scheduling };
        let (copies, think_time) = (copies(of)?, real(of, "think-time", 0.0)?);
        self.task(&task_name, scheduling, processor, copies, think_time);
        self.refuse(of, &task_name)?;
        if real(of, "queue-length", 0.0)? > 0.0 {
            self.notes.insert(format!("the limit of the queue of `{name}` is left out"));
        }
        self.priority(of, name);
        if of.attribute("initially").is_some_and(|tokens| tokens.trim() != "0") {
            self.notes.insert(format!("`initially` of `{name}` is left out"));
        }
        let task = self.tasks.len() - 1;
        // Activities are bound to entries, wherever those stand.
        let (entries, others): (Vec<_>, Vec<_>) =
            elements(of).partition(|part| part.has_tag_name("entry"));
        for entry in entries {
            self.read_entry(entry, task)?;
        }
        for part in others {
            match part.tag_name().name() {
                "task-activities" => self.read_activities(part, task)?,
                "service" | "fan-in" | "fan-out" => {
                    self.notes.insert(format!("{} of `{name}` is left out", tag(part)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn priority(&mut self, of: Node<'_, '_>, name: &str) {
        if of.attribute("priority").is_some_and(|priority| priority.trim() != "0") {
            self.notes.insert(format!("the priority of `{name}` is left out"));
        }
    }

    fn read_entry(&mut self, of: Node<'_, '_>, task: usize) -> Result<(), JmvaError> {
        let Named { name, at: start } = own_name(of)?;
        let mut entry = DraftEntry { name, at: start, task, ..DraftEntry::default() };
        entry.arrival_rate = real(of, "open-arrival-rate", 0.0)?;
        if of.attribute("semaphore").or(of.attribute("rwlock")).is_some() {
            self.problem(start, format!("a semaphore or lock at `{}`", entry.name));
        }
        self.priority(of, &entry.name);
        for part in elements(of) {
            match part.tag_name().name() {
                "forwarding" => {
                    entry.forwards.push((destination(part)?, real(part, "prob", 1.0)?));
                }
                "entry-phase-activities" => {
                    for activity in elements(part).filter(|part| part.has_tag_name("activity")) {
                        self.read_phase_of(activity, &mut entry)?;
                    }
                }
                "entry-activity-graph" => {
                    self.problem(at(part), format!("the activity graph of entry `{}`", entry.name));
                }
                "service-time-distribution" => {
                    self.notes.insert(format!("{} of `{}` is left out", tag(part), entry.name));
                }
                _ => {}
            }
        }
        self.entries.push(entry);
        Ok(())
    }

    fn read_phase_of(&mut self, of: Node<'_, '_>, entry: &mut DraftEntry) -> Result<(), JmvaError> {
        let phase = self.read_phase(of)?;
        let number = whole(real(of, "phase", 1.0)?);
        let number = number.and_then(|number| usize::try_from(number).ok());
        match number.and_then(|number| entry.phase(number)) {
            Some(place) if place.known => {
                let what = format!("two activities of one phase of `{}`", entry.name);
                self.problem(at(of), what);
            }
            Some(place) => *place = phase,
            None => self.problem(at(of), format!("more than three phases of `{}`", entry.name)),
        }
        Ok(())
    }

    fn read_phase(&mut self, of: Node<'_, '_>) -> Result<DraftPhase, JmvaError> {
        let mut draft = DraftPhase { known: true, ..DraftPhase::default() };
        draft.phase.demand = real(of, "host-demand-mean", 0.0)?;
        draft.phase.scv = real(of, "host-demand-cvsq", 1.0)?;
        draft.phase.think_time = real(of, "think-time", 0.0)?;
        let name = of.attribute("name").unwrap_or_default();
        match of.attribute("call-order").unwrap_or("STOCHASTIC") {
            "STOCHASTIC" => {}
            "DETERMINISTIC" => draft.phase.deterministic = true,
            other => self.problem(at(of), format!("the order of calls `{other}` of `{name}`")),
        }
        if real(of, "max-service-time", 0.0)? > 0.0 {
            self.notes.insert(format!("the greatest service time of `{name}` is left out"));
        }
        for call in elements(of) {
            let kind = match call.tag_name().name() {
                "synch-call" => CallKind::Synchronous,
                "asynch-call" => CallKind::Asynchronous,
                _ => continue,
            };
            let mean = real(call, "calls-mean", 1.0)?;
            draft.calls.push((destination(call)?, mean, kind));
        }
        Ok(draft)
    }

    fn read_activities(&mut self, of: Node<'_, '_>, task: usize) -> Result<(), JmvaError> {
        for part in elements(of) {
            match part.tag_name().name() {
                "activity" => {
                    let name = own_name(part)?;
                    let phase = self.read_phase(part)?;
                    if let Some(bound) = part.attribute("bound-to-entry") {
                        self.bind(&name, bound, task);
                    }
                    let Named { name, at } = name;
                    let twice = format!("two activities called `{name}`");
                    if self.tasks[task].graph.activities.insert(name, phase).is_some() {
                        self.problem(at, twice);
                    }
                }
                "precedence" => self.read_precedence(part, task)?,
                "reply-entry" => {
                    let entry = own_name(part)?;
                    for reply in elements(part) {
                        self.tasks[task].graph.reply(own_name(reply)?, entry.clone());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn bind(&mut self, activity: &Named, bound: &str, task: usize) {
        let Named { name, at } = activity;
        let own = |entry: &&mut DraftEntry| entry.name == bound && entry.task == task;
        let problem = match self.entries.iter_mut().find(own) {
            None => format!("activity `{name}` bound to `{bound}`, which is no entry of its task"),
            Some(entry) => match entry.start.replace(activity.clone()) {
                None => return,
                Some(first) => {
                    format!("two activities bound to `{bound}`: `{}` and `{name}`", first.name)
                }
            },
        };
        self.problem(*at, problem);
    }

    /// What comes behind activities.
    fn read_precedence(&mut self, of: Node<'_, '_>, task: usize) -> Result<(), JmvaError> {
        let after = After::One(Vec::new());
        let mut link = Link { at: at(of), before: Vec::new(), all: false, after };
        let mut behind = false;
        for side in elements(of) {
            let kind = side.tag_name().name();
            if kind == "pre-AND" && real(side, "quorum", 0.0)? > 0.0 {
                let name = &self.tasks[task].name;
                self.problem(at(side), format!("a quorum of activities of task `{name}`"));
            }
            let mut names = Vec::new();
            for activity in elements(side).filter(|part| part.has_tag_name("activity")) {
                let weight = if kind == "post-LOOP" { "count" } else { "prob" };
                names.push((
                    named(activity, "<activity>")?.to_owned(),
                    real(activity, weight, 1.0)?,
                ));
            }
            let bare = |names: Vec<(String, f64)>| names.into_iter().map(|name| name.0).collect();
            behind |= kind.starts_with("post");
            match kind {
                "pre" | "pre-OR" => link.before = bare(names),
                "pre-AND" => (link.before, link.all) = (bare(names), true),
                "post" | "post-OR" => link.after = After::One(names),
                "post-AND" => link.after = After::All(bare(names)),
                "post-LOOP" => {
                    link.after = After::Loop(names, side.attribute("end").map(str::to_owned));
                }
                _ => {}
            }
        }
        if behind && let Err(problem) = self.tasks[task].graph.link(link) {
            self.problems.insert(problem);
        }
        Ok(())
    }
}

fn destination(of: Node<'_, '_>) -> Result<Named, JmvaError> {
    let name = of.attribute("dest");
    let name = name.ok_or_else(|| wrong(tag(of), "has no attribute `dest`").within(of))?;
    Ok(Named { name: name.to_owned(), at: at(of) })
}

/// The model as a document.
pub fn write(model: &Layered) -> String {
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<lqn-model name=\"{}\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
         xsi:noNamespaceSchemaLocation=\"lqn.xsd\">\n  <solver-params comment=\"\" \
         conv_val=\"1e-05\" it_limit=\"50\" print_int=\"10\" underrelax_coeff=\"0.9\"/>\n",
        coded(&model.name)
    );
    for (index, processor) in model.processors.iter().enumerate() {
        let (scheduling, copies) = match (processor.copies, processor.sharing) {
            (Copies::Unlimited, _) => ("inf", 1),
            (Copies::Limited(copies), Sharing::Fcfs) => ("fcfs", copies),
            (Copies::Limited(copies), Sharing::Ps) => ("ps", copies),
        };
        let quantum = if scheduling == "ps" { " quantum=\"0.0\"" } else { "" };
        text += &format!(
            "  <processor name=\"{}\" scheduling=\"{scheduling}\" multiplicity=\"{copies}\"{quantum}>\n",
            coded(&processor.name)
        );
        for (task, _) in model.tasks.iter().enumerate().filter(|(_, task)| task.processor == index)
        {
            write_task(&mut text, model, task);
        }
        text += "  </processor>\n";
    }
    text + "</lqn-model>\n"
}

fn write_task(text: &mut String, model: &Layered, index: usize) {
    let task = &model.tasks[index];
    let attributes = match task.role {
        Role::Reference { population, think_time } => {
            format!(
                "scheduling=\"ref\" multiplicity=\"{population}\" think-time=\"{think_time:?}\""
            )
        }
        Role::Server(Copies::Unlimited) => "scheduling=\"inf\"".to_owned(),
        Role::Server(Copies::Limited(threads)) => {
            format!("scheduling=\"fcfs\" multiplicity=\"{threads}\"")
        }
    };
    *text += &format!("    <task name=\"{}\" {attributes}>\n", coded(&task.name));
    let mut graph = String::new();
    for entry in model.entries.iter().filter(|entry| entry.task == index) {
        let name = coded(&entry.name);
        let rate = match entry.arrival_rate {
            rate if rate > 0.0 => format!(" open-arrival-rate=\"{rate:?}\""),
            _ => String::new(),
        };
        let forks = entry.phases.iter().any(|phase| !phase.forks.is_empty());
        let kind = if forks { "NONE" } else { "PH1PH2" };
        *text += &format!("      <entry name=\"{name}\" type=\"{kind}\"{rate}>\n");
        for (to, share) in &entry.forwards {
            let to = coded(&model.entries[*to].name);
            *text += &format!("        <forwarding dest=\"{to}\" prob=\"{share:?}\"/>\n");
        }
        if forks {
            let replies = matches!(task.role, Role::Server(_));
            write_graph(&mut graph, model, entry, replies);
        } else {
            *text += "        <entry-phase-activities>\n";
            for (number, phase) in entry.phases.iter().enumerate() {
                let number = number + 1;
                let phase_of = format!(" phase=\"{number}\"");
                write_activity(text, model, &format!("{name}_{number}"), &phase_of, phase);
            }
            *text += "        </entry-phase-activities>\n";
        }
        *text += "      </entry>\n";
    }
    if !graph.is_empty() {
        *text += &format!("      <task-activities>\n{graph}      </task-activities>\n");
    }
    *text += "    </task>\n";
}

fn write_activity(text: &mut String, model: &Layered, name: &str, more: &str, phase: &Phase) {
    let order = if phase.deterministic { "DETERMINISTIC" } else { "STOCHASTIC" };
    *text += &format!(
        "          <activity name=\"{name}\"{more} host-demand-mean=\"{:?}\" \
         host-demand-cvsq=\"{:?}\" think-time=\"{:?}\" call-order=\"{order}\">\n",
        phase.demand, phase.scv, phase.think_time
    );
    for call in &phase.calls {
        let element = match call.kind {
            CallKind::Synchronous => "synch-call",
            CallKind::Asynchronous => "asynch-call",
        };
        let to = coded(&model.entries[call.entry].name);
        *text +=
            &format!("            <{element} dest=\"{to}\" calls-mean=\"{:?}\"/>\n", call.mean);
    }
    *text += "          </activity>\n";
}

/// Phases with calls that are made at once, as activities: a loop around a fork whose branches call.
fn write_graph(text: &mut String, model: &Layered, entry: &Entry, replies: bool) {
    let name = coded(&entry.name);
    let listed = |names: &[String], more: &str| -> String {
        names.iter().map(|name| format!("<activity name=\"{name}\"{more}/>")).collect()
    };
    let mut links = Vec::new();
    let mut last: Option<String> = None;
    let mut reply = String::new();
    for (number, phase) in (1..).zip(&entry.phases) {
        let own = format!("{name}_{number}");
        let bound = if number == 1 { format!(" bound-to-entry=\"{name}\"") } else { String::new() };
        write_activity(text, model, &own, &bound, phase);
        if let Some(last) = &last {
            links.push((
                listed(std::slice::from_ref(last), ""),
                "pre",
                "post".into(),
                listed(std::slice::from_ref(&own), ""),
            ));
        }
        let mut at = own.clone();
        for (place, fork) in (1..).zip(&phase.forks) {
            let [body, join, end] =
                ["body", "join", "end"].map(|what| format!("{own}_{place}_{what}"));
            let idle = Phase::default();
            for activity in [&body, &join, &end] {
                write_activity(text, model, activity, "", &idle);
            }
            let count = format!(" count=\"{:?}\"", fork.mean);
            let to = format!("post-LOOP end=\"{end}\"");
            links.push((listed(&[at], ""), "pre", to, listed(std::slice::from_ref(&body), &count)));
            let mut branches = Vec::new();
            for (branch, entry) in (1..).zip(&fork.entries) {
                let activity = format!("{own}_{place}_{branch}");
                let call = Call { entry: *entry, mean: 1.0, kind: CallKind::Synchronous };
                let calls = Phase { calls: vec![call], deterministic: true, ..Phase::default() };
                write_activity(text, model, &activity, "", &calls);
                branches.push(activity);
            }
            let branches = listed(&branches, "");
            links.push((listed(&[body], ""), "pre", "post-AND".into(), branches.clone()));
            links.push((branches, "pre-AND", "post".into(), listed(&[join], "")));
            at = end;
        }
        if number == 1 {
            reply.clone_from(&at);
        }
        last = Some(at);
    }
    for (before, from, to, after) in links {
        let end = to.split(' ').next().unwrap_or_default();
        *text += &format!(
            "          <precedence><{from}>{before}</{from}><{to}>{after}</{end}></precedence>\n"
        );
    }
    if replies {
        *text += &format!(
            "          <reply-entry name=\"{name}\"><reply-activity name=\"{reply}\"/></reply-entry>\n"
        );
    }
}
