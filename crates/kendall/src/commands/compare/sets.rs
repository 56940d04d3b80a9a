//! Result sets to compare: from folders of results, and from tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kendall_report::comparison::{ComparedSet, Difference, DifferenceKind};
use kendall_stats::compare::{Better, Samples};
use kendall_stats::estimate::{Caveat, percent};
use kendall_store::{Measured, Results, Run, StoreError};
use kendall_units::exact_f64;

use crate::csv::Csv;
use crate::exit::{Exit, exit_with};

/// Requests beyond a percentile below which one run says nothing about it, even if they were
/// independent.
const REQUESTS_BEYOND: f64 = 5.0;

/// A response variable of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Metric {
    Throughput,
    ResponseTimeMean,
    /// From 0 to 1.
    ResponseTimePercentile(f64),
}

impl Metric {
    pub(super) fn usual() -> Vec<Self> {
        vec![Self::Throughput, Self::ResponseTimeMean, Self::ResponseTimePercentile(0.99)]
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let percentile = || {
            let percent: f64 = text.strip_prefix("response_time_p")?.parse().ok()?;
            (percent > 0.0 && percent < 100.0)
                .then_some(Self::ResponseTimePercentile(percent / 100.0))
        };
        match text {
            "throughput" => Ok(Self::Throughput),
            "response_time_mean" => Ok(Self::ResponseTimeMean),
            _ => percentile().ok_or_else(|| {
                format!(
                    "`{text}` is not a metric; there are throughput, response_time_mean and \
                     percentiles such as response_time_p50, response_time_p99.9"
                )
            }),
        }
    }

    /// Its name with the unit: requests per second, or seconds.
    fn name(&self) -> String {
        match self {
            Self::Throughput => "throughput_per_s".to_owned(),
            Self::ResponseTimeMean => "response_time_mean_s".to_owned(),
            Self::ResponseTimePercentile(quantile) => {
                format!("response_time_p{}_s", percent(*quantile))
            }
        }
    }

    fn better(&self) -> Better {
        match self {
            Self::Throughput => Better::Higher,
            Self::ResponseTimeMean | Self::ResponseTimePercentile(_) => Better::Lower,
        }
    }

    /// `None` where the run does not have it.
    fn of(&self, measured: &Measured) -> Option<f64> {
        let times = &measured.response_time;
        match self {
            Self::Throughput => Some(measured.throughput_per_s),
            Self::ResponseTimeMean => times.mean().map(|ns| ns / 1e9),
            Self::ResponseTimePercentile(quantile) => {
                let beyond = exact_f64(times.count()) * (1.0 - quantile);
                let value = times.quantile(*quantile)?;
                (beyond >= REQUESTS_BEYOND).then(|| exact_f64(value) / 1e9)
            }
        }
    }
}

/// When a block was measured, in nanoseconds of the wall clock.
type Span = (u64, u64);

/// Blocks and responses of one configuration and metric.
#[derive(Debug, Clone)]
struct Responses {
    better: Better,
    values: Vec<(Option<String>, f64)>,
}

/// Values of settings or of an environment, by dotted key.
type Values = BTreeMap<String, BTreeSet<String>>;

/// One side of a comparison.
#[derive(Debug, Clone, Default)]
pub(super) struct ResultSet {
    name: String,
    title: String,
    /// Runs that are used, and those that failed or were rejected.
    runs: (u64, u64),
    started_unix_ns: Option<u64>,
    /// Levels of each factor; empty for a table.
    factors: Values,
    /// All effective values that are no factors.
    settings: Values,
    /// Machine, kernel, versions.
    environment: Values,
    /// By configuration and metric.
    responses: BTreeMap<(String, String), Responses>,
    /// The keys of `responses` in the order in which they are shown.
    order: Vec<(String, String)>,
    /// When each block was measured; `None` where that is not known.
    blocks: Option<BTreeMap<String, Span>>,
    caveats: Vec<Caveat>,
}

pub(super) fn table(path: &Path, better: Better) -> anyhow::Result<ResultSet> {
    let refuse = |error| exit_with(Exit::Refused, error);
    let csv = Csv::read(path).map_err(refuse)?;
    let (configuration, value) =
        (csv.column("configuration").map_err(refuse)?, csv.column("value").map_err(refuse)?);
    let block = csv.find("block");
    let mut order = Vec::new();
    let mut responses: BTreeMap<(String, String), Responses> = BTreeMap::new();
    for row in &csv.rows {
        let Some(number) = csv.number(row, value).map_err(refuse)? else { continue };
        let key = (row.1[configuration].clone(), "value".to_owned());
        if !order.contains(&key) {
            order.push(key.clone());
        }
        let entry = responses.entry(key).or_insert(Responses { better, values: Vec::new() });
        entry.values.push((block.map(|column| row.1[column].clone()), number));
    }
    let name = path.display().to_string();
    let runs = (count(csv.rows.len()), 0);
    Ok(ResultSet { name, runs, responses, order, ..ResultSet::default() })
}

