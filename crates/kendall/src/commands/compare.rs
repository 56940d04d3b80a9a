//! `kendall compare`: two result sets, with a verdict for people and an exit code for CI.

mod sets;

use std::path::{Path, PathBuf};

use kendall_stats::compare::{self, Better, Comparison, Options, Verdict};
use kendall_stats::estimate::{Caveat, Estimate};
use kendall_units::Seconds;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;

use self::sets::{Metric, ResultSet};
use super::design::tables::{grid, note, p_value};
use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// Compares two result sets, and fails on a regression beyond a bound
///
/// Each is a folder of results, or a CSV table with the columns `configuration`, `block` (optional)
/// and `value`. Runs are compared block by block where the two sets were measured side by side.
/// Exit code 4: at least one regression beyond the bound. Exit code 0: none; what the runs do not
/// tell is reported as inconclusive, and fails only with `--strict` (code 4 too).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  kendall compare results/main results/branch --bound 5% --metric response_time_p99"
)]
pub(crate) struct Compare {
    /// First result set: what is compared with
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// Second result set: what is judged
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Relative change that matters
    #[arg(long, default_value = "5%", value_parser = kendall_units::parse_share)]
    bound: f64,
    /// Response variable: throughput, response_time_mean, response_time_p99 or another percentile;
    /// repeated [default: throughput, response_time_mean, response_time_p99]
    #[arg(long = "metric", value_name = "METRIC", value_parser = Metric::parse)]
    metrics: Vec<Metric>,
    /// Whether runs of the same block were measured side by side
    #[arg(long, value_enum, default_value_t)]
    pairing: Pairing,
    /// Confidence of the intervals and of the verdict
    #[arg(long, default_value = "0.95", value_parser = kendall_units::parse_share)]
    confidence: f64,
    /// CSV tables: a higher value is better
    #[arg(long)]
    higher_is_better: bool,
    /// Fails also where the runs do not tell
    #[arg(long)]
    strict: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Pairing {
    /// Pairs where the blocks lie side by side in time (folders), or have names (tables)
    #[default]
    Auto,
    /// Pairs by block
    Blocks,
    /// No pairs
    None,
}

/// What is printed as JSON.
#[derive(Debug, serde::Serialize)]
struct Answer {
    /// The worst of all.
    verdict: Verdict,
    bound: f64,
    confidence: f64,
    comparisons: Vec<Comparison>,
    /// Doubts about the sets as a whole.
    caveats: Vec<Caveat>,
}

impl Compare {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (before, after) = (self.read(&self.before)?, self.read(&self.after)?);
        let (samples, mut caveats) = sets::matched(&before, &after);
        let paired = match self.pairing {
            Pairing::Blocks => true,
            Pairing::None => false,
            Pairing::Auto => match sets::side_by_side(&before, &after) {
                Ok(()) => true,
                Err(reason) => {
                    caveats.push(Caveat::NotPaired { reason });
                    false
                }
            },
        };
        let options = Options { confidence: self.confidence, bound: self.bound, paired };
        // Chance only draws relabelings where they are too many to count: any fixed seed will do.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let comparisons = compare::compare(&samples, &options, &mut rng)
            .map_err(|error| exit_with(Exit::Refused, error))?;
        let verdict = worst(&comparisons);
        let (bound, confidence) = (self.bound, self.confidence);
        let answer = Answer { verdict, bound, confidence, comparisons, caveats };
        match self.format {
            Format::Human => output::result(&human(&answer)),
            Format::Json => output::json(&answer)?,
        }
        let undecided = answer.comparisons.iter().any(|one| one.verdict == Verdict::Inconclusive);
        let failed = verdict == Verdict::Regression || (self.strict && undecided);
        Ok(if failed { Exit::CheckFailed } else { Exit::Done })
    }

    fn read(&self, path: &Path) -> anyhow::Result<ResultSet> {
        if path.is_dir() {
            let metrics =
                if self.metrics.is_empty() { Metric::usual() } else { self.metrics.clone() };
            return sets::folder(path, &metrics);
        }
        let better = if self.higher_is_better { Better::Higher } else { Better::Lower };
        sets::table(path, better)
    }
}

/// Regression before inconclusive before improvement before equivalent.
fn worst(comparisons: &[Comparison]) -> Verdict {
    let has = |verdict| comparisons.iter().any(|one| one.verdict == verdict);
    [Verdict::Regression, Verdict::Inconclusive, Verdict::Improvement]
        .into_iter()
        .find(|verdict| has(*verdict))
        .unwrap_or(Verdict::Equivalent)
}

/// A mean with its interval, times in the unit that keeps them readable.
fn shown(mean: &Estimate, metric: &str) -> String {
    if !metric.ends_with("_s") || metric.ends_with("_per_s") {
        return mean.to_string();
    }
    let center = Seconds::new(mean.center);
    match mean.interval {
        Some(interval) => format!("{center} ± {}", Seconds::new(interval.half_width())),
        None => center.to_string(),
    }
}

fn human(answer: &Answer) -> String {
    let header =
        ["configuration", "metric", "before", "after", "after / before", "p (Holm)", "verdict"];
    let rows = answer.comparisons.iter().map(|one| {
        vec![
            one.configuration.clone(),
            one.metric.clone(),
            shown(&one.before, &one.metric),
            shown(&one.after, &one.metric),
            one.ratio.as_ref().map_or_else(|| "–".to_owned(), ToString::to_string),
            one.p_adjusted.map_or_else(|| "–".to_owned(), p_value),
            one.verdict.to_string(),
        ]
    });
    let mut text = grid(&header.map(str::to_owned), rows);
    for one in &answer.comparisons {
        let way = if one.paired { "paired" } else { "unpaired" };
        let runs = format!("{way}, {} and {} runs", one.runs.0, one.runs.1);
        note(
            &mut text,
            &format!("- {}, {}: {} ({runs})", one.configuration, one.metric, one.words),
        );
        for caveat in &one.caveats {
            note(&mut text, &format!("  * {caveat}"));
        }
    }
    for caveat in &answer.caveats {
        note(&mut text, &format!("* {caveat}"));
    }
    let bound = 100.0 * answer.bound;
    note(&mut text, &format!("verdict: {} (bound ±{bound} %)", answer.verdict));
    text
}
