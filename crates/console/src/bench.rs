//! The bench: a model as JSON in, its solution and its curve out.

use std::ffi::OsString;
use std::fs;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use kendall_queueing::Model;
use kendall_queueing::model::{Class, Workload};
use kendall_queueing::solver::{Solution, SolveError, Solver, solve as solved};
use kendall_tier::Clock;
use kendall_units::exact_f64;
use serde::Deserialize;
use serde_json::{Value, json};
use toml::Table;

use crate::Shared;
use crate::failure::{Answered, Failure, aside};

/// Points of a curve, at least and at most, and the time for them: as one drags a slider, fewer are better than late
/// ones. Where there is no time for 16, they are approximate; in the longest time there are as many as there are.
const POINTS: u32 = 64;
const LEAST_POINTS: usize = 8;
const TIME_NS: u64 = 15_000_000;
const LONGEST_NS: u64 = 500_000_000;
/// Most work for one solution of an interactive request: cells of the exact recursion, and steps of a round of the best
/// iteration. Beyond, a simpler solver is taken.
const MOST_CELLS: f64 = 4e6;
const MOST_STEPS: f64 = 1e5;
/// How near saturation the curve of an open class goes, and how far beyond its present load.
const NEAR: f64 = 0.98;
const BEYOND: f64 = 2.0;
/// Longest time for a solution.
const SOLVED_IN: Duration = Duration::from_secs(10);
/// What a curve goes to where the model has an enormous population.
const MOST_POPULATION: u64 = 1_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct Text {
    /// Its ending says how it is written.
    name: String,
    text: String,
}

/// The JSON that a model file says, and the file that a model is: TOML, for saving.
pub(crate) async fn read(text: Result<Json<Text>, JsonRejection>) -> Answered {
    let Json(Text { name, text }) = text?;
    aside(move || {
        let (mut notes, ending) = (Vec::new(), name.rsplit('.').next().unwrap_or_default());
        let mut table: Table = match (kendall_textbook::reader_of_jmt(ending), ending) {
            (Some(read), _) => {
                let read = read(&text).map_err(Failure::refused)?;
                notes = read.notes;
                read.table
            }
            (None, "json") => table(&serde_json::from_str(&text).map_err(Failure::refused)?)?,
            _ => text.parse().map_err(Failure::refused)?,
        };
        for value in table.iter_mut().map(|(_, value)| value) {
            at_one_point(value);
        }
        Model::read(&table).map_err(Failure::refused)?;
        let text = toml::to_string(&table).map_err(Failure::refused)?;
        Ok(Json(json!({ "model": table, "text": text, "notes": notes })))
    })
    .await
}

/// The middle of a sweep, of which a file may have one in the place of each number.
fn at_one_point(value: &mut toml::Value) {
    match value {
        toml::Value::Table(table) if ["from", "to"].iter().all(|key| is_number(table, key)) => {
            let ends = (table.get("from").cloned(), table.get("to").cloned());
            *value = match ends {
                (Some(toml::Value::Integer(from)), Some(toml::Value::Integer(to))) => {
                    toml::Value::Integer(from.midpoint(to))
                }
                (from, to) => {
                    let [from, to] = [from, to].map(|end| end.map_or(0.0, |end| number(&end)));
                    toml::Value::Float(from.midpoint(to))
                }
            };
        }
        toml::Value::Table(table) => table.iter_mut().for_each(|(_, value)| at_one_point(value)),
        toml::Value::Array(list) => list.iter_mut().for_each(at_one_point),
        _ => {}
    }
}

fn number(value: &toml::Value) -> f64 {
    value.as_float().or_else(|| value.to_string().parse().ok()).unwrap_or_default()
}

fn is_number(table: &Table, key: &str) -> bool {
    table.get(key).is_some_and(|value| value.is_integer() || value.is_float())
}

