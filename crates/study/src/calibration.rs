//! The fewest runs from which a model of the system can be fitted, chosen as they go: light load, where
//! each pool begins to wait, near saturation; with the other factors at their first levels and at
//! their last.

/// Share of the saturation point N* at which pools begin to wait.
const NEAR_KNEE: f64 = 0.8;
const MOST: usize = 6;

/// The grid that a calibration chooses from.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    /// Configurations by the load, ascending: the load and the index of the configuration. The first
    /// line has the first levels of all other factors, the second their last; the others have one
    /// factor at its last level each.
    lines: Vec<Vec<(f64, usize)>>,
}

impl Grid {
    /// `levels` of each configuration and the number of levels of each factor; `load` is the place of
    /// the factor that is the load, and `value` its level as a number.
    pub(crate) fn new(
        configurations: &[Vec<Option<usize>>],
        counts: &[usize],
        load: usize,
        value: impl Fn(usize) -> f64,
    ) -> Self {
        let others: Vec<usize> = (0..counts.len()).filter(|at| *at != load).collect();
        let line = |last: &dyn Fn(usize) -> bool| -> Vec<(f64, usize)> {
            let is = |levels: &&Vec<Option<usize>>| {
                others.iter().all(|at| {
                    let wanted = if last(*at) { counts[*at] - 1 } else { 0 };
                    levels[*at] == Some(wanted)
                })
            };
            let of_line = configurations.iter().enumerate().filter(|(_, levels)| is(levels));
            let mut line: Vec<(f64, usize)> =
                of_line.map(|(index, levels)| (value(levels[load].unwrap_or(0)), index)).collect();
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
            line
        };
        let mut lines = vec![line(&|_| false)];
        if !others.is_empty() {
            lines.push(line(&|_| true));
        }
        if others.len() > 1 {
            lines.extend(others.iter().map(|one| line(&|at| at == *one)));
        }
        Self { lines }
    }

    /// The configurations that are wanted, as far as what was measured tells, in their order.
    /// `throughput` says what a configuration measured.
    pub(crate) fn wanted(&self, throughput: impl Fn(usize) -> Option<f64>) -> Vec<usize> {
        let mut wanted: Vec<usize> = Vec::new();
        let Some((first, rest)) = self.lines.split_first() else { return wanted };
        let (Some(light), Some(heavy)) = (first.first(), first.last()) else { return wanted };
        let mut want = |index: usize| {
            if !wanted.contains(&index) && wanted.len() < MOST {
                wanted.push(index);
            }
        };
        want(light.1);
        want(heavy.1);
        if let Some(all) = rest.first().and_then(|line| line.last()) {
            want(all.1);
        }
        // N* = Xmax·(R + Z), and N/X at light load is R + Z.
        let per_load = throughput(light.1).filter(|x| *x > 0.0).map(|x| light.0 / x);
        for line in self.lines.iter().take(2) {
            let most = line.last().and_then(|(_, index)| throughput(*index));
            if let Some((cycle, most)) = per_load.zip(most) {
                let knee = NEAR_KNEE * cycle * most;
                let near = line.iter().min_by(|a, b| {
                    let off = |load: f64| (load / knee).ln().abs();
                    off(a.0).total_cmp(&off(b.0))
                });
                near.iter().for_each(|(_, index)| want(*index));
            }
        }
        for line in rest.iter().skip(1) {
            line.last().iter().for_each(|(_, index)| want(*index));
        }
        wanted
    }

    /// Most runs of one repetition.
    pub(crate) fn most(&self) -> usize {
        self.lines.iter().map(Vec::len).sum::<usize>().min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

    /// Loads × two levels of workers; X = min(N/R, what the workers carry).
    fn measured(index: usize) -> Option<f64> {
        let (load, workers) = (LOADS[index % 7], index / 7);
        Some((100.0 * load).min([800.0, 3_000.0][workers]))
    }

    fn grid() -> Grid {
        let levels = |index: usize| vec![Some(index % 7), Some(index / 7)];
        let configurations: Vec<Vec<Option<usize>>> = (0..14).map(levels).collect();
        Grid::new(&configurations, &[7, 2], 0, |level| LOADS[level])
    }

    #[test]
    fn light_load_both_saturations_and_where_each_begins_to_wait() {
        let grid = grid();
        // Nothing measured: what needs no measurement.
        assert_eq!(grid.wanted(|_| None), [0, 6, 13]);
        // N* is 8 and 30: 80 % of it lies nearest to 8 and 32 (by ratio).
        let wanted = grid.wanted(measured);
        assert_eq!(wanted, [0, 6, 13, 3, 12]);
        assert!(grid.most() <= MOST && wanted.len() <= MOST);
    }

    #[test]
    fn one_factor_alone_and_many_of_them_stay_within_six() {
        let one: Vec<Vec<Option<usize>>> = (0..7).map(|level| vec![Some(level)]).collect();
        let grid = Grid::new(&one, &[7], 0, |level| LOADS[level]);
        assert_eq!(grid.wanted(measured), [0, 6, 3]);
        let mut many = Vec::new();
        for index in 0..7 * 16 {
            let bit = |at: usize| Some(((index / 7) >> at) & 1);
            many.push(vec![Some(index % 7), bit(0), bit(1), bit(2), bit(3)]);
        }
        let grid = Grid::new(&many, &[7, 2, 2, 2, 2], 0, |level| LOADS[level]);
        assert_eq!(grid.wanted(|index| measured(index % 7)).len(), MOST);
    }
}
