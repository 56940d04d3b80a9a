//! The event loop: accepts, reads, holds, writes, and changes its settings on request.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use kendall_tier::serve::{self, ListenError};
use kendall_tier::{
    ACCEPT_PAUSE_NS, Accepted, Clock, ConnectionTable, Deadlines, Endpoint, Instruments, Key,
    Layout, Limit, Moments, Outcome, Read, Recorder, RequestType, Stop, Token, Waits, Waker, Write,
    precise_waits,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::time::Timespec;

use crate::connection::{CLIENT, Connection, SERVER};
use crate::control::Control;
use crate::delay_line::{End, Wire};
use crate::shape::{Fault, Shape, numbers};

#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// What listens where, and where it leads.
    pub routes: Vec<Route>,
    /// What all routes do to their bytes at the start.
    pub shape: Shape,
    pub seed: u64,
    pub limits: Limits,
}

/// One pair of addresses, both `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where it listens; port 0 is any free one.
    pub listen: String,
    pub to: String,
}

/// Bounds of a link. Each has a counter of how often it was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; further ones are reset.
    pub connections: usize,
    /// Bytes held in one direction of one connection; beyond it, nothing is read.
    pub buffer: usize,
    /// Bytes held in all; beyond it, every direction may hold only 4 KiB.
    pub buffers: usize,
    /// How long a server may take to accept a connection.
    pub connect_ns: u64,
    /// How much of the delay a graceful stop waits for.
    pub stop_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            buffer: 1024 * 1024,
            buffers: 256 * 1024 * 1024,
            connect_ns: 5_000_000_000,
            stop_ns: 10_000_000_000,
        }
    }
}

/// A link that cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the link has no route; give --listen and --to, or --route LISTEN=TO")]
    NoRoutes,
    #[error("`{address}` is not an address that can be reached; write it like `127.0.0.1:11211`")]
    Address { address: String, source: io::Error },
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("the link's event loop failed")]
    EventLoop(#[from] io::Error),
}

/// What every direction may hold when the bound of all buffers is reached, so that no connection
/// stops because of others.
const SMALL_SHARE: usize = 4 * 1024;
const SCRATCH: usize = 64 * 1024;
/// Reads and writes of one connection before others have their turn.
const TURNS: u32 = 16;
/// How far ahead of its bandwidth a wire is filled: the queue of the emulated sender.
const WIRE_AHEAD_NS: u64 = 20_000_000;
/// What one connection may put on a wire before others have their turn.
const WIRE_TURN_NS: u64 = 2_000_000;
/// Smallest read under a bandwidth limit: what one Ethernet frame carries.
const FRAME: u64 = 1448;
/// What a graceful stop may take beyond the delay.
const GRACE_NS: u64 = 2_000_000_000;

const CONTROL: u32 = 0;
const STOP: u32 = 1;
const FIRST_LISTENER: u32 = 2;

const PIECE: RequestType = RequestType(0);
const ACCEPTED: Outcome = Outcome(0);
const REFUSED: Outcome = Outcome(1);
const RESET: Outcome = Outcome(2);
const UNREACHABLE: Outcome = Outcome(3);
const LIMIT_CONNECTIONS: Limit = Limit(0);
const LIMIT_BUFFER: Limit = Limit(1);
const LIMIT_DESCRIPTORS: Limit = Limit(2);
const LIMIT_CONNECT_TIME: Limit = Limit(3);

/// A link that listens and is ready to [`run`](Link::run).
#[derive(Debug)]
pub struct Link {
    routes: Vec<Listening>,
    control: Control,
    instruments: Instruments,
    seed: u64,
    limits: Limits,
}

#[derive(Debug)]
struct Listening {
    listener: Option<TcpListener>,
    to: SocketAddr,
    shape: Shape,
    wires: [Wire; 2],
    /// Directions that wait for their turn on the wire, first come first served.
    waiting: [VecDeque<Key>; 2],
    /// Whether the kernel may have connections that were not accepted yet.
    pending: bool,
}

