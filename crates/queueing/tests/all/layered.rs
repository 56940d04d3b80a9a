//! Layered models against a simulation of their own, and against published solutions.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use kendall_queueing::lqn::{
    Call, CallKind, Copies, Entry, Fork, Layered, LayeredError, Phase, Processor, Role, Sharing,
    Task, solve,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp, Gamma};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A run of an entry by a thread or a customer.
struct Job {
    entry: usize,
    phase: usize,
    caller: Option<usize>,
    began: f64,
    /// Replies that it waits for.
    replies: usize,
    /// Calls still to be made in the phase, where their number is fixed.
    fixed: Vec<(usize, bool)>,
}

#[derive(Clone, Copy)]
enum Event {
    /// An arrival from outside.
    Arrival(usize),
    /// A pause is over, or a slice at a processor without sharing.
    Ready(usize),
    Slice(usize),
    /// The next slice of a shared processor, if nothing changed meanwhile.
    Shared(usize, u64),
    /// A customer has thought.
    Thought(usize),
}

#[derive(Default)]
struct Cpu {
    busy: u64,
    queue: VecDeque<(usize, f64)>,
    shared: Vec<(usize, f64)>,
    since: f64,
    version: u64,
    work: f64,
}

#[derive(Default, Clone)]
struct Tally {
    runs: f64,
    phases: [f64; 3],
    waits: f64,
}

/// How many are busy; and for whom a request waits since when, by entry.
type Threads = (u64, VecDeque<(usize, Option<usize>, f64)>);

struct Simulation<'a> {
    model: &'a Layered,
    now: f64,
    number: u64,
    events: BinaryHeap<(Reverse<u64>, Reverse<u64>, usize)>,
    pending: Vec<Event>,
    jobs: Vec<Job>,
    free: Vec<usize>,
    cpus: Vec<Cpu>,
    threads: Vec<Threads>,
    tally: Vec<Tally>,
    rng: Xoshiro256PlusPlus,
    cycles: u64,
}

impl<'a> Simulation<'a> {
    fn new(model: &'a Layered, seed: u64) -> Self {
        let mut simulation = Self {
            model,
            now: 0.0,
            number: 0,
            events: BinaryHeap::new(),
            pending: Vec::new(),
            jobs: Vec::new(),
            free: Vec::new(),
            cpus: model.processors.iter().map(|_| Cpu::default()).collect(),
            threads: model.tasks.iter().map(|_| (0, VecDeque::new())).collect(),
            tally: vec![Tally::default(); model.entries.len()],
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            cycles: 0,
        };
        for (entry, about) in model.entries.iter().enumerate() {
            if about.arrival_rate > 0.0 {
                let gap = simulation.exponential(1.0 / about.arrival_rate);
                simulation.at(gap, Event::Arrival(entry));
            }
            if let Role::Reference { population, .. } = model.tasks[about.task].role {
                for _ in 0..population {
                    let job = simulation.job(entry, None);
                    simulation.at(0.0, Event::Thought(job));
                }
            }
        }
        simulation
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        if mean > 0.0 { Exp::new(1.0 / mean).unwrap().sample(&mut self.rng) } else { 0.0 }
    }

    fn at(&mut self, delay: f64, event: Event) {
        self.number += 1;
        // Bits of times from 0 are in their order.
        let bits = (self.now + delay).to_bits();
        self.pending.push(event);
        self.events.push((Reverse(bits), Reverse(self.number), self.pending.len() - 1));
    }

    fn job(&mut self, entry: usize, caller: Option<usize>) -> usize {
        let job = Job { entry, phase: 0, caller, began: self.now, replies: 0, fixed: Vec::new() };
        if let Some(place) = self.free.pop() {
            self.jobs[place] = job;
            return place;
        }
        self.jobs.push(job);
        self.jobs.len() - 1
    }

