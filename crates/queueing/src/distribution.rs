//! Distributions of service, inter-arrival, think and patience times: what they are and their
//! moments. Sampling lives with the simulator.

mod fitted;
mod phases;

use statrs::function::erf::erfc;
use statrs::function::gamma::{checked_gamma_lr, ln_gamma};

pub use fitted::{MapFit, MapFitError, fit_map};
pub use phases::MOST_PHASES;
pub(crate) use phases::{Process, exits, stationary};

/// A distribution of a time, in seconds, or a process of events with such times between them. Made
/// by its constructors, which check the parameters.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "parameters have the names of the textbooks")]
pub enum Distribution {
    /// Memoryless.
    Exponential { mean_s: f64 },
    /// Always the same.
    Deterministic { value_s: f64 },
    /// Sum of equal exponential stages.
    Erlang { stages: u32, mean_s: f64 },
    /// One of several exponentials, each with its probability.
    Hyperexponential { probabilities: Vec<f64>, means_s: Vec<f64> },
    /// Its logarithm is normal; the parameters are those of the time itself.
    Lognormal { mean_s: f64, scv: f64 },
    /// Anything between two limits alike.
    Uniform { low_s: f64, high_s: f64 },
    /// With shape 1/scv.
    Gamma { mean_s: f64, scv: f64 },
    /// The time to this power is exponential.
    Weibull { shape: f64, scale_s: f64 },
    /// Pareto cut off at both ends.
    BoundedPareto { shape: f64, low_s: f64, high_s: f64 },
    /// Normal, conditioned on being positive; the parameters are those before truncation.
    TruncatedNormal { location_s: f64, scale_s: f64 },
    /// Each of these values alike.
    Empirical { values_s: Vec<f64> },
    /// Exponential phases until the last is left.
    PhaseType {
        /// Probability of beginning in each phase.
        initial: Vec<f64>,
        /// Rates between phases, row by row; on the diagonal less the rate of leaving.
        generator: Vec<Vec<f64>>,
    },
    /// Times between the events of a Markovian arrival process: they depend on one another.
    Map {
        /// D0: rates without an event, on the diagonal less the rate of leaving.
        hidden: Vec<Vec<f64>>,
        /// D1: rates with an event.
        marked: Vec<Vec<f64>>,
    },
    /// These values in this order, again and again.
    Trace { values_s: Vec<f64> },
    /// Known by two moments only, or with E\[T³\] by three. A simulator takes the gamma distribution that has
    /// two (`scv` ≤ 1) or the hyper-exponential with balanced means (`scv` > 1).
    General { mean_s: f64, scv: f64, third_moment_s3: Option<f64> },
}

/// Parameters that do not give a distribution of times.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{distribution}: {name} is {}; it must be {expected}", kendall_units::echo(value))]
#[expect(missing_docs, reason = "the error text says it")]
pub struct DistributionError {
    pub distribution: &'static str,
    pub name: &'static str,
    pub value: f64,
    pub expected: &'static str,
}

fn checked(
    distribution: &'static str,
    name: &'static str,
    value: f64,
    fits: bool,
    expected: &'static str,
) -> Result<f64, DistributionError> {
    if fits && value.is_finite() {
        Ok(value)
    } else {
        Err(DistributionError { distribution, name, value, expected })
    }
}

const POSITIVE: &str = "a finite number above 0";
const NOT_NEGATIVE: &str = "a finite number, 0 or above";

impl Distribution {
    /// Exponential with this mean; 0 is allowed and means no time at all.
    ///
    /// # Errors
    /// [`DistributionError`] when the mean is negative or not finite.
    pub fn exponential(mean_s: f64) -> Result<Self, DistributionError> {
        checked("exponential", "mean_s", mean_s, mean_s >= 0.0, NOT_NEGATIVE)?;
        Ok(Self::Exponential { mean_s })
    }

