//! How the number in a network settles after a step.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kendall_queueing::model::{Class, Discipline, Model, Pool, Station};
use kendall_queueing::solver::{Solution, SolveError, Solver, solve};
use kendall_queueing::station::Settling;

use crate::independent::chain;

fn solved(model: &Model) -> Result<Solution, SolveError> {
    solve(model, Solver::Auto)
}

fn delay(name: &str, time: f64) -> Station {
    Station::delay(name).with_service_time(0, time)
}

/// Delays in a row, open and closed: the numbers are sums of independent customers, whose times are sums of
/// exponentials. An M/M/1 behind a delay of next to nothing settles as it does alone.
#[test]
fn networks_settle_as_their_chain() {
    let delays = || vec![delay("a", 0.5), delay("b", 0.25)];
    let mut model = Model::new("m", vec![Class::open("c", 6.0)], delays()).unwrap();
    model.classes[0].before = Some(2.0);
    let settling = solved(&model).unwrap().settling.unwrap();
    // E N(t) = 6·E[S] − (6 − 2)·∫ P(S > u) du from t on, with P(S > u) = 2·e^(−2u) − e^(−4u).
    for (time, number) in &settling.curve {
        let want = 4.5 - 4.0 * ((-2.0 * time).exp() - 0.25 * (-4.0 * time).exp());
        assert!((number - want).abs() < 1e-7, "{time}: {number} {want}");
    }
    let alone = |stations: Vec<Station>| {
        let mut model = Model::new("m", vec![Class::closed("c", 12, 5.0)], stations).unwrap();
        model.classes[0].before = Some(4.0);
        solved(&model).unwrap().settling.unwrap()
    };
    let one = alone(vec![Station::queue("q", 1).with_service_time(0, 1.0)]);
    let two = alone(vec![Station::queue("q", 1).with_service_time(0, 1.0), delay("d", 1e-4)]);
    assert!((one.time_s / two.time_s - 1.0).abs() < 2e-3, "{one:?} {two:?}");
    assert!((one.number_mean.1 / two.number_mean.1 - 1.0).abs() < 1e-3);
    // The end is what the solver says.
    let mut model = Model::new(
        "m",
        vec![Class::closed("c", 12, 5.0)],
        vec![
            Station::queue("q", 2).with_service_time(0, 1.0),
            Station::queue("r", 1).with_service_time(0, 0.7).with_visits(0, 1.4),
        ],
    )
    .unwrap();
    model.classes[0].before = Some(4.0);
    let solution = solved(&model).unwrap();
    let after = solution.settling.unwrap().number_mean.1;
    assert!((after / solution.classes[0].number - 1.0).abs() < 1e-9, "{after}");
}

#[test]
fn networks_that_are_too_large_to_settle_are_refused() {
    let queue = |name: &str| Station::queue(name, 1).with_service_time(0, 1.0);
    let stations = || ["a", "b", "c", "d", "e"].map(queue).to_vec();
    let refused = |model: &Model| solved(model).unwrap_err().to_string();
    let mut model = Model::new("m", vec![Class::open("c", 0.9)], stations()).unwrap();
    model.classes[0].before = Some(0.1);
    assert!(refused(&model).contains("100000 states"), "{}", refused(&model));
    model.classes[0].before = Some(1.2);
    assert!(refused(&model).contains("steady state"), "{}", refused(&model));
    let mut model = Model::new("m", vec![Class::closed("c", 900, 3.0)], stations()).unwrap();
    model.classes[0].before = Some(1.0);
    assert!(refused(&model).contains("100000 states"), "{}", refused(&model));
    let mut model = Model::new("m", vec![Class::closed("c", 9, 0.0)], stations()).unwrap();
    model.classes[0].before = Some(1.0);
    assert!(refused(&model).contains("a think time of `c`"), "{}", refused(&model));
}

