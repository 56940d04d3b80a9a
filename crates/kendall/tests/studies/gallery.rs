//! `scripts/gallery`: its order, and what it does about busy machines, kills and changed files.

use std::process::Command;

use crate::support::repository;

#[test]
fn the_gallery_runs_what_is_missed_and_records_nothing_of_a_busy_machine() {
    let file = repository().join("crates/kendall/tests/studies/gallery.py");
    let output = Command::new("python3").arg(file).arg(repository()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
