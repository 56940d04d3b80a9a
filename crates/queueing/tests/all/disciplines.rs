//! Orders by size and by weight, and patience of any distribution: formulas against quadrature of the
//! textbook's integrals, against Markov chains, and against the simulator.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kendall_queueing::Distribution;
use kendall_queueing::model::{Balking, Class, Discipline, Fork, Model, Station};
use kendall_queueing::simulation::{Settings, draw, simulate};
use kendall_queueing::solver::{Solver, solve};
use kendall_queueing::station::{
    Accuracy, BySize, Polled, PriorityClass, PriorityResult, Scheduling, TimeLaw, Visit, erlang_c,
    mg1, mg1_by_size, mg1_by_size_classes, mg1_deadlines, mg1_priority, mg1_ps, mg1_retrial,
    mm1_discriminatory, mm1_shared, mmm, mmm_impatient, mmm_impatient_general, polling,
    polling_unequal,
};

use crate::independent::{chain, two_queues};

#[track_caller]
fn near(have: f64, want: f64, relative: f64) {
    let size = want.abs().max(1e-12);
    assert!((have - want).abs() <= relative * size, "{have} for {want}");
}

/// Simulated mean response of a class, which covers the formula at 99.9 %.
#[track_caller]
#[expect(clippy::print_stdout, reason = "the figures say how close formula and simulation are")]
fn simulated(model: &Model, formula: &[f64]) {
    let settings = Settings {
        confidence: 0.999,
        relative_half_width: 0.02,
        most_customers: 2_000_000,
        ..Settings::of(model)
    };
    let found = simulate(model, &settings, &mut |_| {}).unwrap();
    for (class, want) in found.classes.iter().zip(formula) {
        let have = class.response_time_mean_s.unwrap();
        println!("simulated {have:?}, formula {want}, {:+.4}", have.center / want - 1.0);
        assert!((have.center - want).abs() <= have.half_width.unwrap(), "{have:?} for {want}");
    }
}

fn one(service: Distribution, discipline: Discipline, rate: f64) -> Model {
    let station = Station { discipline, ..Station::queue("q", 1).with_service(0, service) };
    Model::new("one", vec![Class::open("c", rate)], vec![station]).unwrap()
}

/// The textbook's double integrals for exponential service of mean 1, by the midpoint rule over x.
fn exponential_by_size(lambda: f64, rule: BySize) -> f64 {
    let (cells, end) = (400_000_u32, 60.0);
    let width = end / f64::from(cells);
    let (mut residence, mut sum) = (0.0, 0.0);
    for cell in 0..cells {
        let x = (f64::from(cell) + 0.5) * width;
        let alive = (-x).exp();
        let idle = 1.0 - lambda * (1.0 - alive * (1.0 + x));
        let second = 2.0 - alive * (2.0 + 2.0 * x + x * x);
        residence += width / idle;
        let response = match rule {
            BySize::Shortest => lambda / idle.powi(2) + x,
            BySize::ShortestRemaining => {
                let residual = lambda * (second + x * x * alive) / 2.0;
                residual / idle.powi(2) + residence - width / idle / 2.0
            }
        };
        sum += response * alive * width;
    }
    sum
}

#[test]
fn shortest_first_is_the_integral_of_the_textbook() {
    let service = Distribution::exponential(1.0).unwrap();
    for lambda in [0.1, 0.5, 0.8, 0.95] {
        for rule in [BySize::Shortest, BySize::ShortestRemaining] {
            let solved = mg1_by_size(lambda, &service, rule).unwrap();
            near(solved.response_time.mean, exponential_by_size(lambda, rule), 1e-7);
            assert!(solved.little_error() < 1e-12);
        }
    }
}

/// Where all services are alike no order by size differs from first come, first served; of two sizes
/// the shorter is a class of its own [Cobham 1954].
#[test]
fn few_sizes_are_priority_classes() {
    let constant = Distribution::deterministic(0.8).unwrap();
    let plain = mg1(1.0, &constant).unwrap().response_time.mean;
    for rule in [BySize::Shortest, BySize::ShortestRemaining] {
        near(mg1_by_size(1.0, &constant, rule).unwrap().response_time.mean, plain, 1e-12);
    }
    let two = Distribution::empirical(vec![0.2, 0.2, 0.2, 1.8]).unwrap();
    let (rho_1, rho) = (0.15, 0.6);
    let residual = (0.75 * 0.04 + 0.25 * 3.24) / 2.0;
    let wait = 0.75 * residual / (1.0 - rho_1) + 0.25 * residual / ((1.0 - rho_1) * (1.0 - rho));
    near(mg1_by_size(1.0, &two, BySize::Shortest).unwrap().waiting_time.mean, wait, 1e-12);
}

#[test]
fn nothing_beats_the_shortest_remaining_first() {
    for (service, scv) in [
        (Distribution::gamma(1.0, 0.3).unwrap(), 0.3),
        (Distribution::lognormal(1.0, 4.0).unwrap(), 4.0),
        (Distribution::weibull(0.6, 0.7).unwrap(), 1.0),
        (Distribution::bounded_pareto(1.3, 0.3, 200.0).unwrap(), 1.0),
        (Distribution::uniform(0.0, 2.0).unwrap(), 0.3),
        (Distribution::hyperexponential_balanced(1.0, 9.0).unwrap(), 9.0),
    ] {
        for load in [0.3, 0.7, 0.9] {
            let rate = load / service.mean();
            let by = |rule| mg1_by_size(rate, &service, rule).unwrap().response_time.mean;
            let (sjf, srpt) = (by(BySize::Shortest), by(BySize::ShortestRemaining));
            let fcfs = mg1(rate, &service).unwrap().response_time.mean;
            let ps = mg1_ps(rate, &service).unwrap().response_time.mean;
            assert!(srpt < sjf && sjf < fcfs && srpt < ps, "{service:?} {scv} {load}");
        }
    }
}

