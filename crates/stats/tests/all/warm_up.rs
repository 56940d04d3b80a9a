//! What the cut of warm-up and cool-down costs: its bias on stationary systems, and what it finds.
//!
//! Truth: M/M/1 in windows of a second, started in its stationary distribution, has mean response
//! time 1/(μ−λ) in every window. `make bench-coverage` prints the whole tables.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be computed fails it")]

use kendall_stats::distribution::normal_quantile;
use kendall_stats::sample::mean;
use kendall_stats::steady::{
    RESPONSE_TIME_SIGNIFICANCE, THROUGHPUT_SIGNIFICANCE, Truncation, drift, mser5, transient,
};
use kendall_units::exact_f64;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

fn exponential(rng: &mut Xoshiro256PlusPlus) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}

fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    normal_quantile(rng.random::<f64>().clamp(1e-15, 1.0 - 1e-15))
}

/// Completions of every second, and the sums of their response times over the true mean.
fn mm1(rate: f64, utilization: f64, seconds: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let service_rate = rate / utilization;
    let truth = 1.0 / (service_rate - rate);
    let busy = rng.random::<f64>() < utilization;
    let mut waiting = if busy { exponential(&mut rng) * truth } else { 0.0 };
    // Arrivals begin before the first window, so that its completions are all there.
    let mut now = -30.0 * truth;
    let (mut counts, mut sums) = (vec![0.0; seconds], vec![0.0; seconds]);
    loop {
        let gap = exponential(&mut rng) / rate;
        now += gap;
        if now > exact_f64(seconds) {
            return (counts, sums);
        }
        let response = (waiting - gap).max(0.0) + exponential(&mut rng) / service_rate;
        waiting = response;
        let done = now + response;
        if done >= 0.0 && done < exact_f64(seconds) {
            let window = usize::try_from(kendall_units::whole_u64(done.floor())).unwrap();
            counts[window] += 1.0;
            sums[window] += response / truth;
        }
    }
}

/// What a study keeps of a run: the later start and the earlier end of both series.
fn kept(counts: &[f64], sums: &[f64]) -> (usize, usize) {
    let logs: Vec<f64> =
        counts.iter().zip(sums).map(|(n, sum)| (sum / n.max(1.0)).max(1e-9).ln()).collect();
    let cuts = [
        transient(counts, THROUGHPUT_SIGNIFICANCE).unwrap(),
        transient(&logs, RESPONSE_TIME_SIGNIFICANCE).unwrap(),
    ];
    (cuts[0].from.max(cuts[1].from), cuts[0].to.min(cuts[1].to))
}

/// What MSER-5 alone would keep.
fn kept_by_mser5(counts: &[f64], sums: &[f64]) -> (usize, usize) {
    let times: Vec<f64> = counts.iter().zip(sums).map(|(n, sum)| sum / n.max(1.0)).collect();
    let cuts = [mser5(counts).unwrap(), mser5(&times).unwrap()];
    (cuts[0].from.max(cuts[1].from), cuts[0].to.min(cuts[1].to))
}

/// Mean change of the mean response time by a cut, with its standard error, and the share of runs
/// of which anything was cut.
fn bias(
    (rate, utilization, seconds): (f64, f64, usize),
    seeds: std::ops::Range<u64>,
    kept: fn(&[f64], &[f64]) -> (usize, usize),
) -> (f64, f64, f64) {
    let runs = exact_f64(seeds.end - seeds.start);
    let (mut changes, mut cut) = (Vec::new(), 0.0);
    for seed in seeds {
        let (counts, sums) = mm1(rate, utilization, seconds, seed);
        let (from, to) = kept(&counts, &sums);
        let of = |from: usize, to: usize| {
            sums[from..to].iter().sum::<f64>() / counts[from..to].iter().sum::<f64>()
        };
        if from < to {
            changes.push(of(from, to) - of(0, seconds));
        }
        cut += f64::from(u8::from((from, to) != (0, seconds))) / runs;
    }
    let error = kendall_stats::sample::variance(&changes).unwrap_or(0.0) / runs;
    (mean(&changes), error.sqrt(), cut)
}

/// The promise: below 1 % up to utilization 0.95. The bound adds two standard errors of the runs.
#[test]
fn the_cut_biases_stationary_systems_by_less_than_one_per_cent() {
    for case in [(100.0, 0.8, 60), (100.0, 0.9, 60), (20.0, 0.9, 60), (100.0, 0.95, 60)] {
        let (bias, error, _) = bias(case, 0..400, kept);
        assert!(bias.abs() < 0.01 + 2.0 * error, "{case:?}: {bias} ± {error}");
    }
    // The contrast: the rule for the best place, taken for a rule whether to cut.
    let (plain, _, cut) = bias((100.0, 0.9, 60), 0..100, kept_by_mser5);
    assert!(plain < -0.1 && cut > 0.8, "{plain} in {cut}");
}

/// Level of a run at 0 to 1 of its length.
type Level = fn(f64) -> f64;

const SHAPES: [(&str, Level); 4] = [
    ("step of 2 in the first 15 %", |at| if at < 0.15 { 2.0 } else { 1.0 }),
    ("decay from 4", |at| 1.0 + 3.0 * (-at / 0.075).exp()),
    ("step of 2 in the last 5 %", |at| if at > 0.95 { 2.0 } else { 1.0 }),
    ("nothing", |_| 1.0),
];

