//! The message queue: gRPC over HTTP/2, with messages that prove themselves.
//!
//! Every client of the load sends under one name and receives under another, since nobody may
//! receive what they sent themselves. It asks for its operations in turns by their weights, so that
//! with as many sends as receives a message waits whenever one is asked for. Each message that
//! comes back is checked: that its content is what its sender wrote, that it was for this client or
//! for anyone, and that nobody in this process got it before.
//!
//! Left out: whether a message was lost, which only the queue's own counters tell.

mod call;
mod content;
mod taken;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kendall_protocols::queue as wire;
use prost::Message as _;
use rand::Rng as _;
use tokio::task::LocalSet;

use crate::driver::{ErrorKind, Reply};
use crate::load::{LoadError, LoadPlan, LoadProgress, PacePlan, Start, run_threads};
use crate::memcached::Size;
use crate::random::{Purpose, Random, stream};
use crate::recorder::Recorder;
use crate::result::LoadResult;
use crate::tasks::{self, Client};
use call::{Connection, Refusal};
use taken::Taken;

/// Requests of the preparation that are under way together.
const TOGETHER: usize = 64;
/// Messages of one batch of the filling: any server takes as many.
const FILLED_AT_ONCE: u64 = 100;
/// Names of results.
const ACKNOWLEDGE: &str = "acknowledge";

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOperation {
    /// Sends a message.
    Send,
    /// Takes a message away.
    Receive,
    /// Looks at the message that a receive would take.
    Read,
    /// Leases a message; the client acknowledges it with its next request.
    Lease,
}

impl QueueOperation {
    /// All of them. A client begins with the first of those that it is to ask for.
    pub const ALL: [Self; 4] = [Self::Send, Self::Receive, Self::Read, Self::Lease];

    /// Name in mixes and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Read => "read",
            Self::Lease => "lease",
        }
    }
}

/// Who may take a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peers {
    /// Anyone but its sender.
    Any,
    /// Client number i sends to client number i + 1 of this generator, the last one to the first.
    Next,
    /// A client of this generator, drawn anew for each message.
    Random,
}

/// What a load of the message queue sends.
#[derive(Debug, Clone)]
pub struct QueuePlan {
    /// Operations and their weights.
    pub mix: Vec<(QueueOperation, f64)>,
    /// Name of the queue; made where it does not exist. Of several, they are numbered from 1.
    pub queue: String,
    /// Queues, over which the clients are spread in turn.
    pub queues: usize,
    /// Length of messages, in characters of one byte.
    pub message_size: Size,
    /// Who may take them.
    pub peers: Peers,
    /// How long a receive or a lease waits for a message, in milliseconds.
    pub wait_ms: u64,
    /// How long a leased message is hidden, in milliseconds.
    pub lease_ms: u64,
    /// Connections that the clients share; `None` for one each.
    pub connections: Option<usize>,
    /// Messages that wait when the load begins.
    pub prefill: u64,
}

/// A plan that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QueuePlanError {
    /// Not a mix.
    #[error("`{text}` is not a mix; write it like `send=1,receive=1` (send, receive, read, lease)")]
    Mix {
        /// What was written.
        text: String,
    },
    /// Not peers.
    #[error("`{text}` says not who may take a message; write `any`, `next` or `random`")]
    Peers {
        /// What was written.
        text: String,
    },
    /// A size that messages cannot have.
    #[error("`{text}` is not a size of messages; write it like `200B` or `uniform:50B..2KB`")]
    Size {
        /// What was written.
        text: String,
    },
}