#[test]
fn shortest_first_is_what_the_simulator_finds() {
    for service in [
        Distribution::exponential(1.0).unwrap(),
        Distribution::lognormal(1.0, 2.0).unwrap(),
        Distribution::uniform(0.2, 1.8).unwrap(),
        Distribution::empirical(vec![0.5, 0.5, 1.0, 2.0]).unwrap(),
    ] {
        for (discipline, rule) in
            [(Discipline::Sjf, BySize::Shortest), (Discipline::Srpt, BySize::ShortestRemaining)]
        {
            let model = one(service.clone(), discipline, 0.8);
            let formula = solve(&model, Solver::Auto).unwrap().classes[0].system_response;
            let direct = mg1_by_size(0.8, &service, rule).unwrap().response_time.mean;
            near(formula, direct, 1e-15);
            simulated(&model, &[formula]);
        }
    }
}

/// Classes are known by their sizes alone: constants are priorities [Cobham 1954], classes with one service are one,
/// and others (a constant between exponential ones, a range) are what the simulator finds.
#[test]
fn classes_by_size_are_their_sizes() {
    let constant = |size: f64| Distribution::deterministic(size).unwrap();
    let [short, long] = [constant(0.5), constant(2.0)];
    let class = |priority, arrival_rate, service: &Distribution| PriorityClass {
        priority,
        arrival_rate,
        service: service.clone(),
    };
    let ranked = [class(2, 0.3, &long), class(1, 0.4, &short)];
    let want = mg1_priority(&ranked, Scheduling::NonPreemptive).unwrap();
    let have = mg1_by_size_classes(&[(0.3, &long), (0.4, &short)], BySize::Shortest).unwrap();
    for (have, want) in have.iter().zip(&want) {
        near(*have, want.waiting_time, 1e-12);
    }
    let one = Distribution::exponential(1.0).unwrap();
    let mixed = Distribution::hyperexponential(vec![0.4, 0.6], vec![0.5, 2.0]).unwrap();
    for rule in [BySize::Shortest, BySize::ShortestRemaining] {
        let alone = mg1_by_size(0.8, &one, rule).unwrap().waiting_time.mean;
        let split = mg1_by_size_classes(&[(0.3, &one), (0.5, &one), (0.0, &one)], rule).unwrap();
        for have in split {
            near(have, alone, 1e-12);
        }
        let [a, b] = [0.5, 2.0].map(|mean| Distribution::exponential(mean).unwrap());
        let parts = mg1_by_size_classes(&[(0.4 * 0.6, &a), (0.6 * 0.6, &b)], rule).unwrap();
        let whole = mg1_by_size(0.6, &mixed, rule).unwrap().waiting_time.mean;
        near(0.4 * parts[0] + 0.6 * parts[1], whole, 1e-8);
    }
    let classes = [
        (1, 0.25, one),
        (1, 0.3, constant(0.8)),
        (1, 0.2, Distribution::uniform(0.3, 2.5).unwrap()),
    ];
    for discipline in [Discipline::Sjf, Discipline::Srpt, Discipline::Lcfs, Discipline::Siro] {
        let model = self::ranked(&classes, Station { discipline, ..Station::queue("q", 1) });
        let solution = solve(&model, Solver::Auto).unwrap();
        assert_eq!(solution.accuracy, Accuracy::Exact);
        let formula: Vec<f64> = solution.classes.iter().map(|one| one.system_response).collect();
        simulated(&model, &formula);
    }
}

fn exponential_class(arrival_rate: f64, mean: f64) -> PriorityClass {
    PriorityClass { priority: 1, arrival_rate, service: Distribution::exponential(mean).unwrap() }
}

/// Two classes cut off at 36 customers each, by global balance.
#[test]
fn sharing_by_weights_satisfies_global_balance() {
    let (rates, means, weights) = ([0.3, 0.2], [1.0, 1.2], [1.0, 3.0]);
    let classes = [exponential_class(0.3, 1.0), exponential_class(0.2, 1.2)];
    let solved = mm1_discriminatory(&classes, &weights).unwrap();
    let departures = |a, b| {
        let (a, b) = (f64::from(a) * weights[0], f64::from(b) * weights[1]);
        [a / (a + b) / means[0], b / (a + b) / means[1]]
    };
    let states = two_queues(36, |_, _| rates, departures);
    near(solved[0].number, states.mean(|s| f64::from(s.0)), 1e-8);
    near(solved[1].number, states.mean(|s| f64::from(s.1)), 1e-8);
}

/// Equal weights are processor sharing, and a weight without bound is pre-emptive priority.
#[test]
fn weights_lie_between_sharing_and_priority() {
    let classes = [exponential_class(0.3, 1.0), exponential_class(0.4, 0.8)];
    let equal = mm1_discriminatory(&classes, &[2.0, 2.0]).unwrap();
    near(equal[0].response_time, 1.0 / (1.0 - 0.62), 1e-12);
    near(equal[1].response_time, 0.8 / (1.0 - 0.62), 1e-12);
    // With any service.
    let services =
        [(1, 0.3, exponential(1.0)), (1, 0.4, Distribution::lognormal(0.8, 3.0).unwrap())];
    let model =
        ranked(&services, Station { discipline: Discipline::Dps, ..Station::queue("q", 1) });
    let found = solve(&model, Solver::Auto).unwrap().classes;
    near(found[1].system_response, 0.8 / (1.0 - 0.62), 1e-12);
    let most = mm1_discriminatory(&classes, &[1e9, 1e-3]).unwrap();
    near(most[0].response_time, 1.0 / 0.7, 1e-9);
}

#[test]
fn sharing_by_weights_is_what_the_simulator_finds() {
    let mut station = Station::queue("cpu", 1).with_service_time(0, 1.0).with_service_time(1, 0.5);
    station.discipline = Discipline::Dps;
    station.weights = vec![1.0, 4.0];
    let classes = vec![Class::open("batch", 0.4), Class::open("web", 0.7)];
    let model = Model::new("shares", classes, vec![station]).unwrap();
    let solved = solve(&model, Solver::Auto).unwrap();
    simulated(&model, &[solved.classes[0].system_response, solved.classes[1].system_response]);
}

