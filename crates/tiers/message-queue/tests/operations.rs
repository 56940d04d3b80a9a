//! Every operation, over gRPC, on a real PostgreSQL.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

mod support;

use kendall_protocols::queue::{
    AcknowledgeRequest, CreateQueueRequest, DeleteQueueRequest, ExtendLeaseRequest, GoodbyeRequest,
    HelloRequest, LeaseRequest, ListQueuesRequest, Order, PurgeRequest, QueueStatisticsRequest,
    ReadRequest, ReceiveBatchRequest, ReceiveRequest, ReturnMessageRequest, SendBatchRequest,
    SendRequest,
};
use support::{Client, Folder, connect, create, hello, private, runtime, start};
use tonic::Code;

struct Setting {
    client: Client,
    alice: u64,
    bob: u64,
    queue: u64,
}

type Test = fn(&tokio::runtime::Runtime, &mut Setting);

/// One PostgreSQL for all the tests of this file: making one takes longer than any of them.
fn with_setting(tests: &[(&str, Test)]) {
    let folder = Folder::new();
    let server = start(private(&folder));
    let runtime = runtime();
    for (name, test) in tests {
        let mut setting = runtime.block_on(async {
            let mut client = connect(&server).await;
            let alice = hello(&mut client, &format!("{name} alice")).await;
            let bob = hello(&mut client, &format!("{name} bob")).await;
            let queue = create(&mut client, name).await;
            Setting { client, alice, bob, queue }
        });
        println!("{name}");
        test(&runtime, &mut setting);
    }
    server.stop();
}

fn send(client_id: u64, queue_id: u64, content: &str) -> SendRequest {
    SendRequest { client_id, queue_id, content: content.into(), ..Default::default() }
}

fn receive(client_id: u64, queue_id: u64) -> ReceiveRequest {
    ReceiveRequest { client_id, queue_id, ..Default::default() }
}

impl Setting {
    async fn send(&mut self, request: SendRequest) -> u64 {
        self.client.send(request).await.unwrap().into_inner().message_id
    }

    async fn content(&mut self, request: ReceiveRequest) -> Option<String> {
        let message = self.client.receive(request).await.unwrap().into_inner().message;
        message.map(|message| message.content)
    }
}

#[test]
fn operations() {
    with_setting(&[
        ("order-and-receivers", order_and_receivers),
        ("priority-and-sender", priority_and_sender),
        ("refusals", refusals),
        ("leases", leases),
        ("dead-letters", dead_letters),
        ("waits", waits),
        ("requests-that-are-repeated", requests_that_are_repeated),
        ("batches", batches),
        ("queues", queues),
    ]);
}

fn order_and_receivers(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        let carol = hello(&mut s.client, "order carol").await;
        s.send(send(alice, queue, "first")).await;
        s.send(SendRequest { receiver_id: carol, ..send(alice, queue, "for carol") }).await;
        s.send(send(alice, queue, "second")).await;
        assert_eq!(s.content(receive(alice, queue)).await, None, "alice sent them all");
        let read = ReadRequest { client_id: bob, queue_id: queue, ..Default::default() };
        let peeked = s.client.read(read).await.unwrap().into_inner().message.unwrap();
        assert_eq!((peeked.content.as_str(), peeked.sender_id), ("first", alice));
        assert_eq!(s.content(receive(bob, queue)).await.as_deref(), Some("first"));
        assert_eq!(s.content(receive(bob, queue)).await.as_deref(), Some("second"));
        assert_eq!(s.content(receive(bob, queue)).await, None, "the other is for carol");
        assert_eq!(s.content(receive(carol, queue)).await.as_deref(), Some("for carol"));
    });
}

fn priority_and_sender(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        let carol = hello(&mut s.client, "priority carol").await;
        for (sender, content, priority) in
            [(alice, "low", 0), (alice, "high", 9), (carol, "middle", 5), (carol, "late", 9)]
        {
            s.send(SendRequest { priority, ..send(sender, queue, content) }).await;
        }
        let by_priority = ReceiveRequest { order: Order::Priority.into(), ..receive(bob, queue) };
        assert_eq!(s.content(by_priority.clone()).await.as_deref(), Some("high"));
        let of_carol = ReceiveRequest { sender_id: carol, ..receive(bob, queue) };
        assert_eq!(s.content(of_carol.clone()).await.as_deref(), Some("middle"));
        assert_eq!(s.content(by_priority.clone()).await.as_deref(), Some("late"));
        assert_eq!(s.content(of_carol).await, None);
        assert_eq!(s.content(by_priority).await.as_deref(), Some("low"));
    });
}

