//! The tables of keys in the documents are those that the program reads by; schemas hold the files
//! that come with it. `UPDATE=1 cargo test -p kendall --test commands documented_keys` rewrites the tables.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use kendall_keys::{Form, Key, Need};
use kendall_queueing::lqn;
use kendall_queueing::model::keys;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Name of a table in the documents, and its keys.
fn tables() -> Vec<(String, Vec<&'static [Key]>)> {
    let mut tables = kendall_study::keys::tables();
    for (name, keys) in [
        ("model", keys::MODEL),
        ("model.classes", keys::CLASS),
        ("model.stations", keys::STATION),
        ("model.routes", keys::ROUTE),
        ("model.pools", keys::POOL),
        ("model.simulation", keys::SIMULATION),
        ("layered", lqn::LAYERED),
        ("layered.processors", lqn::PROCESSOR),
        ("layered.tasks", lqn::TASK),
        ("layered.entries", lqn::ENTRY),
        ("layered.entries.phases", lqn::PHASE),
        ("layered.entries.calls_at_once", lqn::FORK),
        ("proxy.tls", kendall_memcached_proxy::TLS),
        ("proxy.pools", kendall_memcached_proxy::POOL),
        ("proxy.pools.warm_up", kendall_memcached_proxy::WARM_UP),
        ("proxy.pools.shadow", kendall_memcached_proxy::SHADOW),
        ("proxy.routes", kendall_memcached_proxy::ROUTE),
        ("sequences", kendall_loadgen::sequence::FILE),
        ("sequences.sequence", kendall_loadgen::sequence::SEQUENCE),
        ("sequences.request", kendall_loadgen::sequence::REQUEST),
    ] {
        tables.push((name.to_owned(), vec![keys]));
    }
    let proxy = [kendall_memcached_proxy::CONFIG, kendall_memcached_proxy::SETTINGS];
    tables.push(("proxy".to_owned(), proxy.to_vec()));
    tables
}

/// A table of keys in Markdown: key, default, what it may hold and means.
fn markdown(keys: &[&'static [Key]]) -> String {
    let mut text = "| key | default | means |\n| --- | --- | --- |\n".to_owned();
    for key in keys.iter().flat_map(|group| group.iter()) {
        let default = match key.need {
            Need::Required => "–".to_owned(),
            Need::Optional => "none".to_owned(),
            Need::Default(value) => format!("`{}`", value.replace('\'', "\"")),
        };
        let form = match key.form {
            Form::Choice(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
                format!("; {}", words.join(", "))
            }
            Form::Quantity(quantity) => format!("; {} such as {}", quantity.name, quantity.example),
            Form::Count { from, to: u64::MAX } => format!("; from {from}"),
            Form::Count { from, to } => format!("; {from} to {to}"),
            Form::Special(text) => format!("; {text}"),
            _ => String::new(),
        };
        let cell = format!("{}{form}", key.help).replace('|', "\\|");
        text.push_str(&format!("| `{}` | {default} | {cell} |\n", key.name));
    }
    text
}

#[test]
fn a_table_of_keys_has_default_and_form() {
    const KEYS: &[Key] = &[
        Key::count("workers", 1, 64, "workers of each").or("4"),
        Key::choice("mode", &["a", "b"], "how").or("'a'"),
        Key::text("name", "what it is called"),
    ];
    let text = markdown(&[KEYS]);
    assert!(text.contains("| `workers` | `4` | workers of each; 1 to 64 |"), "{text}");
    assert!(text.contains("| `mode` | `\"a\"` | how; `\"a\"`, `\"b\"` |"), "{text}");
    assert!(text.contains("| `name` | – | what it is called |"), "{text}");
}

#[test]
fn documents_list_the_keys_that_are_read() {
    let tables = tables();
    let mut found = Vec::new();
    for file in ["docs/models.md", "docs/study-files.md", "docs/proxy.md", "docs/sequences.md"] {
        let path = root().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut changed = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("<!-- keys: ") {
            let (name, after) = after.split_once(" -->\n").unwrap();
            let (_, after) = after.split_once("<!-- end of keys -->").unwrap();
            let keys = tables.iter().find(|(known, _)| known == name);
            let (known, keys) = keys.unwrap_or_else(|| panic!("{file}: no keys `{name}`"));
            let table = markdown(keys);
            changed
                .push_str(&format!("{before}<!-- keys: {name} -->\n{table}<!-- end of keys -->"));
            found.push(known.clone());
            rest = after;
        }
        changed.push_str(rest);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &changed).unwrap();
        } else {
            assert!(text == changed, "{file} is behind: run this test with UPDATE=1");
        }
    }
    for (name, _) in &tables {
        assert!(found.contains(name), "no document lists the keys `{name}`");
    }
}

