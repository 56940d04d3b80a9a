//! Queries that well-known exporters answer, so that a system file needs a name and a selector only.
//!
//! `{selector}` stands for the label matchers of the tier (without braces, possibly empty), `{and}`
//! for a comma where there are any, `{window}` for the time over which rates are taken.

use crate::quantity::Quantity;

/// Queries of one kind of exporter.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// Name in a system file.
    pub name: &'static str,
    /// What it is for.
    pub what: &'static str,
    /// A metric by which a server that has it is recognized.
    pub sign: &'static str,
    /// One query a quantity.
    pub queries: &'static [(Quantity, &'static str)],
}

impl Preset {
    /// The throughput of each server, told apart by where it was scraped; `None` where the throughput is no plain
    /// sum of a counter.
    pub(crate) fn each(&self) -> Option<String> {
        let (_, all) = self.queries.iter().find(|(found, _)| *found == Quantity::Throughput)?;
        let rest = all.strip_prefix("sum(").filter(|rest| !rest.contains("sum"))?;
        Some(format!("sum by (instance) ({rest}"))
    }
}

/// All of them.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "kendall",
        what: "a tier of Kendall",
        sign: "kendall_tier_info",
        queries: &[
            (Quantity::Servers, "sum(kendall_workers{{selector}})"),
            (Quantity::Arrivals, "sum(rate(kendall_request_arrivals_total{{selector}}[{window}]))"),
            (
                Quantity::Throughput,
                "sum(rate(kendall_request_completions_total{{selector}}[{window}]))",
            ),
            (
                Quantity::ResponseTime,
                "sum(rate(kendall_request_stage_seconds_sum{stage=\"response_time\"{and}{selector}}[{window}])) / \
                 sum(rate(kendall_request_stage_seconds_count{stage=\"response_time\"{and}{selector}}[{window}]))",
            ),
            (Quantity::Busy, "sum(rate(kendall_workers_busy_seconds_total{{selector}}[{window}]))"),
            (
                Quantity::Number,
                "sum(rate(kendall_workers_busy_seconds_total{{selector}}[{window}])) + \
                 sum(rate(kendall_queue_length_seconds_total{{selector}}[{window}]))",
            ),
            (
                Quantity::Buckets,
                "sum by (le) (rate(kendall_request_stage_seconds_bucket{stage=\"response_time\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Classes,
                "sum by (type) (rate(kendall_request_completions_total{{selector}}[{window}]))",
            ),
            (
                Quantity::ClassTimes,
                "sum by (type) (rate(kendall_request_stage_seconds_sum{stage=\"response_time\"{and}{selector}}[{window}])) / \
                 sum by (type) (rate(kendall_request_stage_seconds_count{stage=\"response_time\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Stages,
                "sum by (stage) (rate(kendall_request_stage_seconds_sum{{selector}}[{window}])) / \
                 sum by (stage) (rate(kendall_request_stage_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::Hits,
                "sum(rate(kendall_outcomes_total{outcome=\"hits\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Misses,
                "sum(rate(kendall_outcomes_total{outcome=\"misses\"{and}{selector}}[{window}]))",
            ),
        ],
    },
    Preset {
        name: "process",
        what: "CPU of a process with a standard Prometheus client (Go, JVM, Python, …)",
        sign: "process_cpu_seconds_total",
        queries: &[(Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))")],
    },
    Preset {
        name: "host",
        what: "a Linux host (node_exporter): its processors as one resource",
        sign: "node_cpu_seconds_total",
        queries: &[
            (Quantity::Servers, "count(node_cpu_seconds_total{mode=\"idle\"{and}{selector}})"),
            (
                Quantity::Busy,
                "sum(rate(node_cpu_seconds_total{mode!~\"idle|iowait|steal\"{and}{selector}}[{window}]))",
            ),
        ],
    },
    Preset {
        name: "http",
        what: "an HTTP service with http_request_duration_seconds (the usual middlewares)",
        sign: "http_request_duration_seconds_count",
        queries: &[
            (
                Quantity::Throughput,
                "sum(rate(http_request_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::ResponseTime,
                "sum(rate(http_request_duration_seconds_sum{{selector}}[{window}])) / \
                 sum(rate(http_request_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::Buckets,
                "sum by (le) (rate(http_request_duration_seconds_bucket{{selector}}[{window}]))",
            ),
            (
                Quantity::Errors,
                "sum(rate(http_request_duration_seconds_count{code=~\"5..\"{and}{selector}}[{window}])) or vector(0)",
            ),
            (
                Quantity::Classes,
                "sum by (method, code) (rate(http_request_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::ClassTimes,
                "sum by (method, code) (rate(http_request_duration_seconds_sum{{selector}}[{window}])) / \
                 sum by (method, code) (rate(http_request_duration_seconds_count{{selector}}[{window}]))",
            ),
            (Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))"),
        ],
    },
    Preset {
        name: "grpc",
        what: "a gRPC service with grpc_server_handling_seconds (the usual interceptors)",
        sign: "grpc_server_handling_seconds_count",
        queries: &[
            (Quantity::Arrivals, "sum(rate(grpc_server_started_total{{selector}}[{window}]))"),
            (Quantity::Throughput, "sum(rate(grpc_server_handled_total{{selector}}[{window}]))"),
            (
                Quantity::ResponseTime,
                "sum(rate(grpc_server_handling_seconds_sum{{selector}}[{window}])) / \
                 sum(rate(grpc_server_handling_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::Buckets,
                "sum by (le) (rate(grpc_server_handling_seconds_bucket{{selector}}[{window}]))",
            ),
            (
                Quantity::Errors,
                "sum(rate(grpc_server_handled_total{grpc_code!~\"OK|NotFound|Canceled\"{and}{selector}}[{window}])) or vector(0)",
            ),
            (
                Quantity::Classes,
                "sum by (grpc_method, grpc_code) (rate(grpc_server_handled_total{{selector}}[{window}]))",
            ),
            (Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))"),
        ],
    },
    Preset {
        name: "buildbarn-storage",
        what: "Buildbarn's storage (bb-storage): operations by outcome; select one `backend_type`",
        sign: "buildbarn_blobstore_blob_access_operations_duration_seconds_count",
        queries: &[
            (
                Quantity::Throughput,
                "sum(rate(buildbarn_blobstore_blob_access_operations_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::ResponseTime,
                "sum(rate(buildbarn_blobstore_blob_access_operations_duration_seconds_sum{{selector}}[{window}])) / \
                 sum(rate(buildbarn_blobstore_blob_access_operations_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::Buckets,
                "sum by (le) (rate(buildbarn_blobstore_blob_access_operations_duration_seconds_bucket{{selector}}[{window}]))",
            ),
            (
                Quantity::Hits,
                "sum(rate(buildbarn_blobstore_blob_access_operations_duration_seconds_count{operation=\"Get\",grpc_code=\"OK\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Misses,
                "sum(rate(buildbarn_blobstore_blob_access_operations_duration_seconds_count{operation=\"Get\",grpc_code=\"NotFound\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Errors,
                "sum(rate(buildbarn_blobstore_blob_access_operations_duration_seconds_count{grpc_code!~\"OK|NotFound\"{and}{selector}}[{window}])) or vector(0)",
            ),
            (
                Quantity::Classes,
                "sum by (storage_type, operation, grpc_code) (rate(buildbarn_blobstore_blob_access_operations_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::ClassTimes,
                "sum by (storage_type, operation, grpc_code) (rate(buildbarn_blobstore_blob_access_operations_duration_seconds_sum{{selector}}[{window}])) / \
                 sum by (storage_type, operation, grpc_code) (rate(buildbarn_blobstore_blob_access_operations_duration_seconds_count{{selector}}[{window}]))",
            ),
            (Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))"),
        ],
    },
    Preset {
        name: "buildbarn-scheduler",
        what: "Buildbarn's scheduler (bb-scheduler): tasks queued and executing, workers",
        sign: "buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_count",
        queries: &[
            (
                Quantity::Servers,
                "sum(buildbarn_builder_in_memory_build_queue_workers_created_total{{selector}}) - \
                 (sum(buildbarn_builder_in_memory_build_queue_workers_removed_total{{selector}}) or vector(0))",
            ),
            (
                Quantity::Arrivals,
                "sum(rate(buildbarn_builder_in_memory_build_queue_tasks_scheduled_total{{selector}}[{window}]))",
            ),
            (
                Quantity::Throughput,
                "sum(rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::ResponseTime,
                "sum(rate(buildbarn_builder_in_memory_build_queue_tasks_queued_duration_seconds_sum{{selector}}[{window}])) / \
                 sum(rate(buildbarn_builder_in_memory_build_queue_tasks_queued_duration_seconds_count{{selector}}[{window}])) + \
                 sum(rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_sum{{selector}}[{window}])) / \
                 sum(rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                // A task counts when it ends, with all its time: right over windows that are long beside it.
                Quantity::Busy,
                "sum(rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_sum{{selector}}[{window}]))",
            ),
            (
                Quantity::Classes,
                "sum by (result, grpc_code) (rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::ClassTimes,
                "sum by (result, grpc_code) (rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_sum{{selector}}[{window}])) / \
                 sum by (result, grpc_code) (rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::Buckets,
                "sum by (le) (rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_bucket{{selector}}[{window}]))",
            ),
        ],
    },
    Preset {
        name: "bazel-remote",
        what: "bazel-remote: requests for results and blobs, found or not; its CPU",
        sign: "bazel_remote_incoming_requests_total",
        queries: &[
            (
                Quantity::Throughput,
                "sum(rate(bazel_remote_incoming_requests_total{{selector}}[{window}]))",
            ),
            (
                Quantity::Hits,
                "sum(rate(bazel_remote_incoming_requests_total{kind=\"ac\",status=\"hit\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Misses,
                "sum(rate(bazel_remote_incoming_requests_total{kind=\"ac\",status=\"miss\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Classes,
                "sum by (kind, method, status) (rate(bazel_remote_incoming_requests_total{{selector}}[{window}]))",
            ),
            (Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))"),
        ],
    },
    Preset {
        name: "jvm",
        what: "a JVM service with Micrometer (Spring Boot, Quarkus): HTTP requests, CPU",
        sign: "http_server_requests_seconds_count",
        // Without the scrapes themselves, which Spring Boot and Quarkus count as requests.
        queries: &[
            (Quantity::Servers, "sum(system_cpu_count{{selector}})"),
            (
                Quantity::Throughput,
                "sum(rate(http_server_requests_seconds_count{uri!~\"/actuator.*|/q/.*\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::ResponseTime,
                "sum(rate(http_server_requests_seconds_sum{uri!~\"/actuator.*|/q/.*\"{and}{selector}}[{window}])) / \
                 sum(rate(http_server_requests_seconds_count{uri!~\"/actuator.*|/q/.*\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Errors,
                "sum(rate(http_server_requests_seconds_count{outcome=\"SERVER_ERROR\",uri!~\"/actuator.*|/q/.*\"{and}{selector}}[{window}])) or vector(0)",
            ),
            (
                Quantity::Classes,
                "sum by (method, outcome) (rate(http_server_requests_seconds_count{uri!~\"/actuator.*|/q/.*\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::ClassTimes,
                "sum by (method, outcome) (rate(http_server_requests_seconds_sum{uri!~\"/actuator.*|/q/.*\"{and}{selector}}[{window}])) / \
                 sum by (method, outcome) (rate(http_server_requests_seconds_count{uri!~\"/actuator.*|/q/.*\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Buckets,
                "sum by (le) (rate(http_server_requests_seconds_bucket{uri!~\"/actuator.*|/q/.*\"{and}{selector}}[{window}]))",
            ),
            (
                // A share of all processors, taken at each scrape.
                Quantity::Busy,
                "sum(process_cpu_usage{{selector}} * system_cpu_count{{selector}})",
            ),
        ],
    },
    Preset {
        name: "container",
        what: "a Kubernetes pod or container (cAdvisor): its CPU",
        sign: "container_cpu_usage_seconds_total",
        queries: &[(
            Quantity::Busy,
            // Without a pod's sum and its pause, which containerd gives an image but no name. Where nothing has a name (no
            // Kubernetes), all that has an image.
            "sum(rate(container_cpu_usage_seconds_total{container!=\"\",container!=\"POD\"{and}{selector}}[{window}])) or \
             sum(rate(container_cpu_usage_seconds_total{image!=\"\",container!=\"POD\"{and}{selector}}[{window}]))",
        )],
    },
    Preset {
        name: "memcached",
        what: "memcached (memcached_exporter)",
        sign: "memcached_commands_total",
        queries: &[
            (Quantity::Throughput, "sum(rate(memcached_commands_total{{selector}}[{window}]))"),
            (
                Quantity::Hits,
                "sum(rate(memcached_commands_total{command=\"get\",status=\"hit\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Misses,
                "sum(rate(memcached_commands_total{command=\"get\",status=\"miss\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Classes,
                "sum by (command, status) (rate(memcached_commands_total{{selector}}[{window}]))",
            ),
            (
                Quantity::Busy,
                "sum(rate(memcached_process_user_cpu_seconds_total{{selector}}[{window}])) + \
                 sum(rate(memcached_process_system_cpu_seconds_total{{selector}}[{window}]))",
            ),
        ],
    },
    Preset {
        name: "nginx",
        what: "nginx (nginx-prometheus-exporter): requests only",
        sign: "nginx_http_requests_total",
        queries: &[(
            Quantity::Throughput,
            "sum(rate(nginx_http_requests_total{{selector}}[{window}]))",
        )],
    },
    Preset {
        name: "postgresql",
        what: "PostgreSQL (postgres_exporter): transactions, active connections",
        sign: "pg_stat_database_xact_commit",
        queries: &[
            (
                Quantity::Throughput,
                "sum(rate(pg_stat_database_xact_commit{{selector}}[{window}])) + \
                 sum(rate(pg_stat_database_xact_rollback{{selector}}[{window}]))",
            ),
            (Quantity::Busy, "sum(pg_stat_activity_count{state=\"active\"{and}{selector}})"),
        ],
    },
];

