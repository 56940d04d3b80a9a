//! Servers that send lines too many or too few, other keys' values, noise and parts of replies, between
//! clients that pipeline, read slowly and leave. Every value and opaque names the key that it is of, so that
//! for each answer it is known whether it can be the right one: no client ever gets that of another request.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::{Chance, MILLISECOND, World, give, take};
use crate::options::{Mode, Placement};

const CLIENTS: usize = 5;
const KEYS: usize = 4;
/// Turns in which faults happen, and after whose end all clients get all answers.
const TURNS: usize = 1500;
const LAST_TURNS: usize = 4000;

/// What was asked, and decides which answers can be right.
#[derive(Debug, Clone)]
enum Asked {
    Get(Vec<String>),
    Gets(String),
    Set,
    Delete,
    Meta {
        key: String,
        /// Key and opaque, as far as the reply repeats them.
        shown: String,
    },
}

struct Client {
    stream: std::net::TcpStream,
    asked: VecDeque<Asked>,
    input: Vec<u8>,
    unsent: Vec<u8>,
}

/// The value of a key, which no other key has.
fn value(key: &str) -> String {
    format!("<{key}>").repeat(1 + key.len() % 3)
}

impl Client {
    fn new(world: &World) -> Self {
        let stream = std::net::TcpStream::connect(world.proxy).unwrap();
        stream.set_nonblocking(true).unwrap();
        Self { stream, asked: VecDeque::new(), input: Vec::new(), unsent: Vec::new() }
    }

    fn ask(&mut self, chance: &mut Chance, number: usize) {
        let mut key = || format!("c{number}-{}", chance.below(KEYS));
        let (first, second) = (key(), key());
        let (asked, text) = match chance.below(7) {
            0 => (Asked::Get(vec![first.clone()]), format!("get {first}\r\n")),
            1 => (
                Asked::Get(vec![first.clone(), second.clone()]),
                format!("get {first} {second}\r\n"),
            ),
            2 => (Asked::Gets(first.clone()), format!("gets {first}\r\n")),
            3 => {
                let value = value(&first);
                (Asked::Set, format!("set {first} 0 0 {}\r\n{value}\r\n", value.len()))
            }
            4 => (Asked::Delete, format!("delete {first}\r\n")),
            kind => {
                let shown = if chance.one_in(2) { format!(" k{first}") } else { String::new() };
                let opaque = format!(" O{first}-{}", chance.below(1000));
                let shown = if kind == 5 { shown } else { shown + &opaque };
                let flags = shown.replace(&format!(" k{first}"), " k");
                let text = format!("mg {first} v{flags}\r\n");
                (Asked::Meta { key: first, shown }, text)
            }
        };
        self.asked.push_back(asked);
        self.unsent.extend_from_slice(text.as_bytes());
    }

    /// Sends and reads a little; `false` when the connection is closed.
    fn turn(&mut self, bytes: usize, story: &str) -> bool {
        let most = self.unsent.len().min(bytes);
        let Some(sent) = give(&mut self.stream, &self.unsent[..most]) else { return false };
        self.unsent.drain(..sent);
        let Some(read) = take(&mut self.stream, bytes) else { return false };
        self.input.extend_from_slice(&read);
        while let Some(asked) = self.asked.front() {
            match answer(asked, &self.input) {
                Ok(Some(length)) => {
                    self.input.drain(..length);
                    self.asked.pop_front();
                }
                Ok(None) => return true,
                Err(why) => panic!(
                    "{why}: {asked:?} was answered {:?}: {story}",
                    String::from_utf8_lossy(&self.input)
                ),
            }
        }
        assert!(self.input.is_empty(), "{:?} was not asked for: {story}", self.input);
        true
    }
}

/// The line that bytes begin with, and its length.
fn line(bytes: &[u8]) -> Option<(&str, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((std::str::from_utf8(&bytes[..end]).unwrap_or("no text"), end + 2))
}

/// Bytes of a right answer that `bytes` begins with; none while it is not whole.
fn answer(asked: &Asked, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let Some((first, length)) = line(bytes) else { return Ok(None) };
    if first.starts_with("SERVER_ERROR ") {
        return Ok(Some(length));
    }
    match asked {
        Asked::Set => (first == "STORED").then_some(Some(length)).ok_or("no answer to a set"),
        Asked::Delete => matches!(first, "DELETED" | "NOT_FOUND")
            .then_some(Some(length))
            .ok_or("no answer to a delete"),
        Asked::Meta { key, shown } => {
            // An `ERROR` may be the server's own: older ones know no meta commands.
            if first == "EN" || first == format!("EN{shown}") || first == "ERROR" {
                return Ok(Some(length));
            }
            let value = value(key);
            if first != format!("VA {}{shown}", value.len()) {
                return Err("no answer to this mg");
            }
            of_value(&value, bytes, length)
        }
        Asked::Get(keys) => values(keys, false, bytes),
        Asked::Gets(key) => values(std::slice::from_ref(key), true, bytes),
    }
}

fn of_value(value: &str, bytes: &[u8], at: usize) -> Result<Option<usize>, &'static str> {
    let wanted = format!("{value}\r\n").into_bytes();
    let there = &bytes[at..bytes.len().min(at + wanted.len())];
    if !wanted.starts_with(there) {
        return Err("the value is not the key's");
    }
    Ok((there.len() == wanted.len()).then_some(at + wanted.len()))
}

