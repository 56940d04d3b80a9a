//! Cases of a single station.

use super::read::{Fields, absent};
use super::{Answer, CaseError, KINDS};
use crate::model::value::Value;
use crate::model::{Balking, Batch};
use crate::station::{
    GgmFormula, PriorityClass, PriorityResult, Scheduling, StationSolution, batch_mm1, erlang_b,
    erlang_b_servers, erlang_c, erlang_c_servers, finite_population, ggm, gm1, mdm, mg1,
    mg1_lcfs_pr, mg1_priority, mg1_ps, mm_infinity, mm1, mmm, mmm_balking, mmm_impatient,
    mmm_priority, mmmk,
};

pub(super) fn solve(
    kind: &str,
    fields: &Fields<'_>,
    wanted: &[String],
) -> Result<Answer, CaseError> {
    if kind.contains("priority") || fields.has("classes") {
        return priority(kind, fields);
    }
    if kind.starts_with("erlang-b")
        || kind.starts_with("erlang-m") && !fields.has("arrival_rate_per_s")
    {
        return erlang(kind, fields);
    }
    let solved = station(kind, fields)?;
    let (unit, seconds) = fields.unit();
    let mut answer = describe(&solved, unit, seconds);
    if kind.starts_with("g/") {
        formulas(&mut answer, fields, unit, seconds)?;
    }
    for name in wanted {
        ask(&mut answer, name, &solved, unit, seconds);
    }
    Ok(answer)
}

fn station(kind: &str, fields: &Fields<'_>) -> Result<StationSolution, CaseError> {
    let servers = fields.servers()?;
    let capacity = fields.count(&["capacity", "k", "K", "buffers", "B"])?;
    let population = fields.count(&["population", "n", "N", "customers", "sources"])?;
    let patience = fields
        .rate(&["abandonment_rate", "reneging_rate", "theta", "impatience_rate"])
        .or_else(|| fields.time(&["patience", "patience_time", "mean_patience"]).map(f64::recip));
    if let Some(theta) = patience {
        let (lambda, mu) = (fields.need_arrival_rate()?, fields.need_service_rate()?);
        return Ok(mmm_impatient(lambda, mu, servers, theta, capacity)?);
    }
    let markov = || -> Result<(f64, f64), CaseError> {
        Ok((fields.need_arrival_rate()?, fields.need_service_rate()?))
    };
    let finite = || finite(fields, servers, population, capacity);
    let batch = fields
        .get("batch")
        .or_else(|| fields.get("batch_size"))
        .or_else(|| fields.get("batch_probabilities"));
    Ok(match kind {
        _ if batch.is_some() || kind.starts_with("m^") || kind.starts_with("mx/") => {
            batched(fields, batch)?
        }
        _ if fields.has("join_probabilities") || kind.contains("balking") => {
            let (lambda, mu) = markov()?;
            let balking =
                fields.list(&["join_probabilities"]).map_or(Balking::Reciprocal, Balking::Table);
            mmm_balking(lambda, mu, servers, &balking, capacity)?
        }
        "finite-population" | "machine-repairman" | "machine-repair" | "engset" => finite()?,
        _ if kind.starts_with("m/m") && population.is_some() => finite()?,
        "m/m/inf" => {
            let (lambda, mu) = markov()?;
            mm_infinity(lambda, mu)?
        }
        "m/m/m/m" | "m/g/m/m" | "erlang-loss" => {
            let (lambda, mu) = markov()?;
            mmmk(lambda, mu, servers, capacity.unwrap_or(servers))?
        }
        "m/m/1" if capacity.is_none() => {
            let (lambda, mu) = markov()?;
            mm1(lambda, mu)?
        }
        _ if kind.starts_with("m/m/") || kind == "erlang-m" => {
            let (lambda, mu) = markov()?;
            match capacity {
                Some(capacity) => mmmk(lambda, mu, servers, capacity)?,
                None => mmm(lambda, mu, servers)?,
            }
        }
        _ if kind.starts_with("m/d/") => {
            let mean = fields.need_service_rate()?.recip();
            mdm(fields.need_arrival_rate()?, mean, servers)?
        }
        _ if kind.contains("-ps") || kind.contains("/ps") => {
            mg1_ps(fields.need_arrival_rate()?, &fields.service()?)?
        }
        _ if kind.contains("lcfs-pr") => {
            mg1_lcfs_pr(fields.need_arrival_rate()?, &fields.service()?)?
        }
        _ if one_server(kind, "m/") && servers == 1 => {
            mg1(fields.need_arrival_rate()?, &fields.service()?)?
        }
        _ if kind.ends_with("/m/1") => gm1(&fields.interarrival()?, fields.need_service_rate()?)?,
        _ if kind.starts_with("m/") || kind.starts_with("g/") || kind.starts_with("d/") => {
            ggm(&fields.interarrival()?, &fields.service()?, servers, GgmFormula::Best)?
        }
        _ => return Err(CaseError::Kind { kind: kind.to_owned(), known: KINDS }),
    })
}

fn finite(
    fields: &Fields<'_>,
    servers: u64,
    population: Option<u64>,
    capacity: Option<u64>,
) -> Result<StationSolution, CaseError> {
    let rate = fields
        .time(&["think_time", "up_time", "mean_time_between_failures"])
        .map(f64::recip)
        .or_else(|| fields.rate(&["request_rate", "failure_rate", "rate_per_customer"]))
        .or_else(|| fields.arrival_rate())
        .ok_or_else(|| absent("think_time_s"))?;
    let n = population.ok_or_else(|| absent("population"))?;
    let mu = fields.need_service_rate()?;
    Ok(finite_population(rate, mu, servers, n, capacity)?)
}

