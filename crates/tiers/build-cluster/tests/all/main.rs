//! Cache and scheduler in this process, as one binary.

mod cache;
mod hostile;
mod scheduler_board;
mod scheduler_services;
mod support;
mod tls;
