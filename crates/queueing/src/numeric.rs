//! Arithmetic that neither overflows nor cancels where the textbook form does.

use kendall_units::exact_f64;
use statrs::function::gamma::ln_gamma;

/// ln(Σ exp(xᵢ)); −∞ for nothing.
pub(crate) fn log_sum_exp(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let top = values.clone().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        return top;
    }
    top + values.map(|x| (x - top).exp()).sum::<f64>().ln()
}

/// ln(n!).
pub(crate) fn ln_factorial(n: u64) -> f64 {
    ln_gamma(exact_f64(n) + 1.0)
}

/// (1 − e^(−x))/x, which is 1 at 0.
pub(crate) fn one_minus_exp_over(x: f64) -> f64 {
    if x.abs() < 1e-8 { 1.0 - x / 2.0 } else { -(-x).exp_m1() / x }
}

/// The probabilities of a Poisson variable around its mode, as (first index, probabilities); what
/// is left out is below 1e-17 in all. They are made from their ratios and normed, so that no
/// large logarithms cancel.
pub(crate) fn poisson_window(mean: f64) -> (u64, Vec<f64>) {
    if mean <= 0.0 {
        return (0, vec![1.0]);
    }
    let mode = kendall_units::whole_u64(mean);
    let mut below = Vec::new();
    let mut term = 1.0;
    let mut n = mode;
    while n > 0 && term > 1e-19 {
        term *= exact_f64(n) / mean;
        n -= 1;
        below.push(term);
    }
    let first = n;
    let mut terms: Vec<f64> = below.into_iter().rev().collect();
    terms.push(1.0);
    let mut term = 1.0;
    let mut n = mode;
    while term > 1e-19 {
        n += 1;
        term *= mean / exact_f64(n);
        terms.push(term);
    }
    let sum: f64 = terms.iter().sum();
    for term in &mut terms {
        *term /= sum;
    }
    (first, terms)
}

/// Where the falling function `survival` comes down to `level`, to about 1e-14 relative; `scale`
/// is a time of the right order. `None` when it never does within 1e18 scales.
pub(crate) fn falls_to(survival: impl Fn(f64) -> f64, level: f64, scale: f64) -> Option<f64> {
    if survival(0.0) <= level {
        return Some(0.0);
    }
    let mut high = if scale > 0.0 && scale.is_finite() { scale } else { 1.0 };
    let mut low = 0.0;
    for _ in 0..60 {
        if survival(high) <= level {
            break;
        }
        low = high;
        high *= 2.0;
    }
    if survival(high) > level {
        return None;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if high - low <= 2e-15 * high || middle <= low || middle >= high {
            break;
        }
        if survival(middle) > level { low = middle } else { high = middle }
    }
    Some(f64::midpoint(low, high))
}

/// A complex number, for transforms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Complex {
    pub(crate) re: f64,
    pub(crate) im: f64,
}

impl Complex {
    pub(crate) const fn new(re: f64, im: f64) -> Self {
        Self { re, im }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self::new(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)
    }

    pub(crate) fn over(self, other: Self) -> Self {
        let norm = other.re * other.re + other.im * other.im;
        Self::new(
            (self.re * other.re + self.im * other.im) / norm,
            (self.im * other.re - self.re * other.im) / norm,
        )
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self::new(self.re + other.re, self.im + other.im)
    }

    pub(crate) fn scaled(self, by: f64) -> Self {
        Self::new(self.re * by, self.im * by)
    }

    /// e^z.
    pub(crate) fn exp(self) -> Self {
        let length = self.re.exp();
        // A real argument stays real also where e^z is infinite.
        if self.im == 0.0 {
            return Self::new(length, 0.0);
        }
        Self::new(length * self.im.cos(), length * self.im.sin())
    }

    /// ln z, principal branch.
    pub(crate) fn ln(self) -> Self {
        Self::new(self.re.hypot(self.im).ln(), self.im.atan2(self.re))
    }

    /// z^x for a real exponent, principal branch.
    pub(crate) fn power(self, x: f64) -> Self {
        let length = self.re.hypot(self.im).powf(x);
        let angle = self.im.atan2(self.re) * x;
        Self::new(length * angle.cos(), length * angle.sin())
    }
}

/// Value at `t` > 0 of the function whose Laplace transform is `transform`, by Fourier series with
/// Euler summation; about 1e-9 for smooth functions bounded by 1.
///
/// # Source
/// Abate and Whitt 1995 (`docs/references.md`, \[AW95\]).
pub(crate) fn invert_laplace(transform: impl Fn(Complex) -> Complex, t: f64) -> f64 {
    const A: f64 = 21.0;
    const TERMS: u32 = 40;
    const EULER: u32 = 14;
    let h = std::f64::consts::PI / t;
    let x = A / (2.0 * t);
    let mut sum = transform(Complex::new(x, 0.0)).re / 2.0;
    let term = |k: u32| {
        let value = transform(Complex::new(x, f64::from(k) * h)).re;
        if k.is_multiple_of(2) { value } else { -value }
    };
    for k in 1..=TERMS {
        sum += term(k);
    }
    let mut average = 0.0;
    let mut weight = 0.5_f64.powi(EULER.cast_signed());
    for k in 0..=EULER {
        average += weight * sum;
        sum += term(TERMS + k + 1);
        weight *= f64::from(EULER - k) / f64::from(k + 1);
    }
    average * (A / 2.0).exp() / t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inversion_finds_an_exponential() {
        // 1/(s+1) ↔ e^(−t).
        let one = Complex::new(1.0, 0.0);
        for t in [0.1, 1.0, 5.0] {
            let value = invert_laplace(|s| one.over(s.plus(one)), t);
            assert!((value - (-t).exp()).abs() < 1e-8, "{t}: {value}");
        }
    }

    #[test]
    fn poisson_probabilities_add_to_one_and_have_the_mean() {
        for mean in [1e-3, 0.7, 30.0, 1e5] {
            let (first, terms) = poisson_window(mean);
            let average: f64 =
                terms.iter().zip(first..).map(|(p, n)| p * exact_f64(n)).sum::<f64>();
            assert!((average - mean).abs() < 1e-12 * mean, "{mean}: {average}");
        }
    }

    #[test]
    fn log_sums_do_not_overflow() {
        let sum = log_sum_exp([1e4, 1e4].into_iter());
        assert!((sum - 1e4 - 2.0_f64.ln()).abs() < 1e-12);
    }
}
