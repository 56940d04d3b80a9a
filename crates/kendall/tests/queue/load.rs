//! The load of the message queue against a real middleware: many calls on one stream, what becomes
//! of them when it breaks, and what `kendall load queue` says at its end.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use crate::queue_support::Middleware;
use kendall_loadgen::queue::{Conversation, OPEN_CALLS, Refusal};
use kendall_message_queue::PrivatePostgres;
use kendall_message_queue::wire::message_queue_client::MessageQueueClient;
use kendall_protocols::queue::call::Operation as Call;
use kendall_protocols::queue::reply::Answer;
use kendall_protocols::queue::{
    AcknowledgeRequest, CreateQueueRequest, HelloRequest, LeaseRequest, ReceiveRequest, SendRequest,
};
use kendall_testing::certificate;
use serde_json::Value;
use tokio::task::JoinSet;

/// Long enough that no test waits for its end.
const LONG_WAIT_MS: u64 = 50_000;

struct Tier {
    postgres: PrivatePostgres,
    middleware: Middleware,
    _folder: tempfile::TempDir,
}

impl Tier {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let postgres = start_postgres(&folder.path().join("queue"));
        let middleware = Middleware::start(&["--database", postgres.url()]).unwrap();
        Self { postgres, middleware, _folder: folder }
    }

    fn stop(self) {
        self.middleware.stop();
        self.postgres.stop();
    }
}

fn start_postgres(data: &Path) -> PrivatePostgres {
    PrivatePostgres::start(data)
        .expect("PostgreSQL's server programs are needed; `make packages-test` installs them")
}

/// Clients 1 and 2, and queue 1.
async fn set_up(middleware: &Middleware) {
    let target = format!("http://{}", middleware.address);
    let mut client = MessageQueueClient::connect(target).await.unwrap();
    for id in 1..=2 {
        let hello = HelloRequest { name: format!("client {id}") };
        assert_eq!(client.hello(hello).await.unwrap().into_inner().client_id, id);
    }
    let create = CreateQueueRequest { name: "queue".into(), ..Default::default() };
    assert_eq!(client.create_queue(create).await.unwrap().into_inner().queue_id, 1);
}

fn send(content: String) -> Call {
    Call::Send(SendRequest { client_id: 1, queue_id: 1, content, ..Default::default() })
}

fn receive(wait_ms: u64) -> Call {
    Call::Receive(ReceiveRequest { client_id: 2, queue_id: 1, wait_ms, ..Default::default() })
}

/// A shared stream, for tasks that call over it.
fn conversation(middleware: &Middleware) -> &'static Conversation {
    Box::leak(Box::new(Conversation::new(middleware.address)))
}

fn on_a_runtime(work: impl Future<Output = ()>) {
    // Two threads: calls are put on the stream while it is written and read.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work);
}

/// A call that is under way while the test goes on.
fn on_its_own<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::runtime::Handle::current().spawn(call)
}

/// What a task answers, in time.
async fn answered<T>(task: tokio::task::JoinHandle<T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), task).await.expect("an answer").unwrap()
}

#[test]
fn many_calls_on_one_stream_are_answered_each_by_itself() {
    let tier = Tier::start();
    on_a_runtime(async {
        set_up(&tier.middleware).await;
        let stream = conversation(&tier.middleware);
        // More than may be open: the rest wait for their turn.
        let mut tasks = JoinSet::new();
        for number in 0..OPEN_CALLS + 500 {
            tasks.spawn(async move {
                let sent = stream.call(send(number.to_string())).await.unwrap();
                assert!(matches!(sent, Answer::Send(_)), "{sent:?}");
                let taken = stream.call(receive(LONG_WAIT_MS)).await.unwrap();
                let Answer::Receive(taken) = taken else { panic!("{taken:?}") };
                taken.message.unwrap().content.parse::<usize>().unwrap()
            });
        }
        let mut taken = tasks.join_all().await;
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..OPEN_CALLS + 500), "each once");
        // One that is refused harms no other, also in the same message.
        let waiting = on_its_own(stream.call(receive(LONG_WAIT_MS)));
        let refused = stream.call(send("x".repeat(2001))).await.unwrap_err();
        let Refusal::Status { code: 3, text } = &refused else { panic!("{refused:?}") };
        assert!(text.contains("2000"), "{text}");
        stream.call(send("after all".into())).await.unwrap();
        assert!(answered(waiting).await.is_ok());
        let lease =
            LeaseRequest { client_id: 2, queue_id: 1, lease_ms: 60_000, ..Default::default() };
        stream.call(send("leased".into())).await.unwrap();
        let leased = stream.call(Call::Lease(lease)).await.unwrap();
        let Answer::Lease(leased) = leased else { panic!("{leased:?}") };
        let (message_id, lease_id) = (leased.message.unwrap().message_id, leased.lease_id);
        let acknowledge =
            AcknowledgeRequest { client_id: 2, message_id, lease_id, ..Default::default() };
        stream.call(Call::Acknowledge(acknowledge.clone())).await.unwrap();
        let again = stream.call(Call::Acknowledge(acknowledge)).await;
        assert!(matches!(again, Err(Refusal::Status { code: 9, .. })), "{again:?}");
    });
    tier.stop();
}

