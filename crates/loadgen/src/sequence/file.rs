//! The file of an HTTP load's sequences.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hyper::{Method, Uri};
use kendall_keys::{Form, Key, Lines, Problem, Section, line_of, text_of};
use kendall_tier::distribution::{Distribution, Unit};
use toml::{Table, Value};

use super::extract::Extraction;
use super::{Data, Sequence, SequencePlan, Step};
use crate::http::{HttpPlan, Part, Values, split};

const MOST_BYTES: u64 = 16 << 20;

const MOST_DATA: u64 = 256 << 20;

/// Requests of all sequences.
pub const MOST_STEPS: usize = 1_000;

/// Beyond it sums of weights lose small ones.
const MOST_WEIGHT: f64 = 1e6;

pub const FILE: &[Key] = &[
    Key::new("headers", Form::Named(&Form::Text), "headers of every request").optional(),
    Key::new(
        "vary",
        Form::Named(&Form::Special("values as `kendall load http --vary` takes them")),
        "values of `{{name}}`, drawn once for each run of a sequence",
    )
    .optional(),
    Key::text(
        "data",
        "CSV file whose first line has names: each run of a sequence takes the next line, for all `{{name}}`",
    )
    .optional(),
    Key::text(
        "think_time",
        "between a reply and the next request of the sequence, such as `1s` or `exponential:1s`; requests may \
         have their own",
    )
    .or("'0s'"),
    Key::count("redirects", 0, 100, "redirects that a request may follow, on its own host").or("10"),
    Key::flag("cookies", "whether cookies are sent back, within a run of a sequence").or("true"),
    Key::new("sequence", Form::Tables(&[SEQUENCE]), "sequences of requests"),
];

pub const SEQUENCE: &[Key] = &[
    Key::text("name", "its name in the result").optional(),
    Key::new(
        "weight",
        Form::Number,
        "how often it is run, beside the others: above 0, up to a million",
    )
    .or("1"),
    Key::new("request", Form::Tables(&[REQUEST]), "its requests, one after the other"),
];

pub const REQUEST: &[Key] = &[
    Key::text("name", "its name in the result; unless given, method and path").optional(),
    Key::text("method", "`GET` unless given, or `POST` with a body").optional(),
    Key::text("path", "path and query, with the leading slash").or("'/'"),
    Key::new("headers", Form::Named(&Form::Text), "headers, in place of those of every request")
        .optional(),
    Key::text("body", "sent as it is").optional(),
    Key::new(
        "status",
        Form::Numbers,
        "statuses that are right: any from 200 to 299 unless given. A redirect is followed unless it is one of them",
    )
    .optional(),
    Key::new(
        "extract",
        Form::Named(&Form::Text),
        "values of `{{name}}` in later requests: `json:/pointer`, `header:NAME`, `cookie:NAME`, or \
         `regex:PATTERN`, whose first group counts",
    )
    .optional(),
    Key::text("think_time", "before the next request of the sequence").optional(),
];

/// A file of sequences that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SequenceError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {what}", path.display())]
    Syntax { path: PathBuf, line: usize, what: String },
    #[error("{}:{line}: {problem}", path.display())]
    Key { path: PathBuf, line: usize, problem: Problem },
}

impl SequencePlan {
    /// Reads a file of sequences, and the data that it names. `varied` are further values.
    pub fn read(path: &Path, varied: Vec<(String, Values)>) -> Result<Self, SequenceError> {
        let text = contents(path, MOST_BYTES)?;
        Self::parse(&text, path, varied)
    }

    /// As [`read`](Self::read), of the file's text.
    pub fn parse(
        text: &str,
        path: &Path,
        varied: Vec<(String, Values)>,
    ) -> Result<Self, SequenceError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let what = error.message().trim().replace('\n', "; ");
            SequenceError::Syntax { path: path.to_owned(), line, what }
        })?;
        let mut section = Section::new("", &table, &[FILE]);
        let at = |problem: Problem| SequenceError::Key {
            line: Lines::of(text).line(&problem.key),
            path: path.to_owned(),
            problem,
        };
        let data = match section.opt_text("data").map_err(at)? {
            None => Data::default(),
            Some(file) => {
                let file = path.parent().unwrap_or(Path::new("")).join(file);
                let text = contents(&file, MOST_DATA)?;
                rows(&text).map_err(|what| {
                    at(section.problem("data", format!("{}: {what}", file.display())))
                })?
            }
        };
        plan(section, data, varied).map_err(at)
    }
}

/// A file's text, unless it is too long.
fn contents(path: &Path, most: u64) -> Result<String, SequenceError> {
    kendall_tier::read_text(path, most)
        .map_err(|source| SequenceError::Read { path: path.to_owned(), source })
}

