//! Parallel work of a request.

use kendall_keys::{Form, Key};
use kendall_queueing::network::{ForkJoin, fork_join, fork_join_unequal};
use kendall_queueing::solver::{Solver, solve as solve_model};
use kendall_queueing::{
    Model,
    model::{Class, Fork, Station},
};
use toml::Value;

use crate::fields::{ARRIVAL_RATE, SERVICE_RATE, WHOLE, need, service_time};
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
    Key::new("branches", WHOLE, "copies of a request").optional(),
    Key::new("needed", WHOLE, "how many of them must be done; all unless given").optional(),
];

pub(crate) fn solve(mut case: Case<'_>) -> Result<Answer, TextbookError> {
    let section = &mut case.section;
    let lambda = need(section, "arrival_rate_per_s")?;
    if let Some(Value::Array(_)) = section.raw("service_time_s") {
        let times = section.numbers("service_time_s")?.unwrap_or_default();
        let other = ["branches", "needed", "service_rate_per_s"];
        if let Some(key) = other.into_iter().find(|key| section.has(key)) {
            let what = "is beside a list of service_time_s: all branches are needed";
            return Err(section.problem(key, what).into());
        }
        let solved = fork_join_unequal(lambda, &times)?;
        let mut answer = Answer::new(solved.method, solved.accuracy.name());
        answer.list("utilization", times.iter().map(|time| lambda * time).collect(), "1");
        describe(&mut answer, &solved, lambda, case.unit);
        return Ok(answer);
    }
    let service = service_time(section)?;
    let Some(branches) = section.opt_count("branches")? else {
        return Err(TextbookError::missing("branches", "a whole number"));
    };
    let needed = section.opt_count("needed")?.unwrap_or(branches);
    let small = |key: &str, value: u64| {
        u32::try_from(value)
            .map_err(|_| TextbookError::key(key, format!("`{value}` is above 100000")))
    };
    let fork = Fork { branches: small("branches", branches)?, needed: small("needed", needed)? };
    let mut station = Station::queue("branches", 1).with_service_time(0, service);
    station.fork = Some(fork);
    let model = Model::new("fork-join", vec![Class::open("requests", lambda)], vec![station])?;
    let solution = solve_model(&model, Solver::Auto)?;
    let bounds = fork_join(lambda, service, fork.branches, fork.needed)?;
    let mut answer = Answer::new(bounds.method, solution.accuracy.name());
    answer.caveats = solution.caveats.iter().map(ToString::to_string).collect();
    answer.number("utilization", lambda * service, "1");
    let response_time = solution.classes[0].system_response;
    describe(&mut answer, &ForkJoin { response_time, ..bounds }, lambda, case.unit);
    Ok(answer)
}

fn describe(answer: &mut Answer, solved: &ForkJoin, lambda: f64, unit: Unit) {
    answer.number("mean_response", unit.time(solved.response_time), unit.name);
    answer.number("branch_response", unit.time(solved.branch_response_time), unit.name);
    answer.number("response_lower", unit.time(solved.lower_bound), unit.name);
    answer.number("response_upper", unit.time(solved.upper_bound), unit.name);
    answer.number("mean_jobs", lambda * solved.response_time, "jobs");
}
