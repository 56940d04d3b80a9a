//! Cases of a single station.

use super::kendall::{Letter, Notation, Numbers};
use super::read::{Fields, absent};
use super::{Answer, CaseError, KINDS, ask};
use crate::Distribution;
use crate::model::value::Value;
use crate::model::{Balking, Batch, refused};
use crate::station::{
    GgmFormula, PriorityClass, PriorityResult, Scheduling, StationSolution, batch_mm1, erlang_b,
    erlang_b_servers, erlang_c, erlang_c_servers, finite_population, ggm, gm1, mdm, mg1,
    mg1_lcfs_pr, mg1_priority, mg1_ps, mg1k, mm_infinity, mmm, mmm_balking, mmm_impatient,
    mmm_priority, mmm_unequal, mmmk,
};

pub(super) fn solve(
    kind: &str,
    fields: &Fields<'_>,
    wanted: &[String],
) -> Result<Answer, CaseError> {
    if kind.starts_with("erlang-b") || kind.starts_with("erlang-c") {
        return erlang(kind, fields);
    }
    let notation = Notation::parse(kind);
    if kind.contains("priority") || fields.has("classes") {
        return priority(kind, notation.as_ref(), fields);
    }
    let Some(notation) = notation else {
        return Err(CaseError::Kind { kind: kind.to_owned(), known: KINDS });
    };
    let numbers = notation.numbers(fields)?;
    let mut solved = station(&notation, &numbers, fields)?;
    reorder(&notation, &mut solved);
    let (unit, seconds) = fields.unit();
    let mut answer = describe(&solved, &numbers, unit, seconds);
    let general = notation.arrivals != Letter::Markov || notation.service == Letter::General;
    if general && numbers.capacity.is_none() {
        formulas(&mut answer, &notation, fields, unit, seconds);
    }
    for name in wanted {
        ask::station(&mut answer, name, &solved, unit, seconds);
    }
    Ok(answer)
}

fn station(
    notation: &Notation,
    numbers: &Numbers,
    fields: &Fields<'_>,
) -> Result<StationSolution, CaseError> {
    let Some(m) = numbers.servers else { return endless(notation, fields) };
    let capacity = numbers.capacity;
    let markov = (notation.arrivals, notation.service) == (Letter::Markov, Letter::Markov);
    let rates = || -> Result<(f64, f64), CaseError> {
        Ok((fields.need_arrival_rate()?, fields.need_service_rate()?))
    };
    let patience = fields
        .rate(&["abandonment_rate", "reneging_rate", "theta", "impatience_rate", "patience_rate"])
        .or_else(|| {
            let names = ["patience", "patience_time", "mean_patience", "patience_mean"];
            fields.time(&names).map(f64::recip)
        });
    if let Some(theta) = patience {
        let (lambda, mu) = rates()?;
        return Ok(mmm_impatient(lambda, mu, m, theta, capacity)?);
    }
    if notation.says("+m") {
        return Err(absent("abandonment_rate_per_s").into());
    }
    let batch = [
        "batch",
        "batch_size",
        "batch_probabilities",
        "batch_size_probabilities",
        "batch_size_distribution",
    ];
    let batch = batch.iter().find_map(|name| fields.get(name));
    if batch.is_some() || notation.batches {
        return batched(fields, batch);
    }
    if fields.has("join_probabilities") || notation.says("balking") {
        let (lambda, mu) = rates()?;
        let table = fields.list(&["join_probabilities"]);
        let balking = table.map_or(Balking::Reciprocal, Balking::Table);
        return Ok(mmm_balking(lambda, mu, m, &balking, capacity)?);
    }
    if let (true, Some(list)) = (markov, fields.list(&["service_rates_per_s", "mu_per_s"])) {
        let lambda = fields.need_arrival_rate()?;
        return Ok(mmm_unequal(lambda, &list)?);
    }
    match (numbers.population, capacity) {
        (Some(n), _) if markov => finite(fields, m, n, capacity),
        (Some(n), _) => {
            Err(refused("population", n, "none, or a kind M/M/m//N with exponential times").into())
        }
        (None, Some(room)) => bounded(notation, m, room, fields),
        (None, None) if markov && !notation.says("ps") && !notation.says("lcfs") => {
            let (lambda, mu) = rates()?;
            Ok(mmm(lambda, mu, m)?)
        }
        (None, None) => queue(notation, m, fields),
    }
}

