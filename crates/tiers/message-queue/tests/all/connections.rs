//! Who comes in: silent connections, tokens, TLS, addresses that other hosts reach.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kendall_message_queue::wire::message_queue_client::MessageQueueClient;
use kendall_message_queue::{Access, Server, ServerError};
use kendall_protocols::queue::call::Operation;
use kendall_protocols::queue::{
    Call, Calls, CreateQueueRequest, HelloRequest, ListDeadLettersRequest, QueueStatisticsRequest,
    ReceiveRequest, SendBatchRequest, SendRequest,
};
use kendall_testing::certificate;
use kendall_tier::Clock;
use kendall_tier::serve::Tls;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{Folder, connect, create, hello, options, private, runtime, start_with};

/// Longer than anything here takes on the slowest machine: a test that hangs ends.
const PATIENCE: Duration = Duration::from_secs(60);
const ADMIN: &str = "an-administrators-token-0123456789";
const WORKER: &str = "a-workers-token-0123456789abcdefg";

/// Connections that say nothing take all places: who asks for something gets in all the same, and
/// those who have asked keep theirs.
#[test]
fn silent_connections_lock_nobody_out() {
    let folder = Folder::new();
    let mut options = options(private(&folder));
    options.client_connections = 4;
    options.console = Some(([127, 0, 0, 1], 0).into());
    let server = start_with(options);
    let runtime = runtime();
    let (mut maker, from, to, queue_id) = runtime.block_on(async {
        let mut maker = connect(&server).await;
        let (from, to) = (hello(&mut maker, "from").await, hello(&mut maker, "to").await);
        let queue_id = create(&mut maker, "jobs").await;
        (maker, from, to, queue_id)
    });
    let waiting = runtime.block_on(async {
        let mut waiter = connect(&server).await;
        let request =
            ReceiveRequest { client_id: to, queue_id, wait_ms: 59_000, ..Default::default() };
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { waiter.receive(request).await.unwrap().into_inner().message });
        while server.instruments().snapshot().requests["receive"].completions == 0 {
            tokio::task::yield_now().await;
        }
        tasks
    });
    let mut silent: Vec<TcpStream> =
        (0..12).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let all = async {
        let mut late = connect(&server).await;
        assert_eq!(hello(&mut late, "from").await, from);
        // Its first connection may have made room; its library opens another.
        let send = SendRequest { client_id: from, queue_id, ..Default::default() };
        while maker.send(send.clone()).await.is_err() {}
        let mut waiting = waiting;
        assert!(waiting.join_next().await.unwrap().unwrap().is_some(), "it was not cut off");
    };
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, all).await })
        .expect("somebody was locked out");
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // What HTTP/2 says first may be there; then it ends.
        let ended = stream.read_to_end(&mut Vec::new());
        let waits = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!waits, "a silent connection stays");
    }
    slow_heads_lock_nobody_out(&server);
    server.stop();
}

/// A hundred requests to the console whose heads do not come to their end.
fn slow_heads_lock_nobody_out(server: &Server) {
    let address = server.console().unwrap().trim_start_matches("http://");
    let address = address.split('/').next().unwrap();
    let slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: local").unwrap();
            stream
        })
        .collect();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(slow);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PUT / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("PUT does nothing"), "{answer}");
}

#[test]
fn an_address_that_others_reach_is_not_served_to_anyone_unless_asked_for() {
    let folder = Folder::new();
    let mut open = options(private(&folder));
    open.listen = ([0, 0, 0, 0], 0).into();
    let error = Server::start(&open, Clock::monotonic()).unwrap_err();
    assert!(matches!(error, ServerError::Open { .. }), "{error:?}");
    println!("{error}");
    assert!(!folder.path().join("queue").exists(), "nothing was started");
    let tokens = file(&folder, "tokens", &format!("{ADMIN} admin\n"));
    open.access.tokens = Some(tokens);
    let error = Server::start(&open, Clock::monotonic()).unwrap_err();
    assert!(error.to_string().contains("no TLS"), "{error}");
    open.access = Access { open_to_anyone: true, ..Access::default() };
    start_with(open).stop();
}

