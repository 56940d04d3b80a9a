//! One connection to a server.

use std::collections::VecDeque;

use kendall_protocols::memcached::{Command, Framing, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::mark::{self, Mark};
use crate::options::{KEEP_BYTES, READ_BYTES};
use crate::poller::{Interest, Watched};
use crate::socket::{Moved, Stream};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnState {
    Closed,
    Connecting,
    Open,
}

/// What becomes of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It goes to the client as it comes.
    Relay,
    /// It is one of several that must agree.
    Collect,
    /// It is waited for and dropped.
    Discard,
    /// It is dropped unless it is an error: another server decided.
    Follow,
    /// It is a part of a multi-get.
    Gather(usize),
    /// It shows that the server lives.
    Probe,
    /// It shows that the server sent as many replies before as it got requests.
    Count,
    /// It is an item of the warm pool, the so-manieth that the request has brought over.
    Fetch(usize),
    /// It is dropped.
    Shadow,
}

impl Role {
    /// Whether the proxy itself asks, and no client waits for it.
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Self::Probe | Self::Count)
    }
}

/// A request whose reply is awaited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) request: usize,
    pub(crate) role: Role,
    pub(crate) framing: Framing,
    pub(crate) command: Command,
    /// What shows that a reply is its own.
    pub(crate) mark: Mark,
    /// The hash of the key that a reply to a meta command repeats where it was asked to (`k`).
    pub(crate) key: Option<u64>,
    /// Where it ends in what is written.
    pub(crate) end: u64,
    /// When its last byte was written; 0 before that.
    pub(crate) sent_ns: u64,
}

impl InFlight {
    pub(crate) fn new(request: usize, role: Role, framing: Framing, command: Command) -> Self {
        Self { request, role, framing, command, mark: Mark::None, key: None, end: 0, sent_ns: 0 }
    }

    pub(crate) fn marked(self, mark: Mark) -> Self {
        Self { mark, ..self }
    }

    /// As one whose replies are compared with this request and its mark.
    pub(crate) fn of(self, request: &Request, bytes: &[u8], mark: Mark) -> Self {
        Self { mark, key: mark::repeated_key(request, bytes), ..self }
    }
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) server: usize,
    pub(crate) generation: u64,
    pub(crate) state: ConnState,
    pub(crate) stream: Option<Stream>,
    pub(crate) out: Vec<u8>,
    out_start: usize,
    appended: u64,
    written: u64,
    pub(crate) queue: VecDeque<InFlight>,
    /// How many of the queue are written whole.
    sent: usize,
    /// Requests of clients that were sent on it.
    pub(crate) requests: usize,
    pub(crate) input: Vec<u8>,
    /// Bytes of a value that are still to come.
    pub(crate) data_left: usize,
    /// Whether the reply ends with that value.
    pub(crate) ends_with_data: bool,
    /// Keys found in the first reply.
    pub(crate) found: u64,
    /// The first reply, where it must be seen whole.
    pub(crate) reply: Vec<u8>,
    /// When the server last showed life, or was first asked after a silence.
    pub(crate) progress_ns: u64,
    pub(crate) dirty: bool,
    pub(crate) interest: Interest,
    pub(crate) watched: Watched,
}

impl Conn {
    pub(crate) fn new(server: usize) -> Self {
        Self {
            server,
            generation: 0,
            state: ConnState::Closed,
            stream: None,
            out: Vec::new(),
            out_start: 0,
            appended: 0,
            written: 0,
            queue: VecDeque::new(),
            sent: 0,
            requests: 0,
            input: Vec::new(),
            data_left: 0,
            ends_with_data: false,
            found: 0,
            reply: Vec::new(),
            progress_ns: 0,
            dirty: false,
            interest: Interest { read: false, write: false },
            watched: Watched::default(),
        }
    }

    /// Forgets the connection, and gives what was in flight on it.
    pub(crate) fn reset(&mut self) -> VecDeque<InFlight> {
        let queue = std::mem::take(&mut self.queue);
        let generation = self.generation + 1;
        *self = Self { generation, dirty: self.dirty, ..Self::new(self.server) };
        queue
    }

    /// Takes note of a request whose `bytes` are in `out`.
    pub(crate) fn push(&mut self, flight: InFlight, bytes: usize, now_ns: u64) {
        if self.queue.is_empty() {
            self.progress_ns = now_ns;
        }
        self.appended += bytes as u64;
        self.queue.push_back(InFlight { end: self.appended, ..flight });
    }

    /// The reply to the first request is whole.
    pub(crate) fn pop(&mut self) {
        self.queue.pop_front();
        self.sent = self.sent.saturating_sub(1);
        self.data_left = 0;
        self.ends_with_data = false;
    }

    /// Whether there is something to read, or the connection is made, of which no event has told yet: this process
    /// stood still, and not the server.
    pub(crate) fn has_news(&self) -> bool {
        let Some(stream) = &self.stream else { return false };
        let connecting = self.state == ConnState::Connecting;
        let wanted = if connecting { PollFlags::OUT } else { PollFlags::IN };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(stream, wanted)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Whether the first request was written, so that a reply may come.
    pub(crate) fn awaits_reply(&self) -> bool {
        self.sent > 0
    }

    /// Takes bytes of a value; says how many. `None` where no end of a line is behind it.
    pub(crate) fn take_data(&mut self, bytes: &[u8]) -> Option<usize> {
        let taken = self.data_left.min(bytes.len());
        if !ends_well(&bytes[..taken], self.data_left) {
            return None;
        }
        self.data_left -= taken;
        Some(taken)
    }

    /// Bytes that wait to be written.
    pub(crate) fn unwritten(&self) -> usize {
        self.out.len() - self.out_start
    }

    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.out_start < self.out.len()
    }

    /// Writes what there is space for.
    #[inline]
    pub(crate) fn write(&mut self) -> Moved {
        match &mut self.stream {
            Some(stream) => stream.write(&self.out[self.out_start..]),
            None => Moved::Closed,
        }
    }

    /// Takes note of written bytes, and of the requests that are written whole.
    pub(crate) fn wrote(&mut self, bytes: usize, now_ns: u64) {
        if self.sent == 0 {
            // The first request is still on its way, so the server owes nothing yet.
            self.progress_ns = now_ns;
        }
        self.out_start += bytes;
        self.written += bytes as u64;
        while let Some(next) = self.queue.get_mut(self.sent) {
            if next.end > self.written {
                break;
            }
            next.sent_ns = now_ns;
            self.sent += 1;
        }
        if self.out_start == self.out.len() {
            self.out_start = 0;
            if self.out.capacity() > KEEP_BYTES {
                self.out = Vec::new();
            } else {
                self.out.clear();
            }
        } else if self.out_start > READ_BYTES && self.out_start > self.out.len() / 2 {
            self.out.drain(..self.out_start);
            self.out_start = 0;
        }
    }
}

/// Whether a value of which `left` bytes were to come ends with a line's end, as far as it is in `piece`.
fn ends_well(piece: &[u8], left: usize) -> bool {
    let is = |behind: usize, wanted: u8| {
        let at = left.checked_sub(behind).and_then(|at| piece.get(at));
        at.is_none_or(|byte| *byte == wanted)
    };
    is(2, b'\r') && is(1, b'\n')
}
