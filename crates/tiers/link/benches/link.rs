//! `make bench-link`: what a link adds to a round trip, and what it costs.
//!
//! Runs a link process of its own (this program again, as `--link`), a server that echoes, and
//! clients that send one message at a time. Each figure is the difference between rounds through
//! the link and rounds without it, interleaved, so that the machine's drift is in both; CPU time
//! is the link process's own, from the operating system's accounting.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops when it cannot"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use kendall_link::{Limits, Link, LinkOptions, Route, Shape};
use kendall_stats::histogram::Histogram;
use kendall_tier::{Clock, Stop};
use kendall_units::{Seconds, exact_f64};

/// Rounds without and with the link, by turns.
const TURNS: u32 = 5;
/// Length of one turn.
const TURN_NS: u64 = 700_000_000;
const MESSAGE: usize = 128;
const DELAYS_US: [u64; 4] = [0, 100, 500, 5000];
const CONNECTIONS: [usize; 4] = [1, 8, 64, 256];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--link") {
        return link(&arguments[at + 1], arguments[at + 2].parse().unwrap());
    }
    let server = echo();
    println!(
        "added to a round trip of {MESSAGE} bytes, less the delay asked for (two ways), in µs;\n\
         CPU time of the link for one message one way; the median of its own lateness, one way, in µs"
    );
    println!(
        "{:>8} {:>6} {:>8} {:>8} {:>8} {:>8} {:>10} {:>10} {:>9}",
        "delay", "conns", "p10", "p50", "p90", "p99", "messages/s", "µs/message", "own late"
    );
    for delay_us in DELAYS_US {
        for connections in CONNECTIONS {
            round_trips(server, delay_us, connections);
        }
    }
    println!("\nbytes through the link, one way, 1 connection, 64 KiB writes");
    bulk();
}

/// The link, as a process of its own: prints its address, ends with its standard input.
fn link(to: &str, delay_us: u64) {
    let routes = vec![Route { listen: "127.0.0.1:0".into(), to: to.into() }];
    let shape = Shape { delay: Seconds::from_nanos(delay_us * 1000), ..Shape::default() };
    let options = LinkOptions { routes, shape, seed: 1, limits: Limits::default() };
    let link = Link::bind(&options).unwrap();
    println!("{}", link.control().state().routes[0].listen);
    let stop = Stop::new();
    let asked = stop.clone();
    std::thread::spawn(move || {
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        asked.request();
    });
    let instruments = link.instruments();
    link.run(&stop).unwrap();
    // Its own account: by how much pieces left later than they were due.
    let snapshot = instruments.snapshot();
    let lateness = Histogram::decode(&snapshot.requests["piece"].stages["service_time"].0).unwrap();
    println!("{}", lateness.quantile(0.5).unwrap_or(0));
}

struct LinkProcess {
    child: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl LinkProcess {
    fn start(to: SocketAddr, delay_us: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--link", &to.to_string(), &delay_us.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        Self { child, output, address: line.trim().parse().unwrap() }
    }

    /// CPU time so far, of all its threads, from the scheduler's nanosecond accounting.
    fn cpu_ns(&self) -> u64 {
        let tasks = format!("/proc/{}/task", self.child.id());
        let ran = |task: std::fs::DirEntry| -> u64 {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
        };
        std::fs::read_dir(tasks).unwrap().map(|task| ran(task.unwrap())).sum()
    }
}

impl LinkProcess {
    /// Ends it; the median of its own lateness in nanoseconds.
    fn end(mut self) -> u64 {
        drop(self.child.stdin.take());
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        self.child.wait().unwrap();
        line.trim().parse().unwrap()
    }
}

/// A server of one thread a connection, which sends every message back.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::Builder::new()
                .stack_size(64 * 1024)
                .spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    let mut buffer = [0; MESSAGE];
                    while stream.read_exact(&mut buffer).is_ok() {
                        if stream.write_all(&buffer).is_err() {
                            return;
                        }
                    }
                })
                .unwrap();
        }
    });
    address
}

/// Round trips on `connections`, one at a time on each: eight connections send, then all eight
/// are waited for, then a pause, so that neither the machine nor the link is the bottleneck.
fn turn(address: SocketAddr, connections: usize, times: &mut Histogram) -> u64 {
    let clock = Clock::monotonic();
    let mut streams: Vec<TcpStream> =
        (0..connections).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stream in &streams {
        stream.set_nodelay(true).unwrap();
    }
    let mut buffer = [0; MESSAGE];
    for stream in &mut streams {
        stream.write_all(&buffer).unwrap();
        stream.read_exact(&mut buffer).unwrap();
    }
    let end_ns = clock.now_ns() + TURN_NS;
    let mut messages = 0;
    while clock.now_ns() < end_ns {
        for group in streams.chunks_mut(8) {
            let mut sent = [0; 8];
            for (stream, sent) in group.iter_mut().zip(&mut sent) {
                *sent = clock.now_ns();
                stream.write_all(&buffer).unwrap();
            }
            for (stream, sent) in group.iter_mut().zip(&sent) {
                stream.read_exact(&mut buffer).unwrap();
                times.record(clock.now_ns() - sent);
                messages += 1;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    messages
}

fn round_trips(server: SocketAddr, delay_us: u64, connections: usize) {
    let link = LinkProcess::start(server, delay_us);
    let (mut direct, mut through) = (Histogram::new(), Histogram::new());
    let (mut messages, mut cpu_ns) = (0, 0);
    for _ in 0..TURNS {
        turn(server, connections, &mut direct);
        let before_ns = link.cpu_ns();
        messages += turn(link.address, connections, &mut through);
        cpu_ns += link.cpu_ns() - before_ns;
    }
    let microseconds = |histogram: &Histogram, quantile| {
        exact_f64(histogram.quantile(quantile).unwrap_or(0)) / 1e3
    };
    let added = |quantile| {
        let asked = 2.0 * exact_f64(delay_us);
        microseconds(&through, quantile) - microseconds(&direct, quantile) - asked
    };
    let rate = exact_f64(messages) * 1e9 / exact_f64(u64::from(TURNS) * TURN_NS);
    let cost = exact_f64(cpu_ns) / 1e3 / exact_f64(messages) / 2.0;
    let late = exact_f64(link.end()) / 1e3;
    println!(
        "{delay_us:>5} µs {connections:>6} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {rate:>10.0} {cost:>10.2} {late:>9.1}",
        added(0.1),
        added(0.5),
        added(0.9),
        added(0.99),
    );
}

/// CPU time of the link for each MiB.
fn bulk() {
    const BYTES: u64 = 1 << 30;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sink = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 256 * 1024];
        while stream.read(&mut buffer).unwrap() > 0 {}
    });
    let link = LinkProcess::start(address, 0);
    let mut stream = TcpStream::connect(link.address).unwrap();
    let (clock, block) = (Clock::monotonic(), vec![0; 64 * 1024]);
    let (begun_ns, before_ns) = (clock.now_ns(), link.cpu_ns());
    for _ in 0..BYTES / (64 * 1024) {
        stream.write_all(&block).unwrap();
    }
    drop(stream);
    sink.join().unwrap();
    let mebibytes = exact_f64(BYTES >> 20);
    let cost = exact_f64(link.cpu_ns() - before_ns) / 1e3 / mebibytes;
    let rate = mebibytes * 1e9 / exact_f64(clock.now_ns() - begun_ns);
    link.end();
    println!("{cost:.1} µs of CPU per MiB, {rate:.0} MiB/s");
}
