//! All keys of a study file: for the documents, and as a JSON schema for editors.

use kendall_keys::{Key, Keys};
use serde_json::{Value as Json, json};

use crate::placement::{HOST, HOSTS};
use crate::settings::{DESIGN, LINK, MEASURE, REPETITIONS, STUDY};
use crate::system::{self, SYSTEMS};
use crate::workload::{self, PROTOCOLS};

/// Every table of a study file by its name in the documents, with its keys.
pub fn tables() -> Vec<(String, Vec<&'static [Key]>)> {
    let mut tables = vec![
        ("study".to_owned(), vec![STUDY]),
        ("study.links".to_owned(), vec![LINK]),
        ("study.workload".to_owned(), vec![workload::KEYS]),
        ("study.measure".to_owned(), vec![MEASURE]),
        ("study.measure.repetitions".to_owned(), vec![REPETITIONS]),
        ("study.hosts".to_owned(), vec![HOSTS]),
        ("study.hosts.HOST".to_owned(), vec![HOST]),
        ("study.design".to_owned(), vec![DESIGN]),
    ];
    for kind in SYSTEMS {
        tables.push((format!("study.system.{}", kind.name), kind.keys.to_vec()));
        for keys in tiers(kind.keys) {
            tables.push((format!("study.system.{}.tiers", kind.name), keys.to_vec()));
        }
    }
    for protocol in PROTOCOLS {
        tables.push((format!("study.workload.{}", protocol.name), protocol.keys.to_vec()));
    }
    tables
}

/// The keys of `[[system.tiers]]`, where a kind has them.
fn tiers(keys: Keys) -> Vec<Keys> {
    let tables = keys.iter().flat_map(|group| group.iter()).filter_map(|key| match key.form {
        kendall_keys::Form::Tables(keys) if key.name == "tiers" => Some(keys),
        _ => None,
    });
    tables.collect()
}

/// A JSON schema of study files.
pub fn schema() -> Json {
    let mut schema = kendall_keys::schema(&[STUDY]);
    let systems: Vec<Json> =
        SYSTEMS.iter().map(|kind| one_of(&[system::KIND], kind.keys, "kind", kind.name)).collect();
    let workloads: Vec<Json> = PROTOCOLS
        .iter()
        .map(|protocol| one_of(&[workload::KEYS], protocol.keys, "protocol", protocol.name))
        .collect();
    let help = |key: &str| schema["properties"][key]["description"].clone();
    let (system, workload, varied) = (help("system"), help("workload"), help("factors"));
    schema["properties"]["system"] = json!({ "description": system, "anyOf": systems });
    schema["properties"]["workload"] = json!({ "description": workload, "anyOf": workloads });
    schema["properties"]["factors"] = factors(&varied);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("Kendall study");
    schema
}

/// `[factors]`: the levels of a key, or of a tuple of keys.
fn factors(help: &Json) -> Json {
    let number = json!({ "type": "number" });
    let range = json!({
        "type": "object",
        "properties": { "from": number, "to": number, "step": number },
        "required": ["from", "to", "step"],
        "additionalProperties": false,
    });
    let tuple = json!({ "type": "array", "minItems": 2 });
    let most = crate::factor::MOST_LEVELS;
    json!({
        "description": help,
        "type": "object",
        "patternProperties": {
            ",": {
                "title": "tuples of levels, one value a key",
                "anyOf": [
                    { "type": "array", "items": tuple, "minItems": 1, "maxItems": most },
                    { "type": "object", "additionalProperties": tuple, "minProperties": 1 },
                ],
            },
        },
        "additionalProperties": {
            "title": "levels",
            "anyOf": [
                { "type": "array", "minItems": 1, "maxItems": most },
                range,
                { "type": "string", "pattern": "^same as " },
            ],
        },
    })
}

/// A table whose other keys follow from one of them. None of them is required: a factor may be the
/// only place where it is written.
fn one_of(common: Keys, own: Keys, key: &str, name: &str) -> Json {
    let mut schema = kendall_keys::schema(common);
    let own = kendall_keys::schema(own);
    if let (Some(all), Some(more)) =
        (schema["properties"].as_object_mut(), own["properties"].as_object())
    {
        all.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    schema["properties"][key]["enum"] = json!([name]);
    if let Some(table) = schema.as_object_mut() {
        table.remove("required");
    }
    if key == "kind" {
        schema["required"] = json!(["kind"]);
    }
    schema
}
