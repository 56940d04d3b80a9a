//! Service demands from utilizations and throughputs.
//!
//! U·m = Σ D·X + D₀ over load points, by least squares with no negative demand, with intervals, and with the condition number that says
//! whether the load points tell the classes apart at all.

use kendall_stats::distribution::{t_p_value, t_two_sided};
use kendall_stats::estimate::{Caveat, Estimate, Interval};
use kendall_stats::sample::median;
use nalgebra::{DMatrix, DVector};
use serde::Serialize;

/// Condition number from which demands are called hard to tell apart.
///
/// # Source
/// Belsley, Kuh and Welsch 1980: from 30 on, collinearity does harm.
const HIGH_CONDITION: f64 = 30.0;
/// Share of zero-load utilization above which demands by U/X alone would mislead.
const NOTABLE_BACKGROUND: f64 = 0.05;

/// A utilization up to this is a full server measured with an error, and taken as 1; beyond it
/// something else is wrong: percent for shares, or too few servers.
pub const MOST_UTILIZATION: f64 = 1.1;

/// Residual over their scale from which Huber's estimate weighs a load point less: it keeps 95 % of the precision of
/// least squares where errors are normal.
///
/// # Source
/// Huber 1981 §4.5; Holland and Welsch 1977.
const HUBER: f64 = 1.345;
/// Standard deviation of a normal distribution over its median absolute deviation.
const DEVIATION: f64 = 1.4826;

/// How much each load point counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Weighting {
    #[default]
    Equal,
    /// One weight a load point, above 0: in proportion to the inverse variance of its error, such as the
    /// length of its measurement.
    Given(Vec<f64>),
    /// Huber's estimate: load points far off the others count less.
    Robust,
}

/// What was measured at one load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPoint {
    /// Busy share of one server, 0 to 1; what was measured up to a tenth above 1 is taken as 1, with
    /// a caveat.
    pub utilization: f64,
    /// Throughput of each class, 1/s.
    pub throughputs_per_s: Vec<f64>,
}

/// How demands are estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Servers m of the resource.
    pub servers: f64,
    /// Estimates the work that is done without load, too (D₀).
    pub background: bool,
    /// Confidence of the intervals.
    pub confidence: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { servers: 1.0, background: false, confidence: 0.95 }
    }
}

/// Demands of a resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DemandFit {
    /// Demand of each class in seconds, in the order of the throughputs.
    pub demands: Vec<Demand>,
    /// Work done without load, in busy servers.
    pub background: Option<Demand>,
    /// Standard error of the residuals, in busy servers; `None` without degrees of freedom.
    pub residual_standard_error: Option<f64>,
    /// Load points less estimated coefficients.
    pub degrees_of_freedom: usize,
    /// Share of the variation of the utilization that the demands explain.
    pub r_squared: Option<f64>,
    /// Largest over smallest singular value of the scaled throughputs.
    pub condition_number: f64,
    /// Measured less fitted busy servers, in the order of the load points.
    pub residuals: Vec<f64>,
    /// Weight of each load point; empty where all count the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f64>,
}

/// A demand with its error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Demand {
    /// The demand, its interval and its caveats.
    pub estimate: Estimate,
    /// Standard error; `None` where it was held at 0 or there are no degrees of freedom.
    pub standard_error: Option<f64>,
    /// Two-sided probability of so large a value if it were 0.
    pub p_value: Option<f64>,
}

/// Measurements that give no demand; an `index` counts from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DemandError {
    #[error("load point {}: {what} is {value}; it must be {expected}", index + 1)]
    Measurement { index: usize, what: &'static str, value: f64, expected: &'static str },
    #[error("{name} is {value}; it must be {expected}")]
    Option { name: &'static str, value: f64, expected: &'static str },
    #[error("load point {} has {have} throughputs, the first has {expected}", index + 1)]
    Classes { index: usize, have: usize, expected: usize },
    #[error(
        "{have} load points for {need} coefficients: measure at {need} different loads at least"
    )]
    TooFew { have: usize, need: usize },
    #[error(
        "the load points do not separate the classes (condition number {condition:.3e}): vary the \
         mix, measure each class alone, or leave out the background"
    )]
    Collinear { condition: f64 },
}

