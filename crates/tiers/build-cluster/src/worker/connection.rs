//! The worker's conversation with the scheduler: leases come in, results go out, and a broken
//! connection is made again with what is held.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prost::Message as _;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use super::action::Kitchen;
use super::action::Outcome;
use super::report::Report;
use super::slot::Slot;
use crate::peer::{Calls, Peer};
use crate::remote::pause;
use crate::work::{
    Beat, Drain, Finished, FromScheduler, FromWorker, Held, Hello, Lease, LeaseStage, Leave,
    Progress, Property, finished, from_scheduler, from_worker, workers_client::WorkersClient,
};

/// Messages that wait to be sent.
const OUTGOING: usize = 1024;
/// Longest message from the scheduler: an action and its command.
const MESSAGE_BYTES: usize = 64 << 20;
/// First and longest wait before a connection is made again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a worker that stops waits for its last results to be received.
const FAREWELL: Duration = Duration::from_secs(10);

/// A lease that is held: being run, or with a result that was not received.
#[derive(Debug)]
struct Entry {
    key: String,
    merge: bool,
    stop: watch::Sender<bool>,
    stage: Arc<AtomicI32>,
    told: i32,
    finished: Option<Finished>,
    sent: bool,
}

/// What the conversation and the running actions share.
#[derive(Debug)]
pub(super) struct Table {
    held: Mutex<HashMap<u64, Entry>>,
    changed: Notify,
    slots: Mutex<Vec<Slot>>,
    free: Semaphore,
    count: usize,
    draining: AtomicBool,
}

/// Who the worker is.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) offers: Vec<(String, String)>,
}

