//! The ladder of models: what each answers where it was asked, by how much it errs at configurations that it was not
//! fitted to, and which one answers.

use kendall_fit::study::{Judged, Rung, StudyModel};
use kendall_store::StoredPrediction;

use super::{asked, measured};
use crate::document::{Section, Table, Unit};
use crate::number;

/// A share of an answer from which a model is named.
const NAMED: f64 = 0.1;

/// Where several models answered: their answers, their judgement, and what follows.
pub(super) fn at_questions(predictions: &[StoredPrediction], section: &mut Section) {
    let mut said = Vec::new();
    let mut rows = Vec::new();
    for prediction in predictions {
        let ladder = serde_json::from_value::<Vec<Judged>>(prediction.answer["ladder"].clone());
        let ladder = ladder.unwrap_or_default();
        said.extend(who_answers(&ladder).map(|who| format!("{}: {who}", asked(prediction))));
        rows.extend(ladder.into_iter().map(|judged| (prediction, judged)));
    }
    if said.is_empty() {
        return;
    }
    let title = "Models of each answer: the mean of them, by their share, is the prediction; the error where \
                 left out is the root mean square in mean response time";
    let table = Table::of("ladder", title, rows)
        .column("asked", "asked", Unit::Text, |(prediction, _)| asked(prediction))
        .column("model", "model", Unit::Text, |(_, judged)| judged.name.to_string())
        .column("throughput_per_s", "X (1/s)", Unit::PerSecond, |(_, one)| one.throughput_per_s)
        .column("response_mean_s", "R (ms)", Unit::Milliseconds, |(_, one)| one.response_mean_s)
        .column("error", "error of X when measured (%)", Unit::SignedPercent, |(asked, judged)| {
            (measured(asked, 0).map(|truth| judged.throughput_per_s / truth - 1.0), "")
        })
        .column("left_out_error", "error where left out (%)", Unit::Percent, |(_, judged)| {
            (judged.left_out_error.map(f64::exp_m1), "")
        })
        .column("left_out", "left out", Unit::Count, |(_, one)| {
            kendall_units::exact_f64(one.left_out)
        })
        .column("weight", "share (%)", Unit::Percent, |(_, judged)| judged.weight);
    section.heading("Which model answers");
    section.list(said);
    section.table(table.table());
}

/// Which models an answer is made of, and why these.
fn who_answers(ladder: &[Judged]) -> Option<String> {
    let mut named: Vec<&Judged> = ladder.iter().filter(|judged| judged.weight >= NAMED).collect();
    named.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let part = |judged: &&Judged| {
        let error = judged.left_out_error.map_or_else(String::new, |error| {
            format!(", off by {} where left out", number::percent(error.exp_m1()))
        });
        format!("{} ({} of the answer{error})", judged.name, number::percent(judged.weight))
    };
    let parts: Vec<String> = named.iter().map(part).collect();
    let least = |judged: &&Judged| judged.left_out_error;
    let why = match named.iter().find_map(least) {
        Some(_) => "they err least at the configurations that were left out",
        None => "nothing could be left out, and such a model usually errs least",
    };
    (!parts.is_empty()).then(|| format!("{}: {why}.", parts.join("; ")))
}

/// What the models of all other runs say of each configuration.
pub(super) fn at_left_out(fitted: &StudyModel, kind: &str) -> Table {
    let id = format!("left-out{}", kind.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
    let title =
        "Each configuration left out in turn: error of throughput of each model of the others";
    let rows = Table::of(id, title, fitted.left_out())
        .column("levels", "levels", Unit::Text, |one| one.levels.clone())
        .column("throughput_per_s", "X (1/s)", Unit::PerSecond, |one| one.throughput_per_s);
    let known = |rung: &Rung| fitted.left_out().iter().any(|one| one.error(*rung).is_some());
    let rungs = Rung::ALL.into_iter().filter(known);
    let rows = rungs.fold(rows, |rows, rung| {
        rows.column(rung.key(), format!("{} (%)", rung.key()), Unit::SignedPercent, |one| {
            (one.error(rung).map(|[x, _]| x.exp_m1()), "")
        })
    });
    rows.table()
}
