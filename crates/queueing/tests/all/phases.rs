//! Arrivals and services in phases, and priorities with rates of their own: matrix-analytic answers
//! against global balance by elimination, against the closed forms that some have, and against the
//! simulator.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kendall_queueing::Distribution;
use kendall_queueing::model::{Class, Discipline, Model, Station, Workload};
use kendall_queueing::simulation::{Settings, simulate};
use kendall_queueing::solver::{Solver, solve};
use kendall_queueing::station::{
    Accuracy, Scheduling, StationSolution, gm1, map_ph, mg1, mmm, mmm_priority, mmm_priority_two,
    mmmk,
};

use crate::independent::{chain, two_queues};

#[track_caller]
fn near(have: f64, want: f64, relative: f64) {
    // What rounding leaves of a small difference of probabilities is no more than 1e-15.
    let size = want.abs().max(1e-15 / relative);
    assert!((have - want).abs() <= relative * size, "{have} for {want}");
}

fn solved(
    arrivals: &Distribution,
    service: &Distribution,
    servers: u64,
    capacity: Option<u64>,
) -> StationSolution {
    map_ph((1.0 / arrivals.mean(), arrivals), service, servers, capacity).unwrap().unwrap()
}

fn switched() -> Distribution {
    Distribution::mmpp(&[2.4, 0.3], &[vec![0.0, 0.15], vec![0.1, 0.0]]).unwrap()
}

#[test]
fn phases_that_are_exponential_are_the_closed_forms() {
    let gap = |rate: f64| Distribution::exponential(1.0 / rate).unwrap();
    for (lambda, servers) in [(0.7, 1), (2.5, 3), (0.01, 2), (18.5, 20), (0.999, 1)] {
        let service = gap(1.0);
        let have = solved(&gap(lambda), &service, servers, None);
        let want = mmm(lambda, 1.0, servers).unwrap();
        near(have.number.mean, want.number.mean, 1e-9);
        near(have.number.variance.unwrap(), want.number.variance.unwrap(), 1e-8);
        near(have.waiting_time.variance.unwrap(), want.waiting_time.variance.unwrap(), 1e-7);
        near(have.response_time.variance.unwrap(), want.response_time.variance.unwrap(), 1e-7);
        near(have.p_queueing.unwrap(), want.p_queueing.unwrap(), 1e-9);
        near(have.p0.unwrap(), want.p0.unwrap(), 1e-9);
        for q in [0.3, 0.9, 0.99, 0.999] {
            near(have.response_quantile(q).unwrap(), want.response_quantile(q).unwrap(), 1e-7);
            near(have.waiting_quantile(q).unwrap(), want.waiting_quantile(q).unwrap(), 1e-7);
        }
        assert!(have.little_error() < 1e-9);
        let have = solved(&gap(lambda), &service, servers, Some(servers + 4));
        let want = mmmk(lambda, 1.0, servers, servers + 4).unwrap();
        near(have.loss_probability, want.loss_probability, 1e-9);
        near(have.number.mean, want.number.mean, 1e-9);
        near(have.waiting_time.mean, want.waiting_time.mean, 1e-9);
        near(have.p_queueing.unwrap(), want.p_queueing.unwrap(), 1e-9);
    }
}

/// M/PH/1 by Pollaczek–Khinchine, PH/M/1 by the root of its transform.
#[test]
fn one_poisson_or_exponential_side_is_its_formula() {
    let exponential = Distribution::exponential(1.0).unwrap();
    for shape in [
        Distribution::erlang(4, 0.8).unwrap(),
        Distribution::hyperexponential_balanced(0.8, 6.0).unwrap(),
    ] {
        let (have, want) = (solved(&exponential, &shape, 1, None), mg1(1.0, &shape).unwrap());
        near(have.waiting_time.mean, want.waiting_time.mean, 1e-10);
        near(have.waiting_time.variance.unwrap(), want.waiting_time.variance.unwrap(), 1e-7);
        near(have.number.variance.unwrap(), want.number.variance.unwrap(), 1e-8);
        for q in [0.5, 0.99] {
            near(have.response_quantile(q).unwrap(), want.response_quantile(q).unwrap(), 1e-5);
            near(have.waiting_quantile(q).unwrap(), want.waiting_quantile(q).unwrap(), 1e-5);
        }
        let gaps = shape.with_mean(1.25).unwrap();
        let (have, want) = (solved(&gaps, &exponential, 1, None), gm1(&gaps, 1.0).unwrap());
        near(have.waiting_time.mean, want.waiting_time.mean, 1e-9);
        near(have.p_queueing.unwrap(), want.p_queueing.unwrap(), 1e-9);
        near(have.response_quantile(0.99).unwrap(), want.response_quantile(0.99).unwrap(), 1e-7);
        for n in [0, 1, 5] {
            let of = |s: &StationSolution| s.states.as_ref().unwrap().probability(n);
            near(of(&have), of(&want), 1e-8);
        }
    }
}

