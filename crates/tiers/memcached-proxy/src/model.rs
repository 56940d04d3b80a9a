//! The engine among clients and servers that do as they please: they cut their streams anywhere,
//! close, half-close, reset, pipeline, leave answers unread, stall, and break off.
//!
//! With company, some keys have a route to another pool, the main pool is filled from a warm one and has
//! a shadow, and other configurations come at any moment.
//!
//! All are sockets of this one thread, and the clock is the test's, so that a seed gives the same
//! order of events again. What is checked: a turn that has something to do comes closer to its end
//! (nothing spins), after the last client everything is at rest (nothing stalls, nothing leaks), and
//! what a client sent before it closed is stored.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use kendall_protocols::memcached::{Command, Limits, Parsed, Request, Store, keys, parse, tokens};
use kendall_tier::{Clock, Instruments, ManualClock};
use rustix::event::Timespec;
use rustix::net::sockopt::set_socket_linger;

use crate::conn::{Conn, ConnState};
use crate::engine::{Engine, Room, Shared};
use crate::listener::Listener;
use crate::options::{
    ANSWERS_ADMIT, BULK_AT_ONCE, Mode, Options, Placement, Pool, READ_BYTES, Route,
    Server as Address, Shadow, TURN_LARGE_BYTES, UNKNOWN_LEAST, WarmUp,
};
use crate::plan::Planner;
use crate::report;
use crate::socket;

mod oracle;

/// Turns that may have something to do and do nothing, one after the other: an event may be of a
/// socket that an earlier event of the same turn closed.
const BARREN: u32 = 3;
/// Turns after which everything is at rest, once clients and servers have done all they wanted.
const LAST_TURNS: u32 = 4000;
const LIMITS: Limits = Limits { value_bytes: 1 << 20, get_line_bytes: 1 << 20 };
const MILLISECOND: u64 = 1_000_000;

/// Chance with a seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 11).unwrap() % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// Reads what there is, at most `most` bytes. `None` at the end.
fn take(stream: &mut TcpStream, most: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; most];
    match stream.read(&mut bytes) {
        Ok(0) => None,
        Ok(count) => {
            bytes.truncate(count);
            Some(bytes)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(Vec::new()),
        Err(_) => None,
    }
}

