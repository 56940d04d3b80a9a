//! Models of JMT's analytical solver (`.jmva`): read as model files, and written.

use std::collections::{BTreeMap, BTreeSet};

use kendall_keys::Lines;
use kendall_queueing::Model;
use kendall_queueing::model::{
    Balking, Batch, Class, Discipline, MOST_CLASSES, MOST_STATIONS, Station, Workload,
};
use kendall_units::echo;
use roxmltree::{Document, Node, ParsingOptions, TextPos};
use toml::{Table, Value};

use crate::vocabulary::{Row, elements, tag, unknown};

/// What JMVA writes, and this reader looks at or lists as left out.
const KNOWN: &[Row] = &[
    (
        "model",
        &["name", "jaba"],
        &["description", "parameters", "algParams", "whatIf", "solutions", "normalizationConstant"],
    ),
    ("parameters", &[], &["classes", "stations", "ReferenceStation"]),
    ("classes", &["number"], &["closedclass", "openclass"]),
    ("closedclass", &["name", "population", "priority"], &[]),
    ("openclass", &["name", "rate", "priority"], &[]),
    ("stations", &["number"], &["delaystation", "listation", "ldstation"]),
    ("delaystation", &["name", "servers"], &["servicetimes", "visits"]),
    ("listation", &["name", "servers"], &["servicetimes", "visits"]),
    ("ldstation", &["name", "servers"], &["servicetimes", "visits"]),
    ("servicetimes", &["customerclass"], &["servicetime", "servicetimes"]),
    ("visits", &[], &["visit"]),
    ("visit", &["customerclass"], &[]),
    ("ReferenceStation", &["number"], &["Class"]),
    ("Class", &["name", "refStation"], &[]),
    ("algParams", &[], &["algType", "compareAlgs"]),
    ("algType", &["name", "tolerance", "maxSamples"], &[]),
];

/// Most elements, attributes and texts of a document that is read.
const MOST_NODES: u32 = 1_000_000;
/// Most quotation marks in one tag, two of which an attribute has: each attribute is compared with all before it.
const MOST_MARKS: usize = 2_000;
/// Most problems, or notes, that are listed.
const MOST_SHOWN: usize = 50;
/// Most service times of a load-dependent station that are written.
const MOST_ENTRIES: u64 = 10_000;

/// A model file that says the same, and what of the document it does not say.
#[derive(Debug, Clone, PartialEq)]
pub struct Jmva {
    pub table: Table,
    /// What was left out, or means something else.
    pub notes: Vec<String>,
    /// Where the classes and stations of the table stand in the document.
    pub lines: Lines,
}

/// A document that is no model, or a model that cannot be such a document.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JmvaError {
    #[error(transparent)]
    Xml(#[from] roxmltree::Error),
    #[error("an element has more than {} attributes; JMT writes fewer than 20", MOST_MARKS / 2)]
    Attributes,
    #[error(
        "its encoding is {encoding}, and UTF-8 and ISO-8859-1 are read: convert it, as `iconv -f {encoding} -t \
         UTF-8` does, and change the encoding that its first line declares"
    )]
    Encoding { encoding: String },
    #[error("{at}{place}: {what}")]
    Element { at: Position, place: String, what: String },
    #[error("a .jmva file has no place for {what} (at `{at}`)")]
    NoPlace { what: &'static str, at: String },
}

/// Where an element begins, once that is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position(Option<TextPos>);

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(at) => write!(f, "line {}, column {}: ", at.row, at.col),
            None => Ok(()),
        }
    }
}

pub(crate) fn wrong(place: impl Into<String>, what: impl Into<String>) -> JmvaError {
    JmvaError::Element { at: Position::default(), place: place.into(), what: what.into() }
}

impl JmvaError {
    /// Says where it is in a text, unless it says so more closely.
    pub(crate) fn at(mut self, text: &str, place: usize) -> Self {
        if let Self::Element { at: Position(at @ None), .. } = &mut self {
            *at = Some(position(text, place));
        }
        self
    }

    /// Says where it is, unless it says so more closely.
    pub(crate) fn within(self, element: Node<'_, '_>) -> Self {
        self.at(element.document().input_text(), element.range().start)
    }
}

/// The line and column of a place in a text.
pub(crate) fn position(text: &str, at: usize) -> TextPos {
    let before = &text[..at];
    let row = 1 + before.matches('\n').count();
    let column = 1 + before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    let short = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    TextPos::new(short(row), short(column))
}

/// Where the lines of a text end.
pub(crate) struct Ends(Vec<usize>);

impl Ends {
    pub(crate) fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    pub(crate) fn line(&self, element: Node<'_, '_>) -> usize {
        self.line_at(element.range().start)
    }

    pub(crate) fn line_at(&self, at: usize) -> usize {
        1 + self.0.partition_point(|end| *end < at)
    }
}

/// Problems in one list, with where those stand that have a place in the text (behind its first byte).
pub(crate) fn listed(text: &str, problems: BTreeSet<(usize, String)>) -> String {
    let problems = problems.into_iter().map(|(at, what)| match at {
        0 => what,
        at => {
            let TextPos { row, col } = position(text, at);
            format!("{what} (line {row}, column {col})")
        }
    });
    first(problems).join("; ")
}

