//! `--against`: the model of one folder of results compared with the runs of another, which it has not
//! seen.

use kendall_fit::score::{Errors, pooled_spread};
use kendall_fit::study::{
    Answer, AskError, Calibration, Judged, Question, RunFacts, Rung, Signature, StudyModel, lookup,
    number, structural,
};
use kendall_fit::twin::{Interval, Solved, System, Workload};
use kendall_queueing::station::finite_population;
use kendall_report::document::Section;
use kendall_stats::estimate::figures;
use kendall_units::{counted, exact_f64};
use serde::Serialize;

use super::question::{Asked, QuestionError, change, is_own};
use super::verify::{Checked, compared, levels, measured};
use crate::text::grid;

#[derive(Debug, Clone, Serialize)]
pub(super) struct Scores {
    /// Configurations that the model was calibrated on.
    pub(super) calibrated: usize,
    /// One entry a run that was predicted.
    pub(super) points: Vec<Scored>,
    /// Runs without a prediction, and why.
    pub(super) refused: Vec<String>,
    /// Of throughput, mean response and p99, over runs of configurations that the calibration has not.
    pub(super) summary: Vec<Summary>,
}

/// One run, and what was predicted for it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Scored {
    pub(super) levels: String,
    pub(super) metrics: Vec<Checked>,
    /// Whether the calibration has this configuration: its error is none of a prediction.
    pub(super) seen: bool,
    /// What the calibration measured there, in the order of the metrics.
    pub(super) before: Option<[f64; 5]>,
    /// Time of the speed probe over that of the calibration.
    pub(super) slowness: Option<f64>,
    pub(super) foreign_cores: f64,
    /// Which models the prediction is the mean of, and by how much each errs.
    pub(super) ladder: Vec<Climbed>,
    /// The analysis, with demands that fall with load, and with constant ones.
    pub(super) network: Option<Beside>,
    pub(super) constant_network: Option<Beside>,
    /// The latter where no pool bounds anything.
    pub(super) mva: Option<Beside>,
    /// One station with the same population.
    pub(super) mm1: Option<Beside>,
    pub(super) mmm: Option<Beside>,
}

/// A model of the ladder beside the run.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Climbed {
    pub(super) name: Rung,
    /// Its share of the prediction.
    pub(super) weight: f64,
    #[serde(flatten)]
    pub(super) errors: Beside,
}

/// Predicted over measured, minus one, of a simpler model.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Beside {
    pub(super) throughput: f64,
    pub(super) response: f64,
}

impl Climbed {
    fn of(judged: &Judged, facts: &RunFacts) -> Self {
        let errors = Beside::of((judged.throughput_per_s, judged.response_mean_s), facts);
        Self { name: judged.name, weight: judged.weight, errors }
    }
}

impl Beside {
    fn of((x, r): (f64, f64), facts: &RunFacts) -> Self {
        let (throughput, response) = (x / facts.throughput_per_s, r / facts.response_mean_s);
        Self { throughput: throughput - 1.0, response: response - 1.0 }
    }
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

/// Holds the model of `calibration` against `others`, which were made on the hardware that is asked.
pub(super) fn score(
    calibration: &Calibration,
    others: &Calibration,
    asked: &Asked,
) -> anyhow::Result<Scores> {
    if let Some(curve) = asked.what_ifs.iter().find(|what_if| what_if.values.len() > 1) {
        return Err(QuestionError::SeveralAgainst { key: curve.key.clone() }.into());
    }
    let mut scores =
        Scores { calibrated: 0, points: Vec::new(), refused: Vec::new(), summary: Vec::new() };
    let before = measured_before(calibration);
    let mut known = Known { calibration, before, twins: Vec::new(), answers: Vec::new() };
    for facts in &others.runs {
        let name = levels(&facts.run);
        if let Some(why) = facts.disturbed(others.most_foreign_cores) {
            scores.refused.push(format!("{name}: {why}"));
            continue;
        }
        match known.scored(facts, &question(calibration, facts, asked)?) {
            Err(error) => scores.refused.push(format!("{name}: {error}")),
            Ok(point) => scores.points.push(point),
        }
    }
    scores.calibrated = known.twins.iter().map(|twin| twin.twin.configurations().len()).sum();
    let metrics = [("throughput", 0), ("mean response", 1), ("p99", 4)];
    let summaries = metrics
        .into_iter()
        .filter_map(|(name, place)| summary(name, place, &scores.points, &others.runs));
    scores.summary = summaries.collect();
    Ok(scores)
}

/// Twins by the kind of work, and the answers that several runs share.
struct Known<'a> {
    calibration: &'a Calibration,
    /// The configuration of each run of the calibration that nothing disturbed, and what it measured.
    before: Vec<(Question, [f64; 5])>,
    twins: Vec<StudyModel>,
    answers: Vec<(Question, Answer)>,
}

