//! Laplace transforms of times, and of their residual lives, in forms that do not cancel.
//!
//! Near saturation all depends on 1 − B*(s) at s near 0, where B* itself rounds to 1.
//! The residual life of a time X has the transform r*(s) = (1 − X*(s))/(s·E\[X\]); its distance from
//! 1 is small in the same way as 1 − ρ is, and here it is a sum of small terms, not a difference of
//! large ones.

use crate::Distribution;
use crate::numeric::Complex;

const ONE: Complex = Complex::new(1.0, 0.0);

/// Laplace transform of the distributions that have a smooth one.
pub(super) fn service_transform(service: &Distribution, s: Complex) -> Option<Complex> {
    let stage = |mean: f64| ONE.over(ONE.plus(s.scaled(mean)));
    Some(match service {
        Distribution::Exponential { mean_s } => stage(*mean_s),
        Distribution::Erlang { stages, mean_s } => {
            stage(mean_s / f64::from(*stages)).power(f64::from(*stages))
        }
        Distribution::Gamma { mean_s, scv } => stage(mean_s * scv).power(1.0 / scv),
        Distribution::Hyperexponential { probabilities, means_s } => probabilities
            .iter()
            .zip(means_s)
            .map(|(p, mean)| stage(*mean).scaled(*p))
            .fold(Complex::new(0.0, 0.0), Complex::plus),
        _ => return None,
    })
}

/// 1 − r*(s), r* the transform of the residual life; also at s < 0, up to the first pole. `None`
/// for distributions without a transform in closed form.
pub(super) fn residual_gap(time: &Distribution, s: Complex) -> Option<Complex> {
    Some(match time {
        Distribution::Exponential { mean_s } => stage_gap(s.scaled(*mean_s)),
        Distribution::Deterministic { value_s } => residual_of_constant(s.scaled(*value_s)),
        Distribution::Erlang { stages, mean_s } => gamma_gap(f64::from(*stages), *mean_s, s),
        Distribution::Gamma { mean_s, scv } => gamma_gap(1.0 / scv, *mean_s, s),
        Distribution::Hyperexponential { probabilities, means_s } => {
            let mean = time.mean();
            // The residual life is of branch i with probability p·m/mean, and exponential.
            probabilities
                .iter()
                .zip(means_s)
                .map(|(p, m)| stage_gap(s.scaled(*m)).scaled(p * m / mean))
                .fold(Complex::new(0.0, 0.0), Complex::plus)
        }
        Distribution::Uniform { low_s, high_s } => {
            // 1 − e^(−a)·u(b) with u(b) = (1 − e^(−b))/b, a = s·low and b = s·(high − low).
            let (a, b) = (s.scaled(*low_s), s.scaled(high_s - low_s));
            let (from_low, from_width) = (residual_of_constant(a), residual_of_constant(b));
            let below_low = a.plus(a.times(from_low).scaled(-1.0));
            let sum = a.times(from_low).plus(half_less(b)).plus(below_low.times(from_width));
            sum.over(a.plus(b.scaled(0.5)))
        }
        _ => return None,
    })
}

/// y/(1 + y): an exponential with mean y/s.
fn stage_gap(y: Complex) -> Complex {
    y.over(ONE.plus(y))
}

/// 1 − u·v with u = (1 − e^(−L))/L, v = ln(1 + y)/y, y = s·scale and L = shape·ln(1 + y).
fn gamma_gap(shape: f64, mean: f64, s: Complex) -> Complex {
    let y = s.scaled(mean / shape);
    let from_log = log_gap(y);
    let log = y.plus(y.times(from_log).scaled(-1.0)).scaled(shape);
    let from_exp = residual_of_constant(log);
    from_exp.plus(from_log).plus(from_exp.times(from_log).scaled(-1.0))
}

/// 1 − (1 − e^(−z))/z.
pub(super) fn residual_of_constant(z: Complex) -> Complex {
    if z.re.hypot(z.im) < 1.0 {
        return series(z, 1, |n| -1.0 / f64::from(n + 1));
    }
    let decayed = z.scaled(-1.0).exp();
    z.plus(Complex::new(-1.0, 0.0)).plus(decayed).over(z)
}

