//! The program: arguments, wiring, progress and printing, exit codes.

mod commands;
mod csv;
mod exit;
mod output;
mod paint;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use crate::commands::Kendall;
use crate::exit::Exit;

fn main() -> ExitCode {
    let arguments = match Kendall::from_arguments() {
        Ok(arguments) => arguments,
        Err(refusal) => return output::usage(&refusal),
    };
    start_log();
    match arguments.run() {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::error(&error);
            Exit::of(&error).into()
        }
    }
}

/// Results go to standard output, everything else to standard error.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("KENDALL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Colors are for people: a file or a pipe gets plain lines.
        .with_ansi(std::io::stderr().is_terminal())
        // Nobody reads the log any more: that must not take the tier down with it.
        .log_internal_errors(false)
        .init();
}
