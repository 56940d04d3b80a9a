//! A stopping rule keeps its promise 95 % of the time, over seeds, and the cut of warm-ups takes their
//! bias away. `make bench-coverage` prints the tables.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be computed fails it")]

use kendall_stats::distribution::{normal_quantile, t_p_value};
use kendall_stats::sample::{mean, variance};
use kendall_stats::steady::{THROUGHPUT_SIGNIFICANCE, transient};
use kendall_stats::stopping::{Decision, EVIDENCE, Evidence, StoppingRule};
use kendall_units::exact_f64;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

fn standard_normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    normal_quantile(rng.random::<f64>().clamp(1e-15, 1.0 - 1e-15))
}

/// The cut at both ends takes away at least nine tenths of the bias of a warm-up or cool-down.
#[test]
fn warm_up_and_cool_down_are_cut() {
    type Level = fn(f64) -> f64;
    let shapes: [(&str, Level, f64); 4] = [
        ("step at 15 %", |at| if at < 0.15 { 2.0 } else { 1.0 }, 0.02),
        ("slow decay", |at| 1.0 + 3.0 * (-at / 0.075).exp(), 0.04),
        ("disturbance in the last 5 %", |at| if at > 0.95 { 2.0 } else { 1.0 }, 0.02),
        ("nothing to cut", |_| 1.0, 0.01),
    ];
    for (name, level, bound) in shapes {
        let (mut bias, mut plain) = (0.0, 0.0);
        for seed in 0..20 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut error = 0.0;
            let series: Vec<f64> = (0..20_000)
                .map(|i| {
                    error = 0.9 * error + 0.1 * standard_normal(&mut rng);
                    level(f64::from(i) / 20_000.0) + error
                })
                .collect();
            let cut = transient(&series, THROUGHPUT_SIGNIFICANCE).unwrap();
            bias += mean(cut.kept(&series)) - 1.0;
            plain += mean(&series) - 1.0;
        }
        bias /= 20.0;
        plain /= 20.0;
        println!(
            "{name}: {:.1} % of bias without a cut, {:.1} % with",
            100.0 * plain,
            100.0 * bias
        );
        assert!(bias.abs() < bound, "{name}: {bias} of {plain}");
    }
}

/// Sessions of a stopping rule: coverage, mean number of repetitions, share that hit the cap.
fn sessions(rule: &StoppingRule, spread: f64, seeds: u64) -> (f64, f64, f64) {
    sessions_of(rule, spread, (0.0, 0.0), seeds)
}

/// The same for repetitions with a first autocorrelation, of which a share is 30 % slower.
fn sessions_of(
    rule: &StoppingRule,
    spread: f64,
    (correlation, slow): (f64, f64),
    seeds: u64,
) -> (f64, f64, f64) {
    let truth = 1.0 - 0.3 * slow;
    let (mut covered, mut repetitions, mut capped) = (0_u32, 0_usize, 0_u32);
    for seed in 0..seeds {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut values = Vec::new();
        let mut level = standard_normal(&mut rng);
        let estimate = loop {
            let slower = slow > 0.0 && rng.random::<f64>() < slow;
            values.push((1.0 + spread * level) * if slower { 0.7 } else { 1.0 });
            let fresh = (1.0 - correlation * correlation).sqrt();
            level = correlation * level + fresh * standard_normal(&mut rng);
            match rule.decide(&values).unwrap() {
                Decision::Continue { .. } => {}
                Decision::Enough { estimate } => break estimate,
                Decision::CapReached { estimate } => {
                    capped += 1;
                    break estimate;
                }
            }
        };
        repetitions += values.len();
        covered += u32::from(estimate.interval.unwrap().contains(truth));
    }
    let all = exact_f64(seeds);
    (f64::from(covered) / all, exact_f64(repetitions) / all, f64::from(capped) / all)
}

/// `until = "2%"` covers what it says, from three repetitions on and for small and large spreads.
/// Bound: 95 % less two standard errors of 1,000 sessions (1.4 %).
#[test]
fn stopping_at_a_width_keeps_its_promise() {
    for spread in [0.01, 0.02, 0.03, 0.05, 0.1] {
        let rule = StoppingRule { min: 3, max: 500, relative_half_width: 0.02, confidence: 0.95 };
        let (coverage, repetitions, _) = sessions(&rule, spread, 1_000);
        println!("spread {spread}: coverage {coverage}, {repetitions:.1} repetitions");
        assert!(coverage > 0.95 - 0.014, "spread {spread}: {coverage}");
    }
}

/// Repetitions that resemble their neighbors: without their correlation 74 % held. Bound: 94 %, which
/// is what the rule reaches, less two standard errors of 600 sessions (2 %).
#[test]
fn the_promise_holds_on_a_machine_that_is_slow_for_a_while() {
    let rule = StoppingRule { min: 3, max: 500, relative_half_width: 0.02, confidence: 0.95 };
    for spread in [0.01, 0.03, 0.05] {
        let (coverage, repetitions, _) = sessions_of(&rule, spread, (0.5, 0.0), 600);
        println!("spread {spread}: coverage {coverage}, {repetitions:.1} repetitions");
        assert!(coverage > 0.94 - 0.02, "spread {spread}: {coverage}");
    }
}

