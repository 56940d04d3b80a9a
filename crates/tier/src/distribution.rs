//! Distributions that loads and stations draw from, and how they are written.

use std::path::Path;

use rand::Rng;
use rand_distr::Distribution as _;

/// A distribution of numbers: seconds, bytes, or the value of a placeholder.
///
/// Values below zero make no sense for any of them, so every draw is at least 0.
#[derive(Debug, Clone)]
pub enum Distribution {
    Constant(f64),
    /// Exponential with this mean.
    Exponential(f64),
    /// Uniform from the first to the second (excluded).
    Uniform(f64, f64),
    /// Normal, cut off at 0.
    Normal(rand_distr::Normal<f64>),
    /// Pareto: scale (smallest value) and shape.
    Pareto(f64, f64),
    /// Erlang: a number of stages, and the mean of their sum.
    Erlang(u32, f64),
    /// Two exponential branches with balanced means: the mean of all, and the squared coefficient of variation.
    Hyperexponential(f64, f64),
    /// Ranks from 1 with probabilities that fall with a power.
    Zipf(rand_distr::Zipf<f64>),
    /// One of these, each as likely.
    Empirical(Vec<f64>),
}

#[derive(Debug, thiserror::Error)]
pub enum DistributionError {
    #[error(
        "`{text}` is not a distribution; write {example}, `exponential:MEAN`, `uniform:LOW..HIGH`, \
         `normal:MEAN,DEVIATION`, `pareto:SCALE,SHAPE`, `erlang:STAGES,MEAN`, `hyperexponential:MEAN,SCV`, \
         `zipf:RANKS,EXPONENT` or `file:PATH`"
    )]
    Form { text: String, example: &'static str },
    #[error("`{text}`: {reason}")]
    Parameter { text: String, reason: &'static str },
    #[error("cannot read the values of `{path}`")]
    File { path: String, source: std::io::Error },
    #[error(
        "{path}, line {line}: `{text}` is not a value; write one value per line, like {example}"
    )]
    Line { path: String, line: usize, text: String, example: &'static str },
}

/// How the values of a distribution are written: with a unit or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Times, kept in seconds.
    Time,
    /// Sizes, kept in bytes.
    Bytes,
    Number,
}

impl Unit {
    fn parse(self, text: &str) -> Option<f64> {
        let text = text.trim();
        match self {
            Self::Time => kendall_units::parse_seconds(text).ok().map(|time| time.get()),
            Self::Bytes => kendall_units::parse_bytes(text).ok().map(kendall_units::exact_f64),
            Self::Number => text.parse().ok().filter(|value: &f64| value.is_finite()),
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Time => "`40ms`",
            Self::Bytes => "`1KiB`",
            Self::Number => "`7`",
        }
    }
}

impl Distribution {
    /// Reads a distribution, such as `40ms`, `exponential:40ms` or `uniform:10ms..20ms`.
    pub fn parse(text: &str, unit: Unit) -> Result<Self, DistributionError> {
        let form = || DistributionError::Form { text: text.to_owned(), example: unit.example() };
        let Some((name, rest)) = text.split_once(':') else {
            return unit.parse(text).map(Self::Constant).ok_or_else(form);
        };
        let one = || unit.parse(rest).ok_or_else(form);
        let bare = |text: &str| Unit::Number.parse(text).ok_or_else(form);
        let pair = |separator: &str| rest.split_once(separator).ok_or_else(form);
        let wrong =
            |reason: &'static str| DistributionError::Parameter { text: text.to_owned(), reason };
        match name {
            "constant" => one().map(Self::Constant),
            "exponential" => {
                let mean = one()?;
                (mean > 0.0)
                    .then_some(Self::Exponential(mean))
                    .ok_or_else(|| wrong("its mean is above 0"))
            }
            "uniform" => {
                let (low, high) = pair("..")?;
                let (low, high) =
                    (unit.parse(low).ok_or_else(form)?, unit.parse(high).ok_or_else(form)?);
                if low <= high {
                    Ok(Self::Uniform(low, high))
                } else {
                    Err(wrong("its low end is not above its high end"))
                }
            }
            "normal" => {
                let (mean, deviation) = pair(",")?;
                let mean = unit.parse(mean).ok_or_else(form)?;
                let deviation = unit.parse(deviation).ok_or_else(form)?;
                rand_distr::Normal::new(mean, deviation)
                    .map(Self::Normal)
                    .map_err(|_| wrong("its deviation is not negative"))
            }
            "pareto" => {
                let (scale, shape) = pair(",")?;
                let (scale, shape) = (unit.parse(scale).ok_or_else(form)?, bare(shape)?);
                if scale > 0.0 && shape > 0.0 {
                    Ok(Self::Pareto(scale, shape))
                } else {
                    Err(wrong("its scale and shape are above 0"))
                }
            }
            "erlang" => {
                let (stages, mean) = pair(",")?;
                let stages =
                    stages.trim().parse().ok().filter(|stages| (1..=1000).contains(stages));
                let stages = stages.ok_or_else(|| wrong("it has 1 to 1000 stages"))?;
                Ok(Self::Erlang(stages, unit.parse(mean).ok_or_else(form)?))
            }
            "hyperexponential" => {
                let (mean, scv) = pair(",")?;
                let (mean, scv) = (unit.parse(mean).ok_or_else(form)?, bare(scv)?);
                if (1.0..1e6).contains(&scv) {
                    Ok(Self::Hyperexponential(mean, scv))
                } else {
                    Err(wrong("its squared coefficient of variation is 1 or more"))
                }
            }
            "zipf" => {
                let (ranks, exponent) = pair(",")?;
                rand_distr::Zipf::new(bare(ranks)?, bare(exponent)?)
                    .map(Self::Zipf)
                    .map_err(|_| wrong("it has at least 1 rank and an exponent of at least 0"))
            }
            "file" => Self::from_file(Path::new(rest), unit),
            _ => Err(form()),
        }
    }

