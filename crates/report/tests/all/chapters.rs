//! The whole way: stored results in, page, tables and JSON out.

#![expect(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a test fails by panicking; levels are compared with themselves"
)]

use std::path::PathBuf;

use crate::made::{IDLE, Made, QUEUE, TWO_LEVEL, WRITES};
use crate::synthetic::{self, Synthetic};
use kendall_protocols::topology::Part;
use kendall_stats::estimate::Caveat;
use kendall_store::{Extent, HostSample, Process, ProcessSample, Results, RunRecord, Status};

/// A folder for one test; `KENDALL_REPORT_OUT` names one that is kept, to be looked at.
fn folder(name: &str) -> (PathBuf, Option<tempfile::TempDir>) {
    if let Some(kept) = std::env::var_os("KENDALL_REPORT_OUT") {
        let folder = PathBuf::from(kept).join(name);
        std::fs::remove_dir_all(&folder).unwrap_or_default();
        return (folder, None);
    }
    let temporary = tempfile::tempdir().unwrap();
    (temporary.path().join(name), Some(temporary))
}

#[test]
fn a_study_of_load_curves_becomes_a_page_tables_and_json() {
    let Made { folder, report, written, .. } = &*WRITES;
    let html = WRITES.html();
    for section in &report.sections {
        assert!(html.contains(&format!("id=\"{}\"", section.id)), "{}", section.id);
    }
    assert!(html.contains("Throughput against load"));
    // Each backend's share at all 36 configurations, not only at the fastest.
    assert!(html.contains("Requests to each backend, at every configuration"));
    // Full workers at the highest load of the first curve.
    let mut limits = html.split("so by the utilization law ").skip(1).peekable();
    assert!(limits.peek().is_some());
    for left in limits {
        let percent =
            left.strip_prefix("at most ").and_then(|left| left.split_once("\u{a0}% can be gained"));
        let percent = percent.is_some_and(|(percent, _)| percent.parse::<f64>().is_ok());
        assert!(percent || left.starts_with("nothing can be gained"), "{left:.60}");
    }
    for number in [">NaN", "\"NaN", "MNaN", ">inf"] {
        assert!(!html.contains(number), "a number that is none: {number}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&written.json).unwrap()).unwrap();
    assert_eq!(json["name"], "memcached-writes");
    let csv = std::fs::read_to_string(folder.join("tables/configurations.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 36);
    assert!(csv.starts_with("system.workers,workload.clients,repetitions,throughput_per_s"));
}

/// What disturbed a run that weighs less is said, and which model answers, with what each errs by.
#[test]
fn a_prediction_says_which_model_answers_and_which_runs_weigh_less() {
    let (folder, _guard) = folder("stolen");
    let stolen = |record: &mut RunRecord| {
        if record.run.position == 1 {
            for (second, sample) in (0_u64..).zip(&mut record.hosts) {
                sample.cpu_steal_ns = second * 300_000_000;
            }
        }
    };
    let factors = vec![("workload.clients", vec![6.0, 54.0, 198.0])];
    Synthetic { factors, repetitions: 2, change: stolen, ..Synthetic::writes() }.store(&folder);
    let mut results = Results::open(&folder).unwrap();
    let asked = kendall_store::StoredPrediction {
        made_unix_ns: 1,
        asked: vec![("workload.clients".to_owned(), "100".to_owned())],
        answer: serde_json::json!({
            "throughput_per_s": { "center": 1.0, "low": 0.5, "high": 2.0 },
            "ladder": [
                { "name": "line", "throughput_per_s": 2.0, "response_mean_s": 0.5, "left_out_error": 0.2,
                  "left_out": 2, "weight": 0.05 },
                { "name": "twin", "throughput_per_s": 1.0, "response_mean_s": 1.0, "left_out_error": 0.03,
                  "left_out": 2, "weight": 0.95 },
            ],
        }),
        run: None,
        repeated: None,
        verdict: None,
    };
    results.store_prediction(&asked).unwrap();
    drop(results);
    let (_, written) = kendall_report::write(&folder).unwrap();
    let html = std::fs::read_to_string(written.html).unwrap();
    assert!(html.contains("up to 0.30 was stolen"), "{html}");
    let said = "workload.clients=100: the structure of the system, calibrated (95\u{a0}% of the answer, off by 3\u{a0}%";
    assert!(
        html.contains(said) && !html.contains("straight lines between the loads that were run (")
    );
    let table =
        |name: &str| std::fs::read_to_string(folder.join(format!("tables/{name}.csv"))).unwrap();
    let ladder = table("ladder");
    assert_eq!(ladder.lines().count(), 3, "{ladder}");
    // Three loads, each left out once, and what the models of the others said of it.
    let left_out = table("left-out");
    assert_eq!(left_out.lines().count(), 4, "{left_out}");
    assert!(left_out.lines().next().unwrap().contains("twin"), "{left_out}");
}

#[test]
fn hostile_titles_are_text_everywhere() {
    let (folder, _guard) = folder("hostile");
    let title = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>".to_owned();
    Synthetic { title, repetitions: 1, ..Synthetic::writes() }.store(&folder);
    let (_, written) = kendall_report::write(&folder).unwrap();
    let html = std::fs::read_to_string(written.html).unwrap();
    assert!(!html.contains("<script>alert"));
    assert!(!html.contains("<img"));
}

#[test]
fn no_results_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let error = kendall_report::analyze(folder.path()).unwrap_err();
    assert!(error.to_string().contains("kendall run"), "{error}");
}

#[test]
fn a_two_level_design_gets_its_effects_and_their_shares() {
    let effects = TWO_LEVEL.report.sections.iter().find(|section| section.id == "effects").unwrap();
    let table = effects.tables().find(|table| table.id == "effects-throughput").unwrap();
    let json = serde_json::to_value(table).unwrap();
    // The mean, the blocks (repetitions), seven terms and the error; their shares are all of the
    // variation. Without the blocks, what differs between repetitions would pose as error.
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    let blocks = rows.iter().find(|row| row["term"] == "blocks").unwrap();
    assert_eq!(blocks["degrees"], 2.0);
    let shares: f64 = rows.iter().filter_map(|row| row["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    assert!(TWO_LEVEL.html().contains("Residuals against normal quantiles"));
}

/// A design without a load curve has M/M/m of each configuration, at its own service time.
#[test]
fn a_two_level_design_has_a_station_for_each_configuration() {
    let stations = rows(&TWO_LEVEL.report, "model-stations");
    assert_eq!(stations.len(), 8);
    for row in &stations {
        let model = row["model"].as_str().unwrap();
        assert!(model.starts_with("M/M/") && model.ends_with("of this configuration"), "{model}");
        // µ of one worker: 1/S, and ρ = λ·S/m.
        let value = |key: &str| row[key].as_f64().unwrap();
        let offered = value("arrival_rate_per_s") / value("service_rate_per_s") / value("servers");
        match row["utilization"].as_f64() {
            Some(rho) => assert!((rho - offered).abs() < 1e-9 * rho, "{row}"),
            None => assert!(offered >= 1.0 - 1e-9, "{row}"),
        }
    }
}

/// Every caveat of a run stands beside its configuration's numbers, in JSON and on the page; runs
/// that must not be used are listed with their reason and are in no number.
#[test]
fn doubts_are_carried_to_the_numbers_and_rejected_runs_are_listed() {
    let (folder, _guard) = folder("doubts");
    let synthetic = Synthetic { repetitions: 2, ..Synthetic::two_level() };
    synthetic.store(&folder);
    let mut results = kendall_store::Results::open(&folder).unwrap();
    let first = results.runs().unwrap().remove(0);
    let mut rejected = results.record(first.id).unwrap();
    rejected.run.attempt = 1;
    rejected.run.status = kendall_store::Status::Rejected;
    rejected.run.reasons = vec!["generator saturated: its busiest thread used 99 %".to_owned()];
    rejected.run.environment = serde_json::json!({ "machine": { "kernel": "6.2" } });
    results.store_run(&rejected).unwrap();
    drop(results);
    let (report, written) = kendall_report::write(&folder).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    let table = |id: &str| {
        let blocks = json["sections"].as_array().unwrap().iter();
        let blocks = blocks.flat_map(|section| section["blocks"].as_array().unwrap());
        let mut tables = blocks.map(|block| &block["content"]);
        tables.find(|content| content["id"] == id).unwrap()["rows"].clone()
    };
    let rows = table("configurations");
    let hurt: Vec<f64> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let caveats = row["throughput_per_s"]["caveats"].to_string();
            assert!(caveats.contains("shared-machine"), "{caveats}");
            row["repetitions"].as_f64().unwrap()
        })
        .collect();
    assert_eq!(hurt.iter().filter(|runs| **runs == 1.0).count(), 1, "the last attempt counts");
    let unusable = table("unusable-runs");
    assert!(unusable[0]["reasons"].as_str().unwrap().contains("generator saturated"));
    let html = std::fs::read_to_string(written.html).unwrap();
    assert!(html.contains("class=\"doubt\"") && html.contains("(in 2 of 2 runs)"));
    assert!(html.contains("machine.kernel (6.1, then 6.2)"));
}

/// What the search of an adaptive design found: maximum, how sure, where else, knee, and the runs
/// that it took beside those of a sweep; and why a line has nothing.
#[test]
fn an_adaptive_study_says_what_it_found_and_how_sure_it_is() {
    use kendall_stats::adaptive::Shape;
    use kendall_stats::estimate::{Caveat, Estimate, Interval};
    use kendall_store::{FactorLevel, SearchFound, SearchLine};

    let (folder, _guard) = folder("adaptive");
    Synthetic { design: "adaptive", ..Synthetic::writes() }.store(&folder);
    let level = |text: &str| FactorLevel {
        factor: "system.workers".to_owned(),
        level: 0,
        text: text.to_owned(),
        number: text.parse().ok(),
    };
    let estimate = |center: f64, half: f64| {
        Estimate::with_interval(center, Interval::around(center, half, 0.95))
    };
    let line = |line, levels, found, without: &str| SearchLine {
        line,
        factor: "workload.clients".to_owned(),
        levels: vec![levels],
        runs: 16,
        grid: 9,
        sweep_runs: 27,
        found,
        without: without.to_owned(),
    };
    let found = SearchFound {
        maximum_throughput_per_s: estimate(7_550.0, 50.0)
            .doubt(Caveat::SearchLimit { limit: 198.0 }),
        best: 54.0,
        best_between: (30.0, 198.0),
        saturation_point: estimate(26.5, 0.5),
        knee_between: (6.0, 30.0),
        shape: Shape::Saturating,
        beyond: None,
        fit: Some(kendall_store::FittedShape {
            likely: vec![(Shape::Saturating, 0.91), (Shape::Retrograde, 0.09)],
            maximum_throughput_per_s: estimate(7_560.0, 40.0),
            level_of_maximum: estimate(198.0, 0.0),
            knee: estimate(24.0, 1.5),
            spread: 0.013,
        }),
    };
    let mut results = kendall_store::Results::open(&folder).unwrap();
    let lines = [line(0, level("8"), Some(found), ""), line(1, level("16"), None, "a run failed")];
    results.store_searches(&lines).unwrap();
    drop(results);
    let (report, written) = kendall_report::write(&folder).unwrap();
    let summary = report.summary.join("\n");
    for wanted in [
        "8 workers: highest measured 7550/s (95 % interval 7500/s to 7600/s, ±0.7 %), at 54 clients",
        "everything from 30 to 198 measured as high",
        "N* = 26.5 (26.0 to 27.0) clients; 95 % of the maximum is first reached between 6 and 30",
        "The fitted shape: saturating 91 %, or retrograde 9 %; 95 % of its maximum is reached at 24.0 \
         (22.5 to 25.5)",
        "16 runs. Caveat: the search ended at its limit of 198",
        "The search took 32 runs. A sweep over all 9 levels with 3 repetitions of each takes 54 runs",
    ] {
        assert!(summary.contains(wanted), "{wanted}\n{summary}");
    }
    let answer = report.answer.unwrap().answer;
    assert_eq!(
        answer,
        "8 workers: highest measured 7550/s (7500/s to 7600/s), at 54 clients, 95 % of it from a load \
         between 6 and 30 on. It has caveats, which the chapter on the search names."
    );
    let html = std::fs::read_to_string(written.html).unwrap();
    assert!(html.contains("16 workers: nothing was found, since a run failed."));
    assert!(html.contains("What the search measured: 8 workers"));
    let csv = std::fs::read_to_string(folder.join("tables/adaptive.csv")).unwrap();
    assert!(csv.contains("8 workers,7550,7500,7600,54,30,198,26.5,26,27,6,30,16,27"), "{csv}");
}

/// Workers that serve several requests at once: the batch is their customer in laws, models and the
/// bottleneck table, and what it costs is a line in its size.
#[test]
fn a_queue_that_serves_batches_is_accounted_by_the_batch() {
    let json = serde_json::to_value(&QUEUE.report).unwrap();
    let rows = |id: &str| {
        let blocks = json["sections"].as_array().unwrap().iter();
        let mut contents = blocks
            .flat_map(|section| section["blocks"].as_array().unwrap())
            .map(|block| &block["content"]);
        contents.find(|content| content["id"] == id).unwrap()["rows"].as_array().unwrap().clone()
    };
    let batches = rows("batches");
    assert_eq!(batches.len(), 5);
    for row in &batches {
        let number = |key: &str| row[key].as_f64().unwrap();
        let clients: f64 = row["workload.clients"].as_str().unwrap().parse().unwrap();
        // Batches are whole: a thousand or more in the window.
        assert!((number("mean_batch") / synthetic::batch(clients) - 1.0).abs() < 1e-3, "{row}");
        assert!((number("visits") * number("mean_batch") - 1.0).abs() < 1e-12, "{row}");
        let busy = number("tier_throughput_per_s") * number("demand_s");
        // Histograms keep three digits.
        assert!((busy / number("workers_busy") - 1.0).abs() < 2e-3, "{row}");
    }
    let html = QUEUE.html();
    assert!(html.contains("workers busy = X·V·S: within tolerance in all 10 runs"));
    // What batches do to models of one service time is said, whichever curve has them.
    assert!(html.contains("A worker serves what waits together: batches grow from 1.25 to 11.00"));
    let pool = rows("resources").into_iter().find(|r| r["resource"] == "connections to database");
    let pool = pool.unwrap();
    assert_eq!(pool["servers"], 8.0);
    // The curve's highest throughput is one of the configurations.
    let visits = pool["visits"].as_f64().unwrap();
    let near = |row: &serde_json::Value| (row["visits"].as_f64().unwrap() / visits - 1.0).abs();
    assert!(visits < 1.0 && batches.iter().any(|row| near(row) < 1e-2), "{pool}");
    let models: Vec<String> =
        rows("model-errors").iter().map(|row| row["model"].as_str().unwrap().to_owned()).collect();
    for wanted in [
        "M/M/1",
        "database M/M/1",
        "database M/M/8, service time of the lowest load",
        "network: \
         delay, network threads, workers that serve batches over the database",
    ] {
        assert!(models.iter().any(|model| model == wanted), "{wanted} not in {models:?}");
    }
}

/// What happened when, where the time went by type of request, and how many were answered in time.
#[test]
fn a_run_is_shown_over_time_by_stage_and_by_type() {
    let table = |name: &str| -> Vec<Vec<String>> {
        let text =
            std::fs::read_to_string(QUEUE.folder.join(format!("tables/{name}.csv"))).unwrap();
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    // Six seconds of the window, two repetitions.
    let trace = table("trace");
    assert_eq!(trace.len(), 1 + 6 * 2);
    let column = |rows: &[Vec<String>], name: &str| {
        rows[0].iter().position(|head| head == name).unwrap_or_else(|| panic!("no {name}"))
    };
    let at = column(&trace, "from_s");
    let from: Vec<&str> = trace[1..7].iter().map(|row| row[at].as_str()).collect();
    assert_eq!(from, ["0", "1", "2", "3", "4", "5"]);
    let stages = table("stages");
    assert_eq!(stages.len(), 1 + 5 * 2, "send and receive of each configuration");
    column(&stages, "connection_wait_time_s");
    let within = table("within");
    let first = column(&within, "share_below_1ms");
    assert!(within[0].iter().any(|head| head == "share_below_25ms"));
    for row in &within[1..] {
        let shares: Vec<f64> = row[first..].iter().map(|share| share.parse().unwrap()).collect();
        assert!(shares.is_sorted() && shares[0] >= 0.0 && shares[8] <= 1.0, "{row:?}");
    }
}

/// Two tiers report, and the one that the clients talk to comes last in the alphabet: its response
/// time is what the clients' is compared with, and it is not a backend of the other.
#[test]
fn the_tier_is_the_one_that_the_clients_talk_to_whatever_it_is_called() {
    let (folder, _guard) = folder("chain");
    Synthetic { chain: true, ..Synthetic::writes() }.store(&folder);
    let (report, written) = kendall_report::write(&folder).unwrap();
    let html = std::fs::read_to_string(written.html).unwrap();
    assert!(!html.contains("workers of abackend 1"), "the backend was modeled as the tier");
    let json = serde_json::to_value(&report).unwrap();
    let blocks = json["sections"].as_array().unwrap().iter();
    let mut contents = blocks
        .flat_map(|section| section["blocks"].as_array().unwrap())
        .map(|block| &block["content"]);
    let devices = contents.find(|content| content["id"] == "model-devices").unwrap();
    let names: Vec<&str> =
        devices["rows"].as_array().unwrap().iter().map(|r| r["device"].as_str().unwrap()).collect();
    assert!(names.contains(&"workers of zfront 1"), "{names:?}");
}

fn rows(report: &kendall_report::Report, id: &str) -> Vec<serde_json::Value> {
    let json = serde_json::to_value(report).unwrap();
    let blocks = json["sections"].as_array().unwrap().iter();
    let mut contents = blocks
        .flat_map(|section| section["blocks"].as_array().unwrap())
        .map(|block| &block["content"]);
    let table = contents.find(|content| content["id"] == id);
    table.map_or_else(Vec::new, |table| table["rows"].as_array().unwrap().clone())
}

/// As it was said of an idle nginx: "what limits it there: CPU of the host", M/M/1 with the offered
/// rate for a service rate and "mean error 6364 %". None of it is in the data.
#[test]
fn an_idle_open_loop_has_no_limit_and_no_service_rate() {
    let report = &IDLE.report;
    let html = IDLE.html();
    let answer = report.answer.as_ref().unwrap();
    assert!(answer.answer.contains("All offered load is answered"), "{answer:?}");
    assert!(answer.limits.as_ref().unwrap().starts_with("Cannot tell"), "{answer:?}");
    assert!(!html.contains("limited by CPU of the host"));
    assert_eq!(answer.trust.level, kendall_report::answer::TrustLevel::Bad);
    assert!(answer.trust.why.contains("other programs took"), "{answer:?}");
    assert!(answer.next.contains("runs nothing else"), "{answer:?}");
    let models = rows(report, "model-errors");
    assert!(models.iter().all(|row| row["model"] != "M/M/1"), "{models:?}");
    assert!(html.contains("Left out, since they do not apply"));
    assert!(html.contains("throughput follows the load up to the highest one measured"));
    // A load has its unit behind its number: it was "95 arrival rate".
    assert!(!html.contains("95 arrival rate"));
}

/// Beyond capacity an open loop has arrivals beside throughput, and its queue grows by their difference.
#[test]
fn an_overloaded_open_loop_has_no_steady_state_and_a_queue_that_grows() {
    let (kept, _guard) = folder("overloaded");
    let change: fn(&mut RunRecord) = |record| {
        if record.run.factor("workload.rate").unwrap().number != Some(95.0) {
            return;
        }
        let answered = |count: u64| count * (58 + 2 * u64::from(record.run.repetition)) / 100;
        for one in &mut record.generators[0].operations {
            one.counts.completed = answered(one.counts.completed);
        }
    };
    Synthetic { others: 0.0025, change, ..Synthetic::idle() }.store(&kept);
    let report = kendall_report::analyze(&kept).unwrap();
    let answer = &report.answer.as_ref().unwrap().answer;
    assert!(answer.contains("what arrives beyond that queues up"), "{answer}");
    let growth = answer.split("At 95.00/s offered there is no steady state: ").nth(1).unwrap();
    assert!(growth.contains("and the queue grows by 38."), "{answer}");
    let configurations = rows(&report, "configurations");
    assert_eq!(configurations[2]["arrivals_per_s"], 95.0, "{configurations:?}");
    let growth = configurations[2]["queue_growth_per_s"]["center"].as_f64().unwrap();
    // 40 %, less what is rounded down in a second of 95 requests.
    assert!((37.0..40.0).contains(&growth), "{configurations:?}");
    assert!(configurations[1]["queue_growth_per_s"].is_null(), "{configurations:?}");
}

/// Memcached counts no bytes that a report could take: what a link carried is known by its relay.
#[test]
fn a_link_with_a_bandwidth_is_a_resource_by_its_relay() {
    fn carried(record: &mut RunRecord) {
        let link = record.graph.edges[1].link.as_mut().unwrap();
        link.bandwidth_bytes_per_s = Some(2.5e6);
        let mut period = record.tiers[0].periods[0].clone();
        let length = (period.to_ns - period.from_ns) / 1_000_000_000;
        (period.bytes_in, period.bytes_out) = (7_200_000 * length, 1_000 * length);
        period.requests.clear();
        record.tiers.push(kendall_store::Tier {
            tier: link.name.clone(),
            role: kendall_protocols::topology::Role::Link,
            periods: vec![period],
            ..kendall_store::Tier::default()
        });
    }
    let fuller_back: fn(&mut RunRecord) = |record| {
        carried(record);
        record.graph.edges[1].link.as_mut().unwrap().bandwidth_back_bytes_per_s = Some(100.0);
    };
    // 7.2 of 2.5 MB/s are 2.88 routes, of one to each server; 1,000 of 100 bytes/s ten.
    let change: fn(&mut RunRecord) = carried;
    for (change, name, busy) in [(change, "", 2.88), (fuller_back, ", answers", 10.0)] {
        let (kept, _guard) = folder(&format!("link{}", name.trim_start_matches(", ")));
        Synthetic { change, ..Synthetic::two_level() }.store(&kept);
        let report = kendall_report::analyze(&kept).unwrap();
        let resources = rows(&report, "resources");
        let name = format!("bandwidth of the link proxies -> servers{name}");
        let links: Vec<_> = resources.iter().filter(|row| row["resource"] == *name).collect();
        assert!(!links.is_empty(), "{resources:?}");
        for row in links {
            let servers = row["servers"].as_f64().unwrap();
            let utilization = row["utilization"].as_f64().unwrap();
            assert!((utilization * servers - busy).abs() < 1e-9, "{row}");
        }
    }
}

/// A queue that others published stands beside the one of the first tier.
#[test]
fn a_published_queue_is_compared_with_the_measured_one() {
    let (kept, _guard) = folder("published-queue");
    let lines = "published = { source = 'theirs', curves = [{ along = 'system.workers', at = { \
                 'workload.clients' = 198 }, values = { 8 = '170 waiting', 64 = '46 waiting' } }] }\n";
    Synthetic { lines, ..Synthetic::writes() }.store(&kept);
    let report = kendall_report::analyze(&kept).unwrap();
    let both = rows(&report, "published-waiting-1");
    assert_eq!(both[0]["published"], 170.0, "{both:?}");
    let here = |row: usize| both[row]["here"]["center"].as_f64().unwrap();
    assert!(here(0) > here(1) && here(1) > 0.0, "{both:?}");
}

/// The answer of a 2^k: effects with their share and interval; on a noisy machine, that it cannot
/// tell, and no configuration is crowned.
#[test]
fn a_design_of_effects_is_answered_by_effects_or_not_at_all() {
    let answer = TWO_LEVEL.report.answer.as_ref().unwrap();
    assert!(answer.told && answer.answer.contains("What matters for the throughput"), "{answer:?}");
    assert!(answer.answer.contains("of the variation"), "{answer:?}");
    assert!(answer.answer.contains("from 8 to 32"), "{answer:?}");
    assert_eq!(answer.trust.level, kendall_report::answer::TrustLevel::Good, "{answer:?}");
    // Three levels each, nothing repeated: the interaction takes the place of the error, and the words say so.
    let (kept, _guard) = folder("effects-once");
    let levels = |from: f64| vec![from, 2.0 * from, 4.0 * from];
    Synthetic {
        repetitions: 1,
        factors: vec![("system.servers", levels(1.0)), ("system.workers", levels(8.0))],
        ..Synthetic::two_level()
    }
    .store(&kept);
    let answer = kendall_report::analyze(&kept).unwrap().answer.unwrap().answer;
    assert!(!answer.contains("between repetitions"), "{answer}");
    assert!(answer.contains("since nothing was repeated"), "{answer}");
    // An open loop has the throughput that it offers, whatever the factors are.
    let (kept, _guard) = folder("effects-open");
    Synthetic { open: true, ..Synthetic::two_level() }.store(&kept);
    let answer = kendall_report::analyze(&kept).unwrap().answer.unwrap();
    assert_eq!(answer.question, "What matters for the response time, and how much?");
    assert!(answer.answer.starts_with("What matters for the mean response time"), "{answer:?}");
    let (kept, _guard) = folder("effects-noisy");
    Synthetic {
        spread: 1.6,
        factors: vec![("system.servers", vec![2.0, 3.0]), ("system.workers", vec![31.0, 32.0])],
        ..Synthetic::two_level()
    }
    .store(&kept);
    let noisy = kendall_report::analyze(&kept).unwrap();
    let answer = noisy.answer.unwrap();
    assert!(!answer.told && answer.answer.starts_with("Cannot tell what matters"), "{answer:?}");
    assert!(answer.answer.contains("error between repetitions"), "{answer:?}");
    assert_eq!(answer.trust.level, kendall_report::answer::TrustLevel::Doubt, "{answer:?}");
    let why = &answer.trust.why;
    assert!(why.contains("configuration differ") || why.contains("put it anywhere"), "{why}");
    assert!(noisy.summary[0].starts_with("Cannot tell what matters"), "{:?}", noisy.summary);
    assert!(noisy.summary[1].contains("not significantly different from"), "{:?}", noisy.summary);
}

/// Runs that scatter answer too, if there are enough: that nothing matters, by how much at most; and what does, where
/// most of the variation is error, which more runs leave as it is. Both were "Cannot tell" at any size.
#[test]
fn scattered_runs_answer_what_matters_or_that_nothing_does() {
    let answer = |name: &str, first: (&'static str, Vec<f64>), repetitions, spread| {
        let (kept, _guard) = folder(name);
        let factors = vec![first, ("system.color", vec![1.0, 2.0])];
        let lines = "design = { model = \"additive\" }\n";
        Synthetic { factors, repetitions, spread, lines, ..Synthetic::two_level() }.store(&kept);
        kendall_report::analyze(&kept).unwrap().answer.unwrap()
    };
    let nothing = answer("effects-none", ("system.shape", vec![1.0, 2.0]), 3, 0.04);
    assert!(nothing.told, "{nothing:?}");
    // Twice the largest effect and its half-width, (88 + 2.45·38.6)/12,084.
    let said = "Nothing that was varied matters for the throughput: no effect is significant, and none changes it by \
                more than 3 %,";
    assert!(nothing.answer.starts_with(said), "{nothing:?}");
    let scattered = answer("effects-scattered", ("system.workers", vec![8.0, 32.0]), 30, 1.6);
    assert!(scattered.told, "{scattered:?}");
    let said = &scattered.answer;
    assert!(said.starts_with("What matters for the throughput: workers ("), "{said}");
    // By the same generator: F of 48 where 0.05 among three takes 6, and an error of 57 %.
    assert!(said.contains("57 % of the variation of the throughput is random error"), "{said}");
}

/// Runs that differ by a fifth since the machine's speed does: where the probe saw it, the effects at one
/// speed stand beside those as measured, hold the truth (the same study on a machine that keeps its
/// speed) and are narrower; nothing that was measured changes. A probe that says nothing is not used.
#[test]
fn effects_at_one_speed_stand_beside_those_as_measured() {
    let study = |name: &str, spread: f64, probe| {
        let (kept, guard) = folder(name);
        let lines = "design = { model = \"additive\" }\n";
        Synthetic { spread, probe, lines, ..Synthetic::two_level() }.store(&kept);
        let report = kendall_report::analyze(&kept).unwrap();
        drop(guard);
        let effects = report.sections.iter().find(|section| section.id == "effects").unwrap();
        let table = effects.tables().find(|table| table.id == "effects-throughput").unwrap();
        let rows = serde_json::to_value(table).unwrap()["rows"].as_array().unwrap().clone();
        let words = serde_json::to_string(&effects).unwrap();
        (rows, words, report.answer.unwrap().answer)
    };
    let of = |rows: &[serde_json::Value], term: &str, column: &str| {
        rows.iter().find(|row| row["term"] == term).unwrap()[column].clone()
    };
    let interval = |estimate: &serde_json::Value| {
        let end = |key: &str| estimate["interval"][key].as_f64().unwrap();
        (end("low"), end("high"))
    };
    let (truth, ..) = study("speed-truth", 1e-6, None);
    let (plain, words, answer) = study("speed-off", 0.2, None);
    assert!(!words.contains("speed of the machine") && !answer.contains("one speed"), "{answer}");
    let (seen, words, answer) = study("speed-seen", 0.2, Some(true));
    assert!(words.contains("beside those as measured"), "{words}");
    assert!(answer.contains("At one speed of the machine"), "{answer}");
    for term in ["A", "B", "C", "AB", "AC", "BC", "ABC"] {
        for column in ["effect", "share", "f_ratio", "p_value", "significant"] {
            assert_eq!(of(&plain, term, column), of(&seen, term, column), "{term} {column}");
        }
        let one = of(&seen, term, "at_one_speed");
        // Where the speeds happened to differ between a term's levels there is none.
        if one["interval"].is_null() {
            continue;
        }
        let (low, high) = interval(&one);
        let (wide_low, wide_high) = interval(&of(&seen, term, "effect"));
        // Four times the half-width: seven intervals of 95 %, and an additive model of a speed that
        // multiplies.
        let center = of(&truth, term, "effect")["center"].as_f64().unwrap();
        assert!((center - f64::midpoint(low, high)).abs() < 2.0 * (high - low), "{term}: {one}");
        assert!(2.0 * (high - low) < wide_high - wide_low, "{term}: {one}");
    }
    let (blind, words, answer) = study("speed-blind", 0.2, Some(false));
    assert!(words.contains("is not used: it explains no more"), "{words}");
    assert!(!answer.contains("one speed"), "{answer}");
    assert_eq!(plain, blind);
}

/// A load curve: what it carries at most with its interval, and where it saturates. With an
/// objective: the highest load that still meets it; with one that cannot be met, that.
#[test]
fn load_curves_are_answered_by_capacity_or_by_the_objective() {
    let small = || Synthetic {
        factors: vec![
            ("system.workers", vec![8.0, 32.0]),
            ("workload.clients", vec![6.0, 30.0, 54.0, 102.0, 198.0]),
        ],
        ..Synthetic::writes()
    };
    let (kept, _guard) = folder("capacity");
    small().store(&kept);
    let report = kendall_report::analyze(&kept).unwrap();
    let answer = report.answer.unwrap();
    assert!(answer.told && answer.answer.starts_with("About "), "{answer:?}");
    assert!(answer.answer.contains("It saturates at "), "{answer:?}");
    assert!(answer.model.as_ref().unwrap().contains("mean error "), "{answer:?}");
    assert!(answer.plot.is_some() && !answer.next.is_empty());
    // Too few requests for a percentile say nothing of a throughput.
    let few = |record: &mut RunRecord| {
        let caveat = Caveat::TooFewSamples { quantile: 0.99, effective: 135.0, need: 495.0 };
        record.run.caveats.push(caveat);
    };
    let (kept, _guard) = folder("capacity-few");
    Synthetic { change: few, ..small() }.store(&kept);
    let of_few = kendall_report::analyze(&kept).unwrap().answer.unwrap();
    assert_eq!((of_few.trust.level, &of_few.trust.why), (answer.trust.level, &answer.trust.why));
    let (kept, _guard) = folder("objective");
    let lines = "question = \"What load is answered in time?\"\nobjective = \"p99 < 20ms\"\n";
    Synthetic { lines, change: few, ..small() }.store(&kept);
    let report = kendall_report::analyze(&kept).unwrap();
    let answer = report.answer.unwrap();
    assert!(answer.trust.why.contains("too few samples for p99"), "{answer:?}");
    assert_eq!(answer.question, "What load is answered in time?");
    assert!(answer.answer.starts_with("The highest load that meets p99 < 20ms"), "{answer:?}");
    // By the stored numbers: the row that it names has its 99th percentile below, the next above.
    let (kept, _guard) = folder("objective-missed");
    Synthetic { lines: "objective = \"mean < 1us\"\n", ..small() }.store(&kept);
    let answer = kendall_report::analyze(&kept).unwrap().answer.unwrap();
    assert!(answer.answer.starts_with("No measured configuration meets mean < 1us"), "{answer:?}");
}

/// Where the question asks for a number of workers, the answer is one: the least that more do not better,
/// or at least the most that were tried. It was a throughput. A question of something else, or none,
/// is about the load.
#[test]
fn a_question_for_a_number_of_workers_is_answered_by_one() {
    let of = |name: &str, lines: &'static str, levels: &[f64]| {
        let factors =
            vec![("system.workers", levels.to_vec()), ("workload.clients", vec![6.0, 54.0, 198.0])];
        let (kept, _guard) = folder(name);
        Synthetic { factors, lines, ..Synthetic::writes() }.store(&kept);
        kendall_report::analyze(&kept).unwrap().answer.unwrap()
    };
    let lines = "question = \"How many workers does it need?\"\n";
    let few = of("too-few-workers", lines, &[2.0, 8.0]);
    assert!(
        few.answer.starts_with("At least 8 workers: from 2 to 8 throughput gained "),
        "{few:?}"
    );
    assert!(few.told && few.next.contains("\"system.workers\" beyond 8"), "{few:?}");
    let many = of("enough-workers", lines, &[2.0, 32.0, 64.0]);
    assert!(many.answer.starts_with("32 workers, which carry "), "{many:?}");
    assert!(many.next.contains("\"system.workers\" between 2 and 32"), "{many:?}");
    // Of what meets an objective, where two levels do.
    let lines = "question = \"How many workers does it need?\"\nobjective = \"mean < 10s\"\n";
    let meets = of("workers-that-meet", lines, &[2.0, 32.0, 64.0]);
    assert!(meets.answer.starts_with("Where mean < 10s: 32 workers, which carry "), "{meets:?}");
    let lines = "question = \"How many workers does it need?\"\nobjective = \"mean < 1us\"\n";
    let none = of("workers-that-miss", lines, &[2.0, 8.0]);
    assert!(none.answer.starts_with("No measured configuration meets mean < 1us"), "{none:?}");
    let other = of("other-question", "question = \"What does it carry?\"\n", &[2.0, 8.0]);
    assert!(other.answer.contains("/s"), "{other:?}");
    let plain = of("no-question", "", &[2.0, 8.0]);
    assert_eq!(plain.question, "How much load does it carry, and what limits it?");
    assert!(!plain.answer.starts_with("At least 8 workers"), "{plain:?}");
}

/// The card's error of the model is that of its chapter, with the worst point.
#[test]
fn the_card_and_the_chapter_say_the_same_error_of_a_model() {
    let report = &WRITES.report;
    let said = report.answer.as_ref().unwrap().model.as_ref().unwrap();
    let chapter = report.sections.iter().find(|section| section.id == "models").unwrap();
    let ranking = serde_json::to_string(&chapter.blocks).unwrap();
    let (_, errors) = said.split_once("mean error ").unwrap();
    let errors = errors.split_once(" at any point").unwrap().0;
    assert!(errors.contains("at most "), "{said}");
    assert!(ranking.contains(&format!("mean error {errors} at any point")), "{said}\n{ranking}");
}

/// What every model predicted before models became files that any solver takes (`golden/`, written
/// by the solutions that were built by hand for each): the same, to the digits that both can have.
/// And each file, read and solved again, says what the report says at its load.
#[test]
fn models_predict_what_they_predicted_before_they_were_files() {
    for (name, made) in [("queue", &*QUEUE), ("writes", &*WRITES)] {
        let written = &made.written;
        let now = rows(&made.report, "model-points");
        assert!(written.models.len() >= 3, "{:?}", written.models);
        let networks = written.models.iter().filter(|path| says_the_same(path, &now)).count();
        assert!(networks > 0);
        let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let kept = kept.join(format!("tests/golden/{name}.csv"));
        let mut rows = csv::Reader::from_path(&kept).unwrap();
        let mut compared = 0;
        for row in rows.records() {
            let row = row.unwrap();
            let [curve, model, variable, load, predicted] = [0, 1, 2, 3, 4].map(|at| &row[at]);
            let same = |key: &str, wanted: &str, row: &serde_json::Value| row[key] == wanted;
            let found = now.iter().find(|one| {
                same("curve", curve, one)
                    && same("model", model, one)
                    && same("variable", variable, one)
                    && one["load"].as_f64() == load.parse().ok()
            });
            let found = found.unwrap_or_else(|| panic!("{name}: {curve}, {model} at {load}"));
            match predicted.parse::<f64>() {
                // Since then M/M/1 has no answer where its own rate of service is as uncertain as ρ.
                Ok(_) if found["predicted"].is_null() => {
                    let why = found["remark"].as_str().unwrap();
                    assert!(model.ends_with("M/M/1") && why.contains("known to within"), "{found}");
                }
                Ok(before) => {
                    let after = found["predicted"].as_f64().unwrap();
                    assert!(
                        (after / before - 1.0).abs() < 1e-9,
                        "{model} at {load}: {after}, {before}"
                    );
                    compared += 1;
                }
                Err(_) => assert!(found["predicted"].is_null(), "{found}"),
            }
        }
        assert!(compared > 30, "{name}: {compared}");
    }
}

/// Whether a file holds a network; asserts that it says what the report does.
fn says_the_same(path: &std::path::Path, points: &[serde_json::Value]) -> bool {
    use kendall_queueing::model::Model;
    use kendall_queueing::solver::{Solver, solve};

    let text = std::fs::read_to_string(path).unwrap();
    let model: Model = toml::from_str(&text).unwrap();
    assert!(text.contains("# Assumes: ") && text.contains("at load"), "{text}");
    let solved = solve(&model, Solver::Auto);
    let said = solved.unwrap_or_else(|why| panic!("{why}\n{text}")).classes[0].throughput;
    if !model.name.starts_with("network") {
        return false;
    }
    let same = points.iter().any(|row| {
        row["model"] == model.name.as_str()
            && (row["predicted"].as_f64().unwrap_or(0.0) / said - 1.0).abs() < 1e-9
    });
    assert!(same, "{} says {said}\n{text}", model.name);
    true
}

#[test]
fn a_report_has_drawings_distributions_and_every_curve_at_the_tier() {
    let report = &WRITES.report;
    let html = WRITES.html();
    for plot in
        ["plot-tier-queue", "plot-tier-waiting", "plot-tier-service", "plot-x-r", "plot-host"]
    {
        assert!(html.contains(&format!("id=\"{plot}\"")), "{plot}");
    }
    assert!(html.contains("id=\"plot-cdf-r-") && html.contains("id=\"plot-states-"));
    let models = report.sections.iter().find(|section| section.id == "models").unwrap();
    let drawings =
        models.blocks.iter().filter(|b| matches!(b, kendall_report::document::Block::Drawing(_)));
    assert!(drawings.count() > 1);
    // X of a device is its utilization over its service time, for all of its servers.
    let devices = models.tables().find(|table| table.id == "model-devices").unwrap();
    let rows = serde_json::to_value(devices).unwrap();
    for row in rows["rows"].as_array().unwrap() {
        let of = |key: &str| row[key].as_f64();
        if let (Some(x), Some(u), Some(m)) =
            (of("throughput_per_s"), of("utilization"), of("servers"))
        {
            assert!((x * of("service_time_s").unwrap() - u * m).abs() < 1e-9, "{row}");
        }
    }
}

#[test]
fn what_stands_in_backquotes_is_code_and_nothing_else_is() {
    let (folder, _guard) = folder("code");
    let title = "`a < b` and <i>".to_owned();
    Synthetic { title, repetitions: 1, ..Synthetic::writes() }.store(&folder);
    let (mut report, _) = kendall_report::write(&folder).unwrap();
    let answer = report.answer.as_mut().unwrap();
    answer.next = "Run `kendall run a<b.toml` and <b>see</b> `what".to_owned();
    let html = kendall_report::html::render(&report, "report").unwrap();
    assert!(
        html.contains("Run <code>kendall run a&lt;b.toml</code> and &lt;b&gt;see&lt;/b&gt; `what")
    );
}

#[test]
fn histograms_say_their_load_and_every_configuration_has_one() {
    let report = &WRITES.report;
    let html = WRITES.html();
    assert!(html.contains("workers 8, clients 150, at the clients"));
    let section = report.sections.iter().find(|section| section.id == "histograms").unwrap();
    let table = section.tables().find(|table| table.id == "histograms").unwrap();
    let json = serde_json::to_value(table).unwrap();
    let named: std::collections::BTreeSet<&str> = json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["configuration"].as_str())
        .collect();
    assert_eq!(named.len(), 36);
}

/// A run that is the only one of its configuration has intervals from its own seconds, in a table of their own: what
/// compares configurations does without them.
#[test]
fn runs_made_once_have_intervals_of_their_own() {
    let (folder, _guard) = folder("alone");
    Synthetic { repetitions: 1, ..Synthetic::writes() }.store(&folder);
    let (report, written) = kendall_report::write(&folder).unwrap();
    let rows = |id: &str| {
        let mut tables = report.sections.iter().flat_map(|section| section.tables());
        let table = tables.find(|table| table.id == id)?;
        Some(serde_json::to_value(table).unwrap()["rows"].as_array().unwrap().clone())
    };
    let alone = rows("within_run").unwrap();
    assert_eq!(alone.len(), 36);
    // Six seconds carry none, and say what would; nothing is made up.
    assert!(alone.iter().all(|row| row["throughput_per_s"].is_null()), "{:?}", alone[0]);
    let html = std::fs::read_to_string(&written.html).unwrap();
    assert!(html.contains("windows for an interval: 6,"), "why there is none");
    for row in rows("configurations").unwrap() {
        assert!(row["throughput_per_s"]["interval"].is_null(), "{row}");
    }

    let mut tables = WRITES.report.sections.iter().flat_map(|section| section.tables());
    assert!(tables.all(|table| table.id != "within_run"));
}

/// A time at the tier stood as two numbers in one report: a mean over all requests in one table, and a
/// mean over the runs, whatever their requests, in another table and in the plots.
#[test]
fn a_time_is_one_number_wherever_it_stands() {
    let (kept, _guard) = folder("one-number");
    Synthetic {
        factors: vec![("workload.clients", vec![30.0, 102.0, 198.0])],
        spread: 0.6,
        ..Synthetic::writes()
    }
    .store(&kept);
    let (report, _) = kendall_report::write(&kept).unwrap();
    let highest = rows(&report, "maximum").remove(0);
    let tiers = rows(&report, "tiers");
    let load = highest["load"].as_f64().unwrap();
    let there = tiers.iter().find(|row| row["workload.clients"] == format!("{load}")).unwrap();
    for key in ["tier_response_time_s", "waiting_time_s", "backend_time_s"] {
        let (one, other) = (highest[key]["center"].as_f64().unwrap(), there[key].as_f64().unwrap());
        // Both are sums of the same products: they differ by roundings.
        assert!((one / other - 1.0).abs() < 1e-12, "{key}: {one}, {other}");
    }
    let clients = highest["client_response_time_s"]["center"].as_f64().unwrap();
    let json = serde_json::to_value(&report).unwrap();
    let sections = json["sections"].as_array().unwrap().iter();
    let mut blocks = sections.flat_map(|section| section["blocks"].as_array().unwrap());
    let views = blocks.find(|block| block["content"]["id"] == "plot-views").unwrap();
    let points = views["content"]["series"][0]["points"].as_array().unwrap();
    let drawn = points.iter().find(|point| point["x"] == load).unwrap()["y"].as_f64().unwrap();
    let milliseconds = 1e3 * clients;
    assert!((drawn / milliseconds - 1.0).abs() < 1e-12, "{drawn}, {milliseconds}");
}

/// A percentile that the tables refuse for want of requests stood in the caption of its histogram.
#[test]
fn a_histogram_states_no_percentile_that_the_tables_refuse() {
    let (kept, _guard) = folder("caption");
    Synthetic { others: 0.0, ..Synthetic::idle() }.store(&kept);
    let (_, written) = kendall_report::write(&kept).unwrap();
    let html = std::fs::read_to_string(written.html).unwrap();
    // 20/s in three windows of 6 s are 360 requests, of which the 99th percentile needs 500.
    assert!(html.contains("no 99th percentile (too few samples for p99: 360"), "360 requests");
    assert!(html.contains(", 99th percentile "), "95/s have enough");
}

/// A run too short for an interval says so once, and calls no number one that has an interval.
#[test]
fn one_run_without_an_interval_speaks_of_none() {
    let (kept, _guard) = folder("once-short");
    Synthetic {
        factors: vec![("workload.clients", vec![150.0])],
        repetitions: 1,
        seconds: 6,
        ..Synthetic::writes()
    }
    .store(&kept);
    let answer = kendall_report::analyze(&kept).unwrap().answer.unwrap().answer;
    assert!(answer.contains(" The run carries no interval: "), "{answer}");
    assert!(!answer.contains("(no interval)") && !answer.contains("Intervals are"), "{answer}");
}

/// Seconds that differ by up to 60 requests and by nothing in the mean, and 300 requests of the measured window that
/// lie in no whole second.
fn uneven(record: &mut RunRecord) {
    const APART: [i64; 4] = [60, -60, 20, -20];
    let rows = record.generators[0].operations.iter_mut();
    for (number, row) in rows.enumerate() {
        let mean_s = row.counts.response_time.mean().unwrap() / 1e9;
        let more = if row.extent == Extent::Measured { 300 } else { APART[number % 4] };
        row.counts.completed = row.counts.completed.checked_add_signed(more).unwrap();
        row.counts.response_time = synthetic::times(mean_s, row.counts.completed);
    }
}

/// A single run: the number that stands everywhere, with an interval of its own seconds and the doubts of the run.
#[test]
fn the_only_run_tells_one_throughput_and_its_seconds_the_interval() {
    let once = || Synthetic {
        factors: vec![("workload.clients", vec![150.0])],
        repetitions: 1,
        seconds: 22,
        change: uneven,
        ..Synthetic::writes()
    };
    let (kept, _guard) = folder("once");
    once().store(&kept);
    let (report, _) = kendall_report::write(&kept).unwrap();
    let (alone, all) = (rows(&report, "within_run").remove(0), rows(&report, "configurations"));
    for key in ["throughput_per_s", "response_time_mean_s", "response_time_p99_s"] {
        assert_eq!(alone[key]["center"], all[0][key]["center"], "{key}");
        let end = |end: &str| alone[key]["interval"][end].as_f64().unwrap();
        let center = alone[key]["center"].as_f64().unwrap();
        assert!(end("low") <= center && center <= end("high"), "{key}: {alone}");
        assert!(alone[key]["caveats"].to_string().contains("shared-machine"), "{key}: {alone}");
    }
    // Ten batches at least, none of them further from the mean than 60: 2.26 · 60 · √(10/9)/√10.
    let low = alone["throughput_per_s"]["interval"]["low"].as_f64().unwrap();
    let half = alone["throughput_per_s"]["center"].as_f64().unwrap() - low;
    assert!(half > 0.0 && half < 46.0, "{alone}");
    let answer = report.answer.unwrap().answer;
    assert!(answer.starts_with("In its one run it answers "), "{answer}");
    assert!(!answer.contains("no interval"), "{answer}");

    // The seconds of a job are its beginning, its middle and its end.
    let (kept, _guard) = folder("once-job");
    let job = |record: &mut RunRecord| {
        uneven(record);
        record.generators[0].r#loop = kendall_protocols::load_result::JOB_LOOP.to_owned();
    };
    Synthetic { change: job, ..once() }.store(&kept);
    let (report, _) = kendall_report::write(&kept).unwrap();
    assert_eq!(rows(&report, "within_run"), Vec::<serde_json::Value>::new());
    let answer = report.answer.unwrap().answer;
    assert!(answer.starts_with("The job takes "), "{answer}");
}

/// A service that nothing limits at the loads that were run. Its runs scatter, so that the interval of the highest
/// throughput is no answer by itself; its low end is a bound all the same. It stood as "Cannot tell" beside "until
/// throughput stops growing".
#[test]
fn growth_is_an_answer_however_wide_its_interval() {
    for (name, spread) in [("grows", 0.02), ("grows-widely", 1.6)] {
        let (kept, _guard) = folder(name);
        let factors = vec![("workload.clients", vec![1.0, 6.0, 30.0])];
        Synthetic { factors, spread, ..Synthetic::writes() }.store(&kept);
        let answer = kendall_report::analyze(&kept).unwrap().answer.unwrap();
        let said = &answer.answer;
        assert!(answer.told && said.starts_with("At least "), "{name}: {said}");
        assert!(said.contains("throughput still grows at 30 clients"), "{name}: {said}");
        let limits = answer.limits.unwrap();
        assert!(limits.starts_with("Nothing up to 30 clients"), "{name}: {limits}");
        assert!(answer.next.contains("beyond 30"), "{name}: {}", answer.next);
    }
}

/// Beside an answer that named what the curve shows, the summary could not tell.
#[test]
fn the_summary_says_no_less_than_the_answer() {
    let (kept, _guard) = folder("grows-beside-others");
    let factors = vec![("workload.clients", vec![1.0, 6.0, 30.0])];
    Synthetic { factors, others: 1.97, ..Synthetic::writes() }.store(&kept);
    let report = kendall_report::analyze(&kept).unwrap();
    let limits = report.answer.unwrap().limits.unwrap();
    assert!(limits.starts_with("Nothing up to 30 clients"), "{limits}");
    let said = report.summary.join(" ");
    assert!(said.contains("but the curve does: see the answer"), "{said}");
}

/// It ended in some runs, on a machine that others filled: the next run was to be on another machine.
#[test]
fn a_service_that_dies_is_looked_into_before_anything_else() {
    let dies = |record: &mut RunRecord| {
        if record.run.repetition == 2 {
            record.run.status = Status::Failed;
            record.run.reasons = vec!["shop 0 ended with exit status: 7".to_owned()];
        }
    };
    let (kept, _guard) = folder("dies");
    Synthetic { change: dies, ..Synthetic::idle() }.store(&kept);
    let next = kendall_report::analyze(&kept).unwrap().answer.unwrap().next;
    assert!(next.starts_with("Why 3 of 9 runs failed (shop 0 ended with exit st"), "{next}");
}

/// Half as fast in every other run: others beside it were said to spoil it, and a quieter machine to be the next run.
#[test]
fn a_service_of_two_modes_needs_no_quieter_machine() {
    let slow = |record: &mut RunRecord| {
        if (record.run.configuration + record.run.repetition).is_multiple_of(2) {
            for row in &mut record.generators[0].operations {
                row.counts.completed /= 2;
                row.counts.response_time = synthetic::times(0.01, row.counts.completed);
            }
        }
    };
    let (kept, _guard) = folder("modes");
    let factors = vec![("workload.clients", vec![90.0, 120.0, 150.0])];
    Synthetic { change: slow, factors, repetitions: 4, others: 1.2, ..Synthetic::writes() }
        .store(&kept);
    let answer = kendall_report::analyze(&kept).unwrap().answer.unwrap();
    assert!(answer.answer.contains("It works in two modes: of the runs"), "{answer:?}");
    assert!(answer.next.starts_with("What a slow run and a fast one do differently"), "{answer:?}");
}

#[test]
fn a_cost_that_moved_between_runs_of_one_load_is_said() {
    let dearer = |record: &mut RunRecord| {
        for sample in record.processes.iter_mut().flat_map(|one| &mut one.samples) {
            sample.cpu_user_ns *= 1 + u64::from(record.run.repetition == 1) * 3;
        }
    };
    let (kept, _guard) = folder("moved");
    let factors = vec![("workload.clients", vec![90.0, 120.0, 150.0])];
    Synthetic { change: dearer, factors, ..Synthetic::writes() }.store(&kept);
    let answer = kendall_report::analyze(&kept).unwrap().answer.unwrap().answer;
    assert!(answer.contains("What a request takes of the processor moved from 10"), "{answer}");
}

/// Everything ran on `web`. The study was started at `localhost`, which is busy with other things, and whose
/// hypervisor gives some of it to others.
fn elsewhere(record: &mut RunRecord) {
    record.generators.iter_mut().for_each(|one| one.host = "web".to_owned());
    record.tiers.iter_mut().for_each(|one| one.host = "web".to_owned());
    record.processes.iter_mut().for_each(|one| one.host = "web".to_owned());
    let desk = |sample: &HostSample| HostSample {
        host: "localhost".to_owned(),
        cpu_user_ns: sample.at_ns / 2 * 3,
        cpu_idle_ns: sample.at_ns / 4,
        cpu_steal_ns: sample.at_ns / 4,
        ..sample.clone()
    };
    let desk: Vec<HostSample> = record.hosts.iter().map(desk).collect();
    record.hosts.iter_mut().for_each(|sample| sample.host = "web".to_owned());
    let idle = |sample: &HostSample| ProcessSample {
        at_ns: sample.at_ns,
        cpu_user_ns: sample.at_ns / 1_000,
        ..ProcessSample::default()
    };
    record.processes.push(Process {
        part: Part::study(),
        host: "localhost".to_owned(),
        samples: desk.iter().map(idle).collect(),
        ..Process::default()
    });
    record.hosts.extend(desk);
}

/// What else runs on the machine that a study was started on says nothing of a system on another.
#[test]
fn the_machine_that_a_study_was_started_on_is_no_host_of_the_system() {
    let (kept, _guard) = folder("elsewhere");
    Synthetic { change: elsewhere, ..Synthetic::writes() }.store(&kept);
    let results = Results::open(&kept).unwrap();
    let run = results.latest_runs().unwrap().remove(0);
    let measured = results.measured(run.id).unwrap();
    let point = kendall_observations::operating_point(&measured);
    assert_eq!((point.host_cores, point.hosts.len()), (2.0, 0), "one host: {:?}", point.hosts);
    assert_eq!(point.process(&Part::study()), None);
    assert_eq!(kendall_fit::bottleneck::disturbing_share(&point), None);
    let facts = kendall_observations::run_facts(&measured);
    assert_eq!(facts.hosts, [("web".to_owned(), 2)]);
    assert_eq!(facts.uses[&Part::generator()].host_cores, 2);
    assert!(facts.foreign_cores < 0.01 && facts.stolen_cores == 0.0, "{}", facts.foreign_cores);
    assert_eq!(facts.disturbed(0.05), None);
    let answer = kendall_report::analyze(&kept).unwrap().answer.unwrap();
    assert!(!answer.trust.why.contains("other programs"), "{:?}", answer.trust);
}

/// What a run finds out about another host.
fn clocks_of_a_host(record: &mut RunRecord) {
    let run = f64::from(record.run.position);
    record.run.environment["hosts"] = serde_json::json!({ "web.example.org": {
        "kernel": "6.1",
        "clock": { "bound_ns": run, "drift_ppm": run / 7.0 },
        "longest_silence_s": 0.25 + run / 100.0,
    } });
    record.run.environment["ways"] = serde_json::json!([{ "least_s": run }]);
}

/// Clocks and silences are measured anew in each run; a kernel is not. A host may have dots in its name.
#[test]
fn what_is_measured_of_a_host_is_no_change_of_the_environment() {
    let notes = |name: &str, change: fn(&mut RunRecord)| {
        let (kept, _guard) = folder(name);
        let factors = vec![("workload.clients", vec![6.0, 30.0, 54.0])];
        Synthetic { factors, repetitions: 1, change, ..Synthetic::writes() }.store(&kept);
        let report = kendall_report::analyze(&kept).unwrap();
        let threats = report.sections.iter().find(|section| section.id == "threats").unwrap();
        serde_json::to_string(threats).unwrap()
    };
    let same = notes("environment-same", clocks_of_a_host);
    assert!(!same.contains("The environment changed"), "{same}");
    let other = notes("environment-other", |record| {
        clocks_of_a_host(record);
        let kernel = if record.run.position == 0 { "6.1" } else { "6.2" };
        record.run.environment["hosts"]["web.example.org"]["kernel"] = kernel.into();
    });
    assert!(other.contains("hosts.web.example.org.kernel (6.1, then 6.2)"), "{other}");
    assert!(!other.contains("silence") && !other.contains("drift"), "{other}");
}

/// Where the levels of the factor that is told differ in the probe itself there is no effect of it at one speed, and
/// nothing is said of one that is not told.
#[test]
fn at_one_speed_nothing_is_said_of_a_factor_that_is_not_told() {
    let (kept, _guard) = folder("speed-moved");
    Synthetic {
        factors: vec![("system.workers", vec![8.0, 32.0]), ("system.color", vec![1.0, 2.0])],
        repetitions: 4,
        spread: 0.1,
        probe: Some(true),
        lines: "design = { model = \"additive\" }\n",
        change: |record| {
            let few = record.run.factor("system.workers").unwrap().number == Some(8.0);
            let unit = record.run.speed_unit_ns.unwrap();
            record.run.speed_unit_ns = Some(if few { 1.2 * unit } else { unit });
        },
        ..Synthetic::two_level()
    }
    .store(&kept);
    let report = kendall_report::analyze(&kept).unwrap();
    let effects = report.sections.iter().find(|section| section.id == "effects").unwrap();
    let words = serde_json::to_string(effects).unwrap();
    assert!(words.contains("There is none for A"), "{words}");
    let answer = report.answer.unwrap().answer;
    assert!(answer.contains("workers (") && !answer.contains("color ("), "{answer}");
    assert!(!answer.contains("At one speed"), "{answer}");
}

/// Of each mix the fastest curve, as far as there is room, and what is left out is said.
#[test]
fn plots_of_models_have_one_limit_whatever_the_number_of_mixes() {
    let (kept, _guard) = folder("mixes");
    let clients = (0..4_u32).map(|i| f64::from(6 + 48 * i)).collect();
    Synthetic {
        factors: vec![("workload.mix", vec![1.0, 2.0, 3.0, 4.0]), ("workload.clients", clients)],
        ..Synthetic::writes()
    }
    .store(&kept);
    let report = kendall_report::analyze(&kept).unwrap();
    let models = report.sections.iter().find(|section| section.id == "models").unwrap();
    let words = serde_json::to_string(models).unwrap();
    assert!(words.contains("Plots show 3 of 4 curves"), "{words}");
}

/// More workers carry more, and each carries its share until they are all busy: published figures that agree, one
/// that does not, and one of a level that was not measured.
#[test]
fn published_figures_stand_beside_the_runs_with_a_verdict() {
    let verdicts = |made: &Synthetic, name: &str| {
        let (folder, _guard) = folder(name);
        made.store(&folder);
        let (report, _) = kendall_report::write(&folder).unwrap();
        let section = report.sections.into_iter().find(|section| section.id == "published");
        serde_json::to_value(section.unwrap()).unwrap()
    };
    let lines = "published = { source = 'the authors', effects = [ \
        { of = ['system.workers'], effect = '1966/s', share = 55.39 }, \
        { of = ['system.workers'], effect = '-1966/s' }, \
        { of = ['system.workers'], effect = '-10ms' }, \
        { of = ['system.cores'], effect = '1/s' }] }\n";
    let effects = verdicts(&Synthetic { lines, ..Synthetic::two_level() }, "published-effects");
    let text = effects.to_string();
    assert!(text.contains("Of 4 published figures that can be compared, 2 lead"), "{text}");
    assert!(text.contains("1 differ, and of 1"), "{text}");
    let lines = "published = { source = 'the authors', knees = [{ at = { 'system.workers' = 8 }, load = 2 }], \
        curves = [{ along = 'system.workers', at = { 'workload.clients' = 198 }, \
        values = { 8 = '100/s', 64 = '200/s', 128 = '300/s' } }] }\n";
    let curves = verdicts(&Synthetic { lines, ..Synthetic::writes() }, "published-curves");
    let text = curves.to_string();
    assert!(text.contains("Of 2 published figures"), "{text}");
    assert!(text.contains("1 lead to the same conclusion here, 1 differ"), "{text}");
    assert!(text.contains(r#""level":"128","published":300.0,"ratio":null"#), "{text}");
}
