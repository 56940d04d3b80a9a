//! Does the load measure what is there? Small servers with a known behavior: the numbers must say
//! so. What is compared is what the server itself saw, so that a busy machine fails nothing.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

mod servers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use kendall_loadgen::arrivals::ArrivalPlan;
use kendall_loadgen::http::{Http, HttpPlan};
use kendall_loadgen::load::{self, Limits, LoadPlan, PacePlan};
use kendall_loadgen::random::{Purpose, stream};
use kendall_protocols::load_result::{LoadResult, Operation};
use kendall_stats::histogram::Histogram;
use servers::{Behavior, Server};

const MILLISECOND_NS: u64 = 1_000_000;

fn plan(target: SocketAddr, duration_ms: u64, pace: PacePlan) -> LoadPlan {
    LoadPlan {
        targets: vec![target],
        clients: 16,
        threads: 2,
        duration_ns: duration_ms * MILLISECOND_NS,
        requests: None,
        timeout_ns: 200 * MILLISECOND_NS,
        pace,
        seed: 7,
        spin_ns: None,
        start_at_ns: None,
        limits: Limits::default(),
    }
}

fn content() -> HttpPlan {
    HttpPlan {
        method: "GET".to_owned(),
        path: "/".to_owned(),
        authority: "test".to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        placeholders: Vec::new(),
        keep_alive: true,
    }
}

fn load(plan: &LoadPlan) -> LoadResult {
    let content = content();
    let template = content.template().unwrap();
    let driver =
        |thread| Http::new(&content, &template, stream(plan.seed, Purpose::Requests, thread));
    load::run("http", plan, &driver, &AtomicBool::new(false), &mut |_| ()).unwrap()
}

fn closed() -> PacePlan {
    PacePlan::Closed { think_time: None }
}

fn errors(result: &LoadResult) -> Vec<&str> {
    result.operations["GET"].errors.keys().map(String::as_str).collect()
}

#[test]
fn counts_agree_with_the_server_and_windows_with_the_total() {
    let server = Server::start(Behavior::Answer);
    let mut plan = plan(server.address(), 1_300, closed());
    plan.timeout_ns = 5_000 * MILLISECOND_NS;
    let result = load(&plan);
    let operation = &result.operations["GET"];
    assert!(operation.completed > 0 && operation.errors.is_empty(), "{operation:?}");
    assert!(operation.sent - operation.completed <= 16, "one in flight a client at the end");
    let arrived = server.stop().arrivals.len() as u64;
    assert!((operation.completed..=operation.sent).contains(&arrived), "{arrived} {operation:?}");
    assert_eq!(result.windows.len(), 2);
    let in_windows: u64 =
        result.windows.iter().map(|window| window.operations["GET"].completed).sum();
    // A reply that came with the last events may be after the end.
    let drained = result.drained.get("GET").map_or(0, |operation| operation.completed);
    assert_eq!(in_windows + drained, operation.completed);
    let histogram = Histogram::decode(&operation.response_time.0).unwrap();
    assert_eq!(histogram.count(), operation.completed);
}

#[test]
fn a_delay_of_the_server_is_in_every_response_time() {
    let server = Server::start(Behavior::Delay { nanoseconds: 3 * MILLISECOND_NS });
    let pace = PacePlan::Open { arrivals: ArrivalPlan::Poisson { rate: 300.0 } };
    let result = load(&plan(server.address(), 700, pace));
    let histogram = Histogram::decode(&result.operations["GET"].response_time.0).unwrap();
    // Never below what the server waited, less the histogram's three digits.
    assert!(histogram.min().unwrap() >= 2_997_000, "{:?}", histogram.min());
    // What the server saw from arrival to answer is a part of the response time.
    assert!(server.stop().mean_served_ns() <= histogram.mean().unwrap() * 1.001);
}

/// 16 connections, 200 arrivals in the 200 ms during which the server does not answer: nearly all
/// wait for a connection, and their response times must count from when they were due. The server
/// writes down when it was silent, so the truth is known whatever the machine did meanwhile.
#[test]
fn a_stall_is_not_hidden_from_the_arrivals_that_it_kept_waiting() {
    let server = Server::start(Behavior::Stall { after: 200, nanoseconds: 150 * MILLISECOND_NS });
    let pace = PacePlan::Open { arrivals: ArrivalPlan::Constant { rate: 1_000.0 } };
    let mut plan = plan(server.address(), 800, pace);
    plan.threads = 1;
    plan.timeout_ns = 5_000 * MILLISECOND_NS;
    let result = load(&plan);
    let seen = server.stop();
    let (from, to) = seen.stall.unwrap();
    let operation = &result.operations["GET"];
    assert_eq!((operation.sent, operation.completed), (800, 800), "{operation:?}");
    let histogram = Histogram::decode(&operation.response_time.0).unwrap();
    for share in [0.25, 0.5, 0.75] {
        // Those due in the first `share` of the stall wait for the rest of it at least.
        let length = kendall_units::exact_f64(to - from);
        let wait = kendall_units::whole_u64(length * (1.0 - share));
        let due = (0..800_u64)
            .map(|index| result.started_ns + index * MILLISECOND_NS)
            .filter(|due| *due >= from && to.saturating_sub(*due) >= wait)
            .count() as u64;
        let slow: u64 = histogram.cells().filter(|cell| cell.1 >= wait).map(|cell| cell.2).sum();
        assert!(slow >= due && due > 0, "{slow} of {due} waited {wait} ns");
    }
    let waited = Histogram::decode(&result.connection_wait.0).unwrap();
    assert!(waited.count() > 0);
    assert!(result.caveats.iter().any(|caveat| caveat.text.contains("waited for one of the 16")));
}

