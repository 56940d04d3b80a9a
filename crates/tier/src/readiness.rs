//! What event loops over sockets share: connections by key, accepting, and what is due when.
//!
//! A loop waits on one epoll instance. Each watched socket carries a [`Token`]; a connection's has
//! the generation of its place, so that an event of a socket that was closed meanwhile reaches
//! no other connection.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::EventData;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Longest queue of connections that the kernel has accepted and the loop has not.
pub const BACKLOG: i32 = 4096;

/// How long no connection is accepted after the system had no descriptor or memory for one. The
/// listener stays readable all the time, and perhaps no connection is ever closed.
pub const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// The generation that no connection has: tokens with it are not of connections.
const NO_CONNECTION: u32 = u32::MAX;

/// Which connection of a [`ConnectionTable`]: its place, and how many the table had before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

/// What an event of epoll carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// A listener, a waker: whatever the loop gave this number.
    Special(u32),
    /// One of the two sockets, 0 or 1, of a connection.
    Connection(Key, usize),
}

impl Token {
    /// As an event holds it.
    ///
    /// # Example
    /// ```
    /// use kendall_tier::{ConnectionTable, Token};
    ///
    /// let mut table = ConnectionTable::default();
    /// let key = table.insert_with(|_| Ok::<_, ()>("a connection")).unwrap();
    /// for token in [Token::Special(7), Token::Connection(key, 1)] {
    ///     assert_eq!(Token::of(token.number()), token);
    /// }
    /// ```
    pub const fn number(self) -> u64 {
        match self {
            Self::Special(number) => (NO_CONNECTION as u64) << 32 | number as u64,
            Self::Connection(Key { index, generation }, end) => {
                (generation as u64) << 32 | (index as u64) << 1 | (end as u64 & 1)
            }
        }
    }

    /// The same for epoll.
    pub fn data(self) -> EventData {
        EventData::new_u64(self.number())
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves of 64 bits have 32 each")]
    pub const fn of(number: u64) -> Self {
        let (generation, low) = ((number >> 32) as u32, number as u32);
        if generation == NO_CONNECTION {
            return Self::Special(low);
        }
        Self::Connection(Key { index: low >> 1, generation }, (low & 1) as usize)
    }
}

/// Connections with small numbers, which are used again under a new generation.
///
/// A connection is [taken](Self::take) out to be worked on, so that the work may use the loop that
/// holds the table, and is then [put back](Self::put_back) or [forgotten](Self::forget).
///
/// # Example
/// ```
/// use kendall_tier::ConnectionTable;
///
/// let mut table = ConnectionTable::default();
/// let old = table.insert_with(|_| Ok::<_, ()>("one")).unwrap();
/// assert_eq!(table.take(old), Some("one"));
/// table.forget(old);
/// let new = table.insert_with(|_| Ok::<_, ()>("two")).unwrap(); // in the same place
/// assert_eq!(table.take(old), None);
/// assert_eq!(table.take(new), Some("two"));
/// table.put_back(new, "two");
/// assert_eq!(table.len(), 1);
/// ```
#[derive(Debug)]
pub struct ConnectionTable<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    next_generation: u32,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    /// Empty while the connection is worked on, and when there is none.
    connection: Option<T>,
}

impl<T> Default for ConnectionTable<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), next_generation: 0 }
    }
}

impl<T> ConnectionTable<T> {
    /// Adds the connection that `make` returns; it gets its key so that it can have its
    /// sockets watched.
    pub fn insert_with<E>(&mut self, make: impl FnOnce(Key) -> Result<T, E>) -> Result<Key, E> {
        let generation = self.next_generation;
        let index = self.free.last().copied().unwrap_or_else(|| {
            // A connection has a descriptor, whose number is below 2³¹.
            u32::try_from(self.places.len()).unwrap_or(u32::MAX >> 1)
        });
        let key = Key { index, generation };
        let place = Place { generation, connection: Some(make(key)?) };
        self.next_generation = (generation + 1) % NO_CONNECTION;
        if self.free.pop().is_some() {
            self.places[index as usize] = place;
        } else {
            self.places.push(place);
        }
        Ok(key)
    }

    /// Takes a connection out for a while. `None` when it is gone, or taken.
    pub fn take(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation == key.generation { place.connection.take() } else { None }
    }

    /// Puts back what was [taken](Self::take).
    pub fn put_back(&mut self, key: Key, connection: T) {
        self.places[key.index as usize].connection = Some(connection);
    }

    /// What was [taken](Self::take) does not come back: its place is free.
    pub fn forget(&mut self, key: Key) {
        self.free.push(key.index);
    }

    /// Connections that are there, those taken out included.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys of the connections that are not taken out.
    pub fn keys(&self) -> Vec<Key> {
        self.iter().map(|(key, _)| key).collect()
    }

    /// The connections that are not taken out.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0..).zip(&self.places).filter_map(|(index, place)| {
            let key = Key { index, generation: place.generation };
            Some((key, place.connection.as_ref()?))
        })
    }
}

/// What a listener had.
#[derive(Debug)]
pub enum Accepted {
    /// A connection, which neither blocks nor delays small writes.
    Connection(OwnedFd),
    Nobody,
    /// The system has no descriptor or no memory for one; ask again after [`ACCEPT_PAUSE_NS`].
    NoRoom,
}

