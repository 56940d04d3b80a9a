//! The only place that prints: results to standard output, all else to standard error.

use std::io::Write as _;
use std::process::ExitCode;

use crate::exit::Exit;
use crate::paint::Paint;

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// Tables for people.
    #[default]
    Human,
    /// One JSON document.
    Json,
}

/// Prints a result. A reader that went away (a closed pipe) is not an error.
pub(crate) fn result(text: &str) {
    written(text).unwrap_or_default();
}

/// Prints a result after which others come: whoever prints them ends when nobody reads any more.
pub(crate) fn written(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Prints a result as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    result(&serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Prints a line beside the result.
pub(crate) fn note(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}

/// Draws on the terminal, beside the result.
pub(crate) fn draw(text: &str) {
    let mut terminal = std::io::stderr().lock();
    terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()).unwrap_or_default();
}

/// Prints an error with what caused it. It may quote what others wrote: control characters of theirs
/// must not reach a terminal.
pub(crate) fn error(error: &anyhow::Error) {
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    let text: String =
        format!("{error:#}").chars().map(|c| if harmless(c) { c } else { '\u{fffd}' }).collect();
    note(&format!("{} {text}", Paint::of_notes().bad("error:")));
}

/// Prints clap's answer: help and version are results, refusals are not.
pub(crate) fn usage(answer: &clap::Error) -> ExitCode {
    let code = if answer.use_stderr() { Exit::Refused } else { Exit::Done };
    answer.print().unwrap_or_default();
    code.into()
}
