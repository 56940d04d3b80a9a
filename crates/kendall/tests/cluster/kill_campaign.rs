//! Cache, scheduler and workers are killed and frozen, and clients cut off, at random moments while a
//! checker holds what was answered against what was promised: every action that is asked for ends, its
//! outputs are its own, and what was answered is in the cache from then on. `make kill` runs the
//! campaign; `KENDALL_KILLS_CLUSTER` says how often, the other variables are those of
//! `tests/studies/kill_campaign.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, waits with deadlines of its own, and tells what it did"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::execution_support::{Client, Cluster, Process, answer, cache, scheduler};
use kendall_build_cluster::digest::{Digest, Function};
use kendall_build_cluster::wire::{longrunning as lro, re};
use prost::Message as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Pid, Signal, kill_process};

const CLIENTS: u32 = 4;
/// How long an action may take to its end, whatever is killed meanwhile.
const DEADLINE: Duration = Duration::from_secs(180);

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// An action of its own for each number, and what its output must be.
struct Task {
    blobs: Vec<(Digest, Vec<u8>)>,
    action: Digest,
    output: Vec<u8>,
}

impl Task {
    fn new(number: u32) -> Self {
        let length = if number.is_multiple_of(7) { 300_000 } else { 10 };
        let script = format!(
            "sleep 0.{:02}; printf 'task-{number}-' > out; \
             head -c {length} /dev/zero | tr '\\0' x >> out",
            number % 23
        );
        let words = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
        let command = re::Command {
            arguments: words,
            output_paths: vec!["out".into()],
            ..Default::default()
        };
        let of = |bytes: &[u8]| Function::Sha256.digest(bytes);
        let command = command.encode_to_vec();
        let action = re::Action {
            command_digest: Some(of(&command).to_wire()),
            input_root_digest: Some(of(&[]).to_wire()),
            ..Default::default()
        };
        let action = action.encode_to_vec();
        let output = [format!("task-{number}-").into_bytes(), vec![b'x'; length]].concat();
        let digest = of(&action);
        let blobs = vec![(of(&command), command), (of(&[]), Vec::new()), (digest, action)];
        Self { blobs, action: digest, output }
    }

    /// Whether a result is this task's.
    fn holds(&self, number: u32, result: &re::ActionResult) -> Result<(), String> {
        let wanted = Function::Sha256.digest(&self.output).to_wire();
        match result.output_files.as_slice() {
            [file] if result.exit_code == 0 && file.digest.as_ref() == Some(&wanted) => Ok(()),
            _ => Err(format!("task {number} has another's result, or none: {result:?}")),
        }
    }
}

/// What the clients share.
#[derive(Default)]
struct Shared {
    enough: AtomicBool,
    /// Actions whose result was answered.
    answered: Mutex<BTreeMap<u32, Digest>>,
    /// Calls that ended without an answer.
    broken: AtomicU64,
    /// Streams that a client left, to come back with `WaitExecution`.
    left: AtomicU64,
    /// What is wrong.
    wrong: Mutex<Vec<String>>,
}

/// Reads a stream of an execution to its answer; leaves it early when `leave`, with its name.
async fn follow(
    stream: &mut tonic::Streaming<lro::Operation>,
    leave: bool,
) -> Result<Result<re::ExecuteResponse, String>, tonic::Status> {
    while let Some(operation) = stream.message().await? {
        if let Some(answer) = answer(&operation) {
            if let Some(again) = stream.message().await? {
                return Err(tonic::Status::data_loss(format!("a second answer: {again:?}")));
            }
            return Ok(Ok(answer));
        }
        if leave {
            return Ok(Err(operation.name));
        }
    }
    Err(tonic::Status::unavailable("the stream ended early"))
}

async fn execute(
    client: &Client,
    task: &Task,
    leave: bool,
) -> Result<Result<re::ExecuteResponse, String>, tonic::Status> {
    let request = re::ExecuteRequest {
        action_digest: Some(task.action.to_wire()),
        ..re::ExecuteRequest::default()
    };
    let mut stream = client.execution.clone().execute(request).await?.into_inner();
    follow(&mut stream, leave).await
}

async fn come_back(client: &Client, name: String) -> Result<re::ExecuteResponse, tonic::Status> {
    let request = re::WaitExecutionRequest { name };
    let mut stream = client.execution.clone().wait_execution(request).await?.into_inner();
    let answer = follow(&mut stream, false).await?;
    answer.map_err(tonic::Status::unavailable)
}

/// Asks until there is an answer, as a build tool does.
async fn run(client: &Client, shared: &Shared, number: u32, leave: bool) -> Result<(), String> {
    let task = Task::new(number);
    let end = Instant::now() + DEADLINE;
    let mut last = String::new();
    while Instant::now() < end {
        if let Err(error) = client.remote.write("", &task.blobs).await {
            last = error.to_string();
            continue;
        }
        let answered = match execute(client, &task, leave).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(name)) => {
                shared.left.fetch_add(1, Ordering::Relaxed);
                come_back(client, name).await
            }
            Err(status) => Err(status),
        };
        match answered {
            Ok(answer) if answer.status.as_ref().is_none_or(|status| status.code == 0) => {
                task.holds(number, &answer.result.unwrap_or_default())?;
                shared.answered.lock().unwrap().insert(number, task.action);
                return is_kept(client, number).await;
            }
            Ok(answer) => last = format!("{:?}", answer.status),
            Err(status) if status.code() == tonic::Code::DataLoss => return Err(status.to_string()),
            Err(status) => last = status.to_string(),
        }
        shared.broken.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("task {number} has no answer after {} s: {last}", DEADLINE.as_secs()))
}

