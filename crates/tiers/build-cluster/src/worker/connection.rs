//! The worker's conversation with the scheduler: leases come in, results go out, and a broken
//! connection is made again with what is held.

use std::collections::HashMap;
use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::peer::{Calls, explained};
use crate::remote::RemoteError;
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
/// The longest wait of a worker that the scheduler refuses: its token or its address must be changed first.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// How long a worker that stops waits for its last results to be received, whether there is a scheduler or not.
pub(super) const FAREWELL: Duration = Duration::from_secs(10);

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
    slots: usize,
    draining: AtomicBool,
    /// The cache does not serve this worker: no leases until it does.
    unserved: AtomicBool,
}

#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) offers: Vec<(String, String)>,
}

impl Table {
    pub(super) fn new(slots: usize) -> Self {
        let (held, changed) = (Mutex::default(), Notify::new());
        let (draining, unserved) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { held, changed, slots, draining, unserved }
    }

    /// No more leases.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    fn drains(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    fn takes_none(&self) -> bool {
        self.drains() || self.unserved.load(Ordering::SeqCst)
    }

    /// No leases while the cache does not serve this worker, of which the log is told once.
    fn pause(&self, error: &RemoteError) {
        if !self.unserved.swap(true, Ordering::SeqCst) {
            tracing::warn!(
                reason = explained(error),
                "this worker takes no actions until its cache serves it; asking every second"
            );
        }
    }

    fn resume(&self) {
        if self.unserved.swap(false, Ordering::SeqCst) {
            tracing::info!("the cache serves this worker, which takes actions");
        }
    }

    fn hello(&self, identity: &Identity) -> FromWorker {
        let mut all = self.held.lock();
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
                slots: u32::try_from(self.slots).unwrap_or(u32::MAX),
                offers: identity.offers.iter().map(offer).collect(),
                held,
                draining: self.takes_none(),
            })),
        }
    }

    /// Results that were not sent on this connection.
    fn unsent(&self) -> Vec<FromWorker> {
        let mut all = self.held.lock();
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
        for (lease, entry) in
            self.held.lock().iter_mut().filter(|(_, entry)| entry.finished.is_none())
        {
            let stage = entry.stage.load(Ordering::Relaxed);
            if stage != entry.told {
                entry.told = stage;
                progress.push(Progress { lease: *lease, stage });
            }
        }
        FromWorker { message: Some(from_worker::Message::Beat(Beat { progress })) }
    }

    fn received(&self, lease: u64) {
        let mut all = self.held.lock();
        if all.get(&lease).is_some_and(|entry| entry.finished.is_some()) {
            all.remove(&lease);
        }
        drop(all);
        self.changed.notify_one();
    }

    fn stop(&self, lease: u64) {
        if let Some(entry) = self.held.lock().get(&lease) {
            entry.stop.send_replace(true);
        }
    }

    fn finish(&self, lease: u64, outcome: finished::Outcome) {
        if let Some(entry) = self.held.lock().get_mut(&lease) {
            entry.finished = Some(Finished { lease, outcome: Some(outcome) });
        }
        self.changed.notify_one();
    }

    /// Returns when the worker drains, and when it has something to say while it does.
    async fn drained(&self) {
        loop {
            self.changed.notified().await;
            if self.drains() {
                return;
            }
        }
    }

    fn nothing_held(&self) -> bool {
        self.held.lock().is_empty()
    }

    /// Whether an action has no outcome yet.
    pub(super) fn runs(&self) -> bool {
        self.held.lock().values().any(|entry| entry.finished.is_none())
    }
}

/// Runs what is leased.
pub(crate) trait Execute: Clone + Send + Sync + 'static {
    /// Runs one lease; `answer` takes the outcome as soon as it is known, before the slot is clean again.
    fn execute(
        self,
        lease: Lease,
        stage: Arc<AtomicI32>,
        stopped: watch::Receiver<bool>,
        answer: Answer,
    ) -> impl Future<Output = ()> + Send;

    /// Asks whether the cache serves what runs here.
    fn served(&self) -> impl Future<Output = Result<(), RemoteError>> + Send {
        std::future::ready(Ok(()))
    }
}

/// Where the outcome of a lease goes. A lease whose run ends without one failed: it must not hold its
/// slot on the scheduler's board for ever.
#[derive(Debug)]
pub(crate) struct Answer {
    table: Arc<Table>,
    lease: u64,
    given: bool,
}

