//! Every number of every ready-made model becomes, in turn, something that no model should hold:
//! the model is refused or solved, and nothing panics, hangs or eats the memory.

use kendall_queueing::Model;
use kendall_queueing::simulation::{Settings, simulate};
use kendall_queueing::solver::{Solver, solve};
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_oneof, proptest};
use proptest::strategy::{Just, Strategy};
use serde_json::{Value, json};

const HOSTILE: [f64; 12] =
    [-1.0, 0.0, 0.5, 1e-308, 1e-30, 1e15, 9e15, 1e30, 1e300, f64::MAX, -f64::MAX, 3.0];

fn ready_made() -> Vec<(String, Value)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/models");
    std::fs::read_dir(folder)
        .expect("the folder of the ready-made models")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let text = std::fs::read_to_string(&path).ok()?;
            let mut value =
                serde_json::to_value(toml::from_str::<toml::Value>(&text).ok()?).ok()?;
            unswept(&mut value);
            Some((path.display().to_string(), value))
        })
        .collect()
}

/// A sweep becomes its first value.
fn unswept(value: &mut Value) {
    match value {
        Value::Object(table) if table.contains_key("from") && table.contains_key("step") => {
            let first = table["from"].clone();
            *value = first;
        }
        Value::Object(table) => table.values_mut().for_each(unswept),
        Value::Array(list) => list.iter_mut().for_each(unswept),
        _ => {}
    }
}

fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(table) => {
            table.iter().for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), found));
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, v)| leaves(v, &format!("{path}/{i}"), found));
        }
        _ => found.push(path.to_owned()),
    }
}

/// Solves by everything; errors must say something.
fn tried(value: &Value) {
    let model: Model = match serde_json::from_value(value.clone()) {
        Ok(model) => model,
        Err(error) => return assert!(error.to_string().len() > 10, "{error}"),
    };
    for (_, solver) in Solver::ALL {
        if solver == Solver::Simulation {
            continue;
        }
        match solve(&model, solver) {
            Ok(solution) => {
                for class in &solution.classes {
                    assert!(class.throughput.is_finite() && class.throughput >= 0.0, "{value}");
                    assert!(!class.system_response.is_nan(), "{value}");
                }
            }
            Err(error) => assert!(error.to_string().len() > 10, "{error}"),
        }
    }
    let settings = Settings {
        most_customers: 500,
        most_present: 20_000,
        replications: 2,
        ..Settings::of(&model)
    };
    if let Err(error) = simulate(&model, &settings, &mut |_| {}) {
        assert!(error.to_string().len() > 10, "{error}");
    }
}

#[test]
fn no_hostile_number_in_a_model_panics() {
    let models = ready_made();
    assert!(models.len() >= 14);
    for (_, model) in models {
        let mut paths = Vec::new();
        leaves(&model, "", &mut paths);
        for path in paths {
            for number in HOSTILE {
                let mut changed = model.clone();
                *changed.pointer_mut(&path).expect("a leaf") = json!(number);
                tried(&changed);
            }
            for other in [json!("what"), json!(null), json!([]), json!({}), json!([1, "a"])] {
                let mut changed = model.clone();
                *changed.pointer_mut(&path).expect("a leaf") = other;
                tried(&changed);
            }
        }
    }
}

/// Models of every kind, whole and with keys cut or changed, by every solver; the same each time.
#[test]
fn no_random_model_of_any_kind_breaks_a_solver() {
    let mut state = 26_u64;
    for index in 0..number_of("KENDALL_RANDOM_MODELS", 300) {
        let bytes: Vec<u8> = (0..160)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes()[0]
            })
            .collect();
        let tried = std::panic::catch_unwind(|| crate::every_solver::every_solver(&bytes));
        let model = crate::every_solver::model(&bytes);
        assert!(tried.is_ok(), "model {index}, {bytes:?}\n{model}");
    }
}

fn number_of(name: &str, usual: u32) -> u32 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![prop::sample::select(HOSTILE.to_vec()), 0.01..10.0_f64, any::<f64>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_model_of_random_numbers_panics(
        n in number(), z in number(), rate in number(),
        stations in prop::collection::vec((number(), number(), number(), 0..8_usize), 1..4),
        open in any::<bool>(), tokens in prop_oneof![Just(None), number().prop_map(Some)],
    ) {
        let disciplines =
            ["fcfs", "ps", "lcfs", "lcfs-pr", "siro", "is", "priority", "priority-preemptive"];
        let list: Vec<Value> = stations.iter().enumerate().map(|(k, (s, m, v, d))| json!({
            "name": format!("s{k}"), "service_time_s": s, "servers": m, "visits": v,
            "discipline": disciplines[*d],
        })).collect();
        let mut model = json!({ "name": "random", "stations": list });
        if open {
            model["arrival_rate_per_s"] = json!(rate);
        } else {
            model["population"] = json!(n);
            model["think_time_s"] = json!(z);
        }
        if let Some(tokens) = tokens {
            model["pools"] = json!([{ "name": "p", "tokens": tokens, "stations": ["s0"] }]);
        }
        tried(&model);
        prop_assert!(true);
    }

    /// Any text is a model, or refused.
    #[test]
    fn no_text_panics(text in "[\\[\\]{}=\",.:a-z0-9_ \n-]{0,200}") {
        drop(toml::from_str::<Model>(&text));
        drop(serde_json::from_str::<Model>(&text));
    }
}

/// A customer that comes home in a class without a way in has nowhere to go: the simulator ended the program.
#[test]
fn a_class_in_which_customers_return_needs_a_way_in() {
    let model = |entry: Value| {
        let mut routes = vec![
            json!({"class": "a", "from": "s", "to": {"out": 1}}),
            json!({"class": "b", "from": "in", "to": {"s:a": 1}}),
        ];
        routes.extend(entry.is_object().then_some(entry));
        serde_json::from_value::<Model>(json!({
            "stations": [{"name": "s", "service_time_s": 0.2}],
            "classes": [
                {"name": "a", "population": 1, "think_time_s": 1},
                {"name": "b", "population": 1}
            ],
            "routes": routes
        }))
    };
    let refused = model(Value::Null).unwrap_err().to_string();
    assert!(refused.contains("a route from `in` for class `a`"), "{refused}");
    assert!(model(json!({"class": "a", "from": "in", "to": {"s": 1}})).is_ok());
}
