//! What a connection speaks, found by its first bytes; and TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// How HTTP/2 begins.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Wait for the rest of a preface whose beginning came alone.
const REST: Duration = Duration::from_millis(5);

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// Reads the first bytes without removing them; `None` when the peer went away.
pub(super) async fn protocol(stream: &TcpStream) -> Option<Protocol> {
    let mut bytes = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut bytes).await.ok()?;
        if count == 0 {
            return None;
        }
        if bytes[..count] != PREFACE[..count] {
            return Some(Protocol::Http1);
        }
        if count == PREFACE.len() {
            return Some(Protocol::Http2);
        }
        // The socket stays readable while bytes lie there: it cannot be waited on for more.
        tokio::time::timeout(REST, std::future::pending::<()>()).await.unwrap_or_default();
    }
}

/// What TLS agreed on.
pub(super) fn negotiated(stream: &TlsStream<TcpStream>) -> Protocol {
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Protocol::Http2
    } else {
        Protocol::Http1
    }
}

/// A certificate and its key, in PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, with those between it and its root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Clients must show a certificate that comes from this one.
    pub client_certificate: Option<PathBuf>,
}

/// A certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path} as PEM")]
    File {
        path: PathBuf,
        #[source]
        source: pem::Error,
    },
    #[error("{0} holds no certificate")]
    Empty(PathBuf),
    /// They do not fit each other, or are not understood.
    #[error("the certificate or its key cannot be used")]
    Unusable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("`{0}` is not a host name")]
    Name(String),
}

impl TlsError {
    /// Refused by the library, for this reason.
    pub fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Unusable(Box::new(error))
    }
}

impl Tls {
    /// What accepts connections that speak one of `protocols`, by their names in ALPN.
    pub fn acceptor(&self, protocols: &[&str]) -> Result<TlsAcceptor, TlsError> {
        self.config(protocols).map(TlsAcceptor::from)
    }

    /// A server that speaks one of `protocols`, by their names in ALPN; any without one.
    pub fn config(&self, protocols: &[&str]) -> Result<Arc<ServerConfig>, TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|source| TlsError::File { path: self.key.clone(), source })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::unusable)?;
        let builder = match &self.client_certificate {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().map_err(TlsError::unusable)?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(TlsError::unusable)?;
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Arc::new(config))
    }
}

/// The authorities in a PEM file, without those that the library does not understand.
pub fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(path)?);
    if roots.is_empty() { Err(TlsError::Empty(path.to_owned())) } else { Ok(roots) }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| TlsError::File { path: path.to_owned(), source })?;
    if chain.is_empty() { Err(TlsError::Empty(path.to_owned())) } else { Ok(chain) }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    crate::read_file(path, crate::LARGEST_FILE)
        .map_err(|error| TlsError::File { path: path.to_owned(), source: pem::Error::Io(error) })
}
