//! Every operation, over gRPC, on a real PostgreSQL.

use std::collections::BTreeMap;

use kendall_protocols::queue::{
    AcknowledgeBatchRequest, AcknowledgeRequest, Acknowledgement, ChangeQueueRequest,
    CreateQueueRequest, DeleteQueueRequest, ExtendLeaseRequest, GoodbyeRequest, HelloRequest,
    LeaseBatchRequest, LeaseRequest, LeaseResponse, ListArchivedRequest, ListDeadLettersRequest,
    ListQueuesRequest, Order, PurgeRequest, QueueStatisticsRequest, ReadRequest,
    ReceiveBatchRequest, ReceiveRequest, RedriveRequest, ReturnMessageRequest, SendBatchRequest,
    SendRequest,
};
use tonic::Code;

use crate::support::{
    Client, Folder, Other, connect, create, hello, postgres, private, runtime, start,
};

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

fn acknowledgement(client_id: u64, message_id: u64, lease_id: u64) -> AcknowledgeRequest {
    AcknowledgeRequest { client_id, message_id, lease_id, ..Default::default() }
}

fn lease(client_id: u64, queue_id: u64, lease_ms: u64) -> LeaseRequest {
    LeaseRequest { client_id, queue_id, lease_ms, ..Default::default() }
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
        ("returned-too-often", returned_too_often),
        ("dead-letters-of-ones-own", dead_letters_of_ones_own),
        ("requests-that-are-repeated", requests_that_are_repeated),
        ("request-ids-stand-for-one-request", request_ids_stand_for_one_request),
        ("takes-and-acknowledgements-are-repeated", takes_and_acknowledgements_are_repeated),
        ("binary-content-and-headers", binary_content_and_headers),
        ("batches-of-leases", batches_of_leases),
        ("queues-change", queues_change),
        ("archives", archives),
        ("reasons", reasons),
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
        let held = s.client.lease(lease.clone()).await.unwrap().into_inner();
        let message_id = held.message.unwrap().message_id;
        assert!(s.client.lease(lease.clone()).await.unwrap().into_inner().message.is_none());
        let acknowledge = acknowledgement(bob, message_id, held.lease_id);
        let other = acknowledgement(bob, message_id, held.lease_id + 1);
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
            ..Default::default()
        };
        s.client.return_message(give_back).await.unwrap();
        let status = s.client.acknowledge(acknowledge).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "it was returned");
        let again = s.client.lease(lease).await.unwrap().into_inner();
        assert_eq!(again.message.unwrap().deliveries, 2);
        let acknowledge = acknowledgement(bob, message_id, again.lease_id);
        s.client.acknowledge(acknowledge.clone()).await.unwrap();
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

/// Leased as often as it may be, a message is a dead letter also when it is given back.
fn returned_too_often(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob) = (s.alice, s.bob);
        let carol = hello(&mut s.client, "returned carol").await;
        let letters = create(&mut s.client, "returned letters").await;
        let request = CreateQueueRequest {
            name: "returned fragile".into(),
            max_deliveries: 2,
            dead_letter_queue_id: letters,
            ..Default::default()
        };
        let queue = s.client.create_queue(request).await.unwrap().into_inner().queue_id;
        s.send(SendRequest { receiver_id: bob, ..send(alice, queue, "poison") }).await;
        for round in 1..=2 {
            let held = s.client.lease(lease(bob, queue, 60_000)).await.unwrap().into_inner();
            let message = held.message.unwrap_or_else(|| panic!("leased {round} times"));
            let back = ReturnMessageRequest {
                client_id: bob,
                message_id: message.message_id,
                lease_id: held.lease_id,
                // Also where it shall be tried later.
                delay_ms: if round == 2 { 3_600_000 } else { 0 },
                reason: "no such build".into(),
            };
            s.client.return_message(back).await.unwrap();
        }
        let held = s.client.lease(lease(bob, queue, 60_000)).await.unwrap().into_inner();
        assert_eq!(held.message, None, "leased a third time");
        let list = ListDeadLettersRequest { queue_id: letters, ..Default::default() };
        let found = s.client.list_dead_letters(list).await.unwrap().into_inner().messages;
        let dead = found[0].dead_letter.clone().unwrap();
        assert_eq!((dead.origin_queue_id, dead.receiver_id, dead.deliveries), (queue, bob, 2));
        assert!(dead.reason.ends_with("no such build"), "{}", dead.reason);
        let taken = s.client.receive(receive(carol, letters)).await.unwrap().into_inner().message;
        assert_eq!(taken.unwrap().dead_letter, Some(dead), "a receiver is told, too");
    });
}

