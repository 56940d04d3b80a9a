//! What those who route clients, and browsers, ask of a scheduler and of a front.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use kendall_build_cluster::front::{CacheFront, FrontOptions, Server, WhenDown};
use kendall_build_cluster::listen::ListenOptions;
use kendall_build_cluster::peer::Trust;
use kendall_build_cluster::scheduler::Scheduler;
use kendall_tier::Clock;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::{v1, v1alpha};

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

/// A scheduler whose cache is nowhere.
fn scheduler() -> Scheduler {
    crate::support::scheduler(std::net::SocketAddr::from(([127, 0, 0, 1], 1)))
}

#[test]
fn health_is_that_of_the_scheduler_until_its_stop() {
    let scheduler = scheduler();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = format!("http://{}", scheduler.address());
    let mut watched = runtime.block_on(async {
        let endpoint = tonic::transport::Endpoint::new(address).unwrap();
        let mut health = HealthClient::new(endpoint.connect().await.unwrap());
        let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
        for service in ["", "build.bazel.remote.execution.v2.Execution"] {
            let status = health.check(ask(service)).await.unwrap().into_inner().status;
            assert_eq!(status, SERVING, "{service}");
        }
        assert_eq!(health.check(ask("nothing")).await.unwrap_err().code(), Code::NotFound);
        let mut watched = health.watch(ask("")).await.unwrap().into_inner();
        assert_eq!(watched.message().await.unwrap().unwrap().status, SERVING);
        watched
    });
    let stopping = std::thread::spawn(move || scheduler.stop());
    runtime.block_on(async {
        assert_eq!(watched.message().await.unwrap().unwrap().status, NOT_SERVING);
        assert!(matches!(watched.message().await, Ok(None) | Err(_)), "the watch ends");
    });
    stopping.join().unwrap();
}

#[test]
fn a_front_serves_and_a_watch_does_not_hold_up_its_stop() {
    let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let server = Server { address: nowhere, name: nowhere.to_string(), weight: 1 };
    let options = FrontOptions {
        listen: ListenOptions::new("127.0.0.1:0".parse().unwrap()),
        storage: vec![server.clone()],
        results: vec![server],
        trust: Trust::default(),
        when_down: WhenDown::Miss,
        patience: std::time::Duration::from_secs(1),
        threads: 1,
    };
    let front = CacheFront::start(options, Clock::monotonic()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = format!("http://{}", front.address());
    let mut watched = runtime.block_on(async {
        let endpoint = tonic::transport::Endpoint::new(address).unwrap();
        let mut health = HealthClient::new(endpoint.connect().await.unwrap());
        let ask = || HealthCheckRequest { service: String::new() };
        assert_eq!(health.check(ask()).await.unwrap().into_inner().status, SERVING);
        health.watch(ask()).await.unwrap().into_inner()
    });
    let stopping = std::thread::spawn(move || front.stop());
    runtime.block_on(async {
        assert_eq!(watched.message().await.unwrap().unwrap().status, SERVING);
        assert!(matches!(watched.message().await, Ok(None) | Err(_)), "the watch ends");
    });
    stopping.join().unwrap();
}

/// Older tools know the first version of reflection only.
#[test]
fn both_versions_of_reflection_list_what_answers_there() {
    let scheduler = scheduler();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = format!("http://{}", scheduler.address());
    let (newer, older) = runtime.block_on(async {
        let endpoint = tonic::transport::Endpoint::new(address).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let asked = [
            MessageRequest::ListServices(String::new()),
            MessageRequest::FileContainingSymbol("kendall.worker.v1.Workers".to_owned()),
        ];
        let requests = asked.map(|message_request| v1::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(message_request),
        });
        let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
        let answers = client.server_reflection_info(tokio_stream::iter(requests)).await.unwrap();
        let mut answers = answers.into_inner();
        let newer = answers.message().await.unwrap().unwrap();
        let described = format!("{:?}", answers.message().await.unwrap().unwrap());
        assert!(described.contains("FileDescriptorResponse"), "{described}");
        let request = v1alpha::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(
                v1alpha::server_reflection_request::MessageRequest::ListServices(String::new()),
            ),
        };
        let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
        let answers = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
        let older = answers.into_inner().message().await.unwrap().unwrap();
        (format!("{newer:?}"), format!("{older:?}"))
    });
    for service in [
        "build.bazel.remote.execution.v2.Execution",
        "build.bazel.remote.execution.v2.ContentAddressableStorage",
        "google.bytestream.ByteStream",
        "kendall.worker.v1.Workers",
        "grpc.health.v1.Health",
    ] {
        assert!(newer.contains(service) && older.contains(service), "{service}: {newer} {older}");
    }
    scheduler.stop();
}

/// Over HTTP/2 a client takes bytes after the answer to HEAD for a broken stream.
#[test]
fn a_head_over_http_2_is_answered_without_a_body() {
    use http_body_util::{BodyExt as _, Empty};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let scheduler = scheduler();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(scheduler.address()).await.unwrap();
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        let mut driven = tokio::task::JoinSet::new();
        driven.spawn(async move { connection.await.unwrap_or_default() });
        let uri = format!("http://{}/", scheduler.address());
        let mut ask = async |method: hyper::Method| {
            let request = hyper::Request::builder().method(method).uri(&uri);
            let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
            let (head, body) = sender.send_request(request).await.unwrap().into_parts();
            (head, body.collect().await.unwrap().to_bytes())
        };
        let (got, text) = ask(hyper::Method::GET).await;
        let (head, nothing) = ask(hyper::Method::HEAD).await;
        assert_eq!((head.status, nothing.len()), (got.status, 0));
        assert_eq!(head.headers["content-length"], text.len().to_string());
    });
    scheduler.stop();
}
