//! The Universal Scalability Law and its special cases: how throughput grows with load, or with
//! the size of a system, where requests contend and keep each other up to date.
//!
//! X(N) = γN / (1 + α(N − 1) + βN(N − 1)). α is contention (the serial share), β coherency (the
//! cost of agreement, which makes throughput fall beyond a peak), γ the throughput of one. The fit
//! needs no measurement at N = 1.
//!
//! # Source
//! Gunther 2007; three coefficients: Schwartz 2015. β = 0 is Amdahl 1967.

use nalgebra::{DMatrix, DVector};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Iterations of the least-squares search; it needs about ten.
const MOST_ITERATIONS: u32 = 500;
/// Steps in the search for the end of a profile interval.
const PROFILE_STEPS: u32 = 60;

/// The law with its coefficients.
///
/// # Example
/// ```
/// use kendall_queueing::scalability::Usl;
/// let usl = Usl { alpha: 0.02, beta: 0.0005, gamma: 1000.0 };
/// assert!((usl.throughput(1.0) - 1000.0).abs() < 1e-9);
/// assert!((usl.peak_load().unwrap() - (0.98_f64 / 0.0005).sqrt()).abs() < 1e-9);
/// assert!((usl.limit().unwrap() - 50_000.0).abs() < 1e-6);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Usl {
    /// Contention.
    pub alpha: f64,
    /// Coherency.
    pub beta: f64,
    /// Throughput of one, 1/s when the throughputs are.
    pub gamma: f64,
}

impl Usl {
    /// X(N).
    #[must_use]
    pub fn throughput(&self, load: f64) -> f64 {
        self.gamma * load / self.denominator(load)
    }

    fn denominator(&self, load: f64) -> f64 {
        1.0 + self.alpha * (load - 1.0) + self.beta * load * (load - 1.0)
    }

    /// X(N)/(γN): what is left of each one's throughput.
    #[must_use]
    pub fn efficiency(&self, load: f64) -> f64 {
        1.0 / self.denominator(load)
    }

    /// N* = √((1 − α)/β), where throughput is highest; `None` when it never falls. At α ≥ 1 more
    /// than one never helps, and the peak is at 1 or below.
    #[must_use]
    pub fn peak_load(&self) -> Option<f64> {
        (self.beta > 0.0).then(|| ((1.0 - self.alpha).max(0.0) / self.beta).sqrt())
    }

    /// X(N*).
    #[must_use]
    pub fn peak_throughput(&self) -> Option<f64> {
        self.peak_load().map(|load| self.throughput(load))
    }

    /// γ/α: what throughput would approach without coherency (Amdahl's limit); `None` without
    /// contention.
    #[must_use]
    pub fn limit(&self) -> Option<f64> {
        (self.alpha > 0.0).then(|| self.gamma / self.alpha)
    }

    /// N = 1/α, where linear growth γN reaches the limit: beyond it contention costs more than
    /// half. `None` without contention.
    #[must_use]
    pub fn optimal_load(&self) -> Option<f64> {
        (self.alpha > 0.0).then(|| 1.0 / self.alpha)
    }
}

/// Speed-up of N with serial share `serial` when the work grows with N.
///
/// # Source
/// Gustafson 1988: N − s(N − 1).
#[must_use]
pub fn gustafson(load: f64, serial: f64) -> f64 {
    load - serial * (load - 1.0)
}

/// What is fitted, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// γ where it is known; else it is fitted.
    pub gamma: Option<f64>,
    /// Fits contention alone (Amdahl's law): β = 0.
    pub amdahl: bool,
    /// α and β may be below 0, as other programs for non-linear least squares let them.
    pub unbounded: bool,
    /// Confidence of intervals and bands.
    pub confidence: f64,
    /// How the error grows with the throughput.
    pub noise: Noise,
}

impl Default for Options {
    fn default() -> Self {
        Self { gamma: None, amdahl: false, unbounded: false, confidence: 0.95, noise: Noise::Auto }
    }
}

/// How the error of a measurement grows with its throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Noise {
    /// The likelier one; the constant one unless the other is clearly so.
    #[default]
    Auto,
    /// The same at all loads: plain least squares.
    Constant,
    /// A share of the throughput: least squares of relative errors.
    Proportional,
}