/// A sender sees what became of its messages, and can have them tried again.
fn dead_letters_of_ones_own(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob) = (s.alice, s.bob);
        let letters = create(&mut s.client, "own letters").await;
        let request = CreateQueueRequest {
            name: "own fragile".into(),
            max_deliveries: 1,
            dead_letter_queue_id: letters,
            ..Default::default()
        };
        let queue = s.client.create_queue(request).await.unwrap().into_inner().queue_id;
        s.send(SendRequest { receiver_id: bob, ..send(alice, queue, "for bob") }).await;
        s.send(send(alice, queue, "for anyone")).await;
        // More of her own in front of the dead ones than a look goes through.
        for _ in 0..40 {
            s.send(send(alice, letters, "alive")).await;
        }
        for _ in 0..2 {
            let held = s.client.lease(lease(bob, queue, 60_000)).await.unwrap().into_inner();
            let back = ReturnMessageRequest {
                client_id: bob,
                message_id: held.message.unwrap().message_id,
                lease_id: held.lease_id,
                ..Default::default()
            };
            s.client.return_message(back).await.unwrap();
        }
        let for_alice = ListQueuesRequest { client_id: alice, ..Default::default() };
        let list = s.client.list_queues(for_alice).await.unwrap().into_inner().queues;
        assert!(list.iter().any(|q| q.queue_id == letters), "her dead letters wait");
        let list =
            ListDeadLettersRequest { queue_id: letters, sender_id: alice, ..Default::default() };
        let found = s.client.list_dead_letters(list).await.unwrap().into_inner().messages;
        let contents: Vec<_> = found.iter().map(|message| message.content.as_str()).collect();
        assert_eq!(contents, ["for bob", "for anyone"]);
        let of_bob = ListDeadLettersRequest { sender_id: bob, ..list };
        assert!(s.client.list_dead_letters(of_bob).await.unwrap().into_inner().messages.is_empty());
        let redrive = RedriveRequest {
            queue_id: letters,
            message_ids: vec![found[0].message_id],
            ..Default::default()
        };
        let moved = s.client.redrive(redrive).await.unwrap().into_inner().moved;
        assert_eq!(moved, 1);
        let again = s.client.receive(receive(bob, queue)).await.unwrap().into_inner().message;
        let again = again.unwrap();
        assert_eq!((again.receiver_id, again.deliveries, again.dead_letter), (bob, 0, None));
        assert_eq!(s.content(receive(alice, letters)).await.as_deref(), Some("for anyone"));
        assert_eq!(s.content(receive(alice, letters)).await, None, "the others are alive");
        let nothing = RedriveRequest { queue_id: letters, ..Default::default() };
        assert_eq!(s.client.redrive(nothing).await.unwrap().into_inner().moved, 0);
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

fn is_reused<T>(answer: Result<tonic::Response<T>, tonic::Status>) -> bool {
    answer.is_err_and(|status| {
        status.code() == Code::InvalidArgument && status.message().contains("request_id")
    })
}

