//! A real compute service on loopback: results, refusals, queue, cache, control, HTTP/2, and
//! clients that behave badly. No upper bound of a time is asserted.
#![expect(clippy::unwrap_used, reason = "a test that fails shall say where")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use kendall_compute::{
    CacheLimits, Change, Compute, ComputeError, ComputeOptions, Control, Limits, QueueBound,
    RequestLimits, Unbounded,
};
use kendall_testing::{certificate, wait_until};
use kendall_tier::serve::Tls;
use kendall_tier::{Instruments, Stop};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    control: Control,
    instruments: Instruments,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), ComputeError>>>,
}

fn options() -> ComputeOptions {
    ComputeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        change: Change { workers: Some(2), ..Change::default() },
        request_limits: RequestLimits { size: 200, exponent: 1_000_000, body_bytes: 64 * 1024 },
        cache_limits: CacheLimits::default(),
        limits: Limits { stop: Duration::from_secs(2), ..Limits::default() },
        tls: None,
    }
}

impl Running {
    fn start(options: &ComputeOptions) -> Self {
        let compute = Compute::bind(options).unwrap();
        let (address, control) = (compute.address(), compute.control());
        let (instruments, stop) = (compute.instruments(), Stop::new());
        let asked = stop.clone();
        let thread = Some(std::thread::spawn(move || compute.run(&asked)));
        Self { address, control, instruments, stop, thread }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// One request on a connection of its own.
    fn get(&self, target: &str) -> Answer {
        let mut stream = self.connect();
        write!(stream, "GET {target} HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        Answer::read(&mut stream)
    }

    fn post(&self, body: &str) -> Answer {
        let mut stream = self.connect();
        let head = "POST /compute HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        // A body that is too large is refused before all of it is read.
        stream.write_all(request.as_bytes()).unwrap_or_default();
        Answer::read(&mut stream)
    }

    fn until(&self, condition: impl Fn(&Self) -> bool) {
        wait_until("what the test waits for", || condition(self));
    }

    fn change(&self, change: &Change) {
        self.control.change(change).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.request();
        let outcome = self.thread.take().unwrap().join().unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Answer {
    fn read(stream: &mut impl Read) -> Self {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let body = serde_json::from_slice(&body).unwrap();
        Self { status: head[9..12].parse().unwrap(), head, body }
    }

    /// Status and name of a refusal, which must explain itself.
    fn refusal(&self) -> (u16, &str) {
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        assert_eq!(self.body["status"], self.status);
        assert!(self.body["detail"].as_str().unwrap().len() > 10, "{self:?}");
        (self.status, self.body["title"].as_str().unwrap())
    }
}

#[test]
fn results_are_right_and_carry_their_times() {
    let service = Running::start(&options());
    let power = service.post(r#"{"matrix": [[1, 1], [1, 0]], "exponent": 30, "result": "whole"}"#);
    assert_eq!(power.body["result"]["matrix"], json!([[1_346_269, 832_040], [832_040, 514_229]]));
    assert!(power.body["service_time_ns"].as_u64().unwrap() > 0);
    assert_eq!(power.body["cached"], false);
    let factors = service.get("/compute?integer=1001");
    assert_eq!(factors.body["result"]["factors"], json!([7, 11, 13]));
    service.until(|service| {
        let snapshot = service.instruments.snapshot();
        let completed = |kind: &str| snapshot.requests[kind].completions;
        completed("power") == 1 && completed("factorize") == 1
    });
}

#[test]
fn a_head_is_answered_as_a_get_without_the_body() {
    let service = Running::start(&options());
    let head_of = |method: &str, target: &str| {
        let mut stream = service.connect();
        // What follows on the same connection shows that no body came.
        let next = "GET /nowhere HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        write!(stream, "{method} {target} HTTP/1.1\r\nhost: a\r\n\r\n{next}").unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        let (head, rest) = all.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), rest.to_owned())
    };
    for target in ["/health", "/openapi.json", "/compute?integer=1001", "/compute?width=1"] {
        let (got, _) = head_of("GET", target);
        let (head, rest) = head_of("HEAD", target);
        assert_eq!(head.lines().next(), got.lines().next(), "{target}");
        assert!(rest.starts_with("HTTP/1.1 404"), "{target}: {rest}");
        let field = |head: &str, name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))
        };
        assert_eq!(field(&head, "content-type: "), field(&got, "content-type: "), "{target}");
        assert!(field(&head, "content-length: ").is_some_and(|length| length != "0"), "{target}");
    }
    // Both were computed, answered and counted.
    service.until(|service| {
        let requests = service.instruments.snapshot().requests;
        requests["factorize"].completions == 2 && requests["factorize"].arrivals == 2
    });
}

#[test]
fn each_misuse_has_its_status_and_a_body_that_explains() {
    let service = Running::start(&options());
    assert_eq!(
        service.post(r#"{"matrix": [[1, 2]], "exponent": 1}"#).refusal(),
        (422, "not-square")
    );
    assert_eq!(service.post("{").refusal(), (400, "not-json"));
    assert_eq!(service.get("/compute?size=0&exponent=1").refusal(), (422, "empty-matrix"));
    assert_eq!(service.get("/compute?size=999&exponent=1").refusal(), (413, "matrix-too-large"));
    assert_eq!(service.get("/").refusal(), (404, "not-found"));
    let huge = format!(r#"{{"integer": "{}"}}"#, "7".repeat(70_000));
    assert_eq!(service.post(&huge).refusal(), (413, "body-too-large"));

    let raw = |text: &str| {
        let mut stream = service.connect();
        stream.write_all(text.as_bytes()).unwrap_or_default();
        Answer::read(&mut stream)
    };
    let deleted = raw("DELETE /compute HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(deleted.refusal(), (405, "method-not-allowed"));
    assert!(deleted.head.contains("allow: get, head, post"));
    let nowhere = raw("GET /compute?integer=6 HTTP/1.1\r\n\r\n");
    assert_eq!(nowhere.refusal(), (400, "not-one-host"));
    let twice = raw("GET /compute?integer=6 HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n");
    assert_eq!(twice.refusal(), (400, "not-one-host"));
    assert_eq!(raw("GET /compute?integer=6 HTTP/1.0\r\n\r\n").status, 200);
    assert_eq!(service.get("/compute?integer=6&width=1").refusal(), (422, "unknown-key"));
    assert_eq!(service.get("/compute?integer=6&integer=7").refusal(), (422, "repeated-key"));
    let form = "content-type: text/plain\r\ncontent-length: 2\r\n\r\n{}";
    let text = raw(&format!("POST /compute HTTP/1.1\r\nhost: a\r\n{form}"));
    assert_eq!(text.refusal(), (415, "wrong-content-type"));
    let none = raw("POST /compute HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}");
    assert_eq!(none.refusal(), (415, "wrong-content-type"));
    // A chunked body does not announce its size.
    let chunk = "x".repeat(0x8000);
    let chunks = format!("8000\r\n{chunk}\r\n8000\r\n{chunk}\r\n1\r\nx\r\n");
    let head = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunked = raw(&format!("POST /compute HTTP/1.1\r\nhost: a\r\n{head}{chunks}"));
    assert_eq!(chunked.refusal(), (413, "body-too-large"));
    service.until(|service| service.instruments.snapshot().limits_hit["body_bytes"] == 2);
}

#[test]
fn a_body_that_is_cut_off_or_too_slow_is_refused() {
    let mut options = options();
    options.limits.read = Duration::from_millis(200);
    let service = Running::start(&options);
    let head = "POST /compute HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
                content-length: 100\r\n\r\n{\"integer\":";
    let mut cut = service.connect();
    cut.write_all(head.as_bytes()).unwrap();
    cut.shutdown(Shutdown::Write).unwrap();
    assert_eq!(Answer::read(&mut cut).refusal(), (400, "body-cut-off"));
    let mut slow = service.connect();
    slow.write_all(head.as_bytes()).unwrap();
    let answer = Answer::read(&mut slow);
    assert_eq!(answer.refusal(), (408, "body-too-slow"));
    assert!(answer.head.contains("connection: close"));
    // A head that never ends, and a connection that never begins: closed.
    for begin in
        ["GET / HTTP/1.1\r\n", "", "PRI * HTTP/2.0", "GET /health HTTP/1.1\r\nhost: a\r\n\r\n"]
    {
        let mut idle = service.connect();
        idle.write_all(begin.as_bytes()).unwrap();
        let mut rest = Vec::new();
        idle.read_to_end(&mut rest).unwrap();
    }
}

#[test]
fn hostile_bytes_harm_no_other_client() {
    let service = Running::start(&options());
    let mut good = service.connect();
    let endless = [b"GET / HTTP/1.1\r\n".to_vec(), b"a: b\r\n".repeat(20_000)].concat();
    let preface =
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff".to_vec();
    let cases = [
        endless,
        preface,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        vec![0; 5000],
        b"POST /compute HTTP/1.1\r\ncontent-length: -5\r\n\r\n".to_vec(),
        b"POST /compute HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n".to_vec(),
        b"GET /compute?matrix=%zz&exponent=\xff HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
    ];
    for bytes in cases {
        let mut bad = service.connect();
        bad.write_all(&bytes).unwrap_or_default();
        bad.shutdown(Shutdown::Write).unwrap_or_default();
        let mut rest = Vec::new();
        bad.read_to_end(&mut rest).unwrap_or_default(); // a reset is an answer, too
        assert!(!rest.starts_with(b"HTTP/1.1 2") && !rest.starts_with(b"HTTP/1.1 5"), "{bytes:?}");
        write!(good, "GET /health HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        assert_eq!(Answer::read(&mut good).status, 200);
    }
}

/// A request that keeps a worker for as long as a test may last.
const LONG: &str = "/compute?size=150&exponent=900000";

#[test]
fn a_full_queue_is_refused_with_retry_after_and_changes_while_it_runs() {
    let mut options = options();
    options.limits.compute = Duration::from_secs(3600);
    options.limits.stop = Duration::from_millis(1);
    options.change = Change { workers: Some(1), queue: Some(QueueBound::Bounded(1)), cache: None };
    let service = Running::start(&options);
    let mut held: Vec<TcpStream> = Vec::new();
    let mut ask = |service: &Running| {
        let mut stream = service.connect();
        write!(stream, "GET {LONG} HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        held.push(stream);
    };
    ask(&service);
    service.until(|service| service.instruments.snapshot().workers_busy.current == 1);
    ask(&service);
    service.until(|service| service.control.state().queue_length == 1);
    let full = service.get(LONG);
    assert_eq!(full.refusal(), (503, "queue-full"));
    assert!(full.head.contains("retry-after: 1"));
    assert_eq!(service.instruments.snapshot().limits_hit["queue"], 1);
    let unbounded = Some(QueueBound::Unbounded(Unbounded::Unbounded));
    service.change(&Change { queue: unbounded, ..Change::default() });
    ask(&service);
    service.until(|service| service.control.state().queue_length == 2);
    service.change(&Change { workers: Some(3), ..Change::default() });
    service.until(|service| service.instruments.snapshot().workers_busy.current == 3);
    assert_eq!(service.instruments.snapshot().workers, 3);
    // No client waits for the answers any more: the workers give up, and fewer may remain. One that closed its side
    // with its request would wait.
    std::thread::sleep(Duration::from_millis(50));
    drop(held);
    service.change(&Change { workers: Some(1), ..Change::default() });
    service.until(|service| service.instruments.snapshot().workers_busy.current == 0);
    assert_eq!(service.instruments.snapshot().outcomes["abandoned"], 3);
    assert_eq!(service.get("/compute?integer=6").status, 200);
}

#[test]
fn a_computation_beyond_its_time_is_given_up() {
    let mut options = options();
    options.limits.compute = Duration::from_millis(20);
    let service = Running::start(&options);
    assert_eq!(service.get(LONG).refusal(), (503, "too-long"));
    assert_eq!(service.instruments.snapshot().outcomes["too_long"], 1);
}

#[test]
fn the_cache_answers_whole_results_and_is_switched_while_it_runs() {
    let mut options = options();
    options.change.workers = Some(1);
    options.cache_limits.entries = 2;
    let service = Running::start(&options);
    let cached = |target: &str| {
        let answer = service.get(target);
        assert_eq!(answer.status, 200);
        answer.body["cached"].as_bool().unwrap()
    };
    assert!(!cached("/compute?integer=10") && !cached("/compute?integer=10"), "off at first");
    service.change(&Change { cache: Some(true), ..Change::default() });
    service.control.start_recording();
    assert!(!cached("/compute?integer=10") && cached("/compute?integer=10"));
    assert!(!cached("/compute?integer=10&result=checksum"), "another answer is asked for");
    assert!(!cached("/compute?size=3&exponent=2"), "the bound drops the first");
    assert!(!cached("/compute?integer=10") && cached("/compute?integer=10"));
    let recorded = service.control.stop_recording().unwrap();
    assert_eq!((recorded.cache_hits, recorded.cache_misses), (2, 4));
    assert_eq!(recorded.cache_hit_rate, Some(1.0 / 3.0));
    assert!(recorded.bytes_in > 0 && recorded.bytes_out > recorded.bytes_in);
    assert!(!recorded.core_utilization.is_empty());
    assert!(service.control.recording().is_none());
    service.change(&Change { cache: Some(false), ..Change::default() });
    assert!(!cached("/compute?integer=10"));
    service.change(&Change { cache: Some(true), ..Change::default() });
    assert!(!cached("/compute?integer=10"), "switched off, it forgot");
    assert_eq!(service.instruments.snapshot().outcomes["hits"], 2);
}

#[test]
fn a_change_that_cannot_be_changes_nothing() {
    let service = Running::start(&options());
    let before = service.control.state();
    for change in [
        Change { workers: Some(0), cache: Some(true), queue: None },
        Change { workers: Some(100_000), ..Change::default() },
        Change {
            queue: Some(QueueBound::Bounded(usize::MAX)),
            cache: Some(true),
            workers: Some(1),
        },
    ] {
        assert!(service.control.change(&change).is_err());
    }
    assert_eq!(service.control.state(), before);
}

#[test]
fn what_is_described_is_served_as_described() {
    let service = Running::start(&options());
    let description = service.get("/openapi.json").body;
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1"));
    let schema = |name: &str| &description["components"]["schemas"][name];
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let mut stream = service.connect();
            let name = method.to_uppercase();
            write!(stream, "{name} {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
                .unwrap();
            let status = Answer::read(&mut stream).status;
            let answers = &methods[method]["responses"];
            assert!(answers.get(status.to_string()).is_some(), "{name} {path}: {status}");
        }
    }
    let check = |answer: &Value, name: &str| {
        let schema = schema(name);
        let required = schema["required"].as_array().unwrap();
        assert!(required.iter().all(|key| answer.get(key.as_str().unwrap()).is_some()), "{name}");
        let known = schema["properties"].as_object().unwrap();
        assert!(answer.as_object().unwrap().keys().all(|key| known.contains_key(key)), "{name}");
    };
    let power = service.get("/compute?size=2&exponent=2&result=whole").body;
    check(&power, "Answer");
    check(&power["result"], "Power");
    check(&service.get("/compute?integer=6").body["result"], "Factors");
    check(&service.get("/compute").body, "Problem");
    // Every key that is described is taken.
    let properties = schema("Request")["properties"].as_object().unwrap();
    for key in properties.keys() {
        assert_ne!(service.get(&format!("/compute?{key}=1")).body["title"], "unknown-key", "{key}");
    }
    assert_eq!(properties["size"]["maximum"], 200);
    // All references lead somewhere.
    let text = description.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schema(name).is_object(), "{name}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let service = Running::start(&options());
    let mut stream = service.connect();
    for integer in 2..50 {
        write!(stream, "GET /compute?integer={integer} HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    }
    for integer in 2..50 {
        assert_eq!(Answer::read(&mut stream).body["result"]["integer"], integer);
    }
}

#[test]
fn a_graceful_stop_answers_what_was_accepted() {
    let mut options = options();
    options.limits.stop = PATIENCE;
    let service = Running::start(&options);
    let mut stream = service.connect();
    write!(stream, "GET /compute?size=100&exponent=50 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    service.until(|service| service.instruments.snapshot().requests["power"].arrivals == 1);
    drop(service);
    assert_eq!(Answer::read(&mut stream).status, 200);
}

#[test]
fn a_graceful_stop_refuses_what_it_has_no_time_for() {
    let mut options = options();
    options.limits.compute = Duration::from_secs(3600);
    options.limits.stop = Duration::from_millis(500);
    options.change.workers = Some(1);
    let service = Running::start(&options);
    let mut streams = [service.connect(), service.connect()];
    for stream in &mut streams {
        write!(stream, "GET {LONG} HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    }
    service.until(|service| service.instruments.snapshot().requests["power"].arrivals == 2);
    let instruments = service.instruments.clone();
    drop(service);
    for stream in &mut streams {
        assert_eq!(Answer::read(stream).refusal(), (503, "stopping"));
    }
    assert_eq!(instruments.snapshot().outcomes["stopping"], 2);
}

#[test]
fn where_nobody_may_wait_free_workers_serve() {
    let mut options = options();
    options.limits.compute = Duration::from_secs(3600);
    options.limits.stop = Duration::from_millis(1);
    options.change = Change { workers: Some(1), queue: Some(QueueBound::Bounded(0)), cache: None };
    let service = Running::start(&options);
    assert_eq!(service.get("/compute?integer=6").status, 200);
    let mut held = service.connect();
    write!(held, "GET {LONG} HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    service.until(|service| service.instruments.snapshot().workers_busy.current == 1);
    assert_eq!(service.get("/compute?integer=6").refusal(), (503, "queue-full"));
}

/// Many streams of one HTTP/2 connection, each answered with its own result.
#[test]
fn http_2_streams_get_their_own_answers() {
    use http_body_util::{BodyExt as _, Empty};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let service = Running::start(&options());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(service.address).await.unwrap();
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { connection.await.unwrap_or_default() });
        let mut asked = tokio::task::JoinSet::new();
        for integer in 2..100_u64 {
            let mut sender = sender.clone();
            let uri = format!("http://{}/compute?integer={integer}", service.address);
            let request = hyper::Request::get(uri).body(Empty::<bytes::Bytes>::new()).unwrap();
            asked.spawn(async move {
                let answer = sender.send_request(request).await.unwrap();
                assert_eq!(answer.status(), 200);
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(body["result"]["integer"], integer);
            });
        }
        while let Some(outcome) = asked.join_next().await {
            outcome.unwrap();
        }
    });
    service.until(|service| service.instruments.snapshot().requests["factorize"].completions == 98);
}

/// What a client sees that trusts one certificate; nothing where it refuses the server, or the server it.
fn over_tls(service: &Running, trusted: &Path, more: &[&Path]) -> String {
    let mut client = Command::new("openssl")
        .args([
            "s_client",
            "-quiet",
            "-verify_return_error",
            "-servername",
            "localhost",
            "-connect",
        ])
        .arg(service.address.to_string())
        .arg("-CAfile")
        .arg(trusted)
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let request = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut stdin = client.stdin.take().unwrap();
    // One that refuses the server is gone.
    stdin.write_all(request.as_bytes()).unwrap_or_default();
    let output = client.wait_with_output().unwrap();
    drop(stdin);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn over_tls_only_who_trusts_and_is_trusted_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate_file, key) = certificate(folder.path(), "server");
    let (other, other_key) = certificate(folder.path(), "other");
    let tls = Tls { certificate: certificate_file.clone(), key, client_certificate: None };
    let service = Running::start(&ComputeOptions { tls: Some(tls.clone()), ..options() });
    assert!(over_tls(&service, &certificate_file, &[]).starts_with("HTTP/1.1 200"));
    assert_eq!(over_tls(&service, &other, &[]), "");
    // A client without TLS gets no answer, and the next one is served.
    let mut plain = service.connect();
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut said = Vec::new();
    drop(plain.read_to_end(&mut said));
    assert!(!said.starts_with(b"HTTP"), "{said:?}");
    assert!(over_tls(&service, &certificate_file, &[]).starts_with("HTTP/1.1 200"));
    drop(service);

    let tls = Tls { client_certificate: Some(other.clone()), ..tls };
    let service = Running::start(&ComputeOptions { tls: Some(tls), ..options() });
    assert_eq!(over_tls(&service, &certificate_file, &[]), "");
    let own = [Path::new("-cert"), &other, Path::new("-key"), &other_key];
    assert!(over_tls(&service, &certificate_file, &own).starts_with("HTTP/1.1 200"));
}
