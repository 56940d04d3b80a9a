//! Change points of a series of results: how often they are false, and how often a step is found.
#![expect(clippy::unwrap_used, reason = "a test: what cannot be computed fails it")]

use kendall_stats::compare::trend::change_points;
use kendall_stats::distribution::normal_quantile;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The first change in 40 sets of one run with noise of 5 %, and a step in their midst.
fn first_change(step: f64, seed: u64) -> Option<u64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut noise = || 1.0 + 0.05 * normal_quantile(rng.random::<f64>().clamp(1e-15, 1.0 - 1e-15));
    let sets: Vec<Vec<f64>> =
        (0..40).map(|set| vec![noise() * if set < 20 { 1.0 } else { 1.0 + step }]).collect();
    change_points(&sets, 0.95, &mut rng).unwrap().first().map(|change| change.at)
}

/// As often as stated: 50 of 1000, within three standard errors of 6.9. Of 200, one draw in twenty lies outside 4 to 16.
#[test]
fn false_alarms_are_as_rare_as_stated() {
    let alarms = (0..1_000).filter_map(|seed| first_change(0.0, 10_000 + seed)).count();
    println!("{alarms} false alarms in 1000 series");
    assert!((30..=70).contains(&alarms), "{alarms} of 1000");
}

/// A step of 10 % is two standard deviations of a set.
#[test]
fn a_step_of_a_tenth_is_found_within_two_sets() {
    let found = (0..200).filter_map(|seed| first_change(0.1, 5_000 + seed));
    let found = found.filter(|at| at.abs_diff(20) <= 2).count();
    println!("{found} steps found in 200 series");
    assert!(found >= 160, "{found} of 200");
}
