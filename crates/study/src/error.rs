//! Why a study could not go on.

use kendall_host::{HostError, disk};
use kendall_store::StoreError;

use crate::file::Refusal;

/// A study that could not go on. What was stored is whole.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(
        "{folder} holds the results of {which}; choose another folder with --out, or remove that one"
    )]
    OtherStudy { folder: String, which: String },
    #[error("{folder} is in use by another kendall")]
    InUse { folder: String },
    #[error("{program} is not installed; install it with `apt-get install {package}`")]
    NotInstalled { program: String, package: String },
    #[error(
        "tier `{tier}`: the program `{program}` is not installed: not in PATH, or no such file"
    )]
    NoProgram { tier: String, program: String },
    /// Something that a tier needs beside its program is not there.
    #[error("tier `{tier}`: {what}")]
    Lacking { tier: String, what: String },
    #[error(transparent)]
    Quota(#[from] kendall_host::quota::QuotaError),
    #[error("{what}")]
    Host { what: String },
    /// The user asked for the end before anything was run.
    #[error("interrupted")]
    Interrupted,
    #[error(
        "{} MiB are free at {folder}, and a run needs {} for its logs and results: make room, then run the \
         same command again, which goes on with what is stored",
        free_bytes >> 20,
        disk::LEAST_BYTES >> 20
    )]
    NoRoom { folder: String, free_bytes: u64 },
    #[error(
        "{count} runs in a row failed, the last one: {reason}; fix it and run the same command \
         again with --retry-failed"
    )]
    Failing { count: u32, reason: String },
    #[error(
        "{count} runs in a row were rejected for one cause (load on {target}): {reason}; change the study, or run \
         the same command again, which goes on with the next run"
    )]
    Rejecting { count: u32, target: String, reason: String },
    #[error(transparent)]
    OtherProtocol(#[from] crate::entry::OtherProtocol),
    #[error(
        "the capacity that `workload.rate` is a share of could not be measured in a closed loop of \
         {clients} clients: {reason}; state it as `workload.capacity`, such as \"120/s\""
    )]
    Capacity { clients: u64, reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{what}")]
    System { what: String, source: std::io::Error },
}

impl From<HostError> for StudyError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Interrupted => Self::Interrupted,
            other => Self::Host { what: kendall_units::chain(&other) },
        }
    }
}
