//! The network thread: one loop over all sockets, which never blocks but for new events.
//!
//! A turn reads what there is, hands requests to servers and answers to clients, and then writes
//! each socket once: requests and answers of a turn share their system calls.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use kendall_protocols::memcached::{Limits, Ring};
use kendall_tier::{Clock, Instruments, Recorder, Stop, Waker};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::client::Client;
use crate::conn::{Conn, ConnState};
use crate::health::Backend;
use crate::options::{GET_LINE_BYTES, Mode, Options, READ_BYTES, TICK_NS};
use crate::pulse::Pulse;
use crate::report;
use crate::request::Entry;
use crate::slab::Slab;
use crate::socket::{self, Moved};

/// Events taken at once.
const EVENTS: usize = 512;
/// Time that clients have at a stop to take their last answers.
const DRAIN_NS: u64 = 5_000_000_000;
/// How often one turn looks at what its own work led to, before it looks for events again. What is
/// left then is for the next turn, which does not wait: whatever clients and servers do, a turn
/// ends.
const PASSES: usize = 8;
/// How long new connections are left alone when the system has no descriptor for them.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// What an event's number says: kind, generation, index.
const KIND_SHIFT: u32 = 60;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u64 = (1 << (KIND_SHIFT - GENERATION_SHIFT)) - 1;
const INDEX_MASK: u64 = (1 << GENERATION_SHIFT) - 1;
const LISTENER: u64 = 0;
const WAKER: u64 = 1;
const CLIENT: u64 = 2;
const CONN: u64 = 3;

/// The proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken or not ours.
    #[error("cannot listen at {address}; choose another with --listen HOST:PORT")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The system gives no descriptor.
    #[error("cannot make the event queue")]
    Events(#[source] io::Error),
}

/// A proxy that listens.
#[derive(Debug)]
pub struct Proxy {
    engine: Engine,
    address: SocketAddr,
    instruments: Instruments,
}

impl Proxy {
    /// Listens, and connects to the servers. A server that cannot be reached is probed until it
    /// can.
    ///
    /// # Errors
    /// [`StartError`] when the address cannot be used or the system is out of descriptors.
    pub fn bind(options: Options, clock: Clock) -> Result<Self, StartError> {
        raise_descriptor_limit();
        let address = options.listen;
        let (listener, address) = socket::listener(address)
            .map_err(|error| StartError::Listen { address, source: error.into() })?;
        let backends = options.servers.iter().map(ToString::to_string).collect();
        let instruments = Instruments::new(report::layout(backends), clock);
        if let Mode::Workers(workers) = options.mode {
            instruments.set_workers(workers);
        }
        let engine = Engine::new(options, listener, &instruments)
            .map_err(|error| StartError::Events(error.into()))?;
        Ok(Self { engine, address, instruments })
    }

    /// Where clients connect, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it counts.
    #[must_use]
    pub fn instruments(&self) -> &Instruments {
        &self.instruments
    }

    /// Shows whether the network thread works on something and does not come to an end of it.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.engine.pulse.clone()
    }

    /// Serves until the stop is asked for, and then until every request that was read is
    /// answered.
    ///
    /// # Errors
    /// When waiting for events fails.
    pub fn run(mut self, stop: &Stop) -> io::Result<()> {
        stop.register(&self.engine.waker);
        self.engine.run(stop)?;
        Ok(())
    }
}

