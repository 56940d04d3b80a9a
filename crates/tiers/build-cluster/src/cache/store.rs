//! Storage: an index in memory over segments on disk.
//!
//! Small contents are appended to segments, each network thread to one of its own; large ones have
//! a file each. An answer is given after the system took the bytes, so what was acknowledged
//! survives the death of the process; after a power failure it is there whole, or it is a miss:
//! every read is checked against its checksums.
//!
//! The quota bounds bytes on disk. The least recently used go first; what they leave behind in
//! segments that others still use is won back by moving those others on. A disk that holds less than the quota
//! takes its place (`disk.rs`).

mod checksum;
mod disk;
mod index;
mod reader;
mod record;
mod recover;
mod segment;
mod upload;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::instruments::Counter;
use disk::{is_full, segment_bytes};
pub(crate) use index::{Entry, Key, Kind, Place};
pub(crate) use reader::Reader;
use record::{Checksums, HEAD, Head, record_bytes};
use segment::{Lane, Segment};
pub(crate) use upload::Spill;

/// Largest and smallest segment.
const SEGMENT_BYTES: u64 = 64 << 20;
const SMALLEST_SEGMENT: u64 = 64 << 10;
/// Largest content in a segment; larger ones have a file of their own.
const SMALL: u64 = 512 << 10;
/// Share of the limit, in eighths, that what is alive may take once the disk is full: what is left
/// is space for what segments still hold of the dead.
const ALIVE_EIGHTHS: u64 = 7;
/// How often the housekeeper checks whether it shall stop.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct StoreOptions {
    /// Folder; made when it is not there.
    pub(crate) folder: PathBuf,
    /// Most bytes on disk.
    pub(crate) quota: u64,
    /// Threads that write.
    pub(crate) lanes: usize,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("cannot use {path}")]
    Folder { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Taken(#[from] crate::folder::FolderError),
    #[error("a quota of {quota} bytes is too small: {least} at least for {lanes} threads")]
    Quota { quota: u64, least: u64, lanes: usize },
}

/// Something cannot be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PutError {
    #[error("{size} bytes are more than the quota, or the disk, holds")]
    TooLarge { size: u64 },
    /// Contents on their way in take as much space as they may.
    #[error("unfinished uploads take half of the quota; try again")]
    Unfinished,
    /// The disk is full of what is not the store's.
    #[error("the disk is full, and nothing is left to evict")]
    Full(#[source] io::Error),
    #[error("cannot write to the store")]
    Disk(#[from] io::Error),
}

/// A record cannot be read: what was kept is damaged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// It is not there any more, or its checksums do not fit.
    #[error("what was stored is damaged, and is not kept any longer")]
    Damaged,
    #[error("cannot read from the store")]
    Disk(#[from] io::Error),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct StoreCounts {
    pub(crate) evicted: Counter,
    pub(crate) evicted_bytes: Counter,
    pub(crate) damaged: Counter,
    pub(crate) compacted_bytes: Counter,
    /// How often a write found the disk full, and space was freed.
    pub(crate) disk_full: Counter,
    /// The moment of the last use of what was evicted last.
    pub(crate) evicted_moment: Arc<AtomicU64>,
}

/// The store. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    quota: u64,
    /// The quota, or what the disk has space for; changed under the lock of `room`.
    capacity: AtomicU64,
    /// How often space was freed on a full disk.
    made_room: AtomicU64,
    small: u64,
    index: Index,
    segments: RwLock<HashMap<u32, Arc<Segment>>>,
    lanes: Vec<Mutex<Lane>>,
    next_segment: Mutex<u32>,
    next_file: AtomicU64,
    sequence: AtomicU64,
    /// Bytes on disk, and those of them that the index knows.
    used: AtomicU64,
    alive: AtomicU64,
    /// Bytes of files that are not kept yet.
    unfinished: AtomicU64,
    room: Mutex<Lane>,
    full: Condvar,
    wanted: Mutex<bool>,
    counts: StoreCounts,
    /// Locked as long as the store is open.
    _lock: File,
}

use index::Index;

#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) key: Key,
    /// Bytes of the content, as opposed to those of its stored form.
    pub(crate) size: u64,
    /// Whether `bytes` is zstd.
    pub(crate) encoded: bool,
    pub(crate) bytes: Vec<Bytes>,
}

/// A content with what goes before and after it on disk.
#[derive(Debug)]
struct Prepared<'a> {
    head: Head,
    table: Vec<u8>,
    content: &'a Content,
}

impl Content {
    pub(crate) fn plain(key: Key, bytes: Bytes) -> Self {
        Self { key, size: bytes.len() as u64, encoded: false, bytes: vec![bytes] }
    }

