//! What is kept, and where: a table in memory, 80 bytes a blob and the table's own few, in order of
//! use.
//!
//! Sixteen parts, each behind its own lock, so that threads seldom wait for each other. Each part
//! keeps its blobs in order of use; the least recently used of all is the oldest of sixteen.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};

use crate::digest::{Digest, Function, HASH_BYTES};

const PARTS: usize = 16;
/// Slots that are made at once: a vector that doubles would hold three times its content.
const PIECE: usize = 1024;
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A blob, named by its content.
    Blob,
    /// The result of an action, named by the action and the instance.
    Result,
    /// What a remote asset was pushed or fetched as, named by its URIs and qualifiers.
    Asset,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Blob, Self::Result, Self::Asset];
}

/// Name of what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) function: Function,
    pub(crate) hash: [u8; HASH_BYTES],
}

impl Key {
    pub(crate) fn blob(digest: &Digest) -> Self {
        Self { kind: Kind::Blob, function: digest.function, hash: digest.hash }
    }
}

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a segment, from this byte on.
    Segment { segment: u32, offset: u32 },
    /// In a file of its own.
    File { number: u64 },
}

/// What the table says of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    /// Bytes of the content.
    pub(crate) size: u64,
    /// Bytes as stored: fewer when it is compressed.
    pub(crate) stored: u64,
    /// Whether it is stored as zstd.
    pub(crate) encoded: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    key: Key,
    encoded: bool,
    previous: u32,
    next: u32,
    size: u64,
    stored: u64,
    /// Segment and offset, or the number of a file with the highest bit set.
    place: u64,
    /// When it was used last, in requests.
    used: u64,
}

const FILE: u64 = 1 << 63;

impl Slot {
    fn entry(&self) -> Entry {
        Entry {
            place: unpack(self.place),
            size: self.size,
            stored: self.stored,
            encoded: self.encoded,
        }
    }
}

fn pack(place: Place) -> u64 {
    match place {
        Place::Segment { segment, offset } => u64::from(segment) << 32 | u64::from(offset),
        Place::File { number } => FILE | number,
    }
}

fn unpack(place: u64) -> Place {
    if place & FILE != 0 {
        return Place::File { number: place & !FILE };
    }
    let low = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    Place::Segment { segment: low(place >> 32), offset: low(place) }
}

#[derive(Debug)]
pub(crate) struct Index {
    parts: Vec<Mutex<Part>>,
    seeds: [u64; 2],
    now: AtomicU64,
}

struct Part {
    table: HashTable<u32>,
    slots: Vec<Box<[Slot]>>,
    filled: u32,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Part({})", self.table.len())
    }
}

impl Default for Index {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            parts: (0..PARTS).map(|_| Mutex::new(Part::new())).collect(),
            seeds: [random.hash_one(1_u8), random.hash_one(2_u8) | 1],
            now: AtomicU64::new(1),
        }
    }
}

impl Index {
    /// A moment of use: taken once a request.
    pub(crate) fn moment(&self) -> u64 {
        self.now.fetch_add(1, Ordering::Relaxed)
    }

    /// The entry of `key`, which is used now.
    pub(crate) fn get(&self, key: &Key, moment: u64) -> Option<Entry> {
        let (mut part, hash) = self.part(key);
        let slot = part.find(hash, key)?;
        part.touch(slot, moment);
        Some(part.slot(slot).entry())
    }

    /// The entry of `key`, without using it.
    pub(crate) fn peek(&self, key: &Key) -> Option<Entry> {
        let (part, hash) = self.part(key);
        part.find(hash, key).map(|slot| part.slot(slot).entry())
    }

    /// Puts an entry in, and returns what was there before.
    pub(crate) fn insert(&self, key: &Key, entry: Entry, moment: u64) -> Option<Entry> {
        let (mut part, hash) = self.part(key);
        if let Some(slot) = part.find(hash, key) {
            let before = part.slot(slot).entry();
            let kept = part.slot_mut(slot);
            (kept.place, kept.size) = (pack(entry.place), entry.size);
            (kept.stored, kept.encoded) = (entry.stored, entry.encoded);
            part.touch(slot, moment);
            return Some(before);
        }
        part.add(hash, key, entry, moment, |key| self.hash(key));
        None
    }

