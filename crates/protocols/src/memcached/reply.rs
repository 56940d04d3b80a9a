//! Replies: where one ends, without keeping its values.

use memchr::memchr;

use super::number::whole;
use super::request::{Command, Span, Store};

/// Longest line that a server may write before it counts as noise.
const REPLY_LINE_BYTES: usize = 8 << 10;

/// How a reply is put together; it follows from the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One line.
    Line,
    /// `VALUE` blocks until `END` or an error.
    Values,
    /// Lines until `END` or a line that is not a statistic.
    Stats,
    /// One line, with a value behind it when it is a `VA`.
    Meta,
    /// Any number of meta replies until `MN`: of a quiet command with an `mn` behind it.
    Quiet,
}

/// What a reply says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It was done: `STORED`, `DELETED`, `OK`, a number, `HD`, …
    Success,
    /// The end of values or statistics, or of a quiet command.
    End,
    /// The key was not there: `NOT_FOUND`, `NF`, `EN`.
    Miss,
    /// It was not done: `NOT_STORED`, `EXISTS`, `NS`, `EX`, and other refusals.
    Refused,
    /// `ERROR`, `CLIENT_ERROR`.
    ClientError,
    /// `SERVER_ERROR`.
    ServerError,
}

/// What a buffer begins with, in the middle of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// No whole line.
    Incomplete,
    /// A header of `header` bytes, then `data` bytes of value and its CR LF.
    Value {
        /// Bytes of the line.
        header: usize,
        /// Bytes of the value and the CR LF behind it.
        data: usize,
        /// The key, for `VALUE`.
        key: Span,
        /// The digits of the unique, if it shows one.
        unique: Option<Span>,
        /// Whether the reply ends with the value.
        last: bool,
    },
    /// A line of so many bytes after which the reply goes on.
    Part(usize),
    /// The line that ends the reply.
    Last {
        /// Bytes of the line.
        line: usize,
        /// What it says.
        status: Status,
    },
}

/// A reply that this protocol does not have: the stream can no longer be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum BadReply {
    #[error("a reply's line is longer than {REPLY_LINE_BYTES} bytes")]
    LongLine,
    #[error("a header of a value has no length")]
    Header,
    #[error("the flags of a value are no number of 32 bits")]
    Flags,
}

/// Parses the reply that `buffer` begins with.
///
/// # Errors
/// [`BadReply`] when it cannot be a reply of this framing.
pub fn element(framing: Framing, buffer: &[u8]) -> Result<Element, BadReply> {
    let Some(newline) = memchr(b'\n', buffer) else {
        if buffer.len() > REPLY_LINE_BYTES {
            return Err(BadReply::LongLine);
        }
        return Ok(Element::Incomplete);
    };
    let line = newline + 1;
    let text = &buffer[..line];
    match framing {
        Framing::Values if text.starts_with(b"VALUE ") => values_header(text),
        Framing::Meta | Framing::Quiet if text.starts_with(b"VA ") => {
            meta_header(text, framing == Framing::Meta)
        }
        Framing::Stats if is_statistic(text) => Ok(Element::Part(line)),
        Framing::Quiet if text != b"MN\r\n" => Ok(Element::Part(line)),
        _ => Ok(Element::Last { line, status: status(text) }),
    }
}

/// `VALUE <key> <flags> <bytes> [<unique>]`
fn values_header(text: &[u8]) -> Result<Element, BadReply> {
    let mut spans = [Span::default(); 5];
    let mut count = 0;
    let mut start = 0;
    let end = text.len() - if text.ends_with(b"\r\n") { 2 } else { 1 };
    while start < end && count < spans.len() {
        let length = memchr(b' ', &text[start..end]).unwrap_or(end - start);
        spans[count] = Span { start, end: start + length };
        count += 1;
        start += length + 1;
    }
    if count < 4 {
        return Err(BadReply::Header);
    }
    if whole(spans[2].of(text)).is_none_or(|flags| flags > u64::from(u32::MAX)) {
        return Err(BadReply::Flags);
    }
    Ok(Element::Value {
        header: text.len(),
        data: data_bytes(spans[3].of(text))?,
        key: spans[1],
        unique: (count == 5).then_some(spans[4]),
        last: false,
    })
}

