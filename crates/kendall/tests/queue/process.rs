//! The middleware as a process: how it ends, who may come in, what its metrics tell.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::queue_support::Middleware;
use crate::support::kendall;
use kendall_testing::certificate;
use rustix::process::{Pid, Signal, kill_process};

const ADMIN: &str = "an-administrators-token-0123456789";

/// A folder that root's PostgreSQL user may enter.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    folder
}

/// Looks until it is true, for a minute.
fn until(what: &str, mut truth: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if truth() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("never: {what}");
}

/// Stopped by two signals in a row, or killed, it takes its PostgreSQL along, and the next start resumes.
#[test]
fn postgresql_does_not_outlive_its_middleware() {
    let folder = folder();
    let data = folder.path().join("queue");
    let arguments = ["--data", data.to_str().unwrap()];
    for signals in [&[Signal::TERM, Signal::TERM][..], &[Signal::KILL]] {
        let middleware = Middleware::start(&arguments).unwrap();
        let lock = std::fs::read_to_string(data.join("data/postmaster.pid")).unwrap();
        let server = lock.lines().next().unwrap().to_owned();
        let pid = Pid::from_raw(i32::try_from(middleware.pid()).unwrap()).unwrap();
        for signal in signals {
            kill_process(pid, *signal).unwrap_or_default();
        }
        until("PostgreSQL ends", || !Path::new("/proc").join(&server).exists());
        drop(middleware);
    }
    Middleware::start(&arguments).unwrap().stop();
}

