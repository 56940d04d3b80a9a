//! What one generator thread counts, one window of a second at a time.
//!
//! A full window goes to the collector over a bounded channel, and an empty one comes back, so
//! that the thread itself neither allocates nor takes a lock that it could wait for.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender};

use kendall_stats::histogram::Histogram;

use crate::clock::SECOND_NS;
use crate::driver::{ErrorKind, Reply};

/// Histograms have room for times up to this; longer ones make them grow.
const ROOM_NS: u64 = 10 * SECOND_NS;

/// Status codes that are counted lie below this.
pub(crate) const STATUSES: usize = 600;

#[derive(Debug, Clone)]
pub(crate) struct OperationRecord {
    pub(crate) sent: u64,
    pub(crate) completed: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) errors: [u64; ErrorKind::ALL.len()],
    pub(crate) response_time: Histogram,
}

impl OperationRecord {
    fn new() -> Self {
        Self { response_time: Histogram::with_room(ROOM_NS), ..Self::empty() }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.completed += other.completed;
        self.hits += other.hits;
        self.misses += other.misses;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        for (sum, more) in self.errors.iter_mut().zip(&other.errors) {
            *sum += more;
        }
        self.response_time.add(&other.response_time);
    }

    fn clear(&mut self) {
        let mut response_time = std::mem::take(&mut self.response_time);
        response_time.clear();
        *self = Self { response_time, ..Self::empty() };
    }

    /// Whether anything was counted.
    pub(crate) fn has_any(&self) -> bool {
        self.sent > 0 || self.completed > 0 || self.errors.iter().any(|count| *count > 0)
    }

    /// Counters at zero and a histogram without room, which costs next to nothing to make.
    pub(crate) fn empty() -> Self {
        Self {
            sent: 0,
            completed: 0,
            hits: 0,
            misses: 0,
            bytes_out: 0,
            bytes_in: 0,
            errors: [0; ErrorKind::ALL.len()],
            response_time: Histogram::new(),
        }
    }
}

/// Index of the window of what was answered after the end: it lies in no second of the load.
pub(crate) const DRAINED: usize = usize::MAX;

/// One window of one thread.
#[derive(Debug)]
pub(crate) struct WindowRecord {
    pub(crate) thread: usize,
    /// Seconds since the start of the load, or [`DRAINED`].
    pub(crate) index: usize,
    pub(crate) operations: Vec<OperationRecord>,
}

impl WindowRecord {
    pub(crate) fn new(thread: usize, operations: usize) -> Self {
        Self {
            thread,
            index: 0,
            operations: (0..operations).map(|_| OperationRecord::new()).collect(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.operations.iter_mut().for_each(OperationRecord::clear);
    }
}

/// The two ends of the exchange of windows that a thread holds.
#[derive(Debug)]
pub(crate) struct WindowExchange {
    pub(crate) full: SyncSender<Box<WindowRecord>>,
    pub(crate) empty: Receiver<Box<WindowRecord>>,
}

/// What a thread keeps for the whole load.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Planned to sent, of those that were late at all.
    pub(crate) lateness: Histogram,
    /// Requests sent exactly when planned: kept apart, as most of a closed loop's are.
    pub(crate) on_time: u64,
    /// Due to a free connection, of arrivals that found none.
    pub(crate) connection_wait: Histogram,
    /// Open loop: when requests were due and sent, as many as there is room for.
    pub(crate) moments: Vec<(u64, u64)>,
    /// Requests sent later than the limit, by the generator's own fault.
    pub(crate) late: u64,
    /// How much too late this thread looked whether something was due, where that was late: it stood still.
    pub(crate) stood_still_ns: u64,
    /// Arrivals that were due and never sent.
    pub(crate) unsent: u64,
    /// How long each request had waited that was under way at the end.
    pub(crate) waiting: Vec<u64>,
    /// Redirects of a cluster that were followed.
    pub(crate) moved: u64,
    pub(crate) asked: u64,
    /// Connections made again after one broke.
    pub(crate) reconnects: u64,
    /// Requests sent once more that a server had not taken.
    pub(crate) sent_anew: u64,
    /// Replies by HTTP status code.
    pub(crate) statuses: Box<[u64; STATUSES]>,
    /// Closed loop: time from each completion to the next, ends of the load included.
    pub(crate) silences: Histogram,
    /// When the last reply was complete; `None` before the start, and in the open loop.
    last_done_ns: Option<u64>,
}

impl Tally {
    /// Closed loop: nothing completed since the last call.
    fn silent_until(&mut self, now: u64) {
        if let Some(last) = &mut self.last_done_ns {
            self.silences.record(now.saturating_sub(*last).max(1));
            *last = now.max(*last);
        }
    }
}

/// Counts what one thread does.
#[derive(Debug)]
pub(crate) struct Recorder {
    window: Box<WindowRecord>,
    window_ends_ns: u64,
    /// End of the load; what is sent and answered later is drained.
    ends_ns: u64,
    exchange: WindowExchange,
    /// A request that is sent later than this after its moment counts as late.
    late_ns: u64,
    /// When this thread is to look whether something is due.
    look_ns: u64,
    /// From when until when a free connection, or a look, last waited for this thread, where that was late.
    stood_still: Range<u64>,
    pub(crate) tally: Tally,
}

impl Recorder {
    /// Counts nothing before [`start`](Self::start).
    pub(crate) fn new(
        thread: usize,
        operations: usize,
        exchange: WindowExchange,
        late_ns: u64,
    ) -> Self {
        Self {
            late_ns,
            look_ns: u64::MAX,
            stood_still: 0..0,
            window: Box::new(WindowRecord::new(thread, operations)),
            window_ends_ns: u64::MAX,
            ends_ns: u64::MAX,
            exchange,
            tally: Tally {
                lateness: Histogram::with_room(ROOM_NS),
                on_time: 0,
                connection_wait: Histogram::with_room(ROOM_NS),
                moments: Vec::new(),
                late: 0,
                stood_still_ns: 0,
                unsent: 0,
                waiting: Vec::new(),
                moved: 0,
                asked: 0,
                reconnects: 0,
                sent_anew: 0,
                statuses: Box::new([0; STATUSES]),
                silences: Histogram::with_room(ROOM_NS),
                last_done_ns: None,
            },
        }
    }

