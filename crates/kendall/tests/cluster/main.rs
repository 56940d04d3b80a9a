//! The build cluster as processes: cache, front, scheduler and workers, with clients of our own and real build tools.

mod access;
mod bazel_cache;
mod bazel_execution;
mod bazel_studies;
mod bazel_support;
mod cache_front;
mod cache_kills;
mod cluster_support;
mod dashboards;
mod execution;
mod execution_support;
mod kill_campaign;
mod other_clients;
#[path = "../support/mod.rs"]
mod support;
mod worker_slots;
