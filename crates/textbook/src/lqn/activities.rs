//! Activities of a task: sequences, alternatives and loops become means of one phase, activities in
//! parallel calls that are made at once.

use std::collections::{BTreeMap, BTreeSet};

use super::DraftPhase;

/// Most activities of a task.
const MOST_ACTIVITIES: usize = 500;

/// The activities of a task.
#[derive(Debug, Default)]
pub(super) struct Graph {
    task: String,
    pub(super) activities: BTreeMap<String, DraftPhase>,
    links: Vec<Link>,
    /// The link that each activity leads into.
    next: BTreeMap<String, usize>,
    /// Activities and the entries that they reply to.
    pub(super) replies: BTreeSet<(String, String)>,
}

/// What is behind activities.
#[derive(Debug)]
pub(super) struct Link {
    /// Activities in front of it: one, or those that meet here.
    pub(super) before: Vec<String>,
    /// Whether it waits for all of them.
    pub(super) all: bool,
    pub(super) after: After,
}

#[derive(Debug)]
pub(super) enum After {
    /// One of them, by its probability; a single one is a sequence.
    One(Vec<(String, f64)>),
    /// All of them at once.
    All(Vec<String>),
    /// Each so many times in the mean, then the last.
    Loop(Vec<(String, f64)>, Option<String>),
}

/// What is done from an activity on: before the reply, and behind it.
struct Part {
    phases: Vec<DraftPhase>,
    /// The phase in which it goes on, and how probably it does.
    open: usize,
    share: f64,
    replied: bool,
    /// Where it meets others.
    join: Option<usize>,
}

impl Default for Part {
    fn default() -> Self {
        let phases = vec![DraftPhase::default()];
        Self { phases, open: 0, share: 1.0, replied: false, join: None }
    }
}

impl Part {
    fn add(&mut self, place: usize, phase: &DraftPhase, weight: f64) {
        if self.phases.len() <= place {
            self.phases.push(DraftPhase::default());
        }
        self.phases[place].add(phase, weight);
    }

    /// What follows, so many times.
    fn then(&mut self, next: &Self, times: f64) -> Result<(), String> {
        if self.replied && next.replied {
            return Err("two replies one behind the other".to_owned());
        }
        for (place, phase) in next.phases.iter().enumerate() {
            self.add(self.open + place, phase, times * self.share);
        }
        self.open += next.open;
        self.share *= next.share;
        self.replied |= next.replied;
        self.join = next.join;
        Ok(())
    }
}

impl Graph {
    pub(super) fn of(task: &str) -> Self {
        Self { task: task.to_owned(), ..Self::default() }
    }

    pub(super) fn link(&mut self, link: Link) -> Result<(), String> {
        let twice = link.before.iter().find(|activity| self.next.contains_key(*activity));
        if let Some(activity) = twice {
            return Err(format!("activity `{activity}` with two that follow"));
        }
        let place = self.links.len();
        self.next.extend(link.before.iter().map(|activity| (activity.clone(), place)));
        self.links.push(link);
        Ok(())
    }

    /// Activities and their calls.
    pub(super) fn size(&self) -> usize {
        self.activities.values().map(|activity| 1 + activity.calls.len()).sum()
    }

    /// The phases of an entry that starts with an activity.
    pub(super) fn phases(&self, entry: &str, start: &str) -> Result<Vec<DraftPhase>, String> {
        let told = |what: String| format!("{what} (activities of task `{}`)", self.task);
        if self.activities.len() > MOST_ACTIVITIES {
            return Err(told(format!("more than {MOST_ACTIVITIES} activities")));
        }
        let mut walk =
            Walk { graph: self, entry, passed: BTreeSet::new(), arrived: BTreeMap::new() };
        let part = walk.follow(start).map_err(told)?;
        match part.join {
            None => Ok(part.phases),
            Some(_) => Err(told("a join without its fork".to_owned())),
        }
    }
}

struct Walk<'a> {
    graph: &'a Graph,
    entry: &'a str,
    passed: BTreeSet<&'a str>,
    /// How many activities have come to each join.
    arrived: BTreeMap<usize, usize>,
}

