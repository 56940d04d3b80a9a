//! `kendall compare` on two folders of results, as a user and a CI run it: what it finds, what it
//! refuses, what it writes, and its exit code. The folders are made with the store, so that the
//! truth is known.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be done fails it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kendall_stats::histogram::Histogram;
use kendall_store::{
    DATABASE_FILE, Extent, FactorLevel, Generator, MeasuredWindow, OperationCounts,
    OperationPeriod, Results, Run, RunId, RunRecord, Status, Study,
};

const SECOND: u64 = 1_000_000_000;

/// A folder of results to make: one factor, `workload.clients`.
struct Set {
    clients: Vec<u32>,
    /// Mean response time in µs by repetition, the same at every level.
    response_us: Vec<u64>,
    /// Wall-clock second at which repetition `i` starts: `start + step·i`.
    start: u64,
    step: u64,
    machine: &'static str,
    duration: &'static str,
    factor: &'static str,
    failed: u32,
    /// Response times of a run whose mean is this many µs or more: few.
    few_from_us: u64,
}

/// Response times of a run.
const MANY: u64 = 2_000;
const FEW: u64 = 300;

impl Default for Set {
    fn default() -> Self {
        Self {
            clients: vec![4, 16],
            response_us: vec![1_000, 1_010, 990, 1_005],
            start: 0,
            step: 100,
            machine: "quiet",
            duration: "10s",
            factor: "workload.clients",
            failed: 0,
            few_from_us: u64::MAX,
        }
    }
}

impl Set {
    fn store(&self, folder: &Path) {
        let study = Study {
            name: "toy".to_owned(),
            title: "A toy".to_owned(),
            file_name: "toy.toml".to_owned(),
            file: String::new(),
            fingerprint: "1".to_owned(),
            seed: 1,
            design: "full".to_owned(),
            confidence: 0.95,
            planned_runs: None,
            created_unix_ns: 0,
        };
        let mut results = Results::create(folder, &study).unwrap();
        for (repetition, response_us) in (0..).zip(&self.response_us) {
            for (configuration, clients) in (0..).zip(&self.clients) {
                let failed = configuration < self.failed;
                let record =
                    self.record((configuration, repetition), *clients, *response_us, failed);
                results.store_run(&record).unwrap();
            }
        }
    }

    fn record(&self, key: (u32, u32), clients: u32, response_us: u64, failed: bool) -> RunRecord {
        let start = SECOND * (self.start + self.step * u64::from(key.1));
        let mut response_time = Histogram::new();
        let requests = if response_us >= self.few_from_us { FEW } else { MANY };
        // A tail, so that percentiles of runs and of all requests differ.
        response_time.record_n(response_us * 1_000, requests - requests / 50);
        response_time.record_n(response_us * 3_000, requests / 50);
        // N = X·R over one second.
        let completed = u64::from(clients) * 1_000_000 / response_us;
        let counts = OperationCounts {
            sent: completed,
            completed,
            hits: completed,
            response_time,
            ..OperationCounts::default()
        };
        let period = OperationPeriod {
            extent: Extent::Measured,
            from_ns: 0,
            to_ns: SECOND,
            operation: "get".to_owned(),
            counts,
        };
        let level = FactorLevel {
            factor: self.factor.to_owned(),
            level: key.0,
            text: clients.to_string(),
            number: Some(f64::from(clients)),
        };
        let run = Run {
            id: RunId::default(),
            configuration: key.0,
            repetition: key.1,
            position: key.1,
            attempt: 0,
            status: if failed { Status::Failed } else { Status::Done },
            reasons: Vec::new(),
            caveats: Vec::new(),
            factors: vec![level],
            settings: serde_json::json!({
                "system": { "kind": "memcached" },
                "measure": { "duration": self.duration },
            }),
            environment: serde_json::json!({ "machine": self.machine, "cores": 2, "seed": 1 }),
            started_unix_ns: start,
            ended_unix_ns: start + 20 * SECOND,
            started_ns: start,
            ended_ns: start + 20 * SECOND,
            measured: Some(MeasuredWindow { from_ns: 0, to_ns: SECOND, rule: "none".to_owned() }),
            purpose: kendall_store::Purpose::Design,
            speed_unit_ns: None,
            one_client_of: None,
        };
        let generator = Generator {
            r#loop: "closed".to_owned(),
            clients: u64::from(clients),
            ended_ns: SECOND,
            operations: vec![period],
            ..Generator::default()
        };
        RunRecord {
            run,
            generators: vec![generator],
            tiers: Vec::new(),
            processes: Vec::new(),
            graph: kendall_protocols::topology::Graph::default(),
            speeds: Vec::new(),
            hosts: Vec::new(),
        }
    }
}

