//! `examples/caches/`: a front over two cache servers, and the same with a third, recorded by `scripts/record-caches`.
//! What the first says of one more server is held against what one more did, at each load.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use std::path::{Path, PathBuf};

use kendall_fit::change::Change;
use kendall_observe::{Analysis, CsvTable, Observed, Quantity, System, analyze, change, fetch};
use kendall_stats::distribution::t_two_sided;
use kendall_units::exact_f64;

/// Rates are taken over so many seconds.
const WINDOW_S: u64 = 4;
const CONFIDENCE: f64 = 0.95;
/// What is promised.
const MOST_OFF_X: f64 = 0.10;
const MOST_OFF_R: f64 = 0.15;

/// How a recording was made.
#[derive(serde::Deserialize)]
struct Made {
    carried_per_s: f64,
    began_s: f64,
    level_s: u64,
    rates_per_s: Vec<f64>,
    order: Vec<usize>,
}

/// What was measured at one load.
struct Level {
    offered_per_s: f64,
    answered_per_s: f64,
    response_s: f64,
    /// Half of the interval that chance gives the response time, over it.
    half: f64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/caches")
}

fn recorded(name: &str) -> (System, Observed, Analysis, Made) {
    let read = |end: &str| std::fs::read_to_string(folder().join(format!("{name}.{end}"))).unwrap();
    let mut table = CsvTable::parse(&read("csv")).unwrap();
    let system = table.system(&System::parse(&read("toml")).unwrap()).unwrap();
    let grid = table.grid(&system).unwrap();
    let observed = fetch(&system, &mut table, grid).unwrap();
    let analysis = analyze(&system, &observed).unwrap();
    (system, observed, analysis, serde_json::from_str(&read("json")).unwrap())
}

/// Means of each load over pieces of its time that have nothing in common. What waits when one begins is forgotten in a
/// tenth of a second, so pieces of four are independent.
fn levels(observed: &Observed, made: &Made) -> Vec<Level> {
    let series = |quantity| &observed.tiers[0].series[&quantity];
    let (offered, answered, times) =
        (series(Quantity::Arrivals), series(Quantity::Throughput), series(Quantity::ResponseTime));
    let level = |number: usize| {
        let turns = made.order.iter().zip(0_u64..).filter(|(level, _)| **level == number);
        let began = turns.map(|(_, turn)| made.began_s + exact_f64(turn * made.level_s));
        let pieces: Vec<usize> = began
            .flat_map(|began| {
                let first = kendall_units::whole_u64(began.floor()) + WINDOW_S + 1;
                let last = kendall_units::whole_u64((began + exact_f64(made.level_s)).floor());
                (first..=last).step_by(usize::try_from(WINDOW_S).unwrap())
            })
            .map(|at| usize::try_from(at - observed.grid.from_s).unwrap())
            .filter(|at| {
                [offered, answered, times]
                    .iter()
                    .all(|one| one.get(*at).is_some_and(|v| v.is_finite()))
            })
            .collect();
        let count = exact_f64(pieces.len() as u64);
        let sum = |of: &dyn Fn(usize) -> f64| pieces.iter().map(|at| of(*at)).sum::<f64>();
        let all = sum(&|at| answered[at]);
        let response_s = sum(&|at| answered[at] * times[at]) / all;
        let squares = sum(&|at| (answered[at] * (times[at] - response_s)).powi(2));
        let error = (squares * count / (count - 1.0)).sqrt() / all / response_s;
        Level {
            offered_per_s: sum(&|at| offered[at]) / count,
            answered_per_s: all / count,
            response_s,
            half: error * t_two_sided(CONFIDENCE, count - 1.0),
        }
    };
    (0..made.rates_per_s.len()).map(level).collect()
}

/// 10 % of X and 15 % of R are the promise; R is held against it where chance leaves less than that.
#[test]
fn two_cache_servers_say_what_three_do() {
    let (system, _, two, _) = recorded("two");
    let (_, observed, _, made) = recorded("three");
    assert_eq!(two.bottleneck, Ok(1));
    let mut told = 0;
    for level in levels(&observed, &made) {
        let text = format!("rate={}/s,cache.servers=3", level.offered_per_s);
        let changes: Vec<Change> =
            text.split(',').map(|part| change(part, &system).unwrap()).collect();
        let said = two.fitted().answer(&changes, &text, 1).unwrap();
        let time = said.response_time.unwrap();
        let off_x = level.offered_per_s / level.answered_per_s - 1.0;
        let off = time.center / level.response_s - 1.0;
        let interval = time.interval.unwrap();
        println!(
            "{:.1}/s: {:.3} ms ({:.3} to {:.3}), measured {:.3} ms ± {:.1} %: {:+.1} %",
            level.answered_per_s,
            time.center * 1e3,
            interval.low * 1e3,
            interval.high * 1e3,
            level.response_s * 1e3,
            level.half * 100.0,
            off * 100.0
        );
        assert!(off_x.abs() < MOST_OFF_X, "{text}: {off_x}");
        // Where chance alone may be as large as the bar, the recording decides nothing.
        if level.half < MOST_OFF_R {
            assert!(off.abs() < MOST_OFF_R, "{text}: {off}");
            told += 1;
        }
        let (low, high) =
            (level.response_s * (1.0 - level.half), level.response_s * (1.0 + level.half));
        assert!(
            interval.low < high && low < interval.high,
            "{text}: {interval} and {low} to {high}"
        );
    }
    assert!(told >= 5, "{told} of {} loads can be told from chance", made.rates_per_s.len());
    let capacity = two.tiers[1].headroom.as_ref().unwrap().capacity_per_s.center / 2.0 * 3.0;
    println!("most: {capacity:.1}/s, measured {:.1}/s", made.carried_per_s);
    assert!((capacity / made.carried_per_s - 1.0).abs() < MOST_OFF_X, "{capacity}");
}
