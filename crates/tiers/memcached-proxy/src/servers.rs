//! The servers, the connections to them, and which of them a key is asked of.

use std::sync::Arc;

use kendall_protocols::memcached::{Command, Framing, Request, Ring, keys};
use kendall_tier::serve::OnceIn;
use rustix::io::Errno;
use rustls::pki_types::ServerName;

use crate::admission::Size;
use crate::conn::{Conn, ConnState, InFlight, Role};
use crate::options::{Address, COUNT_EVERY, Mode, Options, Placement};
use crate::options::{SHADOW_BYTES, SHADOW_REQUESTS};
use crate::plan::Planned;
use crate::poller::{Interest, Source};
use crate::report;
use crate::request::Part;
use crate::socket::{self, Moved, Stream, Tls};
use crate::tls::ServerTls;
use crate::tools::Tools;
use crate::unique::{Incarnations, Origin};

/// Why a server did not answer, in words for the client.
pub(crate) const REFUSED: &[u8] = b"SERVER_ERROR backend refused the connection\r\n";
/// The proxy's own lack, which tells nothing of the server.
pub(crate) const NO_DESCRIPTOR: &[u8] =
    b"SERVER_ERROR the proxy has no descriptor left for a connection to the server\r\n";
pub(crate) const CLOSED: &[u8] = b"SERVER_ERROR backend closed the connection\r\n";
pub(crate) const NOISE: &[u8] = b"SERVER_ERROR backend sent a reply to no request in flight\r\n";
pub(crate) const TIMED_OUT: &[u8] = b"SERVER_ERROR backend timed out\r\n";
pub(crate) const EJECTED: &[u8] = b"SERVER_ERROR backend was ejected\r\n";

#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) address: Address,
    weight: u32,
    /// The number under which it is counted.
    pub(crate) counter: usize,
    /// It is asked only for what the others cannot be asked for.
    is_failover: bool,
    pub(crate) is_live: bool,
    /// Failures since it last answered.
    pub(crate) failures: u32,
    pub(crate) probe_at_ns: u64,
}

/// A request that a server did not answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) request: usize,
    pub(crate) role: Role,
    pub(crate) server: usize,
    /// The server broke off within a value that is with the client already.
    pub(crate) torn: bool,
    pub(crate) why: &'static [u8],
}

/// How the servers are used: what the options say of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) placement: Placement,
    pub(crate) shard_multigets: bool,
    pub(crate) hash_tag: Option<[u8; 2]>,
    pub(crate) timeout_ns: u64,
    pub(crate) eject_after: u32,
    pub(crate) probe_every_ns: u64,
    /// Connections that were closed are opened before they are needed.
    pub(crate) keeps_open: bool,
    /// They get copies of requests, and their answers are dropped.
    pub(crate) is_shadow: bool,
}

#[derive(Debug)]
pub(crate) struct Servers {
    /// Their number among the pools.
    place: usize,
    /// By lane, then by server; behind them one a server for probes.
    conns: Vec<Conn>,
    lanes: usize,
    /// Where lanes are shared: so many for each size of answers. 0 where each has a worker of its own.
    lanes_a_size: usize,
    pub(crate) backends: Vec<Backend>,
    live: Vec<usize>,
    ring: Ring,
    failover_ring: Ring,
    pub(crate) policy: Policy,
    incarnations: Incarnations,
    tls: Option<ServerTls>,
    turn: usize,
    dirty: Vec<usize>,
    lost: Vec<Lost>,
    in_flight: usize,
    /// How often no descriptor was left since that was logged.
    short_of_descriptors: OnceIn,
}

