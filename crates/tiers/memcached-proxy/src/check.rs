//! Whether what a server sent can be the reply to the request that waits for one.
//!
//! A line too many or too few moves all later replies of a connection to other requests, which may be other
//! clients'. A reply shows whose it is by its kind, the keys of its values, and the opaque of a meta command.

use kendall_protocols::memcached::{Command, Element, Framing, Request, Span};
use kendall_protocols::memcached::{is_reply_to, keys, tokens};

use crate::conn::{InFlight, Role};
use crate::mark::{Mark, hash};

/// Where a reply to a meta command shows an opaque, with the blank and the letter before it.
pub(crate) fn opaque(line: &[u8]) -> Option<Span> {
    let mut start = 0;
    for token in line.split(|byte| matches!(byte, b' ' | b'\r' | b'\n')) {
        let end = start + token.len();
        if start > 0 && token.first() == Some(&b'O') {
            return Some(Span { start: start - 1, end });
        }
        start = end + 1;
    }
    None
}

/// Whether `line`, which is `element`, fits the request that waits: for a value, but for keys that a
/// request with several of them has.
pub(crate) fn fits(head: &InFlight, element: &Element, line: &[u8], found: u64) -> bool {
    let is_first = found == 0;
    match (head.framing, element) {
        (Framing::Values, Element::Value { key, unique, .. }) => {
            let shows = matches!(head.command, Command::Gets | Command::Gats);
            let is_key = match head.mark {
                Mark::Of(wanted) => is_first && hash(key.of(line)) == wanted,
                _ => true,
            };
            unique.is_some() == shows && is_key
        }
        (Framing::Meta, _) => is_meta_reply(head, line),
        (Framing::Quiet, Element::Last { .. }) => true,
        (Framing::Quiet, _) => is_first && is_meta_reply(head, line),
        _ if head.command == Command::MetaDebug && line.starts_with(b"ME ") => match head.mark {
            Mark::Of(wanted) => tokens(line).nth(1).is_some_and(|key| hash(key) == wanted),
            _ => true,
        },
        _ => is_reply_to(head.command, line) && !is_surplus(head.command, line),
    }
}

/// Whether a line is an `ERROR`, which says that the server knows no such command, and the command is one of all
/// servers, sent with all it needs: the line belongs to no request. `incr a noreply` is sent as `incr a`, which is none.
fn is_surplus(command: Command, line: &[u8]) -> bool {
    let is_known = matches!(
        command,
        Command::Get
            | Command::Gets
            | Command::Gat
            | Command::Gats
            | Command::Store(_)
            | Command::Delete
            | Command::Version
    );
    is_known && tokens(line.trim_ascii_end()).next() == Some(b"ERROR")
}

fn is_meta_reply(head: &InFlight, line: &[u8]) -> bool {
    if !is_reply_to(head.command, line) {
        return false;
    }
    let is_error = is_error(line);
    let key = tokens(line.trim_ascii_end()).find_map(|token| token.strip_prefix(b"k"));
    let is_key = |key| head.key.is_none_or(|wanted| hash(key) == wanted);
    if !is_error && !key.is_none_or(is_key) {
        return false;
    }
    let shown = opaque(line).map(|span| &span.of(line)[2..]);
    // Errors show none, and nor do older servers where the key was missing.
    let may_lack = is_error || line.starts_with(b"EN\r") || line.starts_with(b"NF\r");
    (may_lack && shown.is_none()) || head.mark.is_of(shown)
}

/// Whether a line says that something failed: a server may say so before it has the whole request.
pub(crate) fn is_error(line: &[u8]) -> bool {
    [b"ERROR".as_slice(), b"CLIENT_ERROR", b"SERVER_ERROR"]
        .iter()
        .any(|word| line.starts_with(word))
}

/// Finds a value's key among those of a request from byte `from` on; gives where the search goes on.
pub(crate) fn next_key(request: &Request, bytes: &[u8], from: usize, key: &[u8]) -> Option<usize> {
    let rest = Request { key: Span { start: from.max(request.key.start), end: 0 }, ..*request };
    let found = keys(&rest, bytes).find(|text| *text == key)?;
    Some(found.as_ptr() as usize - bytes.as_ptr() as usize + found.len())
}

/// Whether the keys of values are compared with those of the request one after the other.
pub(crate) fn has_several_keys(head: &InFlight) -> bool {
    head.framing == Framing::Values && head.role == Role::Relay && head.mark == Mark::None
}

