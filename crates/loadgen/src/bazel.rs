//! A build as a load: Bazel on a workspace that is made for it, from its start to its end.
//!
//! The server of Bazel is started and everything is analyzed before the clock runs, so that the
//! makespan is that of the build. What a task took and when it ended is in Bazel's own profile.
//!
//! Left out: what is built. Tasks sleep, count, and write a line.

#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/inside/bazel.rs"]
pub(crate) mod fuzzing;
mod profile;
pub mod stand_ins;
mod workspace;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kendall_protocols::load_result::{
    JOB_LOOP, LoadResult, Operation, RESULT_VERSION, Remark, RemarkKind, Window,
};
use kendall_protocols::snapshot::EncodedHistogram;
use kendall_stats::histogram::Histogram;
use rustix::process::{Pid, WaitOptions};

use crate::clock::{SECOND_NS, now_ns};
use profile::Task;
use workspace::Workspace;

/// Pause between two checks whether Bazel has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Seconds after which an idle server of Bazel ends by itself.
const IDLE_SECONDS: u32 = 60;

/// Bytes of Bazel's last words that an error quotes.
const TAIL_BYTES: usize = 800;

/// What the tasks of a build are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// Runs of one test.
    Tests,
    Files,
}

/// What lies behind the target's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// A cluster that executes.
    Execution,
    /// A cache; tasks run on this machine.
    Cache,
}

#[derive(Debug, Clone)]
pub struct BuildPlan {
    /// `HOST:PORT`.
    pub target: String,
    pub behind: Behind,
    pub kind: TaskKind,
    pub tasks: u32,
    /// Files: in so many layers of the same size, each task after two of the layer before.
    pub layers: u32,
    /// How long each task sleeps.
    pub sleep_s: f64,
    /// How far each task counts, which takes CPU time.
    pub work: u64,
    /// Tasks that Bazel has under way at most.
    pub jobs: u32,
    /// Whether results of earlier builds may be used and are kept.
    pub reuse: bool,
    /// Whether the same is built once before, and what it left here is removed.
    pub warm: bool,
    pub bazel: PathBuf,
    /// Further arguments of the build.
    pub options: Vec<String>,
    /// Makes tasks differ from those of other builds.
    pub seed: u64,
    /// How long the build may take.
    pub longest: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "{program} cannot be started; install it (Debian: `apt-get install bazel-bootstrap \
         bazel-platforms`), or name it with --bazel"
    )]
    Start { program: String, source: std::io::Error },
    #[error("bazel {command} ended with {status}: {said}")]
    Failed { command: String, status: String, said: String },
    #[error("bazel {command} was stopped after {seconds:.1} s, before its end")]
    Stopped { command: String, seconds: f64 },
    #[error("the profile of the build shows {found} of {tasks} tasks")]
    Profile { found: usize, tasks: u32 },
    #[error("{path}")]
    File { path: String, source: std::io::Error },
    #[error("the profile of the build cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
}

impl BuildError {
    fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), source }
    }
}

/// Runs the build once, in a folder of its own below `around`.
pub fn run(plan: &BuildPlan, around: &Path, stop: &AtomicBool) -> Result<LoadResult, BuildError> {
    let workspace = Workspace::write(plan, around)?;
    adopt();
    let bazel = Bazel { plan, workspace: &workspace, stop };
    let outcome = bazel.measure();
    bazel.shut_down();
    outcome
}

/// Makes what outlives its parent a child of this process, as the server of Bazel does: what it uses is the load's.
fn adopt() {
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        tracing::warn!(%error, "what the server of bazel uses counts as that of other programs");
    }
}

/// Waits for those adopted that have ended, but not for `own`.
fn reap_adopted(own: u32) {
    let children = format!("/proc/self/task/{}/children", std::process::id());
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let pids = children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
    let adopted = pids.filter(|pid| u32::try_from(*pid) != Ok(own)).filter_map(Pid::from_raw);
    for pid in adopted {
        rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).map(drop).unwrap_or_default();
    }
}

struct Bazel<'a> {
    plan: &'a BuildPlan,
    workspace: &'a Workspace,
    stop: &'a AtomicBool,
}

/// A build that has ended.
struct Built {
    started_ns: u64,
    ended_ns: u64,
    said: String,
}