impl Servers {
    /// Those of a pool, and begins to connect.
    pub(crate) fn new(
        planned: &Planned,
        options: &Options,
        place: usize,
        tools: &mut Tools,
    ) -> Self {
        let pool = &planned.pool;
        let main = pool.servers.iter().map(|server| (server, false));
        let failover = pool.failover.iter().map(|server| (server, true));
        let backends: Vec<Backend> = main
            .chain(failover)
            .zip(planned.counters.iter())
            .map(|((server, is_failover), counter)| Backend {
                address: server.address.clone(),
                weight: server.weight,
                counter: *counter,
                is_failover,
                is_live: true,
                failures: 0,
                probe_at_ns: 0,
            })
            .collect();
        let (lanes, lanes_a_size) = if planned.is_shadow { (1, 0) } else { options.lanes() };
        let nanoseconds =
            |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let count = backends.len();
        let policy = Policy {
            placement: pool.placement,
            shard_multigets: pool.shard_multigets,
            hash_tag: pool.hash_tag,
            timeout_ns: nanoseconds(pool.timeout),
            eject_after: pool.eject_after,
            probe_every_ns: nanoseconds(pool.probe_every),
            keeps_open: matches!(options.mode, Mode::Workers(_)),
            is_shadow: planned.is_shadow,
        };
        let conns = (0..(lanes + 1) * count).map(|conn| Conn::new(conn % count)).collect();
        let incarnations = planned.incarnations.clone();
        let mut servers = Self {
            place,
            conns,
            lanes,
            lanes_a_size,
            backends,
            tls: pool.tls.clone(),
            ..Self::unused(policy, incarnations)
        };
        servers.changed();
        // Those for large answers, and answers of unknown size, are opened when there are such.
        let at_once = if lanes_a_size > 0 { lanes_a_size } else { lanes };
        for conn in 0..at_once * count {
            servers.open(conn, tools);
        }
        servers
    }

    pub(crate) fn none() -> Self {
        let policy = Policy {
            placement: Placement::Replicate,
            shard_multigets: false,
            hash_tag: None,
            timeout_ns: 0,
            eject_after: 1,
            probe_every_ns: 0,
            keeps_open: false,
            is_shadow: false,
        };
        Self::unused(policy, Incarnations::new(0, 0, Arc::default()))
    }

    fn unused(policy: Policy, incarnations: Incarnations) -> Self {
        Self {
            place: 0,
            conns: Vec::new(),
            lanes: 0,
            lanes_a_size: 0,
            backends: Vec::new(),
            live: Vec::new(),
            ring: Ring::empty(),
            failover_ring: Ring::empty(),
            policy,
            incarnations,
            tls: None,
            turn: 0,
            dirty: Vec::new(),
            lost: Vec::new(),
            in_flight: 0,
            short_of_descriptors: OnceIn::a_second(),
        }
    }

