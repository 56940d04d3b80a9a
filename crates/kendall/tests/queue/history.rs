//! What the message queue promises, checked on the history of many clients over several
//! middlewares: no message is lost, none is delivered twice or acknowledged twice, receivers are
//! respected, no client gets its own, order is kept where it is promised.
//!
//! Clients write down what they asked, when, and what they were answered. Once while clients,
//! middlewares and PostgreSQL are killed: a client that got no answer asks again with the same
//! request id, as the protocol offers, or leaves it open whether anything happened. Once more in the
//! campaign of `make kill`, with links that are cut as well: there every take has a request id, and nothing
//! may be open, but in one queue of which all receive without. And once in a crowd without failures, where nothing may be open either. Every third client
//! calls over a stream.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::queue_support::Middleware;
use kendall_loadgen::queue::{Conversation, Refusal};
use kendall_message_queue::wire::message_queue_client::MessageQueueClient;
use kendall_message_queue::{PrivateOptions, PrivatePostgres, TcpAccess};
use kendall_protocols::queue::call::Operation as Call;
use kendall_protocols::queue::reply::Answer;
use kendall_protocols::queue::{
    AcknowledgeRequest, AcknowledgeResponse, CreateQueueRequest, HelloRequest, LeaseRequest,
    LeaseResponse, Message, QueueStatisticsRequest, QueueStatisticsResponse, ReceiveBatchRequest,
    ReceiveBatchResponse, ReceiveRequest, ReceiveResponse, ReturnMessageRequest,
    ReturnMessageResponse, SendBatchRequest, SendBatchResponse, SendRequest, SendResponse,
    SendResult,
};
use kendall_testing::namespace::{Ballast, on_a_small_disk};
use kendall_testing::{Link, free_address, kill_with_children};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

const SEED: u64 = 20_261_121;
const CLIENTS: u64 = 12;
/// In the campaign, so many of them also send and receive without request ids all the time; their request ids are others.
const PLAIN_CLIENTS: u64 = 8;
const PLAIN_SEED: u64 = 5000;
/// Queues where all clients send and take, and one where all send and one client takes.
const SHARED_QUEUES: u64 = 2;
const ORDERED_QUEUE: u64 = SHARED_QUEUES + 1;
/// A queue of which all receive without a request id: as many messages may be lost as receives were not answered, and
/// none may come twice.
const PLAIN_QUEUE: u64 = ORDERED_QUEUE + 1;
/// A client that only takes, at the end from all queues.
const LONE: u64 = CLIENTS + 1;
/// Leases that outlast the test, and leases that have run out when they are answered, nearly.
const LONG_MS: u64 = 3_600_000;
const SHORT_MS: u64 = 1;
/// Until one asks again who was refused.
const PAUSE: Duration = Duration::from_millis(10);
/// A lone operation takes milliseconds; a restart of PostgreSQL, seconds.
const CALL: Duration = Duration::from_secs(20);
/// Request ids are kept for ten minutes: the campaign is over before.
const CAMPAIGN_SECONDS: u64 = 500;

/// How long clients take to come to their end, and what still waits to be taken: many times what they take. Beyond
/// it the campaign fails instead of waiting.
const ENDING: Duration = Duration::from_secs(180);

/// Every third client calls over a stream.
const STREAMS: u64 = 3;

/// A way to a middleware: by calls of their own, or those that `Converse` has over a stream.
#[derive(Clone)]
struct Client {
    calls: MessageQueueClient<Channel>,
    stream: Option<Arc<Conversation>>,
}

/// Operations that are calls of their own or on a stream.
macro_rules! operations {
    ($($name:ident($request:ty) -> $kind:ident($response:ty);)+) => {
        impl Client {
            $(async fn $name(&mut self, request: $request) -> Result<Response<$response>, Status> {
                let Some(stream) = &self.stream else { return self.calls.$name(request).await };
                match stream.call(Call::$kind(request)).await.map_err(status)? {
                    Answer::$kind(answer) => Ok(Response::new(answer)),
                    other => panic!("an answer of another kind: {other:?}"),
                }
            })+
        }
    };
}

operations! {
    send(SendRequest) -> Send(SendResponse);
    receive(ReceiveRequest) -> Receive(ReceiveResponse);
    lease(LeaseRequest) -> Lease(LeaseResponse);
    acknowledge(AcknowledgeRequest) -> Acknowledge(AcknowledgeResponse);
    return_message(ReturnMessageRequest) -> ReturnMessage(ReturnMessageResponse);
}

impl Client {
    /// On a stream, as many calls at once.
    async fn send_batch(
        &mut self,
        batch: SendBatchRequest,
    ) -> Result<Response<SendBatchResponse>, Status> {
        if self.stream.is_none() {
            return self.calls.send_batch(batch).await;
        }
        let asked = batch.messages.into_iter().map(|message| {
            let mut client = self.clone();
            async move { client.send(message).await }
        });
        let result = |sent: Result<Response<SendResponse>, Status>| match sent {
            Ok(sent) => {
                SendResult { message_id: sent.into_inner().message_id, ..Default::default() }
            }
            Err(status) => {
                let (code, error) = (status.code() as i32, status.message().to_owned());
                SendResult { code, error, ..Default::default() }
            }
        };
        let results = at_once(asked).await.into_iter().map(result).collect();
        Ok(Response::new(SendBatchResponse { results }))
    }

    /// On a stream, as many calls at once: of which one fails, all are open.
    async fn receive_batch(
        &mut self,
        batch: ReceiveBatchRequest,
    ) -> Result<Response<ReceiveBatchResponse>, Status> {
        if self.stream.is_none() {
            return self.calls.receive_batch(batch).await;
        }
        let ReceiveBatchRequest { client_id, queue_id, wait_ms, limit, .. } = batch;
        let one = ReceiveRequest { client_id, queue_id, wait_ms, ..Default::default() };
        let asked = (0..limit).map(|_| {
            let (mut client, one) = (self.clone(), one.clone());
            async move { client.receive(one).await }
        });
        let mut messages = Vec::new();
        for answer in at_once(asked).await {
            messages.extend(answer?.into_inner().message);
        }
        Ok(Response::new(ReceiveBatchResponse { messages }))
    }

    async fn queue_statistics(
        &mut self,
        request: QueueStatisticsRequest,
    ) -> Result<Response<QueueStatisticsResponse>, Status> {
        self.calls.queue_statistics(request).await
    }
}

/// A refusal as a call of its own would say it.
fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Status { code, text } => Status::new(Code::from_i32(code), text),
        other => Status::unavailable(other.to_string()),
    }
}

