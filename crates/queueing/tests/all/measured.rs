//! How far approximations are off where no exact solution has their form: over random models, against
//! Markov chains and long simulations. What an answer says of its error, and docs/models.md, is the
//! largest of these; `make bench-models` prints them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kendall_queueing::Distribution;
use kendall_queueing::model::{Batch, Class, Discipline, Model, Pool, Station, Workload};
use kendall_queueing::network::{ForkJoin, MeasuredError, fork_join_general, fork_join_unequal};
use kendall_queueing::simulation::{Settings, Simulated, draw, simulate};
use kendall_queueing::solver::{Caveat, Solution, Solver, solve};
use kendall_queueing::station::{GgmFormula, ggm, mg1};

use crate::approximations::Draw;
use crate::independent::chain;

/// Relative errors of one approximation over random models, signed: above 0 where it is too high.
struct Errors {
    name: &'static str,
    found: Vec<f64>,
}

impl Errors {
    fn new(name: &'static str) -> Self {
        Self { name, found: Vec::new() }
    }

    fn add(&mut self, have: f64, truth: f64) {
        self.found.push(100.0 * (have / truth - 1.0));
    }

    /// Prints them. The largest must be at most what the answers say.
    #[expect(clippy::print_stdout, reason = "the figures are what `make bench-models` asks for")]
    fn within(mut self, said: f64) {
        let count = self.found.len();
        let (low, high) =
            self.found.iter().fold((0.0_f64, 0.0_f64), |(a, b), e| (a.min(*e), b.max(*e)));
        self.found.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let mean =
            self.found.iter().map(|e| e.abs()).sum::<f64>() / kendall_units::exact_f64(count);
        let most = self.found[count - 1].abs();
        println!(
            "{:<60} {count:>4} models: mean {mean:.2} %, 95 % within {:.1} %, largest {most:.1} % ({low:.1} to {high:+.1})",
            self.name,
            self.found[count * 95 / 100].abs(),
        );
        assert!(most <= said, "{}: {most} % for the {said} % that answers say", self.name);
    }
}

/// A law of mean 1 whose spread is known: any family, c² up to 4.
fn law(draw: &mut Draw, families: u64) -> Distribution {
    let scv = 0.1 * 40.0_f64.powf(draw.unit());
    let built = match draw.below(families) {
        0 => Distribution::lognormal(1.0, scv),
        1 => {
            // Γ(1 + 1/k) sets the scale; shapes of 0.6 to 3 have c² from 3.1 to 0.13.
            let shape = 0.6 + 2.4 * draw.unit();
            Distribution::weibull(shape, 1.0).and_then(|law| law.with_mean(1.0))
        }
        2 => Distribution::gamma(1.0, scv),
        3 if scv > 1.0 => Distribution::hyperexponential_balanced(1.0, scv),
        3 => Distribution::erlang(1 + u32::try_from(draw.below(8)).unwrap(), 1.0),
        4 => Distribution::exponential(1.0),
        _ => Distribution::deterministic(1.0),
    };
    built.unwrap()
}

/// Customers of a batch of a simulated fork, and batches.
const FORKED: usize = 20_000;
const BATCHES: usize = 40;

/// Mean time until `needed` branches of a fork are done, by Lindley's recursion of each branch, with
/// the branches' own mean, which is known, as control; and its standard error.
fn simulated_fork(seed: u64, lambda: f64, services: &[Distribution], needed: usize) -> (f64, f64) {
    let gap = Distribution::exponential(1.0 / lambda).unwrap();
    let known: f64 = services.iter().map(|s| mg1(lambda, s).unwrap().response_time.mean).sum();
    let mut waits = vec![0.0_f64; services.len()];
    let mut points = Vec::new();
    for batch in 0..=BATCHES as u64 {
        let stream = |at: u64| seed * 1_000_000 + batch * 1_000 + at;
        let gaps = draw(&gap, stream(0), FORKED);
        let times: Vec<Vec<f64>> =
            services.iter().zip(1..).map(|(s, at)| draw(s, stream(at), FORKED)).collect();
        let (mut all, mut each) = (0.0, 0.0);
        let mut done = vec![0.0; services.len()];
        for (n, gap) in gaps.iter().enumerate() {
            for (branch, wait) in waits.iter_mut().enumerate() {
                done[branch] = *wait + times[branch][n];
                each += done[branch];
                *wait = (done[branch] - gap).max(0.0);
            }
            let (_, last, _) = done.select_nth_unstable_by(needed - 1, f64::total_cmp);
            all += *last;
        }
        let count = kendall_units::exact_f64(FORKED);
        // The first is the warm-up.
        if batch > 0 {
            points.push((all / count, each / count - known));
        }
    }
    let n = kendall_units::exact_f64(points.len());
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (y, x) = (mean(&|p| p.0), mean(&|p| p.1));
    let slope = mean(&|p| (p.0 - y) * (p.1 - x)) / mean(&|p| (p.1 - x).powi(2)).max(1e-300);
    let rest = mean(&|p| (p.0 - y - slope * (p.1 - x)).powi(2));
    (y - slope * x, (rest / (n - 2.0)).sqrt())
}

