//! Bodies of answers, and the moment at which each has been handed to the kernel.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use kendall_tier::{Moments, RequestType};
use parking_lot::Mutex;

use crate::service::Shared;

/// Answers of one connection that were given to the HTTP library and are not yet flushed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending(Arc<Mutex<Vec<PendingReply>>>);

/// An answer on its way to the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingReply {
    pub(crate) request: RequestType,
    pub(crate) arrived_ns: u64,
    pub(crate) dequeued_ns: u64,
}

impl Pending {
    /// Counts the answers. The library flushes when it has written all that it had: they are in the kernel.
    pub(crate) fn completed(&self, shared: &Shared) {
        let mut pending = self.0.lock();
        if pending.is_empty() {
            return;
        }
        let replied_ns = shared.clock.now_ns();
        let mut recorder = shared.network.lock();
        for PendingReply { request, arrived_ns, dequeued_ns } in pending.drain(..) {
            let moments = Moments { arrived_ns, dequeued_ns, backend: None, replied_ns };
            recorder.completed(request, &moments);
        }
    }
}

/// The body of an answer: one piece, which becomes a pending reply when the library has taken it.
#[derive(Debug)]
pub(crate) struct Reply {
    data: Option<Bytes>,
    stamp: Option<(Pending, PendingReply)>,
}

impl Reply {
    /// A body whose delivery is not measured.
    pub(crate) fn plain(data: impl Into<Bytes>) -> Self {
        Self { data: Some(data.into()), stamp: None }
    }

    /// The body of a result.
    pub(crate) fn stamped(data: Bytes, pending: &Pending, reply: PendingReply) -> Self {
        Self { data: Some(data), stamp: Some((pending.clone(), reply)) }
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
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.data.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
    }
}

impl Drop for Reply {
    /// The library drops a body when it has put all of it into its buffer, before it flushes.
    fn drop(&mut self) {
        if let (None, Some((pending, reply))) = (&self.data, self.stamp.take()) {
            pending.0.lock().push(reply);
        }
    }
}
