//! What clients ask for, checked; and what they are answered.

use kendall_protocols::queue::Message;
use kendall_tier::RequestType;
use tonic::{Code, Status};
use uuid::Uuid;

/// Bounds that both tiers enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Characters of a message's content.
    pub content_characters: usize,
    /// Queues that may exist.
    pub queues: usize,
    /// Messages in one batch request.
    pub batch_messages: usize,
    /// Longest wait of a receive, in milliseconds.
    pub wait_ms: u64,
    /// Clients that may wait for a message at the same time.
    pub waiting_clients: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            content_characters: 2000,
            queues: 10_000,
            batch_messages: 1000,
            wait_ms: 60_000,
            waiting_clients: 10_000,
        }
    }
}

/// Characters of a client's or queue's name.
pub(crate) const NAME_CHARACTERS: usize = 200;
/// Highest priority.
pub(crate) const HIGHEST_PRIORITY: i32 = 1000;
/// Longest lease, delay and retention: a hundred years, which PostgreSQL's clock can still add.
pub(crate) const LONGEST_MS: u64 = 100 * 365 * 24 * 3600 * 1000;
/// Queues in one listing.
pub(crate) const LISTING: u32 = 1000;
/// Statistics count up to here.
pub(crate) const COUNT_LIMIT: i64 = 1_000_000;

/// Names of the request types, in the order of their numbers.
pub(crate) const REQUEST_TYPES: &[&str] = &[
    "send",
    "receive",
    "lease",
    "acknowledge",
    "read",
    "hello",
    "goodbye",
    "create-queue",
    "delete-queue",
    "list-queues",
    "queue-statistics",
    "purge",
    "extend-lease",
    "return-message",
    "delete-message",
    "put-back",
];

/// One operation on the database.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    Send(Send),
    Take(Take),
    TakeOnce(Take, Uuid),
    Acknowledge(Held),
    Read(Selector),
    Hello {
        name: String,
    },
    Goodbye {
        client: i64,
    },
    CreateQueue(NewQueue),
    DeleteQueue {
        queue: i64,
        with_messages: bool,
    },
    ListQueues {
        client: i64,
        all: bool,
        after: i64,
        limit: i32,
    },
    Statistics {
        queue: i64,
    },
    Purge {
        queue: i64,
    },
    ExtendLease(Held, i64),
    Return(Held, i64),
    /// The console's, for messages that should not have been sent.
    DeleteMessage {
        message: i64,
    },
    /// This tier's own: a message that was taken away, and whose taker was gone before it heard of it.
    PutBack(Box<Message>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Send {
    pub(crate) client: i64,
    pub(crate) queue: i64,
    pub(crate) receiver: Option<i64>,
    pub(crate) content: String,
    pub(crate) priority: i32,
    pub(crate) delay_ms: i64,
    pub(crate) request: Option<Uuid>,
}

/// Which message of a queue a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) client: i64,
    pub(crate) queue: i64,
    pub(crate) sender: Option<i64>,
    pub(crate) by_priority: bool,
}

/// Takes a message away, or leases it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Take {
    pub(crate) selector: Selector,
    /// 0 takes it away.
    pub(crate) lease_ms: i64,
}

/// A leased message and the proof of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) client: i64,
    pub(crate) message: i64,
    pub(crate) lease: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewQueue {
    pub(crate) name: String,
    pub(crate) max_deliveries: Option<i32>,
    pub(crate) dead_letter: Option<i64>,
    pub(crate) retention_ms: Option<i64>,
}

/// What an operation answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Done,
    /// An id, or a count.
    Number(u64),
    /// The message, if there was one, and its lease.
    Message(Option<(Message, u64)>),
    Queues(Vec<kendall_protocols::queue::Queue>),
    Statistics(kendall_protocols::queue::QueueStatisticsResponse),
}

impl Answer {
    /// The message, if it is one.
    pub(crate) fn into_message(self) -> Option<Message> {
        if let Self::Message(Some((message, _))) = self { Some(message) } else { None }
    }
}

impl Operation {
    /// Takes a message away for good, with nothing kept of the answer: whoever misses it has lost it.
    pub(crate) fn removes(&self) -> bool {
        matches!(self, Self::Take(take) if take.lease_ms == 0)
    }

    /// Its number in [`REQUEST_TYPES`].
    pub(crate) fn request_type(&self) -> RequestType {
        RequestType(match self {
            Self::Send(_) => 0,
            Self::Take(take) | Self::TakeOnce(take, _) => {
                if take.lease_ms == 0 {
                    1
                } else {
                    2
                }
            }
            Self::Acknowledge(_) => 3,
            Self::Read(_) => 4,
            Self::Hello { .. } => 5,
            Self::Goodbye { .. } => 6,
            Self::CreateQueue(_) => 7,
            Self::DeleteQueue { .. } => 8,
            Self::ListQueues { .. } => 9,
            Self::Statistics { .. } => 10,
            Self::Purge { .. } => 11,
            Self::ExtendLease(..) => 12,
            Self::Return(..) => 13,
            Self::DeleteMessage { .. } => 14,
            Self::PutBack(_) => 15,
        })
    }
}

/// Why an operation was refused by the database: the codes of `database/functions.sql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) i32);

/// The code of a take that found no message: an answer, not a refusal.
pub(crate) const NOTHING_THERE: i32 = 7;

impl Refusal {
    /// The refusal in the words of the protocol.
    pub(crate) fn status(self, limits: &Limits) -> Status {
        let (code, text) = match self.0 {
            1 => (Code::NotFound, "unknown client; say hello first".to_owned()),
            2 => (
                Code::FailedPrecondition,
                "this client has said goodbye; say hello again with its name".to_owned(),
            ),
            3 => (Code::NotFound, "unknown queue".to_owned()),
            4 => (Code::NotFound, "unknown receiver".to_owned()),
            5 => (Code::FailedPrecondition, "a client cannot send to itself".to_owned()),
            6 => (Code::InvalidArgument, too_long(limits.content_characters)),
            8 => (
                Code::FailedPrecondition,
                "this lease is not held: it ran out, or was acknowledged or returned".to_owned(),
            ),
            9 => (
                Code::FailedPrecondition,
                "the queue holds messages; purge it, or delete it with its messages".to_owned(),
            ),
            10 => (Code::AlreadyExists, "a queue of this name exists".to_owned()),
            11 => (
                Code::ResourceExhausted,
                format!("there are {} queues, as many as may be", limits.queues),
            ),
            12 => (Code::NotFound, "unknown sender".to_owned()),
            13 => (Code::NotFound, "unknown dead-letter queue".to_owned()),
            14 => (Code::NotFound, "this message is not there (any more)".to_owned()),
            other => (Code::Internal, format!("the database answered code {other}")),
        };
        Status::new(code, text)
    }
}

/// How a content over the limit is refused.
pub(crate) fn too_long(limit: usize) -> String {
    format!("the content is longer than {limit} characters, the limit of this queue service")
}
