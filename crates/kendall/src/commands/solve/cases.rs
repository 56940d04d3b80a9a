//! Short forms and worked cases: solved, and compared with what their file expects.

use std::str::FromStr as _;

use kendall_keys::{Form, Key, Section};
use kendall_queueing::Model;
use kendall_queueing::model::ModelError;
use kendall_queueing::solver::{self, Solver, StationResult};
use kendall_textbook::{Answer, Output, TextbookError};
use serde_json::Value;

use super::input::{File, table};

/// A file of worked cases.
pub(crate) const FILE: &[Key] = &[
    Key::new("cases", Form::Tables(&[CASE]), "one table a case"),
    Key::number("schema_version", "of the file; not looked at"),
    Key::text("title", "free text").optional(),
    Key::text("note", "free text").optional(),
    Key::number("case_count", "how many cases there are; checked"),
];

pub(crate) const CASE: &[Key] = &[
    Key::text("id", "what the case is called").optional(),
    Key::text("title", "free text").optional(),
    Key::text("source", "free text: where the case is published").optional(),
    Key::text("notes", "free text").optional(),
    Key::new("printed_in_source", Form::Special("anything"), "free: what the source prints")
        .optional(),
    Key::new("model", Form::Special("a short form (with `kind`), or a model"), "what is solved"),
    Key::new(
        "outputs",
        Form::Special("a list of names, or a table with their values"),
        "what is asked",
    )
    .optional(),
    Key::choice("expect", &["error"], "the case is met by a refusal").optional(),
];

/// What is expected of an output.
const OUTPUT: &[Key] = &[
    Key::new("value", Form::Special("a number, or lists of them"), "what is expected").optional(),
    Key::text("unit", "of the value; another one is not met").optional(),
    Key::number("rel_tol", "relative tolerance; 1e-9 unless given"),
    Key::number("abs_tol", "absolute tolerance; 0 unless given"),
];

#[derive(Debug, Clone)]
pub(super) struct Check {
    pub(super) output: String,
    pub(super) expected: Value,
    pub(super) found: Option<Value>,
    /// Largest relative difference of its numbers.
    pub(super) relative_error: Option<f64>,
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
    /// Whether the case itself makes sense.
    sound: bool,
    pub(super) checks: Vec<Check>,
}

impl Solved {
    pub(super) fn of(index: usize, case: &Value, percentiles: &[f64]) -> Self {
        let id = case.get("id").and_then(Value::as_str);
        let sound = check_case(case);
        let answer = match &sound {
            Ok(()) => answer(case, percentiles).map_err(|refusal| refusal.message),
            Err(refusal) => Err(refusal.message.clone()),
        };
        let checks = answer.as_ref().map(|answer| checks(case, answer)).unwrap_or_default();
        Self {
            id: id.map_or_else(|| (index + 1).to_string(), str::to_owned),
            answer,
            refusal: case.get("expect").and_then(Value::as_str) == Some("error"),
            sound: sound.is_ok(),
            checks,
        }
    }

    pub(super) fn met(&self) -> bool {
        match &self.answer {
            Ok(_) => !self.refusal && self.checks.iter().all(|check| check.met),
            Err(_) => self.refusal && self.sound,
        }
    }
}

/// Why a case has no answer, and which key it is about.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Path of the key, below the model.
    path: Option<String>,
    message: String,
}

impl Refusal {
    /// With the place in the file.
    pub(super) fn at(&self, file: &File) -> anyhow::Error {
        let inside = file.value.get("model").is_some();
        let path = self
            .path
            .as_ref()
            .map(|path| if inside { kendall_keys::join("model", path) } else { path.clone() });
        file.refuse(path.as_deref(), &self.message)
    }
}

impl From<kendall_keys::Problem> for Refusal {
    fn from(problem: kendall_keys::Problem) -> Self {
        Self { message: problem.to_string(), path: Some(problem.key) }
    }
}

impl From<TextbookError> for Refusal {
    fn from(error: TextbookError) -> Self {
        Self { path: error.path().map(str::to_owned), message: error.to_string() }
    }
}

impl From<ModelError> for Refusal {
    fn from(error: ModelError) -> Self {
        Self { path: error.path().map(str::to_owned), message: error.to_string() }
    }
}

impl From<solver::SolveError> for Refusal {
    fn from(error: solver::SolveError) -> Self {
        Self { path: None, message: error.to_string() }
    }
}

