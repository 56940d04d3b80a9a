//! TLS as a client: whom it trusts, and who it says it is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kendall_tier::AnyCertificate;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore};

use crate::clock::now_ns;

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

/// Files that are not what TLS needs.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read a certificate (PEM) from {}", path.display())]
    Certificate {
        path: PathBuf,
        #[source]
        source: Option<std::io::Error>,
    },
    #[error("cannot read a private key (PEM) from {}", path.display())]
    Key {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("`{name}` is not a host name")]
    Name { name: String },
    #[error("cannot use TLS")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
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
}

impl Until {
    fn left(&self) -> std::io::Result<Option<Duration>> {
        match self.ends_ns.saturating_sub(now_ns()) {
            0 => Err(std::io::ErrorKind::TimedOut.into()),
            left => Ok(Some(Duration::from_nanos(left))),
        }
    }
}

impl Read for Until {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes).map_err(late)
    }
}

impl Write for Until {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(late)
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
    let mut prepared = Prepared { until: Until { stream, ends_ns: 0 }, tls };
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
    Plain(tokio::net::TcpStream),
    Encrypted(Box<TlsStream<tokio::net::TcpStream>>),
}

/// Connects during a load, TLS included.
pub(crate) async fn reach(
    target: SocketAddr,
    secure: Option<&Secure>,
) -> Result<Reached, std::io::Error> {
    let stream = tokio::net::TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    Ok(match secure {
        None => Reached::Plain(stream),
        Some(secure) => {
            let connector = TlsConnector::from(Arc::clone(&secure.config));
            let connected = connector.connect(secure.name.clone(), stream).await?;
            Reached::Encrypted(Box::new(connected))
        }
    })
}

impl Tls {
    /// The same for servers whose certificate has this name.
    ///
    /// # Errors
    /// [`TlsError`] when a file cannot be read, or is not what it should be.
    pub fn of(&self, name: &str, protocols: &[&[u8]]) -> Result<Secure, TlsError> {
        let config = Arc::new(self.config(protocols)?);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::Name { name: name.to_owned() })?;
        Ok(Secure { config, name })
    }

    /// The configuration of all connections of a load.
    fn config(&self, protocols: &[&[u8]]) -> Result<ClientConfig, TlsError> {
        let refused = |error: tokio_rustls::rustls::Error| TlsError::Refused(error.into());
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(refused)?;
        let builder = if self.insecure {
            let verifier = Arc::new(AnyCertificate::new(provider));
            builder.dangerous().with_custom_certificate_verifier(verifier)
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, path)) => {
                let refuse = |source| TlsError::Key { path: path.clone(), source };
                let pem = kendall_tier::read_file(path, kendall_tier::LARGEST_FILE)
                    .map_err(|error| refuse(error.into()))?;
                let key =
                    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| refuse(error.into()))?;
                builder.with_client_auth_cert(certificates(certificate)?, key).map_err(refused)?
            }
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        match &self.authority {
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Some(path) => {
                if roots.add_parsable_certificates(certificates(path)?).0 == 0 {
                    return Err(TlsError::Certificate { path: path.clone(), source: None });
                }
            }
        }
        Ok(roots)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refuse = |source| TlsError::Certificate { path: path.to_owned(), source };
    let pem = kendall_tier::read_file(path, kendall_tier::LARGEST_FILE)
        .map_err(|error| refuse(Some(error)))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem).flatten().collect();
    if certificates.is_empty() { Err(refuse(None)) } else { Ok(certificates) }
}
