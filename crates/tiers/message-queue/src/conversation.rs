//! Many calls on one stream: they are read, put into the request queue and answered together.
//!
//! What a call of its own costs (headers both ways, a stream, a task, a wake-up) is shared by all
//! that are under way: calls that come in one message enter the request queue under one lock, and
//! answers of a batch leave as one message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use kendall_protocols::queue as wire;
use kendall_protocols::queue::call::Operation as Asked;
use kendall_protocols::queue::reply::Answer as Said;
use prost::Message as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use crate::connection::{OpenRequest, Peer};
use crate::identity::not_allowed;
use crate::operation::{Answer, Limits, Operation};
use crate::refusal;
use crate::service::{self, Service, Taking};

/// Calls of one stream that may be unanswered; beyond, nothing more is read.
const OPEN_CALLS: usize = 1024;
/// Bytes of replies from which a message of them takes no more: well below the 4 MiB that clients
/// read of a message by default.
const REPLY_BYTES: usize = 1 << 20;

/// Where the answers of a stream's calls gather until it takes them.
#[derive(Debug, Default)]
struct Gathering {
    state: Mutex<Gathered>,
}

#[derive(Debug, Default)]
struct Gathered {
    replies: VecDeque<Ready>,
    /// Wakes the stream, where it sleeps.
    waker: Option<Waker>,
    /// The stream is gone: nobody reads what is answered.
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
    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the message back when nobody will read the reply.
    fn add(&self, ready: Ready) -> Option<wire::Message> {
        let mut state = self.lock();
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

    /// Nobody reads what is answered from now on; gives the messages that nobody has read.
    fn close(&self) -> Vec<wire::Message> {
        let mut state = self.lock();
        state.closed = true;
        state.replies.drain(..).filter_map(Ready::into_message).collect()
    }

    /// What has gathered, as far as it fits into one message; where nothing has, the stream is woken when something does.
    fn take(&self, context: &Context<'_>) -> Vec<wire::Reply> {
        let mut state = self.lock();
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
    gathering: Arc<Gathering>,
    tag: u64,
    kind: Kind,
    limits: Limits,
    /// Whether an answer that nobody reads loses a message.
    removes: bool,
    answered: bool,
}

/// Which operation a call is; its answer is of the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Receive,
    Read,
    Lease,
    Acknowledge,
    ExtendLease,
    Return,
}

impl Ticket {
    /// Whether nobody reads the answer any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.gathering.lock().closed
    }

    /// Answers; gives back a message that nobody will read and that is nowhere else.
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
            self.put(Err(service::stopped()));
        }
    }
}

impl Kind {
    fn of(asked: &Asked) -> Self {
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
            Self::Send => Said::Send(service::sent(answer)?),
            Self::Receive => Said::Receive(service::received(answer)?),
            Self::Read => Said::Read(service::read(answer)?),
            Self::Lease => Said::Lease(service::leased(answer)?),
            Self::Acknowledge => {
                service::acknowledged(&answer, limits)?;
                Said::Acknowledge(wire::AcknowledgeResponse {})
            }
            Self::ExtendLease => Said::ExtendLease(wire::ExtendLeaseResponse {}),
            Self::Return => Said::ReturnMessage(wire::ReturnMessageResponse {}),
        })
    }
}

/// What becomes of a call.
enum Begun {
    /// One operation of the request queue.
    At(Operation),
    /// A take that waits for a message.
    Waiting(Taking),
}

/// One stream, as the stream of its replies: reading is driven by writing, so that a caller who
/// does not read replies is not read either.
pub(crate) struct Conversation {
    service: Service,
    /// Who calls.
    caller: Caller,
    /// As long as calls are open: a silent stream does not keep its connection from making room for others.
    busy: Option<OpenRequest>,
    calls: Option<Streaming<wire::Calls>>,
    /// Calls that were read and have not begun.
    backlog: std::vec::IntoIter<wire::Call>,
    open: usize,
    gathering: Arc<Gathering>,
    /// Takes that wait for a message; they end with the stream.
    waiting: JoinSet<()>,
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    stopped: bool,
}

/// Who has opened a stream.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The one client that it may be; `None`: any.
    pub(crate) only: Option<i64>,
    /// The connection that it came by.
    pub(crate) peer: Option<Peer>,
}

impl Conversation {
    pub(crate) fn new(
        service: Service,
        calls: Streaming<wire::Calls>,
        caller: Caller,
        mut stopping: watch::Receiver<bool>,
    ) -> Self {
        let stopping = async move {
            // The sender gone means the same.
            drop(stopping.wait_for(|stopping| *stopping).await);
        };
        Self {
            service,
            caller,
            busy: None,
            calls: Some(calls),
            backlog: Vec::new().into_iter(),
            open: 0,
            gathering: Arc::default(),
            waiting: JoinSet::new(),
            stopping: Box::pin(stopping),
            stopped: false,
        }
    }