/// Gain in the logarithm of the likelihood from which proportional errors are taken: the published
/// data (0.3 for the build cluster) keep the plain least squares that were published.
const CLEARLY_LIKELIER: f64 = 1.0;

/// Rounds of least squares with weights from the last fit; three agree to six digits.
const REWEIGHTINGS: usize = 12;

/// Measurements that the law cannot be fitted to; an `index` counts from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum UslError {
    #[error("measurement {index}: {what} is {}; it must be {expected}", kendall_units::echo(value))]
    Measurement { index: usize, what: &'static str, value: f64, expected: &'static str },
    #[error("{name} is {}; it must be {expected}", kendall_units::echo(value))]
    Option { name: &'static str, value: f64, expected: &'static str },
    #[error(
        "{} at {}: {coefficients} coefficients and their errors need {need} measurements at \
         {coefficients} different loads at least; measure more loads, or fix γ",
        kendall_units::counted(*have, "measurement"),
        kendall_units::counted(*distinct, "different load")
    )]
    TooFew { have: usize, distinct: usize, coefficients: usize, need: usize },
    #[error("every throughput is 0: there is nothing to fit")]
    NoThroughput,
    #[error(
        "{zeros} of {measurements} throughputs are 0: no law passes through them; leave out the loads \
         at which nothing completed, or measure them again"
    )]
    Zeros { zeros: usize, measurements: usize },
    #[error(
        "the loads do not separate the coefficients: measure over a wider range of loads, or fix γ"
    )]
    Indistinct,
}

/// A coefficient with its error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Coefficient {
    /// The estimate.
    pub value: f64,
    /// Standard error; `None` where the value was not estimated (fixed, or held at its bound).
    pub standard_error: Option<f64>,
    /// Value over standard error.
    pub t: Option<f64>,
    /// Two-sided probability of so large a t if the coefficient were 0.
    pub p_value: Option<f64>,
    /// value ± t quantile · standard error.
    pub interval: Option<(f64, f64)>,
    /// The interval by profiling the sum of squares, which follows its curvature; cut at 0 for α
    /// and β. An end is infinite where the data set no limit.
    pub profile_interval: Option<(f64, f64)>,
    /// The least-squares value would be negative; it is held at 0 and the others are fitted to that.
    pub at_bound: bool,
}

/// A prediction with its confidence band.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// N.
    pub load: f64,
    /// X(N).
    pub throughput: f64,
    /// Standard error of the mean throughput.
    pub standard_error: f64,
    /// Band for the mean throughput.
    pub low: f64,
    /// Band for the mean throughput.
    pub high: f64,
    /// X(N)/(γN).
    pub efficiency: f64,
    /// It lies outside the loads that were measured.
    pub extrapolated: bool,
}

/// The fitted law.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UslFit {
    /// The coefficients alone.
    pub usl: Usl,
    /// Contention.
    pub alpha: Coefficient,
    /// Coherency.
    pub beta: Coefficient,
    /// Throughput of one.
    pub gamma: Coefficient,
    /// How the error was taken to grow with the throughput.
    pub noise: Noise,
    /// Standard error of a measurement as a share of its throughput, where errors are such shares.
    pub relative_standard_error: Option<f64>,
    /// √(sum of squared residuals / degrees of freedom).
    pub residual_standard_error: f64,
    /// Measurements less fitted coefficients.
    pub degrees_of_freedom: usize,
    /// Share of the variation of the throughputs that the law explains.
    pub r_squared: f64,
    /// Measured less fitted, in the order of the measurements.
    pub residuals: Vec<f64>,
    /// N*; `None` when throughput never falls, and when it falls from the start.
    pub peak_load: Option<f64>,
    /// X(N*).
    pub peak_throughput: Option<f64>,
    /// γ/α; `None` without contention.
    pub limit: Option<f64>,
    /// 1/α; `None` without contention.
    pub optimal_load: Option<f64>,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Least and greatest load measured.
    pub measured_loads: (f64, f64),
    #[serde(skip)]
    covariance: [[f64; 3]; 3],
}

