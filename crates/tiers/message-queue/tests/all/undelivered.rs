//! A client that goes while its receive is under way loses nothing: what PostgreSQL has given away by
//! then is put back where it was, as it was.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kendall_message_queue::{PrivateOptions, PrivatePostgres, Server, TcpAccess};
use kendall_protocols::queue::call::Operation;
use kendall_protocols::queue::{
    Call, Calls, Message, Order, ReceiveBatchRequest, ReceiveRequest, SendBatchRequest, SendRequest,
};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::support::{
    self, Client, Folder, Other, WAITING_FOR_A_LOCK, connect, create, hello, postgres, runtime,
};

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

/// Between a client and the middleware; passes no answers on while they are held.
async fn relay_of_answers(listener: TcpListener, to: SocketAddr, held: Arc<AtomicUsize>) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let (far, held) = (TcpStream::connect(to).await.unwrap(), Arc::clone(&held));
        let ((mut asking, mut reading), (mut answering, mut sending)) =
            (near.into_split(), far.into_split());
        tasks.spawn(async move { drop(tokio::io::copy(&mut asking, &mut sending).await) });
        tasks.spawn(async move {
            let mut answered = vec![0; 1 << 16];
            while let Ok(bytes @ 1..) = answering.read(&mut answered).await {
                until_released(&held).await;
                if reading.write_all(&answered[..bytes]).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// The client gives its call up when the middleware has answered and the answer is on its way.
#[test]
fn a_receiver_that_goes_before_it_has_the_answer_loses_nothing() {
    let folder = Folder::new();
    let postgres = postgres(&folder);
    let database = kendall_message_queue::Database::Url(postgres.url().to_owned());
    let server = support::start(database);
    runtime().block_on(async {
        let other = Other::connect(postgres.url()).await;
        let held = Arc::new(AtomicUsize::new(NO_CUT));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = listener.local_addr().unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(relay_of_answers(listener, server.address(), Arc::clone(&held)));
        let mut client = support::connect_to(near).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let queue_id = create(&mut client, "jobs").await;
        for (number, way) in (1..).zip([Way::Alone, Way::Waiting, Way::Batch, Way::Alone]) {
            let send = SendRequest { client_id: from, queue_id, ..Default::default() };
            client.send(send).await.unwrap();
            held.store(HELD, Ordering::SeqCst);
            let mut receiving = tokio::task::JoinSet::new();
            receiving.spawn(receive(way, client.clone(), to, queue_id));
            other.until("SELECT 1 - count(*) FROM message", 1).await;
            until_served(&server).await;
            receiving.shutdown().await;
            other.until("SELECT count(*) FROM message", 1).await;
            held.store(NO_CUT, Ordering::SeqCst);
            assert_eq!(rest(&mut client, to, queue_id).await.len(), 1, "{way:?}");
            until_served(&server).await;
            assert_eq!(other.number("SELECT count(*) FROM message").await, 0, "{way:?}");
            let put_back = "SELECT count(*) FROM put_back";
            assert_eq!(other.number(put_back).await, number, "what was received stays");
        }
    });
    server.stop();
    postgres.stop();
}

/// Receives over a connection that is cut after so long; gives what the middleware wrote to it until it closed it.
/// `None` where the connection broke with bytes on their way.
async fn receive_cut_off(
    to: SocketAddr,
    request: ReceiveRequest,
    after: Duration,
) -> Option<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        drop(Client::new(endpoint.connect_lazy()).receive(request).await);
    });
    let (mut near, _) = listener.accept().await.unwrap();
    let mut far = TcpStream::connect(to).await.unwrap();
    let (mut asked, mut answered) = (vec![0; 1 << 16], Vec::new());
    let forward = async {
        loop {
            let before = answered.len();
            tokio::select! {
                read = near.read(&mut asked) => match read {
                    Ok(bytes @ 1..) => far.write_all(&asked[..bytes]).await.unwrap_or_default(),
                    _ => return,
                },
                read = far.read_buf(&mut answered) => {
                    // It hangs up where the client has its answer and says goodbye.
                    if read.unwrap() == 0 {
                        return;
                    }
                    near.write_all(&answered[before..]).await.unwrap_or_default();
                }
            }
        }
    };
    tokio::time::timeout(after, forward).await.unwrap_or_default();
    // Only one direction is closed: all that the middleware still writes is seen.
    drop(near);
    far.shutdown().await.unwrap_or_default();
    let end = tokio::time::timeout(BACK_WITHIN, far.read_to_end(&mut answered)).await;
    end.expect("the middleware hangs up").is_ok().then_some(answered)
}

