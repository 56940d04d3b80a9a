//! Scheduler, workers and clients as they are, over a network and a time that the test makes: parts fall
//! silent, are cut off, end and start again at random. After that all is as it should be: every worker
//! that lives has all its slots on the board within two heartbeats, and every action was answered once.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise; its tasks end with its runtime"
)]

mod actors;
mod cache;
mod network;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kendall_tier::{Clock, Instruments, ManualClock};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::actors::{Log, Time};
use self::network::{Gate, Link, Site};
use super::board::{Board, Limits};
use super::execution::{ActionLimits, Service};
use super::report::{self, Report};
use super::shared_board::SharedBoard;
use crate::instruments::Families;
use crate::remote::Remote;

const SECOND: u64 = 1_000_000_000;
/// The scheduler's tick, and the test's step.
const STEP: u64 = SECOND / 10;
const BEAT: u64 = 2 * SECOND;
const WORKERS: usize = 3;
const SLOTS: usize = 2;
const CLIENTS: u32 = 3;
/// Actions that each client asks for, one after the other.
const ACTIONS: u32 = 12;
/// Steps with faults.
const TROUBLE: u64 = 600;
/// Most steps without any answer when nothing breaks: an action takes less than three seconds, and one that
/// a dead client left holds its slot for that and [`LIMITS`]`.unwatched_ns`.
const IDLE: u64 = 200;

/// A client that is gone is given up soon: an action that it left holds its slot until then.
const LIMITS: Limits = Limits { unwatched_ns: 10 * SECOND, kept_ns: 10 * SECOND, ..Limits::USUAL };

/// Chance that a seed decides.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// A process that runs, and may be frozen.
struct Process {
    task: JoinHandle<()>,
    gate: Gate,
    link: Link,
}

impl Process {
    fn kill(&self) {
        self.task.abort();
        self.link.cut(true);
    }
}

struct World {
    manual: ManualClock,
    ticks: watch::Sender<()>,
    time: Time,
    site: Site,
    shared_board: Option<Arc<SharedBoard>>,
    /// The scheduler is frozen until then.
    frozen_until: u64,
    sessions: u64,
    lives: u64,
    workers: Vec<Option<Process>>,
    clients: Vec<Process>,
    log: Arc<Log>,
    /// What is to happen later.
    later: Vec<(u64, Later)>,
}

/// What ends a fault.
#[derive(Debug, Clone, Copy)]
enum Later {
    Scheduler,
    Worker(usize),
    Thaw(usize),
    Flow(usize),
}

impl World {
    fn new() -> Self {
        let manual = ManualClock::default();
        let (ticks, ticked) = watch::channel(());
        let time = Time { clock: Clock::manual(&manual), ticks: ticked };
        let log = Arc::new(Log::default());
        let mut world = Self {
            manual,
            ticks,
            time,
            site: Site::default(),
            shared_board: None,
            frozen_until: 0,
            sessions: 0,
            lives: 0,
            workers: Vec::new(),
            clients: Vec::new(),
            log,
            later: Vec::new(),
        };
        world.start_scheduler();
        for worker in 0..WORKERS {
            world.workers.push(None);
            world.start_worker(worker);
        }
        for client in 0..CLIENTS {
            let process = world.client(client);
            world.clients.push(process);
        }
        world
    }

    fn now(&self) -> u64 {
        self.time.clock.now_ns()
    }

    fn start_scheduler(&mut self) {
        self.sessions += 1;
        let clock = self.time.clock.clone();
        let instruments = Instruments::new(report::layout("model".to_owned()), clock.clone());
        let report = Report::new(&instruments, &Families::new());
        let board = Board::new(LIMITS, self.sessions << 32, clock.now_ns());
        let shared_board = Arc::new(SharedBoard::new(board, self.sessions, report, clock.clone()));
        let remote = Remote::over(cache::calls(&self.log), Duration::from_secs(10), clock);
        let limits = ActionLimits {
            default_time: Duration::from_secs(3600),
            longest_time: Duration::from_secs(3600),
            transfer_time: Duration::from_secs(10),
            ignored_properties: Vec::new(),
        };
        let service = Service::new(Arc::clone(&shared_board), remote, limits);
        let beat_ms = u32::try_from(BEAT / 1_000_000).unwrap();
        self.site.start(super::services(service, beat_ms).prepare());
        self.shared_board = Some(shared_board);
    }

    fn kill_scheduler(&mut self) {
        self.shared_board = None;
        self.site.stop();
    }

    fn start_worker(&mut self, number: usize) {
        self.lives += 1;
        let (gate, link) = (Gate::default(), Link::new(&self.site));
        let name = format!("worker {number} {}", self.lives);
        let keeping = actors::worker(name, SLOTS, &self.log, &self.time, &gate, &link);
        let task = tokio::spawn(gate.hold(keeping));
        self.workers[number] = Some(Process { task, gate, link });
    }

    fn client(&self, number: u32) -> Process {
        let (gate, link) = (Gate::default(), Link::new(&self.site));
        let asking = actors::client(number, ACTIONS, &self.log, &self.time, &link);
        let task = tokio::spawn(gate.hold(asking));
        Process { task, gate, link }
    }

    /// Has every process act once, and moves the time.
    async fn step(&mut self) {
        for _ in 0..60 {
            tokio::task::yield_now().await;
        }
        self.manual.advance(STEP);
        let now = self.now();
        let (due, later) =
            std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        let due: Vec<(u64, Later)> = due;
        for (_, what) in due {
            self.end_fault(what);
        }
        if self.frozen_until <= now {
            self.site.freeze(false);
            if let Some(shared_board) = &self.shared_board {
                shared_board.tick();
            }
        }
        self.ticks.send_replace(());
    }