/// The first of them, and how many more there are.
pub(crate) fn first(all: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let more = all.len().saturating_sub(MOST_SHOWN);
    let rest = (more > 0).then(|| format!("and {more} more"));
    all.take(MOST_SHOWN).chain(rest).collect()
}

/// Lines of a table's lists, by the lists and names that elements of the document became.
pub(crate) fn lines<'a>(
    text: &str,
    table: &Table,
    elements: impl Iterator<Item = (&'static str, Node<'a, 'a>)>,
) -> Lines {
    let ends = Ends::of(text);
    let named =
        elements.filter_map(|(list, one)| Some(((list, one.attribute("name")?), ends.line(one))));
    let known: BTreeMap<(&str, &str), usize> = named.collect();
    let mut lines = Vec::new();
    for (list, entries) in table {
        for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
            lines.extend(
                known.get(&(list.as_str(), name)).map(|line| (format!("{list}.{index}"), *line)),
            );
        }
    }
    lines.into_iter().collect()
}

/// Notes on what a reader does not know: once for each, with where the first stands.
pub(crate) fn left_out(text: &str, unknown: Vec<(usize, String)>) -> Vec<String> {
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    for (at, what) in unknown {
        first.entry(what).and_modify(|known| *known = at.min(*known)).or_insert(at);
    }
    let all = first.into_iter().map(|(what, at)| (at, format!("{what} is left out"))).collect();
    let listed = listed(text, all);
    if listed.is_empty() { Vec::new() } else { vec![listed] }
}

pub(crate) fn list(tables: Vec<Table>) -> Value {
    Value::Array(tables.into_iter().map(Value::Table).collect())
}

/// Reads a document.
///
/// # Errors
/// [`JmvaError`] for what is not XML, or lacks what a model needs; the numbers themselves are checked
/// where the model file is read.
pub fn read(text: &str) -> Result<Jmva, JmvaError> {
    let document = document(text)?;
    let root = document.root_element();
    let mut notes = Vec::new();
    if !root.has_tag_name("model") {
        return Err(wrong(tag(root), "expected <model>, as JMVA writes it").within(root));
    }
    let parameters = need(root, "parameters")?;
    let (all_classes, all_stations) = (need(parameters, "classes")?, need(parameters, "stations")?);
    let classes = elements(all_classes).map(|c| class(c, &mut notes).map_err(|e| e.within(c)));
    let mut classes = classes.collect::<Result<Vec<Table>, JmvaError>>()?;
    let several = classes.len() > 1;
    let names: Vec<&str> = elements(all_classes).filter_map(|one| one.attribute("name")).collect();
    let known = |place: &str, of: Node<'_, '_>, name: Option<&str>| match name {
        Some(name) if !names.contains(&name) => {
            Err(wrong(place, format!("`{name}` is no class of this file")).within(of))
        }
        _ => Ok(()),
    };
    for one in elements(all_stations).flat_map(elements).flat_map(elements) {
        known(&tag(one), one, one.attribute("customerclass"))?;
    }
    for one in child(parameters, "ReferenceStation").into_iter().flat_map(elements) {
        known("<ReferenceStation>", one, one.attribute("name"))?;
    }
    let stations = elements(all_stations).map(|s| station(s, several).map_err(|e| e.within(s)));
    let mut stations = stations.collect::<Result<Vec<Table>, JmvaError>>()?;
    if classes.len() <= MOST_CLASSES && stations.len() <= MOST_STATIONS {
        refer(child(parameters, "ReferenceStation"), &mut classes, &mut stations, &mut notes)?;
    }
    let mut table = Table::new();
    if let Some(solver) = solver(root, &mut notes) {
        table.insert("solver".to_owned(), solver.into());
    }
    table.insert("classes".to_owned(), list(classes));
    table.insert("stations".to_owned(), list(stations));
    for left_out in ["whatIf", "solutions", "normalizationConstant"] {
        if child(root, left_out).is_some() {
            let instead = if left_out == "whatIf" { "; use --sweep" } else { "" };
            notes.push(format!("<{left_out}> is left out{instead}"));
        }
    }
    notes.extend(left_out(text, unknown(root, KNOWN)));
    let listed = elements(all_classes).map(|one| ("classes", one));
    let listed = listed.chain(elements(all_stations).map(|one| ("stations", one)));
    let lines = lines(text, &table, listed);
    Ok(Jmva { table, notes, lines })
}

/// The text of a document in UTF-8, or in ISO-8859-1 where it says so, as JMT writes it.
pub fn decoded(bytes: Vec<u8>) -> Result<String, JmvaError> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let declared =
        head.split_once("encoding=").and_then(|(_, rest)| rest.split(['"', '\'']).nth(1));
    let encoding = match (declared, &bytes[..]) {
        (_, [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]) => "UTF-16",
        (Some(name), _) if name.eq_ignore_ascii_case("ISO-8859-1") => {
            return Ok(bytes.into_iter().map(char::from).collect());
        }
        (Some(name), _) if !name.eq_ignore_ascii_case("UTF-8") => name,
        _ => "UTF-8",
    };
    String::from_utf8(bytes).map_err(|_| match encoding {
        "UTF-8" => {
            wrong("<?xml?>", "its bytes are not UTF-8; declare the encoding that they are in")
        }
        other => JmvaError::Encoding { encoding: other.to_owned() },
    })
}

