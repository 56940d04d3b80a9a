//! One server at several queues, and customers who try again.

use kendall_keys::{Form, Key, Section};
use kendall_queueing::Distribution;
use kendall_queueing::model::read_distribution;
use kendall_queueing::station::{Visit, mg1_retrial, polling};

use crate::fields::{ARRIVAL_RATE, SERVICE_RATE, SERVICE_TIME, need, service_time};
use crate::station::{SHAPE, of_model};
use crate::{Answer, Case, TextbookError};

const SERVICE: Key =
    Key::new("service", SHAPE, "its distribution; exponential unless given").optional();
const SERVICE_SCV: Key =
    Key::number("service_scv", "instead of `service`: squared coefficient of variation");

pub(crate) const POLLING: &[Key] = &[
    ARRIVAL_RATE,
    SERVICE_TIME,
    SERVICE_RATE,
    SERVICE,
    SERVICE_SCV,
    Key::new("queues", Form::Count { from: 1, to: 1_000_000 }, "equal ones that share λ"),
    Key::number("switching_time_s", "from one queue to the next, the mean"),
    Key::new("switching", SHAPE, "its distribution; deterministic unless given").optional(),
    Key::choice(
        "visit",
        &["exhaustive", "gated", "limited"],
        "until the queue is empty, for those found there, or for one customer",
    )
    .or("'exhaustive'"),
];

pub(crate) const RETRIAL: &[Key] = &[
    ARRIVAL_RATE,
    SERVICE_TIME,
    SERVICE_RATE,
    SERVICE,
    SERVICE_SCV,
    Key::number("retry_time_s", "until a customer who found the server busy tries again"),
];

/// The distribution behind a key, with the mean beside it.
fn shaped(
    section: &mut Section<'_>,
    key: &str,
    mean: f64,
    default: fn(f64) -> Result<Distribution, kendall_queueing::DistributionError>,
) -> Result<Distribution, TextbookError> {
    match section.raw(key) {
        Some(value) => read_distribution(key, value, Some(mean)).map_err(of_model),
        None => default(mean).map_err(|error| TextbookError::key(key, error.to_string())),
    }
}

fn service(section: &mut Section<'_>) -> Result<Distribution, TextbookError> {
    let mean = service_time(section)?;
    match section.number("service_scv")? {
        None => shaped(section, "service", mean, Distribution::exponential),
        Some(_) if section.has("service") => {
            Err(section.problem("service_scv", "is beside service: write one of them").into())
        }
        Some(scv) => Distribution::general(mean, scv, None)
            .map_err(|error| TextbookError::key("service_scv", error.to_string())),
    }
}

pub(crate) fn solve(mut case: Case<'_>) -> Result<Answer, TextbookError> {
    let section = &mut case.section;
    let lambda = need(section, "arrival_rate_per_s")?;
    let service = service(section)?;
    let unit = case.unit;
    if case.kind == "retrial" {
        let solved = mg1_retrial(lambda, &service, need(section, "retry_time_s")?)?;
        let mut answer = Answer::new("M/G/1 with retrials (Falin 1990)", "exact");
        answer.number("utilization", solved.utilization, "1");
        answer.number("mean_wait", unit.time(solved.waiting_time), unit.name);
        answer.number("mean_response", unit.time(solved.response_time), unit.name);
        answer.number("mean_queue", solved.number_waiting, "jobs");
        answer.number("mean_jobs", lambda * solved.response_time, "jobs");
        answer.number("mean_attempts", solved.attempts, "1");
        return Ok(answer);
    }
    let queues = section.small("queues")?;
    let mean = need(section, "switching_time_s")?;
    let switching = shaped(section, "switching", mean, Distribution::deterministic)?;
    let visit = match section.text("visit")?.as_str() {
        "gated" => Visit::Gated,
        "limited" => Visit::Limited,
        _ => Visit::Exhaustive,
    };
    let solved = polling(lambda, &service, queues, &switching, visit)?;
    let mut answer = Answer::new("polling of equal queues (Takagi 1986)", "exact");
    answer.number("utilization", solved.utilization, "1");
    answer.number("mean_wait", unit.time(solved.waiting_time), unit.name);
    answer.number("mean_response", unit.time(solved.response_time), unit.name);
    answer.number("mean_cycle", unit.time(solved.cycle_time), unit.name);
    answer.number("mean_queue", lambda * solved.waiting_time, "jobs");
    answer.number("mean_jobs", lambda * solved.response_time, "jobs");
    Ok(answer)
}
