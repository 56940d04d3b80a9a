//! For `fuzz/`: what other programs print. No interface for programs.

use crate::remarks;

/// What tiers and servers print: that they are ready, where, and their last words.
pub fn printed_by_tiers(bytes: &[u8]) {
    kendall_host::fuzzing::printed_when_ready(bytes);
    remarks::fuzz(&String::from_utf8_lossy(bytes));
}
