//! The program, started for an answer: bounded in number and in time.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::failure::Failure;

/// At a time: one keeps a core busy, and a study may be running beside it.
const AT_A_TIME: u32 = 2;
/// Longest wait for a place, and longest run.
const PATIENCE: Duration = Duration::from_secs(20);
const LONGEST: Duration = Duration::from_secs(90);
/// How often it is looked whether the one who asked is still there.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of an answer, and of what is told of a failure.
const MOST_BYTES: u64 = 64 << 20;
const MOST_TOLD: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    running: Mutex<u32>,
    ended: Condvar,
}

/// A place among those that run.
struct Place<'a>(&'a Program);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.running.lock() -= 1;
        self.0.ended.notify_one();
    }
}

impl Program {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, running: Mutex::new(0), ended: Condvar::new() }
    }

    /// The program with nothing to read.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What it prints, given these arguments; exit code 4, a verdict, is an answer too. Blocks.
    pub(crate) fn answer<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<String, Failure> {
        let _place = self.place()?;
        let here = Arc::new(());
        self.answer_to(&Arc::downgrade(&here), LONGEST, arguments)
    }

    /// The same beside all others, ended where it takes too long or the one who asked is gone.
    pub(crate) fn answer_to<A: AsRef<OsStr>>(
        &self,
        client: &Weak<()>,
        longest: Duration,
        arguments: &[A],
    ) -> Result<String, Failure> {
        let mut child = self.command().args(arguments).spawn()?;
        let pid = rustix::process::Pid::from_child(&child);
        let (output, told) = (child.stdout.take(), child.stderr.take());
        let (done, ended) = std::sync::mpsc::sync_channel::<()>(1);
        let (answer, told, late) = std::thread::scope(|scope| {
            // Kills it where it stays too long. The child was not waited for: its number is its own.
            let late = scope.spawn(move || {
                let waits = || ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout);
                let looks = longest.as_millis() / LOOK.as_millis();
                let late = (0..looks).all(|_| client.strong_count() > 0 && waits());
                if late || client.strong_count() == 0 {
                    let kill = rustix::process::Signal::KILL;
                    rustix::process::kill_process(pid, kill).unwrap_or_default();
                }
                late
            });
            let told = scope.spawn(move || read(told, MOST_TOLD));
            let answer = read(output, MOST_BYTES);
            drop(done);
            (answer, told.join().unwrap_or_default(), late.join().unwrap_or_default())
        });
        let status = child.wait()?;
        match status.code() {
            Some(0 | 4) => Ok(answer),
            None if late => Err(Failure::busy(format!(
                "it was ended after {} s, the longest that is waited for here: the command line has no such bound",
                longest.as_secs()
            ))),
            None => Err(Failure::busy(format!("it was ended: {status}; {}", told.trim()))),
            Some(_) => {
                // The page has no `--help`.
                let said = told.split("\n\nFor more information").next().unwrap_or_default();
                Err(Failure::refused(said.trim().trim_start_matches("error: ")))
            }
        }
    }

    fn place(&self) -> Result<Place<'_>, Failure> {
        let mut running = self.running.lock();
        self.ended.wait_while_for(&mut running, |running| *running >= AT_A_TIME, PATIENCE);
        if *running >= AT_A_TIME {
            return Err(Failure::busy(format!("{AT_A_TIME} answers are being made; ask again")));
        }
        *running += 1;
        Ok(Place(self))
    }
}

/// The text, up to a limit. The rest is read and dropped, so that its writer does not block.
fn read(from: Option<impl std::io::Read>, most: u64) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut bytes = Vec::new();
    from.by_ref().take(most).read_to_end(&mut bytes).unwrap_or_default();
    std::io::copy(&mut from, &mut std::io::sink()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
