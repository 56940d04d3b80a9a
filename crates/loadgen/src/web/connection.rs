//! One connection over TLS or in HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{WebPlan, reply_of, tls};
use crate::driver::{ErrorKind, Reply};
use crate::tasks::SameThread;

/// How connections are made.
#[derive(Clone)]
pub(super) struct Connector {
    tls: Option<(TlsConnector, ServerName<'static>)>,
    http2: bool,
    keep_alive: bool,
    /// Scheme and authority, which HTTP/2 sends with every request.
    origin: String,
}

impl Connector {
    pub(super) fn new(web: &WebPlan) -> Result<Self, std::io::Error> {
        let tls = match &web.tls {
            Some(name) => {
                let protocol: &[u8] = if web.http2 { b"h2" } else { b"http/1.1" };
                let config = tls::config(web.insecure, &[protocol])?;
                let name = ServerName::try_from(name.clone()).map_err(std::io::Error::other)?;
                Some((TlsConnector::from(Arc::new(config)), name))
            }
            None => None,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let origin = format!("{scheme}://{}", web.content.authority);
        Ok(Self { tls, http2: web.http2, keep_alive: web.content.keep_alive, origin })
    }
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

trait Transport: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Transport for T {}

/// One connection, open or not.
pub(super) struct Connection {
    target: SocketAddr,
    sender: Option<Sender>,
}

impl Connection {
    pub(super) fn new(target: SocketAddr) -> Self {
        Self { target, sender: None }
    }

    pub(super) async fn open(&mut self, connector: &Connector) -> Result<(), std::io::Error> {
        let stream = TcpStream::connect(self.target).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Transport> = match &connector.tls {
            Some((tls, name)) => Box::new(tls.connect(name.clone(), stream).await?),
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
        self.sender = Some(sender);
        Ok(())
    }

    fn is_closed(&self) -> bool {
        match &self.sender {
            None => true,
            Some(Sender::Http1(sender)) => sender.is_closed(),
            Some(Sender::Http2(sender)) => sender.is_closed(),
        }
    }

    /// Sends a request; one that did not leave comes back with the error.
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<hyper::body::Incoming>, Unsent> {
        let sent = match &mut self.sender {
            Some(Sender::Http1(sender)) => match sender.ready().await {
                Ok(()) => sender.try_send_request(request).await,
                Err(error) => return Err((kind(&error), Some(request))),
            },
            Some(Sender::Http2(sender)) => match sender.ready().await {
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

    pub(super) fn close(&mut self) {
        self.sender = None;
    }

    /// Sends a request and reads its reply to the end; connects first where it must. The reply,
    /// and the bytes of its body.
    pub(super) async fn exchange(
        &mut self,
        connector: &Connector,
        request: &[u8],
    ) -> Result<(Reply, u64), ErrorKind> {
        let mut request = translate(request, connector).ok_or(ErrorKind::ClientError)?;
        let mut again = true;
        let response = loop {
            if self.is_closed() {
                self.open(connector).await.map_err(|_| ErrorKind::ConnectFailed)?;
            }
            match self.send(request).await {
                Ok(response) => break response,
                // The server had said goodbye, as it may between two requests: nothing was sent,
                // so it is asked on a new connection.
                Err((_, Some(unsent))) if again => {
                    request = unsent;
                    again = false;
                    self.close();
                }
                Err((kind, _)) => return Err(kind),
            }
        };
        let counted = read(response).await?;
        if !connector.keep_alive {
            self.close();
        }
        Ok(counted)
    }
}

type Unsent = (ErrorKind, Option<Request<Full<Bytes>>>);

async fn read(response: Response<hyper::body::Incoming>) -> Result<(Reply, u64), ErrorKind> {
    let reply = reply_of(response.status().as_u16());
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| kind(&error))?;
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok((reply, bytes))
}

/// The request of a template's text. In HTTP/2 the host is part of the address, and headers about
/// the connection do not exist.
fn translate(text: &[u8], connector: &Connector) -> Option<Request<Full<Bytes>>> {
    let mut headers = [httparse::EMPTY_HEADER; 96];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = parsed.parse(text).ok()? else { return None };
    let path = parsed.path?;
    let uri: Uri = if connector.http2 {
        format!("{}{path}", connector.origin).parse().ok()?
    } else {
        path.parse().ok()?
    };
    let mut request = Request::builder().method(parsed.method?).uri(uri);
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
