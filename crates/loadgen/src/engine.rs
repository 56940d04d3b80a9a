//! The loop of one generator thread: many connections on one epoll instance.
//!
//! Edge-triggered, so that a request costs one write and one read and a wake-up is shared by all
//! connections that are ready; waits have nanosecond time-outs, because a request that is sent a
//! millisecond late is a wrong measurement. What is in flight, when it was due and what became of
//! it is kept here for every protocol; see [`Driver`] for what a protocol adds.

mod connection;
mod socket;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll;
use rustix::io::Errno;

use crate::clock::{MILLISECOND_NS, SECOND_NS, now_ns, timespec};
use crate::driver::{Driver, ErrorKind, Reply};
use crate::due_times::Pace;
use crate::recorder::{Recorder, Tally};
use connection::{Connection, Input, Phase};

/// Bytes that one read takes at most.
const INBOX_BYTES: usize = 64 << 10;

/// Bytes that a driver may leave unconsumed: more than any protocol's longest line or head.
const LONGEST_REST: usize = INBOX_BYTES / 2;

/// Events that one wake-up takes at most.
const EVENTS: usize = 512;

/// Longest wait: how soon a stop is seen.
const LONGEST_WAIT_NS: u64 = 50 * MILLISECOND_NS;

/// Pauses between attempts to reach a server that is not there double up to this.
const LONGEST_PAUSE_NS: u64 = SECOND_NS;

/// What one thread needs to know.
#[derive(Debug)]
pub(crate) struct ThreadPlan<'a> {
    /// One address for every connection of the thread.
    pub(crate) connections: Vec<SocketAddr>,
    pub(crate) timeout_ns: u64,
    /// Waits shorter than this are spent asking again and again, which wakes up sooner.
    pub(crate) spin_ns: u64,
    /// Requests that this thread sends at most.
    pub(crate) requests: u64,
    pub(crate) stop: &'a AtomicBool,
}

/// What a thread's loop leaves behind.
pub(crate) struct Ended {
    pub(crate) ended_ns: u64,
    pub(crate) spun_ns: u64,
    pub(crate) tally: Tally,
}

pub(crate) struct Generator<'a, D: Driver> {
    plan: ThreadPlan<'a>,
    started_ns: u64,
    ends_ns: u64,
    driver: D,
    pace: Pace,
    pub(crate) recorder: Recorder,
    epoll: OwnedFd,
    connections: Vec<Connection<D::Pending>>,
    /// Open loop: connections that wait for an arrival.
    idle: VecDeque<usize>,
    /// Connections that do something at a moment: send the next request, or become idle again.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    busy: usize,
    /// Requests that may still be sent.
    left: u64,
    /// Time spent asking for events of which there was none, instead of asleep.
    spun_ns: u64,
}

