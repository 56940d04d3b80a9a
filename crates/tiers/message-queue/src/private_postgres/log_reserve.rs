//! A file in the folder of PostgreSQL's write-ahead log (`pg_wal`) that keeps disk space for the log.
//!
//! PostgreSQL ends when it cannot extend its log. So the file is emptied before the disk is full: receives and
//! deletes go on in the space that this frees, and sends are refused until there is space for the file again. Who
//! writes meanwhile waits for a checkpoint where the log is long ([`LogRoom`]): each page that it touches after one is
//! written to the log whole, so that a receive or a vacuum writes as much log as the messages have bytes.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use kendall_tier::Clock;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::user::{User, no_links};

const FILE: &str = "kendall-reserve";
/// PostgreSQL extends its log by a segment of this size.
const SEGMENT: u64 = 16 << 20;
/// Size of the file: an eighth of the disk, one to eight segments.
const SHARE: u64 = 8;
const MOST_SEGMENTS: u64 = 8;
/// Above what the file takes and what must stay free, before the file is created again: for some messages, so that it is
/// not deleted at once. Where it is deleted soon, the next checkpoint gives back what the log took.
const MARGIN: u64 = 4 << 20;

/// The log since the last checkpoint may have this share of the reserve (a quarter); above it, writers wait for the next
/// checkpoint. The rest is for the log written during that checkpoint, and for whole segments.
const LOG_SHARE: u64 = 4;

/// Time between two lines of the log about the disk.
const QUIET_NS: u64 = 60_000_000_000;

/// The file, and whether it was given up.
#[derive(Debug)]
pub(super) struct LogReserve {
    path: PathBuf,
    user: User,
    state: State,
    room: Arc<LogRoom>,
    /// Whether the file could be emptied when it was given up.
    emptied: bool,
    told: Told,
}

/// What the log was told of the disk: receives may free what sends fill again, every few seconds.
#[derive(Debug, Default)]
struct Told {
    full: bool,
    at_ns: Option<u64>,
    was_full: bool,
    /// How often the disk became full since then.
    times: u64,
}

impl Told {
    /// How often the disk became full, where the log is to be told now.
    fn again(&mut self, is_full: bool, now_ns: u64) -> Option<u64> {
        self.times += u64::from(is_full && !self.was_full);
        self.was_full = is_full;
        let is_new = is_full != self.full || self.times > 0;
        let is_due = self.at_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= QUIET_NS);
        (is_new && is_due).then(|| {
            (self.full, self.at_ns) = (is_full, Some(now_ns));
            std::mem::take(&mut self.times)
        })
    }
}

/// What the disk of the log has left.
#[derive(Debug, Default)]
pub(crate) struct LogRoom {
    folder: PathBuf,
    /// See [`Self::log_bytes`]; 0 where there is space.
    log_bytes: AtomicI64,
}

impl LogRoom {
    pub(super) fn new(data: &Path) -> Self {
        Self { folder: data.join("pg_wal"), log_bytes: AtomicI64::new(0) }
    }