impl Bazel<'_> {
    fn measure(&self) -> Result<LoadResult, BuildError> {
        // Starts the server, and loads the workspace: neither is the cluster's work.
        self.bazel("build", &["--nobuild".to_owned()])?;
        let verb = match self.plan.kind {
            TaskKind::Tests => "test",
            TaskKind::Files => "build",
        };
        if self.plan.warm {
            self.bazel(verb, &[])?;
            self.bazel("clean", &[])?;
            self.bazel("build", &["--nobuild".to_owned()])?;
        }
        let profile = self.workspace.profile();
        let more = [format!("--profile={}", profile.display()), "--noslim_profile".to_owned()];
        let built = self.bazel(verb, &more)?;
        let text = std::fs::read(&profile).map_err(|error| BuildError::file(&profile, error))?;
        let tasks = profile::tasks(&text, (built.started_ns, built.ended_ns))?;
        if tasks.len() != usize::try_from(self.plan.tasks).unwrap_or(usize::MAX) {
            return Err(BuildError::Profile { found: tasks.len(), tasks: self.plan.tasks });
        }
        Ok(result(self.plan, &built, &tasks))
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.plan.bazel);
        command
            .current_dir(self.workspace.sources())
            .env("HOME", self.workspace.folder())
            .args(["--nohome_rc", "--host_jvm_args=-Xmx512m"])
            .arg(format!("--max_idle_secs={IDLE_SECONDS}"))
            .arg(format!("--output_user_root={}", self.workspace.folder().join("out").display()))
            .arg(verb)
            .stdin(Stdio::null());
        command
    }

    fn bazel(&self, verb: &str, more: &[String]) -> Result<Built, BuildError> {
        let log = self.workspace.folder().join("bazel.log");
        let file = || File::create(&log).map_err(|error| BuildError::file(&log, error));
        let mut command = self.command(verb);
        if verb != "clean" {
            command
                .args(stand_ins::options(self.workspace.folder()))
                .args(self.options())
                .args(more)
                .arg("//...");
        }
        command.stdout(Stdio::null()).stderr(file()?);
        let started_ns = now_ns();
        let mut child = command.spawn().map_err(|source| BuildError::Start {
            program: self.plan.bazel.display().to_string(),
            source,
        })?;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => return Err(BuildError::file(&log, error)),
            }
            let elapsed = Duration::from_nanos(now_ns().saturating_sub(started_ns));
            if self.stop.load(Ordering::Relaxed) || elapsed > self.plan.longest {
                child.kill().unwrap_or_default();
                child.wait().map(drop).unwrap_or_default();
                let (command, seconds) = (verb.to_owned(), elapsed.as_secs_f64());
                return Err(BuildError::Stopped { command, seconds });
            }
            std::thread::sleep(LOOK);
        };
        let ended_ns = now_ns();
        let said = std::fs::read(&log).map_err(|error| BuildError::file(&log, error))?;
        let said = String::from_utf8_lossy(&said).into_owned();
        if !status.success() {
            let start = said.len().saturating_sub(TAIL_BYTES);
            let tail = String::from_utf8_lossy(&said.as_bytes()[start..]).trim().to_owned();
            let (command, status) = (verb.to_owned(), status.to_string());
            return Err(BuildError::Failed { command, status, said: tail });
        }
        Ok(Built { started_ns, ended_ns, said })
    }

    fn options(&self) -> Vec<String> {
        let plan = self.plan;
        let way = match plan.behind {
            Behind::Execution => "executor",
            Behind::Cache => "cache",
        };
        let mut options = vec![
            format!("--remote_{way}=grpc://{}", plan.target),
            format!("--jobs={}", plan.jobs),
            "--curses=no".to_owned(),
            "--color=no".to_owned(),
        ];
        if !plan.reuse {
            options.extend(
                ["--noremote_accept_cached", "--noremote_upload_local_results"].map(str::to_owned),
            );
        }
        if plan.kind == TaskKind::Tests {
            options.push(format!("--runs_per_test={}", plan.tasks));
            options.push("--cache_test_results=no".to_owned());
        }
        options.extend(plan.options.iter().cloned());
        options
    }

    /// Ends the server of Bazel, which outlives its commands.
    fn shut_down(&self) {
        let child = self.command("shutdown").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let ended = child.and_then(|mut child| {
            loop {
                // It waits until nothing is left of the server.
                reap_adopted(child.id());
                if let Some(status) = child.try_wait()? {
                    return Ok(status);
                }
                std::thread::sleep(LOOK);
            }
        });
        if !ended.is_ok_and(|status| status.success()) {
            tracing::warn!("the server of bazel ends by itself after {IDLE_SECONDS} s");
        }
    }
}

