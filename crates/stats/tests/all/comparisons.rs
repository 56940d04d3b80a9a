//! How often a comparison finds what is not there, and what is: clean, skewed, contaminated and
//! drifting runs, by the method that the comparison chooses and by Student's t.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be computed fails it")]

use kendall_stats::compare::sequential::{Looks, is_clear};
use kendall_stats::compare::{
    Better, Comparison, Method, Options, Quantity, Samples, Verdict, compare, ratio,
};
use kendall_stats::distribution::normal_quantile;
use kendall_units::exact_f64;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    normal_quantile(rng.random::<f64>().clamp(1e-15, 1.0 - 1e-15))
}

/// How runs scatter around their system's value, in logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Runs {
    /// 2 % each way.
    Clean,
    /// Exponential, 2 %.
    Skewed,
    /// 2 %, and one run in ten a third slower.
    Contaminated,
    /// 2 %, and the machine drifts by 18 % over the session; runs are pairs.
    Drifting,
}

const KINDS: [Runs; 4] = [Runs::Clean, Runs::Skewed, Runs::Contaminated, Runs::Drifting];

fn run(kind: Runs, at: f64, rng: &mut Xoshiro256PlusPlus) -> f64 {
    let plain = 0.02 * normal(rng);
    let log = match kind {
        Runs::Clean => plain,
        Runs::Skewed => -0.02 * (1.0 - rng.random::<f64>()).ln(),
        Runs::Contaminated if rng.random::<f64>() < 0.1 => plain + 0.3,
        Runs::Contaminated => plain,
        Runs::Drifting => plain + 0.18 * at,
    };
    log.exp()
}

/// Shares of sessions of `count` runs a side in which a change of `effect` is significant,
/// and in which the interval holds it.
fn told(kind: Runs, count: usize, effect: f64, paired: bool, sessions: u32) -> (f64, f64) {
    let (mut told, mut held) = (0_u32, 0_u32);
    let options = Options { confidence: 0.95, bound: 0.001, paired };
    for seed in 0..sessions {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(seed) + 1_000_000);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for index in 0..count {
            let (at, block) = (exact_f64(index) / exact_f64(count), Some(index.to_string()));
            before.push((block.clone(), run(kind, at, &mut rng)));
            after.push((block, run(kind, at, &mut rng) * (1.0 + effect)));
        }
        let samples = Samples {
            configuration: String::new(),
            metric: String::new(),
            quantity: Quantity::Number,
            better: Better::Lower,
            before,
            after,
        };
        let one = compare(&[samples], &options, &mut rng).unwrap().remove(0);
        told += u32::from(one.p_value.unwrap() < 0.05);
        let interval = one.ratio.unwrap().interval.unwrap();
        held += u32::from(interval.contains(1.0 + effect));
    }
    let all = f64::from(sessions);
    (f64::from(told) / all, f64::from(held) / all)
}

/// Student's t of two sets, as before.
fn told_by_t(kind: Runs, count: usize, effect: f64, sessions: u32) -> f64 {
    let found = (0..sessions).filter(|seed| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(*seed) + 1_000_000);
        let mut side = |factor: f64| -> Vec<f64> {
            (0..count).map(|_| factor * run(kind, 0.0, &mut rng)).collect()
        };
        let (before, after) = (side(1.0), side(1.0 + effect));
        !ratio(&before, &after, 0.95).unwrap().interval.unwrap().contains(1.0)
    });
    exact_f64(found.count()) / f64::from(sessions)
}

/// A/A: at most 5 % and two standard errors of 400 sessions (2.2 %) in every kind of run, by pairs
/// and by sets; intervals hold at least as often.
#[test]
fn nothing_is_found_where_nothing_changed() {
    for kind in KINDS {
        for paired in [true, false] {
            if kind == Runs::Drifting && !paired {
                continue;
            }
            for count in [4, 10] {
                let (found, held) = told(kind, count, 0.0, paired, 400);
                assert!(found <= 0.072, "{kind:?}, {count}, paired {paired}: {found}");
                assert!(held >= 0.928, "{kind:?}, {count}, paired {paired}: {held}");
            }
        }
    }
}

