//! `kendall compare` with more than two sets: each against the first, or a trend over all of them.

use std::path::PathBuf;

use kendall_report::comparison::{ComparedSet, ComparisonPage};
use kendall_stats::compare::trend::{ChangePoint, change_points};
use kendall_stats::compare::{self, Better, Options, Samples, Verdict};
use kendall_stats::estimate::{Caveat, figures};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;

use super::sets::{self, ResultSet};
use super::{Answer, Compare, Pairing, human, short_configuration, short_metric, worst};
use crate::commands::design::tables::{note, p_value};
use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// Sets from which a trend is looked for: of fewer, no order is unlikely enough.
const FEWEST_OF_TREND: usize = 6;

/// More than two sets.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Many {
    /// Further result sets, each compared with BEFORE
    #[arg(value_name = "MORE", conflicts_with_all = ["levels", "run"])]
    more: Vec<PathBuf>,

    /// Takes the sets in their order, such as the commits of a branch, and says where a metric
    /// changed; exit code 4 where one became worse by more than the bound
    #[arg(long, conflicts_with_all = ["levels", "run", "pairing"])]
    trend: bool,
}

impl Many {
    pub(super) fn is_asked_for(&self) -> bool {
        self.trend || !self.more.is_empty()
    }
}

/// Where one metric of one configuration changed.
#[derive(Debug, serde::Serialize)]
struct Trend {
    configuration: String,
    metric: String,
    better: Better,
    /// Sets that have it, in their order.
    sets: Vec<String>,
    changes: Vec<Change>,
}

#[derive(Debug, serde::Serialize)]
struct Change {
    /// First set after the change.
    set: String,
    worse: bool,
    beyond_bound: bool,
    #[serde(flatten)]
    point: ChangePoint,
}

impl Compare {
    pub(super) fn run_many(&self) -> anyhow::Result<Exit> {
        let paths: Vec<&PathBuf> =
            std::iter::once(&self.before).chain(&self.after).chain(&self.many.more).collect();
        let all = paths.iter().map(|path| self.read(path)).collect::<anyhow::Result<Vec<_>>>()?;
        if self.many.trend { self.tell_trend(&all) } else { self.tell_many(&all) }
    }

    /// Each against the first; p-values are adjusted for all of them together.
    fn tell_many(&self, all: &[ResultSet]) -> anyhow::Result<Exit> {
        let [first, others @ ..] = all else { return Ok(Exit::Refused) };
        let (mut samples, mut caveats) = (Vec::<Samples>::new(), Vec::<Caveat>::new());
        for other in others {
            let name = other.described().name;
            let (matched, doubts) = sets::matched(first, other);
            caveats.extend(doubts);
            samples.extend(matched.into_iter().map(|mut one| {
                one.configuration = format!("{name}: {}", short_configuration(&one.configuration));
                one
            }));
        }
        caveats.dedup();
        let paired = self.pairing == Pairing::Blocks;
        let options = Options { confidence: self.confidence, bound: self.bound, paired };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let comparisons = compare::compare(&samples, &options, &mut rng)
            .map_err(|error| exit_with(Exit::Refused, error))?;
        let described: Vec<ComparedSet> = others.iter().map(ResultSet::described).collect();
        let names: Vec<&str> = described.iter().map(|set| set.name.as_str()).collect();
        let after = ComparedSet {
            name: names.join(", "),
            title: String::new(),
            usable_runs: described.iter().map(|set| set.usable_runs).sum(),
            unusable_runs: described.iter().map(|set| set.unusable_runs).sum(),
            started_unix_ns: described.iter().filter_map(|set| set.started_unix_ns).min(),
        };
        let page = ComparisonPage {
            before: first.described(),
            after,
            verdict: worst(&comparisons),
            bound: self.bound,
            confidence: self.confidence,
            comparisons,
            differences: Vec::new(),
            caveats,
        };
        let undecided = page.comparisons.iter().any(|one| one.verdict == Verdict::Inconclusive);
        let failed = page.verdict == Verdict::Regression || (self.strict && undecided);
        let report = match &self.out {
            Some(folder) => {
                let written = page.write(folder);
                Some(written.map_err(|error| exit_with(Exit::NotReady, error))?.html)
            }
            None => None,
        };
        let answer = Answer { page, report };
        match self.format {
            Format::Human => output::result(&human(&answer)),
            Format::Json => output::json(&answer)?,
        }
        Ok(if failed { Exit::CheckFailed } else { Exit::Done })
    }

    fn tell_trend(&self, all: &[ResultSet]) -> anyhow::Result<Exit> {
        if all.len() < FEWEST_OF_TREND {
            let what = format!(
                "a trend needs {FEWEST_OF_TREND} sets or more, there are {}; of fewer, no order is \
                 unlikely enough to be significant",
                all.len()
            );
            return Err(exit_with(Exit::Refused, what));
        }
        let trends = self.trends(all)?;
        let worse =
            trends.iter().flat_map(|trend| &trend.changes).any(|c| c.worse && c.beyond_bound);
        match self.format {
            Format::Json => output::json(&serde_json::json!({ "trends": trends }))?,
            Format::Human => output::result(&in_words(&trends, all.len())),
        }
        Ok(if worse { Exit::CheckFailed } else { Exit::Done })
    }

    fn trends(&self, all: &[ResultSet]) -> anyhow::Result<Vec<Trend>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut trends = Vec::new();
        // Matching a set with itself lists what it has.
        for key in sets::matched(&all[0], &all[0]).0 {
            let (mut names, mut runs) = (Vec::new(), Vec::new());
            for set in all {
                let found = sets::matched(set, set)
                    .0
                    .into_iter()
                    .find(|one| one.configuration == key.configuration && one.metric == key.metric);
                if let Some(found) = found {
                    names.push(set.described().name);
                    runs.push(found.before.iter().map(|run| run.1).collect::<Vec<f64>>());
                }
            }
            let points = change_points(&runs, self.confidence, &mut rng)
                .map_err(|error| exit_with(Exit::Refused, error))?;
            let (least, most) = (1.0 / (1.0 + self.bound), 1.0 + self.bound);
            let changes = points.into_iter().map(|point| Change {
                set: usize::try_from(point.at)
                    .ok()
                    .and_then(|at| names.get(at).cloned())
                    .unwrap_or_default(),
                worse: (point.ratio.center > 1.0) == (key.better == Better::Lower),
                beyond_bound: point.ratio.center > most || point.ratio.center < least,
                point,
            });
            trends.push(Trend {
                changes: changes.collect(),
                configuration: key.configuration,
                metric: key.metric,
                better: key.better,
                sets: names,
            });
        }
        Ok(trends)
    }
}

fn in_words(trends: &[Trend], sets: usize) -> String {
    let mut text = String::new();
    for trend in trends {
        for change in &trend.changes {
            let percent = |ratio: f64| figures(100.0 * (ratio - 1.0), 3);
            let ratio = &change.point.ratio;
            let range = ratio.interval.map_or_else(String::new, |interval| {
                format!(" [{} %, {} %]", percent(interval.low), percent(interval.high))
            });
            let way = if change.worse { "worse" } else { "better" };
            note(
                &mut text,
                &format!(
                    "{}, {}: {way} from {} on: {} %{range} (p {})",
                    short_metric(&trend.metric),
                    short_configuration(&trend.configuration),
                    change.set,
                    percent(ratio.center),
                    p_value(change.point.p_value),
                ),
            );
        }
    }
    let still = trends.iter().filter(|trend| trend.changes.is_empty()).count();
    note(
        &mut text,
        &format!("{sets} sets: {still} of {} series have no significant change", trends.len()),
    );
    text
}
