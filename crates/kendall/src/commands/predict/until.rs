//! `--until`: runs are added, one after another, until the answer's interval is as narrow as asked. First one beyond the
//! load at which the system is suspected to saturate, then each where the models differ most about what is asked.

use std::path::Path;

use kendall_fit::study::{Answer, Calibration, Judged, Model, Question};
use kendall_fit::twin::{CurvePoint, Interval, Solved, Workload, knee};
use kendall_stats::estimate::figures;

use super::answers::{Added, Answers, Asker, Outcome, Point};
use super::question::{Asked, StudyOfResults, Values, is_own};
use super::verify::measure;
use crate::exit::{Exit, exit_with, refused};
use crate::output;

/// Runs that are added at most.
const MOST_RUNS: usize = 6;
/// The run beyond saturation lies at so many times N*, and one that lies at so many times it is beyond.
const BEYOND: (f64, f64) = (1.5, 1.25);
/// What a run may be off by itself, as σ of the logarithm of its throughput.
const NOISE: f64 = 0.05;
/// What a run tells of its surroundings where the models do not differ, likewise.
const NEAR: f64 = 0.02;

/// What is narrowed, and how far.
pub(super) struct Until<'a> {
    pub(super) folder: &'a Path,
    pub(super) study: &'a StudyOfResults,
    pub(super) asked: &'a Asked,
    /// Half-width, as a share.
    pub(super) share: f64,
}

impl Until<'_> {
    /// The answers, and whether they are as narrow as asked; `calibration` reads what is stored.
    pub(super) fn answers(
        &self,
        calibration: impl Fn() -> anyhow::Result<Calibration>,
    ) -> anyhow::Result<(Answers, bool)> {
        let mut added: Vec<Added> = Vec::new();
        loop {
            let calibration = calibration()?;
            let asker = Asker::new(self.study, &calibration, self.asked)?;
            let mut answers = asker.answers()?;
            let half_width = widest(&answers);
            let is_narrow = half_width <= self.share;
            let next = if added.len() < MOST_RUNS {
                self.next(&asker, &calibration, &answers, is_narrow)?
            } else {
                None
            };
            let Some((values, why)) = next else {
                answers.added = added;
                return Ok((answers, is_narrow));
            };
            let words: Vec<String> = values.iter().map(|(key, of)| format!("{key}={of}")).collect();
            output::note(&format!(
                "the interval is ±{} %; running {}, {why}",
                figures(100.0 * half_width, 2),
                words.join(" ")
            ));
            drop(asker);
            let wanted = self.study.beside(&values).map_err(refused)?;
            if measure(self.folder, self.study, &[wanted])?.is_empty() {
                let stopped = "interrupted; the runs that were added are kept";
                return Err(exit_with(Exit::Failure, stopped));
            }
            added.push(Added { asked: values, half_width });
        }
    }

    /// What is run next, and why; none where nothing is left to run, or no more is needed.
    fn next(
        &self,
        asker: &Asker<'_>,
        calibration: &Calibration,
        answers: &Answers,
        is_narrow: bool,
    ) -> anyhow::Result<Option<(Values, String)>> {
        let asked = self.asked.points();
        let asked = asked.iter().map(|values| asker.question(values));
        let asked = asked.collect::<anyhow::Result<Vec<Question>>>()?;
        let is_closed = matches!(asked[0].workload, Workload::Closed { .. });
        let loads = loads(calibration, is_closed);
        let (Some(&low), Some(&high)) = (loads.first(), loads.last()) else { return Ok(None) };
        let is_asked = |values: &Values| {
            asker.question(values).is_ok_and(|question| asked.contains(&question))
        };
        let line = self.line(is_closed);
        // The load at which it is suspected to saturate, by the answers up to four times the highest load.
        let steps = [low, high, 2.0 * high, 4.0 * high];
        let curve = steps.into_iter().filter(|_| is_closed);
        let curve = curve.filter_map(|load| point(load, &asker.ask(&at(&line, load, true)).ok()?));
        let suspected = knee(&curve.collect::<Vec<_>>());
        let beyond = suspected.filter(|knee| high < BEYOND.1 * knee).and_then(|knee| {
            let least = (BEYOND.0 * knee).max(high + 1.0).ceil();
            let both = [least, least + 1.0].map(|load| at(&line, load, true));
            let why = format!("beyond the suspected saturation at {}", figures(knee, 3));
            both.into_iter().find(|values| !is_asked(values)).map(|values| (values, why))
        });
        if beyond.is_some() {
            return Ok(beyond);
        }
        // What was run is answered by its own runs: no other load narrows it.
        let is_measured = |point: &Point| match &point.answer {
            Outcome::Predicted(answer) => matches!(answer.model, Model::Measured { .. }),
            Outcome::Refused(_) => false,
        };
        if is_narrow {
            return Ok(None);
        }
        if answers.answers.iter().all(is_measured) {
            output::note(
                "what is asked was run: its interval is what its runs differ by, and no other load narrows it",
            );
            return Ok(None);
        }
        let between = loads.windows(2).map(|pair| (pair[0] * pair[1]).sqrt());
        let all: Vec<f64> = loads.iter().copied().chain(between).chain([1.5 * high]).collect();
        let of_study = Values::new();
        let mut lines = vec![&line, &of_study];
        lines.dedup();
        let candidates =
            lines.into_iter().flat_map(|line| all.iter().map(move |load| (line, load)));
        let candidates = candidates.map(|(line, load)| at(line, *load, is_closed));
        let candidates = candidates.filter(|values| !is_asked(values)).filter_map(|values| {
            let answer = asker.ask(&values).ok()?;
            // What was run once more would only say how runs scatter.
            let is_new = !matches!(answer.model, Model::Measured { .. });
            is_new.then(|| (gain(&answer, answers), values))
        });
        let best = candidates.max_by(|a, b| a.0.total_cmp(&b.0));
        let why = "where the models differ most about what is asked".to_owned();
        Ok(best.map(|(_, values)| (values, why)))
    }

    /// What is asked, as far as it can be run, without its load.
    fn line(&self, is_closed: bool) -> Values {
        let asked = self.asked.points().into_iter().next().unwrap_or_default();
        asked.into_iter().filter(|(key, _)| !is_own(key) && key != load_key(is_closed).0).collect()
    }
}

