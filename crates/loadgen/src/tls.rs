//! TLS as a client: whom it trusts, and who it says it is.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use kendall_tier::AnyCertificate;
pub use kendall_tier::serve::TlsError;
use kendall_tier::serve::{answers_with_tls, authorities, with_identity};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore};

use crate::clock::now_ns;

/// What a server says of itself that answers with TLS what was not encrypted.
pub(crate) const SPEAKS_TLS: &str =
    "the server answered with TLS, and was not asked with it: use https://, --tls or --tls-name";

/// An error of the socket where an answer begins as TLS's refusal of what is none.
fn in_the_clear(answer: &[u8]) -> io::Result<()> {
    if answers_with_tls(answer) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, SPEAKS_TLS));
    }
    Ok(())
}

/// Whether an error is that one: some libraries keep the words alone.
pub fn is_answer_by_tls(error: &io::Error) -> bool {
    error.to_string().contains(SPEAKS_TLS)
}

/// How servers are trusted, and what they are shown. The default trusts whom the system trusts, and shows nothing.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Any certificate will do.
    pub insecure: bool,
    /// File (PEM) of the roots that are trusted in place of the system's.
    pub authority: Option<PathBuf>,
    /// Files (PEM) of the client's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// How all connections of a load are encrypted: to servers whose certificate has one name.
#[derive(Debug, Clone)]
pub struct Secure {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl Secure {
    /// A connection that has said nothing yet.
    pub(crate) fn begin(&self) -> std::io::Result<Box<ClientConnection>> {
        let config = Arc::clone(&self.config);
        let mut tls =
            ClientConnection::new(config, self.name.clone()).map_err(std::io::Error::other)?;
        // A request is bounded by who makes it.
        tls.set_buffer_limit(None);
        Ok(Box::new(tls))
    }
}

/// A connection that is given up at a moment, however slowly bytes come.
#[derive(Debug)]
struct Until {
    stream: TcpStream,
    ends_ns: u64,
    /// Nothing was read yet, and what passes is not encrypted.
    may_answer_with_tls: bool,
}

impl Until {
    fn left(&self) -> std::io::Result<Option<Duration>> {
        match self.ends_ns.saturating_sub(now_ns()) {
            0 => Err(std::io::ErrorKind::TimedOut.into()),
            left => Ok(Some(Duration::from_nanos(left))),
        }
    }

    /// Why what was written was not taken: the server may have said that first.
    fn refusal(&self, error: io::Error) -> io::Error {
        let error = late(error);
        // Where the server takes nothing, an answer would be waited for.
        if error.kind() == io::ErrorKind::TimedOut || !self.may_answer_with_tls {
            return error;
        }
        let mut answer = [0; 2];
        let read = self.stream.peek(&mut answer).unwrap_or(0);
        in_the_clear(&answer[..read]).err().unwrap_or(error)
    }
}

impl Read for Until {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        let read = self.stream.read(bytes).map_err(late)?;
        if std::mem::take(&mut self.may_answer_with_tls) {
            in_the_clear(&bytes[..read])?;
        }
        Ok(read)
    }
}

impl Write for Until {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(|error| self.refusal(error))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// As sockets with a limit say it.
fn late(error: std::io::Error) -> std::io::Error {
    let is_late = error.kind() == std::io::ErrorKind::WouldBlock;
    if is_late { std::io::ErrorKind::TimedOut.into() } else { error }
}

/// A connection that was made before a load.
#[derive(Debug)]
pub(crate) struct Prepared {
    until: Until,
    tls: Option<Box<ClientConnection>>,
}

/// What is read and written, encrypted or not.
pub(crate) trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// Connects before a load, TLS included.
pub(crate) fn connect(
    target: &SocketAddr,
    secure: Option<&Secure>,
    timeout: Duration,
) -> std::io::Result<Prepared> {
    let stream = TcpStream::connect_timeout(target, timeout)?;
    stream.set_nodelay(true)?;
    let tls = secure.map(Secure::begin).transpose()?;
    let until = Until { stream, ends_ns: 0, may_answer_with_tls: tls.is_none() };
    let mut prepared = Prepared { until, tls };
    prepared.within(timeout);
    if let Some(tls) = &mut prepared.tls {
        tls.complete_io(&mut prepared.until)?;
    }
    Ok(prepared)
}

impl Prepared {
    /// Gives what follows so much time from now.
    pub(crate) fn within(&mut self, timeout: Duration) {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.until.ends_ns = now_ns().saturating_add(timeout_ns);
    }

    pub(crate) fn stream(&mut self) -> Box<dyn Stream + '_> {
        match &mut self.tls {
            Some(tls) => Box::new(rustls::Stream::new(&mut **tls, &mut self.until)),
            None => Box::new(&mut self.until),
        }
    }

    /// The socket and its encryption, as they are.
    pub(crate) fn into_parts(self) -> (TcpStream, Option<Box<ClientConnection>>) {
        (self.until.stream, self.tls)
    }
}

/// A connection that was made during a load.
pub(crate) enum Reached {
    Plain(Clear),
    Encrypted(Box<TlsStream<tokio::net::TcpStream>>),
}

/// A connection without TLS, which breaks where the server's first answer is one of TLS.
pub(crate) struct Clear {
    stream: tokio::net::TcpStream,
    was_read: bool,
}

impl AsyncRead for Clear {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if !std::mem::replace(&mut self.was_read, true) {
            in_the_clear(&buffer.filled()[before..])?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Clear {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Connects during a load, TLS included.
pub(crate) async fn reach(
    target: SocketAddr,
    secure: Option<&Secure>,
) -> Result<Reached, std::io::Error> {
    let stream = tokio::net::TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    Ok(match secure {
        None => Reached::Plain(Clear { stream, was_read: false }),
        Some(secure) => {
            let connector = TlsConnector::from(Arc::clone(&secure.config));
            let connected = connector.connect(secure.name.clone(), stream).await?;
            Reached::Encrypted(Box::new(connected))
        }
    })
}

/// Whether an error says that a connection was there, and ended behind its greeting or within that of TLS.
pub fn is_cut(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    ["broken pipe", "connection reset", "handshake eof"].iter().any(|end| error.contains(end))
}

impl Tls {
    /// The same for servers whose certificate has this name.
    pub fn of(&self, name: &str, protocols: &[&[u8]]) -> Result<Secure, TlsError> {
        let config = Arc::new(self.config(protocols)?);
        let name =
            ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?;
        Ok(Secure { config, name })
    }

    /// The configuration of all connections of a load.
    fn config(&self, protocols: &[&[u8]]) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::unusable)?;
        let builder = if self.insecure {
            let verifier = Arc::new(AnyCertificate::new(provider));
            builder.dangerous().with_custom_certificate_verifier(verifier)
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => with_identity(certificate, key, |chain, key| {
                builder.with_client_auth_cert(chain, key)
            })?,
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        if let Some(path) = &self.authority {
            return authorities(path);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Ok(roots)
    }
}
