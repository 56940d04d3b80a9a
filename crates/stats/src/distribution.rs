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

/// Probability that χ² with `degrees` degrees of freedom is at least `value`.
#[must_use]
pub fn chi_squared_p_value(value: f64, degrees: f64) -> f64 {
    ChiSquared::new(degrees).map_or(f64::NAN, |d| d.sf(value.max(0.0)))
}

/// Probability that the range of `groups` independent normal values, over an independent estimate
/// of their standard deviation with `degrees` degrees of freedom, is at least `range`: Tukey's
/// studentized range. NaN for fewer than two groups or no degrees of freedom.
///
/// # Source
/// Tukey 1953; the double integral by Simpson's rule, as in Copenhaver, Holland 1988 (1e-6).
#[must_use]
pub fn studentized_range_p_value(range: f64, groups: u32, degrees: f64) -> f64 {
    if groups < 2 || degrees <= 0.0 || range.is_nan() {
        return f64::NAN;
    }
    if range <= 0.0 {
        return 1.0;
    }
    if degrees >= NORMAL_FROM {
        return 1.0 - range_cdf(range, groups);
    }
    // Density of s = √(χ²/degrees), up to a factor that the second sum divides out.
    let half = degrees / 2.0;
    let density = |s: f64| ((degrees - 1.0) * s.ln() + half * (1.0 - s * s)).exp();
    let width = 8.0 / (2.0 * degrees).sqrt();
    let (low, high) = ((1.0 - width).max(1e-6), 1.0 + width.max(0.5) * 1.5);
    const STEPS: u32 = 120;
    let step = (high - low) / f64::from(STEPS);
    let (mut inside, mut all) = (0.0, 0.0);
    for index in 0..=STEPS {
        let s = low + step * f64::from(index);
        let weight = density(s) * simpson(index, STEPS);
        inside += weight * range_cdf(range * s, groups);
        all += weight;
    }
    (1.0 - inside / all).clamp(0.0, 1.0)
}

/// The range that is reached with probability 1 − `confidence`, by bisection.
#[must_use]
pub fn studentized_range_quantile(confidence: f64, groups: u32, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, 4.0);
    while studentized_range_p_value(high, groups, degrees) > 1.0 - confidence && high < 1e4 {
        high *= 2.0;
    }
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if studentized_range_p_value(middle, groups, degrees) > 1.0 - confidence {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// P(range of k standard normal values ≤ w) = k ∫ φ(z)·(Φ(z) − Φ(z − w))^(k−1) dz.
fn range_cdf(w: f64, groups: u32) -> f64 {
    const STEPS: u32 = 160;
    let power = i32::try_from(groups - 1).unwrap_or(i32::MAX);
    let step = 16.0 / f64::from(STEPS);
    let sum: f64 = (0..=STEPS)
        .map(|index| {
            let z = -8.0 + step * f64::from(index);
            let inside = (normal_cdf(z) - normal_cdf(z - w)).max(0.0).powi(power);
            simpson(index, STEPS) * (-z * z / 2.0).exp() * inside
        })
        .sum();
    (f64::from(groups) * sum * step / 3.0 / std::f64::consts::TAU.sqrt()).min(1.0)
}

fn simpson(index: u32, steps: u32) -> f64 {
    if index == 0 || index == steps {
        1.0
    } else if index % 2 == 1 {
        4.0
    } else {
        2.0
    }
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
            (f_p_value(3.490_295, 3.0, 12.0), 0.05, 5e-7),
            (chi_squared_p_value(3.841_459, 1.0), 0.05, 5e-7),
            (t_p_value(2.119_905, 16.0), 0.05, 5e-7),
        ] {
            assert!((value - printed).abs() <= digit, "{value} is not {printed}");
        }
    }

    /// Upper 5 % points of the studentized range: Montgomery 2017, table VII (printed to 2 or 3
    /// digits), and 1 % of 4 groups on 20 degrees.
    #[test]
    fn studentized_ranges_agree_with_the_table() {
        for (confidence, groups, degrees, printed, digit) in [
            (0.95, 2, 10.0, 3.15, 0.006),
            (0.95, 3, 10.0, 3.88, 0.006),
            (0.95, 5, 20.0, 4.23, 0.006),
            (0.95, 10, 60.0, 4.65, 0.006),
            (0.99, 4, 20.0, 5.02, 0.006),
            (0.95, 3, 5.0, 4.60, 0.006),
            (0.95, 3, 1e9, 3.31, 0.006),
        ] {
            let found = studentized_range_quantile(confidence, groups, degrees);
            assert!((found - printed).abs() < digit, "{groups} {degrees}: {found}, {printed}");
        }
        // Two groups are a t test: q = √2·t.
        let p = studentized_range_p_value(2.0_f64.sqrt() * 2.119_905, 2, 16.0);
        assert!((p - 0.05).abs() < 1e-4, "{p}");
        assert!(studentized_range_p_value(1.0, 1, 5.0).is_nan());
    }

    #[test]
    fn no_degrees_of_freedom_give_no_number() {
        assert!(t_quantile(0.975, 0.0).is_nan());
        assert!(f_p_value(1.0, 0.0, 3.0).is_nan());
    }
}
