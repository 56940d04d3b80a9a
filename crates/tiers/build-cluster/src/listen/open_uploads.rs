//! Uploads that have begun: how many a connection, an address and all together may have, and which one ends when
//! another needs its place.
//!
//! Where a bound is reached, a new upload takes the place of one that has not moved on for a while, first of the
//! address and the connection that have most.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use kendall_tier::serve::{Account, Client};
use kendall_tier::share_of_descriptors;
use kendall_units::exact_f64;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::Status;

use crate::instruments::{Counter, Families};

/// Most open uploads, and how long one keeps its place without moving on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UploadBounds {
    pub(crate) total: usize,
    pub(crate) peer: usize,
    pub(crate) connection: usize,
    /// Time without progress after which it gives way to another.
    pub(crate) patience_ns: u64,
    /// Time without progress after which it ends in any case.
    pub(crate) idle_ns: u64,
}

impl Default for UploadBounds {
    /// Each may have a file open: an eighth of the files that this process may open.
    fn default() -> Self {
        Self::of(share_of_descriptors(8).min(2048))
    }
}

impl UploadBounds {
    fn of(total: usize) -> Self {
        Self {
            total,
            peer: total / 2,
            connection: total / 4,
            patience_ns: 1_000_000_000,
            idle_ns: 60_000_000_000,
        }
    }

    /// Uploads that broke off and are kept, with their files.
    pub(crate) fn broken(&self) -> usize {
        self.total / 8
    }

    /// Those of a cache behind a front, whose clients all come over its connections.
    pub(crate) fn behind_front() -> Self {
        let bounds = Self::default();
        Self { peer: bounds.total, connection: bounds.total, ..bounds }
    }

    /// Those of a tier whose clients' uploads go over one connection to a cache, which bounds them all together.
    pub(crate) fn on_one_connection() -> Self {
        let bounds = Self::default();
        let total = bounds.connection;
        Self { total, peer: total / 4 * 3, connection: total / 2, ..bounds }
    }
}

/// Bytes that an upload must gain for its time without progress to begin anew.
const PROGRESS: u64 = 4 << 10;