fn rows(text: &str) -> Result<Data, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headings = reader.headers().map_err(|error| error.to_string())?;
    let names: Vec<String> = headings.iter().map(|name| name.trim().to_owned()).collect();
    let rows: Result<Vec<Vec<String>>, csv::Error> = reader
        .records()
        .map(|record| record.map(|fields| fields.iter().map(str::to_owned).collect()))
        .collect();
    let rows = rows.map_err(|error| error.to_string())?;
    if rows.is_empty() {
        return Err("it has no line behind the names".to_owned());
    }
    Ok(Data { names, rows, ..Data::default() })
}

fn plan(
    mut section: Section<'_>,
    data: Data,
    mut varied: Vec<(String, Values)>,
) -> Result<SequencePlan, Problem> {
    let vary = section.section("vary")?;
    for (name, value) in vary.entries() {
        let values = Values::parse(&format!("{name}={}", text_of(value)));
        varied.push(values.map_err(|error| vary.problem(name, kendall_units::chain(&error)))?);
    }
    let mut given = data.names.clone();
    given.extend(varied.iter().map(|(name, _)| name.clone()));
    for (place, name) in given.iter().enumerate() {
        let key = if place < data.names.len() { "data" } else { "vary" };
        is_name(name).map_err(|what| section.problem(key, what))?;
        if given[..place].contains(name) {
            return Err(section.problem(key, format!("`{name}` is given twice")));
        }
    }
    let common =
        Common { headers: headers(&mut section)?, think_time: think_time(&mut section)?, given };
    let mut sequences = Vec::new();
    let mut used = BTreeSet::new();
    for (number, one) in section.sections("sequence")?.into_iter().enumerate() {
        sequences.push(sequence(one, number, &common, &mut used)?);
    }
    let all: usize = sequences.iter().map(|sequence| sequence.steps.len()).sum();
    if sequences.is_empty() || all > MOST_STEPS {
        let what = format!("{all} requests: there must be between 1 and {MOST_STEPS}");
        return Err(section.problem("sequence", what));
    }
    for (place, sequence) in sequences.iter().enumerate() {
        if sequences[..place].iter().any(|other| other.name == sequence.name) {
            let what = format!("two are called `{}`", sequence.name);
            return Err(section.problem("sequence", what));
        }
    }
    if let Some(name) = varied.iter().map(|(name, _)| name).find(|name| !used.contains(*name)) {
        return Err(section.problem("vary", format!("`{{{{{name}}}}}` is in no request")));
    }
    let redirects = section.count("redirects")?;
    let cookies = section.flag("cookies")?;
    section.finish()?;
    Ok(SequencePlan { sequences, data, varied, redirects, cookies })
}

/// What the requests of a file share.
struct Common {
    headers: Vec<(String, String)>,
    think_time: Option<Distribution>,
    /// Names that have a value before the first request.
    given: Vec<String>,
}

fn sequence(
    mut section: Section<'_>,
    number: usize,
    common: &Common,
    used: &mut BTreeSet<String>,
) -> Result<Sequence, Problem> {
    let name = section.opt_text("name")?;
    let name = name.unwrap_or_else(|| format!("sequence {}", number + 1));
    let weight = section.number("weight")?.unwrap_or(1.0);
    if !(weight > 0.0 && weight <= MOST_WEIGHT) {
        let what = format!("`{weight}` is not above 0 and up to {MOST_WEIGHT}");
        return Err(section.problem("weight", what));
    }
    let mut names = common.given.clone();
    let mut steps: Vec<Step> = Vec::new();
    let requests = section.sections("request")?;
    let last = requests.len();
    if last == 0 {
        return Err(section.problem("request", "is missing; write `[[sequence.request]]`"));
    }
    for (place, request) in requests.into_iter().enumerate() {
        if place + 1 == last && request.has("think_time") {
            let what = "is of the last request; between runs of sequences there is `--think-time`";
            return Err(request.problem("think_time", what));
        }
        let mut step = step(request, common, &mut names, used)?;
        // The same request twice is two of the sequence.
        let plain = step.name.clone();
        let mut turn = 1;
        while steps.iter().any(|other| other.name == step.name) {
            turn += 1;
            step.name = format!("{plain} ({turn})");
        }
        steps.push(step);
    }
    section.finish()?;
    Ok(Sequence { name, weight, steps, names: names.len() })
}

