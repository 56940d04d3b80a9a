//! Open connections: what each holds for a client that takes nothing, and which one ends when its place is needed.
//!
//! What was made of answers counts until the kernel has it. Where a connection, its address or the tier holds its
//! share, further requests wait, one of each connection and one of each address in turn. Requests count from their
//! head on: where an address or the tier has its share of them, connections are not read, but for what requests that
//! have begun need. While anything waits, a connection ends whose client is waited for and takes nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::http::Extensions;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::client::{Account, Client, Level, Turn};
use crate::{Clock, process};

/// How often those who wait for room look for a connection that can end.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// Time after which a connection ends where others wait, unless its client took so many bytes.
const PATIENCE_NS: u64 = 1_000_000_000;
const PROGRESS: u64 = 16 << 10;
/// Requests that have begun, of all connections; some ten kilobytes each.
const REQUESTS: usize = 8 << 10;
/// What an answer holds whose parts are made while it is taken: a part, a file.
pub const PART_BYTES: usize = 256 << 10;
/// Bytes of answers, where the number of files allows it.
const ANSWER_BYTES: usize = 256 << 20;

/// What may be held for clients: for all, for one address, for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub whole: usize,
    pub peer: usize,
    pub connection: usize,
}

impl Bounds {
    /// Bytes of answers: with [`PART_BYTES`] a file, a quarter of the files that this process may open.
    pub fn of_answers() -> Self {
        let files = process::share_of_descriptors(4);
        Self::of(files.saturating_mul(PART_BYTES).min(ANSWER_BYTES))
    }

    /// Requests that have begun, where so many may last.
    pub(super) fn of_requests(lasting: usize) -> Self {
        Self::of(lasting.saturating_mul(2).saturating_add(REQUESTS))
    }

    /// So much in all; three quarters of it for one address, half for one connection.
    pub fn of(whole: usize) -> Self {
        Self { whole, peer: whole / 4 * 3, connection: whole / 2 }
    }

    /// Those of a tier whose clients' requests go on over one connection to another: well below what that one has.
    #[must_use]
    pub fn on_one_connection(self) -> Self {
        Self::of(self.connection / 4 * 3)
    }

    /// Those of a tier whose clients all come over one connection.
    #[must_use]
    pub fn behind_front(self) -> Self {
        Self { peer: self.whole, connection: self.whole, ..self }
    }
}

#[derive(Debug)]
pub(super) struct Open {
    all: Account,
    answers: Bounds,
    requests: Bounds,
    clock: Clock,
    connections: Mutex<Connections>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Connections {
    seen: HashMap<u64, Seen>,
    looked_ns: u64,
}

/// A connection, since when it was seen to wait for its client, and what that one had taken then.
#[derive(Debug)]
struct Seen {
    connection: Arc<Connection>,
    since_ns: Option<u64>,
    taken: u64,
}

impl Seen {
    fn silence_ns(&self, now_ns: u64) -> u64 {
        self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }
}

impl Connections {
    /// Whether a connection is about to make room.
    fn one_ends(&self) -> bool {
        self.seen.values().any(|seen| seen.connection.ending.load(Ordering::Relaxed))
    }

    /// What was seen long ago says nothing of the time since.
    fn look(&mut self, now_ns: u64) {
        let anew = now_ns.saturating_sub(self.looked_ns) > PATIENCE_NS;
        self.looked_ns = now_ns;
        for seen in self.seen.values_mut() {
            let taken = seen.connection.taken();
            let moved = anew || taken >= seen.taken + PROGRESS;
            if !seen.connection.waits() {
                seen.since_ns = None;
            } else if moved || seen.since_ns.is_none() {
                (seen.since_ns, seen.taken) = (Some(now_ns), taken);
            }
        }
    }
}

impl Open {
    pub(super) fn new(answers: Bounds, requests: Bounds) -> Self {
        let clock = Clock::monotonic();
        let (all, connections, next) = Default::default();
        Self { all, answers, requests, clock, connections, next }
    }

