//! From the servers' bytes to answers.

use kendall_protocols::memcached::{Command, Element, Framing, Request, Span, Status, element};

use crate::admission::{Admitted, Size};
use crate::buffer::Buffer;
use crate::check;
use crate::conn::{InFlight, Role};
use crate::dispatch::To;
use crate::engine::Engine;
use crate::mark::Mark;
use crate::options::{ANSWERS_CLIENT, ANSWERS_TOTAL, BULK_BYTES, GATHER_BYTES, Placement};
use crate::report;
use crate::request::{Part, Stage, again, rank};
use crate::servers::{Lost, NOISE};

const DISAGREE: &[u8] = b"SERVER_ERROR servers disagree\r\n";
const GATHER_LIMIT: &[u8] = b"SERVER_ERROR answer too large to put together\r\n";
const MN: &[u8] = b"MN\r\n";
/// Bytes behind a value.
const LINE_END: usize = 2;

/// What was seen of a reply in the bytes at hand.
struct Seen {
    /// Bytes that belong to it.
    bytes: usize,
    /// How it ended, if it did.
    ended: Option<Status>,
}

/// Where bytes of an answer go.
struct AnswerTo {
    client: usize,
    /// The client gets them now; else they wait for its earlier answers.
    is_next: bool,
}

/// A connection to a server.
#[derive(Debug, Clone, Copy)]
struct At {
    pool: usize,
    index: usize,
}

fn shows_unique(request: &Request) -> bool {
    request.shows_unique || matches!(request.command, Command::Gets | Command::Gats)
}

/// Where a line is changed for the client: the unique, and an opaque that is not the client's.
fn in_order(unique: Option<Span>, opaque: Option<Span>) -> impl Iterator<Item = (Span, bool)> {
    let (unique, opaque) = (unique.map(|span| (span, true)), opaque.map(|span| (span, false)));
    let is_first = match (unique, opaque) {
        (Some(unique), Some(opaque)) => unique.0.start < opaque.0.start,
        _ => true,
    };
    let (first, second) = if is_first { (unique, opaque) } else { (opaque, unique) };
    first.into_iter().chain(second)
}

/// Rank of a server among those whose answers are compared.
fn order(pool: usize, server: usize) -> usize {
    (pool << 32) | server
}

impl Engine {
    pub(crate) fn conn_readable(&mut self, pool: usize, index: usize, scratch: &mut [u8]) {
        let servers = &mut self.pools[pool];
        let Some(count) = servers.read(index, scratch, &mut self.tools) else { return };
        let conn = servers.conn_mut(index);
        let at = At { pool, index };
        if conn.input.is_empty() {
            self.read_replies(at, &scratch[..count]);
        } else {
            let mut input = std::mem::take(&mut conn.input);
            input.extend_from_slice(&scratch[..count]);
            self.read_replies(at, &input);
        }
    }

    /// Takes the replies that `bytes` begins with, and keeps what is not a whole element yet.
    fn read_replies(&mut self, from: At, bytes: &[u8]) {
        let At { pool, index } = from;
        let generation = self.pools[pool].conn(index).generation;
        let mut at = 0;
        while at < bytes.len() {
            let Some(head) = self.pools[pool].conn(index).queue.front().copied() else {
                return self.pools[pool].fail(index, NOISE, &mut self.tools);
            };
            let Some(seen) = self.read_reply(from, &head, &bytes[at..]) else {
                return self.pools[pool].fail(index, NOISE, &mut self.tools);
            };
            at += seen.bytes;
            if self.pools[pool].conn(index).generation != generation {
                return;
            }
            match seen.ended {
                Some(status) => self.reply_ended(from, &head, status),
                None if seen.bytes == 0 => break,
                None => {}
            }
            if self.pools[pool].conn(index).generation != generation {
                return;
            }
        }
        self.pools[pool].conn_mut(index).input.extend_from_slice(&bytes[at..]);
    }

