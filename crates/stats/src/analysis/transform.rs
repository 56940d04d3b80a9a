//! Whether effects add or multiply.

use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

use super::fit::choose_terms;
use super::layout::{Layout, Rows};
use super::linear::Matrix;
use super::{AnalysisError, Model};

/// Ratio of the largest to the smallest response from which Jain advises the logarithm.
const WIDE_RANGE: f64 = 10.0;

/// 95 % point of χ² with one degree of freedom: how far the likelihood may fall.
const LIKELIHOOD_DROP: f64 = 3.841_458_8;

/// Powers that are tried: −2 to 2 in steps of 0.05.
const STEPS: i32 = 40;

/// Likelihood of the power to which the response should be raised; 0 is the logarithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoxCox {
    /// The most likely power.
    pub power: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Power and error sum of squares, in the unit of the response.
    pub profile: Vec<(f64, f64)>,
}

/// Which model fits, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The model.
    pub model: Model,
    /// In words, with the figures.
    pub reasons: Vec<String>,
    /// Largest over smallest response; `None` when not all are positive.
    pub range_ratio: Option<f64>,
    /// Likelihood of powers, where there is an error to judge by.
    pub box_cox: Option<BoxCox>,
}

/// Recommends the multiplicative model when the logarithm is likely and the identity is not, and
/// when the responses range over a factor of ten with nothing against it.
///
/// Source: [Jain91 §18.8] for the range and the physics; Box, Cox 1964 for the power.
pub(super) fn recommend(layout: &Layout, rows: &Rows) -> Result<Recommendation, AnalysisError> {
    let smallest = rows.values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = rows.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if smallest <= 0.0 || layout.center_points.iter().any(|value| *value <= 0.0) {
        let reasons = vec!["not all responses are positive, so they have no logarithm".to_owned()];
        return Ok(Recommendation {
            model: Model::Additive,
            reasons,
            range_ratio: None,
            box_cox: None,
        });
    }
    let ratio = largest / smallest;
    let wide = ratio >= WIDE_RANGE;
    let mut reasons = vec![format!(
        "largest over smallest response: {ratio:.1} ({} {WIDE_RANGE})",
        if wide { "at least" } else { "below" }
    )];
    let box_cox = judging_matrix(layout, rows)?.and_then(|matrix| profile(&matrix, &rows.values));
    let model = match &box_cox {
        Some(found) => {
            let within = |power: f64| found.low <= power && power <= found.high;
            reasons.push(format!(
                "Box–Cox: the response to the power {:.2} fits best (95 %: {:.2} to {:.2}); the \
                 logarithm (0) is {}, the response itself (1) is {}",
                found.power,
                found.low,
                found.high,
                likely(within(0.0)),
                likely(within(1.0)),
            ));
            match (within(0.0), within(1.0)) {
                (true, false) => Model::Multiplicative,
                (true, true) if wide => Model::Multiplicative,
                (false, false) if wide && found.power.abs() < (found.power - 1.0).abs() => {
                    Model::Multiplicative
                }
                _ => Model::Additive,
            }
        }
        None => {
            reasons.push("no error to judge powers by".to_owned());
            if wide { Model::Multiplicative } else { Model::Additive }
        }
    };
    if let (Model::Additive, Some(found)) = (model, &box_cox) {
        let allowed = found.low <= 1.0 && 1.0 <= found.high;
        reasons.push(if allowed {
            "the additive model is the simpler one that the data allow".to_owned()
        } else {
            format!(
                "neither the response nor its logarithm fits: the additive model is used for want \
                 of a better one; a power of {:.2} would fit",
                found.power
            )
        });
    }
    Ok(Recommendation { model, reasons, range_ratio: Some(ratio), box_cox })
}

fn likely(is_likely: bool) -> &'static str {
    if is_likely { "likely" } else { "unlikely" }
}

/// The terms of the fit, or main effects alone where those leave no error.
fn judging_matrix(layout: &Layout, rows: &Rows) -> Result<Option<Matrix>, AnalysisError> {
    let (mut matrix, _) = choose_terms(layout, rows)?;
    let count = rows.values.len();
    if matrix.width() >= count {
        while matrix.groups.last().is_some_and(|group| group.factors.len() > 1) {
            matrix.pop();
        }
    }
    Ok((matrix.width() + 3 <= count).then_some(matrix))
}

fn profile(matrix: &Matrix, values: &[f64]) -> Option<BoxCox> {
    let count = exact_f64(values.len());
    let geometric = (values.iter().map(|value| value.ln()).sum::<f64>() / count).exp();
    let error = |power: f64| {
        let transformed: Vec<f64> = values
            .iter()
            .map(|value| {
                // Scaled by the geometric mean first, so that large powers do not overflow.
                let scaled = value / geometric;
                if power == 0.0 {
                    geometric * scaled.ln()
                } else {
                    geometric * (scaled.powf(power) - 1.0) / power
                }
            })
            .collect();
        matrix.solve(&transformed).error_sum_of_squares
    };
    let profile: Vec<(f64, f64)> = (-STEPS..=STEPS)
        .map(|step| {
            let power = f64::from(step) / 20.0;
            (power, error(power))
        })
        .filter(|(_, error)| error.is_finite())
        .collect();
    let (power, least) =
        profile.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).filter(|best| best.1 > 0.0)?;
    // −2 log likelihood is n·ln(SSE) up to a constant, with the residual degrees of freedom for n,
    // which keeps the interval honest when terms are many.
    let degrees = count - exact_f64(matrix.width());
    let inside: Vec<f64> = profile
        .iter()
        .filter(|(_, error)| degrees * (error / least).ln() <= LIKELIHOOD_DROP)
        .map(|(power, _)| *power)
        .collect();
    Some(BoxCox { power, low: *inside.first()?, high: *inside.last()?, profile })
}
