//! Published tables come out to their printed digits, and crippled data are handled or refused.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be computed fails it")]

use kendall_stats::analysis::{
    Analysis, AnalysisError, Model, Observation, Options, SumsKind, Table, Verdict, analyze,
};
use kendall_stats::design::fraction::Fraction;
use kendall_stats::design::{Design, Factor};
use kendall_stats::estimate::{Assumption, Caveat};
use kendall_units::exact_f64;

const THROUGHPUT: &str = include_str!("../data/memcached-2k-writes-throughput.csv");
const RESPONSE: &str = include_str!("../data/memcached-2k-writes-response-ms.csv");
const LATENCY: &str = include_str!("../data/queue-2k-latency-ms.csv");
const UNREPLICATED: &str = include_str!("../data/queue-2k-unreplicated-throughput.csv");

/// Columns `replicate` and `value` by name, all others are factors.
fn table(csv: &str) -> Table {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let is_factor = |name: &str| name != "replicate" && name != "value";
    let factors = header.iter().filter(|n| is_factor(n)).map(|n| (*n).to_owned()).collect();
    let observations = lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let of = |name: &str| header.iter().position(|h| *h == name).map(|i| cells[i]);
            Observation {
                levels: header
                    .iter()
                    .zip(&cells)
                    .filter(|(name, _)| is_factor(name))
                    .map(|(_, cell)| (*cell).to_owned())
                    .collect(),
                block: of("replicate").map(str::to_owned),
                order: None,
                value: of("value").unwrap().parse().unwrap(),
            }
        })
        .collect();
    Table { factors, observations }
}

fn cells(factors: &[&str], rows: &[(&[&str], &[f64])]) -> Table {
    let observations = rows
        .iter()
        .flat_map(|(levels, values)| {
            values.iter().enumerate().map(|(block, value)| Observation {
                levels: levels.iter().map(|level| (*level).to_owned()).collect(),
                block: Some(block.to_string()),
                order: None,
                value: *value,
            })
        })
        .collect();
    Table { factors: factors.iter().map(|f| (*f).to_owned()).collect(), observations }
}

fn additive(table: &Table, confidence: f64) -> Analysis {
    let model = Some(Model::Additive);
    analyze(table, &Options { model, confidence, blocks: false }).unwrap()
}

fn effect(analysis: &Analysis, name: &str) -> f64 {
    let term = analysis.fit.terms.iter().find(|term| term.name == name).unwrap();
    term.effect.as_ref().unwrap().center
}

fn percents(analysis: &Analysis) -> Vec<f64> {
    analysis.fit.terms.iter().map(|term| 100.0 * term.share).collect()
}

/// `value` prints as `printed` when rounded to its decimals.
#[track_caller]
fn prints(value: f64, printed: &str) {
    let decimals = printed.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let shown = format!("{value:.decimals$}");
    // A rounding that falls on the half may go either way.
    let digit = 10_f64.powi(-i32::try_from(decimals).unwrap());
    let target: f64 = printed.parse().unwrap();
    assert!((value - target).abs() <= 0.501 * digit, "{shown} is not {printed}");
}

/// models.md, "Factorial designs".
#[test]
fn the_memcached_table_comes_out() {
    let analysis = additive(&table(THROUGHPUT), 0.95);
    prints(analysis.fit.mean.center, "5221.83");
    for (name, printed) in [
        ("A", "-580.00"),
        ("B", "1538.75"),
        ("C", "1966.17"),
        ("AB", "-123.75"),
        ("AC", "-176.17"),
        ("BC", "572.92"),
        ("ABC", "-23.75"),
    ] {
        prints(effect(&analysis, name), printed);
    }
    for (share, printed) in percents(&analysis)
        .into_iter()
        .zip(["4.82", "33.93", "55.39", "0.22", "0.44", "4.70", "0.01"])
    {
        prints(share, printed);
    }
    prints(100.0 * analysis.fit.error.unwrap().share, "0.49");
    assert_eq!(analysis.fit.error.unwrap().degrees, 16);
    assert_eq!(analysis.layout.sums, SumsKind::Balanced);
    let signs = analysis.sign_table.unwrap();
    assert_eq!(signs.columns, ["I", "A", "B", "C", "AB", "AC", "BC", "ABC"]);
    prints(signs.totals[1], "-4640.00");
    prints(signs.effects[6], "572.92");
    assert!(analysis.fit.checks.iter().any(|c| c.assumption == Assumption::Normality));
}

