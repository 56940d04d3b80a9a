//! Distributions of service times, and how they are written.

use std::fmt;
use std::str::FromStr;

use kendall_units::{QuantityError, Seconds, parse_seconds};
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Sets the numbers of service times apart from those of a load with the same seed, whose gaps between
/// arrivals they would repeat: each service as long as the gap before or behind it is no M/M/1.
const SERVICE_TIMES: u64 = 0x7365_7276_6963_6573;

/// The numbers that service times are drawn from: others for every seed, and for every run.
pub(crate) fn numbers(seed: u64, run: u64) -> Xoshiro256PlusPlus {
    let of_seed: u64 = Xoshiro256PlusPlus::seed_from_u64(seed ^ SERVICE_TIMES).random();
    Xoshiro256PlusPlus::seed_from_u64(of_seed ^ run)
}

/// A distribution of service times. A draw below zero counts as zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ServiceTime {
    /// Always the same: D.
    Constant(Seconds),
    /// Exponential with this mean: M.
    Exponential(Seconds),
    /// Uniform between two times.
    Uniform(Seconds, Seconds),
    /// Normal with mean and standard deviation, cut off at 0.
    Normal(Seconds, Seconds),
    /// Erlang with a number of stages and the mean of their sum: E_k.
    Erlang(u32, Seconds),
    /// Hyperexponential of two branches with balanced means, with the mean of all and the squared
    /// coefficient of variation: H_2.
    Hyperexponential(Seconds, f64),
}

/// A text that is not a distribution of service times.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceTimeError {
    #[error(
        "`{text}` is not a distribution of service times; write it like `5ms`, \
         `exponential:5ms`, `uniform:4ms..6ms`, `normal:5ms,1ms`, `erlang:4,5ms` or \
         `hyperexponential:5ms,4` (mean and squared coefficient of variation, at least 1)"
    )]
    Form { text: String },
    #[error(transparent)]
    Time(#[from] QuantityError),
}

impl FromStr for ServiceTime {
    type Err = ServiceTimeError;

    fn from_str(text: &str) -> Result<Self, ServiceTimeError> {
        let refused = || ServiceTimeError::Form { text: text.to_owned() };
        let Some((name, parameters)) = text.trim().split_once(':') else {
            return parse_seconds(text).map(Self::Constant).map_err(|_| refused());
        };
        let two = |separator| parameters.split_once(separator).ok_or_else(refused);
        match name {
            "constant" => Ok(Self::Constant(parse_seconds(parameters)?)),
            "exponential" => Ok(Self::Exponential(parse_seconds(parameters)?)),
            "uniform" => {
                let (low, high) = two("..")?;
                let (low, high) = (parse_seconds(low)?, parse_seconds(high)?);
                (low <= high).then_some(Self::Uniform(low, high)).ok_or_else(refused)
            }
            "normal" => {
                let (mean, deviation) = two(",")?;
                Ok(Self::Normal(parse_seconds(mean)?, parse_seconds(deviation)?))
            }
            "erlang" => {
                let (stages, mean) = two(",")?;
                let stages = stages.trim().parse().ok().filter(|k| (1..=1000).contains(k));
                Ok(Self::Erlang(stages.ok_or_else(refused)?, parse_seconds(mean)?))
            }
            "hyperexponential" => {
                let (mean, scv) = two(",")?;
                let scv = scv.trim().parse().ok().filter(|scv: &f64| (1.0..1e6).contains(scv));
                Ok(Self::Hyperexponential(parse_seconds(mean)?, scv.ok_or_else(refused)?))
            }
            _ => Err(refused()),
        }
    }
}

impl ServiceTime {
    /// A draw, in nanoseconds.
    pub fn draw_ns(&self, rng: &mut impl Rng) -> u64 {
        let mut exponential = |mean: Seconds| -> Seconds {
            let unit: f64 = Exp1.sample(rng);
            mean * unit
        };
        let time = match *self {
            Self::Constant(time) => time,
            Self::Exponential(mean) => exponential(mean),
            Self::Uniform(low, high) => {
                let share: f64 = rng.random();
                low + (high - low) * share
            }
            Self::Normal(mean, deviation) => {
                let unit: f64 = StandardNormal.sample(rng);
                mean + deviation * unit
            }
            Self::Erlang(stages, mean) => {
                let stage = mean / f64::from(stages);
                (0..stages).fold(Seconds::ZERO, |sum, _| sum + exponential(stage))
            }
            Self::Hyperexponential(mean, scv) => {
                // Balanced means, p₁/μ₁ = p₂/μ₂ [Bolch et al. 2006, §1.2.1.4].
                let first = f64::midpoint(1.0, ((scv - 1.0) / (scv + 1.0)).sqrt());
                let chosen: f64 = rng.random();
                let share = if chosen < first { first } else { 1.0 - first };
                let unit: f64 = Exp1.sample(rng);
                mean * (unit / (2.0 * share))
            }
        };
        time.as_nanos()
    }
}

