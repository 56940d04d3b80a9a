//! What the message queue promises, checked on the history of many clients over several
//! middlewares, while clients, middlewares and PostgreSQL are killed: no message is lost, none is
//! delivered twice, receivers are respected, nobody gets its own.
//!
//! Clients write down what they asked and what they were answered. A client that got no answer
//! asks again with the same request id until it gets one, as the protocol offers; then every
//! message that was sent must be found exactly once: received by somebody, or still waiting.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kendall_message_queue::PrivatePostgres;
use kendall_message_queue::wire::message_queue_client::MessageQueueClient;
use kendall_protocols::queue::{
    AcknowledgeRequest, CreateQueueRequest, HelloRequest, LeaseRequest, Message, ReceiveRequest,
    SendRequest,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::sync::Mutex;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const SEED: u64 = 20_261_121;
const CLIENTS: u64 = 12;
const OPERATIONS: u64 = 120;
const QUEUES: u64 = 2;
/// A lone operation takes milliseconds; a restart of PostgreSQL, seconds.
const CALL: Duration = Duration::from_secs(20);

/// A middleware as a process, killed when dropped.
struct Middleware {
    process: Child,
    address: SocketAddr,
}

impl Middleware {
    fn start(database: &str, listen: SocketAddr) -> Option<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_kendall"))
            .args([
                "serve",
                "queue",
                "--workers",
                "3",
                "--connections",
                "2",
                "--database",
                database,
            ])
            .args(["--database-timeout", "2s", "--listen"])
            .arg(listen.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        while let Some(line) = said.next() {
            if let Some(at) = line.find("listen=").filter(|_| line.starts_with("ready ")) {
                let address = line[at + 7..].split(' ').next().unwrap().parse().unwrap();
                // What it says later is shown when the test fails.
                std::thread::spawn(move || said.for_each(|line| println!("{listen}: {line}")));
                return Some(Self { process, address });
            }
        }
        // PostgreSQL was away: the caller tries again.
        process.wait().unwrap();
        None
    }

    fn until_started(database: &str, listen: SocketAddr) -> Self {
        loop {
            if let Some(started) = Self::start(database, listen) {
                return started;
            }
        }
    }
}

impl Drop for Middleware {
    fn drop(&mut self) {
        self.process.kill().unwrap_or_default();
        self.process.wait().unwrap();
    }
}

/// What one client saw.
#[derive(Default)]
struct History {
    client: u64,
    sent: Vec<(String, Option<u64>)>,
    received: Vec<Message>,
}

struct Actor {
    history: History,
    addresses: Vec<SocketAddr>,
    rng: Xoshiro256PlusPlus,
    connected: Option<MessageQueueClient<Channel>>,
}

impl Actor {
    /// A connection to one of the middlewares; a new one after each failure.
    async fn client(&mut self) -> MessageQueueClient<Channel> {
        loop {
            if let Some(client) = &self.connected {
                return client.clone();
            }
            let address = self.addresses[self.rng.random_range(0..self.addresses.len())];
            let endpoint = Endpoint::from_shared(format!("http://{address}"))
                .unwrap()
                .connect_timeout(Duration::from_secs(1))
                .timeout(CALL);
            self.connected = endpoint.connect().await.ok().map(MessageQueueClient::new);
            if self.connected.is_none() {
                tokio::time::interval(Duration::from_millis(20)).tick().await;
            }
        }
    }

    /// Asks until there is an answer.
    async fn insist<T>(
        &mut self,
        mut ask: impl AsyncFnMut(MessageQueueClient<Channel>) -> Result<tonic::Response<T>, Status>,
    ) -> T {
        loop {
            let client = self.client().await;
            // Now and then the client is "killed": the call is dropped wherever it is, and made
            // again by its successor.
            let cut = self.rng.random_range(0..10) == 0;
            let patience =
                if cut { Duration::from_micros(self.rng.random_range(0..3000)) } else { CALL };
            match tokio::time::timeout(patience, ask(client)).await {
                Ok(Ok(response)) => return response.into_inner(),
                Ok(Err(status)) => {
                    let unknown = [
                        Code::Unavailable,
                        Code::DeadlineExceeded,
                        Code::Cancelled,
                        Code::Unknown,
                        Code::Aborted,
                    ];
                    assert!(unknown.contains(&status.code()), "{status}");
                    self.connected = None;
                }
                Err(_) => self.connected = None,
            }
        }
    }

    fn request_id(&mut self) -> Vec<u8> {
        self.rng.random::<[u8; 16]>().to_vec()
    }

    async fn send(&mut self, number: u64) {
        let receiver_id = match self.rng.random_range(0..3) {
            0 => (self.history.client + 1..=CLIENTS).next().unwrap_or_default(),
            _ => 0,
        };
        let request = SendRequest {
            client_id: self.history.client,
            queue_id: self.rng.random_range(1..=QUEUES),
            receiver_id,
            content: format!("{} {number}", self.history.client),
            request_id: self.request_id(),
            ..Default::default()
        };
        let content = request.content.clone();
        let receiver = (receiver_id != 0).then_some(receiver_id);
        self.insist(async |mut client| client.send(request.clone()).await).await;
        self.history.sent.push((content, receiver));
    }

    async fn receive(&mut self) {
        let request = ReceiveRequest {
            client_id: self.history.client,
            queue_id: self.rng.random_range(1..=QUEUES),
            wait_ms: self.rng.random_range(0..20),
            request_id: self.request_id(),
            ..Default::default()
        };
        let response = self.insist(async |mut client| client.receive(request.clone()).await).await;
        self.history.received.extend(response.message);
    }
}

#[test]
fn no_message_is_lost_or_delivered_twice_while_everything_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    open_to_all(folder.path());
    let data = folder.path().join("queue");
    let mut postgres = start_postgres(&data);
    let database = postgres.url().to_owned();
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let mut middlewares: Vec<Middleware> =
        (0..2).map(|_| Middleware::until_started(&database, any)).collect();
    let addresses: Vec<SocketAddr> = middlewares.iter().map(|m| m.address).collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(set_up(addresses[0]));

    let histories = Arc::new(Mutex::new(Vec::new()));
    let done = Arc::new(AtomicBool::new(false));
    let running = {
        let acting = act(addresses.clone(), Arc::clone(&histories), Arc::clone(&done));
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, acting);
        })
    };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut kills = [0_u32; 2];
    while !done.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(rng.random_range(50..400)));
        if rng.random_range(0..4) == 0 {
            kill_postgres(&postgres);
            drop(postgres);
            postgres = start_postgres(&data);
            kills[1] += 1;
        } else {
            let victim = rng.random_range(0..middlewares.len());
            let address = middlewares[victim].address;
            middlewares.remove(victim);
            middlewares.insert(victim, Middleware::until_started(&database, address));
            kills[0] += 1;
        }
    }
    running.join().unwrap();
    let left = runtime.block_on(drain(addresses[0]));
    let histories = Arc::try_unwrap(histories).ok().unwrap().into_inner();
    check(&histories, &left);
    assert!(kills[0] > 0, "the clients were done before anything was killed");
    println!("killed {} middlewares and {} PostgreSQLs; seed {SEED}", kills[0], kills[1]);
    drop(middlewares);
    postgres.stop();
}

