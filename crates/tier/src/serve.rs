//! The edge of tiers that speak HTTP: what they accept, from whom, and for how long.
//!
//! HTTP/2 and HTTP/1.1 on one port, distinguished by their first bytes (by ALPN under TLS). Every bound
//! that a client can hit has a default here: connections, streams, the size of heads, the time until
//! a connection says something, and how long one may say nothing.

mod browser;
mod client;
mod connection;
mod incoming;
mod open;
mod tls;
mod tokens;

pub use browser::ForBrowsers;
pub(crate) use browser::misdirected;
pub use client::{Account, Client};
pub use connection::{Enough, Served, in_time, is_grpc};
pub use incoming::Incoming;
pub use open::{Awaited, Begun, Bounds, Connection, PART_BYTES, Part, Room};
pub use tls::{
    Protocol, Tls, TlsAlone, TlsError, answers_with_tls, authorities, greets_with_tls,
    is_in_the_clear, with_identity,
};
pub use tokens::{TokenLine, Tokens, TokensError, random_token};

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper::{Request, Response};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::instruments::{Instruments, Recorder};
use crate::{Clock, process};
use client::Peers;
use open::{LOOK, Open};

/// Wait after a connection could not be accepted: others may close some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Address for clients.
    pub address: SocketAddr,
    /// The option that names another, as it is written, for the message where it is taken.
    pub option: &'static str,
    pub connections: usize,
    /// What becomes of further ones where none can make room.
    pub when_full: WhenFull,
    /// Bytes of answers that may be held for clients that do not take them.
    pub answers: Bounds,
    /// Requests that may last, beside one a connection: such as wait for what others do.
    pub lasting: usize,
    /// Longest time from a connection to its first request's head in HTTP/1.1, and to what tells its protocol.
    pub patience: Duration,
    /// Longest time that a connection may be without a request, or an answer without a byte taken.
    pub idle: Duration,
    /// Longest time that a connection may be open, whatever it is used for.
    pub longest: Duration,
    /// Time of a stop. When a tenth of it is left, requests without an answer are refused, so that clients have that to
    /// take their last answers.
    pub farewell: Duration,
    /// Headers of a request in HTTP/1.1.
    pub headers: usize,
    pub head_bytes: u32,
    /// Serves TLS alone.
    pub tls: Option<Tls>,
}

/// What becomes of connections beyond the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// They wait, all but one in the kernel's queue.
    Wait,
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeLimit {
    /// Connections; only where further ones are closed.
    Connections,
    /// Descriptors of the process.
    Descriptors,
    /// Time to the first request of a connection.
    ReadTime,
}

impl ListenOptions {
    /// The defaults, without TLS.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            option: "--listen HOST:PORT",
            connections: 2048,
            when_full: WhenFull::Wait,
            answers: Bounds::of_answers(),
            lasting: 0,
            patience: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            longest: Duration::MAX,
            farewell: Duration::from_secs(10),
            headers: 64,
            head_bytes: 16 << 10,
            tls: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {address}; choose another with {option}")]
    Bind { address: SocketAddr, option: &'static str, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A listener that does not block, and its address with the real port.
///
/// # Errors
/// [`ListenError::Bind`], with the option that names another address.
pub fn bind(
    address: SocketAddr,
    option: &'static str,
) -> Result<(TcpListener, SocketAddr), ListenError> {
    let listener = crate::listener(address);
    listener
        .and_then(|listener| listener.local_addr().map(|bound| (listener, bound)))
        .map_err(|source| ListenError::Bind { address, option, source })
}

/// What a server is told of its connections. A clone serves each.
pub trait ConnectionHooks: Clone + Send + Sync + Unpin + 'static {
    /// What answers a new connection.
    fn connected(&self) -> Self {
        self.clone()
    }

    /// So many bytes came on the connection.
    fn received(&self, _bytes: usize) {}

    /// So many bytes were handed to the kernel.
    fn sent(&self, _bytes: usize) {}

    /// All that was answered so far has been handed to the kernel.
    fn flushed(&self) {}

    /// A client came upon a bound.
    fn limit_hit(&self, _limit: EdgeLimit) {}
}

/// What answers requests.
pub trait Serve: ConnectionHooks {
    /// Bodies of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Answers a request, whose extensions have the [`Client`]. The body of an answer to HEAD is not sent.
    fn serve(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Refuses a request that could not be served before the stop ends, of gRPC or not: 503.
    fn refuse_at_stop(&self, is_grpc: bool) -> Response<Self::Body>;

    /// Refuses a request that does not name its host as it must: 400.
    fn refuse_host(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// What serves connections, whatever they speak: HTTP, where it is [`Serve`].
pub trait ServeConnection: ConnectionHooks {
    /// Serves a connection until either side has enough. Each request that comes on it has its [`Room`].
    fn drive<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        io: I,
        served: Served,
    ) -> impl Future<Output = Enough> + Send;
}

impl<S: Serve> ServeConnection for S {
    fn drive<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        io: I,
        served: Served,
    ) -> impl Future<Output = Enough> + Send {
        connection::drive_http(self, io, served)
    }
}

pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    options: ListenOptions,
}

/// A listener that serves on a runtime, and its background tasks, until it is stopped.
#[derive(Debug)]
pub struct Serving {
    runtime: Runtime,
    stop: watch::Sender<bool>,
    serving: JoinSet<()>,
    background: JoinSet<()>,
}

/// Threads of this name for all that a tier does.
pub fn threads(name: &str, threads: usize) -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads.max(1)).thread_name(name).enable_all().build()
}

