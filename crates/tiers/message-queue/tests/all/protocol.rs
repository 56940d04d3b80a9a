//! What other clients and those who route them rely on: health, reflection, deadlines.

use std::time::Duration;

use kendall_message_queue::{Database, Server};
use kendall_protocols::queue::{
    HelloResponse, ReceiveBatchRequest, ReceiveRequest, SendBatchRequest, SendRequest,
};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::{v1, v1alpha};

use crate::support::{self, connect, create, hello, postgres, private, runtime, start};

const SERVICE: &str = "kendall.queue.v1.MessageQueue";
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

async fn channel(server: &Server) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
    endpoint.connect().await.unwrap()
}

/// A client that watches is told within a minute that PostgreSQL is away, that it is back, and that the
/// middleware stops; and does not hold the stop up.
#[test]
fn health_follows_postgresql_and_the_stop() {
    let folder = support::Folder::new();
    let database = postgres(&folder);
    let server = start(Database::Url(database.url().to_owned()));
    let runtime = runtime();
    let mut watched = runtime.block_on(async {
        let mut health = HealthClient::new(channel(&server).await);
        let request = HealthCheckRequest { service: SERVICE.into() };
        assert_eq!(health.check(request.clone()).await.unwrap().into_inner().status, SERVING);
        let mut watched = health.watch(request).await.unwrap().into_inner();
        assert_eq!(watched.message().await.unwrap().unwrap().status, SERVING);
        watched
    });
    let mut next = |status| {
        let told = async { while watched.message().await.unwrap().unwrap().status != status {} };
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), told).await.unwrap() });
    };
    let page = server.health();
    assert!(page());
    database.stop();
    next(NOT_SERVING);
    assert!(!page());
    let database = postgres(&folder);
    next(SERVING);
    assert!(page());
    let stopping = std::thread::spawn(move || server.stop());
    next(NOT_SERVING);
    let ended = runtime.block_on(watched.message());
    assert!(matches!(ended, Ok(None) | Err(_)), "the watch ends: {ended:?}");
    stopping.join().unwrap();
    database.stop();
}

/// Older tools know the first version of reflection only.
#[test]
fn both_versions_of_reflection_list_the_services() {
    let folder = support::Folder::new();
    let server = start(support::private(&folder));
    let runtime = runtime();
    let (newer, older) = runtime.block_on(async {
        let request = v1::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(
                String::new(),
            )),
        };
        let mut client =
            v1::server_reflection_client::ServerReflectionClient::new(channel(&server).await);
        let answers = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
        let newer = answers.into_inner().message().await.unwrap().unwrap();
        let request = v1alpha::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(
                v1alpha::server_reflection_request::MessageRequest::ListServices(String::new()),
            ),
        };
        let mut client =
            v1alpha::server_reflection_client::ServerReflectionClient::new(channel(&server).await);
        let answers = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
        (
            format!("{newer:?}"),
            format!("{:?}", answers.into_inner().message().await.unwrap().unwrap()),
        )
    });
    assert!(newer.contains(SERVICE) && older.contains(SERVICE), "{newer} {older}");
    server.stop();
}

/// A receiver that waited and is gone takes nothing: what comes after its deadline is for others.
#[test]
fn a_message_is_not_lost_to_a_receiver_whose_deadline_passed() {
    let folder = support::Folder::new();
    let server = start(support::private(&folder));
    let runtime = runtime();
    runtime.block_on(async {
        let mut client = connect(&server).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let queue_id = create(&mut client, "jobs").await;
        let mut waits = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let mut client = client.clone();
            let receive =
                ReceiveRequest { client_id: to, queue_id, wait_ms: 50_000, ..Default::default() };
            let mut request = Request::new(receive);
            request.set_timeout(Duration::from_millis(300));
            waits.spawn(async move { client.receive(request).await });
        }
        while let Some(answer) = waits.join_next().await {
            assert!(answer.unwrap().is_err());
        }
        for number in 0..50 {
            let content = number.to_string();
            let send = SendRequest { client_id: from, queue_id, content, ..Default::default() };
            client.send(send).await.unwrap();
        }
        for number in 0..50 {
            let receive = ReceiveRequest { client_id: to, queue_id, ..Default::default() };
            let found = client.receive(receive).await.unwrap().into_inner().message.unwrap();
            assert_eq!(found.content, number.to_string());
        }
    });
    server.stop();
}

/// Clients take answers of 4 MiB unless they are told otherwise: a batch is cut to what they take.
#[test]
fn a_large_batch_is_cut_to_what_clients_take() {
    let folder = support::Folder::new();
    let server = start(support::private(&folder));
    let runtime = runtime();
    runtime.block_on(async {
        let mut client = connect(&server).await;
        let (from, to) = (hello(&mut client, "from").await, hello(&mut client, "to").await);
        let queue_id = create(&mut client, "jobs").await;
        let content = "\u{1f4e6}".repeat(2000);
        let send = SendRequest { client_id: from, queue_id, content, ..Default::default() };
        let sent = client.send_batch(SendBatchRequest { messages: vec![send; 600] }).await.unwrap();
        assert!(sent.into_inner().results.iter().all(|result| result.code == 0));
        let receive =
            ReceiveBatchRequest { client_id: to, queue_id, limit: 1000, ..Default::default() };
        let mut received = Vec::new();
        for _ in 0..2 {
            let answer = client.receive_batch(receive.clone()).await.unwrap();
            received.push(answer.into_inner().messages.len());
        }
        assert_eq!(received.iter().sum::<usize>(), 600);
        assert!(received[0] > 500, "{received:?}");
    });
    server.stop();
}

/// A hello whose name is any bytes.
#[derive(Clone, PartialEq, prost::Message)]
struct AnyHello {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
}

/// Bytes that are not text are refused as the client's mistake, with a reason.
#[test]
fn a_name_that_is_no_text_is_the_clients_mistake() {
    let folder = support::Folder::new();
    let server = start(private(&folder));
    runtime().block_on(async {
        let mut client = tonic::client::Grpc::new(channel(&server).await);
        client.ready().await.unwrap();
        let path = PathAndQuery::from_static("/kendall.queue.v1.MessageQueue/Hello");
        let codec = tonic_prost::ProstCodec::<AnyHello, HelloResponse>::default();
        let request = Request::new(AnyHello { name: vec![b'a', 0xff] });
        let status = client.unary(request, path, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        let details = String::from_utf8_lossy(status.details()).into_owned();
        assert!(details.contains("MALFORMED_MESSAGE"), "{details}");
    });
    server.stop();
}
