//! Values from JSON, and values as texts.

use toml::{Table, Value};

use crate::lines::join;
use crate::section::Problem;

/// A JSON document as the value that a TOML file would have.
///
/// # Errors
/// [`Problem`] with the path of a `null`, which TOML does not know.
pub fn from_json(path: &str, json: &serde_json::Value) -> Result<Value, Problem> {
    Ok(match json {
        serde_json::Value::Null => {
            let what = "is null; leave the key out, or write a value".to_owned();
            return Err(Problem { key: path.to_owned(), what });
        }
        serde_json::Value::Bool(flag) => Value::Boolean(*flag),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(whole) => Value::Integer(whole),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::String(text.clone()),
        serde_json::Value::Array(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| from_json(&join(path, &index.to_string()), item))
                .collect::<Result<_, _>>()?,
        ),
        serde_json::Value::Object(fields) => Value::Table(
            fields
                .iter()
                .map(|(key, item)| Ok((key.clone(), from_json(&join(path, key), item)?)))
                .collect::<Result<Table, Problem>>()?,
        ),
    })
}

/// A value as written, without the quotes of a text.
#[must_use]
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Table(table) => {
            let parts: Vec<String> =
                table.iter().map(|(key, value)| format!("{key}={}", text_of(value))).collect();
            parts.join(",")
        }
        other => other.to_string(),
    }
}
