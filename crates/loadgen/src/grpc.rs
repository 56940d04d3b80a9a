//! gRPC calls over one HTTP/2 connection, as the protocol writes them: each message behind a prefix of five bytes,
//! a status in the trailers.

mod access;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, mpsc};

pub use access::{Access, AccessError};

use crate::driver::ErrorKind;
use crate::load::{LoadError, PREPARATION};
use crate::resending::{self, SentAnew, Unanswered};
use crate::tasks::{SameThread, within};
use crate::tls::Reached;

/// Bytes before every message: whether it is compressed, and its length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// A call without an answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// The service said no to this call: what it said, it meant.
    #[error("{text} (gRPC status {code})")]
    Status { code: i32, text: String },
    /// The stream ended before it had answered: whether the call took effect is open.
    #[error("the stream ended before the answer: {text} (gRPC status {code})")]
    Ended { code: i32, text: String },
    /// There was no connection and none could be made: nothing was asked.
    #[error("cannot connect")]
    Connect(#[source] Arc<std::io::Error>),
    #[error("HTTP status {status}{kind}, which is no answer of gRPC")]
    Http { status: u16, kind: String },
    /// The connection broke, or what came over it made no sense: whether the call took effect is
    /// open.
    #[error("no answer ({})", .0.way_out().unwrap_or(.0.name()))]
    Broken(ErrorKind),
}

impl Refusal {
    pub(crate) fn already_exists(&self) -> bool {
        matches!(self, Self::Status { code: 6, .. })
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Status { code, .. } => kind(*code),
            Self::Ended { .. } => ErrorKind::ConnectionClosed,
            Self::Connect(error) => ErrorKind::of_connecting(error),
            Self::Http { .. } => ErrorKind::Garbage,
            Self::Broken(kind) => *kind,
        }
    }
}

/// The kind of error that a gRPC status is.
pub(crate) fn kind(code: i32) -> ErrorKind {
    match code {
        4 => ErrorKind::TimedOut,        // DEADLINE_EXCEEDED
        12 => ErrorKind::UnknownCommand, // UNIMPLEMENTED
        15 => ErrorKind::WrongValue,     // DATA_LOSS
        3 | 5 | 6 | 7 | 9 | 11 | 16 => ErrorKind::ClientError,
        _ => ErrorKind::ServerError,
    }
}

/// Writes a message with its prefix.
pub(crate) fn write(message: &impl Message, out: &mut Vec<u8>) {
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    message.encode_raw(out);
}

/// One connection, open or not, that any number of clients may share.
pub(crate) struct Connection {
    target: SocketAddr,
    access: Access,
    /// Bytes that may be under way to the client; the library's own where it is `None`.
    window: Option<u32>,
    sender: RefCell<Option<SendRequest<Sending>>>,
    opened: Cell<u64>,
    /// Held while it is opened, so that it is opened once.
    opening: Mutex<()>,
    pub(crate) sent_anew: SentAnew,
}

impl Connection {
    pub(crate) fn new(target: SocketAddr, access: Access) -> Self {
        Self {
            target,
            access,
            window: None,
            sender: RefCell::new(None),
            opened: Cell::new(0),
            opening: Mutex::new(()),
            sent_anew: SentAnew::default(),
        }
    }

    /// Whether a call failed as its encrypted connection ended.
    pub(crate) fn ended_encryption(&self, refusal: &Refusal) -> bool {
        let ended = [ErrorKind::TlsFailed, ErrorKind::ConnectionClosed, ErrorKind::ConnectionReset];
        // Where it ended in the greeting of HTTP/2, that library says so.
        let greeting = matches!(refusal, Refusal::Connect(error)
            if error.get_ref().is_some_and(|inner| inner.is::<hyper::Error>()));
        self.access.is_encrypted() && (greeting || ended.contains(&refusal.kind()))
    }

    pub(crate) fn with_window(self, bytes: u32) -> Self {
        Self { window: Some(bytes), ..self }
    }

    pub(crate) async fn open_within(&self, limit: Duration) -> Result<(), LoadError> {
        within(limit, self.target, self.open()).await
    }

    async fn open(&self) -> Result<(), std::io::Error> {
        let sender = match self.access.connect(self.target).await? {
            Reached::Plain(stream) => greet(stream, self.window).await?,
            Reached::Encrypted(stream) => greet(stream, self.window).await?,
        };
        *self.sender.borrow_mut() = Some(sender);
        self.opened.set(self.opened.get() + 1);
        Ok(())
    }

    /// Forgets a connection that broke; one that others opened since stays.
    pub(crate) fn close(&self) {
        let mut sender = self.sender.borrow_mut();
        if sender.as_ref().is_some_and(SendRequest::is_closed) {
            *sender = None;
        }
    }

