//! TLS to PostgreSQL, in the words of its own clients: `sslmode` and `sslrootcert`.
//!
//! `prefer`, the default, and `require` encrypt and trust any server, as libpq does: they keep
//! listeners out, not impostors. `verify-full` trusts a server whose certificate names the host and
//! comes from a known root; `verify-ca` does not check the name. With a root certificate,
//! `require` means `verify-ca`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kendall_tier::AnyCertificate;
use kendall_tier::serve::authorities;
use percent_encoding::percent_decode_str;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

use super::error::DatabaseError;

/// How much of the server's identity is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Mode {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "disable" => Self::Disable,
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }
}

/// What a URL says of TLS, taken out of it: the library knows half of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    mode: Option<Mode>,
    root: Option<PathBuf>,
}

impl Wanted {
    /// The URL without what it says of TLS, and that.
    pub(super) fn take_from(url: &str) -> Result<(String, Self), DatabaseError> {
        let mut wanted = Self { mode: None, root: None };
        let mut keep = |pair: &str| match pair.split_once('=') {
            Some(("sslmode", mode)) => {
                let mode = mode.trim_matches('\'');
                let known = Mode::parse(mode);
                wanted.mode =
                    Some(known.ok_or_else(|| DatabaseError::SslMode { mode: mode.to_owned() })?);
                Ok(false)
            }
            Some(("sslrootcert", path)) => {
                let path = percent_decode_str(path.trim_matches('\'')).decode_utf8_lossy();
                wanted.root = Some(PathBuf::from(path.into_owned()));
                Ok(false)
            }
            _ => Ok(true),
        };
        let mut rest = Vec::new();
        if let Some((base, query)) = url.split_once('?').filter(|(base, _)| base.contains("://")) {
            for pair in query.split('&') {
                if keep(pair)? {
                    rest.push(pair);
                }
            }
            let mark = if rest.is_empty() { "" } else { "?" };
            return Ok((format!("{base}{mark}{}", rest.join("&")), wanted));
        }
        if url.contains("://") {
            return Ok((url.to_owned(), wanted));
        }
        for pair in url.split(' ') {
            if keep(pair)? {
                rest.push(pair);
            }
        }
        Ok((rest.join(" "), wanted))
    }

    /// The mode for the library and the connector. `root` is an option beside the URL.
    pub(super) fn connector(
        self,
        root: Option<&Path>,
    ) -> Result<(SslMode, MakeRustlsConnect), DatabaseError> {
        let root = root.map(Path::to_owned).or(self.root);
        let mode = match (self.mode, &root) {
            // A root without a mode means full verification.
            (None, Some(_)) => Mode::VerifyFull,
            (Some(Mode::Require), Some(_)) => Mode::VerifyCa,
            (None, None) => Mode::Prefer,
            (Some(mode), _) => mode,
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(DatabaseError::Tls)?;
        let verifier: Arc<dyn ServerCertVerifier> = match mode {
            Mode::Disable | Mode::Prefer | Mode::Require => Arc::new(AnyCertificate::new(provider)),
            Mode::VerifyCa | Mode::VerifyFull => {
                let roots = Arc::new(roots(root.as_deref())?);
                let known =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                        .build()
                        .map_err(|error| DatabaseError::Tls(Error::General(error.to_string())))?;
                if mode == Mode::VerifyFull {
                    known
                } else {
                    Arc::new(AnyCertificate::of_any_name(provider, known))
                }
            }
        };
        let config =
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        let mode = match mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        };
        Ok((mode, MakeRustlsConnect::new(config)))
    }
}

/// The certificates of a file, or of the system.
fn roots(file: Option<&Path>) -> Result<RootCertStore, DatabaseError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() { Err(DatabaseError::Certificates) } else { Ok(roots) };
    };
    authorities(path).map_err(DatabaseError::RootCertificate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_left_without_what_it_says_of_tls() {
        let of = |url| Wanted::take_from(url).unwrap();
        let (rest, wanted) =
            of("postgres://u@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=/a%20b/c.pem");
        assert_eq!(rest, "postgres://u@h/d?connect_timeout=3");
        assert_eq!(wanted.mode, Some(Mode::VerifyFull));
        assert_eq!(wanted.root.as_deref(), Some(Path::new("/a b/c.pem")));
        let (rest, wanted) = of("host='/a b' user=u sslmode=require dbname=d");
        assert_eq!(rest, "host='/a b' user=u dbname=d");
        assert_eq!(wanted, Wanted { mode: Some(Mode::Require), root: None });
        assert_eq!(of("postgres://u@h/d").0, "postgres://u@h/d");
        assert!(Wanted::take_from("postgres://h/d?sslmode=always").is_err());
    }
}
