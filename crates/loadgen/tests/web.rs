//! TLS and HTTP/2 against a real nginx with a self-signed certificate.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use kendall_loadgen::arrivals::ArrivalPlan;
use kendall_loadgen::http::HttpPlan;
use kendall_loadgen::load::{Limits, LoadError, LoadPlan, PacePlan};
use kendall_loadgen::sequence::{self, SequencePlan};
use kendall_loadgen::tls::{Secure, Tls};
use kendall_loadgen::web::{self, WebPlan};
use kendall_protocols::load_result::LoadResult;
use kendall_testing::{Process, certificate, free_address};

struct Nginx {
    _process: Process,
    tls: SocketAddr,
    plain: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Nginx {
    fn start() -> Self {
        Self::start_with(10_000_000)
    }

    /// A server that says goodbye after so many requests of a connection.
    fn start_with(requests: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (tls, plain) = (free_address(), free_address());
        certificate(folder.path(), "server");
        let http = format!(
            "keepalive_requests {requests};\n\
             server {{ listen {tls} ssl http2; ssl_certificate {0}/server.pem; \
             ssl_certificate_key {0}/server.key; location / {{ return 200 $server_protocol; }} \
             location /missing {{ return 404; }} }}\n\
             server {{ listen {plain} http2; location / {{ return 200 ok; }} }}",
            folder.path().display()
        );
        let process = Process::nginx(folder.path(), &[tls, plain], &http);
        Self { _process: process, tls, plain, _folder: folder }
    }
}

fn load_plan(target: SocketAddr, pace: PacePlan) -> LoadPlan {
    LoadPlan {
        targets: vec![target],
        clients: 4,
        threads: 2,
        duration_ns: 400_000_000,
        requests: None,
        timeout_ns: 5_000_000_000,
        pace,
        seed: 3,
        spin_ns: None,
        start_at_ns: None,
        limits: Limits::default(),
    }
}

fn load(target: SocketAddr, web: &WebPlan, pace: PacePlan) -> Result<LoadResult, LoadError> {
    let plan = load_plan(target, pace);
    let template = web.content.template().unwrap();
    web::run(&plan, web, &template, &AtomicBool::new(false), &mut |_| ())
}

fn secure(http2: bool, insecure: bool) -> Secure {
    Tls { insecure, ..Tls::default() }.of("localhost", &[web::alpn(http2)]).unwrap()
}

fn plan(tls: bool, http2: bool, path: &str) -> WebPlan {
    let content = HttpPlan {
        method: "GET".to_owned(),
        path: path.to_owned(),
        authority: "localhost".to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        placeholders: Vec::new(),
        keep_alive: true,
    };
    WebPlan { content, tls: tls.then(|| secure(http2, true)), http2, connections: None }
}

#[test]
fn tls_and_http2_are_loaded_closed_and_open() {
    let nginx = Nginx::start();
    for (target, web) in [
        (nginx.tls, plan(true, false, "/")),
        (nginx.tls, plan(true, true, "/")),
        (nginx.plain, plan(false, true, "/")),
    ] {
        let closed = load(target, &web, PacePlan::Closed { think_time: None }).unwrap();
        let operation = &closed.operations["GET"];
        assert!(operation.completed > 0 && operation.errors.is_empty(), "{web:?}: {operation:?}");
        let arrivals = ArrivalPlan::Constant { rate: 100.0 };
        let open = load(target, &web, PacePlan::Open { arrivals }).unwrap();
        let operation = &open.operations["GET"];
        assert_eq!((operation.sent, operation.completed), (40, 40), "{web:?}: {operation:?}");
        assert_eq!(open.gap_check.unwrap().requests, 40);
    }
}

/// Clients that share connections, with a server that counts those that come.
#[test]
fn clients_share_connections_in_http2() {
    let nginx = Nginx::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (front, to) = (listener.local_addr().unwrap(), nginx.plain);
    let accepted = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&accepted);
    std::thread::spawn(move || {
        for mut here in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let mut there = TcpStream::connect(to).unwrap();
            let (mut answers, mut back) = (there.try_clone().unwrap(), here.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            std::thread::spawn(move || std::io::copy(&mut here, &mut there));
        }
    });
    let web = WebPlan { connections: Some(2), ..plan(false, true, "/") };
    let result = load(front, &web, PacePlan::Closed { think_time: None }).unwrap();
    let operation = &result.operations["GET"];
    assert!(operation.completed > 0 && operation.errors.is_empty(), "{operation:?}");
    assert_eq!(accepted.load(std::sync::atomic::Ordering::SeqCst), 2);
}

