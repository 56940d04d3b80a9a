//! A real link on loopback: bytes arrive whole, in order and not too early; ends, resets and
//! faults pass through. No upper bound of a time is asserted.
//!
//! The clock here is the operating system's monotonic one, read on both ends of one machine.
#![expect(clippy::unwrap_used, reason = "a test that fails shall say where")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use kendall_link::{
    Control, Fault, Jitter, Limits, Link, LinkError, LinkOptions, Route, Shape, ShapeChange,
};
use kendall_testing::wait_until;
use kendall_tier::{Clock, Instruments, Stop};
use kendall_units::Seconds;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A test that waits longer than this fails in place of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    control: Control,
    instruments: Instruments,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), LinkError>>>,
}

impl Running {
    fn start(to: SocketAddr, shape: Shape, limits: Limits) -> Self {
        let route = Route { listen: "127.0.0.1:0".into(), to: to.to_string() };
        let options = LinkOptions { routes: vec![route], shape, seed: 42, limits };
        let link = Link::bind(&options).unwrap();
        let (control, instruments, stop) = (link.control(), link.instruments(), Stop::new());
        let address = control.state().routes[0].listen;
        let asked = stop.clone();
        let thread = Some(std::thread::spawn(move || link.run(&asked)));
        Self { address, control, instruments, stop, thread }
    }

    fn with_delay(to: SocketAddr, delay: Duration) -> Self {
        let delay = Seconds::new(delay.as_secs_f64());
        Self::start(to, Shape { delay, ..Shape::default() }, Limits::default())
    }

    fn fault(&self, fault: Fault) {
        self.control.change(&ShapeChange { fault: Some(fault), ..ShapeChange::default() }).unwrap();
    }

    fn outcome(&self, name: &str) -> u64 {
        self.instruments.snapshot().outcomes[name]
    }

    /// Waits until `condition` holds.
    fn until(&self, condition: impl Fn(&Self) -> bool) {
        wait_until("what the test waits for", || condition(self));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.request();
        let outcome = self.thread.take().unwrap().join().unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A server that sends back whatever comes, on any number of connections.
fn echo() -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 16 * 1024];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
                stream.shutdown(Shutdown::Write).unwrap_or_default();
            });
        }
    });
    address
}

/// Sends random bytes in random pieces, and checks that they come back whole and in order.
fn exchange(address: SocketAddr, seed: u64, bytes: usize) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let sent: Vec<u8> = (0..bytes).map(|_| rng.random()).collect();
    let stream = connect(address);
    let mut writing = stream.try_clone().unwrap();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || {
        let mut rest = &copy[..];
        while !rest.is_empty() {
            // Mostly small pieces, some larger than the link's buffer.
            let most = if rng.random_bool(0.9) { 2_000 } else { 200_000 };
            let size = rng.random_range(1..=most).min(rest.len());
            writing.write_all(&rest[..size]).unwrap();
            rest = &rest[size..];
        }
        writing.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    (&stream).read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    assert!(sent == received, "seed {seed}: {} bytes sent, {} received", bytes, received.len());
}

