//! Clients that mean no good: each is refused in bounds, and others are served meanwhile.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{block_on, client, client_at, content, options, padded, scheduler, start};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kendall_build_cluster::cache::Cache;
use kendall_build_cluster::digest::Function;
use kendall_build_cluster::wire::bytestream::ReadRequest;
use kendall_build_cluster::wire::bytestream::byte_stream_client::ByteStreamClient;
use kendall_tier::Clock;
use kendall_tier::serve::Bounds;
use tokio_stream::StreamExt as _;

/// The gRPC status of a raw body at a path.
async fn raw(cache: &Cache, path: &str, body: Vec<u8>) -> Option<i32> {
    let stream = tokio::net::TcpStream::connect(cache.address()).await.unwrap();
    let (mut sender, driver) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let driving = tokio::task::LocalSet::new();
    let body = Full::new(Bytes::from(body));
    let request = Request::post(format!("http://x{path}"))
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap();
    driving.spawn_local(driver);
    driving
        .run_until(async {
            let response = sender.send_request(request).await.unwrap();
            let code = |headers: &hyper::HeaderMap| headers.get("grpc-status").cloned();
            let early = code(response.headers());
            let late = response.into_body().collect().await.ok();
            let late = late.and_then(|body| body.trailers().and_then(code));
            early.or(late).and_then(|value| value.to_str().ok()?.parse().ok())
        })
        .await
}

const CAS: &str = "/build.bazel.remote.execution.v2.ContentAddressableStorage";

#[test]
fn what_is_no_message_is_refused_with_a_status() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let find = format!("{CAS}/FindMissingBlobs");
        let message = |bytes: &[u8]| {
            let length = u32::try_from(bytes.len()).unwrap();
            [&[0][..], &length.to_be_bytes(), bytes].concat()
        };
        // RESOURCE_EXHAUSTED for four gigabytes announced, and none is waited for.
        assert_eq!(raw(&cache, &find, vec![0, 255, 255, 255, 255]).await, Some(8));
        // UNIMPLEMENTED for compressed messages, and for methods that there are none.
        assert_eq!(raw(&cache, &find, vec![1, 0, 0, 0, 0]).await, Some(12));
        assert_eq!(raw(&cache, "/no.such.Service/Method", message(b"")).await, Some(12));
        // INTERNAL where the request ends within its message, or before it.
        assert_eq!(raw(&cache, &find, vec![0, 0, 0, 0, 9, 1]).await, Some(13));
        assert_eq!(raw(&cache, &find, vec![]).await, Some(13));
        // INVALID_ARGUMENT for noise.
        for path in [
            &find,
            &format!("{CAS}/BatchUpdateBlobs"),
            &format!("{CAS}/BatchReadBlobs"),
            &format!("{CAS}/GetTree"),
            "/build.bazel.remote.execution.v2.ActionCache/GetActionResult",
            "/build.bazel.remote.execution.v2.ActionCache/UpdateActionResult",
            "/build.bazel.remote.asset.v1.Push/PushBlob",
            "/google.bytestream.ByteStream/Read",
            "/google.bytestream.ByteStream/Write",
        ] {
            assert_eq!(raw(&cache, path, message(&[0xff; 40])).await, Some(3), "{path}");
        }
        let mut good = client(cache.address()).await;
        assert_eq!(good.put(Function::Sha256, &[content(1, 10)]).await, [0]);
    });
    cache.stop();
}

/// How many connections this process may have to a server that is in it as well: thousands, if it may open so many
/// files.
fn thousands() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(8_192);
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    if limit.current.is_some_and(|now| now < wanted) {
        setrlimit(Resource::Nofile, raised).unwrap();
    }
    // But for the other ends of those that are accepted, and the files of the tests beside this one.
    usize::try_from(wanted).unwrap().saturating_sub(256 + 500).clamp(100, 3_000)
}

