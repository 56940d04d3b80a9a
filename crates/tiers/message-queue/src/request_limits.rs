//! The way in, before a request is read: what clients may make the middleware hold, and for how long
//! they may ask it to.
//!
//! A request is held in memory until its last byte has come. A client that begins a thousand large ones
//! on a connection and finishes none would fill the memory with them, so that those under way have a
//! bound together, and a time. Small ones have a bound of their own: large ones do not shut them out.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Sleep;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::codegen::{BoxFuture, Bytes, Service};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Code, Status};

use crate::connection::{Peer, Removed};
use crate::identity::{self, Tokens};
use crate::refusal::{detailed, too_late};

/// Bytes of small messages, and of large ones, that may be under way at the same time.
const UNDER_WAY: usize = 64 << 20;
/// Bytes of a message up to which it is small.
const SMALL: usize = 64 << 10;
/// Longest time from the first byte of a message to its last.
const WHOLE: Duration = Duration::from_secs(30);
/// A deadline is answered this much early, so that the client gets DEADLINE_EXCEEDED: the library
/// would call it a cancellation.
const EARLY: Duration = Duration::from_millis(1);
/// An answer that takes messages away leaves this much before the deadline: a client that gives up while the answer is in
/// its machine has lost them.
const WAY: Duration = Duration::from_millis(5);
/// Where the client says how long it waits.
const TIMEOUT_HEADER: &str = "grpc-timeout";
/// Many calls on one stream.
const CONVERSE: &str = "/kendall.queue.v1.MessageQueue/Converse";
const STREAMS: [&str; 3] = [
    CONVERSE,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
/// Methods whose answers are long, and cost those who ask nothing.
const LISTINGS: [&str; 3] = [
    "/kendall.queue.v1.MessageQueue/ListDeadLetters",
    "/kendall.queue.v1.MessageQueue/ListArchived",
    "/kendall.queue.v1.MessageQueue/ListQueues",
];
/// Bytes before each gRPC message: a flag and its length.
const PREFIX: usize = 5;
/// Parts (fields) of a message: several times what a batch has at most. An empty part has two bytes and becomes a
/// hundred times as many in memory.
const PARTS: usize = 1 << 16;

/// When an answer that takes messages away must leave, on the clock of the tier; an extension of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due(pub(crate) u64);

/// A gRPC service behind the way in. Clones share the bound.
#[derive(Debug, Clone)]
pub(crate) struct RequestLimits<S> {
    service: S,
    under_way: Arc<UnderWay>,
    /// Who may come in; anyone where there are none.
    tokens: Option<Arc<Tokens>>,
    /// Whether its requests keep their connection from being closed for a new one.
    counts: bool,
}

/// Bytes of messages that have not come to their end.
#[derive(Debug, Default)]
struct UnderWay {
    small: AtomicUsize,
    large: AtomicUsize,
}

impl<S> RequestLimits<S> {
    pub(crate) fn new(service: S) -> Self {
        Self { service, under_way: Arc::default(), tokens: None, counts: true }
    }

    /// For a service without tokens: its requests, which may last for ever, do not count towards the limit of clients
    /// with one.
    pub(crate) fn uncounted(self) -> Self {
        Self { counts: false, ..self }
    }

    /// Lets in only those who have a token, if there are any.
    pub(crate) fn for_holders(self, tokens: Option<Arc<Tokens>>) -> Self {
        Self { tokens, ..self }
    }
}

impl<S: NamedService> NamedService for RequestLimits<S> {
    const NAME: &'static str = S::NAME;
}

type Answered = BoxFuture<Response<Body>, Infallible>;

/// All services. The queue's calls go straight to it: the router looks up each path anew, clones the service it finds, and
/// wraps the bodies of request and answer twice more.
#[derive(Debug, Clone)]
pub(crate) struct Front<Q> {
    pub(crate) queue: Q,
    pub(crate) others: Routes,
}

impl<Q> Service<Request<Body>> for Front<Q>
where
    Q: NamedService
        + Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = Answered>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answered;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match self.queue.poll_ready(context) {
            Poll::Ready(Ok(())) => Service::<Request<Body>>::poll_ready(&mut self.others, context),
            other => other,
        }
    }

    fn call(&mut self, request: Request<Body>) -> Answered {
        let path = request.uri().path().strip_prefix('/');
        let method = path.and_then(|path| path.strip_prefix(Q::NAME)?.strip_prefix('/'));
        if method.is_some() {
            self.queue.call(request)
        } else {
            Box::pin(self.others.call(request))
        }
    }
}

