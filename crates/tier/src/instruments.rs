//! What a tier counts: each thread writes its own recorder, and a reader adds them up.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kendall_protocols::snapshot::{
    BackendSnapshot, EncodedHistogram, LevelSnapshot, RequestSnapshot, SNAPSHOT_VERSION,
    TierSnapshot, stage,
};
use kendall_stats::histogram::Histogram;
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::histogram::{SharedHistogram, increase};
use crate::level::{LevelCell, LevelWriter};
use crate::process;

/// What a tier reports. The order of the names gives the numbers by which the tier records.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Kind of tier, such as `memcached-proxy`.
    pub tier: &'static str,
    /// Names of request types; [`RequestType`] counts them from 0.
    pub request_types: &'static [&'static str],
    /// Stages besides the four that every tier reports; [`Stage`] counts them from 0.
    pub stages: &'static [&'static str],
    /// Hits, misses, errors by kind; [`Outcome`] counts them from 0.
    pub outcomes: &'static [&'static str],
    /// Bounds that can be hit; [`Limit`] counts them from 0.
    pub limits: &'static [&'static str],
    /// `host:port` of each backend, in the order of the command line. More may come later
    /// ([`Instruments::backend`]).
    pub backends: Vec<String>,
}

/// Number of a request type in [`Layout::request_types`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestType(pub usize);

/// Number of a stage in [`Layout::stages`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage(pub usize);

/// Number of an outcome in [`Layout::outcomes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome(pub usize);

/// Number of a limit in [`Layout::limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub usize);

/// Moments of one request, nanoseconds of the tier's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moments {
    /// Last byte of the request read.
    pub arrived_ns: u64,
    /// A worker took it.
    pub dequeued_ns: u64,
    /// What passed between the tier and its backends; `None` when it needed none.
    pub backend: Option<Exchange>,
    /// Last byte of the answer handed to the kernel.
    pub replied_ns: u64,
}

/// Moments of what passed between the tier and its backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// Last byte to the backends written.
    pub sent_ns: u64,
    /// Last byte of the last backend's reply read.
    pub received_ns: u64,
}

/// Stages that every tier reports, before those of its layout.
pub(crate) const COMMON_STAGES: [&str; 4] =
    [stage::WAITING_TIME, stage::SERVICE_TIME, stage::BACKEND_TIME, stage::RESPONSE_TIME];

/// All recorders of a tier. Clones share them.
#[derive(Clone)]
pub struct Instruments {
    shared: Arc<Shared>,
}

struct Shared {
    layout: Layout,
    clock: Clock,
    started_ns: u64,
    workers: AtomicU32,
    /// Those of the layout, and those that came later.
    backends: Mutex<Vec<String>>,
    blocks: Mutex<Blocks>,
}

/// The lock is taken when a thread starts or ends and when the tier is read, never on the
/// measured path.
#[derive(Default)]
struct Blocks {
    all: Vec<Arc<Block>>,
    /// Blocks whose recorder is gone. What they count stays; the next recorder goes on with them.
    free: Vec<Arc<Block>>,
}

/// What one thread counts.
struct Block {
    arrivals: Box<[AtomicU64]>,
    completions: Box<[AtomicU64]>,
    /// By request type, then by stage.
    stages: Box<[SharedHistogram]>,
    outcomes: Box<[AtomicU64]>,
    limits: Box<[AtomicU64]>,
    /// As many as its recorder was told of.
    backends: Mutex<Vec<Arc<BackendCell>>>,
    held_time: SharedHistogram,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    queue_length: Arc<LevelCell>,
    workers_busy: Arc<LevelCell>,
    connections: Arc<LevelCell>,
}

struct BackendCell {
    requests: AtomicU64,
    keys: AtomicU64,
    errors: AtomicU64,
    backend_time: SharedHistogram,
}

/// The recorder of one thread: no lock, no locked instruction, and no allocation but for a range
/// of times that was never met before.
pub struct Recorder {
    /// Requests that wait for a worker.
    pub queue_length: LevelWriter,
    /// Workers that serve a request.
    pub workers_busy: LevelWriter,
    /// Client connections that are open.
    pub connections: LevelWriter,
    block: Arc<Block>,
    backends: Vec<Arc<BackendCell>>,
    shared: Arc<Shared>,
    stages: usize,
}

