//! A cluster whose every connection is encrypted and bears a token: what passes, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::time::Duration;

use crate::execution_support::{Process, Secure, last};
use crate::support::wait_until;
use kendall_build_cluster::digest::Function;
use kendall_build_cluster::peer::{Calls, Peer, Trust, TrustFiles};
use kendall_build_cluster::remote::{Remote, RemoteError};
use kendall_build_cluster::wire::longrunning as lro;
use kendall_build_cluster::wire::re;
use kendall_build_cluster::wire::re::capabilities_client::CapabilitiesClient;
use kendall_build_cluster::wire::re::execution_client::ExecutionClient;
use kendall_build_cluster::work::workers_client::WorkersClient;
use kendall_build_cluster::work::{FromWorker, Hello, from_worker};
use kendall_testing::certificate;
use kendall_tier::Clock;
use prost::Message as _;
use tonic::Code;

/// A client with this token, or with none, that trusts the certificate.
fn peer(address: &str, certificate: &Path, token: Option<&Path>) -> Peer {
    let files = TrustFiles {
        certificate: Some(certificate.to_owned()),
        token: token.map(Path::to_owned),
        ..TrustFiles::default()
    };
    Peer { address: address.parse().unwrap(), trust: Trust::read(&files).unwrap() }
}

/// Stores an action through the scheduler, and executes it.
async fn run(peer: &Peer) -> Result<re::ExecuteResponse, tonic::Status> {
    let remote = Remote::new(peer.clone(), Duration::from_secs(10), Clock::monotonic());
    let words = ["/bin/sh", "-c", "echo done"].map(str::to_owned).to_vec();
    let command = re::Command { arguments: words, ..Default::default() }.encode_to_vec();
    let of = |bytes: &[u8]| Function::Sha256.digest(bytes);
    let action = re::Action {
        command_digest: Some(of(&command).to_wire()),
        input_root_digest: Some(of(&[]).to_wire()),
        ..Default::default()
    }
    .encode_to_vec();
    let digest = of(&action);
    let blobs = [(of(&command), command), (of(&[]), Vec::new()), (digest, action)];
    match remote.write("", &blobs).await {
        Err(RemoteError::Refused(status)) => return Err(*status),
        other => other.unwrap(),
    }
    execute(peer.calls(), digest.to_wire()).await
}

async fn execute(calls: Calls, action: re::Digest) -> Result<re::ExecuteResponse, tonic::Status> {
    let request = re::ExecuteRequest { action_digest: Some(action), ..Default::default() };
    let mut stream: tonic::Streaming<lro::Operation> =
        ExecutionClient::new(calls).execute(request).await?.into_inner();
    last(&mut stream).await
}

/// What a worker with this token is told.
async fn work(calls: Calls) -> Result<(), Code> {
    let hello = Hello { name: "stranger".into(), uid: "1".into(), slots: 1, ..Hello::default() };
    let hello = FromWorker { message: Some(from_worker::Message::Hello(hello)) };
    let stream = WorkersClient::new(calls).work(tokio_stream::once(hello)).await;
    stream.map(drop).map_err(|status| status.code())
}

#[test]
fn a_cluster_with_certificates_and_tokens_serves_whom_it_knows() {
    let Secure { folder, certificate: certificate_file, scheduler, people, ci, w1, .. } =
        &Secure::start();
    let known = |token: Option<&Path>| peer(&scheduler.listen, certificate_file, token);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let answer = run(&known(Some(ci))).await.unwrap();
        assert_eq!(answer.status.as_ref().map_or(0, |status| status.code), 0, "{answer:?}");
        assert_eq!(answer.result.unwrap().stdout_raw, b"done\n");
        // Who may read reads, and changes nothing.
        let refused = run(&known(Some(people))).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        let action = Function::Sha256.digest(b"some action").to_wire();
        let refused = execute(known(Some(people)).calls(), action.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        let reader = Remote::new(known(Some(people)), Duration::from_secs(10), Clock::monotonic());
        assert_eq!(reader.missing("", &[Function::Sha256.digest(b"x")]).await.unwrap().len(), 1);
        // The scheduler has a token for the cache; who comes without one has none there either.
        let refused = run(&known(None)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        let refused = execute(known(None).calls(), action).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        // What a worker answers is believed: a build's token is none of a worker.
        assert_eq!(work(known(Some(ci)).calls()).await, Err(Code::PermissionDenied));
        assert_eq!(work(known(None).calls()).await, Err(Code::Unauthenticated));
        // Unencrypted requests are refused, and so are clients that trust another certificate.
        let plain = Peer::from(scheduler.listen.parse::<std::net::SocketAddr>().unwrap());
        assert!(work(plain.calls()).await.is_err());
        let other = certificate(folder.path(), "other").0;
        let stranger = peer(&scheduler.listen, &other, Some(w1));
        assert_eq!(work(stranger.calls()).await, Err(Code::Unavailable));
    });
    let workers = scheduler.page("/metrics");
    assert!(workers.contains("kendall_build_workers 1\n"), "{workers}");
}

