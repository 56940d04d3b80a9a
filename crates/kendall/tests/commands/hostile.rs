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
