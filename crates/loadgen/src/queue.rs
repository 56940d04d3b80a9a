//! The message queue: gRPC over HTTP/2, with messages that prove themselves.
//!
//! Every client of the load sends under one name and receives under another, since no client may
//! receive what they sent themselves. It asks for its operations in turns by their weights, so that
//! with as many sends as receives a message waits whenever one is asked for. Each message that
//! comes back is checked: that its content is what its sender wrote, that it was for this client or
//! for any, and that no client of this process got it before.
//!
//! Left out: whether a message was lost, which only the queue's own counters tell.

mod client;
mod content;
mod conversation;
mod duplicates;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kendall_protocols::queue as wire;
use rand::Rng as _;

use crate::driver::{ErrorKind, named};
use crate::grpc::Connection;
pub use crate::grpc::{Access, AccessError, Refusal};
use crate::load::{LoadError, LoadPlan, LoadProgress, Start, run_threads};
use crate::memcached::Size;
use crate::random::{Purpose, Random, stream};
use crate::recorder::Recorder;
use crate::refusals::Said;
use crate::tasks;
use crate::weighted::weights;
pub use conversation::Conversation;
use duplicates::Taken;
use kendall_protocols::load_result::LoadResult;
use kendall_protocols::queue::SERVICE;
pub use kendall_protocols::queue::{OPEN_CALLS, streams_needed};

/// Requests of the preparation that are under way together.
const TOGETHER: usize = 64;
/// Messages of one batch of the filling: any server takes as many.
const FILLED_AT_ONCE: u64 = 100;
/// Clients that share a stream by default: half of those that can have a call on it.
pub const CLIENTS_A_STREAM: usize = OPEN_CALLS / 2;
const ACKNOWLEDGE: &str = "acknowledge";

named! {
    /// What a client asks for. It begins with the first of those that it is to ask for.
    pub enum QueueOperation {
        Send = "send",
        /// Takes a message away.
        Receive = "receive",
        /// Reads the message that a receive would take.
        Read = "read",
        /// Leases a message; the client acknowledges it with its next request.
        Lease = "lease",
        /// Lists the queues where a message waits that the client may take.
        List = "list",
    }
}

named! {
    /// Who may take a message.
    pub enum Peers {
        /// Anyone but its sender.
        Any = "any",
        /// Client number i sends to client number i + 1 of this generator, the last one to the first.
        Next = "next",
        /// A client of this generator, drawn anew for each message.
        Random = "random",
    }
}

named! {
    pub enum Calls {
        /// Each operation is a call of its own.
        Single = "single",
        /// All operations of a connection are on one stream: [`Conversation`].
        Stream = "stream",
    }
}

/// What a load of the message queue sends.
#[derive(Debug, Clone)]
pub struct QueuePlan {
    /// How middlewares are reached. A token is an administrator's: the load has clients of many names.
    pub access: Access,
    pub calls: Calls,
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
    /// Connections that the clients share; `None` for one each, or where calls are on streams, for
    /// one a target and thread, and one for each [`CLIENTS_A_STREAM`] clients at least.
    pub connections: Option<usize>,
    /// Messages that wait when the load begins.
    pub prefill: u64,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QueuePlanError {
    #[error(
        "`{text}` is not a mix; write it like `send=1,receive=1` (send, receive, read, lease, list)"
    )]
    Mix { text: String },
    #[error("invalid value `{text}` for --peers: expected any, next or random")]
    Peers { text: String },
    #[error("`{text}` is not a kind of calls; write `single` or `stream`")]
    Calls { text: String },
    #[error("a stream does not carry `{operation}`; leave it out of the mix, or make single calls")]
    NotOnStreams { operation: &'static str },
    #[error(
        "{connections} connections with a stream each are too few for {clients} clients: a stream \
         carries {OPEN_CALLS} calls at a time; allow {needed} or more"
    )]
    Crowded { connections: usize, clients: usize, needed: u64 },
    #[error("`{text}` is not a size of messages; write it like `200B` or `uniform:50B..2KB`")]
    Size { text: String },
}

impl QueuePlan {
    /// Reads `send=1,receive=1`.
    pub fn parse_mix(text: &str) -> Result<Vec<(QueueOperation, f64)>, QueuePlanError> {
        let mix = weights(text, None, QueueOperation::named);
        let mut mix = mix.ok_or_else(|| QueuePlanError::Mix { text: text.to_owned() })?;
        mix.sort_by_key(|(operation, _)| *operation as usize);
        Ok(mix)
    }

    /// Reads `any`, `next` or `random`.
    pub fn parse_peers(text: &str) -> Result<Peers, QueuePlanError> {
        Peers::named(text).ok_or_else(|| QueuePlanError::Peers { text: text.to_owned() })
    }

    /// Reads `single` or `stream`.
    pub fn parse_calls(text: &str) -> Result<Calls, QueuePlanError> {
        Calls::named(text).ok_or_else(|| QueuePlanError::Calls { text: text.to_owned() })
    }

