//! `kendall serve proxy` as a process: the ready line, the metrics page, the summary, and the test
//! suites of others.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests fail by panicking, and wait with a deadline of their own"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kendall_testing::{DEADLINE, Process, Ready, free_address, wait_until};

fn memcached() -> (Process, SocketAddr) {
    let address = free_address();
    (Process::memcached(address, &[]), address)
}

/// A proxy with its addresses for clients and for the metrics page.
fn proxy(server: SocketAddr, flags: &[&str]) -> (Process, SocketAddr, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
    command
        .args(["serve", "proxy", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
        .args(["--server", &server.to_string(), "--format", "json"])
        .args(flags)
        .stdout(Stdio::piped());
    let (process, ready) = Process::ready(&mut command);
    (process, ready.address("listen"), ready.address("metrics"))
}

const MODES: [[&str; 2]; 2] = [["--mode", "worker"], ["--mode", "pipelined"]];

fn page(address: SocketAddr, path: &str) -> String {
    let answer = kendall_testing::page(address, path).unwrap();
    assert_eq!(answer.status, 200, "{path}");
    answer.body
}

fn set_and_get(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"set k 0 0 1\r\nv\r\nget k\r\nget none\r\nquit\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\nEND\r\n");
}

/// Without `--workers` there are none.
#[test]
fn requests_are_pipelined_unless_workers_are_asked_for() {
    let (_server, server) = memcached();
    for (flags, workers) in [(&[][..], 0), (&["--workers", "4"], 4), (&["--mode", "worker"], 64)] {
        let (_process, _, metrics) = proxy(server, flags);
        let snapshot: serde_json::Value =
            serde_json::from_str(&page(metrics, "/snapshot")).unwrap();
        assert_eq!(snapshot["workers"], workers, "{flags:?}");
    }
}

#[test]
fn prometheus_reads_the_page_and_a_stop_prints_the_summary() {
    let (_server, server) = memcached();
    for mode in MODES {
        let (mut process, listen, metrics) = proxy(server, &mode);
        set_and_get(listen);
        let health: serde_json::Value = serde_json::from_str(&page(metrics, "/health")).unwrap();
        assert_eq!(health["listen"][0], listen.to_string());
        let text = page(metrics, "/metrics");
        assert!(text.contains("kendall_outcomes_total{outcome=\"hits\"} 1\n"), "{text}");
        let mut check = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool is missing: run `make packages-test`");
        check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let checked = check.wait_with_output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

        let id = process.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let mut summary = String::new();
        process.0.stdout.take().unwrap().read_to_string(&mut summary).unwrap();
        assert_eq!(process.0.wait().unwrap().code(), Some(0));
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        assert_eq!(summary["requests"]["get"]["completions"], 2);
        assert_eq!(summary["outcomes"]["misses"], 1);
    }
}

/// Sends without reading an answer, and closes.
fn shout(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
}

fn is_stored(server: SocketAddr, key: &str) -> bool {
    let mut stream = TcpStream::connect(server).unwrap();
    write!(stream, "get {key}\r\nquit\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.starts_with("VALUE")
}

/// `printf 'set …' >/dev/tcp/…`, and what clients do that ask for no answers.
#[test]
fn a_client_that_closes_at_once_has_its_writes_done_and_harms_nobody() {
    let (_server, server) = memcached();
    for (number, mode) in MODES.iter().enumerate() {
        let (mut process, listen, metrics) = proxy(server, mode);
        for round in 0..6 {
            let key = format!("m{number}r{round}");
            shout(listen, b"set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nget a\r\n");
            let set = |write| format!("set {key}w{write} 0 0 1 noreply\r\n1\r\n");
            let writes: String = (0..20).map(set).collect();
            shout(listen, writes.as_bytes());
            let begun = Instant::now();
            for write in 0..20 {
                while !is_stored(server, &format!("{key}w{write}")) {
                    assert!(begun.elapsed() < DEADLINE, "write {write} of {key} is not stored");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            set_and_get(listen);
        }
        page(metrics, "/health");
        let id = process.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert_eq!(process.0.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_port_that_is_taken_is_told_with_the_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_kendall"))
        .args(["serve", "proxy", "--listen", &address, "--server", "127.0.0.1:1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--listen"));
}

/// What passes on a plain server passes through the proxy: libmemcached's suite.
#[test]
fn memccapable_fails_nothing_that_a_plain_server_passes() {
    let (_server, server) = memcached();
    let failed = |address: SocketAddr| -> Vec<String> {
        let output = Command::new("memccapable")
            .args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()])
            .args(["-a", "-t", "20"])
            .output()
            .expect("memccapable is missing: run `make packages-test`");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("ascii set"), "{text}");
        let lines = text.lines().filter(|line| line.contains("[FAIL]"));
        lines.map(str::to_owned).collect()
    };
    let plain = failed(server);
    for mode in MODES {
        let (_process, listen, _) = proxy(server, &mode);
        let new: Vec<_> = failed(listen).into_iter().filter(|f| !plain.contains(f)).collect();
        assert!(new.is_empty(), "{mode:?}: {new:?}");
    }
}

/// The same for the integration tests of the pymemcache client.
#[test]
fn pymemcache_fails_nothing_that_a_plain_server_passes() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/pymemcache-tests");
    let failed = |address: SocketAddr| -> Vec<String> {
        let output = Command::new(script)
            .args([&address.ip().to_string(), &address.port().to_string()])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(" passed"), "pymemcache's tests did not run: {text}{told}");
        let lines = text.lines().filter_map(|line| {
            line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))
        });
        lines.map(|line| line.split(" - ").next().unwrap_or(line).to_owned()).collect()
    };
    let (_server, server) = memcached();
    let plain = failed(server);
    for mode in MODES {
        let (_process, listen, _) = proxy(server, &mode);
        // Two tests read what expires after one second, which memcached ends at the next tick of its clock: anything
        // between 0 and 1 s. They fail a plain server too where the tick comes between; not three times in a row.
        let mut new: Vec<_> = failed(listen).into_iter().filter(|f| !plain.contains(f)).collect();
        for _ in 0..2 {
            if !new.is_empty() {
                let again = failed(listen);
                new.retain(|test| again.contains(test));
            }
        }
        assert!(new.is_empty(), "{mode:?}: {new:?}");
    }
}

