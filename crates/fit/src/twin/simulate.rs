//! The structure simulated: threads on shared cores, pools, links, commits.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use kendall_units::{exact_f64, whole_u64};

use super::demand::Demand;
use super::scheduler::{At, Cores, Place, SLICE_S};
use super::system::{Spread, Step, System, Workload};

/// Share of the price of a switch that is paid before a thread sleeps; the rest when it wakes.
/// Chosen on the proxy study; what it does beyond the sum is small.
const PAID_BEFORE_SLEEP: f64 = 0.8;
/// Spread of the time that an idle core takes to wake, as the σ of its logarithm.
const WAKE_SIGMA: f64 = 0.5;
/// Requests in the system at once from which an open load is given up.
const MOST_PRESENT: usize = 200_000;
/// Events after which a simulation ends in any case.
const MOST_EVENTS: u64 = 60_000_000;

/// How long to simulate, in s of simulated time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Length {
    /// Forgotten at the start.
    pub warm_up_s: f64,
    pub measured_s: f64,
    /// Requests after whose completion it ends earlier: of a structure that serves far more than was measured.
    pub most: usize,
}

/// What a simulated run shows, as a measured one would.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// X.
    pub throughput_per_s: f64,
    /// Mean response time in s.
    pub response_mean_s: f64,
    /// Response times, ascending.
    responses_s: Vec<f64>,
    /// CPU time of a request, by process, in s.
    pub cpu_s: Vec<f64>,
    /// Voluntary switches of a request, by process.
    pub switches: Vec<f64>,
    /// Busy share of the cores, by host.
    pub hosts: Vec<f64>,
    /// Busy share of its threads, by process.
    pub threads: Vec<f64>,
    /// Share of tokens in use, by pool.
    pub pools: Vec<f64>,
    /// Busy share, by commit.
    pub commits: Vec<f64>,
    /// Mean number served together, over all batches; 1 without.
    pub batch: f64,
    pub completions: u64,
    /// The load grew beyond all bounds: there is no steady state, or events ran out.
    pub overloaded: bool,
}

impl Simulated {
    /// Quantile (0 to 1) of the response time, in s.
    pub fn response_quantile_s(&self, quantile: f64) -> Option<f64> {
        let last = self.responses_s.len().checked_sub(1)?;
        let place = whole_u64((quantile.clamp(0.0, 1.0) * exact_f64(last)).round());
        self.responses_s.get(usize::try_from(place).ok()?).copied()
    }
}

/// How the machine behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Of all demands, relative to the machine's reference speed.
    pub slowness: f64,
    /// Time that an idle core takes to wake, in s.
    pub wake_s: f64,
    /// Share of wake-ups that stay on the core that woke them, behind what it does, although another core is
    /// idle: schedulers keep who talks to one another together.
    pub stay: f64,
}

/// Simulates a system: `demands` by process at the machine's reference speed. The system must have
/// passed [`System::check`].
pub fn simulate(
    system: &System,
    demands: &[Demand],
    machine: Machine,
    length: Length,
    seed: u64,
) -> Simulated {
    let mut run = Run::new(system, demands, machine, seed);
    run.start(system.workload);
    run.until(length.warm_up_s, length.most);
    run.forget();
    let began = run.now;
    run.until(began + length.measured_s, length.most);
    let measured_s = run.now - began;
    run.shown(measured_s)
}

/// A step of a request. `Sometimes` leaves so many out, unless chance is below the share.
#[derive(Debug, Clone, Copy)]
enum Op {
    Work { process: usize, share: f64 },
    Delay(f64),
    Wait { time_s: f64, each_s: f64, spread: Spread },
    Sometimes { share: f64, skip: u32 },
    Take(usize),
    Give(usize),
    Commit(usize),
    Done,
}

