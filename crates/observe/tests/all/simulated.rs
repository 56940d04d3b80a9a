//! Systems that are simulated request by request: what is stated of them must be what they do.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use kendall_observe::{Grid, Observed, Quantity, System, TierSeries, analyze, change};
use kendall_units::exact_f64;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::truths::{STEP_S, waves};

/// Workers that each request holds, for work of its own and for a visit to servers below, which others call too. All times are
/// exponential.
#[derive(Clone, Copy)]
struct Simulated {
    workers: usize,
    own_s: f64,
    below: usize,
    below_s: f64,
    /// Requests of others below, 1/s, and how long each keeps a server.
    others_per_s: f64,
    others_s: f64,
    minutes: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes,
    OtherComes,
    OwnDone(usize),
    /// And when it came there.
    BelowDone(Option<usize>, u64),
}

/// What happened at a tier in a step.
#[derive(Clone, Copy, Default)]
struct Step {
    done: f64,
    stayed_s: f64,
    busy_s: f64,
}

/// Moments in nanoseconds.
fn moment(seconds: f64) -> u64 {
    kendall_units::whole_u64(seconds * 1e9)
}

impl Simulated {
    /// Steps of the workers and of the servers below, at a load.
    fn steps(&self, load: impl Fn(f64) -> f64, seed: u64) -> [Vec<Step>; 2] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut exponential = |mean: f64| -mean * (1.0 - random.random::<f64>()).ln();
        let end_s = exact_f64(self.minutes * 60);
        let count = usize::try_from(self.minutes * 60 / STEP_S).unwrap();
        let mut steps = [vec![Step::default(); count], vec![Step::default(); count]];
        let mut events = BinaryHeap::from([Reverse((0, Event::Comes))]);
        if self.others_per_s > 0.0 {
            events.push(Reverse((0, Event::OtherComes)));
        }
        let mut came = Vec::new();
        let (mut waiting, mut below) = (VecDeque::new(), VecDeque::new());
        let (mut held, mut busy, mut before) = (0_usize, 0_usize, 0.0);
        while let Some(Reverse((at, event))) = events.pop() {
            let now = exact_f64(at) / 1e9;
            let mut from: f64 = before;
            while from < now.min(end_s) {
                let step = kendall_units::whole_u64((from / exact_f64(STEP_S)).floor());
                let to = exact_f64((step + 1) * STEP_S).min(now);
                let step = usize::try_from(step).unwrap().min(count - 1);
                steps[0][step].busy_s += exact_f64(held as u64) * (to - from);
                steps[1][step].busy_s += exact_f64(busy as u64) * (to - from);
                from = to;
            }
            before = now;
            if now >= end_s {
                break;
            }
            let step = usize::try_from(at / 1_000_000_000 / STEP_S).unwrap();
            match event {
                Event::Comes => {
                    waiting.push_back(came.len());
                    came.push(now);
                    let next = now + exponential(1.0 / load(now / end_s));
                    events.push(Reverse((moment(next), Event::Comes)));
                }
                Event::OtherComes => {
                    below.push_back((None, at));
                    let next = now + exponential(1.0 / self.others_per_s);
                    events.push(Reverse((moment(next), Event::OtherComes)));
                }
                Event::OwnDone(job) => below.push_back((Some(job), at)),
                Event::BelowDone(job, since) => {
                    busy -= 1;
                    steps[1][step].done += 1.0;
                    steps[1][step].stayed_s += exact_f64(at - since) / 1e9;
                    if let Some(job) = job {
                        held -= 1;
                        steps[0][step].done += 1.0;
                        steps[0][step].stayed_s += now - came[job];
                    }
                }
            }
            while held < self.workers {
                let Some(job) = waiting.pop_front() else { break };
                held += 1;
                events.push(Reverse((moment(now + exponential(self.own_s)), Event::OwnDone(job))));
            }
            while busy < self.below {
                let Some((job, since)) = below.pop_front() else { break };
                busy += 1;
                let service_s = if job.is_some() { self.below_s } else { self.others_s };
                let end = moment(now + exponential(service_s));
                events.push(Reverse((end, Event::BelowDone(job, since))));
            }
        }
        steps
    }

    /// Mean response time and throughput at a load that stays.
    fn truth(&self, rate_per_s: f64) -> (f64, f64) {
        let long = Self { minutes: 100, ..*self };
        let [steps, _] = long.steps(|_| rate_per_s, 77);
        let steps = &steps[steps.len() / 10..];
        let done: f64 = steps.iter().map(|step| step.done).sum();
        let stayed: f64 = steps.iter().map(|step| step.stayed_s).sum();
        (stayed / done, done / exact_f64(steps.len() as u64 * STEP_S))
    }

    fn observed(&self, load: impl Fn(f64) -> f64, seed: u64) -> Observed {
        let steps = self.steps(load, seed);
        let grid = Grid::new(0, self.minutes * 60 - STEP_S, STEP_S).unwrap();
        let of = |steps: &Vec<Step>| {
            let seconds = exact_f64(STEP_S);
            let series = [
                (Quantity::Throughput, steps.iter().map(|one| one.done / seconds).collect()),
                (Quantity::Busy, steps.iter().map(|one| one.busy_s / seconds).collect()),
                (Quantity::ResponseTime, steps.iter().map(|one| one.stayed_s / one.done).collect()),
            ];
            TierSeries { series: series.into(), ..TierSeries::default() }
        };
        Observed { grid, tiers: steps.iter().map(of).collect() }
    }
}

