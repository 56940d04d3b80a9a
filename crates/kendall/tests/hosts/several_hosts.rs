//! The same study over hosts that all share this machine: agents at the other end of a pipe, of `sh`
//! or of real SSH servers on addresses of the loopback. `make test-hosts` has hosts with networks,
//! disks and clocks of their own.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{kendall, marked_processes, processes_with, wait_until};
use kendall_store::{Results, Run, Status};
use kendall_testing::namespace::MOUNTED;

const STUDY: &str = r#"
name = "over-hosts"
[system]
kind = "synthetic"
workers = 4
service = "constant:1ms"
[links]
"clients -> synthetic" = { delay = "1ms" }
[workload]
path = "/"
clients = 4
generators = 2
[measure]
duration = "2s"
warm_up = "0s"
cool_down = "0s"
repetitions = 1
[hosts]
engine = "command"
prefix = ["sh", "-c"]
web = { address = "127.0.0.1" }
load = { address = "127.0.0.1" }
[place]
synthetic = "web"
clients = ["load"]
"#;

/// A study in a folder of its own. The program is carried once for all tests: it lies in a cache that
/// they share.
struct Place {
    folder: tempfile::TempDir,
    mark: String,
    servers: Vec<Child>,
}

pub(crate) fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("hosts-cache")
}

/// Carries the program into the cache, once, without what earlier builds have left there. Not in a namespace: who
/// went there did it before, and others use the cache.
pub(crate) fn carry() {
    static CARRIED: std::sync::OnceLock<()> = std::sync::OnceLock::new();
    if std::env::var_os(MOUNTED).is_some() {
        return;
    }
    CARRIED.get_or_init(|| {
        std::fs::remove_dir_all(cache()).unwrap_or_default();
        let one = STUDY.replace("clients = [\"load\"]", "clients = [\"web\"]");
        let (done, said) = Place::at(&one).run(&["--dry-run"]);
        assert!(done, "{said}");
    });
}

impl Place {
    fn new(study: &str) -> Self {
        carry();
        Self::at(study)
    }

    fn at(study: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("study.toml"), study).unwrap();
        let mark = format!("kendall-hosts-{}", folder.path().display());
        Self { folder, mark, servers: Vec::new() }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = kendall();
        command.arg("run").arg(self.folder.path().join("study.toml")).args(words);
        command.env("XDG_CACHE_HOME", cache());
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()));
        command.env("TMPDIR", self.folder.path()).env("KENDALL_TEST_MARK", &self.mark);
        command.env("KENDALL_TEST_PODS", self.pods());
        command
    }

    /// Runs it to its end; what it said.
    fn run(&self, words: &[&str]) -> (bool, String) {
        let out = self.out();
        let output = self.command(words).arg("--out").arg(&out).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn start(&self) -> Child {
        let mut command = self.command(&["--no-report", "--progress", "json"]);
        let events = std::fs::File::create(self.folder.path().join("events")).unwrap();
        command.arg("--out").arg(self.out()).stdout(Stdio::null()).stderr(events);
        command.spawn().unwrap()
    }

    /// How many seconds each host was silent by the events of the run.
    fn silences(&self) -> Vec<(String, f64)> {
        let events = std::fs::read_to_string(self.folder.path().join("events")).unwrap();
        let events = events.lines().filter_map(|line| serde_json::from_str(line).ok());
        let of = |event: serde_json::Value| event["hosts"].as_array().cloned().unwrap_or_default();
        let silent = |host: serde_json::Value| {
            Some((host["name"].as_str()?.to_owned(), host["silent_s"].as_f64()?))
        };
        events.flat_map(of).filter_map(silent).collect()
    }

    fn runs(&self) -> Vec<Run> {
        Results::open(&self.out()).and_then(|results| results.runs()).unwrap_or_default()
    }

    /// Processes with these words in their command line that this study started.
    fn with(&self, words: &str) -> Vec<u32> {
        marked_processes(&self.mark, words)
    }

    /// One of them on a host of [`with_spare`].
    fn on_host(&self, words: &str, host: &str) -> Option<u32> {
        let marked = processes_with(&format!("KENDALL_TEST_HOST={host}"));
        self.with(words).into_iter().find(|pid| marked.contains(pid))
    }

    /// Nothing runs any more, and the agents' folders are gone.
    fn nothing_is_left(&self) {
        let of_ssh = || self.with("sshd").len();
        wait_until("the end of all processes", || self.with("").len() == of_ssh());
        wait_until("the end of the agents' folders", || {
            let entries = std::fs::read_dir(self.folder.path()).unwrap();
            entries
                .filter_map(Result::ok)
                .all(|entry| !entry.file_name().to_string_lossy().starts_with("kendall-"))
        });
    }
}

