//! Answers for people.

use kendall_fit::study::{Answer, Judged, Model, Rung};
use kendall_fit::twin::{Bottleneck, Interval};
use kendall_report::document::{Section, Table};
use kendall_stats::estimate::figures;
use kendall_units::counted;

use super::answers::{Answers, Metric, Outcome, Point, Rests, metrics};
use crate::text::grid;

/// A weight that is shown as a share of the answer.
const SHOWN: f64 = 0.005;

pub(super) fn document(answers: &Answers) -> Section {
    let mut document = Section::new("predictions", "");
    match (&answers.curve, answers.answers.as_slice()) {
        (None, [only]) => one(&mut document, only),
        _ => curve(&mut document, answers),
    }
    for added in &answers.added {
        let half = figures(100.0 * added.half_width, 2);
        document.text(format!("added      {}, at ±{half} %", words(&added.asked)));
    }
    rests(&mut document, &answers.calibration);
    document
}

fn words(asked: &[(String, String)]) -> String {
    let values: Vec<String> = asked.iter().map(|(key, value)| format!("{key}={value}")).collect();
    values.join(" ")
}

fn asked(point: &Point) -> String {
    let rest = point
        .levels
        .iter()
        .filter(|(key, _)| !point.asked.iter().any(|(known, _)| known == key))
        .map(|(key, value)| format!("{key}={}", plain(*value)));
    let rest: Vec<String> = rest.collect();
    let beside =
        if rest.is_empty() { String::new() } else { format!(" (with {})", rest.join(" ")) };
    let values = words(&point.asked);
    let values = if values.is_empty() { "the study's own".to_owned() } else { values };
    format!("{values}{beside}")
}

fn one(document: &mut Section, point: &Point) {
    document.text(format!("asked      {}", asked(point)));
    let Outcome::Predicted(answer) = &point.answer else { return };
    let header = ["", "predicted", "95 % prediction interval", "wide mostly for"];
    let mut rows: Vec<Vec<String>> = metrics(&answer.prediction)
        .into_iter()
        .map(|(metric, interval)| row(label(metric), interval, metric.quantity().shown().0))
        .collect();
    for host in &answer.prediction.hosts {
        rows.push(row(&format!("cores of {} busy (%)", host.name), &host.share, 100.0));
    }
    for (name, share) in &answer.prediction.pools {
        rows.push(vec![
            format!("{name} in use (%)"),
            figures(100.0 * share, 3),
            String::new(),
            String::new(),
        ]);
    }
    document.table(grid(&header.map(str::to_owned), rows.into_iter()));
    document.text(format!("bottleneck {}", bottleneck(&answer.prediction.bottleneck)));
    document.text(format!("model      {}", model(&answer.model)));
    notes(document, answer);
}

fn notes(document: &mut Section, answer: &Answer) {
    let prediction = &answer.prediction;
    if !answer.ladder.is_empty() {
        document.table(ladder(&answer.ladder));
        document.text("error      of R, each configuration left out in turn (and how many were)");
    }
    for distance in &prediction.distances {
        let (low, high) = distance.measured;
        let where_ = if distance.extrapolates() { "outside of" } else { "within" };
        document.text(format!(
            "distance   {} = {}: {where_} what was measured ({} to {})",
            distance.level,
            plain(distance.asked),
            plain(low),
            plain(high)
        ));
    }
    for assumption in &answer.assumed {
        document.text(format!("assumed    {assumption}"));
    }
    for caveat in &prediction.caveats {
        document.text(format!("* {caveat}"));
    }
}

fn curve(document: &mut Section, answers: &Answers) {
    let Some(along) = &answers.curve else { return };
    let header = [along.key.as_str(), "X (1/s)", "R (ms)", "p99 (ms)", "bottleneck"];
    let mut rows = Vec::new();
    let mut last = None;
    for point in &answers.answers {
        let value = point.asked.iter().find(|(key, _)| *key == along.key);
        let value = value.map_or_else(String::new, |(_, value)| value.clone());
        match &point.answer {
            Outcome::Predicted(answer) => {
                let p = &answer.prediction;
                rows.push(vec![
                    value,
                    between(&p.throughput_per_s, 1.0),
                    between(&p.response_mean_s, 1e3),
                    between(&p.response_p99_s, 1e3),
                    bottleneck(&p.bottleneck),
                ]);
                last = Some((point, answer));
            }
            Outcome::Refused(_) => {
                rows.push(vec![
                    value,
                    "refused".into(),
                    String::new(),
                    String::new(),
                    String::new(),
                ]);
            }
        }
    }
    document.table(grid(&header.map(str::to_owned), rows.into_iter()));
    match along.knee {
        Some(knee) => document.text(format!("knee       {} = {}", along.key, figures(knee, 3))),
        None => document
            .text("knee       beyond the curve: throughput still grows in proportion at its end"),
    }
    for point in &answers.answers {
        if let Outcome::Refused(why) = &point.answer {
            document.text(format!("refused    {}: {why}", asked(point)));
        }
    }
    if let Some((point, answer)) = last {
        document.text(format!("the last point: {}", asked(point)));
        notes(document, answer);
    }
}