    /// Always `value_s`.
    ///
    /// # Errors
    /// [`DistributionError`] when it is negative or not finite.
    pub fn deterministic(value_s: f64) -> Result<Self, DistributionError> {
        checked("deterministic", "mean_s", value_s, value_s >= 0.0, NOT_NEGATIVE)?;
        Ok(Self::Deterministic { value_s })
    }

    /// Erlang with this many stages and this mean.
    ///
    /// # Errors
    /// [`DistributionError`] when there is no stage or the mean is negative or not finite.
    pub fn erlang(stages: u32, mean_s: f64) -> Result<Self, DistributionError> {
        checked("erlang", "stages", f64::from(stages), stages >= 1, "1 or above")?;
        checked("erlang", "mean_s", mean_s, mean_s >= 0.0, NOT_NEGATIVE)?;
        Ok(Self::Erlang { stages, mean_s })
    }

    /// One of several exponentials.
    ///
    /// # Errors
    /// [`DistributionError`] when the lists differ in length, probabilities do not add to 1
    /// within 1e-9, or a mean is negative or not finite.
    pub fn hyperexponential(
        probabilities: Vec<f64>,
        means_s: Vec<f64>,
    ) -> Result<Self, DistributionError> {
        let name = "hyperexponential";
        #[expect(clippy::cast_precision_loss, reason = "a length, for an error message")]
        let count = means_s.len() as f64;
        checked(
            name,
            "means_s",
            count,
            means_s.len() == probabilities.len() && !means_s.is_empty(),
            "as many as there are probabilities",
        )?;
        for p in &probabilities {
            checked(name, "probabilities", *p, (0.0..=1.0).contains(p), "from 0 to 1")?;
        }
        let sum: f64 = probabilities.iter().sum();
        checked(name, "sum of probabilities", sum, (sum - 1.0).abs() <= 1e-9, "1")?;
        for mean in &means_s {
            checked(name, "means_s", *mean, *mean >= 0.0, NOT_NEGATIVE)?;
        }
        Ok(Self::Hyperexponential { probabilities, means_s })
    }

    /// Two exponential branches with balanced means (pᵢ·meanᵢ equal) that have this mean and
    /// squared coefficient of variation.
    ///
    /// # Errors
    /// [`DistributionError`] when `scv` is below 1.
    ///
    /// # Source
    /// [Bolch06 §1.2.1]; p = (1 + √((c²−1)/(c²+1)))/2.
    pub fn hyperexponential_balanced(mean_s: f64, scv: f64) -> Result<Self, DistributionError> {
        checked("hyperexponential", "mean_s", mean_s, mean_s >= 0.0, NOT_NEGATIVE)?;
        checked("hyperexponential", "scv", scv, scv >= 1.0, "a finite number, 1 or above")?;
        let p = f64::midpoint(1.0, ((scv - 1.0) / (scv + 1.0)).sqrt());
        let q = (1.0 - p).max(f64::MIN_POSITIVE);
        Self::hyperexponential(vec![p, 1.0 - p], vec![mean_s / (2.0 * p), mean_s / (2.0 * q)])
    }

    /// Log-normal with this mean and squared coefficient of variation.
    ///
    /// # Errors
    /// [`DistributionError`] when one of them is negative or not finite.
    pub fn lognormal(mean_s: f64, scv: f64) -> Result<Self, DistributionError> {
        checked("lognormal", "mean_s", mean_s, mean_s > 0.0, POSITIVE)?;
        checked("lognormal", "scv", scv, scv >= 0.0, NOT_NEGATIVE)?;
        Ok(Self::Lognormal { mean_s, scv })
    }

    /// Uniform between two limits.
    ///
    /// # Errors
    /// [`DistributionError`] when a limit is negative or they are not in order.
    pub fn uniform(low_s: f64, high_s: f64) -> Result<Self, DistributionError> {
        checked("uniform", "low_s", low_s, low_s >= 0.0, NOT_NEGATIVE)?;
        checked("uniform", "high_s", high_s, high_s >= low_s, "at least low_s")?;
        Ok(Self::Uniform { low_s, high_s })
    }