/// Fits the law to measurements (load N, throughput X) by least squares with α, β ≥ 0 and γ > 0.
///
/// Standard errors come from the Jacobian at the optimum, degrees of freedom are measurements less
/// fitted coefficients. A coefficient that would become negative is held at 0, marked, and
/// carries no standard error; then those of the others hold on condition that it is 0.
///
/// # Errors
/// [`UslError`] for numbers that cannot be measurements, too few of them, or loads that do not tell
/// the coefficients apart.
///
/// # Source
/// Levenberg 1944, Marquardt 1963; start from the linearized law N/X, weighted with X²/N.
///
/// # Example
/// ```
/// use kendall_queueing::scalability::{Options, fit};
/// let measured = [(1.0, 95.0), (4.0, 340.0), (16.0, 900.0), (32.0, 1100.0), (64.0, 990.0)];
/// let fit = fit(&measured, &Options::default()).unwrap();
/// assert!((20.0..64.0).contains(&fit.peak_load.unwrap()));
/// ```
pub fn fit(measured: &[(f64, f64)], options: &Options) -> Result<UslFit, UslError> {
    check(measured, options)?;
    let data = Data { unbounded: options.unbounded, ..Data::new(measured) };
    let mut free = [true, !options.amdahl, options.gamma.is_none()];
    let coefficients = free.iter().filter(|free| **free).count();
    let distinct = data.distinct();
    if measured.len() <= coefficients || distinct < coefficients {
        return Err(UslError::TooFew {
            have: measured.len(),
            distinct,
            coefficients,
            need: coefficients + 1,
        });
    }
    let fixed = [0.0, 0.0, options.gamma.map_or(1.0, |gamma| gamma / data.scale)];
    let wanted = free;
    let (best, at_bound) = data.bounded(fixed, &mut free)?;
    if options.noise == Noise::Constant {
        return Ok(data.describe(best, free, at_bound, options));
    }
    let relative = data.relative(best, fixed, wanted);
    let likelier = relative.as_ref().is_some_and(|(relative, (c, ..))| {
        relative.log_likelihood(*c) - data.log_likelihood(best) > CLEARLY_LIKELIER
    });
    match relative {
        Some((relative, (c, free, at_bound)))
            if likelier || options.noise == Noise::Proportional =>
        {
            Ok(relative.describe(c, free, at_bound, options))
        }
        _ => Ok(data.describe(best, free, at_bound, options)),
    }
}

fn check(measured: &[(f64, f64)], options: &Options) -> Result<(), UslError> {
    for (index, (load, throughput)) in measured.iter().enumerate() {
        let refuse =
            |what, value, expected| Err(UslError::Measurement { index, what, value, expected });
        if !(load.is_finite() && *load > 0.0 && *load < 1e15) {
            return refuse("load", *load, "a finite number above 0");
        }
        if !(throughput.is_finite() && *throughput >= 0.0 && *throughput < 1e150) {
            return refuse("throughput", *throughput, "a finite number, 0 or above");
        }
    }
    let confidence = options.confidence;
    if !(confidence > 0.0 && confidence < 1.0) {
        let expected = "between 0 and 1";
        return Err(UslError::Option { name: "confidence", value: confidence, expected });
    }
    if let Some(gamma) = options.gamma.filter(|gamma| !(gamma.is_finite() && *gamma > 0.0)) {
        let expected = "a finite number above 0";
        return Err(UslError::Option { name: "γ", value: gamma, expected });
    }
    if !measured.is_empty() && measured.iter().all(|(_, throughput)| *throughput <= 0.0) {
        return Err(UslError::NoThroughput);
    }
    // X(N) of the law is above 0 everywhere: one outlier is borne, more turn it into a spike.
    let zeros = measured.iter().filter(|(_, throughput)| *throughput <= 0.0).count();
    if zeros > 0 {
        return Err(UslError::Zeros { zeros, measurements: measured.len() });
    }
    Ok(())
}

/// Measurements with throughputs scaled to 1, so that tolerances mean the same for all units.
struct Data {
    loads: Vec<f64>,
    throughputs: Vec<f64>,
    scale: f64,
    /// On the residuals: 1, or one over the fitted throughput.
    weights: Vec<f64>,
    noise: Noise,
    unbounded: bool,
}

type Coefficients = [f64; 3];