/// Orders that do not look at service times change spreads, not means. One endless server: the
/// second moment of the wait grows by 1/(1−ρ) (last come, first served, who is in service stays) or
/// 2/(2−ρ) (random order).
///
/// Source: Takács 1963; Conway, Maxwell, Miller 1967.
fn reorder(notation: &Notation, solved: &mut StationSolution) {
    let rho = solved.utilization;
    let last = notation.says("lcfs") && !notation.says("lcfs-pr");
    let factor = if last {
        1.0 / (1.0 - rho)
    } else if notation.says("siro") || notation.says("random") {
        2.0 / (2.0 - rho)
    } else {
        return;
    };
    let one = solved.notation.ends_with("/1") && solved.loss_probability == 0.0;
    let old = solved.waiting_time;
    let variance = old
        .variance
        .filter(|_| one)
        .map(|variance| (variance + old.mean * old.mean) * factor - old.mean * old.mean);
    let service = solved.response_time.variance.zip(old.variance).map(|(r, w)| r - w);
    solved.response_time.variance = variance.zip(service).map(|(wait, service)| wait + service);
    solved.waiting_time.variance = variance;
    solved.waiting_law = None;
    solved.response_law = None;
    solved.notation.push_str(if last { " (LCFS)" } else { " (SIRO)" });
}

/// As many servers as customers.
fn endless(notation: &Notation, fields: &Fields<'_>) -> Result<StationSolution, CaseError> {
    let mut solved = mm_infinity(fields.need_arrival_rate()?, fields.need_service_rate()?)?;
    if notation.service != Letter::Markov {
        // The number does not depend on the shape of service; the response is the service.
        let service = fields.service(notation.service).ok();
        solved.notation = "M/G/∞".to_owned();
        solved.response_law = None;
        solved.response_time.variance = service.map(|service| service.variance());
    }
    Ok(solved)
}

/// A station with room for `room` customers.
fn bounded(
    notation: &Notation,
    m: u64,
    room: u64,
    fields: &Fields<'_>,
) -> Result<StationSolution, CaseError> {
    let lambda = fields.need_arrival_rate()?;
    if notation.arrivals != Letter::Markov {
        return Err(refused(
            "capacity",
            room,
            "none: with other than Poisson arrivals a \
             simulation, or G/G/m without a limit",
        )
        .into());
    }
    if notation.service == Letter::Markov {
        return Ok(mmmk(lambda, fields.need_service_rate()?, m, room)?);
    }
    if room == m {
        // The loss model does not depend on the shape of service.
        let mut solved = mmmk(lambda, fields.need_service_rate()?, m, room)?;
        solved.notation = format!("M/G/{m}/{room}");
        solved.response_time.variance =
            fields.service(notation.service).ok().map(|service| service.variance());
        solved.response_law = None;
        return Ok(solved);
    }
    if m == 1 {
        return Ok(mg1k(lambda, &fields.service(notation.service)?, room)?);
    }
    Err(refused(
        "capacity",
        room,
        "with several servers: as many as servers, or exponential \
         service",
    )
    .into())
}

/// An endless queue of any arrivals and service.
fn queue(notation: &Notation, m: u64, fields: &Fields<'_>) -> Result<StationSolution, CaseError> {
    if notation.says("ps") || notation.says("lcfs-pr") {
        let lambda = fields.need_arrival_rate()?;
        // Means need the mean alone.
        let service = match fields.service(notation.service) {
            Ok(service) => service,
            Err(_) => Distribution::general(fields.need_service_rate()?.recip(), 1.0, None)?,
        };
        return Ok(match (m, notation.says("ps")) {
            (1, true) => mg1_ps(lambda, &service)?,
            (1, false) => mg1_lcfs_pr(lambda, &service)?,
            _ => {
                let mut solved = mmm(lambda, service.mean().recip(), m)?;
                solved.notation = format!("M/G/{m} (PS)");
                solved.response_time.variance = None;
                solved.waiting_time.variance = None;
                solved.response_law = None;
                solved.waiting_law = None;
                solved
            }
        });
    }
    let service = fields.service(notation.service)?;
    let deterministic = matches!(service, Distribution::Deterministic { .. });
    if notation.arrivals == Letter::Markov {
        let lambda = fields.need_arrival_rate()?;
        if m == 1 {
            return Ok(mg1(lambda, &service)?);
        }
        if deterministic && m <= 200 {
            return Ok(mdm(lambda, service.mean(), m)?);
        }
    }
    let gap = fields.interarrival(notation.arrivals)?;
    if m == 1
        && service.is_exponential()
        && let Ok(solved) = gm1(&gap, service.mean().recip())
    {
        return Ok(solved);
    }
    Ok(ggm(&gap, &service, m, GgmFormula::Best)?)
}