    fn stored(&self) -> u64 {
        self.bytes.iter().map(|part| part.len() as u64).sum()
    }
}

impl Store {
    /// Opens the folder, and knows what is in it.
    pub(crate) fn open(options: &StoreOptions) -> Result<Self, StoreError> {
        let lanes = options.lanes.max(1);
        let segment_bytes = segment_bytes(options.quota, lanes);
        if segment_bytes < SMALLEST_SEGMENT {
            let least = SMALLEST_SEGMENT * 16 * (lanes as u64 + 1);
            return Err(StoreError::Quota { quota: options.quota, least, lanes });
        }
        let lock = recover::lock(&options.folder)?;
        let inner = Inner {
            folder: options.folder.clone(),
            quota: options.quota,
            capacity: AtomicU64::new(options.quota),
            made_room: AtomicU64::new(0),
            small: SMALL.min(segment_bytes / 8),
            index: Index::default(),
            segments: RwLock::default(),
            lanes: (0..lanes).map(|_| Mutex::default()).collect(),
            next_segment: Mutex::new(1),
            next_file: AtomicU64::new(1),
            sequence: AtomicU64::new(1),
            used: AtomicU64::new(0),
            alive: AtomicU64::new(0),
            unfinished: AtomicU64::new(0),
            room: Mutex::default(),
            full: Condvar::new(),
            wanted: Mutex::new(false),
            counts: StoreCounts::default(),
            _lock: lock,
        };
        recover::load(&inner)?;
        let store = Self(Arc::new(inner));
        // A smaller quota than before holds at once.
        store.make_room(0).map_err(|error| match error {
            PutError::Disk(source) | PutError::Full(source) => {
                StoreError::Folder { path: options.folder.clone(), source }
            }
            PutError::TooLarge { .. } | PutError::Unfinished => {
                StoreError::Quota { quota: options.quota, least: options.quota, lanes }
            }
        })?;
        store.0.measure();
        Ok(store)
    }

    /// A moment of use: taken once a request.
    pub(crate) fn moment(&self) -> u64 {
        self.0.index.moment()
    }

    /// What is stored under `key`, which is used now.
    pub(crate) fn get(&self, key: &Key, moment: u64) -> Option<Entry> {
        self.0.index.get(key, moment)
    }

    pub(crate) fn counts(&self) -> &StoreCounts {
        &self.0.counts
    }

    /// Bytes on disk, those of them in use, and the quota.
    pub(crate) fn bytes(&self) -> [u64; 3] {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        [load(&self.0.used), load(&self.0.alive), self.0.quota]
    }

    pub(crate) fn largest(&self) -> u64 {
        let limit = self.0.limit();
        limit / 8 * ALIVE_EIGHTHS - limit / 16
    }

    /// How many are kept, and bytes of memory of the index.
    pub(crate) fn entries(&self) -> (std::collections::BTreeMap<Kind, u64>, u64) {
        (self.0.index.count(), self.0.index.memory())
    }

    /// Whether contents of `stored` bytes are kept in segments.
    pub(crate) fn is_small(&self, stored: u64) -> bool {
        stored <= self.0.small
    }

    /// Stores a content under a name that says all of it: when it is there already, it stays.
    pub(crate) fn put(&self, lane: usize, content: &Content) -> Result<(), PutError> {
        self.put_all(lane, std::slice::from_ref(content))
    }

