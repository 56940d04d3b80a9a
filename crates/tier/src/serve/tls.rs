//! What a connection speaks, found by its first bytes; and TLS.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, CertificateError, InvalidMessage, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// How HTTP/2 begins.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Wait for the rest of a preface whose beginning came alone.
const REST: Duration = Duration::from_millis(5);
/// Longest time in which a client reads why its connection ends.
const PARTING: Duration = Duration::from_secs(1);
/// What a client is told that greets with TLS where none is spoken: any library of TLS says that this is none.
const NO_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\nThis server speaks no TLS.\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// What a connection begins with.
pub(super) enum First {
    Clear(Protocol),
    /// The greeting of TLS.
    Tls,
}

/// Whether a client that begins with these bytes speaks TLS: with a record of its handshake, as no request of another
/// protocol does.
pub fn greets_with_tls(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x16)
}

/// Whether these bytes are TLS's answer to what is none: a record with an alert.
pub fn answers_with_tls(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x15, 3])
}

/// Whether TLS failed because the other side does not speak it.
pub fn is_in_the_clear(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType))
}

/// Who most likely speaks TLS alone, where a connection failed: in the words of libraries that keep nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsAlone {
    Server,
    Client,
}

impl TlsAlone {
    pub fn of(error: &str) -> Option<Self> {
        if error.contains("frame with invalid size") {
            Some(Self::Server)
        } else if error.contains("InvalidContentType") {
            Some(Self::Client)
        } else {
            None
        }
    }

    /// What a server says of a client that it cannot speak with.
    pub fn for_the_log(self) -> &'static str {
        match self {
            Self::Server => {
                "a client speaks no TLS, which is spoken here alone: have it connect with TLS (https://, grpcs://), or \
                 serve without --tls-certificate"
            }
            Self::Client => {
                "a client speaks TLS, which is not spoken here: have it connect without (http://, grpc://), or name a \
                 certificate by --tls-certificate where there is that option"
            }
        }
    }
}

/// Tells a client that greeted with TLS that none is spoken here.
pub(super) async fn decline(mut stream: TcpStream) {
    if stream.write_all(NO_TLS).await.is_ok() {
        part(stream).await;
    }
}

/// Ends a connection whose client has yet to read why: closed with bytes unread, it would be reset.
pub(super) async fn part(mut stream: TcpStream) {
    let parted = async {
        stream.shutdown().await?;
        while stream.read(&mut [0; 1024]).await? > 0 {}
        io::Result::Ok(())
    };
    drop(tokio::time::timeout(PARTING, parted).await);
}

/// Reads the first bytes without removing them; `None` when the peer went away.
pub(super) async fn first(stream: &TcpStream) -> Option<First> {
    let mut bytes = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut bytes).await.ok()?;
        if count == 0 {
            return None;
        }
        if greets_with_tls(&bytes[..count]) {
            return Some(First::Tls);
        }
        if bytes[..count] != PREFACE[..count] {
            return Some(First::Clear(Protocol::Http1));
        }
        if count == PREFACE.len() {
            return Some(First::Clear(Protocol::Http2));
        }
        // The socket stays readable while bytes lie there: it cannot be waited on for more.
        super::pause(REST).await;
    }
}

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
    pub key: PathBuf,
    /// Clients must show a certificate that comes from this one.
    pub client_certificate: Option<PathBuf>,
}

/// A certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}")]
    File { path: PathBuf, source: std::io::Error },
    /// It is of something else, or damaged.
    #[error("wanted {wanted} in {path}, found {found}")]
    Pem {
        path: PathBuf,
        wanted: &'static str,
        found: String,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// They do not fit each other, or are not understood.
    #[error(
        "the first certificate in {certificate} and the key in {key} cannot be used together{way_out}"
    )]
    Pair { certificate: PathBuf, key: PathBuf, way_out: String, source: Option<Box<rustls::Error>> },
    #[error("TLS cannot be used")]
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
        let mut config = with_identity(&self.certificate, &self.key, |chain, key| {
            builder.with_single_cert(chain, key)
        })?;
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Arc::new(config))
    }
}