/// The allocation of variation adds up, for every data set and both models.
#[test]
fn shares_of_balanced_data_add_up_to_one() {
    for csv in [THROUGHPUT, RESPONSE, LATENCY, UNREPLICATED] {
        for model in [Model::Additive, Model::Multiplicative] {
            let options = Options { model: Some(model), ..Options::default() };
            let fit = analyze(&table(csv), &options).unwrap().fit;
            let explained: f64 = fit.terms.iter().map(|term| term.share).sum();
            let all = explained + fit.error.map_or(0.0, |error| error.share);
            assert!((all - 1.0).abs() < 1e-9, "{all}");
        }
    }
}

/// [Jain91 §18.2–18.5]: memory and cache, 2² × 3.
#[test]
fn jains_two_factor_example_comes_out() {
    let data = cells(
        &["memory", "cache"],
        &[
            (&["4", "1"], &[15., 18., 12.]),
            (&["16", "1"], &[45., 48., 51.]),
            (&["4", "2"], &[25., 28., 19.]),
            (&["16", "2"], &[75., 75., 81.]),
        ],
    );
    let analysis = additive(&data, 0.90);
    prints(analysis.fit.mean.center, "41.0");
    for (name, printed) in [("A", "21.5"), ("B", "9.5"), ("AB", "5.0")] {
        prints(effect(&analysis, name), printed);
    }
    for (share, printed) in percents(&analysis).into_iter().zip(["78.88", "15.40", "4.27"]) {
        prints(share, printed);
    }
    let error = analysis.fit.error.unwrap();
    prints(100.0 * error.share, "1.45");
    prints(error.sum_of_squares, "102");
    prints(analysis.fit.effect_deviation.unwrap(), "1.03");
    let interval = analysis.fit.terms[0].effect.as_ref().unwrap().interval.unwrap();
    prints(interval.low, "19.58");
    prints(interval.high, "23.42");
}

/// [Jain91 §18.8]: four decades of execution times; the log model explains nearly all of it.
#[test]
fn the_four_decade_example_asks_for_the_multiplicative_model() {
    let data = cells(
        &["processor", "workload"],
        &[
            (&["1", "1"], &[85.10, 79.50, 147.90]),
            (&["2", "1"], &[0.891, 1.047, 1.072]),
            (&["1", "2"], &[0.955, 0.933, 1.122]),
            (&["2", "2"], &[0.0148, 0.0126, 0.0118]),
        ],
    );
    let analysis = analyze(&data, &Options::default()).unwrap();
    assert_eq!(analysis.model, Model::Multiplicative, "{:?}", analysis.recommendation);
    for (share, printed) in percents(&analysis).into_iter().zip(["49.9", "49.9", "0.0"]) {
        prints(share, printed);
    }
    prints(100.0 * analysis.fit.error.unwrap().share, "0.2");
    let interaction = analysis.fit.terms[2].effect.as_ref().unwrap();
    assert!(interaction.interval.unwrap().contains(0.0));
    let other = analysis.other.unwrap();
    let shares: Vec<f64> = other.terms.iter().map(|term| 100.0 * term.share).collect();
    for (share, printed) in shares.into_iter().zip(["30.1", "30.1", "29.0"]) {
        prints(share, printed);
    }
    prints(100.0 * other.error.unwrap().share, "10.7");
    let doubts = |fit: &kendall_stats::analysis::Fit| {
        fit.checks.iter().filter(|check| check.verdict == Verdict::Doubtful).count()
    };
    assert!(doubts(&other) > doubts(&analysis.fit));
}

/// [Jain91 §20.2–20.6]: code sizes on three processors, five programs each.
#[test]
fn jains_one_factor_example_comes_out() {
    let data = cells(
        &["processor"],
        &[
            (&["R"], &[144., 120., 176., 288., 144.]),
            (&["V"], &[101., 144., 211., 288., 72.]),
            (&["Z"], &[130., 180., 141., 374., 302.]),
        ],
    );
    let analysis = additive(&data, 0.90);
    prints(analysis.fit.mean.center, "187.7");
    let term = &analysis.fit.terms[0];
    let effects: Vec<f64> = term.level_effects.iter().map(|level| level.effect.center).collect();
    for (value, printed) in effects.into_iter().zip(["-13.3", "-24.5", "37.7"]) {
        prints(value, printed);
    }
    prints(term.sum_of_squares, "10992.1");
    let error = analysis.fit.error.unwrap();
    prints(error.sum_of_squares, "94365.2");
    prints(error.deviation, "88.7");
    prints(term.f_ratio.unwrap(), "0.7");
    assert_eq!((term.degrees, error.degrees), (2, 12));
    // s_α = s_e √((a−1)/(a·r)) = 32.4, t[0.95; 12] = 1.782.
    let interval = term.level_effects[0].effect.interval.unwrap();
    prints(interval.half_width() / 1.782_288, "32.4");
}

