//! The loop of one generator thread for protocols that a library speaks: one task a client, on one
//! single-threaded runtime.
//!
//! The schedule, the records and the verdict are those of the engine; what differs is that a
//! request costs several times as much. The runtime's own timers tick in milliseconds, so waits
//! are timers of the kernel that the runtime watches like a socket. A client has one request at a
//! time in flight.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::task::{JoinSet, LocalSet};

use crate::clock::{MILLISECOND_NS, SECOND_NS, now_ns, timespec};
use crate::cost::Account;
use crate::driver::{ErrorKind, Reply};
use crate::due_times::Pace;
use crate::load::{LoadError, Place, Start, ThreadEnd};
use crate::recorder::{Recorder, Tally};

/// Longest wait: how soon a stop is seen.
const LONGEST_WAIT_NS: u64 = 50 * MILLISECOND_NS;

/// Longest pause between attempts to connect.
const LONGEST_PAUSE_NS: u64 = SECOND_NS;

/// One client: what a protocol brings to the loop.
pub(crate) trait Client {
    /// Draws the next request: the index of its operation, and its bytes.
    fn draw(&mut self) -> (usize, u64);

    /// Sends the request that was drawn and reads its reply to the end; connects first where it
    /// must. The reply, and its bytes.
    async fn exchange(&mut self) -> Result<(Reply, u64), ErrorKind>;

    /// The same within a limit. A request of several parts has it for each of them, and counts them.
    async fn perform(
        &mut self,
        _parts: &Parts<'_>,
        limit: Duration,
    ) -> Result<(Reply, u64), ErrorKind> {
        tokio::time::timeout(limit, self.exchange()).await.unwrap_or(Err(ErrorKind::TimedOut))
    }

    /// The exchange failed or took too long.
    fn failed(&mut self, kind: ErrorKind);

    /// Requests that were sent once more since the last call, because the server had not taken them.
    fn sent_anew(&mut self) -> u64 {
        0
    }
}

/// Counts the parts of a request, one after the other.
pub(crate) struct Parts<'a> {
    shared: &'a RefCell<Shared>,
    client: usize,
    operation: usize,
    /// When the part is due.
    due: Cell<u64>,
    /// Time between parts.
    paused_ns: Cell<u64>,
}

impl Parts<'_> {
    pub(crate) fn sent(&self, part: usize) {
        let mut shared = self.shared.borrow_mut();
        shared.in_flight[self.client] = Some(self.due.get());
        shared.recorder.part_sent(part);
    }

    /// A part is answered, or has failed. The next is due now.
    pub(crate) fn ended(
        &self,
        part: usize,
        bytes_out: u64,
        outcome: Result<(Reply, u64), ErrorKind>,
    ) {
        let done = now_ns();
        let mut shared = self.shared.borrow_mut();
        shared.recorder.part_bytes(self.operation, part, bytes_out);
        match outcome {
            Ok((reply, bytes)) => {
                shared.recorder.replied(part, bytes, reply, self.due.get(), done);
            }
            Err(kind) => shared.recorder.failed(part, kind, done),
        }
        self.due.set(done);
    }

    /// Counts bytes that were not known when the request was drawn.
    pub(crate) fn more_bytes(&self, bytes: u64) {
        self.shared.borrow_mut().recorder.onward(self.operation, bytes, Reply::default());
    }

    /// Waits before the next part.
    pub(crate) async fn pause(&self, timer: &Timer, time_ns: u64) -> Result<(), ErrorKind> {
        self.shared.borrow_mut().in_flight[self.client] = None;
        let until = self.due.get().saturating_add(time_ns);
        timer.sleep_until(until).await.map_err(|_| ErrorKind::TimedOut)?;
        self.paused_ns.set(self.paused_ns.get().saturating_add(time_ns));
        self.due.set(until);
        Ok(())
    }
}

/// A connection to a target that is made within a limit.
pub(crate) async fn within(
    limit: Duration,
    target: SocketAddr,
    open: impl Future<Output = Result<(), std::io::Error>>,
) -> Result<(), LoadError> {
    let opened = tokio::time::timeout(limit, open).await;
    let opened = opened.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    opened.map_err(|source| LoadError::Connect { target, source })
}

/// Waits on a runtime of this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(LocalSet::new().block_on(&runtime, future))
}

/// Connects the clients, and runs the thread's part of a load.
pub(crate) fn run_thread<C: Client + 'static>(
    start: &Start<'_>,
    clients: impl Future<Output = Result<Vec<C>, LoadError>>,
    recorder: Recorder,
) -> Result<Option<ThreadEnd>, std::io::Error> {
    block_on(async { run_clients(start, clients.await, recorder).await })?
}

