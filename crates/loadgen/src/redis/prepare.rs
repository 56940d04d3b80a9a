//! What comes before a load: whether the servers let it in, where the slots are, storing the keys.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{Redis, RedisAccess, RedisCommand, RedisLoad, RedisPlan, Slots};
use crate::load::{self, LoadError, LoadPlan, PacePlan};
use crate::random::{Purpose, stream};
use crate::refusals::Said;
use crate::tls;

/// Longest answer to `CLUSTER NODES`: a thousand nodes, with slots in pieces.
const LONGEST_ANSWER: u64 = 16 << 20;

const NODES: &[u8] = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n";

const LONGEST_LINE: u64 = 16 << 10;

/// Commands of one request of the filling, and clients that fill.
const FILLED_AT_ONCE: usize = 100;
const FILLERS: usize = 8;

/// Longest time that storing all keys takes: a day.
const LONGEST_FILLING_NS: u64 = 86_400_000_000_000;

/// How often a server that loads its data is asked again, and for how long.
const LOADING_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_LOADING: Duration = Duration::from_secs(60);

/// A server that does not let the load in.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Connect(#[from] LoadError),
    /// The user, the password or the database was not accepted.
    #[error("{target} refused {what}: `{answer}`")]
    Refused { target: SocketAddr, what: &'static str, answer: String },
    #[error(
        "{target} still loads its data after {waited:?}: `{answer}`; start the load once it has ended"
    )]
    Loading { target: SocketAddr, waited: Duration, answer: String },
    #[error("{target} does not speak Redis's protocol: it answered `{answer}`")]
    OtherProtocol { target: SocketAddr, answer: String },
}

/// A filling that did not store every key.
#[derive(Debug, thiserror::Error)]
pub enum PrefillError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{failed} of {requests} requests to store keys failed{said}")]
    Failed { failed: u64, requests: u64, said: String },
}

/// Asks each target whether it lets the load in, and where the slots are if it is part of a cluster. One that loads its
/// data is waited for until `stop` says so.
pub fn prepare(
    targets: &[SocketAddr],
    access: &RedisAccess,
    timeout: Duration,
    stop: &AtomicBool,
) -> Result<Slots, PrepareError> {
    let mut slots = Slots::default();
    for target in targets {
        let connect = |source| LoadError::Connect { target: *target, source };
        let reached = tls::connect(target, access.secure.as_ref(), timeout);
        let mut prepared = reached.map_err(connect)?;
        let mut stream = prepared.stream();
        let (mut request, greetings) = access.greeting();
        request.extend_from_slice(NODES);
        stream.write_all(&request).map_err(connect)?;
        let mut stream = BufReader::new(stream);
        let mut next = || answer_of(&mut stream).map_err(connect);
        let refuse = |what, answer| PrepareError::Refused { target: *target, what, answer };
        for _ in 0..greetings {
            if let Err(said) = next()? {
                let known = ["WRONGPASS", "NOAUTH", "ERR", "NOPERM"];
                if !known.iter().any(|kind| said.starts_with(kind)) {
                    return Err(PrepareError::OtherProtocol { target: *target, answer: said });
                }
                return Err(refuse("the user, the password or the database", said));
            }
        }
        let mut waited = Duration::ZERO;
        let mut said = next()?;
        while let Err(answer) = said.as_ref()
            && answer.starts_with("LOADING")
        {
            if waited >= LONGEST_LOADING || stop.load(Ordering::Relaxed) {
                let answer = answer.clone();
                return Err(PrepareError::Loading { target: *target, waited, answer });
            }
            std::thread::sleep(LOADING_PAUSE);
            waited += LOADING_PAUSE;
            stream.get_mut().write_all(NODES).map_err(connect)?;
            said = answer_of(&mut stream).map_err(connect)?;
        }
        match said {
            Ok(text) => slots.read(&text, *target),
            Err(said) if said.starts_with("NOAUTH") => {
                return Err(refuse("a load without a password", said));
            }
            // No part of a cluster, or not for this user to ask: then redirects tell.
            Err(said) if said.starts_with("ERR") || said.starts_with("NOPERM") => {}
            Err(said) => return Err(PrepareError::OtherProtocol { target: *target, answer: said }),
        }
    }
    Ok(slots)
}

/// One reply that is a line or a text; an error, or anything else that was said, is the inner error.
fn answer_of(stream: &mut impl BufRead) -> std::io::Result<Result<String, String>> {
    let mut line = Vec::new();
    stream.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    let is_whole = line.ends_with(b"\n");
    if !is_whole && (line.len() as u64) < LONGEST_LINE {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
    let shown = || text.chars().take(100).filter(|letter| !letter.is_control()).collect();
    if !is_whole {
        return Ok(Err(shown()));
    }
    Ok(match text.split_at_checked(1) {
        Some(("+", rest)) => Ok(rest.to_owned()),
        Some(("-", rest)) => Err(rest.chars().take(200).collect()),
        Some(("$", length)) => match length.parse::<u64>() {
            Ok(length) if length <= LONGEST_ANSWER => {
                let mut bytes = Vec::new();
                let read = stream.by_ref().take(length + 2).read_to_end(&mut bytes)?;
                if (read as u64) < length + 2 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            _ => Err(shown()),
        },
        _ => Err(shown()),
    })
}

/// Stores every key of a load, on all targets of the plan together: a cluster, or one server. Ends early,
/// without an error, once `stop` says so.
pub fn prefill(plan: &LoadPlan, load: &RedisLoad, stop: &AtomicBool) -> Result<u64, PrefillError> {
    let keys = load.keyspace.keys();
    let filling = RedisPlan {
        commands: vec![(RedisCommand::set(), 1.0)],
        pipeline: FILLED_AT_ONCE,
        expected_misses: 0.0,
        values: Vec::new(),
        access: load.plan.access.clone(),
    };
    let requests = keys.div_ceil(FILLED_AT_ONCE as u64);
    let filler = RedisLoad {
        plan: filling,
        keyspace: Arc::clone(&load.keyspace),
        slots: load.slots.clone(),
        said: Said::default(),
        next_key: Some(AtomicU64::new(0)),
    };
    let clients = FILLERS.min(usize::try_from(requests).unwrap_or(FILLERS));
    let plan = LoadPlan {
        clients,
        threads: 1,
        duration_ns: LONGEST_FILLING_NS,
        requests: NonZeroU64::new(requests),
        pace: PacePlan::Closed { think_time: None },
        start_at_ns: None,
        ..plan.clone()
    };
    let driver = |thread| Redis::new(&filler, stream(plan.seed, Purpose::Requests, thread));
    let result = load::run("redis", &plan, &driver, stop, &mut |_| ())?;
    let errors = result.operations.values().flat_map(|operation| operation.errors.values());
    let failed: u64 = errors.sum();
    if failed > 0 {
        let said = filler.said.first().map_or_else(String::new, |text| format!(": {text}"));
        return Err(PrefillError::Failed { failed, requests, said });
    }
    Ok(keys)
}
