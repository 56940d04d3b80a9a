//! Faster fixed points: from the last few steps of x ← g(x), the combination whose residual g(x) − x
//! would be least if g were linear.

use nalgebra::{DMatrix, DVector};

/// Residuals that grow by more than this make what was remembered worthless.
const GROWTH: f64 = 2.0;
/// Share of the largest remembered residual that is added to all, so that directions which are
/// nothing but rounding are not followed.
const RIDGE: f64 = 1e-14;

/// Anderson's acceleration of one iteration.
///
/// # Source
/// Anderson 1965, in the form of Walker and Ni 2011 \[WN11\].
pub(crate) struct Anderson {
    depth: usize,
    /// Leaves steps as they are whose residual grows: near a fixed point that repels, the extrapolation leads there.
    cautious: bool,
    /// Differences of g(x), and of g(x) − x, between neighboring steps; the oldest is overwritten.
    images: Vec<Vec<f64>>,
    residuals: Vec<Vec<f64>>,
    next: usize,
    last: Option<(Vec<f64>, Vec<f64>, f64)>,
}

impl Anderson {
    /// Remembers up to `depth` steps.
    pub(crate) fn new(depth: usize) -> Self {
        let (images, residuals) = (Vec::new(), Vec::new());
        Self { depth, cautious: false, images, residuals, next: 0, last: None }
    }

    pub(crate) fn cautious(depth: usize) -> Self {
        Self { cautious: true, ..Self::new(depth) }
    }

    /// From x and g(x) to the next x, which is left in `image`.
    pub(crate) fn step(&mut self, x: &[f64], image: &mut [f64]) {
        let residual: Vec<f64> = image.iter().zip(x).map(|(g, x)| g - x).collect();
        let length = dot(&residual, &residual).sqrt();
        let mut grows = false;
        if let Some((last_image, last_residual, last_length)) = self.last.take() {
            grows = length > last_length;
            if length > GROWTH * last_length || !length.is_finite() {
                self.images.clear();
                self.residuals.clear();
                self.next = 0;
            } else {
                self.remember(
                    difference(image, &last_image),
                    difference(&residual, &last_residual),
                );
            }
        }
        self.last = Some((image.to_vec(), residual, length));
        if !(self.cautious && grows)
            && let Some(weights) = self.weights()
        {
            for (direction, weight) in self.images.iter().zip(&weights) {
                for (value, step) in image.iter_mut().zip(direction) {
                    *value -= weight * step;
                }
            }
        }
    }

    fn remember(&mut self, image: Vec<f64>, residual: Vec<f64>) {
        if self.images.len() < self.depth {
            self.images.push(image);
            self.residuals.push(residual);
        } else if self.depth > 0 {
            self.images[self.next] = image;
            self.residuals[self.next] = residual;
            self.next = (self.next + 1) % self.depth;
        }
    }

    /// Weights of the remembered differences that take most from the last residual.
    fn weights(&self) -> Option<Vec<f64>> {
        let count = self.residuals.len();
        let (_, residual, _) = self.last.as_ref()?;
        if count == 0 {
            return None;
        }
        // Scaled to length 1: steps of an iteration that converges differ by many orders.
        let lengths: Vec<f64> =
            self.residuals.iter().map(|r| dot(r, r).sqrt().max(f64::MIN_POSITIVE)).collect();
        let gram = DMatrix::from_fn(count, count, |i, j| {
            let product = dot(&self.residuals[i], &self.residuals[j]) / (lengths[i] * lengths[j]);
            if i == j { product + RIDGE } else { product }
        });
        let right = DVector::from_fn(count, |i, _| dot(&self.residuals[i], residual) / lengths[i]);
        let solved = gram.cholesky()?.solve(&right);
        let weights: Vec<f64> = solved.iter().zip(&lengths).map(|(w, l)| w / l).collect();
        weights.iter().all(|w| w.is_finite()).then_some(weights)
    }
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A linear iteration in three dimensions is solved by three remembered steps.
    #[test]
    fn a_linear_iteration_ends_after_as_many_steps_as_dimensions() {
        let g = |x: &[f64]| {
            vec![
                0.999 * x[0] + 0.01 * x[1] + 1.0,
                -0.02 * x[0] + 0.95 * x[1] + 0.5,
                0.3 * x[1] - 0.9 * x[2] - 2.0,
            ]
        };
        let mut anderson = Anderson::new(4);
        let mut x = vec![0.0; 3];
        for _ in 0..7 {
            let mut image = g(&x);
            anderson.step(&x, &mut image);
            x = image;
        }
        for (x, image) in x.iter().zip(g(&x)) {
            assert!((x - image).abs() < 1e-8, "{x} {image}");
        }
    }

    /// Of large networks no steps are remembered: they would take too much memory.
    #[test]
    fn without_room_it_leaves_the_steps_as_they_are() {
        let mut anderson = Anderson::new(0);
        let mut x = vec![8.0];
        for expected in [4.0, 2.0, 1.0] {
            let mut image = vec![x[0] / 2.0];
            anderson.step(&x, &mut image);
            assert_eq!(image, [expected]);
            x = image;
        }
    }
}
