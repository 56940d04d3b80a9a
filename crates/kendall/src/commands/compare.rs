//! `kendall compare`: two result sets, with a verdict for people and an exit code for CI.

mod in_turns;
mod many;
mod sets;

use std::path::{Path, PathBuf};

use kendall_observations::Variable;
use kendall_report::comparison::{ComparisonPage, Difference, DifferenceKind};
use kendall_stats::compare::{self, Better, Comparison, Options, Quantity, Samples, Verdict};
use kendall_stats::estimate::{Caveat, Estimate, figures};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;

use self::in_turns::InTurns;
use self::many::Many;
use self::sets::{Only, ResultSet};
use super::design::tables::{grid, note, p_value};
use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// Compares two versions: their results, or measured in turns; fails on a regression beyond a bound
///
/// With --run, BEFORE and AFTER are study files, measured in turns until the verdict is clear.
/// Otherwise they are result sets: a folder of results, or a CSV table with the columns
/// `configuration`, `block` (optional) and `value`. Runs are compared block by block if the two sets
/// were measured side by side. Writes the page `comparison.html` beside the second folder's report,
/// or into `--out`. Exit code 4 means at least one regression beyond the bound, exit code 0 none.
/// Where the runs cannot tell, the result is inconclusive, which fails only with `--strict` (code 4
/// too).
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall compare results/main results/branch --bound 5%\n  kendall compare results/demo --levels system.workers=8,32\n  kendall compare --run before.toml after.toml --blocks 5..30\n  kendall compare --run shop.toml --set-after system.parameters.version=new"
)]
pub(crate) struct Compare {
    /// First result set, the baseline; with --run its study file
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// Second result set, which is judged; with --run its study file
    #[arg(value_name = "AFTER", required_unless_present_any = ["levels", "set_before", "set_after"])]
    after: Option<PathBuf>,
    /// Compares two levels of one factor within one study; its blocks make them pairs
    #[arg(long, value_name = "FACTOR=LEVEL,LEVEL", value_parser = two_levels, conflicts_with = "after")]
    levels: Option<TwoLevels>,
    /// Relative change that matters
    #[arg(long, default_value = "5%", value_parser = kendall_units::parse_share)]
    bound: f64,
    /// Response variable: throughput, response_time_mean, response_time_p99 or another percentile;
    /// may be repeated [default: throughput, response_time_mean, response_time_p99]
    #[arg(long = "metric", value_name = "METRIC", value_parser = sets::parse_variable)]
    metrics: Vec<Variable>,
    /// Whether runs of the same block were measured side by side
    #[arg(long, value_enum, default_value_t)]
    pairing: Pairing,
    /// Confidence of the intervals and of the verdict
    #[arg(long, default_value = "0.95", value_parser = kendall_units::parse_share)]
    confidence: f64,
    /// CSV tables: a higher value is better
    #[arg(long)]
    higher_is_better: bool,
    /// Fails also if the runs cannot tell
    #[arg(long)]
    strict: bool,
    /// Folder of the page [default: AFTER; for tables no page is written]
    #[arg(long, value_name = "DIR", conflicts_with = "no_report")]
    out: Option<PathBuf>,
    /// Writes no page
    #[arg(long)]
    no_report: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    in_turns: InTurns,
    #[command(flatten)]
    many: Many,
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
    #[serde(flatten)]
    page: ComparisonPage,
    /// The page, if one was written.
    report: Option<PathBuf>,
}