    /// Most bytes of log since the last checkpoint, above which writers wait for the next. `None` unless the disk is
    /// nearly full; then sends are refused, too.
    pub(crate) fn log_bytes(&self) -> Option<i64> {
        Some(self.log_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Whether more than half of the reserve is taken: only what frees space is done.
    pub(crate) fn is_tight(&self) -> bool {
        let half = self.log_bytes().and_then(|bytes| u64::try_from(bytes).ok());
        half.zip(disk(&self.folder)).is_some_and(|(bytes, (free, _))| free < bytes * LOG_SHARE / 2)
    }

    fn set(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).expect("a few segments");
        self.log_bytes.store(bytes, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There was never space for the file.
    NoRoom,
    Held,
    Released,
}

impl LogReserve {
    pub(super) fn new(user: User, room: Arc<LogRoom>) -> Self {
        let (path, told) = (room.folder.join(FILE), Told::default());
        Self { path, user, state: State::NoRoom, room, emptied: false, told }
    }

    /// Empties the file where the disk is nearly full, and fills it where there is space.
    pub(super) fn check(&mut self) {
        let Some((free, total)) = disk(&self.room.folder) else { return };
        self.adapt(free, total);
        let is_full = self.state == State::Released;
        let Some(times) = self.told.again(is_full, Clock::monotonic().now_ns()) else { return };
        if is_full {
            tracing::warn!(
                free_kib = free >> 10,
                reserve_released = self.emptied,
                path = %self.path.display(),
                times,
                "the disk of PostgreSQL's log is nearly full: sends are refused until there is space"
            );
        } else {
            tracing::info!(
                times,
                "the disk of PostgreSQL's log has space again: sends are accepted"
            );
        }
    }

    fn adapt(&mut self, free: u64, total: u64) {
        let size = size(total);
        let low = (size / 2).clamp(SEGMENT, 2 * SEGMENT);
        if self.state == State::NoRoom {
            match fs::symlink_metadata(&self.path).map(|about| about.blocks() * 512) {
                Ok(allocated) if allocated >= size => self.state = State::Held,
                // An earlier process gave it up, and there was no space since then.
                Ok(0) => self.release(size),
                _ => {}
            }
        }
        if free < low && self.state != State::Released {
            self.release(size);
        } else if free >= low + size + MARGIN && self.state != State::Held {
            match self.create(size) {
                Ok(()) => self.hold(State::Held),
                // A file system that reserves none.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    self.hold(State::NoRoom);
                    fs::remove_file(&self.path).unwrap_or_default();
                }
                Err(error) => tracing::debug!(%error, "no space can be reserved for the log"),
            }
        }
    }

    fn release(&mut self, size: u64) {
        // First, so that no send takes what this frees.
        self.room.set(size / LOG_SHARE);
        self.state = State::Released;
        // An empty file tells the next start.
        self.emptied = self.open().is_ok();
    }

    fn hold(&mut self, state: State) {
        self.state = state;
        self.room.set(0);
    }

    /// The file, empty.
    fn open(&self) -> io::Result<fs::File> {
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(no_links())
            .open(&self.path)
    }

    fn create(&self, size: u64) -> io::Result<()> {
        let file = self.open()?;
        let created = fallocate(&file, FallocateFlags::empty(), 0, size).map_err(io::Error::from);
        let owned = created.and_then(|()| match self.user.switch {
            Some((uid, gid)) => fchown(&file, Some(uid), Some(gid)),
            None => Ok(()),
        });
        if owned.is_err() && self.state == State::Released {
            self.open()?;
        } else if owned.is_err() {
            fs::remove_file(&self.path)?;
        }
        owned
    }
}

/// Free bytes of a folder's disk, and all of them.
fn disk(folder: &Path) -> Option<(u64, u64)> {
    let about = statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(about.f_frsize);
    Some((bytes(about.f_bavail), bytes(about.f_blocks)))
}

/// Size of the file on a disk of so many bytes.
fn size(disk: u64) -> u64 {
    (disk / SHARE / SEGMENT).clamp(1, MOST_SEGMENTS) * SEGMENT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Full every four seconds, and with space again two seconds later.
    #[test]
    fn a_disk_that_swings_about_its_mark_is_logged_once_a_minute_and_its_last_state_always() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut told = Told::default();
        let mut lines = Vec::new();
        for second in 0..300 {
            let is_full = second < 130 && second % 4 < 2;
            let times = told.again(is_full, second * SECOND_NS);
            lines.extend(times.map(|times| (second, is_full, times)));
        }
        // 60 and 120 begin a swing themselves.
        assert_eq!(lines, [(0, true, 1), (60, true, 15), (120, true, 15), (180, false, 2)]);
        assert_eq!(Told::default().again(false, 0), None, "of a disk with space nothing is said");
    }
}
