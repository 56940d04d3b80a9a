//! The folder in which a tier keeps its data: one process has it at a time, and what others put there
//! stays as it is.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Its name in the folder: made first, so that a folder without it is nobody's of these tiers.
const LOCK: &str = "lock";
/// What is in the root of a disk of its own.
const LOST: &str = "lost+found";
/// Parts that one of these tiers has, and another may not take.
const PARTS: [&str; 3] = ["files", "segments", "slots"];

/// A folder cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{0} is in use by another process; give each a folder of its own with --data DIR")]
    InUse(PathBuf),
    /// It was there before.
    #[error(
        "{0} was not made by this tier, which keeps its data in a folder of its own; choose a new or empty one \
         with --data DIR"
    )]
    NotOurs(PathBuf),
    #[error("cannot use {path}; choose another folder with --data DIR")]
    System { path: PathBuf, source: io::Error },
}

/// Takes a folder that is empty, or in which the tier already has `parts`, as long as the file is held that is
/// returned.
pub(crate) fn take(folder: &Path, parts: &[&str]) -> Result<File, FolderError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| FolderError::System { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let path = folder.join(LOCK);
    let there = std::fs::read_dir(folder).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>()
    });
    let there: Vec<OsString> = there.map_err(failed(folder))?;
    // Looked for after the rest: who takes the folder meanwhile makes it first.
    let is_new = !path.exists();
    let is_theirs = |name: &&OsString| match is_new {
        true => *name != LOCK && *name != LOST,
        false => PARTS.iter().any(|part| *name == part && !parts.contains(part)),
    };
    if let Some(theirs) = there.iter().filter(is_theirs).min() {
        return Err(FolderError::NotOurs(folder.join(theirs)));
    }
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = open.map_err(failed(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(FolderError::InUse(folder.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(&path)(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_taken_once_and_never_from_somebody_else() {
        let base = tempfile::tempdir().unwrap();
        let new = base.path().join("new");
        let held = take(&new, &["files"]).unwrap();
        let second = take(&new, &["files"]).unwrap_err();
        assert!(matches!(second, FolderError::InUse(_)), "{second}");
        std::fs::create_dir(new.join("files")).unwrap();
        drop(held);
        take(&new, &["files"]).unwrap();
        let theirs = base.path().join("theirs");
        std::fs::create_dir_all(theirs.join("files")).unwrap();
        std::fs::write(theirs.join("files/cafe"), "a letter").unwrap();
        let refused = take(&theirs, &["slots", "files"]).unwrap_err();
        assert!(matches!(&refused, FolderError::NotOurs(path) if path.ends_with("files")));
        assert_eq!(std::fs::read_dir(&theirs).unwrap().count(), 1, "it is left as it was");
        // As the folder of a queue: nothing there has the name of a part.
        let queue = base.path().join("queue");
        std::fs::create_dir_all(queue.join("data")).unwrap();
        std::fs::write(queue.join("postgres.log"), "").unwrap();
        let refused = take(&queue, &["files"]).unwrap_err();
        assert!(matches!(&refused, FolderError::NotOurs(path) if path.ends_with("queue/data")));
        assert!(!queue.join(LOCK).exists());
        // A worker's is none for a cache; a disk of its own has a folder for lost files.
        let disk = base.path().join("disk");
        std::fs::create_dir_all(disk.join(LOST)).unwrap();
        drop(take(&disk, &["files", "slots"]).unwrap());
        std::fs::create_dir(disk.join("slots")).unwrap();
        let refused = take(&disk, &["files", "segments"]).unwrap_err();
        assert!(matches!(&refused, FolderError::NotOurs(path) if path.ends_with("slots")));
        // What was put beside its parts later is left alone.
        std::fs::write(disk.join("tokens"), "").unwrap();
        take(&disk, &["files", "slots"]).unwrap();
    }
}
