//! The link tier: a TCP relay with delay, jitter, a bandwidth limit and faults, which can be
//! changed while it runs. One machine can so emulate several.
//!
//! One thread, one event loop: a link that carried its bytes on several cores would take from the
//! tiers what it is to measure. It leaves out the loss and reordering of packets, which TCP hides
//! from the programs on both ends as delay, and the delay of the connection set-up, which the
//! kernel completes by itself.

mod connection;
mod control;
mod delay_line;
mod relay;
mod shape;

pub use control::{Control, ControlError, LinkState, RouteState};
pub use relay::{Limits, Link, LinkError, LinkOptions, Route};
pub use shape::{Fault, Jitter, Shape, ShapeChange, parse_jitter};