/// Every default reads as what its key holds.
#[test]
fn declared_defaults_are_values() {
    for (name, keys) in tables() {
        for key in keys.iter().flat_map(|group| group.iter()) {
            drop(key.default());
            assert!(!key.help.is_empty(), "{name}.{}", key.name);
        }
    }
}

fn schema(of: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_kendall")).args(["schema", of]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a JSON schema validator would say, for the words that our schemas use.
fn check(value: &Value, schema: &Value, path: &str) -> Result<(), String> {
    if let Some(all) = schema["anyOf"].as_array() {
        let fits = all.iter().any(|one| check(value, one, path).is_ok());
        return if fits { Ok(()) } else { Err(format!("{path}: {value} fits none")) };
    }
    if let Some(words) = schema["enum"].as_array() {
        let fits = words.contains(value);
        return if fits { Ok(()) } else { Err(format!("{path}: {value} is none of {words:?}")) };
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        other => panic!("the schema has the type {other}"),
    };
    if !types.iter().any(|name| is(name)) {
        return Err(format!("{path}: {value} is no {types:?}"));
    }
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            check(item, &schema["items"], &format!("{path}[{index}]"))?;
        }
    }
    if let Some(fields) = value.as_object() {
        for (key, field) in fields {
            let path = format!("{path}.{key}");
            // Our patterns are plain texts.
            let patterns = schema["patternProperties"].as_object();
            let mut patterns = patterns.into_iter().flatten();
            if let Some((_, own)) = patterns.find(|(pattern, _)| key.contains(pattern.as_str())) {
                check(field, own, &path)?;
                continue;
            }
            match (&schema["properties"][key], &schema["additionalProperties"]) {
                (Value::Null, Value::Bool(false)) => {
                    return Err(format!("{path}: not in the schema"));
                }
                (Value::Null, other) => check(field, other, &path)?,
                (own, _) => check(field, own, &path)?,
            }
        }
        for key in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(key.as_str().unwrap()) {
                return Err(format!("{path}: {key} is missing"));
            }
        }
    }
    Ok(())
}

#[test]
fn the_schema_of_models_holds_every_model_that_comes_with_the_program() {
    let schema = schema("model");
    let (layered, full) = (&schema["else"]["then"], &schema["else"]["else"]);
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("studies/models")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let model: Value = toml::from_str(&text).unwrap();
        let own = if model.get("tasks").is_some() { layered } else { full };
        check(&model, own, path.to_str().unwrap()).unwrap();
        count += 1;
    }
    assert!(count >= 14);
    let wrong: Value = toml::from_str("stations = [{ name = 'a', serves = 1 }]").unwrap();
    assert!(check(&wrong, full, "wrong").is_err());
}

#[test]
fn the_schema_of_studies_holds_every_study_that_comes_with_the_program() {
    let schema = schema("study");
    let mut count = 0;
    let folders =
        ["calibration", "compute", "memcached", "message-queue", "processes", "reference", "."];
    for folder in folders {
        for entry in std::fs::read_dir(root().join("studies").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "toml") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let study: Value = toml::from_str(&text).unwrap();
            check(&study, &schema, path.to_str().unwrap()).unwrap();
            count += 1;
        }
    }
    assert!(count >= 25, "{count}");
    let wrong = "name = 'a'\n[system]\nkind = 'memcached'\nserver = 2";
    assert!(check(&toml::from_str(wrong).unwrap(), &schema, "wrong").is_err());
    let varied = |levels: &str| {
        let study = format!("name = 'a'\n[system]\nkind = 'memcached'\n[factors]\n{levels}");
        check(&toml::from_str(&study).unwrap(), &schema, "factors")
    };
    for levels in ["'a, b' = [[1, 2], [3, 4]]", "'a, b' = { low = [1, 2] }", "a = 'same as b'"] {
        varied(levels).unwrap();
    }
    for levels in ["'a, b' = [1, 2]", "'a, b' = 'same as c'", "a = 3", "a = { from = 1 }"] {
        assert!(varied(levels).is_err(), "{levels}");
    }
}

