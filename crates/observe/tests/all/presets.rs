//! Every preset against a page of its exporter: each query finds what the counters of the page did.
//! Each is what a running program wrote, the families that are asked for: `bazel-remote`, `http` and `grpc` of a
//! bazel-remote that was built from source (with `--enable_endpoint_metrics`, by the usual middlewares for HTTP and
//! gRPC in Go), `jvm` of a service in Spring Boot 3.3, `memcached` of memcached_exporter, `buildbarn-storage` of
//! bb-storage, `buildbarn-scheduler` of bb-scheduler with two workers, `container` of the kubelet of a Kubernetes 1.34.4
//! with containerd (`scripts/test-hosts KENDALL kubernetes --record=FILE`): its series of one pod and of the node. Of November
//! 2026: `node` (express-prom-bundle 8.0), `otel` and `otel-old` (Flask with OpenTelemetry 1.45), `gunicorn` (27.0 with
//! statsd_exporter, whose own page is `go`), `uwsgi` (2.0.31), `php-fpm` (8.2), `haproxy` (2.6), `envoy` (1.40), `pgbouncer`
//! (1.18 with pgbouncer_exporter 0.12), `redis` (7.0 with redis_exporter 1.45), `mysql` (MariaDB 10.11 with mysqld_exporter
//! 0.14), `hikaricp` and `jvm-cpu` (HikariCP 5.1 with Micrometer 1.13), `kafka-consumers` (3.9 with kafka_exporter of
//! January), `kube-state-metrics` (written after its documentation, docs/metrics/workload/pod-metrics.md), `traefik` (3.7) and `puma` (5.6 with two workers of three threads and yabeda-puma-plugin).

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
        preset: "kube-state-metrics",
        page: include_str!("../pages/kube-state-metrics.txt"),
        // Limits of 1.5 processors, of which 0.6 are used: as two of which 0.8 are.
        grows: &[(&["image=\"\""], 0.31), (&["container=\"api\"", "cpu=\"total\""], 0.3)],
        finds: &[(Quantity::Servers, 2.0), (Quantity::Busy, 0.8)],
        classes: &[],
    },
    Case {
        preset: "node",
        page: include_str!("../pages/node.txt"),
        grows: &[
            (&["_count", "200"], 8.0),
            (&["_sum", "200"], 0.8),
            (&["_count", "500"], 2.0),
            (&["_sum", "500"], 0.7),
            (&["process_cpu"], 0.4),
        ],
        finds: &[
            (Quantity::Servers, 1.0),
            (Quantity::Throughput, 10.0),
            (Quantity::ResponseTime, 0.15),
            (Quantity::Errors, 2.0),
            (Quantity::Busy, 0.4),
        ],
        classes: &[("GET 200", 8.0), ("GET 500", 2.0)],
    },
    Case {
        preset: "otel",
        page: include_str!("../pages/otel.txt"),
        grows: &[
            (&["_count", "\"200\""], 8.0),
            (&["_sum", "\"200\""], 0.8),
            (&["_count", "status_code=\"500\""], 2.0),
            (&["_sum", "status_code=\"500\""], 0.7),
        ],
        finds: &[
            (Quantity::Throughput, 10.0),
            (Quantity::ResponseTime, 0.15),
            (Quantity::Errors, 2.0),
        ],
        classes: &[("GET 200", 8.0), ("GET 500", 2.0)],
    },
    Case {
        preset: "otel-old",
        page: include_str!("../pages/otel-old.txt"),
        grows: &[
            (&["_count", "\"200\""], 8.0),
            (&["_sum", "\"200\""], 800.0),
            (&["_count", "\"500\""], 2.0),
            (&["_sum", "\"500\""], 700.0),
        ],
        finds: &[
            (Quantity::Throughput, 10.0),
            (Quantity::ResponseTime, 0.15),
            (Quantity::Errors, 2.0),
        ],
        classes: &[("GET 200", 8.0), ("GET 500", 2.0)],
    },
    Case {
        preset: "gunicorn",
        page: include_str!("../pages/gunicorn.txt"),
        grows: &[(&["gunicorn_requests"], 10.0), (&["_duration_sum"], 2.3)],
        finds: &[(Quantity::Servers, 3.0), (Quantity::Throughput, 10.0), (Quantity::Busy, 2.3)],
        classes: &[],
    },
    Case {
        preset: "uwsgi",
        page: include_str!("../pages/uwsgi.txt"),
        grows: &[(&["requests_total"], 10.0), (&["running_time"], 1.25)],
        finds: &[
            (Quantity::Servers, 4.0),
            (Quantity::Throughput, 20.0),
            (Quantity::Busy, 2.5),
            (Quantity::Number, 2.5),
        ],
        classes: &[],
    },
    Case {
        preset: "go",
        page: include_str!("../pages/go.txt"),
        grows: &[(&["cpu_seconds"], 1.5)],
        finds: &[(Quantity::Servers, 2.0), (Quantity::Busy, 1.5)],
        classes: &[],
    },
    Case {
        preset: "jvm-cpu",
        page: include_str!("../pages/jvm-cpu.txt"),
        grows: &[],
        finds: &[(Quantity::Servers, 2.0), (Quantity::Busy, 2.0 / 7.0)],
        classes: &[],
    },
    Case {
        preset: "php-fpm",
        page: include_str!("../pages/php-fpm.txt"),
        grows: &[(&["accepted"], 30.0)],
        finds: &[
            (Quantity::Servers, 4.0),
            (Quantity::Throughput, 30.0),
            (Quantity::Busy, 2.0),
            (Quantity::Number, 5.0),
        ],
        classes: &[],
    },
    Case {
        preset: "puma",
        page: include_str!("../pages/puma.txt"),
        grows: &[(&["requests_count"], 20.0)],
        finds: &[
            (Quantity::Servers, 6.0),
            (Quantity::Throughput, 40.0),
            (Quantity::Busy, 6.0),
            (Quantity::Number, 7.0),
        ],
        classes: &[],
    },
    Case {
        preset: "haproxy",
        page: include_str!("../pages/haproxy.txt"),
        grows: &[
            (&["frontend_http_requests", "\"in\""], 40.0),
            (&["5xx", "\"in\""], 1.0),
            (&["backend_http_requests"], 40.0),
        ],
        finds: &[
            (Quantity::Servers, 2.0),
            (Quantity::Throughput, 40.0),
            (Quantity::ResponseTime, 0.003),
            (Quantity::Errors, 1.0),
            (Quantity::Busy, 0.0),
        ],
        classes: &[],
    },
    Case {
        preset: "envoy",
        page: include_str!("../pages/envoy.txt"),
        grows: &[
            (&["envoy_http_downstream_rq_total"], 21.0),
            (&["envoy_http_downstream_rq_completed"], 20.0),
            (&["envoy_http_downstream_rq_xx", "\"5\""], 1.0),
            (&["time_sum", "ingress"], 300.0),
            (&["time_sum", "admin"], 9000.0),
            (&["time_count"], 20.0),
        ],
        finds: &[
            (Quantity::Servers, 2.0),
            (Quantity::Arrivals, 21.0),
            (Quantity::Throughput, 20.0),
            (Quantity::ResponseTime, 0.015),
            (Quantity::Number, 0.0),
            (Quantity::Errors, 1.0),
        ],
        classes: &[],
    },
    Case {
        preset: "traefik",
        page: include_str!("../pages/traefik.txt"),
        grows: &[
            (&["_count", "entrypoint=\"web\"", "200", "GET"], 8.0),
            (&["_sum", "entrypoint=\"web\"", "200", "GET"], 0.8),
            (&["_count", "entrypoint=\"web\"", "500"], 2.0),
            (&["_sum", "entrypoint=\"web\"", "500"], 0.7),
            (&["_count", "router="], 9.0),
            (&["process_cpu"], 0.4),
        ],
        finds: &[
            (Quantity::Throughput, 10.0),
            (Quantity::ResponseTime, 0.15),
            (Quantity::Errors, 2.0),
            (Quantity::Busy, 0.4),
        ],
        classes: &[("200 GET", 8.0), ("500 GET", 2.0)],
    },
    Case {
        preset: "kafka-consumers",
        page: include_str!("../pages/kafka-consumers.txt"),
        grows: &[(&["current_offset"], 6.0)],
        finds: &[(Quantity::Servers, 1.0), (Quantity::Throughput, 12.0), (Quantity::Number, 0.0)],
        classes: &[],
    },
    Case {
        preset: "hikaricp",
        page: include_str!("../pages/hikaricp.txt"),
        grows: &[
            (&["_count"], 100.0),
            (&["acquire_seconds_sum"], 0.5),
            (&["usage_seconds_sum"], 4.0),
        ],
        finds: &[
            (Quantity::Servers, 4.0),
            (Quantity::Throughput, 100.0),
            (Quantity::ResponseTime, 0.045),
            (Quantity::Busy, 4.0),
            (Quantity::Number, 6.0),
        ],
        classes: &[],
    },
    Case {
        preset: "pgbouncer",
        page: include_str!("../pages/pgbouncer.txt"),
        grows: &[
            (&["transactions_pooled", "\"postgres\""], 50.0),
            (&["transactions_pooled", "\"pgbouncer\""], 1.0),
            (&["client_wait", "\"postgres\""], 0.5),
            (&["in_transaction", "\"postgres\""], 5.0),
        ],
        finds: &[
            (Quantity::Servers, 5.0),
            (Quantity::Throughput, 50.0),
            (Quantity::ResponseTime, 0.11),
            (Quantity::Busy, 5.0),
        ],
        classes: &[],
    },
    Case {
        preset: "redis",
        page: include_str!("../pages/redis.txt"),
        grows: &[
            (&["processed"], 103.0),
            (&["redis_commands_total", "\"get\""], 100.0),
            (&["redis_commands_total", "\"info\""], 3.0),
            (&["hits"], 90.0),
            (&["misses"], 10.0),
            (&["sys_main"], 0.03),
            (&["user_main"], 0.02),
        ],
        finds: &[
            (Quantity::Servers, 1.0),
            (Quantity::Throughput, 103.0),
            (Quantity::Hits, 90.0),
            (Quantity::Misses, 10.0),
            (Quantity::Busy, 0.05),
        ],
        classes: &[("get", 100.0), ("info", 3.0)],
    },
    Case {
        preset: "mysql",
        page: include_str!("../pages/mysql.txt"),
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
    let old = line("container_name=\"\",image=\"\",name=\"\",pod_name=\"p\"", 61)
        + &line("container_name=\"POD\",image=\"pause\",name=\"b\",pod_name=\"p\"", 1)
        + &line("container_name=\"web\",image=\"web:1\",name=\"a\",pod_name=\"p\"", 60);
    let groups = line("id=\"/\"", 61)
        + &line("id=\"/system.slice\"", 60)
        + &line("id=\"/system.slice/web.service\"", 20)
        + &line("id=\"/system.slice/crio-a.scope\"", 40);
    for page in [named, alone, old, groups] {
        let grows: &[(&[&str], f64)] = &[
            (&["image=\"\""], 0.61),
            (&["\"pause\""], 0.01),
            (&["\"web:1\""], 0.6),
            (&["slice\""], 0.6),
            (&["web.service"], 0.2),
            (&["crio-a.scope"], 0.4),
        ];
        let observed = observed("container", &page, grows);
        let busy = &observed.tiers[0].series[&Quantity::Busy];
        assert!(busy.iter().all(|value| (value - 0.6).abs() < 1e-6), "{page}: {busy:?}");
    }
}