impl Data {
    fn new(measured: &[(f64, f64)]) -> Self {
        let scale = measured.iter().map(|(_, x)| *x).fold(0.0, f64::max);
        Self {
            loads: measured.iter().map(|(n, _)| *n).collect(),
            throughputs: measured.iter().map(|(_, x)| x / scale).collect(),
            scale,
            weights: vec![1.0; measured.len()],
            noise: Noise::Constant,
            unbounded: false,
        }
    }

    /// The same measurements weighted for errors that are shares of the throughput, and the fit to
    /// them; `None` where it does not settle.
    #[expect(clippy::type_complexity, reason = "what a bounded fit gives")]
    fn relative(
        &self,
        start: Coefficients,
        fixed: Coefficients,
        wanted: [bool; 3],
    ) -> Option<(Self, (Coefficients, [bool; 3], [bool; 3]))> {
        let mut weighted = Self {
            loads: self.loads.clone(),
            throughputs: self.throughputs.clone(),
            scale: self.scale,
            weights: Vec::new(),
            noise: Noise::Proportional,
            unbounded: self.unbounded,
        };
        let (mut c, mut found) = (start, None);
        for _ in 0..REWEIGHTINGS {
            weighted.weights = self.loads.iter().map(|n| 1.0 / usl(c).throughput(*n)).collect();
            if !weighted.weights.iter().all(|weight| weight.is_finite() && *weight > 0.0) {
                return None;
            }
            let mut free = wanted;
            let (next, at_bound) = weighted.bounded(fixed, &mut free).ok()?;
            c = next;
            found = Some((c, free, at_bound));
        }
        found.map(|found| (weighted, found))
    }

    /// Normal errors of one size in the weighted residuals, at its most likely value; constants
    /// that all fits share are left out.
    fn log_likelihood(&self, c: Coefficients) -> f64 {
        let count = kendall_units::exact_f64(self.loads.len());
        let mean = (self.squares(c) / count).max(f64::MIN_POSITIVE);
        self.weights.iter().map(|weight| weight.ln()).sum::<f64>() - count / 2.0 * mean.ln()
    }

    fn distinct(&self) -> usize {
        let mut sorted = self.loads.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        sorted.len()
    }

    /// Fits with all free coefficients; those that come out negative are held at 0. Of the ways to
    /// hold them, the one with the least sum of squares is taken.
    fn bounded(
        &self,
        fixed: Coefficients,
        free: &mut [bool; 3],
    ) -> Result<(Coefficients, [bool; 3]), UslError> {
        let wanted = *free;
        let whole = self.search(fixed, wanted)?;
        let bounds_hold = self.unbounded || whole[0] >= 0.0 && whole[1] >= 0.0;
        if bounds_hold && self.positive(whole) {
            return Ok((whole, [false; 3]));
        }
        let mut best: Option<(f64, Coefficients, [bool; 3])> = None;
        for held in [[true, false, false], [false, true, false], [true, true, false]] {
            let rest = [0, 1, 2].map(|i| wanted[i] && !held[i]);
            let held = [0, 1, 2].map(|i| wanted[i] && held[i]);
            let Ok(found) = self.search(fixed, rest) else { continue };
            let feasible = found[0] >= 0.0 && found[1] >= 0.0 && found[2] > 0.0;
            let squares = self.squares(found);
            if feasible && best.is_none_or(|(least, _, _)| squares < least) {
                best = Some((squares, found, held));
            }
        }
        let (_, found, held) = best.ok_or(UslError::Indistinct)?;
        *free = [0, 1, 2].map(|i| wanted[i] && !held[i]);
        Ok((found, held))
    }

    /// The law makes sense at every measured load.
    fn positive(&self, c: Coefficients) -> bool {
        let usl = usl(c);
        c[2] > 0.0 && self.loads.iter().all(|n| usl.denominator(*n) > 0.0)
    }

    fn squares(&self, c: Coefficients) -> f64 {
        let usl = usl(c);
        let residual =
            |((n, x), weight): ((&f64, &f64), &f64)| (weight * (x - usl.throughput(*n))).powi(2);
        let points = self.loads.iter().zip(&self.throughputs).zip(&self.weights);
        let sum: f64 = points.map(residual).sum();
        if self.positive(c) { sum } else { f64::INFINITY }
    }

