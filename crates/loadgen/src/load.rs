//! One load test: starts the threads, collects what they count, makes the result.

mod collector;
mod stalls;
mod unanswered;
mod verdict;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZero, NonZeroU64};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use kendall_protocols::snapshot::EncodedHistogram;
use kendall_stats::histogram::Histogram;
use kendall_tier::distribution::Distribution;

use crate::arrivals::ArrivalPlan;
use crate::checks;
use crate::clock::{MILLISECOND_NS, now_ns};
use crate::cost::Account;
use crate::driver::Driver;
use crate::due_times::{Pace, Turns};
use crate::engine::{Generator, ThreadPlan};
use crate::random::{Purpose, Random, stream};
use crate::recorder::{Recorder, Tally, WindowExchange, WindowRecord};
use crate::stages::Stages;
use collector::{Collected, Collector};
use kendall_protocols::load_result::{
    GapCheck, GeneratorThread, LoadResult, RESULT_VERSION, Redirects,
};

/// Windows that each thread has in reserve, and that may wait for the collector.
const WINDOWS_IN_RESERVE: usize = 3;
/// Longest wait for an answer before the load begins.
pub(crate) const PREPARATION: Duration = Duration::from_secs(10);

/// The part of a load that does not depend on its protocol.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    /// Addresses; connections are spread over them in turn.
    pub targets: Vec<SocketAddr>,
    /// Closed loop: the population. Open loop: connections.
    pub clients: usize,
    /// Generator threads; at most one for each client.
    pub threads: usize,
    /// How long requests are sent, in nanoseconds.
    pub duration_ns: u64,
    /// Requests that are sent at most; the load ends when the last is answered.
    pub requests: Option<NonZeroU64>,
    /// How long a reply is waited for, in nanoseconds.
    pub timeout_ns: u64,
    pub pace: PacePlan,
    pub seed: u64,
    /// Threads stay awake for this long before a moment: more precise, and it costs up to a core
    /// each. `None` to choose by the density of the arrivals and the cores that there are.
    pub spin_ns: Option<u64>,
    /// Starts at this moment of `CLOCK_MONOTONIC`, or at once where it has passed.
    pub start_at_ns: Option<u64>,
    pub limits: Limits,
}

/// When a run is rejected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// A request that is sent later than this after its moment is late, in nanoseconds.
    pub lateness_ns: u64,
    /// Open loop: largest share of late requests.
    pub late_share: f64,
    /// Open loop: largest share of arrivals that were never sent.
    pub unsent_share: f64,
    /// Largest CPU share of a generator thread.
    pub cpu_share: f64,
}

impl Default for Limits {
    /// 10 ms is the shortest time that a busy machine takes a core away for; a thread that is
    /// busy for 95 % of its time has no room left to be on time.
    fn default() -> Self {
        Self {
            lateness_ns: 10 * MILLISECOND_NS,
            late_share: 0.01,
            unsent_share: 0.001,
            cpu_share: 0.95,
        }
    }
}

/// When requests are due.
#[derive(Debug, Clone)]
pub enum PacePlan {
    /// Each client sends a think time after its last reply.
    Closed { think_time: Option<Distribution> },
    /// The same, with as many clients as the stages say.
    Stages { think_time: Option<Distribution>, clients: Stages },
    /// Requests are due independently of earlier replies.
    Open { arrivals: ArrivalPlan },
}

/// A load test that did not take place.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot connect to {target}; is the server running?")]
    Connect { target: SocketAddr, source: std::io::Error },
    /// It would not let the load in, or does not speak its protocol.
    #[error("{target} refused the connection: {said}")]
    Refused { target: SocketAddr, said: String },
    #[error("a generator thread failed")]
    Thread(#[source] std::io::Error),
}

/// How far a load test is; reported about once a second.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadProgress {
    /// Seconds of load so far.
    pub elapsed_s: u64,
    /// Completions in the last second.
    pub completed: u64,
    /// Errors in the last second.
    pub errors: u64,
    /// Mean response time of the last second, in nanoseconds.
    pub response_time_mean_ns: Option<f64>,
    /// 99th percentile of the response times of the last second, in nanoseconds.
    pub response_time_p99_ns: Option<u64>,
    /// Response times since the start.
    pub response_time: Histogram,
}

