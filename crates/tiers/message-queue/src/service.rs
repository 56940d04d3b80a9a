//! The gRPC service: requests checked and made into operations, answers into responses.

use std::sync::Arc;
use std::time::Duration;

use kendall_protocols::queue as wire;
use kendall_tier::Clock;
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, Streaming};
use uuid::Uuid;

use crate::conversation::Conversation;
use crate::database::Databases;
use crate::dispatcher::Dispatcher;
use crate::operation::{
    Answer, HIGHEST_PRIORITY, Held, LISTING, LONGEST_MS, Limits, NAME_CHARACTERS, NewQueue,
    Operation, Selector, Send, Take, too_long,
};
use crate::waiters::Waiters;
use crate::wire::message_queue_server::MessageQueue;

/// A waiting client looks again this often even if nothing woke it: a notification can be lost
/// when its sender looked for waiters just before this one was registered.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Bytes of an answer with many messages: no client takes more unless it was told to, and what it does
/// not take is lost to it.
const ANSWER_BYTES: usize = 4 << 20;
/// Bytes of a message beside its content, at most.
const FACTS_BYTES: usize = 96;

/// The service. Clones share all.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) databases: Databases,
    pub(crate) middleware: Uuid,
    pub(crate) clock: Clock,
    /// Turns true when the middleware stops.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// A take, and how long it may wait for a message.
#[derive(Debug, Clone)]
pub(crate) struct Taking {
    pub(crate) operation: Operation,
    selector: Selector,
    pub(crate) wait_ms: u64,
}

impl Service {
    pub(crate) fn limits(&self) -> &Limits {
        self.databases.limits()
    }

    /// Takes a message, waiting for one as long as was asked.
    pub(crate) async fn take(
        &self,
        taking: Taking,
    ) -> Result<Option<(wire::Message, u64)>, Status> {
        let Taking { operation, selector, wait_ms } = taking;
        let end_ns = self.clock.now_ns() + wait_ms.min(self.limits().wait_ms) * 1_000_000;
        let mut registered = false;
        loop {
            // In line before looking, so that a message that comes between wakes.
            let place = if wait_ms == 0 || self.clock.now_ns() >= end_ns {
                None
            } else {
                let most = self.limits().waiting_clients;
                let Selector { client, queue, sender, .. } = selector;
                let place = self.waiters.wait(queue, client, sender, most);
                if place.is_none() {
                    self.dispatcher.refused_to_wait();
                    return Err(Status::resource_exhausted(format!(
                        "{most} clients wait for messages, as many as may; ask without a wait"
                    )));
                }
                place
            };
            if place.is_some() && !registered {
                registered = self.register(selector.queue).await;
            }
            let found = message(self.dispatcher.perform(operation.clone()).await?)?;
            let Some(mut place) = place else { return Ok(found) };
            if found.is_some() {
                return Ok(found);
            }
            let left = Duration::from_nanos(end_ns.saturating_sub(self.clock.now_ns()));
            if tokio::time::timeout(left.min(LOOK_AGAIN), place.woken()).await.is_ok() {
                place.used();
            }
        }
    }

    /// Has senders on all middlewares notify this one of messages of `queue`.
    async fn register(&self, queue: i64) -> bool {
        match self.databases.session().await {
            Ok(session) => session.register_waiter(self.middleware, queue).await.is_ok(),
            Err(_) => false,
        }
    }
}

#[tonic::async_trait]
impl MessageQueue for Service {
    type ConverseStream = Conversation;

    async fn converse(
        &self,
        request: Request<Streaming<wire::Calls>>,
    ) -> Result<Response<Conversation>, Status> {
        let stopping = self.stopping.clone();
        Ok(Response::new(Conversation::new(self.clone(), request.into_inner(), stopping)))
    }

    async fn hello(
        &self,
        request: Request<wire::HelloRequest>,
    ) -> Result<Response<wire::HelloResponse>, Status> {
        let name = name(request.into_inner().name)?;
        let client_id = number(self.dispatcher.perform(Operation::Hello { name }).await?)?;
        Ok(Response::new(wire::HelloResponse { client_id }))
    }

