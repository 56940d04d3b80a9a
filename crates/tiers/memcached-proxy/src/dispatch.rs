//! From a request to the servers that must see it.

use kendall_protocols::memcached::{
    Command, Framing, LINE_BYTES, Request, Span, Store, keys, tokens, unsigned,
};

use crate::conn::{InFlight, Role};
use crate::engine::Engine;
use crate::options::Placement;
use crate::report;
use crate::request::{Gather, Part, Stage, again};
use crate::unique::Origin;

const NO_SERVER: &[u8] = b"SERVER_ERROR no server is available\r\n";
/// Bytes of keys of one `gat` line: with the command in front, below what a server closes upon.
const GAT_KEYS_BYTES: usize = LINE_BYTES - 64;

/// Whether a request goes to the server that decides first and to the others when it agreed:
/// uniques differ between servers, so only one of them can compare.
pub(crate) fn is_exclusive(engine: &Engine, request: &Request) -> bool {
    request.unique.is_some()
        && engine.options.placement == Placement::Replicate
        && engine.servers.live().len() > 1
        && request.command != Command::MetaGet
}

/// How the reply to a request ends.
fn framing(request: &Request) -> Framing {
    match request.command {
        Command::Get | Command::Gets | Command::Gat | Command::Gats => Framing::Values,
        Command::Stats => Framing::Stats,
        Command::MetaGet | Command::MetaSet | Command::MetaDelete | Command::MetaArithmetic => {
            if request.quiet {
                Framing::Quiet
            } else {
                Framing::Meta
            }
        }
        _ => Framing::Line,
    }
}

