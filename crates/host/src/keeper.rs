//! Nothing that a study starts outlives it, however it ends.
//!
//! Two nets, since each has a hole that the other closes. The *guard* runs first in every child:
//! it asks the kernel to kill the child when its parent dies, and then becomes the command. The
//! kernel forgets that wish when a program changes its user, as memcached does for root, and it
//! does not reach grandchildren. The *reaper* is one process beside the study: it learns of each
//! process group that was started and each that has ended, and when its input ends (because the
//! study has died) it kills the groups that are left. Neither needs `unsafe`, which running
//! code between fork and exec would.

use std::collections::BTreeSet;
use std::io::{BufRead, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};

use crate::quota::{Processors, stay_on};

/// Hidden command of the program that becomes another command.
pub const GUARD: &str = "guard";

/// Hidden command of the program that kills what a dead study has left.
pub const REAPER: &str = "reaper";

/// Becomes `command`, which dies when the process `parent` does. Returns only when it cannot. Joins
/// the control group at `group` first, and goes to these processors if there are any: before the command
/// starts others, which would stay outside.
pub fn guard(
    parent: u32,
    group: Option<&Path>,
    processors: &[usize],
    command: &[String],
) -> std::io::Error {
    if let Some(group) = group
        && let Err(error) =
            std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())
    {
        return error;
    }
    if !processors.is_empty()
        && let Err(error) = stay_on(processors)
    {
        return error;
    }
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // The parent may have died before the signal was set.
    let alive =
        getppid().is_some_and(|pid| i64::from(pid.as_raw_nonzero().get()) == i64::from(parent));
    if !alive {
        return std::io::Error::other("the study that wanted this process is gone");
    }
    let Some((program, arguments)) = command.split_first() else {
        return std::io::Error::other("no command");
    };
    Command::new(program).args(arguments).exec()
}

/// Reads `+GROUP` and `-GROUP` lines until the input ends, then kills the groups that are left.
pub fn reap(input: impl BufRead) {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        let (sign, number) = line.split_at(usize::from(!line.is_empty()));
        let Some(group) = number.parse().ok().and_then(Pid::from_raw) else { continue };
        match sign {
            "+" => groups.insert(group.as_raw_nonzero()),
            _ => groups.remove(&group.as_raw_nonzero()),
        };
    }
    for group in groups.into_iter().filter_map(|group| Pid::from_raw(group.get())) {
        // A group that has ended in the meantime is not a failure.
        kill_process_group(group, Signal::KILL).unwrap_or_default();
    }
}

/// A command that a [`Keeper`] starts.
#[derive(Debug, Clone, Copy)]
pub struct Spawn<'a> {
    pub command: &'a [String],
    pub environment: &'a [(String, String)],
    /// Folder of the control group that it runs in; that of the study without one.
    pub group: Option<&'a Path>,
    /// Processors that it stays on; any without some.
    pub processors: &'a [usize],
}

/// Starts processes that cannot outlive the study.
#[derive(Debug)]
pub struct Keeper {
    program: PathBuf,
    reaper: Child,
    input: Option<ChildStdin>,
    /// Those that limited processes have.
    pub processors: Processors,
}

/// The same for an agent: also when it is silent for the lease, because it was stopped; then the
/// agent is killed as well. In the end its folder is removed.
pub fn reap_for_agent(
    input: impl BufRead + Send + 'static,
    lease: Duration,
    agent: u32,
    folder: &Path,
) {
    let (tell, told) = std::sync::mpsc::sync_channel(1_024);
    std::thread::spawn(move || {
        input
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| tell.send(line))
            .unwrap_or_default();
    });
    let mut lines = String::new();
    let silent = loop {
        match told.recv_timeout(lease) {
            Ok(line) if line == BEAT => {}
            Ok(line) => {
                lines.push_str(&line);
                lines.push('\n');
            }
            Err(error) => break error == std::sync::mpsc::RecvTimeoutError::Timeout,
        }
    };
    if silent && let Some(agent) = i32::try_from(agent).ok().and_then(Pid::from_raw) {
        rustix::process::kill_process(agent, Signal::KILL).unwrap_or_default();
    }
    reap(lines.as_bytes());
    std::fs::remove_dir_all(folder).unwrap_or_default();
}

/// The line by which an agent tells its reaper that it lives.
const BEAT: &str = "=";

impl Keeper {
    /// `program` is the `kendall` binary, which has the commands [`GUARD`] and [`REAPER`].
    pub fn start(program: &Path) -> std::io::Result<Self> {
        Self::start_with(program, &[])
    }

    /// A keeper that kills all processes when it gets no word of this one for the lease, and that
    /// removes a folder at the end.
    pub fn with_lease(program: &Path, lease: Duration, folder: &Path) -> std::io::Result<Self> {
        let (lease, agent) = (lease.as_secs_f64().to_string(), std::process::id().to_string());
        let words: [&std::ffi::OsStr; 6] = [
            "--lease".as_ref(),
            lease.as_ref(),
            "--agent".as_ref(),
            agent.as_ref(),
            "--folder".as_ref(),
            folder.as_ref(),
        ];
        Self::start_with(program, &words)
    }

    fn start_with(program: &Path, words: &[&std::ffi::OsStr]) -> std::io::Result<Self> {
        let mut reaper = Command::new(program)
            .arg(REAPER)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A group of its own: Ctrl-C on the terminal must not reach it.
            .process_group(0)
            .spawn()?;
        let input = reaper.stdin.take();
        let processors = Processors::default();
        Ok(Self { program: program.to_owned(), reaper, input, processors })
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Starts a command in a process group of its own.
    ///
    /// # Errors
    /// When it cannot be started. A program that is not there shows as an exit with 127.
    pub fn spawn(
        &mut self,
        spawn: &Spawn<'_>,
        output: std::fs::File,
        error: std::fs::File,
    ) -> std::io::Result<Child> {
        let child = Command::new(&self.program)
            .arg(GUARD)
            .arg(std::process::id().to_string())
            .args(spawn.group.iter().flat_map(|group| [Path::new("--group"), group]))
            .args(
                spawn.processors.iter().flat_map(|one| ["--processor".to_owned(), one.to_string()]),
            )
            .arg("--")
            .args(spawn.command)
            .envs(spawn.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(error)
            .process_group(0)
            .spawn()?;
        self.tell('+', child.id());
        Ok(child)
    }

    pub fn ended(&mut self, group: u32) {
        self.tell('-', group);
    }

    pub fn beat(&mut self) {
        self.say(BEAT);
    }

    fn tell(&mut self, sign: char, group: u32) {
        self.say(&format!("{sign}{group}"));
    }

    fn say(&mut self, line: &str) {
        // Without a reaper the guard is still there; a study does not fail for it.
        if let Some(input) = &mut self.input
            && writeln!(input, "{line}").and_then(|()| input.flush()).is_err()
        {
            tracing::warn!("the reaper is gone: a killed study may leave processes behind");
            self.input = None;
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.input.take());
        self.reaper.wait().map(drop).unwrap_or_default();
    }
}