    /// Adds a connection, until [`Self::remove`].
    pub(super) fn add(self: &Arc<Self>, client: Client) -> Arc<Connection> {
        let now_ns = self.clock.now_ns();
        client.peer.connections.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            client,
            open: Arc::clone(self),
            begun: AtomicU64::new(0),
            requests: AtomicUsize::new(0),
            idle_since_ns: AtomicU64::new(now_ns),
            waits: AtomicUsize::new(0),
            bodies: AtomicUsize::new(0),
            needed: Notify::new(),
            taken: AtomicU64::new(0),
            ending: AtomicBool::new(false),
            end: Notify::new(),
        });
        let seen = Seen { connection: Arc::clone(&connection), since_ns: None, taken: 0 };
        self.connections.lock().seen.insert(connection.number, seen);
        connection
    }

    pub(super) fn remove(&self, connection: &Connection) {
        self.connections.lock().seen.remove(&connection.number);
        connection.client.peer.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends a connection to make room for another: the one that has been without a request for longest, first of the
    /// address that has most; else one whose client takes nothing.
    pub(super) fn end_one(&self) -> bool {
        let now_ns = self.clock.now_ns();
        let open = self.connections.lock();
        if open.one_ends() {
            return true;
        }
        let idle =
            open.seen.values().map(|seen| &seen.connection).filter(|one| !one.has_requests());
        let longest = idle.max_by_key(|one| {
            let idle_ns = now_ns.saturating_sub(one.idle_since_ns.load(Ordering::Relaxed));
            (one.client.peer.connections.load(Ordering::Relaxed), idle_ns)
        });
        if longest.map(|connection| connection.end()).is_some() {
            return true;
        }
        drop(open);
        self.end_silent(None)
    }

    /// Ends the connection whose client has taken nothing for longest, first of the address and the connection that
    /// hold most; of one address, where that is given.
    fn end_silent(&self, of: Option<&Arc<Account>>) -> bool {
        let now_ns = self.clock.now_ns();
        let mut open = self.connections.lock();
        open.look(now_ns);
        if open.one_ends() {
            return true;
        }
        let silent = open.seen.values().filter(|seen| {
            let one = &seen.connection;
            seen.silence_ns(now_ns) >= PATIENCE_NS
                && of.is_none_or(|peer| Arc::ptr_eq(peer, &one.client.peer))
        });
        let longest = silent.max_by_key(|seen| {
            let client = &seen.connection.client;
            let held = [&client.peer, &client.connection].map(|account| account.answers.held());
            (held, seen.silence_ns(now_ns))
        });
        longest.map(|seen| seen.connection.end()).is_some()
    }

    /// Ends the connection that has most requests where there are twice as many as may begin: of those whose clients
    /// leave all they have begun half done.
    fn end_largest(&self) {
        if self.all.requests.held() <= self.requests.whole.saturating_mul(2) {
            return;
        }
        let open = self.connections.lock();
        let all = open.seen.values().map(|seen| &seen.connection);
        let most = all.max_by_key(|one| one.client.connection.requests.held());
        if let Some(one) = most
            && !open.one_ends()
        {
            one.end();
        }
    }
}

/// What happens on a connection.
pub struct Connection {
    number: u64,
    pub(super) client: Client,
    open: Arc<Open>,
    begun: AtomicU64,
    /// Requests for whose sake it stays.
    requests: AtomicUsize,
    idle_since_ns: AtomicU64,
    /// Parts of answers that wait for the client to take them, and requests that wait for the rest of them.
    waits: AtomicUsize,
    /// Bodies of requests that are read and of which nothing is there.
    bodies: AtomicUsize,
    /// Told when either becomes more: the connection must be read.
    needed: Notify,
    /// Bytes of answers that the client took.
    taken: AtomicU64,
    ending: AtomicBool,
    end: Notify,
}

impl std::fmt::Debug for Connection {
    /// Without the others that are open.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(&self.number).finish()
    }
}