    /// Drops the connection.
    pub(crate) fn forget(&self) {
        *self.sender.borrow_mut() = None;
    }

    /// A way to send, over a connection that is made where there is none.
    async fn sender(&self) -> Result<SendRequest<Sending>, Refusal> {
        let open = || self.sender.borrow().clone().filter(|sender| !sender.is_closed());
        if let Some(sender) = open() {
            return Ok(sender);
        }
        let _opening = self.opening.lock().await;
        if open().is_none() {
            self.open().await.map_err(|error| Refusal::Connect(Arc::new(error)))?;
        }
        open().ok_or(Refusal::Broken(ErrorKind::ConnectFailed))
    }

    /// Sends a call, anew where the service did not take it.
    async fn respond(
        &self,
        path: &str,
        metadata: &HeaderMap,
        mut sending: impl FnMut() -> Sending,
    ) -> Result<Response<Incoming>, Refusal> {
        let mut times = 0;
        loop {
            let mut sender = self.sender().await?;
            let opened = self.opened.get();
            let mut request = request(self.target, &self.access, path, sending())?;
            request.headers_mut().extend(metadata.clone());
            let unanswered: Unanswered = match sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(error) => error.into(),
            };
            if !self.sent_anew.once_more(unanswered, &mut times) {
                return Err(Refusal::Broken(unanswered.kind));
            }
            // Unless another call has left it.
            if unanswered.leaves(times) && self.opened.get() == opened {
                self.forget();
            }
        }
    }

    /// Calls a method with messages that have their prefixes; the answer's messages, with theirs.
    async fn exchange(&self, path: &str, body: Bytes) -> Result<Bytes, Refusal> {
        let sending = || Sending::whole(body.clone());
        read(self.respond(path, &HeaderMap::new(), sending).await?).await
    }

    /// Calls a method that answers with one message.
    pub(crate) async fn call(&self, path: &str, body: Bytes) -> Result<Bytes, Refusal> {
        let mut answer = self.exchange(path, body).await?;
        let message = take_message(&mut answer)?;
        if answer.is_empty() { Ok(message) } else { Err(Refusal::Broken(ErrorKind::Garbage)) }
    }

    /// Calls a method that answers with any number of messages.
    pub(crate) async fn call_many(&self, path: &str, body: Bytes) -> Result<Vec<Bytes>, Refusal> {
        messages(self.exchange(path, body).await?)
    }

    /// Calls a method and counts the messages of its answer, and their bytes, as they come. `in_turn` sends each
    /// message of the call when one of the answer has come to the one before.
    pub(crate) async fn count(
        &self,
        path: &str,
        metadata: &HeaderMap,
        messages: Bytes,
        in_turn: bool,
    ) -> Result<(u64, u64), Refusal> {
        let (mut left, mut turns) = (Bytes::new(), None);
        let sending = || {
            if !in_turn {
                return Sending::whole(messages.clone());
            }
            left = messages.clone();
            let (sender, receiver) = mpsc::channel(1);
            turns = Some(sender);
            Sending { first: Full::new(take_one(&mut left)), more: Some(receiver) }
        };
        let response = self.respond(path, metadata, sending).await?;
        let is_whole = response.headers().contains_key("grpc-status");
        let mut body = answered(response)?;
        let mut counter = Counter::default();
        let mut released = 0;
        while let Some(frame) = body.frame().await {
            match frame.map_err(|error| broken(&error))?.into_data() {
                Ok(data) => {
                    counter.take(&data)?;
                    while released < counter.whole() {
                        released += 1;
                        if left.is_empty() {
                            turns = None;
                        } else if let Some(turns) = &turns {
                            let sent = turns.send(take_one(&mut left)).await;
                            sent.map_err(|_| Refusal::Broken(ErrorKind::ConnectionClosed))?;
                        }
                    }
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    succeeded(&trailers)?;
                    if !left.is_empty() {
                        let text = "it has messages that were not sent".to_owned();
                        return Err(Refusal::Ended { code: 0, text });
                    }
                    return counter.end();
                }
            }
        }
        // Headers with the status have nothing behind them.
        if is_whole { counter.end() } else { Err(Refusal::Broken(ErrorKind::Garbage)) }
    }

    /// Calls a method before the load, and reads its answer.
    pub(crate) async fn ask<A: Message + Default>(
        &self,
        path: &str,
        request: &impl Message,
    ) -> Result<A, Refusal> {
        let mut body = Vec::new();
        write(request, &mut body);
        let late = |_| Refusal::Broken(ErrorKind::TimedOut);
        let answer = tokio::time::timeout(PREPARATION, self.call(path, body.into())).await;
        A::decode(answer.map_err(late)??).map_err(|_| Refusal::Broken(ErrorKind::Garbage))
    }
}

