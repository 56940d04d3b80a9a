//! TLS as a client: whom it trusts, and who it says it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kendall_tier::AnyCertificate;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

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
        /// Why, where it is known.
        #[source]
        source: Option<std::io::Error>,
    },
    #[error("cannot read a private key (PEM) from {}", path.display())]
    Key {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("cannot use TLS")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Tls {
    /// The configuration of all connections of a load.
    pub(crate) fn config(&self, protocols: &[&[u8]]) -> Result<ClientConfig, TlsError> {
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
                let key = PrivateKeyDer::from_pem_file(path)
                    .map_err(|error| TlsError::Key { path: path.clone(), source: error.into() })?;
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
    let pem = std::fs::read(path).map_err(|error| refuse(Some(error)))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem).flatten().collect();
    if certificates.is_empty() { Err(refuse(None)) } else { Ok(certificates) }
}