/// Whether a document is a short form or a worked case, and no full model.
pub(super) fn is_case(document: &Value) -> bool {
    document.get("kind").is_some() || document.get("model").is_some_and(Value::is_object)
}

/// Every key of a case is known, and every tolerance is a number.
pub(super) fn check_case(case: &Value) -> Result<(), Refusal> {
    let table = table(case)?;
    let outputs = match table.get("model") {
        // A short form by itself may say what is asked.
        None => table.get("outputs"),
        Some(_) => {
            let mut section = Section::new("", &table, &[CASE]);
            section.known()?;
            section.opt_text("expect")?;
            section.raw("outputs")
        }
    };
    let form = "write a list of names, or a table such as { mean_jobs = { value = 2 } }";
    match outputs {
        None => Ok(()),
        Some(toml::Value::Array(names)) if names.iter().all(toml::Value::is_str) => Ok(()),
        Some(toml::Value::Table(outputs)) => {
            for (name, output) in outputs {
                let toml::Value::Table(output) = output else { continue };
                let path = kendall_keys::join("outputs", name);
                let mut section = Section::new(&path, output, &[OUTPUT]);
                section.known()?;
                section.number("rel_tol")?;
                section.number("abs_tol")?;
                section.opt_text("unit")?;
            }
            Ok(())
        }
        Some(other) => {
            let what = format!("`{other}` is neither; {form}");
            Err(kendall_keys::Problem { key: "outputs".to_owned(), what }.into())
        }
    }
}

/// The keys of a file of cases, without the cases: each of them is checked by itself.
pub(super) fn check_file(document: &Value) -> Result<(), Refusal> {
    let mut outside = document.clone();
    let cases = outside.get_mut("cases").and_then(Value::as_array_mut).map(std::mem::take);
    let count = cases.map_or(0, |cases| cases.len());
    let table = table(&outside)?;
    let mut section = Section::new("", &table, &[FILE]);
    section.known()?;
    match section.number("case_count")? {
        Some(said)
            if (said - kendall_units::exact_f64(u64::try_from(count).unwrap_or(u64::MAX)))
                .abs()
                > 0.5 =>
        {
            Err(section.problem("case_count", format!("is {said}, and there are {count}")).into())
        }
        _ => Ok(()),
    }
}

/// Names of the outputs that a case asks for.
fn wanted(document: &Value, percentiles: &[f64]) -> Vec<String> {
    let mut wanted: Vec<String> = match document.get("outputs") {
        Some(Value::Object(outputs)) => outputs.keys().cloned().collect(),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    for percent in percentiles {
        wanted.push(format!("response_p{percent}"));
        wanted.push(format!("wait_p{percent}"));
    }
    wanted
}

/// Solves a model in its short form, or a full one among the cases.
pub(super) fn answer(document: &Value, percentiles: &[f64]) -> Result<Answer, Refusal> {
    let wanted = wanted(document, percentiles);
    let mut model = table(document.get("model").unwrap_or(document))?;
    if document.get("model").is_none() {
        model.remove("outputs");
    }
    if model.contains_key("kind") {
        return Ok(kendall_textbook::solve(&model, &wanted)?);
    }
    full_answer(&Model::read(&model)?)
}

/// A full model among the cases: its main outputs, by class and by station.
fn full_answer(model: &Model) -> Result<Answer, Refusal> {
    let solver = Solver::from_str(&model.solver)?;
    let solved = solver::solve(model, solver)?;
    let mut answer = Answer {
        kind: "model".to_owned(),
        solver: solved.solver.clone(),
        accuracy: solved.accuracy.name().to_owned(),
        caveats: solved.caveats.iter().map(ToString::to_string).collect(),
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
            let unit = output.get("unit").and_then(Value::as_str);
            let right_unit = answer
                .outputs
                .get(name)
                .is_none_or(|(_, own)| own.is_empty() || unit.is_none_or(|unit| unit == own));
            let met = right_unit
                && gaps.as_ref().is_some_and(|gaps| {
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

pub(super) fn value(output: &Output) -> Value {
    match output {
        Output::Number(number) => Value::from(*number),
        Output::List(list) => Value::from(list.clone()),
        Output::Table(rows) => Value::from(rows.clone()),
        Output::Word(word) => Value::from(word.clone()),
    }
}
