//! What the network between the parts of a study does by itself, before the first run: a round trip and a
//! stream, over loopback, which the parts of one machine share, and between hosts that have parts which talk.
//! Models take the network's delay from the lowest load; this is the check that owes nothing to them.

use std::io::{ErrorKind, Read as _, Result, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use kendall_units::{Seconds, exact_f64};
use serde_json::{Value as Json, json};

use crate::clock::{Until, monotonic_ns};

/// A round trip is a small request and its answer.
const MESSAGE: usize = 64;
/// Round trips at most, and the time that they may take together.
const ROUND_TRIPS: usize = 2_000;
const LONGEST_NS: u64 = 300_000_000;
/// Bytes that are streamed, piece by piece, at most for as long. The receiver counts them: on a slow way, what was
/// written waits in the sender's kernel for longer than `PATIENCE`.
const PIECE: usize = 256 * 1024;
const PIECES: usize = 256;
/// Longest wait for the other end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two checks for a connection.
const LOOK: Duration = Duration::from_millis(1);

/// How long one connection for a round trip may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);

/// `{"round_trip_p50_s": …, "round_trip_p99_s": …, "bytes_per_s": …}`; `None` where there is no loopback.
pub fn loopback() -> Option<Json> {
    let port = serve(&Ipv4Addr::LOCALHOST.to_string()).ok()?;
    to(&format!("{}:{port}", Ipv4Addr::LOCALHOST))
}

/// Answers one probe at an address of this machine; its port.
pub fn serve(address: &str) -> Result<u16> {
    let listener = TcpListener::bind((address, 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    std::thread::Builder::new().name("probe".into()).spawn(move || {
        // The other end sees that there is no answer.
        answer(&listener).unwrap_or_default();
    })?;
    Ok(port)
}

/// Probes the way to an address where [`serve`] answers, as [`loopback`] tells it.
pub fn to(address: &str) -> Option<Json> {
    let target = address.to_socket_addrs().ok()?.next()?;
    let (mut round_trips, rate) = ask(target).ok()?;
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

fn open(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Sends each message back, and then reads what is streamed.
fn answer(listener: &TcpListener) -> Result<()> {
    let until = Until::after(PATIENCE);
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock && !until.is_over() => {
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(error),
        }
    };
    stream.set_nonblocking(false)?;
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
    // The clock starts when the first bytes have come.
    let mut more = stream.read(&mut piece)? > 0;
    let (began, mut bytes) = (monotonic_ns(), 0_u64);
    while more && monotonic_ns() - began < LONGEST_NS {
        let read = stream.read(&mut piece)?;
        bytes += u64::try_from(read).unwrap_or(0);
        more = read > 0;
    }
    let length_ns = monotonic_ns() - began;
    message[..8].copy_from_slice(&bytes.to_le_bytes());
    message[8..16].copy_from_slice(&length_ns.to_le_bytes());
    stream.write_all(&message)?;
    // Closed with bytes unread, the connection would be reset before the other end has read the answer.
    while stream.read(&mut piece)? > 0 {}
    Ok(())
}

/// Round trips in ns, and bytes a second.
fn ask(address: SocketAddr) -> Result<(Vec<u64>, f64)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
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
    stream.set_write_timeout(Some(Duration::from_nanos(LONGEST_NS)))?;
    let piece = vec![1_u8; PIECE];
    let (began, mut left) = (monotonic_ns(), PIECE * PIECES);
    while left > 0 && monotonic_ns() - began < LONGEST_NS {
        match stream.write(&piece[..left.min(PIECE)]) {
            Ok(written) => left -= written,
            Err(error) if crate::http::timed_out(&error) => break,
            Err(error) => return Err(error),
        }
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut message)?;
    let number = |from: usize| {
        u64::from_le_bytes(message[from..from + 8].try_into().expect("a message has 64 bytes"))
    };
    let length_s = Seconds::from_nanos(number(8).max(1)).get();
    let rate = exact_f64(number(0)) / length_s;
    if rate > 0.0 { Ok((round_trips, rate)) } else { Err(ErrorKind::TimedOut.into()) }
}

/// How long connections to an address took, each in nanoseconds: a round trip, and a little more. A
/// refusal takes a round trip as well.
pub fn round_trips(address: &str, count: u32) -> std::result::Result<Vec<u64>, String> {
    let resolved = address.to_socket_addrs().ok().and_then(|mut found| found.next());
    let target = resolved.ok_or_else(|| format!("{address} has no address"))?;
    let mut times = Vec::new();
    for _ in 0..count {
        let asked = monotonic_ns();
        match TcpStream::connect_timeout(&target, CONNECT_DEADLINE) {
            Ok(stream) => {
                times.push(monotonic_ns() - asked);
                drop(stream);
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                times.push(monotonic_ns() - asked);
            }
            Err(error) => return Err(format!("{address}: {error}")),
        }
    }
    Ok(times)
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

    /// A firewall may be between hosts: then there is no figure, and no wait without end.
    #[test]
    fn where_nobody_answers_there_is_no_figure() {
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        assert_eq!(to(&closed.to_string()), None);
        assert!(serve("192.0.2.1").is_err(), "an address that is not ours");
    }
}