fn step(
    mut section: Section<'_>,
    common: &Common,
    names: &mut Vec<String>,
    used: &mut BTreeSet<String>,
) -> Result<Step, Problem> {
    let body = section.opt_text("body")?;
    let usual = if body.is_some() { "POST" } else { "GET" };
    let method = section.opt_text("method")?.unwrap_or_else(|| usual.to_owned());
    let path = section.text("path")?;
    let name = section.opt_text("name")?.unwrap_or_else(|| format!("{method} {path}"));
    let parsed = Method::from_bytes(method.as_bytes()).ok().filter(|one| *one != Method::CONNECT);
    let method = parsed.ok_or_else(|| {
        section.problem(
            "method",
            format!("`{}` is not a method; write it like `GET`", method.escape_debug()),
        )
    })?;
    let own = headers(&mut section)?;
    let mut shared = common.headers.clone();
    shared.retain(|(name, _)| !own.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
    let mut parts =
        |key: &str, text: &str| parts(text, names, used).map_err(|what| section.problem(key, what));
    let headers = shared.into_iter().chain(own);
    let headers = headers.map(|(name, value)| Ok((name, parts("headers", &value)?)));
    let headers = headers.collect::<Result<_, Problem>>()?;
    let body = body.map(|body| parts("body", &body)).transpose()?;
    let parsed = parts("path", &path)?;
    if !path.starts_with('/')
        || super::address(&parsed, &vec![b"1".to_vec(); names.len()]).parse::<Uri>().is_err()
    {
        let what = format!("`{path}` is not a path; write it like `/items?page=1`");
        return Err(section.problem("path", what));
    }
    let statuses = statuses(&mut section)?;
    let extract = extractions(&mut section, names)?;
    let own = section.has("think_time").then(|| think_time(&mut section)).transpose()?;
    let think_time = own.unwrap_or_else(|| common.think_time.clone());
    section.finish()?;
    Ok(Step { name, method, path: parsed, headers, body, statuses, extract, think_time })
}

fn headers(section: &mut Section<'_>) -> Result<Vec<(String, String)>, Problem> {
    let table = section.section("headers")?;
    let one = |(name, value): (&str, &Value)| {
        let value = value.as_str().ok_or_else(|| table.problem(name, "is not a text"))?;
        HttpPlan::parse_header(&format!("{name}: {value}"))
            .map_err(|error| table.problem(name, error.to_string()))
    };
    table.entries().into_iter().map(one).collect()
}

fn think_time(section: &mut Section<'_>) -> Result<Option<Distribution>, Problem> {
    let Some(text) = section.opt_text("think_time")? else { return Ok(None) };
    let time = Distribution::parse(&text, Unit::Time)
        .map_err(|error| section.problem("think_time", kendall_units::chain(&error)))?;
    Ok(Some(time).filter(|time| time.mean() != Some(0.0)))
}

fn statuses(section: &mut Section<'_>) -> Result<Vec<u16>, Problem> {
    let numbers = section.numbers("status")?.unwrap_or_default();
    let status = |number: f64| {
        let status = kendall_units::whole_u64(number);
        u16::try_from(status)
            .ok()
            .filter(|status| number.fract() == 0.0 && (200..600).contains(status))
            .ok_or_else(|| section.problem("status", format!("`{number}` is not a status")))
    };
    numbers.into_iter().map(status).collect()
}

/// Reads what is extracted; its names have values from now on.
fn extractions(
    section: &mut Section<'_>,
    names: &mut Vec<String>,
) -> Result<Vec<(usize, Extraction)>, Problem> {
    let table = section.section("extract")?;
    let mut all = Vec::new();
    for (name, from) in table.entries() {
        is_name(name).map_err(|what| table.problem(name, what))?;
        let from = from.as_str().unwrap_or_default();
        let from = Extraction::parse(from).map_err(|what| table.problem(name, what))?;
        let place = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        all.push((place, from));
    }
    Ok(all)
}

fn is_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !name.is_empty() && name.chars().all(plain) {
        return Ok(());
    }
    Err(format!("`{name}` is not a name: it has letters, digits, `_`, `-` and `.`"))
}

/// Takes a text apart at `{{name}}`; a name that has no value yet is refused.
fn parts(text: &str, names: &[String], used: &mut BTreeSet<String>) -> Result<Vec<Part>, String> {
    let braced: Vec<String> = names.iter().map(|name| format!("{{{name}}}")).collect();
    let braced: Vec<&str> = braced.iter().map(String::as_str).collect();
    let parts = split(text.as_bytes(), &braced);
    for part in &parts {
        match part {
            Part::Placeholder(place) => {
                used.insert(names[*place].clone());
            }
            Part::Literal(bytes) => {
                if let Some(name) = unknown(&String::from_utf8_lossy(bytes)) {
                    let known = match names.join(", ") {
                        none if none.is_empty() => none,
                        names => format!(" (known here: {names})"),
                    };
                    return Err(format!(
                        "`{{{{{name}}}}}` has no value here: it is neither in `data` nor `vary`, and no earlier \
                         request of the sequence extracts it{known}"
                    ));
                }
            }
        }
    }
    Ok(parts)
}

/// The first name in double braces.
fn unknown(text: &str) -> Option<&str> {
    let mut pieces = text.split("{{").skip(1);
    pieces.find_map(|piece| {
        piece.split_once("}}").map(|(name, _)| name).filter(|name| is_name(name).is_ok())
    })
}
