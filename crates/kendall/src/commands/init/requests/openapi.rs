//! A service's description: OpenAPI 3, or 2 (Swagger), as JSON.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use kendall_loadgen::http::{HttpPlan, Url};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::{FORM, Found, Request, form};

/// How deep schemas and references go: some refer to themselves.
const DEEPEST: usize = 8;

/// Values that an example is made of, of all requests together.
const MOST_VALUES: usize = 100_000;

const JSON: &str = "application/json";

pub(super) fn read(description: &Value) -> Result<Found, String> {
    let version = ["openapi", "swagger"].iter().find_map(|key| description.get(*key)?.as_str());
    let version =
        version.ok_or("it is no OpenAPI description: it has neither `openapi` nor `swagger`")?;
    if !version.starts_with(['2', '3']) {
        return Err(format!("OpenAPI {version} is not known, only 2 and 3"));
    }
    let paths = description.get("paths").and_then(Value::as_object);
    let paths = paths.ok_or("it has no table `paths`")?;
    let (origin, base) = server(description);
    let mut examples = Examples {
        description,
        left: MOST_VALUES,
        unresolved: RefCell::default(),
        bodies: BTreeMap::new(),
    };
    let (mut sequences, mut others) = (Vec::new(), 0_usize);
    for (path, item) in paths.iter().filter(|(path, _)| path.starts_with('/')) {
        let item = examples.resolved(item);
        for (method, operation) in item.as_object().into_iter().flatten() {
            match method.as_str() {
                "get" | "post" => {
                    let path = format!("{base}{path}");
                    let request = examples.request(method, &path, item, operation);
                    sequences.push(vec![request?]);
                }
                "put" | "delete" | "patch" | "head" | "options" | "trace" => others += 1,
                _ => {}
            }
        }
    }
    if sequences.is_empty() {
        return Err("it has no GET and no POST".to_owned());
    }
    let mut notes = Vec::new();
    if others > 0 {
        let what = kendall_units::counted(others, "operation");
        notes.push(format!("{what} left out, neither GET nor POST"));
    }
    for (kind, count) in &examples.bodies {
        let what = kendall_units::counted(*count, "request");
        notes.push(format!("{what} without a body, which would be {}", kind.escape_debug()));
    }
    let unresolved = examples.unresolved.borrow();
    if let Some(first) = unresolved.first() {
        let what = kendall_units::counted(unresolved.len(), "reference");
        let first = first.escape_debug();
        notes.push(format!("{what} to what the description does not have: `{first}`"));
    }
    drop(unresolved);
    Ok(Found { origin, sequences, notes })
}

/// Where the service is, and what its paths begin with.
fn server(description: &Value) -> (Option<String>, String) {
    let part = |key: &str| description.get(key).and_then(Value::as_str);
    let base = part("basePath").unwrap_or_default();
    let mut url =
        match (description.pointer("/servers/0/url").and_then(Value::as_str), part("host")) {
            (Some(url), _) => url.to_owned(),
            (None, Some(host)) => {
                let scheme =
                    description.pointer("/schemes/0").and_then(Value::as_str).unwrap_or("http");
                format!("{scheme}://{host}{base}")
            }
            (None, None) => String::new(),
        };
    let variables = description.pointer("/servers/0/variables").and_then(Value::as_object);
    for (name, variable) in variables.into_iter().flatten() {
        if let Some(value) = variable.get("default").and_then(Value::as_str) {
            url = url.replace(&format!("{{{name}}}"), value);
        }
    }
    let url = url.as_str();
    match Url::parse(url) {
        Ok(parsed) if url.contains("://") => {
            let scheme = if parsed.tls { "https" } else { "http" };
            let path = parsed.path.trim_end_matches('/').to_owned();
            (Some(format!("{scheme}://{}", parsed.authority)), path)
        }
        _ if url.starts_with('/') => (None, url.trim_end_matches('/').to_owned()),
        _ => (None, base.trim_end_matches('/').to_owned()),
    }
}

/// Makes examples of what a description describes.
struct Examples<'a> {
    description: &'a Value,
    /// Values that may still be made.
    left: usize,
    /// References that lead nowhere.
    unresolved: RefCell<BTreeSet<String>>,
    /// Kinds of bodies that are not made, with how many requests have one.
    bodies: BTreeMap<String, usize>,
}

