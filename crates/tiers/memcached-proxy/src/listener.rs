//! Where clients come in.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use kendall_tier::{ACCEPT_PAUSE_NS, Accepted};
use rustix::io::Errno;

use crate::poller::Poller;
use crate::report;
use crate::socket::{Stream, Tls};
use crate::tls::ClientTls;
use crate::tools::Tools;

/// A socket that is listened on, and whether its clients speak TLS.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) tls: Option<ClientTls>,
}

impl Listener {
    /// The connection of a client that came in. `None` where TLS cannot be spoken.
    fn stream(&self, socket: OwnedFd) -> Option<Stream> {
        match &self.tls {
            None => Some(Stream::new(socket, None)),
            Some(tls) => Some(Stream::new(socket, Some(Tls::accepting(&tls.0)?))),
        }
    }
}

/// The sockets that are listened on, which the network threads share.
#[derive(Debug)]
pub(crate) struct Door {
    listeners: Vec<Listener>,
    is_open: bool,
    /// When it opens again after the system was out of descriptors; 0 when it need not.
    opens_ns: u64,
    /// Connections taken at once: few where other threads take some too.
    at_once: usize,
}

impl Door {
    pub(crate) fn new(
        listeners: Vec<Listener>,
        at_once: usize,
        poller: &Poller,
    ) -> Result<Self, Errno> {
        for listener in &listeners {
            poller.listen(&listener.socket, true)?;
        }
        Ok(Self { listeners, is_open: true, opens_ns: 0, at_once })
    }

    /// New clients speak TLS so. Who did not, never does.
    pub(crate) fn set_tls(&mut self, tls: Option<&ClientTls>) {
        for listener in &mut self.listeners {
            if listener.tls.is_some() {
                listener.tls = tls.cloned();
            }
        }
    }

    /// The connections that wait, as many as there is space for.
    pub(crate) fn accept(&mut self, room: usize, tools: &mut Tools) -> Vec<Stream> {
        let mut accepted = Vec::new();
        if !self.is_open {
            return accepted;
        }
        for number in 0..self.listeners.len() {
            for _ in 0..self.at_once {
                if accepted.len() >= room {
                    tools.recorder.limit_hit(report::CONNECTIONS);
                    self.close(tools);
                    return accepted;
                }
                let listener = &self.listeners[number];
                match kendall_tier::accept(&listener.socket) {
                    Accepted::Connection(socket) => accepted.extend(listener.stream(socket)),
                    Accepted::Nobody => break,
                    Accepted::NoRoom => {
                        tools.recorder.limit_hit(report::CONNECTIONS);
                        self.close(tools);
                        self.opens_ns = tools.look() + ACCEPT_PAUSE_NS;
                        return accepted;
                    }
                }
            }
        }
        accepted
    }

    /// Leaves new connections in the system's queue.
    fn close(&mut self, tools: &mut Tools) {
        tools.progress += 1;
        for listener in &self.listeners {
            // One that could not be taken out is not accepted from all the same.
            tools.poller.listen(&listener.socket, false).unwrap_or_default();
        }
        self.is_open = false;
    }

    /// There is space again.
    pub(crate) fn open(&mut self, tools: &mut Tools) {
        self.opens_ns = 0;
        if self.is_open {
            return;
        }
        tools.progress += 1;
        self.is_open = true;
        for listener in &self.listeners {
            if tools.poller.listen(&listener.socket, true).is_err() {
                self.is_open = false;
                self.opens_ns = tools.now_ns + ACCEPT_PAUSE_NS;
            }
        }
    }

    /// Opens when the pause is over.
    pub(crate) fn tick(&mut self, tools: &mut Tools) {
        if self.waits() && tools.now_ns >= self.opens_ns {
            self.open(tools);
        }
    }

    pub(crate) fn waits(&self) -> bool {
        self.opens_ns > 0
    }

    /// Accepts no more clients.
    pub(crate) fn shut(&mut self, tools: &mut Tools) {
        self.close(tools);
        self.listeners = Vec::new();
        self.opens_ns = 0;
    }
}