/// One run in ten disturbed, 20 + 20 runs, 3 %: t finds a fifth, ranks find nine tenths (0.925 over
/// 8,000 sessions; two standard errors of 200 are 3.7 %). With clean runs ranks lose at most 5 %.
#[test]
fn a_disturbed_run_in_ten_does_not_hide_a_change() {
    let (ranks, held) = told(Runs::Contaminated, 20, 0.03, false, 200);
    let plain = told_by_t(Runs::Contaminated, 20, 0.03, 200);
    assert!(ranks > 0.88 && plain < 0.3 && held > 0.92, "{ranks} {plain} {held}");
    let (pairs, _) = told(Runs::Contaminated, 20, 0.03, true, 200);
    assert!(pairs > 0.58, "{pairs}");
    let (clean, by_t) =
        (told(Runs::Clean, 10, 0.03, false, 400).0, told_by_t(Runs::Clean, 10, 0.03, 400));
    assert!(clean > by_t - 0.05 - 0.03, "{clean} {by_t}");
}

/// A session in turns: at which verdict it ended, after how many blocks, and whether the interval
/// holds the truth.
fn session(kind: Runs, effect: f64, seed: u64) -> (Verdict, u64, bool) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed + 5_000_000);
    let looks = Looks::new(5, 40, 0.95).unwrap();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for block in 0..40_u64 {
        let (at, name) = (exact_f64(block) / 40.0, Some(block.to_string()));
        before.push((name.clone(), run(kind, at, &mut rng)));
        after.push((name, run(kind, at, &mut rng) * (1.0 + effect)));
        let Some(confidence) = looks.confidence_at(block + 1) else { continue };
        let samples = Samples {
            configuration: String::new(),
            metric: String::new(),
            quantity: Quantity::Number,
            better: Better::Lower,
            before: before.clone(),
            after: after.clone(),
        };
        let options = Options { confidence, bound: 0.05, paired: true };
        let found = compare(&[samples], &options, &mut rng).unwrap();
        if is_clear(&found) || block == 39 {
            let interval = found[0].ratio.as_ref().unwrap().interval.unwrap();
            return (found[0].verdict, block + 1, interval.contains(1.0 + effect));
        }
    }
    unreachable!()
}

/// In turns and looked at six times: a false regression is as rare as with one look (200 sessions:
/// 2.5 % and two standard errors of 1.1 %), intervals hold at the stop as often as they say, and a
/// large regression ends the session early.
#[test]
fn looking_while_measuring_finds_no_more_than_there_is() {
    for kind in KINDS {
        let ended: Vec<_> = (0..200).map(|seed| session(kind, 0.0, seed)).collect();
        let false_alarms = ended.iter().filter(|one| one.0 == Verdict::Regression).count();
        let held = ended.iter().filter(|one| one.2).count();
        assert!(false_alarms <= 9 && held >= 184, "{kind:?}: {false_alarms} {held}");
    }
    let ended: Vec<_> = (0..200).map(|seed| session(Runs::Clean, 0.2, seed)).collect();
    assert!(ended.iter().all(|one| one.0 == Verdict::Regression && one.1 <= 8));
}

/// Blocks and values.
type Side = Vec<(Option<String>, f64)>;

/// A session on a machine where other programs take some of the processor (20 % from run to run), of a service that
/// computes: throughput, the mean and p99 of the response time, and CPU time per request (4 %). The response times follow
/// from the throughput, as in a closed loop.
fn on_a_busy_machine(effect: f64, seed: u64) -> (Verdict, u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed + 9_000_000);
    let looks = Looks::new(5, 40, 0.95).unwrap();
    let mut sides: [[Side; 2]; 4] = Default::default();
    for block in 0..40_u64 {
        for (side, work) in [1.0, 1.0 + effect].into_iter().enumerate() {
            let mean = work * (0.2 * normal(&mut rng)).exp();
            let p99 = mean * (0.1 * normal(&mut rng)).exp();
            let cpu = work * (0.04 * normal(&mut rng)).exp();
            for (metric, value) in [1.0 / mean, mean, p99, cpu].into_iter().enumerate() {
                sides[metric][side].push((Some(block.to_string()), value));
            }
        }
        let Some(confidence) = looks.confidence_at(block + 1) else { continue };
        let samples = sides.iter().enumerate().map(|(metric, [before, after])| Samples {
            configuration: String::new(),
            metric: metric.to_string(),
            quantity: Quantity::Number,
            better: if metric == 0 { Better::Higher } else { Better::Lower },
            before: before.clone(),
            after: after.clone(),
        });
        let options = Options { confidence, bound: 0.05, paired: true };
        let samples: Vec<Samples> = samples.collect();
        let mut found = compare(&samples, &options, &mut rng).unwrap();
        // CPU time that is open keeps no session going.
        found.retain(|one| one.metric != "3" || one.verdict != Verdict::Inconclusive);
        if is_clear(&found) || block == 39 {
            let worse = found.iter().any(|one| one.verdict == Verdict::Regression);
            return (if worse { Verdict::Regression } else { Verdict::Inconclusive }, block + 1);
        }
    }
    unreachable!()
}

