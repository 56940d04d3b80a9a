//! Models of JMT's simulator (`.jsimg`, `.jsim`), as JMT and LINE write them: read as model files.
//!
//! Routers, loggers and class switches are no stations here: the ways through them become ways between
//! stations. What a model file has no place for is refused in one list.

mod times;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use roxmltree::Node;
use toml::{Table, Value};

use crate::jmva::{
    Jmva, JmvaError, child, document, left_out, lines, list, listed, named, number, wrong,
};
use crate::vocabulary::{Row, elements, tag, unknown};
use times::Parameters;

/// What JSIM writes, and this reader looks at or lists as left out.
const KNOWN: &[Row] = &[
    ("sim", &["*"], &["userClass", "node", "measure", "connection", "blockingRegion", "preload"]),
    (
        "userClass",
        &["name", "type", "priority", "customers", "referenceSource", "softDeadline"],
        &[],
    ),
    ("node", &["name"], &["section", "classSoftDeadlines"]),
    ("connection", &["source", "target"], &[]),
    (
        "blockingRegion",
        &["name", "type"],
        &[
            "regionNode",
            "globalConstraint",
            "globalMemoryConstraint",
            "classConstraint",
            "classMemoryConstraint",
            "dropRules",
            "classWeight",
            "classSize",
            "classSoftDeadline",
        ],
    ),
];
/// Parameters of sections, likewise.
const PARAMETERS: &[&str] = &[
    "size",
    "dropStrategies",
    "retrialDistributions",
    "FCFSstrategy",
    "QueuePutStrategy",
    "NetStrategy",
    "Impatience",
    "maxJobs",
    "numberOfVisits",
    "ServiceStrategy",
    "ServerStrategy",
    "serverNames",
    "serversPerServerType",
    "serverCompatibilities",
    "schedulingPolicy",
    "classParallelism",
    "delayOffTime",
    "setUpTime",
    "switchoverStrategy",
    "SwitchoverStrategy",
    "PSStrategy",
    "serviceWeights",
    "maxRunning",
    "RoutingStrategy",
    "matrix",
    "jobsPerLink",
    "block",
    "isSimplifiedFork",
    "ForkStrategy",
    "JoinStrategy",
];
/// Where open classes enter that others turn into.
const NO_SOURCE: [&str; 3] = ["ClassSwitch", "Fork", "Scaler"];

/// Ways through routers that one route may stand for, and routers on one of them.
const MOST_WAYS: usize = 10_000;
const MOST_ROUTERS: u32 = 100;
/// Most jobs that a fork sends along one way.
const MOST_JOBS: usize = 100;

/// What a node of the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Source,
    Sink,
    Queue,
    Delay,
    /// A router, a logger: no time passes.
    Pass,
    ClassSwitch,
    Fork,
    Join,
    Other,
}

struct Part<'a> {
    element: Node<'a, 'a>,
    name: &'a str,
    kind: Kind,
    sections: Vec<Node<'a, 'a>>,
    /// When a customer of each class is due after it came.
    due: Vec<&'a str>,
}

struct Class<'a> {
    name: &'a str,
    /// Where it enters, or where a round begins.
    reference: &'a str,
    /// `None`: open.
    population: Option<i64>,
    priority: i64,
}

/// How a node sends customers on.
enum Routing<'a> {
    Shares(Vec<(&'a str, f64)>),
    /// By a rule with this name in model files, with as many choices.
    Rule(&'static str, Option<i64>, Vec<&'a str>),
    Nowhere,
}

/// Where to, as which class, how likely.
type Step = (usize, usize, f64);

struct File<'a> {
    parts: Vec<Part<'a>>,
    places: BTreeMap<&'a str, usize>,
    classes: Vec<Class<'a>>,
    links: BTreeMap<&'a str, Vec<&'a str>>,
    /// The fork that each join is of.
    joins: BTreeMap<usize, usize>,
    /// Where the branches of each fork begin.
    branches: BTreeMap<usize, Vec<&'a str>>,
    /// Routers passed for one route.
    passed: usize,
    /// What has no place in a model file, behind where its element begins, as far as it has one.
    problems: BTreeSet<(usize, String)>,
    notes: BTreeSet<String>,
}

/// Reads a document.
///
/// # Errors
/// [`JmvaError`] for what is not XML, lacks what a model needs, or says what a model file cannot; the
/// numbers themselves are checked where the model file is read.
pub(crate) fn read(text: &str) -> Result<Jmva, JmvaError> {
    let document = document(text)?;
    let root = document.root_element();
    let sim = if root.has_tag_name("sim") { Some(root) } else { child(root, "sim") };
    let sim = sim.ok_or_else(|| {
        wrong(tag(root), "expected <archive> with <sim>, as JSIM writes it").within(root)
    })?;
    let mut file = File::new(sim)?;
    let missing = file.missing(sim);
    if let Some((first, _)) = missing.first() {
        let first = *first;
        return Err(wrong("<sim>", listed(text, missing)).at(text, first));
    }
    for left_out in ["results", "solutions"] {
        if child(root, left_out).is_some() {
            file.notes.insert(format!("<{left_out}> is left out"));
        }
    }
    let table = file.table(sim)?;
    if !file.problems.is_empty() {
        let problems = listed(text, file.problems);
        let what = format!("a model file has no place for {problems}");
        return Err(wrong("<sim>", what));
    }
    let known = elements(sim).filter_map(|one| match one.tag_name().name() {
        "userClass" => Some(("classes", one)),
        "node" => Some(("stations", one)),
        "blockingRegion" => Some(("pools", one)),
        _ => None,
    });
    let lines = lines(text, &table, known);
    let unknown = unknown(sim, KNOWN).into_iter().chain(file.unknown_parameters());
    let more = left_out(text, unknown.collect());
    Ok(Jmva { table, notes: file.notes.into_iter().chain(more).collect(), lines })
}

fn parameter<'a>(section: Node<'a, 'a>, name: &str) -> Option<Node<'a, 'a>> {
    elements(section).find(|one| one.attribute("name") == Some(name))
}

/// The last word of the class that a parameter is.
fn class_path<'a>(of: Node<'a, 'a>) -> &'a str {
    of.attribute("classPath").and_then(|path| path.rsplit('.').next()).unwrap_or_default()
}

/// The text of `<value>`; none where it says `null`.
fn value<'a>(of: Node<'a, 'a>) -> Option<&'a str> {
    child(of, "value")?.text().map(str::trim).filter(|text| *text != "null")
}

/// What a parameter says of each class.
fn by_class<'a>(parameter: Option<Node<'a, 'a>>) -> BTreeMap<&'a str, Node<'a, 'a>> {
    let mut all = BTreeMap::new();
    let mut class = None;
    for one in parameter.into_iter().flat_map(elements) {
        if one.has_tag_name("refClass") {
            class = one.text().map(str::trim);
        } else if let Some(class) = class.take() {
            all.insert(class, one);
        }
    }
    all
}

fn whole(place: &str, text: &str) -> Result<i64, JmvaError> {
    text.trim().parse().map_err(|_| wrong(place, format!("`{text}` is not a whole number")))
}

impl<'a> File<'a> {
    fn new(sim: Node<'a, 'a>) -> Result<Self, JmvaError> {
        let (mut parts, mut classes) = (Vec::new(), Vec::new());
        let mut links: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for element in elements(sim) {
            match element.tag_name().name() {
                "userClass" => classes.push(class(element).map_err(|e| e.within(element))?),
                "node" => parts.push(part(element)?),
                "connection" => {
                    let end = |name: &str| {
                        let what = || wrong("<connection>", format!("has no attribute `{name}`"));
                        element.attribute(name).ok_or_else(|| what().within(element))
                    };
                    links.entry(end("source")?).or_default().push(end("target")?);
                }
                _ => {}
            }
        }
        let places = parts.iter().enumerate().map(|(at, part)| (part.name, at)).collect();
        let mut file = Self {
            parts,
            places,
            classes,
            links,
            joins: BTreeMap::new(),
            branches: BTreeMap::new(),
            passed: 0,
            problems: BTreeSet::new(),
            notes: BTreeSet::new(),
        };
        file.find_joins();
        Ok(file)
    }