/// Accepts the next connection of a listener that does not block. Clients that went away before
/// they were accepted are passed over.
pub fn accept(listener: impl AsFd) -> Accepted {
    loop {
        match accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => {
                // A matter of speed only, and a socket in the file system has no such delay.
                sockopt::set_tcp_nodelay(&socket, true).unwrap_or_default();
                return Accepted::Connection(socket);
            }
            Err(Errno::AGAIN) => return Accepted::Nobody,
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
            Err(_) => return Accepted::NoRoom,
        }
    }
}

/// The address of a `HOST:PORT`, its name resolved: the first that the system gives.
///
/// # Example
/// ```
/// assert!(kendall_tier::resolved("127.0.0.1:80").is_ok());
/// assert!(kendall_tier::resolved("127.0.0.1").is_err());
/// ```
pub fn resolved(text: &str) -> io::Result<SocketAddr> {
    let none = || io::Error::other("the name has no address");
    text.to_socket_addrs()?.next().ok_or_else(none)
}

/// A listener for an event loop: it does not block, and has a backlog of [`BACKLOG`]. Where a supervisor keeps a socket
/// of this address for the process, it is that one: while the process is away, connections wait in it.
pub fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = passed(address).map_or_else(|| TcpListener::bind(address), Ok)?;
    listener.set_nonblocking(true)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// The socket of an address among those that a supervisor passes (`LISTEN_FDS`, as systemd's socket units do).
fn passed(address: SocketAddr) -> Option<TcpListener> {
    const FIRST: i32 = 3;
    const MOST: i32 = 64;
    let number = |name| std::env::var(name).ok()?.parse::<i32>().ok();
    let itself = rustix::process::getpid();
    if number("LISTEN_PID")? != itself.as_raw_nonzero().get() {
        return None;
    }
    let own = pidfd_open(itself, PidfdFlags::empty()).ok()?;
    (FIRST..FIRST + number("LISTEN_FDS")?.clamp(0, MOST)).find_map(|number| {
        let copy = pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok()?;
        let listener = TcpListener::from(copy);
        (listener.local_addr().ok()? == address).then_some(listener)
    })
}

/// What is to be done at which moment, in ns of the loop's clock. At one moment, in the order of
/// what is to be done.
///
/// # Example
/// ```
/// use kendall_tier::Deadlines;
///
/// let mut deadlines = Deadlines::default();
/// deadlines.push(20, "later");
/// deadlines.push(10, "sooner");
/// assert_eq!(deadlines.next_ns(), Some(10));
/// assert_eq!(deadlines.pop_due(15), Some((10, "sooner")));
/// assert_eq!(deadlines.pop_due(15), None);
/// ```
#[derive(Debug)]
pub struct Deadlines<E>(BinaryHeap<Reverse<(u64, E)>>);

impl<E: Ord> Default for Deadlines<E> {
    fn default() -> Self {
        Self(BinaryHeap::new())
    }
}

impl<E: Ord> Deadlines<E> {
    pub fn push(&mut self, at_ns: u64, event: E) {
        self.0.push(Reverse((at_ns, event)));
    }

    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Takes the first that is due by `now_ns`, with its moment.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<(u64, E)> {
        self.next_ns().filter(|at_ns| *at_ns <= now_ns)?;
        self.0.pop().map(|Reverse(due)| due)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpStream;

    use super::*;

    fn add<T>(table: &mut ConnectionTable<T>, connection: T) -> Key {
        table.insert_with(|_| Ok::<_, ()>(connection)).unwrap()
    }

    #[test]
    fn a_key_reaches_its_connection_alone() {
        let mut table = ConnectionTable::default();
        let first = add(&mut table, 1);
        let second = add(&mut table, 2);
        assert_eq!(table.take(first), Some(1));
        assert_eq!(table.take(first), None, "taken out");
        assert_eq!(table.len(), 2, "one that is taken out is still there");
        table.forget(first);
        assert_eq!(table.len(), 1);
        let third = add(&mut table, 3);
        assert_eq!(third.index, first.index, "the place is used again");
        assert_eq!(table.take(first), None, "under another generation");
        assert_eq!(table.insert_with(|_| Err("no descriptor")), Err("no descriptor"));
        assert_eq!(table.len(), 2, "nothing was added");
        assert_eq!(
            table.iter().map(|(key, n)| (key, *n)).collect::<Vec<_>>(),
            [(third, 3), (second, 2)]
        );
    }

    #[test]
    fn generations_wrap_before_the_number_that_no_connection_has() {
        let mut table =
            ConnectionTable { next_generation: NO_CONNECTION - 1, ..ConnectionTable::default() };
        let last = add(&mut table, ());
        let first = add(&mut table, ());
        assert_eq!((last.generation, first.generation), (NO_CONNECTION - 1, 0));
        assert_eq!(Token::of(Token::Connection(last, 0).number()), Token::Connection(last, 0));
    }

    #[test]
    fn what_is_due_at_one_moment_comes_in_order() {
        let mut deadlines = Deadlines::default();
        for event in [3, 1, 2] {
            deadlines.push(5, event);
        }
        let order: Vec<_> = std::iter::from_fn(|| deadlines.pop_due(5)).collect();
        assert_eq!(order, [(5, 1), (5, 2), (5, 3)]);
        assert_eq!(deadlines.next_ns(), None);
    }

    #[test]
    fn a_listener_never_blocks() {
        let listener = listener(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        assert!(matches!(accept(&listener), Accepted::Nobody));
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"x").unwrap();
        let Accepted::Connection(socket) = accept(&listener) else { panic!("a client waits") };
        assert!(sockopt::tcp_nodelay(&socket).unwrap());
        assert!(matches!(accept(&listener), Accepted::Nobody));
    }
}
