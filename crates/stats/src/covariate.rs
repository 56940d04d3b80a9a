//! A second quantity that was measured in every run, such as the machine's speed, that explains part of
//! what runs of one configuration differ by.
//!
//! Nothing is corrected silently: a comparison with a covariate stands beside the one without.

use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

use crate::distribution::t_two_sided;
use crate::estimate::{Estimate, Interval};

/// The interval of a comparison must be this much wider than with the covariate for that to be shown.
const NOTABLY: f64 = 1.1;

/// Standard errors by which the covariate's means of the two sides may differ. Beyond, it may be what the
/// sides do that moves it, and then it explains away what was to be found.
const ALIKE: f64 = 2.0;

/// A comparison at one value of the covariate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AtOneValue {
    /// Second over first, at the covariate's mean.
    pub ratio: Estimate,
    /// Width of the interval without the covariate over that with it.
    pub narrower: f64,
    /// Per cent of the response for a per cent of the covariate.
    pub slope: f64,
}

/// A run: its block, the response, and the covariate; both above 0.
pub type Measured<'a> = (Option<&'a str>, f64, f64);

/// Second over first by analysis of covariance on logarithms: one slope for both sides, or for the
/// differences of pairs. `None` where runs are too few, where the covariate does not vary, where it
/// differs between the sides by more than chance, and where the interval `plain` becomes hardly narrower.
///
/// # Source
/// Analysis of covariance with one covariate, Montgomery, Design and Analysis of Experiments, §15.3.
#[must_use]
pub fn at_one_value(
    before: &[Measured<'_>],
    after: &[Measured<'_>],
    paired: bool,
    plain: &Estimate,
    confidence: f64,
) -> Option<AtOneValue> {
    let fits = |run: &Measured<'_>| run.1 > 0.0 && run.2 > 0.0;
    if !before.iter().chain(after).all(fits) {
        return None;
    }
    let logs = |run: &Measured<'_>| (run.2.ln(), run.1.ln());
    let fit = if paired {
        let pairs: Vec<(f64, f64)> = before
            .iter()
            .filter_map(|run| {
                let block = run.0?;
                let other = after.iter().find(|other| other.0 == Some(block))?;
                let (a, b) = (logs(run), logs(other));
                Some((b.0 - a.0, b.1 - a.1))
            })
            .collect();
        Fit::of_pairs(&pairs)?
    } else {
        let side = |runs: &[Measured<'_>]| runs.iter().map(logs).collect::<Vec<(f64, f64)>>();
        Fit::of_sides(&side(before), &side(after))?
    };
    let half = t_two_sided(confidence, fit.freedom) * fit.standard_error;
    let interval = plain.interval?;
    let without = (interval.high / interval.low).ln() / 2.0;
    (half > 0.0 && without / half >= NOTABLY).then(|| AtOneValue {
        ratio: Estimate::with_interval(
            fit.difference,
            Interval::around(fit.difference, half, confidence),
        )
        .map(f64::exp),
        narrower: without / half,
        slope: fit.slope,
    })
}

/// Least squares on centered logarithms.
struct Fit {
    difference: f64,
    standard_error: f64,
    slope: f64,
    freedom: f64,
}

/// Sums of squares and products around the means.
#[derive(Default)]
struct Sums {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Sums {
    fn of(points: &[(f64, f64)]) -> Self {
        let n = exact_f64(points.len());
        let x = points.iter().map(|p| p.0).sum::<f64>() / n;
        let y = points.iter().map(|p| p.1).sum::<f64>() / n;
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            points.iter().map(|p| of(p.0 - x, p.1 - y)).sum()
        };
        Self { n, x, y, xx: sum(&|a, _| a * a), xy: sum(&|a, b| a * b), yy: sum(&|_, b| b * b) }
    }
}

impl Fit {
    fn of_pairs(pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.len() < 4 {
            return None;
        }
        let all = Sums::of(pairs);
        let freedom = all.n - 2.0;
        let spread = (all.xx / (all.n - 1.0) / all.n).sqrt();
        Self::told(&all, (all.y, all.x), (1.0 / all.n, freedom), spread)
    }

    fn of_sides(before: &[(f64, f64)], after: &[(f64, f64)]) -> Option<Self> {
        if before.len() < 3 || after.len() < 3 {
            return None;
        }
        let (a, b) = (Sums::of(before), Sums::of(after));
        let within = Sums { xx: a.xx + b.xx, xy: a.xy + b.xy, yy: a.yy + b.yy, ..Sums::default() };
        let shares = 1.0 / a.n + 1.0 / b.n;
        let spread = (within.xx / (a.n + b.n - 2.0) * shares).sqrt();
        Self::told(&within, (b.y - a.y, b.x - a.x), (shares, a.n + b.n - 3.0), spread)
    }

    fn told(
        sums: &Sums,
        (y, x): (f64, f64),
        (shares, freedom): (f64, f64),
        spread: f64,
    ) -> Option<Self> {
        if sums.xx.is_nan() || sums.xx <= f64::EPSILON || x.abs() > ALIKE * spread {
            return None;
        }
        let slope = sums.xy / sums.xx;
        let left = (sums.yy - slope * sums.xy).max(0.0) / freedom;
        Some(Self {
            difference: y - slope * x,
            standard_error: (left * (shares + x * x / sums.xx)).sqrt(),
            slope,
            freedom,
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::compare::ratio;

    /// Runs whose response follows the machine's speed, with 10 % of drift and 1 % of its own.
    fn runs(rng: &mut Xoshiro256PlusPlus, mean: f64) -> Vec<(f64, f64)> {
        // Box and Muller.
        let mut normal = || -> f64 {
            let (a, b): (f64, f64) = (rng.random(), rng.random());
            (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        };
        let one = |_| {
            let speed = (0.10 * normal()).exp();
            (mean * speed.powf(-1.0) * (0.01 * normal()).exp(), 50.0 * speed)
        };
        (0..6).map(one).collect()
    }

    fn measured<'a>(runs: &[(f64, f64)], blocks: &'a [String]) -> Vec<Measured<'a>> {
        runs.iter().zip(blocks).map(|(run, block)| (Some(block.as_str()), run.0, run.1)).collect()
    }

    /// 95 % of 400 with a standard error of 1.1 %; where it is refused or no narrower, nothing is counted.
    #[test]
    fn drift_that_the_covariate_sees_is_taken_off_and_intervals_hold() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let blocks: Vec<String> = (0..6).map(|block| block.to_string()).collect();
        for paired in [false, true] {
            let (mut held, mut shown, mut narrower) = (0.0, 0.0, 0.0);
            for _ in 0..400 {
                let (a, b) = (runs(&mut rng, 100.0), runs(&mut rng, 103.0));
                let of = |runs: &[(f64, f64)]| runs.iter().map(|r| r.0).collect::<Vec<f64>>();
                let plain = ratio(&of(&a), &of(&b), 0.95).unwrap();
                let (a, b) = (measured(&a, &blocks), measured(&b, &blocks));
                let Some(found) = at_one_value(&a, &b, paired, &plain, 0.95) else { continue };
                shown += 1.0;
                narrower += found.narrower;
                held += f64::from(u8::from(found.ratio.interval.unwrap().contains(1.03)));
            }
            assert!(shown > 300.0, "{shown}");
            let share = held / shown;
            assert!((share - 0.95).abs() < 4.0 * (0.05 * 0.95 / shown).sqrt(), "{share}");
            assert!(narrower / shown > 4.0, "{}", narrower / shown);
        }
    }

    #[test]
    fn a_covariate_that_says_nothing_or_differs_between_the_sides_is_left_out() {
        let plain = ratio(&[100.0, 101.0, 102.0], &[103.0, 104.0, 105.0], 0.95).unwrap();
        let side = |values: [f64; 3], speeds: [f64; 3]| -> Vec<Measured<'static>> {
            values.into_iter().zip(speeds).map(|(value, speed)| (None, value, speed)).collect()
        };
        let a = side([100.0, 101.0, 102.0], [50.0, 50.0, 50.0]);
        let b = side([103.0, 104.0, 105.0], [50.0, 50.0, 50.0]);
        assert!(at_one_value(&a, &b, false, &plain, 0.95).is_none());
        // One side runs at another speed throughout: it may be what makes the difference.
        let b = side([103.0, 104.0, 105.0], [60.0, 61.0, 62.0]);
        let a = side([100.0, 101.0, 102.0], [50.0, 51.0, 52.0]);
        assert!(at_one_value(&a, &b, false, &plain, 0.95).is_none());
    }
}