    /// Takes as much of one reply as there is. `None` when it is not a reply.
    fn read_reply(&mut self, here: At, head: &InFlight, bytes: &[u8]) -> Option<Seen> {
        let At { pool, index } = here;
        let origin = self.pools[pool].origin(self.pools[pool].conn(index).server);
        let request = self.requests.get(head.request).and_then(|entry| entry.parsed);
        let mapped = origin.is_mapped() && request.is_some_and(|request| shows_unique(&request));
        let mut from = 0;
        let mut at = 0;
        let mut ended = None;
        while at < bytes.len() && ended.is_none() {
            let conn = self.pools[pool].conn_mut(index);
            if conn.data_left > 0 {
                at += conn.take_data(&bytes[at..])?;
                let is_last = conn.data_left == 0 && conn.ends_with_data;
                ended = is_last.then_some(Status::Success);
                continue;
            }
            let rest = &bytes[at..];
            let Some(element) = self.right_element(here, head, rest) else {
                return self.end_whole_lines(here, head, &bytes[from..at]);
            };
            let (length, unique) = match element {
                Element::Incomplete => break,
                Element::Value { header, data, key, unique, last } => {
                    let conn = self.pools[pool].conn_mut(index);
                    conn.found += 1;
                    conn.data_left = data;
                    conn.ends_with_data = last;
                    self.length_is_known(head, data);
                    if let Role::Gather(part) = head.role {
                        self.deliver(here, head, &bytes[from..at]);
                        from = at;
                        self.begin_block(head.request, part, key.of(rest))?;
                    }
                    (header, unique)
                }
                Element::Part(line) => {
                    let is_meta = head.framing == Framing::Quiet;
                    self.pools[pool].conn_mut(index).found += u64::from(is_meta);
                    (line, Element::meta_unique(&rest[..line]))
                }
                Element::Last { line, status } => {
                    ended = Some(status);
                    if self.ends_unseen(head, status, &rest[..line]) {
                        self.deliver(here, head, &bytes[from..at]);
                        from = at + line;
                    }
                    let is_meta = matches!(head.framing, Framing::Meta | Framing::Quiet);
                    (line, if is_meta { Element::meta_unique(&rest[..line]) } else { None })
                }
            };
            let is_own = matches!(head.mark, Mark::Own(_));
            let hidden = if is_own { check::opaque(&rest[..length]) } else { None };
            for (span, is_unique) in in_order(unique.filter(|_| mapped), hidden) {
                self.deliver(here, head, &bytes[from..at + span.start]);
                if is_unique {
                    self.deliver(here, head, origin.shown_text(span.of(rest)).as_bytes());
                }
                from = at + span.end;
            }
            at += length;
        }
        if from < at {
            self.deliver(here, head, &bytes[from..at]);
        }
        Some(Seen { bytes: at, ended })
    }

    /// The element that `bytes` begins with, where it is part of a reply to the request that waits.
    fn right_element(&mut self, from: At, head: &InFlight, bytes: &[u8]) -> Option<Element> {
        let element = element(head.framing, bytes).ok()?;
        self.is_right(from, head, &element, bytes).then_some(element)
    }

    /// What comes next is not a reply. A client that has the beginning of the answer gets what was right of it, so that the
    /// error is on a line of its own.
    fn end_whole_lines(&mut self, from: At, head: &InFlight, right: &[u8]) -> Option<Seen> {
        if self.requests.get(head.request).is_some_and(|entry| entry.begun) {
            self.deliver(from, head, right);
        }
        None
    }

    /// Whether an element that `bytes` begins with is part of a reply to the request that waits.
    fn is_right(&mut self, from: At, head: &InFlight, element: &Element, bytes: &[u8]) -> bool {
        let line = match element {
            Element::Incomplete => return true,
            // Values of the proxy's longest are what its bounds of memory are made for.
            Element::Value { data, .. } if *data > self.limits.value_bytes + LINE_END => {
                return false;
            }
            Element::Value { header, .. } => &bytes[..*header],
            Element::Part(line) | Element::Last { line, .. } => &bytes[..*line],
        };
        let conn = self.pools[from.pool].conn(from.index);
        if !conn.awaits_reply() && !check::is_error(line) {
            return false;
        }
        if !check::fits(head, element, line, conn.found) {
            return false;
        }
        let Element::Value { key, .. } = element else { return true };
        if !check::has_several_keys(head) {
            return true;
        }
        let Some(entry) = self.requests.get_mut(head.request) else { return true };
        let Some(request) = entry.parsed else { return true };
        match check::next_key(&request, &entry.bytes, entry.key_at, key.of(line)) {
            Some(behind) => {
                entry.key_at = behind;
                true
            }
            None => false,
        }
    }

