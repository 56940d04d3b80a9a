//! From a client's bytes to requests.

use kendall_protocols::memcached::{BINARY_REQUEST, Command, Parsed, Refusal, Request, parse};
use kendall_tier::serve::{TlsAlone, greets_with_tls};

use crate::admission::Size;
use crate::client::{Client, Waits};
use crate::dispatch::is_exclusive;
use crate::engine::Engine;
use crate::options::{ANSWERS_ADMIT, Mode, REQUESTS_TOTAL, TURN_REQUESTS};
use crate::report;
use crate::request::{Entry, has_values, is_read};
use crate::requests::Place;
use crate::socket::Moved;

const QUEUE_FULL: &[u8] = b"SERVER_ERROR request queue is full\r\n";
/// For a client that greets with TLS, whose library says that this is none.
const NO_TLS: &[u8] = b"SERVER_ERROR no TLS is spoken here\r\n";

impl Engine {
    pub(crate) fn client_readable(&mut self, index: usize, scratch: &mut [u8]) {
        let Some(client) = self.clients.get_mut(index) else { return };
        if !client.takes_input() {
            // A connection that broke: a write says so, and then nothing is expected from it.
            return self.clients.mark_dirty(index);
        }
        let count = match client.stream.read(scratch) {
            Moved::Bytes(count) => count,
            Moved::Later => {
                if client.stream.is_encrypted() {
                    // A step of the handshake, after which it may be written to.
                    self.tools.progress += 1;
                    self.clients.mark_dirty(index);
                }
                return;
            }
            Moved::Closed => {
                client.ended = true;
                let met_clear = client.stream.met_clear();
                self.tools.progress += 1;
                self.clients.mark_dirty(index);
                if met_clear {
                    self.log(TlsAlone::Server);
                }
                return;
            }
        };
        self.tools.progress += 1;
        client.read_ns = self.tools.look();
        client.ended |= client.stream.has_ended();
        self.tools.recorder.bytes_in(count as u64);
        let bytes = &scratch[..count];
        if !client.greeted {
            client.greeted = true;
            if bytes[0] == BINARY_REQUEST {
                // The binary protocol is not spoken here.
                self.tools.recorder.outcome(report::CLIENT_ERRORS, 1);
                return self.close_client(index);
            }
            if greets_with_tls(bytes) && !client.stream.is_encrypted() {
                client.closing = true;
                self.tools.recorder.outcome(report::CLIENT_ERRORS, 1);
                self.clients.append(index, NO_TLS);
                return self.log(TlsAlone::Client);
            }
        }
        if client.input.is_empty() {
            let consumed = self.feed(index, bytes);
            self.clients.keep_input(index, &bytes[consumed..]);
        } else {
            self.clients.extend_input(index, bytes);
            self.feed_input(index);
        }
        self.check_request_memory(index);
        self.clients.watch_input(index, &mut self.tools);
        if self.clients.get(index).is_some_and(|client| client.stream.is_encrypted()) {
            self.clients.mark_dirty(index);
        }
    }

    /// Says, at most once a minute, that clients and this proxy do not agree on TLS.
    fn log(&mut self, alone: TlsAlone) {
        if let Some(times) = self.tls_alone.count(self.tools.now_ns) {
            tracing::warn!(times, "{}", alone.for_the_log());
        }
    }

    pub(crate) fn client_resumed(&mut self, index: usize) {
        self.feed_input(index);
        self.clients.was_resumed(index);
        self.clients.watch_input(index, &mut self.tools);
        if self.clients.get(index).is_some_and(Client::is_over) {
            self.close_client(index);
        }
    }

    fn feed_input(&mut self, index: usize) {
        let Some(input) = self.clients.take_input(index) else { return };
        let consumed = self.feed(index, &input);
        if consumed == 0 {
            self.clients.return_input(index, input);
        } else {
            self.clients.keep_input(index, &input[consumed..]);
        }
    }

    /// Closes a client whose unfinished request would take the memory of all others.
    fn check_request_memory(&mut self, index: usize) {
        if self.clients.request_bytes() > self.share(REQUESTS_TOTAL) {
            self.tools.recorder.limit_hit(report::REQUEST_MEMORY);
            self.close_client(index);
        }
    }

    /// This thread's share of what all threads may hold.
    pub(crate) fn share(&self, total: usize) -> usize {
        total / self.options.threads.max(1) as usize
    }