#[test]
fn bytes_arrive_whole_and_in_order_under_jitter_from_many_connections() {
    let shape = Shape {
        delay: Seconds::from_millis(1.0),
        jitter: Jitter::Normal(Seconds::from_millis(1.0)),
        ..Shape::default()
    };
    let limits = Limits { buffer: 32 * 1024, ..Limits::default() };
    let link = Running::start(echo(), shape, limits);
    let threads: Vec<_> = (0..16)
        .map(|seed| {
            let address = link.address;
            std::thread::spawn(move || exchange(address, seed, 600_000))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(link.instruments.snapshot().limits_hit["buffer"] > 0, "back-pressure was exercised");
    link.until(|link| link.instruments.snapshot().connections.current == 0);
    assert_eq!(link.instruments.snapshot().queue_length.current, 0);
}

#[test]
fn bytes_arrive_whole_through_a_bandwidth_limit_that_connections_share() {
    let shape = Shape { bandwidth: [Some(4_000_000); 2], ..Shape::default() };
    let link = Running::start(echo(), shape, Limits::default());
    let clock = Clock::monotonic();
    let started = clock.now_ns();
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let address = link.address;
            std::thread::spawn(move || exchange(address, seed, 200_000))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    // 800,000 bytes at 4 MB/s: 0.2 s at least, each way at the same time.
    assert!(clock.now_ns() - started >= 200_000_000);
}

/// 400,000 bytes at 400 kB/s take a second that way; the other way nothing holds them.
#[test]
fn a_bandwidth_of_one_way_holds_for_that_way_alone() {
    const BYTES: usize = 400_000;
    for limited in [0, 1] {
        let mut shape = Shape::default();
        shape.bandwidth[limited] = Some(400_000);
        let (listener, address) = listener();
        let link = Running::start(address, shape, Limits::default());
        let client = connect(link.address);
        let mut ends = [accept(&listener), client];
        let clock = Clock::monotonic();
        let mut took = [0; 2];
        for way in [0, 1] {
            let started = clock.now_ns();
            let mut from = ends[1 - way].try_clone().unwrap();
            let sender = std::thread::spawn(move || from.write_all(&[7; BYTES]));
            ends[way].read_exact(&mut vec![0; BYTES]).unwrap();
            sender.join().unwrap().unwrap();
            took[way] = clock.now_ns() - started;
        }
        // Each part of 1,448 bytes is rounded down to a nanosecond.
        assert!(took[limited] >= 999_999_000, "{took:?}");
        assert!(took[1 - limited] < took[limited], "{took:?}");
    }
}

/// Per piece: received not before sent + delay, whatever the machine does meanwhile.
#[test]
fn no_byte_arrives_before_its_delay() {
    let delay = Duration::from_micros(700);
    let link = Running::with_delay(echo(), delay);
    let mut stream = connect(link.address);
    stream.set_nodelay(true).unwrap();
    let clock = Clock::monotonic();
    let mut buffer = [0; 64];
    for size in (1..=64).cycle().take(300) {
        let sent = clock.now_ns();
        stream.write_all(&buffer[..size]).unwrap();
        stream.read_exact(&mut buffer[..1]).unwrap();
        let received = clock.now_ns();
        assert!(received - sent >= 2 * 700_000, "{} ns for two ways", received - sent);
        stream.read_exact(&mut buffer[1..size]).unwrap();
    }
    // One at least each way; a piece is counted just after it was written.
    link.until(|link| link.instruments.snapshot().requests["piece"].completions >= 600);
}

#[test]
fn a_half_closed_connection_goes_on_in_the_other_direction() {
    let (listener, address) = listener();
    let link = Running::with_delay(address, Duration::from_millis(1));
    let mut client = connect(link.address);
    let mut server = accept(&listener);
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut question = String::new();
    server.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    for part in ["an ", "answer ", "in parts"] {
        server.write_all(part.as_bytes()).unwrap();
    }
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "an answer in parts");
    link.until(|link| link.instruments.snapshot().connections.current == 0);
}

fn reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

fn is_reset(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn a_reset_passes_through_from_either_side_after_the_bytes_before_it() {
    let (listener, address) = listener();
    let link = Running::with_delay(address, Duration::from_millis(1));
    let mut client = connect(link.address);
    let mut server = accept(&listener);
    client.write_all(b"last words").unwrap();
    // The link must have read them before the reset, which would else destroy them.
    link.until(|link| link.instruments.snapshot().bytes_in == 10);
    reset(&client);
    drop(client);
    let mut words = [0; 10];
    server.read_exact(&mut words).unwrap();
    assert_eq!(&words, b"last words");
    assert!(is_reset(&mut server));

    let mut client = connect(link.address);
    let server = accept(&listener);
    reset(&server);
    drop(server);
    assert!(is_reset(&mut client));
    link.until(|link| link.instruments.snapshot().connections.current == 0);
    assert_eq!(link.outcome("reset"), 2);
}

#[test]
fn a_server_that_is_down_resets_the_client_and_the_link_goes_on() {
    let (listener, address) = listener();
    drop(listener);
    let link = Running::with_delay(address, Duration::from_millis(1));
    for _ in 0..3 {
        assert!(is_reset(&mut connect(link.address)));
    }
    link.until(|link| link.outcome("unreachable") == 3);
    let listener = TcpListener::bind(address).unwrap();
    let mut client = connect(link.address);
    accept(&listener).write_all(b"back").unwrap();
    let mut word = [0; 4];
    client.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"back");
}

/// The end of what the client sends waits for the connection to the server, without keeping the link busy.
#[test]
fn a_client_that_ends_before_the_server_answers_stops_nobody() {
    let (listener, address) = listener();
    rustix::net::listen(&listener, 0).unwrap();
    // The server accepts no connection: its queue is full.
    let _waiting = connect(address);
    let limits = Limits { connect_ns: 300_000_000, ..Limits::default() };
    let link = Running::start(address, Shape::default(), limits);
    let mut client = connect(link.address);
    client.shutdown(Shutdown::Write).unwrap();
    assert!(is_reset(&mut client), "it is told that the server is not reached");
    assert_eq!(link.outcome("unreachable"), 1);
}

#[test]
fn a_stop_holds_everything_and_loses_nothing() {
    let link = Running::with_delay(echo(), Duration::from_millis(1));
    let mut client = connect(link.address);
    let mut buffer = [0; 6];
    client.write_all(b"before").unwrap();
    client.read_exact(&mut buffer).unwrap();
    link.fault(Fault::Stop);
    client.write_all(b"during").unwrap();
    let mut late = connect(link.address); // the kernel completes it; the link takes it later
    late.write_all(b"lately").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(client.read(&mut buffer).is_err(), "nothing passes");
    assert_eq!(link.outcome("accepted"), 1);
    link.fault(Fault::None);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"during");
    late.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"lately");
}

