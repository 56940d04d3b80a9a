//! One client connection: bytes in, requests found, answers in their order, bytes out.

#[cfg(feature = "fuzzing")]
#[path = "../../../../fuzz/inside/head.rs"]
pub mod fuzzing;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use kendall_tier::{Endpoint, Moments, Read, Write};

use crate::station::Visit;

const HEAD_BYTES: usize = 8 * 1024;
const HEADERS: usize = 64;
/// Bytes of a body, which is read and forgotten.
const BODY_BYTES: usize = 64 * 1024;
/// Requests of one connection that are answered at a time; further ones stay in the kernel.
const PIPELINED: usize = 128;
pub(crate) const READ_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) end: Endpoint,
    input: Vec<u8>,
    /// Answers in the order of their requests; the first may not be there yet.
    answers: VecDeque<Answer>,
    /// Number of the first of `answers` since the connection began.
    first: u64,
    output: Vec<u8>,
    written: usize,
    /// Visits whose answer is in `output`.
    leaving: Vec<Visit>,
    /// Nothing more is read; the connection ends when all is answered.
    closing: bool,
}

#[derive(Debug)]
enum Answer {
    /// The station has it.
    Waited,
    /// It may be sent when those before it are.
    Ready { bytes: Vec<u8>, visit: Option<Visit> },
}

/// A request that was found in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A request for the station.
    Visit,
    Health,
    /// What is answered with this status, and ends the connection.
    Refused(u16, &'static str),
}

/// Whether a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alive {
    Yes,
    No,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            end: Endpoint::new(socket),
            input: Vec::new(),
            answers: VecDeque::new(),
            first: 0,
            output: Vec::new(),
            written: 0,
            leaving: Vec::new(),
            closing: false,
        }
    }

    /// Whether a read may find something and its requests have space.
    pub(crate) fn wants_to_read(&self) -> bool {
        self.end.is_readable() && !self.closing && self.answers.len() < PIPELINED
    }

    /// Reads once into `scratch`; the number of bytes.
    pub(crate) fn read(&mut self, scratch: &mut [u8]) -> Result<usize, Alive> {
        match self.end.read(scratch) {
            Read::Closed => {
                // The client sends no more, but may wait for answers.
                self.closing = true;
                Ok(0)
            }
            Read::Bytes(count) => {
                self.input.extend_from_slice(&scratch[..count]);
                Ok(count)
            }
            Read::Nothing => Ok(0),
            Read::Reset => Err(Alive::No),
        }
    }

    /// The next request in what was read, taken out of it; `None` when there is no whole one.
    pub(crate) fn next_request(&mut self) -> Option<Found> {
        if self.closing && self.input.is_empty() || self.answers.len() >= PIPELINED {
            return None;
        }
        let (found, used, close) = parse(&self.input)?;
        self.input.drain(..used);
        if close {
            self.closing = true;
            self.input.clear();
        }
        Some(found)
    }

    /// Reserves the place of an answer; its number.
    pub(crate) fn reserve(&mut self) -> u64 {
        self.answers.push_back(Answer::Waited);
        self.first + as_u64(self.answers.len()) - 1
    }

    /// Puts an answer into its place.
    pub(crate) fn answer(&mut self, number: u64, bytes: Vec<u8>, visit: Option<Visit>) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some(answer) = place.and_then(|place| self.answers.get_mut(place)) {
            *answer = Answer::Ready { bytes, visit };
        }
        while matches!(self.answers.front(), Some(Answer::Ready { .. })) {
            let Some(Answer::Ready { bytes, visit }) = self.answers.pop_front() else { return };
            self.first += 1;
            self.output.extend_from_slice(&bytes);
            self.leaving.extend(visit);
        }
    }

    /// Writes what may leave; calls `replied` for each visit whose answer is in the kernel now.
    pub(crate) fn write(
        &mut self,
        now_ns: impl Fn() -> u64,
        mut replied: impl FnMut(&Moments, u64),
        mut sent: impl FnMut(usize),
    ) -> Alive {
        while self.end.is_writable() && self.written < self.output.len() {
            match self.end.write(&self.output[self.written..]) {
                Write::Bytes(count) => {
                    self.written += count;
                    sent(count);
                }
                Write::Nothing => {}
                Write::Reset => return Alive::No,
            }
        }
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
            if !self.leaving.is_empty() {
                let replied_ns = now_ns();
                for visit in self.leaving.drain(..) {
                    let moments = Moments {
                        arrived_ns: visit.arrived_ns,
                        dequeued_ns: visit.begins_ns,
                        backend: None,
                        replied_ns,
                    };
                    replied(&moments, visit.ends_ns);
                }
            }
            // What is left of the input is not a whole request.
            if self.closing && self.answers.is_empty() {
                return Alive::No;
            }
        }
        Alive::Yes
    }

    /// Answers all that the station has; so many are they.
    pub(crate) fn refuse_rest(&mut self, refusal: &[u8]) -> u64 {
        let waited = |place: &u64| {
            let place = usize::try_from(*place).ok();
            place.is_some_and(|place| matches!(self.answers.get(place), Some(Answer::Waited)))
        };
        let places: Vec<u64> = (0..as_u64(self.answers.len())).filter(waited).collect();
        let first = self.first;
        for place in &places {
            self.answer(first + place, refusal.to_vec(), None);
        }
        as_u64(places.len())
    }

    /// Nothing more is read; what was asked is answered.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        self.input.clear();
    }
}