impl Link {
    pub fn bind(options: &LinkOptions) -> Result<Self, LinkError> {
        if options.routes.is_empty() {
            return Err(LinkError::NoRoutes);
        }
        let bound = options
            .routes
            .iter()
            .map(|route| Ok((listen(&route.listen)?, resolve(&route.to)?)))
            .collect::<Result<Vec<_>, LinkError>>()?;
        let mut addresses = Vec::new();
        for (listener, to) in &bound {
            addresses.push((listener.local_addr()?, *to));
        }
        let layout = Layout {
            tier: "link",
            request_types: &["piece"],
            outcomes: &["accepted", "refused", "reset", "unreachable"],
            limits: &["connections", "buffer", "descriptors", "connect_time"],
            ..Layout::default()
        };
        let wires = options.shape.bandwidth.map(|bytes_per_s| Wire { free_at_ns: 0, bytes_per_s });
        let routes = bound
            .into_iter()
            .map(|(listener, to)| Listening {
                listener: Some(listener),
                to,
                shape: options.shape,
                wires,
                waiting: [VecDeque::new(), VecDeque::new()],
                pending: false,
            })
            .collect();
        Ok(Self {
            routes,
            control: Control::new(addresses, options.shape)?,
            instruments: Instruments::new(layout, Clock::monotonic()),
            seed: options.seed,
            limits: options.limits,
        })
    }

    /// A handle that works before and while the link runs; its state holds the bound addresses.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What the link counts. `piece` is what one read returned; its waiting time is the delay that
    /// was asked for, its service time the link's own lateness, its response time what a byte
    /// lost in the link.
    pub fn instruments(&self) -> Instruments {
        self.instruments.clone()
    }

    /// Relays until `stop` is asked for; then delivers what it holds and closes.
    pub fn run(self, stop: &Stop) -> Result<(), LinkError> {
        let waker = stop.waker()?;
        Relay::new(self, waker)?.run()
    }
}

/// A moment at which something is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Bytes or an end of this direction are due.
    Line { key: Key, direction: usize },
    /// The server should have accepted by now.
    Connect { key: Key },
    /// A wire has space again.
    Wire { route: usize, direction: usize },
    /// Connections may be accepted again.
    Accept { route: usize },
    /// The graceful stop has taken long enough.
    Grace,
}

struct Relay {
    epoll: OwnedFd,
    clock: Clock,
    control: Control,
    control_version: u64,
    stop: Waker,
    routes: Vec<Listening>,
    connections: ConnectionTable<Connection>,
    timers: Deadlines<Timer>,
    waits: Waits,
    again: Vec<Key>,
    scratch: Box<[u8]>,
    held: usize,
    rng: Xoshiro256PlusPlus,
    limits: Limits,
    recorder: Recorder,
    stopping: bool,
    over: bool,
}

