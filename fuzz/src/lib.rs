//! Random bytes for everything that reads bytes from outside. A target is a function of bytes that
//! panics when what it calls panics, or breaks a promise of its own.
//!
//! `make fuzz` runs them under an engine that follows coverage; `tests/fixed_seed.rs` runs each for a
//! bounded number of inputs, the same every time. `docs/reliability.md` has what was found.

#[path = "../../crates/queueing/tests/all/every_solver.rs"]
mod every_solver;
mod files;
mod mutate;
mod wire;

pub use mutate::Mutator;

/// One parser, or a few that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in `corpus/`.
    pub name: &'static str,
    /// Reads an input. Panics are what is looked for.
    pub run: fn(&[u8]),
    /// How many inputs the tests of every change make up: fewer for what takes longer.
    pub inputs: u32,
}

const fn target(name: &'static str, inputs: u32, run: fn(&[u8])) -> Target {
    Target { name, run, inputs }
}

/// All of them.
pub const TARGETS: &[Target] = &[
    target("memcached-request", 20_000, wire::memcached_request),
    target("memcached-reply", 20_000, wire::memcached_reply),
    target("load-memcached-reply", 20_000, kendall_loadgen::fuzzing::memcached_reply),
    target("load-redis-reply", 20_000, kendall_loadgen::fuzzing::redis_reply),
    target("load-http-reply", 10_000, kendall_loadgen::fuzzing::http_reply),
    target("sequence-reply", 10_000, kendall_loadgen::fuzzing::sequence_reply),
    target("grpc-description", 10_000, kendall_loadgen::fuzzing::grpc_description),
    target("synthetic-head", 10_000, kendall_synthetic::fuzzing::head),
    target("compute-body", 10_000, wire::compute_body),
    target("compute-query", 10_000, wire::compute_query),
    target("link-control", 10_000, wire::link_control),
    target("queue-call", 10_000, kendall_message_queue::fuzzing::call),
    target("queue-calls", 10_000, kendall_message_queue::fuzzing::calls),
    target("queue-tokens", 10_000, wire::queue_tokens),
    target("reapi-message", 10_000, kendall_build_cluster::cache::fuzzing::message),
    target("reapi-resource", 10_000, wire::reapi_resource),
    target("reapi-directory", 10_000, kendall_build_cluster::worker::fuzzing::directory),
    target("reapi-path", 10_000, wire::reapi_path),
    target("agent-lines", 10_000, kendall_host::fuzzing::agent_lines),
    target("agent-requests", 10_000, kendall_host::fuzzing::agent_requests),
    target("monitoring-answer", 10_000, kendall_observe::fuzzing::answer),
    target("monitoring-samples", 2_500, files::samples),
    target("monitoring-query", 5_000, files::query),
    target("monitoring-files", 2_500, files::observed),
    target("sequence-file", 1_500, kendall_loadgen::fuzzing::sequence),
    target("postgres-script", 5_000, kendall_loadgen::fuzzing::postgres_script),
    target("har-openapi", 2_500, kendall::fuzzing::requests),
    target("grpc-message", 5_000, kendall_loadgen::fuzzing::grpc_message),
    target("grpc-proto", 750, kendall_loadgen::fuzzing::grpc_proto),
    target("printed-bazel", 2_500, kendall_loadgen::fuzzing::bazel),
    target("printed-kubectl", 5_000, kendall_host::fuzzing::printed_by_kubectl),
    target("printed-lines", 5_000, kendall_study::fuzzing::printed_by_tiers),
    target("snapshot", 5_000, wire::snapshot),
    target("load-result", 5_000, wire::load_result),
    target("histogram", 5_000, wire::histogram),
    target("quantities", 20_000, files::quantities),
    target("study-file", 750, files::study),
    target("model-file", 1_500, files::model),
    target("model-solved", 150, every_solver::every_solver),
    target("proxy-file", 1_500, files::proxy),
    target("short-form", 500, files::short_form),
    target("results-file", 150, files::results),
];

/// The target of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs `with` where the input is text.
fn as_text(bytes: &[u8], with: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        with(text);
    }
}