    /// Names of nodes and classes that are none, or two.
    fn missing(&self, sim: Node<'a, 'a>) -> BTreeSet<(usize, String)> {
        let mut found = BTreeSet::new();
        let mut names = BTreeSet::new();
        for one in
            elements(sim).filter(|one| ["userClass", "node"].contains(&one.tag_name().name()))
        {
            let name = one.attribute("name").unwrap_or_default();
            if !names.insert((one.tag_name().name(), name)) {
                found.insert((one.range().start, format!("two {} called `{name}`", tag(one))));
            }
        }
        let is_node = |name: &str| self.places.contains_key(name);
        let is_class = |name: &str| names.contains(&("userClass", name));
        let mut need = |of: Node<'_, '_>, is: bool, key: &str, name: &str, what: &str| {
            if !is {
                let what = format!("{key} `{name}` is no {what} of this file");
                found.insert((of.range().start, what));
            }
        };
        for one in sim.descendants().filter(Node::is_element) {
            match one.tag_name().name() {
                "userClass" => {
                    let (key, name) = ("referenceSource", one.attribute("referenceSource"));
                    let name = name.unwrap_or_default();
                    let kind = self.places.get(name).map(|at| self.parts[*at].kind);
                    let of = one.attribute("name").unwrap_or_default();
                    let key = format!("{key} of class `{of}`:");
                    if one.attribute("type") == Some("closed") {
                        let is = matches!(kind, Some(Kind::Queue | Kind::Delay));
                        need(one, is, &key, name, "queue or delay");
                    } else {
                        let is = kind == Some(Kind::Source) || NO_SOURCE.contains(&name);
                        need(one, is, &key, name, "source");
                    }
                }
                "connection" => {
                    for key in ["source", "target"] {
                        let name = one.attribute(key).unwrap_or_default();
                        need(one, is_node(name), &format!("connection, {key}:"), name, "node");
                    }
                }
                "refClass" => {
                    let name = one.text().unwrap_or_default().trim();
                    need(one, is_class(name), "refClass", name, "class");
                }
                "regionNode" => {
                    let name = one.attribute("nodeName").unwrap_or_default();
                    need(one, is_node(name), "nodeName", name, "node");
                }
                "subParameter" if one.attribute("name") == Some("stationName") => {
                    let name = value(one).unwrap_or_default();
                    need(one, is_node(name), "stationName", name, "node");
                }
                _ => {}
            }
            if one.parent().is_some_and(|parent| parent.has_tag_name("blockingRegion"))
                && let Some(name) = one.attribute("jobClass")
            {
                need(one, is_class(name), "jobClass", name, "class");
            }
        }
        found
    }

    fn unknown_parameters(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for part in &self.parts {
            let all = part.sections.iter().flat_map(|section| elements(*section));
            for one in all {
                let name = one.attribute("name").unwrap_or_default();
                // Loggers write files.
                if !(PARAMETERS.contains(&name) || name.starts_with("log") || name == "numClasses")
                {
                    let what = format!("parameter `{name}` of `{}`", part.name);
                    found.push((one.range().start, what));
                }
            }
        }
        found
    }

    fn problem(&mut self, part: usize, what: String) {
        self.problem_of(self.parts[part].element, what);
    }

    fn problem_of(&mut self, element: Node<'_, '_>, what: String) {
        self.problems.insert((element.range().start, what));
    }

    /// The first join behind a fork that is not that of a fork in between.
    fn find_joins(&mut self) {
        let forks = (0..self.parts.len()).filter(|at| self.parts[*at].kind == Kind::Fork);
        let mut looked = 0;
        for fork in forks.collect::<Vec<_>>() {
            let (mut seen, mut left) = (BTreeSet::new(), vec![(fork, 0)]);
            let mut own = BTreeSet::new();
            while let Some((at, depth)) = left.pop() {
                looked += 1;
                if looked > 100 * MOST_WAYS {
                    self.problems.insert((0, "too many ways behind forks".to_owned()));
                    return;
                }
                if depth > MOST_ROUTERS || !seen.insert((at, depth)) {
                    continue;
                }
                let links = self.links.get(self.parts[at].name).into_iter().flatten();
                for next in links.filter_map(|to| self.places.get(to).copied()) {
                    match (self.parts[next].kind, depth) {
                        (Kind::Join, 0) => {
                            own.insert(next);
                        }
                        (Kind::Join, _) => left.push((next, depth - 1)),
                        (Kind::Fork, _) => left.push((next, depth + 1)),
                        _ => left.push((next, depth)),
                    }
                }
            }
            let taken = own.iter().any(|join| self.joins.contains_key(join));
            if own.len() != 1 || taken {
                let name = self.parts[fork].name;
                self.problem(
                    fork,
                    format!("fork `{name}` without a join of its own, or with several"),
                );
            }
            self.joins.extend(own.into_iter().map(|join| (join, fork)));
        }
    }

    /// Where the branches of a fork begin; returns who comes there.
    fn fork(&mut self, at: usize, class: usize) -> Result<Vec<(usize, usize)>, JmvaError> {
        let name = self.parts[at].name;
        let said = |key: &str| self.in_sections(at, key).and_then(value);
        let limited = said("block").is_some_and(|most| !["-1", "0"].contains(&most));
        let place = format!("<node> `{name}`, jobsPerLink");
        let each = whole(&place, said("jobsPerLink").unwrap_or("1"))?;
        let each = usize::try_from(each).ok().filter(|each| (1..=MOST_JOBS).contains(each));
        let each = each.ok_or_else(|| wrong(place, format!("expected 1 to {MOST_JOBS}")))?;
        let by_strategy = said("isSimplifiedFork") == Some("false");
        if limited {
            self.problem(at, format!("a limit of jobs at fork `{name}`"));
        }
        if by_strategy {
            self.problem(at, format!("a fork strategy at `{name}`"));
        }
        let (mut firsts, mut names) = (Vec::new(), Vec::new());
        for to in self.links.get(name).cloned().unwrap_or_default() {
            let mut steps = Vec::new();
            self.passed = 0;
            self.expand(&[(to, 1.0)], class, 1.0, 0, &mut steps)?;
            match steps[..] {
                [(first, same, _)]
                    if same == class && first != at && self.parts[first].kind != Kind::Sink =>
                {
                    firsts.push((first, class));
                    names.extend(std::iter::repeat_n(self.parts[first].name, each));
                }
                _ => {
                    let what = format!(
                        "a branch of fork `{name}` that begins at no station, or at one of several"
                    );
                    self.problem(at, what);
                }
            }
        }
        self.branches.insert(at, names);
        Ok(firsts)
    }

    /// How many branches a join waits for; `None`: all.
    fn needed(&mut self, join: usize, comes: &[usize]) -> Result<Option<i64>, JmvaError> {
        let name = self.parts[join].name;
        let strategies = by_class(self.in_sections(join, "JoinStrategy"));
        let mut all = BTreeSet::new();
        for class in comes {
            let strategy = strategies.get(self.classes[*class].name);
            let required = strategy.and_then(|one| parameter(*one, "numRequired")).and_then(value);
            all.insert(match strategy.map_or("NormalJoin", |one| class_path(*one)) {
                "NormalJoin" => None,
                "PartialJoin" => {
                    required.map(|n| whole(&format!("<node> `{name}`"), n)).transpose()?
                }
                other => {
                    self.problem(join, format!("{other} at `{name}`"));
                    None
                }
            });
        }
        if all.len() > 1 {
            self.problem(join, format!("join `{name}`, which waits for other numbers by class"));
        }
        Ok(all.pop_first().flatten())
    }

    fn table(&mut self, sim: Node<'a, 'a>) -> Result<Table, JmvaError> {
        let mut routes = Vec::new();
        let mut reached: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut front: VecDeque<(usize, usize)> = VecDeque::new();
        let mut classes = Vec::new();
        for index in 0..self.classes.len() {
            classes.push(self.class_table(index, &mut routes, &mut front)?);
        }
        while let Some((at, class)) = front.pop_front() {
            if reached.insert((at, class)) {
                let from = self.parts[at].name.to_owned();
                let mut behind = at;
                if self.parts[at].kind == Kind::Fork {
                    let firsts = self.fork(at, class);
                    front.extend(firsts.map_err(|error| error.within(self.parts[at].element))?);
                    let mut joins = self.joins.iter();
                    let Some((join, _)) = joins.find(|(_, of)| **of == at) else { continue };
                    behind = *join;
                }
                let route = self.route(behind, &from, class, &mut routes);
                front.extend(route.map_err(|error| error.within(self.parts[behind].element))?);
            }
        }
        // A class without customers has no place in a model.
        let mut names = self.classes.iter().map(|class| class.name);
        classes.retain(|_| {
            let name = names.next().unwrap_or_default();
            let goes = |route: &Table| route.get("class").and_then(Value::as_str) == Some(name);
            let some = routes.iter().any(goes);
            if !some {
                self.notes.insert(format!("class `{name}` is left out: it has no customers"));
            }
            some
        });
        let mut stations = Vec::new();
        for at in 0..self.parts.len() {
            let comes: Vec<usize> =
                (0..self.classes.len()).filter(|class| reached.contains(&(at, *class))).collect();
            if !comes.is_empty() {
                let station = self.station(at, &comes);
                stations.push(station.map_err(|error| error.within(self.parts[at].element))?);
            } else if matches!(self.parts[at].kind, Kind::Queue | Kind::Delay | Kind::Fork) {
                let name = self.parts[at].name;
                self.notes.insert(format!("`{name}` is left out: no customer comes there"));
            }
        }
        let mut table = Table::new();
        table.insert("classes".to_owned(), list(classes));
        // One station in and out has its formulas, which a network has not.
        let plain = |route: &Table| {
            let to = route.get("to").and_then(Value::as_table);
            let from = route.get("from").and_then(Value::as_str);
            let end = if from == Some("in") { stations[0].get("name") } else { None };
            let end = end.and_then(Value::as_str).unwrap_or("out");
            to.is_some_and(|to| to.len() == 1 && to.contains_key(end))
        };
        if stations.len() != 1 || !routes.iter().all(plain) {
            table.insert("routes".to_owned(), list(routes));
        }
        table.insert("stations".to_owned(), list(stations));
        let pools = self.pools(sim, &reached)?;
        if !pools.is_empty() {
            table.insert("pools".to_owned(), list(pools));
        }
        if let Some(simulation) = self.simulation(sim)? {
            table.insert("simulation".to_owned(), simulation.into());
        }
        if child(sim, "preload").is_some() {
            self.notes.insert("<preload> is left out: a simulation warms up by itself".to_owned());
        }
        Ok(table)
    }