impl Compare {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if self.in_turns.is_asked_for() {
            return self.run_in_turns();
        }
        if self.many.is_asked_for() {
            return self.run_many();
        }
        let (before, after) = self.sets()?;
        let page = self.page(&before, std::slice::from_ref(&after))?;
        self.tell(page, self.folder_of_page())
    }

    /// Writes the page, where it is to be written, and prints it.
    fn tell(&self, page: ComparisonPage, folder: Option<PathBuf>) -> anyhow::Result<Exit> {
        let written = folder.map(|folder| page.write(&folder)).transpose();
        let report =
            written.map_err(|error| exit_with(Exit::NotReady, error))?.map(|page| page.html);
        let exit = self.exit_for(&page.comparisons);
        let answer = Answer { page, report };
        match self.format {
            Format::Human => output::result(&human(&answer)),
            Format::Json => output::json(&answer)?,
        }
        Ok(exit)
    }

    /// A regression fails; what the runs do not tell fails where that is asked.
    fn exit_for(&self, comparisons: &[Comparison]) -> Exit {
        match worst(comparisons) {
            Verdict::Regression => Exit::CheckFailed,
            Verdict::Inconclusive if self.strict => Exit::CheckFailed,
            Verdict::Inconclusive | Verdict::Improvement | Verdict::Equivalent => Exit::Done,
        }
    }

    /// Each of the others against the first; p-values are adjusted for all of them together.
    fn page(&self, first: &ResultSet, others: &[ResultSet]) -> anyhow::Result<ComparisonPage> {
        let (mut samples, mut caveats, mut differences) = (Vec::new(), Vec::new(), Vec::new());
        // Of several, each comparison says whose it is.
        let named = |other: &ResultSet, what: String| match others {
            [_] => what,
            _ => format!("{}: {what}", other.described().name),
        };
        for other in others {
            let (matched, doubts) = sets::matched(first, other);
            samples.extend(matched.into_iter().map(|one| (other, one)));
            caveats.extend(doubts);
            differences.extend(sets::differences(first, other).into_iter().map(|one| {
                let what = named(other, one.what);
                Difference { what, ..one }
            }));
        }
        if samples.is_empty() {
            return Err(nothing_to_compare(first, others));
        }
        let doubts = self.not_paired(first, others);
        let paired = doubts.is_empty() && self.pairing != Pairing::None;
        caveats.extend(doubts);
        let conditions = differences.iter().filter(|one| one.kind == DifferenceKind::Condition);
        caveats.extend(conditions.map(|one| Caveat::ConditionsDiffer {
            what: one.what.clone(),
            first: one.before.clone(),
            second: one.after.clone(),
        }));
        let options = Options { confidence: self.confidence, bound: self.bound, paired };
        // Chance only draws relabelings where they are too many to count: any fixed seed will do.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (of, samples): (Vec<&ResultSet>, Vec<Samples>) = samples.into_iter().unzip();
        let mut comparisons = compare::compare(&samples, &options, &mut rng)
            .map_err(|error| exit_with(Exit::Refused, error))?;
        for (other, one) in of.into_iter().zip(&mut comparisons) {
            sets::at_one_speed(first, other, one);
            sets::shown(first, other, one);
            if others.len() > 1 {
                one.configuration = named(other, short_configuration(&one.configuration));
            }
        }
        Ok(ComparisonPage {
            before: first.described(),
            after: many::together(others),
            verdict: worst(&comparisons),
            bound: self.bound,
            confidence: self.confidence,
            comparisons,
            differences,
            caveats: distinct(caveats),
        })
    }

    /// Why runs of one block are not pairs, once for each of the others whose are none; nothing where all
    /// are, or where it is not to be asked.
    fn not_paired(&self, first: &ResultSet, others: &[ResultSet]) -> Vec<Caveat> {
        // The blocks of one study hold every configuration.
        if self.pairing != Pairing::Auto || self.levels.is_some() {
            return Vec::new();
        }
        let reasons = others.iter().filter_map(|other| sets::side_by_side(first, other).err());
        reasons.map(|reason| Caveat::NotPaired { reason }).collect()
    }

    fn folder_of_page(&self) -> Option<PathBuf> {
        let judged = self.after.as_ref().unwrap_or(&self.before);
        let beside = || judged.is_dir().then(|| judged.clone());
        if self.no_report { None } else { self.out.clone().or_else(beside) }
    }

    /// What is compared with, and what is judged.
    fn sets(&self) -> anyhow::Result<(ResultSet, ResultSet)> {
        match (&self.levels, &self.after) {
            (Some(TwoLevels { factor, before, after }), _) => {
                let level = |level| {
                    sets::folder(&self.before, &self.metrics(), Some(Only { factor, level }))
                };
                Ok((level(before)?, level(after)?))
            }
            (None, Some(after)) if is_same(&self.before, after) => {
                let path = after.display();
                let twice = format!(
                    "{path} is given twice, and never differs from itself: name two result sets, or two \
                     levels of one by --levels"
                );
                Err(exit_with(Exit::Refused, anyhow::anyhow!(twice)))
            }
            (None, Some(after)) => Ok((self.read(&self.before)?, self.read(after)?)),
            (None, None) => {
                let missing = anyhow::anyhow!("a second result set is needed, or --levels");
                Err(exit_with(Exit::Refused, missing))
            }
        }
    }

    fn metrics(&self) -> Vec<Variable> {
        if self.metrics.is_empty() { sets::usual_variables() } else { self.metrics.clone() }
    }

    fn read(&self, path: &Path) -> anyhow::Result<ResultSet> {
        if path.is_dir() {
            return sets::folder(path, &self.metrics(), None);
        }
        let better = if self.higher_is_better { Better::Higher } else { Better::Lower };
        sets::table(path, better)
    }
}

