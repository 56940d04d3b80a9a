//! The input root after an action, in which nothing is reached through a link that leads out of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The input root after an action. Files that the action left are reached through it alone: a link
/// that the action made may lead anywhere, and to the worker `/etc` is another place than to the
/// action.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// A directory below the root; links on the way lead inside the root, wherever they point.
    pub(super) fn folder(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        let open = |path: &str, flags| {
            let path = if path.is_empty() { "." } else { path };
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | flags;
            rustix::fs::openat2(&self.0, path, flags, Mode::empty(), INSIDE)
        };
        let first = open(path, OFlags::empty());
        if !matches!(first, Err(Errno::ACCESS)) {
            return first;
        }
        let ends = path.match_indices('/').map(|(end, _)| end);
        for end in std::iter::once(0).chain(ends).chain([path.len()]) {
            permit(&open(&path[..end], OFlags::PATH)?)?;
        }
        open(path, OFlags::empty())
    }

    /// Whether a path leads to a directory.
    pub(super) fn has_folder(&self, path: &str) -> bool {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
        rustix::fs::openat2(&self.0, path, flags, Mode::empty(), INSIDE).is_ok()
    }

    /// The directory of an entry, and the entry's name in it.
    pub(super) fn parent<'a>(&self, path: &'a str) -> rustix::io::Result<(OwnedFd, &'a str)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.folder(parent)?, name))
    }

    /// Opens a file, which is no link.
    pub(super) fn file(&self, path: &str) -> io::Result<File> {
        let (parent, name) = self.parent(path)?;
        open_file(&parent, name)
    }
}

/// However links lead, they lead below the root.
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// Opens an entry that is a file and no link; never waits, should it be a pipe.
pub(super) fn open_file(folder: impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(File::from(open_own(folder.as_fd(), name, flags)?))
}

/// Opens a directory that is no link.
pub(super) fn open_directory(folder: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    open_own(folder.as_fd(), name, flags)
}

/// Opens an entry, also one from which the action took its own permission to read.
fn open_own(folder: BorrowedFd<'_>, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let first = rustix::fs::openat(folder, name, flags, Mode::empty());
    if !matches!(first, Err(Errno::ACCESS)) {
        return first;
    }
    let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    permit(&rustix::fs::openat(folder, name, place, Mode::empty())?)?;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

/// Gives back the owner's permission to read a file, or to pass through a directory. Root needs none; any other worker
/// is the owner.
fn permit(entry: &OwnedFd) -> rustix::io::Result<()> {
    let stat = rustix::fs::fstat(entry)?;
    let (mode, more) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (Mode::from_raw_mode(stat.st_mode), Mode::RUSR),
        FileType::Directory => (Mode::from_raw_mode(stat.st_mode), Mode::RUSR | Mode::XUSR),
        _ => return Err(Errno::ACCESS),
    };
    if mode.contains(more) {
        return Ok(());
    }
    // By way of the open entry, so that it cannot be another one by now.
    rustix::fs::chmod(format!("/proc/self/fd/{}", entry.as_raw_fd()), mode | more)
}
