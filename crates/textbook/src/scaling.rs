//! The scalability law: with known coefficients, or from measurements.

use kendall_keys::{Form, Key, Section};
use kendall_queueing::scalability::{Coefficient, Noise, Options, Prediction, Usl, fit, gustafson};

use crate::fields::{CONFIDENCE, entries_for, need};
use crate::{Answer, Case, TextbookError};

pub(crate) const KEYS: &[Key] = &[
    Key::new("n", Form::Either(&[Form::Number, Form::Numbers]), "load, or a list").optional(),
    Key::new("throughput_per_s", Form::Numbers, "measured at each load of `n`").optional(),
    Key::new("predict_n", Form::Numbers, "loads to predict").optional(),
    Key::number("alpha", "contention; the serial share of amdahl and gustafson"),
    Key::number("beta", "coherency; 0 unless given"),
    Key::number("gamma", "throughput of one; of a fit: fixed, where it is given"),
    Key::flag("unbounded", "of a fit: alpha and beta may be below 0, as R's `nls` lets them")
        .or("false"),
    Key::choice(
        "noise",
        &["auto", "constant", "proportional"],
        "of a fit: how errors grow with the throughput",
    )
    .or("'auto'"),
    CONFIDENCE,
];

pub(crate) fn solve(mut case: Case<'_>) -> Result<Answer, TextbookError> {
    let kind = case.kind;
    let section = &mut case.section;
    let fits = kind == "usl-fit" || kind == "amdahl" && section.has("throughput_per_s");
    let wrong: &[&str] = match kind {
        _ if fits => &["alpha", "beta"],
        "usl" => &["throughput_per_s", "predict_n", "confidence", "unbounded", "noise"],
        _ => &["throughput_per_s", "predict_n", "confidence", "unbounded", "noise", "beta"],
    };
    if let Some(key) = wrong.iter().find(|key| section.has(key)) {
        return Err(section.problem(key, format!("is not a key of `{kind}`")).into());
    }
    let loads = section.numbers("n")?;
    if fits { fitted(kind, loads, section) } else { law(kind, loads, section) }
}

fn fitted(
    kind: &str,
    loads: Option<Vec<f64>>,
    section: &mut Section<'_>,
) -> Result<Answer, TextbookError> {
    let Some(loads) = loads else { return Err(TextbookError::missing("n", "a list of loads")) };
    let Some(throughput) = section.numbers("throughput_per_s")? else {
        return Err(TextbookError::missing("throughput_per_s", "one for each load"));
    };
    if loads.len() != throughput.len() {
        let what = entries_for(throughput.len(), loads.len(), "load");
        return Err(section.problem("throughput_per_s", what).into());
    }
    let measured: Vec<(f64, f64)> = loads.into_iter().zip(throughput).collect();
    let options = Options {
        gamma: section.number("gamma")?,
        amdahl: kind == "amdahl",
        unbounded: section.flag("unbounded")?,
        noise: match section.text("noise")?.as_str() {
            "constant" => Noise::Constant,
            "proportional" => Noise::Proportional,
            _ => Noise::Auto,
        },
        confidence: section.number("confidence")?.unwrap_or(0.95),
    };
    let fit = fit(&measured, &options)?;
    let mut answer = Answer::new("universal scalability law, least squares", "estimate");
    for (name, value, unit) in
        [("alpha", &fit.alpha, "1"), ("beta", &fit.beta, "1"), ("gamma", &fit.gamma, "1/s")]
    {
        coefficient(&mut answer, name, value, unit, fit.confidence);
    }
    answer.number("residual_standard_error", fit.residual_standard_error, "1/s");
    answer.number("r_squared", fit.r_squared, "1");
    shape(&mut answer, &fit.usl);
    answer.list("residuals", fit.residuals.clone(), "1/s");
    let degrees = u64::try_from(fit.degrees_of_freedom).unwrap_or(u64::MAX);
    answer.number("degrees_of_freedom", kendall_units::exact_f64(degrees), "1");
    if let Some(at) = section.numbers("predict_n")? {
        let found = at.iter().map(|n| fit.predict(*n)).collect::<Result<Vec<_>, _>>()?;
        let list = |of: fn(&Prediction) -> f64| found.iter().map(of).collect::<Vec<f64>>();
        answer.list("predictions", list(|p| p.throughput), "1/s");
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
    answer.maybe("peak_n", usl.peak_load(), "users");
    answer.maybe("peak_throughput", usl.peak_throughput(), "1/s");
    answer.maybe("amdahl_limit", usl.limit(), "1/s");
    answer.maybe("optimal_n", usl.optimal_load(), "users");
}

fn law(
    kind: &str,
    loads: Option<Vec<f64>>,
    section: &mut Section<'_>,
) -> Result<Answer, TextbookError> {
    let usl = Usl {
        alpha: need(section, "alpha")?,
        beta: section.number("beta")?.unwrap_or(0.0),
        gamma: section.number("gamma")?.unwrap_or(1.0),
    };
    for (name, value, fits) in [
        ("alpha", usl.alpha, usl.alpha >= 0.0),
        ("beta", usl.beta, usl.beta >= 0.0),
        ("gamma", usl.gamma, usl.gamma > 0.0),
    ] {
        if !fits {
            let what = format!("`{value}` is not 0 or above (gamma above 0)");
            return Err(section.problem(name, what).into());
        }
    }
    let mut answer = Answer::new("universal scalability law", "exact");
    let throughput = |n: f64| match kind {
        "gustafson" => usl.gamma * gustafson(n, usl.alpha),
        _ => usl.throughput(n),
    };
    if kind != "gustafson" {
        shape(&mut answer, &usl);
    }
    let Some(loads) = loads else { return Ok(answer) };
    if let Some(bad) = loads.iter().find(|n| **n <= 0.0) {
        return Err(section.problem("n", format!("`{bad}` is not above 0")).into());
    }
    let alone = !matches!(section.raw("n"), Some(toml::Value::Array(_)));
    let mut put = |name: &str, of: &dyn Fn(f64) -> f64, unit: &str| {
        if alone {
            answer.number(name, of(loads[0]), unit);
        } else {
            answer.list(name, loads.iter().map(|n| of(*n)).collect(), unit);
        }
    };
    put("throughput", &throughput, "1/s");
    put("relative_capacity", &|n| throughput(n) / usl.gamma, "1");
    put("efficiency", &|n| throughput(n) / (usl.gamma * n), "1");
    put("mean_response", &|n| n / throughput(n), "s");
    Ok(answer)
}