/// Makes something with the certificate, those between it and its root, and the key of two PEM files. Warns where one
/// of them is not valid now.
pub fn with_identity<T>(
    certificate: &Path,
    key: &Path,
    make: impl FnOnce(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) -> Result<T, rustls::Error>,
) -> Result<T, TlsError> {
    let chain = parts(certificate, "a certificate (PEM)")?;
    let now = UnixTime::now();
    if let Some(why) = chain.iter().find_map(|one| out_of_time(one, now)) {
        let file = certificate.display();
        tracing::warn!(%file, "a certificate {why}: who checks it refuses the connection");
    }
    let private = parts(key, "a private key without a password (PEM)")?.swap_remove(0);
    let place = place(&chain, &private);
    make(chain, private).map_err(|source| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        way_out: match (place, &source) {
            (Some(place), rustls::Error::InconsistentKeys(_)) => format!(
                ": the key is that of certificate {} there; put that one first, and those between it and its authority after it",
                place + 1
            ),
            (None, rustls::Error::InconsistentKeys(_)) => {
                ": the key is of none there; name the file of the key that the certificate was made for".to_owned()
            }
            _ => String::new(),
        },
        // The way out says it, in more than one word.
        source: (!matches!(source, rustls::Error::InconsistentKeys(_))).then(|| Box::new(source)),
    })
}

/// The place in a chain of the certificate that a key is of.
fn place(chain: &[CertificateDer<'static>], key: &PrivateKeyDer<'static>) -> Option<usize> {
    let provider = rustls::crypto::ring::default_provider();
    let is_its = |one: &CertificateDer<'static>| {
        CertifiedKey::from_der(vec![one.clone()], key.clone_key(), &provider).is_ok()
    };
    chain.iter().position(is_its)
}

/// The authorities in a PEM file, without those that the library does not understand. Their dates are not checked: the
/// library trusts an authority that has expired.
pub fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let wanted = "an authority's certificate (PEM)";
    let authorities: Vec<CertificateDer<'static>> = parts(path, wanted)?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities);
    if roots.is_empty() {
        let found = "a CERTIFICATE that is not understood".to_owned();
        return Err(TlsError::Pem { path: path.to_owned(), wanted, found, source: None });
    }
    Ok(roots)
}

/// Why a certificate is not valid at a moment, where that is for its time.
fn out_of_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<String> {
    let known = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    // Its time is checked before it is looked for among those that are trusted, here none.
    let nobody = RootCertStore::empty();
    let checked = verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], now, known);
    let Err(rustls::Error::InvalidCertificate(error)) = checked else { return None };
    let (what, moment) = match error {
        CertificateError::ExpiredContext { not_after, .. } => ("expired at", not_after),
        CertificateError::NotValidYetContext { not_before, .. } => {
            ("is not valid before", not_before)
        }
        _ => return None,
    };
    let moment = DateTime::from_timestamp(i64::try_from(moment.as_secs()).ok()?, 0)?;
    Some(format!("{what} {moment}"))
}

/// The parts of a PEM file that are of one kind: one at least.
fn parts<P: PemObject>(path: &Path, wanted: &'static str) -> Result<Vec<P>, TlsError> {
    let pem = crate::read_file(path, crate::LARGEST_FILE)
        .map_err(|source| TlsError::File { path: path.to_owned(), source })?;
    let refuse =
        |source| TlsError::Pem { path: path.to_owned(), wanted, found: labels(&pem), source };
    let parts: Result<Vec<P>, _> = P::pem_slice_iter(&pem).collect();
    let parts = parts.map_err(|error| refuse(Some(in_words(error))))?;
    if parts.is_empty() { Err(refuse(None)) } else { Ok(parts) }
}

/// Why a PEM file cannot be read: the library writes lines as lists of bytes.
fn in_words(error: pem::Error) -> Box<dyn std::error::Error + Send + Sync> {
    let text = String::from_utf8_lossy;
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("the end of `{}` is missing", text(&end_marker)).into()
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("the line `{}` begins no section", text(&line).trim_end()).into()
        }
        other => Box::new(other),
    }
}

