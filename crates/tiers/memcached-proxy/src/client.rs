//! One client's connection.

use std::collections::VecDeque;

use crate::admission::Size;
use crate::buffer::Buffer;
use crate::options::{
    ANSWERS_ADMIT, BULK_BYTES, CHUNK_BYTES, CLIENT_REQUESTS, CLIENT_WINDOW, EXPECTED_LEAST,
    KEEP_BYTES, LARGE_BYTES, READ_BYTES,
};
use crate::poller::{Interest, Watched};
use crate::request::Done;
use crate::socket::{Moved, Stream};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// More of it: all that is whole was taken.
    Bytes,
    /// An answer to one of the client's earlier requests.
    Order,
    /// Fewer unanswered requests, or answers that the client takes.
    Room,
    /// Fewer answers on their way from the servers that are large, or may be.
    Admission,
    /// The next turn: it had its share of this one.
    Turn,
}

/// A client that is connected. Idle, it holds no buffer.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: Stream,
    pub(crate) generation: u64,
    /// What was read and is not a whole request yet, or waits for the client's earlier ones.
    pub(crate) input: Vec<u8>,
    /// Bytes of input before which it is not worth looking for a request.
    pub(crate) needed: usize,
    /// Bytes that follow and are dropped: a value that was refused.
    pub(crate) swallow: usize,
    pub(crate) out: Buffer,
    /// Bytes of answers so far: put into `out`, and written.
    appended: u64,
    written: u64,
    /// Requests in order, until their answer is whole and in `out`.
    pub(crate) pending: VecDeque<usize>,
    /// Ends of answers in `out`.
    marks: VecDeque<(u64, Done)>,
    /// Memory of answers that it has not taken, in `out` and with its requests.
    pub(crate) buffered: usize,
    /// Reads and writes in service or waiting for a worker.
    pub(crate) reads: usize,
    pub(crate) writes: usize,
    /// Bytes that the answers to those are thought to have.
    reserved: usize,
    /// Bytes that the answer for one key is thought to have: the largest of late.
    expected: usize,
    /// The most keys of a read whose answer was seen; 0 before the first.
    known_keys: usize,
    /// Where requests share connections, its requests go over those for answers of this size.
    pub(crate) lane: Size,
    /// The plan under which its last request was taken.
    pub(crate) plan: u64,
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
    pub(crate) waits: Waits,
    /// It waits in a queue for admission.
    pub(crate) queues: bool,
    /// It is the next of that queue, and was resumed.
    pub(crate) leads: bool,
    /// It waits in the list of those that are served next.
    pub(crate) dirty: bool,
    /// It waits in the list of those whose input is resumed.
    pub(crate) resuming: bool,
    pub(crate) interest: Interest,
    pub(crate) watched: Watched,
    /// When the latest bytes were read.
    pub(crate) read_ns: u64,
    /// When it last took a part of an answer.
    pub(crate) took_ns: u64,
}

impl Client {
    /// A new one. Nothing is known of its answers, so the first may have `value_bytes`.
    pub(crate) fn new(stream: Stream, generation: u64, value_bytes: usize) -> Self {
        Self {
            stream,
            generation,
            input: Vec::new(),
            needed: 0,
            swallow: 0,
            out: Buffer::default(),
            appended: 0,
            written: 0,
            pending: VecDeque::new(),
            marks: VecDeque::new(),
            buffered: 0,
            reads: 0,
            writes: 0,
            reserved: 0,
            expected: value_bytes,
            known_keys: 0,
            lane: Size::Small,
            plan: 0,
            exclusive: false,
            greeted: false,
            ended: false,
            gone: false,
            closing: false,
            waits: Waits::Bytes,
            queues: false,
            leads: false,
            dirty: false,
            resuming: false,
            interest: Interest { read: false, write: false },
            watched: Watched::default(),
            read_ns: 0,
            took_ns: 0,
        }
    }

