//! One connection over TLS or in HTTP/2.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;

use super::{WebPlan, reply_of};
use crate::driver::{ErrorKind, Reply};
use crate::resending::{self, SentAnew, Unanswered};
use crate::tasks::SameThread;
use crate::tls::{self, Reached, Secure};

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
    pub(crate) fn new(web: &WebPlan) -> Self {
        let (tls, authority) = (web.tls.clone(), web.content.authority.clone());
        let scheme = if tls.is_some() { "https" } else { "http" };
        let origin = format!("{scheme}://{authority}");
        Self { tls, http2: web.http2, keep_alive: web.content.keep_alive, origin, authority }
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

/// One connection, open or not. In HTTP/2 several clients may share it.
pub(crate) struct Connection {
    target: SocketAddr,
    shared: bool,
    sender: RefCell<Option<Sender>>,
    opened: Cell<u64>,
    /// Held while it is opened, so that it is opened once.
    opening: Mutex<()>,
    pub(crate) sent_anew: SentAnew,
}

impl Connection {
    pub(crate) fn new(target: SocketAddr, shared: bool) -> Self {
        Self {
            target,
            shared,
            sender: RefCell::new(None),
            opened: Cell::new(0),
            opening: Mutex::new(()),
            sent_anew: SentAnew::default(),
        }
    }

    pub(crate) async fn open(&self, connector: &Connector) -> Result<(), std::io::Error> {
        let sender = match tls::reach(self.target, connector.tls.as_ref()).await? {
            Reached::Plain(stream) => greet(stream, connector.http2).await,
            Reached::Encrypted(stream) => greet(stream, connector.http2).await,
        };
        *self.sender.borrow_mut() = Some(sender.map_err(std::io::Error::other)?);
        self.opened.set(self.opened.get() + 1);
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

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Unanswered> {
        match self.sender() {
            Some(Sender::Http1(mut sender)) => {
                if sender.ready().await.is_err() {
                    return Err(Unanswered::NEVER_SENT);
                }
                let sent = sender.try_send_request(request).await;
                *self.sender.borrow_mut() = Some(Sender::Http1(sender));
                Ok(sent?)
            }
            Some(Sender::Http2(mut sender)) => Ok(sender.try_send_request(request).await?),
            None => Err(Unanswered::NEVER_SENT),
        }
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
        let response = self.respond(connector, || translate(request, connector)).await?;
        let reply = reply_of(response.status().as_u16());
        let bytes = read(response.into_body(), None).await?;
        self.replied(connector);
        Ok((reply, bytes))
    }

    /// Sends a request, anew where the server did not take it; connects first where it must. The reply, whose body
    /// is still to be read.
    pub(crate) async fn respond(
        &self,
        connector: &Connector,
        request: impl Fn() -> Option<Request<Full<Bytes>>>,
    ) -> Result<Response<Incoming>, ErrorKind> {
        let mut times = 0;
        loop {
            if self.is_closed() {
                let _opening = self.opening.lock().await;
                if self.is_closed() {
                    self.open(connector).await.map_err(|error| ErrorKind::of_connecting(&error))?;
                }
            }
            let opened = self.opened.get();
            match self.send(request().ok_or(ErrorKind::ClientError)?).await {
                Ok(response) => return Ok(response),
                Err(unanswered) if self.sent_anew.once_more(unanswered, &mut times) => {
                    // Unless another request has left it.
                    if unanswered.leaves(times) && self.opened.get() == opened {
                        *self.sender.borrow_mut() = None;
                    }
                }
                Err(unanswered) => return Err(unanswered.kind),
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

/// HTTP over a connection, driven by this thread.
async fn greet<S>(stream: S, http2: bool) -> Result<Sender, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let io = TokioIo::new(stream);
    if http2 {
        let (sender, driver) = http2::handshake(SameThread, io).await?;
        drop(tokio::task::spawn_local(driver));
        return Ok(Sender::Http2(sender));
    }
    let (sender, driver) = http1::handshake(io).await?;
    drop(tokio::task::spawn_local(driver));
    Ok(Sender::Http1(sender))
}

/// Reads a body to its end, and keeps as much of it as is wanted; its bytes.
pub(crate) async fn read(
    mut body: Incoming,
    mut keep: Option<(&mut Vec<u8>, usize)>,
) -> Result<u64, ErrorKind> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| resending::kind(&error))?;
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
