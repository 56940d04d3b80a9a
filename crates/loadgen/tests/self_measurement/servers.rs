//! Small HTTP servers whose behavior is known, and who write down what they saw.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What a server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Behavior {
    /// Answers at once.
    Answer,
    /// Answers after a time.
    Delay { nanoseconds: u64 },
    /// After so many requests sends no answers for a time, once.
    Stall { after: u64, nanoseconds: u64 },
    /// Says these bytes to every request.
    Say(Vec<u8>),
    /// Says these bytes and then nothing more.
    SayAndWait(Vec<u8>),
    /// Says these bytes and closes.
    SayAndClose(Vec<u8>),
    /// Says nothing.
    Silent,
    /// Answers, but not the requests of these numbers, the first being 1.
    Forget { from: u64, below: u64 },
    /// After so many requests closes everything, the port included.
    DieAfter { requests: u64 },
}

/// What a server saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When requests arrived and were answered.
    pub(crate) arrivals: Vec<(u64, u64)>,
    /// When it sent no answers.
    pub(crate) stall: Option<(u64, u64)>,
}

impl Seen {
    /// Mean time from arrival to answer.
    pub(crate) fn mean_served_ns(&self) -> f64 {
        let sum: u64 = self.arrivals.iter().map(|(arrived, answered)| answered - arrived).sum();
        kendall_units::exact_f64(sum) / kendall_units::exact_f64(self.arrivals.len())
    }
}

struct Shared {
    behavior: Behavior,
    stop: AtomicBool,
    requests: AtomicU64,
    stalled_until: AtomicU64,
    seen: Mutex<Seen>,
}

/// One server, with a thread a connection.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: JoinHandle<()>,
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

impl Server {
    /// Listens on a free port.
    pub(crate) fn start(behavior: Behavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            behavior,
            stop: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            stalled_until: AtomicU64::new(0),
            seen: Mutex::new(Seen::default()),
        });
        let ours = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, &ours));
        Self { address, shared, acceptor }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops, and tells what it saw.
    pub(crate) fn stop(self) -> Seen {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the acceptor; where it has ended already, there is none to wake.
        drop(TcpStream::connect(self.address));
        self.acceptor.join().unwrap();
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::SeqCst) {
            break;
        }
        let (stream, ours) = (stream.unwrap(), Arc::clone(shared));
        threads.push(std::thread::spawn(move || serve(stream, &ours)));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut seen = Vec::new();
    let mut input = [0; 4_096];
    while !shared.stop.load(Ordering::SeqCst) {
        match stream.read(&mut input) {
            Ok(0) => break,
            // The load writes one small request at a time, so one read brings one request.
            Ok(_) => {
                let arrived = now_ns();
                let goes_on = answer(&mut stream, shared);
                seen.push((arrived, now_ns()));
                if !goes_on {
                    break;
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(_) => break,
        }
    }
    shared.seen.lock().unwrap().arrivals.extend(seen);
}

/// Does what the behavior says; whether the connection goes on.
fn answer(stream: &mut TcpStream, shared: &Shared) -> bool {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let number = shared.requests.fetch_add(1, Ordering::SeqCst) + 1;
    let address = stream.local_addr().unwrap();
    let mut say = |bytes: &[u8]| stream.write_all(bytes).is_ok();
    match &shared.behavior {
        Behavior::Answer => say(OK),
        Behavior::Delay { nanoseconds } => {
            std::thread::sleep(Duration::from_nanos(*nanoseconds));
            say(OK)
        }
        Behavior::Stall { after, nanoseconds } => {
            if number == *after {
                let to = now_ns() + nanoseconds;
                shared.stalled_until.store(to, Ordering::SeqCst);
                // From here on no request is answered before `to`.
                shared.seen.lock().unwrap().stall = Some((now_ns(), to));
            }
            let until = shared.stalled_until.load(Ordering::SeqCst);
            std::thread::sleep(Duration::from_nanos(until.saturating_sub(now_ns())));
            say(OK)
        }
        Behavior::Say(bytes) | Behavior::SayAndWait(bytes) => say(bytes),
        Behavior::SayAndClose(bytes) => {
            say(bytes);
            false
        }
        Behavior::Silent => true,
        Behavior::Forget { from, below } => (*from..*below).contains(&number) || say(OK),
        Behavior::DieAfter { requests } => {
            if number == *requests {
                shared.stop.store(true, Ordering::SeqCst);
                // Wakes the acceptor, who lets go of the port.
                drop(TcpStream::connect(address));
            }
            number < *requests && say(OK)
        }
    }
}