/// Whether a whole answer is among the bytes that a server of HTTP/2 wrote: headers that end a stream.
fn has_answer(mut bytes: &[u8]) -> bool {
    while let Some((&[a, b, c, kind, flags, ..], rest)) = bytes.split_first_chunk::<9>() {
        let payload = u32::from_be_bytes([0, a, b, c]) as usize;
        if rest.len() < payload {
            return false;
        }
        if kind == 1 && flags & 1 != 0 {
            return true;
        }
        bytes = &rest[payload..];
    }
    false
}

/// After the cut a message is put back at once; at the next try, half a second later, where PostgreSQL did not answer.
const BACK_WITHIN: Duration = Duration::from_secs(20);

/// Connections are cut at every moment of a receive: a message is back exactly where its answer was not written whole.
#[test]
fn a_receiver_that_is_cut_off_loses_nothing() {
    const CUTS: u64 = 300;
    let folder = Folder::new();
    let postgres = postgres(&folder);
    let database = kendall_message_queue::Database::Url(postgres.url().to_owned());
    let server = support::start(database);
    runtime().block_on(async {
        let other = Other::connect(postgres.url()).await;
        let mut client = connect(&server).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let queue_id = create(&mut client, "jobs").await;
        let (mut answered, mut open) = (0, 0);
        for number in 0..CUTS {
            let content = format!("message {number}.");
            let send = SendRequest { client_id: from, queue_id, content, ..Default::default() };
            client.send(send.clone()).await.unwrap();
            let request = ReceiveRequest { client_id: to, queue_id, ..Default::default() };
            let after = Duration::from_micros(number * 7919 % 20_000);
            let wrote = receive_cut_off(server.address(), request, after).await;
            until_served(&server).await;
            match wrote.as_deref().map(has_answer) {
                // Bytes were on their way: the end of the answer may have been among them.
                None => open += 1,
                Some(true) => {
                    answered += 1;
                    assert!(rest(&mut client, to, queue_id).await.is_empty(), "twice: {number}");
                }
                Some(false) => {
                    let back = other.until("SELECT count(*) FROM message", 1);
                    let back = tokio::time::timeout(BACK_WITHIN, back).await;
                    assert!(back.is_ok(), "lost: message {number}, cut after {after:?}");
                }
            }
            rest(&mut client, to, queue_id).await;
        }
        let put_back = other.number("SELECT count(*) FROM put_back").await;
        assert!(answered > 0 && put_back > 0, "{answered} answered, {put_back} put back");
        assert!(open < CUTS / 10, "{open} are open");
    });
    server.stop();
    postgres.stop();
}

/// The status code and message of a receive by a client that states a deadline and does not keep it itself: what it
/// gets later, a client that keeps it has lost.
async fn receive_late(address: SocketAddr, request: ReceiveRequest, deadline: &str) -> (i32, bool) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(async move { drop(connection.await) });
    let head = tonic::codegen::http::Request::post(format!(
        "http://{address}/kendall.queue.v1.MessageQueue/Receive"
    ))
    .header("content-type", "application/grpc")
    .header("te", "trailers")
    .header("grpc-timeout", deadline)
    .body(())
    .unwrap();
    let (answer, mut sending) = client.send_request(head, false).unwrap();
    let body = request.encode_to_vec();
    let mut framed = vec![0];
    framed.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    framed.extend(body);
    sending.send_data(framed.into(), true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        bytes += data.unwrap().len();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or(head.headers);
    let code = trailers["grpc-status"].to_str().unwrap().parse().unwrap();
    (code, bytes > 5)
}