    fn run(&mut self, cycles: u64, until: f64) {
        let mut spare = Vec::new();
        while self.cycles < cycles && self.now < until {
            let Some((Reverse(bits), _, place)) = self.events.pop() else { return };
            self.now = f64::from_bits(bits);
            let event = self.pending[place];
            spare.push(place);
            match event {
                Event::Arrival(entry) => {
                    let gap = self.exponential(1.0 / self.model.entries[entry].arrival_rate);
                    self.at(gap, Event::Arrival(entry));
                    self.request(entry, None);
                }
                Event::Ready(job) => self.slice(job),
                Event::Slice(job) => {
                    let cpu = self.cpu_of(job);
                    self.cpus[cpu].busy -= 1;
                    self.serve(cpu);
                    self.after_slice(job);
                }
                Event::Shared(cpu, version) if self.cpus[cpu].version == version => {
                    self.advance(cpu);
                    let done = self.cpus[cpu].shared.iter().enumerate();
                    let done = done.min_by(|a, b| a.1.1.total_cmp(&b.1.1)).unwrap().0;
                    let (job, _) = self.cpus[cpu].shared.swap_remove(done);
                    self.next_shared(cpu);
                    self.after_slice(job);
                }
                Event::Shared(..) => {}
                Event::Thought(job) => {
                    self.jobs[job].phase = 0;
                    self.phase(job);
                }
            }
            // Pending events are few beside those that passed: they are packed now and then.
            if spare.len() > 1_000_000 {
                let live: Vec<_> = std::mem::take(&mut self.events).into_vec();
                let mut packed = Vec::with_capacity(live.len());
                for (time, number, place) in live {
                    packed.push(self.pending[place]);
                    self.events.push((time, number, packed.len() - 1));
                }
                self.pending = packed;
                spare.clear();
            }
        }
    }

    fn cpu_of(&self, job: usize) -> usize {
        self.model.tasks[self.model.entries[self.jobs[job].entry].task].processor
    }

