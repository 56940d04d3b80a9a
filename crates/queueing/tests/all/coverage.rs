//! Whether 95 % intervals of the simulator cover the truth 95 % of the time.

use kendall_queueing::model::{Class, Model, Station};
use kendall_queueing::simulation::{Settings, simulate};

/// M/M/1 at utilization 0.9: of the runs, how many intervals hold the true mean number (9) and
/// the true mean response time (9 s).
fn covered(seeds: std::ops::Range<u64>, width: f64) -> (usize, usize) {
    let station = Station::queue("q", 1).with_service_time(0, 0.9);
    let model = Model::new("mm1", vec![Class::open("c", 1.0)], vec![station]).expect("a model");
    let (mut number, mut response) = (0, 0);
    for seed in seeds {
        let settings = Settings { seed, relative_half_width: width, ..Settings::of(&model) };
        let s = simulate(&model, &settings, &mut |_| {}).expect("stable");
        number += usize::from(s.stations[0].number_mean.expect("seen").covers(9.0));
        response += usize::from(s.classes[0].response_time_mean_s.expect("seen").covers(9.0));
    }
    (number, response)
}

/// Binomial(60, 0.95) lies in 51..=60 with probability 0.999.
#[test]
fn intervals_cover_at_their_rate() {
    let (number, response) = covered(0..60, 0.05);
    println!("covered: number {number}, response {response} of 60");
    assert!(number >= 51 && response >= 51, "{number} {response} of 60");
}

/// The bounds that the issue states: 176 to 198 of 200.
#[test]
#[ignore = "the full run; part of `make bench-models`"]
fn intervals_of_200_seeds_cover_between_176_and_198_times() {
    let (number, response) = covered(0..200, 0.05);
    println!("95 % intervals at utilization 0.9, of 200: number {number}, response {response}");
    assert!((176..=198).contains(&number), "{number}");
    assert!((176..=198).contains(&response), "{response}");
}

/// What an interval is of, the true value, how many seeds' intervals cover it, and how many seeds give none.
type Counted = (&'static str, f64, u64, u64);

/// Intervals of the mean and of percentiles of the response, at M/M/1, of runs of 24 × `each` customers.
fn responses(rho: f64, each: u64, seeds: u64) -> [Counted; 4] {
    let station = Station::queue("q", 1).with_service_time(0, rho);
    let model = Model::new("mm1", vec![Class::open("c", 1.0)], vec![station]).expect("a model");
    let mean = rho / (1.0 - rho);
    let quantiles = [0.5_f64, 0.9, 0.99];
    let truth = quantiles.map(|p| -(1.0 - p).ln() * mean);
    let mut found = [
        ("mean", mean, 0, 0),
        ("p50", truth[0], 0, 0),
        ("p90", truth[1], 0, 0),
        ("p99", truth[2], 0, 0),
    ];
    for seed in 0..seeds {
        let settings = Settings {
            seed,
            relative_half_width: 1e-9,
            most_customers: 24 * each,
            quantiles: quantiles.to_vec(),
            ..Settings::of(&model)
        };
        let class = simulate(&model, &settings, &mut |_| {}).expect("stable").classes.remove(0);
        let times = class.response_time_quantiles_s.into_iter().map(|(_, measured)| measured);
        let measured = class.response_time_mean_s.into_iter().chain(times);
        for ((_, truth, covering, without), measured) in found.iter_mut().zip(measured) {
            *without += u64::from(measured.half_width.is_none());
            *covering += u64::from(measured.covers(*truth));
        }
    }
    found
}

/// Of the intervals of 95 % that are given at least 93 % cover, less three deviations of the count. Where most runs have
/// none, those that pass are the lucky ones, and miss more: so few of all runs mislead. Returns a line to print.
fn cover(rho: f64, each: u64, seeds: u64) -> String {
    let mut line = String::new();
    for (name, _, covering, without) in responses(rho, each, seeds) {
        line += &format!("  {name} {covering} of {};", seeds - without);
        let judged =
            kendall_units::exact_f64(if 2 * without > seeds { seeds } else { seeds - without });
        let missing = kendall_units::exact_f64(seeds - without - covering);
        let most = 0.07 * judged + 3.0 * (0.07 * 0.93 * judged).sqrt();
        assert!(missing <= most, "{rho} {each} {name}: {missing} of {judged} miss");
    }
    format!("utilization {rho}, 24 × {each} customers, {seeds} seeds, cover of given:{line}")
}

/// Of runs that are long enough all figures have an interval; of runs that are much too short none.
#[test]
fn intervals_of_responses_cover_at_their_rate() {
    println!("{}\n{}", cover(0.5, 500, 100), cover(0.8, 5_000, 100));
    assert_eq!(responses(0.5, 2_500, 5).map(|(.., without)| without), [0; 4]);
    assert_eq!(responses(0.95, 500, 20).map(|(.., without)| without), [20; 4]);
}

#[test]
#[ignore = "the full run; part of `make bench-models`"]
fn intervals_of_responses_cover_at_three_loads_and_three_lengths() {
    for rho in [0.95, 0.8, 0.5] {
        for each in [500, 5_000, 40_000] {
            println!("{}", cover(rho, each, 200));
        }
    }
}
