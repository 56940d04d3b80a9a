//! The gRPC service: requests checked and made into operations, answers into responses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kendall_protocols::queue as wire;
use kendall_tier::Clock;
use md5::{Digest as _, Md5};
use prost::Message as _;
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, Streaming};
use uuid::Uuid;

use crate::connection::{Peer, Removed};
use crate::conversation::{Caller, Conversation};
use crate::database::Databases;
use crate::dispatcher::{Dispatcher, only};
use crate::identity::{Identity, not_allowed};
use crate::operation::{
    Answer, HEADER_BYTES, HEADERS, HIGHEST_PRIORITY, Held, LISTING, LONGEST_MS, Limits, Listing,
    NAME_CHARACTERS, NewQueue, Operation, QueueChange, REASON_CHARACTERS, RequestId, Selector,
    Send, Take,
};
use crate::refusal::{Refusal, reason, too_long};
use crate::request_limits::Due;
use crate::waiters::Waiters;
use crate::wire::message_queue_server::MessageQueue;

/// A waiting client tries again this often even if nothing woke it: a notification can be lost
/// when its sender looked for waiters just before this one was registered.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Bytes of an answer with many messages: no client accepts more unless it was configured to, and what it does
/// not accept is lost to it.
const ANSWER_BYTES: usize = 4 << 20;
/// Bytes of a message beside its content, headers and reason, at most.
const FACTS_BYTES: usize = 160;
/// The id of a name.
const CLIENT_ID: &str = "SELECT id FROM client WHERE name = $1";
/// Messages of a listing by default, and at most.
const LISTED: u32 = 100;
const MOST_LISTED: u32 = 1000;