impl Serving {
    /// Serves until the stop; `background` ends when all is answered.
    pub fn start<S: ServeConnection>(
        runtime: Runtime,
        listener: Listener,
        service: S,
        instruments: Option<&Instruments>,
        background: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let serve = listener.serve(vec![(runtime.handle().clone(), service)], instruments, stopped);
        let mut serving = JoinSet::new();
        let logged = async move {
            if let Err(error) = serve.await {
                tracing::error!(%error, "the listener failed");
            }
        };
        serving.spawn_on(logged, runtime.handle());
        let mut tasks = JoinSet::new();
        tasks.spawn_on(background, runtime.handle());
        Self { runtime, stop, serving, background: tasks }
    }

    /// Accepts no further connection.
    pub fn close(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for what shall be done before the stop.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Answers what was accepted, and stops.
    pub fn stop(mut self) {
        self.close();
        self.runtime.block_on(async {
            while self.serving.join_next().await.is_some() {}
            self.background.shutdown().await;
        });
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listener").field(&self.address).finish()
    }
}

impl Listener {
    /// Binds the address and reads the certificate.
    pub fn bind(options: ListenOptions) -> Result<Self, ListenError> {
        let (listener, address) = bind(options.address, options.option)?;
        let acceptor = options.tls.as_ref().map(|tls| tls.acceptor(&["h2", "http/1.1"]));
        Ok(Self { listener, address, acceptor: acceptor.transpose()?, options })
    }

    /// The address, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` becomes true and what was accepted is answered, within bounds.
    /// A connection lives on the runtime of `services` that has the fewest, and never leaves it.
    /// `instruments` count the connections. To be awaited on a runtime.
    ///
    /// # Panics
    /// When `services` is empty.
    pub fn serve<S: ServeConnection>(
        self,
        services: Vec<(Handle, S)>,
        instruments: Option<&Instruments>,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<S> {
        let counter = instruments.map(|instruments| Mutex::new(instruments.recorder()));
        let counter = counter.zip(instruments.cloned());
        self.accept_all(services, counter, stop)
    }

    /// Connections that may be open: as many descriptors are left for all else.
    fn connections(&self) -> usize {
        let half = process::share_of_descriptors(2);
        process::bound_connections(self.address, self.options.connections, half)
    }

    async fn accept_all<S: ServeConnection>(
        self,
        services: Vec<(Handle, S)>,
        counter: Option<(Mutex<Recorder>, Instruments)>,
        mut stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let places: Vec<Place<S>> = services.into_iter().map(Place::new).collect();
        let first = places.first().expect("a service answers");
        let connections = self.connections();
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let requests = Bounds::of_requests(self.options.lasting.saturating_add(connections));
        let farewell = self.options.farewell;
        let shared = Arc::new(Shared {
            peers: Mutex::default(),
            open: Arc::new(Open::new(self.options.answers, requests)),
            permits: Arc::new(Semaphore::new(connections)),
            late: watch::channel(false).0,
            acceptor: self.acceptor,
            options: self.options,
            counter,
            tls_alone: Mutex::new(OnceIn::a_minute()),
        });
        let mut tasks = JoinSet::new();
        let mut failures = OnceIn::a_second();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = tasks.join_next() => continue,
                () = stopped(&mut stop) => break,
            };
            let entered = tokio::select! {
                entered = shared.enter(accepted, &mut failures) => entered,
                () = stopped(&mut stop) => break,
            };
            let (stream, peer, permit) = match entered {
                Ok(Some(entered)) => entered,
                Ok(None) => continue,
                Err(limit) => {
                    first.service.limit_hit(limit);
                    continue;
                }
            };
            let place = places.iter().min_by_key(|p| p.open.load(Ordering::Relaxed));
            let place = place.unwrap_or(first);
            let client = shared.peers.lock().client(peer);
            let counted = Counted::new(&shared, &place.open, client, permit);
            let task = connection::serve(stream, place.service.connected(), counted, stop.clone());
            tasks.spawn_on(task, &place.handle);
        }
        drop(listener);
        let ended = async { while tasks.join_next().await.is_some() {} };
        let refusing = async {
            pause(farewell / 10 * 9).await;
            shared.late.send_replace(true);
            std::future::pending().await
        };
        let ended = async {
            tokio::select! { () = ended => {} () = refusing => {} }
        };
        if tokio::time::timeout(farewell, ended).await.is_err() {
            tracing::info!("clients still connected were cut off");
        }
        tasks.shutdown().await;
        Ok(())
    }
}

/// A runtime, its service, and how many connections it has.
struct Place<S> {
    handle: Handle,
    service: S,
    open: Arc<AtomicUsize>,
}