struct Folders(tempfile::TempDir);

impl Folders {
    fn of(before: &Set, after: &Set) -> Self {
        let folders = Self(tempfile::tempdir().unwrap());
        before.store(&folders.before());
        after.store(&folders.after());
        folders
    }

    fn before(&self) -> PathBuf {
        self.0.path().join("before")
    }

    fn after(&self) -> PathBuf {
        self.0.path().join("after")
    }

    fn compare(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
        command.arg("compare").arg(self.before()).arg(self.after()).args(arguments);
        command.output().unwrap()
    }

    /// The JSON answer and the exit code.
    fn answer(&self, arguments: &[&str]) -> (serde_json::Value, i32) {
        let mut all = vec!["--format", "json"];
        all.extend(arguments);
        let output = self.compare(&all);
        let answer = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (answer, output.status.code().unwrap())
    }
}

fn caveats(answer: &serde_json::Value, kind: &str) -> usize {
    let all = answer["caveats"].as_array().unwrap().iter();
    all.filter(|caveat| caveat["caveat"] == kind).count()
}

fn slower() -> Set {
    Set { response_us: vec![1_200, 1_215, 1_190, 1_206], start: 50, ..Set::default() }
}

/// Measured in turns, 20 % slower: paired, a regression, code 4, a page with plots that works
/// offline, and JSON that holds the same.
#[test]
fn a_regression_is_found_written_and_told_by_the_exit_code() {
    let folders = Folders::of(&Set::default(), &slower());
    let (answer, code) = folders.answer(&[]);
    assert_eq!((code, answer["verdict"].as_str().unwrap()), (4, "regression"));
    let comparisons = answer["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 6, "2 configurations × 3 response variables");
    assert!(comparisons.iter().all(|one| one["paired"] == true && one["runs"][0] == 4));
    let ratio = comparisons[1]["ratio"]["center"].as_f64().unwrap();
    assert!((ratio - 1.2).abs() < 0.01, "{ratio}");
    assert_eq!(answer["differences"].as_array().unwrap().len(), 0);
    let page = std::fs::read_to_string(folders.after().join("comparison.html")).unwrap();
    assert_eq!(answer["report"].as_str(), folders.after().join("comparison.html").to_str());
    for wanted in
        ["regression", "±5\u{a0}%", "<svg", "Change of the throughput", "Before and after"]
    {
        assert!(page.contains(wanted), "{wanted}");
    }
    for outside in ["src=\"http", "href=\"http", "@import", ">NaN", "\"NaN", "MNaN"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(folders.after().join("comparison.json").is_file());
    let csv = std::fs::read_to_string(folders.after().join("tables/comparison.csv")).unwrap();
    assert_eq!(csv.lines().count(), 7);
    let begins = "configuration,metric,verdict,change,change_low,change_high,before,";
    assert!(csv.starts_with(begins), "{csv}");
}

/// Beside a name that says nothing, the upper end of the change was out of sight.
#[test]
fn the_page_names_no_single_configuration() {
    let only = Set { clients: vec![8], ..Set::default() };
    let folders = Folders::of(&only, &only);
    folders.compare(&[]);
    let page = std::fs::read_to_string(folders.after().join("comparison.html")).unwrap();
    assert!(page.contains("Response variable</th>") && !page.contains("Configuration</th>"));
}

#[test]
fn the_table_fits_a_terminal_and_names_the_page() {
    let folders = Folders::of(&Set::default(), &slower());
    let output = folders.compare(&[]);
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8(output.stdout).unwrap();
    let table = text.lines().filter(|line| line.starts_with(['│', '┌', '└', '╞', '├']));
    assert!(table.clone().count() > 6);
    assert!(table.into_iter().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("comparison.html") && text.contains("verdict: regression"), "{text}");
}

#[test]
fn an_improvement_and_an_equivalence_pass() {
    let folders = Folders::of(&slower(), &Set::default());
    let (answer, code) = folders.answer(&[]);
    assert_eq!((code, answer["verdict"].as_str().unwrap()), (0, "improvement"));
    let same = Set { response_us: vec![1_002, 1_011, 992, 1_004], start: 50, ..Set::default() };
    let folders = Folders::of(&Set::default(), &same);
    let (answer, code) = folders.answer(&["--strict", "--no-report"]);
    assert_eq!((code, answer["verdict"].as_str().unwrap()), (0, "equivalent"));
    assert!(answer["report"].is_null() && !folders.after().join("comparison.html").exists());
}

/// Runs that scatter decide nothing: code 0, or 4 where CI asks for certainty.
#[test]
fn what_is_undecided_fails_only_when_strict() {
    let noisy = Set { response_us: vec![700, 1_500, 900, 1_300], start: 50, ..Set::default() };
    let folders = Folders::of(&Set::default(), &noisy);
    let (answer, code) = folders.answer(&[]);
    assert_eq!((code, answer["verdict"].as_str().unwrap()), (0, "inconclusive"));
    assert_eq!(folders.compare(&["--strict"]).status.code(), Some(4));
    // A bound that the change does not exceed.
    let folders = Folders::of(&Set::default(), &slower());
    let (answer, code) = folders.answer(&["--bound", "50%"]);
    assert_eq!((code, answer["verdict"].as_str().unwrap()), (0, "equivalent"));
}

/// All of one set, then all of the other: drift would pose as a difference, so no pairs, and a
/// caveat; pairs can be asked for.
#[test]
fn sets_measured_one_after_the_other_are_not_paired() {
    let after = Set { start: 1_000, ..slower() };
    let folders = Folders::of(&Set::default(), &after);
    let (answer, code) = folders.answer(&[]);
    assert_eq!((code, caveats(&answer, "not-paired")), (4, 1));
    assert!(answer["comparisons"].as_array().unwrap().iter().all(|one| one["paired"] == false));
    let (answer, _) = folders.answer(&["--pairing", "blocks"]);
    assert_eq!(
        (&answer["comparisons"][0]["paired"], caveats(&answer, "not-paired")),
        (&true.into(), 0)
    );
}

/// Another machine and another length of runs are said beside the verdict, one by one.
#[test]
fn conditions_that_differ_are_said() {
    let after = Set { machine: "loud", duration: "60s", ..slower() };
    let folders = Folders::of(&Set::default(), &after);
    let (answer, _) = folders.answer(&[]);
    assert_eq!(caveats(&answer, "conditions-differ"), 2);
    let differences = answer["differences"].as_array().unwrap();
    let what: Vec<&str> = differences.iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["measure.duration", "machine"]);
    assert!(differences.iter().all(|one| one["kind"] == "condition"));
    let page = std::fs::read_to_string(folders.after().join("comparison.html")).unwrap();
    assert!(page.contains("loud") && page.contains("measured under different conditions"));
}

#[test]
fn configurations_and_runs_that_are_missing_are_left_out_and_said() {
    let after = Set { clients: vec![4], failed: 0, ..slower() };
    let folders = Folders::of(&Set::default(), &after);
    let (answer, code) = folders.answer(&[]);
    assert_eq!((code, answer["comparisons"].as_array().unwrap().len()), (4, 3));
    assert_eq!(caveats(&answer, "note"), 1, "{answer:#}");
    let after = Set { failed: 1, ..slower() };
    let folders = Folders::of(&Set::default(), &after);
    let (answer, _) = folders.answer(&[]);
    assert_eq!(caveats(&answer, "runs-failed"), 1, "{answer:#}");
    // Two blocks of the second set only: pairs where both have them.
    let after = Set { response_us: vec![1_200, 1_215], ..slower() };
    let folders = Folders::of(&Set::default(), &after);
    let (answer, _) = folders.answer(&["--pairing", "blocks"]);
    assert_eq!(answer["comparisons"][0]["runs"][0], 2);
    // One run a side: a difference, and no verdict.
    let one = |us: u64, start| Set { response_us: vec![us], start, ..Set::default() };
    let folders = Folders::of(&one(1_000, 0), &one(2_000, 50));
    let (answer, code) = folders.answer(&[]);
    assert_eq!((code, answer["verdict"].as_str().unwrap()), (0, "inconclusive"));
}

/// What cannot be compared is refused with code 2, and says what is there instead.
#[test]
fn what_cannot_be_compared_is_refused_in_words() {
    let refused = |folders: &Folders, says: &str| {
        let output = folders.compare(&[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says), "{says} is not in {error}");
        assert!(!folders.after().join("comparison.html").exists());
    };
    let other = Set { factor: "system.servers", ..slower() };
    refused(&Folders::of(&Set::default(), &other), "varies system.servers (16, 4)");
    let failed = Set { failed: 2, ..slower() };
    refused(&Folders::of(&Set::default(), &failed), "has no usable run (8 failed or rejected)");

    let folders = Folders::of(&Set::default(), &slower());
    let database = folders.after().join(DATABASE_FILE);
    let whole = std::fs::read(&database).unwrap();
    // Cut in the middle, noise, nothing in it, no folder at all.
    std::fs::write(&database, &whole[..whole.len() / 2]).unwrap();
    refused(&folders, "after");
    std::fs::write(&database, [7_u8; 8_192]).unwrap();
    refused(&folders, "damaged");
    // SQLite would make a new database of an empty file.
    std::fs::write(&database, []).unwrap();
    refused(&folders, "is empty, or no file");
    assert_eq!(std::fs::metadata(&database).unwrap().len(), 0);
    std::fs::remove_file(&database).unwrap();
    refused(&folders, "no results");
    std::fs::remove_dir_all(folders.after()).unwrap();
    refused(&folders, "after");
}

/// Two levels of one factor within one study: the study's blocks pair them. Here 16 clients have
/// four times the throughput of 4, and the same response time.
#[test]
fn two_levels_of_one_study_are_compared_in_pairs() {
    let folders = Folders::of(&Set::default(), &Set::default());
    let compare = |levels: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
        command.arg("compare").arg(folders.before()).args(["--levels", levels, "--format", "json"]);
        command.output().unwrap()
    };
    let output = compare("workload.clients=4,16");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let comparisons = answer["comparisons"].as_array().unwrap();
    assert!(comparisons.iter().all(|one| one["paired"] == true && one["runs"][0] == 4));
    let verdicts: Vec<&str> =
        comparisons.iter().map(|one| one["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["improvement", "equivalent", "equivalent"]);
    assert!(folders.before().join("comparison.html").is_file());
    for (levels, says) in [
        ("workload.clients=4,99", "there are 16, 4"),
        ("system.mode=a,b", "it varies workload.clients"),
        ("workload.clients=4", "write it like"),
    ] {
        let output = compare(levels);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says), "{says} is not in {error}");
    }
}

