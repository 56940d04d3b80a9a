//! The worked cases of `public-model-cases.json`, each output at its own tolerance, and hostile
//! variations of their inputs.

use std::collections::BTreeMap;

use kendall_queueing::case::solve;
use kendall_queueing::model::value::Value;
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    model: Value,
    outputs: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Expected {
    value: Value,
    unit: String,
    rel_tol: f64,
}

fn cases() -> Vec<Case> {
    let text = include_str!("public-model-cases.json");
    serde_json::from_str::<File>(text).expect("the file of this folder").cases
}

fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(number) => vec![*number],
        Value::List(list) => list.iter().flat_map(flat).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn every_worked_case_is_met_at_its_tolerance() {
    let mut failures = Vec::new();
    let mut met = 0;
    for case in cases() {
        let text = case.model.table().and_then(|t| t.get("kind")).and_then(Value::text);
        // A factorial design is no queueing model: `kendall-stats` holds that case.
        if text == Some("2^k r factorial") {
            continue;
        }
        let wanted: Vec<String> = case.outputs.keys().cloned().collect();
        let answer = match solve(&case.model, &wanted) {
            Ok(answer) => answer,
            Err(error) => {
                failures.push(format!("{}: {error}", case.id));
                continue;
            }
        };
        for (name, expected) in &case.outputs {
            let Some((output, unit)) = answer.outputs.get(name) else {
                failures.push(format!("{}: no {name}", case.id));
                continue;
            };
            let (have, want) = (output.numbers(), flat(&expected.value));
            let near = have.len() == want.len()
                && have.iter().zip(&want).all(|(a, b)| (a - b).abs() <= expected.rel_tol * b.abs());
            if !near || *unit != expected.unit {
                failures.push(format!("{}: {name} {have:?} {unit} for {want:?}", case.id));
            }
        }
        met += 1;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(met, 16);
}

/// Every number of every case, in turn, becomes something that no model should hold.
#[test]
fn no_hostile_number_makes_a_case_panic() {
    let hostile = [f64::NAN, f64::INFINITY, -1.0, 0.0, 0.5, 1e300, 1e-300, 9e15];
    for case in cases() {
        let wanted: Vec<String> = case.outputs.keys().cloned().collect();
        let count = count(&case.model);
        for at in 0..count {
            for value in hostile {
                let mut left = at;
                let model = replaced(&case.model, &mut left, value);
                if let Ok(answer) = solve(&model, &wanted) {
                    assert!(!answer.outputs.is_empty(), "{}", case.id);
                }
            }
        }
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Number(_) => 1,
        Value::List(list) => list.iter().map(count).sum(),
        Value::Table(table) => table.values().map(count).sum(),
        _ => 0,
    }
}

fn replaced(value: &Value, left: &mut usize, by: f64) -> Value {
    match value {
        Value::Number(number) => {
            let here = *left == 0;
            *left = left.wrapping_sub(1);
            Value::Number(if here { by } else { *number })
        }
        Value::List(list) => Value::List(list.iter().map(|v| replaced(v, left, by)).collect()),
        Value::Table(table) => {
            Value::Table(table.iter().map(|(k, v)| (k.clone(), replaced(v, left, by))).collect())
        }
        other => other.clone(),
    }
}
