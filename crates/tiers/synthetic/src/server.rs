//! The event loop: one thread takes requests, asks the station when they end, and answers then.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::Duration;

use kendall_tier::distribution::Distribution;
use kendall_tier::serve::{self, ListenError};
use kendall_tier::{
    ACCEPT_PAUSE_NS, Accepted, Clock, ConnectionTable, Deadlines, Instruments, Key, Layout, Limit,
    Outcome, Recorder, RequestType, Stage, Stop, Token, Waits, Waker, precise_waits,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use crate::connection::{Alive, Connection, Found, READ_BYTES, as_u64};
use crate::service_time::{draw_ns, numbers};
use crate::station::{Station, Visit};

#[derive(Debug, Clone)]
pub struct SyntheticOptions {
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    pub service_time: Distribution,
    pub servers: u32,
    pub seed: u64,
    /// Number of the run: each has service times of its own, all from one seed.
    pub run: u64,
    pub limits: Limits,
}

/// Bounds of the tier. Each has a counter of how often it was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests that may wait; further ones are answered with 503.
    pub waiting: u64,
    /// Connections at a time; further ones are closed.
    pub connections: usize,
    /// Time of a graceful stop; in its last tenth, what is not answered is refused.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { waiting: 1_000_000, connections: 10_000, stop: Duration::from_secs(10) }
    }
}

/// A synthetic tier that cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("servers: a station has at least one")]
    NoServers,
    #[error("the event loop failed")]
    EventLoop(#[from] io::Error),
}

const LISTENER: Token = Token::Special(0);
const STOP: Token = Token::Special(1);

const REQUEST: RequestType = RequestType(0);
const LATENESS: Stage = Stage(0);
const QUEUE_FULL: Outcome = Outcome(0);
const REFUSED: Outcome = Outcome(1);
const STOPPING: Outcome = Outcome(2);
const LIMIT_QUEUE: Limit = Limit(0);
const LIMIT_CONNECTIONS: Limit = Limit(1);
const LIMIT_DESCRIPTORS: Limit = Limit(2);

/// A tier that listens and is ready to [`run`](Synthetic::run).
#[derive(Debug)]
pub struct Synthetic {
    listener: TcpListener,
    address: SocketAddr,
    options: SyntheticOptions,
    instruments: Instruments,
}

impl Synthetic {
    pub fn bind(options: &SyntheticOptions) -> Result<Self, SyntheticError> {
        if options.servers == 0 {
            return Err(SyntheticError::NoServers);
        }
        let (listener, address) = serve::bind(options.listen, "--listen HOST:PORT")?;
        let layout = Layout {
            tier: "synthetic",
            request_types: &["request"],
            stages: &["lateness"],
            outcomes: &["queue_full", "refused", "stopping"],
            limits: &["queue", "connections", "descriptors"],
            backends: Vec::new(),
        };
        let instruments = Instruments::new(layout, Clock::monotonic());
        instruments.set_workers(options.servers);
        let mut options = options.clone();
        let half = kendall_tier::share_of_descriptors(2);
        let allowed = &mut options.limits.connections;
        *allowed = kendall_tier::bound_connections(address, *allowed, half);
        Ok(Self { listener, address, options, instruments })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the tier counts. `lateness` is by how much an answer left after its service had
    /// ended: the error of the tier itself.
    pub fn instruments(&self) -> Instruments {
        self.instruments.clone()
    }

    /// Serves until `stop` is asked for; then answers what it accepted, and ends.
    pub fn run(self, stop: &Stop) -> Result<(), SyntheticError> {
        let waker = stop.waker()?;
        EventLoop::new(self, waker)?.run()?;
        Ok(())
    }
}

/// What happens at a moment; at the same moment, ends come before begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A server is done; the answer with this number leaves.
    Ends { sequence: u64, key: Key, number: u64, visit: Visit },
    /// A server takes the next request.
    Begins { sequence: u64 },
    /// Connections may be accepted again.
    Accept,
    /// What a graceful stop has not answered yet is refused.
    Grace,
    /// It has taken long enough.
    Over,
}

struct EventLoop {
    epoll: OwnedFd,
    clock: Clock,
    listener: Option<TcpListener>,
    stop: Waker,
    station: Station,
    service_time: Distribution,
    rng: Xoshiro256PlusPlus,
    events: Deadlines<Event>,
    /// Events that were due, and whose levels are counted; what else they want is still to be done.
    due: VecDeque<Event>,
    sequence: u64,
    waits: Waits,
    connections: ConnectionTable<Connection>,
    scratch: Box<[u8]>,
    limits: Limits,
    recorder: Recorder,
    stopping: bool,
    /// No descriptor was left: the listener is asked again at [`Event::Accept`], whatever comes meanwhile.
    pausing: bool,
    over: bool,
}

