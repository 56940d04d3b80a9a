//! One process that a study started: from the spawn, over being ready, to its end.

#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/inside/instance.rs"]
pub(crate) mod fuzzing;

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::clock::{Until, monotonic_ns};
use crate::error::HostError;
use crate::hosts::LOCALHOST;
use crate::http;
use crate::keeper::{Keeper, Spawn};
use crate::launch::{AddressFrom, Announced, AwaitReady, Launch, Ready, StopSignal};
use crate::quota::{Limit, QuotaError};

/// Time between two checks for something that is waited for.
const LOOK: Duration = Duration::from_millis(3);

/// How long one connection of a ready check may take, and its first request.
const CHECK_DEADLINE: Duration = Duration::from_secs(1);

/// Bytes of a log's end that an error quotes.
const TAIL_BYTES: usize = 400;

/// Why a process could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("{name} cannot be started")]
    Spawn { name: String, source: std::io::Error },
    #[error("{name} cannot be started")]
    Quota { name: String, source: QuotaError },
    #[error("{name} ended with {status}{tail}")]
    Ended { name: String, status: String, tail: String },
    #[error("{name} was not ready after {seconds} s ({check}){tail}")]
    NotReady { name: String, seconds: u64, check: String, tail: String },
    #[error("{name}: `{{{placeholder}}}` in its command is no placeholder; known are {known}")]
    Placeholder { name: String, placeholder: String, known: String },
    #[error(transparent)]
    Host(HostError),
    /// In the words of the agent.
    #[error("{what}")]
    Told { what: String, ended: bool },
    #[error("interrupted")]
    Interrupted,
}

impl From<HostError> for ProcessError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Interrupted => Self::Interrupted,
            // What is wrong with a process here is no matter of a host.
            HostError::Refused { host, what } if host == LOCALHOST => {
                Self::Told { what, ended: false }
            }
            other => Self::Host(other),
        }
    }
}

#[derive(Debug)]
pub struct Instance {
    name: String,
    folder: PathBuf,
    child: Child,
    status: Option<ExitStatus>,
    started_ns: u64,
    /// When its end was seen.
    ended_ns: u64,
    scratch: Option<PathBuf>,
    /// After the process in the order of fields: a group is removed when it is empty.
    limit: Option<Limit>,
}