/// Everything that was counted up to one moment, merged.
#[derive(Debug, Clone)]
pub(crate) struct Totals {
    pub(crate) tier: &'static str,
    pub(crate) at_ns: u64,
    pub(crate) started_ns: u64,
    pub(crate) workers: u32,
    pub(crate) requests: Vec<(&'static str, RequestTotals)>,
    pub(crate) queue_length: LevelSnapshot,
    pub(crate) workers_busy: LevelSnapshot,
    pub(crate) held_time: Histogram,
    pub(crate) connections: LevelSnapshot,
    pub(crate) backends: Vec<BackendTotals>,
    pub(crate) outcomes: Vec<(&'static str, u64)>,
    pub(crate) limits: Vec<(&'static str, u64)>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct RequestTotals {
    pub(crate) arrivals: u64,
    pub(crate) completions: u64,
    pub(crate) stages: Vec<(&'static str, Histogram)>,
}

#[derive(Debug, Clone)]
pub(crate) struct BackendTotals {
    pub(crate) address: String,
    pub(crate) requests: u64,
    pub(crate) keys: u64,
    pub(crate) errors: u64,
    pub(crate) backend_time: Histogram,
}

impl Instruments {
    pub fn new(layout: Layout, clock: Clock) -> Self {
        let started_ns = clock.now_ns();
        let blocks = Mutex::new(Blocks::default());
        let workers = AtomicU32::new(0);
        let backends = Mutex::new(layout.backends.clone());
        let shared = Shared { layout, clock, started_ns, workers, backends, blocks };
        Self { shared: Arc::new(shared) }
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// A recorder for one thread. Dropped, it is used again by a later thread, so threads may
    /// come and go.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        let mut blocks = self.shared.blocks.lock();
        let block = blocks.free.pop().unwrap_or_else(|| {
            let block = Arc::new(Block::new(&self.shared.layout));
            blocks.all.push(Arc::clone(&block));
            block
        });
        let backends = block.backends.lock().clone();
        Recorder {
            queue_length: LevelWriter::new(Arc::clone(&block.queue_length)),
            workers_busy: LevelWriter::new(Arc::clone(&block.workers_busy)),
            connections: LevelWriter::new(Arc::clone(&block.connections)),
            backends,
            block,
            shared: Arc::clone(&self.shared),
            stages: COMMON_STAGES.len() + self.shared.layout.stages.len(),
        }
    }

    /// The number of a backend that is called so, by which recorders count it once they are told of it
    /// ([`Recorder::knows_backends`]). A name keeps its number, and what was counted stays.
    pub fn backend(&self, name: &str) -> usize {
        let mut backends = self.shared.backends.lock();
        let known = backends.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            backends.push(name.to_owned());
            backends.len() - 1
        })
    }

    /// States how many workers there are; 0 where there is no worker limit.
    pub fn set_workers(&self, workers: u32) {
        self.shared.workers.store(workers, Ordering::Relaxed);
    }

    /// The message of `GET /snapshot`.
    pub fn snapshot(&self) -> TierSnapshot {
        self.totals().into_snapshot()
    }

    /// Adds up what all threads recorded.
    pub(crate) fn totals(&self) -> Totals {
        let blocks = self.shared.blocks.lock().all.clone();
        let mut totals = Totals::new(&self.shared);
        for block in &blocks {
            totals.add(block);
        }
        totals
    }

    /// Counts without histograms: cheap enough for every second.
    pub(crate) fn counts(&self) -> Counts {
        let blocks = self.shared.blocks.lock().all.clone();
        let mut counts = Counts {
            at_ns: self.shared.clock.now_ns(),
            outcomes: self.names(),
            ..Counts::default()
        };
        for block in &blocks {
            counts.completions += sum(&block.completions);
            counts.arrivals += sum(&block.arrivals);
            block.queue_length.add_to(counts.at_ns, &mut counts.queue_length);
            block.workers_busy.add_to(counts.at_ns, &mut counts.workers_busy);
            block.connections.add_to(counts.at_ns, &mut counts.connections);
            for (total, cell) in counts.outcomes.iter_mut().zip(&block.outcomes) {
                total.1 += cell.load(Ordering::Relaxed);
            }
        }
        counts
    }

    /// Nanoseconds and requests in the stages that all tiers have, in their order, of all types of
    /// request: reads every cell of the histograms.
    pub(crate) fn stage_sums(&self) -> [(f64, u64); COMMON_STAGES.len()] {
        let blocks = self.shared.blocks.lock().all.clone();
        let each = COMMON_STAGES.len() + self.shared.layout.stages.len();
        let mut sums = [(0.0, 0); COMMON_STAGES.len()];
        for stages in blocks.iter().flat_map(|block| block.stages.chunks(each)) {
            for (sum, cell) in sums.iter_mut().zip(stages) {
                let (nanoseconds, count) = cell.sum();
                sum.0 += nanoseconds;
                sum.1 += count;
            }
        }
        sums
    }

    pub fn tier(&self) -> &'static str {
        self.shared.layout.tier
    }

    fn names(&self) -> Vec<(&'static str, u64)> {
        self.shared.layout.outcomes.iter().map(|name| (*name, 0)).collect()
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) at_ns: u64,
    pub(crate) arrivals: u64,
    pub(crate) completions: u64,
    pub(crate) queue_length: LevelSnapshot,
    pub(crate) workers_busy: LevelSnapshot,
    pub(crate) connections: LevelSnapshot,
    pub(crate) outcomes: Vec<(&'static str, u64)>,
}

impl Recorder {
    /// Counts a request whose last byte was read.
    #[inline]
    pub fn arrived(&mut self, request: RequestType) {
        increase(&self.block.arrivals[request.0], 1);
    }

    /// Counts a request whose answer was handed to the kernel, and its four stages.
    #[inline]
    pub fn completed(&mut self, request: RequestType, moments: &Moments) {
        let Moments { arrived_ns, dequeued_ns, backend, replied_ns } = *moments;
        let stages = &self.block.stages[request.0 * self.stages..][..COMMON_STAGES.len()];
        stages[0].record(dequeued_ns.saturating_sub(arrived_ns));
        stages[1].record(replied_ns.saturating_sub(dequeued_ns));
        if let Some(backend) = backend {
            stages[2].record(backend.received_ns.saturating_sub(backend.sent_ns));
        }
        stages[3].record(replied_ns.saturating_sub(arrived_ns));
        increase(&self.block.completions[request.0], 1);
    }

    /// Records time in a stage of the tier's own.
    #[inline]
    pub fn stage(&mut self, request: RequestType, stage: Stage, nanoseconds: u64) {
        let index = request.0 * self.stages + COMMON_STAGES.len() + stage.0;
        self.block.stages[index].record(nanoseconds);
    }

    /// Records how long a worker was held at a stretch, by a tier whose workers may serve several
    /// requests at once: once a batch.
    #[inline]
    pub fn held(&mut self, nanoseconds: u64) {
        self.block.held_time.record(nanoseconds);
    }

    #[inline]
    pub fn outcome(&mut self, outcome: Outcome, count: u64) {
        increase(&self.block.outcomes[outcome.0], count);
    }

    #[inline]
    pub fn limit_hit(&mut self, limit: Limit) {
        increase(&self.block.limits[limit.0], 1);
    }

    /// Counts bytes read from clients.
    #[inline]
    pub fn bytes_in(&mut self, bytes: u64) {
        increase(&self.block.bytes_in, bytes);
    }

    /// Counts bytes written to clients.
    #[inline]
    pub fn bytes_out(&mut self, bytes: u64) {
        increase(&self.block.bytes_out, bytes);
    }

    /// Counts a request sent to a backend, and its keys.
    #[inline]
    pub fn backend_sent(&mut self, backend: usize, keys: u64) {
        let cell = &self.backends[backend];
        increase(&cell.requests, 1);
        increase(&cell.keys, keys);
    }

    /// Records what a backend took to answer: `received − sent`.
    #[inline]
    pub fn backend_answered(&mut self, backend: usize, nanoseconds: u64) {
        self.backends[backend].backend_time.record(nanoseconds);
    }

    #[inline]
    pub fn backend_failed(&mut self, backend: usize) {
        increase(&self.backends[backend].errors, 1);
    }

    /// Makes room for so many backends: call it before one with a new number is counted.
    pub fn knows_backends(&mut self, count: usize) {
        let mut cells = self.block.backends.lock();
        while cells.len() < count {
            cells.push(Arc::new(BackendCell::new()));
        }
        self.backends.clone_from(&cells);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let mut blocks = self.shared.blocks.lock();
        blocks.free.push(Arc::clone(&self.block));
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("tier", &self.shared.layout.tier).finish_non_exhaustive()
    }
}

impl fmt::Debug for Instruments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instruments").field("layout", &self.shared.layout).finish_non_exhaustive()
    }
}