fn table(model: &Value) -> Result<Table, Failure> {
    if !model.is_object() {
        return Err(Failure::refused("a model is an object of its keys"));
    }
    match kendall_keys::from_json("", model).map_err(Failure::refused)? {
        toml::Value::Table(table) => Ok(table),
        other => Err(Failure::refused(format!("`{other}` is no model"))),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct Asked {
    model: Value,
}

pub(crate) async fn solve(
    State(shared): State<Shared>,
    asked: Result<Json<Asked>, JsonRejection>,
) -> Answered {
    let Json(Asked { model }) = asked?;
    let turn = Arc::clone(&shared.solving).acquire_owned().await.map_err(Failure::busy)?;
    // Dropped with this call when the client goes away.
    let waits = Arc::new(());
    let client = Arc::downgrade(&waits);
    aside(move || {
        let _turn = turn;
        // What is no model is refused here, in the words for its keys.
        Model::read(&table(&model)?).map_err(Failure::refused)?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("model.json");
        fs::write(&file, model.to_string())?;
        let arguments: [OsString; 3] = ["solve".into(), file.into(), "--bench".into()];
        let answer = shared.program.answer_to(&client, SOLVED_IN, &arguments)?;
        Ok(Json(serde_json::from_str(&answer).map_err(Failure::busy)?))
    })
    .await
}

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(
        "too large for the bench with this solver: leave the solver out, or use `kendall solve`"
    )]
    TooLarge,
    #[error(transparent)]
    Solve(#[from] SolveError),
}

/// The solver for an interactive request.
fn quick(model: &Model) -> Result<Solver, BenchError> {
    let solver = Solver::from_str(&model.solver)?;
    let closed = model.classes.iter().filter(|class| !class.is_open());
    let stations = exact_f64(model.stations.len() as u64);
    let cells = closed.clone().map(|class| exact_f64(class.population()) + 1.0).product::<f64>();
    let steps = exact_f64(closed.count() as u64).powi(2) * stations;
    let is_large = stations * cells > MOST_CELLS;
    match solver {
        Solver::Mva | Solver::Convolution if is_large => Err(BenchError::TooLarge),
        Solver::Auto if is_large && steps > MOST_STEPS => Ok(Solver::Schweitzer),
        Solver::Auto if is_large => Ok(Solver::Linearizer),
        solver => Ok(solver),
    }
}

/// The solution of a model, and its first class over its load: what the bench shows.
pub fn bench_answer(model: &Model) -> Result<Value, BenchError> {
    let clock = &Clock::monotonic();
    let begun_ns = clock.now_ns();
    let solver = quick(model)?;
    let solution = solved(model, solver)?;
    let mut value = json!({
        "solver": solution.solver,
        "accuracy": solution.accuracy.name(),
        "caveats": solution.caveats.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "classes": solution.classes.iter().map(class).collect::<Vec<_>>(),
        "stations": stations(&solution),
        "pools": solution.pools.iter().map(|pool| json!({
            "name": pool.name, "in_use": pool.in_use, "number_waiting": pool.number_waiting,
        })).collect::<Vec<_>>(),
    });
    if let Some(first) = solution.classes.first() {
        let most = first.bottleneck.as_ref().map(|found| found.most_throughput);
        let is_slow = clock.now_ns() - begun_ns > TIME_NS / 16;
        let approximate = is_slow.then(|| curve(model, Solver::Schweitzer, most, clock));
        let approximate = approximate.filter(|points| !points.is_empty());
        value["curve_approximate"] = json!(approximate.is_some());
        let points = approximate.unwrap_or_else(|| curve(model, solver, most, clock));
        value["curve"] = json!(points);
    }
    value["solved_in_ms"] = json!(exact_f64(clock.now_ns() - begun_ns) / 1e6);
    Ok(value)
}

fn class(class: &kendall_queueing::solver::ClassResult) -> Value {
    json!({
        "name": class.name,
        "throughput_per_s": class.throughput,
        "response_s": class.system_response,
        "number": class.number,
        "most_throughput_per_s": class.bottleneck.as_ref().map(|found| found.most_throughput),
        "saturation_population": class.bottleneck.as_ref().and_then(|found| found.saturation_population),
        "throughput_bounds_per_s": class.throughput_bounds,
    })
}

/// By class, and their sum; the bottleneck is the busiest queue.
fn stations(solution: &Solution) -> Vec<Value> {
    let of = |station: &kendall_queueing::solver::StationResult| {
        json!({
            "name": station.name,
            "utilization": station.utilization.iter().sum::<f64>(),
            "number": station.number.iter().sum::<f64>(),
            "throughput_per_s": station.throughput.iter().sum::<f64>(),
            "residence_s": station.residence_time,
        })
    };
    solution.stations.iter().map(of).collect()
}

/// Points of the first class over its population or arrival rate, coarse ones first, as many as there is time for.
fn curve(model: &Model, solver: Solver, most: Option<f64>, clock: &Clock) -> Vec<Value> {
    let begun_ns = clock.now_ns();
    let to = match &model.classes[0].workload {
        Workload::Closed { population, .. } => {
            exact_f64((2 * (*population).clamp(1, MOST_POPULATION)).max(4))
        }
        Workload::Open { arrival_rate_per_s, .. } => {
            let far = BEYOND * arrival_rate_per_s;
            most.map_or(far, |most| (NEAR * most).min(far).max(*arrival_rate_per_s))
        }
    };
    let mut points: Vec<(f64, Value)> = Vec::new();
    // All odd multiples of a half, a quarter, an eighth … of the range, and its end.
    let halves = (1..=POINTS.ilog2()).flat_map(|depth| {
        let parts = 1_u32 << depth;
        (1..parts).step_by(2).map(move |odd| f64::from(odd) / f64::from(parts))
    });
    for share in [1.0, 1.0 / f64::from(POINTS)].into_iter().chain(halves) {
        let passed_ns = clock.now_ns() - begun_ns;
        let longest_ns = if points.len() < LEAST_POINTS { LONGEST_NS } else { TIME_NS };
        if passed_ns > longest_ns {
            break;
        }
        let (load, at) = loaded(model, share * to);
        if points.iter().any(|(known, _)| known.total_cmp(&load).is_eq()) {
            continue;
        }
        // A point without a solution (an unstable one) leaves a gap.
        let Ok(solution) = solved(&at, solver) else { continue };
        let mut value = class(&solution.classes[0]);
        value["load"] = json!(load);
        points.push((load, value));
    }
    points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    points.into_iter().map(|(_, value)| value).collect()
}

/// The model with another load of its first class; populations are whole.
fn loaded(model: &Model, load: f64) -> (f64, Model) {
    let mut model = model.clone();
    let Class { workload, .. } = &mut model.classes[0];
    let load = match workload {
        Workload::Closed { population, .. } => {
            *population = kendall_units::whole_u64(load.round().max(1.0));
            exact_f64(*population)
        }
        Workload::Open { arrival_rate_per_s, interarrival, .. } => {
            let mean = interarrival.mean() * *arrival_rate_per_s / load;
            *interarrival = interarrival.with_mean(mean).unwrap_or_else(|_| interarrival.clone());
            *arrival_rate_per_s = load;
            load
        }
    };
    (load, model)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct Simulated {
    model: Value,
    /// How narrow the intervals are to be; the page asks again for narrower ones.
    relative_half_width: f64,
}

/// The simulation of a model, by the program: it may take long, and is ended where it takes too long.
pub(crate) async fn simulate(
    State(shared): State<Shared>,
    asked: Result<Json<Simulated>, JsonRejection>,
) -> Answered {
    let Json(Simulated { mut model, relative_half_width }) = asked?;
    aside(move || {
        if !model.is_object() {
            return Err(Failure::refused("this is no model"));
        }
        if !model["simulation"].is_object() {
            model["simulation"] = json!({});
        }
        model["simulation"]["relative_half_width"] = json!(relative_half_width);
        if shared.live.runs() {
            let what = "a study is running, and a simulation takes all cores: wait for its end";
            return Err(Failure::conflict(what));
        }
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("model.json");
        fs::write(&file, model.to_string())?;
        let arguments: [OsString; 5] = [
            "solve".into(),
            file.into(),
            "--solver".into(),
            "simulation".into(),
            "--format=json".into(),
        ];
        let answer = shared.program.answer(&arguments)?;
        let answer: Value = serde_json::from_str(&answer).map_err(Failure::busy)?;
        Ok(Json(answer))
    })
    .await
}