/// 10 % more work is told by CPU time within 18 blocks (of two runs of 3 s: two minutes) in 90 % of sessions, and of those without
/// a change no more than 5 % find one (300 sessions: and two standard errors).
#[test]
fn more_work_is_told_on_a_busy_machine_and_none_is_made_up() {
    let made_up = |effect: f64, most: u64| {
        let ended = (0..300).map(|seed| on_a_busy_machine(effect, seed));
        ended.filter(|one| one.0 == Verdict::Regression && one.1 <= most).count()
    };
    assert!(made_up(0.0, 40) <= 22, "{}", made_up(0.0, 40));
    assert!(made_up(0.1, 18) >= 270, "{}", made_up(0.1, 18));
}

#[test]
#[ignore = "for `make bench-coverage`: prints the table of docs/methodology.md"]
fn the_table_of_sessions_in_turns() {
    println!("| runs | change | regression | equivalent | cannot tell | blocks | interval holds |");
    for kind in KINDS {
        for effect in [0.0, 0.03, 0.08, 0.15] {
            let ended: Vec<_> = (0..1_000).map(|seed| session(kind, effect, seed)).collect();
            let share = |verdict| exact_f64(ended.iter().filter(|one| one.0 == verdict).count());
            let blocks: u64 = ended.iter().map(|one| one.1).sum();
            println!(
                "| {kind:?} | {:.0} % | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
                100.0 * effect,
                share(Verdict::Regression) / 10.0,
                share(Verdict::Equivalent) / 10.0,
                share(Verdict::Inconclusive) / 10.0,
                exact_f64(blocks) / 1_000.0,
                exact_f64(ended.iter().filter(|one| one.2).count()) / 10.0,
            );
        }
    }
    for effect in [0.0, 0.05, 0.1, 0.15] {
        let ended: Vec<_> = (0..1_000).map(|seed| on_a_busy_machine(effect, seed)).collect();
        let worse = || ended.iter().filter(|one| one.0 == Verdict::Regression);
        let blocks: u64 = ended.iter().map(|one| one.1).sum();
        println!(
            "| busy, with CPU time | {:.0} % | {:.1}, within 18 blocks {:.1} | {:.1} |",
            100.0 * effect,
            exact_f64(worse().count()) / 10.0,
            exact_f64(worse().filter(|one| one.1 <= 18).count()) / 10.0,
            exact_f64(blocks) / 1_000.0,
        );
    }
}

/// How the scatter of configurations differs, in standard deviations of a run.
#[derive(Debug, Clone, Copy)]
enum Scatter {
    /// 2 % everywhere.
    Alike,
    /// 2 %, by a factor of two up or down.
    Unlike,
    /// 2 %, one configuration 10 %.
    OneWide,
    /// From 6 % to 2 %.
    Falling,
    /// 2 % before, 6 % after.
    BySide,
}

const SCATTERS: [Scatter; 5] =
    [Scatter::Alike, Scatter::Unlike, Scatter::OneWide, Scatter::Falling, Scatter::BySide];