impl Known<'_> {
    fn scored(&mut self, facts: &RunFacts, question: &Question) -> Result<Scored, AskError> {
        let of_kind = |fitted: &StudyModel| fitted.signature == question.signature;
        let place = if let Some(place) = self.twins.iter().position(of_kind) {
            place
        } else {
            self.twins.push(self.calibration.twin(&question.signature, &[], &[])?);
            self.twins.len() - 1
        };
        let fitted = &self.twins[place];
        let told = self.answers.iter().find(|(known, _)| known == question);
        let before = match told {
            Some((_, answer)) => answer.clone(),
            None => fitted.answer(question, None)?,
        };
        if told.is_none() {
            self.answers.push((question.clone(), before.clone()));
        }
        let slowness = facts.probe_s.and_then(|probe| fitted.twin.slowness(probe));
        let at = slowness.map(|slow| fitted.answer(question, Some(slow))).transpose()?;
        let at = at.as_ref().map(|answer| &answer.prediction);
        let system = fitted.system(question)?;
        let configurations = fitted.twin.configurations();
        let seen = configurations.iter().any(|run| run.system == system);
        let analyzed = |solved: Option<Solved>| {
            solved.map(|s| Beside::of((s.throughput_per_s, s.response_mean_s), facts))
        };
        Ok(Scored {
            levels: levels(&facts.run),
            metrics: compared(&before.prediction, at, measured(facts)),
            seen,
            before: self.measured_before(question),
            slowness,
            foreign_cores: facts.foreign_cores,
            ladder: before.ladder.iter().map(|judged| Climbed::of(judged, facts)).collect(),
            network: analyzed(fitted.twin.solve(&system)),
            constant_network: analyzed(fitted.twin.solve_constant(&system)),
            mva: analyzed(fitted.twin.solve_constant(&without_pools(system))),
            mm1: textbook(self.calibration, facts, false).map(|both| Beside::of(both, facts)),
            mmm: textbook(self.calibration, facts, true).map(|both| Beside::of(both, facts)),
        })
    }

    /// Means over the calibration's own runs of this configuration.
    fn measured_before(&self, question: &Question) -> Option<[f64; 5]> {
        let same = self.before.iter().filter(|(known, _)| known == question);
        let runs: Vec<&[f64; 5]> = same.map(|(_, measured)| measured).collect();
        let mean =
            |place: usize| runs.iter().map(|run| run[place]).sum::<f64>() / exact_f64(runs.len());
        (!runs.is_empty()).then(|| [0, 1, 2, 3, 4].map(mean))
    }
}

/// A pool has a token for every client.
fn without_pools(mut system: System) -> System {
    if let Workload::Closed { clients, .. } = system.workload {
        system.pools.iter_mut().for_each(|pool| pool.tokens = pool.tokens.max(clients));
    }
    system
}

/// What the calibration's own runs measured, those that something disturbed left out.
fn measured_before(calibration: &Calibration) -> Vec<(Question, [f64; 5])> {
    let none = Asked { what_ifs: Vec::new() };
    let runs = calibration.runs.iter();
    runs.filter(|facts| facts.disturbed(calibration.most_foreign_cores).is_none())
        .filter_map(|facts| Some((question(calibration, facts, &none).ok()?, measured(facts))))
        .collect()
}