#[test]
fn threads_sockets_weights_and_tags_are_chosen_by_flags() {
    let (_server, server) = memcached();
    let (_standby, standby) = memcached();
    let path = std::env::temp_dir().join(format!("kendall-proxy-{}.sock", std::process::id()));
    let (weighted, standby) = (format!("{server}:3"), standby.to_string());
    let flags = [
        ["--threads", "2"],
        ["--listen-unix", path.to_str().unwrap()],
        ["--server", &weighted],
        ["--failover", &standby],
        ["--hash-tag", "{}"],
        ["--placement", "hash"],
    ];
    let (_process, listen, metrics) = proxy(server, &flags.concat());
    set_and_get(listen);
    page(metrics, "/health");
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    client.write_all(b"get k\r\nquit\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "VALUE k 0 1\r\nv\r\nEND\r\n");
    for (flag, wrong) in [
        ("--server", "127.0.0.1:1:0"),
        ("--server", "unix:"),
        ("--hash-tag", "{"),
        ("--tls-certificate", "without-a-key.pem"),
        ("--server-ca", "/no/such/file.pem"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_kendall"))
            .args([
                "serve",
                "proxy",
                "--listen",
                "127.0.0.1:0",
                "--server",
                "127.0.0.1:1",
                flag,
                wrong,
            ])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{flag} {wrong}");
    }
}

/// What a process says on standard error, line by line, in a file.
fn says(file: &std::path::Path, what: &str) -> String {
    let mut found = String::new();
    kendall_testing::wait_until(what, || {
        let text = std::fs::read_to_string(file).unwrap();
        found = text.lines().rfind(|line| line.contains(what)).unwrap_or_default().to_owned();
        !found.is_empty()
    });
    found
}

#[test]
fn a_file_is_read_again_at_a_hangup_and_one_that_is_wrong_changes_nothing() {
    let (_main, main) = memcached();
    let (_other, other) = memcached();
    let folder = tempfile::tempdir().unwrap();
    let (config, log) = (folder.path().join("proxy.toml"), folder.path().join("log"));
    let one = format!("workers = 4\n[pools.main]\nservers = [\"{main}\"]\n");
    let two = format!(
        "pool = \"main\"\n{one}[pools.other]\nservers = [\"{other}\"]\n[[routes]]\nprefix = \"o:\"\npool = \"other\"\n"
    );
    std::fs::write(&config, &one).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
    command.args(["serve", "proxy", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let process = Process(command.spawn().unwrap());
    let listen = Ready(says(&log, "ready tier=memcached-proxy")).address("listen");
    let hangup = || {
        let id = process.0.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    };
    let set = |key: &str| {
        let mut stream = TcpStream::connect(listen).unwrap();
        write!(stream, "set {key} 0 0 1\r\nv\r\nquit\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "STORED\r\n");
    };
    set("o:1");
    assert!(is_stored(main, "o:1") && !is_stored(other, "o:1"));
    // Each is refused in words that say where it is and what to write, and nothing changes.
    for (text, wanted) in [
        (
            two.replace("[pools.other]", "[pools.others]"),
            "the route of `o:` names the pool `other`",
        ),
        (two.replace("prefix", "prefx"), "routes.0.prefix: is missing"),
        (two.replace("workers = 4", "workers = 5"), "start it anew for that"),
        (two.replace("workers = 4", "workers = \"4\""), "proxy.toml:2: workers: "),
        ("pools = [".to_owned(), "proxy.toml:1: "),
        (two.replace("pool = \"main\"\n", ""), "there are several pools"),
    ] {
        std::fs::write(&config, text).unwrap();
        hangup();
        let said = says(&log, wanted);
        assert!(said.contains("not reloaded, nothing has changed"), "{said}");
        set("o:2");
        assert!(is_stored(main, "o:2") && !is_stored(other, "o:2"), "{wanted}");
    }
    std::fs::remove_file(&config).unwrap();
    hangup();
    says(&log, "cannot read");
    std::fs::write(&config, &two).unwrap();
    hangup();
    let reloaded = format!("reloaded {}", config.display());
    kendall_testing::wait_until("the reload", || says(&log, "reloaded").ends_with(&reloaded));
    kendall_testing::wait_until("the route", || {
        set("o:3");
        is_stored(other, "o:3")
    });
    set("m:3");
    assert!(is_stored(main, "m:3") && !is_stored(other, "m:3"));
    // With a file that cannot be used the proxy does not start.
    std::fs::write(&config, one.replace(&main.to_string(), "")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_kendall"))
        .args(["serve", "proxy", "--listen", "127.0.0.1:0", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_expired_certificate_is_told_at_the_start_and_at_each_reload() {
    let (_server, server) = memcached();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let (certificate, key) = kendall_testing::expired_certificate(folder.path(), "old");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
    command.args(["serve", "proxy", "--listen", "127.0.0.1:0", "--server", &server.to_string()]);
    command.arg("--tls-certificate").arg(&certificate).arg("--tls-key").arg(&key);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let process = Process(command.spawn().unwrap());
    says(&log, "ready tier=memcached-proxy");
    let of_it = |line: &&str| {
        line.contains("expired at 2021-01-01 00:00:00 UTC") && line.contains("old.pem")
    };
    let warnings = || std::fs::read_to_string(&log).unwrap().lines().filter(of_it).count();
    kendall_testing::wait_until("the warning at the start", || warnings() == 1);
    let id = process.0.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    says(&log, "reloaded the flags");
    kendall_testing::wait_until("that of the reload", || warnings() == 2);
}

#[test]
fn tls_on_one_side_alone_is_told_by_both() {
    let (_server, server) = memcached();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = kendall_testing::certificate(folder.path(), "server");
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let tls = ["--tls", "--insecure"];
    for (number, (served, asked, client, logged)) in [
        (
            &["--tls-certificate", certificate, "--tls-key", key][..],
            &[][..],
            "the server answered with TLS",
            "a client speaks no TLS",
        ),
        (&[], &tls, "does not answer with TLS", "a client speaks TLS"),
    ]
    .into_iter()
    .enumerate()
    {
        let log = folder.path().join(format!("log {number}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_kendall"));
        command.args(["serve", "proxy", "--listen", "127.0.0.1:0", "--server"]);
        command.arg(server.to_string()).args(served);
        command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
        let _process = Process(command.spawn().unwrap());
        let address = Ready(says(&log, "ready tier=memcached-proxy")).address("listen").to_string();
        for more in [&["-n", "10", "--clients", "2"][..], &["--prefill-only"]] {
            let mut load = Command::new(env!("CARGO_BIN_EXE_kendall"));
            load.args(["load", "memcached", &address, "--quiet"]).args(more).args(asked);
            let output = load.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains(client), "{more:?}: {said}");
        }
        says(&log, logged);
        let text = std::fs::read_to_string(&log).unwrap();
        assert_eq!(text.matches(logged).count(), 1, "once a minute: {text}");
    }
}

/// The status of a page.
fn status(address: SocketAddr, path: &str) -> u16 {
    kendall_testing::page(address, path).map_or(0, |answer| answer.status)
}

/// Starts the command that it is given and holds its thread `network`, and goes on with it, as it is told: another
/// process cannot be asked to stop a single thread. It says where it held it: while it waits for events, or within
/// a turn. The tier ends with it.
const HOLDER: &str = "
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
ATTACH, DETACH, DEATH_SIGNAL, KILL = 16, 17, 1, 9
tier = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                        preexec_fn=lambda: libc.prctl(DEATH_SIGNAL, KILL))
def network():
    tasks = f'/proc/{tier.pid}/task'
    return next(int(t) for t in os.listdir(tasks) if open(f'{tasks}/{t}/comm').read() == 'network\\n')
WALL = 0x40000000
# epoll_wait, epoll_pwait and epoll_pwait2.
WAITS = {'x86_64': ('232', '281', '441'), 'aarch64': ('22', '441')}.get(os.uname().machine, ())
thread = None
for line in sys.stdin:
    thread = thread or network()
    asked = ATTACH if line == 'hold\\n' else DETACH
    if libc.ptrace(asked, thread, 0, 0) != 0:
        sys.exit('ptrace: ' + os.strerror(ctypes.get_errno()))
    if asked == ATTACH:
        os.waitpid(thread, WALL)
        call = open(f'/proc/{tier.pid}/task/{thread}/syscall').read().split()[0]
        print('waits' if call in WAITS else 'turns', flush=True)
tier.kill()
";

/// The watchdog, end to end: a network thread that stands still makes the page say so, and one that goes on
/// makes it take that back.
#[test]
fn a_network_thread_that_stands_still_is_not_healthy() {
    for mode in MODES {
        let (_memcached, server) = memcached();
        let mut command = Command::new("python3");
        command
            .args(["-c", HOLDER, env!("CARGO_BIN_EXE_kendall")])
            .args(["serve", "proxy", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            .args(["--server", &server.to_string(), "--timeout", "60s"])
            .args(mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let (mut holder, ready) = Process::ready(&mut command);
        let (listen, metrics) = (ready.address("listen"), ready.address("metrics"));
        set_and_get(listen);
        assert_eq!(status(metrics, "/health"), 200);
        let stop = AtomicBool::new(false);
        let mut told = holder.0.stdin.take().unwrap();
        let mut says = BufReader::new(holder.0.stdout.take().unwrap()).lines();
        std::thread::scope(|scope| {
            scope.spawn(|| keep_busy(listen, &stop));
            // Held while it waits for events it is healthy: nothing waits for it. Within a turn it is not, but
            // for the few instructions between the call and its mark, which does not happen five times.
            let mut within_turns = 0;
            wait_until("a thread that stands still is not healthy", || {
                told.write_all(b"hold\n").unwrap();
                let is_held = match says.next().unwrap().unwrap().as_str() {
                    "waits" => false,
                    "turns" => {
                        within_turns += 1;
                        assert!(within_turns <= 5, "a thread that stands still is healthy");
                        (0..100).any(|_| {
                            std::thread::sleep(Duration::from_millis(20));
                            status(metrics, "/health") == 503
                        })
                    }
                    other => panic!("{other}"),
                };
                if !is_held {
                    told.write_all(b"go on\n").unwrap();
                }
                is_held
            });
            told.write_all(b"go on\n").unwrap();
            wait_until("a thread that goes on is healthy", || status(metrics, "/health") == 200);
            stop.store(true, Ordering::Relaxed);
        });
        set_and_get(listen);
    }
}

/// Pipelines reads until it is told to stop.
fn keep_busy(address: SocketAddr, stop: &AtomicBool) {
    const ANSWER: &[u8] = b"VALUE k 0 1\r\nv\r\nEND\r\n";
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    let requests = b"get k\r\n".repeat(500);
    let mut answers = vec![0; 500 * ANSWER.len()];
    while !stop.load(Ordering::Relaxed) {
        client.write_all(&requests).unwrap();
        client.read_exact(&mut answers).unwrap();
        assert!(answers.starts_with(ANSWER));
    }
}

/// The proxy's log is not read, and the pipe is full when it logs a server that it ejects: clients
/// are answered all the same, and a stop ends it.
#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    for mode in MODES {
        let (memcached, server) = memcached();
        let (mut said, pipe) = std::io::pipe().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_kendall"))
            .args(["serve", "proxy", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            .args(["--server", &server.to_string(), "--eject-after", "1"])
            .args(mode)
            .stdout(Stdio::null())
            .stderr(pipe.try_clone().unwrap())
            .spawn()
            .unwrap();
        let mut child = Process(child);
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            said.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        let ready = Ready(String::from_utf8(line).unwrap());
        let (listen, metrics) = (ready.address("listen"), ready.address("metrics"));
        set_and_get(listen);
        // A description of its own, so that only this side does not block.
        let mut filler = std::fs::OpenOptions::new()
            .write(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(format!("/proc/self/fd/{}", pipe.as_raw_fd()))
            .unwrap();
        for piece in [4096, 1] {
            while filler.write(&vec![b'.'; piece]).is_ok() {}
        }
        drop(memcached);
        let mut client = TcpStream::connect(listen).unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        // What is ejected is told before the second request is read.
        for _ in 0..2 {
            client.write_all(b"get k\r\n").unwrap();
            let mut answer = [0; 12];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"SERVER_ERROR");
            while answer[0] != b'\n' {
                client.read_exact(&mut answer[..1]).unwrap();
            }
        }
        assert_eq!(status(metrics, "/health"), 200);
        let id = child.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        wait_until("it ends", || child.0.try_wait().unwrap().is_some());
    }
}

/// Resident memory of a process.
fn resident_bytes(id: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{id}/statm")).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn memory_of_large_requests_that_were_never_finished_is_given_back() {
    let (_server, server) = memcached();
    for mode in MODES {
        let (process, listen, metrics) = proxy(server, &mode);
        set_and_get(listen);
        let before = resident_bytes(process.0.id());
        let mut request = b"set k 0 0 500000\r\n".to_vec();
        request.resize(490_000, b'x');
        let streams: Vec<TcpStream> = (0..300)
            .map(|_| {
                let mut stream = TcpStream::connect(listen).unwrap();
                stream.write_all(&request).unwrap();
                stream
            })
            .collect();
        let begun = Instant::now();
        let wait = |what: &str, is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(begun.elapsed() < DEADLINE, "waited too long for {what}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        wait("the requests to be read", &|| {
            let snapshot: serde_json::Value =
                serde_json::from_str(&page(metrics, "/snapshot")).unwrap();
            snapshot["bytes_in"].as_u64().unwrap() > 300 * 490_000
        });
        assert!(resident_bytes(process.0.id()) > before + (100 << 20), "nothing was held");
        drop(streams);
        wait("the memory", &|| resident_bytes(process.0.id()) < before + (16 << 20));
        set_and_get(listen);
    }
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_harm_nobody() {
    use std::os::unix::process::CommandExt as _;
    // The limit of this very process may be lower: a child that holds the connections raises it.
    if std::env::var_os("KENDALL_TEST_LIMITED").is_none() {
        let error = Command::new("sh")
            .args(["-c", "ulimit -n \"$(ulimit -Hn)\" && exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "ten_thousand_idle_connections_cost_little_and_harm_nobody"])
            .env("KENDALL_TEST_LIMITED", "1")
            .process_group(0)
            .status();
        assert!(error.unwrap().success());
        return;
    }
    let (_server, server) = memcached();
    for mode in MODES {
        let (process, listen, _) = proxy(server, &mode);
        set_and_get(listen);
        let before = resident_bytes(process.0.id());
        let mut idle: Vec<TcpStream> =
            (0..10_000).map(|_| TcpStream::connect(listen).unwrap()).collect();
        set_and_get(listen);
        // One request each: buffers must not stay behind.
        for stream in &mut idle {
            stream.write_all(b"get k\r\n").unwrap();
        }
        for stream in &mut idle {
            let mut answer = [0_u8; 21];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"VALUE k 0 1\r\nv\r\nEND\r\n");
        }
        let grown = resident_bytes(process.0.id()).saturating_sub(before);
        assert!(grown < 64 << 20, "10,000 connections cost {grown} bytes");
        set_and_get(listen);
    }
}
