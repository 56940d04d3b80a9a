//! The file that `init` writes.

use std::io::Write as _;
use std::path::Path;

use crate::exit::{Exit, exit_with};
use crate::output;

/// Refuses a file that is there; a link is there, whether or not it leads anywhere.
pub(super) fn refuse_taken(file: &Path, force: bool) -> anyhow::Result<()> {
    if force || file.symlink_metadata().is_err() {
        return Ok(());
    }
    let file = file.display();
    let what = format!("{file} exists; choose another file with --out, or replace it with --force");
    Err(exit_with(Exit::Refused, what))
}

/// Writes a file that is not there, or replaces it.
pub(super) fn text(file: &Path, force: bool, text: &str) -> anyhow::Result<()> {
    output::put(file, force, |file| Ok(file.write_all(text.as_bytes())?)).map_err(|error| {
        exit_with(Exit::NotReady, format!("{} cannot be written: {error:#}", file.display()))
    })
}
