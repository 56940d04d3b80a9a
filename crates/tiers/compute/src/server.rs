//! The network side: HTTP/1.1 and HTTP/2 on one thread, which never computes.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER,
};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use kendall_tier::{Instruments, Stop};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::cache::CacheLimits;
use crate::connection::{Pending, PendingReply, Reply, Stamped};
use crate::openapi;
use crate::request::{Asked, Problem, RequestLimits};
use crate::service::{
    Change, ChangeError, Control, LIMIT_BODY, LIMIT_CONNECTIONS, LIMIT_DESCRIPTORS, LIMIT_QUEUE,
    LIMIT_READ_TIME, MOST_WORKERS, QUEUE_FULL, REFUSED, Shared,
};

/// What a compute service is asked to be.
#[derive(Debug, Clone)]
pub struct ComputeOptions {
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// Workers, queue and cache at the start; all of them can be changed while it runs.
    pub change: Change,
    /// Bounds of one request.
    pub request_limits: RequestLimits,
    /// Bounds of the cache.
    pub cache_limits: CacheLimits,
    /// Bounds of the network side.
    pub limits: Limits,
}

/// Bounds of the network side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; further ones are closed.
    pub connections: usize,
    /// Time for the head of a request (and between two), and again for its body.
    pub read: Duration,
    /// Time for one computation.
    pub compute: Duration,
    /// Time that a graceful stop waits for connections.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            read: Duration::from_secs(30),
            compute: Duration::from_secs(30),
            stop: Duration::from_secs(10),
        }
    }
}

