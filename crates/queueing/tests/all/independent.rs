//! Every family of models against a computation that shares no code with it: global balance of
//! small Markov chains by Gaussian elimination, sums over all states, recurrences.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use kendall_queueing::Distribution;
use kendall_queueing::model::{Balking, Batch};
use kendall_queueing::network::{
    Kind, Load, Network, Resource, convolution, fork_join, fork_join_unequal, mixed, mva_exact,
    normalization_constants,
};
use kendall_queueing::station::{
    PriorityClass, Scheduling, StationSolution, batch_mm1, erlang_b, erlang_c, finite_population,
    mg1, mg1_priority, mg1k, mmm, mmm_balking, mmm_impatient, mmm_priority, mmmk,
};
use nalgebra::{DMatrix, DVector};
use proptest::prelude::{ProptestConfig, prop, prop_assert, proptest};

#[track_caller]
fn near(have: f64, want: f64, relative: f64) {
    assert!((have - want).abs() <= relative * want.abs().max(1e-12), "{have} for {want}");
}

/// A Markov chain over states that are found by following its transitions.
pub(crate) struct Chain<S> {
    states: Vec<S>,
    probabilities: Vec<f64>,
}

/// Two numbers of customers, each cut off at `most`; the rates at which each grows and falls where there are so many.
pub(crate) fn two_queues(
    most: u32,
    arrivals: impl Fn(u32, u32) -> [f64; 2],
    departures: impl Fn(u32, u32) -> [f64; 2],
) -> Chain<(u32, u32)> {
    chain((0, 0), |&(a, b)| {
        let ([to_a, to_b], [of_a, of_b]) = (arrivals(a, b), departures(a, b));
        let moves = [
            (a < most).then(|| ((a + 1, b), to_a)),
            (b < most).then(|| ((a, b + 1), to_b)),
            (a > 0).then(|| ((a - 1, b), of_a)),
            (b > 0).then(|| ((a, b - 1), of_b)),
        ];
        moves.into_iter().flatten().filter(|(_, rate)| *rate > 0.0).collect()
    })
}

/// Explores from `start`, and solves πQ = 0, Σπ = 1.
pub(crate) fn chain<S: Ord + Clone>(start: S, next: impl Fn(&S) -> Vec<(S, f64)>) -> Chain<S> {
    let mut index = BTreeMap::from([(start.clone(), 0)]);
    let mut states = vec![start];
    let mut edges = Vec::new();
    let mut at = 0;
    while at < states.len() {
        for (state, rate) in next(&states[at]) {
            let known = index.len();
            let to = *index.entry(state.clone()).or_insert(known);
            if to == known {
                states.push(state);
            }
            edges.push((at, to, rate));
        }
        at += 1;
    }
    let size = states.len();
    assert!(size <= 1_500, "{size} states are many for elimination");
    let mut matrix = DMatrix::<f64>::zeros(size, size);
    for (from, to, rate) in edges {
        matrix[(to, from)] += rate;
        matrix[(from, from)] -= rate;
    }
    for column in 0..size {
        matrix[(size - 1, column)] = 1.0;
    }
    let mut right = DVector::<f64>::zeros(size);
    right[size - 1] = 1.0;
    let solved = matrix.lu().solve(&right).expect("an irreducible chain");
    Chain { states, probabilities: solved.iter().copied().collect() }
}

impl<S> Chain<S> {
    pub(crate) fn mean(&self, of: impl Fn(&S) -> f64) -> f64 {
        self.states.iter().zip(&self.probabilities).map(|(state, p)| p * of(state)).sum()
    }
}