/// The messages of a call: all at once, or the first and later ones through a channel.
pub(crate) struct Sending {
    first: Full<Bytes>,
    more: Option<mpsc::Receiver<Bytes>>,
}

impl Sending {
    fn whole(body: Bytes) -> Self {
        Self { first: Full::new(body), more: None }
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.first.is_end_stream() {
            return Pin::new(&mut self.first).poll_frame(context);
        }
        match &mut self.more {
            Some(more) => {
                more.poll_recv(context).map(|next| next.map(|next| Ok(Frame::data(next))))
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_end_stream() && self.more.is_none()
    }
}

/// HTTP/2 over a connection, driven by this thread.
async fn greet<S>(stream: S, window: Option<u32>) -> Result<SendRequest<Sending>, std::io::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut builder = Builder::new(SameThread);
    if let Some(bytes) = window {
        builder.initial_stream_window_size(bytes).initial_connection_window_size(bytes);
    }
    let greeted = builder.handshake(TokioIo::new(stream)).await;
    let (sender, driver) = greeted.map_err(std::io::Error::other)?;
    drop(tokio::task::spawn_local(driver));
    Ok(sender)
}

/// A call of a method, as HTTP/2 carries it.
pub(crate) fn request<B>(
    target: SocketAddr,
    access: &Access,
    path: &str,
    body: B,
) -> Result<Request<B>, Refusal> {
    let uri = format!("{}://{target}{path}", access.scheme());
    let uri = Uri::try_from(uri).map_err(|_| Refusal::Broken(ErrorKind::ClientError))?;
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if let Some(token) = access.token() {
        headers.insert(AUTHORIZATION, token.clone());
    }
    Ok(request)
}

/// The body of an answer that may have messages.
fn answered(response: Response<Incoming>) -> Result<Incoming, Refusal> {
    let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if response.status() != StatusCode::OK
        || kind.is_some_and(|kind| !kind.starts_with(b"application/grpc"))
    {
        let kind = kind.map_or_else(String::new, |kind| {
            format!(", content type {}", shown(&String::from_utf8_lossy(kind)))
        });
        return Err(Refusal::Http { status: response.status().as_u16(), kind });
    }
    // An answer without a message has its status in the headers.
    refused(response.headers())?;
    Ok(response.into_body())
}

/// Whether the status at the end is there and says yes.
fn succeeded(trailers: &HeaderMap) -> Result<(), Refusal> {
    refused(trailers)?;
    if trailers.contains_key("grpc-status") {
        Ok(())
    } else {
        Err(Refusal::Broken(ErrorKind::Garbage))
    }
}

async fn read(response: Response<Incoming>) -> Result<Bytes, Refusal> {
    let headers = response.headers().clone();
    let body = answered(response)?.collect().await.map_err(|error| broken(&error))?;
    succeeded(body.trailers().unwrap_or(&headers))?;
    Ok(body.to_bytes())
}

/// Counts messages by their prefixes, in pieces of any size.
#[derive(Debug, Default)]
struct Counter {
    messages: u64,
    bytes: u64,
    /// Bytes of the message that are still to come.
    left: u64,
    prefix: Vec<u8>,
}

impl Counter {
    fn take(&mut self, mut data: &[u8]) -> Result<(), Refusal> {
        self.bytes += data.len() as u64;
        while !data.is_empty() {
            if self.left > 0 {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
                self.left -= taken as u64;
                data = &data[taken..];
                continue;
            }
            let taken = (PREFIX_BYTES - self.prefix.len()).min(data.len());
            self.prefix.extend_from_slice(&data[..taken]);
            data = &data[taken..];
            if let [compressed, length @ ..] = &self.prefix[..]
                && let Some(length) = length.first_chunk()
            {
                if *compressed != 0 {
                    return Err(Refusal::Broken(ErrorKind::Garbage));
                }
                self.left = u32::from_be_bytes(*length).into();
                self.messages += 1;
                self.prefix.clear();
            }
        }
        Ok(())
    }

    /// Messages that are there to their ends.
    fn whole(&self) -> u64 {
        self.messages - u64::from(self.left > 0)
    }

