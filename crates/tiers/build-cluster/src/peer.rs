//! How a tier of the cluster reaches another: where it is, by which certificate it is known, and with
//! which token it is asked.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Request, Response};
use kendall_tier::serve::{TlsAlone, TlsError, authorities, with_identity};
use kendall_units::chain;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::sign::CertifiedKey;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Bytes that may be under way to who does not take them: of one answer, and of all that are passed on.
const WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 64 << 20;
/// Streams that were given up, and what still comes of them is dropped; of others each frame is answered. Clients of a
/// scheduler give up many at once.
const GIVEN_UP: usize = 1024;
/// A peer that answers no ping for so long is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Files by which the others are known, and this tier to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustFiles {
    /// PEM file with the certificate that those of the others come from; TLS is spoken with it alone.
    pub certificate: Option<PathBuf>,
    /// The name in their certificates, where it is not their address.
    pub name: Option<String>,
    /// PEM files with a certificate of this tier and its key.
    pub own: Option<(PathBuf, PathBuf)>,
    /// File that holds a token.
    pub token: Option<PathBuf>,
}

/// Credentials that a tier sends to other tiers, and those that it requires of them.
#[derive(Clone, Default)]
pub struct Trust {
    tls: Option<Box<ClientTlsConfig>>,
    token: Option<HeaderValue>,
}

impl std::fmt::Debug for Trust {
    /// Without the key and the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Trust");
        shown.field("tls", &self.tls.is_some()).field("token", &self.token.is_some()).finish()
    }
}

/// Files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("cannot read {path}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{0} holds no token; write one line of letters and digits")]
    Token(PathBuf),
    #[error(transparent)]
    Certificate(#[from] TlsError),
    #[error("the certificate or the key for calls to the other tiers cannot be used")]
    Tls(#[source] tonic::transport::Error),
}

fn read(path: &Path) -> Result<String, TrustError> {
    kendall_tier::read_text(path, kendall_tier::LARGEST_FILE)
        .map_err(|source| TrustError::File { path: path.to_owned(), source })
}

impl Trust {
    /// Reads the files, and sees that they can be used.
    pub fn read(files: &TrustFiles) -> Result<Self, TrustError> {
        let token = match &files.token {
            None => None,
            Some(path) => {
                let bearer = read(path)?;
                let bearer = Some(bearer.trim()).filter(|text| !text.is_empty());
                let value = bearer.and_then(|text| format!("Bearer {text}").parse().ok());
                let mut value: HeaderValue =
                    value.ok_or_else(|| TrustError::Token(path.clone()))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let tls = match &files.certificate {
            None => None,
            Some(path) => {
                // The library says neither which file it refuses nor what it wants.
                authorities(path)?;
                let mut tls =
                    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?));
                if let Some(name) = &files.name {
                    tls = tls.domain_name(name);
                }
                if let Some((certificate, key)) = &files.own {
                    with_identity(certificate, key, |chain, key| {
                        CertifiedKey::from_der(chain, key, &ring::default_provider())
                    })?;
                    tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
                }
                Some(Box::new(tls))
            }
        };
        let trust = Self { tls, token };
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        trust.endpoint(nobody).map_err(TrustError::Tls)?;
        Ok(trust)
    }

    fn endpoint(&self, address: SocketAddr) -> Result<Endpoint, tonic::transport::Error> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?
            .tcp_nodelay(true)
            .connect_timeout(CONNECT)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_concurrent_reset_streams(GIVEN_UP)
            .http2_max_local_error_reset_streams(None)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE);
        match &self.tls {
            None => Ok(endpoint),
            Some(tls) => endpoint.tls_config(tls.as_ref().clone()),
        }
    }
}

/// Another tier of the cluster.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// How it is known.
    pub trust: Trust,
}

impl From<SocketAddr> for Peer {
    /// One that is spoken to in the clear.
    fn from(address: SocketAddr) -> Self {
        Self { address, trust: Trust::default() }
    }
}

impl Peer {
    /// A connection to it that is made when it is needed, and again when it broke. To be called on a
    /// runtime.
    pub fn calls(&self) -> Calls {
        let endpoint = self.trust.endpoint(self.address);
        let channel = endpoint.expect("tried when the files were read").connect_lazy();
        Calls { way: Way::Network(channel), token: self.trust.token.clone(), reach: None }
    }
}

/// How a cache answered last, of which the log is told when that changes.
#[derive(Debug)]
pub(crate) struct Reach {
    address: SocketAddr,
    last: AtomicU8,
}

/// It answered, refused this tier itself, or could not be reached.
const ANSWERS: u8 = 0;
const REFUSES: u8 = 1;
const IS_AWAY: u8 = 2;

impl Reach {
    pub(crate) fn of(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self { address, last: AtomicU8::new(ANSWERS) })
    }

    /// Logs an answer that is not as the last one. Requests that are not its own bear the tokens of others.
    fn heard(
        &self,
        answer: &Result<Response<Body>, tonic::transport::Error>,
        own: bool,
        has_token: bool,
    ) {
        let last = self.last.load(Ordering::Relaxed);
        let now = match answer {
            Err(_) => IS_AWAY,
            Ok(response) if own && is_refusal(response) => REFUSES,
            Ok(_) if !own && last == REFUSES => REFUSES,
            Ok(_) => ANSWERS,
        };
        if now == last || self.last.swap(now, Ordering::Relaxed) == now {
            return;
        }
        let address = self.address;
        match answer {
            Err(error) => {
                tracing::warn!(%address, why = explained(error), "the cache cannot be reached");
            }
            Ok(_) if now == REFUSES => {
                let wish = if has_token {
                    "knows no such token as this tier's; name a file with another"
                } else {
                    "wants a token; name a file with one"
                };
                tracing::warn!(%address, "the cache {wish} by --peer-token");
            }
            Ok(_) => tracing::info!(%address, "the cache answers again"),
        }
    }
}