impl Relay {
    fn new(link: Link, stop: Waker) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wakeups = [(link.control.waker(), CONTROL), (&stop, STOP)];
        for (waker, number) in wakeups {
            epoll::add(&epoll, waker, Token::Special(number).data(), EventFlags::IN)?;
        }
        for (number, route) in (FIRST_LISTENER..).zip(&link.routes) {
            if let Some(listener) = &route.listener {
                let data = Token::Special(number).data();
                epoll::add(&epoll, listener, data, EventFlags::IN | EventFlags::ET)?;
            }
        }
        Ok(Self {
            epoll,
            clock: link.instruments.clock().clone(),
            control: link.control,
            control_version: 0,
            stop,
            routes: link.routes,
            connections: ConnectionTable::default(),
            timers: Deadlines::default(),
            waits: Waits::default(),
            again: Vec::new(),
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            held: 0,
            rng: numbers(link.seed),
            limits: link.limits,
            recorder: link.instruments.recorder(),
            stopping: false,
            over: false,
        })
    }

    fn run(mut self) -> Result<(), LinkError> {
        precise_waits()?;
        let mut events = Vec::with_capacity(256);
        while !self.over {
            let timeout = self.timeout();
            self.waits.wait(&self.epoll, &mut events, timeout, &self.clock)?;
            for event in events.drain(..) {
                self.event(Token::of(event.data.u64()), event.flags);
            }
            self.fire_timers();
            for key in std::mem::take(&mut self.again) {
                self.with(key, |relay, connection| {
                    connection.again = false;
                    relay.service(key, connection)
                });
            }
            self.over |= self.stopping && self.connections.is_empty();
        }
        Ok(())
    }

    /// How long to wait for events.
    fn timeout(&mut self) -> Option<Timespec> {
        if !self.again.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let due_ns = self.timers.next_ns()?;
        Some(self.waits.until(due_ns, self.clock.now_ns()))
    }

    fn event(&mut self, token: Token, flags: EventFlags) {
        let low = match token {
            Token::Special(low) => low,
            Token::Connection(key, end) => return self.announced(key, end, flags),
        };
        match low {
            CONTROL => self.take_control(),
            STOP => self.begin_stop(),
            listener => {
                let route = usize::try_from(listener - FIRST_LISTENER).unwrap_or(usize::MAX);
                self.routes[route].pending = true;
                self.accept(route);
            }
        }
    }

    fn announced(&mut self, key: Key, end: usize, flags: EventFlags) {
        self.with(key, |relay, connection| {
            connection.ends[end].announce(flags);
            if end == SERVER && !connection.connected && flags != EventFlags::IN {
                relay.connect_ended(connection);
            }
            relay.service(key, connection)
        });
    }

    fn fire_timers(&mut self) {
        while let Some((due_ns, timer)) = self.timers.pop_due(self.clock.now_ns()) {
            match timer {
                Timer::Line { key, direction } => {
                    self.with(key, |relay, connection| {
                        if connection.armed_ns[direction] == Some(due_ns) {
                            connection.armed_ns[direction] = None;
                        }
                        relay.service(key, connection)
                    });
                }
                Timer::Connect { key } => {
                    self.with(key, |relay, connection| {
                        if !connection.connected {
                            relay.recorder.limit_hit(LIMIT_CONNECT_TIME);
                            relay.recorder.outcome(UNREACHABLE, 1);
                            relay.reset_from(connection, SERVER);
                        }
                        relay.service(key, connection)
                    });
                }
                Timer::Wire { route, direction } => self.resume_wire(route, direction),
                Timer::Accept { route } => self.accept(route),
                Timer::Grace => self.over = true,
            }
        }
    }

    /// Takes a connection out of the table, works on it, and puts it back while it lives.
    fn with(&mut self, key: Key, work: impl FnOnce(&mut Self, &mut Connection) -> Alive) {
        let Some(mut connection) = self.connections.take(key) else { return };
        match work(self, &mut connection) {
            Alive::Yes => self.connections.put_back(key, connection),
            Alive::No => self.forget(key, &connection),
        }
    }

    /// Books the end of a connection, whose sockets close when it is dropped.
    fn forget(&mut self, key: Key, connection: &Connection) {
        self.held -= connection.held();
        let now_ns = self.clock.now_ns();
        let pieces: usize = connection.lines.iter().map(crate::delay_line::DelayLine::pieces).sum();
        self.recorder.queue_length.subtract(now_ns, as_u64(pieces));
        self.recorder.connections.subtract(now_ns, 1);
        self.connections.forget(key);
    }

    /// Reads and writes until nothing more can be done now.
    fn service(&mut self, key: Key, connection: &mut Connection) -> Alive {
        let mut turns = 0;
        loop {
            let mut progress = false;
            for direction in [CLIENT, SERVER] {
                progress |= self.fill(key, connection, direction);
                match self.drain(connection, direction) {
                    Drained::Something => progress = true,
                    Drained::Nothing => {}
                    Drained::Over => return Alive::No,
                }
            }
            if !progress {
                break;
            }
            turns += 1;
            if turns == TURNS {
                if !connection.again {
                    connection.again = true;
                    self.again.push(key);
                }
                return Alive::Yes;
            }
        }
        for direction in [CLIENT, SERVER] {
            self.arm(key, connection, direction);
        }
        Alive::Yes
    }

    /// Reads once from the end that `direction` comes from; whether there may be more.
    fn fill(&mut self, key: Key, connection: &mut Connection, direction: usize) -> bool {
        let line = &connection.lines[direction];
        let end = &connection.ends[direction];
        if !end.is_readable() || line.is_ended() || connection.finished[direction] {
            return false;
        }
        let share = if self.held >= self.limits.buffers { SMALL_SHARE } else { self.limits.buffer };
        if line.len() >= share {
            self.recorder.limit_hit(LIMIT_BUFFER);
            return false;
        }
        let Some(most) = self.turn_on_wire(key, connection, direction) else { return false };
        let most = most.min(share - line.len());
        let read = connection.ends[direction].read(&mut self.scratch[..most]);
        // Read the clock after the bytes: none of them was sent later than this.
        let now_ns = self.clock.now_ns();
        let route = &mut self.routes[connection.route];
        let line = &mut connection.lines[direction];
        match read {
            Read::Bytes(count) => {
                let pieces = line.pieces();
                let (wire, bytes) = (&mut route.wires[direction], &self.scratch[..count]);
                line.push(now_ns, bytes, &route.shape, wire, &mut self.rng);
                let pieces = as_u64(line.pieces() - pieces);
                self.held += count;
                if direction == CLIENT {
                    self.recorder.bytes_in(as_u64(count));
                }
                self.recorder.queue_length.add(now_ns, pieces);
                for _ in 0..pieces {
                    self.recorder.arrived(PIECE);
                }
                true
            }
            Read::Nothing => false,
            Read::Closed => {
                line.end(now_ns, End::Closed, &route.shape, &mut self.rng);
                true
            }
            Read::Reset => {
                self.reset_from(connection, direction);
                true
            }
        }
    }

    /// How much may be read now for the sake of the bandwidth; `None` when it is not yet the turn
    /// of this direction, which will be resumed.
    fn turn_on_wire(
        &mut self,
        key: Key,
        connection: &Connection,
        direction: usize,
    ) -> Option<usize> {
        let number = connection.route;
        let route = &mut self.routes[number];
        let Some(bytes_per_s) = route.wires[direction].bytes_per_s else { return Some(SCRATCH) };
        let now_ns = self.clock.now_ns();
        let ahead_ns = route.wires[direction].free_at_ns.saturating_sub(now_ns);
        let waiting = &mut route.waiting[direction];
        let first = waiting.front().is_none_or(|front| *front == key);
        if ahead_ns > WIRE_AHEAD_NS || !first {
            if waiting.is_empty() {
                let due_ns = route.wires[direction].free_at_ns - WIRE_AHEAD_NS / 2;
                self.timers.push(due_ns, Timer::Wire { route: number, direction });
            }
            if !waiting.contains(&key) {
                waiting.push_back(key);
            }
            return None;
        }
        let turn = (bytes_per_s / 1000).saturating_mul(WIRE_TURN_NS / 1_000_000).max(FRAME);
        Some(usize::try_from(turn).unwrap_or(SCRATCH).min(SCRATCH))
    }

    /// Lets those that wait for a wire have their turns until it is filled again.
    fn resume_wire(&mut self, number: usize, direction: usize) {
        let mut left = self.routes[number].waiting[direction].len();
        while left > 0 {
            left -= 1;
            let route = &mut self.routes[number];
            let Wire { free_at_ns, bytes_per_s } = route.wires[direction];
            let now_ns = self.clock.now_ns();
            if bytes_per_s.is_some() && free_at_ns > now_ns + WIRE_AHEAD_NS {
                break;
            }
            let Some(key) = route.waiting[direction].front().copied() else {
                break;
            };
            self.with(key, |relay, connection| {
                // Its turn: one read, and then behind the others.
                relay.fill(key, connection, direction);
                Alive::Yes
            });
            let waiting = &mut self.routes[number].waiting[direction];
            if waiting.front() == Some(&key) {
                waiting.pop_front();
            }
            self.with(key, |relay, connection| relay.service(key, connection));
        }
        let route = &self.routes[number];
        if !route.waiting[direction].is_empty() {
            let due_ns = route.wires[direction].free_at_ns.saturating_sub(WIRE_AHEAD_NS / 2);
            self.timers.push(due_ns, Timer::Wire { route: number, direction });
        }
    }

    /// Writes what is due in `direction`.
    fn drain(&mut self, connection: &mut Connection, direction: usize) -> Drained {
        let to = 1 - direction;
        let held = self.routes[connection.route].shape.fault == Fault::Stop;
        if held || connection.finished[direction] {
            return Drained::Nothing;
        }
        let ready = to == CLIENT || connection.connected;
        let line = &mut connection.lines[direction];
        let now_ns = self.clock.now_ns();
        let mut written = Drained::Nothing;
        while ready && connection.ends[to].is_writable() {
            let due = line.due(now_ns);
            if due.is_empty() {
                break;
            }
            match connection.ends[to].write(due) {
                Write::Bytes(count) => {
                    let (recorder, replied_ns) = (&mut self.recorder, self.clock.now_ns());
                    line.depart(count, |piece| {
                        recorder.queue_length.subtract(replied_ns, 1);
                        let moments = Moments {
                            arrived_ns: piece.read_at_ns,
                            dequeued_ns: piece.due_ns,
                            backend: None,
                            replied_ns,
                        };
                        recorder.completed(PIECE, &moments);
                    });
                    if to == CLIENT {
                        recorder.bytes_out(as_u64(count));
                    }
                    self.held -= count;
                    written = Drained::Something;
                }
                Write::Nothing => break,
                Write::Reset => {
                    self.reset_from(connection, to);
                    return Drained::Something;
                }
            }
        }
        match line.due_end(now_ns) {
            None => written,
            Some(End::Closed) => {
                if !ready {
                    return written;
                }
                connection.ends[to].close_writing();
                connection.finished[direction] = true;
                if connection.finished == [true, true] { Drained::Over } else { Drained::Something }
            }
            Some(End::Reset) => {
                self.recorder.outcome(RESET, 1);
                connection.reset_on_close();
                Drained::Over
            }
        }
    }

    /// The end `from` reset its connection: what it sent before still arrives, then the reset.
    fn reset_from(&mut self, connection: &mut Connection, from: usize) {
        let now_ns = self.clock.now_ns();
        let shape = self.routes[connection.route].shape;
        connection.lines[from].end(now_ns, End::Reset, &shape, &mut self.rng);
        connection.finished[from] = false;
        if from == SERVER && !connection.connected {
            // Nothing can be delivered to it any more, and nothing came from it.
            connection.connected = true;
        }
        let toward = &mut connection.lines[1 - from];
        self.held -= toward.len();
        self.recorder.queue_length.subtract(now_ns, as_u64(toward.pieces()));
        toward.discard();
        connection.finished[1 - from] = true;
    }

    /// Sets the timer of the next moment at which `direction` has something to write.
    fn arm(&mut self, key: Key, connection: &mut Connection, direction: usize) {
        let route = &self.routes[connection.route];
        let unconnected = direction == CLIENT && !connection.connected;
        let waits_for_event = !connection.ends[1 - direction].is_writable() || unconnected;
        if connection.finished[direction] || route.shape.fault == Fault::Stop {
            return;
        }
        let line = &connection.lines[direction];
        let only_end = line.len() == 0 && line.is_ended();
        let Some(due_ns) = line.next_due_ns() else { return };
        // The end of what the client sends waits for the connection to the server, too; a reset does not.
        let waits_to_close = unconnected && line.due_end(due_ns) == Some(End::Closed);
        if waits_for_event && (!only_end || waits_to_close) {
            return;
        }
        if connection.armed_ns[direction].is_none_or(|armed_ns| due_ns < armed_ns) {
            connection.armed_ns[direction] = Some(due_ns);
            self.timers.push(due_ns, Timer::Line { key, direction });
        }
    }
}

