//! How much of the worker's disk a running action takes: its folders are looked through again and again.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kendall_tier::Clock;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

/// How often an action's folders are looked through.
const LOOK: Duration = Duration::from_millis(100);
/// A look takes no more than one part of so many of the time of a core.
const SHARE: u32 = 10;
/// Folders below each other that are looked into: each takes a descriptor.
const DEPTH: usize = 256;
/// The least that an entry counts: its own record and its name take space too, where it is empty.
const ENTRY: u64 = 4096;

/// The folders that an action writes to.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub folders: Vec<PathBuf>,
    /// Who owns what the action wrote, where its inputs are another's.
    pub owner: Option<u32>,
    pub most: u64,
}

impl Disk {
    /// Returns when there is more in the folders than may be. Looks no longer when it is dropped.
    pub(super) async fn fills(self, clock: Clock) {
        let going = Going(Arc::new(AtomicBool::new(true)));
        let mut wait = LOOK;
        loop {
            kendall_tier::serve::pause(wait).await;
            let (disk, goes, began) = (self.clone(), Arc::clone(&going.0), clock.now_ns());
            let look = move || disk.used(&|| goes.load(Ordering::Relaxed));
            let used = tokio::task::spawn_blocking(look).await.unwrap_or(0);
            if used > self.most {
                return;
            }
            let took = Duration::from_nanos(clock.now_ns().saturating_sub(began));
            wait = LOOK.max(took * SHARE);
        }
    }

    /// Bytes on the disk, up to a little more than may be. What cannot be looked at, since the action is changing or
    /// has locked it, is nothing.
    fn used(&self, goes: &dyn Fn() -> bool) -> u64 {
        let mut look = Look { disk: self, goes, used: 0, twice: HashSet::new() };
        for folder in &self.folders {
            if let Ok(folder) = rustix::fs::open(folder, FOLDER, Mode::empty()) {
                look.folder(&folder, 0);
            }
        }
        look.used
    }
}

struct Going(Arc<AtomicBool>);

impl Drop for Going {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

struct Look<'a> {
    disk: &'a Disk,
    goes: &'a dyn Fn() -> bool,
    used: u64,
    /// Files with several names that were counted.
    twice: HashSet<(u64, u64)>,
}

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Look<'_> {
    fn folder(&mut self, folder: &OwnedFd, depth: usize) {
        let Ok(entries) = Dir::read_from(folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if self.used > self.disk.most || !(self.goes)() {
                return;
            }
            let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
            let Ok(stat) = stat else { continue };
            self.count(&stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                && depth < DEPTH
                && let Ok(inner) = rustix::fs::openat(folder, name, FOLDER, Mode::empty())
            {
                self.folder(&inner, depth + 1);
            }
        }
    }

    fn count(&mut self, stat: &Stat) {
        let is_its_own = self.disk.owner.is_none_or(|owner| owner == stat.st_uid);
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let is_new =
            is_folder || stat.st_nlink < 2 || self.twice.insert((stat.st_dev, stat.st_ino));
        if is_its_own && is_new {
            // The kernel counts in blocks of 512 bytes, whatever those of the disk are.
            let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
            self.used = self.used.saturating_add(bytes.max(ENTRY));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_action_wrote_is_counted_once_and_its_inputs_are_not() {
        let base = tempfile::tempdir().unwrap();
        let (build, tmp) = (base.path().join("build"), base.path().join("tmp"));
        std::fs::create_dir_all(build.join("a/b")).unwrap();
        std::fs::create_dir(&tmp).unwrap();
        std::fs::write(build.join("a/b/large"), vec![1; 1 << 20]).unwrap();
        std::fs::hard_link(build.join("a/b/large"), tmp.join("same")).unwrap();
        std::fs::write(tmp.join("empty"), "").unwrap();
        // Neither what a link names nor what a file leaves out is on this disk.
        std::os::unix::fs::symlink("/usr", tmp.join("link")).unwrap();
        std::fs::File::create(tmp.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        let own = Some(rustix::process::getuid().as_raw());
        let disk = Disk { folders: vec![build, tmp], owner: own, most: 1 << 30 };
        let used = disk.used(&|| true);
        // The file, and at least a block for each of two folders and three entries.
        let least = (1 << 20) + 5 * ENTRY;
        assert!((least..=least + 64 * ENTRY).contains(&used), "{used} {least}");
        assert_eq!(Disk { owner: Some(4_000_000), ..disk.clone() }.used(&|| true), 0);
        // It looks no further than it must, or may.
        assert!(Disk { most: 1, ..disk.clone() }.used(&|| true) < 1 << 20);
        assert_eq!(disk.used(&|| false), 0);
    }
}
