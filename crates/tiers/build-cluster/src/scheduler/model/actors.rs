//! Workers and clients of the model, and what is known of all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::Duration;

use kendall_tier::Clock;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::watch;
use tonic::{Code, Status};

use super::network::{Gate, Link};
use crate::digest::{Digest, Function};
use crate::wire::re::execution_client::ExecutionClient;
use crate::wire::{longrunning as lro, re};
use crate::work::{Lease, finished};
use crate::worker::model::{Answer, Execute, Wait, worker_over};

/// A time that the test moves.
#[derive(Debug, Clone)]
pub(super) struct Time {
    pub(super) clock: Clock,
    pub(super) ticks: watch::Receiver<()>,
}

impl Wait for Time {
    async fn wait(&self, time: Duration) {
        let mut ticks = self.ticks.clone();
        let length = u64::try_from(time.as_nanos()).unwrap();
        let end = self.clock.now_ns() + length;
        while self.clock.now_ns() < end {
            if ticks.changed().await.is_err() {
                // The test is over.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Log(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Results in the cache.
    stored: HashMap<u32, re::ActionResult>,
    /// Answers to each client's request, its lives together.
    answers: HashMap<(u32, u32), u32>,
    /// What clients heard last.
    last: HashMap<u32, String>,
    calls: u32,
    registrations: u32,
    wrong: Option<String>,
}

impl Log {
    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.0.lock()
    }

    pub(super) fn stored(&self, number: u32) -> Option<re::ActionResult> {
        self.state().stored.get(&number).cloned()
    }

    pub(super) fn wrong(&self) -> Result<(), String> {
        self.state().wrong.clone().map_or(Ok(()), Err)
    }

    pub(super) fn calls(&self) -> u32 {
        self.state().calls
    }

    pub(super) fn answered(&self) -> usize {
        self.state().answers.len()
    }

    pub(super) fn registrations(&self) -> u32 {
        self.state().registrations
    }

    pub(super) fn open(&self) -> String {
        format!("{:?}", self.state().last)
    }

    fn is_wrong(&self, what: String) {
        self.state().wrong.get_or_insert(what);
    }

    pub(super) fn all_answered(&self, clients: u32, actions: u32) -> Result<(), String> {
        let state = self.state();
        for client in 0..clients {
            for action in 0..actions {
                let answers = state.answers.get(&(client, action)).copied().unwrap_or(0);
                if answers != 1 {
                    return Err(format!("client {client} has {answers} answers to {action}"));
                }
            }
        }
        Ok(())
    }
}

/// Action number so and so. Clients share every other one; every third must not be cached.
fn action(number: u32) -> re::Action {
    re::Action {
        command_digest: Some(Function::Sha256.digest(&command()).to_wire()),
        input_root_digest: Some(Function::Sha256.digest(b"").to_wire()),
        do_not_cache: number.is_multiple_of(3),
        salt: number.to_be_bytes().to_vec(),
        ..Default::default()
    }
}

fn command() -> Vec<u8> {
    re::Command { arguments: vec!["true".to_owned()], ..Default::default() }.encode_to_vec()
}

/// Numbers of actions there are.
const NUMBERS: u32 = 1000;

fn numbers() -> &'static HashMap<Digest, u32> {
    static NUMBERED: std::sync::OnceLock<HashMap<Digest, u32>> = std::sync::OnceLock::new();
    NUMBERED.get_or_init(|| {
        let digest = |number| Function::Sha256.digest(&action(number).encode_to_vec());
        (0..NUMBERS).map(|number| (digest(number), number)).collect()
    })
}

pub(super) fn number_of(digest: &Digest) -> Option<u32> {
    numbers().get(digest).copied()
}

/// An action, or the command of all of them.
pub(super) fn blob(digest: &Digest) -> Option<Vec<u8>> {
    let known = number_of(digest).map(|number| action(number).encode_to_vec());
    known.or_else(|| digest.names(&command()).then(command))
}

fn result(number: u32) -> re::ActionResult {
    re::ActionResult { stdout_raw: number.to_be_bytes().to_vec(), ..Default::default() }
}

/// Runs nothing, and takes its time for that.
#[derive(Debug, Clone)]
struct Pretence {
    log: Arc<Log>,
    time: Time,
    gate: Gate,
    slots: usize,
    running: Arc<Mutex<usize>>,
}

impl Execute for Pretence {
    async fn execute(
        self,
        lease: Lease,
        _: Arc<AtomicI32>,
        mut stopped: watch::Receiver<bool>,
        answer: Answer,
    ) {
        let this = self.clone();
        let run = async move {
            {
                let mut running = self.running.lock();
                *running += 1;
                if *running > self.slots {
                    self.log.is_wrong(format!("{running} leases in {} slots", self.slots));
                }
            }
            let wire = re::Digest { hash: lease.action_hash, size_bytes: lease.action_bytes };
            let digest = Digest::from_wire(Function::Sha256, &wire).unwrap();
            let number = number_of(&digest).unwrap();
            let length = Duration::from_millis(u64::from(number % 5) * 700);
            let outcome = tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => {
                    finished::Outcome::Failed("stopped".to_owned())
                }
                () = self.time.wait(length) => {
                    let result = result(number);
                    if !action(number).do_not_cache {
                        self.log.state().stored.insert(number, result.clone());
                    }
                    let answer = re::ExecuteResponse { result: Some(result), ..Default::default() };
                    finished::Outcome::Answer(answer.encode_to_vec())
                }
            };
            *self.running.lock() -= 1;
            answer.give(outcome);
        };
        this.gate.hold(run).await;
    }
}

