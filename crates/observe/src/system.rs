//! The system file: which tiers there are, who calls whom, and where their figures come from.

use std::collections::{BTreeMap, BTreeSet};

use kendall_queueing::model::MOST_SERVERS;
use kendall_units::parse_seconds;
use serde::Deserialize;

use crate::preset::{PRESETS, Preset, filled};
use crate::quantity::Quantity;

const MOST_TIERS: usize = 100;

const DAY_S: u64 = 86_400;

/// Where the requests of a tier wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Queues {
    /// One queue for all servers.
    #[default]
    One,
    /// A queue for each server: requests are divided before they wait, say by a hash of their key.
    Each,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// What it is called.
    pub name: String,
    /// m, where the file says it.
    pub servers: Option<u64>,
    /// A worker is held while the tiers below serve its request.
    pub held: bool,
    /// Another process tells of it, by its preset.
    pub aside: bool,
    /// Where its requests wait.
    pub queues: Queues,
    /// Tiers that it calls, as indices.
    pub calls: Vec<usize>,
    /// Queries, placeholders filled in.
    pub queries: BTreeMap<Quantity, String>,
    /// Those that the preset gave: they are about the same requests and servers.
    pub of_preset: BTreeSet<Quantity>,
}

impl Tier {
    /// Whether this query of a preset is one that recordings of older versions may lack, and that nothing else rests on.
    pub(crate) fn is_derived(&self, quantity: Quantity) -> bool {
        use Quantity::{Arrivals, Busy, ResponseTime, Throughput};
        let needed = matches!(quantity, Arrivals | Throughput | ResponseTime | Busy);
        !needed && self.of_preset.contains(&quantity)
    }

    /// What its `busy` counts, and so what its `servers` are.
    pub(crate) fn servers_are(&self) -> &'static str {
        self.queries.get(&Quantity::Busy).map_or("servers", |query| kinds_of_servers(query))
    }

    /// Whether a preset gives all of these.
    pub(crate) fn alike(&self, quantities: &[Quantity]) -> bool {
        quantities.iter().all(|quantity| self.of_preset.contains(quantity))
    }
}

/// What a query counts that gives CPU time.
pub(crate) const CORES: &str = "cores";

/// What a query for busy servers counts: CPU seconds per second are busy cores.
pub(crate) fn kinds_of_servers(busy: &str) -> &'static str {
    if busy.contains("cpu") { CORES } else { "workers" }
}

#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// What it is called.
    pub name: String,
    /// What is to be found out.
    pub question: Option<String>,
    /// Time between the moments that are queried.
    pub step_s: u64,
    /// Over how long rates are taken.
    pub window_s: u64,
    /// Distance of scrapes.
    pub scrape_s: u64,
    /// Steps of one window of the analysis.
    pub block_steps: usize,
    /// Length of a window, where the file says it; else they are as long as fits the load, at most.
    pub block_s: Option<u64>,
    /// Length of a day: shorter where time was compressed.
    pub day_s: u64,
    /// Unix time of a midnight.
    pub midnight_s: u64,
    /// Where requests come from outside.
    pub entry: usize,
    /// The tiers, entry first, then as they are called.
    pub tiers: Vec<Tier>,
    /// Address of the server, where the file says it.
    pub prometheus: Option<String>,
    /// Folder of a recording, relative to the file.
    pub recorded: Option<String>,
}

