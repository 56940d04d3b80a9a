//! `kendall init`: from a command, or from what runs already, to a study that runs.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be done fails it")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use kendall_store::Results;
use kendall_testing::{Process, wait_until};

use crate::support::kendall;

fn init(folder: &Path, arguments: &[&str]) -> Output {
    kendall().arg("init").args(arguments).current_dir(folder).output().unwrap()
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn run_mine(folder: &Path) {
    let run = kendall()
        .args(["run", "mine.toml", "--toy", "--no-report"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
}

/// A command with its own address and workers becomes a study whose short run works; the file is
/// not replaced unasked.
#[test]
fn a_command_becomes_a_study_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_kendall");
    let command = [
        "--",
        program,
        "serve",
        "synthetic",
        "--service",
        "constant:1ms",
        "--workers",
        "2",
        "--metrics",
        "127.0.0.1:0",
        "--listen",
        "127.0.0.1:8000",
    ];
    let output = init(folder.path(), &[&["-o", "mine.toml"][..], &command[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = std::fs::read_to_string(folder.path().join("mine.toml")).unwrap();
    assert!(text.contains("workers = 2") && text.contains("\"{address}\""), "{text}");
    assert!(text.contains("\"system.parameters.workers\" = [1, 2, 4]"), "{text}");
    run_mine(folder.path());
    let again = init(folder.path(), &[&["-o", "mine.toml"][..], &command[..]].concat());
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
    assert!(said(&again).contains("--force"));
    // It is asked before anything is started: this would be refused as a service that does not start.
    let broken = ["-o", "mine.toml", "--", "sh", "-c", "exit 1", "{address}"];
    let again = init(folder.path(), &broken);
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
}

/// What a service talks to, and no tier of the study is, is named, and what it computes is not another's.
#[test]
fn what_serves_a_service_is_named_and_counted() {
    let address = kendall_testing::free_address();
    let server = Process::memcached(address, &[]);
    let part = format!("memcached:{}", address.port());
    serves_a_proxy(&server, (&address.to_string(), &address.to_string()), &part);
}

#[test]
fn what_serves_a_service_over_a_unix_socket_is_named_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.sock");
    let mut memcached = Command::new("memcached");
    let memcached = memcached.args(["-t", "1", "-u", "root", "-s"]).arg(&path).spawn();
    let server = Process(memcached.expect("memcached is missing: run `make packages-test`"));
    wait_until("memcached to answer", || UnixStream::connect(&path).is_ok());
    let path = path.display().to_string();
    serves_a_proxy(&server, (&format!("unix:{path}"), &path), "memcached:cache.sock");
}

/// A proxy to the server, which it calls by the first name and `init` by the second; the part is what a study calls it.
fn serves_a_proxy(server: &Process, (called, name): (&str, &str), part: &str) {
    let folder = tempfile::tempdir().unwrap();
    let proxy = [env!("CARGO_BIN_EXE_kendall"), "serve", "proxy", "--listen", "{address}"];
    let proxy = [&proxy[..], &["--metrics", "127.0.0.1:0", "--server", called][..]].concat();
    let output = init(folder.path(), &[&["-o", "mine.toml", "--"][..], &proxy[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let named = format!("`memcached` (process {}) at {name} serves `", server.0.id());
    assert!(said(&output).contains(&named), "{}", said(&output));
    run_mine(folder.path());
    let results = Results::open(&folder.path().join("results/mine")).unwrap();
    let run = results.runs().unwrap().remove(0);
    let counts = |caveat: &String| {
        caveat.starts_with(&named) && caveat.contains("its processor time counts as that of a tier")
    };
    let caveats: Vec<String> = run.caveats.iter().map(ToString::to_string).collect();
    assert!(caveats.iter().any(counts), "{caveats:?}");
    let processes = results.processes(run.id).unwrap();
    let memcached = processes.iter().find(|process| process.part.name == part).unwrap();
    assert!(memcached.samples.len() > 1 && memcached.pid == server.0.id(), "{memcached:?}");
}

#[test]
fn a_service_that_runs_already_becomes_a_study_with_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let (server, ready) = Process::ready(
        kendall()
            .args(["serve", "synthetic", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            .args(["--service", "constant:1ms"])
            .stdout(Stdio::null()),
    );
    let url = format!("http://{}/", ready.address("listen"));
    let output = init(folder.path(), &["--attach", &url]);
    let pid = server.0.id();
    let file = |number: &str| {
        let name =
            format!("{}{number}.toml", ready.address("listen").to_string().replace(':', "-"));
        std::fs::read_to_string(folder.path().join(name))
    };
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(file("").unwrap().contains(&format!("pids = [{pid}]")), "{}", said(&output));
    // The next study of it has a name of its own, and with it a folder of results.
    let output = init(folder.path(), &["--attach", &url]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let name = format!("name = \"{}-2\"", ready.address("listen").to_string().replace(':', "-"));
    assert!(file("-2").unwrap().contains(&name), "{}", said(&output));
}

/// A control group (version 2) with a process in it, removed at the end.
struct Group(std::path::PathBuf);

impl Group {
    /// `None` where this user may make none.
    fn around(pid: u32, name: &str) -> Option<Self> {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let mount = mounts.into_iter().find(|mount| mount.join("cgroup.controllers").exists())?;
        let group = Self(mount.join(name));
        std::fs::create_dir(&group.0).ok()?;
        std::fs::write(group.0.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What has ended leaves it a moment later.
        kendall_testing::wait_until("the group is empty", || std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn the_control_group_of_a_unit_and_of_a_container_is_found_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let id = format!("{:064x}", 0xc0ff_ee00_0000_0000_u64 + u64::from(std::process::id()));
    for (flag, name, group) in [
        (
            "--unit",
            format!("shop-{}", std::process::id()),
            format!("shop-{}.service", std::process::id()),
        ),
        ("--container", "shop-web-1".to_owned(), format!("docker-{id}.scope")),
    ] {
        let mut command = kendall();
        command
            .args(["serve", "synthetic", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            .args(["--service", "constant:1ms"])
            .stdout(Stdio::null());
        // Dropped after the server, which is in it.
        let in_group;
        let (server, ready) = Process::ready(&mut command);
        in_group = Group::around(server.0.id(), &group);
        if in_group.is_none() {
            println!("skipped: this user may make no control group");
            return;
        }
        // Stands for the engine, and knows one container.
        let engine = folder.path().join("docker");
        let says = format!("#!/bin/sh\n[ \"$7\" = shop-web-1 ] && echo {id}\n");
        std::fs::write(&engine, says).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&engine, mode).unwrap();
        let path = std::env::join_paths(
            std::iter::once(folder.path().to_owned())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        let url = format!("http://{}/", ready.address("listen"));
        let init = |name: &str| {
            let mut command = kendall();
            command.args(["init", "--force", "-o", "shop.toml", "--attach", &url, flag, name]);
            command.env("PATH", path.as_ref().unwrap()).current_dir(folder.path()).output().unwrap()
        };
        let output = init(&name);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let text = std::fs::read_to_string(folder.path().join("shop.toml")).unwrap();
        assert!(text.contains("cgroups = [") && text.contains(&group), "{text}");
        assert!(!text.contains("pids ="), "{text}");
        let unknown = init("no-such-service");
        assert_eq!(unknown.status.code(), Some(3), "{}", said(&unknown));
        assert!(said(&unknown).contains("no-such-service"), "{}", said(&unknown));
        // The process is in the root again: the group stands still while it answers.
        let root = in_group.as_ref().unwrap().0.parent().unwrap().join("cgroup.procs");
        std::fs::write(root, server.0.id().to_string()).unwrap();
        let idle = init(&name);
        assert_eq!(idle.status.code(), Some(2), "{}", said(&idle));
        assert!(said(&idle).contains("used no processor time"), "{}", said(&idle));
        drop(server);
        drop(in_group);
    }
}

/// Two tiers, of which the first is memcached's protocol and the second is what clients talk to.
#[test]
fn several_tiers_become_a_study_whose_last_is_the_entry() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_kendall");
    let serve =
        |kind: &str| format!("{program} serve {kind} --metrics 127.0.0.1:0 --listen {{address}}");
    let store = format!("store={} --service constant:1ms", serve("synthetic"));
    // It names the other, and has no use for it.
    let web = format!("web=sh -c 'exec \"$@\"' {{store}} {}", serve("synthetic"));
    let output = init(folder.path(), &["--tier", &store, "--tier", &web]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = std::fs::read_to_string(folder.path().join("web.toml")).unwrap();
    assert!(
        text.contains("\nbackends = [\"store\"]\n# Does it call store")
            && text.contains("name = \"web\""),
        "{text}"
    );
    let run = kendall()
        .args(["run", "web.toml", "--toy", "--no-report"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
}

#[test]
fn a_tier_that_was_seen_connected_to_another_calls_it() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = format!("web={} serve proxy --metrics 127.0.0.1:0", env!("CARGO_BIN_EXE_kendall"));
    let web = format!("{proxy} --listen {{address}} --server {{store}}");
    let output = init(
        folder.path(),
        &["--tier", "store=memcached -u root -l 127.0.0.1 -p {port}", "--tier", &web],
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = std::fs::read_to_string(folder.path().join("web.toml")).unwrap();
    assert!(text.contains("\nbackends = [\"store\"]\n") && !text.contains("Does it"), "{text}");
}

#[test]
fn what_does_not_work_says_what_to_do_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, code, wanted) in [
        (&["--", "sleep", "60"][..], 2, "{address}"),
        (&["--", "no-such-program", "-b", "{address}"], 3, "`no-such-program` is not installed"),
        (&["--", "sh", "-c", "echo broken >&2; exit 1", "{address}"], 3, "broken"),
        (&["--attach", "127.0.0.1:1"], 3, "start the service first"),
        (&["--template", "dmeo"], 2, "did you mean `demo`"),
    ] {
        let output = init(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(wanted), "{arguments:?}: {}", said(&output));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let output = init(folder.path(), &[]);
    assert!(said(&output).contains("--template NAME"), "{}", said(&output));
    for template in ["demo", "processes", "adaptive", "two-level"] {
        let output = init(folder.path(), &["--template", template]);
        assert_eq!(output.status.code(), Some(0), "{template}: {}", said(&output));
        let file = format!("{template}.toml");
        let run = kendall()
            .args(["run", "--dry-run", &file])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(matches!(run.status.code(), Some(0 | 3)), "{}", said(&run));
    }
}

/// A limit of the rate is a property of the service that a study may keep to: its file is written all the same.
#[test]
fn a_service_that_limits_its_rate_gets_its_study() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(|| refuses(stream.unwrap()));
        }
    });
    let output = init(folder.path(), &["--attach", &url, "-o", "mine.toml"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("wrote mine.toml, though a short run"), "{}", said(&output));
    assert!(said(&output).contains("429, too many requests"), "{}", said(&output));
    assert!(folder.path().join("mine.toml").is_file());
}

/// Answers each request with 429.
fn refuses(stream: TcpStream) {
    let mut requests = BufReader::new(&stream);
    let mut line = String::new();
    while requests.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if line == "\r\n" {
            let answer = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";
            if (&stream).write_all(answer).is_err() {
                return;
            }
        }
        line.clear();
    }
}
