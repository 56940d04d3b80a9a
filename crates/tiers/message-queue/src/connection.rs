//! Clients' connections: messages of answers that a client may not have got.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use kendall_protocols::queue::Message;
use kendall_tier::Clock;
use kendall_tier::serve::{self, Begun};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::dispatcher::Dispatcher;

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

/// What is known of a connection.
#[derive(Debug)]
struct Entry {
    connection: Arc<serve::Connection>,
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
            let messages = self.entry.answers.lock().take(self.stream).unwrap_or_default();
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
        let unread = self.entry.answers.lock().keep(stream, messages);
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
        self.entry.answers.lock().written
    }

    /// The first `count` of them have arrived.
    pub(crate) fn arrived(&self, count: u64) {
        self.entry.answers.lock().arrived(count);
    }

    /// Says that a request has begun.
    pub(crate) fn begin(&self) -> Begun {
        self.entry.connection.begin()
    }
}

/// The bytes of a connection that is served.
#[derive(Debug)]
pub(crate) struct Watched<I> {
    io: I,
    entry: Arc<Entry>,
    read: Frames,
    written: Frames,
}

impl<I> Watched<I> {
    /// Watches a connection, and says whose requests come by it.
    pub(crate) fn new(
        io: I,
        connection: &Arc<serve::Connection>,
        (dispatcher, clock): (&Arc<Dispatcher>, &Clock),
    ) -> (Self, Peer) {
        let entry = Arc::new(Entry {
            connection: Arc::clone(connection),
            listings: Arc::new(Semaphore::new(LISTINGS)),
            answers: Mutex::default(),
            dispatcher: Arc::clone(dispatcher),
        });
        let peer = Peer { entry: Arc::clone(&entry), clock: clock.clone() };
        let (read, written) = (Frames::after(PREFACE), Frames::after(0));
        (Self { io, entry, read, written }, peer)
    }

    /// Notes the answers that end within these bytes, which were written. The last headers of an answer are short:
    /// one frame.
    fn wrote(&mut self, bytes: &[u8]) {
        let entry = &self.entry;
        self.written.pass(bytes, |kind, flags, stream| {
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                entry.answers.lock().written(stream);
            }
        });
    }
}

impl<I> Drop for Watched<I> {
    fn drop(&mut self) {
        let unwritten = self.entry.answers.lock().close();
        self.entry.dispatcher.put_back(unwritten.into_iter());
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut this.io).poll_read(context, buffer));
        let entry = &this.entry;
        this.read.pass(&buffer.filled()[before..], |kind, _, stream| {
            if kind == RESET {
                let unread = entry.answers.lock().reset(stream);
                entry.dispatcher.put_back(unread.into_iter());
            }
        });
        Poll::Ready(read)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(context, bytes))?;
        self.wrote(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(context, slices))?;
        let mut left = written;
        for slice in slices {
            let part = left.min(slice.len());
            self.wrote(&slice[..part]);
            left -= part;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
