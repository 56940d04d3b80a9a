//! For `fuzz/`: the lines that a study and its agents send each other, and what other programs print. No interface for
//! programs.

use crate::{agent, connection, instance, kubernetes};

/// Lines of an agent, as the study reads them.
///
/// # Panics
/// When what the study keeps of them is not bounded by what it asked.
pub fn agent_lines(bytes: &[u8]) {
    connection::hear(bytes);
}

/// Lines of a study, as an agent reads them.
///
/// # Panics
/// When a request is not the same once it was said again, or names a file outside the agent's folder.
pub fn agent_requests(bytes: &[u8]) {
    agent::understand(bytes);
}

/// What `kubectl` prints: a list of pods, or words for people.
///
/// # Panics
/// When words for people are left out altogether, or a pod that never runs is waited for without end.
pub fn printed_by_kubectl(bytes: &[u8]) {
    kubernetes::fuzz(&String::from_utf8_lossy(bytes));
}

/// What tiers and servers print when they are ready.
///
/// # Panics
/// When something is read out of it that is not there.
pub fn printed_when_ready(bytes: &[u8]) {
    instance::fuzz(bytes);
}