/// What is not certain to 1 % is left out.
fn add_fork(errors: &mut Errors, found: &ForkJoin, (truth, error): (f64, f64)) {
    if 2.0 * error < 0.01 * truth {
        errors.add(found.response_time, truth);
    }
}

fn forks(equal: bool, exponential: bool, all: bool, seed: u64) -> (Errors, f64) {
    let name = match (equal, exponential, all) {
        (false, ..) => "fork–join of 2 to 16 unequal exponential branches, R",
        (_, true, true) => "fork–join of 3 to 32 exponential branches, R",
        (_, true, false) => "k of 2 to 32 exponential branches, R",
        (_, false, _) => "fork–join of 2 to 32 general branches, R",
    };
    let (mut errors, mut draw) = (Errors::new(name), Draw(seed));
    let mut said = 0.0;
    for index in 0..60 {
        let most = if equal { 5.0_f64 } else { 4.0 };
        let count = 2.0_f64.powf(1.0 + (most - 1.0) * draw.unit()).round();
        let count = usize::try_from(kendall_units::whole_u64(count))
            .unwrap()
            .max(2 + usize::from(equal && exponential && all));
        let rho = 0.1 + 0.8 * draw.unit();
        let one =
            if exponential { Distribution::exponential(1.0).unwrap() } else { law(&mut draw, 4) };
        let services: Vec<Distribution> = (0..count)
            .map(|branch| match branch {
                0 => one.clone(),
                _ if equal => one.clone(),
                _ => Distribution::exponential(0.1_f64.powf(draw.unit())).unwrap(),
            })
            .collect();
        let needed =
            if all { count } else { 1 + usize::try_from(draw.below(count as u64 - 1)).unwrap() };
        let truth = simulated_fork(seed * 1_000 + index, rho, &services, needed);
        let times: Vec<f64> = services.iter().map(Distribution::mean).collect();
        let number = |n: usize| u32::try_from(n).unwrap();
        let found = if equal {
            fork_join_general(rho, &one, number(count), number(needed)).unwrap()
        } else {
            fork_join_unequal(rho, &times).unwrap()
        };
        said = found.measured_error.map_or(0.0, |e: MeasuredError| e.response_percent);
        add_fork(&mut errors, &found, truth);
    }
    (errors, said)
}

#[test]
#[ignore = "minutes; part of `make bench-models`"]
fn fork_joins_err_as_their_answers_say() {
    let (unequal, said) = forks(false, true, true, 11);
    unequal.within(said);
    for (exponential, all) in [(true, true), (true, false), (false, true)] {
        let (errors, said) = forks(true, exponential, all, 12);
        errors.within(said);
    }
}

/// Service time and servers.
type Queue = (f64, u32);

fn rate((time, servers): Queue, present: u32) -> f64 {
    f64::from(present.min(servers)) / time
}

