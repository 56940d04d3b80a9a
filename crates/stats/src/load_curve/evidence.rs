//! The runs of a curve, and the posterior over a set of shapes.

use kendall_units::{exact_f64, whole_u64};

use crate::distribution::{f_p_value, t_quantile};
use crate::estimate::{Estimate, Interval};

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurveRun {
    /// N of a closed loop, λ of an open one.
    pub load: f64,
    /// X.
    pub throughput_per_s: f64,
    /// The variance of an undisturbed run over that of this one: 1, or less.
    pub weight: f64,
}

/// How the throughput depends on the load, up to its scale.
pub trait Shape {
    /// ln X at a load, up to a constant.
    fn height(&self, load: f64) -> f64;
    /// How likely it is before any run; sums need not be 1.
    fn prior(&self) -> f64;
}

/// What is believed of the scatter of runs before any was made: so much, worth so many runs.
const SCATTER: f64 = 0.03;
const SCATTER_RUNS: f64 = 1.0;
/// Standard deviation of the trend over the whole time, in standard deviations of a run.
const TREND: f64 = 4.0;
/// Variance of what a load differs from its shape, over that of a run, and how likely each is.
const MISFIT: [(f64, f64); 3] = [(0.0, 0.6), (0.3, 0.25), (1.5, 0.15)];
/// Powers of the load with which the scatter grows, and how likely each is.
const SCATTER_POWERS: [(f64, f64); 7] =
    [(-0.9, 0.03), (-0.6, 0.09), (-0.3, 0.2), (0.0, 0.36), (0.3, 0.2), (0.6, 0.09), (0.9, 0.03)];
/// Parameters of a shape that cost degrees of freedom where a run is judged.
const PARAMETERS: f64 = 3.0;
/// Chance that a run of a study without any is taken to stand out.
const FALSE_ALARM: f64 = 0.05;
/// Standard deviations at which a run that stands out is counted: it widens, and does not decide.
const BOUNDED: f64 = 2.5;
/// What the most disturbed run weighs: nothing would be no run.
const LEAST_WEIGHT: f64 = 1e-4;

#[derive(Debug, Clone, Copy)]
struct Row {
    level: usize,
    /// ln X.
    log: f64,
    /// Place in time, from −½ to ½.
    time: f64,
    weight: f64,
}

/// Runs that can be fitted.
#[derive(Debug, Clone)]
pub struct Evidence {
    levels: Vec<f64>,
    rows: Vec<Row>,
}