pub(super) fn worker(
    name: String,
    slots: usize,
    log: &Arc<Log>,
    time: &Time,
    gate: &Gate,
    link: &Link,
) -> impl Future<Output = ()> + Send + 'static {
    let pretence = Pretence {
        log: Arc::clone(log),
        time: time.clone(),
        gate: gate.clone(),
        slots,
        running: Arc::default(),
    };
    let (log, link) = (Arc::clone(log), link.clone());
    worker_over(name, slots, pretence, time.clone(), move || {
        log.state().registrations += 1;
        link.calls()
    })
}

/// A client that asks for its actions one after the other, and goes on as Bazel does: it waits for an
/// operation that it knows, and executes anew where that is not found or has failed.
pub(super) fn client(
    client: u32,
    actions: u32,
    log: &Arc<Log>,
    time: &Time,
    link: &Link,
) -> impl Future<Output = ()> + Send + 'static {
    let (log, time, link) = (Arc::clone(log), time.clone(), link.clone());
    async move {
        for index in 0..actions {
            // Its life before this one had an answer already.
            if log.state().answers.contains_key(&(client, index)) {
                continue;
            }
            let shared = index.is_multiple_of(2);
            let number = if shared { index } else { 100 * (client + 1) + index };
            let mut operation = None;
            loop {
                log.state().calls += 1;
                match ask(&link, number, &mut operation).await {
                    Ok(()) => break,
                    Err(status) => {
                        let words = format!("{number}: {status}");
                        if !may_be_asked_again(status.code()) {
                            log.is_wrong(format!("a client gives up on {words}"));
                            return;
                        }
                        log.state().last.insert(client, words);
                    }
                }
                time.wait(Duration::from_millis(500)).await;
            }
            *log.state().answers.entry((client, index)).or_default() += 1;
        }
    }
}

/// What Bazel repeats.
fn may_be_asked_again(code: Code) -> bool {
    use Code::{
        Aborted, Cancelled, DeadlineExceeded, Internal, NotFound, ResourceExhausted, Unavailable,
        Unknown,
    };
    matches!(
        code,
        Aborted
            | Cancelled
            | DeadlineExceeded
            | Internal
            | NotFound
            | ResourceExhausted
            | Unavailable
            | Unknown
    )
}

/// One call, to its answer.
async fn ask(link: &Link, number: u32, known: &mut Option<String>) -> Result<(), Status> {
    let mut client = ExecutionClient::new(link.calls());
    let begun = match known {
        Some(name) => client.wait_execution(re::WaitExecutionRequest { name: name.clone() }).await,
        None => {
            let digest = Function::Sha256.digest(&action(number).encode_to_vec());
            let request =
                re::ExecuteRequest { action_digest: Some(digest.to_wire()), ..Default::default() };
            client.execute(request).await
        }
    };
    let lost = |status: &Status, known: &mut Option<String>| {
        if status.code() == Code::NotFound {
            *known = None;
        }
    };
    let mut stream = begun.inspect_err(|status| lost(status, known))?.into_inner();
    loop {
        let next = stream.message().await.inspect_err(|status| lost(status, known))?;
        let Some(operation) = next else {
            return Err(Status::unavailable("the stream ended without an answer"));
        };
        *known = Some(operation.name);
        let Some(lro::operation::Result::Response(any)) = operation.result else { continue };
        *known = None;
        if let Some(more) = stream.message().await.unwrap_or_default() {
            return Err(Status::data_loss(format!("a second answer: {more:?}")));
        }
        let response = re::ExecuteResponse::decode(any.value.as_slice()).unwrap();
        if let Some(status) = response.status.filter(|status| status.code != 0) {
            return Err(Status::new(Code::from_i32(status.code), status.message));
        }
        if response.result != Some(result(number)) {
            return Err(Status::data_loss(format!("another's result: {:?}", response.result)));
        }
        return Ok(());
    }
}
