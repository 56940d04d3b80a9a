//! The metrics page: a small HTTP server on its own low-priority threads.
//!
//! `GET /metrics` is Prometheus text, `GET /snapshot` the JSON of
//! [`TierSnapshot`](kendall_protocols::snapshot::TierSnapshot), `GET /health` answers 200 when the
//! tier is ready, with the addresses at which it can be reached. A tier may add routes of its own.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};

use crate::instruments::Instruments;
use crate::metrics;
use crate::stop::Waker;

/// Connections served at once; further ones are closed.
const CONNECTIONS: usize = 8;
/// Bytes of a request's head and body.
const HEAD_BYTES: usize = 8 << 10;
const BODY_BYTES: usize = 64 << 10;
/// Headers of a request.
const HEADERS: usize = 64;
/// Time for one request, reading and writing.
const REQUEST_NS: u64 = 2_000_000_000;
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
    /// After the `?`; empty when there is none.
    pub query: String,
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
}

/// The page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The address is taken or not ours.
    #[error("cannot serve metrics at {address}; choose another with --metrics HOST:PORT")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// The system gives no descriptor or thread.
    #[error("cannot start the metrics page")]
    Start(#[source] io::Error),
}

/// The running page. Dropped, it ends.
#[derive(Debug)]
pub struct Page {
    address: SocketAddr,
    announcement: Arc<Mutex<Option<Announcement>>>,
    end: Waker,
    thread: Option<JoinHandle<()>>,
}

impl PageResponse {
    /// 200 with a JSON body.
    ///
    /// # Panics
    /// When `value` has a map whose keys are not texts: a defect of the type.
    #[must_use]
    pub fn json(value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("the type serializes to JSON");
        Self { status: 200, content_type: "application/json", body }
    }

    /// A status with a line of text.
    #[must_use]
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: text.into().into_bytes() }
    }

    /// 200 with a page for people.
    #[must_use]
    pub fn html(text: impl Into<String>) -> Self {
        let content_type = "text/html; charset=utf-8";
        Self { status: 200, content_type, body: text.into().into_bytes() }
    }
}

impl Routes {
    #[must_use]
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
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.routes.iter().map(|route| (route.0, route.1))).finish()
    }
}

struct Site {
    instruments: Instruments,
    routes: Routes,
    announcement: Arc<Mutex<Option<Announcement>>>,
    open: AtomicUsize,
}

impl Page {
    /// Serves the page; `/health` answers 503 until [`announce`](Self::announce).
    ///
    /// # Errors
    /// [`PageError`] when the address cannot be bound or the system is out of resources.
    pub fn start(
        address: SocketAddr,
        instruments: Instruments,
        routes: Routes,
    ) -> Result<Self, PageError> {
        let listener =
            TcpListener::bind(address).map_err(|source| PageError::Bind { address, source })?;
        let address = listener.local_addr().map_err(PageError::Start)?;
        listener.set_nonblocking(true).map_err(PageError::Start)?;
        let end = Waker::new().map_err(PageError::Start)?;
        let announcement = Arc::new(Mutex::new(None));
        let site = Arc::new(Site {
            instruments,
            routes,
            announcement: Arc::clone(&announcement),
            open: AtomicUsize::new(0),
        });
        let ended = end.clone();
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || accept(&listener, &ended, &site))
            .map_err(PageError::Start)?;
        Ok(Self { address, announcement, end, thread: Some(thread) })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// States that the tier is ready, or that it no longer is.
    pub fn announce(&self, announcement: Announcement) {
        *self.announcement.lock().unwrap_or_else(PoisonError::into_inner) = Some(announcement);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.end.wake();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_default();
        }
    }
}

fn accept(listener: &TcpListener, end: &Waker, site: &Arc<Site>) {
    // Threads inherit it. Refused, the page is served all the same.
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE).unwrap_or_default();
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        if poll(&mut ready, None).is_err() {
            continue;
        }
        if !ready[1].revents().is_empty() {
            return;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        if site.open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS {
            site.open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let here = Arc::clone(site);
        let started = std::thread::Builder::new().name("metrics-reader".into()).spawn(move || {
            // A reader that goes away or is too slow gets nothing, and that is all.
            here.serve(stream).unwrap_or_default();
            here.open.fetch_sub(1, Ordering::SeqCst);
        });
        if started.is_err() {
            site.open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Site {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let deadline_ns = self.instruments.clock().now_ns() + REQUEST_NS;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(Duration::from_nanos(REQUEST_NS)))?;
        let response = match self.read(&mut stream, deadline_ns)? {
            Ok(request) => self.answer(&request),
            Err(refusal) => refusal,
        };
        let head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            response.status,
            reason(response.status),
            response.content_type,
            response.body.len(),
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(&response.body)?;
        stream.shutdown(std::net::Shutdown::Write)
    }

    /// Reads one request, or says how to refuse it.
    fn read(
        &self,
        stream: &mut TcpStream,
        deadline_ns: u64,
    ) -> io::Result<Result<PageRequest, PageResponse>> {
        let mut bytes = Vec::new();
        loop {
            match parse(&bytes) {
                Ok(Some(request)) => return Ok(Ok(request)),
                Err(refusal) => return Ok(Err(refusal)),
                Ok(None) => {}
            }
            let left_ns = deadline_ns.saturating_sub(self.instruments.clock().now_ns());
            if left_ns == 0 {
                return Ok(Err(PageResponse::text(408, "the request took too long\n")));
            }
            stream.set_read_timeout(Some(Duration::from_nanos(left_ns)))?;
            let mut piece = [0_u8; 4096];
            match stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => bytes.extend_from_slice(&piece[..count]),
            }
        }
    }

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
        let announcement = self.announcement.lock().unwrap_or_else(PoisonError::into_inner);
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

impl PageRequest {
    /// The request in `bytes`; `None` when more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, PageResponse> {
        parse(bytes)
    }
}