fn count(number: usize) -> u64 {
    kendall_units::whole_u64(exact_f64(number))
}

/// One level of a factor, to take out of a study.
#[derive(Debug, Clone, Copy)]
pub(super) struct Only<'a> {
    pub(super) factor: &'a str,
    pub(super) level: &'a str,
}

impl Only<'_> {
    /// Refuses a level that no run has, naming those that there are.
    fn check(self, path: &Path, runs: &[Run]) -> anyhow::Result<()> {
        let levels: BTreeSet<&str> = runs
            .iter()
            .filter_map(|run| run.factor(self.factor))
            .map(|level| level.text.as_str())
            .collect();
        if levels.contains(self.level) {
            return Ok(());
        }
        let there = if levels.is_empty() {
            let factors: BTreeSet<&str> =
                runs.iter().flat_map(|run| &run.factors).map(|l| l.factor.as_str()).collect();
            let factors: Vec<&str> = factors.into_iter().collect();
            format!("it varies {}", factors.join(", "))
        } else {
            let levels: Vec<&str> = levels.into_iter().collect();
            format!("there are {}", levels.join(", "))
        };
        let Self { factor, level } = self;
        let refusal = anyhow::anyhow!("{} has no level {factor}={level}; {there}", path.display());
        Err(exit_with(Exit::Refused, refusal))
    }
}

/// A folder of results, or the runs of one level of one of its factors.
pub(super) fn folder(
    path: &Path,
    metrics: &[Metric],
    only: Option<Only<'_>>,
) -> anyhow::Result<ResultSet> {
    let refuse = |error: StoreError| {
        let exit = match &error {
            StoreError::Missing { .. } | StoreError::Newer { .. } | StoreError::Corrupt { .. } => {
                Exit::Refused
            }
            _ => Exit::NotReady,
        };
        exit_with(exit, anyhow::Error::new(error).context(path.display().to_string()))
    };
    let results = Results::open(path).map_err(refuse)?;
    let mut responses: BTreeMap<(String, String), Responses> = BTreeMap::new();
    let mut blocks: BTreeMap<String, Span> = BTreeMap::new();
    let mut caveats = Vec::new();
    let mut runs = results.latest_runs().map_err(refuse)?;
    let mut name = path.display().to_string();
    if let Some(only) = only {
        only.check(path, &runs)?;
        let of_level = |run: &Run| run.factor(only.factor).is_some_and(|l| l.text == only.level);
        runs.retain(of_level);
        for run in &mut runs {
            run.factors.retain(|level| level.factor != only.factor);
        }
        name = format!("{name} ({}={})", only.factor, only.level);
    }
    let usable: Vec<&Run> = runs.iter().filter(|run| run.is_usable()).collect();
    let mut set = ResultSet {
        name,
        title: results.study().map_err(refuse)?.title,
        runs: (count(usable.len()), count(runs.len() - usable.len())),
        started_unix_ns: runs.iter().map(|run| run.started_unix_ns).min(),
        ..ResultSet::default()
    };
    for run in &usable {
        set.describe(run);
        let measured = results.measured(run.id).map_err(refuse)?;
        let block = run.repetition.to_string();
        let span = blocks.entry(block.clone()).or_insert((run.started_unix_ns, run.ended_unix_ns));
        *span = (span.0.min(run.started_unix_ns), span.1.max(run.ended_unix_ns));
        for metric in metrics {
            let key = (configuration(run), metric.name());
            if !set.order.contains(&key) {
                set.order.push(key.clone());
            }
            let better = metric.better();
            let entry = responses.entry(key).or_insert(Responses { better, values: Vec::new() });
            match metric.of(&measured) {
                Some(value) => entry.values.push((Some(block.clone()), value)),
                None => caveats.push(too_few(run, metric, &measured)),
            }
        }
    }
    caveats.extend(doubts(&set.name, &usable));
    if set.runs.1 > 0 {
        caveats.push(Caveat::RunsFailed { failed: set.runs.1, runs: set.runs.0 + set.runs.1 });
    }
    responses.retain(|_, one| !one.values.is_empty());
    Ok(ResultSet { responses, blocks: Some(blocks), caveats, ..set })
}

