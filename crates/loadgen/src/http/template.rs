//! Requests with placeholders: `{difficulty}` in the path, a header or the body is replaced by a
//! value drawn anew for every request.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kendall_tier::distribution::{Distribution, DistributionError, Unit, index_below};

use crate::random::Random;

/// What a placeholder stands for.
#[derive(Debug, Clone)]
pub enum Values {
    /// A number, rounded to a whole one; a draw above the most is the most.
    Number(Distribution, Option<u64>),
    /// One of these lines, each as likely.
    Lines(Vec<String>),
    /// These lines in turn, over all threads: how many were taken.
    Turns(Arc<AtomicU64>, Arc<Vec<String>>),
    /// Whole numbers in turn, over all threads: how many were drawn, the first, and the last before the first again.
    Sequence(Arc<AtomicU64>, u64, u64),
}

/// Stands between a distribution and the largest number that is sent.
const AT_MOST: &str = " at most ";

#[derive(Debug, thiserror::Error)]
pub enum PlaceholderError {
    #[error(
        "`{text}` is not a placeholder; write it like `difficulty=normal:20,5` or `id=file:PATH`"
    )]
    Form { text: String },
    #[error("placeholder `{name}`")]
    Values { name: String, source: DistributionError },
    #[error(
        "placeholder `{name}`: `{most}` is not a whole number; write it like `exponential:300000 at most 1000000`"
    )]
    Most { name: String, most: String },
    #[error(
        "placeholder `{name}`: `{range}` is not a range of whole numbers; write it like `sequential:1..1000`"
    )]
    Sequence { name: String, range: String },
    #[error("placeholder `{name}`: cannot read lines from `{path}`")]
    File { name: String, path: String, source: std::io::Error },
    #[error("placeholder `{name}` is given twice; each --vary names another one")]
    Twice { name: String },
    #[error("`{{{name}}}` is not in the URL, the headers or the body")]
    Unused { name: String },
}

impl Values {
    /// Reads `NAME=VALUES`, where the values are a distribution of numbers or the lines of a file.
    pub fn parse(text: &str) -> Result<(String, Self), PlaceholderError> {
        let (name, values) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty() && !name.contains(['{', '}']))
            .ok_or_else(|| PlaceholderError::Form { text: text.to_owned() })?;
        let name = name.to_owned();
        if let Some(path) = values.strip_prefix("file:") {
            let read = kendall_tier::read_text(Path::new(path), kendall_tier::LARGEST_FILE)
                .and_then(|text| {
                    let lines: Vec<String> =
                        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
                    let empty =
                        || std::io::Error::new(std::io::ErrorKind::InvalidData, "it has no lines");
                    (!lines.is_empty()).then_some(lines).ok_or_else(empty)
                });
            return match read {
                Ok(lines) => Ok((name, Self::Lines(lines))),
                Err(source) => Err(PlaceholderError::File { name, path: path.to_owned(), source }),
            };
        }
        if let Some(range) = values.strip_prefix("sequential:") {
            let ends = range.split_once("..").and_then(|(low, high)| {
                Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
            });
            return match ends {
                Some((low, high)) if low <= high => {
                    Ok((name, Self::Sequence(Arc::default(), low, high)))
                }
                _ => Err(PlaceholderError::Sequence { name, range: range.to_owned() }),
            };
        }
        let (drawn, most) = match values.split_once(AT_MOST) {
            None => (values, None),
            Some((drawn, most)) => match most.trim().parse() {
                Ok(most) => (drawn, Some(most)),
                Err(_) => return Err(PlaceholderError::Most { name, most: most.to_owned() }),
            },
        };
        match Distribution::parse(drawn, Unit::Number) {
            Ok(distribution) => Ok((name, Self::Number(distribution, most))),
            Err(source) => Err(PlaceholderError::Values { name, source }),
        }
    }

    /// Lines that requests take in turn, over all threads.
    pub fn in_turn(lines: Vec<String>) -> Self {
        Self::Turns(Arc::default(), Arc::new(lines))
    }

    /// Begins a sequence again.
    pub(crate) fn restart(&self) {
        if let Self::Sequence(drawn, ..) | Self::Turns(drawn, _) = self {
            drawn.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn write(&self, random: &mut Random, out: &mut Vec<u8>) {
        match self {
            Self::Number(distribution, most) => {
                let drawn = kendall_units::whole_u64(distribution.sample(random).round());
                let number = most.map_or(drawn, |most| drawn.min(most));
                write!(out, "{number}").unwrap_or_default();
            }
            Self::Sequence(drawn, low, high) => {
                let turn = drawn.fetch_add(1, Ordering::Relaxed);
                let count = (high - low).saturating_add(1);
                write!(out, "{}", low + turn % count).unwrap_or_default();
            }
            Self::Turns(taken, lines) => {
                let turn = taken.fetch_add(1, Ordering::Relaxed);
                let turns = (lines.len() as u64).max(1);
                let line = usize::try_from(turn % turns).ok().and_then(|at| lines.get(at));
                out.extend_from_slice(line.map_or(&[], |line| line.as_bytes()));
            }
            Self::Lines(lines) => {
                out.extend_from_slice(lines[index_below(random, lines.len())].as_bytes());
            }
        }
    }
}

/// A piece of a text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(Vec<u8>),
    Placeholder(usize),
}

