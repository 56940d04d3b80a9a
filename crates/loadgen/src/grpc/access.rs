//! How middlewares are reached: with a token, and over TLS, or as they are.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::HeaderValue;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// What a middleware wants to see, and what of it is checked. The default is neither token nor TLS.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// `Bearer …`; never printed.
    token: Option<HeaderValue>,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// Not a way to reach a middleware.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("a token consists of letters, digits and signs")]
    Token,
    /// No token in the file.
    #[error(
        "{} has neither one token alone nor a line `TOKEN admin`",
        path.display()
    )]
    NoToken {
        path: PathBuf,
        /// Why, where it could not be read.
        #[source]
        source: Option<std::io::Error>,
    },
    #[error("`{name}` is not a host name")]
    Name { name: String },
    #[error("cannot read a certificate (PEM) from {}", path.display())]
    Root {
        path: PathBuf,
        /// Why, where it is known.
        #[source]
        source: Option<std::io::Error>,
    },
    /// TLS refuses its configuration.
    #[error("cannot use TLS")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Access {
    /// With this token, and over TLS with a middleware whose certificate has this name and comes from
    /// the root in a file (PEM), or from one that the system trusts.
    ///
    /// # Errors
    /// [`AccessError`] when a file cannot be read, or is not what it should be.
    pub fn new(
        token: Option<&str>,
        tls: Option<(&str, Option<&Path>)>,
    ) -> Result<Self, AccessError> {
        let token = match token {
            None => None,
            Some(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}"));
                let mut value = value.map_err(|_| AccessError::Token)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let tls = match tls {
            None => None,
            Some((name, root)) => {
                let name = ServerName::try_from(name.to_owned())
                    .map_err(|_| AccessError::Name { name: name.to_owned() })?;
                Some((Arc::new(config(root)?), name))
            }
        };
        Ok(Self { token, tls })
    }

    /// The token that a file has: it stands there alone, or, in a middleware's file of tokens, is the first
    /// administrator's.
    pub fn token_of(path: &Path) -> Result<String, AccessError> {
        let refuse = |source| AccessError::NoToken { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(|error| refuse(Some(error)))?;
        let lines = text.lines().map(str::split_whitespace).map(Iterator::collect);
        let lines: Vec<Vec<&str>> = lines.collect();
        let alone = match lines.iter().flatten().collect::<Vec<_>>().as_slice() {
            [token] => Some((**token).to_owned()),
            _ => None,
        };
        let admin = || {
            let found = lines.iter().find(|words| matches!(words.as_slice(), [_, "admin"]));
            found.map(|words| words[0].to_owned())
        };
        alone.or_else(admin).ok_or_else(|| refuse(None))
    }

    pub(crate) fn token(&self) -> Option<&HeaderValue> {
        self.token.as_ref()
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub(crate) async fn connect(&self, target: SocketAddr) -> Result<Reached, std::io::Error> {
        let stream = TcpStream::connect(target).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Reached::Plain(stream),
            Some((config, name)) => {
                let connector = TlsConnector::from(Arc::clone(config));
                Reached::Encrypted(Box::new(connector.connect(name.clone(), stream).await?))
            }
        })
    }
}

pub(crate) enum Reached {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

fn config(root: Option<&Path>) -> Result<ClientConfig, AccessError> {
    let mut roots = RootCertStore::empty();
    match root {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            let refuse = |source| AccessError::Root { path: path.to_owned(), source };
            let pem = std::fs::read(path).map_err(|error| refuse(Some(error)))?;
            let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem).flatten().collect();
            if roots.add_parsable_certificates(certificates).0 == 0 {
                return Err(refuse(None));
            }
        }
    }
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| AccessError::Tls(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown_and_nonsense_is_refused() {
        let access = Access::new(Some("secret"), None).unwrap();
        assert_eq!(access.token().unwrap().as_bytes(), b"Bearer secret");
        assert!(!format!("{access:?}").contains("secret"));
        assert!(matches!(Access::new(Some("a\nb"), None), Err(AccessError::Token)));
        assert!(matches!(Access::new(None, Some(("..", None))), Err(AccessError::Name { .. })));
        let nowhere = Access::new(None, Some(("host", Some(Path::new("/nowhere.pem")))));
        assert!(matches!(nowhere, Err(AccessError::Root { source: Some(_), .. })));
        let none = Access::new(None, Some(("host", Some(Path::new("Cargo.toml")))));
        assert!(matches!(none, Err(AccessError::Root { source: None, .. })));
    }

    #[test]
    fn a_token_stands_alone_or_is_the_first_administrators() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let token = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Access::token_of(file.path()).ok()
        };
        assert_eq!(token("alone\n").as_deref(), Some("alone"));
        assert_eq!(token("# whose\na client x\nb admin\nc admin\n").as_deref(), Some("b"));
        assert_eq!(token("a client x\n"), None);
        assert_eq!(token(""), None);
        assert!(matches!(
            Access::token_of(Path::new("/nowhere")),
            Err(AccessError::NoToken { source: Some(_), .. })
        ));
    }
}