/// Slow runs answer fewer requests: were those left out whose 99th percentile has too few, the
/// three fast ones of ten would be compared with all of the other set, and the slower version called
/// an improvement.
#[test]
fn slow_runs_are_not_left_out_of_a_percentile() {
    let slow = vec![900, 910, 905, 1_600, 1_610, 1_590, 1_605, 1_595, 1_600, 1_610];
    let after = Set {
        response_us: slow,
        few_from_us: 1_500,
        start: 50,
        clients: vec![4],
        ..Set::default()
    };
    let before = Set { response_us: vec![1_000; 10], clients: vec![4], ..Set::default() };
    let folders = Folders::of(&before, &after);
    let (answer, _) = folders.answer(&[]);
    let compared: Vec<&str> = answer["comparisons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["metric"].as_str().unwrap())
        .collect();
    assert_eq!(compared, ["throughput_per_s", "response_time_mean_s"], "{answer:#}");
    let said = answer["caveats"].to_string();
    assert!(said.contains("7 of 10 runs") && said.contains("select by the outcome"), "{said}");
    // Nothing else to compare: refused, with the reason.
    let output = folders.compare(&["--metric", "response_time_p99"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("7 of 10 runs"), "{error}");
}

/// Mean and 99th percentile of a configuration whose runs differ in length: one number each, in the
/// report's first lines, in its table, in CSV, in JSON and in `compare`, with one interval.
#[test]
fn a_number_is_the_same_wherever_it_is_shown() {
    let after = Set {
        response_us: vec![1_000, 1_020, 1_400, 1_390],
        few_from_us: 1_300,
        start: 50,
        clients: vec![4],
        ..Set::default()
    };
    let before = Set { clients: vec![4], ..Set::default() };
    let folders = Folders::of(&before, &after);
    let (compared, _) =
        folders.answer(&["--metric", "throughput", "--metric", "response_time_mean"]);
    let report = Command::new(env!("CARGO_BIN_EXE_kendall"))
        .args(["report", "--format", "json"])
        .arg(folders.after())
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let row = table_row(&report, "configurations");
    let csv = std::fs::read_to_string(folders.after().join("tables/configurations.csv")).unwrap();
    let in_csv = |key: &str| -> f64 {
        let column = csv.lines().next().unwrap().split(',').position(|name| name == key).unwrap();
        csv.lines().nth(1).unwrap().split(',').nth(column).unwrap().parse().unwrap()
    };
    for (place, key) in ["throughput_per_s", "response_time_mean_s"].into_iter().enumerate() {
        for (part, ending) in [("center", ""), ("interval/low", "_low"), ("interval/high", "_high")]
        {
            let of = |value: &serde_json::Value| {
                value.pointer(&format!("/{part}")).unwrap().as_f64().unwrap()
            };
            let shown = of(&row[key]);
            let beside = of(&compared["comparisons"][place]["after"]);
            let written = in_csv(&format!("{key}{ending}"));
            let differ = (shown - beside).abs() + (shown - written).abs();
            assert!(differ <= 1e-12 * shown, "{key} {part}: {shown}, {beside}, {written}");
        }
    }
    // Of all requests: two runs of 2,000 and two of 300, and not the mean of four means.
    let mean = row["response_time_mean_s"]["center"].as_f64().unwrap();
    let tail = 1.04;
    let truth = tail * (2_000.0 * (1.0 + 1.02) + 300.0 * (1.4 + 1.39)) / 4_600.0 * 1e-3;
    assert!((mean / truth - 1.0).abs() < 2e-3, "{mean} for {truth}");
    let p99 = row["response_time_p99_s"]["center"].as_f64().unwrap();
    assert!((in_csv("response_time_p99_s") - p99).abs() < 1e-12);
}

/// The first row of a table of a report.
fn table_row(report: &serde_json::Value, id: &str) -> serde_json::Value {
    let blocks = report["sections"].as_array().unwrap().iter();
    let mut blocks = blocks.flat_map(|section| section["blocks"].as_array().unwrap());
    let table = blocks.find(|block| block["content"]["id"] == id).unwrap();
    table["content"]["rows"][0].clone()
}

/// The terminal at the end of a run, its JSON, the report and `compare` on what was measured: the
/// numbers of each configuration are the same, to the figures that are printed.
#[test]
fn the_terminal_says_what_the_report_says() {
    let folder = tempfile::tempdir().unwrap();
    // A closed loop: no machine is too busy for it.
    let text = "name = 'said'\n[system]\nkind = 'synthetic'\nservice = 'constant:1ms'\n[workload]\n\
                clients = 2\npath = '/'\n[measure]\nduration = '1s'\nwarm_up = '0s'\n\
                cool_down = '0s'\nrepetitions = 2\n";
    let study = folder.path().join("said.toml");
    std::fs::write(&study, text).unwrap();
    let results = folder.path().join("results");
    let run = |format: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
        command.arg("run").arg(&study).args(["--format", format, "--out"]);
        command.arg(&results).output().unwrap()
    };
    let json: serde_json::Value = serde_json::from_slice(&run("json").stdout).unwrap();
    // Once more: nothing is left to run, and the summary is printed.
    let text = String::from_utf8(run("human").stdout).unwrap();
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(results.join("report.json")).unwrap())
            .unwrap();
    let row = table_row(&report, "configurations");
    let first = &json["configurations"][0];
    for key in ["throughput_per_s", "response_time_mean_s", "response_time_p99_s"] {
        assert_eq!(first[key]["center"], row[key]["center"], "{key}");
        assert_eq!(first[key]["interval"], row[key]["interval"], "{key}");
    }
    let throughput = first["throughput_per_s"]["center"].as_f64().unwrap();
    let printed = kendall_stats::estimate::figures(throughput, 4);
    assert!(text.contains(&printed), "{printed} is not in {text}");
}

