//! The Redis driver: commands with keys and values, pipelines, redirects of a cluster.
//!
//! A request is a pipeline of one command or more, sent together; its response time ends with the
//! last reply. In a cluster, the commands of a pipeline that lie on another node, and those that a
//! node redirects, follow in further round trips of the same request.

mod cluster;
mod command;
#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/inside/redis.rs"]
pub(crate) mod fuzzing;
mod prepare;
mod reply;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use cluster::Slots;
pub use command::{RedisCommand, RedisPlanError};
pub use prepare::{PrefillError, PrepareError, prefill, prepare};

use crate::driver::{Driver, ErrorKind, Progress, Reply};
use crate::http::{Part, Values};
use crate::keyspace::Keyspace;
use crate::random::Random;
use crate::refusals::Said;
use crate::tls::Secure;
use crate::weighted::Weighted;
use command::{KEY, VALUE, write_head};
use kendall_protocols::load_result::LoadResult;
use reply::{Meaning, ReplyReader};

/// Redirects that one command follows.
const MOST_REDIRECTS: u8 = 5;

#[derive(Debug, Clone)]
pub struct RedisPlan {
    pub commands: Vec<(RedisCommand, f64)>,
    /// Commands of each request.
    pub pipeline: usize,
    /// Share of retrievals that ask for keys that were never stored.
    pub expected_misses: f64,
    /// What stands for the placeholders beside `{key}` and `{value}`, in the order of their names.
    pub values: Vec<Values>,
    pub access: RedisAccess,
}

/// How a server lets the load in.
#[derive(Debug, Clone, Default)]
pub struct RedisAccess {
    pub user: Option<String>,
    pub password: Option<String>,
    /// Number of the database.
    pub database: u32,
    /// TLS, where the server wants it.
    pub secure: Option<Secure>,
}

impl RedisAccess {
    /// What is sent first on each connection, and how many replies come to it.
    fn greeting(&self) -> (Vec<u8>, usize) {
        let (mut out, mut replies) = (Vec::new(), 0);
        let mut say = |words: &[&str]| {
            replies += 1;
            write_head(b'*', words.len(), &mut out);
            for word in words {
                command::write_argument(word.as_bytes(), &mut out);
            }
        };
        match (&self.user, &self.password) {
            (Some(user), password) => say(&["AUTH", user, password.as_deref().unwrap_or("")]),
            (None, Some(password)) => say(&["AUTH", password]),
            (None, None) => {}
        }
        if self.database > 0 {
            say(&["SELECT", &self.database.to_string()]);
        }
        (out, replies)
    }
}

/// What the drivers of a load share.
#[derive(Debug)]
pub struct RedisLoad {
    plan: RedisPlan,
    keyspace: Arc<Keyspace>,
    slots: Slots,
    said: Said,
    /// The next key to store, where every key is stored once and none drawn.
    next_key: Option<AtomicU64>,
}

impl RedisLoad {
    /// A load that draws its keys; `slots` as [`prepare()`] found them.
    pub fn new(plan: RedisPlan, keyspace: Keyspace, slots: Slots) -> Self {
        Self { plan, keyspace: Arc::new(keyspace), slots, said: Said::default(), next_key: None }
    }

    /// Adds to a result what the servers said when they refused.
    pub fn tell(&self, result: &mut LoadResult) {
        self.said.tell(result);
    }

    /// Names of the operations. What a pipeline of several holds is drawn command by command.
    fn operations(&self) -> Vec<String> {
        if self.plan.pipeline > 1 {
            return vec!["pipeline".to_owned()];
        }
        let mut names: Vec<String> = Vec::new();
        for (command, _) in &self.plan.commands {
            let same = |name: &&String| name.split(' ').next() == Some(command.name.as_str());
            let before = names.iter().filter(same).count();
            names.push(match before {
                0 => command.name.clone(),
                _ => format!("{} {}", command.name, before + 1),
            });
        }
        names
    }
}

/// The Redis driver of one thread.
#[derive(Debug)]
pub struct Redis<'a> {
    load: &'a RedisLoad,
    mix: Weighted,
    random: Random,
    slots: Slots,
    greeting: (Vec<u8>, usize),
    names: Vec<String>,
    /// By operation: whether it was refused before.
    told: Vec<bool>,
    argument: Vec<u8>,
}

