//! Intervals of capacity and knee hold the truth, over seeds: six shapes of curve, 2, 3, 5 and 10
//! repetitions, equal and unequal variances, drift, outliers. `make bench-coverage` prints the whole
//! table; the tests here hold a smaller one.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be computed fails it")]

use kendall_stats::distribution::normal_quantile;
use kendall_stats::load_curve::{CurveRun, REACHED, load_curve, run_at};
use kendall_units::exact_f64;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

type Truth = fn(f64) -> f64;

/// Closed network of two queueing centers and thinking clients, by mean value analysis; between
/// whole numbers of clients the line.
fn network(clients: f64) -> f64 {
    const DEMANDS: [f64; 2] = [1e-3, 0.5e-3];
    const THINK: f64 = 4e-3;
    let exact = |population: f64| {
        let (mut queues, mut throughput, mut n) = ([0.0; 2], 0.0, 1.0);
        while n <= population {
            let residence = [0, 1].map(|k| DEMANDS[k] * (1.0 + queues[k]));
            throughput = n / (THINK + residence[0] + residence[1]);
            queues = residence.map(|time| throughput * time);
            n += 1.0;
        }
        throughput
    };
    let below = clients.floor();
    let share = clients - below;
    (1.0 - share) * exact(below) + share * exact(below + 1.0)
}

const SHAPES: [(&str, Truth); 6] = [
    ("corner", |n| 1_000.0 * (n / 6.0).min(1.0)),
    ("network", network),
    ("Amdahl", |n| 1_250.0 * n / (n + 5.0)),
    ("falls", |n| 300.0 * n / (1.0 + 0.08 * (n - 1.0) + 0.006 * n * (n - 1.0))),
    ("flat", |_| 400.0),
    ("grows", |n| 50.0 * n / (1.0 + n / 60.0)),
];

const LOADS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Noise {
    /// This share at every load.
    Equal(f64),
    /// From 1 % at one client to 8 % at 32.
    Unequal,
    /// 3 %, and 12 % faster at the end than at the start.
    Drift,
    /// 3 %, and one run of all, whichever it is, at 0.55.
    Outlier,
}

const NOISES: [Noise; 5] =
    [Noise::Equal(0.01), Noise::Equal(0.03), Noise::Unequal, Noise::Drift, Noise::Outlier];

fn runs(truth: Truth, repetitions: u32, noise: Noise, seed: u64) -> Vec<CurveRun> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let count = usize::try_from(repetitions).unwrap() * LOADS.len();
    let outlier = rng.random_range(0..count);
    let mut runs = Vec::new();
    for _ in 0..repetitions {
        let mut order = LOADS;
        order.shuffle(&mut rng);
        for load in order {
            let z = normal_quantile(rng.random::<f64>().clamp(1e-12, 1.0 - 1e-12));
            let place = exact_f64(runs.len());
            let log = match noise {
                Noise::Equal(share) => share * z,
                Noise::Unequal => 0.01 * load.powf(0.6) * z,
                Noise::Drift => 0.03 * z + 0.12 * (place / exact_f64(count - 1) - 0.5),
                Noise::Outlier if runs.len() == outlier => 0.03 * z + 0.55_f64.ln(),
                Noise::Outlier => 0.03 * z,
            };
            runs.push(CurveRun { load, throughput_per_s: truth(load) * log.exp(), weight: 1.0 });
        }
    }
    runs
}

/// Capacity and knee of a true curve.
fn capacity_and_knee(truth: Truth) -> (f64, f64) {
    let steps = 200_000;
    let loads = || (0..=steps).map(|step| 32_f64.powf(f64::from(step) / f64::from(steps)));
    let capacity = LOADS.into_iter().map(truth).fold(0.0, f64::max);
    (capacity, loads().find(|load| truth(*load) >= REACHED * capacity).unwrap())
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    runs: u32,
    held: [u32; 2],
    /// Sums of relative half-widths.
    widths: [f64; 2],
}

impl Tally {
    fn share(&self, which: usize) -> f64 {
        f64::from(self.held[which]) / f64::from(self.runs)
    }