fn finite(
    fields: &Fields<'_>,
    servers: u64,
    population: u64,
    capacity: Option<u64>,
) -> Result<StationSolution, CaseError> {
    let rate = fields
        .time(&["think_time", "up_time", "mean_time_between_failures", "mtbf", "mean_up_time"])
        .map(f64::recip)
        .or_else(|| fields.rate(&["request_rate", "failure_rate", "rate_per_customer"]))
        .or_else(|| fields.arrival_rate())
        .or_else(|| fields.rate(&["arrival_rate_per_source", "arrival_rate_per_customer"]))
        .ok_or_else(|| absent("think_time_s"))?;
    let repair = fields.time(&["repair_time", "mean_repair_time", "mttr"]).map(f64::recip);
    let mu = match repair.or_else(|| fields.rate(&["repair_rate"])) {
        Some(mu) => mu,
        None => fields.need_service_rate()?,
    };
    Ok(finite_population(rate, mu, servers, population, capacity)?)
}

fn batched(fields: &Fields<'_>, batch: Option<&Value>) -> Result<StationSolution, CaseError> {
    let batch = match batch {
        Some(Value::Number(size)) if size.fract() == 0.0 && *size >= 1.0 => {
            Batch::Fixed(kendall_units::whole_u64(*size))
        }
        Some(value @ Value::Table(_)) => batch_table(&Fields::new(value)?)?,
        Some(value) => Batch::Table(value.numbers().ok_or_else(|| absent("batch_size"))?),
        None => {
            Batch::Fixed(fields.count(&["mean_batch_size"])?.ok_or_else(|| absent("batch_size"))?)
        }
    };
    let size = batch.mean();
    let lambda = match fields.rate(&["batch_arrival_rate", "batch_rate"]) {
        Some(batches) => batches * size,
        None => fields.need_arrival_rate()?,
    };
    Ok(batch_mm1(lambda, fields.need_service_rate()?, &batch)?)
}

fn batch_table(table: &Fields<'_>) -> Result<Batch, CaseError> {
    if let (Some(sizes), Some(shares)) =
        (table.list(&["sizes", "values", "size"]), table.list(&["probabilities", "p"]))
    {
        let most = sizes.iter().copied().fold(0.0, f64::max);
        if !(1.0..=1e6).contains(&most) || sizes.iter().any(|size| *size < 1.0) {
            return Err(refused("batch.sizes", most, "sizes from 1 to 1e6").into());
        }
        let mut list = vec![0.0; usize::try_from(kendall_units::whole_u64(most)).unwrap_or(1)];
        for (size, share) in sizes.iter().zip(&shares) {
            let at = usize::try_from(kendall_units::whole_u64(*size)).unwrap_or(1);
            list[at - 1] += share;
        }
        return Ok(Batch::Table(list));
    }
    let geometric = table.text("distribution").as_deref() == Some("geometric");
    let mean = table
        .number(&["mean", "mean_size", "size"])
        .or_else(|| table.number(&["p"]).map(f64::recip))
        .ok_or_else(|| absent("batch.mean"))?;
    if geometric {
        return Ok(Batch::Geometric { mean });
    }
    match table.count(&["mean", "mean_size", "size"])? {
        Some(size) => Ok(Batch::Fixed(size)),
        None => Err(absent("batch.mean").into()),
    }
}

