//! Clients' connections: how many may be open, and for how long one may do nothing.
//!
//! A silent connection is closed after a while; where the limit is reached, the one that
//! has been idle longest makes room for a new one. So nobody keeps others out by connections that
//! send no request.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use kendall_protocols::queue::Message;
use kendall_tier::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

use crate::dispatcher::Dispatcher;

/// Longest time from the first byte of a connection to the end of its handshake, TLS's and HTTP/2's each.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes of the beginning of HTTP/2: the preface, and the head of the first frame.
const GREETING: usize = 24 + 9;

/// Listings of one connection that are performed at a time, or whose answers wait to be read: of 4 MiB each, which a
/// client that does not read would have the middleware hold by the thousand.
const LISTINGS: usize = 16;

/// Answers of a connection that are kept until the client has them: their number, and the bytes of their messages but for
/// the last one.
const ANSWERS: usize = 64;
const ANSWERED_BYTES: usize = 64 << 10;
/// Streams that were reset and whose answers are still to come, and that are remembered.
const RESETS: usize = 1024;
/// Bytes of the head of a frame; the kinds of frames that are looked for, and the flag of the last one of a stream.
const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const END_STREAM: u8 = 1;
/// Bytes of the preface, which is no frame.
const PREFACE: usize = 24;

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
    answers: Mutex<Answers>,
    dispatcher: Arc<Dispatcher>,
}

/// Messages that an answer takes out of their queue; goes with it as an extension.
#[derive(Debug, Clone)]
pub(crate) struct Removed(pub(crate) Vec<Message>);

/// Messages in answers that the client may not have got.
#[derive(Debug, Default)]
struct Answers {
    /// The oldest first.
    kept: VecDeque<Answer>,
    /// Bytes of those that were written.
    bytes: usize,
    /// The number of all that were ever written.
    written: u64,
    /// Streams that were reset before their answer came.
    reset: VecDeque<u32>,
    /// The connection has ended.
    closed: bool,
}

#[derive(Debug)]
struct Answer {
    stream: u32,
    messages: Vec<Message>,
    /// Which of the answers written it was; none while its end is not written to the socket.
    written: Option<u64>,
}

impl Answers {
    /// Keeps the messages of an answer; returns them if its stream was reset or the connection is closed.
    fn keep(&mut self, stream: u32, messages: Vec<Message>) -> Vec<Message> {
        if self.closed || self.reset.contains(&stream) {
            return messages;
        }
        self.kept.push_back(Answer { stream, messages, written: None });
        Vec::new()
    }

    /// The last frame of a stream was written. What is not written yet is bounded by what the connection buffers; what
    /// was written, here.
    fn written(&mut self, stream: u32) {
        let Some(answer) = self.kept.iter_mut().find(|answer| answer.stream == stream) else {
            return;
        };
        self.written += 1;
        answer.written = Some(self.written);
        self.bytes += bytes(&answer.messages);
        let mut kept = self.kept.iter().filter(|answer| answer.written.is_some()).count();
        while kept > ANSWERS || self.bytes > ANSWERED_BYTES && kept > 1 {
            let oldest = self.kept.iter().filter_map(|answer| answer.written).min();
            self.arrived(oldest.unwrap_or(self.written));
            kept -= 1;
        }
    }

    /// The messages of a closed stream.
    fn take(&mut self, stream: u32) -> Option<Vec<Message>> {
        let place = self.kept.iter().position(|answer| answer.stream == stream)?;
        let answer = self.kept.remove(place)?;
        if answer.written.is_some() {
            self.bytes -= bytes(&answer.messages);
        }
        Some(answer.messages)
    }

    /// The same of a stream that the client has reset.
    fn reset(&mut self, stream: u32) -> Vec<Message> {
        self.take(stream).unwrap_or_else(|| {
            self.reset.push_back(stream);
            if self.reset.len() > RESETS {
                self.reset.pop_front();
            }
            Vec::new()
        })
    }

    /// Drops the first `count` of those written.
    fn arrived(&mut self, count: u64) {
        self.kept.retain(|answer| answer.written.is_none_or(|written| written > count));
        let written = self.kept.iter().filter(|answer| answer.written.is_some());
        self.bytes = written.map(|answer| bytes(&answer.messages)).sum();
    }

    /// The connection has ended: gives the messages whose answers were not written to their end.
    fn close(&mut self) -> Vec<Message> {
        self.closed = true;
        let kept = std::mem::take(&mut self.kept);
        let unwritten = kept.into_iter().filter(|answer| answer.written.is_none());
        unwritten.flat_map(|answer| answer.messages).collect()
    }
}

fn bytes(messages: &[Message]) -> usize {
    messages.iter().map(|message| message.content.len() + message.data.len()).sum()
}

