//! Model files, and sweeps in them.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use kendall_keys::{Lines, Problem, join};
use kendall_queueing::lqn::Layered;
use serde_json::{Map, Value, json};

/// Largest file that is read.
const MOST_BYTES: u64 = 64 << 20;

/// One point of a sweep.
#[derive(Debug, Clone)]
pub(super) struct Point {
    /// Swept keys and their values here.
    pub(super) at: Vec<(String, f64)>,
    pub(super) model: Value,
}

/// Whether an argument names a file rather than a kind.
pub(super) fn is_file(name: &str) -> bool {
    let ending = ending(name);
    matches!(ending, "toml" | "json")
        || kendall_textbook::reader_of_jmt(ending).is_some()
        || kendall_textbook::lqn::reader(ending).is_some()
        || Path::new(name).exists()
}

fn ending(name: &str) -> &str {
    Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

fn bytes(name: &str) -> anyhow::Result<Vec<u8>> {
    kendall_tier::read_file(Path::new(name), MOST_BYTES).with_context(|| name.to_owned())
}

/// A layered model and its file, where that is one of LQNS.
pub(super) fn layered(name: &str) -> anyhow::Result<Option<(File, Layered)>> {
    let Some(read) = kendall_textbook::lqn::reader(ending(name)) else { return Ok(None) };
    let bytes = bytes(name)?;
    let text = match ending(name) {
        "lqn" => utf8(bytes),
        _ => kendall_textbook::jmva::decoded(bytes).map_err(|error| error.to_string()),
    };
    let text = text.map_err(|error| anyhow!("{name}: {error}"))?;
    let read = read(&text).map_err(|error| anyhow!("{name}: {error}"))?;
    for note in &read.notes {
        crate::output::note(&format!("{name}: {note}"));
    }
    let file = File { name: name.to_owned(), value: Value::Null, lines: read.lines };
    Ok(Some((file, read.model)))
}

fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!(
            "line {line}: it is not UTF-8; where it is ISO-8859-1, `iconv -f ISO-8859-1 -t UTF-8` \
             converts it"
        )
    })
}

/// A model file: what it says, and where each key stands.
#[derive(Debug)]
pub(super) struct File {
    name: String,
    pub(super) value: Value,
    lines: Lines,
}

impl File {
    pub(super) fn read(name: &str) -> anyhow::Result<Self> {
        let bytes = bytes(name)?;
        let ending = ending(name);
        let reader = kendall_textbook::reader_of_jmt(ending);
        let text = match reader {
            Some(_) => kendall_textbook::jmva::decoded(bytes)
                .map_err(|error| anyhow!("{name}: {error}"))?,
            None => String::from_utf8(bytes)
                .map_err(|_| anyhow!("{name}: it is not a text file (not UTF-8)"))?,
        };
        let (value, lines) = if let Some(read) = reader {
            let read = read(&text).map_err(|error| anyhow!("{name}: {error}"))?;
            for note in &read.notes {
                crate::output::note(&format!("{name}: {note}"));
            }
            (toml::Value::Table(read.table), read.lines)
        } else if ending == "toml" {
            let table: toml::Table =
                toml::from_str(&text).map_err(|error| anyhow!("{name}: {error}"))?;
            (toml::Value::Table(table), Lines::of(&text))
        } else {
            let json = kendall_keys::json_document(&text)
                .map_err(|error| anyhow!("{name}:{}: {error}", error.line()))?;
            let lines = Lines::of_json(&text);
            if json.get("cases").is_some_and(Value::is_array) {
                // Each case is read by itself, so that a bad one fails alone.
                return Ok(Self { name: name.to_owned(), value: json, lines });
            }
            let value = kendall_keys::from_json("", &json)
                .map_err(|problem| at(name, &lines, &problem.key, &problem))?;
            (value, lines)
        };
        finite("", &value).map_err(|problem| at(name, &lines, &problem.key, &problem))?;
        let value = serde_json::to_value(&value)?;
        if !value.is_object() {
            bail!("{name}: expected a table of keys");
        }
        if value.get("system").is_some() && value.get("stations").is_none() {
            bail!("{name} is a study, not a model: `kendall run {name}` runs it");
        }
        Ok(Self { name: name.to_owned(), value, lines })
    }

