//! One client: a connection, and the run of a sequence that goes over it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{COOKIE, HeaderName, HeaderValue, LOCATION, SET_COOKIE};
use hyper::{HeaderMap, Method, Response};

use super::cookies::Jar;
use super::extract::Answer;
use super::{Shared, Step, address, fill};
use crate::driver::{ErrorKind, Reply};
use crate::http::Url;
use crate::random::Random;
use crate::tasks::{Client, Parts, Timer};
use crate::web::{Connection, read, reply_of};

/// Bytes of a body that values are taken from.
const MOST_BODY: usize = 8 << 20;

pub(super) struct SequenceClient {
    shared: Arc<Shared>,
    random: Rc<RefCell<Random>>,
    connection: Rc<Connection>,
    timer: Timer,
    jar: Jar,
    values: Vec<Vec<u8>>,
    /// The sequence that runs, and its step.
    sequence: usize,
    step: usize,
    body: Vec<u8>,
    /// Sent for the step.
    bytes_out: u64,
}

/// A request, before it is one of HTTP/1.1 or HTTP/2.
struct Draft {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl SequenceClient {
    pub(super) fn new(
        shared: &Arc<Shared>,
        random: &Rc<RefCell<Random>>,
        connection: Rc<Connection>,
        timer: Timer,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            random: Rc::clone(random),
            connection,
            timer,
            jar: Jar::default(),
            values: Vec::new(),
            sequence: 0,
            step: 0,
            body: Vec::new(),
            bytes_out: 0,
        }
    }

    /// Keeps why a step failed, if it is the first.
    fn note(&self, what: &str) {
        let sequence = &self.shared.plan.sequences[self.sequence];
        let step = &sequence.steps[self.step].name;
        self.shared.said.note(&sequence.name, &format!("{step}: {what}"));
    }

    /// The request of a step; `None` where a value makes it impossible.
    fn draft(&self, step: &Step) -> Option<Draft> {
        let mut headers = HeaderMap::new();
        let given = self.shared.web.content.headers.iter();
        let given = given.map(|(name, value)| (name, value.clone().into_bytes()));
        let own = step.headers.iter().map(|(name, value)| (name, fill(value, &self.values)));
        for (name, value) in given.chain(own) {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            headers.insert(name, HeaderValue::from_bytes(&value).ok()?);
        }
        Some(Draft {
            method: step.method.clone(),
            path: address(&step.path, &self.values),
            headers,
            body: step
                .body
                .as_ref()
                .map_or_else(Bytes::new, |body| fill(body, &self.values).into()),
        })
    }

    async fn ask(&mut self, draft: &Draft) -> Result<Response<hyper::body::Incoming>, ErrorKind> {
        let connector = &self.shared.connector;
        let own_cookies = self.shared.plan.cookies && !draft.headers.contains_key(COOKIE);
        let bytes_out = Cell::new(0);
        let request = || {
            let mut request = connector.request(&draft.method, &draft.path, &draft.headers)?;
            if let Some(cookies) = self.jar.header(&draft.path).filter(|_| own_cookies) {
                request.headers_mut().insert(COOKIE, cookies);
            }
            let headers = request.headers().iter();
            let head: usize = headers.map(|(name, value)| name.as_str().len() + value.len()).sum();
            bytes_out.set(bytes_out.get() + (draft.path.len() + head + draft.body.len()) as u64);
            *request.body_mut() = Full::new(draft.body.clone());
            Some(request)
        };
        let response = self.connection.respond(connector, request).await;
        self.bytes_out += bytes_out.get();
        response
    }