    /// Puts bytes of an answer behind those before it.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.out.append(bytes);
        self.appended += bytes.len() as u64;
    }

    /// Puts an answer behind those before it.
    pub(crate) fn append_all(&mut self, answer: Buffer) {
        self.appended += answer.len() as u64;
        self.out.append_all(answer);
    }

    /// The answer to a request ends here.
    pub(crate) fn end_answer(&mut self, done: Done) {
        self.marks.push_back((self.appended, done));
    }

    /// Whether the end of an answer was written.
    #[inline]
    pub(crate) fn has_ended_answer(&self) -> bool {
        self.marks.front().is_some_and(|mark| mark.0 <= self.written)
    }

    /// The next request whose answer was written.
    pub(crate) fn next_ended_answer(&mut self) -> Option<Done> {
        if !self.has_ended_answer() {
            return None;
        }
        self.marks.pop_front().map(|mark| mark.1)
    }

    /// Whether it may not have another request now.
    pub(crate) fn is_full(&self) -> bool {
        self.closing || self.pending.len() >= CLIENT_REQUESTS || self.buffered > ANSWERS_ADMIT
    }

    /// Bytes that the answer for so many keys is thought to have.
    pub(crate) fn expects(&self, keys: usize) -> usize {
        keys.max(1).saturating_mul(self.expected.max(EXPECTED_LEAST))
    }

    /// Whether it may have a request with such an answer beside those that are not answered yet.
    /// One it may always have.
    pub(crate) fn has_window(&self, bytes: usize) -> bool {
        self.reserved == 0
            || self.reserved.saturating_add(self.buffered).saturating_add(bytes) <= CLIENT_WINDOW
    }

    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.reserved += bytes;
    }

    /// An answer for one key has at least so many bytes.
    #[inline]
    pub(crate) fn expect_at_least(&mut self, bytes: usize) {
        self.expected = self.expected.max(bytes);
    }

    /// A request was answered, with so many bytes for each of its keys; says whether that was the first answer to a
    /// read of so many.
    pub(crate) fn answered(&mut self, reserved: usize, bytes: usize, keys: usize) -> bool {
        self.reserved -= reserved.min(self.reserved);
        if reserved == 0 {
            return false;
        }
        let is_first = self.is_guessed(keys);
        let fading = if self.known_keys == 0 { 0 } else { self.expected - self.expected / 8 };
        self.expected = bytes.max(fading);
        self.known_keys = self.known_keys.max(keys).max(1);
        is_first
    }

    /// How large the answer for so many keys is, by those of late. Small answers for few keys are no estimate of one for
    /// more, which may be large; a first read of several keys counts as large, so that those of one key do not wait
    /// behind it.
    pub(crate) fn size(&self, keys: usize) -> Size {
        if self.known_keys == 0 && keys <= 1 {
            Size::Unknown
        } else if self.expected >= BULK_BYTES || self.is_guessed(keys) {
            Size::Large
        } else {
            Size::Small
        }
    }

    /// Whether no answer for so many keys was seen.
    pub(crate) fn is_guessed(&self, keys: usize) -> bool {
        keys.max(1) > self.known_keys
    }

    /// Whether more input would be of use.
    pub(crate) fn takes_input(&self) -> bool {
        !self.ended
            && !self.closing
            && (self.input.len() < READ_BYTES || self.input.len() < self.needed)
    }

    /// Space for input of which the first bytes are there.
    pub(crate) fn first_room(&self) -> usize {
        self.needed.min(KEEP_BYTES)
    }

    /// Whether it has all that it will get, and all that it sent was carried out or is under way.
    pub(crate) fn is_over(&self) -> bool {
        (self.ended || self.closing) && self.input_is_done() && (self.gone || self.is_settled())
    }

    /// Takes note that it can get no answers.
    pub(crate) fn forget_answers(&mut self) {
        self.gone = true;
        self.out = Buffer::default();
        self.buffered = 0;
        self.marks.clear();
    }

    /// Whether its input holds no whole request.
    fn input_is_done(&self) -> bool {
        self.closing || self.input.len() < self.needed.max(1)
    }

    fn is_settled(&self) -> bool {
        self.pending.is_empty() && !self.has_output() && !self.stream.has_backlog()
    }

    /// Whether it has to get something.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether it has to get so much that others go first.
    #[inline]
    pub(crate) fn has_much_output(&self) -> bool {
        self.out.len() > LARGE_BYTES
    }

    /// Writes at most so many bytes of what it has to get; says how much memory is free then. Idle, it keeps
    /// a small buffer where `keeps` says so.
    pub(crate) fn write(&mut self, most: usize, keeps: bool) -> (Moved, usize) {
        let front = self.out.front();
        let moved = self.stream.write(&front[..front.len().min(most)]);
        let Moved::Bytes(bytes) = moved else { return (moved, 0) };
        let before = self.out.room();
        self.written += bytes as u64;
        self.out.consume(bytes, if keeps { CHUNK_BYTES } else { 0 });
        let freed = before - self.out.room();
        self.buffered -= freed;
        (moved, freed + self.trim(keeps))
    }

    /// Gives the memory back that it needs no more; says how much.
    pub(crate) fn trim(&mut self, keeps: bool) -> usize {
        if !self.pending.is_empty() {
            return 0;
        }
        let before = self.out.room();
        self.out.trim(if keeps { KEEP_BYTES } else { 0 });
        let freed = before - self.out.room();
        self.buffered -= freed;
        freed
    }
}