impl Instance {
    pub fn spawn(keeper: &mut Keeper, launch: &Launch) -> Result<Self, ProcessError> {
        let failed = |source| ProcessError::Spawn { name: launch.name.clone(), source };
        if let Some(scratch) = &launch.scratch {
            // What a killed study left there would be found again by this one.
            std::fs::remove_dir_all(scratch).unwrap_or_default();
        }
        std::fs::create_dir_all(&launch.folder).map_err(failed)?;
        // A port file of an earlier try would be taken for this one's.
        std::fs::remove_file(launch.folder.join("port")).unwrap_or_default();
        let output = File::create(launch.folder.join("output")).map_err(failed)?;
        let error = File::create(launch.folder.join("log")).map_err(failed)?;
        let limit = launch
            .cores
            .map(|cores| Limit::new(cores, &keeper.processors))
            .transpose()
            .map_err(|source| ProcessError::Quota { name: launch.name.clone(), source })?;
        let spawn = Spawn {
            command: &launch.command,
            environment: &launch.environment,
            group: limit.as_ref().and_then(Limit::group),
            processors: limit.as_ref().map_or(&[], Limit::processors),
        };
        let started_ns = monotonic_ns();
        let child = keeper.spawn(&spawn, output, error).map_err(failed)?;
        Ok(Self {
            name: launch.name.clone(),
            folder: launch.folder.clone(),
            child,
            status: None,
            started_ns,
            ended_ns: 0,
            scratch: launch.scratch.clone(),
            limit,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processors that it is pinned to instead of a limit by a control group; none with one, or without a limit.
    pub fn processors(&self) -> &[usize] {
        self.limit.as_ref().map_or(&[], Limit::processors)
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
            if self.status.is_some() {
                self.ended_ns = monotonic_ns();
            }
        }
        self.status
    }

    /// When it was started, and when its end was seen.
    pub fn life_ns(&self) -> (u64, u64) {
        (self.started_ns, self.ended_ns)
    }

    /// The error of having ended, if it has.
    pub fn check_alive(&mut self) -> Result<(), ProcessError> {
        match self.ended() {
            None => Ok(()),
            Some(status) => Err(ProcessError::Ended {
                name: self.name.clone(),
                status: status.to_string(),
                tail: self.tail(),
            }),
        }
    }

    /// Returns what `look` finds, calling it again until the deadline.
    pub fn wait_for<T>(
        &mut self,
        deadline: Duration,
        check: &str,
        interrupted: &dyn Fn() -> bool,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, ProcessError> {
        let until = Until::after(deadline);
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            self.check_alive()?;
            if interrupted() {
                return Err(ProcessError::Interrupted);
            }
            if until.is_over() {
                return Err(ProcessError::NotReady {
                    name: self.name.clone(),
                    seconds: deadline.as_secs(),
                    check: check.to_owned(),
                    tail: self.tail(),
                });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The end of its log, for an error.
    pub fn tail(&self) -> String {
        let text = ["log", "output"]
            .iter()
            .filter_map(|file| std::fs::read(self.folder.join(file)).ok())
            .find(|bytes| !bytes.is_empty())
            .unwrap_or_default();
        // Without the progress of a load, which is for other programs.
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"{\""));
        let tail = last_lines(&lines.collect::<Vec<_>>().join(&b'\n'));
        let tail = tail.trim();
        let path = self.folder.display();
        if tail.is_empty() { format!("; see {path}") } else { format!(": {tail} (see {path})") }
    }

    /// Asks for a graceful stop.
    pub fn ask_to_stop(&mut self, signal: StopSignal) {
        if self.ended().is_none() {
            let signal = match signal {
                StopSignal::Terminate => Signal::TERM,
                StopSignal::Interrupt => Signal::INT,
                StopSignal::Quit => Signal::QUIT,
                StopSignal::Kill => Signal::KILL,
            };
            if let Some(pid) = self.raw_pid() {
                rustix::process::kill_process(pid, signal).unwrap_or_default();
            }
        }
    }

    /// Waits for the end until the deadline, then kills; says whether it had to.
    pub fn end_by(&mut self, deadline: Duration) -> bool {
        let until = Until::after(deadline);
        while self.ended().is_none() && !until.is_over() {
            std::thread::sleep(LOOK);
        }
        let killed = self.ended().is_none();
        self.end_group();
        if let Some(scratch) = self.scratch.take() {
            std::fs::remove_dir_all(scratch).unwrap_or_default();
        }
        killed
    }

    /// Kills what is left of the process and of those that it started.
    fn end_group(&mut self) {
        if let Some(pid) = self.raw_pid() {
            let alive = self.ended().is_none();
            if alive || test_kill_process_group(pid).is_ok() {
                kill_process_group(pid, Signal::KILL).unwrap_or_default();
            }
            if alive {
                self.status = self.child.wait().ok();
            }
        }
    }

    fn raw_pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Instance {
    /// The way out of errors and panics; [`end_by`](Self::end_by) is the graceful one.
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.end_group();
        }
    }
}

/// Waits until an instance may be used, and returns where it listens.
pub fn wait_ready(
    instance: &mut Instance,
    wanted: &AwaitReady,
    interrupted: &dyn Fn() -> bool,
) -> Result<Announced, ProcessError> {
    let deadline = Duration::from_millis(wanted.deadline_ms);
    let folder = instance.folder.clone();
    let announced = match wanted.address {
        AddressFrom::ReadyLine => {
            instance.wait_for(deadline, "its ready line", interrupted, || ready_line(&folder))?
        }
        AddressFrom::PortFile => {
            instance.wait_for(deadline, "its port file", interrupted, || {
                port_file(&folder, &wanted.host)
            })?
        }
        AddressFrom::Chosen => {
            Announced { listen: vec![wanted.chosen.clone()], ..Announced::default() }
        }
    };
    let address = announced.listen.first().cloned().unwrap_or_default();
    match &wanted.ready {
        Ready::Tcp => instance.wait_for(deadline, "a TCP connection", interrupted, || {
            connects(&address).then_some(())
        })?,
        Ready::Http(path) => {
            let check = format!("GET {path}");
            let mut patience = CHECK_DEADLINE;
            instance.wait_for(deadline, &check, interrupted, || {
                let status = http::status(&address, path, patience);
                // A slow service answers the same way each time; there is time for some more requests.
                if status.as_ref().is_err_and(http::timed_out) {
                    patience = (2 * patience).min(deadline / 4).max(CHECK_DEADLINE);
                }
                (200..400).contains(&status.ok()?).then_some(())
            })?;
        }
        Ready::Announced => {}
        Ready::Command(command) => {
            let check = command.join(" ");
            instance.wait_for(deadline, &check, interrupted, || succeeds(command).then_some(()))?;
        }
    }
    // What answers may be another program that took the port; ours must be alive.
    instance.check_alive()?;
    Ok(announced)
}

fn connects(address: &str) -> bool {
    let resolved = address.parse::<SocketAddr>();
    resolved.is_ok_and(|address| TcpStream::connect_timeout(&address, CHECK_DEADLINE).is_ok())
}

fn succeeds(command: &[String]) -> bool {
    let Some((program, arguments)) = command.split_first() else { return false };
    let output = std::process::Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// `ready tier=NAME listen=HOST:PORT … metrics=HOST:PORT pid=N` in the log.
fn ready_line(folder: &Path) -> Option<Announced> {
    announced(&std::fs::read_to_string(folder.join("log")).ok()?)
}

fn announced(log: &str) -> Option<Announced> {
    let end = log.rfind('\n')?;
    let line = log[..end].lines().find(|line| line.starts_with("ready "))?;
    let values = |key: &str| {
        line.split_whitespace()
            .filter_map(|word| word.split_once('='))
            .filter(|(name, _)| *name == key)
            .map(|(_, value)| value.to_owned())
            .collect::<Vec<_>>()
    };
    let one = |key: &str| values(key).into_iter().next();
    Some(Announced { listen: values("listen"), metrics: one("metrics"), programs: one("programs") })
}

/// `TCP INET: PORT` in the file that memcached writes.
fn port_file(folder: &Path, host: &str) -> Option<Announced> {
    listening(&std::fs::read_to_string(folder.join("port")).ok()?, host)
}

fn listening(text: &str, host: &str) -> Option<Announced> {
    let line = text.split_inclusive('\n').find(|line| line.starts_with("TCP INET:"))?;
    let port = line.strip_suffix('\n')?.rsplit(' ').next()?;
    Some(Announced { listen: vec![format!("{host}:{port}")], ..Announced::default() })
}

/// A port of this address that is free now.
///
/// From below the range that the system hands out by itself (Linux: `ip_local_port_range`): a port
/// of that range may go to any connection of any program before the child binds it. Each call goes
/// on where the last one of this process stopped, from a place that the process id fixes.
pub fn free_port(address: &str) -> std::io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 10_000;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
    let lowest = range.and_then(|text| text.split_whitespace().next()?.parse::<u16>().ok());
    let ports = lowest.unwrap_or(32_768).saturating_sub(FIRST).max(1);
    // Neighboring process ids start far apart: 257 is a prime.
    let begin = std::process::id().wrapping_mul(257) % u32::from(ports);
    let mut last = None;
    for _ in 0..ports.min(1_000) {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % ports;
        let place = (begin + u32::from(step)) % u32::from(ports);
        let port = FIRST + u16::try_from(place).unwrap_or(0);
        match TcpListener::bind((address, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    // All of them taken: what the system hands out is better than nothing.
    match TcpListener::bind((address, 0)) {
        Ok(listener) => Ok(listener.local_addr()?.port()),
        Err(error) => Err(last.unwrap_or(error)),
    }
}

/// The last whole lines, in at most [`TAIL_BYTES`]; the end of a line that is longer than that.
fn last_lines(text: &[u8]) -> String {
    let text = text.trim_ascii_end();
    let Some(start) = text.len().checked_sub(TAIL_BYTES) else {
        return String::from_utf8_lossy(text).into_owned();
    };
    let tail = &text[start..];
    let whole = start == 0 || text[start - 1] == b'\n';
    let line = tail.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    String::from_utf8_lossy(if whole { tail } else { &tail[line..] }).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_read_when_they_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("log", "ready tier=link listen=127.0.0.1:1");
        assert_eq!(ready_line(folder.path()), None);
        write(
            "log",
            "note\nready tier=link listen=a:1 listen=b:2 metrics=c:3 programs=/d pid=4\nmore\n",
        );
        let found = ready_line(folder.path()).unwrap();
        assert_eq!(found.listen, ["a:1", "b:2"]);
        assert_eq!(found.metrics.as_deref(), Some("c:3"));
        write("port", "TCP INET: 12");
        assert_eq!(port_file(folder.path(), "127.0.0.1"), None);
        write("port", "TCP INET: 1234\nUDP INET: 5\n");
        assert_eq!(port_file(folder.path(), "127.0.0.1").unwrap().listen, ["127.0.0.1:1234"]);
    }

    #[test]
    fn the_end_of_a_log_begins_with_a_whole_line() {
        assert_eq!(last_lines(b"one\ntwo\n"), "one\ntwo");
        let long = format!("first {}\nsecond\nthird\n", "x".repeat(TAIL_BYTES));
        assert_eq!(last_lines(long.as_bytes()), "second\nthird");
        let one = "y".repeat(TAIL_BYTES + 5);
        assert_eq!(last_lines(one.as_bytes()), "y".repeat(TAIL_BYTES));
        let fits = format!("cut\n{}", "z".repeat(TAIL_BYTES));
        assert_eq!(last_lines(fits.as_bytes()), "z".repeat(TAIL_BYTES));
    }
}
