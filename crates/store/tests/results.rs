//! What goes in comes out; a full disk, a newer file and a killed writer lose nothing.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::Path;

use kendall_protocols::load_result::{Dispersion, Drawn, GapCheck, Stalls};
use kendall_protocols::snapshot::{CountedTime, counted};
use kendall_protocols::topology::{
    Edge, EdgeLink, End, Graph, Part, Pool, PoolKind, Role, TierId, TierNode,
};
use kendall_protocols::waiting::Waiting;
use kendall_stats::adaptive::Shape;
use kendall_stats::estimate::{Caveat, Estimate, Interval};
use kendall_stats::histogram::Histogram;
use kendall_store::{
    DATABASE_FILE, Extent, FIRST_VERIFICATION, FactorLevel, FittedShape, Generator,
    GeneratorThread, HostSample, Level, MeasuredWindow, ONE_CLIENT, OperationCounts,
    OperationPeriod, Process, ProcessSample, ProcessUse, Purpose, Results, Run, RunId, RunRecord,
    SCHEMA_VERSION, SearchFound, SearchLine, SpeedSample, Status, StoreError, StoredPrediction,
    Study, SummaryRow, ThreadSample, Tier, TierBackend, TierPeriod, TierRequests,
};

const SECOND: u64 = 1_000_000_000;

fn study() -> Study {
    Study {
        name: "writes".to_owned(),
        title: "Throughput for writes".to_owned(),
        file_name: "writes.toml".to_owned(),
        file: "name = \"writes\"\n".to_owned(),
        fingerprint: "abc".to_owned(),
        seed: 7,
        design: "full".to_owned(),
        confidence: 0.95,
        planned_runs: Some(12),
        created_unix_ns: 1_700_000_000 * SECOND,
    }
}

fn times(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    for value in values {
        histogram.record(*value);
    }
    histogram
}

fn operation(extent: Extent, from_ns: u64, to_ns: u64, completed: u64) -> OperationPeriod {
    OperationPeriod {
        extent,
        from_ns,
        to_ns,
        operation: "get".to_owned(),
        counts: OperationCounts {
            sent: completed + 1,
            completed,
            hits: completed,
            misses: 0,
            errors: BTreeMap::from([("timeout".to_owned(), 1)]),
            bytes_out: 40,
            bytes_in: 4_000,
            response_time: times(&vec![1_000_000; usize::try_from(completed).unwrap()]),
        },
    }
}

fn generator(number: u32) -> Generator {
    Generator {
        generator: number,
        host: "localhost".to_owned(),
        command: "kendall load memcached".to_owned(),
        protocol: "memcached".to_owned(),
        targets: vec!["127.0.0.1:1".to_owned()],
        r#loop: "closed".to_owned(),
        clients: 4,
        started_ns: 10 * SECOND,
        ended_ns: 14 * SECOND,
        think_time_mean_ns: SECOND / 2,
        arrival_rate_per_s: None,
        calls: Some("stream".to_owned()),
        seed: 11,
        lateness: times(&[100]),
        gaps: Histogram::new(),
        connection_wait: times(&[300]),
        gap_check: Some(GapCheck {
            requests: 40,
            planned_rate_per_s: 10.0,
            sent_rate_per_s: 9.5,
            planned_variation: 1.0,
            sent_variation: 1.1,
            distance_to_plan: 0.01,
            distance_to_exponential: Some(0.02),
            dispersion: vec![Dispersion { window_ns: SECOND, planned: 1.0, sent: 1.2 }],
        }),
        unsent: 3,
        reconnects: 2,
        statuses: BTreeMap::from([(200, 39), (503, 1)]),
        stalls: Some(Stalls::default()),
        drawn: BTreeMap::from([("exponent".to_owned(), Drawn { count: 40, mean: 20.5 })]),
        threads: vec![GeneratorThread {
            cpu_user_ns: 1,
            wall_ns: 9,
            spun_ns: 4,
            ..GeneratorThread::default()
        }],
        operations: vec![
            operation(Extent::Drained, 14 * SECOND, 14 * SECOND, 1),
            operation(Extent::Measured, 11 * SECOND, 13 * SECOND, 20),
            operation(Extent::Second, 11 * SECOND, 12 * SECOND, 10),
            operation(Extent::Second, 12 * SECOND, 13 * SECOND, 10),
            operation(Extent::Whole, 10 * SECOND, 14 * SECOND, 40),
        ],
    }
}

