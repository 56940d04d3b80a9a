//! What goes beside a request: copies for a shadow pool, and what keeps a cold pool and the warm one
//! that it is filled from in step.

use kendall_protocols::memcached::{
    Command, Framing, Request, Span, Status, Store, keys, tokens, whole,
};

use crate::conn::{InFlight, Role};
use crate::dispatch::{To, by_pool, framing, part_line, write_request};
use crate::engine::Engine;
use crate::mark::{Mark, hash};
use crate::options::{MILLION, WARM_WINDOW};
use crate::pools::Copies;
use crate::report;
use crate::request::{
    Fill, Stage, again, has_encoded_key, has_key, has_values, is_read, is_warmed, rank,
};

/// Longest time of an item that servers take for a time from now; what is more is a date.
const LONGEST_TIME: u64 = 30 * 24 * 3600;

/// Whether a request may change the value of its key.
fn changes(request: &Request) -> bool {
    match request.command {
        Command::Store(_)
        | Command::Incr
        | Command::Decr
        | Command::Delete
        | Command::MetaSet
        | Command::MetaDelete
        | Command::MetaArithmetic => true,
        Command::MetaGet => request.writes,
        _ => false,
    }
}

/// Whether the requests for a key are copied: always the same keys.
fn is_copied(key: &[u8], millionths: u32) -> bool {
    // FNV-1a, with its bits mixed: keys that differ in their last byte are far apart.
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 32) % u64::from(MILLION) < u64::from(millionths)
}

impl Engine {
    /// Sends what goes beside a request.
    pub(crate) fn accompany(&mut self, id: usize, lane: usize, request: &Request, bytes: &[u8]) {
        if !has_key(request) || request.keys == 0 {
            return;
        }
        if request.keys > 1 {
            return self.copy_parts(request, bytes);
        }
        let key = request.key.of(bytes);
        let pool = self.pools.of_key(key);
        if let Some(copies) = self.pools.shadow(pool)
            && is_copied(key, copies.millionths)
        {
            self.copy(copies, request, bytes);
        }
        if let Some(warm) = self.pools.warm(pool)
            && changes(request)
        {
            // What is there is older than what is here from now on.
            let encoded = has_encoded_key(request, bytes);
            let mut command = if encoded { b"md ".to_vec() } else { b"delete ".to_vec() };
            command.extend_from_slice(key);
            command.extend_from_slice(if encoded { b" b\r\n" } else { b"\r\n" });
            let (framing, kind) = match encoded {
                true => (Framing::Meta, Command::MetaDelete),
                false => (Framing::Line, Command::Delete),
            };
            for server in self.pools[warm.pool].all_for(key) {
                let to = To { lane, pool: warm.pool, server };
                let flight = InFlight::new(id, Role::Discard, framing, kind);
                self.send_raw(flight, to, &command);
            }
        }
    }

    /// Copies a request with one key.
    fn copy(&mut self, copies: Copies, request: &Request, bytes: &[u8]) {
        let pool = &mut self.pools[copies.pool];
        if pool.live().is_empty() {
            return self.tools.recorder.limit_hit(report::SHADOW);
        }
        let key = request.key.of(bytes);
        let servers =
            if is_read(request) { vec![pool.any_for(key, true)] } else { pool.all_for(key) };
        for server in servers {
            let pool = &mut self.pools[copies.pool];
            let origin = pool.origin(server);
            let mark = self.tools.mark(request, bytes);
            let flight = InFlight::new(usize::MAX, Role::Shadow, framing(request), request.command)
                .of(request, bytes, mark);
            let write = |out: &mut Vec<u8>| {
                write_request(out, request, bytes, origin, (Stage::Only, mark));
            };
            let sent = pool.send_copy(server, flight, (1, bytes.len()), write, &mut self.tools);
            self.count_copy(sent);
        }
    }

