//! One server at several queues, and customers who try again.

use kendall_keys::{Form, Key, Section};
use kendall_queueing::Distribution;
use kendall_queueing::model::read_distribution;
use kendall_queueing::solver::Caveat;
use kendall_queueing::station::{
    MeasuredWait, Polled, Polling, Visit, mg1_retrial, polling, polling_unequal,
};

use crate::fields::{ARRIVAL_RATE, SERVICE_RATE, SERVICE_TIME, entries_for, need, service_time};
use crate::station::{SHAPE, of_model};
use crate::unit::Unit;
use crate::{Answer, Case, TextbookError};
use toml::Value;

const SERVICE: Key =
    Key::new("service", SHAPE, "its distribution; exponential unless given").optional();
const SERVICE_SCV: Key =
    Key::number("service_scv", "instead of `service`: squared coefficient of variation");

/// A number for all queues, or a list with one for each.
const EACH: Form = Form::Either(&[Form::Number, Form::Numbers]);

pub(crate) const POLLING: &[Key] = &[
    Key::new("arrival_rate_per_s", EACH, "λ of all queues together, or a list with one for each")
        .optional(),
    Key::new("service_time_s", EACH, "S, or a list with one for each queue").optional(),
    SERVICE_RATE,
    SERVICE,
    Key::new(
        "service_scv",
        EACH,
        "instead of `service`: squared coefficient of variation, or a list with one for each queue",
    )
    .optional(),
    Key::new(
        "queues",
        Form::Count { from: 1, to: 1_000_000 },
        "equal ones that share λ; without a list of λ",
    )
    .optional(),
    Key::new(
        "switching_time_s",
        EACH,
        "from one queue to the next, the mean, or a list with one for each queue",
    ),
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
    let unit = case.unit;
    if let Some(Value::Array(_)) = section.raw("arrival_rate_per_s") {
        return unequal(section, unit);
    }
    let lambda = need(section, "arrival_rate_per_s")?;
    let service = service(section)?;
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
    if !section.has("queues") {
        return Err(TextbookError::missing("queues", "a number (or a list of arrival_rate_per_s)"));
    }
    let queues = section.small("queues")?;
    let mean = need(section, "switching_time_s")?;
    let switching = shaped(section, "switching", mean, Distribution::deterministic)?;
    let visit = visit(section)?;
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

fn visit(section: &mut Section<'_>) -> Result<Visit, TextbookError> {
    Ok(match section.text("visit")?.as_str() {
        "gated" => Visit::Gated,
        "limited" => Visit::Limited,
        _ => Visit::Exhaustive,
    })
}

/// A number for each of `count` queues.
fn each(
    section: &mut Section<'_>,
    key: &str,
    count: usize,
) -> Result<Option<Vec<f64>>, TextbookError> {
    let Some(Value::Array(_)) = section.raw(key) else {
        return Ok(section.number(key)?.map(|number| vec![number; count]));
    };
    let list = section.numbers(key)?.unwrap_or_default();
    if list.len() == count {
        return Ok(Some(list));
    }
    Err(section.problem(key, entries_for(list.len(), count, "queue")).into())
}

/// What is known of the error with one customer a visit: measured up to 85 % at the busiest of six queues.
fn error(queues: &[Polled]) -> Caveat {
    let load: f64 = queues.iter().map(|q| q.arrival_rate * q.service.mean()).sum();
    let switch: f64 = queues.iter().map(|q| q.switching.mean()).sum();
    let within = |q: &Polled| {
        load + q.arrival_rate * switch <= 0.85 && (0.2..=3.0).contains(&q.service.scv())
    };
    if (2..=6).contains(&queues.len()) && queues.iter().all(within) {
        Caveat::MeasuredWait(MeasuredWait { waiting_percent: 44.0, response_percent: 43.0 })
    } else {
        Caveat::UnknownError
    }
}

/// One server at queues that differ.
fn unequal(section: &mut Section<'_>, unit: Unit) -> Result<Answer, TextbookError> {
    let rates = section.numbers("arrival_rate_per_s")?.unwrap_or_default();
    let count = rates.len();
    if section.has("queues") && section.small("queues")? as usize != count {
        let what = format!("is not {count}, the number of rates: leave it out");
        return Err(section.problem("queues", what).into());
    }
    let times = match each(section, "service_time_s", count)? {
        Some(times) if !section.has("service_rate_per_s") => times,
        _ => vec![service_time(section)?; count],
    };
    let scvs = each(section, "service_scv", count)?;
    if scvs.is_some() && section.has("service") {
        return Err(section.problem("service_scv", "is beside service: write one of them").into());
    }
    let switches = each(section, "switching_time_s", count)?
        .ok_or_else(|| TextbookError::missing("switching_time_s", "a number"))?;
    let mut queues = Vec::new();
    for (index, arrival_rate) in rates.iter().copied().enumerate() {
        let service = match &scvs {
            Some(scvs) => Distribution::general(times[index], scvs[index], None)
                .map_err(|error| TextbookError::key("service_scv", error.to_string()))?,
            None => shaped(section, "service", times[index], Distribution::exponential)?,
        };
        let switching = shaped(section, "switching", switches[index], Distribution::deterministic)?;
        queues.push(Polled { arrival_rate, service, switching });
    }
    let visit = visit(section)?;
    let solved = polling_unequal(&queues, visit)?;
    let mut answer = if visit == Visit::Limited {
        let mut answer = Answer::new("polling (Boxma and Meister 1987)", "approximation");
        answer.caveats.push(error(&queues).to_string());
        answer
    } else {
        Answer::new("polling (Ferguson and Aminetzah 1985)", "exact")
    };
    let list = |of: fn(&Polling) -> f64| solved.iter().map(of).collect::<Vec<f64>>();
    let times = |of: fn(&Polling) -> f64| list(of).into_iter().map(|t| unit.time(t)).collect();
    let jobs = |of: fn(&Polling) -> f64| {
        rates.iter().zip(list(of)).map(|(rate, time)| rate * time).collect::<Vec<f64>>()
    };
    answer.list("utilization", list(|one| one.utilization), "1");
    answer.list("mean_wait", times(|one| one.waiting_time), unit.name);
    answer.list("mean_response", times(|one| one.response_time), unit.name);
    answer.number("mean_cycle", unit.time(solved[0].cycle_time), unit.name);
    answer.list("mean_queue", jobs(|one| one.waiting_time), "jobs");
    answer.list("mean_jobs", jobs(|one| one.response_time), "jobs");
    Ok(answer)
}
