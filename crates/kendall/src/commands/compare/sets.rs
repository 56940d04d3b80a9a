//! Result sets to compare: from folders of results, and from tables.

use std::collections::BTreeMap;
use std::path::Path;

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

/// One side of a comparison.
#[derive(Debug, Clone)]
pub(super) struct ResultSet {
    name: String,
    /// By configuration and metric.
    responses: BTreeMap<(String, String), Responses>,
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
    let mut responses: BTreeMap<(String, String), Responses> = BTreeMap::new();
    for row in &csv.rows {
        let Some(number) = csv.number(row, value).map_err(refuse)? else { continue };
        let key = (row.1[configuration].clone(), "value".to_owned());
        let entry = responses.entry(key).or_insert(Responses { better, values: Vec::new() });
        entry.values.push((block.map(|column| row.1[column].clone()), number));
    }
    let name = path.display().to_string();
    Ok(ResultSet { name, responses, blocks: None, caveats: Vec::new() })
}

pub(super) fn folder(path: &Path, metrics: &[Metric]) -> anyhow::Result<ResultSet> {
    let refuse = |error: StoreError| {
        let exit = match &error {
            StoreError::Missing { .. } | StoreError::Newer { .. } => Exit::Refused,
            _ => Exit::NotReady,
        };
        exit_with(exit, error)
    };
    let results = Results::open(path).map_err(refuse)?;
    let mut responses: BTreeMap<(String, String), Responses> = BTreeMap::new();
    let mut blocks: BTreeMap<String, Span> = BTreeMap::new();
    let mut caveats = Vec::new();
    let runs = results.latest_runs().map_err(refuse)?;
    let usable: Vec<&Run> = runs.iter().filter(|run| run.is_usable()).collect();
    for run in &usable {
        let measured = results.measured(run.id).map_err(refuse)?;
        let block = run.repetition.to_string();
        let span = blocks.entry(block.clone()).or_insert((run.started_unix_ns, run.ended_unix_ns));
        *span = (span.0.min(run.started_unix_ns), span.1.max(run.ended_unix_ns));
        for metric in metrics {
            let key = (configuration(run), metric.name());
            let better = metric.better();
            let entry = responses.entry(key).or_insert(Responses { better, values: Vec::new() });
            match metric.of(&measured) {
                Some(value) => entry.values.push((Some(block.clone()), value)),
                None => caveats.push(too_few(run, metric, &measured)),
            }
        }
        for caveat in &run.caveats {
            let text = format!("{}, run {}: {caveat}", path.display(), run.id.0);
            caveats.push(Caveat::Note { text });
        }
    }
    if usable.len() < runs.len() {
        let count = |runs: usize| kendall_units::whole_u64(exact_f64(runs));
        let failed = count(runs.len() - usable.len());
        caveats.push(Caveat::RunsFailed { failed, runs: count(runs.len()) });
    }
    responses.retain(|_, one| !one.values.is_empty());
    let name = path.display().to_string();
    Ok(ResultSet { name, responses, blocks: Some(blocks), caveats })
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
        let alone = set.responses.keys().filter(|key| !other.responses.contains_key(*key)).count();
        if alone > 0 {
            let text = format!("{alone} of {} is not in the other set, and is left out", set.name);
            caveats.push(Caveat::Note { text });
        }
    }
    let samples = before
        .responses
        .iter()
        .filter_map(|((configuration, metric), first)| {
            let second = after.responses.get(&(configuration.clone(), metric.clone()))?;
            Some(Samples {
                configuration: configuration.clone(),
                metric: metric.clone(),
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
            responses: BTreeMap::new(),
            blocks: Some(spans.iter().map(|(name, span)| ((*name).to_owned(), *span)).collect()),
            caveats: Vec::new(),
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
