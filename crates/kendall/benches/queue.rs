//! `make bench-queue`: the message queue against the yardstick (one row inserted and one row
//! deleted with SKIP LOCKED, a transaction each, prepared, by pgbench), on the same durable
//! PostgreSQL, in interleaved rounds. Prints messages per second, CPU time per message of
//! PostgreSQL and of the middleware, and ratios.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints figures")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kendall_loadgen::queue::{Calls, Conversation};
use kendall_message_queue::PrivatePostgres;
use kendall_message_queue::wire::message_queue_client::MessageQueueClient;
use kendall_protocols::queue::call::Operation as Call;
use kendall_protocols::queue::reply::Answer;
use kendall_protocols::queue::{
    CreateQueueRequest, HelloRequest, ReceiveBatchRequest, ReceiveRequest, SendBatchRequest,
    SendRequest,
};
use kendall_protocols::snapshot::{TierSnapshot, stage};
use kendall_stats::histogram::Histogram;
use kendall_tier::Clock;
use kendall_units::{Seconds, exact_f64};
use tonic::transport::{Channel, Endpoint};

const CLIENTS: u64 = 64;
const CONTENT: usize = 200;
const SECONDS: u64 = 5;
const ROUNDS: usize = 5;
const WAITING: u64 = 1_000_000;
/// Messages that are sent and received before the round after churn.
const CHURN: u64 = 300_000;
/// Connections that all clients share.
const CHANNELS: u64 = 2;

/// What was best when the defaults were others.
const BEFORE: &[&str] = &["--workers", "2", "--connections", "3", "--threads", "1"];

/// What one round runs.
#[derive(Debug, Clone, Copy)]
struct Setting {
    clients: u64,
    calls: Calls,
    /// Arguments of the middleware beside its defaults.
    flags: &'static [&'static str],
}

impl Default for Setting {
    fn default() -> Self {
        Self { clients: CLIENTS, calls: Calls::Stream, flags: &[] }
    }
}

/// What one round measured.
#[derive(Debug, Clone, Copy)]
struct Round {
    messages_per_s: f64,
    postgres_us: f64,
    middleware_us: f64,
    load_us: f64,
    response_ms: f64,
    memory_mib: f64,
}

struct Bench {
    postgres: PrivatePostgres,
    runtime: tokio::runtime::Runtime,
    clock: Clock,
}

fn main() {
    // `cargo test --benches` asks every bench for its list of tests.
    if std::env::args().any(|argument| argument == "--list" || argument == "--test") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let postgres = PrivatePostgres::start(&folder.path().join("queue")).unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let bench = Bench { postgres, runtime, clock: Clock::monotonic() };
    bench.yardstick_table();
    println!("{CLIENTS} clients, {CONTENT}-byte messages, {SECONDS} s a round, {ROUNDS} rounds");
    println!("a message is one send and one receive; CPU time in µs per message\n");
    let (mut yard, mut queue, mut one_worker, mut single) = (vec![], vec![], vec![], vec![]);
    let mut before = vec![];
    let (mut lone, mut lone_unbatched) = (vec![], vec![]);
    let plain = Setting::default();
    for _ in 0..ROUNDS {
        yard.push(bench.yardstick(CLIENTS));
        queue.push(bench.queue(plain));
        before.push(bench.queue(Setting { flags: BEFORE, ..plain }));
        one_worker.push(bench.queue(Setting { flags: &["--workers", "1"], ..plain }));
        single.push(bench.queue(Setting { calls: Calls::Single, ..plain }));
        lone.push(bench.queue(Setting { clients: 1, ..plain }));
        let flags: &[&str] = &["--batch", "1"];
        lone_unbatched.push(bench.queue(Setting { clients: 1, flags, ..plain }));
    }
    print("yardstick, 64 clients", &yard, &yard);
    print("queue, 64 clients", &queue, &yard);
    print("queue, 64, two workers", &before, &yard);
    print("queue, 64, one worker", &one_worker, &yard);
    print("queue, 64, a call each", &single, &yard);
    print("queue, 1 client", &lone, &yard);
    print("queue, 1 client, --batch 1", &lone_unbatched, &yard);
    let [queue, lone, lone_unbatched] = [&queue, &lone, &lone_unbatched].map(|one| median(one));
    println!(
        "\nlone client, response with batching / without: {:.3}",
        lone.response_ms / lone_unbatched.response_ms
    );
    bench.churn();
    let churned = bench.queue(plain);
    print("queue, after churn", &[churned], &yard);
    println!(
        "\nmessages/s after {CHURN} messages went through / before: {:.2}",
        churned.messages_per_s / queue.messages_per_s
    );
    bench.fill();
    let mut full = Vec::new();
    for _ in 0..ROUNDS {
        full.push(bench.queue(plain));
    }
    print("queue, 1,000,000 waiting", &full, &yard);
    let full = median(&full);
    println!(
        "\nmessages/s with 1,000,000 waiting / with none: {:.2}",
        full.messages_per_s / queue.messages_per_s
    );
    bench.stages(plain);
    let many = bench.queue(Setting { clients: 600, ..plain });
    print("queue, 600 clients", &[many], &yard);
    println!("memory of the middleware at 600 clients: {:.0} MiB", many.memory_mib);
    bench.postgres.stop();
}

