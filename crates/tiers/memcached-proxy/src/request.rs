//! A request between its client and the servers.

use kendall_protocols::memcached::{Command, Limits, Parsed, Request, Span, Status, parse, tokens};
use kendall_tier::{Exchange, Moments, RequestType};

use crate::admission::{Admitted, Size};
use crate::buffer::Buffer;

/// A request that is not answered yet.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) client: usize,
    pub(crate) generation: u64,
    pub(crate) kind: RequestType,
    pub(crate) parsed: Option<Request>,
    /// The request, where it is needed again: it waits for a worker, may be sent to another
    /// server, or goes to several one after the other.
    pub(crate) bytes: Vec<u8>,
    pub(crate) arrived_ns: u64,
    pub(crate) dequeued_ns: u64,
    pub(crate) sent_ns: u64,
    pub(crate) received_ns: u64,
    /// The worker that serves it.
    pub(crate) lane: Option<usize>,
    /// The plan under which it was dispatched, and the pool where all its keys are.
    pub(crate) plan: Option<u64>,
    pub(crate) pool: usize,
    /// Replies that are awaited.
    pub(crate) waiting: usize,
    pub(crate) stage: Stage,
    /// What there is of the answer and not yet with the client.
    pub(crate) reply: Buffer,
    /// Whether bytes of the answer went to the client already.
    pub(crate) begun: bool,
    /// Bytes of the answer so far, those that are dropped included.
    pub(crate) answered: usize,
    /// Bytes that its answer was thought to have when it was taken.
    pub(crate) reserved: usize,
    /// How large it was thought to be then, and what was admitted for it.
    pub(crate) size: Size,
    pub(crate) admitted: Admitted,
    pub(crate) retried: bool,
    pub(crate) done: bool,
    pub(crate) is_read: bool,
    /// Answers that had to agree did not.
    pub(crate) verdict: Verdict,
    pub(crate) vote: Vec<u8>,
    pub(crate) gather: Option<Box<Gather>>,
    /// What is brought over from a warm pool for it.
    pub(crate) fill: Option<Box<Fill>>,
    /// An answer that takes the place of the servers'.
    pub(crate) instead: Option<&'static [u8]>,
    /// Where in `bytes` the next of several keys is that a value may have.
    pub(crate) key_at: usize,
}

/// How far a request has come that goes to one server first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// All servers at once.
    Only,
    /// The server that decides.
    First,
    /// The others, which follow.
    Second,
}

/// The best answer so far of servers that must agree: an error ranks before a success, and the
/// first server before the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    /// Rank of the answer in the entry's `vote`; none yet.
    pub(crate) rank: Option<(u8, usize)>,
    /// Two successes differ.
    pub(crate) disagree: bool,
}

/// A multi-get that is put together from several servers.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    pub(crate) parts: Vec<Part>,
    pub(crate) bytes: usize,
    /// The first error, which is the answer.
    pub(crate) error: Option<Vec<u8>>,
}

/// Keys that a cold pool did not have, and what became of them.
#[derive(Debug, Default)]
pub(crate) struct Fill {
    /// The key's number, its place in the request, and its pool.
    pub(crate) missing: Vec<(usize, Span, usize)>,
    /// How many of them the warm pool was asked for.
    pub(crate) asked: usize,
    /// Which of them it had, and the pool that has them now.
    pub(crate) found: Vec<(usize, usize)>,
    /// They are asked for once more, for the answer.
    pub(crate) is_over: bool,
}

/// What one server was asked for and gave.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) pool: usize,
    pub(crate) server: usize,
    pub(crate) retried: bool,
    /// Which of the client's keys.
    pub(crate) keys: Vec<usize>,
    /// How many of them were compared when matching what came back.
    pub(crate) next: usize,
    /// The values that came, each with the number of its key.
    pub(crate) blocks: Vec<(usize, Buffer)>,
}

impl Part {
    /// Memory of its values.
    pub(crate) fn room(&self) -> usize {
        self.blocks.iter().map(|block| block.1.room()).sum()
    }
}

