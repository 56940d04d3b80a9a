//! Routing by the state: simulated, against a Markov chain, against queues behind every n-th arrival, and
//! against the mean field.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kendall_queueing::Distribution;
use kendall_queueing::model::Model;
use kendall_queueing::simulation::{Measured, Settings, simulate};
use kendall_queueing::solver::{Solver, solve};
use kendall_queueing::station::gm1;

use crate::independent::two_queues;

/// `count` equal single servers of rate 1 with `rate` each, and how an arrival chooses among them.
fn balanced(count: u32, rate: f64, choose: &str) -> Model {
    let stations: Vec<String> =
        (0..count).map(|i| format!("{{ name = 's{i}', service_time_s = 1.0 }}")).collect();
    let to: Vec<String> =
        (0..count).map(|i| format!("s{i} = {}", 1.0 / f64::from(count))).collect();
    let out: Vec<String> =
        (0..count).map(|i| format!("{{ from = 's{i}', to = {{ out = 1 }} }}")).collect();
    let text = format!(
        "arrival_rate_per_s = {}\nstations = [{}]\nroutes = [{{ from = 'in', to = {{ {} }}, {choose} \
         }}, {}]",
        f64::from(count) * rate,
        stations.join(", "),
        to.join(", "),
        out.join(", ")
    );
    toml::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn response(model: &Model, width: f64) -> Measured {
    let settings = Settings {
        confidence: 0.999,
        relative_half_width: width,
        most_customers: 4_000_000,
        ..Settings::of(model)
    };
    simulate(model, &settings, &mut |_| {}).unwrap().classes[0].response_time_mean_s.unwrap()
}

#[track_caller]
#[expect(clippy::print_stdout, reason = "the figures say how close formula and simulation are")]
pub(crate) fn covers(have: Measured, want: f64) {
    println!("{have:?} for {want}: {:+.4}", have.center / want - 1.0);
    assert!(have.covers(want), "{have:?} for {want}");
}

/// Two queues, cut off at 37 customers each.
#[test]
fn the_shorter_of_two_queues_is_the_markov_chain() {
    for rate in [0.5, 0.8] {
        let joins = |a: u32, b: u32| if a < b { 1.0 } else { f64::from(u8::from(a == b)) / 2.0 };
        let arrivals = |a, b| [joins(a, b), joins(b, a)].map(|share| 2.0 * rate * share);
        let states = two_queues(37, arrivals, |_, _| [1.0, 1.0]);
        let number = states.mean(|s| f64::from(s.0 + s.1));
        let model = balanced(2, rate, "choose = 'shortest-queue'");
        covers(response(&model, 0.01), number / (2.0 * rate));
    }
}

/// Every third arrival: Erlang gaps of three stages at each.
#[test]
fn each_in_turn_has_erlang_gaps() {
    for rate in [0.5, 0.85] {
        let gaps = Distribution::erlang(3, 1.0 / rate).unwrap();
        let want = gm1(&gaps, 1.0).unwrap().response_time.mean;
        covers(response(&balanced(3, rate, "choose = 'round-robin'"), 0.01), want);
    }
}

/// Vvedenskaya, Dobrushin, Karpelevich 1996; Mitzenmacher 2001: of endlessly many queues the share with k
/// customers or more is ρ^((dᵏ − 1)/(d − 1)); one choice is M/M/1. Of 100 queues it is that to a few per cent.
#[test]
fn two_choices_of_many_queues_are_the_mean_field() {
    for (rate, choices) in [(0.5, 2_i32), (0.9, 2), (0.9, 5)] {
        let d = f64::from(choices);
        let share = |k: i32| f64::powf(rate, (d.powi(k) - 1.0) / (d - 1.0));
        let field = (1..40).map(share).sum::<f64>() / rate;
        let rule = format!("choose = 'shortest-queue', choices = {choices}");
        let have = response(&balanced(100, rate, &rule), 0.005);
        println!("{choices} choices at {rate}: {have:?}, mean field {field}");
        assert!((have.center / field - 1.0).abs() < 0.04, "{have:?} for {field}");
    }
    let one = response(&balanced(4, 0.8, "choose = 'shortest-queue', choices = 1"), 0.02);
    covers(one, 5.0);
}

/// Two servers, one twice as fast, by the shortest expected delay: a Markov chain, cut off at 37.
#[test]
fn weighted_queues_are_the_markov_chain() {
    let arrivals = |a, b| {
        let (first, second) = (f64::from(a + 1) / 2.0, f64::from(b + 1));
        let share = if first < second { 1.0 } else { f64::from(u8::from(first <= second)) / 2.0 };
        [2.2 * share, 2.2 * (1.0 - share)]
    };
    let states = two_queues(37, arrivals, |_, _| [2.0, 1.0]);
    let number = states.mean(|s| f64::from(s.0 + s.1));
    let text = "arrival_rate_per_s = 2.2\nstations = [{ name = 'a', service_rate_per_s = 2 }, { name = 'b', \
                service_rate_per_s = 1 }]\nroutes = [{ from = 'in', to = { a = 0.6666666666666666, b = \
                0.3333333333333333 }, choose = 'shortest-queue' }, { from = 'a', to = { out = 1 } }, { from = \
                'b', to = { out = 1 } }]";
    covers(response(&toml::from_str(text).unwrap(), 0.01), number / 2.2);
}

/// [Towsley80]: probabilities that are linear in the numbers keep the product form. Five clients who think for
/// 2 s, and two servers, each less likely the more are there.
#[test]
fn linear_factors_keep_the_product_form_of_towsley() {
    let text = "population = 5\nthink_time_s = 2\nstations = [{ name = 'a', service_time_s = 1 }, { name = \
                'b', service_time_s = 0.5 }]\nroutes = [{ from = 'in', to = { a = 0.5, b = 0.5 }, choose = \
                'by-number', factors = { a = [6, 5, 4, 3, 2, 1], b = [8, 7, 6, 5, 4, 3] } }, { from = 'a', \
                to = { out = 1 } }, { from = 'b', to = { out = 1 } }]";
    let (mut all, mut thinking) = (0.0, 0.0);
    for a in 0..=5_u32 {
        for b in 0..=5 - a {
            let entered = (0..a + b).map(|n| f64::from(5 - n) / 2.0 / f64::from(14 - n));
            let first = (0..a).map(|n| f64::from(6 - n));
            let second = (0..b).map(|n| f64::from(8 - n) / 2.0);
            let weight: f64 = entered.chain(first).chain(second).product();
            all += weight;
            thinking += weight * f64::from(5 - a - b);
        }
    }
    let thinking = thinking / all;
    covers(response(&toml::from_str(text).unwrap(), 0.005), (5.0 - thinking) / (thinking / 2.0));
}

/// One server that takes two, another for what is over; and where neither is to be had, either.
#[test]
fn factors_of_the_numbers_are_the_markov_chain() {
    for (of_a, of_b) in [([1.0, 1.0, 0.0], [0.001; 3]), ([1.0, 0.5, 0.0], [1.0, 0.0, 0.0])] {
        let arrivals = |a: u32, b: u32| {
            let factor = |list: &[f64; 3], n: u32| list[n.min(2) as usize];
            let (a_now, b_now) = (factor(&of_a, a), factor(&of_b, b));
            let sum = a_now + b_now;
            let share = |own: f64| if sum > 0.0 { own / sum } else { 0.5 };
            [1.2 * share(a_now), 1.2 * share(b_now)]
        };
        let states = two_queues(37, arrivals, |_, _| [1.0, 1.0]);
        let number = states.mean(|s| f64::from(s.0 + s.1));
        let rule = format!("choose = 'by-number', factors = {{ s0 = {of_a:?}, s1 = {of_b:?} }}");
        covers(response(&balanced(2, 0.6, &rule), 0.01), number / 1.2);
    }
}

#[test]
fn choices_need_stations_alike_and_the_simulator() {
    let model = balanced(3, 0.5, "choose = 'shortest-queue'");
    let error = solve(&model, Solver::Auto).unwrap_err().to_string();
    assert!(error.contains("simulation"), "{error}");
    let routes = |to: &str, more: &str| {
        let text = format!(
            "arrival_rate_per_s = 1\nstations = [{{ name = 'a', service_time_s = 0.1 }}, {{ name = \
             'b', service_time_s = 0.1 }}]\nroutes = [{{ from = 'in', to = {to}, {more} }}, {{ from = \
             'a', to = {{ out = 1 }} }}, {{ from = 'b', to = {{ out = 1 }} }}]"
        );
        toml::from_str::<Model>(&text).map_err(|error| error.to_string())
    };
    for (to, more) in [
        ("{ a = 0.4, b = 0.6 }", "choose = 'round-robin'"),
        ("{ a = 1 }", "choose = 'round-robin'"),
        ("{ a = 0, b = 1 }", "choose = 'shortest-queue'"),
        ("{ a = 0.5, b = 0.5 }", "choices = 2"),
        ("{ a = 0.5, b = 0.5 }", "choose = 'shortest-queue', choices = 0"),
        ("{ a = 0.5, b = 0.5 }", "choose = 'shortest'"),
        ("{ a = 0.5, out = 0.5 }", "choose = 'shortest-queue'"),
        ("{ a = 0.5, b = 0.5 }", "choose = 'by-number'"),
        ("{ a = 0.5, b = 0.5 }", "factors = { a = [1] }"),
        ("{ a = 0.5, out = 0.5 }", "choose = 'by-number', factors = { a = [1] }"),
        ("{ a = 0.5, b = 0.5 }", "choose = 'by-number', factors = { a = [] }"),
        ("{ a = 0.5, b = 0.5 }", "choose = 'by-number', factors = { a = [-1] }"),
        ("{ a = 0.5, b = 0.5 }", "choose = 'by-number', factors = { a = 'much' }"),
        ("{ a = 0.5, b = 0.5 }", "choose = 'by-number', factors = { c = [1] }"),
    ] {
        let error = routes(to, more).unwrap_err();
        assert!(error.contains("routes"), "{error}");
    }
    // Unequal servers, of which the slower would be overloaded by half of the arrivals.
    let text = "arrival_rate_per_s = 1.5\nstations = [{ name = 'a', service_time_s = 0.5 }, { name = 'b', \
                service_time_s = 2 }]\nroutes = [{ from = 'in', to = { a = 0.5, b = 0.5 }, choose = \
                'shortest-queue' }, { from = 'a', to = { out = 1 } }, { from = 'b', to = { out = 1 } }]";
    let model: Model = toml::from_str(text).unwrap();
    assert!(response(&model, 0.05).center < 5.0);
    // Closed, with think time, and from a station.
    let closed = "population = 4\nthink_time_s = 1\nstations = [{ name = 'a', service_time_s = 0.5 }, { \
                  name = 'b', service_time_s = 0.5 }]\nroutes = [{ from = 'in', to = { a = 0.5, b = 0.5 \
                  }, choose = 'round-robin' }, { from = 'a', to = { out = 1 } }, { from = 'b', to = { out = \
                  1 } }]";
    let model: Model = toml::from_str(closed).unwrap();
    let random: Model = toml::from_str(&closed.replace(", choose = 'round-robin'", "")).unwrap();
    assert!(response(&model, 0.01).center < response(&random, 0.01).center);
}

/// Percentiles of the response on ways that do not overtake, beside a simulation: two servers where
/// customers enter, a database or a cache behind them, two servers where the former leave.
#[test]
fn percentiles_of_ways_are_those_of_a_simulation() {
    let stations = "stations = [{ name = 'web', servers = 2, service_time_s = 0.5 },
        { name = 'cache', service_time_s = 0.2 }, { name = 'database', service_time_s = 0.6 },
        { name = 'disk', servers = 2, service_time_s = 1.0 }]\npercentiles = [50, 95]\n";
    let routes = "routes = [{ from = 'in', to = { web = 1 } },
        { from = 'web', to = { cache = 0.6, database = 0.4 } }, { from = 'cache', to = { out = 1 } },
        { from = 'database', to = { disk = 1 } }, { from = 'disk', to = { out = 1 } }]";
    let text = format!("arrival_rate_per_s = 2.5\n{stations}{routes}");
    let model: Model = toml::from_str(&text).unwrap();
    let solution = solve(&model, Solver::Auto).unwrap();
    let settings = Settings {
        confidence: 0.999,
        relative_half_width: 0.01,
        most_customers: 1_000_000,
        ..Settings::of(&model)
    };
    let truth = simulate(&model, &settings, &mut |_| {}).unwrap();
    let truth = &truth.classes[0].response_time_quantiles_s;
    assert_eq!(solution.response_quantiles.len(), 2);
    for ((_, time), (quantile, found)) in solution.response_quantiles.iter().zip(truth) {
        let half = found.half_width.unwrap();
        assert!((time - found.center).abs() < half, "{quantile}: {time} beside {found:?}");
    }
    // A second way around the database, or several servers between others: only a simulation knows.
    for (from, to) in [
        (
            "web', to = { cache = 0.6, database = 0.4 }",
            "web', to = { cache = 0.3, disk = 0.3, database = 0.4 }",
        ),
        ("'database', service", "'database', servers = 2, service"),
        ("'disk', to = { out = 1 }", "'disk', to = { out = 0.9, web = 0.1 }"),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text);
        let model: Model = toml::from_str(&changed).unwrap();
        assert!(solve(&model, Solver::Auto).unwrap().response_quantiles.is_empty(), "{changed}");
    }
}

/// Beyond what the stations can do, a simulation is given up before it holds a gigabyte of customers.
#[test]
fn an_overloaded_simulation_is_given_up_in_time() {
    let settings = Settings::of(&balanced(2, 1e5, "choose = 'shortest-queue'"));
    assert!(settings.most_present <= 8_000_000 / settings.replications, "{settings:?}");
}
