//! A Markovian arrival process that has the moments and the correlations of a trace.

use kendall_units::exact_f64;
use serde::Serialize;

use super::Distribution;

/// Fewest times for a fit: correlations of fewer are mostly chance.
const FEWEST: usize = 100;
/// Most lags that the decay of the correlations is fitted to.
const MOST_LAGS: usize = 100;
/// Lags that are reported.
const REPORTED: [usize; 5] = [1, 2, 5, 10, 50];

/// What was fitted, beside what was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MapFit {
    /// How many times.
    pub count: usize,
    /// Mean, in s.
    pub mean_s: f64,
    /// Squared coefficient of variation.
    pub scv: f64,
    /// E\[T³\] in s³: of the times, and of the fit.
    pub third_moment_s3: (f64, f64),
    /// Correlation of a time with a later one: lag, of the times, of the fit.
    pub correlations: Vec<(usize, f64, f64)>,
    /// By which factor correlations of the fit fall from lag to lag.
    pub decay: f64,
    /// What the fit does not have that the times have.
    pub missing: Vec<String>,
    /// The distribution of a model file.
    pub distribution: String,
    /// The fit.
    #[serde(skip)]
    pub process: Distribution,
}

/// Times that no process can be fitted to; an `index` counts from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum MapFitError {
    #[error("{count} times are too few for their correlations; at least {FEWEST} are needed")]
    TooFew { count: usize },
    #[error(
        "time {index} is {}; it must be a finite number, 0 or above",
        kendall_units::echo(value)
    )]
    NoTime { index: usize, value: f64 },
    #[error(
        "the times hardly vary (squared coefficient of variation {scv:.4}, at least 0.01 is needed): \
         use a deterministic or an empirical distribution"
    )]
    NoSpread { scv: f64 },
}

/// Fits a process of two phases, in the order in which times were measured: their mean, spread and
/// (where two exponential branches can have it) third moment, and correlations that fall
/// geometrically. Times that vary less than exponential ones become equal stages without correlation.
///
/// # Errors
/// [`MapFitError`] for fewer than 100 times, one that is not a time, or times that hardly vary.
///
/// # Source
/// Branches by three moments: Whitt 1982. The branch of a time is that of the one before with
/// probability γ, else drawn anew: Mitchell, van de Liefvoort 2003; correlations are γᵏ(c² − 1)/(2c²), and γ
/// is that of least squares over the lags.
///
/// # Example
/// ```
/// use kendall_queueing::{Distribution, distribution::fit_map, simulation::draw};
/// let switched = Distribution::mmpp(&[9.0, 1.0], &[vec![0.0, 0.1], vec![0.1, 0.0]]).unwrap();
/// let fit = fit_map(&draw(&switched, 1, 20_000)).unwrap();
/// assert!((fit.process.mean() * 5.0 - 1.0).abs() < 0.2);
/// ```
pub fn fit_map(times: &[f64]) -> Result<MapFit, MapFitError> {
    let count = times.len();
    if count < FEWEST {
        return Err(MapFitError::TooFew { count });
    }
    let odd = times.iter().position(|t| !(t.is_finite() && *t >= 0.0));
    if let Some(index) = odd {
        return Err(MapFitError::NoTime { index, value: times[index] });
    }
    let moment = |k: i32| times.iter().map(|t| t.powi(k)).sum::<f64>() / exact_f64(count);
    let (mean, second, third) = (moment(1), moment(2), moment(3));
    let scv = second / (mean * mean) - 1.0;
    if mean <= 0.0 || scv.is_nan() || scv < 0.01 {
        return Err(MapFitError::NoSpread { scv: if scv.is_nan() { 0.0 } else { scv } });
    }
    let lags = MOST_LAGS.min(count / 10);
    let measured = correlations(times, mean, lags);
    let noise = 2.0 / exact_f64(count).sqrt();
    let mut missing = Vec::new();
    let failed = |_| MapFitError::NoSpread { scv };
    let (process, decay) = if scv > 1.0 + 1e-9 {
        let (p, first, other) = branches([mean, second, third]).unwrap_or_else(|| {
            missing.push("the third moment: two exponential branches cannot have it".to_owned());
            let p = f64::midpoint(1.0, ((scv - 1.0) / (scv + 1.0)).sqrt());
            (p, mean / (2.0 * p), mean / (2.0 * (1.0 - p)))
        });
        let most = (scv - 1.0) / (2.0 * scv);
        let decay = if measured[0] > noise { decay(&measured, most) } else { 0.0 };
        if measured[0] > most + noise {
            missing.push(format!(
                "correlation at lag 1 of {:.3}: this process reaches {most:.3}",
                measured[0]
            ));
        }
        (correlated((p, first, other), decay).map_err(failed)?, decay)
    } else {
        (Distribution::phases_of_moments(mean, scv).map_err(failed)?, 0.0)
    };
    if measured[0] < -noise || (scv <= 1.0 && measured[0] > noise) {
        missing.push(format!(
            "correlation at lag 1 of {:.3}: times that vary less than exponential ones, or \
             alternate, are fitted without",
            measured[0]
        ));
    }
    let own = process.process();
    let of_fit = |lag: usize| {
        let lag = u32::try_from(lag).ok()?;
        own.as_ref()?.correlation(lag)
    };
    let reported = REPORTED.into_iter().filter(|lag| *lag <= lags);
    Ok(MapFit {
        count,
        mean_s: mean,
        scv,
        third_moment_s3: (third, process.moment(3).unwrap_or(f64::NAN)),
        correlations: reported
            .map(|lag| (lag, measured[lag - 1], of_fit(lag).unwrap_or(0.0)))
            .collect(),
        decay,
        missing,
        distribution: written(&process),
        process,
    })
}