#[test]
fn a_cut_resets_what_is_open_and_what_comes_until_it_ends() {
    let link = Running::with_delay(echo(), Duration::from_millis(1));
    let mut client = connect(link.address);
    link.until(|link| link.outcome("accepted") == 1);
    link.fault(Fault::Cut);
    assert!(is_reset(&mut client));
    assert!(is_reset(&mut connect(link.address)));
    link.fault(Fault::None);
    exchange(link.address, 1, 1000);
}

#[test]
fn new_connections_are_dropped_while_old_ones_go_on() {
    let link = Running::with_delay(echo(), Duration::from_millis(1));
    let mut client = connect(link.address);
    link.until(|link| link.outcome("accepted") == 1);
    link.fault(Fault::DropNew);
    assert!(is_reset(&mut connect(link.address)));
    let mut buffer = [0; 5];
    client.write_all(b"still").unwrap();
    client.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"still");
}

#[test]
fn a_connection_beyond_the_bound_is_reset_and_counted() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let link = Running::start(echo(), Shape::default(), limits);
    let held: Vec<_> = (0..2).map(|_| connect(link.address)).collect();
    link.until(|link| link.outcome("accepted") == 2);
    assert!(is_reset(&mut connect(link.address)));
    assert_eq!(link.instruments.snapshot().limits_hit["connections"], 1);
    drop(held);
    link.until(|link| link.instruments.snapshot().connections.current == 0);
    exchange(link.address, 3, 1000);
}

