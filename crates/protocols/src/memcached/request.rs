//! Requests: where one ends, and what it asks for.

use memchr::memchr;

use super::number::{signed, unsigned};
use super::{KEY_BYTES, LINE_BYTES};

/// Most tokens of a line but for keys of a `get`, as the server's tokenizer has them.
const TOKENS: usize = 24;
/// Most tokens of a meta command.
const META_TOKENS: usize = 19;

/// A part of the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// Behind the last byte.
    pub end: usize,
}

impl Span {
    /// The bytes of `buffer` that it names.
    #[must_use]
    pub fn of<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        &buffer[self.start..self.end]
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether it names no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Bounds that the caller sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest value.
    pub value_bytes: usize,
    /// Longest line of `get` and `gets`.
    pub get_line_bytes: usize,
}

/// How a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the commands of the protocol")]
pub enum Store {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the commands of the protocol")]
pub enum Command {
    /// `get`, `bget`
    Get,
    Gets,
    Gat,
    Gats,
    /// `set` and its like
    Store(Store),
    Incr,
    Decr,
    Delete,
    Touch,
    MetaGet,
    MetaSet,
    MetaDelete,
    MetaArithmetic,
    MetaDebug,
    MetaNoop,
    FlushAll,
    Verbosity,
    Version,
    Stats,
    /// Settings of a server, answered in one line: `lru`, `slabs`, `cache_memlimit`, …
    Admin,
    Quit,
}

/// A request that is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What it asks for.
    pub command: Command,
    /// Bytes of it, value included.
    pub consumed: usize,
    /// Its line without the end of the line.
    pub line: Span,
    /// Its first key; empty for commands without one.
    pub key: Span,
    /// Number of its keys.
    pub keys: usize,
    /// Its value with the CR LF behind it.
    pub value: Option<Span>,
    /// The token that says how long the value is.
    pub value_length: Span,
    /// `noreply`, which is the last token of the line.
    pub noreply: bool,
    /// `q` of a meta command.
    pub quiet: bool,
    /// The `cas` unique, or what stands behind the `C` of a meta command.
    pub unique: Option<Span>,
    /// Whether the answer of a meta command shows a unique (`c`).
    pub shows_unique: bool,
    /// Whether a meta get changes what it reads (`N`, `T`, `R`).
    pub writes: bool,
}

/// A request that the protocol has an error for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Bytes to drop.
    pub consumed: usize,
    /// Bytes that follow and are to be dropped too: the value.
    pub swallow: usize,
    /// The answer with its CR LF; empty when the client wanted none.
    pub answer: &'static [u8],
    /// A key whose old value must not stay behind, as its new one is refused.
    pub forget: Option<Span>,
}

/// What a buffer begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// Not a whole request; this many bytes are needed before it is worth looking again.
    Incomplete(usize),
    /// A request.
    Request(Request),
    /// Something to refuse.
    Refusal(Refusal),
    /// Something upon which a server closes the connection.
    Close,
}

/// Blanks before a long line, beyond which a server closes the connection.
const MOST_BLANKS: usize = 100;

const ERROR: &[u8] = b"ERROR\r\n";
const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
const BAD_DATA: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
const NO_SHUTDOWN: &[u8] = b"ERROR: shutdown not enabled\r\n";
const NO_WATCH: &[u8] = b"CLIENT_ERROR watch commands not allowed\r\n";
const NO_DUMP: &[u8] = b"ERROR metadump not allowed\r\n";

/// Parses the request that `buffer` begins with.
#[must_use]
pub fn parse(buffer: &[u8], limits: &Limits) -> Parsed {
    let Some(newline) = memchr(b'\n', buffer) else { return unfinished_line(buffer, limits) };
    let mut end = newline;
    if end > 1 && buffer[end - 1] == b'\r' {
        end -= 1;
    }
    // A server's line is a C string.
    if let Some(nul) = memchr(0, &buffer[..end]) {
        end = nul;
    }
    let line = Line { buffer, end, consumed: newline + 1 };
    line.parse(limits)
}

/// The tokens of a line.
pub fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|token| !token.is_empty())
}