fn file(folder: &Folder, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

async fn encrypted(server: &Server, certificate: &Path) -> Channel {
    let root = Certificate::from_pem(std::fs::read(certificate).unwrap());
    let tls = ClientTlsConfig::new().ca_certificate(root).domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{}", server.address())).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap()
}

/// A request of a token's holder.
fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = MetadataValue::try_from(format!("Bearer {token}")).unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

/// Streams without a call take no place from those who have something to ask; one with a call that waits stays.
#[test]
fn silent_streams_lock_nobody_out() {
    let folder = Folder::new();
    let mut options = options(private(&folder));
    options.client_connections = 4;
    let server = start_with(options);
    runtime().block_on(async {
        let mut first = connect(&server).await;
        let (from, to) = (hello(&mut first, "from").await, hello(&mut first, "to").await);
        let queue_id = create(&mut first, "jobs").await;
        let (calls, outgoing) = tokio::sync::mpsc::channel(1);
        let mut waiting = first.converse(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        let receive =
            ReceiveRequest { client_id: to, queue_id, wait_ms: 59_000, ..Default::default() };
        let call = Call { tag: 7, operation: Some(Operation::Receive(receive)) };
        calls.send(Calls { calls: vec![call] }).await.unwrap();
        while server.instruments().snapshot().requests["receive"].completions == 0 {
            tokio::task::yield_now().await;
        }
        let mut silent = Vec::new();
        for _ in 0..3 {
            let mut client = connect(&server).await;
            let (calls, outgoing) = tokio::sync::mpsc::channel::<Calls>(1);
            let replies = client.converse(ReceiverStream::new(outgoing)).await.unwrap();
            silent.push((client, calls, replies));
        }
        let late = async {
            let mut late = connect(&server).await;
            assert_eq!(hello(&mut late, "from").await, from);
            let send = SendRequest { client_id: from, queue_id, ..Default::default() };
            late.send(send).await.unwrap();
            waiting.message().await.unwrap().unwrap().replies
        };
        let replies = tokio::time::timeout(PATIENCE, late).await.expect("it was locked out");
        assert_eq!((replies.len(), replies[0].tag, replies[0].code), (1, 7, 0));
        drop(silent);
    });
    server.stop();
}

/// Those who watch the health need no token, and take no place from those who have one.
#[test]
fn watchers_of_the_health_lock_nobody_out() {
    let folder = Folder::new();
    let mut options = options(private(&folder));
    options.client_connections = 4;
    options.access.tokens = Some(file(&folder, "tokens", &format!("{ADMIN} admin\n")));
    let server = start_with(options);
    runtime().block_on(async {
        let mut watches = Vec::new();
        for _ in 0..4 {
            let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
            let mut health = HealthClient::new(endpoint.connect().await.unwrap());
            let watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
            watches.push((health, watch));
        }
        let holder = async {
            let mut holder = connect(&server).await;
            let request = HelloRequest { name: "holder".into() };
            holder.hello(by(ADMIN, request)).await.unwrap().into_inner().client_id
        };
        let id = tokio::time::timeout(PATIENCE, holder).await.expect("it was locked out");
        assert_eq!(id, 1);
    });
    server.stop();
}

#[test]
fn tokens_say_who_may_do_what() {
    let folder = Folder::new();
    let (certificate, key) = certificate(folder.path(), "server");
    let text = format!("{ADMIN} admin\n{WORKER} client worker\n");
    let mut options = options(private(&folder));
    options.access = Access {
        tokens: Some(file(&folder, "tokens", &text)),
        tls: Some(Tls { certificate: certificate.clone(), key, client_certificate: None }),
        open_to_anyone: false,
    };
    let server = start_with(options);
    runtime().block_on(async {
        let plain = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
        let mut plain = MessageQueueClient::new(plain.connect_lazy());
        let hello = |name: &str| HelloRequest { name: name.into() };
        assert!(plain.hello(by(ADMIN, hello("x"))).await.is_err(), "it is encrypted");
        let mut client = MessageQueueClient::new(encrypted(&server, &certificate).await);
        for request in [Request::new(hello("worker")), by("wrong", hello("worker"))] {
            let refused = client.hello(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        }
        let id = |answer: tonic::Response<kendall_protocols::queue::HelloResponse>| {
            answer.into_inner().client_id
        };
        let other = id(client.hello(by(ADMIN, hello("other"))).await.unwrap());
        let create = CreateQueueRequest { name: "jobs".into(), ..Default::default() };
        let queue_id =
            client.create_queue(by(ADMIN, create.clone())).await.unwrap().into_inner().queue_id;
        // Before its hello it is no client.
        let of = |client_id| SendRequest { client_id, queue_id, ..Default::default() };
        let codes = async |client: &mut MessageQueueClient<Channel>, worker: u64| {
            let messages = vec![of(worker), of(other)];
            let letters =
                |sender_id| ListDeadLettersRequest { queue_id, sender_id, ..Default::default() };
            let statistics = QueueStatisticsRequest { queue_id };
            [
                client.hello(by(WORKER, hello("other"))).await.map(drop),
                client.create_queue(by(WORKER, create.clone())).await.map(drop),
                client.send(by(WORKER, of(other))).await.map(drop),
                client.send_batch(by(WORKER, SendBatchRequest { messages })).await.map(drop),
                client.list_dead_letters(by(WORKER, letters(0))).await.map(drop),
                client.queue_statistics(by(WORKER, statistics)).await.map(drop),
                client.send(by(WORKER, of(worker))).await.map(drop),
                client.list_dead_letters(by(WORKER, letters(worker))).await.map(drop),
            ]
            .map(|answer| answer.err().map_or(Code::Ok, |status| status.code()))
        };
        let (no, ok) = (Code::PermissionDenied, Code::Ok);
        assert_eq!(codes(&mut client, other + 1).await, [no, no, no, no, no, ok, no, no]);
        let worker = id(client.hello(by(WORKER, hello("worker"))).await.unwrap());
        assert_eq!(codes(&mut client, worker).await, [no, no, no, no, no, ok, ok, ok]);
        // On a stream, too.
        let (calls, outgoing) = tokio::sync::mpsc::channel(1);
        let talk = by(WORKER, ReceiverStream::new(outgoing));
        let mut replies = client.converse(talk).await.unwrap().into_inner();
        let call = |(tag, client)| Call { tag, operation: Some(Operation::Send(of(client))) };
        calls.send(Calls { calls: (0..).zip([worker, other]).map(call).collect() }).await.unwrap();
        let mut found = Vec::new();
        while found.len() < 2 {
            let more = tokio::time::timeout(PATIENCE, replies.message()).await.unwrap();
            found.extend(more.unwrap().unwrap().replies.into_iter().map(|r| (r.tag, r.code)));
        }
        found.sort_unstable();
        assert_eq!(found, [(0, 0), (1, no as i32)]);
    });
    server.stop();
}
