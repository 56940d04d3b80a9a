//! Servers that fail: bounded waits, ejection, probing, and their return.

use std::net::SocketAddr;

use kendall_protocols::memcached::{Framing, Ring};

use crate::conn::{ConnState, Role};
use crate::engine::Engine;
use crate::options::{Mode, Placement, STALL_SHARED_NS, STALL_WORKERS_NS};
use crate::report;
use crate::socket;

/// Why a server did not answer, in words for the client.
pub(crate) const REFUSED: &[u8] = b"SERVER_ERROR backend refused the connection\r\n";
pub(crate) const CLOSED: &[u8] = b"SERVER_ERROR backend closed the connection\r\n";
pub(crate) const NOISE: &[u8] = b"SERVER_ERROR backend sent what is no reply\r\n";
const TIMED_OUT: &[u8] = b"SERVER_ERROR backend timed out\r\n";
const EJECTED: &[u8] = b"SERVER_ERROR backend was ejected\r\n";

/// What a probe asks.
const PROBE: &[u8] = b"version\r\n";

/// One server.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) is_live: bool,
    /// Failures since it last answered.
    pub(crate) failures: u32,
    /// How often a connection to it broke.
    pub(crate) incarnation: u64,
    probe_at_ns: u64,
}

impl Backend {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, is_live: true, failures: 0, incarnation: 0, probe_at_ns: 0 }
    }
}

impl Engine {
    /// Takes note of which servers are asked.
    pub(crate) fn servers_changed(&mut self) {
        self.live = (0..self.backends.len()).filter(|s| self.backends[*s].is_live).collect();
        if self.options.placement == Placement::Hash {
            let hosts: Vec<(String, u16)> = self
                .backends
                .iter()
                .map(|b| (b.address.ip().to_string(), b.address.port()))
                .collect();
            let names: Vec<(&str, u16)> = hosts.iter().map(|(h, p)| (h.as_str(), *p)).collect();
            self.ring = Some(Ring::new(&names, |server| self.backends[server].is_live));
        }
    }

    /// Begins to connect. A refusal at once counts as a failure.
    pub(crate) fn open(&mut self, index: usize) {
        let server = self.conns[index].server;
        match socket::connecting(self.backends[server].address) {
            Ok((socket, made)) => {
                let conn = &mut self.conns[index];
                conn.socket = Some(socket);
                conn.state = if made { ConnState::Open } else { ConnState::Connecting };
                conn.progress_ns = self.now_ns;
                if !self.watch_conn(index, true, !made) {
                    self.conn_failed(index, REFUSED);
                }
            }
            Err(_) => self.server_failed(server, index),
        }
    }

    /// A connection that was under way is made, or is not.
    pub(crate) fn connected(&mut self, index: usize) {
        let made = self.conns[index].socket.as_ref().is_some_and(socket::is_connected);
        if !made {
            return self.conn_failed(index, REFUSED);
        }
        self.conns[index].state = ConnState::Open;
        if self.watch_conn(index, true, false) {
            self.conn_is_dirty(index);
        } else {
            self.conn_failed(index, REFUSED);
        }
    }

    /// Closes a connection that broke, and fails what was in flight on it.
    pub(crate) fn conn_failed(&mut self, index: usize, why: &'static [u8]) {
        let conn = &mut self.conns[index];
        let (server, was_open) = (conn.server, conn.state == ConnState::Open);
        let torn = conn.data_left > 0;
        let queue = conn.reset();
        self.progress += 1;
        self.in_flight -= queue.len();
        if was_open {
            // What the server counted before may start anew.
            self.backends[server].incarnation += 1;
        }
        if self.is_probe(index) {
            self.backends[server].probe_at_ns = self.now_ns + self.probe_every_ns();
            return;
        }
        if why == TIMED_OUT {
            self.recorder.outcome(report::BACKEND_TIMEOUTS, 1);
        } else if !queue.is_empty() {
            self.recorder.outcome(report::BACKEND_FAILURES, 1);
        }
        // A server may close a connection that is idle.
        if why != EJECTED && (!queue.is_empty() || !was_open) {
            self.server_failed(server, index);
        }
        for (number, flight) in queue.into_iter().enumerate() {
            self.part_failed(flight.request, flight.role, server, number == 0 && torn, why);
        }
    }

