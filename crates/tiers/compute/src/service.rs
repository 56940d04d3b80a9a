//! What the network side and the workers share: queue, workers, cache, recording, instruments.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use kendall_tier::{
    Clock, Full, Instruments, Layout, Limit, Outcome, Recorder, RequestQueue, RequestType, Stage,
    WorkerPool,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::cache::{Cache, CacheLimits};
use crate::matrix::Interrupted;
use crate::recording::{Recorded, Recording};
use crate::request::{Asked, RequestLimits, Task};

/// Requests that may wait where the queue is called unbounded: what an experiment needs never
/// comes near it, and memory stays bounded.
pub const QUEUE_HARD_CAP: usize = 1_000_000;

pub const MOST_WORKERS: usize = 1024;

pub(crate) const POWER: RequestType = RequestType(0);
pub(crate) const FACTORIZE: RequestType = RequestType(1);
pub(crate) const COMPUTE_TIME: Stage = Stage(0);
pub(crate) const HITS: Outcome = Outcome(0);
pub(crate) const MISSES: Outcome = Outcome(1);
pub(crate) const REFUSED: Outcome = Outcome(2);
pub(crate) const QUEUE_FULL: Outcome = Outcome(3);
pub(crate) const TOO_LONG: Outcome = Outcome(4);
pub(crate) const ABANDONED: Outcome = Outcome(5);
pub(crate) const STOPPING: Outcome = Outcome(6);
pub(crate) const LIMIT_QUEUE: Limit = Limit(0);
pub(crate) const LIMIT_CONNECTIONS: Limit = Limit(1);
pub(crate) const LIMIT_BODY: Limit = Limit(2);
pub(crate) const LIMIT_READ_TIME: Limit = Limit(3);
pub(crate) const LIMIT_COMPUTE_TIME: Limit = Limit(4);
pub(crate) const LIMIT_CACHE: Limit = Limit(5);
pub(crate) const LIMIT_DESCRIPTORS: Limit = Limit(6);

/// What the service says of itself beside the stages of every tier.
pub(crate) fn layout() -> Layout {
    Layout {
        tier: "compute",
        request_types: &["power", "factorize"],
        stages: &["compute_time"],
        outcomes: &["hits", "misses", "refused", "queue_full", "too_long", "abandoned", "stopping"],
        limits: &[
            "queue",
            "connections",
            "body_bytes",
            "read_time",
            "compute_time",
            "cache",
            "descriptors",
        ],
        backends: Vec::new(),
    }
}

/// A request that waits for a worker.
#[derive(Debug)]
pub(crate) struct Job {
    asked: Asked,
    reply: oneshot::Sender<Done>,
}

/// What a worker found, and when it began and ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) result: Result<Bytes, Interrupted>,
    pub(crate) dequeued_ns: u64,
    pub(crate) computed_ns: u64,
}

/// What can be changed while the service runs, as its control address takes it. What is left out
/// stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// Whether the cache answers and keeps. Switched off, it forgets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<bool>,
    /// Requests that may wait: a number, or `unbounded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueBound>,
}

/// How many requests may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum QueueBound {
    /// At most so many; more are answered with 503.
    Bounded(usize),
    /// As many as come, up to [`QUEUE_HARD_CAP`].
    Unbounded(Unbounded),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unbounded {
    /// No bound but the hard cap.
    Unbounded,
}

/// The state of the service, as its control address tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct State {
    /// Worker threads wanted; those beyond it end after the request that they serve.
    pub workers: usize,
    /// Requests that may wait.
    pub queue: QueueBound,
    pub queue_length: usize,
    /// Whether the cache answers.
    pub cache: bool,
    pub cache_entries: usize,
    pub cache_bytes: usize,
    pub cache_limits: CacheLimits,
    pub request_limits: RequestLimits,
    /// Whether a recording is open.
    pub recording: bool,
}

/// A change that was refused.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("workers: {workers} is not from 1 to {MOST_WORKERS}")]
    Workers { workers: usize },
    #[error("queue: {bound} exceeds {QUEUE_HARD_CAP}; write a smaller number or \"unbounded\"")]
    Queue { bound: usize },
    #[error("cannot start a worker")]
    Start(#[from] io::Error),
}