#[test]
fn a_study_over_two_hosts_says_where_everything_ran() {
    let place = Place::new(STUDY);
    let (done, said) = place.run(&["--format", "json"]);
    assert!(done, "{said}");
    let results = Results::open(&place.out()).unwrap();
    let run = &results.runs().unwrap()[0];
    assert_eq!(run.status, Status::Done, "{:?}", run.reasons);
    let tiers = results.tiers(run.id, None).unwrap();
    let where_is = |name: &str| tiers.iter().find(|tier| tier.tier == name).unwrap().host.clone();
    // A relay runs where those are who ask through it.
    assert_eq!(
        (where_is("synthetic").as_str(), where_is("clients -> synthetic").as_str()),
        ("web", "load")
    );
    let generators = results.generators(run.id, None).unwrap();
    assert!(generators.iter().all(|generator| generator.host == "load"));
    // Both were told the same moment of their clock.
    assert_eq!(generators[0].started_ns, generators[1].started_ns);
    // Each process was sampled where it ran, and within the run by the clock of this machine.
    let processes = results.processes(run.id).unwrap();
    for (part, host) in [("synthetic", "web"), ("generator", "load"), ("study", "localhost")] {
        let process = processes.iter().find(|p| p.part.name == part).unwrap();
        assert_eq!(process.host, host);
        assert!(!process.samples.is_empty(), "{part} has no samples");
        assert!(process.samples.iter().all(|s| (run.started_ns..run.ended_ns).contains(&s.at_ns)));
    }
    let hosts = &run.environment["hosts"];
    for host in ["web", "load"] {
        let clock = &hosts[host]["clock"];
        // One machine, one clock: what is found must be nothing, within what is stated.
        let (offset, bound) = (clock["offset_ns"].as_i64().unwrap(), clock["bound_ns"].as_f64());
        assert!(kendall_units::exact_f64(offset.unsigned_abs()) <= bound.unwrap() + 1e3, "{clock}");
        assert!(clock["pings"].as_u64().unwrap() >= 100);
    }
    // The way between the hosts, both of which are this machine: nothing like the link's 1 ms.
    let ways = run.environment["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 1, "{ways:?}");
    assert_eq!((&ways[0]["from"], &ways[0]["to"]), (&"load".into(), &"web".into()));
    assert_eq!((&ways[0]["tier"], &ways[0]["count"]), (&"synthetic".into(), &50.into()));
    let least = ways[0]["least_s"].as_f64().unwrap();
    assert!(least > 0.0 && least < 0.001 && ways[0]["median_s"].as_f64().unwrap() >= least);
    let probed = |key: &str| ways[0]["probe"][key].as_f64().unwrap();
    assert!(probed("round_trip_p50_s") > 0.0 && probed("bytes_per_s") > 0.0, "{ways:?}");
    // 4 clients, 1 ms of service, a link of 1 ms each way: 3 ms at least, in every answer.
    let measured = results.measured(run.id).unwrap();
    assert!(measured.throughput_per_s < 4.0 / 0.003, "{}", measured.throughput_per_s);
    // What they printed has come back.
    let logs = place.out().join("logs/c000-r00-a0");
    assert!(std::fs::read_to_string(logs.join("synthetic-0/log")).unwrap().contains("ready tier="));
    let report = std::fs::read_to_string(place.out().join("report.html")).unwrap();
    assert!(report.contains(">web<") && report.contains(">load<"));
    place.nothing_is_left();
}

#[test]
fn a_dry_run_looks_at_every_host_and_starts_nothing() {
    let place = Place::new(STUDY);
    let (done, said) = place.run(&["--dry-run", "--format", "json"]);
    assert!(done, "{said}");
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["effective"]["place"]["synthetic"], serde_json::json!(["web"]));
    let hosts = document["hosts"].as_array().unwrap();
    assert_eq!(hosts[0]["placed"], serde_json::json!(["synthetic"]));
    assert_eq!((&hosts[1]["host"], &hosts[1]["placed"][0]), (&"load".into(), &"clients".into()));
    assert!(
        hosts[0]["free_bytes"].as_u64().unwrap() > 0 && hosts[0]["cores"].as_u64().unwrap() > 0
    );
    assert!(!place.out().exists());
    place.nothing_is_left();
}

