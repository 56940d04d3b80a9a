//! The adaptive search against a full sweep, on noisy curves whose truth is known.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be computed fails it")]

use kendall_stats::adaptive::shape::fit;
use kendall_stats::adaptive::{Outcome, Search, Settings, Shape, Step};
use kendall_stats::distribution::normal_quantile;
use kendall_stats::estimate::Estimate;
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

const CASES: [Case; 9] = [
    Case { name: "USL, peak at 14", low: 1, high: 64, curve: |n| usl(n, 0.068, 0.005) },
    Case { name: "USL, peak at 97", low: 1, high: 256, curve: |n| usl(n, 0.0277, 0.000_104) },
    Case { name: "USL, no retrograde", low: 1, high: 256, curve: |n| usl(n, 0.02, 0.0) },
    Case { name: "MVA, two centers", low: 1, high: 200, curve: |n| mva(n, &[0.002, 0.001], 0.02) },
    Case { name: "MVA, think time", low: 6, high: 198, curve: |n| mva(n, &[0.0005, 0.0004], 0.03) },
    Case { name: "hard limit at 40", low: 1, high: 200, curve: |n| 100.0 * exact_f64(n.min(40)) },
    Case { name: "cliff after 40", low: 1, high: 200, curve: |n| cliff(n, 40, 0.6) },
    Case { name: "cliff after 90", low: 2, high: 256, curve: |n| cliff(n, 90, 0.3) },
    Case { name: "USL, steep", low: 1, high: 64, curve: |n| usl(n, 0.01, 0.01) },
];

/// A line that breaks down to a share of its height.
fn cliff(load: u64, last: u64, share: f64) -> f64 {
    let line = 100.0 * exact_f64(load.min(last));
    if load > last { share * line } else { line }
}

/// The lowest load that reaches 95 % of the maximum.
fn true_knee(case: &Case) -> u64 {
    let top = (case.low..=case.high).map(case.curve).fold(0.0, f64::max);
    (case.low..=case.high).find(|load| (case.curve)(*load) >= 0.95 * top).unwrap()
}

fn noisy(value: f64, spread: f64, rng: &mut Xoshiro256PlusPlus) -> f64 {
    let share = rng.random::<f64>().clamp(1e-12, 1.0 - 1e-12);
    value * (spread * normal_quantile(share)).exp()
}

fn search(case: &Case, spread: f64, seed: u64) -> Outcome {
    disturbed(case, spread, seed, |_, _| false).0
}