impl EventLoop {
    fn new(tier: Synthetic, stop: Waker) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Announced once: where there is no room, what waits must not be announced again and again.
        let interest = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &tier.listener, LISTENER.data(), interest)?;
        epoll::add(&epoll, &stop, STOP.data(), EventFlags::IN)?;
        Ok(Self {
            epoll,
            clock: tier.instruments.clock().clone(),
            listener: Some(tier.listener),
            stop,
            station: Station::new(tier.options.servers),
            service_time: tier.options.service_time,
            rng: numbers(tier.options.seed, tier.options.run),
            events: Deadlines::default(),
            due: VecDeque::new(),
            sequence: 0,
            waits: Waits::default(),
            connections: ConnectionTable::default(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            limits: tier.options.limits,
            recorder: tier.instruments.recorder(),
            stopping: false,
            pausing: false,
            over: false,
        })
    }

    fn run(mut self) -> io::Result<()> {
        precise_waits()?;
        let mut ready = Vec::with_capacity(256);
        while !self.over {
            let timeout =
                self.events.next_ns().map(|at_ns| self.waits.until(at_ns, self.clock.now_ns()));
            self.waits.wait(&self.epoll, &mut ready, timeout, &self.clock)?;
            // What has ended leaves before what has come: it is late already.
            self.fire();
            for event in ready.drain(..) {
                self.announced(Token::of(event.data.u64()), event.flags);
            }
            self.fire();
            self.over |= self.stopping && self.connections.is_empty();
        }
        Ok(())
    }

    /// Counts what is due by now: a server that was left is not busy when the next visit takes it.
    fn settle(&mut self, now_ns: u64) {
        while let Some((at_ns, event)) = self.events.pop_due(now_ns) {
            match event {
                Event::Ends { .. } => self.recorder.workers_busy.subtract(at_ns, 1),
                Event::Begins { .. } => {
                    self.recorder.queue_length.subtract(at_ns, 1);
                    self.recorder.workers_busy.add(at_ns, 1);
                    continue;
                }
                Event::Accept | Event::Grace | Event::Over => {}
            }
            self.due.push_back(event);
        }
    }

    fn fire(&mut self) {
        loop {
            self.settle(self.clock.now_ns());
            let Some(event) = self.due.pop_front() else { return };
            match event {
                Event::Ends { key, number, visit, .. } => self.with(key, |tier, connection| {
                    connection.answer(number, times(&visit), Some(visit));
                    tier.serve(key, connection)
                }),
                Event::Begins { .. } => {}
                Event::Accept => {
                    self.pausing = false;
                    self.accept();
                }
                Event::Grace => self.refuse_rest(),
                Event::Over => self.over = true,
            }
        }
    }

    fn announced(&mut self, token: Token, flags: EventFlags) {
        let Token::Connection(key, _) = token else {
            return if token == LISTENER { self.accept() } else { self.begin_stop() };
        };
        self.with(key, |tier, connection| {
            connection.end.announce(flags);
            tier.serve(key, connection)
        });
    }

    /// Reads requests, gives them to the station, and writes the answers that may leave.
    fn serve(&mut self, key: Key, connection: &mut Connection) -> Alive {
        loop {
            // Requests first that were read before and had no space.
            self.take_requests(key, connection);
            let (clock, recorder) = (&self.clock, &mut self.recorder);
            let mut bytes = 0;
            let replied = |moments: &_, ends_ns| {
                recorder.completed(REQUEST, moments);
                recorder.stage(REQUEST, LATENESS, moments.replied_ns.saturating_sub(ends_ns));
            };
            let alive = connection.write(|| clock.now_ns(), replied, |count| bytes += count);
            self.recorder.bytes_out(as_u64(bytes));
            if alive == Alive::No {
                return Alive::No;
            }
            if !connection.wants_to_read() {
                return Alive::Yes;
            }
            match connection.read(&mut self.scratch) {
                Ok(count) => self.recorder.bytes_in(as_u64(count)),
                Err(alive) => return alive,
            }
        }
    }

    fn take_requests(&mut self, key: Key, connection: &mut Connection) {
        while let Some(found) = connection.next_request() {
            let number = connection.reserve();
            match found {
                Found::Visit => self.visit(key, connection, number),
                Found::Health => {
                    connection.answer(number, response(200, r#"{"ready":true}"#), None);
                }
                Found::Refused(status, why) => {
                    self.recorder.outcome(REFUSED, 1);
                    connection.answer(number, response(status, &problem(status, why)), None);
                }
            }
        }
    }

    fn visit(&mut self, key: Key, connection: &mut Connection, number: u64) {
        let now_ns = self.clock.now_ns();
        self.settle(now_ns);
        let waiting = self.recorder.queue_length.current();
        if waiting >= self.limits.waiting && !self.station.is_free(now_ns) {
            self.recorder.limit_hit(LIMIT_QUEUE);
            self.recorder.outcome(QUEUE_FULL, 1);
            let text = problem(503, "the queue is full; ask again later");
            return connection.answer(number, response(503, &text), None);
        }
        self.recorder.arrived(REQUEST);
        let visit = self.station.take(now_ns, draw_ns(&self.service_time, &mut self.rng));
        let sequence = self.sequence;
        self.sequence += 1;
        if visit.begins_ns > now_ns {
            self.recorder.queue_length.add(now_ns, 1);
            self.events.push(visit.begins_ns, Event::Begins { sequence });
        } else {
            self.recorder.workers_busy.add(now_ns, 1);
        }
        self.events.push(visit.ends_ns, Event::Ends { sequence, key, number, visit });
    }

    fn accept(&mut self) {
        while let Some(listener) = self.listener.as_ref().filter(|_| !self.pausing) {
            match kendall_tier::accept(listener) {
                Accepted::Connection(socket)
                    if self.connections.len() >= self.limits.connections =>
                {
                    self.recorder.limit_hit(LIMIT_CONNECTIONS);
                    drop(socket);
                }
                Accepted::Connection(socket) => self.accepted(socket),
                Accepted::Nobody => return,
                Accepted::NoRoom => {
                    self.recorder.limit_hit(LIMIT_DESCRIPTORS);
                    self.pausing = true;
                    self.events.push(self.clock.now_ns() + ACCEPT_PAUSE_NS, Event::Accept);
                }
            }
        }
    }

    fn accepted(&mut self, socket: OwnedFd) {
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let inserted = self.connections.insert_with(|key| {
            epoll::add(&self.epoll, &socket, Token::Connection(key, 0).data(), interest)?;
            Ok::<_, Errno>(Connection::new(socket))
        });
        match inserted {
            Ok(_) => self.recorder.connections.add(self.clock.now_ns(), 1),
            Err(_) => self.recorder.limit_hit(LIMIT_DESCRIPTORS),
        }
    }

    fn begin_stop(&mut self) {
        self.stop.clear();
        self.stopping = true;
        self.listener = None;
        for key in self.connections.keys() {
            self.with(key, |tier, connection| {
                connection.close();
                tier.serve(key, connection)
            });
        }
        let now_ns = self.clock.now_ns();
        let stop_ns = u64::try_from(self.limits.stop.as_nanos()).unwrap_or(u64::MAX / 2);
        self.events.push(now_ns + stop_ns / 10 * 9, Event::Grace);
        self.events.push(now_ns + stop_ns, Event::Over);
    }

    /// Answers what was accepted and cannot be served in the time of a stop.
    fn refuse_rest(&mut self) {
        let refusal = response(503, &problem(503, "the service is being stopped"));
        for key in self.connections.keys() {
            self.with(key, |tier, connection| {
                tier.recorder.outcome(STOPPING, connection.refuse_rest(&refusal));
                tier.serve(key, connection)
            });
        }
    }

    /// Takes a connection out of the table, works on it, and puts it back while it lives.
    fn with(&mut self, key: Key, work: impl FnOnce(&mut Self, &mut Connection) -> Alive) {
        let Some(mut connection) = self.connections.take(key) else { return };
        if work(self, &mut connection) == Alive::Yes {
            return self.connections.put_back(key, connection);
        }
        self.connections.forget(key);
        self.recorder.connections.subtract(self.clock.now_ns(), 1);
    }
}

/// The answer of a visit: what the station made of it.
fn times(visit: &Visit) -> Vec<u8> {
    let waited_ns = visit.begins_ns - visit.arrived_ns;
    let served_ns = visit.ends_ns - visit.begins_ns;
    response(200, &format!(r#"{{"waiting_time_ns":{waited_ns},"service_time_ns":{served_ns}}}"#))
}

fn problem(status: u16, why: &str) -> String {
    format!(r#"{{"status":{status},"detail":"{why}"}}"#)
}

fn response(status: u16, body: &str) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    };
    let more = match status {
        200 => "",
        503 => "retry-after: 1\r\n",
        _ => "connection: close\r\n",
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n{more}\r\n{body}"
    )
    .into_bytes()
}
