//! Intervals of 95 % hold a known truth 95 % of the time, over seeds; and the formulas that do not
//! are shown beside them.
//!
//! Truth: response times of M/M/1 (FCFS, stationary start) are exponential with mean 1/(μ−λ), and
//! strongly correlated. `make bench-coverage` prints the whole table; the tests here hold its
//! acceptance cells with fewer seeds.

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::sample::{mean_interval, sorted_quantile};
use crate::steady::mser5;

/// Mean of single observations of one run, such as response times in the order of completion.
///
/// Carries [`Caveat::Autocorrelated`] where fewer than half of the observations count, and no
/// interval where fewer than 100 effectively independent ones or 10 independent batches are left.
///
/// # Errors
/// [`SampleError`] for nothing, for NaN, and for a confidence outside (0, 1).
///
/// # Source
/// Batch means [Jain91 §25.5.2]; skewness and correlation as in Tafazzoli, Wilson, Lada, Steiger
/// 2011 (Skart).
fn mean_of_observations(series: &[f64], confidence: f64) -> Result<Estimate, SampleError> {
    check(series)?;
    check_confidence(confidence)?;
    let batches = Batches::of(series, EFFECTIVE_FOR_MEAN);
    let estimate = Estimate::exact(mean(series));
    let count = exact_f64(series.len());
    let Some(effective) = batches.effective(variance(series).unwrap_or(0.0)) else {
        return Ok(constant(estimate, series.len(), confidence));
    };
    if let Some(caveat) = batches.refusal() {
        return Ok(estimate.doubt(caveat));
    }
    if effective < EFFECTIVE_FOR_MEAN {
        let caveat = Caveat::Autocorrelated { count: whole_u64(count), effective };
        let batches = whole_u64(effective);
        let need = whole_u64(EFFECTIVE_FOR_MEAN);
        return Ok(estimate.doubt(caveat).doubt(Caveat::TooCorrelated { batches, need }));
    }
    let (low, high) = batches.errors(confidence);
    let interval =
        Interval { low: estimate.center + low, high: estimate.center + high, confidence };
    let mut estimate = Estimate { interval: Some(interval), ..estimate };
    if effective < 0.5 * count {
        estimate = estimate.doubt(Caveat::Autocorrelated { count: whole_u64(count), effective });
    }
    Ok(estimate)
}

/// A percentile of single observations of one run.
///
/// The center is the order statistic of the whole series (the mean of percentiles of batches would
/// be biased). Needs 5 effectively independent observations beyond the percentile and 100 in all,
/// which at 80 % utilization are 50,000 to 100,000 requests for p99; below that, no interval.
///
/// # Errors
/// [`SampleError`] for nothing, for NaN, and for a quantile or confidence outside (0, 1).
///
/// # Source
/// Order statistics [David, Nagaraja 2003 §7.1] at the effective size of the indicator series, as
/// in Chen, Kelton 2006; the error of its mean as for [`mean_of_observations`].
fn quantile_of_observations(
    series: &[f64],
    quantile: f64,
    confidence: f64,
) -> Result<Estimate, SampleError> {
    check(series)?;
    check_quantile(quantile)?;
    check_confidence(confidence)?;
    let mut sorted = series.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let center = order_statistic(&sorted, quantile);
    let count = exact_f64(series.len());
    let indicator: Vec<f64> = series.iter().map(|x| f64::from(u8::from(*x > center))).collect();
    let above = mean(&indicator);
    let batches = Batches::of(&indicator, EFFECTIVE_FOR_MEAN);
    let ends = |share: f64| order_statistic(&sorted, share);
    let center = Center { value: center, quantile, above, count };
    Ok(quantile_estimate(center, &batches, confidence, ends))
}

/// x₍⌈np⌉₎ of a sorted series.
fn order_statistic(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * exact_f64(sorted.len()) - 1e-9).ceil().max(1.0);
    let index = usize::try_from(whole_u64(rank)).unwrap_or(sorted.len()).min(sorted.len());
    sorted[index - 1]
}

fn noise(i: u64) -> f64 {
    let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    exact_f64((mixed ^ (mixed >> 32)) >> 40) / 16_777_216.0
}

