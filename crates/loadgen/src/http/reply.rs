//! Reads HTTP/1.1 replies as they come, in pieces of any size (RFC 9112).

use crate::driver::{ErrorKind, Progress, Reply};

/// Longest head of a reply, and longest line of a chunked body.
const LONGEST_HEAD: usize = 16 << 10;

const MOST_HEADERS: usize = 96;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Next {
    #[default]
    Head,
    /// This many bytes of the body, and then the end.
    Body(u64),
    /// The line with the size of a chunk.
    ChunkSize,
    /// This many bytes of a chunk, its line end included.
    Chunk(u64),
    /// Trailers, up to an empty line.
    Trailers,
    /// Everything until the server closes.
    UntilClosed,
}

#[derive(Debug, Default)]
pub(crate) struct ReplyReader {
    head_only: bool,
    next: Next,
    error: Option<ErrorKind>,
    status: u16,
    close: bool,
}

impl ReplyReader {
    pub(crate) fn new(head_only: bool, keep_alive: bool) -> Self {
        Self { head_only, close: !keep_alive, ..Self::default() }
    }

    pub(crate) fn read(&mut self, input: &[u8]) -> Progress {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let step = match self.next {
                Next::Head => self.head(rest),
                Next::Body(left) => {
                    let taken = (rest.len() as u64).min(left);
                    self.next = Next::Body(left - taken);
                    Step::Taken { bytes: rest.len().min(as_usize(left)), end: taken == left }
                }
                Next::Chunk(left) => self.chunk(left, rest),
                Next::ChunkSize => self.chunk_size(rest),
                Next::Trailers => match line(rest) {
                    Line::Complete { text: b"", bytes } => Step::Taken { bytes, end: true },
                    Line::Complete { bytes, .. } => Step::taken(bytes),
                    Line::Partial => Step::Partial,
                    Line::TooLong => Step::Garbage,
                },
                Next::UntilClosed => Step::taken(rest.len()),
            };
            match step {
                Step::Garbage => return self.done(consumed, Some(ErrorKind::Garbage)),
                Step::Partial => return Progress { consumed, reply: None },
                Step::Taken { bytes, end } => {
                    consumed += bytes;
                    if end {
                        return self.done(consumed, None);
                    }
                    if bytes == 0 || consumed == input.len() {
                        return Progress { consumed, reply: None };
                    }
                }
            }
        }
    }

    /// The server closed: the end of a body without a length, and of nothing else.
    pub(super) fn end_of_input(&self) -> Option<Reply> {
        (self.next == Next::UntilClosed).then_some(Reply {
            error: self.error,
            status: self.status,
            close: true,
            ..Reply::default()
        })
    }

    fn done(&self, consumed: usize, garbage: Option<ErrorKind>) -> Progress {
        let reply = Reply {
            error: garbage.or(self.error),
            status: if garbage.is_some() { 0 } else { self.status },
            close: self.close || garbage.is_some(),
            ..Reply::default()
        };
        Progress { consumed, reply: Some(reply) }
    }

    fn head(&mut self, rest: &[u8]) -> Step {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let bytes = match response.parse(rest) {
            Ok(httparse::Status::Complete(bytes)) if bytes <= LONGEST_HEAD => bytes,
            Ok(httparse::Status::Partial) if rest.len() <= LONGEST_HEAD => return Step::Partial,
            Ok(_) | Err(_) => return Step::Garbage,
        };
        let status = response.code.unwrap_or(0);
        let Some(body) = Body::of(response.headers) else { return Step::Garbage };
        match status {
            // Interim; the answer follows. No switch of protocols was asked for.
            100..=199 if status != 101 => return Step::taken(bytes),
            101 => self.error = Some(ErrorKind::Status1xx),
            200..=299 => {}
            300..=399 => self.error = Some(ErrorKind::Status3xx),
            400..=499 => self.error = Some(ErrorKind::Status4xx),
            500..=599 => self.error = Some(ErrorKind::Status5xx),
            _ => return Step::Garbage,
        }
        self.status = status;
        self.close |=
            body.close || status == 101 || (response.version == Some(0) && !body.keep_alive);
        if self.head_only
            || matches!(status, 101 | 204 | 304)
            || body.length == Some(0) && !body.chunked
        {
            return Step::Taken { bytes, end: true };
        }
        self.next = match body.length {
            _ if body.chunked => Next::ChunkSize,
            Some(length) => Next::Body(length),
            None => Next::UntilClosed,
        };
        Step::taken(bytes)
    }

    /// A piece of a chunk, or of the line end after it.
    fn chunk(&mut self, left: u64, rest: &[u8]) -> Step {
        let taken = rest.len().min(as_usize(left));
        let after = left - taken as u64;
        // The last two bytes of what was left when this piece began, as far as they are in it.
        let begin = as_usize(left.saturating_sub(2)).min(taken);
        let line_end = &b"\r\n"[2 - as_usize(left.min(2))..];
        if !line_end.starts_with(&rest[begin..taken]) {
            return Step::Garbage;
        }
        self.next = if after == 0 { Next::ChunkSize } else { Next::Chunk(after) };
        Step::taken(taken)
    }

    fn chunk_size(&mut self, rest: &[u8]) -> Step {
        let (text, bytes) = match line(rest) {
            Line::Complete { text, bytes } => (text, bytes),
            Line::Partial => return Step::Partial,
            Line::TooLong => return Step::Garbage,
        };
        let digits = text.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let size = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| !digits.starts_with('+'))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .filter(|size| *size < 1 << 62);
        match size {
            Some(0) => self.next = Next::Trailers,
            Some(size) => self.next = Next::Chunk(size + 2),
            None => return Step::Garbage,
        }
        Step::taken(bytes)
    }
}