    /// Whether a reply's last line is not part of the answer: the mark behind a quiet command,
    /// and the end or the error of a part of a multi-get.
    fn ends_unseen(&mut self, head: &InFlight, status: Status, line: &[u8]) -> bool {
        if head.framing == Framing::Quiet {
            return line == MN;
        }
        let Role::Gather(_) = head.role else { return false };
        if status != Status::End
            && let Some(entry) = self.requests.get_mut(head.request)
            && let Some(gather) = &mut entry.gather
        {
            gather.error.get_or_insert_with(|| line.to_vec());
        }
        true
    }

    fn deliver(&mut self, from: At, head: &InFlight, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        match head.role {
            Role::Relay => self.emit(head.request, bytes),
            Role::Collect | Role::Follow | Role::Fetch(_) => {
                self.pools[from.pool].conn_mut(from.index).reply.extend_from_slice(bytes)
            }
            Role::Discard | Role::Probe | Role::Count | Role::Shadow => {}
            Role::Gather(number) => {
                let Some(entry) = self.requests.get_mut(head.request) else { return };
                let Some(gather) = &mut entry.gather else { return };
                gather.bytes += bytes.len();
                if gather.bytes > GATHER_BYTES && gather.error.is_none() {
                    self.tools.recorder.limit_hit(report::GATHERED_ANSWER);
                    gather.error = Some(GATHER_LIMIT.to_vec());
                }
                let (index, generation) = (entry.client, entry.generation);
                let is_taken = self.clients.takes_answers(index, generation);
                if gather.error.is_some() || !is_taken {
                    return;
                }
                let Some((_, block)) = gather.parts[number].blocks.last_mut() else { return };
                let before = block.room();
                block.append(bytes);
                self.clients.hold(index, generation, block.room() - before);
                self.check_answer_memory(index);
            }
        }
    }

    /// A value of a part of a multi-get begins: finds which of the client's keys it belongs to.
    /// `None` when it was not asked for.
    fn begin_block(&mut self, id: usize, number: usize, key: &[u8]) -> Option<()> {
        let Some(entry) = self.requests.get_mut(id) else { return Some(()) };
        let (Some(request), Some(gather)) = (entry.parsed, entry.gather.as_mut()) else {
            return Some(());
        };
        let part = &mut gather.parts[number];
        let wanted = &part.keys[part.next.min(part.keys.len())..];
        let mut passed = 0;
        let mut found = None;
        let mut wanted = wanted.iter().peekable();
        for (ordinal, text) in
            kendall_protocols::memcached::keys(&request, &entry.bytes).enumerate()
        {
            if wanted.next_if(|next| **next == ordinal).is_some() {
                passed += 1;
                if text == key {
                    found = Some(ordinal);
                    break;
                }
            }
        }
        part.next += passed;
        part.blocks.push((found?, Buffer::default()));
        Some(())
    }

    /// A value of so many bytes follows: what was admitted for an answer of unknown length is corrected.
    fn length_is_known(&mut self, head: &InFlight, data: usize) {
        if !matches!(head.role, Role::Relay | Role::Gather(_)) {
            return;
        }
        let Some(entry) = self.requests.get_mut(head.request) else { return };
        let before = entry.admitted;
        let is_large = data >= BULK_BYTES;
        if !is_large && before == Admitted::default() {
            return;
        }
        // As far as the server is to be believed.
        let large = if is_large { data.min(self.options.value_bytes) } else { 0 };
        let is_only = entry.parsed.is_some_and(|request| request.keys == 1);
        if is_only {
            entry.admitted = Size::Large.admits(large);
        } else if entry.size != Size::Large {
            entry.admitted.large += large;
        }
        let after = entry.admitted;
        if is_only && let Some(client) = self.clients.of(entry.client, entry.generation) {
            client.expect_at_least(large);
        }
        self.clients.readmit(before, after);
    }

    /// Puts bytes behind those that the client gets for this request.
    fn emit(&mut self, id: usize, bytes: &[u8]) {
        let Some(to) = self.begin_answer(id, bytes.len()) else { return };
        if to.is_next {
            self.clients.append(to.client, bytes);
        } else {
            self.keep_answer(id, |reply| reply.append(bytes));
        }
        self.check_answer_memory(to.client);
    }

    /// The same of bytes that are in memory of their own.
    fn emit_all(&mut self, id: usize, answer: Buffer) {
        let Some(to) = self.begin_answer(id, answer.len()) else { return };
        if to.is_next {
            self.clients.append_all(to.client, answer);
        } else {
            self.keep_answer(id, |reply| reply.append_all(answer));
        }
        self.check_answer_memory(to.client);
    }

