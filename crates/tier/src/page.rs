//! The metrics page: HTTP on low-priority threads of its own.
//!
//! `GET /metrics` is Prometheus text, `GET /snapshot` the JSON of
//! [`TierSnapshot`](kendall_protocols::snapshot::TierSnapshot), `GET /health` answers 200 when the
//! tier is ready, with the addresses at which it can be reached. A tier may add routes of its own.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::instruments::Instruments;
use crate::metrics;
use crate::serve::{
    ConnectionHooks, Incoming, ListenError, ListenOptions, Listener, Serve, Serving, misdirected,
};

/// Connections served at once; further ones take the place of those that ask for nothing, or wait.
const CONNECTIONS: usize = 64;
/// Requests answered at once.
const ANSWERING: usize = 8;
const HEAD_BYTES: u32 = 8 << 10;
const BODY_BYTES: usize = 64 << 10;
/// Time for the head of a request, and for all of it with its answer.
const HEAD: Duration = Duration::from_secs(2);
const REQUEST: Duration = Duration::from_secs(10);
/// Time for readers to take their answers when the page ends.
const FAREWELL: Duration = Duration::from_millis(500);
/// Priority of the page's threads, so that a reader disturbs the tier as little as it can.
const NICE: i32 = 5;

/// Where a tier can be reached: the line that it prints when it is ready, and `GET /health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    pub ready: bool,
    pub tier: String,
    /// Addresses for clients, with the real ports.
    pub listen: Vec<SocketAddr>,
    /// Address of the metrics page, with the real port.
    pub metrics: Option<SocketAddr>,
    pub pid: u32,
}

/// A request to a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// `GET`, `POST`, …
    pub method: String,
    /// Path without the query.
    pub path: String,
    pub body: Vec<u8>,
}

/// What a route answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageResponse {
    status: u16,
    content_type: &'static str,
    body: Vec<u8>,
}

/// A tier's own route.
type Answer = Box<dyn Fn(&PageRequest) -> PageResponse + Send + Sync>;

/// Whether a tier works, beyond having begun to.
type Check = Box<dyn Fn() -> bool + Send + Sync>;

/// Routes that a tier adds to its page.
#[derive(Default)]
pub struct Routes {
    routes: Vec<(&'static str, &'static str, Answer)>,
    metrics: Vec<Box<dyn Fn() -> String + Send + Sync>>,
    works: Option<Check>,
    for_browsers: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot start the metrics page")]
    Start(#[source] io::Error),
}

/// The running page. Dropped, it ends.
#[derive(Debug)]
pub struct Page {
    address: SocketAddr,
    announcement: Arc<Mutex<Option<Announcement>>>,
    serving: Option<Serving>,
}

impl PageResponse {
    /// 200 with a JSON body.
    ///
    /// # Panics
    /// When `value` has a map whose keys are not texts: a defect of the type.
    pub fn json(value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("the type serializes to JSON");
        Self { status: 200, content_type: "application/json", body }
    }

    /// A status with a line of text.
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: text.into().into_bytes() }
    }

    /// With the end of the connection: a reader that waits for the end of the stream gets it at once.
    fn into_http(self, version: Version) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(self.body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if version < Version::HTTP_2 {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// 200 with a page for people.
    pub fn html(text: impl Into<String>) -> Self {
        let content_type = "text/html; charset=utf-8";
        Self { status: 200, content_type, body: text.into().into_bytes() }
    }
}

impl Routes {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route, such as `POST /workers`.
    #[must_use]
    pub fn with(
        mut self,
        method: &'static str,
        path: &'static str,
        answer: impl Fn(&PageRequest) -> PageResponse + Send + Sync + 'static,
    ) -> Self {
        self.routes.push((method, path, Box::new(answer)));
        self
    }

    /// Adds families of the tier's own to `GET /metrics`, as Prometheus text.
    #[must_use]
    pub fn with_metrics(mut self, text: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics.push(Box::new(text));
        self
    }

    /// Has `GET /health` ask `works` each time: it answers 503 where that says no. It may take its
    /// time to find out, up to the second that a request to the page has.
    #[must_use]
    pub fn healthy_while(mut self, works: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.works = Some(Box::new(works));
        self
    }

    /// Has a page on loopback answer to names of this machine alone: a page elsewhere may have made its own name
    /// point here.
    #[must_use]
    pub fn for_browsers(self) -> Self {
        Self { for_browsers: true, ..self }
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.routes.iter().map(|route| (route.0, route.1))).finish()
    }
}

#[derive(Clone)]
struct Site(Arc<Content>);

struct Content {
    address: SocketAddr,
    instruments: Instruments,
    routes: Routes,
    announcement: Arc<Mutex<Option<Announcement>>>,
}

