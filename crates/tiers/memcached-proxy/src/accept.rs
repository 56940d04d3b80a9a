//! From a client's bytes to requests.

use kendall_protocols::memcached::{BINARY_REQUEST, Command, Parsed, Refusal, Request, parse};

use crate::client::{Client, Waits};
use crate::dispatch::is_exclusive;
use crate::engine::Engine;
use crate::options::{ANSWERS_ADMIT, KEEP_BYTES, Mode, REQUESTS_TOTAL};
use crate::report;
use crate::request::{Entry, is_read};
use crate::socket::{self, Moved};

const QUEUE_FULL: &[u8] = b"SERVER_ERROR request queue is full\r\n";

impl Engine {
    pub(crate) fn client_readable(&mut self, index: usize, scratch: &mut [u8]) {
        let Some(client) = self.clients.get_mut(index) else { return };
        if !client.takes_input() {
            // A connection that broke: a write says so, and then nothing is expected from it.
            return self.client_is_dirty(index);
        }
        let count = match socket::read(&client.socket, scratch) {
            Moved::Bytes(count) => count,
            Moved::Later => return,
            Moved::Closed => {
                client.ended = true;
                self.progress += 1;
                self.client_is_dirty(index);
                return;
            }
        };
        self.progress += 1;
        self.now_ns = self.clock.now_ns();
        client.read_ns = self.now_ns;
        self.recorder.bytes_in(count as u64);
        let bytes = &scratch[..count];
        if !client.greeted {
            client.greeted = true;
            if bytes[0] == BINARY_REQUEST {
                // The binary protocol is not spoken here.
                self.recorder.outcome(report::CLIENT_ERRORS, 1);
                return self.close_client(index);
            }
        }
        if client.input.is_empty() {
            let consumed = self.feed(index, bytes);
            self.keep_input(index, &bytes[consumed..]);
        } else {
            client.input.extend_from_slice(bytes);
            self.request_bytes += count;
            self.feed_input(index);
        }
        let Some(client) = self.clients.get_mut(index) else { return };
        if !client.takes_input() && client.wants_read {
            let write = client.wants_write;
            self.watch_client(index, false, write);
        }
    }

    /// Looks at a client's input again.
    pub(crate) fn client_resumed(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        client.resuming = false;
        self.feed_input(index);
        let Some(client) = self.clients.get_mut(index) else { return };
        if client.takes_input() && !client.wants_read {
            let write = client.wants_write;
            self.watch_client(index, true, write);
        }
        if self.clients.get(index).is_some_and(Client::is_over) {
            self.close_client(index);
        }
    }

    /// Has a client's input looked at again when what it waited for may have come: to be called
    /// when one of its requests was answered, and when it took answers.
    #[inline]
    pub(crate) fn client_may_go_on(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let may = match client.waits {
            Waits::Bytes => false,
            Waits::Order => true,
            Waits::Room => !client.is_full(),
        };
        if may && !client.resuming {
            client.resuming = true;
            self.resuming.push(index);
        }
    }

    /// Lets connections go on that waited for a client to read.
    pub(crate) fn release_conns(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        if !client.holds.is_empty() && client.buffered < ANSWERS_ADMIT {
            let holds = std::mem::take(&mut client.holds);
            self.released.extend(holds);
            self.holding.retain(|held| *held != index);
        }
    }

    fn feed_input(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let input = std::mem::take(&mut client.input);
        self.request_bytes -= input.len().min(self.request_bytes);
        let consumed = self.feed(index, &input);
        if consumed == 0 {
            if let Some(client) = self.clients.get_mut(index) {
                self.request_bytes += input.len();
                client.input = input;
            }
        } else {
            self.keep_input(index, &input[consumed..]);
        }
        self.check_request_memory(index);
    }

    fn keep_input(&mut self, index: usize, rest: &[u8]) {
        let Some(client) = self.clients.get_mut(index) else { return };
        if rest.is_empty() {
            if client.input.capacity() > 0 {
                client.input = Vec::new();
            }
            return;
        }
        self.request_bytes += rest.len();
        let mut input = Vec::with_capacity(rest.len().max(client.needed.min(KEEP_BYTES)));
        input.extend_from_slice(rest);
        client.input = input;
    }

    /// Closes a client whose unfinished request would take the memory of all others.
    fn check_request_memory(&mut self, index: usize) {
        if self.request_bytes > REQUESTS_TOTAL {
            self.recorder.limit_hit(report::REQUEST_MEMORY);
            self.close_client(index);
        }
    }

    /// Takes the requests that `bytes` begins with, as far as the client may have them now; says
    /// how many bytes they are.
    fn feed(&mut self, index: usize, bytes: &[u8]) -> usize {
        let mut at = 0;
        if let Some(client) = self.clients.get_mut(index) {
            client.waits = Waits::Bytes;
        }
        while at < bytes.len() {
            let rest = &bytes[at..];
            let Some(client) = self.clients.get_mut(index) else { return bytes.len() };
            if client.swallow > 0 {
                let dropped = client.swallow.min(rest.len());
                client.swallow -= dropped;
                at += dropped;
                continue;
            }
            if client.is_full() {
                if client.closing {
                    return bytes.len();
                }
                let limit = if client.buffered > ANSWERS_ADMIT {
                    report::CLIENT_ANSWERS
                } else {
                    report::CLIENT_REQUESTS
                };
                self.recorder.limit_hit(limit);
                client.waits = Waits::Room;
                break;
            }
            if rest.len() < client.needed {
                break;
            }
            client.needed = 0;
            match parse(rest, &self.limits) {
                Parsed::Incomplete(needed) => {
                    client.needed = needed;
                    break;
                }
                Parsed::Close => {
                    self.recorder.outcome(report::CLIENT_ERRORS, 1);
                    client.closing = true;
                    self.client_is_dirty(index);
                    return bytes.len();
                }
                Parsed::Refusal(refusal) => {
                    if refusal.forget.is_some() && !self.may_start(index, false, false) {
                        self.wait_for_order(index);
                        break;
                    }
                    self.refuse(index, &refusal, rest);
                    at += refusal.consumed;
                }
                Parsed::Request(request) => {
                    let exclusive = is_exclusive(self, &request);
                    if !self.may_start(index, is_read(&request), exclusive) {
                        self.wait_for_order(index);
                        break;
                    }
                    self.take(index, request, &rest[..request.consumed], exclusive);
                    at += request.consumed;
                }
            }
        }
        at
    }