impl QueuePlan {
    /// Reads `send=1,receive=1`.
    ///
    /// # Errors
    /// [`QueuePlanError::Mix`] when it is none, or all weights are 0.
    pub fn parse_mix(text: &str) -> Result<Vec<(QueueOperation, f64)>, QueuePlanError> {
        let refuse = || QueuePlanError::Mix { text: text.to_owned() };
        let mut weights = [0.0; QueueOperation::ALL.len()];
        for part in text.split(',') {
            let (name, weight) = part.trim().split_once('=').ok_or_else(refuse)?;
            let place = QueueOperation::ALL.iter().position(|operation| operation.name() == name);
            let weight: f64 = weight.parse().map_err(|_| refuse())?;
            if !weight.is_finite() || weight < 0.0 {
                return Err(refuse());
            }
            weights[place.ok_or_else(refuse)?] += weight;
        }
        let mix: Vec<_> = QueueOperation::ALL
            .into_iter()
            .zip(weights)
            .filter(|(_, weight)| *weight > 0.0)
            .collect();
        if mix.is_empty() { Err(refuse()) } else { Ok(mix) }
    }

    /// Reads `any`, `next` or `random`.
    ///
    /// # Errors
    /// [`QueuePlanError::Peers`] when it is none of these.
    pub fn parse_peers(text: &str) -> Result<Peers, QueuePlanError> {
        match text {
            "any" => Ok(Peers::Any),
            "next" => Ok(Peers::Next),
            "random" => Ok(Peers::Random),
            _ => Err(QueuePlanError::Peers { text: text.to_owned() }),
        }
    }

    /// Reads `200B` or `uniform:50B..2KB`.
    ///
    /// # Errors
    /// [`QueuePlanError::Size`] when it is neither.
    pub fn parse_size(text: &str) -> Result<Size, QueuePlanError> {
        match Size::parse(text) {
            Ok(size @ (Size::Fixed(_) | Size::Uniform(..))) => Ok(size),
            _ => Err(QueuePlanError::Size { text: text.to_owned() }),
        }
    }

    /// Names of the operations, in the order of their counters.
    fn operations(&self) -> Vec<String> {
        let leases = self.mix.iter().any(|(operation, _)| *operation == QueueOperation::Lease);
        let names = self.mix.iter().map(|(operation, _)| operation.name());
        names.chain(leases.then_some(ACKNOWLEDGE)).map(str::to_owned).collect()
    }
}

/// A load of the message queue that did not take place.
#[derive(Debug, thiserror::Error)]
pub enum QueueLoadError {
    /// No server, or no threads.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The queue service would not let the load prepare itself.
    #[error("the queue service refused to {what}: {said}")]
    Refused {
        /// What was asked of it.
        what: &'static str,
        /// Its status.
        said: String,
    },
}

/// Who the clients are, and what all of them share.
#[derive(Debug)]
struct Crowd {
    plan: QueuePlan,
    /// Ids under which the clients send and receive, by their numbers.
    senders: Vec<u64>,
    receivers: Vec<u64>,
    queues: Vec<u64>,
    taken: Taken,
}

/// Runs a load test of the message queue.
///
/// # Errors
/// [`QueueLoadError`] when no target can be reached or the clients cannot say hello. What happens
/// later is counted.
pub fn run(
    plan: &LoadPlan,
    queue: &QueuePlan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, QueueLoadError> {
    let crowd = Arc::new(prepare(plan, queue)?);
    let body = |start: Start<'_>, recorder: Recorder| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let random = stream(plan.seed, Purpose::Requests, start.place.thread);
        let load = async {
            let clients = connect_all(&start, &crowd, random).await;
            tasks::run_thread(&start, clients, recorder).await
        };
        LocalSet::new().block_on(&runtime, load)
    };
    Ok(run_threads("queue", plan, queue.operations(), &body, stop, progress)?)
}