    /// Puts an entry in where none is; says whether it did.
    pub(crate) fn insert_new(&self, key: &Key, entry: Entry, moment: u64) -> bool {
        let (mut part, hash) = self.part(key);
        if let Some(slot) = part.find(hash, key) {
            part.touch(slot, moment);
            return false;
        }
        part.add(hash, key, entry, moment, |key| self.hash(key));
        true
    }

    /// Notes that a record moved; says whether it was still there.
    pub(crate) fn moved(&self, key: &Key, from: Place, to: Place) -> bool {
        let (mut part, hash) = self.part(key);
        let Some(slot) = part.find(hash, key) else { return false };
        let slot = part.slot_mut(slot);
        let there = slot.place == pack(from);
        if there {
            slot.place = pack(to);
        }
        there
    }

    /// Takes an entry out if it still lies at `place`; says whether it did.
    pub(crate) fn remove(&self, key: &Key, place: Place) -> bool {
        let (mut part, hash) = self.part(key);
        match part.find(hash, key) {
            Some(slot) if part.slot(slot).place == pack(place) => {
                part.remove(slot, hash);
                true
            }
            _ => false,
        }
    }

    /// Takes out the least recently used entry; returns it, and when it was used.
    pub(crate) fn evict(&self) -> Option<(Key, Entry, u64)> {
        let oldest = (0..PARTS)
            .filter_map(|index| {
                let part = self.lock(index);
                (part.oldest != NONE).then(|| (part.slot(part.oldest).used, index))
            })
            .min()?;
        let mut part = self.lock(oldest.1);
        let slot = part.oldest;
        if slot == NONE {
            return None;
        }
        let evicted = *part.slot(slot);
        let hash = self.hash(&evicted.key);
        part.remove(slot, hash);
        Some((evicted.key, evicted.entry(), evicted.used))
    }

    pub(crate) fn count(&self) -> BTreeMap<Kind, u64> {
        let mut counts = BTreeMap::from(Kind::ALL.map(|kind| (kind, 0)));
        for index in 0..PARTS {
            let part = self.lock(index);
            for slot in &part.table {
                *counts.entry(part.slot(*slot).key.kind).or_default() += 1;
            }
        }
        counts
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        (0..PARTS).map(|index| self.lock(index).table.len() as u64).sum()
    }

    /// Bytes that the table itself takes.
    pub(crate) fn memory(&self) -> u64 {
        (0..PARTS)
            .map(|index| {
                let part = self.lock(index);
                let slots = part.slots.len() * PIECE * size_of::<Slot>();
                (slots + part.table.allocation_size() + part.free.capacity() * 4) as u64
            })
            .sum()
    }

    fn part(&self, key: &Key) -> (MutexGuard<'_, Part>, u64) {
        let hash = self.hash(key);
        (self.lock((hash >> 32) as usize % PARTS), hash)
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, Part> {
        self.parts[index].lock()
    }

    /// Seeded: a client chooses the names of results, and must not be able to choose their bucket.
    fn hash(&self, key: &Key) -> u64 {
        let mut state = self.seeds[0] ^ (key.kind as u64) << 8 ^ key.function as u64;
        for word in key.hash.chunks_exact(8) {
            let word = word.try_into().map_or(0, u64::from_le_bytes);
            state = fold(state ^ word, self.seeds[1]);
        }
        state
    }
}

/// Both halves of a product, one upon the other.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    let low = product as u64;
    let high = (product >> 64) as u64;
    low ^ high
}

impl Part {
    fn new() -> Self {
        Self {
            table: HashTable::new(),
            slots: Vec::new(),
            filled: 0,
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize / PIECE][index as usize % PIECE]
    }

