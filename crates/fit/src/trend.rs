//! How a measured value grows with a factor: a straight line, and a power.

use kendall_stats::distribution::t_two_sided;
use kendall_stats::estimate::{Caveat, Estimate, Interval};
use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

/// A least-squares line y = intercept + slope·x.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Value at x = 0.
    pub intercept: Estimate,
    /// Growth by one unit of x.
    pub slope: Estimate,
    /// Share of the variation that the line explains; `None` where there is none to explain.
    pub r_squared: Option<f64>,
}

/// y = factor·x^exponent, fitted as a line in logarithms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Power {
    /// Value at x = 1.
    pub factor: f64,
    /// How fast it grows: 1 is proportional, 3 is cubic.
    pub exponent: Estimate,
    /// Share of the variation of ln y that the line explains.
    pub r_squared: Option<f64>,
}

impl Line {
    /// The value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept.center + self.slope.center * x
    }
}

impl Power {
    /// The value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.factor * x.powf(self.exponent.center)
    }
}

/// Least squares; `None` for fewer than two different x, or for numbers that are none.
///
/// Intervals take the errors to be independent, normal and of one size; with two points there is
/// no error to judge, so no interval.
///
/// # Source
/// [Jain91 §14.2–14.5].
pub fn line(points: &[(f64, f64)], confidence: f64) -> Option<Line> {
    if points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return None;
    }
    let count = exact_f64(points.len());
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |value: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|(x, y)| value(x - mean_x, y - mean_y)).sum()
    };
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    if points.len() < 2 || xx <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    let unexplained = (yy - slope * xy).max(0.0);
    let estimate = |center: f64, leverage: f64| {
        if points.len() < 3 {
            let have = u64::try_from(points.len()).unwrap_or(u64::MAX);
            return Estimate::exact(center).doubt(Caveat::TooFewReplications { have, need: 3 });
        }
        let error = (unexplained / (count - 2.0) * leverage).sqrt();
        let half_width = t_two_sided(confidence, count - 2.0) * error;
        Estimate::with_interval(center, Interval::around(center, half_width, confidence))
    };
    Some(Line {
        intercept: estimate(mean_y - slope * mean_x, 1.0 / count + mean_x * mean_x / xx),
        slope: estimate(slope, 1.0 / xx),
        r_squared: (yy > 0.0).then(|| 1.0 - unexplained / yy),
    })
}

/// A power fitted in logarithms; `None` unless all x and y are positive and [`line()`] fits.
pub fn power(points: &[(f64, f64)], confidence: f64) -> Option<Power> {
    if points.iter().any(|(x, y)| *x <= 0.0 || *y <= 0.0) {
        return None;
    }
    let logarithms: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let line = line(&logarithms, confidence)?;
    Some(Power {
        factor: line.intercept.center.exp(),
        exponent: line.slope,
        r_squared: line.r_squared,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [Jain91 §14.2, example 14.1]: disk I/Os and CPU time of seven programs. Prints b₀ =
    /// −0.0083, b₁ = 0.2438, R² = 0.9715; 90 % intervals (−1.6831, 1.6665) and (0.2061, 0.2814)
    /// from rounded intermediate values.
    #[test]
    fn the_textbook_regression_comes_out() {
        let points = [
            (14.0, 2.0),
            (16.0, 5.0),
            (27.0, 7.0),
            (42.0, 9.0),
            (39.0, 10.0),
            (50.0, 13.0),
            (83.0, 20.0),
        ];
        let line = line(&points, 0.90).unwrap();
        assert!((line.intercept.center + 0.0083).abs() < 5e-5);
        assert!((line.slope.center - 0.2438).abs() < 5e-5);
        assert!((line.r_squared.unwrap() - 0.9715).abs() < 5e-5);
        let slope = line.slope.interval.unwrap();
        assert!((slope.low - 0.2061).abs() < 5e-4 && (slope.high - 0.2814).abs() < 5e-4);
    }

    #[test]
    fn a_cube_has_exponent_three() {
        let points: Vec<(f64, f64)> =
            (1..6_u32).map(|x| (f64::from(x), 2e-6 * f64::from(x).powi(3))).collect();
        let power = power(&points, 0.95).unwrap();
        assert!((power.exponent.center - 3.0).abs() < 1e-12);
        assert!((power.at(10.0) - 2e-3).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_fitted_is_not() {
        assert!(line(&[(1.0, 2.0)], 0.95).is_none());
        assert!(line(&[(1.0, 2.0), (1.0, 3.0)], 0.95).is_none());
        assert!(line(&[(1.0, f64::NAN), (2.0, 3.0)], 0.95).is_none());
        assert!(power(&[(0.0, 2.0), (1.0, 3.0)], 0.95).is_none());
        let two = line(&[(0.0, 1.0), (1.0, 1.0)], 0.95).unwrap();
        assert!(two.slope.interval.is_none() && two.r_squared.is_none());
    }
}