    /// Gamma with this mean and squared coefficient of variation.
    ///
    /// # Errors
    /// [`DistributionError`] when one of them is not positive.
    pub fn gamma(mean_s: f64, scv: f64) -> Result<Self, DistributionError> {
        checked("gamma", "mean_s", mean_s, mean_s > 0.0, POSITIVE)?;
        checked("gamma", "scv", scv, scv > 0.0, POSITIVE)?;
        Ok(Self::Gamma { mean_s, scv })
    }

    /// Weibull.
    ///
    /// # Errors
    /// [`DistributionError`] when shape or scale is not positive.
    pub fn weibull(shape: f64, scale_s: f64) -> Result<Self, DistributionError> {
        checked("weibull", "shape", shape, shape >= 0.01, "at least 0.01")?;
        checked("weibull", "scale_s", scale_s, scale_s > 0.0, POSITIVE)?;
        Ok(Self::Weibull { shape, scale_s })
    }

    /// Pareto between two limits.
    ///
    /// # Errors
    /// [`DistributionError`] when a parameter is not positive or the limits are not in order.
    pub fn bounded_pareto(shape: f64, low_s: f64, high_s: f64) -> Result<Self, DistributionError> {
        checked("pareto", "shape", shape, shape > 0.0, POSITIVE)?;
        checked("pareto", "low_s", low_s, low_s > 0.0, POSITIVE)?;
        checked("pareto", "high_s", high_s, high_s > low_s, "above low_s")?;
        Ok(Self::BoundedPareto { shape, low_s, high_s })
    }

    /// Normal with this location and scale, conditioned on being positive.
    ///
    /// # Errors
    /// [`DistributionError`] when the scale is not positive, or the location lies so far below 0
    /// that hardly anything is left.
    pub fn truncated_normal(location_s: f64, scale_s: f64) -> Result<Self, DistributionError> {
        checked("normal", "sd_s", scale_s, scale_s > 0.0, POSITIVE)?;
        let lowest = -5.0 * scale_s;
        checked("normal", "mean_s", location_s, location_s >= lowest, "at least −5 sd_s")?;
        Ok(Self::TruncatedNormal { location_s, scale_s })
    }

    /// These values, each alike.
    ///
    /// # Errors
    /// [`DistributionError`] when there are none, or one is negative or not finite.
    pub fn empirical(values_s: Vec<f64>) -> Result<Self, DistributionError> {
        checked("empirical", "number of values", 0.0, !values_s.is_empty(), "1 or above")?;
        for value in &values_s {
            checked("empirical", "values_s", *value, *value >= 0.0, NOT_NEGATIVE)?;
        }
        Ok(Self::Empirical { values_s })
    }

    /// Two moments and perhaps a third.
    ///
    /// # Errors
    /// [`DistributionError`] when one is negative or not finite, or the third is impossible.
    pub fn general(
        mean_s: f64,
        scv: f64,
        third_moment_s3: Option<f64>,
    ) -> Result<Self, DistributionError> {
        checked("general", "mean_s", mean_s, mean_s >= 0.0, NOT_NEGATIVE)?;
        checked("general", "scv", scv, scv >= 0.0, NOT_NEGATIVE)?;
        if let Some(third) = third_moment_s3 {
            // Cauchy–Schwarz on √T and T^(3/2): E[T²]² ≤ E[T]·E[T³].
            let least = mean_s.powi(3) * (1.0 + scv).powi(2);
            let fits = third >= least * (1.0 - 1e-9);
            checked("general", "third_moment_s3", third, fits, "at least E[T²]²/E[T]")?;
        }
        Ok(Self::General { mean_s, scv, third_moment_s3 })
    }