/// Key of the load, and its unit.
fn load_key(is_closed: bool) -> (&'static str, &'static str) {
    if is_closed { ("workload.clients", "") } else { ("workload.rate", "/s") }
}

/// These values under a load.
fn at(line: &Values, load: f64, is_closed: bool) -> Values {
    let (key, unit) = load_key(is_closed);
    let load = if is_closed { format!("{load:.0}") } else { figures(load, 4) };
    line.iter().cloned().chain([(key.to_owned(), format!("{load}{unit}"))]).collect()
}

/// By how much a run would narrow what is asked, at the point for which it does most.
fn gain(run: &Answer, asked: &Answers) -> f64 {
    let of_point = asked.answers.iter().filter_map(|point| match &point.answer {
        Outcome::Predicted(answer) => Some(tells(run, answer)),
        Outcome::Refused(_) => None,
    });
    of_point.fold(0.0, f64::max)
}

/// By how much a run would narrow an answer: the variance of its logarithm that the run explains, of what the models
/// say of both and what every run tells of its surroundings.
fn tells(run: &Answer, asked: &Answer) -> f64 {
    let of = |judged: &Judged| judged.throughput_per_s.ln();
    let both: Vec<(f64, f64, f64)> = asked
        .ladder
        .iter()
        .filter_map(|judged| {
            let other = run.ladder.iter().find(|other| other.name == judged.name)?;
            Some((judged.weight, of(judged), of(other)))
        })
        .collect();
    let all = both.iter().map(|(weight, ..)| weight).sum::<f64>().max(f64::MIN_POSITIVE);
    let mean =
        |of: fn(&(f64, f64, f64)) -> f64| both.iter().map(|one| one.0 * of(one)).sum::<f64>() / all;
    let (there, here) = (mean(|one| one.1), mean(|one| one.2));
    let (mut covariance, mut variance) = (0.0, NOISE * NOISE);
    for (weight, asked, run) in &both {
        covariance += weight / all * (asked - there) * (run - here);
        variance += weight / all * (run - here).powi(2);
    }
    let far: f64 = run
        .prediction
        .distances
        .iter()
        .zip(&asked.prediction.distances)
        .map(|(run, asked)| (run.asked / asked.asked).ln().abs())
        .filter(|far| far.is_finite())
        .sum();
    covariance.powi(2) / variance + NEAR * NEAR * (-far).exp()
}

fn point(load: f64, answer: &Answer) -> Option<CurvePoint> {
    let prediction = &answer.prediction;
    let solved = Solved {
        throughput_per_s: prediction.throughput_per_s.center,
        response_mean_s: prediction.response_mean_s.center,
    };
    Some(CurvePoint { value: load, solved }).filter(|point| point.value > 0.0)
}

/// Loads that were run, rising.
fn loads(calibration: &Calibration, is_closed: bool) -> Vec<f64> {
    let same = calibration
        .runs
        .iter()
        .map(|facts| facts.workload)
        .filter(|workload| matches!(workload, Workload::Closed { .. }) == is_closed);
    let mut loads: Vec<f64> = same.map(Workload::load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads
}

/// Half-width of the widest interval of throughput and mean response time, as a share.
fn widest(answers: &Answers) -> f64 {
    let half = |of: &Interval| (of.high / of.low).sqrt() - 1.0;
    let widths = answers.answers.iter().map(|point| match &point.answer {
        Outcome::Predicted(answer) => {
            let prediction = &answer.prediction;
            half(&prediction.throughput_per_s).max(half(&prediction.response_mean_s))
        }
        Outcome::Refused(_) => f64::INFINITY,
    });
    widths.fold(0.0, f64::max)
}