#[test]
fn exponential_patience_is_erlang_a() {
    for (lambda, mu, m, theta) in [
        (4.0, 1.0, 3, 0.5),
        (0.5, 1.0, 1, 3.0),
        (95.0, 1.0, 100, 0.2),
        (140.0, 1.0, 100, 0.05),
        (1.3, 1.0, 1, 1e-4),
    ] {
        let patience = Distribution::exponential(1.0 / theta).unwrap();
        let general = mmm_impatient_general(lambda, mu, m, &patience).unwrap();
        let exact = mmm_impatient(lambda, mu, m, theta, None).unwrap();
        near(general.loss_probability, exact.loss_probability, 1e-8);
        near(general.waiting_time.mean, exact.waiting_time.mean, 1e-8);
        near(general.p_queueing.unwrap(), exact.p_queueing.unwrap(), 1e-8);
        near(general.number.mean, exact.number.mean, 1e-8);
        assert!(general.little_error() < 1e-9);
    }
}

/// One server and constant patience τ: with c = λ − µ the density of the virtual wait is that of
/// M/M/1 up to τ and e^(−µx) beyond. Endless patience is M/M/m.
#[test]
fn constant_patience_has_its_closed_form() {
    let (lambda, mu, tau) = (1.4_f64, 1.0_f64, 2.5_f64);
    let growth = ((lambda - mu) * tau).exp();
    let (before, beyond) = ((growth - 1.0) / (lambda - mu), growth / mu);
    let leave = lambda * beyond / (1.0 + lambda * (before + beyond));
    let patience = Distribution::deterministic(tau).unwrap();
    let solved = mmm_impatient_general(lambda, mu, 1, &patience).unwrap();
    near(solved.loss_probability, leave, 1e-9);
    let endless = Distribution::deterministic(1e6).unwrap();
    let solved = mmm_impatient_general(3.2, 1.0, 4, &endless).unwrap();
    near(solved.waiting_time.mean, mmm(3.2, 1.0, 4).unwrap().waiting_time.mean, 1e-8);
    near(solved.p_queueing.unwrap(), erlang_c(3.2, 4).unwrap(), 1e-8);
}

#[test]
fn patience_of_any_shape_is_what_the_simulator_finds() {
    for patience in [
        Distribution::uniform(0.2, 1.4).unwrap(),
        Distribution::lognormal(1.0, 2.0).unwrap(),
        Distribution::deterministic(0.7).unwrap(),
    ] {
        let station = Station {
            patience: Some(patience),
            ..Station::queue("agents", 4).with_service_time(0, 1.0)
        };
        let model = Model::new("calls", vec![Class::open("c", 4.5)], vec![station]).unwrap();
        let formula = solve(&model, Solver::Auto).unwrap().station.unwrap();
        let settings =
            Settings { confidence: 0.999, most_customers: 2_000_000, ..Settings::of(&model) };
        let found = simulate(&model, &settings, &mut |_| {}).unwrap();
        let leaves = found.stations[0].all.reneging_probability.unwrap();
        println!("{leaves:?} for {}", formula.loss_probability);
        assert!(leaves.covers(formula.loss_probability), "{leaves:?} {formula:?}");
        let waiting = found.stations[0].all.number_waiting_mean.unwrap();
        assert!(waiting.covers(formula.number_waiting.mean), "{waiting:?} {formula:?}");
    }
}

/// Formulas that hold only where customers wait in line, at one server, or where all arrivals join, were given.
#[test]
fn formulas_are_left_where_their_conditions_end() {
    let asked = |station: Station| {
        let model = Model::new("m", vec![Class::open("c", 1.2)], vec![station]).unwrap();
        solve(&model, Solver::Auto).map(|solution| solution.accuracy)
    };
    let simulated = |station: Station| {
        let error = asked(station).unwrap_err().to_string();
        assert!(error.contains("simulation"), "{error}");
    };
    for discipline in [Discipline::Ps, Discipline::LcfsPr, Discipline::Dps] {
        let patience = Some(exponential(2.0));
        let station = Station::queue("q", 1).with_service_time(0, 0.5);
        // All are served at once, or are not in line when they wait again: nobody leaves.
        simulated(Station { discipline, patience, ..station });
    }
    for discipline in [Discipline::Ps, Discipline::Lcfs, Discipline::LcfsPr, Discipline::Siro] {
        let fork = Some(Fork { branches: 2, needed: 2 });
        // Simulated at 0.7 erlang: 5.2, 5.2, 5.5 and 5.0 s, where first come, first served takes 4.71 s.
        simulated(Station { discipline, fork, ..Station::queue("f", 1).with_service_time(0, 0.5) });
    }
    let error = asked(Station {
        patience: Some(exponential(0.0)),
        ..Station::queue("q", 1).with_service_time(0, 0.5)
    });
    assert!(error.unwrap_err().to_string().contains("`capacity` = `servers`"));
    let delay = Station::delay("d").with_service_time(0, 1.0);
    simulated(Station { balking: Balking::Reciprocal, ..delay });
    let last = |service| Station {
        discipline: Discipline::LcfsPr,
        ..Station::queue("q", 3).with_service(0, service)
    };
    simulated(last(Distribution::erlang(2, 1.0).unwrap()));
    assert_eq!(asked(last(exponential(1.0))).unwrap(), Accuracy::Exact);
    // In a network other service than one exponential for all is an approximation there.
    let classes = vec![Class::open("a", 0.6), Class::open("b", 0.9)];
    let station = last(exponential(1.0)).with_service_time(1, 0.4);
    let model =
        Model::new("m", classes, vec![station, Station::delay("d").with_service_time(0, 1.0)]);
    let solution = solve(&model.unwrap(), Solver::Auto).unwrap();
    assert_eq!(solution.accuracy, Accuracy::Approximation, "{:?}", solution.caveats);
}