impl Evidence {
    /// Of runs in the order of time; `None` for one load, for what is not positive, and for runs
    /// that do not say how they scatter: fewer than six, none of two loads repeated.
    #[must_use]
    pub fn of(runs: &[CurveRun]) -> Option<Self> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !runs.iter().all(|run| positive(run.load) && positive(run.throughput_per_s)) {
            return None;
        }
        let mut levels: Vec<f64> = runs.iter().map(|run| run.load).collect();
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        let repeated = runs.len().saturating_sub(levels.len());
        if levels.len() < 2 || (repeated < 2 && runs.len() < 6) {
            return None;
        }
        let last = exact_f64(runs.len() - 1);
        let row = |(place, run): (usize, &CurveRun)| Row {
            level: levels.iter().position(|level| level.total_cmp(&run.load).is_eq()).unwrap_or(0),
            log: run.throughput_per_s.ln(),
            time: exact_f64(place) / last - 0.5,
            weight: run.weight.clamp(LEAST_WEIGHT, 1.0),
        };
        Some(Self { rows: runs.iter().enumerate().map(row).collect(), levels: levels.clone() })
    }

    /// The loads that were run, rising.
    #[must_use]
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// ln n̄, at which the scatter is stated.
    fn middle(&self) -> f64 {
        let logs = self.rows.iter().map(|row| self.levels[row.level].ln());
        logs.sum::<f64>() / exact_f64(self.rows.len())
    }

    /// Finds the runs that stand out from all others under every shape, and lets them weigh less. At
    /// most a quarter: more are no disturbance, but how the system is.
    pub fn weigh_outliers<S: Shape>(&mut self, shapes: &[S]) -> Vec<usize> {
        let heights = self.heights(shapes);
        let mut found = Vec::new();
        while found.len() < self.rows.len() / 4 {
            let Some((place, squared)) = self.most_outlying(&heights, &found) else { break };
            self.rows[place].weight *= (BOUNDED * BOUNDED / squared).min(1.0);
            found.push(place);
        }
        found.sort_unstable();
        found
    }

    /// The run whose deletion explains most, where that is significant, with the square of its
    /// deleted residual in standard deviations.
    fn most_outlying(&self, heights: &[Vec<f64>], known: &[usize]) -> Option<(usize, f64)> {
        let count = exact_f64(self.rows.len() - known.len());
        let degrees = count - 3.0 - PARAMETERS + SCATTER_RUNS;
        if degrees < 1.0 {
            return None;
        }
        let mut whole = f64::INFINITY;
        let mut without = vec![f64::INFINITY; self.rows.len()];
        for (power, _) in SCATTER_POWERS {
            let scatter = Scatter::of(self, 0.0, power);
            for heights in heights {
                let fitted = scatter.fit(heights);
                whole = whole.min(fitted.squares);
                for ((without, row), weight) in
                    without.iter_mut().zip(&self.rows).zip(&scatter.of_rows)
                {
                    let explained = row.log - heights[row.level];
                    let residual = explained - fitted.center - fitted.trend * row.time;
                    let leverage = weight * scatter.leverage(row.time);
                    let squares = weight * residual * residual / (1.0 - leverage).max(0.05);
                    *without = without.min(fitted.squares - squares);
                }
            }
        }
        let squared = |place: usize| {
            let rest = without[place].max(1e-12);
            (whole - rest).max(0.0) / (rest / degrees)
        };
        let rest = (0..self.rows.len()).filter(|place| !known.contains(place));
        let worst = rest.max_by(|a, b| squared(*a).total_cmp(&squared(*b)))?;
        let chance = count * f_p_value(squared(worst), 1.0, degrees);
        (chance < FALSE_ALARM).then(|| (worst, squared(worst)))
    }

    fn heights<S: Shape>(&self, shapes: &[S]) -> Vec<Vec<f64>> {
        let of = |shape: &S| self.levels.iter().map(|load| shape.height(*load)).collect();
        shapes.iter().map(of).collect()
    }

    /// How likely each shape is, as a logarithm, to see where to look closer.
    #[must_use]
    pub fn log_weights<S: Shape>(&self, shapes: &[S]) -> Vec<f64> {
        let heights = self.heights(shapes);
        let mut weights = vec![f64::NEG_INFINITY; shapes.len()];
        for (power, likely) in SCATTER_POWERS {
            let scatter = Scatter::of(self, MISFIT[1].0, power);
            for (weight, heights) in weights.iter_mut().zip(&heights) {
                *weight =
                    weight.max(self.likelihood(&scatter, &scatter.fit(heights)) + likely.ln());
            }
        }
        weights
    }

    fn degrees(&self) -> f64 {
        exact_f64(self.rows.len()) - 1.0 + SCATTER_RUNS
    }

    fn likelihood(&self, scatter: &Scatter, fitted: &Fitted) -> f64 {
        -0.5 * self.degrees() * fitted.squares.ln() - scatter.half_log_determinant
    }

    /// What the runs say of shapes.
    #[must_use]
    pub fn posterior<S: Shape>(&self, shapes: Vec<S>) -> Posterior<S> {
        let heights = self.heights(&shapes);
        let degrees = self.degrees();
        let mut parts = Vec::new();
        for (misfit, likely) in MISFIT {
            for (power, also) in SCATTER_POWERS {
                let scatter = Scatter::of(self, misfit, power);
                let before = (likely * also).ln();
                for (shape, heights) in heights.iter().enumerate() {
                    let fitted = scatter.fit(heights);
                    parts.push(Part {
                        shape,
                        power,
                        weight: before
                            + shapes[shape].prior().ln()
                            + self.likelihood(&scatter, &fitted),
                        misfit,
                        now: 0.5 * fitted.trend,
                        of_now: scatter.leverage(0.5),
                        center: fitted.center,
                        deviation: (fitted.squares / degrees * scatter.of_center).sqrt(),
                        variance: fitted.squares / degrees,
                    });
                }
            }
        }
        Posterior { parts: kept(parts), shapes, degrees }
    }
}