    /// Copies those keys of a multi-get that are to be copied.
    fn copy_parts(&mut self, request: &Request, bytes: &[u8]) {
        let copied = keys(request, bytes).enumerate().filter_map(|(number, key)| {
            let copies = self.pools.shadow(self.pools.of_key(key))?;
            is_copied(key, copies.millionths).then_some((copies.pool, number))
        });
        for group in by_pool(copied) {
            let Some(parts) = self.parts(request, bytes, vec![group]) else {
                self.tools.recorder.limit_hit(report::SHADOW);
                continue;
            };
            for part in parts {
                let line = part_line(request, bytes, &part.keys);
                let flight =
                    InFlight::new(usize::MAX, Role::Shadow, Framing::Values, request.command);
                let size = (part.keys.len(), line.len());
                let write = |out: &mut Vec<u8>| out.extend_from_slice(&line);
                let pool = &mut self.pools[part.pool];
                let sent = pool.send_copy(part.server, flight, size, write, &mut self.tools);
                self.count_copy(sent);
            }
        }
    }

    fn count_copy(&mut self, sent: bool) {
        if sent {
            self.tools.recorder.outcome(report::SHADOW_COPIES, 1);
        } else {
            self.tools.recorder.limit_hit(report::SHADOW);
        }
    }

    /// Asks a cold pool in such a way that it is known which keys it had before the client is answered.
    pub(crate) fn dispatch_warmed(&mut self, id: usize, to: To, request: &Request, bytes: &[u8]) {
        if request.command != Command::MetaGet {
            return self.dispatch_parts(id, to.lane, request, bytes, Some(to.pool));
        }
        if let Some(entry) = self.requests.get_mut(id) {
            entry.bytes.clear();
            entry.bytes.extend_from_slice(bytes);
        }
        let key = request.key.of(bytes);
        let server = self.pools[to.pool].any_for(key, !request.shows_unique);
        self.send(id, To { server, ..to }, Role::Collect, request, bytes);
    }

    /// All servers that were asked have answered: brings over what a cold pool did not have. `true` when
    /// there is still something to wait for.
    pub(crate) fn fills(&mut self, id: usize) -> bool {
        let Some(entry) = self.requests.get_mut(id) else { return false };
        let Some(request) = entry.parsed else { return false };
        if !has_values(&request) || entry.gather.as_ref().is_some_and(|g| g.error.is_some()) {
            return false;
        }
        let fill = match entry.fill.take() {
            Some(fill) => fill,
            None => {
                let missing = self.missing(id, &request);
                if missing.is_empty() {
                    return false;
                }
                Box::new(Fill { missing, ..Fill::default() })
            }
        };
        if fill.is_over {
            return false;
        }
        let over = fill.asked == fill.missing.len();
        if let Some(entry) = self.requests.get_mut(id) {
            entry.fill = Some(fill);
        }
        if over { self.ask_again(id, &request) } else { self.fetch_some(id) }
    }

    /// The keys that cold pools did not have, and the warm ones may.
    fn missing(&self, id: usize, request: &Request) -> Vec<(usize, Span, usize)> {
        let Some(entry) = self.requests.get(id) else { return Vec::new() };
        let Some(gather) = &entry.gather else {
            if entry.verdict.rank.is_none() || entry.bytes.is_empty() {
                // The pool was not warmed up when it was asked.
                return Vec::new();
            }
            let missed = entry.verdict.rank.is_some_and(|best| best.0 == rank(Status::Miss));
            let silent = request.quiet && entry.vote.is_empty();
            let warmed = self.pools.warm(entry.pool).is_some()
                && is_warmed(request, &entry.bytes)
                && (missed || silent);
            return if warmed { vec![(0, request.key, entry.pool)] } else { Vec::new() };
        };
        let mut asked: Vec<(usize, usize)> = Vec::new();
        for part in &gather.parts {
            if self.pools.warm(part.pool).is_none() {
                continue;
            }
            let had = |key: usize| part.blocks.iter().any(|block| block.0 == key);
            // Both are in the order of the keys.
            asked.extend(part.keys.iter().filter(|key| !had(**key)).map(|key| (*key, part.pool)));
        }
        asked.sort_unstable();
        let base = entry.bytes.as_ptr() as usize;
        let mut next = asked.into_iter().peekable();
        let mut missing = Vec::new();
        for (number, key) in keys(request, &entry.bytes).enumerate() {
            if let Some((_, pool)) = next.next_if(|wanted| wanted.0 == number) {
                let start = key.as_ptr() as usize - base;
                missing.push((number, Span { start, end: start + key.len() }, pool));
            }
        }
        missing
    }