/// A handle on a running service. Clones share it.
#[derive(Clone)]
pub struct Control {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) instruments: Instruments,
    pub(crate) request_limits: RequestLimits,
    queue: RequestQueue<Job>,
    queue_bound: AtomicUsize,
    pool: WorkerPool<Job>,
    workers: AtomicUsize,
    cache_on: AtomicBool,
    cache: Mutex<Cache>,
    cache_limits: CacheLimits,
    recording: Recording,
    /// Counts what the network thread sees. Only that thread takes the lock.
    pub(crate) network: Mutex<Recorder>,
}

impl Shared {
    pub(crate) fn start(
        workers: usize,
        compute_ns: u64,
        request_limits: RequestLimits,
        cache_limits: CacheLimits,
    ) -> io::Result<Self> {
        let clock = Clock::monotonic();
        let instruments = Instruments::new(layout(), clock.clone());
        let queue = RequestQueue::new(QUEUE_HARD_CAP, &instruments);
        let pool = WorkerPool::start("worker", queue.clone(), workers, {
            let (instruments, clock) = (instruments.clone(), clock.clone());
            move |_index| {
                let (mut recorder, clock) = (instruments.recorder(), clock.clone());
                Box::new(move |job, dequeued_ns| {
                    work(job, dequeued_ns, compute_ns, &clock, &mut recorder);
                })
            }
        })?;
        instruments.set_workers(u32::try_from(workers).unwrap_or(u32::MAX));
        Ok(Self {
            network: Mutex::new(instruments.recorder()),
            clock,
            instruments,
            request_limits,
            queue,
            queue_bound: AtomicUsize::new(QUEUE_HARD_CAP),
            pool,
            workers: AtomicUsize::new(workers),
            cache_on: AtomicBool::new(false),
            cache: Mutex::new(Cache::new(cache_limits)),
            cache_limits,
            recording: Recording::default(),
        })
    }

    /// What the cache holds for `asked`, counted as hit or miss; `None` also when it is off.
    pub(crate) fn cached(&self, asked: &Asked) -> Option<Bytes> {
        if !self.cache_on.load(Ordering::Relaxed) {
            return None;
        }
        let found = self.cache.lock().get(asked);
        self.network.lock().outcome(if found.is_some() { HITS } else { MISSES }, 1);
        found
    }

    /// Whether results are kept.
    pub(crate) fn cache_is_on(&self) -> bool {
        self.cache_on.load(Ordering::Relaxed)
    }

    pub(crate) fn keep(&self, asked: Asked, result: Bytes) {
        let dropped = self.cache.lock().put(asked, result);
        for _ in 0..dropped {
            self.network.lock().limit_hit(LIMIT_CACHE);
        }
    }

    /// Puts `asked` on the queue; the worker answers through what comes back.
    pub(crate) fn enqueue(&self, asked: Asked) -> Result<oneshot::Receiver<Done>, usize> {
        let (reply, done) = oneshot::channel();
        let bound = self.queue_bound.load(Ordering::Relaxed);
        let pushed = self.queue.push_within(bound, Job { asked, reply });
        pushed.map(|()| done).map_err(|Full { waiting, .. }| waiting)
    }

    /// Lets the workers finish what waits, and ends them.
    pub(crate) fn drain(&self) {
        self.pool.drain();
    }
}

/// What a worker does with one request.
fn work(job: Job, dequeued_ns: u64, compute_ns: u64, clock: &Clock, recorder: &mut Recorder) {
    if job.reply.is_closed() {
        return recorder.outcome(ABANDONED, 1);
    }
    let end_ns = dequeued_ns.saturating_add(compute_ns);
    // While the process is suspended nothing is computed. Asked second, since it takes longer to ask.
    let own = Clock::of_this_thread();
    let begun_ns = own.now_ns();
    let in_time = || clock.now_ns() < end_ns || own.now_ns() - begun_ns < compute_ns;
    let go_on = || in_time() && !job.reply.is_closed();
    let result = job.asked.compute(go_on).map(Bytes::from);
    let computed_ns = clock.now_ns();
    recorder.stage(job.asked.request_type(), COMPUTE_TIME, computed_ns.saturating_sub(dequeued_ns));
    if result.is_err() && !job.reply.is_closed() {
        recorder.limit_hit(LIMIT_COMPUTE_TIME);
        recorder.outcome(TOO_LONG, 1);
    }
    if job.reply.send(Done { result, dequeued_ns, computed_ns }).is_err() {
        recorder.outcome(ABANDONED, 1);
    }
}

