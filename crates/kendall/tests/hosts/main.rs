//! Studies over several hosts.

mod several_hosts;
mod small_disks;
#[path = "../support/mod.rs"]
mod support;