#[test]
fn connections_that_say_nothing_or_nonsense_make_room_for_those_that_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.listen.edge.connections = 256;
    options.listen.edge.patience = Duration::from_millis(300);
    let cache = Cache::start(&options, Clock::monotonic()).unwrap();
    // A part of the words with which HTTP/2 begins, of a head of HTTP/1.1, noise, and nothing.
    let words: [&[u8]; 4] = [b"PRI * HTTP/2.0\r\n", b"GET /cas", b"\x00\xff\x16\x03", b""];
    let silent: Vec<TcpStream> = (0..thousands())
        .map(|number| {
            let mut stream = TcpStream::connect(cache.address()).unwrap();
            stream.write_all(words[number % 4]).unwrap();
            stream
        })
        .collect();
    block_on(async {
        let mut good = client(cache.address()).await;
        let blob = content(1, 1000);
        assert_eq!(good.put(Function::Sha256, std::slice::from_ref(&blob)).await, [0]);
    });
    // It ends them: a read comes to its end.
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut said = Vec::new();
        match stream.read_to_end(&mut said) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    cache.stop();
}

/// The code of an upload of this name whose pieces have no end, and what another client has there meanwhile.
async fn endless(cache: &Cache, name: String, piece: Vec<u8>) -> (tonic::Code, usize) {
    let mut good = client(cache.address()).await;
    let blob = content(77, 50_000);
    assert_eq!(good.put(Function::Sha256, std::slice::from_ref(&blob)).await, [0]);
    let step = i64::try_from(piece.len()).unwrap();
    let requests = (0..).map(move |number| kendall_build_cluster::wire::bytestream::WriteRequest {
        resource_name: name.clone(),
        write_offset: number * step,
        finish_write: false,
        data: piece.clone(),
    });
    let mut bad = client(cache.address()).await;
    let refused = bad.bytes.write(tokio_stream::iter(requests)).await.unwrap_err();
    (refused.code(), good.missing(&[Function::Sha256.digest(&blob)]).await.len())
}

/// More than was announced; zstd that expands to more; and zstd that expands to nothing, for ever.
#[test]
fn uploads_without_an_end_are_cut_off_and_push_nothing_out() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let plain = |size: u64| {
            let digest = Function::Sha256.digest(&size.to_le_bytes());
            format!(
                "uploads/1/{}",
                kendall_build_cluster::digest::Digest { size, ..digest }.resource()
            )
        };
        let packed = |size: u64| plain(size).replace("/blobs/", "/compressed-blobs/zstd/");
        let bomb = zstd::encode_all(&*vec![0; 8 << 20], 19).unwrap();
        assert!(bomb.len() < 2_000, "{}", bomb.len());
        let empty = zstd::encode_all(&b""[..], 3).unwrap();
        for (name, piece) in [
            (plain(1_000_000), content(1, 60_000)),
            (packed(1_000), bomb.clone()),
            // Within the bound of what comes, but not of what comes out.
            (packed(1_000_000), bomb),
            (packed(1_000_000), empty.repeat(5_000)),
            (packed(1_000_000), padded(b"", 60_000)),
        ] {
            let said = endless(&cache, name.clone(), piece).await;
            assert_eq!(said, (tonic::Code::InvalidArgument, 0), "{name}");
        }
    });
    let left = std::fs::read_dir(folder.path().join("files")).unwrap().count();
    assert_eq!(left, 0, "what was refused leaves no file");
    cache.stop();
}

