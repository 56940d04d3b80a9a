//! Markov chains in levels, the number of customers, that repeat from some level on: quasi birth–death
//! processes, solved by matrix-analytic methods.

use nalgebra::{DMatrix, RowDVector};

use crate::distribution::stationary;

/// Rounds of the logarithmic reduction: it doubles the levels that it looks at in each.
const MOST_ROUNDS: u32 = 64;

/// Rates between neighboring levels. Lists are by level, and what comes after their ends is as the
/// last.
#[derive(Debug, Clone)]
pub(super) struct Levels {
    /// From level n to n + 1.
    pub(super) up: Vec<DMatrix<f64>>,
    /// Within level n; on the diagonal less all rates of leaving.
    pub(super) local: Vec<DMatrix<f64>>,
    /// From level n + 1 to n.
    pub(super) down: Vec<DMatrix<f64>>,
}

/// Probabilities in the long run.
#[derive(Debug, Clone)]
pub(super) struct Steady {
    /// Of the phases in the first levels.
    pub(super) levels: Vec<RowDVector<f64>>,
    /// R: each level beyond is the one before times this.
    pub(super) ratio: Option<DMatrix<f64>>,
}

/// A change of the level, the state after it, and its rate.
pub(super) type Move<S> = (i8, S, f64);

fn of(list: &[DMatrix<f64>], level: usize) -> &DMatrix<f64> {
    &list[level.min(list.len() - 1)]
}

impl Levels {
    /// From the states of each level and the moves out of them; from level `first` on all are alike.
    pub(super) fn build<S: Ord>(
        first: usize,
        states: impl Fn(usize) -> Vec<S>,
        moves: impl Fn(usize, &S) -> Vec<Move<S>>,
    ) -> Self {
        let mut all: Vec<Vec<S>> = (0..=first + 2).map(states).collect();
        all.iter_mut().for_each(|list| list.sort());
        let size = |level: usize| all[level].len();
        let zeros = |from: usize, to: usize| DMatrix::zeros(size(from), size(to));
        let levels = || 0..=first;
        let mut built = Self {
            up: levels().map(|n| zeros(n, n + 1)).collect(),
            local: levels().map(|n| zeros(n, n)).collect(),
            down: levels().map(|n| zeros(n + 1, n)).collect(),
        };
        for (level, list) in all[..first + 2].iter().enumerate() {
            for (at, state) in list.iter().enumerate() {
                for (change, next, rate) in moves(level, state) {
                    let target = level.saturating_add_signed(isize::from(change));
                    let Ok(to) = all[target].binary_search(&next) else { continue };
                    if change < 0 && level > 0 {
                        built.down[level - 1][(at, to)] += rate;
                    } else if change > 0 && level <= first {
                        built.up[level][(at, to)] += rate;
                    } else if change == 0 && level <= first {
                        built.local[level][(at, to)] += rate;
                    }
                    if level <= first {
                        built.local[level][(at, at)] -= rate;
                    }
                }
            }
        }
        built
    }

    /// With levels without end. `None` where the numbers leave the range of `f64`, or the levels grow
    /// without bound.
    ///
    /// # Source
    /// Neuts 1981; logarithmic reduction of Latouche and Ramaswami 1993; the first levels by linear
    /// level reduction (Gaver, Jacobs, Latouche 1984).
    pub(super) fn endless(&self) -> Option<Steady> {
        let first = self.up.len().max(self.local.len()).max(self.down.len()) - 1;
        let ratio = self.ratio()?;
        let below = of(&self.local, first) + &ratio * of(&self.down, first);
        let mut steady = self.first_levels(below, first)?;
        let last = steady.levels.last()?;
        let gap = (DMatrix::identity(ratio.nrows(), ratio.nrows()) - &ratio).lu();
        let beyond = gap.solve(&(&ratio * ones(ratio.nrows())))?;
        let mass =
            steady.levels.iter().map(|level| level.sum()).sum::<f64>() + (last * beyond).sum();
        for level in &mut steady.levels {
            *level /= mass;
        }
        steady.ratio = Some(ratio);
        Some(steady)
    }

    /// With `last` as the last level, in which `within` are the rates.
    pub(super) fn up_to(&self, last: usize, within: DMatrix<f64>) -> Option<Steady> {
        let mut steady = self.first_levels(within, last)?;
        let mass: f64 = steady.levels.iter().map(|level| level.sum()).sum();
        for level in &mut steady.levels {
            *level /= mass;
        }
        Some(steady)
    }