/// A request id is bound to its operation, queue and content: with another, neither is it answered
/// with what was another's nor is it performed.
fn request_ids_stand_for_one_request(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        let other = create(&mut s.client, "another queue").await;
        let id = |n: u8| vec![n; 16];
        for n in 0..3 {
            s.send(send(alice, queue, &n.to_string())).await;
        }
        // Send then receive, receive then send.
        let mine = SendRequest { request_id: id(21), ..send(bob, queue, "mine") };
        let sent = s.send(mine.clone()).await;
        assert!(is_reused(
            s.client.receive(ReceiveRequest { request_id: id(21), ..receive(bob, queue) }).await
        ));
        let taking = ReceiveRequest { request_id: id(22), ..receive(bob, queue) };
        assert_eq!(s.content(taking.clone()).await.as_deref(), Some("0"));
        for _ in 0..2 {
            let mixed = SendRequest { request_id: id(22), ..mine.clone() };
            assert!(is_reused(s.client.send(mixed).await));
        }
        // Another queue, another content, another receiver.
        assert!(is_reused(
            s.client.receive(ReceiveRequest { queue_id: other, ..taking.clone() }).await
        ));
        assert!(is_reused(s.client.send(SendRequest { queue_id: other, ..mine.clone() }).await));
        let changed = SendRequest { content: "changed".into(), ..mine.clone() };
        assert!(is_reused(s.client.send(changed).await));
        assert!(is_reused(s.client.send(SendRequest { receiver_id: alice, ..mine.clone() }).await));
        // What it stands for is answered as before, and others may use the same id.
        assert_eq!(s.send(mine).await, sent);
        assert_eq!(s.content(taking.clone()).await.as_deref(), Some("0"));
        let patient = ReceiveRequest { wait_ms: 10, ..taking };
        assert_eq!(s.content(patient).await.as_deref(), Some("0"), "the wait may differ");
        let hers = SendRequest { request_id: id(21), ..send(alice, other, "hers") };
        assert_ne!(s.send(hers).await, sent);
        let statistics = QueueStatisticsRequest { queue_id: queue };
        let told = s.client.queue_statistics(statistics).await.unwrap().into_inner();
        assert_eq!(told.waiting, 3, "two of hers and one of his");
    });
}

fn takes_and_acknowledgements_are_repeated(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        for n in 0..6 {
            s.send(SendRequest { data: vec![0, 255, n], ..send(alice, queue, "") }).await;
        }
        let leasing = LeaseRequest { request_id: vec![31; 16], ..lease(bob, queue, 60_000) };
        let first = s.client.lease(leasing.clone()).await.unwrap().into_inner();
        let again = s.client.lease(leasing.clone()).await.unwrap().into_inner();
        assert_eq!(again, first, "the same message with the same lease");
        assert_eq!(first.message.as_ref().unwrap().data, [0, 255, 0]);
        assert!(is_reused(s.client.lease(LeaseRequest { lease_ms: 5, ..leasing }).await));
        let done = AcknowledgeRequest {
            request_id: vec![32; 16],
            ..acknowledgement(bob, first.message.unwrap().message_id, first.lease_id)
        };
        for _ in 0..2 {
            s.client.acknowledge(done.clone()).await.unwrap();
        }
        let other = AcknowledgeRequest { lease_id: done.lease_id + 1, ..done };
        assert!(is_reused(s.client.acknowledge(other).await));
        let several = ReceiveBatchRequest {
            client_id: bob,
            queue_id: queue,
            limit: 2,
            request_id: vec![33; 16],
            ..Default::default()
        };
        let taken = s.client.receive_batch(several.clone()).await.unwrap().into_inner().messages;
        let again = s.client.receive_batch(several.clone()).await.unwrap().into_inner().messages;
        assert_eq!(again, taken);
        let data: Vec<_> = taken.iter().map(|message| message.data[2]).collect();
        assert_eq!(data, [1, 2]);
        assert!(is_reused(
            s.client.receive_batch(ReceiveBatchRequest { limit: 3, ..several }).await
        ));
        let leasing = LeaseBatchRequest {
            client_id: bob,
            queue_id: queue,
            limit: 5,
            lease_ms: 60_000,
            request_id: vec![34; 16],
            ..Default::default()
        };
        let first = s.client.lease_batch(leasing.clone()).await.unwrap().into_inner().leases;
        assert_eq!(s.client.lease_batch(leasing).await.unwrap().into_inner().leases, first);
        assert_eq!(first.len(), 3);
        let of = |lease: &LeaseResponse| Acknowledgement {
            message_id: lease.message.as_ref().unwrap().message_id,
            lease_id: lease.lease_id,
        };
        let done = AcknowledgeBatchRequest {
            client_id: bob,
            messages: first.iter().map(of).collect(),
            request_id: vec![35; 16],
        };
        for _ in 0..2 {
            let answer = s.client.acknowledge_batch(done.clone()).await.unwrap().into_inner();
            assert!(answer.results.iter().all(|result| result.code == 0), "{answer:?}");
        }
        assert_eq!(s.content(receive(bob, queue)).await, None);
    });
}