/// What one thread leaves behind.
pub(crate) struct ThreadEnd {
    pub(crate) tally: Tally,
    pub(crate) cost: GeneratorThread,
    pub(crate) ended_ns: u64,
}

/// Runs a load test. `driver` makes the driver of thread number n; `stop` ends it early.
///
/// # Errors
/// [`LoadError`] when a target cannot be reached at the start. What happens later is counted.
pub fn run<D: Driver>(
    protocol: &str,
    plan: &LoadPlan,
    driver: &(dyn Fn(usize) -> D + Sync),
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, LoadError> {
    let operations = driver(0).operations();
    let body = |start: Start<'_>, recorder: Recorder| {
        let driver = driver(start.place.thread);
        run_thread(&start, driver, recorder)
    };
    run_threads(protocol, plan, operations, &body, stop, progress)
}

/// What a thread does: connects, says that it is ready, waits for the start, loads.
pub(crate) type Body<'a> =
    dyn Fn(Start<'_>, Recorder) -> Result<Option<ThreadEnd>, std::io::Error> + Sync + 'a;

/// What a load counts.
pub(crate) struct Operations {
    pub(crate) names: Vec<String>,
    /// Behind them, the parts of requests that are counted by themselves: of which, and their names.
    pub(crate) steps: Vec<(String, String)>,
}

impl From<Vec<String>> for Operations {
    fn from(names: Vec<String>) -> Self {
        Self { names, steps: Vec::new() }
    }
}

impl Operations {
    fn count(&self) -> usize {
        self.names.len() + self.steps.len()
    }
}

/// Runs `body` in every thread, and makes the result of what they recorded.
pub(crate) fn run_threads(
    protocol: &str,
    plan: &LoadPlan,
    operations: impl Into<Operations>,
    body: &Body<'_>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, LoadError> {
    let operations = operations.into();
    let count = operations.count();
    let threads = plan.threads.clamp(1, plan.clients.max(1));
    let (full, windows) = sync_channel(threads * (WINDOWS_IN_RESERVE + 1));
    let (ready, readiness) = sync_channel(threads);
    let mut returns = Vec::new();
    let mut exchanges = Vec::new();
    for thread in 0..threads {
        let (give_back, empty) = sync_channel(WINDOWS_IN_RESERVE + 1);
        for _ in 0..WINDOWS_IN_RESERVE {
            give_back.try_send(Box::new(WindowRecord::new(thread, count))).unwrap_or_default();
        }
        returns.push(give_back);
        exchanges.push(WindowExchange { full: full.clone(), empty });
    }
    drop(full);
    std::thread::scope(|scope| {
        let mut starts = Vec::new();
        let mut handles = Vec::new();
        for (thread, exchange) in exchanges.into_iter().enumerate() {
            let (start, started) = sync_channel(1);
            starts.push(start);
            let recorder = Recorder::new(thread, count, exchange, plan.limits.lateness_ns);
            let ready = ready.clone();
            handles.push(scope.spawn(move || {
                let place = Place { thread, threads, plan, stop };
                // The kernel may end a wait this much later than asked, to save energy; 50 µs by
                // default.
                rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).unwrap_or_default();
                body(Start { place, ready, started }, recorder)
            }));
        }
        drop(ready);
        let prepared: Result<Vec<()>, LoadError> = readiness.iter().take(threads).collect();
        prepared?;
        // A moment that lies ahead, so that every thread is there when the load starts.
        let started_ns = (now_ns() + MILLISECOND_NS).max(plan.start_at_ns.unwrap_or(0));
        for start in &starts {
            start.send(started_ns).unwrap_or_default();
        }
        let mut collector = Collector::new(operations, threads, started_ns, returns);
        collect(&mut collector, &windows, progress);
        let mut ends = Vec::new();
        for handle in handles {
            let end = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ends.extend(end.map_err(LoadError::Thread)?);
        }
        Ok(result(protocol, plan, started_ns, collector, &ends))
    })
}

/// What a thread starts with.
pub(crate) struct Start<'a> {
    pub(crate) place: Place<'a>,
    ready: SyncSender<Result<(), LoadError>>,
    started: Receiver<u64>,
}