/// Large uploads that break off, and large ones that just do not go on: neither takes the room of what is kept.
#[test]
fn large_uploads_that_are_never_finished_leave_room_for_what_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    let part = |number: u32, pieces: i64| {
        let digest = Function::Sha256.digest(&number.to_le_bytes());
        let digest = kendall_build_cluster::digest::Digest { size: 40 << 20, ..digest };
        let name = format!("uploads/{number}/{}", digest.resource());
        (0..pieces).map(move |index| kendall_build_cluster::wire::bytestream::WriteRequest {
            resource_name: name.clone(),
            write_offset: index << 20,
            finish_write: false,
            data: vec![1; 1 << 20],
        })
    };
    let on_disk = || -> u64 {
        let files = std::fs::read_dir(folder.path().join("files")).unwrap();
        files.filter_map(|file| file.unwrap().metadata().ok()).map(|file| file.len()).sum()
    };
    block_on(async {
        let mut good = client(cache.address()).await;
        let kept: Vec<Vec<u8>> = (0..40).map(|number| content(number, 400_000)).collect();
        let digests: Vec<_> = kept.iter().map(|blob| Function::Sha256.digest(blob)).collect();
        for blobs in kept.chunks(8) {
            assert_eq!(good.put(Function::Sha256, blobs).await, [0; 8]);
        }
        let mut bad = client(cache.address()).await;
        for number in 0..12 {
            bad.bytes.write(tokio_stream::iter(part(number, 30))).await.unwrap();
            // A quarter of the largest content, which is less than the quota of 256 MiB.
            assert!(on_disk() <= 64 << 20, "{} bytes", on_disk());
        }
        assert_eq!(good.missing(&digests).await.len(), 0);
        // These say 30 MiB each, and then nothing.
        let mut held = tokio::task::JoinSet::new();
        for number in 100..112 {
            let silence = tokio_stream::pending();
            let mut bad = client(cache.address()).await;
            let all = tokio_stream::iter(part(number, 30)).chain(silence);
            held.spawn(async move { bad.bytes.write(all).await.unwrap_err().code() });
        }
        for _ in 0..4 {
            assert_eq!(held.join_next().await.unwrap().unwrap(), tonic::Code::ResourceExhausted);
        }
        assert!(on_disk() <= 128 << 20, "{} bytes", on_disk());
        assert_eq!(good.missing(&digests).await.len(), 0);
        // What is small is stored, and a large one as soon as there is room.
        assert_eq!(good.put(Function::Sha256, &[content(99, 1_000)]).await, [0]);
        held.shutdown().await;
    });
    cache.stop();
}

#[test]
fn uploads_that_are_never_finished_are_bounded_in_memory_and_leave_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut bad = client(cache.address()).await;
        for number in 0..600_u32 {
            // Announced as a megabyte; a few bytes come, and the stream ends.
            let mut digest = Function::Sha256.digest(&number.to_le_bytes());
            digest.size = 1_000_000;
            let name = format!("uploads/{number}/{}", digest.resource());
            let request = kendall_build_cluster::wire::bytestream::WriteRequest {
                resource_name: name,
                data: content(number, 100),
                ..Default::default()
            };
            bad.bytes.write(tokio_stream::iter([request])).await.unwrap();
        }
        let mut good = client(cache.address()).await;
        assert_eq!(good.put(Function::Sha256, &[content(7, 100)]).await, [0]);
    });
    let parts = || std::fs::read_dir(folder.path().join("files")).unwrap().count();
    assert!(parts() <= 256, "no more than may be resumed: {}", parts());
    cache.stop();
    assert_eq!(parts(), 0, "and after a stop, none");
}

