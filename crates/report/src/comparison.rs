//! The page of a comparison: two result sets, what differs between them besides what is compared,
//! and for each response variable the change with its interval against the stated bound.
//!
//! What it leaves out: reading the sets and judging them, which the caller has done.

use std::path::Path;

use kendall_stats::compare::{Better, Comparison, Verdict};
use kendall_stats::estimate::{Caveat, Estimate};
use serde::Serialize;

use crate::document::{Cell, Level, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::{REPORT_VERSION, Report, ReportError, Written};

/// Name of the page without its ending.
const NAME: &str = "comparison";

/// Configurations in one plot at most; the tables hold all.
const MOST_PLOTTED: usize = 24;

/// One of the two result sets, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedSet {
    pub name: String,
    /// What the study asks, where that is known.
    pub title: String,
    pub usable_runs: u64,
    /// Runs that failed or were rejected.
    pub unusable_runs: u64,
    /// When the first run started, in nanoseconds since 1970; `None` for a table.
    pub started_unix_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DifferenceKind {
    /// A setting of the system, or the program: what a comparison is usually about.
    Subject,
    /// The machine, the load, or how it was measured: it poses as a difference of the systems.
    Condition,
}

/// Something that is not the same in both sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub kind: DifferenceKind,
    /// Dotted key of the setting, or the item of the environment.
    pub what: String,
    pub before: String,
    pub after: String,
}

/// Characters of a value that are shown, and of what is shown around a difference of longer ones.
const SHOWN: usize = 80;
const AROUND: usize = 20;

impl Difference {
    /// Both values; of long ones, such as the commands of a whole system, where they differ.
    pub fn shown(&self) -> (String, String) {
        let [before, after] =
            [&self.before, &self.after].map(|text| text.chars().collect::<Vec<char>>());
        let shorter = before.len().min(after.len());
        if before.len().max(after.len()) <= SHOWN {
            return (self.before.clone(), self.after.clone());
        }
        let alike = |pairs: &mut dyn Iterator<Item = (&char, &char)>| {
            pairs.take_while(|(a, b)| a == b).count()
        };
        let start = alike(&mut before.iter().zip(&after));
        let end = alike(&mut before.iter().rev().zip(after.iter().rev())).min(shorter - start);
        let part = |text: &[char]| {
            let (from, to) =
                (start.saturating_sub(AROUND), (text.len() - end + AROUND).min(text.len()));
            let mut part: String = text[from..to].iter().collect();
            if from > 0 {
                part.insert(0, '…');
            }
            if to < text.len() {
                part.push('…');
            }
            part
        };
        (part(&before), part(&after))
    }
}

/// Everything that the page says.
#[derive(Debug, Clone, Serialize)]
pub struct ComparisonPage {
    pub before: ComparedSet,
    pub after: ComparedSet,
    /// The worst verdict of all.
    pub verdict: Verdict,
    pub bound: f64,
    /// Of the intervals and of the verdict.
    pub confidence: f64,
    /// One a configuration and response variable.
    pub comparisons: Vec<Comparison>,
    /// What else is not the same.
    pub differences: Vec<Difference>,
    /// Caveats of the sets as a whole.
    pub caveats: Vec<Caveat>,
}

impl ComparisonPage {
    /// Writes `comparison.html`, `comparison.json` and tables into a folder.
    pub fn write(&self, folder: &Path) -> Result<Written, ReportError> {
        crate::write_as(folder, NAME, &self.report())
    }

    pub fn report(&self) -> Report {
        let sections =
            vec![self.verdicts(), self.changes(), self.differing(), self.doubts(), method()];
        Report {
            version: REPORT_VERSION,
            name: NAME.to_owned(),
            title: format!("{} compared with {}", self.after.name, self.before.name),
            byline: format!("{} · {}", runs(&self.before), runs(&self.after)),
            program: concat!("Kendall ", env!("CARGO_PKG_VERSION")).to_owned(),
            answer: None,
            figures: serde_json::Map::new(),
            models: Vec::new(),
            summary: self.sentences(),
            sections,
        }
    }