fn queue(name: &str, servers: u64, time: f64) -> Station {
    Station::queue(name, servers).with_service_time(0, time)
}

fn pool(tokens: u64, stations: Vec<usize>) -> Pool {
    Pool { name: "p".to_owned(), tokens, stations, classes: vec![0], queue_capacity: None }
}

fn settled(class: Class, stations: Vec<Station>, pools: Vec<Pool>) -> Settling {
    let model = Model::new("m", vec![class], stations).unwrap().with_pools(pools).unwrap();
    solved(&model).unwrap().settling.unwrap()
}

fn same(one: &Settling, other: &Settling) {
    assert_eq!(one.curve.len(), other.curve.len());
    for (a, b) in one.curve.iter().zip(&other.curve) {
        assert!((a.0 - b.0).abs() < 1e-6 * b.0.max(1e-9), "{a:?} {b:?}");
        assert!((a.1 - b.1).abs() < 1e-6 * b.1, "{a:?} {b:?}");
    }
    assert!((one.time_s / other.time_s - 1.0).abs() < 1e-6, "{one:?} {other:?}");
}

/// Tokens for as many as are served at once change nothing; a pool around two stations ends where the balance of
/// its chain is.
#[test]
fn pools_settle_as_their_chain() {
    let open = |before, rate| Class { before: Some(before), ..Class::open("c", rate) };
    let closed = |before, n, think| Class { before: Some(before), ..Class::closed("c", n, think) };
    // Held by those in service alone, the queue is that for tokens.
    let delays =
        settled(open(1.0, 2.1), vec![delay("d", 1.0), delay("e", 0.05)], vec![pool(3, vec![0])]);
    let plain = settled(open(1.0, 2.1), vec![queue("q", 3, 1.0), delay("e", 0.05)], Vec::new());
    assert!(
        (delays.number_mean.1 / plain.number_mean.1 - 1.0).abs() < 1e-7,
        "{delays:?} {plain:?}"
    );
    assert!((delays.time_s / plain.time_s - 1.0).abs() < 1e-6, "{delays:?} {plain:?}");
    let stations = || vec![queue("a", 1, 0.3), queue("b", 1, 0.2)];
    let wide = settled(closed(2.0, 9, 1.0), stations(), vec![pool(9, vec![0, 1])]);
    same(&wide, &settled(closed(2.0, 9, 1.0), stations(), Vec::new()));
    let narrow = settled(closed(2.0, 9, 1.0), stations(), vec![pool(2, vec![0, 1])]);
    for (most, want) in [(2_u32, narrow.number_mean.0), (9, narrow.number_mean.1)] {
        let balance = chain((0_u32, 0_u32, 0_u32), |(a, b, waiting)| {
            let thinking = f64::from(most - a - b - waiting);
            let mut moves = Vec::new();
            if thinking > 0.0 {
                let full = a + b >= 2;
                let next = if full { (*a, *b, waiting + 1) } else { (a + 1, *b, *waiting) };
                moves.push((next, thinking));
            }
            if *a > 0 {
                moves.push(((a - 1, b + 1, *waiting), 1.0 / 0.3));
            }
            if *b > 0 {
                let next = if *waiting > 0 { (a + 1, b - 1, waiting - 1) } else { (*a, b - 1, 0) };
                moves.push((next, 5.0));
            }
            moves
        });
        let mean = balance.mean(|(a, b, waiting)| f64::from(a + b + waiting));
        assert!((mean - want).abs() < 1e-9, "{want} for {mean}");
    }
}