/// Demands of all classes of a resource from several load points.
///
/// # Errors
/// [`DemandError`] for numbers that make no sense, too few load points, or loads whose classes go
/// up and down together.
///
/// # Source
/// Utilization regression: Rolia and Vetland 1995; no negative demands: Lawson and Hanson 1974
/// ch. 23.
///
/// # Example
/// ```
/// use kendall_fit::demands::{LoadPoint, Options, regress};
/// let points: Vec<LoadPoint> = [(0.11, 10.0), (0.19, 20.0), (0.41, 40.0), (0.8, 80.0)]
///     .map(|(utilization, x)| LoadPoint { utilization, throughputs_per_s: vec![x] })
///     .to_vec();
/// let fit = regress(&points, &Options::default()).unwrap();
/// assert!((fit.demands[0].estimate.center - 0.01).abs() < 2e-4);
/// ```
pub fn regress(points: &[LoadPoint], options: &Options) -> Result<DemandFit, DemandError> {
    regress_weighted(points, &Weighting::Equal, options)
}

/// The same with load points that do not all count the same.
///
/// # Errors
/// As [`regress`], and for weights that are not above 0 or not as many as load points.
///
/// # Source
/// Huber 1981 §6.6 for the standard errors of the robust estimate, and §7.8 for the iteration.
///
/// # Example
/// ```
/// use kendall_fit::demands::{LoadPoint, Options, Weighting, regress_weighted};
/// // A backup ran at the fourth load.
/// let points: Vec<LoadPoint> =
///     [(0.11, 10.0), (0.19, 20.0), (0.31, 30.0), (0.95, 40.0), (0.5, 50.0), (0.59, 60.0)]
///         .map(|(utilization, x)| LoadPoint { utilization, throughputs_per_s: vec![x] })
///         .to_vec();
/// let fit = regress_weighted(&points, &Weighting::Robust, &Options::default()).unwrap();
/// assert!((fit.demands[0].estimate.center - 0.01).abs() < 3e-4);
/// assert!(fit.weights[3] < 0.1);
/// ```
pub fn regress_weighted(
    points: &[LoadPoint],
    weighting: &Weighting,
    options: &Options,
) -> Result<DemandFit, DemandError> {
    let classes = check(points, options)?;
    let columns = classes + usize::from(options.background);
    if points.len() < columns {
        return Err(DemandError::TooFew { have: points.len(), need: columns });
    }
    let mut matrix = DMatrix::<f64>::from_element(points.len(), columns, 1.0);
    let mut busy = DVector::<f64>::zeros(points.len());
    for (row, point) in points.iter().enumerate() {
        busy[row] = point.utilization.min(1.0) * options.servers;
        for (column, throughput) in point.throughputs_per_s.iter().enumerate() {
            matrix[(row, column)] = *throughput;
        }
    }
    let mut weights = weights(points, weighting)?;
    let rows = DVector::from_iterator(points.len(), weights.iter().map(|weight| weight.sqrt()));
    busy.component_mul_assign(&rows);
    matrix.column_iter_mut().for_each(|mut column| column.component_mul_assign(&rows));
    // Columns of length 1: units and the size of a class do not count for the condition.
    let lengths: Vec<f64> = matrix.column_iter().map(|column| column.norm()).collect();
    for (mut column, length) in matrix.column_iter_mut().zip(&lengths) {
        if *length > 0.0 {
            column /= *length;
        }
    }
    let condition = condition(&matrix);
    if !(condition.is_finite() && condition < 1e7) {
        return Err(DemandError::Collinear { condition });
    }
    let (mut scaled, mut free) = non_negative(&matrix, &busy);
    let mut variance = None;
    if *weighting == Weighting::Robust {
        (scaled, free, variance) = huber(&matrix, &busy, (scaled, free), &mut weights);
    }
    if *weighting == Weighting::Equal {
        weights.clear();
    }
    let solved = Solved { matrix, busy, lengths, scaled, free, condition, rows, weights, variance };
    Ok(describe(points, options, &solved))
}