    /// Weighted linear least squares of N/X = (1 + α(N − 1) + βN(N − 1))/γ.
    fn start(&self, fixed: Coefficients, free: [bool; 3]) -> Coefficients {
        let columns: Vec<usize> = (0..3).filter(|i| free[*i]).collect();
        let known_gamma = (!free[2]).then_some(fixed[2]);
        let rows = self.loads.len();
        let mut a = DMatrix::<f64>::zeros(rows, columns.len());
        let mut b = DVector::<f64>::zeros(rows);
        for (row, (n, x)) in self.loads.iter().zip(&self.throughputs).enumerate() {
            let weight = x * x / n;
            let terms = [n - 1.0, n * (n - 1.0), 1.0];
            for (at, column) in columns.iter().enumerate() {
                a[(row, at)] = weight * terms[*column] / known_gamma.unwrap_or(1.0);
            }
            b[row] = if *x > 0.0 { weight * n / x } else { 0.0 };
            if let Some(gamma) = known_gamma {
                b[row] -= weight / gamma;
            }
        }
        let normal = a.transpose() * &a;
        let solved = normal.lu().solve(&(a.transpose() * b));
        let solved = solved
            .filter(|solved| solved.iter().all(|value| value.is_finite()))
            .unwrap_or_else(|| DVector::<f64>::zeros(columns.len()));
        let mut c = fixed;
        let inverse = columns.iter().position(|i| *i == 2).map(|at| solved[at]);
        let gamma = match (known_gamma, inverse) {
            (Some(gamma), _) => gamma,
            (None, Some(inverse)) if inverse > 0.0 => 1.0 / inverse,
            _ => self.loads.iter().zip(&self.throughputs).map(|(n, x)| x / n).fold(0.0, f64::max),
        };
        for (at, column) in columns.iter().enumerate() {
            if *column < 2 {
                let value = if known_gamma.is_some() { solved[at] } else { solved[at] * gamma };
                c[*column] = if value.is_finite() { value } else { 0.0 };
            }
        }
        c[2] = gamma;
        if self.squares(c).is_finite() { c } else { [c[0].max(0.0), c[1].max(0.0), gamma] }
    }

    /// Levenberg–Marquardt over the free coefficients; α and β may become negative as long as the
    /// law stays positive at the measured loads.
    fn search(&self, fixed: Coefficients, free: [bool; 3]) -> Result<Coefficients, UslError> {
        let columns: Vec<usize> = (0..3).filter(|i| free[*i]).collect();
        if columns.is_empty() {
            return Ok(fixed);
        }
        let mut c = self.start(fixed, free);
        let mut squares = self.squares(c);
        if !squares.is_finite() {
            return Err(UslError::Indistinct);
        }
        let mut damping = 1e-3;
        for _ in 0..MOST_ITERATIONS {
            let (normal, gradient) = self.normal(c, &columns);
            let mut damped = normal.clone();
            for i in 0..columns.len() {
                damped[(i, i)] += damping * normal[(i, i)].max(f64::MIN_POSITIVE);
            }
            let Some(step) = damped.lu().solve(&gradient) else { return Err(UslError::Indistinct) };
            let mut tried = c;
            for (at, column) in columns.iter().enumerate() {
                tried[*column] += step[at];
            }
            let better = self.squares(tried);
            // At the optimum a step changes nothing any more that counts.
            let small = columns
                .iter()
                .enumerate()
                .all(|(at, column)| step[at].abs() <= 1e-13 * (c[*column].abs() + 1e-9));
            if better <= squares {
                let gained = squares - better;
                c = tried;
                squares = better;
                damping = (damping * 0.1).max(1e-18);
                if small || (gained <= 1e-16 * squares && damping < 1e-9) {
                    break;
                }
            } else {
                damping *= 10.0;
                if damping > 1e12 || small {
                    break;
                }
            }
        }
        Ok(c)
    }

    /// JᵀJ and Jᵀr.
    fn normal(&self, c: Coefficients, columns: &[usize]) -> (DMatrix<f64>, DVector<f64>) {
        let size = columns.len();
        let mut normal = DMatrix::<f64>::zeros(size, size);
        let mut gradient = DVector::<f64>::zeros(size);
        let points = self.loads.iter().zip(&self.throughputs).zip(&self.weights);
        for ((n, x), weight) in points {
            let slope = slope(c, *n).map(|slope| weight * slope);
            let residual = weight * (x - usl(c).throughput(*n));
            for (i, a) in columns.iter().enumerate() {
                gradient[i] += slope[*a] * residual;
                for (j, b) in columns.iter().enumerate() {
                    normal[(i, j)] += slope[*a] * slope[*b];
                }
            }
        }
        (normal, gradient)
    }