/// `kendall compare` over sets of these mean response times, in µs.
fn over(sets: &[u64], arguments: &[&str]) -> (serde_json::Value, i32) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
    command.arg("compare");
    for (number, mean_us) in sets.iter().enumerate() {
        let response_us = [0, 10, 20, 5].map(|more| mean_us + more).to_vec();
        let set = folder.path().join(format!("set{number:02}"));
        Set { response_us, ..Set::default() }.store(&set);
        command.arg(set);
    }
    let output = command.args(["--format", "json"]).args(arguments).output().unwrap();
    let answer = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (answer, output.status.code().unwrap())
}

#[test]
fn of_several_sets_each_is_compared_with_the_first() {
    let (answer, code) = over(&[1_000, 1_000, 1_500], &[]);
    assert_eq!((answer["verdict"].as_str(), code), (Some("regression"), 4));
    for one in answer["comparisons"].as_array().unwrap() {
        let slower = one["configuration"].as_str().unwrap().contains("set02:");
        assert_eq!(one["verdict"] == "regression", slower, "{one}");
    }
    let (answer, code) = over(&[1_000, 1_000, 1_000], &[]);
    assert_eq!((answer["verdict"].as_str(), code), (Some("equivalent"), 0));
}

/// Beside a third set, the second has the numbers, the pairs and the caveats that it has by itself.
#[test]
fn of_several_sets_each_is_told_as_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    // Runs of differing length: over all requests the mean is another than that of the runs' means.
    let second = Set {
        response_us: vec![1_000, 1_020, 1_400, 1_390],
        few_from_us: 1_300,
        machine: "loud",
        start: 30,
        ..Set::default()
    };
    let third = Set { machine: "loud", start: 1_000, ..Set::default() };
    let sets = [("first", Set::default()), ("v1.2", second), ("third", third)];
    let paths = sets.each_ref().map(|(name, set)| {
        let path = folder.path().join(name);
        set.store(&path);
        path
    });
    let compare = |paths: &[PathBuf], format: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
        command.arg("compare").args(paths).args(["--no-report", "--format", format]);
        command.output().unwrap().stdout
    };
    let json = |paths: &[PathBuf]| -> serde_json::Value {
        serde_json::from_slice(&compare(paths, "json")).unwrap()
    };
    let (alone, all) = (json(&paths[..2]), json(&paths));
    let of_second: Vec<&serde_json::Value> = all["comparisons"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["configuration"].as_str().unwrap().contains("v1.2: clients="))
        .collect();
    let by_itself = alone["comparisons"].as_array().unwrap();
    // Two metrics of two configurations; p99 has too few requests.
    assert_eq!((of_second.len(), by_itself.len()), (4, 4), "{all:#}");
    for (one, beside) in by_itself.iter().zip(of_second) {
        assert_eq!((&one["before"], &one["after"]), (&beside["before"], &beside["after"]));
        assert_eq!((&one["metric"], &one["runs"]), (&beside["metric"], &beside["runs"]));
    }
    // The third was measured afterwards, so nothing pairs; both ran on another machine.
    assert_eq!((caveats(&alone, "not-paired"), caveats(&all, "not-paired")), (0, 1));
    assert_eq!((caveats(&alone, "conditions-differ"), caveats(&all, "conditions-differ")), (1, 2));
    let what = |at: usize| all["differences"][at]["what"].as_str().unwrap();
    assert!(what(0).ends_with("v1.2: machine") && what(1).ends_with("third: machine"), "{all:#}");
    let text = String::from_utf8(compare(&paths, "human")).unwrap();
    // A table of 80 columns breaks the folder's name wherever it must.
    let unbroken: String = text.lines().filter_map(|line| line.split('┆').next()).collect();
    let letters: String = unbroken.chars().filter(|c| !" │\n".contains(*c)).collect();
    assert!(letters.contains("v1.2:clients=4"), "{text}");
    // What no set says twice is said once.
    let said = all["caveats"].as_array().unwrap();
    let twice = said.iter().enumerate().any(|(at, one)| said[..at].contains(one));
    assert!(!twice, "{said:#?}");
}