/// All metrics in the unit of the case.
fn describe(s: &StationSolution, numbers: &Numbers, unit: &str, seconds: f64) -> Answer {
    let mut answer = Answer {
        solver: format!("{}: {}", s.notation, s.method),
        accuracy: s.accuracy.name().to_owned(),
        ..Answer::default()
    };
    let a = &mut answer;
    let square = format!("{unit}^2");
    let per = format!("1/{unit}");
    let time = |value: f64| value / seconds;
    let time2 = |value: f64| value / (seconds * seconds);
    a.number("utilization", s.utilization, "1");
    a.number("utilization_per_server", s.utilization, "1");
    a.number("offered_load", s.offered_load, "erlang");
    let busy = numbers.servers.map_or(1.0, kendall_units::exact_f64) * s.utilization;
    a.number("mean_busy_servers", busy, "servers");
    a.maybe("p0", s.p0, "1");
    a.maybe("ln_p0", s.ln_p0, "1");
    a.maybe("p_queueing", s.p_queueing, "1");
    a.maybe("p_wait", s.p_queueing, "1");
    a.number("p_loss", s.loss_probability, "1");
    a.number("throughput", s.throughput * seconds, &per);
    a.number("effective_arrival_rate", s.accepted_rate() * seconds, &per);
    a.number("loss_rate", (s.arrival_rate - s.throughput) * seconds, &per);
    for (name, moments) in [("jobs", s.number), ("queue", s.number_waiting)] {
        a.number(&format!("mean_{name}"), moments.mean, "jobs");
        a.maybe(&format!("var_{name}"), moments.variance, "jobs^2");
    }
    a.number("mean_queue_length", s.number_waiting.mean, "jobs");
    for (name, moments) in [("response", s.response_time), ("wait", s.waiting_time)] {
        a.number(&format!("mean_{name}"), time(moments.mean), unit);
        a.maybe(&format!("var_{name}"), moments.variance.map(time2), &square);
    }
    a.number("system_response", time(s.response_time.mean), unit);
    for (name, q) in
        [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)]
    {
        a.maybe(&format!("response_{name}"), s.response_quantile(q).map(time), unit);
        a.maybe(&format!("wait_{name}"), s.waiting_quantile(q).map(time), unit);
    }
    if let Some(busy) = &s.busy_period {
        a.number("busy_period_mean", time(busy.duration.mean), unit);
        a.maybe("busy_period_var", busy.duration.variance.map(time2), &square);
        a.number("jobs_per_busy_period_mean", busy.served.mean, "jobs");
        a.maybe("jobs_per_busy_period_var", busy.served.variance, "jobs^2");
    }
    if let Some(states) = &s.states {
        a.list("p_n", states.first(21), "1");
        a.list("state_probabilities", states.first(21), "1");
    }
    for (name, value) in &s.more {
        let (value, unit) = if name.ends_with("_per_s") {
            (value * seconds, per.as_str())
        } else if name.ends_with("_s") {
            (time(*value), unit)
        } else {
            (*value, "1")
        };
        a.number(name.trim_end_matches("_per_s").trim_end_matches("_s"), value, unit);
    }
    if s.notation.contains("+M") {
        let gone = s.more.iter().find(|(name, _)| *name == "abandonment_probability");
        a.maybe("p_abandon", gone.map(|(_, p)| *p), "1");
    }
    answer
}

/// The waits that the G/G/m formulas give, whichever was taken.
fn formulas(
    answer: &mut Answer,
    notation: &Notation,
    fields: &Fields<'_>,
    unit: &str,
    seconds: f64,
) {
    let described = (
        fields.interarrival(notation.arrivals),
        fields.service(notation.service),
        notation.numbers(fields),
    );
    let (Ok(gap), Ok(service), Ok(Numbers { servers: Some(m), .. })) = described else { return };
    for (name, formula) in [
        ("allen_cunneen", GgmFormula::AllenCunneen),
        ("kraemer_langenbach_belz", GgmFormula::KraemerLangenbachBelz),
        ("klb", GgmFormula::KraemerLangenbachBelz),
        ("whitt", GgmFormula::Whitt),
        ("kingman", GgmFormula::Kingman),
    ] {
        if let Ok(solved) = ggm(&gap, &service, m, formula) {
            let wait = solved.waiting_time.mean / seconds;
            let response = solved.response_time.mean / seconds;
            answer.number(&format!("{name}_mean_wait"), wait, unit);
            answer.number(&format!("mean_wait_{name}"), wait, unit);
            answer.number(&format!("{name}_mean_response"), response, unit);
            answer.number(&format!("{name}_mean_jobs"), solved.number.mean, "jobs");
        }
    }
}