    fn slot_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize / PIECE][index as usize % PIECE]
    }

    fn find(&self, hash: u64, key: &Key) -> Option<u32> {
        self.table.find(hash, |slot| self.slot(*slot).key == *key).copied()
    }

    fn add(
        &mut self,
        hash: u64,
        key: &Key,
        entry: Entry,
        moment: u64,
        rehash: impl Fn(&Key) -> u64,
    ) {
        let slot = Slot {
            key: *key,
            encoded: entry.encoded,
            previous: NONE,
            next: NONE,
            size: entry.size,
            stored: entry.stored,
            place: pack(entry.place),
            used: moment,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.filled;
            assert!(index < NONE, "a part holds four billion entries at most");
            if index as usize / PIECE == self.slots.len() {
                self.slots.push(vec![slot; PIECE].into_boxed_slice());
            }
            self.filled += 1;
            index
        });
        *self.slot_mut(index) = slot;
        let slots = &self.slots;
        self.table.insert_unique(hash, index, |slot| {
            rehash(&slots[*slot as usize / PIECE][*slot as usize % PIECE].key)
        });
        self.link(index);
    }

    fn remove(&mut self, index: u32, hash: u64) {
        self.unlink(index);
        if let Ok(found) = self.table.find_entry(hash, |slot| *slot == index) {
            found.remove();
        }
        self.free.push(index);
    }

    fn touch(&mut self, index: u32, moment: u64) {
        self.slot_mut(index).used = moment;
        if self.newest != index {
            self.unlink(index);
            self.link(index);
        }
    }

    fn link(&mut self, index: u32) {
        let newest = self.newest;
        let slot = self.slot_mut(index);
        (slot.previous, slot.next) = (newest, NONE);
        if newest == NONE {
            self.oldest = index;
        } else {
            self.slot_mut(newest).next = index;
        }
        self.newest = index;
    }

    fn unlink(&mut self, index: u32) {
        let Slot { previous, next, .. } = *self.slot(index);
        match previous {
            NONE => self.oldest = next,
            previous => self.slot_mut(previous).next = next,
        }
        match next {
            NONE => self.newest = previous,
            next => self.slot_mut(next).previous = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Key {
        let hash = Function::Blake3.hash(&number.to_le_bytes());
        Key { kind: Kind::Blob, function: Function::Sha256, hash }
    }

    fn entry(number: u32) -> Entry {
        let place = Place::Segment { segment: 3, offset: number };
        Entry { place, size: 10, stored: 10, encoded: false }
    }

    #[test]
    fn the_least_recently_used_goes_first_over_all_parts() {
        let index = Index::default();
        for number in 0..1000 {
            assert!(index.insert_new(&key(number), entry(number), index.moment()));
        }
        assert!(!index.insert_new(&key(0), entry(7), index.moment()), "it is there, and used");
        assert_eq!(index.get(&key(1), index.moment()).unwrap(), entry(1));
        let order: Vec<Entry> =
            std::iter::from_fn(|| index.evict().map(|evicted| evicted.1)).collect();
        let expected: Vec<Entry> = (2..1000).chain([0, 1]).map(entry).collect();
        assert_eq!(order, expected);
        assert_eq!(index.len(), 0);
    }

    #[test]
    fn what_moved_or_was_replaced_is_not_taken_out_at_its_old_place() {
        let index = Index::default();
        index.insert(&key(1), entry(1), 1);
        let file = Place::File { number: 77 };
        assert!(index.moved(&key(1), entry(1).place, file));
        assert!(!index.moved(&key(1), entry(1).place, file));
        assert!(!index.remove(&key(1), entry(1).place));
        assert_eq!(index.peek(&key(1)).unwrap().place, file);
        assert_eq!(index.insert(&key(1), entry(2), 2).unwrap().place, file);
        assert!(index.remove(&key(1), entry(2).place));
        assert_eq!(index.peek(&key(1)), None);
    }

    /// The bound is what `docs/build-cluster.md` promises.
    #[test]
    fn a_million_entries_take_less_than_128_bytes_each() {
        let index = Index::default();
        for number in 0..1_000_000_u32 {
            let mut key = key(0);
            key.hash[..4].copy_from_slice(&number.to_le_bytes());
            index.insert_new(&key, entry(number), u64::from(number));
        }
        assert!(index.memory() < 128 * 1_000_000, "{}", index.memory());
    }
}
