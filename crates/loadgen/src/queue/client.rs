//! One client of the load: what it asks for, how it calls, what answers mean.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kendall_protocols::queue as wire;
use kendall_protocols::queue::call::Operation;
use kendall_protocols::queue::reply::Answer as OfCall;
use prost::Message as _;

use super::conversation::Conversation;
use super::{ACKNOWLEDGE, CLIENTS_A_STREAM, Calls, Crowd, QueueOperation, QueuePlan};
use crate::driver::{ErrorKind, Reply};
use crate::grpc::{self, Connection, Refusal};
use crate::load::{LoadError, LoadPlan, Place};
use crate::random::Random;
use crate::tasks::Client;
use crate::weighted::furthest_behind;

pub(super) struct QueueClient {
    crowd: Arc<Crowd>,
    way: Way,
    random: Rc<RefCell<Random>>,
    number: usize,
    /// What each operation of the mix is owed: by this client, or in the open loop, whose clients
    /// serve whatever arrival comes, by all of the thread.
    owed: Rc<RefCell<Vec<f64>>>,
    held: Option<wire::AcknowledgeRequest>,
    next: Next,
}

/// How its calls get there.
#[derive(Clone)]
enum Way {
    Single(Rc<Connection>),
    Stream(Rc<Conversation>),
}

struct Next {
    /// `None` for the acknowledgement of what was leased.
    operation: Option<QueueOperation>,
    request: Request,
}

enum Asked {
    /// Something that a stream carries as well.
    Call(Operation),
    /// The queues where something waits.
    List(wire::ListQueuesRequest),
}

#[derive(Clone)]
enum Answer {
    Call(OfCall),
    Queues(wire::ListQueuesResponse),
}

enum Request {
    None,
    Single(Vec<u8>),
    Stream(Operation),
}

/// The connected clients of a thread.
pub(super) async fn connect_all(
    place: &Place<'_>,
    crowd: &Arc<Crowd>,
) -> Result<Vec<QueueClient>, LoadError> {
    let all = crowd.plan.connections.or(match crowd.plan.calls {
        Calls::Single => None,
        Calls::Stream => Some(streams(place.plan)),
    });
    let limit = Duration::from_nanos(place.plan.timeout_ns);
    let ways = place.connect(all, async |target, _| connect(&crowd.plan, target, limit).await);
    let (random, owed) = (place.random(), place.owed(crowd.plan.mix.len()));
    let clients = place.clients().zip(ways.await?).map(|(number, way)| QueueClient {
        crowd: Arc::clone(crowd),
        way,
        random: Rc::clone(&random),
        number,
        owed: owed(),
        held: None,
        next: Next { operation: None, request: Request::None },
    });
    Ok(clients.collect())
}

/// The number of streams by default: few, since a stream is worth more the more calls
/// share it.
fn streams(plan: &LoadPlan) -> usize {
    plan.targets.len().max(plan.threads).max(plan.clients.div_ceil(CLIENTS_A_STREAM))
}

async fn connect(plan: &QueuePlan, target: SocketAddr, limit: Duration) -> Result<Way, LoadError> {
    let access = plan.access.clone();
    match plan.calls {
        Calls::Single => {
            let connection = Rc::new(Connection::new(target, access));
            connection.open_within(limit).await?;
            Ok(Way::Single(connection))
        }
        Calls::Stream => {
            let conversation = Rc::new(Conversation::reached(target, access));
            let source = match tokio::time::timeout(limit, conversation.open()).await {
                Ok(Ok(())) => return Ok(Way::Stream(conversation)),
                Ok(Err(Refusal::Connect(error))) => std::io::Error::new(error.kind(), error),
                Ok(Err(refusal)) => std::io::Error::other(refusal),
                Err(_) => std::io::ErrorKind::TimedOut.into(),
            };
            Err(LoadError::Connect { target, source })
        }
    }
}

impl QueueClient {
    /// The operation that is furthest behind its share.
    fn in_turn(&self) -> usize {
        let mix = &self.crowd.plan.mix;
        furthest_behind(mix.iter().map(|(_, weight)| *weight), &mut self.owed.borrow_mut())
    }