/// What a PEM file has, in the words of its own lines.
fn labels(pem: &[u8]) -> String {
    let text = String::from_utf8_lossy(pem);
    let labels: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----"))
        .collect();
    let found = labels.into_iter().collect::<Vec<_>>().join(", ");
    if found.is_empty() { "nothing in PEM".to_owned() } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_something_else_is_refused_with_what_it_has_and_what_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let part = |label: &str, body: &str| {
            format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
        };
        let certificate = file("certificate", &part("CERTIFICATE", "AAAA"));
        let locked = file("locked", &part("ENCRYPTED PRIVATE KEY", "AAAA"));
        let damaged = file("damaged", &part("CERTIFICATE", "*"));
        let text = file("text", "token\n");
        let pair = |certificate: &Path, key: &Path| {
            let files =
                Tls { certificate: certificate.into(), key: key.into(), client_certificate: None };
            files.config(&[]).unwrap_err().to_string()
        };
        for (said, wanted, path, found) in [
            (pair(&text, &text), "a certificate (PEM)", &text, "nothing in PEM"),
            (pair(&locked, &locked), "a certificate (PEM)", &locked, "ENCRYPTED PRIVATE KEY"),
            (pair(&damaged, &locked), "a certificate (PEM)", &damaged, "CERTIFICATE"),
            (
                pair(&certificate, &locked),
                "a private key without a password (PEM)",
                &locked,
                "ENCRYPTED PRIVATE KEY",
            ),
            (
                authorities(&locked).unwrap_err().to_string(),
                "an authority's certificate (PEM)",
                &locked,
                "ENCRYPTED PRIVATE KEY",
            ),
            (
                authorities(&certificate).unwrap_err().to_string(),
                "an authority's certificate (PEM)",
                &certificate,
                "a CERTIFICATE that is not understood",
            ),
        ] {
            assert_eq!(said, format!("wanted {wanted} in {}, found {found}", path.display()));
        }
        let cut = file("cut", "-----BEGIN CERTIFICATE-----\nAAAA\n");
        let wrong = file("wrong", "-----BEGIN CERTIFICATE\nAAAA\n");
        for (file, why) in [
            (&cut, "the end of `CERTIFICATE` is missing"),
            (&wrong, "the line `-----BEGIN CERTIFICATE` begins no section"),
        ] {
            let error = authorities(file).unwrap_err();
            let source = std::error::Error::source(&error).unwrap();
            assert_eq!(source.to_string(), why);
        }
        let key = file("key", &part("PRIVATE KEY", "AAAA"));
        let said = pair(&certificate, &key);
        assert!(said.contains("cannot be used together"), "{said}");
    }

    #[test]
    fn a_chain_in_the_wrong_order_is_refused_with_the_place_of_its_first_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let [(authority, other), (own, key)] =
            ["authority", "own"].map(|name| kendall_testing::certificate(folder.path(), name));
        let chain = |files: [&PathBuf; 2]| {
            let text = files.map(|file| std::fs::read_to_string(file).unwrap()).concat();
            let certificate = folder.path().join("chain.pem");
            std::fs::write(&certificate, text).unwrap();
            Tls { certificate, key: key.clone(), client_certificate: None }
        };
        chain([&own, &authority]).config(&[]).unwrap();
        let said = chain([&authority, &own]).config(&[]).unwrap_err().to_string();
        assert!(said.contains("the key is that of certificate 2 there; put that one"), "{said}");
        let foreign = Tls { key: other, ..chain([&own, &own]) };
        let error = foreign.config(&[]).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("the key is of none there"), "{said}");
        assert!(std::error::Error::source(&error).is_none(), "{error:?}");
    }

    #[test]
    fn a_certificate_is_valid_in_its_time_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (file, _) = kendall_testing::expired_certificate(folder.path(), "one");
        let certificate = &parts::<CertificateDer<'_>>(&file, "").unwrap()[0];
        let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        // The days from 1970 to 2020, whose 366 it is valid for.
        let began = 18_262;
        let at = |day| out_of_time(certificate, UnixTime::since_unix_epoch(days(day)));
        assert_eq!(at(began + 1), None);
        assert_eq!(at(began - 1).unwrap(), "is not valid before 2020-01-01 00:00:00 UTC");
        assert_eq!(at(began + 367).unwrap(), "expired at 2021-01-01 00:00:00 UTC");
    }
}
