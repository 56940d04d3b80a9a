//! Result sets to compare: from folders of results, and from tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kendall_observations::{Configuration, Observations, Variable};
use kendall_report::comparison::{ComparedSet, Difference, DifferenceKind};
use kendall_stats::compare::{Better, Comparison, Quantity, Samples, change};
use kendall_stats::covariate::{Measured, at_one_value};
use kendall_stats::estimate::{Caveat, Estimate, figures};
use kendall_store::{FactorLevel, Results, Run, StoreError};
use kendall_units::exact_f64;

use crate::csv::Csv;
use crate::exit::{Exit, exit_with, refused};

pub(super) fn usual_variables() -> Vec<Variable> {
    vec![Variable::Throughput, Variable::ResponseTimeMean, Variable::ResponseTimePercentile(0.99)]
}

pub(super) fn parse_variable(text: &str) -> Result<Variable, String> {
    let percentile = || {
        let percent: f64 = text.strip_prefix("response_time_p")?.parse().ok()?;
        (percent > 0.0 && percent < 100.0)
            .then_some(Variable::ResponseTimePercentile(percent / 100.0))
    };
    match text {
        "throughput" => Ok(Variable::Throughput),
        "response_time_mean" => Ok(Variable::ResponseTimeMean),
        "cpu_time_per_request" => Ok(Variable::CpuTime),
        _ => percentile().ok_or_else(|| {
            format!(
                "`{text}` is not a metric; there are throughput, response_time_mean, \
                 percentiles such as response_time_p50, response_time_p99.9, and cpu_time_per_request"
            )
        }),
    }
}

fn better(variable: Variable) -> Better {
    match variable {
        Variable::Throughput => Better::Higher,
        Variable::ResponseTimeMean | Variable::ResponseTimePercentile(_) | Variable::CpuTime => {
            Better::Lower
        }
    }
}

/// A configuration and a response variable, by their names.
pub(super) type Key = (String, String);

/// When a block was measured, in nanoseconds of the wall clock.
type Span = (u64, u64);

/// Blocks and responses of one configuration and metric.
#[derive(Debug, Clone)]
struct Responses {
    quantity: Quantity,
    better: Better,
    values: Vec<(Option<String>, f64)>,
    /// The number over all runs that is shown everywhere; `None` for tables.
    shown: Option<Estimate>,
}

/// A response variable that some runs of a configuration do not have.
#[derive(Debug, Clone)]
struct Refused {
    runs: u64,
    of: u64,
    /// Why the first of them does not.
    why: Caveat,
    /// Over all runs together, where they have it.
    shown: Option<Estimate>,
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
    /// All effective values that are not factors.
    settings: Values,
    environment: Values,
    /// By configuration and metric.
    responses: BTreeMap<Key, Responses>,
    /// What is not compared, since some of its runs do not have it.
    refused: BTreeMap<Key, Refused>,
    /// The keys of `responses` in the order in which they are shown.
    order: Vec<Key>,
    /// Time of the speed probe of each run that has one, by configuration: block, seconds.
    speeds: BTreeMap<String, Vec<(String, f64)>>,
    /// When each block was measured; `None` where that is not known.
    blocks: Option<BTreeMap<String, Span>>,
    caveats: Vec<Caveat>,
}

pub(super) fn table(path: &Path, better: Better) -> anyhow::Result<ResultSet> {
    let csv = Csv::read(path)?;
    let (configuration, value) = (csv.column("configuration")?, csv.column("value")?);
    let block = csv.find("block");
    let mut order = Vec::new();
    let mut responses: BTreeMap<Key, Responses> = BTreeMap::new();
    for row in &csv.rows {
        let Some(number) = csv.number(row, value)? else { continue };
        let key = (row.1[configuration].clone(), "value".to_owned());
        if !order.contains(&key) {
            order.push(key.clone());
        }
        let entry = responses.entry(key);
        let quantity = Quantity::Number;
        let none = Responses { quantity, better, values: Vec::new(), shown: None };
        let entry = entry.or_insert(none);
        entry.values.push((block.map(|column| row.1[column].clone()), number));
    }
    let name = path.display().to_string();
    let runs = (count(csv.rows.len()), 0);
    Ok(ResultSet { name, runs, responses, order, ..ResultSet::default() })
}

fn count(number: usize) -> u64 {
    kendall_units::whole_u64(exact_f64(number))
}