    /// Asks the warm pool for the next of the missing keys. `true` when an answer is awaited.
    fn fetch_some(&mut self, id: usize) -> bool {
        loop {
            let Some(entry) = self.requests.get_mut(id) else { return false };
            let (Some(lane), Some(fill)) = (entry.lane, &mut entry.fill) else { return false };
            let from = fill.asked;
            let to = fill.missing.len().min(from + WARM_WINDOW);
            fill.asked = to;
            if from == to {
                let request = entry.parsed;
                return request.is_some_and(|request| self.ask_again(id, &request));
            }
            let window: Vec<(usize, Vec<u8>, usize)> = (from..to)
                .map(|number| {
                    let (_, key, pool) = fill.missing[number];
                    (number, key.of(&entry.bytes).to_vec(), pool)
                })
                .collect();
            let mut sent = Vec::new();
            for (number, key, pool) in window {
                let Some(warm) = self.pools.warm(pool) else { continue };
                if self.pools[warm.pool].live().is_empty() {
                    continue;
                }
                let server = self.pools[warm.pool].any_for(&key, true);
                let mut command = b"mg ".to_vec();
                command.extend_from_slice(&key);
                let opaque = self.tools.next_opaque();
                command.extend_from_slice(format!(" v f t O{opaque}\r\n").as_bytes());
                let mark = Mark::Of(hash(opaque.to_string().as_bytes()));
                let flight =
                    InFlight::new(id, Role::Fetch(number), Framing::Meta, Command::MetaGet);
                let to = To { lane, pool: warm.pool, server };
                sent.push((flight.marked(mark), to, command));
            }
            for (flight, to, command) in &sent {
                self.send_raw(*flight, *to, command);
            }
            if !sent.is_empty() {
                return true;
            }
        }
    }

    /// The warm pool answered: what it has goes to the cold pool.
    pub(crate) fn fetched(&mut self, id: usize, number: usize, reply: &[u8]) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        let (Some(lane), Some(fill)) = (entry.lane, &mut entry.fill) else { return };
        let (ordinal, key, pool) = fill.missing[number];
        let Some(warm) = self.pools.warm(pool) else { return };
        let key = key.of(&entry.bytes);
        let Some(command) = add_command(key, reply, warm.longest) else { return };
        let servers = self.pools[pool].all_for(key);
        if servers.is_empty() {
            return;
        }
        fill.found.push((ordinal, pool));
        for server in servers {
            let to = To { lane, pool, server };
            let kind = Command::Store(Store::Add);
            let flight = InFlight::new(id, Role::Discard, Framing::Line, kind);
            self.send_raw(flight, to, &command);
        }
        self.tools.recorder.outcome(report::WARMED, 1);
    }

    /// The cold pool has what the warm one had: its answer is the client's. `false` when there was nothing.
    fn ask_again(&mut self, id: usize, request: &Request) -> bool {
        let Some(entry) = self.requests.get_mut(id) else { return false };
        let (Some(lane), Some(fill)) = (entry.lane, &mut entry.fill) else { return false };
        fill.is_over = true;
        let mut found = std::mem::take(&mut fill.found);
        if found.is_empty() {
            return false;
        }
        let pool = entry.pool;
        let bytes = std::mem::take(&mut entry.bytes);
        debug_assert_eq!(again(&bytes).line, request.line);
        if entry.gather.is_none() {
            entry.verdict = crate::request::Verdict::default();
            entry.vote.clear();
            let servers = &mut self.pools[pool];
            let asked = !servers.live().is_empty();
            if asked {
                let key = request.key.of(&bytes);
                let server = servers.any_for(key, !request.shows_unique);
                self.send(id, To { lane, pool, server }, Role::Relay, request, &bytes);
            }
            self.keep(id, bytes);
            return asked;
        }
        found.sort_unstable();
        // Where they were added, and not where a newer configuration would look for them.
        let groups = by_pool(found.into_iter().map(|(number, pool)| (pool, number)));
        let parts = self.parts(request, &bytes, groups);
        let asked = parts.is_some();
        self.send_more_parts(id, lane, request, &bytes, parts.unwrap_or_default());
        self.keep(id, bytes);
        asked
    }

    /// Keeps a request's bytes for as long as it may be sent again.
    fn keep(&mut self, id: usize, bytes: Vec<u8>) {
        if let Some(entry) = self.requests.get_mut(id) {
            entry.bytes = bytes;
        }
    }
}

