//! Who sent a request: its connection and its address, each with what it has under way. A bound for each keeps one
//! client from taking what is there for all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hyper::http::Extensions;
use tokio::sync::Notify;

/// What a connection, or all connections from one address, have under way.
#[derive(Debug, Default)]
pub struct Account {
    /// Bytes of unfinished requests that are held.
    pub held: AtomicUsize,
    pub uploads: AtomicUsize,
    /// Bytes of answers that were not taken.
    pub(super) answers: Level,
    /// Requests that have begun.
    pub(super) requests: Level,
    pub(super) connections: AtomicUsize,
}

/// What an account holds of something, and who waits for room in it.
#[derive(Debug, Default)]
pub(super) struct Level {
    held: AtomicUsize,
    waiting: AtomicUsize,
    turn: tokio::sync::Mutex<()>,
    changed: Notify,
}

impl Level {
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// What is alone always has room.
    pub(super) fn has_room(&self, amount: usize, most: usize) -> bool {
        let held = self.held();
        held == 0 || held < most && held + amount <= most
    }

    /// Whether it has room and its queue is empty.
    pub(super) fn is_free(&self, amount: usize, most: usize) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 && self.has_room(amount, most)
    }

    /// Waits in its queue until it is the caller's turn.
    pub(super) async fn turn(&self) -> Turn<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Waiting(self);
        let turn = self.turn.lock().await;
        Turn { _waiting: waiting, _turn: turn }
    }

    /// Waits for room that becomes free.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn hold(&self, amount: usize) {
        self.held.fetch_add(amount, Ordering::SeqCst);
    }

    pub(super) fn release(&self, amount: usize) {
        self.held.fetch_sub(amount, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.changed.notify_one();
        }
    }
}

/// The turn of one of those who wait for room, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _waiting: Waiting<'a>,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

#[derive(Debug)]
struct Waiting<'a>(&'a Level);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The sender of a request.
#[derive(Debug, Clone, Default)]
pub struct Client {
    pub connection: Arc<Account>,
    pub peer: Arc<Account>,
}

impl Client {
    /// The sender of the request with these extensions.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }
}

/// Addresses with open connections.
#[derive(Debug, Default)]
pub(super) struct Peers {
    accounts: HashMap<IpAddr, Weak<Account>>,
    /// Number of addresses at which those without a connection are removed.
    tidy_at: usize,
}

impl Peers {
    /// The account of a new connection, and that of its address.
    pub(super) fn client(&mut self, address: IpAddr) -> Client {
        if self.accounts.len() >= self.tidy_at {
            self.accounts.retain(|_, account| account.strong_count() > 0);
            self.tidy_at = 2 * self.accounts.len() + 64;
        }
        let known = self.accounts.entry(network(address)).or_default();
        let peer = known.upgrade().unwrap_or_default();
        *known = Arc::downgrade(&peer);
        Client { connection: Arc::default(), peer }
    }
}

/// One host has a whole /64 of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_from_one_address_share_its_account_as_long_as_one_is_open() {
        let mut peers = Peers::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = peers.client(address("10.0.0.1"));
        let second = peers.client(address("::ffff:10.0.0.1"));
        assert!(Arc::ptr_eq(&first.peer, &second.peer));
        assert!(!Arc::ptr_eq(&first.connection, &second.connection));
        let other = peers.client(address("10.0.0.2"));
        assert!(!Arc::ptr_eq(&first.peer, &other.peer));
        let (six, same) =
            (peers.client(address("2001:db8::1")), peers.client(address("2001:db8::ffff:2")));
        assert!(Arc::ptr_eq(&six.peer, &same.peer));
        drop((six, same));
        for number in 0..10_000_u32 {
            peers.client(std::net::Ipv4Addr::from_bits(number).into());
        }
        assert!(peers.accounts.len() < 500, "{}", peers.accounts.len());
        assert!(Arc::ptr_eq(&peers.client(address("10.0.0.1")).peer, &first.peer));
    }
}
