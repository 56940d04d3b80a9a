//! Sockets that never block, in clear or with TLS.
//!
//! With TLS, what came off the socket is decoded at once and handed on whole, so that nothing waits in here
//! for which no event will come; what could not be written yet is asked for with [`Stream::has_backlog`].

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use kendall_tier::BACKLOG;
use kendall_tier::serve::is_in_the_clear;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    getsockname, listen, recv, send, socket_with, sockopt,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::options::Address;
use crate::tls::ServerTls;

/// Space that one read of the socket may decode to: a record, and what was read of the next.
const RECORD_BYTES: usize = 24 << 10;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// What became of a read or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    Bytes(usize),
    Later,
    /// The other side closed, or the connection broke.
    Closed,
}

/// A connection, to a client or to a server.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: OwnedFd,
    tls: Option<Box<Tls>>,
}

impl Stream {
    pub(crate) fn new(socket: OwnedFd, tls: Option<Tls>) -> Self {
        Self { socket, tls: tls.map(Box::new) }
    }

    /// Whether it is encrypted: then a read may allow a write.
    #[inline]
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether it is encrypted and not agreed yet how.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether TLS was refused because the other side does not speak it.
    pub(crate) fn met_clear(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.met_clear)
    }

    /// Whether the other side ended behind the bytes that were read last.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_ended())
    }

    /// Whether bytes that were taken wait for the socket to be writable.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_backlog())
    }

    /// Writes what was taken and waits; says whether the socket still takes something.
    #[inline]
    pub(crate) fn flush(&mut self) -> bool {
        self.tls.as_mut().is_none_or(|tls| tls.flush(&self.socket))
    }

    /// Whether a write that came back with [`Moved::Later`] waits for the socket to be writable, and
    /// not for what the other side has to say first.
    #[inline]
    pub(crate) fn waits_for_room(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.has_backlog())
    }

    /// Says good-bye where that is the custom.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&self.socket);
        }
    }

    /// Whether a connection that was under way is made.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(sockopt::socket_error(&self.socket), Ok(Ok(())))
    }

    #[inline]
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Moved {
        if let Some(tls) = &mut self.tls {
            return tls.read(&self.socket, buffer);
        }
        match recv(&self.socket, buffer, RecvFlags::empty()) {
            Ok((0, _)) => Moved::Closed,
            Ok((count, _)) => Moved::Bytes(count),
            Err(Errno::AGAIN | Errno::INTR) => Moved::Later,
            Err(_) => Moved::Closed,
        }
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Moved {
        if let Some(tls) = &mut self.tls {
            return tls.write(&self.socket, bytes);
        }
        match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => Moved::Bytes(count),
            Err(Errno::AGAIN | Errno::INTR) => Moved::Later,
            Err(_) => Moved::Closed,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// TLS of one connection.
#[derive(Debug)]
pub(crate) struct Tls {
    connection: Connection,
    /// The other side ended behind the bytes that were read last.
    ended: bool,
    /// It does not speak TLS.
    met_clear: bool,
}

/// The socket in the form that the TLS library takes.
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
        Some(Self { connection: connection.into(), ended: false, met_clear: false })
    }

    /// The side that calls.
    pub(crate) fn connecting(tls: &ServerTls, name: ServerName<'static>) -> Option<Self> {
        let name = tls.name.clone().unwrap_or(name);
        let connection = ClientConnection::new(Arc::clone(&tls.config), name).ok()?;
        Some(Self { connection: connection.into(), ended: false, met_clear: false })
    }

    /// Reads as much as there is and fits. What was decoded is handed on whole.
    pub(crate) fn read(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> Moved {
        let mut filled = 0;
        let mut ended = false;
        loop {
            match self.connection.reader().read(&mut buffer[filled..]) {
                // The peer has closed its direction.
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
                Ok(_) => match self.connection.process_new_packets() {
                    Ok(_) => continue,
                    Err(error) => {
                        self.met_clear = is_in_the_clear(&error);
                        ended = true;
                    }
                },
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

    /// Takes as much as there is space for, and writes what the socket takes.
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

    /// Sends the end of this direction, if the socket takes it at once.
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

/// A socket in the file system, which is taken away when this is dropped.
#[derive(Debug)]
pub(crate) struct Path(PathBuf);

impl Drop for Path {
    fn drop(&mut self) {
        // One that was removed already leaves nothing behind.
        std::fs::remove_file(&self.0).unwrap_or_default();
    }
}

pub(crate) fn listener(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), Errno> {
    let socket = tcp(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let real = getsockname(&socket)?;
    Ok((socket, SocketAddr::try_from(real).unwrap_or(address)))
}

/// Listens at a path. A socket without a listener is replaced; anything else is not.
pub(crate) fn unix_listener(path: &FilePath) -> io::Result<(OwnedFd, Path)> {
    let address = SocketAddrUnix::new(path)?;
    let left_over = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if left_over {
        let probe = unix()?;
        if connect(&probe, &address) == Err(Errno::CONNREFUSED) {
            std::fs::remove_file(path)?;
        }
    }
    let socket = unix()?;
    bind(&socket, &address)?;
    let path = Path(path.to_owned());
    listen(&socket, BACKLOG)?;
    Ok((socket, path))
}

/// A connection, and whether it is made already; if not, it is writable when it is made or has
/// failed.
pub(crate) fn connecting(address: &Address) -> Result<(OwnedFd, bool), Errno> {
    let (socket, connected) = match address {
        Address::Tcp(address) => {
            let socket = tcp(*address)?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            let connected = connect(&socket, address);
            (socket, connected)
        }
        Address::Unix(path) => {
            let socket = unix()?;
            let connected = connect(&socket, &SocketAddrUnix::new(path.as_path())?);
            (socket, connected)
        }
    };
    match connected {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error),
    }
}

fn tcp(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, SocketType::STREAM, FLAGS, None)
}

fn unix() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)
}
