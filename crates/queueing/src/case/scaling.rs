//! Cases of the scalability law.

use super::read::{Fields, absent};
use super::{Answer, CaseError};
use crate::scalability::{Coefficient, Options, Usl, fit};

pub(super) fn solve(fields: &Fields<'_>) -> Result<Answer, CaseError> {
    let loads = fields.list(&["n", "load", "customers", "population", "N"]);
    let throughput = fields.list(&["throughput_per_s", "throughput", "x"]);
    match (loads, throughput) {
        (Some(loads), Some(throughput)) => fitted(&loads, &throughput, fields),
        (loads, _) => law(fields, &loads.unwrap_or_default()),
    }
}

fn fitted(loads: &[f64], throughput: &[f64], fields: &Fields<'_>) -> Result<Answer, CaseError> {
    let measured: Vec<(f64, f64)> = loads.iter().copied().zip(throughput.iter().copied()).collect();
    let fit = fit(&measured, &Options::default())?;
    let mut answer = Answer {
        solver: "universal scalability law, least squares".to_owned(),
        accuracy: "estimate".to_owned(),
        ..Answer::default()
    };
    coefficient(&mut answer, "alpha", &fit.alpha, "1");
    coefficient(&mut answer, "beta", &fit.beta, "1");
    coefficient(&mut answer, "gamma", &fit.gamma, "1/s");
    answer.number("residual_standard_error", fit.residual_standard_error, "1/s");
    answer.number("r_squared", fit.r_squared, "1");
    shape(&mut answer, &fit.usl);
    for (name, keys) in [("predictions", ["predict_n", "predict"])] {
        if let Some(at) = fields.list(&keys) {
            let list = at.iter().map(|n| fit.usl.throughput(*n)).collect();
            answer.list(name, list, "1/s");
        }
    }
    Ok(answer)
}

fn coefficient(answer: &mut Answer, name: &str, coefficient: &Coefficient, unit: &str) {
    answer.number(name, coefficient.value, unit);
    answer.maybe(&format!("{name}_se"), coefficient.standard_error, unit);
    answer.maybe(&format!("{name}_t"), coefficient.t, "1");
    answer.maybe(&format!("{name}_p"), coefficient.p_value, "1");
    if let Some((low, high)) = coefficient.interval {
        answer.list(&format!("{name}_ci95"), vec![low, high], unit);
    }
}

fn shape(answer: &mut Answer, usl: &Usl) {
    answer.maybe("peak_n", usl.peak_load(), "users");
    answer.maybe("peak_throughput", usl.peak_throughput(), "1/s");
    answer.maybe("amdahl_limit", usl.limit(), "1/s");
    answer.maybe("optimal_n", usl.optimal_load(), "users");
}

/// Known coefficients.
fn law(fields: &Fields<'_>, loads: &[f64]) -> Result<Answer, CaseError> {
    let usl = Usl {
        alpha: fields.need(&["alpha", "sigma"])?,
        beta: fields.number(&["beta", "kappa"]).unwrap_or(0.0),
        gamma: fields.number(&["gamma", "gamma_per_s", "lambda"]).unwrap_or(1.0),
    };
    if !(usl.alpha >= 0.0 && usl.beta >= 0.0 && usl.gamma > 0.0) {
        return Err(absent("alpha, beta and gamma: 0 or above (gamma above 0)").into());
    }
    let mut answer = Answer {
        solver: "universal scalability law".to_owned(),
        accuracy: "exact".to_owned(),
        ..Answer::default()
    };
    shape(&mut answer, &usl);
    let one = fields.number(&["n", "load", "N"]);
    if let Some(n) = one {
        answer.number("throughput", usl.throughput(n), "1/s");
        answer.number("response_time", usl.response_time_s(n), "s");
        answer.number("efficiency", usl.efficiency(n), "1");
    }
    if !loads.is_empty() {
        answer.list("throughput", loads.iter().map(|n| usl.throughput(*n)).collect(), "1/s");
    }
    Ok(answer)
}