/// Switched Poisson arrivals at two servers with two-branch service, cut off at 90 customers: mean,
/// variance, and what arrivals find, by elimination over (phase, servers in branch 1, n).
#[test]
fn map_ph_2_satisfies_global_balance() {
    // Below what two servers do, so that next to nothing is beyond 90.
    let (rates, switch) = ([1.8, 0.3], [0.15, 0.1]);
    let arrivals =
        Distribution::mmpp(&rates, &[vec![0.0, switch[0]], vec![switch[1], 0.0]]).unwrap();
    let (p, fast, slow) = (0.7, 2.0, 0.6);
    let service = Distribution::hyperexponential(vec![p, 1.0 - p], vec![0.5, 1.0 / slow]).unwrap();
    for last in [6_u32, 90] {
        let states = chain((0_usize, 0_u32, 0_u32), |&(phase, first, n)| {
            let mut next = vec![((1 - phase, first, n), switch[phase])];
            if n < last {
                if n < 2 {
                    next.push(((phase, first + 1, n + 1), rates[phase] * p));
                    next.push(((phase, first, n + 1), rates[phase] * (1.0 - p)));
                } else {
                    next.push(((phase, first, n + 1), rates[phase]));
                }
            }
            let ends = [(first, fast, 1), (n.min(2) - first, slow, 0)];
            for (busy, rate, from) in ends.into_iter().filter(|(busy, ..)| *busy > 0) {
                let rate = f64::from(busy) * rate;
                if n > 2 {
                    next.push(((phase, first - from + 1, n - 1), rate * p));
                    next.push(((phase, first - from, n - 1), rate * (1.0 - p)));
                } else {
                    next.push(((phase, first - from, n - 1), rate));
                }
            }
            next
        });
        let mean = states.mean(|s| f64::from(s.2));
        let second = states.mean(|s| f64::from(s.2).powi(2));
        let lambda = states.mean(|s| rates[s.0]);
        let wait = states.mean(|s| if s.2 >= 2 && s.2 < last { rates[s.0] } else { 0.0 });
        let lost = states.mean(|s| if s.2 == last { rates[s.0] } else { 0.0 });
        let limit = (last == 6).then_some(6);
        let have = solved(&arrivals, &service, 2, limit);
        near(have.number.mean, mean, 1e-7);
        near(have.number.variance.unwrap(), second - mean * mean, 1e-6);
        near(have.p_queueing.unwrap(), wait / (lambda - lost), 1e-7);
        if limit.is_some() {
            near(have.loss_probability, lost / lambda, 1e-9);
        }
        assert!(have.little_error() < 1e-9, "{have:?}");
    }
}

fn with_arrivals(interarrival: Distribution, station: Station) -> Model {
    let mut class = Class::open("c", 1.0 / interarrival.mean());
    if let Workload::Open { interarrival: own, .. } = &mut class.workload {
        *own = interarrival;
    }
    Model::new("m", vec![class], vec![station]).unwrap()
}