/// A message is taken only for a client that has time for its answer, and goes back where PostgreSQL was slower.
#[test]
fn a_receive_whose_deadline_is_near_loses_nothing() {
    let folder = Folder::new();
    let postgres = postgres(&folder);
    let database = kendall_message_queue::Database::Url(postgres.url().to_owned());
    let server = support::start(database);
    runtime().block_on(async {
        let other = Other::connect(postgres.url()).await;
        let mut client = connect(&server).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let queue_id = create(&mut client, "jobs").await;
        let send = SendRequest { client_id: from, queue_id, ..Default::default() };
        client.send(send).await.unwrap();
        let request = ReceiveRequest { client_id: to, queue_id, ..Default::default() };
        let late = (tonic::Code::DeadlineExceeded as i32, false);
        for deadline in ["800u", "1m", "2m", "3m", "4m"].repeat(4) {
            let answered = receive_late(server.address(), request.clone(), deadline).await;
            assert_eq!(answered, late, "{deadline}");
        }
        until_served(&server).await;
        assert_eq!(other.number("SELECT count(*) FROM message").await, 1);
        assert_eq!(other.number("SELECT count(*) FROM put_back").await, 0, "none was taken");
        let outcomes = server.instruments().snapshot().outcomes;
        assert!(outcomes["too-late"] > 0, "{outcomes:?}");

        other.run("BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE").await;
        #[expect(clippy::disallowed_methods, reason = "joined below")]
        let slow = tokio::spawn(receive_late(server.address(), request.clone(), "400m"));
        other.until(WAITING_FOR_A_LOCK, 1).await;
        other.run("SELECT pg_sleep(0.397); COMMIT").await;
        assert_eq!(slow.await.unwrap(), late);
        other.until("SELECT count(*) FROM put_back", 1).await;
        // It was taken when it could be answered at once, and now PostgreSQL is known to be slow.
        assert_eq!(receive_late(server.address(), request.clone(), "100m").await, late);
        // Slowness is forgotten.
        let mut tries = 0;
        while receive_late(server.address(), request.clone(), "200m").await == late {
            tries += 1;
            assert!(tries < 100, "for ever too late");
        }
        until_served(&server).await;
        assert_eq!(other.number("SELECT count(*) FROM message").await, 0);
    });
    server.stop();
    postgres.stop();
}

/// A middleware over a PostgreSQL that is reached by TCP, at `address` or through a relay.
fn over(address: SocketAddr) -> Server {
    let url = format!(
        "host={} port={} user=kendall password=secret dbname=kendall sslmode=disable",
        address.ip(),
        address.port()
    );
    support::start(kendall_message_queue::Database::Url(url))
}

fn reachable(folder: &Folder) -> (PrivatePostgres, SocketAddr) {
    let address = kendall_testing::free_address();
    let options = PrivateOptions {
        tcp: Some(TcpAccess { address, password: "secret".into() }),
        settings: Vec::new(),
        same_group: false,
    };
    let postgres = PrivatePostgres::start_with(&folder.path().join("queue"), &options)
        .expect("the tests need PostgreSQL's server programs; `make packages-test` installs them");
    (postgres, address)
}

/// A put-back that PostgreSQL refuses is tried until it does not.
#[test]
fn a_message_that_cannot_be_put_back_is_not_given_up() {
    let folder = Folder::new();
    let postgres = postgres(&folder);
    let database = kendall_message_queue::Database::Url(postgres.url().to_owned());
    let server = support::start(database);
    runtime().block_on(async {
        let other = Other::connect(postgres.url()).await;
        let mut client = connect(&server).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let queue_id = create(&mut client, "jobs").await;
        for content in ["a", "b"] {
            let content = content.into();
            let send = SendRequest { client_id: from, queue_id, content, ..Default::default() };
            client.send(send).await.unwrap();
        }
        other
            .run(
                "CREATE SEQUENCE tries; \
                 CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                     PERFORM nextval('tries'); RAISE EXCEPTION 'not now'; END $$; \
                 CREATE TRIGGER refuse BEFORE INSERT ON message EXECUTE FUNCTION refuse()",
            )
            .await;
        let lock = Other::connect(postgres.url()).await;
        lock.run("BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE").await;
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(receive(Way::Alone, client.clone(), to, queue_id));
        other.until(WAITING_FOR_A_LOCK, 1).await;
        tasks.shutdown().await;
        lock.run("COMMIT").await;
        other.until("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tries", 2).await;
        assert_eq!(other.number("SELECT count(*) FROM message").await, 1, "it is taken");
        other.run("DROP TRIGGER refuse ON message").await;
        other.until("SELECT count(*) FROM message", 2).await;
        let found = rest(&mut client, to, queue_id).await;
        let contents: Vec<_> = found.iter().map(|message| message.content.as_str()).collect();
        assert_eq!(contents, ["a", "b"]);
    });
    server.stop();
    postgres.stop();
}

