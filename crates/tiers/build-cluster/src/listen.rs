//! The listener of every tier of the build cluster: what it accepts, from whom, and for how long.
//!
//! HTTP/2 and HTTP/1.1 on one port, distinguished by their first bytes (by ALPN under TLS). Every bound
//! that a client can hit has a default here: connections, streams, the size of heads, the time until
//! a connection says something, and how long one may say nothing.

mod access;
mod client;
mod open_uploads;
pub(crate) mod plain;
mod stream;

pub use access::{Access, Tokens, TokensError};
pub(crate) use client::Client;
pub(crate) use open_uploads::{OpenUploads, UploadBounds, UploadPlace};
pub use stream::{Tls, TlsError};

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kendall_tier::{Instruments, Recorder};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::Status;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use client::Peers;
use stream::Protocol;

/// Requests that one connection may have open.
const STREAMS: u32 = 1024;
/// Bytes that a stream, and a connection, may send before a handler takes them.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 2 << 20;
/// Largest frame that a client may send.
const FRAME_BYTES: u32 = 64 << 10;
/// Largest head of a request.
const HEAD_BYTES: u32 = 16 << 10;
/// Bytes of answers that a connection holds for a client that does not take them.
const SEND_BYTES: usize = 256 << 10;
/// A peer that answers no ping for so long is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How often connections are checked for being idle.
const LOOK: Duration = Duration::from_secs(5);
/// Wait after a connection could not be accepted: others may close some.
const BREATH: Duration = Duration::from_millis(50);
/// Time for clients to take their last answers at the stop.
const FAREWELL: Duration = Duration::from_secs(10);

/// How a tier listens.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Address for clients.
    pub address: SocketAddr,
    /// Connections that may be open; further ones wait to be accepted.
    pub connections: usize,
    /// Longest time from a connection to its first request's head.
    pub patience: Duration,
    /// Longest time that a connection may be without a request.
    pub idle: Duration,
    /// Serves TLS alone.
    pub tls: Option<Tls>,
    /// Who may do what.
    pub tokens: Tokens,
}

impl ListenOptions {
    /// The defaults, without TLS and open to all.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            connections: 2048,
            patience: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            tls: None,
            tokens: Tokens::default(),
        }
    }
}

/// The tier cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}; choose another with --listen HOST:PORT")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// What answers requests. A clone answers each connection.
pub trait Serve: Clone + Send + Sync + 'static {
    /// Bodies of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + 'static;

    /// Whether it answers plain HTTP, too; requests that are not gRPC are refused otherwise.
    const PLAIN: bool = false;

    /// Answers a request.
    fn serve(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Answers a gRPC request that may not be served.
    fn refuse(&self, status: Status) -> Response<Self::Body>;
}

/// gRPC services, as `tonic` routes them.
#[derive(Debug, Clone)]
pub struct Grpc(pub Routes);

impl Serve for Grpc {
    type Body = tonic::body::Body;

    async fn serve(&self, request: Request<Incoming>) -> Response<Self::Body> {
        let mut routes = self.0.clone();
        match routes.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn refuse(&self, status: Status) -> Response<Self::Body> {
        status.into_http()
    }
}

/// A bound listener.
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    options: ListenOptions,
}

/// A listener that serves on a runtime, and its background tasks, until it is stopped.
#[derive(Debug)]
pub(crate) struct Serving {
    runtime: Runtime,
    stop: watch::Sender<bool>,
    serving: JoinSet<()>,
    beside: JoinSet<()>,
}

impl Serving {
    /// Serves until the stop; `beside` is given up when all is answered.
    pub(crate) fn start<S: Serve>(
        runtime: Runtime,
        listener: Listener,
        service: S,
        instruments: Instruments,
        beside: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let serve = listener.serve(vec![(runtime.handle().clone(), service)], instruments, stopped);
        let mut serving = JoinSet::new();
        let told = async move {
            if let Err(error) = serve.await {
                tracing::error!(%error, "the listener failed");
            }
        };
        serving.spawn_on(told, runtime.handle());
        let mut others = JoinSet::new();
        others.spawn_on(beside, runtime.handle());
        Self { runtime, stop, serving, beside: others }
    }

