//! The memcached middleware: clients speak the text protocol and do not know that it is there.
//!
//! A network thread reads requests of any number of clients and never blocks. In worker mode
//! at most as many requests as there are workers are in service, the others wait in a bounded
//! queue, and each worker owns one connection to every server for its whole life. In pipelined
//! mode requests of many clients share few connections.
//!
//! `docs/proxy.md` says what each command does with several servers; `docs/decisions/` why a
//! worker is a state of the network thread and not a thread.

mod accept;
mod admission;
mod buffer;
mod check;
mod client;
mod clients;
mod config;
mod conn;
mod dispatch;
mod engine;
mod fills_and_copies;
mod health;
mod listener;
mod liveness;
mod mark;
mod memory;
#[cfg(test)]
mod model;
mod options;
mod plan;
mod poller;
mod pools;
mod proxy;
mod replies;
mod report;
mod request;
mod requests;
mod routes;
mod servers;
mod socket;
mod tls;
mod tools;
mod unique;

pub use config::{CONFIG, Config, ConfigError, POOL, ROUTE, SETTINGS, SHADOW, TLS, WARM_UP};
pub use liveness::Liveness;
pub use options::{Address, Mode, Options, Placement, Pool, Route, Server, Shadow, WarmUp};
pub use plan::{PlanError, ReloadError, Reloader};
pub use proxy::{Proxy, StartError};
pub use tls::{ClientTls, ServerTls};