/// Writes as much as fits, and returns how much; `None` when the other end is closed.
fn give(stream: &mut TcpStream, bytes: &[u8]) -> Option<usize> {
    match stream.write(bytes) {
        Ok(count) => Some(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

/// A memcached that answers when it likes to.
struct Server {
    listener: TcpListener,
    links: Vec<Link>,
    store: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    unique: u64,
}

struct Link {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// No reply is written in part.
    is_at_reply: bool,
}

impl Server {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let big = (vec![b'x'; 300_000], 1);
        let store = [(b"big".to_vec(), big), (b"k".to_vec(), (b"v".to_vec(), 2))].into();
        Self { listener, links: Vec::new(), store, unique: 2 }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).unwrap();
            // As memcached does: else the end of an answer may wait 40 ms for an acknowledgement.
            stream.set_nodelay(true).unwrap();
            self.links.push(Link {
                stream,
                input: Vec::new(),
                output: Vec::new(),
                is_at_reply: true,
            });
        }
    }

    /// Answers at most so many requests of one connection, and writes at most so many bytes.
    fn serve(&mut self, link: usize, requests: usize, bytes: usize) {
        let mut here = self.links.swap_remove(link);
        let Some(read) = take(&mut here.stream, bytes.max(1)) else { return };
        here.input.extend_from_slice(&read);
        for _ in 0..requests {
            let Parsed::Request(request) = parse(&here.input, &LIMITS) else { break };
            let rest = here.input.split_off(request.consumed);
            let asked = std::mem::replace(&mut here.input, rest);
            self.answer(&request, &asked, &mut here.output);
        }
        let most = here.output.len().min(bytes);
        let Some(written) = give(&mut here.stream, &here.output[..most]) else { return };
        here.output.drain(..written);
        here.is_at_reply = written == 0 && here.is_at_reply || here.output.is_empty();
        self.links.push(here);
    }

    fn answer(&mut self, request: &Request, bytes: &[u8], out: &mut Vec<u8>) {
        let key = request.key.of(bytes).to_vec();
        match request.command {
            Command::Get | Command::Gets => {
                for key in keys(request, bytes) {
                    let Some((value, unique)) = self.store.get(key) else { continue };
                    let key = String::from_utf8_lossy(key);
                    out.extend(format!("VALUE {key} 0 {}", value.len()).bytes());
                    if request.command == Command::Gets {
                        out.extend(format!(" {unique}").bytes());
                    }
                    out.extend(b"\r\n");
                    out.extend(value);
                    out.extend(b"\r\n");
                }
                out.extend(b"END\r\n");
            }
            Command::Store(store) => {
                let held = self.store.get(&key).map(|item| item.1);
                let wanted = request.unique.and_then(|unique| {
                    std::str::from_utf8(unique.of(bytes)).unwrap().parse::<u64>().ok()
                });
                out.extend_from_slice(match (store, held) {
                    (Store::Cas, None) => b"NOT_FOUND\r\n",
                    (Store::Cas, held) if held != wanted => b"EXISTS\r\n",
                    (Store::Add, Some(_)) => b"NOT_STORED\r\n",
                    _ => {
                        self.unique += 1;
                        let value = request.value.unwrap().of(bytes);
                        let value = value[..value.len() - 2].to_vec();
                        self.store.insert(key, (value, self.unique));
                        b"STORED\r\n"
                    }
                });
            }
            Command::Version => out.extend(b"VERSION model\r\n"),
            Command::MetaNoop => out.extend(b"MN\r\n"),
            Command::MetaGet => match self.store.get(&key) {
                Some((value, _)) if !request.quiet => {
                    let flags: String = flags(request, bytes).collect();
                    out.extend(format!("VA {}{flags}\r\n", value.len()).bytes());
                    out.extend(value);
                    out.extend(b"\r\n");
                }
                _ => out.extend(b"EN\r\n"),
            },
            Command::Delete if self.store.remove(&key).is_some() => out.extend(b"DELETED\r\n"),
            _ => out.extend(b"NOT_FOUND\r\n"),
        }
        if request.quiet {
            // The proxy's own mark follows as a request of its own.
            let line = out.len() - 4;
            out.truncate(line);
        }
    }
}

/// What a meta get asks for that its reply shows.
fn flags(request: &Request, bytes: &[u8]) -> impl Iterator<Item = String> {
    tokens(request.line.of(bytes)).skip(2).filter_map(|flag| match flag[0] {
        b'f' => Some(" f0".to_owned()),
        b't' => Some(" t-1".to_owned()),
        b'O' => Some(format!(" {}", String::from_utf8_lossy(flag))),
        b'k' => Some(format!(" k{}", String::from_utf8_lossy(request.key.of(bytes)))),
        _ => None,
    })
}

/// What a client does when it has sent everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    HalfClose,
    Close,
    Reset,
    Stay,
}

struct Actor {
    stream: TcpStream,
    script: Vec<u8>,
    sent: usize,
    ending: Ending,
    ended: bool,
    reads: bool,
    /// It asks for no answers.
    silent: bool,
    /// Keys that it stores, with the byte of its script at which the request ends.
    stores: Vec<(String, usize)>,
}

fn script(chance: &mut Chance, name: usize, silent: bool) -> (Vec<u8>, Vec<(String, usize)>) {
    let (mut script, mut stores) = (Vec::new(), Vec::new());
    let most = *[3, 30, 400].get(chance.below(3)).unwrap();
    for number in 0..1 + chance.below(most) {
        let key = format!("c{name}-{number}");
        let kind = if silent { 0 } else { chance.below(20) };
        match kind {
            0..=4 => {
                let value = "y".repeat(if chance.one_in(50) { 100_000 } else { chance.below(20) });
                let noreply = if silent || chance.one_in(2) { " noreply" } else { "" };
                script.extend(
                    format!("set {key} 0 0 {}{noreply}\r\n{value}\r\n", value.len()).bytes(),
                );
                stores.push((key, script.len()));
            }
            5 | 6 => script.extend(b"get k\r\n"),
            7 if chance.one_in(4) => script.extend(b"get big\r\n"),
            7 | 8 => script.extend(b"get k none k\r\n"),
            9 => script.extend(b"gets k\r\n"),
            10 => script.extend(b"cas k 0 0 1 7\r\nw\r\n"),
            11 => script.extend(b"incr none 1\r\n"),
            12 => script.extend(b"mn\r\n"),
            13 => script.extend(b"no such\r\n"),
            14 => script.extend(b"version\r\n"),
            15 => script.extend(format!("get warm{} k none\r\n", chance.below(40)).bytes()),
            16 => script.extend(format!("mg warm{} v\r\n", chance.below(40)).bytes()),
            17 => script.extend(format!("delete warm{}\r\n", chance.below(40)).bytes()),
            18 => script.extend(b"gat 0 k none warm1 warm2\r\n"),
            _ => script.extend(b"mg none q\r\n"),
        }
    }
    if chance.one_in(10) {
        script.extend(b"quit\r\nget k\r\n");
    }
    if chance.one_in(3) {
        script.truncate(chance.below(script.len() + 1));
    }
    (script, stores)
}

