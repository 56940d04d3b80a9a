//! Activities of a task: sequences, alternatives and loops become means of one phase, activities in
//! parallel calls that are made at once.

use std::collections::{BTreeMap, BTreeSet};

use super::{DraftPhase, Named};

/// Most activities of a task.
const MOST_ACTIVITIES: usize = 500;

/// What is wrong, behind where it stands.
type Problem = (usize, String);

/// The activities of a task.
#[derive(Debug, Default)]
pub(super) struct Graph {
    task: String,
    pub(super) activities: BTreeMap<String, DraftPhase>,
    links: Vec<Link>,
    /// The link that each activity leads into.
    next: BTreeMap<String, usize>,
    /// Activities and the entries that they reply to, with where both stand.
    replies: BTreeMap<(String, String), (usize, usize)>,
    /// Activities that some entry comes to.
    reached: BTreeSet<String>,
}

/// What is behind activities.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) at: usize,
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

    pub(super) fn link(&mut self, link: Link) -> Result<(), Problem> {
        let twice = link.before.iter().find(|activity| self.next.contains_key(*activity));
        if let Some(activity) = twice {
            let what =
                format!("activity `{activity}` of task `{}` with two that follow", self.task);
            return Err((link.at, what));
        }
        let place = self.links.len();
        self.next.extend(link.before.iter().map(|activity| (activity.clone(), place)));
        self.links.push(link);
        Ok(())
    }

    pub(super) fn reply(&mut self, activity: Named, entry: Named) {
        self.replies.insert((activity.name, entry.name), (activity.at, entry.at));
    }

    /// What activities, and replies to these entries of the task, name and is not there.
    pub(super) fn unknown(&self, entries: &BTreeSet<&str>) -> Vec<Problem> {
        let (mut found, task) = (Vec::new(), &self.task);
        let is_none = |name: &str| format!("`{name}`, which is no activity of task `{task}`");
        for link in &self.links {
            let after: Vec<&String> = match &link.after {
                After::One(after) => after.iter().map(|one| &one.0).collect(),
                After::All(after) => after.iter().collect(),
                After::Loop(after, last) => after.iter().map(|one| &one.0).chain(last).collect(),
            };
            let all = link.before.iter().chain(after);
            let unknown = all.filter(|name| !self.activities.contains_key(*name));
            found.extend(unknown.map(|name| (link.at, is_none(name))));
        }
        for ((activity, entry), (at, entry_at)) in &self.replies {
            if !self.activities.contains_key(activity) {
                found.push((*at, format!("a reply by {}", is_none(activity))));
            }
            if !entries.contains(entry.as_str()) {
                let what = format!("a reply to `{entry}`, which is no entry of task `{task}`");
                found.push((*entry_at, what));
            }
        }
        found
    }

    /// Activities that no entry comes to.
    pub(super) fn unreached(&self) -> impl Iterator<Item = &str> {
        self.activities.keys().filter(|name| !self.reached.contains(*name)).map(String::as_str)
    }

    /// Activities and their calls.
    pub(super) fn size(&self) -> usize {
        self.activities.values().map(|activity| 1 + activity.calls.len()).sum()
    }

    /// The phases of an entry that starts with an activity, and whether one of its activities replies.
    pub(super) fn phases(
        &mut self,
        entry: &str,
        start: &Named,
    ) -> Result<(Vec<DraftPhase>, bool), Problem> {
        let Named { name, at } = start;
        if self.activities.len() > MOST_ACTIVITIES {
            let what = format!("more than {MOST_ACTIVITIES} activities of task `{}`", self.task);
            return Err((*at, what));
        }
        let mut walk =
            Walk { graph: self, entry, passed: BTreeSet::new(), arrived: BTreeMap::new() };
        let part = walk.follow(name, *at).map_err(|(at, what)| {
            (at, format!("{what} (activities of task `{}`, entry `{entry}`)", self.task))
        })?;
        let passed: BTreeSet<String> = walk.passed.into_iter().map(str::to_owned).collect();
        self.reached.extend(passed);
        match part.join {
            None => Ok((part.phases, part.replied)),
            Some(_) => Err((*at, format!("a join without its fork, of entry `{entry}`"))),
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
    fn follow(&mut self, name: &'a str, from: usize) -> Result<Part, Problem> {
        let graph = self.graph;
        let activity = graph.activities.get(name);
        let activity = activity.ok_or_else(|| (from, format!("`{name}`, which is none")))?;
        if !self.passed.insert(name) {
            return Err((from, format!("`{name}` reached twice, in a circle or without a join")));
        }
        let mut phase = activity.clone();
        phase.parts = usize::from(!phase.is_idle());
        let mut part = Part { phases: vec![phase], ..Part::default() };
        let next = graph.next.get(name).copied();
        part.replied = graph.replies.contains_key(&(name.to_owned(), self.entry.to_owned()));
        if part.replied && next.is_some() {
            part.phases.push(DraftPhase::default());
            part.open = 1;
        }
        match next {
            Some(link) if graph.links[link].before.len() > 1 => {
                *self.arrived.entry(link).or_default() += 1;
                part.join = Some(link);
            }
            Some(link) => {
                let next = self.after(link)?;
                part.then(&next, 1.0).map_err(|what| (graph.links[link].at, what))?;
            }
            None => {}
        }
        Ok(part)
    }

    fn after(&mut self, link: usize) -> Result<Part, Problem> {
        let Link { at, after, .. } = &self.graph.links[link];
        let wrong = |what: String| (*at, what);
        match after {
            After::One(branches) => self.one(*at, branches),
            After::All(branches) => self.all(*at, branches),
            After::Loop(bodies, last) => {
                let mut part = Part::default();
                for (body, count) in bodies {
                    let body = self.follow(body, *at)?;
                    if body.join.is_some() || body.replied {
                        return Err(wrong("a reply or a join in a loop".to_owned()));
                    }
                    part.then(&body, *count).map_err(wrong)?;
                }
                if let Some(last) = last {
                    part.then(&self.follow(last, *at)?, 1.0).map_err(wrong)?;
                }
                Ok(part)
            }
        }
    }

    /// Branches of which some may end, and the others meet.
    fn one(&mut self, at: usize, branches: &'a [(String, f64)]) -> Result<Part, Problem> {
        if let [(only, _)] = branches {
            return self.follow(only, at);
        }
        let wrong = |what: &str| Err((at, what.to_owned()));
        let sum: f64 = branches.iter().map(|branch| branch.1).sum();
        if !((sum - 1.0).abs() < 1e-4 && branches.iter().all(|branch| branch.1 >= 0.0)) {
            return wrong(&format!("alternatives whose probabilities add to {sum}"));
        }
        let mut all = Part { share: 0.0, ..Part::default() };
        for (branch, probability) in branches {
            let part = self.follow(branch, at)?;
            if part.join.is_some() {
                let same = (all.join, all.open) == (part.join, part.open);
                if all.join.is_some() && !same {
                    return wrong("alternatives with several joins, or of which some reply");
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
            Some(join) if self.graph.links[join].all => wrong("a join that waits for alternatives"),
            Some(join) if self.complete(join) => {
                all.then(&self.after(join)?, 1.0).map_err(|what| (at, what))?;
                Ok(all)
            }
            _ => Ok(all),
        }
    }

    fn complete(&self, join: usize) -> bool {
        self.arrived.get(&join) == Some(&self.graph.links[join].before.len())
    }

    fn all(&mut self, at: usize, branches: &'a [String]) -> Result<Part, Problem> {
        let wrong = |what: &str| Err((at, what.to_owned()));
        let (mut parts, mut joins) = (Vec::new(), BTreeSet::new());
        for branch in branches {
            let mut part = self.follow(branch, at)?;
            joins.insert(part.join);
            match part.phases.pop() {
                Some(phase) if !part.replied && part.share >= 1.0 - 1e-9 => {
                    parts.push((branch.clone(), phase));
                }
                _ => return wrong("a reply or an end in one of several in parallel"),
            }
        }
        let fork = DraftPhase { forks: vec![(parts, 1.0)], ..DraftPhase::default() };
        let mut part = Part { phases: vec![fork], ..Part::default() };
        match (joins.pop_first(), joins.is_empty()) {
            (Some(None), true) => Ok(part),
            (Some(Some(join)), true) if self.graph.links[join].all => {
                part.join = Some(join);
                if self.complete(join) {
                    part.then(&self.after(join)?, 1.0).map_err(|what| (at, what))?;
                }
                Ok(part)
            }
            _ => wrong("activities in parallel that do not all meet at one join"),
        }
    }
}
