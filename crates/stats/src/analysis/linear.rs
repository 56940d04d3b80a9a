//! Least squares over terms of sum-to-zero columns.
//!
//! Two levels become the column −1, +1, so that a coefficient is Jain's effect q; more levels
//! become one column each but the first, against which they all count. Balanced data give the sign
//! table's numbers to the last digit; unbalanced data give those of type III.
//!
//! Runs at the same levels are one *point* with a weight, and what they differ by is error whatever
//! the terms are. In a complete and balanced design the columns of different terms are orthogonal,
//! so each term is solved by itself, as a sign table does: 2⁹ combinations take a few milliseconds.
//! Other designs go through Gram and Schmidt's orthogonalization, column by column.

use std::collections::BTreeMap;

use kendall_units::exact_f64;
use nalgebra::{DMatrix, DVector};

use super::layout::Rows;

/// A column of which less than this share is left by the columns before it depends on them: far
/// above rounding (1e-16 times a few hundred rows), far below any design's own (a few per cent).
const RANK_TOLERANCE: f64 = 1e-9;

/// Columns that a design may have which needs orthogonalization: it is cubic in them.
pub(super) const MOST_COLUMNS: usize = 400;

/// Columns that a complete and balanced design may have.
const MOST_ORTHOGONAL: usize = 1 << 13;

/// A group of columns that stands or falls together.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// Factors that it is a product of; the position past the last factor is the block.
    pub(super) factors: Vec<usize>,
    /// First column and one past the last.
    pub(super) columns: std::ops::Range<usize>,
    /// A bit for each factor, when all of them have two levels.
    signs: Option<u128>,
}

/// Runs at the same levels.
#[derive(Debug, Clone)]
struct Points {
    levels: Vec<Vec<usize>>,
    /// A bit for each factor that is not at its first level.
    high: Vec<u128>,
    weights: Vec<f64>,
    of_row: Vec<usize>,
    counts: Vec<usize>,
    /// Every combination of levels (and blocks) is there, and equally often.
    balanced: bool,
}

/// A model matrix with its groups; column 0 is the mean.
#[derive(Debug, Clone)]
pub(super) struct Matrix {
    points: std::rc::Rc<Points>,
    pub(super) groups: Vec<Group>,
    width: usize,
    basis: Basis,
}

/// How least squares is done.
#[derive(Debug, Clone)]
enum Basis {
    /// Columns of different groups are orthogonal.
    Orthogonal,
    /// Weighted columns as Q·R: `q[column][point]`, `r[column][row]` up to the diagonal.
    Dense { q: Vec<Vec<f64>>, r: Vec<Vec<f64>> },
}

/// What least squares gives.
#[derive(Debug, Clone)]
pub(super) struct Solution {
    pub(super) coefficients: Vec<f64>,
    /// By row.
    pub(super) predicted: Vec<f64>,
    pub(super) error_sum_of_squares: f64,
    pub(super) error_degrees: usize,
}

/// Columns of one level of one factor.
fn contrasts(level: usize, levels: usize) -> Vec<f64> {
    (1..levels)
        .map(|column| {
            if level == column {
                1.0
            } else if level == 0 {
                -1.0
            } else {
                0.0
            }
        })
        .collect()
}

/// Columns of a product of factors, at these levels.
pub(super) fn product(levels: &[(usize, usize)]) -> Vec<f64> {
    levels.iter().fold(vec![1.0], |all, (level, count)| {
        let single = contrasts(*level, *count);
        all.iter().flat_map(|x| single.iter().map(move |y| x * y)).collect()
    })
}

impl Points {
    fn of(rows: &Rows) -> Self {
        let mut numbers: BTreeMap<&[usize], usize> = BTreeMap::new();
        let (mut levels, mut weights, mut of_row) = (Vec::new(), Vec::new(), Vec::new());
        for row in &rows.levels {
            let next = levels.len();
            let number = *numbers.entry(row.as_slice()).or_insert(next);
            if number == next {
                levels.push(row.clone());
                weights.push(0.0);
            }
            weights[number] += 1.0;
            of_row.push(number);
        }
        let high = levels
            .iter()
            .map(|row| {
                let bit = |(factor, level): (usize, &usize)| u128::from(*level > 0) << factor;
                if row.len() > 128 { 0 } else { row.iter().enumerate().map(bit).sum() }
            })
            .collect();
        let possible = rows.counts.iter().fold(1_usize, |all, n| all.saturating_mul(*n));
        let even = weights.iter().all(|weight: &f64| (weight - weights[0]).abs() < 0.5);
        let balanced = possible == levels.len() && even;
        Self { levels, high, weights, of_row, counts: rows.counts.clone(), balanced }
    }