/// What they give, in their order.
async fn at_once<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut results: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, result) in results.iter_mut().filter(|(_, result)| result.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                *result = Some(value);
            }
        }
        let done = results.iter().all(|(_, result)| result.is_some());
        if done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    results.into_iter().map(|(_, result)| result.unwrap()).collect()
}

/// When a call began and when it was answered, on a clock that counts such moments.
#[derive(Debug, Clone, Copy)]
struct Span {
    began: u64,
    answered: u64,
}

/// A send. Without an id it is open whether it happened.
#[derive(Debug)]
struct Sent {
    request: SendRequest,
    id: Option<u64>,
    span: Span,
}

/// A message that a client holds.
#[derive(Debug)]
struct Taken {
    client: u64,
    message: Message,
    span: Span,
    lease: Option<Lease>,
}

#[derive(Debug)]
struct Lease {
    id: u64,
    long: bool,
    fate: Fate,
}

/// What became of a lease.
#[derive(Debug)]
enum Fate {
    Kept,
    Returned,
    /// Answered with success, by a call that began then.
    Acknowledged {
        began: u64,
    },
    /// Not in time.
    Refused,
    /// No answer.
    Open,
}

/// What the clients saw.
#[derive(Debug, Default)]
struct History {
    sent: Vec<Sent>,
    taken: Vec<Taken>,
    /// Calls that may have taken or hidden a message without an answer, and how many.
    open_takes: usize,
    /// Receives of the plain queue that were not answered.
    open_plain: usize,
    /// The same of calls with a request id, which are asked again when all is calm.
    unsettled: Vec<Unsettled>,
}

/// A take that was asked for several times, and at last answered that there is nothing: an earlier attempt may
/// still have taken something, which then is the answer to the same request id.
#[derive(Debug)]
struct Unsettled {
    client: u64,
    /// When it was asked for first.
    began: u64,
    take: Take,
}

#[derive(Debug)]
enum Take {
    One(ReceiveRequest),
    Some(ReceiveBatchRequest),
    Lease(LeaseRequest),
}

#[derive(Debug, Default)]
struct Shared {
    history: Mutex<History>,
    clock: AtomicU64,
    done: AtomicBool,
    /// Asks the clients to come to their end.
    enough: AtomicBool,
    /// Whether calls may fail.
    killing: bool,
    /// Whether clients are "killed" as well.
    cutting: bool,
    /// Whether every take and acknowledgement has a request id.
    strict: bool,
    seed: u64,
    /// Streams that clients share, one a middleware; where there are none, each makes its own.
    streams: Vec<Arc<Conversation>>,
}

impl Shared {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&self, note: impl FnOnce(&mut History)) {
        note(&mut self.history.lock().unwrap());
    }
}

struct Actor {
    client: u64,
    addresses: Vec<SocketAddr>,
    rng: Xoshiro256PlusPlus,
    connected: Option<Client>,
    /// Of a queue, the request id of a receive that is not settled, and when it was asked for first: the
    /// next receive has the same id.
    unsettled: BTreeMap<u64, (Vec<u8>, u64)>,
    /// Attempts that were not answered.
    unanswered: u64,
    shared: Arc<Shared>,
}

impl Actor {
    fn new(client: u64, addresses: &[SocketAddr], shared: &Arc<Shared>) -> Self {
        Self {
            client,
            addresses: addresses.to_vec(),
            // A request id that was used before gets the answer of that time.
            rng: Xoshiro256PlusPlus::seed_from_u64(SEED + client + shared.seed),
            connected: None,
            unsettled: BTreeMap::new(),
            unanswered: 0,
            shared: Arc::clone(shared),
        }
    }

    /// A connection to one of the middlewares; a new one after each failure.
    async fn client(&mut self) -> Client {
        loop {
            if let Some(client) = &self.connected {
                return client.clone();
            }
            let place = self.rng.random_range(0..self.addresses.len());
            let address = self.addresses[place];
            let endpoint = Endpoint::from_shared(format!("http://{address}"))
                .unwrap()
                .connect_timeout(Duration::from_secs(1))
                .timeout(CALL);
            if let Ok(channel) = endpoint.connect().await {
                let stream = self.client.is_multiple_of(STREAMS).then(|| {
                    let shared = self.shared.streams.get(place).cloned();
                    shared.unwrap_or_else(|| Arc::new(Conversation::new(address)))
                });
                let calls = MessageQueueClient::new(channel);
                self.connected = Some(Client { calls, stream });
            } else {
                tokio::time::interval(Duration::from_millis(20)).tick().await;
            }
        }
    }

    /// One attempt: an answer, a refusal, or nothing that tells whether it happened. Who is refused since the disk is full
    /// comes again a little later.
    async fn once<T>(
        &mut self,
        ask: impl AsyncFnOnce(Client) -> Result<Response<T>, Status>,
    ) -> Result<Option<T>, Status> {
        let client = self.client().await;
        // Now and then the client is "killed": the call and the connection are dropped, wherever
        // the call is.
        let cut = self.shared.cutting && self.rng.random_range(0..10) == 0;
        let patience =
            if cut { Duration::from_micros(self.rng.random_range(0..3000)) } else { CALL };
        let status = match tokio::time::timeout(patience, ask(client)).await {
            Ok(Ok(response)) => return Ok(Some(response.into_inner())),
            Ok(Err(status)) => status,
            Err(_) => Status::cancelled("killed"),
        };
        if status.code() == Code::ResourceExhausted {
            assert!(self.shared.strict, "no disk is full: {status}");
            tokio::time::interval_at(tokio::time::Instant::now() + PAUSE, PAUSE).tick().await;
        }
        let unknown = [
            Code::Unavailable,
            Code::DeadlineExceeded,
            Code::Cancelled,
            Code::Unknown,
            Code::Aborted,
        ];
        if !unknown.contains(&status.code()) {
            return Err(status);
        }
        assert!(self.shared.killing, "nothing was killed: {status}");
        self.connected = None;
        self.unanswered += 1;
        Ok(None)
    }

    /// Asks until there is an answer.
    async fn insist<T>(
        &mut self,
        mut ask: impl AsyncFnMut(Client) -> Result<Response<T>, Status>,
    ) -> T {
        loop {
            match self.once(&mut ask).await {
                Ok(Some(answer)) => return answer,
                Ok(None) => {}
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
            }
        }
    }

    fn request_id(&mut self) -> Vec<u8> {
        self.rng.random::<[u8; 16]>().to_vec()
    }

    fn queue(&mut self) -> u64 {
        self.rng.random_range(1..=SHARED_QUEUES)
    }

    fn message(&mut self, queue_id: u64, label: &str) -> SendRequest {
        let addressed = queue_id != ORDERED_QUEUE && self.rng.random_range(0..3) == 0;
        let receiver_id = if addressed { self.client % CLIENTS + 1 } else { 0 };
        let content = format!("{} {label}", self.client);
        SendRequest { client_id: self.client, queue_id, receiver_id, content, ..Default::default() }
    }

