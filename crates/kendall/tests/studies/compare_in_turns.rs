//! `kendall compare --run`: two versions in turns, on a system whose service time is known.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be done fails it")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use kendall_store::Results;

use crate::support::kendall;

const STUDY: &str = r#"
name = "turns"

[system]
kind = "synthetic"
service = "constant:4ms"

[workload]
loop = "closed"
clients = 1
path = "/"

[measure]
duration = "300ms"
warm_up = "0s"
cool_down = "0s"
"#;

fn study(folder: &Path) -> String {
    let path = folder.join("turns.toml");
    std::fs::write(&path, STUDY).unwrap();
    path.display().to_string()
}

fn in_turns(folder: &Path, more: &[&str]) -> Output {
    let mut command: Command = kendall();
    command.args(["compare", "--run", &study(folder)]);
    command.args(["--out", &folder.join("out").display().to_string()]);
    command.args(["--metric", "throughput", "--metric", "response_time_mean"]);
    command.args(more).env("KENDALL_LOG", "warn").output().unwrap()
}

/// Moments at which the runs of a side began.
fn starts(folder: &Path, side: &str) -> Vec<u64> {
    let results = Results::open(&folder.join("out").join(side)).unwrap();
    results.runs().unwrap().iter().map(|run| run.started_unix_ns).collect()
}

/// Ten times the work: significant in a few blocks however busy the machine is. The first line says it,
/// the exit code is 4, the two sides took turns, and the same command has nothing left to run.
#[test]
fn a_slower_version_is_told_and_the_blocks_alternate() {
    let folder = tempfile::tempdir().unwrap();
    let slower = ["--set-after", "system.service=constant:40ms", "--blocks", "3..6"];
    let output = in_turns(folder.path(), &slower);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}{said}");
    assert!(text.starts_with("verdict: regression: "), "{text}");
    assert!(folder.path().join("out/comparison.html").is_file());
    let (before, after) = (starts(folder.path(), "before"), starts(folder.path(), "after"));
    assert_eq!(before.len(), after.len());
    // No side runs twice before the other ran once.
    for block in 1..before.len() {
        assert!(before[block] > after[block - 1] && after[block] > before[block - 1]);
    }
    let again = in_turns(folder.path(), &[&slower[..], &["--format", "json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(json["verdict"], "regression", "{json:#}");
    assert_eq!(starts(folder.path(), "before"), before);
}

/// One file alone, compared with itself, as noisy as this machine may be: whatever is said, it is no
/// more than the intervals carry, and no regression beyond a bound of nine tenths.
#[test]
fn the_same_version_is_no_regression_and_its_largest_difference_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        in_turns(folder.path(), &["--blocks", "3..4", "--bound", "90%", "--format", "json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let answer = json["answer"].as_str().unwrap();
    let equivalent =
        json["verdict"] == "equivalent" && answer.contains("no difference larger than");
    let unknown =
        json["verdict"] == "inconclusive" && answer.contains("cannot tell after 4 blocks");
    assert!(equivalent || unknown, "{json:#}");
    assert!(json["no_difference_larger_than"].as_f64().unwrap() >= 0.0);
}

/// The recipe of docs/compare.md, as its CI runs it: the study and the command are taken from the
/// page. Two builds of one service stand before it; the new one does ten times the work.
#[test]
fn the_recipe_of_the_documents_finds_a_slower_build() {
    let page =
        std::fs::read_to_string(crate::support::repository().join("docs/compare.md")).unwrap();
    let study = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let commands: Vec<&str> = page
        .lines()
        .filter_map(|line| Some(line.split_once("- ")?.1.trim_start_matches("run: ")))
        .filter(|line| line.starts_with("kendall compare --run perf/"))
        .collect();
    assert_eq!(commands.len(), 2, "one for each of the two services");
    assert_eq!(commands[0], commands[1]);
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    for (build, service) in [("before/bin", "4ms"), ("bin", "40ms")] {
        std::fs::create_dir_all(at(build)).unwrap();
        let shop = format!(
            "#!/bin/sh\nexec kendall serve synthetic --listen \"$1\" --metrics 127.0.0.1:0 \
             --service constant:{service}\n"
        );
        let path = at(build).join("shop");
        std::fs::write(&path, shop).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::create_dir_all(at("perf")).unwrap();
    std::fs::write(at("perf/shop.toml"), study).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_kendall")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let short = "--toy --blocks 3..6 --metric throughput --metric response_time_mean";
    let output = Command::new("sh")
        .args(["-c", &format!("{} {short}", commands[0])])
        .current_dir(folder.path())
        .env("PATH", path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}{said}");
    assert!(text.starts_with("verdict: regression"), "{text}");
    assert!(at("perf/out/comparison.html").is_file());
}

#[test]
fn what_cannot_be_compared_in_turns_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    for flag in ["--set-before", "--set-after", "--set"] {
        let output = in_turns(folder.path(), &[flag, "system.sevice=constant:1ms"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let named = format!("{flag} system.sevice=constant:1ms: ");
        assert!(said.contains(&named) && said.contains("service"), "{said}");
    }
    let output = in_turns(folder.path(), &["--set-after", "system.seed=2", "--blocks", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!folder.path().join("out").exists());
}