impl Entry {
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is being sent; dropped before that was done, its messages go back to their queue.
#[derive(Debug)]
pub(crate) struct Unsent {
    entry: Arc<Entry>,
    stream: u32,
    sent: bool,
}

impl Unsent {
    /// It is in the connection's buffer: from here on a reset of the stream, or the connection's end before it was
    /// written, tells that the client did not get it.
    pub(crate) fn was_sent(mut self) {
        self.sent = true;
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if !self.sent {
            let messages = self.entry.answers().take(self.stream).unwrap_or_default();
            self.entry.dispatcher.put_back(messages.into_iter());
        }
    }
}

/// Finds frames in the bytes of one direction of a connection.
#[derive(Debug)]
struct Frames {
    /// Bytes that are passed over: the rest of a frame.
    skip: usize,
    head: [u8; FRAME_HEAD],
    head_bytes: usize,
}

impl Frames {
    /// Of a side that sends so many bytes before its first frame.
    fn after(preface: usize) -> Self {
        Self { skip: preface, head: [0; FRAME_HEAD], head_bytes: 0 }
    }

    /// Gives the kind, flags and stream of each frame that ends within these bytes.
    fn pass(&mut self, mut bytes: &[u8], mut frame: impl FnMut(u8, u8, u32)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let passed = self.skip.min(bytes.len());
                self.skip -= passed;
                bytes = &bytes[passed..];
            } else {
                let come = (FRAME_HEAD - self.head_bytes).min(bytes.len());
                self.head[self.head_bytes..][..come].copy_from_slice(&bytes[..come]);
                self.head_bytes += come;
                bytes = &bytes[come..];
                if self.head_bytes == FRAME_HEAD {
                    let [a, b, c, ..] = self.head;
                    self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                }
            }
            if self.skip == 0 && self.head_bytes == FRAME_HEAD {
                let [_, _, _, kind, flags, stream @ ..] = self.head;
                self.head_bytes = 0;
                frame(kind, flags, u32::from_be_bytes(stream) & 0x7fff_ffff);
            }
        }
    }
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
            answers: Mutex::default(),
            dispatcher: Arc::clone(&self.dispatcher),
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

    /// Keeps the messages of an answer that is about to be sent.
    pub(crate) fn answers(&self, stream: u32, messages: Vec<Message>) -> Unsent {
        let unread = self.entry.answers().keep(stream, messages);
        self.entry.dispatcher.put_back(unread.into_iter());
        Unsent { entry: Arc::clone(&self.entry), stream, sent: false }
    }

    /// Has the messages of an answer put back that is not sent.
    pub(crate) fn put_back(&self, messages: Vec<Message>) {
        self.entry.dispatcher.put_back(messages.into_iter());
    }

    /// The moment after this time from now, on the clock of the tier.
    pub(crate) fn after(&self, time: Duration) -> u64 {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.clock.now_ns().saturating_add(time_ns)
    }

    /// The number of answers with messages that were written so far.
    pub(crate) fn written(&self) -> u64 {
        self.entry.answers().written
    }

    /// The first `count` of them have arrived.
    pub(crate) fn arrived(&self, count: u64) {
        self.entry.answers().arrived(count);
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
        let unwritten = self.entry.answers().close();
        self.entry.dispatcher.put_back(unwritten.into_iter());
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
    read: Frames,
    written: Frames,
}

impl Connection {
    pub(crate) fn plain(stream: TcpStream, place: Place) -> Self {
        Self::new(Stream::Plain(stream), place)
    }

    pub(crate) fn encrypted(stream: TlsStream<TcpStream>, place: Place) -> Self {
        Self::new(Stream::Encrypted(Box::new(stream)), place)
    }

    pub(crate) fn peer(&self) -> Peer {
        let clock = self.place.connections.clock.clone();
        Peer { entry: Arc::clone(&self.place.entry), clock }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a bound of ten seconds, which milliseconds do not matter to"
    )]
    fn new(stream: Stream, place: Place) -> Self {
        let patience = Some(Box::pin(tokio::time::sleep(HANDSHAKE)));
        let (read, written) = (Frames::after(PREFACE), Frames::after(0));
        Self { stream, place, lacking: GREETING, patience, read, written }
    }

    /// Notes the answers that end within these bytes, which were written. The last headers of an answer are short:
    /// one frame.
    fn wrote(&mut self, bytes: &[u8]) {
        let entry = &self.place.entry;
        self.written.pass(bytes, |kind, flags, stream| {
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                entry.answers().written(stream);
            }
        });
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
            let come = buffer.filled().get(before..).unwrap_or_default();
            this.lacking = this.lacking.saturating_sub(come.len());
            let entry = &this.place.entry;
            this.read.pass(come, |kind, _, stream| {
                if kind == RESET {
                    let unread = entry.answers().reset(stream);
                    entry.dispatcher.put_back(unread.into_iter());
                }
            });
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
        let written = ready!(match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        })?;
        self.wrote(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        })?;
        let mut left = written;
        for slice in slices {
            let part = left.min(slice.len());
            self.wrote(&slice[..part]);
            left -= part;
        }
        Poll::Ready(Ok(written))
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
