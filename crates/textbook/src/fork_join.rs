//! Parallel work of a request.

use kendall_keys::{Form, Key};
use kendall_queueing::network::{Accuracy, ForkJoin, fork_join_general, fork_join_unequal};
use kendall_queueing::solver::{Caveat, Solver, solve as solve_model};
use kendall_queueing::{Model, model::Fork};
use toml::{Table, Value};

use crate::fields::{ARRIVAL_RATE, SERVICE_RATE, WHOLE, need, service_time};
use crate::notation::Letter;
use crate::station::{SHAPE, of_class, one_station, whole};
use crate::unit::Unit;
use crate::{Answer, Case, TextbookError};

pub(crate) const KEYS: &[Key] = &[
    ARRIVAL_RATE,
    Key::new(
        "service_time_s",
        Form::Either(&[Form::Number, Form::Numbers]),
        "S of every branch, or a list with one for each",
    )
    .optional(),
    SERVICE_RATE,
    Key::new(
        "service",
        SHAPE,
        "how the service of a branch is distributed; exponential unless given",
    )
    .optional(),
    Key::number("service_scv", "instead of `service`: its squared coefficient of variation"),
    Key::new("branches", WHOLE, "copies of a request").optional(),
    Key::new("needed", WHOLE, "how many of them must be done; all unless given").optional(),
];

pub(crate) fn solve(mut case: Case<'_>) -> Result<Answer, TextbookError> {
    let section = &mut case.section;
    let lambda = need(section, "arrival_rate_per_s")?;
    if let Some(Value::Array(_)) = section.raw("service_time_s") {
        let times = section.numbers("service_time_s")?.unwrap_or_default();
        let other = ["branches", "needed", "service_rate_per_s", "service", "service_scv"];
        if let Some(key) = other.into_iter().find(|key| section.has(key)) {
            let what =
                "is beside a list of service_time_s: all branches are needed, and exponential";
            return Err(section.problem(key, what).into());
        }
        let solved = fork_join_unequal(lambda, &times)?;
        let slowest = times.iter().copied().fold(0.0, f64::max);
        let mut answer = Answer::new(solved.method, solved.accuracy.name());
        if solved.accuracy == Accuracy::Approximation {
            let caveat = solved.measured_error.map_or(Caveat::UnknownError, Caveat::MeasuredError);
            answer.caveats.push(caveat.to_string());
        }
        answer.list("utilization", times.iter().map(|time| lambda * time).collect(), "1");
        let idle = fork_join_unequal(idle(lambda, slowest), &times)?.upper_bound;
        describe(&mut answer, &solved, lambda, idle, case.unit);
        return Ok(answer);
    }
    // A distribution may hold its own mean.
    let own = section.has("service");
    let mean = if own && !section.has("service_time_s") && !section.has("service_rate_per_s") {
        None
    } else {
        Some(service_time(section)?)
    };
    let general = own || section.has("service_scv");
    let shape = if general { of_class(Letter::General, section)? } else { None };
    let Some(branches) = section.opt_count("branches")? else {
        return Err(TextbookError::missing("branches", "a whole number"));
    };
    let needed = section.opt_count("needed")?.unwrap_or(branches);
    let small = |key: &str, value: u64| {
        u32::try_from(value)
            .map_err(|_| TextbookError::key(key, format!("`{value}` is above 100000")))
    };
    let fork = Fork { branches: small("branches", branches)?, needed: small("needed", needed)? };
    let model = lowered(lambda, mean, shape, fork)?;
    let solution = solve_model(&model, Solver::Auto)?;
    let Some(demand) = model.stations[0].demand_at(0) else {
        return Err(TextbookError::missing("service_time_s", "a number"));
    };
    let bounds = fork_join_general(lambda, &demand.service, fork.branches, fork.needed)?;
    let mut answer = Answer::new(bounds.method, solution.accuracy.name());
    answer.caveats = solution.caveats.iter().map(ToString::to_string).collect();
    answer.number("utilization", lambda * demand.service.mean(), "1");
    let response_time = solution.classes[0].system_response;
    let idle = idle(lambda, demand.service.mean());
    let idle = fork_join_general(idle, &demand.service, fork.branches, fork.needed)?;
    let all = fork.needed == fork.branches;
    let idle = if all { idle.upper_bound } else { idle.response_time };
    describe(&mut answer, &ForkJoin { response_time, ..bounds }, lambda, idle, case.unit);
    Ok(answer)
}

/// One station whose requests are copied to all branches.
fn lowered(
    lambda: f64,
    mean: Option<f64>,
    shape: Option<Value>,
    fork: Fork,
) -> Result<Model, TextbookError> {
    let (mut class, mut station) = (Table::new(), Table::new());
    class.insert("name".into(), "requests".into());
    class.insert("arrival_rate_per_s".into(), lambda.into());
    station.insert("name".into(), "branches".into());
    if let Some(mean) = mean {
        station.insert("service_time_s".into(), mean.into());
    }
    if let Some(shape) = shape {
        station.insert("service".into(), shape);
    }
    station.insert("branches".into(), whole(fork.branches.into()));
    station.insert("needed".into(), whole(fork.needed.into()));
    one_station(&class, &station)
}

/// A rate so low that no request waits.
fn idle(lambda: f64, service_time: f64) -> f64 {
    lambda.min(1e-13 / service_time)
}

/// `idle` is the mean time until enough branches are done, without waiting.
fn describe(answer: &mut Answer, solved: &ForkJoin, lambda: f64, idle: f64, unit: Unit) {
    answer.number("mean_response", unit.time(solved.response_time), unit.name);
    answer.number("branch_response", unit.time(solved.branch_response_time), unit.name);
    answer.number("response_lower", unit.time(solved.lower_bound), unit.name);
    answer.number("no_queue_response", unit.time(idle), unit.name);
    answer.number("response_upper", unit.time(solved.upper_bound), unit.name);
    answer.number("mean_jobs", lambda * solved.response_time, "jobs");
}