#[test]
fn a_broken_stream_fails_its_calls_and_the_next_call_opens_another() {
    let Tier { postgres, middleware, _folder } = Tier::start();
    let address = middleware.address;
    on_a_runtime(async {
        set_up(&middleware).await;
        let stream = conversation(&middleware);
        // A call of which the answer shows that the stream is open and read.
        stream.call(receive(0)).await.unwrap();
        let waiting = on_its_own(stream.call(receive(LONG_WAIT_MS)));
        stream.call(receive(0)).await.unwrap();
        stream.close();
        let end = answered(waiting).await.unwrap_err();
        assert!(matches!(end, Refusal::Broken(_)), "{end:?}");
        stream.call(receive(0)).await.unwrap();

        let waiting = on_its_own(stream.call(receive(LONG_WAIT_MS)));
        stream.call(receive(0)).await.unwrap();
        drop(middleware);
        let end = answered(waiting).await.unwrap_err();
        assert!(matches!(end, Refusal::Broken(_)), "{end:?}");
        let nobody = stream.call(receive(0)).await.unwrap_err();
        assert!(matches!(nobody, Refusal::Connect(_)), "{nobody:?}");

        let middleware = Middleware::start_on(address, &["--database", postgres.url()]).unwrap();
        stream.call(send("to the new one".into())).await.unwrap();
        let Answer::Receive(taken) = stream.call(receive(0)).await.unwrap() else { panic!() };
        assert_eq!(taken.message.unwrap().content, "to the new one");

        // Asked to stop, it says so.
        middleware.stop();
        let stopped = stream.call(receive(0)).await.unwrap_err();
        assert!(matches!(stopped, Refusal::Connect(_)), "{stopped:?}");
    });
    postgres.stop();
}

