//! For `fuzz/`: the lines that a study and its agents send each other, and what other programs print.

use crate::{agent, connection, instance, kubernetes};

/// Lines of an agent, as the study reads them.
pub fn agent_lines(bytes: &[u8]) {
    connection::fuzzing::hear(bytes);
}

/// Lines of a study, as an agent reads them.
pub fn agent_requests(bytes: &[u8]) {
    agent::fuzzing::understand(bytes);
}

/// What `kubectl` prints: a list of pods, or words for people.
pub fn printed_by_kubectl(bytes: &[u8]) {
    kubernetes::fuzzing::printed(&String::from_utf8_lossy(bytes));
}

/// What tiers and servers print when they are ready.
pub fn printed_when_ready(bytes: &[u8]) {
    instance::fuzzing::printed(bytes);
}
