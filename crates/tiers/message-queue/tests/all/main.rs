//! The middleware over real PostgreSQLs, as one binary.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

mod connections;
mod conversation;
mod faults;
mod forgetting;
mod hostile;
mod operations;
mod postgres_counters;
mod private_folder;
mod protocol;
mod schema;
mod support;
mod undelivered;
