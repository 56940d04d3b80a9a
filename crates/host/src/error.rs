//! A host that cannot be used.

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