#[test]
fn what_no_formula_covers_is_left_to_the_simulator() {
    let moments = Distribution::general(1.0, 2.0, None).unwrap();
    let error = solve(&one(moments, Discipline::Srpt, 0.5), Solver::Auto).unwrap_err();
    assert!(error.to_string().contains("simulation"), "{error}");
    let mut full = Station::queue("q", 1).with_service_time(0, 1.0);
    (full.discipline, full.capacity) = (Discipline::Sjf, Some(5));
    let model = Model::new("full", vec![Class::open("c", 0.5)], vec![full]).unwrap();
    assert!(solve(&model, Solver::Auto).is_err());
    for text in [
        "arrival_rate_per_s = 1\nstations = [{ name = 'a', service_time_s = 0.1, weight = 2 }]",
        "arrival_rate_per_s = 1\nstations = [{ name = 'a', service_time_s = 0.1, weight = -2, \
         discipline = 'dps' }]",
        "arrival_rate_per_s = 1\nstations = [{ name = 'a', service_time_s = 0.1, servers = 2, \
         discipline = 'dps' }]",
    ] {
        let error = toml::from_str::<Model>(text).unwrap_err().to_string();
        assert!(error.contains("stations[0]"), "{error}");
    }
}

/// (in service, waiting to try again), cut off at 400.
#[test]
fn retrials_satisfy_global_balance() {
    let (lambda, mu, retry) = (0.6, 1.0, 0.7);
    let states = chain((0_u32, 0_u32), |&(busy, orbit)| {
        let mut next = Vec::new();
        if busy == 0 {
            next.push(((1, orbit), lambda));
            if orbit > 0 {
                next.push(((1, orbit - 1), f64::from(orbit) / retry));
            }
        } else {
            next.push(((0, orbit), mu));
            if orbit < 400 {
                next.push(((1, orbit + 1), lambda));
            }
        }
        next
    });
    let service = Distribution::exponential(1.0 / mu).unwrap();
    let solved = mg1_retrial(lambda, &service, retry).unwrap();
    near(solved.number_waiting, states.mean(|s| f64::from(s.1)), 1e-8);
    near(solved.utilization, states.mean(|s| f64::from(s.0)), 1e-8);
    assert!(mg1_retrial(1.0, &service, retry).is_err());
    assert!(mg1_retrial(0.5, &service, f64::NAN).is_err());
}

/// Mean wait at each of several queues that one server goes round, customer by customer: 39 batches, and the
/// standard error of their mean.
fn simulated_polling(queues: &[Polled], visit: Visit) -> Vec<(f64, f64)> {
    let total = 1_000_000;
    let lambda: f64 = queues.iter().map(|queue| queue.arrival_rate).sum();
    let gaps = draw(&Distribution::exponential(1.0 / lambda).unwrap(), 1, total);
    let places = draw(&Distribution::uniform(0.0, lambda).unwrap(), 2, total);
    let services: Vec<Vec<f64>> =
        (10..).zip(queues).map(|(seed, queue)| draw(&queue.service, seed, total)).collect();
    let switches: Vec<Vec<f64>> =
        (90..).zip(queues).map(|(seed, queue)| draw(&queue.switching, seed, 200_000)).collect();
    let mut waiting = vec![std::collections::VecDeque::<f64>::new(); queues.len()];
    let (mut arrival, mut coming, mut now, mut served, mut turn) = (gaps[0], 0, 0.0, 0, 0_usize);
    let mut batches = vec![[(0.0, 0.0); 41]; queues.len()];
    while served < total - 1_000 {
        let at = turn % queues.len();
        let mut admit = |until: f64, waiting: &mut [std::collections::VecDeque<f64>]| {
            while arrival <= until && coming + 1 < total {
                let mut left = places[coming];
                let beyond = |queue: &Polled| {
                    left -= queue.arrival_rate;
                    left <= 0.0
                };
                let place = queues.iter().position(beyond).unwrap_or(queues.len() - 1);
                waiting[place].push_back(arrival);
                coming += 1;
                arrival += gaps[coming];
            }
        };
        admit(now, &mut waiting);
        let mut allowed = match visit {
            Visit::Exhaustive => usize::MAX,
            Visit::Gated => waiting[at].len(),
            Visit::Limited => 1,
        };
        while allowed > 0
            && served < total - 1_000
            && let Some(came) = waiting[at].pop_front()
        {
            let batch = &mut batches[at][(served * 41 / total).min(40)];
            (batch.0, batch.1) = (batch.0 + now - came, batch.1 + 1.0);
            now += services[at][served];
            served += 1;
            allowed -= 1;
            admit(now, &mut waiting);
        }
        now += switches[at][turn % 200_000];
        turn += 1;
    }
    let of = |batches: &[(f64, f64); 41]| {
        let kept: Vec<f64> = batches[1..40].iter().map(|(sum, count)| sum / count).collect();
        let mean = kept.iter().sum::<f64>() / 39.0;
        let variance = kept.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / 38.0;
        (mean, (variance / 39.0_f64).sqrt())
    };
    batches.iter().map(of).collect()
}

fn polled(arrival_rate: f64, service: Distribution, switching: Distribution) -> Polled {
    Polled { arrival_rate, service, switching }
}

#[test]
fn a_server_that_goes_round_waits_as_takagi_says() {
    let service = Distribution::erlang(2, 1.0).unwrap();
    for switching in
        [Distribution::deterministic(0.3).unwrap(), Distribution::exponential(0.2).unwrap()]
    {
        for visit in [Visit::Exhaustive, Visit::Gated, Visit::Limited] {
            let solved = polling(0.6, &service, 4, &switching, visit).unwrap();
            let queues = vec![polled(0.15, service.clone(), switching.clone()); 4];
            let (mean, error) = simulated_polling(&queues, visit)[2];
            for one in polling_unequal(&queues, visit).unwrap() {
                near(one.waiting_time, solved.waiting_time, 1e-9);
                near(one.cycle_time, solved.cycle_time, 1e-12);
            }
            println!("{visit:?} {mean} ± {error} for {}", solved.waiting_time);
            assert!(
                (mean - solved.waiting_time).abs() < 4.0 * error,
                "{visit:?} {mean} {solved:?}"
            );
        }
    }
    // Without switching it is M/G/1, whatever the rule.
    let none = Distribution::deterministic(0.0).unwrap();
    let plain = mg1(0.6, &service).unwrap().waiting_time.mean;
    near(polling(0.6, &service, 4, &none, Visit::Gated).unwrap().waiting_time, plain, 1e-12);
    assert!(polling(0.9, &service, 4, &service, Visit::Limited).is_err());
}