    /// A class, with its way in.
    fn class_table(
        &mut self,
        index: usize,
        routes: &mut Vec<Table>,
        front: &mut VecDeque<(usize, usize)>,
    ) -> Result<Table, JmvaError> {
        let Class { name, reference, population, priority } = self.classes[index];
        let mut table = Table::new();
        table.insert("name".to_owned(), name.into());
        // The greatest is served first there, the least here.
        let most = self.classes.iter().map(|class| class.priority).max().unwrap_or(0);
        if most > priority {
            table.insert(
                "priority".to_owned(),
                most.saturating_sub(priority).saturating_add(1).into(),
            );
        }
        let at = self.places.get(reference).copied();
        if let Some(population) = population {
            table.insert("population".to_owned(), population.into());
            front.extend(at.filter(|_| population > 0).map(|at| (at, index)));
            return Ok(table);
        }
        let source = at.filter(|at| self.parts[*at].kind == Kind::Source);
        let gaps =
            source.and_then(|at| by_class(self.in_sections(at, "ServiceStrategy")).remove(name));
        let place = format!("<node> `{reference}`, class `{name}`");
        match (source, gaps.map(|gaps| self.distribution(&place, gaps)).transpose()?.flatten()) {
            (Some(source), Some(mut gaps)) => {
                match gaps.remove("rate_per_s") {
                    Some(rate) => table.insert("arrival_rate_per_s".to_owned(), rate),
                    None => table.insert("interarrival_time".to_owned(), gaps.into()),
                };
                let route = self.route(source, "in", index, routes);
                front.extend(route.map_err(|error| error.within(self.parts[source].element))?);
            }
            // A class that others turn into.
            _ => {
                table.insert("arrival_rate_per_s".to_owned(), 0.0.into());
            }
        }
        Ok(table)
    }

    fn in_sections(&self, at: usize, name: &str) -> Option<Node<'a, 'a>> {
        self.parts[at].sections.iter().find_map(|section| parameter(*section, name))
    }

    /// Adds the route of a class behind a node; returns where it leads.
    fn route(
        &mut self,
        at: usize,
        from: &str,
        class: usize,
        routes: &mut Vec<Table>,
    ) -> Result<Vec<(usize, usize)>, JmvaError> {
        let (mut to, mut last) = (Table::new(), at);
        let mut ends = Vec::new();
        let mut routing = self.routing(at, class)?;
        // A rule of a router that is the only way counts for all that lead there.
        for _ in 0..MOST_ROUTERS {
            let only = match &routing {
                Routing::Shares(shares) if shares.len() == 1 => {
                    self.places.get(shares[0].0).copied()
                }
                _ => None,
            };
            let Some(next) = only.filter(|next| self.parts[*next].kind == Kind::Pass) else {
                break;
            };
            last = next;
            routing = self.routing(next, class)?;
        }
        let mut table = Table::new();
        table.insert("class".to_owned(), self.classes[class].name.into());
        table.insert("from".to_owned(), from.into());
        self.passed = 0;
        let mut steps = Vec::new();
        match routing {
            Routing::Nowhere => {
                let (part, class) = (self.parts[last].name, self.classes[class].name);
                self.problem(last, format!("no way on for `{class}` behind `{part}`"));
                return Ok(ends);
            }
            Routing::Shares(shares) => self.expand(&shares, class, 1.0, 0, &mut steps)?,
            Routing::Rule(rule, choices, targets) => {
                table.insert("choose".to_owned(), rule.into());
                if let Some(choices) = choices {
                    table.insert("choices".to_owned(), choices.into());
                }
                let each = 1.0 / kendall_units::exact_f64(targets.len());
                let shares: Vec<(&str, f64)> = targets.iter().map(|to| (*to, each)).collect();
                self.expand(&shares, class, 1.0, 0, &mut steps)?;
            }
        }
        for (next, next_class, share) in steps {
            let Part { name, kind, .. } = &self.parts[next];
            let mut key = if *kind == Kind::Sink { "out" } else { name }.to_owned();
            if next_class != class {
                key = format!("{key}:{}", self.classes[next_class].name);
            }
            let before = to.get(&key).and_then(Value::as_float).unwrap_or(0.0);
            to.insert(key, (before + share).into());
            if *kind != Kind::Sink {
                ends.push((next, next_class));
            }
        }
        table.insert("to".to_owned(), to.into());
        routes.push(table);
        Ok(ends)
    }

