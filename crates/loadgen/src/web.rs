//! HTTP over TLS, and HTTP/2: hyper and rustls on one single-threaded runtime a generator thread.
//!
//! The schedule, the records and the verdict are those of the engine; what differs is that a
//! request costs several times as much. The runtime's own timers tick in milliseconds, so waits
//! are timers of the kernel that the runtime watches like a socket. A connection carries one
//! request at a time, in HTTP/2 too. Bytes are those of requests as HTTP/1.1 text and of bodies of
//! replies: what encryption and compression make of them is the libraries' own business.

mod connection;
mod tls;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::task::{JoinSet, LocalSet};

use crate::clock::{MILLISECOND_NS, SECOND_NS, now_ns};
use crate::cost::Account;
use crate::driver::{ErrorKind, Reply};
use crate::http::{HttpPlan, Template};
use crate::load::{LoadError, LoadPlan, LoadProgress, Place, Start, ThreadEnd, run_threads};
use crate::pace::Pace;
use crate::random::{Purpose, Random, stream};
use crate::recorder::{Recorder, Tally};
use crate::result::LoadResult;
use connection::{Connection, Connector};

/// Longest wait: how soon a stop is seen.
const LONGEST_WAIT_NS: u64 = 50 * MILLISECOND_NS;

/// Longest pause between attempts to connect.
const LONGEST_PAUSE_NS: u64 = SECOND_NS;

/// What a load over TLS or HTTP/2 sends, and how.
#[derive(Debug, Clone)]
pub struct WebPlan {
    /// The requests.
    pub content: HttpPlan,
    /// TLS: the name that the server's certificate must have.
    pub tls: Option<String>,
    /// TLS: take any certificate.
    pub insecure: bool,
    /// HTTP/2; without TLS by prior knowledge.
    pub http2: bool,
}

/// Runs a load test over TLS or HTTP/2.
///
/// # Errors
/// [`LoadError`] when a target cannot be reached at the start. What happens later is counted.
pub fn run(
    plan: &LoadPlan,
    web: &WebPlan,
    template: &Template,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, LoadError> {
    let connector = Connector::new(web).map_err(LoadError::Thread)?;
    let body = |start: Start<'_>, recorder: Recorder| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let random = stream(plan.seed, Purpose::Requests, start.place.thread);
        let requests = Requests { template: template.clone(), random, body: Vec::new() };
        let local = LocalSet::new();
        local.block_on(&runtime, run_thread(&start, &connector, requests, recorder))
    };
    run_threads("http", plan, vec![web.content.method.clone()], &body, stop, progress)
}

/// Makes requests.
struct Requests {
    template: Template,
    random: Random,
    body: Vec<u8>,
}

/// What the tasks of one thread share.
struct Shared {
    recorder: Recorder,
    pace: Pace,
    requests: Requests,
    started_ns: u64,
    ends_ns: u64,
    timeout_ns: u64,
    late_ns: u64,
}

async fn run_thread(
    start: &Start<'_>,
    connector: &Connector,
    requests: Requests,
    mut recorder: Recorder,
) -> Result<Option<ThreadEnd>, std::io::Error> {
    let place = &start.place;
    let timeout_ns = place.plan.timeout_ns;
    let (connections, connected) = connect_all(&place.connections(), connector, timeout_ns).await;
    let Some(started_ns) = start.wait(connected) else { return Ok(None) };
    place.prepare(&mut recorder, started_ns);
    let before = Account::of_this_thread(now_ns());
    let shared = Rc::new(RefCell::new(Shared {
        recorder,
        pace: place.pace(),
        requests,
        started_ns,
        ends_ns: place.ends_ns(started_ns),
        timeout_ns,
        late_ns: place.plan.limits.lateness_ns,
    }));
    let mut tasks = JoinSet::new();
    let count = connections.len() as u64;
    for (index, connection) in (0..).zip(connections) {
        let (shared, connector) = (Rc::clone(&shared), connector.clone());
        let first_ns = match &shared.borrow().pace {
            Pace::Closed { stagger_ns, .. } => started_ns + stagger_ns * index / count,
            Pace::Open(_) => 0,
        };
        tasks.spawn_local(client(shared, connector, connection, first_ns));
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

async fn connect_all(
    targets: &[SocketAddr],
    connector: &Connector,
    timeout_ns: u64,
) -> (Vec<Connection>, Result<(), LoadError>) {
    let mut connections = Vec::with_capacity(targets.len());
    for target in targets {
        let mut connection = Connection::new(*target);
        let limit = Duration::from_nanos(timeout_ns);
        let opened = match tokio::time::timeout(limit, connection.open(connector)).await {
            Ok(opened) => opened,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        };
        if let Err(source) = opened {
            return (connections, Err(LoadError::Connect { target: *target, source }));
        }
        connections.push(connection);
    }
    (connections, Ok(()))
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
            }
            shared.recorder.roll(now);
            let last = match shared.pace {
                Pace::Closed { .. } => shared.ends_ns,
                Pace::Open(_) => shared.ends_ns.saturating_add(shared.timeout_ns),
            };
            if now >= last {
                return Ok(());
            }
            last.min(now + LONGEST_WAIT_NS)
        };
        while tasks.try_join_next().is_some() {}
        if tasks.is_empty() {
            return Ok(());
        }
        timer.sleep_until(until).await?;
    }
}