impl Page {
    /// Serves the page at the address of an option, which refusals name as it is written; `/health` answers 503 until
    /// [`announce`](Self::announce).
    pub fn start(
        option: &'static str,
        address: SocketAddr,
        instruments: Instruments,
        routes: Routes,
    ) -> Result<Self, PageError> {
        let listener = Listener::bind(ListenOptions {
            option,
            connections: CONNECTIONS,
            patience: HEAD,
            longest: REQUEST,
            farewell: FAREWELL,
            head_bytes: HEAD_BYTES,
            ..ListenOptions::new(address)
        })?;
        let address = listener.address();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(ANSWERING)
            .thread_name("metrics")
            .on_thread_start(|| {
                // Refused, the page is served all the same.
                let thread = Some(rustix::thread::gettid());
                rustix::process::setpriority_process(thread, NICE).unwrap_or_default();
            })
            .enable_all()
            .build()
            .map_err(PageError::Start)?;
        let announcement = Arc::new(Mutex::new(None));
        let content =
            Content { address, instruments, routes, announcement: Arc::clone(&announcement) };
        let site = Site(Arc::new(content));
        let serving = Serving::start(runtime, listener, site, None, std::future::ready(()));
        Ok(Self { address, announcement, serving: Some(serving) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// States that the tier is ready, or that it no longer is.
    pub fn announce(&self, announcement: Announcement) {
        *self.announcement.lock() = Some(announcement);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.stop();
        }
    }
}

impl ConnectionHooks for Site {}

impl Serve for Site {
    type Body = Full<Bytes>;

    async fn serve(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let version = request.version();
        let for_browsers = self.0.routes.for_browsers;
        let misdirected = for_browsers.then(|| misdirected(self.0.address, &request)).flatten();
        if let Some(text) = misdirected {
            return PageResponse::text(421, format!("{text}\n")).into_http(version);
        }
        let response = match read(request).await {
            // A route may take its time.
            Ok(request) => {
                let content = Arc::clone(&self.0);
                let answered = tokio::task::spawn_blocking(move || content.answer(&request));
                answered.await.unwrap_or_else(|_| PageResponse::text(500, "it failed\n"))
            }
            Err(refusal) => refusal,
        };
        response.into_http(version)
    }

    fn refuse_at_stop(&self, _: bool) -> Response<Full<Bytes>> {
        PageResponse::text(503, "the service is being stopped\n").into_http(Version::HTTP_2)
    }

    async fn refuse_host(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let text = "`Host` names one host, with a port or without\n";
        PageResponse::text(400, text).into_http(request.version())
    }
}

/// Reads a request, or says how to refuse it.
async fn read(request: Request<Incoming>) -> Result<PageRequest, PageResponse> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            PageResponse::text(413, "the body is limited to 64 KiB\n")
        } else {
            PageResponse::text(400, "the body was cut off\n")
        }
    })?;
    // The answer to HEAD is that to GET; its body is not sent.
    let method = if head.method == Method::HEAD { Method::GET } else { head.method };
    Ok(PageRequest {
        method: method.to_string(),
        path: head.uri.path().to_owned(),
        body: body.to_bytes().into(),
    })
}

impl Content {
    fn answer(&self, request: &PageRequest) -> PageResponse {
        let own = self.routes.routes.iter().filter(|route| route.1 == request.path);
        let mut known = false;
        for (method, _, answer) in own {
            known = true;
            if *method == request.method {
                return answer(request);
            }
        }
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/metrics") => PageResponse {
                status: 200,
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                body: self.metrics().into_bytes(),
            },
            ("GET", "/snapshot") => PageResponse::json(&self.instruments.snapshot()),
            ("GET", "/health") => self.health(),
            (_, "/metrics" | "/snapshot" | "/health") => not_allowed(),
            _ if known => not_allowed(),
            _ => PageResponse::text(404, format!("there are {}\n", self.paths())),
        }
    }

    /// All paths that can be read, in words.
    fn paths(&self) -> String {
        let mut paths: Vec<&str> =
            self.routes.routes.iter().filter(|own| own.0 == "GET").map(|own| own.1).collect();
        paths.extend(["/metrics", "/snapshot"]);
        format!("{} and /health", paths.join(", "))
    }

    fn metrics(&self) -> String {
        let mut text = metrics::text(&self.instruments.totals());
        for own in &self.routes.metrics {
            text.push_str(&own());
        }
        text
    }

    fn health(&self) -> PageResponse {
        if self.routes.works.as_ref().is_some_and(|works| !works()) {
            return PageResponse::text(503, "it was started and does not work\n");
        }
        let announcement = self.announcement.lock();
        match announcement.as_ref() {
            Some(announcement) => {
                let status = if announcement.ready { 200 } else { 503 };
                PageResponse { status, ..PageResponse::json(announcement) }
            }
            None => PageResponse::text(503, "not ready\n"),
        }
    }
}