fn result(plan: &BuildPlan, built: &Built, tasks: &[Task]) -> LoadResult {
    let processes = Processes::read(&built.said);
    let mut rejections = Vec::new();
    if plan.behind == Behind::Execution && processes.local > 0 {
        let text =
            format!("{} processes ran on this machine and not in the cluster", processes.local);
        rejections.push(Remark { kind: RemarkKind::Other, text });
    }
    let all = operation(tasks.iter());
    let hits = if plan.reuse { processes.hits.min(all.completed) } else { 0 };
    let misses = if plan.reuse { all.completed - hits } else { 0 };
    let operations = BTreeMap::from([("task".to_owned(), Operation { hits, misses, ..all })]);
    LoadResult {
        version: RESULT_VERSION,
        protocol: "bazel".to_owned(),
        targets: vec![plan.target.clone()],
        r#loop: JOB_LOOP.to_owned(),
        clients: u64::from(plan.jobs),
        started_ns: built.started_ns,
        ended_ns: built.ended_ns,
        windows: windows(built, tasks),
        operations,
        seed: plan.seed,
        rejections,
        ..LoadResult::default()
    }
}

/// What happened to tasks, by second.
fn windows(built: &Built, tasks: &[Task]) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut from_ns = built.started_ns;
    while from_ns < built.ended_ns {
        let to_ns = (from_ns + SECOND_NS).min(built.ended_ns);
        let last = to_ns == built.ended_ns;
        let inside =
            tasks.iter().filter(|task| from_ns <= task.ended_ns && (task.ended_ns < to_ns || last));
        let operations = BTreeMap::from([("task".to_owned(), operation(inside))]);
        windows.push(Window { from_ns, to_ns, operations, steps: Vec::new() });
        from_ns = to_ns;
    }
    windows
}

fn operation<'a>(tasks: impl Iterator<Item = &'a Task>) -> Operation {
    let mut times = Histogram::new();
    for task in tasks {
        times.record(task.took_ns);
    }
    Operation {
        sent: times.count(),
        completed: times.count(),
        response_time: EncodedHistogram(times.encode()),
        ..Operation::default()
    }
}

/// Where the processes of a build ran: `INFO: 31 processes: 30 remote cache hit, 1 internal.`
#[derive(Debug, Default, PartialEq, Eq)]
struct Processes {
    hits: u64,
    remote: u64,
    local: u64,
}

impl Processes {
    fn read(said: &str) -> Self {
        let line = said.lines().find(|line| line.contains(" process")).unwrap_or_default();
        let (_, counts) = line.rsplit_once(": ").unwrap_or_default();
        let mut processes = Self::default();
        for count in counts.trim_end_matches('.').split(", ") {
            let (number, kind) = count.split_once(' ').unwrap_or_default();
            let number: u64 = number.parse().unwrap_or(0);
            match kind {
                "remote cache hit" => processes.hits = processes.hits.saturating_add(number),
                "remote" => processes.remote = processes.remote.saturating_add(number),
                "internal" | "action cache hit" => {}
                _ => processes.local = processes.local.saturating_add(number),
            }
        }
        processes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted_by_where_they_ran() {
        let said = "Loading\nINFO: 43 processes: 30 remote cache hit, 4 internal, 7 remote, 2 linux-sandbox.\n";
        assert_eq!(Processes::read(said), Processes { hits: 30, remote: 7, local: 2 });
        assert_eq!(Processes::read("INFO: 0 processes.\n"), Processes::default());
    }

    /// It was a child of the first process, and each run of a build disturbed by another program, which was the load.
    #[test]
    fn a_server_that_outlives_its_command_is_a_child_of_the_load() {
        adopt();
        let command = ["-c", "sleep 600 > /dev/null 2>&1 & echo $!"];
        let said = Command::new("sh").args(command).output().unwrap().stdout;
        let server: i32 = String::from_utf8(said).unwrap().trim().parse().unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{server}/stat"));
        let parent =
            stat().unwrap().rsplit(')').next().unwrap().split(' ').nth(2).unwrap().to_owned();
        assert_eq!(parent, std::process::id().to_string());
        let pid = Pid::from_raw(server).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let end_ns = now_ns() + 30 * SECOND_NS;
        while stat().is_ok() {
            assert!(now_ns() < end_ns, "nothing waits for what has ended");
            reap_adopted(0);
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn every_task_is_in_one_window() {
        let task = |ended_ns| Task { ended_ns, took_ns: 5 };
        let built = Built { started_ns: 10, ended_ns: 10 + 2 * SECOND_NS + 7, said: String::new() };
        let tasks = [10, 10 + SECOND_NS, 10 + 2 * SECOND_NS + 7].map(task);
        let windows = windows(&built, &tasks);
        let counts: Vec<u64> = windows.iter().map(|w| w.operations["task"].completed).collect();
        assert_eq!(counts, [1, 1, 1]);
    }
}