    /// (JᵀJ)⁻¹ over the free coefficients, 0 elsewhere; by QR of the scaled Jacobian, which loses
    /// half as many digits as the normal equations.
    fn inverse(&self, c: Coefficients, free: [bool; 3]) -> Option<[[f64; 3]; 3]> {
        let columns: Vec<usize> = (0..3).filter(|i| free[*i]).collect();
        let mut jacobian = DMatrix::<f64>::zeros(self.loads.len(), columns.len());
        for (row, n) in self.loads.iter().enumerate() {
            let slope = slope(c, *n);
            for (at, column) in columns.iter().enumerate() {
                jacobian[(row, at)] = self.weights[row] * slope[*column];
            }
        }
        let lengths: Vec<f64> = jacobian.column_iter().map(|column| column.norm()).collect();
        if lengths.iter().any(|length| !(length.is_finite() && *length > 0.0)) {
            return None;
        }
        for (mut column, length) in jacobian.column_iter_mut().zip(&lengths) {
            column /= *length;
        }
        let r = jacobian.qr().r();
        let distinct = r.diagonal().iter().all(|pivot| pivot.abs() > 1e-10);
        let r_inverse = r.try_inverse().filter(|_| distinct)?;
        let product = &r_inverse * r_inverse.transpose();
        let mut inverse = [[0.0; 3]; 3];
        for (i, a) in columns.iter().enumerate() {
            for (j, b) in columns.iter().enumerate() {
                inverse[*a][*b] = product[(i, j)] / (lengths[i] * lengths[j]);
            }
        }
        Some(inverse)
    }

    fn describe(
        &self,
        c: Coefficients,
        free: [bool; 3],
        at_bound: [bool; 3],
        options: &Options,
    ) -> UslFit {
        let fitted = free.iter().filter(|free| **free).count();
        let degrees = self.loads.len() - fitted;
        let df = kendall_units::exact_f64(degrees);
        let squares = self.squares(c);
        let variance = squares / df;
        let inverse = self.inverse(c, free);
        let quantile = t_quantile(options.confidence, df);
        let units = [1.0, 1.0, self.scale];
        let coefficient = |i: usize| {
            let value = c[i] * units[i];
            let error = inverse.filter(|_| free[i]).map(|m| (m[i][i] * variance).sqrt() * units[i]);
            let t = error.filter(|error| *error > 0.0).map(|error| value / error);
            Coefficient {
                value,
                standard_error: error,
                t,
                p_value: t.map(|t| p_value(t, df)),
                interval: error.map(|e| (value - quantile * e, value + quantile * e)),
                profile_interval: self
                    .profile(c, free, i, squares * (1.0 + quantile * quantile / df))
                    .map(|(low, high)| (low * units[i], high * units[i])),
                at_bound: at_bound[i],
            }
        };
        let (alpha, beta, gamma) = (coefficient(0), coefficient(1), coefficient(2));
        let usl = Usl { alpha: alpha.value, beta: beta.value, gamma: gamma.value };
        let residual =
            |(n, x): (&f64, &f64)| (x - crate::scalability::usl(c).throughput(*n)) * self.scale;
        let mean =
            self.throughputs.iter().sum::<f64>() / kendall_units::exact_f64(self.throughputs.len());
        let total: f64 = self.throughputs.iter().map(|x| (x - mean).powi(2)).sum();
        let residuals: Vec<f64> = self.loads.iter().zip(&self.throughputs).map(residual).collect();
        let plain: f64 = residuals.iter().map(|r| (r / self.scale).powi(2)).sum();
        // A peak at no load or fewer than one is none: the curve falls from the start.
        let peak_load = usl.peak_load().filter(|load| *load >= 1.0);
        let mut covariance = inverse.unwrap_or([[f64::NAN; 3]; 3]);
        for (i, row) in covariance.iter_mut().enumerate() {
            for (j, cell) in row.iter_mut().enumerate() {
                *cell *= variance * units[i] * units[j];
            }
        }
        UslFit {
            usl,
            alpha,
            beta,
            gamma,
            noise: self.noise,
            relative_standard_error: (self.noise == Noise::Proportional).then(|| variance.sqrt()),
            residual_standard_error: (plain / df).sqrt() * self.scale,
            degrees_of_freedom: degrees,
            r_squared: if total > 0.0 { 1.0 - plain / total } else { 1.0 },
            residuals,
            peak_load,
            peak_throughput: peak_load.map(|load| usl.throughput(load)),
            limit: usl.limit(),
            optimal_load: usl.optimal_load(),
            confidence: options.confidence,
            measured_loads: (
                self.loads.iter().copied().fold(f64::INFINITY, f64::min),
                self.loads.iter().copied().fold(0.0, f64::max),
            ),
            covariance,
        }
    }

