//! TLS over a socket that never blocks.
//!
//! What came off the socket is decoded at once and handed on whole, so that nothing waits in here
//! for which no event will come; what could not be written yet is asked for with
//! [`Tls::has_backlog`]. Connections without TLS have none of this.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

use crate::socket::Moved;

/// Room that one read of the socket may decode to: a record, and what was read of the next.
const RECORD_BYTES: usize = 24 << 10;

/// How servers are spoken to with TLS.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// Whom to trust, and who we are.
    pub config: Arc<ClientConfig>,
    /// The name that their certificates must have; their address without one.
    pub name: Option<ServerName<'static>>,
    /// The certificates of the authority.
    trusted: Arc<[CertificateDer<'static>]>,
}

/// TLS cannot be spoken with these files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there, or holds no certificate or key.
    #[error("cannot read {} as PEM", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The files do not fit each other, or are of a kind that is not known.
    #[error("cannot use the certificates")]
    Unusable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No authority to trust.
    #[error("no certificate of an authority in {}", path.display())]
    NoAuthority {
        /// The file.
        path: PathBuf,
    },
    /// Not a host name.
    #[error("`{name}` is not a host name")]
    Name {
        /// What was given.
        name: String,
    },
}

impl ClientTls {
    /// With a certificate, its key, and, where clients have to show one too, the authority of theirs.
    ///
    /// # Errors
    /// [`TlsError`] when a file cannot be read, or is not what it should be.
    pub fn from_files(
        certificate: &Path,
        key: &Path,
        authority: Option<&Path>,
    ) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|source| TlsError::File { path: key.to_owned(), source })?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = match authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities(path, &certificates(path)?)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                builder.with_client_cert_verifier(verifier.build().map_err(unusable)?)
            }
        };
        Ok(Self(Arc::new(builder.with_single_cert(chain, private).map_err(unusable)?)))
    }
}

impl ServerTls {
    /// Trusting one authority, and with the name that the servers' certificates have; their address
    /// without one.
    ///
    /// # Errors
    /// [`TlsError`] when the file cannot be read, or is not what it should be.
    pub fn from_files(authority: &Path, name: Option<&str>) -> Result<Self, TlsError> {
        let name = match name {
            None => None,
            Some(name) => Some(
                ServerName::try_from(name.to_owned())
                    .map_err(|_| TlsError::Name { name: name.to_owned() })?,
            ),
        };
        let trusted = certificates(authority)?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(authorities(authority, &trusted)?)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), name, trusted: trusted.into() })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> TlsError {
    TlsError::Unusable(Box::new(error))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |source| TlsError::File { path: path.to_owned(), source };
    let read = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    read.collect::<Result<_, _>>().map_err(wrong)
}

fn authorities(
    path: &Path,
    trusted: &[CertificateDer<'static>],
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    if roots.is_empty() {
        return Err(TlsError::NoAuthority { path: path.to_owned() });
    }
    Ok(roots)
}

/// Two that trust the same certificates and want the same name are the same, read when they may be.
impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        self.trusted == other.trusted && self.name == other.name
    }
}

impl Eq for ServerTls {}

/// How clients are answered with TLS.
#[derive(Debug, Clone)]
pub struct ClientTls(pub Arc<ServerConfig>);

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientTls {}

/// One connection's state.
#[derive(Debug)]
pub(crate) struct Tls {
    connection: Connection,
    /// The other side ended behind the bytes that were read last.
    ended: bool,
}

/// The socket as the TLS library wants to see it.
struct Raw<'a>(&'a OwnedFd);

impl io::Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0, buffer, RecvFlags::empty())?.0)
    }
}

impl io::Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    /// The side that was called. `None` when the library refuses its configuration.
    pub(crate) fn accepting(config: &Arc<ServerConfig>) -> Option<Self> {
        let connection = ServerConnection::new(Arc::clone(config)).ok()?;
        Some(Self { connection: connection.into(), ended: false })
    }

    /// The side that calls.
    pub(crate) fn connecting(tls: &ServerTls, name: ServerName<'static>) -> Option<Self> {
        let name = tls.name.clone().unwrap_or(name);
        let connection = ClientConnection::new(Arc::clone(&tls.config), name).ok()?;
        Some(Self { connection: connection.into(), ended: false })
    }

    /// Reads as much as there is and fits. What was decoded is handed on whole.
    pub(crate) fn read(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> Moved {
        let mut filled = 0;
        let mut ended = false;
        loop {
            match self.connection.reader().read(&mut buffer[filled..]) {
                // The other side said that it is done.
                Ok(0) if filled < buffer.len() => ended = true,
                Ok(count) => {
                    filled += count;
                    if count > 0 {
                        continue;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => ended = true,
            }
            if ended || buffer.len() - filled < RECORD_BYTES {
                break;
            }
            match self.connection.read_tls(&mut Raw(socket)) {
                Ok(0) => ended = true,
                Ok(_) if self.connection.process_new_packets().is_ok() => continue,
                Ok(_) => ended = true,
                Err(error) if is_later(&error) => break,
                Err(_) => ended = true,
            }
            break;
        }
        // A handshake, an alert or a new key may have to go out.
        ended |= !self.flush(socket);
        match (filled, ended) {
            (0, true) => Moved::Closed,
            (0, false) => Moved::Later,
            (count, _) => {
                self.ended = ended;
                Moved::Bytes(count)
            }
        }
    }

    /// Takes as much as there is room for, and writes what the socket takes.
    pub(crate) fn write(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Moved {
        if !self.flush(socket) {
            return Moved::Closed;
        }
        if self.has_backlog() {
            return Moved::Later;
        }
        let taken = self.connection.writer().write(bytes);
        if !self.flush(socket) {
            return Moved::Closed;
        }
        match taken {
            Ok(0) => Moved::Later,
            Ok(count) => Moved::Bytes(count),
            Err(error) if is_later(&error) => Moved::Later,
            Err(_) => Moved::Closed,
        }
    }

    /// Writes what the socket takes; says whether it still takes something.
    pub(crate) fn flush(&mut self, socket: &OwnedFd) -> bool {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Raw(socket)) {
                Ok(_) => {}
                Err(error) if is_later(&error) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether it is not agreed yet how to speak.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the other side ended, which no event may say again.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether something waits for the socket to be writable.
    pub(crate) fn has_backlog(&self) -> bool {
        self.connection.wants_write()
    }

    /// Says that nothing more will come, if that can be said at once.
    pub(crate) fn close(&mut self, socket: &OwnedFd) {
        self.connection.send_close_notify();
        self.flush(socket);
    }
}

fn is_later(error: &io::Error) -> bool {
    let later = [Errno::AGAIN.raw_os_error(), Errno::INTR.raw_os_error()];
    error.raw_os_error().is_some_and(|number| later.contains(&number))
        || error.kind() == io::ErrorKind::WouldBlock
}
