//! What was asked of the study's model, what it answered, and what verified it; and the model itself:
//! a drawing, its parameters, and a file to take along.

use kendall_fit::study::{Calibration, StudyModel, model_file, number as number_of};
use kendall_store::{Results, StoreError, StoredPrediction};
use serde_json::Value;

use crate::document::{Block, Level, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};

mod drawing;
mod ladder;

/// Factor keys in the captions.
const MOST_NAMED: usize = 6;

/// What was asked, and what the model is calibrated on.
struct Data {
    predictions: Vec<StoredPrediction>,
    calibration: Option<Calibration>,
}

/// The chapter, or none where nothing was asked.
pub(crate) fn chapter(results: &Results) -> Result<Option<Section>, StoreError> {
    let predictions = results.predictions()?;
    if predictions.is_empty() {
        return Ok(None);
    }
    let calibration = Some(kendall_observations::calibration(results)?);
    Ok(Some(written(&Data { predictions, calibration })))
}

fn written(data: &Data) -> Section {
    let mut section = Section::new("predictions", "Predictions");
    section.text(
        "What the study's calibrated model answered when it was asked (`kendall predict`, with \
         --keep or --verify). The interval is that of one run. A verified prediction was compared \
         with a run made after it; its error is given as it was predicted, and at the machine's \
         speed as the probe showed it in that run.",
    );
    section.list(data.predictions.iter().filter_map(verified).collect());
    section.table(table(data));
    for plot in bands(data) {
        section.plot(plot);
    }
    ladder::at_questions(&data.predictions, &mut section);
    model(data, &mut section);
    section
}

/// Keys and values of one prediction.
fn asked(prediction: &StoredPrediction) -> String {
    let values: Vec<String> =
        prediction.asked.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if values.is_empty() { "as the study".to_owned() } else { values.join(" ") }
}

/// A verification in a sentence.
fn verified(prediction: &StoredPrediction) -> Option<String> {
    let verdict = prediction.verdict.as_ref()?;
    if let Some(why) = verdict["disturbed"].as_str() {
        let asked = asked(prediction);
        return Some(format!("{asked}: cannot tell, the verifying run was disturbed: {why}."));
    }
    let error = |place: usize| {
        let metric = &verdict["metrics"][place];
        let at = metric["at_measured_speed"]["error"].as_f64();
        at.or_else(|| metric["error"].as_f64()).map(number::signed_percent)
    };
    let held =
        if verdict["held"].as_bool()? { "all intervals held" } else { "not all intervals held" };
    Some(format!(
        "{}: predicted over measured {} in throughput and {} in mean response; {held}.",
        asked(prediction),
        error(0)?,
        error(1)?
    ))
}

fn table(data: &Data) -> Table {
    let title = "Predictions, and what was measured where they were verified";
    let rows = Table::of("predictions", title, &data.predictions).column(
        "asked",
        "asked",
        Unit::Text,
        |prediction| asked(prediction),
    );
    let metrics = [
        ("throughput_per_s", "X (1/s)", Unit::PerSecond, 0),
        ("response_mean_s", "R (ms)", Unit::Milliseconds, 1),
        ("response_p99_s", "p99 (ms)", Unit::Milliseconds, 4),
    ];
    let rows = metrics.into_iter().fold(rows, |rows, (key, label, unit, place)| {
        let of = |end: &'static str| {
            move |prediction: &&StoredPrediction| (prediction.answer[key][end].as_f64(), "")
        };
        rows.column(key, label, unit, of("center"))
            .column(format!("{key}_low"), format!("{label}, low"), unit, of("low"))
            .column(format!("{key}_high"), format!("{label}, high"), unit, of("high"))
            .column(format!("{key}_measured"), format!("{label}, measured"), unit, |prediction| {
                (measured(prediction, place), "")
            })
    });
    rows.table()
}

fn measured(prediction: &StoredPrediction, place: usize) -> Option<f64> {
    prediction.verdict.as_ref()?["metrics"][place]["measured"].as_f64()
}

/// One plot a key that was asked with several numbers while all else stayed: bands, and the verified
/// points on them.
fn bands(data: &Data) -> Vec<Plot> {
    let mut keys: Vec<&String> = Vec::new();
    for (key, _) in data.predictions.iter().flat_map(|prediction| &prediction.asked) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut plots = Vec::new();
    for key in keys.into_iter().take(MOST_NAMED) {
        let points: Vec<(f64, &StoredPrediction)> =
            data.predictions.iter().filter_map(|p| Some((value_of(p, key)?, p))).collect();
        let mut xs: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup_by(|a, b| (*a - *b).abs() < 1e-12);
        if xs.len() > 1 {
            plots.push(band(key, &points));
        }
    }
    plots
}

fn value_of(prediction: &StoredPrediction, key: &str) -> Option<f64> {
    let (_, value) = prediction.asked.iter().find(|(known, _)| known == key)?;
    value.parse().ok().or_else(|| number_of(&Value::String(value.clone())))
}

