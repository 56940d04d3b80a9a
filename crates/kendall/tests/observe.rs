//! `kendall observe` against a real Prometheus that scrapes a station whose truth is known.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests fail by panicking, and wait with a deadline of their own"
)]

mod support;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use kendall_testing::{Process, free_address, page};
use support::{kendall, repository, wait_until};

/// A station of two servers and 20 ms: where requests go, and its metrics page.
fn station() -> (Process, SocketAddr, SocketAddr) {
    let mut command = kendall();
    command
        .args(["serve", "synthetic", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
        .args(["--workers", "2", "--service", "exponential:20ms"])
        .stdout(Stdio::null());
    let (process, ready) = Process::ready(&mut command);
    (process, ready.address("listen"), ready.address("metrics"))
}

/// A Prometheus that scrapes `target` each second.
fn prometheus(folder: &Path, target: SocketAddr) -> (Process, String) {
    let config = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n- job_name: station\n  \
         static_configs: [{{ targets: ['{target}'] }}]\n"
    );
    prometheus_with(folder, &config, &[])
}

fn prometheus_with(folder: &Path, config: &str, more: &[&str]) -> (Process, String) {
    let (process, address) = Process::prometheus(folder, config, more);
    (process, format!("http://{address}"))
}

fn get(address: SocketAddr, path: &str) -> String {
    page(address, path).map_or_else(String::new, |answer| answer.body)
}

fn is_well(address: SocketAddr) -> bool {
    page(address, "/").is_some_and(|answer| answer.status == 200)
}

fn observe(arguments: &[&str]) -> (serde_json::Value, String) {
    let output = kendall().arg("observe").args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    (serde_json::from_slice(&output.stdout).unwrap(), errors)
}

fn table<'a>(report: &'a serde_json::Value, id: &str) -> &'a serde_json::Value {
    let blocks = report["sections"].as_array().unwrap().iter().flat_map(|s| {
        s["blocks"].as_array().unwrap().iter().filter(|block| block["kind"] == "table")
    });
    let tables: Vec<&serde_json::Value> = blocks.map(|block| &block["content"]).collect();
    tables.iter().find(|table| table["id"] == id).unwrap_or_else(|| panic!("no table {id}"))
}

fn demand(report: &serde_json::Value) -> (f64, f64) {
    let row = &table(report, "demands")["rows"][0];
    let center = |key: &str| row[key]["center"].as_f64().unwrap();
    (center("demand_s"), center("capacity_per_s"))
}