/// Whether two paths are one file or folder.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Two levels of a factor.
#[derive(Debug, Clone)]
struct TwoLevels {
    factor: String,
    before: String,
    after: String,
}

fn two_levels(text: &str) -> Result<TwoLevels, String> {
    let parts = text.split_once('=').and_then(|(factor, levels)| {
        let (before, after) = levels.split_once(',')?;
        Some([factor, before, after].map(|part| part.trim().to_owned()))
    });
    match parts {
        Some([factor, before, after]) if !factor.is_empty() && before != after => {
            Ok(TwoLevels { factor, before, after })
        }
        _ => Err(format!("`{text}` is not two levels; write it like `system.workers=8,32`")),
    }
}

/// Why there is nothing to compare.
fn nothing_to_compare(first: &ResultSet, others: &[ResultSet]) -> anyhow::Error {
    let refusals = others.iter().flat_map(|other| sets::refusals(first, other)).next();
    let why = refusals.map_or_else(
        || {
            let sets = std::iter::once(first).chain(others);
            let factors: Vec<String> = sets.map(ResultSet::factors_in_words).collect();
            let none = "the result sets have no configuration in common";
            format!("{none}; {}", factors.join("; "))
        },
        |refused| refused.to_string(),
    );
    exit_with(Exit::Refused, anyhow::anyhow!("nothing to compare: {why}"))
}

/// Each caveat once, in the order of the first.
fn distinct(caveats: Vec<Caveat>) -> Vec<Caveat> {
    let mut once: Vec<Caveat> = Vec::with_capacity(caveats.len());
    for caveat in caveats {
        if !once.contains(&caveat) {
            once.push(caveat);
        }
    }
    once
}

/// Regression before inconclusive before improvement before equivalent.
fn worst(comparisons: &[Comparison]) -> Verdict {
    let has = |verdict| comparisons.iter().any(|one| one.verdict == verdict);
    [Verdict::Regression, Verdict::Inconclusive, Verdict::Improvement]
        .into_iter()
        .find(|verdict| has(*verdict))
        .unwrap_or(Verdict::Equivalent)
}

/// A mean: rates as they are, times in milliseconds.
fn shown(mean: &Estimate, quantity: Quantity) -> String {
    figures(quantity.shown().0 * mean.center, 4)
}

/// `throughput (1/s)`, `p99 (ms)`: short, for a column.
fn short_metric(metric: &str, quantity: Quantity) -> String {
    let name = quantity.name_of(metric).trim_start_matches("response_time_");
    match quantity.shown().1 {
        "" => name.to_owned(),
        unit => format!("{name} ({unit})"),
    }
}