    /// One value a line; empty lines and lines that start with `#` are skipped.
    fn from_file(path: &Path, unit: Unit) -> Result<Self, DistributionError> {
        let name = path.display().to_string();
        let text = crate::read_text(path, crate::LARGEST_FILE)
            .map_err(|source| DistributionError::File { path: name.clone(), source })?;
        let mut values = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            values.push(unit.parse(line).ok_or_else(|| DistributionError::Line {
                path: name.clone(),
                line: index + 1,
                text: line.chars().take(40).collect(),
                example: unit.example(),
            })?);
        }
        if values.is_empty() {
            return Err(DistributionError::Parameter {
                text: name,
                reason: "a file of values has at least one",
            });
        }
        Ok(Self::Empirical(values))
    }

    pub fn sample(&self, rng: &mut impl Rng) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Exponential(mean) => exponential(rng) * mean,
            Self::Uniform(low, high) => unit_interval(rng).mul_add(high - low, *low),
            Self::Normal(normal) => normal.sample(rng).max(0.0),
            // The inverse of the distribution function, at 1 − u so that 0 is not drawn.
            Self::Pareto(scale, shape) => scale * (1.0 - unit_interval(rng)).powf(-1.0 / shape),
            Self::Erlang(stages, mean) => {
                let stage = mean / f64::from(*stages);
                (0..*stages).fold(0.0, |sum, _| sum + stage * exponential(rng))
            }
            Self::Hyperexponential(mean, scv) => {
                // Balanced means, p₁/μ₁ = p₂/μ₂ [Bolch et al. 2006, §1.2.1.4].
                let first = f64::midpoint(1.0, ((scv - 1.0) / (scv + 1.0)).sqrt());
                let share = if unit_interval(rng) < first { first } else { 1.0 - first };
                mean * (exponential(rng) / (2.0 * share))
            }
            Self::Zipf(zipf) => zipf.sample(rng),
            Self::Empirical(values) => values[index_below(rng, values.len())],
        }
    }

    /// The mean that was asked for; of the cut-off normal, that of the whole one. Infinite for a
    /// Pareto with a shape of 1 or less, `None` where it has no closed form (Zipf).
    pub fn mean(&self) -> Option<f64> {
        match self {
            Self::Constant(value) => Some(*value),
            Self::Exponential(mean) | Self::Erlang(_, mean) | Self::Hyperexponential(mean, _) => {
                Some(*mean)
            }
            Self::Pareto(scale, shape) if *shape > 1.0 => Some(scale * shape / (shape - 1.0)),
            Self::Pareto(..) => Some(f64::INFINITY),
            Self::Zipf(_) => None,
            Self::Uniform(low, high) => Some(f64::midpoint(*low, *high)),
            Self::Normal(normal) => Some(normal.mean()),
            Self::Empirical(values) => {
                Some(values.iter().sum::<f64>() / kendall_units::exact_f64(values.len()))
            }
        }
    }
}

/// A number of the exponential distribution with mean 1.
fn exponential(rng: &mut impl Rng) -> f64 {
    rand_distr::Exp1.sample(rng)
}

/// A number from 0 to 1 (excluded) with 53 random bits.
pub fn unit_interval(rng: &mut impl Rng) -> f64 {
    const SCALE: f64 = 1.0 / 9_007_199_254_740_992.0; // 2^-53
    kendall_units::exact_f64(rng.next_u64() >> 11) * SCALE
}

/// A whole number from 0 to `bound` (excluded), by the multiply-shift method of Lemire (ACM TOMACS
/// 2019) without its rejection step: the bias is below `bound`/2^64.
pub fn index_below(rng: &mut impl Rng, bound: usize) -> usize {
    let wide = u128::from(rng.next_u64()) * (bound as u128);
    usize::try_from(wide >> 64).expect("the high half is below the bound")
}