    /// Where shares lead in the end, through routers and class switches.
    fn expand(
        &mut self,
        shares: &[(&'a str, f64)],
        class: usize,
        whole: f64,
        depth: u32,
        steps: &mut Vec<Step>,
    ) -> Result<(), JmvaError> {
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        self.passed += 1;
        if depth > MOST_ROUTERS || self.passed.max(steps.len()) > MOST_WAYS {
            self.problems
                .insert((0, "routers in a circle, or too many ways through them".to_owned()));
            return Ok(());
        }
        for (name, share) in shares.iter().filter(|(_, share)| *share > 0.0) {
            let share = whole * share / sum;
            let at = self.places.get(name).copied();
            let at =
                at.ok_or_else(|| wrong("<sim>", format!("a way leads to `{name}`, no <node>")))?;
            match self.parts[at].kind {
                Kind::Queue | Kind::Delay | Kind::Sink | Kind::Fork => {
                    steps.push((at, class, share));
                }
                Kind::Join => match self.joins.get(&at) {
                    Some(fork) => steps.push((*fork, class, share)),
                    None => {
                        self.problem(at, format!("join `{name}` of no fork"));
                    }
                },
                Kind::Pass => self.through(at, class, share, depth, steps)?,
                Kind::ClassSwitch => {
                    for (next, part) in self.switched(at, class)? {
                        self.through(at, next, share * part, depth, steps)?;
                    }
                }
                Kind::Source => {
                    return Err(wrong("<sim>", format!("a way leads to source `{name}`")));
                }
                Kind::Other => {
                    let what =
                        self.parts[at].sections.iter().filter_map(|s| s.attribute("className"));
                    let what = what.collect::<Vec<_>>().join(", ");
                    self.problem(at, format!("`{name}` ({what})"));
                }
            }
        }
        Ok(())
    }

    fn through(
        &mut self,
        at: usize,
        class: usize,
        share: f64,
        depth: u32,
        steps: &mut Vec<Step>,
    ) -> Result<(), JmvaError> {
        match self.routing(at, class)? {
            Routing::Shares(shares) => self.expand(&shares, class, share, depth + 1, steps),
            Routing::Nowhere => {
                let (part, class) = (self.parts[at].name, self.classes[class].name);
                self.problem(at, format!("no way on for `{class}` behind `{part}`"));
                Ok(())
            }
            Routing::Rule(..) => {
                let part = self.parts[at].name;
                self.problem(at, format!("a choice at router `{part}`, to which others lead too"));
                Ok(())
            }
        }
    }

    /// What a class turns into at a class switch.
    fn switched(&self, at: usize, class: usize) -> Result<Vec<(usize, f64)>, JmvaError> {
        let rows = by_class(self.in_sections(at, "matrix"));
        let place = format!("<node> `{}`, matrix", self.parts[at].name);
        let row = by_class(rows.get(self.classes[class].name).copied());
        let mut shares = Vec::new();
        for (name, cell) in row {
            let to = self.classes.iter().position(|class| class.name == name);
            let to = to.ok_or_else(|| wrong(&place, format!("`{name}` is no class")))?;
            let share = number(&place, value(cell).unwrap_or("0")).map_err(|e| e.within(cell))?;
            if share > 0.0 {
                shares.push((to, share));
            }
        }
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        if shares.is_empty() {
            return Ok(vec![(class, 1.0)]);
        }
        Ok(shares.into_iter().map(|(to, share)| (to, share / sum)).collect())
    }

    fn routing(&mut self, at: usize, class: usize) -> Result<Routing<'a>, JmvaError> {
        let (node, closed) = (self.parts[at].name, self.classes[class].population.is_some());
        let name = self.classes[class].name;
        let place = format!("<node> `{node}`, routing of `{name}`");
        let linked: Vec<&str> = self.links.get(node).cloned().unwrap_or_default();
        let sink =
            |to: &str| self.places.get(to).is_some_and(|at| self.parts[*at].kind == Kind::Sink);
        let targets: Vec<&str> = linked.into_iter().filter(|to| !(closed && sink(to))).collect();
        let strategy = by_class(self.in_sections(at, "RoutingStrategy")).remove(name);
        let rule = |rule, choices| match targets.len() {
            0 => Routing::Nowhere,
            1 => Routing::Shares(vec![(targets[0], 1.0)]),
            _ => Routing::Rule(rule, choices, targets.clone()),
        };
        Ok(match strategy.map(class_path).unwrap_or("RandomStrategy") {
            "RandomStrategy" if targets.is_empty() => Routing::Nowhere,
            "RandomStrategy" => Routing::Shares(targets.iter().map(|to| (*to, 1.0)).collect()),
            "EmpiricalStrategy" => {
                let entries = strategy.into_iter().flat_map(|one| one.descendants());
                let entries = entries.filter(|one| one.attribute("name") == Some("EmpiricalEntry"));
                let mut shares = Vec::new();
                for entry in entries {
                    let of = |name| parameter(entry, name).and_then(value);
                    let to =
                        of("stationName").ok_or_else(|| wrong(&place, "has no stationName"))?;
                    let share = of("probability").unwrap_or("0");
                    let share = number(&place, share).map_err(|error| error.within(entry))?;
                    if share < 0.0 {
                        let what = format!("{share} is not a probability");
                        return Err(wrong(&place, what).within(entry));
                    }
                    if share > 0.0 {
                        shares.push((to, share));
                    }
                }
                if shares.is_empty() { Routing::Nowhere } else { Routing::Shares(shares) }
            }
            "RoundRobinStrategy" => rule("round-robin", None),
            "ShortestQueueLengthRoutingStrategy" => rule("shortest-queue", None),
            "PowerOfKRoutingStrategy" => {
                let k = strategy.and_then(|one| parameter(one, "k")).and_then(value);
                rule("shortest-queue", Some(whole(&place, k.unwrap_or("2"))?))
            }
            "DisabledRoutingStrategy" => Routing::Nowhere,
            other => {
                self.problem(at, format!("routing by {other} at `{node}`"));
                Routing::Shares(targets.iter().map(|to| (*to, 1.0)).collect())
            }
        })
    }

    fn station(&mut self, at: usize, comes: &[usize]) -> Result<Table, JmvaError> {
        let Part { name, kind, .. } = self.parts[at];
        let place = format!("<node> `{name}`");
        if ["in", "out"].contains(&name) {
            self.problem(at, format!("a station called `{name}`, which is the way {name}"));
        }
        let mut table = Table::new();
        table.insert("name".to_owned(), name.into());
        if kind == Kind::Fork {
            let first = self.branches.get(&at).cloned().unwrap_or_default();
            let first = first.into_iter().map(Value::from);
            table.insert("branches".to_owned(), Value::Array(first.collect()));
            let join = self.joins.iter().find(|(_, of)| **of == at).map(|(join, _)| *join);
            let needed = join.map(|join| self.needed(join, comes)).transpose()?.flatten();
            if let Some(needed) = needed {
                table.insert("needed".to_owned(), needed.into());
            }
            return Ok(table);
        }
        // LINE has the second name.
        let named = ["ServiceStrategy", "ServerStrategy"];
        let services = by_class(named.iter().find_map(|name| self.in_sections(at, name)));
        let kinds = self.in_sections(at, "serverNames").map_or(0, |one| elements(one).count());
        let wide = self.in_sections(at, "classParallelism");
        if kinds > 1 || by_class(wide).values().any(|one| value(*one).is_some_and(|n| n != "1")) {
            let what = "several kinds of servers, or several of them for a customer,";
            self.problem(at, format!("{what} at `{name}`"));
            return Ok(table);
        }
        let mut service = Table::new();
        for class in comes {
            let class = self.classes[*class].name;
            let place = format!("{place}, class `{class}`");
            let time =
                services.get(class).map(|one| self.distribution(&place, *one)).transpose()?;
            match time.flatten() {
                Some(time) => {
                    service.insert(class.to_owned(), time.into());
                }
                None => {
                    self.problem(at, format!("`{class}` at `{name}`, where it has no service"));
                }
            }
        }
        table.insert("service".to_owned(), service.into());
        if kind == Kind::Delay {
            table.insert("type".to_owned(), "delay".into());
            return Ok(table);
        }
        if let Some(servers) = self.in_sections(at, "maxJobs").and_then(value) {
            table.insert("servers".to_owned(), whole(&place, servers)?.into());
        }
        self.discipline(at, comes, &mut table)?;
        self.room(at, comes, &mut table)?;
        for left_out in
            ["Impatience", "switchoverStrategy", "SwitchoverStrategy", "delayOffTime", "setUpTime"]
        {
            let said = self.in_sections(at, left_out).is_some_and(|one| {
                one.descendants().any(|inner| {
                    inner.has_tag_name("value")
                        && inner.text().is_some_and(|text| text.trim() != "null")
                })
            });
            if said {
                self.problem(at, format!("{left_out} at `{name}`"));
            }
        }
        Ok(table)
    }

    fn discipline(
        &mut self,
        at: usize,
        comes: &[usize],
        table: &mut Table,
    ) -> Result<(), JmvaError> {
        let name = self.parts[at].name;
        let shared = self.in_sections(at, "PSStrategy");
        let queued = ["QueuePutStrategy", "NetStrategy"];
        let strategies = shared.or_else(|| queued.iter().find_map(|p| self.in_sections(at, p)));
        let strategies = by_class(strategies);
        let own: BTreeSet<&str> = comes
            .iter()
            .map(|class| strategies.get(self.classes[*class].name).copied())
            .map(|one| one.map_or("TailStrategy", class_path))
            .collect();
        let get = self.parts[at].sections.iter().flat_map(|section| elements(*section));
        let mut get = get.filter_map(|one| one.attribute("classPath"));
        if let Some(polling) = get.find(|path| path.contains("Polling")) {
            let polling = polling.rsplit('.').next().unwrap_or_default();
            let at = self.parts[at].element.range().start;
            self.problems.insert((at, format!("{polling} at `{name}`")));
        }
        let word = match own.iter().copied().collect::<Vec<_>>()[..] {
            ["TailStrategy"] => "fcfs",
            ["HeadStrategy"] => "lcfs",
            ["RandStrategy"] => "siro",
            ["SJFStrategy"] => "sjf",
            ["SRPTStrategy"] => "srpt",
            ["LCFSPRStrategy"] => "lcfs-pr",
            ["TailStrategyPriority"] => "priority-non-preemptive",
            ["FCFSPRStrategyPriority"] => "priority-preemptive",
            ["EPSStrategy"] => "ps",
            ["DPSStrategy"] => "dps",
            ["EDDStrategy"] => "edf",
            ["EDFStrategy"] => "edf-preemptive",
            _ => {
                let own = own.into_iter().collect::<Vec<_>>().join(" with ");
                self.problem(at, format!("{own} at `{name}`"));
                return Ok(());
            }
        };
        table.insert("discipline".to_owned(), word.into());
        if word == "dps" {
            let weights = by_class(self.in_sections(at, "serviceWeights"));
            let mut weight = Table::new();
            for class in comes {
                let class = self.classes[*class].name;
                let text = weights.get(class).and_then(|one| value(*one)).unwrap_or("1");
                weight.insert(class.to_owned(), number(&format!("<node> `{name}`"), text)?.into());
            }
            table.insert("weight".to_owned(), weight.into());
        }
        if word.starts_with("edf") {
            let mut deadline = Table::new();
            for class in comes {
                let Some(text) = self.parts[at].due.get(*class) else {
                    self.problem(at, format!("an order by deadlines without one at `{name}`"));
                    return Ok(());
                };
                let time = number(&format!("<node> `{name}`"), text)?;
                deadline.insert(self.classes[*class].name.to_owned(), time.into());
            }
            table.insert("deadline_s".to_owned(), deadline.into());
        }
        Ok(())
    }

    /// A limit of the station, those in service included.
    fn room(&mut self, at: usize, comes: &[usize], table: &mut Table) -> Result<(), JmvaError> {
        let name = self.parts[at].name;
        let place = format!("<node> `{name}`, size");
        let size = self.in_sections(at, "size").and_then(value).unwrap_or("-1");
        let size = whole(&place, size)?;
        let open = comes.iter().any(|class| self.classes[*class].population.is_none());
        let all = self.classes.iter().filter_map(|class| class.population);
        let all = all.fold(0_i64, i64::saturating_add);
        if size < 0 || (!open && size >= all) {
            return Ok(());
        }
        let rules = by_class(self.in_sections(at, "dropStrategies"));
        let rule = |class: &usize| rules.get(self.classes[*class].name).and_then(|one| value(*one));
        let own: BTreeSet<&str> = comes.iter().map(|class| rule(class).unwrap_or("drop")).collect();
        let closed = comes.iter().any(|class| self.classes[*class].population.is_some());
        match own.iter().copied().collect::<Vec<_>>()[..] {
            ["drop"] if closed => {
                self.problem(at, format!("customers of a closed class dropped at `{name}`"));
            }
            ["drop"] => {}
            ["BAS blocking"] => {
                table.insert("when_full".to_owned(), "block-after-service".into());
            }
            _ => {
                let own = own.into_iter().collect::<Vec<_>>().join(" with ");
                self.problem(at, format!("{own} where `{name}` is full: drop, or BAS blocking"));
            }
        }
        table.insert("capacity".to_owned(), size.into());
        Ok(())
    }

    /// Regions of finite capacity hold tokens.
    fn pools(
        &mut self,
        sim: Node<'a, 'a>,
        reached: &BTreeSet<(usize, usize)>,
    ) -> Result<Vec<Table>, JmvaError> {
        let mut pools = Vec::new();
        for region in elements(sim).filter(|one| one.has_tag_name("blockingRegion")) {
            let place = tag(region);
            let name = named(region, &place)?;
            let place = format!("{place} `{name}`");
            let inside = elements(region).filter(|one| one.has_tag_name("regionNode"));
            let stations: Vec<&str> = inside.filter_map(|one| one.attribute("nodeName")).collect();
            let comes = |class: usize| {
                let at = |station: &&str| self.places.get(station).map(|at| (*at, class));
                stations.iter().filter_map(at).any(|pair| reached.contains(&pair))
            };
            let classes: Vec<&str> = (0..self.classes.len())
                .filter(|class| comes(*class))
                .map(|class| self.classes[class].name)
                .collect();
            let mut limits: Vec<(String, &str, Vec<&str>)> = Vec::new();
            let mut dropped = BTreeSet::new();
            for one in elements(region) {
                let most = ["maxJobs", "maxJobsPerClass", "maxMemory", "maxMemoryPerClass"];
                let most = most.iter().find_map(|key| one.attribute(*key));
                let class = one.attribute("jobClass").unwrap_or_default();
                match one.tag_name().name() {
                    "dropRules" if one.attribute("dropThisClass") == Some("true") => {
                        dropped.insert(class);
                    }
                    "globalConstraint" => {
                        limits.push((name.to_owned(), most.unwrap_or("-1"), classes.clone()));
                    }
                    "classConstraint" if classes.contains(&class) => {
                        limits.push((
                            format!("{name}, {class}"),
                            most.unwrap_or("-1"),
                            vec![class],
                        ));
                    }
                    "globalMemoryConstraint" | "classMemoryConstraint"
                        if most.is_some_and(|most| !matches!(most.trim(), "-1" | "0")) =>
                    {
                        self.problem_of(region, format!("a limit of memory of region `{name}`"));
                    }
                    _ => {}
                }
            }
            for (name, most, own) in limits {
                let most = whole(&place, most).map_err(|error| error.within(region))?;
                if most < 0 || own.is_empty() {
                    continue;
                }
                let mut pool = Table::new();
                pool.insert("name".to_owned(), name.clone().into());
                pool.insert("tokens".to_owned(), most.into());
                let texts = |list: &[&str]| list.iter().map(|text| Value::from(*text)).collect();
                pool.insert("stations".to_owned(), Value::Array(texts(&stations)));
                pool.insert("classes".to_owned(), Value::Array(texts(&own)));
                match own.iter().filter(|class| dropped.contains(*class)).count() {
                    0 => {}
                    some if some == own.len() => {
                        pool.insert("queue_capacity".to_owned(), 0.into());
                    }
                    _ => {
                        let some = format!("region `{name}`, which drops some classes only");
                        self.problem_of(region, some);
                    }
                }
                pools.push(pool);
            }
        }
        Ok(pools)
    }

    fn simulation(&mut self, sim: Node<'a, 'a>) -> Result<Option<Table>, JmvaError> {
        let mut table = Table::new();
        let seed = sim.attribute("seed").and_then(|seed| seed.trim().parse::<i64>().ok());
        if let Some(seed) = seed.filter(|seed| *seed >= 0) {
            table.insert("seed".to_owned(), seed.into());
        }
        if let Some(measure) = child(sim, "measure") {
            let of = |key: &str| {
                let read = |text| number("<measure>", text).map_err(|e| e.within(measure));
                measure.attribute(key).map(read).transpose()
            };
            if let Some(alpha) = of("alpha")? {
                table.insert("confidence".to_owned(), (1.0 - alpha).into());
            }
            if let Some(precision) = of("precision")? {
                table.insert("relative_half_width".to_owned(), precision.into());
            }
        }
        Ok((!table.is_empty()).then_some(table))
    }

    /// A time as a model file has it; none where the class is disabled.
    fn distribution(
        &mut self,
        place: &str,
        strategy: Node<'a, 'a>,
    ) -> Result<Option<Table>, JmvaError> {
        let mut table = Table::new();
        match class_path(strategy) {
            "DisabledServiceTimeStrategy" => return Ok(None),
            "ZeroServiceTimeStrategy" => {
                table.insert("distribution".to_owned(), "deterministic".into());
                table.insert("mean_s".to_owned(), 0.0.into());
                return Ok(Some(table));
            }
            "ServiceTimeStrategy" => {}
            other => {
                self.problems.insert((strategy.range().start, format!("{other} at {place}")));
                return Ok(Some(table));
            }
        }
        let Some(shape) = elements(strategy).find(|one| one.has_tag_name("subParameter")) else {
            return Ok(None);
        };
        let all = elements(strategy).find(|one| one.attribute("name") == Some("distrPar"));
        let name = class_path(shape);
        let shape = (Parameters { place, all }).shape(name);
        let Some((name, values)) = shape.map_err(|error| error.within(strategy))? else {
            let instead = if name == "Replayer" { " (its values: `trace`)" } else { "" };
            self.problems.insert((strategy.range().start, format!("{name}{instead} at {place}")));
            return Ok(Some(table));
        };
        table.insert("distribution".to_owned(), name.into());
        table.extend(values.into_iter().map(|(key, value)| (key.to_owned(), value)));
        Ok(Some(table))
    }
}

fn class<'a>(element: Node<'a, 'a>) -> Result<Class<'a>, JmvaError> {
    let name = named(element, "<userClass>")?;
    let place = format!("<userClass> `{name}`");
    let of = |key: &str| element.attribute(key);
    let population = match of("type") {
        Some("closed") => {
            let text = of("customers").ok_or_else(|| wrong(&place, "has no `customers`"))?;
            Some(whole(&place, text)?)
        }
        Some("open") => None,
        other => {
            let what = format!("type `{}`: expected `open` or `closed`", other.unwrap_or_default());
            return Err(wrong(place, what));
        }
    };
    Ok(Class {
        name,
        reference: of("referenceSource").unwrap_or_default(),
        population,
        priority: of("priority").map_or(Ok(0), |text| whole(&place, text))?,
    })
}

fn part<'a>(element: Node<'a, 'a>) -> Result<Part<'a>, JmvaError> {
    let name = named(element, "<node>")?;
    let sections: Vec<Node<'a, 'a>> = elements(element).collect();
    let of: Vec<&str> = sections.iter().filter_map(|one| one.attribute("className")).collect();
    let kind = match of[..] {
        ["RandomSource", ..] => Kind::Source,
        ["JobSink"] => Kind::Sink,
        ["Queue", "Server" | "PSServer" | "PreemptiveServer", "Router"] => Kind::Queue,
        ["Queue", "Delay", "Router"] => Kind::Delay,
        ["Queue", "ServiceTunnel" | "LogTunnel", "Router"] => Kind::Pass,
        ["Queue", "ClassSwitch", "Router"] => Kind::ClassSwitch,
        ["Queue", "ServiceTunnel", "Fork"] => Kind::Fork,
        ["Join", "ServiceTunnel", "Router"] => Kind::Join,
        _ => Kind::Other,
    };
    let due = elements(element).filter(|one| one.has_tag_name("classSoftDeadlines"));
    let due = due.flat_map(elements).filter_map(|one| one.text()).map(str::trim).collect();
    Ok(Part { element, name, kind, sections, due })
}

#[cfg(test)]
mod tests {
    use kendall_queueing::Model;
    use kendall_queueing::model::{Discipline, WhenFull};
    use kendall_queueing::solver::{Solution, Solver, solve};