/// A birth–death station by elimination: mean and variance of the number, and what is compared.
fn same_station(
    s: &StationSolution,
    births: &dyn Fn(u32) -> f64,
    deaths: &dyn Fn(u32) -> f64,
    last: u32,
    servers: u32,
) {
    let c = chain(0_u32, |n| {
        let mut moves = Vec::new();
        if *n < last && births(*n) > 0.0 {
            moves.push((n + 1, births(*n)));
        }
        if *n > 0 {
            moves.push((n - 1, deaths(*n)));
        }
        moves
    });
    let number = c.mean(|n| f64::from(*n));
    let second = c.mean(|n| f64::from(*n).powi(2));
    let waiting = c.mean(|n| f64::from(n.saturating_sub(servers)));
    near(s.number.mean, number, 1e-9);
    near(s.number.variance.unwrap(), second - number * number, 1e-8);
    near(s.number_waiting.mean, waiting, 1e-8);
    near(s.p0.unwrap(), c.probabilities[0], 1e-8);
    let states = s.states.as_ref().unwrap();
    for n in 0..=last.min(8) {
        let want = c.states.iter().position(|x| *x == n).map_or(0.0, |i| c.probabilities[i]);
        assert!((states.probability(u64::from(n)) - want).abs() < 1e-10, "P({n})");
    }
}

#[test]
fn markov_stations_satisfy_global_balance() {
    for (lambda, mu, m, room) in [(3.0, 2.0, 2, 5), (0.4, 1.0, 1, 3), (9.0, 1.0, 4, 12)] {
        let s = mmmk(lambda, mu, u64::from(m), u64::from(room)).unwrap();
        same_station(&s, &|_| lambda, &|n| mu * f64::from(n.min(m)), room, m);
    }
    for (rate, mu, m, n, room) in
        [(0.3, 1.0, 2, 9, None), (0.2, 0.5, 1, 6, None), (1.0, 1.0, 3, 8, Some(5))]
    {
        let s =
            finite_population(rate, mu, u64::from(m), u64::from(n), room.map(u64::from)).unwrap();
        let births = |k: u32| rate * f64::from(n - k);
        same_station(&s, &births, &|k| mu * f64::from(k.min(m)), room.unwrap_or(n), m);
        // Throughput, and Little on what is let in.
        near(s.number.mean, s.throughput * s.response_time.mean, 1e-10);
    }
    for (lambda, mu, m, theta) in [(2.0, 1.0, 1, 0.5), (4.0, 1.0, 3, 2.0)] {
        let s = mmm_impatient(lambda, mu, u64::from(m), theta, None).unwrap();
        let deaths = |n: u32| mu * f64::from(n.min(m)) + theta * f64::from(n.saturating_sub(m));
        same_station(&s, &|_| lambda, &deaths, 80, m);
    }
    let s = mmm_balking(2.0, 1.0, 1, &Balking::Reciprocal, None).unwrap();
    same_station(&s, &|n| 2.0 / f64::from(n + 1), &|_| 1.0, 60, 1);
}

/// 10,000 servers: the recurrence B(n) = a·B/(n + a·B) from B(0) = 1, which the library does not
/// use; the mean number by a sum over all states, around the largest.
#[test]
fn thousands_of_servers_are_exact() {
    for (a, m) in [(9_900.0, 10_000_u32), (4_000.0, 4_100), (800.0, 805), (95.0, 100), (3.0, 40)] {
        let mut b = 1.0;
        for n in 1..=m {
            b = a * b / (f64::from(n) + a * b);
        }
        near(erlang_b(a, u64::from(m)).unwrap(), b, 1e-11);
        let servers = f64::from(m);
        let c = servers * b / (servers - a * (1.0 - b));
        near(erlang_c(a, u64::from(m)).unwrap(), c, 1e-10);
        let s = mmm(a, 1.0, u64::from(m)).unwrap();
        near(s.p_queueing.unwrap(), c, 1e-10);
        // States to far beyond m, as products from the mode; smallest first.
        let mode = a.floor();
        let (mut mass, mut first, mut second) = (1.0, mode, mode * mode);
        for up in [true, false] {
            let (mut p, mut n) = (1.0, mode);
            loop {
                if up {
                    n += 1.0;
                    p *= a / n.min(servers);
                } else {
                    if n < 1.0 {
                        break;
                    }
                    p *= n.min(servers) / a;
                    n -= 1.0;
                }
                mass += p;
                first += p * n;
                second += p * n * n;
                if p * n * n < 1e-18 {
                    break;
                }
            }
        }
        let mean = first / mass;
        near(s.number.mean, mean, 1e-10);
        near(s.number.variance.unwrap(), second / mass - mean * mean, 1e-6);
        near(s.ln_p0.unwrap(), -(mass.ln() + mode * a.ln() - ln_gamma(mode)), 1e-10);
    }
}

