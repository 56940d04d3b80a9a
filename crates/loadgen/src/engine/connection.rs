//! One connection: its socket, what is in flight on it, and what is half sent or half read.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net;

use super::socket::Socket;
use crate::clock::MILLISECOND_NS;
use crate::driver::ErrorKind;
use crate::tls::{self, Secure};

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// No request in flight; the socket may be open or not.
    Free,
    /// The request waits for the connection to be made.
    Connecting,
    /// The request is sent, or being sent.
    Busy,
}

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// The socket is empty.
    Nothing,
    /// `held` bytes lie in the inbox, of which `read` are new; `more` may follow at once.
    Bytes { held: usize, read: usize, more: bool },
    /// The server closed its side.
    End,
    /// The connection broke.
    Failed(ErrorKind),
}

#[derive(Debug)]
pub(super) struct Connection<P> {
    /// Where requests go that the driver sends nowhere else.
    home: SocketAddr,
    target: SocketAddr,
    secure: Option<Secure>,
    socket: Option<Socket>,
    /// Nothing was sent on the socket yet.
    unused: bool,
    /// Sockets to other nodes of a cluster, for when the driver turns to them again.
    parked: Vec<Parked>,
    pub(super) phase: Phase,
    pub(super) pending: P,
    pub(super) operation: usize,
    pub(super) due: u64,
    pub(super) sent: u64,
    pub(super) bytes_in: u64,
    /// A part of a line that the driver did not consume.
    kept: Vec<u8>,
    /// What the kernel did not take yet.
    unsent: Vec<u8>,
    unsent_from: usize,
    failures: u32,
    /// Number of the present socket, and of the last one that this connection had.
    generation: u32,
    generations: u32,
}

/// A socket that is not in use at the moment.
#[derive(Debug)]
struct Parked {
    target: SocketAddr,
    socket: Socket,
    generation: u32,
}

impl Parked {
    /// Whether the server has neither closed it nor said anything unasked on it.
    fn is_quiet(&self) -> bool {
        let flags = net::RecvFlags::PEEK | net::RecvFlags::DONTWAIT;
        net::recv(&self.socket.fd, &mut [0], flags) == Err(Errno::AGAIN)
    }
}

impl<P: Default> Connection<P> {
    pub(super) fn new(target: SocketAddr, secure: Option<Secure>) -> Self {
        Self {
            home: target,
            target,
            secure,
            socket: None,
            unused: true,
            parked: Vec::new(),
            phase: Phase::Free,
            pending: P::default(),
            operation: 0,
            due: 0,
            sent: 0,
            bytes_in: 0,
            kept: Vec::with_capacity(256),
            unsent: Vec::new(),
            unsent_from: 0,
            failures: 0,
            generation: 0,
            generations: 0,
        }
    }

    /// Connects before the load starts.
    pub(super) fn open_and_wait(
        &mut self,
        epoll: &OwnedFd,
        index: usize,
        timeout_ns: u64,
    ) -> io::Result<()> {
        let timeout = Duration::from_nanos(timeout_ns.max(MILLISECOND_NS));
        let (stream, tls) = tls::connect(&self.target, self.secure.as_ref(), timeout)?.into_parts();
        stream.set_nonblocking(true)?;
        self.watch(epoll, index, Socket { fd: stream.into(), tls }).map_err(Into::into)
    }

    /// Whether the request in flight was sent longer ago than the time-out.
    pub(super) fn is_overdue(&self, now: u64, timeout_ns: u64) -> bool {
        self.phase != Phase::Free && now >= self.sent.saturating_add(timeout_ns)
    }

    /// What events of the present socket carry: the connection's index and which socket it is.
    pub(super) fn mark(&self, index: usize) -> u64 {
        u64::from(self.generation) << 32 | index as u64
    }

    pub(super) fn index_of(mark: u64) -> usize {
        usize::try_from(mark & 0xFFFF_FFFF).unwrap_or(usize::MAX)
    }

    /// A request goes on its way.
    pub(super) fn begin(&mut self, operation: usize, due: u64, sent: u64) {
        self.operation = operation;
        self.due = due;
        self.sent = sent;
        self.bytes_in = 0;
        self.phase = Phase::Busy;
    }

    /// Turns to a node, or back home; the socket of before is kept for later.
    pub(super) fn turn_to(&mut self, node: Option<SocketAddr>) {
        let target = node.unwrap_or(self.home);
        if target == self.target {
            return;
        }
        if let Some(socket) = self.socket.take() {
            let generation = self.generation;
            self.parked.push(Parked { target: self.target, socket, generation });
        }
        self.target = target;
        self.next_generation();
        let at = self.parked.iter().position(|parked| parked.target == target);
        let parked = at.map(|at| self.parked.swap_remove(at)).filter(Parked::is_quiet);
        if let Some(parked) = parked {
            self.generation = parked.generation;
            self.socket = Some(parked.socket);
            self.unused = false;
        }
    }