    use super::*;

    /// A parameter with what it says of each class.
    fn classed(name: &str, rows: &[(&str, String)]) -> String {
        let rows: String =
            rows.iter().map(|(class, one)| format!("<refClass>{class}</refClass>{one}")).collect();
        format!("<parameter array='true' classPath='x' name='{name}'>{rows}</parameter>")
    }

    fn scalar(name: &str, value: &str) -> String {
        format!("<subParameter classPath='x' name='{name}'><value>{value}</value></subParameter>")
    }

    fn time(shape: &str, parameters: &[(&str, &str)]) -> String {
        let parameters: String =
            parameters.iter().map(|(name, value)| scalar(name, value)).collect();
        format!(
            "<subParameter classPath='jmt.engine.NetStrategies.ServiceStrategies.ServiceTimeStrategy' \
             name='ServiceTimeStrategy'><subParameter classPath='jmt.engine.random.{shape}' \
             name='{shape}'/><subParameter classPath='jmt.engine.random.{shape}Par' \
             name='distrPar'>{parameters}</subParameter></subParameter>"
        )
    }

    fn rate(lambda: &str) -> String {
        time("Exponential", &[("lambda", lambda)])
    }

    fn strategy(path: &str, inner: &str) -> String {
        format!(
            "<subParameter classPath='jmt.engine.NetStrategies.{path}' name='n'>{inner}</subParameter>"
        )
    }