fn binary_content_and_headers(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        let headers: BTreeMap<String, String> = [("trace", "00-ab\"c"), ("kind", "é\n")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let whole = SendRequest {
            data: vec![0, 159, 146, 150, 255],
            headers: headers.clone(),
            ..send(alice, queue, "")
        };
        s.send(whole.clone()).await;
        s.send(send(alice, queue, "plain")).await;
        let read = ReadRequest { client_id: bob, queue_id: queue, ..Default::default() };
        let peeked = s.client.read(read).await.unwrap().into_inner().message.unwrap();
        assert_eq!((&peeked.data, &peeked.headers), (&whole.data, &headers));
        let both =
            ReceiveBatchRequest { client_id: bob, queue_id: queue, limit: 9, ..Default::default() };
        let found = s.client.receive_batch(both).await.unwrap().into_inner().messages;
        assert_eq!((&found[0].data, &found[0].headers), (&whole.data, &headers));
        assert_eq!((found[1].content.as_str(), found[1].headers.len()), ("plain", 0));
        let many = (0..65).map(|n| (n.to_string(), String::new())).collect();
        let long = BTreeMap::from([("x".to_owned(), "y".repeat(4096))]);
        let nul = BTreeMap::from([("x".to_owned(), "\0".to_owned())]);
        for request in [
            SendRequest { content: "text".into(), ..whole.clone() },
            SendRequest { data: vec![7; 8001], ..whole.clone() },
            SendRequest { headers: many, ..whole.clone() },
            SendRequest { headers: long, ..whole.clone() },
            SendRequest { headers: nul, ..whole.clone() },
        ] {
            let status = s.client.send(request).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        }
        s.send(SendRequest { data: vec![7; 8000], ..whole }).await;
    });
}

fn batches_of_leases(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        for n in 0..5 {
            s.send(send(alice, queue, &n.to_string())).await;
        }
        let request = LeaseBatchRequest {
            client_id: bob,
            queue_id: queue,
            limit: 4,
            lease_ms: 60_000,
            ..Default::default()
        };
        let leases = s.client.lease_batch(request.clone()).await.unwrap().into_inner().leases;
        let contents: Vec<_> =
            leases.iter().map(|lease| lease.message.as_ref().unwrap().content.as_str()).collect();
        assert_eq!(contents, ["0", "1", "2", "3"]);
        let mut messages: Vec<Acknowledgement> = leases
            .iter()
            .map(|lease| Acknowledgement {
                message_id: lease.message.as_ref().unwrap().message_id,
                lease_id: lease.lease_id,
            })
            .collect();
        messages[1].lease_id += 1000;
        messages.push(messages[0]);
        let request_id = Vec::new();
        let done = AcknowledgeBatchRequest { client_id: bob, messages, request_id };
        let results = s.client.acknowledge_batch(done).await.unwrap().into_inner().results;
        let codes: Vec<_> = results.iter().map(|result| result.code).collect();
        let not_held = Code::FailedPrecondition as i32;
        assert_eq!(codes, [0, not_held, 0, 0, not_held]);
        assert_eq!(results[1].reason, "LEASE_NOT_HELD");
        let none = s.client.lease_batch(LeaseBatchRequest { lease_ms: 0, ..request }).await;
        assert_eq!(none.unwrap_err().code(), Code::InvalidArgument);
    });
}

