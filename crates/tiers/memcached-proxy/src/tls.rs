//! Certificates: those that clients see, and those that servers must show.

use std::path::Path;
use std::sync::Arc;

use kendall_tier::serve::{Tls, TlsError, authorities};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// How servers are spoken to with TLS.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// Whom to trust, and who we are.
    pub config: Arc<ClientConfig>,
    /// The name that their certificates must have; their address without one.
    pub name: Option<ServerName<'static>>,
    trusted: Arc<RootCertStore>,
}

impl ServerTls {
    /// Trusting one authority, and with the name that the servers' certificates have; their address
    /// without one.
    pub fn from_files(authority: &Path, name: Option<&str>) -> Result<Self, TlsError> {
        let host = |name: &str| {
            ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))
        };
        let trusted = Arc::new(authorities(authority)?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::unusable)?
            .with_root_certificates(Arc::clone(&trusted))
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), name: name.map(host).transpose()?, trusted })
    }
}

/// Two that trust the same authorities and want the same name are the same, read when they may be.
impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        self.trusted.roots == other.trusted.roots && self.name == other.name
    }
}

impl Eq for ServerTls {}

/// How clients are answered with TLS.
#[derive(Debug, Clone)]
pub struct ClientTls(pub(crate) Arc<ServerConfig>);

impl ClientTls {
    /// With a certificate, its key, and, where clients have to show one too, the authority of theirs.
    pub fn new(files: &Tls) -> Result<Self, TlsError> {
        files.config(&[]).map(Self)
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientTls {}