    fn random() -> String {
        strategy("RoutingStrategies.RandomStrategy", "")
    }

    fn shares(shares: &[(&str, f64)]) -> String {
        let entry = |(to, share): &(&str, f64)| {
            let inner = scalar("stationName", to) + &scalar("probability", &share.to_string());
            format!("<subParameter classPath='x' name='EmpiricalEntry'>{inner}</subParameter>")
        };
        let entries: String = shares.iter().map(entry).collect();
        let array = format!("<subParameter name='EmpiricalEntryArray'>{entries}</subParameter>");
        strategy("RoutingStrategies.EmpiricalStrategy", &array)
    }

    fn node(name: &str, sections: &[(&str, String)]) -> String {
        let section = |(class, inner): &(&str, String)| {
            format!("<section className='{class}'>{inner}</section>")
        };
        let sections: String = sections.iter().map(section).collect();
        format!("<node name='{name}'>{sections}</node>")
    }

    fn source(services: &[(&str, String)], routing: &[(&str, String)]) -> String {
        node(
            "Source",
            &[
                ("RandomSource", classed("ServiceStrategy", services)),
                ("ServiceTunnel", String::new()),
                ("Router", classed("RoutingStrategy", routing)),
            ],
        )
    }

    /// A station, with what its queue and its server say besides.
    fn station(
        name: &str,
        server: &str,
        (queue, more): (&str, &str),
        services: &[(&str, String)],
        routing: &[(&str, String)],
    ) -> String {
        let more = classed("ServiceStrategy", services) + more;
        node(
            name,
            &[
                ("Queue", queue.to_owned()),
                (server, more),
                ("Router", classed("RoutingStrategy", routing)),
            ],
        )
    }

    /// What is said of two classes.
    fn both(a: String, b: String) -> Vec<(&'static str, String)> {
        vec![("a", a), ("b", b)]
    }

    fn thinking() -> String {
        let services = both(rate("0.5"), rate("1"));
        station("Think", "Delay", ("", ""), &services, &both(random(), random()))
    }

    fn cpu(server: &str, besides: (&str, &str)) -> String {
        let services = both(rate("4"), rate("2"));
        station("Cpu", server, besides, &services, &both(random(), random()))
    }

    fn pass(name: &str, kind: &str, inner: &str, routing: &[(&str, String)]) -> String {
        node(
            name,
            &[
                ("Queue", String::new()),
                (kind, inner.to_owned()),
                ("Router", classed("RoutingStrategy", routing)),
            ],
        )
    }

    fn sink() -> String {
        node("Sink", &[("JobSink", String::new())])
    }

    fn file(parts: &[String], links: &[(&str, &str)]) -> String {
        let link =
            |(from, to): &(&str, &str)| format!("<connection source='{from}' target='{to}'/>");
        let links: String = links.iter().map(link).collect();
        format!(
            "<?xml version='1.0'?><archive name='x'><sim name='x' seed='23000'>{}<measure \
             alpha='0.01' precision='0.03' type='Response Time'/>{links}</sim><jmodel/></archive>",
            parts.concat()
        )
    }

    fn open(name: &str) -> String {
        format!("<userClass name='{name}' priority='0' referenceSource='Source' type='open'/>")
    }

    fn closed(name: &str, customers: u32, priority: u32) -> String {
        format!(
            "<userClass customers='{customers}' name='{name}' priority='{priority}' \
             referenceSource='Think' type='closed'/>"
        )
    }

    fn model(text: &str) -> Model {
        Model::read(&read(text).unwrap().table).unwrap()
    }

    fn toml(text: &str) -> Solution {
        solve(&Model::read(&text.parse().unwrap()).unwrap(), Solver::Auto).unwrap()
    }

    #[track_caller]
    fn same(found: &Solution, want: &Solution) {
        for (a, b) in found.classes.iter().zip(&want.classes) {
            assert!((a.throughput / b.throughput - 1.0).abs() < 1e-9, "{a:?} for {b:?}");
        }
        for (a, b) in found.stations.iter().zip(&want.stations) {
            for (x, y) in a.number.iter().zip(&b.number) {
                assert!((x - y).abs() < 1e-9 * y.max(1.0), "{a:?} for {b:?}");
            }
        }
    }

    /// The structure that JMT writes: source, queues, a router between them, sink.
    #[test]
    fn an_open_network_through_a_router_is_solved_as_its_model_file() {
        let one = |text: String| vec![("c", text)];
        let put =
            classed("QueuePutStrategy", &one(strategy("QueuePutStrategies.TailStrategy", "")));
        let servers = "<parameter name='maxJobs'><value>2</value></parameter>";
        let text = file(
            &[
                open("c"),
                source(&one(rate("0.5")), &one(random())),
                pass("Router", "ServiceTunnel", "", &one(shares(&[("A", 0.25), ("B", 0.75)]))),
                station("A", "Server", (&put, servers), &one(rate("0.2")), &one(random())),
                station(
                    "B",
                    "PSServer",
                    ("", &classed("PSStrategy", &one(strategy("EPSStrategy", "")))),
                    &one(rate("1")),
                    &one(random()),
                ),
                sink(),
            ],
            &[("Source", "Router"), ("Router", "A"), ("Router", "B"), ("A", "B"), ("B", "Sink")],
        );
        let found = read(&text).unwrap();
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        let model = model(&text);
        assert_eq!((model.simulation.seed, model.simulation.confidence), (23_000, 0.99));
        assert_eq!(model.stations[1].discipline, Discipline::Ps);
        let want = toml(
            "arrival_rate_per_s = 0.5\nstations = [{ name = 'A', servers = 2, service_time_s = 5 }, { \
             name = 'B', service_time_s = 1 }]\nroutes = [{ from = 'in', to = { A = 0.25, B = 0.75 } }, \
             { from = 'A', to = { B = 1 } }, { from = 'B', to = { out = 1 } }]",
        );
        same(&solve(&model, Solver::Auto).unwrap(), &want);
    }