/// Medians over rounds, and the ratios to the yardstick in the same rounds.
fn print(name: &str, rounds: &[Round], yard: &[Round]) {
    let round = median(rounds);
    println!(
        "{name:<28} {:>9.0} messages/s {:>18}  PostgreSQL {:>6.1} µs {:>18}  middleware {:>6.1} µs  load {:>6.1} µs  response {:>7.3} ms",
        round.messages_per_s,
        ratio(rounds, yard, |round| round.messages_per_s),
        round.postgres_us,
        ratio(rounds, yard, |round| round.postgres_us),
        round.middleware_us,
        round.load_us,
        round.response_ms,
    );
}

/// The median ratio, and the lowest and highest: of five rounds, these hold the true median with 94 %.
fn ratio(rounds: &[Round], yard: &[Round], of: fn(&Round) -> f64) -> String {
    let mut ratios: Vec<f64> = rounds.iter().zip(yard).map(|(a, b)| of(a) / of(b)).collect();
    ratios.sort_by(f64::total_cmp);
    let [low, middle, high] = [0, ratios.len() / 2, ratios.len() - 1].map(|at| ratios[at]);
    format!("{middle:.2} ({low:.2}–{high:.2})")
}

fn median(rounds: &[Round]) -> Round {
    let of = |field: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(field).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Round {
        messages_per_s: of(|r| r.messages_per_s),
        postgres_us: of(|r| r.postgres_us),
        middleware_us: of(|r| r.middleware_us),
        load_us: of(|r| r.load_us),
        response_ms: of(|r| r.response_ms),
        memory_mib: of(|r| r.memory_mib),
    }
}

impl Bench {
    fn psql(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for part in self.postgres.url().split(' ') {
            let (key, value) = part.split_once('=').unwrap();
            let value = value.trim_matches('\'');
            let name = if key == "dbname" {
                "PGDATABASE".into()
            } else {
                format!("PG{}", key.to_uppercase())
            };
            command.env(name, value);
        }
        command
    }

    fn yardstick_table(&self) {
        let text = "CREATE SCHEMA yardstick; CREATE TABLE yardstick.message \
            (id bigserial PRIMARY KEY, content text NOT NULL) WITH (\
            autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, \
            autovacuum_vacuum_cost_delay = 0)";
        assert!(self.psql("psql").args(["-q", "-c", text]).status().unwrap().success());
    }

    fn yardstick(&self, clients: u64) -> Round {
        let script = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "INSERT INTO yardstick.message (content) VALUES (repeat('x', {CONTENT}));\n\
             DELETE FROM yardstick.message WHERE id = (SELECT id FROM yardstick.message ORDER BY id \
             FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING content;\n"
        );
        std::fs::write(script.path(), text).unwrap();
        let before = cpu_of_tree(self.postgres.pid());
        let output = self
            .psql("pgbench")
            .args(["-n", "-M", "prepared", "-j", "2", "-c", &clients.to_string()])
            .args(["-T", &SECONDS.to_string(), "-f"])
            .arg(script.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let number = |name: &str| -> f64 {
            let line = text
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
            let digits: String = line
                .chars()
                .skip_while(|c| !c.is_ascii_digit())
                .take_while(|c| c.is_ascii_digit() || *c == '.')
                .collect();
            digits.parse().unwrap()
        };
        let messages = number("number of transactions actually processed");
        let cpu_s = cpu_of_tree(self.postgres.pid()) - before;
        Round {
            messages_per_s: number("tps"),
            postgres_us: cpu_s * 1e6 / messages,
            middleware_us: 0.0,
            load_us: 0.0,
            response_ms: number("latency average"),
            memory_mib: 0.0,
        }
    }

