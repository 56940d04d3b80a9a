//! The persistent message queue over PostgreSQL: a stateless middleware between clients that speak
//! gRPC and one database.
//!
//! A request becomes an operation, waits in the bounded request queue, and is taken
//! by a worker, which waits for a connection of the pool and then serves what waits together: one
//! statement, one commit, one answer an operation (`dispatcher`). What each operation does is
//! written in SQL (`database/functions.sql`), so that it takes one round trip. Answered means committed.
//!
//! What it leaves out: printing, and the command line.

mod connection;
mod console;
mod conversation;
mod database;
mod dispatcher;
#[cfg(feature = "fuzzing")]
#[path = "../../../../fuzz/inside/queue.rs"]
pub mod fuzzing;
mod health;
mod http2;
mod identity;
mod methods;
mod operation;
mod postgres_counters;
mod private_postgres;
mod queue_metrics;
mod refusal;
mod request;
mod request_limits;
mod response;
mod server;
mod service;
mod ticket;
mod waiters;

pub use database::DatabaseError;
pub use operation::Limits;
pub use private_postgres::{PrivateOptions, PrivatePostgres, PrivatePostgresError, TcpAccess};
pub use server::{Access, Database, QueueOptions, Server, ServerError};

/// The service's client and server, made from the published description.
pub mod wire {
    #![allow(clippy::all, clippy::allow_attributes_without_reason, reason = "made code")]
    #![allow(clippy::missing_errors_doc, clippy::too_many_lines, reason = "made code")]
    #![allow(clippy::wildcard_imports, reason = "made code")]
    #![allow(unreachable_pub, missing_debug_implementations, reason = "made code")]
    include!(concat!(env!("OUT_DIR"), "/kendall.queue.v1.rs"));
}
