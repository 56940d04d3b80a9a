//! Values that later requests take from a reply.

use hyper::HeaderMap;
use regex::bytes::Regex;

use super::cookies::Jar;

/// Bytes of a value that is taken.
const MOST_BYTES: usize = 64 << 10;

/// Where a value is taken from.
#[derive(Debug, Clone)]
pub(super) enum Extraction {
    /// A pointer into a JSON body (RFC 6901).
    Json(String),
    Header(String),
    Cookie(String),
    /// The first group of the first match in the body, or all of the match.
    Regex(Regex),
}

/// A reply as extractions see it.
pub(super) struct Answer<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) jar: &'a Jar,
    pub(super) body: &'a [u8],
}

impl Extraction {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let refuse = || {
            let forms = "`json:/pointer`, `header:NAME`, `cookie:NAME` or `regex:PATTERN`";
            format!("`{text}` is not where a value is taken from; write {forms}")
        };
        let (from, what) = text.split_once(':').ok_or_else(refuse)?;
        match from {
            "json" if what.is_empty() || what.starts_with('/') => Ok(Self::Json(what.to_owned())),
            "header" if !what.is_empty() => Ok(Self::Header(what.to_owned())),
            "cookie" if !what.is_empty() => Ok(Self::Cookie(what.to_owned())),
            "regex" if !what.is_empty() => Regex::new(what)
                .map(Self::Regex)
                .map_err(|error| error.to_string().replace('\n', " ")),
            _ => Err(refuse()),
        }
    }

    pub(super) fn needs_body(&self) -> bool {
        matches!(self, Self::Json(_) | Self::Regex(_))
    }

    /// The value, or what is not there.
    pub(super) fn take(&self, answer: &Answer<'_>) -> Result<Vec<u8>, String> {
        let value = match self {
            Self::Json(pointer) => {
                let json: serde_json::Value = serde_json::from_slice(answer.body)
                    .map_err(|error| format!("the body is not JSON: {error}"))?;
                match json.pointer(pointer) {
                    None | Some(serde_json::Value::Null) => {
                        return Err(format!("the body has nothing at `{pointer}`"));
                    }
                    Some(serde_json::Value::String(text)) => text.clone().into_bytes(),
                    Some(other) => other.to_string().into_bytes(),
                }
            }
            Self::Header(name) => {
                let header = answer.headers.get(name.as_str());
                header.ok_or_else(|| format!("there is no header `{name}`"))?.as_bytes().to_vec()
            }
            Self::Cookie(name) => {
                let value = answer.jar.value(name);
                value.ok_or_else(|| format!("there is no cookie `{name}`"))?.to_vec()
            }
            Self::Regex(regex) => {
                let found = regex.captures(answer.body);
                let found = found.and_then(|groups| groups.get(1).or_else(|| groups.get(0)));
                found.ok_or_else(|| format!("nothing matches `{regex}`"))?.as_bytes().to_vec()
            }
        };
        if value.len() > MOST_BYTES {
            return Err(format!("{} bytes are too long a value", value.len()));
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderValue, LOCATION};

    use super::*;

    fn take(from: &str, body: &str) -> Result<String, String> {
        let (mut headers, mut jar) = (HeaderMap::new(), Jar::default());
        headers.insert(LOCATION, HeaderValue::from_static("/orders/7"));
        jar.take(&HeaderValue::from_static("id=abc; Path=/"));
        let answer = Answer { headers: &headers, jar: &jar, body: body.as_bytes() };
        let taken = Extraction::parse(from)?.take(&answer)?;
        Ok(String::from_utf8_lossy(&taken).into_owned())
    }

    #[test]
    fn values_are_taken_from_each_place_and_what_is_missing_is_named() {
        let json = r#"{"token": "x y", "items": [{"id": 7}, {"id": null}], "on": true}"#;
        assert_eq!(take("json:/token", json).unwrap(), "x y");
        assert_eq!(take("json:/items/0/id", json).unwrap(), "7");
        assert_eq!(take("json:/items/0", json).unwrap(), r#"{"id":7}"#);
        assert!(take("json:/items/1/id", json).unwrap_err().contains("nothing at"));
        assert!(take("json:/token", "<html>").unwrap_err().contains("is not JSON"));
        let deep = "[".repeat(100_000);
        assert!(take("json:/0", &deep).unwrap_err().contains("is not JSON"));
        assert_eq!(take("header:location", "").unwrap(), "/orders/7");
        assert!(take("header:etag", "").unwrap_err().contains("no header `etag`"));
        assert_eq!(take("cookie:id", "").unwrap(), "abc");
        assert!(take("cookie:other", "").is_err());
        assert_eq!(take(r#"regex:value="(\d+)""#, r#"<input value="42">"#).unwrap(), "42");
        assert_eq!(take(r"regex:\d+", "a 42 b").unwrap(), "42");
        assert!(take(r"regex:\d+", "none").unwrap_err().contains("nothing matches"));
        assert!(take(r"regex:(?s).*", &"x".repeat(MOST_BYTES + 1)).is_err());
        for wrong in ["token", "json:token", "regex:(", "xpath:/a", "header:"] {
            assert!(Extraction::parse(wrong).is_err(), "{wrong}");
        }
    }
}
