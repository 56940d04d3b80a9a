//! Cases of the scalability law.

use super::read::Fields;
use super::{Answer, CaseError};
use crate::model::refused;
use crate::scalability::{Coefficient, Options, Prediction, Usl, fit, gustafson};

/// Whether a kind is about the growth of throughput with load.
pub(super) fn is_scaling(kind: &str) -> bool {
    ["usl", "universal-scalability", "scalability", "amdahl", "gustafson"]
        .iter()
        .any(|word| kind.starts_with(word))
}

pub(super) fn solve(kind: &str, fields: &Fields<'_>) -> Result<Answer, CaseError> {
    let loads = fields.list(&["n", "load", "loads", "customers", "population", "N", "clients"]);
    let throughput = fields.list(&["throughput_per_s", "throughput", "x", "X", "capacity"]);
    match (loads, throughput) {
        (Some(loads), Some(throughput)) => fitted(kind, &loads, &throughput, fields),
        (loads, _) => law(kind, fields, &loads.unwrap_or_default()),
    }
}

fn fitted(
    kind: &str,
    loads: &[f64],
    throughput: &[f64],
    fields: &Fields<'_>,
) -> Result<Answer, CaseError> {
    if loads.len() != throughput.len() {
        let expected = format!("{} throughputs, one for each load", loads.len());
        return Err(refused("throughput_per_s", throughput.len(), expected).into());
    }
    let measured: Vec<(f64, f64)> = loads.iter().copied().zip(throughput.iter().copied()).collect();
    let options = Options {
        gamma: fields.number(&["gamma_fixed", "fixed_gamma", "gamma"]),
        amdahl: kind.contains("amdahl"),
        confidence: fields.number(&["confidence"]).unwrap_or(0.95),
    };
    let fit = fit(&measured, &options)?;
    let mut answer = Answer {
        solver: "universal scalability law, least squares".to_owned(),
        accuracy: "estimate".to_owned(),
        ..Answer::default()
    };
    for (names, value, unit) in [
        (["alpha", "sigma"], &fit.alpha, "1"),
        (["beta", "kappa"], &fit.beta, "1"),
        (["gamma", "lambda"], &fit.gamma, "1/s"),
    ] {
        for name in names {
            coefficient(&mut answer, name, value, unit, fit.confidence);
        }
    }
    answer.number("residual_standard_error", fit.residual_standard_error, "1/s");
    answer.number("r_squared", fit.r_squared, "1");
    shape(&mut answer, &fit.usl);
    answer.number("residual_se", fit.residual_standard_error, "1/s");
    answer.list("residuals", fit.residuals.clone(), "1/s");
    let degrees = u64::try_from(fit.degrees_of_freedom).unwrap_or(u64::MAX);
    answer.number("degrees_of_freedom", kendall_units::exact_f64(degrees), "1");
    let asked = ["predict_n", "predict", "predict_at", "prediction_n", "predict_at_n", "n_predict"];
    let at = match fields.list(&asked) {
        Some(at) => at,
        None => fields.number(&asked).into_iter().collect(),
    };
    if !at.is_empty() {
        let found = at.iter().map(|n| fit.predict(*n)).collect::<Result<Vec<_>, _>>()?;
        let list = |of: fn(&Prediction) -> f64| found.iter().map(of).collect::<Vec<f64>>();
        for name in ["predictions", "predicted_throughput"] {
            answer.list(name, list(|p| p.throughput), "1/s");
        }
        answer.list("predictions_se", list(|p| p.standard_error), "1/s");
        answer.list("predictions_low", list(|p| p.low), "1/s");
        answer.list("predictions_high", list(|p| p.high), "1/s");
        answer.list("efficiency", list(|p| p.efficiency), "1");
    }
    Ok(answer)
}

fn coefficient(
    answer: &mut Answer,
    name: &str,
    coefficient: &Coefficient,
    unit: &str,
    confidence: f64,
) {
    answer.number(name, coefficient.value, unit);
    answer.maybe(&format!("{name}_se"), coefficient.standard_error, unit);
    answer.maybe(&format!("{name}_t"), coefficient.t, "1");
    answer.maybe(&format!("{name}_p"), coefficient.p_value, "1");
    if let Some((low, high)) = coefficient.interval {
        let percent = (confidence * 1e4).round() / 100.0;
        answer.list(&format!("{name}_ci{percent}"), vec![low, high], unit);
    }
}

fn shape(answer: &mut Answer, usl: &Usl) {
    for name in ["peak_n", "n_peak", "n_max", "peak_load"] {
        answer.maybe(name, usl.peak_load(), "users");
    }
    for name in ["peak_throughput", "x_max", "max_throughput"] {
        answer.maybe(name, usl.peak_throughput(), "1/s");
    }
    for name in ["amdahl_limit", "limit", "asymptote"] {
        answer.maybe(name, usl.limit(), "1/s");
    }
    answer.maybe("optimal_n", usl.optimal_load(), "users");
}

/// Known coefficients.
fn law(kind: &str, fields: &Fields<'_>, loads: &[f64]) -> Result<Answer, CaseError> {
    let serial = ["alpha", "sigma", "serial_fraction", "serial", "f", "s"];
    let usl = Usl {
        alpha: fields.need(&serial)?,
        beta: fields.number(&["beta", "kappa"]).unwrap_or(0.0),
        gamma: fields.number(&["gamma", "gamma_per_s", "lambda", "X1", "x1"]).unwrap_or(1.0),
    };
    if !(usl.alpha >= 0.0 && usl.beta >= 0.0 && usl.gamma > 0.0) {
        let (name, value) = if usl.alpha < 0.0 || usl.alpha.is_nan() {
            ("alpha", usl.alpha)
        } else if usl.beta < 0.0 || usl.beta.is_nan() {
            ("beta", usl.beta)
        } else {
            ("gamma", usl.gamma)
        };
        return Err(refused(name, value, "0 or above (gamma above 0)").into());
    }
    let mut answer = Answer {
        solver: "universal scalability law".to_owned(),
        accuracy: "exact".to_owned(),
        ..Answer::default()
    };
    if !kind.contains("gustafson") {
        shape(&mut answer, &usl);
    }
    let throughput = |n: f64| match kind {
        kind if kind.contains("gustafson") => usl.gamma * gustafson(n, usl.alpha),
        _ => usl.throughput(n),
    };
    let one = fields.number(&["n", "load", "N", "processors", "p"]);
    if let Some(n) = one {
        answer.number("throughput", throughput(n), "1/s");
        for name in ["relative_capacity", "speedup"] {
            answer.number(name, throughput(n) / usl.gamma, "1");
        }
        for name in ["response_time", "mean_response"] {
            answer.number(name, n / throughput(n), "s");
        }
        answer.number("efficiency", throughput(n) / (usl.gamma * n), "1");
    }
    if !loads.is_empty() {
        let list = |of: &dyn Fn(f64) -> f64| loads.iter().map(|n| of(*n)).collect::<Vec<f64>>();
        answer.list("throughput", list(&throughput), "1/s");
        for name in ["relative_capacity", "speedup"] {
            answer.list(name, list(&|n| throughput(n) / usl.gamma), "1");
        }
        answer.list("efficiency", list(&|n| throughput(n) / (usl.gamma * n)), "1");
    }
    Ok(answer)
}