/// One weight a load point, of mean 1 where they are given.
fn weights(points: &[LoadPoint], weighting: &Weighting) -> Result<Vec<f64>, DemandError> {
    let Weighting::Given(given) = weighting else { return Ok(vec![1.0; points.len()]) };
    let expected = "a finite number above 0, one a load point";
    let refused =
        |(index, value)| DemandError::Measurement { index, what: "weight", value, expected };
    if let Some(wrong) =
        given.iter().copied().enumerate().find(|(_, w)| !(w.is_finite() && *w > 0.0))
    {
        return Err(refused(wrong));
    }
    if given.len() != points.len() {
        return Err(refused((given.len().min(points.len()), f64::NAN)));
    }
    let mean = given.iter().sum::<f64>() / kendall_units::exact_f64(given.len());
    Ok(given.iter().map(|weight| weight / mean).collect())
}

/// Rounds of Huber's estimate at most.
const MOST_ROUNDS: u32 = 100;

/// Huber's estimate by least squares with weights made of the residuals before, and its variance in the place of that
/// of the residuals; `None` without degrees of freedom.
fn huber(
    matrix: &DMatrix<f64>,
    busy: &DVector<f64>,
    begin: (DVector<f64>, Vec<bool>),
    weights: &mut [f64],
) -> (DVector<f64>, Vec<bool>, Option<f64>) {
    let (mut scaled, mut free) = begin;
    let least = 1e-9 * busy.amax();
    let mut scale = least;
    for _ in 0..MOST_ROUNDS {
        let residuals = busy - matrix * &scaled;
        let middle = median(residuals.iter().map(|residual| residual.abs()).collect());
        scale = (DEVIATION * middle).max(least);
        let mut moved = 0.0_f64;
        for (weight, residual) in weights.iter_mut().zip(residuals.iter()) {
            let new =
                if residual.abs() > HUBER * scale { HUBER * scale / residual.abs() } else { 1.0 };
            moved = moved.max((new - *weight).abs());
            *weight = new;
        }
        if moved < 1e-6 {
            break;
        }
        let rows =
            DVector::from_iterator(weights.len(), weights.iter().map(|weight| weight.sqrt()));
        let mut weighted = matrix.clone();
        weighted.column_iter_mut().for_each(|mut column| column.component_mul_assign(&rows));
        (scaled, free) = non_negative(&weighted, &busy.component_mul(&rows));
    }
    let residuals = busy - matrix * &scaled;
    let (count, columns) = (weights.len(), free.iter().filter(|free| **free).count());
    let inside = residuals.iter().filter(|residual| residual.abs() <= HUBER * scale).count();
    let (n, p) = (kendall_units::exact_f64(count), kendall_units::exact_f64(columns));
    let slope = kendall_units::exact_f64(inside) / n;
    let influence: f64 = residuals.iter().zip(weights.iter()).map(|(r, w)| (r * w).powi(2)).sum();
    let correction = 1.0 + p / n * (1.0 - slope) / slope;
    let variance =
        (count > columns && inside > 0).then(|| (correction / slope).powi(2) * influence / (n - p));
    (scaled, free, variance)
}

fn check(points: &[LoadPoint], options: &Options) -> Result<usize, DemandError> {
    let refuse = |name, value, expected| Err(DemandError::Option { name, value, expected });
    if !(options.servers.is_finite() && options.servers > 0.0) {
        return refuse("servers", options.servers, "a finite number above 0");
    }
    if !(options.confidence > 0.0 && options.confidence < 1.0) {
        return refuse("confidence", options.confidence, "between 0 and 1");
    }
    let classes = points.first().map_or(0, |point| point.throughputs_per_s.len());
    if classes == 0 {
        return Err(DemandError::TooFew { have: points.len(), need: 1 });
    }
    for (index, point) in points.iter().enumerate() {
        let refuse =
            |what, value, expected| Err(DemandError::Measurement { index, what, value, expected });
        if !(0.0..=MOST_UTILIZATION).contains(&point.utilization) {
            let expected = "a share from 0 to 1 of the servers (up to 1.1 is taken for a full server \
                            measured with an error; is it in percent, or are there more servers?)";
            return refuse("utilization", point.utilization, expected);
        }
        if point.throughputs_per_s.len() != classes {
            let have = point.throughputs_per_s.len();
            return Err(DemandError::Classes { index, have, expected: classes });
        }
        for &throughput in &point.throughputs_per_s {
            if !(0.0..1e150).contains(&throughput) {
                return refuse("throughput", throughput, "a finite rate, 0 or above");
            }
        }
    }
    Ok(classes)
}

