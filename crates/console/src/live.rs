//! Studies that the console runs: `kendall run`, started as a process, and what it says of its progress.
//!
//! One at a time: a second one would disturb what the first measures.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Shared;
use crate::failure::{Answered, Failure, aside};
use crate::files::runnable;

/// Runs of studies that are remembered, the lines of each, and the seconds of its present run.
const KEPT: usize = 20;
const LINES: usize = 200;
const SECONDS: usize = 600;
const LINE_BYTES: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Live {
    all: Arc<Mutex<VecDeque<Job>>>,
    ended: Arc<Condvar>,
}

/// A study that runs, or that ran.
#[derive(Debug, Serialize)]
struct Job {
    number: u64,
    #[serde(flatten)]
    what: What,
    /// `None` when it has ended.
    #[serde(skip)]
    pid: Option<Pid>,
    state: &'static str,
    code: Option<i32>,
    runs: Option<u64>,
    runs_ended: u64,
    levels: String,
    /// Of the present run, a second each.
    seconds: VecDeque<Value>,
    lines: VecDeque<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct What {
    /// Of the folder of study files; empty for the one in `out`, which is resumed.
    #[serde(default)]
    file: String,
    /// Folder of the results.
    out: String,
    #[serde(default)]
    toy: bool,
    #[serde(default)]
    retry_failed: bool,
}

/// A line of `--progress json`.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event {
    Opened { runs: u64, ended: u64 },
    Started { levels: String },
    Live(Value),
    Ended { line: String },
}

impl Live {
    /// Whether a study is being measured.
    pub(crate) fn runs(&self) -> bool {
        self.all.lock().iter().any(|job| job.pid.is_some())
    }

    /// Stops what runs as Ctrl-C does, and waits for it: so long, and then at most so long after each harder signal. One
    /// that is frozen hears only the last.
    pub(crate) fn stop_all(&self, first: Duration, then: Duration) {
        type Step = (fn(&mut Job), Duration);
        let steps: [Step; 3] = [(Job::interrupt, first), (Job::terminate, then), (Job::kill, then)];
        let running = |all: &mut VecDeque<Job>| all.iter().any(|job| job.pid.is_some());
        let mut all = self.all.lock();
        for (signal, patience) in steps {
            all.iter_mut().for_each(signal);
            if !self.ended.wait_while_for(&mut all, running, patience).timed_out() {
                return;
            }
        }
    }

    fn follow(&self, number: u64, mut child: Child) {
        let (all, ended) = (Arc::clone(&self.all), Arc::clone(&self.ended));
        let (output, told) = (child.stdout.take(), child.stderr.take());
        thread::spawn(move || {
            let with = |change: &dyn Fn(&mut Job)| {
                let mut all = all.lock();
                all.iter_mut().filter(|job| job.number == number).for_each(change);
            };
            thread::scope(|scope| {
                scope.spawn(|| lines(output, |line| with(&|job: &mut Job| job.keep(line))));
                lines(told, |line| with(&|job: &mut Job| job.take_in(line)));
            });
            // Its number is its own until it was waited for: it must not be signaled after that.
            let mut all = all.lock();
            let code = child.wait().ok().and_then(|status| status.code());
            for job in all.iter_mut().filter(|job| job.number == number) {
                let stopped = job.state == "stopping" && code != Some(0);
                (job.pid, job.state, job.code) =
                    (None, if stopped { "stopped" } else { "ended" }, code);
            }
            ended.notify_all();
        });
    }
}

impl Job {
    /// A study that has just been started.
    fn new(number: u64, what: What, child: &Child) -> Self {
        Self {
            number,
            what,
            pid: Some(Pid::from_child(child)),
            state: "running",
            code: None,
            runs: None,
            runs_ended: 0,
            levels: String::new(),
            seconds: VecDeque::new(),
            lines: VecDeque::new(),
        }
    }

    /// Once: a second signal would end the program at once, with its run.
    fn interrupt(&mut self) {
        if let Some(pid) = self.pid
            && self.state == "running"
        {
            self.state = "stopping";
            rustix::process::kill_process(pid, Signal::INT).unwrap_or_default();
        }
    }

    /// A second signal: it ends at once.
    fn terminate(&mut self) {
        if let Some(pid) = self.pid {
            rustix::process::kill_process(pid, Signal::TERM).unwrap_or_default();
        }
    }