/// The keys of `get`, `gets`, `gat` and `gats`, given the line.
pub fn keys<'a>(request: &Request, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    tokens(&buffer[request.key.start..request.line.end.max(request.key.start)])
}

/// How long the line may be that `buffer` begins with, whether it is whole or not.
fn longest_line(buffer: &[u8], limits: &Limits) -> usize {
    let blank = buffer.iter().take_while(|byte| **byte == b' ').count();
    let name = buffer[blank..].split(|byte| *byte == b' ').next().unwrap_or_default();
    let is_get = matches!(name, b"get" | b"gets" | b"gat" | b"gats");
    if is_get && blank <= MOST_BLANKS { limits.get_line_bytes.max(LINE_BYTES) } else { LINE_BYTES }
}

fn unfinished_line(buffer: &[u8], limits: &Limits) -> Parsed {
    if buffer.len() <= LINE_BYTES {
        return Parsed::Incomplete(buffer.len() + 1);
    }
    if buffer.len() > longest_line(buffer, limits) {
        return Parsed::Close;
    }
    Parsed::Incomplete(buffer.len() + 1)
}

#[derive(Clone, Copy)]
struct Line<'a> {
    buffer: &'a [u8],
    end: usize,
    consumed: usize,
}

/// The first tokens of a line, and how many there are.
struct Tokens {
    spans: [Span; TOKENS],
    count: usize,
}