/// A request at the begin of `input`: its kind, its bytes, and whether the connection ends with
/// it; `None` when more bytes are needed.
fn parse(input: &[u8]) -> Option<(Found, usize, bool)> {
    let refused = |status, why| Some((Found::Refused(status, why), input.len(), true));
    if input.is_empty() {
        return None;
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(input) {
        Ok(httparse::Status::Complete(head)) if head <= HEAD_BYTES => head,
        Ok(httparse::Status::Partial) if input.len() < HEAD_BYTES => return None,
        Ok(_) => return refused(431, "the head of the request is too large"),
        Err(httparse::Error::TooManyHeaders) => return refused(431, "there are too many headers"),
        Err(_) => return refused(400, "this is not an HTTP/1.1 request"),
    };
    let hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let named = request.path.is_some_and(|target| !target.starts_with(['/', '*']));
    let hosts = hosts.map(|header| header.value);
    if !kendall_tier::is_host(request.version == Some(1), named, hosts) {
        return refused(400, "`Host` names one host, with a port or without");
    }
    let mut body = None;
    let mut close = request.version == Some(0);
    for header in request.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or("").trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            match value.parse::<usize>() {
                Ok(length) if body.is_some_and(|before| before != length) => {
                    return refused(400, "there are two content lengths");
                }
                Ok(length) if length <= BODY_BYTES => body = Some(length),
                Ok(_) => return refused(413, "the body is too large"),
                Err(_) => return refused(400, "the content length is not a number"),
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return refused(411, "send a content length; chunked bodies are not taken");
        } else if header.name.eq_ignore_ascii_case("connection") {
            close |= value.eq_ignore_ascii_case("close");
            close &= !value.eq_ignore_ascii_case("keep-alive");
        }
    }
    let found = match (request.method, request.path) {
        (Some("GET"), Some("/health")) => Found::Health,
        (Some("GET" | "POST"), _) => Found::Visit,
        _ => return refused(405, "only GET and POST are served"),
    };
    let whole = head + body.unwrap_or(0);
    (input.len() >= whole).then_some((found, whole, close))
}

pub(crate) fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_whole_and_only_whole() {
        let request = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabcGET";
        for end in 0..request.len() - 3 {
            assert_eq!(parse(&request[..end]), None, "{end} bytes");
        }
        assert_eq!(parse(request), Some((Found::Visit, request.len() - 3, false)));
    }

    #[test]
    fn what_is_not_served_is_refused_with_its_status() {
        let status = |input: &str| match parse(input.as_bytes()) {
            Some((Found::Refused(status, _), _, true)) => status,
            other => panic!("{input:?}: {other:?}"),
        };
        assert_eq!(status("\u{0}\u{1}\r\n\r\n"), 400);
        assert_eq!(status("PUT / HTTP/1.1\r\nhost: a\r\n\r\n"), 405);
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a b/\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"), 411);
        assert_eq!(status("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n"), 413);
        let lengths = "content-length: 1\r\ncontent-length: 2";
        assert_eq!(status(&format!("POST / HTTP/1.1\r\nhost: a\r\n{lengths}\r\n\r\nab")), 400);
        assert_eq!(status(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(9000))), 431);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65))), 431);
        assert_eq!(
            parse(b"GET / HTTP/1.0\r\n\r\n").map(|(found, _, close)| (found, close)),
            Some((Found::Visit, true))
        );
    }
}
