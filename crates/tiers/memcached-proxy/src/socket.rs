//! Sockets that never block.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, connect,
    getsockname, listen, recv, send, socket_with, sockopt,
};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// What became of a read or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// So many bytes.
    Bytes(usize),
    /// None now.
    Later,
    /// The other side closed, or the connection broke.
    Closed,
}

pub(crate) fn listener(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), Errno> {
    let socket = stream(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let real = getsockname(&socket)?;
    Ok((socket, SocketAddr::try_from(real).unwrap_or(address)))
}

pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    let socket = accept_with(listener, FLAGS)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// A connection, and whether it is made already; if not, it is writable when it is made or has
/// failed.
pub(crate) fn connecting(address: SocketAddr) -> Result<(OwnedFd, bool), Errno> {
    let socket = stream(address)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match connect(&socket, &address) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error),
    }
}

/// Whether a connection that was under way is made.
pub(crate) fn is_connected(socket: &OwnedFd) -> bool {
    matches!(sockopt::socket_error(socket), Ok(Ok(())))
}

#[inline]
pub(crate) fn read(socket: &OwnedFd, buffer: &mut [u8]) -> Moved {
    match recv(socket, buffer, RecvFlags::empty()) {
        Ok((0, _)) => Moved::Closed,
        Ok((count, _)) => Moved::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Moved::Later,
        Err(_) => Moved::Closed,
    }
}

#[inline]
pub(crate) fn write(socket: &OwnedFd, bytes: &[u8]) -> Moved {
    match send(socket, bytes, SendFlags::NOSIGNAL) {
        Ok(count) => Moved::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Moved::Later,
        Err(_) => Moved::Closed,
    }
}

fn stream(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, SocketType::STREAM, FLAGS, None)
}
