//! What clients ask for, checked; and what they are answered.

use std::time::Duration;

use kendall_protocols::queue::{ArchivedMessage, Message};
use kendall_tier::RequestType;
use uuid::Uuid;

/// Bounds that both tiers enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub content_characters: usize,
    /// Queues that may exist.
    pub queues: usize,
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
pub(crate) const HIGHEST_PRIORITY: i32 = 1000;
/// Longest lease, delay and retention: a hundred years, which PostgreSQL's clock can still add.
pub(crate) const LONGEST_MS: u64 = 100 * 365 * 24 * 3600 * 1000;
/// Headers of a message, and their bytes together.
pub(crate) const HEADERS: usize = 64;
pub(crate) const HEADER_BYTES: usize = 4096;
/// Characters of the reason for which a message is given back.
pub(crate) const REASON_CHARACTERS: usize = 500;
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
    "change-queue",
    "list-dead-letters",
    "redrive",
    "list-archived",
];

/// One operation on the database.
///
/// `TakeOnce`, of up to so many, and `AcknowledgeOnce` are for requests that may be repeated. A `Redrive` of no message
/// is of all that wait. `DeleteMessage` is the console's, for messages that should not have been sent, and `PutBack`
/// this tier's own: a removed message whose client left before the answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    Send(Send),
    Take(Take),
    TakeOnce(Take, i32, RequestId),
    Acknowledge(Held),
    AcknowledgeOnce(Vec<Held>, RequestId),
    Read(Selector),
    Hello { name: String },
    Goodbye { client: i64 },
    CreateQueue(NewQueue),
    ChangeQueue(Box<QueueChange>),
    DeleteQueue { queue: i64, with_messages: bool },
    ListQueues { client: i64, all: bool, after: i64, limit: i32 },
    Statistics { queue: i64 },
    Purge { queue: i64 },
    ExtendLease(Held, i64),
    Return(Held, i64, String),
    DeadLetters(Listing),
    Redrive { queue: i64, messages: Vec<i64>, target: Option<i64> },
    Archived(Listing),
    DeleteMessage { message: i64 },
    PutBack(Box<PutBack>),
}

/// Makes a request idempotent: its id, and the content that the id belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId {
    pub(crate) id: Uuid,
    pub(crate) operation: i16,
    /// Of all that is asked for.
    pub(crate) digest: Uuid,
}

/// A message that is to be where it was.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PutBack {
    /// The same each time that it is tried.
    pub(crate) attempt: Uuid,
    /// The marker of the transaction that took it, where it is not known whether that was committed.
    pub(crate) marker: Option<String>,
    pub(crate) message: Message,
}

/// A page of what a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) queue: i64,
    pub(crate) sender: Option<i64>,
    pub(crate) after: i64,
    pub(crate) limit: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Send {
    pub(crate) client: i64,
    pub(crate) queue: i64,
    pub(crate) receiver: Option<i64>,
    pub(crate) content: String,
    /// Binary content, in place of the other.
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) headers: Option<String>,
    pub(crate) priority: i32,
    pub(crate) delay_ms: i64,
    pub(crate) request: Option<RequestId>,
}

/// Which message of a queue a client asks for.
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
    pub(crate) archive_ms: Option<i64>,
}

/// What shall change of a queue; 0 where it shall have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QueueChange {
    pub(crate) queue: i64,
    pub(crate) name: Option<String>,
    pub(crate) max_deliveries: Option<i32>,
    pub(crate) dead_letter: Option<i64>,
    pub(crate) retention_ms: Option<i64>,
    pub(crate) archive_ms: Option<i64>,
    pub(crate) paused: Option<bool>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Done,
    /// An id, or a count.
    Number(u64),
    /// The message, if there was one, and its lease.
    Message(Option<(Message, u64)>),
    /// Several, with their leases.
    Messages(Vec<(Message, u64)>),
    Archived(Vec<ArchivedMessage>),
    /// What became of each, as codes.
    Codes(Vec<i32>),
    Queues(Vec<kendall_protocols::queue::Queue>),
    Statistics(kendall_protocols::queue::QueueStatisticsResponse),
}

impl Answer {
    pub(crate) fn into_message(self) -> Option<Message> {
        if let Self::Message(Some((message, _))) = self { Some(message) } else { None }
    }
}

impl Operation {
    /// Removes a message when it answers: a lost answer is a lost message.
    pub(crate) fn removes(&self) -> bool {
        matches!(self, Self::Take(take) if take.lease_ms == 0)
    }

    /// The client that asks, where its asking shows that it is there.
    pub(crate) fn client(&self) -> Option<i64> {
        Some(match self {
            Self::Send(send) => send.client,
            Self::Take(take) | Self::TakeOnce(take, ..) => take.selector.client,
            Self::Acknowledge(held) | Self::ExtendLease(held, _) | Self::Return(held, ..) => {
                held.client
            }
            Self::AcknowledgeOnce(held, _) => held.first()?.client,
            Self::Read(selector) => selector.client,
            Self::ListQueues { client, .. } => *client,
            _ => return None,
        })
    }

    /// Its number in [`REQUEST_TYPES`].
    pub(crate) fn request_type(&self) -> RequestType {
        RequestType(match self {
            Self::Send(_) => 0,
            Self::Take(take) | Self::TakeOnce(take, ..) => {
                if take.lease_ms == 0 {
                    1
                } else {
                    2
                }
            }
            Self::Acknowledge(_) | Self::AcknowledgeOnce(..) => 3,
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
            Self::ChangeQueue(_) => 16,
            Self::DeadLetters(_) => 17,
            Self::Redrive { .. } => 18,
            Self::Archived(_) => 19,
        })
    }

    /// How long PostgreSQL may take for a statement of it, where a usual one may take `usual`.
    pub(crate) fn patience(&self, usual: Duration) -> Duration {
        if self.is_long() { 10 * usual } else { usual }
    }

    /// Goes through a queue's messages.
    pub(crate) fn is_long(&self) -> bool {
        matches!(
            self,
            Self::Purge { .. }
                | Self::DeleteQueue { .. }
                | Self::ChangeQueue(_)
                | Self::Redrive { .. }
                | Self::Statistics { .. }
        )
    }
}
