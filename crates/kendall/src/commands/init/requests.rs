//! Sequences of requests from what others wrote down: a browser's recording (HAR), a service's description
//! (OpenAPI).

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../../../fuzz/inside/requests.rs"]
pub mod fuzzing;
mod har;
mod openapi;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kendall_loadgen::sequence::{MOST_STEPS, SequenceError, SequencePlan};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::text::as_name;
use super::write;
use crate::exit::{Exit, refused};
use crate::output;

/// Bytes of a file that is read: recordings have the bodies of all answers.
const MOST_BYTES: u64 = 256 << 20;

/// Where requests are written down.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(super) struct Requests {
    /// Writes the requests of a browser's recording as a sequence for `kendall load http --sequence`: those to the
    /// host of the first, with the pauses between them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "attach", "tier", "template"])]
    har: Option<PathBuf>,

    /// Writes a request for each GET and POST of an OpenAPI description (JSON), with its examples, likewise
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "attach", "tier", "template"])]
    openapi: Option<PathBuf>,
}

/// Finds requests in a document.
type Read = fn(&Value) -> Result<Found, String>;

#[derive(Debug, Default)]
struct Found {
    /// Scheme, host and port; without them, of any.
    origin: Option<String>,
    sequences: Vec<Vec<Request>>,
    /// What was left out, and why.
    notes: Vec<String>,
}

#[derive(Debug, Default, Clone, PartialEq)]
struct Request {
    name: Option<String>,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
    status: Option<u16>,
    think_time_ms: u64,
}

impl Requests {
    /// Writes what is asked for, to a file of that name; `None` where nothing is.
    pub(super) fn write(&self, out: Option<&Path>, force: bool) -> anyhow::Result<Option<Exit>> {
        let (file, read): (_, Read) = match (&self.har, &self.openapi) {
            (Some(file), _) => (file, har::read),
            (None, Some(file)) => (file, openapi::read),
            (None, None) => return Ok(None),
        };
        let name = file.display();
        let found = json(file).and_then(|json| read(&json)).and_then(usable);
        let found = found.map_err(|what| refused(format!("{name}: {what}")))?;
        let text = text(&found, &name.to_string());
        let out = out.map_or_else(|| usual(&found, file), Path::to_owned);
        SequencePlan::parse(&text, &out, Vec::new())
            .map_err(|error| refused(format!("{name}: what it has makes no sequence: {error}")))?;
        write::refuse_taken(&out, force)?;
        write::text(&out, force, &text)?;
        found.notes.iter().for_each(|note| output::note(note));
        let count: usize = found.sequences.iter().map(Vec::len).sum();
        let url = found.origin.as_deref().unwrap_or("http://HOST:PORT");
        output::result(&format!(
            "wrote {out}: {}\n\n  kendall load http {url}/ --sequence {out}\n",
            kendall_units::counted(count, "request"),
            out = out.display(),
        ));
        Ok(Some(Exit::Done))
    }
}

/// By the host, or as the file is called.
fn usual(found: &Found, file: &Path) -> PathBuf {
    let host = found.origin.as_deref().and_then(|origin| origin.split_once("://"));
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = as_name(host.map_or(stem.as_str(), |(_, host)| host));
    PathBuf::from(format!("{name}-sequence.toml"))
}

fn json(file: &Path) -> Result<Value, String> {
    let text = kendall_tier::read_file(file, MOST_BYTES).map_err(|error| error.to_string())?;
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&text);
    serde_json::from_slice(text).map_err(|error| {
        let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
        let hint = match first {
            None => " (the file is empty)",
            Some(b'{' | b'[') => "",
            Some(_) => " (of YAML, make JSON first, as `yq -o json` does)",
        };
        format!("it is not JSON: {error}{hint}")
    })
}