/// [Jain91 §21.2–21.5]: caches and workloads, one observation a cell: the interaction is the error.
#[test]
fn jains_two_factor_example_without_replications_comes_out() {
    let rows: [(&str, [f64; 3]); 5] = [
        ("ASM", [54., 55., 106.]),
        ("TECO", [60., 60., 123.]),
        ("SIEVE", [43., 43., 120.]),
        ("DHRYSTONE", [49., 52., 111.]),
        ("SORT", [49., 50., 108.]),
    ];
    let caches = ["two caches", "one cache", "no cache"];
    let observations = rows
        .iter()
        .flat_map(|(workload, values)| {
            caches.iter().zip(values).map(|(cache, value)| Observation {
                levels: vec![(*cache).to_owned(), (*workload).to_owned()],
                block: None,
                order: None,
                value: *value,
            })
        })
        .collect();
    let data = Table { factors: vec!["cache".to_owned(), "workload".to_owned()], observations };
    let analysis = additive(&data, 0.90);
    prints(analysis.fit.mean.center, "72.2");
    let caches: Vec<f64> =
        analysis.fit.terms[0].level_effects.iter().map(|level| level.effect.center).collect();
    for (value, printed) in caches.into_iter().zip(["-21.2", "-20.2", "41.4"]) {
        prints(value, printed);
    }
    prints(analysis.fit.terms[0].sum_of_squares, "12857.2");
    prints(analysis.fit.terms[1].sum_of_squares, "308.4");
    prints(analysis.fit.error.unwrap().sum_of_squares, "236.8");
    assert_eq!(analysis.fit.error.unwrap().degrees, 8);
    assert_eq!(analysis.fit.left_out, ["AB"]);
}

/// Two-way with replications and three levels against a hand calculation: SSA = r·b·Σα² and so on.
#[test]
fn a_full_design_with_many_levels_agrees_with_the_balanced_formulas() {
    let mut rows = Vec::new();
    let value = |a: f64, b: f64, r: f64| {
        10.0 + 3.0 * a * a + 2.0 * b + a * b + (7.0 * r + a + 3.0 * b).sin()
    };
    for a in 0..3_u32 {
        for b in 0..4_u32 {
            for r in 0..2_u32 {
                rows.push((a, b, value(f64::from(a), f64::from(b), f64::from(r))));
            }
        }
    }
    let observations = rows
        .iter()
        .map(|(a, b, value)| Observation {
            levels: vec![a.to_string(), b.to_string()],
            block: None,
            order: None,
            value: *value,
        })
        .collect();
    let data = Table { factors: vec!["a".to_owned(), "b".to_owned()], observations };
    let fit = additive(&data, 0.95).fit;
    let all = rows.iter().map(|(_, _, y)| y).sum::<f64>() / 24.0;
    let by_a: f64 = (0..3)
        .map(|a| {
            let mean = rows.iter().filter(|r| r.0 == a).map(|r| r.2).sum::<f64>() / 8.0;
            8.0 * (mean - all).powi(2)
        })
        .sum();
    assert!((fit.terms[0].sum_of_squares - by_a).abs() < 1e-9 * by_a);
    let degrees: Vec<u64> = fit.terms.iter().map(|term| term.degrees).collect();
    assert_eq!(degrees, [2, 3, 6]);
    assert_eq!(fit.error.unwrap().degrees, 12);
}

/// Lenth's method finds the threads × connections interaction of the queue, and no third one.
#[test]
fn an_unreplicated_design_is_judged_by_lenth() {
    let analysis = additive(&table(UNREPLICATED), 0.95);
    assert!(analysis.fit.error.is_none());
    let lenth = analysis.fit.lenth.unwrap();
    assert!(lenth.margin_of_error > lenth.pseudo_standard_error);
    assert!(lenth.simultaneous_margin > lenth.margin_of_error);
    let found: Vec<&str> = analysis
        .fit
        .terms
        .iter()
        .filter(|term| term.significant == Some(true))
        .map(|term| term.name.as_str())
        .collect();
    assert!(found.contains(&"A") && found.contains(&"B") && found.contains(&"AB"), "{found:?}");
    assert_eq!(analysis.fit.half_normal.len(), 15);
    assert!(analysis.fit.terms[0].effect.as_ref().unwrap().caveats.contains(&Caveat::Unreplicated));
    assert_eq!(analysis.layout.factors[2].levels, ["t2.small", "t2.medium"]);
}