/// More silent connections than it may open files: they make room for one another, and it never runs out of files.
#[test]
fn silent_connections_leave_files_for_those_who_ask() {
    let folder = folder();
    let data = folder.path().join("queue");
    let arguments = ["--data", data.to_str().unwrap(), "--threads", "2"];
    let middleware = Middleware::start_with_files(256, &arguments).unwrap();
    let silent: Vec<TcpStream> =
        (0..600).map(|_| TcpStream::connect(middleware.address).unwrap()).collect();
    let server = middleware.address.to_string();
    let made = kendall().args(["queue", "--server", &server, "create", "jobs"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let open = std::fs::read_dir(format!("/proc/{}/fd", middleware.pid())).unwrap().count();
    assert!((128..=192).contains(&open), "half of them are for connections: {open}");
    drop(silent);
    let said = middleware.stop();
    assert!(!said.contains("cannot accept"), "{said}");
}

/// The database of middlewares on other hosts is reached by one address, and by a password that is not guessed.
#[test]
fn a_shared_database_is_not_open_to_everybody() {
    let folder = folder();
    let refused = |listen: &str, password: &str| {
        let mut command = kendall();
        command.args(["serve", "queue-database", "--listen", listen, "--data"]).arg(folder.path());
        let output = command.env("KENDALL_QUEUE_PASSWORD", password).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let long = "0123456789abcdef";
    assert!(refused("0.0.0.0:5433", long).contains("on one address, not on all"));
    assert!(refused("[::]:5433", long).contains("on one address, not on all"));
    assert!(refused("192.0.2.1:5433", &long[1..]).contains("at least 16"));
}

#[test]
fn certificates_of_clients_are_shown_and_what_is_wrong_with_one_is_told() {
    let folder = folder();
    for name in ["server", "client"] {
        certificate(folder.path(), name);
    }
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, trusted, key) = (file("queue"), file("server.pem"), file("server.key"));
    let (own, own_key) = (file("client.pem"), file("client.key"));
    let tls = ["--tls-certificate", &trusted, "--tls-key", &key, "--tls-client-certificate", &own];
    let middleware = Middleware::start(&[&["--data", &data][..], &tls].concat()).unwrap();
    let server = middleware.address.to_string();
    let queue = ["queue", "create", "jobs", "--if-missing", "--server", &server];
    let load = ["load", "queue", &server, "--quiet", "--clients", "2", "--duration", "100ms"];
    let shown = ["--client-certificate", &own, "--client-key", &own_key];
    let right = ["--tls-name", "localhost", "--tls-root", &trusted];
    let wrong = ["--tls-name", "localhost", "--tls-root", &own];
    let says = |arguments: &[&[&str]]| {
        let output = kendall().args(arguments.concat()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = says(&[&queue, &right, &shown]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = says(&[&load, &right, &shown]);
    assert_ne!(code, Some(3), "{said}");
    for command in [&queue[..], &load] {
        let (code, said) = says(&[command, &right]);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("--client-certificate") && !said.contains("no answer"), "{said}");
        let (code, said) = says(&[command, &wrong, &shown]);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("--tls-root FILE") && said.contains("certificate"), "{said}");
        assert!(!said.contains("--insecure") && !said.contains("start one"), "{said}");
    }
    middleware.stop();
}

#[test]
fn tls_on_one_side_alone_is_told_by_both() {
    let folder = folder();
    certificate(folder.path(), "server");
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, trusted, key) = (file("queue"), file("server.pem"), file("server.key"));
    let served = ["--tls-certificate", &trusted, "--tls-key", &key];
    let asked = ["--tls-name", "localhost", "--tls-root", &trusted];
    for (served, asked, logged) in
        [(&served[..], &[][..], "a client speaks no TLS"), (&[], &asked, "a client speaks TLS")]
    {
        let middleware = Middleware::start(&[&["--data", &data][..], served].concat()).unwrap();
        let server = middleware.address.to_string();
        let load = ["load", "queue", &server, "--quiet", "--clients", "2", "--duration", "100ms"];
        for command in [
            &["queue", "create", "jobs", "--if-missing", "--server", &server][..],
            &load,
            &[&load[..], &["--calls", "stream"]].concat(),
        ] {
            let output = kendall().args(command).args(asked).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(3), "{command:?}: {said}");
            assert!(said.contains("TLS") && said.contains("--tls-name"), "{command:?}: {said}");
        }
        let said = middleware.stop();
        assert_eq!(said.matches(logged).count(), 1, "once a minute: {said}");
    }
}

#[test]
fn tokens_tls_and_metrics_by_the_command() {
    let folder = folder();
    let open = Middleware::start_on(([0, 0, 0, 0], 0).into(), &["--data", "never-made"]);
    let said = open.unwrap_err();
    assert!(said.contains("--open-to-anyone") && said.contains("exit status: 2"), "{said}");
    certificate(folder.path(), "server");
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("tokens"), format!("{ADMIN} admin\n")).unwrap();
    let metrics = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let middleware = Middleware::start(&[
        "--data",
        &file("queue"),
        "--tokens",
        &file("tokens"),
        "--tls-certificate",
        &file("server.pem"),
        "--tls-key",
        &file("server.key"),
        "--metrics",
        &metrics.to_string(),
    ])
    .unwrap();
    let server = middleware.address.to_string();
    let run = |token: &str, arguments: &[&str]| {
        kendall()
            .args(["queue", "--server", &server, "--tls-name", "localhost", "--tls-root"])
            .arg(file("server.pem"))
            .args(["--token", token])
            .args(arguments)
            .output()
            .unwrap()
    };
    let refused = run("not-the-right-token-0123456789", &["create", "jobs"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("token"), "{said}");
    for arguments in [&["create", "jobs"][..], &["send", "jobs", "x", "--header", "a=b"]] {
        let done = run(ADMIN, arguments);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let page = || {
        let mut stream = TcpStream::connect(metrics).unwrap();
        let ask = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(ask).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let told = |line: &str| page().lines().any(|found| found == line);
    until("the queue is counted", || {
        told("kendall_queue_messages{queue=\"jobs\",state=\"waiting\"} 1")
    });
    assert!(told("kendall_queue_sent_total{queue=\"jobs\"} 1"), "{}", page());
    middleware.stop();
}