/// Load in steps from 20 to 80/s on a station that carries 100/s. The truth is what the station
/// itself counted: its mean service time, which a draw of 1,700 exponential times makes 20 ms give
/// or take 2.4 % (one standard error).
#[test]
fn a_station_under_load_is_found_by_its_monitoring_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (_station, address, metrics) = station();
    let (_prometheus, url) = prometheus(folder.path(), metrics);
    let load = kendall()
        .args(["load", "http", &format!("http://{address}/"), "--quiet", "--format", "json"])
        .args(["--arrivals", "poisson-steps:20/s..80/s,10/s,5s", "--duration", "35s"])
        .args(["--late-share", "100%"])
        .output()
        .unwrap();
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    let file = folder.path().join("system.toml");
    let system = "name = 'station'\nentry = 'station'\nstep = '1s'\nscrape = '1s'\nblock = '5s'\n\
                  [tiers.station]\npreset = 'kendall'\nselector = 'job=\"station\"'\n";
    std::fs::write(&file, system).unwrap();
    let file = file.to_str().unwrap();
    let kept = folder.path().join("kept");
    let kept = kept.to_str().unwrap();
    let live = ["--prometheus", &url, "--from=-36s", "--format", "json"];
    let (report, _) = observe(&[&[file, "--record", kept], &live[..]].concat());
    let (found, capacity) = demand(&report);
    let page = get(metrics, "/metrics");
    let value = |name: &str| -> f64 {
        let lines = page.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let busy = value("kendall_workers_busy_seconds_total");
    let truth = busy / value("kendall_request_completions_total");
    // Scrapes that fall beside a second, and a fit through windows instead of one quotient.
    assert!((found / truth - 1.0).abs() < 0.05, "{found} for {truth}");
    assert!((capacity * truth / 2.0 - 1.0).abs() < 0.05, "{capacity} of {}", 2.0 / truth);
    let summary = report["summary"].to_string();
    assert!(summary.contains("`station` saturates first"), "{summary}");

    watched(file, &url);

    // The recording gives the same, without a server; a question is answered or refused in words.
    let (again, _) =
        observe(&[file, "--recorded", kept, "--format", "json", "--what-if", "station.servers=4"]);
    assert_eq!(demand(&again).0.to_bits(), found.to_bits());
    assert!(again["summary"].to_string().contains("station.servers=4"), "{again}");

    let refused = kendall()
        .args(["observe", file, "--recorded", kept, "--what-if", "sation.servers=4"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no tier `sation`"));
}

/// `--watch` shows the same as metrics, until it is told to stop.
fn watched(file: &str, url: &str) {
    let mut child = kendall()
        .args(["observe", file, "--prometheus", url, "--from=-10min", "--watch", "1s"])
        .args(["--metrics", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let process = Process(child);
    let address = line.trim().strip_prefix("ready metrics=").unwrap_or_else(|| panic!("{line}"));
    let address: SocketAddr = address.parse().unwrap();
    let mut page = String::new();
    wait_until("two looks", || {
        page = get(address, "/metrics");
        let looks =
            page.lines().find(|l| l.contains("kendall_observe_looks_total{outcome=\"good\"}"));
        looks.is_some_and(|line| line.rsplit(' ').next() >= Some("2"))
    });
    let value = |name: &str| -> f64 {
        let found = page.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let found = found.unwrap_or_else(|| panic!("no {name} in {page}"));
        found.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let (ratio, capacity) = (value("kendall_headroom_ratio"), value("kendall_capacity_per_second"));
    assert!((ratio * value("kendall_load_per_second") / capacity - 1.0).abs() < 1e-6, "{page}");
    assert!(value("kendall_headroom_ratio_low") < ratio, "{page}");
    assert!(value("kendall_headroom_ratio_high") > ratio, "{page}");
    // No whole day was seen, so no growth, and no date.
    assert!(!page.contains("\nkendall_saturation_seconds{"), "{page}");
    drop(process);
}

/// The recorded day of a real cluster: what the README says to try first.
#[test]
fn the_example_answers_offline() {
    let file = repository().join("examples/observed/system.toml");
    let file = file.to_str().unwrap();
    let (report, _) = observe(&[file, "--format", "json", "--what-if", "load=2"]);
    let summary = report["summary"].to_string();
    assert!(summary.contains("`workers` saturates first"), "{summary}");
    assert!(summary.contains("agrees with itself"), "{summary}");
    // The day's load by hours, the classes of a build, the classes' demands or why there are none.
    assert!(table(&report, "hours")["rows"].as_array().unwrap().len() >= 20);
    let classes = table(&report, "classes")["rows"].to_string();
    for class in ["NotFound Get ac", "OK Get ac", "OK Put cas", "OK Put ac"] {
        assert!(classes.contains(class), "{classes}");
    }
    assert!(table(&report, "dispersion")["rows"].as_array().unwrap().len() >= 2);
    assert!(table(&report, "stages")["rows"].to_string().contains("service_time"));
}

/// The example alerts fire where they should, in the words of the tool that brings Prometheus.
#[test]
fn the_example_alerts_fire_where_they_should() {
    let rules = repository().join("dashboards/headroom-rules-test.yml");
    let output = Command::new("promtool").args(["test", "rules"]).arg(rules).output();
    let output = output.expect("promtool is missing: run `make packages-test`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Counters and a level as OpenMetrics text.
fn irregular_samples() -> String {
    let mut text = String::from("# TYPE work counter\n# TYPE level gauge\n");
    let (mut state, mut sample) = (7_u64, String::new());
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for (cpu, mode) in [("0", "user"), ("0", "idle"), ("1", "user"), ("1", "idle")] {
        let (mut at_ms, mut value) = (1_700_000_000_500_u64, 5_000_u64);
        for scrape in 0..400_u64 {
            at_ms += 14_900 + random(200) + if scrape % 97 == 96 { 90_000 } else { 0 };
            at_ms += u64::from(at_ms % 1_000 < 2);
            value = if scrape % 61 == 60 { random(20) } else { value + random(40) };
            sample.push_str(&format!(
                "work_total{{cpu=\"{cpu}\",mode=\"{mode}\"}} {value} {}.{:03}\n",
                at_ms / 1_000,
                at_ms % 1_000
            ));
        }
    }
    text.push_str(&sample);
    for scrape in 0..400_u64 {
        text.push_str(&format!(
            "level{{job=\"a\"}} {} {}.5\n",
            random(100),
            1_700_000_000 + scrape * 15
        ));
    }
    text.push_str("# EOF\n");
    text
}

/// Queries that are computed without a server give what a real Prometheus makes of the same samples:
/// scrapes that are not regular, gaps, counters that begin anew. Both are exact, so they agree to
/// rounding. Samples lie beside whole seconds, where versions of Prometheus differ on which window they
/// are in.
#[test]
fn queries_without_a_server_are_those_of_a_real_prometheus() {
    let folder = tempfile::tempdir().unwrap();
    let text = irregular_samples();
    let file = folder.path().join("samples.om");
    std::fs::write(&file, &text).unwrap();
    let blocks = folder.path().join("data");
    let made = Command::new("promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([&file, &blocks])
        .output()
        .expect("promtool is missing: run `make packages-test`");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let config = "global: { scrape_interval: 1h }\n";
    let (_server, url) =
        prometheus_with(folder.path(), config, &["--storage.tsdb.retention.time=100y"]);
    let mut server = kendall_observe::Prometheus::new(&url, &kendall_observe::Authentication::None);
    let mut samples = kendall_observe::Samples::open(&file).unwrap();
    let grid = kendall_observe::Grid::new(1_700_000_100, 1_700_005_900, 15).unwrap();
    for query in [
        "sum(rate(work_total[1m]))",
        "sum by (mode) (rate(work_total{cpu=\"0\"}[1m]))",
        "rate(work_total{mode!~\"idle|iowait\"}[2m])",
        "increase(work_total{mode=\"user\"}[5m])",
        "count(work_total{mode=~\"us.*\"})",
        "sum(rate(work_total{mode=\"user\"}[1m])) / sum(rate(work_total[1m]))",
        "sum by (cpu) (rate(work_total[1m])) * 2 + 1",
        "avg(level) - min(level) / max(level)",
        "level",
        "sum(rate(missing[1m])) or vector(0)",
    ] {
        let by_labels = |mut all: Vec<kendall_observe::Series>| {
            all.sort_by(|a, b| a.labels.cmp(&b.labels));
            all
        };
        let there = by_labels(kendall_observe::Source::range(&mut server, query, &grid).unwrap());
        let here = by_labels(kendall_observe::Source::range(&mut samples, query, &grid).unwrap());
        assert!(!there.is_empty(), "{query}");
        assert_eq!(there.len(), here.len(), "{query}");
        for (there, here) in there.iter().zip(&here) {
            assert_eq!(there.labels, here.labels, "{query}");
            for (index, (a, b)) in there.values.iter().zip(&here.values).enumerate() {
                let same = (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * a.abs().max(1.0);
                assert!(same, "{query} at step {index}: {a} there, {b} here");
            }
        }
    }
}

/// Exporters as Debian brings them: their pages, read twice, and what the presets make of them.
#[test]
fn presets_read_what_real_exporters_serve() {
    let folder = tempfile::tempdir().unwrap();
    let web = free_address();
    let status =
        "server { listen WEB; location / { return 200; } location /status { stub_status; } }";
    let config = format!(
        "daemon off; pid {0}/pid; error_log {0}/error.log; events {{}}\nhttp {{ access_log off; {1} }}",
        folder.path().display(),
        status.replace("WEB", &web.to_string())
    );
    std::fs::write(folder.path().join("nginx.conf"), config).unwrap();
    let quiet = |program: &str, arguments: &[&str]| -> Process {
        let child = Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|_| panic!("{program} is missing: run `make packages-test`"));
        Process(child)
    };
    let file = folder.path().join("nginx.conf");
    let prefix = folder.path().to_str().unwrap();
    let _nginx = quiet("nginx", &["-p", prefix, "-c", file.to_str().unwrap()]);
    wait_until("nginx answers", || is_well(web));
    let (a, b) = (free_address(), free_address());
    let of_host = quiet("prometheus-node-exporter", &[&format!("--web.listen-address={a}")]);
    wait_until("node_exporter answers", || get(a, "/metrics").contains("node_cpu_seconds_total"));
    let scrape = format!("-nginx.scrape-uri=http://{web}/status");
    let of_nginx =
        quiet("prometheus-nginx-exporter", &[&scrape, &format!("-web.listen-address={b}")]);
    wait_until("the exporter answers", || get(b, "/metrics").contains("nginx_http_requests_total"));

    let mut samples = kendall_observe::Samples::default();
    let mut read = |address: SocketAddr, job: &str, at_s: f64| {
        let body = get(address, "/metrics");
        samples.add_page(&body, at_s, &[("job".to_owned(), job.to_owned())].into()).unwrap();
    };
    for (job, address) in [("host", a), ("nginx", b)] {
        read(address, job, 1_000.5);
    }
    for _ in 0..50 {
        assert!(is_well(web));
    }
    for (job, address) in [("host", a), ("nginx", b)] {
        read(address, job, 1_010.5);
    }
    drop((of_host, of_nginx));
    let system = "name = 'x'\nentry = 'nginx'\nstep = '10s'\nscrape = '10s'\n\
        [tiers.nginx]\nservers = 1\npreset = 'nginx'\nselector = 'job=\"nginx\"'\ncalls = ['host']\n\
        [tiers.host]\npreset = 'host'\nselector = 'job=\"host\"'\n";
    let system = kendall_observe::System::parse(system).unwrap();
    let grid = kendall_observe::Grid::new(1_020, 1_030, 10).unwrap();
    let observed = kendall_observe::fetch(&system, &mut samples, grid).unwrap();
    let of = |tier: usize, quantity| observed.tiers[tier].series[&quantity][0];
    use kendall_observe::Quantity;
    // 50 requests and the two that asked for the count, of which 10 s are known and 40 s are asked:
    // the ends are extrapolated, by half a distance of samples at most.
    let throughput = of(0, Quantity::Throughput) * 40.0;
    assert!((50.0..=2.0 * 55.0).contains(&throughput), "{throughput}");
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!(
        of(1, Quantity::Servers) >= kendall_units::exact_f64(cores),
        "{}",
        of(1, Quantity::Servers)
    );
    assert!(of(1, Quantity::Busy) >= 0.0);
}

#[test]
fn a_server_that_is_not_there_and_a_file_that_is_wrong_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("system.toml");
    std::fs::write(&file, "name = 'x'\nentry = 'a'\n[tiers.a]\npreset = 'http'\n").unwrap();
    let run = |url: &str| {
        kendall().arg("observe").arg(&file).args(["--prometheus", url]).output().unwrap()
    };
    // Nobody listens on port 1 of loopback.
    let output = run("http://127.0.0.1:1");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    std::fs::write(&file, "name = 'x'\nentry = 'b'\n[tiers.a]\npreset = 'http'\n").unwrap();
    let output = run("http://127.0.0.1:1");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("entry: `b`"));
}