/// The request that a connection has in flight.
#[derive(Debug, Default)]
pub struct RedisPending {
    /// All commands of the request as bytes.
    bytes: Vec<u8>,
    commands: Vec<Sent>,
    operation: usize,
    /// Where the present part went, the commands that it has, and how many of them are answered.
    place: Place,
    part: Vec<usize>,
    answered: usize,
    /// Replies that come before: to the greeting, and to `ASKING`.
    before: usize,
    asking_answered: bool,
    reader: ReplyReader,
    hits: u32,
    misses: u32,
    /// Redirects since the last part.
    moved: u32,
    asked: u32,
    error: Option<ErrorKind>,
}

/// One command of a request.
#[derive(Debug)]
struct Sent {
    from: usize,
    to: usize,
    retrieves: bool,
    place: Place,
    redirects: u8,
    done: bool,
}

/// A node, or the target of the connection; with `ASKING` or without.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    node: Option<SocketAddr>,
    asking: bool,
}

impl<'a> Redis<'a> {
    /// A driver that draws from `random`.
    pub fn new(load: &'a RedisLoad, random: Random) -> Self {
        let names = load.operations();
        Self {
            mix: Weighted::new(load.plan.commands.iter().map(|(_, weight)| *weight)),
            random,
            slots: load.slots.clone(),
            greeting: load.plan.access.greeting(),
            told: vec![false; names.len()],
            names,
            argument: Vec::new(),
            load,
        }
    }

    fn draw_key(&mut self, retrieves: bool) -> u64 {
        if let Some(next) = &self.load.next_key {
            return next.fetch_add(1, Ordering::Relaxed) % self.load.keyspace.keys();
        }
        let misses = if retrieves { self.load.plan.expected_misses } else { 0.0 };
        self.load.keyspace.choose_or_miss(misses, &mut self.random)
    }

    fn write_command(&mut self, number: usize, pending: &mut RedisPending) {
        let load = self.load;
        let command = &load.plan.commands[number].0;
        let key = self.draw_key(command.retrieves);
        let from = pending.bytes.len();
        let mut node = None;
        write_head(b'*', command.arguments.len(), &mut pending.bytes);
        for (place, parts) in command.arguments.iter().enumerate() {
            self.argument.clear();
            for part in parts {
                match part {
                    Part::Literal(bytes) => self.argument.extend_from_slice(bytes),
                    Part::Placeholder(KEY) => load.keyspace.write_key(key, &mut self.argument),
                    Part::Placeholder(VALUE) => load.keyspace.write_value(key, &mut self.argument),
                    Part::Placeholder(at) => {
                        let values = &load.plan.values[at - VALUE - 1];
                        values.write(&mut self.random, &mut self.argument);
                    }
                }
            }
            if place == command.key_at {
                node = self.slots.node_of(&self.argument);
            }
            command::write_argument(&self.argument, &mut pending.bytes);
        }
        pending.commands.push(Sent {
            from,
            to: pending.bytes.len(),
            retrieves: command.retrieves,
            place: Place { node, asking: false },
            redirects: 0,
            done: false,
        });
    }

    /// The commands that are left and go to the same place as the first of them.
    fn write_part(pending: &mut RedisPending, out: &mut Vec<u8>) {
        let left = || pending.commands.iter().enumerate().filter(|(_, command)| !command.done);
        let place = left().next().map_or_else(Place::default, |(_, command)| command.place);
        pending.part.clear();
        for (index, command) in left().filter(|(_, command)| command.place == place) {
            if place.asking {
                out.extend_from_slice(b"*1\r\n$6\r\nASKING\r\n");
            }
            out.extend_from_slice(&pending.bytes[command.from..command.to]);
            pending.part.push(index);
        }
        pending.place = place;
        pending.answered = 0;
        pending.before = 0;
        pending.asking_answered = false;
    }