/// A drift between blocks leaves the error when blocks are a column; the effects stay.
#[test]
fn drift_between_blocks_leaves_the_error() {
    let mut data = table(THROUGHPUT);
    for observation in &mut data.observations {
        let block: f64 = observation.block.as_ref().unwrap().parse().unwrap();
        observation.value += 2_000.0 * block;
    }
    let plain = additive(&data, 0.95);
    let options = Options { model: Some(Model::Additive), blocks: true, ..Options::default() };
    let blocked = analyze(&data, &options).unwrap();
    assert!((effect(&plain, "A") - effect(&blocked, "A")).abs() < 1e-6);
    let error = |analysis: &Analysis| analysis.fit.error.unwrap().mean_square;
    assert!(error(&plain) > 20.0 * error(&blocked));
    assert_eq!(blocked.fit.terms[0].name, "blocks");
    assert_eq!(blocked.layout.sums, SumsKind::Balanced);
}

/// Two replications lost: least squares, type III, and it is said.
#[test]
fn unbalanced_data_are_fitted_and_said_to_be() {
    let mut data = table(THROUGHPUT);
    data.observations.remove(0);
    data.observations.remove(5);
    let analysis = additive(&data, 0.95);
    assert_eq!(analysis.layout.sums, SumsKind::TypeThree);
    assert!(analysis.caveats.contains(&Caveat::Unbalanced { fewest: 2, most: 3 }));
    assert_eq!(analysis.fit.error.unwrap().degrees, 14);
    assert!((effect(&analysis, "C") - 1966.17).abs() < 60.0);
}

/// One cell lost: seven cells carry seven terms, and the one left out is named.
#[test]
fn a_missing_cell_leaves_out_an_interaction() {
    let mut data = table(THROUGHPUT);
    data.observations.retain(|o| o.levels != ["3", "2", "32"]);
    let analysis = additive(&data, 0.95);
    assert!(analysis.caveats.contains(&Caveat::MissingCells { missing: 1, cells: 8 }));
    assert_eq!(analysis.fit.left_out, ["ABC"]);
}

/// Half the cells, and the right half: recognized as a fraction with its confounding.
#[test]
fn a_fraction_is_recognized_and_its_confounding_stated() {
    let mut data = table(THROUGHPUT);
    data.observations.retain(|observation| {
        let high = |index: usize, level: &str| usize::from(observation.levels[index] == level);
        (high(0, "3") + high(1, "2") + high(2, "32")) % 2 == 1
    });
    let analysis = additive(&data, 0.95);
    let fraction = analysis.layout.fraction.as_ref().unwrap();
    assert_eq!(
        (fraction.resolution, fraction.defining_relation[0].to_string().as_str()),
        (3, "ABC")
    );
    assert_eq!(analysis.fit.terms[0].aliases, ["BC"]);
    // −580 + 572.92: what A and BC add up to in the full design.
    prints(effect(&analysis, "A"), "-7.08");
}

/// 2^(7−4) from plan to effects: main effects come back from a response without interactions.
#[test]
fn seven_factors_are_screened_in_eight_runs() {
    let factors: Vec<Factor> = (0..7).map(|i| Factor::new(&format!("f{i}"), [0, 1])).collect();
    let fraction = Fraction::smallest(7, 3).unwrap();
    let design = Design::fractional(factors, fraction).unwrap();
    let weights = [8.0, -4.0, 2.0, 1.0, 0.5, 0.25, 16.0];
    let observations = design
        .plan(1, 3)
        .iter()
        .map(|run| {
            let configuration = &design.configurations[run.configuration];
            let sign = |level: &usize| if *level == 1 { 1.0 } else { -1.0 };
            let levels = configuration.levels.as_ref().unwrap();
            let value = 100.0 + levels.iter().zip(weights).map(|(l, w)| sign(l) * w).sum::<f64>();
            Observation { levels: configuration.settings.clone(), block: None, order: None, value }
        })
        .collect();
    let names = design.factors.iter().map(|factor| factor.name.clone()).collect();
    let analysis = additive(&Table { factors: names, observations }, 0.95);
    assert_eq!(analysis.layout.cells, 8);
    for (name, weight) in ["A", "B", "C", "D", "E", "F", "G"].iter().zip(weights) {
        assert!((effect(&analysis, name) - weight).abs() < 1e-9, "{name}");
    }
}