/// As many uploads as the cache has places for, begun on several connections and left open.
#[test]
fn uploads_that_are_left_open_give_way_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut held = tokio::task::JoinSet::new();
        for connection in 0..4_u32 {
            let bad = client(cache.address()).await;
            for number in 0..600_u32 {
                let mut digest =
                    Function::Sha256.digest(&(connection * 600 + number).to_le_bytes());
                digest.size = 1_000;
                let request = kendall_build_cluster::wire::bytestream::WriteRequest {
                    resource_name: format!("uploads/{number}/{}", digest.resource()),
                    data: vec![1],
                    ..Default::default()
                };
                let all = tokio_stream::once(request).chain(tokio_stream::pending());
                let mut bytes = bad.bytes.clone();
                held.spawn(async move { bytes.write(all).await.unwrap_err().code() });
            }
        }
        // 88 of each connection, and what is more than one address may have.
        for _ in 0..4 * 600 - 1_024 {
            assert_eq!(held.join_next().await.unwrap().unwrap(), tonic::Code::ResourceExhausted);
        }
        let mut good = client(cache.address()).await;
        let tries = Clock::monotonic();
        let before = tries.now_ns();
        for number in 0..20 {
            let blob = content(number, 700_000);
            let name = format!("uploads/x/{}", Function::Sha256.digest(&blob).resource());
            // They may keep their places for a second.
            while let Err(status) = good.write(&name, &blob, 100_000).await {
                assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
                assert!(tries.now_ns() - before < 30_000_000_000, "{status}");
            }
        }
        held.shutdown().await;
    });
    cache.stop();
}

/// More uploads than the scheduler's connection to the cache has places for, begun by one client and left open.
#[test]
fn uploads_that_are_left_open_at_the_scheduler_keep_no_other_client_out() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    let scheduler = scheduler(cache.address());
    block_on(async {
        let mut held = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let bad = client(scheduler.address()).await;
            for _ in 0..512 {
                let mut bytes = bad.bytes.clone();
                held.spawn(async move { bytes.write(tokio_stream::pending()).await });
            }
        }
        let at_once = Duration::from_secs(20);
        // What is more than one address may have.
        for _ in 0..4 * 512 - 384 {
            let ended = tokio::time::timeout(at_once, held.join_next()).await;
            let refused = ended.expect("it is refused at once").unwrap().unwrap().unwrap_err();
            assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
        }
        let mut good = client_at(scheduler.address(), [127, 0, 0, 2].into()).await;
        for number in 0..20 {
            let blob = content(number, 700_000);
            let name = format!("uploads/x/{}", Function::Sha256.digest(&blob).resource());
            let written = tokio::time::timeout(at_once, good.write(&name, &blob, 100_000)).await;
            assert_eq!(written.expect("others are served").unwrap(), 700_000);
        }
        held.shutdown().await;
    });
    scheduler.stop();
    cache.stop();
}

/// A few kilobytes that expand to 256 MiB, beside the only network thread.
#[test]
fn other_requests_are_answered_while_content_is_decompressed() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.threads = 1;
    options.quota = 2 << 30;
    let cache = Cache::start(&options, Clock::monotonic()).unwrap();
    let size = 256_u64 << 20;
    let zeros = std::io::Read::take(std::io::repeat(0), size);
    let bomb = zstd::encode_all(zeros, 1).unwrap();
    let digest = kendall_build_cluster::digest::Digest { size, ..Function::Sha256.digest(b"?") };
    let name =
        format!("uploads/1/{}", digest.resource().replace("blobs/", "compressed-blobs/zstd/"));
    block_on(async {
        let mut good = client(cache.address()).await;
        let mut bad = client(cache.address()).await;
        let upload = bad.write(&name, &bomb, bomb.len());
        let mut upload = std::pin::pin!(upload);
        let (clock, mut answered, asked) = (Clock::monotonic(), 0, [digest]);
        let before = clock.now_ns();
        let refused = loop {
            tokio::select! {
                refused = &mut upload => break refused,
                _ = good.missing(&asked) => answered += 1,
            }
        };
        assert_eq!(refused.unwrap_err().code(), tonic::Code::InvalidArgument, "another content");
        let took_ms = (clock.now_ns() - before) / 1_000_000;
        // One answer, or two, where the thread expands all of it at once.
        assert!(answered > 10, "{answered} answers in {took_ms} ms");
    });
    cache.stop();
}

