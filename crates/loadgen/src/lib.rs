//! Load generation: arrival schedules, closed and open loops, one driver a protocol.

pub mod result;
