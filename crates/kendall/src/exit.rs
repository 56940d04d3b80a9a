//! Exit codes: one enum, which the documentation is generated from.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kendall_store::StoreError;
use rustix::process::{Signal, getpid, kill_process};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Failure = 1,
    /// Wrong usage, a file that was refused, or a question that the runs do not answer.
    Refused = 2,
    /// The environment is not ready: a server missing, a port taken.
    NotReady = 3,
    /// A stated check failed, such as a regression.
    CheckFailed = 4,
    /// The run was rejected: the generator could not keep its schedule, or nothing succeeded.
    RunRejected = 5,
}

impl Exit {
    /// All of them, for the documentation.
    pub(crate) const ALL: [(Self, &'static str); 6] = [
        (Self::Done, "done"),
        (Self::Failure, "unforeseen failure, or interrupted"),
        (Self::Refused, "usage, a file refused, or a question that the runs do not answer"),
        (
            Self::NotReady,
            "environment not ready (a server missing, a port taken, a run that failed)",
        ),
        (Self::CheckFailed, "a stated check failed (a regression)"),
        (
            Self::RunRejected,
            "run rejected (the generator could not keep its schedule, or nothing succeeded)",
        ),
    ];

    /// The code that an error asks for; [`Exit::Failure`] unless it carries one.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        error.downcast_ref::<WithExit>().map_or(Self::Failure, |with| with.exit)
    }

    /// Of results that cannot be read: a folder without results is the user's to mend, a full disk is not.
    pub(crate) fn of_results(error: &StoreError) -> Self {
        match error {
            StoreError::Missing { .. }
            | StoreError::NoFolder { .. }
            | StoreError::OtherVersion { .. }
            | StoreError::Corrupt { .. } => Self::Refused,
            _ => Self::NotReady,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that decided its exit code. Made by [`exit_with`].
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct WithExit {
    exit: Exit,
    message: String,
}

/// `error` and its sources, ending the program with `exit`.
///
/// For example `parse(file).map_err(|e| exit_with(Exit::Refused, e))?`.
pub(crate) fn exit_with(
    exit: Exit,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> anyhow::Error {
    let error: Box<dyn std::error::Error + Send + Sync> = error.into();
    WithExit { exit, message: kendall_units::chain(&*error) }.into()
}

/// `error`, ending the program as what was refused.
pub(crate) fn refused(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> anyhow::Error {
    exit_with(Exit::Refused, error)
}

/// Becomes true at SIGINT or SIGTERM, so that a load ends early and its result is printed, and a
/// study gives up the run in progress and stops all processes; a second signal ends the program at once.
pub(crate) fn stop_at_a_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let code = i32::from(Exit::Failure as u8);
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Interrupts this program, as Ctrl-C does, when its standard input ends. A death signal of the kernel's would come
/// when the thread that started it ends, and could not be answered.
pub(crate) fn interrupt_at_the_end_of_input() -> std::io::Result<()> {
    let wait = || {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap_or_default();
        kill_process(getpid(), Signal::INT).unwrap_or_default();
    };
    std::thread::Builder::new().name("input".into()).spawn(wait).map(drop)
}