    /// Stores several at once, with one write for those that are small.
    pub(crate) fn put_all(&self, lane: usize, contents: &[Content]) -> Result<(), PutError> {
        let moment = self.moment();
        let mut small = Vec::with_capacity(contents.len());
        for content in contents {
            if content.key.kind == Kind::Blob && self.get(&content.key, moment).is_some() {
                continue;
            }
            let stored = content.stored();
            if self.is_small(stored) {
                small.push(self.0.prepare(content, stored));
                continue;
            }
            let mut spill = Spill::new(self, Some(stored))?;
            for part in &content.bytes {
                spill.write(std::slice::from_ref(part))?;
            }
            spill.keep(content.key, content.size, content.encoded)?;
        }
        // As many at once as fit into a segment.
        while !small.is_empty() {
            let mut bytes = 0;
            let fits = |record: &&Prepared<'_>| {
                bytes += record.head.record_bytes();
                bytes <= self.0.segment_bytes()
            };
            let count = small.iter().take_while(fits).count().max(1);
            let now: Vec<Prepared<'_>> = small.drain(..count).collect();
            self.append(lane, &now, moment)?;
        }
        Ok(())
    }

    fn append(&self, lane: usize, records: &[Prepared<'_>], moment: u64) -> Result<(), PutError> {
        let bytes: u64 = records.iter().map(|record| record.head.record_bytes()).sum();
        self.reserve(bytes)?;
        let inner = &self.0;
        let places = inner.written(bytes, || {
            let mut lane = inner.lanes[lane % inner.lanes.len()].lock();
            lane.append(inner, records)
        });
        let places = places.inspect_err(|_| {
            inner.used.fetch_sub(bytes, Ordering::Relaxed);
        })?;
        for (record, place) in records.iter().zip(places) {
            inner.enter(&record.head, place, moment);
        }
        Ok(())
    }

    /// Takes an entry out whose record is damaged, for good, unless it is gone, or another's place by now.
    pub(crate) fn drop_damaged(&self, key: &Key, entry: &Entry) {
        if self.0.index.remove(key, entry.place) {
            self.0.counts.damaged.add(1);
            tracing::warn!(hash = kendall_units::hex(&key.hash), "a damaged record was found");
            self.0.bury(entry);
        }
    }

    /// Has `bytes` counted as on disk, after freeing space for them.
    fn reserve(&self, bytes: u64) -> Result<(), PutError> {
        let used = self.0.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let limit = self.0.limit();
        if used > limit {
            if let Err(error) = self.make_room(bytes) {
                self.0.used.fetch_sub(bytes, Ordering::Relaxed);
                return Err(error);
            }
        } else if used > limit / 64 * 63 {
            // Soon: the housekeeper frees space before a write has to wait for it.
            *self.0.wanted.lock() = true;
            self.0.full.notify_one();
        }
        Ok(())
    }

    /// Evicts and moves until what is counted is within the limit.
    fn make_room(&self, needed: u64) -> Result<(), PutError> {
        if needed > self.largest() {
            return Err(PutError::TooLarge { size: needed });
        }
        let mut room = self.0.room.lock();
        self.0.make_room(&mut room, self.0.limit(), needed)
    }

    /// Frees space ahead of need, until `stopped` says so. To be run on a thread of its own.
    pub(crate) fn keep_house(&self, stopped: &dyn Fn() -> bool) {
        while !stopped() {
            let mut wanted = self.0.wanted.lock();
            self.0.full.wait_while_for(&mut wanted, |wanted| !*wanted, LOOK);
            let make = std::mem::take(&mut *wanted);
            drop(wanted);
            self.0.follow();
            if make {
                let mut room = self.0.room.lock();
                let made = self.0.make_room(&mut room, self.0.limit() / 32 * 31, 0);
                if let Err(error) = made {
                    tracing::warn!(%error, "cannot free space");
                }
            }
        }
    }

    /// Writes down what only memory knows, so that the next start is quick.
    pub(crate) fn close(&self) {
        for lane in &self.0.lanes {
            lane.lock().seal();
        }
    }
}