fn shaped(level: Level, count: usize, (spread, memory): (f64, f64), seed: u64) -> Vec<f64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut error = 0.0;
    let fresh = spread * (1.0_f64 - memory * memory).sqrt();
    (0..count)
        .map(|i| {
            error = memory * error + fresh * normal(&mut rng);
            (level((exact_f64(i) + 0.5) / exact_f64(count)) + error).max(0.01)
        })
        .collect()
}

/// Share of the runs of which something was cut, and the mean bias with the cut and without.
fn found(
    shape: Level,
    count: usize,
    noise: (f64, f64),
    seeds: u64,
    rule: &dyn Fn(&[f64]) -> Truncation,
) -> (f64, f64, f64) {
    let (mut cut, mut with, mut without) = (0.0, 0.0, 0.0);
    for seed in 0..seeds {
        let series = shaped(shape, count, noise, seed);
        let found = rule(&series);
        cut += f64::from(u8::from((found.from, found.to) != (0, count))) / exact_f64(seeds);
        with += (mean(found.kept(&series)) - 1.0) / exact_f64(seeds);
        without += (mean(&series) - 1.0) / exact_f64(seeds);
    }
    (cut, with, without)
}

fn by_throughput(series: &[f64]) -> Truncation {
    transient(series, THROUGHPUT_SIGNIFICANCE).unwrap()
}

fn by_response_time(series: &[f64]) -> Truncation {
    let logs: Vec<f64> = series.iter().map(|value| value.ln()).collect();
    transient(&logs, RESPONSE_TIME_SIGNIFICANCE).unwrap()
}

/// A minute of a run that fluctuates by 5 % from second to second: transients at its start are
/// found by either series in at least 98 % of the runs, and of their bias less than a tenth is
/// left; of runs without one, at most 2 % lose anything (two standard errors above 1 %).
#[test]
fn transients_at_the_start_are_found() {
    for (name, shape) in &SHAPES[..2] {
        for rule in [by_throughput, by_response_time] {
            let (cut, with, without) = found(*shape, 60, (0.05, 0.0), 200, &rule);
            assert!(
                cut >= 0.98 && with.abs() < 0.1 * without,
                "{name}: {cut}, {with} of {without}"
            );
        }
    }
    let (late, ..) = found(SHAPES[2].1, 60, (0.05, 0.0), 200, &by_throughput);
    assert!(late > 0.9, "{late}");
    for rule in [by_throughput, by_response_time] {
        let (none, ..) = found(SHAPES[3].1, 60, (0.05, 0.0), 400, &rule);
        assert!(none < 0.02, "{none}");
    }
}

/// Share of runs with a straight drift of 10 % that are called drifting: Poisson counts of 100 a
/// second for a minute. No test at 1 % could see more than 38 % of these (the normal bound).
#[test]
fn a_drift_is_found_as_often_as_its_noise_allows() {
    let share = |drifting: f64| {
        let found = (0..400_u64).filter(|seed| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(*seed);
            let series: Vec<f64> = (0..60)
                .map(|i| {
                    let rate = 100.0 * (1.0 + drifting * (f64::from(i) / 59.0 - 0.5));
                    rate + rate.sqrt() * normal(&mut rng)
                })
                .collect();
            drift(&series).unwrap().significant
        });
        exact_f64(found.count()) / 400.0
    };
    let (with, without) = (share(0.10), share(0.0));
    println!("drift of 10 %: found in {with}, of none in {without}");
    assert!(with > 0.22 && without < 0.025, "{with} {without}");
    assert!(share(0.20) > 0.85);
}

/// The tables of `docs/methodology.md`.
#[test]
#[ignore = "minutes; `make bench-coverage` runs it and prints the tables"]
fn the_whole_tables() {
    println!(
        "change of the mean response time by the cut (±2 standard errors), runs that were cut"
    );
    for seconds in [20, 60, 300] {
        for rate in [20.0, 100.0] {
            for utilization in [0.5, 0.8, 0.9, 0.95] {
                let case = (rate, utilization, seconds);
                let runs = if utilization < 0.9 { 2_000 } else { 4_000 };
                let (now, error, cut) = bias(case, 0..runs, kept);
                let (before, _, cut_before) = bias(case, 0..500, kept_by_mser5);
                println!(
                    "{seconds:>4} s at {rate:>3}/s, {utilization:<4}: {:+.2} ± {:.2} %, {:.1} % cut \
                     (MSER-5 alone {:+.1} %, {:.0} %)",
                    100.0 * now,
                    200.0 * error,
                    100.0 * cut,
                    100.0 * before,
                    100.0 * cut_before
                );
                assert!(now.abs() + 2.0 * error < 0.01, "{case:?}: {now} ± {error}");
            }
        }
    }
    println!("found, bias left and bias without a cut; by throughput | by response time");
    for (count, noise) in [
        (20, (0.05, 0.0)),
        (60, (0.05, 0.0)),
        (60, (0.2, 0.0)),
        (60, (0.1, 0.5)),
        (300, (0.1, 0.5)),
    ] {
        for (name, shape) in SHAPES {
            let rules: [fn(&[f64]) -> Truncation; 2] = [by_throughput, by_response_time];
            let columns = rules.map(|rule| {
                let (cut, with, without) = found(shape, count, noise, 1_000, &rule);
                let percent = |x: f64| 100.0 * x;
                format!(
                    "{:5.1} % {:+5.1} % {:+5.1} %",
                    percent(cut),
                    percent(with),
                    percent(without)
                )
            });
            println!("{count:>4} windows, noise {noise:?}: {name:<28} {}", columns.join(" | "));
        }
    }
}
