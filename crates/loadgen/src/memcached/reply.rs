//! Reads memcached replies as they come, in pieces of any size.

use crate::driver::{ErrorKind, Progress, Reply};

use super::{Command, Keyspace};

/// Longest line of a reply: a key has at most 250 bytes, an error message is cut at this.
const LONGEST_LINE: usize = 2_048;

/// Longest value that is taken for one: memcached's own limit of an item is 1 GiB.
const LONGEST_VALUE: usize = 1 << 30;

#[derive(Debug, Default)]
pub(crate) struct ReplyReader {
    command: Option<Command>,
    keys: usize,
    found: usize,
    /// Place in the request of the key whose value comes, and from where on to search for the next.
    place: usize,
    next_place: usize,
    /// What of a value and its line end is still to come, and its length.
    left: usize,
    value_bytes: usize,
    wrong: bool,
}

impl ReplyReader {
    pub(crate) fn new(command: Command, keys: usize) -> Self {
        Self { command: Some(command), keys, ..Self::default() }
    }

    /// Reads on. With `expected`, values are compared with those of its keys.
    pub(crate) fn read(&mut self, input: &[u8], expected: Option<(&Keyspace, &[u64])>) -> Progress {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            if self.left > 0 {
                let taken = rest.len().min(self.left);
                if !self.take_value(&rest[..taken], expected) {
                    return done(consumed, Reply::broken(ErrorKind::Garbage));
                }
                consumed += taken;
                if self.left > 0 {
                    return Progress { consumed, reply: None };
                }
                continue;
            }
            let end = rest.iter().position(|byte| *byte == b'\n');
            // Too long is too long, in however many pieces it comes.
            if end.unwrap_or(rest.len()) > LONGEST_LINE {
                return done(consumed, Reply::broken(ErrorKind::Garbage));
            }
            let Some(end) = end else { return Progress { consumed, reply: None } };
            consumed += end + 1;
            let line = rest[..end].strip_suffix(b"\r");
            let reply = match line {
                Some(line) => self.line(line, expected),
                None => Some(Reply::broken(ErrorKind::Garbage)),
            };
            if let Some(reply) = reply {
                return done(consumed, reply);
            }
        }
    }

    /// Takes a piece of a value or of the line end after it; false when that is not a line end.
    fn take_value(&mut self, piece: &[u8], expected: Option<(&Keyspace, &[u64])>) -> bool {
        let offset = self.value_bytes + 2 - self.left;
        let data = piece.len().min(self.value_bytes.saturating_sub(offset));
        if let Some((keyspace, keys)) = expected
            && !self.wrong
        {
            self.wrong = !keyspace.value_matches(keys[self.place], offset, &piece[..data]);
        }
        let line_end = &b"\r\n"[(offset + data).saturating_sub(self.value_bytes)..];
        self.left -= piece.len();
        line_end.starts_with(&piece[data..])
    }

    /// One line; the reply when it is the last.
    fn line(&mut self, line: &[u8], expected: Option<(&Keyspace, &[u64])>) -> Option<Reply> {
        let command = self.command?;
        if command.is_retrieval() {
            if let Some(rest) = line.strip_prefix(b"VALUE ") {
                if self.value_line(rest, expected) {
                    return None;
                }
                return Some(Reply::broken(ErrorKind::Garbage));
            }
            if line == b"END" {
                return Some(self.end());
            }
            return Some(error_line(line, false));
        }
        let counted =
            |hit: bool| Reply { hits: u32::from(hit), misses: u32::from(!hit), ..Reply::default() };
        let reply = match (command, line) {
            (Command::Set, b"STORED") => Reply::default(),
            (Command::Add | Command::Replace, b"STORED")
            | (Command::Delete, b"DELETED")
            | (Command::Touch, b"TOUCHED") => counted(true),
            (Command::Add | Command::Replace, b"NOT_STORED")
            | (Command::Delete | Command::Touch, b"NOT_FOUND") => counted(false),
            _ => error_line(line, command.is_storage()),
        };
        Some(reply)
    }

    /// `<key> <flags> <bytes> [<cas>]`; false when it is not that, or no answer to the request.
    fn value_line(&mut self, rest: &[u8], expected: Option<(&Keyspace, &[u64])>) -> bool {
        let mut fields = rest.split(|byte| *byte == b' ');
        let (Some(key), Some(_flags), Some(bytes)) = (fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        let Some(bytes) = decimal(bytes).filter(|bytes| *bytes <= LONGEST_VALUE) else {
            return false;
        };
        self.found += 1;
        if self.found > self.keys {
            return false;
        }
        self.value_bytes = bytes;
        self.left = bytes + 2;
        if let Some((keyspace, keys)) = expected {
            let place = (self.next_place..keys.len()).find(|at| keyspace.is_key(keys[*at], key));
            match place {
                Some(place) => {
                    self.place = place;
                    self.next_place = place + 1;
                    self.wrong |= keyspace.value_bytes(keys[place]) != bytes;
                }
                None => self.wrong = true,
            }
        }
        true
    }

    fn end(&self) -> Reply {
        if self.wrong {
            return Reply::refused(ErrorKind::WrongValue);
        }
        let found = u32::try_from(self.found).unwrap_or(u32::MAX);
        let keys = u32::try_from(self.keys).unwrap_or(u32::MAX);
        Reply { hits: found, misses: keys.saturating_sub(found), ..Reply::default() }
    }
}