#[test]
fn what_a_host_lacks_is_said_before_the_first_run() {
    let program = STUDY.replace("kind = \"synthetic\"", "kind = \"processes\"").replace(
        "workers = 4\nservice = \"constant:1ms\"",
        "[[system.tiers]]\nname = \"synthetic\"\ncommand = [\"no-such-program\", \"{port}\"]",
    );
    let (done, said) = Place::new(&program).run(&[]);
    assert!(!done && said.contains("host web") && said.contains("`no-such-program`"), "{said}");
    // A cache that cannot be written to; root may write anywhere but below a file.
    let place = Place::new(STUDY);
    let mut command = place.command(&["--dry-run"]);
    let output = command.env("XDG_CACHE_HOME", "/proc/version").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("host web") && said.contains("/proc/version/kendall"), "{said}");
    // A command that carries nothing says why in its own words.
    let refused = STUDY
        .replace("[\"sh\", \"-c\"]", "[\"sh\", \"-c\", \"echo no route to {host} >&2; exit 9; \"]");
    let (done, said) = Place::new(&refused).run(&[]);
    assert!(!done && said.contains("no route to web") && said.contains("exit status: 9"), "{said}");
    place.nothing_is_left();
    // What would have carried the pipe to the next host is ended as well.
    let one = STUDY.replace(
        "[\"sh\", \"-c\"]",
        "[\"sh\", \"-c\", \"[ {host} = web ] && exit 9; sleep 300; \"]",
    );
    let place = Place::new(&one);
    let (done, said) = place.run(&[]);
    assert!(!done && said.contains("host web"), "{said}");
    place.nothing_is_left();
}

/// Found out before the first run, not by three runs that fail.
#[test]
fn an_address_that_is_not_the_hosts_own_is_refused_before_the_first_run() {
    // Of a network that is for examples in documents alone.
    let web = "web = { address = \"127.0.0.1\" }";
    let study = STUDY.replace(web, "web = { address = \"192.0.2.1\" }");
    let place = Place::new(&study);
    for words in [&["--no-report"][..], &["--dry-run"]] {
        let (done, said) = place.run(words);
        assert!(!done && said.contains("host web") && said.contains("192.0.2.1"), "{said}");
        assert!(place.runs().is_empty(), "{said}");
        place.nothing_is_left();
    }
}

/// A port that another program took is a reason to try again, and a tier that is not ready in time none:
/// it was waited for three times.
#[test]
fn a_tier_that_is_not_ready_over_there_is_tried_once() {
    let place = Place::new(STUDY);
    let tries = place.folder.path().join("tries");
    let tier = format!(
        "[[system.tiers]]\nname = \"synthetic\"\nready_deadline = \"1s\"\ncommand = [\"sh\", \"-c\", \
         \"echo {{port}} >> {}; exec sleep 300\"]",
        tries.display()
    );
    let study = STUDY
        .replace("kind = \"synthetic\"", "kind = \"processes\"")
        .replace("workers = 4\nservice = \"constant:1ms\"", &tier)
        .replace("repetitions = 1", "repetitions = 1\nretries = 0");
    std::fs::write(place.folder.path().join("study.toml"), study).unwrap();
    let (done, said) = place.run(&[]);
    assert!(!done, "{said}");
    let reason = place.runs()[0].reasons.join("; ");
    assert!(reason.contains("was not ready after 1 s") && reason.contains("host web"), "{reason}");
    assert_eq!(std::fs::read_to_string(&tries).unwrap().lines().count(), 1);
    place.nothing_is_left();
}

