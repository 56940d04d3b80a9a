//! The network thread: one loop over all sockets, which never blocks but for new events.
//!
//! A turn reads what there is, hands requests to servers and answers to clients, and then writes
//! each socket once: requests and answers of a turn share their system calls. The parts own what
//! they hold ([`Clients`], [`Requests`], [`Pools`], [`Door`]); what is here and in `accept`,
//! `dispatch` and `replies` is what passes from one to another.

use std::sync::Arc;

use kendall_protocols::memcached::Limits;
use kendall_tier::serve::OnceIn;
use kendall_tier::{Clock, Recorder, Stop, Waker};
use rustix::event::Timespec;
use rustix::io::Errno;

use crate::clients::Clients;
use crate::conn::ConnState;
use crate::listener::{Door, Listener};
use crate::liveness::Liveness;
use crate::memory;
use crate::options::{ANSWERS_LARGE, GET_LINE_BYTES, Options, READ_BYTES, TICK_NS};
use crate::plan::{Inbox, Plan};
use crate::poller::{EVENTS, Event, Events, Poller, Source, is_of};
use crate::pools::Pools;
use crate::report;
use crate::requests::Requests;
use crate::tools::Tools;

/// Time that clients have at a stop to take their last answers.
const DRAIN_NS: u64 = 5_000_000_000;
/// How often one turn handles what its own work led to, before it asks for events again. What is
/// left then is for the next turn, which does not wait: whatever clients and servers do, a turn
/// ends.
const PASSES: usize = 8;
/// Connections that a thread takes at once where there are others to take some.
const ACCEPT_SHARED: usize = 4;

/// Memory of answers of a thread's clients beyond which large ones wait.
fn large_memory(options: &Options) -> usize {
    ANSWERS_LARGE.max(8 * options.value_bytes) / options.threads.max(1) as usize
}

/// All state of a network thread.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) options: Arc<Options>,
    pub(crate) limits: Limits,
    pub(crate) tools: Tools,
    pub(crate) door: Door,
    pub(crate) clients: Clients,
    pub(crate) requests: Requests,
    pub(crate) pools: Pools,
    /// Which of the network threads it is.
    number: usize,
    inbox: Inbox,
    /// A plan for which there is no space yet.
    later: Option<Arc<Plan>>,
    waker: Waker,
    liveness: Liveness,
    next_tick_ns: u64,
    stopping: bool,
    /// Clients that speak TLS where it is not spoken, or the other way round.
    pub(crate) tls_alone: OnceIn,
}

/// What a turn uses and leaves empty.
pub(crate) struct Room {
    events: Events,
    scratch: Vec<u8>,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self { events: Events::new(), scratch: vec![0; READ_BYTES] }
    }
}

/// What an engine shares with those of other threads.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) plan: Arc<Plan>,
}

