//! Stations that block those before them, exact and simulated, against Markov chains that are solved here and
//! published throughputs of saturated lines. Intervals are the simulator's own at 99.9 %, with fixed seeds.

use std::collections::BTreeMap;

use kendall_queueing::model::{Class, Discipline, Leg, Model, Place, Station, WhenFull};
use kendall_queueing::simulation::{Measured, Settings, Simulated, simulate};
use kendall_queueing::solver::{Solution, Solver, solve};

fn run(model: &Model) -> Simulated {
    let settings = Settings {
        confidence: 0.999,
        relative_half_width: 0.01,
        most_customers: 3_000_000,
        ..Settings::of(model)
    };
    simulate(model, &settings, &mut |_| {}).expect("it can be simulated")
}

#[track_caller]
fn covers(measured: Option<Measured>, truth: f64) {
    let measured = measured.expect("observed");
    assert!(
        (measured.center - truth).abs() <= measured.half_width.expect("replicated") + 1e-9,
        "{measured:?} for {truth}"
    );
}

fn exact(model: &Model) -> Solution {
    solve(model, Solver::Auto).expect("a chain of few states")
}

/// Both chains are solved to about 1e-14 a state.
#[track_caller]
fn near(have: f64, want: f64) {
    assert!((have - want).abs() < 1e-10 * want.abs().max(1.0), "{have} for {want}");
}

fn queue(name: &str, servers: u64, rate: f64, room: Option<u64>, when_full: WhenFull) -> Station {
    let mut station = Station::queue(name, servers).with_service_time(0, 1.0 / rate);
    station.capacity = room;
    station.when_full = when_full;
    station
}

/// Numbers that describe a state.
type State = [u32; 3];

/// Stationary probabilities of a chain, by the rates out of each state.
fn stationary(start: State, rates: impl Fn(State) -> Vec<(f64, State)>) -> Vec<(State, f64)> {
    let (mut index, mut states) = (BTreeMap::from([(start, 0)]), vec![start]);
    let mut flows = Vec::new();
    let mut at = 0;
    while at < states.len() {
        for (rate, to) in rates(states[at]).into_iter().filter(|(rate, _)| *rate > 0.0) {
            let to = *index.entry(to).or_insert_with(|| {
                states.push(to);
                states.len() - 1
            });
            flows.push((at, to, rate));
        }
        at += 1;
    }
    let count = states.len();
    let mut balance = nalgebra::DMatrix::<f64>::zeros(count, count);
    for (from, to, rate) in flows {
        balance[(to, from)] += rate;
        balance[(from, from)] -= rate;
    }
    balance.row_mut(count - 1).fill(1.0);
    let mut right = nalgebra::DVector::<f64>::zeros(count);
    right[count - 1] = 1.0;
    let solved = balance.lu().solve(&right).expect("an irreducible chain");
    states.into_iter().zip(solved.iter().copied()).collect()
}

fn mean(chain: &[(State, f64)], of: impl Fn(State) -> u32) -> f64 {
    chain.iter().map(|(state, p)| p * f64::from(of(*state))).sum()
}

const RATE: f64 = 1.7;
const FIRST: (u32, f64, u32) = (2, 1.1, 4);
const SECOND: (u32, f64, u32) = (1, 1.6, 2);

fn tandem(when_full: WhenFull) -> (Simulated, Solution) {
    let (m, mu, room) = FIRST;
    let first = queue("first", m.into(), mu, Some(room.into()), WhenFull::Lost);
    let (m, mu, room) = SECOND;
    let second = queue("second", m.into(), mu, Some(room.into()), when_full);
    let model =
        Model::new("tandem", vec![Class::open("c", RATE)], vec![first, second]).expect("a model");
    (run(&model), exact(&model))
}

