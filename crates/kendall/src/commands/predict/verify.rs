//! `--verify`: the asked configuration is run, with a configuration that was measured before beside
//! it, so that the machine's drift does not pose as the model's error.

use std::path::Path;

use kendall_fit::study::{Answer, Question, RunFacts, StudyModel, StudyRun};
use kendall_fit::twin::{Interval, Prediction};
use kendall_observations::{run_facts, study_run};
use kendall_report::document::Section;
use kendall_stats::estimate::{Caveat, figures};
use kendall_store::{Results, Run, RunId, Status, StoredPrediction};
use kendall_study::{Beside, Options};
use serde::Serialize;

use super::answers::{Asker, Metric, metrics};
use super::question::{StudyOfResults, is_own};
use crate::commands::run::exit_of;
use crate::exit::{Exit, exit_with, refused, stop_at_a_signal};
use crate::output;
use crate::text::grid;

/// Times that a verification is measured at most, until no other process disturbs it.
const TRIES: u32 = 3;
/// How far what was measured before may differ, where nothing larger is allowed.
const MOVED: f64 = 0.1;

/// What a verification found.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Verdict {
    /// Keys and values as they were asked.
    pub(super) asked: Vec<(String, String)>,
    pub(super) metrics: Vec<Checked>,
    /// Time of the speed probe in the run over that of the calibration; none without a probe.
    pub(super) slowness: Option<f64>,
    /// A configuration that was measured before and again beside it.
    pub(super) repeated: Option<Repeated>,
    /// Processor time of others in the run, in cores.
    pub(super) foreign_cores: f64,
    /// What error of throughput and mean response was allowed, as a share.
    pub(super) bound: f64,
    /// Whether throughput and mean response lie within the bound, at the machine's speed.
    pub(super) within_bound: bool,
    /// Whether all five intervals held what was measured.
    pub(super) held: bool,
    /// What disturbed it, so that it tells nothing of the prediction.
    pub(super) disturbed: Option<String>,
    /// Caveats of the run.
    pub(super) caveats: Vec<String>,
}

