//! Many calls on one stream: they are read, put into the request queue and answered together.
//!
//! What a call of its own costs (headers both ways, a stream, a task, a wake-up) is shared by all
//! that are under way: calls that come in one message enter the request queue under one lock, and
//! answers of a batch leave as one message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use kendall_protocols::queue as wire;
use kendall_protocols::queue::call::Operation as Asked;
use kendall_tier::serve;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use crate::connection::Peer;
use crate::identity::not_allowed;
use crate::operation::{Answer, Operation};
use crate::refusal::{detailed, stopped};
use crate::request::{self, Taking};
use crate::service::Service;
use crate::ticket::{Gathering, Kind, Ticket};

/// Calls of one stream that may be unanswered; beyond, nothing more is read.
const OPEN_CALLS: usize = 1024;

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
    caller: Caller,
    /// As long as calls are open: a silent stream does not keep its connection from being closed for a new one.
    busy: Option<serve::Begun>,
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
                    self.backlog = calls.map_err(detailed)?.calls.into_iter();
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
                Some(asked) if !self.allows(&asked) => Err(not_allowed(
                    "it may not act for this client, or the client has not said hello",
                )),
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
            Asked::Send(request) => at(request::checked_send(request, self.limits())?),
            Asked::Read(request) => at(request::checked_read(request)?),
            Asked::Acknowledge(request) => at(request::checked_acknowledge(request)?),
            Asked::ExtendLease(request) => at(request::checked_extend(request)?),
            Asked::ReturnMessage(request) => at(request::checked_return(request)?),
            Asked::Receive(request) => Ok(request::checked_receive(request)?.into()),
            Asked::Lease(request) => Ok(request::checked_lease(request)?.into()),
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
            return Poll::Ready(Some(Err(stopped())));
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
