//! gRPC messages on HTTP bodies, in and out.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::{Body, Frame};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use kendall_tier::serve::Bounds;
use tonic::{Code, Status};

use crate::listen::{Client, Incoming};

/// Bytes before each message: a flag and its length.
pub(crate) const PREFIX: usize = 5;
/// Largest message that is taken.
pub(crate) const MESSAGE_BYTES: usize = 16 << 20;
/// Longest time in which fewer than [`STEP`] bytes come of a request that has begun.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
pub(crate) const STEP: usize = 4 << 10;

/// Bytes of unfinished requests that may be held.
#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    bounds: Bounds,
}

impl Budget {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), bounds })
    }

    /// Bytes that are held.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// Bytes held by one request; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Arc<Budget>,
    client: Client,
    bytes: usize,
}

impl Held {
    pub(crate) fn new(budget: &Arc<Budget>, client: &Client) -> Self {
        Self { budget: Arc::clone(budget), client: client.clone(), bytes: 0 }
    }

    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), Status> {
        let (budget, client) = (&self.budget, &self.client);
        self.bytes += bytes;
        let bounds = [
            (&budget.held, budget.bounds.whole, "by all clients"),
            (&client.connection.held, budget.bounds.connection, "by one connection"),
            (&client.peer.held, budget.bounds.peer, "by one address"),
        ];
        let mut refused = None;
        for (held, most, whom) in bounds {
            if held.fetch_add(bytes, Ordering::Relaxed) + bytes > most {
                refused = Some((most, whom));
            }
        }
        let Some((most, whom)) = refused else { return Ok(()) };
        Err(Status::resource_exhausted(format!(
            "more than {most} bytes of unfinished requests would be held {whom}; try again"
        )))
    }

    /// Holds no more than so many any longer.
    fn keep(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        for held in [&self.budget.held, &self.client.connection.held, &self.client.peer.held] {
            held.fetch_sub(less, Ordering::Relaxed);
        }
        self.bytes -= less;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keep(0);
    }
}

/// The messages of a request.
#[derive(Debug)]
pub(crate) struct Messages {
    body: Incoming,
    parts: VecDeque<Bytes>,
    length: usize,
    held: Held,
    pub(crate) read: u64,
}

impl Messages {
    pub(crate) fn new(body: Incoming, budget: &Arc<Budget>, client: &Client) -> Self {
        Self { body, parts: VecDeque::new(), length: 0, held: Held::new(budget, client), read: 0 }
    }

    /// The next message, in the parts in which it came; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Bytes>>, Status> {
        let Some(prefix) = self.wait_for(PREFIX).await? else { return Ok(None) };
        let mut head = [0; PREFIX];
        let mut filled = 0;
        for part in &prefix {
            head[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if head[0] != 0 {
            return Err(Status::unimplemented("compressed gRPC messages are not spoken here"));
        }
        if length > MESSAGE_BYTES {
            return Err(Status::resource_exhausted(format!(
                "a message of {length} bytes is more than {MESSAGE_BYTES}; send large blobs by \
                 ByteStream"
            )));
        }
        match self.wait_for(length).await? {
            Some(parts) => Ok(Some(parts)),
            None => Err(Status::internal("the request ended within a message")),
        }
    }

    /// The only message, in one piece.
    pub(crate) async fn only(&mut self) -> Result<Bytes, Status> {
        let parts = self.next().await?;
        let parts = parts.ok_or_else(|| Status::internal("the request has no message"))?;
        Ok(join(parts))
    }

    /// The next `length` bytes; `None` when the body ended before the first of them.
    async fn wait_for(&mut self, length: usize) -> Result<Option<Vec<Bytes>>, Status> {
        // What was taken before is used no longer.
        self.held.keep(self.length);
        while self.length < length {
            // Each step has its time: a byte now and then does not keep a request open.
            let until = length.min(self.length + STEP);
            let came = tokio::time::timeout(SILENCE, self.fill(until)).await;
            let came = came.map_err(|_| Status::deadline_exceeded(too_slow()))??;
            if !came && self.length == 0 {
                return Ok(None);
            }
            if !came {
                return Err(Status::internal("the request ended within a message"));
            }
        }
        let mut taken = Vec::with_capacity(self.parts.len());
        let mut missing = length;
        while missing > 0 {
            let Some(mut part) = self.parts.pop_front() else { break };
            if part.len() > missing {
                self.parts.push_front(part.split_off(missing));
            }
            missing -= part.len();
            taken.push(part);
        }
        self.length -= length;
        Ok(Some(taken))
    }

    /// Reads until so many bytes are held; false when the body ended before.
    async fn fill(&mut self, until: usize) -> Result<bool, Status> {
        while self.length < until {
            match self.body.frame().await {
                None => return Ok(false),
                Some(Err(error)) => return Err(Status::cancelled(error.to_string())),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if data.is_empty() {
                        continue;
                    }
                    self.held.add(data.len())?;
                    self.read += data.len() as u64;
                    self.length += data.len();
                    self.parts.push_back(data);
                }
            }
        }
        Ok(true)
    }
}

