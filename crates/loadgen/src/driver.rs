//! What a protocol brings: how to write a request and how to read its reply.
//!
//! A driver has no clock and no counters and does no input or output; the engine has all three,
//! once. One driver serves all connections of one generator thread, so what belongs to a single
//! request in flight lives in [`Driver::Pending`].

use std::io;
use std::net::SocketAddr;

use kendall_tier::serve::answers_with_tls;
use tokio_rustls::rustls;

use crate::tls::{self, Secure};

/// Writes requests and reads replies of one protocol.
pub trait Driver: Send {
    /// What the reply of one connection is read against. Reused, so that nothing is allocated.
    type Pending: Default + Send;

    /// Names of the operations; requests are counted by their index.
    fn operations(&self) -> Vec<String>;

    /// Draws the next request, appends its bytes to `out`, and returns the operation's index.
    fn write(&mut self, pending: &mut Self::Pending, out: &mut Vec<u8>) -> usize;

    /// Reads on from `input`: what came in and was not consumed before.
    ///
    /// Consumes all that it can, so that what is left over is a part of a line at most.
    fn read(&mut self, pending: &mut Self::Pending, input: &[u8]) -> Progress;

    /// Where the request goes; `None` for the target of its connection.
    fn node(&self, _pending: &Self::Pending) -> Option<SocketAddr> {
        None
    }

    /// How connections are encrypted, if they are.
    fn secure(&self) -> Option<&Secure> {
        None
    }

    /// What is sent on a new connection before its first request. The replies to it come first.
    fn greeting(&mut self, _pending: &mut Self::Pending) -> &[u8] {
        &[]
    }

    /// Appends what [`Reply::onward`] left to send.
    fn write_on(&mut self, _pending: &mut Self::Pending, _out: &mut Vec<u8>) {}

    /// The request in flight has failed, and its connection is closed.
    fn lost(&mut self, _pending: &mut Self::Pending) {}

    /// The server closed its side while a reply was awaited. Only a protocol whose replies may end
    /// that way returns one.
    fn end_of_input(&mut self, _pending: &mut Self::Pending) -> Option<Reply> {
        None
    }
}

/// How far a driver got with what came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    pub reply: Option<Reply>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reply {
    pub hits: u32,
    pub misses: u32,
    /// Why this reply is not an answer.
    pub error: Option<ErrorKind>,
    /// HTTP status code; 0 for other protocols.
    pub status: u16,
    /// The connection cannot be used again.
    pub close: bool,
    /// This is the reply to a part of the request: what is left goes to where [`Driver::node`] says.
    pub onward: bool,
    /// Redirects of a cluster that were followed: `MOVED` and `ASK`.
    pub moved: u32,
    pub asked: u32,
}

impl Reply {
    /// An error after which the stream is still in step.
    pub fn refused(kind: ErrorKind) -> Self {
        Self { error: Some(kind), ..Self::default() }
    }

    /// An error after which the next bytes cannot be parsed.
    pub fn broken(kind: ErrorKind) -> Self {
        Self { error: Some(kind), close: true, ..Self::default() }
    }
}