    /// Messages and bytes, where the last message is whole.
    fn end(&self) -> Result<(u64, u64), Refusal> {
        if self.left > 0 || !self.prefix.is_empty() {
            return Err(Refusal::Broken(ErrorKind::Garbage));
        }
        Ok((self.messages, self.bytes))
    }
}

/// The next message of a call, with its prefix.
fn take_one(body: &mut Bytes) -> Bytes {
    let prefix = body.first_chunk::<PREFIX_BYTES>();
    let length = prefix.map_or(0, |[_, length @ ..]| u32::from_be_bytes(*length));
    let length = PREFIX_BYTES.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
    body.split_to(length.min(body.len()))
}

/// The messages of an answer, each in one piece.
fn messages(mut body: Bytes) -> Result<Vec<Bytes>, Refusal> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        messages.push(take_message(&mut body)?);
    }
    Ok(messages)
}

fn take_message(body: &mut Bytes) -> Result<Bytes, Refusal> {
    let garbage = || Refusal::Broken(ErrorKind::Garbage);
    let [compressed, length @ ..] = *body.first_chunk::<5>().ok_or_else(garbage)?;
    body.advance(PREFIX_BYTES);
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_| garbage())?;
    if compressed != 0 || body.len() < length {
        return Err(garbage());
    }
    Ok(body.split_to(length))
}

/// The status, if there is one that says no.
pub(crate) fn refused(headers: &HeaderMap) -> Result<(), Refusal> {
    match status(headers)? {
        None | Some((0, _)) => Ok(()),
        Some((code, text)) => Err(Refusal::Status { code, text }),
    }
}

/// The status and its words, where there is one.
pub(crate) fn status(headers: &HeaderMap) -> Result<Option<(i32, String)>, Refusal> {
    let Some(code) = headers.get("grpc-status") else { return Ok(None) };
    let code = code.to_str().ok().and_then(|code| code.parse().ok());
    let code = code.ok_or(Refusal::Broken(ErrorKind::Garbage))?;
    let text = headers.get("grpc-message").map(HeaderValue::as_bytes).unwrap_or_default();
    Ok(Some((code, shown(&percent_decode(text).decode_utf8_lossy()))))
}

/// A service's words for a terminal, with a mark where they are cut.
fn shown(text: &str) -> String {
    const MOST: usize = 300;
    let mut short = kendall_units::printable(text, MOST);
    if text.chars().nth(MOST).is_some() {
        short.push('…');
    }
    short
}

pub(crate) fn broken(error: &hyper::Error) -> Refusal {
    Refusal::Broken(resending::kind(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_with_its_words_and_nonsense_refused() {
        let mut headers = HeaderMap::new();
        assert!(refused(&headers).is_ok() && status(&headers).unwrap().is_none());
        headers.insert("grpc-status", HeaderValue::from_static("3"));
        let text = "%60content%60 has 5%25 too many%, %c3%a9 and %zz";
        headers.insert("grpc-message", HeaderValue::from_static(text));
        let Err(Refusal::Status { code: 3, text }) = refused(&headers) else { panic!() };
        assert_eq!(text, "`content` has 5% too many%, é and %zz");
        headers.insert("grpc-message", HeaderValue::from_static("a%1b[2J%0ab"));
        assert_eq!(status(&headers).unwrap().unwrap().1, "a [2J b");
        assert_eq!(shown(&"x".repeat(9_000)).chars().count(), 301);
        headers.insert("grpc-status", HeaderValue::from_static("0"));
        assert!(refused(&headers).is_ok());
        headers.insert("grpc-status", HeaderValue::from_static("no"));
        assert!(matches!(refused(&headers), Err(Refusal::Broken(ErrorKind::Garbage))));
    }

    #[test]
    fn messages_are_cut_where_their_prefixes_say_and_nonsense_is_refused() {
        let cut = |bytes: &'static [u8]| messages(Bytes::from_static(bytes)).ok();
        assert_eq!(cut(b"").unwrap().len(), 0);
        let two = cut(b"\0\0\0\0\x02ab\0\0\0\0\0").unwrap();
        assert_eq!((two[0].as_ref(), two[1].as_ref()), (&b"ab"[..], &b""[..]));
        for wrong in [&b"\0\0\0\0\x03ab"[..], b"\x01\0\0\0\x02ab", b"\0\0\0"] {
            assert!(cut(wrong).is_none());
        }
        let count = |bytes: &[u8], piece: usize| {
            let mut counter = Counter::default();
            bytes.chunks(piece).try_for_each(|piece| counter.take(piece)).ok()?;
            counter.end().ok()
        };
        for piece in [1, 2, 7, 100] {
            assert_eq!(count(b"\0\0\0\0\x02ab\0\0\0\0\0", piece), Some((2, 12)));
            for wrong in [&b"\0\0\0\0\x03ab"[..], b"\x01\0\0\0\x02ab", b"\0\0\0"] {
                assert_eq!(count(wrong, piece), None);
            }
        }
    }
}