/// Clients say hello, queues are made, messages wait.
fn prepare(plan: &LoadPlan, queue: &QueuePlan) -> Result<Crowd, QueueLoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(LoadError::Thread)?;
    let target = plan.targets[0];
    let work = async {
        let connection = Rc::new(Connection::new(target));
        let limit = Duration::from_nanos(plan.timeout_ns);
        open(&connection, limit).await?;
        let name = |role: &str, number: usize| format!("load {} {role} {number}", plan.seed);
        let all = |role: &'static str| (0..plan.clients).map(move |number| name(role, number));
        let ids = hello_all(&connection, all("sender").chain(all("receiver")).collect()).await?;
        let (senders, receivers) = ids.split_at(plan.clients);
        let mut crowd = Crowd {
            plan: queue.clone(),
            senders: senders.to_vec(),
            receivers: receivers.to_vec(),
            queues: Vec::new(),
            taken: Taken::default(),
        };
        for number in 1..=queue.queues {
            let name = if queue.queues == 1 {
                queue.queue.clone()
            } else {
                format!("{} {number}", queue.queue)
            };
            crowd.queues.push(find_queue(&connection, &name, crowd.senders[0]).await?);
        }
        fill(&connection, &crowd, stream(plan.seed, Purpose::Sizes, 0)).await?;
        Ok(crowd)
    };
    LocalSet::new().block_on(&runtime, work)
}

async fn open(connection: &Connection, limit: Duration) -> Result<(), LoadError> {
    let opened = match tokio::time::timeout(limit, connection.open()).await {
        Ok(opened) => opened,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
    };
    opened.map_err(|source| LoadError::Connect { target: connection.target(), source })
}

fn refused(what: &'static str) -> impl Fn(Refusal) -> QueueLoadError {
    move |refusal| QueueLoadError::Refused { what, said: refusal.to_string() }
}

/// The ids of these names, in their order.
async fn hello_all(
    connection: &Rc<Connection>,
    names: Vec<String>,
) -> Result<Vec<u64>, QueueLoadError> {
    let mut ids = Vec::with_capacity(names.len());
    for some in names.chunks(TOGETHER) {
        let mut tasks = Vec::new();
        for name in some {
            let (connection, request) =
                (Rc::clone(connection), wire::HelloRequest { name: name.clone() });
            tasks.push(tokio::task::spawn_local(async move {
                connection.ask::<wire::HelloResponse>("Hello", &request).await
            }));
        }
        for task in tasks {
            let answer = task.await.map_err(|error| LoadError::Thread(error.into()))?;
            ids.push(answer.map_err(refused("let a client say hello"))?.client_id);
        }
    }
    Ok(ids)
}

/// The id of a queue, which is made where it does not exist.
async fn find_queue(
    connection: &Connection,
    name: &str,
    client_id: u64,
) -> Result<u64, QueueLoadError> {
    let create = wire::CreateQueueRequest { name: name.to_owned(), ..Default::default() };
    match connection.ask::<wire::CreateQueueResponse>("CreateQueue", &create).await {
        Ok(made) => return Ok(made.queue_id),
        Err(refusal) if refusal.already_exists() => {}
        Err(refusal) => return Err(refused("make a queue")(refusal)),
    }
    let mut after_queue_id = 0;
    loop {
        let list =
            wire::ListQueuesRequest { client_id, all: true, after_queue_id, ..Default::default() };
        let page: wire::ListQueuesResponse =
            connection.ask("ListQueues", &list).await.map_err(refused("list its queues"))?;
        if let Some(queue) = page.queues.iter().find(|queue| queue.name == name) {
            return Ok(queue.queue_id);
        }
        let Some(last) = page.queues.last() else {
            let said = format!("`{name}` exists and is not in the list");
            return Err(QueueLoadError::Refused { what: "name a queue", said });
        };
        after_queue_id = last.queue_id;
    }
}

/// Messages that wait when the load begins: of all clients in turn, as they would send them.
async fn fill(
    connection: &Connection,
    crowd: &Crowd,
    mut random: Random,
) -> Result<(), QueueLoadError> {
    let mut number = 0;
    while number < crowd.plan.prefill {
        let until = (number + FILLED_AT_ONCE).min(crowd.plan.prefill);
        let messages = (number..until)
            .map(|number| {
                let clients = crowd.senders.len() as u64;
                crowd.message(usize::try_from(number % clients).unwrap_or(0), &mut random)
            })
            .collect();
        let batch = wire::SendBatchRequest { messages };
        let sent: wire::SendBatchResponse =
            connection.ask("SendBatch", &batch).await.map_err(refused("take messages"))?;
        if let Some(failed) = sent.results.iter().find(|result| result.code != 0) {
            let said = failed.error.clone();
            return Err(QueueLoadError::Refused { what: "take a message", said });
        }
        number = until;
    }
    Ok(())
}