    /// Whether the next request is the first on its socket.
    pub(super) fn is_new(&self) -> bool {
        self.socket.is_none() || self.unused
    }

    /// A part of the request is answered.
    pub(super) fn part_done(&mut self) {
        self.kept.clear();
        self.unsent.clear();
        self.unsent_from = 0;
    }

    /// The request is over.
    pub(super) fn finish(&mut self) {
        self.phase = Phase::Free;
        self.part_done();
    }

    /// Sends a request, or keeps what the kernel does not take. Connects first where it must.
    pub(super) fn send(
        &mut self,
        epoll: &OwnedFd,
        index: usize,
        request: &[u8],
    ) -> Result<(), ErrorKind> {
        self.unused = false;
        let Some(socket) = &mut self.socket else {
            self.unsent.extend_from_slice(request);
            self.phase = Phase::Connecting;
            return self.open(epoll, index).map_err(|_| ErrorKind::ConnectFailed);
        };
        let taken = match socket.send(request) {
            Ok(taken) => taken,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(socket.broken(errno)),
        };
        if taken < request.len() {
            self.unsent.extend_from_slice(&request[taken..]);
        }
        Ok(())
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.unsent_from < self.unsent.len() || self.socket.as_ref().is_some_and(Socket::has_unsent)
    }

    /// The socket takes bytes again, or the connection was made or refused.
    pub(super) fn send_rest(&mut self) -> Result<(), ErrorKind> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        if self.phase == Phase::Connecting {
            match net::sockopt::socket_error(&socket.fd) {
                Ok(Ok(())) => self.phase = Phase::Busy,
                Ok(Err(_)) | Err(_) => return Err(ErrorKind::ConnectFailed),
            }
        }
        while self.unsent_from < self.unsent.len() {
            match socket.send(&self.unsent[self.unsent_from..]) {
                Ok(taken) => self.unsent_from += taken,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(socket.broken(errno)),
            }
        }
        socket.flush().map_err(|errno| socket.broken(errno))
    }

    /// Reads into the inbox, behind what was kept.
    pub(super) fn receive(&mut self, inbox: &mut [u8]) -> Input {
        let Some(socket) = &mut self.socket else { return Input::Nothing };
        let kept = self.kept.len();
        inbox[..kept].copy_from_slice(&self.kept);
        match socket.receive(&mut inbox[kept..]) {
            Ok(0) => Input::End,
            Ok(read) => {
                self.kept.clear();
                let held = kept + read;
                let more = held == inbox.len() || socket.tls.is_some();
                Input::Bytes { held, read, more }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Input::Nothing,
            Err(error) => Input::Failed(ErrorKind::of_socket(&error)),
        }
    }

    /// The kind of an error after this answer.
    pub(super) fn kind_of(&self, kind: ErrorKind, answer: &[u8]) -> ErrorKind {
        kind.of_answer(answer, self.secure.is_none())
    }

    /// The same after what is kept.
    pub(super) fn kind_of_rest(&self, kind: ErrorKind) -> ErrorKind {
        self.kind_of(kind, &self.kept)
    }

    /// Keeps what the driver did not consume.
    pub(super) fn keep(&mut self, rest: &[u8]) {
        self.kept.extend_from_slice(rest);
    }

    /// Closes the socket; the kernel takes it off the epoll instance.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.next_generation();
        self.kept.clear();
    }

    fn next_generation(&mut self) {
        self.generations = self.generations.wrapping_add(1);
        self.generation = self.generations;
    }

    /// How long to wait before the next attempt: nothing after the first failure, then doubling.
    pub(super) fn pause_after_failure(&mut self, longest_ns: u64) -> u64 {
        let pause = (MILLISECOND_NS << self.failures.min(20)).min(longest_ns);
        self.failures += 1;
        pause
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    fn open(&mut self, epoll: &OwnedFd, index: usize) -> io::Result<()> {
        let tls = self.secure.as_ref().map(Secure::begin).transpose()?;
        let family = if self.target.is_ipv4() {
            net::AddressFamily::INET
        } else {
            net::AddressFamily::INET6
        };
        let flags = net::SocketFlags::NONBLOCK | net::SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, net::SocketType::STREAM, flags, None)?;
        net::sockopt::set_tcp_nodelay(&socket, true)?;
        match net::connect(&socket, &self.target) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.watch(epoll, index, Socket { fd: socket, tls }).map_err(Into::into)
    }

    /// Watches the socket once and for all: edge-triggered, for both directions.
    fn watch(&mut self, epoll: &OwnedFd, index: usize, socket: Socket) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(epoll, &socket.fd, epoll::EventData::new_u64(self.mark(index)), flags)?;
        self.socket = Some(socket);
        Ok(())
    }
}