    /// What the last reply to a step means: its status, and the values that are taken from it.
    fn judge(&mut self, status: u16, headers: &HeaderMap, whole: bool) -> Reply {
        let shared = Arc::clone(&self.shared);
        let step = &shared.plan.sequences[self.sequence].steps[self.step];
        let right = match step.statuses.as_slice() {
            [] => (200..300).contains(&status),
            some => some.contains(&status),
        };
        let reply = reply_of(status);
        if !right {
            self.note(&format!("status {status}"));
            return Reply { error: reply.error.or(Some(ErrorKind::UnexpectedStatus)), ..reply };
        }
        for (place, from) in &step.extract {
            let answer = Answer { headers, jar: &self.jar, body: &self.body };
            let taken = if whole || !from.needs_body() {
                from.take(&answer)
            } else {
                Err(format!("a body of more than {MOST_BODY} bytes is not searched"))
            };
            match taken {
                Ok(value) => self.values[*place] = value,
                Err(what) => {
                    self.note(&what);
                    return Reply { error: Some(ErrorKind::NotExtracted), ..reply };
                }
            }
        }
        Reply { error: None, ..reply }
    }
}

impl Client for SequenceClient {
    fn draw(&mut self) -> (usize, u64) {
        let mut random = self.random.borrow_mut();
        self.sequence = self.shared.mix.draw(&mut random);
        self.step = 0;
        self.jar.clear();
        self.shared.give(self.sequence, &mut self.values, &mut random);
        (self.sequence, 0)
    }

    async fn perform(
        &mut self,
        parts: &Parts<'_>,
        limit: Duration,
    ) -> Result<(Reply, u64), ErrorKind> {
        let shared = Arc::clone(&self.shared);
        let steps = &shared.plan.sequences[self.sequence].steps;
        let mut all = 0;
        for (place, step) in steps.iter().enumerate() {
            self.step = place;
            let part = shared.first[self.sequence] + place;
            parts.sent(part);
            let outcome = tokio::time::timeout(limit, self.exchange()).await;
            let outcome = outcome.unwrap_or(Err(ErrorKind::TimedOut));
            parts.ended(part, self.bytes_out, outcome);
            let (reply, bytes) = outcome.inspect_err(|kind| self.note(kind.name()))?;
            all += bytes;
            if reply.error.is_some() {
                return Ok((Reply { status: 0, ..reply }, all));
            }
            if let Some(think_time) = step.think_time.as_ref().filter(|_| place + 1 < steps.len()) {
                let time = think_time.sample(&mut *self.random.borrow_mut());
                parts.pause(&self.timer, kendall_units::Seconds::new(time).as_nanos()).await?;
            }
        }
        Ok((Reply::default(), all))
    }

    /// One step, redirects included.
    async fn exchange(&mut self) -> Result<(Reply, u64), ErrorKind> {
        let shared = Arc::clone(&self.shared);
        let step = &shared.plan.sequences[self.sequence].steps[self.step];
        self.bytes_out = 0;
        let Some(mut draft) = self.draft(step) else {
            self.note("a value does not fit into a header");
            return Ok((Reply::refused(ErrorKind::ClientError), 0));
        };
        let keeps = step.extract.iter().any(|(_, from)| from.needs_body());
        let (mut bytes, mut hops) = (0, 0);
        loop {
            let (head, body) = self.ask(&draft).await?.into_parts();
            self.body.clear();
            let kept = keeps.then_some((&mut self.body, MOST_BODY));
            let read = read(body, kept).await?;
            self.connection.replied(&shared.connector);
            bytes += read;
            for cookie in head.headers.get_all(SET_COOKIE) {
                self.jar.take(cookie);
            }
            let status = head.status.as_u16();
            let location = head.headers.get(LOCATION).filter(|_| {
                matches!(status, 301 | 302 | 303 | 307 | 308)
                    && !step.statuses.contains(&status)
                    && shared.plan.redirects > 0
            });
            let Some(location) = location else {
                let whole = self.body.len() as u64 == read;
                return Ok((self.judge(status, &head.headers, whole), bytes));
            };
            let place = follow(&shared.origin, &draft.path, location.as_bytes());
            let wrong = match place {
                Err(what) => Some(what),
                Ok(_) if hops == shared.plan.redirects => {
                    Some(format!("redirected more than {hops} times"))
                }
                Ok(path) => {
                    draft.turn_to(path, status);
                    None
                }
            };
            if let Some(what) = wrong {
                self.note(&what);
                return Ok((Reply { status, ..Reply::refused(ErrorKind::Redirected) }, bytes));
            }
            hops += 1;
        }
    }