/// An error with its causes, and what may be wrong: one side alone speaks TLS.
pub(crate) fn explained(error: &dyn std::error::Error) -> String {
    let mut why = chain(error);
    why.push_str(match TlsAlone::of(&why) {
        Some(TlsAlone::Server) => "; does it speak TLS? name its authority by --peer-certificate",
        Some(TlsAlone::Client) => {
            "; it speaks no TLS: leave --peer-certificate out, or start it with --tls-certificate"
        }
        None => "",
    });
    why
}

/// Whether a request was refused for its token: alone, in the head of its answer.
fn is_refusal(response: &Response<Body>) -> bool {
    Status::from_header_map(response.headers())
        .is_some_and(|status| status.code() == Code::Unauthenticated)
}

/// A connection over which requests bear the tier's token.
#[derive(Debug, Clone)]
pub struct Calls {
    way: Way,
    token: Option<HeaderValue>,
    /// Whom answers are told to, and whether requests are this tier's own.
    reach: Option<(Arc<Reach>, bool)>,
}

#[derive(Clone)]
enum Way {
    Network(Channel),
    /// A network that a test makes and breaks.
    #[cfg(test)]
    Model(Arc<dyn Fn(Request<Body>) -> Answering + Send + Sync>),
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Way")
    }
}

/// A request under way.
type Answering =
    Pin<Box<dyn Future<Output = Result<Response<Body>, tonic::transport::Error>> + Send>>;

impl Calls {
    /// The same connection for requests of others, which bear their own token or none.
    pub fn for_others(&self) -> Self {
        let reach = self.reach.as_ref().map(|(reach, _)| (Arc::clone(reach), false));
        Self { way: self.way.clone(), token: None, reach }
    }

    /// The same connection, of whose answers the log is told.
    pub(crate) fn logged(self, reach: &Arc<Reach>) -> Self {
        Self { reach: Some((Arc::clone(reach), true)), ..self }
    }

    #[cfg(test)]
    pub(crate) fn model<F: Future<Output = Response<Body>> + Send + 'static>(
        answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static,
    ) -> Self {
        let way = Way::Model(Arc::new(move |request| {
            let answering = answer(request);
            Box::pin(async move { Ok(answering.await) })
        }));
        Self { way, token: None, reach: None }
    }
}

impl Service<Request<Body>> for Calls {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match &mut self.way {
            Way::Network(channel) => Service::<Request<Body>>::poll_ready(channel, context),
            #[cfg(test)]
            Way::Model(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(token) = &self.token {
            request.headers_mut().entry(AUTHORIZATION).or_insert_with(|| token.clone());
        }
        let answering: Answering = match &mut self.way {
            Way::Network(channel) => Box::pin(channel.call(request)),
            #[cfg(test)]
            Way::Model(answer) => answer(request),
        };
        let Some((reach, own)) = self.reach.clone() else { return answering };
        let has_token = self.token.is_some();
        Box::pin(async move {
            let answer = answering.await;
            reach.heard(&answer, own, has_token);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_used_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let token = Some(file("empty", "\n"));
        let said = Trust::read(&TrustFiles { token, ..TrustFiles::default() }).unwrap_err();
        assert!(said.to_string().contains("holds no token"), "{said}");
        let token = Some(folder.path().join("none"));
        let said = Trust::read(&TrustFiles { token, ..TrustFiles::default() }).unwrap_err();
        assert!(said.to_string().contains("cannot read"), "{said}");
        let own = Some((file("own", "x"), file("key", "y")));
        let certificate = Some(file("certificate", "nothing"));
        let files = TrustFiles { certificate, own, ..TrustFiles::default() };
        let said = Trust::read(&files).unwrap_err().to_string();
        assert!(said.ends_with("certificate, found nothing in PEM"), "{said}");
        let certificate = Some(kendall_testing::certificate(folder.path(), "peer").0);
        let said = Trust::read(&TrustFiles { certificate, ..files }).unwrap_err().to_string();
        assert!(said.ends_with("own, found nothing in PEM"), "{said}");
        let token = Some(file("token", "secret\n"));
        let trust = Trust::read(&TrustFiles { token, ..TrustFiles::default() }).unwrap();
        assert!(!format!("{trust:?}").contains("secret"), "{trust:?}");
    }

    #[test]
    fn only_answers_to_its_own_requests_tell_that_a_token_is_refused() {
        let reach = Reach::of(([127, 0, 0, 1], 1).into());
        let last = |answer: Response<Body>, own| {
            reach.heard(&Ok(answer), own, true);
            reach.last.load(Ordering::Relaxed)
        };
        let refusal = || Status::unauthenticated("no token").into_http();
        let other = || Status::not_found("no blob").into_http();
        assert_eq!(last(refusal(), false), ANSWERS);
        assert_eq!(last(refusal(), true), REFUSES);
        assert_eq!(last(other(), false), REFUSES);
        assert_eq!(last(other(), true), ANSWERS);
    }

    #[test]
    fn tls_on_one_side_alone_is_explained() {
        let said = |words: &str| explained(&std::io::Error::other(words.to_owned()));
        assert!(said("frame with invalid size").ends_with("by --peer-certificate"));
        let said_in_clear = said("received corrupt message of type InvalidContentType");
        assert!(said_in_clear.contains("; it speaks no TLS: leave --peer-certificate out"));
        assert_eq!(said("Connection refused"), "Connection refused");
    }
}