impl<S> Place<S> {
    fn new((handle, service): (Handle, S)) -> Self {
        Self { handle, service, open: Arc::default() }
    }
}

struct Shared {
    peers: Mutex<Peers>,
    open: Arc<Open>,
    permits: Arc<Semaphore>,
    /// Whether a stop has so little time left that what is not answered is refused.
    late: watch::Sender<bool>,
    acceptor: Option<TlsAcceptor>,
    options: ListenOptions,
    counter: Option<(Mutex<Recorder>, Instruments)>,
    /// Connections on which one side alone speaks TLS.
    tls_alone: Mutex<OnceIn>,
}

/// An open connection, as long as it is counted.
struct Counted {
    shared: Arc<Shared>,
    open: Arc<AtomicUsize>,
    connection: Arc<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Counted {
    fn new(
        shared: &Arc<Shared>,
        open: &Arc<AtomicUsize>,
        client: Client,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let (shared, open) = (Arc::clone(shared), Arc::clone(open));
        open.fetch_add(1, Ordering::Relaxed);
        let connection = shared.open.add(client);
        let counted = Self { shared, open, connection, _permit: permit };
        counted.level(|recorder, now_ns| recorder.connections.add(now_ns, 1));
        counted
    }

    fn level(&self, change: impl FnOnce(&mut Recorder, u64)) {
        let Some((recorder, instruments)) = &self.shared.counter else { return };
        let mut recorder = recorder.lock();
        // Read under the lock: the level's moments must not go back.
        change(&mut recorder, instruments.clock().now_ns());
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.open.remove(&self.connection);
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.level(|recorder, now_ns| recorder.connections.subtract(now_ns, 1));
    }
}

/// A socket, its client's address, and its place among those that may be open.
type Accepted = (std::net::TcpStream, IpAddr, OwnedSemaphorePermit);

impl Shared {
    /// Finds a place for a connection; `None` when it went wrong.
    async fn enter(
        &self,
        accepted: io::Result<(tokio::net::TcpStream, SocketAddr)>,
        failures: &mut OnceIn,
    ) -> Result<Option<Accepted>, EdgeLimit> {
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, peer.ip()),
            Err(error) => {
                // Out of descriptors, most likely.
                if let Some(times) = failures.count(Clock::monotonic().now_ns()) {
                    tracing::warn!(%error, times, "cannot accept a connection");
                }
                self.open.end_one();
                pause(ACCEPT_PAUSE).await;
                return Err(EdgeLimit::Descriptors);
            }
        };
        let permit = self.permit().await.ok_or(EdgeLimit::Connections)?;
        // Without it a small answer waits for the acknowledgement of the one before it: 40 ms.
        // It leaves this runtime, for that of its service.
        let stream = stream.set_nodelay(true).and_then(|()| stream.into_std()).ok();
        Ok(stream.map(|stream| (stream, peer, permit)))
    }

    /// Logs, at most once a minute, that one side of a connection alone speaks TLS.
    fn log(&self, alone: TlsAlone, stream: &tokio::net::TcpStream) {
        let times = self.tls_alone.lock().count(Clock::monotonic().now_ns());
        let client = stream.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
        if let Some(times) = times {
            tracing::warn!(client, times, "{}", alone.for_the_log());
        }
    }

    /// A place among those that may be open, where needed that of another connection.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        let permits = || Arc::clone(&self.permits);
        let mut free = permits().try_acquire_owned().ok();
        while free.is_none() {
            if !self.open.end_one() && self.options.when_full == WhenFull::Close {
                return None;
            }
            let freed = tokio::time::timeout(LOOK, permits().acquire_owned()).await;
            free = freed.ok().and_then(Result::ok);
        }
        free
    }
}

/// What would fill the log where it is said each time: it is said once in a time, with how often it was so.
#[derive(Debug)]
pub struct OnceIn {
    least_ns: u64,
    said_ns: Option<u64>,
    times: u64,
}

impl OnceIn {
    pub const fn a_second() -> Self {
        Self { least_ns: 1_000_000_000, said_ns: None, times: 0 }
    }

    pub const fn a_minute() -> Self {
        Self { least_ns: 60_000_000_000, ..Self::a_second() }
    }

    /// It is so once more: how often it was since it was said, where it is to be said again.
    pub fn count(&mut self, now_ns: u64) -> Option<u64> {
        self.times += 1;
        if self.said_ns.is_some_and(|said_ns| now_ns.saturating_sub(said_ns) < self.least_ns) {
            return None;
        }
        self.said_ns = Some(now_ns);
        Some(std::mem::take(&mut self.times))
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that who could ask for it is gone, which means the same.
    drop(stop.wait_for(|stop| *stop).await);
}

/// Waits for so long, to the millisecond, where nothing is measured.
pub async fn pause(time: Duration) {
    // A wait for what never happens.
    tokio::time::timeout(time, std::future::pending::<()>()).await.unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_said_once_a_second_with_how_often() {
        let mut said = OnceIn::a_second();
        let moments = [5, 6, 999_999_999, 1_000_000_005, 1_000_000_006, 3_000_000_000];
        let times = moments.map(|now_ns| said.count(now_ns));
        assert_eq!(times, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