    fn server_failed(&mut self, server: usize, index: usize) {
        if self.is_probe(index) {
            self.backends[server].probe_at_ns = self.now_ns + self.probe_every_ns();
            return;
        }
        let backend = &mut self.backends[server];
        backend.failures += 1;
        if backend.is_live && backend.failures >= self.options.eject_after {
            self.eject(server);
        }
    }

    /// Asks a server no more, until a probe finds it alive.
    fn eject(&mut self, server: usize) {
        let probe_at_ns = self.now_ns + self.probe_every_ns();
        let backend = &mut self.backends[server];
        backend.is_live = false;
        backend.probe_at_ns = probe_at_ns;
        tracing::warn!(server = %backend.address, failures = backend.failures, "ejected");
        self.recorder.outcome(report::EJECTIONS, 1);
        self.servers_changed();
        for lane in 0..self.lanes {
            let index = lane * self.backends.len() + server;
            if self.conns[index].state != ConnState::Closed {
                self.conn_failed(index, EJECTED);
            }
        }
    }

    /// A probe was answered: the server is asked again. What was written meanwhile it missed.
    pub(crate) fn readmit(&mut self, server: usize) {
        let probe = self.lanes * self.backends.len() + server;
        self.conns[probe].reset();
        let backend = &mut self.backends[server];
        if backend.is_live {
            return;
        }
        backend.is_live = true;
        backend.failures = 0;
        tracing::info!(server = %backend.address, "readmitted");
        self.recorder.outcome(report::READMISSIONS, 1);
        self.servers_changed();
        if let Mode::Workers(_) = self.options.mode {
            for lane in 0..self.lanes {
                let index = lane * self.backends.len() + server;
                if self.conns[index].state == ConnState::Closed && self.backends[server].is_live {
                    self.open(index);
                }
            }
        }
    }

    /// Fails connections whose server was silent too long, and probes servers.
    pub(crate) fn check_servers(&mut self) {
        let timeout_ns = u64::try_from(self.options.timeout.as_nanos()).unwrap_or(u64::MAX);
        for index in 0..self.conns.len() {
            let conn = &self.conns[index];
            let waits = !conn.queue.is_empty() || conn.state == ConnState::Connecting;
            let silent_ns = self.now_ns.saturating_sub(conn.progress_ns);
            if waits && !conn.held && silent_ns > timeout_ns {
                self.conn_failed(index, TIMED_OUT);
            }
        }
        for server in 0..self.backends.len() {
            let probe = self.lanes * self.backends.len() + server;
            let backend = &self.backends[server];
            let due = !backend.is_live && self.now_ns >= backend.probe_at_ns;
            if due && self.conns[probe].state == ConnState::Closed {
                self.open(probe);
                if self.conns[probe].state != ConnState::Closed {
                    self.conns[probe].out.extend_from_slice(PROBE);
                    self.push(probe, usize::MAX, Role::Probe, Framing::Line, 0, PROBE.len());
                }
            }
        }
    }

    /// Closes clients that held connections up too long.
    pub(crate) fn check_holding(&mut self) {
        let stall_ns = match self.options.mode {
            Mode::Workers(_) if self.queue.is_empty() => STALL_WORKERS_NS,
            _ => STALL_SHARED_NS,
        };
        for index in self.holding.clone() {
            let stalled = self
                .clients
                .get(index)
                .is_some_and(|c| self.now_ns.saturating_sub(c.held_since_ns) > stall_ns);
            if stalled {
                self.recorder.limit_hit(report::CLIENT_STALLED);
                self.close_client(index);
            }
        }
    }

    fn is_probe(&self, index: usize) -> bool {
        index >= self.lanes * self.backends.len()
    }

    fn probe_every_ns(&self) -> u64 {
        u64::try_from(self.options.probe_every.as_nanos()).unwrap_or(u64::MAX)
    }
}