    fn about(&self, job: usize) -> Option<&'a Phase> {
        self.model.entries[self.jobs[job].entry].phases.get(self.jobs[job].phase)
    }

    fn request(&mut self, entry: usize, caller: Option<usize>) {
        let task = self.model.entries[entry].task;
        let free = match self.model.tasks[task].role {
            Role::Server(Copies::Limited(threads)) => self.threads[task].0 < threads,
            _ => true,
        };
        if free {
            self.threads[task].0 += 1;
            let job = self.job(entry, caller);
            self.phase(job);
        } else {
            self.threads[task].1.push_back((entry, caller, self.now));
        }
    }

    fn phase(&mut self, job: usize) {
        self.jobs[job].began = self.now;
        let Some(about) = self.about(job) else { return self.end_phase(job) };
        if about.deterministic {
            let mut fixed = Vec::new();
            for call in &about.calls {
                for _ in 0..kendall_units::whole_u64(call.mean.round()) {
                    fixed.push((call.entry, call.kind == CallKind::Synchronous));
                }
            }
            self.jobs[job].fixed = fixed;
        }
        let pause = self.exponential(about.think_time);
        if pause > 0.0 { self.at(pause, Event::Ready(job)) } else { self.slice(job) }
    }

    fn slice(&mut self, job: usize) {
        let about = self.about(job).unwrap();
        let mean = about.demand / about.slices();
        if mean <= 0.0 {
            return self.after_slice(job);
        }
        let work = if about.scv > 0.0 {
            Gamma::new(1.0 / about.scv, mean * about.scv).unwrap().sample(&mut self.rng)
        } else {
            mean
        };
        let cpu = self.cpu_of(job);
        self.cpus[cpu].work += work;
        if self.model.processors[cpu].sharing == Sharing::Ps {
            self.advance(cpu);
            self.cpus[cpu].shared.push((job, work));
            self.next_shared(cpu);
        } else {
            self.cpus[cpu].queue.push_back((job, work));
            self.serve(cpu);
        }
    }

    fn cores(&self, cpu: usize) -> u64 {
        match self.model.processors[cpu].copies {
            Copies::Limited(cores) => cores,
            Copies::Unlimited => u64::MAX,
        }
    }

    fn serve(&mut self, cpu: usize) {
        if self.cpus[cpu].busy < self.cores(cpu)
            && let Some((job, work)) = self.cpus[cpu].queue.pop_front()
        {
            self.cpus[cpu].busy += 1;
            self.at(work, Event::Slice(job));
        }
    }

    fn speed(&self, cpu: usize) -> f64 {
        let n = kendall_units::exact_f64(self.cpus[cpu].shared.len());
        (kendall_units::exact_f64(self.cores(cpu).min(1 << 52)) / n.max(1.0)).min(1.0)
    }

    fn advance(&mut self, cpu: usize) {
        let done = (self.now - self.cpus[cpu].since) * self.speed(cpu);
        for (_, left) in &mut self.cpus[cpu].shared {
            *left -= done;
        }
        self.cpus[cpu].since = self.now;
    }

    fn next_shared(&mut self, cpu: usize) {
        self.cpus[cpu].version += 1;
        let version = self.cpus[cpu].version;
        let least =
            self.cpus[cpu].shared.iter().map(|(_, left)| *left).fold(f64::INFINITY, f64::min);
        if least.is_finite() {
            self.at(least.max(0.0) / self.speed(cpu), Event::Shared(cpu, version));
        }
    }

    fn after_slice(&mut self, job: usize) {
        let about = self.about(job).unwrap();
        let mut at = self.rng.random::<f64>() * about.slices();
        let next = if about.deterministic {
            self.jobs[job].fixed.pop()
        } else {
            about.calls.iter().find_map(|call| {
                at -= call.mean;
                (at < 0.0).then_some((call.entry, call.kind == CallKind::Synchronous))
            })
        };
        let fork = about.forks.iter().find(|fork| {
            at -= fork.mean;
            at < 0.0
        });
        match (next, fork) {
            (Some((entry, true)), _) => self.call(&[entry], job),
            (Some((entry, false)), _) => {
                self.request(entry, None);
                self.slice(job);
            }
            (None, Some(fork)) => self.call(&fork.entries, job),
            (None, None) => self.end_phase(job),
        }
    }

    fn call(&mut self, entries: &[usize], job: usize) {
        self.jobs[job].replies = entries.len();
        for entry in entries {
            self.request(*entry, Some(job));
        }
    }

    fn reply(&mut self, job: usize) {
        self.jobs[job].replies -= 1;
        if self.jobs[job].replies == 0 {
            self.slice(job);
        }
    }

    fn end_phase(&mut self, job: usize) {
        let Job { entry, phase, began, .. } = self.jobs[job];
        self.tally[entry].phases[phase] += self.now - began;
        let about = &self.model.entries[entry];
        if phase == 0 {
            let caller = self.jobs[job].caller.take();
            let mut at = self.rng.random::<f64>();
            let forward = about.forwards.iter().find(|(_, probability)| {
                at -= probability;
                at < 0.0
            });
            match (forward, caller) {
                (Some((to, _)), caller) => self.request(*to, caller),
                (None, Some(caller)) => self.reply(caller),
                (None, None) => {}
            }
        }
        if phase + 1 < about.phases.len() {
            self.jobs[job].phase += 1;
            return self.phase(job);
        }
        self.tally[entry].runs += 1.0;
        match self.model.tasks[about.task].role {
            Role::Reference { think_time, .. } => {
                self.cycles += 1;
                let pause = self.exponential(think_time);
                self.at(pause, Event::Thought(job));
            }
            Role::Server(_) => {
                self.free.push(job);
                self.threads[about.task].0 -= 1;
                if let Some((entry, caller, since)) = self.threads[about.task].1.pop_front() {
                    self.tally[entry].waits += self.now - since;
                    self.threads[about.task].0 += 1;
                    let job = self.job(entry, caller);
                    self.phase(job);
                }
            }
        }
    }

    /// X of each entry, and its time before and after the reply; busy cores of each processor.
    fn means(model: &'a Layered, seed: u64, cycles: u64) -> Means {
        let mut simulation = Simulation::new(model, seed);
        simulation.run(cycles / 10, f64::INFINITY);
        let start = simulation.now;
        simulation.tally.fill(Tally::default());
        simulation.cpus.iter_mut().for_each(|cpu| cpu.work = 0.0);
        simulation.run(simulation.cycles + cycles, f64::INFINITY);
        let time = simulation.now - start;
        let entries = simulation.tally.iter().map(|tally| {
            let each = |sum: f64| if tally.runs > 0.0 { sum / tally.runs } else { 0.0 };
            [tally.runs / time, each(tally.phases[0]), each(tally.phases[1] + tally.phases[2])]
        });
        Means {
            entries: entries.collect(),
            busy: simulation.cpus.iter().map(|cpu| cpu.work / time).collect(),
        }
    }
}