/// All state of the network thread.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    epoll: OwnedFd,
    listener: Option<OwnedFd>,
    waker: Waker,
    pub(crate) clients: Slab<Client>,
    generation: u64,
    /// By lane, then by server; behind them one a server for probes.
    pub(crate) conns: Vec<Conn>,
    pub(crate) lanes: usize,
    pub(crate) backends: Vec<Backend>,
    /// Servers that are asked.
    pub(crate) live: Vec<usize>,
    pub(crate) ring: Option<Ring>,
    pub(crate) entries: Slab<Entry>,
    /// Requests that wait for a worker.
    pub(crate) queue: VecDeque<usize>,
    /// Workers without a request.
    pub(crate) idle: Vec<usize>,
    /// Workers whose answer is whole and not written yet. A worker writes its answer before it
    /// takes the next request: it is busy for the whole of the service time.
    pub(crate) freed: Vec<usize>,
    pub(crate) turn: usize,
    pub(crate) dirty_clients: Vec<usize>,
    pub(crate) dirty_conns: Vec<usize>,
    /// Clients whose input is looked at again.
    pub(crate) resuming: Vec<usize>,
    /// Connections whose input is looked at again.
    pub(crate) released: Vec<usize>,
    /// Clients that hold connections up.
    pub(crate) holding: Vec<usize>,
    /// Bytes of answers and of unfinished requests that all clients leave with the proxy.
    pub(crate) answer_bytes: usize,
    pub(crate) request_bytes: usize,
    pub(crate) in_flight: usize,
    pub(crate) now_ns: u64,
    next_tick_ns: u64,
    pub(crate) stopping: bool,
    accepting: bool,
    accept_again_ns: u64,
    /// Grows whenever something came closer to its end: bytes moved, a request was answered, a
    /// connection opened or closed, an interest in events changed.
    pub(crate) progress: u64,
    pulse: Pulse,
}

/// What a turn uses and leaves empty.
pub(crate) struct Room {
    events: Vec<epoll::Event>,
    scratch: Vec<u8>,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self { events: Vec::with_capacity(EVENTS), scratch: vec![0; READ_BYTES] }
    }
}

impl Engine {
    pub(crate) fn new(
        options: Options,
        listener: OwnedFd,
        instruments: &Instruments,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = Waker::new().map_err(|_| Errno::MFILE)?;
        epoll::add(&epoll, &listener, token(LISTENER, 0, 0), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &waker, token(WAKER, 0, 0), epoll::EventFlags::IN)?;
        let servers = options.servers.len();
        let (lanes, idle) = match options.mode {
            Mode::Workers(workers) => {
                let workers = workers.max(1) as usize;
                (workers, (0..workers).rev().collect())
            }
            Mode::Pipelined { connections } => (connections.max(1) as usize, Vec::new()),
        };
        let limits = Limits { value_bytes: options.value_bytes, get_line_bytes: GET_LINE_BYTES };
        let mut engine = Self {
            limits,
            clock: instruments.clock().clone(),
            recorder: instruments.recorder(),
            epoll,
            listener: Some(listener),
            waker,
            clients: Slab::new(),
            generation: 0,
            conns: (0..(lanes + 1) * servers).map(|conn| Conn::new(conn % servers)).collect(),
            lanes,
            backends: options.servers.iter().map(|address| Backend::new(*address)).collect(),
            live: Vec::new(),
            ring: None,
            entries: Slab::new(),
            queue: VecDeque::new(),
            idle,
            freed: Vec::new(),
            turn: 0,
            dirty_clients: Vec::new(),
            dirty_conns: Vec::new(),
            resuming: Vec::new(),
            released: Vec::new(),
            holding: Vec::new(),
            answer_bytes: 0,
            request_bytes: 0,
            in_flight: 0,
            now_ns: instruments.clock().now_ns(),
            next_tick_ns: 0,
            stopping: false,
            accepting: true,
            accept_again_ns: 0,
            progress: 0,
            pulse: Pulse::default(),
            options,
        };
        engine.servers_changed();
        for conn in 0..engine.lanes * servers {
            engine.open(conn);
        }
        Ok(engine)
    }

    fn run(&mut self, stop: &Stop) -> Result<(), Errno> {
        let mut room = Room::new();
        let mut drained_by_ns = u64::MAX;
        loop {
            let timeout = self.timeout();
            self.turn(&mut room, timeout.as_ref())?;
            if stop.requested() {
                if !self.stopping {
                    self.begin_stop();
                    drained_by_ns = self.clock.now_ns() + DRAIN_NS;
                    self.settle();
                }
                if self.clients.len() == 0 || self.clock.now_ns() >= drained_by_ns {
                    return Ok(());
                }
            }
        }
    }