/// A bend between the levels is seen by center points and by nothing else.
#[test]
fn center_points_see_a_bend() {
    let mut rows = Vec::new();
    for (a, b) in [(1., 10.), (3., 10.), (1., 20.), (3., 20.), (2., 15.)] {
        for r in 0..4_u32 {
            let bend = if a > 1.5 && a < 2.5 { 30.0 } else { 0.0 };
            let value = 10.0 * a + b + bend + (f64::from(r) * 1.7 + a).sin();
            rows.push(Observation {
                levels: vec![f64::to_string(&a), f64::to_string(&b)],
                block: None,
                order: None,
                value,
            });
        }
    }
    let data = Table { factors: vec!["a".to_owned(), "b".to_owned()], observations: rows };
    let analysis = additive(&data, 0.95);
    assert!(analysis.layout.two_level);
    assert_eq!(analysis.layout.center_points.len(), 4);
    let bend = analysis.fit.checks.iter().find(|c| c.assumption == Assumption::Linearity).unwrap();
    assert_eq!(bend.verdict, Verdict::Doubtful);
}

#[test]
fn what_cannot_be_analyzed_is_refused_with_the_reason() {
    let two = |values: [f64; 4]| {
        cells(&["a"], &[(&["1"], &[values[0], values[1]]), (&["2"], &[values[2], values[3]])])
    };
    let refuse = |data: &Table| analyze(data, &Options::default()).unwrap_err();
    let constant = refuse(&two([5.0; 4]));
    assert!(matches!(constant, AnalysisError::ConstantResponse { .. }));
    assert!(constant.to_string().contains("is 5 in all 4 runs"), "{constant}");
    let one = AnalysisError::ConstantResponse { value: 5.0, runs: 1 }.to_string();
    assert!(one.contains("is 5 in the only run, so"), "{one}");
    assert!(matches!(refuse(&two([1.0, f64::NAN, 2.0, 3.0])), AnalysisError::Sample(_)));
    let single = cells(&["a", "b"], &[(&["1", "x"], &[1.0, 2.0])]);
    assert_eq!(
        refuse(&single).to_string(),
        "no factor is varied: a, b each have one level only; an effect needs at least two"
    );
    let lonely = cells(&["a"], &[(&["1"], &[1.0]), (&["2"], &[2.0]), (&["3"], &[4.0])]);
    assert!(matches!(refuse(&lonely), AnalysisError::NoError { levels: 3, .. }));
    let together = cells(&["a", "b"], &[(&["1", "1"], &[1.0, 2.0]), (&["2", "2"], &[3.0, 4.5])]);
    assert!(matches!(refuse(&together), AnalysisError::Confounded { cells: 2 }));
    let negative = two([-1.0, 2.0, 3.0, 4.0]);
    let options = Options { model: Some(Model::Multiplicative), ..Options::default() };
    assert!(matches!(analyze(&negative, &options), Err(AnalysisError::NotPositive { row: 1, .. })));
    assert!(analyze(&negative, &Options::default()).is_ok());
    let empty = Table { factors: vec!["a".to_owned()], observations: Vec::new() };
    assert!(matches!(refuse(&empty), AnalysisError::Sample(_)));
}

/// A factor with one level is left out by name; the others are analyzed.
#[test]
fn a_factor_that_is_not_varied_is_left_out() {
    let data = cells(&["a", "disk"], &[(&["1", "ssd"], &[1.0, 2.0]), (&["2", "ssd"], &[5.0, 6.5])]);
    let analysis = additive(&data, 0.95);
    assert_eq!(analysis.layout.factors.len(), 1);
    assert!(analysis.caveats.iter().any(|c| c.to_string().contains("`disk` is always ssd")));
}

/// Levels that are numbers sort as numbers, however they are written.
#[test]
fn numbers_are_levels_whatever_their_spelling() {
    let data =
        cells(&["workers"], &[(&["16"], &[3.0, 4.0]), (&["8"], &[1.0, 2.0]), (&["8.0"], &[1.5])]);
    let analysis = additive(&data, 0.95);
    assert_eq!(analysis.layout.factors[0].levels, ["8", "16"]);
    assert!(effect(&analysis, "A") > 0.0);
}

