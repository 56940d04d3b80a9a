//! A real synthetic tier on loopback. No upper bound of a time is asserted.
#![expect(clippy::unwrap_used, reason = "a test that fails shall say where")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use kendall_stats::histogram::Histogram;
use kendall_synthetic::{Limits, Synthetic, SyntheticError, SyntheticOptions};
use kendall_testing::wait_until;
use kendall_tier::distribution::{Distribution, Unit};
use kendall_tier::{Clock, Instruments, Stop};

const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    instruments: Instruments,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), SyntheticError>>>,
}

impl Running {
    fn start(service: &str, servers: u32, limits: Limits) -> Self {
        let options = SyntheticOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            service_time: Distribution::parse(service, Unit::Time).unwrap(),
            servers,
            seed: 5,
            run: 0,
            limits,
        };
        let tier = Synthetic::bind(&options).unwrap();
        let (address, instruments, stop) = (tier.address(), tier.instruments(), Stop::new());
        let asked = stop.clone();
        let thread = Some(std::thread::spawn(move || tier.run(&asked)));
        Self { address, instruments, stop, thread }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// An answer is counted once it was written, which its reader may see first.
    fn until_counted(&self, completions: u64) {
        wait_until("all answers to be counted", || {
            self.instruments.snapshot().requests["request"].completions >= completions
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.request();
        let outcome = self.thread.take().unwrap().join().unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

/// Reads one answer: status and body.
fn answer(stream: &mut impl Read) -> (u16, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head[9..12].parse().unwrap(), String::from_utf8(body).unwrap())
}

/// The number behind `key` in a flat JSON object.
fn number(body: &str, key: &str) -> u64 {
    let rest = body.split(&format!("\"{key}\":")).nth(1).unwrap();
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn an_answer_leaves_no_earlier_than_its_service_ends() {
    let tier = Running::start("exponential:1ms", 1, Limits::default());
    let mut stream = tier.connect();
    let clock = Clock::monotonic();
    for _ in 0..100 {
        let sent_ns = clock.now_ns();
        stream.write_all(GET).unwrap();
        let (status, body) = answer(&mut stream);
        let took_ns = clock.now_ns() - sent_ns;
        assert_eq!((status, number(&body, "waiting_time_ns")), (200, 0));
        assert!(took_ns >= number(&body, "service_time_ns"));
    }
    tier.until_counted(100);
    let snapshot = tier.instruments.snapshot();
    let request = &snapshot.requests["request"];
    assert_eq!((request.arrivals, request.completions), (100, 100));
    let service = Histogram::decode(&request.stages["service_time"].0).unwrap();
    assert_eq!(service.count(), 100);
}

#[test]
fn one_server_serves_one_after_the_other_and_two_serve_two() {
    let clock = Clock::monotonic();
    for (servers, least_ns) in [(1, 40_000_000), (2, 20_000_000)] {
        let tier = Running::start("10ms", servers, Limits::default());
        let begun_ns = clock.now_ns();
        let mut streams: Vec<_> = (0..4).map(|_| tier.connect()).collect();
        for stream in &mut streams {
            stream.write_all(GET).unwrap();
        }
        let mut waited: Vec<u64> =
            streams.iter_mut().map(|stream| number(&answer(stream).1, "waiting_time_ns")).collect();
        assert!(clock.now_ns() - begun_ns >= least_ns);
        waited.sort_unstable();
        assert_eq!(waited[0], 0);
        assert!(waited[3] <= 30_000_000, "the last waits for three services at most: {waited:?}");
        let snapshot = tier.instruments.snapshot();
        assert!(snapshot.workers_busy.maximum <= u64::from(servers));
    }
}

/// A visit that takes a server whose last answer has yet to leave was counted beside that one.
#[test]
fn no_more_servers_are_busy_than_there_are() {
    let tier = Running::start("0.000001ms", 2, Limits::default());
    let mut stream = tier.connect();
    stream.write_all(&GET.repeat(50)).unwrap();
    assert!((0..50).all(|_| answer(&mut stream).0 == 200));
    tier.until_counted(50);
    let busy = tier.instruments.snapshot().workers_busy;
    assert!(busy.current == 0 && busy.maximum <= 2, "{busy:?}");
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let tier = Running::start("uniform:0ms..3ms", 8, Limits::default());
    let mut stream = tier.connect();
    let health = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut writing = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        for _ in 0..300 {
            writing.write_all(GET).unwrap();
            for part in health.chunks(7) {
                writing.write_all(part).unwrap();
            }
        }
        writing.shutdown(Shutdown::Write).unwrap();
    });
    for _ in 0..300 {
        assert!(answer(&mut stream).1.contains("service_time_ns"));
        assert_eq!(answer(&mut stream).1, r#"{"ready":true}"#);
    }
    writer.join().unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the tier closes when all is answered");
}

#[test]
fn a_full_queue_is_answered_with_503() {
    let tier = Running::start("100ms", 1, Limits { waiting: 2, ..Limits::default() });
    let mut stream = tier.connect();
    stream.write_all(&GET.repeat(6)).unwrap(); // one piece, which is read at once
    let statuses: Vec<u16> = (0..6).map(|_| answer(&mut stream).0).collect();
    assert_eq!(statuses, [200, 200, 200, 503, 503, 503]);
    assert_eq!(tier.instruments.snapshot().limits_hit["queue"], 3);
}

#[test]
fn where_nobody_may_wait_a_free_server_serves() {
    let tier = Running::start("100ms", 1, Limits { waiting: 0, ..Limits::default() });
    let mut stream = tier.connect();
    stream.write_all(&GET.repeat(2)).unwrap(); // one piece, which is read at once
    assert_eq!([0; 2].map(|_| answer(&mut stream).0), [200, 503]);
    stream.write_all(GET).unwrap();
    assert_eq!(answer(&mut stream).0, 200);
}

#[test]
fn hostile_bytes_close_one_connection_and_harm_no_other() {
    let tier = Running::start("1ms", 1, Limits::default());
    let mut good = tier.connect();
    let endless = [b"GET / HTTP/1.1\r\n".to_vec(), b"a: b\r\n".repeat(10_000)].concat();
    let cases: [&[u8]; 5] =
        [b"\x00\xff\x16\x03\x01\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &endless, b"G", b""];
    for bytes in cases {
        let mut bad = tier.connect();
        bad.write_all(bytes).unwrap_or_default();
        bad.shutdown(Shutdown::Write).unwrap_or_default();
        let mut rest = Vec::new();
        bad.read_to_end(&mut rest).unwrap_or_default(); // a reset is an answer, too
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"), "{bytes:?}");
        good.write_all(GET).unwrap();
        assert_eq!(answer(&mut good).0, 200);
    }
}

#[test]
fn a_connection_beyond_the_bound_is_closed_and_counted() {
    let tier = Running::start("1ms", 1, Limits { connections: 1, ..Limits::default() });
    let mut first = tier.connect();
    first.write_all(GET).unwrap();
    assert_eq!(answer(&mut first).0, 200);
    assert!(matches!(tier.connect().read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(tier.instruments.snapshot().limits_hit["connections"], 1);
}

#[test]
fn a_graceful_stop_answers_what_was_accepted() {
    let tier = Running::start("100ms", 1, Limits::default());
    let mut stream = tier.connect();
    stream.write_all(GET).unwrap();
    wait_until("the request to arrive", || {
        tier.instruments.snapshot().requests["request"].arrivals > 0
    });
    drop(tier);
    assert_eq!(answer(&mut stream).0, 200);
}

#[test]
fn a_graceful_stop_refuses_what_it_has_no_time_for() {
    let stop = Duration::from_millis(500);
    let tier = Running::start("constant:1h", 1, Limits { stop, ..Limits::default() });
    let mut stream = tier.connect();
    stream.write_all(&GET.repeat(2)).unwrap();
    wait_until("the requests to arrive", || {
        tier.instruments.snapshot().requests["request"].arrivals == 2
    });
    let instruments = tier.instruments.clone();
    drop(tier);
    assert_eq!([0; 2].map(|_| answer(&mut stream).0), [503, 503]);
    assert_eq!(instruments.snapshot().outcomes["stopping"], 2);
}