    /// Sends with a request id until it is answered.
    async fn send(&mut self, queue: u64, label: &str) {
        let mut request = self.message(queue, label);
        request.request_id = self.request_id();
        let began = self.shared.now();
        let answer = self.insist(async |mut client| client.send(request.clone()).await).await;
        let span = Span { began, answered: self.shared.now() };
        let id = Some(answer.message_id);
        self.shared.note(|history| history.sent.push(Sent { request, id, span }));
    }

    /// Sends some without a request id, once.
    async fn send_batch(&mut self, queue: u64, label: &str, count: usize) {
        let messages: Vec<SendRequest> =
            (0..count).map(|part| self.message(queue, &format!("{label}.{part}"))).collect();
        let began = self.shared.now();
        let asked = messages.clone();
        let ids = if count == 1 {
            let one = asked.into_iter().next().unwrap();
            match self.once(async |mut client| client.send(one).await).await {
                Ok(answer) => vec![answer.map(|answer| answer.message_id)],
                Err(status) => {
                    // Nothing was sent: what comes of it all the same is not known to the history.
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                    return;
                }
            }
        } else {
            let batch = SendBatchRequest { messages: asked };
            let answer = self.once(async |mut client| client.send_batch(batch).await).await;
            match answer.unwrap() {
                Some(answer) => answer.results.iter().map(|one| self.sent(one)).collect(),
                None => vec![None; count],
            }
        };
        let span = Span { began, answered: self.shared.now() };
        let sent = messages.into_iter().zip(ids).map(|(request, id)| Sent { request, id, span });
        self.shared.note(|history| history.sent.extend(sent));
    }

    /// The id of one of a batch; none where it is open whether it was sent.
    fn sent(&self, result: &SendResult) -> Option<u64> {
        let unknown = [Code::Unavailable, Code::Aborted, Code::ResourceExhausted];
        let is_unknown = unknown.contains(&Code::from_i32(result.code));
        assert!(result.code == 0 || self.shared.killing && is_unknown, "{result:?}");
        (result.code == 0).then_some(result.message_id)
    }

    fn took(&self, began: u64, messages: Vec<Message>) {
        let span = Span { began, answered: self.shared.now() };
        let client = self.client;
        let taken =
            messages.into_iter().map(|message| Taken { client, message, span, lease: None });
        self.shared.note(|history| history.taken.extend(taken));
    }

    /// Receives with a request id until it is answered. Says whether there was a message.
    async fn receive(&mut self, queue_id: u64, wait_ms: u64) -> bool {
        let kept = self.unsettled.remove(&queue_id);
        let (unanswered, was_unsettled) = (self.unanswered, kept.is_some());
        let (request_id, began) = kept.unwrap_or_else(|| (self.request_id(), self.shared.now()));
        let client_id = self.client;
        let request =
            ReceiveRequest { client_id, queue_id, wait_ms, request_id, ..Default::default() };
        let answer = self.insist(async |mut client| client.receive(request.clone()).await).await;
        let found = answer.message.is_some();
        if !found && (was_unsettled || self.unanswered > unanswered) {
            self.unsettled.insert(queue_id, (request.request_id, began));
        }
        self.took(began, answer.message.into_iter().collect());
        found
    }

    /// Receives some with a request id until it is answered. Says how many.
    async fn receive_some(&mut self, queue_id: u64, wait_ms: u64, limit: u32) -> usize {
        let mut count = 0;
        if self.client.is_multiple_of(STREAMS) {
            // A stream has no batches.
            for _ in 0..limit {
                count += usize::from(self.receive(queue_id, wait_ms).await);
            }
            return count;
        }
        let (client_id, request_id) = (self.client, self.request_id());
        let batch = ReceiveBatchRequest {
            client_id,
            queue_id,
            wait_ms,
            limit,
            request_id,
            ..Default::default()
        };
        let (began, unanswered) = (self.shared.now(), self.unanswered);
        let answer =
            self.insist(async |mut client| client.receive_batch(batch.clone()).await).await;
        count = answer.messages.len();
        if count == 0 && self.unanswered > unanswered {
            self.is_unsettled(began, Take::Some(batch));
        }
        self.took(began, answer.messages);
        count
    }

    /// It asks for nothing more: what is not settled is asked again when all is calm.
    fn leave(&mut self) {
        for (queue_id, (request_id, began)) in std::mem::take(&mut self.unsettled) {
            let client_id = self.client;
            let request = ReceiveRequest { client_id, queue_id, request_id, ..Default::default() };
            self.is_unsettled(began, Take::One(request));
        }
    }

    fn is_unsettled(&self, began: u64, take: Take) {
        let unsettled = Unsettled { client: self.client, began, take };
        self.shared.note(|history| history.unsettled.push(unsettled));
    }

    /// Asks again: what an unanswered attempt took is the answer.
    async fn settle(&mut self, began: u64, take: Take) {
        match take {
            Take::One(request) => {
                let answer =
                    self.insist(async |mut client| client.receive(request.clone()).await).await;
                self.took(began, answer.message.into_iter().collect());
            }
            Take::Some(batch) => {
                let answer =
                    self.insist(async |mut client| client.receive_batch(batch.clone()).await).await;
                self.took(began, answer.messages);
            }
            Take::Lease(request) => {
                let answer =
                    self.insist(async |mut client| client.lease(request.clone()).await).await;
                let span = Span { began, answered: self.shared.now() };
                let Some(message) = answer.message else { return };
                let id = answer.lease_id;
                let fate = self.acknowledge(message.message_id, id, true).await;
                let (client, lease) = (self.client, Some(Lease { id, long: true, fate }));
                self.shared
                    .note(|history| history.taken.push(Taken { client, message, span, lease }));
            }
        }
    }

    /// Receives some without a request id, once. Says how many.
    async fn receive_batch(&mut self, queue_id: u64, wait_ms: u64, limit: u32) -> usize {
        if self.shared.strict {
            return self.receive_some(queue_id, wait_ms, limit).await;
        }
        let client_id = self.client;
        let began = self.shared.now();
        let messages = if limit == 1 {
            let one = ReceiveRequest { client_id, queue_id, wait_ms, ..Default::default() };
            let answer = self.once(async |mut client| client.receive(one).await).await.unwrap();
            answer.map(|answer| answer.message.into_iter().collect::<Vec<_>>())
        } else {
            let batch =
                ReceiveBatchRequest { client_id, queue_id, wait_ms, limit, ..Default::default() };
            let answer = self.once(async |mut client| client.receive_batch(batch).await).await;
            answer.unwrap().map(|answer| answer.messages)
        };
        let Some(messages) = messages else {
            self.shared.note(|history| history.open_takes += limit as usize);
            return 0;
        };
        let count = messages.len();
        self.took(began, messages);
        count
    }