    fn sentences(&self) -> Vec<String> {
        let bound = number::percent(self.bound);
        let of =
            |verdict| self.comparisons.iter().filter(move |one| one.verdict == verdict).count();
        let counts = [
            (Verdict::Regression, "worse, by an estimate beyond the bound"),
            (Verdict::Improvement, "better, by an estimate beyond the bound"),
            (Verdict::Equivalent, "the same to within the bound"),
            (Verdict::Inconclusive, "for which these runs cannot tell"),
        ];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(verdict, _)| of(*verdict) > 0)
            .map(|(verdict, words)| format!("{} {words}", of(verdict)))
            .collect();
        let mut sentences = vec![format!(
            "Of {} at a bound of ±{bound}: {}.",
            number::count(self.comparisons.len(), "comparison"),
            counts.join(", ")
        )];
        let decided = matches!(self.verdict, Verdict::Regression | Verdict::Improvement);
        let worst = self.comparisons.iter().filter(|one| decided && one.verdict == self.verdict);
        let largest =
            |one: &&Comparison| one.ratio.as_ref().map_or(0.0, |ratio| ratio.center.ln().abs());
        if let Some(one) = worst.max_by(|a, b| largest(a).total_cmp(&largest(b))) {
            sentences.push(format!(
                "The largest {}: {}, {}: {}.",
                self.verdict,
                short(&one.configuration),
                variable(one),
                one.words
            ));
        }
        let conditions = self.conditions().count();
        if conditions > 0 {
            sentences.push(format!(
                "{} of the two sets differ, and may be mistaken for a difference of the systems.",
                number::count(conditions, "condition")
            ));
        }
        sentences
    }

    fn conditions(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|one| one.kind == DifferenceKind::Condition)
    }

    fn verdicts(&self) -> Section {
        let mut section = Section::new("summary", "Verdict");
        let (level, words) = match self.verdict {
            Verdict::Regression => {
                (Level::Bad, "regression: something is worse, by an estimate beyond the bound")
            }
            Verdict::Improvement => (Level::Good, "improvement, and no regression"),
            Verdict::Equivalent => (Level::Good, "equivalent: all changes lie within the bound"),
            Verdict::Inconclusive => (
                Level::Doubt,
                "no regression was found, but for some comparisons the runs cannot \
                                tell",
            ),
        };
        section.note(level, format!("{words} (±{}).", number::percent(self.bound)));
        section.list(self.sentences());
        section.table(self.table());
        section
    }

    fn table(&self) -> Table {
        // Of a single one, the name says nothing.
        let single =
            self.comparisons.windows(2).all(|two| two[0].configuration == two[1].configuration);
        let configuration = if single { "" } else { "Configuration" };
        let mut table = Table::new("comparison", "Every configuration and response variable")
            .column("configuration", configuration, Unit::Text)
            .column("metric", "Response variable", Unit::Text)
            .column("verdict", "Verdict", Unit::Text)
            .column("change", "Change (%)", Unit::SignedPercent)
            .column("before", "Before", Unit::Plain(4))
            .column("after", "After", Unit::Plain(4))
            .column("p_adjusted", "p (Holm)", Unit::Plain(2))
            .column("p_permutation", "p (relabeled)", Unit::Plain(2))
            .column("pairing", "Runs", Unit::Text);
        for one in &self.comparisons {
            let scale = one.quantity.shown().0;
            let way = if one.paired { "pairs" } else { "unpaired" };
            let runs = if one.paired {
                format!("{} {way}", one.runs.0)
            } else {
                format!("{} and {}, {way}", one.runs.0, one.runs.1)
            };
            let change = one.ratio.as_ref().map(|ratio| {
                let change = Estimate { interval: one.interval(), ..Estimate::exact(ratio.center) };
                one.caveats.iter().cloned().fold(change.map(|ratio| ratio - 1.0), Estimate::doubt)
            });
            table.push(vec![
                short(&one.configuration).into(),
                variable(one).into(),
                one.verdict.to_string().into(),
                Cell::estimate_or(change.as_ref(), "a response is not positive"),
                Cell::Estimate(one.before.map(|value| value * scale)),
                Cell::Estimate(one.after.map(|value| value * scale)),
                Cell::number_or(one.p_adjusted, "too few runs"),
                Cell::number_or(one.p_permutation, "too few runs"),
                runs.into(),
            ]);
        }
        table
    }

    fn changes(&self) -> Section {
        let mut section = Section::new("changes", "The change of each response variable");
        section.text(format!(
            "Each point is after over before, with the interval that its verdict rests on: {} for \
             all comparisons together. Between the dashed lines a change does not matter by the \
             bound of ±{} that was stated.",
            number::percent(self.confidence),
            number::percent(self.bound)
        ));
        let mut metrics: Vec<&str> = Vec::new();
        for one in &self.comparisons {
            if !metrics.contains(&one.metric.as_str()) {
                metrics.push(&one.metric);
            }
        }
        for metric in metrics {
            let of: Vec<&Comparison> =
                self.comparisons.iter().filter(|one| one.metric == metric).collect();
            section.heading(variable(of[0]));
            section.plot(self.ratios(metric, &of));
            section.plot(both(metric, &of));
            if of.len() > MOST_PLOTTED {
                section.text(format!(
                    "The plots show {MOST_PLOTTED} of {} configurations; the table holds all.",
                    of.len()
                ));
            }
            section.list(
                of.iter()
                    .map(|one| format!("{}: {}.", short(&one.configuration), one.words))
                    .collect(),
            );
        }
        section
    }

    fn ratios(&self, metric: &str, of: &[&Comparison]) -> Plot {
        let shown = &of[..of.len().min(MOST_PLOTTED)];
        let change = |ratio: f64| 100.0 * (ratio - 1.0);
        let of_verdict = |verdict: Verdict| -> Vec<Point> {
            let places = shown.iter().enumerate().filter(|(_, one)| one.verdict == verdict);
            places
                .filter_map(|(place, one)| {
                    let ratio = one.ratio.as_ref()?;
                    Some(Point {
                        x: kendall_units::exact_f64(place),
                        y: change(ratio.center),
                        interval: one.interval().map(|i| (change(i.low), change(i.high))),
                    })
                })
                .collect()
        };
        let last = kendall_units::exact_f64(shown.len().saturating_sub(1));
        let line = |y: f64| vec![Point::new(-0.5, y), Point::new(last + 0.5, y)];
        let mut all = vec![
            Series::new("bound", Mark::Dashed, 4, line(change(1.0 + self.bound))),
            Series::new("", Mark::Dashed, 4, line(change(1.0 / (1.0 + self.bound)))),
        ];
        for (color, verdict) in
            [Verdict::Equivalent, Verdict::Regression, Verdict::Improvement, Verdict::Inconclusive]
                .into_iter()
                .enumerate()
        {
            let points = of_verdict(verdict);
            if !points.is_empty() {
                all.push(Series::new(verdict.to_string(), Mark::Points, color, points));
            }
        }
        let better = match shown[0].better {
            Better::Lower => "Lower is better.",
            Better::Higher => "Higher is better.",
        };
        Plot {
            id: format!("plot-change-{}", id_of(metric)),
            title: format!("Change of the {}", variable(shown[0])),
            description: format!("After over before, less one. {better}"),
            x: Axis::categories("configuration", names(shown)),
            y: Axis::around_data("change (%)"),
            series: all,
        }
    }

    fn differing(&self) -> Section {
        let mut section = Section::new("differences", "What else differs between the sets");
        if self.differences.is_empty() {
            section.note(
                Level::Good,
                "Settings, machine and versions that were stored are the same in both sets.",
            );
        } else {
            section.text(
                "A setting of the system, or the program itself, is usually what a comparison is \
                 about. A condition (the machine, the load, how it was measured) is not: where one \
                 differs, its effect cannot be separated from that of the system.",
            );
        }
        let title = "Settings and environments that differ";
        let table = Table::of("differences", title, &self.differences)
            .column("kind", "Kind", Unit::Text, |one| match one.kind {
                DifferenceKind::Subject => "subject",
                DifferenceKind::Condition => "condition",
            })
            .column("what", "What", Unit::Text, |one| one.what.as_str())
            .column("before", "Before", Unit::Text, |one| one.before.as_str())
            .column("after", "After", Unit::Text, |one| one.after.as_str());
        section.table(table.table());
        section.table(self.sets());
        section
    }

    fn sets(&self) -> Table {
        let count = |runs: u64| kendall_units::exact_f64(usize::try_from(runs).unwrap_or(0));
        let rows = [("before", &self.before), ("after", &self.after)];
        Table::of("sets", "The two result sets", rows)
            .column("side", "Side", Unit::Text, |(side, _)| *side)
            .column("name", "Results", Unit::Text, |(_, set)| set.name.as_str())
            .column("title", "Study", Unit::Text, |(_, set)| set.title.as_str())
            .column("started", "First run", Unit::Text, |(_, set)| {
                let started = set.started_unix_ns.map(crate::chapters::utc_minutes);
                started
                    .map_or_else(|| Cell::Empty("tables contain no times".to_owned()), Cell::Text)
            })
            .column("usable_runs", "Runs used", Unit::Count, |(_, set)| count(set.usable_runs))
            .column("unusable_runs", "Failed or rejected", Unit::Count, |(_, set)| {
                count(set.unusable_runs)
            })
            .table()
    }

    fn doubts(&self) -> Section {
        let mut section = Section::new("threats", "Threats to validity");
        let mut items: Vec<String> = self.caveats.iter().map(ToString::to_string).collect();
        for one in &self.comparisons {
            let of = format!("{}, {}", short(&one.configuration), variable(one));
            items.extend(one.caveats.iter().map(|caveat| format!("{of}: {caveat}")));
        }
        if items.is_empty() {
            section.note(Level::Good, "Neither set carries a caveat of its own.");
        }
        section.list(items);
        section
    }
}

