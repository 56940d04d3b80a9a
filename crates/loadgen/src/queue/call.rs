//! Unary gRPC calls over one HTTP/2 connection, as the protocol writes them: a prefix of five
//! bytes and a message, a status in the trailers.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;

use kendall_protocols::queue::SERVICE;

use super::access::{Access, Reached};
use crate::driver::ErrorKind;
use crate::load::PREPARATION;
use crate::tasks::SameThread;

/// Bytes before every message: whether it is compressed, and its length.
pub(super) const PREFIX_BYTES: u64 = 5;

/// A call without an answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// The service said no to this call: what it said, it meant.
    #[error("{text} (gRPC status {code})")]
    Status {
        /// A gRPC status code.
        code: i32,
        text: String,
    },
    /// The stream ended before it had answered: whether the call took effect is open.
    #[error("the stream ended before the answer: {text} (gRPC status {code})")]
    Ended {
        /// A gRPC status code.
        code: i32,
        text: String,
    },
    /// There was no connection and none could be made: nothing was asked.
    #[error("cannot connect")]
    Connect(#[source] Arc<std::io::Error>),
    /// The connection broke, or what came over it made no sense: whether the call took effect is
    /// open.
    #[error("no answer ({})", .0.name())]
    Broken(ErrorKind),
}

impl Refusal {
    pub(super) fn already_exists(&self) -> bool {
        matches!(self, Self::Status { code: 6, .. })
    }
}

/// The kind of error that a gRPC status is.
pub(super) fn kind(code: i32) -> ErrorKind {
    match code {
        4 => ErrorKind::TimedOut,        // DEADLINE_EXCEEDED
        12 => ErrorKind::UnknownCommand, // UNIMPLEMENTED
        3 | 5 | 6 | 7 | 9 | 11 | 16 => ErrorKind::ClientError,
        _ => ErrorKind::ServerError,
    }
}

/// Writes a message with its prefix.
pub(super) fn write(message: &impl Message, out: &mut Vec<u8>) {
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    message.encode_raw(out);
}

/// One connection, open or not, that any number of clients may share.
pub(super) struct Connection {
    target: SocketAddr,
    access: Access,
    sender: RefCell<Option<SendRequest<Full<Bytes>>>>,
    /// Held by whoever opens it, so that nobody else does.
    opening: Mutex<()>,
}

impl Connection {
    pub(super) fn new(target: SocketAddr, access: Access) -> Self {
        Self { target, access, sender: RefCell::new(None), opening: Mutex::new(()) }
    }

    pub(super) fn target(&self) -> SocketAddr {
        self.target
    }

    pub(super) async fn open(&self) -> Result<(), std::io::Error> {
        let sender = match self.access.connect(self.target).await? {
            Reached::Plain(stream) => greet(stream).await?,
            Reached::Encrypted(stream) => greet(stream).await?,
        };
        *self.sender.borrow_mut() = Some(sender);
        Ok(())
    }

    /// Forgets a connection that broke; one that others opened since stays.
    pub(super) fn close(&self) {
        let mut sender = self.sender.borrow_mut();
        if sender.as_ref().is_some_and(SendRequest::is_closed) {
            *sender = None;
        }
    }

    /// A way to send, over a connection that is made where there is none.
    async fn sender(&self) -> Result<SendRequest<Full<Bytes>>, Refusal> {
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

    /// Calls a method with a message and its prefix; the answer's message, without its prefix.
    pub(super) async fn call(&self, method: &str, body: Vec<u8>) -> Result<Bytes, Refusal> {
        let mut sender = self.sender().await?;
        let request = request(self.target, &self.access, method, Full::new(Bytes::from(body)))?;
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        read(response).await
    }

    /// Calls a method before the load, and reads its answer.
    pub(super) async fn ask<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, Refusal> {
        let mut body = Vec::new();
        write(request, &mut body);
        let late = |_| Refusal::Broken(ErrorKind::TimedOut);
        let answer = tokio::time::timeout(PREPARATION, self.call(method, body)).await;
        A::decode(answer.map_err(late)??).map_err(|_| Refusal::Broken(ErrorKind::Garbage))
    }
}

/// HTTP/2 over a connection, driven by this thread.
async fn greet<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, std::io::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let io = TokioIo::new(stream);
    let (sender, driver) = handshake(SameThread, io).await.map_err(std::io::Error::other)?;
    drop(tokio::task::spawn_local(driver));
    Ok(sender)
}

/// A call of a method, as HTTP/2 carries it.
pub(super) fn request<B>(
    target: SocketAddr,
    access: &Access,
    method: &str,
    body: B,
) -> Result<Request<B>, Refusal> {
    let uri = format!("{}://{target}/{SERVICE}/{method}", access.scheme());
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

async fn read(response: Response<hyper::body::Incoming>) -> Result<Bytes, Refusal> {
    if response.status() != StatusCode::OK {
        return Err(Refusal::Broken(ErrorKind::Garbage));
    }
    // An answer without a message has its status in the headers.
    refused(response.headers())?;
    let body = response.into_body().collect().await.map_err(|error| broken(&error))?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    refused(&trailers)?;
    let garbage = || Refusal::Broken(ErrorKind::Garbage);
    if !trailers.contains_key("grpc-status") {
        return Err(garbage());
    }
    let text = body.to_bytes();
    let (prefix, message) = text.split_first_chunk::<5>().ok_or_else(garbage)?;
    let [compressed, length @ ..] = *prefix;
    let whole = usize::try_from(u32::from_be_bytes(length)).is_ok_and(|l| l == message.len());
    if compressed != 0 || !whole {
        return Err(garbage());
    }
    Ok(text.slice_ref(message))
}

/// The status, if there is one that says no.
pub(super) fn refused(headers: &HeaderMap) -> Result<(), Refusal> {
    match status(headers)? {
        None | Some((0, _)) => Ok(()),
        Some((code, text)) => Err(Refusal::Status { code, text }),
    }
}

/// The status and its words, where there is one.
pub(super) fn status(headers: &HeaderMap) -> Result<Option<(i32, String)>, Refusal> {
    let Some(code) = headers.get("grpc-status") else { return Ok(None) };
    let code = code.to_str().ok().and_then(|code| code.parse().ok());
    let code = code.ok_or(Refusal::Broken(ErrorKind::Garbage))?;
    let text = headers.get("grpc-message").map(HeaderValue::as_bytes).unwrap_or_default();
    Ok(Some((code, percent_decoded(text))))
}

/// `%20` and its like as what they stand for; a `%` without two digits stays.
fn percent_decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let byte = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn broken(error: &hyper::Error) -> Refusal {
    Refusal::Broken(if error.is_parse() {
        ErrorKind::Garbage
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        ErrorKind::ConnectionClosed
    } else {
        ErrorKind::ConnectionReset
    })
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
        headers.insert("grpc-status", HeaderValue::from_static("0"));
        assert!(refused(&headers).is_ok());
        headers.insert("grpc-status", HeaderValue::from_static("no"));
        assert!(matches!(refused(&headers), Err(Refusal::Broken(ErrorKind::Garbage))));
    }
}