/// Processor sharing of two classes with one service is M/M/1 of both, and so is one line of them; delays of two
/// classes add up; a population beside arrivals ends where the solver says.
#[test]
fn several_classes_settle_as_their_chain() {
    let stepping = |name, before, rate| Class { before: Some(before), ..Class::open(name, rate) };
    let one = |discipline, servers| {
        let station = Station { discipline, ..queue("q", servers, 1.0).with_service_time(1, 1.0) };
        let classes = vec![stepping("a", 0.2, 0.5), Class::open("b", 0.3)];
        let model = Model::new("m", classes, vec![station]).unwrap();
        solved(&model).unwrap().settling.unwrap()
    };
    for (discipline, servers) in [(Discipline::Ps, 1), (Discipline::Fcfs, 1), (Discipline::Fcfs, 3)]
    {
        let both = settled(stepping("c", 0.5, 0.8), vec![queue("q", servers, 1.0)], Vec::new());
        let found = one(discipline, servers);
        assert!(
            (found.number_mean.1 / both.number_mean.1 - 1.0).abs() < 1e-7,
            "{found:?} {both:?}"
        );
        assert!((found.time_s / both.time_s - 1.0).abs() < 1e-4, "{found:?} {both:?}");
    }
    let station = |name| delay(name, 0.5).with_service_time(1, 2.0);
    let classes = vec![stepping("a", 1.0, 3.0), stepping("b", 2.0, 0.0)];
    let model = Model::new("m", classes, vec![station("d")]).unwrap();
    for (time, number) in solved(&model).unwrap().settling.unwrap().curve {
        let want = 1.5 - (-2.0 * time).exp() + 4.0 * (-time / 2.0).exp();
        assert!((number - want).abs() < 1e-7, "{time}: {number} {want}");
    }
    let shared =
        Station { discipline: Discipline::Ps, ..queue("q", 1, 0.2).with_service_time(1, 0.5) };
    let closed = Class { before: Some(1.0), ..Class::closed("a", 4, 2.0) };
    let classes = vec![closed, Class::open("b", 0.6)];
    let own = delay("d", 1.0);
    let model = Model::new("m", classes, vec![shared, own]).unwrap();
    let solution = solved(&model).unwrap();
    let numbers: f64 = solution.classes.iter().map(|class| class.number).sum();
    let after = solution.settling.unwrap().number_mean.1;
    assert!((after / numbers - 1.0).abs() < 1e-8, "{after} {numbers}");
}

#[test]
fn what_is_no_chain_of_numbers_does_not_settle_here() {
    let refused = |text: &str| {
        let model: Model = toml::from_str(text).unwrap();
        solved(&model).unwrap_err().to_string()
    };
    let two = "classes = [{ name = 'a', population = 4, think_time_s = 1, population_before = 1 }, \
               { name = 'b', population = 2 }]\n";
    let text = refused(&format!(
        "{two}stations = [{{ name = 'q', service_time_s = 1, discipline = 'ps' }}]"
    ));
    assert!(text.contains("a think time of `b`"), "{text}");
    let two = two.replace("population = 2", "arrival_rate_per_s = 0.1");
    let text = refused(&format!("{two}stations = [{{ name = 'q', service_time_s = 1 }}]"));
    assert!(text.contains("`ps`"), "{text}");
    let text = refused(
        "population = 4\npopulation_before = 1\nthink_time_s = 1\nstations = [{ name = 'x', service_time_s = 1 }, \
         { name = 'y', service_time_s = 1 }]\npools = [{ name = 'p', tokens = 2, stations = ['x', 'y'] }, { name = \
         'r', tokens = 1, stations = ['y'] }]",
    );
    assert!(text.contains("shares no station"), "{text}");
    for (text, said) in [
        ("arrival_rate_per_s = 1\npopulation_before = 1", "arrival_rate_before_per_s"),
        ("population = 3\npopulation_before = 4\nthink_time_s = 1", "no more than"),
        (
            "arrival_rate_before_per_s = 1\nclasses = [{ name = 'a', population = 1 }, { name = 'b', population = 1 }]",
            "classes",
        ),
    ] {
        let text = format!("{text}\nstations = [{{ name = 'x', service_time_s = 0.1 }}]");
        let error = toml::from_str::<Model>(&text).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