/// The parts that hold nearly all of the weight, of sum 1; before, weights are logarithms.
fn kept(mut parts: Vec<Part>) -> Vec<Part> {
    const NEARLY_ALL: f64 = 0.998;
    let most = parts.iter().map(|part| part.weight).fold(f64::NEG_INFINITY, f64::max);
    parts.retain(|part| part.weight > most - 10.0);
    for part in &mut parts {
        part.weight = (part.weight - most).exp();
    }
    parts.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let all: f64 = parts.iter().map(|part| part.weight).sum();
    let mut so_far = 0.0;
    parts.retain(|part| {
        let keep = so_far < NEARLY_ALL * all;
        so_far += part.weight;
        keep
    });
    let all: f64 = parts.iter().map(|part| part.weight).sum();
    for part in &mut parts {
        part.weight /= all;
    }
    parts
}

/// Runs under one assumption of how they scatter, ready to be fitted by any shape.
struct Scatter {
    /// y'Wy, with what is believed before.
    squares: f64,
    /// X'Wy.
    columns: [f64; 2],
    /// G'Wy of each level.
    of_levels: Vec<f64>,
    /// G'WG, which is diagonal.
    weights: Vec<f64>,
    /// X'WG.
    both: Vec<[f64; 2]>,
    /// (X'WX + prior)⁻¹.
    inverse: [[f64; 2]; 2],
    half_log_determinant: f64,
    /// Variance of the scale over σ².
    of_center: f64,
    /// 1/variance of each run, over σ².
    of_rows: Vec<f64>,
}

struct Fitted {
    squares: f64,
    center: f64,
    trend: f64,
}

impl Scatter {
    fn of(runs: &Evidence, misfit: f64, power: f64) -> Self {
        let log = |row: &Row| runs.levels[row.level].ln();
        let middle = runs.middle();
        // Precision of a run. The product over runs is that of the weights alone.
        let precision = |row: &Row| row.weight * (-2.0 * power * (log(row) - middle)).exp();
        let levels = runs.levels.len();
        let mut sums = vec![0.0; levels];
        let mut y = vec![0.0; levels];
        let mut t = vec![0.0; levels];
        let (mut squares, mut matrix) = (SCATTER_RUNS * SCATTER * SCATTER, [[0.0; 2]; 2]);
        let mut columns = [0.0; 2];
        matrix[1][1] = 1.0 / (TREND * TREND);
        for row in &runs.rows {
            let p = precision(row);
            sums[row.level] += p;
            y[row.level] += p * row.log;
            t[row.level] += p * row.time;
            squares += p * row.log * row.log;
            columns[0] += p * row.log;
            columns[1] += p * row.log * row.time;
            matrix[0][0] += p;
            matrix[0][1] += p * row.time;
            matrix[1][1] += p * row.time * row.time;
        }
        let mut half_log_determinant = 0.0;
        let (mut of_levels, mut weights, mut both) = (Vec::new(), Vec::new(), Vec::new());
        for level in 0..levels {
            // What the runs of a load have in common, by Sherman and Morrison.
            let common = misfit / (1.0 + misfit * sums[level]);
            half_log_determinant += 0.5 * (misfit * sums[level]).ln_1p();
            squares -= common * y[level] * y[level];
            columns[0] -= common * sums[level] * y[level];
            columns[1] -= common * t[level] * y[level];
            matrix[0][0] -= common * sums[level] * sums[level];
            matrix[0][1] -= common * sums[level] * t[level];
            matrix[1][1] -= common * t[level] * t[level];
            let left = 1.0 - common * sums[level];
            of_levels.push(left * y[level]);
            weights.push(left * sums[level]);
            both.push([left * sums[level], left * t[level]]);
        }
        let determinant = matrix[0][0] * matrix[1][1] - matrix[0][1] * matrix[0][1];
        half_log_determinant += 0.5 * determinant.ln();
        let inverse = [
            [matrix[1][1] / determinant, -matrix[0][1] / determinant],
            [-matrix[0][1] / determinant, matrix[0][0] / determinant],
        ];
        let of_center = inverse[0][0];
        Self {
            squares,
            columns,
            of_levels,
            weights,
            both,
            inverse,
            half_log_determinant,
            of_center,
            of_rows: runs.rows.iter().map(precision).collect(),
        }
    }