    /// The same distribution stretched so that its mean becomes `mean_s`.
    ///
    /// # Errors
    /// [`DistributionError`] when the mean is negative or not finite, or this mean is 0.
    pub fn with_mean(&self, mean_s: f64) -> Result<Self, DistributionError> {
        checked("distribution", "mean_s", mean_s, mean_s >= 0.0, NOT_NEGATIVE)?;
        let old = self.mean();
        checked("distribution", "mean_s", old, old > 0.0, POSITIVE)?;
        Ok(self.stretched(mean_s / old))
    }

    fn stretched(&self, by: f64) -> Self {
        match self {
            Self::Exponential { mean_s } => Self::Exponential { mean_s: mean_s * by },
            Self::Deterministic { value_s } => Self::Deterministic { value_s: value_s * by },
            Self::Erlang { stages, mean_s } => {
                Self::Erlang { stages: *stages, mean_s: mean_s * by }
            }
            Self::Hyperexponential { probabilities, means_s } => Self::Hyperexponential {
                probabilities: probabilities.clone(),
                means_s: means_s.iter().map(|mean| mean * by).collect(),
            },
            Self::Lognormal { mean_s, scv } => Self::Lognormal { mean_s: mean_s * by, scv: *scv },
            Self::Uniform { low_s, high_s } => {
                Self::Uniform { low_s: low_s * by, high_s: high_s * by }
            }
            Self::Gamma { mean_s, scv } => Self::Gamma { mean_s: mean_s * by, scv: *scv },
            Self::Weibull { shape, scale_s } => {
                Self::Weibull { shape: *shape, scale_s: scale_s * by }
            }
            Self::BoundedPareto { shape, low_s, high_s } => {
                Self::BoundedPareto { shape: *shape, low_s: low_s * by, high_s: high_s * by }
            }
            Self::TruncatedNormal { location_s, scale_s } => {
                Self::TruncatedNormal { location_s: location_s * by, scale_s: scale_s * by }
            }
            Self::Empirical { values_s } => {
                Self::Empirical { values_s: values_s.iter().map(|value| value * by).collect() }
            }
            Self::PhaseType { initial, generator } => {
                Self::PhaseType { initial: initial.clone(), generator: scaled(generator, 1.0 / by) }
            }
            Self::Map { hidden, marked } => {
                Self::Map { hidden: scaled(hidden, 1.0 / by), marked: scaled(marked, 1.0 / by) }
            }
            Self::Trace { values_s } => {
                Self::Trace { values_s: values_s.iter().map(|value| value * by).collect() }
            }
            Self::General { mean_s, scv, third_moment_s3 } => Self::General {
                mean_s: mean_s * by,
                scv: *scv,
                third_moment_s3: third_moment_s3.map(|third| third * by.powi(3)),
            },
        }
    }