fn band(key: &str, points: &[(f64, &StoredPrediction)]) -> Plot {
    let mut predicted: Vec<Point> = points
        .iter()
        .filter_map(|(x, prediction)| {
            let of = |end: &str| prediction.answer["throughput_per_s"][end].as_f64();
            Some(Point { x: *x, y: of("center")?, interval: Some((of("low")?, of("high")?)) })
        })
        .collect();
    predicted.sort_by(|a, b| a.x.total_cmp(&b.x));
    let verified: Vec<Point> = points
        .iter()
        .filter_map(|(x, p)| Some(Point { x: *x, y: measured(p, 0)?, interval: None }))
        .collect();
    Plot {
        id: format!("predictions-{}", key.replace(|c: char| !c.is_ascii_alphanumeric(), "-")),
        title: format!("Predicted throughput over {key}, and verified points"),
        description: "Predictions with their 95 % intervals for one run; points that were run \
                      afterwards stand beside them."
            .to_owned(),
        x: Axis::from_zero(key),
        y: Axis::from_zero("throughput (1/s)"),
        series: vec![
            Series::new("predicted", Mark::Line, 0, predicted),
            Series::new("verified", Mark::Points, 1, verified),
        ],
    }
}

fn model(data: &Data, section: &mut Section) {
    let Some(calibration) = &data.calibration else { return };
    if !calibration.one_client.is_empty() {
        section.table(one_client(calibration));
    }
    section.heading("The model");
    for signature in calibration.signatures() {
        let kind = if signature.0.is_empty() { String::new() } else { format!(", {signature}") };
        match calibration.twin(&signature, &[], &[]) {
            Ok(fitted) => fitted_model(&fitted, calibration, &kind, section),
            Err(why) => section.note(Level::Bad, format!("No model{kind}: {why}.")),
        }
    }
}

/// What one client alone measured before each run.
fn one_client(calibration: &Calibration) -> Table {
    let title = "One client alone, without think time, before the load of each run: the model rests on those \
                 before the runs at the lightest load";
    Table::of("one-client", title, &calibration.one_client)
        .column("run", "before run", Unit::Count, |facts| f64::from(facts.run.position + 1))
        .column("levels", "levels", Unit::Text, |facts| facts.run.levels_in_words())
        .column("requests", "requests", Unit::Count, |facts| {
            (facts.throughput_per_s * facts.measured_s).round()
        })
        .column("throughput_per_s", "X (1/s)", Unit::PerSecond, |facts| facts.throughput_per_s)
        .column("response_mean_s", "R (ms)", Unit::Milliseconds, |facts| facts.response_mean_s)
        .column("response_p50_s", "p50 (ms)", Unit::Milliseconds, |facts| {
            (facts.percentiles_s.map(|times| times[0]), "")
        })
        .column("response_p99_s", "p99 (ms)", Unit::Milliseconds, |facts| {
            (facts.percentiles_s.map(|times| times[2]), "")
        })
        .table()
}

fn fitted_model(fitted: &StudyModel, calibration: &Calibration, kind: &str, section: &mut Section) {
    let twin = &fitted.twin;
    section.text(format!(
        "Calibrated{kind} on {} of {}{}; CPU time per request of one configuration differs by {} \
         between runs{}; the model misses its own runs by {} in throughput and {} in mean \
         response.",
        number::count(fitted.runs.len(), "run"),
        number::count(twin.configurations().len(), "configuration"),
        match fitted.one_client.len() {
            0 => String::new(),
            runs =>
                format!(" (one of them one client alone, before {})", number::count(runs, "run")),
        },
        number::percent(twin.drift),
        if twin.has_probe() { ", the probe's speed taken off" } else { "" },
        number::percent(twin.misfit.throughput),
        number::percent(twin.misfit.response),
    ));
    if twin.misfit.contradicted {
        let what = "Its own runs contradict the structure: something that bounds the throughput is \
                    not in it.";
        section.note(Level::Bad, what);
    }
    if let Some(disturbed) = &fitted.disturbed {
        section.note(Level::Doubt, format!("{disturbed}."));
    }
    section.list(fitted.assumptions.clone());
    let runs = fitted.runs.iter().map(|place| &calibration.runs[*place]);
    if let Some(busiest) = runs.max_by(|a, b| a.busy().total_cmp(&b.busy())) {
        section.blocks.push(Block::Drawing(drawing::of(fitted, busiest)));
    }
    section.table(parameters(fitted, kind));
    section.table(ladder::at_left_out(fitted, kind));
    let file = model_file(fitted);
    section.text(
        "The model as JSON: structure at the lightest load, demands, and their \
                  uncertainty.",
    );
    section.blocks.push(Block::Verbatim(serde_json::to_string_pretty(&file).unwrap_or_default()));
}

/// Demands with their intervals: what the form leaves and what the machine's drift does.
fn parameters(fitted: &StudyModel, kind: &str) -> Table {
    let id = format!("model-parameters{}", kind.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
    let title = "Demands of the model: work of a request, work of a batch, price of a switch; and the \
                 half-width of a 95 % interval of all of them together";
    let half = fitted.twin.demands_half_width();
    let processes = &fitted.twin.configurations()[0].system.processes;
    Table::of(id, title, processes.iter().zip(fitted.twin.demands()))
        .column("process", "process", Unit::Text, |(process, _)| process.name.as_str())
        .column("work_s", "work (µs)", Unit::Microseconds, |(_, demand)| demand.work_s)
        .column("batch_s", "of a batch (µs)", Unit::Microseconds, |(_, demand)| demand.batch_s)
        .column("switch_s", "of a switch (µs)", Unit::Microseconds, |(_, demand)| demand.switch_s)
        .column("half_width", "± (%)", Unit::Percent, |_| half)
        .table()
}