/// Connections come and go.
impl Relay {
    fn accept(&mut self, number: usize) {
        while self.routes[number].pending {
            let route = &mut self.routes[number];
            let Some(listener) = &route.listener else { return };
            if route.shape.fault == Fault::Stop {
                return;
            }
            match kendall_tier::accept(listener) {
                Accepted::Connection(socket) => self.accepted(number, socket),
                Accepted::Nobody => route.pending = false,
                Accepted::NoRoom => {
                    self.recorder.limit_hit(LIMIT_DESCRIPTORS);
                    let due_ns = self.clock.now_ns() + ACCEPT_PAUSE_NS;
                    return self.timers.push(due_ns, Timer::Accept { route: number });
                }
            }
        }
    }

    fn accepted(&mut self, number: usize, socket: OwnedFd) {
        let client = Endpoint::new(socket);
        let full = self.connections.len() >= self.limits.connections;
        if full {
            self.recorder.limit_hit(LIMIT_CONNECTIONS);
        }
        let route = &self.routes[number];
        if full || matches!(route.shape.fault, Fault::Cut | Fault::DropNew) {
            self.recorder.outcome(REFUSED, 1);
            return client.reset_on_close();
        }
        let Ok(server) = connect(route.to) else {
            self.recorder.limit_hit(LIMIT_DESCRIPTORS);
            return client.reset_on_close();
        };
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let inserted = self.connections.insert_with(|key| {
            let data = |end| Token::Connection(key, end).data();
            let registered = epoll::add(&self.epoll, client.socket(), data(CLIENT), interest)
                .and_then(|()| epoll::add(&self.epoll, server.socket(), data(SERVER), interest));
            match registered {
                Ok(()) => Ok(Connection::new(number, client, server)),
                Err(_) => Err(client),
            }
        });
        let key = match inserted {
            Ok(key) => key,
            Err(client) => {
                self.recorder.limit_hit(LIMIT_DESCRIPTORS);
                return client.reset_on_close();
            }
        };
        let now_ns = self.clock.now_ns();
        self.recorder.connections.add(now_ns, 1);
        self.recorder.outcome(ACCEPTED, 1);
        let due_ns = now_ns + self.limits.connect_ns;
        self.timers.push(due_ns, Timer::Connect { key });
    }