impl Crowd {
    fn queue_of(&self, client: usize) -> u64 {
        self.queues[client % self.queues.len()]
    }

    /// A message of client number `client`.
    fn message(&self, client: usize, random: &mut Random) -> wire::SendRequest {
        let clients = self.receivers.len();
        let below = |random: &mut Random, bound: usize| {
            // A remainder's bias is below 2^-32 for any bound that fits into memory.
            usize::try_from(random.next_u64() % (bound as u64).max(1)).unwrap_or(0)
        };
        let receiver = match self.plan.peers {
            Peers::Any => None,
            Peers::Next => Some((client + 1) % clients),
            Peers::Random => Some(below(random, clients)),
        };
        let length = match self.plan.message_size {
            Size::Fixed(bytes) => bytes,
            Size::Uniform(low, high) => low + below(random, high - low + 1),
            Size::Etc => 0,
        };
        let client_id = self.senders[client];
        wire::SendRequest {
            client_id,
            // Addressed messages go where their receiver looks.
            queue_id: self.queue_of(receiver.unwrap_or(client)),
            receiver_id: receiver.map_or(0, |receiver| self.receivers[receiver]),
            content: content::write(client_id, random.next_u64(), length),
            ..Default::default()
        }
    }

    /// Whether a message is one that `receiver` may have, as its sender wrote it; of one that is
    /// taken away or leased also, that nobody had it before.
    fn check(&self, receiver: u64, message: &wire::Message, away: bool) -> Result<(), ErrorKind> {
        let for_it = message.receiver_id == 0 || message.receiver_id == receiver;
        let right = for_it
            && message.sender_id != receiver
            && content::matches(message.sender_id, &message.content);
        // A leased message may come again when its lease ran out.
        let first = !away || self.taken.insert(message.message_id);
        if right && first { Ok(()) } else { Err(ErrorKind::WrongValue) }
    }
}

/// One client of the load.
struct QueueClient {
    crowd: Arc<Crowd>,
    connection: Rc<Connection>,
    random: Rc<RefCell<Random>>,
    number: usize,
    /// What each operation of the mix is owed: by this client, or in the open loop, whose clients
    /// serve whatever arrival comes, by all of the thread.
    owed: Rc<RefCell<Vec<f64>>>,
    held: Option<wire::AcknowledgeRequest>,
    next: Next,
}

/// The request that a client sends next.
struct Next {
    operation: Option<QueueOperation>,
    bytes: Vec<u8>,
}

async fn connect_all(
    start: &Start<'_>,
    crowd: &Arc<Crowd>,
    random: Random,
) -> Result<Vec<QueueClient>, LoadError> {
    let place = &start.place;
    let targets: Vec<SocketAddr> = place.connections();
    let of_this_thread =
        crowd.plan.connections.map_or(targets.len(), |all| place.share(all).min(targets.len()));
    let mut connections = Vec::with_capacity(of_this_thread);
    for target in &targets[..of_this_thread] {
        let connection = Rc::new(Connection::new(*target));
        open(&connection, Duration::from_nanos(place.plan.timeout_ns)).await?;
        connections.push(connection);
    }
    let random = Rc::new(RefCell::new(random));
    let nothing = || Rc::new(RefCell::new(vec![0.0; crowd.plan.mix.len()]));
    let together = matches!(place.plan.pace, PacePlan::Open { .. }).then(nothing);
    let clients = place.clients().enumerate().map(|(index, number)| QueueClient {
        crowd: Arc::clone(crowd),
        connection: Rc::clone(&connections[index % of_this_thread]),
        random: Rc::clone(&random),
        number,
        owed: together.clone().unwrap_or_else(nothing),
        held: None,
        next: Next { operation: None, bytes: Vec::new() },
    });
    Ok(clients.collect())
}

