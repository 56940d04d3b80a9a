//! A browser's recording: HTTP Archive 1.2.

use chrono::DateTime;
use kendall_loadgen::http::{HttpPlan, Url};
use serde_json::Value;

use super::{FORM, Found, Request, form};

/// Shorter pauses are the browser's, not the user's.
const SHORTEST_PAUSE_MS: i64 = 100;

/// Longer ones are no part of what was done.
const LONGEST_PAUSE_MS: i64 = 600_000;

/// Headers that follow from the request, the connection, or the browser's cache and cookies.
const OWN: [&str; 14] = [
    "host",
    "content-length",
    "connection",
    "cookie",
    "accept-encoding",
    "transfer-encoding",
    "keep-alive",
    "te",
    "upgrade",
    "upgrade-insecure-requests",
    "priority",
    "pragma",
    "cache-control",
    "range",
];

/// When an exchange began, and when it was over, in milliseconds.
type Times = (i64, i64);

pub(super) fn read(har: &Value) -> Result<Found, String> {
    let entries = har.pointer("/log/entries").and_then(Value::as_array);
    let entries = entries.ok_or("it is no HAR file: it has no list `log.entries`")?;
    let mut origin: Option<Url> = None;
    let mut requests: Vec<Request> = Vec::new();
    let (mut elsewhere, mut unanswered, mut no_body) = (0_usize, 0_usize, 0_usize);
    let mut before: Option<Times> = None;
    for (place, entry) in entries.iter().enumerate() {
        let at = |what: String| format!("log.entries[{place}]: {what}");
        let url = text(entry, "/request/url").ok_or_else(|| at("it has no request.url".into()))?;
        let Ok(url) = Url::parse(url) else {
            elsewhere += 1;
            continue;
        };
        let first = origin.get_or_insert_with(|| url.clone());
        let same = url.host.eq_ignore_ascii_case(&first.host);
        if !same || (url.tls, url.port) != (first.tls, first.port) {
            elsewhere += 1;
            continue;
        }
        // What the browser blocked or gave up has 0 or less.
        let status = entry.pointer("/response/status").and_then(Value::as_u64);
        let status = status.and_then(|status| u16::try_from(status).ok());
        let Some(status) = status.filter(|status| (200..600).contains(status)) else {
            unanswered += 1;
            continue;
        };
        let times = times(entry);
        if let (Some(last), Some((_, ended)), Some((began, _))) =
            (requests.last_mut(), before, times)
        {
            let pause = began.saturating_sub(ended);
            let is_one = (SHORTEST_PAUSE_MS..=LONGEST_PAUSE_MS).contains(&pause);
            last.think_time_ms = if is_one { pause.unsigned_abs() } else { 0 };
        }
        before = times.or(before);
        match request(entry, url, status).map_err(at)? {
            Some(request) => requests.push(request),
            None => no_body += 1,
        }
    }
    let Some(origin) = origin.filter(|_| !requests.is_empty()) else {
        return Err("it has no request over HTTP that was answered".to_owned());
    };
    let scheme = if origin.tls { "https" } else { "http" };
    let origin = format!("{scheme}://{}", origin.authority);
    let mut notes = Vec::new();
    for (count, what) in [
        (elsewhere, format!("not to {origin}")),
        (unanswered, "without an answer".to_owned()),
        (no_body, "the recording has no text of its body".to_owned()),
    ] {
        if count > 0 {
            notes.push(format!("{} left out: {what}", kendall_units::counted(count, "request")));
        }
    }
    Ok(Found { origin: Some(origin), sequences: vec![requests], notes })
}

/// One entry; `None` where it had a body and the recording does not tell which.
fn request(entry: &Value, url: Url, status: u16) -> Result<Option<Request>, String> {
    let method = text(entry, "/request/method").ok_or("it has no request.method")?.to_owned();
    let headers = entry.pointer("/request/headers").and_then(Value::as_array);
    let pairs = headers.into_iter().flatten();
    let pairs = pairs.filter_map(|header| Some((text(header, "/name")?, text(header, "/value")?)));
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in pairs {
        let lower = name.to_ascii_lowercase();
        let is_own = OWN.contains(&lower.as_str())
            || ["if-", "sec-", "proxy-", ":"].iter().any(|start| lower.starts_with(start));
        let twice = headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        if !is_own && !twice && HttpPlan::parse_header(&format!("{name}: {value}")).is_ok() {
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    let body = text(entry, "/request/postData/text").filter(|body| !body.is_empty());
    let body = match (body, entry.pointer("/request/postData/params").and_then(Value::as_array)) {
        (Some(body), _) => Some(body.to_owned()),
        (None, Some(fields)) if !fields.is_empty() => {
            let kind = text(entry, "/request/postData/mimeType").unwrap_or(FORM);
            if !kind.starts_with(FORM) {
                return Ok(None);
            }
            let pair = |field| Some((text(field, "/name")?, text(field, "/value").unwrap_or("")));
            Some(form(fields.iter().filter_map(pair)))
        }
        (None, _) => None,
    };
    // A page that the browser had, and that is asked for anew.
    let is_plain = (200..300).contains(&status) || status == 304;
    Ok(Some(Request {
        method,
        path: url.path,
        headers,
        body,
        status: (!is_plain).then_some(status),
        ..Request::default()
    }))
}

fn times(entry: &Value) -> Option<Times> {
    let began = DateTime::parse_from_rfc3339(text(entry, "/startedDateTime")?).ok()?;
    let took = entry.pointer("/time").and_then(Value::as_f64).filter(|took| *took >= 0.0)?;
    let took = i64::try_from(kendall_units::whole_u64(took)).ok()?;
    let began = began.timestamp_millis();
    Some((began, began.saturating_add(took)))
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}