    fn width(&self, which: usize) -> f64 {
        self.widths[which] / f64::from(self.runs)
    }

    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        for which in 0..2 {
            self.held[which] += other.held[which];
            self.widths[which] += other.widths[which];
        }
    }
}

fn tally(shape: usize, repetitions: u32, noise: Noise, seeds: u64) -> Tally {
    let (_, truth) = SHAPES[shape];
    let (capacity, knee) = capacity_and_knee(truth);
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let seed = 1_000 * seed + 10 * exact(shape) + u64::from(repetitions);
        let curve = load_curve(&runs(truth, repetitions, noise, seed), 0.95).unwrap();
        tally.runs += 1;
        for (which, (estimate, truth)) in
            [(&curve.capacity, capacity), (&curve.knee, knee)].into_iter().enumerate()
        {
            let interval = estimate.interval.unwrap();
            // The ends of the range are found to rounding.
            let held =
                interval.low <= truth * (1.0 + 1e-4) && interval.high >= truth * (1.0 - 1e-4);
            tally.held[which] += u32::from(held);
            tally.widths[which] += interval.half_width() / truth;
        }
    }
    tally
}

fn exact(shape: usize) -> u64 {
    u64::try_from(shape).unwrap()
}

/// Over all shapes and kinds of noise. The bar for one cell with many seeds is 93 to 97 %.
#[test]
fn intervals_of_capacity_and_knee_hold_the_truth() {
    let mut all = [Tally::default(), Tally::default()];
    for noise in NOISES {
        for shape in 0..SHAPES.len() {
            for (repetitions, all) in [2, 5].into_iter().zip(&mut all) {
                all.add(&tally(shape, repetitions, noise, 2));
            }
        }
    }
    for tally in &all {
        assert!(tally.share(0) > 0.9 && tally.share(1) > 0.9, "{tally:?}");
    }
    assert!(all[0].width(0) < 0.07, "{all:?}");
}

/// The curve of a lock, with two runs a load: 397.8, 386.8, 389.0, 408.2/s from 4 to 32 clients were
/// "anywhere from −29 % to +55 %" when one pair of configurations decided. Where a run of the twelve is
/// spoiled, the interval is wider and the run is named.
#[test]
fn one_outlier_of_twelve_widens_and_is_named() {
    let run = |(load, throughput_per_s)| CurveRun { load, throughput_per_s, weight: 1.0 };
    let mut runs = [
        (4.0, 401.0),
        (1.0, 372.0),
        (32.0, 415.9),
        (2.0, 391.0),
        (16.0, 392.4),
        (8.0, 383.1),
        (8.0, 390.5),
        (32.0, 400.5),
        (1.0, 379.0),
        (16.0, 385.6),
        (4.0, 394.6),
        (2.0, 402.0),
    ]
    .map(run);
    let quiet = load_curve(&runs, 0.95).unwrap();
    let of = |curve: &kendall_stats::load_curve::LoadCurve| curve.capacity.interval.unwrap();
    let interval = of(&quiet);
    assert!(interval.low > 375.0 && interval.high < 425.0, "{interval}");
    assert!(quiet.last_doubling.interval.unwrap().high < 0.1, "{quiet:?}");
    assert!(quiet.outliers.is_empty());
    runs[7].throughput_per_s = 160.0;
    let spoiled = load_curve(&runs, 0.95).unwrap();
    assert_eq!(spoiled.outliers, [7]);
    let wider = of(&spoiled);
    assert!(wider.half_width() > interval.half_width(), "{wider}");
    assert!(wider.low > 340.0 && wider.high < 460.0, "{wider}");
}

/// A run between the loads, at two and at four times the highest: the loads that are fitted, and the one asked.
const ASKED: [(&[f64], f64); 3] = [
    (&[1.0, 2.0, 4.0, 16.0, 32.0], 8.0),
    (&[1.0, 2.0, 4.0, 8.0], 16.0),
    (&[1.0, 2.0, 4.0, 8.0], 32.0),
];