    fn queue(&self, setting: Setting) -> Round {
        let middleware = Middleware::start(self.postgres.url(), setting);
        let load_before = cpu_of(std::process::id());
        let postgres_before = cpu_of_tree(self.postgres.pid());
        let middleware_before = cpu_of(middleware.process.id());
        let start_ns = self.clock.now_ns();
        let (messages, times) =
            self.runtime.block_on(load(middleware.address, setting, &self.clock));
        let seconds = Seconds::from_nanos(self.clock.now_ns() - start_ns).get();
        let postgres_s = cpu_of_tree(self.postgres.pid()) - postgres_before;
        let middleware_s = cpu_of(middleware.process.id()) - middleware_before;
        let load_s = cpu_of(std::process::id()) - load_before;
        let messages = exact_f64(messages);
        Round {
            messages_per_s: messages / seconds,
            postgres_us: postgres_s * 1e6 / messages,
            middleware_us: middleware_s * 1e6 / messages,
            load_us: load_s * 1e6 / messages,
            response_ms: times.mean().unwrap_or(0.0) / 1e6,
            memory_mib: memory_mib(middleware.process.id()),
        }
    }

    /// Where an operation's time goes: what the middleware says of its stages, and what is left of the
    /// client's response time. Clients that never think obey N = X·R.
    fn stages(&self, setting: Setting) {
        let middleware = Middleware::start(self.postgres.url(), setting);
        let start_ns = self.clock.now_ns();
        let (messages, times) =
            self.runtime.block_on(load(middleware.address, setting, &self.clock));
        let seconds = Seconds::from_nanos(self.clock.now_ns() - start_ns).get();
        let page = kendall_testing::page(middleware.metrics, "/snapshot").unwrap();
        let snapshot: TierSnapshot = serde_json::from_str(&page.body).unwrap();
        println!("\nstages of an operation at {} clients, means in ms", setting.clients);
        println!("| operation | waits | served | of that PostgreSQL | in the middleware |");
        println!("| --- | ---: | ---: | ---: | ---: |");
        for (name, request) in &snapshot.requests {
            let mean = |stage: &str| {
                let encoded = request.stages.get(stage).map(|stage| stage.0.as_str());
                let histogram = encoded.and_then(|text| Histogram::decode(text).ok());
                histogram.and_then(|histogram| histogram.mean()).unwrap_or(0.0) / 1e6
            };
            if request.completions > 1000 {
                let [waits, served, backend, response] = [
                    stage::WAITING_TIME,
                    stage::SERVICE_TIME,
                    stage::BACKEND_TIME,
                    stage::RESPONSE_TIME,
                ]
                .map(mean);
                println!("| {name} | {waits:.3} | {served:.3} | {backend:.3} | {response:.3} |");
            }
        }
        let response_ms = times.mean().unwrap_or(0.0) / 1e6;
        let operations = 2.0 * exact_f64(messages) / seconds;
        println!("response time of the client: {response_ms:.3} ms");
        println!("operations/s × response time: {:.1}", operations * response_ms / 1e3);
    }

    /// Messages that come and go, in batches of the protocol.
    fn churn(&self) {
        let middleware = Middleware::start(self.postgres.url(), Setting::default());
        self.runtime.block_on(async {
            let mut client = connect(middleware.address).await;
            let (me, queue) = enter(&mut client, "churner").await;
            let (taker, _) = enter(&mut client, "churned").await;
            let content = "x".repeat(CONTENT);
            let message =
                SendRequest { client_id: me, queue_id: queue, content, ..Default::default() };
            let receive = ReceiveBatchRequest {
                client_id: taker,
                queue_id: queue,
                limit: 1000,
                ..Default::default()
            };
            for _ in 0..CHURN / 1000 {
                let batch = SendBatchRequest { messages: vec![message.clone(); 1000] };
                client.send_batch(batch).await.unwrap();
                client.receive_batch(receive.clone()).await.unwrap();
            }
        });
    }

    /// A million messages that no client takes: addressed to a client that does not ask.
    fn fill(&self) {
        let middleware = Middleware::start(self.postgres.url(), Setting::default());
        self.runtime.block_on(async {
            let mut client = connect(middleware.address).await;
            let (me, queue) = enter(&mut client, "filler").await;
            let absent = HelloRequest { name: "absent".into() };
            let receiver_id = client.hello(absent).await.unwrap().into_inner().client_id;
            let message = SendRequest {
                client_id: me,
                queue_id: queue,
                receiver_id,
                content: "x".repeat(CONTENT),
                ..Default::default()
            };
            for _ in 0..WAITING / 1000 {
                let batch = SendBatchRequest { messages: vec![message.clone(); 1000] };
                client.send_batch(batch).await.unwrap();
            }
        });
    }
}