/// A closed class that thinks, goes to a first station, then holds a token at two: throughput.
fn chain_of_pool(population: u32, think: f64, tokens: u32, queues: [Queue; 3]) -> f64 {
    // At the first, waiting for a token, at the second, at the third; the others think.
    let enter =
        |[o, w, a, b]: [u32; 4]| if a + b < tokens { [o, w, a + 1, b] } else { [o, w + 1, a, b] };
    let start = if think > 0.0 { [0; 4] } else { [population, 0, 0, 0] };
    let c = chain(start, |s| {
        let [o, w, a, b] = *s;
        let mut moves = Vec::new();
        let thinking = population - o - w - a - b;
        if think > 0.0 && thinking > 0 {
            moves.push(([o + 1, w, a, b], f64::from(thinking) / think));
        }
        if o > 0 {
            moves.push((enter([o - 1, w, a, b]), rate(queues[0], o)));
        }
        if a > 0 {
            moves.push(([o, w, a - 1, b + 1], rate(queues[1], a)));
        }
        if b > 0 {
            let next = if w > 0 { [o, w - 1, a + 1, b - 1] } else { [o, w, a, b - 1] };
            let next = if think > 0.0 { next } else { [next[0] + 1, next[1], next[2], next[3]] };
            moves.push((next, rate(queues[2], b)));
        }
        moves
    });
    c.mean(|s| rate(queues[2], s[3]))
}

/// Arrivals straight at the pool, at a rate that depends on who is there: mean number and throughput.
fn chain_of_arrivals(arrivals: &dyn Fn(u32) -> f64, tokens: u32, queues: [Queue; 2]) -> (f64, f64) {
    let c = chain([0_u32; 3], |[w, a, b]| {
        let (w, a, b) = (*w, *a, *b);
        let mut moves = Vec::new();
        let lambda = arrivals(w + a + b);
        if lambda > 0.0 && a + b < tokens {
            moves.push(([w, a + 1, b], lambda));
        } else if lambda > 0.0 {
            moves.push(([w + 1, a, b], lambda));
        }
        if a > 0 {
            moves.push(([w, a - 1, b + 1], rate(queues[0], a)));
        }
        if b > 0 {
            let next = if w > 0 { [w - 1, a + 1, b - 1] } else { [w, a, b - 1] };
            moves.push((next, rate(queues[1], b)));
        }
        moves
    });
    (c.mean(|[w, a, b]| f64::from(w + a + b)), c.mean(|s| rate(queues[1], s[2])))
}

fn pool_over(class: Class, queues: &[Queue], tokens: u32, held: Vec<usize>) -> Solution {
    let station = |(at, (time, servers)): (usize, &Queue)| {
        Station::queue(&format!("s{at}"), u64::from(*servers)).with_service_time(0, *time)
    };
    let stations = queues.iter().enumerate().map(station).collect();
    let pool = Pool {
        name: "p".to_owned(),
        tokens: u64::from(tokens),
        stations: held,
        classes: vec![0],
        queue_capacity: None,
    };
    let model = Model::new("m", vec![class], stations).unwrap().with_pools(vec![pool]).unwrap();
    solve(&model, Solver::Auto).unwrap()
}

fn said(solution: &Solution) -> MeasuredError {
    let found = solution.caveats.iter().find_map(|caveat| match caveat {
        Caveat::MeasuredError(error) => Some(*error),
        _ => None,
    });
    found.expect("measured here")
}

fn small(draw: &mut Draw, most: u64) -> u32 {
    u32::try_from(1 + draw.below(most)).unwrap()
}

/// Half of them with one server, the others with up to four.
fn queue(draw: &mut Draw) -> Queue {
    let servers = if draw.below(2) == 0 { 1 } else { small(draw, 4) };
    (f64::from(servers) * draw.demand(), servers)
}

/// Behind a station of its own with up to 9 customers, or with up to 60 that come from thinking.
#[test]
fn closed_pools_at_two_stations_err_as_their_answers_say() {
    let mut draw = Draw(21);
    let mut x = Errors::new("pool of 1 to 5 at two stations, closed, X");
    let mut r = Errors::new("the same, R");
    let mut most = None;
    for index in 0..400 {
        let tokens = small(&mut draw, 5);
        let queues = [queue(&mut draw), queue(&mut draw), queue(&mut draw)];
        let behind = index % 2 == 0;
        let population = small(&mut draw, if behind { 9 } else { 60 });
        let (think, truth) = if behind {
            let think = if draw.below(2) == 0 { 0.0 } else { 3.0 * draw.unit() };
            (think, chain_of_pool(population, think, tokens, queues))
        } else {
            let slowest =
                queues[1..].iter().map(|(time, m)| time / f64::from(*m)).fold(0.0, f64::max);
            let think = f64::from(population) * slowest * (0.7 + draw.unit());
            let arrivals = |there: u32| f64::from(population - there) / think;
            (think, chain_of_arrivals(&arrivals, tokens, [queues[1], queues[2]]).1)
        };
        let class = Class::closed("c", u64::from(population), think);
        let found = if behind {
            pool_over(class, &queues, tokens, vec![1, 2])
        } else {
            pool_over(class, &queues[1..], tokens, vec![0, 1])
        };
        x.add(found.classes[0].throughput, truth);
        r.add(found.classes[0].system_response, f64::from(population) / truth - think);
        most = Some(said(&found));
    }
    x.within(most.unwrap().throughput_percent);
    r.within(most.unwrap().response_percent);
}

