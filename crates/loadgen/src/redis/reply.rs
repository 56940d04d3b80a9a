//! Reads replies of the Redis protocol (RESP 2) as they come, in pieces of any size.

use std::net::SocketAddr;

use crate::driver::ErrorKind;

/// Longest line of a reply; an error that a script raises may be long.
const LONGEST_LINE: usize = 16 << 10;

/// Longest value, by the default limit of Redis.
const LONGEST_BULK: u64 = 512 << 20;

const MOST_VALUES: u64 = 1 << 31;

/// What one reply means to the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Values in it, and nulls.
    Answer { found: u32, missing: u32 },
    /// The command was refused.
    Error(ErrorKind),
    /// The slot is on another node now; none where its address is no IP address and a port.
    Moved { slot: u16, node: Option<SocketAddr> },
    /// The slot is on its way to another node.
    Ask { node: Option<SocketAddr> },
}

/// Bytes that are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Garbage;

#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    /// Bytes of a value and its line end that are still to come.
    left: u64,
    /// Values of the reply that are still to come, once it has begun.
    values: Option<u64>,
    found: u32,
    missing: u32,
    /// The first error inside the reply.
    error: Option<Meaning>,
    line: Vec<u8>,
}

impl ReplyReader {
    /// Reads on, up to the end of a reply: the bytes that are done with, and what it means.
    pub(super) fn read(&mut self, input: &[u8]) -> (usize, Option<Result<Meaning, Garbage>>) {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            if self.left > 0 {
                let Some(taken) = self.take_value(rest) else {
                    return (consumed, Some(Err(Garbage)));
                };
                consumed += taken;
                if self.left > 0 {
                    return (consumed, None);
                }
                self.value_done();
            } else {
                let end = rest.iter().position(|byte| *byte == b'\n');
                // Too long is too long, in however many pieces it comes.
                if end.unwrap_or(rest.len()) > LONGEST_LINE {
                    return (consumed, Some(Err(Garbage)));
                }
                let Some(end) = end else { return (consumed, None) };
                let line = rest[..end].strip_suffix(b"\r").and_then(|line| line.split_first());
                if line.and_then(|(sign, text)| self.line(*sign, text)).is_none() {
                    return (consumed, Some(Err(Garbage)));
                }
                consumed += end + 1;
            }
            if self.left == 0 && self.values == Some(0) {
                return (consumed, Some(Ok(self.end())));
            }
        }
    }

    /// The line of the last error, without its sign.
    pub(super) fn error_line(&self) -> &[u8] {
        &self.line
    }

    /// A piece of a value or of the line end after it; `None` when that is not a line end.
    fn take_value(&mut self, rest: &[u8]) -> Option<usize> {
        let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
        for place in 0..self.left.min(2) {
            // Counted from the end of the value: the last byte is a line feed, the one before a return.
            let at = self.left - 1 - place;
            let byte = usize::try_from(at).ok().and_then(|at| rest.get(at));
            if byte.is_some_and(|byte| *byte != if place == 0 { b'\n' } else { b'\r' }) {
                return None;
            }
        }
        self.left -= taken as u64;
        Some(taken)
    }

    /// One line; `None` when it is not one of the protocol.
    fn line(&mut self, sign: u8, text: &[u8]) -> Option<()> {
        self.values.get_or_insert(1);
        match sign {
            b'+' => self.value_done(),
            b':' => {
                let digits = text.strip_prefix(b"-").unwrap_or(text);
                decimal(digits)?;
                self.value_done();
            }
            b'-' => {
                self.error(text);
                self.value_done();
            }
            b'$' | b'*' if text == b"-1" => {
                self.missing = self.missing.saturating_add(1);
                self.value_done();
            }
            b'$' => {
                self.left = decimal(text).filter(|bytes| *bytes <= LONGEST_BULK)? + 2;
                self.found = self.found.saturating_add(1);
            }
            b'*' => {
                let more = decimal(text).filter(|values| *values <= MOST_VALUES)?;
                self.values = self.values.map(|values| (values - 1).saturating_add(more));
            }
            _ => return None,
        }
        Some(())
    }

    fn value_done(&mut self) {
        self.values = self.values.map(|values| values.saturating_sub(1));
    }

    fn error(&mut self, text: &[u8]) {
        if self.error.is_none() {
            self.line.clear();
            self.line.extend_from_slice(text);
            self.error = Some(meaning(text));
        }
    }

    fn end(&mut self) -> Meaning {
        let answer = Meaning::Answer { found: self.found, missing: self.missing };
        self.values = None;
        (self.found, self.missing) = (0, 0);
        self.error.take().unwrap_or(answer)
    }
}

