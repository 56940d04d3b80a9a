//! Least squares over terms of sum-to-zero columns.
//!
//! Two levels become the column −1, +1, so that a coefficient is Jain's effect q; more levels
//! become one column each but the first, against which they all count. Balanced data give the sign
//! table's numbers to the last digit; unbalanced data give those of type III.

use kendall_units::exact_f64;
use nalgebra::{DMatrix, DVector};

/// Singular values below this share of the largest count as nil: far above rounding (1e-16 times a
/// few hundred rows), far below any design's own (a few per cent).
const RANK_TOLERANCE: f64 = 1e-9;

/// A group of columns that stands or falls together.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// Factors that it is a product of; the position past the last factor is the block.
    pub(super) factors: Vec<usize>,
    /// First column and one past the last.
    pub(super) columns: std::ops::Range<usize>,
}

/// A model matrix with its groups; column 0 is the mean.
#[derive(Debug, Clone)]
pub(super) struct Matrix {
    rows: usize,
    columns: Vec<Vec<f64>>,
    pub(super) groups: Vec<Group>,
}

/// What least squares gives.
#[derive(Debug, Clone)]
pub(super) struct Solution {
    pub(super) coefficients: Vec<f64>,
    /// (XᵀX)⁻¹.
    pub(super) covariance: DMatrix<f64>,
    pub(super) predicted: Vec<f64>,
    pub(super) error_sum_of_squares: f64,
    pub(super) error_degrees: usize,
}

/// Columns of one level of one factor.
pub(super) fn contrasts(level: usize, levels: usize) -> Vec<f64> {
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

impl Matrix {
    pub(super) fn new(rows: usize) -> Self {
        Self { rows, columns: vec![vec![1.0; rows]], groups: Vec::new() }
    }

    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Adds a product of factors. `levels[row][factor]`, `counts[factor]`.
    pub(super) fn push(&mut self, factors: &[usize], levels: &[Vec<usize>], counts: &[usize]) {
        let start = self.columns.len();
        let width: usize = factors.iter().map(|factor| counts[*factor] - 1).product();
        self.columns.extend((0..width).map(|_| Vec::with_capacity(self.rows)));
        for row in levels {
            let of: Vec<(usize, usize)> =
                factors.iter().map(|factor| (row[*factor], counts[*factor])).collect();
            for (column, value) in product(&of).into_iter().enumerate() {
                self.columns[start + column].push(value);
            }
        }
        let columns = start..self.columns.len();
        self.groups.push(Group { factors: factors.to_vec(), columns });
    }

    pub(super) fn pop(&mut self) {
        if let Some(group) = self.groups.pop() {
            self.columns.truncate(group.columns.start);
        }
    }

    fn matrix(&self) -> DMatrix<f64> {
        DMatrix::from_fn(self.rows, self.columns.len(), |row, column| self.columns[column][row])
    }

    /// Whether no column is a combination of others.
    pub(super) fn has_full_rank(&self) -> bool {
        if self.columns.len() > self.rows {
            return false;
        }
        let singular = self.matrix().singular_values();
        singular.min() > RANK_TOLERANCE * singular.max()
    }

    /// Least squares; `None` when columns depend on one another.
    pub(super) fn solve(&self, response: &[f64]) -> Option<Solution> {
        if self.columns.len() > self.rows {
            return None;
        }
        let matrix = self.matrix();
        let observed = DVector::from_column_slice(response);
        let decomposed = matrix.clone().svd(true, true);
        let (u, v) = (decomposed.u?, decomposed.v_t?.transpose());
        let singular = decomposed.singular_values;
        if singular.min() <= RANK_TOLERANCE * singular.max() {
            return None;
        }
        let scaled = (u.transpose() * &observed).component_div(&singular);
        let coefficients = &v * scaled;
        let inverse = DMatrix::from_diagonal(&singular.map(|s| 1.0 / (s * s)));
        let covariance = &v * inverse * v.transpose();
        let predicted = &matrix * &coefficients;
        let error_degrees = self.rows - self.columns.len();
        let residual = observed - &predicted;
        let error_sum_of_squares = if error_degrees == 0 { 0.0 } else { residual.norm_squared() };
        Some(Solution {
            coefficients: coefficients.iter().copied().collect(),
            covariance,
            predicted: predicted.iter().copied().collect(),
            error_sum_of_squares,
            error_degrees,
        })
    }

    /// Row of the model matrix.
    pub(super) fn row(&self, row: usize) -> Vec<f64> {
        self.columns.iter().map(|column| column[row]).collect()
    }
}

impl Solution {
    /// Error mean square; `None` without degrees of freedom.
    pub(super) fn error_mean_square(&self) -> Option<f64> {
        (self.error_degrees > 0).then(|| self.error_sum_of_squares / exact_f64(self.error_degrees))
    }

    /// Sum of squares of a group given all others: bᵀ C⁻¹ b (type III).
    pub(super) fn sum_of_squares(&self, group: &Group) -> f64 {
        let width = group.columns.len();
        let start = group.columns.start;
        let block = self.covariance.view((start, start), (width, width)).into_owned();
        let b = DVector::from_column_slice(&self.coefficients[group.columns.clone()]);
        block.cholesky().map_or(f64::NAN, |factor| b.dot(&factor.solve(&b)))
    }

    /// Σ xᵢbᵢ and its variance over σ², for columns from `start` on.
    pub(super) fn combination(&self, start: usize, x: &[f64]) -> (f64, f64) {
        let value = x.iter().zip(&self.coefficients[start..]).map(|(x, b)| x * b).sum();
        let mut variance = 0.0;
        for (i, a) in x.iter().enumerate() {
            for (j, b) in x.iter().enumerate() {
                variance += a * b * self.covariance[(start + i, start + j)];
            }
        }
        (value, variance)
    }
}
