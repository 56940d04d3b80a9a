//! Room on the disks that a study writes to: here, and where its agents are.
//!
//! A disk that fills cuts off what tiers and generators print, mostly without a word of theirs: their
//! last words would lie on the same disk. So the room is looked at with every sample of a run.

use std::path::Path;

/// Room below which no run is begun: its logs and results have to lie somewhere.
pub const LEAST_BYTES: u64 = 16 << 20;

/// Room below which a run is given up. Some is left, so that its reason can be stored.
pub const FULL_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}the disk is full: {} KiB are free at {folder}", place(host.as_deref()), free_bytes >> 10)]
pub struct Full {
    /// The host; none for this machine.
    pub host: Option<String>,
    pub folder: String,
    pub free_bytes: u64,
}

impl Full {
    /// The error of a disk with so much room, if that is too little to go on.
    pub fn of(host: Option<&str>, folder: &str, free_bytes: Option<u64>) -> Result<(), Self> {
        match free_bytes {
            Some(free_bytes) if free_bytes < FULL_BYTES => {
                Err(Self { host: host.map(str::to_owned), folder: folder.to_owned(), free_bytes })
            }
            _ => Ok(()),
        }
    }

    /// The same of a folder of this machine.
    pub fn here(folder: &Path) -> Result<(), Self> {
        Self::of(None, &folder.display().to_string(), free_bytes(folder))
    }
}

fn place(host: Option<&str>) -> String {
    host.map_or_else(String::new, |host| format!("host {host}: "))
}

/// Bytes that this user may still write there, or where the folder would be made; none where the file
/// system does not say.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let about = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok())?;
    // Those that keep nothing themselves, such as a view of another one, have no blocks at all.
    (about.f_blocks > 0).then(|| about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_with_its_host_and_folder() {
        assert_eq!(Full::of(Some("h1"), "/tmp/x", Some(FULL_BYTES)), Ok(()));
        // Unknown: nothing is claimed.
        assert_eq!(Full::of(Some("h1"), "/tmp/x", None), Ok(()));
        let said = Full::of(Some("h1"), "/tmp/x", Some(3 << 10)).unwrap_err().to_string();
        assert_eq!(said, "host h1: the disk is full: 3 KiB are free at /tmp/x");
        let said = Full::of(None, "/tmp/x", Some(0)).unwrap_err().to_string();
        assert_eq!(said, "the disk is full: 0 KiB are free at /tmp/x");
        // Some file system or other keeps this test, and one of the kernel's own has no blocks.
        assert!(free_bytes(Path::new("/")).is_some());
        assert!(free_bytes(Path::new("/not/made/yet")).is_some());
        assert_eq!(free_bytes(Path::new("/proc")), None);
    }
}
