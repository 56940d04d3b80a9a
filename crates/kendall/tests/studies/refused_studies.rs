//! Study files that are refused: what `kendall run` says of each, word for word. Files are in
//! `refused/`; `UPDATE=1 cargo test -p kendall --test studies refused_studies` rewrites what is expected.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;

use crate::support::kendall;

#[test]
fn bad_study_files_are_refused_with_line_key_value_and_accepted_form() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/studies/refused");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    files.sort();
    assert!(files.len() >= 20);
    let mut said = String::new();
    for file in &files {
        let output =
            kendall().args(["run", "--dry-run", file]).current_dir(&folder).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{file}: {text}");
        assert!(output.stdout.is_empty(), "{file}");
        assert!(text.starts_with(&format!("error: {file}:")), "{file}: {text}");
        said.push_str(&text);
    }
    let expected = folder.join("expected.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&expected, &said).unwrap();
    }
    assert_eq!(said, std::fs::read_to_string(&expected).unwrap());
}

#[test]
fn a_missing_file_says_what_to_give() {
    let output = kendall().args(["run", "no-such-file.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("no-such-file.toml") && text.contains("studies/demo.toml"), "{text}");
}

#[test]
fn a_dry_run_prints_defaults_and_the_runs_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("small.toml");
    let text = "name = 'small'\n[system]\nkind = 'memcached'\n[workload]\nmix = { get = 1 }\n\
                [factors]\n'workload.clients' = [1, 2]\n";
    std::fs::write(&study, text).unwrap();
    let run = |format: &str| dry_run(folder.path(), format);
    let human = run("human");
    assert!(human.contains("value_size = \"1KiB\"") && human.contains("6 runs"), "{human}");
    let json: serde_json::Value = serde_json::from_str(&run("json")).unwrap();
    assert_eq!(json["runs"].as_array().unwrap().len(), 6);
    assert_eq!(json["effective"]["measure"]["warm_up"], "auto");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was written");
}

const SMALL: &str = "name = 'small'\n[system]\nkind = 'message-queue'\n[measure]\n\
                     repetitions = 1\n[factors]\n'system.workers' = [10, 50]\n\
                     'system.connections' = 'same as system.workers'\n";

#[test]
fn a_key_may_be_tied_to_a_factor() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    let json: serde_json::Value = serde_json::from_str(&dry_run(folder.path(), "json")).unwrap();
    assert_eq!(json["runs"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!(json["effective"]["factors"][0]["tied"][0], "system.connections");
    assert_eq!(json["effective"]["system"]["connections"], 10);
}

#[test]
fn any_key_can_be_replaced_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    let run = |sets: &[&str]| {
        let mut command = kendall();
        command.current_dir(folder.path()).args(["run", "small.toml", "--dry-run"]);
        command.args(["--format", "json"]);
        for set in sets {
            command.args(["--set", set]);
        }
        command.output().unwrap()
    };
    let output = run(&["measure.duration=5s", "workload.clients=8", "workload.calls=stream"]);
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["effective"]["measure"]["duration"], "5s");
    assert_eq!(json["effective"]["workload"]["clients"], 8);
    assert_eq!(json["effective"]["workload"]["calls"], "stream");
    for (set, says) in [
        ("measure.duratoin=5s", "did you mean `duration`"),
        ("measure.duration=5", "--set measure.duration=5: measure.duration: `5` is not a time"),
        ("system.workers=5", "is varied by a factor"),
        ("measure.duration", "write KEY=VALUE"),
    ] {
        let output = run(&[set]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(says), "{set}: {text}");
    }
    let output = run(&["factors.system.workers=[4]"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["runs"].as_array().unwrap().len(), 1, "{json}");
}

#[test]
fn a_program_that_is_not_there_is_told_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = 'small'\n[system]\nkind = 'processes'\n[[system.tiers]]\nname = 'web'\n\
                command = ['no-such-program-at-all', '{port}']\n";
    std::fs::write(folder.path().join("small.toml"), text).unwrap();
    for more in [&["--dry-run"][..], &[]] {
        let mut command = kendall();
        let output =
            command.current_dir(folder.path()).args(["run", "small.toml"]).args(more).output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("`no-such-program-at-all` is not installed"), "{text}");
    }
}

/// How clients of the queue call is a factor like any other, also of a design of two levels.
#[test]
fn how_a_queue_is_called_is_a_factor() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = 'small'\n[system]\nkind = 'message-queue'\n[workload]\nconnections = 2\n\
                [measure]\nrepetitions = 1\n[factors]\n'workload.calls' = ['single', 'stream']\n\
                'workload.clients' = [8, 64]\n[design]\nkind = '2kr'\n";
    std::fs::write(folder.path().join("small.toml"), text).unwrap();
    let json: serde_json::Value = serde_json::from_str(&dry_run(folder.path(), "json")).unwrap();
    assert_eq!(json["effective"]["workload"]["calls"], "single");
    let human = dry_run(folder.path(), "human");
    let rows: Vec<&str> = human.lines().filter(|line| line.contains("stream")).collect();
    assert_eq!(rows.len(), 2, "{human}");
    assert!(human.contains("workload.calls ┆ workload.clients"), "{human}");
}

fn dry_run(folder: &Path, format: &str) -> String {
    let output = kendall()
        .current_dir(folder)
        .args(["run", "small.toml", "--dry-run", "--format", format])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
