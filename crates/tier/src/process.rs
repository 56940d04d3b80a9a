//! What the operating system accounts to this process.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use procfs::process::Process;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors of a tier beyond those that it inherits: its own with a metrics page, and a few connections.
pub const OWN_DESCRIPTORS: usize = 20;

/// CPU time and memory of this process so far. What the system does not tell is 0.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_user_ns: u64,
    pub(crate) cpu_system_ns: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) threads: u64,
    pub(crate) open_fds: u64,
    pub(crate) max_fds: u64,
}

pub(crate) fn usage() -> Usage {
    let Ok((process, stat)) = Process::myself().and_then(|p| p.stat().map(|stat| (p, stat))) else {
        return Usage::default();
    };
    let tick_ns = 1_000_000_000 / procfs::ticks_per_second();
    Usage {
        cpu_user_ns: stat.utime * tick_ns,
        cpu_system_ns: stat.stime * tick_ns,
        resident_bytes: stat.rss * procfs::page_size(),
        virtual_bytes: stat.vsize,
        threads: u64::try_from(stat.num_threads).unwrap_or(0),
        open_fds: process.fd_count().map_or(0, |count| count as u64),
        max_fds: descriptor_limit(),
    }
}

pub(crate) fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// One of so many parts of the descriptors that this process may have.
pub fn share_of_descriptors(parts: u64) -> usize {
    usize::try_from(descriptor_limit() / parts).unwrap_or(usize::MAX)
}

/// Connections of clients at an address that may be open: those that are allowed, `most` of them, and so many that a
/// tier has its own descriptors besides. Warns where they are fewer than allowed.
pub fn bound_connections(address: SocketAddr, allowed: usize, most: usize) -> usize {
    let most = most.min(share_of_descriptors(1).saturating_sub(OWN_DESCRIPTORS)).max(1);
    let connections = allowed.min(most);
    if connections < allowed {
        tracing::warn!(
            %address,
            connections,
            allowed,
            "fewer connections at a time than allowed: this process may open few files; raise its limit (`ulimit -n`)"
        );
    }
    connections
}

/// Whether this process may have so many descriptors more than it has now.
#[must_use]
pub fn may_open(descriptors: usize) -> bool {
    let one = |_| io::stderr().as_fd().try_clone_to_owned();
    (0..descriptors).map(one).collect::<io::Result<Vec<OwnedFd>>>().is_ok()
}

/// Each connection is a descriptor: lets this process have as many as the system allows it, and says how many.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A tier that may not have more goes on with fewer, and counts when it hits the limit.
    setrlimit(Resource::Nofile, limit).unwrap_or_default();
    descriptor_limit()
}