    /// Whether the mix can be called like this, and every one of so many clients finds a place on
    /// the connections.
    ///
    /// # Errors
    /// [`QueuePlanError::NotOnStreams`] for an operation that has no place on a stream, and
    /// [`QueuePlanError::Crowded`] when a client would wait for others to be answered before it
    /// could ask, which would count as the queue's response time.
    pub fn check(&self, clients: usize, threads: usize) -> Result<(), QueuePlanError> {
        let lists = self.mix.iter().any(|(operation, _)| *operation == QueueOperation::List);
        if lists && self.calls == Calls::Stream {
            let operation = QueueOperation::List.name();
            return Err(QueuePlanError::NotOnStreams { operation });
        }
        let needed = streams_needed(clients as u64, threads as u64);
        match self.connections.filter(|_| self.calls == Calls::Stream) {
            Some(connections) if (connections as u64) < needed => {
                Err(QueuePlanError::Crowded { connections, clients, needed })
            }
            _ => Ok(()),
        }
    }

    /// Reads `200B` or `uniform:50B..2KB`.
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
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The queue service would not let the load prepare itself.
    #[error("the queue service refused to {what}: {said}")]
    Refused { what: &'static str, said: String },
    #[error(
        "the queue service ended the TLS connection; it may want a certificate of its clients \
         (`--client-certificate`, `--client-key`)"
    )]
    Tls,
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
    said: Said,
}

/// Runs a load test of the message queue.
pub fn run(
    plan: &LoadPlan,
    queue: &QueuePlan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, QueueLoadError> {
    let crowd = Arc::new(prepare(plan, queue)?);
    let body = |start: Start<'_>, recorder: Recorder| {
        tasks::run_thread(&start, client::connect_all(&start.place, &crowd), recorder)
    };
    let mut result = run_threads("queue", plan, queue.operations(), &body, stop, progress)?;
    result.calls = Some(queue.calls.name().to_owned());
    crowd.said.tell(&mut result);
    Ok(result)
}

/// Clients say hello, queues are made, messages wait.
fn prepare(plan: &LoadPlan, queue: &QueuePlan) -> Result<Crowd, QueueLoadError> {
    let target = plan.targets[0];
    let work = async {
        let connection = Rc::new(Connection::new(target, queue.access.clone()));
        let limit = Duration::from_nanos(plan.timeout_ns);
        connection.open_within(limit).await?;
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
            said: Said::default(),
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
    tasks::block_on(work).map_err(LoadError::Thread)?
}

fn path(method: &str) -> String {
    format!("/{SERVICE}/{method}")
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
                connection.ask::<wire::HelloResponse>(&path("Hello"), &request).await
            }));
        }
        for task in tasks {
            let answer = task.await.map_err(|error| LoadError::Thread(error.into()))?;
            let answer = answer.map_err(|refusal| match connection.ended_encryption(&refusal) {
                true => QueueLoadError::Tls,
                false => refused("let a client say hello")(refusal),
            });
            ids.push(answer?.client_id);
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
    match connection.ask::<wire::CreateQueueResponse>(&path("CreateQueue"), &create).await {
        Ok(made) => return Ok(made.queue_id),
        Err(refusal) if refusal.already_exists() => {}
        Err(refusal) => return Err(refused("make a queue")(refusal)),
    }
    let mut after_queue_id = 0;
    loop {
        let list =
            wire::ListQueuesRequest { client_id, all: true, after_queue_id, ..Default::default() };
        let page: wire::ListQueuesResponse =
            connection.ask(&path("ListQueues"), &list).await.map_err(refused("list its queues"))?;
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
            connection.ask(&path("SendBatch"), &batch).await.map_err(refused("take messages"))?;
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
            // Addressed messages go to the queue that their receiver reads.
            queue_id: self.queue_of(receiver.unwrap_or(client)),
            receiver_id: receiver.map_or(0, |receiver| self.receivers[receiver]),
            content: content::write(client_id, random.next_u64(), length),
            ..Default::default()
        }
    }

    /// Whether a message is one that `receiver` may have, as its sender wrote it; of one that is
    /// removed or leased also, that no client had it before.
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
        assert_eq!(QueuePlan::parse_calls("stream"), Ok(Calls::Stream));
        let refused = QueuePlan::parse_calls("streams").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "`streams` is not a kind of calls; write `single` or `stream`"
        );
    }

    #[test]
    fn a_stream_is_for_as_many_clients_as_it_carries_calls() {
        let mut plan = crowd(Peers::Any).plan;
        plan.connections = Some(2);
        assert_eq!(plan.check(100_000, 1), Ok(()), "calls of their own have no such limit");
        plan.calls = Calls::Stream;
        assert_eq!(plan.check(2048, 1), Ok(()));
        assert_eq!(plan.check(4096, 4), Ok(()), "every thread has a stream");
        let refused = plan.check(4097, 4).unwrap_err();
        assert!(refused.to_string().ends_with("allow 8 or more"), "{refused}");
        let refused = plan.check(2049, 1).unwrap_err();
        assert!(
            refused.to_string().ends_with("1024 calls at a time; allow 3 or more"),
            "{refused}"
        );
        plan.connections = None;
        assert_eq!(plan.check(100_000, 1), Ok(()));
    }

    pub(super) fn crowd(peers: Peers) -> Crowd {
        Crowd {
            plan: QueuePlan {
                access: Access::default(),
                calls: Calls::Single,
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
            said: Said::default(),
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
}