impl Connection {
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    pub(super) fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    pub(super) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed) > 0
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.end.notify_one();
    }

    /// Returns when another needs the room.
    pub(super) async fn ended(&self) {
        self.end.notified().await;
        tracing::debug!("a connection was closed for a new one");
    }

    /// A request begins for whose sake the connection stays.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Begun {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        Begun(Arc::clone(self))
    }

    /// Whether so many further requests may begin.
    pub(super) fn may_begin(&self, requests: usize) -> bool {
        self.requests().iter().all(|(level, most)| level.is_free(requests, *most))
    }

    /// Whether requests that have begun need what the client sends.
    pub(super) fn is_needed(&self) -> bool {
        [&self.waits, &self.bodies].iter().any(|count| count.load(Ordering::SeqCst) > 0)
    }

    /// Whether the body of a request is read of which nothing is there.
    pub(super) fn awaits_body(&self) -> bool {
        self.bodies.load(Ordering::SeqCst) > 0
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.open.clock.now_ns()
    }

    /// Waits in turn until further requests may begin; false where those that have begun need something before.
    pub(super) async fn next_turn(self: Arc<Self>) -> bool {
        tokio::select! {
            _ = self.room(self.requests(), 1) => true,
            () = self.needed.notified() => false,
        }
    }

    fn requests(&self) -> Levels<'_> {
        self.levels(|account| &account.requests, &self.open.requests)
    }

    fn answers(&self) -> Levels<'_> {
        self.levels(|account| &account.answers, &self.open.answers)
    }

    fn levels(&self, of: fn(&Account) -> &Level, bounds: &Bounds) -> Levels<'_> {
        let Client { connection, peer } = &self.client;
        [
            (of(connection), bounds.connection),
            (of(peer), bounds.peer),
            (of(&self.open.all), bounds.whole),
        ]
    }

    /// Waits in turn until each level has room for so much; it is to be held before the turns end.
    async fn room<'a>(&'a self, levels: Levels<'a>, amount: usize) -> Vec<Turn<'a>> {
        let mut turns = Vec::new();
        if levels.iter().all(|(level, most)| level.is_free(amount, *most)) {
            return turns;
        }
        for (scope, (level, most)) in levels.into_iter().enumerate() {
            turns.push(level.turn().await);
            let mut looks = tokio::time::interval(LOOK);
            while !level.has_room(amount, most) {
                tokio::select! {
                    () = level.changed() => {}
                    _ = looks.tick() => self.make_room(scope),
                }
            }
        }
        turns
    }

    /// Ends a connection that holds what is waited for, at one of the [`Levels`]; of this one the time without a byte
    /// taken is bounded.
    fn make_room(&self, scope: usize) {
        match scope {
            0 => {}
            1 => drop(self.open.end_silent(Some(&self.client.peer))),
            _ => drop(self.open.end_silent(None)),
        }
    }
}

/// What a connection, its address and the tier hold, and may.
type Levels<'a> = [(&'a Level, usize); 3];

/// A request for whose sake its connection stays, until it is dropped.
#[derive(Debug)]
pub struct Begun(Arc<Connection>);

impl Drop for Begun {
    fn drop(&mut self) {
        let now_ns = self.0.open.clock.now_ns();
        self.0.idle_since_ns.store(now_ns, Ordering::Relaxed);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request, until its answer was taken.
#[derive(Debug)]
struct Asked {
    connection: Arc<Connection>,
    /// Bytes that it holds, and those of parts that were not taken.
    held: AtomicUsize,
    unread: AtomicUsize,
    _begun: Option<Begun>,
}

impl Asked {
    fn new(connection: &Arc<Connection>, begun: Option<Begun>) -> Arc<Self> {
        for (level, _) in connection.requests() {
            level.hold(1);
        }
        connection.open.end_largest();
        let (held, unread) = Default::default();
        Arc::new(Self { connection: Arc::clone(connection), held, unread, _begun: begun })
    }

    fn hold(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.held.fetch_add(bytes, Ordering::Relaxed);
        for (level, _) in self.connection.answers() {
            level.hold(bytes);
        }
    }

    fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        for (level, _) in self.connection.answers() {
            level.release(bytes);
        }
    }

    async fn take(&self, bytes: usize) {
        let turns = self.connection.room(self.connection.answers(), bytes).await;
        self.hold(bytes);
        drop(turns);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let held = *self.held.get_mut();
        self.release(held);
        for (level, _) in self.connection.requests() {
            level.release(1);
        }
    }
}

/// The room that a request's answer has.
#[derive(Debug, Clone, Default)]
pub struct Room(Option<Arc<Asked>>);

impl Room {
    /// That of a request which comes on a connection, and counts as one until this and all parts are dropped.
    pub fn on(connection: &Arc<Connection>, begun: Option<Begun>) -> Self {
        Self(Some(Asked::new(connection, begun)))
    }

