//! One connection over TLS or in HTTP/2.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use super::{WebPlan, reply_of};
use crate::driver::{ErrorKind, Reply};
use crate::tasks::SameThread;
use crate::tls::{Secure, Tls};

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<Secure>,
    http2: bool,
    keep_alive: bool,
    /// Scheme and authority, which HTTP/2 sends with every request.
    pub(crate) origin: String,
    authority: String,
}

impl Connector {
    pub(crate) fn new(web: &WebPlan) -> Result<Self, std::io::Error> {
        let protocol: &[u8] = if web.http2 { b"h2" } else { b"http/1.1" };
        let tls = Tls { insecure: web.insecure, ..Tls::default() };
        let tls = web.tls.as_ref().map(|name| tls.of(name, &[protocol])).transpose();
        let tls = tls.map_err(std::io::Error::other)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let origin = format!("{scheme}://{}", web.content.authority);
        let authority = web.content.authority.clone();
        Ok(Self { tls, http2: web.http2, keep_alive: web.content.keep_alive, origin, authority })
    }

    /// What a request of this path is addressed to.
    fn address(&self, path: &str) -> Option<Uri> {
        if self.http2 { format!("{}{path}", self.origin).parse().ok() } else { path.parse().ok() }
    }

    /// A request without a body, with the headers that the protocol wants beside those that are given.
    pub(crate) fn request(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = method.clone();
        *request.uri_mut() = self.address(path)?;
        request.headers_mut().clone_from(headers);
        if self.http2 {
            request.headers_mut().remove(HOST);
        } else if !headers.contains_key(HOST) {
            let host = HeaderValue::from_str(&self.authority).ok()?;
            request.headers_mut().insert(HOST, host);
        }
        if !self.http2 && !self.keep_alive {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Some(request)
    }
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

trait Transport: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Transport for T {}

/// One connection, open or not. In HTTP/2 several clients may share it.
pub(crate) struct Connection {
    target: SocketAddr,
    shared: bool,
    sender: RefCell<Option<Sender>>,
    /// Held while it is opened, so that it is opened once.
    opening: Mutex<()>,
}

impl Connection {
    pub(crate) fn new(target: SocketAddr, shared: bool) -> Self {
        Self { target, shared, sender: RefCell::new(None), opening: Mutex::new(()) }
    }

    pub(crate) async fn open(&self, connector: &Connector) -> Result<(), std::io::Error> {
        let stream = TcpStream::connect(self.target).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Transport> = match &connector.tls {
            Some(secure) => {
                let tls = TlsConnector::from(Arc::clone(&secure.config));
                Box::new(tls.connect(secure.name.clone(), stream).await?)
            }
            None => Box::new(stream),
        };
        let io = TokioIo::new(stream);
        let sender = if connector.http2 {
            let made = http2::handshake(SameThread, io).await.map_err(std::io::Error::other)?;
            drop(tokio::task::spawn_local(made.1));
            Sender::Http2(made.0)
        } else {
            let made = http1::handshake(io).await.map_err(std::io::Error::other)?;
            drop(tokio::task::spawn_local(made.1));
            Sender::Http1(made.0)
        };
        *self.sender.borrow_mut() = Some(sender);
        Ok(())
    }

    fn is_closed(&self) -> bool {
        match &*self.sender.borrow() {
            None => true,
            Some(Sender::Http1(sender)) => sender.is_closed(),
            Some(Sender::Http2(sender)) => sender.is_closed(),
        }
    }

    /// A way to send; one of HTTP/1.1 is to be given back.
    fn sender(&self) -> Option<Sender> {
        let mut sender = self.sender.borrow_mut();
        match &*sender {
            Some(Sender::Http2(one)) => Some(Sender::Http2(one.clone())),
            _ => sender.take(),
        }
    }

    /// Sends a request; one that did not leave comes back with the error.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Unsent> {
        let sent = match self.sender() {
            Some(Sender::Http1(mut sender)) => match sender.ready().await {
                Ok(()) => {
                    let sent = sender.try_send_request(request).await;
                    *self.sender.borrow_mut() = Some(Sender::Http1(sender));
                    sent
                }
                Err(error) => return Err((kind(&error), Some(request))),
            },
            Some(Sender::Http2(mut sender)) => match sender.ready().await {
                Ok(()) => sender.try_send_request(request).await,
                Err(error) => return Err((kind(&error), Some(request))),
            },
            None => return Err((ErrorKind::ConnectFailed, Some(request))),
        };
        sent.map_err(|mut error| {
            let unsent = error.take_message();
            (kind(error.error()), unsent)
        })
    }

    /// Forgets the connection, unless others go on with it.
    pub(crate) fn close(&self) {
        if !self.shared || self.is_closed() {
            *self.sender.borrow_mut() = None;
        }
    }

    /// Sends a request and reads its reply to the end; connects first where it must. The reply,
    /// and the bytes of its body.
    pub(super) async fn exchange(
        &self,
        connector: &Connector,
        request: &[u8],
    ) -> Result<(Reply, u64), ErrorKind> {
        let request = translate(request, connector).ok_or(ErrorKind::ClientError)?;
        let response = self.respond(connector, request).await?;
        let reply = reply_of(response.status().as_u16());
        let bytes = read(response.into_body(), None).await?;
        self.replied(connector);
        Ok((reply, bytes))
    }

    /// Sends a request; connects first where it must. The reply, whose body is still to be read.
    pub(crate) async fn respond(
        &self,
        connector: &Connector,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ErrorKind> {
        let mut again = true;
        loop {
            if self.is_closed() {
                let _opening = self.opening.lock().await;
                if self.is_closed() {
                    self.open(connector).await.map_err(|_| ErrorKind::ConnectFailed)?;
                }
            }
            match self.send(request).await {
                Ok(response) => return Ok(response),
                // The server had said goodbye, as it may between two requests: nothing was sent,
                // so it is asked on a new connection.
                Err((_, Some(unsent))) if again => {
                    request = unsent;
                    again = false;
                    *self.sender.borrow_mut() = None;
                }
                Err((kind, _)) => return Err(kind),
            }
        }
    }

    /// A reply was read to its end.
    pub(crate) fn replied(&self, connector: &Connector) {
        if !connector.keep_alive {
            self.close();
        }
    }
}

type Unsent = (ErrorKind, Option<Request<Full<Bytes>>>);

/// Reads a body to its end, and keeps as much of it as is wanted; its bytes.
pub(crate) async fn read(
    mut body: Incoming,
    mut keep: Option<(&mut Vec<u8>, usize)>,
) -> Result<u64, ErrorKind> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| kind(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        bytes += data.len() as u64;
        if let Some((kept, most)) = &mut keep {
            let room = *most - kept.len().min(*most);
            kept.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(bytes)
}

/// The request of a template's text. In HTTP/2 the host is part of the address, and headers about
/// the connection do not exist.
fn translate(text: &[u8], connector: &Connector) -> Option<Request<Full<Bytes>>> {
    let mut headers = [httparse::EMPTY_HEADER; 96];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = parsed.parse(text).ok()? else { return None };
    let path = parsed.path?;
    let mut request = Request::builder().method(parsed.method?).uri(connector.address(path)?);
    for header in parsed.headers.iter() {
        let own = ["host", "connection"].iter().any(|own| header.name.eq_ignore_ascii_case(own));
        if !(connector.http2 && own) {
            request = request.header(header.name, header.value);
        }
    }
    request.body(Full::new(Bytes::copy_from_slice(&text[head..]))).ok()
}

fn kind(error: &hyper::Error) -> ErrorKind {
    if error.is_parse() || error.is_parse_status() {
        ErrorKind::Garbage
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        ErrorKind::ConnectionClosed
    } else {
        ErrorKind::ConnectionReset
    }
}
