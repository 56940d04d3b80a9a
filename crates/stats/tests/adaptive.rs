//! The adaptive search against a full sweep, on noisy curves whose truth is known.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be computed fails it")]

use kendall_stats::adaptive::{Outcome, Search, Settings, Step};
use kendall_stats::distribution::normal_quantile;
use kendall_stats::stopping::StoppingRule;
use kendall_units::exact_f64;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Universal Scalability Law.
fn usl(load: u64, alpha: f64, beta: f64) -> f64 {
    let n = exact_f64(load);
    1_000.0 * n / (1.0 + alpha * (n - 1.0) + beta * n * (n - 1.0))
}

/// Exact mean value analysis: queueing centers with these demands (s), think time Z.
fn mva(load: u64, demands: &[f64], think_time: f64) -> f64 {
    let mut queue = vec![0.0; demands.len()];
    let mut throughput = 0.0;
    for n in 1..=load {
        let residence: Vec<f64> = demands.iter().zip(&queue).map(|(d, q)| d * (1.0 + q)).collect();
        throughput = exact_f64(n) / (residence.iter().sum::<f64>() + think_time);
        queue = residence.iter().map(|r| throughput * r).collect();
    }
    throughput
}

struct Case {
    name: &'static str,
    low: u64,
    high: u64,
    curve: fn(u64) -> f64,
}

const CASES: [Case; 5] = [
    Case { name: "USL, peak at 14", low: 1, high: 64, curve: |n| usl(n, 0.068, 0.005) },
    Case { name: "USL, peak at 97", low: 1, high: 256, curve: |n| usl(n, 0.0277, 0.000_104) },
    Case { name: "USL, no retrograde", low: 1, high: 256, curve: |n| usl(n, 0.02, 0.0) },
    Case { name: "MVA, two centers", low: 1, high: 200, curve: |n| mva(n, &[0.002, 0.001], 0.02) },
    Case { name: "MVA, think time", low: 6, high: 198, curve: |n| mva(n, &[0.0005, 0.0004], 0.03) },
];

fn noisy(value: f64, spread: f64, rng: &mut Xoshiro256PlusPlus) -> f64 {
    let share = rng.random::<f64>().clamp(1e-12, 1.0 - 1e-12);
    value * (spread * normal_quantile(share)).exp()
}

fn search(case: &Case, spread: f64, seed: u64) -> Outcome {
    let rule = StoppingRule { min: 3, max: 10, relative_half_width: 0.03, confidence: 0.95 };
    let mut search = Search::new(Settings { low: case.low, high: case.high, rule }).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    loop {
        match search.next() {
            Step::Run { load, .. } => {
                search.record(load, noisy((case.curve)(load), spread, &mut rng)).unwrap();
            }
            Step::Done { outcome } => return *outcome,
        }
    }
}

/// Every `step`-th load, three repetitions each: the best mean.
fn sweep(case: &Case, spread: f64, seed: u64) -> (f64, u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let step = ((case.high - case.low) / 24).max(1);
    let (mut best, mut runs) = (0.0_f64, 0);
    let mut load = case.low;
    while load <= case.high {
        let mean = (0..3).map(|_| noisy((case.curve)(load), spread, &mut rng)).sum::<f64>() / 3.0;
        best = best.max(mean);
        runs += 3;
        load += step;
    }
    (best, runs)
}

/// Fewer than a third of the runs of a sweep of 25 loads, an error no larger, and an interval that
/// holds the true maximum: at least 90 % over 300 seeds of each curve (nominal 95 %, less the bias
/// of a load that is near the best one and not at it).
#[test]
fn few_runs_find_the_maximum_and_say_how_sure_it_is() {
    let (seeds, spread) = (300_u32, 0.02);
    for case in &CASES {
        let truth = (case.low..=case.high).map(case.curve).fold(0.0, f64::max);
        let (mut runs, mut swept_runs, mut covered) = (0, 0, 0_u32);
        let (mut error, mut swept_error, mut bias) = (0.0, 0.0, 0.0);
        for seed in 0..seeds {
            let outcome = search(case, spread, u64::from(seed));
            let maximum = &outcome.maximum_throughput;
            runs += outcome.runs;
            covered += u32::from(maximum.interval.unwrap().contains(truth));
            error += (maximum.center / truth - 1.0).abs();
            bias += maximum.center / truth - 1.0;
            let (best, count) = sweep(case, spread, u64::from(seed));
            swept_runs += count;
            swept_error += (best / truth - 1.0).abs();
        }
        let all = f64::from(seeds);
        let (runs, swept_runs) = (exact_f64(runs) / all, exact_f64(swept_runs) / all);
        let coverage = f64::from(covered) / all;
        println!(
            "{:<20} runs {runs:>5.1} (sweep {swept_runs:.0}); mean error {:.2} % (sweep {:.2} %), \
             bias {:+.2} %; coverage {:.1} %",
            case.name,
            100.0 * error / all,
            100.0 * swept_error / all,
            100.0 * bias / all,
            100.0 * coverage
        );
        assert!(runs < swept_runs / 3.0, "{}: {runs} of {swept_runs}", case.name);
        assert!(coverage > 0.9, "{}: {coverage}", case.name);
        assert!(error <= 1.1 * swept_error, "{}: {error} of {swept_error}", case.name);
    }
}

/// N* = (D + Z)/Dmax of a network, within its interval or a tenth (the lowest load queues a bit).
#[test]
fn the_saturation_point_is_that_of_the_network() {
    let case = &CASES[3];
    let truth = (0.002 + 0.001 + 0.02) / 0.002;
    let mut covered = 0;
    for seed in 0..100 {
        let point = search(case, 0.01, seed).saturation_point;
        assert!((point.center / truth - 1.0).abs() < 0.1, "{point:?}");
        covered += u32::from(point.interval.unwrap().contains(truth));
    }
    assert!(covered >= 88, "{covered}");
}