impl Verdict {
    pub(super) fn exit(&self) -> Exit {
        match (&self.disturbed, self.within_bound) {
            (Some(_), _) => Exit::RunRejected,
            (None, true) => Exit::Done,
            (None, false) => Exit::CheckFailed,
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Checked {
    pub(super) metric: Metric,
    /// As it was predicted before the run, nothing known of the machine's speed in it.
    pub(super) predicted: Interval,
    pub(super) measured: f64,
    /// Predicted over measured, minus one.
    pub(super) error: f64,
    pub(super) held: bool,
    /// The same at the speed that the probe showed in the run.
    pub(super) at_measured_speed: Option<AtSpeed>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct AtSpeed {
    pub(super) predicted: Interval,
    pub(super) error: f64,
    pub(super) held: bool,
}

/// What was measured twice.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Repeated {
    pub(super) levels: String,
    /// Throughput now over that of the calibration, minus one.
    pub(super) throughput_change: f64,
    pub(super) response_change: f64,
}

/// A run of a verification, as it is stored and as a model sees it.
struct Verified {
    run: Run,
    facts: RunFacts,
}

pub(super) struct Verification<'a> {
    pub(super) folder: &'a Path,
    pub(super) study: &'a StudyOfResults,
    pub(super) asker: &'a Asker<'a>,
    pub(super) bound: f64,
    pub(super) most_foreign: f64,
}

impl Verification<'_> {
    /// Runs one asked configuration, and holds its prediction against it.
    pub(super) fn run(&self, values: &[(String, String)]) -> anyhow::Result<Verdict> {
        if let Some((key, _)) = values.iter().find(|(key, _)| is_own(key)) {
            let cannot = format!(
                "`{key}` cannot be verified here: it is not a key of the study file, so no run can be \
                 made with it"
            );
            return Err(refused(cannot));
        }
        let question = self.asker.question(values)?;
        let fitted = self.asker.twin(&question)?;
        let before = fitted.answer(&question, None)?;
        let nearest = self.asker.nearest(&fitted, &question);
        let near = Results::open(self.folder)?.run(RunId(nearest.run.id))?;
        let mut tried = 1;
        let (verdict, [asked, again]) = loop {
            let wanted = [self.study.beside(values), self.study.again(&near)];
            let wanted = wanted.into_iter().collect::<Result<Vec<_>, _>>().map_err(refused)?;
            let both = self.facts(&measure(self.folder, self.study, &wanted)?)?;
            let mut verdict =
                self.verdict(values, &question, &fitted, (&before, &both[0], &both[1]), nearest)?;
            // What was disturbed stays stored, and predictions leave it out.
            let others = both.iter().find_map(|one| one.facts.disturbed(self.most_foreign));
            let most = if others.is_some() { TRIES } else { 2 };
            let machine = || (!verdict.within_bound).then(|| of_the_machine(&both, &verdict))?;
            verdict.disturbed = others.or_else(machine);
            match verdict.disturbed.as_ref().filter(|_| tried < most) {
                Some(why) => {
                    output::note(&format!("measured again: {why} (try {tried} of {most})"));
                }
                None => break (verdict, both),
            }
            tried += 1;
        };
        let mut results = Results::open(self.folder)?;
        results.store_prediction(&StoredPrediction {
            made_unix_ns: asked.run.started_unix_ns,
            asked: values.to_vec(),
            answer: serde_json::to_value(&before)?,
            run: Some(asked.run.id),
            repeated: Some(again.run.id),
            verdict: Some(serde_json::to_value(&verdict)?),
        })?;
        Ok(verdict)
    }

    fn facts(&self, ids: &[RunId]) -> anyhow::Result<[Verified; 2]> {
        let results = Results::open(self.folder)?;
        let verified = |id: RunId| -> anyhow::Result<Verified> {
            let run = results.run(id)?;
            if run.status != Status::Done {
                let unusable =
                    format!("the verification run is not usable: {}", run.reasons.join("; "));
                return Err(exit_with(Exit::RunRejected, unusable));
            }
            let facts = run_facts(&results.measured(id)?);
            Ok(Verified { run, facts })
        };
        match ids {
            [asked, again] => Ok([verified(*asked)?, verified(*again)?]),
            _ => Err(exit_with(Exit::Failure, "interrupted; nothing was verified")),
        }
    }

    fn verdict(
        &self,
        values: &[(String, String)],
        question: &Question,
        fitted: &StudyModel,
        (before, asked, again): (&Answer, &Verified, &Verified),
        nearest: &RunFacts,
    ) -> anyhow::Result<Verdict> {
        let slowness = asked.facts.probe_s.and_then(|probe| fitted.twin.slowness(probe));
        let known = slowness.map(|s| fitted.answer(question, Some(s))).transpose()?;
        let measured = measured(&asked.facts);
        let metrics = compared(&before.prediction, known.as_ref().map(|k| &k.prediction), measured);
        let judged = |checked: &Checked| {
            checked.at_measured_speed.as_ref().map_or(checked.error, |at| at.error).abs()
        };
        let same: Vec<&RunFacts> = self.asker.of_configuration(nearest);
        let mean = |of: fn(&RunFacts) -> f64| {
            same.iter().map(|facts| of(facts)).sum::<f64>()
                / kendall_units::exact_f64(same.len().max(1))
        };
        Ok(Verdict {
            asked: values.to_vec(),
            slowness,
            repeated: Some(Repeated {
                levels: levels(&nearest.run),
                throughput_change: again.facts.throughput_per_s / mean(|f| f.throughput_per_s)
                    - 1.0,
                response_change: again.facts.response_mean_s / mean(|f| f.response_mean_s) - 1.0,
            }),
            foreign_cores: asked.facts.foreign_cores,
            bound: self.bound,
            within_bound: metrics[..2].iter().all(|checked| judged(checked) <= self.bound),
            held: metrics.iter().all(|c| c.at_measured_speed.as_ref().map_or(c.held, |at| at.held)),
            disturbed: None,
            caveats: asked.run.caveats.iter().map(ToString::to_string).collect(),
            metrics,
        })
    }
}

/// What the machine did in these runs, or that what was measured before came out differently too.
fn of_the_machine(both: &[Verified; 2], verdict: &Verdict) -> Option<String> {
    let of_machine = |caveat: &&Caveat| {
        matches!(
            caveat,
            Caveat::NoisyNeighbor { .. }
                | Caveat::SpeedDiffers { .. }
                | Caveat::ClockUnstable { .. }
                | Caveat::HostSilent { .. }
                | Caveat::GeneratorLate { .. }
        )
    };
    let caveat = both.iter().flat_map(|one| &one.run.caveats).find(of_machine);
    let moved = verdict.repeated.as_ref().filter(|one| {
        one.throughput_change.abs().max(one.response_change.abs()) > verdict.bound.max(MOVED)
    });
    let moved = moved.map(|one| {
        format!(
            "{} is off by {:+.0} % from what was measured before",
            one.levels,
            100.0 * one.throughput_change
        )
    });
    caveat.map(ToString::to_string).or(moved)
}

/// Runs configurations, and stores them beside the study's own.
pub(super) fn measure(
    folder: &Path,
    study: &StudyOfResults,
    wanted: &[Beside],
) -> anyhow::Result<Vec<RunId>> {
    let interrupted = stop_at_a_signal()?;
    let options = Options {
        folder: folder.to_owned(),
        program: std::env::current_exe()?,
        retry_failed: false,
        until_repetition: None,
    };
    kendall_study::run_beside(&study.file, &options, wanted, &interrupted, &mut |event| {
        if let kendall_study::Event::Started { run, .. } = event {
            output::note(&format!("measuring {}", levels(&study_run(run))));
        }
    })
    .map_err(|error| exit_with(exit_of(&error), error))
}

/// What a run measured, in the order of [`metrics`].
pub(super) fn measured(facts: &RunFacts) -> [f64; 5] {
    let [p50, p90, p99] = facts.percentiles_s.unwrap_or([f64::NAN; 3]);
    [facts.throughput_per_s, facts.response_mean_s, p50, p90, p99]
}

/// Predicted against measured, metric by metric.
pub(super) fn compared(
    before: &Prediction,
    known: Option<&Prediction>,
    measured: [f64; 5],
) -> Vec<Checked> {
    let known = known.map(metrics);
    metrics(before)
        .into_iter()
        .zip(measured)
        .enumerate()
        .map(|(place, ((metric, interval), measured))| Checked {
            metric,
            predicted: *interval,
            measured,
            error: interval.center / measured - 1.0,
            held: interval.holds(measured),
            at_measured_speed: known.map(|known| AtSpeed {
                predicted: *known[place].1,
                error: known[place].1.center / measured - 1.0,
                held: known[place].1.holds(measured),
            }),
        })
        .collect()
}

pub(super) fn levels(run: &StudyRun) -> String {
    let levels = run.levels_in_words();
    if levels.is_empty() { "the study's own configuration".to_owned() } else { levels }
}

pub(super) fn document(verdict: &Verdict) -> Section {
    let mut document = Section::new("verification", "");
    let asked: Vec<String> =
        verdict.asked.iter().map(|(key, value)| format!("{key}={value}")).collect();
    document.text(format!("verified   {}", asked.join(" ")));
    let header =
        ["", "predicted", "measured", "error (%)", "held", "error at its speed (%)", "held"];
    let held = |held: bool| if held { "yes" } else { "no" }.to_owned();
    let rows = verdict.metrics.iter().map(|checked| {
        let (quantity, metric) = (checked.metric.quantity(), checked.metric.name());
        let (scale, unit) = quantity.shown();
        let at = checked.at_measured_speed.as_ref();
        vec![
            format!("{} ({unit})", quantity.name_of(metric).replace('_', " ")),
            figures(scale * checked.predicted.center, 4),
            figures(scale * checked.measured, 4),
            format!("{:+.1}", 100.0 * checked.error),
            held(checked.held),
            at.map_or_else(|| "–".to_owned(), |at| format!("{:+.1}", 100.0 * at.error)),
            at.map_or_else(|| "–".to_owned(), |at| held(at.held)),
        ]
    });
    document.table(grid(&header.map(str::to_owned), rows));
    if let Some(slowness) = verdict.slowness {
        let way = if slowness > 1.0 { "slower" } else { "faster" };
        let percent = 100.0 * (slowness - 1.0).abs();
        document
            .text(format!("speed      {percent:.1} % {way} than in the calibration, by the probe"));
    }
    if let Some(repeated) = &verdict.repeated {
        document.text(format!(
            "beside it  {}: throughput {:+.1} %, mean response {:+.1} % against the \
                 calibration: the drift of the machine",
            repeated.levels,
            100.0 * repeated.throughput_change,
            100.0 * repeated.response_change
        ));
    }
    for caveat in &verdict.caveats {
        document.text(format!("* {caveat}"));
    }
    if let Some(why) = &verdict.disturbed {
        document.text(format!(
            "verdict: cannot tell: the verifying run was disturbed: {why}; repeat it when the machine is quiet"
        ));
        return document;
    }
    let bound = 100.0 * verdict.bound;
    document.text(format!(
        "verdict: throughput and mean response {} {bound:.0} % of what was measured; the intervals \
             {}",
        if verdict.within_bound { "lie within" } else { "do NOT lie within" },
        if verdict.held { "hold" } else { "do not all hold" }
    ));
    document
}
