//! Queries that well-known exporters answer, so that a system file needs a name and a selector only.
//!
//! `{selector}` stands for the label matchers of the tier (without braces, possibly empty), `{and}`
//! for a comma where there are any, `{window}` for the time over which rates are taken.

use std::collections::BTreeMap;

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
    /// Where it stands among others.
    pub stands: Stands,
    /// Times of its requests.
    histogram: Option<Histogram>,
    /// One query a quantity, in place of one that the histogram gives.
    own: &'static [(Quantity, &'static str)],
}

/// Where what an exporter is for stands between clients and data: each calls those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stands {
    /// Passes requests on.
    Proxy,
    /// Answers requests.
    Service,
    /// Lends connections.
    Pool,
    /// Holds data.
    Store,
    /// Runs others, and knows no requests.
    Machine,
}

/// A histogram of response times, by which most services count their requests.
#[derive(Debug, Clone, Copy)]
struct Histogram {
    family: &'static str,
    /// Matchers of the requests that count; empty for all.
    only: &'static str,
    /// Matchers of those that failed; empty where it does not say.
    errors: &'static str,
    /// Labels of the classes; empty where it has none.
    classes: &'static str,
    /// In milliseconds. The bounds of its bins cannot be converted by a query, so they are not asked for.
    milliseconds: bool,
}

impl Histogram {
    const fn of(family: &'static str) -> Self {
        Self { family, only: "", errors: "", classes: "", milliseconds: false }
    }

    fn queries(&self) -> Vec<(Quantity, String)> {
        let rate = |of: &str, more: &str| {
            let matchers = [more, self.only].into_iter().filter(|text| !text.is_empty());
            let labels = match matchers.collect::<Vec<_>>().join(",") {
                none if none.is_empty() => "{{selector}}".to_owned(),
                own => format!("{{{own}{{and}}{{selector}}}}"),
            };
            format!("(rate({}_{of}{labels}[{{window}}]))", self.family)
        };
        let (count, sum) = (rate("count", ""), rate("sum", ""));
        let unit = if self.milliseconds { " / 1000" } else { "" };
        let mut all = vec![
            (Quantity::Throughput, format!("sum{count}")),
            (Quantity::ResponseTime, format!("sum{sum} / sum{count}{unit}")),
        ];
        if !self.milliseconds {
            all.push((Quantity::Buckets, format!("sum by (le) {}", rate("bucket", ""))));
        }
        if !self.errors.is_empty() {
            all.push((Quantity::Errors, format!("sum{} or vector(0)", rate("count", self.errors))));
        }
        if !self.classes.is_empty() {
            let by = format!("sum by ({}) ", self.classes);
            all.push((Quantity::Classes, format!("{by}{count}")));
            all.push((Quantity::ClassTimes, format!("{by}{sum} / {by}{count}{unit}")));
        }
        all
    }
}

impl Preset {
    /// One query a quantity, with placeholders.
    #[must_use]
    pub fn queries(&self) -> BTreeMap<Quantity, String> {
        let timed = self.histogram.iter().flat_map(Histogram::queries);
        let own = self.own.iter().map(|(quantity, query)| (*quantity, (*query).to_owned()));
        timed.chain(own).collect()
    }

    /// The throughput of each server, told apart by where it was scraped; `None` where the throughput is no plain
    /// sum of a counter.
    pub(crate) fn each(&self) -> Option<String> {
        let all = self.queries().remove(&Quantity::Throughput)?;
        let rest = all.strip_prefix("sum(").filter(|rest| !rest.contains("sum"))?;
        Some(format!("sum by (instance) ({rest}"))
    }
}

