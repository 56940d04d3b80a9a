//! `.lqn`: tokens, in sections that a capital letter begins and `-1` ends.

use kendall_queueing::lqn::CallKind;

use super::xml::whole;
use super::{Draft, DraftEntry, DraftPhase, Read};
use crate::jmva::{JmvaError, wrong};

/// Reads a document.
///
/// # Errors
/// [`JmvaError`] for what is not such a text, and in one list for what does not map.
pub(super) fn read(text: &str) -> Result<Read, JmvaError> {
    let mut file = File { tokens: tokens(text)?, at: 0, draft: Draft::default() };
    let mut name = String::new();
    while let Some(section) = file.next() {
        match section {
            "G" => {
                name = file.need("a comment in quotation marks")?.trim_matches('"').to_owned();
                while file.need("-1, the end of G")? != "-1" {}
            }
            "P" => file.list(File::processor)?,
            "T" => file.list(File::task)?,
            "E" => file.list(File::entry)?,
            "A" => {
                let task = file.need("the name of a task")?;
                let what = format!("activities of `{task}` as text (those of .lqnx are read)");
                file.draft.problems.insert(what);
                while file.need("-1, the end of activities")? != "-1" {}
            }
            "U" => {
                file.draft.problems.insert("groups with shares".to_owned());
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
    file.draft.finished(&name)
}

/// Words and texts in quotation marks, with the line of each.
fn tokens(text: &str) -> Result<Vec<(&str, usize)>, JmvaError> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(start) = rest.find(|c: char| !c.is_whitespace()) {
        line += rest[..start].matches('\n').count();
        rest = &rest[start..];
        let length = if rest.starts_with('#') {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"');
            end.ok_or_else(|| wrong(format!("line {line}"), "a quotation mark is not closed"))? + 2
        } else {
            rest.find(|c: char| c.is_whitespace() || c == '#').unwrap_or(rest.len())
        };
        tokens.push((&rest[..length], line));
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    Ok(tokens)
}

struct File<'a> {
    tokens: Vec<(&'a str, usize)>,
    at: usize,
    draft: Draft,
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

    fn wrong(&self, what: String) -> JmvaError {
        let last = self.at.saturating_sub(1).min(self.tokens.len().saturating_sub(1));
        let line = self.tokens.get(last).map_or(1, |token| token.1);
        wrong(format!("line {line}"), what)
    }

    fn need(&mut self, what: &str) -> Result<&'a str, JmvaError> {
        self.next().ok_or_else(|| self.wrong(format!("it ends where {what} should be")))
    }

    fn number(&mut self) -> Result<f64, JmvaError> {
        let token = self.need("a number")?;
        if token.starts_with('$') {
            return Err(self.wrong(format!("`{token}` is a variable of SPEX: write its value")));
        }
        let number = token.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| self.wrong(format!("`{token}` is not a finite number")))
    }

    fn count(&mut self) -> Result<u64, JmvaError> {
        let number = self.number()?;
        whole(number).ok_or_else(|| self.wrong(format!("`{number}` is not a whole number from 1")))
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
        let name = self.need("the name of a processor")?;
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
        self.draft.processor(name, if unlimited { "inf" } else { scheduling }, copies, speed);
        Ok(())
    }

    fn replicated(&mut self, name: &str) -> Result<(), JmvaError> {
        if self.count()? > 1 {
            self.draft.problems.insert(format!("replication of `{name}`"));
        }
        Ok(())
    }

    fn task(&mut self, kind: &'a str) -> Result<(), JmvaError> {
        if matches!(kind, "I" | "O") {
            self.draft.problems.insert("replication (fan-in, fan-out)".to_owned());
            self.at += 3;
            return Ok(());
        }
        if kind != "t" {
            return Err(self.wrong(format!("`{kind}` is no task: expected t")));
        }
        let name = self.need("the name of a task")?;
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
                    let name = entry.to_owned();
                    self.draft.entries.push(DraftEntry { name, task, ..DraftEntry::default() });
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
                    self.draft.problems.insert(format!("the group of `{name}`"));
                }
            }
        }
        if copies.is_none() && scheduling == "ref" {
            self.draft.problems.insert(format!("customers without number at `{name}`"));
        }
        self.draft.task(name, scheduling, processor, copies, think_time);
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
        let place = self.draft.entries.iter().position(|entry| entry.name == name);
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
        let entry = self.of_entry()?;
        let name = self.draft.entries[entry].name.clone();
        match kind {
            "a" => self.draft.entries[entry].arrival_rate = self.number()?,
            "A" => drop(self.need("the first activity")?),
            "F" => {
                let to = self.need("where it forwards")?.to_owned();
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
                let to = self.need("an entry to call")?;
                let kind = if kind == "y" { CallKind::Synchronous } else { CallKind::Asynchronous };
                self.phases(entry, |phase, value| {
                    if value > 0.0 {
                        phase.calls.push((to.to_owned(), value, kind));
                    }
                })?;
            }
            "M" => {
                self.phases(entry, |_, _| {})?;
                self.draft
                    .notes
                    .insert(format!("the greatest service time of `{name}` is left out"));
            }
            "p" => {
                self.number()?;
                self.draft.notes.insert(format!("the priority of `{name}` is left out"));
            }
            "P" | "V" => drop(self.draft.problems.insert(format!("a semaphore at `{name}`"))),
            "H" => self.at += 4,
            other => return Err(self.wrong(format!("`{other}` says nothing of an entry"))),
        }
        Ok(())
    }
}
