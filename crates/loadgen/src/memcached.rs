//! The memcached driver: text protocol, mixes of commands, keys and values that can be checked.

mod prefill;
pub(crate) mod reply;

pub use crate::keyspace::{KeyChoice, Keyspace, KeyspaceError, KeyspacePlan, Size};
pub use prefill::{PrefillError, prefill};

use crate::driver::{Driver, Progress, named};
use crate::keyspace;
use crate::random::Random;
use crate::tls::Secure;
use crate::weighted::{Weighted, weights};
use reply::ReplyReader;

named! {
    pub enum Command {
        /// `get` of one key.
        Get = "get",
        /// `gets` of one key.
        Gets = "gets",
        /// `get` of several keys.
        MultiGet = "multi-get",
        /// `gat` of one key.
        Gat = "gat",
        Set = "set",
        Add = "add",
        Replace = "replace",
        Delete = "delete",
        Touch = "touch",
    }
}

impl Command {
    fn is_retrieval(self) -> bool {
        matches!(self, Self::Get | Self::Gets | Self::MultiGet | Self::Gat)
    }

    fn is_storage(self) -> bool {
        matches!(self, Self::Set | Self::Add | Self::Replace)
    }
}

#[derive(Debug, Clone)]
pub struct MemcachedPlan {
    pub mix: Vec<(Command, f64)>,
    pub keys_per_multi_get: usize,
    /// Share of retrievals that ask for keys that were never stored.
    pub expected_misses: f64,
    /// Compare every value that comes back with the one stored under its key.
    pub verify: bool,
    /// Seconds that stored values live; 0 is forever.
    pub expiry_s: u32,
    /// TLS, where the servers want it.
    pub secure: Option<Secure>,
}

/// Reads a mix such as `set=1,get=10`. With more than one key a multi-get, `get` means
/// `multi-get`, unless the mix names both.
pub fn parse_mix(text: &str, multiget: usize) -> Result<Vec<(Command, f64)>, MixError> {
    let refuse = || MixError { text: text.to_owned() };
    let mut mix = weights(text, Some(1.0), Command::named).ok_or_else(refuse)?;
    if multiget > 1 && !mix.iter().any(|(command, _)| *command == Command::MultiGet) {
        for (command, _) in &mut mix {
            if *command == Command::Get {
                *command = Command::MultiGet;
            }
        }
    }
    Ok(mix)
}

/// A text that is not a mix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a mix; write it like `set=1,get=10`, each once, from get, gets, multi-get, \
     gat, set, add, replace, delete, touch"
)]
pub struct MixError {
    pub text: String,
}

/// The memcached driver of one thread.
#[derive(Debug)]
pub struct Memcached<'a> {
    keyspace: &'a Keyspace,
    plan: &'a MemcachedPlan,
    mix: Weighted,
    random: Random,
}

/// The request that a connection has in flight.
#[derive(Debug, Default)]
pub struct MemcachedPending {
    keys: Vec<u64>,
    reader: ReplyReader,
}

impl<'a> Memcached<'a> {
    /// A driver that draws from `random`.
    pub fn new(keyspace: &'a Keyspace, plan: &'a MemcachedPlan, random: Random) -> Self {
        let mix = Weighted::new(plan.mix.iter().map(|(_, weight)| *weight));
        Self { keyspace, plan, mix, random }
    }

    fn draw_key(&mut self, retrieval: bool) -> u64 {
        let misses = if retrieval { self.plan.expected_misses } else { 0.0 };
        self.keyspace.choose_or_miss(misses, &mut self.random)
    }
}

impl Driver for Memcached<'_> {
    type Pending = MemcachedPending;

    fn operations(&self) -> Vec<String> {
        self.plan.mix.iter().map(|(command, _)| command.name().to_owned()).collect()
    }

    fn write(&mut self, pending: &mut MemcachedPending, out: &mut Vec<u8>) -> usize {
        let operation = self.mix.draw(&mut self.random);
        let command = self.plan.mix[operation].0;
        let keys = if command == Command::MultiGet { self.plan.keys_per_multi_get } else { 1 };
        pending.keys.clear();
        for _ in 0..keys {
            pending.keys.push(self.draw_key(command.is_retrieval()));
        }
        pending.reader = ReplyReader::new(command, keys);
        let verb: &[u8] = match command {
            Command::MultiGet => b"get",
            other => other.name().as_bytes(),
        };
        out.extend_from_slice(verb);
        if command == Command::Gat {
            write_number(out, u64::from(self.plan.expiry_s));
        }
        for key in &pending.keys {
            out.push(b' ');
            self.keyspace.write_key(*key, out);
        }
        if command.is_storage() {
            out.extend_from_slice(b" 0");
            write_number(out, u64::from(self.plan.expiry_s));
            write_number(out, self.keyspace.value_bytes(pending.keys[0]) as u64);
            out.extend_from_slice(b"\r\n");
            self.keyspace.write_value(pending.keys[0], out);
        } else if command == Command::Touch {
            write_number(out, u64::from(self.plan.expiry_s));
        }
        out.extend_from_slice(b"\r\n");
        operation
    }

    fn secure(&self) -> Option<&Secure> {
        self.plan.secure.as_ref()
    }

    fn read(&mut self, pending: &mut MemcachedPending, input: &[u8]) -> Progress {
        let expected = self.plan.verify.then_some((self.keyspace, pending.keys.as_slice()));
        pending.reader.read(input, expected)
    }
}

/// A space and a number.
fn write_number(out: &mut Vec<u8>, number: u64) {
    out.push(b' ');
    keyspace::write_decimal(out, number, 1);
}