/// Two classes at one server, and what a discipline makes of them.
fn two(means: [f64; 2], set: impl FnOnce(&mut Station)) -> Model {
    let mut station =
        Station::queue("q", 1).with_service_time(0, means[0]).with_service_time(1, means[1]);
    set(&mut station);
    let mut classes = vec![Class::open("a", 0.3), Class::open("b", 0.4)];
    classes[1].priority = 2;
    Model::new("two", classes, vec![station]).unwrap()
}

/// One customer of a class at a time has its share: cut off at 36 customers each, by global balance.
#[test]
fn classes_that_share_by_weights_satisfy_global_balance() {
    let (rates, means, weights) = ([0.3, 0.4], [1.0, 0.8], [1.0, 3.0]);
    let departures = |a, b| {
        let there = [if a > 0 { weights[0] } else { 0.0 }, if b > 0 { weights[1] } else { 0.0 }];
        [0, 1].map(|class| there[class] / (there[0] + there[1]) / means[class])
    };
    let states = two_queues(36, |_, _| rates, departures);
    let numbers = [states.mean(|s| f64::from(s.0)), states.mean(|s| f64::from(s.1))];
    let model = two(means, |station| {
        (station.discipline, station.weights) = (Discipline::Gps, weights.to_vec());
    });
    let want = [numbers[0] / rates[0], numbers[1] / rates[1]];
    simulated(&model, &want);
    let solved = solve(&model, Solver::Auto).unwrap();
    for (class, want) in solved.classes.iter().zip(want) {
        near(class.system_response, want, 1e-6);
    }
    let mut other = model;
    other.stations[0].demands[0].as_mut().unwrap().service = Distribution::erlang(2, 1.0).unwrap();
    let refused = solve(&other, Solver::Auto).unwrap_err().to_string();
    assert!(refused.contains("weight") && refused.contains("simulation"), "{refused}");
}

/// Two classes of equal customers are one M/M/1 together, whatever the weights; a class of nearly all the weight
/// has the server for itself; and the order of the classes means nothing.
#[test]
fn sharing_by_class_has_the_right_limits() {
    for rho in [0.3, 0.7, 0.9] {
        let rates = [(0.4 * rho, 1.0), (0.6 * rho, 1.0)];
        for weights in [[1.0, 1.0], [5.0, 1.0], [1.0, 50.0]] {
            let found = mm1_shared(rates, weights).unwrap().unwrap();
            near(found[0].number + found[1].number, rho / (1.0 - rho), 1e-7);
            let turned =
                mm1_shared([rates[1], rates[0]], [weights[1], weights[0]]).unwrap().unwrap();
            near(found[0].response_time, turned[1].response_time, 1e-7);
        }
        let found = mm1_shared(rates, [1e6, 1.0]).unwrap().unwrap();
        near(found[0].response_time, 1.0 / (1.0 - 0.4 * rho), 1e-5);
    }
    assert!(mm1_shared([(0.6, 1.0), (0.5, 1.0)], [1.0, 1.0]).is_err());
    assert!(mm1_shared([(0.49, 1.0), (0.49, 1.0)], [1.0, 1.0]).unwrap().is_none());
    assert!(mm1_shared([(0.6, 1.0), (0.0, 1.0)], [1.0, 1.0]).unwrap().is_none());
}

/// Equal deadlines are the order of arrival, deadlines far apart are priorities, and no order changes the work.
#[test]
fn means_by_deadline_have_the_right_limits() {
    let class =
        |priority, rate, mean: f64| PriorityClass { priority, ..exponential_class(rate, mean) };
    let classes = [class(1, 0.3, 1.0), class(2, 0.4, 1.2), class(3, 0.05, 2.0)];
    for scheduling in [Scheduling::NonPreemptive, Scheduling::PreemptiveResume] {
        let by = |deadlines: [f64; 3]| {
            mg1_deadlines(&classes, &deadlines, scheduling).unwrap().unwrap().classes
        };
        let work = |found: &[PriorityResult]| -> f64 {
            found.iter().map(|one| one.utilization * one.waiting_time).sum()
        };
        let far = by([0.0, 1e7, 1e14]);
        for (one, want) in far.iter().zip(mg1_priority(&classes, scheduling).unwrap()) {
            near(one.waiting_time, want.waiting_time, 1e-5);
        }
        let equal = by([2.0; 3]);
        let load: f64 = classes.iter().map(|c| c.arrival_rate * c.service.mean()).sum();
        let wait = classes.iter().map(|c| c.arrival_rate * c.service.mean().powi(2)).sum::<f64>();
        if scheduling == Scheduling::NonPreemptive {
            near(equal[1].waiting_time, wait / (1.0 - load), 1e-9);
        }
        let between = by([1.0, 4.0, 9.0]);
        near(work(&between), work(&far), 1e-5);
        assert!(between[0].waiting_time > far[0].waiting_time);
        assert!(between[0].waiting_time < equal[0].waiting_time);
    }
    let phases =
        [PriorityClass { service: Distribution::erlang(2, 1.0).unwrap(), ..classes[0].clone() }];
    assert!(mg1_deadlines(&phases, &[1.0], Scheduling::PreemptiveResume).unwrap().is_none());
    assert!(mg1_deadlines(&[class(1, 1.5, 1.0)], &[1.0], Scheduling::NonPreemptive).is_err());
}