    /// E\[T\].
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Self::Exponential { mean_s }
            | Self::Erlang { mean_s, .. }
            | Self::Lognormal { mean_s, .. }
            | Self::Gamma { mean_s, .. }
            | Self::General { mean_s, .. } => *mean_s,
            Self::Deterministic { value_s } => *value_s,
            _ => self.moment(1).unwrap_or(0.0),
        }
    }

    /// Var\[T\]/E\[T\]²; 0 for a time that is always 0.
    #[must_use]
    pub fn scv(&self) -> f64 {
        match self {
            Self::Exponential { .. } => 1.0,
            Self::Deterministic { .. } => 0.0,
            Self::Erlang { stages, .. } => 1.0 / f64::from(*stages),
            Self::Lognormal { scv, .. } | Self::Gamma { scv, .. } | Self::General { scv, .. } => {
                *scv
            }
            Self::Empirical { values_s } | Self::Trace { values_s } => {
                let mean = self.mean();
                let n = kendall_units::exact_f64(values_s.len());
                let var = values_s.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
                if mean > 0.0 { var / (mean * mean) } else { 0.0 }
            }
            Self::Uniform { low_s, high_s } => {
                let mean = f64::midpoint(*low_s, *high_s);
                if mean > 0.0 { ((high_s - low_s) / mean).powi(2) / 12.0 } else { 0.0 }
            }
            _ => {
                let mean = self.mean();
                let second = self.moment(2).unwrap_or(0.0);
                if mean > 0.0 { (second / (mean * mean) - 1.0).max(0.0) } else { 0.0 }
            }
        }
    }

    /// Var\[T\].
    #[must_use]
    pub fn variance(&self) -> f64 {
        self.scv() * self.mean().powi(2)
    }

    /// E\[T^order\] for order 1, 2 or 3; `None` where it is not known.
    ///
    /// # Source
    /// Standard; truncated normal by integrating by parts, E\[T^k\] = µ·E\[T^(k−1)\] +
    /// (k−1)σ²·E\[T^(k−2)\] + the boundary term at k = 1.
    #[must_use]
    pub fn moment(&self, order: u32) -> Option<f64> {
        let k = f64::from(order);
        let power = order.min(9).cast_signed();
        let moment = match self {
            Self::Exponential { mean_s } => factorial(order) * mean_s.powi(power),
            Self::Deterministic { value_s } => value_s.powi(power),
            Self::Erlang { stages, mean_s } => {
                rising(f64::from(*stages), order) * (mean_s / f64::from(*stages)).powi(power)
            }
            Self::Gamma { mean_s, scv } => rising(1.0 / scv, order) * (mean_s * scv).powi(power),
            Self::Hyperexponential { probabilities, means_s } => {
                let pairs = probabilities.iter().zip(means_s);
                factorial(order) * pairs.map(|(p, mean)| p * mean.powi(power)).sum::<f64>()
            }
            Self::Lognormal { mean_s, scv } => {
                mean_s.powi(power) * (1.0 + scv).powf(k * (k - 1.0) / 2.0)
            }
            Self::Uniform { low_s, high_s } => {
                // (b^(k+1) − a^(k+1)) / ((k+1)(b−a)) as a sum, which does not cancel.
                let terms = (0..=power).map(|i| high_s.powi(i) * low_s.powi(power - i));
                terms.sum::<f64>() / (k + 1.0)
            }
            Self::Weibull { shape, scale_s } => {
                scale_s.powi(power) * ln_gamma(1.0 + k / shape).exp()
            }
            Self::BoundedPareto { shape, low_s, high_s } => {
                bounded_pareto_moment(*shape, *low_s, *high_s, k)
            }
            Self::TruncatedNormal { location_s, scale_s } => {
                truncated_normal_moment(*location_s, *scale_s, order)
            }
            Self::Empirical { values_s } | Self::Trace { values_s } => {
                let n = kendall_units::exact_f64(values_s.len());
                values_s.iter().map(|value| value.powi(power)).sum::<f64>() / n
            }
            Self::PhaseType { .. } | Self::Map { .. } => return self.moment_of_phases(order),
            Self::General { mean_s, scv, third_moment_s3 } => match order {
                1 => *mean_s,
                2 => mean_s * mean_s * (1.0 + scv),
                3 => return *third_moment_s3,
                _ => return None,
            },
        };
        moment.is_finite().then_some(moment)
    }

    /// E\[T^order; T ≤ x\], the part of a moment that values up to `x` make; of order 0 it is
    /// P(T ≤ x). `None` where the shape is not known.
    pub(crate) fn below(&self, order: u32, x: f64) -> Option<f64> {
        let k = f64::from(order);
        let power = order.min(9).cast_signed();
        let whole = self.moment(order)?;
        Some(match self {
            Self::Exponential { mean_s } => whole * lower_gamma(1.0 + k, x / mean_s),
            Self::Erlang { stages, mean_s } => {
                let stages = f64::from(*stages);
                whole * lower_gamma(stages + k, x * stages / mean_s)
            }
            Self::Gamma { mean_s, scv } => whole * lower_gamma(1.0 / scv + k, x / (mean_s * scv)),
            Self::Hyperexponential { probabilities, means_s } => probabilities
                .iter()
                .zip(means_s)
                .map(|(p, m)| p * factorial(order) * m.powi(power) * lower_gamma(1.0 + k, x / m))
                .sum(),
            Self::Lognormal { mean_s, scv } => {
                let variance = scv.ln_1p();
                let location = mean_s.ln() - variance / 2.0 + k * variance;
                whole * normal_below((x.ln() - location) / variance.sqrt())
            }
            Self::Uniform { low_s, high_s } => {
                let top = x.clamp(*low_s, *high_s);
                let terms = (0..=power).map(|i| top.powi(i) * low_s.powi(power - i));
                let width = (high_s - low_s).max(f64::MIN_POSITIVE);
                terms.sum::<f64>() * (top - low_s) / width / (k + 1.0)
            }
            Self::Weibull { shape, scale_s } => {
                whole * lower_gamma(1.0 + k / shape, (x / scale_s).powf(*shape))
            }
            Self::BoundedPareto { shape, low_s, high_s } => {
                if x <= *low_s {
                    return Some(0.0);
                }
                let front = -(shape * (low_s / high_s).ln()).exp_m1();
                let top = x.min(*high_s);
                let own = -(shape * (low_s / top).ln()).exp_m1();
                own / front * bounded_pareto_moment(*shape, *low_s, top, k)
            }
            Self::TruncatedNormal { location_s, scale_s } => {
                truncated_normal_below(*location_s, *scale_s, order, x)
            }
            Self::Deterministic { value_s } => {
                if x >= *value_s {
                    whole
                } else {
                    0.0
                }
            }
            Self::Empirical { values_s } => {
                let n = kendall_units::exact_f64(values_s.len());
                values_s.iter().filter(|v| **v <= x).map(|v| v.powi(power)).sum::<f64>() / n
            }
            Self::PhaseType { .. }
            | Self::Map { .. }
            | Self::Trace { .. }
            | Self::General { .. } => return None,
        })
    }

    /// [`below`](Self::below) of the orders 0 to 2 together.
    pub(crate) fn all_below(&self, x: f64) -> Option<[f64; 3]> {
        let (shape, scale) = match self {
            Self::Exponential { mean_s } => (1.0, *mean_s),
            Self::Erlang { stages, mean_s } => (f64::from(*stages), mean_s / f64::from(*stages)),
            Self::Gamma { mean_s, scv } => (1.0 / scv, mean_s * scv),
            _ => return Some([self.below(0, x)?, self.below(1, x)?, self.below(2, x)?]),
        };
        let y = x / scale;
        if y.is_nan() || y <= 0.0 {
            return Some([0.0; 3]);
        }
        // P(a, y) = P(a + 1, y) + y^a·e^(−y)/Γ(a + 1), downwards, so that nothing cancels.
        let more = (shape * y.ln() - y - ln_gamma(shape + 1.0)).exp();
        let second = lower_gamma(shape + 2.0, y);
        let first = second + more * y / (shape + 1.0);
        let mean = shape * scale;
        Some([first + more, mean * first, mean * (mean + scale) * second])
    }

    /// The values that it takes with their probabilities, in rising order, where they are few.
    pub(crate) fn atoms(&self) -> Option<Vec<(f64, f64)>> {
        let mut values = match self {
            Self::Deterministic { value_s } => vec![*value_s],
            Self::Lognormal { mean_s, scv } if *scv <= 0.0 => vec![*mean_s],
            Self::Uniform { low_s, high_s } if low_s >= high_s => vec![*low_s],
            Self::Empirical { values_s } => values_s.clone(),
            _ => return None,
        };
        values.sort_by(f64::total_cmp);
        let each = 1.0 / kendall_units::exact_f64(values.len());
        let mut atoms: Vec<(f64, f64)> = Vec::new();
        for value in values {
            match atoms.last_mut() {
                Some((last, p)) if last.total_cmp(&value).is_eq() => *p += each,
                _ => atoms.push((value, each)),
            }
        }
        Some(atoms)
    }

    /// Times at which its density begins, or ends, with a step.
    pub(crate) fn range(&self) -> Vec<f64> {
        match self {
            Self::Uniform { low_s, high_s } | Self::BoundedPareto { low_s, high_s, .. } => {
                [*low_s, *high_s].into_iter().filter(|end| *end > 0.0).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Letters of the Kendall notation: M, D, E, H, PH, MAP or G.
    #[must_use]
    pub fn letter(&self) -> &'static str {
        match self {
            Self::Exponential { .. } => "M",
            Self::Deterministic { .. } => "D",
            Self::Erlang { .. } => "E",
            Self::Hyperexponential { .. } => "H",
            Self::PhaseType { .. } => "PH",
            Self::Map { .. } => "MAP",
            _ => "G",
        }
    }

    /// Whether it is memoryless.
    #[must_use]
    pub fn is_exponential(&self) -> bool {
        match self {
            Self::Exponential { .. } | Self::Erlang { stages: 1, .. } => true,
            Self::Hyperexponential { means_s, .. } => means_s.len() == 1,
            Self::PhaseType { initial, .. } => initial.len() == 1,
            Self::Map { hidden, .. } => hidden.len() == 1,
            _ => false,
        }
    }
}

fn scaled(rows: &[Vec<f64>], by: f64) -> Vec<Vec<f64>> {
    rows.iter().map(|row| row.iter().map(|rate| rate * by).collect()).collect()
}

/// P(a, x), the lower incomplete gamma function over Γ(a).
fn lower_gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 { 0.0 } else { checked_gamma_lr(a, x.min(1e300)).unwrap_or(1.0) }
}

