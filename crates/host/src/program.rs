//! Whether programs are installed, and whether Kendall's own finds what it needs.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::clock::Until;

/// How long a tier's own look for what it needs may take: some programs are asked for their versions.
const CHECK_DEADLINE: Duration = Duration::from_secs(10);

/// Runs the `kendall` binary with arguments that make it look for what a tier needs; what it says where
/// that is not there.
pub fn check(program: &Path, arguments: &[String]) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("{} cannot be run: {error}", program.display());
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let until = Until::after(CHECK_DEADLINE);
    // What it says is a line or two, which a pipe holds.
    let status = loop {
        match child.try_wait().map_err(cannot)? {
            Some(status) => break status,
            None if until.is_over() => {
                child.kill().unwrap_or_default();
                child.wait().map(drop).unwrap_or_default();
                let words = arguments.join(" ");
                let seconds = CHECK_DEADLINE.as_secs();
                return Err(format!("`kendall {words}` did not end in {seconds} s"));
            }
            None => std::thread::sleep(Duration::from_millis(3)),
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    let error = child.stderr.take();
    error.map(|error| error.take(4_096).read_to_end(&mut said)).transpose().map_err(cannot)?;
    let said = String::from_utf8_lossy(&said);
    let said = said.trim().trim_start_matches("error: ");
    Err(if said.is_empty() { status.to_string() } else { said.to_owned() })
}

/// Whether a program is there: a path as it is, a name in the folders of `PATH`.
pub fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