    /// Counts from `started_ns` in windows of a second until `ends_ns`. What completes later is
    /// counted separately: otherwise the last second would seem as fast as the arrivals were.
    pub(crate) fn start(&mut self, started_ns: u64, ends_ns: u64) {
        self.ends_ns = ends_ns;
        self.window_ends_ns = ends_ns.min(started_ns + SECOND_NS);
    }

    /// The load ends earlier than planned.
    pub(crate) fn end_at(&mut self, ends_ns: u64) {
        if ends_ns < self.ends_ns {
            self.ends_ns = ends_ns;
            self.window_ends_ns = self.window_ends_ns.min(ends_ns);
        }
    }

    /// Closed loop: keeps how long nothing completed, from `started_ns` on.
    pub(crate) fn keep_silences(&mut self, started_ns: u64) {
        self.tally.last_done_ns = Some(started_ns);
    }

    /// Makes room for the moments of this many requests.
    pub(crate) fn keep_moments(&mut self, requests: usize) {
        self.tally.moments.reserve_exact(requests);
    }

    /// Open loop: keeps when a request was due and sent, while there is room.
    fn moment(&mut self, due: u64, sent: u64) {
        let moments = &mut self.tally.moments;
        if moments.len() < moments.capacity() {
            moments.push((due, sent));
        }
    }

    /// Counts a request of `operation` that was handed to the kernel when it was `sent`, on a connection that became
    /// free at `free_ns` where it waited for one.
    ///
    /// What became due while this thread stood still is late until it went on, although so many were due then that they
    /// also waited for connections.
    pub(crate) fn sent(
        &mut self,
        operation: usize,
        bytes: u64,
        (due, free_ns, sent): (u64, u64, u64),
    ) {
        let record = &mut self.window.operations[operation];
        record.sent += 1;
        record.bytes_out += bytes;
        self.moment(due, sent);
        let mut lateness_ns = sent.saturating_sub(due.max(free_ns));
        if free_ns > due {
            // It may be free only because this thread went on, and the look comes afterwards.
            self.stands_still(sent);
            let seen = if self.stood_still.contains(&due) { self.stood_still.end } else { due };
            lateness_ns = lateness_ns.max(seen - due);
            if free_ns > seen {
                self.tally.connection_wait.record(free_ns - seen);
            }
        } else if lateness_ns > self.late_ns {
            self.stood_still = due..sent;
        }
        self.tally.late += u64::from(lateness_ns > self.late_ns);
        if lateness_ns == 0 {
            self.tally.on_time += 1;
        } else {
            self.tally.lateness.record(lateness_ns);
        }
    }

    /// This thread looks at `now_ns` whether something is due, and is to do so again at `next_ns`.
    pub(crate) fn looks(&mut self, now_ns: u64, next_ns: u64) {
        self.tally.stood_still_ns += self.stands_still(now_ns);
        self.look_ns = next_ns;
    }

    /// How much too late this thread goes on at `now_ns`, if that is late: it stood still, with all its connections busy
    /// perhaps.
    fn stands_still(&mut self, now_ns: u64) -> u64 {
        let late_ns = now_ns.saturating_sub(self.look_ns);
        if late_ns <= self.late_ns {
            return 0;
        }
        let known = self.stood_still.contains(&self.look_ns);
        self.stood_still = if known { self.stood_still.start } else { self.look_ns }..now_ns;
        late_ns
    }

    /// Counts a part of a request that is an operation of its own.
    pub(crate) fn part_sent(&mut self, part: usize) {
        self.window.operations[part].sent += 1;
    }

