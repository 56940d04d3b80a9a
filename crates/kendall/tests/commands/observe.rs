//! `kendall observe` against a real Prometheus that scrapes a station whose truth is known.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests fail by panicking, and wait with a deadline of their own"
)]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{kendall, repository, wait_until};
use kendall_testing::{Process, free_address, openssl, page};

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

    // The file that is written from the address alone finds the same; windows as short as above.
    let discovered = kendall().args(["observe", "--discover", &url]).output().unwrap();
    let discovered = String::from_utf8(discovered.stdout).unwrap();
    let own = folder.path().join("discovered.toml");
    std::fs::write(&own, discovered.replace("scrape =", "block = \"5s\"\nscrape =")).unwrap();
    let (again, _) = observe(&[&[own.to_str().unwrap()], &live[2..]].concat());
    assert!((demand(&again).0 / truth - 1.0).abs() < 0.05, "{discovered}");

    watched(file, &url);

    // The recording alone gives the same, without a server; a question is answered or refused in words.
    let (again, _) = observe(&[
        &format!("{kept}/system.toml"),
        "--format",
        "json",
        "--what-if",
        "station.servers=4",
    ]);
    assert_eq!(demand(&again).0.to_bits(), found.to_bits());
    assert!(again["summary"].to_string().contains("station.servers=4"), "{again}");

    let refused = kendall()
        .args(["observe", file, "--recorded", kept, "--what-if", "sation.servers=4"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no tier `sation`"));
}

/// Prometheus is killed in the middle and comes back a while later: it costs windows, each with its reason, and no
/// truth. Fewer requests are seen than in the test above, so the tolerance is twice as wide.
#[test]
fn a_prometheus_that_was_killed_in_the_middle_costs_windows_and_no_truth() {
    let folder = tempfile::tempdir().unwrap();
    let (_station, address, metrics) = station();
    let (first, _) = prometheus(folder.path(), metrics);
    let url = format!("http://{address}/");
    let mut load = kendall()
        .args(["load", "http", &url, "--quiet", "--format", "json", "--late-share", "100%"])
        .args(["--arrivals", "poisson-steps:30/s..80/s,10/s,4s", "--duration", "46s"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let done = || -> f64 {
        let page = get(metrics, "/metrics");
        let lines = page.lines().filter(|l| l.starts_with("kendall_request_completions_total"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    wait_until("a third of the load", || done() > 800.0);
    drop(first);
    wait_until("some load that nobody scrapes", || done() > 1_200.0);
    let (_second, url) = prometheus(folder.path(), metrics);
    assert!(load.wait().unwrap().success());
    let file = folder.path().join("system.toml");
    let system = "name = 'station'\nentry = 'station'\nstep = '1s'\nscrape = '1s'\nblock = '4s'\n\
                  [tiers.station]\npreset = 'kendall'\nselector = 'job=\"station\"'\n";
    std::fs::write(&file, system).unwrap();
    let live = ["--prometheus", &url, "--from=-48s", "--format", "json"];
    let (report, _) = observe(&[&[file.to_str().unwrap()], &live[..]].concat());
    let left_out = table(&report, "windows")["rows"].to_string();
    assert!(left_out.contains("scrapes of the entry are missing"), "{left_out}");
    let page = get(metrics, "/metrics");
    let value = |name: &str| -> f64 {
        let lines = page.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let truth = value("kendall_workers_busy_seconds_total") / done();
    let (found, _) = demand(&report);
    assert!((found / truth - 1.0).abs() < 0.10, "{found} for {truth}");
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
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("found");
    let out = out.to_str().unwrap();
    let (report, _) = observe(&[file, "--format", "json", "--what-if", "load=2", "--out", out]);
    // The answer card comes first, durations are drawn, and the model solves.
    let card = &report["answer"];
    assert!(card["answer"].as_str().unwrap().contains("`workers` saturates first"), "{card}");
    // The network errs by some 15 % there, from which on it is used with care.
    let level = card["trust"]["level"].as_str().unwrap();
    assert!(["good", "doubt"].contains(&level), "{card}");
    // Programs have the figures of the tables without looking for them.
    let tiers = report["tiers"].as_array().unwrap();
    let rows = table(&report, "demands")["rows"].as_array().unwrap();
    assert_eq!(tiers.len(), rows.len());
    for (tier, row) in tiers.iter().zip(rows) {
        assert_eq!(tier["name"], row["tier"], "{tier}");
        assert_eq!(tier["servers"].as_f64(), row["servers"].as_f64(), "{tier}");
        assert_eq!(tier["capacity_per_s"], row["capacity_per_s"], "{tier}");
        assert_eq!(tier["headroom"], row["headroom"], "{tier}");
        let used = tier["utilization"].as_f64().unwrap();
        assert!(tier["why"].is_null() && used > 0.0 && used <= 1.0, "{tier}");
    }
    let first = tiers.iter().find(|tier| tier["name"] == report["limit"]).unwrap();
    assert_eq!(
        (&first["name"], &report["capacity_per_s"]),
        (&"workers".into(), &first["capacity_per_s"])
    );
    let file = std::fs::read_to_string(format!("{out}/report.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&file).unwrap(), report);
    let page = std::fs::read_to_string(format!("{out}/report.html")).unwrap();
    assert!(page.contains("heat-cache") && page.contains("class=\"cell k5\""), "no heat map");
    let solved = kendall().args(["solve", &format!("{out}/models/network.toml")]).output().unwrap();
    assert!(solved.status.success(), "{}", String::from_utf8_lossy(&solved.stderr));
    let ratio = table(&report, "hits")["rows"][0]["hit_ratio"].as_f64().unwrap();
    // Three in five were known.
    assert!((ratio - 0.6).abs() < 0.03, "{ratio}");
    let summary = report["summary"].to_string();
    assert!(summary.contains("`workers` saturates first"), "{summary}");
    assert!(summary.contains("The monitoring is consistent"), "{summary}");
    // The day's load by hours, the classes of a build, the classes' demands or why there are none.
    assert!(table(&report, "hours")["rows"].as_array().unwrap().len() >= 20);
    let classes = table(&report, "classes")["rows"].to_string();
    for class in ["NotFound Get ac", "OK Get ac", "OK Put cas", "OK Put ac"] {
        assert!(classes.contains(class), "{classes}");
    }
    assert!(table(&report, "dispersion")["rows"].as_array().unwrap().len() >= 2);
    assert!(table(&report, "stages")["rows"].to_string().contains("service_time"));
}

/// Windows of a recording or a table are as long as they are said to be, whatever step the file names.
#[test]
fn what_was_recorded_keeps_its_own_step() {
    let example = repository().join("examples/observed");
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(example.join("system.toml")).unwrap();
    let text = text.replace("step = \"10s\"", "step = \"20s\"");
    let day = format!("recorded = \"{}\"", example.join("day1").display());
    let file = folder.path().join("system.toml");
    std::fs::write(&file, text.replace("recorded = \"day1\"", &day)).unwrap();
    let (again, _) = observe(&[file.to_str().unwrap(), "--format", "json"]);
    let file = example.join("system.toml");
    let (first, _) = observe(&[file.to_str().unwrap(), "--format", "json"]);
    assert_eq!(again["byline"], first["byline"]);
    assert_eq!(table(&again, "dispersion"), table(&first, "dispersion"));

    // A row a minute, where the file expects one in 15 s.
    let mut rows = "time_s,web.throughput,web.busy\n".to_owned();
    for row in 0..120 {
        let rate = 50 + row / 4;
        rows.push_str(&format!("{},{rate},{}\n", 60_000 + 60 * row, f64::from(rate) * 0.02));
    }
    let csv = folder.path().join("rows.csv");
    std::fs::write(&csv, rows).unwrap();
    let file = folder.path().join("web.toml");
    let web = "name = 'x'\nentry = 'web'\n[tiers.web]\nservers = 4\nqueries.busy = 'x'\n";
    std::fs::write(&file, web).unwrap();
    let arguments = [file.to_str().unwrap(), "--csv", csv.to_str().unwrap(), "--format", "json"];
    let (report, _) = observe(&arguments);
    assert!((demand(&report).1 - 200.0).abs() < 1.0, "{report}");
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
        [tiers.nginx]\nservers = 1\npreset = 'nginx'\nselector = 'job=\"nginx\"'\n\
        calls = ['host', 'exporter']\n\
        [tiers.exporter]\nservers = 1\npreset = 'process'\nselector = 'job=\"host\"'\n\
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
    // node_exporter is a process in Go: what it used between its two pages, by its own counter.
    assert!((0.0..1.0).contains(&of(2, Quantity::Busy)), "{}", of(2, Quantity::Busy));
}

/// PostgreSQL and its exporter as Debian brings them: transactions that `psql` makes are the throughput, and
/// the exporter's own connection is none of them.
#[test]
fn the_preset_of_postgresql_reads_what_its_exporter_serves() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut command = kendall();
    command
        .args(["serve", "queue-database", "--listen", "127.0.0.1:0", "--temporary", "--data"])
        .arg(&data)
        .env("KENDALL_QUEUE_PASSWORD", "secret");
    // It says what it makes before it is ready.
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("ready ") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it never became ready");
    }
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    let _database = Process(child);
    let listen = kendall_testing::Ready(line).address("listen");
    let url = format!("postgresql://kendall:secret@{listen}/kendall?sslmode=disable");
    let address = free_address();
    let exporter = Command::new("prometheus-postgres-exporter")
        .arg(format!("--web.listen-address={address}"))
        .env("DATA_SOURCE_NAME", &url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus-postgres-exporter is missing: run `make packages-test`");
    let _exporter = Process(exporter);
    wait_until("postgres_exporter answers", || {
        get(address, "/metrics").contains("pg_stat_database_xact_commit{")
    });
    let mut samples = kendall_observe::Samples::default();
    let mut add = |page: &str, at_s: f64| {
        samples.add_page(page, at_s, &[("job".to_owned(), "pg".to_owned())].into()).unwrap();
    };
    let transactions = |count: usize| {
        let one = ["-c", "SELECT 1"];
        let mut arguments = vec!["--quiet", "--no-psqlrc", "-o", "/dev/null", &url];
        arguments.extend(one.iter().cycle().take(2 * count));
        let done = Command::new("psql").args(&arguments).status();
        assert!(done.expect("psql is missing: run `make packages-test`").success());
    };
    add(&get(address, "/metrics"), 1_000.5);
    // Statistics of a session are there once it has ended, which psql does not wait for. A page that shows more than
    // the exporter's own question may have met an autovacuum, or its second connection.
    transactions(200);
    let mut page = String::new();
    wait_until("only the exporter asks", || {
        page = get(address, "/metrics");
        let active = page.lines().filter(|line| {
            line.starts_with("pg_stat_activity_count{") && line.contains("state=\"active\"")
        });
        let count = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
        active.filter_map(count).sum::<f64>() <= 1.0
    });
    add(&page, 1_010.5);
    let system = "name = 'x'\nentry = 'db'\nstep = '10s'\nscrape = '10s'\n\
        [tiers.db]\nservers = 4\npreset = 'postgresql'\nselector = 'job=\"pg\"'\n";
    let system = kendall_observe::System::parse(system).unwrap();
    let grid = kendall_observe::Grid::new(1_020, 1_030, 10).unwrap();
    let observed = kendall_observe::fetch(&system, &mut samples, grid).unwrap();
    use kendall_observe::Quantity;
    let of = |quantity| observed.tiers[0].series[&quantity][0];
    // 10 s are known and 40 s are asked; the ends are extrapolated, by half a distance of samples at most.
    // The exporter's own questions are transactions too, some dozens a look.
    let throughput = of(Quantity::Throughput) * 40.0;
    assert!((200.0..2.0 * 400.0).contains(&throughput), "{throughput}");
    // Nothing is active but the exporter's own question, which does not count.
    assert!(of(Quantity::Busy).abs() < 0.5, "{}", of(Quantity::Busy));
}

/// A cache and the host below it: the hit ratio is what the load itself counted, and the host's processors
/// are those of this machine.
#[test]
fn a_hit_ratio_and_a_host_are_found_by_a_real_prometheus() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = kendall();
    command
        .args(["serve", "cache", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--data"])
        .arg(folder.path().join("cache"))
        .stdout(Stdio::null());
    let (_cache, ready) = Process::ready(&mut command);
    let host = free_address();
    let exporter = Command::new("prometheus-node-exporter")
        .arg(format!("--web.listen-address={host}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus-node-exporter is missing: run `make packages-test`");
    let _exporter = Process(exporter);
    wait_until("node_exporter answers", || {
        get(host, "/metrics").contains("node_cpu_seconds_total")
    });
    let config = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n\
         - job_name: cache\n  static_configs: [{{ targets: ['{}'] }}]\n\
         - job_name: host\n  static_configs: [{{ targets: ['{host}'] }}]\n",
        ready.address("metrics")
    );
    let (_prometheus, url) = prometheus_with(folder.path(), &config, &[]);
    let load = kendall()
        .args([
            "load",
            "reapi",
            &ready.address("listen").to_string(),
            "--quiet",
            "--format",
            "json",
        ])
        .args(["--mix", "get-result=1", "--hit-ratio", "70%", "--stock", "50", "--seed", "3"])
        .args(["--arrivals", "poisson-steps:20/s..80/s,10/s,6s", "--duration", "42s"])
        .args(["--late-share", "100%"])
        .output()
        .unwrap();
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    let file = folder.path().join("system.toml");
    let system = "name = 'x'\nentry = 'cache'\nstep = '1s'\nscrape = '1s'\nblock = '6s'\n\
        [tiers.cache]\nservers = 2\nselector = 'job=\"cache\"'\npreset = 'kendall'\ncalls = ['host']\n\
        queries.busy = 'sum(rate(process_cpu_seconds_total{job=\"cache\"}[{window}]))'\n\
        queries.hits = 'sum(rate(kendall_cache_lookups_total{job=\"cache\",storage=\"ac\",outcome=\"hit\"}[{window}]))'\n\
        queries.misses = 'sum(rate(kendall_cache_lookups_total{job=\"cache\",storage=\"ac\",outcome=\"miss\"}[{window}]))'\n\
        [tiers.host]\npreset = 'host'\nselector = 'job=\"host\"'\n";
    std::fs::write(&file, system).unwrap();
    // What is there is recognized, and the file that is written can be read.
    let found = kendall().args(["observe", "--discover", &url]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    for line in ["[tiers.cache]", "preset = \"kendall\"", "step = \"1s\"", "no requests: host"] {
        assert!(found.contains(line), "{line}: {found}");
    }
    kendall_observe::System::parse(&found).unwrap();
    let live = ["--prometheus", &url, "--from=-44s", "--format", "json"];
    let (report, _) = observe(&[&[file.to_str().unwrap()], &live[..]].concat());
    let hits = &table(&report, "hits")["rows"][0];
    let ratio = hits["hit_ratio"].as_f64().unwrap();
    // 800 draws with 70 % in four windows at least: a standard error of 1.6 %.
    assert!((ratio - 0.7).abs() < 4.0 * 0.016, "{hits}");
    let rows = table(&report, "demands")["rows"].as_array().unwrap().clone();
    let host = rows.iter().find(|row| row["tier"] == "host").unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(host["servers"].as_f64(), Some(kendall_units::exact_f64(cores)), "{host}");
}

/// A server that has an answer to every range: a load in waves of a day, whatever is asked.
fn endless() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answered(stream.unwrap()));
        }
    });
    address
}

/// Answers range queries on one connection until its client is gone.
fn answered(mut stream: std::net::TcpStream) -> Option<()> {
    use std::io::{Read as _, Write as _};
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (mut length, mut line) = (0_u64, String::new());
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut form = String::new();
        reader.by_ref().take(length).read_to_string(&mut form).ok()?;
        let value = |key: &str| -> Option<&str> {
            form.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
        };
        let (query, end): (_, u64) = (value("query")?, value("end")?.parse().ok()?);
        let (mut at, step): (u64, u64) =
            (value("start")?.parse().ok()?, value("step")?.parse().ok()?);
        let mut body = String::from(
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":["#,
        );
        let factor = match query.chars().next()? {
            'b' => 0.01,
            'r' => 0.0002,
            'n' => 0.010,
            _ => 1.0,
        };
        while at <= end {
            let turn = kendall_units::exact_f64(at % 86_400) / 86_400.0 * std::f64::consts::TAU;
            let separator = if body.ends_with('[') { "" } else { "," };
            body.push_str(&format!(
                "{separator}[{at},\"{:.6}\"]",
                factor * (50.0 + 30.0 * turn.sin())
            ));
            at += step;
        }
        body.push_str("]}]}}");
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body.as_bytes()).ok()?;
    }
}

/// 90 days of 50 series, a value each 15 s: 26 million values within 512 MB, by the kernel's own mark. What
/// the report and its page take is in it.
#[test]
#[ignore = "26 million values: two minutes of CPU time"]
fn ninety_days_of_fifty_series_take_less_than_512_mb() {
    let folder = tempfile::tempdir().unwrap();
    let mut system = "name = 'x'\nentry = 't0'\nstep = '15s'\nblock = '1h'\n".to_owned();
    for tier in 0..10 {
        let calls = if tier < 9 { format!("'t{}'", tier + 1) } else { String::new() };
        system.push_str(&format!(
            "[tiers.t{tier}]\nservers = 4\ncalls = [{calls}]\nqueries = {{ throughput = 'x{tier}', arrivals = \
             'a{tier}', busy = 'b{tier}', response_time = 'r{tier}', number = 'n{tier}' }}\n"
        ));
    }
    let file = folder.path().join("system.toml");
    std::fs::write(&file, system).unwrap();
    let mut child = kendall()
        .arg("observe")
        .arg(&file)
        .args(["--prometheus", &format!("http://{}", endless()), "--from=-90d", "--out"])
        .arg(folder.path().join("found"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut most_kb = 0_u64;
    let status = loop {
        let text =
            std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        most_kb = most_kb.max(now.unwrap_or(0));
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    };
    assert!(status.success());
    println!("{} MB at most", most_kb / 1_024);
    assert!(most_kb > 0 && most_kb < 512 * 1_024, "{most_kb} KB");
}

/// A Prometheus that wants TLS and a password: what is missing is said, and with it the answer comes.
#[test]
fn a_prometheus_behind_tls_and_a_password_is_asked_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("names"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
        .unwrap();
    let key = "-newkey rsa:2048 -nodes";
    for arguments in [
        format!("req -x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.pem {key}"),
        format!("req -subj /CN=here -keyout key.pem -out cert.csr {key}"),
        "x509 -req -days 2 -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names \
         -out cert.pem"
            .to_owned(),
    ] {
        openssl(folder.path(), &arguments);
    }
    // `secret`, by bcrypt.
    let web = format!(
        "tls_server_config: {{ cert_file: '{}', key_file: '{}' }}\nbasic_auth_users: {{ me: \
         '$2b$04$v3yffUPTX0zPKfrLNWr8J.C.q6F7Nl09KCrt7a.LE4.fiPOT8cC9u' }}\n",
        at("cert.pem").display(),
        at("key.pem").display()
    );
    std::fs::write(at("web.yml"), web).unwrap();
    std::fs::write(at("prometheus.yml"), "global: { scrape_interval: 1h }\n").unwrap();
    std::fs::write(at("password"), "me:secret\n").unwrap();
    // The certificate names localhost, which is 127.0.0.1 alone: a port of it that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Command::new("prometheus")
        .arg(format!("--config.file={}", at("prometheus.yml").display()))
        .arg(format!("--web.config.file={}", at("web.yml").display()))
        .arg(format!("--storage.tsdb.path={}", at("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus is missing: run `make packages-test`");
    let _server = Process(server);
    wait_until("prometheus listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let discover = |url: String, more: &[&str]| {
        let output = kendall().args(["observe", "--discover", &url]).args(more).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let cert = at("ca.pem").display().to_string();
    let password = at("password").display().to_string();
    let secure = || format!("https://localhost:{port}");
    let (code, said) = discover(format!("http://localhost:{port}"), &[]);
    assert!(code == Some(3) && said.contains("write https://"), "{code:?}: {said}");
    let (code, said) = discover(secure(), &["--basic-file", &password]);
    assert!(code == Some(3) && said.contains("--ca-file"), "{code:?}: {said}");
    let (code, said) = discover(secure(), &["--ca-file", &cert]);
    assert!(
        code == Some(3) && said.contains("status 401") && said.contains("--basic-file"),
        "{said}"
    );
    let (code, said) = discover(secure(), &["--ca-file", &cert, "--bearer-file", &password]);
    assert!(code == Some(3) && said.contains("status 401"), "{code:?}: {said}");
    // It answers: it scrapes nothing, so there is nothing to recognize.
    let (code, said) = discover(secure(), &["--ca-file", &cert, "--basic-file", &password]);
    assert!(
        code == Some(2) && said.contains("none by which a preset is recognized"),
        "{code:?}: {said}"
    );
}

/// A server that accepts and never answers holds nobody up who wants to stop.
#[test]
fn a_watch_ends_while_its_server_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("system.toml");
    std::fs::write(&file, "name = 'x'\nentry = 'a'\n[tiers.a]\npreset = 'http'\n").unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut child = kendall()
        .arg("observe")
        .arg(&file)
        .args(["--prometheus", &url, "--watch", "1s"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _held = silent.accept().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    // Not the words of a server that was waited for.
    assert!(said.contains("stopped while the server had not answered"), "{said}");
    assert!(!said.contains("no answer in"), "{said}");
    assert!(child.wait().unwrap().success());
}

/// A password in an address opens the door, and is in no file, message or recording.
#[test]
fn a_password_in_an_address_is_written_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let (_station, _, metrics) = station();
    let (_prometheus, url) = prometheus(folder.path(), metrics);
    let address = url.trim_start_matches("http://");
    let discover = |user: &str| {
        let url = format!("http://{user}@{address}");
        let output = kendall().args(["observe", "--discover", &url]).output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(all).unwrap())
    };
    let mut found = (None, String::new());
    wait_until("a scrape", || {
        found = discover("me:secret");
        found.0 == Some(0)
    });
    assert!(!found.1.contains("secret") && found.1.contains("--basic-file"), "{}", found.1);
    assert!(found.1.contains(&format!("prometheus = \"http://{address}\"")), "{}", found.1);
    let refused = kendall().args(["observe", "--discover", "me:other-one@host:9090"]).output();
    let said = String::from_utf8(refused.unwrap().stderr).unwrap();
    assert!(said.contains("`http://host:9090`") && !said.contains("other-one"), "{said}");
}

#[test]
fn a_server_that_is_not_there_and_a_file_that_is_wrong_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("system.toml");
    std::fs::write(&file, "name = 'x'\nentry = 'a'\n[tiers.a]\npreset = 'http'\n").unwrap();
    let run = |url: &str| {
        kendall().arg("observe").arg(&file).args(["--prometheus", url]).output().unwrap()
    };
    // No program listens on port 1 of loopback.
    let output = run("http://127.0.0.1:1");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    std::fs::write(&file, "name = 'x'\nentry = 'b'\n[tiers.a]\npreset = 'http'\n").unwrap();
    let output = run("http://127.0.0.1:1");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("entry: `b`"));
}

/// Nothing but the load is known: what else was found is printed, and the question ends it.
#[test]
fn a_question_without_a_network_is_answered_with_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, table) = (folder.path().join("system.toml"), folder.path().join("table.csv"));
    std::fs::write(&file, "name = 'x'\nentry = 'a'\nstep = '10s'\n[tiers.a]\nservers = 2\n")
        .unwrap();
    let rows: String = (0..120).map(|row| format!("{},{}\n", row * 10, 20 + row / 12)).collect();
    std::fs::write(&table, format!("time_s,a.throughput\n{rows}")).unwrap();
    let output = kendall()
        .arg("observe")
        .arg(&file)
        .arg("--csv")
        .arg(&table)
        .args(["--what-if", "load=2"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(printed.contains("Cannot tell what saturates first"), "{printed}");
    assert!(printed.contains("load=2: cannot tell: `a`: no query gives how many"), "{printed}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("add one for `busy`"), "{said}");
}