    /// Waits for events, and does what they ask for; says how many there were.
    pub(crate) fn turn(
        &mut self,
        room: &mut Room,
        timeout: Option<&Timespec>,
    ) -> Result<usize, Errno> {
        room.events.clear();
        self.pulse.rests();
        let waited = epoll::wait(&self.epoll, spare_capacity(&mut room.events), timeout);
        self.pulse.works();
        match waited {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let count = room.events.len();
        for event in room.events.drain(..) {
            self.handle(event, &mut room.scratch);
        }
        self.settle();
        if timeout.is_some() {
            self.now_ns = self.clock.now_ns();
        }
        if self.now_ns >= self.next_tick_ns {
            self.tick();
            self.settle();
        }
        Ok(count)
    }

    /// How long to wait for events: not at all when a turn left work behind, without end when
    /// nothing can time out.
    fn timeout(&self) -> Option<Timespec> {
        if self.has_work() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let all_live = self.live.len() == self.backends.len();
        let quiet = self.in_flight == 0 && all_live && self.holding.is_empty();
        if quiet && self.accept_again_ns == 0 && !self.stopping {
            return None;
        }
        Some(Timespec { tv_sec: 0, tv_nsec: TICK_NS.cast_signed() })
    }

    /// Whether something can be done without another event.
    pub(crate) fn has_work(&self) -> bool {
        (!self.queue.is_empty() && !self.idle.is_empty())
            || !self.resuming.is_empty()
            || !self.released.is_empty()
            || !self.dirty_conns.is_empty()
            || !self.dirty_clients.is_empty()
    }

    /// Whether there is no client, no request, and nothing under way.
    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> bool {
        let workers_rest = match self.options.mode {
            Mode::Workers(_) => self.idle.len() == self.lanes,
            Mode::Pipelined { .. } => true,
        };
        let probes = self.live.len() < self.backends.len();
        self.clients.len() == 0
            && self.entries.len() == 0
            && self.queue.is_empty()
            && workers_rest
            && (self.in_flight == 0 || probes)
            && self.answer_bytes == 0
            && self.request_bytes == 0
            && self.holding.is_empty()
            && !self.has_work()
    }

    fn handle(&mut self, event: epoll::Event, scratch: &mut [u8]) {
        let number = event.data.u64();
        let generation = (number >> GENERATION_SHIFT) & GENERATION_MASK;
        let index = index(number & INDEX_MASK);
        let flags = event.flags;
        let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        let readable = flags.contains(epoll::EventFlags::IN) || failed;
        let writable = flags.contains(epoll::EventFlags::OUT);
        match number >> KIND_SHIFT {
            LISTENER => self.accept(),
            WAKER => self.waker.clear(),
            CLIENT => {
                let is_this = |client: &Client| client.generation & GENERATION_MASK == generation;
                if !self.clients.get(index).is_some_and(is_this) {
                    return;
                }
                if writable {
                    self.client_is_dirty(index);
                }
                if readable {
                    self.client_readable(index, scratch);
                }
            }
            _ => {
                let conn = &self.conns[index];
                if conn.generation & GENERATION_MASK != generation {
                    return;
                }
                if conn.state == ConnState::Connecting {
                    self.connected(index);
                } else {
                    if writable || failed {
                        self.conn_is_dirty(index);
                    }
                    if readable && !self.conns[index].held {
                        self.conn_readable(index, scratch);
                    }
                }
            }
        }
    }

    /// Works off what a turn left: requests for workers, input to look at again, and all writes.
    ///
    /// Each list gets an item only when something happened that could change what becomes of it:
    /// bytes were read or written, a request of that client was answered, a connection was
    /// released. So the lists empty, and the bound on passes is for fairness.
    fn settle(&mut self) {
        for _ in 0..PASSES {
            self.fill_workers();
            for conn in std::mem::take(&mut self.released) {
                self.conn_released(conn);
            }
            for client in std::mem::take(&mut self.resuming) {
                self.client_resumed(client);
            }
            self.fill_workers();
            while let Some(conn) = self.dirty_conns.pop() {
                self.write_conn(conn);
            }
            while let Some(client) = self.dirty_clients.pop() {
                self.write_client(client);
            }
            self.free_workers();
            if !self.has_work() {
                return;
            }
        }
    }

    /// Their answers are written.
    fn free_workers(&mut self) {
        let freed = self.freed.len() as u64;
        if freed > 0 {
            self.recorder.workers_busy.subtract(self.now_ns, freed);
        }
        match self.options.mode {
            Mode::Workers(_) => self.idle.append(&mut self.freed),
            Mode::Pipelined { .. } => self.freed.clear(),
        }
    }

    fn accept(&mut self) {
        for _ in 0..EVENTS {
            let Some(listener) = &self.listener else { return };
            if self.clients.len() >= self.options.connections {
                self.recorder.limit_hit(report::CONNECTIONS);
                self.stop_accepting();
                return;
            }
            match socket::accept(listener) {
                Ok(socket) => self.add_client(socket),
                Err(Errno::AGAIN) => return,
                // Of that one client.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                Err(_) => {
                    // No descriptor, no memory: the listener stays readable, and nobody may ever
                    // close.
                    self.recorder.limit_hit(report::CONNECTIONS);
                    self.stop_accepting();
                    self.accept_again_ns = self.clock.now_ns() + ACCEPT_PAUSE_NS;
                    return;
                }
            }
        }
    }

