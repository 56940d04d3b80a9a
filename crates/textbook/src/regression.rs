//! Demands from utilizations and throughputs.

use kendall_fit::demands::{LoadPoint, MOST_UTILIZATION, Options, Weighting, regress_weighted};
use kendall_keys::{Form, Key, Section};

use crate::fields::{CONFIDENCE, entries_for, rows};
use crate::{Answer, Case, TextbookError};

pub(crate) const KEYS: &[Key] = &[
    Key::new("utilization", Form::Numbers, "one a load point").optional(),
    Key::new(
        "busy_servers",
        Form::Numbers,
        "instead: the mean number of busy servers, of any size",
    )
    .optional(),
    Key::new(
        "throughput_per_s",
        Form::Special("a list by load point of numbers, or of lists by class"),
        "measured at each load point",
    ),
    Key::number("servers", "m; 1 unless given"),
    Key::new("weights", Form::Numbers, "how much each load point counts").optional(),
    Key::flag("robust", "whether load points far off the others count less (Huber)").or("false"),
    Key::flag("background", "whether something is busy without load").or("false"),
    CONFIDENCE,
];

/// Utilizations, and of how many servers.
fn busy(section: &mut Section<'_>) -> Result<(Vec<f64>, f64), TextbookError> {
    let servers = section.number("servers")?;
    let shares = section.numbers("utilization")?;
    let Some(busy) = section.numbers("busy_servers")? else {
        let shares = shares.ok_or_else(|| {
            TextbookError::missing("utilization", "a number for each load point (or busy_servers)")
        })?;
        if let Some(most) = shares.iter().find(|share| **share > MOST_UTILIZATION) {
            let what = format!(
                "has {most}, more than a full server: shares go to 1 (is it in percent?); write the \
                 mean number of busy servers as `busy_servers`"
            );
            return Err(section.problem("utilization", what).into());
        }
        return Ok((shares, servers.unwrap_or(1.0)));
    };
    if let Some(key) = ["utilization", "servers"].into_iter().find(|key| section.has(key)) {
        return Err(section.problem(key, "is beside busy_servers: leave it out").into());
    }
    // As shares of as many servers as were busy at most.
    let servers = busy.iter().copied().fold(1.0, f64::max);
    Ok((busy.into_iter().map(|busy| busy / servers).collect(), servers))
}

/// U·m = Σ D·X (+ D₀): `utilization` or `busy_servers` by load point, `throughput_per_s` by load point (and class).
pub(crate) fn solve(mut case: Case<'_>) -> Result<Answer, TextbookError> {
    let section = &mut case.section;
    let (busy, servers) = busy(section)?;
    let Some(rates) = rows(section, "throughput_per_s")? else {
        return Err(TextbookError::missing("throughput_per_s", "a list by load point"));
    };
    if rates.len() != busy.len() {
        let what = entries_for(rates.len(), busy.len(), "load point");
        return Err(section.problem("throughput_per_s", what).into());
    }
    let points: Vec<LoadPoint> = busy
        .into_iter()
        .zip(rates)
        .map(|(utilization, throughputs_per_s)| LoadPoint { utilization, throughputs_per_s })
        .collect();
    let options = Options {
        servers,
        background: section.flag("background")?,
        confidence: section.number("confidence")?.unwrap_or(0.95),
    };
    let weighting = match (section.numbers("weights")?, section.flag("robust")?) {
        (Some(_), true) => {
            return Err(section.problem("robust", "is beside weights: write one of them").into());
        }
        (Some(weights), false) => Weighting::Given(weights),
        (None, true) => Weighting::Robust,
        (None, false) => Weighting::Equal,
    };
    let fit = regress_weighted(&points, &weighting, &options)?;
    let mut answer = Answer::new("utilization regression, no negative demand", "estimate");
    let found: Vec<f64> = fit.demands.iter().map(|demand| demand.estimate.center).collect();
    answer.list("service_demand", found, "s");
    let errors: Option<Vec<f64>> = fit.demands.iter().map(|d| d.standard_error).collect();
    if let Some(errors) = errors {
        answer.list("service_demand_se", errors, "s");
    }
    if let Some(background) = &fit.background {
        answer.number("background", background.estimate.center, "servers");
    }
    if !fit.weights.is_empty() {
        answer.list("weights", fit.weights.clone(), "1");
    }
    answer.maybe("r_squared", fit.r_squared, "1");
    answer.number("condition_number", fit.condition_number, "1");
    Ok(answer)
}
