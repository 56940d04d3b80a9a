//! Petri nets (`.pnml`) that are queueing networks: read as model files.
//!
//! PNML itself has no times; those of PIPE (`<rate>`, `<timed>`, `<infiniteServer>`, `<priority>`) are read. A
//! place whose tokens timed transitions take one by one is a station, and one whose tokens leave at once is a
//! way between stations.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::Node;
use toml::{Table, Value};

use crate::jmva::{Ends, Jmva, JmvaError, child, document, left_out, list, listed, number, wrong};
use crate::vocabulary::{Row, tag, unknown};

/// What PNML and PIPE write, and this reader looks at or needs not.
const KNOWN: &[Row] = &[
    ("pnml", &["xmlns"], &["net"]),
    ("net", NODE, &["place", "transition", "arc", "page", "name", "token", "graphics", "labels"]),
    ("page", NODE, &["place", "transition", "arc", "page", "name", "graphics"]),
    ("place", NODE, &["name", "graphics", "initialMarking", "capacity"]),
    (
        "transition",
        NODE,
        &["name", "graphics", "orientation", "rate", "timed", "infiniteServer", "priority"],
    ),
    (
        "arc",
        &["id", "source", "target"],
        &["name", "graphics", "inscription", "tagged", "arcpath", "type"],
    ),
];
const NODE: &[&str] = &["id", "type"];

/// Most places and transitions.
const MOST_PARTS: usize = 10_000;
/// Places without time that one route may pass, and ways through them.
const MOST_PASSED: usize = 100;
const MOST_WAYS: usize = 10_000;

struct Place<'a> {
    element: Node<'a, 'a>,
    name: &'a str,
    tokens: i64,
    capacity: i64,
    /// Transitions that take its tokens.
    takers: Vec<usize>,
}

struct Transition<'a> {
    element: Node<'a, 'a>,
    name: &'a str,
    rate: Option<f64>,
    timed: bool,
    /// Whether each token has a time of its own.
    each: bool,
    priority: i64,
    from: Vec<usize>,
    to: Vec<usize>,
}

struct Net<'a> {
    places: Vec<Place<'a>>,
    transitions: Vec<Transition<'a>>,
    /// What has no place in a model file, behind where it begins.
    problems: BTreeSet<(usize, String)>,
}

/// Reads a document.
///
/// # Errors
/// [`JmvaError`] for what is not XML, and in one list for what is no queueing network.
pub(crate) fn read(text: &str) -> Result<Jmva, JmvaError> {
    let document = document(text)?;
    let root = document.root_element();
    let net = child(root, "net");
    let net = net.ok_or_else(|| wrong(tag(root), "expected <pnml> with a <net>").within(root))?;
    if let Some(second) = root.children().filter(|one| one.has_tag_name("net")).nth(1) {
        return Err(wrong(tag(second), "a second net: write each in its own file").within(second));
    }
    let mut net = Net::new(net)?;
    let table = net.table();
    if !net.problems.is_empty() {
        let what = format!("no queueing network has {}", listed(text, net.problems));
        return Err(wrong("<net>", what));
    }
    let ends = Ends::of(text);
    let line = |(at, index): (usize, usize)| {
        (format!("stations.{index}"), ends.line(net.places[at].element))
    };
    let lines = net.stations().zip(0..).map(line).collect();
    let mut notes =
        vec!["rates are taken per second, and a request is a visit to the first place".to_owned()];
    if net.opens() && net.places.iter().any(|place| place.tokens > 0) {
        notes.push("tokens of the beginning are left out: they leave".to_owned());
    }
    notes.extend(net.idle().map(|name| format!("`{name}` is left out: no token comes or goes")));
    notes.extend(left_out(text, unknown(root, KNOWN)));
    Ok(Jmva { table, notes, lines })
}

/// What a part says, in `<value>` as PIPE writes it or in `<text>`.
fn said<'a>(of: Node<'a, 'a>, key: &str) -> Option<&'a str> {
    let part = child(of, key)?;
    Some(child(part, "value").or_else(|| child(part, "text"))?.text()?.trim())
}

