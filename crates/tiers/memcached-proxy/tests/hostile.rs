//! Bad input and bad clients: the protocol's own error or a closed connection, bounded memory,
//! and other clients unharmed.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests fail by panicking, and wait with a deadline of their own"
)]

#[path = "all/common.rs"]
mod common;

use std::io::Write as _;
use std::net::TcpStream;

use common::{Chance, Client, MODES, Memcached, Running, options, with};
use kendall_memcached_proxy::Options;

/// Resident memory of this process, in which the proxy runs.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn is_served(proxy: &Running) {
    let mut client = Client::connect(proxy.address);
    assert_eq!(client.set("alive", "yes"), "STORED");
    assert_eq!(client.values("get alive\r\n"), "VALUE alive 0 3\r\nyes\r\nEND\r\n");
}

#[test]
fn malformed_requests_get_the_protocols_errors() {
    for mode in MODES {
        let server = Memcached::start();
        let proxy = Running::start(options(&[&server], mode));
        let mut client = Client::connect(proxy.address);
        let long = "k".repeat(251);
        let bad_format = "CLIENT_ERROR bad command line format";
        assert_eq!(client.line(format!("get {long}\r\n")), bad_format);
        assert_eq!(client.line(format!("get a {long}\r\n")), bad_format);
        assert_eq!(client.line(format!("delete {long}\r\n")), bad_format);
        assert_eq!(client.line("set k 0 0 -1\r\n"), bad_format);
        assert_eq!(client.line("set k x 0 1\r\na\r\n"), bad_format);
        assert_eq!(client.line("set k 0 0 1\r\nabc"), "CLIENT_ERROR bad data chunk");
        assert_eq!(client.line("\r\n"), "ERROR");
        assert_eq!(client.line("no such command\r\n"), "ERROR");
        let large = format!("set k 0 0 2000000\r\n{}\r\n", "x".repeat(2_000_000));
        assert_eq!(client.line(large), "SERVER_ERROR object too large for cache");
        assert_eq!(client.line("mn\r\n"), "MN");
    }
}

/// As memcached does from 1.6.40 on: what was meant as a value is not a command.
#[test]
fn the_value_behind_a_malformed_storage_line_is_swallowed() {
    for mode in MODES {
        let server = Memcached::start();
        let proxy = Running::start(options(&[&server], mode));
        let mut client = Client::connect(proxy.address);
        client.set("kept", "yes");
        let value = "delete kept";
        let long = "k".repeat(251);
        let lines = [
            format!("set k x 0 {}", value.len()),
            format!("set k 0 x {}", value.len()),
            format!("set {long} 0 0 {}", value.len()),
            format!("cas k 0 0 {} x", value.len()),
            format!("ms {long} {}", value.len()),
        ];
        for line in lines {
            let answer = client.line(format!("{line}\r\n{value}\r\n"));
            assert_eq!(answer, "CLIENT_ERROR bad command line format", "{line}");
        }
        assert_eq!(client.values("get kept\r\n"), "VALUE kept 0 3\r\nyes\r\nEND\r\n");
    }
}

#[test]
fn endless_lines_web_requests_and_the_binary_protocol_are_closed() {
    for mode in MODES {
        let server = Memcached::start();
        let proxy = Running::start(options(&[&server], mode));
        let endless_get = [b"get ".to_vec(), b"kkkkkkkkk ".repeat(200_000)].concat();
        let streams: [&[u8]; 4] = [
            &b"x".repeat(5000),
            &endless_get,
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x80\x0b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ];
        for stream in streams {
            let mut client = Client::connect(proxy.address);
            // The proxy may close before all is written.
            client.stream.write_all(stream).unwrap_or_default();
            assert_eq!(client.read_to_end(), b"");
        }
        is_served(&proxy);
    }
}

#[test]
fn binary_noise_harms_nobody() {
    for mode in MODES {
        let server = Memcached::start();
        let proxy = Running::start(options(&[&server], mode));
        let mut chance = Chance(11);
        for _ in 0..200 {
            let mut stream = TcpStream::connect(proxy.address).unwrap();
            let length = 1 + chance.below(3000);
            let noise: Vec<u8> = (0..length)
                .map(|_| match chance.below(8) {
                    0 => b'\n',
                    1 => b' ',
                    _ => u8::try_from(chance.below(256)).unwrap(),
                })
                .collect();
            stream.write_all(&noise).unwrap_or_default();
        }
        is_served(&proxy);
        common::wait_for("the noise to be over", || {
            proxy.instruments.snapshot().connections.current == 0
        });
        is_served(&proxy);
    }
}

#[test]
fn clients_that_read_nothing_are_bounded_and_then_closed() {
    for mode in MODES {
        let server = Memcached::start_with(&["-I", "16m", "-m", "256"]);
        let options = with(options(&[&server], mode), |pool| pool.timeout = common::DEADLINE);
        let options = Options { value_bytes: 16 << 20, ..options };
        let proxy = Running::start(options);
        assert_eq!(Client::connect(proxy.address).set("big", &"x".repeat(8 << 20)), "STORED");
        let before = resident_bytes();
        let mut deaf: Vec<Client> = (0..12).map(|_| Client::connect(proxy.address)).collect();
        for client in &mut deaf {
            client.send("get big\r\n".repeat(10));
        }
        // 960 MiB were asked for. Others are served meanwhile.
        for _ in 0..5 {
            is_served(&proxy);
        }
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 256 << 20, "grew by {grown} bytes");
        assert!(proxy.limit("client_answers") > 0);
        drop(deaf);
        is_served(&proxy);
    }
}

#[test]
fn a_client_that_sends_a_byte_at_a_time_is_served() {
    for mode in MODES {
        let server = Memcached::start();
        let proxy = Running::start(options(&[&server], mode));
        let mut slow = Client::connect(proxy.address);
        for byte in b"set slow 0 0 5\r\nvalue\r\nget slow\r\n" {
            slow.send([*byte]);
            is_served(&proxy);
        }
        assert_eq!(slow.read_until(b"END\r\n"), b"STORED\r\nVALUE slow 0 5\r\nvalue\r\nEND\r\n");
    }
}