/// Stopped while a host is being connected, a study is interrupted: no run has failed, and no host.
#[test]
fn a_study_that_is_stopped_while_it_connects_is_interrupted() {
    let silent = STUDY.replace("[\"sh\", \"-c\"]", "[\"sh\", \"-c\", \"sleep 300; \"]");
    let place = Place::new(&silent);
    for words in [&["--no-report"][..], &["--dry-run"]] {
        let mut command = place.command(words);
        command.arg("--out").arg(place.out()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_until("the way to the hosts", || !place.with("sleep 300").is_empty());
        signal(child.id(), "INT");
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        place.nothing_is_left();
    }
    assert!(place.runs().is_empty());
}

/// Until the load is under way on its host.
fn under_way(place: &Place) {
    wait_until("the load", || !place.with("load http").is_empty());
}

#[test]
fn a_killed_study_leaves_nothing_on_any_host() {
    let place = Place::new(&STUDY.replace("duration = \"2s\"", "duration = \"60s\""));
    let mut child = place.start();
    under_way(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    place.nothing_is_left();
}

/// An agent or a generator, one of two, gets a signal in the middle of a run of a minute; the run fails, before
/// that minute is over, and says why.
fn a_signal_fails_the_run(name: &str, words: &str, why: &str) -> Vec<(String, f64)> {
    let place = Place::new(&STUDY.replace("duration = \"2s\"", "duration = \"60s\""));
    let mut child = place.start();
    under_way(&place);
    wait_until("both", || place.with(words).len() >= 2);
    signal(place.with(words)[0], name);
    wait_until("the failed run", || place.runs().iter().any(|run| run.status == Status::Failed));
    let run = &place.runs()[0];
    let reason = run.reasons.join("; ");
    assert!(reason.contains(why), "{reason}");
    assert!(run.ended_ns - run.started_ns < 60_000_000_000, "{reason}");
    child.wait().unwrap();
    place.nothing_is_left();
    place.silences()
}

#[test]
fn an_agent_that_is_killed_fails_the_run_by_the_name_of_its_host() {
    a_signal_fails_the_run("KILL", " agent --lease", ": its agent ended unexpectedly");
}

/// It was noticed when the others had ended by themselves, however long they took.
#[test]
fn a_generator_that_is_killed_fails_the_run_at_once() {
    a_signal_fails_the_run("KILL", "load http", "gave no result: it ended with signal: 9");
}

/// Of two hosts of generators one is lost: the run fails, and both generators run on the other one.
#[test]
fn a_lost_host_of_generators_leaves_its_part_to_the_others() {
    let study = with_spare().replace("[\"load\"]", "[\"load\", \"spare\"]");
    let place = Place::new(&study.replace("duration = \"2s\"", "duration = \"5s\""));
    let mut child = place.start();
    under_way(&place);
    wait_until("the load there", || place.on_host("load http", "spare").is_some());
    signal(place.on_host(" agent --lease", "spare").unwrap(), "KILL");
    child.wait().unwrap();
    let runs = place.runs();
    let ended: Vec<(u32, Status)> = runs.iter().map(|run| (run.attempt, run.status)).collect();
    assert_eq!(ended, [(0, Status::Failed), (1, Status::Done)], "{:?}", runs[0].reasons);
    assert!(runs[0].reasons[0].contains("host spare"), "{:?}", runs[0].reasons);
    let caveats: Vec<String> = runs[1].caveats.iter().map(ToString::to_string).collect();
    assert!(caveats.iter().any(|text| text.starts_with("host spare was lost")), "{caveats:?}");
    let hosts = runs[1].environment["hosts"].as_object().unwrap();
    assert_eq!(hosts.keys().collect::<Vec<_>>(), ["load", "web"]);
    place.nothing_is_left();
}

/// With one more host, and the name of its host in the environment of each process.
fn with_spare() -> String {
    STUDY
        .replace("[\"sh\", \"-c\"]", "[\"env\", \"KENDALL_TEST_HOST={host}\", \"sh\", \"-c\"]")
        .replace("[place]", "spare = { address = \"127.0.0.1\" }\n[place]")
}

/// A host that a configuration does not use has no part in its runs: neither its end nor its clock.
#[test]
fn a_host_that_a_configuration_does_not_use_cannot_spoil_its_runs() {
    let study = with_spare().replace("duration = \"2s\"", "duration = \"5s\"");
    let factor = "[factors]\n\"place.synthetic\" = [[\"web\"], [\"spare\"]]\n";
    let place = Place::new(&format!("{study}{factor}"));
    let mut child = place.start();
    under_way(&place);
    let uses_web = place.on_host("serve synthetic", "web").is_some();
    let (used, unused) = if uses_web { ("web", "spare") } else { ("spare", "web") };
    signal(place.on_host(" agent --lease", unused).unwrap(), "KILL");
    child.wait().unwrap();
    let runs = place.runs();
    let ended: Vec<Status> = runs.iter().map(|run| run.status).collect();
    assert_eq!(ended, [Status::Done; 2], "{:?}", runs[0].reasons);
    // The first run knows nothing of the other host, and the second one has connected it again.
    let hosts = |run: &Run| -> Vec<String> {
        run.environment["hosts"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(hosts(&runs[0]), ["load", used]);
    assert_eq!(hosts(&runs[1]), ["load", unused]);
    place.nothing_is_left();
}

/// A host that stands still is noticed from here, and the reaper there ends what its agent cannot. Until then the run
/// names it once a second.
#[test]
fn an_agent_that_stands_still_is_given_up() {
    let silences =
        a_signal_fails_the_run("STOP", " agent --lease", ": nothing was received for 7.5 s");
    assert!(!silences.is_empty() && silences.iter().all(|(_, s)| *s > 2.5), "{silences:?}");
}

/// A study that stands still holds nothing on its hosts longer than the lease.
#[test]
fn a_study_that_stands_still_loses_its_hosts() {
    let place = Place::new(&STUDY.replace("duration = \"2s\"", "duration = \"60s\""));
    let mut child = place.start();
    under_way(&place);
    signal(child.id(), "STOP");
    wait_until("the end of the agents", || place.with(" agent --lease").is_empty());
    wait_until("the end of what they started", || {
        place.with("serve synthetic").is_empty() && place.with("load http").is_empty()
    });
    signal(child.id(), "CONT");
    wait_until("the failed run", || place.runs().iter().any(|run| run.status == Status::Failed));
    child.wait().unwrap();
    place.nothing_is_left();
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(status.unwrap().success());
}

/// What `kubectl` does in the cases that a study needs, with processes of this machine for pods.
const KUBECTL: &str = r#"#!/usr/bin/env python3
import json, os, pathlib, subprocess, sys
place = pathlib.Path(os.environ["KENDALL_TEST_PODS"])
words = sys.argv[1:]
with open(place / "calls", "a") as calls:
    calls.write(json.dumps(words) + "\n")
def flag(name):
    given = [word for word in words if word.startswith(name + "=")]
    return given[0].split("=", 1)[1] if given else None
if flag("--namespace") != "perf" or flag("--context") != "lab":
    sys.exit("error: context or namespace does not exist")
verbs = [word for word in words if not word.startswith("--")]
def of(selector, labels):
    name, value = selector.split("=", 1)
    return labels.get(name) == value
if verbs[0] == "create":
    assert verbs == ["create", "-f", "-"], verbs
    for job in json.load(sys.stdin)["items"]:
        assert job["kind"] == "Job" and job["apiVersion"] == "batch/v1"
        if (place / "forbidden").exists():
            sys.exit("Error from server (Forbidden): jobs.batch is forbidden: User cannot create")
        name = job["metadata"]["name"]
        folder = place / name
        (folder / "work").mkdir(parents=True)
        (folder / "job").write_text(json.dumps(job))
        [container] = job["spec"]["template"]["spec"]["containers"]
        if not (place / "status").exists():
            first = subprocess.Popen(container["command"], cwd=folder, start_new_session=True,
                env=dict(os.environ, TMPDIR=str(folder / "work")), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            (folder / "first").write_text(str(first.pid))
elif verbs[:2] == ["get", "pods"]:
    items = []
    for path in place.glob("*/job"):
        job = json.loads(path.read_text())
        labels = job["spec"]["template"]["metadata"]["labels"]
        if not of(flag("--selector"), labels):
            continue
        status = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [
            {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}
        if (place / "status").exists():
            status = json.loads((place / "status").read_text())
        items.append({"metadata": {"name": path.parent.name + "-x", "labels": labels}, "status": status})
    assert flag("--output") == "json"
    print(json.dumps({"items": items}))
elif verbs[0] == "exec":
    at = words.index("--")
    assert words[at - 3] .endswith("-x") and words[at - 2: at] == ["-c", "host"] and "-i" in words[:at]
    folder = place / words[at - 3][:-2]
    env = dict(os.environ, TMPDIR=str(folder / "work"))
    os.execvpe(words[at + 1], words[at + 1:], env)
elif verbs[:2] == ["delete", "jobs"]:
    for path in list(place.glob("*/job")):
        if of(flag("--selector"), json.loads(path.read_text())["metadata"]["labels"]):
            path.rename(path.parent / "deleted")
else:
    sys.exit(f"error: unknown command {verbs}")
"#;

/// The study over two pods.
fn over_pods() -> Option<Place> {
    if Command::new("python3").arg("--version").output().is_err() {
        #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
        {
            println!("SKIPPED: there is no python3");
        }
        return None;
    }
    let engine =
        "engine = \"kubernetes\"\ncontext = \"lab\"\nnamespace = \"perf\"\nimage = \"any:1\"";
    let study = STUDY
        .replace("engine = \"command\"\nprefix = [\"sh\", \"-c\"]", engine)
        .replace("web = { address = \"127.0.0.1\" }", "web = { cpu = 1, memory = \"1GiB\" }")
        .replace("load = { address = \"127.0.0.1\" }", "load = { node = { pool = \"load\" } }");
    let place = Place::new(&study);
    let bin = place.folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(place.pods()).unwrap();
    std::fs::write(bin.join("kubectl"), KUBECTL).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("kubectl"), executable).unwrap();
    Some(place)
}

impl Place {
    fn pods(&self) -> PathBuf {
        self.folder.path().join("pods")
    }

    /// First processes of pods that still run, Jobs that are still there, and files in pods.
    fn no_pod_is_left(&self) {
        let pods = || std::fs::read_dir(self.pods()).unwrap().map(|entry| entry.unwrap().path());
        wait_until("the end of the pods", || {
            pods().filter_map(|pod| std::fs::read_to_string(pod.join("first")).ok()).all(|pid| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
                stat.map_or(true, |stat| stat.contains(") Z "))
            })
        });
        wait_until("the end of all processes", || self.with("").is_empty());
        for pod in pods().filter(|pod| pod.is_dir()) {
            let left = std::fs::read_dir(pod.join("work")).unwrap();
            let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
            assert!(left.iter().all(|name| name == "kendall.pid"), "{left:?}");
        }
    }
}

#[test]
fn pods_are_made_used_and_removed_by_the_users_own_kubectl() {
    let Some(place) = over_pods() else { return };
    let (done, said) = place.run(&[]);
    assert!(done, "{said}");
    let results = Results::open(&place.out()).unwrap();
    let run = &results.runs().unwrap()[0];
    assert_eq!(run.status, Status::Done, "{:?}", run.reasons);
    let tiers = results.tiers(run.id, None).unwrap();
    assert!(
        tiers.iter().any(|tier| tier.host == "web") && run.environment["hosts"]["load"].is_object()
    );
    place.no_pod_is_left();
    // One Job a host, and all of them deleted at the end.
    let jobs: Vec<PathBuf> = std::fs::read_dir(place.pods())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(jobs.len(), 2);
    assert!(jobs.iter().all(|job| job.join("deleted").exists()), "{jobs:?}");
}

#[test]
fn a_killed_study_leaves_no_pod_that_goes_on() {
    let Some(place) = over_pods() else { return };
    let study = place.folder.path().join("study.toml");
    let text = std::fs::read_to_string(&study).unwrap();
    std::fs::write(&study, text.replace("duration = \"2s\"", "duration = \"60s\"")).unwrap();
    let mut child = place.start();
    under_way(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    // No process is left that could delete: the pods end by themselves.
    place.no_pod_is_left();
}

#[test]
fn a_pod_that_cannot_be_is_said_with_its_reason() {
    let Some(place) = over_pods() else { return };
    let refused = |status: &str| {
        std::fs::write(place.pods().join("status"), status).unwrap();
        let (done, said) = place.run(&["--dry-run"]);
        assert!(!done, "{said}");
        said
    };
    let message = "0/2 nodes are available: 2 Insufficient cpu.";
    let said = refused(&format!(
        r#"{{"phase": "Pending", "conditions": [{{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "{message}"}}]}}"#
    ));
    assert!(said.contains("host ") && said.contains(message), "{said}");
    let said = refused(
        r#"{"phase": "Pending", "containerStatuses": [{"state": {"waiting":
        {"reason": "ImagePullBackOff", "message": "any:1 is not there"}}}]}"#,
    );
    assert!(said.contains("ImagePullBackOff: any:1 is not there"), "{said}");
    std::fs::remove_file(place.pods().join("status")).unwrap();
    std::fs::write(place.pods().join("forbidden"), "").unwrap();
    let (done, said) = place.run(&["--dry-run"]);
    assert!(!done && said.contains("jobs.batch is forbidden"), "{said}");
    place.no_pod_is_left();
}

const OVER_SSH: &str = r#"
name = "over-ssh"
[system]
kind = "memcached"
[links]
"clients -> servers" = { delay = "0.5ms" }
[workload]
clients = 4
mix = { get = 1, set = 1 }
keys = 100
[measure]
duration = "2s"
warm_up = "0s"
cool_down = "0s"
repetitions = 1
[hosts]
web = "web"
load = { ssh = "load" }
[place]
servers = ["web"]
clients = ["load"]
"#;

impl Place {
    /// Two SSH servers of this user on two addresses of the loopback, and an `ssh` that knows them
    /// and nothing of the user's own.
    fn over_ssh(study: &str) -> Self {
        let mut place = Self::new(study);
        let folder = place.folder.path().to_owned();
        let file = |name: &str| folder.join(name).display().to_string();
        for key in ["host_key", "key", "other_key"] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)]);
            assert!(command.status().unwrap().success());
        }
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let public = std::fs::read_to_string(file("host_key.pub")).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let user = Command::new("id").args(["-un", &user.to_string()]).output().unwrap();
        let user = String::from_utf8(user.stdout).unwrap();
        let (mut known, mut config) = (String::new(), String::new());
        for (name, address) in [("web", "127.0.1.1"), ("load", "127.0.1.2")] {
            let port = place.serve(address);
            known.push_str(&format!("[{address}]:{port} {public}"));
            config.push_str(&format!(
                "Host {name}\nHostName {address}\nPort {port}\nUser {}\nIdentityFile {}\n\
                 IdentitiesOnly yes\nUserKnownHostsFile {}\nStrictHostKeyChecking yes\n",
                user.trim(),
                file("key"),
                file("known_hosts"),
            ));
        }
        std::fs::write(file("known_hosts"), known).unwrap();
        std::fs::write(file("config"), config).unwrap();
        let ssh = format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", file("config"));
        std::fs::create_dir(folder.join("bin")).unwrap();
        std::fs::write(folder.join("bin/ssh"), ssh).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.join("bin/ssh"), executable).unwrap();
        place
    }

    /// Starts a server on a port of this address; says which.
    fn serve(&mut self, address: &str) -> u16 {
        let folder = self.folder.path().to_owned();
        let file = |name: &str| folder.join(name).display().to_string();
        std::fs::copy(file("key.pub"), file("authorized")).unwrap();
        let own = format!(
            "SetEnv=KENDALL_TEST_MARK={} XDG_CACHE_HOME={} TMPDIR={}",
            self.mark,
            cache().display(),
            folder.display()
        );
        for _ in 0..10 {
            // The port may be taken before the server has it: then another.
            let free = std::net::TcpListener::bind((address, 0)).unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let mut command = Command::new("/usr/sbin/sshd");
            command.args(["-D", "-e", "-f", "/dev/null", "-h", &file("host_key")]);
            command.args(["-p", &port.to_string()]);
            for option in [
                &format!("ListenAddress={address}"),
                &format!("AuthorizedKeysFile={}", file("authorized")),
                &own,
                "PidFile=none",
                "UsePAM=no",
                "StrictModes=no",
                "PasswordAuthentication=no",
                "MaxStartups=100",
            ] {
                command.args(["-o", option]);
            }
            let mut server = command.stderr(Stdio::null()).spawn().unwrap();
            let mut serves = false;
            wait_until("the SSH server", || {
                serves = std::net::TcpStream::connect((address, port)).is_ok();
                serves || server.try_wait().unwrap().is_some()
            });
            if serves {
                self.servers.push(server);
                return port;
            }
        }
        panic!("no port for an SSH server on {address}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for server in &mut self.servers {
            server.kill().unwrap_or_default();
            server.wait().map(drop).unwrap_or_default();
        }
    }
}