#[test]
fn a_client_that_takes_no_byte_of_its_answer_makes_room_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.listen.edge.idle = Duration::from_secs(1);
    // The second client is accepted when the first is gone.
    options.listen.edge.connections = 1;
    let cache = Cache::start(&options, Clock::monotonic()).unwrap();
    // More than the buffers of two sockets hold.
    let blob = content(1, 64 << 20);
    let path = format!("/cas/{}", Function::Sha256.digest(&blob).hash_text());
    let ask = |head: &str, body: &[u8]| {
        let mut stream = TcpStream::connect(cache.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(format!("{head} {path} HTTP/1.1\r\nHost: x\r\n").as_bytes()).unwrap();
        write!(stream, "Content-Length: {}\r\n\r\n", body.len()).unwrap();
        stream.write_all(body).unwrap();
        stream
    };
    let mut start = [0; 12];
    ask("PUT", &blob).read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    let mut silent = ask("GET", b"");
    silent.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    ask("HEAD", b"").read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    let mut taken = Vec::new();
    drop(silent.read_to_end(&mut taken));
    assert!(taken.len() < blob.len(), "{} bytes", taken.len());
    cache.stop();
}

/// Over HTTP/2 a client may leave its window closed and answer pings.
#[test]
fn a_client_over_http_2_that_takes_no_answer_makes_room_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.listen.edge.idle = Duration::from_secs(1);
    options.listen.edge.connections = 1;
    let cache = Cache::start(&options, Clock::monotonic()).unwrap();
    // More than the windows of HTTP/2 and the buffers of two sockets hold.
    let blob = content(1, 64 << 20);
    let path = format!("/cas/{}", Function::Sha256.digest(&blob).hash_text());
    let address = cache.address();
    let ask = move |head: &str, body: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        write!(stream, "{head} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n").unwrap();
        stream.write_all(body).unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        String::from_utf8_lossy(&start).into_owned()
    };
    assert_eq!(ask(&format!("PUT {path}"), &blob), "HTTP/1.1 200");
    let driving = tokio::task::LocalSet::new();
    block_on(driving.run_until(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut sender, driver) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::task::spawn_local(driver);
        let request =
            Request::get(format!("http://x{path}")).body(Full::<Bytes>::default()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let head = format!("HEAD {path}");
        let other = tokio::task::spawn_blocking(move || ask(&head, b"")).await.unwrap();
        assert_eq!(other, "HTTP/1.1 200");
        assert!(answer.into_body().collect().await.is_err(), "all of it came");
    }));
    cache.stop();
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The beginning of HTTP/2 by a client whose windows, that of a stream and that of the connection, have this size.
fn preface(window: u32) -> Vec<u8> {
    let initial = [&[0, 4][..], &window.to_be_bytes()].concat();
    let more = frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes());
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &initial), &more].concat()
}

/// A client that asks for a path so many times, and reads nothing.
fn hoard(address: std::net::SocketAddr, path: &str, window: u32, requests: u32) -> TcpStream {
    let head = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", path)];
    send_heads(address, &head, 0b101, window, requests)
}

/// A client that sends so many heads with these flags, and reads nothing.
fn send_heads(
    address: std::net::SocketAddr,
    head: &[(&str, &str)],
    flags: u8,
    window: u32,
    requests: u32,
) -> TcpStream {
    let header = |name: &str, value: &str| {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        [vec![0], text(name), text(value)].concat()
    };
    let head: Vec<u8> = head.iter().flat_map(|(name, value)| header(name, value)).collect();
    let asked = (0..requests).flat_map(|number| frame(1, flags, 2 * number + 1, &head));
    let words: Vec<u8> = preface(window).into_iter().chain(asked).collect();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // It may be closed meanwhile.
    drop(stream.write_all(&words));
    stream
}

/// Files below a folder that this process has open.
fn open_below(folder: &std::path::Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let paths = open.filter_map(|one| std::fs::read_link(one.ok()?.path()).ok());
    paths.filter(|path| path.starts_with(folder)).count()
}

const AT_ONCE: Duration = Duration::from_secs(60);