fn refusals(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        let good = send(alice, queue, "good");
        for (request, code) in [
            (send(0, queue, "x"), Code::InvalidArgument),
            (send(u64::MAX, queue, "x"), Code::InvalidArgument),
            (send(1 << 40, queue, "x"), Code::NotFound),
            (send(alice, 1 << 40, "x"), Code::NotFound),
            (SendRequest { receiver_id: alice, ..good.clone() }, Code::FailedPrecondition),
            (SendRequest { receiver_id: 1 << 40, ..good.clone() }, Code::NotFound),
            (send(alice, queue, &"é".repeat(2001)), Code::InvalidArgument),
            (send(alice, queue, "a\0b"), Code::InvalidArgument),
            (SendRequest { priority: -1, ..good.clone() }, Code::InvalidArgument),
            (SendRequest { priority: 1001, ..good.clone() }, Code::InvalidArgument),
            (SendRequest { delay_ms: u64::MAX, ..good.clone() }, Code::InvalidArgument),
            (SendRequest { request_id: vec![1, 2, 3], ..good.clone() }, Code::InvalidArgument),
        ] {
            let status = s.client.send(request.clone()).await.unwrap_err();
            assert_eq!(status.code(), code, "{request:?}: {status}");
            assert!(!status.message().is_empty());
        }
        s.send(send(alice, queue, &"é".repeat(2000))).await;
        let wrong_order = ReceiveRequest { order: 7, ..receive(bob, queue) };
        assert_eq!(s.client.receive(wrong_order).await.unwrap_err().code(), Code::InvalidArgument);
        for name in [String::new(), "x".repeat(201), "a\0b".into()] {
            let status = s.client.hello(HelloRequest { name }).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
        }
        let goodbye = GoodbyeRequest { client_id: bob };
        s.client.goodbye(goodbye).await.unwrap();
        assert_eq!(s.client.goodbye(goodbye).await.unwrap_err().code(), Code::FailedPrecondition);
        let gone = s.client.receive(receive(bob, queue)).await.unwrap_err();
        assert_eq!(gone.code(), Code::FailedPrecondition);
        assert_eq!(hello(&mut s.client, "refusals bob").await, bob, "the same name, the same id");
        assert!(s.content(receive(bob, queue)).await.is_some());
    });
}

fn leases(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        s.send(send(alice, queue, "work")).await;
        let lease = LeaseRequest {
            client_id: bob,
            queue_id: queue,
            lease_ms: 60_000,
            ..Default::default()
        };
        let held = s.client.lease(lease).await.unwrap().into_inner();
        let message_id = held.message.unwrap().message_id;
        assert!(s.client.lease(lease).await.unwrap().into_inner().message.is_none());
        let acknowledge =
            AcknowledgeRequest { client_id: bob, message_id, lease_id: held.lease_id };
        let other = AcknowledgeRequest { lease_id: held.lease_id + 1, ..acknowledge };
        let status = s.client.acknowledge(other).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        let extend = ExtendLeaseRequest {
            client_id: bob,
            message_id,
            lease_id: held.lease_id,
            lease_ms: 90_000,
        };
        s.client.extend_lease(extend).await.unwrap();
        let give_back = ReturnMessageRequest {
            client_id: bob,
            message_id,
            lease_id: held.lease_id,
            delay_ms: 0,
        };
        s.client.return_message(give_back).await.unwrap();
        let status = s.client.acknowledge(acknowledge).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "it was returned");
        let again = s.client.lease(lease).await.unwrap().into_inner();
        assert_eq!(again.message.unwrap().deliveries, 2);
        let acknowledge = AcknowledgeRequest { lease_id: again.lease_id, ..acknowledge };
        s.client.acknowledge(acknowledge).await.unwrap();
        let twice = s.client.acknowledge(acknowledge).await.unwrap_err();
        assert_eq!(twice.code(), Code::FailedPrecondition);
    });
}

fn dead_letters(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob) = (s.alice, s.bob);
        let letters = create(&mut s.client, "letters").await;
        let request = CreateQueueRequest {
            name: "fragile".into(),
            max_deliveries: 2,
            dead_letter_queue_id: letters,
            ..Default::default()
        };
        let queue = s.client.create_queue(request).await.unwrap().into_inner().queue_id;
        s.send(send(alice, queue, "poison")).await;
        for _ in 0..2 {
            // Waits until the lease of the round before has run out.
            let lease = LeaseRequest {
                client_id: bob,
                queue_id: queue,
                lease_ms: 1,
                wait_ms: 30_000,
                ..Default::default()
            };
            assert!(s.client.lease(lease).await.unwrap().into_inner().message.is_some());
        }
        let wait = ReceiveRequest { wait_ms: 30_000, ..receive(bob, letters) };
        assert_eq!(s.content(wait).await.as_deref(), Some("poison"));
    });
}

