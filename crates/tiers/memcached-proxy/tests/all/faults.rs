//! Servers that die, stop and come back: bounded waits, clear errors, and no answer that belongs
//! to another request.

use std::io::{BufRead as _, BufReader, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kendall_memcached_proxy::{Mode, Options};

use crate::common::{self, Client, MODES, Memcached, Running, options, with};

fn quick(servers: &[&Memcached], mode: Mode) -> Options {
    with(options(servers, mode), |pool| {
        pool.timeout = Duration::from_millis(200);
        pool.probe_every = Duration::from_millis(50);
    })
}

/// A server that closes the first connection on which it is asked, and then puts a wrong line behind each value.
fn wrong_lines(listener: &std::net::TcpListener) {
    let closed = Arc::new(AtomicBool::new(false));
    for stream in listener.incoming() {
        let (mut stream, closed) = (stream.unwrap(), Arc::clone(&closed));
        std::thread::spawn(move || {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                if line.starts_with("get ") && !closed.swap(true, Ordering::SeqCst) {
                    return;
                }
                let answer: &[u8] = if line.starts_with("gets ") {
                    b"VALUE k 0 1 9\r\na\r\nBOGUS\r\nEND\r\n"
                } else {
                    b"VERSION 1\r\n"
                };
                stream.write_all(answer).unwrap_or_default();
            }
        });
    }
}

/// An error stands on a line of its own, also where the line before it was to be changed for the client.
#[test]
fn an_error_does_not_stand_within_a_line() {
    for mode in MODES {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // It ends with the process.
        std::thread::spawn(move || wrong_lines(&listener));
        let mut options = options(&[], mode);
        options.pools[0].servers = vec![address.into()];
        let proxy = Running::start(options);
        let mut client = Client::connect(proxy.address);
        // From here on the uniques of the server are changed.
        assert!(client.line("get k\r\n").starts_with("SERVER_ERROR"));
        client.send("gets k\r\n");
        let head = client.read_until(b"\r\n");
        let head = String::from_utf8_lossy(&head);
        assert_eq!(head.trim_end().split(' ').count(), 5, "{head}");
        assert!(!head.contains("ERROR"), "{head}");
        assert_eq!(client.read_until(b"\r\n"), b"a\r\n");
        assert!(client.line("").starts_with("SERVER_ERROR"));
    }
}

/// A server that announces a value that none can be, and does not send it.
fn huge_values(listener: &std::net::TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                let answer: &[u8] = match line.as_str() {
                    "get long" => b"VALUE long 0 1048577\r\n",
                    "get flags" => b"VALUE flags 68719476736 1\r\na\r\nEND\r\n",
                    _ => b"VERSION 1\r\n",
                };
                stream.write_all(answer).unwrap_or_default();
            }
        });
    }
}

/// The client is answered at once, and not with what no server may have.
#[test]
fn a_value_that_cannot_be_is_a_wrong_answer() {
    for mode in MODES {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // It ends with the process.
        std::thread::spawn(move || huge_values(&listener));
        let mut options = options(&[], mode);
        options.pools[0].servers = vec![address.into()];
        options.pools[0].timeout = Duration::from_secs(3600);
        let proxy = Running::start(options);
        let mut client = Client::connect(proxy.address);
        for key in ["long", "flags"] {
            let answer = client.line(format!("get {key}\r\n"));
            assert_eq!(answer, "SERVER_ERROR backend sent a reply to no request in flight");
        }
    }
}

/// A server that knows the odd keys only, and leaves one answer out.
fn one_too_few(listener: &std::net::TcpListener) {
    let answered = Arc::new(AtomicU64::new(0));
    for stream in listener.incoming() {
        let (mut stream, answered) = (stream.unwrap(), Arc::clone(&answered));
        std::thread::spawn(move || {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                let answer = match line.as_bytes().last() {
                    Some(b'1' | b'3' | b'5' | b'7' | b'9') => "DELETED\r\n",
                    Some(b'n') => "VERSION 1\r\n",
                    _ => "NOT_FOUND\r\n",
                };
                if answered.fetch_add(1, Ordering::SeqCst) != 100 {
                    stream.write_all(answer.as_bytes()).unwrap_or_default();
                }
            }
        });
    }
}