    /// Two closed classes that turn into each other at a class switch, as LINE's example models have it.
    #[test]
    fn closed_classes_with_a_switch_keep_their_circulation() {
        let row = |a: &str, b: &str| {
            let cell = |class: &str, share: &str| {
                format!("<refClass>{class}</refClass>{}", scalar("cell", share))
            };
            format!("<subParameter name='row'>{}{}</subParameter>", cell("a", a), cell("b", b))
        };
        let matrix = classed("matrix", &both(row("0.7", "0.3"), row("1.0", "0.0")));
        let ps =
            classed("PSStrategy", &both(strategy("EPSStrategy", ""), strategy("EPSStrategy", "")));
        let text = file(
            &[
                closed("a", 3, 0),
                closed("b", 0, 0),
                thinking(),
                cpu("PSServer", ("", &ps)),
                pass("Switch", "ClassSwitch", &matrix, &both(random(), random())),
            ],
            &[("Think", "Cpu"), ("Cpu", "Switch"), ("Switch", "Think")],
        );
        let want = toml(
            "classes = [{ name = 'a', population = 3 }, { name = 'b', population = 0 }]\nstations = [{ \
             name = 'Think', type = 'delay', service_time_s = { a = 2, b = 1 } }, { name = 'Cpu', \
             discipline = 'ps', service_time_s = { a = 0.25, b = 0.5 } }]\nroutes = [{ class = 'a', from = \
             'Think', to = { Cpu = 1 } }, { class = 'b', from = 'Think', to = { Cpu = 1 } }, { class = 'a', \
             from = 'Cpu', to = { Think = 0.7, 'Think:b' = 0.3 } }, { class = 'b', from = 'Cpu', to = { \
             'Think:a' = 1 } }]",
        );
        same(&solve(&model(&text), Solver::Auto).unwrap(), &want);
    }