impl QueueClient {
    /// The operation that is furthest behind its share.
    fn in_turn(&self) -> usize {
        let mix = &self.crowd.plan.mix;
        let total: f64 = mix.iter().map(|(_, weight)| weight).sum();
        let mut owed = self.owed.borrow_mut();
        let mut most = 0;
        for (place, (_, weight)) in mix.iter().enumerate() {
            owed[place] += weight;
            if owed[place] > owed[most] {
                most = place;
            }
        }
        owed[most] -= total;
        most
    }

    fn write(&mut self, operation: QueueOperation) {
        let (client_id, queue_id) =
            (self.crowd.receivers[self.number], self.crowd.queue_of(self.number));
        let QueuePlan { wait_ms, lease_ms, .. } = self.crowd.plan;
        let body = &mut self.next.bytes;
        match operation {
            QueueOperation::Send => {
                let message = self.crowd.message(self.number, &mut self.random.borrow_mut());
                call::write(&message, body);
            }
            QueueOperation::Receive => {
                let receive =
                    wire::ReceiveRequest { client_id, queue_id, wait_ms, ..Default::default() };
                call::write(&receive, body);
            }
            QueueOperation::Read => {
                let read = wire::ReadRequest { client_id, queue_id, ..Default::default() };
                call::write(&read, body);
            }
            QueueOperation::Lease => {
                let lease = wire::LeaseRequest {
                    client_id,
                    queue_id,
                    wait_ms,
                    lease_ms,
                    ..Default::default()
                };
                call::write(&lease, body);
            }
        }
    }

    /// What an answer means.
    fn reply(&mut self, answer: &[u8]) -> Result<Reply, ErrorKind> {
        let garbage = |_| ErrorKind::Garbage;
        let receiver = self.crowd.receivers[self.number];
        let found = |message: Option<&wire::Message>, away: bool| match message {
            Some(message) => {
                self.crowd.check(receiver, message, away)?;
                Ok(Reply { hits: 1, ..Reply::default() })
            }
            None => Ok(Reply { misses: 1, ..Reply::default() }),
        };
        match self.next.operation {
            None => {
                wire::AcknowledgeResponse::decode(answer).map_err(garbage)?;
                Ok(Reply::default())
            }
            Some(QueueOperation::Send) => {
                let sent = wire::SendResponse::decode(answer).map_err(garbage)?;
                if sent.message_id == 0 { Err(ErrorKind::Garbage) } else { Ok(Reply::default()) }
            }
            Some(QueueOperation::Receive) => {
                let answer = wire::ReceiveResponse::decode(answer).map_err(garbage)?;
                found(answer.message.as_ref(), true)
            }
            Some(QueueOperation::Read) => {
                let answer = wire::ReadResponse::decode(answer).map_err(garbage)?;
                found(answer.message.as_ref(), false)
            }
            Some(QueueOperation::Lease) => {
                let answer = wire::LeaseResponse::decode(answer).map_err(garbage)?;
                let reply = found(answer.message.as_ref(), false);
                self.held = answer.message.map(|message| wire::AcknowledgeRequest {
                    client_id: receiver,
                    message_id: message.message_id,
                    lease_id: answer.lease_id,
                });
                reply
            }
        }
    }
}

impl Client for QueueClient {
    fn draw(&mut self) -> (usize, u64) {
        self.next.bytes.clear();
        let place = if let Some(held) = self.held.take() {
            self.next.operation = None;
            call::write(&held, &mut self.next.bytes);
            self.crowd.plan.mix.len()
        } else {
            let place = self.in_turn();
            let operation = self.crowd.plan.mix[place].0;
            self.next.operation = Some(operation);
            self.write(operation);
            place
        };
        (place, self.next.bytes.len() as u64)
    }

