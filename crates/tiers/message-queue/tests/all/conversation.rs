//! Many calls on one stream, against a real PostgreSQL.

use std::collections::BTreeMap;
use std::time::Duration;

use kendall_protocols::queue::call::Operation;
use kendall_protocols::queue::reply::Answer;
use kendall_protocols::queue::{
    AcknowledgeRequest, Call, Calls, ExtendLeaseRequest, LeaseRequest, Message, ReceiveRequest,
    Replies, Reply, ReturnMessageRequest, SendRequest,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::support::{self, Client, Folder, connect, create, hello, postgres, runtime};

/// Longer than anything here takes on the slowest machine: a test that hangs ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// The caller's side.
struct Talk {
    calls: mpsc::Sender<Calls>,
    replies: Streaming<Replies>,
}

impl Talk {
    async fn open(client: &mut Client) -> Self {
        let (calls, outgoing) = mpsc::channel(4);
        let replies = client.converse(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        Self { calls, replies }
    }

    /// Calls them in one message, under the tags 0, 1 and so on.
    async fn ask(&self, operations: Vec<Operation>) {
        let calls = (0..).zip(operations);
        let calls = calls.map(|(tag, operation)| Call { tag, operation: Some(operation) });
        self.calls.send(Calls { calls: calls.collect() }).await.unwrap();
    }

    /// The next message of replies; `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<Vec<Reply>>, Status> {
        let message = tokio::time::timeout(PATIENCE, self.replies.message()).await;
        Ok(message.expect("the server answers")?.map(|replies| replies.replies))
    }

    /// As many replies, by tag. None comes twice.
    async fn replies(&mut self, count: usize) -> BTreeMap<u64, Reply> {
        let mut all = BTreeMap::new();
        while all.len() < count {
            for reply in self.next().await.unwrap().expect("more replies") {
                assert!(all.insert(reply.tag, reply.clone()).is_none(), "twice: {reply:?}");
            }
        }
        all
    }

    /// One call and its answer.
    async fn one(&mut self, operation: Operation) -> Answer {
        self.ask(vec![operation]).await;
        let reply = self.replies(1).await.remove(&0).unwrap();
        assert_eq!(reply.code, 0, "{}", reply.error);
        reply.answer.unwrap()
    }
}

fn send(client_id: u64, queue_id: u64, content: &str) -> Operation {
    let content = content.to_owned();
    Operation::Send(SendRequest { client_id, queue_id, content, ..Default::default() })
}

fn receive(client_id: u64, queue_id: u64, wait_ms: u64) -> Operation {
    Operation::Receive(ReceiveRequest { client_id, queue_id, wait_ms, ..Default::default() })
}

fn received(reply: &Reply) -> Option<Message> {
    match reply.answer.clone() {
        Some(Answer::Receive(answer)) => answer.message,
        other => panic!("{other:?}: {}", reply.error),
    }
}

async fn every_call_is_answered_once_and_by_itself(client: &mut Client) {
    let (ann, bob) = (hello(client, "ann").await, hello(client, "bob").await);
    let queue = create(client, "many").await;
    let mut talk = Talk::open(client).await;
    // More than a stream may have open, in one message.
    let mut operations: Vec<_> =
        (0..1500).map(|number| send(ann, queue, &number.to_string())).collect();
    operations[7] = send(ann, queue + 1000, "to a queue that is not there");
    operations[8] = send(ann, queue, &"x".repeat(2001));
    operations[9] = send(ann + 1000, queue, "of nobody");
    talk.ask(operations).await;
    let replies = talk.replies(1500).await;
    let refused: Vec<_> =
        replies.values().filter(|reply| reply.code != 0).map(|r| (r.tag, r.code)).collect();
    let code = |code: Code| code as i32;
    let (missing, wrong) = (code(Code::NotFound), code(Code::InvalidArgument));
    assert_eq!(refused, [(7, missing), (8, wrong), (9, missing)]);
    // A call without an operation is a mistake of that call alone.
    talk.calls.send(Calls { calls: vec![Call { tag: 5, operation: None }] }).await.unwrap();
    assert_eq!(talk.replies(1).await[&5].code, wrong);

    talk.ask(vec![receive(bob, queue, 0); 1500]).await;
    let replies = talk.replies(1500).await;
    let mut contents: Vec<_> =
        replies.values().filter_map(received).map(|m| m.content.parse::<u32>().unwrap()).collect();
    contents.sort_unstable();
    assert!(contents.iter().copied().eq((0..1500).filter(|number| !(7..10).contains(number))));
    assert_eq!(replies.values().filter(|reply| received(reply).is_none()).count(), 3);
    // Six million bytes of answers: more than clients read of one message.
    talk.ask(vec![send(ann, queue, &"x".repeat(2000)); 1000]).await;
    talk.replies(1000).await;
    talk.ask(vec![send(ann, queue, &"\u{1F600}".repeat(2000)); 700]).await;
    talk.replies(700).await;
    talk.ask(vec![receive(bob, queue, 0); 1000]).await;
    talk.replies(1000).await;
    talk.ask(vec![receive(bob, queue, 0); 700]).await;
    assert!(talk.replies(700).await.values().all(|reply| received(reply).is_some()));
    drop(talk.calls);
    assert_eq!(talk.replies.message().await.unwrap(), None, "the stream ends");
}

async fn a_waiting_receive_is_woken_by_a_send_of_the_same_stream(client: &mut Client) {
    let (ann, bob) = (hello(client, "ann").await, hello(client, "bob").await);
    let queue = create(client, "woken").await;
    let mut talk = Talk::open(client).await;
    talk.ask(vec![receive(bob, queue, 50_000)]).await;
    let sends = Calls { calls: vec![Call { tag: 1, operation: Some(send(ann, queue, "wake")) }] };
    talk.calls.send(sends).await.unwrap();
    let replies = talk.replies(2).await;
    assert_eq!(received(&replies[&0]).unwrap().content, "wake");
}

async fn of_many_takers_one_gets_what_waits_for_it_alone(client: &mut Client) {
    let ann = hello(client, "ann").await;
    let mut takers = Vec::new();
    for number in 0..5 {
        takers.push(hello(client, &format!("taker {number}")).await);
    }
    let (queue_id, elsewhere) = (create(client, "mixed").await, create(client, "elsewhere").await);
    let to = |receiver_id, queue_id, content: &str| {
        let (client_id, content) = (ann, content.to_owned());
        Operation::Send(SendRequest {
            client_id,
            queue_id,
            receiver_id,
            content,
            ..Default::default()
        })
    };
    let mut talk = Talk::open(client).await;
    talk.one(to(takers[1], elsewhere, "in another queue")).await;
    // With nothing addressed in this queue, and then with one for the taker that asks last.
    for alone in [false, true] {
        if alone {
            talk.one(to(takers[4], queue_id, "for taker 4")).await;
        }
        for number in 0..4 {
            talk.one(send(ann, queue_id, &number.to_string())).await;
        }
        let receives = takers.iter().map(|taker| receive(*taker, queue_id, 0));
        talk.ask(receives.collect()).await;
        let replies = talk.replies(5).await;
        let got = replies.values().map(|reply| received(reply).map(|message| message.content));
        let last = alone.then_some("for taker 4");
        let wanted =
            [Some("0"), Some("1"), Some("2"), Some("3"), last].map(|text| text.map(str::to_owned));
        assert_eq!(got.collect::<Vec<_>>(), wanted, "alone: {alone}");
    }
}

async fn leases_are_held_extended_returned_and_acknowledged(client: &mut Client) {
    let (ann, bob) = (hello(client, "ann").await, hello(client, "bob").await);
    let queue_id = create(client, "leased").await;
    let mut talk = Talk::open(client).await;
    talk.one(send(ann, queue_id, "work")).await;
    let lease = LeaseRequest { client_id: bob, queue_id, lease_ms: 100_000, ..Default::default() };
    for returned in [true, false] {
        let Answer::Lease(leased) = talk.one(Operation::Lease(lease.clone())).await else {
            panic!()
        };
        let message_id = leased.message.unwrap().message_id;
        let (client_id, lease_id) = (bob, leased.lease_id);
        let lease_ms = 200_000;
        let extend = ExtendLeaseRequest { client_id, message_id, lease_id, lease_ms };
        assert!(matches!(talk.one(Operation::ExtendLease(extend)).await, Answer::ExtendLease(_)));
        if returned {
            let back =
                ReturnMessageRequest { client_id, message_id, lease_id, ..Default::default() };
            let answer = talk.one(Operation::ReturnMessage(back)).await;
            assert!(matches!(answer, Answer::ReturnMessage(_)));
        } else {
            let done = AcknowledgeRequest { client_id, message_id, lease_id, ..Default::default() };
            let answer = talk.one(Operation::Acknowledge(done)).await;
            assert!(matches!(answer, Answer::Acknowledge(_)));
        }
    }
    let Answer::Lease(none) = talk.one(Operation::Lease(lease.clone())).await else { panic!() };
    assert_eq!(none.message, None);
}

async fn a_stream_that_is_gone_takes_no_message(client: &mut Client) {
    let (ann, bob) = (hello(client, "ann").await, hello(client, "bob").await);
    let queue = create(client, "gone").await;
    let mut talk = Talk::open(client).await;
    // The send's answer shows that the receive before it is waiting, or nearly.
    talk.ask(vec![receive(bob, queue, 50_000), send(bob, queue, "of bob himself")]).await;
    assert_eq!(talk.replies(1).await.keys().copied().collect::<Vec<_>>(), [1]);
    drop(talk);
    let mut other = Talk::open(client).await;
    // The message of bob, which he could not have. While his receive looks at it, it is locked, so ann waits.
    assert!(
        matches!(other.one(receive(ann, queue, 50_000)).await, Answer::Receive(m) if m.message.is_some())
    );
    other.one(send(ann, queue, "not for the dead")).await;
    let carl = hello(client, "carl").await;
    let Answer::Receive(answer) = other.one(receive(carl, queue, 50_000)).await else { panic!() };
    assert_eq!(answer.message.unwrap().content, "not for the dead");
}

#[test]
fn conversations() {
    let folder = Folder::new();
    let postgres = postgres(&folder);
    let database = kendall_message_queue::Database::Url(postgres.url().to_owned());
    let server = support::start(database);
    let runtime = runtime();
    runtime.block_on(async {
        let mut client = connect(&server).await;
        every_call_is_answered_once_and_by_itself(&mut client).await;
        a_waiting_receive_is_woken_by_a_send_of_the_same_stream(&mut client).await;
        of_many_takers_one_gets_what_waits_for_it_alone(&mut client).await;
        leases_are_held_extended_returned_and_acknowledged(&mut client).await;
        a_stream_that_is_gone_takes_no_message(&mut client).await;
    });
    // A stream that is open, with a call that waits, does not keep the middleware from stopping.
    let mut talk = runtime.block_on(async {
        let mut client = connect(&server).await;
        let bob = hello(&mut client, "bob").await;
        let queue = create(&mut client, "stopped").await;
        let talk = Talk::open(&mut client).await;
        talk.ask(vec![receive(bob, queue, 50_000)]).await;
        talk
    });
    server.stop();
    runtime.block_on(async {
        let reply = talk.next().await;
        match reply {
            Ok(Some(replies)) => assert_eq!(replies[0].code, Code::Unavailable as i32),
            // The stop came before the call was read.
            Err(status) => assert_eq!(status.code(), Code::Unavailable),
            Ok(None) => panic!("a call without an answer"),
        }
        assert!(talk.next().await.map_or_else(|s| s.code() == Code::Unavailable, |m| m.is_none()));
    });
    postgres.stop();
}
