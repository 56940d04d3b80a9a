//! A service that limits its own rate: what holds a lock or a pool takes its own time, and never so evenly.

use kendall_fit::saturation::Saturation;
use kendall_observations::{Configuration, Curve, Observations};
use kendall_stats::sample::median;
use kendall_units::exact_f64;

/// Runs that must agree, at loads of which the highest is at least so many times the lowest.
const LEAST_RUNS: usize = 4;
const LEAST_RANGE: f64 = 2.0;
/// The rate of a limit is what its runs agree on to within this share.
const TOLERANCE: f64 = 0.002;
/// Share of the runs that may lie elsewhere: in a pause of the machine a limit loses what it does not save up.
const MOST_UNLIKE: f64 = 0.2;
/// First digits of the rates that are chosen as limits: a rate that comes about is seldom so close to one.
const CHOSEN: [f64; 10] = [1.0, 1.2, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0];

/// The rate that a service lets through, where all loads above the knee show the same.
pub(super) fn of(data: &Observations, curve: &Curve, found: &Saturation) -> Option<f64> {
    let above: Vec<&Configuration> =
        data.along(curve).filter(|one| data.load_of(one) >= found.knee.load).collect();
    let (first, last) = (above.first()?, above.last()?);
    if data.load_of(last) < LEAST_RANGE * data.load_of(first) {
        return None;
    }
    let runs = above.iter().flat_map(|one| &one.repetitions);
    shared(&runs.map(|run| run.seconds.iter().map(|second| second.1).collect()).collect::<Vec<_>>())
}

/// The rate that runs share, by what they completed in each second.
fn shared(runs: &[Vec<f64>]) -> Option<f64> {
    // In the first second a limit lets through what it had saved up.
    let rates = runs.iter().filter_map(|seconds| match seconds.as_slice() {
        [_, rest @ ..] if !rest.is_empty() => {
            Some((rest.iter().sum::<f64>() / exact_f64(rest.len()), rest.len()))
        }
        _ => None,
    });
    let rates: Vec<(f64, usize)> = rates.collect();
    if rates.len() < LEAST_RUNS {
        return None;
    }
    let rate = median(rates.iter().map(|one| one.0).collect());
    // One request more or less at either end.
    let is_fine = |(_, seconds): &&(f64, usize)| 2.0 / exact_f64(*seconds) <= TOLERANCE * rate;
    let alike = rates.iter().filter(|one| (one.0 / rate - 1.0).abs() <= TOLERANCE);
    let alike = alike.filter(is_fine).count();
    let all = exact_f64(runs.len());
    let enough = alike >= LEAST_RUNS && exact_f64(alike) >= (1.0 - MOST_UNLIKE) * all;
    let digits = rate / 10_f64.powf(rate.log10().floor());
    let close = |chosen: &f64| (digits / chosen - 1.0).abs() <= TOLERANCE / 2.0;
    // Just below ten its digits begin with a nine.
    (enough && CHOSEN.iter().chain(&[10.0]).any(close)).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve seconds of a run at this rate, which lets through what it had saved up first.
    fn run(rate: f64, saved: f64) -> Vec<f64> {
        let mut seconds = vec![rate; 12];
        seconds[0] += saved;
        seconds[5] += 1.0;
        seconds
    }

    #[test]
    fn runs_that_share_a_chosen_rate_show_a_limit() {
        let at =
            |rate: f64| shared(&[run(rate, 20.0), run(rate, 0.0), run(rate, 0.0), run(rate, 9.0)]);
        assert!((at(200.0).unwrap() - 200.0).abs() < 0.2);
        assert!((at(1_500.0).unwrap() - 1_500.0).abs() < 1.0);
        assert!(at(999.9).is_some());
        // A lock of 5 ms that wakes late, and one whose runs happen to agree on a rate that is not chosen.
        let late = [196.4, 197.9, 196.0, 198.3].map(|rate| run(rate, 0.0));
        assert_eq!(shared(&late), None);
        assert_eq!(at(197.3), None);
        // Two requests in 22 say nothing that close.
        assert_eq!(at(2.0), None);
        assert_eq!(shared(&[run(200.0, 0.0), run(200.0, 0.0), run(200.0, 0.0)]), None);
        assert_eq!(shared(&[Vec::new(), vec![200.0]]), None);
        // One of five was disturbed.
        let mut five = vec![run(200.0, 0.0); 4];
        five.push(run(150.0, 0.0));
        assert!(shared(&five).is_some());
        five.push(run(170.0, 0.0));
        assert_eq!(shared(&five), None);
    }
}