impl<'a, D: Driver> Generator<'a, D> {
    pub(crate) fn connect(
        plan: ThreadPlan<'a>,
        driver: D,
        pace: Pace,
        recorder: Recorder,
    ) -> Result<Self, (SocketAddr, std::io::Error)> {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| (unknown, std::io::Error::from(errno)))?;
        let secure = driver.secure();
        let mut connections = Vec::with_capacity(plan.connections.len());
        for (index, target) in plan.connections.iter().enumerate() {
            let mut connection = Connection::new(*target, secure.cloned());
            connection
                .open_and_wait(&epoll, index, plan.timeout_ns)
                .map_err(|error| (*target, error))?;
            connections.push(connection);
        }
        Ok(Self {
            idle: VecDeque::with_capacity(connections.len()),
            timers: BinaryHeap::with_capacity(2 * connections.len()),
            inbox: vec![0; INBOX_BYTES],
            outbox: Vec::with_capacity(INBOX_BYTES),
            busy: 0,
            left: plan.requests,
            spun_ns: 0,
            plan,
            started_ns: 0,
            ends_ns: 0,
            driver,
            pace,
            recorder,
            epoll,
            connections,
        })
    }

    /// Runs from `started_ns` to `ends_ns`, or until told to stop; returns when it ended.
    pub(crate) fn run(mut self, started_ns: u64, ends_ns: u64) -> Result<Ended, std::io::Error> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        let tick_ns = (self.plan.timeout_ns / 8).clamp(MILLISECOND_NS, LONGEST_WAIT_NS);
        let mut next_tick = started_ns + tick_ns;
        self.recorder.looks(started_ns, next_tick);
        self.started_ns = started_ns;
        self.ends_ns = ends_ns;
        self.prepare();
        let (mut polled_at, mut looked_ns) = (None, started_ns);
        loop {
            let mut now = now_ns();
            if let Some(from) = polled_at.take() {
                self.spun_ns += now.saturating_sub(from);
            }
            if self.plan.stop.load(Ordering::Relaxed) {
                self.ends_ns = self.ends_ns.min(now);
                self.recorder.end_at(self.ends_ns);
            }
            if self.left == 0 && self.busy == 0 {
                self.ends_ns = self.ends_ns.min(now);
                break;
            }
            if now >= self.ends_ns && !self.drains(now) {
                break;
            }
            self.act_on_time(now);
            if now >= next_tick {
                next_tick = now + tick_ns;
                self.recorder.looks(now, next_tick);
                self.expire(now);
                self.recorder.roll(now);
            }
            now = now_ns();
            let left = self.next_moment().min(next_tick).saturating_sub(now);
            let wait_ns = left.saturating_sub(self.plan.spin_ns);
            let wait = timespec(wait_ns);
            looked_ns = now;
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait))
            {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if events.is_empty() && wait_ns == 0 && left > 0 {
                polled_at = Some(now);
            }
            for event in &events {
                self.ready(event.data.u64(), event.flags);
            }
        }
        self.recorder.tally.waiting = self.waiting(looked_ns);
        self.recorder.tally.unsent = self.count_unsent();
        Ok(Ended {
            ended_ns: self.ends_ns,
            spun_ns: self.spun_ns,
            tally: self.recorder.finish(self.ends_ns),
        })
    }

    /// How long each request in flight had waited when answers were last looked for: what came since
    /// may lie in the socket.
    fn waiting(&self, looked_ns: u64) -> Vec<u64> {
        let in_flight = self.connections.iter().filter(|one| one.phase != Phase::Free);
        in_flight.map(|one| looked_ns.saturating_sub(one.due)).collect()
    }

    /// Arrivals that were due and could not be sent.
    fn count_unsent(&mut self) -> u64 {
        let mut unsent = 0;
        while self.next_arrival().is_some() {
            self.advance();
            unsent += 1;
        }
        unsent
    }

    /// The first moment of every client, or all connections free.
    fn prepare(&mut self) {
        let count = self.connections.len();
        match &self.pace {
            Pace::Closed { stagger_ns, .. } => {
                for index in 0..count {
                    let offset = *stagger_ns * index as u64 / count.max(1) as u64;
                    if let Some(offset) = self.pace.takes_part_ns(index, offset) {
                        self.timers.push(Reverse((self.started_ns + offset, index)));
                    }
                }
            }
            Pace::Open(_) => self.idle.extend(0..count),
        }
    }

    /// The open loop sends what was due before the end, and waits for the replies, up to the
    /// time-out; a closed loop leaves what is in flight.
    fn drains(&self, now: u64) -> bool {
        matches!(self.pace, Pace::Open(_))
            && (self.busy > 0 || self.next_arrival().is_some())
            && now < self.ends_ns.saturating_add(self.plan.timeout_ns)
    }

    /// Sends everything that is due by `now`.
    fn act_on_time(&mut self, now: u64) {
        while let Some(Reverse((due, index))) = self.timers.peek().copied()
            && due <= now
        {
            self.timers.pop();
            match self.pace {
                Pace::Closed { .. } if self.left == 0 => {}
                Pace::Closed { .. } => self.send(index, due, 0),
                Pace::Open(_) => self.become_free(index, now),
            }
        }
        while let Some(due) = self.next_arrival()
            && due <= now
            && let Some(index) = self.idle.pop_front()
        {
            self.advance();
            self.send(index, due, 0);
        }
    }

    fn next_arrival(&self) -> Option<u64> {
        match &self.pace {
            Pace::Open(arrivals) => arrivals
                .next_ns()
                .map(|offset| self.started_ns.saturating_add(offset))
                .filter(|due| *due < self.ends_ns && self.left > 0),
            Pace::Closed { .. } => None,
        }
    }

    fn advance(&mut self) {
        if let Pace::Open(arrivals) = &mut self.pace {
            arrivals.advance();
        }
    }

    /// When something is to be done next without an event.
    fn next_moment(&self) -> u64 {
        let timer = self.timers.peek().map(|Reverse((due, _))| *due);
        let arrival = if self.idle.is_empty() { None } else { self.next_arrival() };
        let closed = matches!(self.pace, Pace::Closed { .. });
        [timer, arrival, closed.then_some(self.ends_ns)]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Sends the next request on a connection. `free_ns` is when the connection became free, for
    /// an arrival that waited for one.
    fn send(&mut self, index: usize, due: u64, free_ns: u64) {
        let connection = &mut self.connections[index];
        self.outbox.clear();
        let operation = self.driver.write(&mut connection.pending, &mut self.outbox);
        let sent = now_ns();
        self.recorder.sent(operation, self.outbox.len() as u64, (due, free_ns, sent));
        self.transmit(index, operation, due, sent);
    }

    /// Closed loop without think time: the request is due the moment the reply before it was
    /// read, and the clock need not be asked again.
    fn send_at_once(&mut self, index: usize, due: u64) {
        let connection = &mut self.connections[index];
        self.outbox.clear();
        let operation = self.driver.write(&mut connection.pending, &mut self.outbox);
        self.recorder.sent(operation, self.outbox.len() as u64, (due, 0, due));
        self.transmit(index, operation, due, due);
    }

    fn transmit(&mut self, index: usize, operation: usize, due: u64, sent: u64) {
        let connection = &mut self.connections[index];
        connection.begin(operation, due, sent);
        self.busy += 1;
        self.left -= 1;
        self.dispatch(index, sent);
    }

    /// Hands the outbox to the connection to where the driver sends it; false when that failed.
    fn dispatch(&mut self, index: usize, now: u64) -> bool {
        let connection = &mut self.connections[index];
        connection.turn_to(self.driver.node(&connection.pending));
        if connection.is_new() {
            let greeting = self.driver.greeting(&mut connection.pending);
            drop(self.outbox.splice(..0, greeting.iter().copied()));
        }
        if let Err(kind) = connection.send(&self.epoll, index, &self.outbox) {
            self.fail(index, kind, now);
            return false;
        }
        true
    }

    /// Sends what a reply to a part of the request left; false when that failed.
    fn go_onward(&mut self, index: usize, reply: Reply, now: u64) -> bool {
        let connection = &mut self.connections[index];
        connection.part_done();
        self.outbox.clear();
        self.driver.write_on(&mut connection.pending, &mut self.outbox);
        self.recorder.onward(connection.operation, self.outbox.len() as u64, reply);
        self.dispatch(index, now)
    }

    /// Something happened on a connection.
    fn ready(&mut self, mark: u64, flags: epoll::EventFlags) {
        let index = Connection::<D::Pending>::index_of(mark);
        let Some(connection) = self.connections.get_mut(index).filter(|c| c.mark(index) == mark)
        else {
            return; // About a socket that was closed since.
        };
        if flags
            .intersects(epoll::EventFlags::OUT | epoll::EventFlags::ERR | epoll::EventFlags::HUP)
            && connection.has_unsent()
            && let Err(kind) = connection.send_rest()
        {
            self.fail(index, kind, now_ns());
            return;
        }
        if flags.intersects(
            epoll::EventFlags::IN
                | epoll::EventFlags::RDHUP
                | epoll::EventFlags::HUP
                | epoll::EventFlags::ERR,
        ) {
            let closing =
                epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            self.receive(index, mark, flags.intersects(closing));
        }
    }

    /// Reads until the socket is empty, or up to its end where that is known to follow.
    fn receive(&mut self, index: usize, mark: u64, to_the_end: bool) {
        while self.connections[index].mark(index) == mark {
            let connection = &mut self.connections[index];
            let input = connection.receive(&mut self.inbox);
            let done = now_ns();
            match input {
                Input::Nothing => return,
                Input::Failed(kind) => {
                    self.lose(index, kind, done);
                    return;
                }
                Input::End => {
                    self.end_of_input(index, done);
                    return;
                }
                Input::Bytes { held, read, more } => {
                    let more = more || to_the_end;
                    if !self.interpret(index, held, read, done) || !more {
                        return;
                    }
                    // An answer without end must not keep the thread here.
                    if self.connections[index].is_overdue(done, self.plan.timeout_ns) {
                        self.fail(index, ErrorKind::TimedOut, done);
                        return;
                    }
                }
            }
        }
    }

    /// Gives the driver what came in; whether reading may go on.
    fn interpret(&mut self, index: usize, held: usize, read: usize, done: u64) -> bool {
        let connection = &mut self.connections[index];
        if connection.phase != Phase::Busy {
            self.lose(index, ErrorKind::Garbage, done);
            return false;
        }
        connection.bytes_in += read as u64;
        let progress = self.driver.read(&mut connection.pending, &self.inbox[..held]);
        let Some(reply) = progress.reply else {
            let rest = &self.inbox[progress.consumed..held];
            if rest.len() > LONGEST_REST {
                self.lose(index, ErrorKind::Garbage, done);
                return false;
            }
            connection.keep(rest);
            return true;
        };
        let mut reply = reply;
        if progress.consumed < held && reply.error.is_none() {
            // More than was asked for: the stream is out of step.
            reply = Reply::broken(ErrorKind::Garbage);
        }
        if reply.error == Some(ErrorKind::Garbage) {
            let kind = connection.kind_of(ErrorKind::Garbage, &self.inbox[..held]);
            reply.error = Some(kind);
        }
        if reply.onward {
            return self.go_onward(index, reply, done);
        }
        self.complete(index, reply, done);
        !reply.close
    }

    fn end_of_input(&mut self, index: usize, done: u64) {
        let connection = &mut self.connections[index];
        if connection.phase == Phase::Busy
            && let Some(mut reply) = self.driver.end_of_input(&mut connection.pending)
        {
            reply.close = true;
            self.complete(index, reply, done);
        } else {
            self.lose(index, ErrorKind::ConnectionClosed, done);
        }
    }

    /// The reply is complete: counts it, and goes on.
    fn complete(&mut self, index: usize, reply: Reply, done: u64) {
        let connection = &mut self.connections[index];
        self.recorder.replied(
            connection.operation,
            connection.bytes_in,
            reply,
            connection.due,
            done,
        );
        connection.finish();
        connection.succeeded();
        self.busy -= 1;
        if reply.close {
            connection.close();
        }
        self.go_on(index, done, 0);
    }

    /// The connection is of no use any more: its request, if any, has failed.
    fn lose(&mut self, index: usize, kind: ErrorKind, now: u64) {
        if self.connections[index].phase == Phase::Free {
            // Closed between two requests: nothing was lost, the next one connects again.
            self.connections[index].close();
            self.recorder.tally.reconnects += 1;
            return;
        }
        let kind = self.connections[index].kind_of_rest(kind);
        self.fail(index, kind, now);
    }

    /// The request in flight has failed, and with it the connection.
    fn fail(&mut self, index: usize, kind: ErrorKind, now: u64) {
        let connection = &mut self.connections[index];
        self.recorder.failed(connection.operation, kind, now);
        self.recorder.tally.reconnects += 1;
        self.busy -= 1;
        self.driver.lost(&mut connection.pending);
        connection.close();
        let pause = connection.pause_after_failure(LONGEST_PAUSE_NS);
        connection.finish();
        self.go_on(index, now, pause);
    }

    /// After a request: thinks, or takes the next arrival.
    fn go_on(&mut self, index: usize, now: u64, pause_ns: u64) {
        match &mut self.pace {
            Pace::Closed { think_time, random, .. } => {
                let think = think_time.as_ref().map_or(0, |think_time| {
                    kendall_units::Seconds::new(think_time.sample(random)).as_nanos()
                });
                let wait = think.max(pause_ns);
                if self.left == 0 {
                    return;
                }
                let due = now.saturating_add(wait);
                let offset = due.saturating_sub(self.started_ns);
                let Some(from) = self.pace.takes_part_ns(index, offset) else { return };
                let due = due.max(self.started_ns + from);
                if due <= now && now < self.ends_ns {
                    self.send_at_once(index, now);
                } else {
                    self.timers.push(Reverse((due, index)));
                }
            }
            Pace::Open(_) if pause_ns > 0 => {
                self.timers.push(Reverse((now.saturating_add(pause_ns), index)));
            }
            Pace::Open(_) => self.become_free(index, now),
        }
    }

    /// Open loop: the connection serves an arrival that waits for one, or waits for the next.
    fn become_free(&mut self, index: usize, now: u64) {
        match self.next_arrival() {
            Some(due) if due <= now && self.idle.is_empty() => {
                self.advance();
                self.send(index, due, now);
            }
            _ => self.idle.push_back(index),
        }
    }

    /// Gives up on requests that were sent longer ago than the time-out.
    fn expire(&mut self, now: u64) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            if connection.is_overdue(now, self.plan.timeout_ns) {
                let kind = if connection.phase == Phase::Connecting {
                    ErrorKind::ConnectFailed
                } else {
                    ErrorKind::TimedOut
                };
                self.fail(index, kind, now);
            }
        }
    }
}