/// Mean times at one server of two classes with exponential service, each due `deadlines` after it came.
fn earliest_deadline_by_hand(
    rates: [f64; 2],
    means: [f64; 2],
    deadlines: [f64; 2],
    interrupts: bool,
) -> [f64; 2] {
    let total = 1_500_000;
    let unit = Distribution::exponential(1.0).unwrap();
    let (gaps, services) = (draw(&unit, 11, total), draw(&unit, 12, total));
    let kinds = draw(&Distribution::uniform(0.0, 1.0).unwrap(), 13, total);
    let rate = rates[0] + rates[1];
    // Due, came, class, what is left; the last in the list is due first.
    let mut there: Vec<(f64, f64, usize, f64)> = Vec::new();
    let mut served: Option<(f64, f64, usize, f64)> = None;
    let (mut now, mut sums, mut counts) = (0.0, [0.0; 2], [0.0; 2]);
    for ((gap, service), kind) in gaps.iter().zip(&services).zip(&kinds) {
        let arrival = now + gap / rate;
        while let Some(mut one) = served.take().or_else(|| there.pop()) {
            if now + one.3 > arrival {
                one.3 -= arrival - now;
                served = Some(one);
                break;
            }
            now += one.3;
            sums[one.2] += now - one.1;
            counts[one.2] += 1.0;
        }
        now = arrival;
        let class = usize::from(*kind > rates[0] / rate);
        let new = (now + deadlines[class], now, class, service * means[class]);
        if interrupts && let Some(one) = served.take() {
            let place = there.partition_point(|other| other.0 > one.0);
            there.insert(place, one);
        }
        let place = there.partition_point(|other| other.0 > new.0);
        there.insert(place, new);
        if served.is_none() {
            served = there.pop();
        }
    }
    [sums[0] / counts[0], sums[1] / counts[1]]
}

/// Deadlines far apart are priorities, equal ones the order of arrival; in between as simulated by hand.
#[test]
fn the_earliest_deadline_lies_between_priority_and_order_of_arrival() {
    let (rates, means) = ([0.3, 0.4], [1.0, 1.2]);
    for (discipline, priority) in [
        (Discipline::Edf, Discipline::PriorityNonPreemptive),
        (Discipline::EdfPreemptive, Discipline::PriorityPreemptive),
    ] {
        let by = |deadlines: [f64; 2]| {
            two(means, |station| {
                (station.discipline, station.deadlines) = (discipline, deadlines.to_vec());
            })
        };
        let of = |discipline| {
            let solved = solve(&two(means, |s| s.discipline = discipline), Solver::Auto).unwrap();
            [solved.classes[0].system_response, solved.classes[1].system_response]
        };
        simulated(&by([0.0, 1e9]), &of(priority));
        simulated(&by([2.0, 2.0]), &of(Discipline::Fcfs));
        let interrupts = discipline == Discipline::EdfPreemptive;
        let hand = earliest_deadline_by_hand(rates, means, [1.0, 6.0], interrupts);
        let settings = Settings { most_customers: 3_000_000, ..Settings::of(&by([1.0, 6.0])) };
        let found = simulate(&by([1.0, 6.0]), &settings, &mut |_| {}).unwrap();
        for (class, want) in found.classes.iter().zip(hand) {
            near(class.response_time_mean_s.unwrap().center, want, 0.03);
        }
    }
}

/// Where branches are first come, first served, the priorities of classes count for nothing.
#[test]
fn branches_keep_their_order() {
    let model = two([1.0, 1.0], |station| {
        station.fork = Some(kendall_queueing::model::Fork { branches: 2, needed: 2 });
    });
    let rho = 0.7;
    let exact = (12.0 - rho) / 8.0 / (1.0 - rho);
    simulated(&model, &[exact, exact]);
}

#[test]
fn deadlines_and_weights_stand_where_they_mean_something() {
    let station = |keys: &str| {
        format!(
            "classes = [{{ name = 'a', arrival_rate_per_s = 1 }}, {{ name = 'b', arrival_rate_per_s \
             = 1 }}]\nstations = [{{ name = 's', service_time_s = 0.1, {keys} }}]"
        )
    };
    for (keys, said) in [
        ("deadline_s = 1", "beside it"),
        ("discipline = 'edf'", "for class `a`"),
        ("discipline = 'edf', deadline_s = { a = 1 }", "for class `b`"),
        ("discipline = 'edf', deadline_s = { a = 1, c = 2 }", "c"),
        ("discipline = 'edf-preemptive', deadline_s = -1", "deadline_s"),
        ("discipline = 'gps', servers = 2", "servers"),
        ("discipline = 'gps', weight = { a = 0, b = 1 }", "weight"),
        ("discipline = 'dps', weight = { a = 1e7, b = 1 }", "1e6 times"),
        ("discipline = 'gps', rate_multipliers = [1, 2]", "rate_multipliers"),
        ("type = 'delay', rate_multipliers = [1, 2]", "none at a delay"),
    ] {
        let error = toml::from_str::<Model>(&station(keys)).unwrap_err().to_string();
        assert!(error.contains(said), "{keys}: {error}");
    }
    for keys in ["discipline = 'edf', deadline_s = { a = 1, b = 0 }", "discipline = 'gps'"] {
        toml::from_str::<Model>(&station(keys)).unwrap();
    }
}