    /// Levels 0 to `last`, up to a factor; `within` are the rates of the last, with what comes back
    /// from beyond.
    fn first_levels(&self, mut within: DMatrix<f64>, last: usize) -> Option<Steady> {
        let mut ratios = Vec::new();
        self.balance(&mut within, last);
        for level in (0..last).rev() {
            let ratio = of(&self.up, level) * (-&within).try_inverse()?;
            within = of(&self.local, level) + &ratio * of(&self.down, level);
            self.balance(&mut within, level);
            ratios.push(ratio);
        }
        let mut levels = vec![stationary(&within)?.transpose()];
        for ratio in ratios.iter().rev() {
            levels.push(&levels[levels.len() - 1] * ratio);
        }
        let sound = levels.iter().flat_map(|level| level.iter()).all(|p| *p >= 0.0);
        sound.then_some(Steady { levels, ratio: None })
    }

    /// Sets the diagonal of the rates within a level (with what comes back from above) from what else
    /// leaves each phase: as a difference it would lose figures from level to level, as Grassmann,
    /// Taksar and Heyman 1985 say of elimination.
    fn balance(&self, within: &mut DMatrix<f64>, level: usize) {
        let falls = level.checked_sub(1).map(|below| of(&self.down, below).column_sum());
        for row in 0..within.nrows() {
            within[(row, row)] = 0.0;
            let leaves = within.row(row).sum() + falls.as_ref().map_or(0.0, |falls| falls[row]);
            within[(row, row)] = -leaves;
        }
    }

    /// R of the levels that repeat.
    fn ratio(&self) -> Option<DMatrix<f64>> {
        let (up, local, down) = (self.up.last()?, self.local.last()?, self.down.last()?);
        let size = up.nrows();
        let identity = DMatrix::identity(size, size);
        let leaving = (-local).try_inverse()?;
        let (mut rise, mut fall) = (&leaving * up, &leaving * down);
        // First passage to the level below: G.
        let mut passage = fall.clone();
        let mut risen = rise.clone();
        for _ in 0..MOST_ROUNDS {
            let back = (&identity - (&rise * &fall + &fall * &rise)).try_inverse()?;
            (rise, fall) = (&back * (&rise * &rise), &back * (&fall * &fall));
            let more = &risen * &fall;
            risen = &risen * &rise;
            passage += &more;
            if more.amax() <= 1e-17 || risen.amax() <= 1e-17 {
                break;
            }
        }
        let mut returned = local + up * &passage;
        self.balance(&mut returned, self.down.len());
        let ratio = up * (-returned).try_inverse()?;
        ratio.iter().all(|r| r.is_finite() && *r > -1e-12).then(|| ratio.map(|r| r.max(0.0)))
    }
}

impl Steady {
    /// Σₖ (level·Rᵏ)·1, Σₖ k·…, Σₖ k²·… over the last level and those beyond, k counted from it.
    pub(super) fn tail(&self) -> Option<[f64; 3]> {
        let last = self.levels.last()?;
        let Some(ratio) = &self.ratio else { return Some([last.sum(), 0.0, 0.0]) };
        let gap = (DMatrix::identity(ratio.nrows(), ratio.nrows()) - ratio).lu();
        let all = gap.solve(&ones(ratio.nrows()))?;
        let first = gap.solve(&(ratio * &all))?;
        let second = gap.solve(&(ratio * &first))?;
        let dot = |v: &DMatrix<f64>| (last * v).sum();
        // Σ k·xᵏ = x/(1−x)², Σ k²·xᵏ = x(1+x)/(1−x)³ = x/(1−x)² + 2x²/(1−x)³.
        Some([dot(&all), dot(&first), dot(&first) + 2.0 * dot(&second)])
    }

    /// The phases in the last level and all beyond.
    pub(super) fn last_row(&self) -> Option<RowDVector<f64>> {
        let last = self.levels.last()?;
        let Some(ratio) = &self.ratio else { return Some(last.clone()) };
        let gap = DMatrix::identity(ratio.nrows(), ratio.nrows()) - ratio;
        Some(gap.transpose().lu().solve(&last.transpose())?.transpose())
    }
}

fn ones(size: usize) -> DMatrix<f64> {
    DMatrix::from_element(size, 1, 1.0)
}
