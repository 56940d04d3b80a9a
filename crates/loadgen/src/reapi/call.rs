//! gRPC calls with any number of messages either way, over one HTTP/2 connection a client.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::driver::ErrorKind;
use crate::load::LoadError;
use crate::tasks::SameThread;

/// Bytes that may be under way to a client: more than the largest blob of a usual load.
const WINDOW: u32 = 16 << 20;
/// Bytes before every message: whether it is compressed, and its length.
const PREFIX: usize = 5;

#[derive(Debug)]
pub(super) enum Answer {
    /// The messages, each in one piece.
    Messages(Vec<Bytes>),
    /// A gRPC status that says no.
    Refused(i32),
}

impl Answer {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Messages(messages) => messages.iter().map(|m| (m.len() + PREFIX) as u64).sum(),
            Self::Refused(_) => 0,
        }
    }
}

/// The kind of error that a gRPC status is.
pub(super) fn kind(code: i32) -> ErrorKind {
    match code {
        4 => ErrorKind::TimedOut,        // DEADLINE_EXCEEDED
        12 => ErrorKind::UnknownCommand, // UNIMPLEMENTED
        3 | 5 | 6 | 7 | 9 | 11 | 16 => ErrorKind::ClientError,
        15 => ErrorKind::WrongValue, // DATA_LOSS
        _ => ErrorKind::ServerError,
    }
}

/// A connection, open or not.
pub(super) struct Connection {
    target: SocketAddr,
    sender: RefCell<Option<SendRequest<Full<Bytes>>>>,
}

impl Connection {
    pub(super) fn new(target: SocketAddr) -> Self {
        Self { target, sender: RefCell::new(None) }
    }

    pub(super) async fn open_within(&self, limit: Duration) -> Result<(), LoadError> {
        let opened = match tokio::time::timeout(limit, self.open()).await {
            Ok(opened) => opened,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        };
        opened.map_err(|source| LoadError::Connect { target: self.target, source })
    }

    async fn open(&self) -> Result<(), std::io::Error> {
        let stream = TcpStream::connect(self.target).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = Builder::new(SameThread)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(std::io::Error::other)?;
        drop(tokio::task::spawn_local(driver));
        *self.sender.borrow_mut() = Some(sender);
        Ok(())
    }

    /// Forgets a connection that broke.
    pub(super) fn close(&self) {
        *self.sender.borrow_mut() = None;
    }

    /// Calls a method with messages that have their prefixes.
    pub(super) async fn call(&self, path: &str, body: Bytes) -> Result<Answer, ErrorKind> {
        let open = || self.sender.borrow().clone().filter(|sender| !sender.is_closed());
        if open().is_none() {
            self.open().await.map_err(|_| ErrorKind::ConnectFailed)?;
        }
        let mut sender = open().ok_or(ErrorKind::ConnectFailed)?;
        let uri = Uri::try_from(format!("http://{}{path}", self.target));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.map_err(|_| ErrorKind::ClientError)?;
        let headers = request.headers_mut();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        if response.status() != StatusCode::OK {
            return Err(ErrorKind::Garbage);
        }
        if let Some(code) = status(response.headers())?.filter(|code| *code != 0) {
            return Ok(Answer::Refused(code));
        }
        let body = response.into_body().collect().await.map_err(|error| broken(&error))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        match status(&trailers)? {
            Some(0) => messages(body.to_bytes()),
            Some(code) => Ok(Answer::Refused(code)),
            None => Err(ErrorKind::Garbage),
        }
    }
}

fn messages(mut body: Bytes) -> Result<Answer, ErrorKind> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        if body.len() < PREFIX || body.get_u8() != 0 {
            return Err(ErrorKind::Garbage);
        }
        let length = usize::try_from(body.get_u32()).map_err(|_| ErrorKind::Garbage)?;
        if body.len() < length {
            return Err(ErrorKind::Garbage);
        }
        messages.push(body.split_to(length));
    }
    Ok(Answer::Messages(messages))
}

fn status(headers: &HeaderMap) -> Result<Option<i32>, ErrorKind> {
    let Some(code) = headers.get("grpc-status") else { return Ok(None) };
    let code = code.to_str().ok().and_then(|code| code.parse().ok());
    code.map(Some).ok_or(ErrorKind::Garbage)
}

fn broken(error: &hyper::Error) -> ErrorKind {
    if error.is_parse() {
        ErrorKind::Garbage
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        ErrorKind::ConnectionClosed
    } else {
        ErrorKind::ConnectionReset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_where_their_prefixes_say_and_nonsense_is_refused() {
        let cut = |bytes: &'static [u8]| match messages(Bytes::from_static(bytes)) {
            Ok(Answer::Messages(messages)) => Some(messages),
            _ => None,
        };
        assert_eq!(cut(b"").unwrap().len(), 0);
        let two = cut(b"\0\0\0\0\x02ab\0\0\0\0\0").unwrap();
        assert_eq!((two[0].as_ref(), two[1].as_ref()), (&b"ab"[..], &b""[..]));
        for wrong in [&b"\0\0\0\0\x03ab"[..], b"\x01\0\0\0\x02ab", b"\0\0\0"] {
            assert!(cut(wrong).is_none());
        }
    }
}
