//! Unary gRPC calls over one HTTP/2 connection, as the protocol writes them: a prefix of five
//! bytes and a message, a status in the trailers.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use kendall_protocols::queue::SERVICE;

use crate::driver::ErrorKind;
use crate::tasks::SameThread;

/// Bytes before every message: whether it is compressed, and its length.
pub(super) const PREFIX_BYTES: u64 = 5;

/// A call without an answer.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The service said why.
    Status {
        /// A gRPC status code.
        code: i32,
        /// In words.
        text: String,
    },
    /// The connection, or what came over it.
    Broken(ErrorKind),
}

impl Refusal {
    pub(super) fn already_exists(&self) -> bool {
        matches!(self, Self::Status { code: 6, .. })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { code, text } => write!(out, "{text} (gRPC status {code})"),
            Self::Broken(kind) => write!(out, "{}", kind.name()),
        }
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
    sender: RefCell<Option<SendRequest<Full<Bytes>>>>,
    /// Held by whoever opens it, so that nobody else does.
    opening: Mutex<()>,
}

impl Connection {
    pub(super) fn new(target: SocketAddr) -> Self {
        Self { target, sender: RefCell::new(None), opening: Mutex::new(()) }
    }

    pub(super) fn target(&self) -> SocketAddr {
        self.target
    }

    pub(super) async fn open(&self) -> Result<(), std::io::Error> {
        let stream = TcpStream::connect(self.target).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) =
            handshake(SameThread, TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        drop(tokio::task::spawn_local(driver));
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
            self.open().await.map_err(|_| Refusal::Broken(ErrorKind::ConnectFailed))?;
        }
        open().ok_or(Refusal::Broken(ErrorKind::ConnectFailed))
    }

    /// Calls a method with a message and its prefix; the answer's message, without its prefix.
    pub(super) async fn call(&self, method: &str, body: Vec<u8>) -> Result<Bytes, Refusal> {
        let mut sender = self.sender().await?;
        let uri = format!("http://{}/{SERVICE}/{method}", self.target);
        let uri = Uri::try_from(uri).map_err(|_| Refusal::Broken(ErrorKind::ClientError))?;
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        read(response).await
    }

    /// Calls a method and reads its answer.
    pub(super) async fn ask<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, Refusal> {
        let mut body = Vec::new();
        write(request, &mut body);
        let answer = self.call(method, body).await?;
        A::decode(answer).map_err(|_| Refusal::Broken(ErrorKind::Garbage))
    }
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
fn refused(headers: &HeaderMap) -> Result<(), Refusal> {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(code) = value("grpc-status") else { return Ok(()) };
    match code.parse() {
        Ok(0) => Ok(()),
        Ok(code) => {
            let text = value("grpc-message").unwrap_or_default().replace("%20", " ");
            Err(Refusal::Status { code, text })
        }
        Err(_) => Err(Refusal::Broken(ErrorKind::Garbage)),
    }
}

fn broken(error: &hyper::Error) -> Refusal {
    Refusal::Broken(if error.is_parse() {
        ErrorKind::Garbage
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        ErrorKind::ConnectionClosed
    } else {
        ErrorKind::ConnectionReset
    })
}
