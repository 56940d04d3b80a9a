//! From a request to the servers that must see it.

use kendall_protocols::memcached::{
    Command, Framing, LINE_BYTES, Request, Span, Store, keys, tokens, unsigned,
};

use crate::check;
use crate::conn::{InFlight, Role};
use crate::engine::Engine;
use crate::mark::Mark;
use crate::options::Placement;
use crate::pools::Target;
use crate::report;
use crate::request::{Part, Stage, again, is_warmed};
use crate::unique::Origin;

const NO_SERVER: &[u8] = b"SERVER_ERROR no server is available\r\n";
/// Bytes of keys of one `gat` line: with the command in front, below what a server closes upon.
const GAT_KEYS_BYTES: usize = LINE_BYTES - 64;

/// Whether a request goes to the server that decides first and to the others when it agreed:
/// uniques differ between servers, so only one of them can compare.
pub(crate) fn is_exclusive(engine: &Engine, request: &Request, bytes: &[u8]) -> bool {
    if request.unique.is_none() || request.command == Command::MetaGet {
        return false;
    }
    let servers = &engine.pools[engine.pools.of_key(request.key.of(bytes))];
    servers.policy.placement == Placement::Replicate && servers.live().len() > 1
}

/// A server, and the connections that go there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct To {
    pub(crate) lane: usize,
    pub(crate) pool: usize,
    pub(crate) server: usize,
}