    /// Takes note of which servers are asked.
    pub(crate) fn changed(&mut self) {
        let live = |failover: bool| -> Vec<usize> {
            let asked = |backend: &Backend| backend.is_live && backend.is_failover == failover;
            (0..self.backends.len()).filter(|s| asked(&self.backends[*s])).collect()
        };
        let mut now = live(false);
        if self.policy.placement == Placement::Hash || now.is_empty() {
            now.extend(live(true));
        }
        self.live = now;
        if self.policy.placement == Placement::Hash {
            let points: Vec<(String, u32)> =
                self.backends.iter().map(|b| (b.address.point_name(), b.weight)).collect();
            let names: Vec<(&str, u32)> = points.iter().map(|(n, w)| (n.as_str(), *w)).collect();
            let has_failover = self.backends.iter().any(|backend| backend.is_failover);
            // Without other servers to ask, the keys of one that is ejected go to those left.
            self.ring = Ring::weighted(&names, |server| {
                let backend = &self.backends[server];
                !backend.is_failover && (backend.is_live || has_failover)
            });
            self.failover_ring = Ring::weighted(&names, |server| {
                let backend = &self.backends[server];
                backend.is_failover && backend.is_live
            });
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.backends.len()
    }

    pub(crate) fn live(&self) -> &[usize] {
        &self.live
    }

    pub(crate) fn all_live(&self) -> bool {
        self.backends.iter().all(|backend| backend.is_live)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// The shared lane of a client, for answers of a size.
    pub(crate) fn shared_lane(&self, client: usize, size: Size) -> usize {
        let first = match size {
            Size::Small => 0,
            Size::Large => self.lanes_a_size,
            Size::Unknown => 2 * self.lanes_a_size,
        };
        first + client % self.lanes_a_size.max(1)
    }

    pub(crate) fn next_in_turn(&mut self) -> usize {
        self.turn = self.turn.wrapping_add(1);
        self.live[self.turn % self.live.len()]
    }

    /// The only server that the options allow for the keys of a request, or the next in turn.
    pub(crate) fn any_for(&mut self, key: &[u8], in_turn: bool) -> usize {
        match self.policy.placement {
            Placement::Hash => self.of_key(key),
            Placement::Replicate if in_turn => self.next_in_turn(),
            Placement::Replicate => self.live[0],
        }
    }

    /// The servers that a change of a key goes to.
    pub(crate) fn all_for(&self, key: &[u8]) -> Vec<usize> {
        match self.policy.placement {
            Placement::Hash if self.live.is_empty() => Vec::new(),
            Placement::Hash => vec![self.of_key(key)],
            Placement::Replicate => self.live.clone(),
        }
    }

    /// Splits keys as evenly as can be over the servers, each a run of the client's keys. Which
    /// server gets the first run changes from request to request.
    pub(crate) fn shards(&mut self, keys: usize) -> Vec<Part> {
        let servers = self.live.len().min(keys);
        self.turn = self.turn.wrapping_add(1);
        let mut parts = Vec::with_capacity(servers);
        let mut from = 0;
        for shard in 0..servers {
            let count = keys / servers + usize::from(shard < keys % servers);
            let server = self.live[(self.turn + shard) % self.live.len()];
            let keys = (from..from + count).collect();
            parts.push(Part { pool: self.place, server, keys, ..Part::default() });
            from += count;
        }
        parts
    }

    /// The server that holds a key, or its replacement.
    pub(crate) fn of_key(&self, key: &[u8]) -> usize {
        let first = self.live[0];
        let key = self.policy.hash_tag.map_or(key, |tag| tagged(key, tag));
        let Some(server) = self.ring.server(key) else { return first };
        if self.backends[server].is_live {
            return server;
        }
        self.failover_ring.server(key).unwrap_or(first)
    }

    /// The keys of a request by the server that holds them; of those with the numbers of `wanted`,
    /// where there are such.
    pub(crate) fn placed(
        &self,
        request: &Request,
        bytes: &[u8],
        wanted: Option<&[usize]>,
    ) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut wanted = wanted.map(|wanted| wanted.iter().peekable());
        for (number, key) in keys(request, bytes).enumerate() {
            if let Some(wanted) = &mut wanted
                && wanted.next_if(|next| **next == number).is_none()
            {
                continue;
            }
            let server = self.of_key(key);
            match parts.iter_mut().find(|part| part.server == server) {
                Some(part) => part.keys.push(number),
                None => parts.push(Part {
                    pool: self.place,
                    server,
                    keys: vec![number],
                    ..Part::default()
                }),
            }
        }
        parts
    }

    pub(crate) fn origin(&self, server: usize) -> Origin {
        Origin {
            servers: self.backends.len() as u64,
            server: server as u64,
            incarnation: self.incarnations.of(server),
        }
    }

    pub(crate) fn number(&self, lane: usize, server: usize) -> usize {
        lane * self.backends.len() + server
    }

    pub(crate) fn conn(&self, index: usize) -> &Conn {
        &self.conns[index]
    }

    /// The connection of an event, unless it went with its pool.
    pub(crate) fn known_conn(&self, index: usize) -> Option<&Conn> {
        self.conns.get(index)
    }

    pub(crate) fn conn_mut(&mut self, index: usize) -> &mut Conn {
        &mut self.conns[index]
    }

    /// Begins to connect. A refusal at once counts as a failure. Says why, where the connection stays closed.
    fn open(&mut self, index: usize, tools: &mut Tools) -> &'static [u8] {
        let server = self.conns[index].server;
        match socket::connecting(&self.backends[server].address) {
            Ok((socket, made)) => {
                let tls = match (&self.tls, &self.backends[server].address) {
                    (Some(tls), Address::Tcp(address)) => {
                        let tls = Tls::connecting(tls, ServerName::from(address.ip()));
                        if tls.is_none() {
                            self.count_failure(index, tools);
                            return REFUSED;
                        }
                        tls
                    }
                    _ => None,
                };
                let conn = &mut self.conns[index];
                conn.stream = Some(Stream::new(socket, tls));
                conn.state = if made { ConnState::Open } else { ConnState::Connecting };
                conn.progress_ns = tools.now_ns;
                if !self.watch(index, Interest { read: true, write: !made }, tools) {
                    self.fail(index, REFUSED, tools);
                }
            }
            Err(Errno::MFILE | Errno::NFILE) => {
                self.say_short_of_descriptors(tools.now_ns);
                return NO_DESCRIPTOR;
            }
            Err(_) => self.count_failure(index, tools),
        }
        REFUSED
    }

