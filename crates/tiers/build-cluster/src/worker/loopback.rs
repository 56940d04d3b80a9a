//! Raises the loopback interface of a new network namespace, so that tests can talk to themselves.

use std::io;
use std::os::fd::AsFd as _;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Number of the loopback interface: the first of every namespace.
const LOOPBACK: i32 = 1;
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const IFF_UP: u32 = 1;
/// Bytes of `nlmsghdr` and of `ifinfomsg`.
const HEAD: usize = 16;
const INTERFACE: usize = 16;

pub(super) fn raise() -> io::Result<()> {
    // The family's first protocol, about routes and interfaces.
    let kind = (AddressFamily::NETLINK, SocketType::RAW);
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(kind.0, kind.1, flags, None)?;
    let mut request = Vec::with_capacity(HEAD + INTERFACE);
    let length = u32::try_from(HEAD + INTERFACE).unwrap_or(u32::MAX);
    request.extend_from_slice(&length.to_ne_bytes());
    request.extend_from_slice(&RTM_NEWLINK.to_ne_bytes());
    request.extend_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    request.extend_from_slice(&1_u32.to_ne_bytes()); // sequence
    request.extend_from_slice(&0_u32.to_ne_bytes()); // port: the kernel fills it in
    request.extend_from_slice(&[0; 4]); // family, padding, device type
    request.extend_from_slice(&LOOPBACK.to_ne_bytes());
    request.extend_from_slice(&IFF_UP.to_ne_bytes()); // flags
    request.extend_from_slice(&IFF_UP.to_ne_bytes()); // which of them change
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &request, SendFlags::empty(), &kernel)?;
    let mut answer = [0_u8; 256];
    let (read, _) = rustix::net::recv(socket.as_fd(), &mut answer[..], RecvFlags::empty())?;
    // The error code follows the head; 0 is success.
    let code = answer[..read].get(HEAD..HEAD + 4).and_then(|bytes| bytes.try_into().ok());
    match code.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is short")),
    }
}