    /// Receives of the plain queue, once.
    async fn receive_plainly(&mut self) {
        let (client_id, queue_id, wait_ms) = (self.client, PLAIN_QUEUE, 5);
        let request = ReceiveRequest { client_id, queue_id, wait_ms, ..Default::default() };
        let began = self.shared.now();
        match self.once(async |mut client| client.receive(request).await).await.unwrap() {
            Some(answer) => self.took(began, answer.message.into_iter().collect()),
            None => self.shared.note(|history| history.open_plain += 1),
        }
    }

    /// Leases one, and acknowledges it, returns it, or forgets it.
    async fn lease(&mut self) {
        let long = self.rng.random_range(0..3) > 0;
        let request = LeaseRequest {
            client_id: self.client,
            queue_id: self.queue(),
            lease_ms: if long { LONG_MS } else { SHORT_MS },
            request_id: if self.shared.strict { self.request_id() } else { Vec::new() },
            ..Default::default()
        };
        let (began, unanswered) = (self.shared.now(), self.unanswered);
        let answer = if self.shared.strict {
            Some(self.insist(async |mut client| client.lease(request.clone()).await).await)
        } else {
            self.once(async |mut client| client.lease(request.clone()).await).await.unwrap()
        };
        let span = Span { began, answered: self.shared.now() };
        let Some(held) = answer else {
            self.shared.note(|history| history.open_takes += 1);
            return;
        };
        let Some(message) = held.message else {
            // One that runs out at once hides nothing.
            if self.shared.strict && long && self.unanswered > unanswered {
                self.is_unsettled(began, Take::Lease(request));
            }
            return;
        };
        let id = held.lease_id;
        let fate = match self.rng.random_range(0..6) {
            0 => self.give_back(message.message_id, id, long).await,
            // Long leases that are forgotten stay hidden until the end.
            1 if !long => Fate::Kept,
            _ => self.acknowledge(message.message_id, id, long).await,
        };
        let lease = Some(Lease { id, long, fate });
        let client = self.client;
        self.shared.note(|history| history.taken.push(Taken { client, message, span, lease }));
    }

    /// Acknowledges until it is answered. A second attempt that is refused means that the first
    /// went through, if the lease cannot have run out.
    async fn acknowledge(&mut self, message_id: u64, lease_id: u64, long: bool) -> Fate {
        let client_id = self.client;
        let strict = self.shared.strict;
        let request_id = if strict { self.request_id() } else { Vec::new() };
        let request = AcknowledgeRequest { client_id, message_id, lease_id, request_id };
        let mut first = true;
        loop {
            let began = self.shared.now();
            match self.once(async |mut client| client.acknowledge(request.clone()).await).await {
                Ok(Some(_)) => return Fate::Acknowledged { began },
                Ok(None) => first = false,
                Err(status) => {
                    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
                    let held = long && (first || strict);
                    assert!(!held, "the lease was held: {message_id} {status}");
                    // With a request id an attempt that went through is answered so again.
                    return match (first || strict, long) {
                        (true, _) => Fate::Refused,
                        (false, true) => Fate::Acknowledged { began },
                        (false, false) => Fate::Open,
                    };
                }
            }
        }
    }

    async fn give_back(&mut self, message_id: u64, lease_id: u64, long: bool) -> Fate {
        let client_id = self.client;
        let request =
            ReturnMessageRequest { client_id, message_id, lease_id, ..Default::default() };
        let mut first = true;
        loop {
            match self.once(async |mut client| client.return_message(request.clone()).await).await {
                Ok(Some(_)) => return Fate::Returned,
                Ok(None) => first = false,
                Err(status) => {
                    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
                    assert!(!(first && long), "the lease was held: {message_id} {status}");
                    return Fate::Returned;
                }
            }
        }
    }
}

/// What every client does while others are killed.
async fn act(mut actor: Actor, operations: u64) {
    for number in 0..operations {
        if actor.shared.enough.load(Ordering::SeqCst) {
            break;
        }
        let (queue, label) = (actor.queue(), number.to_string());
        match actor.rng.random_range(0..22) {
            16..=18 => actor.send(PLAIN_QUEUE, &label).await,
            19..=21 => actor.receive_plainly().await,
            0..=2 => actor.send(queue, &label).await,
            3..=4 => actor.send(ORDERED_QUEUE, &label).await,
            5..=6 => actor.send_batch(queue, &label, 1).await,
            7 => actor.send_batch(queue, &label, 3).await,
            8..=12 => {
                let wait_ms = actor.rng.random_range(0..20);
                actor.receive(queue, wait_ms).await;
            }
            13 => {
                // Each that is left open may hide a loss: few.
                let limit = actor.rng.random_range(1..=2);
                actor.receive_batch(queue, 5, limit).await;
            }
            _ => actor.lease().await,
        }
    }
    actor.leave();
}

/// Sends to the plain queue and receives from it, so that at any moment some receive is under way.
async fn act_plainly(mut actor: Actor) {
    actor.rng = Xoshiro256PlusPlus::seed_from_u64(SEED + PLAIN_SEED + actor.client);
    for number in 0.. {
        if actor.shared.enough.load(Ordering::SeqCst) {
            break;
        }
        if number % 2 == 0 {
            actor.send(PLAIN_QUEUE, &format!("plain {number}")).await;
        } else {
            actor.receive_plainly().await;
        }
    }
}

/// Takes from the ordered queue alone, until the others are done.
async fn take_in_order(mut actor: Actor) {
    while !actor.shared.done.load(Ordering::SeqCst) {
        actor.receive(ORDERED_QUEUE, 20).await;
    }
    actor.leave();
}

/// Runs the clients to their end, on a thread of their own.
fn run<F: Future<Output = ()>>(
    shared: &Arc<Shared>,
    clients: impl FnOnce() -> Vec<F>,
    lone: Option<Actor>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Also when one of them panics: the killing thread must stop.
    let done = Done(Arc::clone(shared));
    runtime.block_on(async {
        let clients = async {
            at_once(clients().into_iter()).await;
            drop(done);
        };
        match lone {
            Some(lone) => {
                tokio::join!(clients, take_in_order(lone));
            }
            None => clients.await,
        }
    });
}

struct Done(Arc<Shared>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::SeqCst);
    }
}

#[test]
fn no_message_is_lost_or_delivered_twice_while_everything_is_killed() {
    let usual = Strikes {
        seed: SEED,
        operations: 90,
        most: u32::MAX,
        seconds: u64::MAX,
        disk: None,
        orderly: false,
    };
    strike(&usual);
}

