//! Every query of the dashboards finds something in a real Prometheus that reads a real cluster.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::SocketAddr;

use crate::execution_support::{Client, Cluster, Job, Process};
use crate::support::{repository, wait_until};
use kendall_build_cluster::digest::{Digest, Function};
use kendall_testing::page;

struct Prometheus {
    _process: kendall_testing::Process,
    address: SocketAddr,
}

impl Prometheus {
    /// Scrapes `targets` each second.
    fn start(folder: &std::path::Path, targets: &[&str]) -> Self {
        let targets = targets.join("\", \"");
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: kendall\n  \
             static_configs: [{{targets: [\"{targets}\"]}}]\n"
        );
        let (process, address) = kendall_testing::Process::prometheus(folder, &config, &[]);
        Self { _process: process, address }
    }

    fn query(&self, query: &str) -> Option<serde_json::Value> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = page(self.address, &format!("/api/v1/query?query={escaped}"))?;
        serde_json::from_str(&answer.body).ok()
    }

    /// Values that a query finds.
    fn finds(&self, query: &str) -> usize {
        let Some(answer) = self.query(query) else { return 0 };
        if answer["status"] != "success" {
            // Not ready yet, or no query at all: the latter never becomes one.
            assert_ne!(answer["errorType"], "bad_data", "{query}: {answer}");
            return 0;
        }
        answer["data"]["result"].as_array().map_or(0, Vec::len)
    }
}

/// Looks at each query of a dashboard, while something happens, until it finds something.
fn every_query_finds(file: &str, prometheus: &Prometheus, mut happen: impl FnMut()) {
    let text = std::fs::read_to_string(repository().join("dashboards").join(file));
    let dashboard: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
        let query = query.replace("$job", ".*");
        wait_until(&query, || {
            // Something happens between two readings, so that rates are there.
            happen();
            prometheus.finds(&query) > 0
        });
    }
}

#[test]
fn every_query_of_the_execution_dashboard_finds_something() {
    let cluster = Cluster::start(2, 1, &[]);
    let folder = tempfile::tempdir().unwrap();
    let targets = [cluster.scheduler.metrics.as_str(), cluster.workers[0].metrics.as_str()];
    let prometheus = Prometheus::start(folder.path(), &targets);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(cluster.client());
    let mut number = 0;
    every_query_finds("build-execution.json", &prometheus, || {
        number += 1;
        let job = Job::shell(&format!("cat in; exit {}", number % 2)).file("in", "same");
        runtime.block_on(client.run(&Job { skip_cache: true, ..job }));
    });
}

/// A cache that is too small for what is stored, and a front before it.
#[test]
fn every_query_of_the_cache_dashboard_finds_something() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("cache");
    let arguments = ["cache", "--listen", "127.0.0.1:0", "--quota", "64MiB", "--data"];
    let cache = Process::start(&[&arguments[..], &[data.to_str().unwrap()]].concat());
    let server = format!("--server={}", cache.listen);
    let front = Process::start(&["cache-front", "--listen", "127.0.0.1:0", &server]);
    let targets = [cache.metrics.as_str(), front.metrics.as_str()];
    let prometheus = Prometheus::start(folder.path(), &targets);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(Client::new(&front.listen, &front.listen));
    let mut number = 0_u32;
    every_query_finds("build-cache.json", &prometheus, || {
        number += 1;
        // Noise: each blob is another, and three megabytes of them do not stay for long.
        let blob: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(3 << 20).collect();
        runtime.block_on(async {
            let stored = client.put(blob).await;
            let digest = Digest::from_wire(Function::Sha256, &stored).unwrap();
            client.remote.missing("", &[digest]).await.unwrap();
            client.remote.read("", &[digest]).await.unwrap();
            assert!(client.remote.result("", digest, false).await.unwrap().is_none());
        });
    });
}

/// What a tier of the program says of itself where it is started: the tier and its two addresses.
fn served(arguments: &[&str]) -> (kendall_testing::Process, SocketAddr, SocketAddr) {
    let mut command = crate::support::kendall();
    command.arg("serve").args(arguments).args([
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
    ]);
    command.stdout(std::process::Stdio::null()).env("KENDALL_LOG", "error");
    let (process, ready) = kendall_testing::Process::ready(&mut command);
    let (listen, metrics) = (ready.address("listen"), ready.address("metrics"));
    (process, listen, metrics)
}

/// Every tier that stands on `crates/tier` has the same families: the proxy has a backend beside.
#[test]
fn every_query_of_the_tier_dashboard_finds_something() {
    let folder = tempfile::tempdir().unwrap();
    let server = kendall_testing::free_address();
    let _memcached = kendall_testing::Process::memcached(server, &[]);
    let (_proxy, listen, metrics) =
        served(&["proxy", "--server", &server.to_string(), "--workers", "4"]);
    let prometheus = Prometheus::start(folder.path(), &[&metrics.to_string()]);
    let mut client = std::net::TcpStream::connect(listen).unwrap();
    every_query_finds("tier.json", &prometheus, || {
        use std::io::{Read as _, Write as _};
        client.write_all(b"set a 0 0 1\r\n1\r\nget a\r\n").unwrap();
        let mut answer = [0; "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n".len()];
        client.read_exact(&mut answer).unwrap();
    });
}

#[test]
fn every_query_of_the_queue_dashboard_finds_something() {
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let data = folder.path().join("data");
    let (_queue, listen, metrics) =
        served(&["queue", "--data", data.to_str().unwrap(), "--console", "127.0.0.1:0"]);
    let prometheus = Prometheus::start(folder.path(), &[&metrics.to_string()]);
    let listen = listen.to_string();
    every_query_finds("message-queue.json", &prometheus, || {
        // A load that ends before a slow disk answers is rejected; the next one is made all the same.
        crate::support::kendall()
            .args(["load", "queue", &listen, "--clients", "2", "--duration", "300ms"])
            .output()
            .unwrap();
    });
}

/// A load that is shown while it runs: `--live`.
#[test]
fn every_query_of_the_load_dashboard_finds_something() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, listen, _) = served(&["synthetic", "--service", "constant:1ms"]);
    let live = kendall_testing::free_address();
    let mut load = crate::support::kendall();
    load.args(["load", "http", &format!("http://{listen}/"), "-c", "2", "-z", "10min", "--quiet"]);
    load.arg(format!("--live={live}")).stdout(std::process::Stdio::null());
    let _load = kendall_testing::Process(load.spawn().unwrap());
    let prometheus = Prometheus::start(folder.path(), &[&live.to_string()]);
    every_query_finds("load.json", &prometheus, || {});
}
