//! Servers that fail: bounded waits, ejection, probing, and their return.

use crate::conn::ConnState;
use crate::report;
use crate::servers::{EJECTED, Servers, TIMED_OUT};
use crate::tools::Tools;

impl Servers {
    /// A server failed on a connection; ejects it when it did so too often.
    pub(crate) fn count_failure(&mut self, index: usize, tools: &mut Tools) {
        let server = self.conn(index).server;
        let (probe, eject_after) = (self.is_probe(index), self.policy.eject_after);
        let probe_at_ns = tools.now_ns + self.policy.probe_every_ns;
        let backend = &mut self.backends[server];
        if probe {
            backend.probe_at_ns = probe_at_ns;
            return;
        }
        backend.failures += 1;
        if backend.is_live && backend.failures >= eject_after {
            self.eject(server, tools);
        }
    }

    /// No longer asks a server, until a probe finds it alive.
    fn eject(&mut self, server: usize, tools: &mut Tools) {
        let probe_at_ns = tools.now_ns + self.policy.probe_every_ns;
        let backend = &mut self.backends[server];
        backend.is_live = false;
        backend.probe_at_ns = probe_at_ns;
        tracing::warn!(server = %backend.address, failures = backend.failures, "ejected");
        if !self.policy.is_shadow {
            tools.recorder.outcome(report::EJECTIONS, 1);
        }
        self.changed();
        for lane in 0..self.lanes() {
            let index = self.number(lane, server);
            if self.conn(index).state != ConnState::Closed {
                self.fail(index, EJECTED, tools);
            }
        }
    }

    /// A probe was answered: the server is asked again. What was written meanwhile it missed.
    pub(crate) fn readmit(&mut self, server: usize, tools: &mut Tools) {
        self.close_probe(server);
        let backend = &mut self.backends[server];
        if backend.is_live {
            return;
        }
        backend.is_live = true;
        backend.failures = 0;
        tracing::info!(server = %backend.address, "readmitted");
        if !self.policy.is_shadow {
            tools.recorder.outcome(report::READMISSIONS, 1);
        }
        self.changed();
        if self.policy.keeps_open {
            self.open_all(server, tools);
        }
    }

    /// Fails connections whose server was silent too long, and probes servers.
    pub(crate) fn check(&mut self, tools: &mut Tools) {
        for index in 0..(self.lanes() + 1) * self.len() {
            let conn = self.conn(index);
            let waits = !conn.queue.is_empty() || conn.state == ConnState::Connecting;
            let silent_ns = tools.now_ns.saturating_sub(conn.progress_ns);
            if waits && silent_ns > self.policy.timeout_ns && !conn.has_news() {
                self.fail(index, TIMED_OUT, tools);
            }
        }
        for server in 0..self.len() {
            let backend = &self.backends[server];
            if !backend.is_live && tools.now_ns >= backend.probe_at_ns {
                self.probe(server, tools);
            }
        }
    }
}