    /// Logs that no descriptor is left, once a second.
    fn say_short_of_descriptors(&mut self, now_ns: u64) {
        if self.short_of_descriptors.count(now_ns).is_some() {
            tracing::warn!(
                "no descriptor is left for a connection to a server: raise the limit of this process (`ulimit -n`)"
            );
        }
    }

    /// A connection that was under way is made, or is not.
    pub(crate) fn connected(&mut self, index: usize, tools: &mut Tools) {
        let made = self.conns[index].stream.as_ref().is_some_and(Stream::is_connected);
        if !made {
            return self.fail(index, REFUSED, tools);
        }
        self.conns[index].state = ConnState::Open;
        if self.watch(index, Interest { read: true, write: false }, tools) {
            self.mark_dirty(index);
        } else {
            self.fail(index, REFUSED, tools);
        }
    }

    /// Opens a connection that is closed; why it takes no requests, where it does not.
    fn refusal(&mut self, index: usize, tools: &mut Tools) -> Option<&'static [u8]> {
        let is_closed = |conn: &Conn| conn.state == ConnState::Closed;
        let why = if is_closed(&self.conns[index]) { self.open(index, tools) } else { REFUSED };
        is_closed(&self.conns[index]).then_some(why)
    }

    /// Has `write` put a request into a connection's buffer, and awaits the reply. Where there is no
    /// connection the request is lost.
    pub(crate) fn send(
        &mut self,
        index: usize,
        flight: InFlight,
        keys: usize,
        write: impl FnOnce(&mut Vec<u8>),
        tools: &mut Tools,
    ) {
        if let Some(why) = self.refusal(index, tools) {
            let server = self.conns[index].server;
            let (request, role) = (flight.request, flight.role);
            return self.lost.push(Lost { request, role, server, torn: false, why });
        }
        let conn = &mut self.conns[index];
        let before = conn.out.len();
        write(&mut conn.out);
        let bytes = conn.out.len() - before;
        conn.push(flight, bytes, tools.now_ns);
        self.in_flight += 1;
        let is_own = flight.role.is_own();
        if !is_own {
            let counter = self.backends[conn.server].counter;
            tools.recorder.backend_sent(counter, keys as u64);
            conn.requests += 1;
        }
        let is_due = !is_own && conn.requests.is_multiple_of(COUNT_EVERY);
        self.mark_dirty(index);
        if is_due && !self.policy.is_shadow {
            self.ask_version(index, Role::Count, tools);
        }
    }

    /// Sends what every server answers, and nothing else is answered by.
    fn ask_version(&mut self, index: usize, role: Role, tools: &mut Tools) {
        let flight = InFlight::new(usize::MAX, role, Framing::Line, Command::Version);
        self.send(index, flight, 0, |out| out.extend_from_slice(b"version\r\n"), tools);
    }

    /// As [`send`](Self::send), of a copy whose answer is dropped. `false` when the server is not asked, or
    /// owes so much already that the copy is dropped.
    pub(crate) fn send_copy(
        &mut self,
        server: usize,
        flight: InFlight,
        (keys, bytes): (usize, usize),
        write: impl FnOnce(&mut Vec<u8>),
        tools: &mut Tools,
    ) -> bool {
        let index = self.number(0, server);
        let conn = &self.conns[index];
        let owes = conn.queue.len() >= SHADOW_REQUESTS;
        let is_full = conn.unwritten() > 0 && conn.unwritten() + bytes > SHADOW_BYTES;
        if !self.backends[server].is_live || owes || is_full {
            return false;
        }
        self.send(index, flight, keys, write, tools);
        true
    }

    /// Writes what a server has to get.
    pub(crate) fn write(&mut self, index: usize, tools: &mut Tools) {
        let conn = &mut self.conns[index];
        conn.dirty = false;
        if conn.state != ConnState::Open {
            return;
        }
        let mut blocked = false;
        while conn.has_output() {
            match conn.write() {
                Moved::Bytes(count) => {
                    tools.progress += 1;
                    conn.wrote(count, tools.look());
                }
                Moved::Later => {
                    blocked = conn.stream.as_ref().is_some_and(Stream::waits_for_room);
                    break;
                }
                Moved::Closed => return self.fail(index, CLOSED, tools),
            }
        }
        if let Some(stream) = conn.stream.as_mut().filter(|stream| stream.is_encrypted()) {
            if !stream.flush() {
                return self.fail(index, CLOSED, tools);
            }
            blocked |= stream.has_backlog();
        }
        let wanted = Interest { read: true, write: blocked };
        if conn.interest != wanted && !self.watch(index, wanted, tools) {
            self.fail(index, CLOSED, tools);
        }
    }

    /// Reads what a server sent; says how much. `None` when there is nothing, or no connection.
    pub(crate) fn read(
        &mut self,
        index: usize,
        scratch: &mut [u8],
        tools: &mut Tools,
    ) -> Option<usize> {
        let conn = &mut self.conns[index];
        match conn.stream.as_mut()?.read(scratch) {
            Moved::Bytes(count) => {
                tools.progress += 1;
                conn.progress_ns = tools.look();
                Some(count)
            }
            Moved::Later => {
                if conn.stream.as_ref().is_some_and(Stream::is_encrypted) {
                    // A step of the handshake, after which it may be written to.
                    tools.progress += 1;
                    self.mark_dirty(index);
                }
                None
            }
            Moved::Closed => {
                self.fail(index, CLOSED, tools);
                None
            }
        }
    }

    /// A reply is whole; says under which number its server is counted.
    pub(crate) fn replied(&mut self, index: usize) -> usize {
        let conn = &mut self.conns[index];
        conn.pop();
        self.in_flight -= 1;
        let backend = &mut self.backends[conn.server];
        backend.failures = 0;
        backend.counter
    }

    fn watch(&mut self, index: usize, wanted: Interest, tools: &mut Tools) -> bool {
        let conn = &mut self.conns[index];
        tools.progress += 1;
        conn.interest = wanted;
        let Some(stream) = &conn.stream else { return false };
        let source = Source::Conn { generation: conn.generation, pool: self.place, index };
        tools.poller.watch(stream, &mut conn.watched, source, wanted).is_ok()
    }

    #[inline]
    pub(crate) fn mark_dirty(&mut self, index: usize) {
        if !self.conns[index].dirty {
            self.conns[index].dirty = true;
            self.dirty.push(index);
        }
    }

    #[inline]
    pub(crate) fn next_dirty(&mut self) -> Option<usize> {
        self.dirty.pop()
    }

    #[inline]
    pub(crate) fn next_lost(&mut self) -> Option<Lost> {
        self.lost.pop()
    }

    #[inline]
    pub(crate) fn have_work(&self) -> bool {
        !self.dirty.is_empty() || !self.lost.is_empty()
    }

    /// Closes a connection that broke; what was in flight on it is lost.
    pub(crate) fn fail(&mut self, index: usize, why: &'static [u8], tools: &mut Tools) {
        let conn = &mut self.conns[index];
        let (server, was_open) = (conn.server, conn.state == ConnState::Open);
        let torn = conn.data_left > 0;
        let queue = conn.reset();
        tools.progress += 1;
        self.in_flight -= queue.len();
        if was_open {
            // What the server counted before may start anew.
            self.incarnations.next(server);
        }
        if self.is_probe(index) {
            self.backends[server].probe_at_ns = tools.now_ns + self.policy.probe_every_ns;
            return;
        }
        if self.policy.is_shadow {
            tools.recorder.outcome(report::SHADOW_FAILURES, queue.len() as u64);
        } else if why == TIMED_OUT {
            tools.recorder.outcome(report::BACKEND_TIMEOUTS, 1);
        } else if !queue.is_empty() {
            tools.recorder.outcome(report::BACKEND_FAILURES, 1);
        }
        let had_requests = !queue.is_empty();
        // Taken from the end, so that the first request is answered first.
        for (number, flight) in queue.into_iter().enumerate().rev() {
            let (request, role, torn) = (flight.request, flight.role, number == 0 && torn);
            self.lost.push(Lost { request, role, server, torn, why });
        }
        // A server may close a connection that is idle.
        if why != EJECTED && (had_requests || !was_open) {
            self.count_failure(index, tools);
        }
    }

    pub(crate) fn is_probe(&self, index: usize) -> bool {
        index >= self.lanes * self.backends.len()
    }

    /// Opens a connection for a probe, and asks whether the server lives.
    pub(crate) fn probe(&mut self, server: usize, tools: &mut Tools) {
        let index = self.number(self.lanes, server);
        if self.conns[index].state != ConnState::Closed {
            return;
        }
        self.ask_version(index, Role::Probe, tools);
        // One that could not be sent is repeated later; no client waits for it.
        self.lost.retain(|lost| lost.role != Role::Probe);
    }

    pub(crate) fn close_probe(&mut self, server: usize) {
        let index = self.number(self.lanes, server);
        self.conns[index].reset();
    }

    /// Opens every connection of a server that is closed.
    pub(crate) fn open_all(&mut self, server: usize, tools: &mut Tools) {
        for lane in 0..self.lanes {
            let index = self.number(lane, server);
            if self.conns[index].state == ConnState::Closed && self.backends[server].is_live {
                self.open(index, tools);
            }
        }
    }
}

/// The part of a key that places it: the bytes between the two marks, if they are there and
/// something is between them.
fn tagged(key: &[u8], [open, close]: [u8; 2]) -> &[u8] {
    let Some(from) = key.iter().position(|byte| *byte == open) else { return key };
    let rest = &key[from + 1..];
    match rest.iter().position(|byte| *byte == close) {
        Some(0) | None => key,
        Some(length) => &rest[..length],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_places_a_key_and_one_without_a_whole_tag_is_placed_by_itself() {
        let part = |key: &'static str| tagged(key.as_bytes(), *b"{}");
        assert_eq!(part("user:{42}:name"), b"42");
        assert_eq!(part("{42}:{7}"), b"42");
        assert_eq!(part("plain"), b"plain");
        assert_eq!(part("{}x"), b"{}x");
        assert_eq!(part("{x"), b"{x");
        assert_eq!(part("}x{y}"), b"y");
    }
}