impl Asked {
    pub(crate) fn request_type(&self) -> RequestType {
        match self.task {
            Task::Power { .. } => POWER,
            Task::Factorize { .. } => FACTORIZE,
        }
    }
}

impl Control {
    pub fn state(&self) -> State {
        let shared = &self.shared;
        let cache = shared.cache.lock();
        State {
            workers: shared.workers.load(Ordering::Relaxed),
            queue: match shared.queue_bound.load(Ordering::Relaxed) {
                QUEUE_HARD_CAP.. => QueueBound::Unbounded(Unbounded::Unbounded),
                bound => QueueBound::Bounded(bound),
            },
            queue_length: shared.queue.len(),
            cache: shared.cache_is_on(),
            cache_entries: cache.len(),
            cache_bytes: cache.bytes(),
            cache_limits: shared.cache_limits,
            request_limits: shared.request_limits,
            recording: shared.recording.is_open(),
        }
    }

    /// Changes what is asked for, or nothing when a part is refused. Workers that are too many end
    /// after the request that they serve; this does not wait for them.
    pub fn change(&self, change: &Change) -> Result<State, ChangeError> {
        if let Some(workers) =
            change.workers.filter(|workers| !(1..=MOST_WORKERS).contains(workers))
        {
            return Err(ChangeError::Workers { workers });
        }
        if let Some(QueueBound::Bounded(bound)) = change.queue
            && bound > QUEUE_HARD_CAP
        {
            return Err(ChangeError::Queue { bound });
        }
        if let Some(workers) = change.workers {
            self.resize(workers)?;
        }
        if let Some(bound) = change.queue {
            let bound = match bound {
                QueueBound::Bounded(bound) => bound,
                QueueBound::Unbounded(_) => QUEUE_HARD_CAP,
            };
            self.shared.queue_bound.store(bound, Ordering::Relaxed);
        }
        if let Some(on) = change.cache {
            self.shared.cache_on.store(on, Ordering::Relaxed);
            if !on {
                self.shared.cache.lock().clear();
            }
        }
        Ok(self.state())
    }

    /// Begins a recording; one that is open is forgotten.
    pub fn start_recording(&self) {
        self.shared.recording.start(&self.shared.instruments);
    }

    /// What the open recording holds so far.
    pub fn recording(&self) -> Option<Recorded> {
        self.shared.recording.so_far(&self.shared.instruments)
    }

    #[must_use]
    pub fn stop_recording(&self) -> Option<Recorded> {
        self.shared.recording.stop(&self.shared.instruments)
    }

    /// The pool waits until those beyond `workers` have ended, which may take as long as a
    /// request; so it does that on a thread of its own.
    fn resize(&self, workers: usize) -> Result<(), ChangeError> {
        self.shared.workers.store(workers, Ordering::Relaxed);
        self.shared.instruments.set_workers(u32::try_from(workers).unwrap_or(u32::MAX));
        let shared = Arc::clone(&self.shared);
        let resize = move || {
            // Of several changes at once, the last one counts, whatever their order here.
            if let Err(error) = shared.pool.resize(shared.workers.load(Ordering::Relaxed)) {
                tracing::error!(%error, "cannot start a worker");
            }
        };
        std::thread::Builder::new().name("resize".into()).spawn(resize)?;
        Ok(())
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three hours pass, in which the thread is not given three hours of a core.
    #[test]
    fn the_limit_of_a_computation_is_of_its_work() {
        let manual = kendall_tier::ManualClock::default();
        let clock = Clock::manual(&manual);
        let instruments = Instruments::new(layout(), clock.clone());
        let limits = RequestLimits { size: 200, exponent: 1_000_000, body_bytes: 64 * 1024 };
        let asked = Asked::from_query("integer=1001", &limits).unwrap();
        let (reply, mut done) = oneshot::channel();
        let hour_ns = 3_600_000_000_000;
        manual.advance(3 * hour_ns);
        work(Job { asked, reply }, 0, hour_ns, &clock, &mut instruments.recorder());
        assert!(done.try_recv().unwrap().result.is_ok());
    }
}