/// What a comparison comes to at one speed of the machine, beside what was measured.
pub(super) fn at_one_speed(before: &ResultSet, after: &ResultSet, one: &mut Comparison) {
    let key = (one.configuration.clone(), one.metric.clone());
    let (Some(plain), Some(first), Some(second)) =
        (&one.ratio, before.with_speeds(&key), after.with_speeds(&key))
    else {
        return;
    };
    let confidence = plain.interval.map_or(0.95, |interval| interval.confidence);
    one.at_one_speed = at_one_value(&first, &second, one.paired, plain, confidence);
    if let Some(found) = &one.at_one_speed {
        let Some(interval) = found.ratio.interval else { return };
        one.caveats.push(Caveat::Note {
            text: format!(
                "at one speed of the machine, by the probe of each run, the change is {} [{}, {}] %: an \
                 interval {:.1} times narrower; all other numbers are as measured",
                change(found.ratio.center),
                change(interval.low),
                change(interval.high),
                found.narrower
            ),
        });
    }
}

/// One level of a factor, to take out of a study.
#[derive(Debug, Clone, Copy)]
pub(super) struct Only<'a> {
    pub(super) factor: &'a str,
    pub(super) level: &'a str,
}

impl Only<'_> {
    fn is_of(self, levels: &[FactorLevel]) -> bool {
        levels.iter().any(|level| level.factor == self.factor && level.text == self.level)
    }

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
        Err(refused(refusal))
    }
}

/// A folder of results, or the runs of one level of one of its factors.
pub(super) fn folder(
    path: &Path,
    variables: &[Variable],
    only: Option<Only<'_>>,
) -> anyhow::Result<ResultSet> {
    let refuse = |error: StoreError| {
        let exit = Exit::of_results(&error);
        exit_with(exit, anyhow::Error::new(error).context(path.display().to_string()))
    };
    let results = Results::open(path).map_err(refuse)?;
    let mut runs = results.latest_runs().map_err(refuse)?;
    let mut name = path.display().to_string();
    if let Some(only) = only {
        only.check(path, &runs)?;
        runs.retain(|run| only.is_of(&run.factors));
        name = format!("{name} ({}={})", only.factor, only.level);
    }
    let usable: Vec<&Run> = runs.iter().filter(|run| run.is_usable()).collect();
    let quantiles: Vec<f64> = variables
        .iter()
        .filter_map(|variable| match variable {
            Variable::ResponseTimePercentile(quantile) => Some(*quantile),
            _ => None,
        })
        .collect();
    let observations = Observations::read_with(&results, &quantiles).map_err(refuse)?;
    let mut set = ResultSet {
        name,
        title: observations.study.title.clone(),
        runs: (count(usable.len()), count(runs.len() - usable.len())),
        started_unix_ns: runs.iter().map(|run| run.started_unix_ns).min(),
        blocks: Some(BTreeMap::new()),
        ..ResultSet::default()
    };
    let of_set = observations
        .configurations
        .iter()
        .filter(|configuration| only.is_none_or(|only| only.is_of(&configuration.levels)));
    for configuration in of_set {
        set.add(configuration, variables, only);
    }
    set.caveats.extend(doubts(&set.name, &usable));
    if set.runs.1 > 0 {
        set.caveats.push(Caveat::RunsFailed { failed: set.runs.1, runs: set.runs.0 + set.runs.1 });
    }
    Ok(set)
}

impl ResultSet {
    /// Adds all runs of a configuration.
    fn add(
        &mut self,
        configuration: &Configuration,
        variables: &[Variable],
        only: Option<Only<'_>>,
    ) {
        let left_out = |factor: &str| only.is_some_and(|only| only.factor == factor);
        let levels: Vec<&FactorLevel> =
            configuration.levels.iter().filter(|level| !left_out(&level.factor)).collect();
        for repetition in &configuration.repetitions {
            self.describe(&repetition.run, &levels);
            if let Some(unit_ns) = repetition.run.speed_unit_ns {
                let speeds = self.speeds.entry(in_words(&levels)).or_default();
                speeds.push((block(&repetition.run), unit_ns));
            }
        }
        for variable in variables {
            let key = (in_words(&levels), variable.name());
            let of_runs: Vec<Result<f64, Caveat>> =
                configuration.repetitions.iter().map(|one| variable.of_run(one)).collect();
            // Not every service's processes are seen.
            let beside = *variable == Variable::CpuTime && variables.len() > 1;
            if beside && of_runs.iter().all(Result::is_err) {
                continue;
            }
            if !self.order.contains(&key) {
                self.order.push(key.clone());
            }
            // Caveats of runs are shown once for the set.
            let shown = variable.estimate(configuration).ok().map(|mut shown| {
                shown.caveats.retain(|caveat| !matches!(caveat, Caveat::InRuns { .. }));
                shown
            });
            // All runs, or none: those that lack it are the slow ones, which answer fewer requests.
            if let Some(why) = of_runs.iter().find_map(|value| value.as_ref().err()) {
                let lack = of_runs.iter().filter(|value| value.is_err()).count();
                let (runs, of) = (count(lack), count(of_runs.len()));
                self.refused.insert(key, Refused { runs, of, why: why.clone(), shown });
                continue;
            }
            let blocks = configuration.repetitions.iter().map(|one| block(&one.run));
            let values =
                blocks.zip(of_runs).filter_map(|(block, value)| Some((Some(block), value.ok()?)));
            let (quantity, better) = (variable.quantity(), better(*variable));
            let values = values.collect();
            self.responses.insert(key, Responses { quantity, better, values, shown });
        }
    }