/// A system file that is refused.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// No TOML, or another key, or a value of another kind.
    #[error("line {line}: {what}")]
    Form { line: usize, what: String },
    #[error(
        "it is a study file, which `kendall run` takes; `kendall observe` takes a system file (docs/observe.md)"
    )]
    Study,
    #[error("{key}: {value} is refused; expected {expected}")]
    Refused { key: String, value: String, expected: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    name: String,
    question: Option<String>,
    entry: String,
    #[serde(default = "usual_step")]
    step: String,
    scrape: Option<String>,
    block: Option<String>,
    day: Option<String>,
    #[serde(default)]
    midnight: u64,
    prometheus: Option<String>,
    recorded: Option<String>,
    tiers: BTreeMap<String, WireTier>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTier {
    servers: Option<u64>,
    #[serde(default)]
    held: bool,
    #[serde(default)]
    queues: Queues,
    #[serde(default)]
    calls: Vec<String>,
    preset: Option<String>,
    #[serde(default)]
    selector: String,
    #[serde(default)]
    queries: BTreeMap<Quantity, String>,
}

fn usual_step() -> String {
    "15s".to_owned()
}

fn refused(
    key: impl Into<String>,
    value: impl Into<String>,
    expected: impl Into<String>,
) -> SystemError {
    SystemError::Refused { key: key.into(), value: value.into(), expected: expected.into() }
}

/// What is wrong with a text that is no system file.
fn form(text: &str, error: &toml::de::Error) -> SystemError {
    let tables: toml::Table = text.parse().unwrap_or_default();
    if !tables.contains_key("tiers") && tables.contains_key("system") {
        return SystemError::Study;
    }
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = 1 + before.matches('\n').count();
    SystemError::Form { line, what: error.message().trim().replace('\n', "; ") }
}

impl System {
    /// Refuses a tier of which nothing is asked; a table has columns in place of queries.
    pub fn queried(&self) -> Result<(), SystemError> {
        let asks = |tier: &&Tier| {
            [Quantity::Throughput, Quantity::Busy]
                .iter()
                .any(|quantity| tier.queries.contains_key(quantity))
        };
        self.tiers.iter().find(|tier| !asks(tier)).map_or(Ok(()), |tier| {
            let expected = "a preset, or queries for `throughput` or `busy` at least";
            Err(refused(format!("tiers.{}", tier.name), "no query", expected))
        })
    }

    /// Refuses a window that is no multiple of the step: it would have another length than the file says.
    pub fn whole_windows(&self) -> Result<(), SystemError> {
        let step_s = self.step_s;
        match self.block_s.filter(|block_s| block_s % step_s != 0 || *block_s < 2 * step_s) {
            None => Ok(()),
            Some(block_s) => {
                let expected = format!("a multiple of the step of {step_s} s, twice that at least");
                Err(refused("block", format!("{block_s} s"), expected))
            }
        }
    }

    /// Reads a system file.
    ///
    /// # Example
    /// ```
    /// let system = kendall_observe::System::parse(r#"
    /// name = "web"
    /// entry = "app"
    /// [tiers.app]
    /// servers = 4
    /// preset = "http"
    /// selector = 'job="app"'
    /// "#).unwrap();
    /// assert_eq!(system.tiers[0].name, "app");
    /// ```
    pub fn parse(text: &str) -> Result<Self, SystemError> {
        Self::parse_at(text, None)
    }

    /// Reads a system file for an analysis with another step than the file's; rates are taken over that step.
    pub fn parse_at(text: &str, step_s: Option<u64>) -> Result<Self, SystemError> {
        let wire: Wire = toml::from_str(text).map_err(|error| form(text, &error))?;
        let own_s = whole_seconds("step", &wire.step)?;
        let step_s = step_s.unwrap_or(own_s);
        let scrape = wire.scrape.clone().unwrap_or_else(|| wire.step.clone());
        let scrape_s = whole_seconds("scrape", &scrape)?;
        // Two samples at least are in any window of four scrapes, one missing scrape allowed.
        let window_s = step_s.max(4 * scrape_s);
        let block_s = wire.block.as_ref().map(|text| whole_seconds("block", text)).transpose()?;
        let block_steps = block_s.unwrap_or(3 * window_s.max(4 * step_s)).div_ceil(step_s).max(2);
        let block_steps = usize::try_from(block_steps).unwrap_or(usize::MAX);
        let day_s = wire.day.as_ref().map_or(Ok(DAY_S), |text| whole_seconds("day", text))?;
        if wire.tiers.is_empty() || wire.tiers.len() > MOST_TIERS {
            let expected = format!("1 to {MOST_TIERS} tiers");
            return Err(refused("tiers", wire.tiers.len().to_string(), expected));
        }
        let names = wire.tiers.keys().map(|tier| ("tiers", tier)).chain([("name", &wire.name)]);
        if let Some((key, name)) =
            names.into_iter().find(|(_, name)| !kendall_units::is_printable(name))
        {
            return Err(refused(key, format!("{name:?}"), "a name without control characters"));
        }
        let order = order(&wire)?;
        let tiers = order
            .iter()
            .map(|name| tier(name, &wire.tiers[name.as_str()], &order, window_s))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            name: wire.name,
            question: wire.question,
            step_s,
            window_s,
            scrape_s,
            block_steps,
            block_s,
            day_s,
            midnight_s: wire.midnight,
            entry: 0,
            tiers,
            prometheus: wire.prometheus,
            recorded: wire.recorded,
        })
    }
}