fn tier() -> Tier {
    let stages = BTreeMap::from([("waiting_time".to_owned(), times(&[5_000, 6_000]))]);
    Tier {
        tier: "proxies".to_owned(),
        role: Role::Tier,
        instance: 0,
        kind: "memcached-proxy".to_owned(),
        host: "localhost".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        pid: 42,
        command: "kendall serve proxy".to_owned(),
        periods: vec![TierPeriod {
            extent: Extent::Measured,
            from_ns: 11 * SECOND + 1_000_000,
            to_ns: 13 * SECOND + 3_000_000,
            workers: 8,
            queue_length: Level { mean: 1.5, maximum: 4 },
            workers_busy: Level { mean: 7.5, maximum: 8 },
            held_time: times(&[7_000, 8_000]),
            connections: Level { mean: 8.0, maximum: 8 },
            bytes_in: 1,
            bytes_out: 2,
            cpu_user_ns: 3,
            cpu_system_ns: 4,
            spun_ns: Some(2),
            outcomes: BTreeMap::from([("hits".to_owned(), 40)]),
            limits_hit: BTreeMap::new(),
            requests: BTreeMap::from([(
                "get".to_owned(),
                TierRequests { arrivals: 2, completions: 2, stages },
            )]),
            backends: vec![TierBackend {
                address: "127.0.0.1:2".to_owned(),
                requests: 2,
                keys: 2,
                errors: 0,
                backend_time: times(&[900]),
            }],
            counted: vec![CountedTime {
                kind: counted::STATEMENT.to_owned(),
                name: "SELECT 1".to_owned(),
                count: 3,
                items: 2,
                time_ns: 5_000,
            }],
        }],
    }
}

fn record(configuration: u32, repetition: u32, attempt: u32) -> RunRecord {
    let sample = |second: u64| ProcessSample {
        at_ns: second * SECOND,
        cpu_user_ns: second * SECOND / 2,
        resident_bytes: second,
        waiting: second.is_multiple_of(2).then(|| Waiting { disk: 0.5, ..Waiting::default() }),
        ..ProcessSample::default()
    };
    let network = |second: u64| ThreadSample {
        name: "network".to_owned(),
        at_ns: second * SECOND,
        threads: 1,
        cpu_ns: second * SECOND / 4,
        run_queue_wait_ns: 0,
    };
    let host = |second: u64| HostSample {
        host: "localhost".to_owned(),
        at_ns: second * SECOND,
        cores: 2,
        cpu_user_ns: second * SECOND,
        cpu_idle_ns: second * SECOND,
        ..HostSample::default()
    };
    RunRecord {
        run: Run {
            id: RunId::default(),
            configuration,
            repetition,
            position: configuration,
            attempt,
            status: Status::Done,
            reasons: vec![],
            caveats: vec![Caveat::Note { text: "noisy neighbour: 3 % steal".to_owned() }],
            factors: vec![FactorLevel {
                factor: "system.workers".to_owned(),
                level: 1,
                text: "8".to_owned(),
                number: Some(8.0),
            }],
            settings: serde_json::json!({ "system": { "workers": 8 } }),
            environment: serde_json::json!({ "cores": 2 }),
            started_unix_ns: 1,
            ended_unix_ns: 2,
            started_ns: 10 * SECOND,
            ended_ns: 15 * SECOND,
            measured: Some(MeasuredWindow {
                from_ns: 11 * SECOND,
                to_ns: 13 * SECOND,
                rule: "first and last second".to_owned(),
            }),
            purpose: kendall_store::Purpose::Design,
            speed_unit_ns: Some(123.5),
            one_client_of: None,
        },
        graph: graph(),
        generators: vec![generator(0), generator(1)],
        tiers: vec![tier()],
        processes: vec![Process {
            part: Part::tier(&TierId::fixed("proxies")),
            instance: 0,
            host: "localhost".to_owned(),
            pid: 42,
            samples: (10..=14).map(sample).collect(),
            threads: (10..=14).map(network).collect(),
        }],
        hosts: (10..=14).map(host).collect(),
        speeds: vec![speed()],
    }
}