#[test]
fn correlated_arrivals_wait_as_the_simulator_finds() {
    let service = Distribution::coxian(&[4.0, 1.0], &[0.5]).unwrap();
    let station = Station::queue("q", 2).with_service(0, service);
    let model = with_arrivals(switched(), station);
    let formula = solve(&model, Solver::Auto).unwrap();
    assert_eq!(formula.accuracy, Accuracy::Exact);
    let formula = formula.station.unwrap();
    assert_eq!(formula.notation, "MAP/PH/2");
    let settings =
        Settings { confidence: 0.999, most_customers: 6_000_000, ..Settings::of(&model) };
    let found = simulate(&model, &settings, &mut |_| {}).unwrap();
    let response = found.classes[0].response_time_mean_s.unwrap();
    println!("{response:?} for {}", formula.response_time.mean);
    assert!(response.covers(formula.response_time.mean), "{response:?} {formula:?}");
    for (q, have) in &found.classes[0].response_time_quantiles_s {
        let want = formula.response_quantile(*q).unwrap();
        println!("{q}: {have:?} for {want}");
        let slack = have.half_width.unwrap_or(f64::INFINITY) + 0.004 * want;
        assert!((have.center - want).abs() <= slack, "{q} {have:?} {want}");
    }
}

/// A trace keeps its order: alternating services of 0 and 1 at gaps of 1 never wait, the same values
/// drawn at random would.
#[test]
fn a_trace_keeps_its_order() {
    let station = |service| Station::queue("q", 1).with_service(0, service);
    let gaps = Distribution::deterministic(1.0).unwrap();
    let values = vec![0.2, 1.6];
    let wait = |service| {
        let model = with_arrivals(gaps.clone(), station(service));
        let settings = Settings { most_customers: 50_000, ..Settings::of(&model) };
        let found = simulate(&model, &settings, &mut |_| {}).unwrap();
        found.stations[0].all.waiting_time_mean_s.unwrap().center
    };
    // The short one waits 0.6 behind the long one, and the long one never.
    near(wait(Distribution::trace(values.clone()).unwrap()), 0.3, 1e-3);
    assert!(wait(Distribution::empirical(values).unwrap()) > 1.0);
}

/// Two classes with rates of their own, cut off at 34 customers each.
#[test]
fn priorities_with_two_rates_satisfy_global_balance() {
    let (high, low, m) = ((0.5, 1.0), (0.15, 0.5), 2_u32);
    let departures = |a: u32, b: u32| {
        let (first, second) = (a.min(m), b.min(m - a.min(m)));
        [f64::from(first) * high.1, f64::from(second) * low.1]
    };
    let preemptive = two_queues(34, |_, _| [high.0, low.0], departures);
    let found = mmm_priority_two([high, low], 2, Scheduling::PreemptiveResume).unwrap().unwrap();
    near(found[0].number, preemptive.mean(|s| f64::from(s.0)), 1e-7);
    near(found[1].number, preemptive.mean(|s| f64::from(s.1)), 1e-6);
    // (waiting 1, waiting 2, in service 1, in service 2), cut off at 18 waiting of each.
    let staying = chain((0_u32, 0_u32, 0_u32, 0_u32), |&(wa, wb, a, b)| {
        let mut next = Vec::new();
        let free = a + b < m;
        match free {
            true => next.extend([((0, 0, a + 1, b), high.0), ((0, 0, a, b + 1), low.0)]),
            false => {
                if wa < 20 {
                    next.push(((wa + 1, wb, a, b), high.0));
                }
                if wb < 20 {
                    next.push(((wa, wb + 1, a, b), low.0));
                }
            }
        }
        let mut leave = |a: u32, b: u32, rate: f64| match (wa, wb) {
            (0, 0) => next.push(((0, 0, a, b), rate)),
            (0, _) => next.push(((0, wb - 1, a, b + 1), rate)),
            _ => next.push(((wa - 1, wb, a + 1, b), rate)),
        };
        if a > 0 {
            leave(a - 1, b, f64::from(a) * high.1);
        }
        if b > 0 {
            leave(a, b - 1, f64::from(b) * low.1);
        }
        next
    });
    let found = mmm_priority_two([high, low], 2, Scheduling::NonPreemptive).unwrap().unwrap();
    near(found[0].number, staying.mean(|s| f64::from(s.0 + s.2)), 1e-5);
    near(found[1].number, staying.mean(|s| f64::from(s.1 + s.3)), 1e-4);
}