    async fn goodbye(
        &self,
        request: Request<wire::GoodbyeRequest>,
    ) -> Result<Response<wire::GoodbyeResponse>, Status> {
        let client = id(request.into_inner().client_id, "client_id")?;
        self.dispatcher.perform(Operation::Goodbye { client }).await?;
        Ok(Response::new(wire::GoodbyeResponse {}))
    }

    async fn create_queue(
        &self,
        request: Request<wire::CreateQueueRequest>,
    ) -> Result<Response<wire::CreateQueueResponse>, Status> {
        let request = request.into_inner();
        let max_deliveries = i32::try_from(request.max_deliveries)
            .map_err(|_| Status::invalid_argument("max_deliveries is too large"))?;
        let retention_ms = milliseconds(request.retention_ms, "retention_ms")?;
        let queue = NewQueue {
            name: name(request.name)?,
            max_deliveries: (max_deliveries > 0).then_some(max_deliveries),
            dead_letter: optional_id(request.dead_letter_queue_id, "dead_letter_queue_id")?,
            retention_ms: (retention_ms > 0).then_some(retention_ms),
        };
        let queue_id = number(self.dispatcher.perform(Operation::CreateQueue(queue)).await?)?;
        Ok(Response::new(wire::CreateQueueResponse { queue_id }))
    }

    async fn delete_queue(
        &self,
        request: Request<wire::DeleteQueueRequest>,
    ) -> Result<Response<wire::DeleteQueueResponse>, Status> {
        let request = request.into_inner();
        let queue = id(request.queue_id, "queue_id")?;
        let with_messages = request.with_messages;
        self.dispatcher.perform(Operation::DeleteQueue { queue, with_messages }).await?;
        Ok(Response::new(wire::DeleteQueueResponse {}))
    }

    async fn list_queues(
        &self,
        request: Request<wire::ListQueuesRequest>,
    ) -> Result<Response<wire::ListQueuesResponse>, Status> {
        let request = request.into_inner();
        let limit = if request.limit == 0 { LISTING } else { request.limit.min(LISTING) };
        let operation = Operation::ListQueues {
            client: id(request.client_id, "client_id")?,
            all: request.all,
            after: optional_id(request.after_queue_id, "after_queue_id")?.unwrap_or_default(),
            limit: i32::try_from(limit).unwrap_or(i32::MAX),
        };
        match self.dispatcher.perform(operation).await? {
            Answer::Queues(queues) => Ok(Response::new(wire::ListQueuesResponse { queues })),
            other => Err(unexpected(&other)),
        }
    }

    async fn queue_statistics(
        &self,
        request: Request<wire::QueueStatisticsRequest>,
    ) -> Result<Response<wire::QueueStatisticsResponse>, Status> {
        let queue = id(request.into_inner().queue_id, "queue_id")?;
        match self.dispatcher.perform(Operation::Statistics { queue }).await? {
            Answer::Statistics(statistics) => Ok(Response::new(statistics)),
            other => Err(unexpected(&other)),
        }
    }

    async fn purge(
        &self,
        request: Request<wire::PurgeRequest>,
    ) -> Result<Response<wire::PurgeResponse>, Status> {
        let queue = id(request.into_inner().queue_id, "queue_id")?;
        let dropped = number(self.dispatcher.perform(Operation::Purge { queue }).await?)?;
        Ok(Response::new(wire::PurgeResponse { dropped }))
    }

    async fn send(
        &self,
        request: Request<wire::SendRequest>,
    ) -> Result<Response<wire::SendResponse>, Status> {
        let operation = checked_send(request.into_inner(), self.limits())?;
        Ok(Response::new(sent(self.dispatcher.perform(operation).await?)?))
    }

    async fn receive(
        &self,
        request: Request<wire::ReceiveRequest>,
    ) -> Result<Response<wire::ReceiveResponse>, Status> {
        let found = self.take(checked_receive(request.into_inner())?).await?;
        Ok(Response::new(received(Answer::Message(found))?))
    }

    async fn read(
        &self,
        request: Request<wire::ReadRequest>,
    ) -> Result<Response<wire::ReadResponse>, Status> {
        let operation = checked_read(request.into_inner())?;
        Ok(Response::new(read(self.dispatcher.perform(operation).await?)?))
    }

