//! How the number in a network settles after a step.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kendall_queueing::model::{Class, Model, Station};
use kendall_queueing::solver::{Solution, SolveError, Solver, solve};

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
    model.rate_before = Some(2.0);
    let settling = solved(&model).unwrap().settling.unwrap();
    // E N(t) = 6·E[S] − (6 − 2)·∫ P(S > u) du from t on, with P(S > u) = 2·e^(−2u) − e^(−4u).
    for (time, number) in &settling.curve {
        let want = 4.5 - 4.0 * ((-2.0 * time).exp() - 0.25 * (-4.0 * time).exp());
        assert!((number - want).abs() < 1e-7, "{time}: {number} {want}");
    }
    let alone = |stations: Vec<Station>| {
        let mut model = Model::new("m", vec![Class::closed("c", 12, 5.0)], stations).unwrap();
        model.population_before = Some(4);
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
    model.population_before = Some(4);
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
    model.rate_before = Some(0.1);
    assert!(refused(&model).contains("100000 states"), "{}", refused(&model));
    model.rate_before = Some(1.2);
    assert!(refused(&model).contains("steady state"), "{}", refused(&model));
    let mut model = Model::new("m", vec![Class::closed("c", 900, 3.0)], stations()).unwrap();
    model.population_before = Some(1);
    assert!(refused(&model).contains("100000 states"), "{}", refused(&model));
    let mut model = Model::new("m", vec![Class::closed("c", 9, 0.0)], stations()).unwrap();
    model.population_before = Some(1);
    assert!(refused(&model).contains("exponential"), "{}", refused(&model));
}
