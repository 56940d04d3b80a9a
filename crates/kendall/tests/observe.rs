//! `kendall observe` against a real Prometheus that scrapes a station whose truth is known.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests fail by panicking, and wait with a deadline of their own"
)]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{kendall, wait_until};

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// A station of two servers and 20 ms: where requests go, and its metrics page.
fn station() -> (Process, SocketAddr, SocketAddr) {
    let mut child = kendall()
        .args(["serve", "synthetic", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
        .args(["--workers", "2", "--service", "exponential:20ms"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    let word = |name: &str| -> SocketAddr {
        let found = line.split_whitespace().find_map(|word| word.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in {line:?}")).parse().unwrap()
    };
    (Process(child), word("listen="), word("metrics="))
}

/// A Prometheus that scrapes `target` each second.
fn prometheus(folder: &Path, target: SocketAddr) -> (Process, String) {
    // Below the ports that the system hands out, so that no other test's server takes it meanwhile.
    let address = (20_000..30_000)
        .step_by(7)
        .find_map(|port| {
            let listener = TcpListener::bind(("127.0.0.1", port + (std::process::id() % 7) as u16));
            listener.ok()?.local_addr().ok()
        })
        .unwrap();
    let config = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n- job_name: station\n  \
         static_configs: [{{ targets: ['{target}'] }}]\n"
    );
    let file = folder.join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--log.level=error")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus is missing: run `make packages-test`");
    let process = Process(child);
    wait_until("prometheus is ready", || get(address, "/-/ready").contains("200 OK"));
    (process, format!("http://{address}"))
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap_or_default();
        stream.read_to_string(&mut answer).unwrap_or_default();
    }
    answer
}

fn observe(arguments: &[&str]) -> (serde_json::Value, String) {
    let output = kendall().arg("observe").args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    (serde_json::from_slice(&output.stdout).unwrap(), errors)
}

fn demand(report: &serde_json::Value) -> (f64, f64) {
    let blocks = report["sections"].as_array().unwrap().iter().flat_map(|s| {
        s["blocks"].as_array().unwrap().iter().filter(|block| block["kind"] == "table")
    });
    let tables: Vec<&serde_json::Value> = blocks.map(|block| &block["content"]).collect();
    let demands = tables.iter().find(|table| table["id"] == "demands").unwrap();
    let row = &demands["rows"][0];
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
