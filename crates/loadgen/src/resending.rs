//! What breaks a request of HTTP that a library speaks, and which requests are sent anew: those that a server did
//! not take, and says so.

use std::cell::Cell;
use std::error::Error as _;
use std::io;

use hyper::client::conn::TrySendError;

use crate::driver::ErrorKind;
use crate::tls::is_answer_by_tls;

/// How often a request is sent anew.
const MOST_TIMES: u32 = 2;

/// Why a request has no answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unanswered {
    pub(crate) kind: ErrorKind,
    /// Nothing was done with it: it never left, or its stream lies behind a `GOAWAY`, or was refused
    /// (RFC 9113, 8.7).
    not_taken: bool,
    /// Only its stream was refused: the connection may go on, and have been asked for too much at a time.
    refused: bool,
}

impl Unanswered {
    /// Of a request for which there was no connection any more.
    pub(crate) const NEVER_SENT: Self =
        Self { kind: ErrorKind::ConnectionClosed, not_taken: true, refused: false };

    /// Whether the request, now sent anew so many times, goes over another connection. One that refuses again has
    /// sent its limit of concurrent streams by then.
    pub(crate) fn leaves(self, times: u32) -> bool {
        !self.refused || times < 2
    }
}

impl<R> From<TrySendError<R>> for Unanswered {
    fn from(mut unsent: TrySendError<R>) -> Self {
        let not_taken = unsent.take_message().is_some();
        let unanswered = Self::from(unsent.into_error());
        Self { not_taken: not_taken || unanswered.not_taken, ..unanswered }
    }
}

impl From<hyper::Error> for Unanswered {
    fn from(error: hyper::Error) -> Self {
        let of_http2 = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
        let not_taken = of_http2.is_some_and(is_not_taken);
        let refused = not_taken && of_http2.is_some_and(h2::Error::is_reset);
        Self { kind: kind(&error), not_taken, refused }
    }
}

/// The requests of a connection that were sent anew, and those that still may be.
#[derive(Debug, Default)]
pub(crate) struct SentAnew(Cell<u64>);

impl SentAnew {
    /// Whether a request is sent once more, which was so `times` already; counts it.
    pub(crate) fn once_more(&self, unanswered: Unanswered, times: &mut u32) -> bool {
        let once_more = unanswered.not_taken && *times < MOST_TIMES;
        if once_more {
            *times += 1;
            self.0.set(self.0.get() + 1);
        }
        once_more
    }

    /// How many there were since the last call.
    pub(crate) fn take(&self) -> u64 {
        self.0.take()
    }
}

fn is_not_taken(error: &h2::Error) -> bool {
    let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || refused)
}

/// What broke a request.
pub(crate) fn kind(error: &hyper::Error) -> ErrorKind {
    if error.is_parse() {
        return ErrorKind::Garbage;
    }
    let source = error.source();
    if let Some(of_http2) = source.and_then(|source| source.downcast_ref::<h2::Error>()) {
        return match of_http2.get_io() {
            // The library of HTTP/2 keeps no inner error, and has none of this kind itself.
            Some(error)
                if error.kind() == io::ErrorKind::InvalidData && !is_answer_by_tls(error) =>
            {
                ErrorKind::TlsFailed
            }
            Some(error) => ErrorKind::of_socket(error),
            None if is_not_taken(of_http2) => ErrorKind::NotTaken,
            None if of_http2.is_remote() => ErrorKind::StreamReset,
            // What came is against the protocol.
            None => ErrorKind::Garbage,
        };
    }
    match source.and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(error) => ErrorKind::of_socket(error),
        None if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => {
            ErrorKind::ConnectionClosed
        }
        // More than was asked for.
        None => ErrorKind::Garbage,
    }
}