    fn end_fault(&mut self, what: Later) {
        match what {
            Later::Scheduler if self.shared_board.is_none() => self.start_scheduler(),
            Later::Worker(number) if self.workers[number].is_none() => self.start_worker(number),
            Later::Thaw(number) => {
                if let Some(worker) = &self.workers[number] {
                    worker.gate.freeze(false);
                    worker.link.stall(false);
                }
            }
            Later::Flow(number) => {
                if let Some(worker) = &self.workers[number] {
                    worker.link.stall(false);
                }
            }
            Later::Scheduler | Later::Worker(_) => {}
        }
    }

    fn strike(&mut self, chance: &mut Chance) {
        let now = self.now();
        let worker = usize::try_from(chance.below(WORKERS as u64)).unwrap();
        let client = usize::try_from(chance.below(u64::from(CLIENTS))).unwrap();
        // Short of a heartbeat, between that and the bound of silence, and beyond that.
        let long = [SECOND, 8 * SECOND, 14 * SECOND, 25 * SECOND];
        let long = long[usize::try_from(chance.below(4)).unwrap()];
        let until = now + chance.below(long);
        match chance.below(10) {
            0 | 1 => {
                if let Some(process) = &self.workers[worker] {
                    process.gate.freeze(true);
                    process.link.stall(true);
                    self.later.push((until, Later::Thaw(worker)));
                }
            }
            2 => {
                if let Some(process) = &self.workers[worker] {
                    process.link.stall(true);
                    self.later.push((until, Later::Flow(worker)));
                }
            }
            3 => {
                if let Some(process) = &self.workers[worker] {
                    process.link.cut(chance.below(2) == 0);
                }
            }
            4 => {
                if let Some(process) = self.workers[worker].take() {
                    process.kill();
                    self.later.push((until, Later::Worker(worker)));
                }
            }
            5 => {
                self.kill_scheduler();
                self.later.push((now + chance.below(5 * SECOND), Later::Scheduler));
            }
            6 => {
                self.site.freeze(true);
                self.frozen_until = self.frozen_until.max(until);
            }
            7 | 8 => self.clients[client].link.cut(chance.below(2) == 0),
            _ => {
                self.clients[client].kill();
                self.clients[client] = self.client(u32::try_from(client).unwrap());
            }
        }
    }

    /// Ends every fault.
    fn heal(&mut self) {
        self.frozen_until = 0;
        for (_, what) in std::mem::take(&mut self.later) {
            self.end_fault(what);
        }
        self.site.heal();
    }

    /// What is wrong with the workers on the board.
    fn wrong(&self) -> Option<String> {
        let shared_board = self.shared_board.as_ref().expect("it was healed");
        shared_board.look(|board, now_ns| {
            let (totals, lines) = (board.totals(), board.workers(now_ns));
            let away = lines.iter().any(|line| !line.connected || line.draining);
            let all = totals.workers == WORKERS && totals.slots == WORKERS * SLOTS;
            (away || !all).then(|| format!("{totals:?} {lines:?}"))
        })
    }
}

/// A run; what went wrong.
async fn run(seed: u64) -> Result<(), String> {
    let mut world = World::new();
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..TROUBLE {
        if chance.below(20) == 0 {
            world.strike(&mut chance);
        }
        world.step().await;
        world.log.wrong()?;
    }
    world.heal();
    for _ in 0..2 * BEAT / STEP {
        world.step().await;
    }
    if let Some(wrong) = world.wrong() {
        return Err(format!("two heartbeats after the last fault: {wrong}"));
    }
    let (registered, called) = (world.log.registrations(), world.log.calls());
    let (mut answered, mut idle) = (world.log.answered(), 0);
    while !world.clients.iter().all(|client| client.task.is_finished()) {
        world.step().await;
        world.log.wrong()?;
        let now = world.log.answered();
        idle = if now == answered { idle + 1 } else { 0 };
        answered = now;
        if idle == IDLE {
            return Err(format!("no answer for {IDLE} steps: {}", world.log.open()));
        }
    }
    // An action takes one call now; one that was under way in the trouble may take a few more.
    let calls = world.log.calls() - called;
    if calls > CLIENTS * (ACTIONS + 3) {
        return Err(format!("{calls} calls of clients though nothing breaks"));
    }
    // Tasks without a waiting operation end too, and no worker was asked to register again.
    for _ in 0..2 * LIMITS.unwatched_ns / STEP {
        world.step().await;
    }
    world.log.wrong()?;
    let shared_board = world.shared_board.as_ref().unwrap();
    let totals = shared_board.look(|board, _| board.totals());
    if totals.executing + totals.waiting > 0 || world.wrong().is_some() {
        return Err(format!("when all was answered: {totals:?} {:?}", world.wrong()));
    }
    if world.log.registrations() != registered {
        return Err("a worker registered again though nothing broke".to_owned());
    }
    world.log.all_answered(CLIENTS, ACTIONS)
}

fn in_a_runtime(seed: u64) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(run(seed))
}

/// `KENDALL_MODEL_SEED` runs one seed, `KENDALL_MODEL_RUNS` as many.
#[test]
fn whatever_breaks_workers_come_back_and_every_action_is_answered_once() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("KENDALL_MODEL_SEED");
    let runs = number("KENDALL_MODEL_RUNS").unwrap_or(if first.is_some() { 1 } else { 60 });
    let first = first.unwrap_or(1);
    let mut failed = HashMap::new();
    for seed in first..first + runs {
        if let Err(wrong) = in_a_runtime(seed) {
            failed.insert(seed, wrong);
        }
    }
    let example = failed.iter().min();
    assert!(failed.is_empty(), "{} of {runs} runs; seed and reason: {example:?}", failed.len());
}