impl<S> Service<Request<Body>> for RequestLimits<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = Answered>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answered;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Answered {
        if let Some(tokens) = &self.tokens {
            match identity::identify(tokens, request.headers()) {
                Ok(identity) => drop(request.extensions_mut().insert(identity)),
                Err(refused) => return Box::pin(async move { Ok(refused.into_http()) }),
            }
        }
        let timeout = timeout(request.headers());
        let peer = request.extensions().get::<Peer>().cloned();
        let due = timeout
            .zip(peer.clone())
            .map(|(timeout, peer)| (peer.after(timeout.saturating_sub(WAY)), peer));
        if let Some((due_ns, _)) = due {
            request.extensions_mut().insert(Due(due_ns));
        }
        let under_way = Arc::clone(&self.under_way);
        // A stream of requests may be silent; what is asked once is asked at once.
        let once = !STREAMS.contains(&request.uri().path());
        let open = peer.as_ref().filter(|_| self.counts).map(Peer::begin);
        // Calls of a stream count, and not the stream.
        let open = open.filter(|_| request.uri().path() != CONVERSE);
        let listing =
            peer.as_ref().filter(|_| LISTINGS.contains(&request.uri().path())).map(Peer::listing);
        let request = request.map(|body| Body::new(Held::new(body, under_way, once)));
        let answered = self.service.call(request);
        let answered = async move {
            let listing = match listing {
                Some(place) => place.await,
                None => None,
            };
            let answer = in_time(answered.await?, due.as_ref());
            // As long as the answer goes out, its request is open.
            let held = (open, listing);
            let answering = |body: Body| {
                Body::new(body.map_frame(move |frame| {
                    let _held = &held;
                    frame
                }))
            };
            Ok(with_reason(answer).map(answering))
        };
        Box::pin(async move {
            let Some(timeout) = timeout else { return answered.await };
            match tokio::time::timeout(timeout.saturating_sub(EARLY), answered).await {
                Ok(answer) => answer,
                Err(_) => Ok(detailed(Status::deadline_exceeded(
                    "the client's deadline came first; the request may or may not have been \
                     executed",
                ))
                .into_http()),
            }
        })
    }
}

/// An answer that leaves in time; where it would take messages away and is late, these go back.
fn in_time(mut answer: Response<Body>, due: Option<&(u64, Peer)>) -> Response<Body> {
    if let Some((due_ns, peer)) = due
        && peer.after(Duration::ZERO) > *due_ns
        && let Some(Removed(messages)) = answer.extensions_mut().remove()
    {
        peer.put_back(messages);
        return too_late().into_http();
    }
    answer
}

/// The answer; a refusal has a reason.
fn with_reason(answer: Response<Body>) -> Response<Body> {
    match Status::from_header_map(answer.headers()) {
        Some(status) if status.code() != Code::Ok && status.details().is_empty() => {
            detailed(status).into_http()
        }
        _ => answer,
    }
}