impl Engine {
    /// Sends a request to the servers that must see it.
    pub(crate) fn dispatch(&mut self, id: usize, lane: usize, bytes: &[u8]) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        entry.lane = Some(lane);
        let Some(request) = entry.parsed else { return };
        if self.servers.live().is_empty() {
            self.tools.recorder.outcome(report::NO_BACKEND, 1);
            return self.finish_with(id, NO_SERVER);
        }
        match self.options.placement {
            Placement::Replicate => self.dispatch_replicated(id, lane, &request, bytes),
            Placement::Hash => self.dispatch_hashed(id, lane, &request, bytes),
        }
    }

    fn dispatch_replicated(&mut self, id: usize, lane: usize, request: &Request, bytes: &[u8]) {
        let first = self.servers.live()[0];
        let alone = self.servers.live().len() == 1;
        match request.command {
            Command::Get if self.options.shard_multigets && request.keys > 1 && !alone => {
                let parts = self.servers.shards(request.keys);
                self.send_parts(id, lane, request, bytes, parts);
            }
            Command::Get | Command::Version => {
                let server = self.servers.next_in_turn();
                self.send_read(id, lane, server, request, bytes);
            }
            Command::MetaGet if !request.writes && !request.shows_unique => {
                let server = self.servers.next_in_turn();
                self.send_read(id, lane, server, request, bytes);
            }
            Command::Gets | Command::Stats | Command::MetaDebug => {
                self.send_read(id, lane, first, request, bytes);
            }
            Command::Gat | Command::Gats if bytes.len() > LINE_BYTES => {
                self.send_long_gat(id, lane, request, bytes);
            }
            Command::MetaGet if !request.writes => {
                self.send_read(id, lane, first, request, bytes);
            }
            _ if alone => self.send(id, lane, first, Role::Relay, request, bytes),
            Command::Gat | Command::Gats | Command::MetaGet => {
                for server in self.servers.live().to_vec() {
                    let role = if server == first { Role::Relay } else { Role::Discard };
                    self.send(id, lane, server, role, request, bytes);
                }
            }
            _ if is_exclusive(self, request) => {
                if let Some(entry) = self.requests.get_mut(id) {
                    entry.stage = Stage::First;
                    entry.bytes.clear();
                    entry.bytes.extend_from_slice(bytes);
                }
                self.send(id, lane, first, Role::Collect, request, bytes);
            }
            _ => {
                let servers = self.servers.live().to_vec();
                self.send_to_all(id, lane, &servers, request, bytes);
            }
        }
    }

    fn dispatch_hashed(&mut self, id: usize, lane: usize, request: &Request, bytes: &[u8]) {
        let first = self.servers.live()[0];
        match request.command {
            Command::Get | Command::Gets | Command::Gat | Command::Gats
                if request.keys > 1 || bytes.len() > LINE_BYTES =>
            {
                let parts = self.servers.placed(request, bytes);
                if let [only] = parts.as_slice()
                    && bytes.len() <= LINE_BYTES
                {
                    let server = only.server;
                    return self.send(id, lane, server, Role::Relay, request, bytes);
                }
                self.send_parts(id, lane, request, bytes, parts);
            }
            Command::FlushAll | Command::Verbosity | Command::Admin => {
                let servers = self.servers.live().to_vec();
                self.send_to_all(id, lane, &servers, request, bytes);
            }
            Command::Stats | Command::Version => {
                self.send(id, lane, first, Role::Relay, request, bytes);
            }
            _ => {
                let server = self.servers.of_key(request.key.of(bytes));
                self.send(id, lane, server, Role::Relay, request, bytes);
            }
        }
    }

    fn send_read(
        &mut self,
        id: usize,
        lane: usize,
        server: usize,
        request: &Request,
        bytes: &[u8],
    ) {
        if self.servers.live().len() > 1
            && let Some(entry) = self.requests.get_mut(id)
        {
            // Kept, so that it can be asked elsewhere.
            entry.bytes.clear();
            entry.bytes.extend_from_slice(bytes);
        }
        self.send(id, lane, server, Role::Relay, request, bytes);
    }

    pub(crate) fn send_to_all(
        &mut self,
        id: usize,
        lane: usize,
        servers: &[usize],
        request: &Request,
        bytes: &[u8],
    ) {
        let role = if servers.len() == 1 { Role::Relay } else { Role::Collect };
        if let Some(entry) = self.requests.get_mut(id) {
            // All at once, so that a server that fails at once does not end the request.
            entry.waiting += servers.len();
        }
        for server in servers {
            self.send_counted(id, lane, *server, role, request, bytes);
        }
    }

    /// Sends a request to a server that follows the one that decided.
    pub(crate) fn send_follow(
        &mut self,
        id: usize,
        lane: usize,
        server: usize,
        request: &Request,
        bytes: &[u8],
    ) {
        self.send_counted(id, lane, server, Role::Follow, request, bytes);
    }

    /// A `gat` line that a server would not take in one piece: several, one after the other.
    fn send_long_gat(&mut self, id: usize, lane: usize, request: &Request, bytes: &[u8]) {
        let server = self.servers.live()[0];
        let mut parts = vec![Part { server, ..Part::default() }];
        let mut length = 0;
        for (number, key) in keys(request, bytes).enumerate() {
            if length + key.len() + 1 > GAT_KEYS_BYTES {
                parts.push(Part { server, ..Part::default() });
                length = 0;
            }
            length += key.len() + 1;
            if let Some(part) = parts.last_mut() {
                part.keys.push(number);
            }
        }
        let others: Vec<usize> = self.servers.live()[1..].to_vec();
        for server in others {
            for part in &parts {
                let line = part_line(request, bytes, &part.keys);
                self.send(id, lane, server, Role::Discard, request, &line);
            }
        }
        self.send_parts(id, lane, request, bytes, parts);
    }

    /// Sends the parts of a multi-get, whose values are put together in the order of its keys.
    fn send_parts(
        &mut self,
        id: usize,
        lane: usize,
        request: &Request,
        bytes: &[u8],
        parts: Vec<Part>,
    ) {
        let lines: Vec<(usize, Line)> = parts
            .iter()
            .map(|part| {
                let bytes = part_line(request, bytes, &part.keys);
                (part.server, Line { keys: part.keys.len(), bytes })
            })
            .collect();
        let Some(entry) = self.requests.get_mut(id) else { return };
        entry.bytes.clear();
        entry.bytes.extend_from_slice(bytes);
        entry.gather = Some(Box::new(Gather { parts, ..Gather::default() }));
        entry.waiting += lines.len();
        for (number, (server, line)) in lines.into_iter().enumerate() {
            self.send_line(id, lane, server, number, &line);
        }
    }

    /// Asks another server for a part that one could not give.
    pub(crate) fn send_part_again(&mut self, id: usize, number: usize, server: usize) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        let (Some(lane), Some(gather)) = (entry.lane, entry.gather.as_mut()) else { return };
        let part = &mut gather.parts[number];
        part.server = server;
        let request = again(&entry.bytes, &self.limits);
        let bytes = part_line(&request, &entry.bytes, &part.keys);
        let line = Line { keys: part.keys.len(), bytes };
        self.send_line(id, lane, server, number, &line);
    }

    #[expect(clippy::too_many_arguments, reason = "each says something else of where it goes")]
    pub(crate) fn send(
        &mut self,
        id: usize,
        lane: usize,
        server: usize,
        role: Role,
        request: &Request,
        bytes: &[u8],
    ) {
        if let Some(entry) = self.requests.get_mut(id) {
            entry.waiting += 1;
        }
        self.send_counted(id, lane, server, role, request, bytes);
    }

    /// Writes a request as one server shall see it.
    #[expect(clippy::too_many_arguments, reason = "each says something else of where it goes")]
    fn send_counted(
        &mut self,
        id: usize,
        lane: usize,
        server: usize,
        role: Role,
        request: &Request,
        bytes: &[u8],
    ) {
        let origin = self.servers.origin(server);
        let stage = self.requests.get(id).map_or(Stage::Only, |entry| entry.stage);
        let conn = self.servers.number(lane, server);
        let flight = InFlight::new(id, role, framing(request));
        let write = |out: &mut Vec<u8>| write_request(out, request, bytes, origin, stage);
        self.servers.send(conn, flight, request.keys.max(1), write, &mut self.tools);
    }

    /// Sends one part of a multi-get.
    fn send_line(&mut self, id: usize, lane: usize, server: usize, part: usize, line: &Line) {
        let conn = self.servers.number(lane, server);
        let flight = InFlight::new(id, Role::Gather(part), Framing::Values);
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&line.bytes);
        self.servers.send(conn, flight, line.keys, write, &mut self.tools);
    }
}

