//! What a study found, configuration by configuration.

use std::path::PathBuf;

use kendall_observations::{Configuration, Observations, short};
use kendall_report::answer::Answer;
use kendall_report::document::{Cell, Table, Unit};
use kendall_stats::estimate::{Caveat, Estimate};
use kendall_store::{FactorLevel, Results, SearchLine, StoreError};
use kendall_study::{StudyFile, Summary};
use kendall_units::{counted, exact_f64};
use serde::Serialize;
use serde_json::json;

use crate::text::{self, line_columns, wrapped, wrapped_at};

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// One configuration over its repetitions.
#[derive(Debug, Serialize)]
struct Row {
    configuration: u32,
    factors: Vec<FactorLevel>,
    runs: usize,
    throughput_per_s: Estimate,
    /// `None` where the load did not say what each request took.
    response_time_mean_s: Option<Estimate>,
    /// Of a job with an end: from its start to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    makespan_s: Option<Estimate>,
    /// `None` where the runs hold too few requests for it.
    response_time_quantiles_s: Vec<(&'static str, Option<f64>)>,
    /// The 99th percentile with its interval over runs.
    response_time_p99_s: Option<Estimate>,
    caveats: usize,
}

fn rows(observations: &Observations) -> Vec<Row> {
    let row = |configuration: &Configuration| {
        let quantile = |q: f64| configuration.percentile_estimate(q).ok();
        let caveats = configuration.repetitions.iter().map(|one| one.run.caveats.len()).sum();
        Some(Row {
            configuration: configuration.number,
            factors: configuration.levels.clone(),
            runs: configuration.repetitions.len(),
            throughput_per_s: configuration.throughput_estimate()?,
            response_time_mean_s: configuration.response_estimate(),
            makespan_s: configuration.makespan_estimate(),
            response_time_quantiles_s: QUANTILES
                .map(|(name, q)| (name, quantile(q).map(|estimate| estimate.center)))
                .into(),
            response_time_p99_s: quantile(0.99),
            caveats,
        })
    };
    observations.configurations.iter().filter_map(row).collect()
}

/// The printed answer, and the page that shows it.
pub(super) struct Told {
    pub(super) answer: Answer,
    pub(super) report: Option<PathBuf>,
    /// Whether there are runs that it rests on.
    pub(super) has_runs: bool,
    /// Whether it is that of the first pass, since the study's own runs tell less so far.
    pub(super) of_first_pass: bool,
}

impl Told {
    pub(super) fn new(answer: Answer, report: Option<PathBuf>) -> Self {
        Self { answer, report, has_runs: true, of_first_pass: false }
    }