    fn add_client(&mut self, socket: OwnedFd) {
        self.generation += 1;
        self.progress += 1;
        let generation = self.generation;
        let index = self.clients.insert(Client::new(socket, generation));
        let Some(client) = self.clients.get(index) else { return };
        let data = token(CLIENT, generation, index);
        if epoll::add(&self.epoll, &client.socket, data, epoll::EventFlags::IN).is_err() {
            self.clients.remove(index);
            return;
        }
        let now_ns = self.clock.now_ns();
        self.recorder.connections.add(now_ns, 1);
    }

    /// Leaves new connections in the system's queue until one closes.
    fn stop_accepting(&mut self) {
        if let (true, Some(listener)) = (self.accepting, &self.listener) {
            let none = epoll::EventFlags::empty();
            let set = epoll::modify(&self.epoll, listener, token(LISTENER, 0, 0), none);
            self.accepting = set.is_err();
        }
    }

    fn start_accepting(&mut self) {
        if let (false, Some(listener)) = (self.accepting, &self.listener) {
            let flags = epoll::EventFlags::IN;
            let set = epoll::modify(&self.epoll, listener, token(LISTENER, 0, 0), flags);
            self.accepting = set.is_ok();
        }
        self.accept_again_ns = 0;
    }

    pub(crate) fn close_client(&mut self, index: usize) {
        let Some(client) = self.clients.remove(index) else { return };
        self.progress += 1;
        self.answer_bytes -= client.buffered.min(self.answer_bytes);
        self.request_bytes -= client.input.len().min(self.request_bytes);
        for id in client.pending {
            if self.entries.get(id).is_some_and(|entry| entry.done) {
                self.entries.remove(id);
            }
        }
        for conn in client.holds {
            self.released.push(conn);
        }
        self.holding.retain(|held| *held != index);
        let now_ns = self.clock.now_ns();
        self.recorder.connections.subtract(now_ns, 1);
        self.start_accepting();
    }

    /// Writes what a client has to get, and closes it when that was the last.
    fn write_client(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        client.dirty = false;
        let mut blocked = false;
        let mut moved = false;
        while client.out_start < client.out.len() {
            match socket::write(&client.socket, &client.out[client.out_start..]) {
                Moved::Bytes(count) => {
                    moved = true;
                    self.progress += 1;
                    self.recorder.bytes_out(count as u64);
                    self.answer_bytes -= count.min(self.answer_bytes);
                    client.wrote(count);
                }
                Moved::Later => {
                    blocked = true;
                    break;
                }
                Moved::Closed => {
                    // It takes no answers any more. What it sent is carried out all the same.
                    moved = true;
                    self.progress += 1;
                    self.answer_bytes -= client.buffered.min(self.answer_bytes);
                    client.forget_answers();
                }
            }
        }
        if client.marks.front().is_some_and(|mark| mark.end <= client.written) {
            self.now_ns = self.clock.now_ns();
            while let Some(mark) = client.marks.front() {
                if mark.end > client.written {
                    break;
                }
                let mut moments = mark.moments;
                moments.replied_ns = self.now_ns;
                self.recorder.completed(mark.request, &moments);
                client.marks.pop_front();
            }
        }
        if client.is_over() {
            return self.close_client(index);
        }
        let wants_read = client.takes_input();
        if client.wants_write != blocked || client.wants_read != wants_read {
            self.watch_client(index, wants_read, blocked);
        }
        if moved {
            self.release_conns(index);
            self.client_may_go_on(index);
        }
    }