    #[test]
    fn limits_regions_priorities_and_rules_have_their_keys() {
        let one = |text: String| vec![("c", text)];
        let full = |rule: &str| {
            let rule = classed("dropStrategies", &one(scalar("dropStrategy", rule)));
            format!("<parameter name='size'><value>3</value></parameter>{rule}")
        };
        let text = |rule: &str, routing: String| {
            let region = "<blockingRegion name='R'><regionNode nodeName='A'/><regionNode \
                          nodeName='B'/><globalConstraint maxJobs='5'/><classConstraint jobClass='c' \
                          maxJobsPerClass='-1'/><dropRules dropThisClass='true' jobClass='c'/>\
                          </blockingRegion>";
            let parts = [
                open("c"),
                source(&one(time("Erlang", &[("alpha", "4"), ("r", "2")])), &one(routing)),
                station("A", "Server", (&full(rule), ""), &one(rate("9")), &one(random())),
                station("B", "Server", (&full(rule), ""), &one(rate("9")), &one(random())),
                sink(),
            ];
            let links = [("Source", "A"), ("Source", "B"), ("A", "Sink"), ("B", "Sink")];
            file(&parts, &links).replace("</sim>", &format!("{region}</sim>"))
        };
        let turn = || strategy("RoutingStrategies.RoundRobinStrategy", "");
        let found = model(&text("BAS blocking", turn()));
        assert_eq!(found.stations[0].when_full, WhenFull::BlockAfterService);
        assert_eq!((found.stations[0].capacity, found.pools[0].tokens), (Some(3), 5));
        assert_eq!(found.pools[0].queue_capacity, Some(0));
        assert_eq!(found.choices.len(), 1);
        let k = strategy("RoutingStrategies.PowerOfKRoutingStrategy", &scalar("k", "2"));
        assert_eq!(model(&text("drop", k)).stations[0].when_full, WhenFull::Lost);
        for (rule, routing, says) in [
            ("waiting queue", turn(), "waiting queue where `A` is full"),
            (
                "drop",
                strategy("RoutingStrategies.FastestServiceRoutingStrategy", ""),
                "FastestService",
            ),
        ] {
            let error = read(&text(rule, routing)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        // Two classes at one queue, the greater priority first.
        let put = strategy("QueuePutStrategies.TailStrategyPriority", "");
        let put = classed("QueuePutStrategy", &both(put.clone(), put));
        let text = file(
            &[closed("a", 3, 0), closed("b", 2, 4), thinking(), cpu("Server", (&put, ""))],
            &[("Think", "Cpu"), ("Cpu", "Think")],
        );
        let found = model(&text);
        assert_eq!((found.classes[0].priority, found.classes[1].priority), (5, 1));
        assert_eq!(found.stations[1].discipline, Discipline::PriorityNonPreemptive);
    }

    /// Due dates of a node are counted from when a customer came there.
    #[test]
    fn orders_by_deadline_are_read() {
        let text = |order: &str, due: &str| {
            let put = strategy(&format!("QueuePutStrategies.{order}"), "");
            let put = classed("QueuePutStrategy", &both(put.clone(), put));
            let queue = cpu("Server", (&put, ""));
            let queue = queue.replace("</node>", &format!("{due}</node>"));
            let links = [("Think", "Cpu"), ("Cpu", "Think")];
            file(&[closed("a", 3, 0), closed("b", 2, 0), thinking(), queue], &links)
        };
        let due = "<classSoftDeadlines><softDeadline>0.5</softDeadline><softDeadline>4</softDeadline>\
                   </classSoftDeadlines>";
        for (order, discipline) in
            [("EDDStrategy", Discipline::Edf), ("EDFStrategy", Discipline::EdfPreemptive)]
        {
            let station = &model(&text(order, due)).stations[1];
            assert_eq!((station.discipline, &station.deadlines[..]), (discipline, &[0.5, 4.0][..]));
        }
        let error = read(&text("EDDStrategy", "")).unwrap_err().to_string();
        assert!(error.contains("deadlines"), "{error}");
    }

    /// A model whose answer JMT stored beside it: with room for 11 the mean number of an M/M/1/11 lies in
    /// JMT's interval, and that of an M/M/1/12 does not.
    #[test]
    fn a_limit_counts_those_in_service_as_jmt_does() {
        let one = |text: String| vec![("c", text)];
        let drop = classed("dropStrategies", &one(scalar("dropStrategy", "drop")));
        let number = |size: u32| {
            let size = format!("<parameter name='size'><value>{size}</value></parameter>{drop}");
            let text = file(
                &[
                    open("c"),
                    source(&one(rate("9")), &one(random())),
                    station("A", "Server", (&size, ""), &one(rate("10")), &one(random())),
                    sink(),
                ],
                &[("Source", "A"), ("A", "Sink")],
            );
            solve(&model(&text), Solver::Auto).unwrap().stations[0].number[0]
        };
        let interval = 4.246_545..=4.333_344;
        assert!(interval.contains(&number(11)) && !interval.contains(&number(12)));
    }

    #[test]
    fn forks_and_their_joins_become_branches() {
        let one = |text: String| vec![("c", text)];
        let queue = |name: &str| station(name, "Server", ("", ""), &one(rate("4")), &one(random()));
        let fork = |name: &str, more: &str| {
            let jobs = if name == "G" { "2" } else { "1" };
            let jobs = format!("<parameter name='jobsPerLink'><value>{jobs}</value></parameter>");
            let more = jobs + more;
            let sections =
                [("Queue", String::new()), ("ServiceTunnel", String::new()), ("Fork", more)];
            node(name, &sections)
        };
        let join = |name: &str, strategy: &str, number: &str| {
            let strategy = format!(
                "<subParameter classPath='jmt.engine.NetStrategies.JoinStrategies.{strategy}'>{}</subParameter>",
                scalar("numRequired", number)
            );
            let sections = [
                ("Join", classed("JoinStrategy", &one(strategy))),
                ("ServiceTunnel", String::new()),
                ("Router", classed("RoutingStrategy", &one(random()))),
            ];
            node(name, &sections)
        };
        let text = |more: &str, strategy: &str| {
            let parts = [
                open("c"),
                source(&one(rate("0.5")), &one(random())),
                fork("F", more),
                queue("A"),
                queue("B"),
                queue("C"),
                queue("D"),
                fork("G", ""),
                join("H", "NormalJoin", "2"),
                join("J", strategy, "1"),
                sink(),
            ];
            let links = "Source F,F A,F G,A B,B J,G C,G D,C H,D H,H J,J Sink";
            let links: Vec<_> = links.split(',').filter_map(|link| link.split_once(' ')).collect();
            file(&parts, &links)
        };
        let model = model(&text("", "PartialJoin"));
        let by_name = |name: &str| &model.stations[model.station_index(name).unwrap()];
        let firsts = |name: &str| -> Vec<&str> {
            by_name(name).parts.iter().map(|at| model.stations[*at].name.as_str()).collect()
        };
        assert_eq!((firsts("F"), firsts("G")), (vec!["A", "G"], vec!["C", "C", "D", "D"]));
        assert_eq!(by_name("F").fork.unwrap().needed, 1);
        assert_eq!(by_name("G").fork.unwrap().needed, 4);
        let visits: Vec<f64> = model.visits().unwrap().iter().map(|row| row[0]).collect();
        assert!((visits.iter().sum::<f64>() - 8.0).abs() < 1e-9, "{visits:?}");
        let strategies = "<parameter name='isSimplifiedFork'><value>false</value></parameter>";
        for (more, strategy, said) in [
            (
                "<parameter name='block'><value>3</value></parameter>",
                "NormalJoin",
                "a limit of jobs",
            ),
            (strategies, "NormalJoin", "a fork strategy"),
            ("", "GuardJoin", "GuardJoin at `J`"),
        ] {
            let error = read(&text(more, strategy)).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn times_have_the_moments_that_jmt_gives_them() {
        let vector = |numbers: &[&str]| {
            let entries: String = numbers.iter().map(|number| scalar("entry", number)).collect();
            format!("<subParameter name='vector'>{entries}</subParameter>")
        };
        let matrix = |name: &str, rows: &[&[&str]]| {
            let rows: String = rows.iter().map(|row| vector(row)).collect();
            format!("<subParameter name='{name}'>{rows}</subParameter>")
        };
        let nested = |shape: &str, inner: String| {
            let whole = time(shape, &[]);
            whole.replace("name='distrPar'>", &format!("name='distrPar'>{inner}"))
        };
        let phases = matrix("alpha", &[&["1", "0"]]) + &matrix("T", &[&["-2", "2"], &["0", "-2"]]);
        for (time, mean, scv) in [
            (time("Erlang", &[("alpha", "8"), ("r", "4")]), 0.5, 0.25),
            (
                time("HyperExp", &[("p", "0.25"), ("lambda1", "0.5"), ("lambda2", "1.5")]),
                1.0,
                5.0 / 3.0,
            ),
            (time("GammaDistr", &[("alpha", "2"), ("beta", "0.25")]), 0.5, 0.5),
            (time("Lognormal", &[("mu", "0"), ("sigma", "1")]), 0.5_f64.exp(), 1_f64.exp_m1()),
            (time("DeterministicDistr", &[("t", "0.3")]), 0.3, 0.0),
            (
                time("CoxianDistr", &[("lambda0", "2"), ("lambda1", "4"), ("phi0", "0.6")]),
                0.6,
                0.29 / 0.36,
            ),
            (time("Uniform", &[("min", "1"), ("max", "3")]), 2.0, 1.0 / 12.0),
            (time("Weibull", &[("alpha", "2"), ("r", "1")]), 2.0, 1.0),
            (nested("PhaseTypeDistr", phases), 1.0, 0.5),
        ] {
            let one = |text: String| vec![("c", text)];
            let text = file(
                &[
                    open("c"),
                    source(&one(rate("0.01")), &one(random())),
                    station("A", "Server", ("", ""), &one(time), &one(random())),
                    sink(),
                ],
                &[("Source", "A"), ("A", "Sink")],
            );
            let model = model(&text);
            let service = &model.stations[0].demands[0].as_ref().unwrap().service;
            assert!((service.mean() - mean).abs() < 1e-9, "{service:?} for {mean}");
            assert!((service.scv() - scv).abs() < 1e-9, "{service:?} for {scv}");
        }
    }

    /// A source, a station and a sink.
    fn good() -> String {
        let one = |text: String| vec![("c", text)];
        file(
            &[
                open("c"),
                source(&one(rate("0.5")), &one(random())),
                station("A", "Server", ("", ""), &one(rate("1")), &one(random())),
                sink(),
            ],
            &[("Source", "A"), ("A", "Sink")],
        )
    }

    /// Also of what only a model refuses.
    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let lines = good().replace("><", ">\n<");
        let line = |says: &str| 1 + lines.lines().position(|line| line.contains(says)).unwrap();
        let error = read(&lines.replace(">1<", ">one<")).unwrap_err().to_string();
        assert!(error.contains("`one`") && !error.starts_with("line 1,"), "{error}");
        let found = read(&lines).unwrap();
        assert_eq!(found.lines.find("stations[0].service"), Some(line("<node name='A'")));
        assert_eq!(found.lines.find("classes.0"), Some(line("<userClass")));
    }

    /// Consequences were named instead: no service, or no customers.
    #[test]
    fn names_that_are_none_are_the_cause_that_is_told() {
        let lines = good().replace("><", ">\n<");
        let line = |says: &str| 1 + lines.lines().position(|line| line.contains(says)).unwrap();
        for (from, to, what, at) in [
            (
                "referenceSource='Source'",
                "referenceSource='Sorce'",
                "referenceSource of class `c`: `Sorce` is no source of this file",
                line("<userClass"),
            ),
            (
                "referenceSource='Source' type='open'",
                "referenceSource='Sink' type='closed' customers='2'",
                "referenceSource of class `c`: `Sink` is no queue or delay",
                line("<userClass"),
            ),
            ("<refClass>c<", "<refClass>d<", "refClass `d` is no class", line("<refClass>")),
            ("target='A'", "target='B'", "connection, target: `B` is no node", line("target='A'")),
            ("name='Sink'", "name='A'", "two <node> called `A`", line("name='Sink'")),
        ] {
            let error = read(&lines.replacen(from, to, 1)).unwrap_err().to_string();
            let start = format!("line {at}, column ");
            assert!(error.contains(what) && error.starts_with(&start), "{at}: {error}");
        }
        let more = "<parameter name='mystery'/></section>";
        let unknown =
            lines.replacen("</section>", more, 1).replacen("<connection", "<extra/><connection", 1);
        let node = node(
            "idle",
            &[("Queue", String::new()), ("Server", String::new()), ("Router", String::new())],
        );
        let unknown = unknown.replacen("<measure", &format!("{node}<measure"), 1);
        let notes = read(&unknown).unwrap().notes.join("\n");
        for said in [
            "`idle` is left out",
            "parameter `mystery` of `Source` is left out",
            "<extra> in <sim>",
        ] {
            assert!(notes.contains(said), "{said}: {notes}");
        }
    }

    #[test]
    fn what_does_not_map_is_listed_and_hostile_bytes_are_refused() {
        let one = |text: String| vec![("c", text)];
        let fork = node(
            "Fork",
            &[("Queue", String::new()), ("ServiceTunnel", String::new()), ("Fork", String::new())],
        );
        let polling = "<parameter classPath='jmt.engine.NetStrategies.QueueGetStrategies.\
                       ExhaustivePollingGetStrategy' name='FCFSstrategy'/>";
        let parts = |time: String| {
            file(
                &[
                    open("c"),
                    source(&one(rate("0.5")), &one(random())),
                    station("A", "Server", (polling, ""), &one(time), &one(random())),
                    fork.clone(),
                    sink(),
                ],
                &[("Source", "A"), ("A", "Fork"), ("A", "Sink")],
            )
        };
        let error = read(&parts(time("Replayer", &[("fileName", "x")]))).unwrap_err().to_string();
        for said in
            ["fork `Fork` without a join", "Replayer", "ExhaustivePolling", "(line 1, column "]
        {
            assert!(error.contains(said), "{error}");
        }
        let round = file(
            &[
                open("c"),
                source(&one(rate("0.5")), &one(random())),
                pass("R", "ServiceTunnel", "", &one(random())),
                pass("S", "ServiceTunnel", "", &one(random())),
                sink(),
            ],
            &[("Source", "R"), ("R", "S"), ("R", "R"), ("S", "R"), ("S", "S")],
        );
        let error = read(&round).unwrap_err().to_string();
        assert!(error.contains("circle"), "{error}");
        let good = good();
        assert!(read(&good).is_ok());
        for (from, to, says) in [
            ("<sim ", "<model ", "<sim>"),
            ("type='open'", "type='ajar'", "`ajar`"),
            ("<value>0.5<", "<value>fast<", "`fast`"),
            ("<value>0.5<", "<value>-1<", "above 0"),
            ("target='A'", "target='B'", "`B`"),
            ("name='A'>", ">", "attribute `name`"),
            ("alpha='0.01'", "alpha='x'", "<measure>"),
        ] {
            let text = good
                .replace(from, to)
                .replace("</sim>", if from == "<sim " { "</model>" } else { "</sim>" });
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(says) && error.starts_with("line 1, "), "{from}: {error}");
        }
        // Cut anywhere, or with any character changed, it is read or refused.
        for at in (0..good.len()).step_by(3) {
            drop(read(&good[..at]));
            for other in ["<", "\"", "'", "9", "-", ""] {
                let changed = format!("{}{other}{}", &good[..at], &good[at + 1..]);
                if let Ok(found) = read(&changed) {
                    drop(Model::read(&found.table));
                }
            }
        }
    }
}