fn erlang(kind: &str, fields: &Fields<'_>) -> Result<Answer, CaseError> {
    let load = match fields.number(&[
        "offered_load_erlang",
        "offered_load",
        "load_erlang",
        "erlangs",
        "load",
    ]) {
        Some(load) => load,
        None => fields.need_arrival_rate()? / fields.need_service_rate()?,
    };
    let blocking = kind.starts_with("erlang-b");
    let mut answer = Answer {
        solver: if blocking { "Erlang B" } else { "Erlang C" }.to_owned(),
        accuracy: "exact".to_owned(),
        ..Answer::default()
    };
    answer.number("offered_load", load, "erlang");
    let target =
        fields.number(&["target_probability", "target_blocking", "blocking_target", "target"]);
    let servers = match (fields.count(&["servers", "m", "c"])?, target) {
        (Some(servers), _) => servers,
        (None, Some(p)) if blocking => erlang_b_servers(load, p)?,
        (None, Some(p)) => erlang_c_servers(load, p)?,
        (None, None) => return Err(absent("servers").into()),
    };
    answer.number("servers", kendall_units::exact_f64(servers), "servers");
    if blocking {
        let b = erlang_b(load, servers)?;
        for name in ["p_loss", "p_blocking", "erlang_b", "blocking_probability"] {
            answer.number(name, b, "1");
        }
        answer.number("carried_load", load * (1.0 - b), "erlang");
        let m = kendall_units::exact_f64(servers);
        answer.number("utilization", load * (1.0 - b) / m, "1");
    } else {
        let c = erlang_c(load, servers)?;
        for name in ["p_queueing", "p_wait", "erlang_c"] {
            answer.number(name, c, "1");
        }
    }
    Ok(answer)
}

fn priority(
    kind: &str,
    notation: Option<&Notation>,
    fields: &Fields<'_>,
) -> Result<Answer, CaseError> {
    let letter = notation.map_or(Letter::Markov, |notation| notation.service);
    let tables = fields.tables("classes")?;
    let mut classes = Vec::new();
    for table in &tables {
        classes.push((
            table.number(&["priority"]).unwrap_or(0.0),
            PriorityClass {
                arrival_rate: table.need_arrival_rate()?,
                service: match (table.service(letter), fields.service(letter)) {
                    (Ok(service), _) | (Err(_), Ok(service)) => service,
                    (Err(error), Err(_)) => return Err(error.into()),
                },
            },
        ));
    }
    if classes.is_empty() {
        return Err(absent("classes").into());
    }
    let mut order: Vec<usize> = (0..classes.len()).collect();
    order.sort_by(|a, b| classes[*a].0.total_cmp(&classes[*b].0));
    let discipline = fields.text("discipline").or(fields.text("scheduling")).unwrap_or_default();
    let said = format!("{kind} {}", discipline.to_lowercase());
    let preemptive = fields.get("preemptive") == Some(&Value::Truth(true))
        || said.contains("preemptive") && !said.contains("non");
    let scheduling =
        if preemptive { Scheduling::PreemptiveResume } else { Scheduling::NonPreemptive };
    let servers = match notation {
        Some(notation) => notation.numbers(fields)?.servers.unwrap_or(1),
        None => fields.servers()?,
    };
    let sorted: Vec<PriorityClass> = order.iter().map(|i| classes[*i].1.clone()).collect();
    let found = if servers == 1 {
        mg1_priority(&sorted, scheduling)?
    } else {
        let rates: Vec<f64> = sorted.iter().map(|c| c.arrival_rate).collect();
        mmm_priority(&rates, sorted[0].service.mean().recip(), servers, scheduling)?
    };
    let mut results = vec![found[0]; found.len()];
    for (position, class) in order.iter().enumerate() {
        results[*class] = found[position];
    }
    Ok(by_class(&results, scheduling))
}

fn by_class(results: &[PriorityResult], scheduling: Scheduling) -> Answer {
    let mut answer = Answer {
        solver: format!("priority station, {scheduling:?}"),
        accuracy: "exact".to_owned(),
        ..Answer::default()
    };
    let list = |f: fn(&PriorityResult) -> f64| results.iter().map(f).collect::<Vec<f64>>();
    for (name, values, unit) in [
        ("wait", list(|r| r.waiting_time), "s"),
        ("response", list(|r| r.response_time), "s"),
        ("jobs", list(|r| r.number), "jobs"),
        ("queue", list(|r| r.number_waiting), "jobs"),
    ] {
        answer.list(&format!("mean_{name}"), values.clone(), unit);
        answer.list(&format!("mean_{name}_by_class"), values, unit);
    }
    answer.list("utilization_by_class", list(|r| r.utilization), "1");
    let total: f64 = results.iter().map(|r| r.utilization).sum();
    answer.number("utilization", total, "1");
    let jobs: f64 = results.iter().map(|r| r.number).sum();
    answer.number("mean_jobs_total", jobs, "jobs");
    answer
}
