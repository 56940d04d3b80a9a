//! Servers as a machine's user has them: few descriptors, and clients of another protocol.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use kendall_testing::Process;
use kendall_tier::{ACCEPT_PAUSE_NS, Clock};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

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
    let more = ["--workers", "1", "--seed", "1", "--format", "json", "--connections", "32"];
    let clock = Clock::monotonic();
    let began_ns = clock.now_ns();
    let mut command = with_files(64, &[&tier[..], &more].concat());
    let (mut process, ready) = Process::ready(command.stdout(Stdio::piped()));
    let address = ready.address("listen");
    // It keeps descriptors for itself: so that it has too few, some are taken from it.
    let fewer = Rlimit { current: Some(16), maximum: Some(64) };
    prlimit(Some(Pid::from_child(&process.0)), Resource::Nofile, fewer).unwrap();
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
    let station = ["synthetic", "--service", "constant:1ms", "--workers", "1", "--seed", "1"];
    // One connection for each worker and one for probes, two descriptors of the thread, and 40 more.
    let proxy = ["proxy", "--server", "127.0.0.1:1", "--mode", "worker", "--workers", "64"];
    for (files, tier, says) in [
        (64, &["compute"][..], "connections=32 allowed=10000"),
        (64, &station[..], "connections=32 allowed=10000"),
        (28, &station[..], "connections=8 allowed=10000"),
        (256, &proxy[..], "connections=149 allowed=16384"),
    ] {
        let mut command = with_files(files, &[tier, &["--listen", "127.0.0.1:0"]].concat());
        command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
        let _process = Process(command.spawn().unwrap());
        kendall_testing::wait_until(says, || std::fs::read_to_string(&log).unwrap().contains(says));
    }
}

/// What came while the process was suspended is read before a time is over: a body, and a request on a connection that
/// was idle.
#[test]
fn a_server_that_was_suspended_answers_what_came_meanwhile() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
    command.args(["serve", "compute", "--listen", "127.0.0.1:0", "--read-limit", "500ms"]);
    let (process, ready) = Process::ready(command.stdout(Stdio::null()));
    let connect = || {
        let stream = TcpStream::connect(ready.address("listen")).unwrap();
        stream.set_read_timeout(Some(kendall_testing::DEADLINE)).unwrap();
        stream
    };
    let status = |stream: &TcpStream| {
        let mut line = String::new();
        std::io::BufReader::new(stream).read_line(&mut line).unwrap();
        line
    };
    let get = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n";
    let body = br#"{"integer": 6}"#;
    let head = "POST /compute HTTP/1.1\r\nhost: a\r\ncontent-type: application/json";
    let head = format!("{head}\r\ncontent-length: {}\r\n\r\n", body.len());
    let signal = |signal| kill_process(Pid::from_child(&process.0), signal).unwrap();
    for _ in 0..3 {
        let (mut idle, mut half) = (connect(), connect());
        idle.write_all(get).unwrap();
        assert_eq!(status(&idle), "HTTP/1.1 200 OK\r\n");
        half.write_all(head.as_bytes()).unwrap();
        signal(Signal::STOP);
        half.write_all(body).unwrap();
        idle.write_all(get).unwrap();
        std::thread::sleep(Duration::from_millis(1000));
        signal(Signal::CONT);
        assert_eq!(status(&half), "HTTP/1.1 200 OK\r\n");
        assert_eq!(status(&idle), "HTTP/1.1 200 OK\r\n");
    }
}

/// Then it would take its servers for dead when it comes to open a connection.
#[test]
fn a_proxy_without_files_for_its_servers_does_not_start() {
    let servers = ["--server", "127.0.0.1:1", "--server", "127.0.0.1:2", "--workers", "512"];
    let tier = [&["proxy", "--listen", "127.0.0.1:0"], &servers[..]].concat();
    let output = with_files(1024, &tier).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    // A connection for each worker and one for probes, to each server, and two descriptors of the thread.
    assert!(error.contains("1028 connections to servers and 40 descriptors more"), "{error}");
    assert!(error.contains("1024 open files") && error.contains("ulimit -n"), "{error}");
}