    /// Takes the requests that `bytes` begins with, as far as the client may have them now; says
    /// how many bytes they are.
    fn feed(&mut self, index: usize, bytes: &[u8]) -> usize {
        let mut at = 0;
        if let Some(client) = self.clients.get_mut(index) {
            client.waits = Waits::Bytes;
        }
        let mut taken = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let Some(client) = self.clients.get_mut(index) else { return bytes.len() };
            if client.swallow > 0 {
                let dropped = client.swallow.min(rest.len());
                client.swallow -= dropped;
                at += dropped;
                self.tools.progress += 1;
                continue;
            }
            if client.closing {
                return bytes.len();
            }
            if client.is_full() {
                let behind = client.buffered > ANSWERS_ADMIT;
                let limit = if behind { report::CLIENT_ANSWERS } else { report::CLIENT_REQUESTS };
                self.tools.recorder.limit_hit(limit);
                client.waits = Waits::Room;
                break;
            }
            if rest.len() < client.needed {
                break;
            }
            client.needed = 0;
            if taken == TURN_REQUESTS {
                self.clients.go_on_later(index);
                break;
            }
            taken += 1;
            match self.feed_one(index, rest) {
                Some(consumed) => at += consumed,
                None => break,
            }
        }
        at
    }

    /// Takes the request that `bytes` begins with; says how many bytes it is. `None` when it must
    /// wait, or is not whole.
    fn feed_one(&mut self, index: usize, bytes: &[u8]) -> Option<usize> {
        let parsed = parse(bytes, &self.limits);
        let waits = match parsed {
            Parsed::Incomplete(needed) => {
                self.clients.get_mut(index)?.needed = needed;
                return None;
            }
            Parsed::Close => {
                self.tools.recorder.outcome(report::CLIENT_ERRORS, 1);
                self.clients.get_mut(index)?.closing = true;
                self.clients.mark_dirty(index);
                return Some(bytes.len());
            }
            Parsed::Refusal(refusal) if refusal.forget.is_some() => {
                self.must_wait(index, false, false)
            }
            Parsed::Refusal(_) => None,
            Parsed::Request(request) => {
                let exclusive = is_exclusive(self, &request, bytes);
                self.must_wait(index, is_read(&request), exclusive)
                    .or_else(|| self.has_no_window(index, &request))
            }
        };
        if let Some(waits) = waits {
            self.clients.get_mut(index)?.waits = waits;
            return None;
        }
        self.tools.progress += 1;
        match parsed {
            Parsed::Refusal(refusal) => {
                self.refuse(index, &refusal, bytes);
                Some(refusal.consumed)
            }
            Parsed::Request(request) => {
                let exclusive = is_exclusive(self, &request, bytes);
                self.take(index, request, &bytes[..request.consumed], exclusive);
                Some(request.consumed)
            }
            Parsed::Incomplete(_) | Parsed::Close => None,
        }
    }

    /// Whether a request must wait for the client's earlier ones: workers would let it overtake
    /// them, and so would what is brought over from a warm pool, so reads wait for writes and writes for
    /// all. Shared connections keep the order by themselves, but for requests that go to several servers
    /// one after the other.
    fn must_wait(&self, index: usize, reads: bool, exclusive: bool) -> Option<Waits> {
        let client = self.clients.get(index)?;
        let may_start = if client.exclusive {
            false
        } else if exclusive {
            client.reads + client.writes == 0
        } else if client.plan != self.pools.number() && !client.pending.is_empty() {
            // Under another plan a key may be on another server, or the same over another connection.
            false
        } else if !self.requests.have_workers() && !self.pools.warm_up() {
            true
        } else if reads {
            client.writes == 0
        } else {
            client.reads + client.writes == 0
        };
        (!may_start).then_some(Waits::Order)
    }

    /// Whether its answer, as far as is known, would be more than the client may have under way, or has
    /// to wait for others', or for another connection.
    fn has_no_window(&mut self, index: usize, request: &Request) -> Option<Waits> {
        if !has_values(request) {
            return None;
        }
        let client = self.clients.get(index)?;
        if !client.has_window(client.expects(request.keys)) {
            self.tools.recorder.limit_hit(report::CLIENT_ANSWERS);
            return Some(Waits::Room);
        }
        let (size, bytes) = self.admission(index, request);
        let client = self.clients.get(index)?;
        if client.lane != size && !client.pending.is_empty() && !self.requests.have_workers() {
            // Over two connections its requests could overtake each other.
            return Some(Waits::Order);
        }
        if self.clients.has_room(index, size, bytes) {
            return None;
        }
        self.clients.wait_for_admission(index, size);
        Some(Waits::Admission)
    }

    /// How large the answer to a read is thought to be, and the bytes for which it is admitted.
    fn admission(&self, index: usize, request: &Request) -> (Size, usize) {
        let Some(client) = self.clients.get(index) else { return (Size::Small, 0) };
        let size = if has_values(request) { client.size(request.keys) } else { Size::Small };
        let bytes = match size {
            Size::Small => 0,
            Size::Unknown | Size::Large if client.is_guessed(request.keys) => {
                let first = self.clients.expected_first().min(self.options.value_bytes);
                request.keys.max(1).saturating_mul(first)
            }
            Size::Unknown | Size::Large => client.expects(request.keys),
        };
        (size, bytes)
    }

    fn take(&mut self, index: usize, request: Request, bytes: &[u8], exclusive: bool) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let kind = report::request_type(&request);
        match request.command {
            Command::Quit => {
                client.closing = true;
                return self.clients.mark_dirty(index);
            }
            Command::MetaNoop => return self.answer_locally(index, b"MN\r\n"),
            _ => {}
        }
        self.tools.recorder.arrived(kind);
        let (size, bytes_asked) = self.admission(index, &request);
        self.clients.ask(index, size, bytes_asked);
        let Some(client) = self.clients.get_mut(index) else { return };
        client.plan = self.pools.number();
        let mut entry = Entry::new(index, client.generation, kind, client.read_ns);
        entry.size = size;
        entry.admitted = size.admits(bytes_asked);
        entry.is_read = is_read(&request);
        entry.parsed = Some(request);
        if has_values(&request) {
            entry.reserved = client.expects(request.keys);
            client.reserve(entry.reserved);
        }
        if client.pending.is_empty() {
            client.lane = size;
        }
        if entry.is_read {
            client.reads += 1;
        } else {
            client.writes += 1;
        }
        client.exclusive = exclusive;
        let id = self.requests.insert(entry);
        client.pending.push_back(id);
        self.start(index, id, bytes);
    }

    /// Gives a request to a worker, or to the connections that are shared, or to the queue.
    fn start(&mut self, index: usize, id: usize, bytes: &[u8]) {
        let size = self.clients.get(index).map_or(Size::Small, |client| client.lane);
        let shared = match self.options.mode {
            Mode::Pipelined { .. } => self.pools.shared_lane(index, size),
            Mode::Workers(_) => 0,
        };
        match self.requests.place(id, shared, bytes, &mut self.tools) {
            Place::Lane(lane) => self.dispatch(id, lane, bytes),
            Place::Queue => {}
            Place::Full => {
                self.tools.recorder.limit_hit(report::REQUEST_QUEUE);
                self.finish_with(id, QUEUE_FULL);
            }
        }
    }

    /// Lets workers without a request take those that wait.
    pub(crate) fn fill_workers(&mut self) {
        while let Some(id) = self.requests.next_waiting(&mut self.tools) {
            let Some(entry) = self.requests.get(id) else { continue };
            if entry.is_read && !self.clients.takes_answers(entry.client, entry.generation) {
                // No client waits for what it would read.
                self.finish(id);
                continue;
            }
            if let Some((worker, bytes)) = self.requests.assign(id, &mut self.tools) {
                self.dispatch(id, worker, &bytes);
            }
        }
    }

    fn refuse(&mut self, index: usize, refusal: &Refusal, bytes: &[u8]) {
        self.tools.recorder.outcome(report::CLIENT_ERRORS, 1);
        let Some(client) = self.clients.get_mut(index) else { return };
        client.swallow = refusal.swallow;
        let Some(key) = refusal.forget else {
            return self.answer_locally(index, refusal.answer);
        };
        // The new value is refused, and the old one must not stay behind as if it were current.
        let mut delete = b"delete ".to_vec();
        delete.extend_from_slice(key.of(bytes));
        delete.extend_from_slice(b"\r\n");
        let Parsed::Request(request) = parse(&delete, &self.limits) else {
            return self.answer_locally(index, refusal.answer);
        };
        self.tools.recorder.arrived(report::OTHER);
        let mut entry = Entry::new(index, client.generation, report::OTHER, client.read_ns);
        entry.parsed = Some(request);
        entry.instead = Some(refusal.answer);
        client.writes += 1;
        client.plan = self.pools.number();
        let id = self.requests.insert(entry);
        client.pending.push_back(id);
        self.start(index, id, &delete);
    }

    /// Answers without asking a server, in its turn.
    fn answer_locally(&mut self, index: usize, answer: &'static [u8]) {
        self.tools.recorder.arrived(report::OTHER);
        let Some(client) = self.clients.get_mut(index) else { return };
        let mut entry = Entry::new(index, client.generation, report::OTHER, client.read_ns);
        entry.done = true;
        entry.reply.append(answer);
        let (generation, held) = (client.generation, entry.reply.room());
        let id = self.requests.insert(entry);
        client.pending.push_back(id);
        self.clients.hold(index, generation, held);
        self.advance(index);
    }
}