impl<'a> Examples<'a> {
    /// What a reference stands for, or the value itself.
    fn resolved(&self, value: &'a Value) -> &'a Value {
        let mut value = value;
        for _ in 0..DEEPEST {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else { break };
            let found = reference.strip_prefix('#').and_then(|at| self.description.pointer(at));
            let Some(found) = found else {
                self.unresolved.borrow_mut().insert(reference.to_owned());
                break;
            };
            value = found;
        }
        value
    }

    fn request(
        &mut self,
        method: &str,
        path: &str,
        item: &'a Value,
        operation: &'a Value,
    ) -> Result<Request, String> {
        let mut request = Request {
            name: Some(format!("{} {path}", method.to_ascii_uppercase())),
            method: method.to_ascii_uppercase(),
            path: path.to_owned(),
            ..Request::default()
        };
        let lists = [operation, item].map(|of| of.get("parameters").and_then(Value::as_array));
        let (mut query, mut fields) = (Vec::new(), Vec::new());
        for parameter in lists.into_iter().flatten().flatten() {
            let parameter = self.resolved(parameter);
            let part = |key: &str| parameter.get(key).and_then(Value::as_str).unwrap_or_default();
            let (name, place) = (part("name"), part("in"));
            let required = parameter.get("required").and_then(Value::as_bool).unwrap_or(false);
            let schema = parameter.get("schema").unwrap_or(parameter);
            let value = self.example(parameter, schema);
            let text = plain(&value);
            let encoded = utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string();
            match place {
                "path" => request.path = request.path.replace(&format!("{{{name}}}"), &encoded),
                "query" if required || parameter.get("example").is_some() => {
                    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
                    query.push(format!("{name}={encoded}"));
                }
                "header" if required => {
                    let header = HttpPlan::parse_header(&format!("{name}: {text}"));
                    request.headers.push(header.map_err(|error| format!("paths.{path}: {error}"))?);
                }
                "body" => request.set_body(JSON, value.to_string()),
                "formData" => fields.push((name.to_owned(), text)),
                _ => {}
            }
        }
        // Some descriptions leave parameters of the path out.
        while let Some((before, rest)) = request.path.split_once('{') {
            let Some((_, after)) = rest.split_once('}') else { break };
            request.path = format!("{before}1{after}");
        }
        if !query.is_empty() {
            request.path = format!("{}?{}", request.path, query.join("&"));
        }
        if !fields.is_empty() {
            let fields = fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            request.set_body(FORM, form(fields));
        }
        let body = operation.get("requestBody").map(|body| self.resolved(body));
        let kinds = body.and_then(|body| body.get("content")).and_then(Value::as_object);
        if let Some(kinds) = kinds {
            self.body(&mut request, kinds);
        }
        Ok(request)
    }

    fn body(&mut self, request: &mut Request, kinds: &'a Map<String, Value>) {
        let bare = |kind: &'a str| kind.split(';').next().unwrap_or_default();
        let is = |kind: &'a str, wanted: &str| bare(kind) == wanted;
        let json = |kind: &'a str| is(kind, JSON) || bare(kind).ends_with("+json");
        let all = || kinds.iter().map(|(kind, content)| (kind.as_str(), content));
        let found = all()
            .find(|(kind, _)| json(kind))
            .or_else(|| all().find(|(kind, _)| is(kind, FORM) || is(kind, "text/plain")));
        let Some((kind, content)) = found else {
            if let Some(kind) = kinds.keys().next() {
                *self.bodies.entry(kind.clone()).or_default() += 1;
            }
            return;
        };
        let value = self.example(content, content.get("schema").unwrap_or(&Value::Null));
        let text = match value.as_object().filter(|_| is(kind, FORM)) {
            Some(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| (name, plain(value))).collect();
                form(fields.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            }
            None if json(kind) => value.to_string(),
            None => plain(&value),
        };
        request.set_body(kind, text);
    }

    /// The example that is given, or one of a schema.
    fn example(&mut self, given: &'a Value, schema: &'a Value) -> Value {
        let named = given.get("examples").and_then(Value::as_object);
        let named = named.and_then(|all| all.values().next());
        let named = named.and_then(|one| self.resolved(one).get("value"));
        let given = given.get("example").or(named);
        given.cloned().unwrap_or_else(|| self.of_schema(schema, 0))
    }

    fn of_schema(&mut self, schema: &'a Value, depth: usize) -> Value {
        let schema = self.resolved(schema);
        if depth == DEEPEST || self.left == 0 {
            return Value::Null;
        }
        self.left -= 1;
        let first =
            |key: &str| schema.get(key).and_then(Value::as_array).and_then(|all| all.first());
        let stated = ["example", "default", "const"].iter().find_map(|key| schema.get(*key));
        if let Some(value) = stated.or_else(|| first("enum")).or_else(|| first("examples")) {
            return value.clone();
        }
        if let Some(one) = first("oneOf").or_else(|| first("anyOf")) {
            return self.of_schema(one, depth + 1);
        }
        let kind =
            schema.get("type").and_then(|kind| kind.as_str().or_else(|| kind.get(0)?.as_str()));
        let least = schema.get("minimum").filter(|least| least.is_number());
        match kind {
            Some("integer") => least.cloned().unwrap_or(json!(1)),
            Some("number") => least.cloned().unwrap_or(json!(1.5)),
            Some("boolean") => json!(true),
            Some("string") => json!(word(schema)),
            Some("array") => match schema.get("items") {
                Some(items) => Value::Array(vec![self.of_schema(items, depth + 1)]),
                None => json!([]),
            },
            _ => self.object(schema, depth),
        }
    }

    fn object(&mut self, schema: &'a Value, depth: usize) -> Value {
        let mut object = Map::new();
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            if let Value::Object(more) = self.of_schema(part, depth + 1) {
                object.extend(more);
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let property = self.resolved(property);
            if property.get("readOnly").and_then(Value::as_bool) == Some(true) {
                continue;
            }
            let value = self.of_schema(property, depth + 1);
            // What refers to itself ends somewhere.
            if !value.is_null() {
                object.insert(name.clone(), value);
            }
        }
        Value::Object(object)
    }
}

impl Request {
    fn set_body(&mut self, kind: &str, body: String) {
        self.headers.push(("Content-Type".to_owned(), kind.to_owned()));
        self.body = Some(body);
    }
}

/// A text of a format.
fn word(schema: &Value) -> &'static str {
    match schema.get("format").and_then(Value::as_str) {
        Some("date") => "2026-01-31",
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("uuid") => "00000000-0000-4000-8000-000000000001",
        Some("email") => "user@example.com",
        Some("uri" | "url") => "http://example.com/",
        Some("ipv4") => "192.0.2.1",
        _ => "text",
    }
}

/// A value as it stands in a path.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}