/// States: number at the first station, those of them who are blocked, number at the second.
#[test]
fn blocking_after_service_is_as_its_markov_chain_says() {
    let chain = stationary([0, 0, 0], |[n, blocked, next]| {
        let busy = f64::from(n.min(FIRST.0) - blocked);
        let served = if next < SECOND.2 {
            [n.max(1) - 1, blocked, next + 1]
        } else {
            [n, blocked + 1, next]
        };
        let freed = if blocked > 0 { [n - 1, blocked - 1, next] } else { [n, 0, next.max(1) - 1] };
        let arrives = if n < FIRST.2 { RATE } else { 0.0 };
        let second = SECOND.1 * f64::from(next.min(SECOND.0));
        vec![(arrives, [n + 1, blocked, next]), (FIRST.1 * busy, served), (second, freed)]
    });
    let (s, e) = tandem(WhenFull::BlockAfterService);
    covers(s.stations[0].number_mean, mean(&chain, |[n, ..]| n));
    covers(s.stations[1].number_mean, mean(&chain, |[.., next]| next));
    covers(s.stations[0].blocked_mean, mean(&chain, |[_, blocked, _]| blocked));
    let busy = mean(&chain, |[n, blocked, _]| n.min(FIRST.0) - blocked);
    covers(s.stations[0].utilization, busy / f64::from(FIRST.0));
    covers(s.classes[0].throughput_per_s, busy * FIRST.1);
    assert_eq!(s.stations[1].blocked_mean, None);
    let (first, number) = (&e.stations[0], mean(&chain, |[n, _, next]| n + next));
    near(first.number[0], mean(&chain, |[n, ..]| n));
    near(first.blocked.unwrap(), mean(&chain, |[_, blocked, _]| blocked));
    near(first.utilization[0], busy / f64::from(FIRST.0));
    near(first.waiting_time[0], first.number[0] / (busy * FIRST.1) - 1.0 / FIRST.1);
    near(e.classes[0].throughput, busy * FIRST.1);
    near(e.classes[0].system_response, number / (busy * FIRST.1));
    let square = mean(&chain, |[n, _, next]| (n + next).pow(2));
    near(e.classes[0].number_variance.unwrap(), square - number * number);
    near(e.stations[1].states.as_ref().unwrap()[2], mean(&chain, |[.., next]| next / 2));
}

/// The services of the first station are suspended while the second is full.
#[test]
fn blocking_before_service_is_as_its_markov_chain_says() {
    let chain = stationary([0, 0, 0], |[n, _, next]| {
        let room = if next < SECOND.2 { 1.0 } else { 0.0 };
        let busy = room * FIRST.1 * f64::from(n.min(FIRST.0));
        let arrives = if n < FIRST.2 { RATE } else { 0.0 };
        let second = SECOND.1 * f64::from(next.min(SECOND.0));
        vec![
            (arrives, [n + 1, 0, next]),
            (busy, [n.max(1) - 1, 0, next + 1]),
            (second, [n, 0, next.max(1) - 1]),
        ]
    });
    let (s, e) = tandem(WhenFull::BlockBeforeService);
    covers(s.stations[0].number_mean, mean(&chain, |[n, ..]| n));
    covers(s.stations[1].number_mean, mean(&chain, |[.., next]| next));
    let held = mean(&chain, |[n, _, next]| if next < SECOND.2 { 0 } else { n.min(FIRST.0) });
    covers(s.stations[0].blocked_mean, held);
    let served = mean(&chain, |[.., next]| next.min(SECOND.0));
    covers(s.classes[0].throughput_per_s, served * SECOND.1);
    near(e.stations[0].number[0], mean(&chain, |[n, ..]| n));
    near(e.stations[0].blocked.unwrap(), held);
    near(e.classes[0].throughput, served * SECOND.1);
}

/// Two stations lead to a third: what one sends there holds back the other in the middle of its service.
#[test]
fn a_station_that_fills_holds_back_all_who_lead_there() {
    const ROOM: u32 = 2;
    let (rates, mus, last) = ([0.9, 0.6], [1.2, 0.8], 1.3);
    let chain = stationary([0, 0, 0], |[a, b, c]| {
        let room = if c < ROOM { 1.0 } else { 0.0 };
        let joins = |n: u32| if n < 3 { 1.0 } else { 0.0 };
        let some = |n: u32| if n > 0 { room } else { 0.0 };
        vec![
            (rates[0] * joins(a), [a + 1, b, c]),
            (rates[1] * joins(b), [a, b + 1, c]),
            (mus[0] * some(a), [a.max(1) - 1, b, c + 1]),
            (mus[1] * some(b), [a, b.max(1) - 1, c + 1]),
            (last * f64::from(c.min(1)), [a, b, c.max(1) - 1]),
        ]
    });
    let mut stations = vec![
        queue("a", 1, mus[0], Some(3), WhenFull::Lost),
        queue("b", 1, mus[1], Some(3), WhenFull::Lost),
        queue("c", 1, last, Some(ROOM.into()), WhenFull::BlockBeforeService),
    ];
    let service = stations[1].demands[0].take();
    stations[1].demands.push(service);
    stations[2] = stations[2].clone().with_service_time(1, 1.0 / last);
    let classes = vec![Class::open("x", rates[0]), Class::open("y", rates[1])];
    let s = run(&Model::new("merge", classes, stations).unwrap());
    for (station, at) in s.stations.iter().zip(0..) {
        covers(station.number_mean, mean(&chain, |state| state[at]));
    }
}

