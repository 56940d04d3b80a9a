//! All clients of one network thread: their sockets, what they sent and have to get, and who of
//! them is served next.

use std::collections::VecDeque;

use slab::Slab;

use crate::admission::{Admission, Admitted, Size};
use crate::buffer::Buffer;
use crate::client::{Client, Waits};
use crate::options::{
    ANSWERS_KEPT, BULK_AT_ONCE, HANDSHAKE_NS, STALLED_NS, TRIM_AFTER_NS, TRIM_BYTES,
    TURN_LARGE_BYTES, TURN_WRITE_BYTES, TURN_WRITES, UNKNOWN_LEAST,
};
use crate::poller::{Interest, Source};
use crate::request::Done;
use crate::socket::{Moved, Stream};
use crate::tools::Tools;

/// Clients that something is to be done for, each at most once.
#[derive(Debug, Default)]
struct Work {
    /// They have to get answers, or may be over.
    dirty: Vec<usize>,
    /// Their input is resumed.
    resuming: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Clients {
    slab: Slab<Client>,
    generation: u64,
    now: Work,
    /// For the next turn: they had their share of this one.
    next: Work,
    /// Of those that have to get answers, the ones that have to get much, first come first served, and
    /// the bytes that may be written to them in this turn.
    behind: VecDeque<usize>,
    large_left: usize,
    /// Reads whose answers are large, and those of clients of which nothing is known yet.
    large: Admission,
    unknown: Admission,
    /// Bytes a key of the first answers of late: the largest, fading.
    first_answers: usize,
    /// Memory of answers beyond which large ones wait, what the next of those needs, and since when it
    /// waits for that.
    memory: usize,
    memory_wanted: usize,
    short_since_ns: Option<u64>,
    /// Memory of answers, and bytes of unfinished requests, that all clients leave with the proxy.
    answer_bytes: usize,
    request_bytes: usize,
    /// The most that both were together since memory was last given back.
    peak: usize,
    /// Since when it is much less.
    small_since_ns: Option<u64>,
    /// Clients that have to agree on TLS, and by when, in this order.
    handshakes: VecDeque<(usize, u64, u64)>,
}

impl Clients {
    pub(crate) const fn new() -> Self {
        Self {
            slab: Slab::new(),
            generation: 0,
            now: Work { dirty: Vec::new(), resuming: Vec::new() },
            next: Work { dirty: Vec::new(), resuming: Vec::new() },
            behind: VecDeque::new(),
            large_left: TURN_LARGE_BYTES,
            large: Admission::new(BULK_AT_ONCE),
            unknown: Admission::new(BULK_AT_ONCE),
            first_answers: 0,
            memory: usize::MAX,
            memory_wanted: 0,
            short_since_ns: None,
            answer_bytes: 0,
            request_bytes: 0,
            peak: 0,
            small_since_ns: None,
            handshakes: VecDeque::new(),
        }
    }

    pub(crate) fn add(&mut self, stream: Stream, value_bytes: usize, tools: &mut Tools) {
        tools.progress += 1;
        self.generation += 1;
        let client = Client::new(stream, self.generation, value_bytes);
        let is_handshaking = client.stream.is_handshaking();
        let index = self.slab.insert(client);
        let now_ns = tools.look();
        if is_handshaking {
            self.handshakes.push_back((index, self.generation, now_ns + HANDSHAKE_NS));
        }
        tools.recorder.connections.add(tools.now_ns, 1);
        self.watch(index, Interest { read: true, write: false }, tools);
    }

    /// Whether one has yet to agree on TLS.
    pub(crate) fn have_handshakes(&self) -> bool {
        !self.handshakes.is_empty()
    }

