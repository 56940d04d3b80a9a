//! What a machine takes away that no ordinary test may: room on a disk in the middle of a run, the programs
//! of PostgreSQL, control groups.
//!
//! Each test runs once more, in a mount namespace of its own. That takes root, or user namespaces.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::several_hosts;
use crate::support::{kendall, marked_processes, wait_until};
use kendall_stats::estimate::Caveat;
use kendall_store::{Results, Run, Status};
use kendall_testing::namespace::{self, Ballast};

/// Two hosts of this machine, whose folders for what runs there are below one that stands for them.
const STUDY: &str = r#"
name = "over-hosts"
[system]
kind = "synthetic"
workers = 4
service = "constant:1ms"
[workload]
path = "/"
clients = 4
[measure]
duration = "20s"
warm_up = "0s"
cool_down = "0s"
repetitions = 1
retries = 0
[hosts]
engine = "command"
prefix = ["env", "TMPDIR=FOLDER/{host}", "sh", "-c"]
web = { address = "127.0.0.1" }
load = { address = "127.0.0.1" }
[place]
synthetic = "web"
clients = ["load"]
"#;

/// As [`namespace::inside`], with the program carried before.
fn inside(test: &str, mount: &str) -> Option<PathBuf> {
    several_hosts::carry();
    namespace::inside(test, mount)
}

/// As [`namespace::on_a_small_disk`], with the program carried before.
fn on_a_small_disk(test: &str, size: &str) -> Option<PathBuf> {
    several_hosts::carry();
    namespace::on_a_small_disk(test, size)
}

struct Place {
    folder: tempfile::TempDir,
    mark: String,
    out: PathBuf,
}