/// The time that the client gives, if it says: up to eight digits and a unit.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT_HEADER)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit())
    {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(3600 * number),
        "M" => Duration::from_secs(60 * number),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// A request's body, counted as long as a message of it is under way.
#[derive(Debug)]
struct Held {
    body: Body,
    under_way: Arc<UnderWay>,
    /// Whether a message is to come that has not begun.
    awaited: bool,
    /// Bytes of the message that is under way, as counted in `under_way`: small and large.
    small: usize,
    large: usize,
    /// What has come of the prefix of the next message.
    prefix: [u8; PREFIX],
    prefix_bytes: usize,
    /// Bytes that the message lacks.
    lacking: usize,
    parts: Parts,
    /// Runs while a message is awaited.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Held {
    fn new(body: Body, under_way: Arc<UnderWay>, awaited: bool) -> Self {
        Self {
            body,
            under_way,
            awaited,
            small: 0,
            large: 0,
            prefix: [0; PREFIX],
            prefix_bytes: 0,
            lacking: 0,
            parts: Parts::default(),
            patience: None,
        }
    }

    /// Whether a message has begun, or shall, and not ended.
    fn within(&self) -> bool {
        self.awaited || self.lacking > 0 || self.prefix_bytes > 0
    }

    /// Goes through the messages in `bytes`, and counts what is left under way.
    fn count(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        while !bytes.is_empty() {
            if self.lacking > 0 {
                let come = bytes.len().min(self.lacking);
                self.lacking -= come;
                self.parts.read(&bytes[..come]);
                bytes = &bytes[come..];
                if self.parts.found > PARTS {
                    return Err(Status::invalid_argument(format!(
                        "a request of more than {PARTS} parts"
                    )));
                }
                if self.lacking > 0 {
                    self.add(come)?;
                } else {
                    self.release();
                }
            } else {
                self.prefix[self.prefix_bytes] = bytes[0];
                self.prefix_bytes += 1;
                bytes = &bytes[1..];
                if self.prefix_bytes == PREFIX {
                    self.parts = Parts::default();
                    let [_, a, b, c, d] = self.prefix;
                    self.prefix_bytes = 0;
                    self.awaited = false;
                    self.lacking = usize::try_from(u32::from_be_bytes([a, b, c, d]))
                        .expect("a usize is no less than a u32");
                }
            }
        }
        if !self.within() {
            self.patience = None;
        }
        Ok(())
    }

    fn add(&mut self, bytes: usize) -> Result<(), Status> {
        let small = bytes.min(SMALL.saturating_sub(self.small));
        let large = bytes - small;
        self.small += small;
        self.large += large;
        let all_small = self.under_way.small.fetch_add(small, Ordering::Relaxed) + small;
        let all_large = self.under_way.large.fetch_add(large, Ordering::Relaxed) + large;
        if (small > 0 && all_small > UNDER_WAY) || (large > 0 && all_large > UNDER_WAY) {
            return Err(Status::resource_exhausted(
                "too many bytes of unfinished requests; try again later",
            ));
        }
        Ok(())
    }

    fn release(&mut self) {
        self.under_way.small.fetch_sub(self.small, Ordering::Relaxed);
        self.under_way.large.fetch_sub(self.large, Ordering::Relaxed);
        (self.small, self.large) = (0, 0);
    }
}

/// Counts the fields of an encoded message as its bytes come; what is within them is passed over.
#[derive(Debug, Default)]
struct Parts {
    found: usize,
    next: Next,
    /// The number that is being read, and the place of its next bits.
    number: u64,
    shift: u32,
    /// Bytes of a field that are passed over.
    skip: usize,
}

/// What the number is that comes next.
#[derive(Debug, Default, Clone, Copy)]
enum Next {
    /// A field's number and kind.
    #[default]
    Field,
    Value,
    Length,
}

impl Parts {
    fn read(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.skip > 0 {
                let passed = self.skip.min(bytes.len());
                self.skip -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            bytes = rest;
            self.number |= u64::from(first & 0x7f).checked_shl(self.shift).unwrap_or_default();
            self.shift = self.shift.saturating_add(7);
            if first & 0x80 == 0 {
                self.shift = 0;
                let number = std::mem::take(&mut self.number);
                self.read_number(number);
            }
        }
    }

    fn read_number(&mut self, number: u64) {
        match self.next {
            Next::Value => self.next = Next::Field,
            Next::Length => {
                self.skip = usize::try_from(number).unwrap_or(usize::MAX);
                self.next = Next::Field;
            }
            Next::Field => {
                self.found += 1;
                // Kinds of Protocol Buffers. Where it is none of them, or the end of what has not begun, decoding
                // ends: what comes after it becomes nothing.
                match number & 7 {
                    0 => self.next = Next::Value,
                    1 => self.skip = 8,
                    2 => self.next = Next::Length,
                    3 => {}
                    5 => self.skip = 4,
                    _ => self.skip = usize::MAX,
                }
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some(Ok(frame)) = &frame
                && let Some(bytes) = frame.data_ref()
                && let Err(refused) = self.count(bytes)
            {
                return Poll::Ready(Some(Err(refused)));
            }
            return Poll::Ready(frame);
        }
        if self.within() {
            let patience = self.patience.get_or_insert_with(|| Box::pin(patience()));
            ready!(patience.as_mut().poll(context));
            let text = format!("the request did not come to its end within {} s", WHOLE.as_secs());
            return Poll::Ready(Some(Err(Status::deadline_exceeded(text))));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a bound of half a minute, which milliseconds do not matter to"
)]
fn patience() -> Sleep {
    tokio::time::sleep(WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(under_way: &Arc<UnderWay>) -> Held {
        Held::new(Body::empty(), Arc::clone(under_way), false)
    }

    fn counted(under_way: &UnderWay) -> [usize; 2] {
        [&under_way.small, &under_way.large].map(|count| count.load(Ordering::Relaxed))
    }

    /// A message of `length` bytes, as gRPC frames it.
    fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.resize(PREFIX + length as usize, 7);
        bytes
    }

    #[test]
    fn whole_messages_are_not_counted_however_they_are_cut() {
        let bytes: Vec<u8> = [0, 1, 7, 300].into_iter().flat_map(message).collect();
        for cut in 1..40 {
            let under_way = Arc::default();
            let mut body = held(&under_way);
            for piece in bytes.chunks(cut) {
                body.count(piece).unwrap();
            }
            assert!(!body.within());
            assert_eq!(counted(&under_way), [0, 0]);
        }
    }

    #[test]
    fn unfinished_messages_have_a_bound_and_large_ones_leave_room_for_small_ones() {
        let under_way = Arc::default();
        let large = &message(16 << 20)[..15 << 20];
        let mut bodies: Vec<Held> = Vec::new();
        let refused = loop {
            let mut body = held(&under_way);
            if let Err(refused) = body.count(large) {
                break refused;
            }
            bodies.push(body);
        };
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(bodies.len(), 4, "as many as fit into 64 MiB");
        let mut small = held(&under_way);
        small.count(&message(2000)[..1000]).unwrap();
        assert_eq!(counted(&under_way)[0], 4 * SMALL + 1000 - PREFIX);
        bodies.clear();
        drop(small);
        assert_eq!(counted(&under_way), [0, 0], "what is gone leaves room");
    }

    #[test]
    fn a_request_that_never_comes_is_awaited_for_a_while() {
        let mut body = Held::new(Body::empty(), Arc::default(), true);
        assert!(body.within());
        body.count(&message(0)).unwrap();
        assert!(!body.within());
    }

    /// Bytes that are cheap to send and dear to decode.
    #[test]
    fn parts_are_counted_however_the_bytes_are_cut() {
        use kendall_protocols::queue::{SendBatchRequest, SendRequest};
        use prost::Message as _;
        let one = SendRequest { queue_id: 1 << 40, content: "x".repeat(300), ..Default::default() };
        let messages = vec![SendRequest::default(), one, SendRequest::default()];
        let batch = SendBatchRequest { messages }.encode_to_vec();
        // A number, eight bytes and four bytes, as other messages may have.
        let plain = [8, 0xff, 1, 17, 1, 2, 3, 4, 5, 6, 7, 8, 29, 1, 2, 3, 4, 8, 0];
        for cut in 1..40 {
            for (bytes, fields) in [(&batch[..], 3), (&plain[..], 4)] {
                let mut parts = Parts::default();
                bytes.chunks(cut).for_each(|piece| parts.read(piece));
                assert_eq!(parts.found, fields, "cut into pieces of {cut}");
            }
        }
        let under_way = Arc::default();
        let few = |parts: usize| {
            let body = [10, 0].repeat(parts);
            let mut bytes = vec![0];
            bytes.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
            bytes.extend(body);
            bytes
        };
        // Each message is counted by itself.
        let mut body = held(&under_way);
        body.count(&few(PARTS)).unwrap();
        body.count(&few(PARTS)).unwrap();
        let refused = body.count(&few(PARTS + 1)).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        drop(body);
        assert_eq!(counted(&under_way), [0, 0]);
    }

    /// Answers at once, or never.
    #[derive(Clone)]
    struct Fake {
        answers: bool,
    }

    impl NamedService for Fake {
        const NAME: &'static str = "kendall.Here";
    }

    impl Service<Request<Body>> for Fake {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Answered;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Answered {
            if self.answers {
                Box::pin(async { Ok(Response::new(Body::empty())) })
            } else {
                Box::pin(std::future::pending())
            }
        }
    }

    #[test]
    fn calls_of_the_service_alone_go_past_the_router() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (path, here) in [
            ("/kendall.Here/Do", true),
            ("/kendall.Here", false),
            ("/kendall.Hereafter/Do", false),
            ("/other.kendall.Here/Do", false),
            ("/", false),
        ] {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            let mut front = Front { queue: Fake { answers: true }, others: Routes::default() };
            let answer = runtime.block_on(front.call(request)).unwrap();
            let unimplemented = answer.headers().get("grpc-status").is_some_and(|s| s == "12");
            assert_eq!(unimplemented, !here, "{path}: {answer:?}");
        }
    }

    #[test]
    fn a_deadline_is_answered_by_its_name() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut request = Request::new(Body::empty());
        request.headers_mut().insert("grpc-timeout", "5m".parse().unwrap());
        let answer =
            runtime.block_on(RequestLimits::new(Fake { answers: false }).call(request)).unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4");
    }

    #[test]
    fn times_are_read_as_grpc_writes_them() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            timeout(&headers)
        };
        assert_eq!(read("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("99999999u"), Some(Duration::from_micros(99_999_999)));
        for wrong in ["", "m", "1", "1x", "-1m", "999999999m", "1é"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
