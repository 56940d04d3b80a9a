//! The views of `results.db` say what the report's tables say, in JSON and in CSV.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

// The report's own tests use all of it.
#[allow(dead_code, reason = "shared with the report's tests")]
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use crate::made::Made;
use crate::synthetic::{Synthetic, times};
use kendall_report::document::{Cell, Table};
use kendall_store::{DATABASE_FILE, Results, RunRecord};
use rusqlite::types::Value;

type Row = BTreeMap<String, Value>;

/// All rows of a view, by the names of its columns.
fn view(folder: &Path, name: &str) -> Vec<Row> {
    let database = rusqlite::Connection::open(folder.join(DATABASE_FILE)).unwrap();
    let mut statement = database.prepare(&format!("SELECT * FROM {name}")).unwrap();
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let rows = statement.query_map([], |row| {
        let cell =
            |(at, name): (usize, &String)| rusqlite::Result::Ok((name.clone(), row.get(at)?));
        names.iter().enumerate().map(cell).collect()
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

fn number(row: &Row, name: &str) -> Option<f64> {
    match row.get(name).unwrap_or_else(|| panic!("no column {name}")) {
        Value::Null => None,
        Value::Integer(value) => Some(i32::try_from(*value).unwrap().into()),
        Value::Real(value) => Some(*value),
        other => panic!("{name}: {other:?}"),
    }
}

fn text<'a>(row: &'a Row, name: &str) -> &'a str {
    match &row[name] {
        Value::Text(text) => text,
        other => panic!("{name}: {other:?}"),
    }
}

/// Numbers that go through the same sums in another order differ by roundings: below 10⁻¹² for
/// hundreds of terms.
fn same(one: Option<f64>, other: Option<f64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-12 * one.abs().max(other.abs()),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Three clients' loads of two operations, in runs of very different lengths of what the tier reports.
fn two_operations(record: &mut RunRecord) {
    let share = 3 + u64::from(record.run.repetition);
    let mut more = Vec::new();
    for generator in &mut record.generators {
        for period in &mut generator.operations {
            let mut other = period.clone();
            "get".clone_into(&mut other.operation);
            other.counts.completed /= share;
            other.counts.hits = other.counts.completed;
            other.counts.misses = 7;
            other.counts.errors.insert("timeout".to_owned(), 2);
            other.counts.response_time =
                times(0.001 * (1.0 + f64::from(record.run.repetition)), other.counts.completed);
            // Whole seconds only, as a study stores them: less than the measured window.
            if period.extent == kendall_store::Extent::Measured {
                period.to_ns -= 500_000_000;
                other.to_ns = period.to_ns;
            }
            more.push(other);
        }
        generator.operations.append(&mut more);
    }
    for tier in &mut record.tiers {
        for period in &mut tier.periods {
            period.to_ns += u64::from(record.run.repetition) * 900_000_000;
        }
    }
}

fn table<'a>(report: &'a kendall_report::Report, id: &str) -> &'a Table {
    let mut tables = report.sections.iter().flat_map(|section| section.tables());
    tables.find(|table| table.id == id).unwrap_or_else(|| panic!("no table {id}"))
}

/// The row of a view that has the levels of a row of a table, and its operation if it has one.
fn beside<'a>(rows: &'a [Row], table: &Table, cells: &[Cell]) -> &'a Row {
    let fits = |row: &&Row| {
        let levels: BTreeMap<String, String> = serde_json::from_str(text(row, "levels")).unwrap();
        table.columns.iter().zip(cells).all(|(column, cell)| match cell {
            Cell::Text(said) if column.key == "operation" => text(row, "operation") == said,
            Cell::Text(said) => levels[&column.key] == *said,
            _ => true,
        })
    };
    let found: Vec<&Row> = rows.iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "one row for each configuration");
    found[0]
}