/// A request with placeholders, taken apart once.
#[derive(Debug, Clone)]
pub struct Template {
    head: Vec<Part>,
    body: Option<Vec<Part>>,
    values: Vec<Values>,
}

impl Template {
    /// Takes a head (request line and headers, without the empty line) and a body apart.
    pub fn new(
        head: &[u8],
        body: Option<&Vec<u8>>,
        placeholders: &[(String, Values)],
    ) -> Result<Self, PlaceholderError> {
        let names: Vec<&str> = placeholders.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            return Err(PlaceholderError::Twice { name: names[at].to_owned() });
        }
        let head = split(head, &names);
        let body = body.map(|body| split(body, &names));
        for (index, name) in names.iter().enumerate() {
            let parts = head.iter().chain(body.iter().flatten());
            let used = |part: &Part| matches!(part, Part::Placeholder(at) if *at == index);
            if !parts.into_iter().any(used) {
                return Err(PlaceholderError::Unused { name: (*name).to_owned() });
            }
        }
        let values = placeholders.iter().map(|(_, values)| values.clone()).collect();
        let mut template = Self { head, body, values };
        template.settle();
        Ok(template)
    }

    /// Joins to the head what does not change from request to request.
    fn settle(&mut self) {
        let end: Vec<u8> = match self.body.as_deref() {
            None => b"\r\n".to_vec(),
            Some([]) => b"Content-Length: 0\r\n\r\n".to_vec(),
            Some([Part::Literal(body)]) => {
                let mut end = format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes();
                end.extend_from_slice(body);
                end
            }
            Some(_) => return,
        };
        self.body = None;
        match self.head.last_mut() {
            Some(Part::Literal(last)) => last.extend_from_slice(&end),
            _ => self.head.push(Part::Literal(end)),
        }
    }

    /// Appends one request to `out`. A placeholder that stands in several places has its own draw
    /// in each. `body` is a place to work in.
    pub fn write(&self, random: &mut Random, body: &mut Vec<u8>, out: &mut Vec<u8>) {
        self.write_parts(&self.head, random, out);
        if let Some(parts) = &self.body {
            body.clear();
            self.write_parts(parts, random, body);
            write!(out, "Content-Length: {}\r\n\r\n", body.len()).unwrap_or_default();
            out.extend_from_slice(body);
        }
    }

    fn write_parts(&self, parts: &[Part], random: &mut Random, out: &mut Vec<u8>) {
        for part in parts {
            match part {
                Part::Literal(bytes) => out.extend_from_slice(bytes),
                Part::Placeholder(index) => self.values[*index].write(random, out),
            }
        }
    }
}