    /// The reply to one command: done with it, or a redirect to follow.
    fn take(&mut self, pending: &mut RedisPending, meaning: Meaning) {
        let command = &mut pending.commands[pending.part[pending.answered]];
        pending.answered += 1;
        let (node, asking) = match meaning {
            Meaning::Answer { found, missing } => {
                command.done = true;
                if command.retrieves {
                    pending.hits = pending.hits.saturating_add(found);
                    pending.misses = pending.misses.saturating_add(missing);
                }
                return;
            }
            Meaning::Error(kind) => {
                command.done = true;
                self.refused(pending, kind);
                return;
            }
            Meaning::Moved { slot, node } => {
                pending.moved += 1;
                (node.filter(|node| self.slots.learn(slot, *node)), false)
            }
            Meaning::Ask { node } => {
                pending.asked += 1;
                (node, true)
            }
        };
        command.redirects += 1;
        if node.is_none() || command.redirects > MOST_REDIRECTS {
            command.done = true;
            self.refused(pending, ErrorKind::Redirected);
        } else {
            command.place = Place { node, asking };
        }
    }

    /// The first error of a request is the one that it counts as.
    fn refused(&mut self, pending: &mut RedisPending, kind: ErrorKind) {
        pending.error.get_or_insert(kind);
        if !std::mem::replace(&mut self.told[pending.operation], true) {
            let text = String::from_utf8_lossy(pending.reader.error_line());
            self.load.said.note(&self.names[pending.operation], &text);
        }
    }

    /// All commands of the part are answered.
    fn end_of_part(pending: &mut RedisPending) -> Reply {
        let onward = pending.commands.iter().any(|command| !command.done);
        let (moved, asked) = (pending.moved, pending.asked);
        (pending.moved, pending.asked) = (0, 0);
        let reply = Reply { onward, moved, asked, ..Reply::default() };
        if onward {
            return reply;
        }
        Reply { hits: pending.hits, misses: pending.misses, error: pending.error, ..reply }
    }
}

impl Driver for Redis<'_> {
    type Pending = RedisPending;

    fn operations(&self) -> Vec<String> {
        self.names.clone()
    }

    fn write(&mut self, pending: &mut RedisPending, out: &mut Vec<u8>) -> usize {
        pending.bytes.clear();
        pending.commands.clear();
        (pending.hits, pending.misses, pending.error) = (0, 0, None);
        (pending.moved, pending.asked) = (0, 0);
        pending.reader = ReplyReader::default();
        let mut number = 0;
        for _ in 0..self.load.plan.pipeline {
            number = self.mix.draw(&mut self.random);
            self.write_command(number, pending);
        }
        pending.operation = if self.load.plan.pipeline > 1 { 0 } else { number };
        Self::write_part(pending, out);
        pending.operation
    }

    fn node(&self, pending: &RedisPending) -> Option<SocketAddr> {
        pending.place.node
    }

    fn secure(&self) -> Option<&Secure> {
        self.load.plan.access.secure.as_ref()
    }

    fn greeting(&mut self, pending: &mut RedisPending) -> &[u8] {
        pending.before = self.greeting.1;
        &self.greeting.0
    }

    fn write_on(&mut self, pending: &mut RedisPending, out: &mut Vec<u8>) {
        Self::write_part(pending, out);
    }

    fn lost(&mut self, pending: &mut RedisPending) {
        if let Some(node) = pending.place.node {
            self.slots.forget(node);
        }
    }

    fn read(&mut self, pending: &mut RedisPending, input: &[u8]) -> Progress {
        let mut consumed = 0;
        loop {
            let (taken, meaning) = pending.reader.read(&input[consumed..]);
            consumed += taken;
            let broken = |kind| Progress { consumed, reply: Some(Reply::broken(kind)) };
            let Some(meaning) = meaning else { return Progress { consumed, reply: None } };
            let Ok(meaning) = meaning else { return broken(ErrorKind::Garbage) };
            if pending.before > 0 {
                pending.before -= 1;
                if let Meaning::Error(kind) = meaning {
                    self.refused(pending, kind);
                    return broken(kind);
                }
            } else if pending.place.asking && !pending.asking_answered {
                // Where the node does not know `ASKING`, its next reply will be a redirect.
                pending.asking_answered = true;
            } else {
                pending.asking_answered = false;
                self.take(pending, meaning);
                if pending.answered == pending.part.len() {
                    return Progress { consumed, reply: Some(Self::end_of_part(pending)) };
                }
            }
        }
    }
}