impl<'a> Walk<'a> {
    fn follow(&mut self, name: &'a str) -> Result<Part, String> {
        let graph = self.graph;
        let activity = graph.activities.get(name);
        let activity = activity.ok_or_else(|| format!("`{name}`, which is none"))?;
        if !self.passed.insert(name) {
            return Err(format!("`{name}` reached twice, in a circle or without a join"));
        }
        let mut phase = activity.clone();
        phase.parts = usize::from(!phase.is_idle());
        let mut part = Part { phases: vec![phase], ..Part::default() };
        let next = graph.next.get(name).copied();
        part.replied = graph.replies.contains(&(name.to_owned(), self.entry.to_owned()));
        if part.replied && next.is_some() {
            part.phases.push(DraftPhase::default());
            part.open = 1;
        }
        match next {
            Some(link) if graph.links[link].before.len() > 1 => {
                *self.arrived.entry(link).or_default() += 1;
                part.join = Some(link);
            }
            Some(link) => part.then(&self.after(link)?, 1.0)?,
            None => {}
        }
        Ok(part)
    }

    fn after(&mut self, link: usize) -> Result<Part, String> {
        match &self.graph.links[link].after {
            After::One(branches) => self.one(branches),
            After::All(branches) => self.all(branches),
            After::Loop(bodies, last) => {
                let mut part = Part::default();
                for (body, count) in bodies {
                    let body = self.follow(body)?;
                    if body.join.is_some() || body.replied {
                        return Err("a reply or a join in a loop".to_owned());
                    }
                    part.then(&body, *count)?;
                }
                if let Some(last) = last {
                    part.then(&self.follow(last)?, 1.0)?;
                }
                Ok(part)
            }
        }
    }

    /// Branches of which some may end, and the others meet.
    fn one(&mut self, branches: &'a [(String, f64)]) -> Result<Part, String> {
        if let [(only, _)] = branches {
            return self.follow(only);
        }
        let sum: f64 = branches.iter().map(|branch| branch.1).sum();
        if !((sum - 1.0).abs() < 1e-4 && branches.iter().all(|branch| branch.1 >= 0.0)) {
            return Err(format!("alternatives whose probabilities add to {sum}"));
        }
        let mut all = Part { share: 0.0, ..Part::default() };
        for (branch, probability) in branches {
            let part = self.follow(branch)?;
            if part.join.is_some() {
                let same = (all.join, all.open) == (part.join, part.open);
                if all.join.is_some() && !same {
                    return Err(
                        "alternatives with several joins, or of which some reply".to_owned()
                    );
                }
                (all.join, all.open) = (part.join, part.open);
                all.share += probability * part.share;
            }
            all.replied |= part.replied;
            for (place, phase) in part.phases.iter().enumerate() {
                all.add(place, phase, *probability);
            }
        }
        match all.join {
            Some(join) if self.graph.links[join].all => {
                Err("a join that waits for alternatives".to_owned())
            }
            Some(join) if self.complete(join) => {
                all.then(&self.after(join)?, 1.0)?;
                Ok(all)
            }
            _ => Ok(all),
        }
    }

    fn complete(&self, join: usize) -> bool {
        self.arrived.get(&join) == Some(&self.graph.links[join].before.len())
    }

    fn all(&mut self, branches: &'a [String]) -> Result<Part, String> {
        let (mut parts, mut joins) = (Vec::new(), BTreeSet::new());
        for branch in branches {
            let mut part = self.follow(branch)?;
            joins.insert(part.join);
            match part.phases.pop() {
                Some(phase) if !part.replied && part.share >= 1.0 - 1e-9 => {
                    parts.push((branch.clone(), phase));
                }
                _ => return Err("a reply or an end in one of several in parallel".to_owned()),
            }
        }
        let fork = DraftPhase { forks: vec![(parts, 1.0)], ..DraftPhase::default() };
        let mut part = Part { phases: vec![fork], ..Part::default() };
        match (joins.pop_first(), joins.is_empty()) {
            (Some(None), true) => Ok(part),
            (Some(Some(join)), true) if self.graph.links[join].all => {
                part.join = Some(join);
                if self.complete(join) {
                    part.then(&self.after(join)?, 1.0)?;
                }
                Ok(part)
            }
            _ => Err("activities in parallel that do not all meet at one join".to_owned()),
        }
    }
}