    fn allows(&self, asked: &Asked) -> bool {
        let client_id = match asked {
            Asked::Send(request) => request.client_id,
            Asked::Receive(request) => request.client_id,
            Asked::Read(request) => request.client_id,
            Asked::Lease(request) => request.client_id,
            Asked::Acknowledge(request) => request.client_id,
            Asked::ExtendLease(request) => request.client_id,
            Asked::ReturnMessage(request) => request.client_id,
        };
        self.caller.only.is_none_or(|only| only > 0 && i64::try_from(client_id) == Ok(only))
    }

    /// Reads calls and begins them, as many as may be open.
    fn read(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        while self.open < OPEN_CALLS {
            if self.backlog.len() > 0 {
                self.begin();
                continue;
            }
            let Some(calls) = &mut self.calls else { break };
            match Pin::new(calls).poll_next(context) {
                Poll::Ready(Some(calls)) => {
                    self.backlog = calls.map_err(refusal::detailed)?.calls.into_iter();
                }
                Poll::Ready(None) => self.calls = None,
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Begins calls of the backlog, as many as may be open.
    fn begin(&mut self) {
        let mut at = Vec::with_capacity(self.backlog.len().min(OPEN_CALLS - self.open));
        while self.open < OPEN_CALLS
            && let Some(wire::Call { tag, operation }) = self.backlog.next()
        {
            self.open += 1;
            let kind = operation.as_ref().map_or(Kind::Send, Kind::of);
            let gathering = Arc::clone(&self.gathering);
            let limits = *self.service.limits();
            let mut ticket =
                Ticket { gathering, tag, kind, limits, removes: false, answered: false };
            let begun = match operation {
                Some(asked) if !self.allows(&asked) => {
                    Err(not_allowed("it is for another client, or for one that has not said hello"))
                }
                Some(asked) => self.service.begun(asked),
                None => Err(Status::invalid_argument("a call has an operation")),
            };
            match begun {
                Ok(Begun::At(operation)) => {
                    ticket.removes = operation.removes();
                    at.push((operation, ticket));
                }
                Ok(Begun::Waiting(taking)) => {
                    ticket.removes = taking.operation.removes();
                    let service = self.service.clone();
                    self.waiting.spawn(async move {
                        let found = service.take(taking).await;
                        let unread = ticket.answer(found.map(Answer::Message));
                        service.dispatcher.put_back(unread.into_iter());
                    });
                }
                Err(status) => drop(ticket.answer(Err(status))),
            }
        }
        if self.open > 0 && self.busy.is_none() {
            self.busy = self.caller.peer.as_ref().map(Peer::begin);
        }
        self.service.dispatcher.submit(at);
    }
}

impl Service {
    fn begun(&self, asked: Asked) -> Result<Begun, Status> {
        let at = |operation| Ok(Begun::At(operation));
        match asked {
            Asked::Send(request) => at(service::checked_send(request, self.limits())?),
            Asked::Read(request) => at(service::checked_read(request)?),
            Asked::Acknowledge(request) => at(service::checked_acknowledge(request)?),
            Asked::ExtendLease(request) => at(service::checked_extend(request)?),
            Asked::ReturnMessage(request) => at(service::checked_return(request)?),
            Asked::Receive(request) => Ok(service::checked_receive(request)?.into()),
            Asked::Lease(request) => Ok(service::checked_lease(request)?.into()),
        }
    }
}

impl From<Taking> for Begun {
    fn from(taking: Taking) -> Self {
        if taking.wait_ms == 0 { Self::At(taking.operation) } else { Self::Waiting(taking) }
    }
}

impl Stream for Conversation {
    type Item = Result<wire::Replies, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Err(status) = self.read(context) {
            return Poll::Ready(Some(Err(status)));
        }
        while let Poll::Ready(Some(_)) = self.waiting.poll_join_next(context) {}
        let replies = self.gathering.take(context);
        if !replies.is_empty() {
            self.open = self.open.saturating_sub(replies.len());
            if self.open == 0 {
                self.busy = None;
            }
            return Poll::Ready(Some(Ok(wire::Replies { replies })));
        }
        if self.open > 0 {
            return Poll::Pending;
        }
        if self.calls.is_none() && self.backlog.len() == 0 {
            return Poll::Ready(None);
        }
        if !self.stopped && self.stopping.as_mut().poll(context).is_ready() {
            self.stopped = true;
            self.calls = None;
            return Poll::Ready(Some(Err(service::stopped())));
        }
        Poll::Pending
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let unread = self.gathering.close();
        self.service.dispatcher.put_back(unread.into_iter());
    }
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Conversation").field("open", &self.open).finish_non_exhaustive()
    }
}