struct Means {
    entries: Vec<[f64; 3]>,
    busy: Vec<f64>,
}

#[derive(Clone, Copy)]
struct Kind {
    second_phases: bool,
    unbound: bool,
    variable: bool,
    forks: bool,
}

/// A model of 2 to 4 layers and 1 to 3 reference tasks.
fn random(seed: u64, kind: Kind) -> Layered {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut model = Layered { name: format!("seed {seed}"), ..Layered::default() };
    let copies = |rng: &mut Xoshiro256PlusPlus, name: String| Processor {
        name,
        copies: match rng.random_range(0..6) {
            0 => Copies::Unlimited,
            1 => Copies::Limited(2),
            2 => Copies::Limited(rng.random_range(3..5)),
            _ => Copies::Limited(1),
        },
        sharing: if rng.random_bool(0.5) { Sharing::Fcfs } else { Sharing::Ps },
    };
    let layers = rng.random_range(2..5);
    let mut below: Vec<usize> = Vec::new();
    // From the lowest layer up, so that calls have a target.
    for layer in 0..layers {
        let reference = layer + 1 == layers;
        let mut made = Vec::new();
        let first_cpu = model.processors.len();
        for number in 0..rng.random_range(1..4) {
            // One processor a task, or the layer's.
            if number == 0 || rng.random_bool(0.6) {
                let cpu = copies(&mut rng, format!("p{layer}{number}"));
                model.processors.push(cpu);
            }
            let processor = rng.random_range(first_cpu..model.processors.len());
            let task = model.tasks.len();
            let role = if reference {
                let think_time =
                    if rng.random_bool(0.3) { 0.0 } else { rng.random_range(0.5..8.0) };
                Role::Reference { population: rng.random_range(1..9), think_time }
            } else {
                Role::Server(match rng.random_range(0..6) {
                    0 => Copies::Unlimited,
                    1 => Copies::Limited(rng.random_range(3..7)),
                    2 => Copies::Limited(2),
                    _ => Copies::Limited(1),
                })
            };
            model.tasks.push(Task { name: format!("t{layer}{number}"), processor, role });
            for _ in 0..if reference { 1 } else { rng.random_range(1..3) } {
                let phases =
                    1 + usize::from(kind.second_phases && !reference && rng.random_bool(0.4));
                let phases = (0..phases).map(|_| phase(&mut rng, &below, kind)).collect();
                made.push(model.entries.len());
                let arrival_rate = if kind.unbound && !reference && rng.random_bool(0.15) {
                    rng.random_range(0.02..0.2)
                } else {
                    0.0
                };
                let name = format!("e{}", model.entries.len());
                model.entries.push(Entry {
                    name,
                    task,
                    arrival_rate,
                    phases,
                    forwards: Vec::new(),
                });
            }
        }
        // Now and then a call passes a layer by.
        below.retain(|_| rng.random_bool(0.2));
        below.extend(made);
    }
    model
}

fn phase(rng: &mut Xoshiro256PlusPlus, below: &[usize], kind: Kind) -> Phase {
    let mut calls = Vec::new();
    for entry in below {
        if rng.random_bool(0.6) {
            let asynchronous = kind.unbound && rng.random_bool(0.15);
            let (most, what) = if asynchronous {
                (0.3, CallKind::Asynchronous)
            } else {
                (2.0, CallKind::Synchronous)
            };
            calls.push(Call { entry: *entry, mean: rng.random_range(0.1..most), kind: what });
        }
    }
    let mut forks = Vec::new();
    if kind.forks && below.len() > 1 && rng.random_bool(0.6) {
        let count = rng.random_range(2..=below.len().min(4));
        let first = rng.random_range(0..below.len());
        let entries = (0..count).map(|place| below[(first + place) % below.len()]).collect();
        forks.push(Fork { entries, mean: rng.random_range(0.2..2.0) });
    }
    let scv = if kind.variable { [0.0, 0.25, 1.0, 4.0][rng.random_range(0..4)] } else { 1.0 };
    let demand = 0.05 * 20_f64.powf(rng.random::<f64>());
    Phase { demand, scv, calls, forks, ..Phase::default() }
}