#[test]
fn independent_observations_count_in_full() {
    let series: Vec<f64> = (0..20_000).map(noise).collect();
    let estimate = mean_of_observations(&series, 0.95).unwrap();
    // Fewer than half that count would be said.
    assert!(estimate.caveats.is_empty(), "{estimate:?}");
    // 1.96 · 0.2887 / √20,000 = 0.004.
    let half_width = estimate.interval.unwrap().half_width();
    assert!((0.002..0.008).contains(&half_width), "{estimate:?}");
}

#[test]
fn a_random_walk_gets_no_interval() {
    let mut level = 0.0;
    let walk: Vec<f64> = (0..20_000)
        .map(|i| {
            level += noise(i * 7919) - 0.5;
            level
        })
        .collect();
    let estimate = mean_of_observations(&walk, 0.95).unwrap();
    assert!(estimate.interval.is_none() && !estimate.caveats.is_empty());
    assert!(quantile_of_observations(&walk, 0.99, 0.95).unwrap().interval.is_none());
}

#[test]
fn a_percentile_of_few_samples_is_refused_with_how_many_it_needs() {
    let series: Vec<f64> = (0..300).map(noise).collect();
    let estimate = quantile_of_observations(&series, 0.999, 0.95).unwrap();
    assert!(estimate.interval.is_none());
    let Caveat::TooFewSamples { need, .. } = estimate.caveats[0] else { panic!() };
    assert!((need - 4_995.0).abs() < 1e-6);
}

#[test]
fn constant_and_tiny_series_neither_panic_nor_lie() {
    let constant = mean_of_observations(&[4.0; 500], 0.95).unwrap();
    assert_eq!(constant.interval, Some(Interval::around(4.0, 0.0, 0.95)));
    for count in 1..40_u64 {
        let series: Vec<f64> = (0..count).map(noise).collect();
        assert!(mean_of_observations(&series, 0.95).unwrap().interval.is_none());
        assert!(quantile_of_observations(&series, 0.5, 0.95).unwrap().interval.is_none());
        assert_eq!(of_windows(&series, 0.95).0.interval.is_some(), count >= 10);
    }
}

/// Independent windows, in numbers that no batch divides: the interval takes as many degrees of freedom as it
/// has batches. With two more than it has, 93.4 % would hold the truth at 21 windows; the standard error
/// of a share of 20,000 is 0.15 %.
#[test]
fn windows_that_no_batch_divides_hold_the_truth_as_often_as_they_say() {
    for windows in [21, 27, 61] {
        let held = (0..20_000_u64).filter(|number| {
            let series: Vec<f64> = (0..windows)
                .map(|i| (0..12).map(|k| noise((number * 61 + i) * 12 + k)).sum::<f64>() - 6.0)
                .collect();
            let mean = of_windows(&series, 0.95).0;
            mean.interval.is_none_or(|interval| interval.contains(0.0))
        });
        let share = exact_f64(held.count()) / 20_000.0;
        assert!((0.942..0.96).contains(&share), "{windows} windows: {share}");
    }
}

/// Pareto times of index 1.5 have no variance; exponential ones do.
#[test]
fn an_infinite_variance_is_said_beside_the_mean() {
    let windows = |quantile: &dyn Fn(f64) -> f64| -> Vec<Histogram> {
        let mut number = 0_u64;
        (0..20)
            .map(|_| {
                let mut histogram = Histogram::new();
                for _ in 0..1_000 {
                    number += 1;
                    histogram.record(whole_u64(1e6 * quantile(1.0 - noise(number))));
                }
                histogram
            })
            .collect()
    };
    let heavy = |mean: &Estimate| {
        mean.caveats.iter().any(|caveat| matches!(caveat, Caveat::HeavyTail { .. }))
    };
    let pareto = windows(&|u: f64| u.max(1e-9).powf(-1.0 / 1.5));
    assert!(heavy(&mean_of_histograms(&pareto, 0.95).unwrap()));
    let exponential = windows(&|u: f64| -u.max(1e-9).ln());
    assert!(!heavy(&mean_of_histograms(&exponential, 0.95).unwrap()));
}

#[test]
fn windows_of_histograms_give_mean_and_percentile() {
    let windows: Vec<Histogram> = (0..60_u64)
        .map(|w| {
            let mut histogram = Histogram::new();
            for i in 0..1_000 {
                histogram.record(whole_u64(1e6 * (1.0 + noise(w * 1_000 + i))));
            }
            histogram
        })
        .collect();
    let mean = mean_of_histograms(&windows, 0.95).unwrap();
    assert!(mean.interval.unwrap().half_width() < 5e3, "{mean:?}");
    let p99 = quantile_of_windows(&windows, 0.99, 0.95).unwrap();
    assert!(p99.interval.unwrap().contains(1.99e6), "{p99:?}");
}