impl Actor {
    fn new(chance: &mut Chance, name: usize, proxy: SocketAddr) -> Self {
        let stream = TcpStream::connect(proxy).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        let silent = chance.one_in(4);
        let (script, stores) = script(chance, name, silent);
        let ending = [Ending::HalfClose, Ending::Close, Ending::Close, Ending::Reset, Ending::Stay]
            [chance.below(5)];
        let reads = !chance.one_in(3);
        Self { stream, script, sent: 0, ending, ended: false, reads, silent, stores }
    }

    /// Sends at most so many bytes; says whether it is to be dropped.
    fn send(&mut self, bytes: usize) -> bool {
        let most = (self.sent + bytes).min(self.script.len());
        match give(&mut self.stream, &self.script[self.sent..most]) {
            Some(count) => self.sent += count,
            None => return true,
        }
        if self.sent < self.script.len() || self.ended {
            return false;
        }
        self.ended = true;
        match self.ending {
            Ending::HalfClose => {
                self.stream.shutdown(std::net::Shutdown::Write).unwrap_or_default();
                false
            }
            Ending::Close => true,
            Ending::Reset => {
                set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
                true
            }
            Ending::Stay => false,
        }
    }
}

struct World {
    chance: Chance,
    clock: ManualClock,
    engine: Engine,
    instruments: Instruments,
    planner: Planner,
    /// Servers of the main pool; with other pools, their servers follow.
    count: usize,
    company: bool,
    plain: Options,
    room: Room,
    proxy: SocketAddr,
    servers: Vec<Server>,
    actors: Vec<Actor>,
    /// Keys that must be stored in the end.
    promised: Vec<String>,
    faults: bool,
    barren: u32,
    born: usize,
    /// What happened, to be printed on a failure.
    story: String,
}