/// Residuals that grow with the prediction are seen, on the queue's latencies.
#[test]
fn unequal_spread_is_seen() {
    let analysis = additive(&table(LATENCY), 0.95);
    let checks = &analysis.fit.checks;
    assert!(checks.iter().any(|check| check.verdict == Verdict::Doubtful), "{checks:#?}");
    let json = serde_json::to_string(&analysis).unwrap();
    assert_eq!(serde_json::from_str::<Analysis>(&json).unwrap().layout, analysis.layout);
}

/// 2⁹ × 2 and 2¹² × 1, with every interaction: each effect is the sum of signed responses over their
/// number, as a sign table has it. Solving them as one dense system took minutes.
#[test]
fn large_two_level_designs_are_sign_tables() {
    for (factors, replications) in [(9_usize, 2_u32), (12, 1)] {
        let value = |cell: u32, replication: u32| {
            let mixed = (cell * 2 + replication + 1).wrapping_mul(2_654_435_761);
            1_000.0 + f64::from(mixed >> 16) / 655.36 + if cell & 4 == 4 { 300.0 } else { 0.0 }
        };
        let mut observations = Vec::new();
        for cell in 0..1_u32 << factors {
            let levels: Vec<String> = (0..factors).map(|f| (cell >> f & 1).to_string()).collect();
            observations.extend((0..replications).map(|replication| Observation {
                levels: levels.clone(),
                block: Some(replication.to_string()),
                order: None,
                value: value(cell, replication),
            }));
        }
        let names = (0..factors).map(|f| format!("f{f}")).collect();
        let data = Table { factors: names, observations };
        let analysis = additive(&data, 0.95);
        assert_eq!(analysis.fit.terms.len(), (1 << factors) - 1);
        for term in analysis.fit.terms.iter().step_by(97) {
            let mask = term.factors.iter().fold(0_u32, |mask, factor| mask | 1 << factor);
            let signed: f64 = (0..1_u32 << factors)
                .flat_map(|cell| (0..replications).map(move |r| (cell, r)))
                .map(|(cell, r)| {
                    let odd = (mask & !cell).count_ones() % 2 == 1;
                    if odd { -value(cell, r) } else { value(cell, r) }
                })
                .sum();
            let count = f64::from((1_u32 << factors) * replications);
            let q = term.effect.as_ref().unwrap().center;
            assert!((q - signed / count).abs() < 1e-9, "{}: {q}", term.name);
            assert!((term.sum_of_squares - count * q * q).abs() < 1e-6 * count, "{}", term.name);
        }
        let shares: f64 = analysis.fit.terms.iter().map(|term| term.share).sum();
        let error = analysis.fit.error.map_or(0.0, |error| error.share);
        assert!((shares + error - 1.0).abs() < 1e-9, "{shares} {error}");
    }
}

/// Unbalanced data of three factors against the normal equations, solved by hand for two levels:
/// the type III sum of squares of a main effect is (q/s)² with s² its element of (XᵀX)⁻¹.
#[test]
fn unbalanced_data_agree_with_the_normal_equations() {
    let rows: [(&[&str], &[f64]); 4] = [
        (&["1", "1"], &[12.0, 14.0, 13.5]),
        (&["2", "1"], &[20.0]),
        (&["1", "2"], &[15.0, 16.5]),
        (&["2", "2"], &[31.0, 30.0, 29.5, 30.5]),
    ];
    let analysis = additive(&cells(&["a", "b"], &rows), 0.95);
    // Saturated in the cells, so effects are those of the cell means, and the variance of each is
    // Σ 1/(16 n) over the four cells.
    let means: Vec<f64> =
        rows.iter().map(|row| row.1.iter().sum::<f64>() / exact_f64(row.1.len())).collect();
    let variance: f64 = rows.iter().map(|row| 1.0 / (16.0 * exact_f64(row.1.len()))).sum();
    let q = (-means[0] + means[1] - means[2] + means[3]) / 4.0;
    assert!((effect(&analysis, "A") - q).abs() < 1e-10);
    let term = &analysis.fit.terms[0];
    assert!((term.sum_of_squares - q * q / variance).abs() < 1e-9, "{}", term.sum_of_squares);
    assert!((analysis.fit.residuals[0].leverage - 1.0 / 3.0).abs() < 1e-12);
}