/// ln n! by a plain sum.
fn ln_gamma(n: f64) -> f64 {
    let mut sum = 0.0;
    let mut k = n;
    while k > 1.0 {
        sum += k.ln();
        k -= 1.0;
    }
    sum
}

/// M/E2/1 and M/H2/1 as chains of customers and phases, with and without a limit.
#[test]
fn phase_type_service_satisfies_global_balance() {
    let erlang = Distribution::erlang(2, 1.0).unwrap();
    let hyper = Distribution::hyperexponential(vec![0.3, 0.7], vec![2.0, 4.0 / 7.0]).unwrap();
    for (lambda, limit, endless) in [(0.5, 60, true), (0.5, 4, false), (1.7, 5, false)] {
        // (customers, phase): phases in a row.
        let e2 = chain((0_u32, 0_u8), |(n, phase)| {
            let mut moves = Vec::new();
            if *n < limit {
                moves.push(((n + 1, *phase), lambda));
            }
            match (*n, *phase) {
                (0, _) => {}
                (n, 0) => moves.push(((n, 1), 2.0)),
                (n, _) => moves.push(((n - 1, 0), 2.0)),
            }
            moves
        });
        let branches = [(0.3, 0.5), (0.7, 1.75)];
        let h2 = chain((0_u32, 0_usize), |(n, branch)| {
            let mut moves = Vec::new();
            let begin = |n: u32| branches.iter().enumerate().map(move |(b, (p, _))| ((n, b), *p));
            if *n == 0 {
                moves.extend(begin(1).map(|(state, p)| (state, p * lambda)));
            } else {
                if *n < limit {
                    moves.push(((n + 1, *branch), lambda));
                }
                let rate = branches[*branch].1;
                if *n == 1 {
                    moves.push(((0, 0), rate));
                } else {
                    moves.extend(begin(n - 1).map(|(state, p)| (state, p * rate)));
                }
            }
            moves
        });
        let number = |c: f64, s: &StationSolution| near(s.number.mean, c, 1e-7);
        for (service, mean, second, empty) in [
            (
                &erlang,
                e2.mean(|s| f64::from(s.0)),
                e2.mean(|s| f64::from(s.0).powi(2)),
                e2.mean(|s| f64::from(u8::from(s.0 == 0))),
            ),
            (
                &hyper,
                h2.mean(|s| f64::from(s.0)),
                h2.mean(|s| f64::from(s.0).powi(2)),
                h2.mean(|s| f64::from(u8::from(s.0 == 0))),
            ),
        ] {
            let s = if endless {
                mg1(lambda, service).unwrap()
            } else {
                mg1k(lambda, service, u64::from(limit)).unwrap()
            };
            number(mean, &s);
            near(s.number.variance.unwrap(), second - mean * mean, 1e-6);
            near(s.p0.unwrap(), empty, 1e-7);
        }
        if !endless {
            let s = mg1k(lambda, &erlang, u64::from(limit)).unwrap();
            let full = e2.mean(|s| f64::from(u8::from(s.0 == limit)));
            near(s.loss_probability, full, 1e-9);
        }
    }
}