    /// Runs with their responses and speeds; `None` unless all of them have one.
    fn with_speeds(&self, key: &Key) -> Option<Vec<Measured<'_>>> {
        let (responses, speeds) = (self.responses.get(key)?, self.speeds.get(&key.0)?);
        let of_run = |(block, value): &(Option<String>, f64)| {
            let speed = speeds.iter().find(|(known, _)| Some(known) == block.as_ref())?;
            Some((Some(speed.0.as_str()), *value, speed.1))
        };
        responses.values.iter().map(of_run).collect()
    }

    /// Notes what a run was made with, and when.
    fn describe(&mut self, run: &Run, levels: &[&FactorLevel]) {
        let spans = self.blocks.get_or_insert_default();
        let span = spans.entry(block(run)).or_insert((run.started_unix_ns, run.ended_unix_ns));
        *span = (span.0.min(run.started_unix_ns), span.1.max(run.ended_unix_ns));
        for level in levels {
            let levels = self.factors.entry(level.factor.clone()).or_default();
            levels.insert(level.text.clone());
        }
        flatten("", &run.settings, &mut self.settings);
        self.settings.retain(|key, _| !self.factors.contains_key(key));
        flatten("", &run.stated_environment(), &mut self.environment);
    }

    /// All runs of each configuration and metric, in the order in which they are shown.
    pub(super) fn series(&self) -> impl Iterator<Item = (&Key, (Quantity, Better), Vec<f64>)> {
        self.order.iter().filter_map(|key| {
            let responses = self.responses.get(key)?;
            let runs = responses.values.iter().map(|(_, value)| *value).collect();
            Some((key, (responses.quantity, responses.better), runs))
        })
    }

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
            // A table has no factors, but it names its configurations.
            [] if self.blocks.is_none() => {
                let configurations: BTreeSet<String> =
                    self.order.iter().map(|(configuration, _)| configuration.clone()).collect();
                format!("{} has {}", self.name, joined(&configurations))
            }
            [] => format!("{} varies nothing", self.name),
            factors => format!("{} varies {}", self.name, factors.join(", ")),
        }
    }
}

/// Several sets as one side of a page; one set as it is.
pub(super) fn together(others: &[ResultSet]) -> ComparedSet {
    if let [one] = others {
        return one.described();
    }
    let described: Vec<ComparedSet> = others.iter().map(ResultSet::described).collect();
    let names: Vec<&str> = described.iter().map(|set| set.name.as_str()).collect();
    ComparedSet {
        name: names.join(", "),
        title: String::new(),
        usable_runs: described.iter().map(|set| set.usable_runs).sum(),
        unusable_runs: described.iter().map(|set| set.unusable_runs).sum(),
        started_unix_ns: described.iter().filter_map(|set| set.started_unix_ns).min(),
    }
}