pub(crate) fn document(text: &str) -> Result<Document<'_>, JmvaError> {
    let marks = |part: &str| part.matches(['"', '\'']).count();
    if text.split('<').any(|part| marks(part) > MOST_MARKS) {
        return Err(JmvaError::Attributes);
    }
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MOST_NODES, ..Default::default() };
    Ok(Document::parse_with_options(text, options)?)
}

pub(crate) fn child<'a>(of: Node<'a, 'a>, name: &str) -> Option<Node<'a, 'a>> {
    elements(of).find(|child| child.has_tag_name(name))
}

fn need<'a>(of: Node<'a, 'a>, name: &str) -> Result<Node<'a, 'a>, JmvaError> {
    child(of, name).ok_or_else(|| wrong(tag(of), format!("has no <{name}>")).within(of))
}

pub(crate) fn named<'a>(element: Node<'a, 'a>, place: &str) -> Result<&'a str, JmvaError> {
    element.attribute("name").ok_or_else(|| wrong(place, "has no attribute `name`").within(element))
}

pub(crate) fn number(place: &str, text: &str) -> Result<f64, JmvaError> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| wrong(place, format!("`{}` is not a finite number", echo(text))))
}

fn class(element: Node<'_, '_>, notes: &mut Vec<String>) -> Result<Table, JmvaError> {
    let place = tag(element);
    let name = named(element, &place)?;
    let mut table = Table::new();
    table.insert("name".to_owned(), name.into());
    let key = match element.tag_name().name() {
        "closedclass" => "population",
        "openclass" => "rate",
        _ => return Err(wrong(place, "expected <closedclass> or <openclass>")),
    };
    let place = format!("{place} `{name}`, attribute `{key}`");
    let text = element.attribute(key).ok_or_else(|| wrong(&place, "is missing"))?;
    let value = number(&place, text)?;
    if key == "population" {
        let whole = text.trim().parse::<i64>();
        let whole = whole.map_err(|_| wrong(&place, format!("`{text}` is not a whole number")))?;
        table.insert("population".to_owned(), whole.into());
    } else {
        table.insert("arrival_rate_per_s".to_owned(), value.into());
    }
    if element.attribute("priority").is_some_and(|priority| priority.trim() != "0") {
        notes.push(format!("the priority of `{name}` is left out: JMVA does not use it either"));
    }
    Ok(table)
}

/// Counts requests of closed classes as JMT does, by visits to their reference stations, and makes those that are
/// delays think times: R is JMT's system response time without them.
fn refer(
    reference: Option<Node<'_, '_>>,
    classes: &mut [Table],
    stations: &mut Vec<Table>,
    notes: &mut Vec<String>,
) -> Result<(), JmvaError> {
    let is_delay = |station: &Table| station.contains_key("type");
    let closed = classes.iter_mut().filter(|class| class.contains_key("population"));
    let Some(reference) = reference else {
        if closed.count() > 0 && stations.iter().any(is_delay) {
            notes.push("without <ReferenceStation> response times count delays".to_owned());
        }
        return Ok(());
    };
    let pairs = elements(reference).map(|element| {
        let name = named(element, "<ReferenceStation>")?;
        Ok((name, element.attribute("refStation").unwrap_or_default()))
    });
    let pairs = pairs.collect::<Result<BTreeMap<&str, &str>, JmvaError>>()?;
    for class in closed {
        let name = class.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let Some(at) = pairs.get(name.as_str()) else { continue };
        let visits = |station: &Table| entry(station, "visits", &name).filter(|v| *v > 0.0);
        let called = |station: &Table| station.get("name").and_then(Value::as_str) == Some(*at);
        let found = stations.iter().position(called);
        let Some((found, once)) = found.and_then(|found| Some((found, visits(&stations[found])?)))
        else {
            notes.push(format!("`{name}` does not come to `{at}`, its reference station"));
            continue;
        };
        let others = stations.iter().filter_map(visits).count() > 1;
        let service = entry(&stations[found], "service_time_s", &name).unwrap_or_default();
        for station in stations.iter_mut() {
            let visits = station.get_mut("visits").and_then(Value::as_table_mut);
            if let Some(Value::Float(visits)) = visits.and_then(|table| table.get_mut(&name)) {
                *visits /= once;
            }
        }
        if !(others && is_delay(&stations[found])) {
            notes.push(format!(
                "the response time of `{name}` counts its reference station `{at}`, as JMT's with it"
            ));
            continue;
        }
        class.insert("think_time_s".to_owned(), service.into());
        for key in ["service_time_s", "visits"] {
            if let Some(table) = stations[found].get_mut(key).and_then(Value::as_table_mut) {
                table.remove(&name);
            }
        }
        let comes = |visits: &Value| visits.as_float().is_some_and(|v| v.abs() > 0.0);
        let left = stations[found].get("visits").and_then(Value::as_table);
        if left.is_none_or(|table| !table.values().any(comes)) {
            stations.remove(found);
        }
    }
    Ok(())
}

/// Of a class, in a table of a station.
fn entry(station: &Table, key: &str, class: &str) -> Option<f64> {
    station.get(key)?.as_table()?.get(class)?.as_float()
}

fn content<'a>(of: Node<'a, '_>) -> &'a str {
    of.text().unwrap_or("").trim()
}