fn percentile(list: &mut [f64], share: f64) -> f64 {
    list.sort_by(f64::total_cmp);
    let last = kendall_units::exact_f64(list.len() - 1);
    let place = usize::try_from(kendall_units::whole_u64((share * last).round())).unwrap();
    list[place]
}

/// Errors of throughputs of reference tasks and of times of entries, in percent.
fn errors(model: &Layered, cycles: u64) -> Option<(Vec<f64>, Vec<f64>)> {
    let found = match solve(model) {
        Err(LayeredError::Unstable { .. } | LayeredError::NotSettled { .. }) => return None,
        other => other.unwrap_or_else(|error| panic!("{}: {error}", model.name)),
    };
    let means = Simulation::means(model, 7, cycles);
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    for (index, entry) in model.entries.iter().enumerate() {
        let [rate, first, second] = means.entries[index];
        if rate < 1e-9 {
            continue;
        }
        let result = &found.entries[index];
        let phases: Vec<f64> = result.phases.iter().map(|phase| phase.service_time).collect();
        let mut compare = |a: f64, b: f64| {
            if b > 0.0 {
                times.push(100.0 * (a / b - 1.0));
            }
        };
        compare(phases[0], first);
        compare(phases[1..].iter().sum(), second);
        if matches!(model.tasks[entry.task].role, Role::Reference { .. }) {
            rates.push(100.0 * (result.throughput / rate - 1.0));
        }
    }
    for (processor, busy) in found.processors.iter().zip(&means.busy) {
        assert!(processor.utilization.is_none_or(|share| share < 1.0 + 1e-6), "{}", model.name);
        assert!(processor.busy >= 0.0 && *busy >= 0.0);
    }
    Some((rates, times))
}