    /// Columns of a group at one point, appended.
    fn columns(&self, point: usize, group: &Group, into: &mut Vec<f64>) {
        if let Some(mask) = group.signs {
            let lows = (mask & !self.high[point]).count_ones();
            into.push(if lows % 2 == 1 { -1.0 } else { 1.0 });
            return;
        }
        let row = &self.levels[point];
        let of: Vec<(usize, usize)> =
            group.factors.iter().map(|factor| (row[*factor], self.counts[*factor])).collect();
        into.extend(product(&of));
    }

    /// Mean response of each point, and the sum of squares within points.
    fn means(&self, response: &[f64]) -> (Vec<f64>, f64) {
        let mut means = vec![0.0; self.levels.len()];
        for (value, point) in response.iter().zip(&self.of_row) {
            means[*point] += value / self.weights[*point];
        }
        let within =
            response.iter().zip(&self.of_row).map(|(value, point)| (value - means[*point]).powi(2));
        (means.clone(), within.sum())
    }
}

impl Matrix {
    /// The mean alone.
    pub(super) fn new(rows: &Rows) -> Self {
        let points = Points::of(rows);
        let basis = if points.balanced {
            Basis::Orthogonal
        } else {
            let root: f64 = points.weights.iter().sum::<f64>().sqrt();
            let q = points.weights.iter().map(|weight| weight.sqrt() / root).collect();
            Basis::Dense { q: vec![q], r: vec![vec![root]] }
        };
        Self { points: std::rc::Rc::new(points), groups: Vec::new(), width: 1, basis }
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Columns that a design of this shape may have.
    pub(super) fn most_columns(&self) -> usize {
        match self.basis {
            Basis::Orthogonal => MOST_ORTHOGONAL,
            Basis::Dense { .. } => MOST_COLUMNS,
        }
    }

    /// Columns of a product of factors.
    pub(super) fn width_of(&self, factors: &[usize]) -> usize {
        factors.iter().map(|factor| self.points.counts[*factor] - 1).product()
    }

    /// Adds a product of factors, unless its columns depend on those that are there.
    #[must_use]
    pub(super) fn push(&mut self, factors: &[usize]) -> bool {
        let start = self.width;
        let columns = start..start + self.width_of(factors);
        let two_level = factors.iter().all(|f| self.points.counts[*f] == 2 && *f < 128);
        let signs = two_level.then(|| factors.iter().fold(0_u128, |mask, f| mask | 1 << f));
        let group = Group { factors: factors.to_vec(), columns: columns.clone(), signs };
        if columns.end > self.points.levels.len() || !self.orthogonalize(&group) {
            return false;
        }
        self.width = columns.end;
        self.groups.push(group);
        true
    }

    /// Extends Q and R; undoes it, and says so, where a column depends on others.
    fn orthogonalize(&mut self, group: &Group) -> bool {
        let Basis::Dense { q, r } = &mut self.basis else { return true };
        let (before, points) = (q.len(), &self.points);
        let mut added: Vec<Vec<f64>> = vec![Vec::new(); group.columns.len()];
        let mut row = Vec::new();
        for point in 0..points.levels.len() {
            row.clear();
            points.columns(point, group, &mut row);
            let weight = points.weights[point].sqrt();
            for (column, value) in added.iter_mut().zip(&row) {
                column.push(weight * value);
            }
        }
        for mut column in added {
            let length = norm(&column);
            let mut upper = vec![0.0; q.len()];
            // Twice is enough (Kahan, in Parlett 1980).
            for _ in 0..2 {
                for (base, sum) in q.iter().zip(&mut upper) {
                    let along: f64 = base.iter().zip(&column).map(|(a, b)| a * b).sum();
                    *sum += along;
                    column.iter_mut().zip(base).for_each(|(value, base)| *value -= along * base);
                }
            }
            let left = norm(&column);
            if left <= RANK_TOLERANCE * length {
                q.truncate(before);
                r.truncate(before);
                return false;
            }
            column.iter_mut().for_each(|value| *value /= left);
            upper.push(left);
            q.push(column);
            r.push(upper);
        }
        true
    }

    pub(super) fn pop(&mut self) {
        if let Some(group) = self.groups.pop() {
            self.width = group.columns.start;
            if let Basis::Dense { q, r } = &mut self.basis {
                q.truncate(self.width);
                r.truncate(self.width);
            }
        }
    }

    /// Least squares.
    pub(super) fn solve(&self, response: &[f64]) -> Solution {
        let (means, within) = self.points.means(response);
        let coefficients = match &self.basis {
            Basis::Orthogonal => self.solve_by_term(&means),
            Basis::Dense { q, r } => self.solve_by_columns(q, r, &means),
        };
        let points = self.points.levels.len();
        // As many columns as points leave nothing between them.
        let at_points = if self.width == points {
            means.clone()
        } else {
            (0..points).map(|point| dot(&self.row_of_point(point), &coefficients)).collect()
        };
        let lack: f64 = means
            .iter()
            .zip(&at_points)
            .zip(&self.points.weights)
            .map(|((mean, predicted), weight)| weight * (mean - predicted).powi(2))
            .sum();
        let error_degrees = self.points.of_row.len() - self.width;
        Solution {
            coefficients,
            predicted: self.points.of_row.iter().map(|point| at_points[*point]).collect(),
            error_sum_of_squares: if error_degrees == 0 { 0.0 } else { within + lack },
            error_degrees,
        }
    }

    fn solve_by_term(&self, means: &[f64]) -> Vec<f64> {
        let weight = self.points.weights[0];
        let mut totals = vec![0.0; self.width];
        totals[0] = weight * means.iter().sum::<f64>();
        let mut row = Vec::new();
        for group in &self.groups {
            let totals = &mut totals[group.columns.clone()];
            for (point, mean) in means.iter().enumerate() {
                row.clear();
                self.points.columns(point, group, &mut row);
                totals.iter_mut().zip(&row).for_each(|(total, x)| *total += weight * x * mean);
            }
        }
        let mut coefficients = vec![totals[0] / self.count()];
        for group in &self.groups {
            coefficients.extend(self.inverse_times(group, &totals[group.columns.clone()]));
        }
        coefficients
    }

    fn solve_by_columns(&self, q: &[Vec<f64>], r: &[Vec<f64>], means: &[f64]) -> Vec<f64> {
        let weighted: Vec<f64> =
            means.iter().zip(&self.points.weights).map(|(mean, w)| mean * w.sqrt()).collect();
        let mut solved: Vec<f64> = q.iter().map(|column| dot(column, &weighted)).collect();
        for at in (0..solved.len()).rev() {
            solved[at] /= r[at][at];
            let value = solved[at];
            solved[..at].iter_mut().zip(&r[at]).for_each(|(rest, r)| *rest -= r * value);
        }
        solved
    }

    fn count(&self) -> f64 {
        exact_f64(self.points.of_row.len())
    }

    /// (XᵀX)⁻¹ of one group of an orthogonal design, times a vector: ⊗(L·I − J)/n, where L is the
    /// number of levels of a factor and J all ones, since its own XᵀX is ⊗(I + J)·n/L.
    fn inverse_times(&self, group: &Group, vector: &[f64]) -> Vec<f64> {
        let mut values = vector.to_vec();
        let mut inner = values.len();
        for factor in &group.factors {
            let levels = self.points.counts[*factor];
            let width = levels - 1;
            inner /= width;
            for outer in 0..values.len() / (width * inner) {
                for offset in 0..inner {
                    let place = |column: usize| (outer * width + column) * inner + offset;
                    let sum: f64 = (0..width).map(|column| values[place(column)]).sum();
                    for column in 0..width {
                        values[place(column)] = exact_f64(levels) * values[place(column)] - sum;
                    }
                }
            }
        }
        values.iter().map(|value| value / self.count()).collect()
    }

    fn row_of_point(&self, point: usize) -> Vec<f64> {
        let mut row = Vec::with_capacity(self.width);
        row.push(1.0);
        for group in &self.groups {
            self.points.columns(point, group, &mut row);
        }
        row
    }

    /// Row of the model matrix.
    pub(super) fn row(&self, row: usize) -> Vec<f64> {
        self.row_of_point(self.points.of_row[row])
    }

    /// How much each run decides its own prediction.
    pub(super) fn leverages(&self) -> Vec<f64> {
        let points = self.points.levels.len();
        let at_points: Vec<f64> = (0..points)
            .map(|point| match &self.basis {
                _ if self.width == points => 1.0 / self.points.weights[point],
                // The trace of the projection, shared evenly.
                Basis::Orthogonal => exact_f64(self.width) / self.count(),
                Basis::Dense { q, .. } => {
                    let squares: f64 = q.iter().map(|column| column[point].powi(2)).sum();
                    squares / self.points.weights[point]
                }
            })
            .collect();
        self.points.of_row.iter().map(|point| at_points[*point]).collect()
    }

    /// Variance of Σ xᵢbᵢ over σ², for columns from `start` on; they end with a group.
    pub(super) fn variance(&self, start: usize, x: &[f64]) -> f64 {
        match &self.basis {
            Basis::Orthogonal => {
                let mean = if start == 0 { x[0] * x[0] / self.count() } else { 0.0 };
                let end = start + x.len();
                let inside = |group: &&Group| {
                    group.columns.start >= start.max(1) && group.columns.end <= end
                };
                let terms = self.groups.iter().filter(inside).map(|group| {
                    let part = &x[group.columns.start - start..group.columns.end - start];
                    match group.signs {
                        Some(_) => part[0] * part[0] / self.count(),
                        None => dot(part, &self.inverse_times(group, part)),
                    }
                });
                mean + terms.sum::<f64>()
            }
            Basis::Dense { r, .. } => forward(r, start, x).iter().map(|z| z * z).sum(),
        }
    }

    /// Variance of each coefficient over σ².
    pub(super) fn variances(&self) -> Vec<f64> {
        (0..self.width)
            .map(|column| match (&self.basis, self.group_of(column)) {
                (Basis::Dense { .. }, _) | (_, None) => self.variance(column, &[1.0]),
                (Basis::Orthogonal, Some(group)) => {
                    let mut unit = vec![0.0; group.columns.len()];
                    unit[column - group.columns.start] = 1.0;
                    self.variance(group.columns.start, &unit)
                }
            })
            .collect()
    }

    fn group_of(&self, column: usize) -> Option<&Group> {
        let place = self.groups.partition_point(|group| group.columns.end <= column);
        self.groups.get(place).filter(|group| group.columns.contains(&column))
    }

    /// Sum of squares of a group given all others: bᵀ C⁻¹ b (type III).
    pub(super) fn sum_of_squares(&self, solution: &Solution, group: &Group) -> f64 {
        let b = &solution.coefficients[group.columns.clone()];
        let start = group.columns.start;
        let width = b.len();
        if let (Basis::Orthogonal, Some(_)) = (&self.basis, group.signs) {
            return self.count() * b[0] * b[0];
        }
        let unit = |at: usize| (0..width).map(|i| f64::from(u8::from(i == at))).collect::<Vec<_>>();
        let block = match &self.basis {
            Basis::Orthogonal => {
                let columns: Vec<DVector<f64>> = (0..width)
                    .map(|at| DVector::from_vec(self.inverse_times(group, &unit(at))))
                    .collect();
                DMatrix::from_columns(&columns)
            }
            Basis::Dense { r, .. } => {
                let roots: Vec<Vec<f64>> =
                    (0..width).map(|at| forward(r, start, &unit(at))).collect();
                DMatrix::from_fn(width, width, |i, j| dot(&roots[i], &roots[j]))
            }
        };
        let b = DVector::from_column_slice(b);
        block.cholesky().map_or(f64::NAN, |factor| b.dot(&factor.solve(&b)))
    }
}

/// R⁻ᵀx for a vector that is 0 before `start`; what is past its end counts as 0 too.
fn forward(r: &[Vec<f64>], start: usize, x: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(r.len() - start);
    for (at, column) in r.iter().enumerate().skip(start) {
        let value = x.get(at - start).copied().unwrap_or(0.0);
        let known: f64 = dot(&column[start..at], &solved);
        solved.push((value - known) / column[at]);
    }
    solved
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(values: &[f64]) -> f64 {
    dot(values, values).sqrt()
}

impl Solution {
    /// Error mean square; `None` without degrees of freedom.
    pub(super) fn error_mean_square(&self) -> Option<f64> {
        (self.error_degrees > 0).then(|| self.error_sum_of_squares / exact_f64(self.error_degrees))
    }
}