fn speed() -> SpeedSample {
    SpeedSample { host: "localhost".to_owned(), core: 1, at_ns: 11 * SECOND, unit_ns: 123.5 }
}

fn graph() -> Graph {
    let proxies = TierId::fixed("proxies");
    Graph {
        tiers: vec![TierNode {
            tier: proxies.clone(),
            kind: "memcached-proxy".to_owned(),
            instances: 1,
            pools: vec![
                Pool { of: PoolKind::Workers, servers: 8 },
                Pool { of: PoolKind::Connections(TierId::fixed("servers")), servers: 4 },
            ],
        }],
        edges: vec![Edge {
            from: End::Clients,
            to: proxies,
            link: Some(EdgeLink {
                name: "clients -> proxies".to_owned(),
                delay_ns: 500_000,
                bandwidth_bytes_per_s: Some(1e7),
                bandwidth_back_bytes_per_s: None,
            }),
        }],
    }
}

fn searches() -> Vec<SearchLine> {
    let workers = |text: &str, number: f64| FactorLevel {
        factor: "system.workers".to_owned(),
        level: 0,
        text: text.to_owned(),
        number: Some(number),
    };
    let interval = Interval { low: 990.0, high: 1_010.0, confidence: 0.95 };
    let found = SearchFound {
        maximum_throughput_per_s: Estimate::with_interval(1_000.0, interval)
            .doubt(Caveat::SearchLimit { limit: 64.0 }),
        best: 64.0,
        best_between: (48.0, 64.0),
        saturation_point: Estimate::exact(40.0),
        knee_between: (32.0, 40.0),
        shape: Shape::Saturating,
        beyond: None,
        fit: Some(FittedShape {
            likely: vec![(Shape::Saturating, 0.9)],
            maximum_throughput_per_s: Estimate::with_interval(1_000.0, interval),
            level_of_maximum: Estimate::exact(64.0),
            knee: Estimate::exact(36.0),
            spread: 0.02,
        }),
    };
    let line = |line: u32, levels, found: Option<SearchFound>, without: &str| SearchLine {
        line,
        factor: "workload.clients".to_owned(),
        levels: vec![levels],
        runs: 20,
        grid: 64,
        sweep_runs: 192,
        found,
        without: without.to_owned(),
    };
    vec![
        line(0, workers("8", 8.0), Some(found), ""),
        line(1, workers("32", 32.0), None, "a run failed"),
    ]
}

#[test]
fn a_run_reads_back_equal() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    let mut expected = record(0, 0, 0);
    expected.run.id = results.store_run(&expected).unwrap();
    let results = Results::open(folder.path()).unwrap();
    assert_eq!(results.study().unwrap(), study());
    assert_eq!(results.record(expected.run.id).unwrap(), expected);
    assert_eq!(expected.run.setting("system.workers"), Some(&serde_json::json!(8)));
}

#[test]
fn the_measured_view_merges_generators_and_says_how_well_tiers_align() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    let id = results.store_run(&record(0, 0, 0)).unwrap();
    let measured = results.measured(id).unwrap();
    assert_eq!(measured.clients, 8);
    assert_eq!(measured.operations["get"].completed, 40);
    assert_eq!(measured.response_time.count(), 40);
    // 40 requests in 2 s.
    assert!((measured.throughput_per_s - 20.0).abs() < 1e-9);
    assert!((measured.think_time_mean_s - 0.5).abs() < 1e-12);
    assert_eq!(measured.arrival_rate_per_s, None);
    let proxy = &measured.tiers[0];
    assert_eq!(proxy.period.stage("waiting_time").count(), 2);
    // Half a core between the samples at 11 and 13 s.
    assert_eq!(measured.processes[0].waiting.map(|waiting| waiting.disk), Some(0.5));
    assert!((measured.processes[0].cores_busy() - 0.5).abs() < 1e-12);
    let network = &measured.processes[0].threads[0];
    assert_eq!((network.name.as_str(), network.threads), ("network", 1));
    assert!((network.cores_busy - 0.25).abs() < 1e-12);
    assert!((measured.hosts[0].utilization() - 0.5).abs() < 1e-12);
}