/// A rolling upgrade: middlewares end by SIGTERM, one after the other, and another takes the place of each.
#[test]
fn middlewares_that_are_replaced_one_by_one_lose_nothing() {
    strike(&Strikes {
        seed: SEED,
        operations: 90,
        most: u32::MAX,
        seconds: u64::MAX,
        disk: None,
        orderly: true,
    });
}

/// `make kill`: as many kills, freezes, cuts and full disks as `KENDALL_KILLS_QUEUE` says, and no longer than
/// `KENDALL_KILL_SECONDS`.
#[test]
#[ignore = "minutes; `make kill` runs it"]
fn campaign_over_the_queue() {
    let Some(disk) = on_a_small_disk("history::campaign_over_the_queue", "600m") else { return };
    let number = |name: &str, usual: u64| -> u64 {
        std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
    };
    strike(&Strikes {
        seed: number("KENDALL_KILL_SEED", SEED),
        operations: u64::MAX,
        most: u32::try_from(number("KENDALL_KILLS_QUEUE", 600)).unwrap(),
        seconds: number("KENDALL_KILL_SECONDS", CAMPAIGN_SECONDS).min(CAMPAIGN_SECONDS),
        disk: Some(disk),
        orderly: false,
    });
}

/// How a campaign goes.
struct Strikes {
    seed: u64,
    /// Of each client.
    operations: u64,
    /// Ends after so many, or so much time.
    most: u32,
    seconds: u64,
    /// In the campaign, PostgreSQL's disk, which is full at times. Then some are also frozen or cut off instead of killed, and
    /// every take has a request id.
    disk: Option<PathBuf>,
    /// Middlewares end by SIGTERM, and nothing else is struck.
    orderly: bool,
}

/// What is struck.
struct Targets {
    postgres: PrivatePostgres,
    /// How middlewares reach it.
    url: String,
    middlewares: Vec<Middleware>,
    /// To PostgreSQL, and to each middleware; in the campaign only.
    links: Vec<Link>,
    disk: PathBuf,
}

impl Targets {
    fn new(folder: &Path, is_campaign: bool) -> Self {
        let (data, disk) = (folder.join("queue"), folder.to_owned());
        if !is_campaign {
            let postgres = start_postgres(&data);
            let url = postgres.url().to_owned();
            let middlewares = (0..2).map(|_| start_middleware(&url)).collect();
            return Self { postgres, url, middlewares, links: Vec::new(), disk };
        }
        let address = free_address();
        let tcp = Some(TcpAccess { address, password: "secret".into() });
        let options = PrivateOptions { tcp, ..PrivateOptions::default() };
        let postgres = PrivatePostgres::start_with(&data, &options).expect(NO_PROGRAMS);
        let mut links = vec![Link::start(kendall(), address)];
        let url = format!(
            "host=127.0.0.1 port={} user=kendall password=secret dbname=kendall sslmode=disable",
            links[0].listen.port()
        );
        let middlewares: Vec<Middleware> = (0..2).map(|_| start_middleware(&url)).collect();
        links.extend(middlewares.iter().map(|m| Link::start(kendall(), m.address)));
        Self { postgres, url, middlewares, links, disk }
    }

    /// Where clients find the middlewares.
    fn addresses(&self) -> Vec<SocketAddr> {
        if self.links.is_empty() {
            return self.middlewares.iter().map(|m| m.address).collect();
        }
        self.links[1..].iter().map(|link| link.listen).collect()
    }

    /// The middleware whose turn it is ends, and another is in its place.
    fn replace(&mut self, counts: &mut Counts) {
        let victim = counts.middlewares as usize % self.middlewares.len();
        let old = self.middlewares.remove(victim);
        let address = old.address;
        old.stop();
        self.middlewares.insert(victim, start_middleware_on(&self.url, address));
        counts.middlewares += 1;
    }

    /// One kill, freeze, cut or full disk.
    fn strike(&mut self, rng: &mut Xoshiro256PlusPlus, counts: &mut Counts) {
        let victim = rng.random_range(0..self.middlewares.len());
        match rng.random_range(0..if self.links.is_empty() { 4 } else { 15 }) {
            0 => counts.postgres += u32::from(kill_postgres(&self.postgres)),
            8..=11 => {
                // With transactions open: their commits are on the way. Others get their numbers after the crash.
                self.links[0].fault("stop");
                std::thread::sleep(Duration::from_millis(rng.random_range(5..40)));
                let killed = kill_postgres(&self.postgres);
                self.links[0].fault("none");
                counts.postgres_within += u32::from(killed);
            }
            4 => {
                let froze = freeze(self.middlewares[victim].pid(), rng.random_range(10..500));
                counts.frozen += u32::from(froze);
            }
            5 => {
                // The server alone: those that serve connections go on until they need it.
                let froze = freeze(self.postgres.pid(), rng.random_range(10..500));
                counts.frozen += u32::from(froze);
            }
            12 => {
                let pid =
                    if rng.random() { self.postgres.pid() } else { self.middlewares[victim].pid() };
                counts.silent += u32::from(freeze(pid, rng.random_range(2000..5000)));
            }
            13..=14 => {
                let ballast = Ballast::fill(&self.disk, 2 << 20);
                std::thread::sleep(Duration::from_millis(rng.random_range(100..2000)));
                ballast.remove();
                counts.full += 1;
            }
            fault @ 6..=7 => {
                let link = &self.links[rng.random_range(0..self.links.len())];
                link.fault(if fault == 6 { "cut" } else { "stop" });
                std::thread::sleep(Duration::from_millis(rng.random_range(1..400)));
                link.fault("none");
                counts.cut += u32::from(fault == 6);
                counts.still += u32::from(fault == 7);
            }
            _ => {
                let address = self.middlewares[victim].address;
                drop(self.middlewares.remove(victim));
                self.middlewares.insert(victim, start_middleware_on(&self.url, address));
                counts.middlewares += 1;
            }
        }
    }
}

