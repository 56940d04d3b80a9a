//! A quadratic response surface over numeric factors: coefficients, lack of fit, and where its
//! stationary point lies.

use std::collections::BTreeMap;

use kendall_units::{exact_f64, whole_u64};
use nalgebra::{DMatrix, DVector, SymmetricEigen};
use serde::{Deserialize, Serialize};

use super::{AnalysisError, Table};
use crate::distribution::{f_p_value, t_p_value, t_two_sided};
use crate::estimate::{Estimate, Interval};
use crate::sample::sum_of_squares;

/// Factors of a surface: 45 coefficients.
const MOST_FACTORS: usize = 8;

/// Pivots of R below which coefficients cannot be separated.
const RANK_TOLERANCE: f64 = 1e-9;

/// A quadratic surface in coded units: −1 at the lowest, +1 at the highest value of each factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Surface {
    /// Factors with their lowest and highest value.
    pub factors: Vec<(String, f64, f64)>,
    /// Mean at the center, linear, squared and product coefficients.
    pub coefficients: Vec<Coefficient>,
    /// Share of the variation that the surface explains.
    pub r_squared: f64,
    /// Standard deviation of what it leaves, and its degrees of freedom.
    pub error: (f64, u64),
    /// Test of the surface against what runs at the same settings differ by; `None` without such.
    pub lack_of_fit: Option<LackOfFit>,
    /// Where the surface is level.
    pub stationary: Option<Stationary>,
}

/// One coefficient.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Coefficient {
    /// `1`, `workers`, `workers²`, `workers·clients`.
    pub name: String,
    /// In units of the response, for coded factors.
    pub estimate: Estimate,
    /// Probability of so large a coefficient when it is 0.
    pub p_value: f64,
}

/// Whether the surface bends otherwise than a quadratic one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LackOfFit {
    /// Mean square of the lack of fit over that of the pure error.
    pub f_ratio: f64,
    /// Probability of so large a ratio when the surface is right.
    pub p_value: f64,
}

/// What a stationary point is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nature {
    /// The surface falls in all directions.
    Maximum,
    /// It rises in all directions.
    Minimum,
    /// Neither: it rises in one and falls in another.
    Saddle,
}

/// The stationary point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stationary {
    /// Value of each factor, in its own unit.
    pub at: Vec<f64>,
    /// The same, coded.
    pub coded: Vec<f64>,
    /// Response there, by the surface.
    pub response: f64,
    /// Curvatures along the principal axes.
    pub curvatures: Vec<f64>,
    /// What it is.
    pub nature: Nature,
    /// Whether it lies within the values that were measured.
    pub inside: bool,
}

/// Fits a quadratic surface.
///
/// # Errors
/// [`AnalysisError`] for factors that are not numbers, more than eight of them, and runs that do not
/// tell the coefficients apart.
///
/// # Source
/// [Montgomery 2017 §11.1–11.4].
pub fn surface(table: &Table, confidence: f64) -> Result<Surface, AnalysisError> {
    crate::sample::check_confidence(confidence)?;
    let values: Vec<f64> = table.observations.iter().map(|one| one.value).collect();
    crate::sample::check(&values)?;
    let factors = ranges(table)?;
    let coded = coded(table, &factors);
    let names = names(&factors);
    let width = names.len();
    let refuse = AnalysisError::Confounded { cells: distinct(&coded).len() };
    if values.len() <= width {
        return Err(refuse);
    }
    let matrix = DMatrix::from_fn(values.len(), width, |row, column| {
        terms(&coded[row]).get(column).copied().unwrap_or(0.0)
    });
    let observed = DVector::from_column_slice(&values);
    let decomposed = matrix.clone().qr();
    let r = decomposed.r();
    let largest = r.diagonal().iter().fold(0.0_f64, |all, pivot| all.max(pivot.abs()));
    if r.diagonal().iter().any(|pivot| pivot.abs() <= RANK_TOLERANCE * largest) {
        return Err(refuse);
    }
    let Some(inverse) = r.clone().try_inverse() else { return Err(refuse) };
    let solved = &inverse * (decomposed.q().transpose() * &observed);
    let residual = (&observed - &matrix * &solved).norm_squared();
    let degrees = values.len() - width;
    let variance = residual / exact_f64(degrees);
    let t = t_two_sided(confidence, exact_f64(degrees));
    let coefficients: Vec<Coefficient> = names
        .into_iter()
        .enumerate()
        .map(|(index, name)| {
            let deviation = (variance * inverse.row(index).norm_squared()).sqrt();
            let center = solved[index];
            let interval = Interval::around(center, t * deviation, confidence);
            Coefficient {
                name,
                estimate: Estimate::with_interval(center, interval),
                p_value: t_p_value(center / deviation, exact_f64(degrees)),
            }
        })
        .collect();
    let total = sum_of_squares(&values);
    Ok(Surface {
        r_squared: if total > 0.0 { 1.0 - residual / total } else { 1.0 },
        error: (variance.sqrt(), whole_u64(exact_f64(degrees))),
        lack_of_fit: lack_of_fit(&coded, &values, residual, degrees),
        stationary: stationary(&factors, solved.as_slice()),
        factors,
        coefficients,
    })
}