/// A part of a multi-get as a server shall see it.
struct Line {
    keys: usize,
    bytes: Vec<u8>,
}

/// The line of a part of a multi-get.
fn part_line(request: &Request, bytes: &[u8], numbers: &[usize]) -> Vec<u8> {
    let line = request.line.of(bytes);
    let mut words = tokens(line);
    let mut part = Vec::with_capacity(line.len());
    part.extend_from_slice(words.next().unwrap_or(b"get"));
    if matches!(request.command, Command::Gat | Command::Gats) {
        part.push(b' ');
        part.extend_from_slice(words.next().unwrap_or(b"0"));
    }
    let mut wanted = numbers.iter().peekable();
    for (number, key) in words.enumerate() {
        if wanted.next_if(|next| **next == number).is_some() {
            part.push(b' ');
            part.extend_from_slice(key);
        }
    }
    part.extend_from_slice(b"\r\n");
    part
}

/// Writes a request as a server shall see it: every server answers it, so `noreply` is left out
/// and an `mn` marks the end of a quiet command; numbers are plain, so that proxy and server
/// agree on where the value ends.
fn write_request(out: &mut Vec<u8>, request: &Request, bytes: &[u8], origin: Origin, stage: Stage) {
    let line = request.line.of(bytes);
    let compares = request.unique.filter(|_| origin.is_mapped() || stage != Stage::Only);
    let plain_end = bytes[request.line.end..].starts_with(b"\r\n");
    let length = request.value_length;
    let plain_length = length.of(bytes).iter().all(u8::is_ascii_digit);
    let long = line.len() >= LINE_BYTES;
    if !request.noreply && compares.is_none() && plain_end && plain_length && !long {
        out.extend_from_slice(bytes);
    } else {
        write_line(out, request, bytes, compares, origin, stage);
        out.extend_from_slice(b"\r\n");
        if let Some(value) = request.value {
            out.extend_from_slice(value.of(bytes));
        }
    }
    if request.quiet {
        out.extend_from_slice(b"mn\r\n");
    }
}

fn write_line(
    out: &mut Vec<u8>,
    request: &Request,
    bytes: &[u8],
    compares: Option<Span>,
    origin: Origin,
    stage: Stage,
) {
    let base = bytes.as_ptr() as usize;
    let is_meta = request.command != Command::Store(Store::Cas);
    let count = tokens(request.line.of(bytes)).count();
    let begin = out.len();
    for (number, token) in tokens(request.line.of(bytes)).enumerate() {
        let start = token.as_ptr() as usize - base;
        if request.noreply && number + 1 == count {
            continue;
        }
        let is_unique = compares.is_some_and(|unique| start + token.len() == unique.end);
        if is_unique && stage == Stage::Second {
            // The server that decides agreed: the others follow without comparing.
            continue;
        }
        if out.len() > begin {
            out.push(b' ');
        }
        if number == 0 && stage == Stage::Second && !is_meta {
            out.extend_from_slice(b"set");
        } else if is_unique {
            let shown = compares.and_then(|unique| unsigned(unique.of(bytes)));
            if is_meta {
                out.push(b'C');
            }
            match shown {
                Some(shown) => {
                    let known = if origin.is_mapped() { origin.known(shown) } else { shown };
                    out.extend_from_slice(known.to_string().as_bytes());
                }
                // Not a number: the server says so.
                None => out.extend_from_slice(&token[usize::from(is_meta)..]),
            }
        } else if start == request.value_length.start && request.value.is_some() {
            let value = request.value.map_or(0, |value| value.len() - 2);
            out.extend_from_slice(value.to_string().as_bytes());
        } else {
            out.extend_from_slice(token);
        }
    }
}