/// Leaves out, with a note, what is no request of a sequence, what is beyond the most that a file has, and names
/// what may be a secret.
fn usable(mut found: Found) -> Result<Found, String> {
    let mut refused: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut kept = 0;
    for requests in &mut found.sequences {
        requests.retain(|request| {
            let why = match unusable(request) {
                Some(why) => why,
                None if kept == MOST_STEPS => format!("a file has at most {MOST_STEPS}"),
                None => {
                    kept += 1;
                    return true;
                }
            };
            let first = format!("{} {}", request.method, request.path);
            refused.entry(why).or_insert((0, first)).0 += 1;
            false
        });
    }
    found.sequences.retain(|requests| !requests.is_empty());
    for requests in &mut found.sequences {
        // The last request of a sequence has no pause behind it.
        requests.iter_mut().last().into_iter().for_each(|last| last.think_time_ms = 0);
    }
    for (why, (count, first)) in &refused {
        let count = kendall_units::counted(*count, "request");
        let first = kendall_units::printable(first, 80);
        found.notes.push(format!("{count} left out: {why} (`{first}`)"));
    }
    if kept == 0 {
        return Err(format!("it has no request that can be used: {}", found.notes.join("; ")));
    }
    let secrets = secrets(&found);
    if !secrets.is_empty() {
        found.notes.push(format!("what may be secrets is in the file: {}", secrets.join(", ")));
    }
    Ok(found)
}