    /// A part of its answer.
    #[must_use]
    pub fn part(&self, bytes: Bytes) -> Part {
        Part::new(bytes, self.0.as_ref())
    }

    /// That of the request with these extensions.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Waits until there is room for so many bytes of the answer, and holds them until it is taken. With none, waits
    /// until no bound is reached.
    pub async fn take(&self, bytes: usize) {
        if let Some(asked) = &self.0 {
            asked.take(bytes).await;
        }
    }

    /// As long as it is there, the client is waited for: for the rest of its request.
    #[must_use]
    pub fn wait(&self) -> Option<Awaited> {
        self.0.as_ref().map(|asked| Awaited::new(asked, Wanted::Client))
    }

    /// The same of a part that may take as long as it likes.
    pub(super) fn read(&self) -> Option<Awaited> {
        self.0.as_ref().map(|asked| Awaited::new(asked, Wanted::Body))
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    /// Something that the client can do at once.
    Client,
    /// More of a request, whenever it comes.
    Body,
}

/// Something that the client is waited for.
#[derive(Debug)]
pub struct Awaited(Arc<Asked>, Wanted);

impl Awaited {
    fn new(asked: &Arc<Asked>, wanted: Wanted) -> Self {
        let awaited = Self(Arc::clone(asked), wanted);
        awaited.count().fetch_add(1, Ordering::SeqCst);
        asked.connection.needed.notify_one();
        awaited
    }

    fn count(&self) -> &AtomicUsize {
        match self.1 {
            Wanted::Client => &self.0.connection.waits,
            Wanted::Body => &self.0.connection.bodies,
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.count().fetch_sub(1, Ordering::SeqCst);
    }
}

/// A part of an answer, until the kernel has it.
#[derive(Debug)]
pub struct Part {
    bytes: Bytes,
    length: usize,
    /// Bytes that it holds beyond what was taken for the answer.
    beyond: usize,
    waits: Option<Awaited>,
}

impl Part {
    fn new(bytes: Bytes, asked: Option<&Arc<Asked>>) -> Self {
        let (length, mut beyond) = (bytes.len(), 0);
        if let Some(asked) = asked {
            let unread = asked.unread.fetch_add(length, Ordering::Relaxed) + length;
            beyond = unread.saturating_sub(asked.held.load(Ordering::Relaxed));
            asked.hold(beyond);
        }
        let waits = asked.map(|asked| Awaited::new(asked, Wanted::Client));
        Self { bytes, length, beyond, waits }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(Awaited(asked, _)) = &self.waits {
            asked.unread.fetch_sub(self.length, Ordering::Relaxed);
            asked.release(self.beyond);
        }
    }
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(Awaited(asked, _)) = &self.waits {
            asked.connection.taken.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

    use super::*;
    use crate::ManualClock;

    const BOUNDS: Bounds = Bounds { whole: 12, peer: 8, connection: 4 };

    /// What clients do, one after the other.
    #[derive(Debug, Clone)]
    enum Step {
        /// One of them asks for so many bytes.
        Ask(usize, usize),
        /// An answer is taken.
        Take(usize),
        /// The client gives a request up.
        GiveUp(usize),
        /// So many milliseconds pass.
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (0..PEERS.len(), 1..4_usize).prop_map(|(client, bytes)| Step::Ask(client, bytes)),
            3 => any::<usize>().prop_map(Step::Take),
            1 => any::<usize>().prop_map(Step::GiveUp),
            2 => (1..900_u64).prop_map(Step::Wait),
        ]
    }