impl Start<'_> {
    /// Says that all connections are made, or why not. The moment of the start; `None` when the
    /// load was called off.
    pub(crate) fn wait(&self, connected: Result<(), LoadError>) -> Option<u64> {
        self.ready.send(connected).ok()?;
        self.started.recv().ok()
    }
}

/// Where a thread stands in the whole.
pub(crate) struct Place<'a> {
    pub(crate) thread: usize,
    threads: usize,
    pub(crate) plan: &'a LoadPlan,
    pub(crate) stop: &'a AtomicBool,
}

impl Place<'_> {
    /// The targets of this thread's connections: every `threads`-th of all.
    pub(crate) fn connections(&self) -> Vec<SocketAddr> {
        self.clients().map(|client| self.plan.targets[client % self.plan.targets.len()]).collect()
    }

    /// The numbers of this thread's clients, in the order of its connections.
    pub(crate) fn clients(&self) -> impl Iterator<Item = usize> + use<> {
        (self.thread..self.plan.clients).step_by(self.threads)
    }

    /// What each client of this thread goes over, as `connect` makes it of a target: of so many in the whole load, or of
    /// its own, which `connect` is told.
    pub(crate) async fn connect<C: Clone>(
        &self,
        all: Option<usize>,
        connect: impl AsyncFn(SocketAddr, bool) -> Result<C, LoadError>,
    ) -> Result<Vec<C>, LoadError> {
        let targets = self.connections();
        let count = all.map_or(targets.len(), |all| self.share(all).min(targets.len()));
        let mut connections = Vec::with_capacity(targets.len());
        for target in &targets[..count] {
            connections.push(connect(*target, count == targets.len()).await?);
        }
        for client in count..targets.len() {
            connections.push(connections[client % count].clone());
        }
        Ok(connections)
    }

    /// Draws the requests of this thread.
    pub(crate) fn random(&self) -> Rc<RefCell<Random>> {
        Rc::new(RefCell::new(stream(self.plan.seed, Purpose::Requests, self.thread)))
    }

    /// What each of so many operations is owed: by each client, or in the open loop, whose clients serve whatever
    /// arrival comes, by all of the thread.
    pub(crate) fn owed(&self, operations: usize) -> impl Fn() -> Rc<RefCell<Vec<f64>>> + use<> {
        let nothing = move || Rc::new(RefCell::new(vec![0.0; operations]));
        let together = matches!(self.plan.pace, PacePlan::Open { .. }).then(nothing);
        move || together.clone().unwrap_or_else(nothing)
    }

    /// This thread's part of `all` things, at least one.
    pub(crate) fn share(&self, all: usize) -> usize {
        (all / self.threads + usize::from(self.thread < all % self.threads)).max(1)
    }

    /// This thread's part of the requests.
    pub(crate) fn requests(&self) -> u64 {
        let (thread, threads) = (self.thread as u64, self.threads as u64);
        self.plan
            .requests
            .map_or(u64::MAX, |all| all.get() / threads + u64::from(thread < all.get() % threads))
    }

    pub(crate) fn pace(&self) -> Pace {
        match &self.plan.pace {
            PacePlan::Closed { think_time } => self.closed(think_time.as_ref(), None),
            PacePlan::Stages { think_time, clients } => {
                let (thread, threads) = (self.thread, self.threads);
                let turns = Turns { stages: clients.clone(), thread, threads };
                self.closed(think_time.as_ref(), Some(turns))
            }
            PacePlan::Open { arrivals } => {
                Pace::Open(arrivals.part(self.plan.seed, self.thread, self.threads))
            }
        }
    }

    fn closed(&self, think_time: Option<&Distribution>, turns: Option<Turns>) -> Pace {
        Pace::Closed {
            think_time: think_time.cloned(),
            random: stream(self.plan.seed, Purpose::ThinkTimes, self.thread),
            stagger_ns: self.stagger_ns(think_time),
            turns,
        }
    }

    pub(crate) fn ends_ns(&self, started_ns: u64) -> u64 {
        started_ns.saturating_add(self.plan.duration_ns)
    }

    /// Makes a recorder ready for the load that starts at `started_ns`.
    pub(crate) fn prepare(&self, recorder: &mut Recorder, started_ns: u64) {
        recorder.keep_moments(self.moments());
        recorder.start(started_ns, self.ends_ns(started_ns));
        if matches!(self.plan.pace, PacePlan::Closed { .. }) {
            recorder.keep_silences(started_ns);
        }
    }

    /// How long before a moment a thread stops sleeping and asks again and again.
    ///
    /// A core that sleeps takes 20 to 100 µs to wake up, and on a virtual machine milliseconds now
    /// and then, since its host has given the core away; one that is kept awake keeps the schedule
    /// to a microsecond (figures in docs/load.md). So where arrivals are dense and a core is left
    /// for everything else, the open loop never sleeps.
    fn spin_ns(&self) -> u64 {
        const DENSE_NS: f64 = 1e6;
        const MOMENT_NS: u64 = 50_000;
        if let Some(spin_ns) = self.plan.spin_ns {
            return spin_ns;
        }
        let PacePlan::Open { arrivals } = &self.plan.pace else { return 0 };
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = kendall_units::exact_f64(self.threads);
        let gap_ns = arrivals.rate().map_or(f64::INFINITY, |rate| threads * 1e9 / rate);
        if cores <= self.threads {
            0
        } else if gap_ns <= DENSE_NS {
            u64::MAX
        } else {
            MOMENT_NS
        }
    }

    /// Room for the moments of all requests of this thread, up to a limit of all threads.
    fn moments(&self) -> usize {
        const MOST_MOMENTS: usize = 4_000_000; // 64 MB
        let PacePlan::Open { arrivals } = &self.plan.pace else { return 0 };
        let expected = match (arrivals, arrivals.rate()) {
            (ArrivalPlan::Trace(moments), _) => moments.len(),
            (_, Some(rate)) => {
                let seconds = kendall_units::Seconds::from_nanos(self.plan.duration_ns).get();
                // Far beyond what a Poisson process strays from its mean.
                let count = kendall_units::whole_u64(rate * seconds * 1.1) + 1_000;
                usize::try_from(count).unwrap_or(MOST_MOMENTS)
            }
            _ => MOST_MOMENTS,
        };
        expected.min(MOST_MOMENTS) / self.threads + 1
    }

    /// First requests are spread over a mean think time, at least 10 ms and at most a tenth of the
    /// load, so that the clients do not arrive as one.
    fn stagger_ns(&self, think_time: Option<&Distribution>) -> u64 {
        let mean = think_time.and_then(Distribution::mean).unwrap_or(0.0);
        let mean_ns = kendall_units::Seconds::new(mean).as_nanos();
        mean_ns.max(10 * MILLISECOND_NS).min(self.plan.duration_ns / 10)
    }
}

