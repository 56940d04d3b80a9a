//! A comparison in words and tables.

use std::path::PathBuf;

use kendall_report::comparison::{ComparisonPage, DifferenceKind};
use kendall_report::document::Section;
use kendall_stats::compare::{Better, Comparison, Quantity, Verdict, change as percent};
use kendall_stats::estimate::{Estimate, figures};

use crate::commands::design::tables::p_value;
use crate::text::grid;

/// What is printed as JSON.
#[derive(Debug, serde::Serialize)]
pub(super) struct Answer {
    #[serde(flatten)]
    pub(super) page: ComparisonPage,
    /// The page, if one was written.
    pub(super) report: Option<PathBuf>,
}

/// A mean: rates as they are, times in milliseconds.
fn shown(mean: &Estimate, quantity: Quantity) -> String {
    figures(quantity.shown().0 * mean.center, 4)
}

/// `throughput (1/s)`, `p99 (ms)`: short, for a column.
pub(super) fn short_metric(metric: &str, quantity: Quantity) -> String {
    let name = quantity.name_of(metric).trim_start_matches("response_time_");
    match quantity.shown().1 {
        "" => name.to_owned(),
        unit => format!("{name} ({unit})"),
    }
}

/// `workers=8 clients=64` for the dotted keys of a folder; as it is for a table, and for what is short already and
/// has the name of a set in front of it.
pub(super) fn short_configuration(configuration: &str) -> String {
    let short = |part: &str| match part.split_once('=') {
        Some((key, level)) if !key.contains(char::is_whitespace) => {
            format!("{}={level}", &key[key.rfind('.').map_or(0, |dot| dot + 1)..])
        }
        _ => part.to_owned(),
    };
    configuration.split(", ").map(short).collect::<Vec<_>>().join(" ")
}

pub(super) fn change(one: &Comparison) -> String {
    let Some(ratio) = &one.ratio else { return "–".to_owned() };
    match (one.interval(), ratio.interval) {
        (Some(i), _) => {
            format!("{} [{}, {}]", percent(ratio.center), percent(i.low), percent(i.high))
        }
        (None, Some(_)) => "?".to_owned(),
        (None, None) => percent(ratio.center),
    }
}

pub(super) fn human(answer: &Answer) -> Section {
    let page = &answer.page;
    let mut document = Section::new("comparison", "");
    for metric in metrics(&page.comparisons) {
        let of: Vec<&Comparison> =
            page.comparisons.iter().filter(|one| one.metric == metric).collect();
        let better = match of[0].better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
        };
        document.text(format!("{}, {better}", short_metric(metric, of[0].quantity)));
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
        document.table(grid(&header.map(str::to_owned), rows));
        for one in of {
            words(&mut document, one);
        }
    }
    let undecided =
        page.comparisons.iter().filter(|one| one.verdict == Verdict::Inconclusive).count();
    if undecided > 0 {
        let inconclusive = "inconclusive: not significant, or perhaps not beyond the bound; more \
                            repetitions would tell";
        document.text(inconclusive);
    }
    let subjects = page.differences.iter().filter(|one| one.kind == DifferenceKind::Subject);
    for one in subjects {
        let (before, after) = one.shown();
        document.text(format!("what differs: {} was {before}, is {after}", one.what));
    }
    for caveat in &page.caveats {
        document.text(format!("* {caveat}"));
    }
    if let Some(report) = &answer.report {
        document.text(format!("report  {}", report.display()));
    }
    let bound = figures(100.0 * page.bound, 3);
    let bound = bound.trim_end_matches('0').trim_end_matches('.');
    document.text(format!("verdict: {} (bound ±{bound} %)", page.verdict));
    document
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
fn words(document: &mut Section, one: &Comparison) {
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
        document.text(format!("- {of}: {} ({runs}{p})", one.words));
    }
    for caveat in &one.caveats {
        document.text(format!("- {of}: {caveat}"));
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