#[derive(Debug, Clone, Default)]
pub(crate) struct OpenUploads(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    bounds: UploadBounds,
    /// Uploads that could not begin, and those that gave way to others.
    refused: Counter,
    ended: Counter,
    open: Mutex<HashMap<u64, Arc<Upload>>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Upload {
    client: Client,
    /// When it moved on last.
    since_ns: AtomicU64,
    ended: Notify,
}

/// The place of one open upload, until it is dropped.
#[derive(Debug)]
pub(crate) struct UploadPlace {
    all: OpenUploads,
    number: u64,
    upload: Arc<Upload>,
    /// Bytes that came when it moved on last.
    mark: AtomicU64,
}

impl OpenUploads {
    pub(crate) fn new(bounds: UploadBounds) -> Self {
        Self(Arc::new(Shared { bounds, ..Shared::default() }))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.open.lock().len()
    }

    /// Adds what it tells of itself.
    pub(crate) fn describe(&self, families: &Families) {
        let all = self.clone();
        let open = move || exact_f64(all.count() as u64);
        families.level("kendall_uploads_open", "Uploads that have begun.", &[], open);
        let refused = self.0.refused.clone();
        let help = "Uploads that could not begin since too many were open.";
        families.count("kendall_uploads_refused_total", help, &[], move || refused.get());
        let ended = self.0.ended.clone();
        let help = "Uploads that did not move on and gave way to others.";
        families.count("kendall_uploads_ended_total", help, &[], move || ended.get());
    }

    /// A place for an upload of this client.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a bound is reached and all move on.
    pub(crate) fn begin(&self, client: &Client, now_ns: u64) -> Result<UploadPlace, Status> {
        let mut open = self.0.open.lock();
        if let Some((most, of)) = self.reached(open.len(), client) {
            let Some(number) = self.slowest(&open, client, now_ns) else {
                self.0.refused.add(1);
                return Err(Status::resource_exhausted(format!(
                    "{most} uploads are open {of}; try again"
                )));
            };
            if let Some(upload) = open.remove(&number) {
                upload.count(-1);
                upload.ended.notify_one();
                self.0.ended.add(1);
            }
        }
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let upload = Arc::new(Upload {
            client: client.clone(),
            since_ns: AtomicU64::new(now_ns),
            ended: Notify::new(),
        });
        upload.count(1);
        open.insert(number, Arc::clone(&upload));
        drop(open);
        Ok(UploadPlace { all: self.clone(), number, upload, mark: AtomicU64::new(0) })
    }

    /// The bound that one more upload would exceed.
    fn reached(&self, open: usize, client: &Client) -> Option<(usize, &'static str)> {
        let bounds = &self.0.bounds;
        if count(&client.connection) >= bounds.connection {
            Some((bounds.connection, "on one connection"))
        } else if count(&client.peer) >= bounds.peer {
            Some((bounds.peer, "from one address"))
        } else {
            (open >= bounds.total).then_some((bounds.total, "on this server"))
        }
    }

    /// The upload that gives way: the slowest one of those whose end helps.
    fn slowest(
        &self,
        open: &HashMap<u64, Arc<Upload>>,
        client: &Client,
        now_ns: u64,
    ) -> Option<u64> {
        let bounds = &self.0.bounds;
        let same_connection = count(&client.connection) >= bounds.connection;
        let same_peer = count(&client.peer) >= bounds.peer;
        let helps = |upload: &Upload| {
            if same_connection {
                Arc::ptr_eq(&upload.client.connection, &client.connection)
            } else {
                !same_peer || Arc::ptr_eq(&upload.client.peer, &client.peer)
            }
        };
        open.iter()
            .map(|(number, upload)| (number, upload, upload.silence_ns(now_ns)))
            .filter(|(_, upload, silence)| *silence >= bounds.patience_ns && helps(upload))
            .max_by_key(|(_, upload, silence)| {
                (count(&upload.client.peer), count(&upload.client.connection), *silence)
            })
            .map(|(number, ..)| *number)
    }
}

fn count(account: &Account) -> usize {
    account.uploads.load(Ordering::Relaxed)
}

impl Upload {
    fn silence_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed))
    }

    fn count(&self, change: isize) {
        let change =
            |count: &AtomicUsize| count.fetch_add(change.cast_unsigned(), Ordering::Relaxed);
        change(&self.client.connection.uploads);
        change(&self.client.peer.uploads);
    }
}

impl UploadPlace {
    /// Notes that so many bytes came so far; says whether the upload moved on within the time that it has.
    pub(crate) fn moved(&self, bytes: u64, now_ns: u64) -> bool {
        if bytes >= self.mark.load(Ordering::Relaxed) + PROGRESS {
            self.mark.store(bytes, Ordering::Relaxed);
            self.upload.since_ns.store(now_ns, Ordering::Relaxed);
        }
        self.upload.silence_ns(now_ns) <= self.all.0.bounds.idle_ns
    }

    /// As [`Self::moved`].
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED for one that has not moved on for too long.
    pub(crate) fn came(&self, bytes: u64, now_ns: u64) -> Result<(), Status> {
        if self.moved(bytes, now_ns) {
            return Ok(());
        }
        Err(Status::deadline_exceeded(format!(
            "fewer than {PROGRESS} bytes came in {} s",
            self.all.0.bounds.idle_ns / 1_000_000_000
        )))
    }

    /// Waits until another upload has taken the place; returns the answer for this one.
    pub(crate) async fn taken(&self) -> Status {
        self.upload.ended.notified().await;
        Status::resource_exhausted(
            "the upload did not move on, and another one took its place; go on with it, or try again",
        )
    }
}