fn ranges(table: &Table) -> Result<Vec<(String, f64, f64)>, AnalysisError> {
    let mut factors = Vec::new();
    for (index, name) in table.factors.iter().enumerate() {
        let mut ends = (f64::INFINITY, f64::NEG_INFINITY);
        for one in &table.observations {
            let text = one.levels.get(index).map_or("", |text| text.trim());
            let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
            let Some(value) = value else {
                return Err(AnalysisError::NoNumber {
                    factor: name.clone(),
                    level: text.to_owned(),
                });
            };
            ends = (ends.0.min(value), ends.1.max(value));
        }
        if ends.1 > ends.0 {
            factors.push((name.clone(), ends.0, ends.1));
        }
    }
    if factors.is_empty() {
        return Err(AnalysisError::NothingVaried { factors: table.factors.join(", ") });
    }
    if factors.len() > MOST_FACTORS {
        let (factor, levels) = ("the surface".to_owned(), factors.len());
        return Err(AnalysisError::TooManyLevels { factor, levels, limit: MOST_FACTORS });
    }
    Ok(factors)
}

fn coded(table: &Table, factors: &[(String, f64, f64)]) -> Vec<Vec<f64>> {
    let columns: Vec<usize> = factors
        .iter()
        .filter_map(|(name, ..)| table.factors.iter().position(|other| other == name))
        .collect();
    let code = |value: f64, low: f64, high: f64| (2.0 * value - low - high) / (high - low);
    table
        .observations
        .iter()
        .map(|one| {
            columns
                .iter()
                .zip(factors)
                .map(|(column, (_, low, high))| {
                    code(one.levels[*column].trim().parse().unwrap_or(f64::NAN), *low, *high)
                })
                .collect()
        })
        .collect()
}

/// 1, the factors, their squares, their products.
fn terms(point: &[f64]) -> Vec<f64> {
    let mut terms = vec![1.0];
    terms.extend(point);
    terms.extend(point.iter().map(|x| x * x));
    for (index, x) in point.iter().enumerate() {
        terms.extend(point[index + 1..].iter().map(|y| x * y));
    }
    terms
}

fn names(factors: &[(String, f64, f64)]) -> Vec<String> {
    let mut names = vec!["1".to_owned()];
    names.extend(factors.iter().map(|factor| factor.0.clone()));
    names.extend(factors.iter().map(|factor| format!("{}²", factor.0)));
    for (index, factor) in factors.iter().enumerate() {
        names.extend(factors[index + 1..].iter().map(|other| format!("{}·{}", factor.0, other.0)));
    }
    names
}

fn distinct(coded: &[Vec<f64>]) -> BTreeMap<Vec<u64>, Vec<usize>> {
    let mut cells: BTreeMap<Vec<u64>, Vec<usize>> = BTreeMap::new();
    for (row, point) in coded.iter().enumerate() {
        cells.entry(point.iter().map(|x| (x + 0.0).to_bits()).collect()).or_default().push(row);
    }
    cells
}

fn lack_of_fit(
    coded: &[Vec<f64>],
    values: &[f64],
    residual: f64,
    degrees: usize,
) -> Option<LackOfFit> {
    let cells = distinct(coded);
    let of = |rows: &Vec<usize>| rows.iter().map(|row| values[*row]).collect::<Vec<f64>>();
    let pure: f64 = cells.values().map(|rows| sum_of_squares(&of(rows))).sum();
    let pure_degrees = values.len() - cells.len();
    let lack_degrees = degrees.checked_sub(pure_degrees).filter(|left| *left > 0)?;
    if pure_degrees == 0 || pure <= 0.0 {
        return None;
    }
    let (a, b) = (exact_f64(lack_degrees), exact_f64(pure_degrees));
    let f_ratio = ((residual - pure).max(0.0) / a) / (pure / b);
    Some(LackOfFit { f_ratio, p_value: f_p_value(f_ratio, a, b) })
}

/// x = −½ B⁻¹ b, with the curvatures as B's eigenvalues.
fn stationary(factors: &[(String, f64, f64)], coefficients: &[f64]) -> Option<Stationary> {
    let count = factors.len();
    let linear = DVector::from_column_slice(&coefficients[1..=count]);
    let mut second = DMatrix::zeros(count, count);
    let mut at = 1 + 2 * count;
    for a in 0..count {
        second[(a, a)] = coefficients[1 + count + a];
        for b in a + 1..count {
            second[(a, b)] = coefficients[at] / 2.0;
            second[(b, a)] = coefficients[at] / 2.0;
            at += 1;
        }
    }
    let solved = second.clone().lu().solve(&linear)? * -0.5;
    if !solved.iter().all(|x| x.is_finite()) {
        return None;
    }
    let mut curvatures: Vec<f64> =
        SymmetricEigen::new(second).eigenvalues.iter().copied().collect();
    curvatures.sort_by(f64::total_cmp);
    let nature = if curvatures.iter().all(|c| *c < 0.0) {
        Nature::Maximum
    } else if curvatures.iter().all(|c| *c > 0.0) {
        Nature::Minimum
    } else {
        Nature::Saddle
    };
    let coded: Vec<f64> = solved.iter().copied().collect();
    let value = |x: &f64, low: f64, high: f64| f64::midpoint(low, high) + x * (high - low) / 2.0;
    Some(Stationary {
        at: coded.iter().zip(factors).map(|(x, (_, low, high))| value(x, *low, *high)).collect(),
        response: coefficients[0] + linear.dot(&solved) / 2.0,
        curvatures,
        nature,
        inside: coded.iter().all(|x| x.abs() <= 1.0),
        coded,
    })
}