/// Arrivals that were never sent are counted; the collector is let go.
fn finish(mut shared: Shared) -> Tally {
    while next_arrival(&mut shared).is_some() {
        shared.recorder.tally.unsent += 1;
    }
    shared.recorder.finish()
}

/// Takes the next arrival before the end.
fn next_arrival(shared: &mut Shared) -> Option<u64> {
    let Pace::Open(arrivals) = &mut shared.pace else { return None };
    let due = arrivals.next_ns()? + shared.started_ns;
    (due < shared.ends_ns).then(|| {
        arrivals.advance();
        due
    })
}

/// One connection: sends one request after the other until the end.
async fn client(
    shared: Rc<RefCell<Shared>>,
    connector: Connector,
    mut connection: Connection,
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
        if timer.sleep_until(due).await.is_err() || (!open && due >= shared.borrow().ends_ns) {
            return;
        }
        let request = write(&shared, due, if open { free_ns } else { 0 });
        let exchange = connection.exchange(&connector, &request);
        let outcome = tokio::time::timeout(timeout, exchange).await;
        let done = now_ns();
        let outcome = outcome.unwrap_or(Err(ErrorKind::TimedOut));
        if outcome.is_err() {
            connection.close();
        }
        let pause = record(&mut shared.borrow_mut(), outcome, due, done, &mut failures);
        free_ns = done + pause;
        due = done + pause.max(think_ns(&mut shared.borrow_mut()));
        if open && pause > 0 && timer.sleep_until(free_ns).await.is_err() {
            return;
        }
    }
}

/// Counts what became of a request; how long to pause after it.
fn record(
    shared: &mut Shared,
    outcome: Result<(Reply, u64), ErrorKind>,
    due: u64,
    done: u64,
    failures: &mut u32,
) -> u64 {
    match outcome {
        Ok((reply, bytes)) => {
            shared.recorder.replied(0, bytes, reply, due, done);
            *failures = 0;
            0
        }
        Err(kind) => {
            shared.recorder.failed(0, kind, done);
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

/// Draws a request and counts it as sent.
fn write(shared: &Rc<RefCell<Shared>>, due: u64, free_ns: u64) -> Vec<u8> {
    let mut shared = shared.borrow_mut();
    let shared = &mut *shared;
    let mut text = Vec::new();
    let requests = &mut shared.requests;
    requests.template.write(&mut requests.random, &mut requests.body, &mut text);
    let sent = now_ns();
    let lateness = sent.saturating_sub(due.max(free_ns));
    if free_ns > due {
        shared.recorder.tally.connection_wait.record(free_ns - due);
    }
    if lateness > shared.late_ns {
        shared.recorder.tally.late += 1;
    }
    if matches!(shared.pace, Pace::Open(_)) {
        shared.recorder.moment(due, sent);
    }
    shared.recorder.sent(0, text.len() as u64, lateness);
    text
}

/// A timer of the kernel, to the nanosecond.
struct Timer(AsyncFd<std::os::fd::OwnedFd>);

impl Timer {
    #[expect(
        deprecated,
        reason = "`register` is unsafe because a type may change its descriptor; an `OwnedFd` cannot"
    )]
    fn new() -> Result<Self, std::io::Error> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    async fn sleep_until(&self, moment_ns: u64) -> Result<(), std::io::Error> {
        if moment_ns <= now_ns() {
            return Ok(());
        }
        let at = Timespec {
            tv_sec: i64::try_from(moment_ns / SECOND_NS).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(moment_ns % SECOND_NS).unwrap_or(0),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
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

/// What a status means.
fn reply_of(status: u16) -> Reply {
    let error = match status {
        200..=299 => None,
        300..=399 => Some(ErrorKind::Status3xx),
        400..=499 => Some(ErrorKind::Status4xx),
        500..=599 => Some(ErrorKind::Status5xx),
        _ => Some(ErrorKind::Status1xx),
    };
    Reply { error, ..Reply::default() }
}