/// What was answered is in the cache, with its output.
async fn is_kept(client: &Client, number: u32) -> Result<(), String> {
    let task = Task::new(number);
    let end = Instant::now() + DEADLINE;
    let digest = Function::Sha256.digest(&task.output);
    while Instant::now() < end {
        let Ok(result) = client.remote.result("", task.action, false).await else { continue };
        let result = result.ok_or_else(|| format!("task {number} was answered, and is a miss"))?;
        task.holds(number, &result)?;
        match client.remote.read("", &[digest]).await {
            Ok(mut found) => {
                let same = found.remove(&digest).is_some_and(|bytes| bytes == task.output);
                return if same { Ok(()) } else { Err(format!("task {number}: another output")) };
            }
            Err(kendall_build_cluster::remote::RemoteError::Missing(_)) => {
                return Err(format!("task {number} was answered, and its output is missing"));
            }
            Err(_) => {}
        }
    }
    Err(format!("the cache does not say whether it has task {number}"))
}

fn signal(process: &Process, signal: Signal) {
    let pid = Pid::from_child(&process.child);
    kill_process(pid, signal).unwrap_or_default();
}

/// A worker with a name and a folder of its own.
fn worker(cluster: &Cluster, number: usize) -> Process {
    let name = format!("worker-{number}");
    let data = cluster.folder.path().join(&name);
    let mut arguments = vec!["worker", "--scheduler", &cluster.scheduler.listen];
    arguments.extend(["--cache", &cluster.cache.listen, "--slots", "2", "--name", &name]);
    arguments.extend(["--data", data.to_str().unwrap()]);
    Process::start(&arguments)
}

/// Kills or freezes one part; what was done to it.
fn strike(cluster: &mut Cluster, count: usize, rng: &mut Xoshiro256PlusPlus) -> &'static str {
    let freeze = rng.random_range(0..4) == 0;
    let part = rng.random_range(0..4);
    let process = match part {
        0 => &mut cluster.cache,
        1 => &mut cluster.scheduler,
        _ => &mut cluster.workers[part - 2],
    };
    if freeze {
        signal(process, Signal::STOP);
        std::thread::sleep(Duration::from_millis(rng.random_range(5..400)));
        signal(process, Signal::CONT);
        return ["cache frozen", "scheduler frozen", "worker frozen", "worker frozen"][part];
    }
    process.kill();
    match part {
        0 => cluster.cache = cache(cluster.folder.path(), &cluster.cache.listen.clone()),
        1 => {
            let (listen, store) = (cluster.scheduler.listen.clone(), cluster.cache.listen.clone());
            cluster.scheduler = scheduler(&listen, &store);
        }
        _ => {
            let new = worker(cluster, count + 2);
            cluster.workers[part - 2] = new;
        }
    }
    ["cache killed", "scheduler killed", "worker killed", "worker killed"][part]
}

fn campaign(strikes: u64) {
    let seed = number("KENDALL_KILL_SEED", 20_261_122);
    let end = Instant::now() + Duration::from_secs(number("KENDALL_KILL_SECONDS", 600));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut cluster = Cluster::start(2, 2, &[]);
    let shared = Arc::new(Shared::default());
    let addresses = (cluster.scheduler.listen.clone(), cluster.cache.listen.clone());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (shared, addresses) = (Arc::clone(&shared), addresses.clone());
            std::thread::spawn(move || {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed + u64::from(client) + 1);
                tokio::runtime::Runtime::new().unwrap().block_on(async {
                    let asking = Client::new(&addresses.0, &addresses.1).await;
                    let mut number = client * 1_000_000;
                    while !shared.enough.load(Ordering::SeqCst) {
                        let leave = rng.random_range(0..8) == 0;
                        if let Err(wrong) = run(&asking, &shared, number, leave).await {
                            shared.wrong.lock().unwrap().push(wrong);
                            return;
                        }
                        number += 1;
                    }
                });
            })
        })
        .collect();
    let mut done: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, count) in (0..strikes).zip(0..) {
        if Instant::now() > end || !shared.wrong.lock().unwrap().is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(rng.random_range(5..300)));
        *done.entry(strike(&mut cluster, count, &mut rng)).or_default() += 1;
    }
    shared.enough.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    // Once more, from a cache that was started again.
    cluster.cache.kill();
    cluster.cache = cache(cluster.folder.path(), &addresses.1);
    let answered: Vec<u32> = shared.answered.lock().unwrap().keys().copied().collect();
    let mut wrong = std::mem::take(&mut *shared.wrong.lock().unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let asking = Client::new(&addresses.0, &addresses.1).await;
        for number in &answered {
            wrong.extend(is_kept(&asking, *number).await.err());
        }
    });
    println!(
        "cluster, seed {seed}: {done:?}; {} actions answered and kept, {} calls asked again, {} \
         streams left and found again",
        answered.len(),
        shared.broken.load(Ordering::Relaxed),
        shared.left.load(Ordering::Relaxed)
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(!answered.is_empty(), "nothing was answered");
}

/// A few of each, with every test run.
#[test]
fn a_few_strikes_break_no_promise() {
    campaign(number("KENDALL_KILLS_CLUSTER", 12).min(12));
}

#[test]
#[ignore = "minutes: make kill"]
fn campaign_over_the_build_cluster() {
    campaign(number("KENDALL_KILLS_CLUSTER", 420));
}