fn whole(of: Node<'_, '_>, key: &str, missing: i64) -> Result<i64, JmvaError> {
    let Some(text) = said(of, key) else { return Ok(missing) };
    let place = format!("{}, <{key}>", tag(of));
    // Numbers behind the colors of the tokens, of which one is read.
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let (text, others) = match parts[..] {
        [_, first, ref others @ ..] => (first, others),
        _ => (text, &[][..]),
    };
    if let Some(color) = others.chunks(2).find(|color| color.last() != Some(&"0")) {
        let what = format!("tokens of a second color: `{}`", color.join(","));
        return Err(wrong(place, what).within(of));
    }
    let found = text.parse::<f64>().ok().filter(|n| (0.0..=9e15).contains(n) && n.fract() == 0.0);
    let found = found.map(kendall_units::whole_u64).and_then(|n| i64::try_from(n).ok());
    found.ok_or_else(|| wrong(place, format!("`{text}` is not a whole number")).within(of))
}

fn named<'a>(of: Node<'a, 'a>) -> Result<(&'a str, &'a str), JmvaError> {
    let id = of.attribute("id");
    let id = id.ok_or_else(|| wrong(tag(of), "has no attribute `id`").within(of))?;
    Ok((id, said(of, "name").filter(|name| !name.is_empty()).unwrap_or(id)))
}

/// Refuses a node whose id another has, and one that stands for another.
fn node(of: Node<'_, '_>, known: impl Fn(&str) -> bool) -> Result<(), JmvaError> {
    match of.tag_name().name() {
        "referencePlace" | "referenceTransition" => {
            let what = "a reference to a node of another page: write the node itself";
            Err(wrong(tag(of), what).within(of))
        }
        "place" | "transition" if known(named(of)?.0) => {
            let what = format!("a second `{}`: each node has an id of its own", named(of)?.0);
            Err(wrong(tag(of), what).within(of))
        }
        _ => Ok(()),
    }
}

impl<'a> Net<'a> {
    fn new(net: Node<'a, 'a>) -> Result<Self, JmvaError> {
        let (mut places, mut transitions) = (Vec::new(), Vec::new());
        let (mut places_by, mut transitions_by) = (BTreeMap::new(), BTreeMap::new());
        for element in net.descendants() {
            node(element, |id| places_by.contains_key(id) || transitions_by.contains_key(id))?;
            if element.has_tag_name("place") {
                let (id, name) = named(element)?;
                places_by.insert(id, places.len());
                let tokens = whole(element, "initialMarking", 0)?;
                let capacity = whole(element, "capacity", 0)?;
                places.push(Place { element, name, tokens, capacity, takers: Vec::new() });
            } else if element.has_tag_name("transition") {
                let (id, name) = named(element)?;
                transitions_by.insert(id, transitions.len());
                let is = |key: &str| said(element, key) == Some("true");
                let rate = said(element, "rate").map(|text| {
                    let place = format!("{} `{name}`, <rate>", tag(element));
                    let rate = number(&place, text).map_err(|error| error.within(element))?;
                    let what = || wrong(place, format!("`{text}` is not above 0")).within(element);
                    Some(rate).filter(|rate| *rate > 0.0).ok_or_else(what)
                });
                transitions.push(Transition {
                    element,
                    name,
                    rate: rate.transpose()?,
                    timed: is("timed"),
                    each: is("infiniteServer"),
                    priority: whole(element, "priority", 1)?,
                    from: Vec::new(),
                    to: Vec::new(),
                });
            }
        }
        if places.len() + transitions.len() > MOST_PARTS {
            let what = format!("has more than {MOST_PARTS} places and transitions");
            return Err(wrong("<net>", what).within(net));
        }
        let mut found = Self { places, transitions, problems: BTreeSet::new() };
        for arc in net.descendants().filter(|element| element.has_tag_name("arc")) {
            let end = |key: &str| {
                let what = || wrong("<arc>", format!("has no attribute `{key}`")).within(arc);
                arc.attribute(key).ok_or_else(what)
            };
            let (source, target) = (end("source")?, end("target")?);
            if whole(arc, "inscription", 1)? != 1 {
                found.problem(arc, format!("several tokens at once from `{source}` to `{target}`"));
            }
            let kind = child(arc, "type").and_then(|kind| kind.attribute("value"));
            if kind.is_some_and(|kind| kind != "normal") {
                found.problem(arc, format!("an inhibitor from `{source}` to `{target}`"));
            }
            match (places_by.get(source), transitions_by.get(target)) {
                (Some(place), Some(transition)) => {
                    found.places[*place].takers.push(*transition);
                    found.transitions[*transition].from.push(*place);
                }
                _ => match (transitions_by.get(source), places_by.get(target)) {
                    (Some(transition), Some(place)) => {
                        found.transitions[*transition].to.push(*place);
                    }
                    _ => {
                        let what =
                            format!("`{source}` to `{target}` joins no place and transition");
                        return Err(wrong("<arc>", what).within(arc));
                    }
                },
            }
        }
        Ok(found)
    }