fn one_server(kind: &str, start: &str) -> bool {
    kind.starts_with(start)
        && (kind.ends_with("/1") || kind.contains("/1-") || kind.contains("/1/"))
}

fn batched(fields: &Fields<'_>, batch: Option<&Value>) -> Result<StationSolution, CaseError> {
    let batch = match batch {
        Some(Value::Number(size)) if size.fract() == 0.0 && *size >= 1.0 => {
            Batch::Fixed(kendall_units::whole_u64(*size))
        }
        Some(Value::Table(table)) => {
            let mean = table.get("mean").and_then(Value::number).ok_or_else(|| absent("mean"))?;
            match table.get("distribution").and_then(Value::text) {
                Some("geometric") => Batch::Geometric { mean },
                _ => Batch::Fixed(kendall_units::whole_u64(mean)),
            }
        }
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

/// All metrics in the unit of the case.
fn describe(s: &StationSolution, unit: &str, seconds: f64) -> Answer {
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
    for (name, q) in [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)] {
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

/// The waits that the other G/G/m formulas give.
fn formulas(
    answer: &mut Answer,
    fields: &Fields<'_>,
    unit: &str,
    seconds: f64,
) -> Result<(), CaseError> {
    let (gap, service, m) = (fields.interarrival()?, fields.service()?, fields.servers()?);
    for (name, formula) in [
        ("allen_cunneen", GgmFormula::AllenCunneen),
        ("kraemer_langenbach_belz", GgmFormula::KraemerLangenbachBelz),
        ("klb", GgmFormula::KraemerLangenbachBelz),
        ("whitt", GgmFormula::Whitt),
        ("kingman", GgmFormula::Kingman),
    ] {
        if let Ok(solved) = ggm(&gap, &service, m, formula) {
            let wait = solved.waiting_time.mean / seconds;
            answer.number(&format!("{name}_mean_wait"), wait, unit);
            answer.number(&format!("mean_wait_{name}"), wait, unit);
        }
    }
    Ok(())
}

/// An output whose name carries a number.
fn ask(answer: &mut Answer, name: &str, s: &StationSolution, unit: &str, seconds: f64) {
    let after = |start: &str| name.strip_prefix(start).and_then(|rest| rest.parse::<u64>().ok());
    let states = s.states.as_ref();
    let law = |which: &str| {
        if which == "wait" { s.waiting_law.as_ref() } else { s.response_law.as_ref() }
    };
    if let (Some(n), Some(states)) = (after("p_at_least_"), states) {
        answer.number(name, states.at_least(n), "1");
    } else if let (Some(n), Some(states)) = (after("p_more_than_"), states) {
        answer.number(name, states.at_least(n.saturating_add(1)), "1");
    } else if let (Some(n), Some(states)) = (after("p_at_most_"), states) {
        answer.number(name, states.at_most(n), "1");
    } else if let (Some(n), Some(states)) =
        (after("p_n_").or_else(|| after("p_exactly_")).or_else(|| after("p")), states)
    {
        answer.number(name, states.probability(n), "1");
    } else if let (Some(p), Some(states)) =
        (name.strip_prefix("buffers_for_loss_below_").and_then(|p| p.parse::<f64>().ok()), states)
    {
        // So many that P(at least as many) stays below p.
        let buffers = states.exceeded_with(p).map(|n| kendall_units::exact_f64(n + 1));
        answer.maybe(name, buffers, "buffers");
    }
    for which in ["response", "wait"] {
        if let Some(digits) = name.strip_prefix(&format!("{which}_p")) {
            let quantile = percent(digits);
            let found = quantile.and_then(|q| law(which)?.quantile(q));
            answer.maybe(name, found.map(|t| t / seconds), unit);
        }
        for (middle, survival) in
            [("_cdf_at_", false), ("_survival_at_", true), ("_exceeds_", true)]
        {
            let Some(at) = name.strip_prefix(&format!("{which}{middle}")) else { continue };
            let (Some(t), Some(law)) = (duration(at), law(which)) else { continue };
            let value = if survival { law.survival(t) } else { law.cdf(t) };
            answer.number(name, value, "1");
        }
    }
}

/// `90`, `99_9`, `99.9` and `999` are percentiles.
fn percent(digits: &str) -> Option<f64> {
    let plain = digits.replace('_', ".");
    let value: f64 = plain.parse().ok()?;
    if value < 100.0 { Some(value / 100.0) } else { format!("0.{digits}").parse().ok() }
}

/// `2s`, `500ms`, `3min`.
fn duration(text: &str) -> Option<f64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e').unwrap_or(text.len());
    let value: f64 = text[..end].trim_end_matches('_').replace('_', ".").parse().ok()?;
    let seconds = match &text[end..] {
        "ms" => 1e-3,
        "us" => 1e-6,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => 1.0,
    };
    Some(value * seconds)
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

fn priority(kind: &str, fields: &Fields<'_>) -> Result<Answer, CaseError> {
    let tables = fields.tables("classes")?;
    let mut classes = Vec::new();
    for table in &tables {
        classes.push((
            table.number(&["priority"]).unwrap_or(0.0),
            PriorityClass {
                arrival_rate: table.need_arrival_rate()?,
                service: match table.service() {
                    Ok(service) => service,
                    Err(_) => fields.service()?,
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
    let servers = fields.servers()?;
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
