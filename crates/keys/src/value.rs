//! Values from JSON, and values as texts.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use toml::{Table, Value};

use crate::lines::join;
use crate::section::Problem;

/// A JSON document as the value that a TOML file would have.
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

/// A JSON document; a key that an object has twice is refused, as TOML refuses it, for one of the two
/// would be ignored.
pub fn json_document(text: &str) -> Result<serde_json::Value, serde_json::Error> {
    serde_json::from_str::<OnlyOnce>(text).map(|document| document.0)
}

struct OnlyOnce(serde_json::Value);

impl<'de> Deserialize<'de> for OnlyOnce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Once).map(Self)
    }
}

struct Once;

impl<'de> Visitor<'de> for Once {
    type Value = serde_json::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(serde_json::Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(OnlyOnce(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut all = serde_json::Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if all.contains_key(&key) {
                return Err(serde::de::Error::custom(format!("{key}: is there twice")));
            }
            let OnlyOnce(value) = fields.next_value()?;
            all.insert(key, value);
        }
        Ok(all.into())
    }
}

/// A value as written, without the quotes of a text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_object_has_each_key_once() {
        let text = r#"{ "a": [1, -2, 2.5, true, null, "x", { "b": 1 }], "c": { "b": 18446744073709551615 } }"#;
        let plain: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(json_document(text).unwrap(), plain);
        let twice =
            json_document("{\n \"a\": [{ \"b\": 1,\n \"b\": 2 }] }").unwrap_err().to_string();
        assert!(twice.starts_with("b: is there twice at line 3"), "{twice}");
        assert!(json_document("{} {}").is_err());
    }
}
