//! `make bench-load`: what a request costs, beside other tools on the same server in interleaved
//! runs, and how precise the schedule is. Prints ratios; the bars are stated beside them.
//!
//! CPU time is that of the whole generator process, from the kernel; requests are counted by the
//! server. Generators run one after the other, every round in another order.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for developers: it stops at the first failure, and what it prints is its result"
)]

mod minimal;
mod precision;
mod speed;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;

use kendall_loadgen::http::{Http, HttpPlan};
use kendall_loadgen::load::{self, Limits, LoadPlan, PacePlan};
use kendall_loadgen::memcached::{
    KeyChoice, Keyspace, KeyspacePlan, Memcached, MemcachedPlan, Size, parse_mix,
};
use kendall_loadgen::random::{Purpose, stream};
use kendall_protocols::load_result::LoadResult;

/// A child process that ends with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let argument = |index: usize| arguments.get(index).map(String::as_str).unwrap_or_default();
    match argument(0) {
        // Children of this very program, so that they are measured like any other tool.
        "minimal-memcached" => minimal::run(argument(1), minimal::MEMCACHED_REQUEST, b"END\r\n"),
        "minimal-http" => minimal::run(argument(1), minimal::HTTP_REQUEST, b""),
        "ours-memcached" => drop(ours_memcached(argument(1))),
        "ours-http" => drop(ours_http(argument(1), &plan(argument(1), 2_000))),
        "delay-server" => precision::serve(argument(1).parse().unwrap()),
        "memcached" => speed::memcached(),
        "http" => speed::http(),
        "precision" => precision::run(),
        _ => {
            speed::memcached();
            speed::http();
            precision::run();
        }
    }
}

/// One thread and 64 connections for so many milliseconds.
fn plan(target: &str, duration_ms: u64) -> LoadPlan {
    LoadPlan {
        targets: vec![target.parse().unwrap()],
        clients: 64,
        threads: 1,
        duration_ns: duration_ms * 1_000_000,
        requests: None,
        timeout_ns: 5_000_000_000,
        pace: PacePlan::Closed { think_time: None },
        seed: 1,
        spin_ns: None,
        start_at_ns: None,
        limits: Limits::default(),
    }
}

fn ours_memcached(target: &str) -> LoadResult {
    memcached_load(&plan(target, 2_000))
}

fn memcached_load(plan: &LoadPlan) -> LoadResult {
    let keyspace = Keyspace::new(KeyspacePlan {
        keys: 10_000,
        key_size: Size::Fixed(16),
        value_size: Size::Fixed(32),
        choice: KeyChoice::Uniform,
        seed: 1,
    })
    .unwrap();
    let content = gets();
    let driver = |thread| Memcached::new(&keyspace, &content, stream(1, Purpose::Requests, thread));
    let stop = AtomicBool::new(false);
    load::run("memcached", plan, &driver, &stop, &mut |_| ()).unwrap()
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

fn ours_http(target: &str, plan: &LoadPlan) -> LoadResult {
    let content = HttpPlan {
        method: "GET".to_owned(),
        path: "/".to_owned(),
        authority: target.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        placeholders: Vec::new(),
        keep_alive: true,
    };
    let template = content.template().unwrap();
    let driver = |thread| Http::new(&content, &template, stream(1, Purpose::Requests, thread));
    load::run("http", plan, &driver, &AtomicBool::new(false), &mut |_| ()).unwrap()
}

/// A command on one processor, where the machine has two: servers on the first, generators on the
/// second.
fn on_processor(processor: usize, program: &str) -> Command {
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", &processor.to_string(), program]);
    command
}

/// A free port, and a moment later another program may have it: good enough for a benchmark.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a server and waits until it listens.
fn start(mut command: Command, port: u16) -> Server {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let server = Server(child);
    for _ in 0..500 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return server;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{command:?} does not listen on port {port}");
}

fn start_memcached() -> (Server, u16) {
    let port = free_port();
    let mut command = on_processor(0, "memcached");
    command.args(["-u", "root", "-l", "127.0.0.1", "-t", "1", "-p", &port.to_string()]);
    (start(command, port), port)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