/// A line whose first station is never without work: with equal exponential stations and no room
/// between them 2/3 and 22/39 of a station's rate for two and three of them, and (z + 2)/(z + 3) with
/// room for z between two [Hillier and Boling 1967].
#[test]
fn saturated_lines_have_their_published_throughputs() {
    let line = |rooms: &[u64], when_full: WhenFull| {
        let mut stations = vec![queue("s0", 1, 1.0, None, WhenFull::Lost)];
        for (index, room) in rooms.iter().enumerate() {
            stations.push(queue(&format!("s{}", index + 1), 1, 1.0, Some(*room), when_full));
        }
        let all = rooms.iter().sum::<u64>() + 2;
        Model::new("line", vec![Class::closed("c", all, 0.0)], stations).unwrap()
    };
    for (rooms, when_full, published) in [
        (&[1][..], WhenFull::BlockAfterService, 2.0 / 3.0),
        (&[3][..], WhenFull::BlockAfterService, 4.0 / 5.0),
        (&[1, 1][..], WhenFull::BlockAfterService, 22.0 / 39.0),
        // The server is held until there is a free place: one place less.
        (&[1][..], WhenFull::BlockBeforeService, 1.0 / 2.0),
        (&[2][..], WhenFull::BlockBeforeService, 2.0 / 3.0),
    ] {
        let model = line(rooms, when_full);
        covers(run(&model).classes[0].throughput_per_s, published);
        near(exact(&model).classes[0].throughput, published);
    }
}

/// States: number at the first station, at the second. Who finds the second full is served again, so that nothing
/// changes; in a round of two stations the numbers are those of one with room for as many as fit.
#[test]
fn repeated_service_is_as_its_markov_chain_says() {
    let chain = stationary([0, 0, 0], |[n, _, next]| {
        let arrives = if n < FIRST.2 { RATE } else { 0.0 };
        let busy = if next < SECOND.2 { FIRST.1 * f64::from(n.min(FIRST.0)) } else { 0.0 };
        let second = SECOND.1 * f64::from(next.min(SECOND.0));
        let served = [n.max(1) - 1, 0, next + 1];
        vec![(arrives, [n + 1, 0, next]), (busy, served), (second, [n, 0, next.max(1) - 1])]
    });
    let (s, e) = tandem(WhenFull::RepeatService);
    covers(s.stations[0].number_mean, mean(&chain, |[n, ..]| n));
    covers(s.stations[1].number_mean, mean(&chain, |[.., next]| next));
    covers(s.stations[0].utilization, mean(&chain, |[n, ..]| n.min(FIRST.0)) / f64::from(FIRST.0));
    let passes = mean(&chain, |[.., next]| next.min(SECOND.0)) * SECOND.1;
    covers(s.classes[0].throughput_per_s, passes);
    near(e.classes[0].throughput, passes);
    let (busy, share) = (mean(&chain, |[n, ..]| n.min(FIRST.0)), f64::from(FIRST.0));
    near(e.stations[0].utilization[0], busy / share);

    let leg = |from, to| Leg { class: 0, from, to_class: 0, to, probability: 1.0 };
    let (a, b) = (Place::Station(0), Place::Station(1));
    let round = |customers: u64| {
        let full = WhenFull::RepeatService;
        let stations = vec![queue("a", 1, 2.0, Some(3), full), queue("b", 1, 1.3, Some(2), full)];
        let classes = vec![Class::closed("c", customers, 0.0)];
        let mut model = Model::new("round", classes, stations).unwrap();
        model.routes = vec![leg(a, b), leg(b, a)];
        model.checked().unwrap()
    };
    let chain = stationary([2, 0, 0], |[n, ..]| {
        let (ahead, back) = (if n > 1 { 2.0 } else { 0.0 }, if n < 3 { 1.3 } else { 0.0 });
        vec![(ahead, [n.max(1) - 1, 0, 0]), (back, [n + 1, 0, 0])]
    });
    let s = run(&round(3));
    covers(s.stations[0].number_mean, mean(&chain, |[n, ..]| n));
    near(exact(&round(3)).stations[0].number[0], mean(&chain, |[n, ..]| n));
    // As many customers as places: no customer moves.
    let settings = Settings { most_customers: 1_000, ..Settings::of(&round(5)) };
    let stuck = simulate(&round(5), &settings, &mut |_| {}).unwrap();
    assert!(stuck.classes[0].throughput_per_s.unwrap().center.abs() < 1e-12);
}