/// [Montgomery 2017 §6.8]: a 2² of a chemical process, once each, and five center points. Their
/// replication is the error; the printed table has SS 2.4025, 0.4225, 0.0025, curvature 0.0027,
/// error 0.1720 on 4 degrees of freedom, total 3.0022, and F = 55.87 for A.
#[test]
fn center_points_are_the_error_of_a_design_without_other_replications() {
    let centers: &[f64] = &[40.3, 40.5, 40.7, 40.2, 40.6];
    let rows: [(&[&str], &[f64]); 5] = [
        (&["30", "150"], &[39.3]),
        (&["40", "150"], &[40.9]),
        (&["30", "160"], &[40.0]),
        (&["40", "160"], &[41.5]),
        (&["35", "155"], centers),
    ];
    let analysis = additive(&cells(&["time", "temperature"], &rows), 0.95);
    let printed = [("A", 2.4025), ("B", 0.4225), ("AB", 0.0025), ("curvature", 0.0027)];
    for (name, squares) in printed {
        let term = analysis.fit.terms.iter().find(|term| term.name == name).unwrap();
        assert!((term.sum_of_squares - squares).abs() < 5e-5, "{name}: {}", term.sum_of_squares);
    }
    let error = analysis.fit.error.unwrap();
    assert!((error.sum_of_squares - 0.1720).abs() < 5e-5 && error.degrees == 4, "{error:?}");
    assert!((analysis.fit.sums.sst - 3.0022).abs() < 5e-5);
    // Printed from the rounded mean square 0.0430.
    assert!((analysis.fit.terms[0].f_ratio.unwrap() - 55.87).abs() < 0.01);
    assert!(analysis.fit.lenth.is_none());
}

/// Residuals of a balanced design come in ties of opposite sign, which rounding must not order.
#[test]
fn ties_of_the_additivity_test_are_ties() {
    let scaled = |scale: f64| {
        let rows: Vec<(Vec<String>, [f64; 2])> = (0..8_u32)
            .map(|cell| {
                let levels = (0..3).map(|f| (cell >> f & 1).to_string()).collect();
                let base = 10.0 + 3.0 * f64::from(cell) + 0.1 * f64::from(cell * cell % 5);
                let half = 0.1 + 0.3 * f64::from(cell % 3);
                (levels, [(base - half) * scale, (base + half) * scale])
            })
            .collect();
        let observations = rows
            .into_iter()
            .flat_map(|(levels, values)| {
                values.map(|value| Observation {
                    levels: levels.clone(),
                    block: None,
                    order: None,
                    value,
                })
            })
            .collect();
        let factors = ["a", "b", "c"].map(str::to_owned).to_vec();
        let analysis = additive(&Table { factors, observations }, 0.95);
        let check = analysis.fit.checks.into_iter();
        check.filter(|c| c.assumption == Assumption::Additivity).find_map(|c| c.statistic).unwrap()
    };
    // Sizes of the residuals: 0.1, 0.4 or 0.7, twice a cell. By hand: the ranks of the cells' sizes
    // against the ranks 1.5, 3.5, … of their predictions.
    let sizes: Vec<f64> = (0..8).map(|cell| [3.5, 9.5, 14.5][cell % 3]).collect();
    let predictions: Vec<f64> = (0..8_u32).map(|cell| 1.5 + 2.0 * f64::from(cell)).collect();
    let center = |v: &[f64]| v.iter().sum::<f64>() / 8.0;
    let (a, b) = (center(&sizes), center(&predictions));
    let product = |x: &[f64], y: &[f64], a: f64, b: f64| {
        x.iter().zip(y).map(|(x, y)| (x - a) * (y - b)).sum::<f64>()
    };
    let exact = product(&sizes, &predictions, a, b)
        / (product(&sizes, &sizes, a, a) * product(&predictions, &predictions, b, b)).sqrt();
    for scale in [1.0, 0.1, 1.0 / 3.0, 1e3 / 7.0] {
        let found = scaled(scale);
        assert!((found - exact).abs() < 1e-9, "scale {scale}: {found}, exact {exact}");
    }
}

#[test]
fn responses_whose_squares_overflow_are_refused() {
    let data = cells(&["a"], &[(&["1"], &[1e308, 1.1e308]), (&["2"], &[-1e308, -1.2e308])]);
    let error = analyze(&data, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("larger unit"), "{error}");
}

