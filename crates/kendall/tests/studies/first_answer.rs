//! A study of an own service that lasts has a first answer, and when it is stopped, the best one so far.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{kendall, wait_until};

/// Two minutes of runs: too long to wait for. What its first pass is planned to take, tests of the study crate say.
fn study(folder: &Path) {
    let program = env!("CARGO_BIN_EXE_kendall");
    let text = format!(
        "name = 'own'\n[system]\nkind = 'processes'\n[[system.tiers]]\nname = 'web'\nready = {{ http = '/' }}\n\
         command = ['{program}', 'serve', 'synthetic', '--service', 'constant:5ms', '--workers', '2', \
         '--metrics', '127.0.0.1:0', '--listen', '{{address}}']\n\
         [workload]\nprotocol = 'http'\nloop = 'closed'\npath = '/'\n\
         [measure]\nduration = '20s'\nrepetitions = 3\n[factors]\n'workload.clients' = [1, 8]\n"
    );
    std::fs::write(folder.join("own.toml"), text).unwrap();
}

fn start(folder: &Path, session: &str) -> Child {
    let file = |end: &str| std::fs::File::create(folder.join(format!("{session}.{end}"))).unwrap();
    let mut command = kendall();
    command.args(["run", "own.toml", "--format", "json", "--out", "out"]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn().unwrap()
}

fn said(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap_or_default()
}

/// Stops it as Ctrl-C does, and reads what it answers.
fn interrupt(mut child: Child, folder: &Path, session: &str) -> Value {
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let status = child.wait().unwrap();
    let error = said(folder, &format!("{session}.err"));
    assert_eq!(status.code(), Some(1), "{error}");
    assert!(error.contains("the same command resumes it"), "{error}");
    let answer: Value = serde_json::from_str(&said(folder, &format!("{session}.out"))).unwrap();
    assert_eq!(answer["interrupted"], true, "{answer}");
    answer
}

#[test]
fn an_interrupt_leaves_the_best_answer_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    study(here);
    // After the first run of the first pass that can be used: a machine that is full may spoil one.
    let child = start(here, "one");
    let used = |line: &str| line.starts_with("run ") && !line.contains("REJECTED");
    wait_until("a run", || said(here, "one.err").lines().any(used));
    let first = interrupt(child, here, "one");
    assert!(first["runs_done"].as_u64().unwrap() >= 1, "{first}");
    // What it says depends on how busy the machine is.
    assert!(first["answer"]["answer"].is_string(), "{first}");
    // The first pass goes on, and its answer is told before the study's own runs.
    let child = start(here, "two");
    wait_until("the study's own runs", || here.join("out/logs").is_dir());
    let error = said(here, "two.err");
    assert!(error.contains("first answer, from short runs"), "{error}");
    assert!(error.contains("question ") && error.contains("next run "), "{error}");
    let second = interrupt(child, here, "two");
    assert_eq!(second["runs_done"], 0, "{second}");
    assert_eq!(second["answer_of"], "first-pass", "{second}");
    assert!(second["answer"]["answer"].is_string(), "{second}");
    assert!(here.join(second["report"].as_str().unwrap()).is_file(), "{second}");
    // A mended file has a first pass of its own; nothing of the one before is lost.
    let mended = said(here, "own.toml").replace("[1, 8]", "[2, 8]");
    std::fs::write(here.join("own.toml"), mended).unwrap();
    let child = start(here, "three");
    wait_until("a run", || said(here, "three.err").contains("run 1/4"));
    let third = interrupt(child, here, "three");
    assert!(third["folder"].as_str().unwrap().ends_with("first-pass-2"), "{third}");
    assert!(here.join("out/first-pass/results.db").is_file());
}
