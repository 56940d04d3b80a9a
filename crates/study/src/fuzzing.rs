//! For `fuzz/`: the lines that a study and its agents send each other. No interface for programs.

/// Lines of an agent, as the study reads them.
///
/// # Panics
/// When what the study keeps of them is not bounded by what it asked.
pub fn agent_lines(bytes: &[u8]) {
    crate::hosts::hear(bytes);
}

/// Lines of a study, as an agent reads them.
///
/// # Panics
/// When a request is not the same once it was said again, or names a file outside the agent's folder.
pub fn agent_requests(bytes: &[u8]) {
    crate::hosts::understand(bytes);
}
