//! `kendall schema`: JSON schemas of the files that the program reads, for editors.

use kendall_queueing::lqn::LAYERED;
use kendall_queueing::model::keys::MODEL;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::output;

/// Prints the JSON schema of study or model files
///
/// With it, editors complete keys, show what they mean, and mark mistakes. In a TOML file, name the
/// schema in the first line, where taplo and VS Code's Even Better TOML look for it:
/// #:schema ./study.schema.json
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  kendall schema study > study.schema.json")]
pub(crate) struct Schema {
    /// Which files
    #[arg(value_enum)]
    of: Of,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Of {
    /// Study files of `kendall run`
    Study,
    /// Model files of `kendall solve`
    Model,
}

impl Schema {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let schema = match self.of {
            Of::Study => kendall_study::keys::schema(),
            Of::Model => model(),
        };
        output::json(&schema)?;
        Ok(Exit::Done)
    }
}

/// A full model, a layered one, or a short form, whose keys depend on its kind.
fn model() -> Value {
    let mut full = kendall_keys::schema(&[MODEL]);
    with_sweeps(&mut full);
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Kendall model",
        "if": { "anyOf": [{ "required": ["kind"] }, { "required": ["cases"] }, { "required": ["model"] }] },
        "then": { "type": "object" },
        "else": {
            "if": { "required": ["tasks"] },
            "then": kendall_keys::schema(&[LAYERED]),
            "else": full,
        },
    })
}

/// A number in a model file may be a sweep.
fn with_sweeps(schema: &mut Value) {
    let is_number = matches!(schema["type"].as_str(), Some("number" | "integer"));
    if is_number && let Some(table) = schema.as_object_mut() {
        let mut number = serde_json::Map::new();
        for key in ["type", "minimum", "maximum"] {
            if let Some(value) = table.remove(key) {
                number.insert(key.to_owned(), value);
            }
        }
        let sweep = json!({
            "type": "object",
            "description": "a sweep",
            "properties": {
                "from": { "type": "number" },
                "to": { "type": "number" },
                "step": { "type": "number", "default": 1 },
            },
            "required": ["from", "to"],
            "additionalProperties": false,
        });
        table.insert("anyOf".to_owned(), json!([number, sweep]));
        return;
    }
    match schema {
        Value::Object(table) => table.values_mut().for_each(with_sweeps),
        Value::Array(items) => items.iter_mut().for_each(with_sweeps),
        _ => {}
    }
}