/// Largest over smallest singular value, by the eigenvalues of the Gram matrix.
fn condition(matrix: &DMatrix<f64>) -> f64 {
    let gram = matrix.transpose() * matrix;
    if gram.diagonal().iter().any(|length| *length <= 0.0) {
        return f64::INFINITY;
    }
    let eigenvalues = gram.symmetric_eigenvalues();
    let least = eigenvalues.min();
    if least > 0.0 { (eigenvalues.max() / least).sqrt() } else { f64::INFINITY }
}

/// Least squares with no negative coefficient: the coefficients, and which are not held at 0.
pub(crate) fn non_negative(
    matrix: &DMatrix<f64>,
    right: &DVector<f64>,
) -> (DVector<f64>, Vec<bool>) {
    let columns = matrix.ncols();
    let mut x = DVector::<f64>::zeros(columns);
    let mut free = vec![false; columns];
    let tolerance = 1e-12 * (matrix.transpose() * right).amax();
    // Each round frees one coefficient for good or finds that none would gain.
    for _ in 0..3 * columns + 3 {
        let gradient = matrix.transpose() * (right - matrix * &x);
        let gain = (0..columns)
            .filter(|i| !free[*i] && gradient[*i] > tolerance)
            .max_by(|a, b| gradient[*a].total_cmp(&gradient[*b]));
        let Some(entering) = gain else { break };
        free[entering] = true;
        loop {
            let Some(full) = least_squares(matrix, right, &free) else {
                free[entering] = false;
                break;
            };
            let negative: Vec<usize> =
                (0..columns).filter(|i| free[*i] && full[*i] <= 0.0).collect();
            if negative.is_empty() {
                x = full;
                break;
            }
            // As far towards it as all stay at 0 or above.
            let share = negative
                .iter()
                .map(|i| x[*i] / (x[*i] - full[*i]))
                .filter(|share| share.is_finite())
                .fold(1.0, f64::min);
            x += (full - &x) * share;
            for i in negative {
                if x[i] <= 1e-14 {
                    x[i] = 0.0;
                    free[i] = false;
                }
            }
        }
    }
    (x, free)
}

fn least_squares(
    matrix: &DMatrix<f64>,
    right: &DVector<f64>,
    free: &[bool],
) -> Option<DVector<f64>> {
    let columns: Vec<usize> = (0..free.len()).filter(|i| free[*i]).collect();
    let part = matrix.select_columns(&columns);
    let qr = part.qr();
    let solved = qr.r().solve_upper_triangular(&(qr.q().transpose() * right))?;
    let mut x = DVector::<f64>::zeros(free.len());
    for (at, column) in columns.iter().enumerate() {
        x[*column] = solved[at];
    }
    x.iter().all(|value| value.is_finite()).then_some(x)
}

struct Solved {
    matrix: DMatrix<f64>,
    busy: DVector<f64>,
    lengths: Vec<f64>,
    scaled: DVector<f64>,
    free: Vec<bool>,
    condition: f64,
    /// What each row was multiplied by.
    rows: DVector<f64>,
    weights: Vec<f64>,
    /// In the place of that of the residuals.
    variance: Option<f64>,
}