impl Inner {
    fn prepare<'a>(&self, content: &'a Content, stored: u64) -> Prepared<'a> {
        let mut sums = Checksums::new();
        for part in &content.bytes {
            sums.update(part);
        }
        let (checksum, table) = sums.finish();
        let head = Head {
            key: content.key,
            encoded: content.encoded,
            size: content.size,
            stored,
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            checksum,
        };
        Prepared { head, table, content }
    }

    /// Has the index know a record. Of two, a blob's first one stays, and a result's later one.
    fn enter(&self, head: &Head, place: Place, moment: u64) {
        let Head { key, encoded, size, stored, .. } = *head;
        let entry = Entry { place, size, stored, encoded };
        let dead = if key.kind == Kind::Blob {
            (!self.index.insert_new(&key, entry, moment)).then_some(entry)
        } else {
            self.index.insert(&key, entry, moment)
        };
        self.alive.fetch_add(head.record_bytes(), Ordering::Relaxed);
        if let Some(dead) = dead {
            self.bury(&dead);
        }
    }

    /// Counts a record as dead that the index does not know any longer.
    fn died(&self, entry: &Entry) {
        let bytes = record_bytes(entry.stored);
        self.alive.fetch_sub(bytes, Ordering::Relaxed);
        match entry.place {
            Place::Segment { segment, .. } => {
                if let Some(segment) = self.segment(segment) {
                    segment.live.fetch_sub(bytes, Ordering::Relaxed);
                }
            }
            Place::File { number } => {
                let path = self.file_path(number);
                match std::fs::remove_file(&path) {
                    Ok(()) => {
                        self.used.fetch_sub(bytes, Ordering::Relaxed);
                    }
                    Err(error) => tracing::warn!(%error, ?path, "cannot remove a file"),
                }
            }
        }
    }

    /// Counts a record as dead that must not come back at the next start either.
    fn bury(&self, entry: &Entry) {
        if let Place::Segment { segment, offset } = entry.place
            && let Some(segment) = self.segment(segment)
            && let Err(error) = segment.kill(offset)
        {
            tracing::warn!(%error, "a record that was replaced may come back");
        }
        self.died(entry);
    }

    fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        self.segments.read().get(&number).cloned()
    }

    fn file_path(&self, number: u64) -> PathBuf {
        self.folder.join("files").join(format!("{number:016x}"))
    }

    fn segment_path(&self, number: u32) -> PathBuf {
        segment::path(&self.folder, number)
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn make_room(&self, lane: &mut Lane, limit: u64, needed: u64) -> Result<(), PutError> {
        let used = || self.used.load(Ordering::Relaxed);
        while used() > limit {
            // What is needed is counted as used, but is not alive yet.
            let alive = (limit / 8 * ALIVE_EIGHTHS).saturating_sub(needed);
            while self.alive.load(Ordering::Relaxed) > alive && self.evict() {}
            let mut emptiest = None;
            for segment in self.sealed() {
                let live = segment.live.load(Ordering::Relaxed);
                if live == 0 {
                    self.remove(&segment);
                } else if emptiest.as_ref().is_none_or(|(least, _)| live < *least) {
                    emptiest = Some((live, segment));
                }
            }
            if used() <= limit {
                break;
            }
            match emptiest {
                Some((live, segment)) if live < segment.bytes() => {
                    let moved = self.empty(&segment, lane)?;
                    self.counts.compacted_bytes.add(moved);
                    self.remove(&segment);
                }
                // Nothing is sealed, or all of it is in use: only eviction helps.
                _ if self.evict() => {}
                _ => return Err(PutError::TooLarge { size: needed }),
            }
        }
        Ok(())
    }

    fn evict(&self) -> bool {
        let Some((_, entry, used)) = self.index.evict() else { return false };
        self.counts.evicted.add(1);
        self.counts.evicted_bytes.add(record_bytes(entry.stored));
        self.counts.evicted_moment.store(used, Ordering::Relaxed);
        self.died(&entry);
        true
    }

    fn sealed(&self) -> Vec<Arc<Segment>> {
        let segments = self.segments.read();
        segments.values().filter(|segment| segment.is_sealed()).cloned().collect()
    }

    /// Removes a segment of which nothing is alive. Who reads from it still can.
    fn remove(&self, segment: &Segment) {
        let gone = {
            let mut segments = self.segments.write();
            segments.remove(&segment.number).is_some()
        };
        if gone {
            let freed = segment.delete(&self.folder);
            self.used.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Moves what is alive in a segment to `lane`; returns how many bytes that was.
    fn empty(&self, segment: &Segment, lane: &mut Lane) -> Result<u64, PutError> {
        let mut moved = 0;
        for (head, offset) in segment.heads(self.folder())? {
            let from = Place::Segment { segment: segment.number, offset };
            let alive = self.index.peek(&head.key).is_some_and(|entry| entry.place == from);
            if !alive {
                continue;
            }
            let bytes = head.record_bytes();
            let whole = usize::try_from(bytes).unwrap_or(usize::MAX);
            let record = record::read_at(&segment.file, u64::from(offset), whole)?;
            // What is damaged is not taken along.
            let sound = reader::verify(&record).is_some_and(|(found, _)| found == head);
            let old = Entry { place: from, size: head.size, stored: head.stored, encoded: false };
            if !sound {
                self.counts.damaged.add(1);
                if self.index.remove(&head.key, from) {
                    self.died(&old);
                }
                continue;
            }
            let to = match lane.append_raw(self, &record) {
                // There is no space to move it to: it goes, and leaves some for others.
                Err(error) if is_full(&error) => {
                    if self.index.remove(&head.key, from) {
                        self.counts.evicted.add(1);
                        self.counts.evicted_bytes.add(bytes);
                        self.died(&old);
                    }
                    continue;
                }
                to => to?,
            };
            self.used.fetch_add(bytes, Ordering::Relaxed);
            self.alive.fetch_add(bytes, Ordering::Relaxed);
            if self.index.moved(&head.key, from, to) {
                self.died(&old);
                moved += bytes;
            } else {
                // It was evicted or replaced meanwhile.
                self.bury(&Entry { place: to, ..old });
            }
        }
        Ok(moved)
    }
}

/// Removes what an aborted write left; whether it was there does not matter.
fn discard(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, ?path, "cannot remove a file");
    }
}

/// A head fits into the smallest segment.
const _: () = assert!((HEAD as u64) < SMALLEST_SEGMENT);

#[cfg(test)]
mod tests;
