//! The only place that prints: results to standard output, all else to standard error.

use std::cell::RefCell;
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use kendall_report::document::Section;

use crate::exit::{Exit, exit_with};
use crate::paint::Paint;
use crate::terminal::{self, Stream};

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// Tables for people.
    #[default]
    Human,
    /// One JSON document.
    Json,
}

/// Whether a result could not be written, such as where the disk of its file is full.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints a result. A reader that went away (a closed pipe) is not an error; a full disk is, see [`lost`].
pub(crate) fn result(text: &str) {
    note_lost(written(text));
}

/// Says once why a result could not be written.
pub(crate) fn note_lost(outcome: std::io::Result<()>) {
    if let Err(why) = outcome
        && why.kind() != ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        let why = anyhow::Error::new(why);
        error(&why.context("the result cannot be written to standard output"));
    }
}

/// Whether a result was lost: what is in the file must not be taken for all of it.
pub(crate) fn lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

thread_local! {
    /// What would go to standard output, while [`kept`] keeps it.
    static KEPT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What `work` prints as results on this thread, instead of printing it.
pub(crate) fn kept<T>(work: impl FnOnce() -> T) -> (T, String) {
    KEPT.set(Some(String::new()));
    let value = work();
    (value, KEPT.take().unwrap_or_default())
}

/// Prints a result after which others come; an error ends them: the reader is gone.
pub(crate) fn written(text: &str) -> std::io::Result<()> {
    let keeps = |kept: &mut Option<String>| kept.as_mut().map(|kept| kept.push_str(text));
    if KEPT.with_borrow_mut(keeps).is_some() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    result(&serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Prints a result as it is asked for: what scripts read, or a document for people.
pub(crate) fn print(
    format: Format,
    value: &impl serde::Serialize,
    document: impl FnOnce() -> Section,
) -> anyhow::Result<()> {
    match format {
        Format::Human => self::document(&document()),
        Format::Json => json(value)?,
    }
    Ok(())
}

/// Prints a document for people.
pub(crate) fn document(document: &Section) {
    result(&crate::text::document(document));
}

pub(crate) fn file(path: &Path, text: &str) -> anyhow::Result<()> {
    let what = |error| format!("{} cannot be written: {error}", path.display());
    std::fs::write(path, text).map_err(|error| exit_with(Exit::NotReady, what(error)))
}

/// Writes a file beside its place and moves it there when it is whole. A file that is there is replaced, or refused;
/// anything else, such as a link or a device, is refused. Nothing is left where it fails.
pub(crate) fn put(
    path: &Path,
    replaces: bool,
    write: impl FnOnce(&mut File) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        anyhow::bail!("it is there already, and no regular file");
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    // As of any new file; the user's mask takes from it.
    builder.permissions(Permissions::from_mode(0o666));
    let mut young = builder.tempfile_in(parent.unwrap_or(Path::new(".")))?;
    write(young.as_file_mut())?;
    if replaces { young.persist(path) } else { young.persist_noclobber(path) }?;
    Ok(())
}

/// Prints a line beside the result.
pub(crate) fn note(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}

/// Prints a line about the work in progress, unless the result is kept for another program.
pub(crate) fn progress(text: &str) {
    if KEPT.with_borrow(Option::is_none) {
        note(text);
    }
}

/// Draws on the terminal, beside the result.
pub(crate) fn draw(text: &str) {
    let mut terminal = std::io::stderr().lock();
    terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()).unwrap_or_default();
}

/// Prints an error with what caused it.
pub(crate) fn error(error: &anyhow::Error) {
    note(&fitted(&format!("error: {}", message(error))));
}

/// An error for the terminal: its long lines wrapped where a width is known, its first word colored.
fn fitted(text: &str) -> String {
    let text = match terminal::columns(Stream::Error) {
        Some(columns) => crate::text::cut(text, usize::from(columns)),
        None => text.to_owned(),
    };
    text.replacen("error:", &Paint::of_notes().bad("error:"), 1)
}

/// An error with what caused it, which may quote what others wrote.
pub(crate) fn message(error: &anyhow::Error) -> String {
    // The standard library's words for a file that is an archive, a picture or a program.
    let text = format!("{error:#}")
        .replace("stream did not contain valid UTF-8", "it is not a text file (not UTF-8)");
    plain(&text)
}

/// Text of others without control characters, which must not reach a terminal.
pub(crate) fn plain(text: &str) -> String {
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().map(|c| if harmless(c) { c } else { '\u{fffd}' }).collect()
}

/// Prints clap's answer: help and version are results, refusals are not.
pub(crate) fn usage(answer: &clap::Error) -> ExitCode {
    if answer.use_stderr() {
        let text = fitted(answer.render().to_string().trim_end());
        note(&text.replacen("tip:", &Paint::of_notes().good("tip:"), 1));
        return Exit::Refused.into();
    }
    note_lost(answer.print().and_then(|()| std::io::stdout().flush()));
    if lost() { Exit::NotReady.into() } else { Exit::Done.into() }
}
