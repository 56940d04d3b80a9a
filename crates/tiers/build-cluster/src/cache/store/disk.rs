//! A disk that holds less than the quota, since others filled it, say.
//!
//! What the store finds space for takes the place of the quota then: the same shares of it stay free, and the least
//! recently used go as they do at the quota. It is measured at the start; less of it is known from a write that fails,
//! and more of it from the file system, once a second.

use std::io;
use std::sync::atomic::Ordering;

use super::{Inner, PutError, SEGMENT_BYTES, SMALLEST_SEGMENT};

/// How often a write is tried that finds the disk full, each time after space was freed.
const TRIES: usize = 8;

/// Bytes of a segment, of which many fit: one is open for each lane, and one is being moved to.
pub(super) fn segment_bytes(capacity: u64, lanes: usize) -> u64 {
    (capacity / (16 * (lanes as u64 + 1))).min(SEGMENT_BYTES)
}

/// Whether a write failed because the disk, or its user's share of it, is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Inner {
    /// Most bytes on disk, without the space that moving and sealing need. What is being moved is there twice for a
    /// while; and when a segment is sealed, the heads of its records come to it, which are as long as it is where
    /// contents are empty.
    pub(super) fn limit(&self) -> u64 {
        let spare = self.segment_bytes() * (self.lanes.len() as u64 + 2);
        self.capacity.load(Ordering::Relaxed).saturating_sub(spare)
    }

    /// Bytes of a new segment.
    pub(super) fn segment_bytes(&self) -> u64 {
        let bytes = segment_bytes(self.capacity.load(Ordering::Relaxed), self.lanes.len());
        bytes.max(self.small).max(SMALLEST_SEGMENT)
    }

    /// Bytes of the quota that the disk holds. Where the file system does not tell, a write that fails will.
    fn held_by_disk(&self) -> u64 {
        let free = match rustix::fs::statvfs(&self.folder) {
            Ok(disk) if disk.f_blocks > 0 => disk.f_bavail.saturating_mul(disk.f_frsize),
            _ => u64::MAX,
        };
        self.used.load(Ordering::Relaxed).saturating_add(free).min(self.quota)
    }

    /// Finds out at the start what the disk holds. What is there already stays until something is to be written.
    pub(super) fn measure(&self) {
        let capacity = self.held_by_disk();
        if capacity < self.quota {
            tracing::warn!(capacity, quota = self.quota, "the disk holds less than the quota");
            self.capacity.store(capacity, Ordering::Relaxed);
        }
    }

    /// Uses more of a disk that has space again.
    pub(super) fn follow(&self) {
        if self.capacity.load(Ordering::Relaxed) == self.quota {
            return;
        }
        let _room = self.room.lock();
        let capacity = self.held_by_disk();
        self.capacity.fetch_max(capacity, Ordering::Relaxed);
        if capacity == self.quota {
            tracing::info!(quota = self.quota, "the disk has space for the quota again");
        }
    }

    /// The result of a write of `bytes` bytes, which are counted already. While the disk is full, space is freed and it is
    /// tried again.
    pub(super) fn written<T>(
        &self,
        bytes: u64,
        mut write: impl FnMut() -> io::Result<T>,
    ) -> Result<T, PutError> {
        for _ in 1..TRIES {
            let made = self.made_room.load(Ordering::Acquire);
            match write() {
                Err(error) if is_full(&error) => self.give_way(bytes, made, error)?,
                other => return Ok(other?),
            }
        }
        write().map_err(|error| if is_full(&error) { PutError::Full(error) } else { error.into() })
    }

    /// Frees space on a full disk, of which `counted` bytes are not taken yet.
    fn give_way(&self, counted: u64, made: u64, full: io::Error) -> Result<(), PutError> {
        let mut room = self.room.lock();
        if self.made_room.load(Ordering::Acquire) != made {
            // Another write found the same, and freed space for both.
            return Ok(());
        }
        self.counts.disk_full.add(1);
        let used = self.used.load(Ordering::Relaxed);
        let there = used.saturating_sub(counted);
        if self.capacity.fetch_min(there, Ordering::Relaxed) == self.quota {
            tracing::warn!(bytes = there, "the disk is full: the least recently used are evicted");
        }
        // Segments that are open cannot go, and these were begun when there was more space.
        let most = self.segment_bytes();
        for lane in &self.lanes {
            lane.lock().seal_beyond(most, &self.used);
        }
        room.seal_beyond(most, &self.used);
        let result = self.make_room(&mut room, self.limit(), counted);
        self.made_room.fetch_add(1, Ordering::Release);
        match result {
            // What went may be enough for this write.
            Err(_) if self.used.load(Ordering::Relaxed) < used => Ok(()),
            Err(PutError::TooLarge { .. }) => Err(PutError::Full(full)),
            other => other,
        }
    }
}