fn strike(strikes: &Strikes) {
    let folder = tempfile::tempdir().unwrap();
    open_to_all(folder.path());
    let strict = strikes.disk.is_some();
    let mut targets = Targets::new(strikes.disk.as_deref().unwrap_or(folder.path()), strict);
    let addresses = targets.addresses();
    let cutting = !strikes.orderly;
    let shared = Arc::new(Shared { killing: true, cutting, strict, ..Shared::default() });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(set_up(addresses[0]));
    let running = {
        let (shared, addresses, operations) =
            (Arc::clone(&shared), addresses.clone(), strikes.operations);
        std::thread::spawn(move || {
            let clients = || {
                let actor = |client| Actor::new(client, &addresses, &shared);
                let all = (1..=CLIENTS).map(|client| boxed(act(actor(client), operations)));
                let plain = (1..=if strict { PLAIN_CLIENTS } else { 0 })
                    .map(|client| boxed(act_plainly(actor(client))));
                all.chain(plain).collect()
            };
            run(&shared, clients, Some(Actor::new(LONE, &addresses, &shared)));
        })
    };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(strikes.seed);
    let mut counts = Counts::default();
    let begun = kendall_tier::Clock::monotonic();
    let (from_ns, most_ns) = (begun.now_ns(), strikes.seconds.saturating_mul(1_000_000_000));
    while !shared.done.load(Ordering::SeqCst) {
        if counts.all() >= strikes.most || begun.now_ns() - from_ns > most_ns {
            shared.enough.store(true, Ordering::SeqCst);
            break;
        }
        std::thread::sleep(Duration::from_millis(rng.random_range(50..400)));
        if strikes.orderly {
            targets.replace(&mut counts);
        } else {
            targets.strike(&mut rng, &mut counts);
        }
    }
    come_to_the_end(&running);
    running.join().unwrap();
    let draining = async { tokio::time::timeout(ENDING, drain(&shared, &addresses)).await };
    let left = runtime.block_on(draining).expect("what still waits cannot be taken");
    let Targets { postgres, middlewares, .. } = targets;
    drop(middlewares);
    postgres.stop();
    println!("{counts:?}; seed {}", strikes.seed);
    assert!(counts.middlewares > 0, "the clients were done before anything was killed");
    let history = shared.history.lock().unwrap();
    assert!(!strict || history.open_takes == 0, "every take has a request id");
    check(&history, left);
    check_ids(&history);
    check_a_lone_client(&history);
}

fn come_to_the_end(running: &std::thread::JoinHandle<()>) {
    let step = Duration::from_millis(50);
    for _ in 0..ENDING.as_millis() / step.as_millis() {
        if running.is_finished() {
            return;
        }
        std::thread::sleep(step);
    }
    panic!("clients do not come to their end: a middleware answers nobody");
}

/// What was struck.
#[derive(Debug, Default)]
struct Counts {
    middlewares: u32,
    postgres: u32,
    /// Of PostgreSQL, while commits were on their way to it.
    postgres_within: u32,
    frozen: u32,
    /// Links that were cut, and that stood still for a while.
    cut: u32,
    still: u32,
    /// Frozen for seconds.
    silent: u32,
    /// Full disks.
    full: u32,
}

impl Counts {
    fn all(&self) -> u32 {
        self.middlewares
            + self.postgres
            + self.postgres_within
            + self.frozen
            + self.cut
            + self.still
            + self.silent
            + self.full
    }
}

/// Stops a process for a while; says whether it was there.
fn freeze(pid: u32, milliseconds: u64) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
        return false;
    };
    if rustix::process::kill_process(pid, rustix::process::Signal::STOP).is_err() {
        return false;
    }
    std::thread::sleep(Duration::from_millis(milliseconds));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap_or_default();
    true
}