/// With windows of no byte, of one, and open ones whose bytes stay in the socket.
#[test]
fn clients_that_take_no_answer_leave_room_for_those_that_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.listen.edge.answers = Bounds::of(16 << 20);
    let cache = Cache::start(&options, Clock::monotonic()).unwrap();
    let blob = content(1, 4 << 20);
    let digest = Function::Sha256.digest(&blob);
    block_on(async {
        let mut good = client(cache.address()).await;
        let name = format!("uploads/x/{}", digest.resource());
        assert_eq!(good.write(&name, &blob, 1 << 20).await.unwrap(), 4 << 20);
        let path = format!("/cas/{}", digest.hash_text());
        let silent: Vec<TcpStream> = [0, 1, 0x7fff_ffff]
            .into_iter()
            .flat_map(|window| [window; 5])
            .map(|window| hoard(cache.address(), &path, window, 100))
            .collect();
        // A request from their address waits until one of them has been silent for a second.
        for _ in 0..20 {
            let read = tokio::time::timeout(AT_ONCE, good.read(&digest.resource(), 0, 0)).await;
            assert_eq!(read.expect("others are served").unwrap(), blob);
            // 64 answers, their segments, and one that is being made.
            let open = open_below(folder.path());
            assert!(open <= 64 + 16, "{open} files are open");
        }
        let mut other = client_at(cache.address(), [127, 0, 0, 2].into()).await;
        assert_eq!(other.read(&digest.resource(), 0, 0).await.unwrap(), blob);
        drop(silent);
    });
    cache.stop();
}

/// Heads of requests whose rest never comes, more than twice as many as may begin: connections with many end.
#[test]
fn requests_that_stay_without_their_rest_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    let head = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", "/google.bytestream.ByteStream/Read"),
        ("content-type", "application/grpc"),
    ];
    let silent: Vec<TcpStream> =
        (0..40).map(|_| send_heads(cache.address(), &head, 0b100, 0, 1_000)).collect();
    for stream in &silent {
        stream.set_nonblocking(true).unwrap();
    }
    let ended = |mut stream: &TcpStream| loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    };
    let clock = Clock::monotonic();
    let before_ns = clock.now_ns();
    // Before the time is over that each has for its rest.
    while !silent.iter().any(ended) {
        assert!(clock.now_ns() - before_ns < 50_000_000_000, "none ended");
        std::thread::yield_now();
    }
    block_on(async {
        let mut good = client(cache.address()).await;
        assert_eq!(good.put(Function::Sha256, &[content(7, 100)]).await, [0]);
    });
    cache.stop();
}

/// Many readers of the scheduler take nothing: its one connection to the cache serves others.
#[test]
fn readers_that_take_nothing_hold_up_nobody_at_the_scheduler() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    let scheduler = scheduler(cache.address());
    let blob = content(1, 4 << 20);
    let digest = Function::Sha256.digest(&blob);
    block_on(async {
        let mut good = client(scheduler.address()).await;
        let name = format!("uploads/x/{}", digest.resource());
        assert_eq!(good.write(&name, &blob, 1 << 20).await.unwrap(), 4 << 20);
        let mut held = tokio::task::JoinSet::new();
        for _ in 0..15 {
            let endpoint = format!("http://{}", scheduler.address());
            let endpoint = tonic::transport::Endpoint::new(endpoint).unwrap();
            let endpoint = endpoint.initial_stream_window_size(0);
            let bad = ByteStreamClient::new(endpoint.connect().await.unwrap());
            for _ in 0..100 {
                let (mut bad, resource_name) = (bad.clone(), digest.resource());
                held.spawn(async move {
                    let request = ReadRequest { resource_name, ..Default::default() };
                    let answer = bad.read(request).await;
                    std::future::pending::<()>().await;
                    drop(answer);
                });
            }
        }
        for from in [[127, 0, 0, 2], [127, 0, 0, 1]] {
            let mut good = client_at(scheduler.address(), from.into()).await;
            for _ in 0..10 {
                let read = tokio::time::timeout(AT_ONCE, good.read(&digest.resource(), 0, 0)).await;
                assert_eq!(read.expect("others are served").unwrap(), blob);
            }
        }
        held.shutdown().await;
    });
    scheduler.stop();
    cache.stop();
}