    pub(super) fn of(results: &Results) -> Result<Self, StoreError> {
        let observations = Observations::read(results)?;
        let has_runs = !observations.configurations.is_empty();
        Ok(Self { has_runs, ..Self::new(kendall_report::answer_of(&observations), None) })
    }
}

pub(super) fn text(
    study: &StudyFile,
    results: &Results,
    summary: &Summary,
    told: &Told,
) -> anyhow::Result<String> {
    let observations = Observations::read(results)?;
    let rows = rows(&observations);
    let mut text = wrapped(&study.title);
    if rows.is_empty() {
        text.push_str("no run can be used, so there are no numbers\n");
    } else {
        text.push_str(&format!(
            "{}\n{}",
            text::table(&configurations(study, &rows)),
            wrapped(&format!(
                "± or (from to) is the {} % interval over repetitions, ± ? where they differ too \
                 much for one, and nothing where all are equal; the report has more",
                100.0 * study.base.measure.confidence
            ))
        ));
    }
    text.push_str(&caveats(&observations));
    text.push_str(&searched(&observations.searches));
    text.push_str(&format!("{} done", counted(summary.done, "run")));
    for (count, word) in [(summary.rejected, "rejected"), (summary.failed, "failed")] {
        if count > 0 {
            text.push_str(&format!(", {count} {word} (retry them with --retry-failed)"));
        }
    }
    if summary.earlier > 0 {
        text.push_str(&format!("; {} of them in earlier sessions", summary.earlier));
    }
    if summary.short_of_precision > 0 {
        text.push_str(&format!(
            "\n{} of {} configurations reached `max` repetitions before the precision of `until`:\ntheir \
             intervals are wider, or rest on too few runs",
            summary.short_of_precision,
            rows.len()
        ));
    }
    text.push_str(&format!("\nresults {}\n", results.folder().display()));
    if let Some(report) = &told.report {
        text.push_str(&format!("report  {}\n", report.display()));
    }
    if told.of_first_pass {
        text.push_str(
            "\nThe answer is that of the first pass: the runs since then tell less so far.\n",
        );
    }
    if told.has_runs {
        text.push('\n');
        text.push_str(&card(&told.answer));
    }
    Ok(text)
}

fn configurations(study: &StudyFile, rows: &[Row]) -> Table {
    let level =
        |row: &Row, key: &str| row.factors.iter().find(|level| level.factor == key).cloned();
    let names = short_names(study.factors.iter().map(|factor| factor.key.as_str()));
    let mut table = Table::of("configurations", "Configurations", rows);
    for (factor, name) in study.factors.iter().zip(names) {
        let key = factor.key.as_str();
        let is_number = |row: &Row| level(row, key).is_none_or(|level| level.number.is_some());
        let unit = if rows.iter().all(is_number) { Unit::Number } else { Unit::Text };
        table = table.column(key, name, unit, |row| level(row, key).map(|level| level.text));
    }
    let mut table = table.column("runs", "runs", Unit::Count, |row| exact_f64(row.runs)).column(
        "throughput_per_s",
        "throughput (1/s)",
        Unit::PerSecond,
        |row| row.throughput_per_s.clone(),
    );
    // With many factors there is no room for the second interval; the JSON has it.
    let roomy = study.factors.len() < 3;
    let time = move |time: &Option<Estimate>| match time {
        Some(time) if roomy => time.clone().into(),
        time => Cell::from(time.as_ref().map(|time| time.center)),
    };
    table = if study.base.workload.is_job() {
        table.column("makespan_s", "makespan (s)", Unit::Plain(3), |row| time(&row.makespan_s))
    } else {
        let unit = Unit::Milliseconds;
        table.column("mean_s", "mean (ms)", unit, |row| time(&row.response_time_mean_s))
    };
    // Many factors leave room for these only; the JSON and the report have all.
    if study.factors.len() < 4 {
        table = table
            .column("p99_s", "p99 (ms)", Unit::Milliseconds, |row| {
                let p99 = row.response_time_p99_s.as_ref();
                p99.map_or_else(|| "too few".into(), |p99| Cell::Number(p99.center))
            })
            .column("caveats", "caveats", Unit::Count, |row| exact_f64(row.caveats));
    }
    table.table()
}

/// `workers` for `system.workers`, unless another key ends so too.
fn short_names<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<String> {
    let keys: Vec<&str> = keys.collect();
    let alone = |key: &str| keys.iter().filter(|other| short(other) == short(key)).count() == 1;
    keys.iter().map(|key| if alone(key) { short(key) } else { (*key).to_owned() }).collect()
}

/// Caveats in words, most frequent first: a kind a line, with the figures of its first run.
fn caveats(observations: &Observations) -> String {
    const MOST: usize = 4;
    let runs: Vec<_> = observations.configurations.iter().flat_map(|c| &c.repetitions).collect();
    let mut kinds =
        Caveat::by_kind(runs.iter().map(|repetition| repetition.run.caveats.as_slice()));
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut text = String::new();
    for (caveat, count) in kinds.iter().take(MOST) {
        text.push_str(&wrapped(&format!(
            "* caveat, in {count} of {}: {caveat}",
            counted(runs.len(), "run")
        )));
    }
    if kinds.len() > MOST {
        let more = counted(kinds.len() - MOST, "further caveat");
        text.push_str(&format!("* and {more}; the report has all\n"));
    }
    text
}

/// What an adaptive design found; nothing for other designs.
fn searched(lines: &[SearchLine]) -> String {
    let Some(first) = lines.first() else { return String::new() };
    let mut notes = String::new();
    for line in lines {
        let mut doubts: Vec<String> = Vec::new();
        match &line.found {
            Some(found) => {
                doubts.extend(found.fit.as_ref().map(|fit| format!("shape: {}", fit.in_words())));
                doubts.extend(found.beyond_in_words());
                doubts
                    .extend(found.maximum_throughput_per_s.caveats.iter().map(ToString::to_string));
            }
            None => doubts.push(line.without.clone()),
        }
        for doubt in doubts {
            let levels: Vec<&str> = line.levels.iter().map(|level| level.text.as_str()).collect();
            let at =
                if levels.is_empty() { String::new() } else { format!("{}: ", levels.join(", ")) };
            notes.push_str(&wrapped(&format!("* {at}{doubt}")));
        }
    }
    let (runs, sweep) =
        lines.iter().fold((0, 0), |s, line| (s.0 + line.runs, s.1 + line.sweep_runs));
    format!(
        "\nFound by the search over {}:\n{}\n{notes}N* is where waiting begins, the knee where \
         95 % of the maximum is reached;\nsweep: runs that a sweep over all {} levels takes. {} \
         instead of {sweep}.\n\n",
        first.factor,
        text::table(&found(first, lines)),
        first.grid,
        counted(runs, "run")
    )
}

fn found(first: &SearchLine, lines: &[SearchLine]) -> Table {
    let mut table = Table::of("searches", "Searches", lines);
    let names = short_names(first.levels.iter().map(|level| level.factor.as_str()));
    for (at, name) in names.into_iter().enumerate() {
        table = table.column(name.clone(), name, Unit::Text, move |line| {
            line.levels.get(at).map(|level| level.text.clone())
        });
    }
    table
        .column("maximum_per_s", "maximum (1/s)", Unit::PerSecond, |line| match &line.found {
            Some(found) => found.maximum_throughput_per_s.clone().into(),
            None => Cell::from("not found"),
        })
        .column("best", format!("at {}", short(&first.factor)), Unit::Number, |line| {
            let found = line.found.as_ref()?;
            let (low, high) = found.best_between;
            let between = if low < high { format!(" ({low} to {high})") } else { String::new() };
            Some(format!("{}{between}", found.best))
        })
        .column("saturation_point", "N*", Unit::Plain(3), |line| {
            Some(line.found.as_ref()?.saturation_point.clone())
        })
        .column("knee", "knee in", Unit::Number, |line| {
            let (below, above) = line.found.as_ref()?.knee_between;
            let between = below < above;
            Some(if between { format!("{below} to {above}") } else { format!("≤ {above}") })
        })
        .column("runs", "runs", Unit::Count, |line| line.runs)
        .column("sweep_runs", "sweep", Unit::Count, |line| line.sweep_runs)
        .table()
}

/// The answer, as the last lines: a word at the left, what it says beside it.
pub(crate) fn card(answer: &Answer) -> String {
    const WORD: usize = 9;
    let mut text = String::new();
    for (word, says) in answer.lines() {
        let block = wrapped_at(&says, line_columns() - WORD - 1, "");
        for (place, line) in block.lines().enumerate() {
            let word = if place == 0 { word } else { "" };
            text.push_str(&format!("{word:<WORD$} {line}\n"));
        }
    }
    text
}

pub(super) fn json(
    study: &StudyFile,
    results: &Results,
    summary: &Summary,
    told: &Told,
) -> anyhow::Result<serde_json::Value> {
    let observations = Observations::read(results)?;
    let mut all = json!({
        "name": study.study,
        "title": study.title,
        "folder": results.folder(),
        "report": told.report,
        "runs_done": summary.done,
        "runs_rejected": summary.rejected,
        "configurations_short_of_precision": summary.short_of_precision,
        "runs_failed": summary.failed,
        "interrupted": summary.interrupted,
        "confidence": study.base.measure.confidence,
        "answer": told.answer,
        "configurations": rows(&observations),
        "searches": observations.searches,
    });
    if told.of_first_pass {
        all["answer_of"] = json!(kendall_study::FIRST_PASS);
    }
    Ok(all)
}