fn queues_change(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob, queue) = (s.alice, s.bob, s.queue);
        let change = ChangeQueueRequest { queue_id: queue, ..Default::default() };
        let paused = ChangeQueueRequest { paused: Some(true), ..change.clone() };
        s.client.change_queue(paused).await.unwrap();
        s.send(send(alice, queue, "held back")).await;
        assert_eq!(s.content(receive(bob, queue)).await, None, "it is paused");
        // Who waits is woken when it goes on.
        let mut other = s.client.clone();
        let waiting = async move {
            let request = ReceiveRequest { wait_ms: 50_000, ..receive(bob, queue) };
            other.receive(request).await.unwrap().into_inner().message.unwrap().content
        };
        let renaming = async {
            let resumed = ChangeQueueRequest {
                paused: Some(false),
                name: Some("renamed".into()),
                max_deliveries: Some(3),
                retention_ms: Some(3_600_000),
                ..change.clone()
            };
            s.client.change_queue(resumed).await.unwrap();
        };
        let (content, ()) = tokio::join!(waiting, renaming);
        assert_eq!(content, "held back");
        let statistics = QueueStatisticsRequest { queue_id: queue };
        let told = s.client.queue_statistics(statistics).await.unwrap().into_inner();
        assert_eq!((told.name.as_str(), told.max_deliveries, told.paused), ("renamed", 3, false));
        let none = ChangeQueueRequest { max_deliveries: Some(0), ..change.clone() };
        s.client.change_queue(none).await.unwrap();
        let told = s.client.queue_statistics(statistics).await.unwrap().into_inner();
        assert_eq!((told.max_deliveries, told.retention_ms), (0, 3_600_000), "only what was named");
        let taken = create(&mut s.client, "taken name").await;
        for (wrong, code) in [
            (
                ChangeQueueRequest { name: Some("taken name".into()), ..change.clone() },
                Code::AlreadyExists,
            ),
            (
                ChangeQueueRequest { name: Some(String::new()), ..change.clone() },
                Code::InvalidArgument,
            ),
            (
                ChangeQueueRequest { dead_letter_queue_id: Some(queue), ..change.clone() },
                Code::InvalidArgument,
            ),
            (ChangeQueueRequest { dead_letter_queue_id: Some(1 << 40), ..change }, Code::NotFound),
            (ChangeQueueRequest { queue_id: taken + 1000, ..Default::default() }, Code::NotFound),
        ] {
            let status = s.client.change_queue(wrong.clone()).await.unwrap_err();
            assert_eq!(status.code(), code, "{wrong:?}: {status}");
        }
    });
}

fn archives(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, bob) = (s.alice, s.bob);
        let request =
            CreateQueueRequest { name: "kept".into(), archive_ms: 3_600_000, ..Default::default() };
        let queue = s.client.create_queue(request).await.unwrap().into_inner().queue_id;
        for content in ["received", "acknowledged", "leased"] {
            s.send(send(alice, queue, content)).await;
        }
        assert_eq!(s.content(receive(bob, queue)).await.as_deref(), Some("received"));
        let held = s.client.lease(lease(bob, queue, 60_000)).await.unwrap().into_inner();
        let done = acknowledgement(bob, held.message.unwrap().message_id, held.lease_id);
        s.client.acknowledge(done).await.unwrap();
        s.client.lease(lease(bob, queue, 60_000)).await.unwrap();
        let list = ListArchivedRequest { queue_id: queue, ..Default::default() };
        let found = s.client.list_archived(list).await.unwrap().into_inner().messages;
        let facts: Vec<_> = found
            .iter()
            .map(|kept| {
                (kept.message.as_ref().unwrap().content.as_str(), kept.received, kept.taken_by)
            })
            .collect();
        assert_eq!(facts, [("received", true, bob), ("acknowledged", false, bob)]);
        let off = ChangeQueueRequest { queue_id: queue, archive_ms: Some(0), ..Default::default() };
        s.client.change_queue(off).await.unwrap();
        assert!(s.client.list_archived(list).await.unwrap().into_inner().messages.is_empty());
    });
}

