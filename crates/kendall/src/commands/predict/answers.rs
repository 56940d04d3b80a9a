//! The answers to what was asked: one, or those along a curve.

use kendall_fit::study::{
    Answer, AskError, Calibration, FactorLevel, Question, RunFacts, StudyModel,
};
use kendall_fit::twin::{
    CurvePoint, Interval, MOST_REACH, Misfit, Prediction, Solved, Workload, knee,
};
use kendall_stats::compare::Quantity;
use kendall_store::{Results, StoredPrediction};
use serde::Serialize;

use super::question::{Asked, StudyOfResults, place, question};
use crate::csv;
use crate::exit::refused;

#[derive(Debug, Clone, Serialize)]
pub(super) struct Answers {
    /// Name of the study.
    pub(super) study: String,
    /// What the model rests on.
    pub(super) calibration: Rests,
    /// One a point, in the order of the values.
    pub(super) answers: Vec<Point>,
    /// The key along the curve, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) curve: Option<Along>,
    /// Runs that `--until` added, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) added: Vec<Added>,
}

/// What the model rests on.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rests {
    pub(super) runs: usize,
    /// Of these, those before which one client alone was measured, on which the model rests too.
    pub(super) one_client: usize,
    pub(super) configurations: usize,
    /// Runs that were left out, and why.
    pub(super) left_out: Vec<String>,
    /// Spread of CPU time per request between runs of one configuration, as a share.
    pub(super) drift: f64,
    /// Whether some configuration was run twice, so that `drift` is measured.
    pub(super) drift_is_measured: bool,
    /// Whether every run has the speed probe, which is the measure of the machine's slowness then.
    pub(super) speed_probe: bool,
    /// What the form of the demands leaves of CPU time per request, as a share.
    pub(super) fit_residual: f64,
    /// By how much the model misses its own runs: root mean square, as a share.
    pub(super) misfit_throughput: f64,
    pub(super) misfit_response: f64,
    /// Whether its own runs contradict the structure.
    pub(super) contradicted: bool,
}

/// What was asked at one point, and the answer.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Point {
    /// Keys and values as they were asked.
    pub(super) asked: Vec<(String, String)>,
    /// All numeric levels of the configuration, base values included.
    pub(super) levels: Vec<(String, f64)>,
    #[serde(flatten)]
    pub(super) answer: Outcome,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Predicted(Box<Answer>),
    /// Why there are none.
    Refused(String),
}

/// A run that was added.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Added {
    pub(super) asked: Vec<(String, String)>,
    /// Half-width of the widest interval before it, as a share.
    pub(super) half_width: f64,
}

/// The shape of a curve.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Along {
    /// The key that is varied.
    pub(super) key: String,
    /// Where its two asymptotes meet; none where throughput still grows in proportion at its end.
    pub(super) knee: Option<f64>,
}