/// Up to 85 % of what the pool can do.
#[test]
fn open_pools_at_two_stations_err_as_their_answers_say() {
    let mut draw = Draw(22);
    let mut r = Errors::new("pool of 1 to 5 at two stations, open, R");
    let mut most = None;
    for _ in 0..100 {
        let tokens = small(&mut draw, 5);
        let queues = [queue(&mut draw), queue(&mut draw)];
        let full = Class::closed("c", u64::from(tokens), 0.0);
        let alone = pool_over(full, &queues, tokens, vec![0, 1]);
        let lambda = (0.1 + 0.75 * draw.unit()) * alone.classes[0].throughput;
        let arrivals = |there: u32| if there < 100 { lambda } else { 0.0 };
        let truth = chain_of_arrivals(&arrivals, tokens, queues).0 / lambda;
        let found = pool_over(Class::open("c", lambda), &queues, tokens, vec![0, 1]);
        r.add(found.classes[0].system_response, truth);
        most = Some(said(&found));
    }
    r.within(most.unwrap().response_percent);
}

/// G/G/m queues, gaps and services of any family: waits by the formulas and by simulation.
fn queues(servers: u64, bursty: bool, seed: u64, name: [&'static str; 2]) {
    let (mut wait, mut response) = (Errors::new(name[0]), Errors::new(name[1]));
    let mut draw = Draw(seed);
    let mut most = (0.0, 0.0);
    while wait.found.len() < 60 {
        let gap = law(&mut draw, 4);
        let service = law(&mut draw, 6);
        let rho = 0.3 + 0.6 * draw.unit();
        let m = if servers > 1 { 2 + draw.below(servers - 1) } else { 1 };
        if (gap.scv() > 1.0) != bursty
            || gap.is_exponential()
            || (m == 1 && service.is_exponential())
        {
            continue;
        }
        let lambda = rho * kendall_units::exact_f64(m);
        let class = Class {
            workload: Workload::Open {
                arrival_rate_per_s: lambda,
                interarrival: gap.with_mean(1.0 / lambda).unwrap(),
                batch: Batch::Fixed(1),
            },
            ..Class::open("c", lambda)
        };
        let station = Station::queue("q", m).with_service(0, service);
        let model = Model::new("m", vec![class], vec![station]).unwrap();
        let (truth, found) = simulated_and_solved(&model);
        // Phases on both sides are solved exactly.
        if found.caveats.is_empty() {
            let took = truth.classes[0].response_time_mean_s.unwrap();
            let apart = (found.classes[0].system_response - took.center).abs();
            assert!(apart < 4.0 * took.half_width.unwrap(), "{model:?}: {took:?}");
            continue;
        }
        let waited = truth.stations[0].all.waiting_time_mean_s.unwrap();
        // What is not certain to 4 % is left out, as are waits of a thousandth of a service.
        if waited.half_width.unwrap() > 0.04 * waited.center || waited.center < 1e-3 {
            continue;
        }
        wait.add(found.stations[0].waiting_time[0], waited.center);
        let took = truth.classes[0].response_time_mean_s.unwrap().center;
        response.add(found.classes[0].system_response, took);
        most = waits_said(&found);
    }
    wait.within(most.0);
    response.within(most.1);
}

/// A long simulation, and the answer of the solver.
fn simulated_and_solved(model: &Model) -> (Simulated, Solution) {
    let settings =
        Settings { relative_half_width: 0.01, most_customers: 4_000_000, ..Settings::of(model) };
    let truth = simulate(model, &settings, &mut |_| {}).unwrap();
    (truth, solve(model, Solver::Auto).unwrap())
}

/// What an answer says of its error of W and of R, in per cent.
fn waits_said(found: &Solution) -> (f64, f64) {
    let said = |caveat: &Caveat| match caveat {
        Caveat::MeasuredWait(error) => Some((error.waiting_percent, error.response_percent)),
        _ => None,
    };
    found.caveats.iter().find_map(said).expect("measured here")
}

#[test]
#[ignore = "minutes; part of `make bench-models`"]
fn waits_of_gg1_err_as_their_answers_say() {
    queues(1, false, 31, ["Kraemer–Langenbach-Belz, c_a² 0.1 to 1, W", "the same, R"]);
    queues(1, true, 32, ["Kraemer–Langenbach-Belz, c_a² 1 to 4, W", "the same, R"]);
}

#[test]
#[ignore = "minutes; part of `make bench-models`"]
fn waits_of_ggm_err_as_their_answers_say() {
    queues(8, false, 33, ["Whitt, 2 to 8 servers, c_a² 0.1 to 1, W", "the same, R"]);
    queues(8, true, 34, ["Whitt, 2 to 8 servers, c_a² 1 to 4, W", "the same, R"]);
}

/// Two or three classes by deadlines that lie a thirtieth to ten times the mean wait apart.
#[test]
#[ignore = "minutes; part of `make bench-models`"]
fn waits_by_deadline_err_as_their_answers_say() {
    let (mut wait, mut response) = (Errors::new("by deadlines, W"), Errors::new("the same, R"));
    let mut draw = Draw(35);
    let mut most = (0.0, 0.0);
    while wait.found.len() < 120 {
        let count = 2 + usize::try_from(draw.below(2)).unwrap();
        let rho = 0.3 + 0.6 * draw.unit();
        let interrupts = draw.unit() < 0.4;
        let mut list = |of: &mut dyn FnMut(&mut Draw) -> f64| -> Vec<f64> {
            (0..count).map(|_| of(&mut draw)).collect()
        };
        let means = list(&mut |draw| 10.0_f64.powf(draw.unit() - 0.5));
        let parts = list(&mut |draw| 0.2 + 0.8 * draw.unit());
        let due = list(&mut |draw| 10.0_f64.powf(2.5 * draw.unit() - 1.5));
        let service =
            if interrupts { Distribution::exponential(1.0).unwrap() } else { law(&mut draw, 6) };
        let rates: Vec<f64> = parts
            .iter()
            .zip(&means)
            .map(|(part, mean)| rho * part / parts.iter().sum::<f64>() / mean)
            .collect();
        let second: f64 = rates.iter().zip(&means).map(|(rate, mean)| rate * mean * mean).sum();
        let scale = second / rho / (1.0 - rho);
        let mut station = Station::queue("q", 1);
        for (class, mean) in means.iter().enumerate() {
            station = station.with_service(class, service.with_mean(*mean).unwrap());
        }
        station.discipline = if interrupts { Discipline::EdfPreemptive } else { Discipline::Edf };
        station.deadlines = due.iter().map(|due| due * scale).collect();
        let classes =
            rates.iter().zip(["a", "b", "c"]).map(|(rate, name)| Class::open(name, *rate));
        let model = Model::new("m", classes.collect(), vec![station]).unwrap();
        let (truth, found) = simulated_and_solved(&model);
        most = waits_said(&found);
        for (class, truth) in truth.classes.iter().enumerate() {
            let took = truth.response_time_mean_s.unwrap();
            let waited = took.center - means[class];
            // What is not certain to 4 % is left out.
            if took.half_width.is_none_or(|half| half > 0.04 * waited) {
                continue;
            }
            wait.add(found.stations[0].waiting_time[class], waited);
            response.add(found.classes[class].system_response, took.center);
        }
    }
    wait.within(most.0);
    response.within(most.1);
}

/// Two to five FCFS stations in a row, the first with gaps of any family: the whole response by the queueing
/// network analyzer, and with Poisson arrivals everywhere, as it was before.
#[test]
#[ignore = "minutes; part of `make bench-models`"]
fn open_networks_err_as_printed() {
    let mut carried = Errors::new("2 to 5 G/G/m in a row by QNA, R");
    let mut poisson = Errors::new("the same with Poisson arrivals everywhere, R");
    let mut draw = Draw(41);
    while carried.found.len() < 60 {
        let gap = law(&mut draw, 6);
        let stations: Vec<Station> = (0..2 + draw.below(4))
            .map(|at| {
                let m = 1 + draw.below(3);
                let mean = (0.3 + 0.6 * draw.unit()) * kendall_units::exact_f64(m);
                let service = law(&mut draw, 6).with_mean(mean).unwrap();
                Station::queue(&format!("s{at}"), m).with_service(0, service)
            })
            .collect();
        let alone = |station: &Station| {
            let exponential = Distribution::exponential(1.0).unwrap();
            let service = &station.demands[0].as_ref().unwrap().service;
            let solved = ggm(&exponential, service, station.servers, GgmFormula::Best);
            solved.unwrap().response_time.mean
        };
        let apart: f64 = stations.iter().map(alone).sum();
        let mut class = Class::open("c", 1.0);
        if let Workload::Open { interarrival, .. } = &mut class.workload {
            *interarrival = gap;
        }
        let model = Model::new("m", vec![class], stations).unwrap();
        let settings = Settings {
            relative_half_width: 0.01,
            most_customers: 2_000_000,
            seed: 100 + carried.found.len() as u64,
            ..Settings::of(&model)
        };
        let found = simulate(&model, &settings, &mut |_| {}).unwrap();
        let truth = found.classes[0].response_time_mean_s.unwrap();
        if truth.half_width.unwrap() > 0.02 * truth.center {
            continue;
        }
        carried.add(solve(&model, Solver::Auto).unwrap().classes[0].system_response, truth.center);
        poisson.add(apart, truth.center);
    }
    poisson.within(f64::INFINITY);
    carried.within(QNA);
}

/// What the error of the response stays below, in percent; the answers themselves say that it is unknown.
const QNA: f64 = 100.0;

/// Twenty classes of 1 to 9 customers at fifty single servers, which nothing solves exactly: against long
/// simulations.
#[test]
#[ignore = "minutes; part of `make bench-models`"]
fn many_classes_at_many_stations_err_as_their_answers_say() {
    let solvers = [
        (Solver::Linearizer, ["Linearizer, 20 classes at 50 stations, X", "the same, R"]),
        (Solver::Schweitzer, ["Bard–Schweitzer, 20 classes at 50 stations, X", "the same, R"]),
    ];
    let mut errors = solvers.map(|(solver, names)| (solver, names.map(Errors::new), None));
    let mut draw = Draw(51);
    for seed in 0..4 {
        let classes = (0..20).map(|class| {
            let think = if draw.below(2) == 0 { 0.0 } else { 20.0 * draw.unit() };
            Class::closed(&format!("c{class}"), 1 + draw.below(9), think)
        });
        let classes: Vec<Class> = classes.collect();
        let stations = (0..50).map(|at| {
            let time = draw.demand();
            (0..classes.len()).fold(Station::queue(&format!("s{at}"), 1), |station, class| {
                station.with_service_time(class, time).with_visits(class, 2.0 * draw.unit())
            })
        });
        let stations: Vec<Station> = stations.collect();
        let model = Model::new("m", classes, stations).unwrap();
        let settings = Settings {
            seed,
            relative_half_width: 0.004,
            most_customers: 1_500_000,
            threads: 2,
            ..Settings::of(&model)
        };
        let truth = simulate(&model, &settings, &mut |_| {}).unwrap();
        for (solver, [x, r], most) in &mut errors {
            let found = solve(&model, *solver).unwrap();
            for (class, truth) in found.classes.iter().zip(&truth.classes) {
                let took = truth.response_time_mean_s.unwrap();
                // What is not certain to 2 % is left out.
                if took.half_width.is_some_and(|half| half < 0.02 * took.center) {
                    x.add(class.throughput, truth.throughput_per_s.unwrap().center);
                    r.add(class.system_response, took.center);
                }
            }
            *most = Some(said(&found));
        }
    }
    for (_, [x, r], most) in errors {
        x.within(most.unwrap().throughput_percent);
        r.within(most.unwrap().response_percent);
    }
}
