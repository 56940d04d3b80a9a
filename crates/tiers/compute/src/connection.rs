//! One client connection: a stream that counts its bytes and stamps the moment at which an answer
//! has been handed to the kernel.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use kendall_tier::{Moments, RequestType};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::service::Shared;

/// Answers that were given to the HTTP library and are not yet flushed. One a connection.
pub(crate) type Pending = Arc<Mutex<Vec<PendingReply>>>;

/// An answer on its way to the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingReply {
    pub(crate) request: RequestType,
    pub(crate) arrived_ns: u64,
    pub(crate) dequeued_ns: u64,
}

/// A stream that counts and stamps.
pub(crate) struct Stamped {
    stream: TcpStream,
    pending: Pending,
    shared: Arc<Shared>,
}

impl Stamped {
    pub(crate) fn new(stream: TcpStream, pending: Pending, shared: Arc<Shared>) -> Self {
        Self { stream, pending, shared }
    }

    /// The library flushes when it has written all that it had: the answers are in the kernel.
    fn flushed(&self) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.is_empty() {
            return;
        }
        let replied_ns = self.shared.clock.now_ns();
        let mut recorder = self.shared.network();
        for PendingReply { request, arrived_ns, dequeued_ns } in pending.drain(..) {
            let moments = Moments { arrived_ns, dequeued_ns, backend: None, replied_ns };
            recorder.completed(request, &moments);
        }
    }

    fn written(&self, outcome: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = outcome {
            self.shared.network().bytes_out(u64::try_from(*count).unwrap_or(u64::MAX));
        }
    }
}

impl AsyncRead for Stamped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
        let count = buffer.filled().len() - before;
        if count > 0 {
            self.shared.network().bytes_in(u64::try_from(count).unwrap_or(u64::MAX));
        }
        outcome
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.written(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(outcome, Poll::Ready(Ok(()))) {
            self.flushed();
        }
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The body of an answer: one piece, which becomes a pending reply when the library has taken it.
#[derive(Debug)]
pub(crate) struct Reply {
    data: Option<Bytes>,
    /// Bytes that it would have, where only its head was asked for.
    unsent: Option<usize>,
    stamp: Option<(Pending, PendingReply)>,
}

impl Reply {
    /// A body whose delivery is not measured.
    pub(crate) fn plain(data: impl Into<Bytes>) -> Self {
        Self { data: Some(data.into()), unsent: None, stamp: None }
    }

    /// The body of a result.
    pub(crate) fn stamped(data: Bytes, pending: Pending, reply: PendingReply) -> Self {
        Self { data: Some(data), unsent: None, stamp: Some((pending, reply)) }
    }

    /// Leaves out the bytes and keeps their number, as the answer to a `HEAD` does.
    pub(crate) fn only_head(&mut self) {
        self.unsent = self.data.take().map(|data| data.len());
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.data.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        // One that is not sent has not ended: the library would announce no bytes.
        self.data.is_none() && self.unsent.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.unsent.or(self.data.as_ref().map(Bytes::len)).unwrap_or(0);
        SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
    }
}

impl Drop for Reply {
    /// The library drops a body when it has put all of it into its buffer, before it flushes.
    fn drop(&mut self) {
        if let (None, Some((pending, reply))) = (&self.data, self.stamp.take()) {
            pending.lock().unwrap_or_else(PoisonError::into_inner).push(reply);
        }
    }
}
