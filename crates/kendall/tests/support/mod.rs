//! What tests of studies share.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and stops at surprises")]

pub(crate) mod browser;
pub(crate) mod keys;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

#[allow(unused_imports, reason = "each test uses a part")]
pub(crate) use kendall_testing::wait_until;

/// The program under test.
pub(crate) fn kendall() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kendall"))
}

/// The folder that holds `studies/`.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The JSON that a command printed, whatever its exit code.
pub(crate) fn printed(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

/// The JSON of a command that succeeded.
pub(crate) fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    printed(output)
}

/// Runs a study file at toy size, into a folder.
pub(crate) fn run_toy(study: &Path, out: &Path) -> Output {
    kendall()
        .arg("run")
        .arg(study)
        .args(["--toy", "--format", "json", "--out"])
        .arg(out)
        .output()
        .unwrap()
}

/// A small study of memcached behind a link, to be killed while it runs.
pub(crate) const KILLED_STUDY: &str = r#"
name = "killed"
[system]
kind = "memcached"
[links]
"clients -> servers" = { delay = "0.1ms" }
[workload]
clients = 2
mix = { get = 1 }
keys = 100
[measure]
duration = "300ms"
warm_up = "0s"
cool_down = "0s"
repetitions = 3
[factors]
"workload.clients" = [1, 2]
"#;

/// Starts a study. Everything that it starts has the mark in its environment.
pub(crate) fn start_marked(study: &Path, out: &Path, mark: &str) -> Child {
    let mut command = kendall();
    command.env("KENDALL_TEST_MARK", mark);
    command.arg("run").arg(study).arg("--no-report").arg("--out").arg(out);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Process ids that have the mark in their environment, and these words in their command line.
pub(crate) fn marked_processes(mark: &str, words: &str) -> Vec<u32> {
    let holds = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
    };
    processes_with(mark).into_iter().filter(holds).collect()
}

/// Process ids whose command line holds `text`.
pub(crate) fn processes_with(text: &str) -> Vec<u32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
            holds(&line) || holds(&environment)
        })
        .collect()
}