impl Table {
    pub(super) fn new(slots: Vec<Slot>) -> Self {
        let count = slots.len();
        Self {
            held: Mutex::default(),
            changed: Notify::new(),
            slots: Mutex::new(slots),
            free: Semaphore::new(count),
            count,
            draining: AtomicBool::new(false),
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Entry>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No more leases.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    fn hello(&self, identity: &Identity) -> FromWorker {
        let mut all = self.held();
        let held = all
            .iter_mut()
            .map(|(lease, entry)| {
                // Whatever was sent before may not have arrived.
                entry.sent = false;
                entry.told = -1;
                Held { lease: *lease, key: entry.key.clone(), merge: entry.merge }
            })
            .collect();
        let offer = |(name, value): &(String, String)| Property {
            name: name.clone(),
            value: value.clone(),
        };
        FromWorker {
            message: Some(from_worker::Message::Hello(Hello {
                name: identity.name.clone(),
                uid: identity.uid.clone(),
                slots: u32::try_from(self.count).unwrap_or(u32::MAX),
                offers: identity.offers.iter().map(offer).collect(),
                held,
                draining: self.draining.load(Ordering::SeqCst),
            })),
        }
    }

    /// Results that were not sent on this connection.
    fn unsent(&self) -> Vec<FromWorker> {
        let mut all = self.held();
        let ready = all.values_mut().filter(|entry| !entry.sent);
        ready
            .filter_map(|entry| {
                let finished = entry.finished.clone()?;
                entry.sent = true;
                Some(FromWorker { message: Some(from_worker::Message::Finished(finished)) })
            })
            .collect()
    }

    fn beat(&self) -> FromWorker {
        let mut progress = Vec::new();
        for (lease, entry) in self.held().iter_mut().filter(|(_, entry)| entry.finished.is_none()) {
            let stage = entry.stage.load(Ordering::Relaxed);
            if stage != entry.told {
                entry.told = stage;
                progress.push(Progress { lease: *lease, stage });
            }
        }
        FromWorker { message: Some(from_worker::Message::Beat(Beat { progress })) }
    }

    fn received(&self, lease: u64) {
        let mut all = self.held();
        if all.get(&lease).is_some_and(|entry| entry.finished.is_some()) {
            all.remove(&lease);
        }
        drop(all);
        self.changed.notify_one();
    }

    fn stop(&self, lease: u64) {
        if let Some(entry) = self.held().get(&lease) {
            entry.stop.send_replace(true);
        }
    }

    fn finish(&self, lease: u64, outcome: finished::Outcome) {
        if let Some(entry) = self.held().get_mut(&lease) {
            entry.finished = Some(Finished { lease, outcome: Some(outcome) });
        }
        self.changed.notify_one();
    }

    fn nothing_held(&self) -> bool {
        self.held().is_empty()
    }
}

/// What a lease needs to be run.
#[derive(Debug, Clone)]
pub(super) struct Runner {
    pub(super) table: Arc<Table>,
    pub(super) kitchen: Arc<Kitchen>,
    pub(super) report: Arc<Report>,
}

impl Runner {
    fn take(&self, lease: Lease, actions: &mut JoinSet<()>) {
        let (stop, stopped) = watch::channel(false);
        let stage = Arc::new(AtomicI32::new(LeaseStage::Started as i32));
        let entry = Entry {
            key: lease.key.clone(),
            merge: lease.merge,
            stop,
            stage: Arc::clone(&stage),
            told: LeaseStage::Started as i32,
            finished: None,
            sent: false,
        };
        let known = self.table.held().insert(lease.lease, entry);
        debug_assert!(known.is_none(), "a lease comes once");
        let runner = self.clone();
        actions.spawn(async move { runner.run(lease, &stage, stopped).await });
    }

    async fn run(self, lease: Lease, stage: &AtomicI32, mut stopped: watch::Receiver<bool>) {
        let arrived_ns = self.report.arrived();
        let Ok(permit) = self.table.free.acquire().await else { return };
        let slot = self.table.slots.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(mut slot) = slot else { return };
        let began_ns = self.report.began();
        let (outcome, times) = self.kitchen.cook(&lease, &mut slot, stage, &mut stopped).await;
        self.report.ended(&outcome, &times, arrived_ns, began_ns);
        let outcome = match outcome {
            Outcome::Answer(response) => finished::Outcome::Answer(response.encode_to_vec()),
            Outcome::Failed(words) => {
                if words != "stopped" {
                    tracing::warn!(
                        lease = lease.lease,
                        key = lease.key,
                        reason = words,
                        "an action could not be run"
                    );
                }
                finished::Outcome::Failed(words)
            }
        };
        self.table.finish(lease.lease, outcome);
        // After the answer: the client need not wait for it.
        if let Err(error) = slot.clean() {
            tracing::error!(%error, "what an action left cannot be deleted; its slot starts anew");
            slot.end();
        }
        self.table.slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        drop(permit);
    }
}

/// Talks with the scheduler until the worker has drained.
pub(super) async fn talk(scheduler: Peer, identity: Identity, runner: Runner) {
    let mut actions = JoinSet::new();
    let mut wait = FIRST_PAUSE;
    let table = Arc::clone(&runner.table);
    loop {
        let channel = scheduler.calls();
        let conversation = converse(channel, &identity, &runner, &mut actions);
        let said = conversation.await;
        let draining = table.draining.load(Ordering::SeqCst);
        if draining && table.nothing_held() {
            return;
        }
        match said {
            Ok(()) => wait = FIRST_PAUSE,
            Err(status) => {
                let scheduler = scheduler.address;
                tracing::info!(%scheduler, reason = status.message(), "no scheduler; trying again");
            }
        }
        if draining && actions.is_empty() {
            tracing::warn!("the scheduler did not take the last results");
            return;
        }
        pause(wait).await;
        wait = (wait * 2).min(LONGEST_PAUSE);
    }
}

/// One connection, to its end.
async fn converse(
    channel: Calls,
    identity: &Identity,
    runner: &Runner,
    actions: &mut JoinSet<()>,
) -> Result<(), tonic::Status> {
    let table = &runner.table;
    let (outgoing, messages) = mpsc::channel(OUTGOING);
    let broken = |_| tonic::Status::unavailable("the connection broke");
    outgoing.send(table.hello(identity)).await.map_err(broken)?;
    let mut client = WorkersClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
    let mut incoming = client.work(ReceiverStream::new(messages)).await?.into_inner();
    let welcome = match incoming.message().await? {
        Some(FromScheduler { message: Some(from_scheduler::Message::Welcome(welcome)) }) => welcome,
        _ => return Err(tonic::Status::internal("the scheduler did not answer the hello")),
    };
    tracing::info!(name = identity.name, "the scheduler welcomes this worker");
    let mut beats =
        tokio::time::interval(Duration::from_millis(u64::from(welcome.beat_ms).max(10)));
    let mut told_drain = false;
    let mut farewell: Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>> = None;
    loop {
        for message in table.unsent() {
            outgoing.send(message).await.map_err(broken)?;
        }
        if table.draining.load(Ordering::SeqCst) {
            if !told_drain {
                told_drain = true;
                outgoing.send(of(from_worker::Message::Drain(Drain {}))).await.map_err(broken)?;
            }
            if table.nothing_held() {
                outgoing.send(of(from_worker::Message::Leave(Leave {}))).await.map_err(broken)?;
                drop(outgoing);
                // The scheduler ends the stream when it has read that.
                tokio::time::timeout(FAREWELL, incoming.message()).await.ok();
                return Ok(());
            }
            if actions.is_empty() && farewell.is_none() {
                farewell = Some(Box::pin(pause(FAREWELL)));
            }
        }
        tokio::select! {
            message = incoming.message() => match message? {
                Some(message) => runner.hear(message, actions),
                None => return Err(tonic::Status::unavailable("the scheduler ended the stream")),
            },
            () = table.changed.notified() => {}
            _ = beats.tick() => outgoing.send(table.beat()).await.map_err(broken)?,
            Some(_) = actions.join_next() => {}
            () = async { farewell.as_mut().expect("looked at below").await }, if farewell.is_some() => {
                return Err(tonic::Status::unavailable("the last results were not received"));
            }
        }
    }
}

const fn of(message: from_worker::Message) -> FromWorker {
    FromWorker { message: Some(message) }
}

impl Runner {
    fn hear(&self, message: FromScheduler, actions: &mut JoinSet<()>) {
        match message.message {
            Some(from_scheduler::Message::Lease(lease)) => self.take(lease, actions),
            Some(from_scheduler::Message::Stop(stop)) => self.table.stop(stop.lease),
            Some(from_scheduler::Message::Received(received)) => {
                self.table.received(received.lease);
            }
            Some(from_scheduler::Message::Welcome(_)) | None => {}
        }
    }
}
