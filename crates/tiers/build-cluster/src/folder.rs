//! The folder in which a tier keeps its data: one process has it at a time, and what others put there
//! stays as it is.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Its name in the folder, and what it says: others have files of that name, which are empty, as were those of 0.1.0.
const LOCK: &str = "lock";
const MARK: &str = "kendall build-cluster\n";
/// What is in the root of a disk of its own.
const LOST: &str = "lost+found";
/// Parts that one of these tiers has, and another may not take.
const PARTS: [&str; 3] = ["files", "segments", "slots"];

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
    // Looked at after the rest: who takes the folder meanwhile makes it first.
    let mut mark = String::new();
    let (is_new, is_marked) = match File::open(&path) {
        Ok(file) => {
            file.take(1024).read_to_string(&mut mark).map_err(failed(&path))?;
            (false, mark == MARK)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (true, false),
        Err(error) => return Err(failed(&path)(error)),
    };
    let is_theirs = |name: &&OsString| {
        let is_part = |parts: &[&str]| parts.iter().any(|part| *name == part);
        let allowed = *name == LOCK || *name == LOST || (!is_new && is_part(parts));
        !allowed && (!is_marked || is_part(&PARTS))
    };
    if let Some(theirs) = there.iter().filter(is_theirs).min() {
        return Err(FolderError::NotOurs(folder.join(theirs)));
    }
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let mut file = open.map_err(failed(&path))?;
    match file.try_lock() {
        Ok(()) if is_marked => Ok(file),
        Ok(()) => file.write_all(MARK.as_bytes()).map(|()| file).map_err(failed(&path)),
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
        drop(take(&disk, &["files", "slots"]).unwrap());
        // One of 0.1.0 has an empty lock, as have others' folders, which have more than its parts.
        std::fs::write(disk.join(LOCK), "").unwrap();
        let refused = take(&disk, &["files", "slots"]).unwrap_err();
        assert!(matches!(&refused, FolderError::NotOurs(path) if path.ends_with("tokens")));
        std::fs::remove_file(disk.join("tokens")).unwrap();
        take(&disk, &["files", "slots"]).unwrap();
        assert_eq!(std::fs::read_to_string(disk.join(LOCK)).unwrap(), MARK);
    }
}