/// On a loaded machine few samples are taken: one may lie nearest to both ends of the window, and tells nothing.
#[test]
fn a_window_between_two_samples_is_judged_by_both() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    let mut short = record(0, 0, 0);
    let window = short.run.measured.as_mut().unwrap();
    (window.from_ns, window.to_ns) = (12_600_000_000, 12_900_000_000);
    let id = results.store_run(&short).unwrap();
    let measured = results.measured(id).unwrap();
    // The samples at 12 and 13 s.
    assert!((measured.processes[0].length_s - 1.0).abs() < 1e-12);
    assert!((measured.processes[0].cores_busy() - 0.5).abs() < 1e-12);
    assert!((measured.hosts[0].utilization() - 0.5).abs() < 1e-12);
}

#[test]
fn the_last_attempt_at_a_run_is_the_one_that_counts() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    let mut rejected = record(0, 0, 0);
    rejected.run.status = Status::Rejected;
    results.store_run(&rejected).unwrap();
    results.store_run(&record(1, 0, 0)).unwrap();
    results.store_run(&record(0, 0, 1)).unwrap();
    let latest = results.latest_runs().unwrap();
    let keys: Vec<_> = latest.iter().map(|run| (run.configuration, run.attempt)).collect();
    assert_eq!(keys, [(0, 1), (1, 0)]);
    assert_eq!(results.runs().unwrap().len(), 3);
    assert!(latest.iter().all(Run::is_usable));
}

#[test]
fn the_same_run_is_never_stored_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    results.store_run(&record(0, 0, 0)).unwrap();
    assert!(results.store_run(&record(0, 0, 0)).is_err());
    assert_eq!(results.runs().unwrap().len(), 1);
    assert_eq!(results.record(RunId(1)).unwrap().generators.len(), 2);
}

#[test]
fn a_full_disk_is_said_and_loses_nothing_that_was_stored() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    let id = results.store_run(&record(0, 0, 0)).unwrap();
    results.limit_pages_for_test(1).unwrap();
    let mut large = record(1, 0, 0);
    large.generators[0].command = "x".repeat(1 << 20);
    let error = results.store_run(&large).unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    assert!(error.to_string().contains("resumes"), "{error}");
    drop(results);
    let mut results = Results::open(folder.path()).unwrap();
    assert_eq!(results.runs().unwrap().len(), 1);
    assert_eq!(results.record(id).unwrap().tiers.len(), 1);
    results.store_run(&large).unwrap();
}

#[test]
fn a_file_of_another_version_is_refused_with_the_way_out() {
    for version in [0, SCHEMA_VERSION + 1] {
        let folder = tempfile::tempdir().unwrap();
        drop(Results::create(folder.path(), &study()).unwrap());
        let database = rusqlite::Connection::open(folder.path().join(DATABASE_FILE)).unwrap();
        database.pragma_update(None, "user_version", version).unwrap();
        let error = Results::open(folder.path()).unwrap_err();
        assert!(error.to_string().contains("run the study again"), "{error}");
    }
}

/// A file that 0.1.0 wrote, of one run over a link of 10 MB/s each way.
#[test]
fn a_file_of_version_2_is_brought_to_this_version() {
    let folder = tempfile::tempdir().unwrap();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/results-of-version-2.db");
    std::fs::copy(old, folder.path().join(DATABASE_FILE)).unwrap();
    // Of a source that knows no threads, and of one that does.
    let database = rusqlite::Connection::open(folder.path().join(DATABASE_FILE)).unwrap();
    for (at, waited, threads) in [(1, 0, 0), (2, 7, 5)] {
        let row = "INSERT INTO process_samples SELECT id, 'tier', 'a', 0, 'h', 9, ?1, 0, 0, ?2, 0, 0, 0, ?3, NULL FROM runs";
        database.execute(row, [at, waited, threads]).unwrap();
    }
    drop(database);
    for _ in 0..2 {
        let results = Results::open(folder.path()).unwrap();
        let run = &results.runs().unwrap()[0];
        let graph = results.record(run.id).unwrap().graph;
        let link = graph.edges[0].link.as_ref().unwrap();
        let limits = (link.bandwidth_bytes_per_s, link.bandwidth_back_bytes_per_s);
        assert_eq!(limits, (Some(1e7), Some(1e7)));
        let processes = results.processes(run.id).unwrap();
        let waits = processes[0].samples.iter().map(|sample| sample.run_queue_wait_ns);
        assert_eq!(waits.collect::<Vec<_>>(), [None, Some(7)]);
    }
}

