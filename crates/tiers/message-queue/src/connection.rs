//! Clients' connections: how many may be open, and for how long one may do nothing.
//!
//! A silent connection is closed after a while; where the limit is reached, the one that
//! has been idle longest makes room for a new one. So nobody keeps others out by connections that
//! send no request.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kendall_tier::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::dispatcher::Dispatcher;

/// Longest time from the first byte of a connection to the end of its handshake, TLS's and HTTP/2's each.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes of the beginning of HTTP/2: the preface, and the head of the first frame.
const GREETING: usize = 24 + 9;

/// Listings of one connection that are performed at a time, or whose answers wait to be read: of 4 MiB each, which a
/// client that does not read would have the middleware hold by the thousand.
const LISTINGS: usize = 16;

/// All connections that are open.
#[derive(Debug)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, Arc<Entry>>>,
    next: AtomicU64,
    clock: Clock,
    dispatcher: Arc<Dispatcher>,
}

/// What is known of a connection.
#[derive(Debug)]
struct Entry {
    /// Requests that are not answered to their end.
    requests: AtomicUsize,
    /// Whether there ever was one.
    asked: AtomicBool,
    /// Since when there are none.
    idle_since_ns: AtomicU64,
    closing: AtomicBool,
    /// Wakes the connection's reader.
    reader: Mutex<Option<Waker>>,
    /// Listings that may be under way, until their answers have been read.
    listings: Arc<Semaphore>,
}

/// The connection that a request came by.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    entry: Arc<Entry>,
    clock: Clock,
}

/// A request that is open; dropped, it is answered.
#[derive(Debug)]
pub(crate) struct OpenRequest(Peer);

impl Connections {
    pub(crate) fn new(clock: Clock, dispatcher: Arc<Dispatcher>) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), next: AtomicU64::new(0), clock, dispatcher })
    }

    /// Counts a connection that was accepted.
    pub(crate) fn admit(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Place {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry {
            requests: AtomicUsize::new(0),
            asked: AtomicBool::new(false),
            idle_since_ns: AtomicU64::new(self.clock.now_ns()),
            closing: AtomicBool::new(false),
            reader: Mutex::default(),
            listings: Arc::new(Semaphore::new(LISTINGS)),
        });
        self.lock().insert(number, Arc::clone(&entry));
        self.dispatcher.connection(true);
        Place { connections: Arc::clone(self), number, entry, _permit: permit }
    }

    /// Closes the connection that has been idle longest, one that never had a request before all others;
    /// none where each of them has one.
    pub(crate) fn close_idlest(&self) {
        let open = self.lock();
        let idle = open.values().filter(|entry| {
            entry.requests.load(Ordering::SeqCst) == 0 && !entry.closing.load(Ordering::SeqCst)
        });
        let rank = |entry: &&Arc<Entry>| {
            (entry.asked.load(Ordering::SeqCst), entry.idle_since_ns.load(Ordering::SeqCst))
        };
        let Some(idlest) = idle.min_by_key(rank) else { return };
        idlest.closing.store(true, Ordering::SeqCst);
        if let Some(reader) = idlest.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            reader.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// Waits for a place among the listings of this connection.
    pub(crate) fn listing(
        &self,
    ) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send + use<> {
        let listings = Arc::clone(&self.entry.listings);
        // The semaphore is never closed.
        async move { listings.acquire_owned().await.ok() }
    }

    /// Says that a request has begun.
    pub(crate) fn begin(&self) -> OpenRequest {
        self.entry.requests.fetch_add(1, Ordering::SeqCst);
        self.entry.asked.store(true, Ordering::SeqCst);
        OpenRequest(self.clone())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let Peer { entry, clock } = &self.0;
        entry.idle_since_ns.store(clock.now_ns(), Ordering::SeqCst);
        entry.requests.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A place among the connections that may be open; dropped with its connection, it makes room for
/// another.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    number: u64,
    entry: Arc<Entry>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.number);
        self.connections.dispatcher.connection(false);
    }
}

/// Bytes of a client, encrypted or not.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// A connection that is served.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    place: Place,
    /// Bytes of the greeting that lack, and how long they may.
    lacking: usize,
    patience: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(crate) fn plain(stream: TcpStream, place: Place) -> Self {
        Self::new(Stream::Plain(stream), place)
    }

    pub(crate) fn encrypted(stream: TlsStream<TcpStream>, place: Place) -> Self {
        Self::new(Stream::Encrypted(Box::new(stream)), place)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a bound of ten seconds, which milliseconds do not matter to"
    )]
    fn new(stream: Stream, place: Place) -> Self {
        let patience = Some(Box::pin(tokio::time::sleep(HANDSHAKE)));
        Self { stream, place, lacking: GREETING, patience }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        let clock = self.place.connections.clock.clone();
        Peer { entry: Arc::clone(&self.place.entry), clock }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.place.entry.closing.load(Ordering::SeqCst) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = buffer.filled().len();
        let read = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if read.is_ready() {
            let come = buffer.filled().len().saturating_sub(before);
            this.lacking = this.lacking.saturating_sub(come);
            if this.lacking == 0 {
                this.patience = None;
            }
            return read;
        }
        let entry = &this.place.entry;
        *entry.reader.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(context.waker().clone());
        // It may have been closed between the two checks.
        if entry.closing.load(Ordering::SeqCst) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if let Some(patience) = &mut this.patience
            && patience.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