/// z/2 less [`residual_of_constant`].
fn half_less(z: Complex) -> Complex {
    if z.re.hypot(z.im) < 1.0 {
        // The series of that function from its second term on, with the other sign.
        return series(z, 2, |n| -1.0 / f64::from(n + 1)).scaled(-1.0);
    }
    z.scaled(0.5).plus(residual_of_constant(z).scaled(-1.0))
}

/// Σ of the terms of z/2! − z²/3! + z³/4! − … from the `first` power on; each term is the one
/// before times z times `ratio` of its power.
fn series(z: Complex, first: u32, ratio: impl Fn(u32) -> f64) -> Complex {
    let mut term = ONE.scaled(-1.0);
    let mut sum = Complex::new(0.0, 0.0);
    for n in 1..=26_u32 {
        term = term.times(z).scaled(ratio(n));
        if n >= first {
            sum = sum.plus(term);
        }
    }
    sum
}

/// 1 − ln(1 + z)/z.
fn log_gap(z: Complex) -> Complex {
    if z.re.hypot(z.im) < 0.3 {
        // z/2 − z²/3 + z³/4 − …
        let mut power = ONE.scaled(-1.0);
        let mut sum = Complex::new(0.0, 0.0);
        for n in 1..=34_u32 {
            power = power.times(z).scaled(-1.0);
            sum = sum.plus(power.scaled(1.0 / f64::from(n + 1)));
        }
        return sum;
    }
    let log = ONE.plus(z).ln();
    ONE.plus(log.over(z).scaled(-1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 − (1 − X*(s))/(s·E[X]) from the transforms as the books write them, where s is so large
    /// that this does not cancel; and E[X²]/(2·E[X])·s for s so small that the rest is nothing.
    #[test]
    fn residual_lives_have_the_transform_of_the_textbook() {
        type Transform = fn(f64) -> f64;
        let cases: [(Distribution, Transform); 5] = [
            (Distribution::exponential(0.5).unwrap(), |s| 1.0 / (1.0 + 0.5 * s)),
            (Distribution::deterministic(0.5).unwrap(), |s| (-0.5 * s).exp()),
            (Distribution::erlang(3, 0.6).unwrap(), |s| (1.0 + 0.2 * s).powi(-3)),
            (Distribution::gamma(0.5, 4.0).unwrap(), |s| (1.0 + 2.0 * s).powf(-0.25)),
            (Distribution::uniform(0.2, 0.8).unwrap(), |s| {
                ((-0.2 * s).exp() - (-0.8 * s).exp()) / (0.6 * s)
            }),
        ];
        for (time, transform) in cases {
            let (mean, scv) = (time.mean(), time.scv());
            for s in [-0.3, 0.1, 0.7, 3.0, 40.0] {
                let want = 1.0 - (1.0 - transform(s)) / (s * mean);
                let have = residual_gap(&time, Complex::new(s, 0.0)).unwrap();
                assert!((have.re - want).abs() < 1e-14, "{time:?} at {s}: {} for {want}", have.re);
                assert!(have.im.abs() < 1e-300);
            }
            for s in [1e-9, 1e-12, -1e-10] {
                let want = s * mean * (1.0 + scv) / 2.0;
                let have = residual_gap(&time, Complex::new(s, 0.0)).unwrap().re;
                assert!((have / want - 1.0).abs() < 1e-7, "{time:?} at {s}: {have} for {want}");
            }
        }
    }

    /// r*(conjugate of s) is the conjugate of r*(s), on both sides of where series take over.
    #[test]
    fn series_and_closed_forms_meet() {
        let time = Distribution::gamma(1.0, 0.4).unwrap();
        for angle in [0.0_f64, 0.7, 1.5, 2.2] {
            for length in [0.2499_f64, 0.7499, 0.7501, 0.999, 1.001, 2.6] {
                let s = Complex::new(length * angle.cos(), length * angle.sin());
                let near = Complex::new(s.re * (1.0 + 1e-9), s.im * (1.0 + 1e-9));
                let (a, b) = (residual_gap(&time, s).unwrap(), residual_gap(&time, near).unwrap());
                assert!((a.re - b.re).hypot(a.im - b.im) < 1e-8, "{length} at {angle}");
                let mirrored = residual_gap(&time, Complex::new(s.re, -s.im)).unwrap();
                assert!((a.re - mirrored.re).hypot(a.im + mirrored.im) < 1e-15);
            }
        }
    }
}
