//! Deletes the tree that an action left, whatever it is like: deeper than there are open files or bytes in
//! a path, or with folders that their owner locked.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Folders of one another that are open at the same time. Deeper ones are brought up first.
const DEPTH: usize = 32;

/// Deletes the folder `name` in `base` with all that is in it. Nothing else may use the tree.
pub(super) fn tree(base: impl AsFd, name: &CStr) -> io::Result<()> {
    let mut removal = Removal { base: base.as_fd(), next: 0, brought_up: Vec::new() };
    removal.folder(base.as_fd(), name, 0)?;
    while let Some(number) = removal.brought_up.pop() {
        removal.folder(base.as_fd(), &name_of(number), 0)?;
    }
    Ok(())
}

struct Removal<'a> {
    base: BorrowedFd<'a>,
    next: u64,
    /// Numbers of the folders that are in `base` by now.
    brought_up: Vec<u64>,
}

fn name_of(number: u64) -> std::ffi::CString {
    std::ffi::CString::new(format!(".left-{number}")).expect("it has no zero byte")
}

impl Removal<'_> {
    fn folder(&mut self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        let folder = open(parent, name)?;
        let mut entries = Dir::read_from(&folder)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let inner = entry.file_name();
            if matches!(inner.to_bytes(), b"." | b"..") {
                continue;
            }
            if !is_folder(&folder, &entry)? {
                unlink(&folder, inner, AtFlags::empty())?;
            } else if depth < DEPTH {
                self.folder(folder.as_fd(), inner, depth + 1)?;
            } else {
                self.bring_up(&folder, inner)?;
            }
        }
        unlink(parent, name, AtFlags::REMOVEDIR)
    }

    /// Moves a folder to the base, under a name that is free there.
    fn bring_up(&mut self, folder: &OwnedFd, name: &CStr) -> io::Result<()> {
        // What is moved to another folder is written to.
        unlock(folder, name)?;
        loop {
            let number = self.next;
            self.next += 1;
            let to = name_of(number);
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(folder, name, self.base, &to, flags) {
                Ok(()) => {
                    self.brought_up.push(number);
                    return Ok(());
                }
                Err(Errno::EXIST) => {}
                Err(Errno::ACCESS) if rustix::fs::fchmod(folder, Mode::RWXU).is_ok() => {
                    rustix::fs::renameat_with(folder, name, self.base, &to, flags)?;
                    self.brought_up.push(number);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn is_folder(folder: &OwnedFd, entry: &rustix::fs::DirEntry) -> io::Result<bool> {
    Ok(match entry.file_type() {
        FileType::Unknown => {
            let stat = rustix::fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        }
        kind => kind == FileType::Directory,
    })
}

/// Opens a folder, which its owner may have locked.
fn open(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(parent, name, flags, Mode::empty());
    match open() {
        Err(Errno::ACCESS) => {
            unlock(parent, name)?;
            Ok(open()?)
        }
        opened => Ok(opened?),
    }
}

/// Takes an entry out of a folder, from which its owner may not.
fn unlink(folder: impl AsFd, name: &CStr, flags: AtFlags) -> io::Result<()> {
    match rustix::fs::unlinkat(folder.as_fd(), name, flags) {
        Err(Errno::ACCESS) => {
            rustix::fs::fchmod(folder.as_fd(), Mode::RWXU)?;
            Ok(rustix::fs::unlinkat(folder, name, flags)?)
        }
        unlinked => Ok(unlinked?),
    }
}

/// Gives the owner of a folder all rights to it. It is a folder and no link: no other process is at work here.
fn unlock(parent: impl AsFd, name: &CStr) -> io::Result<()> {
    match rustix::fs::chmodat(parent.as_fd(), name, Mode::RWXU, AtFlags::empty()) {
        // The folder that it is in is locked itself.
        Err(Errno::ACCESS) => {
            rustix::fs::fchmod(parent.as_fd(), Mode::RWXU)?;
            Ok(rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?)
        }
        changed => Ok(changed?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deeper than a path or a thread's stack takes, with two folders side by side far below, files that are
    /// called as the brought up folders are, and locked folders on the way.
    #[test]
    fn a_tree_deeper_than_any_path_goes_and_its_locks_with_it() {
        const LEVELS: usize = 20_000;
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join(".left-0"), "in the way").unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(base.path(), flags, Mode::empty()).unwrap();
        let make = |at: &OwnedFd, name: &str| {
            rustix::fs::mkdirat(at, name, Mode::RWXU).unwrap();
            rustix::fs::openat(at, name, flags, Mode::empty()).unwrap()
        };
        let mut at = make(&top, "deep");
        for level in 0..LEVELS {
            let below = make(&at, "d");
            if level % 1000 == DEPTH {
                make(&at, "e");
                make(&make(&at, ".left-1"), "f");
                rustix::fs::symlinkat("/", &at, "link").unwrap();
                rustix::fs::fchmod(&at, Mode::empty()).unwrap();
            }
            at = below;
        }
        drop(at);
        tree(&top, c"deep").unwrap();
        let left: Vec<_> = std::fs::read_dir(base.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
