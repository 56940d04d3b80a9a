//! The answers to the calls of one stream: each call has a ticket, and what is answered gathers until the stream takes it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};

use kendall_protocols::queue as wire;
use kendall_protocols::queue::call::Operation as Asked;
use kendall_protocols::queue::reply::Answer as Said;
use parking_lot::Mutex;
use prost::Message as _;
use tonic::Status;

use crate::operation::{Answer, Limits};
use crate::{refusal, response};

/// Bytes of replies from which a message of them takes no more: well below the 4 MiB that clients
/// read of a message by default.
const REPLY_BYTES: usize = 1 << 20;

/// Where the answers of a stream's calls gather until it takes them.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    state: Mutex<Gathered>,
}

#[derive(Debug, Default)]
struct Gathered {
    replies: VecDeque<Ready>,
    /// Wakes the stream, where it sleeps.
    waker: Option<Waker>,
    /// The stream is closed: an answer cannot be sent.
    closed: bool,
}

/// A reply that can be sent.
#[derive(Debug)]
struct Ready {
    reply: wire::Reply,
    /// Whether its message is lost when the reply is not sent.
    removes: bool,
}

impl Ready {
    fn into_message(self) -> Option<wire::Message> {
        match self.reply.answer {
            Some(Said::Receive(answer)) if self.removes => answer.message,
            _ => None,
        }
    }
}

impl Gathering {
    /// Returns the message to the queue when the reply cannot be sent.
    fn add(&self, ready: Ready) -> Option<wire::Message> {
        let mut state = self.state.lock();
        if state.closed {
            return ready.into_message();
        }
        state.replies.push_back(ready);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        None
    }

    /// Answers cannot be sent from now on; returns the unacknowledged messages.
    pub(crate) fn close(&self) -> Vec<wire::Message> {
        let mut state = self.state.lock();
        state.closed = true;
        state.replies.drain(..).filter_map(Ready::into_message).collect()
    }

    /// What has gathered, as far as it fits into one message; where nothing has, the stream is woken when something does.
    pub(crate) fn take(&self, context: &Context<'_>) -> Vec<wire::Reply> {
        let mut state = self.state.lock();
        if state.replies.is_empty() {
            state.waker = Some(context.waker().clone());
        }
        let mut bytes = 0;
        let most = state.replies.iter().take_while(|ready| {
            let room = bytes < REPLY_BYTES;
            bytes += ready.reply.encoded_len();
            room
        });
        let most = most.count();
        state.replies.drain(..most).map(|ready| ready.reply).collect()
    }
}

/// The right, and the duty, to answer one call: dropped, it says that the middleware stopped.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) gathering: Arc<Gathering>,
    pub(crate) tag: u64,
    pub(crate) kind: Kind,
    pub(crate) limits: Limits,
    /// Whether a lost answer is a lost message.
    pub(crate) removes: bool,
    pub(crate) answered: bool,
}

/// Which operation a call is; its answer is of the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    Read,
    Lease,
    Acknowledge,
    ExtendLease,
    Return,
}

impl Ticket {
    /// Whether the reader of the answer is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.gathering.state.lock().closed
    }

    /// Answers; returns the message if its reader is gone and the database no longer has it.
    pub(crate) fn answer(mut self, answer: Result<Answer, Status>) -> Option<wire::Message> {
        self.put(answer)
    }

    fn put(&mut self, answer: Result<Answer, Status>) -> Option<wire::Message> {
        self.answered = true;
        let mut reply = wire::Reply { tag: self.tag, ..Default::default() };
        match answer.and_then(|answer| self.kind.said(answer, &self.limits)) {
            Ok(said) => reply.answer = Some(said),
            Err(status) => {
                reply.code = status.code() as i32;
                reply.reason = refusal::reason(&status);
                status.message().clone_into(&mut reply.error);
            }
        }
        self.gathering.add(Ready { reply, removes: self.removes })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered {
            self.put(Err(refusal::stopped()));
        }
    }
}

impl Kind {
    pub(crate) fn of(asked: &Asked) -> Self {
        match asked {
            Asked::Send(_) => Self::Send,
            Asked::Receive(_) => Self::Receive,
            Asked::Read(_) => Self::Read,
            Asked::Lease(_) => Self::Lease,
            Asked::Acknowledge(_) => Self::Acknowledge,
            Asked::ExtendLease(_) => Self::ExtendLease,
            Asked::ReturnMessage(_) => Self::Return,
        }
    }

    /// An answer in the words of the protocol.
    fn said(self, answer: Answer, limits: &Limits) -> Result<Said, Status> {
        Ok(match self {
            Self::Send => Said::Send(response::sent(answer)?),
            Self::Receive => Said::Receive(response::received(answer)?),
            Self::Read => Said::Read(response::read(answer)?),
            Self::Lease => Said::Lease(response::leased(answer)?),
            Self::Acknowledge => {
                response::acknowledged(&answer, limits)?;
                Said::Acknowledge(wire::AcknowledgeResponse {})
            }
            Self::ExtendLease => Said::ExtendLease(wire::ExtendLeaseResponse {}),
            Self::Return => Said::ReturnMessage(wire::ReturnMessageResponse {}),
        })
    }
}