impl Entry {
    pub(crate) fn new(client: usize, generation: u64, kind: RequestType, arrived_ns: u64) -> Self {
        Self {
            client,
            generation,
            kind,
            parsed: None,
            bytes: Vec::new(),
            arrived_ns,
            dequeued_ns: arrived_ns,
            sent_ns: 0,
            received_ns: 0,
            lane: None,
            plan: None,
            pool: 0,
            waiting: 0,
            stage: Stage::Only,
            reply: Buffer::default(),
            begun: false,
            answered: 0,
            reserved: 0,
            size: Size::Small,
            admitted: Admitted::default(),
            retried: false,
            done: false,
            is_read: false,
            verdict: Verdict::default(),
            vote: Vec::new(),
            gather: None,
            fill: None,
            instead: None,
            key_at: 0,
        }
    }

    pub(crate) fn forget_answer(&mut self) {
        self.reply = Buffer::default();
        for part in self.gather.iter_mut().flat_map(|gather| &mut gather.parts) {
            part.blocks.iter_mut().for_each(|block| block.1 = Buffer::default());
        }
    }

    /// What is counted of it once its answer is written.
    pub(crate) fn done(&self) -> Done {
        let backend = (self.sent_ns > 0)
            .then_some(Exchange { sent_ns: self.sent_ns, received_ns: self.received_ns });
        let moments = Moments {
            arrived_ns: self.arrived_ns,
            dequeued_ns: self.dequeued_ns,
            backend,
            replied_ns: 0,
        };
        Done { request: self.kind, moments }
    }

    /// Bytes of its answer a key.
    pub(crate) fn answered_a_key(&self) -> usize {
        self.answered / self.parsed.map_or(1, |request| request.keys.max(1))
    }

    /// Whether the client asked for no answer (`noreply`).
    pub(crate) fn is_silent(&self) -> bool {
        self.parsed.is_some_and(|request| request.noreply)
    }
}

/// A request whose answer is whole, and its moments so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) request: RequestType,
    pub(crate) moments: Moments,
}

/// Whether the answer to a request has values, which may be large.
pub(crate) fn has_values(request: &Request) -> bool {
    matches!(
        request.command,
        Command::Get | Command::Gets | Command::Gat | Command::Gats | Command::MetaGet
    )
}

/// Whether a request is for keys: others go to the pool without a prefix, or to all.
pub(crate) fn has_key(request: &Request) -> bool {
    !matches!(
        request.command,
        Command::FlushAll | Command::Verbosity | Command::Admin | Command::Stats | Command::Version
    )
}

/// Whether a request only reads, so that it may overtake other reads of its client, and may be
/// asked again elsewhere.
pub(crate) fn is_read(request: &Request) -> bool {
    match request.command {
        Command::Get | Command::Gets | Command::MetaDebug | Command::Version | Command::Stats => {
            true
        }
        Command::MetaGet => !request.writes,
        _ => false,
    }
}

/// Whether a request for values may be answered with an item of the warm pool.
pub(crate) fn is_warmed(request: &Request, bytes: &[u8]) -> bool {
    match request.command {
        Command::Get | Command::Gets | Command::Gat | Command::Gats => request.keys > 0,
        Command::MetaGet => !request.writes && !has_encoded_key(request, bytes),
        _ => false,
    }
}

/// Whether a meta command has its key in base64.
pub(crate) fn has_encoded_key(request: &Request, bytes: &[u8]) -> bool {
    let is_meta = matches!(
        request.command,
        Command::MetaGet | Command::MetaSet | Command::MetaDelete | Command::MetaArithmetic
    );
    is_meta && tokens(request.line.of(bytes)).skip(2).any(|token| token.first() == Some(&b'b'))
}

/// Errors before refusals, refusals before misses, misses before successes.
pub(crate) fn rank(status: Status) -> u8 {
    match status {
        Status::ServerError => 0,
        Status::ClientError => 1,
        Status::Refused => 2,
        Status::Miss => 3,
        Status::Success | Status::End => 4,
    }
}

/// The request that `bytes` is; it was one before, whatever may be longest now.
pub(crate) fn again(bytes: &[u8]) -> Request {
    let limits = Limits { value_bytes: usize::MAX, get_line_bytes: usize::MAX };
    match parse(bytes, &limits) {
        Parsed::Request(request) => request,
        other => unreachable!("a kept request is a request still: {other:?}"),
    }
}
