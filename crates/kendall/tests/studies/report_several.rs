//! `kendall report DIR DIR`: the highest throughput of each curve of each study, on one page.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be done fails it")]

use std::path::{Path, PathBuf};

use crate::support::kendall;

/// A study of a station of known service times under three loads, and what it stored.
fn study(folder: &Path, name: &str, service: &str) -> PathBuf {
    let file = folder.join(format!("{name}.toml"));
    let text = format!(
        "name = '{name}'\n[system]\nkind = 'synthetic'\nservice = '{service}'\n\
         [workload]\nloop = 'closed'\n\
         [measure]\nduration = '1s'\nwarm_up = '0s'\ncool_down = '0s'\nrepetitions = 2\n\
         [factors]\n'workload.clients' = [1, 2, 3]\n'system.workers' = [1, 2]\n"
    );
    std::fs::write(&file, text).unwrap();
    let out = folder.join(name);
    let output =
        kendall().arg("run").arg(&file).arg("--out").arg(&out).arg("--no-report").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // A busy machine may make a run unusable; what is stored is enough here.
    assert!(matches!(output.status.code(), Some(0 | 5)), "{said}");
    out
}

#[test]
fn two_studies_are_joined_and_columns_are_those_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["baseline-of-one-server-alone", "baseline-of-two-servers-together"];
    let one = study(folder.path(), names[0], "constant:2ms");
    let two = study(folder.path(), names[1], "constant:8ms");
    let out = folder.path().join("joined");
    let run = |format: &[&str]| {
        let mut command = kendall();
        command.arg("report").args([&one, &two]).arg("--out").arg(&out).args(format);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&[]);
    for name in names {
        assert_eq!(text.matches(&format!("{name}, ")).count(), 2, "a row a curve:\n{text}");
    }
    // Paths of the files may be as long as they are.
    let shown = text.lines().filter(|line| !line.contains(out.to_str().unwrap()));
    for line in shown {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    // One study with its summary, as narrow as it is asked to be.
    let narrow = kendall().arg("report").arg(&one).env("COLUMNS", "40").output().unwrap();
    let narrow = String::from_utf8(narrow.stdout).unwrap();
    assert!(narrow.contains("next run"), "{narrow}");
    for line in narrow.lines().filter(|line| !line.contains(one.to_str().unwrap())) {
        assert!(line.chars().count() <= 40, "{} columns: {line}", line.chars().count());
    }
    let report: serde_json::Value = serde_json::from_str(&run(&["--format", "json"])).unwrap();
    let rows = report["sections"][0]["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|block| block["content"]["id"] == "maxima")
        .unwrap()["content"]["rows"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(rows.len(), 4, "{rows:#?}");
    let highest = |study: &str, curve: &str| {
        let row = rows.iter().find(|row| row["study"] == study && row["curve"] == curve);
        let cell = &row.unwrap()["throughput_per_s"];
        cell["center"].as_f64().or(cell.as_f64()).unwrap()
    };
    // A station of m servers of S does m/S at most: 2 workers of 2 ms more than one of 8 ms.
    assert!(highest(names[0], "2 workers") > highest(names[1], "1 worker"));
    // In a second one server of 8 ms ends 125 and the one that was under way, and the clients' processes may
    // have left the answers to all three of them lie until then. A mean over runs is no more than the most.
    assert!(highest(names[1], "1 worker") <= 125.0 + 1.0 + 3.0);
    assert!(out.join("across.html").exists() && out.join("tables/maxima.csv").exists());
}

#[test]
fn of_one_study_there_is_nothing_to_join() {
    let output = kendall().args(["report", "results/none", "--out", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--out is for the page of several folders"), "{said}");
}