#[test]
fn arrivals_that_were_never_sent_are_told() {
    let server = Server::start(Behavior::Delay { nanoseconds: 50 * MILLISECOND_NS });
    let pace = PacePlan::Open { arrivals: ArrivalPlan::Constant { rate: 4_000.0 } };
    // 16 connections of 50 ms each carry at most 320/s; 200 ms after the end are not enough.
    let result = load(&plan(server.address(), 500, pace));
    assert!(result.unsent > 0);
    let said = result.rejections.iter().chain(&result.caveats);
    assert!(said.into_iter().any(|why| why.text.contains("no free connection")), "{result:?}");
    assert_eq!(result.operations["GET"].sent + result.unsent, 2_000);
}

/// Both engines' rule is the same; this one is the event loop's. Every request is answered, and not
/// one more is sent, however the threads share them.
#[test]
fn a_stated_number_of_requests_ends_the_load() {
    for (requests, threads) in [(1, 2), (101, 2), (500, 1)] {
        let server = Server::start(Behavior::Answer);
        let mut plan = plan(server.address(), 60_000, closed());
        plan.requests = std::num::NonZeroU64::new(requests);
        plan.threads = threads;
        plan.timeout_ns = 5_000 * MILLISECOND_NS;
        let result = load(&plan);
        let operation = &result.operations["GET"];
        assert_eq!((operation.sent, operation.completed), (requests, requests), "{operation:?}");
        assert_eq!(server.stop().arrivals.len() as u64, requests);
        assert_eq!(result.statuses, [(200, requests)].into());
        assert!(result.ended_ns - result.started_ns < 30_000 * MILLISECOND_NS);
    }
}

/// A closed loop before a server that stood still for 150 ms: its percentiles hold 16 slow requests,
/// the result says how long nothing completed.
#[test]
fn a_closed_loop_says_that_it_hides_a_stall() {
    let server = Server::start(Behavior::Stall { after: 200, nanoseconds: 150 * MILLISECOND_NS });
    let mut plan = plan(server.address(), 800, closed());
    plan.timeout_ns = 5_000 * MILLISECOND_NS;
    let result = load(&plan);
    let (from, to) = server.stop().stall.unwrap();
    let stalls = result.stalls.unwrap();
    // What the server saw of its own stall is a part of what the clients waited, to three digits.
    let length = kendall_units::exact_f64(to - from) * 0.999;
    assert!(kendall_units::exact_f64(stalls.longest_ns) >= length, "{stalls:?}");
    assert!(stalls.share >= length / 800e6 * 0.99, "{stalls:?}");
    assert!(
        result.caveats.iter().any(|why| why.text.contains("nothing completed for")),
        "{result:?}"
    );
}

/// Half of the clients wait to the end for an answer that never comes, which before the time-out is
/// no error, and the others leave no silence: the result says how many, and for how long.
#[test]
fn clients_that_are_never_answered_are_told() {
    let server = Server::start(Behavior::Forget { from: 17, below: 25 });
    let mut plan = plan(server.address(), 1_500, closed());
    plan.timeout_ns = 5_000 * MILLISECOND_NS;
    let result = load(&plan);
    server.stop();
    let operation = &result.operations["GET"];
    assert!(operation.completed > 0 && operation.errors.is_empty(), "{operation:?}");
    let waiting = result.unanswered.unwrap();
    assert_eq!(waiting.count, 8, "{waiting:?}");
    assert!(waiting.longest_ns > 2 * waiting.slowest_answered_ns, "{waiting:?}");
    assert!(result.rejections.is_empty(), "{result:?}");
    assert!(
        result.caveats.iter().any(|why| why.text.contains("8 requests waited for an answer")),
        "{result:?}"
    );
}

