//! `--against`: the model of one folder of results held against the runs of another, which it has not
//! seen.

use kendall_predict::twin::Workload;
use kendall_queueing::station::finite_population;
use kendall_stats::estimate::figures;
use kendall_units::exact_f64;
use kendall_whatif::{AskError, Calibration, Question, RunFacts, Signature};
use serde::Serialize;

use super::verify::{Checked, compared, levels, measured};
use crate::commands::design::tables::{grid, note};

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Scores {
    /// Configurations that the model was calibrated on.
    pub(super) calibrated: usize,
    /// One entry a run that was predicted.
    pub(super) points: Vec<Scored>,
    /// Runs without a prediction, and why.
    pub(super) refused: Vec<String>,
    /// Of throughput, mean response and p99.
    pub(super) summary: Vec<Summary>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Scored {
    pub(super) levels: String,
    pub(super) metrics: Vec<Checked>,
    /// Throughput by the analysis, and by M/M/1 and M/M/m with the same population, over measured,
    /// minus one.
    pub(super) analysis: Option<f64>,
    pub(super) mm1: Option<f64>,
    pub(super) mmm: Option<f64>,
}

/// Errors of one metric, as shares; at the machine's measured speed where there was a probe.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    pub(super) metric: String,
    pub(super) median: f64,
    pub(super) ninth_tenth: f64,
    pub(super) worst: f64,
    pub(super) held: f64,
    pub(super) half_width_median: f64,
    /// Spread between runs of one configuration: standard deviation of the logarithm.
    pub(super) noise_floor: Option<f64>,
}

/// Holds the model of `calibration` against `others`.
pub(super) fn score(calibration: &Calibration, others: &Calibration) -> Result<Scores, AskError> {
    let mut points = Vec::new();
    let mut refused = Vec::new();
    let mut calibrated = 0;
    let mut twins: Vec<kendall_whatif::Fitted> = Vec::new();
    for facts in &others.runs {
        let name = levels(&facts.run);
        if facts.foreign_cores > others.most_foreign_cores {
            refused
                .push(format!("{name}: other processes used {:.2} of a core", facts.foreign_cores));
            continue;
        }
        let question = asked(calibration, facts);
        if !twins.iter().any(|fitted| fitted.signature == question.signature) {
            twins.push(calibration.twin(&question.signature, &[], &[])?);
        }
        let known = twins.iter().find(|fitted| fitted.signature == question.signature);
        let Some(fitted) = known else { continue };
        calibrated = fitted.twin.configurations().len();
        let slowness = facts.probe_s.and_then(|probe| fitted.twin.slowness(probe));
        let both = fitted.answer(&question, None).and_then(|before| {
            let at = slowness.map(|s| fitted.answer(&question, Some(s))).transpose()?;
            Ok((before, at))
        });
        match both {
            Err(error) => refused.push(format!("{name}: {error}")),
            Ok((before, at)) => {
                let at = at.as_ref().map(|answer| &answer.prediction);
                let analysis = before.prediction.analytic_throughput_per_s;
                let x = facts.throughput_per_s;
                points.push(Scored {
                    levels: name,
                    metrics: compared(&before.prediction, at, measured(facts)),
                    analysis: analysis.map(|analysed| analysed / x - 1.0),
                    mm1: textbook(calibration, facts, false).map(|found| found / x - 1.0),
                    mmm: textbook(calibration, facts, true).map(|found| found / x - 1.0),
                });
            }
        }
    }
    let summary = [("throughput", 0), ("mean response", 1), ("p99", 4)]
        .into_iter()
        .filter_map(|(name, place)| summary(name, place, &points, &others.runs))
        .collect();
    Ok(Scores { calibrated, points, refused, summary })
}

fn asked(calibration: &Calibration, facts: &RunFacts) -> Question {
    let numeric = facts.run.factors.iter().filter_map(|l| Some((l.factor.clone(), l.number?)));
    let batch = kendall_whatif::lookup(&facts.run.settings, "system.batch");
    let batch = batch.and_then(kendall_whatif::number).map(kendall_units::whole_u64);
    Question {
        graph: facts.graph.clone(),
        workload: facts.workload,
        generator_threads: facts.generator_threads,
        batch: batch.and_then(|batch| u32::try_from(batch).ok()),
        signature: Signature::of(facts, &calibration.structural),
        hardware: kendall_whatif::Hardware::default(),
        levels: numeric.collect(),
    }
}