impl Place {
    fn new(study: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        std::fs::write(folder.path().join("study.toml"), study.replace("FOLDER", &path)).unwrap();
        let out = folder.path().join("results");
        Self { mark: format!("kendall-small-{path}"), out, folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = kendall();
        command.arg("run").arg(self.at("study.toml")).arg("--out").arg(&self.out);
        command.env("XDG_CACHE_HOME", several_hosts::cache()).env("KENDALL_TEST_MARK", &self.mark);
        command.args(words);
        command
    }

    /// Exit code, and what it said.
    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        ended(self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Until its load is on its way.
    fn start(&self) -> Child {
        let mut command = self.command(&["--no-report"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the load", || self.with("load http") > 0);
        child
    }

    fn runs(&self) -> Vec<Run> {
        Results::open(&self.out).and_then(|results| results.runs()).unwrap_or_default()
    }

    /// Processes of this study with these words in their command line.
    fn with(&self, words: &str) -> usize {
        marked_processes(&self.mark, words).len()
    }

    fn nothing_is_left(&self) {
        wait_until("the end of all processes", || self.with("") == 0);
        for host in ["web", "load"] {
            let left = || std::fs::read_dir(self.at(host)).unwrap().filter_map(Result::ok);
            wait_until("the end of the agents' folders", || {
                left().all(|one| !one.file_name().to_string_lossy().starts_with("kendall-"))
            });
        }
    }

    /// The same command makes what has failed, now that there is room.
    fn resumes(&self) {
        let (code, said) = self.run(&["--no-report", "--retry-failed"]);
        let last = self.runs().pop().unwrap();
        assert!(code == Some(0) || last.status == Status::Rejected, "{said}");
        assert_ne!(last.status, Status::Failed, "{:?}", last.reasons);
        self.nothing_is_left();
    }
}

fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// One host's disk is the small one. It fills under a tier, or under a generator that has still to write its
/// result.
fn a_disk_fills_on(host: &str, disk: &Path) {
    let place = Place::new(STUDY);
    for name in ["web", "load"] {
        if name == host {
            std::os::unix::fs::symlink(disk, place.at(name)).unwrap();
        } else {
            std::fs::create_dir(place.at(name)).unwrap();
        }
    }
    let child = place.start();
    let ballast = Ballast::fill(disk, 0);
    let (code, said) = ended(child);
    assert_eq!(code, Some(3), "{said}");
    let run = &place.runs()[0];
    let reason = run.reasons.join("; ");
    assert_eq!(run.status, Status::Failed, "{reason}");
    // What was being written when it filled may have given some back.
    let words = format!("host {host}: the disk is full: ");
    let free = reason.split_once(&words).and_then(|(_, rest)| rest.split_once(" KiB are free at "));
    let free: u64 = free.unwrap_or_else(|| panic!("{reason}")).0.parse().unwrap();
    assert!(free << 10 < kendall_host::disk::FULL_BYTES, "{reason}");
    // Not when the load had ended by itself.
    assert!(run.ended_ns - run.started_ns < 20_000_000_000, "{reason}");
    place.nothing_is_left();
    ballast.remove();
    place.resumes();
}

#[test]
fn a_disk_that_fills_under_a_tier_fails_the_run_by_its_name() {
    let test = "small_disks::a_disk_that_fills_under_a_tier_fails_the_run_by_its_name";
    let Some(disk) = on_a_small_disk(test, "64m") else { return };
    a_disk_fills_on("web", &disk);
}

#[test]
fn a_disk_that_fills_under_a_generator_fails_the_run_by_its_name() {
    let test = "small_disks::a_disk_that_fills_under_a_generator_fails_the_run_by_its_name";
    let Some(disk) = on_a_small_disk(test, "64m") else { return };
    a_disk_fills_on("load", &disk);
}

/// The disk of the results: not even the failed run may find room, and what is stored stays whole.
#[test]
fn a_disk_that_fills_under_the_results_ends_the_study_which_can_be_resumed() {
    let test =
        "small_disks::a_disk_that_fills_under_the_results_ends_the_study_which_can_be_resumed";
    let Some(disk) = on_a_small_disk(test, "64m") else { return };
    let mut place = Place::new(STUDY);
    place.out = disk.join("results");
    for name in ["web", "load"] {
        std::fs::create_dir(place.at(name)).unwrap();
    }
    let child = place.start();
    let ballast = Ballast::fill(&disk, 0);
    let (code, said) = ended(child);
    assert_eq!(code, Some(3), "{said}");
    place.nothing_is_left();
    // Begun again without room, it says so at once.
    let (code, again) = place.run(&["--no-report", "--retry-failed"]);
    assert!(code == Some(3) && again.contains("0 MiB are free at"), "{again}");
    ballast.remove();
    let stored = place.runs().into_iter().find(|run| run.status == Status::Failed);
    let reason = stored.map_or(said, |run| run.reasons.join("; "));
    assert!(reason.contains("are free at") && reason.contains("/results"), "{reason}");
    place.resumes();
}

/// The queue's database looks for PostgreSQL in more folders than those of PATH; the check before a run has
/// it look itself, on the host where it is placed.
#[test]
fn a_host_without_postgresql_is_refused_before_the_first_run() {
    let test = "small_disks::a_host_without_postgresql_is_refused_before_the_first_run";
    let folders = "for folder in /usr/lib/postgresql /usr/local/pgsql /usr/pgsql /opt/postgresql; do \
                   [ ! -d $folder ] || mount -t tmpfs none $folder || exit 1; done";
    if inside(test, folders).is_none() {
        return;
    }
    if Path::new("/usr/bin/postgres").exists() {
        println!("SKIPPED: PostgreSQL is in /usr/bin, where it cannot be hidden");
        return;
    }
    let study = |database: &str| {
        format!(
            "name = 'queue'\n[system]\nkind = 'message-queue'\n[workload]\nclients = 2\n\
             mix = {{ send = 1, receive = 1 }}\n[measure]\nduration = '1s'\nrepetitions = 1\n[hosts]\n\
             engine = 'command'\nprefix = ['sh', '-c']\nhere = {{ address = '127.0.0.1' }}\n\
             db = {{ address = '127.0.0.1' }}\nload = {{ address = '127.0.0.1' }}\n[place]\n\
             {database}middlewares = 'db'\nclients = 'load'\n"
        )
    };
    for (placed, who) in [("database = 'db'\n", "host db"), ("", "")] {
        let place = Place::new(&study(placed));
        for words in [&["--dry-run"][..], &["--no-report"]] {
            let mut command = place.command(words);
            // Where the system's own programs are, without links to PostgreSQL.
            command.env("PATH", "/usr/bin:/bin");
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let (code, said) = ended(child);
            assert_eq!(code, Some(3), "{said}");
            let why =
                said.contains("no PostgreSQL 15 or later") || said.contains("no user `postgres`");
            let tier = said.contains("tier `database`");
            assert!(said.contains(who) && tier && why, "{said}");
            assert!(place.runs().is_empty(), "{said}");
        }
        wait_until("the end of all processes", || place.with("") == 0);
    }
}

/// Where control groups are forbidden, whole cores are given as processors, with a caveat; others are refused.
#[test]
fn without_control_groups_whole_cores_are_processors_and_others_are_refused() {
    let test =
        "small_disks::without_control_groups_whole_cores_are_processors_and_others_are_refused";
    if inside(test, "mount -t tmpfs none /sys/fs/cgroup").is_none() {
        return;
    }
    let study = |cores: &str| {
        format!(
            "name = 'limited'\n[system]\nkind = 'build-cluster'\ncache_cores = {cores}\n[workload]\n\
             clients = 2\nmix = 'get'\nstock = 20\n[measure]\nduration = '1s'\nwarm_up = '0s'\n\
             cool_down = '0s'\nrepetitions = 1\n"
        )
    };
    let place = Place::new(&study("1"));
    let (code, said) = place.run(&["--no-report"]);
    assert!(matches!(code, Some(0 | 5)), "{said}");
    let run = &place.runs()[0];
    let which = run.caveats.iter().find_map(|caveat| match caveat {
        Caveat::CoresByProcessors { which } => Some(which.clone()),
        _ => None,
    });
    assert!(which.as_ref().is_some_and(|which| which.starts_with("cache 0 on ")), "{which:?}");
    let results = Results::open(&place.out).unwrap();
    let processes = results.processes(run.id).unwrap();
    let cache = processes.iter().find(|process| process.part.name == "cache").unwrap();
    let (first, last) = (cache.samples.first().unwrap(), cache.samples.last().unwrap());
    let cpu = |s: &kendall_store::ProcessSample| s.cpu_user_ns + s.cpu_system_ns;
    let used = kendall_units::exact_f64(cpu(last) - cpu(first));
    let elapsed = kendall_units::exact_f64(last.at_ns - first.at_ns);
    // A limit from above holds however busy the machine is; CPU time is counted in ticks of 10 ms.
    assert!(used <= elapsed + 40e6, "{used} ns of CPU in {elapsed} ns on one processor");
    for words in [&["--dry-run"][..], &["--no-report"]] {
        let (code, said) = Place::new(&study("0.4")).run(words);
        assert_eq!(code, Some(3), "{said}");
        assert!(
            said.contains("cores cannot be limited") && said.contains("0.4 of a core"),
            "{said}"
        );
    }
}

/// What a study starts stays on the processors that it was given, with all that it starts itself.
#[test]
fn a_guard_keeps_its_command_on_its_processors() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    };
    let all = list(&status);
    let last = all.rsplit([',', '-']).next().unwrap();
    let parent = std::process::id().to_string();
    let guard = ["guard", &parent, "--processor", last, "--", "sh", "-c", "cat /proc/self/status"];
    let output = kendall().args(guard).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(list(&String::from_utf8_lossy(&output.stdout)), last);
}