/// Every kind of caveat of the runs once: the first with its figures, and the number of runs that have it.
fn doubts(set: &str, runs: &[&Run]) -> Vec<Caveat> {
    Caveat::in_runs(runs.iter().map(|run| run.caveats.as_slice()), Some(set))
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

/// Runs of one repetition are a block.
fn block(run: &Run) -> String {
    run.repetition.to_string()
}

/// What is compared where nothing is varied.
pub(super) const ONLY: &str = "the one configuration";

/// Levels of the factors, in the words of the study file.
fn in_words(levels: &[&FactorLevel]) -> String {
    if levels.is_empty() {
        return ONLY.to_owned();
    }
    let levels: Vec<String> =
        levels.iter().map(|level| format!("{}={}", level.factor, level.text)).collect();
    levels.join(", ")
}

/// Why a response variable of a configuration is not compared, with what all runs together say.
fn not_compared(key: &Key, before: &ResultSet, after: &ResultSet) -> Option<Caveat> {
    let (set, refused) =
        [before, after].into_iter().find_map(|set| Some((set, set.refused.get(key)?)))?;
    let shown = |set: &ResultSet| {
        let refused = set.refused.get(key).and_then(|one| one.shown.clone());
        refused.or_else(|| set.responses.get(key)?.shown.clone())
    };
    let together = match (shown(before), shown(after)) {
        (Some(first), Some(second)) => {
            let said = |estimate: &Estimate| figures(estimate.center, 4);
            format!("; over all runs together it is {} and {}", said(&first), said(&second))
        }
        _ => String::new(),
    };
    let (configuration, variable) = key;
    let Refused { runs, of, why, .. } = refused;
    Some(Caveat::Note {
        text: format!(
            "{variable} of {configuration} is not compared: {runs} of {of} runs of {} lack it \
             ({why}). Leaving those runs out would select by the outcome, since slow runs answer \
             fewer requests{together}",
            set.name
        ),
    })
}

/// What both sets have, and caveats about the rest.
pub(super) fn matched(before: &ResultSet, after: &ResultSet) -> (Vec<Samples>, Vec<Caveat>) {
    let mut caveats: Vec<Caveat> = before.caveats.iter().chain(&after.caveats).cloned().collect();
    for (set, other) in [(before, after), (after, before)] {
        for (factor, levels) in &set.factors {
            if !other.responses.is_empty() && !other.factors.contains_key(factor) {
                let (set, levels) = (&set.name, joined(levels));
                let text = format!("{factor} is varied in {set} only ({levels})");
                caveats.push(Caveat::Note { text });
            }
        }
        let lonely =
            |key: &&Key| !other.responses.contains_key(*key) && !other.refused.contains_key(*key);
        let alone = set.responses.keys().filter(lonely).count();
        if alone > 0 {
            let names: Vec<&str> = set
                .responses
                .keys()
                .filter(lonely)
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
    caveats.extend(refusals(before, after));
    let samples = before
        .order
        .iter()
        .filter_map(|key| {
            let (first, second) = (before.responses.get(key)?, after.responses.get(key)?);
            Some(Samples {
                configuration: key.0.clone(),
                metric: key.1.clone(),
                quantity: first.quantity,
                better: first.better,
                before: first.values.clone(),
                after: second.values.clone(),
            })
        })
        .collect();
    (samples, caveats)
}

/// What is not compared though both sets measured it, and why.
pub(super) fn refusals(before: &ResultSet, after: &ResultSet) -> Vec<Caveat> {
    let measured =
        |key: &&Key| after.order.iter().any(|(configuration, _)| *configuration == key.0);
    before
        .order
        .iter()
        .filter(measured)
        .filter_map(|key| not_compared(key, before, after))
        .collect()
}

/// The numbers of both sets that are shown everywhere, in place of the means of a comparison.
pub(super) fn shown(before: &ResultSet, after: &ResultSet, one: &mut Comparison) {
    let key = (one.configuration.clone(), one.metric.clone());
    let of = |set: &ResultSet| set.responses.get(&key)?.shown.clone();
    if let (Some(first), Some(second)) = (of(before), of(after)) {
        (one.before, one.after) = (first, second);
    }
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
    // A session that was stopped has a block more on one side: that has no partner, and is left out.
    let is_of_both = |block: &String| first.contains_key(block) && second.contains_key(block);
    let both = first.iter().chain(second).filter(|(block, _)| is_of_both(block));
    let mut order: Vec<(u64, &String)> = both.map(|(block, span)| (middle(span), block)).collect();
    order.sort_unstable();
    let in_turns =
        order.chunks(2).all(|pair| pair.first().map(|p| p.1) == pair.last().map(|p| p.1));
    // Two of each pair: at least two pairs, and most of the blocks.
    if in_turns && order.len() > 3 && order.len() >= first.len().max(second.len()) {
        return Ok(());
    }
    Err("the two sets were measured one after the other, so a change of the machine in between \
         looks like a difference; measure them in turns, block by block"
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
        // One was stopped before its last block; of the other most have no partner.
        let stopped = set(&[("1", (10, 20)), ("2", (30, 40))]);
        assert!(side_by_side(&a, &stopped).is_ok() && side_by_side(&stopped, &a).is_ok());
        assert!(side_by_side(&a, &set(&[("1", (10, 20))])).is_err());
    }

    #[test]
    fn metrics_are_read_and_named_with_their_unit() {
        let metric = parse_variable("response_time_p99.9").unwrap();
        assert_eq!(metric.name(), "response_time_p99.9_s");
        for text in ["latency", "response_time_p0", "response_time_p100", "response_time_px"] {
            assert!(parse_variable(text).is_err(), "{text}");
        }
    }
}