    /// The addresses of six connections.
    const PEERS: [usize; 6] = [0, 0, 0, 1, 1, 2];

    struct Request {
        client: usize,
        bytes: usize,
        waiting: Option<Pin<Box<dyn Future<Output = ()>>>>,
        /// When it is answered.
        part: Option<Part>,
        asked: Arc<Asked>,
    }

    struct Model {
        open: Arc<Open>,
        clock: ManualClock,
        peers: [Arc<Account>; 3],
        connections: Vec<Arc<Connection>>,
        requests: Vec<Request>,
        /// Since when each connection has an answer that is not taken.
        since: [Option<u64>; PEERS.len()],
        now: u64,
    }

    impl Model {
        fn new() -> Self {
            let clock = ManualClock::default();
            let open = Open { clock: Clock::manual(&clock), ..Open::new(BOUNDS, Bounds::of(1000)) };
            let (open, peers) = (Arc::new(open), <[Arc<Account>; 3]>::default());
            let connections = PEERS.map(|peer| add(&open, &peers[peer])).to_vec();
            let (requests, since) = (Vec::new(), [None; PEERS.len()]);
            Self { open, clock, peers, connections, requests, since, now: 0 }
        }

        fn ask(&mut self, client: usize, bytes: usize) {
            let connection = &self.connections[client];
            let asked = Asked::new(connection, Some(connection.begin()));
            let waits = Arc::clone(&asked);
            let waiting: Pin<Box<dyn Future<Output = ()>>> =
                Box::pin(async move { waits.take(bytes).await });
            let (waiting, part) = (Some(waiting), None);
            self.requests.push(Request { client, bytes, waiting, part, asked });
        }

        /// Goes on until nothing moves.
        fn run(&mut self) {
            let mut moves = true;
            while moves {
                moves = false;
                for request in &mut self.requests {
                    let mut context = Context::from_waker(Waker::noop());
                    let Some(waiting) = &mut request.waiting else { continue };
                    if waiting.as_mut().poll(&mut context) == Poll::Pending {
                        continue;
                    }
                    request.waiting = None;
                    let content = Bytes::from(vec![0; request.bytes]);
                    request.part = Some(Part::new(content, Some(&request.asked)));
                    self.since[request.client].get_or_insert(self.now);
                    moves = true;
                }
                for client in 0..PEERS.len() {
                    moves |= self.end(client);
                }
            }
        }

        /// Sees to the end of a connection that made room, and connects anew.
        fn end(&mut self, client: usize) -> bool {
            if !self.connections[client].ending.load(Ordering::Relaxed) {
                return false;
            }
            let silent_ns = self.now - self.since[client].expect("it takes something");
            assert!(silent_ns >= PATIENCE_NS, "ended after {silent_ns} ns");
            self.requests.retain(|request| request.client != client);
            self.open.remove(&self.connections[client]);
            self.connections[client] = add(&self.open, &self.peers[PEERS[client]]);
            self.since[client] = None;
            true
        }

        /// What those who wait do every now and then.
        fn look(&self) {
            for request in self.requests.iter().filter(|request| request.waiting.is_some()) {
                let connection = &self.connections[request.client];
                connection.make_room(1);
                connection.make_room(2);
            }
        }

        fn remove(&mut self, index: usize) {
            let client = self.requests.swap_remove(index).client;
            let mut left = self.requests.iter().filter(|request| request.client == client);
            if left.all(|request| request.part.is_none()) {
                self.since[client] = None;
                // As a look at this moment finds it.
                self.open.connections.lock().look(self.now);
            }
        }

        fn answered(&self) -> Vec<usize> {
            let answered = |index: &usize| self.requests[*index].part.is_some();
            (0..self.requests.len()).filter(answered).collect()
        }

