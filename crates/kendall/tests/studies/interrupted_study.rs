//! A study that is killed at any instant goes on; nothing that it started is left behind.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{KILLED_STUDY, kendall, processes_with, start_marked, wait_until};
use kendall_store::{Results, Status};

fn start(study: &Path, out: &Path) -> Child {
    let mut command = kendall();
    command.arg("run").arg(study).arg("--no-report").arg("--out").arg(out);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn runs(out: &Path) -> usize {
    Results::open(out).and_then(|results| results.runs()).map_or(0, |runs| runs.len())
}

#[test]
fn killed_several_times_it_goes_on_and_leaves_no_process_behind() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("killed.toml");
    std::fs::write(&study, KILLED_STUDY).unwrap();
    let out = folder.path().join("results");
    let mark = format!("kendall-test-{}", std::process::id());
    let mut stored = BTreeSet::new();
    // At the start, while tiers start, while load runs, and just after a run was stored.
    for (kill, before) in [(0, 0), (1, 1), (2, 2), (3, 3)].into_iter().enumerate() {
        let mut child = start_marked(&study, &out, &mark);
        wait_until("progress", || match kill {
            0 => processes_with(&mark).len() > 2,
            1 => runs(&out) >= before.1 && processes_with(&mark).len() > 3,
            _ => runs(&out) >= before.1,
        });
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until("the end of all processes", || processes_with(&mark).is_empty());
        if let Ok(results) = Results::open(&out) {
            let now: BTreeSet<_> = results
                .runs()
                .unwrap()
                .iter()
                .map(|run| (run.id, run.configuration, run.repetition))
                .collect();
            assert!(now.is_superset(&stored), "a run that had ended was lost");
            stored = now;
        }
    }
    let status = start(&study, &out).wait().unwrap();
    assert!(matches!(status.code(), Some(0 | 5)), "{status}");
    let results = Results::open(&out).unwrap().runs().unwrap();
    assert_eq!(results.len(), 6, "each planned run once, none twice");
    let keys: BTreeSet<_> = results.iter().map(|run| (run.configuration, run.repetition)).collect();
    assert_eq!(keys.len(), 6);
    assert!(results.iter().all(|run| run.attempt == 0 && run.status != Status::Failed));
    wait_until("the end of all processes", || processes_with(&mark).is_empty());
}

#[test]
fn a_tier_that_dies_is_a_failed_run_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("dead.toml");
    std::fs::write(
        &study,
        KILLED_STUDY.replace("300ms", "20s").replace("repetitions = 3", "repetitions = 1"),
    )
    .unwrap();
    let out = folder.path().join("results");
    let mark = format!("kendall-dead-{}", std::process::id());
    let mut child = start_marked(&study, &out, &mark);
    // Twice, since there are two configurations.
    for run in 0..2 {
        let mut victims = Vec::new();
        wait_until("load", || {
            let marked = processes_with(&mark);
            let named = |pid: &u32, name: &str| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).replace('\0', " ").starts_with(name)
            };
            victims = marked.iter().copied().filter(|pid| named(pid, "memcached ")).collect();
            let loads = std::fs::read_dir(out.join("logs")).map_or(0, |logs| {
                logs.flatten().filter(|log| log.path().join("generator.0/log").exists()).count()
            });
            runs(&out) == run && loads == run + 1 && !victims.is_empty()
        });
        for victim in victims {
            Command::new("kill").args(["-9", &victim.to_string()]).status().unwrap();
        }
        wait_until("the failed run", || runs(&out) == run + 1);
    }
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(3), "documented: environment not ready");
    let results = Results::open(&out).unwrap();
    for run in results.runs().unwrap() {
        assert_eq!(run.status, Status::Failed);
        let reason = run.reasons.join("; ");
        assert!(reason.contains("servers 0 ended with signal: 9"), "{reason}");
    }
    let again = kendall().arg("run").arg(&study).arg("--out").arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("2 already done, 2 of them failed: --retry-failed"), "{said}");
    wait_until("the end of all processes", || processes_with(&mark).is_empty());
}

#[test]
fn a_folder_of_another_study_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("killed.toml");
    let small = KILLED_STUDY.replace("repetitions = 3", "repetitions = 1").replace("[1, 2]", "[1]");
    std::fs::write(&study, &small).unwrap();
    let out = folder.path().join("results");
    let status = start(&study, &out).wait().unwrap();
    assert!(matches!(status.code(), Some(0 | 5)), "{status}");
    let refused = |out: &Path, sets: &[&str], key: &str| {
        let mut command = kendall();
        command.arg("run").arg(&study).arg("--out").arg(out).args(sets);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains(&format!("other values of {key}")) && text.contains("--out"),
            "{text}"
        );
    };
    refused(&out, &["--set", "seed=7"], "seed");
    std::fs::write(&study, small.replace("300ms", "400ms")).unwrap();
    refused(&out, &[], "measure.duration");
    // What was set differs as well as what the file says.
    let set = folder.path().join("set");
    let mut command = kendall();
    command.arg("run").arg(&study).arg("--out").arg(&set).args(["--set", "seed=7"]);
    let status = command.output().unwrap().status;
    assert!(matches!(status.code(), Some(0 | 5)), "{status}");
    refused(&set, &[], "seed");
}
