//! A model of each family (`families.toml`), and those that no model file can say.

use kendall_queueing::distribution::{Distribution, fit_map};
use kendall_queueing::lqn::{self, Layered};
use kendall_queueing::model::Model;
use kendall_queueing::simulation::{Measured, Settings, draw, simulate};
use kendall_queueing::solver::{Solution, Solver, solve};
use kendall_queueing::station::{Polled, Visit, mg1_retrial, polling_unequal};
use toml::{Table, Value};

use crate::measure::{Row, Rows, timed};

/// How narrow the interval of R must be that an approximation is compared with, and for how many customers at most.
const COMPARED: (f64, u64) = (0.002, 6_000_000);

pub(crate) fn all(rows: &mut Rows) {
    let file: Table = include_str!("families.toml").parse().expect("a TOML file");
    let listed = file.get("rows").and_then(Value::as_array).expect("a list of rows");
    for about in listed.iter().filter_map(Value::as_table) {
        let text = |key: &str| about.get(key).and_then(Value::as_str).unwrap_or_default();
        let row = Row {
            id: text("id").to_owned(),
            family: text("family").to_owned(),
            name: text("name").to_owned(),
            ..Row::default()
        };
        let row = match about.get("layered").and_then(Value::as_table) {
            Some(table) => layered(row, table, about),
            None => model(row, about),
        };
        rows.add(&row);
    }
    rows.add(&fitted());
    rows.add(&polled("polling", "4 unequal queues, exhaustive", Visit::Exhaustive));
    rows.add(&polled("polling-limited", "the same, one customer a visit", Visit::Limited));
    rows.add(&retrials());
}

fn model(row: Row, about: &Table) -> Row {
    let table = about.get("model").and_then(Value::as_table).expect("a model");
    let model = Model::read(table).unwrap_or_else(|error| panic!("{}: {error}", row.id));
    let solver: Solver = model.solver.parse().expect("a solver");
    if solver == Solver::Simulation {
        return simulated(row, &model);
    }
    let solved = || solve(&model, solver).unwrap_or_else(|error| panic!("{}: {error}", row.id));
    let (cpu_ms, solution) = timed(solved);
    let compared = about.get("check").and_then(Value::as_bool) == Some(true);
    let (errors, certain_to) = if compared { off(&model, &solution) } else { (None, None) };
    let (throughput, response) = match &solution.settling {
        Some(settling) => {
            (vec![settling.number_mean.0, settling.number_mean.1], vec![settling.time_s])
        }
        None => {
            let classes = || solution.classes.iter();
            (
                classes().map(|c| c.throughput).collect(),
                classes().map(|c| c.system_response).collect(),
            )
        }
    };
    let accuracy = solution.accuracy.name();
    Row { cpu_ms, accuracy, throughput, response, errors, certain_to, ..row }
}

fn center(measured: Option<Measured>) -> f64 {
    measured.map_or(f64::NAN, |measured| measured.center)
}

/// How far X and R of the class with the worst R are off a long simulation, and how certain that is.
fn off(model: &Model, solution: &Solution) -> (Option<(f64, Option<f64>)>, Option<f64>) {
    let (relative_half_width, most_customers) = COMPARED;
    let settings = Settings { relative_half_width, most_customers, ..Settings::of(model) };
    let truth = simulate(model, &settings, &mut |_| {}).expect("it can be simulated");
    let classes = solution.classes.iter().zip(&truth.classes).map(|(have, truth)| {
        let off = |have: f64, truth: f64| 100.0 * (have / truth - 1.0);
        let response = center(truth.response_time_mean_s);
        let half = truth.response_time_mean_s.and_then(|measured| measured.half_width);
        let x = off(have.throughput, center(truth.throughput_per_s));
        (x, off(have.system_response, response), half.map(|half| 100.0 * half / response))
    });
    let worst = classes.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).expect("a class");
    (Some((worst.0, Some(worst.1))), worst.2)
}

fn simulated(row: Row, model: &Model) -> Row {
    let run = || {
        simulate(model, &Settings::of(model), &mut |_| {})
            .unwrap_or_else(|error| panic!("{}: {error}", row.id))
    };
    let (cpu_ms, found) = timed(run);
    let throughput = found.classes.iter().map(|c| center(c.throughput_per_s)).collect();
    let response = found.classes.iter().map(|c| center(c.response_time_mean_s)).collect();
    Row { cpu_ms, accuracy: "simulation", throughput, response, ..row }
}

fn layered(row: Row, table: &Table, about: &Table) -> Row {
    let model = Layered::read(table).unwrap_or_else(|error| panic!("{}: {error}", row.id));
    let solved = || lqn::solve(&model).unwrap_or_else(|error| panic!("{}: {error}", row.id));
    let (cpu_ms, solution) = timed(solved);
    let customers = || solution.tasks.iter().filter(|task| task.response.is_some());
    let throughput: Vec<f64> = customers().map(|task| task.throughput).collect();
    let response = customers().filter_map(|task| task.response).collect();
    let truth = about.get("simulated_throughput_per_s").and_then(Value::as_float);
    let errors = truth.map(|truth| (100.0 * (throughput[0] / truth - 1.0), None));
    Row { cpu_ms, accuracy: "approximation", throughput, response, errors, ..row }
}

/// As the other models of arrivals in phases.
fn fitted() -> Row {
    let switched = [vec![0.0, 0.1], vec![0.1, 0.0]];
    let switched = Distribution::mmpp(&[0.2, 1.4], &switched).expect("a process");
    let times = draw(&switched, 1, 20_000);
    let (cpu_ms, fit) = timed(|| fit_map(&times).expect("times that vary"));
    let mean = 100.0 * (fit.process.mean() / switched.mean() - 1.0);
    Row {
        id: "fit".to_owned(),
        family: "fits".to_owned(),
        name: format!("a MAP of 20,000 times; its mean {mean:+.1} %"),
        cpu_ms,
        accuracy: "approximation",
        ..Row::default()
    }
}

fn polled(id: &str, name: &str, visit: Visit) -> Row {
    let times = |mean: f64| Distribution::exponential(mean).expect("a time");
    let queue =
        |arrival_rate: f64| Polled { arrival_rate, service: times(1.0), switching: times(0.1) };
    let queues = [0.3, 0.2, 0.1, 0.05].map(queue);
    let (cpu_ms, found) = timed(|| polling_unequal(&queues, visit).expect("a stable system"));
    Row {
        id: id.to_owned(),
        family: "polling and retrials".to_owned(),
        name: name.to_owned(),
        cpu_ms,
        accuracy: if visit == Visit::Limited { "approximation" } else { "exact" },
        throughput: queues.iter().map(|queue| queue.arrival_rate).collect(),
        response: found.iter().map(|queue| queue.response_time).collect(),
        ..Row::default()
    }
}

fn retrials() -> Row {
    let service = Distribution::exponential(1.0).expect("a time");
    let (cpu_ms, found) = timed(|| mg1_retrial(0.7, &service, 2.0).expect("a stable system"));
    Row {
        id: "retrial".to_owned(),
        family: "polling and retrials".to_owned(),
        name: "M/M/1 with retrials, 70 % busy".to_owned(),
        cpu_ms,
        accuracy: "exact",
        throughput: vec![0.7],
        response: vec![found.response_time],
        ..Row::default()
    }
}