async fn run_clients<C: Client + 'static>(
    start: &Start<'_>,
    clients: Result<Vec<C>, LoadError>,
    mut recorder: Recorder,
) -> Result<Option<ThreadEnd>, std::io::Error> {
    let place = &start.place;
    let (clients, connected) = match clients {
        Ok(clients) => (clients, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    };
    let Some(started_ns) = start.wait(connected) else { return Ok(None) };
    place.prepare(&mut recorder, started_ns);
    let before = Account::of_this_thread(now_ns());
    let shared = Rc::new(RefCell::new(Shared {
        recorder,
        pace: place.pace(),
        started_ns,
        ends_ns: place.ends_ns(started_ns),
        timeout_ns: place.plan.timeout_ns,
        left: place.requests(),
        last_done_ns: started_ns,
        looked_ns: started_ns,
        in_flight: vec![None; clients.len()],
    }));
    let mut tasks = JoinSet::new();
    let count = clients.len() as u64;
    for (index, client) in (0..).zip(clients) {
        let number = tasks.len();
        let first_ns = match &shared.borrow().pace {
            Pace::Closed { stagger_ns, .. } => started_ns + stagger_ns * index / count,
            Pace::Open(_) => 0,
        };
        tasks.spawn_local(run_client(Rc::clone(&shared), client, number, first_ns));
    }
    watch(place, &shared, &mut tasks).await?;
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    let ended_ns = shared.borrow().ends_ns;
    let cost = Account::of_this_thread(now_ns()).since(before, 0);
    let Some(shared) = Rc::into_inner(shared) else {
        return Err(std::io::Error::other("a client outlived its load"));
    };
    let tally = finish(shared.into_inner());
    Ok(Some(ThreadEnd { tally, cost, ended_ns }))
}

/// What the tasks of one thread share.
struct Shared {
    recorder: Recorder,
    pace: Pace,
    started_ns: u64,
    ends_ns: u64,
    timeout_ns: u64,
    /// Requests that may still be sent.
    left: u64,
    /// When the last exchange ended.
    last_done_ns: u64,
    /// When the clients last had a turn, at the latest.
    looked_ns: u64,
    /// By client: when its request was due that is under way.
    in_flight: Vec<Option<u64>>,
}

/// Ends the load in time, and hands windows over while nothing is recorded.
async fn watch(
    place: &Place<'_>,
    shared: &Rc<RefCell<Shared>>,
    tasks: &mut JoinSet<()>,
) -> Result<(), std::io::Error> {
    let timer = Timer::new()?;
    loop {
        let now = now_ns();
        let until = {
            let mut shared = shared.borrow_mut();
            if place.stop.load(Ordering::Relaxed) {
                shared.ends_ns = shared.ends_ns.min(now);
                let ends_ns = shared.ends_ns;
                shared.recorder.end_at(ends_ns);
            }
            shared.recorder.roll(now);
            let last = match shared.pace {
                Pace::Closed { .. } => shared.ends_ns,
                Pace::Open(_) => shared.ends_ns.saturating_add(shared.timeout_ns),
            };
            let pause = if shared.left == 0 { MILLISECOND_NS } else { LONGEST_WAIT_NS };
            let until = last.min(now + pause);
            shared.recorder.looks(now, until);
            if now >= last {
                return Ok(());
            }
            shared.looked_ns = now;
            until
        };
        while tasks.try_join_next().is_some() {}
        if tasks.is_empty() {
            let mut shared = shared.borrow_mut();
            if shared.left == 0 {
                shared.ends_ns = shared.ends_ns.min(shared.last_done_ns);
            }
            return Ok(());
        }
        timer.sleep_until(until).await?;
    }
}

/// Counts arrivals that were never sent, and ends the recorder.
fn finish(mut shared: Shared) -> Tally {
    while next_arrival(&mut shared).is_some() {
        shared.recorder.tally.unsent += 1;
    }
    let waited = |due: &u64| shared.looked_ns.saturating_sub(*due);
    shared.recorder.tally.waiting = shared.in_flight.iter().flatten().map(waited).collect();
    shared.recorder.finish(shared.ends_ns)
}

/// Takes the next arrival before the end.
fn next_arrival(shared: &mut Shared) -> Option<u64> {
    let Pace::Open(arrivals) = &mut shared.pace else { return None };
    let due = arrivals.next_ns()? + shared.started_ns;
    (due < shared.ends_ns && shared.left > 0).then(|| {
        arrivals.advance();
        due
    })
}

/// One client: sends one request after the other until the end.
async fn run_client<C: Client>(
    shared: Rc<RefCell<Shared>>,
    mut client: C,
    number: usize,
    mut due: u64,
) {
    let Ok(timer) = Timer::new() else { return };
    let timeout = Duration::from_nanos(shared.borrow().timeout_ns);
    let mut free_ns = 0;
    let mut failures = 0_u32;
    loop {
        let open = matches!(shared.borrow().pace, Pace::Open(_));
        if open {
            let Some(next) = next_arrival(&mut shared.borrow_mut()) else { return };
            due = next;
        }
        if !open {
            let shared = shared.borrow();
            let offset = due.saturating_sub(shared.started_ns);
            let Some(from) = shared.pace.takes_part_ns(number, offset) else { return };
            due = due.max(shared.started_ns + from);
        }
        if timer.sleep_until(due).await.is_err() || (!open && due >= shared.borrow().ends_ns) {
            return;
        }
        if !take_one(&mut shared.borrow_mut().left) {
            return;
        }
        let (operation, bytes) = client.draw();
        let moments = (due, if open { free_ns } else { 0 }, now_ns());
        shared.borrow_mut().recorder.sent(operation, bytes, moments);
        shared.borrow_mut().in_flight[number] = Some(due);
        let parts = Parts {
            shared: &shared,
            client: number,
            operation,
            due: Cell::new(due),
            paused_ns: Cell::new(0),
        };
        let outcome = client.perform(&parts, timeout).await;
        let paused_ns = parts.paused_ns.get();
        shared.borrow_mut().in_flight[number] = None;
        let done = now_ns();
        if let Err(kind) = outcome {
            client.failed(kind);
        }
        shared.borrow_mut().last_done_ns = done;
        shared.borrow_mut().recorder.tally.sent_anew += client.sent_anew();
        let times = (due.saturating_add(paused_ns), done);
        let pause = record(&mut shared.borrow_mut(), operation, outcome, times, &mut failures);
        free_ns = done + pause;
        due = done + pause.max(think_ns(&mut shared.borrow_mut()));
        if open && pause > 0 && timer.sleep_until(free_ns).await.is_err() {
            return;
        }
    }
}

/// Takes one of the requests that may still be sent, if there is one.
fn take_one(left: &mut u64) -> bool {
    let taken = *left > 0;
    *left = left.saturating_sub(1);
    taken
}

/// Counts what became of a request; how long to pause after it.
fn record(
    shared: &mut Shared,
    operation: usize,
    outcome: Result<(Reply, u64), ErrorKind>,
    (due, done): (u64, u64),
    failures: &mut u32,
) -> u64 {
    match outcome {
        Ok((reply, bytes)) => {
            shared.recorder.replied(operation, bytes, reply, due, done);
            *failures = 0;
            0
        }
        Err(kind) => {
            shared.recorder.failed(operation, kind, done);
            shared.recorder.tally.reconnects += 1;
            let pause = (MILLISECOND_NS << (*failures).min(20)).min(LONGEST_PAUSE_NS);
            *failures += 1;
            pause
        }
    }
}

fn think_ns(shared: &mut Shared) -> u64 {
    match &mut shared.pace {
        Pace::Closed { think_time: Some(think_time), random, .. } => {
            kendall_units::Seconds::new(think_time.sample(random)).as_nanos()
        }
        _ => 0,
    }
}

/// Runs what a connection does by itself beside the clients of the same thread.
#[derive(Clone)]
pub(crate) struct SameThread;

impl<F: Future + 'static> hyper::rt::Executor<F> for SameThread {
    fn execute(&self, future: F) {
        drop(tokio::task::spawn_local(async move {
            future.await;
        }));
    }
}

/// A timer of the kernel, to the nanosecond.
pub(crate) struct Timer(AsyncFd<std::os::fd::OwnedFd>);

impl Timer {
    #[expect(
        deprecated,
        reason = "`register` is unsafe because a type may change its descriptor; an `OwnedFd` cannot"
    )]
    pub(crate) fn new() -> Result<Self, std::io::Error> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    pub(crate) async fn sleep_until(&self, moment_ns: u64) -> Result<(), std::io::Error> {
        if moment_ns <= now_ns() {
            return Ok(());
        }
        let once = Itimerspec { it_interval: timespec(0), it_value: timespec(moment_ns) };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once)?;
        while now_ns() < moment_ns {
            let mut guard = self.0.readable().await?;
            let mut count = [0; 8];
            match rustix::io::read(self.0.get_ref(), &mut count) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}