#[test]
fn a_receiver_that_reads_nothing_bounds_what_the_link_holds() {
    let (listener, address) = listener();
    let limits = Limits { buffer: 64 * 1024, ..Limits::default() };
    let link = Running::start(address, Shape::default(), limits);
    let mut client = connect(link.address);
    let mut server = accept(&listener);
    client.set_nonblocking(true).unwrap();
    let (chunk, mut sent) = (vec![7; 64 * 1024], 0);
    // All buffers on the way are full when nothing was taken while the link stood still.
    let mut idle = 0;
    while idle < 200 {
        match client.write(&chunk) {
            Ok(count) => (sent, idle) = (sent + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                idle += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
    // Beside what the link holds, the kernel has at most 4 MiB to send and 32 MiB that were received.
    let read = link.instruments.snapshot().bytes_in;
    assert!(read <= 64 * 1024 + 36 * 1024 * 1024, "{read}");
    drop(client);
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), sent);
}

#[test]
fn a_graceful_stop_delivers_what_the_link_holds() {
    let (listener, address) = listener();
    let link = Running::with_delay(address, Duration::from_millis(200));
    let mut client = connect(link.address);
    let mut server = accept(&listener);
    client.write_all(b"on its way").unwrap();
    link.until(|link| link.instruments.snapshot().bytes_in == 10);
    drop(link);
    let mut received = String::new();
    server.read_to_string(&mut received).unwrap();
    assert_eq!(received, "on its way");
}

#[test]
fn a_graceful_stop_waits_for_no_delay_beyond_its_bound() {
    let (_listener, address) = listener();
    let shape = Shape { delay: Seconds::new(1e18), ..Shape::default() };
    let link = Running::start(address, shape, Limits { stop_ns: 0, ..Limits::default() });
    connect(link.address).write_all(b"on its way").unwrap();
    link.until(|link| link.instruments.snapshot().bytes_in == 10);
    let stopping = std::thread::spawn(move || drop(link));
    wait_until("the link's end", || stopping.is_finished());
}

#[test]
fn shapes_change_route_by_route_while_the_link_runs() {
    let to = echo().to_string();
    let route = |_| Route { listen: "127.0.0.1:0".into(), to: to.clone() };
    let options = LinkOptions {
        routes: (0..2).map(route).collect(),
        shape: Shape::default(),
        seed: 1,
        limits: Limits::default(),
    };
    let link = Link::bind(&options).unwrap();
    let control = link.control();
    let change = ShapeChange {
        route: Some(1),
        delay: Some("2ms".into()),
        jitter: Some("uniform:1ms".into()),
        bandwidth: Some("1MB/s".into()),
        bandwidth_back: Some("unlimited".into()),
        fault: Some(Fault::DropNew),
    };
    let state = control.change(&change).unwrap();
    assert_eq!((state.routes[0].delay_ns, state.routes[1].delay_ns), (0, 2_000_000));
    assert_eq!(state.routes[1].bandwidth_bytes_per_s, Some(1_000_000));
    assert_eq!(state.routes[1].bandwidth_back_bytes_per_s, None);
    let wrong = ShapeChange { delay: Some("fast".into()), ..change.clone() };
    assert!(control.change(&wrong).is_err());
    let nowhere = ShapeChange { route: Some(2), ..change };
    let refused = control.change(&nowhere).unwrap_err().to_string();
    assert_eq!(refused, "route 2 does not exist; the link has 2, counted from 0");
    assert_eq!(control.state(), state, "a refused change changes nothing");
}

#[test]
fn what_cannot_be_a_link_is_refused_with_its_address() {
    let bind = |listen: &str, to: &str| {
        let routes = vec![Route { listen: listen.into(), to: to.into() }];
        let (shape, limits) = (Shape::default(), Limits::default());
        Link::bind(&LinkOptions { routes, shape, seed: 1, limits }).unwrap_err().to_string()
    };
    assert!(bind("127.0.0.1", "127.0.0.1:1").starts_with("`127.0.0.1` is not an address"));
    let (_taken, address) = listener();
    let taken = address.to_string();
    assert_eq!(
        bind(&taken, "127.0.0.1:1"),
        format!(
            "cannot listen on {taken}; choose another with --listen HOST:PORT or --route LISTEN=TO"
        )
    );
}