fn exponential(rng: &mut Xoshiro256PlusPlus) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}

/// Response times of successive customers, service time 1 (Lindley's recursion).
fn mm1(utilization: f64, count: usize, seed: u64, stationary: bool) -> Vec<f64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let busy = stationary && rng.random::<f64>() < utilization;
    let mut waiting = if busy { exponential(&mut rng) / (1.0 - utilization) } else { 0.0 };
    (0..count)
        .map(|_| {
            let service = exponential(&mut rng);
            let response = waiting + service;
            waiting = (response - exponential(&mut rng) / utilization).max(0.0);
            response
        })
        .collect()
}

/// What an interval method did over many seeds.
#[derive(Default)]
struct Tally {
    runs: u32,
    given: u32,
    covered: u32,
    half_widths: f64,
}

impl Tally {
    fn add(&mut self, estimate: &Estimate, truth: f64) {
        self.runs += 1;
        if let Some(interval) = estimate.interval {
            self.given += 1;
            self.covered += u32::from(interval.contains(truth));
            self.half_widths += interval.half_width() / truth;
        } else {
            assert!(!estimate.caveats.is_empty(), "no interval, and no reason");
        }
    }

    fn given_share(&self) -> f64 {
        f64::from(self.given) / f64::from(self.runs)
    }

    fn coverage(&self) -> f64 {
        f64::from(self.covered) / f64::from(self.given)
    }

    /// Share of all runs that got an interval which does not hold the truth.
    fn wrong(&self) -> f64 {
        f64::from(self.given - self.covered) / f64::from(self.runs)
    }
}

fn tallies(utilization: f64, count: usize, seeds: std::ops::Range<u64>) -> (Tally, Tally) {
    let truth = 1.0 / (1.0 - utilization);
    let (mut means, mut percentiles) = (Tally::default(), Tally::default());
    for seed in seeds {
        let series = mm1(utilization, count, seed, true);
        means.add(&mean_of_observations(&series, 0.95).unwrap(), truth);
        let p99 = quantile_of_observations(&series, 0.99, 0.95).unwrap();
        percentiles.add(&p99, truth * 100.0_f64.ln());
    }
    (means, percentiles)
}

/// The bar: utilization at most 0.8 and at least 10⁵ observations: 92 to 97 %. The bounds
/// here add two standard errors of 300 seeds (1.3 %).
#[test]
fn intervals_hold_where_there_is_enough_data() {
    for (utilization, count) in [(0.5, 100_000), (0.8, 100_000)] {
        let (means, percentiles) = tallies(utilization, count, 1_000..1_300);
        for (what, tally) in [("mean", means), ("p99", percentiles)] {
            let coverage = tally.coverage();
            assert!(
                (0.92 - 0.025..=0.97 + 0.02).contains(&coverage),
                "{what} at {utilization}: {coverage}"
            );
            assert!(tally.given_share() > 0.9, "{what} at {utilization}: {}", tally.given_share());
        }
    }
}

/// Where every method fails (§5.2 of the study of peers: 33–87 %), most runs are refused, and few
/// of all runs get a wrong interval.
#[test]
fn too_little_data_is_refused() {
    let (means, percentiles) = tallies(0.9, 10_000, 2_000..2_300);
    for (what, tally) in [("mean", means), ("p99", percentiles)] {
        assert!(tally.given_share() < 0.2, "{what}: {}", tally.given_share());
        assert!(tally.wrong() < 0.08, "{what}: {}", tally.wrong());
    }
    let (_, percentiles) = tallies(0.8, 10_000, 2_000..2_300);
    assert!(percentiles.given_share() < 0.3 && percentiles.wrong() < 0.08);
}

/// The documented contrast: the formula for independent observations, on the same data.
#[test]
fn formulas_for_independent_observations_do_not_hold() {
    let (utilization, count, runs) = (0.8, 100_000, 200_u32);
    let truth = 1.0 / (1.0 - utilization);
    let covered = (0..runs)
        .filter(|seed| {
            let series = mm1(utilization, count, u64::from(*seed), true);
            mean_interval(&series, 0.95).unwrap().interval.unwrap().contains(truth)
        })
        .count();
    let coverage = exact_f64(covered) / f64::from(runs);
    // The study of peers: 4 to 22 %; two standard errors of 200 runs are 6 %.
    assert!((0.04..0.28).contains(&coverage), "{coverage}");
}