impl Engine {
    pub(crate) fn new(number: usize, shared: &Shared, recorder: Recorder) -> Result<Self, Errno> {
        let options = Arc::clone(&shared.plan.shares[number]);
        let poller = Poller::new()?;
        let waker = Waker::new().map_err(|_| Errno::MFILE)?;
        poller.add_waker(&waker)?;
        let at_once = if options.threads > 1 { ACCEPT_SHARED } else { EVENTS };
        let door = Door::new(shared.listeners.clone(), at_once, &poller)?;
        let mut tools = Tools::new(shared.clock.clone(), recorder, poller);
        let pools = Pools::new(&shared.plan, number, &mut tools);
        shared.plan.is_adopted();
        let mut clients = Clients::new();
        clients.bound(pools.servers(), large_memory(&options));
        Ok(Self {
            limits: Limits { value_bytes: options.value_bytes, get_line_bytes: GET_LINE_BYTES },
            tools,
            door,
            clients,
            requests: Requests::new(options.mode, options.queue_length),
            pools,
            number,
            inbox: Inbox::new(waker.clone()),
            later: None,
            waker,
            liveness: Liveness::default(),
            next_tick_ns: 0,
            stopping: false,
            tls_alone: OnceIn::a_minute(),
            options,
        })
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Where a new plan is put for it.
    pub(crate) fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    pub(crate) fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    /// Serves until the stop is asked for, and then until every request that was read is answered.
    pub(crate) fn run(&mut self, stop: &Stop) -> Result<(), Errno> {
        let mut room = Room::new();
        let mut drained_by_ns = u64::MAX;
        loop {
            let timeout = self.timeout();
            self.turn(&mut room, timeout.as_ref())?;
            if stop.requested() {
                if !self.stopping {
                    self.begin_stop();
                    drained_by_ns = self.tools.look() + DRAIN_NS;
                }
                if self.clients.len() == 0 || self.tools.look() >= drained_by_ns {
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
        self.liveness.rests();
        let waited = self.tools.poller.wait(&mut room.events, timeout);
        self.liveness.works();
        let count = waited?;
        self.clients.begin_turn();
        for event in room.events.drain() {
            self.handle(event, &mut room.scratch);
        }
        self.settle();
        if timeout.is_some() {
            self.tools.look();
        }
        if self.tools.now_ns >= self.next_tick_ns {
            self.tick();
            self.settle();
        }
        Ok(count)
    }

    /// How long to wait for events: not at all when a turn left work behind, without end when
    /// nothing can time out.
    fn timeout(&self) -> Option<Timespec> {
        if self.has_work() || self.clients.have_work_later() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let quiet = self.pools.in_flight() == 0 && self.pools.all_live();
        let waits = self.door.waits()
            || self.clients.have_shrunk()
            || self.clients.have_handshakes()
            || self.later.is_some()
            || self.clients.are_short_of_memory()
            || self.pools.has_retired();
        if quiet && !waits && !self.stopping {
            return None;
        }
        Some(Timespec { tv_sec: 0, tv_nsec: TICK_NS.cast_signed() })
    }

    /// Whether something can be done in this turn without another event.
    fn has_work(&self) -> bool {
        self.requests.have_work() || self.clients.have_work() || self.pools.have_work()
    }

    /// Whether the next turn has something to do without an event.
    #[cfg(test)]
    pub(crate) fn has_work_later(&self) -> bool {
        self.has_work() || self.clients.have_work_later()
    }

    /// Whether there is no client, no request, and nothing under way.
    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.clients.len() == 0
            && self.requests.are_at_rest()
            && (self.pools.in_flight() == 0 || !self.pools.all_live())
            && !self.pools.has_retired()
            && self.clients.answer_bytes() == 0
            && self.clients.request_bytes() == 0
            && !self.has_work_later()
    }

    fn handle(&mut self, event: Event, scratch: &mut [u8]) {
        match event.source {
            Source::Listener => self.accept(),
            Source::Waker => {
                self.tools.progress += 1;
                self.waker.clear();
                if let Some(plan) = self.inbox.take() {
                    self.adopt(plan);
                }
            }
            Source::Client { generation, index } => {
                if !self.clients.get(index).is_some_and(|c| is_of(c.generation, generation)) {
                    return;
                }
                if event.writable {
                    self.clients.mark_dirty(index);
                }
                if event.readable {
                    self.client_readable(index, scratch);
                }
            }
            Source::Conn { generation, pool, index } => {
                if pool >= self.pools.len() {
                    return;
                }
                let servers = &mut self.pools[pool];
                let Some(conn) = servers.known_conn(index) else { return };
                if !is_of(conn.generation, generation) {
                    return;
                }
                if conn.state == ConnState::Connecting {
                    return servers.connected(index, &mut self.tools);
                }
                if event.writable || event.failed {
                    servers.mark_dirty(index);
                }
                if event.readable {
                    self.conn_readable(pool, index, scratch);
                }
            }
        }
    }

    /// Works off what a turn left: requests for workers, input to resume, and all writes.
    ///
    /// Each list gets an item only when something happened that could change what becomes of it:
    /// bytes were read or written, a request of that client was answered. So the lists empty, and
    /// the bound on passes is for fairness.
    fn settle(&mut self) {
        for _ in 0..PASSES {
            self.take_losses();
            self.fill_workers();
            for client in self.clients.take_resuming() {
                self.client_resumed(client);
            }
            for pool in 0..self.pools.len() {
                let servers = &mut self.pools[pool];
                while let Some(conn) = servers.next_dirty() {
                    servers.write(conn, &mut self.tools);
                }
            }
            while let Some(client) = self.clients.next_dirty() {
                if self.clients.write(client, &mut self.tools) {
                    self.close_client(client);
                }
            }
            self.requests.free_workers(&mut self.tools);
            if !self.has_work() {
                return;
            }
        }
    }

    /// Goes by a new plan. What was dispatched before is finished as it was begun; what waits, and what
    /// comes, is dispatched by the new one.
    pub(crate) fn adopt(&mut self, plan: Arc<Plan>) {
        if plan.number <= self.pools.number() {
            // A later one came before there was space for it.
            return;
        }
        self.tools.look();
        if !self.pools.adopt(&plan, self.number, &mut self.tools) {
            self.later = Some(plan);
            return;
        }
        self.tools.progress += 1;
        self.options = Arc::clone(&plan.shares[self.number]);
        self.limits.value_bytes = self.options.value_bytes;
        self.requests.bound(self.options.queue_length);
        self.clients.bound(self.pools.servers(), large_memory(&self.options));
        self.door.set_tls(self.options.client_tls.as_ref());
        if !self.stopping {
            // There may be space for more clients.
            self.door.open(&mut self.tools);
        }
        if self.number == 0 {
            self.tools.recorder.outcome(report::RELOADS, 1);
        }
        plan.is_adopted();
    }

    fn accept(&mut self) {
        let room = self.options.connections.saturating_sub(self.clients.len());
        for stream in self.door.accept(room, &mut self.tools) {
            self.clients.add(stream, self.options.value_bytes, &mut self.tools);
        }
    }

    /// Forgets a client. Requests of it that are under way are finished.
    pub(crate) fn close_client(&mut self, index: usize) {
        let Some(client) = self.clients.remove(index, &mut self.tools) else { return };
        for id in client.pending {
            if let Some(entry) = self.requests.get_mut(id) {
                entry.forget_answer();
            }
            if self.requests.get(id).is_some_and(|entry| entry.done) {
                self.requests.remove(id);
            }
        }
        if !self.stopping {
            self.door.open(&mut self.tools);
        }
    }

    fn tick(&mut self) {
        self.next_tick_ns = self.tools.look() + TICK_NS;
        self.pools.check(&mut self.tools);
        self.pools.let_go();
        if let Some(plan) = self.later.take() {
            self.adopt(plan);
        }
        while let Some(index) = self.clients.overdue_handshake(self.tools.now_ns) {
            self.tools.recorder.limit_hit(report::HANDSHAKE);
            self.close_client(index);
        }
        while let Some(index) = self.clients.stalled(self.tools.now_ns) {
            self.tools.recorder.limit_hit(report::CLIENT_STALLED);
            self.close_client(index);
        }
        self.door.tick(&mut self.tools);
        if self.clients.stay_small(self.tools.now_ns) {
            memory::give_back();
            self.clients.gave_back();
        }
    }

    /// Accepts no more clients and no more requests; those that were read are finished.
    fn begin_stop(&mut self) {
        self.stopping = true;
        self.door.shut(&mut self.tools);
        for index in self.clients.indices() {
            if let Some(client) = self.clients.get_mut(index) {
                client.ended = true;
            }
            self.clients.mark_dirty(index);
        }
        self.settle();
    }
}
