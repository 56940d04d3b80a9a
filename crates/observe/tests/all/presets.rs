//! Every preset against a page of its exporter: each query finds what the counters of the page did.
//! Each is what a running program wrote, the families that are asked for: `bazel-remote`, `http` and `grpc` of a
//! bazel-remote that was built from source (with `--enable_endpoint_metrics`, by the usual middlewares for HTTP and
//! gRPC in Go), `jvm` of a service in Spring Boot 3.3, `memcached` of memcached_exporter, `buildbarn-storage` of
//! bb-storage, `buildbarn-scheduler` of bb-scheduler with two workers, `container` of the kubelet of a Kubernetes 1.34.4
//! with containerd (`scripts/test-hosts KENDALL kubernetes --record=FILE`): its series of one pod and of the node. Those whose
//! page stands here, and not in a file, were written by hand in the form that the exporter's documentation or source gives.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use std::collections::BTreeMap;

use kendall_observe::{Grid, Observed, PRESETS, Quantity, Samples, System, fetch};

/// What one preset must find.
struct Case {
    preset: &'static str,
    page: &'static str,
    /// Series whose counter grows, by how much a second. Words that the series' text has.
    grows: &'static [(&'static [&'static str], f64)],
    finds: &'static [(Quantity, f64)],
    /// Classes and their throughput.
    classes: &'static [(&'static str, f64)],
}

const BARN: &str = "buildbarn_blobstore_blob_access_operations_duration_seconds";
const QUEUE: &str = "buildbarn_builder_in_memory_build_queue_tasks";

