//! The answer card: what saturates first and at which load, whether to believe it, and what to examine
//! next.

use kendall_report::answer::{Answer as Card, Trust, TrustLevel};
use kendall_units::counted;

use super::{
    HIDDEN, UNITS, as_sentence, fills_first, first_to_saturate, hidden, outgrown, percent,
    servers_wanted, told, unexplained, unknown, untold, when,
};
use crate::analysis::Analysis;
use crate::system::System;
use kendall_fit::open::{Answer, WIDE, never_full, timed_inside};

/// A network that errs by more than this in the median is used with care.
const CAREFUL: f64 = 0.15;

/// Share of the windows below which few may be used.
const FEW_WINDOWS: f64 = 0.25;

pub(super) fn card(system: &System, analysis: &Analysis, answers: &[Answer], title: &str) -> Card {
    let told = told(analysis);
    let sentence = first_to_saturate(system, analysis)
        .unwrap_or_else(|| "Cannot tell what saturates first.".to_owned());
    Card {
        question: title.to_owned(),
        answer: sentence,
        told,
        trust: trust(analysis, answers),
        limits: when(system, analysis),
        model: model(analysis),
        next: next(system, analysis, answers),
        plot: None,
        table: None,
    }
}

fn trust(analysis: &Analysis, answers: &[Answer]) -> Trust {
    let said = |level, why: String, remedy: &str| Trust { level, why, remedy: remedy.to_owned() };
    let broken = analysis.laws.iter().filter(|law| !law.holds).count();
    if broken > 0 {
        return said(
            TrustLevel::Bad,
            format!("the monitoring violates {broken} of {}", counted(analysis.laws.len(), "law")),
            "fix the monitoring first: the chapter on it says which figures contradict each other",
        );
    }
    if let Some(what) = analysis.maybe_twice.first() {
        let remedy =
            "the metric `process_start_time_seconds` of both tells it, to a part of a second";
        return said(TrustLevel::Doubt, what.clone(), remedy);
    }
    if analysis.laws.is_empty() {
        return said(
            TrustLevel::Doubt,
            "no law can be checked: no tier has both arrivals and throughput, or both a number of \
             requests and a response time"
                .to_owned(),
            "give a tier queries for `arrivals` or `number`",
        );
    }
    let windows = &analysis.windows;
    let (used, all) = (windows.used().count(), windows.all.len() - windows.since);
    let share = kendall_units::ratio(used as u64, all as u64).unwrap_or(0.0);
    if share < FEW_WINDOWS {
        return said(
            TrustLevel::Doubt,
            format!("only {used} of {all} windows are steady enough to be used"),
            "analyze a longer time, or shorten the windows (`block`)",
        );
    }
    if let Some((what, remedy)) = doubt(analysis) {
        return said(TrustLevel::Doubt, what, remedy);
    }
    if let Some((question, times)) = wide(answers) {
        return said(
            TrustLevel::Doubt,
            format!("the response time of `{question}` is known to a factor of {times:.1} only"),
            "analyze a longer time: more windows make the interval smaller",
        );
    }
    match analysis.network.as_ref().ok().and_then(|network| network.score.as_ref()) {
        Some(score) if score.median <= CAREFUL => said(
            TrustLevel::Good,
            format!(
                "the monitoring is consistent by {}, and the network errs by {} where it was not fitted",
                counted(analysis.laws.len(), "law"),
                percent(score.median)
            ),
            "",
        ),
        Some(score) => said(
            TrustLevel::Doubt,
            format!("the network errs by {} where it was not fitted", percent(score.median)),
            "something that matters is not in the system file, or `busy` counts other work too",
        ),
        None => said(
            TrustLevel::Doubt,
            "there is no network of queues that could be scored".to_owned(),
            "give the entry a query for `response_time` and each tier one for `busy`",
        ),
    }
}

/// What the figures of the tiers do not explain or tell, and what would help.
fn doubt(analysis: &Analysis) -> Option<(String, &'static str)> {
    let inside = analysis.monitored.tiers.iter().find(|tier| tier.inside);
    let inside = inside.map(|tier| timed_inside(&tier.name));
    let all = [
        (
            hidden(analysis),
            "give it a tier: how busy it is tells more than how response times grow",
        ),
        (unexplained(analysis), UNITS),
        (outgrown(analysis), HIDDEN),
        (inside, "capacity and utilization do not need it"),
        (analysis.lacking.first().cloned(), "correct what it names, or analyze another time"),
        (untold(analysis).next(), "analyze a time in which the load varies more"),
        (unknown(analysis).next().map(never_full), "then its capacity is known too"),
    ];
    all.into_iter().find_map(|(what, remedy)| Some((what?, remedy)))
}

/// A question whose answer's interval spans too many times its low end.
fn wide(answers: &[Answer]) -> Option<(&str, f64)> {
    let mut spans = answers.iter().filter_map(|answer| {
        let interval = answer.response_time.as_ref().ok()?.interval?;
        Some((answer.question.as_str(), interval.high / interval.low))
    });
    spans.find(|(_, times)| *times > WIDE)
}

fn model(analysis: &Analysis) -> Option<String> {
    let score = analysis.network.as_ref().ok()?.score.as_ref()?;
    Some(format!(
        "The network of queues errs by {} in response time on {} that it was not fitted to \
         (worst {}).",
        percent(score.median),
        counted(score.points, "window"),
        percent(score.worst)
    ))
}

/// What is worth looking at next.
fn next(system: &System, analysis: &Analysis, answers: &[Answer]) -> String {
    if fills_first(analysis).is_some() || analysis.bottleneck.is_ok() && !told(analysis) {
        return "Find what requests wait for, and give it a tier: its `busy` and its `servers`."
            .to_owned();
    }
    match &analysis.bottleneck {
        Err(_) => servers_wanted(system, analysis).map_or_else(
            || {
                "Analyze a time in which the load varies more, or add a query for `busy` to tiers without one."
                    .to_owned()
            },
            |asked| as_sentence(&asked),
        ),
        Ok(index) if answers.is_empty() => {
            let tier = &system.tiers[*index].name;
            let more = analysis.tiers[*index].servers + 1;
            format!("Try one more server: `--what-if {tier}.servers={more},load=1.5`.")
        }
        Ok(_) => {
            "Check the prediction once the system has changed: record a day before and a day after \
             (`--record`)."
                .to_owned()
        }
    }
}