impl ResultSet {
    /// Notes what a run was made with.
    fn describe(&mut self, run: &Run) {
        for level in &run.factors {
            let levels = self.factors.entry(level.factor.clone()).or_default();
            levels.insert(level.text.clone());
        }
        flatten("", &run.settings, &mut self.settings);
        self.settings.retain(|key, _| !self.factors.contains_key(key));
        flatten("", &run.environment, &mut self.environment);
    }

    /// For the page.
    pub(super) fn described(&self) -> ComparedSet {
        ComparedSet {
            name: self.name.clone(),
            title: self.title.clone(),
            usable_runs: self.runs.0,
            unusable_runs: self.runs.1,
            started_unix_ns: self.started_unix_ns,
        }
    }

    /// `workload.clients (2, 4)`; why there is nothing where there is none.
    pub(super) fn factors_in_words(&self) -> String {
        if self.runs.0 == 0 {
            return format!("{} has no usable run ({} failed or rejected)", self.name, self.runs.1);
        }
        let factors: Vec<String> = self
            .factors
            .iter()
            .map(|(key, levels)| format!("{key} ({})", joined(levels)))
            .collect();
        match factors.as_slice() {
            [] => format!("{} varies nothing", self.name),
            factors => format!("{} varies {}", self.name, factors.join(", ")),
        }
    }
}

/// Doubts of the runs, once a kind: the first with its figures, and how many runs carry it.
fn doubts(set: &str, runs: &[&Run]) -> Vec<Caveat> {
    let of = count(runs.len());
    Caveat::by_kind(runs.iter().map(|run| run.caveats.as_slice()))
        .into_iter()
        .map(|(caveat, runs)| {
            let (what, set) = (Box::new(caveat.clone()), Some(set.to_owned()));
            Caveat::InRuns { what, runs, of, set }
        })
        .collect()
}

/// Leaves of a JSON value, by dotted path.
fn flatten(path: &str, value: &serde_json::Value, into: &mut Values) {
    let leaf = match value {
        serde_json::Value::Object(members) => {
            for (key, member) in members {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&path, member, into);
            }
            return;
        }
        serde_json::Value::Null => return,
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    into.entry(path.to_owned()).or_default().insert(leaf);
}