/// Unequal queues as simulated by hand, and the pseudo-conservation law of Boxma and Groenendijk 1987:
/// sum of rho_i W_i = rho sum lambda b2/(2(1 - rho)) + rho s2/(2s) + s(rho^2 -+ sum rho_i^2)/(2(1 - rho)).
#[test]
fn unequal_queues_keep_the_pseudo_conservation_law() {
    let fixed = |time| Distribution::deterministic(time).unwrap();
    let random = |time| Distribution::exponential(time).unwrap();
    let queues = [
        polled(0.3, random(1.0), fixed(0.1)),
        polled(0.05, Distribution::erlang(2, 4.0).unwrap(), random(0.5)),
        polled(0.2, Distribution::hyperexponential_balanced(0.8, 3.0).unwrap(), fixed(0.0)),
    ];
    let loads: Vec<f64> = queues.iter().map(|q| q.arrival_rate * q.service.mean()).collect();
    let rho: f64 = loads.iter().sum();
    let squares: f64 = loads.iter().map(|load| load * load).sum();
    let second = |d: &Distribution| d.variance() + d.mean() * d.mean();
    let work: f64 = queues.iter().map(|q| q.arrival_rate * second(&q.service)).sum();
    let (switch, spread) = (0.6, 0.25);
    for (visit, sign) in [(Visit::Exhaustive, -1.0), (Visit::Gated, 1.0)] {
        let law = rho * work / 2.0 / (1.0 - rho)
            + rho * (spread + switch * switch) / (2.0 * switch)
            + switch / (2.0 * (1.0 - rho)) * (rho * rho + sign * squares);
        let solved = polling_unequal(&queues, visit).unwrap();
        let sum: f64 = loads.iter().zip(&solved).map(|(load, one)| load * one.waiting_time).sum();
        near(sum, law, 1e-9);
        for (one, (mean, error)) in solved.iter().zip(simulated_polling(&queues, visit)) {
            println!("{visit:?} {mean} by hand (standard error {error}), {}", one.waiting_time);
            assert!((mean - one.waiting_time).abs() < 4.0 * error, "{visit:?} {mean} {one:?}");
        }
    }
    // Without switching, and near saturation, the work that waits is that of M/G/1.
    let quick: Vec<Polled> = queues
        .iter()
        .map(|q| Polled { arrival_rate: q.arrival_rate * 1.4, switching: fixed(0.0), ..q.clone() })
        .collect();
    for visit in [Visit::Exhaustive, Visit::Gated, Visit::Limited] {
        let solved = polling_unequal(&quick, visit).unwrap();
        let sum: f64 = loads.iter().zip(&solved).map(|(load, one)| load * one.waiting_time).sum();
        near(sum, rho * 1.4 * work / 2.0 / (1.0 - 1.4 * rho), 1e-9);
    }
}

#[test]
fn queues_that_cannot_be_polled_are_refused() {
    let one = polled(
        0.3,
        Distribution::exponential(1.0).unwrap(),
        Distribution::exponential(1.0).unwrap(),
    );
    assert!(polling_unequal(&[], Visit::Gated).is_err());
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
        let queues = [one.clone(), Polled { arrival_rate: rate, ..one.clone() }];
        assert!(polling_unequal(&queues, Visit::Exhaustive).is_err(), "{rate}");
    }
    // 0.6 + 0.3 times two switches is above 1; 1,001 queues near saturation are too many.
    assert!(polling_unequal(&[one.clone(), one.clone()], Visit::Limited).is_err());
    let many = vec![Polled { arrival_rate: 0.999_999 / 1001.0, ..one }; 1001];
    let refused = polling_unequal(&many, Visit::Gated).unwrap_err().to_string();
    assert!(refused.contains("queues"), "{refused}");
}

/// Service times that depend on one another have no formula for several classes either.
#[test]
fn classes_with_a_trace_of_services_are_simulated() {
    let text = "classes = [{ name = 'a', arrival_rate_per_s = 0.2 }, { name = 'b', arrival_rate_per_s = \
                0.3 }]\nstations = [{ name = 's', service = { a = { distribution = 'trace', values_s = \
                [0.1, 0.1, 4.0, 4.0] }, b = { distribution = 'exponential', mean_s = 1 } } }]";
    let model: Model = toml::from_str(text).unwrap();
    let refused = solve(&model, Solver::Auto).unwrap_err().to_string();
    assert!(refused.contains("depend on one another"), "{refused}");
}

/// A class with a service, at its priority.
fn ranked(classes: &[(u32, f64, Distribution)], station: Station) -> Model {
    let mut station = station;
    let mut all = Vec::new();
    for (index, (priority, rate, service)) in classes.iter().enumerate() {
        station = station.with_service(index, service.clone());
        all.push(Class { priority: *priority, ..Class::open(&format!("c{index}"), *rate) });
    }
    Model::new("ranked", all, vec![station]).unwrap()
}

fn exponential(mean: f64) -> Distribution {
    Distribution::exponential(mean).unwrap()
}

/// They were served in the order of the file. With R₀ = 0.45, σ = 0.4 and 0.5 by hand.
#[test]
fn classes_of_one_priority_are_served_in_order_of_arrival() {
    let classes =
        [(1, 0.3, exponential(1.0)), (1, 0.2, exponential(0.5)), (2, 0.1, exponential(1.0))];
    let waits = |discipline, servers: u64, classes: &[_]| {
        let station = Station { discipline, ..Station::queue("q", servers) };
        solve(&ranked(classes, station), Solver::Auto).unwrap().stations[0].waiting_time.clone()
    };
    let kept = waits(Discipline::PriorityNonPreemptive, 1, &classes);
    for (wait, want) in kept.iter().zip([0.75, 0.75, 1.5]) {
        near(*wait, want, 1e-12);
    }
    let interrupted = waits(Discipline::PriorityPreemptive, 1, &classes);
    for (wait, want) in interrupted.iter().zip([0.35 / 0.6, 0.35 / 0.6, 1.5 + 0.4 / 0.6]) {
        near(*wait, want, 1e-12);
    }
    // The order of the list does not matter.
    let turned = [classes[2].clone(), classes[1].clone(), classes[0].clone()];
    near(waits(Discipline::PriorityNonPreemptive, 1, &turned)[0], 1.5, 1e-12);
    let equal = [1.0, 0.7, 0.9].map(|rate| (1, rate, exponential(1.0)));
    let want = mmm(2.6, 1.0, 4).unwrap().waiting_time.mean;
    for discipline in [Discipline::PriorityNonPreemptive, Discipline::PriorityPreemptive] {
        for wait in waits(discipline, 4, &equal) {
            near(wait, want, 1e-12);
        }
    }
    // With two rates at several servers only a ranked pair has a chain.
    let pair = [(1, 0.3, exponential(1.0)), (1, 0.2, exponential(0.5))];
    let station = Station { discipline: Discipline::PriorityPreemptive, ..Station::queue("q", 2) };
    assert!(solve(&ranked(&pair, station), Solver::Auto).is_err());
    let down = [(2, 0.3, exponential(1.0)), (1, 0.2, exponential(0.5))];
    let up = [down[1].clone(), down[0].clone()];
    let [down, up] = [down, up].map(|pair| waits(Discipline::PriorityPreemptive, 2, &pair));
    near(down[0], up[1], 1e-12);
    near(down[1], up[0], 1e-12);
}

