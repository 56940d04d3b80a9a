//! `kendall fit` on files: what it prints, and how it refuses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::json;

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn fit(arguments: &[&str], path: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kendall"))
        .args(["fit", arguments[0]])
        .arg(path)
        .args(&arguments[1..])
        .output()
        .unwrap()
}

#[track_caller]
fn refused(output: &Output, expected: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains(expected), "{message}");
}

#[test]
fn usl_prints_what_was_published_and_draws_it() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../queueing/tests/data/build-cluster-usl.csv");
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("usl.svg");
    let output =
        fit(&["usl", "--predict", "16,32,64", "--plot", plot.to_str().unwrap()], Path::new(data));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["0.0680652", "0.0075417", "8.286", "0.2835", "121.7", "41.18315", "extrapolated"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(std::fs::read_to_string(plot).unwrap().starts_with("<svg xmlns="));
    let answer = json(&fit(&["usl", "--format", "json"], Path::new(data)));
    assert!((answer["peak_load"].as_f64().unwrap() - 13.66).abs() < 0.005);
    assert!(answer["alpha"]["standard_error"].as_f64().is_some());
    let efficiency = answer["efficiencies"][11]["efficiency"].as_f64().unwrap();
    assert!((efficiency - 41.63 / (12.0 * 8.286_142)).abs() < 1e-6, "{efficiency}");
    // A folder of results is as its table of configurations.
    let tables = folder.path().join("tables");
    std::fs::create_dir(&tables).unwrap();
    std::fs::copy(data, tables.join("configurations.csv")).unwrap();
    assert_eq!(json(&fit(&["usl", "--format", "json"], folder.path())), answer);
}

/// Curves of other workers or another mix are no measurements of one law.
#[test]
fn of_several_curves_in_a_folder_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join("tables");
    std::fs::create_dir(&tables).unwrap();
    let mut text =
        "workload.mix,system.workers,workload.clients,repetitions,throughput_per_s\n".to_owned();
    for (mix, gamma) in [("get=1", 10.0), ("set=1", 5.0)] {
        for n in [1.0, 2.0, 4.0, 8.0, 16.0] {
            text.push_str(&format!("{mix},8,{n},3,{}\n", gamma * n / (1.0 + 0.1 * (n - 1.0))));
        }
    }
    let _ = file(&tables, "configurations.csv", &text);
    let said = "workload.mix varies beside the load workload.clients (get=1, set=1), and the law is of \
                one curve; choose it with --at workload.mix=get=1";
    refused(&fit(&["usl"], folder.path()), said);
    let fitted =
        json(&fit(&["usl", "--at", "workload.mix=set=1", "--format", "json"], folder.path()));
    assert_eq!(fitted["measurements"], 5);
    assert!((fitted["gamma"]["value"].as_f64().unwrap() - 5.0).abs() < 1e-3, "{fitted}");
    refused(&fit(&["usl", "--at", "workload.mix=cas=1"], folder.path()), "which has get=1, set=1");
}

/// α is 1, and β is 0 or rounding of it: neither a fall nor growth.
#[test]
fn a_constant_throughput_neither_falls_nor_grows() {
    let folder = tempfile::tempdir().unwrap();
    let flat = file(folder.path(), "flat.csv", "load,throughput\n1,1\n2,1\n3,1\n4,1\n");
    let output = fit(&["usl"], &flat);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("throughput does not rise beyond N 1"), "{text}");
}

#[test]
fn refusals_name_file_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let bad = file(folder.path(), "bad.csv", "load,throughput\n1,10\n# remark\n2,many\n");
    refused(&fit(&["usl"], &bad), "bad.csv:4: column `throughput` (2): `many` is not a number");
    let ragged = file(folder.path(), "ragged.csv", "load,throughput\n1,10\n2\n");
    refused(&fit(&["usl"], &ragged), "ragged.csv:3: 1 field where the first line has 2");
    let negative = file(folder.path(), "negative.csv", "n,x\n1,10\n-2,20\n3,30\n4,40\n5,50\n");
    refused(&fit(&["usl"], &negative), "negative.csv:3:");
    let empty = file(folder.path(), "empty.csv", "");
    refused(&fit(&["distribution"], &empty), "empty.csv: the file is empty");
    refused(&fit(&["demands"], &folder.path().join("none.csv")), "none.csv: cannot be read");
    let few = file(folder.path(), "few.csv", "load,throughput\n1,10\n2,20\n");
    refused(&fit(&["usl"], &few), "2 measurements at 2 different loads");
    refused(&fit(&["usl", "--load", "users"], &few), "no column `users`");
}

#[test]
fn demands_of_several_classes_and_resources_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut text =
        "utilization_cpu_percent,utilization_disk,throughput_get,throughput_set\n".to_owned();
    for (get, set) in [(100.0, 10.0), (200.0, 50.0), (50.0, 90.0), (150.0, 20.0), (10.0, 5.0)] {
        let cpu = 100.0 * (0.001 * get + 0.004 * set) / 2.0;
        let disk = 0.0005 * get + 0.002 * set;
        text.push_str(&format!("{cpu},{disk},{get},{set}\n"));
    }
    let path = file(folder.path(), "loads.csv", &text);
    let answer = json(&fit(&["demands", "--servers", "2,1", "--format", "json"], &path));
    let center = |resource: usize, class: usize| {
        answer["resources"][resource]["demands"][class]["estimate"]["center"].as_f64().unwrap()
    };
    assert!((center(0, 0) - 0.001).abs() < 1e-9 && (center(0, 1) - 0.004).abs() < 1e-9);
    assert!((center(1, 0) - 0.0005).abs() < 1e-9 && (center(1, 1) - 0.002).abs() < 1e-9);
    let text = fit(&["demands", "--servers", "2,1", "--background"], &path);
    assert!(String::from_utf8_lossy(&text.stdout).contains("condition number"));
}

#[test]
fn a_distribution_is_named_and_the_cost_of_exponential_said() {
    let folder = tempfile::tempdir().unwrap();
    // Quantiles of an exponential with mean 10 ms.
    let times: String =
        (1..300).map(|i| format!("{}\n", -10.0 * (1.0 - f64::from(i) / 300.0).ln())).collect();
    let path = file(folder.path(), "times.csv", &format!("service\n{times}"));
    let answer = json(&fit(&["distribution", "--unit", "ms", "--format", "json"], &path));
    assert!((answer["mean_s"]["center"].as_f64().unwrap() - 0.01).abs() < 2e-4);
    let text = fit(&["distribution", "--unit", "ms"], &path);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("exponential") && text.contains("hardly matters"), "{text}");
}

/// More than a full server and an error of measurement: refused, unless `--clip` takes it as 1.
#[test]
fn a_utilization_far_above_1_is_clipped_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let rows = "utilization_cpu,throughput\n0.2,20\n0.41,40\n0.79,80\n1.35,100\n";
    let data = file(folder.path(), "over.csv", rows);
    refused(&fit(&["demands"], &data), "--clip");
    let answer = json(&fit(&["demands", "--clip", "--format", "json"], &data));
    let resource = &answer["resources"][0];
    assert_eq!(resource["clipped"], 1);
    assert_eq!(resource["clipped_up_to"], 1.35);
    let output = fit(&["demands", "--clip"], &data);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 of 4 utilizations up to 1.35 were taken as 1"), "{text}");
}