/// The query of a preset with its placeholders filled in.
pub(crate) fn filled(template: &str, selector: &str, window: &str) -> String {
    let selector = selector.trim().trim_end_matches(',');
    let and = if selector.is_empty() { "" } else { "," };
    // `{{selector}}` is the label matchers alone in their braces.
    let own = format!("{{{selector}}}");
    template
        .replace("{{selector}}", &own)
        .replace("{and}", and)
        .replace("{selector}", selector)
        .replace("{window}", window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_stands_alone_or_after_others() {
        let rate = "sum(rate(x{{selector}}[{window}]))";
        assert_eq!(filled(rate, "job=\"a\"", "10s"), "sum(rate(x{job=\"a\"}[10s]))");
        assert_eq!(filled(rate, "", "10s"), "sum(rate(x{}[10s]))");
        let more = "count(x{mode=\"idle\"{and}{selector}})";
        assert_eq!(filled(more, "job=\"a\"", "10s"), "count(x{mode=\"idle\",job=\"a\"})");
        assert_eq!(filled(more, "", "10s"), "count(x{mode=\"idle\"})");
    }

    #[test]
    fn servers_are_told_apart_by_where_they_were_scraped() {
        let each = |name: &str| PRESETS.iter().find(|one| one.name == name).unwrap().each();
        let expected =
            "sum by (instance) (rate(kendall_request_completions_total{{selector}}[{window}]))";
        assert_eq!(each("kendall").as_deref(), Some(expected));
        assert!(each("memcached").is_some_and(|query| query.contains("by (instance)")));
        // Two counters are summed there, and there is no throughput here.
        assert_eq!((each("postgresql"), each("host")), (None, None));
    }

    #[test]
    fn every_query_of_every_preset_has_its_braces_in_pairs() {
        for preset in PRESETS {
            for (_, query) in preset.queries {
                let text = filled(query, "job=\"a\"", "1m");
                assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
                assert!(!text.contains("selector") && !text.contains("{and}"), "{text}");
            }
        }
    }
}
