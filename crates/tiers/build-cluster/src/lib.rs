//! The build cluster: what speaks the Remote Execution API, version 2.
//!
//! One crate, because its tiers share the wire: digests, statuses, the listener. A process runs one
//! of them: the cache (`cache`), the front over several caches (`front`), the scheduler and the
//! worker.
//!
//! What it leaves out: printing, and the command line.

pub mod cache;
pub mod digest;
pub mod folder;
pub mod front;
mod html;
pub mod instruments;
pub mod listen;
pub mod peer;
pub mod remote;
pub mod scheduler;
pub mod status;
pub mod time_of_day;
pub mod worker;

/// Messages and services of the Remote Execution API, under short names.
pub mod wire {
    pub use bazel_remote_apis::build::bazel::remote::asset::v1 as asset;
    pub use bazel_remote_apis::build::bazel::remote::execution::v2 as re;
    pub use bazel_remote_apis::build::bazel::semver;
    pub use bazel_remote_apis::google::{bytestream, longrunning, protobuf, rpc};
}

/// Messages and service between the scheduler and its workers: `proto/kendall/worker/v1`.
#[expect(
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "made from the published description, which explains them"
)]
pub mod work {
    tonic::include_proto!("kendall.worker.v1");

    /// The encoded description of the service, for reflection.
    pub const DESCRIPTORS: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/worker-descriptors.bin"));
}
