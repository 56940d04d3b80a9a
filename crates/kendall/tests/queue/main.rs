//! The message queue as a process: commands, console, load, full disks, and the history of many clients.

mod backup;
mod command;
mod console;
mod drain;
mod full_disk;
mod history;
mod load;
mod process;
mod queue_support;
#[path = "../support/mod.rs"]
mod support;