impl Answer {
    pub(crate) fn give(mut self, outcome: finished::Outcome) {
        self.given = true;
        self.table.finish(self.lease, outcome);
    }

    /// Before a failure is given: the scheduler is to hear first that no more leases are taken.
    pub(super) fn pause(&self, error: &RemoteError) {
        self.table.pause(error);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.given {
            let words = "the worker ended the action without an outcome".to_owned();
            self.table.finish(self.lease, finished::Outcome::Failed(words));
        }
    }
}

/// Waits of the conversation: a test moves the time itself.
pub(crate) trait Wait: Clone + Send + Sync + 'static {
    fn wait(&self, time: Duration) -> impl Future<Output = ()> + Send;
}

/// The machine's time.
#[derive(Debug, Clone, Copy)]
pub(super) struct RealTime;

impl Wait for RealTime {
    async fn wait(&self, time: Duration) {
        kendall_tier::serve::pause(time).await;
    }
}

/// How long to wait before the next connection, and whether the last refusal was logged already.
#[derive(Debug)]
struct Backoff {
    wait: Duration,
    said: Option<Code>,
}

/// What is to be logged of a connection that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Say {
    /// The scheduler refuses this worker: nothing changes by itself.
    Refused,
    /// There is no scheduler, for now.
    Absent,
    Nothing,
}

impl Backoff {
    const fn new() -> Self {
        Self { wait: FIRST_PAUSE, said: None }
    }

    /// The scheduler welcomed this worker.
    const fn welcomed(&mut self) {
        *self = Self::new();
    }

    /// A connection ended so; the wait before the next one.
    fn failed(&mut self, code: Code) -> (Duration, Say) {
        use Code::{InvalidArgument, PermissionDenied, Unauthenticated, Unimplemented};
        let refused =
            matches!(code, InvalidArgument | PermissionDenied | Unauthenticated | Unimplemented);
        let longest = if refused { REFUSED_PAUSE } else { LONGEST_PAUSE };
        let wait = self.wait.min(longest);
        self.wait = (wait * 2).min(longest);
        let said = self.said.replace(code) == Some(code);
        let say = match (said, refused) {
            (true, _) => Say::Nothing,
            (false, true) => Say::Refused,
            (false, false) => Say::Absent,
        };
        (wait, say)
    }
}

/// The worker's side of its registration with the scheduler.
#[derive(Debug)]
pub(super) struct Registration<E, W> {
    pub(super) identity: Identity,
    /// Where the scheduler is.
    pub(super) address: SocketAddr,
    pub(super) table: Arc<Table>,
    pub(super) runner: E,
    pub(super) time: W,
}

impl<E: Execute, W: Wait> Registration<E, W> {
    /// Talks with the scheduler until the worker has drained and its results were received. `connect` makes a new
    /// connection.
    pub(super) async fn keep(self, connect: impl Fn() -> Calls + Send) {
        let mut actions = JoinSet::new();
        let mut backoff = Backoff::new();
        loop {
            if self.table.nothing_held() && !self.table.drains() {
                tokio::select! {
                    () = self.until_served() => {}
                    () = self.table.drained() => {}
                }
            }
            let said = self.converse(connect(), &mut actions, &mut backoff).await;
            let draining = self.table.drains();
            if draining && self.table.nothing_held() {
                return;
            }
            let wait = match said {
                Ok(()) => FIRST_PAUSE,
                Err(status) => {
                    let (wait, say) = backoff.failed(status.code());
                    self.log(say, &status);
                    wait
                }
            };
            while actions.try_join_next().is_some() {}
            tokio::select! {
                () = self.time.wait(wait) => {}
                () = self.table.drained(), if !draining => {}
            }
        }
    }

    /// Returns when the cache serves this worker.
    async fn until_served(&self) {
        while let Err(error) = self.runner.served().await {
            self.table.pause(&error);
            self.time.wait(LONGEST_PAUSE).await;
        }
        self.table.resume();
    }

