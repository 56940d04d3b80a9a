//! `kendall compare` with more than two sets: each against the first, or a trend over all of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kendall_report::document::Section;
use kendall_stats::compare::trend::{ChangePoint, change_points};
use kendall_stats::compare::{Better, Quantity};
use kendall_stats::estimate::figures;
use kendall_stats::sample::median;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;

use super::flags::Compare;
use super::sets::{Key, ResultSet};
use super::words::{short_configuration, short_metric};
use crate::commands::design::tables::p_value;
use crate::exit::{Exit, refused};
use crate::output;

/// Number of sets from which a trend is tested for: of fewer, no order is unlikely enough.
const FEWEST_OF_TREND: usize = 6;

/// Where one metric of one configuration changed.
#[derive(Debug, serde::Serialize)]
struct Trend {
    configuration: String,
    metric: String,
    quantity: Quantity,
    better: Better,
    /// Sets that have it, in their order, and the median of each one's runs.
    sets: Vec<String>,
    medians: Vec<f64>,
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

    /// Each against the first. The page has no folder of its own to go to.
    fn tell_many(&self, all: &[ResultSet]) -> anyhow::Result<Exit> {
        let [first, others @ ..] = all else { return Ok(Exit::Refused) };
        self.tell(self.page(first, others)?, self.out.clone())
    }

    fn tell_trend(&self, all: &[ResultSet]) -> anyhow::Result<Exit> {
        if all.len() < FEWEST_OF_TREND {
            let what = format!(
                "a trend needs {FEWEST_OF_TREND} sets or more, there are {}; with fewer, nothing \
                 can be significant",
                all.len()
            );
            return Err(refused(what));
        }
        let (trends, left_out) = self.trends(all)?;
        let worse =
            trends.iter().flat_map(|trend| &trend.changes).any(|c| c.worse && c.beyond_bound);
        let json = serde_json::json!({ "trends": trends, "left_out": left_out });
        output::print(self.format, &json, || in_words(&trends, &left_out, all.len()))?;
        Ok(if worse { Exit::CheckFailed } else { Exit::Done })
    }

    /// The series that enough sets have, and in words those that too few have.
    fn trends(&self, all: &[ResultSet]) -> anyhow::Result<(Vec<Trend>, Vec<String>)> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut trends, mut left_out) = (Vec::new(), Vec::new());
        for Series { key: (configuration, metric), quantity, better, names, runs } in series(all) {
            if runs.len() < FEWEST_OF_TREND {
                left_out.push(format!(
                    "{}, {}: {} of {} sets have it, and {FEWEST_OF_TREND} are needed",
                    short_metric(&metric, quantity),
                    short_configuration(&configuration),
                    runs.len(),
                    all.len()
                ));
                continue;
            }
            let points = change_points(&runs, self.confidence, &mut rng).map_err(refused)?;
            let (least, most) = (1.0 / (1.0 + self.bound), 1.0 + self.bound);
            let changes = points.into_iter().map(|point| Change {
                set: usize::try_from(point.at)
                    .ok()
                    .and_then(|at| names.get(at).cloned())
                    .unwrap_or_default(),
                worse: (point.ratio.center > 1.0) == (better == Better::Lower),
                beyond_bound: point.ratio.center > most || point.ratio.center < least,
                point,
            });
            let changes = changes.collect();
            let medians = runs.iter().map(|runs| median(runs.clone())).collect();
            trends.push(Trend {
                changes,
                configuration,
                metric,
                quantity,
                better,
                sets: names,
                medians,
            });
        }
        Ok((trends, left_out))
    }
}

/// One metric of one configuration over the sets that have it.
struct Series {
    key: Key,
    quantity: Quantity,
    better: Better,
    names: Vec<String>,
    runs: Vec<Vec<f64>>,
}

/// All series, in the order in which the sets show them first.
fn series(all: &[ResultSet]) -> Vec<Series> {
    let mut found: Vec<Series> = Vec::new();
    let mut places: BTreeMap<Key, usize> = BTreeMap::new();
    for set in all {
        let name = set.described().name;
        for (key, (quantity, better), runs) in set.series() {
            let place = *places.entry(key.clone()).or_insert(found.len());
            if place == found.len() {
                let (names, runs) = (Vec::new(), Vec::new());
                found.push(Series { key: key.clone(), quantity, better, names, runs });
            }
            found[place].names.push(name.clone());
            found[place].runs.push(runs);
        }
    }
    found
}

fn in_words(trends: &[Trend], left_out: &[String], sets: usize) -> Section {
    let mut document = Section::new("trend", "");
    for trend in trends {
        for change in &trend.changes {
            let percent = |ratio: f64| figures(100.0 * (ratio - 1.0), 3);
            let ratio = &change.point.ratio;
            let range = ratio.interval.map_or_else(String::new, |interval| {
                format!(" [{} %, {} %]", percent(interval.low), percent(interval.high))
            });
            let way = if change.worse { "worse" } else { "better" };
            document.text(format!(
                "{}, {}: {way} from {} on: {} %{range} (p {})",
                short_metric(&trend.metric, trend.quantity),
                short_configuration(&trend.configuration),
                change.set,
                percent(ratio.center),
                p_value(change.point.p_value),
            ));
        }
    }
    for series in left_out {
        document.text(format!("* {series}"));
    }
    let still = trends.iter().filter(|trend| trend.changes.is_empty()).count();
    document.text(format!(
        "{sets} sets: {still} of {} series have no significant change",
        trends.len()
    ));
    document
}