#[test]
fn batches_satisfy_global_balance() {
    let sizes = [0.5, 0.0, 0.5];
    let (batches, mu) = (0.3, 1.0);
    let c = chain(0_u32, |n| {
        let mut moves = Vec::new();
        for (size, p) in (1_u32..).zip(sizes) {
            if p > 0.0 && n + size <= 160 {
                moves.push((n + size, batches * p));
            }
        }
        if *n > 0 {
            moves.push((n - 1, mu));
        }
        moves
    });
    let s = batch_mm1(batches * 2.0, mu, &Batch::Table(sizes.to_vec())).unwrap();
    let mean = c.mean(|n| f64::from(*n));
    near(s.number.mean, mean, 1e-7);
    near(s.number.variance.unwrap(), c.mean(|n| f64::from(*n).powi(2)) - mean * mean, 1e-6);
    assert!(
        (s.states.unwrap().probability(5)
            - c.probabilities[c.states.iter().position(|n| *n == 5).unwrap()])
        .abs()
            < 1e-9
    );
}

/// Two classes at one and at two servers, each at most 25 in number.
#[test]
fn priorities_satisfy_global_balance() {
    let (high, low) = (0.2, 0.25);
    for m in [1_u32, 2] {
        let rates = [high * f64::from(m), low * f64::from(m)];
        let preempting = chain((0_u32, 0_u32), |(h, l)| {
            let mut moves = Vec::new();
            if *h < 24 {
                moves.push(((h + 1, *l), rates[0]));
            }
            if *l < 32 {
                moves.push(((*h, l + 1), rates[1]));
            }
            let first = h.min(&m);
            if *first > 0 {
                moves.push(((h - 1, *l), f64::from(*first)));
            }
            let second = *l.min(&(m - first));
            if second > 0 {
                moves.push(((*h, l - 1), f64::from(second)));
            }
            moves
        });
        let s = mmm_priority(&rates, 1.0, u64::from(m), Scheduling::PreemptiveResume).unwrap();
        near(s[0].number, preempting.mean(|s| f64::from(s.0)), 1e-6);
        near(s[1].number, preempting.mean(|s| f64::from(s.1)), 1e-6);
    }
    // One server without preemption: 0 idle, 1 high in service, 2 low; others wait.
    let staying = chain((0_u8, 0_u32, 0_u32), |(serving, h, l)| {
        let mut moves = Vec::new();
        if *serving == 0 {
            return vec![((1, 0, 0), high), ((2, 0, 0), low)];
        }
        if *h < 16 {
            moves.push(((*serving, h + 1, *l), high));
        }
        if *l < 22 {
            moves.push(((*serving, *h, l + 1), low));
        }
        let rate = if *serving == 1 { 1.0 } else { 0.5 };
        let after = match (h, l) {
            (0, 0) => (0, 0, 0),
            (0, l) => (2, 0, l - 1),
            (h, l) => (1, h - 1, *l),
        };
        moves.push((after, rate));
        moves
    });
    let class = |priority, arrival_rate, mean| {
        let service = Distribution::exponential(mean).unwrap();
        PriorityClass { priority, arrival_rate, service }
    };
    let classes = [class(1, high, 1.0), class(2, low, 2.0)];
    let s = mg1_priority(&classes, Scheduling::NonPreemptive).unwrap();
    near(s[0].number_waiting, staying.mean(|s| f64::from(s.1)), 1e-4);
    // The chain is cut at 22 low customers: 0.7^22 of them are missing.
    near(s[1].number_waiting, staying.mean(|s| f64::from(s.2)), 5e-3);
}

/// Requests that wait for both of two branches: those not done are as many as in the longer queue.
#[test]
fn fork_join_of_two_satisfies_global_balance() {
    for rho in [0.3, 0.5] {
        let c = chain((0_u32, 0_u32), |(a, b)| {
            let mut moves = Vec::new();
            if *a.max(b) < 34 {
                moves.push(((a + 1, b + 1), rho));
            }
            if *a > 0 {
                moves.push(((a - 1, *b), 1.0));
            }
            if *b > 0 {
                moves.push(((*a, b - 1), 1.0));
            }
            moves
        });
        let f = fork_join(rho, 1.0, 2, 2).unwrap();
        near(f.response_time, c.mean(|s| f64::from(s.0.max(s.1))) / rho, 1e-6);
    }
}

