//! The body of a request, as it comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};

use super::open::{Awaited, Room};

/// The body of a request. While it is waited for, its connection is read, whatever bound is reached.
#[derive(Debug)]
pub struct Incoming<B = hyper::body::Incoming> {
    body: B,
    room: Room,
    awaited: Option<Awaited>,
}

impl<B> Incoming<B> {
    /// That of the request which has this room.
    pub fn new(body: B, room: Room) -> Self {
        Self { body, room, awaited: None }
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
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if frame.is_ready() {
            this.awaited = None;
        } else if this.awaited.is_none() {
            this.awaited = this.room.read();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