/// Shares of comparisons in which a change of `effect` is significant at 5 %: with the scatter of all configurations,
/// by each itself, and with the scatter of all in the first configuration alone.
fn told_together(
    scatter: Scatter,
    (configurations, runs): (usize, (usize, usize)),
    effect: f64,
    sessions: u64,
) -> [f64; 3] {
    let options = Options { confidence: 0.95, bound: 0.001, paired: false };
    let mut told = [0_u32; 3];
    for seed in 0..sessions {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed + 3_000_000);
        let samples: Vec<Samples> = (0..configurations)
            .map(|at| {
                let share = exact_f64(at) / exact_f64(configurations - 1);
                let (before, after) = match scatter {
                    Scatter::OneWide if at == 0 => (0.1, 0.1),
                    Scatter::Alike | Scatter::OneWide => (0.02, 0.02),
                    Scatter::Unlike => [0.02 * (0.7 * normal(&mut rng)).exp(); 2].into(),
                    Scatter::Falling => [0.06 - 0.04 * share; 2].into(),
                    Scatter::BySide => (0.02, 0.06),
                };
                let mut side = |count: usize, factor: f64, deviation: f64| -> Side {
                    let run = |_| (None, factor * (deviation * normal(&mut rng)).exp());
                    (0..count).map(run).collect()
                };
                Samples {
                    configuration: at.to_string(),
                    metric: String::new(),
                    quantity: Quantity::Number,
                    better: Better::Lower,
                    before: side(runs.0, 1.0, before),
                    after: side(runs.1, 1.0 + effect, after),
                }
            })
            .collect();
        let all = compare(&samples, &options, &mut rng).unwrap();
        for (at, (one, samples)) in all.iter().zip(&samples).enumerate() {
            let alone = compare(std::slice::from_ref(samples), &options, &mut rng).unwrap();
            let significant = |one: &Comparison| u32::from(one.p_value.unwrap() < 0.05);
            assert_eq!((one.method, alone[0].method), (Method::Pooled, Method::StudentT));
            told[0] += significant(one);
            told[1] += significant(&alone[0]);
            told[2] += if at == 0 { significant(one) } else { 0 };
        }
    }
    let (all, first) = (exact_f64(sessions) * exact_f64(configurations), exact_f64(sessions));
    [f64::from(told[0]) / all, f64::from(told[1]) / all, f64::from(told[2]) / first]
}

/// Two and three runs a side. Where nothing changed, at most 5 % are significant and three standard errors of 400
/// comparisons (3.3 %); in a lone configuration that scatters five times as much as all others up to 13 % (of 200, and
/// two standard errors). Where all scatter alike, two runs find a change of 10 % twice as often as each by itself.
#[test]
fn the_runs_of_all_configurations_say_how_few_scatter() {
    for scatter in SCATTERS {
        for (configurations, runs) in [(3, (2, 2)), (4, (3, 3)), (8, (2, 2))] {
            let (setup, sessions) = ((configurations, runs), 400 / configurations as u64);
            let [found, alone, first] = told_together(scatter, setup, 0.0, sessions);
            assert!(found <= 0.083 && alone <= 0.083, "{scatter:?} {setup:?}: {found} {alone}");
            assert!(first <= 0.2, "{scatter:?} {setup:?}: {first}");
        }
    }
    let [found, alone, _] = told_together(Scatter::Alike, (4, (2, 2)), 0.1, 100);
    assert!(found > 0.85 && alone < 0.5, "{found} {alone}");
}

/// With many comparisons at once ranks of few runs could never be significant: t is taken then.
#[test]
fn ranks_are_taken_where_they_can_tell_something() {
    let sample = |count: u32| Samples {
        configuration: count.to_string(),
        metric: String::new(),
        quantity: Quantity::Number,
        better: Better::Lower,
        before: (0..count).map(|i| (None, 10.0 + f64::from(i % 3))).collect(),
        after: (0..count).map(|i| (None, 20.0 + f64::from(i % 4))).collect(),
    };
    let method = |count: u32, together: usize| {
        let samples: Vec<Samples> = (0..together).map(|_| sample(count)).collect();
        let options = Options { confidence: 0.95, bound: 0.05, paired: false };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        compare(&samples, &options, &mut rng).unwrap()[0].method
    };
    assert_eq!(method(4, 1), Method::StudentT);
    assert_eq!(method(5, 1), Method::Ranks);
    // 2/252 · 7 > 0.05.
    assert_eq!(method(5, 7), Method::Pooled);
    assert_eq!(method(10, 36), Method::Ranks);
}

#[test]
#[ignore = "a minute; `make bench-coverage` runs it and prints the table"]
fn the_whole_table() {
    println!(
        "share of sessions told from chance (A/A, and a change of 3 %), chosen method | t of sets"
    );
    for count in [3, 5, 7, 10, 20] {
        for kind in KINDS {
            for paired in [false, true] {
                let (none, _) = told(kind, count, 0.0, paired, 4_000);
                let (some, held) = told(kind, count, 0.03, paired, 4_000);
                println!(
                    "{count:>3} {kind:?}, paired {paired}: {none:.3} {some:.3} (holds {held:.3}) | {:.3} {:.3}",
                    told_by_t(kind, count, 0.0, 4_000),
                    told_by_t(kind, count, 0.03, 4_000)
                );
            }
        }
    }
}