#[test]
fn responses_whose_squares_vanish_are_refused() {
    let data = cells(&["a"], &[(&["1"], &[1e-200, 1.1e-200]), (&["2"], &[2e-200, 2.2e-200])]);
    let error = analyze(&data, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("smaller unit"), "{error}");
}

/// `100/s` and `20/s` are numbers: in ascending order, and with a center.
#[test]
fn levels_with_units_are_numbers() {
    let data = cells(
        &["rate"],
        &[(&["100/s"], &[3.0, 4.0]), (&["20/s"], &[1.0, 2.0]), (&["0.02/ms"], &[1.5])],
    );
    let analysis = additive(&data, 0.95);
    assert_eq!(analysis.layout.factors[0].levels, ["20/s", "100/s"]);
    assert!(effect(&analysis, "A") > 0.0);
}

/// Where Box and Cox reject both the response and its logarithm, the additive model is not said to
/// be one that the data allow.
#[test]
fn a_model_that_the_data_reject_is_not_called_allowed() {
    // The response is the square of something additive with an even error.
    let mut observations = Vec::new();
    for cell in 0..4_u32 {
        for r in 0..150_u32 {
            let error = f64::from(((cell * 150 + r) * 7_919) % 601) / 601.0 - 0.5;
            let plain = 5.0 + 0.4 * f64::from(cell & 1) + 0.3 * f64::from(cell >> 1) + 4.0 * error;
            observations.push(Observation {
                levels: vec![(cell & 1).to_string(), (cell >> 1).to_string()],
                block: None,
                order: None,
                value: plain * plain,
            });
        }
    }
    let factors = ["a", "b"].map(str::to_owned).to_vec();
    let data = Table { factors, observations };
    let analysis = analyze(&data, &Options::default()).unwrap();
    let found = analysis.recommendation.box_cox.unwrap();
    let reasons = analysis.recommendation.reasons.join("; ");
    if analysis.recommendation.model == Model::Additive && found.high < 1.0 {
        assert!(reasons.contains("for want of a better one"), "{reasons}");
        assert!(!reasons.contains("that the data allow"), "{reasons}");
    } else {
        panic!("the data of this test no longer reject both: {found:?}");
    }
}

/// [Montgomery 2017 §3.5], plasma etching: four powers, five runs each, MSE 333.70 on 16 degrees of
/// freedom, q(0.05; 4, 16) = 4.05: an absolute difference of 33.09 is significant. Differences of
/// the means 551.2, 587.4, 625.4, 707.0.
#[test]
fn levels_are_compared_by_tukeys_method() {
    let rows: [(&[&str], &[f64]); 4] = [
        (&["160"], &[575., 542., 530., 539., 570.]),
        (&["180"], &[565., 593., 590., 579., 610.]),
        (&["200"], &[600., 651., 610., 637., 629.]),
        (&["220"], &[725., 700., 715., 685., 710.]),
    ];
    let analysis = additive(&cells(&["power"], &rows), 0.95);
    assert_eq!(analysis.fit.contrasts.len(), 6);
    let first = &analysis.fit.contrasts[0];
    assert_eq!(first.levels, ("160".to_owned(), "180".to_owned()));
    assert!((first.difference.center - 36.2).abs() < 1e-9);
    assert!((first.difference.interval.unwrap().half_width() - 33.09).abs() < 0.05);
    assert!(analysis.fit.contrasts.iter().all(|contrast| contrast.p_value < 0.05));
}

/// Pooling the highest interactions of an unreplicated design makes them the error: sums of squares
/// and degrees of freedom add up.
#[test]
fn terms_are_pooled_into_the_error() {
    let data = table(UNREPLICATED);
    let options = Options { model: Some(Model::Additive), confidence: 0.95, blocks: false };
    let whole = analyze(&data, &options).unwrap();
    let pooled = kendall_stats::analysis::analyze_pooled(&data, &options, &["3+".to_owned()]);
    let pooled = pooled.unwrap();
    let high = whole.fit.terms.iter().filter(|term| term.factors.len() >= 3);
    let (squares, degrees) =
        high.fold((0.0, 0), |(s, d), term| (s + term.sum_of_squares, d + term.degrees));
    let error = pooled.fit.error.unwrap();
    assert!((error.sum_of_squares / squares - 1.0).abs() < 1e-9 && error.degrees == degrees);
    let unknown = kendall_stats::analysis::analyze_pooled(&data, &options, &["XY".to_owned()]);
    assert!(unknown.unwrap_err().to_string().contains("no term `XY`"));
}