const CASES: &[Case] = &[
    Case {
        preset: "buildbarn-storage",
        page: include_str!("../pages/buildbarn-storage.txt"),
        grows: &[
            (&[BARN, "_count", "\"OK\"", "\"Get\"", "\"ac\""], 30.0),
            (&[BARN, "_sum", "\"OK\"", "\"Get\"", "\"ac\""], 0.06),
            (&[BARN, "_count", "NotFound", "\"ac\""], 10.0),
            (&[BARN, "_sum", "NotFound", "\"ac\""], 0.01),
            (&[BARN, "_count", "\"OK\"", "\"Put\"", "\"cas\""], 60.0),
            (&[BARN, "_sum", "\"OK\"", "\"Put\"", "\"cas\""], 0.13),
            (&["process_cpu"], 0.25),
        ],
        finds: &[
            (Quantity::Throughput, 100.0),
            (Quantity::ResponseTime, 0.002),
            (Quantity::Hits, 30.0),
            (Quantity::Misses, 10.0),
            (Quantity::Errors, 0.0),
            (Quantity::Busy, 0.25),
        ],
        classes: &[("NotFound Get ac", 10.0), ("OK Get ac", 30.0), ("OK Put cas", 60.0)],
    },
    Case {
        preset: "buildbarn-scheduler",
        page: include_str!("../pages/buildbarn-scheduler.txt"),
        grows: &[
            (&[QUEUE, "_scheduled_total", "\"Queue\",do_not_cache=\"false\""], 2.0),
            (&[QUEUE, "_queued_duration_seconds_sum"], 1.0),
            (&[QUEUE, "_queued_duration_seconds_count"], 2.0),
            (&[QUEUE, "_executing_duration_seconds_sum", "Success"], 4.0),
            (&[QUEUE, "_executing_duration_seconds_count", "Success"], 1.5),
            (&[QUEUE, "_executing_duration_seconds_sum", "NonZero"], 1.0),
            (&[QUEUE, "_executing_duration_seconds_count", "NonZero"], 0.5),
        ],
        finds: &[
            (Quantity::Servers, 2.0),
            (Quantity::Arrivals, 2.0),
            (Quantity::Throughput, 2.0),
            (Quantity::ResponseTime, 0.5 + 2.5),
            (Quantity::Busy, 5.0),
        ],
        classes: &[(" NonZeroExitCode", 0.5), (" Success", 1.5)],
    },
    Case {
        preset: "bazel-remote",
        page: include_str!("../pages/bazel-remote.txt"),
        grows: &[
            (&["\"ac\"", "\"get\"", "\"hit\""], 8.0),
            (&["\"ac\"", "\"get\"", "\"miss\""], 2.0),
            (&["\"cas\"", "\"contains\"", "\"hit\""], 30.0),
            (&["process_cpu"], 0.5),
        ],
        finds: &[
            (Quantity::Throughput, 40.0),
            (Quantity::Hits, 8.0),
            (Quantity::Misses, 2.0),
            (Quantity::Busy, 0.5),
        ],
        classes: &[("ac get hit", 8.0), ("ac get miss", 2.0), ("cas contains hit", 30.0)],
    },
    Case {
        preset: "jvm",
        page: include_str!("../pages/jvm.txt"),
        grows: &[
            (&["_count", "SUCCESS", "orders"], 9.0),
            (&["_sum", "SUCCESS", "orders"], 0.9),
            (&["_count", "SERVER_ERROR"], 1.0),
            (&["_sum", "SERVER_ERROR"], 0.6),
            // Scrapes are requests on that page, and none of the service's.
            (&["_count", "actuator"], 3.0),
            (&["_sum", "actuator"], 4.0),
        ],
        finds: &[
            (Quantity::Servers, 2.0),
            (Quantity::Throughput, 10.0),
            (Quantity::ResponseTime, 0.15),
            (Quantity::Errors, 1.0),
            (Quantity::Busy, 2.0 * 0.103_950_103_950_103_96),
        ],
        classes: &[("GET SUCCESS", 9.0), ("POST SERVER_ERROR", 1.0)],
    },
    Case {
        preset: "memcached",
        page: include_str!("../pages/memcached.txt"),
        grows: &[
            (&["\"get\"", "\"hit\""], 90.0),
            (&["\"get\"", "\"miss\""], 10.0),
            (&["\"set\""], 20.0),
            (&["process_system"], 0.03),
            (&["process_user"], 0.02),
        ],
        finds: &[
            (Quantity::Throughput, 120.0),
            (Quantity::Hits, 90.0),
            (Quantity::Misses, 10.0),
            (Quantity::Busy, 0.05),
        ],
        classes: &[("get hit", 90.0), ("get miss", 10.0), ("set hit", 20.0)],
    },
    Case {
        preset: "http",
        page: include_str!("../pages/http.txt"),
        grows: &[
            (&["_count", "200", "GET"], 5.0),
            (&["_sum", "200", "GET"], 0.1),
            (&["_count", "500"], 1.0),
            (&["_sum", "500"], 0.02),
            (&["process_cpu"], 0.2),
        ],
        finds: &[
            (Quantity::Throughput, 6.0),
            (Quantity::ResponseTime, 0.02),
            (Quantity::Errors, 1.0),
            (Quantity::Busy, 0.2),
        ],
        classes: &[("200 GET", 5.0), ("500 PUT", 1.0)],
    },
    Case {
        preset: "grpc",
        page: include_str!("../pages/grpc.txt"),
        grows: &[
            (&["started_total", "GetActionResult"], 7.0),
            (&["handled_total", "\"OK\"", "GetActionResult"], 5.0),
            (&["handled_total", "NotFound", "GetActionResult"], 2.0),
            (&["_seconds_count", "GetActionResult"], 7.0),
            (&["_seconds_sum", "GetActionResult"], 0.07),
            (&["process_cpu"], 0.2),
        ],
        finds: &[
            (Quantity::Arrivals, 7.0),
            (Quantity::Throughput, 7.0),
            (Quantity::ResponseTime, 0.01),
            (Quantity::Errors, 0.0),
            (Quantity::Busy, 0.2),
        ],
        classes: &[("NotFound GetActionResult", 2.0), ("OK GetActionResult", 5.0)],
    },
    Case {
        preset: "container",
        page: include_str!("../pages/container.txt"),
        // Sums of the pod and of the node, the pod's container, and its pause.
        grows: &[(&["image=\"\""], 0.61), (&["container=\"host\""], 0.6), (&["pause"], 0.01)],
        finds: &[(Quantity::Busy, 0.6)],
        classes: &[],
    },
    Case {
        preset: "node",
        page: r#"# TYPE http_request_duration_seconds histogram
http_request_duration_seconds_bucket{status_code="200",method="GET",path="/a",le="0.1"} 5
http_request_duration_seconds_bucket{status_code="200",method="GET",path="/a",le="+Inf"} 9
http_request_duration_seconds_sum{status_code="200",method="GET",path="/a"} 1.5
http_request_duration_seconds_count{status_code="200",method="GET",path="/a"} 9
http_request_duration_seconds_bucket{status_code="500",method="GET",path="/a",le="0.1"} 5
http_request_duration_seconds_bucket{status_code="500",method="GET",path="/a",le="+Inf"} 9
http_request_duration_seconds_sum{status_code="500",method="GET",path="/a"} 1.5
http_request_duration_seconds_count{status_code="500",method="GET",path="/a"} 9
# TYPE nodejs_version_info gauge
nodejs_version_info{version="v22.11.0",major="22"} 1
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 3.5
"#,
        grows: &[
            (&["_count", "200"], 8.0),
            (&["_sum", "200"], 0.8),
            (&["_count", "500"], 2.0),
            (&["_sum", "500"], 0.7),
            (&["process_cpu"], 0.4),
        ],
        finds: &[
            (Quantity::Throughput, 10.0),
            (Quantity::ResponseTime, 0.15),
            (Quantity::Errors, 2.0),
            (Quantity::Busy, 0.4),
        ],
        classes: &[("GET 200", 8.0), ("GET 500", 2.0)],
    },
    Case {
        preset: "otel",
        page: r#"# TYPE http_server_request_duration_seconds histogram
http_server_request_duration_seconds_bucket{http_request_method="GET",http_response_status_code="200",http_route="/a",le="0.1"} 5
http_server_request_duration_seconds_bucket{http_request_method="GET",http_response_status_code="200",http_route="/a",le="+Inf"} 9
http_server_request_duration_seconds_sum{http_request_method="GET",http_response_status_code="200",http_route="/a"} 1.5
http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code="200",http_route="/a"} 9
http_server_request_duration_seconds_bucket{http_request_method="POST",http_response_status_code="503",http_route="/b",le="0.1"} 5
http_server_request_duration_seconds_bucket{http_request_method="POST",http_response_status_code="503",http_route="/b",le="+Inf"} 9
http_server_request_duration_seconds_sum{http_request_method="POST",http_response_status_code="503",http_route="/b"} 1.5
http_server_request_duration_seconds_count{http_request_method="POST",http_response_status_code="503",http_route="/b"} 9
"#,
        grows: &[
            (&["_count", "200"], 8.0),
            (&["_sum", "200"], 0.8),
            (&["_count", "503"], 2.0),
            (&["_sum", "503"], 0.7),
        ],
        finds: &[
            (Quantity::Throughput, 10.0),
            (Quantity::ResponseTime, 0.15),
            (Quantity::Errors, 2.0),
        ],
        classes: &[("GET 200", 8.0), ("POST 503", 2.0)],
    },
    Case {
        preset: "otel-old",
        page: r#"# TYPE http_server_duration_milliseconds histogram
http_server_duration_milliseconds_bucket{http_method="GET",http_status_code="200",le="0.1"} 5
http_server_duration_milliseconds_bucket{http_method="GET",http_status_code="200",le="+Inf"} 9
http_server_duration_milliseconds_sum{http_method="GET",http_status_code="200"} 1.5
http_server_duration_milliseconds_count{http_method="GET",http_status_code="200"} 9
http_server_duration_milliseconds_bucket{http_method="POST",http_status_code="500",le="0.1"} 5
http_server_duration_milliseconds_bucket{http_method="POST",http_status_code="500",le="+Inf"} 9
http_server_duration_milliseconds_sum{http_method="POST",http_status_code="500"} 1.5
http_server_duration_milliseconds_count{http_method="POST",http_status_code="500"} 9
"#,
        grows: &[
            (&["_count", "200"], 8.0),
            (&["_sum", "200"], 800.0),
            (&["_count", "500"], 2.0),
            (&["_sum", "500"], 700.0),
        ],
        finds: &[
            (Quantity::Throughput, 10.0),
            (Quantity::ResponseTime, 0.15),
            (Quantity::Errors, 2.0),
        ],
        classes: &[("GET 200", 8.0), ("POST 500", 2.0)],
    },
    Case {
        preset: "gunicorn",
        page: r#"# TYPE gunicorn_requests counter
gunicorn_requests 41
# TYPE gunicorn_request_status_200 counter
gunicorn_request_status_200 41
# TYPE gunicorn_request_duration summary
gunicorn_request_duration{quantile="0.99"} 0.25
gunicorn_request_duration_sum 9.4
gunicorn_request_duration_count 41
# TYPE gunicorn_workers gauge
gunicorn_workers 4
"#,
        grows: &[(&["gunicorn_requests"], 10.0), (&["_duration_sum"], 2.3)],
        finds: &[(Quantity::Servers, 4.0), (Quantity::Throughput, 10.0), (Quantity::Busy, 2.3)],
        classes: &[],
    },
    Case {
        preset: "uwsgi",
        page: r#"# TYPE uwsgi_listen_queue_length gauge
uwsgi_listen_queue_length{stats_uri="tcp://127.0.0.1:1717"} 3
# TYPE uwsgi_worker_busy gauge
uwsgi_worker_busy{stats_uri="tcp://127.0.0.1:1717",worker_id="1"} 1
uwsgi_worker_busy{stats_uri="tcp://127.0.0.1:1717",worker_id="2"} 0
# TYPE uwsgi_worker_cores gauge
uwsgi_worker_cores{stats_uri="tcp://127.0.0.1:1717",worker_id="1"} 2
uwsgi_worker_cores{stats_uri="tcp://127.0.0.1:1717",worker_id="2"} 2
# TYPE uwsgi_worker_requests_total counter
uwsgi_worker_requests_total{stats_uri="tcp://127.0.0.1:1717",worker_id="1"} 120
uwsgi_worker_requests_total{stats_uri="tcp://127.0.0.1:1717",worker_id="2"} 80
# TYPE uwsgi_worker_running_time_seconds gauge
uwsgi_worker_running_time_seconds{stats_uri="tcp://127.0.0.1:1717",worker_id="1"} 14.5
uwsgi_worker_running_time_seconds{stats_uri="tcp://127.0.0.1:1717",worker_id="2"} 9.1
"#,
        grows: &[(&["requests_total"], 10.0), (&["running_time"], 1.25)],
        finds: &[
            (Quantity::Servers, 4.0),
            (Quantity::Throughput, 20.0),
            (Quantity::Busy, 2.5),
            (Quantity::Number, 5.5),
        ],
        classes: &[],
    },
    Case {
        preset: "go",
        page: r#"# TYPE go_goroutines gauge
go_goroutines 41
# TYPE go_sched_gomaxprocs_threads gauge
go_sched_gomaxprocs_threads 4
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.5
"#,
        grows: &[(&["cpu_seconds"], 1.5)],
        finds: &[(Quantity::Servers, 4.0), (Quantity::Busy, 1.5)],
        classes: &[],
    },
    Case {
        preset: "jvm-cpu",
        page: r#"# TYPE process_cpu_usage gauge
process_cpu_usage{application="shop"} 0.25
# TYPE system_cpu_count gauge
system_cpu_count{application="shop"} 8.0
"#,
        grows: &[],
        finds: &[(Quantity::Servers, 8.0), (Quantity::Busy, 2.0)],
        classes: &[],
    },
    Case {
        preset: "php-fpm",
        page: r#"# TYPE phpfpm_accepted_connections counter
phpfpm_accepted_connections{pool="www",scrape_uri="tcp://127.0.0.1:9000/status"} 437
# TYPE phpfpm_active_processes gauge
phpfpm_active_processes{pool="www",scrape_uri="tcp://127.0.0.1:9000/status"} 6
# TYPE phpfpm_listen_queue gauge
phpfpm_listen_queue{pool="www",scrape_uri="tcp://127.0.0.1:9000/status"} 2
# TYPE phpfpm_total_processes gauge
phpfpm_total_processes{pool="www",scrape_uri="tcp://127.0.0.1:9000/status"} 8
# TYPE phpfpm_up gauge
phpfpm_up{pool="www",scrape_uri="tcp://127.0.0.1:9000/status"} 1
"#,
        grows: &[(&["accepted"], 30.0)],
        finds: &[
            (Quantity::Servers, 8.0),
            (Quantity::Throughput, 30.0),
            (Quantity::Busy, 5.0),
            (Quantity::Number, 7.0),
        ],
        classes: &[],
    },
    Case {
        preset: "puma",
        page: r#"# TYPE puma_backlog gauge
puma_backlog{index="0"} 1
puma_backlog{index="1"} 0
# TYPE puma_pool_capacity gauge
puma_pool_capacity{index="0"} 0
puma_pool_capacity{index="1"} 2
# TYPE puma_max_threads gauge
puma_max_threads{index="0"} 5
puma_max_threads{index="1"} 5
# TYPE puma_requests_count gauge
puma_requests_count{index="0"} 100
puma_requests_count{index="1"} 90
"#,
        grows: &[(&["requests_count"], 20.0)],
        finds: &[
            (Quantity::Servers, 10.0),
            (Quantity::Throughput, 40.0),
            (Quantity::Busy, 8.0),
            (Quantity::Number, 9.0),
        ],
        classes: &[],
    },
    Case {
        preset: "haproxy",
        page: r#"# TYPE haproxy_process_nbthread gauge
haproxy_process_nbthread 4
# TYPE haproxy_process_idle_time_percent gauge
haproxy_process_idle_time_percent 75
# TYPE haproxy_frontend_http_requests_total counter
haproxy_frontend_http_requests_total{proxy="in"} 800
# TYPE haproxy_frontend_http_responses_total counter
haproxy_frontend_http_responses_total{proxy="in",code="2xx"} 700
haproxy_frontend_http_responses_total{proxy="in",code="5xx"} 10
# TYPE haproxy_backend_total_time_average_seconds gauge
haproxy_backend_total_time_average_seconds{proxy="app"} 0.02
haproxy_backend_total_time_average_seconds{proxy="static"} 0.001
# TYPE haproxy_backend_http_requests_total counter
haproxy_backend_http_requests_total{proxy="app"} 500
haproxy_backend_http_requests_total{proxy="static"} 300
"#,
        grows: &[
            (&["frontend_http_requests"], 40.0),
            (&["5xx"], 1.0),
            (&["backend_http_requests", "app"], 30.0),
            (&["backend_http_requests", "static"], 10.0),
        ],
        finds: &[
            (Quantity::Servers, 4.0),
            (Quantity::Throughput, 40.0),
            (Quantity::ResponseTime, 0.01525),
            (Quantity::Errors, 1.0),
            (Quantity::Busy, 1.0),
        ],
        classes: &[],
    },
    Case {
        preset: "envoy",
        page: r#"envoy_server_concurrency{} 4
envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix="ingress"} 90
envoy_http_downstream_rq_completed{envoy_http_conn_manager_prefix="ingress"} 88
envoy_http_downstream_rq_active{envoy_http_conn_manager_prefix="ingress"} 3
envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="ingress"} 80
envoy_http_downstream_rq_xx{envoy_response_code_class="5",envoy_http_conn_manager_prefix="ingress"} 4
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="ingress",le="5"} 10
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="ingress",le="+Inf"} 88
envoy_http_downstream_rq_time_sum{envoy_http_conn_manager_prefix="ingress"} 1200
envoy_http_downstream_rq_time_count{envoy_http_conn_manager_prefix="ingress"} 88
envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix="admin"} 90
envoy_http_downstream_rq_completed{envoy_http_conn_manager_prefix="admin"} 88
envoy_http_downstream_rq_active{envoy_http_conn_manager_prefix="admin"} 3
envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="admin"} 80
envoy_http_downstream_rq_xx{envoy_response_code_class="5",envoy_http_conn_manager_prefix="admin"} 4
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="admin",le="5"} 10
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="admin",le="+Inf"} 88
envoy_http_downstream_rq_time_sum{envoy_http_conn_manager_prefix="admin"} 1200
envoy_http_downstream_rq_time_count{envoy_http_conn_manager_prefix="admin"} 88
"#,
        grows: &[
            (&["envoy_http_downstream_rq_total"], 21.0),
            (&["envoy_http_downstream_rq_completed"], 20.0),
            (&["envoy_http_downstream_rq_xx", "\"5\""], 1.0),
            (&["time_sum", "ingress"], 300.0),
            (&["time_sum", "admin"], 9000.0),
            (&["time_count"], 20.0),
        ],
        finds: &[
            (Quantity::Servers, 4.0),
            (Quantity::Arrivals, 21.0),
            (Quantity::Throughput, 20.0),
            (Quantity::ResponseTime, 0.015),
            (Quantity::Number, 3.0),
            (Quantity::Errors, 1.0),
        ],
        classes: &[],
    },
    Case {
        preset: "traefik",
        page: r#"# TYPE traefik_entrypoint_request_duration_seconds histogram
traefik_entrypoint_request_duration_seconds_bucket{code="200",entrypoint="web",method="GET",protocol="http",le="0.1"} 5
traefik_entrypoint_request_duration_seconds_bucket{code="200",entrypoint="web",method="GET",protocol="http",le="+Inf"} 9
traefik_entrypoint_request_duration_seconds_sum{code="200",entrypoint="web",method="GET",protocol="http"} 1.5
traefik_entrypoint_request_duration_seconds_count{code="200",entrypoint="web",method="GET",protocol="http"} 9
traefik_entrypoint_request_duration_seconds_bucket{code="502",entrypoint="web",method="GET",protocol="http",le="0.1"} 5
traefik_entrypoint_request_duration_seconds_bucket{code="502",entrypoint="web",method="GET",protocol="http",le="+Inf"} 9
traefik_entrypoint_request_duration_seconds_sum{code="502",entrypoint="web",method="GET",protocol="http"} 1.5
traefik_entrypoint_request_duration_seconds_count{code="502",entrypoint="web",method="GET",protocol="http"} 9
traefik_entrypoint_request_duration_seconds_bucket{code="200",entrypoint="traefik",method="GET",protocol="http",le="0.1"} 5
traefik_entrypoint_request_duration_seconds_bucket{code="200",entrypoint="traefik",method="GET",protocol="http",le="+Inf"} 9
traefik_entrypoint_request_duration_seconds_sum{code="200",entrypoint="traefik",method="GET",protocol="http"} 1.5
traefik_entrypoint_request_duration_seconds_count{code="200",entrypoint="traefik",method="GET",protocol="http"} 9
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 3.5
"#,
        grows: &[
            (&["_count", "200", "\"web\""], 8.0),
            (&["_sum", "200", "\"web\""], 0.8),
            (&["_count", "502"], 2.0),
            (&["_sum", "502"], 0.7),
            (&["_count", "\"traefik\""], 1.0),
            (&["process_cpu"], 0.4),
        ],
        finds: &[
            (Quantity::Throughput, 10.0),
            (Quantity::ResponseTime, 0.15),
            (Quantity::Errors, 2.0),
            (Quantity::Busy, 0.4),
        ],
        classes: &[("200 GET", 8.0), ("502 GET", 2.0)],
    },
    Case {
        preset: "kafka-consumers",
        page: r#"# TYPE kafka_consumergroup_current_offset gauge
kafka_consumergroup_current_offset{consumergroup="mail",partition="0",topic="orders"} 40429
kafka_consumergroup_current_offset{consumergroup="mail",partition="1",topic="orders"} 18474
# TYPE kafka_consumergroup_lag gauge
kafka_consumergroup_lag{consumergroup="mail",partition="0",topic="orders"} 3
kafka_consumergroup_lag{consumergroup="mail",partition="1",topic="orders"} 4
# TYPE kafka_consumergroup_members gauge
kafka_consumergroup_members{consumergroup="mail"} 2
"#,
        grows: &[(&["current_offset"], 6.0)],
        finds: &[(Quantity::Servers, 2.0), (Quantity::Throughput, 12.0), (Quantity::Number, 7.0)],
        classes: &[],
    },
    Case {
        preset: "hikaricp",
        page: r#"# TYPE hikaricp_connections_max gauge
hikaricp_connections_max{pool="HikariPool-1"} 10.0
# TYPE hikaricp_connections_active gauge
hikaricp_connections_active{pool="HikariPool-1"} 4.0
# TYPE hikaricp_connections_pending gauge
hikaricp_connections_pending{pool="HikariPool-1"} 1.0
# TYPE hikaricp_connections_acquire_seconds summary
hikaricp_connections_acquire_seconds_count{pool="HikariPool-1"} 50
hikaricp_connections_acquire_seconds_sum{pool="HikariPool-1"} 0.2
# TYPE hikaricp_connections_usage_seconds summary
hikaricp_connections_usage_seconds_count{pool="HikariPool-1"} 50
hikaricp_connections_usage_seconds_sum{pool="HikariPool-1"} 2.0
"#,
        grows: &[
            (&["_count"], 100.0),
            (&["acquire_seconds_sum"], 0.5),
            (&["usage_seconds_sum"], 4.0),
        ],
        finds: &[
            (Quantity::Servers, 10.0),
            (Quantity::Throughput, 100.0),
            (Quantity::ResponseTime, 0.045),
            (Quantity::Busy, 4.0),
            (Quantity::Number, 5.0),
        ],
        classes: &[],
    },
    Case {
        preset: "pgbouncer",
        page: r#"# TYPE pgbouncer_databases_pool_size gauge
pgbouncer_databases_pool_size{name="shop",host="10.0.0.5",port="5432",database="shop",force_user="",pool_mode="transaction"} 20
pgbouncer_databases_pool_size{name="pgbouncer",host="",port="6432",database="pgbouncer",force_user="pgbouncer",pool_mode="statement"} 2
# TYPE pgbouncer_stats_sql_transactions_pooled_total counter
pgbouncer_stats_sql_transactions_pooled_total{database="shop"} 900
pgbouncer_stats_sql_transactions_pooled_total{database="pgbouncer"} 30
# TYPE pgbouncer_stats_client_wait_seconds_total counter
pgbouncer_stats_client_wait_seconds_total{database="shop"} 4
# TYPE pgbouncer_stats_server_in_transaction_seconds_total counter
pgbouncer_stats_server_in_transaction_seconds_total{database="shop"} 60
"#,
        grows: &[
            (&["transactions_pooled", "shop"], 50.0),
            (&["transactions_pooled", "\"pgbouncer\""], 1.0),
            (&["client_wait"], 0.5),
            (&["in_transaction"], 5.0),
        ],
        finds: &[
            (Quantity::Servers, 20.0),
            (Quantity::Throughput, 50.0),
            (Quantity::ResponseTime, 0.11),
            (Quantity::Busy, 5.0),
        ],
        classes: &[],
    },
    Case {
        preset: "redis",
        page: r#"# TYPE redis_commands_processed_total counter
redis_commands_processed_total 900
# TYPE redis_commands_total counter
redis_commands_total{cmd="get"} 700
redis_commands_total{cmd="set"} 200
# TYPE redis_commands_duration_seconds_total counter
redis_commands_duration_seconds_total{cmd="get"} 0.7
redis_commands_duration_seconds_total{cmd="set"} 0.4
# TYPE redis_keyspace_hits_total counter
redis_keyspace_hits_total 600
# TYPE redis_keyspace_misses_total counter
redis_keyspace_misses_total 100
# TYPE redis_cpu_sys_main_thread_seconds_total counter
redis_cpu_sys_main_thread_seconds_total 3
# TYPE redis_cpu_user_main_thread_seconds_total counter
redis_cpu_user_main_thread_seconds_total 2
"#,
        grows: &[
            (&["processed"], 120.0),
            (&["redis_commands_total", "get"], 100.0),
            (&["redis_commands_total", "set"], 20.0),
            (&["hits"], 90.0),
            (&["misses"], 10.0),
            (&["sys_main"], 0.03),
            (&["user_main"], 0.02),
        ],
        finds: &[
            (Quantity::Throughput, 120.0),
            (Quantity::Hits, 90.0),
            (Quantity::Misses, 10.0),
            (Quantity::Busy, 0.05),
        ],
        classes: &[("get", 100.0), ("set", 20.0)],
    },
    Case {
        preset: "mysql",
        page: r#"# TYPE mysql_up gauge
mysql_up 1
# TYPE mysql_global_status_questions untyped
mysql_global_status_questions 900
# TYPE mysql_global_status_commands_total counter
mysql_global_status_commands_total{command="select"} 700
mysql_global_status_commands_total{command="update"} 200
# TYPE mysql_global_status_threads_running untyped
mysql_global_status_threads_running 4
"#,
        grows: &[(&["questions"], 50.0), (&["\"select\""], 40.0), (&["\"update\""], 8.0)],
        finds: &[(Quantity::Throughput, 50.0), (Quantity::Busy, 3.0)],
        classes: &[("select", 40.0), ("update", 8.0)],
    },
];