/// Refusals have one word that programs can go by.
fn reasons(runtime: &tokio::runtime::Runtime, s: &mut Setting) {
    runtime.block_on(async {
        let (alice, queue) = (s.alice, s.queue);
        for (request, word) in [
            (send(alice, 1 << 40, "x"), "UNKNOWN_QUEUE"),
            (send(alice, queue, &"x".repeat(2001)), "CONTENT_TOO_LONG"),
            (send(0, queue, "x"), "INVALID_VALUE"),
        ] {
            let status = s.client.send(request).await.unwrap_err();
            let details = String::from_utf8_lossy(status.details()).into_owned();
            assert!(details.contains(word) && details.contains("kendall.queue"), "{details}");
        }
        let messages = vec![send(alice, 1 << 40, "x")];
        let answer = s.client.send_batch(SendBatchRequest { messages }).await.unwrap().into_inner();
        assert_eq!(answer.results[0].reason, "UNKNOWN_QUEUE");
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

/// A look of a receive at the rows of `message` waits while another connection holds the lock of its number.
const LOOKS_STAND_STILL: &str = "CREATE SEQUENCE looks; \
    CREATE FUNCTION stand_still() RETURNS boolean LANGUAGE plpgsql AS $$ \
    DECLARE look bigint; BEGIN \
        IF current_query() LIKE '%take_%' THEN \
            look := nextval('looks'); \
            PERFORM pg_advisory_lock_shared(look); \
            PERFORM pg_advisory_unlock_shared(look); \
        END IF; \
        RETURN true; \
    END $$; \
    ALTER TABLE message ENABLE ROW LEVEL SECURITY; \
    ALTER TABLE message FORCE ROW LEVEL SECURITY; \
    CREATE POLICY looked ON message FOR SELECT USING (stand_still()); \
    CREATE POLICY sent ON message FOR INSERT WITH CHECK (true); \
    CREATE POLICY changed ON message FOR UPDATE USING (true); \
    CREATE POLICY gone ON message FOR DELETE USING (true)";

/// Others take all that a receive sees and send more, which its look does not see: there always is a message.
#[test]
fn a_receive_looks_again_when_others_were_faster() {
    let folder = Folder::new();
    let postgres = postgres(&folder);
    let server = start(kendall_message_queue::Database::Url(postgres.url().to_owned()));
    runtime().block_on(async {
        let other = Other::connect(postgres.url()).await;
        let mut client = connect(&server).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let queue = create(&mut client, "jobs").await;
        other.run(LOOKS_STAND_STILL).await;
        for (request, looks) in [
            (receive(to, queue), 2),
            (ReceiveRequest { sender_id: from, ..receive(to, queue) }, 1),
            (ReceiveRequest { order: Order::Priority.into(), ..receive(to, queue) }, 1),
        ] {
            other.run("ALTER SEQUENCE looks RESTART").await;
            other.number(&format!("SELECT count(pg_advisory_lock(n)) FROM generate_series(1, {looks}) n")).await;
            client.send(send(from, queue, "0")).await.unwrap();
            let mut receiver = client.clone();
            #[expect(clippy::disallowed_methods, reason = "joined below")]
            let receiving = tokio::spawn(async move { receiver.receive(request).await });
            for look in 1..=looks {
                let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = ";
                other.until(&format!("{waits}{look}"), 1).await;
                other.run("DELETE FROM message").await;
                client.send(send(from, queue, &look.to_string())).await.unwrap();
                other.run(&format!("SELECT pg_advisory_unlock({look})")).await;
            }
            let message = receiving.await.unwrap().unwrap().into_inner().message;
            assert_eq!(message.map(|message| message.content), Some(looks.to_string()));
        }
    });
    server.stop();
    postgres.stop();
}