    async fn lease(
        &self,
        request: Request<wire::LeaseRequest>,
    ) -> Result<Response<wire::LeaseResponse>, Status> {
        let found = self.take(checked_lease(request.into_inner())?).await?;
        Ok(Response::new(leased(Answer::Message(found))?))
    }

    async fn acknowledge(
        &self,
        request: Request<wire::AcknowledgeRequest>,
    ) -> Result<Response<wire::AcknowledgeResponse>, Status> {
        self.dispatcher.perform(checked_acknowledge(request.into_inner())?).await?;
        Ok(Response::new(wire::AcknowledgeResponse {}))
    }

    async fn extend_lease(
        &self,
        request: Request<wire::ExtendLeaseRequest>,
    ) -> Result<Response<wire::ExtendLeaseResponse>, Status> {
        self.dispatcher.perform(checked_extend(request.into_inner())?).await?;
        Ok(Response::new(wire::ExtendLeaseResponse {}))
    }

    async fn return_message(
        &self,
        request: Request<wire::ReturnMessageRequest>,
    ) -> Result<Response<wire::ReturnMessageResponse>, Status> {
        self.dispatcher.perform(checked_return(request.into_inner())?).await?;
        Ok(Response::new(wire::ReturnMessageResponse {}))
    }

    async fn send_batch(
        &self,
        request: Request<wire::SendBatchRequest>,
    ) -> Result<Response<wire::SendBatchResponse>, Status> {
        let messages = request.into_inner().messages;
        self.check_batch(messages.len())?;
        let checked: Vec<Result<Operation, Status>> =
            messages.into_iter().map(|message| checked_send(message, self.limits())).collect();
        let good = checked.iter().filter_map(|c| c.as_ref().ok().cloned()).collect();
        let mut answers = self.dispatcher.perform_all(good).await?.into_iter();
        let results = checked
            .into_iter()
            .map(|checked| {
                let missing = || Err(Status::internal("an operation had no answer"));
                let sent = checked.and_then(|_| answers.next().unwrap_or_else(missing));
                match sent.and_then(number) {
                    Ok(message_id) => wire::SendResult { message_id, ..Default::default() },
                    Err(status) => wire::SendResult {
                        message_id: 0,
                        code: status.code() as i32,
                        error: status.message().to_owned(),
                    },
                }
            })
            .collect();
        Ok(Response::new(wire::SendBatchResponse { results }))
    }

    async fn receive_batch(
        &self,
        request: Request<wire::ReceiveBatchRequest>,
    ) -> Result<Response<wire::ReceiveBatchResponse>, Status> {
        let request = request.into_inner();
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX).max(1);
        self.check_batch(limit)?;
        let selector =
            selector(request.client_id, request.queue_id, request.sender_id, request.order)?;
        let operation = Operation::Take(Take { selector, lease_ms: 0 });
        let mut gathered = Gathered { dispatcher: &self.dispatcher, messages: Vec::new() };
        let messages = &mut gathered.messages;
        if request.wait_ms > 0 {
            // Waits for the first; what has come with it is taken together.
            let wait_ms = request.wait_ms;
            match self.take(Taking { operation: operation.clone(), selector, wait_ms }).await? {
                Some((first, _)) => messages.push(first),
                None => return Ok(Response::new(wire::ReceiveBatchResponse::default())),
            }
        }
        while messages.len() < limit {
            let step = self.room_after(messages).min(limit - messages.len());
            let more = vec![operation.clone(); step];
            let before = messages.len();
            // A later failure must not lose what an earlier one took away.
            let answers = match self.dispatcher.perform_all(more).await {
                Err(status) if messages.is_empty() => return Err(status),
                answers => answers.unwrap_or_default(),
            };
            for answer in answers {
                match answer.and_then(message) {
                    Ok(found) => messages.extend(found.map(|(message, _)| message)),
                    Err(status) if messages.is_empty() => return Err(status),
                    Err(_) => break,
                }
            }
            if step == 0 || messages.len() < before + step {
                break;
            }
        }
        messages.sort_by_key(|message| message.message_id);
        let messages = std::mem::take(messages);
        Ok(Response::new(wire::ReceiveBatchResponse { messages }))
    }
}