/// Children of a part of a station, by class.
fn by_class<'a>(
    element: Node<'a, 'a>,
    part: &str,
    place: &str,
) -> Result<BTreeMap<&'a str, Node<'a, 'a>>, JmvaError> {
    let Some(part) = child(element, part) else { return Ok(BTreeMap::new()) };
    let entry = |child: Node<'a, 'a>| -> Result<(&'a str, Node<'a, 'a>), JmvaError> {
        let class = child.attribute("customerclass");
        let class = class.ok_or_else(|| {
            let place = format!("{place}, {}", tag(child));
            wrong(place, "has no attribute `customerclass`").within(child)
        })?;
        Ok((class, child))
    };
    let mut all = BTreeMap::new();
    for (class, child) in elements(part).map(entry).collect::<Result<Vec<_>, _>>()? {
        if all.insert(class, child).is_some() {
            let place = format!("{place}, {}", tag(child));
            return Err(wrong(place, format!("two of class `{class}`")).within(child));
        }
    }
    Ok(all)
}

fn station(element: Node<'_, '_>, several: bool) -> Result<Table, JmvaError> {
    let place = tag(element);
    let name = named(element, &place)?;
    let place = format!("{place} `{name}`");
    let mut table = Table::new();
    table.insert("name".to_owned(), name.into());
    match element.tag_name().name() {
        "delaystation" => {
            table.insert("type".to_owned(), "delay".into());
        }
        "listation" | "ldstation" if several => {
            // What JMVA solves, whatever the discipline is called.
            table.insert("discipline".to_owned(), "ps".into());
        }
        "listation" | "ldstation" => {}
        _ => return Err(wrong(place, "expected <delaystation>, <listation> or <ldstation>")),
    }
    let servers = element.attribute("servers").filter(|_| element.has_tag_name("listation"));
    if let Some(servers) = servers {
        let what = || wrong(&place, format!("servers `{servers}` is not a whole number"));
        let servers = servers.trim().parse::<i64>().map_err(|_| what())?;
        if servers != 1 {
            table.insert("servers".to_owned(), servers.into());
        }
    }
    let times = by_class(element, "servicetimes", &place)?;
    let written = by_class(element, "visits", &place)?;
    for (class, of) in written.iter().filter(|(class, _)| !times.contains_key(*class)) {
        if number(&place, content(*of)).map_err(|error| error.within(*of))?.abs() > 0.0 {
            let what = format!("visits of class `{class}`, which has no service time here");
            return Err(wrong(place, what).within(*of));
        }
    }
    let (mut service, mut visits) = (Table::new(), Table::new());
    let mut multipliers: Option<Vec<f64>> = None;
    for (class, of) in times {
        let at = format!("{place}, class `{class}`");
        let read = |of: Node<'_, '_>, text: &str| number(&at, text).map_err(|e| e.within(of));
        let visit = written.get(class).map_or(Ok(1.0), |of| read(*of, content(*of)))?;
        let list = content(of).split(';').map(|time| read(of, time));
        let list = list.collect::<Result<Vec<f64>, _>>()?;
        let first = list.first().copied().unwrap_or(0.0);
        service.insert(class.to_owned(), first.into());
        visits.insert(class.to_owned(), visit.into());
        if element.has_tag_name("ldstation") && first > 0.0 && visit > 0.0 {
            let own: Vec<f64> = list.iter().map(|time| first / time).collect();
            let alike = |other: &Vec<f64>| {
                other.len() == own.len()
                    && other.iter().zip(&own).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs())
            };
            if multipliers.as_ref().is_some_and(|other| !alike(other)) {
                let what = "times of several classes must depend on the number alike";
                return Err(wrong(at, what).within(of));
            }
            multipliers = Some(own);
        }
    }
    if let Some(multipliers) = multipliers.filter(|list| list.len() > 1) {
        table.insert("rate_multipliers".to_owned(), Value::from(multipliers));
    }
    table.insert("service_time_s".to_owned(), Value::Table(service));
    table.insert("visits".to_owned(), Value::Table(visits));
    Ok(table)
}

fn solver(root: Node<'_, '_>, notes: &mut Vec<String>) -> Option<&'static str> {
    let name = child(child(root, "algParams")?, "algType")?.attribute("name")?;
    match name {
        "Bard-Schweitzer" => Some("schweitzer"),
        "Linearizer" => Some("linearizer"),
        "MVA" => None,
        other => {
            notes.push(format!("algorithm `{other}` is not one of Kendall's: `auto` instead"));
            None
        }
    }
}

