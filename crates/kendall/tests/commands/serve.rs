//! Servers as a machine's user has them: few descriptors, and clients of another protocol.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use kendall_testing::Process;
use kendall_tier::{ACCEPT_PAUSE_NS, Clock};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::kendall;

/// A tier that may open so many files.
fn with_files(files: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let exec = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
    command.args(["-c", &exec, env!("CARGO_BIN_EXE_kendall"), "serve"]).args(arguments);
    command
}

/// It tries again after a pause: each further try in the same pause would be one of a busy loop.
#[test]
fn a_station_without_descriptors_for_its_clients_waits_for_them() {
    let tier = ["synthetic", "--listen", "127.0.0.1:0", "--service", "constant:1ms"];
    let more = ["--workers", "1", "--seed", "1", "--format", "json"];
    let clock = Clock::monotonic();
    let began_ns = clock.now_ns();
    let mut command = with_files(32, &[&tier[..], &more].concat());
    let (mut process, ready) = Process::ready(command.stdout(Stdio::piped()));
    let address = ready.address("listen");
    let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(300));
    drop(clients);
    kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
    let said = std::io::read_to_string(process.0.stdout.take().unwrap()).unwrap();
    let tries_within = (clock.now_ns() - began_ns) / ACCEPT_PAUSE_NS + 1;
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let tries = said["limits_hit"]["descriptors"].as_u64().unwrap();
    assert!((1..=tries_within).contains(&tries), "{tries} tries in {tries_within} pauses");
}

#[test]
fn a_server_without_files_for_its_clients_does_not_start() {
    for tier in ["compute", "synthetic", "cache", "queue"] {
        let output = with_files(16, &[tier, "--listen", "127.0.0.1:0"]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{tier}: {error}");
        assert!(error.contains("may have 16 open files"), "{tier}: {error}");
        assert!(error.contains("ulimit -Hn"), "{tier}: {error}");
    }
}

#[test]
fn a_server_with_few_files_says_how_many_clients_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = with_files(64, &["compute", "--listen", "127.0.0.1:0"]);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let _process = Process(command.spawn().unwrap());
    kendall_testing::wait_until("the warning", || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.contains("connections=32 allowed=10000")
    });
}

#[test]
fn a_client_of_the_queue_knows_another_server() {
    let tier = ["serve", "compute", "--listen", "127.0.0.1:0"];
    let (_process, ready) = Process::ready(kendall().args(tier).stdout(Stdio::null()));
    let address = ready.address("listen").to_string();
    let mut command = kendall();
    let output = command.args(["queue", "create", "jobs", "--server", &address]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(
        error.contains(&format!("what answers at {address} is not a message queue")),
        "{error}"
    );
}