/// The exporter's own connection is to none of the databases that a selector leaves.
#[test]
fn busy_connections_of_one_database_have_no_exporter() {
    let page = "pg_up 1\n\
        pg_stat_activity_count{datname=\"shop\",state=\"active\"} 3\n\
        pg_stat_activity_count{datname=\"postgres\",state=\"active\"} 1\n";
    let busy = |selector: &str| {
        let text = format!(
            "name = 'x'\nentry = 'a'\nstep = '15s'\n[tiers.a]\nservers = 4\npreset = 'postgresql'\n\
             selector = '{selector}'\nqueries.throughput = 'pg_up{{job=\"it\"}}'"
        );
        let mut samples = Samples::default();
        let labels: BTreeMap<String, String> = [("job".to_owned(), "it".to_owned())].into();
        for scrape in 0..20_u32 {
            samples.add_page(page, 1_000.5 + 15.0 * f64::from(scrape), &labels).unwrap();
        }
        let grid = Grid::new(1_100, 1_280, 15).unwrap();
        let observed = fetch(&System::parse(&text).unwrap(), &mut samples, grid).unwrap();
        observed.tiers[0].series[&Quantity::Busy][0]
    };
    assert_eq!(busy("job=\"it\"").to_bits(), 3.0_f64.to_bits());
    assert_eq!(busy("job=\"it\",datname=\"shop\"").to_bits(), 3.0_f64.to_bits());
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