/// Half of them send to a queue and the other half receives, while all send and take in another,
/// some of it addressed: nothing fails, so that nothing may be open.
#[test]
fn a_crowd_gets_every_message_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    open_to_all(folder.path());
    let postgres = start_postgres(&folder.path().join("queue"));
    let middlewares: Vec<Middleware> = (0..2).map(|_| start_middleware(postgres.url())).collect();
    let addresses: Vec<SocketAddr> = middlewares.iter().map(|m| m.address).collect();
    let streams = addresses.iter().map(|address| Arc::new(Conversation::new(*address))).collect();
    let shared = Arc::new(Shared { streams, ..Shared::default() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(set_up(addresses[0]));
    run(
        &shared,
        || {
            let actor = |client| Actor::new(client, &addresses, &shared);
            let ordered = (1..=CLIENTS).map(|client| in_order(actor(client)));
            let mixed = (1..=CLIENTS).map(|client| among_all(actor(client)));
            let ordered = ordered.map(boxed).chain(mixed.map(boxed));
            ordered.collect()
        },
        None,
    );
    let left = runtime.block_on(drain(&shared, &addresses));
    let history = shared.history.lock().unwrap();
    assert_eq!(history.open_takes, 0);
    check(&history, left);
    check_ids(&history);
    check_order(&history);
    drop(runtime);
    middlewares.into_iter().for_each(|middleware| drop(middleware.stop()));
    postgres.stop();
}

type Boxed = std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn boxed(future: impl Future<Output = ()> + 'static) -> Boxed {
    Box::pin(future)
}

/// Odd clients send to the ordered queue; even ones receive from it, each its share.
async fn in_order(mut actor: Actor) {
    const SHARE: usize = 150;
    // Where messages are lost, the check says which; this ends then.
    const PATIENCE: usize = 20;
    let (mut done, mut empty) = (0, 0);
    while done < SHARE && empty < PATIENCE {
        let count = actor.rng.random_range(1..=3).min(SHARE - done);
        if actor.client % 2 == 1 {
            actor.send_batch(ORDERED_QUEUE, &format!("in order {done}"), count).await;
            done += count;
        } else {
            let limit = u32::try_from(count).unwrap();
            let taken = actor.receive_batch(ORDERED_QUEUE, 1000, limit).await;
            empty = if taken == 0 { empty + 1 } else { 0 };
            done += taken;
        }
    }
}

async fn among_all(mut actor: Actor) {
    for number in 0..100 {
        let queue = actor.queue();
        match actor.rng.random_range(0..5) {
            0..=1 => {
                let count = actor.rng.random_range(1..=3);
                actor.send_batch(queue, &number.to_string(), count).await;
            }
            2..=3 => {
                let limit = actor.rng.random_range(1..=3);
                actor.receive_batch(queue, 0, limit).await;
            }
            _ => actor.lease().await,
        }
    }
}

/// All clients, one that takes alone, and the queues.
async fn set_up(address: SocketAddr) {
    let mut client = MessageQueueClient::connect(format!("http://{address}")).await.unwrap();
    for number in 1..=LONE {
        let request = HelloRequest { name: format!("client {number}") };
        assert_eq!(client.hello(request).await.unwrap().into_inner().client_id, number);
    }
    for number in 1..=PLAIN_QUEUE {
        let request = CreateQueueRequest { name: format!("queue {number}"), ..Default::default() };
        assert_eq!(client.create_queue(request).await.unwrap().into_inner().queue_id, number);
    }
}

/// What still waits, taken by those who may; and how many stay hidden by a lease.
async fn drain(shared: &Arc<Shared>, addresses: &[SocketAddr]) -> usize {
    // PostgreSQL may still be coming up after the last kill.
    let clock = AtomicU64::new(shared.now());
    let strict = shared.strict;
    let calm = Arc::new(Shared { clock, seed: 1000, killing: true, strict, ..Shared::default() });
    let unsettled = std::mem::take(&mut shared.history.lock().unwrap().unsettled);
    println!("{} calls are asked again", unsettled.len());
    // One of each client, since two would draw the same request ids.
    let mut actors: BTreeMap<u64, Actor> =
        (1..=LONE).map(|client| (client, Actor::new(client, &addresses[..1], &calm))).collect();
    for Unsettled { client, began, take } in unsettled {
        actors.get_mut(&client).unwrap().settle(began, take).await;
    }
    let most = shared.history.lock().unwrap().sent.len();
    let (mut hidden, mut found) = (0, 0);
    for actor in actors.values_mut().rev() {
        for queue in (1..=PLAIN_QUEUE).rev() {
            while actor.receive(queue, 0).await {
                found += 1;
                assert!(found <= most, "received again and again");
            }
        }
    }
    let actor = actors.get_mut(&LONE).unwrap();
    for queue_id in 1..=PLAIN_QUEUE {
        let request = QueueStatisticsRequest { queue_id };
        let about = actor.insist(async |mut client| client.queue_statistics(request).await).await;
        assert_eq!((about.waiting, about.delayed), (0, 0), "all that waits was taken");
        hidden += usize::try_from(about.leased).unwrap();
    }
    let taken = std::mem::take(&mut calm.history.lock().unwrap().taken);
    shared.note(|history| history.taken.extend(taken));
    hidden
}

/// Every message that was sent is found once: `hidden` and those that an open call may have taken
/// away are all that may be missing.
fn check(history: &History, hidden: usize) {
    let sent: BTreeMap<&str, &Sent> =
        history.sent.iter().map(|sent| (sent.request.content.as_str(), sent)).collect();
    assert_eq!(sent.len(), history.sent.len(), "every content once");
    let mut gone = BTreeSet::new();
    for taken in &history.taken {
        check_delivery(&sent, taken);
        let last = match &taken.lease {
            None => true,
            Some(lease) => matches!(lease.fate, Fate::Acknowledged { .. }),
        };
        assert!(!last || gone.insert(taken.message.content.as_str()), "twice: {taken:?}");
    }
    check_leases(history);
    let open_leases = history.taken.iter().filter_map(|taken| taken.lease.as_ref());
    let open_leases = open_leases.filter(|lease| matches!(lease.fate, Fate::Open)).count();
    let answered = history.sent.iter().filter(|sent| sent.id.is_some());
    let (plain, lost): (Vec<&Sent>, Vec<&Sent>) = answered
        .filter(|sent| !gone.contains(sent.request.content.as_str()))
        .partition(|sent| sent.request.queue_id == PLAIN_QUEUE);
    let open = history.open_takes + open_leases;
    println!(
        "{} sends, {} gone, {} missing of which {hidden} hidden; {open} calls were open; without request id {} missing, \
         {} open",
        sent.len(),
        gone.len(),
        lost.len(),
        plain.len(),
        history.open_plain,
    );
    assert!(plain.len() <= history.open_plain, "{} lost: {plain:?}", plain.len());
    assert!(lost.len() <= open, "{} of {} lost: {lost:?}", lost.len(), sent.len());
    assert!(hidden <= open, "only leases that nobody was told of stay: {hidden}");
}

/// A delivery is of a message that was sent, unchanged, to a client that may have it.
fn check_delivery(sent: &BTreeMap<&str, &Sent>, taken: &Taken) {
    let Taken { client, message, .. } = taken;
    let sent = sent.get(message.content.as_str());
    let sent = sent.unwrap_or_else(|| panic!("never sent: {message:?}"));
    let request = &sent.request;
    let said = (request.client_id, request.queue_id, request.receiver_id);
    assert_eq!((message.sender_id, message.queue_id, message.receiver_id), said, "{message:?}");
    assert!(sent.id.is_none_or(|id| id == message.message_id), "another id: {message:?}");
    assert_ne!(message.sender_id, *client, "its own: {message:?}");
    assert!([0, *client].contains(&message.receiver_id), "for another: {message:?}");
    assert!(sent.span.began < taken.span.answered, "before it was sent: {message:?}");
}

/// A lease hides the message from all clients, and only its holder acknowledges it.
fn check_leases(history: &History) {
    let mut of_message: BTreeMap<u64, Vec<&Taken>> = BTreeMap::new();
    for taken in &history.taken {
        of_message.entry(taken.message.message_id).or_default().push(taken);
    }
    for deliveries in of_message.values() {
        for (taken, lease) in deliveries.iter().filter_map(|t| Some((t, t.lease.as_ref()?))) {
            let after = |other: &&&Taken| other.span.began > taken.span.answered;
            let later = deliveries.iter().find(after);
            if lease.long && !matches!(lease.fate, Fate::Returned) {
                assert!(later.is_none(), "held, and taken by another: {taken:?} {later:?}");
            }
            let Fate::Acknowledged { began } = lease.fate else { continue };
            let stale = deliveries.iter().find(|other| {
                let newer = other.lease.as_ref().is_none_or(|other| other.id > lease.id);
                newer && other.span.began > taken.span.answered && other.span.answered < began
            });
            assert!(stale.is_none(), "acknowledged by a lease that ran out: {taken:?} {stale:?}");
        }
    }
}

/// Of two sends, the one that was answered before the other began has the lower id.
fn check_ids(history: &History) {
    let mut moments = BTreeMap::new();
    for sent in &history.sent {
        let Some(id) = sent.id else { continue };
        moments.entry(sent.span.began).or_insert_with(Vec::new).push((false, id));
        moments.entry(sent.span.answered).or_insert_with(Vec::new).push((true, id));
    }
    let mut before = 0;
    let mut highest = BTreeMap::new();
    for (moment, events) in &moments {
        for (answered, id) in events {
            if *answered {
                before = before.max(*id);
            }
        }
        highest.insert(*moment, before);
    }
    for sent in history.sent.iter().filter(|sent| sent.id.is_some()) {
        assert!(
            sent.id.unwrap() > highest[&sent.span.began],
            "a lower id than earlier ones: {sent:?}"
        );
    }
}

/// Who takes alone gets each message in the order of the ids, of all whose send was answered before.
fn check_a_lone_client(history: &History) {
    let mut taken: Vec<&Taken> =
        history.taken.iter().filter(|taken| taken.message.queue_id == ORDERED_QUEUE).collect();
    taken.sort_by_key(|taken| taken.span.began);
    let mut waiting: BTreeMap<u64, u64> = history
        .sent
        .iter()
        .filter(|sent| sent.request.queue_id == ORDERED_QUEUE)
        .map(|sent| (sent.id.unwrap(), sent.span.answered))
        .collect();
    println!("{} in order for a lone client", taken.len());
    for taken in taken {
        let id = taken.message.message_id;
        let earlier = waiting.range(..id).find(|(_, answered)| **answered < taken.span.began);
        assert!(earlier.is_none(), "{earlier:?} waited before {taken:?}");
        assert!(waiting.remove(&id).is_some());
    }
    assert!(waiting.is_empty());
}

/// No client gets a message while one of a lower id waits, from before the receive to after it.
fn check_order(history: &History) {
    let sent: BTreeMap<u64, Span> =
        history.sent.iter().filter_map(|sent| Some((sent.id?, sent.span))).collect();
    let taken: Vec<&Taken> =
        history.taken.iter().filter(|taken| taken.message.queue_id == ORDERED_QUEUE).collect();
    for taken_late in &taken {
        let id = taken_late.message.message_id;
        let waited = |early: &&&Taken| {
            early.message.message_id > id
                && sent[&id].answered < early.span.began
                && early.span.answered < taken_late.span.began
        };
        let overtaken = taken.iter().find(waited);
        assert!(overtaken.is_none(), "{taken_late:?} was overtaken by {overtaken:?}");
    }
    println!("{} in order for many", taken.len());
}

/// What one sends, takes and leases, without a mistake.
fn flawless() -> History {
    let sent = |number: u64, queue_id: u64, began: u64| Sent {
        request: SendRequest {
            client_id: 1,
            queue_id,
            content: format!("1 {number}"),
            ..Default::default()
        },
        id: Some(number),
        span: Span { began, answered: began + 1 },
    };
    let message = |number: u64, queue_id: u64| Message {
        message_id: number,
        queue_id,
        sender_id: 1,
        content: format!("1 {number}"),
        ..Default::default()
    };
    let taken = |number: u64, client: u64, queue_id: u64, began: u64| Taken {
        client,
        message: message(number, queue_id),
        span: Span { began, answered: began + 1 },
        lease: None,
    };
    let lease = Some(Lease { id: 1, long: true, fate: Fate::Acknowledged { began: 34 } });
    History {
        sent: vec![sent(1, 1, 0), sent(2, ORDERED_QUEUE, 10), sent(3, ORDERED_QUEUE, 12)],
        taken: vec![
            Taken { lease, ..taken(1, 2, 1, 30) },
            taken(2, LONE, ORDERED_QUEUE, 40),
            taken(3, LONE, ORDERED_QUEUE, 42),
        ],
        ..History::default()
    }
}

/// The checker of the campaign itself: each broken promise is found.
#[test]
fn the_checker_finds_every_kind_of_mistake() {
    let passes = |break_it: fn(&mut History), hidden: usize| {
        let mut history = flawless();
        break_it(&mut history);
        let checking = move || {
            check(&history, hidden);
            check_ids(&history);
            check_a_lone_client(&history);
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(checking)).is_ok()
    };
    assert!(passes(|_| (), 0));
    type Mistake = (&'static str, fn(&mut History));
    let mistakes: [Mistake; 11] = [
        ("a message is lost", |h| drop(h.taken.remove(0))),
        ("the last one is lost", |h| drop(h.taken.pop())),
        ("delivered twice", |h| {
            let again = Taken { client: 3, ..flawless().taken.remove(1) };
            h.taken.push(again);
        }),
        ("more lost of the plain queue than receives were open", |h| {
            h.open_plain = 1;
            for number in 4..6 {
                let mut sent = flawless().sent.remove(0);
                (sent.request.queue_id, sent.id) = (PLAIN_QUEUE, Some(number));
                sent.request.content = format!("1 {number}");
                sent.span = Span { began: 20 + 2 * number, answered: 21 + 2 * number };
                h.sent.push(sent);
            }
        }),
        ("never sent", |h| h.taken[0].message.content.push('x')),
        ("another's", |h| h.taken[0].message.receiver_id = 9),
        ("its own", |h| h.taken[0].client = 1),
        ("before it was sent", |h| h.taken[0].span = Span { began: 0, answered: 0 }),
        ("a lower id than earlier ones", |h| {
            h.sent[2].id = Some(1);
            h.sent[0].id = Some(3);
            h.taken[0].message.message_id = 3;
            h.taken[2].message.message_id = 1;
        }),
        ("out of order", |h| {
            h.taken[1].span = Span { began: 42, answered: 43 };
            h.taken[2].span = Span { began: 40, answered: 41 };
        }),
        ("taken while it was leased", |h| {
            let lease = Some(Lease { id: 2, long: true, fate: Fate::Returned });
            let span = Span { began: 32, answered: 33 };
            h.taken.push(Taken { client: 3, span, lease, ..flawless().taken.remove(0) });
        }),
    ];
    for (what, break_it) in mistakes {
        assert!(!passes(break_it, 0), "{what}");
    }
    assert!(!passes(|_| (), 1), "a message stays hidden");
}

const NO_PROGRAMS: &str =
    "PostgreSQL's server programs are needed; `make packages-test` installs them";

fn kendall() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kendall"))
}

fn start_postgres(data: &Path) -> PrivatePostgres {
    PrivatePostgres::start(data).expect(NO_PROGRAMS)
}

/// Few workers and connections, so that operations meet in batches.
fn start_middleware(url: &str) -> Middleware {
    start_middleware_on(url, ([127, 0, 0, 1], 0).into())
}

fn start_middleware_on(url: &str, address: SocketAddr) -> Middleware {
    let arguments = ["--workers", "3", "--connections", "2", "--database-timeout", "2s"];
    // While PostgreSQL is away it does not start: again then, for a minute.
    for _ in 0..1200 {
        let started =
            Middleware::start_on(address, &[&["--database", url], &arguments[..]].concat());
        match started {
            Ok(middleware) => return middleware,
            Err(said) => {
                assert!(
                    said.contains("cannot connect") || said.contains("cannot prepare"),
                    "{said}"
                );
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    panic!("PostgreSQL does not come back");
}

/// SIGKILL to the server and all its children: a crash, after which it replays its log. Says whether it was there.
fn kill_postgres(postgres: &PrivatePostgres) -> bool {
    let server = postgres.pid();
    let name = std::fs::read_to_string(format!("/proc/{server}/comm")).unwrap_or_default();
    if name.trim() != "postgres" {
        // Killed a moment ago, and not started again yet.
        return false;
    }
    kill_with_children(server);
    true
}

fn open_to_all(folder: &Path) {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder, open).unwrap();
}
