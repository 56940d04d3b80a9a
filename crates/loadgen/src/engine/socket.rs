//! A socket of a connection, as it is or with TLS.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net;
use tokio_rustls::rustls::{self, ClientConnection};

use crate::driver::ErrorKind;

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    pub(super) tls: Option<Box<ClientConnection>>,
}

/// The socket itself, for the library that encrypts.
struct Raw<'a>(&'a OwnedFd);

impl Read for Raw<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match net::recv(self.0, &mut *bytes, net::RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                received => return Ok(received?.0),
            }
        }
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(self.0, bytes, net::SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket {
    /// Sends as much as the kernel takes. With TLS all is taken, and [`flush`](Self::flush) sends the rest of it.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(tls) = &mut self.tls else {
            return net::send(&self.fd, bytes, net::SendFlags::NOSIGNAL);
        };
        tls.writer().write_all(bytes).map_err(errno)?;
        self.flush()?;
        Ok(bytes.len())
    }

    /// Sends what is encrypted and was not taken.
    pub(super) fn flush(&mut self) -> Result<(), Errno> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            match tls.write_tls(&mut Raw(&self.fd)).map_err(errno) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// What it is when nothing can be sent: while TLS greets, its failure.
    pub(super) fn broken(&self, errno: Errno) -> ErrorKind {
        if self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            return ErrorKind::TlsFailed;
        }
        ErrorKind::of_socket(&errno.into())
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// What came in; nothing at the end. An error of the kind `WouldBlock` where the socket is empty.
    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(tls) = &mut self.tls else { return Raw(&self.fd).read(bytes) };
            match tls.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The end without a goodbye is the protocol's own matter.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            let greets = tls.is_handshaking();
            match tls.read_tls(&mut Raw(&self.fd)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock || !greets => {
                    return Err(error);
                }
                Ok(0) if !greets => return Ok(0),
                Ok(0) | Err(_) => return Err(refused(rustls::Error::HandshakeNotComplete)),
                Ok(_) => {}
            }
            let processed = tls.process_new_packets();
            self.flush()?;
            processed.map_err(refused)?;
        }
    }
}

/// What TLS refuses, as an error of the socket.
fn refused(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