fn rests(document: &mut Section, rests: &Rests) {
    let percent = |share: f64| figures(100.0 * share, 2);
    let probe =
        if rests.speed_probe { "the speed probe of each run taken off" } else { "no speed probe" };
    let alone = match rests.one_client {
        0 => String::new(),
        runs => format!(" (one of them one client alone, before {})", counted(runs, "run")),
    };
    let drift = if rests.drift_is_measured { "measured" } else { "taken, nothing was run twice" };
    document.text(format!(
        "based on   {} of {}{alone}; drift between runs {} % ({drift}; {probe}); \
             the fit misses its own runs by {} % in processor time, {} % in throughput and {} % in \
             response time",
        counted(rests.runs, "run"),
        counted(rests.configurations, "configuration"),
        percent(rests.drift),
        percent(rests.fit_residual),
        percent(rests.misfit_throughput),
        percent(rests.misfit_response)
    ));
    for run in &rests.left_out {
        document.text(format!("left out   {run}"));
    }
}

fn row(name: &str, interval: &Interval, scale: f64) -> Vec<String> {
    let end = |value: f64| figures(scale * value, 4);
    let ends = match interval.high.is_finite() {
        true => format!("{} to {}", end(interval.low), end(interval.high)),
        false => format!("{} or more", end(interval.low)),
    };
    vec![name.to_owned(), center(interval, scale), ends, interval.why.to_string()]
}

/// The prediction, unless its interval is too wide to tell.
fn center(interval: &Interval, scale: f64) -> String {
    match interval.tells() {
        true => figures(scale * interval.center, 4),
        false => "cannot tell".to_owned(),
    }
}

fn between(interval: &Interval, scale: f64) -> String {
    let end = |value: f64| figures(scale * value, 3);
    let high = if interval.high.is_finite() { end(interval.high) } else { "…".to_owned() };
    format!("{} [{}, {high}]", center(interval, scale), end(interval.low))
}

/// A level as a person would write it.
fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn label(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "throughput (1/s)",
        Metric::ResponseMean => "response time, mean (ms)",
        Metric::ResponseP50 => "response time, p50 (ms)",
        Metric::ResponseP90 => "response time, p90 (ms)",
        Metric::ResponseP99 => "response time, p99 (ms)",
    }
}

fn model(model: &Model) -> String {
    match model {
        Model::Measured { runs } => {
            format!("none: this configuration was measured, in {}", counted(*runs, "run"))
        }
        Model::Curve { runs } => format!("{}, of {}", Rung::Curve, counted(*runs, "run")),
        Model::Line => Rung::Line.to_string(),
        Model::ScalingLaw => Rung::ScalingLaw.to_string(),
        Model::Network => Rung::Network.to_string(),
        Model::FallingNetwork => Rung::FallingNetwork.to_string(),
        Model::HiddenStation => Rung::HiddenStation.to_string(),
        Model::Between { key, levels: [below, above], runs } => format!(
            "none: {} at {key} = {} and {}, between which it lies",
            counted(*runs, "run"),
            plain(*below),
            plain(*above)
        ),
        Model::Twin => Rung::Twin.to_string(),
    }
}

/// All models that have an answer, with how they were judged.
fn ladder(ladder: &[Judged]) -> Table {
    let header = ["model", "X (1/s)", "R (ms)", "error (%)", "share (%)"];
    let none = || "–".to_owned();
    let rows = ladder.iter().map(|judged| {
        let error = judged.left_out_error.map_or_else(none, |error| {
            format!("{} ({})", figures(100.0 * error.exp_m1(), 2), judged.left_out)
        });
        let share = (judged.weight > SHOWN).then(|| figures(100.0 * judged.weight, 2));
        vec![
            judged.name.to_string(),
            figures(judged.throughput_per_s, 4),
            figures(1e3 * judged.response_mean_s, 4),
            error,
            share.unwrap_or_else(none),
        ]
    });
    grid(&header.map(str::to_owned), rows)
}

pub(super) fn bottleneck(bottleneck: &Bottleneck) -> String {
    match bottleneck {
        Bottleneck::Host { name } => format!("cores of {name}"),
        Bottleneck::Pool { name } | Bottleneck::Commit { name } => name.clone(),
        Bottleneck::Threads { name } => format!("threads of {name}"),
        Bottleneck::Unseen => "something inside the service that no counter shows".to_owned(),
        Bottleneck::Nothing => "none: delays and the clients bound it".to_owned(),
    }
}