impl World {
    fn new(seed: u64, mode: Mode, (count, company): (usize, bool), placement: Placement) -> Self {
        let others = if company { 3 } else { 0 };
        let mut servers: Vec<Server> = (0..count + others).map(|_| Server::new()).collect();
        if company {
            let item = |number: i32| (format!("warm{number}").into_bytes(), (vec![b'w'; 100], 1));
            servers[count + 1].store.extend((0..20).map(item));
        }
        let clock = ManualClock::default();
        clock.advance(MILLISECOND);
        let (listener, proxy) = socket::listener("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut chance = Chance(seed);
        let addresses = servers[..count].iter().map(|server| Address::from(server.address()));
        let main = Pool {
            placement,
            shard_multigets: chance.one_in(2),
            ..Pool::new("main", addresses.collect())
        };
        let options = Options {
            mode,
            queue_length: if chance.one_in(4) { 3 } else { 1000 },
            pools: vec![main],
            ..Options::new(proxy, Vec::new())
        };
        let instruments = Instruments::new(report::layout(), Clock::manual(&clock));
        // Requests that the queue refuses are not carried out, and say so.
        let faults = chance.one_in(2) || options.queue_length == 3;
        let planner = Planner::new(options.clone(), instruments.clone()).unwrap();
        let shared = Shared {
            clock: Clock::manual(&clock),
            listeners: vec![Listener { socket: Arc::new(listener), tls: None }],
            plan: planner.plan(),
        };
        let engine = Engine::new(0, &shared, instruments.recorder()).unwrap();
        let story =
            format!("seed {seed}, {mode:?}, {count} servers, {placement:?}, company: {company}\n");
        let (actors, promised) = (Vec::new(), Vec::new());
        let (room, barren, born) = (Room::new(), 0, 0);
        Self {
            chance,
            clock,
            engine,
            instruments,
            planner,
            count,
            company,
            plain: options,
            room,
            proxy,
            servers,
            actors,
            promised,
            faults,
            barren,
            born,
            story,
        }
    }

    /// One turn of the engine, which comes closer to an end if it has something to do.
    fn turn(&mut self) {
        let before = self.engine.tools.progress;
        let had_work = self.engine.has_work_later();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let events = self.engine.turn(&mut self.room, Some(&at_once)).unwrap();
        let idles = self.engine.tools.progress == before && (events > 0 || had_work);
        self.barren = if idles { self.barren + 1 } else { 0 };
        assert!(self.barren < BARREN, "the engine spins: {}", self.story);
    }

    fn act(&mut self) {
        match self.chance.below(20) {
            0 if self.actors.len() < 12 => {
                self.born += 1;
                let actor = Actor::new(&mut self.chance, self.born, self.proxy);
                self.actors.push(actor);
            }
            1..=6 if !self.actors.is_empty() => {
                let index = self.chance.below(self.actors.len());
                let bytes = [1, 20, 500, 50_000][self.chance.below(4)];
                self.send(index, bytes);
            }
            7..=9 if !self.actors.is_empty() => {
                let index = self.chance.below(self.actors.len());
                let bytes = [10, 1000, 100_000][self.chance.below(3)];
                let actor = &mut self.actors[index];
                if actor.reads && take(&mut actor.stream, bytes).is_none() {
                    self.bury(index);
                }
            }
            10..=14 => {
                let server = self.chance.below(self.servers.len());
                self.servers[server].accept();
                let links = self.servers[server].links.len();
                if links > 0 {
                    let link = self.chance.below(links);
                    let requests = self.chance.below(6);
                    let bytes = [1, 30, 5000, 1 << 20][self.chance.below(4)];
                    self.servers[server].serve(link, requests, bytes);
                }
            }
            15 if self.faults && self.chance.one_in(8) => self.fault(),
            17 if self.company && self.chance.one_in(4) => {
                let choice = self.chance.below(32);
                self.reload(choice);
            }
            16 => self.clock.advance(MILLISECOND * (1 + self.chance.next() % 40)),
            _ => {}
        }
    }

    /// Another configuration comes: each bit of the choice is one difference.
    fn reload(&mut self, choice: usize) {
        let has = |bit: usize| choice & (1 << bit) != 0;
        let behind = |place: usize| vec![Address::from(self.servers[place].address())];
        let mut options = self.plain.clone();
        let main = &mut options.pools[0];
        if !self.faults {
            main.timeout = Duration::from_secs(1000);
        }
        // Its connections are made anew.
        main.eject_after += u32::from(has(3));
        if has(4) && self.count > 1 {
            main.servers.pop();
        }
        if has(1) {
            main.warm_up = Some(WarmUp { from: "warm".into(), longest: None });
        }
        if has(2) {
            main.shadow = Some(Shadow { pool: "shadow".into(), millionths: 500_000 });
        }
        let others = [("routed", 0), ("warm", 1), ("shadow", 2)];
        for (name, bit) in others.into_iter().filter(|(_, bit)| has(*bit)) {
            let pool = Pool::new(name, behind(self.count + bit));
            options.pools.push(Pool { timeout: Duration::from_secs(1000), ..pool });
        }
        if has(0) {
            for prefix in ["c1", "n", "warm1"] {
                options.routes.push(Route { prefix: prefix.into(), pool: "routed".into() });
            }
        }
        let plan = self.planner.follow(options).unwrap();
        self.engine.adopt(plan);
        self.story.push_str(&format!("reload {choice}\n"));
    }

    /// A server breaks a connection off, or sends noise.
    fn fault(&mut self) {
        let server = self.chance.below(self.servers.len());
        let links = self.servers[server].links.len();
        if links == 0 {
            return;
        }
        let link = self.chance.below(links);
        match self.chance.below(3) {
            0 => {
                give(&mut self.servers[server].links[link].stream, b"noise\r\n");
            }
            1 => {
                let broken = self.servers[server].links.swap_remove(link);
                set_socket_linger(&broken.stream, Some(Duration::ZERO)).unwrap();
            }
            _ => drop(self.servers[server].links.swap_remove(link)),
        }
    }

    fn send(&mut self, index: usize, bytes: usize) {
        if self.actors[index].send(bytes) {
            self.bury(index);
        }
    }

    /// A client is gone; what it sent in good order is to be stored.
    fn bury(&mut self, index: usize) {
        let actor = self.actors.swap_remove(index);
        let quits = find(&actor.script, b"quit\r\n").unwrap_or(usize::MAX);
        // A system throws away what is on its way when a process closes a socket with answers that
        // were not read.
        let arrived = actor.ending != Ending::Close || actor.silent;
        if actor.ending != Ending::Reset && arrived && !self.faults {
            let kept = actor.stores.iter().filter(|(_, end)| *end <= actor.sent && *end <= quits);
            self.promised.extend(kept.map(|(key, _)| key.clone()));
        }
    }

    /// A turn of the engine, and one of the servers, which give each connection its share.
    fn serve_a_turn(&mut self) {
        for server in &mut self.servers {
            server.accept();
            for link in (0..server.links.len()).rev() {
                server.serve(link, 20, 256 << 10);
            }
        }
        self.turn();
    }

    /// Turns until nothing moves, and no server owes an answer.
    fn serve_until_quiet(&mut self) {
        let (mut quiet, mut slept) = (0, 0);
        while quiet < 5 {
            let before = self.engine.tools.progress;
            self.serve_a_turn();
            let moved = self.engine.tools.progress > before;
            let is_owed = self.engine.pools.in_flight() > 0;
            quiet = if moved || is_owed { 0 } else { quiet + 1 };
            if !moved && is_owed {
                // The system has not carried it over yet.
                std::thread::sleep(Duration::from_millis(1));
                slept += 1;
                assert!(slept < 60_000, "an answer does not come: {}", self.story);
            }
        }
    }

    /// Servers answer all, clients end: nothing may be left over.
    fn finish(&mut self) {
        for turn in 0.. {
            for index in (0..self.actors.len()).rev() {
                self.actors[index].reads = true;
                let (sent, ended) = (self.actors[index].sent, self.actors[index].ended);
                if !ended {
                    self.send(index, 100_000);
                    if self.actors.get(index).is_some_and(|a| a.sent == sent && !a.ended) {
                        // It waits for the proxy to take more.
                    } else {
                        continue;
                    }
                }
                let over = take(&mut self.actors[index].stream, 1 << 20).is_none();
                if over || (turn > 500 && self.actors[index].ending == Ending::Stay) {
                    self.bury(index);
                }
            }
            for server in &mut self.servers {
                server.accept();
                for link in (0..server.links.len()).rev() {
                    server.serve(link, 1000, 1 << 20);
                }
            }
            self.turn();
            self.clock.advance(10 * MILLISECOND);
            if self.actors.is_empty() && self.engine.is_at_rest() {
                return self.check();
            }
            assert!(turn < LAST_TURNS, "the engine stalls: {}{:?}", self.story, self.engine);
        }
    }

    fn check(&self) {
        for key in &self.promised {
            // Behind those of the main pool is the one to which some keys have a route; the last one has
            // copies.
            let asked = &self.servers[..self.count + usize::from(self.company)];
            let held = asked.iter().filter(|s| s.store.contains_key(key.as_bytes())).count();
            let wanted = match self.plain.pools[0].placement {
                // Which pool it was, and how many servers that had, changed with the configurations.
                _ if self.company => held.max(1),
                Placement::Replicate => self.count,
                Placement::Hash => 1,
            };
            assert_eq!(held, wanted, "{key} was sent and is not stored: {}", self.story);
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn live(seed: u64, mode: Mode, servers: (usize, bool), placement: Placement, steps: usize) {
    let mut world = World::new(seed, mode, servers, placement);
    if world.company {
        let choice = world.chance.below(32);
        world.reload(choice);
    }
    for _ in 0..steps {
        world.act();
        world.turn();
    }
    world.finish();
}

/// Seeds of one way to work; `KENDALL_SEEDS=FROM..TO` runs others.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("KENDALL_SEEDS") else { return 0..2 };
    let (from, to) = text.split_once("..").expect("KENDALL_SEEDS=FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

#[test]
fn what_a_client_sent_is_done_though_it_closes_before_its_answers_come() {
    for mode in [Mode::Workers(1), Mode::Pipelined { connections: 1 }] {
        let mut world = World::new(1, mode, (1, false), Placement::Replicate);
        world.faults = false;
        let mut actor = Actor::new(&mut Chance(1), 0, world.proxy);
        actor.stores = (0..20).map(|number| (format!("k{number}"), 0)).collect();
        let set = |(key, _): &(String, usize)| format!("set {key} 0 0 1\r\nv\r\n");
        actor.script = actor.stores.iter().map(set).collect::<String>().into_bytes();
        actor.ending = Ending::Stay;
        actor.send(usize::MAX / 2);
        while world.instruments.snapshot().bytes_in < actor.script.len() as u64 {
            world.turn();
        }
        // The first answer is on its way to a client that does not read it, and closes.
        while world.instruments.snapshot().bytes_out == 0 {
            world.servers[0].accept();
            if !world.servers[0].links.is_empty() {
                world.servers[0].serve(0, 1, 1 << 20);
            }
            world.turn();
        }
        actor.silent = true;
        world.actors.push(actor);
        world.bury(0);
        world.finish();
        assert_eq!(world.promised.len(), 20);
    }
}

/// A process that was frozen for longer than the timeout reads what its servers sent meanwhile before it takes them
/// for silent.
#[test]
fn a_server_is_not_silent_while_the_proxy_stands_still() {
    for mode in [Mode::Workers(1), Mode::Pipelined { connections: 1 }] {
        let mut world = World::new(1, mode, (1, false), Placement::Replicate);
        let mut client = TcpStream::connect(world.proxy).unwrap();
        client.set_nonblocking(true).unwrap();
        client.write_all(b"get k\r\n").unwrap();
        let has_answer = |conn: &Conn| {
            conn.state == ConnState::Open && !conn.queue.is_empty() && conn.has_news()
        };
        while !(0..9).filter_map(|conn| world.engine.pools[0].known_conn(conn)).any(has_answer) {
            world.turn();
            world.servers[0].accept();
            for link in (0..world.servers[0].links.len()).rev() {
                world.servers[0].serve(link, 1, 1 << 20);
            }
        }
        world.clock.advance(3000 * MILLISECOND);
        world.engine.tools.look();
        world.engine.pools.check(&mut world.engine.tools);
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n") {
            world.turn();
            answer.extend(take(&mut client, 1 << 20).unwrap());
        }
        assert_eq!(String::from_utf8_lossy(&answer), "VALUE k 0 1\r\nv\r\nEND\r\n", "{mode:?}");
    }
}

/// Twelve clients of one server that has a large value and a small one.
fn with_a_large_value(mode: Mode, bytes: usize) -> (World, Vec<TcpStream>) {
    let mut world = World::new(1, mode, (1, false), Placement::Replicate);
    world.servers[0].store.insert(b"large".to_vec(), (vec![b'x'; bytes], 3));
    world.servers[0].store.insert(b"small".to_vec(), (vec![b'x'; 1], 3));
    let connect = |_| TcpStream::connect(world.proxy).unwrap();
    let clients = (0..12).map(connect).collect();
    (world, clients)
}

/// All clients ask, and get so many bytes each: the most reads of so many large values that the server had at once.
fn most_at_once(
    world: &mut World,
    clients: &mut [TcpStream],
    (request, answer): (&str, usize),
    keys: usize,
) -> usize {
    for client in &mut *clients {
        client.set_nonblocking(true).unwrap();
        client.write_all(request.as_bytes()).unwrap();
    }
    let mut received = vec![0; clients.len()];
    let mut most = 0;
    for turn in 0.. {
        world.servers[0].accept();
        for link in (0..world.servers[0].links.len()).rev() {
            // It reads what it is asked for before it answers.
            world.servers[0].serve(link, 0, 256 << 10);
        }
        let asked = |link: &Link| {
            let values = link.input.windows(5).filter(|window| window == b"large").count();
            values.div_ceil(keys) + usize::from(!link.output.is_empty())
        };
        most = most.max(world.servers[0].links.iter().map(asked).sum());
        world.serve_a_turn();
        for (client, received) in clients.iter_mut().zip(&mut received) {
            *received += take(client, 1 << 20).unwrap().len();
        }
        if received.iter().all(|bytes| *bytes == answer) {
            break;
        }
        assert!(turn < LAST_TURNS, "{received:?} were received");
    }
    most
}

/// Reads of large values are sent one at a time: a server thread that sends one blocks its other connections.
#[test]
fn a_server_is_asked_for_one_large_value_at_a_time_and_for_all_in_the_end() {
    const LARGE: usize = 1_000_000;
    let answer = b"VALUE large 0 1000000\r\n".len() + LARGE + b"\r\nEND\r\n".len();
    for mode in [Mode::Workers(64), Mode::Pipelined { connections: 1 }] {
        let (mut world, mut clients) = with_a_large_value(mode, LARGE);
        // The first answer shows that those of this client are large.
        let mut most_asked =
            || most_at_once(&mut world, &mut clients, ("get large\r\n", answer), 1);
        most_asked();
        assert_eq!(most_asked(), 1, "{mode:?}");
    }
}

/// Small answers for one key are no estimate of the answer for five: the first such reads are few at a time.
#[test]
fn a_read_of_more_keys_than_before_may_be_large() {
    const LARGE: usize = 1_000_000;
    const KEYS: usize = 5;
    let gets = format!("get{}\r\n", " large".repeat(KEYS));
    let value = "VALUE large 0 1000000\r\n".len() + LARGE + 2;
    for mode in [Mode::Workers(64), Mode::Pipelined { connections: 1 }] {
        let (mut world, mut clients) = with_a_large_value(mode, LARGE);
        let rounds = [
            ("get small\r\n", "VALUE small 0 1\r\nx\r\nEND\r\n".len()),
            (gets.as_str(), KEYS * value + "END\r\n".len()),
        ];
        let most_asked = rounds.map(|round| most_at_once(&mut world, &mut clients, round, KEYS));
        // A mebibyte of first answers, of 64 KiB a key each, and one that is answered.
        let most = BULK_AT_ONCE / (KEYS * UNKNOWN_LEAST) + 1;
        let most_asked = most_asked.into_iter().max().unwrap();
        assert!(most_asked <= most, "{mode:?}: {most_asked} reads of {KEYS} values at once");
    }
}

/// However many clients have space for much at once, a turn writes a bounded part of it, and what is little
/// goes first.
#[test]
fn a_turn_writes_little_of_large_answers_and_small_ones_first() {
    const LARGE: usize = 1 << 20;
    for mode in [Mode::Workers(64), Mode::Pipelined { connections: 1 }] {
        let mut world = World::new(1, mode, (1, false), Placement::Replicate);
        world.servers[0].store.insert(b"large".to_vec(), (vec![b'x'; LARGE], 3));
        let mut hogs: Vec<TcpStream> =
            (0..20).map(|_| TcpStream::connect(world.proxy).unwrap()).collect();
        for hog in &mut hogs {
            hog.set_nonblocking(true).unwrap();
            hog.write_all(&b"get large\r\n".repeat(40)).unwrap();
        }
        world.serve_until_quiet();
        let kept = world.engine.clients.answer_bytes();
        assert!(kept > hogs.len() * TURN_LARGE_BYTES, "{mode:?}: only {kept} bytes wait");
        // All have space at once.
        for hog in &mut hogs {
            while !take(hog, 1 << 20).unwrap().is_empty() {}
        }
        let mut small = TcpStream::connect(world.proxy).unwrap();
        small.set_nonblocking(true).unwrap();
        small.write_all(b"get k\r\n").unwrap();
        let (mut answer, mut turns, mut written) = (Vec::new(), 0, 0);
        let most = (TURN_LARGE_BYTES + 1000) as u64;
        while !answer.ends_with(b"END\r\n") || written == 0 {
            let before = world.instruments.snapshot().bytes_out;
            world.serve_a_turn();
            written = world.instruments.snapshot().bytes_out - before;
            assert!(written <= most, "{mode:?}: {written} bytes were written in a turn");
            answer.extend(take(&mut small, 1000).unwrap());
            turns += 1;
            assert!(turns <= SMALL_GET_TURNS, "{mode:?}: {turns} turns");
        }
        // None holds more space than a value and what it may leave unread before the next one.
        for (_, client) in world.engine.clients.all() {
            assert!(
                client.out.room() <= LARGE + 2 * ANSWERS_ADMIT,
                "{mode:?}: {}",
                client.out.room()
            );
        }
        // Each has its share, and nothing is left behind.
        while world.engine.has_work_later() {
            world.turn();
        }
        for (number, hog) in hogs.iter_mut().enumerate() {
            assert!(!take(hog, 1 << 20).unwrap().is_empty(), "{mode:?}: {number} got nothing");
        }
    }
}

/// Turns after which a small get is answered, whatever others leave unread: three of its own, and
/// some in which the server's answer waits for the others' share of its turn.
const SMALL_GET_TURNS: u32 = 12;

/// Clients that pipeline large reads and read little of them, or nothing, cost others a bounded
/// number of turns, no worker, and a bounded number of bytes.
#[test]
fn clients_that_read_slowly_hold_nobody_up() {
    const LARGE: usize = 1 << 20;
    let pipelined = Mode::Pipelined { connections: 1 };
    let cases = [(Mode::Workers(64), 63), (Mode::Workers(4), 20), (pipelined, 20), (pipelined, 63)];
    for (mode, hogs) in cases {
        let mut world = World::new(1, mode, (1, false), Placement::Replicate);
        world.servers[0].store.insert(b"large".to_vec(), (vec![b'x'; LARGE], 3));
        let story = format!("{mode:?}, {hogs} hogs");
        // With fewer workers than such clients it waits its turn behind one read of each.
        let waits = match mode {
            Mode::Workers(workers) if workers < hogs => {
                hogs.div_ceil(workers) * u32::try_from(LARGE / READ_BYTES + 4).unwrap()
            }
            _ => 0,
        };
        let most_turns = SMALL_GET_TURNS + waits;
        let gets = b"get large\r\n".repeat(10);
        let mut hogs: Vec<TcpStream> =
            (0..hogs).map(|_| TcpStream::connect(world.proxy).unwrap()).collect();
        for hog in &mut hogs {
            hog.set_nonblocking(true).unwrap();
            hog.write_all(&gets).unwrap();
        }
        world.serve_until_quiet();
        let snapshot = world.instruments.snapshot();
        assert_eq!(snapshot.workers_busy.current, 0, "{story}: a worker is held");
        assert_eq!(snapshot.connections.current, hogs.len() as u64, "{story}");
        let most = hogs.len() * (LARGE + ANSWERS_ADMIT + 1000);
        assert!(world.engine.clients.answer_bytes() <= most, "{story}: too much is buffered");
        let mut small = TcpStream::connect(world.proxy).unwrap();
        small.set_nonblocking(true).unwrap();
        for round in 0..6 {
            for hog in &mut hogs {
                take(hog, 100_000).unwrap();
            }
            small.write_all(b"get k\r\n").unwrap();
            let mut answer = Vec::new();
            let mut turns = 0;
            while !answer.ends_with(b"END\r\n") {
                world.serve_a_turn();
                answer.extend(take(&mut small, 1000).unwrap());
                turns += 1;
                assert!(turns <= most_turns, "{story}, round {round}: {turns} turns");
            }
        }
        assert!(world.engine.clients.answer_bytes() <= most, "{story}: too much is buffered");
    }
}

#[test]
fn no_order_of_events_spins_stalls_or_loses_what_a_client_sent_before_it_closed() {
    let modes = [
        Mode::Workers(1),
        Mode::Workers(4),
        Mode::Pipelined { connections: 1 },
        Mode::Pipelined { connections: 2 },
    ];
    for seed in seeds() {
        for mode in modes {
            for (servers, placement) in
                [(1, Placement::Replicate), (2, Placement::Replicate), (3, Placement::Hash)]
            {
                live(seed, mode, (servers, false), placement, 1000);
            }
        }
    }
}

#[test]
fn no_configuration_that_comes_at_whatever_moment_spins_stalls_or_loses_a_request() {
    let modes = [Mode::Workers(2), Mode::Pipelined { connections: 1 }];
    for seed in seeds() {
        for mode in modes {
            for (servers, placement) in
                [(1, Placement::Replicate), (3, Placement::Replicate), (3, Placement::Hash)]
            {
                live(seed, mode, (servers, true), placement, 1500);
            }
        }
    }
}