    /// Where the sum of squares, minimized over the other coefficients, reaches `level`.
    fn profile(
        &self,
        best: Coefficients,
        free: [bool; 3],
        which: usize,
        level: f64,
    ) -> Option<(f64, f64)> {
        if !free[which] || level <= 0.0 {
            return None;
        }
        let mut rest = free;
        rest[which] = false;
        let at = |value: f64| {
            let mut fixed = best;
            fixed[which] = value;
            self.search(fixed, rest).map_or(f64::INFINITY, |found| self.squares(found))
        };
        let edge = |outward: f64| {
            let unit = (best[which].abs() * 0.1).max(1e-6);
            let mut inside = best[which];
            let mut step = unit;
            for _ in 0..PROFILE_STEPS {
                let mut outside = inside + outward * step;
                if outward < 0.0 && outside <= 0.0 {
                    outside = 0.0;
                    if which < 2 && at(outside) <= level {
                        return 0.0;
                    }
                }
                if at(outside) > level {
                    for _ in 0..PROFILE_STEPS {
                        let middle = f64::midpoint(inside, outside);
                        if at(middle) > level { outside = middle } else { inside = middle }
                    }
                    return inside;
                }
                inside = outside;
                step *= 1.6;
            }
            outward * f64::INFINITY
        };
        Some((edge(-1.0), edge(1.0)))
    }
}

fn usl(c: Coefficients) -> Usl {
    Usl { alpha: c[0], beta: c[1], gamma: c[2] }
}

/// Derivatives of X(N) with respect to α, β, γ.
fn slope(c: Coefficients, load: f64) -> [f64; 3] {
    let denominator = usl(c).denominator(load);
    let common = -c[2] * load / (denominator * denominator);
    [common * (load - 1.0), common * load * (load - 1.0), load / denominator]
}

fn t_quantile(confidence: f64, degrees: f64) -> f64 {
    let p = f64::midpoint(1.0, confidence);
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::INFINITY, |t| t.inverse_cdf(p))
}

fn p_value(t: f64, degrees: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees).map_or(1.0, |d| 2.0 * d.cdf(-t.abs()))
}

impl UslFit {
    /// X(N) with the confidence band of the mean; delta method, t with the residual degrees of
    /// freedom.
    ///
    /// # Errors
    /// [`UslError::Option`] when the load is not a finite number above 0.
    pub fn predict(&self, load: f64) -> Result<Prediction, UslError> {
        if !(load.is_finite() && load > 0.0) {
            let expected = "a finite number above 0";
            return Err(UslError::Option { name: "load", value: load, expected });
        }
        let c = [self.usl.alpha, self.usl.beta, self.usl.gamma];
        let slope = slope(c, load);
        let mut variance = 0.0;
        for (i, a) in slope.iter().enumerate() {
            for (j, b) in slope.iter().enumerate() {
                variance += a * b * self.covariance[i][j];
            }
        }
        let standard_error = variance.max(0.0).sqrt();
        let df = kendall_units::exact_f64(self.degrees_of_freedom);
        let half_width = t_quantile(self.confidence, df) * standard_error;
        let throughput = self.usl.throughput(load);
        Ok(Prediction {
            load,
            throughput,
            standard_error,
            low: throughput - half_width,
            high: throughput + half_width,
            efficiency: self.usl.efficiency(load),
            extrapolated: load < self.measured_loads.0 || load > self.measured_loads.1,
        })
    }
}