    fn wait_for_order(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.waits = Waits::Order;
        }
    }

    /// Whether a request may be taken while the client's earlier ones are not answered yet:
    /// workers would let it overtake them, so reads wait for writes and writes for all. Shared
    /// connections keep the order by themselves, but for requests that go to several servers one
    /// after the other.
    fn may_start(&self, index: usize, reads: bool, exclusive: bool) -> bool {
        let Some(client) = self.clients.get(index) else { return false };
        if client.exclusive {
            return false;
        }
        if exclusive {
            return client.reads + client.writes == 0;
        }
        match self.options.mode {
            Mode::Pipelined { .. } => true,
            Mode::Workers(_) if reads => client.writes == 0,
            Mode::Workers(_) => client.reads + client.writes == 0,
        }
    }

    fn take(&mut self, index: usize, request: Request, bytes: &[u8], exclusive: bool) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let kind = report::request_type(&request);
        match request.command {
            Command::Quit => {
                client.closing = true;
                return self.client_is_dirty(index);
            }
            Command::MetaNoop => return self.answer_locally(index, b"MN\r\n"),
            _ => {}
        }
        self.recorder.arrived(kind);
        let mut entry = Entry::new(index, client.generation, kind, client.read_ns);
        entry.is_read = is_read(&request);
        entry.parsed = Some(request);
        if entry.is_read {
            client.reads += 1;
        } else {
            client.writes += 1;
        }
        client.exclusive = exclusive;
        let id = self.entries.insert(entry);
        client.pending.push_back(id);
        self.start(index, id, bytes);
    }

    /// Gives a request to a worker, or to the connections that are shared, or to the queue.
    fn start(&mut self, index: usize, id: usize, bytes: &[u8]) {
        match self.options.mode {
            Mode::Pipelined { .. } => {
                let lane = index % self.lanes;
                self.recorder.workers_busy.add(self.now_ns, 1);
                self.dispatch(id, lane, bytes);
            }
            Mode::Workers(_) => {
                // A worker is taken only when nobody waits before this request; one that is
                // popped and not used would never work again.
                let lane = if self.queue.is_empty() { self.idle.pop() } else { None };
                if let Some(lane) = lane {
                    self.recorder.workers_busy.add(self.now_ns, 1);
                    self.dispatch(id, lane, bytes);
                } else if self.queue.len() < self.options.queue_length {
                    self.recorder.queue_length.add(self.now_ns, 1);
                    if let Some(entry) = self.entries.get_mut(id) {
                        entry.bytes.extend_from_slice(bytes);
                    }
                    self.queue.push_back(id);
                } else {
                    self.recorder.limit_hit(report::REQUEST_QUEUE);
                    self.finish_with(id, QUEUE_FULL);
                }
            }
        }
    }

    /// Lets workers without a request take those that wait.
    pub(crate) fn fill_workers(&mut self) {
        while !self.queue.is_empty() {
            let Some(lane) = self.idle.pop() else { return };
            let Some(id) = self.queue.pop_front() else { return };
            self.recorder.queue_length.subtract(self.now_ns, 1);
            let Some(entry) = self.entries.get_mut(id) else { continue };
            let waits = |client: &Client| client.generation == entry.generation && !client.gone;
            if entry.is_read && !self.clients.get(entry.client).is_some_and(waits) {
                // Nobody waits for what it would read.
                self.idle.push(lane);
                self.finish(id);
                continue;
            }
            self.recorder.workers_busy.add(self.now_ns, 1);
            entry.dequeued_ns = self.now_ns;
            let bytes = std::mem::take(&mut entry.bytes);
            self.dispatch(id, lane, &bytes);
        }
    }

    fn refuse(&mut self, index: usize, refusal: &Refusal, bytes: &[u8]) {
        self.recorder.outcome(report::CLIENT_ERRORS, 1);
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
        self.recorder.arrived(report::OTHER);
        let mut entry = Entry::new(index, client.generation, report::OTHER, client.read_ns);
        entry.parsed = Some(request);
        entry.instead = Some(refusal.answer);
        client.writes += 1;
        let id = self.entries.insert(entry);
        client.pending.push_back(id);
        self.start(index, id, &delete);
    }

    /// Answers without asking a server, in its turn.
    fn answer_locally(&mut self, index: usize, answer: &'static [u8]) {
        self.recorder.arrived(report::OTHER);
        let Some(client) = self.clients.get_mut(index) else { return };
        let mut entry = Entry::new(index, client.generation, report::OTHER, client.read_ns);
        entry.done = true;
        entry.reply.extend_from_slice(answer);
        if !client.gone {
            client.buffered += answer.len();
            self.answer_bytes += answer.len();
        }
        let id = self.entries.insert(entry);
        client.pending.push_back(id);
        self.advance(index);
    }
}
