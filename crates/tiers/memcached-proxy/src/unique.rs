//! `cas` uniques of several servers.
//!
//! Each server counts its own uniques, so a number means nothing without the server that gave it.
//! A client sees a number that holds both, and the incarnation of the server, which is another each
//! time that its connection broke. A number from another server, or from before a restart, never
//! matches: the client gets `EXISTS`, never a wrong `STORED`. One server that never failed
//! shows its uniques unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kendall_protocols::memcached::whole;

/// Bits for the unique and the server.
const NUMBER_BITS: u32 = 48;
const NUMBERS: u64 = 1 << NUMBER_BITS;

/// A unique that no item has.
pub(crate) const NEVER: u64 = u64::MAX;

/// Of each server of a pool, the number of its incarnation. Each break of a connection, and each pool
/// that a reload brings, takes the next number of all, so that a number that one server had is never
/// another's. Network threads share them, so that a unique that one of them showed is known to the
/// others.
#[derive(Debug, Clone)]
pub(crate) struct Incarnations {
    servers: Arc<[AtomicU64]>,
    latest: Arc<AtomicU64>,
}

impl Incarnations {
    /// All servers begin with the same.
    pub(crate) fn new(servers: usize, first: u64, latest: Arc<AtomicU64>) -> Self {
        Self { servers: (0..servers).map(|_| AtomicU64::new(first)).collect(), latest }
    }

    #[inline]
    pub(crate) fn of(&self, server: usize) -> u64 {
        self.servers[server].load(Ordering::Relaxed)
    }

    pub(crate) fn next(&self, server: usize) {
        let next = self.latest.fetch_add(1, Ordering::Relaxed) + 1;
        self.servers[server].fetch_max(next, Ordering::Relaxed);
    }
}

/// Where uniques come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) servers: u64,
    pub(crate) server: u64,
    pub(crate) incarnation: u64,
}

impl Origin {
    /// Whether numbers differ between the two sides.
    #[inline]
    pub(crate) fn is_mapped(self) -> bool {
        self.servers > 1 || self.incarnation > 0
    }

    /// What clients see for a server's unique; [`NEVER`] where it does not fit.
    pub(crate) fn shown(self, unique: u64) -> u64 {
        let number = unique.checked_mul(self.servers).and_then(|n| n.checked_add(self.server));
        match number {
            Some(number) if number < NUMBERS => number | (self.tag() << NUMBER_BITS),
            _ => NEVER,
        }
    }

    /// The same of a number in text.
    pub(crate) fn shown_text(self, unique: &[u8]) -> String {
        whole(unique).map_or(NEVER, |number| self.shown(number)).to_string()
    }

    /// What the server knows a client's number as; [`NEVER`] when it is not this server's.
    pub(crate) fn known(self, shown: u64) -> u64 {
        let number = shown & (NUMBERS - 1);
        if shown >> NUMBER_BITS != self.tag() || number % self.servers != self.server {
            return NEVER;
        }
        number / self.servers
    }

    /// The incarnation's low bits; all ones are kept for [`NEVER`].
    fn tag(self) -> u64 {
        self.incarnation % (u64::MAX >> NUMBER_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_is_known_to_the_server_and_incarnation_that_gave_it_and_to_no_other() {
        for servers in 1..5 {
            for server in 0..servers {
                for incarnation in [0, 1, 7] {
                    let origin = Origin { servers, server, incarnation };
                    for unique in [1, 2, 99, 1 << 40] {
                        let shown = origin.shown(unique);
                        assert_eq!(origin.known(shown), unique);
                        let restarted = Origin { incarnation: incarnation + 1, ..origin };
                        assert_eq!(restarted.known(shown), NEVER);
                        let other = Origin { server: (server + 1) % servers, ..origin };
                        assert!(servers == 1 || other.known(shown) == NEVER);
                    }
                }
            }
        }
    }

    #[test]
    fn a_number_that_does_not_fit_never_matches() {
        let origin = Origin { servers: 3, server: 1, incarnation: 0 };
        assert_eq!(origin.shown(u64::MAX), NEVER);
        assert_eq!(origin.known(NEVER), NEVER);
    }
}
