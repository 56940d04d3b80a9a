//! Servers of HTTP/1.1, HTTP/2 and memcached that break off, lie about lengths, or never end.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kendall_loadgen::http::{Http, HttpPlan};
use kendall_loadgen::load;
use kendall_loadgen::memcached::{
    KeyChoice, Keyspace, KeyspacePlan, Memcached, MemcachedPlan, Size, parse_mix, prefill,
};
use kendall_loadgen::random::{Purpose, stream};
use kendall_loadgen::sequence::{self, SequencePlan};
use kendall_loadgen::web::{self, WebPlan};
use kendall_protocols::load_result::LoadResult;

use crate::hostile::{End, Hostile, Then, frame, goodbye, http2, kinds, plan};

const CUT: [&str; 2] = ["connection_closed", "connection_reset"];

fn content(target: SocketAddr) -> HttpPlan {
    HttpPlan {
        method: "GET".to_owned(),
        path: "/".to_owned(),
        authority: target.to_string(),
        headers: Vec::new(),
        body: Vec::new(),
        placeholders: Vec::new(),
        keep_alive: true,
    }
}

fn of_http(target: SocketAddr, timeout_ms: u64) -> LoadResult {
    let plan = plan(target, 3, 1, Duration::from_millis(timeout_ms));
    let content = content(target);
    let template = content.template().unwrap();
    let driver = |thread| Http::new(&content, &template, stream(1, Purpose::Requests, thread));
    load::run("http", &plan, &driver, &AtomicBool::new(false), &mut |_| ()).unwrap()
}

fn keyspace() -> Keyspace {
    let (keys, choice) = (3, KeyChoice::Fixed);
    let (key_size, value_size) = (Size::Fixed(16), Size::Fixed(16));
    Keyspace::new(KeyspacePlan { keys, key_size, value_size, choice, seed: 1 }).unwrap()
}

fn gets() -> MemcachedPlan {
    MemcachedPlan {
        mix: parse_mix("get=1", 1).unwrap(),
        keys_per_multi_get: 1,
        expected_misses: 0.0,
        verify: false,
        expiry_s: 0,
        secure: None,
    }
}

fn of_memcached(target: SocketAddr, timeout_ms: u64) -> LoadResult {
    let plan = plan(target, 3, 1, Duration::from_millis(timeout_ms));
    let (keyspace, gets) = (keyspace(), gets());
    let driver = |thread| Memcached::new(&keyspace, &gets, stream(1, Purpose::Requests, thread));
    load::run("memcached", &plan, &driver, &AtomicBool::new(false), &mut |_| ()).unwrap()
}

fn completed(result: &LoadResult) -> u64 {
    result.operations.values().map(|operation| operation.completed).sum()
}

/// The kinds of errors of a load of which nothing succeeds.
fn failed(result: &LoadResult) -> Vec<String> {
    assert_eq!(completed(result), 0, "{:?}", result.operations);
    kinds(result)
}

/// An answer that is cut at each byte, or after which nothing more comes.
fn is_counted_wherever_it_is_cut(answer: &[u8], load: fn(SocketAddr, u64) -> LoadResult) {
    let whole = Hostile::start(&[answer; 3], usize::MAX, &End::Silence);
    assert_eq!(completed(&load(whole.address, 10_000)), 3);
    for bytes in 0..answer.len() {
        for end in [End::Close, End::Reset] {
            let server = Hostile::start(&[answer], bytes, &end);
            let kinds = failed(&load(server.address, 10_000));
            let fits = |kind: &String| CUT.contains(&kind.as_str());
            assert!(!kinds.is_empty() && kinds.iter().all(fits), "{bytes} {end:?}: {kinds:?}");
        }
    }
    for bytes in [0, answer.len() / 2, answer.len() - 1] {
        let server = Hostile::start(&[answer], bytes, &End::Silence);
        assert_eq!(failed(&load(server.address, 50)), ["timed_out"], "{bytes}");
    }
}

#[test]
fn answers_of_http_and_memcached_may_be_cut_anywhere() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    is_counted_wherever_it_is_cut(chunked, of_http);
    let counted = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    is_counted_wherever_it_is_cut(counted, of_http);
    is_counted_wherever_it_is_cut(b"VALUE key 0 5\r\nhello\r\nEND\r\n", of_memcached);
}

