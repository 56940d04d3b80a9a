//! The least that a client can do: the same request on every connection, one read and one write
//! each, no parsing, no times, no records. What a request costs beyond it is the generator's own.

use std::net::TcpStream;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::net::{RecvFlags, SendFlags, recv, send};

pub(crate) const MEMCACHED_REQUEST: &[u8] = b"get k000000000000007\r\n";
pub(crate) const HTTP_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

const CONNECTIONS: u64 = 64;

/// Loads `target` for two seconds. `end` is how a reply ends, where one read may bring a part.
pub(crate) fn run(target: &str, request: &[u8], end: &[u8]) {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let sockets: Vec<OwnedFd> = (0..CONNECTIONS)
        .map(|index| {
            let stream = TcpStream::connect(target).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            let socket = OwnedFd::from(stream);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, &socket, epoll::EventData::new_u64(index), flags).unwrap();
            send(&socket, request, SendFlags::empty()).unwrap();
            socket
        })
        .collect();
    let started = std::time::Instant::now();
    let mut events: Vec<epoll::Event> = Vec::with_capacity(512);
    let mut input = [0; 65_536];
    while started.elapsed().as_millis() < 2_000 {
        events.clear();
        let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)).unwrap();
        for event in &events {
            let socket = &sockets[usize::try_from(event.data.u64()).unwrap()];
            let Ok((read, _)) = recv(socket, &mut input[..], RecvFlags::empty()) else { continue };
            if read == 0 {
                return;
            }
            if input[..read].ends_with(end) {
                send(socket, request, SendFlags::empty()).unwrap();
            }
        }
    }
}
