//! Answers that a Prometheus, or what guards it, gives instead of series.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use kendall_observe::{Authentication, Prometheus, Source as _, SourceError};

/// A server that gives these answers, each to one connection, and what comes of asking it.
fn asked(
    answers: &'static [(&'static str, &'static str)],
) -> (Result<Vec<String>, SourceError>, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut given = 0;
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
            // The one that says to stop.
            if head.next().is_none_or(|line| line.unwrap().starts_with("STOP")) {
                break;
            }
            while head.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let length = body.len();
            let close = "content-type: application/json\r\nconnection: close\r\ncontent-length:";
            write!(stream, "HTTP/1.1 {status}\r\n{close} {length}\r\n\r\n{body}").unwrap();
            given += 1;
        }
        given
    });
    let names = Prometheus::new(&url, &Authentication::None).metric_names();
    if let Ok(mut stream) = std::net::TcpStream::connect(url.trim_start_matches("http://")) {
        // After all answers the server no longer reads it.
        drop(stream.write_all(b"STOP\r\n"));
    }
    (names, server.join().unwrap())
}

#[test]
fn an_answer_in_json_is_tried_again_where_the_server_had_no_time() {
    const BUSY: (&str, &str) =
        ("503 Service Unavailable", r#"{"status":"error","error":"not ready"}"#);
    const NAMES: (&str, &str) = ("200 OK", r#"{"status":"success","data":["up"]}"#);
    let (found, given) = asked(&[BUSY, NAMES]);
    assert_eq!((found.unwrap(), given), (vec!["up".to_owned()], 2));
    // No time at all: its own words.
    let (found, given) = asked(&[BUSY, BUSY, BUSY, NAMES]);
    let said = found.unwrap_err().to_string();
    assert!(said.contains("not ready") && given == 3, "{said} after {given}");
}

/// A query that took too long takes as long again, and the server has no time for it.
#[test]
fn a_query_that_timed_out_is_asked_once() {
    const LATE: (&str, &str) = (
        "503 Service Unavailable",
        r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#,
    );
    let (found, given) = asked(&[LATE, LATE, LATE]);
    let said = found.unwrap_err().to_string();
    assert!(said.contains("query timed out") && given == 1, "{said} after {given}");
}

#[test]
fn a_refusal_in_json_says_that_a_name_is_missing() {
    let said =
        asked(&[("401 Unauthorized", r#"{"message":"who are you"}"#)]).0.unwrap_err().to_string();
    assert!(said.contains("401") && said.contains("--basic-file"), "{said}");
}

/// A question that follows to elsewhere would arrive without its form, and be refused for an empty query.
#[test]
fn a_server_that_sends_elsewhere_is_said_to_and_not_followed() {
    const MOVED: (&str, &str) = ("302 Found\r\nlocation: https://prom.example/api/v1/x", "{}");
    let (found, given) = asked(&[MOVED, MOVED]);
    let said = found.unwrap_err().to_string();
    assert!(said.contains("302 (`https://prom.example/api/v1/x`)") && given == 1, "{said}");
}

/// Each kind of credentials arrives as its standard says (RFC 7617, RFC 6750); without any, no header does.
#[test]
fn credentials_are_sent_with_each_question() {
    let basic = Authentication::Basic { user: "me".to_owned(), password: "secret".to_owned() };
    let cases = [
        (basic, Some("Basic bWU6c2VjcmV0")),
        (Authentication::Bearer("a.b-c".to_owned()), Some("Bearer a.b-c")),
        (Authentication::None, None),
    ];
    for (credentials, expected) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let head = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> =
                head.map(Result::unwrap).take_while(|l| !l.is_empty()).collect();
            let body = r#"{"status":"success","data":["up"]}"#;
            let close = "content-type: application/json\r\nconnection: close\r\ncontent-length:";
            write!(stream, "HTTP/1.1 200 OK\r\n{close} {}\r\n\r\n{body}", body.len()).unwrap();
            head.iter().find_map(|line| {
                let (key, value) = line.split_once(": ")?;
                key.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
            })
        });
        assert_eq!(Prometheus::new(&url, &credentials).metric_names().unwrap(), ["up"]);
        assert_eq!(server.join().unwrap().as_deref(), expected);
    }
}