/// Messages that were taken away for an answer that is not complete: put back when it never is.
struct Gathered<'a> {
    dispatcher: &'a Dispatcher,
    messages: Vec<wire::Message>,
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        self.dispatcher.put_back(self.messages.drain(..));
    }
}

impl Service {
    /// Messages of any length that still go into an answer with these: one, at least, into an empty
    /// one.
    fn room_after(&self, messages: &[wire::Message]) -> usize {
        let held: usize = messages.iter().map(|message| message.content.len() + FACTS_BYTES).sum();
        let longest = 4 * self.limits().content_characters + FACTS_BYTES;
        (ANSWER_BYTES.saturating_sub(held) / longest).max(usize::from(messages.is_empty()))
    }

    fn check_batch(&self, messages: usize) -> Result<(), Status> {
        let most = self.limits().batch_messages;
        if messages > most {
            return Err(Status::invalid_argument(format!(
                "a batch of {messages} messages; at most {most} are taken at once"
            )));
        }
        Ok(())
    }
}

/// A send, checked and made into an operation.
pub(crate) fn checked_send(
    request: wire::SendRequest,
    limits: &Limits,
) -> Result<Operation, Status> {
    let limit = limits.content_characters;
    // Bytes first: counting the characters of what cannot fit would be wasted.
    if request.content.len() > 4 * limit || request.content.chars().count() > limit {
        return Err(Status::invalid_argument(too_long(limit)));
    }
    if !(0..=HIGHEST_PRIORITY).contains(&request.priority) {
        return Err(Status::invalid_argument(format!(
            "priority is {}; it goes from 0 to {HIGHEST_PRIORITY}",
            request.priority
        )));
    }
    Ok(Operation::Send(Send {
        client: id(request.client_id, "client_id")?,
        queue: id(request.queue_id, "queue_id")?,
        receiver: optional_id(request.receiver_id, "receiver_id")?,
        content: text(request.content, "content")?,
        priority: request.priority,
        delay_ms: milliseconds(request.delay_ms, "delay_ms")?,
        request: checked_request_id(&request.request_id)?,
    }))
}

/// A receive, checked.
pub(crate) fn checked_receive(request: wire::ReceiveRequest) -> Result<Taking, Status> {
    let wire::ReceiveRequest { client_id, queue_id, order, sender_id, wait_ms, request_id } =
        request;
    let selector = selector(client_id, queue_id, sender_id, order)?;
    let take = Take { selector, lease_ms: 0 };
    let operation = match checked_request_id(&request_id)? {
        Some(id) => Operation::TakeOnce(take, id),
        None => Operation::Take(take),
    };
    Ok(Taking { operation, selector, wait_ms })
}

/// A lease, checked.
pub(crate) fn checked_lease(request: wire::LeaseRequest) -> Result<Taking, Status> {
    let wire::LeaseRequest { client_id, queue_id, order, sender_id, wait_ms, lease_ms } = request;
    let selector = selector(client_id, queue_id, sender_id, order)?;
    let operation = Operation::Take(Take { selector, lease_ms: lease(lease_ms)? });
    Ok(Taking { operation, selector, wait_ms })
}

/// A look, checked.
pub(crate) fn checked_read(request: wire::ReadRequest) -> Result<Operation, Status> {
    let wire::ReadRequest { client_id, queue_id, order, sender_id } = request;
    selector(client_id, queue_id, sender_id, order).map(Operation::Read)
}

/// An acknowledgement, checked.
pub(crate) fn checked_acknowledge(request: wire::AcknowledgeRequest) -> Result<Operation, Status> {
    held(request.client_id, request.message_id, request.lease_id).map(Operation::Acknowledge)
}

/// A lease that is to be longer, checked.
pub(crate) fn checked_extend(request: wire::ExtendLeaseRequest) -> Result<Operation, Status> {
    let held = held(request.client_id, request.message_id, request.lease_id)?;
    Ok(Operation::ExtendLease(held, lease(request.lease_ms)?))
}

/// A message that is given back, checked.
pub(crate) fn checked_return(request: wire::ReturnMessageRequest) -> Result<Operation, Status> {
    let held = held(request.client_id, request.message_id, request.lease_id)?;
    Ok(Operation::Return(held, milliseconds(request.delay_ms, "delay_ms")?))
}