/// The command that stores what a meta get of value, flags and time left was answered with. `None` when it
/// was not answered with an item.
fn add_command(key: &[u8], reply: &[u8], longest: Option<u64>) -> Option<Vec<u8>> {
    let end = reply.iter().position(|byte| *byte == b'\n')?;
    let mut words = tokens(reply[..end].strip_suffix(b"\r")?);
    if words.next() != Some(b"VA") {
        return None;
    }
    let length = words.next()?;
    let (mut flags, mut time): (&[u8], u64) = (b"0", 0);
    for word in words {
        match word.split_first()? {
            (b'f', digits) => flags = digits,
            // A negative one has no end.
            (b't', digits) => time = whole(digits).map_or(0, |left| left.clamp(1, LONGEST_TIME)),
            // Another client was told already that it is out of date.
            (b'X', _) => return None,
            _ => {}
        }
    }
    if let Some(longest) = longest {
        let longest = longest.min(LONGEST_TIME);
        time = if time == 0 { longest } else { time.min(longest) };
    }
    let mut command = b"add ".to_vec();
    command.reserve(key.len() + reply.len() + 40);
    for (word, behind) in [
        (key, b" ".as_slice()),
        (flags, b" "),
        (time.to_string().as_bytes(), b" "),
        (length, b"\r\n"),
    ] {
        command.extend_from_slice(word);
        command.extend_from_slice(behind);
    }
    command.extend_from_slice(&reply[end + 1..]);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_brought_over_with_its_flags_and_for_the_time_that_it_has_left() {
        let add = |reply: &str, longest| {
            add_command(b"k", reply.as_bytes(), longest).map(|c| String::from_utf8(c).unwrap())
        };
        let item = |time: &str| format!("VA 2 f7 t{time}\r\nab\r\n");
        assert_eq!(add(&item("-1"), None).unwrap(), "add k 7 0 2\r\nab\r\n");
        assert_eq!(add(&item("90"), None).unwrap(), "add k 7 90 2\r\nab\r\n");
        assert_eq!(add(&item("90"), Some(60)).unwrap(), "add k 7 60 2\r\nab\r\n");
        assert_eq!(add(&item("-1"), Some(60)).unwrap(), "add k 7 60 2\r\nab\r\n");
        // It ends in this second: as a time of 0 it would never end.
        assert_eq!(add(&item("0"), None).unwrap(), "add k 7 1 2\r\nab\r\n");
        // More than 30 days would be a date.
        assert_eq!(add(&item("9999999"), None).unwrap(), "add k 7 2592000 2\r\nab\r\n");
        assert_eq!(add("EN\r\n", None), None);
        assert_eq!(add("SERVER_ERROR out of memory\r\n", None), None);
        assert_eq!(add("VA 1 f0 t-1 X\r\na\r\n", None), None);
    }

    #[test]
    fn a_share_of_the_keys_is_copied_and_always_the_same() {
        const KEYS: u32 = 20_000;
        let keys: Vec<String> = (0..KEYS).map(|number| format!("key-{number}")).collect();
        for millionths in [1, 100_000, 500_000, MILLION] {
            let copied = keys.iter().filter(|key| is_copied(key.as_bytes(), millionths)).count();
            let copied = f64::from(u32::try_from(copied).unwrap());
            let wanted = f64::from(KEYS) * f64::from(millionths) / f64::from(MILLION);
            // Five standard deviations of a binomial count.
            let share = f64::from(millionths) / f64::from(MILLION);
            let spread = 5.0 * (f64::from(KEYS) * share * (1.0 - share)).sqrt() + 1.0;
            assert!((copied - wanted).abs() <= spread, "{copied} of {wanted}");
        }
    }
}
