//! The methods of the gRPC service.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kendall_protocols::queue as wire;
use prost::Message as _;
use tonic::{Request, Response, Status, Streaming};

use crate::connection::{Peer, Removed};
use crate::conversation::{Caller, Conversation};
use crate::dispatcher::Dispatcher;
use crate::identity::{Identity, not_allowed};
use crate::operation::{
    Answer, HEADER_BYTES, Held, LISTING, Listing, Operation, QueueChange, REASON_CHARACTERS,
    RequestId, Take,
};
use crate::refusal::reason;
use crate::request::{
    ACKNOWLEDGE_BATCH, LEASE_BATCH, RECEIVE_BATCH, Taking, checked_acknowledge, checked_extend,
    checked_lease, checked_queue, checked_read, checked_receive, checked_return, checked_send,
    deliveries, held, id, lease, listing, milliseconds, name, optional_id, request_id, selector,
};
use crate::request_limits::Due;
use crate::response::{
    ANSWER_BYTES, FACTS_BYTES, acknowledged, as_result, codes, leased, messages, number, read,
    received, sent, unexpected, within_an_answer,
};
use crate::service::Service;
use crate::wire::message_queue_server::MessageQueue;

const CLIENT_ID: &str = "SELECT id FROM client WHERE name = $1";

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

/// PERMISSION_DENIED for a token that may not change queues.
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
    /// PERMISSION_DENIED for a token of another client.
    async fn own<T: Sync>(&self, request: &Request<T>, client_id: u64) -> Result<(), Status> {
        let Some(identity) = request.extensions().get::<Arc<Identity>>() else { return Ok(()) };
        let client = i64::try_from(client_id).unwrap_or_default();
        if identity.is_admin() || identity.is(client) || self.known(identity).await? == client {
            return Ok(());
        }
        Err(not_allowed(&format!("it may not act for client {client_id}")))
    }

    /// The id of the client that a token's holder may be; 0 where it has not said hello.
    async fn known(&self, identity: &Identity) -> Result<i64, Status> {
        let Some(name) = &identity.name else { return Ok(0) };
        let rows = self.databases.look(CLIENT_ID, &[name]).await?;
        let id = rows.first().map_or(0, |row| row.get(0));
        identity.id.store(id, Ordering::Relaxed);
        Ok(id)
    }

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
