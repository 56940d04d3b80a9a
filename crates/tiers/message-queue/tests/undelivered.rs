//! A client that goes while its receive is under way loses nothing: what PostgreSQL has given away by
//! then is put back where it was, as it was.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use kendall_message_queue::Server;
use kendall_protocols::queue::call::Operation;
use kendall_protocols::queue::{
    Call, Calls, Message, Order, ReceiveBatchRequest, ReceiveRequest, SendRequest,
};
use support::{
    Client, Folder, Other, WAITING_FOR_A_LOCK, connect, create, hello, postgres, runtime,
};
use tokio_stream::wrappers::ReceiverStream;

/// Longer than anything here takes on the slowest machine: a test that hangs ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a client receives.
#[derive(Debug, Clone, Copy)]
enum Way {
    Alone,
    Waiting,
    Batch,
    Stream,
}

async fn receive(way: Way, mut client: Client, client_id: u64, queue_id: u64) {
    let wait_ms = if matches!(way, Way::Waiting) { 50_000 } else { 0 };
    let request = ReceiveRequest { client_id, queue_id, wait_ms, ..Default::default() };
    match way {
        Way::Alone | Way::Waiting => drop(client.receive(request).await),
        Way::Batch => {
            let request =
                ReceiveBatchRequest { client_id, queue_id, limit: 3, ..Default::default() };
            drop(client.receive_batch(request).await);
        }
        Way::Stream => {
            let (calls, outgoing) = tokio::sync::mpsc::channel(1);
            let replies = client.converse(ReceiverStream::new(outgoing)).await;
            let call = |tag| Call { tag, operation: Some(Operation::Receive(request.clone())) };
            calls.send(Calls { calls: (0..3).map(call).collect() }).await.unwrap();
            drop(replies.unwrap().into_inner().message().await);
        }
    }
}

/// Takes away all that waits, oldest first.
async fn rest(client: &mut Client, client_id: u64, queue_id: u64) -> Vec<Message> {
    let request = ReceiveBatchRequest { client_id, queue_id, limit: 100, ..Default::default() };
    client.receive_batch(request).await.unwrap().into_inner().messages
}

/// No request waits or is served.
async fn until_served(server: &Server) {
    tokio::time::timeout(PATIENCE, async {
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        loop {
            looks.tick().await;
            let now = server.instruments().snapshot();
            if now.queue_length.current == 0 && now.workers_busy.current == 0 {
                return;
            }
        }
    })
    .await
    .expect("requests are served");
}

/// The client hangs up while PostgreSQL works on its receive, and the middleware has seen that before
/// PostgreSQL is done.
async fn goes_while_it_is_served(server: &Server, other: &Other, way: Way) {
    let mut client = connect(server).await;
    let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
    let queue_id = create(&mut client, &format!("{way:?}")).await;
    for (content, priority, receiver_id) in [("a", 0, 0), ("b", 7, to), ("c", 0, 0)] {
        let content = content.into();
        client
            .send(SendRequest {
                client_id: from,
                queue_id,
                content,
                priority,
                receiver_id,
                ..Default::default()
            })
            .await
            .unwrap();
    }
    other.run("BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE").await;
    // A connection of its own, since it is cut.
    let gone = connect(server).await;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(receive(way, gone, to, queue_id));
    other.until(WAITING_FOR_A_LOCK, 1).await;
    tasks.shutdown().await;
    tokio::time::timeout(PATIENCE, async {
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        while server.instruments().snapshot().connections.current > 1 {
            looks.tick().await;
        }
    })
    .await
    .expect("the middleware sees that the client is gone");
    other.run("COMMIT").await;
    until_served(server).await;
    // Put back by who served it, or a moment later by who waited for it.
    other.until("SELECT count(*) FROM message", 3).await;
    let found = rest(&mut client, to, queue_id).await;
    let facts: Vec<_> = found
        .iter()
        .map(|m| (m.content.as_str(), m.priority, m.receiver_id, m.sender_id, m.deliveries))
        .collect();
    assert_eq!(facts, [("a", 0, 0, from, 0), ("b", 7, to, from, 0), ("c", 0, 0, from, 0)]);
    assert!(found.is_sorted_by_key(|m| m.message_id) && found.is_sorted_by_key(|m| m.sent_at_us));
}

#[test]
fn a_receiver_that_goes_meanwhile_loses_nothing() {
    let folder = Folder::new();
    let postgres = postgres(&folder);
    let database = kendall_message_queue::Database::Url(postgres.url().to_owned());
    let server = support::start(database);
    runtime().block_on(async {
        let other = Other::connect(postgres.url()).await;
        for way in [Way::Alone, Way::Waiting, Way::Batch, Way::Stream] {
            goes_while_it_is_served(&server, &other, way).await;
        }
    });
    server.stop();
    postgres.stop();
}

/// A take that finds nothing does not hide what is there from those after it in a batch.
#[test]
fn takes_of_a_batch_do_not_depend_on_one_another() {
    let folder = Folder::new();
    let server = support::start(support::private(&folder));
    runtime().block_on(async {
        let mut client = connect(&server).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let nobody = hello(&mut client, "nobody").await;
        let queue_id = create(&mut client, "jobs").await;
        let send = SendRequest { client_id: from, queue_id, priority: 3, ..Default::default() };
        client.send(send).await.unwrap();
        let of = |sender_id| ReceiveRequest {
            client_id: to,
            queue_id,
            sender_id,
            order: Order::Priority.into(),
            ..Default::default()
        };
        let (calls, outgoing) = tokio::sync::mpsc::channel(1);
        let mut replies =
            client.converse(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        let call = |(tag, sender)| Call { tag, operation: Some(Operation::Receive(of(sender))) };
        let asked = (0..).zip([nobody, nobody, from]).map(call).collect();
        calls.send(Calls { calls: asked }).await.unwrap();
        let mut found = Vec::new();
        while found.len() < 3 {
            let more = tokio::time::timeout(PATIENCE, replies.message()).await.unwrap();
            for reply in more.unwrap().unwrap().replies {
                let answer = reply.answer.unwrap();
                let kendall_protocols::queue::reply::Answer::Receive(answer) = answer else {
                    panic!("{answer:?}");
                };
                found.push((reply.tag, answer.message.map(|message| message.sender_id)));
            }
        }
        found.sort_unstable();
        assert_eq!(found, [(0, None), (1, None), (2, Some(from))]);
    });
    server.stop();
}
