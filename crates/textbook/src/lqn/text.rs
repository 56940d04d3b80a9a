//! `.lqn`: tokens, in sections that a capital letter begins and `-1` ends.

use std::collections::BTreeMap;

use kendall_queueing::lqn::CallKind;
use kendall_units::is_printable;

use super::activities::{After, Link};
use super::xml::whole;
use super::{Draft, DraftEntry, DraftPhase, Named, Read};
use crate::jmva::{JmvaError, wrong};

/// Most words of a file: models of LQNS have some thousands.
const MOST_WORDS: usize = 2_000_000;

/// Reads a document.
///
/// # Errors
/// [`JmvaError`] for what is not such a text, and in one list for what does not map.
pub(super) fn read(text: &str) -> Result<Read, JmvaError> {
    let text = text.trim_start_matches('\u{feff}');
    let element = "the file".to_owned();
    let mut file = File { text, tokens: tokens(text)?, element, ..File::default() };
    let mut name = String::new();
    while let Some(section) = file.next() {
        file.element = "the file".to_owned();
        match section {
            "G" => {
                name = file.need("a comment in quotation marks")?.trim_matches('"').to_owned();
                while file.need("-1, the end of G")? != "-1" {}
            }
            "P" => file.list(File::processor)?,
            "T" => file.list(File::task)?,
            "E" => file.list(File::entry)?,
            "A" => {
                file.activities()?;
            }
            "U" => {
                file.problem("groups with shares".to_owned());
                file.list(|file, _| file.need("-1, the end of U").map(drop))?;
            }
            // Reports and convergence of SPEX come last.
            "R" | "C" => {
                file.draft.notes.insert("reports of SPEX are left out".to_owned());
                break;
            }
            other => {
                return Err(
                    file.wrong(format!("`{other}` begins no section: expected G, P, T, E or A"))
                );
            }
        }
    }
    if file.draft.tasks.is_empty() {
        return Err(file.wrong("it ends before its tasks (T)".to_owned()));
    }
    file.draft.finished(&name, text)
}

/// Words and texts in quotation marks, with where each begins.
fn tokens(text: &str) -> Result<Vec<(&str, usize)>, JmvaError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| !c.is_whitespace()) {
        rest = &rest[start..];
        let at = text.len() - rest.len();
        let odd = |what: String| wrong("the file", what).at(text, at);
        let length = if rest.starts_with('#') {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"');
            end.ok_or_else(|| odd("a quotation mark is not closed".to_owned()))? + 2
        } else {
            rest.find(|c: char| c.is_whitespace() || c == '#').unwrap_or(rest.len())
        };
        let token = &rest[..length];
        let is_odd = |c: &char| !c.is_whitespace() && !is_printable(c.encode_utf8(&mut [0; 4]));
        if let Some(found) = token.chars().find(is_odd) {
            return Err(odd(format!("`{}` is no character of a text", found.escape_debug())));
        }
        if tokens.len() == MOST_WORDS {
            return Err(odd(format!("more than {MOST_WORDS} words")));
        }
        tokens.push((token, at));
        rest = &rest[length..];
    }
    Ok(tokens)
}

#[derive(Default)]
struct File<'a> {
    text: &'a str,
    tokens: Vec<(&'a str, usize)>,
    at: usize,
    /// What is being read, as errors name it.
    element: String,
    draft: Draft,
    /// Where the first of a name stands.
    entries: BTreeMap<&'a str, usize>,
    tasks: BTreeMap<&'a str, usize>,
}