#[cfg(test)]
mod tests {
    use kendall_protocols::memcached::{Limits, Parsed, element, parse};

    use super::*;
    use crate::dispatch::framing;

    fn is_right(asked: &str, reply: &str) -> bool {
        let limits = Limits { value_bytes: 100, get_line_bytes: 1000 };
        let Parsed::Request(request) = parse(asked.as_bytes(), &limits) else { panic!("{asked}") };
        let mark = Mark::of(&request, asked.as_bytes(), 7);
        let head = InFlight::new(0, Role::Relay, framing(&request), request.command);
        let head = head.of(&request, asked.as_bytes(), mark);
        let element = element(head.framing, reply.as_bytes()).unwrap();
        let line = reply.split_inclusive('\n').next().unwrap();
        fits(&head, &element, line.as_bytes(), 0)
    }

    #[test]
    fn a_reply_of_another_kind_key_or_opaque_is_not_taken() {
        let right = [
            ("get k\r\n", "VALUE k 0 1\r\n"),
            ("get k\r\n", "END\r\n"),
            ("get k\r\n", "SERVER_ERROR out of memory\r\n"),
            ("gets k\r\n", "VALUE k 0 1 9\r\n"),
            ("set k 0 0 1\r\na\r\n", "NOT_STORED\r\n"),
            ("incr k 1\r\n", "12\r\n"),
            ("delete k\r\n", "NOT_FOUND\r\n"),
            ("version\r\n", "VERSION 1.6\r\n"),
            ("stats\r\n", "STAT a b\r\n"),
            ("mg k v\r\n", "VA 1 O7\r\n"),
            ("mg k v Oab\r\n", "VA 1 Oab\r\n"),
            ("mg k v\r\n", "EN\r\n"),
            ("mg k v k\r\n", "VA 1 kk O7\r\n"),
            ("mg k v k\r\n", "EN\r\n"),
            ("mg k v k\r\n", "CLIENT_ERROR no key like this\r\n"),
            ("ms k 1 k\r\na\r\n", "HD kk O7\r\n"),
            ("mg bA== v k b\r\n", "VA 1 kbB== b O7\r\n"),
            ("mg k v\r\n", "ERROR\r\n"),
            ("set k 0 0 1\r\na\r\n", "SERVER_ERROR out of memory storing object\r\n"),
            ("incr k 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
            ("md k q\r\n", "EX O7\r\n"),
            ("md k q\r\n", "MN\r\n"),
            ("me k\r\n", "ME k exp=1\r\n"),
        ];
        for (asked, reply) in right {
            assert!(is_right(asked, reply), "{asked} {reply}");
        }
        let wrong = [
            ("get k\r\n", "VALUE l 0 1\r\n"),
            ("get k\r\n", "VALUE k 0 1 9\r\n"),
            ("get k\r\n", "STORED\r\n"),
            ("get k\r\n", "BOGUS\r\n"),
            ("gets k\r\n", "VALUE k 0 1\r\n"),
            ("set k 0 0 1\r\na\r\n", "DELETED\r\n"),
            ("incr k 1\r\n", "STORED\r\n"),
            ("delete k\r\n", "VALUE k 0 1\r\n"),
            ("version\r\n", "OK\r\n"),
            ("stats\r\n", "BOGUS\r\n"),
            ("mg k v\r\n", "VA 1\r\n"),
            ("mg k v\r\n", "VA 1 O8\r\n"),
            ("mg k v Oab\r\n", "VA 1 Oac\r\n"),
            ("mg k v\r\n", "NF O7\r\n"),
            ("mg k v k\r\n", "VA 1 kl O7\r\n"),
            ("mg k k Oab\r\n", "HD kl Oab\r\n"),
            ("ms k 1 k\r\na\r\n", "HD kl O7\r\n"),
            ("md k k\r\n", "NF kl O7\r\n"),
            ("get k\r\n", "ERROR\r\n"),
            ("gats 0 k\r\n", "ERROR\r\n"),
            ("set k 0 0 1\r\na\r\n", "ERROR\r\n"),
            ("delete k\r\n", "ERROR\r\n"),
            ("md k q\r\n", "EX O8\r\n"),
            ("me k\r\n", "ME l exp=1\r\n"),
        ];
        for (asked, reply) in wrong {
            assert!(!is_right(asked, reply), "{asked} {reply}");
        }
    }
}