    /// So many bytes of an answer come; says where they go. `None` when they are dropped.
    fn begin_answer(&mut self, id: usize, bytes: usize) -> Option<AnswerTo> {
        let entry = self.requests.get_mut(id)?;
        if entry.instead.is_some() || entry.is_silent() {
            return None;
        }
        entry.answered += bytes;
        let client = self.clients.of(entry.client, entry.generation)?;
        if entry.reserved > 0 && entry.answered > entry.reserved {
            client.expect_at_least(entry.answered_a_key());
        }
        entry.begun = true;
        Some(AnswerTo { client: entry.client, is_next: client.pending.front() == Some(&id) })
    }

    /// Changes what there is of an answer that waits for those before it.
    fn keep_answer(&mut self, id: usize, change: impl FnOnce(&mut Buffer)) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        if !self.clients.takes_answers(entry.client, entry.generation) {
            return;
        }
        let before = entry.reply.room();
        change(&mut entry.reply);
        let held = entry.reply.room() - before;
        self.clients.hold(entry.client, entry.generation, held);
    }

    /// Closes a client that leaves so many answers unread that the memory of all would go to it.
    fn check_answer_memory(&mut self, index: usize) {
        let value_bytes = self.options.value_bytes;
        let most = self.share(ANSWERS_TOTAL.max(16 * value_bytes));
        let of_one = ANSWERS_CLIENT.max(8 * value_bytes).min(most);
        let has_too_much = self.clients.get(index).is_some_and(|c| c.buffered > of_one);
        let closed = if has_too_much {
            Some(index)
        } else if self.clients.answer_bytes() > most {
            self.clients.furthest_behind()
        } else {
            None
        };
        if let Some(behind) = closed {
            self.tools.recorder.limit_hit(report::CLIENT_STALLED);
            self.close_client(behind);
        }
    }

    fn reply_ended(&mut self, from: At, head: &InFlight, status: Status) {
        let At { pool, index } = from;
        let conn = self.pools[pool].conn_mut(index);
        let server = conn.server;
        let found = std::mem::take(&mut conn.found);
        let reply = std::mem::take(&mut conn.reply);
        let counter = self.pools[pool].replied(index);
        // A quiet command ends with its mark; the bytes before it are the answer.
        let quiet_answer = head.framing == Framing::Quiet && !reply.is_empty();
        let status = if quiet_answer { Status::of(&reply) } else { status };
        if head.role == Role::Probe {
            return self.pools[pool].readmit(server, &mut self.tools);
        }
        if head.role == Role::Count {
            return;
        }
        let now_ns = self.tools.now_ns;
        let sent_ns = if head.sent_ns == 0 { now_ns } else { head.sent_ns };
        self.tools.recorder.backend_answered(counter, now_ns.saturating_sub(sent_ns));
        if head.role == Role::Shadow {
            return;
        }
        if status == Status::ServerError {
            self.tools.recorder.outcome(report::SERVER_ERRORS, 1);
        }
        let Some(entry) = self.requests.get_mut(head.request) else { return };
        entry.sent_ns = entry.sent_ns.max(sent_ns);
        if matches!(head.role, Role::Relay | Role::Gather(_) | Role::Collect) {
            self.count_keys(head, status, found);
        }
        if let Role::Fetch(number) = head.role {
            self.fetched(head.request, number, &reply);
        }
        let follows = head.role == Role::Follow && status == Status::ServerError;
        if head.role == Role::Collect || follows {
            self.vote(head.request, order(pool, server), status, &reply);
            // Its memory is of use for the next reply.
            let conn = self.pools[pool].conn_mut(index);
            conn.reply = reply;
            conn.reply.clear();
        }
        self.part_ended(head.request);
    }

    fn count_keys(&mut self, head: &InFlight, status: Status, found: u64) {
        let Some(entry) = self.requests.get(head.request) else { return };
        let Some(request) = entry.parsed else { return };
        if entry.fill.is_some() {
            // It was a miss when it was asked for first, and is counted as brought over.
            return;
        }
        match (request.command, status) {
            (Command::Get | Command::Gets | Command::Gat | Command::Gats, Status::End) => {
                let keys = match (head.role, &entry.gather) {
                    (Role::Gather(part), Some(gather)) => gather.parts[part].keys.len(),
                    _ => request.keys,
                };
                self.tools.recorder.outcome(report::HITS, found);
                self.tools.recorder.outcome(report::MISSES, (keys as u64).saturating_sub(found));
            }
            (Command::MetaGet, Status::Success) => self.tools.recorder.outcome(report::HITS, 1),
            (Command::MetaGet, Status::Miss) => self.tools.recorder.outcome(report::MISSES, 1),
            _ => {}
        }
    }

    /// Takes one of several answers that must agree.
    fn vote(&mut self, id: usize, server: usize, status: Status, reply: &[u8]) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        let new = (rank(status), server);
        match entry.verdict.rank {
            None => {
                entry.verdict.rank = Some(new);
                entry.vote.extend_from_slice(reply);
            }
            Some(best) => {
                let same = entry.vote == reply;
                let differ = new.0 == 4 && best.0 == 4 && !same;
                let shows = entry.parsed.is_some_and(|request| request.shows_unique);
                entry.verdict.disagree |= differ && !shows;
                if new < best {
                    entry.verdict.rank = Some(new);
                    if !same {
                        entry.vote.clear();
                        entry.vote.extend_from_slice(reply);
                    }
                }
            }
        }
    }

    /// Deals with requests that servers did not answer.
    pub(crate) fn take_losses(&mut self) {
        for pool in 0..self.pools.len() {
            while let Some(lost) = self.pools[pool].next_lost() {
                self.tools.progress += 1;
                self.part_failed(pool, &lost);
            }
        }
    }

    /// A server did not answer its part of a request.
    fn part_failed(&mut self, pool: usize, lost: &Lost) {
        let Lost { request: id, role, server, torn, why } = *lost;
        if role.is_own() {
            return;
        }
        let servers = &self.pools[pool];
        self.tools.recorder.backend_failed(servers.backends[server].counter);
        let elsewhere = servers.live().iter().copied().find(|other| *other != server);
        let replicated = servers.policy.placement == Placement::Replicate;
        let Some(entry) = self.requests.get_mut(id) else { return };
        match role {
            Role::Relay => {
                let kept = !entry.bytes.is_empty() && entry.is_read && replicated;
                let fresh = kept && !entry.begun && !entry.retried;
                if let (true, Some(other), Some(lane)) = (fresh, elsewhere, entry.lane) {
                    entry.retried = true;
                    entry.waiting -= 1;
                    let bytes = std::mem::take(&mut entry.bytes);
                    self.tools.recorder.outcome(report::RETRIES, 1);
                    let request = again(&bytes);
                    let to = To { lane, pool, server: other };
                    return self.send(id, to, Role::Relay, &request, &bytes);
                }
                if torn && entry.begun {
                    let (index, generation) = (entry.client, entry.generation);
                    if self.clients.of(index, generation).is_some() {
                        self.close_client(index);
                    }
                } else {
                    self.emit(id, why);
                }
            }
            Role::Collect | Role::Follow => {
                self.vote(id, order(pool, server), Status::ServerError, why);
            }
            Role::Gather(number) => {
                let Some(gather) = &mut entry.gather else { return };
                let part = &mut gather.parts[number];
                if let (true, false, Some(other)) = (replicated, part.retried, elsewhere) {
                    gather.bytes -= part.blocks.iter().map(|block| block.1.len()).sum::<usize>();
                    self.clients.release(entry.client, entry.generation, part.room());
                    part.retried = true;
                    part.blocks.clear();
                    part.next = 0;
                    self.tools.recorder.outcome(report::RETRIES, 1);
                    return self.send_part_again(id, number, other);
                }
                gather.error.get_or_insert_with(|| why.to_vec());
            }
            Role::Shadow => return,
            // The key is missing then.
            Role::Fetch(_) | Role::Discard | Role::Probe | Role::Count => {}
        }
        self.part_ended(id);
    }

    /// One server has done its part.
    fn part_ended(&mut self, id: usize) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        entry.waiting = entry.waiting.saturating_sub(1);
        if entry.waiting > 0 {
            return;
        }
        entry.received_ns = self.tools.now_ns;
        if entry.stage == Stage::First && entry.verdict.rank.is_some_and(|rank| rank.0 == 4) {
            return self.second_stage(id);
        }
        if self.pools.warm_up() && self.fills(id) {
            return;
        }
        let Some(entry) = self.requests.get_mut(id) else { return };
        if entry.gather.is_some() {
            self.put_together(id);
        } else if entry.verdict.rank.is_some() {
            let vote = std::mem::take(&mut entry.vote);
            let succeeded = entry.verdict.rank.is_some_and(|rank| rank.0 == 4);
            if entry.verdict.disagree && succeeded {
                self.tools.recorder.outcome(report::SERVERS_DISAGREE, 1);
                self.emit(id, DISAGREE);
            } else {
                self.emit(id, &vote);
            }
        }
        self.finish(id);
    }

    /// The server that decides agreed: the others follow.
    fn second_stage(&mut self, id: usize) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        let Some(lane) = entry.lane else { return };
        let pool = entry.pool;
        let others = self.pools[pool].live().iter().skip(1).copied();
        entry.stage = Stage::Second;
        let bytes = std::mem::take(&mut entry.bytes);
        let decided = entry.verdict.rank.map(|rank| rank.1);
        let request = again(&bytes);
        let others: Vec<usize> =
            others.filter(|server| Some(order(pool, *server)) != decided).collect();
        if others.is_empty() {
            let vote = std::mem::take(&mut entry.vote);
            self.emit(id, &vote);
            return self.finish(id);
        }
        entry.waiting = others.len();
        for server in others {
            self.send_follow(id, To { lane, pool, server }, &request, &bytes);
        }
    }

    /// Writes the answer of a multi-get in the order of the client's keys.
    fn put_together(&mut self, id: usize) {
        let Some(entry) = self.requests.get_mut(id) else { return };
        let Some(gather) = entry.gather.take() else { return };
        let (index, generation) = (entry.client, entry.generation);
        let held = gather.parts.iter().map(Part::room).sum();
        self.clients.release(index, generation, held);
        if let Some(error) = &gather.error {
            return self.emit(id, error);
        }
        let mut blocks: Vec<(usize, Buffer)> =
            gather.parts.into_iter().flat_map(|part| part.blocks).collect();
        blocks.sort_by_key(|block| block.0);
        for (_, block) in blocks {
            self.emit_all(id, block);
        }
        self.emit(id, b"END\r\n");
    }

    /// Answers with an error of the proxy's own.
    pub(crate) fn finish_with(&mut self, id: usize, answer: &'static [u8]) {
        self.emit(id, answer);
        self.finish(id);
    }

    /// The answer is whole: the client gets it in its turn, and the worker is free once the turn's
    /// answers are written.
    pub(crate) fn finish(&mut self, id: usize) {
        if let Some(instead) = self.requests.get_mut(id).and_then(|entry| entry.instead.take()) {
            self.emit(id, instead);
        }
        self.tools.progress += 1;
        self.requests.ends(id);
        let Some(entry) = self.requests.get_mut(id) else { return };
        if let Some(plan) = entry.plan.take() {
            self.pools.end(plan);
        }
        let admitted = std::mem::take(&mut entry.admitted);
        let (index, generation, is_read) = (entry.client, entry.generation, entry.is_read);
        let (reserved, answered) = (entry.reserved, entry.answered_a_key());
        let keys = entry.parsed.map_or(1, |request| request.keys);
        if admitted != Admitted::default() {
            self.clients.readmit(admitted, Admitted::default());
        }
        match self.clients.of(index, generation) {
            Some(client) => {
                if is_read {
                    client.reads -= 1;
                } else {
                    client.writes -= 1;
                }
                client.exclusive = false;
                if client.answered(reserved, answered, keys) {
                    self.clients.learn_first(answered);
                }
                self.advance(index);
            }
            None => {
                self.requests.remove(id);
            }
        }
    }

    /// Moves whole answers to the client, in the order of its requests.
    pub(crate) fn advance(&mut self, index: usize) {
        while let Some(client) = self.clients.get(index)
            && let Some(id) = client.pending.front().copied()
        {
            let Some(entry) = self.requests.get_mut(id) else { break };
            let is_done = entry.done;
            let reply = std::mem::take(&mut entry.reply);
            let (done, generation) = (entry.done(), entry.generation);
            if !reply.is_empty() {
                self.clients.release(index, generation, reply.room());
                self.clients.append_all(index, reply);
            }
            if !is_done {
                break;
            }
            self.clients.end_answer(index, done);
            if let Some(client) = self.clients.get_mut(index) {
                client.pending.pop_front();
            }
            self.requests.remove(id);
        }
        self.clients.mark_dirty(index);
        self.clients.may_go_on(index);
    }
}
