//! Files that the worker fetched or made: kept on its disk within a bound, so that the next action
//! that needs one does not fetch it again.
//!
//! Files of the store are never written once they are there. Actions get them as hard links when
//! they run as another user than the worker, who owns them and gives no right to write; as copies
//! (reflinks where the file system has them) when they run as the same.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::Mutex;
use rustix::fs::AtFlags;
use tokio::sync::watch;

use super::root::{Root, open_file};
use crate::digest::Digest;
use crate::remote::{Remote, RemoteError, SMALL_BYTES};

/// A file by content, and whether it can be run: that is part of the file itself.
pub(super) type Key = (Digest, bool);

/// Large files that one action fetches at the same time.
const PARALLEL: usize = 8;

/// The store. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    quota: u64,
    /// Whether actions can be given the files themselves.
    link: bool,
    state: Mutex<State>,
    temporary: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    fetched_bytes: AtomicU64,
}

#[derive(Debug)]
struct State {
    known: LruCache<Key, ()>,
    bytes: u64,
    fetching: HashMap<Key, watch::Receiver<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreCounts {
    /// Files asked for that were there.
    pub hits: u64,
    /// Those that were not.
    pub misses: u64,
    /// Bytes that came from the cache.
    pub fetched_bytes: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

impl Store {
    /// An empty store in `folder`: what an earlier process left there is deleted, since it is unknown
    /// whether all of it reached the disk.
    pub(super) fn new(folder: PathBuf, quota: u64, link: bool) -> io::Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        for first in 0..=255_u8 {
            fs::create_dir_all(folder.join(format!("{first:02x}")))?;
        }
        let state = State { known: LruCache::unbounded(), bytes: 0, fetching: HashMap::new() };
        let shared = Shared {
            folder,
            quota,
            link,
            state: Mutex::new(state),
            temporary: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            fetched_bytes: AtomicU64::new(0),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub(super) fn counts(&self) -> StoreCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreCounts {
            hits: load(&self.shared.hits),
            misses: load(&self.shared.misses),
            fetched_bytes: load(&self.shared.fetched_bytes),
            bytes: self.shared.state.lock().bytes,
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        let hash = key.0.hash_text();
        let run = if key.1 { "x" } else { "" };
        let function = key.0.function.name();
        let name = format!("{hash}-{}-{function}{run}", key.0.size);
        self.shared.folder.join(&hash[..2]).join(name)
    }

    fn temporary(&self) -> PathBuf {
        let number = self.shared.temporary.fetch_add(1, Ordering::Relaxed);
        self.shared.folder.join(format!("new-{number}"))
    }

    /// Has all of these in the store, each fetched once however many actions ask for it.
    pub(super) async fn fetch(
        &self,
        remote: &Remote,
        instance: &str,
        keys: &[Key],
    ) -> Result<(), RemoteError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut wanted = keys.to_vec();
        loop {
            let (mine, others, done) = self.claim(&wanted);
            let fetched = self.get(remote, instance, &mine).await;
            drop(done);
            fetched?;
            if others.is_empty() {
                return Ok(());
            }
            // Another action fetches these; should it fail, they are ours to fetch.
            wanted = others.iter().map(|(key, _)| *key).collect();
            for (_, mut done) in others {
                // It ends when the other's sender is dropped.
                while done.changed().await.is_ok() {}
            }
        }
    }

    /// Divides missing blobs into those that are not being fetched, which the caller is to
    /// fetch, and those that another caller fetches.
    #[expect(clippy::type_complexity, reason = "three parts of one division, used in one place")]
    fn claim(&self, wanted: &[Key]) -> (Vec<Key>, Vec<(Key, watch::Receiver<()>)>, Claim) {
        let mut state = self.shared.state.lock();
        let (sender, receiver) = watch::channel(());
        let (mut mine, mut others) = (Vec::new(), Vec::new());
        let mut hits = 0;
        for key in wanted {
            if state.known.get(key).is_some() {
                hits += 1;
            } else if let Some(other) = state.fetching.get(key) {
                others.push((*key, other.clone()));
            } else {
                state.fetching.insert(*key, receiver.clone());
                mine.push(*key);
            }
        }
        self.shared.hits.fetch_add(hits, Ordering::Relaxed);
        self.shared.misses.fetch_add(mine.len() as u64, Ordering::Relaxed);
        let claim = Claim { store: self.clone(), keys: mine.clone(), _done: sender };
        (mine, others, claim)
    }

    async fn get(&self, remote: &Remote, instance: &str, keys: &[Key]) -> Result<(), RemoteError> {
        if keys.is_empty() {
            return Ok(());
        }
        let small: Vec<Digest> =
            keys.iter().map(|key| key.0).filter(|digest| digest.size <= SMALL_BYTES).collect();
        let mut missing = Vec::new();
        let mut contents = match remote.read(instance, &unique(small)).await {
            Ok(contents) => contents,
            Err(RemoteError::Missing(some)) => {
                missing = some;
                HashMap::new()
            }
            Err(error) => return Err(error),
        };
        let large: Vec<Key> = keys.iter().filter(|k| k.0.size > SMALL_BYTES).copied().collect();
        if missing.is_empty() {
            contents.insert(crate::digest::Function::Sha256.digest(b""), Vec::new());
            contents.insert(crate::digest::Function::Blake3.digest(b""), Vec::new());
            for key in keys.iter().filter(|key| key.0.size <= SMALL_BYTES) {
                let path = self.temporary();
                let Some(content) = contents.get(&key.0) else { continue };
                fs::write(&path, content)?;
                self.add(*key, &path)?;
            }
            for some in large.chunks(PARALLEL) {
                let reading = some.iter().map(|key| self.get_large(remote, instance, *key));
                for result in join_all(reading).await {
                    match result {
                        Err(RemoteError::Missing(one)) => missing.extend(one),
                        result => result?,
                    }
                }
            }
        } else if !large.is_empty() {
            // The client gets everything that is missing at once.
            let large: Vec<Digest> = large.iter().map(|key| key.0).collect();
            missing.extend(remote.missing(instance, &large).await?);
        }
        let bytes = keys.iter().map(|key| key.0.size).sum();
        self.shared.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
        if missing.is_empty() { Ok(()) } else { Err(RemoteError::Missing(missing)) }
    }

    async fn get_large(
        &self,
        remote: &Remote,
        instance: &str,
        key: Key,
    ) -> Result<(), RemoteError> {
        let path = self.temporary();
        match remote.read_file(instance, key.0, &path).await {
            Ok(()) => Ok(self.add(key, &path)?),
            Err(error) => {
                fs::remove_file(&path).unwrap_or_default();
                Err(error)
            }
        }
    }

    /// Takes in a file whose content is what its name says.
    fn add(&self, key: Key, from: &Path) -> io::Result<()> {
        let mode = if key.1 { 0o555 } else { 0o444 };
        fs::set_permissions(from, fs::Permissions::from_mode(mode))?;
        fs::rename(from, self.path(&key))?;
        let mut state = self.shared.state.lock();
        if state.known.put(key, ()).is_none() {
            state.bytes += key.0.size;
        }
        let mut gone = Vec::new();
        while state.bytes > self.shared.quota && state.known.len() > 1 {
            let Some((old, ())) = state.known.pop_lru() else { break };
            state.bytes -= old.0.size;
            gone.push(old);
        }
        drop(state);
        for old in gone {
            fs::remove_file(self.path(&old)).unwrap_or_default();
        }
        Ok(())
    }

    /// Takes an uploaded output out of its action's folder: the next action will likely read it. No
    /// process can write to it any more.
    pub(super) fn keep(&self, key: Key, root: &Root, from: &str) {
        if self.shared.state.lock().known.contains(&key) {
            return;
        }
        let path = self.temporary();
        let kept = self.take(root, from, &path).and_then(|()| self.add(key, &path));
        if let Err(error) = kept {
            tracing::debug!(%error, "an output is not kept");
            fs::remove_file(&path).unwrap_or_default();
        }
    }

    fn take(&self, root: &Root, from: &str, to: &Path) -> io::Result<()> {
        // Never by its path: what the action made of the folders on the way may be links.
        let (folder, name) = root.parent(from)?;
        if rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_nlink > 1 {
            // Perhaps a file of the store itself, under another name.
            return io::copy(&mut open_file(&folder, name)?, &mut fs::File::create(to)?).map(drop);
        }
        rustix::fs::renameat(&folder, name, rustix::fs::CWD, to)?;
        if self.shared.link {
            let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
            std::os::unix::fs::chown(to, Some(user.as_raw()), Some(group.as_raw()))?;
        }
        Ok(())
    }

    /// Gives an action a file of the store at `to`; false when it is there no longer.
    pub(super) fn place(&self, key: &Key, to: &Path, own_copy: bool) -> io::Result<bool> {
        let from = self.path(key);
        let placed = if self.shared.link && !own_copy {
            fs::hard_link(&from, to)
        } else {
            fs::copy(&from, to).map(drop)
        };
        match placed {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut state = self.shared.state.lock();
                if state.known.pop(key).is_some() {
                    state.bytes -= key.0.size;
                }
                Ok(false)
            }
            // A file system bounds the links of one file; a copy has no such bound.
            Err(error) if self.shared.link && error.kind() == io::ErrorKind::TooManyLinks => {
                fs::copy(&from, to).map(|_| true)
            }
            Err(error) => Err(error),
        }
    }
}

/// Files that one action fetches; when it is dropped, others may fetch them.
#[derive(Debug)]
struct Claim {
    store: Store,
    keys: Vec<Key>,
    _done: watch::Sender<()>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.store.shared.state.lock();
        for key in &self.keys {
            state.fetching.remove(key);
        }
    }
}

fn unique(mut digests: Vec<Digest>) -> Vec<Digest> {
    digests.retain(|digest| !digest.is_empty());
    digests.sort_unstable();
    digests.dedup();
    digests
}

/// The results of all, in order, awaited at the same time.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    use std::pin::Pin;
    use std::task::Poll;
    let mut waiting: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut results: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(move |context| {
        let mut all = true;
        for (future, result) in waiting.iter_mut().zip(&mut results) {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *result = Some(value),
                    Poll::Pending => all = false,
                }
            }
        }
        if all {
            Poll::Ready(results.iter_mut().filter_map(Option::take).collect())
        } else {
            Poll::Pending
        }
    })
    .await
}