#[test]
fn files_that_cannot_be_used_are_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none").to_str().unwrap().to_owned();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let worker = ["worker", "--scheduler", "127.0.0.1:1", "--cache", "127.0.0.1:1"];
    let with = [&worker[..], &["--data", &data, "--peer-token", &missing]].concat();
    let said = Process::try_start(&with).map(|_| ()).unwrap_err();
    assert!(said.contains("cannot read") && said.contains("none"), "{said}");
    let scheduler = ["scheduler", "--listen", "127.0.0.1:0", "--cache", "127.0.0.1:1"];
    let with = [&scheduler[..], &["--tokens", &missing]].concat();
    let said = Process::try_start(&with).map(|_| ()).unwrap_err();
    assert!(said.contains("none"), "{said}");
}

/// The log has one line each: connection refused, token unknown, and that the cache answers again.
#[test]
fn a_scheduler_says_why_its_cache_does_not_serve_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("cache").to_str().unwrap().to_owned();
    let address = kendall_testing::free_address().to_string();
    let scheduler = Process::start(&["scheduler", "--listen", "127.0.0.1:0", "--cache", &address]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ask = || {
        let peer = Peer::from(scheduler.listen.parse::<std::net::SocketAddr>().unwrap());
        runtime.block_on(async {
            let mut capabilities = CapabilitiesClient::new(peer.calls());
            capabilities.get_capabilities(re::GetCapabilitiesRequest::default()).await.unwrap();
        });
    };
    let said = |words: &str| {
        wait_until(words, || {
            ask();
            scheduler.said().contains(words)
        });
        ask();
        let said = scheduler.said();
        assert_eq!(said.matches(words).count(), 1, "{said}");
        said.lines().find(|line| line.contains(words)).unwrap().to_owned()
    };
    let line = said("the cache cannot be reached");
    assert!(line.contains(&address) && line.contains("Connection refused"), "{line}");
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "work secret\n").unwrap();
    let cache = ["cache", "--listen", &address, "--data", &data];
    let tokens = ["--tokens", tokens.to_str().unwrap()];
    let mut strict = Process::start(&[&cache[..], &tokens].concat());
    let line = said("the cache wants a token");
    assert!(line.contains("--peer-token"), "{line}");
    assert_eq!(strict.stop(), Some(0));
    let _cache = Process::start(&cache);
    said("the cache answers again");
}

/// Of a worker and a scheduler one alone speaks TLS: each log says so.
#[test]
fn tls_on_one_side_alone_is_told_by_both() {
    let folder = tempfile::tempdir().unwrap();
    let (pem, key) = certificate(folder.path(), "cluster");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (pem, key) = (text(&pem), text(&key));
    let nobody = kendall_testing::free_address().to_string();
    let served = ["--tls-certificate", &pem, "--tls-key", &key];
    let asked = ["--peer-certificate", &pem];
    for (served, asked, worker_says, cache_says) in [
        (&served[..], &[][..], "does it speak TLS?", "a client speaks no TLS"),
        (&[], &asked, "it speaks no TLS", "a client speaks TLS"),
    ] {
        let [kept, data] = ["cache", "worker"].map(|name| text(&folder.path().join(name)));
        let cache = ["cache", "--listen", "127.0.0.1:0", "--data", &kept];
        let cache = Process::start(&[&cache[..], served].concat());
        // It asks its cache first.
        let worker = ["worker", "--scheduler", &nobody, "--cache", &cache.listen];
        let worker = Process::start(&[&worker[..], &["--data", &data], asked].concat());
        wait_until(worker_says, || worker.said().contains(worker_says));
        wait_until(cache_says, || cache.said().contains(cache_says));
    }
}