    /// Tells the system which events of a client matter now. Of a socket that nothing is expected
    /// from it is told to watch nothing: it would report a broken connection again and again.
    pub(crate) fn watch_client(&mut self, index: usize, read: bool, write: bool) {
        let Some(client) = self.clients.get_mut(index) else { return };
        self.progress += 1;
        client.wants_read = read;
        client.wants_write = write;
        let data = token(CLIENT, client.generation, index);
        let is_watched = watch(&self.epoll, &client.socket, client.watched, data, (read, write));
        match is_watched {
            Ok(watched) => client.watched = watched,
            Err(_) => self.close_client(index),
        }
    }

    /// The same for a connection to a server; says whether it could be told.
    pub(crate) fn watch_conn(&mut self, index: usize, read: bool, write: bool) -> bool {
        let conn = &mut self.conns[index];
        self.progress += 1;
        conn.wants_write = write;
        let Some(socket) = &conn.socket else { return false };
        let data = token(CONN, conn.generation, index);
        let is_watched = watch(&self.epoll, socket, conn.watched, data, (read, write));
        conn.watched = is_watched == Ok(true);
        is_watched.is_ok()
    }

    #[inline]
    pub(crate) fn client_is_dirty(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index)
            && !client.dirty
        {
            client.dirty = true;
            self.dirty_clients.push(index);
        }
    }

    #[inline]
    pub(crate) fn conn_is_dirty(&mut self, index: usize) {
        if !self.conns[index].dirty {
            self.conns[index].dirty = true;
            self.dirty_conns.push(index);
        }
    }

    fn tick(&mut self) {
        self.now_ns = self.clock.now_ns();
        self.next_tick_ns = self.now_ns + TICK_NS;
        self.check_servers();
        self.check_holding();
        if self.accept_again_ns > 0 && self.now_ns >= self.accept_again_ns {
            self.start_accepting();
        }
    }

    /// Accepts no more clients and no more requests; those that were read are finished.
    fn begin_stop(&mut self) {
        self.stopping = true;
        self.listener = None;
        for index in self.clients.indices() {
            if let Some(client) = self.clients.get_mut(index) {
                client.ended = true;
            }
            self.client_is_dirty(index);
        }
    }
}

/// Has a socket watched for reading and writing, or not at all; says whether it is watched now.
fn watch(
    epoll: &OwnedFd,
    socket: &OwnedFd,
    watched: bool,
    data: epoll::EventData,
    (read, write): (bool, bool),
) -> Result<bool, Errno> {
    match (watched, read || write) {
        (false, false) => {}
        (false, true) => epoll::add(epoll, socket, data, flags(read, write))?,
        (true, true) => epoll::modify(epoll, socket, data, flags(read, write))?,
        (true, false) => epoll::delete(epoll, socket)?,
    }
    Ok(read || write)
}

fn flags(read: bool, write: bool) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, read);
    flags.set(epoll::EventFlags::OUT, write);
    flags
}

fn token(kind: u64, generation: u64, index: usize) -> epoll::EventData {
    let generation = (generation & GENERATION_MASK) << GENERATION_SHIFT;
    epoll::EventData::new_u64((kind << KIND_SHIFT) | generation | index as u64)
}

#[expect(clippy::cast_possible_truncation, reason = "it was a usize before")]
fn index(number: u64) -> usize {
    number as usize
}

/// Each client and server connection is a descriptor: takes as many as the system allows.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap_or_default();
}