    async fn exchange(&mut self) -> Result<(Reply, u64), ErrorKind> {
        let method = match self.next.operation {
            None => "Acknowledge",
            Some(QueueOperation::Send) => "Send",
            Some(QueueOperation::Receive) => "Receive",
            Some(QueueOperation::Read) => "Read",
            Some(QueueOperation::Lease) => "Lease",
        };
        let connection = Rc::clone(&self.connection);
        match connection.call(method, std::mem::take(&mut self.next.bytes)).await {
            Ok(answer) => {
                let bytes = answer.len() as u64 + call::PREFIX_BYTES;
                let reply = self.reply(&answer).unwrap_or_else(Reply::refused);
                Ok((reply, bytes))
            }
            Err(Refusal::Status { code, .. }) => Ok((Reply::refused(call::kind(code)), 0)),
            Err(Refusal::Broken(kind)) => Err(kind),
        }
    }

    fn failed(&mut self, kind: ErrorKind) {
        // A request that took too long is taken back by itself; others of the connection go on.
        if kind != ErrorKind::TimedOut {
            self.connection.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_and_nonsense_refused() {
        let mix = QueuePlan::parse_mix("receive=1, send=3").unwrap();
        assert_eq!(mix, [(QueueOperation::Send, 3.0), (QueueOperation::Receive, 1.0)]);
        for nonsense in ["", "send", "send=", "send=-1", "send=0", "post=1", "send=NaN"] {
            assert!(QueuePlan::parse_mix(nonsense).is_err(), "{nonsense}");
        }
        assert_eq!(QueuePlan::parse_size("200B"), Ok(Size::Fixed(200)));
        assert!(QueuePlan::parse_size("etc").is_err());
        assert_eq!(QueuePlan::parse_peers("next"), Ok(Peers::Next));
        assert!(QueuePlan::parse_peers("all").is_err());
    }

    fn crowd(peers: Peers) -> Crowd {
        Crowd {
            plan: QueuePlan {
                mix: QueuePlan::parse_mix("send=2,receive=1").unwrap(),
                queue: "load".into(),
                queues: 2,
                message_size: Size::Uniform(20, 40),
                peers,
                wait_ms: 0,
                lease_ms: 1000,
                connections: None,
                prefill: 0,
            },
            senders: vec![1, 2, 3],
            receivers: vec![11, 12, 13],
            queues: vec![7, 8],
            taken: Taken::default(),
        }
    }

    fn delivered(sent: &wire::SendRequest, message_id: u64) -> wire::Message {
        wire::Message {
            message_id,
            queue_id: sent.queue_id,
            sender_id: sent.client_id,
            receiver_id: sent.receiver_id,
            content: sent.content.clone(),
            ..Default::default()
        }
    }

    #[test]
    fn messages_are_right_once_and_for_their_receiver() {
        let crowd = crowd(Peers::Next);
        let mut random = stream(1, Purpose::Requests, 0);
        let sent = crowd.message(2, &mut random);
        assert_eq!((sent.receiver_id, sent.queue_id), (11, 7), "the last sends to the first");
        assert!((20..=40).contains(&sent.content.len()));
        let message = delivered(&sent, 5);
        assert_eq!(crowd.check(12, &message, true), Err(ErrorKind::WrongValue), "not its receiver");
        let message = delivered(&sent, 6);
        assert_eq!(crowd.check(11, &message, true), Ok(()));
        assert_eq!(crowd.check(11, &message, true), Err(ErrorKind::WrongValue), "twice");
        let mut other = delivered(&sent, 7);
        other.sender_id = 2;
        assert_eq!(crowd.check(11, &other, true), Err(ErrorKind::WrongValue), "another's content");
    }

    #[test]
    fn operations_come_in_turns_by_their_weights() {
        let crowd = Arc::new(crowd(Peers::Any));
        let mut client = QueueClient {
            owed: Rc::new(RefCell::new(vec![0.0; crowd.plan.mix.len()])),
            crowd,
            connection: Rc::new(Connection::new(([127, 0, 0, 1], 1).into())),
            random: Rc::new(RefCell::new(stream(1, Purpose::Requests, 0))),
            number: 0,
            held: None,
            next: Next { operation: None, bytes: Vec::new() },
        };
        let drawn: Vec<usize> = (0..6).map(|_| client.draw().0).collect();
        assert_eq!(drawn, [0, 1, 0, 0, 1, 0]);
    }
}