/// The model as a document: stations with product form, open and closed classes, visits.
///
/// # Errors
/// [`JmvaError::NoPlace`] for what the format has no place for: routes by the state, pools, limits,
/// impatience, forks, priorities, classes that switch, other than Poisson arrivals.
pub fn write(model: &Model) -> Result<String, JmvaError> {
    supported(model)?;
    let visits =
        model.visits().map_err(|error| wrong(format!("`{}`", model.name), error.to_string()))?;
    let name = free_name(model);
    let references: Vec<&str> = model
        .classes
        .iter()
        .enumerate()
        .map(|(index, class)| reference(model, &visits, (index, class)).unwrap_or(&name))
        .collect();
    let delayed = references.contains(&name.as_str());
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n<model \
                    xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
                    xsi:noNamespaceSchemaLocation=\"JMTmodel.xsd\">\n  <parameters>\n"
        .to_owned();
    text += &format!("    <classes number=\"{}\">\n", model.classes.len());
    for class in &model.classes {
        let name = coded(&class.name);
        text += &match class.workload {
            Workload::Closed { population, .. } => {
                format!("      <closedclass name=\"{name}\" population=\"{population}\"/>\n")
            }
            Workload::Open { arrival_rate_per_s, .. } => {
                format!("      <openclass name=\"{name}\" rate=\"{arrival_rate_per_s:?}\"/>\n")
            }
        };
    }
    let count = model.stations.len() + usize::from(delayed);
    text += &format!("    </classes>\n    <stations number=\"{count}\">\n");
    if delayed {
        let row = |(class, at): (&Class, &&str)| {
            if *at == name { (class.think_time_s(), 1.0) } else { (0.0, 0.0) }
        };
        let rows: Vec<(f64, f64)> = model.classes.iter().zip(&references).map(row).collect();
        one(&mut text, model, ("delaystation", &name, 1), (&rows, &[]));
    }
    for (index, station) in model.stations.iter().enumerate() {
        // JMT reads an entry for every class, in their order.
        let row = |class: usize| {
            station
                .demand_at(class)
                .map_or((0.0, 0.0), |d| (d.service.mean(), visits[index][class]))
        };
        let rows: Vec<(f64, f64)> = (0..model.classes.len()).map(row).collect();
        let speeds = speeds(model, station)?;
        let kind = match (station.is_delay(), speeds.is_empty()) {
            (true, _) => "delaystation",
            (false, true) => "listation",
            (false, false) => "ldstation",
        };
        one(&mut text, model, (kind, &station.name, station.servers), (&rows, &speeds));
    }
    text +=
        &format!("    </stations>\n    <ReferenceStation number=\"{}\">\n", model.classes.len());
    for (class, at) in model.classes.iter().zip(references) {
        let (class, at) = (coded(&class.name), coded(at));
        text += &format!("      <Class name=\"{class}\" refStation=\"{at}\"/>\n");
    }
    text.push_str(
        "    </ReferenceStation>\n  </parameters>\n  <algParams>\n    <algType name=\"MVA\" \
         tolerance=\"1.0E-7\"/>\n    <compareAlgs value=\"false\"/>\n  </algParams>\n</model>\n",
    );
    Ok(text)
}

fn supported(model: &Model) -> Result<(), JmvaError> {
    let no_place = |what, at: &str| Err(JmvaError::NoPlace { what, at: at.to_owned() });
    if let Some(pool) = model.pools.first() {
        return no_place("pools", &pool.name);
    }
    if model.routes.iter().any(|leg| leg.class != leg.to_class) || !model.choices.is_empty() {
        return no_place("classes that switch, or choices by queues", &model.name);
    }
    for class in &model.classes {
        if let Workload::Open { interarrival, batch, .. } = &class.workload
            && (!interarrival.is_exponential() || *batch != Batch::Fixed(1))
        {
            return no_place("other than Poisson arrivals", &class.name);
        }
    }
    model.stations.iter().try_for_each(check)
}

/// The station whose visits are the requests of a class; none where it is to be the delay of think times, for a class
/// that thinks, or comes to no queue just once.
fn reference<'m>(
    model: &'m Model,
    visits: &[Vec<f64>],
    (index, class): (usize, &Class),
) -> Option<&'m str> {
    if class.is_open() {
        return Some("Arrival Process");
    }
    let mut stations = model.stations.iter().zip(visits);
    let once = stations.find(|(station, row)| {
        let comes = station.demand_at(index).is_some() && !station.is_delay();
        comes && (row[index] - 1.0).abs() <= 1e-12
    });
    once.filter(|_| class.think_time_s() <= 0.0).map(|(station, _)| station.name.as_str())
}