/// A sequence goes over each of them as it is: what the server says it speaks is taken from one reply into the next
/// request.
#[test]
fn sequences_go_over_tls_and_http2() {
    let nginx = Nginx::start();
    let text = "[[sequence]]\n[[sequence.request]]\nextract = { v = 'regex:^[a-zA-Z]+' }\n\
                [[sequence.request]]\npath = '/missing?{{v}}'\nstatus = [404]\n";
    for (target, web) in [
        (nginx.tls, plan(true, false, "/")),
        (nginx.tls, plan(true, true, "/")),
        (nginx.plain, plan(false, true, "/missing")),
    ] {
        let sequences = SequencePlan::parse(text, Path::new("one.toml"), Vec::new()).unwrap();
        let mut plan = load_plan(target, PacePlan::Closed { think_time: None });
        plan.requests = std::num::NonZeroU64::new(20);
        let stop = AtomicBool::new(false);
        let result = sequence::run(&plan, &web, sequences, &stop, &mut |_| ()).unwrap();
        // The server without TLS answers everything with 200.
        let right = if target == nginx.tls { 20 } else { 0 };
        assert_eq!(result.operations["sequence 1"].completed, right, "{web:?}");
        assert_eq!(result.steps[0].operation.completed, 20, "{web:?}");
        assert_eq!(
            (result.steps[1].operation.sent, result.steps[1].operation.completed),
            (20, right)
        );
    }
}

/// A goodbye between two requests is not an error: HTTP/2 says GOAWAY, HTTP/1.1 closes. Loads of 40
/// requests a connection and more meet it several times.
#[test]
fn a_server_that_says_goodbye_is_asked_on_a_new_connection() {
    let nginx = Nginx::start_with(7);
    for http2 in [false, true] {
        let pace = PacePlan::Open { arrivals: ArrivalPlan::Constant { rate: 400.0 } };
        let result = load(nginx.tls, &plan(true, http2, "/"), pace).unwrap();
        let operation = &result.operations["GET"];
        assert_eq!(
            (operation.sent, operation.completed, operation.errors.len()),
            (160, 160, 0),
            "HTTP/2 {http2}: {operation:?}"
        );
    }
}

/// The listener is never asked for its connections: the kernel takes them, and there is no answer.
#[test]
fn a_load_that_nobody_answers_is_rejected() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = PacePlan::Closed { think_time: None };
    let result = load(silent.local_addr().unwrap(), &plan(false, false, "/"), closed).unwrap();
    let operation = &result.operations["GET"];
    assert!(operation.completed == 0 && operation.errors.is_empty(), "{operation:?}");
    assert_eq!((operation.sent, result.unanswered.unwrap().count), (4, 4));
    assert!(result.rejections[0].text.contains("no request was answered"), "{result:?}");
}

#[test]
fn a_status_that_is_no_success_is_an_error() {
    let nginx = Nginx::start();
    let pace = PacePlan::Open { arrivals: ArrivalPlan::Constant { rate: 100.0 } };
    let result = load(nginx.tls, &plan(true, true, "/missing"), pace).unwrap();
    assert_eq!(result.operations["GET"].errors, [("status_4xx".to_owned(), 40)].into());
}

#[test]
fn a_certificate_that_nobody_signed_is_refused_unless_asked_otherwise() {
    let nginx = Nginx::start();
    let web = WebPlan { tls: Some(secure(false, false)), ..plan(true, false, "/") };
    let pace = PacePlan::Closed { think_time: None };
    assert!(matches!(load(nginx.tls, &web, pace), Err(LoadError::Connect { .. })));
}