fn compile(steps: &[Step], ops: &mut Vec<Op>) {
    for step in steps {
        match step {
            Step::Work(work) => ops.push(Op::Work { process: work.process, share: work.share }),
            Step::Delay(time) => ops.push(Op::Delay(*time)),
            Step::Wait { time_s, each_s, spread } => {
                ops.push(Op::Wait { time_s: *time_s, each_s: *each_s, spread: *spread });
            }
            Step::Sometimes { share, inside } => {
                let at = ops.len();
                ops.push(Op::Sometimes { share: *share, skip: 0 });
                compile(inside, ops);
                let skip = u32::try_from(ops.len() - at - 1).unwrap_or(0);
                ops[at] = Op::Sometimes { share: *share, skip };
            }
            Step::Hold { pool, inside } => {
                ops.push(Op::Take(*pool));
                compile(inside, ops);
                ops.push(Op::Give(*pool));
            }
            Step::Commit(commit) => ops.push(Op::Commit(*commit)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request goes on after a delay or a thought.
    Go(u32),
    /// The next arrival of an open load.
    Arrival,
    /// A core is done with what it began in this turn.
    Core { host: u32, core: u32, turn: u32 },
    /// A waiting thread gets its slice.
    Tick(u32),
    /// A commit ends.
    Commit(u32),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Asleep,
    Waking,
    Serving { job: u32 },
    Parking,
}

#[derive(Debug, Clone, Copy)]
struct Thread {
    process: u32,
    phase: Phase,
}

/// A request; of several that are served together the first is moved, and the others are attached to it.
#[derive(Debug, Clone, Copy)]
struct Request {
    at: u32,
    began: f64,
    together: u32,
    next: u32,
}

const NOBODY: u32 = u32::MAX;

struct Group {
    asleep: Vec<u32>,
    queue: VecDeque<(u32, f64)>,
    cpu: f64,
    switches: u64,
}

struct Tokens {
    free: u32,
    batch: u32,
    waiting: VecDeque<u32>,
    /// Token seconds in use, and since when that is up to date.
    used: f64,
    since: f64,
    in_use: u32,
    taken: u64,
    served: u64,
}

struct Flush {
    time: f64,
    under_way: Vec<u32>,
    waiting: Vec<u32>,
    busy: f64,
}

struct Run<'a> {
    system: &'a System,
    demands: &'a [Demand],
    slowness: f64,
    wake_s: f64,
    stay: f64,
    chance: Chance,
    now: f64,
    ops: Vec<Op>,
    events: BinaryHeap<Reverse<(At, u32, Event)>>,
    order: u32,
    count: u64,
    hosts: Vec<Cores>,
    ticking: Vec<bool>,
    threads: Vec<Thread>,
    remaining: Vec<f64>,
    ran: Vec<f64>,
    groups: Vec<Group>,
    pools: Vec<Tokens>,
    commits: Vec<Flush>,
    requests: Vec<Request>,
    free: Vec<u32>,
    responses: Vec<f64>,
    overloaded: bool,
}

impl<'a> Run<'a> {
    fn new(
        system: &'a System,
        demands: &'a [Demand],
        Machine { slowness, wake_s, stay }: Machine,
        seed: u64,
    ) -> Self {
        let mut ops = Vec::new();
        compile(&system.steps, &mut ops);
        ops.push(Op::Done);
        let mut threads = Vec::new();
        let mut groups = Vec::new();
        for (process, described) in system.processes.iter().enumerate() {
            let first = u32::try_from(threads.len()).unwrap_or(NOBODY);
            let process = u32::try_from(process).unwrap_or(NOBODY);
            threads
                .extend((0..described.threads).map(|_| Thread { process, phase: Phase::Asleep }));
            groups.push(Group {
                asleep: (first..first + described.threads).rev().collect(),
                queue: VecDeque::new(),
                cpu: 0.0,
                switches: 0,
            });
        }
        let tokens = |pool: &super::system::Pool| Tokens {
            free: pool.tokens,
            batch: pool.batch,
            waiting: VecDeque::new(),
            used: 0.0,
            since: 0.0,
            in_use: 0,
            taken: 0,
            served: 0,
        };
        let flush = |commit: &super::system::Commit| Flush {
            time: commit.time_s / commit.speed,
            under_way: Vec::new(),
            waiting: Vec::new(),
            busy: 0.0,
        };
        Self {
            system,
            demands,
            slowness,
            wake_s,
            stay,
            chance: Chance::new(seed),
            now: 0.0,
            ops,
            events: BinaryHeap::new(),
            order: 0,
            count: 0,
            hosts: system.hosts.iter().map(|host| Cores::new(host.cores)).collect(),
            ticking: vec![false; system.hosts.len()],
            remaining: vec![0.0; threads.len()],
            ran: vec![0.0; threads.len()],
            threads,
            groups,
            pools: system.pools.iter().map(tokens).collect(),
            commits: system.commits.iter().map(flush).collect(),
            requests: Vec::new(),
            free: Vec::new(),
            responses: Vec::new(),
            overloaded: false,
        }
    }

    fn at(&mut self, time: f64, event: Event) {
        self.order = self.order.wrapping_add(1);
        self.events.push(Reverse((At(time), self.order, event)));
    }

    fn start(&mut self, workload: Workload) {
        match workload {
            Workload::Closed { clients, think_time_s } => {
                for client in 0..clients {
                    self.requests.push(Request { at: 0, began: 0.0, together: 1, next: NOBODY });
                    let first = self.chance.exponential(think_time_s.max(1e-3));
                    self.at(first, Event::Go(client));
                }
            }
            Workload::Open { rate_per_s } => {
                let gap = self.chance.exponential(1.0 / rate_per_s);
                self.at(gap, Event::Arrival);
            }
        }
    }

    fn until(&mut self, end: f64, most: usize) {
        while let Some(Reverse((At(time), _, event))) = self.events.peek().copied() {
            if self.responses.len() >= most {
                return;
            }
            if time > end || self.overloaded {
                break;
            }
            self.events.pop();
            self.now = time;
            self.count += 1;
            self.overloaded |= self.count > MOST_EVENTS;
            match event {
                Event::Go(request) => {
                    if self.requests[request as usize].at == 0 {
                        self.requests[request as usize].began = time;
                    }
                    self.go_on(request);
                }
                Event::Arrival => self.arrive(),
                Event::Core { host, core, turn } => self.core_done(host, core, turn),
                Event::Tick(host) => self.tick(host),
                Event::Commit(commit) => self.flushed(commit as usize),
            }
        }
        self.now = end;
    }

    fn arrive(&mut self) {
        let Workload::Open { rate_per_s } = self.system.workload else { return };
        let gap = self.chance.exponential(1.0 / rate_per_s);
        self.at(self.now + gap, Event::Arrival);
        let fresh = Request { at: 0, began: self.now, together: 1, next: NOBODY };
        let request = if let Some(free) = self.free.pop() {
            self.requests[free as usize] = fresh;
            free
        } else {
            self.requests.push(fresh);
            u32::try_from(self.requests.len() - 1).unwrap_or(NOBODY)
        };
        self.overloaded |= self.requests.len() - self.free.len() > MOST_PRESENT;
        self.go_on(request);
    }

    /// A request (or those that hang on it) does its next steps, up to one that takes time.
    fn go_on(&mut self, job: u32) {
        let mut jobs = vec![job];
        while let Some(job) = jobs.pop() {
            let at = self.requests[job as usize].at;
            let op = self.ops[at as usize];
            if !matches!(op, Op::Done) {
                self.requests[job as usize].at = at + 1;
            }
            match op {
                Op::Work { process, share } => self.enqueue(process, job, share),
                Op::Delay(time) => self.at(self.now + time, Event::Go(job)),
                Op::Wait { time_s, each_s, spread } => {
                    let together = f64::from(self.requests[job as usize].together);
                    let time = self.chance.around(time_s + each_s * together, spread);
                    self.at(self.now + time, Event::Go(job));
                }
                Op::Sometimes { share, skip } => {
                    if self.chance.uniform() >= share {
                        self.requests[job as usize].at += skip;
                    }
                    jobs.push(job);
                }
                Op::Take(pool) => {
                    if self.take(pool, job) {
                        jobs.push(job);
                    }
                }
                Op::Give(pool) => self.give(pool, job, &mut jobs),
                Op::Commit(commit) => self.commit(commit, job),
                Op::Done => self.done(job),
            }
        }
    }

    fn take(&mut self, pool: usize, job: u32) -> bool {
        let now = self.now;
        let tokens = &mut self.pools[pool];
        if tokens.free == 0 {
            tokens.waiting.push_back(job);
            return false;
        }
        tokens.account(now);
        tokens.free -= 1;
        tokens.in_use += 1;
        tokens.taken += 1;
        tokens.served += u64::from(self.requests[job as usize].together);
        true
    }

    /// The token goes to those that wait, up to a batch of them, or is free; those that held it
    /// together go on each for itself.
    fn give(&mut self, pool: usize, job: u32, jobs: &mut Vec<u32>) {
        self.pools[pool].account(self.now);
        self.pools[pool].in_use -= 1;
        self.pools[pool].free += 1;
        let at = self.requests[job as usize].at;
        if self.pools[pool].batch > 1 {
            let mut member = job;
            while member != NOBODY {
                let next = self.requests[member as usize].next;
                let request = &mut self.requests[member as usize];
                (request.at, request.together, request.next) = (at, 1, NOBODY);
                jobs.push(member);
                member = next;
            }
        } else {
            jobs.push(job);
        }
        let Some(first) = self.pools[pool].waiting.pop_front() else { return };
        let mut last = first;
        for _ in 1..self.pools[pool].batch {
            let Some(more) = self.pools[pool].waiting.pop_front() else { break };
            self.requests[last as usize].next = more;
            self.requests[first as usize].together += 1;
            last = more;
        }
        if self.take(pool, first) {
            jobs.push(first);
        }
    }

    fn commit(&mut self, commit: usize, job: u32) {
        let flush = &mut self.commits[commit];
        flush.waiting.push(job);
        if flush.under_way.is_empty() {
            self.flush(commit);
        }
    }

    fn flush(&mut self, commit: usize) {
        let flush = &mut self.commits[commit];
        flush.under_way = std::mem::take(&mut flush.waiting);
        flush.busy += flush.time;
        let time = self.now + flush.time;
        self.at(time, Event::Commit(u32::try_from(commit).unwrap_or(NOBODY)));
    }

    fn flushed(&mut self, commit: usize) {
        let done = std::mem::take(&mut self.commits[commit].under_way);
        if !self.commits[commit].waiting.is_empty() {
            self.flush(commit);
        }
        for job in done {
            self.go_on(job);
        }
    }

    fn done(&mut self, request: u32) {
        let began = self.requests[request as usize].began;
        self.responses.push(self.now - began);
        self.requests[request as usize].at = 0;
        match self.system.workload {
            Workload::Closed { think_time_s, .. } => {
                let pause = self.chance.exponential(think_time_s);
                self.at(self.now + pause, Event::Go(request));
            }
            Workload::Open { .. } => self.free.push(request),
        }
    }

    fn enqueue(&mut self, process: usize, job: u32, share: f64) {
        let demand = &self.demands[process];
        let together = f64::from(self.requests[job as usize].together);
        let described = &self.system.processes[process];
        let mean = (demand.work_s * together + demand.batch_s) * share * self.slowness
            / self.system.hosts[described.host].speed;
        let time = self.chance.around(mean, described.spread);
        self.groups[process].queue.push_back((job, time));
        if let Some(thread) = self.groups[process].asleep.pop() {
            self.wake(process, thread);
        }
    }

    fn switch_s(&self, process: usize) -> f64 {
        let host = self.system.processes[process].host;
        self.demands[process].switch_s * self.slowness / self.system.hosts[host].speed
    }

    fn wake(&mut self, process: usize, thread: u32) {
        let index = thread as usize;
        self.threads[index].phase = Phase::Waking;
        self.remaining[index] = (1.0 - PAID_BEFORE_SLEEP) * self.switch_s(process);
        let host = self.system.processes[process].host;
        self.ran[index] = self.hosts[host].lifted(self.ran[index]);
        match self.hosts[host].place(self.now, self.ran[index], &self.ran) {
            Place::Idle(_)
                if self.stay > 0.0
                    && self.hosts[host].anybody_runs()
                    && self.chance.uniform() < self.stay =>
            {
                self.queue_up(host, thread);
            }
            Place::Idle(core) => {
                let late = self.chance.lognormal(self.wake_s, WAKE_SIGMA);
                self.run_on(host, core, thread, self.now + late);
            }
            Place::Preempt(core) => {
                self.interrupt(host, core);
                self.run_on(host, core, thread, self.now);
            }
            Place::Wait => self.queue_up(host, thread),
        }
    }

    fn run_on(&mut self, host: usize, core: usize, thread: u32, from: f64) {
        let ran = self.ran[thread as usize];
        let turn = self.hosts[host].begin(core, thread, from, ran);
        let end = from + self.remaining[thread as usize];
        let small = |index: usize| u32::try_from(index).unwrap_or(NOBODY);
        self.at(end, Event::Core { host: small(host), core: small(core), turn });
    }

    fn queue_up(&mut self, host: usize, thread: u32) {
        self.hosts[host].wait(thread, self.ran[thread as usize]);
        if !self.ticking[host] {
            self.ticking[host] = true;
            self.at(self.now + SLICE_S, Event::Tick(u32::try_from(host).unwrap_or(NOBODY)));
        }
    }

    /// Puts what a core does back among those that wait.
    fn interrupt(&mut self, host: usize, core: usize) {
        let Some((thread, since)) = self.hosts[host].cores[core].running else { return };
        let had = (self.now - since).clamp(0.0, self.remaining[thread as usize]);
        self.charge(thread, had);
        self.hosts[host].leave(core);
        self.queue_up(host, thread);
    }

    fn charge(&mut self, thread: u32, time: f64) {
        self.remaining[thread as usize] -= time;
        self.ran[thread as usize] += time;
        self.groups[self.threads[thread as usize].process as usize].cpu += time;
    }

    /// Threads that had a slice give way to those that ran less.
    fn tick(&mut self, host: u32) {
        let host = host as usize;
        self.ticking[host] = false;
        for core in 0..self.hosts[host].cores.len() {
            let Some((thread, since)) = self.hosts[host].cores[core].running else {
                // An idle core checks now and then for threads that wait elsewhere.
                self.next_on(host, core);
                continue;
            };
            let had = self.now - since;
            let Some(least) = self.hosts[host].least_waiting() else { break };
            if had >= SLICE_S && least < self.ran[thread as usize] + had {
                self.interrupt(host, core);
                self.next_on(host, core);
            }
        }
        if self.hosts[host].anybody_waits() && !self.ticking[host] {
            self.ticking[host] = true;
            self.at(self.now + SLICE_S, Event::Tick(u32::try_from(host).unwrap_or(NOBODY)));
        }
    }

    fn next_on(&mut self, host: usize, core: usize) {
        if let Some(thread) = self.hosts[host].next() {
            self.run_on(host, core, thread, self.now);
        }
    }

    fn core_done(&mut self, host: u32, core: u32, turn: u32) {
        let (host, core) = (host as usize, core as usize);
        let state = self.hosts[host].cores[core];
        let Some((thread, _)) = state.running.filter(|_| state.turn == turn) else { return };
        self.charge(thread, self.remaining[thread as usize]);
        let process = self.threads[thread as usize].process as usize;
        let before = self.threads[thread as usize].phase;
        let finished = if let Phase::Serving { job } = before { Some(job) } else { None };
        if let Some((job, time)) = self.groups[process].queue.pop_front() {
            self.threads[thread as usize].phase = Phase::Serving { job };
            self.remaining[thread as usize] = time;
            self.run_on(host, core, thread, self.now);
        } else if before == Phase::Parking {
            self.threads[thread as usize].phase = Phase::Asleep;
            self.groups[process].switches += 1;
            self.groups[process].asleep.push(thread);
            self.hosts[host].leave(core);
            self.next_on(host, core);
        } else {
            self.threads[thread as usize].phase = Phase::Parking;
            self.remaining[thread as usize] = PAID_BEFORE_SLEEP * self.switch_s(process);
            self.run_on(host, core, thread, self.now);
        }
        if let Some(job) = finished {
            self.go_on(job);
        }
    }

    /// Starts counting anew.
    fn forget(&mut self) {
        self.responses.clear();
        for group in &mut self.groups {
            (group.cpu, group.switches) = (0.0, 0);
        }
        for pool in &mut self.pools {
            pool.account(self.now);
            (pool.used, pool.taken, pool.served) = (0.0, 0, 0);
        }
        for commit in &mut self.commits {
            commit.busy = 0.0;
        }
    }

    fn shown(mut self, measured_s: f64) -> Simulated {
        let now = self.now;
        let completions = u64::try_from(self.responses.len()).unwrap_or(u64::MAX);
        let requests = exact_f64(completions).max(1.0);
        let mean = self.responses.iter().sum::<f64>() / requests;
        self.responses.sort_by(f64::total_cmp);
        let mut hosts = vec![0.0; self.hosts.len()];
        let mut threads = Vec::new();
        for (group, process) in self.groups.iter().zip(&self.system.processes) {
            hosts[process.host] += group.cpu / measured_s;
            threads.push(group.cpu / measured_s / f64::from(process.threads));
        }
        for (busy, host) in hosts.iter_mut().zip(&self.system.hosts) {
            *busy /= f64::from(host.cores);
        }
        let (mut served, mut taken) = (0, 0);
        for pool in &mut self.pools {
            pool.account(now);
            if pool.batch > 1 {
                (served, taken) = (served + pool.served, taken + pool.taken);
            }
        }
        let share = |pool: (&Tokens, &super::system::Pool)| {
            pool.0.used / measured_s / f64::from(pool.1.tokens)
        };
        Simulated {
            throughput_per_s: exact_f64(completions) / measured_s,
            response_mean_s: mean,
            cpu_s: self.groups.iter().map(|group| group.cpu / requests).collect(),
            switches: self.groups.iter().map(|g| exact_f64(g.switches) / requests).collect(),
            hosts,
            threads,
            pools: self.pools.iter().zip(&self.system.pools).map(share).collect(),
            commits: self.commits.iter().map(|c| (c.busy / measured_s).min(1.0)).collect(),
            batch: if taken > 0 { exact_f64(served) / exact_f64(taken) } else { 1.0 },
            completions,
            overloaded: self.overloaded,
            responses_s: self.responses,
        }
    }
}

impl Tokens {
    fn account(&mut self, now: f64) {
        self.used += f64::from(self.in_use) * (now - self.since);
        self.since = now;
    }
}

/// Chance from a seed (SplitMix64).
///
/// # Source
/// Steele, Lea, Flood 2014.
#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Above 0 and below 1.
    pub(super) fn uniform(&mut self) -> f64 {
        (exact_f64(self.bits() >> 12) + 0.5) / exact_f64(1_u64 << 52)
    }

    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }

    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }

    /// With this mean, and σ of the logarithm.
    fn lognormal(&mut self, mean: f64, sigma: f64) -> f64 {
        if mean <= 0.0 { 0.0 } else { mean * (sigma * self.normal() - sigma * sigma / 2.0).exp() }
    }

    /// A value of a distribution by its values at [`Spread::LEVELS`].
    fn between(&mut self, values: &[f64; 15]) -> f64 {
        let level = self.uniform();
        let above = Spread::LEVELS.partition_point(|at| *at <= level).clamp(1, values.len() - 1);
        let (from, to) = (Spread::LEVELS[above - 1], Spread::LEVELS[above]);
        let share = (level - from) / (to - from);
        values[above - 1] + share * (values[above] - values[above - 1])
    }

    fn around(&mut self, mean: f64, spread: Spread) -> f64 {
        match spread {
            Spread::Constant => mean,
            Spread::Exponential => self.exponential(mean),
            Spread::Lognormal { scv } => self.lognormal(mean, scv.ln_1p().sqrt()),
            Spread::Measured(values) => mean * self.between(&values),
        }
    }
}
