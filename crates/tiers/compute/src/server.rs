//! The network side: HTTP/1.1 and HTTP/2 on one thread, which never computes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use kendall_tier::serve::{
    ConnectionHooks, EdgeLimit, Incoming, ListenError, ListenOptions, Listener, Serve, Tls,
    WhenFull, in_time,
};
use kendall_tier::{Instruments, Stop};

use crate::cache::CacheLimits;
use crate::openapi;
use crate::reply::{Pending, PendingReply, Reply};
use crate::request::{Asked, Problem, RequestLimits};
use crate::service::{
    Change, ChangeError, Control, LIMIT_BODY, LIMIT_CONNECTIONS, LIMIT_DESCRIPTORS, LIMIT_QUEUE,
    LIMIT_READ_TIME, MOST_WORKERS, QUEUE_FULL, REFUSED, STOPPING, Shared,
};

#[derive(Debug, Clone)]
pub struct ComputeOptions {
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// Workers, queue and cache at the start; all of them can be changed while it runs.
    pub change: Change,
    pub request_limits: RequestLimits,
    pub cache_limits: CacheLimits,
    /// Bounds of the network side.
    pub limits: Limits,
    /// Serves TLS alone.
    pub tls: Option<Tls>,
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
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Options(#[from] ChangeError),
    #[error("cannot start the service")]
    Start(#[source] io::Error),
}

/// Headers of an HTTP/1.1 request, and bytes of the head of any.
const HEADERS: usize = 100;
const HEAD_BYTES: u32 = 64 << 10;

/// A service that listens and is ready to [`run`](Compute::run).
#[derive(Debug)]
pub struct Compute {
    listener: Listener,
    control: Control,
    read: Duration,
}

impl Compute {
    /// Binds the address and starts the workers.
    pub fn bind(options: &ComputeOptions) -> Result<Self, ComputeError> {
        let limits = options.limits;
        let listener = Listener::bind(ListenOptions {
            connections: limits.connections,
            when_full: WhenFull::Close,
            patience: limits.read,
            idle: limits.read,
            farewell: limits.stop,
            headers: HEADERS,
            head_bytes: HEAD_BYTES,
            tls: options.tls.clone(),
            ..ListenOptions::new(options.listen)
        })?;
        let compute_ns = u64::try_from(limits.compute.as_nanos()).unwrap_or(u64::MAX);
        let workers = options.change.workers.unwrap_or(1).clamp(1, MOST_WORKERS);
        let shared =
            Shared::start(workers, compute_ns, options.request_limits, options.cache_limits)
                .map_err(ComputeError::Start)?;
        let control = Control { shared: Arc::new(shared) };
        control.change(&options.change)?;
        Ok(Self { listener, control, read: limits.read })
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// A handle that works before and while the service runs.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What the service counts. `compute_time` is the worker's part of the service time.
    pub fn instruments(&self) -> Instruments {
        self.control.shared.instruments.clone()
    }

    /// Serves until `stop` is asked for; then answers what it accepted, and ends.
    pub fn run(self, stop: &Stop) -> Result<(), ComputeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ComputeError::Start)?;
        let shared = Arc::clone(&self.control.shared);
        let service =
            Service { shared: Arc::clone(&shared), pending: Pending::default(), read: self.read };
        let services = vec![(runtime.handle().clone(), service)];
        let serving = self.listener.serve(services, Some(&shared.instruments), stop.watch());
        runtime.block_on(serving).map_err(ComputeError::Start)?;
        drop(runtime);
        shared.drain();
        Ok(())
    }
}

/// What answers the requests of one connection.
#[derive(Clone)]
struct Service {
    shared: Arc<Shared>,
    pending: Pending,
    read: Duration,
}

impl Serve for Service {
    type Body = Reply;

    async fn serve(&self, request: Request<Incoming>) -> Response<Reply> {
        let shared = &*self.shared;
        let answered = match (request.uri().path(), request.method()) {
            ("/compute", &Method::GET | &Method::HEAD | &Method::POST) => {
                compute(shared, &self.pending, self.read, request).await
            }
            ("/health", &Method::GET | &Method::HEAD) => {
                Ok(json(Reply::plain(r#"{"ready":true}"#)))
            }
            ("/openapi.json", &Method::GET | &Method::HEAD) => {
                Ok(json(Reply::plain(openapi::description(&shared.request_limits).to_string())))
            }
            ("/compute", method) => Err(wrong_method(method, "GET, HEAD, POST")),
            ("/health" | "/openapi.json", method) => Err(wrong_method(method, "GET, HEAD")),
            (path, _) => {
                let detail =
                    format!("there is no {path}; there are /compute, /health, /openapi.json");
                Err(Problem::new(404, "not-found", detail).into())
            }
        };
        answered.unwrap_or_else(|refusal| refused(shared, &refusal))
    }

    fn refuse_at_stop(&self, _: bool) -> Response<Reply> {
        self.shared.network.lock().outcome(STOPPING, 1);
        refused(&self.shared, &stopping().into())
    }

    async fn refuse_host(&self, _: Request<Incoming>) -> Response<Reply> {
        let detail = "a request of HTTP/1.1 names one host, with a port or without, in `Host`";
        refused(&self.shared, &Problem::new(400, "not-one-host", detail).into())
    }
}

impl ConnectionHooks for Service {
    fn connected(&self) -> Self {
        Self { pending: Pending::default(), ..self.clone() }
    }

    fn received(&self, bytes: usize) {
        self.shared.network.lock().bytes_in(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    fn sent(&self, bytes: usize) {
        self.shared.network.lock().bytes_out(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    fn flushed(&self) {
        self.pending.completed(&self.shared);
    }

    fn limit_hit(&self, limit: EdgeLimit) {
        self.shared.network.lock().limit_hit(match limit {
            EdgeLimit::Connections => LIMIT_CONNECTIONS,
            EdgeLimit::Descriptors => LIMIT_DESCRIPTORS,
            EdgeLimit::ReadTime => LIMIT_READ_TIME,
        });
    }
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
    shared.network.lock().arrived(kind);
    if let Some(result) = shared.cached(&asked) {
        let reply = PendingReply { request: kind, arrived_ns, dequeued_ns: arrived_ns };
        let data = document(&result, true, 0, 0);
        return Ok(json(Reply::stamped(data, pending, reply)));
    }
    let keep = shared.cache_is_on().then(|| asked.clone());
    let done = shared.enqueue(asked).map_err(|waiting| queue_full(shared, waiting))?;
    let Ok(done) = done.await else {
        return Err(stopping().into());
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
    Ok(json(Reply::stamped(data, pending, reply)))
}

fn stopping() -> Problem {
    Problem::new(503, "stopping", "the service is being stopped")
}

fn queue_full(shared: &Shared, waiting: usize) -> Refusal {
    let mut recorder = shared.network.lock();
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
        shared.network.lock().limit_hit(LIMIT_BODY);
        let detail = format!("the body exceeds {most} bytes");
        Refusal { problem: Problem::new(413, "body-too-large", detail), header: None, close: true }
    };
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    if announced.is_some_and(|bytes: u64| bytes > u64::try_from(most).unwrap_or(u64::MAX)) {
        return Err(too_large());
    }
    let collecting = Limited::new(request.into_body(), most).collect();
    match in_time(read, collecting).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => {
            let detail = format!("the body was cut off: {error}");
            let problem = Problem::new(400, "body-cut-off", detail);
            Err(Refusal { problem, header: None, close: true })
        }
        Err(_) => {
            shared.network.lock().limit_hit(LIMIT_READ_TIME);
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
    shared.network.lock().outcome(REFUSED, 1);
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