fn pair(one: &Simulated, held: bool) -> System {
    let held = if held { "held = true\n" } else { "" };
    System::parse(&format!(
        "name = 'x'\nentry = 'web'\nstep = '10s'\nblock = '60s'\n[tiers.web]\nservers = {}\ncalls = ['db']\n{held}\
         queries = {{ throughput = 'a', busy = 'b', response_time = 'c' }}\n[tiers.db]\nservers = {}\n\
         queries = {{ throughput = 'a', busy = 'b', response_time = 'c' }}\n",
        one.workers, one.below
    ))
    .unwrap()
}

/// Requests of others that keep a server 25 times as long as those of the entry: with more servers a request hardly waits, and its
/// response time has nothing of theirs.
#[test]
fn long_requests_of_others_are_no_time_of_the_entry() {
    let one = Simulated {
        workers: 64,
        own_s: 0.005,
        below: 4,
        below_s: 0.01,
        others_per_s: 4.0,
        others_s: 0.25,
        minutes: 120,
    };
    let (now, more) = (one.truth(120.0), Simulated { below: 6, ..one }.truth(120.0));
    let mut told = 0;
    for seed in 0..4 {
        let system = pair(&one, true);
        let observed = one.observed(waves(40.0, 150.0), seed);
        let analysis = analyze(&system, &observed).unwrap();
        for (text, truth) in [("rate=120/s", now.0), ("rate=120/s,db.servers=6", more.0)] {
            let changes: Vec<_> =
                text.split(',').map(|part| change(part, &system).unwrap()).collect();
            let answer = analysis.fitted().answer(&changes, text, 7).unwrap();
            let Ok(time) = answer.response_time else { continue };
            let all = time.interval.unwrap();
            // The truth is simulated itself, to 5 %.
            assert!(
                all.low < 1.05 * truth && all.high > 0.95 * truth,
                "{text}: {truth} s, {time:?}"
            );
            told += 1;
        }
    }
    assert!(told >= 6, "{told} of 8");
}

/// Workers that each request holds while it waits for servers below, up to near the load at which they are full.
#[test]
fn held_workers_are_full_where_they_are() {
    let one = Simulated {
        workers: 8,
        own_s: 0.04,
        below: 4,
        below_s: 0.03,
        others_per_s: 0.0,
        others_s: 0.0,
        minutes: 60,
    };
    let full = one.truth(1_000.0).1;
    let truth = one.truth(0.8 * full).0;
    for (seed, most) in (0..3).flat_map(|seed| [(seed, 0.6), (seed, 0.9)]) {
        let observed = one.observed(waves(0.2 * full, most * full), seed);
        let system = pair(&one, true);
        let analysis = analyze(&system, &observed).unwrap();
        let capacity = &analysis.tiers[0].headroom.as_ref().unwrap().capacity_per_s;
        assert!((capacity.center / full - 1.0).abs() < 0.02, "{seed}, {most}: {capacity:?}");
        let text = format!("rate={}/s", 0.8 * full);
        let answer =
            analysis.fitted().answer(&[change(&text, &system).unwrap()], &text, 7).unwrap();
        let Ok(time) = answer.response_time else { continue };
        let all = time.interval.unwrap();
        assert!(
            all.low < 1.05 * truth && all.high > 0.95 * truth,
            "{seed}, {most}: {truth} s, {time:?}"
        );
    }
}