/// The first class by closed forms: interrupting, M/M/1 of its own; else at m servers a wait of C·e^(−(mµ − λ)t).
/// All classes against the simulator, whose 99.9 % intervals are widened by the 0.8 % of a cell.
#[test]
fn percentiles_of_classes_are_what_the_simulator_finds() {
    let quantiles = |model: &Model| -> Vec<Vec<(f64, f64)>> {
        let mut model = model.clone();
        model.quantiles = vec![0.5, 0.99];
        let classes = solve(&model, Solver::Auto).unwrap().classes;
        classes.into_iter().map(|class| class.response_quantiles).collect()
    };
    let of = |discipline, servers| Station { discipline, ..Station::queue("q", servers) };
    let mixed = [
        (1, 0.25, Distribution::erlang(3, 1.0).unwrap()),
        (2, 0.1, Distribution::hyperexponential_balanced(2.0, 4.0).unwrap()),
        (2, 0.2, exponential(0.8)),
        (3, 0.1, Distribution::gamma(0.7, 2.0).unwrap()),
    ];
    let same = [(1, 1.0, exponential(1.0)), (2, 0.8, exponential(1.0)), (3, 0.6, exponential(1.0))];
    let rough = [
        (1, 0.2, Distribution::deterministic(1.0).unwrap()),
        (1, 0.15, Distribution::uniform(0.5, 2.0).unwrap()),
        (1, 0.2, Distribution::lognormal(1.5, 2.0).unwrap()),
    ];
    let models = [
        ranked(&mixed, of(Discipline::Fcfs, 1)),
        ranked(&mixed, of(Discipline::PriorityNonPreemptive, 1)),
        ranked(&mixed, of(Discipline::PriorityPreemptive, 1)),
        ranked(&same, of(Discipline::PriorityNonPreemptive, 3)),
        ranked(&rough, of(Discipline::Fcfs, 1)),
    ];
    for model in &models {
        let settings = Settings {
            confidence: 0.999,
            relative_half_width: 0.005,
            most_customers: 2_000_000,
            quantiles: vec![0.5, 0.99],
            ..Settings::of(model)
        };
        let found = simulate(model, &settings, &mut |_| {}).unwrap();
        for (class, want) in found.classes.iter().zip(quantiles(model)) {
            assert_eq!(want.len(), 2);
            for ((_, have), (quantile, want)) in class.response_time_quantiles_s.iter().zip(want) {
                let half = have.half_width.unwrap() + 0.008 * have.center;
                let name = &class.name;
                assert!(
                    (have.center - want).abs() <= half,
                    "{name} {quantile}: {have:?} for {want}"
                );
            }
        }
    }
    // Without pre-emption the first class waits as if alone once all are busy.
    let busy = erlang_c(2.4, 3).unwrap();
    let law = TimeLaw::WaitAndServe { weight: busy, wait_rate: 2.0, service_rate: 1.0 };
    for (quantile, found) in &quantiles(&models[3])[0] {
        near(*found, law.quantile(*quantile).unwrap(), 1e-7);
    }
    let own = [(1, 0.4, exponential(1.0)), (2, 0.2, exponential(2.0))];
    let preemptive = ranked(&own, of(Discipline::PriorityPreemptive, 1));
    for (quantile, found) in &quantiles(&preemptive)[0] {
        near(*found, -(1.0 - quantile).ln() / 0.6, 1e-7);
    }
    // Constants have no density: none are given of priorities.
    let constant = [(1, 0.4, Distribution::deterministic(1.0).unwrap()), own[1].clone()];
    let first = ranked(&constant, of(Discipline::PriorityNonPreemptive, 1));
    assert!(quantiles(&first)[0].is_empty());
    // Several servers, first come, first served.
    let line = [(1, 1.0, exponential(1.0)), (1, 1.4, exponential(1.0))];
    let law = mmm(2.4, 1.0, 3).unwrap();
    for (quantile, found) in &quantiles(&ranked(&line, of(Discipline::Fcfs, 3)))[1] {
        near(*found, law.response_quantile(*quantile).unwrap(), 1e-7);
    }
}

/// Against the simulator; and M/M/1 in two halves, where each has half of the 1 customer there, and of their variance
/// of 2 a quarter, with a quarter of the mean for the draw.
#[test]
fn variances_of_classes_in_order_of_arrival_are_what_the_simulator_finds() {
    let classes = [
        (1, 0.2, Distribution::deterministic(1.0).unwrap()),
        (1, 0.15, Distribution::uniform(0.5, 2.0).unwrap()),
        (1, 0.3, exponential(0.8)),
    ];
    let model = ranked(&classes, Station::queue("q", 1));
    let settings = Settings {
        confidence: 0.999,
        relative_half_width: 0.005,
        most_customers: 2_000_000,
        ..Settings::of(&model)
    };
    let found = simulate(&model, &settings, &mut |_| {}).unwrap();
    let solved = solve(&model, Solver::Auto).unwrap();
    let mut pairs = vec![(found.stations[0].number_variance, solved.stations[0].number_variance)];
    let classes = found.classes.iter().zip(&solved.classes);
    pairs.extend(classes.map(|(a, b)| (a.response_time_variance_s2, b.system_response_variance)));
    for (have, want) in pairs {
        let (have, want) = (have.unwrap(), want.unwrap());
        assert!((have.center - want).abs() <= have.half_width.unwrap(), "{have:?} for {want}");
    }
    let halves = [(1, 0.25, exponential(1.0)), (1, 0.25, exponential(1.0))];
    let solved = solve(&ranked(&halves, Station::queue("q", 1)), Solver::Auto).unwrap();
    near(solved.stations[0].number_variance.unwrap(), 2.0, 1e-12);
    near(solved.classes[0].number_variance.unwrap(), 0.75, 1e-12);
    near(solved.classes[0].system_response_variance.unwrap(), 4.0, 1e-12);
}