/// Sample correlations at lags 1 to `lags`.
fn correlations(times: &[f64], mean: f64, lags: usize) -> Vec<f64> {
    let all: f64 = times.iter().map(|t| (t - mean).powi(2)).sum();
    let at = |lag: usize| -> f64 {
        times.iter().zip(&times[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    (1..=lags).map(|lag| at(lag) / all).collect()
}

/// Probability and mean of one exponential branch, and the mean of the other, with these moments.
fn branches([m1, m2, m3]: [f64; 3]) -> Option<(f64, f64, f64)> {
    let (x, y) = (m1 * m3 - 1.5 * m2 * m2, m2 - 2.0 * m1 * m1);
    let root = (x + 1.5 * y * y - 3.0 * m1 * m1 * y).powi(2) + 18.0 * m1 * m1 * y.powi(3);
    let sum = x + 1.5 * y * y + 3.0 * m1 * m1 * y;
    let (long, short) =
        ((sum + root.sqrt()) / (6.0 * m1 * y), (sum - root.sqrt()) / (6.0 * m1 * y));
    let p = (m1 - short) / (long - short);
    let fits = x > 0.0 && y > 0.0 && short > 1e-9 * m1 && p > 1e-9 && p < 1.0;
    fits.then_some((p, long, short))
}

/// γ of least squares between γᵏ·most and the measured correlations.
fn decay(measured: &[f64], most: f64) -> f64 {
    let error = |decay: f64| -> f64 {
        let mut fitted = most;
        let squares = measured.iter().map(|have| {
            fitted *= decay;
            (have - fitted).powi(2)
        });
        squares.sum()
    };
    // The error has one valley in ln(1 − γ) but for noise: a fine search, then thirds of its cell.
    let at = |i: f64| -(-i / 40.0).exp_m1();
    let best = (0..=400_u32)
        .min_by(|a, b| error(at(f64::from(*a))).total_cmp(&error(at(f64::from(*b)))))
        .map_or(0.0, f64::from);
    let (mut low, mut high) = ((best - 1.0).max(0.0), best + 1.0);
    for _ in 0..60 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if error(at(a)) < error(at(b)) { high = b } else { low = a }
    }
    at(f64::midpoint(low, high)).min(0.9999)
}

/// Two exponential branches; the next time is of the same branch with probability γ, else drawn anew.
fn correlated(
    (p, first, other): (f64, f64, f64),
    decay: f64,
) -> Result<Distribution, super::DistributionError> {
    let (rates, shares) = ([1.0 / first, 1.0 / other], [p, 1.0 - p]);
    let hidden = vec![vec![-rates[0], 0.0], vec![0.0, -rates[1]]];
    if decay <= 0.0 {
        return Distribution::phase_type(shares.to_vec(), hidden);
    }
    let row = |i: usize| -> Vec<f64> {
        let stays = |j: usize| if i == j { decay } else { 0.0 };
        (0..2).map(|j| rates[i] * ((1.0 - decay) * shares[j] + stays(j))).collect()
    };
    Distribution::map(hidden, vec![row(0), row(1)])
}

/// As a model file has it.
fn written(process: &Distribution) -> String {
    let list = |values: &[f64]| {
        let each: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        format!("[{}]", each.join(", "))
    };
    let rows = |rows: &[Vec<f64>]| {
        let each: Vec<String> = rows.iter().map(|row| list(row)).collect();
        format!("[{}]", each.join(", "))
    };
    match process {
        Distribution::Map { hidden, marked } => {
            let (d0, d1) = (rows(hidden), rows(marked));
            format!("{{ distribution = \"map\", d0 = {d0}, d1 = {d1} }}")
        }
        Distribution::PhaseType { initial, generator } => {
            let (initial, generator) = (list(initial), rows(generator));
            format!(
                "{{ distribution = \"phase-type\", initial = {initial}, generator = {generator} }}"
            )
        }
        other => format!("{{ distribution = \"exponential\", mean_s = {:?} }}", other.mean()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::draw;

    /// A process of the fitted kind is found again from its own times.
    #[test]
    fn a_process_of_this_kind_is_found_again() {
        for (p, first, other, decay) in [(0.2, 4.0, 0.25, 0.8), (0.5, 1.8, 0.2, 0.95)] {
            let truth = correlated((p, first, other), decay).unwrap();
            let fit = fit_map(&draw(&truth, 3, 400_000)).unwrap();
            // Correlated times have a wider standard error: by about √(1 + 2·Σρ).
            assert!((fit.process.mean() / truth.mean() - 1.0).abs() < 0.03, "{fit:?}");
            assert!((fit.process.scv() / truth.scv() - 1.0).abs() < 0.05, "{fit:?}");
            assert!((fit.decay - decay).abs() < 0.03, "{fit:?}");
            assert!((fit.process.mean() / fit.mean_s - 1.0).abs() < 1e-9);
            assert!((fit.process.scv() / fit.scv - 1.0).abs() < 1e-9);
            let (_, measured, fitted) = fit.correlations[0];
            assert!((measured - fitted).abs() < 0.03, "{fit:?}");
            assert!(fit.missing.is_empty(), "{fit:?}");
        }
    }

    #[test]
    fn regular_times_are_fitted_without_correlation_and_say_so() {
        let times: Vec<f64> = (0..1_000).map(|i| if i % 10 < 5 { 0.8 } else { 1.2 }).collect();
        let fit = fit_map(&times).unwrap();
        assert!(fit.process.is_independent() && (fit.process.scv() - fit.scv).abs() < 1e-9);
        assert_eq!(fit.missing.len(), 1, "{:?}", fit.missing);
        assert!(fit.distribution.contains("phase-type"));
    }

    #[test]
    fn what_cannot_be_fitted_is_refused() {
        assert!(fit_map(&[1.0; 20]).unwrap_err().to_string().contains("too few"));
        assert!(fit_map(&[1.0; 200]).unwrap_err().to_string().contains("hardly vary"));
        assert!(fit_map(&[0.0; 200]).unwrap_err().to_string().contains("hardly vary"));
        let mut times = vec![1.0; 200];
        times[7] = -1.0;
        assert!(fit_map(&times).unwrap_err().to_string().contains("time 7 is -1"));
        times[7] = f64::NAN;
        assert!(fit_map(&times).is_err());
    }
}