#[test]
#[ignore = "takes minutes: it prints the table of docs/models.md"]
fn errors_over_random_layered_models() {
    let models: u64 = std::env::var("MODELS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let cycles: u64 = std::env::var("CYCLES").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let none = Kind { second_phases: false, unbound: false, variable: false, forks: false };
    let kinds = [
        ("synchronous, one phase", none),
        ("other variation", Kind { variable: true, ..none }),
        ("second phases", Kind { second_phases: true, ..none }),
        ("open and asynchronous", Kind { unbound: true, ..none }),
        ("all of these", Kind { second_phases: true, unbound: true, variable: true, ..none }),
        ("forks", Kind { forks: true, ..none }),
    ];
    let factor = std::env::var("CUSTOMERS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let only = std::env::var("KIND").unwrap_or_default();
    for (name, kind) in kinds.into_iter().filter(|(name, _)| name.contains(&only)) {
        let (mut rates, mut times, mut count) = (Vec::new(), Vec::new(), 0);
        for seed in 0..models {
            let model = crowded(random(seed, kind), factor);
            let Some((rate, time)) = errors(&model, cycles) else { continue };
            count += 1;
            rates.extend(rate);
            times.extend(time);
        }
        let row = |list: &[f64]| {
            let mut list: Vec<f64> = list.iter().map(|error| error.abs()).collect();
            [0.5, 0.9, 0.99, 1.0].map(|share| percentile(&mut list, share))
        };
        println!("{name}, {count} models: X {:.1?}, R {:.1?}", row(&rates), row(&times));
    }
}

/// Demands, and calls with their mean numbers.
type Phases<'a> = &'a [(f64, &'a [(usize, f64)])];

/// A model whose processors are each task's own.
fn tower(tasks: &[(Role, Option<u64>)], entries: &[(usize, Phases<'_>)]) -> Layered {
    let mut model = Layered { name: "published".to_owned(), ..Layered::default() };
    for (index, (role, cores)) in tasks.iter().enumerate() {
        let copies = cores.map_or(Copies::Unlimited, Copies::Limited);
        let name = format!("p{index}");
        model.processors.push(Processor { name, copies, sharing: Sharing::Fcfs });
        model.tasks.push(Task { name: format!("t{index}"), processor: index, role: *role });
    }
    for (index, (task, phases)) in entries.iter().enumerate() {
        let phases = phases.iter().map(|(demand, calls)| {
            let call = |(entry, mean): &(usize, f64)| Call {
                entry: *entry,
                mean: *mean,
                kind: CallKind::Synchronous,
            };
            Phase { demand: *demand, calls: calls.iter().map(call).collect(), ..Phase::default() }
        });
        model.entries.push(Entry {
            name: format!("e{index}"),
            task: *task,
            arrival_rate: 0.0,
            phases: phases.collect(),
            forwards: Vec::new(),
        });
    }
    model
}

const fn customers(population: u64) -> Role {
    Role::Reference { population, think_time: 0.0 }
}

const fn threads(threads: u64) -> Role {
    Role::Server(Copies::Limited(threads))
}

/// Models of the regression suite that LQNS 5 is kept with (github.com/layeredqueuing/V5,
/// models/regression), X of the first reference tasks as its simulator found them (to 1 %), and how far
/// LQNS itself is off; for 20 and 31, where Kendall is further off than LQNS, how far Kendall is.
#[test]
fn published_models_are_met_as_well_as_by_lqns() {
    let one: Phases<'_> = &[(1.0, &[])];
    let models = [
        // 10: a customer who also calls what its server calls never waits.
        (
            tower(
                &[(customers(1), None), (threads(1), Some(1)), (threads(1), Some(1))],
                &[(0, &[(1.0, &[(2, 1.0), (1, 1.0)])]), (1, &[(1.0, &[(2, 1.0)])]), (2, one)],
            ),
            0.250291,
            0.1,
        ),
        // 20: two threads for four customers.
        (
            tower(
                &[(customers(4), None), (threads(2), None)],
                &[(0, &[(1.0, &[(1, 1.0)])]), (1, one)],
            ),
            1.699,
            3.5,
        ),
        // 21: three threads, with a second phase.
        (
            tower(
                &[(customers(3), None), (threads(3), None)],
                &[(0, &[(1.0, &[(1, 1.0)])]), (1, &[(0.5, &[]), (0.5, &[])])],
            ),
            1.92034,
            6.3,
        ),
        // 31: a second phase delays the same customer's next call.
        (
            tower(
                &[(customers(1), None), (threads(1), Some(1))],
                &[(0, &[(1.0, &[(1, 1.0)])]), (1, &[(1.0, &[]), (1.0, &[])])],
            ),
            0.400288,
            1.9,
        ),
        // 91: one server, three clients, and second phases of very different length.
        (
            tower(
                &[
                    (customers(1), Some(1)),
                    (customers(1), Some(1)),
                    (customers(1), Some(1)),
                    (threads(1), Some(1)),
                ],
                &[
                    (0, &[(2.0, &[(3, 1.0)])]),
                    (1, &[(0.5, &[(4, 1.0)])]),
                    (2, &[(1.0, &[(5, 1.0)])]),
                    (3, &[(1.0, &[]), (5.0, &[])]),
                    (3, &[(0.5, &[]), (0.5, &[])]),
                    (3, &[(0.5, &[]), (1.0, &[])]),
                ],
            ),
            0.11271,
            6.7,
        ),
    ];
    for (index, (model, published, percent)) in models.into_iter().enumerate() {
        let x =
            solve(&model).unwrap_or_else(|error| panic!("{index}: {error}")).tasks[0].throughput;
        // The simulations are certain to 1 %.
        let error = 100.0 * (x / published - 1.0).abs();
        assert!(error <= percent + 1.0, "{index}: {x} against {published}, {error:.1} %");
    }
}

/// The simulation itself, on what has an exact answer.
#[test]
fn the_simulation_of_layers_is_right_where_the_answer_is_known() {
    // M/M/1 by a customer and a server: X = N/(Z + R), exactly by MVA: N = 2, Z = S = 1.
    let model = tower(
        &[(customers(2), None), (threads(1), Some(1))],
        &[(0, &[(1.0, &[(1, 1.0)])]), (1, &[(1.0, &[])])],
    );
    let simulated = Simulation::means(&model, 1, 60_000).entries[0][0];
    // A geometric number of calls with mean 1 has the same product form as one call: R(1) = 1,
    // Q(1) = 1/2, R(2) = 3/2.
    assert!((simulated - 0.8).abs() < 0.8 * 0.02, "{simulated}");
    let solved = solve(&model).unwrap();
    assert!((solved.entries[0].throughput - 0.8).abs() < 1e-6, "{:?}", solved.entries[0]);
    // The utilization law holds whatever the error.
    assert!((solved.processors[1].busy - solved.entries[0].throughput).abs() < 1e-6);
}

/// Customers who think for a second, a web server of 50 threads on 4 cores, and what it calls: with so many customers its
/// threads are always busy, so that it is a closed network of 50, whose throughput balanced job bounds hold
/// [LZGS84 ch. 5]: N/(D + (N − 1)·Dmax) ≤ X ≤ 1/Dmax. Of the tower the same of the 8 threads of its middle.
#[test]
fn many_customers_come_to_the_capacity_of_the_slowest_layer() {
    let thinking = |population| Role::Reference { population, think_time: 1.0 };
    let unlimited = Role::Server(Copies::Unlimited);
    let least = |threads: f64, demand: f64, most: f64| threads / (demand + (threads - 1.0) * most);
    for population in [1_000, 10_000, 1_000_000] {
        let one: Phases<'_> = &[(0.01, &[])];
        let call: Phases<'_> = &[(0.0, &[(1, 1.0)])];
        let alone =
            tower(&[(thinking(population), None), (threads(1), Some(1))], &[(0, call), (1, one)]);
        let two = tower(
            &[(thinking(population), None), (threads(50), Some(4)), (unlimited, Some(1))],
            &[(0, call), (1, &[(0.002, &[(2, 2.0)])]), (2, one)],
        );
        let three = tower(
            &[
                (thinking(population), None),
                (threads(50), Some(4)),
                (threads(8), Some(2)),
                (threads(1), Some(1)),
            ],
            &[(0, call), (1, &[(0.002, &[(2, 2.0)])]), (2, &[(0.003, &[(3, 1.5)])]), (3, one)],
        );
        let n = kendall_units::exact_f64(population);
        let models = [
            // As a closed network with think time [LZGS84 table 5.2].
            (alone, n / (1.01 + (n - 1.0) * 0.01 / (1.0 + 1.0 / (n * 0.01))), 100.0),
            (two, least(50.0, 0.022, 0.02), 50.0),
            (three, least(8.0, 0.018, 0.015) / 2.0, 1.0 / 0.03),
        ];
        for (index, (model, least, most)) in models.iter().enumerate() {
            let found =
                solve(model).unwrap_or_else(|error| panic!("{population} {index}: {error}"));
            let x = found.tasks[0].throughput;
            assert!(*least <= x && x <= most * (1.0 + 1e-6), "{population} {index}: {x}");
            let cycle = 1.0 + found.tasks[0].response.unwrap();
            assert!((x * cycle / n - 1.0).abs() < 1e-6, "{population} {index}: {cycle}");
        }
    }
}

/// With as many threads and cores as requests nothing waits, and X = N/ΣD. With more customers than threads, and a core a
/// thread, the threads are always busy: X = c/D. Waits for cores made X 42 % and 19 % too low.
#[test]
fn nobody_waits_where_there_are_enough_threads_and_cores() {
    let call: Phases<'_> = &[(0.0, &[(1, 1.0)])];
    let two = Some(2);
    let idle = tower(
        &[(customers(2), None), (threads(2), two), (threads(2), two), (threads(2), two)],
        &[(0, call), (1, &[(1e-4, &[(2, 1.0)])]), (2, &[(1e-4, &[(3, 1.0)])]), (3, &[(0.1, &[])])],
    );
    let found = solve(&idle).unwrap().tasks[0].throughput;
    assert!((found * 0.1002 / 2.0 - 1.0).abs() < 1e-9, "{found}");
    for servers in [1, 2, 4, 16] {
        let all = [(customers(10_000), None), (threads(servers), Some(servers))];
        let full = tower(&all, &[(0, call), (1, &[(0.01, &[])])]);
        let found = solve(&full).unwrap().tasks[0].throughput * 0.01;
        let most = kendall_units::exact_f64(servers);
        assert!(found <= most * (1.0 + 1e-6) && found > 0.99 * most, "{servers}: {found}");
    }
}

/// So many times as many customers of each reference task.
fn crowded(mut model: Layered, factor: u64) -> Layered {
    for task in &mut model.tasks {
        if let Role::Reference { population, .. } = &mut task.role {
            *population *= factor;
        }
    }
    model
}

#[test]
fn random_layered_models_with_many_customers_settle() {
    let none = Kind { second_phases: false, unbound: false, variable: false, forks: false };
    let kinds =
        [none, Kind { second_phases: true, ..none }, Kind { forks: true, variable: true, ..none }];
    for (seed, kind) in (0..20).flat_map(|seed| kinds.map(|kind| (seed, kind))) {
        let model = crowded(random(seed, kind), if seed % 2 == 0 { 300 } else { 100 });
        let found = solve(&model).unwrap_or_else(|error| panic!("{}: {error}", model.name));
        for (result, place) in found.processors.iter().zip(0..) {
            let full = result.utilization.is_some_and(|share| share > 1.0 + 1e-6);
            assert!(!full, "{place} of {}: {result:?}", model.name);
        }
        // As measured: to 800 customers, and with exponential slices.
        let populations = model.tasks.iter().map(|task| match task.role {
            Role::Reference { population, .. } => population,
            Role::Server(_) => 0,
        });
        let measured = populations.max().unwrap() <= 800 && !kind.variable;
        let error = found.measured_error.map(|error| error.response_percent);
        assert!(error.is_some() == measured && error.is_none_or(|e| e >= 540.0), "{error:?}");
    }
}

/// A short form of the measurement: every kind of model, the first ten of each.
#[test]
fn random_layered_models_are_within_the_measured_errors() {
    for seed in 0..10 {
        for bits in 0..16 {
            let kind = Kind {
                second_phases: bits & 1 > 0,
                unbound: bits & 2 > 0,
                variable: bits & 4 > 0,
                forks: bits & 8 > 0,
            };
            let model = random(seed, kind);
            let found = match solve(&model) {
                Err(LayeredError::Unstable { .. }) => continue,
                other => other.unwrap_or_else(|error| panic!("{}: {error}", model.name)),
            };
            let error = found.measured_error.unwrap();
            assert!(error.throughput_percent > 0.0 && error.response_percent > 0.0);
            for (task, result) in model.tasks.iter().zip(&found.tasks) {
                // Little: customers think or are busy.
                if let Role::Reference { population, think_time } = task.role {
                    let n = result.throughput * (think_time + result.response.unwrap());
                    let population = kendall_units::exact_f64(population);
                    assert!((n / population - 1.0).abs() < 1e-6, "{}: {n}", model.name);
                }
            }
            for (processor, result) in model.processors.iter().zip(&found.processors) {
                let full = result.utilization.is_some_and(|share| share > 1.0 + 1e-6);
                assert!(!full, "{} of {}: {result:?}", processor.name, model.name);
            }
        }
    }
    let none = Kind { second_phases: false, unbound: false, variable: false, forks: false };
    let model = random(3, none);
    let (rates, _) = errors(&model, 20_000).unwrap();
    let most = solve(&model).unwrap().measured_error.unwrap().throughput_percent;
    // The simulation is certain to 2 %.
    assert!(rates.iter().all(|error| error.abs() <= most + 2.0), "{rates:?}");
}