impl fmt::Display for ServiceTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(time) => write!(f, "constant {time}"),
            Self::Exponential(mean) => write!(f, "exponential, mean {mean}"),
            Self::Uniform(low, high) => write!(f, "uniform from {low} to {high}"),
            Self::Normal(mean, deviation) => {
                write!(f, "normal, mean {mean}, standard deviation {deviation}")
            }
            Self::Erlang(stages, mean) => write!(f, "Erlang-{stages}, mean {mean}"),
            Self::Hyperexponential(mean, scv) => {
                write!(f, "hyperexponential, mean {mean}, squared coefficient of variation {scv}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load draws the gaps between its arrivals from the numbers of the seed itself. Correlations of
    /// 10,000 independent pairs have a standard deviation of 0.01; the tolerance is five of these.
    #[test]
    fn service_times_resemble_neither_the_gaps_of_a_load_nor_those_of_another_run() {
        let exponential = |mut rng: Xoshiro256PlusPlus| -> Vec<f64> {
            (0..10_001).map(|_| Exp1.sample(&mut rng)).collect()
        };
        // Mean and variance of the exponential distribution are 1.
        let correlation = |one: &[f64], other: &[f64]| {
            one.iter().zip(other).map(|(a, b)| (a - 1.0) * (b - 1.0)).sum::<f64>() / 10_000.0
        };
        for seed in [0, 1, 7] {
            let gaps = exponential(Xoshiro256PlusPlus::seed_from_u64(seed));
            let times = exponential(numbers(seed, 0));
            for other in [&gaps, &exponential(numbers(seed, 1)), &exponential(numbers(seed + 1, 0))]
            {
                for (a, b) in
                    [(&times[..], &other[..]), (&times, &other[1..]), (&times[1..], other)]
                {
                    let found = correlation(a, b);
                    assert!(found.abs() < 0.05, "seed {seed}: {found}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for text in [
            "",
            "5",
            "exponential",
            "exponential:5",
            "uniform:6ms..4ms",
            "uniform:4ms",
            "normal:5ms",
            "erlang:0,5ms",
            "erlang:1.5,5ms",
            "hyperexponential:5ms,0.5",
            "hyperexponential:5ms,nan",
            "gamma:5ms,1",
        ] {
            assert!(text.parse::<ServiceTime>().is_err(), "{text}");
        }
    }

    /// Mean and squared coefficient of variation of 100,000 draws, in units of the stated ones.
    /// The tolerance is five standard errors, those of the variance by the fourth moment of the
    /// widest (H_2 with SCV 4: kurtosis below 40).
    #[test]
    fn draws_have_the_stated_mean_and_variation() {
        let cases = [
            ("5ms", 0.0),
            ("exponential:5ms", 1.0),
            ("uniform:4ms..6ms", 1.0 / 75.0),
            ("normal:5ms,1ms", 0.04),
            ("erlang:4,5ms", 0.25),
            ("hyperexponential:5ms,4", 4.0),
        ];
        for (text, scv) in cases {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
            let distribution: ServiceTime = text.parse().unwrap();
            let draws: Vec<f64> = (0..100_000)
                .map(|_| kendall_units::exact_f64(distribution.draw_ns(&mut rng)) / 5e6)
                .collect();
            let count = 1e5_f64;
            let mean = draws.iter().sum::<f64>() / count;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            assert!((mean - 1.0).abs() <= 5.0 * (scv / count).sqrt() + 1e-6, "{text}: {mean}");
            let error = 5.0 * scv * (40.0 / count).sqrt();
            assert!((variance - scv).abs() <= error + 1e-6, "{text}: {variance}");
        }
    }
}
