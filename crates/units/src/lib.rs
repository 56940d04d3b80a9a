//! Quantities with their units, how they are written in files and on the command line, and
//! conversions of counts that refuse to lose precision.
//!
//! What it leaves out: whether a value makes sense. A negative time is a [`Seconds`]; the model
//! that takes it says why it cannot.
#![warn(missing_docs, clippy::missing_errors_doc)]

mod chain;
mod counted;
mod date;
mod exact;
mod hex;
mod parse;
mod printable;
mod quantity;

pub use chain::{chain, innermost};
pub use counted::counted;
pub use date::utc;
pub use exact::{exact_f64, ratio, whole_u64};
pub use hex::hex;
pub use parse::{
    QuantityError, parse_bandwidth, parse_bytes, parse_rate, parse_seconds, parse_share,
};
pub use printable::{echo, is_printable, printable};
pub use quantity::{Rate, Seconds};