/// Compares the columns of a table with a view's of the same name, or the one given; returns how many
/// numbers were compared.
fn compare(table: &Table, rows: &[Row], names: &[(&str, &str)]) -> usize {
    let csv = table.to_csv();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let heads = reader.headers().unwrap().clone();
    let lines: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    let json = serde_json::to_value(table).unwrap();
    let mut compared = 0;
    for (place, cells) in table.rows.iter().enumerate() {
        let row = beside(rows, table, cells);
        for (said, kept) in names {
            let of = &json["rows"][place][*said];
            let in_csv = |name: &str| {
                let at = heads.iter().position(|head| head == name)?;
                lines[place][at].parse::<f64>().ok()
            };
            let center = of.as_f64().or_else(|| of["center"].as_f64());
            let told = number(row, kept);
            assert!(same(center, told), "{said}: the report has {center:?}, the view {told:?}");
            assert!(same(in_csv(said), told), "{said}: CSV has {:?}", in_csv(said));
            compared += 1;
            for end in ["low", "high"] {
                let name = format!("{kept}_{end}");
                if !row.contains_key(&name) {
                    continue;
                }
                // Ends of intervals are stored and not calculated again.
                let told = number(row, &name).map(f64::to_bits);
                let interval = of["interval"][end].as_f64();
                assert_eq!(interval.map(f64::to_bits), told, "{name}");
                let in_csv = in_csv(&format!("{said}_{end}"));
                assert_eq!(in_csv.map(f64::to_bits), told, "{name} in CSV");
                compared += 1;
            }
        }
    }
    compared
}

const CONFIGURATIONS: [(&str, &str); 12] = [
    ("repetitions", "runs"),
    ("throughput_per_s", "throughput_per_s"),
    ("response_time_mean_s", "response_time_mean_s"),
    ("response_time_standard_deviation_s", "response_time_standard_deviation_s"),
    ("response_time_p25_s", "response_time_p25_s"),
    ("response_time_p50_s", "response_time_p50_s"),
    ("response_time_p75_s", "response_time_p75_s"),
    ("response_time_p90_s", "response_time_p90_s"),
    ("response_time_p95_s", "response_time_p95_s"),
    ("response_time_p99_s", "response_time_p99_s"),
    ("miss_rate", "miss_rate"),
    ("error_rate", "error_rate"),
];

const TIERS: [(&str, &str); 8] = [
    ("tier_throughput_per_s", "throughput_per_s"),
    ("tier_response_time_s", "response_time_s"),
    ("waiting_time_s", "waiting_time_s"),
    ("service_time_s", "service_time_s"),
    ("backend_time_s", "backend_time_s"),
    ("queue_length", "queue_length"),
    ("workers_busy", "workers_busy"),
    ("workers", "workers"),
];

/// Two operations, two instances of the tier, three repetitions whose tier's snapshots span 6.0 to
/// 7.8 s of a window of 6 s.
fn study() -> Synthetic {
    Synthetic {
        factors: vec![
            ("system.workers", vec![8.0, 32.0]),
            ("workload.clients", vec![6.0, 102.0, 198.0]),
        ],
        spread: 0.4,
        change: two_operations,
        ..Synthetic::writes()
    }
}

static STUDY: LazyLock<Made> = LazyLock::new(|| Made::of(&Synthetic { name: "views", ..study() }));

#[test]
fn views_say_what_the_report_says() {
    let Made { folder, report, .. } = &*STUDY;
    let configurations = view(folder, "configuration_results");
    assert_eq!(configurations.len(), 6);
    let compared = compare(table(report, "configurations"), &configurations, &CONFIGURATIONS);
    // Twelve numbers and the ends of four intervals, of six configurations.
    assert_eq!(compared, 6 * (12 + 8));
    let operations = view(folder, "operation_results");
    let names = ["throughput_per_s", "response_time_mean_s"].map(|name| (name, name));
    assert_eq!(compare(table(report, "operations"), &operations, &names), 6 * 2 * 2);
    let tiers = view(folder, "tier_results");
    assert_eq!(compare(table(report, "tiers"), &tiers, &TIERS), 6 * TIERS.len());
}