fn describe(points: &[LoadPoint], options: &Options, solved: &Solved) -> DemandFit {
    let columns: Vec<usize> = (0..solved.free.len()).filter(|i| solved.free[*i]).collect();
    let residuals = &solved.busy - &solved.matrix * &solved.scaled;
    let degrees = points.len() - columns.len();
    let squares = residuals.norm_squared();
    let plain = (degrees > 0).then(|| squares / kendall_units::exact_f64(degrees));
    let variance = solved.variance.or(plain);
    let part = solved.matrix.select_columns(&columns);
    let inverse = (part.transpose() * &part).try_inverse();
    let classes = points[0].throughputs_per_s.len();
    let coefficient = |column: usize| {
        let center = solved.scaled[column] / solved.lengths[column];
        let at = columns.iter().position(|c| *c == column);
        let error = at.zip(variance).zip(inverse.as_ref()).map(|((at, variance), inverse)| {
            (variance * inverse[(at, at)]).max(0.0).sqrt() / solved.lengths[column]
        });
        let degrees = kendall_units::exact_f64(degrees);
        let mut estimate = Estimate::exact(center);
        estimate.interval = error.map(|error| {
            let half_width = t_two_sided(options.confidence, degrees) * error;
            Interval {
                low: (center - half_width).max(0.0),
                high: center + half_width,
                confidence: options.confidence,
            }
        });
        let doubts = doubts(solved, column, at.is_none(), variance.is_none());
        for text in doubts.into_iter().chain(clipped_note(points)) {
            estimate = estimate.doubt(Caveat::Note { text });
        }
        let t = error.filter(|error| *error > 0.0).map(|error| center / error);
        let p_value = t.map(|t| t_p_value(t, degrees));
        Demand { estimate, standard_error: error, p_value }
    };
    let mean = solved.busy.component_div(&solved.rows).mean();
    // About the best fit of a constant.
    let constant = solved.busy.dot(&solved.rows) / solved.rows.norm_squared();
    let total = (&solved.busy - &solved.rows * constant).norm_squared();
    let mut demands: Vec<Demand> = (0..classes).map(coefficient).collect();
    let background = options.background.then(|| coefficient(classes));
    if let Some(note) = background.as_ref().and_then(|b| background_note(b, mean)) {
        for demand in &mut demands {
            let caveat = Caveat::Note { text: note.clone() };
            demand.estimate = demand.estimate.clone().doubt(caveat);
        }
    }
    DemandFit {
        demands,
        background,
        residual_standard_error: variance.map(f64::sqrt),
        degrees_of_freedom: degrees,
        r_squared: (total > 0.0).then(|| 1.0 - squares / total),
        condition_number: solved.condition,
        residuals: residuals.component_div(&solved.rows).iter().copied().collect(),
        weights: solved.weights.clone(),
    }
}

fn doubts(solved: &Solved, column: usize, held: bool, exact: bool) -> Vec<String> {
    let mut doubts = Vec::new();
    if held {
        doubts.push(
            "least squares would make it negative; it is held at 0, and the others are fitted \
             to that"
                .to_owned(),
        );
    }
    if exact {
        doubts.push("as many coefficients as load points: no error can be estimated".to_owned());
    }
    if solved.condition > HIGH_CONDITION
        && solved.lengths.len() > 1
        && column < solved.lengths.len()
    {
        doubts.push(format!(
            "condition number {:.0} (30 is high): the load points hardly separate the \
             coefficients; vary the mix more",
            solved.condition
        ));
    }
    doubts
}

/// Says which utilizations were taken as 1.
fn clipped_note(points: &[LoadPoint]) -> Option<String> {
    let above: Vec<f64> =
        points.iter().map(|point| point.utilization).filter(|share| *share > 1.0).collect();
    let highest = above.iter().copied().fold(1.0, f64::max);
    (!above.is_empty()).then(|| {
        format!(
            "{} of {} utilizations lie above 1 (up to {highest}) and are taken as 1: no server is \
             busier than all the time",
            above.len(),
            points.len()
        )
    })
}