/// Two branches of which one is slower: an approximation, between its bounds.
#[test]
fn fork_join_of_unequal_branches_stays_near_global_balance() {
    for (lambda, other) in [(0.3, 0.8), (0.3, 0.5), (0.6, 0.8), (0.6, 0.5), (0.6, 0.2)] {
        let c = chain((0_u32, 0_u32), |(a, b)| {
            let mut moves = Vec::new();
            if *a.max(b) < 36 {
                moves.push(((a + 1, b + 1), lambda));
            }
            if *a > 0 {
                moves.push(((a - 1, *b), 1.0));
            }
            if *b > 0 {
                moves.push(((*a, b - 1), 1.0 / other));
            }
            moves
        });
        let truth = c.mean(|s| f64::from(s.0.max(s.1))) / lambda;
        let f = fork_join_unequal(lambda, &[1.0, other]).unwrap();
        near(f.response_time, truth, 0.011);
        assert!(f.lower_bound <= truth * 1.001 && truth <= f.upper_bound, "{truth} {f:?}");
    }
}

/// A closed network of processor sharing stations by elimination: throughput at the first station
/// and mean numbers, by station and class.
fn balanced(n: &Network) -> (Vec<f64>, Vec<Vec<f64>>) {
    let (stations, classes) = (n.resources.len(), n.classes.len());
    // Stations in a row, then thinking (place `stations`), then the first again.
    let mut start = vec![vec![0_u32; classes]; stations + 1];
    for (class, load) in n.classes.iter().enumerate() {
        start[stations][class] = u32::try_from(load.population()).unwrap();
    }
    let think: Vec<f64> = n.classes.iter().map(Load::think_time).collect();
    let c = chain(start, |state| {
        let mut moves = Vec::new();
        for (place, here) in state.iter().enumerate() {
            let total: u32 = here.iter().sum();
            for class in 0..classes {
                if here[class] == 0 {
                    continue;
                }
                let share = f64::from(here[class]);
                let rate = if place == stations {
                    share / think[class]
                } else {
                    let resource = &n.resources[place];
                    let speed = resource.multiplier(u64::from(total));
                    speed * share / f64::from(total) / resource.demands[class]
                };
                let mut next = state.clone();
                next[place][class] -= 1;
                next[(place + 1) % (stations + 1)][class] += 1;
                moves.push((next, rate));
            }
        }
        moves
    });
    let numbers: Vec<Vec<f64>> = (0..stations)
        .map(|k| (0..classes).map(|r| c.mean(|s| f64::from(s[k][r]))).collect())
        .collect();
    let thinking = |r: usize| c.mean(|s| f64::from(s[stations][r])) / think[r];
    ((0..classes).map(thinking).collect(), numbers)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn closed_networks_satisfy_global_balance(
        demands in prop::collection::vec([0.05..2.0_f64, 0.05..2.0], 1..4),
        kinds in prop::collection::vec(0..4_u8, 3), n in [1..4_u64, 0..3], z in [0.1..3.0_f64, 0.1..3.0],
    ) {
        let kind = |k: usize| match kinds[k] {
            0 => Kind::Queue,
            1 => Kind::Servers(2),
            2 => Kind::Delay,
            _ => Kind::LoadDependent(vec![1.0, 1.7, 0.8]),
        };
        let network = Network {
            classes: vec![
                Load::Closed { population: n[0], think_time: z[0] },
                Load::Closed { population: n[1], think_time: z[1] },
            ],
            resources: demands.iter().enumerate()
                .map(|(k, d)| Resource { kind: kind(k), demands: d.to_vec() }).collect(),
        };
        let (throughput, numbers) = balanced(&network);
        let mut answers = vec![convolution(&network).unwrap(), mixed(&network).unwrap()];
        if kinds[..demands.len()].iter().all(|k| *k == 0 || *k == 2) {
            answers.push(mva_exact(&network).unwrap());
        }
        for s in answers {
            for class in 0..2 {
                prop_assert!((s.throughput[class] - throughput[class]).abs() < 1e-9, "{} {class}", s.solver);
                for (k, row) in numbers.iter().enumerate() {
                    prop_assert!((s.number[k][class] - row[class]).abs() < 1e-8, "{} {k}", s.solver);
                }
            }
        }
    }

    /// G(N) as a sum over all ways to distribute the customers, with factorials.
    #[test]
    fn normalization_constants_are_sums_over_states(
        demands in prop::collection::vec(0.05..2.0_f64, 1..5), servers in prop::collection::vec(1..4_u64, 4),
        n in 1..9_u64, z in 0.0..3.0_f64,
    ) {
        let network = Network {
            classes: vec![Load::Closed { population: n, think_time: z }],
            resources: demands.iter().zip(&servers).map(|(d, m)| Resource::servers(*m, &[*d])).collect(),
        };
        let weight = |k: usize, j: u64| (1..=j).map(|i| demands[k] / f64::from(u32::try_from(i.min(servers[k])).unwrap())).product::<f64>();
        let mut sums = vec![1.0; 1];
        let most = usize::try_from(n).unwrap();
        sums.resize(most + 1, 0.0);
        // One station at a time, all splits.
        for k in 0..demands.len() {
            sums = (0..=n).map(|total| (0..=total).map(|j| weight(k, j) * sums[usize::try_from(total - j).unwrap()]).sum()).collect();
        }
        let pause = |j: u64| (1..=j).map(|i| z / f64::from(u32::try_from(i).unwrap())).product::<f64>();
        sums = (0..=n).map(|total| (0..=total).map(|j| pause(j) * sums[usize::try_from(total - j).unwrap()]).sum()).collect();
        let g = normalization_constants(&network).unwrap();
        for (have, want) in g.iter().zip(&sums) {
            prop_assert!((have.exp() / want - 1.0).abs() < 1e-11, "{} {want}", have.exp());
        }
        let x = convolution(&network).unwrap().throughput[0];
        prop_assert!((x * sums[most] / sums[most - 1] - 1.0).abs() < 1e-11);
    }

    /// Waiting and response times of M/M/m/B: mixtures of gamma distributions, integrated.
    #[test]
    fn times_are_mixtures_over_what_arrivals_find(
        lambda in 0.2..4.0_f64, m in 1..4_u32, more in 1..6_u32, t in 0.05..4.0_f64,
    ) {
        let room = m + more;
        let s = mmmk(lambda, 1.0, u64::from(m), u64::from(room)).unwrap();
        let mut p = vec![1.0];
        for n in 1..=room {
            p.push(p[p.len() - 1] * lambda / f64::from(n.min(m)));
        }
        p.pop();
        let total: f64 = p.iter().sum();
        let rate = f64::from(m);
        // P(Erlang(k, m) > t) as the Poisson probability of fewer than k events.
        let late = |k: u32, t: f64| {
            let mut term = (-rate * t).exp();
            let mut sum = 0.0;
            for i in 0..k {
                sum += term;
                term *= rate * t / f64::from(i + 1);
            }
            sum
        };
        let wait = |t: f64| (m..room).zip(&p[usize::try_from(m).unwrap()..])
            .map(|(n, p)| p / total * late(n - m + 1, t)).sum::<f64>();
        prop_assert!((s.waiting_law.as_ref().unwrap().survival(t) - wait(t)).abs() < 1e-10);
        // R = W + S: P(R > t) = e^(−t) + ∫₀ᵗ P(W > t − x)·e^(−x) dx, by Simpson's rule.
        let steps = 2_000;
        let h = t / f64::from(steps);
        let mut sum = 0.0;
        for i in 0..=steps {
            let x = h * f64::from(i);
            let weight = if i == 0 || i == steps { 1.0 } else if i % 2 == 1 { 4.0 } else { 2.0 };
            sum += weight * wait(t - x) * (-x).exp();
        }
        let response = (-t).exp() + sum * h / 3.0;
        let have = s.response_law.as_ref().unwrap().survival(t);
        prop_assert!((have - response).abs() < 1e-9, "{have} {response}");
    }
}
