//! Which sockets the system reports on, and what an event says.

use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// Events taken at once.
pub(crate) const EVENTS: usize = 512;

/// What an event's number says: kind, generation, index.
const KIND_SHIFT: u32 = 60;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u64 = (1 << (KIND_SHIFT - GENERATION_SHIFT)) - 1;
const INDEX_MASK: u64 = (1 << GENERATION_SHIFT) - 1;
/// Of a server's connection, the index says the pool as well.
const POOL_SHIFT: u32 = 22;
const CONN_MASK: u64 = (1 << POOL_SHIFT) - 1;
const LISTENER: u64 = 0;
const WAKER: u64 = 1;
const CLIENT: u64 = 2;
const CONN: u64 = 3;

/// Whose event it is. A generation tells a connection from those that had its number before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Listener,
    Waker,
    Client { generation: u64, index: usize },
    Conn { generation: u64, pool: usize, index: usize },
}

/// What happened to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) source: Source,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) failed: bool,
}

/// Which of a socket's events matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// Which events of a socket the kernel reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Watched(bool);

#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

/// Space for events, which a turn leaves empty.
pub(crate) struct Events(Vec<epoll::Event>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(EVENTS))
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Event> {
        self.0.drain(..).map(|event| {
            let flags = event.flags;
            let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            Event {
                source: Source::of(event.data.u64()),
                readable: flags.contains(epoll::EventFlags::IN) || failed,
                writable: flags.contains(epoll::EventFlags::OUT),
                failed,
            }
        })
    }
}

impl Poller {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Waits for events; says how many there are.
    pub(crate) fn wait(
        &self,
        events: &mut Events,
        timeout: Option<&Timespec>,
    ) -> Result<usize, Errno> {
        events.0.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut events.0), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(events.0.len()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn add_waker(&self, waker: impl AsFd) -> Result<(), Errno> {
        epoll::add(&self.epoll, waker, Source::Waker.data(), epoll::EventFlags::IN)
    }

    /// Watches a listener, or no longer. Of several threads that watch one, each connection wakes
    /// one.
    pub(crate) fn listen(&self, listener: impl AsFd, wanted: bool) -> Result<(), Errno> {
        if wanted {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            epoll::add(&self.epoll, listener, Source::Listener.data(), flags)
        } else {
            epoll::delete(&self.epoll, listener)
        }
    }

    /// Has a socket watched for what matters now. One from which nothing is expected is not
    /// watched at all: the system would report a broken connection again and again.
    pub(crate) fn watch(
        &self,
        socket: impl AsFd,
        watched: &mut Watched,
        source: Source,
        Interest { read, write }: Interest,
    ) -> Result<(), Errno> {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, read);
        flags.set(epoll::EventFlags::OUT, write);
        match (watched.0, read || write) {
            (false, false) => {}
            (false, true) => epoll::add(&self.epoll, socket, source.data(), flags)?,
            (true, true) => epoll::modify(&self.epoll, socket, source.data(), flags)?,
            (true, false) => epoll::delete(&self.epoll, socket)?,
        }
        watched.0 = read || write;
        Ok(())
    }
}

impl Source {
    fn data(self) -> epoll::EventData {
        let (kind, generation, index) = match self {
            Self::Listener => (LISTENER, 0, 0),
            Self::Waker => (WAKER, 0, 0),
            Self::Client { generation, index } => (CLIENT, generation, index),
            Self::Conn { generation, pool, index } => {
                (CONN, generation, (pool << POOL_SHIFT) | index)
            }
        };
        let generation = (generation & GENERATION_MASK) << GENERATION_SHIFT;
        epoll::EventData::new_u64((kind << KIND_SHIFT) | generation | index as u64)
    }

    fn of(number: u64) -> Self {
        let generation = (number >> GENERATION_SHIFT) & GENERATION_MASK;
        let index = (number & INDEX_MASK) as usize;
        match number >> KIND_SHIFT {
            LISTENER => Self::Listener,
            WAKER => Self::Waker,
            CLIENT => Self::Client { generation, index },
            _ => {
                let conn = (number & CONN_MASK) as usize;
                Self::Conn { generation, pool: index >> POOL_SHIFT, index: conn }
            }
        }
    }
}

/// Whether an event's generation is that of a connection: an event has its lower bits.
pub(crate) fn is_of(generation: u64, event: u64) -> bool {
    generation & GENERATION_MASK == event
}
