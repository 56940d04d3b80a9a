//! Cache and scheduler in this process, as one binary.

mod cache;
mod hostile;
mod scheduler_board;
mod support;
mod tls;