/// A compute service that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}; is another program there?")]
    Listen { address: SocketAddr, source: io::Error },
    /// An option that cannot be.
    #[error(transparent)]
    Options(#[from] ChangeError),
    /// The system gives no thread or descriptor.
    #[error("cannot start the service")]
    Start(#[source] io::Error),
}

/// Bytes of the head of an HTTP/1.1 request.
const HEAD_BYTES: usize = 64 * 1024;
/// Streams of one HTTP/2 connection at a time.
const STREAMS: u32 = 1000;
/// After a failed `accept` for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A service that listens and is ready to [`run`](Compute::run).
#[derive(Debug)]
pub struct Compute {
    listener: std::net::TcpListener,
    address: SocketAddr,
    control: Control,
    limits: Limits,
}

impl Compute {
    /// Binds the address and starts the workers.
    pub fn bind(options: &ComputeOptions) -> Result<Self, ComputeError> {
        let listen = || {
            let listener = std::net::TcpListener::bind(options.listen)?;
            listener.set_nonblocking(true)?;
            rustix::net::listen(&listener, 4096)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) =
            listen().map_err(|source| ComputeError::Listen { address: options.listen, source })?;
        let compute_ns = u64::try_from(options.limits.compute.as_nanos()).unwrap_or(u64::MAX);
        let workers = options.change.workers.unwrap_or(1).clamp(1, MOST_WORKERS);
        let shared =
            Shared::start(workers, compute_ns, options.request_limits, options.cache_limits)
                .map_err(ComputeError::Start)?;
        let control = Control { shared: Arc::new(shared) };
        control.change(&options.change)?;
        Ok(Self { listener, address, control, limits: options.limits })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle that works before and while the service runs.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What the service counts. `compute_time` is the worker's part of the service time.
    #[must_use]
    pub fn instruments(&self) -> Instruments {
        self.control.shared.instruments.clone()
    }

    /// Serves until `stop` is asked for; then answers what it accepted, and ends.
    pub fn run(self, stop: &Stop) -> Result<(), ComputeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ComputeError::Start)?;
        let asked = Arc::new(Notify::new());
        let (notify, stop) = (Arc::clone(&asked), stop.clone());
        std::thread::Builder::new()
            .name("stop".into())
            .spawn(move || {
                stop.wait();
                notify.notify_one();
            })
            .map_err(ComputeError::Start)?;
        let shared = Arc::clone(&self.control.shared);
        runtime.block_on(self.serve(&asked)).map_err(ComputeError::Start)?;
        drop(runtime);
        shared.drain();
        Ok(())
    }

    async fn serve(self, stop: &Notify) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let (tasks, graceful) = (TaskTracker::new(), GracefulShutdown::new());
        let server = Arc::new(server(&tasks, &self.limits));
        let shared = self.control.shared;
        let mut stopped = pin!(stop.notified());
        loop {
            let accepted = either(&mut stopped, listener.accept()).await;
            match accepted {
                None => break,
                Some(Ok((stream, _))) => {
                    if graceful.count() >= self.limits.connections {
                        shared.network().limit_hit(LIMIT_CONNECTIONS);
                        continue;
                    }
                    let connection =
                        serve_connection(&shared, &server, stream, &graceful, self.limits);
                    tasks.spawn(connection);
                }
                Some(Err(error)) => {
                    shared.network().limit_hit(LIMIT_DESCRIPTORS);
                    tracing::debug!(%error, "accept");
                    pause(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        // A connection that reads nothing must not keep the process.
        let ended = tokio::time::timeout(self.limits.stop, graceful.shutdown()).await;
        if ended.is_err() {
            tracing::warn!(limit_s = self.limits.stop.as_secs_f64(), "connections were cut");
        }
        Ok(())
    }
}

fn server(tasks: &TaskTracker, limits: &Limits) -> Builder<Tasks> {
    let mut server = Builder::new(Tasks(tasks.clone()));
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.read)
        .max_buf_size(HEAD_BYTES);
    server.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
    server
}

/// Serves one connection until it ends.
fn serve_connection(
    shared: &Arc<Shared>,
    server: &Arc<Builder<Tasks>>,
    stream: TcpStream,
    graceful: &GracefulShutdown,
    limits: Limits,
) -> impl Future<Output = ()> + 'static + use<> {
    stream.set_nodelay(true).unwrap_or_default(); // a matter of speed only
    let pending = Pending::default();
    let io = TokioIo::new(Stamped::new(stream, Arc::clone(&pending), Arc::clone(shared)));
    let (shared, server) = (Arc::clone(shared), Arc::clone(server));
    let begun = Arc::new(AtomicBool::new(false));
    let handler = {
        let (shared, begun) = (Arc::clone(&shared), Arc::clone(&begun));
        service_fn(move |request| {
            begun.store(true, Ordering::Relaxed);
            let (shared, pending) = (Arc::clone(&shared), Arc::clone(&pending));
            async move { Ok::<_, Infallible>(answer(&shared, &pending, limits.read, request).await) }
        })
    };
    let connection = graceful.watch(server.serve_connection(io, handler).into_owned());
    async move {
        let now_ns = shared.clock.now_ns();
        shared.network().connections.add(now_ns, 1);
        let mut connection = pin!(connection);
        // The library's own limit begins when it knows which HTTP it speaks. Whatever ends a
        // connection, its client has seen; there is nobody else to tell.
        let ended = tokio::time::timeout(limits.read, &mut connection).await;
        if ended.is_err() && begun.load(Ordering::Relaxed) {
            connection.await.unwrap_or_default();
        } else if ended.is_err() {
            shared.network().limit_hit(LIMIT_READ_TIME);
        }
        let now_ns = shared.clock.now_ns();
        shared.network().connections.subtract(now_ns, 1);
    }
}

/// Runs what the HTTP library starts, such as the streams of HTTP/2, on the runtime's task group.
#[derive(Debug, Clone)]
struct Tasks(TaskTracker);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

/// The output of `second`, or `None` when `first` is done before.
async fn either<T>(
    first: &mut (impl Future<Output = ()> + Unpin),
    second: impl Future<Output = T>,
) -> Option<T> {
    let mut second = pin!(second);
    std::future::poll_fn(|context| {
        use std::task::Poll;
        if std::pin::Pin::new(&mut *first).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        second.as_mut().poll(context).map(Some)
    })
    .await
}

#[expect(clippy::disallowed_methods, reason = "a pause after an error, which measures nothing")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

async fn answer(
    shared: &Shared,
    pending: &Pending,
    read: Duration,
    request: Request<Incoming>,
) -> Response<Reply> {
    let only_head = request.method() == Method::HEAD;
    let answered = match (request.uri().path(), request.method()) {
        _ if !has_one_host(&request) => {
            let detail = "a request of HTTP/1.1 names one host, with a port or without, in `Host`";
            Err(Problem::new(400, "not-one-host", detail).into())
        }
        ("/compute", &Method::GET | &Method::HEAD | &Method::POST) => {
            compute(shared, pending, read, request).await
        }
        ("/health", &Method::GET | &Method::HEAD) => Ok(json(Reply::plain(r#"{"ready":true}"#))),
        ("/openapi.json", &Method::GET | &Method::HEAD) => {
            Ok(json(Reply::plain(openapi::description(&shared.request_limits).to_string())))
        }
        ("/compute", method) => Err(wrong_method(method, "GET, HEAD, POST")),
        ("/health" | "/openapi.json", method) => Err(wrong_method(method, "GET, HEAD")),
        (path, _) => {
            let detail = format!("there is no {path}; there are /compute, /health, /openapi.json");
            Err(Problem::new(404, "not-found", detail).into())
        }
    };
    let mut response = answered.unwrap_or_else(|refusal| refused(shared, &refusal));
    if only_head {
        response.body_mut().only_head();
    }
    response
}

/// Whether a request names its host as it must.
fn has_one_host(request: &Request<Incoming>) -> bool {
    let hosts = request.headers().get_all(HOST);
    let http_11 = request.version() == Version::HTTP_11;
    kendall_tier::is_host(http_11, hosts.iter().map(HeaderValue::as_bytes))
}

/// A problem and the headers that belong to it.
struct Refusal {
    problem: Problem,
    header: Option<(hyper::header::HeaderName, HeaderValue)>,
    /// The rest of the request was not read, so the connection cannot go on.
    close: bool,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { problem, header: None, close: false }
    }
}

fn wrong_method(method: &Method, allowed: &'static str) -> Refusal {
    let detail = format!("{method} does nothing here; use {allowed}");
    let problem = Problem::new(405, "method-not-allowed", detail);
    let header = Some((ALLOW, HeaderValue::from_static(allowed)));
    Refusal { problem, header, close: false }
}

async fn compute(
    shared: &Shared,
    pending: &Pending,
    read: Duration,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Refusal> {
    let limits = &shared.request_limits;
    let asked = if request.method() == Method::POST {
        let body = read_body(shared, read, request).await?;
        Asked::from_json(&body, limits)?
    } else {
        Asked::from_query(request.uri().query().unwrap_or(""), limits)?
    };
    let arrived_ns = shared.clock.now_ns();
    let kind = asked.request_type();
    shared.network().arrived(kind);
    if let Some(result) = shared.cached(&asked) {
        let reply = PendingReply { request: kind, arrived_ns, dequeued_ns: arrived_ns };
        let data = document(&result, true, 0, 0);
        return Ok(json(Reply::stamped(data, Arc::clone(pending), reply)));
    }
    let keep = shared.cache_is_on().then(|| asked.clone());
    let done = shared.enqueue(asked).map_err(|waiting| queue_full(shared, waiting))?;
    let Ok(done) = done.await else {
        return Err(Problem::new(503, "stopping", "the service is being stopped").into());
    };
    let Ok(result) = done.result else {
        let detail = "the computation exceeded the time limit of the service; ask for less, or \
                      start it with a longer --compute-limit";
        return Err(Problem::new(503, "too-long", detail).into());
    };
    if let Some(asked) = keep {
        shared.keep(asked, result.clone());
    }
    let waited_ns = done.dequeued_ns.saturating_sub(arrived_ns);
    let served_ns = done.computed_ns.saturating_sub(done.dequeued_ns);
    let data = document(&result, false, waited_ns, served_ns);
    let reply = PendingReply { request: kind, arrived_ns, dequeued_ns: done.dequeued_ns };
    Ok(json(Reply::stamped(data, Arc::clone(pending), reply)))
}

fn queue_full(shared: &Shared, waiting: usize) -> Refusal {
    let mut recorder = shared.network();
    recorder.limit_hit(LIMIT_QUEUE);
    recorder.outcome(QUEUE_FULL, 1);
    let detail = format!("{waiting} requests wait already; ask again later");
    Refusal {
        problem: Problem::new(503, "queue-full", detail),
        header: Some((RETRY_AFTER, HeaderValue::from_static("1"))),
        close: false,
    }
}

async fn read_body(
    shared: &Shared,
    read: Duration,
    request: Request<Incoming>,
) -> Result<Bytes, Refusal> {
    check_content_type(request.headers())?;
    let most = shared.request_limits.body_bytes;
    let too_large = || {
        shared.network().limit_hit(LIMIT_BODY);
        let detail = format!("the body exceeds {most} bytes");
        Refusal { problem: Problem::new(413, "body-too-large", detail), header: None, close: true }
    };
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    if announced.is_some_and(|bytes: u64| bytes > u64::try_from(most).unwrap_or(u64::MAX)) {
        return Err(too_large());
    }
    let collecting = Limited::new(request.into_body(), most).collect();
    match tokio::time::timeout(read, collecting).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => {
            let detail = format!("the body was cut off: {error}");
            let problem = Problem::new(400, "body-cut-off", detail);
            Err(Refusal { problem, header: None, close: true })
        }
        Err(_) => {
            shared.network().limit_hit(LIMIT_READ_TIME);
            let detail = format!("the body did not come within {} s", read.as_secs_f64());
            let problem = Problem::new(408, "body-too-slow", detail);
            Err(Refusal { problem, header: None, close: true })
        }
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let kind = given.and_then(|given| given.split(';').next()).map(str::trim);
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let found = given.map_or("no content type".to_owned(), |given| format!("`{given}`"));
    let detail = format!("the body has {found}; send application/json");
    Err(Problem::new(415, "wrong-content-type", detail))
}

/// The document of a result: what is cached, and the times of this request around it.
fn document(result: &[u8], cached: bool, waiting_ns: u64, service_ns: u64) -> Bytes {
    let mut text = Vec::with_capacity(result.len() + 100);
    text.extend_from_slice(br#"{"result":"#);
    text.extend_from_slice(result);
    let times = format!(
        ",\"cached\":{cached},\"waiting_time_ns\":{waiting_ns},\"service_time_ns\":{service_ns}}}"
    );
    text.extend_from_slice(times.as_bytes());
    text.into()
}

fn json(body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(shared: &Shared, refusal: &Refusal) -> Response<Reply> {
    shared.network().outcome(REFUSED, 1);
    let body = serde_json::to_vec(&refusal.problem).unwrap_or_default();
    let mut response = Response::new(Reply::plain(body));
    *response.status_mut() =
        StatusCode::from_u16(refusal.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some((name, value)) = refusal.header.clone() {
        headers.insert(name, value);
    }
    if refusal.close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