/// Readers of the file have its columns from the document. A percentile there may be `…_p50_s`, and the ends of an interval
/// have the name of its center.
#[test]
fn the_documents_name_every_column_and_the_version() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = |name: &str| std::fs::read_to_string(docs.join(name)).unwrap();
    for (name, before) in
        [("results.md", "version of the schema, "), ("stability.md", "`PRAGMA user_version`, now ")]
    {
        let said = format!("{before}{SCHEMA_VERSION};");
        assert!(page(name).contains(&said), "docs/{name} does not say `{said}`");
    }
    let text = page("results.md");
    let quoted = text.split('`').skip(1).step_by(2);
    let words: std::collections::BTreeSet<&str> = quoted
        .flat_map(|part| part.split(|c: char| !(c.is_alphanumeric() || "_…".contains(c))))
        .collect();
    let ends: Vec<&str> = words.iter().filter_map(|word| word.strip_prefix('…')).collect();
    let names = |column: &str| {
        let is_end = |end: &&str| !end.is_empty() && column.ends_with(*end);
        words.contains(column) || ends.iter().any(is_end)
    };
    let folder = tempfile::tempdir().unwrap();
    drop(Results::create(folder.path(), &study()).unwrap());
    let database = rusqlite::Connection::open(folder.path().join(DATABASE_FILE)).unwrap();
    let all = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type IN ('table', 'view')";
    let mut statement = database.prepare(all).unwrap();
    let columns =
        statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let columns: Vec<(String, String)> = columns.unwrap().collect::<Result<_, _>>().unwrap();
    assert!(columns.len() > 200, "{}", columns.len());
    for (table, column) in columns {
        let center = column.trim_end_matches("_low").trim_end_matches("_high");
        assert!(words.contains(table.as_str()), "docs/results.md lacks `{table}`");
        assert!(names(center), "docs/results.md lacks `{column}` of `{table}`");
    }
}

/// What counts no threads does not say that none waited; a control group says how long one at least did.
#[test]
fn who_waits_for_a_core_is_counted_or_told_by_the_pressure_or_not_known() {
    let window = MeasuredWindow { from_ns: 0, to_ns: 10 * SECOND, rule: String::new() };
    let waits = |waited: Option<u64>, pressure: Option<u64>, cores: u64| {
        let sample = |second: u64| ProcessSample {
            at_ns: second * SECOND,
            cpu_user_ns: cores * second * SECOND,
            run_queue_wait_ns: waited.map(|ns| second * ns),
            cpu_pressure_ns: pressure.map(|ns| second * ns),
            ..ProcessSample::default()
        };
        let samples = vec![sample(0), sample(10)];
        ProcessUse::of(&Process { samples, ..Process::default() }, &window)?.run_queue_wait()
    };
    assert_eq!(waits(Some(SECOND / 2), Some(SECOND), 1), Some(0.5));
    assert_eq!(waits(None, Some(SECOND / 4), 0), Some(0.25));
    // A mean over the cores, of each of which it is told.
    assert_eq!(waits(None, Some(SECOND / 4), 3), Some(0.75));
    assert_eq!(waits(None, None, 1), None);
}

