//! Forks whose branches are other stations: against a published formula, Markov chains, and times that are sure.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kendall_queueing::model::Model;
use kendall_queueing::solver::{Solver, solve};

use crate::independent::chain;
use crate::routing::{covers, response};

fn model(head: &str, stations: &str, routes: &str) -> Model {
    let text = format!("{head}\nstations = [{stations}]\nroutes = [{routes}]");
    toml::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// [NT88]: two equal M/M/1 branches take (12 − ρ)/8 times what one takes.
#[test]
fn two_equal_stations_are_the_formula_of_nelson_and_tantawi() {
    for rate in [0.3_f64, 0.8] {
        let model = model(
            &format!("arrival_rate_per_s = {rate}"),
            "{ name = 'a', service_time_s = 1 }, { name = 'b', service_time_s = 1 }, { name = 'both', \
             branches = ['a', 'b'] }",
            "{ from = 'in', to = { both = 1 } }, { from = 'a', to = { both = 1 } }, { from = 'b', to = { \
             both = 1 } }, { from = 'both', to = { out = 1 } }",
        );
        covers(response(&model, 0.01), (12.0 - rate) / 8.0 / (1.0 - rate));
        let error = solve(&model, Solver::Auto).unwrap_err().to_string();
        assert!(error.contains("simulation") && error.contains("both"), "{error}");
    }
}

/// Three parts for one server are M/E₃/1: λE[B²]/(2(1 − ρ)) + E[B] for the last of them.
#[test]
fn several_parts_for_one_station_are_served_one_after_the_other() {
    let model = model(
        "arrival_rate_per_s = 0.2",
        "{ name = 'a', service_time_s = 1 }, { name = 'all', branches = ['a', 'a', 'a'] }",
        "{ from = 'in', to = { all = 1 } }, { from = 'a', to = { all = 1 } }, { from = 'all', to = { out = 1 } }",
    );
    covers(response(&model, 0.01), 6.0);
    assert!((model.visits().unwrap()[0][0] - 3.0).abs() < 1e-9);
}

/// Clients in a closed model; one branch is two stations, the other a slower one. Stations keep the order, so
/// that of those in the fork as many are not done as the longer branch holds.
#[test]
fn unequal_branches_of_a_closed_model_are_the_markov_chain() {
    let clients = 4_u32;
    let states = chain((0_u32, 0_u32, 0_u32), |&(a, b, c)| {
        let mut next = Vec::new();
        if clients > (a + b).max(c) {
            next.push(((a + 1, b, c + 1), 1.0));
        }
        if a > 0 {
            next.push(((a - 1, b + 1, c), 2.0));
        }
        if b > 0 {
            next.push(((a, b - 1, c), 4.0));
        }
        if c > 0 {
            next.push(((a, b, c - 1), 1.0 / 0.7));
        }
        next
    });
    let throughput = states.mean(|s| f64::from(u8::from(clients > (s.0 + s.1).max(s.2))));
    let model = model(
        "population = 4",
        "{ name = 'cpu', service_time_s = 1 }, { name = 'a', service_time_s = 0.5 }, { name = 'b', \
         service_time_s = 0.25 }, { name = 'c', service_time_s = 0.7 }, { name = 'both', branches = ['a', 'c'] }",
        "{ from = 'in', to = { cpu = 1 } }, { from = 'cpu', to = { both = 1 } }, { from = 'a', to = { b = 1 } \
         }, { from = 'b', to = { both = 1 } }, { from = 'c', to = { both = 1 } }, { from = 'both', to = { out \
         = 1 } }",
    );
    covers(response(&model, 0.005), f64::from(clients) / throughput);
    let visits: Vec<f64> = model.visits().unwrap().into_iter().flatten().collect();
    assert!(visits.iter().all(|v| (v - 1.0).abs() < 1e-9), "{visits:?}");
}

/// One of two is waited for: the other goes on for itself, and is cut off at 60.
#[test]
fn the_first_of_two_branches_is_the_markov_chain() {
    let states = chain((0_u32, 0_u32), |&(a, b)| {
        let mut next = Vec::new();
        if 2 > a.min(b) && a < 60 && b < 60 {
            next.push(((a + 1, b + 1), 1.0));
        }
        if a > 0 {
            next.push(((a - 1, b), 1.6));
        }
        if b > 0 {
            next.push(((a, b - 1), 1.25));
        }
        next
    });
    let throughput = states.mean(|s| f64::from(u8::from(2 > s.0.min(s.1))));
    let model = model(
        "population = 2",
        "{ name = 'cpu', service_time_s = 1 }, { name = 'a', service_rate_per_s = 1.6 }, { name = 'b', \
         service_rate_per_s = 1.25 }, { name = 'first', branches = ['a', 'b'], needed = 1 }",
        "{ from = 'in', to = { cpu = 1 } }, { from = 'cpu', to = { first = 1 } }, { from = 'a', to = { first \
         = 1 } }, { from = 'b', to = { first = 1 } }, { from = 'first', to = { out = 1 } }",
    );
    covers(response(&model, 0.005), 2.0 / throughput);
}

/// Sure times: 3 s beside (1 s beside 2 s) and 0.5 s; as another class for a part; a pool that holds it all.
#[test]
fn forks_inside_of_forks_take_their_longest_branch() {
    let time = |name: &str, s: f64| {
        format!(
            "{{ name = '{name}', type = 'delay', service = {{ distribution = 'deterministic', mean_s = {s} }} }}"
        )
    };
    let delays = [time("long", 3.0), time("a", 1.0), time("b", 2.0), time("after", 0.5)].join(", ");
    for (needed, want) in [(2, 3.0), (1, 2.5)] {
        let stations = format!(
            "{delays}, {{ name = 'outer', branches = ['long', 'inner'], needed = {needed} }}, {{ name = \
             'inner', branches = ['a', 'b'] }}"
        );
        let routes = "{ class = 'c', from = 'in', to = { outer = 1 } }, { class = 'c', from = 'long', to = { \
                      outer = 1 } }, { class = 'c', from = 'a', to = { inner = 1 } }, { class = 'c', from = \
                      'b', to = { inner = 1 } }, { class = 'c', from = 'inner', to = { 'after:part' = 1 } }, \
                      { class = 'part', from = 'after', to = { 'outer:c' = 1 } }, { class = 'c', from = \
                      'outer', to = { out = 1 } }";
        let head = "classes = [{ name = 'c', arrival_rate_per_s = 0.1 }, { name = 'part', arrival_rate_per_s \
                    = 0 }]\npools = [{ name = 'p', tokens = 1000, stations = ['outer'], classes = ['c'] }]";
        let have = response(&model(head, &stations, routes), 0.05);
        assert!((have.center - want).abs() < 1e-9, "{have:?} for {want}");
    }
}

/// Visits with choices inside of a branch, and what is busy by them.
#[test]
fn what_branches_visit_is_what_is_busy() {
    let model = model(
        "population = 3\nthink_time_s = 1",
        "{ name = 'a', service_time_s = 0.2 }, { name = 'b', service_time_s = 0.1 }, { name = 'c', \
         service_time_s = 0.3 }, { name = 'both', branches = ['a', 'c'] }",
        "{ from = 'in', to = { both = 1 } }, { from = 'a', to = { b = 0.75, both = 0.25 } }, { from = 'b', to \
         = { a = 1 } }, { from = 'c', to = { both = 1 } }, { from = 'both', to = { both = 0.5, out = 0.5 } }",
    );
    let visits: Vec<f64> = model.visits().unwrap().into_iter().flatten().collect();
    for (have, want) in visits.iter().zip([8.0, 6.0, 2.0, 2.0]) {
        assert!((have - want).abs() < 1e-9, "{visits:?}");
    }
    let settings = kendall_queueing::simulation::Settings::of(&model);
    let found = kendall_queueing::simulation::simulate(&model, &settings, &mut |_| {}).unwrap();
    let rate = found.classes[0].throughput_per_s.unwrap().center;
    for (station, demand) in found.stations.iter().zip([1.6, 0.6, 0.6]) {
        let busy = station.utilization.unwrap().center;
        assert!((busy / (rate * demand) - 1.0).abs() < 0.03, "{busy} of {rate} times {demand}");
    }
    let [both, a] = [3, 0].map(|at| found.stations[at].number_mean.unwrap().center);
    assert!(both > a && both < 3.0, "{both}, {a}");
}

#[test]
fn forks_that_make_no_sense_are_refused() {
    let plain = "{ name = 'a', service_time_s = 1 }, { name = 'b', service_time_s = 1 }, ";
    let back = "{ from = 'in', to = { f = 1 } }, { from = 'a', to = { f = 1 } }, { from = 'b', to = { f = 1 } \
                }, { from = 'f', to = { out = 1 } }";
    let fork = "{ name = 'f', branches = ['a', 'b'] }";
    let second = "{ name = 'f', branches = ['a', 'b'] }, { name = 'g', branches = ['b'] }";
    let gates = "{ from = 'in', to = { g = 1 } }, { from = 'g', to = { f = 1 } }, { from = 'a', to = { f = 1 \
                 } }, { from = 'b', to = { f = 1 } }, { from = 'f', to = { out = 1 } }";
    for (stations, routes, expected) in [
        ("{ name = 'f', branches = ['a', 'c'] }", back, "`c`"),
        ("{ name = 'f', branches = ['a', 'f'] }", back, "other stations"),
        ("{ name = 'f', branches = [] }", back, "branches"),
        ("{ name = 'f', branches = ['a', 3] }", back, "branches"),
        ("{ name = 'f', branches = ['a', 'b'], needed = 3 }", back, "needed"),
        ("{ name = 'f', branches = ['a', 'b'], service_time_s = 1 }", back, "service_time_s"),
        ("{ name = 'f', branches = ['a', 'b'], discipline = 'ps' }", back, "discipline"),
        (fork, &back.replace("'b', to = { f", "'b', to = { out"), "lead back to it"),
        (fork, &back.replace("in', to = { f", "in', to = { a"), "lead back to it"),
        (fork, &back.replace("'f', to = { out = 1", "'f', to = { out = 0.5, b = 0.5"), "lead back"),
        (fork, &back.replace("'b', to = { f", "'b', to = { b"), "never leaves"),
        (second, gates, "lead back"),
    ] {
        let text =
            format!("arrival_rate_per_s = 1\nstations = [{plain}{stations}]\nroutes = [{routes}]");
        let error = toml::from_str::<Model>(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let text = format!("arrival_rate_per_s = 1\nstations = [{plain}{fork}]");
    let error = toml::from_str::<Model>(&text).unwrap_err().to_string();
    assert!(error.contains("routes"), "{error}");
    // Each inside of the other.
    let text = "arrival_rate_per_s = 1\nstations = [{ name = 'f', branches = ['g'] }, { name = 'g', branches = \
                ['f'] }]\nroutes = [{ from = 'in', to = { f = 1 } }, { from = 'f', to = { out = 0.5, g = 0.5 } \
                }, { from = 'g', to = { f = 1 } }]";
    toml::from_str::<Model>(text).unwrap_err();
    // What the simulator does not do inside.
    for (more, expected) in [
        ("pools = [{ name = 'p', tokens = 1, stations = ['a'] }]", "inside of a fork"),
        ("", "blocking"),
    ] {
        let stations = if more.is_empty() {
            plain.replacen(
                "service_time_s = 1",
                "capacity = 2, when_full = 'block-after-service', service_time_s = 1",
                1,
            )
        } else {
            plain.to_owned()
        };
        let text = format!(
            "arrival_rate_per_s = 0.1\nstations = [{stations}{fork}]\nroutes = [{back}]\n{more}"
        );
        let model: Model = toml::from_str(&text).unwrap();
        let settings = kendall_queueing::simulation::Settings::of(&model);
        let error = kendall_queueing::simulation::simulate(&model, &settings, &mut |_| {});
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