/// Response times at utilization 0.8 carry the information of 1 to 2 % as many independent ones
///; a percentile that needs more than there are is refused,
/// however many requests there were.
#[test]
fn percentiles_need_the_effective_sample_size() {
    let (utilization, count, runs) = (0.8, 100_000, 40_u32);
    let shares: f64 = (0..runs)
        .map(|seed| {
            let series = mm1(utilization, count, u64::from(seed), true);
            let mean = mean_of_observations(&series, 0.95).unwrap();
            let effective = mean.caveats.iter().find_map(|caveat| match caveat {
                Caveat::Autocorrelated { effective, .. } => Some(*effective),
                _ => None,
            });
            effective.unwrap() / exact_f64(count)
        })
        .sum();
    let share = shares / f64::from(runs);
    assert!((0.005..0.03).contains(&share), "{share}");
    // 20,000 requests hold 20 beyond p99.9, and that is too little: they come in few clusters.
    for seed in 0..10 {
        let series = mm1(utilization, 20_000, seed, true);
        let p999 = quantile_of_observations(&series, 0.999, 0.95).unwrap();
        assert!(p999.interval.is_none() && !p999.caveats.is_empty());
    }
}

/// The acceptance table (`make bench-coverage`).
#[test]
#[ignore = "minutes; `make bench-coverage` runs it and prints the table"]
fn the_whole_table() {
    println!("M/M/1 response times, stationary start; nominal 95 %");
    println!(
        "{:>5} {:>8} {:>5} | {:>6} | {:>6} {:>6} {:>6} {:>6} | {:>6} {:>6} {:>6} {:>6}",
        "rho", "n", "runs", "iid", "given", "cover", "wrong", "+-", "given", "cover", "wrong", "+-"
    );
    for (utilization, count, runs) in [
        (0.5, 10_000, 2_000),
        (0.5, 100_000, 2_000),
        (0.8, 10_000, 2_000),
        (0.8, 100_000, 2_000),
        (0.8, 1_000_000, 1_000),
        (0.9, 10_000, 2_000),
        (0.9, 100_000, 2_000),
        (0.9, 1_000_000, 300),
        (0.95, 100_000, 1_000),
    ] {
        let truth = 1.0 / (1.0 - utilization);
        let (means, percentiles) = tallies(utilization, count, 0..runs);
        let mut independent = Tally::default();
        for seed in 0..300 {
            let series = mm1(utilization, count, seed, true);
            independent.add(&mean_interval(&series, 0.95).unwrap(), truth);
        }
        let row = |tally: &Tally| {
            format!(
                "{:>6.3} {:>6.3} {:>6.3} {:>6.3}",
                tally.given_share(),
                tally.coverage(),
                tally.wrong(),
                tally.half_widths / f64::from(tally.given.max(1))
            )
        };
        println!(
            "{utilization:>5} {count:>8} {runs:>5} | {:>6.3} | {} | {}",
            independent.coverage(),
            row(&means),
            row(&percentiles)
        );
    }
    println!("columns: formula for independent observations | mean | p99");
    warm_up_of_an_empty_queue();
}

/// M/M/1 at 0.9 started empty: the cut must do no harm.
fn warm_up_of_an_empty_queue() {
    let mut errors = Vec::new();
    let mut plain = Vec::new();
    for seed in 0..400 {
        let series = mm1(0.9, 20_000, seed, false);
        errors.push(mean(mser5(&series).unwrap().kept(&series)) / 10.0 - 1.0);
        plain.push(mean(&series) / 10.0 - 1.0);
    }
    let rms = |values: &[f64]| (values.iter().map(|e| e * e).sum::<f64>() / 400.0).sqrt();
    println!(
        "M/M/1 at 0.9 started empty: bias {:+.1} % (rms {:.1}) without a cut, {:+.1} % (rms {:.1}) \
         with MSER-5 at both ends",
        100.0 * mean(&plain),
        100.0 * rms(&plain),
        100.0 * mean(&errors),
        100.0 * rms(&errors)
    );
    errors.sort_unstable_by(f64::total_cmp);
    println!("  median error {:+.1} %", 100.0 * sorted_quantile(&errors, 0.5));
}
