//! The memcached text protocol as version 1.6 speaks it: where a request or a reply ends, what it
//! asks for, and which errors the protocol itself has for what is malformed.
//!
//! Nothing here copies a value: requests and replies are described as spans of the caller's
//! buffer, and values pass in pieces of any size.
//!
//! What it leaves out: the binary protocol, which begins with [`BINARY_REQUEST`], and the syntax
//! of commands that a server can judge as well (`incr k abc`): those pass as they are.

mod ketama;
mod number;
mod reply;
mod request;

pub use ketama::Ring;
pub use number::{signed, unsigned, whole};
pub use reply::{BadReply, Element, Framing, Status, element, is_reply_to};
pub use request::{Command, Limits, Parsed, Refusal, Request, Span, Store, keys, parse, tokens};

/// First byte of a request of the binary protocol.
pub const BINARY_REQUEST: u8 = 0x80;

/// Longest key.
pub const KEY_BYTES: usize = 250;

/// Longest line of any command but `get` and `gets`: a server closes the connection when it has
/// read more and no end of the line.
pub const LINE_BYTES: usize = 2048;