/// Two stations lead to a third that is full now and then, thinking customers to the first, and routes part: who was
/// held first is let in first, and leaves a place to the next.
#[test]
fn a_network_with_ways_that_part_is_solved_as_it_is_simulated() {
    let leg = |from, to, probability| Leg { class: 0, from, to_class: 0, to, probability };
    let [a, b, c] = [0, 1, 2].map(Place::Station);
    for when_full in [WhenFull::BlockAfterService, WhenFull::RepeatService] {
        let stations = vec![
            queue("a", 2, 1.2, Some(3), when_full),
            queue("b", 1, 0.8, Some(2), when_full),
            queue("c", 1, 1.3, Some(2), when_full),
        ];
        let classes = vec![Class::closed("c", 8, 2.0)];
        let mut model = Model::new("parts", classes, stations).unwrap();
        model.routes = vec![
            leg(Place::Outside, a, 1.0),
            leg(a, b, 0.4),
            leg(a, c, 0.6),
            leg(b, c, 1.0),
            leg(c, Place::Outside, 1.0),
        ];
        let model = model.checked().unwrap();
        let (s, e) = (run(&model), exact(&model));
        covers(s.classes[0].throughput_per_s, e.classes[0].throughput);
        covers(s.classes[0].response_time_mean_s, e.classes[0].system_response);
        for (simulated, solved) in s.stations.iter().zip(&e.stations) {
            covers(simulated.number_mean, solved.number[0]);
            covers(simulated.utilization, solved.utilization[0]);
            if simulated.blocked_mean.is_some() {
                covers(simulated.blocked_mean, solved.blocked.unwrap());
            }
        }
    }
}

/// Clients wait at the door of the first station, and are held at its servers: both are response and wait, for the
/// chain and for the simulator, so that N = X·(R + Z).
#[test]
fn waits_for_a_place_are_response_in_chain_and_simulation() {
    const CLIENTS: u64 = 9;
    const THINK: f64 = 1.5;
    let kinds =
        [WhenFull::BlockAfterService, WhenFull::BlockBeforeService, WhenFull::RepeatService];
    for when_full in kinds {
        let stations =
            vec![queue("a", 2, 1.2, Some(3), when_full), queue("b", 1, 1.5, Some(2), when_full)];
        let model = Model::new("door", vec![Class::closed("c", CLIENTS, THINK)], stations).unwrap();
        let (s, e) = (run(&model), exact(&model));
        let class = &e.classes[0];
        near(class.throughput * (class.system_response + THINK), 9.0);
        near(class.number, class.throughput * class.system_response);
        let inside: f64 = e.stations.iter().map(|station| station.number[0]).sum();
        assert!(class.number > inside + 0.5, "{} at the door", class.number - inside);
        covers(s.classes[0].throughput_per_s, class.throughput);
        covers(s.classes[0].response_time_mean_s, class.system_response);
        covers(s.classes[0].number_mean, class.number);
        for (simulated, solved) in s.stations.iter().zip(&e.stations) {
            let own = &simulated.classes[0];
            covers(own.utilization, solved.utilization[0]);
            covers(own.waiting_time_mean_s, solved.waiting_time[0]);
            covers(own.response_time_mean_s, solved.response_time[0]);
            let served =
                solved.utilization[0] * f64::from(if simulated.name == "a" { 2 } else { 1 });
            covers(own.number_waiting_mean, solved.number[0] - served);
        }
    }
}