fn joined(values: &BTreeSet<String>) -> String {
    const MOST: usize = 4;
    let shown: Vec<&str> = values.iter().take(MOST).map(String::as_str).collect();
    let more = if values.len() > MOST { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// Items of the environment that tell programs apart, not machines.
const PROGRAM: [&str; 2] = ["kendall_version", "revision"];

/// The order of the runs may differ.
const SEED: &str = "seed";

/// Settings and environments that are not the same. Tables know neither.
pub(super) fn differences(before: &ResultSet, after: &ResultSet) -> Vec<Difference> {
    if before.blocks.is_none() || after.blocks.is_none() {
        return Vec::new();
    }
    let kind_of_setting = |key: &str| {
        if key.starts_with("system.") { DifferenceKind::Subject } else { DifferenceKind::Condition }
    };
    let kind_of_item = |key: &str| {
        if PROGRAM.contains(&key) { DifferenceKind::Subject } else { DifferenceKind::Condition }
    };
    let varied = |key: &str| before.factors.contains_key(key) || after.factors.contains_key(key);
    let mut differences = differing(&before.settings, &after.settings, kind_of_setting);
    differences.retain(|one| !varied(&one.what));
    differences.extend(differing(&before.environment, &after.environment, kind_of_item));
    differences.retain(|one| one.what != SEED);
    differences.sort_by_key(|one| std::cmp::Reverse(one.kind));
    differences
}

fn differing(
    before: &Values,
    after: &Values,
    kind: impl Fn(&str) -> DifferenceKind,
) -> Vec<Difference> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let text = |values: &Values, key: &str| {
        values.get(key).map_or_else(|| "not stated".to_owned(), joined)
    };
    keys.into_iter()
        .filter(|key| before.get(*key) != after.get(*key))
        .map(|key| Difference {
            kind: kind(key),
            what: key.clone(),
            before: text(before, key),
            after: text(after, key),
        })
        .collect()
}

fn too_few(run: &Run, metric: &Metric, measured: &Measured) -> Caveat {
    match metric {
        Metric::ResponseTimePercentile(quantile) => Caveat::TooFewSamples {
            quantile: *quantile,
            effective: exact_f64(measured.response_time.count()),
            need: REQUESTS_BEYOND / (1.0 - quantile),
        },
        _ => Caveat::Note { text: format!("run {} has no {}", run.id.0, metric.name()) },
    }
}

/// Levels of the factors, in the words of the study file.
fn configuration(run: &Run) -> String {
    if run.factors.is_empty() {
        return "the one configuration".to_owned();
    }
    let levels: Vec<String> =
        run.factors.iter().map(|level| format!("{}={}", level.factor, level.text)).collect();
    levels.join(", ")
}

/// What both sets have, and doubts about the rest.
pub(super) fn matched(before: &ResultSet, after: &ResultSet) -> (Vec<Samples>, Vec<Caveat>) {
    let mut caveats: Vec<Caveat> = before.caveats.iter().chain(&after.caveats).cloned().collect();
    caveats.dedup();
    for (set, other) in [(before, after), (after, before)] {
        for (factor, levels) in &set.factors {
            if !other.responses.is_empty() && !other.factors.contains_key(factor) {
                let (set, levels) = (&set.name, joined(levels));
                let text = format!("{factor} is varied in {set} only ({levels})");
                caveats.push(Caveat::Note { text });
            }
        }
        let alone = set.responses.keys().filter(|key| !other.responses.contains_key(*key)).count();
        if alone > 0 {
            let names: Vec<&str> = set
                .responses
                .keys()
                .filter(|key| !other.responses.contains_key(*key))
                .map(|(configuration, _)| configuration.as_str())
                .collect::<BTreeSet<&str>>()
                .into_iter()
                .take(3)
                .collect();
            let text = format!(
                "{alone} of the comparisons that {} allows have no counterpart in {} and are left \
                 out: {}{}",
                set.name,
                other.name,
                names.join("; "),
                if alone > names.len() { "; …" } else { "" }
            );
            caveats.push(Caveat::Note { text });
        }
    }
    let samples = before
        .order
        .iter()
        .filter_map(|key| {
            let (first, second) = (before.responses.get(key)?, after.responses.get(key)?);
            Some(Samples {
                configuration: key.0.clone(),
                metric: key.1.clone(),
                better: first.better,
                before: first.values.clone(),
                after: second.values.clone(),
            })
        })
        .collect();
    (samples, caveats)
}

/// Whether blocks of the two sets were measured side by side: in the order of time, the two of each
/// block follow each other. Tables have no times: naming blocks says that they pair.
pub(super) fn side_by_side(before: &ResultSet, after: &ResultSet) -> Result<(), String> {
    let (Some(first), Some(second)) = (&before.blocks, &after.blocks) else {
        let named = |set: &ResultSet| {
            set.responses.values().flat_map(|one| &one.values).all(|(block, _)| block.is_some())
        };
        return if named(before) && named(after) {
            Ok(())
        } else {
            Err("the tables have no column `block`".to_owned())
        };
    };
    let middle = |span: &Span| span.0 / 2 + span.1 / 2;
    let mut order: Vec<(u64, &String)> =
        first.iter().chain(second).map(|(block, span)| (middle(span), block)).collect();
    order.sort_unstable();
    let in_turns = first.keys().eq(second.keys())
        && order.chunks(2).all(|pair| pair.first().map(|p| p.1) == pair.last().map(|p| p.1));
    if first.len() > 1 && in_turns {
        return Ok(());
    }
    Err("the two sets were measured one after the other, so what changed on the machine in \
         between poses as a difference; run them in turns, block by block"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(spans: &[(&str, Span)]) -> ResultSet {
        ResultSet {
            name: "set".to_owned(),
            blocks: Some(spans.iter().map(|(name, span)| ((*name).to_owned(), *span)).collect()),
            ..ResultSet::default()
        }
    }

    #[test]
    fn blocks_pair_only_when_they_alternate_in_time() {
        let a = set(&[("1", (0, 10)), ("2", (20, 30)), ("3", (40, 50))]);
        let in_turns = set(&[("1", (10, 20)), ("2", (30, 40)), ("3", (50, 60))]);
        let afterwards = set(&[("1", (60, 70)), ("2", (80, 90)), ("3", (100, 110))]);
        assert!(side_by_side(&in_turns, &a).is_ok() && side_by_side(&a, &in_turns).is_ok());
        assert!(side_by_side(&a, &afterwards).is_err());
    }

    #[test]
    fn metrics_are_read_and_named_with_their_unit() {
        let metric = Metric::parse("response_time_p99.9").unwrap();
        assert_eq!(metric.name(), "response_time_p99.9_s");
        for text in ["latency", "response_time_p0", "response_time_p100", "response_time_px"] {
            assert!(Metric::parse(text).is_err(), "{text}");
        }
    }
}