/// The request in `bytes`; `None` when more bytes are needed.
fn parse(bytes: &[u8]) -> Result<Option<PageRequest>, PageResponse> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let bad = |error| match error {
        httparse::Error::TooManyHeaders => {
            PageResponse::text(431, "at most 64 headers are taken\n")
        }
        _ => PageResponse::text(400, "not an HTTP request\n"),
    };
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).map_err(bad)? else {
        if bytes.len() > HEAD_BYTES {
            return Err(PageResponse::text(431, "the head is limited to 8 KiB\n"));
        }
        return Ok(None);
    };
    if head_bytes > HEAD_BYTES {
        return Err(PageResponse::text(431, "the head is limited to 8 KiB\n"));
    }
    let hosts = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    if !crate::is_host(head.version == Some(1), hosts.map(|header| header.value)) {
        return Err(PageResponse::text(400, "`Host` names one host, with a port or without\n"));
    }
    let length = head.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
    let body_bytes = match length {
        None => 0,
        Some(header) => std::str::from_utf8(header.value)
            .ok()
            .and_then(|text| text.parse::<usize>().ok())
            .ok_or_else(|| PageResponse::text(400, "Content-Length is not a number\n"))?,
    };
    if body_bytes > BODY_BYTES {
        return Err(PageResponse::text(413, "the body is limited to 64 KiB\n"));
    }
    let Some(body) = bytes.get(head_bytes..head_bytes + body_bytes) else { return Ok(None) };
    let target = head.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Some(PageRequest {
        method: head.method.unwrap_or("GET").to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        body: body.to_vec(),
    }))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_none_and_too_many_headers_are_refused() {
        let status = |headers: &str| {
            let request = format!("GET /health HTTP/1.1\r\n{headers}\r\n");
            parse(request.as_bytes()).err().map(|refusal| refusal.status)
        };
        assert_eq!(status("Host: a:80\r\n"), None);
        assert_eq!(status("Host: a b/\r\n"), Some(400));
        assert_eq!(status(""), Some(400));
        assert_eq!(status("Host: a\r\nhost: a\r\n"), Some(400));
        assert_eq!(status(&format!("Host: a\r\n{}", "x: y\r\n".repeat(63))), None);
        assert_eq!(status(&"x: y\r\n".repeat(65)), Some(431));
        assert_eq!(status(&format!("x: {}\r\n", "y".repeat(9000))), Some(431));
    }

    #[test]
    fn a_request_is_whole_only_with_its_last_byte() {
        let bytes = b"POST /workers?now HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n16";
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), Ok(None), "{cut}");
        }
        let request = parse(bytes).unwrap().unwrap();
        assert_eq!((request.path.as_str(), request.query.as_str()), ("/workers", "now"));
        assert_eq!(request.body, b"16");
    }

    #[test]
    fn a_tier_that_was_started_and_does_not_work_is_not_healthy() {
        let works = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let asked = Arc::clone(&works);
        let routes = Routes::new().healthy_while(move || asked.load(Ordering::SeqCst));
        let announcement = Announcement {
            ready: true,
            tier: "test".to_owned(),
            listen: Vec::new(),
            metrics: None,
            pid: 1,
        };
        let site = Site {
            instruments: Instruments::new(crate::Layout::default(), crate::Clock::monotonic()),
            routes,
            announcement: Arc::new(Mutex::new(Some(announcement))),
            open: AtomicUsize::new(0),
        };
        assert_eq!(site.health().status, 200);
        works.store(false, Ordering::SeqCst);
        assert_eq!(site.health().status, 503);
    }

    #[test]
    fn who_asks_for_a_path_that_is_not_there_hears_which_are() {
        let own = |_: &PageRequest| PageResponse::html("");
        let routes = Routes::new().with("GET", "/status", own).with("PUT", "/control", own);
        let site = Site {
            instruments: Instruments::new(crate::Layout::default(), crate::Clock::monotonic()),
            routes,
            announcement: Arc::new(Mutex::new(None)),
            open: AtomicUsize::new(0),
        };
        let request = parse(b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().unwrap();
        let answer = site.answer(&request);
        let words = "there are /status, /metrics, /snapshot and /health\n";
        assert_eq!((answer.status, answer.body.as_slice()), (404, words.as_bytes()));
    }

    #[test]
    fn noise_endless_heads_and_large_bodies_are_refused() {
        assert_eq!(parse(b"\0\x01\x02\r\n\r\n").unwrap_err().status, 400);
        let mut endless = b"GET / HTTP/1.1\r\nX: ".to_vec();
        endless.resize(HEAD_BYTES + 1, b'a');
        assert_eq!(parse(&endless).unwrap_err().status, 431);
        let large = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n";
        assert_eq!(parse(large).unwrap_err().status, 413);
        let lie = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n";
        assert_eq!(parse(lie).unwrap_err().status, 400);
    }
}