/// Asks the twins of one study.
pub(super) struct Asker<'a> {
    study: &'a StudyOfResults,
    calibration: &'a Calibration,
    asked: &'a Asked,
    /// The host, where all ran on one.
    host: Option<&'a str>,
    /// One a kind of work.
    twins: std::cell::RefCell<Vec<StudyModel>>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(
        study: &'a StudyOfResults,
        calibration: &'a Calibration,
        asked: &'a Asked,
    ) -> anyhow::Result<Self> {
        let Some(first) = calibration.runs.first() else {
            let none = "no run of these results is usable, so nothing can be calibrated; run the \
                        study again, with --retry-failed";
            return Err(refused(none));
        };
        let host = first.only_host().map(|(name, _)| name.as_str());
        Ok(Self { study, calibration, asked, host, twins: Vec::new().into() })
    }

    /// The configuration that some values lead to; without a load, at the highest that was run.
    pub(super) fn question(&self, values: &[(String, String)]) -> anyhow::Result<Question> {
        let structural = &self.calibration.structural;
        let load = self.highest_load(values);
        let values: Vec<(String, String)> = values.iter().cloned().chain(load).collect();
        question(self.study, structural, &values, self.host).map_err(refused)
    }

    /// The highest level of the load, where it is a factor and not asked for.
    fn highest_load(&self, values: &[(String, String)]) -> Option<(String, String)> {
        let key = ["workload.clients", "workload.rate"]
            .into_iter()
            .find(|key| self.study.file.factors.iter().any(|factor| factor.key == *key))?;
        let is_asked = values.iter().any(|(asked, _)| {
            ["workload.clients", "workload.rate", "workload.loop"].contains(&asked.as_str())
        });
        let levels = self.calibration.runs.iter().filter_map(|facts| facts.run.factor(key));
        let most = |a: &&FactorLevel, b: &&FactorLevel| a.number.partial_cmp(&b.number);
        let highest = levels.max_by(|a, b| most(a, b).unwrap_or(std::cmp::Ordering::Equal))?;
        (!is_asked).then(|| (key.to_owned(), highest.text.clone()))
    }

    /// The twin of the question's kind of work.
    pub(super) fn twin(&self, question: &Question) -> Result<StudyModel, AskError> {
        let kind = self.calibration.kind_for(question);
        if let Some(known) = self.twins.borrow().iter().find(|fitted| fitted.signature == kind) {
            return Ok(known.clone());
        }
        let cached = question.cached();
        let fitted = self.calibration.twin(&kind, &self.asked.keys(), &cached)?;
        self.twins.borrow_mut().push(fitted.clone());
        Ok(fitted)
    }

    pub(super) fn ask(&self, values: &[(String, String)]) -> anyhow::Result<Answer> {
        let question = self.question(values)?;
        Ok(self.twin(&question)?.answer(&question, None)?)
    }

    /// One point under another load than that of the study.
    pub(super) fn ask_under(
        &self,
        values: &[(String, String)],
        workload: Workload,
    ) -> anyhow::Result<Answer> {
        let question = Question { workload, ..self.question(values)? };
        Ok(self.twin(&question)?.answer(&question, None)?)
    }

    /// The key of the load, the least that was measured of it, the most that the runs say something
    /// about, and its unit.
    pub(super) fn load_range(
        &self,
        values: &[(String, String)],
    ) -> anyhow::Result<(String, f64, f64, String)> {
        let question = self.question(values)?;
        let fitted = self.twin(&question)?;
        let configurations = fitted.twin.configurations();
        let loads = configurations.iter().map(|run| run.system.workload.load());
        let (low, high) = loads
            .fold((f64::INFINITY, 0.0_f64), |(low, high), load| (low.min(load), high.max(load)));
        let (key, unit) = match question.workload {
            Workload::Closed { .. } => ("workload.clients", ""),
            Workload::Open { .. } => ("workload.rate", "/s"),
        };
        Ok((key.to_owned(), low, MOST_REACH * high, unit.to_owned()))
    }

    /// The run of the calibration that lies nearest to a question, by the ratios of their levels.
    pub(super) fn nearest(&self, fitted: &StudyModel, question: &Question) -> &RunFacts {
        let distance = |facts: &RunFacts| -> f64 {
            let ratio = |(key, asked): &(String, f64)| {
                let level = facts.run.factor(key)?.number?;
                (level > 0.0 && *asked > 0.0).then(|| (asked / level).ln().powi(2))
            };
            question.levels.iter().filter_map(ratio).sum()
        };
        let of_design = |facts: &&RunFacts| facts.run.of_design;
        let runs = fitted.runs.iter().map(|place| &self.calibration.runs[*place]);
        runs.filter(of_design)
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .unwrap_or(&self.calibration.runs[0])
    }

    pub(super) fn of_configuration(&self, of: &RunFacts) -> Vec<&RunFacts> {
        let same = |facts: &&RunFacts| facts.run.configuration == of.run.configuration;
        self.calibration.runs.iter().filter(same).collect()
    }

    /// All points. Where none has an answer, the first refusal.
    pub(super) fn answers(&self) -> anyhow::Result<Answers> {
        let mut points = Vec::new();
        let mut first_refusal = None;
        for values in self.asked.points() {
            let question = self.question(&values)?;
            let answered = self.twin(&question).and_then(|twin| twin.answer(&question, None));
            let answer = match answered {
                Ok(mut answer) => {
                    if let Some((key, value)) = self.highest_load(&values) {
                        let said = format!(
                            "{key} = {value}, the highest that was run: no load was asked for"
                        );
                        answer.assumed.insert(0, said);
                    }
                    Outcome::Predicted(Box::new(answer))
                }
                Err(error) => {
                    let said = Outcome::Refused(error.to_string());
                    first_refusal.get_or_insert(error);
                    said
                }
            };
            points.push(Point { asked: values, levels: question.levels, answer });
        }
        let answered = |point: &Point| matches!(point.answer, Outcome::Predicted(_));
        if let Some(refusal) = first_refusal.filter(|_| !points.iter().any(answered)) {
            return Err(refusal.into());
        }
        let twins = self.twins.borrow();
        let twin = twins.first().map(|fitted| self.rests(fitted));
        let calibration = twin.ok_or_else(|| anyhow::anyhow!("nothing was asked"))?;
        let curve = self.asked.curve().map(|curve| {
            let along = points.iter().filter_map(|point| on_curve(point, &curve.key));
            Along { key: curve.key.clone(), knee: knee(&along.collect::<Vec<_>>()) }
        });
        let study = self.study.file.study.clone();
        Ok(Answers { study, calibration, answers: points, curve, added: Vec::new() })
    }

    fn rests(&self, fitted: &StudyModel) -> Rests {
        let twin = &fitted.twin;
        let Misfit { throughput, response, contradicted, .. } = twin.misfit;
        let left_out = twin.left_out.iter().map(|place| {
            let facts = &self.calibration.runs[fitted.runs[*place]];
            let why = facts.disturbed(self.calibration.most_foreign_cores).unwrap_or_default();
            format!(
                "{} (repetition {}): {why}",
                facts.run.levels_in_words(),
                facts.run.repetition + 1
            )
        });
        Rests {
            runs: fitted.runs.len() - twin.left_out.len(),
            one_client: fitted.one_client.len(),
            configurations: twin.configurations().len(),
            left_out: left_out.collect(),
            drift: twin.drift,
            drift_is_measured: twin.drift_known,
            speed_probe: twin.has_probe(),
            fit_residual: twin.residual(),
            misfit_throughput: throughput,
            misfit_response: response,
            contradicted,
        }
    }
}