    /// Counts what was sent for a part of a request.
    pub(crate) fn part_bytes(&mut self, operation: usize, part: usize, bytes: u64) {
        self.window.operations[part].bytes_out += bytes;
        self.window.operations[operation].bytes_out += bytes;
    }

    /// Counts the reply to a part of a request, and the bytes of the next.
    pub(crate) fn onward(&mut self, operation: usize, bytes: u64, reply: Reply) {
        self.window.operations[operation].bytes_out += bytes;
        self.redirects(reply);
    }

    fn redirects(&mut self, reply: Reply) {
        self.tally.moved += u64::from(reply.moved);
        self.tally.asked += u64::from(reply.asked);
    }

    /// Counts a complete reply. A time of 0 is kept as 1 ns, which the histogram can hold.
    pub(crate) fn replied(
        &mut self,
        operation: usize,
        bytes: u64,
        reply: Reply,
        due: u64,
        done: u64,
    ) {
        self.roll(done);
        self.tally.silent_until(done);
        self.redirects(reply);
        if let Some(count) = self.tally.statuses.get_mut(usize::from(reply.status)) {
            *count += 1;
        }
        let record = &mut self.window.operations[operation];
        record.bytes_in += bytes;
        if let Some(kind) = reply.error {
            record.errors[kind as usize] += 1;
            return;
        }
        record.completed += 1;
        record.hits += u64::from(reply.hits);
        record.misses += u64::from(reply.misses);
        record.response_time.record(done.saturating_sub(due).max(1));
    }

    /// Counts a request that ended without a reply.
    pub(crate) fn failed(&mut self, operation: usize, kind: ErrorKind, now: u64) {
        self.roll(now);
        self.window.operations[operation].errors[kind as usize] += 1;
    }

    /// Hands over every window that has ended by `now`.
    pub(crate) fn roll(&mut self, now: u64) {
        while now >= self.window_ends_ns {
            let last = self.window_ends_ns >= self.ends_ns;
            let next = if last { DRAINED } else { self.window.index + 1 };
            self.hand_over();
            self.window.index = next;
            self.window_ends_ns = if last {
                u64::MAX
            } else {
                self.ends_ns.min(self.window_ends_ns.saturating_add(SECOND_NS))
            };
        }
    }

    /// Hands over the window in progress and drops the channel, for which the collector waits.
    pub(crate) fn finish(mut self, ended_ns: u64) -> Tally {
        self.tally.silent_until(ended_ns);
        self.hand_over();
        self.tally
    }

    fn hand_over(&mut self) {
        let (thread, operations) = (self.window.thread, self.window.operations.len());
        // The collector keeps a few empty windows ready; making one is the exception.
        let empty = self
            .exchange
            .empty
            .try_recv()
            .unwrap_or_else(|_| Box::new(WindowRecord::new(thread, operations)));
        let full = std::mem::replace(&mut self.window, empty);
        // The collector outlives the threads; without it the record is dropped.
        self.exchange.full.send(full).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// One that counts what is later than 20 as late.
    fn recorder() -> Recorder {
        let ((full, _windows), (_back, empty)) = (sync_channel(1), sync_channel(1));
        Recorder::new(0, 1, WindowExchange { full, empty }, 20)
    }

    /// A thread with one connection is to look at 150, and stands still from 110 to 200.
    #[test]
    fn what_is_due_while_the_thread_stands_still_is_late_before_it_waits_for_a_connection() {
        let mut recorder = recorder();
        recorder.looks(100, 150);
        recorder.sent(0, 1, (110, 0, 200));
        recorder.looks(200, 220);
        for moments in [(120, 201, 201), (190, 202, 202), (205, 230, 230)] {
            recorder.sent(0, 1, moments);
        }
        recorder.looks(230, 300);
        let Tally { late, connection_wait, stood_still_ns, .. } = &recorder.tally;
        assert_eq!(*stood_still_ns, 50);
        assert_eq!(*late, 2, "those due at 110 and 120");
        let waits = [0.0, 0.5, 1.0].map(|quantile| connection_wait.quantile(quantile));
        assert_eq!(waits, [Some(1), Some(2), Some(25)]);
    }

    /// Its connection was busy when it stopped, and the answer is read when it goes on.
    #[test]
    fn what_is_due_while_the_thread_stands_still_is_late_where_no_connection_was_free() {
        let mut recorder = recorder();
        recorder.looks(100, 150);
        // Before 150 it may have slept.
        recorder.sent(0, 1, (140, 200, 200));
        recorder.sent(0, 1, (160, 201, 201));
        recorder.looks(202, 300);
        recorder.sent(0, 1, (170, 260, 260));
        let Tally { late, connection_wait, stood_still_ns, .. } = &recorder.tally;
        assert_eq!((*late, *stood_still_ns), (2, 52));
        assert_eq!([0.0, 1.0].map(|q| connection_wait.quantile(q)), [Some(58), Some(60)]);
    }
}
