//! The process of a slot (`kendall serve worker-slot`, started by the worker): it runs one action
//! after the other and ends all their processes with them.
//!
//! It is the first process of its namespace of processes, so that one signal reaches whatever an
//! action left behind, and the kernel ends all of it should this process die. It ends when the
//! worker does: their socket breaks.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use kendall_tier::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions};

use super::bounds::{ActionBounds, Beyond};
use super::meter;
use super::sandbox::{BUILD, SYSTEM, Sandbox, SandboxError};
use super::slot_protocol::{self, Ended, Order};
use super::start::{Program, Starter};
use super::usage;

/// How often the sizes of the logs, memory and processes are checked while an action runs, and how soon again.
const LOOK_NS: u64 = 100_000_000;
const SOON_NS: u64 = 5_000_000;
/// A look takes no more than one part of so many of the time of a core.
const SHARE: u64 = 10;
/// How long it counts where a program of the system was found.
const FOUND_NS: u64 = 1_000_000_000;
/// Where programs are searched for when the action does not say.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The slot cannot be made or went wrong.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("the slot process failed")]
    Io(#[from] io::Error),
}

/// Leaves the namespaces and starts `again` as the first process of the new ones, with this
/// process's socket; returns when it ends.
///
/// # Errors
/// [`SlotError`]: namespaces are not allowed; the worker gets this error too.
pub fn outer(
    sandbox: &Sandbox,
    socket: OwnedFd,
    mut again: Command,
) -> Result<ExitStatus, SlotError> {
    if let Err(error) = sandbox.leave() {
        refuse(&UnixStream::from(socket), &error)?;
        return Err(error.into());
    }
    // Only the process that runs actions holds it: the worker sees when that one ends.
    drop(socket);
    Ok(again.status()?)
}

/// Makes the place and runs actions until the worker goes. Says on the socket when it is ready, or
/// why it cannot be.
///
/// # Errors
/// [`SlotError`]: the place cannot be made, or the socket broke in the middle of a message.
pub fn inner(sandbox: &Sandbox, socket: OwnedFd, clock: Clock) -> Result<(), SlotError> {
    let socket = UnixStream::from(socket);
    let mut slot = match Slot::new(sandbox, socket.try_clone()?, clock) {
        Ok(slot) => slot,
        Err(error) => {
            refuse(&socket, &error)?;
            return Err(error);
        }
    };
    let ready = Ended { notes: std::mem::take(&mut slot.notes), ..Ended::default() };
    slot_protocol::write(&socket, &ready)?;
    while let Some(order) = slot_protocol::read::<Order>(&socket)? {
        if order.arguments.is_empty() {
            continue; // It came too late: what it was to end has ended.
        }
        let Some(ended) = slot.run(&order)? else { return Ok(()) };
        slot_protocol::write(&socket, &ended)?;
    }
    Ok(())
}

/// Tells the worker why there is no slot.
fn refuse(socket: &UnixStream, error: &dyn std::error::Error) -> io::Result<()> {
    let refused = kendall_units::chain(error);
    slot_protocol::write(socket, &Ended { refused, ..Ended::default() })
}

struct Slot {
    socket: UnixStream,
    clock: Clock,
    stdout: File,
    stderr: File,
    starter: Starter,
    build: PathBuf,
    namespaces: bool,
    bounds: ActionBounds,
    found: Option<Found>,
    notes: String,
}

/// The program that was found last in the folders of the system, which no action can write to.
struct Found {
    name: String,
    path: String,
    program: PathBuf,
    until_ns: u64,
}

/// Why a running action was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Time,
    Log,
    Beyond(Beyond),
    Stopped,
    WorkerGone,
}