/// Throughput of one station whose rate is the highest that the calibration saw: M/M/1, or with as many
/// servers as the entry has workers; the rest of the lightest response time is thought.
fn textbook(calibration: &Calibration, facts: &RunFacts, many: bool) -> Option<f64> {
    let Workload::Closed { clients, think_time_s } = facts.workload else { return None };
    let most = calibration.runs.iter().map(|run| run.throughput_per_s).fold(0.0, f64::max);
    let least =
        calibration.runs.iter().map(|run| run.response_mean_s).fold(f64::INFINITY, f64::min);
    let entry = facts.entry()?;
    let workers = |facts: &RunFacts| {
        let node = facts.graph.tiers.iter().find(|node| node.tier == entry)?;
        Some(node.pools.first()?.servers.saturating_mul(node.instances))
    };
    let fastest =
        calibration.runs.iter().max_by(|a, b| a.throughput_per_s.total_cmp(&b.throughput_per_s))?;
    let (servers, rate) =
        if many { (workers(facts)?, most / f64::from(workers(fastest)?)) } else { (1, most) };
    let beside = think_time_s + (least - 1.0 / rate).max(1e-6);
    let found =
        finite_population(1.0 / beside, rate, u64::from(servers), u64::from(clients), None).ok()?;
    Some(found.throughput)
}

fn summary(name: &str, place: usize, points: &[Scored], runs: &[RunFacts]) -> Option<Summary> {
    let judged = |point: &Scored| -> (f64, bool, f64) {
        let checked = &point.metrics[place];
        let (error, held, interval) = match &checked.at_measured_speed {
            Some(at) => (at.error, at.held, at.predicted),
            None => (checked.error, checked.held, checked.predicted),
        };
        (error.abs(), held, (interval.high / interval.center - 1.0).abs())
    };
    let all: Vec<(f64, bool, f64)> = points.iter().map(judged).collect();
    let sorted = |of: fn(&(f64, bool, f64)) -> f64| {
        let mut list: Vec<f64> = all.iter().map(of).filter(|value| value.is_finite()).collect();
        list.sort_by(f64::total_cmp);
        list
    };
    let (errors, widths) = (sorted(|one| one.0), sorted(|one| one.2));
    let worst = *errors.last()?;
    let held = all.iter().filter(|one| one.1).count();
    Some(Summary {
        metric: name.to_owned(),
        median: errors[errors.len() / 2],
        ninth_tenth: errors[(errors.len() * 9 / 10).min(errors.len() - 1)],
        worst,
        held: exact_f64(held) / exact_f64(all.len()),
        half_width_median: widths[widths.len() / 2],
        noise_floor: floor(place, runs),
    })
}

/// Pooled standard deviation of the logarithm within configurations, nothing corrected.
fn floor(place: usize, runs: &[RunFacts]) -> Option<f64> {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for (index, run) in runs.iter().enumerate() {
        let same: Vec<f64> = runs
            .iter()
            .filter(|other| other.run.configuration == run.run.configuration)
            .map(|other| measured(other)[place].ln())
            .collect();
        let first = runs.iter().position(|o| o.run.configuration == run.run.configuration);
        if first == Some(index) && same.len() > 1 {
            let mean = same.iter().sum::<f64>() / exact_f64(same.len());
            squares += same.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            freedom += exact_f64(same.len() - 1);
        }
    }
    (freedom > 0.0).then(|| (squares / freedom).sqrt())
}

/// For people.
pub(super) fn text(scores: &Scores) -> String {
    let mut text = String::new();
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    let header =
        ["", "median (%)", "90 % (%)", "worst (%)", "held (%)", "half-width (%)", "floor (%)"];
    let rows = scores.summary.iter().map(|s| {
        let numbers = [s.median, s.ninth_tenth, s.worst, s.held, s.half_width_median];
        let mut row = vec![s.metric.clone()];
        row.extend(numbers.map(percent));
        row.push(s.noise_floor.map_or_else(|| "–".to_owned(), percent));
        row
    });
    text.push_str(&grid(&header.map(str::to_owned), rows));
    let beside = |name: &str, of: fn(&Scored) -> Option<f64>| {
        let mut errors: Vec<f64> = scores.points.iter().filter_map(of).map(f64::abs).collect();
        errors.sort_by(f64::total_cmp);
        let last = errors.last()?;
        Some(format!("{name} {} / {}", percent(errors[errors.len() / 2]), percent(*last)))
    };
    let others = [
        beside("analysis", |point| point.analysis),
        beside("M/M/1", |point| point.mm1),
        beside("M/M/m", |point| point.mmm),
    ];
    let others: Vec<String> = others.into_iter().flatten().collect();
    note(&mut text, &format!("throughput, median / worst (%): {}", others.join(", ")));
    let rested = format!(
        "{} runs predicted from {} configurations, {} not",
        scores.points.len(),
        scores.calibrated,
        scores.refused.len()
    );
    note(&mut text, &rested);
    for why in &scores.refused {
        note(&mut text, &format!("* {why}"));
    }
    for point in &scores.points {
        let error = |place: usize| {
            let checked: &Checked = &point.metrics[place];
            let at = checked.at_measured_speed.as_ref();
            format!("{:+.1}", 100.0 * at.map_or(checked.error, |at| at.error))
        };
        let numbers = format!("X {} R {} p99 {}", error(0), error(1), error(4));
        note(
            &mut text,
            &format!("- {}: {numbers}; X {}", point.levels, figures(point.metrics[0].measured, 4)),
        );
    }
    text
}
