//! Answers as JSON: one documented key a metric, SI units (docs/models.md).

use kendall_queueing::Model;
use kendall_queueing::solver::{Solution, StationResult};
use kendall_queueing::station::{Moments, StationSolution};
use kendall_textbook::Answer;
use serde_json::{Map, Value, json};

use super::cases::{self, Check};
use super::{Solved, human};

/// One answer, or several side by side.
pub(super) fn answers(model: &Model, answers: &[(String, Solved)]) -> Value {
    match answers {
        [(_, answer)] => one(model, answer),
        _ => json!({
            "model": model.name,
            "comparison": answers
                .iter()
                .map(|(name, answer)| json!({ "asked": name, "answer": one(model, answer) }))
                .collect::<Vec<_>>(),
        }),
    }
}

pub(super) fn one(model: &Model, answer: &Solved) -> Value {
    match answer {
        Solved::Formula(solution) => formula(model, solution),
        Solved::Simulated(simulated) => json!({
            "model": model.name, "solver": "simulation", "accuracy": "estimate",
            "simulation": simulated,
        }),
    }
}

fn formula(model: &Model, s: &Solution) -> Value {
    let mut classes = human::classes(model, &s.classes).objects();
    for (class, result) in classes.iter_mut().zip(&s.classes) {
        class["response_time_quantiles"] = quantiles(&result.response_quantiles);
    }
    let mut value = json!({
        "model": s.model,
        "solver": s.solver,
        "accuracy": s.accuracy.name(),
        "caveats": s.caveats.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "classes": classes,
        "stations": s.stations.iter().map(|r| station(model, r)).collect::<Vec<_>>(),
        "response_time_quantiles": quantiles(&s.response_quantiles),
        "waiting_time_quantiles": quantiles(&s.waiting_quantiles),
    });
    if !s.pools.is_empty() {
        value["pools"] = human::pools(s).objects().into();
    }
    if let Some(single) = &s.station {
        value["station"] = single_station(single);
    }
    if let Some(settling) = &s.settling {
        let point = |(time, number): &(f64, f64)| json!({ "time_s": time, "number_mean": number });
        value["settling"] = json!({
            "number_before": settling.number_mean.0,
            "number_after": settling.number_mean.1,
            "time_s": settling.time_s,
            "curve": settling.curve.iter().map(point).collect::<Vec<_>>(),
        });
    }
    if let Some(ln_g) = s.ln_g {
        value["ln_normalization_constant"] = json!(ln_g);
    }
    if let Some((rounds, change)) = s.iterations {
        value["iteration_rounds"] = json!(rounds);
        value["iteration_last_change"] = json!(change);
    }
    value
}

fn quantiles(list: &[(f64, f64)]) -> Value {
    list.iter().map(|(q, t)| json!({ "quantile": q, "time_s": t })).collect()
}

fn station(model: &Model, r: &StationResult) -> Value {
    let mut classes = human::stations(model, std::slice::from_ref(r)).objects();
    for class in classes.iter_mut().filter_map(Value::as_object_mut) {
        class.remove("station");
    }
    let mut value = json!({
        "name": r.name,
        "throughput_per_s": r.throughput.iter().sum::<f64>(),
        "utilization": r.utilization.iter().sum::<f64>(),
        "number_mean": r.number.iter().sum::<f64>(),
        "classes": classes,
    });
    if let Some(variance) = r.number_variance {
        value["number_variance"] = json!(variance);
    }
    if let Some(blocked) = r.blocked {
        value["blocked_mean"] = json!(blocked);
    }
    if let Some(states) = &r.states {
        let most = states.len().min(1_001);
        value["state_probabilities"] = json!(states[..most]);
    }
    value
}

fn single_station(s: &StationSolution) -> Value {
    let mut table = Map::new();
    let mut put = |key: &str, value: Value| {
        table.insert(key.to_owned(), value);
    };
    put("notation", json!(s.notation));
    put("method", json!(s.method));
    put("arrival_rate_per_s", json!(s.arrival_rate));
    put("throughput_per_s", json!(s.throughput));
    put("accepted_rate_per_s", json!(s.accepted_rate()));
    put("offered_load_erlang", json!(s.offered_load));
    put("utilization", json!(s.utilization));
    put("p0", json!(s.p0));
    put("ln_p0", json!(s.ln_p0));
    put("queueing_probability", json!(s.p_queueing));
    put("loss_probability", json!(s.loss_probability));
    let mut both = |key: &str, unit: &str, moments: Moments| {
        let square = if unit.is_empty() { "" } else { "_s2" };
        table.insert(format!("{key}_mean{unit}"), json!(moments.mean));
        table.insert(format!("{key}_variance{square}"), json!(moments.variance));
    };
    both("number", "", s.number);
    both("number_waiting", "", s.number_waiting);
    both("response_time", "_s", s.response_time);
    both("waiting_time", "_s", s.waiting_time);
    if let Some(busy) = &s.busy_period {
        both("busy_period", "_s", busy.duration);
        both("busy_period_customers", "", busy.served);
    }
    for (key, value) in &s.more {
        table.insert((*key).to_owned(), json!(value));
    }
    Value::Object(table)
}

/// A worked case: outputs by name, each with its unit; and what the file expected.
pub(super) fn case(answer: &Answer, checks: &[Check]) -> Value {
    let outputs: Map<String, Value> = answer
        .outputs
        .iter()
        .map(|(name, (output, unit))| {
            (name.clone(), json!({ "value": cases::value(output), "unit": unit }))
        })
        .collect();
    let mut value = json!({
        "kind": answer.kind, "solver": answer.solver, "accuracy": answer.accuracy,
        "caveats": answer.caveats, "outputs": outputs,
    });
    if !checks.is_empty() {
        value["checks"] = checks.iter().map(check).collect();
    }
    value
}

fn check(check: &Check) -> Value {
    json!({
        "output": check.output, "expected": check.expected, "found": check.found,
        "relative_error": check.relative_error, "relative_tolerance": check.tolerance,
        "met": check.met,
    })
}

/// A file of worked cases.
pub(super) fn cases(solved: &[cases::Solved]) -> Value {
    let list: Vec<Value> = solved
        .iter()
        .map(|case| {
            let mut value = match &case.answer {
                Ok(answer) => self::case(answer, &case.checks),
                Err(message) => json!({ "error": message }),
            };
            value["id"] = json!(case.id);
            value["met"] = json!(case.met());
            value
        })
        .collect();
    json!({ "cases": list, "met": solved.iter().filter(|case| case.met()).count() })
}