/// One run in five is 30 % slow: with the three repetitions of `min` alone, 67 % held at 1 %. Bound:
/// 95 % less three standard errors of 400 sessions (3.3 %).
#[test]
fn the_promise_holds_where_one_run_in_five_is_slow() {
    let rule = StoppingRule { min: 3, max: 500, relative_half_width: 0.02, confidence: 0.95 };
    for spread in [0.01, 0.03, 0.05] {
        let (coverage, repetitions, _) = sessions_of(&rule, spread, (0.0, 0.2), 400);
        println!("spread {spread}: coverage {coverage}, {repetitions:.1} repetitions");
        assert!(coverage > 0.95 - 0.033, "spread {spread}: {coverage}");
    }
}

/// The same where six configurations are run side by side, block by block, and their runs count as
/// evidence together: share of all configurations, and repetitions of each. Bound: 95 % less two
/// standard errors of 100 sessions (4.4 %), whose configurations may err together.
#[test]
fn the_promise_holds_for_configurations_side_by_side() {
    for (spread, slow) in [(0.01, 0.0), (0.03, 0.0), (0.01, 0.2), (0.03, 0.2)] {
        let (coverage, repetitions) = side_by_side(spread, slow, 100);
        println!("spread {spread}, slow {slow}: {coverage}, {repetitions:.1} repetitions");
        assert!(coverage > 0.95 - 0.044, "spread {spread}, slow {slow}: {coverage}");
    }
}

/// Coverage and repetitions of six configurations that a study runs in blocks.
fn side_by_side(spread: f64, slow: f64, seeds: u64) -> (f64, f64) {
    let rule = StoppingRule { min: 3, max: 500, relative_half_width: 0.02, confidence: 0.95 };
    let (mut covered, mut repetitions) = (0_u32, 0_usize);
    for seed in 0..seeds {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut runs: [Vec<f64>; 6] = Default::default();
        let mut wanted = vec![0, 1, 2, 3, 4, 5];
        // Block by block; what one configuration shows may call for more runs of another.
        while !wanted.is_empty() {
            for place in wanted {
                let slower = slow > 0.0 && rng.random::<f64>() < slow;
                let value = 1.0 + spread * standard_normal(&mut rng);
                runs[place].push(value * if slower { 0.7 } else { 1.0 });
            }
            // Where each has enough of its own, nothing is asked of the others.
            let few = |runs: &&Vec<f64>| u64::try_from(runs.len()).unwrap() < EVIDENCE;
            let evidence = if runs.iter().any(|runs| few(&runs)) {
                Evidence::of(&rule, runs.iter().map(Vec::as_slice))
            } else {
                Evidence { runs: 6 * EVIDENCE, disturbed: false }
            };
            let more = |place: &usize| {
                let decision = rule.decide_among(&runs[*place], evidence);
                matches!(decision, Ok(Decision::Continue { .. }))
            };
            wanted = (0..6).filter(more).collect();
        }
        let truth = 1.0 - 0.3 * slow;
        let within = |values: &&Vec<f64>| (truth / mean(values) - 1.0).abs() <= 0.02;
        covered += u32::try_from(runs.iter().filter(within).count()).unwrap();
        repetitions += runs.iter().map(Vec::len).sum::<usize>();
    }
    let all = 6.0 * exact_f64(seeds);
    (f64::from(covered) / all, exact_f64(repetitions) / all)
}

#[test]
#[ignore = "for `make bench-coverage`: prints the table of docs/methodology.md"]
fn the_table_of_until() {
    println!("| runs | spread | holds | repetitions |");
    for (name, kind) in
        [("independent", (0.0, 0.0)), ("correlated", (0.5, 0.0)), ("one in five slow", (0.0, 0.2))]
    {
        for spread in [0.01, 0.03, 0.05] {
            let rule =
                StoppingRule { min: 3, max: 500, relative_half_width: 0.02, confidence: 0.95 };
            let (coverage, repetitions, _) = sessions_of(&rule, spread, kind, 4_000);
            let (spread, holds) = (100.0 * spread, 100.0 * coverage);
            println!("| {name} | {spread:.0} % | {holds:.1} | {repetitions:.1} |");
        }
    }
    for slow in [0.0, 0.2] {
        for spread in [0.01, 0.03, 0.05] {
            let (coverage, repetitions) = side_by_side(spread, slow, 600);
            let (spread, holds) = (100.0 * spread, 100.0 * coverage);
            println!("| six, {slow} slow | {spread:.0} % | {holds:.1} | {repetitions:.1} |");
        }
    }
}

/// Why stopping at significance is not offered: there is no difference, and it is found.
#[test]
fn stopping_at_significance_finds_what_is_not_there() {
    let sessions = 1_000_u32;
    let alarms = (0..sessions)
        .filter(|seed| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(*seed));
            let mut differences = Vec::new();
            (0..50).any(|_| {
                differences.push(standard_normal(&mut rng));
                let count = exact_f64(differences.len());
                count >= 3.0 && {
                    let error = (variance(&differences).unwrap() / count).sqrt();
                    t_p_value(mean(&differences) / error, count - 1.0) < 0.05
                }
            })
        })
        .count();
    let share = exact_f64(alarms) / f64::from(sessions);
    assert!(share > 0.15, "{share}");
}