/// P(standard normal ≤ z).
fn normal_below(z: f64) -> f64 {
    0.5 * erfc(-z / std::f64::consts::SQRT_2)
}

fn factorial(order: u32) -> f64 {
    (1..=order).map(f64::from).product()
}

/// x(x+1)…(x+order−1).
fn rising(x: f64, order: u32) -> f64 {
    (0..order).map(|i| x + f64::from(i)).product()
}

fn bounded_pareto_moment(shape: f64, low: f64, high: f64, k: f64) -> f64 {
    let ratio = (shape * (low / high).ln()).exp();
    let front = shape * low.powf(shape) / (1.0 - ratio);
    if (k - shape).abs() < 1e-12 {
        front * (high / low).ln()
    } else {
        front * (high.powf(k - shape) - low.powf(k - shape)) / (k - shape)
    }
}

fn truncated_normal_moment(location: f64, scale: f64, order: u32) -> f64 {
    let z = -location / scale;
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let above = 0.5 * erfc(z / std::f64::consts::SQRT_2);
    let mut last = 1.0;
    let mut now = location + scale * density / above;
    for k in 2..=order {
        let next = location * now + f64::from(k - 1) * scale * scale * last;
        last = now;
        now = next;
    }
    if order == 0 { 1.0 } else { now }
}

