//! One client's connection.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use kendall_tier::{Moments, RequestType};

use crate::options::{ANSWERS_ADMIT, CLIENT_REQUESTS, KEEP_BYTES, READ_BYTES};

/// What a client's input waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// More of it: all that is whole was taken.
    Bytes,
    /// An answer to one of the client's earlier requests.
    Order,
    /// Fewer unanswered requests, or answers that the client takes.
    Room,
}

/// A client that is connected. Idle, it holds no buffer.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) socket: OwnedFd,
    pub(crate) generation: u64,
    /// What was read and is no whole request yet, or waits for the client's earlier ones.
    pub(crate) input: Vec<u8>,
    /// Bytes of input before which it is not worth looking for a request.
    pub(crate) needed: usize,
    /// Bytes that follow and are dropped: a value that was refused.
    pub(crate) swallow: usize,
    pub(crate) out: Vec<u8>,
    pub(crate) out_start: usize,
    /// Bytes of answers so far: put into `out`, and written.
    pub(crate) appended: u64,
    pub(crate) written: u64,
    /// Requests in order, until their answer is whole and in `out`.
    pub(crate) pending: VecDeque<usize>,
    /// Ends of answers in `out`.
    pub(crate) marks: VecDeque<Mark>,
    /// Bytes of answers that it has not taken, in `out` and with its requests.
    pub(crate) buffered: usize,
    /// Reads and writes in service or waiting for a worker.
    pub(crate) reads: usize,
    pub(crate) writes: usize,
    /// A request that goes to one server first and then to the others is under way.
    pub(crate) exclusive: bool,
    /// It sent a byte.
    pub(crate) greeted: bool,
    /// It sends nothing more. What it sent is carried out, then it is forgotten.
    pub(crate) ended: bool,
    /// It takes no answers any more.
    pub(crate) gone: bool,
    /// It is closed once it has its answers.
    pub(crate) closing: bool,
    pub(crate) dirty: bool,
    pub(crate) waits: Waits,
    /// It waits in the list of those whose input is looked at again.
    pub(crate) resuming: bool,
    pub(crate) wants_read: bool,
    pub(crate) wants_write: bool,
    /// The system reports its events.
    pub(crate) watched: bool,
    /// When the latest bytes were read.
    pub(crate) read_ns: u64,
    /// Connections to servers that wait for it to read.
    pub(crate) holds: Vec<usize>,
    pub(crate) held_since_ns: u64,
}

/// The end of an answer, and the request's moments so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) end: u64,
    pub(crate) request: RequestType,
    pub(crate) moments: Moments,
}

impl Client {
    pub(crate) fn new(socket: OwnedFd, generation: u64) -> Self {
        Self {
            socket,
            generation,
            input: Vec::new(),
            needed: 0,
            swallow: 0,
            out: Vec::new(),
            out_start: 0,
            appended: 0,
            written: 0,
            pending: VecDeque::new(),
            marks: VecDeque::new(),
            buffered: 0,
            reads: 0,
            writes: 0,
            exclusive: false,
            greeted: false,
            ended: false,
            gone: false,
            closing: false,
            dirty: false,
            waits: Waits::Bytes,
            resuming: false,
            wants_read: true,
            wants_write: false,
            watched: true,
            read_ns: 0,
            holds: Vec::new(),
            held_since_ns: 0,
        }
    }

    /// Puts bytes of an answer behind those before it.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if self.gone {
            return;
        }
        self.out.extend_from_slice(bytes);
        self.appended += bytes.len() as u64;
        self.buffered += bytes.len();
    }

    /// Whether it may not have another request now.
    pub(crate) fn is_full(&self) -> bool {
        self.closing || self.pending.len() >= CLIENT_REQUESTS || self.buffered > ANSWERS_ADMIT
    }

    /// Whether more input would be of use.
    pub(crate) fn takes_input(&self) -> bool {
        !self.ended
            && !self.closing
            && (self.input.len() < READ_BYTES || self.input.len() < self.needed)
    }

    /// Whether it has all that it will get, and all that it sent was carried out or is under way.
    pub(crate) fn is_over(&self) -> bool {
        (self.ended || self.closing) && self.input_is_done() && (self.gone || self.is_settled())
    }

    /// Takes note that it can get no answers.
    pub(crate) fn forget_answers(&mut self) {
        self.gone = true;
        self.out = Vec::new();
        self.out_start = 0;
        self.buffered = 0;
        self.marks.clear();
    }

    /// Whether its input holds no whole request.
    fn input_is_done(&self) -> bool {
        self.closing || self.input.len() < self.needed.max(1)
    }

    /// Whether it has all its answers.
    fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.out_start == self.out.len()
    }

    /// Takes note of written bytes; an empty buffer that grew large is given back.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.out_start += bytes;
        self.written += bytes as u64;
        self.buffered -= bytes;
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