#[test]
fn lengths_that_are_wrong_and_answers_without_end_are_counted_by_kind() {
    let endless = |bytes: &[u8]| End::Forever(bytes.repeat(1_024));
    let head = "HTTP/1.1 200 OK\r\n";
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
    let cases: &[(String, End, &str)] = &[
        (format!("{head}Content-Length: 1\r\n\r\nok"), End::Silence, "garbage"),
        (format!("{head}Content-Length: 3\r\n\r\nok"), End::Silence, "timed_out"),
        (format!("{head}Content-Length: x\r\n\r\nok"), End::Silence, "garbage"),
        (format!("{head}Content-Length: 99999999999\r\n\r\n"), endless(b"x"), "timed_out"),
        (chunked.clone(), endless(b"2\r\nok\r\n"), "timed_out"),
        (format!("{chunked}ffffffffffffffffff\r\n"), endless(b"x"), "garbage"),
        (format!("{chunked}2\r\noko"), End::Silence, "garbage"),
        (head.to_owned(), endless(b"A: b\r\n"), "garbage"),
        (String::new(), endless(b"x"), "garbage"),
        ("VALUE k 0 5\r\nhello\r\nEND\r\n".to_owned(), End::Silence, "garbage"),
    ];
    for (answer, end, expected) in cases {
        let limit = if *expected == "timed_out" { 50 } else { 10_000 };
        // What comes forever comes behind the first answer.
        let times = if matches!(end, End::Forever(_)) { 1 } else { 3 };
        let server = Hostile::start(&vec![answer.as_bytes(); times], usize::MAX, end);
        assert_eq!(failed(&of_http(server.address, limit)), [*expected], "HTTP: {answer:?}");
    }
    let cases: &[(&[u8], End, &str)] = &[
        (b"VALUE key 0 1\r\ntoo long\r\nEND\r\n", End::Silence, "garbage"),
        (b"VALUE key 0 9\r\nshort\r\nEND\r\n", End::Silence, "garbage"),
        (b"VALUE key 0 99999999999\r\n", End::Silence, "garbage"),
        (b"VALUE key 0 1073741824\r\n", endless(b"x"), "timed_out"),
        (b"", endless(b"VALUE key 0 1\r\nx\r\n"), "garbage"),
        (b"", endless(b"x"), "garbage"),
        (b"END\r\nEND\r\n", End::Silence, "garbage"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", End::Silence, "garbage"),
        (b"ERROR\r\n", End::Silence, "unknown_command"),
        (b"SERVER_ERROR out of memory\r\n", End::Silence, "server_error"),
    ];
    for (answer, end, expected) in cases {
        let limit = if *expected == "timed_out" { 50 } else { 10_000 };
        let times = if matches!(end, End::Forever(_)) { 1 } else { 3 };
        let server = Hostile::start(&vec![*answer; times], usize::MAX, end);
        let text = String::from_utf8_lossy(answer);
        assert_eq!(failed(&of_memcached(server.address, limit)), [*expected], "memcached: {text}");
    }
}

#[test]
fn keys_that_could_not_be_stored_are_told() {
    let stored = b"STORED\r\nSTORED\r\nSTORED\r\n";
    let fill = |answer: &[u8], bytes, end: &End| {
        let server = Hostile::start(&[answer], bytes, end);
        let limit = Duration::from_millis(if matches!(end, End::Close) { 10_000 } else { 100 });
        prefill(server.address, &keyspace(), &gets(), limit, &|| false)
    };
    for bytes in 0..stored.len() {
        assert!(fill(stored, bytes, &End::Close).is_err(), "{bytes}");
    }
    assert_eq!(fill(stored, usize::MAX, &End::Silence).unwrap(), 3);
    for (answer, end) in [
        (&b"STORED\r\n"[..], End::Silence),
        (b"SERVER_ERROR out of memory\r\n", End::Silence),
        (b"", End::Forever(b"x".repeat(1_024))),
    ] {
        assert!(fill(answer, usize::MAX, &end).is_err(), "{answer:?}");
    }
}

fn plan_of_http2(target: SocketAddr) -> WebPlan {
    let content = content(target);
    WebPlan { content, tls: None, http2: true, connections: Some(1) }
}

/// So many requests over HTTP/2 by clients that share a connection.
fn of_http2(target: SocketAddr, (requests, clients): (u64, usize), timeout_ms: u64) -> LoadResult {
    let plan = plan(target, requests, clients, Duration::from_millis(timeout_ms));
    let web = plan_of_http2(target);
    let template = web.content.template().unwrap();
    web::run(&plan, &web, &template, &AtomicBool::new(false), &mut |_| ()).unwrap()
}

/// A status of 200 and two bytes.
fn answer(stream: u32) -> Vec<u8> {
    [frame(1, 4, stream, &[0x88]), frame(0, 1, stream, b"ok")].concat()
}

#[test]
fn answers_of_http2_may_be_cut_anywhere_and_be_wrong() {
    let kinds = |answer: &dyn Fn(u32) -> Vec<u8>, then, timeout_ms| {
        let bytes = answer(1);
        let server = http2(move |_, _| Some((bytes.clone(), then)));
        failed(&of_http2(server, (1, 1), timeout_ms))
    };
    let whole = http2(|_, stream| Some((answer(stream), Then::Silence)));
    assert_eq!(completed(&of_http2(whole, (9, 3), 10_000)), 9);
    let length = answer(1).len();
    for bytes in 0..length {
        for then in [Then::Close, Then::Reset] {
            let kinds = kinds(&|stream| answer(stream)[..bytes].to_vec(), then, 10_000);
            assert!(kinds.len() == 1 && CUT.contains(&kinds[0].as_str()), "{bytes}: {kinds:?}");
        }
    }
    for bytes in [0, 10, length - 1] {
        let cut = |stream| answer(stream)[..bytes].to_vec();
        assert_eq!(kinds(&cut, Then::Silence, 50), ["timed_out"]);
    }
    // A length of 5 for two bytes, a frame beyond what is taken, a status that is none, no frames at all.
    let announced = |stream| {
        [frame(1, 4, stream, &[0x88, 0x0f, 0x0d, 1, b'5']), frame(0, 1, stream, b"ok")].concat()
    };
    assert_eq!(kinds(&announced, Then::Silence, 10_000), ["garbage"]);
    let wrong: [&dyn Fn(u32) -> Vec<u8>; 4] = [
        &|stream| [frame(1, 4, stream, &[0x88]), frame(0, 1, stream, &[0; 20_000])].concat(),
        &|stream| frame(1, 5, stream, &[0xff, 0xff, 0xff]),
        &|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(9),
        &|_| frame(1, 5, 98, &[0x88]),
    ];
    for (number, answer) in wrong.iter().enumerate() {
        assert_eq!(kinds(answer, Then::Silence, 10_000), ["garbage"], "{number}");
    }
    let endless = kinds(&|stream| frame(1, 4, stream, &[0x88]), Then::Forever, 300);
    assert!(endless == ["timed_out"] || endless == ["garbage"], "{endless:?}");
    let reset = kinds(&|stream| frame(3, 0, stream, &[0, 0, 0, 2]), Then::Silence, 10_000);
    assert_eq!(reset, ["stream_reset"]);
}

/// What a server that leaves did not take is asked of the next connection, by sequences too.
#[test]
fn requests_that_a_leaving_server_did_not_take_are_sent_anew() {
    let leaves = || {
        http2(|connection, stream| match (connection, stream) {
            (0, ..=3) => None,
            (0, 5) => {
                Some(([answer(1), goodbye(1, 0), frame(3, 0, 1, &[0; 4])].concat(), Then::Silence))
            }
            _ => Some((answer(stream), Then::Silence)),
        })
    };
    let result = of_http2(leaves(), (9, 3), 10_000);
    assert_eq!((completed(&result), result.sent_anew), (9, 2), "{:?}", result.operations);
    let text = "[[sequence]]\n[[sequence.request]]\n[[sequence.request]]\n";
    let sequences = SequencePlan::parse(text, Path::new("file"), Vec::new()).unwrap();
    let server = leaves();
    let (plan, web) = (plan(server, 6, 3, Duration::from_secs(10)), plan_of_http2(server));
    let result =
        sequence::run(&plan, &web, sequences, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!((completed(&result), result.sent_anew), (6, 2), "{:?}", result.operations);
    let always = http2(|_, _| Some((goodbye(0, 0), Then::Close)));
    let result = of_http2(always, (1, 1), 10_000);
    assert_eq!((failed(&result), result.sent_anew), (vec!["not_taken".to_owned()], 2));
}