fn runs(set: &ComparedSet) -> String {
    let runs = number::count(usize::try_from(set.usable_runs).unwrap_or(0), "run");
    format!("{}: {runs}", set.name)
}

/// `throughput (1/s)`, `mean response time (ms)`.
fn variable(one: &Comparison) -> String {
    let name = one.quantity.name_of(&one.metric).replace('_', " ");
    match one.quantity.shown().1 {
        "" => name,
        unit => format!("{name} ({unit})"),
    }
}

fn id_of(metric: &str) -> String {
    metric.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// `clients=2` for `workload.clients=2`; as it is where there are no keys.
fn short(configuration: &str) -> String {
    let of = |part: &str| match part.split_once('=') {
        Some((key, level)) => format!("{}={level}", kendall_observations::short(key)),
        None => part.to_owned(),
    };
    configuration.split(", ").map(of).collect::<Vec<_>>().join(", ")
}

/// Names short enough for an axis.
fn names(shown: &[&Comparison]) -> Vec<String> {
    // Many of them, or long ones, have a number instead, by their row in the table.
    let all: Vec<String> = shown.iter().map(|one| short(&one.configuration)).collect();
    let room = 72 / all.len().max(1);
    if all.iter().all(|name| name.chars().count() <= room) {
        return all;
    }
    (1..=all.len()).map(|number| format!("#{number}")).collect()
}

fn both(metric: &str, of: &[&Comparison]) -> Plot {
    let shown = &of[..of.len().min(MOST_PLOTTED)];
    let scale = shown[0].quantity.shown().0;
    let series = |name: &str, color, value: fn(&Comparison) -> &Estimate| {
        let points = shown.iter().enumerate().map(|(place, one)| {
            crate::chapters::point(kendall_units::exact_f64(place), value(one), scale)
        });
        Series::new(name, Mark::Bars, color, points)
    };
    Plot {
        id: format!("plot-both-{}", id_of(metric)),
        title: format!("Before and after: {}", variable(shown[0])),
        description: "Means over the runs of each set. Their intervals may overlap although the \
                      change is significant: pairing cancels what both share."
            .to_owned(),
        x: Axis::categories("configuration", names(shown)),
        y: Axis::from_zero(variable(shown[0])),
        series: vec![series("before", 0, |one| &one.before), series("after", 1, |one| &one.after)],
    }
}

fn method() -> Section {
    let mut section = Section::new("method", "How this was judged");
    section.text(
        "The unit is the run, never the request. Runs are paired where the two sets were measured \
         in turns, block by block; otherwise Welch's t is used. Differences are taken on \
         logarithms, so that they read as ratios and twice is as far as half. Beside the t test \
         stands a permutation test, which assumes no distribution. p values are adjusted for the \
         number of comparisons (Holm), and so are the intervals, but for those that lie within the bound.",
    );
    section.text(
        "A regression or an improvement is significant and its ratio lies beyond the bound; \
         equivalent means that the whole interval lies within it. An interval that contains “no \
         change” does not show that there is none: that is inconclusive.",
    );
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_values_the_difference_is_shown() {
        let of = |before: String, after: String| {
            let (kind, what) = (DifferenceKind::Subject, "system.tiers".to_owned());
            Difference { kind, what, before, after }.shown()
        };
        let command = |delay: &str| format!("[{}{delay}{}]", "a".repeat(200), "z".repeat(300));
        let (before, after) = of(command("5ms"), command("5.5ms"));
        assert_eq!(before, format!("…{}5ms{}…", "a".repeat(19), "z".repeat(18)));
        assert_eq!(after, format!("…{}5.5ms{}…", "a".repeat(19), "z".repeat(18)));
        assert_eq!(of("5ms".to_owned(), "6ms".to_owned()), ("5ms".to_owned(), "6ms".to_owned()));
        // One goes on where the other ends.
        let (short, long) = of("é".repeat(90), "é".repeat(95));
        assert!(short.starts_with('…') && long.chars().count() < 60, "{short} {long}");
    }
}