#[test]
fn real_ssh_carries_a_study_of_real_servers() {
    let place = Place::over_ssh(OVER_SSH);
    let (done, said) = place.run(&[]);
    assert!(done, "{said}");
    let results = Results::open(&place.out()).unwrap();
    let run = &results.runs().unwrap()[0];
    assert_eq!(run.status, Status::Done, "{:?}", run.reasons);
    let tiers = results.tiers(run.id, None).unwrap();
    let server = tiers.iter().find(|tier| tier.tier == "servers").unwrap();
    // Its address is what `ssh` makes of its name.
    assert!(server.host == "web" && server.address.starts_with("127.0.1.1:"), "{server:?}");
    let link = tiers.iter().find(|tier| tier.tier == "clients -> servers").unwrap();
    assert!(link.host == "load" && link.address.starts_with("127.0.0.1:"), "{link:?}");
    assert!(results.measured(run.id).unwrap().throughput_per_s < 4.0 / 0.001);
    place.nothing_is_left();
}

#[test]
fn keys_that_do_not_fit_are_said_in_the_words_of_ssh() {
    let place = Place::over_ssh(OVER_SSH);
    let known = place.folder.path().join("known_hosts");
    let right = std::fs::read_to_string(&known).unwrap();
    let other = std::fs::read_to_string(place.folder.path().join("other_key.pub")).unwrap();
    let mine = std::fs::read_to_string(place.folder.path().join("host_key.pub")).unwrap();
    std::fs::write(&known, right.replace(mine.trim(), other.trim())).unwrap();
    let (done, said) = place.run(&[]);
    assert!(!done && said.contains("host web") && said.contains("Host key"), "{said}");
    std::fs::write(&known, right).unwrap();
    std::fs::copy(place.folder.path().join("other_key"), place.folder.path().join("key")).unwrap();
    let (done, said) = place.run(&["--dry-run"]);
    assert!(!done && said.contains("Permission denied"), "{said}");
    place.nothing_is_left();
}

#[test]
fn a_killed_study_leaves_nothing_behind_ssh() {
    let place = Place::over_ssh(&OVER_SSH.replace("duration = \"2s\"", "duration = \"60s\""));
    let mut child = place.start();
    wait_until("the load", || !place.with("load memcached").is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    place.nothing_is_left();
}