/// The same, with runs that are disturbed (by their number, and by chance) and measure two fifths.
fn disturbed(
    case: &Case,
    spread: f64,
    seed: u64,
    is_disturbed: impl Fn(u32, f64) -> bool,
) -> (Outcome, Vec<(f64, f64)>) {
    let rule = StoppingRule { min: 3, max: 10, relative_half_width: 0.03, confidence: 0.95 };
    let mut search = Search::new(Settings { low: case.low, high: case.high, rule }).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut number, mut runs) = (0, Vec::new());
    loop {
        match search.next() {
            Step::Run { load, .. } => {
                let share = if is_disturbed(number, rng.random()) { 0.4 } else { 1.0 };
                let measured = share * noisy((case.curve)(load), spread, &mut rng);
                search.record(load, measured).unwrap();
                runs.push((exact_f64(load), measured));
                number += 1;
                assert!(number < 200, "{}: the search does not end", case.name);
            }
            Step::Done { outcome } => return (*outcome, runs),
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

/// Fewer than half of the runs of a sweep of 25 loads, an error no larger, and an interval that
/// holds the true maximum: at least 90 % over 300 seeds of each curve (nominal 95 %, less the bias
/// of a load that is near the best one and not at it).
#[test]
fn few_runs_find_the_maximum_and_say_how_sure_it_is() {
    let (seeds, spread) = (100_u32, 0.02);
    for case in &CASES[..5] {
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
        assert!(runs < swept_runs / 2.0, "{}: {runs} of {swept_runs}", case.name);
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

/// What a search promises, over seeds: coverage of the maximum's interval and of the knee's bracket,
/// mean width of that bracket as a ratio, runs, and the mean error of the maximum.
fn promises(case: &Case, spread: f64, seeds: u32) -> (f64, f64, f64, f64, f64) {
    let truth = (case.low..=case.high).map(case.curve).fold(0.0, f64::max);
    let knee = true_knee(case);
    let (mut maximum, mut bracket, mut width, mut runs, mut error) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let all = f64::from(seeds);
    for seed in 0..seeds {
        let outcome = search(case, spread, u64::from(seed) + 50_000);
        let interval = outcome.maximum_throughput.interval.unwrap();
        maximum += f64::from(u8::from(interval.contains(truth))) / all;
        let (below, above) = outcome.knee_between;
        bracket += f64::from(u8::from(below <= knee && knee <= above)) / all;
        width += exact_f64(above) / exact_f64(below) / all;
        runs += exact_f64(outcome.runs) / all;
        error += (outcome.maximum_throughput.center / truth - 1.0).abs() / all;
    }
    (maximum, bracket, width, runs, error)
}

/// The bracket of the knee and the interval of the maximum hold their truth on curves of all shapes
/// at 1, 3 and 5 % noise: 95 %, less three standard errors of 100 seeds (6.5 %).
#[test]
fn knee_and_maximum_are_where_they_are_said_to_be() {
    let mut failed = Vec::new();
    for case in &CASES {
        for spread in [0.01, 0.03, 0.05] {
            let (maximum, bracket, width, runs, error) = promises(case, spread, 100);
            println!(
                "{:<20} {spread}: maximum {maximum:.2}, knee {bracket:.2} (ratio {width:.2}), \
                 {runs:.1} runs, error {:.1} %",
                case.name,
                100.0 * error
            );
            if maximum < 0.885 || bracket < 0.885 {
                failed.push((case.name, spread, maximum, bracket));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
#[ignore = "minutes; `make bench-coverage` runs it and prints the table"]
fn the_whole_table_of_searches() {
    for case in &CASES {
        for spread in [0.01, 0.03, 0.05] {
            let (maximum, bracket, width, runs, error) = promises(case, spread, 1_000);
            println!(
                "{:<20} {spread}: maximum {maximum:.3}, knee {bracket:.3} (ratio {width:.2}), \
                 {runs:.1} runs, error {:.2} %",
                case.name,
                100.0 * error
            );
        }
    }
}

/// One disturbed run, whichever it is, changes neither the maximum nor hides the knee; and one run
/// in twenty hardly does.
#[test]
fn a_disturbed_run_decides_nothing() {
    let case =
        Case { name: "limit at 8", low: 1, high: 64, curve: |n| 100.0 * exact_f64(n.min(8)) };
    for which in 0..25 {
        let outcome = disturbed(&case, 0.01, u64::from(which), |number, _| number == which).0;
        let maximum = &outcome.maximum_throughput;
        assert!((maximum.center / 800.0 - 1.0).abs() < 0.03, "run {which}: {outcome:?}");
        let (below, above) = outcome.knee_between;
        assert!(below <= 8 && 8 <= above, "run {which}: {outcome:?}");
    }
    let right = (0..100)
        .filter(|seed| {
            let (outcome, _) = disturbed(&case, 0.03, *seed, |_, chance| chance < 0.05);
            (outcome.maximum_throughput.center / 800.0 - 1.0).abs() < 0.05
        })
        .count();
    assert!(right >= 95, "{right}");
}

/// What lies beyond the maximum is an interval, and holds the truth as often as it says: USL, peak
/// at 14, to 64 clients, 3 % noise; 100 seeds, 95 % and two standard errors of 2.2 %.
#[test]
fn the_change_beyond_the_maximum_has_an_interval_that_holds() {
    let case = &CASES[0];
    let peak = (case.low..=case.high).map(|n| (case.curve)(n)).fold(0.0, f64::max);
    let held = (0..100)
        .filter(|seed| {
            let beyond = search(case, 0.03, *seed).beyond.unwrap();
            let truth = (case.curve)(beyond.load) / peak;
            beyond.ratio.interval.unwrap().contains(truth)
        })
        .count();
    assert!(held >= 90, "{held}");
}

/// The shapes are distinguished.
#[test]
fn the_shape_beyond_the_maximum_is_said() {
    for (case, shape) in [
        (&CASES[0], Shape::Retrograde),
        (&CASES[5], Shape::Saturating),
        (&CASES[6], Shape::Cliff),
        (&CASES[7], Shape::Cliff),
    ] {
        let found = (0..20).filter(|seed| search(case, 0.02, *seed).shape == shape).count();
        assert!(found >= 18, "{}: {found} of 20", case.name);
    }
}

/// What the fitted shape promises, over seeds: how often the true shape is among those that are not
/// ruled out, and is the likeliest; how often the intervals of maximum, its load and knee hold; and
/// the width of the last as a ratio. Where a curve has no peak, the load of its maximum says nothing.
fn promises_of_the_fit(case: &Case, shape: Shape, spread: f64, seeds: u32) -> [f64; 6] {
    let loads = || case.low..=case.high;
    let truth = loads().map(case.curve).fold(0.0, f64::max);
    let at = exact_f64(loads().find(|load| (case.curve)(*load) >= truth).unwrap());
    let peaks = matches!(shape, Shape::Retrograde | Shape::Cliff);
    let knee = exact_f64(true_knee(case));
    let all = f64::from(seeds);
    let mut tally = [0.0; 6];
    for seed in 0..seeds {
        let (_, runs) = disturbed(case, spread, u64::from(seed) + 90_000, |_, _| false);
        let fit = fit(&runs, 0.95).unwrap();
        // Loads are whole numbers: the knee lies above the last that does not reach it.
        let holds = |estimate: &Estimate, from: f64, to: f64| {
            estimate.interval.is_some_and(|interval| interval.low <= to && interval.high >= from)
        };
        let found = [
            fit.likely.iter().any(|(known, _)| *known == shape),
            fit.likely[0].0 == shape,
            fit.maximum_throughput.interval.unwrap().contains(truth),
            !peaks || holds(&fit.load_of_maximum, at - 1.0, at + 1.0),
            holds(&fit.knee, knee - 1.0, knee),
        ];
        for (sum, found) in tally.iter_mut().zip(found) {
            *sum += f64::from(u8::from(found)) / all;
        }
        let width = fit.knee.interval.unwrap();
        tally[5] += width.high / width.low / all;
    }
    tally
}

/// The fitted shape of all curves at 1 and 5 % noise: the true one is not ruled out, and the
/// intervals hold: 95 %, less three standard errors of 30 seeds (11.9 %).
#[test]
fn fitted_shapes_and_their_intervals_hold() {
    for (case, shape) in CASES.iter().zip(SHAPES) {
        for spread in [0.01, 0.05] {
            let found = promises_of_the_fit(case, shape, spread, 30);
            let least = [found[0], found[2], found[3], found[4]].into_iter().fold(1.0, f64::min);
            assert!(least >= 0.95 - 0.119, "{} {spread}: {found:?}", case.name);
        }
    }
}

/// The same runs give the same fit; four loads give none, nor does a throughput of nothing.
#[test]
fn a_fit_is_a_function_of_its_runs() {
    let (_, runs) = disturbed(&CASES[0], 0.03, 1, |_, _| false);
    assert_eq!(fit(&runs, 0.95), fit(&runs, 0.95));
    let few: Vec<(f64, f64)> = (1..=4).map(|n| (f64::from(n), 10.0 * f64::from(n))).collect();
    assert_eq!(fit(&few, 0.95), None);
    let nothing = [runs, vec![(70.0, 0.0)]].concat();
    assert_eq!(fit(&nothing, 0.95), None);
}

const SHAPES: [Shape; 9] = [
    Shape::Retrograde,
    Shape::Retrograde,
    // From 128 to 256 clients it still gains 16 %.
    Shape::Growing,
    Shape::Saturating,
    Shape::Saturating,
    Shape::Saturating,
    Shape::Cliff,
    Shape::Cliff,
    Shape::Retrograde,
];

#[test]
#[ignore = "minutes; `make bench-coverage` runs it and prints the table"]
fn the_table_of_fitted_shapes() {
    println!("| curve | noise | not ruled out | likeliest | maximum | its load | knee | ratio |");
    for (case, shape) in CASES.iter().zip(SHAPES) {
        for spread in [0.01, 0.03, 0.05] {
            let found =
                promises_of_the_fit(case, shape, spread, 300).map(|share| format!("{share:.3}"));
            println!("| {} | {spread} | {} |", case.name, found.join(" | "));
        }
    }
}