    /// Accepts nobody any more.
    pub(crate) fn close(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for what shall be done before the stop.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Answers what was accepted, and stops.
    pub(crate) fn stop(mut self) {
        self.close();
        self.runtime.block_on(async {
            while self.serving.join_next().await.is_some() {}
            self.beside.shutdown().await;
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
    ///
    /// # Errors
    /// [`ListenError`]: an address taken, a certificate that cannot be used.
    pub fn bind(options: ListenOptions) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Bind { address: options.address, source };
        let listener = TcpListener::bind(options.address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let acceptor = options.tls.as_ref().map(Tls::acceptor).transpose()?;
        Ok(Self { listener, address, acceptor, options })
    }

    /// The address, with its real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` becomes true and what was accepted is answered, for ten seconds at most.
    /// A connection lives on the runtime of `services` that has the fewest, and never leaves it.
    /// To be awaited on a runtime.
    ///
    /// # Errors
    /// When the runtime cannot watch the socket.
    ///
    /// # Panics
    /// When `services` is empty.
    pub async fn serve<S: Serve>(
        self,
        services: Vec<(Handle, S)>,
        instruments: Instruments,
        mut stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        assert!(!services.is_empty(), "somebody must answer");
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let permits = Arc::new(Semaphore::new(self.options.connections));
        let places: Vec<Place<S>> = services.into_iter().map(Place::new).collect();
        let shared = Arc::new(Shared {
            peers: Mutex::default(),
            acceptor: self.acceptor,
            tokens: self.options.tokens,
            patience: self.options.patience,
            idle: self.options.idle,
            recorder: Mutex::new(instruments.recorder()),
            instruments,
        });
        let mut tasks = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &permits) => accepted,
                Some(_) = tasks.join_next() => continue,
                () = stopped(&mut stop) => break,
            };
            let Some((stream, peer, permit)) = accepted else { continue };
            let Some(place) = places.iter().min_by_key(|p| p.open.load(Ordering::Relaxed)) else {
                continue;
            };
            let client = shared.peers.lock().unwrap_or_else(PoisonError::into_inner).client(peer);
            let counted = Counted::new(&shared, &place.open, client, permit);
            let task = connection(stream, place.service.clone(), counted, stop.clone());
            tasks.spawn_on(task, &place.handle);
        }
        drop(listener);
        let ended = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, ended).await.is_err() {
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
    acceptor: Option<TlsAcceptor>,
    tokens: Tokens,
    patience: Duration,
    idle: Duration,
    recorder: Mutex<Recorder>,
    instruments: Instruments,
}

/// An open connection, as long as it is counted.
struct Counted {
    shared: Arc<Shared>,
    open: Arc<AtomicUsize>,
    client: Client,
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
        let counted = Self { shared, open, client, _permit: permit };
        counted.level(|recorder, now_ns| recorder.connections.add(now_ns, 1));
        counted
    }

    fn level(&self, change: impl FnOnce(&mut Recorder, u64)) {
        let mut recorder = self.shared.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: the level's moments must not go back.
        change(&mut recorder, self.shared.instruments.clock().now_ns());
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.level(|recorder, now_ns| recorder.connections.subtract(now_ns, 1));
    }
}

/// The next connection that may be open; `None` when it went wrong.
async fn accept(
    listener: &tokio::net::TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(std::net::TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    let (stream, peer) = match listener.accept().await {
        Ok((stream, peer)) => (stream, peer.ip()),
        Err(error) => {
            // Out of descriptors, most likely.
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::timeout(BREATH, std::future::pending::<()>()).await.unwrap_or_default();
            return None;
        }
    };
    // Without it a small answer waits for the acknowledgement of the one before it: 40 ms.
    stream.set_nodelay(true).ok()?;
    // It leaves this runtime, for that of its service.
    Some((stream.into_std().ok()?, peer, permit))
}

/// Returns when the stop is asked for.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that who could ask for it is gone, which means the same.
    drop(stop.wait_for(|stop| *stop).await);
}

/// One connection, from its first byte to its last.
async fn connection<S: Serve>(
    stream: std::net::TcpStream,
    service: S,
    counted: Counted,
    stop: watch::Receiver<bool>,
) {
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let patience = counted.shared.patience;
    match &counted.shared.acceptor {
        None => {
            let told = tokio::time::timeout(patience, stream::protocol(&stream)).await;
            let Ok(Some(protocol)) = told else { return };
            drive(stream, protocol, service, &counted, stop).await;
        }
        Some(acceptor) => {
            let shaken = tokio::time::timeout(patience, acceptor.accept(stream)).await;
            let Ok(Ok(stream)) = shaken else { return };
            let protocol = stream::negotiated(&stream);
            drive(stream, protocol, service, &counted, stop).await;
        }
    }
}

/// What happens on a connection, to see when it is idle.
#[derive(Default)]
struct Activity {
    begun: AtomicU64,
    open: AtomicUsize,
}

struct Busy(Arc<Activity>);

impl Busy {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.begun.fetch_add(1, Ordering::Relaxed);
        activity.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a request names its host as it must.
fn has_one_host<B>(request: &Request<B>) -> bool {
    let hosts = request.headers().get_all(HOST);
    let http_11 = request.version() == Version::HTTP_11;
    kendall_tier::is_host(http_11, hosts.iter().map(HeaderValue::as_bytes))
}

/// Answers a request, or refuses it in the words of its protocol.
async fn answer<S: Serve>(
    service: S,
    request: Request<Incoming>,
    refused: Option<Status>,
) -> Response<Either<S::Body, Full<Bytes>>> {
    let grpc = plain::is_grpc(request.headers());
    let refused = refused.or_else(|| {
        (!grpc && !S::PLAIN).then(|| Status::not_found("only gRPC requests are answered here"))
    });
    match refused {
        None => service.serve(request).await.map(Either::Left),
        Some(status) if grpc => service.refuse(status).map(Either::Left),
        Some(status) => {
            let (head, mut body) = request.into_parts();
            plain::drain(&head.headers, &mut body).await;
            plain::refuse(&status).map(Either::Right)
        }
    }
}

/// Speaks the protocol until either side has enough.
async fn drive<S: Serve, I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: I,
    protocol: Protocol,
    service: S,
    counted: &Counted,
    stop: watch::Receiver<bool>,
) {
    let activity = Arc::new(Activity::default());
    let (shared, seen) = (Arc::clone(&counted.shared), Arc::clone(&activity));
    let client = counted.client.clone();
    let answering = service_fn(move |mut request: Request<Incoming>| {
        let (service, busy) = (service.clone(), Busy::new(&seen));
        let refused = if has_one_host(&request) {
            shared.tokens.admit(&mut request).err()
        } else {
            Some(Status::invalid_argument("`Host` names one host, with a port or without"))
        };
        request.extensions_mut().insert(client.clone());
        async move {
            let response = answer(service, request, refused).await;
            drop(busy);
            Ok::<_, Infallible>(response)
        }
    });
    let idle = counted.shared.idle;
    match protocol {
        Protocol::Http2 => {
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_frame_size(FRAME_BYTES)
                .max_header_list_size(HEAD_BYTES)
                .max_send_buf_size(SEND_BYTES)
                .keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
                .serve_connection(TokioIo::new(io), answering);
            let mut serving = std::pin::pin!(serving);
            let end = tokio::select! {
                result = serving.as_mut() => Some(result),
                () = enough(&activity, idle, stop) => None,
            };
            let result = match end {
                Some(result) => result,
                None => {
                    serving.as_mut().graceful_shutdown();
                    serving.await
                }
            };
            note(result);
        }
        Protocol::Http1 => {
            let serving = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(counted.shared.patience)
                .max_headers(64)
                .serve_connection(TokioIo::new(io), answering);
            let mut serving = std::pin::pin!(serving);
            let end = tokio::select! {
                result = serving.as_mut() => Some(result),
                () = enough(&activity, idle, stop) => None,
            };
            let result = match end {
                Some(result) => result,
                None => {
                    serving.as_mut().graceful_shutdown();
                    serving.await
                }
            };
            note(result);
        }
    }
}

fn note(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke");
    }
}

/// Returns when the tier stops, or when the connection was idle for too long.
async fn enough(activity: &Activity, idle: Duration, mut stop: watch::Receiver<bool>) {
    let mut quiet = Duration::ZERO;
    let mut before = activity.begun.load(Ordering::Relaxed);
    let look = LOOK.min(idle);
    while quiet < idle {
        if tokio::time::timeout(look, stopped(&mut stop)).await.is_ok() {
            return;
        }
        let begun = activity.begun.load(Ordering::Relaxed);
        let silent = begun == before && activity.open.load(Ordering::Relaxed) == 0;
        quiet = if silent { quiet + look } else { Duration::ZERO };
        before = begun;
    }
}