/// Keys of a TOML value, at any depth; factors name those that they vary.
fn keys_in(value: &toml::Value, found: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                found.extend(key.split(['.', ',', ' ']).map(str::to_owned));
                keys_in(value, found);
            }
        }
        toml::Value::Array(values) => values.iter().for_each(|value| keys_in(value, found)),
        _ => {}
    }
}

/// `studies/reference/` shows what the studies themselves do not use.
#[test]
fn a_study_shows_every_key() {
    let mut found = BTreeSet::new();
    for folder in
        ["reference", "calibration", "compute", "memcached", "message-queue", "build-cluster", "."]
    {
        for entry in std::fs::read_dir(root().join("studies").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "toml") {
                continue;
            }
            let study = kendall_study::StudyFile::read(&path, false, &[]);
            study.unwrap_or_else(|refusal| panic!("{refusal}"));
            let text = std::fs::read_to_string(&path).unwrap();
            keys_in(&toml::from_str(&text).unwrap(), &mut found);
        }
    }
    for (table, keys) in kendall_study::keys::tables() {
        for key in keys.iter().flat_map(|group| group.iter()) {
            assert!(found.contains(key.name), "no study shows `{}` of {table}", key.name);
        }
    }
}

/// The study that the documents open with is a study.
#[test]
fn the_complete_study_of_the_documents_is_accepted() {
    let text = std::fs::read_to_string(root().join("docs/study-files.md")).unwrap();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (study, _) = rest.split_once("```").unwrap();
    for toy in [false, true] {
        let read = kendall_study::StudyFile::parse("docs.toml", study.to_owned(), toy, &[]);
        assert_eq!(read.unwrap().factors.len(), 2);
    }
}

/// What `docs/SUMMARY.md` leaves out would be missing in the site of `make book`; decisions are listed by the script.
#[test]
fn every_page_is_in_the_summary_of_the_site() {
    fn look(folder: &Path, docs: &Path, summary: &str) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                look(&path, docs, summary);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let page = path.strip_prefix(docs).unwrap().display().to_string();
                let listed = summary.contains(&format!("]({page})"));
                let by_script = page == "SUMMARY.md" || page.starts_with("decisions/0");
                assert!(listed || by_script, "docs/SUMMARY.md lacks {page}");
            }
        }
    }
    let docs = root().join("docs");
    look(&docs, &docs, &std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap());
}

/// Keys such as `[Jain91 §31.2]`, in documents and comments, are those of docs/references.md.
#[test]
fn every_source_is_in_the_references() {
    fn look(folder: &Path, references: &str) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                look(&path, references);
                continue;
            }
            let Some(ending @ ("rs" | "md" | "py")) = path.extension().and_then(|e| e.to_str())
            else {
                continue;
            };
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter(|line| ending != "rs" || line.contains("//"));
            for part in lines.flat_map(|line| line.split('[').skip(1)) {
                let key =
                    part.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
                let name = key.trim_end_matches(|c: char| c.is_ascii_digit());
                let is_key = key.len() == name.len() + 2 && name.len() > 1;
                let is_key = is_key && name.chars().all(|c| c.is_ascii_alphabetic());
                let is_key = is_key && name.starts_with(|c: char| c.is_ascii_uppercase());
                let listed = references.contains(&format!("| {key} |"));
                assert!(!is_key || listed, "docs/references.md lacks {key} ({})", path.display());
            }
        }
    }
    let references = std::fs::read_to_string(root().join("docs/references.md")).unwrap();
    look(&root().join("docs"), &references);
    look(&root().join("crates"), &references);
}

/// `make book` writes its reference from the schemas and the help of the commands.
#[test]
fn the_sources_of_the_site_are_made() {
    const GATHER: &str = "import importlib.machinery, importlib.util, pathlib, sys\n\
        loader = importlib.machinery.SourceFileLoader('book', sys.argv[1])\n\
        book = importlib.util.module_from_spec(importlib.util.spec_from_loader('book', loader))\n\
        loader.exec_module(book)\n\
        book.gather(pathlib.Path(sys.argv[2]), sys.argv[3])";
    let folder = tempfile::tempdir().unwrap();
    let sources = folder.path().join("sources");
    let made = std::process::Command::new("python3")
        .args(["-B", "-c", GATHER])
        .arg(root().join("scripts/book"))
        .arg(&sources)
        .arg(env!("CARGO_BIN_EXE_kendall"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let keys = std::fs::read_to_string(sources.join("reference/model-keys.md")).unwrap();
    for part in ["## `stations`", "# Keys of layered models", "## `entries`"] {
        assert!(keys.contains(part), "{part}: {keys}");
    }
}