fn load(middleware: &Middleware, arguments: &[&str]) -> Output {
    crate::support::kendall()
        .args(["load", "queue", &middleware.address.to_string(), "--quiet", "--duration", "2s"])
        // Clients take the operations in turn, so that all are at the same one: long enough for each, also where
        // a disk takes a third of a second to flush. Far from what the generator can do: a busy one would
        // be rejected.
        .args(["--clients", "6", "--think-time", "20ms"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_load_over_streams_counts_what_one_of_single_calls_does() {
    let tier = Tier::start();
    for (calls, extra) in
        [("single", vec![]), ("stream", vec![]), ("stream", vec!["--threads", "2"])]
    {
        let mix = ["--calls", calls, "--mix", "send=2,receive=1,read=1,lease=1"];
        let output = load(&tier.middleware, &[&mix[..], &extra, &["--format", "json"]].concat());
        assert!(output.status.success(), "{output:?}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["calls"], calls);
        for name in ["send", "receive", "read", "lease", "acknowledge"] {
            let operation = &result["operations"][name];
            let [completed, sent] =
                ["completed", "sent"].map(|key| operation[key].as_u64().unwrap());
            // What is under way at the end is left.
            assert!(completed > 0 && sent - completed <= 6, "{calls} {name}: {result:#}");
            assert_eq!(operation["errors"], serde_json::json!({}), "{calls} {name}");
            let found = ["receive", "read", "lease"].contains(&name);
            assert_eq!(operation["hits"].as_u64().unwrap() > 0, found, "{calls} {name}");
            let bytes = ["bytes_out", "bytes_in"].map(|key| operation[key].as_u64().unwrap());
            assert!(bytes.iter().all(|bytes| *bytes > 0), "{calls} {name}: {bytes:?}");
        }
    }
    let output = load(&tier.middleware, &["--calls", "stream"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("calls: stream\n") && text.contains(" times none\n"), "{text}");
    assert!(text.contains("receive: ") && !text.contains("keys"), "{text}");
    tier.stop();
}

#[test]
fn a_load_of_which_no_send_is_taken_is_rejected_with_what_the_service_said() {
    let tier = Tier::start();
    for calls in ["single", "stream"] {
        for mix in ["send=1", "send=1,receive=1"] {
            let arguments = ["--calls", calls, "--mix", mix, "--message-size", "3000B"];
            let output = load(&tier.middleware, &arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(5), "{calls} {mix}: {said}");
            let why = said.lines().find(|line| line.starts_with("rejected: no send succeeded"));
            let why = why.unwrap_or_else(|| panic!("{calls} {mix}: {said}"));
            assert!(why.contains("2000") && why.contains("gRPC status 3"), "{why}");
        }
    }
    tier.stop();
}

#[test]
fn ways_to_call_that_cannot_be_are_refused() {
    for (arguments, said) in [
        (["--calls=streams", "--quiet"], "invalid value 'streams' for '--calls <HOW>'"),
        (["--calls=stream", "--connections=1"], "allow 2 or more"),
    ] {
        let output = crate::support::kendall()
            .args(["load", "queue", "127.0.0.1:9", "--clients", "1025"])
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(said), "{text}");
    }
}

const ADMIN: &str = "an-administrators-token-0123456789";

/// A certificate for `localhost`, its key, and a file of tokens.
fn secrets(folder: &Path) {
    certificate(folder, "server");
    let tokens = format!("a-clients-token-0123456789abcdef client one\n{ADMIN} admin\n");
    std::fs::write(folder.join("tokens"), tokens).unwrap();
}

#[test]
fn a_load_with_a_token_and_over_tls_counts_the_same_and_without_them_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    secrets(folder.path());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let postgres = start_postgres(&folder.path().join("queue"));
    let (tokens, certificate, key) = (file("tokens"), file("server.pem"), file("server.key"));
    let middleware = Middleware::start(&[
        "--database",
        postgres.url(),
        "--tokens",
        &tokens,
        "--tls-certificate",
        &certificate,
        "--tls-key",
        &key,
    ])
    .unwrap();
    let trusted = ["--tls-name", "localhost", "--tls-root", &certificate];
    for calls in ["single", "stream"] {
        for token in [["--token", ADMIN], ["--token-file", &tokens]] {
            let arguments =
                [&trusted[..], &token, &["--calls", calls, "--format", "json"]].concat();
            let output = load(&middleware, &arguments);
            assert!(output.status.success(), "{output:?}");
            let result: Value = serde_json::from_slice(&output.stdout).unwrap();
            for name in ["send", "receive"] {
                let operation = &result["operations"][name];
                assert!(
                    operation["completed"].as_u64().unwrap() > 0,
                    "{calls} {name}: {operation}"
                );
                assert_eq!(operation["errors"], serde_json::json!({}), "{calls} {name}");
            }
            assert!(!String::from_utf8_lossy(&output.stdout).contains(ADMIN));
        }
        // Who may not, or is not who it is taken for.
        let other = ["--tls-name", "example.org", "--tls-root", &certificate];
        for (way, token) in [
            (&trusted[..], "not-the-right-token-0123456789"),
            (&trusted[..], "a-clients-token-0123456789abcdef"),
            (&other[..], ADMIN),
            (&[], ADMIN),
        ] {
            let arguments = [way, &["--token", token, "--calls", calls]].concat();
            let output = load(&middleware, &arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{way:?} {token}: {said}");
            assert!(!said.contains(token), "{said}");
        }
    }
    for wrong in
        [["--token-file", "/nowhere"], ["--token-file", &certificate], ["--token", "a\u{e9}\n"]]
    {
        let output = load(&middleware, &wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {output:?}");
    }
    middleware.stop();
    postgres.stop();
}

#[test]
fn a_study_measures_a_queue_with_tokens_and_tls() {
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    secrets(folder.path());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let study = format!(
        "name = \"secured\"\n[system]\nkind = \"message-queue\"\ntokens = {:?}\ntls_certificate = {:?}\n\
         tls_key = {:?}\n[workload]\nclients = 4\nthink_time = \"20ms\"\ntoken_file = {0:?}\n\
         tls_name = \"localhost\"\ntls_root = {1:?}\n[measure]\nduration = \"1s\"\nwarm_up = \"0s\"\n\
         cool_down = \"0s\"\nrepetitions = 1\n[factors]\n\"workload.calls\" = [\"single\", \"stream\"]\n",
        file("tokens"),
        file("server.pem"),
        file("server.key"),
    );
    let path = folder.path().join("study.toml");
    std::fs::write(&path, &study).unwrap();
    let output = crate::support::kendall()
        .args(["run", "--no-report", "--out"])
        .arg(folder.path().join("results"))
        .arg(&path)
        .output()
        .unwrap();
    assert!(matches!(output.status.code(), Some(0 | 5)), "{output:?}");
    let results = kendall_store::Results::open(&folder.path().join("results")).unwrap();
    let runs = results.runs().unwrap();
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|run| run.status != kendall_store::Status::Failed), "{output:?}");
    for (cut, says) in [
        (format!("tls_key = {:?}\n", file("server.key")), "go together"),
        ("tls_name = \"localhost\"\n".to_owned(), "has no effect without `tls_name`"),
    ] {
        std::fs::write(&path, study.replace(&cut, "")).unwrap();
        let output = crate::support::kendall().arg("run").arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{said}");
    }
}