/// As of a service with a thread a connection, of which the last sample is one of after the load.
#[test]
fn threads_that_have_ended_take_nothing_from_what_was_counted() {
    let window = MeasuredWindow { from_ns: 0, to_ns: 4 * SECOND, rule: String::new() };
    let waited = [0, 2, 4, 6, 1];
    let sample = |second: usize| ProcessSample {
        at_ns: u64::try_from(second).unwrap() * SECOND,
        run_queue_wait_ns: Some(waited[second] * SECOND),
        involuntary_switches: waited[second] * 10,
        ..ProcessSample::default()
    };
    let thread = |second: usize| ThreadSample {
        name: "worker".to_owned(),
        at_ns: u64::try_from(second).unwrap() * SECOND,
        threads: 4,
        cpu_ns: waited[second] * SECOND / 4,
        run_queue_wait_ns: waited[second] * SECOND,
    };
    let samples = (0..5).map(sample).collect();
    let threads = (0..5).map(thread).collect();
    let process = Process { samples, threads, ..Process::default() };
    let found = ProcessUse::of(&process, &window).unwrap();
    let counted = (found.run_queue_wait(), found.involuntary_switches_per_s);
    assert_eq!(counted, (Some(2.0), 20.0));
    let group = &found.threads[0];
    assert_eq!((group.cores_busy, group.run_queue_wait), (0.5, 2.0));
}

#[test]
fn a_folder_without_results_and_one_that_is_taken_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Results::open(folder.path()), Err(StoreError::Missing { .. })));
    drop(Results::create(folder.path(), &study()).unwrap());
    assert!(matches!(Results::create(folder.path(), &study()), Err(StoreError::Exists { .. })));
}

#[test]
fn noise_in_the_place_of_the_database_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(DATABASE_FILE), [7_u8; 4096]).unwrap();
    let error = Results::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

/// Counts and means beside the histograms are those of the histograms, and the views follow from them.
#[test]
fn means_beside_histograms_are_those_of_the_histograms() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    results.store_run(&record(0, 0, 0)).unwrap();
    drop(results);
    let database = rusqlite::Connection::open(folder.path().join(DATABASE_FILE)).unwrap();
    let mut rows =
        database.prepare("SELECT answered, mean_ns, response_time FROM operations").unwrap();
    let rows = rows.query_map([], |row| {
        Ok((row.get::<_, u32>(0)?, row.get::<_, f64>(1)?, row.get::<_, Vec<u8>>(2)?))
    });
    let mut seen = 0;
    for row in rows.unwrap() {
        let (answered, mean_ns, bytes) = row.unwrap();
        let times = Histogram::from_bytes(&bytes).unwrap();
        assert_eq!((u64::from(answered), Some(mean_ns)), (times.count(), times.mean()));
        seen += 1;
    }
    assert!(seen >= 8, "{seen} rows");
    // Two generators that completed 20 each in two seconds, of 1 ms to the histogram's precision.
    let view = "SELECT runs, throughput_per_s, response_time_mean_s, answered
                FROM configuration_results WHERE configuration = 0";
    let (runs, rate, mean, answered): (u32, f64, f64, u32) =
        database.query_row(view, [], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))).unwrap();
    assert_eq!((runs, rate, answered), (1, 20.0, 40));
    assert!((mean / 0.001 - 1.0).abs() < 0.001, "{mean}");
}

/// What a report said of a configuration is gone as soon as the configuration has another run, and a
/// report that knew fewer runs stores nothing.
#[test]
fn a_summary_outlives_no_run_that_it_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    results.store_run(&record(0, 0, 0)).unwrap();
    results.store_run(&record(1, 0, 0)).unwrap();
    let row = |configuration, variable: &str| SummaryRow {
        configuration,
        variable: variable.to_owned(),
        value: Some(0.25),
        low: Some(0.125),
        high: None,
        why: None,
    };
    let rows = [row(1, "b"), row(1, "a"), row(0, "a")];
    results.store_summary(&rows, 1).unwrap();
    assert_eq!(results.summary().unwrap(), [], "there are two runs");
    results.store_summary(&rows, 2).unwrap();
    assert_eq!(results.summary().unwrap(), [row(0, "a"), row(1, "a"), row(1, "b")]);
    // A run that verifies a prediction is none of the design.
    let mut verified = record(FIRST_VERIFICATION, 0, 0);
    verified.run.purpose = Purpose::Verification;
    results.store_run(&verified).unwrap();
    assert_eq!(results.summary().unwrap().len(), 3);
    results.store_run(&record(1, 1, 0)).unwrap();
    assert_eq!(results.summary().unwrap(), [row(0, "a")]);
    results.store_summary(&rows, 2).unwrap();
    assert_eq!(results.summary().unwrap(), [row(0, "a")], "there are three runs by now");
}