#[test]
fn priorities_with_one_rate_are_the_closed_form() {
    for scheduling in [Scheduling::NonPreemptive, Scheduling::PreemptiveResume] {
        for servers in [1, 3] {
            let m = if servers == 1 { 1.0 } else { 3.0 };
            let (first, second) = (0.4 * m, 0.3 * m);
            let have = mmm_priority_two([(first, 1.0), (second, 1.0)], servers, scheduling);
            let have = have.unwrap().unwrap();
            let want = mmm_priority(&[first, second], 1.0, servers, scheduling).unwrap();
            for class in 0..2 {
                near(have[class].number, want[class].number, 1e-9);
            }
        }
    }
}

#[test]
fn priorities_with_two_rates_are_what_the_simulator_finds() {
    for discipline in [Discipline::PriorityNonPreemptive, Discipline::PriorityPreemptive] {
        let (high, mut low) = (Class::open("web", 1.2), Class::open("batch", 0.25));
        low.priority = 2;
        let station = Station::queue("cpu", 2).with_service_time(0, 0.8).with_service_time(1, 2.5);
        let station = Station { discipline, ..station };
        let model = Model::new("m", vec![high, low], vec![station]).unwrap();
        let formula = solve(&model, Solver::Auto).unwrap();
        assert_eq!(formula.accuracy, Accuracy::Exact);
        let settings =
            Settings { confidence: 0.999, most_customers: 2_000_000, ..Settings::of(&model) };
        let found = simulate(&model, &settings, &mut |_| {}).unwrap();
        for (have, want) in found.classes.iter().zip(&formula.classes) {
            let have = have.response_time_mean_s.unwrap();
            println!("{have:?} for {}", want.system_response);
            assert!(have.covers(want.system_response), "{have:?} {want:?}");
        }
    }
}

#[test]
fn phases_are_read_from_files_and_refused_with_their_place() {
    let model = |arrivals: &str| {
        let text = format!(
            "classes = [{{ name = 'c', interarrival_time = {arrivals} }}]\n\
             stations = [{{ name = 'q', service = {{ distribution = 'phase-type', mean_s = 0.3, \
             scv = 0.4 }} }}]"
        );
        toml::from_str::<Model>(&text).map_err(|error| error.to_string())
    };
    for good in [
        "{ distribution = 'map', d0 = [[-3.0, 1.0], [0.0, -1.0]], d1 = [[2.0, 0.0], [0.5, 0.5]] }",
        "{ distribution = 'mmpp', arrival_rates_per_s = [3, 1], generator = [[0, 1], [1, 0]] }",
        "{ distribution = 'coxian', rates_per_s = [3, 2], continue_probabilities = [0.5] }",
        "{ distribution = 'phase-type', initial = [1, 0], generator = [[-3, 1], [0, -2]] }",
        "{ distribution = 'trace', values_s = [0.5, 1.5, 0.7] }",
    ] {
        let read = model(good).unwrap();
        let solved = solve(&read, Solver::Auto);
        assert_eq!(solved.is_ok(), !good.contains("trace"), "{good}: {solved:?}");
        if let Ok(solved) = solved {
            assert_eq!(solved.accuracy, Accuracy::Exact, "{good}");
        }
    }
    for (bad, says) in [
        ("{ distribution = 'map', d0 = [[-3.0]], d1 = [[2.0]] }", "d0 and d1"),
        ("{ distribution = 'map', d0 = [[-3.0]] }", "d1"),
        ("{ distribution = 'map', d0 = 3, d1 = [[1]] }", "d0"),
        ("{ distribution = 'mmpp', arrival_rates_per_s = [3, 1], generator = [[0]] }", "generator"),
        ("{ distribution = 'phase-type', initial = [1], generator = [['a']] }", "generator"),
        ("{ distribution = 'phase-type', scv = 0.0001, mean_s = 1 }", "0.01"),
    ] {
        let error = model(bad).unwrap_err();
        assert!(error.contains(says), "{bad}: {error}");
    }
}