    /// Where it does not stop. What it started is ended by the keeper of its processes.
    fn kill(&mut self) {
        if let Some(pid) = self.pid {
            self.keep("it did not stop, and was killed");
            rustix::process::kill_process(pid, Signal::KILL).unwrap_or_default();
        }
    }

    fn keep(&mut self, line: &str) {
        self.lines.push_back(line.to_owned());
        while self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }

    fn take_in(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Event::Opened { runs, ended }) => (self.runs, self.runs_ended) = (Some(runs), ended),
            Ok(Event::Started { levels }) => {
                self.levels = levels;
                self.seconds.clear();
            }
            Ok(Event::Live(second)) => {
                self.seconds.push_back(second);
                while self.seconds.len() > SECONDS {
                    self.seconds.pop_front();
                }
            }
            Ok(Event::Ended { line }) => {
                self.runs_ended += 1;
                self.keep(&line);
            }
            Err(_) => self.keep(line),
        }
    }
}

/// Each line, in parts where it is longer than one may be.
fn lines(from: Option<impl Read>, mut each: impl FnMut(&str)) {
    let Some(from) = from else { return };
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    while from.by_ref().take(LINE_BYTES).read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
        each(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
}

pub(crate) async fn list(State(shared): State<Shared>) -> Answered {
    let all = shared.live.all.lock();
    Ok(Json(json!({ "runs": all.iter().rev().collect::<Vec<_>>() })))
}

pub(crate) async fn start(
    State(shared): State<Shared>,
    what: Result<Json<What>, JsonRejection>,
) -> Answered {
    let Json(what) = what?;
    aside(move || {
        let out = shared.results.place(&what.out)?;
        let file = match what.file.as_str() {
            "" => runnable(out.join("study.toml"))?,
            name => runnable(shared.files.path(name)?)?,
        };
        let mut command = shared.program.command();
        command.arg("run").arg(file).arg("--out").arg(out).args(["--progress", "json"]);
        command.args(what.toy.then_some("--toy"));
        command.args(what.retry_failed.then_some("--retry-failed"));
        // A Ctrl-C at the terminal is for the console, which stops it once.
        command.process_group(0);
        // Held as long as the console lives, which may be killed.
        command.arg("--until-input-ends").stdin(Stdio::piped());
        let mut all = shared.live.all.lock();
        if let Some(other) = all.iter().find(|job| job.pid.is_some()) {
            let what = format!(
                "`{}` is running, and two at a time would disturb each other: stop it first",
                other.what.out
            );
            return Err(Failure::conflict(what));
        }
        let child = command.spawn()?;
        let number = all.back().map_or(1, |last| last.number + 1);
        all.push_back(Job::new(number, what, &child));
        while all.len() > KEPT {
            all.pop_front();
        }
        drop(all);
        shared.live.follow(number, child);
        Ok(Json(json!({ "number": number })))
    })
    .await
}

pub(crate) async fn stop(
    State(shared): State<Shared>,
    number: Result<Path<u64>, PathRejection>,
) -> Answered {
    let Path(number) = number?;
    let mut all = shared.live.all.lock();
    let Some(job) = all.iter_mut().find(|job| job.number == number) else {
        return Err(Failure::not_found(format!("run {number} is not known")));
    };
    if job.state == "stopping" {
        job.kill();
    } else {
        job.interrupt();
    }
    Ok(Json(json!({ "number": number, "state": job.state })))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use std::process::Command;

    use super::*;

    /// A process of this script as a study that runs.
    fn running(script: &str) -> (Live, Pid) {
        let live = Live::default();
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let what =
            What { file: String::new(), out: String::new(), toy: false, retry_failed: false };
        live.all.lock().push_back(Job::new(1, what, &child));
        live.follow(1, child);
        (live, pid)
    }

    #[test]
    fn a_frozen_study_does_not_hold_up_the_end() {
        let (live, pid) = running("while :; do sleep 0.01; done");
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        live.stop_all(Duration::from_millis(10), Duration::from_millis(10));
        while live.runs() {
            thread::yield_now();
        }
        assert_eq!(live.all.lock()[0].code, None, "a signal ended it");
    }

    #[test]
    fn a_study_that_only_a_second_signal_ends_gets_it() {
        let (live, _) =
            running("trap '' INT; trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done");
        while live.all.lock()[0].lines.is_empty() {
            thread::yield_now();
        }
        live.stop_all(Duration::from_millis(10), Duration::from_secs(60));
        assert_eq!(live.all.lock()[0].code, Some(7));
    }
}