    fn fit(&self, heights: &[f64]) -> Fitted {
        let (mut squares, mut columns) = (self.squares, self.columns);
        for (level, height) in heights.iter().enumerate() {
            squares += height * (self.weights[level] * height - 2.0 * self.of_levels[level]);
            columns[0] -= self.both[level][0] * height;
            columns[1] -= self.both[level][1] * height;
        }
        let of = |row: [f64; 2]| row[0] * columns[0] + row[1] * columns[1];
        let (center, trend) = (of(self.inverse[0]), of(self.inverse[1]));
        let explained = center * columns[0] + trend * columns[1];
        Fitted { squares: (squares - explained).max(1e-12), center, trend }
    }

    /// x'(X'WX)⁻¹x of a run at a time.
    fn leverage(&self, time: f64) -> f64 {
        self.inverse[0][0] + 2.0 * time * self.inverse[0][1] + time * time * self.inverse[1][1]
    }
}

/// One shape under one assumption of the scatter.
#[derive(Debug, Clone, Copy)]
struct Part {
    shape: usize,
    power: f64,
    misfit: f64,
    /// The trend at the end of the time, and the variance of the scale then, over σ².
    now: f64,
    of_now: f64,
    weight: f64,
    /// The scale, as t around its center.
    center: f64,
    deviation: f64,
    /// σ².
    variance: f64,
}

/// What the runs say of shapes.
#[derive(Debug)]
pub struct Posterior<S> {
    parts: Vec<Part>,
    shapes: Vec<S>,
    degrees: f64,
}

impl<S: Shape> Posterior<S> {
    /// Largest relative difference, at a load, between the likeliest of some shapes and the mean of
    /// the runs; infinite where none of them is left.
    #[must_use]
    pub fn worst_error(&self, runs: &Evidence, of: impl Fn(usize) -> bool) -> f64 {
        let Some(best) = self.parts.iter().find(|part| of(part.shape)) else {
            return f64::INFINITY;
        };
        let error = |(level, load): (usize, &f64)| {
            let rows = || runs.rows.iter().filter(|row| row.level == level);
            let weight: f64 = rows().map(|row| row.weight).sum();
            let mean = rows().map(|row| row.weight * row.log).sum::<f64>() / weight;
            ((best.center + self.shapes[best.shape].height(*load) - mean).exp() - 1.0).abs()
        };
        runs.levels.iter().enumerate().map(error).fold(0.0, f64::max)
    }
}

impl<S: Shape> Posterior<S> {
    /// X of one more run at a load, right after the others: median and prediction interval.
    #[must_use]
    pub fn run_at(&self, runs: &Evidence, load: f64, confidence: f64) -> Estimate {
        // Beyond the loads that were run the scatter is at most what it is at twice their ends.
        let ends = [runs.levels[0], runs.levels[runs.levels.len() - 1]];
        let far = load.clamp(0.5 * ends[0], 2.0 * ends[1]).ln() - runs.middle();
        self.spread(confidence, |part| {
            let of_run = (2.0 * part.power * far).exp() + part.misfit;
            let deviation = (part.variance * (part.of_now + of_run)).sqrt();
            (part.center + part.now + self.shapes[part.shape].height(load), deviation)
        })
    }
}

impl<S> Posterior<S> {
    /// All shapes, likely or not; other functions call them by their place here.
    #[must_use]
    pub fn shapes(&self) -> &[S] {
        &self.shapes
    }