impl Drop for UploadPlace {
    fn drop(&mut self) {
        if let Some(upload) = self.all.0.open.lock().remove(&self.number) {
            upload.count(-1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: UploadBounds =
        UploadBounds { total: 12, peer: 8, connection: 4, patience_ns: 10, idle_ns: 60 };

    /// What clients do, one after the other.
    #[derive(Debug, Clone)]
    enum Step {
        Begin(usize),
        /// An upload moves on by so many bytes.
        Send(usize, u64),
        End(usize),
        /// So much time passes.
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..CLIENTS).prop_map(Step::Begin),
            3 => (any::<usize>(), prop_oneof![Just(1), Just(PROGRESS)])
                .prop_map(|(which, bytes)| Step::Send(which, bytes)),
            1 => any::<usize>().prop_map(Step::End),
            2 => (1..25_u64).prop_map(Step::Wait),
        ]
    }

    /// Connections: three from one address, two from another, one from a third.
    const CLIENTS: usize = 6;

    fn clients() -> Vec<Client> {
        let peers: Vec<Arc<Account>> = (0..3).map(|_| Arc::default()).collect();
        let of = [0, 0, 0, 1, 1, 2];
        of.iter()
            .map(|p| Client { connection: Arc::default(), peer: Arc::clone(&peers[*p]) })
            .collect()
    }

    struct Model {
        place: UploadPlace,
        client: usize,
        since: u64,
        bytes: u64,
        mark: u64,
    }

    proptest! {
        /// Whatever was begun, left open and ended: every bound holds, only what did not move on ends, and an upload is
        /// refused only where all that could give way to it move on.
        #[test]
        fn an_upload_that_does_not_move_on_gives_way(
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            let all = OpenUploads::new(BOUNDS);
            let clients = clients();
            let mut open: Vec<Model> = Vec::new();
            let mut now = 0;
            for step in steps {
                match step {
                    Step::Wait(time) => now += time,
                    Step::End(which) if !open.is_empty() => {
                        open.swap_remove(which % open.len());
                    }
                    Step::Send(which, bytes) if !open.is_empty() => {
                        let index = which % open.len();
                        let one = &mut open[index];
                        one.bytes += bytes;
                        if one.bytes >= one.mark + PROGRESS {
                            (one.since, one.mark) = (now, one.bytes);
                        }
                        let idle = now - one.since > BOUNDS.idle_ns;
                        prop_assert_eq!(one.place.came(one.bytes, now).is_err(), idle);
                        if idle {
                            open.swap_remove(index);
                        }
                    }
                    Step::Begin(client) => {
                        let silent = |one: &Model| now - one.since >= BOUNDS.patience_ns;
                        let same = |one: &Model| {
                            let [this, that] = [&clients[client], &clients[one.client]];
                            if count(&this.connection) >= BOUNDS.connection {
                                one.client == client
                            } else {
                                count(&this.peer) < BOUNDS.peer || Arc::ptr_eq(&this.peer, &that.peer)
                            }
                        };
                        let full = all.reached(all.count(), &clients[client]).is_some();
                        let may = !full || open.iter().any(|one| silent(one) && same(one));
                        let before = open.len();
                        match all.begin(&clients[client], now) {
                            Ok(place) => {
                                prop_assert!(may);
                                // Those that gave way; dropping one takes the lock.
                                let held: Vec<u64> = all.0.open.lock().keys().copied().collect();
                                open.retain(|one| held.contains(&one.place.number) || !silent(one));
                                prop_assert_eq!(open.len(), before - usize::from(full));
                                open.push(Model { place, client, since: now, bytes: 0, mark: 0 });
                            }
                            Err(_) => prop_assert!(!may),
                        }
                    }
                    Step::End(_) | Step::Send(..) => {}
                }
                prop_assert_eq!(all.count(), open.len());
                prop_assert!(open.len() <= BOUNDS.total);
                for client in &clients {
                    prop_assert!(count(&client.connection) <= BOUNDS.connection);
                    prop_assert!(count(&client.peer) <= BOUNDS.peer);
                }
            }
            drop(open);
            prop_assert_eq!(all.count(), 0);
            prop_assert!(clients.iter().all(|one| count(&one.connection) + count(&one.peer) == 0));
        }
    }
}