    fn connect_ended(&mut self, connection: &mut Connection) {
        match connection.ends[SERVER].connect_outcome() {
            Ok(()) => connection.connected = true,
            Err(_) => {
                self.recorder.outcome(UNREACHABLE, 1);
                self.reset_from(connection, SERVER);
            }
        }
    }

    /// Takes over what the control asks for.
    fn take_control(&mut self) {
        self.control.waker().clear();
        let Some(shapes) = self.control.newer_than(&mut self.control_version) else { return };
        for (number, shape) in shapes.into_iter().enumerate() {
            let now_ns = self.clock.now_ns();
            let route = &mut self.routes[number];
            let before = std::mem::replace(&mut route.shape, shape);
            if before.bandwidth != shape.bandwidth {
                for (direction, wire) in route.wires.iter_mut().enumerate() {
                    wire.free_at_ns = wire.free_at_ns.min(now_ns);
                    wire.bytes_per_s = shape.bandwidth[direction];
                    self.timers.push(now_ns, Timer::Wire { route: number, direction });
                }
            }
            if before.fault == shape.fault {
                continue;
            }
            tracing::info!(route = number, fault = ?shape.fault, "fault changed");
            for key in self.connections_of(number) {
                self.with(key, |relay, connection| {
                    if shape.fault == Fault::Cut {
                        relay.recorder.outcome(RESET, 1);
                        connection.reset_on_close();
                        return Alive::No;
                    }
                    relay.service(key, connection)
                });
            }
            self.accept(number);
        }
        self.control.taken_over(self.control_version);
    }