enum Step {
    Taken { bytes: usize, end: bool },
    Partial,
    Garbage,
}

impl Step {
    fn taken(bytes: usize) -> Self {
        Self::Taken { bytes, end: false }
    }
}

enum Line<'a> {
    Complete { text: &'a [u8], bytes: usize },
    Partial,
    TooLong,
}

fn line(rest: &[u8]) -> Line<'_> {
    match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) if end <= LONGEST_HEAD => {
            let text = &rest[..end];
            Line::Complete { text: text.strip_suffix(b"\r").unwrap_or(text), bytes: end + 1 }
        }
        None if rest.len() <= LONGEST_HEAD => Line::Partial,
        Some(_) | None => Line::TooLong,
    }
}

/// How the body of a reply is delimited.
#[derive(Debug, Default)]
struct Body {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Body {
    /// `None` when the headers contradict one another.
    fn of(headers: &[httparse::Header<'_>]) -> Option<Self> {
        let mut body = Self::default();
        for header in headers {
            if header.name.eq_ignore_ascii_case("content-length") {
                let text = std::str::from_utf8(header.value).ok()?.trim();
                let length = text.parse().ok().filter(|_| !text.starts_with('+'))?;
                if body.length.is_some_and(|other| other != length) {
                    return None;
                }
                body.length = Some(length);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                body.chunked = has_token(header.value, b"chunked");
            } else if header.name.eq_ignore_ascii_case("connection") {
                body.close |= has_token(header.value, b"close");
                body.keep_alive |= has_token(header.value, b"keep-alive");
            }
        }
        Some(body)
    }
}

fn has_token(value: &[u8], token: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

fn as_usize(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_in_pieces(bytes: &[u8], piece: usize) -> Option<Reply> {
        let mut reader = ReplyReader::new(false, true);
        let mut kept: Vec<u8> = Vec::new();
        for chunk in bytes.chunks(piece) {
            kept.extend_from_slice(chunk);
            let progress = reader.read(&kept);
            kept.drain(..progress.consumed);
            if progress.reply.is_some() {
                assert!(kept.is_empty() || progress.reply.is_some_and(|reply| reply.close));
                return progress.reply;
            }
        }
        reader.end_of_input()
    }

    #[test]
    fn a_reply_reads_the_same_in_pieces_of_any_size() {
        let ok = Reply { status: 200, ..Reply::default() };
        let empty = Reply { status: 204, ..ok };
        let last = Reply { close: true, ..ok };
        let cases: &[(&[u8], Option<Reply>)] = &[
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", Some(ok)),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: close\r\n\r\n", Some(last)),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", Some(last)),
            (b"HTTP/1.1 204 No Content\r\n\r\n", Some(empty)),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", Some(empty)),
            (b"HTTP/1.1 200 OK\r\n\r\nuntil closed", Some(last)),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nT: v\r\n\r\n",
                Some(ok),
            ),
            (
                b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno",
                Some(Reply { status: 503, ..Reply::refused(ErrorKind::Status5xx) }),
            ),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", None),
        ];
        for (bytes, expected) in cases {
            for piece in 1..=bytes.len() {
                let text = String::from_utf8_lossy(bytes);
                assert_eq!(read_in_pieces(bytes, piece), *expected, "{text} by {piece}");
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_garbage() {
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'x'; LONGEST_HEAD]].concat();
        let cases: &[&[u8]] = &[
            b"STORED\r\n\r\n",
            b"HTTP/1.1 999 Odd\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\rX0\r\n\r\n",
            &endless,
        ];
        for bytes in cases {
            let reply = read_in_pieces(bytes, bytes.len());
            assert_eq!(reply, Some(Reply::broken(ErrorKind::Garbage)));
        }
    }
}
