//! How few runs scatter, believed from those of all configurations.
//!
//! Two repetitions have a standard deviation of one degree of freedom, and an interval of twelve
//! of them. The runs of other configurations, made on the same machine in the same hours, say
//! what it probably is. How much alike configurations are is not assumed but judged from their
//! variances: where these are unlike, each keeps its own.
//!
//! # Source
//! Variances from a scaled inverse χ² distribution, as in the moderated t [Smyth 2004]; its two
//! parameters are averaged over by their likelihood rather than set to one value, so that few
//! configurations say no more than they can.

use kendall_units::exact_f64;
use statrs::function::gamma::ln_gamma;

use crate::distribution::t_p_value;

/// Degrees of freedom that the variance of a configuration shares with the others', and how likely
/// each is before any run: 1 is nothing in common, 64 nearly one variance.
const ALIKE: [(f64, f64); 6] =
    [(1.0, 0.25), (2.0, 0.25), (4.0, 0.2), (8.0, 0.15), (16.0, 0.1), (64.0, 0.05)];
/// Typical variances that are tried, over the pooled one, as logarithms: from, to, steps.
const TYPICAL: (f64, f64, u32) = (-3.0, 2.0, 20);
/// How likely a configuration scatters more than all others, over the range of ln variance in which that may be.
const LONE: f64 = 0.3 / 10.0;
/// Runs that agree to all digits say no more than ones that agree to this share of the typical
/// variance.
const LEAST: f64 = 1e-4;
/// Parts that weigh less than this share of the heaviest are left out.
const NEGLIGIBLE: f64 = 1e-4;

/// The variance of a few runs, and their number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) variance: f64,
    pub(super) runs: usize,
}

impl Spread {
    fn degrees(self) -> f64 {
        exact_f64(self.runs) - 1.0
    }

    /// Variance of the mean of the runs, and its degrees of freedom.
    pub(super) fn of_mean(self) -> (f64, f64) {
        (self.variance / exact_f64(self.runs), self.degrees())
    }

    /// The same with what is believed of its variance.
    fn of_mean_believing(self, (_, alike, typical): (f64, f64, f64)) -> (f64, f64) {
        let degrees = alike + self.degrees();
        let variance = (alike * typical + self.degrees() * self.variance) / degrees;
        (variance / exact_f64(self.runs), degrees)
    }
}

/// The variance that they share, and its degrees of freedom.
fn pooled(spreads: &[Spread]) -> (f64, f64) {
    let degrees: f64 = spreads.iter().map(|one| one.degrees()).sum();
    let squares: f64 = spreads.iter().map(|one| one.degrees() * one.variance).sum();
    (squares / degrees, degrees)
}

/// Standard error of a sum of means, by the variance and the degrees of freedom of each, and its degrees of freedom [Welch 1947].
pub(super) fn welch(means: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (sum, fourth) = means.fold((0.0, 0.0), |(sum, fourth), (squared, degrees)| {
        (sum + squared, fourth + squared * squared / degrees)
    });
    (sum.sqrt(), sum * sum / fourth)
}

/// What is believed of the variance of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scatter {
    /// Weight, degrees of freedom in common and typical variance; weights have the sum 1.
    parts: Vec<(f64, f64, f64)>,
}

impl Scatter {
    /// From the variances of each configuration; `None` for fewer than three, and where nothing scatters.
    pub(super) fn of(configurations: &[Vec<Spread>]) -> Option<Self> {
        let spreads: Vec<Spread> = configurations.iter().flatten().copied().collect();
        let (pooled, _) = pooled(&spreads);
        if configurations.len() < 3 || !(pooled > 0.0 && pooled.is_finite()) {
            return None;
        }
        let (from, to, steps) = TYPICAL;
        let mut parts = Vec::new();
        for (alike, likely) in ALIKE {
            for step in 0..=steps {
                let log = from + (to - from) * f64::from(step) / f64::from(steps);
                let typical = pooled * log.exp();
                let density = |one: &Spread| {
                    let ratio = one.variance.max(LEAST * pooled) / typical;
                    log_density(ratio, one.degrees(), alike) - log
                };
                let weight = likely.ln() + spreads.iter().map(density).sum::<f64>();
                parts.push((weight, alike, typical));
            }
        }
        let most = parts.iter().map(|part| part.0).fold(f64::NEG_INFINITY, f64::max);
        for part in &mut parts {
            part.0 = (part.0 - most).exp();
        }
        parts.retain(|part| part.0 > NEGLIGIBLE);
        let all: f64 = parts.iter().map(|part| part.0).sum();
        for part in &mut parts {
            part.0 /= all;
        }
        Some(Self { parts })
    }

    /// The half-width of the interval of a sum of means, each of some runs, and the probability of
    /// a sum so far from 0 by chance.
    pub(super) fn judge(&self, sum: f64, means: &[Spread], confidence: f64) -> (f64, f64) {
        let lone = self.lone(means);
        let (_, own) = pooled(means);
        let of_part = |part: &(f64, f64, f64)| {
            let (error, degrees) = welch(means.iter().map(|one| one.of_mean_believing(*part)));
            // What is shared counts once.
            ((1.0 - lone) * part.0, error, degrees.min(part.1 + own))
        };
        let mut errors: Vec<(f64, f64, f64)> = self.parts.iter().map(of_part).collect();
        let typical = self.parts.iter().map(|part| part.0 * part.2).sum::<f64>();
        let wide = |one: &Spread| Spread { variance: one.variance.max(typical), ..*one }.of_mean();
        let (error, degrees) = welch(means.iter().map(wide));
        errors.push((lone, error, degrees));
        let beyond = |distance: f64| -> f64 {
            errors.iter().map(|(w, error, degrees)| w * t_p_value(distance / error, *degrees)).sum()
        };
        let largest = errors.iter().map(|one| one.1).fold(0.0, f64::max);
        let (mut low, mut high) = (0.0, largest);
        while beyond(high) > 1.0 - confidence {
            (low, high) = (high, 2.0 * high);
        }
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if beyond(middle) > 1.0 - confidence { low = middle } else { high = middle }
        }
        (high, beyond(sum.abs()))
    }

    /// How likely it is that these means scatter more than all others, by the density of their variance.
    fn lone(&self, means: &[Spread]) -> f64 {
        let (variance, degrees) = pooled(means);
        let density = |(weight, alike, typical): &(f64, f64, f64)| {
            let ratio = (variance / typical).max(1.0);
            weight * ratio * log_density(ratio, degrees, *alike).exp()
        };
        LONE / (LONE + self.parts.iter().map(density).sum::<f64>())
    }
}

/// ln of the density of F with these degrees of freedom.
fn log_density(ratio: f64, numerator: f64, denominator: f64) -> f64 {
    let (n, d) = (0.5 * numerator, 0.5 * denominator);
    ln_gamma(n + d) - ln_gamma(n) - ln_gamma(d) + n * (n / d).ln() + (n - 1.0) * ratio.ln()
        - (n + d) * (n / d * ratio).ln_1p()
}