/// Takes a text apart at `{name}` of the given names. Other braces, as JSON has them, stay.
pub(crate) fn split(text: &[u8], names: &[&str]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let found = names.iter().enumerate().find_map(|(index, name)| {
            let behind = after.strip_prefix(name.as_bytes())?.strip_prefix(b"}")?;
            Some((index, behind))
        });
        match found {
            Some((index, behind)) if *byte == b'{' => {
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(Part::Placeholder(index));
                rest = behind;
            }
            _ => {
                literal.push(*byte);
                rest = after;
            }
        }
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, stream};

    fn request(head: &str, body: Option<&str>, placeholders: &[&str]) -> String {
        let placeholders: Vec<(String, Values)> =
            placeholders.iter().map(|text| Values::parse(text).unwrap()).collect();
        let body = body.map(|body| body.as_bytes().to_vec());
        let template = Template::new(head.as_bytes(), body.as_ref(), &placeholders).unwrap();
        let mut out = Vec::new();
        template.write(&mut stream(1, Purpose::Requests, 0), &mut Vec::new(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_draw_above_the_most_is_the_most_and_others_stay_as_they_are() {
        let drawn = |values: &str| -> Vec<u64> {
            let (_, values) = Values::parse(values).unwrap();
            let mut random = stream(1, Purpose::Requests, 0);
            let one = |_| {
                let mut out = Vec::new();
                values.write(&mut random, &mut out);
                String::from_utf8(out).unwrap().parse().unwrap()
            };
            (0..1000).map(one).collect()
        };
        let (free, bounded) = (drawn("n=exponential:300"), drawn("n=exponential:300 at most 1000"));
        assert!(free.iter().any(|n| *n > 1000) && bounded.contains(&1000));
        assert!(free.iter().zip(&bounded).all(|(free, bounded)| (*free).min(1000) == *bounded));
        assert!(Values::parse("n=exponential:300 at most many").is_err());
    }

    #[test]
    fn a_sequence_has_each_number_in_turn_and_begins_again() {
        let (_, values) = Values::parse("id=sequential:7..9").unwrap();
        let copies = [values.clone(), values];
        let mut out = Vec::new();
        for turn in 0..5 {
            copies[turn % 2].write(&mut stream(1, Purpose::Requests, 0), &mut out);
        }
        assert_eq!(out, b"78978");
        assert!(Values::parse("id=sequential:9..7").is_err());
    }

    #[test]
    fn placeholders_are_replaced_and_other_braces_stay() {
        let text = request(
            "POST /{n}?{x} HTTP/1.1\r\n",
            Some(r#"{"n":{n},"m":{}}"#),
            &["n=constant:12.4"],
        );
        let expected = "POST /12?{x} HTTP/1.1\r\nContent-Length: 15\r\n\r\n{\"n\":12,\"m\":{}}";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_request_without_placeholders_is_one_piece() {
        assert_eq!(request("GET / HTTP/1.1\r\n", None, &[]), "GET / HTTP/1.1\r\n\r\n");
        assert_eq!(
            request("PUT / HTTP/1.1\r\n", Some("ab"), &[]),
            "PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"
        );
    }

    #[test]
    fn a_placeholder_that_stands_nowhere_is_refused() {
        let placeholders = [Values::parse("d=7").unwrap()];
        let error = Template::new(b"GET / HTTP/1.1\r\n", None, &placeholders).unwrap_err();
        assert_eq!(error.to_string(), "`{d}` is not in the URL, the headers or the body");
        let twice = [Values::parse("d=7").unwrap(), Values::parse("d=8").unwrap()];
        let error = Template::new(b"GET /{d} HTTP/1.1\r\n", None, &twice).unwrap_err();
        assert!(error.to_string().contains("`d` is given twice"), "{error}");
    }
}
