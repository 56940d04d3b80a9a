//! `--objective`: the most load that meets it, or the cheapest setting that carries a stated load.

use kendall_fit::study::{Answer, AskError};
use kendall_fit::twin::{Interval, Prediction, Workload};
use kendall_report::document::Section;
use kendall_stats::estimate::figures;
use kendall_study::Objective;
use serde::Serialize;

use super::answers::Asker;
use super::question::{Asked, place};
use crate::exit::refused;
use crate::text::grid;

/// Halvings of the gap in which the most load lies.
const HALVINGS: u32 = 6;
/// Settings that are tried at most.
const MOST_SETTINGS: usize = 200;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case", tag = "plan")]
pub(super) enum Plan {
    /// The most load that meets the objective.
    MostLoad {
        objective: String,
        key: String,
        /// By the predictions themselves.
        expected: Option<Load>,
        /// Where even the unfavorable end of the interval meets it.
        surely: Option<Load>,
        /// Whether the search ended at the highest load that the runs say something about.
        limited_by_reach: bool,
    },
    /// Settings that carry a load, cheapest first.
    Settings { objective: String, carried_per_s: f64, settings: Vec<Setting> },
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Load {
    pub(super) value: f64,
    pub(super) throughput_per_s: f64,
    /// What the objective is about, in s.
    pub(super) metric_s: Interval,
    /// Reasons to trust it less.
    pub(super) caveats: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Setting {
    pub(super) asked: Vec<(String, String)>,
    /// By the stated costs; none where no cost is stated for any of its keys.
    pub(super) cost: Option<f64>,
    pub(super) metric_s: Option<Interval>,
    /// Reasons to trust it less.
    pub(super) caveats: Vec<String>,
    /// It carries the load and meets the objective, by the prediction.
    pub(super) meets: bool,
    /// The same by the unfavorable end of the interval.
    pub(super) meets_surely: bool,
}

/// The interval that an objective is about.
fn metric(prediction: &Prediction, objective: &Objective) -> anyhow::Result<Interval> {
    let known = [
        (0.5, &prediction.response_p50_s),
        (0.9, &prediction.response_p90_s),
        (0.99, &prediction.response_p99_s),
    ];
    let Some(quantile) = objective.quantile else { return Ok(prediction.response_mean_s) };
    let found = known.iter().find(|(known, _)| (known - quantile).abs() < 1e-9);
    found
        .map(|(_, interval)| **interval)
        .ok_or_else(|| refused("the model predicts mean, p50, p90 and p99: ask for one of them"))
}

/// The most load that meets an objective.
pub(super) fn most_load(
    asker: &Asker<'_>,
    asked: &Asked,
    objective: &Objective,
) -> anyhow::Result<Plan> {
    let fixed: Vec<(String, String)> = asked.points().into_iter().next().unwrap_or_default();
    let range = asked.curve();
    let (key, low, high, unit) = match range {
        Some(range) => {
            let ends = (range.values.first(), range.values.last());
            let unit = range.values[0].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            let end = |value: Option<&String>| value.map_or(1.0, |value| place(value));
            (range.key.clone(), end(ends.0), end(ends.1), unit.to_owned())
        }
        None => asker.load_range(&fixed)?,
    };
    let at = |value: f64| -> anyhow::Result<Option<Load>> {
        let mut values: Vec<(String, String)> =
            fixed.iter().filter(|(known, _)| *known != key).cloned().collect();
        values.push((key.clone(), format!("{value:.0}{unit}")));
        match asker.ask(&values) {
            Ok(answer) => Ok(Some(Load {
                value: value.round(),
                throughput_per_s: answer.prediction.throughput_per_s.center,
                metric_s: metric(&answer.prediction, objective)?,
                caveats: answer.prediction.caveats,
            })),
            // Without a steady state no objective is met; any other refusal is one.
            Err(error) if overloaded(&error) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let below = objective.below.get();
    let mut expected = None;
    let mut surely = None;
    let mut limited = false;
    for (found, of) in [(&mut expected, false), (&mut surely, true)] {
        let meets = |load: &Option<Load>| {
            load.as_ref()
                .is_some_and(|l| (if of { l.metric_s.high } else { l.metric_s.center }) < below)
        };
        let (mut from, mut to) = (low, high);
        let first = at(from)?;
        if !meets(&first) {
            continue;
        }
        *found = first;
        let last = at(to)?;
        if meets(&last) {
            limited |= !of;
            *found = last;
            continue;
        }
        for _ in 0..HALVINGS {
            let middle = (from * to).sqrt().round();
            if middle <= from || middle >= to {
                break;
            }
            let load = at(middle)?;
            if meets(&load) {
                (from, *found) = (middle, load);
            } else {
                to = middle;
            }
        }
    }
    let limited_by_reach = limited && range.is_none();
    let objective = objective.text.clone();
    Ok(Plan::MostLoad { objective, key, expected, surely, limited_by_reach })
}

/// Settings that carry so much, cheapest first.
pub(super) fn settings(
    asker: &Asker<'_>,
    asked: &Asked,
    objective: &Objective,
    carried_per_s: f64,
    costs: &[(String, f64)],
) -> anyhow::Result<Plan> {
    let all = asked.product();
    if all.len() > MOST_SETTINGS {
        let many = format!("{} settings to evaluate; give at most {MOST_SETTINGS}", all.len());
        return Err(refused(many));
    }
    let mut settings = Vec::new();
    for values in all {
        let answer = asker.ask_under(&values, Workload::Open { rate_per_s: carried_per_s });
        let answer: Option<Answer> = match answer {
            Ok(answer) => Some(answer),
            Err(error) if overloaded(&error) => None,
            Err(error) => return Err(error),
        };
        let caveats = answer.as_ref().map(|a| a.prediction.caveats.clone()).unwrap_or_default();
        let metric_s = answer.map(|a| metric(&a.prediction, objective)).transpose()?;
        let below = objective.below.get();
        let stated = values.iter().filter_map(|(key, value)| {
            let (_, each) = costs.iter().find(|(known, _)| known == key)?;
            Some(each * place(value))
        });
        let costs: Vec<f64> = stated.collect();
        settings.push(Setting {
            cost: (!costs.is_empty()).then(|| costs.iter().sum()),
            meets: metric_s.is_some_and(|m| m.center < below),
            meets_surely: metric_s.is_some_and(|m| m.high < below),
            metric_s,
            caveats,
            asked: values,
        });
    }
    let cost = |setting: &Setting| setting.cost.unwrap_or(f64::INFINITY);
    settings.sort_by(|a, b| b.meets.cmp(&a.meets).then(cost(a).total_cmp(&cost(b))));
    Ok(Plan::Settings { objective: objective.text.clone(), carried_per_s, settings })
}

fn overloaded(error: &anyhow::Error) -> bool {
    use kendall_fit::twin::Refusal;
    matches!(error.downcast_ref(), Some(AskError::Refused(Refusal::Overloaded { .. })))
}

pub(super) fn document(plan: &Plan) -> Section {
    let mut document = Section::new("plan", "");
    match plan {
        Plan::MostLoad { objective, key, expected, surely, limited_by_reach } => {
            let said = |load: &Option<Load>| match load {
                None => "none: it is not met even at the lightest load".to_owned(),
                Some(load) => format!(
                    "{key} = {:.0}, {} requests/s, {} ms [{}, {}]",
                    load.value,
                    figures(load.throughput_per_s, 4),
                    figures(1e3 * load.metric_s.center, 3),
                    figures(1e3 * load.metric_s.low, 3),
                    figures(1e3 * load.metric_s.high, 3)
                ),
            };
            document.text(format!("objective  {objective}"));
            document.text(format!("most       {}", said(expected)));
            document.text(format!("surely     {} (the whole interval meets it)", said(surely)));
            let loads = [expected, surely];
            let mut caveats: Vec<&String> =
                loads.into_iter().flatten().flat_map(|load| &load.caveats).collect();
            caveats.dedup();
            for caveat in caveats {
                document.text(format!("* {caveat}"));
            }
            if *limited_by_reach {
                document.text("* higher loads were not run: it may carry more");
            }
        }
        Plan::Settings { objective, carried_per_s, settings } => {
            let carried = figures(*carried_per_s, 4);
            document.text(format!("carries {carried}/s with {objective}, cheapest first"));
            let header = ["setting", "cost", "predicted (ms)", "meets it"];
            let rows = settings.iter().map(|setting| {
                let values: Vec<String> =
                    setting.asked.iter().map(|(key, value)| format!("{key}={value}")).collect();
                let predicted = setting.metric_s.map_or_else(
                    || "no steady state".to_owned(),
                    |m| {
                        let [center, low, high] =
                            [m.center, m.low, m.high].map(|v| figures(1e3 * v, 3));
                        format!("{center} [{low}, {high}]")
                    },
                );
                let meets = match (setting.meets, setting.meets_surely) {
                    (_, true) => "surely",
                    (true, false) => "by its prediction",
                    (false, false) => "no",
                };
                let cost = setting.cost.map_or_else(|| "–".to_owned(), |cost| figures(cost, 4));
                vec![values.join(" "), cost, predicted, meets.to_owned()]
            });
            document.table(grid(&header.map(str::to_owned), rows));
            if let Some(best) = settings.iter().find(|setting| setting.meets) {
                for caveat in &best.caveats {
                    document.text(format!("* the first: {caveat}"));
                }
            }
        }
    }
    document
}