    /// Stops listening and reading; what is held still arrives.
    fn begin_stop(&mut self) {
        self.stop.clear();
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        let mut longest_ns = 0;
        for number in 0..self.routes.len() {
            self.routes[number].listener = None;
            let shape = self.routes[number].shape;
            longest_ns = longest_ns.max(shape.delay.as_nanos());
            for key in self.connections_of(number) {
                self.with(key, |relay, connection| {
                    if shape.fault == Fault::Stop || !connection.connected {
                        return Alive::No;
                    }
                    let now_ns = relay.clock.now_ns();
                    for line in connection.lines.iter_mut().filter(|line| !line.is_ended()) {
                        line.end(now_ns, End::Closed, &shape, &mut relay.rng);
                    }
                    relay.service(key, connection)
                });
            }
        }
        let due_ns = self.clock.now_ns() + longest_ns.min(self.limits.stop_ns) + GRACE_NS;
        self.timers.push(due_ns, Timer::Grace);
    }

    fn connections_of(&self, route: usize) -> Vec<Key> {
        let connections = self.connections.iter();
        connections
            .filter(|(_, connection)| connection.route == route)
            .map(|(key, _)| key)
            .collect()
    }
}

/// Whether a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alive {
    Yes,
    No,
}

/// What a turn of writing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drained {
    Something,
    Nothing,
    /// The connection is at its end.
    Over,
}

fn resolve(address: &str) -> Result<SocketAddr, LinkError> {
    kendall_tier::resolved(address)
        .map_err(|source| LinkError::Address { address: address.to_owned(), source })
}

fn listen(address: &str) -> Result<TcpListener, LinkError> {
    let option = "--listen HOST:PORT or --route LISTEN=TO";
    Ok(serve::bind(resolve(address)?, option)?.0)
}

/// Begins to connect; the event loop learns how it ended.
fn connect(to: SocketAddr) -> io::Result<Endpoint> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // As those have that are accepted.
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &to) {
        // A refusal that is known at once is announced by the event loop as an error, too.
        Ok(()) | Err(Errno::INPROGRESS | Errno::CONNREFUSED | Errno::INTR) => {
            Ok(Endpoint::new(socket))
        }
        Err(error) => Err(error.into()),
    }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