/// The first station, to which arrivals go by two ways, was one before which they would be served.
#[test]
fn arrivals_at_stations_that_block_before_service_are_solved() {
    let leg = |from, to, probability| Leg { class: 0, from, to_class: 0, to, probability };
    let [a, b] = [0, 1].map(Place::Station);
    let full = WhenFull::BlockBeforeService;
    let stations = vec![queue("a", 1, 1.2, Some(3), full), queue("b", 1, 1.5, Some(2), full)];
    let mut model = Model::new("two ways", vec![Class::open("c", 1.1)], stations).unwrap();
    model.routes = vec![
        leg(Place::Outside, a, 0.6),
        leg(Place::Outside, b, 0.4),
        leg(a, b, 1.0),
        leg(b, Place::Outside, 1.0),
    ];
    let model = model.checked().unwrap();
    let (s, e) = (run(&model), exact(&model));
    covers(s.classes[0].throughput_per_s, e.classes[0].throughput);
    for (simulated, solved) in s.stations.iter().zip(&e.stations) {
        covers(simulated.number_mean, solved.number[0]);
        covers(simulated.classes[0].waiting_time_mean_s, solved.waiting_time[0]);
    }
}

#[test]
fn hostile_numbers_of_blocking_models_are_solved_or_refused() {
    let kinds =
        [WhenFull::BlockAfterService, WhenFull::BlockBeforeService, WhenFull::RepeatService];
    for (population, room) in [(0, 1), (1, 0), (7, 3), (9_000_000_000_000_000, 2)] {
        for (rate, think) in [(1.0, 0.0), (1e-300, 1.0), (1e300, 1e-300), (1.0, 1e300)] {
            for when_full in kinds {
                let stations = vec![
                    queue("a", 2, rate, None, WhenFull::Lost),
                    queue("b", 1, 1.0, Some(room), when_full),
                ];
                let classes = vec![Class::closed("c", population, think)];
                let Ok(model) = Model::new("hostile", classes, stations) else { continue };
                let Ok(found) = solve(&model, Solver::Auto) else { continue };
                let class = &found.classes[0];
                let numbers = [class.throughput, class.number, class.system_response];
                let fine = numbers.iter().all(|x| x.is_finite() && *x >= 0.0);
                assert!(fine, "{population} {room} {rate} {think}: {numbers:?}");
            }
        }
    }
}

#[test]
fn what_cannot_block_is_refused_by_name() {
    let refusal = |model: &Model| {
        let settings = Settings { most_customers: 100_000, ..Settings::of(model) };
        simulate(model, &settings, &mut |_| {}).unwrap_err().to_string()
    };
    let two = |change: &dyn Fn(&mut Station), class: Class| {
        let mut first = queue("first", 1, 2.0, None, WhenFull::Lost);
        change(&mut first);
        let second = queue("second", 1, 2.0, Some(1), WhenFull::BlockBeforeService);
        Model::new("two", vec![class], vec![first, second])
    };
    let model = two(&|station| station.discipline = Discipline::Ps, Class::open("c", 1.0)).unwrap();
    assert!(refusal(&model).contains("`first`: a shared"), "{}", refusal(&model));
    let model =
        two(&|station| station.discipline = Discipline::Srpt, Class::open("c", 1.0)).unwrap();
    assert!(refusal(&model).contains("pre-emption"), "{}", refusal(&model));
    let error = solve(&model, Solver::Auto).unwrap_err().to_string();
    assert!(error.contains("blocking") && error.contains("`second`"), "{error}");
    let bare = queue("q", 1, 1.0, None, WhenFull::BlockAfterService);
    let error = Model::new("m", vec![Class::open("c", 0.5)], vec![bare]).unwrap_err().to_string();
    assert!(error.contains("stations[0].when_full") && error.contains("`capacity`"), "{error}");
    // A circle in which all wait for each other.
    let leg = |from, to, probability| Leg { class: 0, from, to_class: 0, to, probability };
    let (a, b) = (Place::Station(0), Place::Station(1));
    let round = |class: Class, out: f64| {
        let blocking = |name: &str| queue(name, 1, 2.0, Some(1), WhenFull::BlockAfterService);
        let mut model =
            Model::new("round", vec![class], vec![blocking("a"), blocking("b")]).unwrap();
        model.routes = vec![leg(a, b, 1.0), leg(b, a, 1.0 - out)];
        if out > 0.0 {
            model.routes.extend([leg(b, Place::Outside, out), leg(Place::Outside, a, 1.0)]);
        }
        model.checked().unwrap()
    };
    let text = refusal(&round(Class::open("c", 1.0), 0.5));
    assert!(text.contains("circle"), "{text}");
    let text = refusal(&round(Class::closed("c", 2, 0.0), 0.0));
    assert!(text.contains("deadlock"), "{text}");
}