/// A report that says the same again leaves the file as it is, byte by byte.
#[test]
fn the_same_summary_again_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    results.store_run(&record(0, 0, 0)).unwrap();
    let why = Some("too few".to_owned());
    let row = SummaryRow {
        configuration: 0,
        variable: "x".to_owned(),
        value: None,
        low: None,
        high: None,
        why,
    };
    results.store_summary(std::slice::from_ref(&row), 1).unwrap();
    let before = std::fs::read(folder.path().join(DATABASE_FILE)).unwrap();
    results.store_summary(&[row], 1).unwrap();
    assert_eq!(std::fs::read(folder.path().join(DATABASE_FILE)).unwrap(), before);
}

/// Tiers come in the order of their distance from the clients, whatever they are called, and a
/// process of one role is never taken for one of another that has its name.
#[test]
fn tiers_are_told_apart_by_their_place_and_processes_by_their_role() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    let mut record = record(0, 0, 0);
    let id = |name: &str| TierId::stored(name);
    let node = |name: &str| TierNode {
        tier: id(name),
        kind: "own".to_owned(),
        instances: 1,
        pools: Vec::new(),
    };
    let edge = |from, to: &str| Edge { from, to: id(to), link: None };
    record.graph = Graph {
        tiers: vec![node("abackend"), node("zfront")],
        edges: vec![edge(End::Tier(id("zfront")), "abackend"), edge(End::Clients, "zfront")],
    }
    .ordered();
    record.tiers =
        ["abackend", "zfront"].map(|name| Tier { tier: name.to_owned(), ..tier() }).into();
    let process = |part: Part, cpu_user_ns: u64| {
        let sample = |at: u64| ProcessSample {
            at_ns: at * SECOND,
            cpu_user_ns: at * cpu_user_ns,
            ..ProcessSample::default()
        };
        Process { part, samples: (10..=14).map(sample).collect(), ..Process::default() }
    };
    let study = Part { role: Role::Tier, name: "study".to_owned() };
    record.processes = vec![process(study.clone(), SECOND), process(Part::study(), SECOND / 100)];
    let run = results.store_run(&record).unwrap();
    let measured = results.measured(run).unwrap();
    let names: Vec<&str> = measured.tiers.iter().map(|tier| tier.tier.as_str()).collect();
    assert_eq!(names, ["zfront", "abackend"]);
    assert_eq!(measured.graph.entry().unwrap().as_str(), "zfront");
    let busy = |part: &Part| {
        measured.processes.iter().find(|p| p.part == *part).map(|p| p.cores_busy()).unwrap()
    };
    assert!((busy(&study) - 1.0).abs() < 1e-9);
    assert!((busy(&Part::study()) - 0.01).abs() < 1e-9);
}

/// What an adaptive design found is replaced as the search goes on.
#[test]
fn searches_read_back_as_they_were_stored_last() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    assert_eq!(results.searches().unwrap(), []);
    results.store_searches(&searches()[1..]).unwrap();
    results.store_searches(&searches()).unwrap();
    let results = Results::open(folder.path()).unwrap();
    assert_eq!(results.searches().unwrap(), searches());
}

/// The words agree with the numbers beside them. They took the shape from the fit and the numbers from
/// the search: "no fall of more than 5 %: -8.0 % (-10.0 % to -6.0 %)".
#[test]
fn what_lies_beyond_a_maximum_is_said_by_its_own_interval() {
    let said = |shape, beyond: Option<(f64, f64)>| {
        let mut found = searches().remove(0).found.unwrap();
        found.shape = shape;
        found.beyond = beyond.map(|(center, half)| {
            let interval = Interval::around(center, half, 0.95);
            (64.0, Estimate::with_interval(center, interval))
        });
        found.beyond_in_words()
    };
    let falls = "beyond the maximum the throughput falls: -8.0 % (-10.0 % to -6.0 %) at 64";
    for shape in [Shape::Saturating, Shape::Growing, Shape::Retrograde] {
        assert_eq!(said(shape, Some((0.92, 0.02))).unwrap(), falls);
    }
    let none = "no fall of more than 5 % is significant: -8.0 % (-12.0 % to -4.0 %) at 64";
    assert!(said(Shape::Retrograde, Some((0.92, 0.04))).unwrap().ends_with(none));
    assert!(said(Shape::Cliff, Some((0.5, 0.1))).unwrap().contains("breaks down"));
    assert!(said(Shape::Growing, None).unwrap().contains("it may grow on"));
    assert_eq!(said(Shape::Saturating, None), None);
}

