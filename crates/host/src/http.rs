//! As much of an HTTP client as asking a tier for its state takes: one GET, one answer.

use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// Longest answer that is read.
const MOST_BYTES: u64 = 64 << 20;

/// How long a snapshot may take.
const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(2);

/// What the tier behind this address says of itself just now.
pub fn snapshot(address: &str) -> Option<Vec<u8>> {
    let (status, body) = get(address, "/snapshot", SNAPSHOT_DEADLINE).ok()?;
    (status == 200).then_some(body)
}

/// Status and body of `GET http://ADDRESS/PATH`.
pub fn get(address: &str, path: &str, deadline: Duration) -> std::io::Result<(u16, Vec<u8>)> {
    let mut answer = Vec::new();
    ask(address, path, deadline)?.take(MOST_BYTES).read_to_end(&mut answer)?;
    parse(&answer).ok_or_else(not_http)
}

/// Status of `GET http://ADDRESS/PATH`, also of a service that keeps the connection although it is told not to.
pub(crate) fn status(address: &str, path: &str, deadline: Duration) -> std::io::Result<u16> {
    let mut stream = ask(address, path, deadline)?;
    let mut line = [0; STATUS_LINE];
    stream.read_exact(&mut line)?;
    std::str::from_utf8(&line).ok().and_then(status_of).ok_or_else(not_http)
}

/// Bytes of `HTTP/1.1 200`.
const STATUS_LINE: usize = 12;

fn not_http() -> Error {
    Error::new(ErrorKind::InvalidData, "not an HTTP answer")
}

/// Whether a read or a write waited for as long as its socket allows.
pub(crate) fn timed_out(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn ask(address: &str, path: &str, deadline: Duration) -> std::io::Result<TcpStream> {
    let resolved = address
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{address} has no address")))?;
    let mut stream = TcpStream::connect_timeout(&resolved, deadline)?;
    stream.set_read_timeout(Some(deadline))?;
    stream.set_write_timeout(Some(deadline))?;
    // 1.0, so that the answer ends with the connection and is not sent in chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    Ok(stream)
}

fn status_of(head: &str) -> Option<u16> {
    head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()
}

fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = status_of(head)?;
    let body = &answer[end + 4..];
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, length)| length.trim().parse::<usize>().ok());
    match length {
        Some(length) if length > body.len() => None,
        Some(length) => Some((status, body[..length].to_vec())),
        None => Some((status, body.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A service that kept its connections was never ready.
    #[test]
    fn a_status_is_known_before_the_connection_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (seen, until_seen) = std::sync::mpsc::sync_channel(1);
        let service = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            until_seen.recv().unwrap();
        });
        let found = status(&address, "/", Duration::from_secs(60));
        assert_eq!(found.unwrap(), 204);
        seen.send(()).unwrap();
        service.join().unwrap();
    }

    #[test]
    fn an_answer_is_cut_at_its_length_and_one_cut_short_is_refused() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabc";
        assert_eq!(parse(answer), Some((200, b"ab".to_vec())));
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), None);
        assert_eq!(parse(b"HTTP/1.0 503 No\r\n\r\nbody"), Some((503, b"body".to_vec())));
        for noise in [&b""[..], b"x\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 \xff\xff\r\n\r\n"] {
            assert_eq!(parse(noise), None);
        }
    }
}
