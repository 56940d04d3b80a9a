//! Worked cases: solved, and compared with what their file expects.

use std::str::FromStr as _;

use anyhow::anyhow;
use kendall_queueing::Model;
use kendall_queueing::case::{self, Answer, CaseError, Output};
use kendall_queueing::solver::{self, Solver, StationResult};
use serde_json::Value;

use super::{experiments, input};

/// One expected output.
#[derive(Debug, Clone)]
pub(super) struct Check {
    /// Its name.
    pub(super) output: String,
    /// What the file says.
    pub(super) expected: Value,
    /// What was found.
    pub(super) found: Option<Value>,
    /// Largest relative difference of its numbers.
    pub(super) relative_error: Option<f64>,
    /// What the file allows.
    pub(super) tolerance: f64,
    /// Whether it is within that.
    pub(super) met: bool,
}

/// A case of a file of them.
#[derive(Debug)]
pub(super) struct Solved {
    /// Its `id`, or its number.
    pub(super) id: String,
    /// The answer, or why there is none.
    pub(super) answer: Result<Answer, String>,
    /// Whether the case expects a refusal.
    refusal: bool,
    /// Its expected outputs.
    pub(super) checks: Vec<Check>,
}

impl Solved {
    pub(super) fn of(index: usize, case: &Value, percentiles: &[f64]) -> Self {
        let id = case.get("id").and_then(Value::as_str);
        let answer = self::answer(case, percentiles).map_err(|error| format!("{error:#}"));
        let checks = answer.as_ref().map(|answer| checks(case, answer)).unwrap_or_default();
        Self {
            id: id.map_or_else(|| (index + 1).to_string(), str::to_owned),
            answer,
            refusal: expects_refusal(case),
            checks,
        }
    }

    pub(super) fn met(&self) -> bool {
        match &self.answer {
            Ok(_) => !self.refusal && self.checks.iter().all(|check| check.met),
            Err(_) => self.refusal,
        }
    }
}

/// A case that is to be refused says so by `expect = "error"`, or by an output `error` or
/// `stable = false`.
fn expects_refusal(case: &Value) -> bool {
    let said = |key: &str| case.get(key).is_some_and(|value| *value != Value::Bool(false));
    let value = |key: &str| {
        let output = case.get("outputs").and_then(|outputs| outputs.get(key))?;
        Some(output.get("value").unwrap_or(output).clone())
    };
    said("error")
        || said("expected_error")
        || said("expect_error")
        || case.get("expect").and_then(Value::as_str) == Some("error")
        || value("error").is_some_and(|value| value != Value::Bool(false))
        || value("stable") == Some(Value::Bool(false))
}

/// Solves a model in its short form.
pub(super) fn answer(document: &Value, percentiles: &[f64]) -> anyhow::Result<Answer> {
    let (model, wanted) = input::case(document, percentiles)?;
    let inner = document.get("model").filter(|model| model.is_object()).unwrap_or(document);
    if let Some(mut answer) = experiments::solve(inner, &wanted)? {
        answer.add_wanted(&wanted);
        return Ok(answer);
    }
    if let Some(full) = input::full_model(document) {
        let mut answer = full_answer(&serde_json::from_value(full)?)?;
        answer.add_wanted(&wanted);
        return Ok(answer);
    }
    case::solve(&model, &wanted).map_err(|error| match error {
        CaseError::Kind { kind, known } => anyhow!(
            "kind `{kind}` is not known; known are {known}, {}; a file without `kind` is a full \
             model (docs/models.md)",
            experiments::KINDS
        ),
        other => other.into(),
    })
}

/// A full model among the cases: its main outputs, by class and by station.
fn full_answer(model: &Model) -> anyhow::Result<Answer> {
    let solver = Solver::from_str(&model.solver)?;
    let solved = solver::solve(model, solver)?;
    let mut answer = Answer {
        kind: "model".to_owned(),
        solver: solved.solver.clone(),
        accuracy: solved.accuracy.name().to_owned(),
        ..Answer::default()
    };
    let mut put = |name: &str, list: Vec<f64>, unit: &str| {
        let output = match &list[..] {
            [one] => Output::Number(*one),
            _ => Output::List(list),
        };
        answer.outputs.insert(name.to_owned(), (output, unit.to_owned()));
    };
    put("throughput", solved.classes.iter().map(|c| c.throughput).collect(), "1/s");
    put("system_response", solved.classes.iter().map(|c| c.system_response).collect(), "s");
    let sums = |of: fn(&StationResult) -> &Vec<f64>| {
        solved.stations.iter().map(|station| of(station).iter().sum()).collect::<Vec<f64>>()
    };
    put("mean_jobs", sums(|station| &station.number), "jobs");
    put("utilization", sums(|station| &station.utilization), "1");
    put("station_throughput", sums(|station| &station.throughput), "1/s");
    if !solved.pools.is_empty() {
        put("pool_utilization", solved.pools.iter().map(|pool| pool.utilization).collect(), "1");
        put("pool_waiting", solved.pools.iter().map(|pool| pool.waiting_time).collect(), "s");
    }
    Ok(answer)
}

/// Compares with the outputs that the file gives values for.
pub(super) fn checks(document: &Value, answer: &Answer) -> Vec<Check> {
    let Some(Value::Object(outputs)) = document.get("outputs") else { return Vec::new() };
    outputs
        .iter()
        .filter_map(|(name, output)| {
            let expected = output.get("value").unwrap_or(output).clone();
            let wanted = flat(&expected);
            if wanted.is_empty() {
                return None;
            }
            let number = |key: &str| output.get(key).and_then(Value::as_f64);
            let tolerance = number("rel_tol").unwrap_or(1e-9);
            let floor = number("abs_tol").unwrap_or(0.0);
            let found = answer.outputs.get(name).map(|(output, _)| output.numbers());
            let gaps = found.as_ref().filter(|have| have.len() == wanted.len()).map(|have| {
                let pairs = have.iter().zip(&wanted);
                pairs.map(|(a, b)| ((a - b).abs(), b.abs())).collect::<Vec<_>>()
            });
            let met = gaps.as_ref().is_some_and(|gaps| {
                gaps.iter().all(|(gap, size)| *gap <= (tolerance * size).max(floor))
            });
            let relative = |(gap, size): &(f64, f64)| if *gap == 0.0 { 0.0 } else { gap / size };
            Some(Check {
                output: name.clone(),
                expected,
                found: answer.outputs.get(name).map(|(output, _)| value(output)),
                relative_error: gaps.map(|gaps| gaps.iter().map(relative).fold(0.0, f64::max)),
                tolerance,
                met,
            })
        })
        .collect()
}

fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(number) => number.as_f64().into_iter().collect(),
        Value::Array(list) => list.iter().flat_map(flat).collect(),
        _ => Vec::new(),
    }
}

fn value(output: &Output) -> Value {
    match output {
        Output::Number(number) => Value::from(*number),
        Output::List(list) => Value::from(list.clone()),
        Output::Table(rows) => Value::from(rows.clone()),
        Output::Word(word) => Value::from(word.clone()),
    }
}