fn on_curve(point: &Point, key: &str) -> Option<CurvePoint> {
    let Outcome::Predicted(answer) = &point.answer else { return None };
    let (_, value) = point.asked.iter().find(|(known, _)| known == key)?;
    let varied = place(value);
    let solved = Solved {
        throughput_per_s: answer.prediction.throughput_per_s.center,
        response_mean_s: answer.prediction.response_mean_s.center,
    };
    Some(CurvePoint { value: varied, solved })
}

/// What is predicted, and held against what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Throughput,
    ResponseMean,
    ResponseP50,
    ResponseP90,
    ResponseP99,
}

impl Metric {
    /// As JSON and CSV call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput_per_s",
            Self::ResponseMean => "response_mean_s",
            Self::ResponseP50 => "response_p50_s",
            Self::ResponseP90 => "response_p90_s",
            Self::ResponseP99 => "response_p99_s",
        }
    }

    pub(super) fn quantity(self) -> Quantity {
        match self {
            Self::Throughput => Quantity::Rate,
            Self::ResponseMean | Self::ResponseP50 | Self::ResponseP90 | Self::ResponseP99 => {
                Quantity::Time
            }
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The intervals of an answer.
pub(super) fn metrics(prediction: &Prediction) -> [(Metric, &Interval); 5] {
    [
        (Metric::Throughput, &prediction.throughput_per_s),
        (Metric::ResponseMean, &prediction.response_mean_s),
        (Metric::ResponseP50, &prediction.response_p50_s),
        (Metric::ResponseP90, &prediction.response_p90_s),
        (Metric::ResponseP99, &prediction.response_p99_s),
    ]
}

impl Answers {
    /// Keeps every answer with the results.
    pub(super) fn store(&self, folder: &std::path::Path) -> anyhow::Result<()> {
        let mut results = Results::open(folder)?;
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed()?;
        for point in &self.answers {
            let Outcome::Predicted(answer) = &point.answer else { continue };
            results.store_prediction(&StoredPrediction {
                made_unix_ns: u64::try_from(now.as_nanos())?,
                asked: point.asked.clone(),
                answer: serde_json::to_value(answer)?,
                run: None,
                repeated: None,
                verdict: None,
            })?;
        }
        Ok(())
    }

    /// A line a point.
    pub(super) fn csv(&self) -> String {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for point in &self.answers {
            let Outcome::Predicted(answer) = &point.answer else { continue };
            if rows.is_empty() {
                let keys = point.asked.iter().map(|(key, _)| key.clone());
                let ends =
                    |name: &str| [name.to_owned(), format!("{name}_low"), format!("{name}_high")];
                let numbers = metrics(&answer.prediction)
                    .into_iter()
                    .flat_map(|(metric, _)| ends(metric.name()));
                rows.push(keys.chain(numbers).collect());
            }
            let values = point.asked.iter().map(|(_, value)| value.clone());
            let numbers = metrics(&answer.prediction)
                .into_iter()
                .flat_map(|(_, i)| [i.center, i.low, i.high].map(|value| value.to_string()));
            rows.push(values.chain(numbers).collect());
        }
        csv::written(rows)
    }
}