/// How many of a study's further runs lie within their intervals, and the mean of ln(high/low)/2.
fn further_runs(shape: usize, noise: Noise, asked: usize, seeds: u64) -> (u32, f64) {
    let (_, truth) = SHAPES[shape];
    let (fitted, load) = ASKED[asked];
    let (mut held, mut width) = (0, 0.0);
    for seed in 0..seeds {
        let mut all = runs(truth, 3, noise, 7_000 + 100 * seed + exact(shape));
        let last = all.iter().rposition(|run| run.load.total_cmp(&load).is_eq()).unwrap();
        let further = all.remove(last).throughput_per_s;
        all.retain(|run| fitted.contains(&run.load));
        let interval = run_at(&all, load, 0.95).unwrap().interval.unwrap();
        held += u32::from(interval.contains(further));
        width +=
            0.5 * (interval.high / interval.low).ln() / exact_f64(usize::try_from(seeds).unwrap());
    }
    (held, width)
}

/// Of 36 runs a question, 95 % held are 34; below 30 are one in 100. What is held may not be bought by width.
#[test]
fn a_further_run_lies_within_its_interval() {
    for (asked, widest) in [0.12, 0.6, 1.1].into_iter().enumerate() {
        let of = |shape| further_runs(shape, Noise::Equal(0.03), asked, 6);
        let all: Vec<(u32, f64)> = (0..SHAPES.len()).map(of).collect();
        let held: u32 = all.iter().map(|one| one.0).sum();
        let width = all.iter().map(|one| one.1).sum::<f64>() / exact_f64(all.len());
        assert!(held >= 30 && width < widest, "{:?}: {all:?}", ASKED[asked]);
    }
}

#[test]
#[ignore = "the table of `make bench-coverage`"]
fn coverage_of_further_runs() {
    let seeds = std::env::var("SEEDS").map_or(100, |seeds| seeds.parse().unwrap());
    for noise in NOISES {
        for (asked, (fitted, load)) in ASKED.iter().enumerate() {
            let of = |shape| further_runs(shape, noise, asked, seeds);
            let cells: Vec<String> = SHAPES
                .iter()
                .enumerate()
                .map(|(shape, (name, _))| {
                    let (held, width) = of(shape);
                    format!(
                        "{name} {:.0} % ±{:.0} %",
                        100.0 * f64::from(held) / exact_f64(usize::try_from(seeds).unwrap()),
                        100.0 * width
                    )
                })
                .collect();
            println!("{noise:?}, {fitted:?} to {load}: {}", cells.join(", "));
        }
    }
}

#[test]
fn runs_that_say_nothing_of_their_scatter_are_refused() {
    let run = |(load, throughput_per_s)| CurveRun { load, throughput_per_s, weight: 1.0 };
    let single = [(1.0, 100.0), (10.0, 1_000.0), (20.0, 1_000.0)].map(run);
    assert!(load_curve(&single, 0.95).is_none());
    assert!(load_curve(&[single[0]; 8], 0.95).is_none());
    assert!(load_curve(&[(0.0, 1.0), (1.0, 1.0)].map(run).repeat(4), 0.95).is_none());
}

#[test]
#[ignore = "the table of `make bench-coverage`"]
fn coverage_of_capacity_and_knee() {
    let seeds = std::env::var("SEEDS").map_or(200, |seeds| seeds.parse().unwrap());
    println!("capacity and knee of a load curve, {seeds} studies a cell: held % and half-width %");
    for noise in NOISES {
        for repetitions in [2, 3, 5, 10] {
            let mut all = Tally::default();
            let mut line = String::new();
            for (shape, (name, _)) in SHAPES.iter().enumerate() {
                let one = tally(shape, repetitions, noise, seeds);
                line += &format!(" {name} {:.0}/{:.0}", 100.0 * one.share(0), 100.0 * one.share(1));
                all.add(&one);
            }
            println!(
                "{noise:?} x{repetitions}: capacity {:.1} % ±{:.1} %, knee {:.1} % ±{:.0} % |{line}",
                100.0 * all.share(0),
                100.0 * all.width(0),
                100.0 * all.share(1),
                100.0 * all.width(1)
            );
        }
    }
}