/// Messages that are sent when the test says so.
struct Pieces<T>(tokio::sync::mpsc::Receiver<T>);

impl<T> tokio_stream::Stream for Pieces<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}

/// Clients of the scheduler that go away in the midst of many downloads: what still comes of them ends no download of
/// others over the same connection to the cache.
#[test]
fn downloads_that_are_given_up_end_no_others_at_the_scheduler() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    let scheduler = scheduler(cache.address());
    let blob = content(1, 8 << 20);
    let digest = Function::Sha256.digest(&blob);
    block_on(async {
        let mut good = client(scheduler.address()).await;
        let name = format!("uploads/x/{}", digest.resource());
        assert_eq!(good.write(&name, &blob, 1 << 20).await.unwrap(), 8 << 20);
        let request = || ReadRequest { resource_name: digest.resource(), ..Default::default() };
        let mut kept = good.bytes.read(request()).await.unwrap().into_inner();
        let mut size = kept.message().await.unwrap().unwrap().data.len();
        // 16 frames of each are under way.
        for _ in 0..20 {
            let mut bad = client(scheduler.address()).await;
            let mut begun = Vec::new();
            for _ in 0..64 {
                begun.push(bad.bytes.read(request()).await.unwrap());
            }
        }
        while let Some(piece) = kept.message().await.unwrap() {
            size += piece.data.len();
        }
        assert_eq!(size, 8 << 20);
    });
    scheduler.stop();
    cache.stop();
}

/// More connections without a request than may be open: each further one takes the place of the one that has been
/// idle for longest, and none that is in use.
#[test]
fn idle_connections_over_http_2_make_room_for_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.listen.edge.connections = 64;
    options.listen.edge.patience = Duration::from_secs(3600);
    options.listen.edge.idle = Duration::from_secs(3600);
    let cache = Cache::start(&options, Clock::monotonic()).unwrap();
    block_on(async {
        let mut busy = client(cache.address()).await;
        let blob = content(1, 1_000_000);
        let name = format!("uploads/x/{}", Function::Sha256.digest(&blob).resource());
        let piece =
            |from: usize, to: usize| kendall_build_cluster::wire::bytestream::WriteRequest {
                resource_name: name.clone(),
                write_offset: i64::try_from(from).unwrap(),
                finish_write: to == blob.len(),
                data: blob[from..to].to_vec(),
            };
        let (pieces, taken) = tokio::sync::mpsc::channel(1);
        pieces.send(piece(0, 600_000)).await.unwrap();
        let mut upload = tokio::task::JoinSet::new();
        upload.spawn(async move { busy.bytes.write(Pieces(taken)).await });
        // From here on the cache has the request.
        while open_below(&folder.path().join("files")) == 0 {
            tokio::task::yield_now().await;
        }
        let idle: Vec<TcpStream> = (0..200)
            .map(|_| {
                let mut stream = TcpStream::connect(cache.address()).unwrap();
                stream.write_all(&preface(1 << 20)).unwrap();
                stream
            })
            .collect();
        let served = async {
            let mut good = client(cache.address()).await;
            good.put(Function::Sha256, &[content(2, 1000)]).await
        };
        assert_eq!(tokio::time::timeout(AT_ONCE, served).await.expect("it is let in"), [0]);
        pieces.send(piece(600_000, 1_000_000)).await.unwrap();
        drop(pieces);
        let written = upload.join_next().await.unwrap().unwrap().unwrap().into_inner();
        assert_eq!(written.committed_size, 1_000_000);
        drop(idle);
    });
    cache.stop();
}