/// How the reply to a request ends.
pub(crate) fn framing(request: &Request) -> Framing {
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

/// Numbers of keys by their pool, of pairs of both.
pub(crate) fn by_pool(keys: impl Iterator<Item = (usize, usize)>) -> Vec<(usize, Vec<usize>)> {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for (pool, number) in keys {
        match groups.iter_mut().find(|group| group.0 == pool) {
            Some(group) => group.1.push(number),
            None => groups.push((pool, vec![number])),
        }
    }
    groups
}

impl Engine {
    /// Sends a request to the servers that must see it.
    pub(crate) fn dispatch(&mut self, id: usize, lane: usize, bytes: &[u8]) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        let Some(request) = entry.parsed else { return };
        entry.lane = Some(lane);
        entry.plan = Some(self.pools.begin());
        let pool = match self.pools.of(&request, bytes) {
            Target::One(pool) => pool,
            Target::Several => return self.dispatch_parts(id, lane, &request, bytes, None),
            Target::All => return self.dispatch_to_all(id, lane, &request, bytes),
        };
        entry.pool = pool;
        if self.pools[pool].live().is_empty() {
            return self.without_server(id);
        }
        if self.pools.have_company() {
            self.accompany(id, lane, &request, bytes);
            if self.pools.warm(pool).is_some() && is_warmed(&request, bytes) {
                return self.dispatch_warmed(id, To { lane, pool, server: 0 }, &request, bytes);
            }
        }
        match self.pools[pool].policy.placement {
            Placement::Replicate => self.dispatch_replicated(id, lane, pool, &request, bytes),
            Placement::Hash => self.dispatch_hashed(id, lane, pool, &request, bytes),
        }
    }

    fn without_server(&mut self, id: usize) {
        self.tools.recorder.outcome(report::NO_BACKEND, 1);
        self.finish_with(id, NO_SERVER);
    }

    fn dispatch_replicated(
        &mut self,
        id: usize,
        lane: usize,
        pool: usize,
        request: &Request,
        bytes: &[u8],
    ) {
        let live = self.pools[pool].live();
        let (server, alone) = (live[0], live.len() == 1);
        let shards = self.pools[pool].policy.shard_multigets && !alone;
        let first = To { lane, pool, server };
        match request.command {
            Command::Get if shards && request.keys > 1 => {
                let parts = self.pools[pool].shards(request.keys);
                self.send_parts(id, lane, request, bytes, parts);
            }
            Command::Get | Command::Version => {
                let server = self.pools[pool].next_in_turn();
                self.send_read(id, To { server, ..first }, request, bytes);
            }
            Command::MetaGet if !request.writes && !request.shows_unique => {
                let server = self.pools[pool].next_in_turn();
                self.send_read(id, To { server, ..first }, request, bytes);
            }
            Command::Gets | Command::Stats | Command::MetaDebug => {
                self.send_read(id, first, request, bytes);
            }
            Command::Gat | Command::Gats if bytes.len() > LINE_BYTES => {
                self.dispatch_parts(id, lane, request, bytes, Some(pool));
            }
            Command::MetaGet if !request.writes => {
                self.send_read(id, first, request, bytes);
            }
            _ if alone => self.send(id, first, Role::Relay, request, bytes),
            Command::Gat | Command::Gats | Command::MetaGet => {
                for other in self.pools[pool].live().to_vec() {
                    let role = if other == server { Role::Relay } else { Role::Discard };
                    self.send(id, To { server: other, ..first }, role, request, bytes);
                }
            }
            _ if is_exclusive(self, request, bytes) => {
                if let Some(entry) = self.requests.get_mut(id) {
                    entry.stage = Stage::First;
                    entry.bytes.clear();
                    entry.bytes.extend_from_slice(bytes);
                }
                self.send(id, first, Role::Collect, request, bytes);
            }
            _ => {
                let all =
                    self.pools[pool].live().iter().map(|server| To { server: *server, ..first });
                let all: Vec<To> = all.collect();
                self.send_to_all(id, &all, request, bytes);
            }
        }
    }

    fn dispatch_hashed(
        &mut self,
        id: usize,
        lane: usize,
        pool: usize,
        request: &Request,
        bytes: &[u8],
    ) {
        let servers = &self.pools[pool];
        let first = To { lane, pool, server: servers.live()[0] };
        match request.command {
            Command::Gat | Command::Gats if bytes.len() > LINE_BYTES => {
                self.dispatch_parts(id, lane, request, bytes, Some(pool));
            }
            Command::Get | Command::Gets | Command::Gat | Command::Gats if request.keys > 1 => {
                let parts = servers.placed(request, bytes, None);
                if let [only] = parts.as_slice() {
                    let to = To { server: only.server, ..first };
                    return self.send(id, to, Role::Relay, request, bytes);
                }
                self.send_parts(id, lane, request, bytes, parts);
            }
            Command::FlushAll | Command::Verbosity | Command::Admin => {
                let all = servers.live().iter().map(|server| To { server: *server, ..first });
                let all: Vec<To> = all.collect();
                self.send_to_all(id, &all, request, bytes);
            }
            Command::Stats | Command::Version => {
                self.send(id, first, Role::Relay, request, bytes);
            }
            _ => {
                let server = servers.of_key(request.key.of(bytes));
                self.send(id, To { server, ..first }, Role::Relay, request, bytes);
            }
        }
    }

    /// A request without a key, which is for every server of every pool.
    fn dispatch_to_all(&mut self, id: usize, lane: usize, request: &Request, bytes: &[u8]) {
        let mut all: Vec<To> = Vec::new();
        for pool in self.pools.asked() {
            let live = self.pools[pool].live().iter();
            all.extend(live.map(|server| To { lane, pool, server: *server }));
        }
        if all.is_empty() {
            return self.without_server(id);
        }
        self.send_to_all(id, &all, request, bytes);
    }

    /// A request for values that goes in parts to servers of one pool, or of all that have its keys.
    pub(crate) fn dispatch_parts(
        &mut self,
        id: usize,
        lane: usize,
        request: &Request,
        bytes: &[u8],
        pool: Option<usize>,
    ) {
        if pool.is_none() && self.pools.have_company() {
            self.accompany(id, lane, request, bytes);
        }
        let groups = match pool {
            Some(pool) => vec![(pool, (0..request.keys).collect())],
            None => {
                let keys = keys(request, bytes).enumerate();
                by_pool(keys.map(|(number, key)| (self.pools.of_key(key), number)))
            }
        };
        match self.parts(request, bytes, groups) {
            Some(parts) => self.send_parts(id, lane, request, bytes, parts),
            None => self.without_server(id),
        }
    }

    /// Who is asked for which keys. `None` when no server can be.
    pub(crate) fn parts(
        &mut self,
        request: &Request,
        bytes: &[u8],
        groups: Vec<(usize, Vec<usize>)>,
    ) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        for (pool, numbers) in groups {
            let servers = &mut self.pools[pool];
            let first = servers.live().first().copied()?;
            let policy = servers.policy;
            if policy.placement == Placement::Hash {
                parts.extend(servers.placed(request, bytes, Some(&numbers)));
                continue;
            }
            if request.command != Command::Get {
                parts.push(Part { pool, server: first, keys: numbers, ..Part::default() });
            } else if policy.shard_multigets && numbers.len() > 1 {
                let shards = servers.shards(numbers.len()).into_iter().map(|part| Part {
                    keys: part.keys.iter().map(|number| numbers[*number]).collect(),
                    ..part
                });
                parts.extend(shards);
            } else {
                let server = servers.next_in_turn();
                parts.push(Part { pool, server, keys: numbers, ..Part::default() });
            }
        }
        if matches!(request.command, Command::Gat | Command::Gats) {
            parts = short(parts, request, bytes);
        }
        Some(parts)
    }

    fn send_read(&mut self, id: usize, to: To, request: &Request, bytes: &[u8]) {
        if self.pools[to.pool].live().len() > 1
            && let Some(entry) = self.requests.get_mut(id)
        {
            // Kept, so that it can be asked elsewhere.
            entry.bytes.clear();
            entry.bytes.extend_from_slice(bytes);
        }
        self.send(id, to, Role::Relay, request, bytes);
    }

    fn send_to_all(&mut self, id: usize, all: &[To], request: &Request, bytes: &[u8]) {
        let role = if all.len() == 1 { Role::Relay } else { Role::Collect };
        if let Some(entry) = self.requests.get_mut(id) {
            // All at once, so that a server that fails at once does not end the request.
            entry.waiting += all.len();
        }
        for to in all {
            self.send_counted(id, *to, role, request, bytes);
        }
    }

    /// Sends a request to a server that follows the one that decided.
    pub(crate) fn send_follow(&mut self, id: usize, to: To, request: &Request, bytes: &[u8]) {
        self.send_counted(id, to, Role::Follow, request, bytes);
    }

    /// Sends the parts of a multi-get, whose values are put together in the order of its keys.
    pub(crate) fn send_parts(
        &mut self,
        id: usize,
        lane: usize,
        request: &Request,
        bytes: &[u8],
        parts: Vec<Part>,
    ) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        entry.bytes.clear();
        entry.bytes.extend_from_slice(bytes);
        entry.gather.get_or_insert_default();
        self.send_more_parts(id, lane, request, bytes, parts);
    }

    /// Sends parts beside those that a request has already.
    pub(crate) fn send_more_parts(
        &mut self,
        id: usize,
        lane: usize,
        request: &Request,
        bytes: &[u8],
        parts: Vec<Part>,
    ) {
        let lines: Vec<(To, Line)> = parts
            .iter()
            .map(|part| {
                let bytes = part_line(request, bytes, &part.keys);
                let to = To { lane, pool: part.pool, server: part.server };
                (to, Line { command: request.command, keys: part.keys.len(), bytes })
            })
            .collect();
        let Some(entry) = self.requests.get_mut(id) else { return };
        let Some(gather) = &mut entry.gather else { return };
        let first = gather.parts.len();
        gather.parts.extend(parts);
        entry.waiting += lines.len();
        for (number, (to, line)) in lines.into_iter().enumerate() {
            if matches!(request.command, Command::Gat | Command::Gats) {
                self.send_to_replicas(id, to, request, &line.bytes);
            }
            self.send_line(id, to, first + number, &line);
        }
    }

    /// Has the others that hold the same keys touch them as well.
    fn send_to_replicas(&mut self, id: usize, to: To, request: &Request, line: &[u8]) {
        let servers = &self.pools[to.pool];
        if servers.policy.placement == Placement::Hash {
            return;
        }
        for server in servers.live().to_vec() {
            if server != to.server {
                let to = To { server, ..to };
                let flight = InFlight::new(id, Role::Discard, framing(request), request.command);
                self.send_raw(flight, to, line);
            }
        }
    }

    /// Asks another server for a part that one could not give.
    pub(crate) fn send_part_again(&mut self, id: usize, number: usize, server: usize) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        let (Some(lane), Some(gather)) = (entry.lane, entry.gather.as_mut()) else { return };
        let part = &mut gather.parts[number];
        part.server = server;
        let request = again(&entry.bytes);
        let bytes = part_line(&request, &entry.bytes, &part.keys);
        let line = Line { command: request.command, keys: part.keys.len(), bytes };
        let to = To { lane, pool: part.pool, server };
        self.send_line(id, to, number, &line);
    }

    pub(crate) fn send(&mut self, id: usize, to: To, role: Role, request: &Request, bytes: &[u8]) {
        if let Some(entry) = self.requests.get_mut(id) {
            entry.waiting += 1;
        }
        self.send_counted(id, to, role, request, bytes);
    }

    /// Writes a request as one server shall see it.
    fn send_counted(&mut self, id: usize, to: To, role: Role, request: &Request, bytes: &[u8]) {
        let servers = &mut self.pools[to.pool];
        let origin = servers.origin(to.server);
        let stage = self.requests.get(id).map_or(Stage::Only, |entry| entry.stage);
        let conn = servers.number(to.lane, to.server);
        let mark = self.tools.mark(request, bytes);
        let flight = InFlight::new(id, role, framing(request), request.command);
        let flight = flight.of(request, bytes, mark);
        if check::has_several_keys(&flight)
            && let Some(entry) = self.requests.get_mut(id)
        {
            // Its values' keys are compared with them.
            entry.key_at = 0;
            entry.bytes.clear();
            entry.bytes.extend_from_slice(bytes);
        }
        let write = |out: &mut Vec<u8>| write_request(out, request, bytes, origin, (stage, mark));
        servers.send(conn, flight, request.keys.max(1), write, &mut self.tools);
    }

    /// Sends one part of a multi-get.
    fn send_line(&mut self, id: usize, to: To, part: usize, line: &Line) {
        let servers = &mut self.pools[to.pool];
        let conn = servers.number(to.lane, to.server);
        let flight = InFlight::new(id, Role::Gather(part), Framing::Values, line.command);
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&line.bytes);
        servers.send(conn, flight, line.keys, write, &mut self.tools);
    }

    /// Sends a command of the proxy's own that a request waits for.
    pub(crate) fn send_raw(&mut self, flight: InFlight, to: To, command: &[u8]) {
        if let Some(entry) = self.requests.get_mut(flight.request) {
            entry.waiting += 1;
        }
        let servers = &mut self.pools[to.pool];
        let conn = servers.number(to.lane, to.server);
        let write = |out: &mut Vec<u8>| out.extend_from_slice(command);
        servers.send(conn, flight, 1, write, &mut self.tools);
    }
}