/// The configuration of a run, on the hardware that is asked.
fn question(
    calibration: &Calibration,
    facts: &RunFacts,
    asked: &Asked,
) -> Result<Question, QuestionError> {
    let numeric = facts.run.levels.iter().filter_map(|l| Some((l.factor.clone(), l.number?)));
    let batch = lookup(&facts.run.settings, "system.batch");
    let batch = batch.and_then(number).map(kendall_units::whole_u64);
    // A factor that only the other results have is answered where `--what-if` answers its key: the graph shows it.
    let mut known = structural(std::slice::from_ref(facts));
    known.extend(calibration.structural.iter().cloned());
    let mut question = Question {
        graph: facts.graph.clone(),
        workload: facts.workload,
        generator_threads: facts.generator_threads,
        batch: batch.and_then(|batch| u32::try_from(batch).ok()),
        signature: Signature::of(facts, &known),
        changes: Vec::new(),
        levels: numeric.collect(),
    };
    let values = asked.points().into_iter().next().unwrap_or_default();
    // Hosts are called as the model knows them, which was made of the calibration's runs.
    let host =
        calibration.runs.first().and_then(RunFacts::only_host).map(|(name, _)| name.as_str());
    if let Some((key, _)) = values.iter().find(|(key, _)| !is_own(key)) {
        return Err(QuestionError::OfTheStudy { key: key.clone() });
    }
    change(&mut question, &values, host)?;
    Ok(question)
}

/// Throughput and mean response of one station whose rate is the highest that the calibration saw: M/M/1, or with as many
/// servers as the entry has workers; the rest of the lightest response time is thought.
fn textbook(calibration: &Calibration, facts: &RunFacts, many: bool) -> Option<(f64, f64)> {
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
    let response = f64::from(clients) / found.throughput - think_time_s;
    Some((found.throughput, response))
}

fn summary(name: &str, place: usize, points: &[Scored], runs: &[RunFacts]) -> Option<Summary> {
    let judged = |point: &Scored| -> (bool, Interval, f64) {
        let checked = &point.metrics[place];
        match &checked.at_measured_speed {
            Some(at) => (at.held, at.predicted, checked.measured),
            None => (checked.held, checked.predicted, checked.measured),
        }
    };
    let all: Vec<(bool, Interval, f64)> =
        points.iter().filter(|point| !point.seen).map(judged).collect();
    let pairs = all.iter().map(|(_, interval, measured)| (interval.center, *measured));
    let errors = Errors::of(pairs.filter(|(_, measured)| measured.is_finite()), 1)?;
    let widths = all.iter().map(|(_, interval, _)| (interval.high, interval.center));
    let held = all.iter().filter(|(held, ..)| *held).count();
    let logs = runs.iter().map(|run| (run.run.configuration, measured(run)[place].ln()));
    Some(Summary {
        metric: name.to_owned(),
        median: errors.median,
        ninth_tenth: errors.ninth_tenth,
        worst: errors.worst,
        held: exact_f64(held) / exact_f64(all.len()),
        half_width_median: Errors::of(widths, 1)?.median,
        noise_floor: pooled_spread(logs),
    })
}

pub(super) fn document(scores: &Scores) -> Section {
    let mut document = Section::new("scores", "");
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
    document.table(grid(&header.map(str::to_owned), rows));
    let beside = |name: &str, of: fn(&Scored) -> Option<Beside>| {
        let unseen = scores.points.iter().filter(|point| !point.seen);
        let mut errors: Vec<f64> =
            unseen.filter_map(of).map(|errors| errors.throughput.abs()).collect();
        errors.sort_by(f64::total_cmp);
        let last = errors.last()?;
        Some(format!("{name} {} / {}", percent(errors[errors.len() / 2]), percent(*last)))
    };
    let others = [
        beside("network", |point| point.network),
        beside("network with constant demands", |point| point.constant_network),
        beside("M/M/1", |point| point.mm1),
        beside("M/M/m", |point| point.mmm),
    ];
    let others: Vec<String> = others.into_iter().flatten().collect();
    if !others.is_empty() {
        document.text(format!("throughput, median / worst (%): {}", others.join(", ")));
    }
    let seen = scores.points.iter().filter(|point| point.seen).count();
    let rested = format!(
        "{} predicted from {}, {} not; {seen} more, of those configurations, not counted",
        counted(scores.points.len() - seen, "run"),
        counted(scores.calibrated, "configuration"),
        scores.refused.len()
    );
    document.text(rested);
    for why in &scores.refused {
        document.text(format!("* {why}"));
    }
    for point in &scores.points {
        let error = |place: usize| {
            let checked: &Checked = &point.metrics[place];
            let at = checked.at_measured_speed.as_ref();
            format!("{:+.1}", 100.0 * at.map_or(checked.error, |at| at.error))
        };
        let numbers = format!("X {} R {} p99 {}", error(0), error(1), error(4));
        document.text(format!(
            "- {}{}: {numbers}; X {}",
            point.levels,
            if point.seen { " (calibrated)" } else { "" },
            figures(point.metrics[0].measured, 4)
        ));
    }
    document
}