    /// What flags say, as if it were a file.
    pub(super) fn of_flags(kind: &str, value: Value) -> Self {
        Self { name: kind.to_owned(), value, lines: Lines::default() }
    }

    /// An error with the place that it is about.
    pub(super) fn refuse(
        &self,
        path: Option<&str>,
        error: impl std::fmt::Display,
    ) -> anyhow::Error {
        at(&self.name, &self.lines, path.unwrap_or_default(), &error)
    }
}

fn at(name: &str, lines: &Lines, path: &str, error: impl std::fmt::Display) -> anyhow::Error {
    match lines.find(path) {
        Some(line) => anyhow!("{name}:{line}: {error}"),
        None => anyhow!("{name}: {error}"),
    }
}

/// Refuses what JSON cannot say, by its path: it would be taken for a missing key.
fn finite(path: &str, value: &toml::Value) -> Result<(), Problem> {
    match value {
        toml::Value::Float(number) if !number.is_finite() => Err(Problem {
            key: path.to_owned(),
            what: format!("`{number}` is not a finite number"),
        }),
        toml::Value::Datetime(_) => {
            Err(Problem { key: path.to_owned(), what: format!("`{value}` is a date") })
        }
        toml::Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| finite(&join(path, &index.to_string()), item)),
        toml::Value::Table(table) => {
            table.iter().try_for_each(|(key, item)| finite(&join(path, key), item))
        }
        _ => Ok(()),
    }
}

/// A document as the table that a TOML file of it would be.
pub(super) fn table(document: &Value) -> Result<toml::Table, Problem> {
    match kendall_keys::from_json("", document)? {
        toml::Value::Table(table) => Ok(table),
        other => Err(Problem { key: String::new(), what: format!("`{other}` is not a table") }),
    }
}

pub(super) fn set(document: &mut Value, key: &str, value: Value) {
    if let Some(table) = document.as_object_mut() {
        table.insert(key.to_owned(), value);
    }
}

/// `KEY=FROM:TO:STEP` becomes the table that a file would have there.
pub(super) fn set_sweep(document: &mut Value, text: &str) -> anyhow::Result<()> {
    let form = "KEY=FROM:TO:STEP, such as population=1:600:10";
    let (key, range) = text.split_once('=').ok_or_else(|| anyhow!("`{text}`: write {form}"))?;
    let numbers: Vec<f64> = range
        .split(':')
        .map(|part| part.parse().map_err(|_| anyhow!("`{part}` is not a number; write {form}")))
        .collect::<Result<_, _>>()?;
    let [from, to, step] = numbers[..] else { bail!("`{range}`: write {form}") };
    // A class given by flags or in a file with one class only is meant by its bare keys.
    let path = match document.get("classes").and_then(Value::as_array) {
        Some(classes)
            if classes.len() == 1 && document.get(key).is_none() && !key.contains('.') =>
        {
            format!("classes.0.{key}")
        }
        _ => key.to_owned(),
    };
    let place = find(document, &path)?;
    *place = json!({ "from": from, "to": to, "step": step });
    Ok(())
}

/// The place of a dotted key; entries of lists by name or by number.
fn find<'a>(document: &'a mut Value, path: &str) -> anyhow::Result<&'a mut Value> {
    let mut here = document;
    let parts: Vec<&str> = path.split('.').collect();
    for (depth, part) in parts.iter().enumerate() {
        let last = depth + 1 == parts.len();
        here = match here {
            Value::Array(list) => {
                let index = part.parse::<usize>().ok().filter(|index| *index < list.len());
                let named = || list.iter().position(|entry| entry["name"] == **part);
                let index = index.or_else(named).ok_or_else(|| {
                    anyhow!("`{path}`: there is no entry `{part}`; name one, or give its number")
                })?;
                &mut list[index]
            }
            Value::Object(table) => {
                if last && !table.contains_key(*part) {
                    table.insert((*part).to_owned(), Value::Null);
                }
                table
                    .get_mut(*part)
                    .ok_or_else(|| anyhow!("`{path}`: the model has no key `{part}`"))?
            }
            _ => bail!("`{path}`: `{part}` is below a number or text"),
        };
    }
    Ok(here)
}