/// What an error says: its first word is its kind.
fn meaning(line: &[u8]) -> Meaning {
    let text = String::from_utf8_lossy(line);
    let mut words = text.split(' ');
    let kind = words.next().unwrap_or_default();
    let (slot, node) = (words.next(), words.next());
    let slot = slot.and_then(|slot| slot.parse().ok());
    let node = node.and_then(|node| node.parse().ok());
    Meaning::Error(match (kind, slot) {
        ("MOVED", Some(slot)) => return Meaning::Moved { slot, node },
        ("ASK", Some(_)) => return Meaning::Ask { node },
        ("NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED", _) => ErrorKind::AccessDenied,
        ("LOADING" | "BUSY" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN", _) => {
            ErrorKind::Unavailable
        }
        ("READONLY", _) => ErrorKind::ReadOnly,
        ("WRONGTYPE", _) => ErrorKind::WrongType,
        ("OOM", _) => ErrorKind::OutOfMemory,
        ("ERR", _) if text.starts_with("ERR unknown command") => ErrorKind::UnknownCommand,
        ("ERR", _) if text.starts_with("ERR wrong number of arguments") => ErrorKind::ClientError,
        _ => ErrorKind::ServerError,
    })
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a reader finds, and whether it ends with garbage.
    fn in_pieces(bytes: &[u8], piece: usize) -> (Vec<Meaning>, bool) {
        let (mut reader, mut kept, mut found) = (ReplyReader::default(), Vec::new(), Vec::new());
        for chunk in bytes.chunks(piece) {
            kept.extend_from_slice(chunk);
            loop {
                let (consumed, meaning) = reader.read(&kept);
                kept.drain(..consumed);
                match meaning {
                    None => break,
                    Some(Err(Garbage)) => return (found, true),
                    Some(Ok(meaning)) => found.push(meaning),
                }
            }
        }
        (found, false)
    }

    #[test]
    fn replies_read_the_same_in_pieces_of_any_size() {
        let answer = |found, missing| Meaning::Answer { found, missing };
        let bytes = b"+OK\r\n$6\r\na\r\n\r\nb\r\n$0\r\n\r\n$-1\r\n:-12\r\n*0\r\n*-1\r\n\
            *3\r\n$1\r\na\r\n$-1\r\n*2\r\n:1\r\n$2\r\nbc\r\n-WRONGTYPE Operation\r\n\
            -MOVED 3999 127.0.0.1:6381\r\n-ASK 1 [::1]:7\r\n-MOVED 2 redis-2.example:6379\r\n\
            *2\r\n-OOM no\r\n+x\r\n-ERR unknown command 'x'\r\n";
        let node = |text: &str| Some(text.parse().unwrap());
        let expected = vec![
            answer(0, 0),
            answer(1, 0),
            answer(1, 0),
            answer(0, 1),
            answer(0, 0),
            answer(0, 0),
            answer(0, 1),
            answer(2, 1),
            Meaning::Error(ErrorKind::WrongType),
            Meaning::Moved { slot: 3999, node: node("127.0.0.1:6381") },
            Meaning::Ask { node: node("[::1]:7") },
            Meaning::Moved { slot: 2, node: None },
            Meaning::Error(ErrorKind::OutOfMemory),
            Meaning::Error(ErrorKind::UnknownCommand),
        ];
        for piece in 1..=bytes.len() {
            assert_eq!(in_pieces(bytes, piece), (expected.clone(), false), "pieces of {piece}");
        }
    }

    #[test]
    fn what_the_protocol_does_not_allow_is_garbage() {
        let long = [b"+".as_slice(), &[b'x'; LONGEST_LINE + 1]].concat();
        let cases: [&[u8]; 14] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"\r\n",
            b"+OK\n",
            b"$\r\n",
            b"$-2\r\n",
            b"$1x\r\n",
            b"$536870913\r\n",
            b"$99999999999999999999999\r\n",
            b"$1\r\nabc\r\n",
            b"$2\r\nab\nx",
            b"*4294967296\r\n",
            b":\r\n",
            b":1-\r\n",
            &long,
        ];
        for bytes in cases {
            for piece in [1, 3, bytes.len()] {
                let (found, garbage) = in_pieces(bytes, piece);
                assert!(garbage && found.is_empty(), "{:?}", String::from_utf8_lossy(bytes));
            }
        }
    }
}