/// One generator thread, from its connections to its accounts. `None` when the load was called off.
fn run_thread<D: Driver>(
    start: &Start<'_>,
    driver: D,
    recorder: Recorder,
) -> Result<Option<ThreadEnd>, std::io::Error> {
    let place = &start.place;
    let plan = ThreadPlan {
        connections: place.connections(),
        timeout_ns: place.plan.timeout_ns,
        spin_ns: place.spin_ns(),
        requests: place.requests(),
        stop: place.stop,
    };
    let generator = Generator::connect(plan, driver, place.pace(), recorder);
    let (generator, connected) = match generator {
        Ok(generator) => (Some(generator), Ok(())),
        Err((target, source)) => (None, Err(LoadError::Connect { target, source })),
    };
    let Some((started_ns, mut generator)) = start.wait(connected).zip(generator) else {
        return Ok(None);
    };
    place.prepare(&mut generator.recorder, started_ns);
    let before = Account::of_this_thread(now_ns());
    let ended = generator.run(started_ns, place.ends_ns(started_ns))?;
    let cost = Account::of_this_thread(now_ns()).since(before, ended.spun_ns);
    Ok(Some(ThreadEnd { tally: ended.tally, cost, ended_ns: ended.ended_ns }))
}

/// Takes windows until every thread has ended.
fn collect(
    collector: &mut Collector,
    windows: &Receiver<Box<WindowRecord>>,
    progress: &mut dyn FnMut(&LoadProgress),
) {
    for window in windows {
        if let Some(moment) = collector.take(window) {
            progress(&moment);
        }
    }
}