    fn asked(&self, operation: QueueOperation) -> Asked {
        let (client_id, queue_id) =
            (self.crowd.receivers[self.number], self.crowd.queue_of(self.number));
        let QueuePlan { wait_ms, lease_ms, .. } = self.crowd.plan;
        Asked::Call(match operation {
            QueueOperation::Send => {
                Operation::Send(self.crowd.message(self.number, &mut self.random.borrow_mut()))
            }
            QueueOperation::Receive => Operation::Receive(wire::ReceiveRequest {
                client_id,
                queue_id,
                wait_ms,
                ..Default::default()
            }),
            QueueOperation::Read => {
                Operation::Read(wire::ReadRequest { client_id, queue_id, ..Default::default() })
            }
            QueueOperation::Lease => Operation::Lease(wire::LeaseRequest {
                client_id,
                queue_id,
                wait_ms,
                lease_ms,
                ..Default::default()
            }),
            QueueOperation::List => {
                return Asked::List(wire::ListQueuesRequest { client_id, ..Default::default() });
            }
        })
    }

    /// What an answer means.
    fn reply(&mut self, answer: Answer) -> Result<Reply, ErrorKind> {
        let receiver = self.crowd.receivers[self.number];
        let found = |message: Option<&wire::Message>, away: bool| match message {
            Some(message) => {
                self.crowd.check(receiver, message, away)?;
                Ok(Reply { hits: 1, ..Reply::default() })
            }
            None => Ok(Reply { misses: 1, ..Reply::default() }),
        };
        let answer = match (self.next.operation, answer) {
            // No queue with a message is an answer as good as any.
            (Some(QueueOperation::List), Answer::Queues(listed)) => {
                let known = listed.queues.iter().all(|queue| queue.queue_id != 0);
                return if known { Ok(Reply::default()) } else { Err(ErrorKind::Garbage) };
            }
            (_, Answer::Queues(_)) => return Err(ErrorKind::Garbage),
            (_, Answer::Call(answer)) => answer,
        };
        match (self.next.operation, answer) {
            (None, OfCall::Acknowledge(_)) => Ok(Reply::default()),
            (Some(QueueOperation::Send), OfCall::Send(sent)) if sent.message_id != 0 => {
                Ok(Reply::default())
            }
            (Some(QueueOperation::Receive), OfCall::Receive(answer)) => {
                found(answer.message.as_ref(), true)
            }
            (Some(QueueOperation::Read), OfCall::Read(answer)) => {
                found(answer.message.as_ref(), false)
            }
            (Some(QueueOperation::Lease), OfCall::Lease(answer)) => {
                let reply = found(answer.message.as_ref(), false);
                self.held = answer.message.map(|message| wire::AcknowledgeRequest {
                    client_id: receiver,
                    message_id: message.message_id,
                    lease_id: answer.lease_id,
                    ..Default::default()
                });
                reply
            }
            _ => Err(ErrorKind::Garbage),
        }
    }

    /// The answer, and its bytes.
    async fn ask(&mut self) -> Result<(Answer, u64), Refusal> {
        let operation = self.next.operation;
        match (self.way.clone(), std::mem::replace(&mut self.next.request, Request::None)) {
            (Way::Single(connection), Request::Single(body)) => {
                let answer = connection.call(&super::path(method(operation)), body.into()).await?;
                let bytes = (answer.len() + grpc::PREFIX_BYTES) as u64;
                let answer = decode(operation, answer);
                Ok((answer.map_err(|_| Refusal::Broken(ErrorKind::Garbage))?, bytes))
            }
            (Way::Stream(conversation), Request::Stream(asked)) => {
                let answer = conversation.call(asked).await?;
                let bytes = answer.encoded_len() as u64;
                Ok((Answer::Call(answer), bytes))
            }
            // Nothing was drawn: never asked for.
            _ => Err(Refusal::Broken(ErrorKind::ClientError)),
        }
    }
}

fn method(operation: Option<QueueOperation>) -> &'static str {
    match operation {
        None => "Acknowledge",
        Some(QueueOperation::Send) => "Send",
        Some(QueueOperation::Receive) => "Receive",
        Some(QueueOperation::Read) => "Read",
        Some(QueueOperation::Lease) => "Lease",
        Some(QueueOperation::List) => "ListQueues",
    }
}

/// A request of a call of its own, with its prefix.
fn encode(asked: &Asked) -> Vec<u8> {
    let mut body = Vec::new();
    match asked {
        Asked::List(request) => grpc::write(request, &mut body),
        Asked::Call(asked) => match asked {
            Operation::Send(request) => grpc::write(request, &mut body),
            Operation::Receive(request) => grpc::write(request, &mut body),
            Operation::Read(request) => grpc::write(request, &mut body),
            Operation::Lease(request) => grpc::write(request, &mut body),
            Operation::Acknowledge(request) => grpc::write(request, &mut body),
            Operation::ExtendLease(request) => grpc::write(request, &mut body),
            Operation::ReturnMessage(request) => grpc::write(request, &mut body),
        },
    }
    body
}

