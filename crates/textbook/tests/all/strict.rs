//! A short form is used to its last key, or refused: none is answered as another model.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use kendall_textbook::{Answer, TextbookError, solve};
use toml::Table;

fn table(json: &str) -> Table {
    serde_json::from_str(json).unwrap()
}

fn refusal(json: &str) -> String {
    match solve(&table(json), &[]) {
        Ok(answer) => panic!("{json}: answered by {}", answer.solver),
        Err(error) => error.to_string(),
    }
}

fn answer(json: &str) -> Answer {
    solve(&table(json), &[]).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn number(answer: &Answer, name: &str) -> f64 {
    let output = answer.outputs.get(name).unwrap_or_else(|| panic!("no {name}"));
    output.0.numbers()[0]
}

/// Bounds of several classes were the asymptotic ones, whatever kind was asked for.
#[test]
fn bounds_of_several_classes_are_of_the_kind_that_was_asked_for() {
    let model = r#""population": [1, 1],
        "stations": [{"type": "queue", "service_demand_s": [1, 2]},
                     {"type": "queue", "service_demand_s": [3, 0]}]"#;
    let bounds = |kind: &str| {
        let answer = answer(&format!(r#"{{"kind": "{kind}", {model}}}"#));
        ["throughput_lower_by_class", "throughput_upper_by_class"]
            .map(|name| answer.outputs.get(name).unwrap().0.numbers()[0])
    };
    let [low, high] = bounds("asymptotic-bounds");
    assert!((low - 1.0 / 7.0).abs() < 1e-12 && (high - 0.25).abs() < 1e-12, "{low} {high}");
    // Exact for two customers: 1/(1·2 + 3).
    for bound in bounds("balanced-job-bounds") {
        assert!((bound - 0.2).abs() < 1e-12, "{bound}");
    }
    for kind in ["geometric-bounds", "proportional-bounds"] {
        let said = refusal(&format!(r#"{{"kind": "{kind}", {model}}}"#));
        assert!(said.contains("is for one class"), "{said}");
    }
}

/// The asymptotic lower bound of an open class was the balanced one, which could not be asked for.
#[test]
fn open_bounds_are_of_the_kind_that_was_asked_for() {
    let model = r#""arrival_rate_per_s": 0.3, "service_demand_s": [1, 2]"#;
    let one = |answer: &kendall_textbook::Answer, name: &str| {
        answer.outputs.get(name).map(|(output, _)| output.numbers()[0])
    };
    let near = |have: Option<f64>, wanted: f64| assert!((have.unwrap() - wanted).abs() < 1e-12);
    let asymptotic = answer(&format!(r#"{{"kind": "asymptotic-bounds", {model}}}"#));
    near(one(&asymptotic, "response_lower"), 3.0);
    near(one(&asymptotic, "throughput_upper"), 0.5);
    assert_eq!(one(&asymptotic, "response_upper"), None);
    let balanced = answer(&format!(r#"{{"kind": "balanced-job-bounds", {model}}}"#));
    near(one(&balanced, "response_lower"), 3.0 / (1.0 - 0.3 * 1.5));
    near(one(&balanced, "response_upper"), 3.0 / (1.0 - 0.3 * 2.0));
    let solved = answer(&format!(r#"{{"kind": "open-single-class", {model}}}"#));
    near(one(&solved, "aba_response_lower"), 3.0);
    near(one(&solved, "bjb_response_lower"), 3.0 / (1.0 - 0.3 * 1.5));
    for kind in ["geometric-bounds", "proportional-bounds"] {
        let said = refusal(&format!(r#"{{"kind": "{kind}", {model}}}"#));
        assert!(said.contains("is for a closed class"), "{said}");
    }
}

/// Each of these was answered once, as another model, and called exact.
#[test]
fn keys_of_other_kinds_and_misspelled_ones_are_refused() {
    let plain = r#""kind": "M/M/1", "arrival_rate_per_s": 8, "service_rate_per_s": 10"#;
    for (more, says) in [
        (r#""n": 7"#, "n: no such key"),
        (r#""k": 3"#, "k: no such key"),
        (r#""capcity": 6"#, "capcity: no such key"),
        (r#""capacity": 6"#, "capacity: no such key"),
        (r#""population": 6"#, "population: no such key"),
        (r#""servers": 2"#, "servers: no such key"),
        (r#""type": "tabel""#, "type: no such key"),
        (r#""preemtive": true"#, "preemtive: no such key"),
        (r#""service_scv": 4"#, "service_scv: no such key"),
        (r#""think_time_s": 4"#, "think_time_s: no such key"),
        (r#""service_time_s": 0.1"#, "write one of them"),
        (r#""lambda": 8"#, "lambda: no such key"),
        (r#""arrival_rate_per_min": 8"#, "says the same as `arrival_rate_per_s`"),
    ] {
        let said = refusal(&format!("{{ {plain}, {more} }}"));
        assert!(said.contains(says), "{more}: {said}");
    }
    assert!((number(&answer(&format!("{{ {plain} }}")), "mean_jobs") - 4.0).abs() < 1e-12);
    let said = refusal(
        r#"{ "kind": "M/M/1/K", "arrival_rate_per_s": 8, "service_rate_per_s": 10, "capcity": 6 }"#,
    );
    assert!(said.contains("did you mean `capacity`"), "{said}");
}

#[test]
fn a_shape_that_the_letter_does_not_have_is_refused() {
    for json in [
        r#"{ "kind": "M/D/1", "arrival_rate_per_s": 1, "service_time_s": 0.5, "service_scv": 1 }"#,
        r#"{ "kind": "M/E2/1", "arrival_rate_per_s": 1, "service_time_s": 0.5, "service_stages": 3 }"#,
        r#"{ "kind": "M/G/1", "arrival_rate_per_s": 1, "service_time_s": 0.5 }"#,
        r#"{ "kind": "M/G/1", "arrival_rate_per_s": 1, "service_time_s": 0.5, "service_scv": 1,
             "service_variance_s2": 1 }"#,
        r#"{ "kind": "M/G/1", "arrival_rate_per_s": 1, "service_time_s": 0.5,
             "service": { "distribution": "uniform", "low_s": 0, "high_s": 3 } }"#,
        r#"{ "kind": "M/G/1", "arrival_rate_per_s": 1,
             "service": { "distribution": "erlang", "mean_s": 0.5, "stages": 2, "scv": 2 } }"#,
        r#"{ "kind": "G/M/1", "arrival_rate_per_s": 1, "service_time_s": 0.5 }"#,
        r#"{ "kind": "M/G/1", "arrival_rate_per_s": 1, "service_time_s": 1e-3,
             "service_second_moment_s2": 1e-9 }"#,
    ] {
        refusal(json);
    }
}

/// A short form shows no stations.
#[test]
fn a_shape_of_branches_that_is_wrong_is_refused_by_its_own_key() {
    let said = refusal(
        r#"{ "kind": "fork-join", "arrival_rate_per_s": 1, "branches": 2,
             "service": { "distribution": "erlang", "mean_s": 0.5, "stages": 2, "scv": 2 } }"#,
    );
    assert!(said.contains("service") && !said.contains("stations"), "{said}");
}

#[test]
fn kinds_have_one_spelling_and_a_near_miss_names_it() {
    for (kind, meant) in [
        ("mm1", "M/M/1"),
        ("M/M/1 priority", "M/M/1-priority"),
        ("Erlang_B", "erlang-b"),
        ("closed-single-clas", "closed-single-class"),
    ] {
        let said = refusal(&format!("{{ \"kind\": \"{kind}\" }}"));
        assert!(said.contains(&format!("did you mean `{meant}`")), "{kind}: {said}");
    }
    assert!(matches!(solve(&table("{}"), &[]), Err(TextbookError::Key { .. })));
}

#[test]
fn a_class_or_a_value_that_nothing_uses_is_refused() {
    let classes = r#""kind": "closed-multi-class", "classes": [{ "name": "a", "population": 1 },
        { "name": "b", "population": 2 }]"#;
    for (stations, says) in [
        (r#"[{ "service_demand_s": { "a": 1, "bb": 2 } }]"#, "did you mean `b`"),
        (r#"[{ "service_demand_s": [1, 2, 3] }]"#, "3 entries for 2 classes"),
        (r#"[{ "service_demand_s": { "a": 1, "b": 2 }, "capacity": 3 }]"#, "capacity"),
        (r#"[{ "service_demand_s": { "a": 1, "b": 2 }, "needed": 1 }]"#, "branches"),
        (r#"[{ "service_demand_s": 1, "service_time_s": 2 }]"#, "write one of them"),
    ] {
        let said = refusal(&format!("{{ {classes}, \"stations\": {stations} }}"));
        assert!(said.contains(says), "{stations}: {said}");
    }
    let said = refusal(
        r#"{ "kind": "closed-single-class", "arrival_rate_per_s": 1,
             "stations": [{ "service_time_s": 0.1 }] }"#,
    );
    assert!(said.contains("arrival rate"), "{said}");
    let said = refusal(
        r#"{ "kind": "closed-single-class", "population": 2, "visits": [1, 2],
             "stations": [{ "service_time_s": 0.1 }] }"#,
    );
    assert!(said.contains("2 entries for 1 station"), "{said}");
}

/// Classes that are served first come, first served at different rates have no product form.
#[test]
fn first_come_first_served_with_different_rates_is_no_exact_answer() {
    let case = |discipline: &str| {
        answer(&format!(
            r#"{{ "kind": "closed-multi-class", "population": [2, 3], "stations": [
                {{ "service_time_s": [1, 3]{discipline} }}, {{ "service_time_s": [2, 2] }}] }}"#
        ))
    };
    assert_eq!(case("").accuracy, "exact");
    for approximation in ["schweitzer_…: ", "linearizer_…: "] {
        let of_it = |caveat: &String| caveat.starts_with(approximation) && caveat.contains('%');
        assert!(case("").caveats.iter().any(of_it), "{:?}", case("").caveats);
    }
    let fcfs = case(r#", "discipline": "fcfs""#);
    assert_eq!(fcfs.accuracy, "approximation");
    assert!(fcfs.caveats.iter().any(|caveat| caveat.contains("FCFS")), "{:?}", fcfs.caveats);
}

#[test]
fn nobody_arriving_is_an_answer_in_every_form() {
    for json in [
        r#"{ "kind": "M/M/1", "arrival_rate_per_s": 0, "service_rate_per_s": 10 }"#,
        r#"{ "kind": "M/G/1", "arrival_rate_per_s": 0, "service_time_s": 1, "service_scv": 2 }"#,
        r#"{ "kind": "D/M/2", "arrival_rate_per_s": 0, "service_time_s": 1 }"#,
        r#"{ "kind": "open-single-class", "arrival_rate_per_s": 0,
             "stations": [{ "service_time_s": 1 }] }"#,
    ] {
        let answer = answer(json);
        assert!(number(&answer, "utilization").abs() < 1e-15, "{json}");
        assert!(number(&answer, "mean_jobs").abs() < 1e-15, "{json}");
    }
}

/// The first factor changes fastest in both designs; the order is part of the answer.
#[test]
fn designs_without_a_stated_order_have_one_order() {
    let full = answer(
        r#"{ "kind": "2^k r factorial", "k": 3,
        "responses": [1, 2, 3, 4, 5, 6, 7, 8] }"#,
    );
    // A half fraction of four factors has the eight runs of the first three.
    let half = answer(
        r#"{ "kind": "2^(k-p) fractional", "k": 4, "generators": ["D=ABC"],
        "responses": [1, 2, 3, 4, 5, 6, 7, 8] }"#,
    );
    for (name, effect) in [("qA", 0.5), ("qB", 1.0), ("qC", 2.0)] {
        assert!((number(&full, name) - effect).abs() < 1e-12, "{name}");
        assert!((number(&half, name) - effect).abs() < 1e-12, "{name}");
    }
    for answer in [&full, &half] {
        let order = format!("{:?}", answer.outputs["run_order"]);
        assert!(order.contains("(-,-,-"), "{order}");
        assert!(order.contains("), (+,-,-"), "{order}");
    }
    let said = refusal(
        r#"{ "kind": "2^(k-p) fractional", "k": 4,
        "generators": { "D": "ABC" }, "responses": [1, 2, 3, 4, 5, 6, 7, 8] }"#,
    );
    assert!(said.contains("generators"), "{said}");
    let said = refusal(
        r#"{ "kind": "2^(k-p) fractional", "k": 3, "generators": ["C=AB"],
        "run_order": "(-,-,-), (+,-,-), (-,+,-), (+,+,+)", "responses": [1, 2, 3, 4] }"#,
    );
    assert!(said.contains("is not a run of the fraction"), "{said}");
}

#[test]
fn quantities_that_contradict_each_other_or_mean_nothing_are_refused() {
    let said = refusal(
        r#"{ "kind": "utilization-law", "throughput_per_s": 40,
        "service_time_s": 0.0225, "utilization": 0.5 }"#,
    );
    assert!(said.contains("contradict"), "{said}");
    let said = refusal(
        r#"{ "kind": "utilization-law", "throughput_per_s": 40,
        "service_time_s": 0.0225, "population": 5 }"#,
    );
    assert!(said.contains("nothing follows"), "{said}");
    let said = refusal(r#"{ "kind": "utilization-law", "throughput_per_s": 40 }"#);
    assert!(said.contains("too few") || said.contains("nothing follows"), "{said}");
}

#[test]
fn errors_name_the_key_as_it_is_written() {
    let said =
        refusal(r#"{ "kind": "M/M/1", "arrival_rate_per_min": "x", "service_rate_per_min": 10 }"#);
    assert!(said.starts_with("arrival_rate_per_min: "), "{said}");
    let said = refusal(
        r#"{ "kind": "M/M/m", "arrival_rate_per_s": 1, "service_rate_per_s": 10, "servers": 1.5 }"#,
    );
    assert!(said.starts_with("servers: "), "{said}");
}