impl Line<'_> {
    fn parse(self, limits: &Limits) -> Parsed {
        let Some(command) = self.token(0) else { return self.refuse(ERROR) };
        if command.len() < 2 {
            return self.refuse(ERROR);
        }
        let name = command.of(self.buffer);
        if self.consumed > LINE_BYTES && self.consumed > longest_line(self.buffer, limits) {
            return Parsed::Close;
        }
        match name {
            b"get" | b"bget" => self.get(Command::Get, command.end, false),
            b"gets" => self.get(Command::Gets, command.end, false),
            b"gat" => self.get(Command::Gat, command.end, true),
            b"gats" => self.get(Command::Gats, command.end, true),
            b"set" => self.store(Store::Set, limits),
            b"add" => self.store(Store::Add, limits),
            b"replace" => self.store(Store::Replace, limits),
            b"append" => self.store(Store::Append, limits),
            b"prepend" => self.store(Store::Prepend, limits),
            b"cas" => self.store(Store::Cas, limits),
            b"ms" => self.meta_set(limits),
            b"mg" => self.meta(Command::MetaGet),
            b"md" => self.meta(Command::MetaDelete),
            b"ma" => self.meta(Command::MetaArithmetic),
            _ => self.short(name),
        }
    }

    /// Commands whose syntax the server judges, but for the number of their tokens where
    /// `noreply` hangs on it.
    fn short(self, name: &[u8]) -> Parsed {
        let tokens = self.tokens();
        let command = match (name, tokens.count) {
            (b"incr", 3 | 4) => Command::Incr,
            (b"decr", 3 | 4) => Command::Decr,
            (b"touch", 3 | 4) => Command::Touch,
            (b"delete", 2..=4) => Command::Delete,
            (b"me", _) => Command::MetaDebug,
            (b"mn", _) => Command::MetaNoop,
            (b"flush_all", 1..=3) => Command::FlushAll,
            (b"verbosity", 2 | 3) => Command::Verbosity,
            (b"version", _) => Command::Version,
            (b"stats", _) => Command::Stats,
            (b"quit", _) => Command::Quit,
            (b"shutdown", _) => return self.refuse(NO_SHUTDOWN),
            (b"watch", _) => return self.refuse(NO_WATCH),
            (b"lru_crawler", 3)
                if matches!(tokens.spans[1].of(self.buffer), b"metadump" | b"mgdump") =>
            {
                return self.refuse(NO_DUMP);
            }
            (b"cache_memlimit", 2 | 3) | (b"lru", 2..) => Command::Admin,
            (b"slabs" | b"lru_crawler", _) => Command::Admin,
            _ => return self.unknown(name, &tokens),
        };
        let takes_noreply = match command {
            Command::Delete => tokens.count > 2,
            Command::Incr | Command::Decr | Command::Touch | Command::FlushAll => true,
            Command::Verbosity => true,
            Command::Admin => matches!(name, b"cache_memlimit" | b"lru"),
            _ => false,
        };
        let last = tokens.last();
        let noreply = takes_noreply && tokens.count > 1 && last.of(self.buffer) == b"noreply";
        let key = tokens.spans[1];
        Parsed::Request(Request { noreply, key, keys: 1, ..self.request(command) })
    }

    fn unknown(self, name: &[u8], tokens: &Tokens) -> Parsed {
        let known_letter = match name[0] {
            b'm' => name.len() == 2,
            letter => matches!(letter, b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't'),
        };
        let is_known = matches!(
            name,
            b"flush_all" | b"verbosity" | b"lru" | b"replace" | b"prepend" | b"bget"
        );
        let web = tokens.last().of(self.buffer).starts_with(b"HTTP/");
        if web && !known_letter && !is_known { Parsed::Close } else { self.refuse(ERROR) }
    }

    fn get(self, command: Command, after: usize, touches: bool) -> Parsed {
        let mut first = Span { start: self.end, end: self.end };
        let mut keys = 0;
        let mut at = after;
        let mut is_time = touches;
        while let Some(token) = self.next_token(at) {
            at = token.end;
            if is_time {
                is_time = false;
                if signed(token.of(self.buffer)).is_none() {
                    return self.refuse(b"CLIENT_ERROR invalid exptime argument\r\n");
                }
                continue;
            }
            if token.len() > KEY_BYTES {
                return self.refuse(BAD_FORMAT);
            }
            if keys == 0 {
                first = token;
            }
            keys += 1;
        }
        if is_time || (keys == 0 && !touches) {
            return self.refuse(ERROR);
        }
        Parsed::Request(Request { key: first, keys, ..self.request(command) })
    }

    fn store(self, store: Store, limits: &Limits) -> Parsed {
        let tokens = self.tokens();
        let needed = if store == Store::Cas { 6 } else { 5 };
        if tokens.count != needed && tokens.count != needed + 1 {
            return self.refuse(ERROR);
        }
        let noreply = tokens.last().of(self.buffer) == b"noreply";
        let answer = |text: &'static [u8]| if noreply { b"".as_slice() } else { text };
        let [_, key, flags, time, length, unique] = *tokens.first();
        let valid = key.len() <= KEY_BYTES
            && unsigned(flags.of(self.buffer)).is_some()
            && signed(time.of(self.buffer)).is_some()
            && (store != Store::Cas || unsigned(unique.of(self.buffer)).is_some());
        let bytes = value_bytes(length.of(self.buffer));
        let Some(bytes) = bytes else { return self.refuse(answer(BAD_FORMAT)) };
        if !valid {
            // The value must not be taken for commands. Servers before 1.6.40 do.
            return self.swallow(answer(BAD_FORMAT), bytes + 2, None);
        }
        if bytes > limits.value_bytes {
            let forget = (store == Store::Set).then_some(key);
            return self.swallow(answer(TOO_LARGE), bytes + 2, forget);
        }
        let value = Span { start: self.consumed, end: self.consumed + bytes + 2 };
        let Some(data) = self.buffer.get(value.start..value.end) else {
            return Parsed::Incomplete(value.end);
        };
        if !data.ends_with(b"\r\n") {
            let consumed = value.end;
            let answer = answer(BAD_DATA);
            return Parsed::Refusal(Refusal { consumed, swallow: 0, answer, forget: None });
        }
        Parsed::Request(Request {
            consumed: value.end,
            key,
            keys: 1,
            value: Some(value),
            value_length: length,
            noreply,
            unique: (store == Store::Cas).then_some(unique),
            ..self.request(Command::Store(store))
        })
    }

    fn meta_set(self, limits: &Limits) -> Parsed {
        let tokens = self.tokens();
        if tokens.count < 2 {
            return self.refuse(ERROR);
        }
        let key = tokens.spans[1];
        let length = tokens.spans[2];
        let bytes = (tokens.count > 2).then(|| value_bytes(length.of(self.buffer))).flatten();
        let Some(bytes) = bytes else { return self.refuse(BAD_FORMAT) };
        if key.len() > KEY_BYTES {
            return self.swallow(BAD_FORMAT, bytes + 2, None);
        }
        if tokens.count > META_TOKENS {
            let answer = b"CLIENT_ERROR options flags too long\r\n";
            return self.swallow(answer, bytes + 2, None);
        }
        if bytes > limits.value_bytes {
            return self.swallow(TOO_LARGE, bytes + 2, Some(key));
        }
        let value = Span { start: self.consumed, end: self.consumed + bytes + 2 };
        let Some(data) = self.buffer.get(value.start..value.end) else {
            return Parsed::Incomplete(value.end);
        };
        // A short value is for the server to judge, whose answer hangs on the flags too. A large
        // one is not: a server built for debugging would stop.
        if !data.ends_with(b"\r\n") && bytes > LINE_BYTES {
            let consumed = value.end;
            return Parsed::Refusal(Refusal {
                consumed,
                swallow: 0,
                answer: BAD_DATA,
                forget: None,
            });
        }
        let request = Request {
            consumed: value.end,
            key,
            keys: 1,
            value: Some(value),
            value_length: length,
            ..self.request(Command::MetaSet)
        };
        Parsed::Request(self.flags(request, &tokens, 3))
    }

    fn meta(self, command: Command) -> Parsed {
        let tokens = self.tokens();
        if tokens.count < 2 {
            return self.refuse(ERROR);
        }
        let request = Request { key: tokens.spans[1], keys: 1, ..self.request(command) };
        Parsed::Request(self.flags(request, &tokens, 2))
    }

    /// Takes from the flags of a meta command what a proxy must know.
    fn flags(self, mut request: Request, tokens: &Tokens, from: usize) -> Request {
        for token in &tokens.spans[from..tokens.count.max(from)] {
            match self.buffer[token.start] {
                b'q' => request.quiet = true,
                b'c' => request.shows_unique = true,
                b'C' => request.unique = Some(Span { start: token.start + 1, end: token.end }),
                b'N' | b'T' | b'R' | b'E' => request.writes = true,
                _ => {}
            }
        }
        request
    }

    fn request(self, command: Command) -> Request {
        Request {
            command,
            consumed: self.consumed,
            line: Span { start: 0, end: self.end },
            key: Span::default(),
            keys: 0,
            value: None,
            value_length: Span::default(),
            noreply: false,
            quiet: false,
            unique: None,
            shows_unique: false,
            writes: false,
        }
    }

    fn refuse(self, answer: &'static [u8]) -> Parsed {
        self.swallow(answer, 0, None)
    }

    fn swallow(self, answer: &'static [u8], swallow: usize, forget: Option<Span>) -> Parsed {
        Parsed::Refusal(Refusal { consumed: self.consumed, swallow, answer, forget })
    }

    fn token(self, from: usize) -> Option<Span> {
        self.next_token(from)
    }

    fn next_token(self, from: usize) -> Option<Span> {
        let blank = self.buffer[from..self.end].iter().take_while(|byte| **byte == b' ').count();
        let start = from + blank;
        if start == self.end {
            return None;
        }
        let length = memchr(b' ', &self.buffer[start..self.end]).unwrap_or(self.end - start);
        Some(Span { start, end: start + length })
    }

    fn tokens(self) -> Tokens {
        let mut tokens = Tokens { spans: [Span::default(); TOKENS], count: 0 };
        let mut at = 0;
        while let Some(token) = self.next_token(at) {
            if tokens.count == TOKENS - 1 {
                // The server's tokenizer stops there too.
                break;
            }
            tokens.spans[tokens.count] = token;
            tokens.count += 1;
            at = token.end;
        }
        tokens
    }
}

impl Tokens {
    fn last(&self) -> Span {
        self.spans[self.count.saturating_sub(1)]
    }

    fn first(&self) -> &[Span; 6] {
        self.spans.first_chunk().expect("there are more than six")
    }
}

/// Length of a value without its CR LF.
fn value_bytes(token: &[u8]) -> Option<usize> {
    let length = signed(token)?;
    if length > i32::MAX - 2 {
        return None;
    }
    usize::try_from(length).ok()
}
