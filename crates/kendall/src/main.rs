//! The program: arguments, wiring, progress and printing, exit codes.

mod commands;
mod csv;
mod exit;
mod output;
mod paint;

use std::fs::File;
use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::commands::Kendall;
use crate::exit::Exit;

fn main() -> ExitCode {
    let arguments = match Kendall::from_arguments() {
        Ok(arguments) => arguments,
        Err(refusal) => return output::usage(&refusal),
    };
    // Until the end: dropped, it writes what is left, for a second at most.
    let _log = start_log(arguments.serves());
    match arguments.run() {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::error(&error);
            Exit::of(&error).into()
        }
    }
}

/// Lines of a server's log that wait to be written; those beyond it are dropped.
const WAITING_LINES: usize = 8192;

/// Results go to standard output, everything else to standard error. A server's log is written by a thread
/// of its own: where nobody reads it and its pipe is full, that thread waits and no other.
fn start_log(serves: bool) -> Option<WorkerGuard> {
    let (writer, guard) = match std::io::stderr().as_fd().try_clone_to_owned() {
        Ok(own) if serves => {
            let builder = NonBlockingBuilder::default().buffered_lines_limit(WAITING_LINES);
            let (writer, guard) = builder.thread_name("log").finish(File::from(own));
            (BoxMakeWriter::new(writer), Some(guard))
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
        // Nobody reads the log any more: that must not take the tier down with it.
        .log_internal_errors(false)
        .init();
    guard
}