/// A lack of the proxy's own says nothing of its servers.
#[test]
fn a_proxy_that_has_no_descriptor_left_ejects_no_server() {
    let server = kendall_testing::free_address();
    let _server = Process::memcached(server, &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
    command.args(["serve", "proxy", "--listen", "127.0.0.1:0", "--server", &server.to_string()]);
    let (mut process, ready) =
        Process::ready(command.args(["--format", "json"]).stdout(Stdio::piped()));
    let connect = || {
        let client = TcpStream::connect(ready.address("listen")).unwrap();
        client.set_read_timeout(Some(kendall_testing::DEADLINE)).unwrap();
        client
    };
    let line = |mut client: &TcpStream, request: &[u8]| {
        client.write_all(request).unwrap();
        let mut answer = String::new();
        std::io::BufReader::new(client).read_line(&mut answer).unwrap();
        answer
    };
    let (writer, readers) = (connect(), [0; 5].map(|_| connect()));
    let set = b"set k 0 0 1\r\nv\r\n";
    // All are accepted when the last one has an answer.
    for client in readers.iter().chain([&writer]) {
        assert_eq!(line(client, set), "STORED\r\n");
    }
    let none = Rlimit { current: Some(0), maximum: Some(64) };
    prlimit(Some(Pid::from_child(&process.0)), Resource::Nofile, none).unwrap();
    // The first read of a client, whose answer may be long, takes a connection that is not open yet.
    for reader in &readers {
        let answer = line(reader, b"get k\r\n");
        assert!(answer.starts_with("SERVER_ERROR the proxy has no descriptor left"), "{answer}");
    }
    assert_eq!(line(&writer, set), "STORED\r\n");
    kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
    let said = std::io::read_to_string(process.0.stdout.take().unwrap()).unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["outcomes"]["ejections"], 0);
}

/// As a terminal that is closed sends it; `nohup` has it ignored.
#[test]
fn a_hangup_stops_a_server_as_a_stop_does_unless_it_is_ignored() {
    let stop = |signal, hangup: &str| {
        let mut command = Command::new("env");
        command.args([hangup, env!("CARGO_BIN_EXE_kendall"), "serve", "compute"]);
        command.args(["--listen", "127.0.0.1:0", "--format", "json"]).stdout(Stdio::piped());
        let (mut process, _ready) = Process::ready(&mut command);
        for signal in [Signal::HUP, signal] {
            kill_process(Pid::from_child(&process.0), signal).unwrap();
            std::thread::sleep(Duration::from_millis(300));
        }
        let said = std::io::read_to_string(process.0.stdout.take().unwrap()).unwrap();
        (process.0.wait().unwrap().code(), said.contains("limits_hit"))
    };
    assert_eq!(stop(Signal::HUP, "--default-signal=HUP"), (Some(0), true));
    assert_eq!(stop(Signal::TERM, "--ignore-signal=HUP"), (Some(0), true));
}

/// They take no descriptor of its connections to servers, nor of its metrics page.
#[test]
fn idle_clients_of_a_proxy_keep_nobody_from_its_servers() {
    let server = kendall_testing::free_address();
    let _server = Process::memcached(server, &[]);
    let address = kendall_testing::free_address();
    let metrics = kendall_testing::free_address();
    let (server, listen, page) = (server.to_string(), address.to_string(), metrics.to_string());
    let tier = ["proxy", "--server", &server, "--listen", &listen, "--metrics", &page];
    let mut command = with_files(64, &tier);
    let _process = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let connect = || TcpStream::connect(address);
    kendall_testing::wait_until("the proxy", || connect().is_ok());
    let mut first = connect().unwrap();
    first.set_read_timeout(Some(kendall_testing::DEADLINE)).unwrap();
    let _idle: Vec<_> = (0..84).map(|_| connect().unwrap()).collect();
    first.write_all(b"set k 0 0 1\r\nv\r\nget k\r\nquit\r\n").unwrap();
    let answer = std::io::read_to_string(first).unwrap();
    assert_eq!(answer, "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
    assert_eq!(kendall_testing::page(metrics, "/metrics").unwrap().status, 200);
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
