//! `kendall load http` as a user of other tools types it: short flags, formats, intervals, messages.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be done fails it")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Output, Stdio};

use kendall_protocols::snapshot::TierSnapshot;
use kendall_testing::Process;

use crate::support::kendall;

/// A server that answers at once, stopped when the test ends, and its address.
fn server() -> (Process, String) {
    let (server, url, _) = server_with_page();
    (server, url)
}

/// The same, with the address of its metrics page.
fn server_with_page() -> (Process, String, SocketAddr) {
    let (server, ready) = Process::ready(
        kendall()
            .args(["serve", "synthetic", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            .args(["--workers", "2", "--service", "constant:1ms"])
            .stdout(Stdio::null()),
    );
    (server, format!("http://{}/", ready.address("listen")), ready.address("metrics"))
}

fn load(arguments: &[&str]) -> Output {
    kendall().args(["load", "http"]).args(arguments).output().unwrap()
}

/// Half a second carries no interval: each format says so with how long would do, and the plain
/// numbers are there all the same.
#[test]
fn each_format_has_the_figures_and_says_why_a_short_load_has_no_interval() {
    let (_server, url) = server();
    let short = ["-c", "2", "-n", "50", "--quiet"];
    let output = load(&[&[&url[..]], &short[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("no intervals: ") && text.contains("10 s are enough"), "{text}");
    assert!(!text.contains('\u{1b}'), "colors in a pipe: {text}");

    let output = load(&[&[&url[..]], &short[..], &["--format", "json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["response_time_p99_s"].as_f64().unwrap() >= 0.001, "{json:#}");
    let interval = &json["intervals"]["throughput_per_s"];
    assert!(interval["refused"][0].is_string() && interval["enough_s"].is_number(), "{interval}");

    let output = load(&[&[&url[..]], &short[..], &["--format", "csv"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("figure,value,low,high,confidence,refused,enough_s\n"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("response_time_p99_s,0.0")), "{text}");
}

/// Requests that a server has answered, by its own count.
fn answered(metrics: SocketAddr) -> u64 {
    let page = kendall_testing::page(metrics, "/snapshot").unwrap();
    let snapshot: TierSnapshot = serde_json::from_str(&page.body).unwrap();
    snapshot.requests.values().map(|requests| requests.completions).sum()
}

/// Several URLs are instances of one service: connections take them in turn, and what is no such
/// instance is refused.
#[test]
fn several_urls_are_loaded_in_turn() {
    let ((_one, one, page_of_one), (_two, two, page_of_two)) =
        (server_with_page(), server_with_page());
    let output = load(&[&one, &two, "-c", "2", "-n", "40", "--quiet", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{json:#}");
    // A server counts an answer after it has sent it.
    let counts = || (answered(page_of_one), answered(page_of_two));
    kendall_testing::wait_until("all requests to be counted", || {
        let (of_one, of_two) = counts();
        of_one + of_two >= 40
    });
    // A connection each, and each has its first request at least.
    let (of_one, of_two) = counts();
    assert!(of_one > 0 && of_two > 0 && of_one + of_two == 40, "{of_one} and {of_two}");
    for (other, part) in [
        (format!("{two}else"), "another scheme or path"),
        (two.replacen("http:", "https:", 1), "another scheme or path"),
    ] {
        let output = load(&[&one, &other, "-c", "2", "-n", "2", "--quiet"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(part), "{said}");
    }
}

/// Answers each request at once; the request lines that came.
fn recorder() -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, lines) = std::sync::mpsc::sync_channel(16);
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        for line in reader.lines().map_while(Result::ok) {
            if line.is_empty() {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            } else if line.ends_with("HTTP/1.1") {
                sender.send(line).unwrap();
            }
        }
    });
    (url, lines)
}

#[test]
fn a_log_is_replayed_in_its_order_and_ends_the_load() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let line = |second: u32, request: &str| {
        format!("10.0.0.1 - - [10/Oct/2026:13:55:{second} +0000] \"{request} HTTP/1.1\" 200 23\n")
    };
    let text = [line(30, "GET /a"), line(30, "GET /b?x={y}"), line(34, "GET /c")].concat()
        + &line(33, "POST /d");
    std::fs::write(&log, text).unwrap();
    let (url, lines) = recorder();
    let log = log.display().to_string();
    let replay = ["--replay", &log, "--speed", "10", "--clients", "1", "--format", "json"];
    let output = load(&[&[&url[..]], &replay[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // On a busy machine one of three requests may be sent late.
    let code = if said.contains("ms late (limit") { 5 } else { 0 };
    assert_eq!(output.status.code(), Some(code), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["completed"].as_u64(), Some(3), "{json:#}");
    let caveats = json["caveats"].to_string();
    assert!(caveats.contains("1 line of the log left out, beside 3 requests"), "{caveats}");
    // It ends with the last answer, 0.4 s behind the first, and not with the time-out behind that.
    let took_ns = json["ended_ns"].as_u64().unwrap() - json["started_ns"].as_u64().unwrap();
    assert!(took_ns < 4_000_000_000, "{took_ns}");
    let lines: Vec<String> = lines.try_iter().collect();
    assert_eq!(lines, ["GET /a HTTP/1.1", "GET /b?x={y} HTTP/1.1", "GET /c HTTP/1.1"]);
    for (arguments, part) in [
        (["--replay", &log, "--speed", "0"], "not a number above 0"),
        (["--replay", "/nonexistent", "--speed", "1"], "cannot be read"),
        (["--replay", &log, "--rate", "10/s"], "cannot be used with"),
    ] {
        let output = load(&[&[&url[..]], &arguments[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(part), "{said}");
    }
}

/// A long enough one has them: of throughput and mean in any case.
#[test]
fn eleven_seconds_carry_intervals_that_hold_their_centers() {
    let (_server, url) = server();
    let output = load(&[
        &url,
        "-q",
        "100",
        "--arrivals",
        "constant",
        "-z",
        "11",
        "--format",
        "json",
        "--quiet",
    ]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in ["throughput_per_s", "response_time_mean_s", "response_time_p50_s"] {
        let (center, interval) = (json[key].as_f64().unwrap(), &json["intervals"][key]);
        // A busy machine may make a run that carries none: then it says so.
        let Some(low) = interval["low"].as_f64() else {
            assert!(interval["refused"][0].is_string(), "{key}: {interval}");
            continue;
        };
        let high = interval["high"].as_f64().unwrap();
        assert!(low <= center * 1.0011 && center <= high * 1.0011, "{key}: {center} {interval}");
    }
}

#[test]
fn what_fails_names_what_to_do() {
    // An address that no name server has.
    let output = load(&["http://no.such.host.invalid/", "-n", "1"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("http://127.0.0.1:8080/") && !said.contains("11211"), "{said}");
    let output = load(&["http://127.0.0.1:1/", "-d", "@body.json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--body-file body.json"), "{said}");
    // Plain HTTP where TLS was asked for.
    let (_server, url) = server();
    let output = load(&[&url.replacen("http:", "https:", 1), "-n", "1"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("does not answer with TLS") && said.contains("http://"), "{said}");
    // TLS where plain HTTP was asked for.
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = kendall_testing::certificate(folder.path(), "server");
    let mut compute = kendall();
    compute.args(["serve", "compute", "--listen", "127.0.0.1:0", "--tls-certificate"]);
    compute.arg(certificate).arg("--tls-key").arg(key).stdout(Stdio::null());
    let (_compute, ready) = Process::ready(&mut compute);
    let url = format!("http://{}/", ready.address("listen"));
    for more in [&[][..], &["--http2"]] {
        let output = load(&[&[&url[..], "-n", "1", "--quiet"], more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.contains("tls_wanted") && said.contains("use https://"), "{said}");
    }
}

/// As a shell with these limits of descriptors runs it.
fn load_with_descriptors(limits: &str, arguments: &[&str]) -> Output {
    let script = format!("ulimit {limits} && exec \"$@\"");
    let program = kendall();
    let program = program.get_program();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(program).args(["load", "http"]).args(arguments);
    shell.output().unwrap()
}

/// More clients than descriptors: the limit is raised as far as the system allows, and said where it does not.
#[test]
fn more_clients_than_descriptors_raise_the_limit_or_are_refused() {
    let (_server, url) = server();
    let arguments = ["-c", "200", "-n", "400", "--quiet", "--format", "json", &url];
    let output = load_with_descriptors("-Sn 100", &arguments);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["completed"], 400, "{json:#}");
    let output = load_with_descriptors("-n 100", &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("200 connections need") && said.contains("ulimit -Hn"), "{said}");
}

/// A threshold for CI: exit code 4, with what was measured; without a scheme the URL is one of http.
#[test]
fn a_condition_that_holds_fails_the_load() {
    let (_server, url) = server();
    let bare = url.trim_start_matches("http://").trim_end_matches('/');
    let load = |conditions: &[&str]| {
        let fails = conditions.iter().flat_map(|one| ["--fail-if", one]);
        let all = [bare, "-c", "2", "-n", "200", "--quiet", "--format", "json"];
        load(&all.into_iter().chain(fails).collect::<Vec<_>>())
    };
    let output = load(&["p99 > 60s", "errors > 0.1%", "throughput < 1/s"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("fail if errors > 0.1%: passed, 0.000 % (without an interval)"),
        "{said}"
    );
    let output = load(&["p50 > 1us", "errors > 0.1%"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("fail if p50 > 1us: failed, ") && said.contains(": passed, "), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["checks"][0]["verdict"], "holds", "{json:#}");
    assert!(json["checks"][0]["value"].as_f64().unwrap() > 0.001, "{json:#}");
    let output = load(&["p99 > 10"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("p99 > 10ms"), "{said}");
}

/// Clients and rates that change: the result says what each stage did, and has no interval.
#[test]
fn a_load_in_stages_has_a_row_for_each() {
    let (_server, url) = server();
    let stages = |text: &str, more: &[&str]| {
        let all = ["--stages", text, "--quiet", "--format", "json", &url];
        load(&[&all[..], more].concat())
    };
    let output = stages("1s:100/s,1s:100/s", &["--arrivals", "constant"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["loop"], "open");
    // 0 to 100/s within a second is half of that second's 100.
    let completed = |stage: usize| json["stages"][stage]["completed"].as_u64().unwrap();
    let after_the_end = json["drained"]["GET"]["completed"].as_u64().unwrap_or(0);
    assert_eq!(completed(0) + completed(1) + after_the_end, 150, "{json:#}");
    assert!((40..=51).contains(&completed(0)), "{json:#}");
    assert!(json["intervals"].is_null(), "{json:#}");
    let (_compute, ready) = Process::ready(
        kendall()
            .args(["serve", "compute", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            .stdout(Stdio::null()),
    );
    let compute = format!("http://{}/compute?integer=7", ready.address("listen"));
    for more in [&url[..], &compute].map(|url| [url, "--http2"]) {
        // The second client of the engine's threads is hyper's.
        let more = if more[0] == url { &more[..1] } else { &more[..] };
        let clients = ["--stages", "1s:1,0s:3,1s:3", "--think-time", "20ms"];
        let output = load(&[&clients[..], &["--quiet", "--format", "json"], more].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["clients"], 3, "{json:#}");
        let completed = |stage: usize| json["stages"][stage]["completed"].as_u64().unwrap();
        // One client for half of the first second, three for all of the next: some 24 and 142.
        assert!(completed(0) > 0 && completed(1) > 3 * completed(0), "{json:#}");
    }
    for (text, more, says) in [
        ("1s:5", &["-c", "3"][..], "how many clients"),
        ("1s:5", &["--rate", "3/s"], "cannot be used with"),
        ("1s:5/s", &["--think-time", "1s"], "stages of clients"),
        ("1s:5/s,1s:5", &[], "mixes rates and clients"),
    ] {
        let output = stages(text, more);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{said}");
    }
}

/// The calls that prepare a load had no time limit.
#[test]
fn a_load_ends_whose_server_accepts_and_never_answers() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let loads: Vec<_> = ["queue", "reapi"]
        .into_iter()
        .map(|kind| {
            let mut command = kendall();
            command.args(["load", kind, &address, "--clients", "2", "--duration", "1s"]);
            command.args(["--timeout", "1s", "--quiet"]).stdout(Stdio::null());
            (kind, command.stderr(Stdio::piped()).spawn().unwrap())
        })
        .collect();
    for (kind, load) in loads {
        let output = load.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_ne!(output.status.code(), Some(0), "{kind}: {said}");
        assert!(said.contains("timed"), "{kind}: {said}");
    }
}

/// A load in a browser, for Prometheus, and as a line of JSON a second.
#[test]
fn a_load_is_shown_while_it_runs() {
    let (_server, url) = server();
    let mut child = kendall()
        .args(["load", "http", &url, "-c", "2", "-z", "60s", "--progress", "json"])
        .arg("--live=127.0.0.1:0")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let _load = Process(child);
    let mut lines = stderr.lines().map(Result::unwrap);
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap()).unwrap();
    let page = next();
    let url = page["url"].as_str().and_then(|url| url.strip_prefix("http://")).unwrap();
    let address: SocketAddr = url.trim_end_matches('/').parse().unwrap();
    let second = next();
    assert!(second["throughput_per_s"].as_u64().unwrap() > 0 && second["errors"] == 0, "{second}");
    assert!(second["response_time_p99_s"].as_f64().unwrap() >= 0.001, "{second}");
    let page = |path| kendall_testing::page(address, path).unwrap().body;
    let shown: serde_json::Value = serde_json::from_str(&page("/live")).unwrap();
    assert_eq!(shown["title"], "kendall load");
    assert_eq!(shown["seconds"][0], second);
    let metrics = page("/metrics");
    assert!(metrics.contains("\nkendall_live_throughput_per_second "), "{metrics}");
    let total = metrics.lines().find_map(|line| line.strip_prefix("kendall_live_requests_total "));
    assert!(total.unwrap().parse::<u64>().unwrap() > 0, "{metrics}");
    assert!(page("/").contains("<div id=\"live\""));
    // A page elsewhere may have made its own name point here.
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /live HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
    let mut status = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 421");
}