/// What a request id stands for, beside the content: numbers that are stored.
const SEND: i16 = 0;
const RECEIVE: i16 = 1;
const LEASE: i16 = 2;
const ACKNOWLEDGE: i16 = 3;
const RECEIVE_BATCH: i16 = 4;
const LEASE_BATCH: i16 = 5;
const ACKNOWLEDGE_BATCH: i16 = 6;

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
    /// When an answer that takes messages away must leave.
    due_ns: Option<u64>,
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
        let mut found = self.take_some(taking).await?;
        Ok(found.pop())
    }

    /// Takes what an operation gives, waiting for some as long as was asked.
    async fn take_some(&self, taking: Taking) -> Result<Vec<(wire::Message, u64)>, Status> {
        let Taking { operation, selector, wait_ms, due_ns } = taking;
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
            let answers = self.dispatcher.perform_by(vec![operation.clone()], due_ns).await?;
            let found = messages(only(answers)?)?;
            let Some(mut place) = place else { return Ok(found) };
            if !found.is_empty() {
                return Ok(found);
            }
            let left = Duration::from_nanos(end_ns.saturating_sub(self.clock.now_ns()));
            if tokio::time::timeout(left.min(LOOK_AGAIN), place.woken()).await.is_ok() {
                place.used();
            }
        }
    }

    /// Refuses whoever is another client than this one.
    async fn own<T: Sync>(&self, request: &Request<T>, client_id: u64) -> Result<(), Status> {
        let Some(identity) = request.extensions().get::<Arc<Identity>>() else { return Ok(()) };
        let client = i64::try_from(client_id).unwrap_or_default();
        if identity.is_admin() || identity.is(client) || self.known(identity).await? == client {
            return Ok(());
        }
        Err(not_allowed("it is for another client"))
    }

    /// The id of the client that a token's holder may be; 0 where it has not said hello.
    async fn known(&self, identity: &Identity) -> Result<i64, Status> {
        let Some(name) = &identity.name else { return Ok(0) };
        let rows = self.databases.look(CLIENT_ID, &[name]).await?;
        let id = rows.first().map_or(0, |row| row.get(0));
        identity.id.store(id, Ordering::Relaxed);
        Ok(id)
    }

    /// Has senders on all middlewares notify this one of messages of `queue`.
    pub(crate) async fn register(&self, queue: i64) -> bool {
        match self.databases.session().await {
            Ok(session) => session.register_waiter(self.middleware, queue).await,
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
        let identity = request.extensions().get::<Arc<Identity>>().map(Arc::clone);
        let only = match identity.filter(|identity| !identity.is_admin()) {
            Some(identity) => Some(self.known(&identity).await?),
            None => None,
        };
        let caller = Caller { only, peer: request.extensions().get::<Peer>().cloned() };
        Ok(Response::new(Conversation::new(self.clone(), request.into_inner(), caller, stopping)))
    }

    async fn hello(
        &self,
        request: Request<wire::HelloRequest>,
    ) -> Result<Response<wire::HelloResponse>, Status> {
        if let Some(identity) = request.extensions().get::<Arc<Identity>>()
            && identity.name.as_ref().is_some_and(|name| *name != request.get_ref().name)
        {
            return Err(not_allowed("it is for a client of another name"));
        }
        let name = name(request.into_inner().name)?;
        let client_id = number(self.dispatcher.perform(Operation::Hello { name }).await?)?;
        Ok(Response::new(wire::HelloResponse { client_id }))
    }

    async fn goodbye(
        &self,
        request: Request<wire::GoodbyeRequest>,
    ) -> Result<Response<wire::GoodbyeResponse>, Status> {
        self.own(&request, request.get_ref().client_id).await?;
        let client = id(request.into_inner().client_id, "client_id")?;
        self.dispatcher.perform(Operation::Goodbye { client }).await?;
        Ok(Response::new(wire::GoodbyeResponse {}))
    }

    async fn create_queue(
        &self,
        request: Request<wire::CreateQueueRequest>,
    ) -> Result<Response<wire::CreateQueueResponse>, Status> {
        administrator(&request)?;
        let operation = checked_queue(request.into_inner())?;
        let queue_id = number(self.dispatcher.perform(operation).await?)?;
        Ok(Response::new(wire::CreateQueueResponse { queue_id }))
    }

    async fn change_queue(
        &self,
        request: Request<wire::ChangeQueueRequest>,
    ) -> Result<Response<wire::ChangeQueueResponse>, Status> {
        administrator(&request)?;
        let request = request.into_inner();
        let ms = |value: Option<u64>, field| value.map(|ms| milliseconds(ms, field)).transpose();
        let letters = request.dead_letter_queue_id;
        let letters = letters.map(|letters| optional_id(letters, "dead_letter_queue_id"));
        let change = QueueChange {
            queue: id(request.queue_id, "queue_id")?,
            name: request.name.map(name).transpose()?,
            max_deliveries: request.max_deliveries.map(deliveries).transpose()?,
            dead_letter: letters.transpose()?.map(Option::unwrap_or_default),
            retention_ms: ms(request.retention_ms, "retention_ms")?,
            archive_ms: ms(request.archive_ms, "archive_ms")?,
            paused: request.paused,
        };
        self.dispatcher.perform(Operation::ChangeQueue(Box::new(change))).await?;
        Ok(Response::new(wire::ChangeQueueResponse {}))
    }

    async fn delete_queue(
        &self,
        request: Request<wire::DeleteQueueRequest>,
    ) -> Result<Response<wire::DeleteQueueResponse>, Status> {
        administrator(&request)?;
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
        self.own(&request, request.get_ref().client_id).await?;
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
        administrator(&request)?;
        let queue = id(request.into_inner().queue_id, "queue_id")?;
        let dropped = number(self.dispatcher.perform(Operation::Purge { queue }).await?)?;
        Ok(Response::new(wire::PurgeResponse { dropped }))
    }

    async fn send(
        &self,
        request: Request<wire::SendRequest>,
    ) -> Result<Response<wire::SendResponse>, Status> {
        self.own(&request, request.get_ref().client_id).await?;
        let operation = checked_send(request.into_inner(), self.limits())?;
        Ok(Response::new(sent(self.dispatcher.perform(operation).await?)?))
    }

    async fn receive(
        &self,
        request: Request<wire::ReceiveRequest>,
    ) -> Result<Response<wire::ReceiveResponse>, Status> {
        self.own(&request, request.get_ref().client_id).await?;
        let due_ns = due_ns(&request);
        let taking = Taking { due_ns, ..checked_receive(request.into_inner())? };
        let removes = taking.operation.removes();
        let answer = received(Answer::Message(self.take(taking).await?))?;
        let removed = answer.message.iter().filter(|_| removes).cloned().collect();
        Ok(removing(answer, removed))
    }

    async fn read(
        &self,
        request: Request<wire::ReadRequest>,
    ) -> Result<Response<wire::ReadResponse>, Status> {
        self.own(&request, request.get_ref().client_id).await?;
        let operation = checked_read(request.into_inner())?;
        Ok(Response::new(read(self.dispatcher.perform(operation).await?)?))
    }

    async fn lease(
        &self,
        request: Request<wire::LeaseRequest>,
    ) -> Result<Response<wire::LeaseResponse>, Status> {
        self.own(&request, request.get_ref().client_id).await?;
        let found = self.take(checked_lease(request.into_inner())?).await?;
        Ok(Response::new(leased(Answer::Message(found))?))
    }

    async fn acknowledge(
        &self,
        request: Request<wire::AcknowledgeRequest>,
    ) -> Result<Response<wire::AcknowledgeResponse>, Status> {
        self.own(&request, request.get_ref().client_id).await?;
        let answer = self.dispatcher.perform(checked_acknowledge(request.into_inner())?).await?;
        acknowledged(&answer, self.limits())?;
        Ok(Response::new(wire::AcknowledgeResponse {}))
    }

    async fn extend_lease(
        &self,
        request: Request<wire::ExtendLeaseRequest>,
    ) -> Result<Response<wire::ExtendLeaseResponse>, Status> {
        self.own(&request, request.get_ref().client_id).await?;
        self.dispatcher.perform(checked_extend(request.into_inner())?).await?;
        Ok(Response::new(wire::ExtendLeaseResponse {}))
    }

    async fn return_message(
        &self,
        request: Request<wire::ReturnMessageRequest>,
    ) -> Result<Response<wire::ReturnMessageResponse>, Status> {
        self.own(&request, request.get_ref().client_id).await?;
        self.dispatcher.perform(checked_return(request.into_inner())?).await?;
        Ok(Response::new(wire::ReturnMessageResponse {}))
    }

    async fn send_batch(
        &self,
        request: Request<wire::SendBatchRequest>,
    ) -> Result<Response<wire::SendBatchResponse>, Status> {
        for message in &request.get_ref().messages {
            self.own(&request, message.client_id).await?;
        }
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
                        reason: reason(&status),
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
        self.own(&request, request.get_ref().client_id).await?;
        let due_ns = due_ns(&request);
        let request = request.into_inner();
        let limit = self.batch_limit(request.limit)?;
        let selector =
            selector(request.client_id, request.queue_id, request.sender_id, request.order)?;
        let take = Take { selector, lease_ms: 0 };
        let wait_ms = request.wait_ms;
        let stands_for = wire::ReceiveBatchRequest {
            client_id: 0,
            wait_ms: 0,
            request_id: Vec::new(),
            ..request.clone()
        };
        if let Some(once) = request_id(&request.request_id, RECEIVE_BATCH, &stands_for)? {
            let found = self.take_once(take, limit, once, wait_ms).await?;
            let messages = found.into_iter().map(|(message, _)| message).collect();
            return Ok(Response::new(wire::ReceiveBatchResponse { messages }));
        }
        let taking = Taking { operation: Operation::Take(take), selector, wait_ms, due_ns };
        let found = self.gather(taking, limit).await?;
        let messages: Vec<_> = found.into_iter().map(|(message, _)| message).collect();
        let removed = messages.clone();
        Ok(removing(wire::ReceiveBatchResponse { messages }, removed))
    }

    async fn lease_batch(
        &self,
        request: Request<wire::LeaseBatchRequest>,
    ) -> Result<Response<wire::LeaseBatchResponse>, Status> {
        self.own(&request, request.get_ref().client_id).await?;
        let request = request.into_inner();
        let limit = self.batch_limit(request.limit)?;
        let selector =
            selector(request.client_id, request.queue_id, request.sender_id, request.order)?;
        let take = Take { selector, lease_ms: lease(request.lease_ms)? };
        let wait_ms = request.wait_ms;
        let stands_for = wire::LeaseBatchRequest {
            client_id: 0,
            wait_ms: 0,
            request_id: Vec::new(),
            ..request.clone()
        };
        let found = match request_id(&request.request_id, LEASE_BATCH, &stands_for)? {
            Some(once) => self.take_once(take, limit, once, wait_ms).await?,
            None => {
                let operation = Operation::Take(take);
                let taking = Taking { operation, selector, wait_ms, due_ns: None };
                self.gather(taking, limit).await?
            }
        };
        let lease = |(message, lease_id)| wire::LeaseResponse { message: Some(message), lease_id };
        let leases = found.into_iter().map(lease).collect();
        Ok(Response::new(wire::LeaseBatchResponse { leases }))
    }

    async fn acknowledge_batch(
        &self,
        request: Request<wire::AcknowledgeBatchRequest>,
    ) -> Result<Response<wire::AcknowledgeBatchResponse>, Status> {
        self.own(&request, request.get_ref().client_id).await?;
        let request = request.into_inner();
        self.check_batch(request.messages.len())?;
        let client = request.client_id;
        let its = |one: &wire::Acknowledgement| held(client, one.message_id, one.lease_id);
        let all: Vec<Held> = request.messages.iter().map(its).collect::<Result<_, _>>()?;
        let stands_for = wire::AcknowledgeBatchRequest {
            client_id: 0,
            request_id: Vec::new(),
            ..request.clone()
        };
        let answers: Vec<Result<(), Status>> =
            match request_id(&request.request_id, ACKNOWLEDGE_BATCH, &stands_for)? {
                Some(once) if !all.is_empty() => {
                    let operation = Operation::AcknowledgeOnce(all, once);
                    let codes = codes(self.dispatcher.perform(operation).await?)?;
                    codes.into_iter().map(|code| as_result(code, self.limits())).collect()
                }
                _ => {
                    let operations = all.into_iter().map(Operation::Acknowledge).collect();
                    let answers = self.dispatcher.perform_all(operations).await?;
                    answers.into_iter().map(|answer| answer.map(drop)).collect()
                }
            };
        let result = |answer: Result<(), Status>| match answer {
            Ok(()) => wire::AcknowledgeResult::default(),
            Err(status) => wire::AcknowledgeResult {
                code: status.code() as i32,
                error: status.message().to_owned(),
                reason: reason(&status),
            },
        };
        let results = answers.into_iter().map(result).collect();
        Ok(Response::new(wire::AcknowledgeBatchResponse { results }))
    }

    async fn list_dead_letters(
        &self,
        request: Request<wire::ListDeadLettersRequest>,
    ) -> Result<Response<wire::ListDeadLettersResponse>, Status> {
        // Senders see their own.
        match request.get_ref().sender_id {
            0 => administrator(&request)?,
            sender => self.own(&request, sender).await?,
        }
        let wire::ListDeadLettersRequest { queue_id, sender_id, after_message_id, limit } =
            request.into_inner();
        let sender = optional_id(sender_id, "sender_id")?;
        let listing = Listing { sender, ..listing(queue_id, after_message_id, limit)? };
        let found = messages(self.dispatcher.perform(Operation::DeadLetters(listing)).await?)?;
        let messages = found.into_iter().map(|(message, _)| message).collect();
        let messages = within_an_answer(messages, wire::Message::encoded_len);
        Ok(Response::new(wire::ListDeadLettersResponse { messages }))
    }

    async fn redrive(
        &self,
        request: Request<wire::RedriveRequest>,
    ) -> Result<Response<wire::RedriveResponse>, Status> {
        administrator(&request)?;
        let wire::RedriveRequest { queue_id, message_ids, target_queue_id } = request.into_inner();
        self.check_batch(message_ids.len())?;
        let messages = message_ids.into_iter().map(|message| id(message, "message_ids"));
        let operation = Operation::Redrive {
            queue: id(queue_id, "queue_id")?,
            messages: messages.collect::<Result<_, _>>()?,
            target: optional_id(target_queue_id, "target_queue_id")?,
        };
        let moved = number(self.dispatcher.perform(operation).await?)?;
        Ok(Response::new(wire::RedriveResponse { moved }))
    }

    async fn list_archived(
        &self,
        request: Request<wire::ListArchivedRequest>,
    ) -> Result<Response<wire::ListArchivedResponse>, Status> {
        administrator(&request)?;
        let wire::ListArchivedRequest { queue_id, after_message_id, limit } = request.into_inner();
        let listing = listing(queue_id, after_message_id, limit)?;
        match self.dispatcher.perform(Operation::Archived(listing)).await? {
            Answer::Archived(messages) => {
                let messages = within_an_answer(messages, wire::ArchivedMessage::encoded_len);
                Ok(Response::new(wire::ListArchivedResponse { messages }))
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// When an answer that takes messages away must leave; `None` where the client gave no deadline.
fn due_ns<T>(request: &Request<T>) -> Option<u64> {
    request.extensions().get().map(|Due(due_ns)| *due_ns)
}

/// An answer without which its messages are lost.
fn removing<T>(answer: T, removed: Vec<wire::Message>) -> Response<T> {
    let mut response = Response::new(answer);
    if !removed.is_empty() {
        response.extensions_mut().insert(Removed(removed));
    }
    response
}

/// Refuses whoever may not change queues.
fn administrator<T>(request: &Request<T>) -> Result<(), Status> {
    match request.extensions().get::<Arc<Identity>>() {
        Some(identity) if !identity.is_admin() => {
            Err(not_allowed("it is for an administrator (`TOKEN admin`)"))
        }
        _ => Ok(()),
    }
}

/// Messages that were taken for an answer that is not complete: those that were taken away are put back
/// when it never is.
struct Gathered<'a> {
    dispatcher: &'a Dispatcher,
    removes: bool,
    found: Vec<(wire::Message, u64)>,
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        if self.removes {
            self.dispatcher.put_back(self.found.drain(..).map(|(message, _)| message));
        }
    }
}

impl Service {
    /// Messages of any length that still go into an answer with these: one, at least, into an empty
    /// one.
    fn room_after(&self, found: &[(wire::Message, u64)]) -> usize {
        let held: usize =
            found.iter().map(|(message, _)| message.encoded_len() + FACTS_BYTES).sum();
        let longest = 4 * self.limits().content_characters
            + HEADER_BYTES
            + 4 * REASON_CHARACTERS
            + FACTS_BYTES;
        (ANSWER_BYTES.saturating_sub(held) / longest).max(usize::from(found.is_empty()))
    }

    /// Takes up to `limit` messages, as many as go into an answer, oldest first.
    async fn gather(
        &self,
        taking: Taking,
        limit: usize,
    ) -> Result<Vec<(wire::Message, u64)>, Status> {
        let (operation, removes, due_ns) =
            (taking.operation.clone(), taking.operation.removes(), taking.due_ns);
        let mut gathered = Gathered { dispatcher: &self.dispatcher, removes, found: Vec::new() };
        let found = &mut gathered.found;
        if taking.wait_ms > 0 {
            // Waits for the first; what has come with it is taken together.
            found.extend(self.take_some(taking).await?);
            if found.is_empty() {
                return Ok(Vec::new());
            }
        }
        while found.len() < limit {
            let step = self.room_after(found).min(limit - found.len());
            let more = vec![operation.clone(); step];
            let before = found.len();
            // A later failure must not lose what an earlier one took away.
            let answers = match self.dispatcher.perform_by(more, due_ns).await {
                Err(status) if found.is_empty() => return Err(status),
                answers => answers.unwrap_or_default(),
            };
            let mut failed = None;
            for answer in answers {
                match answer.and_then(messages) {
                    Ok(one) => found.extend(one),
                    // Those after it were taken all the same.
                    Err(status) => failed = failed.or(Some(status)),
                }
            }
            if let Some(status) = failed.filter(|_| found.is_empty()) {
                return Err(status);
            }
            if step == 0 || found.len() < before + step {
                break;
            }
        }
        let mut found = std::mem::take(found);
        found.sort_by_key(|(message, _)| message.message_id);
        Ok(found)
    }

    /// Takes up to `limit` messages, as many as go into an answer, for a request that may be repeated.
    async fn take_once(
        &self,
        take: Take,
        limit: usize,
        once: RequestId,
        wait_ms: u64,
    ) -> Result<Vec<(wire::Message, u64)>, Status> {
        let at_most = i32::try_from(limit.min(self.room_after(&[]))).unwrap_or(i32::MAX);
        let operation = Operation::TakeOnce(take, at_most, once);
        let selector = take.selector;
        self.take_some(Taking { operation, selector, wait_ms, due_ns: None }).await
    }

    /// How many messages a batch may have that asks for `wanted`.
    fn batch_limit(&self, wanted: u32) -> Result<usize, Status> {
        let limit = usize::try_from(wanted).unwrap_or(usize::MAX).max(1);
        self.check_batch(limit)?;
        Ok(limit)
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

/// A queue that is to be made, checked.
pub(crate) fn checked_queue(request: wire::CreateQueueRequest) -> Result<Operation, Status> {
    let max_deliveries = deliveries(request.max_deliveries)?;
    let retention_ms = milliseconds(request.retention_ms, "retention_ms")?;
    let archive_ms = milliseconds(request.archive_ms, "archive_ms")?;
    Ok(Operation::CreateQueue(NewQueue {
        name: name(request.name)?,
        max_deliveries: (max_deliveries > 0).then_some(max_deliveries),
        dead_letter: optional_id(request.dead_letter_queue_id, "dead_letter_queue_id")?,
        retention_ms: (retention_ms > 0).then_some(retention_ms),
        archive_ms: (archive_ms > 0).then_some(archive_ms),
    }))
}

/// A send, checked and made into an operation.
pub(crate) fn checked_send(
    request: wire::SendRequest,
    limits: &Limits,
) -> Result<Operation, Status> {
    let limit = limits.content_characters;
    // Bytes first: counting the characters of what cannot fit would be wasted.
    if request.content.len() > 4 * limit
        || request.content.chars().count() > limit
        || request.data.len() > 4 * limit
    {
        return Err(too_long(limit));
    }
    if !request.content.is_empty() && !request.data.is_empty() {
        return Err(Status::invalid_argument("a message has content or data, not both"));
    }
    if !(0..=HIGHEST_PRIORITY).contains(&request.priority) {
        return Err(Status::invalid_argument(format!(
            "priority is {}; it goes from 0 to {HIGHEST_PRIORITY}",
            request.priority
        )));
    }
    let client = id(request.client_id, "client_id")?;
    let repeatable = if request.request_id.is_empty() {
        None
    } else {
        let stands_for =
            wire::SendRequest { client_id: 0, request_id: Vec::new(), ..request.clone() };
        request_id(&request.request_id, SEND, &stands_for)?
    };
    Ok(Operation::Send(Send {
        client,
        queue: id(request.queue_id, "queue_id")?,
        receiver: optional_id(request.receiver_id, "receiver_id")?,
        content: text(request.content, "content")?,
        data: (!request.data.is_empty()).then_some(request.data),
        headers: headers(&request.headers)?,
        priority: request.priority,
        delay_ms: milliseconds(request.delay_ms, "delay_ms")?,
        request: repeatable,
    }))
}

/// A receive, checked.
pub(crate) fn checked_receive(request: wire::ReceiveRequest) -> Result<Taking, Status> {
    let wire::ReceiveRequest { client_id, queue_id, order, sender_id, wait_ms, .. } = request;
    let selector = selector(client_id, queue_id, sender_id, order)?;
    let take = Take { selector, lease_ms: 0 };
    let once = request_id(
        &request.request_id,
        RECEIVE,
        &wire::ReceiveRequest { client_id: 0, wait_ms: 0, request_id: Vec::new(), ..request },
    )?;
    Ok(Taking { operation: taking_once(take, once), selector, wait_ms, due_ns: None })
}

/// A lease, checked.
pub(crate) fn checked_lease(request: wire::LeaseRequest) -> Result<Taking, Status> {
    let wire::LeaseRequest { client_id, queue_id, order, sender_id, wait_ms, lease_ms, .. } =
        request;
    let selector = selector(client_id, queue_id, sender_id, order)?;
    let take = Take { selector, lease_ms: lease(lease_ms)? };
    let once = request_id(
        &request.request_id,
        LEASE,
        &wire::LeaseRequest { client_id: 0, wait_ms: 0, request_id: Vec::new(), ..request },
    )?;
    Ok(Taking { operation: taking_once(take, once), selector, wait_ms, due_ns: None })
}

fn taking_once(take: Take, once: Option<RequestId>) -> Operation {
    match once {
        Some(once) => Operation::TakeOnce(take, 1, once),
        None => Operation::Take(take),
    }
}

/// A read, checked.
pub(crate) fn checked_read(request: wire::ReadRequest) -> Result<Operation, Status> {
    let wire::ReadRequest { client_id, queue_id, order, sender_id } = request;
    selector(client_id, queue_id, sender_id, order).map(Operation::Read)
}

/// An acknowledgement, checked.
pub(crate) fn checked_acknowledge(request: wire::AcknowledgeRequest) -> Result<Operation, Status> {
    let held = held(request.client_id, request.message_id, request.lease_id)?;
    let once = request_id(
        &request.request_id,
        ACKNOWLEDGE,
        &wire::AcknowledgeRequest { client_id: 0, request_id: Vec::new(), ..request },
    )?;
    Ok(match once {
        Some(once) => Operation::AcknowledgeOnce(vec![held], once),
        None => Operation::Acknowledge(held),
    })
}

/// The answer to an acknowledgement.
pub(crate) fn acknowledged(answer: &Answer, limits: &Limits) -> Result<(), Status> {
    match answer {
        Answer::Codes(codes) => codes.iter().try_for_each(|code| as_result(*code, limits)),
        _ => Ok(()),
    }
}

fn as_result(code: i32, limits: &Limits) -> Result<(), Status> {
    if code == 0 { Ok(()) } else { Err(Refusal(code).status(limits)) }
}

/// A lease that is to be longer, checked.
pub(crate) fn checked_extend(request: wire::ExtendLeaseRequest) -> Result<Operation, Status> {
    let held = held(request.client_id, request.message_id, request.lease_id)?;
    Ok(Operation::ExtendLease(held, lease(request.lease_ms)?))
}

/// A message that is given back, checked.
pub(crate) fn checked_return(request: wire::ReturnMessageRequest) -> Result<Operation, Status> {
    let held = held(request.client_id, request.message_id, request.lease_id)?;
    let delay_ms = milliseconds(request.delay_ms, "delay_ms")?;
    if request.reason.chars().count() > REASON_CHARACTERS {
        return Err(Status::invalid_argument(format!(
            "the reason is longer than {REASON_CHARACTERS} characters"
        )));
    }
    Ok(Operation::Return(held, delay_ms, text(request.reason, "reason")?))
}

/// The answer to a send.
pub(crate) fn sent(answer: Answer) -> Result<wire::SendResponse, Status> {
    Ok(wire::SendResponse { message_id: number(answer)? })
}

/// The answer to a receive.
pub(crate) fn received(answer: Answer) -> Result<wire::ReceiveResponse, Status> {
    Ok(wire::ReceiveResponse { message: message(answer)?.map(|(message, _)| message) })
}

/// The answer to a read.
pub(crate) fn read(answer: Answer) -> Result<wire::ReadResponse, Status> {
    Ok(wire::ReadResponse { message: message(answer)?.map(|(message, _)| message) })
}

/// The answer to a lease.
pub(crate) fn leased(answer: Answer) -> Result<wire::LeaseResponse, Status> {
    let (message, lease_id) = message(answer)?.unzip();
    Ok(wire::LeaseResponse { message, lease_id: lease_id.unwrap_or_default() })
}

/// The status of a call that was accepted and could not be answered.
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

/// The id of a request, and what it stands for: all that is asked for, but for the client, the wait and
/// the id itself.
fn request_id(
    bytes: &[u8],
    operation: i16,
    stands_for: &impl prost::Message,
) -> Result<Option<RequestId>, Status> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let id = Uuid::from_slice(bytes).map_err(|_| {
        Status::invalid_argument(format!(
            "request_id has {} bytes; it has 16, such as those of a UUID, or none",
            bytes.len()
        ))
    })?;
    let digest = Uuid::from_bytes(Md5::digest(stands_for.encode_to_vec()).into());
    Ok(Some(RequestId { id, operation, digest }))
}

/// Headers as JSON.
fn headers(headers: &BTreeMap<String, String>) -> Result<Option<String>, Status> {
    if headers.is_empty() {
        return Ok(None);
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers.len() > HEADERS || bytes > HEADER_BYTES {
        return Err(Status::invalid_argument(format!(
            "{} headers of {bytes} bytes; at most {HEADERS} of {HEADER_BYTES} bytes together",
            headers.len()
        )));
    }
    if headers.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
        return Err(Status::invalid_argument("a header holds a NUL character"));
    }
    Ok(Some(serde_json::to_string(headers).expect("texts are JSON")))
}

fn deliveries(value: u32) -> Result<i32, Status> {
    i32::try_from(value).map_err(|_| Status::invalid_argument("max_deliveries is too large"))
}

fn listing(queue: u64, after: u64, limit: u32) -> Result<Listing, Status> {
    let limit = if limit == 0 { LISTED } else { limit.min(MOST_LISTED) };
    Ok(Listing {
        queue: id(queue, "queue_id")?,
        sender: None,
        after: optional_id(after, "after_message_id")?.unwrap_or_default(),
        limit: i32::try_from(limit).unwrap_or(i32::MAX),
    })
}

/// As many of these as go into an answer; one, at least.
fn within_an_answer<T>(all: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let mut left = ANSWER_BYTES;
    let fits = |item: &T| {
        let first = left == ANSWER_BYTES;
        let its = bytes(item) + FACTS_BYTES;
        left = left.saturating_sub(its);
        first || left > 0
    };
    let fitting = all.iter().map(fits).take_while(|fits| *fits).count();
    all.into_iter().take(fitting).collect()
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
    Ok(messages(answer)?.pop())
}

fn messages(answer: Answer) -> Result<Vec<(wire::Message, u64)>, Status> {
    match answer {
        Answer::Message(found) => Ok(found.into_iter().collect()),
        Answer::Messages(found) => Ok(found),
        other => Err(unexpected(&other)),
    }
}

fn codes(answer: Answer) -> Result<Vec<i32>, Status> {
    match answer {
        Answer::Codes(codes) => Ok(codes),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(answer: &Answer) -> Status {
    Status::new(Code::Internal, format!("an answer of another operation: {answer:?}"))
}