/// A lease that runs out comes back; one that is acknowledged does not, and only once.
async fn act(
    addresses: Vec<SocketAddr>,
    histories: Arc<Mutex<Vec<History>>>,
    done: Arc<AtomicBool>,
) {
    let mut actors = tokio::task::JoinSet::new();
    for client in 1..=CLIENTS {
        let mut actor = Actor {
            history: History { client, ..History::default() },
            addresses: addresses.clone(),
            rng: Xoshiro256PlusPlus::seed_from_u64(SEED + client),
            connected: None,
        };
        let histories = Arc::clone(&histories);
        actors.spawn_local(async move {
            for number in 0..OPERATIONS {
                if actor.rng.random_range(0..2) == 0 {
                    actor.send(number).await;
                } else {
                    actor.receive().await;
                }
            }
            histories.lock().await.push(actor.history);
        });
    }
    while let Some(actor) = actors.join_next().await {
        if let Err(panic) = actor {
            done.store(true, Ordering::SeqCst);
            std::panic::resume_unwind(panic.into_panic());
        }
    }
    done.store(true, Ordering::SeqCst);
}

/// Clients 1 to CLIENTS, one more that drains, and the queues.
async fn set_up(address: SocketAddr) {
    let mut client = MessageQueueClient::connect(format!("http://{address}")).await.unwrap();
    for number in 1..=CLIENTS + 1 {
        let request = HelloRequest { name: format!("client {number}") };
        assert_eq!(client.hello(request).await.unwrap().into_inner().client_id, number);
    }
    for number in 1..=QUEUES {
        let request = CreateQueueRequest { name: format!("queue {number}"), ..Default::default() };
        assert_eq!(client.create_queue(request).await.unwrap().into_inner().queue_id, number);
    }
}