/// All combinations of the sweeps in a model, the first swept key slowest.
pub(super) fn expand(document: &Value, most: usize) -> anyhow::Result<Vec<Point>> {
    let mut sweeps = Vec::new();
    collect(document, String::new(), &mut sweeps)?;
    let mut points = vec![Point { at: Vec::new(), model: document.clone() }];
    for (path, values) in sweeps {
        if points.len().saturating_mul(values.len()) > most {
            bail!("`{path}`: the sweep has more than {most} points; take larger steps");
        }
        let mut next = Vec::with_capacity(points.len() * values.len());
        for point in &points {
            for value in &values {
                let mut model = point.model.clone();
                // A whole number stays one: populations are read as such.
                *find(&mut model, &path)? = json!(value);
                let mut at = point.at.clone();
                at.push((label(document, &path), *value));
                next.push(Point { at, model });
            }
        }
        points = next;
    }
    Ok(points)
}

/// `classes.0.population` of the only class is `population`; list entries are named.
fn label(document: &Value, path: &str) -> String {
    let mut here = Some(document);
    let mut parts = Vec::new();
    for part in path.split('.') {
        here = here.and_then(|value| match value {
            Value::Array(list) => list.get(part.parse::<usize>().ok()?),
            Value::Object(table) => table.get(part),
            _ => None,
        });
        let name = here.and_then(|value| value.get("name")).and_then(Value::as_str);
        parts.push(name.unwrap_or(part).to_owned());
    }
    let single = document["classes"].as_array().is_some_and(|classes| classes.len() == 1);
    if single && parts[0] == "classes" { parts[2..].join(".") } else { parts.join(".") }
}

fn collect(value: &Value, path: String, found: &mut Vec<(String, Vec<f64>)>) -> anyhow::Result<()> {
    let below = |key: &str| {
        if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
    };
    match value {
        Value::Object(table) if is_sweep(table) => {
            found.push((path.clone(), values(&path, table)?));
        }
        Value::Object(table) => {
            for (key, value) in table {
                collect(value, below(key), found)?;
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                collect(value, below(&index.to_string()), found)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// `{ from, to }` with `step` or not, and nothing else.
fn is_sweep(table: &Map<String, Value>) -> bool {
    table.contains_key("from")
        && table.get("from").is_some_and(Value::is_number)
        && table.keys().all(|key| matches!(key.as_str(), "from" | "to" | "step"))
}

fn values(path: &str, table: &Map<String, Value>) -> anyhow::Result<Vec<f64>> {
    let number = |key: &str| table.get(key).and_then(Value::as_f64);
    let (Some(from), Some(to)) = (number("from"), number("to")) else {
        bail!("{path}: a sweep is written {{ from = 1, to = 600, step = 10 }}");
    };
    let step = match table.get("step") {
        None => 1.0,
        Some(step) => step.as_f64().unwrap_or(f64::NAN),
    };
    if !(step > 0.0 && from.is_finite() && to.is_finite() && to >= from) {
        bail!("{path}: from {from} to {to} in steps of {step}: steps go up, and are above 0");
    }
    let count = ((to - from) / step + 1e-9).floor();
    if count >= 1e5 {
        bail!("{path}: the sweep has {count:.0} points; take larger steps");
    }
    let steps = kendall_units::whole_u64(count);
    Ok((0..=steps).map(|i| from + step * kendall_units::exact_f64(i)).collect())
}