fn not_allowed() -> PageResponse {
    PageResponse::text(405, "this path has another method\n")
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn page(routes: Routes) -> Page {
        let instruments = Instruments::new(crate::Layout::default(), crate::Clock::monotonic());
        Page::start("--metrics HOST:PORT", "127.0.0.1:0".parse().unwrap(), instruments, routes)
            .unwrap()
    }

    /// Status, head and body of the answer, as far as it came.
    fn ask(page: &Page, request: &[u8]) -> (u16, String, String) {
        let mut stream = TcpStream::connect(page.address()).unwrap();
        stream.write_all(request).unwrap();
        // The answer comes all the same; one that refuses a head may have closed already.
        stream.shutdown(std::net::Shutdown::Write).unwrap_or_default();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap_or_default(); // a reset may follow it
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    #[test]
    fn a_host_that_is_none_and_too_many_headers_are_refused() {
        let page = page(Routes::new());
        let status = |headers: &str| {
            ask(&page, format!("GET /metrics HTTP/1.1\r\n{headers}\r\n").as_bytes()).0
        };
        assert_eq!(status("Host: a:80\r\n"), 200);
        assert_eq!(status("Host: a b/\r\n"), 400);
        assert_eq!(status("Host:\r\n"), 200);
        assert_eq!(ask(&page, b"GET http://a/metrics HTTP/1.1\r\nHost:\r\n\r\n").0, 400);
        assert_eq!(ask(&page, b"GET http://a/metrics HTTP/1.1\r\nHost: a\r\n\r\n").0, 200);
        assert_eq!(status(""), 400);
        assert_eq!(status("Host: a\r\nhost: a\r\n"), 400);
        assert_eq!(status(&format!("Host: a\r\n{}", "x: y\r\n".repeat(63))), 200);
        assert_eq!(status(&"x: y\r\n".repeat(65)), 431);
        assert_eq!(status(&format!("x: {}\r\n", "y".repeat(9000))), 431);
    }

    #[test]
    fn connections_that_say_nothing_keep_no_probe_out() {
        let page = page(Routes::new());
        let silent: Vec<_> =
            (0..2 * CONNECTIONS).map(|_| TcpStream::connect(page.address()).unwrap()).collect();
        assert_eq!(ask(&page, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").0, 503);
        drop(silent);
    }

    #[test]
    fn routes_get_the_whole_request_and_a_head_is_answered_without_a_body() {
        let echo = |asked: &PageRequest| PageResponse::text(200, format!("{asked:?}"));
        let page = page(Routes::new().with("POST", "/workers", echo).with("GET", "/x", echo));
        let (status, head, body) =
            ask(&page, b"POST /workers?now HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n16");
        assert!(status == 200 && head.contains("connection: close"), "{head}");
        for part in ["\"/workers\"", "[49, 54]"] {
            assert!(body.contains(part), "{body}");
        }
        let (_, _, got) = ask(&page, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
        let (status, head, nothing) = ask(&page, b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!((status, nothing.as_str()), (200, ""));
        assert!(head.contains(&format!("content-length: {}", got.len())), "{head}");
        assert_eq!(ask(&page, b"HEAD /workers HTTP/1.1\r\nHost: x\r\n\r\n").0, 405);
    }

    #[test]
    fn a_tier_that_was_started_and_does_not_work_is_not_healthy() {
        let works = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&works);
        let page = page(Routes::new().healthy_while(move || asked.load(Ordering::SeqCst)));
        let status = || ask(&page, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").0;
        assert_eq!(status(), 503);
        page.announce(Announcement {
            ready: true,
            tier: "test".to_owned(),
            listen: Vec::new(),
            metrics: None,
            pid: 1,
        });
        assert_eq!(status(), 200);
        works.store(false, Ordering::SeqCst);
        assert_eq!(status(), 503);
    }

    #[test]
    fn who_asks_for_a_path_that_is_not_there_hears_which_are() {
        let own = |_: &PageRequest| PageResponse::html("");
        let page = page(Routes::new().with("GET", "/status", own).with("PUT", "/control", own));
        let (status, _, body) = ask(&page, b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
        let words = "there are /status, /metrics, /snapshot and /health\n";
        assert_eq!((status, body.as_str()), (404, words));
    }

    #[test]
    fn noise_endless_heads_and_large_bodies_are_refused() {
        let page = page(Routes::new());
        assert_eq!(ask(&page, b"\0\x01\x02\r\n\r\n").0, 400);
        let mut endless = b"GET / HTTP/1.1\r\nX: ".to_vec();
        endless.resize(500_000, b'a');
        assert_eq!(ask(&page, &endless).0, 431);
        let post = |length: &str| {
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
        };
        let large = post("99999999") + &"x".repeat(BODY_BYTES + 1);
        assert_eq!(ask(&page, large.as_bytes()).0, 413);
        assert_eq!(ask(&page, post("-1").as_bytes()).0, 400);
    }
}
