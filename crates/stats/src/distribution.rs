//! Quantiles and tail probabilities of Student's t, F, χ² and the normal distribution.
//!
//! Thin: `statrs` does the numerics; here degrees of freedom are checked once, and the normal
//! distribution stands in where t has no use for them (infinite degrees of freedom).

use statrs::distribution::{ChiSquared, ContinuousCDF, FisherSnedecor, Normal, StudentsT};

/// Degrees of freedom beyond which t and the normal distribution agree to 1e-6.
const NORMAL_FROM: f64 = 1e6;

fn normal() -> Normal {
    Normal::new(0.0, 1.0).expect("a standard deviation of 1 is positive")
}

/// z with P(Z ≤ z) = `probability`.
#[must_use]
pub fn normal_quantile(probability: f64) -> f64 {
    normal().inverse_cdf(probability.clamp(0.0, 1.0))
}

/// P(Z ≤ z).
#[must_use]
pub fn normal_cdf(z: f64) -> f64 {
    normal().cdf(z)
}

/// Two-sided probability of a standard normal value at least so far from 0.
#[must_use]
pub fn normal_two_sided(z: f64) -> f64 {
    (2.0 * normal().sf(z.abs())).min(1.0)
}

/// t with P(T ≤ t) = `probability`, for `degrees` > 0; the normal quantile for very many.
///
/// # Example
/// ```
/// let t = kendall_stats::distribution::t_quantile(0.975, 16.0);
/// assert!((t - 2.1199).abs() < 5e-5);
/// ```
#[must_use]
pub fn t_quantile(probability: f64, degrees: f64) -> f64 {
    if degrees >= NORMAL_FROM {
        return normal_quantile(probability);
    }
    StudentsT::new(0.0, 1.0, degrees)
        .map_or(f64::NAN, |t| t.inverse_cdf(probability.clamp(0.0, 1.0)))
}

/// t for a two-sided interval of `confidence`.
#[must_use]
pub fn t_two_sided(confidence: f64, degrees: f64) -> f64 {
    t_quantile(f64::midpoint(1.0, confidence), degrees)
}

/// Two-sided probability of a t value at least so far from 0.
#[must_use]
pub fn t_p_value(t: f64, degrees: f64) -> f64 {
    if degrees >= NORMAL_FROM {
        return normal_two_sided(t);
    }
    StudentsT::new(0.0, 1.0, degrees)
        .map_or(f64::NAN, |distribution| (2.0 * distribution.sf(t.abs())).min(1.0))
}

/// Probability that an F ratio with these degrees of freedom is at least `f`.
#[must_use]
pub fn f_p_value(f: f64, numerator: f64, denominator: f64) -> f64 {
    if f.is_infinite() && f > 0.0 {
        return 0.0;
    }
    FisherSnedecor::new(numerator, denominator).map_or(f64::NAN, |d| d.sf(f.max(0.0)))
}

/// F with P(F ≤ f) = `probability`.
#[must_use]
pub fn f_quantile(probability: f64, numerator: f64, denominator: f64) -> f64 {
    FisherSnedecor::new(numerator, denominator)
        .map_or(f64::NAN, |d| d.inverse_cdf(probability.clamp(0.0, 1.0)))
}

/// Probability that χ² with `degrees` degrees of freedom is at least `value`.
#[must_use]
pub fn chi_squared_p_value(value: f64, degrees: f64) -> f64 {
    ChiSquared::new(degrees).map_or(f64::NAN, |d| d.sf(value.max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the usual tables, to their printed digits.
    #[test]
    fn quantiles_agree_with_the_tables() {
        for (value, printed, digit) in [
            (t_quantile(0.975, 1.0), 12.706, 5e-4),
            (t_quantile(0.95, 8.0), 1.860, 5e-4),
            (t_quantile(0.975, 2.0), 4.303, 5e-4),
            (t_quantile(0.995, 30.0), 2.750, 5e-4),
            (t_quantile(0.975, 1e5), 1.960, 5e-4),
            (normal_quantile(0.975), 1.959_964, 5e-7),
            (f_quantile(0.95, 3.0, 12.0), 3.490, 5e-4),
            (f_p_value(3.490_295, 3.0, 12.0), 0.05, 5e-7),
            (chi_squared_p_value(3.841_459, 1.0), 0.05, 5e-7),
            (t_p_value(2.119_905, 16.0), 0.05, 5e-7),
        ] {
            assert!((value - printed).abs() <= digit, "{value} is not {printed}");
        }
    }

    #[test]
    fn no_degrees_of_freedom_give_no_number() {
        assert!(t_quantile(0.975, 0.0).is_nan());
        assert!(f_p_value(1.0, 0.0, 3.0).is_nan());
    }
}
