//! The program: arguments, wiring, progress and printing, exit codes. As a library it is for the program itself and for
//! `kendall-python`, which calls what only calculates.

mod commands;
mod csv;
mod drawing;
mod exit;
mod export;
mod live;
mod output;
mod paint;
mod terminal;
mod text;

use std::fs::File;
use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::commands::Kendall;
use crate::exit::Exit;

#[cfg(feature = "fuzzing")]
pub use crate::commands::fuzzing;
pub use crate::commands::{Refusal, calculate};
pub use crate::export::{Tables, unit};

/// Does what the arguments of this process ask for.
pub fn main() -> ExitCode {
    kendall_host::signals::as_usual();
    if let Some(details) = Kendall::version_in_detail() {
        output::result(&details);
        return if output::lost() { Exit::NotReady } else { Exit::Done }.into();
    }
    let arguments = match Kendall::from_arguments() {
        Ok(arguments) => arguments,
        Err(refusal) => return output::usage(&refusal),
    };
    // Until the end: dropped, it writes what is left, for a second at most.
    let log = start_log(arguments.serves());
    let exit = match arguments.run() {
        Ok(Exit::Done) if output::lost() => Exit::NotReady.into(),
        Ok(exit) => exit.into(),
        Err(error) => {
            output::error(&error);
            Exit::of(&error).into()
        }
    };
    let lost = log.as_ref().map_or(0, |(_, dropped)| dropped.dropped_lines());
    if lost > 0 {
        // By the log's own thread: where the log is still not read, this must not wait.
        tracing::warn!(
            lost,
            "lines of this log were dropped: it was read more slowly than it was written"
        );
    }
    exit
}

/// Lines of a server's log that wait to be written; those beyond it are dropped, and how many is said at the end.
const WAITING_LINES: usize = 8192;

/// Results go to standard output, everything else to standard error. A server's log is written by a thread
/// of its own, the only one that a full pipe blocks.
fn start_log(serves: bool) -> Option<(WorkerGuard, ErrorCounter)> {
    let (writer, guard) = match std::io::stderr().as_fd().try_clone_to_owned() {
        Ok(own) if serves => {
            let builder = NonBlockingBuilder::default().buffered_lines_limit(WAITING_LINES);
            let (writer, guard) = builder.thread_name("log").finish(File::from(own));
            let dropped = writer.error_counter();
            (BoxMakeWriter::new(writer), Some((guard, dropped)))
        }
        _ => (BoxMakeWriter::new(std::io::stderr), None),
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("KENDALL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        // Colors are for people: a file or a pipe gets plain lines.
        .with_ansi(std::io::stderr().is_terminal())
        // The reader of the log is gone: that must not end the tier.
        .log_internal_errors(false)
        .init();
    guard
}