/// `workers=8 clients=64` for the dotted keys of a folder; as it is for a table, and for what is short already and
/// has the name of a set in front of it.
fn short_configuration(configuration: &str) -> String {
    let short = |part: &str| match part.split_once('=') {
        Some((key, level)) if !key.contains(char::is_whitespace) => {
            format!("{}={level}", &key[key.rfind('.').map_or(0, |dot| dot + 1)..])
        }
        _ => part.to_owned(),
    };
    configuration.split(", ").map(short).collect::<Vec<_>>().join(" ")
}

fn change(one: &Comparison) -> String {
    let percent = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
    let Some(ratio) = &one.ratio else { return "–".to_owned() };
    match ratio.interval {
        Some(i) => format!("{} [{}, {}]", percent(ratio.center), percent(i.low), percent(i.high)),
        None => percent(ratio.center),
    }
}

fn human(answer: &Answer) -> String {
    let page = &answer.page;
    let mut text = String::new();
    for metric in metrics(&page.comparisons) {
        let of: Vec<&Comparison> =
            page.comparisons.iter().filter(|one| one.metric == metric).collect();
        let better = match of[0].better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
        };
        note(&mut text, &format!("{}, {better}", short_metric(metric, of[0].quantity)));
        let header = ["configuration", "before", "after", "change (%)", "verdict"];
        let rows = of.iter().map(|one| {
            vec![
                short_configuration(&one.configuration),
                shown(&one.before, one.quantity),
                shown(&one.after, one.quantity),
                change(one),
                one.verdict.to_string(),
            ]
        });
        text.push_str(&grid(&header.map(str::to_owned), rows));
        for one in of {
            words(&mut text, one);
        }
    }
    let undecided =
        page.comparisons.iter().filter(|one| one.verdict == Verdict::Inconclusive).count();
    if undecided > 0 {
        let inconclusive = "inconclusive: not significant, or perhaps not beyond the bound; more \
                            repetitions would tell";
        note(&mut text, inconclusive);
    }
    let subjects = page.differences.iter().filter(|one| one.kind == DifferenceKind::Subject);
    for one in subjects {
        note(
            &mut text,
            &format!("what differs: {} was {}, is {}", one.what, one.before, one.after),
        );
    }
    for caveat in &page.caveats {
        note(&mut text, &format!("* {caveat}"));
    }
    if let Some(report) = &answer.report {
        note(&mut text, &format!("report  {}", report.display()));
    }
    let bound = figures(100.0 * page.bound, 3);
    let bound = bound.trim_end_matches('0').trim_end_matches('.');
    note(&mut text, &format!("verdict: {} (bound ±{bound} %)", page.verdict));
    text
}

fn metrics(comparisons: &[Comparison]) -> Vec<&str> {
    let mut metrics: Vec<&str> = Vec::new();
    for one in comparisons {
        if !metrics.contains(&one.metric.as_str()) {
            metrics.push(&one.metric);
        }
    }
    metrics
}

/// The significant change in a sentence, with its caveats.
fn words(text: &mut String, one: &Comparison) {
    let of = short_configuration(&one.configuration);
    let apart = one.ratio.as_ref().and_then(|ratio| ratio.interval);
    let apart = apart.is_some_and(|interval| !interval.contains(1.0));
    if apart && one.verdict != Verdict::Equivalent {
        let way = if one.paired { "pairs" } else { "runs, unpaired" };
        let runs = match one.runs {
            (before, after) if before == after => format!("{before} {way}"),
            (before, after) => format!("{before} and {after} {way}"),
        };
        let p = one.p_adjusted.map_or_else(String::new, |p| format!(", p {} (Holm)", p_value(p)));
        note(text, &format!("- {of}: {} ({runs}{p})", one.words));
    }
    for caveat in &one.caveats {
        note(text, &format!("- {of}: {caveat}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_with_a_colon_is_no_name_of_a_set() {
        let of_keys = "workload.options=Accept: x, system.workers=8";
        assert_eq!(short_configuration(of_keys), "options=Accept: x workers=8");
        // What has the name of a set is short already.
        let named = format!("v1.2: {}", short_configuration("workload.clients=8, a.b=1"));
        assert_eq!(short_configuration(&named), "v1.2: clients=8 b=1");
    }
}