impl<'a> File<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let token = self.tokens.get(self.at)?.0;
        self.at += 1;
        Some(token)
    }

    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|token| token.0)
    }

    /// Where the word that was read last begins.
    fn last(&self) -> usize {
        let last = self.at.saturating_sub(1).min(self.tokens.len().saturating_sub(1));
        self.tokens.get(last).map_or(0, |token| token.1)
    }

    fn wrong(&self, what: String) -> JmvaError {
        wrong(&*self.element, what).at(self.text, self.last())
    }

    fn problem(&mut self, what: String) {
        self.draft.problem(self.last(), what);
    }

    /// The name of another element, or of this one.
    fn named(&mut self, what: &str) -> Result<Named, JmvaError> {
        let name = self.need(what)?.to_owned();
        Ok(Named { name, at: self.last() })
    }

    fn need(&mut self, what: &str) -> Result<&'a str, JmvaError> {
        self.next().ok_or_else(|| self.wrong(format!("it ends where {what} should be")))
    }

    fn number(&mut self) -> Result<f64, JmvaError> {
        let token = self.need("a number")?;
        if token.starts_with('$') {
            return Err(self.wrong(format!("`{token}` is a variable of SPEX: write its value")));
        }
        match token.parse::<f64>().ok().filter(|number| number.is_finite()) {
            Some(number) if number < 0.0 => {
                Err(self.wrong(format!("`{token}` stands where a number from 0 should be")))
            }
            Some(number) => Ok(number),
            None => Err(self.wrong(format!("`{token}` is not a finite number"))),
        }
    }

    fn count(&mut self) -> Result<u64, JmvaError> {
        let number = self.number()?;
        whole(number)
            .ok_or_else(|| self.wrong(format!("`{number}` is not a whole number from 1 to 1e15")))
    }

    /// A count, and declarations up to `-1`.
    fn list(
        &mut self,
        mut one: impl FnMut(&mut Self, &'a str) -> Result<(), JmvaError>,
    ) -> Result<(), JmvaError> {
        self.number()?;
        loop {
            match self.need("-1, the end of the section")? {
                "-1" => return Ok(()),
                kind => one(self, kind)?,
            }
        }
    }

    fn processor(&mut self, kind: &'a str) -> Result<(), JmvaError> {
        if kind != "p" {
            return Err(self.wrong(format!("`{kind}` is no processor: expected p")));
        }
        let named = self.named("the name of a processor")?;
        let name = &named.name;
        self.element = format!("processor `{name}`");
        let scheduling = match self.need("how it is scheduled")? {
            "f" => "fcfs",
            "s" => "ps",
            "i" => "inf",
            "r" => "rand",
            "h" => "hol",
            "p" => "pri",
            "c" => "cfs",
            other => return Err(self.wrong(format!("`{other}` is no scheduling of a processor"))),
        };
        let (mut copies, mut speed, mut unlimited) = (None, 1.0, false);
        if matches!(scheduling, "ps" | "cfs")
            && self.peek().is_some_and(|token| token.parse::<f64>().is_ok_and(|n| n >= 0.0))
        {
            self.at += 1;
        }
        while let Some(option @ ("m" | "i" | "r" | "R")) = self.peek() {
            self.at += 1;
            match option {
                "m" => copies = Some(self.count()?),
                "i" => unlimited = true,
                "R" => speed = self.number()?,
                _ => self.replicated(name)?,
            }
        }
        if speed <= 0.0 {
            return Err(self.wrong(format!("the rate of `{name}` must be above 0")));
        }
        let scheduling = if unlimited { "inf" } else { scheduling };
        self.draft.processor(&named, scheduling, copies, speed);
        Ok(())
    }

    fn replicated(&mut self, name: &str) -> Result<(), JmvaError> {
        if self.count()? > 1 {
            self.problem(format!("replication of `{name}`"));
        }
        Ok(())
    }

    fn task(&mut self, kind: &'a str) -> Result<(), JmvaError> {
        if matches!(kind, "I" | "O") {
            self.problem("replication (fan-in, fan-out)".to_owned());
            self.at += 3;
            return Ok(());
        }
        if kind != "t" {
            return Err(self.wrong(format!("`{kind}` is no task: expected t")));
        }
        let name = self.need("the name of a task")?;
        let named = Named { name: name.to_owned(), at: self.last() };
        self.element = format!("task `{name}`");
        let scheduling = match self.need("how it is scheduled")? {
            "r" => "ref",
            "n" | "f" => "fcfs",
            "i" => "inf",
            "h" => "hol",
            "p" => "poll",
            "b" => "burst",
            "S" => "semaphore",
            other => return Err(self.wrong(format!("`{other}` is no scheduling of a task"))),
        };
        let task = self.draft.tasks.len();
        loop {
            match self.need("-1, the end of the entries of a task")? {
                "-1" => break,
                entry => {
                    self.entries.entry(entry).or_insert(self.draft.entries.len());
                    let (name, at) = (entry.to_owned(), self.last());
                    self.draft.entries.push(DraftEntry { name, at, task, ..DraftEntry::default() });
                }
            }
        }
        if self.peek() == Some("q") {
            self.limited(name)?;
        }
        let processor = self.need("the processor of a task")?;
        let (mut copies, mut think_time) = (Some(1), 0.0);
        while let Some(option @ ("z" | "m" | "i" | "q" | "r" | "g")) = self.option(name) {
            self.at += usize::from(option != "q");
            match option {
                "z" => think_time = self.number()?,
                "m" => copies = Some(self.count()?),
                "i" => copies = None,
                "q" => self.limited(name)?,
                "r" => self.replicated(name)?,
                _ => {
                    self.at += 1;
                    self.problem(format!("the group of `{name}`"));
                }
            }
        }
        self.tasks.entry(name).or_insert(task);
        self.draft.task(&named, scheduling, processor, copies, think_time);
        Ok(())
    }

    /// The next word, behind a priority.
    fn option(&mut self, task: &str) -> Option<&'a str> {
        let is_priority = |word: &str| word != "-1" && word.parse::<i64>().is_ok();
        if self.peek().is_some_and(is_priority) {
            self.at += 1;
            self.draft.notes.insert(format!("the priority of `{task}` is left out"));
        }
        self.peek()
    }

    fn limited(&mut self, task: &str) -> Result<(), JmvaError> {
        self.at += 1;
        self.count()?;
        self.draft.notes.insert(format!("the limit of the queue of `{task}` is left out"));
        Ok(())
    }

    fn of_entry(&mut self) -> Result<usize, JmvaError> {
        let name = self.need("the name of an entry")?;
        let place = self.entries.get(name).copied();
        place.ok_or_else(|| self.wrong(format!("`{name}` is no entry of a task")))
    }

    /// A number a phase, up to `-1`.
    fn phases(
        &mut self,
        entry: usize,
        mut set: impl FnMut(&mut DraftPhase, f64),
    ) -> Result<(), JmvaError> {
        for number in 1.. {
            if self.peek() == Some("-1") {
                self.at += 1;
                break;
            }
            let value = self.number()?;
            match self.draft.entries[entry].phase(number) {
                Some(phase) => set(phase, value),
                None => return Err(self.wrong("an entry has at most three phases".to_owned())),
            }
        }
        Ok(())
    }

    fn entry(&mut self, kind: &'a str) -> Result<(), JmvaError> {
        self.element = "the entries (E)".to_owned();
        let entry = self.of_entry()?;
        let name = self.draft.entries[entry].name.clone();
        self.element = format!("entry `{name}`");
        match kind {
            "a" => self.draft.entries[entry].arrival_rate = self.number()?,
            "A" => {
                let start = self.named("the first activity")?;
                if self.draft.entries[entry].start.replace(start).is_some() {
                    self.problem(format!("two first activities of `{name}`"));
                }
            }
            "F" => {
                let to = self.named("where it forwards")?;
                let share = self.number()?;
                self.draft.entries[entry].forwards.push((to, share));
                if self.peek() == Some("-1")
                    && self.tokens.get(self.at + 1).is_some_and(|next| next.0.len() <= 2)
                {
                    self.at += 1;
                }
            }
            "s" => self.phases(entry, |phase, value| phase.phase.demand = value)?,
            "c" => self.phases(entry, |phase, value| phase.phase.scv = value)?,
            "Z" => self.phases(entry, |phase, value| phase.phase.think_time = value)?,
            "f" => self.phases(entry, |phase, value| phase.phase.deterministic = value > 0.0)?,
            "y" | "z" => {
                let to = self.named("an entry to call")?;
                let kind = if kind == "y" { CallKind::Synchronous } else { CallKind::Asynchronous };
                self.phases(entry, |phase, value| {
                    if value > 0.0 {
                        phase.calls.push((to.clone(), value, kind));
                    }
                })?;
                if !self.entries.contains_key(to.name.as_str()) {
                    let what = format!("`{name}` calls `{}`, which is no entry", to.name);
                    self.draft.problem(to.at, what);
                }
            }
            "M" => {
                self.phases(entry, |_, _| {})?;
                self.draft
                    .notes
                    .insert(format!("the greatest service time of `{name}` is left out"));
            }
            "p" => {
                self.need("a priority")?;
                self.draft.notes.insert(format!("the priority of `{name}` is left out"));
            }
            "P" | "V" => self.problem(format!("a semaphore at `{name}`")),
            "H" => {
                self.at += 4;
                self.draft.notes.insert(format!("the histogram of `{name}` is left out"));
            }
            other => return Err(self.wrong(format!("`{other}` is no parameter of an entry"))),
        }
        Ok(())
    }

    /// Numbers and calls of activities; behind a colon, what follows what.
    fn activities(&mut self) -> Result<(), JmvaError> {
        let name = self.need("the name of a task")?;
        self.element = "the activities (A)".to_owned();
        let Some(task) = self.tasks.get(name).copied() else {
            return Err(self.wrong(format!("`{name}` is no task")));
        };
        self.element = format!("activities of task `{name}`");
        loop {
            match self.need("-1, the end of activities")? {
                "-1" => return Ok(()),
                ":" => break,
                kind => self.activity(task, kind)?,
            }
        }
        let mut link = String::new();
        loop {
            let word = self.need("-1, the end of activities")?;
            if word == "-1" {
                return self.link(task, &link);
            }
            for (place, part) in word.split(';').enumerate() {
                if place > 0 {
                    self.link(task, &std::mem::take(&mut link))?;
                }
                link += part;
            }
        }
    }

    fn link(&mut self, task: usize, text: &str) -> Result<(), JmvaError> {
        let (before, after) = text.split_once("->").unwrap_or((text, ""));
        let (before, all) = self.side(task, before)?;
        if let Some(after) = self.side_behind(task, after)? {
            let before = before.into_iter().map(|one| one.0).collect();
            let link = Link { at: self.last(), before, all, after };
            if let Err(problem) = self.draft.tasks[task].graph.link(link) {
                self.draft.problems.insert(problem);
            }
        }
        Ok(())
    }

    fn activity(&mut self, task: usize, kind: &'a str) -> Result<(), JmvaError> {
        let name = self.need("the name of an activity")?.to_owned();
        let call = match kind {
            "y" => Some(CallKind::Synchronous),
            "z" => Some(CallKind::Asynchronous),
            _ => None,
        };
        let to = match call {
            Some(_) => self.named("an entry to call")?,
            None => Named { name: String::new(), at: 0 },
        };
        if matches!(kind, "H" | "M") {
            self.at += if kind == "H" { 3 } else { 1 };
            let what = if kind == "H" { "histogram" } else { "greatest service time" };
            self.draft.notes.insert(format!("the {what} of activity `{name}` is left out"));
            return Ok(());
        }
        let value = self.number()?;
        let draft = self.draft.tasks[task].graph.activities.entry(name).or_default();
        match (kind, call) {
            (_, Some(kind)) => draft.calls.push((to, value, kind)),
            ("s", _) => draft.phase.demand = value,
            ("c", _) => draft.phase.scv = value,
            ("Z", _) => draft.phase.think_time = value,
            ("f", _) => draft.phase.deterministic = value > 0.0,
            _ => return Err(self.wrong(format!("`{kind}` is no parameter of an activity"))),
        }
        Ok(())
    }

    /// Activities in front of an arrow: names, entries that they reply to in brackets, numbers in
    /// parentheses or before a star; and whether `&` stands between them.
    fn side(&mut self, task: usize, text: &str) -> Result<(Vec<(String, f64)>, bool), JmvaError> {
        let mut activities = Vec::new();
        for one in text.split(['&', '+', ',']).filter(|one| !one.is_empty()) {
            let (one, replies) = one.split_once('[').unwrap_or((one, ""));
            let (weight, name) = match (one.strip_prefix('('), one.split_once('*')) {
                (Some(rest), _) => rest.split_once(')').unwrap_or(("", rest)),
                (None, Some(parts)) => parts,
                _ => ("1", one),
            };
            if name.contains('(') || !(replies.is_empty() || replies.ends_with(']')) {
                return Err(self.wrong(format!("`{text}`: a quorum, or not an activity")));
            }
            if !self.draft.tasks[task].graph.activities.contains_key(name) {
                return Err(self.wrong(format!("`{name}` in `{text}` is no activity of the task")));
            }
            for entry in replies.trim_end_matches(']').split(',').filter(|entry| !entry.is_empty())
            {
                if !self.entries.contains_key(entry) {
                    return Err(self.wrong(format!("a reply to `{entry}`, which is no entry")));
                }
                let named = |name: &str| Named { name: name.to_owned(), at: self.last() };
                let (activity, entry) = (named(name), named(entry));
                self.draft.tasks[task].graph.reply(activity, entry);
            }
            let number =
                weight.parse::<f64>().ok().filter(|number| (0.0..f64::INFINITY).contains(number));
            let number = number.ok_or_else(|| {
                self.wrong(format!("`{weight}` is not a finite number, 0 or above"))
            })?;
            activities.push((name.to_owned(), number));
        }
        Ok((activities, text.contains('&')))
    }

    fn side_behind(&mut self, task: usize, text: &str) -> Result<Option<After>, JmvaError> {
        let (mut activities, all) = self.side(task, text)?;
        let bare = |list: Vec<(String, f64)>| list.into_iter().map(|one| one.0).collect();
        Ok(match activities.len() {
            0 => None,
            _ if text.contains('*') => {
                // The last has no count.
                let last = text.rsplit(',').next().is_some_and(|last| !last.contains('*'));
                let last = if last { activities.pop() } else { None };
                Some(After::Loop(activities, last.map(|last| last.0)))
            }
            _ if all => Some(After::All(bare(activities))),
            _ => Some(After::One(activities)),
        })
    }
}