fn done(consumed: usize, reply: Reply) -> Progress {
    Progress { consumed, reply: Some(reply) }
}

/// After a refused write the server may take the value for commands: the stream is given up.
fn error_line(line: &[u8], value_follows: bool) -> Reply {
    let kind = if line == b"ERROR" {
        ErrorKind::UnknownCommand
    } else if line.starts_with(b"CLIENT_ERROR") {
        ErrorKind::ClientError
    } else if line.starts_with(b"SERVER_ERROR") {
        return Reply::refused(ErrorKind::ServerError);
    } else {
        return Reply::broken(ErrorKind::Garbage);
    };
    Reply { error: Some(kind), close: value_follows, ..Reply::default() }
}

fn decimal(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    digits.iter().try_fold(0_usize, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + usize::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_in_pieces(command: Command, keys: usize, bytes: &[u8], piece: usize) -> Option<Reply> {
        let mut reader = ReplyReader::new(command, keys);
        let mut kept: Vec<u8> = Vec::new();
        for chunk in bytes.chunks(piece) {
            kept.extend_from_slice(chunk);
            let progress = reader.read(&kept, None);
            kept.drain(..progress.consumed);
            if progress.reply.is_some() {
                return progress.reply;
            }
        }
        None
    }

    #[test]
    fn a_reply_reads_the_same_in_pieces_of_any_size() {
        let hits = Reply { hits: 2, misses: 1, ..Reply::default() };
        let cases: &[(Command, usize, &[u8], Reply)] = &[
            (
                Command::MultiGet,
                3,
                b"VALUE a 0 5\r\nEND\r\n\r\nVALUE bb 7 0 99\r\n\r\nEND\r\n",
                hits,
            ),
            (Command::Get, 1, b"END\r\n", Reply { misses: 1, ..Reply::default() }),
            (Command::Set, 1, b"STORED\r\n", Reply::default()),
            (Command::Delete, 1, b"NOT_FOUND\r\n", Reply { misses: 1, ..Reply::default() }),
            (Command::Get, 1, b"SERVER_ERROR no\r\n", Reply::refused(ErrorKind::ServerError)),
            (Command::Set, 1, b"CLIENT_ERROR no\r\n", Reply::broken(ErrorKind::ClientError)),
        ];
        for (command, keys, bytes, expected) in cases {
            for piece in 1..=bytes.len() {
                let reply = read_in_pieces(*command, *keys, bytes, piece);
                assert_eq!(reply, Some(*expected), "{command:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_the_protocol_does_not_allow_is_garbage() {
        let cases: &[(Command, &[u8])] = &[
            (Command::Get, b"HTTP/1.1 400 Bad Request\r\n"),
            (Command::Get, b"VALUE a 0\r\n"),
            (Command::Get, b"VALUE a 0 99999999999\r\n"),
            (Command::Get, b"VALUE a 0 1\r\nxyz\r\n"),
            (Command::Get, b"VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nEND\r\n"),
            (Command::Get, b"END\n"),
            (Command::Set, b"END\r\n"),
            (Command::Set, &[b'x'; LONGEST_LINE + 1]),
        ];
        for (command, bytes) in cases {
            for piece in [1, 3, bytes.len()] {
                let reply = read_in_pieces(*command, 1, bytes, piece);
                assert_eq!(reply, Some(Reply::broken(ErrorKind::Garbage)), "{command:?}");
            }
        }
    }
}