/// Rates by operation were counts of whole seconds over the whole measured window, so they added up to
/// less than the throughput: to half of it in runs of two seconds.
#[test]
fn rates_by_operation_add_up_to_the_throughput() {
    let report = &STUDY.report;
    let configurations = serde_json::to_value(table(report, "configurations")).unwrap();
    let operations = serde_json::to_value(table(report, "operations")).unwrap();
    let rates = |row: &serde_json::Value| row["throughput_per_s"]["center"].as_f64().unwrap();
    let levels = ["system.workers", "workload.clients"];
    for all in configurations["rows"].as_array().unwrap() {
        let each = operations["rows"].as_array().unwrap().iter();
        let sum: f64 =
            each.filter(|row| levels.iter().all(|key| row[key] == all[key])).map(rates).sum();
        assert!(same(Some(sum), Some(rates(all))), "{sum} and {}", rates(all));
    }
}

/// Runs are those of the observations, one by one.
#[test]
fn each_run_is_that_of_the_observations() {
    let folder = &STUDY.folder;
    let results = Results::open(folder).unwrap();
    let data = kendall_observations::Observations::read(&results).unwrap();
    let runs = view(folder, "run_results");
    assert_eq!(runs.len(), 18);
    let tiers = view(folder, "tier_run_results");
    for repetition in data.configurations.iter().flat_map(|c| &c.repetitions) {
        let id = repetition.run.id.0;
        let of = |rows: &[Row]| rows.iter().find(|r| r["run"] == Value::Integer(id)).cloned();
        let (run, tier) = (of(&runs).unwrap(), of(&tiers).unwrap());
        let client = &repetition.point.client;
        let first = repetition.point.first_tier().unwrap();
        for (row, name, wanted) in [
            (&run, "throughput_per_s", client.throughput_per_s),
            (&run, "response_time_mean_s", client.response_time_s),
            (&run, "measured_s", repetition.point.duration_s),
            (&run, "error_rate", repetition.counts.error_rate().unwrap()),
            (&run, "counts", 1.0),
            (&tier, "throughput_per_s", first.view.throughput_per_s),
            (&tier, "response_time_s", first.view.response_time_s),
            (&tier, "waiting_time_s", first.waiting_time_s),
            (&tier, "backend_time_s", first.backend_time_s.unwrap()),
            (&tier, "queue_length", first.queue_length),
        ] {
            let told = number(row, name);
            assert!(same(told, Some(wanted)), "run {id}, {name}: {told:?} and {wanted}");
        }
    }
}

/// With a run that the last report did not know, a configuration has no interval until the next one;
/// what SQL calculates is of all runs at once. A failed attempt at the same place takes a run away.
#[test]
fn views_are_never_older_than_the_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("stale");
    // Little enough for intervals of three runs.
    Synthetic { spread: 0.02, ..study() }.store(&folder);
    kendall_report::write(&folder).unwrap();
    let of = |configuration: i64| {
        let rows = view(&folder, "configuration_results");
        let mut rows = rows.into_iter();
        rows.find(|row| row["configuration"] == Value::Integer(configuration)).unwrap()
    };
    let before = of(2);
    assert!(number(&before, "throughput_per_s_low").is_some());
    assert!(number(&before, "response_time_p99_s").is_some());
    let mut results = Results::open(&folder).unwrap();
    let runs = results.latest_runs().unwrap();
    let last = runs.iter().rfind(|run| run.configuration == 2).unwrap();
    let mut again = results.record(last.id).unwrap();
    again.run.attempt += 1;
    again.run.status = kendall_store::Status::Rejected;
    results.store_run(&again).unwrap();
    let now = of(2);
    assert_eq!(number(&now, "runs"), Some(2.0));
    assert_ne!(number(&now, "throughput_per_s"), number(&before, "throughput_per_s"));
    for name in ["throughput_per_s_low", "response_time_mean_s_high", "response_time_p99_s"] {
        assert_eq!(number(&now, name), None, "{name} is of runs that no longer count");
        assert!(number(&of(3), name).is_some(), "{name} of another configuration");
    }
    let (report, _) = kendall_report::write(&folder).unwrap();
    let rows = view(&folder, "configuration_results");
    compare(table(&report, "configurations"), &rows, &CONFIGURATIONS);
    assert!(number(&of(2), "response_time_p99_s").is_some());
}