/// Between a middleware and PostgreSQL; cuts the connection on which the next commit is answered, or
/// asked for, before it gets there. While `cut` is `HELD`, a connection stands still.
async fn relay(listener: TcpListener, to: SocketAddr, cut: Arc<AtomicUsize>) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let cut = Arc::clone(&cut);
        tasks.spawn(async move {
            until_released(&cut).await;
            let Ok(mut far) = TcpStream::connect(to).await else { return };
            let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
            let mut committing = false;
            loop {
                tokio::select! {
                    read = near.read(&mut asked) => {
                        let Ok(bytes @ 1..) = read else { return };
                        let commits = asked[..bytes].windows(6).any(|word| word == b"COMMIT");
                        let order = if commits { cut.swap(NO_CUT, Ordering::SeqCst) } else { NO_CUT };
                        if order == BEFORE_COMMIT {
                            return;
                        }
                        if order == HOLD_BEFORE_COMMIT {
                            cut.store(HELD, Ordering::SeqCst);
                            until_released(&cut).await;
                            return;
                        }
                        committing |= order == AFTER_COMMIT;
                        if far.write_all(&asked[..bytes]).await.is_err() {
                            return;
                        }
                    }
                    read = far.read(&mut answered) => {
                        let Ok(bytes @ 1..) = read else { return };
                        if committing || near.write_all(&answered[..bytes]).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
    }
}

const NO_CUT: usize = 0;
const BEFORE_COMMIT: usize = 1;
const AFTER_COMMIT: usize = 2;
const HOLD_BEFORE_COMMIT: usize = 3;
const HELD: usize = 4;

async fn until_released(cut: &AtomicUsize) {
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    while cut.load(Ordering::SeqCst) == HELD {
        looks.tick().await;
    }
}

/// The connection breaks around the commit of a receive: whether PostgreSQL did it or not, the message is
/// there afterwards, once.
#[test]
fn a_commit_that_nobody_heard_of_loses_nothing() {
    let folder = Folder::new();
    let (postgres, address) = reachable(&folder);
    let (cut, runtime) = (Arc::new(AtomicUsize::new(NO_CUT)), runtime());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let near = listener.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn_on(relay(listener, address, Arc::clone(&cut)), runtime.handle());
    let server = over(near);
    runtime.block_on(async {
        let mut client = connect(&server).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let queue_id = create(&mut client, "jobs").await;
        let other = Other::connect(postgres.url()).await;
        for (number, order) in (0_i64..).zip([BEFORE_COMMIT, AFTER_COMMIT, AFTER_COMMIT]) {
            let content = number.to_string();
            let send = SendRequest { client_id: from, queue_id, content, ..Default::default() };
            client.send(send).await.unwrap();
            cut.store(order, Ordering::SeqCst);
            let request = ReceiveRequest { client_id: to, queue_id, ..Default::default() };
            let status = client.receive(request).await.unwrap_err();
            assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
            assert_eq!(cut.load(Ordering::SeqCst), NO_CUT, "it was cut there");
            other.until("SELECT count(*) FROM message", number + 1).await;
        }
        until_served(&server).await;
        assert_eq!(other.number("SELECT count(*) FROM put_back").await, 2, "those that were taken");
        let found = rest(&mut client, to, queue_id).await;
        let contents: Vec<_> = found.iter().map(|message| message.content.as_str()).collect();
        assert_eq!(contents, ["0", "1", "2"]);
    });
    server.stop();
    drop(tasks);
    postgres.stop();
}

/// The connection breaks around the commit of a batch of sends: all of them are stored, or none.
#[test]
fn a_batch_of_sends_that_breaks_off_is_stored_whole_or_not_at_all() {
    let folder = Folder::new();
    let (postgres, address) = reachable(&folder);
    let (cut, runtime) = (Arc::new(AtomicUsize::new(NO_CUT)), runtime());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let near = listener.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn_on(relay(listener, address, Arc::clone(&cut)), runtime.handle());
    let server = over(near);
    runtime.block_on(async {
        let mut client = connect(&server).await;
        let client_id = hello(&mut client, "from").await;
        let queue_id = create(&mut client, "jobs").await;
        let other = Other::connect(postgres.url()).await;
        let send = SendRequest { client_id, queue_id, ..Default::default() };
        let batch = SendBatchRequest { messages: vec![send; 3] };
        for order in [BEFORE_COMMIT, AFTER_COMMIT, AFTER_COMMIT] {
            cut.store(order, Ordering::SeqCst);
            let results = client.send_batch(batch.clone()).await.unwrap().into_inner().results;
            let unavailable = i32::from(tonic::Code::Unavailable);
            assert!(results.iter().all(|result| result.code == unavailable), "{results:?}");
            assert_eq!(cut.load(Ordering::SeqCst), NO_CUT, "it was cut there");
            until_served(&server).await;
            // What PostgreSQL still executes holds a lock on the table.
            other.run("BEGIN; LOCK TABLE message IN SHARE MODE; COMMIT").await;
            let messages = other.number("SELECT count(*) FROM message").await;
            assert_eq!(messages % 3, 0, "{order}");
            assert!(order != BEFORE_COMMIT || messages == 0);
        }
        let results = client.send_batch(batch).await.unwrap().into_inner().results;
        assert!(results.iter().all(|result| result.code == 0), "{results:?}");
    });
    server.stop();
    drop(tasks);
    postgres.stop();
}

/// PostgreSQL crashes before it has the commit of a receive, and gives the number of the lost transaction to another
/// one, which takes the message and is committed. That commit is not the receive's.
#[test]
fn a_crash_before_the_commit_does_not_bring_back_what_another_one_took() {
    let folder = Folder::new();
    let (postgres, address) = reachable(&folder);
    let (cut, runtime) = (Arc::new(AtomicUsize::new(NO_CUT)), runtime());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let near = listener.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn_on(relay(listener, address, Arc::clone(&cut)), runtime.handle());
    let server = over(near);
    runtime.block_on(async {
        let mut client = connect(&server).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let queue_id = create(&mut client, "jobs").await;
        let send = SendRequest { client_id: from, queue_id, ..Default::default() };
        client.send(send).await.unwrap();
        let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
        let lost = Other::connect(postgres.url()).await.number(next).await;
        cut.store(HOLD_BEFORE_COMMIT, Ordering::SeqCst);
        let mut receiver = client.clone();
        let request = ReceiveRequest { client_id: to, queue_id, ..Default::default() };
        let mut receiving = tokio::task::JoinSet::new();
        receiving.spawn(async move { receiver.receive(request).await });
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        while cut.load(Ordering::SeqCst) != HELD {
            looks.tick().await;
        }
        kendall_testing::kill_with_children(postgres.pid());
        let other = Other::connect_again(postgres.url()).await;
        let taken = "WITH gone AS (DELETE FROM message RETURNING 1) SELECT count(*) FROM gone";
        assert_eq!(other.number(taken).await, 1, "the crash undid the receive");
        // Each is a transaction of its own.
        other.until("SELECT pg_current_xact_id()::text::bigint", lost + 5).await;
        cut.store(NO_CUT, Ordering::SeqCst);
        let status = receiving.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
    });
    // The stop waits for what is to be put back.
    server.stop();
    drop(tasks);
    runtime.block_on(async {
        let other = Other::connect(postgres.url()).await;
        assert_eq!(other.number("SELECT count(*) FROM message").await, 0, "delivered twice");
    });
    postgres.stop();
}

/// A PostgreSQL that stands still is not waited for without end, and what it does in the end counts.
#[test]
fn a_postgresql_that_stands_still_is_waited_for_a_while() {
    let folder = Folder::new();
    let postgres = postgres(&folder);
    let mut options =
        support::options(kendall_message_queue::Database::Url(postgres.url().to_owned()));
    options.operation_timeout = Duration::from_millis(300);
    let server = support::start_with(options);
    runtime().block_on(async {
        let other = Other::connect(postgres.url()).await;
        let mut client = connect(&server).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let queue_id = create(&mut client, "jobs").await;
        let send = SendRequest { client_id: from, queue_id, ..Default::default() };
        client.send(send).await.unwrap();
        other.run("BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE").await;
        let request = ReceiveRequest { client_id: to, queue_id, ..Default::default() };
        let status = client.receive(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
        assert!(status.message().contains("did not answer"), "{status}");
        other.run("COMMIT").await;
        tokio::time::timeout(PATIENCE, async {
            while rest(&mut client, to, queue_id).await.is_empty() {}
        })
        .await
        .expect("what was not committed is there");
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