impl Slot {
    fn new(sandbox: &Sandbox, socket: UnixStream, clock: Clock) -> Result<Self, SlotError> {
        let log = |name: &str| {
            let mut options = OpenOptions::new();
            options.create(true).append(true).read(true).mode(0o600);
            options.open(sandbox.folder.join(name))
        };
        let (stdout, stderr) = (log("stdout")?, log("stderr")?);
        // A session of its own: no terminal, and signals from one do not reach it.
        if let Err(error) = rustix::process::setsid() {
            tracing::debug!(%error, "the slot leads a session already");
        }
        // Should the machine run out of memory all the same, an action ends rather than its worker.
        if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "500") {
            tracing::debug!(%error, "the kernel does not prefer to end actions");
        }
        let mut notes = String::new();
        let build = if sandbox.namespaces {
            notes = sandbox.enter()?;
            PathBuf::from(BUILD)
        } else {
            let own = Some(rustix::process::getpid());
            rustix::process::set_child_subreaper(own).map_err(io::Error::from)?;
            sandbox.folder.join("build")
        };
        let starter = Starter::new()?;
        notes.push_str(&sandbox.drop_rights()?);
        let namespaces = sandbox.namespaces;
        let (bounds, found) = (sandbox.bounds, None);
        Ok(Self { socket, clock, stdout, stderr, starter, build, namespaces, bounds, found, notes })
    }

    /// Runs one action to its end; `None` when the worker went away.
    fn run(&mut self, order: &Order) -> Result<Option<Ended>, SlotError> {
        for log in [&self.stdout, &self.stderr] {
            // Shortening a file is a write to the disk's journal, also when there is nothing to shorten.
            if log.metadata()?.len() > 0 {
                log.set_len(0)?;
            }
        }
        let began_ns = self.clock.now_ns();
        let program = match self.program(order, began_ns) {
            Ok(program) => program,
            Err(words) => return Ok(Some(Ended { refused: words, ..Ended::default() })),
        };
        let (pid, process) = match self.starter.start(&program, &self.stdout, &self.stderr) {
            Ok(started) => started,
            Err(error) => {
                let refused = self.why_not(order, &error);
                return Ok(Some(Ended { refused, ..Ended::default() }));
            }
        };
        let cut = self.watch(pid, &process, order, began_ns)?;
        let ended_ns = self.clock.now_ns();
        if cut == Some(Cut::WorkerGone) {
            self.end_all()?;
            return Ok(None);
        }
        if cut.is_some() {
            self.kill()?;
        }
        let used = usage::wait(pid)?;
        // Before the answer, so that nothing writes to what is collected now.
        self.end_all()?;
        let (beyond, exit_code) = match cut {
            Some(Cut::Beyond(beyond)) => {
                let words = beyond.words(&self.bounds);
                self.say(&words, order)?;
                (words, beyond.exit_code())
            }
            _ => (String::new(), exit_code(used.status)),
        };
        Ok(Some(Ended {
            exit_code,
            beyond,
            refused: String::new(),
            out_of_time: cut == Some(Cut::Time),
            out_of_log: cut == Some(Cut::Log),
            stopped: cut == Some(Cut::Stopped),
            began_ns,
            ended_ns,
            user_us: used.user_us,
            system_us: used.system_us,
            memory_bytes: used.memory_bytes,
            stdout_bytes: self.stdout.metadata()?.len(),
            stderr_bytes: self.stderr.metadata()?.len(),
            major_faults: used.major_faults,
            notes: String::new(),
        }))
    }

    fn program(&mut self, order: &Order, now_ns: u64) -> Result<Program, String> {
        let name = &order.arguments[0];
        let directory = self.build.join(&order.directory);
        let path = order.environment.iter().find(|variable| variable.name == "PATH");
        let path = path.map_or(DEFAULT_PATH, |variable| &variable.value);
        let program = self.find(name, &directory, path, now_ns).ok_or_else(|| {
            no_directory(order, &directory).unwrap_or_else(|| {
                format!("{name:?} is not there, or is not a program (PATH is {path:?})")
            })
        })?;
        // Of a name that comes twice, the last one counts.
        let environment: BTreeMap<&str, &str> = order
            .environment
            .iter()
            .map(|variable| (variable.name.as_str(), variable.value.as_str()))
            .collect();
        Program::new(&program, &directory, &order.arguments, environment)
            .map_err(|_| "a word or a variable of the command has a zero byte in it".to_owned())
    }

    /// Why a program that was found could not be started.
    fn why_not(&self, order: &Order, error: &io::Error) -> String {
        let name = &order.arguments[0];
        no_directory(order, &self.build.join(&order.directory)).unwrap_or_else(|| {
            match error.kind() {
                io::ErrorKind::NotFound => format!(
                    "{name:?} cannot be started: what its first line or its header names to run it is not there"
                ),
                _ => format!("{name:?} cannot be started: {error}"),
            }
        })
    }

    /// The program that a name means. A build starts the same few again and again, each of which would be searched
    /// for in one folder after the other.
    fn find(&mut self, name: &str, directory: &Path, path: &str, now_ns: u64) -> Option<PathBuf> {
        if let Some(found) = &self.found
            && now_ns < found.until_ns
            && (found.name.as_str(), found.path.as_str()) == (name, path)
        {
            return Some(found.program.clone());
        }
        let program = find(name, directory, path)?;
        if self.namespaces && !name.contains('/') && is_of_the_system(path) {
            self.found = Some(Found {
                name: name.to_owned(),
                path: path.to_owned(),
                program: program.clone(),
                until_ns: now_ns.saturating_add(FOUND_NS),
            });
        }
        Some(program)
    }

    /// Returns when the action ended by itself, or with the reason why it is to be ended.
    fn watch(
        &self,
        pid: Pid,
        process: &OwnedFd,
        order: &Order,
        began_ns: u64,
    ) -> Result<Option<Cut>, SlotError> {
        let deadline = began_ns.saturating_add(order.time_limit_ns);
        // It begins with nothing.
        let mut look_in = self.again_in(meter::Had::default(), 0);
        loop {
            let now = self.clock.now_ns();
            if now >= deadline {
                return Ok(Some(Cut::Time));
            }
            let wait = look_in.min(deadline - now);
            let (process_ready, socket_ready) = self.poll(process, wait)?;
            if process_ready {
                let ended = self.too_long(order)?.then_some(Cut::Log);
                return Ok(ended.or_else(|| self.left_beyond(pid)));
            }
            if socket_ready {
                return match slot_protocol::read::<Order>(&self.socket) {
                    Ok(Some(end)) if end.out_of_disk => Ok(Some(Cut::Beyond(Beyond::Disk))),
                    Ok(Some(_)) => Ok(Some(Cut::Stopped)),
                    Ok(None) | Err(_) => Ok(Some(Cut::WorkerGone)),
                };
            }
            if self.too_long(order)? {
                return Ok(Some(Cut::Log));
            }
            let began = spent_ns();
            reap_orphans(pid);
            let had = self.look();
            if let Some(beyond) = had.beyond(&self.bounds) {
                return Ok(Some(Cut::Beyond(beyond)));
            }
            look_in = self.again_in(had, spent_ns().saturating_sub(began));
        }
    }

    /// What the action has now.
    fn look(&self) -> meter::Had {
        // Without a view of the processes, the kernel's limits are all that there is.
        meter::below(std::process::id(), self.asked()).unwrap_or_default()
    }

    /// The bound that what the first process left is beyond: one that made ever more processes may end first.
    fn left_beyond(&self, first: Pid) -> Option<Cut> {
        // Mostly it left nothing, and no look is needed to see that.
        let left = children().is_ok_and(|children| children.iter().any(|child| *child != first));
        if !left {
            return None;
        }
        // Where the kernel refuses an action more processes, its first one fails and the others may end as fast: those
        // that ended since the last look count. One that succeeded was refused nothing.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let ended = rustix::process::waitid(WaitId::Pid(first), options).ok().flatten();
        if ended.is_none_or(|ended| ended.exit_status() == Some(0)) {
            reap_orphans(first);
        }
        self.look().beyond(&self.bounds).map(Cut::Beyond)
    }

    /// Most processes that a look asks: those of the machine, where they are not the slot's alone.
    fn asked(&self) -> u64 {
        // The slot's own, and one that is too many.
        if self.namespaces { self.bounds.processes.saturating_add(2) } else { u64::MAX }
    }

    /// Nanoseconds until the next look, of an action that had this at the last one, which took so much of a core.
    fn again_in(&self, had: meter::Had, took_ns: u64) -> u64 {
        let soon = had.safe_ns(&self.bounds).clamp(SOON_NS, LOOK_NS);
        soon.max(took_ns.saturating_mul(SHARE))
    }

    /// Adds a line of its own to what the action wrote to its errors, where there is space.
    fn say(&self, words: &str, order: &Order) -> io::Result<()> {
        let length = self.stderr.metadata()?.len();
        // A program that was killed may have written half a line.
        let mut last = [b'\n'];
        if length > 0 {
            self.stderr.read_exact_at(&mut last, length - 1)?;
        }
        let end = if last == *b"\n" { "" } else { "\n" };
        let line = format!("{end}kendall: {words}\n");
        if length.saturating_add(line.len() as u64) <= order.log_bytes {
            io::Write::write_all(&mut &self.stderr, line.as_bytes())?;
        }
        Ok(())
    }

    fn poll(&self, process: &OwnedFd, wait_ns: u64) -> io::Result<(bool, bool)> {
        let mut both = [
            PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
        ];
        let wait = Timespec::try_from(std::time::Duration::from_nanos(wait_ns)).ok();
        match poll(&mut both, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok((!both[0].revents().is_empty(), !both[1].revents().is_empty()))
    }

    fn too_long(&self, order: &Order) -> io::Result<bool> {
        let most = order.log_bytes;
        Ok(self.stdout.metadata()?.len() > most || self.stderr.metadata()?.len() > most)
    }

    /// Ends what the action started, as far as one signal reaches.
    fn kill(&self) -> io::Result<()> {
        if self.namespaces {
            return usage::kill_all();
        }
        for child in children()? {
            match rustix::process::kill_process(child, rustix::process::Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Ends everything and waits until it has ended.
    fn end_all(&self) -> io::Result<()> {
        loop {
            loop {
                // Orphans come to this process: while one of them lives, it has a child, and the next
                // round finds them. Mostly there is none, and nothing to kill.
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(rustix::io::Errno::CHILD) => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
            self.kill()?;
            // Some are dying still.
            match rustix::process::wait(WaitOptions::empty()) {
                Ok(_) | Err(rustix::io::Errno::CHILD | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Time of a core that this thread has had. By the machine's clock, an action that leaves the slot no core would be
/// looked at ever less.
fn spent_ns() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec.cast_unsigned() * 1_000_000_000 + spent.tv_nsec.cast_unsigned()
}

/// Takes in the orphans of the action that have ended, all but the action's first process, whose usage is still to be
/// asked for. Until then the kernel counts them as processes.
fn reap_orphans(first: Pid) {
    for child in children().unwrap_or_default().into_iter().filter(|child| *child != first) {
        if let Err(error) = rustix::process::waitpid(Some(child), WaitOptions::NOHANG) {
            tracing::debug!(%error, "an orphan is not this process's");
        }
    }
}

/// Children of this process: without namespaces, orphans of the action come to it, since it takes
/// in all of them.
fn children() -> io::Result<Vec<Pid>> {
    if let Ok(list) = std::fs::read_to_string("/proc/thread-self/children") {
        let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
        return Ok(pids.filter_map(Pid::from_raw).collect());
    }
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name may have anything in it; what follows its last parenthesis is numbers.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let parent = rest.split_whitespace().nth(1).and_then(|parent| parent.parse::<i32>().ok());
        if parent == Some(own) {
            found.extend(Pid::from_raw(pid));
        }
    }
    Ok(found)
}

/// What to say when the working directory of a command is none.
fn no_directory(order: &Order, directory: &Path) -> Option<String> {
    let name = &order.directory;
    (!directory.is_dir()).then(|| {
        format!(
            "the working directory {name:?} is not a directory of the inputs, nor one of an output"
        )
    })
}

/// Whether all folders of a search path show the system's own, in which actions change nothing.
fn is_of_the_system(path: &str) -> bool {
    path.split(':').filter(|folder| !folder.is_empty()).all(|folder| {
        let folder = Path::new(folder);
        let up = folder.components().any(|part| part == std::path::Component::ParentDir);
        !up && SYSTEM.iter().any(|system| folder.starts_with(system))
    })
}

/// The program that a name means, as a shell would find it.
fn find(name: &str, directory: &Path, path: &str) -> Option<PathBuf> {
    let runs = |program: &Path| {
        let meta = std::fs::metadata(program);
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let program = directory.join(name);
        return runs(&program).then_some(program);
    }
    let folders = path.split(':').filter(|folder| !folder.is_empty());
    folders.map(|folder| directory.join(folder).join(name)).find(|program| runs(program))
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_action_can_change_is_remembered() {
        assert!(is_of_the_system(DEFAULT_PATH) && is_of_the_system("/opt/a:/usr/bin"));
        for other in ["/build/bin:/usr/bin", "bin", "/tmp", "/usr/../tmp", "/usr/bin:.", "/usrx"] {
            assert!(!is_of_the_system(other), "{other}");
        }
    }
}