/// What still waits, taken by lease and acknowledgement by those who may.
async fn drain(address: SocketAddr) -> Vec<Message> {
    let mut client = MessageQueueClient::connect(format!("http://{address}")).await.unwrap();
    let mut left = Vec::new();
    for client_id in 1..=CLIENTS + 1 {
        for queue_id in 1..=QUEUES {
            let lease =
                LeaseRequest { client_id, queue_id, lease_ms: 600_000, ..Default::default() };
            loop {
                let held = client.lease(lease).await.unwrap().into_inner();
                let Some(message) = held.message else { break };
                let message_id = message.message_id;
                let lease_id = held.lease_id;
                let acknowledge = AcknowledgeRequest { client_id, message_id, lease_id };
                client.acknowledge(acknowledge).await.unwrap();
                let twice = client.acknowledge(acknowledge).await.unwrap_err();
                assert_eq!(twice.code(), Code::FailedPrecondition);
                left.push(message);
            }
        }
    }
    left
}

fn check(histories: &[History], left: &[Message]) {
    let sent: BTreeMap<&str, Option<u64>> = histories
        .iter()
        .flat_map(|history| &history.sent)
        .map(|(content, receiver)| (content.as_str(), *receiver))
        .collect();
    let mut found = BTreeSet::new();
    for history in histories {
        for message in &history.received {
            assert_ne!(message.sender_id, history.client, "its own: {message:?}");
            let receiver = sent.get(message.content.as_str());
            let receiver = receiver.unwrap_or_else(|| panic!("never sent: {message:?}"));
            assert!(receiver.is_none_or(|r| r == history.client), "for another: {message:?}");
            assert!(found.insert(message.content.as_str()), "twice: {message:?}");
        }
    }
    for message in left {
        assert!(sent.contains_key(message.content.as_str()), "never sent: {message:?}");
        assert!(found.insert(message.content.as_str()), "received and still there: {message:?}");
    }
    let lost: Vec<&&str> = sent.keys().filter(|content| !found.contains(**content)).collect();
    assert!(lost.is_empty(), "{} of {} lost: {lost:?}", lost.len(), sent.len());
}

fn start_postgres(data: &Path) -> PrivatePostgres {
    PrivatePostgres::start(data)
        .expect("PostgreSQL's server programs are needed; `make packages-test` installs them")
}

/// SIGKILL to the server and all its children: a crash, after which it replays its log.
fn kill_postgres(postgres: &PrivatePostgres) {
    let server = postgres.pid();
    let children = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    let children = children.unwrap_or_default();
    for pid in std::iter::once(server.to_string()).chain(children.split(' ').map(String::from)) {
        if let Some(pid) = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap_or_default();
        }
    }
}

fn open_to_all(folder: &Path) {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder, open).unwrap();
}