        fn check(&self) {
            let held = |of: &dyn Fn(usize) -> bool| -> usize {
                let own = self.requests.iter().filter(|one| one.part.is_some() && of(one.client));
                own.map(|one| one.bytes).sum()
            };
            assert_eq!(self.open.all.answers.held(), held(&|_| true));
            assert!(self.open.all.answers.held() <= BOUNDS.whole);
            for (index, peer) in self.peers.iter().enumerate() {
                assert_eq!(peer.answers.held(), held(&|client| PEERS[client] == index));
                assert!(peer.answers.held() <= BOUNDS.peer);
            }
            for (index, connection) in self.connections.iter().enumerate() {
                let own = connection.client.connection.answers.held();
                assert_eq!(own, held(&|client| client == index));
                assert!(own <= BOUNDS.connection);
                assert_eq!(connection.waits(), own > 0);
            }
        }
    }

    fn add(open: &Arc<Open>, peer: &Arc<Account>) -> Arc<Connection> {
        open.add(Client { connection: Arc::default(), peer: Arc::clone(peer) })
    }

    proptest! {
        /// Whatever is asked for, taken and left: the bounds hold, a connection ends only after a second in which its
        /// client took nothing, and in the end everything that was asked for is answered.
        #[test]
        fn answers_that_are_not_taken_stay_within_bounds(
            steps in proptest::collection::vec(step(), 1..120),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime = runtime.unwrap();
            let _inside = runtime.enter();
            let mut model = Model::new();
            for step in steps {
                let answered = model.answered();
                match step {
                    Step::Ask(client, bytes) => model.ask(client, bytes),
                    Step::Take(which) if !answered.is_empty() => {
                        let index = answered[which % answered.len()];
                        let part = model.requests[index].part.as_mut().unwrap();
                        part.advance(part.remaining());
                        model.remove(index);
                    }
                    Step::GiveUp(which) if !model.requests.is_empty() => {
                        model.remove(which % model.requests.len());
                    }
                    Step::Wait(ms) => {
                        model.now += ms * 1_000_000;
                        model.clock.advance(ms * 1_000_000);
                        model.look();
                    }
                    Step::Take(_) | Step::GiveUp(_) => {}
                }
                model.run();
                model.check();
            }
            while !model.requests.is_empty() {
                let answered = model.answered();
                prop_assert!(!answered.is_empty(), "what is left waits for nothing");
                for index in answered.into_iter().rev() {
                    model.remove(index);
                }
                model.run();
                model.check();
            }
        }
    }

    /// A connection is read in its turn, or when requests that have begun need it; and its address has a bound of its own.
    #[test]
    fn requests_begin_in_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.unwrap();
        let _inside = runtime.enter();
        let open = Arc::new(Open::new(BOUNDS, Bounds::of(4)));
        let peers = <[Arc<Account>; 2]>::default();
        let mut context = Context::from_waker(Waker::noop());
        let connection = |peer: usize| add(&open, &peers[peer]);
        let [one, two, other] = [connection(0), connection(0), connection(1)];
        let begin = |connection| Asked::new(connection, None);
        let mut begun = vec![begin(&one), begin(&one), begin(&two)];
        assert!(!two.may_begin(1) && other.may_begin(1) && !other.may_begin(2));
        let mut turn = Box::pin(Arc::clone(&two).next_turn());
        assert!(turn.as_mut().poll(&mut context).is_pending());
        let awaited = Awaited::new(&begun[2], Wanted::Body);
        assert!(two.is_needed() && turn.as_mut().poll(&mut context) == Poll::Ready(false));
        drop(awaited);
        let mut turn = Box::pin(Arc::clone(&two).next_turn());
        assert!(!two.is_needed() && turn.as_mut().poll(&mut context).is_pending());
        begun.remove(0);
        assert!(!one.may_begin(1), "it has no turn before those who wait");
        assert!(turn.as_mut().poll(&mut context) == Poll::Ready(true));
        drop(turn);
        assert!(one.may_begin(1));
        // Half begun for ever: twice the bound, and no more.
        begun.extend((0..8).map(|_| begin(&two)));
        assert!(two.ending.load(Ordering::Relaxed) && !one.ending.load(Ordering::Relaxed));
    }
}
