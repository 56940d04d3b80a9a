//! The body of a request, as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::open::{Awaited, Room};

/// The body of a request. While it is waited for, its connection is read, whatever bound is reached.
#[derive(Debug)]
pub struct Incoming<B: Body + Unpin = hyper::body::Incoming> {
    /// Until it is dropped.
    body: Option<B>,
    room: Room,
    awaited: Option<Awaited>,
    rests: Option<mpsc::Sender<B>>,
}

impl<B: Body + Unpin> Incoming<B> {
    /// That of the request which has this room.
    pub fn new(body: B, room: Room) -> Self {
        Self { body: Some(body), room, awaited: None, rests: None }
    }

    /// The same, of which another reads what is left when it is dropped.
    pub(super) fn with_rests(mut self, rests: Option<mpsc::Sender<B>>) -> Self {
        self.rests = rests;
        self
    }
}

impl<B: Body + Unpin> Drop for Incoming<B> {
    fn drop(&mut self) {
        let (Some(mut body), Some(rests)) = (self.body.take(), &self.rests) else { return };
        if body.is_end_stream() {
            return;
        }
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(&mut context) {
            if !matches!(frame, Some(Ok(_))) {
                return;
            }
        }
        // There is space for those of all requests of a connection.
        rests.try_send(body).unwrap_or_default();
    }
}

impl<B: Body + Unpin> Body for Incoming<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(context);
        if frame.is_ready() {
            this.awaited = None;
        } else if this.awaited.is_none() {
            this.awaited = this.room.read();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}
