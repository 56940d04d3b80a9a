//! A host that cannot be used, and errors in one line.

/// A host that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("host {host} cannot be used: {what}")]
    Unusable { host: String, what: String },
    #[error("host {host}: {what}")]
    Lost { host: String, what: String },
    #[error("host {host}: {what}")]
    Refused { host: String, what: String },
    #[error("interrupted")]
    Interrupted,
}

/// An error with what caused it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(next) = below {
        let more = next.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        below = next.source();
    }
    text
}
