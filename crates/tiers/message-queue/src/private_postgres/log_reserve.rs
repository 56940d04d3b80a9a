//! A file in the folder of PostgreSQL's write-ahead log (`pg_wal`) that keeps disk space for the log.
//!
//! PostgreSQL ends when it cannot extend its log. So the file is deleted before the disk is full: receives and
//! deletes go on in the space that this frees, and sends are refused until there is space for the file again.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::user::{User, no_links};

const FILE: &str = "kendall-reserve";
/// PostgreSQL extends its log by a segment of this size.
const SEGMENT: u64 = 16 << 20;
/// Size of the file: an eighth of the disk, one to eight segments. Receives of long messages write as much log as
/// there is data, until a checkpoint has ended.
const SHARE: u64 = 8;
const MOST_SEGMENTS: u64 = 8;
/// Above what the file takes and what must stay free, before the file is created again: for some messages, so that it is
/// not deleted at once. Where it is deleted soon, the next checkpoint gives back what the log took.
const MARGIN: u64 = 4 << 20;

/// The file, and whether it was given up.
#[derive(Debug)]
pub(super) struct LogReserve {
    path: PathBuf,
    user: User,
    state: State,
    /// Sends are refused.
    nearly_full: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There was never space for the file.
    NoRoom,
    Held,
    Released,
}

impl LogReserve {
    pub(super) fn new(data: &Path, user: User, nearly_full: Arc<AtomicBool>) -> Self {
        Self { path: data.join("pg_wal").join(FILE), user, state: State::NoRoom, nearly_full }
    }

    /// Deletes the file where the disk is nearly full, and creates it where there is space.
    pub(super) fn check(&mut self) {
        let Some(folder) = self.path.parent() else { return };
        let Ok(disk) = statvfs(folder) else { return };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let size = size(disk.f_blocks.saturating_mul(disk.f_frsize));
        let low = (size / 2).clamp(SEGMENT, 2 * SEGMENT);
        if self.state == State::NoRoom && self.allocated() >= size {
            self.state = State::Held;
        }
        if free < low && self.state != State::Released {
            self.release(free);
        } else if free >= low + size + MARGIN && self.state != State::Held {
            match self.create(size) {
                Ok(()) => self.hold(),
                Err(error) => tracing::debug!(%error, "no space can be reserved for the log"),
            }
        }
    }

    fn release(&mut self, free: u64) {
        // First, so that no send takes what this frees.
        self.nearly_full.store(true, Ordering::Relaxed);
        self.state = State::Released;
        let deleted = fs::remove_file(&self.path).is_ok();
        tracing::warn!(
            free_kib = free >> 10,
            reserve_deleted = deleted,
            path = %self.path.display(),
            "the disk of PostgreSQL's log is nearly full: sends are refused until there is space"
        );
    }

    fn hold(&mut self) {
        self.state = State::Held;
        if self.nearly_full.swap(false, Ordering::Relaxed) {
            tracing::info!("the disk of PostgreSQL's log has space again: sends are accepted");
        }
    }

    /// Bytes that the file takes on the disk.
    fn allocated(&self) -> u64 {
        fs::symlink_metadata(&self.path).map_or(0, |about| about.blocks() * 512)
    }

    fn create(&self, size: u64) -> io::Result<()> {
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(no_links())
            .open(&self.path)?;
        let created = fallocate(&file, FallocateFlags::empty(), 0, size).map_err(io::Error::from);
        let owned = created.and_then(|()| match self.user.switch {
            Some((uid, gid)) => fchown(&file, Some(uid), Some(gid)),
            None => Ok(()),
        });
        if owned.is_err() {
            fs::remove_file(&self.path)?;
        }
        owned
    }
}

/// Size of the file on a disk of so many bytes.
fn size(disk: u64) -> u64 {
    (disk / SHARE / SEGMENT).clamp(1, MOST_SEGMENTS) * SEGMENT
}