/// On a connection that always has requests in flight, answers are not for ever those of the requests before.
#[test]
fn an_answer_that_a_server_leaves_out_moves_few_others() {
    for mode in MODES {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // It ends with the process.
        std::thread::spawn(move || one_too_few(&listener));
        let mut options = quick(&[], mode);
        options.pools[0].servers = vec![address.into()];
        let proxy = Running::start(options);
        let mut client = Client::connect(proxy.address);
        let (mut errors, mut last_wrong) = (0, 0);
        (0..32).for_each(|number| client.send(format!("delete k{number}\r\n")));
        for number in 0..1000 {
            client.send(format!("delete k{}\r\n", number + 32));
            let answer = client.read_until(b"\r\n");
            let right: &[u8] = if number % 2 == 1 { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" };
            if answer.starts_with(b"SERVER_ERROR") {
                errors += 1;
            } else if answer != right {
                last_wrong = number;
            }
        }
        assert!(last_wrong < 192 && (1..=64).contains(&errors), "{last_wrong} {errors}");
    }
}

#[test]
fn without_a_server_requests_are_refused_at_once_and_after_its_return_served() {
    for mode in MODES {
        let mut server = Memcached::start();
        let proxy = Running::start(quick(&[&server], mode));
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.set("k", "1"), "STORED");
        server.kill();
        for _ in 0..20 {
            let answer = client.line("get k\r\n");
            assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
        }
        assert_eq!(proxy.outcome("ejections"), 1);
        assert_eq!(client.line("get k\r\n"), "SERVER_ERROR no server is available");
        // What needs no server is served as before.
        assert_eq!(client.line("mn\r\n"), "MN");
        server.restart();
        common::wait_for("the server's return", || proxy.outcome("readmissions") == 1);
        assert_eq!(client.set("k", "2"), "STORED");
        assert_eq!(client.values("get k\r\n"), "VALUE k 0 1\r\n2\r\nEND\r\n");
    }
}

#[test]
fn reads_carry_on_with_the_servers_left_and_writes_once_the_dead_one_is_ejected() {
    for mode in MODES {
        let (left, mut dies) = (Memcached::start(), Memcached::start());
        let proxy = Running::start(quick(&[&dies, &left], mode));
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.set("k", "v"), "STORED");
        dies.kill();
        for _ in 0..20 {
            assert_eq!(client.values("get k\r\n"), "VALUE k 0 1\r\nv\r\nEND\r\n");
        }
        common::wait_for("the ejection", || {
            client.set("k", "w");
            proxy.outcome("ejections") == 1
        });
        assert_eq!(client.set("k", "w"), "STORED");
        assert_eq!(client.values("get k\r\n"), "VALUE k 0 1\r\nw\r\nEND\r\n");
    }
}

#[test]
fn a_server_that_stops_answers_with_an_error_within_the_time_out() {
    for mode in MODES {
        let server = Memcached::start();
        let proxy = Running::start(quick(&[&server], mode));
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.set("k", "1"), "STORED");
        server.signal("STOP");
        assert_eq!(client.line("get k\r\n"), "SERVER_ERROR backend timed out");
        for _ in 0..5 {
            let answer = client.line("get k\r\n");
            assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
        }
        assert!(proxy.outcome("backend_timeouts") >= 1);
        server.signal("CONT");
        common::wait_for("the server's return", || proxy.outcome("readmissions") == 1);
        assert_eq!(client.values("get k\r\n"), "VALUE k 0 1\r\n1\r\nEND\r\n");
    }
}