/// The page as it would be some seconds later.
fn later(page: &str, grows: &[(&[&str], f64)], seconds: f64) -> String {
    let mut lines = Vec::new();
    for line in page.lines() {
        let mut words: Vec<String> = line.rsplitn(2, ' ').map(str::to_owned).collect();
        if line.starts_with('#') || words.len() < 2 {
            lines.push(line.to_owned());
            continue;
        }
        // A timestamp of the exporter's own comes last and is that of the scrape.
        if words[0].len() == 13 && words[0].bytes().all(|byte| byte.is_ascii_digit()) {
            words = words[1].rsplitn(2, ' ').map(str::to_owned).collect();
        }
        let grown: f64 = grows
            .iter()
            .filter(|(marks, _)| marks.iter().all(|mark| words[1].contains(mark)))
            .map(|(_, rate)| rate * seconds)
            .sum();
        let value: f64 = words[0].parse().unwrap();
        lines.push(format!("{} {}", words[1], value + grown));
    }
    lines.join("\n")
}

fn observed(preset: &str, page: &str, grows: &[(&[&str], f64)]) -> Observed {
    let text = format!(
        "name = 'x'\nentry = 'a'\nstep = '15s'\n[tiers.a]\nservers = 1\npreset = '{preset}'\n\
         selector = 'job=\"it\"'"
    );
    let system = System::parse(&text).unwrap();
    let mut samples = Samples::default();
    for (job, factor) in [("it", 1.0), ("another", 9.0)] {
        let labels: BTreeMap<String, String> = [("job".to_owned(), job.to_owned())].into();
        for scrape in 0..20_u32 {
            let at_s = 1_000.5 + 15.0 * f64::from(scrape);
            let page = later(page, grows, factor * 15.0 * f64::from(scrape));
            samples.add_page(&page, at_s, &labels).unwrap();
        }
    }
    let grid = Grid::new(1_100, 1_280, 15).unwrap();
    fetch(&system, &mut samples, grid).unwrap()
}