/// A worker whose token the scheduler does not know says so once, waits, and stops when it is asked to.
#[test]
fn a_worker_with_a_wrong_token_says_so_once() {
    let cluster = Secure::start();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    // A cache that serves all.
    let pem = text(&cluster.certificate);
    let [key, data] = ["cluster.key", "open"].map(|name| text(&cluster.folder.path().join(name)));
    let open = ["cache", "--listen", "127.0.0.1:0", "--data", &data];
    let open =
        Process::start(&[&open[..], &["--tls-certificate", &pem, "--tls-key", &key]].concat());
    for (name, token) in [("unknown", "nobody's"), ("reader", "people")] {
        let file = cluster.folder.path().join(format!("token of {name}"));
        std::fs::write(&file, token).unwrap();
        let (data, file) = (text(&cluster.folder.path().join(name)), text(&file));
        let worker = ["worker", "--scheduler", &cluster.scheduler.listen];
        let cache = ["--cache", &open.listen, "--data", &data];
        let asks = ["--peer-certificate", &pem, "--peer-token", &file];
        let mut worker = Process::start(&[&worker[..], &cache, &asks].concat());
        wait_until("it says so", || worker.said().contains("the scheduler refuses this worker"));
        assert_eq!(worker.stop(), Some(0));
        let said = worker.said();
        assert_eq!(said.matches("scheduler").count(), 1, "{said}");
    }
}

/// A worker that a cache refuses fails each action at once, and would be free for the next one before all others.
#[test]
fn a_worker_takes_no_actions_while_its_cache_does_not_serve_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [tokens, token] = [("tokens", "work secret\n"), ("token", "secret")].map(|(name, text)| {
        std::fs::write(folder.path().join(name), text).unwrap();
        path(name)
    });
    let address = kendall_testing::free_address().to_string();
    // A new folder each time: no result is known.
    let cache = |data: &str, more: &[&str]| {
        let arguments = ["cache", "--listen", &address, "--quota", "1GiB", "--data", &path(data)];
        Process::start(&[&arguments[..], more].concat())
    };
    let mut served = cache("first", &["--tokens", &tokens]);
    let scheduler = ["scheduler", "--listen", "127.0.0.1:0", "--cache", &address];
    let scheduler = Process::start(&[&scheduler[..], &["--peer-token", &token]].concat());
    let worker = |data: &str, more: &[&str]| {
        let arguments = ["worker", "--scheduler", &scheduler.listen, "--cache", &address];
        Process::start(&[&arguments[..], &["--data", &path(data)], more].concat())
    };
    let workers = |count: usize| {
        let line = format!("kendall_build_workers {count}\n");
        wait_until(&line, || scheduler.page("/metrics").contains(&line));
    };
    let files = TrustFiles { token: Some(token.clone().into()), ..TrustFiles::default() };
    let trust = Trust::read(&files).unwrap();
    let client = Peer { address: scheduler.listen.parse().unwrap(), trust };
    let run = || {
        let client = client.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(run(&client)).unwrap().result.unwrap().stdout_raw
        })
    };
    let words = "takes no actions until its cache serves it";
    let strange = worker("strange", &[]);
    wait_until("it says so", || strange.said().contains(words));
    let mut known = worker("known", &["--peer-token", &token]);
    workers(1);
    assert_eq!(run().join().unwrap(), b"done\n");
    // Its cache serves it.
    assert_eq!(served.stop(), Some(0));
    served = cache("second", &[]);
    workers(2);
    // And no more, as its next action finds out, which another worker does.
    assert_eq!(known.stop(), Some(0));
    assert_eq!(served.stop(), Some(0));
    let _served = cache("third", &["--tokens", &tokens]);
    let answer = run();
    wait_until("it says so again", || strange.said().matches(words).count() == 2);
    workers(0);
    let _known = worker("known", &["--peer-token", &token]);
    assert_eq!(answer.join().unwrap(), b"done\n");
    let said = strange.said();
    assert_eq!(said.matches(words).count(), 2, "{said}");
    assert!(said.contains("the cache wants a token"), "{said}");
    assert!(!said.contains("could not be run"), "{said}");
}