    fn failed(&mut self, _kind: ErrorKind) {
        self.connection.close();
    }

    fn sent_anew(&mut self) -> u64 {
        self.connection.sent_anew.take()
    }
}

impl Draft {
    /// Asks for what a redirect names: anew, or in the same way (RFC 9110 §15.4).
    fn turn_to(&mut self, path: String, status: u16) {
        self.path = path;
        let asks_anew = status == 303 || matches!(status, 301 | 302) && self.method == Method::POST;
        if asks_anew && self.method != Method::HEAD {
            self.method = Method::GET;
            self.body = Bytes::new();
            self.headers.remove(hyper::header::CONTENT_TYPE);
        }
    }
}

/// The path that a `Location` names, seen from another path of the same host.
fn follow(origin: &Url, from: &str, location: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(location);
    let text = text.split('#').next().unwrap_or_default();
    let elsewhere = || format!("redirected to `{text}`, which is not on the host of the load");
    let absolute = match text.strip_prefix("//") {
        Some(_) => Some(format!("{}:{text}", if origin.tls { "https" } else { "http" })),
        None => text
            .split_once("://")
            .filter(|(scheme, _)| !scheme.contains(['/', '?']))
            .map(|_| text.to_owned()),
    };
    if let Some(absolute) = absolute {
        let url = Url::parse(&absolute).map_err(|_| elsewhere())?;
        let same = (url.tls, &url.host, url.port) == (origin.tls, &origin.host, origin.port);
        return if same { Ok(url.path) } else { Err(elsewhere()) };
    }
    let base = from.split('?').next().unwrap_or_default();
    let joined = match text.chars().next() {
        None => from.to_owned(),
        Some('/') => text.to_owned(),
        Some('?') => format!("{base}{text}"),
        Some(_) => format!("{}/{text}", base.rsplit_once('/').map_or("", |(folder, _)| folder)),
    };
    let path = without_dots(&joined);
    Url::parse(&format!("host{path}")).map(|url| url.path).map_err(|_| elsewhere())
}

/// Takes `.` and `..` out of a path (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let (path, query) = path.find('?').map_or((path, ""), |at| path.split_at(at));
    let mut segments: Vec<&str> = Vec::new();
    let ends_in_folder = matches!(path.rsplit('/').next(), Some("." | ".."));
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    if ends_in_folder {
        segments.push("");
    }
    format!("/{}{query}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_followed_on_its_own_host_only() {
        let origin = Url::parse("http://shop.example:8080").unwrap();
        let follow = |from: &str, to: &str| follow(&origin, from, to.as_bytes()).ok();
        for (to, path) in [
            ("/b", "/b"),
            ("b?y=2#c", "/a/b?y=2"),
            ("?y=2", "/a/x?y=2"),
            ("../c", "/c"),
            ("../../../c/./d/..", "/c/"),
            ("http://shop.example:8080/b?x=1", "/b?x=1"),
            ("//shop.example:8080/b", "/b"),
            ("HTTP://SHOP.example:8080/", "/"),
            ("/to?next=http://other/", "/to?next=http://other/"),
        ] {
            let lower = to.to_ascii_lowercase();
            assert_eq!(follow("/a/x?q=1", &lower).as_deref(), Some(path), "{to}");
        }
        let elsewhere =
            ["http://shop.example/b", "https://shop.example:8080/", "//other/", "http://[", "/a b"];
        for to in elsewhere {
            assert_eq!(follow("/a", to), None, "{to}");
        }
    }
}