/// All of them; of two that are recognized by one page, the first is the more special one.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "kendall",
        what: "a tier of Kendall",
        sign: "kendall_tier_info",
        stands: Stands::Service,
        histogram: None,
        own: &[
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
        name: "jvm",
        what: "a JVM service with Micrometer (Spring Boot, Quarkus): HTTP requests, CPU",
        sign: "http_server_requests_seconds_count",
        stands: Stands::Service,
        // Without the scrapes themselves, which Spring Boot and Quarkus count as requests.
        histogram: Some(Histogram {
            only: "uri!~\"/actuator.*|/q/.*\"",
            errors: "outcome=\"SERVER_ERROR\"",
            classes: "method, outcome",
            ..Histogram::of("http_server_requests_seconds")
        }),
        own: &[
            (Quantity::Servers, "sum(system_cpu_count{{selector}})"),
            (
                // A share of all processors, taken at each scrape.
                Quantity::Busy,
                "sum(process_cpu_usage{{selector}} * system_cpu_count{{selector}})",
            ),
        ],
    },
    Preset {
        name: "node",
        what: "a Node.js service with express-prom-bundle: HTTP requests, CPU",
        sign: "nodejs_version_info",
        stands: Stands::Service,
        histogram: Some(Histogram {
            errors: "status_code=~\"5..\"",
            classes: "method, status_code",
            ..Histogram::of("http_request_duration_seconds")
        }),
        own: &[(Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))")],
    },
    Preset {
        name: "http",
        what: "an HTTP service with http_request_duration_seconds (the usual middlewares)",
        sign: "http_request_duration_seconds_count",
        stands: Stands::Service,
        histogram: Some(Histogram {
            errors: "code=~\"5..\"",
            classes: "method, code",
            ..Histogram::of("http_request_duration_seconds")
        }),
        own: &[(Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))")],
    },
    Preset {
        name: "grpc",
        what: "a gRPC service with grpc_server_handling_seconds (the usual interceptors)",
        sign: "grpc_server_handling_seconds_count",
        stands: Stands::Service,
        histogram: Some(Histogram::of("grpc_server_handling_seconds")),
        own: &[
            (Quantity::Arrivals, "sum(rate(grpc_server_started_total{{selector}}[{window}]))"),
            (Quantity::Throughput, "sum(rate(grpc_server_handled_total{{selector}}[{window}]))"),
            (
                Quantity::Errors,
                "sum(rate(grpc_server_handled_total{grpc_code!~\"OK|NotFound|Canceled\"{and}{selector}}[{window}])) or \
                 vector(0)",
            ),
            (
                Quantity::Classes,
                "sum by (grpc_method, grpc_code) (rate(grpc_server_handled_total{{selector}}[{window}]))",
            ),
            (Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))"),
        ],
    },
    Preset {
        name: "otel",
        what: "an HTTP service by the semantic conventions of OpenTelemetry, in seconds",
        sign: "http_server_request_duration_seconds_count",
        stands: Stands::Service,
        histogram: Some(Histogram {
            errors: "http_response_status_code=~\"5..\"",
            classes: "http_request_method, http_response_status_code",
            ..Histogram::of("http_server_request_duration_seconds")
        }),
        own: &[],
    },
    Preset {
        name: "otel-old",
        what: "the same by their old names, in milliseconds",
        sign: "http_server_duration_milliseconds_count",
        stands: Stands::Service,
        histogram: Some(Histogram {
            errors: "http_status_code=~\"5..\"",
            classes: "http_method, http_status_code",
            milliseconds: true,
            ..Histogram::of("http_server_duration_milliseconds")
        }),
        own: &[],
    },
    Preset {
        name: "gunicorn",
        what: "gunicorn (its statsd metrics by statsd_exporter): requests, busy workers",
        sign: "gunicorn_request_duration_count",
        stands: Stands::Service,
        // No response time: its duration is measured inside the worker and leaves out the wait for one.
        histogram: None,
        own: &[
            (Quantity::Servers, "sum(gunicorn_workers{{selector}})"),
            (Quantity::Throughput, "sum(rate(gunicorn_requests{{selector}}[{window}]))"),
            (Quantity::Busy, "sum(rate(gunicorn_request_duration_sum{{selector}}[{window}]))"),
        ],
    },
    Preset {
        name: "uwsgi",
        what: "uWSGI (uwsgi_exporter): requests, busy workers or their threads, the listen queue",
        sign: "uwsgi_worker_requests_total",
        stands: Stands::Service,
        histogram: None,
        // No response time: its average is measured inside the worker and leaves out the wait for one.
        own: &[
            (Quantity::Servers, "sum(uwsgi_worker_cores{{selector}})"),
            (Quantity::Throughput, "sum(rate(uwsgi_worker_requests_total{{selector}}[{window}]))"),
            (Quantity::Busy, "sum(rate(uwsgi_worker_running_time_seconds{{selector}}[{window}]))"),
            (
                Quantity::Number,
                "sum(rate(uwsgi_worker_running_time_seconds{{selector}}[{window}])) + \
                 sum(uwsgi_listen_queue_length{{selector}})",
            ),
        ],
    },
    Preset {
        name: "php-fpm",
        what: "PHP-FPM (php-fpm_exporter), with `pm = static`: requests, busy and waiting",
        sign: "phpfpm_accepted_connections",
        stands: Stands::Service,
        histogram: None,
        own: &[
            (Quantity::Servers, "sum(phpfpm_total_processes{{selector}})"),
            (Quantity::Throughput, "sum(rate(phpfpm_accepted_connections{{selector}}[{window}]))"),
            (
                // Without the process that answers the exporter.
                Quantity::Busy,
                "sum(phpfpm_active_processes{{selector}}) - sum(phpfpm_up{{selector}})",
            ),
            (
                Quantity::Number,
                "sum(phpfpm_active_processes{{selector}}) - \
                 sum(phpfpm_up{{selector}}) + sum(phpfpm_listen_queue{{selector}})",
            ),
        ],
    },
    Preset {
        name: "puma",
        what: "Puma (yabeda-puma-plugin): requests, busy threads and the backlog",
        sign: "puma_pool_capacity",
        stands: Stands::Service,
        histogram: None,
        own: &[
            (Quantity::Servers, "sum(puma_max_threads{{selector}})"),
            (Quantity::Throughput, "sum(rate(puma_requests_count{{selector}}[{window}]))"),
            (
                Quantity::Busy,
                "sum(puma_max_threads{{selector}}) - sum(puma_pool_capacity{{selector}})",
            ),
            (
                Quantity::Number,
                "sum(puma_max_threads{{selector}}) - sum(puma_pool_capacity{{selector}}) + \
                 sum(puma_backlog{{selector}})",
            ),
        ],
    },
    Preset {
        name: "haproxy",
        what: "HAProxy (its own exporter): requests, response time of the last 1,024, busy threads",
        sign: "haproxy_frontend_http_requests_total",
        stands: Stands::Proxy,
        histogram: None,
        own: &[
            (Quantity::Servers, "sum(haproxy_process_nbthread{{selector}})"),
            (
                Quantity::Throughput,
                "sum(rate(haproxy_frontend_http_requests_total{{selector}}[{window}]))",
            ),
            (
                Quantity::ResponseTime,
                "sum(haproxy_backend_total_time_average_seconds{{selector}} * rate(haproxy_backend_http_requests_total{{selector}}[{window}])) / \
                 sum(rate(haproxy_backend_http_requests_total{{selector}}[{window}]))",
            ),
            (
                Quantity::Errors,
                "sum(rate(haproxy_frontend_http_responses_total{code=\"5xx\"{and}{selector}}[{window}])) or vector(0)",
            ),
            (
                Quantity::Busy,
                "sum(haproxy_process_nbthread{{selector}} * (100 - haproxy_process_idle_time_percent{{selector}}) / \
                 100)",
            ),
        ],
    },
    Preset {
        name: "envoy",
        what: "Envoy, and proxies made of it (Istio, Contour): requests, their time and number",
        sign: "envoy_http_downstream_rq_time_count",
        stands: Stands::Proxy,
        histogram: Some(Histogram {
            only: "envoy_http_conn_manager_prefix!=\"admin\"",
            milliseconds: true,
            ..Histogram::of("envoy_http_downstream_rq_time")
        }),
        own: &[
            (Quantity::Servers, "sum(envoy_server_concurrency{{selector}})"),
            (
                Quantity::Arrivals,
                "sum(rate(envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix!=\"admin\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Throughput,
                "sum(rate(envoy_http_downstream_rq_completed{envoy_http_conn_manager_prefix!=\"admin\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Number,
                "sum(envoy_http_downstream_rq_active{envoy_http_conn_manager_prefix!=\"admin\"{and}{selector}})",
            ),
            (
                Quantity::Errors,
                "sum(rate(envoy_http_downstream_rq_xx{envoy_response_code_class=\"5\",envoy_http_conn_manager_prefix!=\"admin\"{and}{selector}}[{window}])) or \
                 vector(0)",
            ),
        ],
    },
    Preset {
        name: "traefik",
        what: "Traefik: requests at its entry points, CPU",
        sign: "traefik_entrypoint_request_duration_seconds_count",
        stands: Stands::Proxy,
        histogram: Some(Histogram {
            only: "entrypoint!=\"traefik\"",
            errors: "code=~\"5..\"",
            classes: "method, code",
            ..Histogram::of("traefik_entrypoint_request_duration_seconds")
        }),
        own: &[(Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))")],
    },
    Preset {
        name: "nginx",
        what: "nginx (nginx-prometheus-exporter): requests only",
        sign: "nginx_http_requests_total",
        stands: Stands::Proxy,
        histogram: None,
        own: &[(
            Quantity::Throughput,
            "sum(rate(nginx_http_requests_total{{selector}}[{window}]))",
        )],
    },
    Preset {
        name: "kafka-consumers",
        what: "a consumer group of Kafka (kafka_exporter): messages, and those that wait",
        sign: "kafka_consumergroup_current_offset",
        stands: Stands::Service,
        histogram: None,
        own: &[
            (Quantity::Servers, "sum(kafka_consumergroup_members{{selector}})"),
            (
                Quantity::Throughput,
                "sum(rate(kafka_consumergroup_current_offset{{selector}}[{window}]))",
            ),
            (Quantity::Number, "sum(kafka_consumergroup_lag{{selector}})"),
        ],
    },
    Preset {
        name: "hikaricp",
        what: "a pool of HikariCP (Micrometer): connections in use, and the wait for one",
        sign: "hikaricp_connections_usage_seconds_count",
        stands: Stands::Pool,
        histogram: None,
        own: &[
            (Quantity::Servers, "sum(hikaricp_connections_max{{selector}})"),
            (
                Quantity::Throughput,
                "sum(rate(hikaricp_connections_usage_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::ResponseTime,
                "(sum(rate(hikaricp_connections_acquire_seconds_sum{{selector}}[{window}])) + sum(rate(hikaricp_connections_usage_seconds_sum{{selector}}[{window}]))) / \
                 sum(rate(hikaricp_connections_usage_seconds_count{{selector}}[{window}]))",
            ),
            (
                Quantity::Busy,
                "sum(rate(hikaricp_connections_usage_seconds_sum{{selector}}[{window}]))",
            ),
            (
                Quantity::Number,
                "sum(hikaricp_connections_active{{selector}}) + sum(hikaricp_connections_pending{{selector}})",
            ),
        ],
    },
    Preset {
        name: "pgbouncer",
        what: "PgBouncer (pgbouncer_exporter): transactions, servers in use, and the wait for one",
        sign: "pgbouncer_stats_sql_transactions_pooled_total",
        stands: Stands::Pool,
        histogram: None,
        own: &[
            (
                Quantity::Servers,
                "sum(pgbouncer_databases_pool_size{name!=\"pgbouncer\"{and}{selector}})",
            ),
            (
                Quantity::Throughput,
                "sum(rate(pgbouncer_stats_sql_transactions_pooled_total{database!=\"pgbouncer\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::ResponseTime,
                "(sum(rate(pgbouncer_stats_client_wait_seconds_total{database!=\"pgbouncer\"{and}{selector}}[{window}])) + sum(rate(pgbouncer_stats_server_in_transaction_seconds_total{database!=\"pgbouncer\"{and}{selector}}[{window}]))) / \
                 sum(rate(pgbouncer_stats_sql_transactions_pooled_total{database!=\"pgbouncer\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Busy,
                "sum(rate(pgbouncer_stats_server_in_transaction_seconds_total{database!=\"pgbouncer\"{and}{selector}}[{window}]))",
            ),
        ],
    },
    Preset {
        name: "buildbarn-storage",
        what: "Buildbarn's storage (bb-storage): operations by outcome; select one `backend_type`",
        sign: "buildbarn_blobstore_blob_access_operations_duration_seconds_count",
        stands: Stands::Service,
        histogram: Some(Histogram {
            errors: "grpc_code!~\"OK|NotFound\"",
            classes: "storage_type, operation, grpc_code",
            ..Histogram::of("buildbarn_blobstore_blob_access_operations_duration_seconds")
        }),
        own: &[
            (
                Quantity::Hits,
                "sum(rate(buildbarn_blobstore_blob_access_operations_duration_seconds_count{operation=\"Get\",grpc_code=\"OK\"{and}{selector}}[{window}]))",
            ),
            (
                Quantity::Misses,
                "sum(rate(buildbarn_blobstore_blob_access_operations_duration_seconds_count{operation=\"Get\",grpc_code=\"NotFound\"{and}{selector}}[{window}]))",
            ),
            (Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))"),
        ],
    },
    Preset {
        name: "buildbarn-scheduler",
        what: "Buildbarn's scheduler (bb-scheduler): tasks queued and executing, workers",
        sign: "buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_count",
        stands: Stands::Service,
        histogram: Some(Histogram {
            classes: "result, grpc_code",
            ..Histogram::of(
                "buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds",
            )
        }),
        own: &[
            (
                Quantity::Servers,
                "sum(buildbarn_builder_in_memory_build_queue_workers_created_total{{selector}}) - (sum(buildbarn_builder_in_memory_build_queue_workers_removed_total{{selector}}) or \
                 vector(0))",
            ),
            (
                Quantity::Arrivals,
                "sum(rate(buildbarn_builder_in_memory_build_queue_tasks_scheduled_total{{selector}}[{window}]))",
            ),
            (
                Quantity::ResponseTime,
                "sum(rate(buildbarn_builder_in_memory_build_queue_tasks_queued_duration_seconds_sum{{selector}}[{window}])) / \
                 sum(rate(buildbarn_builder_in_memory_build_queue_tasks_queued_duration_seconds_count{{selector}}[{window}])) + sum(rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_sum{{selector}}[{window}])) / sum(rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_count{{selector}}[{window}]))",
            ),
            (
                // A task counts when it ends, with all its time: right over windows that are long beside it.
                Quantity::Busy,
                "sum(rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_sum{{selector}}[{window}]))",
            ),
        ],
    },
    Preset {
        name: "bazel-remote",
        what: "bazel-remote: requests for results and blobs, found or not; its CPU",
        sign: "bazel_remote_incoming_requests_total",
        stands: Stands::Store,
        histogram: None,
        own: &[
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
        name: "memcached",
        what: "memcached (memcached_exporter)",
        sign: "memcached_commands_total",
        stands: Stands::Store,
        histogram: None,
        own: &[
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
        name: "redis",
        what: "Redis and Valkey (redis_exporter): commands, CPU of the main thread",
        sign: "redis_commands_processed_total",
        stands: Stands::Store,
        histogram: None,
        own: &[
            (
                Quantity::Throughput,
                "sum(rate(redis_commands_processed_total{{selector}}[{window}]))",
            ),
            (Quantity::Hits, "sum(rate(redis_keyspace_hits_total{{selector}}[{window}]))"),
            (Quantity::Misses, "sum(rate(redis_keyspace_misses_total{{selector}}[{window}]))"),
            (Quantity::Classes, "sum by (cmd) (rate(redis_commands_total{{selector}}[{window}]))"),
            (
                Quantity::ClassTimes,
                "sum by (cmd) (rate(redis_commands_duration_seconds_total{{selector}}[{window}])) / \
                 sum by (cmd) (rate(redis_commands_total{{selector}}[{window}]))",
            ),
            (
                Quantity::Busy,
                "sum(rate(redis_cpu_user_main_thread_seconds_total{{selector}}[{window}])) + \
                 sum(rate(redis_cpu_sys_main_thread_seconds_total{{selector}}[{window}]))",
            ),
        ],
    },
    Preset {
        name: "mysql",
        what: "MySQL and MariaDB (mysqld_exporter): questions, running threads",
        sign: "mysql_global_status_questions",
        stands: Stands::Store,
        histogram: None,
        own: &[
            (
                Quantity::Throughput,
                "sum(rate(mysql_global_status_questions{{selector}}[{window}]))",
            ),
            (
                Quantity::Classes,
                "sum by (command) (rate(mysql_global_status_commands_total{{selector}}[{window}]))",
            ),
            (
                // Without the exporter's own thread.
                Quantity::Busy,
                "sum(mysql_global_status_threads_running{{selector}}) - sum(mysql_up{{selector}})",
            ),
        ],
    },
    Preset {
        name: "postgresql",
        what: "PostgreSQL (postgres_exporter): transactions, active connections",
        sign: "pg_stat_database_xact_commit",
        stands: Stands::Store,
        histogram: None,
        own: &[
            (
                Quantity::Throughput,
                "sum(rate(pg_stat_database_xact_commit{{selector}}[{window}])) + \
                 sum(rate(pg_stat_database_xact_rollback{{selector}}[{window}]))",
            ),
            (
                // Without the exporter's own connection, which is active while it asks.
                Quantity::Busy,
                "sum(pg_stat_activity_count{state=\"active\"{and}{selector}}) - sum(pg_up{{selector}})",
            ),
        ],
    },
    Preset {
        name: "container",
        what: "a Kubernetes pod or container (cAdvisor): its CPU",
        sign: "container_cpu_usage_seconds_total",
        stands: Stands::Machine,
        histogram: None,
        own: &[(
            // Without a pod's sum and its pause, which containerd gives an image but no name. Where nothing has a name (no
            // Kubernetes), all that has an image.
            Quantity::Busy,
            "sum(rate(container_cpu_usage_seconds_total{container!=\"\",container!=\"POD\"{and}{selector}}[{window}])) or \
                 sum(rate(container_cpu_usage_seconds_total{image!=\"\",container!=\"POD\"{and}{selector}}[{window}]))",
        )],
    },
    Preset {
        name: "host",
        what: "a Linux host (node_exporter): its processors as one resource",
        sign: "node_cpu_seconds_total",
        stands: Stands::Machine,
        histogram: None,
        own: &[
            (Quantity::Servers, "count(node_cpu_seconds_total{mode=\"idle\"{and}{selector}})"),
            (
                Quantity::Busy,
                "sum(rate(node_cpu_seconds_total{mode!~\"idle|iowait|steal\"{and}{selector}}[{window}]))",
            ),
        ],
    },
    Preset {
        name: "go",
        what: "a Go program (client_golang 1.20 or newer): the processors that it may use as one resource",
        sign: "go_sched_gomaxprocs_threads",
        stands: Stands::Machine,
        histogram: None,
        own: &[
            (Quantity::Servers, "sum(go_sched_gomaxprocs_threads{{selector}})"),
            (Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))"),
        ],
    },
    Preset {
        name: "jvm-cpu",
        what: "a JVM (Micrometer): the processors that it sees as one resource",
        sign: "process_cpu_usage",
        stands: Stands::Machine,
        histogram: None,
        own: &[
            (Quantity::Servers, "sum(system_cpu_count{{selector}})"),
            (Quantity::Busy, "sum(process_cpu_usage{{selector}} * system_cpu_count{{selector}})"),
        ],
    },
    Preset {
        name: "process",
        what: "CPU of a process with a standard Prometheus client (Go, JVM, Python, …)",
        sign: "process_cpu_seconds_total",
        stands: Stands::Machine,
        histogram: None,
        own: &[(Quantity::Busy, "sum(rate(process_cpu_seconds_total{{selector}}[{window}]))")],
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
            for query in preset.queries().values() {
                let text = filled(query, "job=\"a\"", "1m");
                assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
                assert!(!text.contains("selector") && !text.contains("{and}"), "{text}");
            }
        }
    }
}