fn values(keys: &[String], unique: bool, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let (mut at, mut keys) = (0, keys.iter());
    loop {
        let Some((first, length)) = line(&bytes[at..]) else { return Ok(None) };
        at += length;
        if first == "END" || first.starts_with("SERVER_ERROR ") {
            return Ok(Some(at));
        }
        let words: Vec<&str> = first.split(' ').collect();
        let ["VALUE", key, "0", _, rest @ ..] = words.as_slice() else { return Err("no value") };
        if keys.all(|wanted| wanted != key) || unique == rest.is_empty() {
            return Err("not one of the keys that were asked for");
        }
        match of_value(&value(key), bytes, at)? {
            Some(end) => at = end,
            None => return Ok(None),
        }
    }
}

/// What a server does with the replies that wait to be written on one connection.
fn spoil(world: &mut World) {
    let server = world.chance.below(world.servers.len());
    let links = world.servers[server].links.len();
    if links == 0 {
        return;
    }
    let link = world.chance.below(links);
    let kind = world.chance.below(7);
    let other = format!("c{}-{}", world.chance.below(CLIENTS), world.chance.below(KEYS));
    let at = world.chance.below(1000);
    let lines =
        ["BOGUS", "STORED", "END", "DELETED", "EN", "HD", "VA 3\r\nabc", "MN", "17", "ERROR"];
    let surplus = lines[world.chance.below(lines.len())];
    let here = &mut world.servers[server].links[link];
    let is_whole = here.output.is_empty() || here.is_at_reply;
    writeln!(world.story, "server {server}, link {link}: {kind} {surplus} {at}").unwrap();
    match kind {
        // A line too many, before what waits or alone.
        0 if is_whole => {
            here.output.splice(..0, format!("{surplus}\r\n").into_bytes());
        }
        // A value for which there was no request.
        1 if is_whole => {
            let value = value(&other);
            let reply = format!("VALUE {other} 0 {}\r\n{value}\r\nEND\r\n", value.len());
            here.output.splice(..0, reply.into_bytes());
        }
        // A line too few.
        2 | 3 if here.is_at_reply => {
            if let Some((_, length)) = line(&here.output) {
                here.output.drain(..length);
            }
        }
        // Another key where it is repeated.
        5 if here.is_at_reply => {
            let repeated = here.output.windows(3).position(|three| three == b" kc");
            if let Some(at) = repeated {
                here.output.splice(at + 2..at + 2 + other.len(), other.bytes());
            }
        }
        // The connection breaks at some byte.
        4 if !here.output.is_empty() => {
            let most = at % (here.output.len() + 1);
            give(&mut here.stream, &here.output[..most]);
            world.servers[server].links.swap_remove(link);
        }
        _ => {}
    }
}

/// Gives the number of faults that the proxy saw: a wrong line may reach a connection that nothing is asked over.
fn run(seed: u64, mode: Mode, servers: usize, placement: Placement) -> u64 {
    let mut world = World::new(seed, mode, (servers, false), placement);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::new(&world)).collect();
    for turn in 0.. {
        let faults = turn < TURNS;
        for (number, client) in clients.iter_mut().enumerate() {
            let story = world.story.clone();
            let bytes = if faults { [1, 7, 60, 5000][world.chance.below(4)] } else { 1 << 16 };
            if faults && client.asked.len() < 8 && world.chance.one_in(3) {
                client.ask(&mut world.chance, number);
            }
            let is_open = client.turn(bytes, &story);
            if faults && world.chance.one_in(200) {
                client.stream.shutdown(std::net::Shutdown::Write).unwrap_or_default();
            }
            if !is_open || (faults && world.chance.one_in(150)) {
                *client = Client::new(&world);
            }
        }
        if faults && world.chance.one_in(25) {
            spoil(&mut world);
        }
        for number in 0..world.servers.len() {
            world.servers[number].accept();
            for link in (0..world.servers[number].links.len()).rev() {
                let bytes = if faults { [0, 1, 30, 5000][world.chance.below(4)] } else { 1 << 20 };
                // At most so much stays behind that some replies can be spoilt.
                let requests = if faults { world.chance.below(4) } else { 100 };
                world.servers[number].serve(link, requests, bytes);
            }
        }
        world.turn();
        world.clock.advance(MILLISECOND * if faults { 3 } else { 20 });
        if !faults && clients.iter().all(|client| client.asked.is_empty()) {
            break;
        }
        assert!(turn < TURNS + LAST_TURNS, "answers do not come: {}", world.story);
    }
    world.instruments.snapshot().outcomes["backend_failures"]
}

#[test]
fn no_answer_reaches_another_request_whatever_lines_servers_send_or_leave_out() {
    for seed in super::seeds() {
        for mode in [
            Mode::Workers(1),
            Mode::Workers(3),
            Mode::Pipelined { connections: 1 },
            Mode::Pipelined { connections: 2 },
        ] {
            let seen = |(servers, placement)| run(seed, mode, servers, placement);
            let placements =
                [(1, Placement::Replicate), (2, Placement::Replicate), (3, Placement::Hash)];
            let faults: u64 = placements.into_iter().map(seen).sum();
            assert!(faults > 0, "{mode:?}, seed {seed}: no fault was seen");
        }
    }
}