fn whole_seconds(key: &str, text: &str) -> Result<u64, SystemError> {
    let expected = "a time in whole seconds, such as `15s` or `1min`";
    let seconds = parse_seconds(text)
        .map_err(|error| refused(key, format!("`{text}` ({error})"), expected))?;
    let nanoseconds = seconds.as_nanos();
    if nanoseconds == 0 || nanoseconds % 1_000_000_000 != 0 {
        return Err(refused(key, format!("`{text}`"), expected));
    }
    Ok(nanoseconds / 1_000_000_000)
}

/// Names of the tiers: the entry, then those that are called, in the order in which they are met.
fn order(wire: &Wire) -> Result<Vec<String>, SystemError> {
    let known = || wire.tiers.keys().cloned().collect::<Vec<_>>().join(", ");
    if !wire.tiers.contains_key(&wire.entry) {
        let expected = format!("one of the tiers: {}", known());
        return Err(refused("entry", format!("`{}`", wire.entry), expected));
    }
    let mut order = vec![wire.entry.clone()];
    let mut next = 0;
    while let Some(name) = order.get(next).cloned() {
        next += 1;
        for called in &wire.tiers[&name].calls {
            let key = format!("tiers.{name}.calls");
            if !wire.tiers.contains_key(called) {
                return Err(refused(key, format!("`{called}`"), format!("one of: {}", known())));
            }
            if reaches(wire, called, &name) {
                let expected = "tiers that do not call back, directly or through others";
                return Err(refused(key, format!("`{called}`"), expected));
            }
            if !order.contains(called) {
                order.push(called.clone());
            }
        }
    }
    if let Some(lost) = wire.tiers.keys().find(|name| !order.contains(name)) {
        let expected = format!("to be called by another tier, or to be the entry `{}`", wire.entry);
        return Err(refused(format!("tiers.{lost}"), "called by no tier", expected));
    }
    Ok(order)
}

/// Whether `from` calls `to`, directly or through others.
fn reaches(wire: &Wire, from: &str, to: &str) -> bool {
    let mut seen: Vec<&str> = vec![from];
    let mut next = 0;
    while let Some(name) = seen.get(next).copied() {
        next += 1;
        if name == to {
            return true;
        }
        for called in wire.tiers.get(name).into_iter().flat_map(|tier| &tier.calls) {
            if !seen.contains(&called.as_str()) {
                seen.push(called);
            }
        }
    }
    false
}

fn tier(name: &str, wire: &WireTier, order: &[String], window_s: u64) -> Result<Tier, SystemError> {
    let window = format!("{window_s}s");
    let (mut queries, mut of_preset) = (BTreeMap::new(), BTreeSet::new());
    let preset = wire.preset.as_ref().map(|preset| find_preset(name, preset)).transpose()?;
    if let Some(preset) = preset {
        for (quantity, template) in preset.queries() {
            queries.insert(quantity, filled(&template, &wire.selector, &window));
            of_preset.insert(quantity);
        }
        if let Some(template) = preset.each().filter(|_| wire.queues == Queues::Each) {
            queries.insert(Quantity::Each, filled(&template, &wire.selector, &window));
            of_preset.insert(Quantity::Each);
        }
    }
    // A recording repeats all of its preset; `busy` alone is written to say what the servers are.
    let is_recorded = of_preset.iter().all(|quantity| wire.queries.contains_key(quantity));
    for (quantity, template) in &wire.queries {
        let query = filled(template, &wire.selector, &window);
        let is_chosen = *quantity == Quantity::Busy && !is_recorded;
        if queries.insert(*quantity, query.clone()) != Some(query) || is_chosen {
            of_preset.remove(quantity);
        }
    }
    if let Some(servers) = wire.servers.filter(|m| !(1..=MOST_SERVERS).contains(m)) {
        let (key, servers) = (format!("tiers.{name}.servers"), servers.to_string());
        return Err(refused(key, servers, "1 to 1e9"));
    }
    if wire.held && wire.queues == Queues::Each {
        let expected = "`one` for a tier whose servers are held";
        return Err(refused(format!("tiers.{name}.queues"), "`each`", expected));
    }
    if queries.contains_key(&Quantity::Each) && wire.queues == Queues::One {
        let key = format!("tiers.{name}.queries.each");
        return Err(refused(
            key,
            "a query",
            "`queues = \"each\"` beside it: servers with one queue share all requests",
        ));
    }
    let calls =
        wire.calls.iter().filter_map(|called| order.iter().position(|n| n == called)).collect();
    let (servers, held, queues) = (wire.servers, wire.held, wire.queues);
    let aside = preset.is_some_and(|preset| preset.aside);
    Ok(Tier { name: name.to_owned(), servers, held, aside, queues, calls, queries, of_preset })
}