/// In results the shapes are words, as they always were.
#[test]
fn shapes_are_stored_as_words() {
    let found = searches().remove(0).found.unwrap();
    let stored = serde_json::to_value(&found).unwrap();
    assert_eq!(stored["shape"], "saturating");
    assert_eq!(stored["fit"]["likely"], serde_json::json!([["saturating", 0.9]]));
    let fit = FittedShape { likely: vec![(Shape::Retrograde, 0.97)], ..found.fit.unwrap() };
    let said = "retrograde 97 %; its maximum lies at 64.0; 95 % of its maximum is reached at 36.0";
    assert_eq!(fit.in_words(), said);
}

/// Runs that verify predictions are kept apart from the design, and predictions with what they found.
#[test]
fn predictions_and_the_runs_that_verify_them_are_beside_the_design() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    results.store_run(&record(0, 0, 0)).unwrap();
    let mut verified = record(FIRST_VERIFICATION, 0, 0);
    verified.run.purpose = Purpose::Verification;
    let run = results.store_run(&verified).unwrap();
    let prediction = StoredPrediction {
        made_unix_ns: 7,
        asked: vec![("workload.clients".to_owned(), "300".to_owned())],
        answer: serde_json::json!({ "throughput_per_s": { "center": 1.5 } }),
        run: Some(run),
        repeated: None,
        verdict: Some(serde_json::json!({ "held": true })),
    };
    results.store_prediction(&prediction).unwrap();
    let results = Results::open(folder.path()).unwrap();
    assert_eq!(results.runs().unwrap().len(), 1);
    assert_eq!(results.latest_runs().unwrap().len(), 1);
    let verifications = results.verifications().unwrap();
    assert_eq!(verifications.len(), 1);
    assert_eq!((verifications[0].id, verifications[0].purpose), (run, Purpose::Verification));
    assert_eq!(results.predictions().unwrap(), [prediction]);
}

/// One client alone before a run is stored with all rows of a run, and is none of the design.
#[test]
fn one_client_alone_stands_beside_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::create(folder.path(), &study()).unwrap();
    let run = results.store_run(&record(0, 1, 0)).unwrap();
    let mut alone = record(ONE_CLIENT, 1, 0);
    alone.run.one_client_of = Some(run);
    alone.run.purpose = Purpose::Verification;
    alone.run.id = results.store_run(&alone).unwrap();
    let results = Results::open(folder.path()).unwrap();
    assert_eq!(results.record(alone.run.id).unwrap(), alone);
    let stored: Vec<_> =
        results.one_client_runs().unwrap().iter().map(|run| run.one_client_of).collect();
    assert_eq!(stored, [Some(run)]);
    assert_eq!(results.runs().unwrap().len(), 1);
    assert!(results.verifications().unwrap().is_empty());
    assert_eq!(results.measured(alone.run.id).unwrap().run.configuration, ONE_CLIENT);
}

/// A file that others wrote may hold a view that never ends, or a pipe where SQLite looks for its journal.
#[test]
fn a_look_at_hostile_results_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE);
    for title in [
        "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n)",
        "hex(zeroblob(100000000))",
    ] {
        std::fs::remove_file(&path).unwrap_or_default();
        Results::create(folder.path(), &study()).unwrap();
        let look = || Results::open_for_a_look(folder.path()).unwrap().study();
        assert_eq!(look().unwrap(), study());
        let view = format!(
            "ALTER TABLE study RENAME TO was; CREATE VIEW study AS SELECT id, name, {title} AS title, file_name, \
             file, fingerprint, seed, design, confidence, planned_runs, created_unix_ns FROM was"
        );
        rusqlite::Connection::open(&path).unwrap().execute_batch(&view).unwrap();
        let error = look().unwrap_err().to_string();
        assert!(error.contains("too much work"), "{error}");
    }
    let pipe = folder.path().join("results.db-journal");
    assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    let error = Results::open(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("is no file: remove it"), "{error}");
}