    /// The next one that has not agreed on TLS in time: it would keep others out.
    pub(crate) fn overdue_handshake(&mut self, now_ns: u64) -> Option<usize> {
        while let Some((index, generation, due_ns)) = self.handshakes.front().copied() {
            let client = self.slab.get(index).filter(|client| client.generation == generation);
            let goes_on = client.is_some_and(|client| client.stream.is_handshaking());
            if goes_on && now_ns < due_ns {
                return None;
            }
            self.handshakes.pop_front();
            if goes_on {
                return Some(index);
            }
        }
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn indices(&self) -> Vec<usize> {
        self.slab.iter().map(|(index, _)| index).collect()
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &Client)> {
        self.slab.iter()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Client> {
        self.slab.get(index)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Client> {
        self.slab.get_mut(index)
    }

    /// The client that a request is of, unless it was forgotten meanwhile.
    #[inline]
    pub(crate) fn of(&mut self, index: usize, generation: u64) -> Option<&mut Client> {
        self.slab.get_mut(index).filter(|client| client.generation == generation)
    }

    /// Whether a client would get an answer.
    pub(crate) fn takes_answers(&self, index: usize, generation: u64) -> bool {
        self.slab.get(index).is_some_and(|c| c.generation == generation && !c.gone)
    }

    pub(crate) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    pub(crate) fn request_bytes(&self) -> usize {
        self.request_bytes
    }

    /// Whether much was held and little is now.
    pub(crate) fn have_shrunk(&self) -> bool {
        self.peak > TRIM_BYTES && self.held() < self.peak / 4
    }

    /// Whether that is so for a while, at every tick: the memory can go back to the system.
    pub(crate) fn stay_small(&mut self, now_ns: u64) -> bool {
        if !self.have_shrunk() {
            self.small_since_ns = None;
            return false;
        }
        let since_ns = *self.small_since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) >= TRIM_AFTER_NS
    }

    /// The memory went back to the system.
    pub(crate) fn gave_back(&mut self) {
        self.peak = self.held();
        self.small_since_ns = None;
    }

    fn held(&self) -> usize {
        self.request_bytes + self.answer_bytes
    }

    /// Who leaves the most answers unread.
    pub(crate) fn furthest_behind(&self) -> Option<usize> {
        let longest = self.slab.iter().max_by_key(|(_, client)| client.buffered);
        longest.map(|(index, _)| index)
    }

    /// Takes a client's input out to be parsed.
    pub(crate) fn take_input(&mut self, index: usize) -> Option<Vec<u8>> {
        let client = self.slab.get_mut(index)?;
        let input = std::mem::take(&mut client.input);
        self.request_bytes -= input.len();
        Some(input)
    }

    /// Puts it back as it was.
    pub(crate) fn return_input(&mut self, index: usize, input: Vec<u8>) {
        let Some(client) = self.slab.get_mut(index) else { return };
        self.request_bytes += input.len();
        client.input = input;
    }

    /// Keeps bytes that are not a whole request, or wait for their turn.
    pub(crate) fn keep_input(&mut self, index: usize, rest: &[u8]) {
        let Some(client) = self.slab.get_mut(index) else { return };
        if rest.is_empty() {
            client.input = Vec::new();
            return;
        }
        let mut input = Vec::with_capacity(rest.len().max(client.first_room()));
        input.extend_from_slice(rest);
        self.return_input(index, input);
    }

    /// Puts bytes behind those that are kept.
    pub(crate) fn extend_input(&mut self, index: usize, bytes: &[u8]) {
        let Some(client) = self.slab.get_mut(index) else { return };
        client.input.extend_from_slice(bytes);
        self.request_bytes += bytes.len();
    }

    /// Puts bytes of an answer behind those before it, unless the client is gone.
    #[inline]
    pub(crate) fn append(&mut self, index: usize, bytes: &[u8]) {
        if self.change_out(index, |client| client.append(bytes)) {
            self.mark_dirty(index);
        }
    }

    /// The same of bytes whose memory is not counted.
    pub(crate) fn append_all(&mut self, index: usize, answer: Buffer) {
        if self.change_out(index, |client| client.append_all(answer)) {
            self.mark_dirty(index);
        }
    }

    /// Changes what a client has to get, unless it takes nothing any more.
    #[inline]
    fn change_out(&mut self, index: usize, change: impl FnOnce(&mut Client)) -> bool {
        let Some(client) = self.slab.get_mut(index).filter(|client| !client.gone) else {
            return false;
        };
        let before = client.out.room();
        change(client);
        let after = client.out.room();
        client.buffered = client.buffered + after - before;
        self.answer_bytes = self.answer_bytes + after - before;
        true
    }

    /// Counts memory of an answer that waits for those before it, or for its other parts.
    pub(crate) fn hold(&mut self, index: usize, generation: u64, bytes: usize) {
        let Some(client) = self.of(index, generation).filter(|client| !client.gone) else { return };
        client.buffered += bytes;
        self.answer_bytes += bytes;
    }

    /// Such memory is counted elsewhere, or is free.
    pub(crate) fn release(&mut self, index: usize, generation: u64, bytes: usize) {
        let Some(client) = self.of(index, generation).filter(|client| !client.gone) else { return };
        client.buffered -= bytes;
        self.answer_bytes -= bytes;
    }

    /// Marks the end of an answer, and with it of its request.
    pub(crate) fn end_answer(&mut self, index: usize, done: Done) {
        let Some(client) = self.slab.get_mut(index).filter(|client| !client.gone) else { return };
        client.end_answer(done);
    }

    #[inline]
    pub(crate) fn mark_dirty(&mut self, index: usize) {
        if let Some(client) = self.slab.get_mut(index)
            && !client.dirty
        {
            client.dirty = true;
            self.now.dirty.push(index);
        }
    }

    /// Has a client's input resumed when what it waited for may have come: to be called
    /// when one of its requests was answered, and when it took answers.
    #[inline]
    pub(crate) fn may_go_on(&mut self, index: usize) {
        let Some(client) = self.slab.get_mut(index) else { return };
        let may = match client.waits {
            Waits::Bytes | Waits::Admission | Waits::Turn => false,
            Waits::Order => true,
            Waits::Room => !client.is_full(),
        };
        if may && !client.resuming {
            client.resuming = true;
            self.now.resuming.push(index);
        }
    }

    /// So many servers are asked from now on; the memory of all answers is bounded by `most`.
    pub(crate) fn bound(&mut self, servers: usize, most: usize) {
        let at_once = BULK_AT_ONCE.saturating_mul(servers.max(1));
        self.unknown.bound(at_once);
        self.large.bound(at_once);
        self.memory = most;
    }

    /// What the first answer of a client counts for, a key.
    pub(crate) fn expected_first(&self) -> usize {
        self.first_answers.max(UNKNOWN_LEAST)
    }

    /// A client had its first answer, of so many bytes a key.
    pub(crate) fn learn_first(&mut self, bytes: usize) {
        self.first_answers = bytes.max(self.first_answers - self.first_answers / 8);
    }

    /// Whether servers may be asked for so many bytes besides: one answer always, and others only for a
    /// client that is the next in line.
    pub(crate) fn has_room(&mut self, index: usize, size: Size, bytes: usize) -> bool {
        let leads = self.slab.get(index).is_some_and(|client| client.leads);
        let queue = match size {
            Size::Small => return true,
            Size::Unknown => &self.unknown,
            Size::Large => &self.large,
        };
        let is_next = !queue.is_waited_for() || leads;
        if !queue.has_room(bytes) || !(is_next || queue.asked() == 0) {
            return false;
        }
        if size == Size::Large && !self.has_memory(bytes) {
            self.memory_wanted = bytes;
            return false;
        }
        true
    }

    /// Whether so many bytes of a large answer would have space when they come. One that may be more than all of the memory, as
    /// many keys of unknown lengths are, needs half of it: idle clients' buffers, which stay, are less than the other half.
    fn has_memory(&self, bytes: usize) -> bool {
        let held = self.answer_bytes + self.large.asked();
        held == 0 || held.saturating_add(bytes.min(self.memory / 2)) <= self.memory
    }

    /// Whether large answers wait for memory.
    pub(crate) fn are_short_of_memory(&self) -> bool {
        self.large.is_waited_for() && !self.has_memory(self.memory_wanted)
    }

    /// At every tick: who keeps large answers of others waiting for too long, as it takes nothing.
    pub(crate) fn stalled(&mut self, now_ns: u64) -> Option<usize> {
        if !self.are_short_of_memory() {
            self.short_since_ns = None;
            return None;
        }
        let since_ns = *self.short_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) < STALLED_NS {
            return None;
        }
        let stalled = self.slab.iter().filter(|(_, client)| {
            client.has_much_output() && now_ns.saturating_sub(client.took_ns) >= STALLED_NS
        });
        stalled.max_by_key(|(_, client)| client.buffered).map(|(index, _)| index)
    }

    /// Servers are asked for so many bytes of an answer to a client.
    pub(crate) fn ask(&mut self, index: usize, size: Size, bytes: usize) {
        match size {
            Size::Small => return,
            Size::Unknown => self.unknown.ask(bytes),
            Size::Large => {
                self.large.ask(bytes);
                self.memory_wanted = 0;
            }
        }
        if let Some(client) = self.slab.get_mut(index) {
            client.leads = false;
        }
    }

    /// A client waits until fewer are on their way: behind the others, unless it was the next already.
    pub(crate) fn wait_for_admission(&mut self, index: usize, size: Size) {
        let Some(client) = self.slab.get_mut(index) else { return };
        client.waits = Waits::Admission;
        if client.queues {
            return;
        }
        client.queues = true;
        let waits = (index, client.generation);
        match size {
            Size::Small => {}
            Size::Unknown => self.unknown.wait(waits, client.leads),
            Size::Large => self.large.wait(waits, client.leads),
        }
    }

    /// What was admitted for an answer is another number of bytes now that its length is known, or none
    /// when it is there or does not come.
    pub(crate) fn readmit(&mut self, before: Admitted, after: Admitted) {
        self.unknown.answered(before.unknown);
        self.unknown.ask(after.unknown);
        self.large.answered(before.large);
        self.large.ask(after.large);
        self.admit_next();
    }

    /// A client was resumed: unless it is the next one still, and has no space, the turn of the next one
    /// has come.
    pub(crate) fn was_resumed(&mut self, index: usize) {
        if let Some(client) = self.slab.get_mut(index) {
            client.leads &= client.waits == Waits::Admission;
            if client.leads {
                return;
            }
        }
        self.admit_next();
    }

    /// Resumes those that wait longest, where there is space.
    fn admit_next(&mut self) {
        if self.unknown.is_waited_for() && self.unknown.is_open() {
            let next = next_of(&mut self.unknown, &mut self.slab);
            self.now.resuming.extend(next);
        }
        if self.large.is_waited_for() && self.large.is_open() && !self.are_short_of_memory() {
            let next = next_of(&mut self.large, &mut self.slab);
            self.now.resuming.extend(next);
        }
    }

    /// Has a client's input resumed in the next turn.
    pub(crate) fn go_on_later(&mut self, index: usize) {
        let Some(client) = self.slab.get_mut(index) else { return };
        client.waits = Waits::Turn;
        if !client.resuming {
            client.resuming = true;
            self.next.resuming.push(index);
        }
    }

    pub(crate) fn take_resuming(&mut self) -> Vec<usize> {
        for index in &self.now.resuming {
            if let Some(client) = self.slab.get_mut(*index) {
                client.resuming = false;
            }
        }
        std::mem::take(&mut self.now.resuming)
    }

    /// Whom to write to next: those that have to get little before the others.
    #[inline]
    pub(crate) fn next_dirty(&mut self) -> Option<usize> {
        while let Some(index) = self.now.dirty.pop() {
            if !self.slab.get(index).is_some_and(Client::has_much_output) {
                return Some(index);
            }
            self.behind.push_back(index);
        }
        if self.large_left == 0 { None } else { self.behind.pop_front() }
    }

    /// Whether there is something to do in this turn.
    #[inline]
    pub(crate) fn have_work(&self) -> bool {
        !self.now.dirty.is_empty() || !self.now.resuming.is_empty()
    }

    /// Whether the next turn has something to do.
    pub(crate) fn have_work_later(&self) -> bool {
        self.have_work()
            || !self.behind.is_empty()
            || !self.next.dirty.is_empty()
            || !self.next.resuming.is_empty()
    }

    /// A new turn: every client has a share again.
    pub(crate) fn begin_turn(&mut self) {
        self.peak = self.peak.max(self.held());
        self.large_left = TURN_LARGE_BYTES;
        self.now.dirty.append(&mut self.next.dirty);
        self.now.resuming.append(&mut self.next.resuming);
    }

    /// Writes what a client has to get, at most its share of the turn; says whether it is over.
    pub(crate) fn write(&mut self, index: usize, tools: &mut Tools) -> bool {
        let Some(client) = self.slab.get_mut(index) else { return false };
        client.dirty = false;
        let has_much = client.has_much_output();
        let share = if has_much { self.large_left } else { TURN_WRITE_BYTES };
        let (mut blocked, mut moved, mut left) = (false, false, share.min(TURN_WRITE_BYTES));
        let mut writes = 0;
        let keeps = self.answer_bytes <= ANSWERS_KEPT;
        if client.stream.has_backlog() && !client.has_output() && !client.stream.flush() {
            client.ended = true;
            self.answer_bytes -= client.buffered;
            client.forget_answers();
        }
        while client.has_output() {
            if left == 0 || writes == TURN_WRITES {
                client.dirty = true;
                self.next.dirty.push(index);
                break;
            }
            writes += 1;
            let (wrote, freed) = client.write(left, keeps);
            self.answer_bytes -= freed;
            match wrote {
                Moved::Bytes(count) => {
                    moved = true;
                    client.took_ns = tools.now_ns;
                    left -= count.min(left);
                    if has_much {
                        self.large_left -= count.min(self.large_left);
                    }
                    tools.progress += 1;
                    tools.recorder.bytes_out(count as u64);
                }
                Moved::Later => {
                    blocked = client.stream.waits_for_room();
                    break;
                }
                Moved::Closed => {
                    // It takes no answers any more. What it sent is carried out all the same.
                    moved = true;
                    tools.progress += 1;
                    self.answer_bytes -= client.buffered;
                    client.forget_answers();
                }
            }
        }
        self.answer_bytes -= client.trim(keeps);
        blocked |= client.stream.has_backlog() && !client.gone;
        if client.has_ended_answer() {
            tools.look();
            while let Some(done) = client.next_ended_answer() {
                let mut moments = done.moments;
                moments.replied_ns = tools.now_ns;
                tools.recorder.completed(done.request, &moments);
            }
        }
        if client.is_over() {
            return true;
        }
        let wanted = Interest { read: client.takes_input(), write: blocked };
        if client.interest != wanted && !self.watch(index, wanted, tools) {
            return true;
        }
        if moved {
            self.may_go_on(index);
            self.admit_next();
        }
        false
    }

    /// Sets which events of a client the kernel reports from now on; returns whether that worked.
    fn watch(&mut self, index: usize, wanted: Interest, tools: &mut Tools) -> bool {
        let Some(client) = self.slab.get_mut(index) else { return false };
        tools.progress += 1;
        client.interest = wanted;
        let source = Source::Client { generation: client.generation, index };
        let told = tools.poller.watch(&client.stream, &mut client.watched, source, wanted);
        if told.is_err() {
            // It is closed when it is served next.
            client.ended = true;
            client.closing = true;
            client.gone = true;
            self.mark_dirty(index);
        }
        told.is_ok()
    }

    /// Has a client's input read, or not, as it has space.
    pub(crate) fn watch_input(&mut self, index: usize, tools: &mut Tools) {
        let Some(client) = self.slab.get(index) else { return };
        let wanted = Interest { read: client.takes_input(), ..client.interest };
        if client.interest != wanted {
            self.watch(index, wanted, tools);
        }
    }

    /// Forgets a client, and gives its requests that were not answered.
    pub(crate) fn remove(&mut self, index: usize, tools: &mut Tools) -> Option<Client> {
        let mut client = self.slab.try_remove(index)?;
        client.stream.close();
        tools.progress += 1;
        self.answer_bytes -= client.buffered;
        self.request_bytes -= client.input.len();
        tools.look();
        tools.recorder.connections.subtract(tools.now_ns, 1);
        self.admit_next();
        Some(client)
    }
}

/// The client whose turn it is, where it is not in the list of those that are resumed already.
fn next_of(admission: &mut Admission, clients: &mut Slab<Client>) -> Option<usize> {
    while let Some((index, generation)) = admission.next_waiting() {
        let client = clients.get_mut(index).filter(|client| client.generation == generation);
        let Some(client) = client else { continue };
        client.queues = false;
        if client.waits != Waits::Admission {
            continue;
        }
        client.leads = true;
        let is_new = !client.resuming;
        client.resuming = true;
        return is_new.then_some(index);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_when_it_was_free_for_a_while_and_not_between_two_waves() {
        let mut clients = Clients::new();
        clients.answer_bytes = 2 * TRIM_BYTES;
        clients.begin_turn();
        assert!(!clients.stay_small(0), "it is used");
        clients.answer_bytes = 1;
        assert!(!clients.stay_small(0), "it is free from now on");
        assert!(!clients.stay_small(TRIM_AFTER_NS - 1));
        clients.answer_bytes = TRIM_BYTES;
        assert!(!clients.stay_small(TRIM_AFTER_NS), "it is used again");
        clients.answer_bytes = 1;
        assert!(!clients.stay_small(TRIM_AFTER_NS + 1), "its time begins anew");
        assert!(clients.stay_small(2 * TRIM_AFTER_NS + 1));
        clients.gave_back();
        assert!(!clients.stay_small(9 * TRIM_AFTER_NS), "it went back");
    }
}
