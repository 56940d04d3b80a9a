//! Resources of a system by what they are, whatever they are called.

use kendall_protocols::topology::Part;
use serde::{Deserialize, Serialize};

/// Hardware or software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceKind {
    /// Cores of the host, all processes together.
    HostCpu,
    /// Cores that one role's processes can use.
    ProcessCpu,
    /// A tier's workers.
    WorkerPool,
    /// Connections to a backend that a tier's workers share.
    ConnectionPool,
    /// What an emulated link can carry a second.
    Bandwidth,
}

/// Identity of a resource; its printed name is separate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceId {
    /// Cores of the host.
    Host,
    /// Cores of one of several hosts, by its name.
    HostOf(String),
    /// Cores of the processes of one part.
    Cpu(Part),
    /// Workers of a tier, by its name.
    Workers(String),
    /// Connections that the workers of a tier share, and where they lead.
    Connections { of: String, to: String },
    /// The bandwidth of an emulated link, by its ends.
    Link(String),
}
