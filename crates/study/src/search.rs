//! Finds the saturation point over one factor, such as the number of clients, in few runs.
//!
//! The levels of the factor are the grid. The ends are measured first: the low one gives the slope
//! of the light-load asymptote X = N/(R+Z), the high one the first guess of the maximum. The next
//! point is where the two asymptotes meet; then the widest gap around the best point is halved,
//! until the best point's neighbours on the grid are measured or the runs are used up.

use kendall_units::exact_f64;

/// A level that was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// Index on the grid.
    pub(crate) index: usize,
    /// Mean throughput; `None` where all runs failed.
    pub(crate) throughput: Option<f64>,
}

/// Gaps within which throughputs are said to be equal: the plateau is flat, and noise must not
/// draw the search along it.
const PLATEAU_SHARE: f64 = 0.02;

/// The level to measure next; `None` when the search is done.
pub(crate) fn next(grid: &[f64], measured: &[Point], max_runs: usize) -> Option<usize> {
    if measured.len() >= max_runs.min(grid.len()) {
        return None;
    }
    let is_measured = |index: usize| measured.iter().any(|point| point.index == index);
    let last = grid.len() - 1;
    if let Some(end) = [0, last].into_iter().find(|end| !is_measured(*end)) {
        return Some(end);
    }
    let known: Vec<(usize, f64)> =
        measured.iter().filter_map(|point| Some((point.index, point.throughput?))).collect();
    let best = known.iter().map(|(_, x)| *x).fold(0.0, f64::max);
    if best <= 0.0 {
        return None;
    }
    if measured.len() == 2 {
        return asymptotes_meet(grid, &known, best)
            .filter(|index| !is_measured(*index))
            .or_else(|| halved(0, last).filter(|index| !is_measured(*index)));
    }
    // The knee: the lowest level that reaches the plateau. Its gaps on both sides are halved, the
    // lower one first, until the grid leaves nothing between.
    let knee = known
        .iter()
        .filter(|(_, x)| *x >= best * (1.0 - PLATEAU_SHARE))
        .map(|(index, _)| *index)
        .min()?;
    let below = known.iter().map(|(index, _)| *index).filter(|index| *index < knee).max();
    let above = known.iter().map(|(index, _)| *index).filter(|index| *index > knee).min();
    below
        .and_then(|below| halved(below, knee))
        .or_else(|| above.and_then(|above| halved(knee, above)))
        .filter(|index| !is_measured(*index))
}

/// The level nearest to where the light-load asymptote reaches the maximum.
fn asymptotes_meet(grid: &[f64], known: &[(usize, f64)], best: f64) -> Option<usize> {
    let (lowest, throughput) = known.iter().min_by_key(|(index, _)| *index)?;
    let slope = throughput / grid[*lowest];
    let meet = best / slope;
    (0..grid.len()).min_by(|a, b| (grid[*a] - meet).abs().total_cmp(&(grid[*b] - meet).abs()))
}

fn halved(low: usize, high: usize) -> Option<usize> {
    (high > low + 1).then(|| {
        let middle = exact_f64(low + high) / 2.0;
        usize::try_from(kendall_units::whole_u64(middle)).unwrap_or(low)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs that the search takes, and the lowest level that reached 98 % of the maximum.
    fn searched(grid: &[f64], throughput: impl Fn(f64) -> f64) -> (usize, f64) {
        let mut points = Vec::new();
        while let Some(index) = next(grid, &points, 100) {
            assert!(points.iter().all(|point: &Point| point.index != index), "measured twice");
            points.push(Point { index, throughput: Some(throughput(grid[index])) });
        }
        let best = points.iter().filter_map(|point| point.throughput).fold(0.0, f64::max);
        let knee = points
            .iter()
            .filter(|point| point.throughput >= Some(0.98 * best))
            .map(|point| grid[point.index])
            .fold(f64::INFINITY, f64::min);
        (points.len(), knee)
    }

    #[test]
    fn a_sharp_knee_is_found_in_far_fewer_runs_than_a_sweep() {
        let grid: Vec<f64> = (1..=200).map(f64::from).collect();
        for knee in [3.0, 40.0, 77.0, 150.0] {
            let (runs, found) = searched(&grid, |n| 100.0 * n.min(knee));
            // The ends, the asymptotes, and a halving on either side of the knee: 3 + 2·log2(200).
            assert!(runs <= 19, "{runs} runs for {knee}");
            assert!((found - knee).abs() <= 0.02 * knee + 1.0, "{found} for {knee}");
        }
    }

    #[test]
    fn a_throughput_that_falls_beyond_its_maximum_is_found_too() {
        let grid: Vec<f64> = (1..=64).map(f64::from).collect();
        let (runs, found) =
            searched(&grid, |n| if n < 20.0 { n } else { 20.0 - (n - 20.0) / 10.0 });
        assert!(runs <= 14 && (18.0..=24.0).contains(&found), "{runs} runs, {found}");
    }

    #[test]
    fn failed_points_and_tiny_grids_end() {
        assert_eq!(next(&[1.0], &[], 5), Some(0));
        assert_eq!(next(&[1.0], &[Point { index: 0, throughput: Some(1.0) }], 5), None);
        let failed = [0, 1].map(|index| Point { index, throughput: None });
        assert_eq!(next(&[1.0, 2.0, 3.0], &failed[..1], 5), Some(2));
        assert_eq!(next(&[1.0, 2.0], &failed, 5), None);
    }
}