/// Parts whose lines a server takes in one piece.
fn short(parts: Vec<Part>, request: &Request, bytes: &[u8]) -> Vec<Part> {
    let lengths: Vec<usize> = keys(request, bytes).map(<[u8]>::len).collect();
    let mut short: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        let (pool, server) = (part.pool, part.server);
        let mut length = usize::MAX / 2;
        for number in part.keys {
            if length + lengths[number] + 1 > GAT_KEYS_BYTES {
                short.push(Part { pool, server, ..Part::default() });
                length = 0;
            }
            length += lengths[number] + 1;
            if let Some(part) = short.last_mut() {
                part.keys.push(number);
            }
        }
    }
    short
}

/// A part of a multi-get as a server shall see it.
struct Line {
    command: Command,
    keys: usize,
    bytes: Vec<u8>,
}

/// The line of a part of a multi-get.
pub(crate) fn part_line(request: &Request, bytes: &[u8], numbers: &[usize]) -> Vec<u8> {
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
/// agree on where the value ends. An opaque of the proxy's own ends the line.
pub(crate) fn write_request(
    out: &mut Vec<u8>,
    request: &Request,
    bytes: &[u8],
    origin: Origin,
    (stage, mark): (Stage, Mark),
) {
    let line = request.line.of(bytes);
    let compares = request.unique.filter(|_| origin.is_mapped() || stage != Stage::Only);
    let plain_end = bytes[request.line.end..].starts_with(b"\r\n");
    let length = request.value_length;
    let plain_length = length.of(bytes).iter().all(u8::is_ascii_digit);
    let long = line.len() >= LINE_BYTES;
    if !request.noreply && compares.is_none() && plain_end && plain_length && !long {
        out.extend_from_slice(&bytes[..request.line.end]);
        write_opaque(out, mark);
        out.extend_from_slice(&bytes[request.line.end..]);
    } else {
        write_line(out, request, bytes, compares, origin, stage);
        write_opaque(out, mark);
        out.extend_from_slice(b"\r\n");
        if let Some(value) = request.value {
            out.extend_from_slice(value.of(bytes));
        }
    }
    if request.quiet {
        out.extend_from_slice(b"mn\r\n");
    }
}

fn write_opaque(out: &mut Vec<u8>, mark: Mark) {
    if let Mark::Own(number) = mark {
        out.extend_from_slice(format!(" O{number}").as_bytes());
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