/// Why a request that came too slowly was ended.
pub(crate) fn too_slow() -> String {
    format!("fewer than {STEP} bytes came in {} s", SILENCE.as_secs())
}

/// Parts in one piece.
pub(crate) fn join(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in &parts {
        whole.put_slice(part);
    }
    whole.freeze()
}

/// A body that is read whole, as HTTP sends it.
pub(crate) async fn collect(
    body: &mut Incoming,
    most: usize,
    held: &mut Held,
) -> Result<Bytes, Status> {
    let collected = async {
        let (mut parts, mut length) = (Vec::new(), 0);
        loop {
            match body.frame().await {
                None => return Ok(join(parts)),
                Some(Err(error)) => return Err(Status::cancelled(error.to_string())),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    length += data.len();
                    if length > most {
                        return Err(Status::resource_exhausted(format!("more than {most} bytes")));
                    }
                    held.add(data.len())?;
                    parts.push(data);
                }
            }
        }
    };
    let collected = tokio::time::timeout(SILENCE, collected).await;
    collected.map_err(|_| {
        let seconds = SILENCE.as_secs();
        Status::deadline_exceeded(format!("the request did not come whole within {seconds} s"))
    })?
}

/// What comes after the first part of an answer.
pub(crate) trait More: Send {
    /// The next part; `None` after the last, and an empty one where it needs another turn.
    fn next(&mut self) -> Result<Option<Bytes>, Status>;
    /// Called once at the end, with the outcome.
    fn ended(&mut self, code: Code);
}

pub(crate) struct Answer {
    parts: VecDeque<Bytes>,
    more: Option<Box<dyn More>>,
    trailers: Option<HeaderMap>,
    /// Whether trailers tell how it ended, as gRPC has it.
    grpc: bool,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Answer({} parts)", self.parts.len())
    }
}

impl Answer {
    /// A body of HTTP.
    pub(crate) fn plain(bytes: Bytes) -> Self {
        let parts = if bytes.is_empty() { VecDeque::new() } else { VecDeque::from([bytes]) };
        Self { parts, more: None, trailers: None, grpc: false }
    }

    /// A body of HTTP that is made while it is sent.
    pub(crate) fn made(more: Box<dyn More>) -> Self {
        Self { parts: VecDeque::new(), more: Some(more), trailers: None, grpc: false }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(part) = self.parts.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        if let Some(more) = &mut self.more {
            match more.next() {
                // Nothing yet: others have their turn first.
                Ok(Some(part)) if part.is_empty() => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Some(part)) => return Poll::Ready(Some(Ok(Frame::data(part)))),
                Ok(None) => more.ended(Code::Ok),
                Err(status) => {
                    more.ended(status.code());
                    self.more = None;
                    if !self.grpc {
                        let broken = std::io::Error::other(status.message().to_owned());
                        return Poll::Ready(Some(Err(broken)));
                    }
                    let mut trailers = HeaderMap::new();
                    // What cannot be written as a header is left out.
                    status.add_header(&mut trailers).unwrap_or_default();
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
            }
            self.more = None;
            if self.grpc {
                self.trailers = Some(fine());
            }
        }
        match self.trailers.take() {
            Some(trailers) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty() && self.more.is_none() && self.trailers.is_none()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(more) = &mut self.more {
            more.ended(Code::Cancelled);
        }
    }
}

fn fine() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

fn answered(body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// The prefix of a message of `length` bytes.
pub(crate) fn put_prefix(out: &mut BytesMut, length: usize) {
    out.put_u8(0);
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

/// An answer of one message, which `message` holds behind space for the prefix.
pub(crate) fn unary(mut message: BytesMut) -> Response<Answer> {
    let length = u32::try_from(message.len() - PREFIX).unwrap_or(u32::MAX);
    message[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    let parts = VecDeque::from([message.freeze()]);
    answered(Answer { parts, more: None, trailers: Some(fine()), grpc: true })
}

/// Space for the prefix, before a message of about `bytes` bytes.
pub(crate) fn message(bytes: usize) -> BytesMut {
    let mut message = BytesMut::with_capacity(PREFIX + bytes);
    message.put_slice(&[0; PREFIX]);
    message
}

/// An answer of one message of the library's types.
pub(crate) fn encoded(value: &impl prost::Message) -> Response<Answer> {
    let mut out = message(value.encoded_len());
    value.encode(&mut out).expect("a growing buffer takes all");
    unary(out)
}

/// An answer of many messages.
pub(crate) fn stream(first: Vec<Bytes>, more: Option<Box<dyn More>>) -> Response<Answer> {
    let trailers = more.is_none().then(fine);
    answered(Answer { parts: first.into(), more, trailers, grpc: true })
}

/// An answer that says what is wrong.
pub(crate) fn refused(status: &Status) -> Response<Answer> {
    let body = Answer { parts: VecDeque::new(), more: None, trailers: None, grpc: true };
    let mut response = answered(body);
    status.add_header(response.headers_mut()).unwrap_or_default();
    response
}
