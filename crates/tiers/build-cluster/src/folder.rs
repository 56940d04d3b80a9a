//! The folder in which a tier keeps its data: one process has it at a time, and what others put there
//! stays as it is.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Its name in the folder: made first, so it also says whose the rest is.
const LOCK: &str = "lock";

/// A folder cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{0} is in use by another process; give each a folder of its own with --data DIR")]
    InUse(PathBuf),
    /// A part of it would be used, and was there before.
    #[error(
        "{0} was not made by this tier, which would delete what is in it; choose a new folder with --data DIR"
    )]
    NotOurs(PathBuf),
    #[error("cannot use {path}; choose another folder with --data DIR")]
    System {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Takes a folder in which the tier uses `parts`, as long as the file is held that is returned.
pub(crate) fn take(folder: &Path, parts: &[&str]) -> Result<File, FolderError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| FolderError::System { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let path = folder.join(LOCK);
    if !path.exists() {
        let there = parts.iter().map(|part| folder.join(part));
        if let Some(part) = there.into_iter().find(|part| part.symlink_metadata().is_ok()) {
            return Err(FolderError::NotOurs(part));
        }
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
        // Other things beside it do not matter: a file of tokens, the folder of a disk's lost files.
        take(base.path(), &["files"]).unwrap();
    }
}
