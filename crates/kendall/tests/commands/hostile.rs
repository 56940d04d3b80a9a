//! A server that answers as it is told, breaks off after so many bytes, and ends as it is told.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kendall_loadgen::load::{Limits, LoadPlan, PacePlan};
use kendall_protocols::load_result::LoadResult;

/// A short closed load of one server.
pub(crate) fn plan(
    target: SocketAddr,
    requests: u64,
    clients: usize,
    timeout: Duration,
) -> LoadPlan {
    LoadPlan {
        targets: vec![target],
        clients,
        threads: 1,
        duration_ns: 60_000_000_000,
        requests: NonZeroU64::new(requests),
        timeout_ns: u64::try_from(timeout.as_nanos()).unwrap(),
        pace: PacePlan::Closed { think_time: None },
        seed: 7,
        spin_ns: None,
        start_at_ns: None,
        limits: Limits::default(),
    }
}

/// Kinds of the errors of a load.
pub(crate) fn kinds(result: &LoadResult) -> Vec<String> {
    let errors = result.operations.values().flat_map(|operation| operation.errors.keys());
    errors.cloned().collect()
}

/// What a server does when it has said its bytes.
#[derive(Debug, Clone)]
pub(crate) enum End {
    Close,
    Reset,
    /// Keeps the connection, and says nothing.
    Silence,
    /// Says this again and again.
    Forever(Vec<u8>),
}

/// One hostile server, with a thread a connection.
pub(crate) struct Hostile {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Hostile {
    /// Says one of the answers to each thing that it reads, as far as the bytes go.
    pub(crate) fn start(answers: &[&[u8]], bytes: usize, end: &End) -> Self {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        Self::start_with(|_| answers, bytes, end)
    }

    /// The same, with answers that have its own address.
    pub(crate) fn start_with(
        answers: impl FnOnce(SocketAddr) -> Vec<Vec<u8>>,
        bytes: usize,
        end: &End,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::<AtomicBool>::default();
        let script = Arc::new((answers(address), bytes, end.clone(), Arc::clone(&stop)));
        let acceptor = std::thread::spawn(move || {
            let mut threads = Vec::new();
            for stream in listener.incoming() {
                if script.3.load(Ordering::SeqCst) {
                    break;
                }
                let (stream, script) = (stream.unwrap(), Arc::clone(&script));
                threads.push(std::thread::spawn(move || {
                    serve(stream, &script.0, script.1, (&script.2, &script.3));
                }));
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        Self { address, stop, acceptor: Some(acceptor) }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.acceptor.take().into_iter().for_each(|acceptor| acceptor.join().unwrap());
    }
}

fn serve(
    mut stream: TcpStream,
    answers: &[Vec<u8>],
    mut left: usize,
    (end, stop): (&End, &AtomicBool),
) {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
    for answer in answers {
        if !hears(&mut stream, stop) {
            return;
        }
        let said = answer.len().min(left);
        left -= said;
        if stream.write_all(&answer[..said]).is_err() {
            return;
        }
        if left == 0 {
            break;
        }
    }
    match end {
        End::Close => {}
        // Closed without lingering: the other side sees a reset.
        End::Reset => {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        }
        End::Silence => while hears(&mut stream, stop) {},
        End::Forever(bytes) => {
            // A write may take a part; the next goes on behind it.
            let mut at = 0;
            while !stop.load(Ordering::SeqCst) {
                match stream.write(&bytes[at..]) {
                    Ok(written) => at = (at + written) % bytes.len(),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        }
    }
}

/// Waits for something to read; false at the end.
fn hears(stream: &mut TcpStream, stop: &AtomicBool) -> bool {
    let mut input = [0; 4_096];
    while !stop.load(Ordering::SeqCst) {
        match stream.read(&mut input) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read.is_ok_and(|bytes| bytes > 0),
        }
    }
    false
}

/// A frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A `GOAWAY`: the last stream that is taken, and why.
pub(crate) fn goodbye(last: u32, reason: u32) -> Vec<u8> {
    frame(7, 0, 0, &[last.to_be_bytes(), reason.to_be_bytes()].concat())
}

/// What a server of HTTP/2 does behind an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Then {
    Close,
    Reset,
    Silence,
    Forever,
}

/// Speaks HTTP/2, and says to each request what it is told: by the number of the connection, and of the stream.
pub(crate) fn http2(
    answer: impl Fn(usize, u32) -> Option<(Vec<u8>, Then)> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for (number, mut stream) in listener.incoming().map_while(Result::ok).enumerate() {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let answer = Arc::clone(&answer);
            // Whatever goes wrong here is the client's leaving.
            std::thread::spawn(move || speak(&mut stream, |call| answer(number, call)));
        }
    });
    address
}

fn speak(
    stream: &mut TcpStream,
    answer: impl Fn(u32) -> Option<(Vec<u8>, Then)>,
) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 24])?;
    stream.write_all(&frame(4, 0, 0, &[]))?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length])?;
        // The end of the stream of a request: of its data, or of its headers.
        if head[3] > 1 || head[4] & 1 == 0 {
            continue;
        }
        let call = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let Some((bytes, then)) = answer(call) else { continue };
        stream.write_all(&bytes)?;
        match then {
            Then::Close => return Ok(()),
            Then::Reset => {
                return rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))
                    .map_err(Into::into);
            }
            Then::Silence => {}
            Then::Forever => loop {
                stream.write_all(&frame(0, 0, call, b"\0\0\0\0\x02ab"))?;
            },
        }
    }
}

/// A relay to a server that takes so many connections, and cuts each when so many bytes have come back. Those that
/// come later hear these words, which are no TLS.
pub(crate) fn relay(
    to: SocketAddr,
    (connections, bytes): (usize, u64),
    words: &'static [u8],
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, mut here) in listener.incoming().map_while(Result::ok).enumerate() {
            if number >= connections {
                std::thread::spawn(move || {
                    here.write_all(words).unwrap_or_default();
                    // Closed with bytes unread, it would be reset.
                    std::io::copy(&mut here, &mut std::io::sink())
                });
                continue;
            }
            let mut there = TcpStream::connect(to).unwrap();
            let (answers, mut back) = (there.try_clone().unwrap(), here.try_clone().unwrap());
            std::thread::spawn(move || {
                std::io::copy(&mut answers.take(bytes), &mut back).unwrap_or_default();
                back.shutdown(std::net::Shutdown::Both).unwrap_or_default();
            });
            std::thread::spawn(move || std::io::copy(&mut here, &mut there));
        }
    });
    address
}