fn result(
    protocol: &str,
    plan: &LoadPlan,
    started_ns: u64,
    collector: Collector,
    ends: &[ThreadEnd],
) -> LoadResult {
    let ended_ns = ends.iter().map(|end| end.ended_ns).max().unwrap_or(started_ns);
    let mut lateness = Histogram::new();
    let mut connection_wait = Histogram::new();
    for end in ends {
        lateness.add(&end.tally.lateness);
        // A histogram cannot hold 0, so 1 ns stands for it.
        lateness.record_n(1, end.tally.on_time);
        connection_wait.add(&end.tally.connection_wait);
    }
    let (think_time, arrivals) = match &plan.pace {
        PacePlan::Closed { think_time } | PacePlan::Stages { think_time, .. } => {
            (think_time.as_ref(), None)
        }
        PacePlan::Open { arrivals } => (None, Some(arrivals)),
    };
    let (gaps, gap_check) =
        arrivals.map_or_else(Default::default, |arrivals| stream_of_requests(arrivals, ends));
    let Collected { windows, drained, operations, steps } = collector.finish(ended_ns);
    let waits = ends.iter().flat_map(|end| end.tally.waiting.iter().copied());
    let unanswered = unanswered::find(waits, operations.values());
    let mut result = LoadResult {
        version: RESULT_VERSION,
        protocol: protocol.to_owned(),
        targets: plan.targets.iter().map(ToString::to_string).collect(),
        r#loop: if arrivals.is_some() { "open" } else { "closed" }.to_owned(),
        clients: plan.clients as u64,
        started_ns,
        ended_ns,
        think_time_mean_ns: think_time
            .and_then(Distribution::mean)
            .map_or(0, |mean| kendall_units::Seconds::new(mean).as_nanos()),
        arrival_rate_per_s: arrivals.and_then(ArrivalPlan::rate),
        windows,
        drained,
        operations,
        steps,
        lateness: EncodedHistogram(lateness.encode()),
        gaps: EncodedHistogram(gaps.encode()),
        connection_wait: EncodedHistogram(connection_wait.encode()),
        unsent: ends.iter().map(|end| end.tally.unsent).sum(),
        gap_check,
        reconnects: ends.iter().map(|end| end.tally.reconnects).sum(),
        sent_anew: ends.iter().map(|end| end.tally.sent_anew).sum(),
        redirects: redirects(ends),
        seed: plan.seed,
        threads: ends.iter().map(|end| end.cost.clone()).collect(),
        statuses: statuses(ends),
        stalls: stalls::find(ends.iter().map(|end| &end.tally.silences)),
        unanswered,
        ..LoadResult::default()
    };
    let late = ends.iter().map(|end| end.tally.late).sum();
    let stood_still_ns = ends.iter().map(|end| end.tally.stood_still_ns).min().unwrap_or(0);
    verdict::judge(
        &mut result,
        &plan.limits,
        &verdict::Evidence { late, stood_still_ns, lateness, connection_wait },
    );
    result
}

/// Redirects of a cluster, where there were any.
fn redirects(ends: &[ThreadEnd]) -> Option<Redirects> {
    let sum = |of: fn(&Tally) -> u64| ends.iter().map(|end| of(&end.tally)).sum();
    let all = Redirects { moved: sum(|tally| tally.moved), ask: sum(|tally| tally.asked) };
    (all.moved + all.ask > 0).then_some(all)
}

/// Replies by status code.
fn statuses(ends: &[ThreadEnd]) -> BTreeMap<u16, u64> {
    let mut all = BTreeMap::new();
    for end in ends {
        for (status, count) in (0_u16..).zip(end.tally.statuses.iter()).skip(1) {
            if *count > 0 {
                *all.entry(status).or_default() += count;
            }
        }
    }
    all
}

/// Gaps between the requests of all threads, and how they compare with the plan.
fn stream_of_requests(arrivals: &ArrivalPlan, ends: &[ThreadEnd]) -> (Histogram, Option<GapCheck>) {
    let moments = |pick: fn(&(u64, u64)) -> u64| {
        let mut all: Vec<u64> =
            ends.iter().flat_map(|end| end.tally.moments.iter().map(pick)).collect();
        all.sort_unstable();
        all
    };
    let (planned, sent) = (moments(|moment| moment.0), moments(|moment| moment.1));
    let mut histogram = Histogram::new();
    for gap in checks::gaps(&sent) {
        histogram.record(gap.max(1));
    }
    (histogram, checks::check_gaps(&planned, &sent, arrivals.is_poisson()))
}