/// The answer to a call of its own.
fn decode(operation: Option<QueueOperation>, answer: Bytes) -> Result<Answer, prost::DecodeError> {
    Ok(Answer::Call(match operation {
        None => OfCall::Acknowledge(wire::AcknowledgeResponse::decode(answer)?),
        Some(QueueOperation::Send) => OfCall::Send(wire::SendResponse::decode(answer)?),
        Some(QueueOperation::Receive) => OfCall::Receive(wire::ReceiveResponse::decode(answer)?),
        Some(QueueOperation::Read) => OfCall::Read(wire::ReadResponse::decode(answer)?),
        Some(QueueOperation::Lease) => OfCall::Lease(wire::LeaseResponse::decode(answer)?),
        Some(QueueOperation::List) => {
            return Ok(Answer::Queues(wire::ListQueuesResponse::decode(answer)?));
        }
    }))
}

impl Client for QueueClient {
    fn draw(&mut self) -> (usize, u64) {
        let (place, asked) = if let Some(held) = self.held.take() {
            self.next.operation = None;
            (self.crowd.plan.mix.len(), Asked::Call(Operation::Acknowledge(held)))
        } else {
            let place = self.in_turn();
            let operation = self.crowd.plan.mix[place].0;
            self.next.operation = Some(operation);
            (place, self.asked(operation))
        };
        let (request, bytes) = match (&self.way, asked) {
            (Way::Stream(_), Asked::Call(asked)) => {
                let bytes = asked.encoded_len();
                (Request::Stream(asked), bytes)
            }
            (Way::Single(_) | Way::Stream(_), asked) => {
                let body = encode(&asked);
                let bytes = body.len();
                (Request::Single(body), bytes)
            }
        };
        self.next.request = request;
        (place, bytes as u64)
    }

    async fn exchange(&mut self) -> Result<(Reply, u64), ErrorKind> {
        match self.ask().await {
            Ok((answer, bytes)) => Ok((self.reply(answer).unwrap_or_else(Reply::refused), bytes)),
            Err(refusal) => {
                if let Refusal::Status { .. } = refusal {
                    let name = self.next.operation.map_or(ACKNOWLEDGE, QueueOperation::name);
                    self.crowd.said.note(name, &refusal.to_string());
                }
                match refusal {
                    Refusal::Status { .. } => Ok((Reply::refused(refusal.kind()), 0)),
                    _ => Err(refusal.kind()),
                }
            }
        }
    }

    fn failed(&mut self, kind: ErrorKind) {
        // A request that took too long is taken back by itself; others of the connection go on. A
        // stream that broke is opened again by who calls next.
        if let Way::Single(connection) = &self.way
            && kind != ErrorKind::TimedOut
        {
            connection.close();
        }
    }

    fn sent_anew(&mut self) -> u64 {
        match &self.way {
            Way::Single(connection) => connection.sent_anew.take(),
            Way::Stream(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Peers;
    use super::super::tests::crowd;
    use super::*;
    use crate::queue::Access;
    use crate::random::{Purpose, stream};

    fn client() -> QueueClient {
        let crowd = Arc::new(crowd(Peers::Any));
        QueueClient {
            owed: Rc::new(RefCell::new(vec![0.0; crowd.plan.mix.len()])),
            crowd,
            way: Way::Single(Rc::new(Connection::new(
                ([127, 0, 0, 1], 1).into(),
                Access::default(),
            ))),
            random: Rc::new(RefCell::new(stream(1, Purpose::Requests, 0))),
            number: 0,
            held: None,
            next: Next { operation: None, request: Request::None },
        }
    }

    #[test]
    fn operations_come_in_turns_by_their_weights() {
        let mut client = client();
        let drawn: Vec<usize> = (0..6).map(|_| client.draw().0).collect();
        assert_eq!(drawn, [0, 1, 0, 0, 1, 0]);
    }

    /// A reply of another kind than its request breaks the connection.
    #[test]
    fn an_answer_of_another_kind_is_garbage() {
        let mut client = client();
        client.draw();
        let sent = Answer::Call(OfCall::Send(wire::SendResponse { message_id: 1 }));
        assert_eq!(client.reply(sent.clone()), Ok(Reply::default()));
        let unnumbered = Answer::Call(OfCall::Send(wire::SendResponse { message_id: 0 }));
        assert_eq!(client.reply(unnumbered), Err(ErrorKind::Garbage));
        client.draw();
        assert_eq!(client.reply(sent), Err(ErrorKind::Garbage), "of a receive");
        let none = Answer::Call(OfCall::Receive(wire::ReceiveResponse { message: None }));
        assert_eq!(client.reply(none), Ok(Reply { misses: 1, ..Reply::default() }));
    }
}
