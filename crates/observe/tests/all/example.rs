//! `examples/observed/`: two days of a real cluster. The first answers what a third worker would do; on the
//! second it was there, so that the answer is compared with what happened.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use std::path::Path;

use kendall_fit::change::Change;
use kendall_observe::{Analysis, Observed, Recording, System, analyze, change, fetch, report};

fn day(folder: &str) -> (System, Observed, Analysis) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/observed");
    let text = std::fs::read_to_string(examples.join("system.toml")).unwrap();
    let system = System::parse(&text).unwrap();
    let mut recording = Recording::open(&examples.join(folder)).unwrap();
    let grid = recording.grid().unwrap();
    let observed = fetch(&system, &mut recording, grid).unwrap();
    let analysis = analyze(&system, &observed).unwrap();
    (system, observed, analysis)
}

/// Load, response time and slots of the second day's windows.
fn measured(analysis: &Analysis) -> Vec<(f64, f64)> {
    analysis
        .windows
        .used()
        .map(|window| {
            let entry = &window.tiers[0];
            (entry.throughput_per_s.unwrap(), entry.response_time_s.unwrap())
        })
        .collect()
}

/// X and R as the first day predicts them for twelve slots, against the second day's.
///
/// 10 % of X and 15 % of R: the mean R of 9,962 requests, of which two in five took an exponential
/// time of 1.36 s, has a standard error of 2 %, and the first day's service time one of 3.5 %.
#[test]
fn the_first_day_predicts_the_second_with_one_more_worker() {
    let (system, _, first) = day("day1");
    let (_, _, second) = day("day2");
    assert_eq!((first.tiers[1].servers, second.tiers[1].servers), (8, 12));
    let demand = first.tiers[1].demand.as_ref().unwrap().demands[0].estimate.center;
    let capacity = second.tiers[1].headroom.as_ref().unwrap().capacity_per_s.center;
    assert!((12.0 / demand / capacity - 1.0).abs() < 0.10, "{} for {capacity}", 12.0 / demand);

    let mut network = first.network.clone().unwrap();
    network.centers[1].servers = 12;
    let windows = measured(&second);
    let (mut predicted, mut found) = (0.0, 0.0);
    for (rate, response_s) in &windows {
        predicted += rate * network.at(*rate).unwrap().response_time_s;
        found += rate * response_s;
    }
    let error = predicted / found - 1.0;
    println!("R: {:+.1} %, X: {:+.1} %", error * 100.0, (12.0 / demand / capacity - 1.0) * 100.0);
    assert!(error.abs() < 0.15, "{error}");

    // And the interval of the answer for a load holds the mean of the windows near it.
    let text = "rate=14/s,workers.servers=12";
    let changes: Vec<Change> = text.split(',').map(|part| change(part, &system).unwrap()).collect();
    let said = first.fitted().answer(&changes, text, 1).unwrap().response_time.unwrap();
    let near: Vec<f64> =
        windows.iter().filter(|(rate, _)| (rate - 14.0).abs() < 1.5).map(|(_, r)| *r).collect();
    assert!(near.len() >= 4, "{windows:?}");
    let mean = kendall_stats::sample::mean(&near);
    assert!(said.interval.unwrap().contains(mean), "{mean} not in {said:?}");
}

#[test]
fn both_days_agree_with_themselves_and_name_the_workers() {
    for folder in ["day1", "day2"] {
        let (system, observed, analysis) = day(folder);
        assert_eq!(analysis.bottleneck, Ok(1), "{folder}");
        for law in &analysis.laws {
            assert!(law.holds, "{folder}: {law:?}");
        }
        let report = report::report(&system, &observed, &analysis, &[]);
        let ids: Vec<&str> = report.sections.iter().map(|section| section.id).collect();
        for id in ["arrivals", "classes", "jobs", "durations"] {
            assert!(ids.contains(&id), "{folder}: {ids:?}");
        }
        let open = report.sections.iter().filter(|section| !section.folded);
        let open: Vec<&str> = open.map(|section| section.id).collect();
        assert_eq!(open, ["answer", "monitoring", "load"], "{folder}: what everybody reads");
    }
}