/// Clients that write and read values which name their key, and check every answer.
struct Load {
    ended: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(proxy: &Running) -> Self {
        let (ended, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..8)
            .map(|number| {
                let (ended, answered) = (Arc::clone(&ended), Arc::clone(&answered));
                let address = proxy.address;
                std::thread::spawn(move || {
                    let mut client = Client::connect(address);
                    let mut round = 0;
                    while !ended.load(Ordering::Relaxed) {
                        round += 1;
                        if !tagged_round(&mut client, number, round) {
                            client = Client::connect(address);
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        Self { ended, answered, threads }
    }

    /// Waits until so many more answers came.
    fn go_on(&self, answers: u64) {
        let target = self.answered.load(Ordering::Relaxed) + answers;
        common::wait_for("answers", || self.answered.load(Ordering::Relaxed) >= target);
    }

    fn end(self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// A write and a pipelined pair of reads. Answers are right, or misses, or errors; false when the
/// connection was closed.
fn tagged_round(client: &mut Client, number: usize, round: usize) -> bool {
    let key = format!("key-{number}-{}", round % 50);
    let value = format!("<{key}>").repeat(1 + round % 40);
    let stored = client.set(&key, &value);
    assert!(stored == "STORED" || stored.starts_with("SERVER_ERROR"), "{stored}");
    let other = format!("key-{number}-{}", (round + 7) % 50);
    client.send(format!("get {key}\r\nget {other} {key}\r\nmg {key} k\r\n"));
    for keys in [vec![&key], vec![&other, &key]] {
        let mut line = String::from_utf8(client.read_until(b"\r\n")).unwrap();
        let mut expected = keys.into_iter();
        while let Some(header) = line.strip_prefix("VALUE ") {
            let found = header.split(' ').next().unwrap().to_owned();
            assert!(expected.any(|key| *key == found), "{found} was not asked for");
            let value = String::from_utf8(client.read_until(b"\r\n")).unwrap();
            assert_eq!(value.trim_end().replace(&format!("<{found}>"), ""), "", "{found}: {value}");
            line = String::from_utf8(client.read_until(b"\r\n")).unwrap();
        }
        assert!(line == "END\r\n" || line.starts_with("SERVER_ERROR"), "{line}");
    }
    let meta = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    let right = format!("HD k{key}\r\n");
    assert!(
        meta == right || meta == format!("EN k{key}\r\n") || meta.starts_with("SERVER_ERROR"),
        "{meta} for {key}"
    );
    true
}

#[test]
fn no_answer_goes_astray_while_servers_die_stop_and_return() {
    for mode in [Mode::Workers(4), Mode::Pipelined { connections: 2 }] {
        let (mut dies, stops) = (Memcached::start(), Memcached::start());
        let options = with(quick(&[&dies, &stops], mode), |pool| pool.shard_multigets = true);
        let proxy = Running::start(options);
        let load = Load::start(&proxy);
        for _ in 0..3 {
            load.go_on(200);
            dies.kill();
            load.go_on(100);
            dies.restart();
            load.go_on(100);
            stops.signal("STOP");
            load.go_on(50);
            stops.signal("CONT");
            load.go_on(100);
        }
        load.end();
        common::wait_for("both servers' return", || {
            proxy.outcome("readmissions") == proxy.outcome("ejections")
        });
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.set("k", "v"), "STORED");
    }
}

#[test]
fn at_a_stop_every_request_that_was_read_is_answered() {
    for mode in MODES {
        let server = Memcached::start();
        let options = with(options(&[&server], mode), |pool| pool.timeout = common::DEADLINE);
        let mut proxy = Running::start(options);
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.set("k", "v"), "STORED");
        server.signal("STOP");
        client.send("get k\r\n".repeat(20));
        common::wait_for("the requests to be read", || {
            let requests = &proxy.instruments.snapshot().requests["get"];
            requests.arrivals >= 1 && requests.arrivals > requests.completions
        });
        let server_thread = std::thread::spawn(move || {
            server.signal("CONT");
            server
        });
        let begun = Instant::now();
        proxy.end();
        assert!(begun.elapsed() < common::DEADLINE);
        let answers = client.read_to_end();
        assert_eq!(answers, b"VALUE k 0 1\r\nv\r\nEND\r\n".repeat(20));
        server_thread.join().unwrap();
    }
}
