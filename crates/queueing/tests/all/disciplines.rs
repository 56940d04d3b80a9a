//! Orders by size and by weight, and patience of any distribution: formulas against quadrature of the
//! textbook's integrals, against Markov chains, and against the simulator.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kendall_queueing::Distribution;
use kendall_queueing::model::{Class, Discipline, Model, Station};
use kendall_queueing::simulation::{Settings, draw, simulate};
use kendall_queueing::solver::{Solver, solve};
use kendall_queueing::station::{
    BySize, PriorityClass, Visit, erlang_c, mg1, mg1_by_size, mg1_ps, mg1_retrial,
    mm1_discriminatory, mmm, mmm_impatient, mmm_impatient_general, polling,
};

use crate::independent::chain;

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

fn exponential_class(arrival_rate: f64, mean: f64) -> PriorityClass {
    PriorityClass { arrival_rate, service: Distribution::exponential(mean).unwrap() }
}

/// Two classes cut off at 36 customers each, by global balance.
#[test]
fn sharing_by_weights_satisfies_global_balance() {
    let (rates, means, weights) = ([0.3, 0.2], [1.0, 1.2], [1.0, 3.0]);
    let classes = [exponential_class(0.3, 1.0), exponential_class(0.2, 1.2)];
    let solved = mm1_discriminatory(&classes, &weights).unwrap();
    let states = chain((0_u32, 0_u32), |&(a, b)| {
        let mut next = Vec::new();
        if a < 36 {
            next.push(((a + 1, b), rates[0]));
        }
        if b < 36 {
            next.push(((a, b + 1), rates[1]));
        }
        let all = f64::from(a) * weights[0] + f64::from(b) * weights[1];
        if a > 0 {
            next.push(((a - 1, b), f64::from(a) * weights[0] / all / means[0]));
        }
        if b > 0 {
            next.push(((a, b - 1), f64::from(b) * weights[1] / all / means[1]));
        }
        next
    });
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

/// Mean wait at equal queues that one server goes round, customer by customer: 40 batches, and the standard
/// error of their mean.
fn simulated_polling(
    (lambda, queues): (f64, usize),
    service: &Distribution,
    switching: &Distribution,
    visit: Visit,
) -> (f64, f64) {
    let total = 410_000;
    let gaps = draw(&Distribution::exponential(1.0 / lambda).unwrap(), 1, total);
    let places = draw(&Distribution::uniform(0.0, 1.0).unwrap(), 2, total);
    let services = draw(service, 3, total);
    let switches = draw(switching, 4, 1_000_000);
    let mut waiting: Vec<std::collections::VecDeque<f64>> = vec![Default::default(); queues];
    let (mut arrival, mut coming, mut now, mut served, mut turn) = (gaps[0], 0, 0.0, 0, 0_usize);
    let mut batches = vec![0.0; 41];
    let count = kendall_units::exact_f64(queues);
    while served < total - 1_000 {
        let at = turn % queues;
        let mut admit = |until: f64, waiting: &mut [std::collections::VecDeque<f64>]| {
            while arrival <= until && coming + 1 < total {
                let place = kendall_units::whole_u64(places[coming] * count);
                let place = usize::try_from(place).unwrap();
                waiting[place.min(queues - 1)].push_back(arrival);
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
            && let Some(came) = waiting[at].pop_front()
        {
            batches[(served / 10_000).min(40)] += (now - came) / 10_000.0;
            now += services[served];
            served += 1;
            allowed -= 1;
            admit(now, &mut waiting);
            if served >= total - 1_000 {
                break;
            }
        }
        now += switches[turn % switches.len()];
        turn += 1;
    }
    let kept = &batches[1..40];
    let mean = kept.iter().sum::<f64>() / 39.0;
    let variance = kept.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / 38.0;
    (mean, (variance / 39.0_f64).sqrt())
}

#[test]
fn a_server_that_goes_round_waits_as_takagi_says() {
    let service = Distribution::erlang(2, 1.0).unwrap();
    for switching in
        [Distribution::deterministic(0.3).unwrap(), Distribution::exponential(0.2).unwrap()]
    {
        for visit in [Visit::Exhaustive, Visit::Gated, Visit::Limited] {
            let solved = polling(0.6, &service, 4, &switching, visit).unwrap();
            let (mean, error) = simulated_polling((0.6, 4), &service, &switching, visit);
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