/// By parts over 0 to x, as the whole moment is over 0 to ∞.
fn truncated_normal_below(location: f64, scale: f64, order: u32, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let (from, to) = (-location / scale, (x - location) / scale);
    let above = normal_below(-from);
    let density = |z: f64| (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() / above;
    let mut last = (normal_below(to) - normal_below(from)) / above;
    if order == 0 {
        return last;
    }
    let mut now = location * last + scale * (density(from) - density(to));
    for k in 2..=order {
        let edge = x.powi(k.cast_signed() - 1) * scale * density(to);
        let next = location * now + f64::from(k - 1) * scale * scale * last - edge;
        last = now;
        now = next;
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(have: f64, want: f64, relative: f64) {
        assert!((have - want).abs() <= relative * want.abs().max(1e-300), "{have} for {want}");
    }

    #[test]
    fn moments_agree_with_the_closed_forms() {
        let h = Distribution::hyperexponential_balanced(2.0, 4.0).unwrap();
        near(h.mean(), 2.0, 1e-14);
        near(h.scv(), 4.0, 1e-13);
        near(Distribution::erlang(4, 2.0).unwrap().moment(3).unwrap(), 8.0 * 120.0 / 64.0, 1e-14);
        near(Distribution::uniform(1.0, 3.0).unwrap().moment(2).unwrap(), 13.0 / 3.0, 1e-14);
        near(Distribution::weibull(1.0, 2.0).unwrap().moment(3).unwrap(), 48.0, 1e-12);
        near(Distribution::lognormal(2.0, 0.5).unwrap().scv(), 0.5, 1e-14);
        // A normal far from 0 is hardly truncated.
        near(Distribution::truncated_normal(10.0, 1.0).unwrap().scv(), 0.01, 1e-9);
    }

    #[test]
    fn a_pareto_has_the_mean_that_integration_gives() {
        // ∫ x·f(x) for shape 2, low 1, high 2: f = 2/(1−1/4)·x⁻³, mean = (8/3)(1 − 1/2).
        near(Distribution::bounded_pareto(2.0, 1.0, 2.0).unwrap().mean(), 4.0 / 3.0, 1e-14);
    }

    #[test]
    fn impossible_parameters_are_refused_with_their_value() {
        let error = Distribution::exponential(-1.0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "exponential: mean_s is -1; it must be a finite number, 0 or above"
        );
        assert!(Distribution::exponential(f64::NAN).is_err());
        assert!(Distribution::erlang(0, 1.0).is_err());
        assert!(Distribution::hyperexponential(vec![0.5], vec![1.0, 2.0]).is_err());
        assert!(Distribution::general(1.0, 1.0, Some(0.1)).is_err());
    }

    /// The parts of moments add up to them, and their differences are those of Riemann sums.
    #[test]
    fn parts_of_moments_grow_to_the_whole() {
        for d in [
            Distribution::exponential(0.7).unwrap(),
            Distribution::erlang(3, 0.7).unwrap(),
            Distribution::gamma(0.7, 2.5).unwrap(),
            Distribution::hyperexponential_balanced(0.7, 4.0).unwrap(),
            Distribution::lognormal(0.7, 3.0).unwrap(),
            Distribution::uniform(0.2, 1.2).unwrap(),
            Distribution::weibull(0.8, 0.7).unwrap(),
            Distribution::bounded_pareto(1.5, 0.2, 9.0).unwrap(),
            Distribution::truncated_normal(0.5, 0.4).unwrap(),
            Distribution::empirical(vec![0.1, 0.5, 0.5, 2.0]).unwrap(),
        ] {
            for order in 0..3 {
                let whole = d.moment(order).unwrap_or(1.0);
                near(d.below(order, 1e6).unwrap(), whole, 1e-9);
                for x in [1e-6, 0.3, 1.1, 8.0] {
                    let place = usize::try_from(order).unwrap();
                    near(d.all_below(x).unwrap()[place], d.below(order, x).unwrap(), 1e-12);
                }
                // E[T^k; a < T ≤ b] lies between a^k and b^k times P(a < T ≤ b).
                for (a, b) in [(0.2, 0.21), (0.5, 0.51), (1.0, 1.01)] {
                    let mass = d.below(0, b).unwrap() - d.below(0, a).unwrap();
                    let part = d.below(order, b).unwrap() - d.below(order, a).unwrap();
                    let power = order.cast_signed();
                    let (least, most) = (mass * f64::powi(a, power), mass * f64::powi(b, power));
                    let fits = part >= least - 1e-13 && part <= most + 1e-13;
                    assert!(fits, "{d:?} {order} {a}: {least} {part} {most}");
                }
            }
        }
    }

    #[test]
    fn stretching_keeps_the_shape() {
        let d = Distribution::weibull(0.7, 3.0).unwrap();
        let s = d.with_mean(10.0).unwrap();
        near(s.mean(), 10.0, 1e-13);
        near(s.scv(), d.scv(), 1e-12);
    }
}