/// The answer to a send.
pub(crate) fn sent(answer: Answer) -> Result<wire::SendResponse, Status> {
    Ok(wire::SendResponse { message_id: number(answer)? })
}

/// The answer to a receive.
pub(crate) fn received(answer: Answer) -> Result<wire::ReceiveResponse, Status> {
    Ok(wire::ReceiveResponse { message: message(answer)?.map(|(message, _)| message) })
}

/// The answer to a look.
pub(crate) fn read(answer: Answer) -> Result<wire::ReadResponse, Status> {
    Ok(wire::ReadResponse { message: message(answer)?.map(|(message, _)| message) })
}

/// The answer to a lease.
pub(crate) fn leased(answer: Answer) -> Result<wire::LeaseResponse, Status> {
    let (message, lease_id) = message(answer)?.unzip();
    Ok(wire::LeaseResponse { message, lease_id: lease_id.unwrap_or_default() })
}

/// What a call is told that was accepted and could not be answered.
pub(crate) fn stopped() -> Status {
    Status::unavailable("the middleware stopped before it answered")
}

fn id(value: u64, field: &str) -> Result<i64, Status> {
    match i64::try_from(value) {
        Ok(id) if id > 0 => Ok(id),
        _ => Err(Status::invalid_argument(format!("{field} is {value}; ids begin at 1"))),
    }
}

fn optional_id(value: u64, field: &str) -> Result<Option<i64>, Status> {
    if value == 0 { Ok(None) } else { id(value, field).map(Some) }
}

pub(crate) fn name(name: String) -> Result<String, Status> {
    if name.is_empty() || name.chars().count() > NAME_CHARACTERS {
        return Err(Status::invalid_argument(format!(
            "a name has 1 to {NAME_CHARACTERS} characters; this has {}",
            name.chars().count()
        )));
    }
    text(name, "name")
}

/// PostgreSQL's text holds every character but NUL.
fn text(text: String, field: &str) -> Result<String, Status> {
    if text.contains('\0') {
        return Err(Status::invalid_argument(format!(
            "{field} holds a NUL character, which PostgreSQL's text cannot; encode binary content"
        )));
    }
    Ok(text)
}

fn milliseconds(value: u64, field: &str) -> Result<i64, Status> {
    match i64::try_from(value) {
        Ok(ms) if value <= LONGEST_MS => Ok(ms),
        _ => Err(Status::invalid_argument(format!(
            "{field} is {value}; at most {LONGEST_MS} (a hundred years)"
        ))),
    }
}

fn lease(ms: u64) -> Result<i64, Status> {
    if ms == 0 {
        return Err(Status::invalid_argument("lease_ms is 0; a lease has a length"));
    }
    milliseconds(ms, "lease_ms")
}

fn checked_request_id(bytes: &[u8]) -> Result<Option<Uuid>, Status> {
    if bytes.is_empty() {
        return Ok(None);
    }
    Uuid::from_slice(bytes).map(Some).map_err(|_| {
        Status::invalid_argument(format!(
            "request_id has {} bytes; it has 16, such as those of a UUID, or none",
            bytes.len()
        ))
    })
}

fn selector(client: u64, queue: u64, sender: u64, order: i32) -> Result<Selector, Status> {
    let order = wire::Order::try_from(order).map_err(|_| {
        Status::invalid_argument(format!("order is {order}; 0 is arrival, 1 is priority"))
    })?;
    Ok(Selector {
        client: id(client, "client_id")?,
        queue: id(queue, "queue_id")?,
        sender: optional_id(sender, "sender_id")?,
        by_priority: order == wire::Order::Priority,
    })
}

fn held(client: u64, message: u64, lease: u64) -> Result<Held, Status> {
    Ok(Held {
        client: id(client, "client_id")?,
        message: id(message, "message_id")?,
        lease: id(lease, "lease_id")?,
    })
}

fn number(answer: Answer) -> Result<u64, Status> {
    match answer {
        Answer::Number(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

fn message(answer: Answer) -> Result<Option<(wire::Message, u64)>, Status> {
    match answer {
        Answer::Message(found) => Ok(found),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(answer: &Answer) -> Status {
    Status::new(Code::Internal, format!("an answer of another operation: {answer:?}"))
}