#[test]
fn every_query_of_a_preset_finds_what_its_page_says() {
    for case in CASES {
        let observed = observed(case.preset, case.page, case.grows);
        let tier = &observed.tiers[0];
        for (quantity, expected) in case.finds {
            let values = tier.series.get(quantity);
            let values =
                values.unwrap_or_else(|| panic!("{}: no {}", case.preset, quantity.name()));
            for value in values {
                let near = (value - expected).abs() < 1e-6 * expected.abs().max(1.0);
                assert!(near, "{}: {} is {value}", case.preset, quantity.name());
            }
        }
        let classes: Vec<(&str, f64)> =
            tier.parts(Quantity::Classes).map(|(name, values)| (name, values[0])).collect();
        assert_eq!(classes.len(), case.classes.len(), "{}: {classes:?}", case.preset);
        for (found, expected) in classes.iter().zip(case.classes) {
            let near = found.0 == expected.0 && (found.1 - expected.1).abs() < 1e-6;
            assert!(near, "{}: {found:?} is not {expected:?}", case.preset);
        }
    }
}

/// By other runtimes than containerd: a pod's pause has a name there, and without Kubernetes no container has one.
#[test]
fn containers_of_other_runtimes_are_counted_once() {
    let line = |labels: &str, value: u32| {
        format!("container_cpu_usage_seconds_total{{cpu=\"total\",{labels}}} {value}\n")
    };
    let named = line("container=\"\",image=\"\",name=\"\",pod=\"p\"", 61)
        + &line("container=\"POD\",image=\"pause\",name=\"b\",pod=\"p\"", 1)
        + &line("container=\"web\",image=\"web:1\",name=\"a\",pod=\"p\"", 60);
    let alone =
        line("id=\"/\",image=\"\"", 61) + &line("id=\"/docker/a\",image=\"web:1\",name=\"a\"", 60);
    for page in [named, alone] {
        let grows: &[(&[&str], f64)] =
            &[(&["image=\"\""], 0.61), (&["\"pause\""], 0.01), (&["\"web:1\""], 0.6)];
        let observed = observed("container", &page, grows);
        let busy = &observed.tiers[0].series[&Quantity::Busy];
        assert!(busy.iter().all(|value| (value - 0.6).abs() < 1e-6), "{page}: {busy:?}");
    }
}

/// Nothing of a preset goes untested: each of its queries is in a case, or has several series of
/// which only their being there is looked at.
#[test]
fn every_preset_has_a_page_and_every_query_of_it_a_value() {
    for preset in PRESETS.iter() {
        let live = ["kendall", "process", "host", "nginx", "postgresql"];
        let case = CASES.iter().find(|case| case.preset == preset.name);
        let Some(case) = case else {
            assert!(live.contains(&preset.name.as_str()), "{} has no page", preset.name);
            continue;
        };
        for quantity in preset.queries().keys() {
            let split = quantity.is_split() || *quantity == Quantity::Buckets;
            let found = case.finds.iter().any(|(found, _)| found == quantity);
            assert!(split || found, "{}: {} is in no case", preset.name, quantity.name());
        }
        assert!(case.page.contains(&preset.sign), "{}: no {}", preset.name, preset.sign);
    }
}
