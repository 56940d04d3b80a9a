//! Worked cases and what is refused of them, as one binary.

mod cases;
mod lqn;
mod strict;