fn find_preset(tier: &str, name: &str) -> Result<&'static Preset, SystemError> {
    PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
        let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name.as_str()).collect();
        refused(
            format!("tiers.{tier}.preset"),
            format!("`{name}`"),
            format!("one of: {}", known.join(", ")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        System::parse(text).unwrap_err().to_string()
    }

    const TWO: &str = "name = 'x'\nentry = 'zfront'\nstep = '5s'\nscrape = '1s'\n\
        [tiers.aback]\npreset = 'kendall'\nselector = 'job=\"b\"'\n\
        [tiers.zfront]\npreset = 'kendall'\ncalls = ['aback']\nheld = true\nservers = 8\n";

    #[test]
    fn names_that_no_page_can_show_are_refused() {
        for bad in ["\\u0000", "\\u001b[2J", "\\uFFFE", "\\uFFFF"] {
            for text in [
                TWO.replace("'x'", &format!("\"x{bad}\"")),
                TWO.replace("tiers.aback", &format!("tiers.\"a{bad}\"")),
            ] {
                let error = System::parse(&text).unwrap_err().to_string();
                assert!(error.contains("control characters"), "{bad}: {error}");
            }
        }
    }

    #[test]
    fn the_entry_comes_first_whatever_the_alphabet_says() {
        let system = System::parse(TWO).unwrap();
        let names: Vec<&str> = system.tiers.iter().map(|tier| tier.name.as_str()).collect();
        assert_eq!(names, ["zfront", "aback"]);
        assert_eq!(system.tiers[0].calls, [1]);
        assert_eq!((system.step_s, system.window_s), (5, 5));
        assert!(system.tiers[1].queries[&Quantity::Throughput].contains("{job=\"b\"}[5s]"));
    }

    #[test]
    fn a_preset_tells_servers_apart_where_each_has_a_queue() {
        let each = |text: &str| {
            let tiers = System::parse(text).unwrap().tiers;
            tiers[1].queries.get(&Quantity::Each).cloned()
        };
        assert_eq!(each(TWO), None);
        let said = each(&TWO.replace("'job=\"b\"'", "'job=\"b\"'\nqueues = 'each'")).unwrap();
        assert!(
            said.starts_with("sum by (instance) (rate(") && said.contains("{job=\"b\"}[5s]"),
            "{said}"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_key() {
        let cases = [
            (TWO.replace("'zfront'\n", "'front'\n"), "entry: `front`"),
            (TWO.replace("['aback']", "['abak']"), "tiers.zfront.calls: `abak`"),
            (TWO.replace("calls = ['aback']\n", ""), "tiers.aback: called by no tier"),
            (TWO.replace("servers = 8", "servers = 0"), "tiers.zfront.servers: 0"),
            (TWO.replace("servers = 8", "servers = 20000000000000000"), "expected 1 to 1e9"),
            (TWO.replace("'kendall'\ncalls", "'kendal'\ncalls"), "tiers.zfront.preset: `kendal`"),
            (TWO.replace("'5s'", "'0.5s'"), "step: `0.5s`"),
            (TWO.replace("selector", "selektor"), "unknown field `selektor`"),
            (
                TWO.replace("held = true", "held = true\nqueries.each = 'x'"),
                "tiers.zfront.queries.each",
            ),
            (
                TWO.replace("held = true", "held = true\nqueues = 'each'"),
                "tiers.zfront.queues: `each`",
            ),
            (
                TWO.replace("[tiers.aback]\n", "[tiers.aback]\ncalls = ['zfront']\n"),
                "do not call back",
            ),
        ];
        for (text, expected) in cases {
            let said = refusal(&text);
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
}
