//! Finds the maximum throughput and the saturation point over one factor, such as the number of
//! clients, in few runs: drives `kendall_stats::adaptive` over the levels of the factor.
//!
//! The levels are the grid, in ascending order; the search sees their numbers from 1 on. What it
//! finds is reported in the factor's own unit.

use kendall_stats::adaptive::shape::fit;
use kendall_stats::adaptive::{Outcome, Search, Settings, Step};
use kendall_stats::stopping::StoppingRule;
use kendall_store::{FittedShape, SearchFound};
use kendall_units::{exact_f64, whole_u64};

/// What a search does next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Next {
    /// Runs this level; so many runs of it were used already.
    Run { index: usize, repetition: u32 },
    /// Enough is known; with the runs that were used, each a level and its throughput.
    Done(Box<(Outcome, Vec<(f64, f64)>)>),
    /// It cannot go on, or may not; why.
    Ended(String),
}

/// The next step on a grid. `throughput` says what the given repetition of a level measured, and
/// `None` where that run has not ended well. The same answers give the same steps, so a study that
/// was killed resumes where it was.
pub(crate) fn next(
    grid: &[f64],
    rule: StoppingRule,
    max_runs: usize,
    throughput: impl Fn(usize, u32) -> Option<f64>,
) -> Next {
    let settings = Settings { low: 1, high: whole_u64(exact_f64(grid.len())), rule };
    let mut search = match Search::new(settings) {
        Ok(search) => search,
        Err(error) => return Next::Ended(error.to_string()),
    };
    let mut used = vec![0_u32; grid.len()];
    let mut runs: Vec<(f64, f64)> = Vec::new();
    for _ in 0..max_runs {
        let load = match search.next() {
            Step::Run { load, .. } => load,
            Step::Done { outcome } => return Next::Done(Box::new((*outcome, runs))),
        };
        let index = place(load, grid);
        let repetition = used[index];
        let Some(measured) = throughput(index, repetition) else {
            return Next::Run { index, repetition };
        };
        used[index] += 1;
        runs.push((grid[index], measured));
        if let Err(error) = search.record(load, measured) {
            return Next::Ended(error.to_string());
        }
    }
    match search.next() {
        Step::Done { outcome } => Next::Done(Box::new((*outcome, runs))),
        Step::Run { .. } => Next::Ended(format!(
            "the {max_runs} runs that `design.max_runs` allows were used up before the maximum was \
             confirmed"
        )),
    }
}

/// Position on the grid of a load of the search.
fn place(load: u64, grid: &[f64]) -> usize {
    usize::try_from(load.saturating_sub(1)).unwrap_or(0).min(grid.len() - 1)
}

/// The outcome in the unit of the factor, with the shape that is fitted to its runs.
pub(crate) fn found(
    outcome: &Outcome,
    runs: &[(f64, f64)],
    confidence: f64,
    grid: &[f64],
) -> SearchFound {
    let level = |load: u64| grid[place(load, grid)];
    SearchFound {
        maximum_throughput_per_s: outcome.maximum_throughput.clone(),
        best: level(outcome.best_load),
        best_between: (level(outcome.best_between.0), level(outcome.best_between.1)),
        // The search saw the lowest level as 1, so its N* counts in lowest levels.
        saturation_point: outcome.saturation_point.map(|lowest| lowest * grid[0]),
        knee_between: (level(outcome.knee_between.0), level(outcome.knee_between.1)),
        shape: outcome.shape,
        beyond: outcome.beyond.as_ref().map(|beyond| (level(beyond.load), beyond.ratio.clone())),
        fit: fit(runs, confidence).map(|fit| FittedShape {
            likely: fit.likely,
            maximum_throughput_per_s: fit.maximum_throughput,
            level_of_maximum: fit.load_of_maximum,
            knee: fit.knee,
            spread: fit.spread,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: StoppingRule =
        StoppingRule { min: 3, max: 10, relative_half_width: 0.03, confidence: 0.95 };

    /// What was found, and in how many runs.
    fn searched(grid: &[f64], throughput: impl Fn(f64) -> f64) -> (SearchFound, u32) {
        let runs = std::cell::Cell::new(0);
        let measure = |index: usize, _| {
            runs.set(runs.get() + 1);
            Some(throughput(grid[index]))
        };
        match next(grid, RULE, 100, measure) {
            Next::Done(done) => (found(&done.0, &done.1, RULE.confidence, grid), runs.get()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_sharp_knee_is_found_in_far_fewer_runs_than_a_sweep() {
        let grid: Vec<f64> = (1..=200).map(f64::from).collect();
        for knee in [3.0, 40.0, 77.0, 150.0] {
            let (found, runs) = searched(&grid, |n| 100.0 * n.min(knee));
            assert!(runs <= 32, "{runs} runs for {knee}");
            assert!((found.saturation_point.center / knee - 1.0).abs() < 0.01, "{found:?}");
            assert!(found.knee_between.0 <= knee && found.best >= 0.95 * knee, "{found:?}");
        }
    }

    #[test]
    fn what_is_found_is_said_in_the_unit_of_the_factor() {
        let grid: Vec<f64> = (0..9).map(|step| 6.0 + 24.0 * f64::from(step)).collect();
        let (found, _) = searched(&grid, |n| 1_000.0 * n.min(60.0));
        assert!((found.saturation_point.center - 60.0).abs() < 0.1, "{found:?}");
        assert!((54.0..=198.0).contains(&found.best), "{found:?}");
    }

    #[test]
    fn it_asks_for_what_has_not_been_run_and_ends_at_its_limits() {
        let grid = [2.0, 4.0, 8.0];
        assert_eq!(next(&grid, RULE, 9, |_, _| None), Next::Run { index: 0, repetition: 0 });
        for (next, why) in [
            (next(&grid, RULE, 2, |_, _| Some(1.0)), "the 2 runs"),
            (next(&grid, RULE, 9, |_, _| Some(0.0)), "throughput"),
            (next(&grid[..1], RULE, 9, |_, _| None), "load"),
        ] {
            assert!(matches!(&next, Next::Ended(said) if said.contains(why)), "{next:?}");
        }
    }
}