/// As it is written in XML.
pub(crate) fn coded(text: &str) -> String {
    [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;")]
        .into_iter()
        .fold(text.to_owned(), |text, (character, coded)| text.replace(character, coded))
}

/// A name for the station of think times.
fn free_name(model: &Model) -> String {
    let mut name = "think time".to_owned();
    while model.station_index(&name).is_some() {
        name.push('\'');
    }
    name
}

/// A station, with service time and visits of each class.
fn one(
    text: &mut String,
    model: &Model,
    (kind, name, servers): (&str, &str, u64),
    (rows, speeds): (&[(f64, f64)], &[f64]),
) {
    let of_queue = kind == "listation";
    let servers = if of_queue { format!(" servers=\"{servers}\"") } else { String::new() };
    *text += &format!("      <{kind} name=\"{}\"{servers}>\n        <servicetimes>\n", coded(name));
    let part = if speeds.is_empty() { "servicetime" } else { "servicetimes" };
    for (class, (time, _)) in model.classes.iter().zip(rows) {
        let list = if speeds.is_empty() { &[1.0][..] } else { speeds };
        let times: Vec<String> = list.iter().map(|speed| format!("{:?}", time / speed)).collect();
        let times = times.join(";");
        let class = coded(&class.name);
        *text += &format!("          <{part} customerclass=\"{class}\">{times}</{part}>\n");
    }
    text.push_str("        </servicetimes>\n        <visits>\n");
    for (class, (_, visits)) in model.classes.iter().zip(rows) {
        let class = coded(&class.name);
        *text += &format!("          <visit customerclass=\"{class}\">{visits:?}</visit>\n");
    }
    *text += &format!("        </visits>\n      </{kind}>\n");
}

/// Speeds with 1, 2, … customers of a queue that is not of constant speed.
fn speeds(model: &Model, station: &Station) -> Result<Vec<f64>, JmvaError> {
    let plain = station.servers == 1 && station.rate_multipliers.is_empty();
    let closed = model.classes.iter().any(|class| !class.is_open());
    let equal = !closed && station.rate_multipliers.is_empty();
    if station.is_delay() || plain || equal {
        return Ok(Vec::new());
    }
    if !closed {
        // JMT knows a service time for each number of customers, up to the population.
        let what = "rates that depend on the number, without a closed class";
        return Err(JmvaError::NoPlace { what, at: station.name.clone() });
    }
    let listed = u64::try_from(station.rate_multipliers.len()).unwrap_or(u64::MAX);
    let known = station.servers.max(listed);
    let there: u64 = model.classes.iter().map(|class| class.population()).sum();
    let open = model.classes.iter().any(Class::is_open);
    let most = if open { known } else { there.max(1) };
    if most > MOST_ENTRIES {
        let what = "a load-dependent station with more than 10,000 customers";
        return Err(JmvaError::NoPlace { what, at: station.name.clone() });
    }
    Ok((1..=most).map(|n| station.rate_multiplier(n) / station.rate_multiplier(1)).collect())
}

fn check(station: &Station) -> Result<(), JmvaError> {
    let no_place = |what| Err(JmvaError::NoPlace { what, at: station.name.clone() });
    if station.capacity.is_some() {
        return no_place("a capacity");
    }
    if station.patience.is_some() || station.balking != Balking::Never {
        return no_place("impatience");
    }
    if station.fork.is_some() {
        return no_place("a fork");
    }
    let shared = matches!(station.discipline, Discipline::Ps | Discipline::LcfsPr | Discipline::Is);
    let insensitive = shared || station.is_delay();
    let times: Vec<f64> = station.demands.iter().flatten().map(|d| d.service.mean()).collect();
    let first = times.first().copied().unwrap_or(0.0);
    let alike = times.iter().all(|time| (time - first).abs() <= 1e-9 * first)
        && station.demands.iter().flatten().all(|d| d.service.is_exponential());
    let in_line = station.discipline == Discipline::Fcfs && alike;
    if insensitive || in_line {
        Ok(())
    } else {
        no_place("a discipline or services without product form")
    }
}

#[cfg(test)]
mod tests {
    use kendall_queueing::solver::{Solution, Solver, solve};

    use super::*;

    fn solved(text: &str) -> Solution {
        let read = read(text).unwrap();
        solve(&Model::read(&read.table).unwrap(), Solver::Auto).unwrap()
    }

    /// A document of closed classes and single servers; of each station its kind and, for each class,
    /// service time and visits.
    fn document(populations: &[u64], stations: &[(&str, &[(f64, f64)])]) -> String {
        let classes: Vec<String> = (0..)
            .zip(populations)
            .map(|(i, n)| format!("<closedclass name=\"c{i}\" population=\"{n}\"/>"))
            .collect();
        let rows = |part: &str, values: &mut dyn Iterator<Item = f64>| -> String {
            let row = |(i, value): (usize, f64)| {
                format!("<{part} customerclass=\"c{i}\">{value}</{part}>")
            };
            values.enumerate().map(row).collect()
        };
        let stations: Vec<String> = (0..)
            .zip(stations)
            .map(|(i, (kind, demands))| {
                let times = rows("servicetime", &mut demands.iter().map(|d| d.0));
                let visits = rows("visit", &mut demands.iter().map(|d| d.1));
                format!(
                    "<{kind} name=\"s{i}\"><servicetimes>{times}</servicetimes><visits>{visits}\
                     </visits></{kind}>"
                )
            })
            .collect();
        format!(
            "<?xml version=\"1.0\"?><model><parameters><classes number=\"1\">{}</classes><stations \
             number=\"1\">{}</stations></parameters></model>",
            classes.join(""),
            stations.join("")
        )
    }

    #[track_caller]
    fn near(have: f64, want: f64) {
        assert!((have - want).abs() <= 2e-6 * want.abs(), "{have} for {want}");
    }

    /// Values that JMVA stores with its example models.
    #[test]
    fn documents_have_the_answers_that_jmva_gives() {
        let one = |time: f64| vec![(time, 1.0)];
        let (think, a, b, c) = (one(15.0), one(2.1), one(1.35), one(0.605));
        let text = document(
            &[10],
            &[("delaystation", &think), ("listation", &a), ("listation", &b), ("listation", &c)],
        );
        let found = solved(&text);
        near(found.classes[0].throughput, 0.400_205);
        for (station, want) in
            found.stations.iter().zip([6.003_069, 2.656_17, 1.029_188, 0.311_573])
        {
            near(station.number[0], want);
        }
        // Of a station that is all there is JMVA states the throughput at it.
        let found = solved(&document(&[40], &[("listation", &[(0.277_269_24, 0.317_621_60)])]));
        near(found.stations[0].throughput[0], 3.606_602_8);
        near(found.stations[0].residence_time[0], 3.522_667_9);
    }

    /// JMT states the throughput of the system at the reference station, and its response time without that: a delay
    /// became a station whose time was response.
    #[test]
    fn a_request_is_a_visit_to_the_reference_station() {
        let referred = |text: &str| {
            let reference = "<ReferenceStation number='1'><Class name='c0' refStation='s0'/></ReferenceStation>";
            read(&text.replace("</stations>", &format!("</stations>{reference}"))).unwrap()
        };
        let solved = |read: &Jmva| solve(&Model::read(&read.table).unwrap(), Solver::Auto).unwrap();
        let stations: [(&str, &[(f64, f64)]); 4] = [
            ("delaystation", &[(15.0, 2.0)]),
            ("listation", &[(2.1, 2.0)]),
            ("listation", &[(1.35, 2.0)]),
            ("listation", &[(0.605, 2.0)]),
        ];
        let found = referred(&document(&[10], &stations));
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        let found = solved(&found);
        assert_eq!(found.stations.len(), 3);
        near(found.classes[0].throughput, 0.400_205);
        near(found.classes[0].number, 2.656_17 + 1.029_188 + 0.311_573);
        let found = referred(&document(&[40], &[("listation", &[(0.277_269_24, 0.317_621_60)])]));
        assert!(found.notes[0].contains("counts its reference station `s0`"), "{:?}", found.notes);
        let found = solved(&found);
        near(found.classes[0].throughput, 3.606_602_8);
        near(found.classes[0].system_response, 40.0 * 0.277_269_24);
        // Nobody there, and no other station: as it stands.
        for (text, says) in [
            (document(&[1], &[("listation", &[(1.0, 0.0)])]), "does not come to `s0`"),
            (document(&[1], &[("delaystation", &[(1.0, 1.0)])]), "counts its reference"),
        ] {
            let found = referred(&text);
            assert!(found.notes[0].contains(says), "{:?}", found.notes);
            assert_eq!(found.table["stations"].as_array().unwrap().len(), 1);
        }
    }

    #[test]
    fn what_is_written_is_solved_alike() {
        for text in [
            "population = 12\nthink_time_s = 2\nstations = [{ name = 'cpu', servers = 3, service_time_s \
             = 0.4, discipline = 'ps' }, { name = 'disk <1>', service_time_s = 0.1, visits = 2.5 }]",
            "arrival_rate_per_s = 2\nstations = [{ name = 'a', service_time_s = 0.1 }, { name = 'd', \
             type = 'delay', service_time_s = 1 }]\nroutes = [{ from = 'in', to = { a = 1 } }, { from = \
             'a', to = { a = 0.3, d = 0.7 } }, { from = 'd', to = { out = 1 } }]",
            "classes = [{ name = 'a', population = 3, think_time_s = 1 }, { name = 'b', \
             arrival_rate_per_s = 0.5 }]\nstations = [{ name = 'x', discipline = 'ps', service_time_s = \
             { a = 0.2, b = 0.4 } }, { name = 'y', service_time_s = 0.3 }]",
            "population = 9\nstations = [{ name = 'x', service_time_s = 0.2, rate_multipliers = [1, 1.8, \
             2.2] }, { name = 'y', service_time_s = 0.3 }]",
            "population = 2\nstations = [{ name = 'x', service_time_s = 0.2 }, { name = 'nobody', visits = 0, \
             service_time_s = 0.3 }]",
            "population = 20\nthink_time_s = 4\nstations = [{ name = 'x', service_time_s = 0.125, visits = 16 }, \
             { name = 'y', service_time_s = 0.3, visits = 10 }]",
            "population = 3\nstations = [{ name = 'd', type = 'delay', service_time_s = 1 }, { name = 'x', \
             service_time_s = 0.125, visits = 16 }]",
            "classes = [{ name = 'a', population = 3 }, { name = 'b', population = 2, think_time_s = 1 }]\n\
             stations = [{ name = 'x', discipline = 'ps', service_time_s = { a = 0.2 } }, { name = 'y', \
             discipline = 'ps', service_time_s = { a = 0.3, b = 0.5 } }]",
            "arrival_rate_per_s = 4\nstations = [{ name = 'x', service_time_s = 0.4, servers = 2 }]",
        ] {
            let model = Model::read(&text.parse().unwrap()).unwrap();
            let document = write(&model).unwrap();
            let again = read(&document).unwrap();
            let of_queues = |note: &String| note.contains("counts its reference station");
            assert!(again.notes.iter().all(of_queues), "{:?}", again.notes);
            let again = solve(&Model::read(&again.table).unwrap(), Solver::Auto).unwrap();
            let direct = solve(&model, Solver::Auto).unwrap();
            for (a, b) in again.classes.iter().zip(&direct.classes) {
                near(a.throughput, b.throughput);
                near(a.system_response, b.system_response);
            }
            assert_eq!(again.stations.len(), direct.stations.len(), "{document}");
            for (a, b) in again.stations.iter().rev().zip(direct.stations.iter().rev()) {
                for (a, b) in a.number.iter().zip(&b.number) {
                    near(*a, *b);
                }
            }
        }
    }

    #[test]
    fn documents_are_read_in_the_encoding_that_they_declare() {
        let of = |declared: &str, bytes: &[u8]| {
            let head = format!("<?xml version='1.0' encoding='{declared}'?><a b='");
            decoded([head.as_bytes(), bytes, b"'/>"].concat())
        };
        assert!(of("ISO-8859-1", b"G\xFCte").unwrap().contains("G\u{fc}te"));
        assert!(of("UTF-8", "G\u{fc}te".as_bytes()).unwrap().contains("G\u{fc}te"));
        for (declared, says) in [("UTF-8", "declare"), ("windows-1252", "iconv -f windows-1252")] {
            let error = of(declared, b"G\xFCte").unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let wide: Vec<u8> = "\u{feff}<a/>".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(decoded(wide).unwrap_err().to_string().contains("iconv -f UTF-16"));
    }

    /// A model of one class and station, and what stands behind its parameters.
    fn with(more: &str) -> String {
        format!(
            "<model><parameters><classes><closedclass name='c' population='2' \
             priority='3'/></classes><stations><listation name='s' \
             servers='2'><servicetimes><servicetime \
             customerclass='c'>1</servicetime></servicetimes></listation></stations></parameters>\
             {more}</model>"
        )
    }

    #[test]
    fn what_does_not_map_is_said_or_refused() {
        let found =
            read(&with("<algParams><algType name='CoMoM'/></algParams><whatIf/><solutions/>"));
        let notes = found.unwrap().notes.join("\n");
        let notes = notes
            + &read(&with("").replace("servers=", "severs='3' servers=")).unwrap().notes.join("\n");
        for said in
            ["priority", "CoMoM", "whatIf", "solutions", "attribute `severs` of <listation> `s`"]
        {
            assert!(notes.contains(said), "{notes}");
        }
        for (text, says) in [
            ("<sim/>".to_owned(), "<sim>"),
            ("<model/>".to_owned(), "<parameters>"),
            (with("").replace("population='2'", "population='2.5'"), "whole number"),
            (with("").replace("population='2'", ""), "population"),
            (with("").replace(">1<", ">one<"), "`one`"),
            (with("").replace("listation", "magicstation"), "expected <delaystation>"),
            (with("").replace("servers='2'", "servers='two'"), "two"),
            (with("").replace("customerclass='c'", "customerclass='d'"), "`d` is no class"),
            (
                with("").replace(
                    "</servicetimes>",
                    "<servicetime customerclass='c'>2</servicetime></servicetimes>",
                ),
                "two of class `c`",
            ),
            (
                with("").replace("<servicetime customerclass='c'>1</servicetime>", "").replace(
                    "</servicetimes>",
                    "</servicetimes><visits><visit customerclass='c'>2</visit></visits>",
                ),
                "visits of class `c`, which has no service time here",
            ),
            (with("").replace("</model>", ""), "never closed"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn errors_name_the_line_also_of_what_only_a_model_refuses() {
        let lines = with("").replace("><", ">\n<");
        let error = read(&lines.replace(">1<", ">one<")).unwrap_err().to_string();
        assert!(error.starts_with("line 9, column 1: <listation> `s`, class `c`: "), "{error}");
        let error = read(&lines.replace(" name='s'", "")).unwrap_err().to_string();
        assert!(error.starts_with("line 7, column 1: <listation>: has no"), "{error}");
        let found = read(&lines.replace(">1<", ">-1<")).unwrap();
        let refused = Model::read(&found.table).unwrap_err();
        assert_eq!(found.lines.find(refused.path().unwrap()), Some(7), "{refused}");
    }

    #[test]
    fn hostile_documents_are_read_or_refused() {
        // As many attributes as fit into a file: each is compared with all before it.
        let many: String = (0..300_000).map(|n| format!(" a{n}='1'")).collect();
        let many = with("").replacen("<model", &format!("<model{many}"), 1);
        assert_eq!(read(&many), Err(JmvaError::Attributes));
        let deep = "<a>".repeat(100_000);
        for text in ["", "a", "<a>", "<a></b>", "<a b></a>", "<a b='1/>", "<a/><b/>", "<!--", &deep]
        {
            assert!(matches!(read(text), Err(JmvaError::Xml(_))), "{text:.20}");
        }
        // Cut anywhere, or with any character changed, it is read or refused.
        let text = with("");
        for at in 0..text.len() {
            drop(read(&text[..at]));
            for other in ["<", ">", "\"", "'", "&", "9", "-", ";", ""] {
                let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
                if let Ok(found) = read(&changed) {
                    drop(Model::read(&found.table));
                }
            }
        }
    }

    #[test]
    fn models_that_jmva_has_no_place_for_are_not_written() {
        for text in [
            "arrival_rate_per_s = 1\nstations = [{ name = 'a', service_time_s = 0.1, capacity = 4 }]",
            "arrival_rate_per_s = 1\nstations = [{ name = 'a', service_time_s = 0.1, branches = 2 }]",
            "arrival_rate_per_s = 1\nstations = [{ name = 'a', service = { distribution = \
             'deterministic', mean_s = 0.1 } }]",
            "arrival_rate_per_s = 1\nstations = [{ name = 'a', service_time_s = 0.1 }]\npools = [{ name \
             = 'p', tokens = 1, stations = ['a'] }]",
        ] {
            let model = Model::read(&text.parse().unwrap()).unwrap();
            let error = write(&model).unwrap_err().to_string();
            assert!(error.contains("no place for"), "{error}");
        }
    }
}
