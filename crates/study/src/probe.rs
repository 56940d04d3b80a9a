//! What the network between the parts of a study does by itself, before the first run: a round trip and a
//! stream over loopback, which the parts of one machine share. Models take the network's delay from the
//! lowest load; this is the check that owes nothing to them.

use std::io::{Read as _, Result, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use kendall_units::{Seconds, exact_f64};
use serde_json::{Value as Json, json};

use crate::clock::monotonic_ns;

/// A round trip is a small request and its answer.
const MESSAGE: usize = 64;
/// Round trips at most, and the time that they may take together.
const ROUND_TRIPS: usize = 2_000;
const LONGEST_NS: u64 = 300_000_000;
/// Bytes that are streamed, piece by piece, at most for as long.
const PIECE: usize = 256 * 1024;
const PIECES: usize = 256;
/// Nobody waits longer for the other end.
const PATIENCE: Duration = Duration::from_secs(5);

/// `{"round_trip_p50_s": …, "round_trip_p99_s": …, "bytes_per_s": …}`; `None` where there is no loopback.
pub(crate) fn loopback() -> Option<Json> {
    let (mut round_trips, rate) = measure().ok()?;
    round_trips.sort_unstable();
    let quantile = |share: usize| {
        let place = (round_trips.len() * share / 100).min(round_trips.len().saturating_sub(1));
        round_trips.get(place).map(|ns| Seconds::from_nanos(*ns).get())
    };
    Some(json!({
        "round_trip_p50_s": quantile(50)?,
        "round_trip_p99_s": quantile(99)?,
        "bytes_per_s": rate,
    }))
}

/// Round trips in ns, and bytes a second.
fn measure() -> Result<(Vec<u64>, f64)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // Connected before anybody waits for it: accepting has no time limit.
    let asking = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
    let (answering, _) = listener.accept()?;
    std::thread::scope(|scope| {
        let other = scope.spawn(move || answer(answering));
        let measured = ask(asking);
        let answered = other.join().unwrap_or(Ok(()));
        measured.and_then(|measured| answered.map(|()| measured))
    })
}

fn open(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Sends each message back, and then reads what is streamed.
fn answer(mut stream: TcpStream) -> Result<()> {
    open(&stream)?;
    let mut message = [0_u8; MESSAGE];
    loop {
        stream.read_exact(&mut message)?;
        if message[0] != 0 {
            break;
        }
        stream.write_all(&message)?;
    }
    let mut piece = vec![0_u8; PIECE];
    while stream.read(&mut piece)? > 0 {}
    // The end of the stream is answered, so that the sender's clock stops when all has come.
    stream.write_all(&message)
}

fn ask(mut stream: TcpStream) -> Result<(Vec<u64>, f64)> {
    open(&stream)?;
    let mut message = [0_u8; MESSAGE];
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    let began = monotonic_ns();
    while round_trips.len() < ROUND_TRIPS && monotonic_ns() - began < LONGEST_NS {
        let sent = monotonic_ns();
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        round_trips.push(monotonic_ns() - sent);
    }
    message[0] = 1;
    stream.write_all(&message)?;
    let piece = vec![1_u8; PIECE];
    let (began, mut bytes) = (monotonic_ns(), 0_usize);
    for _ in 0..PIECES {
        stream.write_all(&piece)?;
        bytes += piece.len();
        if monotonic_ns() - began > LONGEST_NS {
            break;
        }
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut message)?;
    let length_s = Seconds::from_nanos((monotonic_ns() - began).max(1)).get();
    Ok((round_trips, exact_f64(bytes) / length_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_answers_and_carries_bytes() {
        let probed = loopback().expect("this machine has a loopback");
        let of = |key: &str| probed[key].as_f64().unwrap();
        assert!(of("round_trip_p50_s") > 0.0 && of("round_trip_p99_s") >= of("round_trip_p50_s"));
        assert!(of("bytes_per_s") > 0.0);
    }
}