/// Neither an answer nor, before the time-out, an error: that is no result.
#[test]
fn a_load_that_nobody_answers_is_rejected() {
    let server = Server::start(Behavior::Silent);
    let mut plan = plan(server.address(), 300, closed());
    plan.timeout_ns = 5_000 * MILLISECOND_NS;
    let result = load(&plan);
    server.stop();
    let operation = &result.operations["GET"];
    assert!(operation.completed == 0 && operation.errors.is_empty(), "{operation:?}");
    assert_eq!(result.unanswered.unwrap().count, operation.sent);
    assert!(result.rejections[0].text.contains("no request was answered"), "{result:?}");
}

/// A station that is slower than the arrivals: what it answers after the end was not answered in
/// the last second, or the throughput of any overload would be the rate that was offered.
#[test]
fn what_is_answered_after_the_end_is_in_no_window() {
    let server = Server::start(Behavior::Delay { nanoseconds: 400 * MILLISECOND_NS });
    let pace = PacePlan::Open { arrivals: ArrivalPlan::Constant { rate: 100.0 } };
    let mut plan = plan(server.address(), 1_000, pace);
    plan.clients = 200;
    plan.timeout_ns = 5_000 * MILLISECOND_NS;
    let result = load(&plan);
    let completed = |operations: &BTreeMap<String, Operation>| {
        operations.get("GET").map_or(0, |operation| operation.completed)
    };
    let inside: u64 = result.windows.iter().map(|window| completed(&window.operations)).sum();
    let drained = completed(&result.drained);
    assert_eq!((result.windows.len(), completed(&result.operations)), (1, 100));
    assert_eq!(inside + drained, 100);
    // Those of the last 0.4 s could not be answered before the end, whatever the machine did.
    assert!(drained >= 40, "{drained} after the end, {inside} before it");
    assert!(result.windows[0].to_ns <= result.ended_ns);
}

#[test]
fn the_schedule_reaches_the_server_whole() {
    let server = Server::start(Behavior::Answer);
    let pace = PacePlan::Open { arrivals: ArrivalPlan::Poisson { rate: 2_000.0 } };
    let mut plan = plan(server.address(), 1_000, pace);
    plan.timeout_ns = 5_000 * MILLISECOND_NS;
    let result = load(&plan);
    let seen = server.stop();
    assert_eq!(result.operations["GET"].sent, seen.arrivals.len() as u64);
    let check = result.gap_check.unwrap();
    assert_eq!(check.requests, seen.arrivals.len() as u64);
    assert!((check.planned_rate_per_s / 2_000.0 - 1.0).abs() < 4.0 / 2_000_f64.sqrt());
}

#[test]
fn hostile_servers_are_errors_by_kind() {
    let cases: &[(Behavior, &[&str])] = &[
        (Behavior::Say(b"\x00\xff\x80 noise without end of line".repeat(4_000)), &["garbage"]),
        (Behavior::Say(b"VALUE x 0 5\r\nhello\r\nEND\r\n\r\n".to_vec()), &["garbage"]),
        (Behavior::Say(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec()), &["status_5xx"]),
        (Behavior::Silent, &["timed_out"]),
        (Behavior::SayAndWait(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()), &["timed_out"]),
        (
            Behavior::SayAndClose(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec()),
            &["connection_closed", "connection_reset"],
        ),
        (Behavior::SayAndClose(Vec::new()), &["connection_closed", "connection_reset"]),
    ];
    for (behavior, expected) in cases {
        let server = Server::start(behavior.clone());
        for pace in [closed(), PacePlan::Open { arrivals: ArrivalPlan::Poisson { rate: 200.0 } }] {
            let result = load(&plan(server.address(), 300, pace));
            let operation = &result.operations["GET"];
            assert_eq!(operation.completed, 0, "{behavior:?}: {operation:?}");
            let kinds = errors(&result);
            assert!(!kinds.is_empty(), "{behavior:?}");
            assert!(kinds.iter().all(|kind| expected.contains(kind)), "{behavior:?}: {kinds:?}");
        }
        server.stop();
    }
}

#[test]
fn a_server_that_dies_under_load_is_tried_again_at_a_bounded_pace() {
    let server = Server::start(Behavior::DieAfter { requests: 500 });
    let result = load(&plan(server.address(), 700, closed()));
    let operation = &result.operations["GET"];
    assert!(operation.completed >= 400, "{operation:?}");
    let failed: u64 = operation.errors.values().sum();
    // Pauses double from 1 ms: at most ten attempts of each of 16 clients in 700 ms, and what was
    // in flight.
    assert!(failed > 0 && failed <= 16 * 12, "{operation:?}");
    assert!(operation.errors.contains_key("connect_failed"), "{operation:?}");
    server.stop();
}

#[test]
fn a_server_that_is_not_there_is_an_error_before_the_load() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let content = content();
    let template = content.template().unwrap();
    let driver = |thread| Http::new(&content, &template, stream(1, Purpose::Requests, thread));
    let plan = plan(address, 300, closed());
    let error =
        load::run("http", &plan, &driver, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}