    /// One connection, to its end.
    async fn converse(
        &self,
        channel: Calls,
        actions: &mut JoinSet<()>,
        backoff: &mut Backoff,
    ) -> Result<(), Status> {
        let table = &self.table;
        let (outgoing, messages) = mpsc::channel(OUTGOING);
        let broken = |_| Status::unavailable("the connection broke");
        outgoing.send(table.hello(&self.identity)).await.map_err(broken)?;
        let mut client = WorkersClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
        let mut incoming = client.work(ReceiverStream::new(messages)).await?.into_inner();
        let welcome = match incoming.message().await? {
            Some(FromScheduler { message: Some(from_scheduler::Message::Welcome(welcome)) }) => {
                welcome
            }
            _ => return Err(Status::internal("the scheduler did not answer the hello")),
        };
        let name = &self.identity.name;
        tracing::info!(worker = name, "the scheduler welcomes this worker");
        backoff.welcomed();
        let beat = Duration::from_millis(u64::from(welcome.beat_ms).max(10));
        let mut next_beat = Box::pin(self.time.wait(Duration::ZERO));
        let mut served = Box::pin(self.until_served());
        let mut told_drain = false;
        loop {
            // Results are read first and sent last: a slot that a failure frees gets no lease that would fail too.
            let unsent = table.unsent();
            let takes_none = table.takes_none();
            if takes_none && !told_drain {
                told_drain = true;
                outgoing.send(of(from_worker::Message::Drain(Drain {}))).await.map_err(broken)?;
            }
            for message in unsent {
                outgoing.send(message).await.map_err(broken)?;
            }
            if takes_none && table.nothing_held() {
                outgoing.send(of(from_worker::Message::Leave(Leave {}))).await.map_err(broken)?;
                drop(outgoing);
                // The scheduler ends the stream when it has read that.
                tokio::select! {
                    _ = incoming.message() => {}
                    () = self.time.wait(FAREWELL) => {}
                }
                return Ok(());
            }
            tokio::select! {
                message = incoming.message() => match message {
                    Ok(Some(message)) => self.hear(message, actions),
                    ended => {
                        self.log_end(&ended);
                        return Ok(());
                    }
                },
                () = table.changed.notified() => {}
                // Leases are taken again by another hello.
                () = served.as_mut(), if takes_none && !table.drains() => return Ok(()),
                () = next_beat.as_mut() => {
                    next_beat.set(self.time.wait(beat));
                    outgoing.send(table.beat()).await.map_err(broken)?;
                }
                Some(_) = actions.join_next() => {}
            }
        }
    }

    /// The scheduler ended a connection over which it had welcomed this worker, or the network did.
    fn log_end(&self, ended: &Result<Option<FromScheduler>, Status>) {
        let reason = match ended {
            Err(status) => cause(status),
            Ok(_) => "the stream ended".to_owned(),
        };
        let worker = &self.identity.name;
        tracing::warn!(worker, reason, "the connection to the scheduler ended; registering anew");
    }

    fn log(&self, say: Say, status: &Status) {
        let (address, code, reason) = (self.address, status.code(), cause(status));
        match say {
            Say::Refused => tracing::error!(
                %address,
                ?code,
                reason,
                "the scheduler refuses this worker; it asks again every {} s, without further lines in the log",
                REFUSED_PAUSE.as_secs()
            ),
            Say::Absent => {
                tracing::warn!(%address, ?code, reason, "no scheduler; trying again every second");
            }
            Say::Nothing => tracing::debug!(%address, ?code, reason, "still no scheduler"),
        }
    }

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
        let known = self.table.held.lock().insert(lease.lease, entry);
        debug_assert!(known.is_none(), "a lease comes once");
        let answer = Answer { table: Arc::clone(&self.table), lease: lease.lease, given: false };
        actions.spawn(self.runner.clone().execute(lease, stage, stopped, answer));
    }
}

/// Why, with what is below.
fn cause(status: &Status) -> String {
    match status.source() {
        Some(below) => explained(below),
        None => status.message().to_owned(),
    }
}

const fn of(message: from_worker::Message) -> FromWorker {
    FromWorker { message: Some(message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_said_once_and_asked_about_ever_more_rarely() {
        let mut backoff = Backoff::new();
        let mut waited = Duration::ZERO;
        let mut said = Vec::new();
        let mut asked = 0;
        while waited < Duration::from_secs(3600) {
            let (wait, say) = backoff.failed(Code::Unauthenticated);
            waited += wait;
            asked += 1;
            said.extend((say != Say::Nothing).then_some(say));
        }
        assert_eq!(said, [Say::Refused]);
        assert!(asked < 140, "{asked} times an hour");
        // Its token was put right while the scheduler was away.
        assert_eq!(backoff.failed(Code::Unavailable), (LONGEST_PAUSE, Say::Absent));
        assert_eq!(backoff.failed(Code::Unavailable), (LONGEST_PAUSE, Say::Nothing));
        backoff.welcomed();
        assert_eq!(backoff.failed(Code::Unavailable), (FIRST_PAUSE, Say::Absent));
    }
}
