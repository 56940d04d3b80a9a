//! The HTTP/1.1 driver: a request made from a template, and replies read as they come.
//!
//! TLS and HTTP/2 are not here: see the module `web`, which leaves both to libraries.

pub(crate) mod reply;
mod template;
mod url;

pub(crate) use template::{Part, split};
pub use template::{PlaceholderError, Template, Values};
pub use url::{Url, UrlError};

use crate::driver::{Driver, Progress, Reply};
use crate::random::Random;
use reply::ReplyReader;

#[derive(Debug, Clone)]
pub struct HttpPlan {
    pub method: String,
    /// Path and query, which may hold placeholders.
    pub path: String,
    /// `host:port` of the `Host` header.
    pub authority: String,
    /// Headers beside `Host`, `Content-Length` and `Connection`; values may hold placeholders.
    pub headers: Vec<(String, String)>,
    /// Body, which may hold placeholders.
    pub body: Vec<u8>,
    /// What stands for `{name}`.
    pub placeholders: Vec<(String, Values)>,
    /// One request after the other on a connection, or a connection for each.
    pub keep_alive: bool,
}

/// A header, method or path that HTTP does not allow.
#[derive(Debug, thiserror::Error)]
pub enum HttpPlanError {
    #[error("`{method}` is not a method; write it like `GET` or `POST`")]
    Method { method: String },
    #[error("`{header}` is not a header; write it like `Accept: application/json`")]
    Header { header: String },
    #[error("the header `{header}` follows from the request; {remedy}")]
    OwnHeader { header: String, remedy: &'static str },
    #[error(transparent)]
    Placeholder(#[from] PlaceholderError),
}

impl HttpPlan {
    /// Reads a header such as `Accept: application/json`.
    pub fn parse_header(text: &str) -> Result<(String, String), HttpPlanError> {
        let refuse = || HttpPlanError::Header { header: text.to_owned() };
        let (name, value) = text.split_once(':').ok_or_else(refuse)?;
        let value = value.trim();
        if !is_token(name) || value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(refuse());
        }
        let remedy = match name.to_ascii_lowercase().as_str() {
            "content-length" | "transfer-encoding" => "give the body alone",
            "connection" => "use `--no-keep-alive`",
            _ => return Ok((name.to_owned(), value.to_owned())),
        };
        Err(HttpPlanError::OwnHeader { header: name.to_owned(), remedy })
    }

    /// Checks the plan and makes the template of its requests.
    pub fn template(&self) -> Result<Template, HttpPlanError> {
        if !is_token(&self.method) {
            return Err(HttpPlanError::Method { method: self.method.clone() });
        }
        let mut head = vec![format!("{} {} HTTP/1.1\r\n", self.method, self.path)];
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push(format!("Host: {}\r\n", self.authority));
        }
        head.extend(self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
        if !self.keep_alive {
            head.push("Connection: close\r\n".to_owned());
        }
        let has_body =
            !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        Ok(Template::new(
            head.concat().as_bytes(),
            has_body.then_some(&self.body),
            &self.placeholders,
        )?)
    }
}

/// A token of RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// The HTTP/1.1 driver of one thread.
#[derive(Debug)]
pub struct Http<'a> {
    plan: &'a HttpPlan,
    template: &'a Template,
    random: Random,
    body: Vec<u8>,
}

impl<'a> Http<'a> {
    /// A driver that draws placeholders from `random`.
    pub fn new(plan: &'a HttpPlan, template: &'a Template, random: Random) -> Self {
        Self { plan, template, random, body: Vec::new() }
    }
}

/// The reply that a connection waits for.
#[derive(Debug, Default)]
pub struct HttpPending {
    reader: ReplyReader,
}

impl Driver for Http<'_> {
    type Pending = HttpPending;

    fn operations(&self) -> Vec<String> {
        vec![self.plan.method.clone()]
    }

    fn write(&mut self, pending: &mut HttpPending, out: &mut Vec<u8>) -> usize {
        pending.reader = ReplyReader::new(self.plan.method == "HEAD", self.plan.keep_alive);
        self.template.write(&mut self.random, &mut self.body, out);
        0
    }

    fn read(&mut self, pending: &mut HttpPending, input: &[u8]) -> Progress {
        pending.reader.read(input)
    }

    fn end_of_input(&mut self, pending: &mut HttpPending) -> Option<Reply> {
        pending.reader.end_of_input()
    }
}
