//! A socket of an event loop: what the kernel said of it, and reads and writes that keep to it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};

/// One socket and what is known of it since its last event.
#[derive(Debug)]
pub struct Endpoint {
    socket: OwnedFd,
    readable: bool,
    writable: bool,
    /// The kernel announced an end or an error, so reading goes on until it has come.
    ending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    Bytes(usize),
    Nothing,
    Closed,
    Reset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    Bytes(usize),
    Nothing,
    Reset,
}

impl Endpoint {
    /// Wraps a socket that neither blocks nor delays small writes.
    pub const fn new(socket: OwnedFd) -> Self {
        Self { socket, readable: false, writable: false, ending: false }
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Notes what the kernel announced.
    pub fn announce(&mut self, flags: EventFlags) {
        let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.readable |= ending || flags.contains(EventFlags::IN);
        self.writable |= flags.contains(EventFlags::OUT);
        self.ending |= ending;
    }

    pub fn is_readable(&self) -> bool {
        self.readable
    }

    pub fn is_writable(&self) -> bool {
        self.writable
    }

    pub fn read(&mut self, buffer: &mut [u8]) -> Read {
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
    pub fn write(&mut self, bytes: &[u8]) -> Write {
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
    pub fn close_writing(&self) {
        // It fails only for a socket that is not connected any more, whose end was seen or will be.
        rustix::net::shutdown(&self.socket, Shutdown::Write).unwrap_or_default();
    }

    /// Makes closing the socket reset the connection.
    pub fn reset_on_close(&self) {
        // It cannot fail for a socket; if it did, the peer would see a close in place of a reset.
        sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO)).unwrap_or_default();
    }

    pub fn connect_outcome(&self) -> Result<(), Errno> {
        sockopt::socket_error(self.socket.as_fd()).unwrap_or(Ok(()))
    }
}