/// `VA <bytes> <flags>*`
fn meta_header(text: &[u8], last: bool) -> Result<Element, BadReply> {
    let end = text[3..].iter().position(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
    let digits = &text[3..3 + end.unwrap_or(0)];
    let (key, unique) = (Span::default(), meta_unique(text));
    Ok(Element::Value { header: text.len(), data: data_bytes(digits)?, key, unique, last })
}

/// Where a meta reply's line shows a unique: the digits behind ` c`.
fn meta_unique(text: &[u8]) -> Option<Span> {
    let mut start = 0;
    for token in text.split(|byte| matches!(byte, b' ' | b'\r' | b'\n')) {
        if start > 0 && token.first() == Some(&b'c') && whole(&token[1..]).is_some() {
            return Some(Span { start: start + 1, end: start + token.len() });
        }
        start += token.len() + 1;
    }
    None
}

impl Element {
    /// Where a line shows a unique of a meta reply.
    #[must_use]
    pub fn meta_unique(line: &[u8]) -> Option<Span> {
        meta_unique(line)
    }
}

fn data_bytes(digits: &[u8]) -> Result<usize, BadReply> {
    let length = whole(digits).ok_or(BadReply::Header)?;
    usize::try_from(length).ok().and_then(|n| n.checked_add(2)).ok_or(BadReply::Header)
}

fn is_statistic(text: &[u8]) -> bool {
    [b"STAT ".as_slice(), b"ITEM ", b"PREFIX "].iter().any(|word| text.starts_with(word))
}

impl Status {
    /// What a reply's line says.
    #[must_use]
    pub fn of(line: &[u8]) -> Self {
        status(line)
    }
}

fn first_word(text: &[u8]) -> &[u8] {
    text.split(|byte| matches!(byte, b' ' | b'\r' | b'\n')).next().unwrap_or(b"")
}

/// Whether a line can be, or be part of, the reply to a command. An error can, whatever was asked.
#[must_use]
pub fn is_reply_to(command: Command, line: &[u8]) -> bool {
    let word = first_word(line);
    let replies: &[&[u8]] = match command {
        Command::Get | Command::Gets | Command::Gat | Command::Gats => &[b"VALUE", b"END"],
        Command::Store(Store::Cas) => &[b"STORED", b"EXISTS", b"NOT_FOUND"],
        Command::Store(_) => &[b"STORED", b"NOT_STORED"],
        Command::Incr | Command::Decr if whole(word).is_some() => return true,
        Command::Incr | Command::Decr => &[b"NOT_FOUND"],
        Command::Delete => &[b"DELETED", b"NOT_FOUND"],
        Command::Touch => &[b"TOUCHED", b"NOT_FOUND"],
        Command::MetaGet => &[b"VA", b"HD", b"EN"],
        Command::MetaSet | Command::MetaDelete => &[b"HD", b"NS", b"EX", b"NF"],
        Command::MetaArithmetic => &[b"VA", b"HD", b"NS", b"EX", b"NF"],
        Command::MetaDebug => &[b"ME", b"EN"],
        Command::MetaNoop => &[b"MN"],
        Command::FlushAll | Command::Verbosity => &[b"OK"],
        Command::Version => &[b"VERSION"],
        Command::Stats => &[b"STAT", b"ITEM", b"PREFIX", b"END", b"RESET", b"OK"],
        Command::Admin => &[
            b"OK",
            b"BUSY",
            b"BADCLASS",
            b"NOSPARE",
            b"NOTFULL",
            b"UNSAFE",
            b"SAME",
            b"NOTSTARTED",
            b"MEMLIMIT_TOO_SMALL",
            b"MEMLIMIT_ADJUST_FAILED",
        ],
        Command::Quit => &[],
    };
    replies.contains(&word) || matches!(status(line), Status::ClientError | Status::ServerError)
}

fn status(text: &[u8]) -> Status {
    match first_word(text) {
        b"END" | b"MN" => Status::End,
        b"NOT_FOUND" | b"NF" | b"EN" => Status::Miss,
        b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" | b"RESET" | b"HD" | b"VERSION" | b"ME" => {
            Status::Success
        }
        b"ERROR" | b"ERROR:" | b"CLIENT_ERROR" => Status::ClientError,
        b"SERVER_ERROR" => Status::ServerError,
        word if whole(word).is_some() => Status::Success,
        _ => Status::Refused,
    }
}