    fn problem(&mut self, at: Node<'_, '_>, what: String) {
        self.problems.insert((at.range().start, what));
    }

    /// Nodes to which no arc leads, and from which none does.
    fn idle(&self) -> impl Iterator<Item = &str> {
        let comes = |at: usize| self.transitions.iter().any(|one| one.to.contains(&at));
        let places = self.places.iter().enumerate();
        let places = places.filter(move |(at, one)| one.takers.is_empty() && !comes(*at));
        let transitions =
            self.transitions.iter().filter(|one| one.from.is_empty() && one.to.is_empty());
        places.map(|(_, one)| one.name).chain(transitions.map(|one| one.name))
    }

    /// Whether tokens come from outside.
    fn opens(&self) -> bool {
        self.transitions.iter().any(|one| one.from.is_empty() && !one.to.is_empty())
    }

    /// Whether tokens have a time at a place: those that none take at once.
    fn is_station(&self, place: usize) -> bool {
        let takers = &self.places[place].takers;
        !takers.is_empty() && takers.iter().all(|taker| self.transitions[*taker].timed)
    }

    fn stations(&self) -> impl Iterator<Item = usize> {
        (0..self.places.len()).filter(|place| self.is_station(*place))
    }

    fn table(&mut self) -> Table {
        self.check();
        let sources = |one: &&Transition<'_>| one.from.is_empty() && !one.to.is_empty();
        let arrivals: f64 =
            self.transitions.iter().filter(sources).filter_map(|one| one.rate).sum();
        let tokens = self.places.iter().fold(0_i64, |sum, place| sum.saturating_add(place.tokens));
        let mut class = Table::from_iter([("name".to_owned(), Value::from("tokens"))]);
        if arrivals > 0.0 {
            class.insert("arrival_rate_per_s".to_owned(), arrivals.into());
        } else {
            class.insert("population".to_owned(), tokens.into());
        }
        let mut routes = Vec::new();
        if arrivals > 0.0 {
            let all = self.transitions.iter().zip(0..).filter(|(one, _)| sources(one));
            let sources: Vec<usize> = all.map(|(_, index)| index).collect();
            routes.extend(self.route("in", &sources));
        }
        let most = if arrivals > 0.0 { i64::MAX } else { tokens };
        let mut stations = Vec::new();
        for at in self.stations().collect::<Vec<_>>() {
            let takers = self.places[at].takers.clone();
            routes.extend(self.route(self.places[at].name, &takers));
            stations.push(self.station(at, &takers, most));
        }
        Table::from_iter([
            ("classes".to_owned(), list(vec![class])),
            ("routes".to_owned(), list(routes)),
            ("stations".to_owned(), list(stations)),
        ])
    }