#[test]
fn a_trend_names_the_set_from_which_on_it_is_worse() {
    let steps: Vec<u64> = (0..12).map(|set| if set < 7 { 1_000 } else { 1_300 }).collect();
    let (answer, code) = over(&steps, &["--trend"]);
    assert_eq!(code, 4, "{answer}");
    for trend in answer["trends"].as_array().unwrap() {
        let [change] = trend["changes"].as_array().unwrap().as_slice() else { panic!("{trend}") };
        assert!(change["set"].as_str().unwrap().ends_with("set07"), "{change}");
        assert_eq!(change["worse"], true, "{change}");
    }
    // A configuration that the first set lacks is a series of the others; of five sets none is one.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
    command.arg("compare");
    for number in 0..7 {
        let mut clients = vec![4];
        clients.extend((number > 0).then_some(16));
        clients.extend((number > 1).then_some(64));
        let set = folder.path().join(number.to_string());
        Set { clients, ..Set::default() }.store(&set);
        command.arg(set);
    }
    command.args(["--trend", "--metric", "throughput", "--format", "json"]);
    let answer: serde_json::Value =
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let sets = |at: usize| answer["trends"][at]["sets"].as_array().map_or(0, Vec::len);
    assert_eq!((sets(0), sets(1), sets(2)), (7, 6, 0), "{answer:#}");
    let left_out = answer["left_out"][0].as_str().unwrap();
    assert!(left_out.contains("clients=64: 5 of 7 sets have it"), "{left_out}");
    let (answer, code) = over(&[1_000; 12], &["--trend"]);
    assert_eq!(code, 0, "{answer}");
    let mut trends = answer["trends"].as_array().unwrap().iter();
    assert!(trends.all(|trend| trend["changes"].as_array().unwrap().is_empty()), "{answer}");
}