/// An enum with the names of its variants, and all of them.
macro_rules! named {
    (
        $(#[$of_enum:meta])*
        pub enum $name:ident { $($(#[doc = $text:literal])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $text])* $variant,)+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Name in options and results.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}
pub(crate) use named;

named! {
    /// Kinds of errors that are counted, in the order of their counters.
    pub enum ErrorKind {
        /// No complete reply within the time-out.
        TimedOut = "timed_out",
        /// The connection could not be made.
        ConnectFailed = "connect_failed",
        /// The server closed the connection before the reply was complete.
        ConnectionClosed = "connection_closed",
        /// The connection was reset, or another failure of the socket.
        ConnectionReset = "connection_reset",
        /// The connection could not be encrypted, or no longer: what TLS refused on either side.
        TlsFailed = "tls_failed",
        /// The server answered with TLS what was not encrypted.
        TlsWanted = "tls_wanted",
        /// The server gave up this request alone (HTTP/2's `RST_STREAM`).
        StreamReset = "stream_reset",
        /// The server did not take the request, however often it was sent (HTTP/2's `GOAWAY` and
        /// `REFUSED_STREAM`).
        NotTaken = "not_taken",
        /// Bytes that the protocol does not allow here.
        Garbage = "garbage",
        /// A value that is not the one stored under its key.
        WrongValue = "wrong_value",
        /// The server did not know the command (`ERROR`).
        UnknownCommand = "unknown_command",
        /// The server found the request wrong (`CLIENT_ERROR`).
        ClientError = "client_error",
        /// The server failed (`SERVER_ERROR`).
        ServerError = "server_error",
        /// The user, the password or the rights were not accepted.
        AccessDenied = "access_denied",
        /// The server, or its part of a cluster, does not serve at the moment.
        Unavailable = "unavailable",
        /// A write to a server that only reads.
        ReadOnly = "read_only",
        /// A value of another type than the command is for.
        WrongType = "wrong_type",
        /// The server has no memory left for it.
        OutOfMemory = "out_of_memory",
        /// A transaction that could not be put in one order with others.
        SerializationFailure = "serialization_failure",
        /// Transactions that waited for each other.
        Deadlock = "deadlock",
        /// A row that a constraint of its table forbids.
        ConstraintViolation = "constraint_violation",
        /// A status that is not among those that are right.
        UnexpectedStatus = "unexpected_status",
        /// An answer without a value that later requests need.
        NotExtracted = "not_extracted",
        /// Redirected too often, or to an address that cannot be followed.
        Redirected = "redirected",
        /// HTTP status 1xx where an answer was due.
        Status1xx = "status_1xx",
        /// HTTP status 3xx.
        Status3xx = "status_3xx",
        /// HTTP status 4xx.
        Status4xx = "status_4xx",
        /// HTTP status 5xx.
        Status5xx = "status_5xx",
    }
}

impl ErrorKind {
    /// What it says of the server, and the way out, where its name does not tell.
    pub(crate) fn way_out(self) -> Option<&'static str> {
        (self == Self::TlsWanted).then_some(tls::SPEAKS_TLS)
    }

    /// This kind, unless the answer that it is about is one of TLS to what was not encrypted.
    pub(crate) fn of_answer(self, answer: &[u8], is_clear: bool) -> Self {
        if is_clear && answers_with_tls(answer) { Self::TlsWanted } else { self }
    }

    /// The kind of a failure of a connection that was there.
    pub(crate) fn of_socket(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData if tls::is_answer_by_tls(error) => Self::TlsWanted,
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Self::ConnectionClosed,
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                let of_tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
                // The library of HTTP/2 keeps only the words.
                let of_tls = of_tls || error.to_string().contains("fatal alert");
                if of_tls { Self::TlsFailed } else { Self::Garbage }
            }
            io::ErrorKind::NotConnected | io::ErrorKind::ConnectionRefused => Self::ConnectFailed,
            _ => Self::ConnectionReset,
        }
    }

    /// The kind of a failure to connect: what breaks off behind the first answer breaks the greeting of TLS.
    pub(crate) fn of_connecting(error: &io::Error) -> Self {
        match Self::of_socket(error) {
            Self::TlsFailed | Self::ConnectionClosed => Self::TlsFailed,
            Self::TlsWanted => Self::TlsWanted,
            _ if error.kind() == io::ErrorKind::ConnectionReset => Self::TlsFailed,
            _ => Self::ConnectFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As HTTP/2's library passes on that a server wants a certificate: without the error inside.
    #[test]
    fn an_alert_is_a_failure_of_tls_and_other_nonsense_is_none() {
        for (text, kind) in [
            ("received fatal alert: CertificateRequired", ErrorKind::TlsFailed),
            ("frame with an invalid size", ErrorKind::Garbage),
            (tls::SPEAKS_TLS, ErrorKind::TlsWanted),
        ] {
            let error = io::Error::new(io::ErrorKind::InvalidData, text);
            assert_eq!(ErrorKind::of_socket(&error), kind);
        }
    }
}