    /// Refuses what is no way of single tokens from place to place.
    fn check(&mut self) {
        let opens = self.opens();
        for index in 0..self.transitions.len() {
            let Transition { element, name, rate, timed, .. } = self.transitions[index];
            let (from, to) = (self.transitions[index].from.len(), self.transitions[index].to.len());
            if from > 1 || to > 1 {
                let what =
                    format!("`{name}`, which takes or gives tokens of several places at once");
                self.problem(element, what);
            }
            if rate.is_none() {
                self.problem(element, format!("no <rate> of `{name}`, which PNML itself has not"));
            }
            if from == 0 && !timed {
                self.problem(element, format!("`{name}`, which makes tokens without time"));
            }
            let limits = self.transitions[index].to.iter().map(|to| &self.places[*to]);
            let limited = limits.filter(|to| to.capacity > 0 && !timed).map(|to| to.name).next();
            if let Some(to) = limited {
                let what = format!("a limit of `{to}` behind `{name}`, which takes no time");
                self.problem(element, what);
            }
            if to == 0 && from > 0 && !opens {
                self.problem(element, format!("`{name}`, which takes tokens for good"));
            }
        }
        for at in 0..self.places.len() {
            let Place { element, name, tokens, capacity, .. } = self.places[at];
            let takers: Vec<&Transition<'_>> =
                self.places[at].takers.iter().map(|taker| &self.transitions[*taker]).collect();
            let timed = takers.iter().filter(|taker| taker.timed).count();
            let each = takers.iter().filter(|taker| taker.each).count();
            let count = takers.len();
            if ["in", "out"].contains(&name) {
                self.problem(element, format!("a place called `{name}`, which is the way {name}"));
            } else if count == 0
                && (tokens > 0 || self.transitions.iter().any(|one| one.to.contains(&at)))
            {
                self.problem(element, format!("`{name}`, whose tokens stay"));
            } else if timed > 0 && timed < count {
                self.problem(
                    element,
                    format!("`{name}`, which some tokens leave at once and others not"),
                );
            } else if timed > 0 && each > 0 && each < count {
                self.problem(
                    element,
                    format!("`{name}`, whose transitions serve one token and each token"),
                );
            } else if timed == 0 && capacity > 0 {
                self.problem(element, format!("a limit of `{name}`, which all leave at once"));
            }
        }
        if self.parts() > 1 {
            let what = "several nets side by side".to_owned();
            self.problem(self.places[0].element, what);
        }
    }

    /// How many parts with tokens or arrivals do not hang together.
    fn parts(&self) -> usize {
        let mut part: Vec<usize> = (0..self.places.len()).collect();
        for one in &self.transitions {
            let mut ends = one.from.iter().chain(&one.to);
            let Some(first) = ends.next().map(|place| part[*place]) else { continue };
            for other in ends.map(|place| part[*place]).collect::<Vec<_>>() {
                part.iter_mut().filter(|cell| **cell == other).for_each(|cell| *cell = first);
            }
        }
        let moves = |at: &usize| {
            let arrives = |one: &Transition<'_>| one.from.is_empty() && one.to.contains(at);
            self.places[*at].tokens > 0 || self.transitions.iter().any(arrives)
        };
        (0..part.len()).filter(moves).map(|at| part[at]).collect::<BTreeSet<_>>().len()
    }

    fn station(&self, at: usize, takers: &[usize], tokens: i64) -> Table {
        let place = &self.places[at];
        let rate: f64 = takers.iter().filter_map(|taker| self.transitions[*taker].rate).sum();
        let mut table = Table::from_iter([("name".to_owned(), Value::from(place.name))]);
        table.insert("service_time_s".to_owned(), (1.0 / rate).into());
        if takers.iter().all(|taker| self.transitions[*taker].each) {
            table.insert("type".to_owned(), "delay".into());
        }
        // A transition waits for room, and those beside it go on.
        if (1..tokens).contains(&place.capacity) {
            table.insert("capacity".to_owned(), place.capacity.into());
            table.insert("when_full".to_owned(), "repeat-service".into());
        }
        table
    }

    /// Where tokens go that one of these transitions takes, the faster the more often.
    fn route(&mut self, from: &str, takers: &[usize]) -> Option<Table> {
        let (mut to, mut ways) = (BTreeMap::new(), 0);
        self.follow(takers, 1.0, 0, &mut to, &mut ways);
        if ways > MOST_WAYS {
            let what = "a circle without time, or too many ways".to_owned();
            self.problem(self.transitions[takers[0]].element, what);
            return None;
        }
        let to = to.into_iter().map(|(name, share): (String, f64)| (name, share.into()));
        Some(Table::from_iter([
            ("from".to_owned(), Value::from(from)),
            ("to".to_owned(), Value::Table(to.collect())),
        ]))
    }

