//! One relayed connection: two sockets, two delay lines, and what the kernel said of them.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};

use crate::line::DelayLine;

/// The two ends of a connection; direction `CLIENT` carries what the client sends.
pub(crate) const CLIENT: usize = 0;
/// The side that the link connected to.
pub(crate) const SERVER: usize = 1;

/// A connection that is relayed.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) route: usize,
    pub(crate) ends: [Endpoint; 2],
    /// Bytes on their way from the end with the same index to the other.
    pub(crate) lines: [DelayLine; 2],
    /// Earliest moment that a timer stands for, by direction.
    pub(crate) armed_ns: [Option<u64>; 2],
    /// Directions whose end has been delivered.
    pub(crate) finished: [bool; 2],
    /// Whether the connection to the server stands; until then, nothing is written to it.
    pub(crate) connected: bool,
    /// Whether it waits in the list of connections that had more to do than one turn allows.
    pub(crate) again: bool,
}

/// One socket and what is known of it since its last event.
#[derive(Debug)]
pub(crate) struct Endpoint {
    socket: OwnedFd,
    readable: bool,
    writable: bool,
    /// The kernel announced an end or an error, so reading goes on until it has come.
    ending: bool,
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(usize),
    Nothing,
    Closed,
    Reset,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    Bytes(usize),
    Nothing,
    Reset,
}

impl Endpoint {
    /// Wraps a socket that neither blocks nor delays small writes.
    pub(crate) const fn new(socket: OwnedFd) -> Self {
        Self { socket, readable: false, writable: false, ending: false }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Notes what the kernel announced.
    pub(crate) fn announce(&mut self, readable: bool, writable: bool, ending: bool) {
        self.readable |= readable || ending;
        self.writable |= writable;
        self.ending |= ending;
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.readable
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Reads into `buffer` what is there.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Read {
        match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => {
                self.readable = false;
                Read::Closed
            }
            Ok((count, _)) => {
                // Less than was asked for: the socket is empty, and what comes next is announced
                // again. An end that was announced already is not.
                self.readable = count == buffer.len() || self.ending;
                Read::Bytes(count)
            }
            Err(Errno::AGAIN) => {
                self.readable = false;
                self.ending = false;
                Read::Nothing
            }
            Err(Errno::INTR) => Read::Nothing,
            Err(_) => {
                self.readable = false;
                Read::Reset
            }
        }
    }

    /// Writes what the kernel takes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Write {
        match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => {
                self.writable = count == bytes.len();
                Write::Bytes(count)
            }
            Err(Errno::AGAIN) => {
                self.writable = false;
                Write::Nothing
            }
            Err(Errno::INTR) => Write::Nothing,
            Err(_) => Write::Reset,
        }
    }

    /// Passes on that nothing more comes.
    pub(crate) fn close_writing(&self) {
        // It fails only for a socket that is not connected any more, whose end was seen or will be.
        rustix::net::shutdown(&self.socket, Shutdown::Write).unwrap_or_default();
    }

    /// Makes closing the socket reset the connection.
    pub(crate) fn reset_on_close(&self) {
        // It cannot fail for a socket; if it did, the peer would see a close in place of a reset.
        sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO)).unwrap_or_default();
    }

    /// The outcome of a connect that did not block.
    pub(crate) fn connect_outcome(&self) -> Result<(), Errno> {
        sockopt::socket_error(self.socket.as_fd()).unwrap_or(Ok(()))
    }
}

impl Connection {
    /// A connection whose server side is being connected.
    pub(crate) fn new(route: usize, client: Endpoint, server: Endpoint) -> Self {
        Self {
            route,
            ends: [client, server],
            lines: [DelayLine::default(), DelayLine::default()],
            armed_ns: [None, None],
            finished: [false, false],
            connected: false,
            again: false,
        }
    }

    /// Bytes that it holds.
    pub(crate) fn held(&self) -> usize {
        self.lines.iter().map(DelayLine::len).sum()
    }

    /// Resets both ends when they are closed.
    pub(crate) fn reset_on_close(&self) {
        for end in &self.ends {
            end.reset_on_close();
        }
    }
}
