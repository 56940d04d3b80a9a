//! Stores every key before a load starts.

use std::net::SocketAddr;
use std::time::Duration;

use super::MemcachedPlan;
use crate::keyspace::{self, Keyspace};
use crate::tls::{self, Prepared};

/// Requests that are sent before their replies are read.
const BATCH_REQUESTS: u64 = 256;

/// Bytes that are sent before replies are read, a single larger value excepted.
const BATCH_BYTES: usize = 256 << 10;

/// A prefill that did not store every key.
#[derive(Debug, thiserror::Error)]
pub enum PrefillError {
    #[error("cannot connect to {target} to store keys; is the server running?")]
    Connect { target: SocketAddr, source: std::io::Error },
    #[error("{target} closed the connection after {stored} keys were stored")]
    Broken { target: SocketAddr, stored: u64, source: std::io::Error },
    #[error("{target} refused key number {key}: `{answer}`; is it large enough for the values?")]
    Refused { target: SocketAddr, key: u64, answer: String },
}

/// Stores every key of `keyspace` on `target`; stops early, and says how many it stored, once
/// `stop` says so.
pub fn prefill(
    target: SocketAddr,
    keyspace: &Keyspace,
    plan: &MemcachedPlan,
    timeout: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<u64, PrefillError> {
    let mut stream = tls::connect(&target, plan.secure.as_ref(), timeout)
        .map_err(|source| PrefillError::Connect { target, source })?;
    let mut stored = 0;
    let mut out = Vec::new();
    while stored < keyspace.keys() && !stop() {
        out.clear();
        let mut next = stored;
        while next < keyspace.keys() && next - stored < BATCH_REQUESTS && out.len() < BATCH_BYTES {
            write_set(keyspace, next, plan.expiry_s, &mut out);
            next += 1;
        }
        stream.within(timeout);
        exchange(&mut stream, &out, stored..next, target)?;
        stored = next;
    }
    Ok(stored)
}

fn write_set(keyspace: &Keyspace, key: u64, expiry_s: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"set ");
    keyspace.write_key(key, out);
    out.extend_from_slice(b" 0 ");
    keyspace::write_decimal(out, u64::from(expiry_s), 1);
    out.push(b' ');
    keyspace::write_decimal(out, keyspace.value_bytes(key) as u64, 1);
    out.extend_from_slice(b"\r\n");
    keyspace.write_value(key, out);
    out.extend_from_slice(b"\r\n");
}

/// Sends a batch and reads one `STORED` for each of its keys.
fn exchange(
    stream: &mut Prepared,
    out: &[u8],
    keys: std::ops::Range<u64>,
    target: SocketAddr,
) -> Result<(), PrefillError> {
    let broken = |stored: u64| move |source| PrefillError::Broken { target, stored, source };
    stream.stream().write_all(out).map_err(broken(keys.start))?;
    let mut input = [0; 16 << 10];
    let mut kept = 0;
    let mut key = keys.start;
    while key < keys.end {
        let read = stream.stream().read(&mut input[kept..]).map_err(broken(key))?;
        if read == 0 {
            let source = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            return Err(PrefillError::Broken { target, stored: key, source });
        }
        let held = kept + read;
        let mut consumed = 0;
        while let Some(end) = input[consumed..held].iter().position(|byte| *byte == b'\n') {
            let line = &input[consumed..consumed + end];
            consumed += end + 1;
            if line != b"STORED\r" {
                let answer = String::from_utf8_lossy(line).trim_end().to_owned();
                return Err(PrefillError::Refused { target, key, answer });
            }
            key += 1;
        }
        input.copy_within(consumed..held, 0);
        kept = held - consumed;
        if kept == input.len() {
            let answer = String::from_utf8_lossy(&input[..80]).into_owned();
            return Err(PrefillError::Refused { target, key, answer });
        }
    }
    Ok(())
}