    fn follow(
        &self,
        takers: &[usize],
        whole: f64,
        passed: usize,
        to: &mut BTreeMap<String, f64>,
        ways: &mut usize,
    ) {
        let mut takers: Vec<_> = takers.iter().map(|taker| &self.transitions[*taker]).collect();
        // Of those that take no time the first by their priority.
        let first = takers.iter().map(|taker| taker.priority).max();
        takers.retain(|taker| taker.timed || Some(taker.priority) == first);
        let sum: f64 = takers.iter().filter_map(|taker| taker.rate).sum();
        for taker in takers {
            *ways += if passed > MOST_PASSED { MOST_WAYS } else { 1 };
            if *ways > MOST_WAYS {
                return;
            }
            let share = whole * taker.rate.unwrap_or_default() / sum;
            match taker.to.first() {
                Some(place) if !self.is_station(*place) => {
                    self.follow(&self.places[*place].takers, share, passed + 1, to, ways);
                }
                next => {
                    let name = next.map_or("out", |place| self.places[*place].name);
                    *to.entry(name.to_owned()).or_default() += share;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kendall_queueing::Model;
    use kendall_queueing::solver::{Solution, Solver, solve};

    use super::*;

    fn place(name: &str, tokens: u32, capacity: u32) -> String {
        format!(
            "<place id='{name}'><initialMarking><value>Default,{tokens}</value></initialMarking><capacity>\
             <value>{capacity}</value></capacity></place>\n"
        )
    }

    /// A transition from place to place; without time where its rate is a weight.
    fn transition(name: &str, rate: f64, kind: &str, from: &str, to: &str) -> String {
        let arc = |source: &str, target: &str| {
            format!("<arc id='{source} to {target}' source='{source}' target='{target}'/>\n")
        };
        let (timed, each) = (kind != "at once", kind == "each");
        let mut text = format!(
            "<transition id='{name}'><rate><value>{rate}</value></rate><timed><value>{timed}</value>\
             </timed><infiniteServer><value>{each}</value></infiniteServer></transition>\n"
        );
        if !from.is_empty() {
            text += &arc(from, name);
        }
        if !to.is_empty() {
            text += &arc(name, to);
        }
        text
    }

    fn net(parts: &[String]) -> String {
        format!("<?xml version='1.0'?>\n<pnml>\n<net id='n'>\n{}</net></pnml>", parts.concat())
    }

    fn solved(text: &str) -> Solution {
        let read = read(text).unwrap();
        solve(&Model::read(&read.table).unwrap(), Solver::Auto).unwrap()
    }

    #[track_caller]
    fn near(have: f64, want: f64) {
        assert!((have - want).abs() < 1e-9 * want, "{have} for {want}");
    }

    /// Three tokens think for 2 s each and are served at 1/s by one server: X(3) by mean value analysis.
    #[test]
    fn a_circle_of_two_places_is_a_closed_network() {
        let text = net(&[
            place("thinking", 3, 0),
            place("served", 0, 0),
            transition("call", 0.5, "each", "thinking", "served"),
            transition("serve", 1.0, "one", "served", "thinking"),
        ]);
        let found = solved(&text);
        // R(1) = 1, Q(1) = 1/3; R(2) = 4/3, Q(2) = 4/5; R(3) = 9/5.
        near(found.classes[0].throughput, 3.0 / (2.0 + 1.8));
        assert_eq!(found.stations[0].name, "thinking");
        assert_eq!(read(&text).unwrap().lines.find("stations[1]"), Some(5));
    }

    /// Races of transitions are routes, what takes no time is none, and a full place stops what leads there.
    #[test]
    fn races_weights_and_limits_are_routes_and_blocking() {
        let text = net(&[
            place("a", 0, 0),
            place("choice", 0, 0),
            place("b", 0, 0),
            transition("arrive", 0.5, "one", "", "a"),
            transition("give up", 1.0, "one", "a", ""),
            transition("go on", 3.0, "one", "a", "choice"),
            transition("rarely", 1.0, "at once", "choice", "b"),
            transition("often", 3.0, "at once", "choice", ""),
            transition("end", 2.0, "one", "b", ""),
        ]);
        let found = solved(&text);
        let visits = 0.75 * 0.25;
        near(found.classes[0].system_response, 1.0 / (4.0 - 0.5) + visits / (2.0 - 0.5 * visits));
        let limited = net(&[
            place("a", 3, 0),
            place("b", 0, 2),
            transition("ahead", 2.0, "one", "a", "b"),
            transition("back", 1.3, "one", "b", "a"),
        ]);
        // With n at b: rates 2 up to two of them, and 1.3 back.
        let weights = [1.0, 2.0 / 1.3, (2.0_f64 / 1.3).powi(2)];
        let sum: f64 = weights.iter().sum();
        near(solved(&limited).stations[1].throughput[0], 1.3 * (1.0 - weights[0] / sum));
    }

    #[test]
    fn what_is_no_network_is_refused_with_its_line() {
        let good = net(&[
            place("a", 2, 0),
            place("b", 0, 0),
            transition("t", 1.0, "one", "a", "b"),
            transition("u", 2.0, "one", "b", "a"),
        ]);
        assert!(read(&good).is_ok());
        let two_colors = read(&good.replace("Default,2", "Default,2,Red,0")).unwrap();
        assert_eq!(two_colors.table, read(&good).unwrap().table);
        let more = "<toolspecific/><place id='idle'/></net>";
        let notes = read(&good.replace("</net>", more)).unwrap().notes.join("\n");
        assert!(notes.contains("<toolspecific> in <net> `n` is left out"), "{notes}");
        assert!(notes.contains("`idle` is left out"), "{notes}");
        let timeless = good.replace("<rate><value>1</value></rate>", "");
        let several = good.replace(
            "source='u' target='a'/>",
            "source='u' target='a'/><arc source='u' target='b'/>",
        );
        let inscribed = "target='b'><inscription><value>2</value></inscription></arc>";
        for (text, says) in [
            (timeless, "no <rate> of `t`, which PNML itself has not (line 6, column 1)"),
            (
                several,
                "`u`, which takes or gives tokens of several places at once (line 9, column 1)",
            ),
            (
                good.replacen("target='b'/>", inscribed, 1),
                "several tokens at once from `t` to `b` (line 8, column 1)",
            ),
            (
                good.replace("target='a'/>", "target='a'><type value='inhibitor'/></arc>"),
                "an inhibitor",
            ),
            (
                good.replace("<arc id='u to a' source='u' target='a'/>", ""),
                "`u`, which takes tokens for good",
            ),
            (good.replace("<timed><value>true", "<timed><value>false"), "station"),
            (
                good.replace("target='b'/>", "target='c'/>"),
                "line 8, column 1: <arc>: `t` to `c` joins no place",
            ),
            (
                good.replace("Default,2", "two"),
                "line 4, column 1: <place>, <initialMarking>: `two`",
            ),
            (good.replace("Default,2", "Default,2,Red,1"), "a second color: `Red,1`"),
            (good.replace("id='b'", "id='a'"), "<place>: a second `a`"),
            (good.replace("</net>", "</net><net id='m'/>"), "<net>: a second net"),
            (good.replace("<place id='b'>", "<referencePlace/><place id='b'>"), "of another page"),
            (good.replace("<net id='n'>", "<net>").replace("<pnml>", "<x>"), "expected"),
        ] {
            let error = read(&text).map(|read| read.table);
            let error = error.map(|table| Model::read(&table).err().map(|e| e.to_string()));
            let error = match error {
                Ok(refused) => refused.expect("a model that is refused"),
                Err(error) => error.to_string(),
            };
            assert!(error.contains(says), "{says}: {error}");
        }
        for at in 0..good.len() {
            drop(read(&good[..at]));
            for other in ["<", "'", "9", "-", ""] {
                let changed = format!("{}{other}{}", &good[..at], &good[at + 1..]);
                if let Ok(found) = read(&changed) {
                    drop(Model::read(&found.table).map(|model| solve(&model, Solver::Auto)));
                }
            }
        }
    }
}
