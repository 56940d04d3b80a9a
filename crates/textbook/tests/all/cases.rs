//! The worked cases of `public-model-cases.json`, each output at its own tolerance, and hostile
//! variations of their inputs.

use std::collections::BTreeMap;

use kendall_textbook::solve;
use serde::Deserialize;
use toml::{Table, Value};

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    model: Table,
    outputs: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Expected {
    value: Value,
    unit: String,
    rel_tol: f64,
}

fn cases() -> Vec<Case> {
    let text = include_str!("../public-model-cases.json");
    serde_json::from_str::<File>(text).expect("the file of this folder").cases
}

fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Integer(number) => vec![f64::from(i32::try_from(*number).expect("a small number"))],
        Value::Float(number) => vec![*number],
        Value::Array(list) => list.iter().flat_map(flat).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn every_worked_case_is_met_at_its_tolerance() {
    let mut failures = Vec::new();
    let mut met = 0;
    for case in cases() {
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
            // Responses of a design are in units of their own.
            if !near || *unit != expected.unit && !unit.is_empty() {
                failures.push(format!("{}: {name} {have:?} {unit} for {want:?}", case.id));
            }
        }
        met += 1;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(met, 17);
}

/// Every number of every case, in turn, becomes something that no model should hold.
#[test]
fn no_hostile_number_makes_a_case_panic() {
    let hostile = [f64::NAN, f64::INFINITY, -1.0, 0.0, 0.5, 1e300, 1e-300, 9e15];
    for case in cases() {
        let wanted: Vec<String> = case.outputs.keys().cloned().collect();
        let model = Value::Table(case.model.clone());
        for at in 0..count(&model) {
            for value in hostile {
                let mut left = at;
                let Value::Table(model) = replaced(&model, &mut left, value) else { continue };
                if let Ok(answer) = solve(&model, &wanted) {
                    assert!(!answer.outputs.is_empty(), "{}", case.id);
                }
            }
        }
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Integer(_) | Value::Float(_) => 1,
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Table(table) => table.iter().map(|(_, value)| count(value)).sum(),
        _ => 0,
    }
}

fn replaced(value: &Value, left: &mut usize, by: f64) -> Value {
    match value {
        Value::Integer(_) | Value::Float(_) => {
            let here = *left == 0;
            *left = left.wrapping_sub(1);
            if here { Value::Float(by) } else { value.clone() }
        }
        Value::Array(list) => Value::Array(list.iter().map(|v| replaced(v, left, by)).collect()),
        Value::Table(table) => {
            let item = |(key, value): (&String, &Value)| (key.clone(), replaced(value, left, by));
            Value::Table(table.iter().map(item).collect())
        }
        other => other.clone(),
    }
}

/// Every key of every case, in turn, is misspelled: none may be ignored.
#[test]
fn a_misspelled_key_is_never_ignored() {
    let mut tried = 0;
    for case in cases() {
        for key in case.model.keys() {
            let mut model = case.model.clone();
            let value = model.remove(key).unwrap();
            model.insert(format!("{key}x"), value);
            assert!(solve(&model, &[]).is_err(), "{}: {key}x", case.id);
            tried += 1;
        }
        for station in 0..case.model.get("stations").and_then(Value::as_array).map_or(0, Vec::len) {
            let mut model = case.model.clone();
            model["stations"][station]
                .as_table_mut()
                .unwrap()
                .insert("capcity".to_owned(), Value::Integer(6));
            let error = solve(&model, &[]).unwrap_err().to_string();
            assert!(error.contains("did you mean `capacity`"), "{}: {error}", case.id);
            tried += 1;
        }
    }
    assert!(tried > 80, "{tried}");
}