/// Every client sends a message and receives one, again and again.
async fn load(address: SocketAddr, setting: Setting, clock: &Clock) -> (u64, Histogram) {
    let Setting { clients, calls, .. } = setting;
    let done = Arc::new(AtomicBool::new(false));
    let messages = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    let mut channels = Vec::new();
    for _ in 0..clients.min(CHANNELS) {
        let client = connect(address).await;
        channels.push((client, Arc::new(Conversation::new(address))));
    }
    for number in 0..clients {
        let place = usize::try_from(number).unwrap() % channels.len();
        let (mut client, stream) = channels[place].clone();
        let (done, messages, clock) = (Arc::clone(&done), Arc::clone(&messages), clock.clone());
        tasks.spawn(async move {
            // A client may not take its own messages, so that a lone one would find none: each sends
            // under one name and takes under another.
            let (client_id, queue_id) = enter(&mut client, &format!("client {number}")).await;
            let (taker, _) = enter(&mut client, &format!("taker {number}")).await;
            let mut times = Histogram::new();
            let send = SendRequest {
                client_id,
                queue_id,
                content: "x".repeat(CONTENT),
                ..Default::default()
            };
            let receive = ReceiveRequest { client_id: taker, queue_id, ..Default::default() };
            while !done.load(Ordering::Relaxed) {
                let started = clock.now_ns();
                match calls {
                    Calls::Single => drop(client.send(send.clone()).await.unwrap()),
                    Calls::Stream => drop(stream.call(Call::Send(send.clone())).await.unwrap()),
                }
                times.record(clock.now_ns() - started);
                let started = clock.now_ns();
                let taken = match calls {
                    Calls::Single => client.receive(receive.clone()).await.unwrap().into_inner(),
                    Calls::Stream => {
                        match stream.call(Call::Receive(receive.clone())).await.unwrap() {
                            Answer::Receive(answer) => answer,
                            other => panic!("{other:?}"),
                        }
                    }
                };
                times.record(clock.now_ns() - started);
                if taken.message.is_some() {
                    messages.fetch_add(1, Ordering::Relaxed);
                }
            }
            times
        });
    }
    tokio::time::interval_at(
        tokio::time::Instant::now() + Duration::from_secs(SECONDS),
        Duration::from_secs(SECONDS),
    )
    .tick()
    .await;
    done.store(true, Ordering::Relaxed);
    let mut all = Histogram::new();
    while let Some(times) = tasks.join_next().await {
        all.add(&times.unwrap());
    }
    (messages.load(Ordering::Relaxed), all)
}

async fn connect(address: SocketAddr) -> MessageQueueClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap().tcp_nodelay(true);
    MessageQueueClient::new(endpoint.connect().await.unwrap())
}

async fn enter(client: &mut MessageQueueClient<Channel>, name: &str) -> (u64, u64) {
    let hello = HelloRequest { name: name.into() };
    let id = client.hello(hello).await.unwrap().into_inner().client_id;
    let create = CreateQueueRequest { name: "bench".into(), ..Default::default() };
    // The first client creates it; it is the only queue.
    drop(client.create_queue(create).await);
    (id, 1)
}

struct Middleware {
    process: Child,
    address: SocketAddr,
    metrics: SocketAddr,
}

impl Middleware {
    fn start(database: &str, setting: Setting) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_kendall"))
            .args(["serve", "queue", "--listen", "127.0.0.1:0", "--database", database])
            .args(["--metrics", "127.0.0.1:0"])
            .args(setting.flags)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stderr.take().unwrap());
        for line in said.lines().map_while(Result::ok) {
            if line.starts_with("ready ") {
                let ready = kendall_testing::Ready(line);
                let (address, metrics) = (ready.address("listen"), ready.address("metrics"));
                return Self { process, address, metrics };
            }
        }
        panic!("the middleware did not start: {}", process.wait().unwrap());
    }
}

impl Drop for Middleware {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// User and system time of a process, with what its ended children left, in seconds.
fn cpu_of(pid: u32) -> f64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0.0 };
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = after_name
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    ticks / 100.0
}

fn cpu_of_tree(pid: u32) -> f64 {
    let children = Path::new("/proc").join(format!("{pid}/task/{pid}/children"));
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let below: f64 = children.split_whitespace().filter_map(|c| c.parse().ok()).map(cpu_of).sum();
    cpu_of(pid) + below
}

fn memory_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
}