    /// Places of the shapes that are not ruled out.
    pub fn likely(&self) -> impl Iterator<Item = usize> + '_ {
        self.parts.iter().map(|part| part.shape)
    }

    /// Something of each shape that is not ruled out; of the others, the default.
    pub(super) fn map<T: Clone + Default>(&self, of: impl Fn(&S) -> T) -> Vec<T> {
        let mut mapped = vec![None; self.shapes.len()];
        for part in &self.parts {
            if mapped[part.shape].is_none() {
                mapped[part.shape] = Some(of(&self.shapes[part.shape]));
            }
        }
        mapped.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Probability of what holds of some shapes.
    #[must_use]
    pub fn probability(&self, holds: impl Fn(usize) -> bool) -> f64 {
        self.parts.iter().filter(|part| holds(part.shape)).map(|part| part.weight).sum()
    }

    /// A number of the shape alone: median and interval.
    #[must_use]
    pub fn estimate(&self, confidence: f64, of: impl Fn(usize) -> f64) -> Estimate {
        let values: Vec<(f64, f64)> =
            self.parts.iter().map(|part| (of(part.shape), part.weight)).collect();
        quantiles(&values, confidence)
    }

    /// e to the scale and a height of the shape: median and interval.
    #[must_use]
    pub fn level(&self, confidence: f64, height: impl Fn(usize) -> f64) -> Estimate {
        self.spread(confidence, |part| (part.center + height(part.shape), part.deviation))
    }

    /// e to what t around a center with a deviation is, of each part.
    fn spread(&self, confidence: f64, of: impl Fn(&Part) -> (f64, f64)) -> Estimate {
        const NODES: u32 = 41;
        // Evenly over the probability, with ends that reach as far as any interval.
        let nodes: Vec<(f64, f64)> = (0..NODES)
            .map(|place| {
                let end = |place: u32| {
                    let u = f64::from(place) / f64::from(NODES);
                    // Finer towards the ends.
                    u * u * (3.0 - 2.0 * u)
                };
                let (from, to) = (end(place), end(place + 1));
                (t_quantile(f64::midpoint(from, to), self.degrees), to - from)
            })
            .collect();
        let values = self.parts.iter().flat_map(|part| {
            let (center, deviation) = of(part);
            nodes.iter().map(move |(t, weight)| (center + t * deviation, part.weight * weight))
        });
        quantiles(&values.collect::<Vec<_>>(), confidence).map(f64::exp)
    }

    /// σ: the standard deviation of ln X of a run at the middle load.
    #[must_use]
    pub fn scatter(&self) -> f64 {
        self.parts.iter().map(|part| part.weight * part.variance).sum::<f64>().sqrt()
    }

    /// Power of the load with which the scatter grows.
    #[must_use]
    pub fn scatter_power(&self, confidence: f64) -> Estimate {
        let values: Vec<(f64, f64)> =
            self.parts.iter().map(|part| (part.power, part.weight)).collect();
        quantiles(&values, confidence)
    }
}

/// Median and interval of weighted values, from their histogram: finer than any of them is known.
fn quantiles(values: &[(f64, f64)], confidence: f64) -> Estimate {
    const BINS: usize = 4_000;
    let low = values.iter().map(|(value, _)| *value).fold(f64::INFINITY, f64::min);
    let high = values.iter().map(|(value, _)| *value).fold(f64::NEG_INFINITY, f64::max);
    let bins = exact_f64(BINS);
    let mut weights = vec![0.0; BINS];
    let width = (high - low).max(f64::MIN_POSITIVE);
    for (value, weight) in values {
        let bin = whole_u64(((value - low) / width * bins).floor().clamp(0.0, bins - 1.0));
        weights[usize::try_from(bin).unwrap_or(0)] += weight;
    }
    let all: f64 = weights.iter().sum();
    let at = |probability: f64| {
        let mut so_far = 0.0;
        for (bin, weight) in weights.iter().enumerate() {
            if so_far + weight >= probability * all {
                let share = (probability * all - so_far) / weight.max(f64::MIN_POSITIVE);
                // All of a bin may be one value, such as an end of the range.
                let share = if bin == 0 {
                    0.0
                } else if bin + 1 == BINS {
                    1.0
                } else {
                    share
                };
                return low + (exact_f64(bin) + share) / bins * (high - low);
            }
            so_far += weight;
        }
        high
    };
    let tail = (1.0 - confidence) / 2.0;
    let interval = Interval { low: at(tail), high: at(1.0 - tail), confidence };
    Estimate::with_interval(at(0.5), interval)
}