fn background_note(background: &Demand, mean_busy: f64) -> Option<String> {
    let share = background.estimate.center / mean_busy;
    (share > NOTABLE_BACKGROUND).then(|| {
        format!(
            "{:.0} % of the busy time is there without load; U·m/X at one load would take it for \
             demand",
            100.0 * share
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(utilization: f64, throughputs_per_s: &[f64]) -> LoadPoint {
        LoadPoint { utilization, throughputs_per_s: throughputs_per_s.to_vec() }
    }

    fn near(have: f64, want: f64, tolerance: f64) {
        assert!((have - want).abs() <= tolerance, "{have} for {want}");
    }

    #[test]
    fn exact_measurements_give_the_demands_back() {
        let mixes = [[10.0, 5.0], [20.0, 1.0], [5.0, 30.0], [15.0, 15.0]];
        let points: Vec<LoadPoint> =
            mixes.map(|x| point((0.004 * x[0] + 0.01 * x[1] + 0.1) / 2.0, &x)).to_vec();
        let options = Options { servers: 2.0, background: true, ..Options::default() };
        let fit = regress(&points, &options).unwrap();
        near(fit.demands[0].estimate.center, 0.004, 1e-12);
        near(fit.demands[1].estimate.center, 0.01, 1e-12);
        near(fit.background.unwrap().estimate.center, 0.1, 1e-12);
        assert_eq!(fit.degrees_of_freedom, 1);
    }

    /// Longley-like by hand: x = 1, 2, 3 and y = 1.1, 1.9, 3.0 through the origin give
    /// b = 13.9/14, s² = Σe²/2.
    #[test]
    fn one_class_through_the_origin_is_the_textbook_regression() {
        let points = [point(0.11, &[10.0]), point(0.19, &[20.0]), point(0.30, &[30.0])];
        let fit = regress(&points, &Options::default()).unwrap();
        let b = (0.11 * 10.0 + 0.19 * 20.0 + 0.30 * 30.0) / 1400.0;
        near(fit.demands[0].estimate.center, b, 1e-15);
        let squares: f64 = [(0.11, 10.0), (0.19, 20.0), (0.30, 30.0)]
            .map(|(u, x)| (u - b * x) * (u - b * x))
            .iter()
            .sum();
        near(fit.demands[0].standard_error.unwrap(), (squares / 2.0 / 1400.0).sqrt(), 1e-15);
        // t(0.975, 2) = 4.3027.
        let half_width = fit.demands[0].estimate.interval.unwrap().half_width();
        near(half_width, 4.302_652_73 * (squares / 2.0 / 1400.0).sqrt(), 1e-8);
    }

    #[test]
    fn no_demand_is_negative_and_it_is_said() {
        let points = [
            point(0.10, &[10.0, 1.0]),
            point(0.20, &[20.0, 5.0]),
            point(0.28, &[30.0, 20.0]),
            point(0.37, &[40.0, 35.0]),
        ];
        let fit = regress(&points, &Options::default()).unwrap();
        assert!(fit.demands[1].estimate.center.abs() < 1e-300);
        assert!(fit.demands[1].estimate.caveats[0].to_string().contains("negative"));
        assert_eq!(fit.demands[1].standard_error, None);
    }

    /// Measurements are noisy: one at 103 % of a server does not stop the others.
    #[test]
    fn a_utilization_a_little_above_1_is_taken_as_1_and_said() {
        let points = |last| [point(0.2, &[20.0]), point(0.8, &[80.0]), point(last, &[100.0])];
        let noisy = regress(&points(1.03), &Options::default()).unwrap();
        let full = regress(&points(1.0), &Options::default()).unwrap();
        near(noisy.demands[0].estimate.center, full.demands[0].estimate.center, 1e-15);
        let said = noisy.demands[0].estimate.caveats[0].to_string();
        assert!(said.contains("1 of 3") && said.contains("1.03"), "{said}");
        assert!(full.demands[0].estimate.caveats.is_empty());
        let error = regress(&points(1.2), &Options::default()).unwrap_err().to_string();
        assert!(error.contains("load point 3") && error.contains("percent"), "{error}");
    }

    #[test]
    fn what_gives_no_demand_is_refused() {
        let refused = |points: &[LoadPoint], background| {
            regress(points, &Options { background, ..Options::default() }).unwrap_err()
        };
        assert!(matches!(refused(&[], false), DemandError::TooFew { .. }));
        assert!(matches!(refused(&[point(0.5, &[1.0])], true), DemandError::TooFew { .. }));
        let constant = [point(0.5, &[1.0]), point(0.5, &[1.0]), point(0.5, &[1.0])];
        assert!(matches!(refused(&constant, true), DemandError::Collinear { .. }));
        let together = [point(0.1, &[1.0, 2.0]), point(0.2, &[2.0, 4.0]), point(0.3, &[3.0, 6.0])];
        assert!(matches!(refused(&together, false), DemandError::Collinear { .. }));
        assert!(matches!(refused(&[point(85.0, &[1.0])], false), DemandError::Measurement { .. }));
        assert!(matches!(
            refused(&[point(f64::NAN, &[1.0])], false),
            DemandError::Measurement { .. }
        ));
        assert!(matches!(refused(&[point(0.1, &[0.0])], false), DemandError::Collinear { .. }));
        let uneven = [point(0.1, &[1.0]), point(0.1, &[1.0, 2.0])];
        assert!(matches!(refused(&uneven, false), DemandError::Classes { .. }));
    }

    /// D = 0.01 s with a normal error of 2 %, and every tenth load point with a backup of half a server: least squares
    /// is off by the backup, the robust estimate's interval covers the truth as often as it says (of 300 at 95 %, 285
    /// are expected; 270 is 4 standard deviations below).
    #[test]
    fn a_robust_fit_resists_outliers_and_its_interval_covers() {
        use kendall_stats::distribution::normal_quantile;
        let mut seed = 9_u64;
        let mut uniform = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (kendall_units::exact_f64(seed >> 11) + 0.5) / 9_007_199_254_740_992.0
        };
        let (mut covered, mut plain) = (0, 0);
        for _ in 0..300 {
            let points: Vec<LoadPoint> = (1..=20_u32)
                .map(|row| {
                    let x = 2.0 * f64::from(row);
                    let backup = if row % 10 == 5 { 0.5 } else { 0.0 };
                    let error = 0.02 * normal_quantile(uniform());
                    point((0.01 * x + error + backup).max(0.0), &[x])
                })
                .collect();
            let covers = |fit: &DemandFit| fit.demands[0].estimate.interval.unwrap().contains(0.01);
            let robust =
                regress_weighted(&points, &Weighting::Robust, &Options::default()).unwrap();
            covered += i32::from(covers(&robust));
            plain += i32::from(covers(&regress(&points, &Options::default()).unwrap()));
        }
        assert!(covered >= 270, "{covered}; least squares {plain}");
    }

    /// A load point of weight 4 is four of weight 1.
    #[test]
    fn a_weight_is_a_number_of_load_points() {
        let rows = [(0.12, 10.0), (0.19, 20.0), (0.44, 40.0)];
        let once: Vec<LoadPoint> = rows.iter().map(|(u, x)| point(*u, &[*x])).collect();
        let mut four = once.clone();
        four.extend(std::iter::repeat_n(once[2].clone(), 3));
        let weighting = Weighting::Given(vec![1.0, 1.0, 4.0]);
        let weighted = regress_weighted(&once, &weighting, &Options::default()).unwrap();
        let repeated = regress(&four, &Options::default()).unwrap();
        let center = |fit: &DemandFit| fit.demands[0].estimate.center;
        assert!((center(&weighted) - center(&repeated)).abs() < 1e-15);
        assert!((weighted.residuals[2] - repeated.residuals[2]).abs() < 1e-12);
        for wrong in [vec![1.0, 1.0], vec![1.0, 1.0, 0.0], vec![1.0, f64::NAN, 1.0]] {
            let error = regress_weighted(&once, &Weighting::Given(wrong), &Options::default());
            assert!(error.unwrap_err().to_string().contains("weight"));
        }
    }
}
