//! Declared keys as a JSON schema.

use serde_json::{Map, Value as Json, json};

use crate::key::{Form, Keys, Need};

/// A JSON schema (draft 7, which editors of TOML and JSON read) of a table with these keys.
pub fn schema(keys: Keys) -> Json {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in keys.iter().flat_map(|group| group.iter()) {
        let mut property = form(&key.form);
        property["description"] = json!(key.help);
        if let Some(default) = key.default() {
            property["default"] = json!(default);
        }
        if key.need == Need::Required {
            required.push(key.name);
        }
        properties.insert(key.name.to_owned(), property);
    }
    let mut schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn form(form: &Form) -> Json {
    match form {
        Form::Text => json!({ "type": "string" }),
        Form::Choice(words) => json!({ "enum": words }),
        Form::Count { from, to: u64::MAX } => json!({ "type": "integer", "minimum": from }),
        Form::Count { from, to } => {
            json!({ "type": "integer", "minimum": from, "maximum": to })
        }
        Form::Number => json!({ "type": "number" }),
        Form::Numbers => json!({ "type": "array", "items": { "type": "number" } }),
        Form::Flag => json!({ "type": "boolean" }),
        Form::Quantity(quantity) => json!({ "type": "string", "title": quantity.name }),
        Form::Texts => {
            json!({ "type": ["array", "string"], "items": { "type": "string" } })
        }
        Form::Table(keys) => schema(keys),
        Form::Tables(keys) => json!({ "type": "array", "items": schema(keys) }),
        Form::Named(inner) => {
            json!({ "type": "object", "additionalProperties": self::form(inner) })
        }
        Form::Either(forms) => {
            json!({ "anyOf": forms.iter().map(self::form).collect::<Vec<_>>() })
        }
        Form::Special(text) => json!({ "title": text }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    const INNER: &[Key] = &[Key::flag("fill", "fills it").or("false")];
    const KEYS: &[Key] = &[
        Key::count("workers", 1, 64, "workers of each").or("4"),
        Key::choice("mode", &["a", "b"], "how").or("'a'"),
        Key::text("name", "what it is called"),
        Key::new("tiers", Form::Tables(&[INNER]), "one table per tier").optional(),
        Key::new("own", Form::Named(&Form::Text), "values of your own").optional(),
    ];

    #[test]
    fn a_schema_says_what_may_be_written() {
        let schema = schema(&[KEYS]);
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["required"], json!(["name"]));
        assert_eq!(schema["properties"]["workers"]["maximum"], 64);
        assert_eq!(schema["properties"]["workers"]["default"], 4);
        assert_eq!(schema["properties"]["mode"]["enum"], json!(["a", "b"]));
        let tier = &schema["properties"]["tiers"]["items"]["properties"]["fill"];
        assert_eq!(tier["type"], "boolean");
        assert_eq!(schema["properties"]["own"]["additionalProperties"]["type"], "string");
    }
}