fn waits(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        let mut other = s.client.clone();
        let waiting = async move {
            let request = ReceiveRequest { wait_ms: 30_000, ..receive(bob, queue) };
            other.receive(request).await.unwrap().into_inner().message.unwrap().content
        };
        let sending = async {
            // Not before the other waits; its wait is registered with its first look.
            let statistics = QueueStatisticsRequest { queue_id: queue };
            s.client.queue_statistics(statistics).await.unwrap();
            s.send(SendRequest { delay_ms: 50, ..send(alice, queue, "delayed") }).await;
        };
        let (content, ()) = tokio::join!(waiting, sending);
        assert_eq!(content, "delayed");
        let short = ReceiveRequest { wait_ms: 20, ..receive(bob, queue) };
        assert_eq!(s.content(short).await, None);
    });
}

fn requests_that_are_repeated(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        let once = SendRequest { request_id: vec![1; 16], ..send(alice, queue, "once") };
        let first = s.send(once.clone()).await;
        assert_eq!(s.send(once.clone()).await, first);
        let batch = SendBatchRequest { messages: vec![once.clone(), once] };
        let results = s.client.send_batch(batch).await.unwrap().into_inner().results;
        assert!(results.iter().all(|result| result.message_id == first));
        let take = ReceiveRequest { request_id: vec![2; 16], ..receive(bob, queue) };
        assert_eq!(s.content(take.clone()).await.as_deref(), Some("once"));
        assert_eq!(s.content(take).await.as_deref(), Some("once"), "the same request again");
        assert_eq!(s.content(receive(bob, queue)).await, None, "it was sent once");
        let empty = ReceiveRequest { request_id: vec![3; 16], ..receive(bob, queue) };
        assert_eq!(s.content(empty.clone()).await, None);
        s.send(send(alice, queue, "later")).await;
        assert_eq!(s.content(empty).await.as_deref(), Some("later"), "nothing is not an answer");
    });
}

fn batches(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        let mut messages: Vec<SendRequest> =
            (0..100).map(|n| send(alice, queue, &n.to_string())).collect();
        messages[40] = send(alice, queue, &"x".repeat(3000));
        messages[60] = send(alice, 1 << 40, "no such queue");
        let batch = SendBatchRequest { messages };
        let results = s.client.send_batch(batch).await.unwrap().into_inner().results;
        let failed: Vec<(usize, i32)> = results
            .iter()
            .enumerate()
            .filter(|(_, result)| result.code != 0)
            .map(|(place, result)| (place, result.code))
            .collect();
        assert_eq!(failed, [(40, Code::InvalidArgument as i32), (60, Code::NotFound as i32)]);
        let receive_batch = ReceiveBatchRequest {
            client_id: bob,
            queue_id: queue,
            limit: 200,
            ..Default::default()
        };
        let taken = s.client.receive_batch(receive_batch).await.unwrap().into_inner().messages;
        let contents: Vec<String> = taken.into_iter().map(|message| message.content).collect();
        let expected: Vec<String> =
            (0..100).filter(|n| *n != 40 && *n != 60).map(|n: i32| n.to_string()).collect();
        assert_eq!(contents, expected, "in the order in which they were sent");
        let too_many = SendBatchRequest { messages: vec![send(alice, queue, "x"); 1001] };
        let status = s.client.send_batch(too_many).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    });
}

fn queues(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        let twice = CreateQueueRequest { name: "queues".into(), ..Default::default() };
        let status = s.client.create_queue(twice).await.unwrap_err();
        assert_eq!(status.code(), Code::AlreadyExists);
        let for_bob = ListQueuesRequest { client_id: bob, ..Default::default() };
        let list = s.client.list_queues(for_bob).await.unwrap().into_inner().queues;
        assert!(list.iter().all(|q| q.queue_id != queue), "it is empty");
        s.send(send(alice, queue, "x")).await;
        s.send(SendRequest { delay_ms: 3_600_000, ..send(alice, queue, "y") }).await;
        let list = s.client.list_queues(for_bob).await.unwrap().into_inner().queues;
        assert!(list.iter().any(|q| q.queue_id == queue));
        let statistics = QueueStatisticsRequest { queue_id: queue };
        let told = s.client.queue_statistics(statistics).await.unwrap().into_inner();
        assert_eq!((told.waiting, told.leased, told.delayed), (1, 0, 1));
        let delete = DeleteQueueRequest { queue_id: queue, with_messages: false };
        let status = s.client.delete_queue(delete).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        let purge = PurgeRequest { queue_id: queue };
        assert_eq!(s.client.purge(purge).await.unwrap().into_inner().dropped, 1);
        let delete = DeleteQueueRequest { with_messages: true, ..delete };
        s.client.delete_queue(delete).await.unwrap();
        let status = s.client.delete_queue(delete).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
    });
}