impl Block {
    fn new(layout: &Layout) -> Self {
        let types = layout.request_types.len();
        let stages = types * (COMMON_STAGES.len() + layout.stages.len());
        Self {
            arrivals: counters(types),
            completions: counters(types),
            stages: (0..stages).map(|_| SharedHistogram::new()).collect(),
            outcomes: counters(layout.outcomes.len()),
            limits: counters(layout.limits.len()),
            backends: Mutex::new(
                layout.backends.iter().map(|_| Arc::new(BackendCell::new())).collect(),
            ),
            held_time: SharedHistogram::new(),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            queue_length: Arc::default(),
            workers_busy: Arc::default(),
            connections: Arc::default(),
        }
    }
}

impl BackendCell {
    fn new() -> Self {
        Self {
            requests: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            backend_time: SharedHistogram::new(),
        }
    }
}

fn counters(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn sum(counters: &[AtomicU64]) -> u64 {
    counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
}

impl Totals {
    fn new(shared: &Shared) -> Self {
        let layout = &shared.layout;
        let names = shared.backends.lock().clone();
        let stages = || COMMON_STAGES.iter().chain(layout.stages).map(|s| (*s, Histogram::new()));
        let named = |names: &[&'static str]| names.iter().map(|name| (*name, 0)).collect();
        let request = || RequestTotals { arrivals: 0, completions: 0, stages: stages().collect() };
        let backend = |address: &String| BackendTotals {
            address: address.clone(),
            requests: 0,
            keys: 0,
            errors: 0,
            backend_time: Histogram::new(),
        };
        Self {
            tier: layout.tier,
            at_ns: shared.clock.now_ns(),
            started_ns: shared.started_ns,
            workers: shared.workers.load(Ordering::Relaxed),
            requests: layout.request_types.iter().map(|name| (*name, request())).collect(),
            queue_length: LevelSnapshot::default(),
            workers_busy: LevelSnapshot::default(),
            held_time: Histogram::new(),
            connections: LevelSnapshot::default(),
            backends: names.iter().map(backend).collect(),
            outcomes: named(layout.outcomes),
            limits: named(layout.limits),
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    fn add(&mut self, block: &Block) {
        for (index, (_, request)) in self.requests.iter_mut().enumerate() {
            // Completions first: a request counted as completed was counted as arrived before.
            request.completions += block.completions[index].load(Ordering::Acquire);
            request.arrivals += block.arrivals[index].load(Ordering::Acquire);
            let stages = request.stages.len();
            let cells = &block.stages[index * stages..][..stages];
            for ((_, histogram), cell) in request.stages.iter_mut().zip(cells) {
                cell.add_to(histogram);
            }
        }
        let backends = block.backends.lock().clone();
        for (backend, cell) in self.backends.iter_mut().zip(&backends) {
            backend.requests += cell.requests.load(Ordering::Relaxed);
            backend.keys += cell.keys.load(Ordering::Relaxed);
            backend.errors += cell.errors.load(Ordering::Relaxed);
            cell.backend_time.add_to(&mut backend.backend_time);
        }
        block.held_time.add_to(&mut self.held_time);
        for (total, cell) in self.outcomes.iter_mut().zip(&block.outcomes) {
            total.1 += cell.load(Ordering::Relaxed);
        }
        for (total, cell) in self.limits.iter_mut().zip(&block.limits) {
            total.1 += cell.load(Ordering::Relaxed);
        }
        self.bytes_in += block.bytes_in.load(Ordering::Relaxed);
        self.bytes_out += block.bytes_out.load(Ordering::Relaxed);
        block.queue_length.add_to(self.at_ns, &mut self.queue_length);
        block.workers_busy.add_to(self.at_ns, &mut self.workers_busy);
        block.connections.add_to(self.at_ns, &mut self.connections);
    }

    fn into_snapshot(self) -> TierSnapshot {
        let usage = process::usage();
        let named = |counts: Vec<(&'static str, u64)>| -> BTreeMap<String, u64> {
            counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
        };
        TierSnapshot {
            version: SNAPSHOT_VERSION,
            tier: self.tier.to_owned(),
            pid: std::process::id(),
            at_ns: self.at_ns,
            started_ns: self.started_ns,
            workers: self.workers,
            requests: self.requests.into_iter().map(request_snapshot).collect(),
            queue_length: self.queue_length,
            workers_busy: self.workers_busy,
            held_time: EncodedHistogram(self.held_time.encode()),
            connections: self.connections,
            backends: self.backends.into_iter().map(backend_snapshot).collect(),
            outcomes: named(self.outcomes),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            limits_hit: named(self.limits),
            cpu_user_ns: usage.cpu_user_ns,
            cpu_system_ns: usage.cpu_system_ns,
            spun_ns: None,
            counted: Vec::new(),
        }
    }
}

fn request_snapshot((name, totals): (&'static str, RequestTotals)) -> (String, RequestSnapshot) {
    let stages = totals.stages.iter();
    let snapshot = RequestSnapshot {
        arrivals: totals.arrivals,
        completions: totals.completions,
        stages: stages
            .map(|(stage, histogram)| ((*stage).to_owned(), EncodedHistogram(histogram.encode())))
            .collect(),
    };
    (name.to_owned(), snapshot)
}

fn backend_snapshot(totals: BackendTotals) -> BackendSnapshot {
    BackendSnapshot {
        address: totals.address,
        requests: totals.requests,
        keys: totals.keys,
        errors: totals.errors,
        backend_time: EncodedHistogram(totals.backend_time.encode()),
    }
}