/// Why a request cannot stand in a file of sequences, if it cannot.
fn unusable(request: &Request) -> Option<String> {
    let alone = Request { think_time_ms: 0, ..request.clone() };
    let found = Found { sequences: vec![vec![alone]], ..Found::default() };
    match SequencePlan::parse(&text(&found, ""), Path::new(""), Vec::new()) {
        Ok(_) => None,
        Err(SequenceError::Key { problem, .. }) => {
            let key = problem.key.rsplit('.').next().unwrap_or_default();
            if problem.what.contains("has no value here") {
                return Some(format!("its {key} has double braces, which stand for a value"));
            }
            Some(format!("{key}: {}", problem.what))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Names of headers and of fields of bodies that are called like a secret.
fn secrets(found: &Found) -> Vec<String> {
    const WORDS: [&str; 8] =
        ["authorization", "api-key", "apikey", "api_key", "token", "secret", "password", "passwd"];
    let mut names = BTreeSet::new();
    for request in found.sequences.iter().flatten() {
        for (name, _) in &request.headers {
            let lower = name.to_ascii_lowercase();
            if WORDS.iter().any(|word| lower.contains(word)) {
                names.insert(format!("header `{name}`"));
            }
        }
        let body = request.body.as_deref().unwrap_or_default().to_ascii_lowercase();
        for word in WORDS {
            if body.contains(&format!("{word}\"")) || body.contains(&format!("{word}=")) {
                names.insert(format!("`{word}` in a body"));
            }
            if request.path.to_ascii_lowercase().contains(&format!("{word}=")) {
                names.insert(format!("`{word}` in a path"));
            }
        }
    }
    names.into_iter().collect()
}

/// Names and values as a form sends them.
fn form<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs =
        pairs.into_iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

const FORM: &str = "application/x-www-form-urlencoded";

/// The file of sequences. Headers that all requests have stand at its head.
fn text(found: &Found, from: &str) -> String {
    let all = || found.sequences.iter().flatten();
    let mut shared = all().next().map(|request| request.headers.clone()).unwrap_or_default();
    shared.retain(|header| all().count() > 1 && all().all(|one| one.headers.contains(header)));
    let mut text =
        format!("# Requests of {}, for `kendall load http --sequence`.\n", from.escape_debug());
    for note in &found.notes {
        text.push_str(&format!("# {}\n", note.escape_debug()));
    }
    if !shared.is_empty() {
        text.push_str(&format!("headers = {}\n", table(&shared)));
    }
    for requests in &found.sequences {
        text.push_str("\n[[sequence]]\n");
        if let [Request { name: Some(name), .. }] = requests.as_slice() {
            text.push_str(&format!("name = {}\n", quoted(name)));
        }
        for request in requests {
            write(&mut text, request, &shared);
        }
    }
    text
}

fn write(text: &mut String, request: &Request, shared: &[(String, String)]) {
    let mut line = |key: &str, value: String| {
        text.push_str(&format!("{key} = {value}\n"));
    };
    line("\n[[sequence.request]]\nmethod", quoted(&request.method));
    line("path", quoted(&request.path));
    let own: Vec<_> = request.headers.iter().filter(|one| !shared.contains(one)).cloned().collect();
    if !own.is_empty() {
        line("headers", table(&own));
    }
    if let Some(body) = &request.body {
        line("body", quoted(body));
    }
    if let Some(status) = request.status {
        line("status", status.to_string());
    }
    if request.think_time_ms > 0 {
        line("think_time", quoted(&format!("{}ms", request.think_time_ms)));
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn table(headers: &[(String, String)]) -> String {
    let one = |(name, value): &(String, String)| format!("{} = {}", quoted(name), quoted(value));
    format!("{{ {} }}", headers.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kendall_loadgen::sequence::SequencePlan;
    use serde_json::{Value, json};

    use super::{Read, fuzzing, har, openapi, text, usable};

    /// The document with each of its values replaced, one after the other.
    fn changed(document: &Value, by: &Value, with: &mut dyn FnMut(&Value)) {
        fn walk(whole: &mut Value, at: &str, by: &Value, with: &mut dyn FnMut(&Value)) {
            let keys: Vec<String> = match whole.pointer(at) {
                Some(Value::Object(fields)) => fields.keys().cloned().collect(),
                Some(Value::Array(items)) => (0..items.len()).map(|at| at.to_string()).collect(),
                _ => Vec::new(),
            };
            for key in keys {
                walk(
                    whole,
                    &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                    by,
                    with,
                );
            }
            let kept = std::mem::replace(whole.pointer_mut(at).unwrap(), by.clone());
            with(whole);
            *whole.pointer_mut(at).unwrap() = kept;
        }
        walk(&mut document.clone(), "", by, with);
    }

    /// What is read is a sequence or refused, and nothing panics.
    fn hold(document: &Value, read: Read) {
        let same = read(document).unwrap();
        SequencePlan::parse(&text(&same, "file"), Path::new("file"), Vec::new()).unwrap();
        let long = "x".repeat(100_000);
        for by in [
            json!(null),
            json!(-1),
            json!(1e300),
            json!(""),
            json!("{{a}}\u{0}\"'''"),
            json!(long),
            json!([{}]),
            json!({ "$ref": "#" }),
        ] {
            changed(document, &by, &mut |document| {
                fuzzing::requests(document.to_string().as_bytes())
            });
        }
    }

    #[test]
    fn a_document_with_any_value_changed_is_read_or_refused() {
        hold(
            &json!({ "log": { "entries": [
                { "startedDateTime": "2026-10-10T13:55:30.000Z", "time": 10,
                  "request": { "method": "POST", "url": "http://h/a?b", "postData": { "text": "x" },
                               "headers": [{ "name": "A", "value": "b" }] },
                  "response": { "status": 200 } },
                { "startedDateTime": "2026-10-10T13:55:33.000Z", "time": 10,
                  "request": { "method": "GET", "url": "http://h/c" }, "response": { "status": 404 } },
            ] } }),
            har::read,
        );
        hold(
            &json!({
                "swagger": "2.0", "basePath": "/v1", "servers": [{ "url": "/v2" }],
                "paths": { "/a/{b}": {
                    "parameters": [{ "name": "b", "in": "path", "type": "string", "format": "uuid" }],
                    "get": { "parameters": [
                        { "name": "c", "in": "query", "required": true, "schema": { "type": "array", "items": { "enum": [1] } } },
                        { "name": "D", "in": "header", "required": true, "examples": { "x": { "value": "y" } } },
                    ] },
                    "post": { "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/s" } } } } },
                } },
                "s": { "allOf": [{ "$ref": "#/s" }], "properties": { "n": { "oneOf": [{ "type": "number" }] } } },
            }),
            openapi::read,
        );
    }

    /// What was found in a document, as it is written.
    fn written(read: Read, document: &Value) -> (String, String) {
        let found = usable(read(document).unwrap()).unwrap();
        (text(&found, "file"), found.notes.join("\n"))
    }

    #[test]
    fn what_cannot_be_sent_is_left_out_and_named() {
        let entry = |url: &str, data: Value| {
            json!({ "request": { "method": "POST", "url": url, "postData": data,
                                  "headers": [{ "name": "X-Api-Key", "value": "k" }] },
                    "response": { "status": 200 } })
        };
        let fields = json!([{ "name": "a", "value": "1 2" }, { "name": "b&", "value": "ü" }]);
        let mut entries = vec![
            entry("http://h/form", json!({ "mimeType": super::FORM, "params": fields })),
            entry("http://H/file", json!({ "mimeType": "multipart/form-data", "params": fields })),
            entry("http://h/braces", json!({ "text": "{{token}}" })),
        ];
        entries.extend((0..1_000).map(|n| entry(&format!("http://h/{n}"), json!({}))));
        let (text, notes) = written(har::read, &json!({ "log": { "entries": entries } }));
        assert!(text.contains("body = \"a=1%202&b%26=%C3%BC\""), "{text}");
        for note in [
            "1 request left out: the recording has no text of its body",
            "1 request left out: its body has double braces",
            "1 request left out: a file has at most 1000",
            "header `X-Api-Key`",
        ] {
            assert!(notes.contains(note), "{notes}");
        }
    }

    #[test]
    fn bodies_servers_and_references_of_a_description_are_read_or_named() {
        let body = |kind: &str, schema: Value| json!({ "post": { "requestBody": { "content": { kind: { "schema": schema } } } } });
        let object = json!({ "properties": { "a b": { "type": "integer" } } });
        let (text, notes) = written(
            openapi::read,
            &json!({
                "swagger": "2.0", "host": "h:8080", "basePath": "/v1", "schemes": ["https"],
                "paths": {
                    "/form": body(super::FORM, object.clone()),
                    "/problem": body("application/problem+json; charset=utf-8", object.clone()),
                    "/file": body("multipart/form-data", object),
                    "/missing/{id}": body("application/json", json!({ "$ref": "other.json#/x" })),
                },
            }),
        );
        assert!(text.contains("body = \"a%20b=1\"") && text.contains("/v1/missing/1"), "{text}");
        assert!(text.contains("body = '{\"a b\":1}'"), "{text}");
        assert!(notes.contains("1 request without a body, which would be multipart/form-data"));
        assert!(notes.contains("`other.json#/x`"), "{notes}");
        let variable = json!({
            "openapi": "3.0", "paths": { "/": { "get": {} } },
            "servers": [{ "url": "https://{e}.h/v2", "variables": { "e": { "default": "dev" } } }],
        });
        assert_eq!(openapi::read(&variable).unwrap().origin.as_deref(), Some("https://dev.h"));
    }

    /// A description that grows by each level of its references is not followed without end.
    #[test]
    fn references_that_multiply_are_bounded() {
        let properties: serde_json::Map<String, Value> =
            (0..100).map(|n| (n.to_string(), json!({ "$ref": "#/s" }))).collect();
        let api = json!({
            "openapi": "3.0", "s": { "properties": properties },
            "paths": { "/": { "post": { "requestBody": { "content": { "application/json": {
                "schema": { "$ref": "#/s" } } } } } } },
        });
        let found = openapi::read(&api).unwrap();
        assert!(found.sequences[0][0].body.as_ref().unwrap().len() < 10_000_000);
    }
}
