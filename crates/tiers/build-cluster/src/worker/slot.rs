//! A slot, from the worker's side: its folder, its process, and the conversation with it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kendall_tier::Clock;
use rustix::fs::{Dir, FileType, Mode, OFlags};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::disk::Disk;
use super::remove;
use super::slot_protocol::{self, Ended, Order};

/// How a slot's process is started: the program and its arguments, but for the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotProgram {
    pub program: PathBuf,
    /// Its arguments; the folder follows as `--folder DIR`.
    pub arguments: Vec<String>,
    /// Owner of what actions may write to, when the worker is root.
    pub owner: Option<(u32, u32)>,
    /// Whether actions have a root of their own, in which they cannot replace the folders that they write to.
    pub own_root: bool,
    pub disk_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum SlotFailure {
    #[error("cannot start {program} for a slot")]
    Start { program: PathBuf, source: io::Error },
    #[error("{0}")]
    Refused(String),
    #[error("the slot's process ended")]
    Gone(#[source] io::Error),
    #[error("cannot use the slot's folder")]
    Folder(#[source] io::Error),
}

#[derive(Debug)]
pub(super) struct Slot {
    folder: PathBuf,
    program: SlotProgram,
    process: Option<Process>,
    writable: Vec<Writable>,
    clock: Clock,
}

#[derive(Debug)]
struct Process {
    child: Child,
    socket: UnixStream,
}

/// The folders that actions write to.
const WRITABLE: [&str; 3] = ["build", "tmp", "shm"];

impl Slot {
    /// A slot in that folder. Nothing is started yet.
    pub(super) fn new(folder: PathBuf, program: SlotProgram, clock: Clock) -> Self {
        Self { folder, program, process: None, writable: Vec::new(), clock }
    }

    /// Starts its process if there is none; what it could not set up.
    pub(super) async fn start(&mut self) -> Result<String, SlotFailure> {
        if self.process.is_some() {
            return Ok(String::new());
        }
        self.make_folders().map_err(SlotFailure::Folder)?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(SlotFailure::Gone)?;
        ours.set_nonblocking(true).map_err(SlotFailure::Gone)?;
        let mut command = Command::new(&self.program.program);
        command.args(&self.program.arguments).arg("--folder").arg(&self.folder);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let child = command.spawn().map_err(|source| SlotFailure::Start {
            program: self.program.program.clone(),
            source,
        })?;
        drop(command);
        let socket = UnixStream::from_std(ours).map_err(SlotFailure::Gone)?;
        self.process = Some(Process { child, socket });
        let hello = read(&mut self.process()?.socket).await?;
        if hello.refused.is_empty() {
            return Ok(hello.notes);
        }
        self.end();
        Err(SlotFailure::Refused(hello.refused))
    }

    fn make_folders(&mut self) -> io::Result<()> {
        fs::create_dir_all(self.folder.join("root"))?;
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o711))?;
        self.writable.clear();
        for name in WRITABLE {
            let folder = self.folder.join(name);
            fs::create_dir_all(&folder)?;
            self.give(&folder)?;
            let mode = if name == "build" { 0o755 } else { 0o1777 };
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode))?;
            self.writable.push(Writable::open(folder)?);
        }
        self.clean()
    }

    /// Gives a folder to the user of actions.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        match self.program.owner {
            Some((user, group)) => std::os::unix::fs::chown(path, Some(user), Some(group)),
            None => Ok(()),
        }
    }

    /// Where inputs go and outputs are found.
    pub(super) fn build(&self) -> PathBuf {
        self.folder.join("build")
    }

    /// Deletes what an action left.
    pub(super) fn clean(&mut self) -> io::Result<()> {
        if !self.program.own_root {
            // The action may have put other folders in their place.
            for folder in &mut self.writable {
                *folder = Writable::open(folder.path.clone())?;
            }
        }
        self.writable.iter_mut().try_for_each(Writable::empty)
    }

    /// Runs an action to its end, or until `stop` becomes true.
    ///
    /// # Errors
    /// [`SlotFailure`] when the slot's process went; the next call starts another one.
    pub(super) async fn run(
        &mut self,
        order: &Order,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Ended, SlotFailure> {
        self.start().await?;
        let ran = self.converse(order, stop).await;
        if ran.is_err() {
            self.end();
        }
        ran
    }

    async fn converse(
        &mut self,
        order: &Order,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Ended, SlotFailure> {
        let disk = Disk {
            folders: WRITABLE.iter().map(|name| self.folder.join(name)).collect(),
            owner: self.program.owner.map(|(user, _)| user),
            most: self.program.disk_bytes,
        };
        let filling = disk.fills(self.clock.clone());
        let (reader, mut writer) = self.process()?.socket.split();
        let order = slot_protocol::frame(order);
        writer.write_all(&order).await.map_err(SlotFailure::Gone)?;
        // Kept through the stop: a message that was read in part must be read to its end.
        let mut reading = std::pin::pin!(read(reader));
        let end = tokio::select! {
            ended = reading.as_mut() => return ended,
            stopped = stop.wait_for(|stop| *stop) => stopped.is_ok().then(Order::default),
            () = filling => Some(Order { out_of_disk: true, ..Order::default() }),
        };
        if let Some(end) = end {
            // Whether it was in time, the answer says.
            writer.write_all(&slot_protocol::frame(&end)).await.map_err(SlotFailure::Gone)?;
        }
        reading.await
    }

    fn process(&mut self) -> Result<&mut Process, SlotFailure> {
        let gone = || SlotFailure::Gone(io::ErrorKind::NotConnected.into());
        self.process.as_mut().ok_or_else(gone)
    }

    /// Bytes that the last action wrote to its output (`stdout`) or its errors (`stderr`).
    pub(super) fn log(&self, name: &str, bytes: u64, most: u64) -> io::Result<Vec<u8>> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let file = fs::File::open(self.folder.join(name))?;
        let length = usize::try_from(bytes.min(most)).unwrap_or(usize::MAX);
        let mut content = vec![0; length];
        file.read_exact_at(&mut content, 0)?;
        Ok(content)
    }

    /// Ends its process and whatever runs in it.
    pub(super) fn end(&mut self) {
        if let Some(Process { mut child, socket }) = self.process.take() {
            // It ends by itself when the socket does, and ends what runs with it.
            drop(socket);
            child.wait().map(drop).unwrap_or_default();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.end();
    }
}

async fn read(mut socket: impl tokio::io::AsyncRead + Unpin) -> Result<Ended, SlotFailure> {
    let mut length = [0; 4];
    socket.read_exact(&mut length).await.map_err(SlotFailure::Gone)?;
    let length = slot_protocol::checked_length(length).map_err(SlotFailure::Gone)?;
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.map_err(SlotFailure::Gone)?;
    slot_protocol::decode(&body).map_err(SlotFailure::Gone)
}

/// A folder that actions write to. It stays open: mostly an action left nothing in it, and to see that no
/// path is walked.
#[derive(Debug)]
struct Writable {
    path: PathBuf,
    entries: Dir,
}

impl Writable {
    /// Files that are deleted sooner than another thread takes over.
    const FEW: usize = 64;

    fn open(path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = Dir::new(rustix::fs::open(&path, flags, Mode::empty())?)?;
        Ok(Self { path, entries })
    }

    /// Deletes what is in the folder, and keeps the folder, which is mounted elsewhere.
    fn empty(&mut self) -> io::Result<()> {
        let (mut files, mut folders, mut is_there) = (Vec::new(), Vec::new(), false);
        self.entries.rewind();
        while let Some(entry) = self.entries.read() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                is_there = true;
                continue;
            }
            let path = self.path.join(OsStr::from_bytes(name));
            let is_folder = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => fs::symlink_metadata(&path)?.is_dir(),
                _ => false,
            };
            if is_folder {
                folders.push((path, entry.file_name().to_owned()))
            } else {
                files.push(path)
            }
        }
        if !is_there {
            // One that was deleted has not even itself in it.
            return Err(io::ErrorKind::NotFound.into());
        }
        let own = self.entries.fd()?;
        let remove = || {
            files.iter().try_for_each(fs::remove_file)?;
            folders.iter().try_for_each(|(_, name)| remove::tree(own, name))
        };
        let mut few = Self::FEW.saturating_sub(files.len());
        // Trees may be large, and the other slots wait for this thread.
        if files.len() <= Self::FEW && folders.iter().all(|(path, _)| is_small(path, &mut few)) {
            remove()
        } else {
            tokio::task::block_in_place(remove)
        }
    }
}

/// Whether a tree has no more than `few` entries, which are counted down.
fn is_small(folder: &Path, few: &mut usize) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    for entry in entries {
        let Some(left) = few.checked_sub(1) else { return false };
        *few = left;
        let Ok(entry) = entry else { return false };
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && !is_small(&entry.path(), few) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a second action of a slot must not find: files, links, trees with locked folders, many files.
    #[test]
    fn a_folder_is_empty_after_every_action() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("build");
        fs::create_dir(&path).unwrap();
        let mut folder = Writable::open(path.clone()).unwrap();
        let count = || fs::read_dir(&path).unwrap().count();
        // As a worker's: trees are deleted beside its one thread.
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).build().unwrap();
        for round in 0..3 {
            fs::write(path.join("file"), "x").unwrap();
            std::os::unix::fs::symlink("/etc", path.join("link")).unwrap();
            fs::create_dir_all(path.join("a/b/c")).unwrap();
            fs::write(path.join("a/b/c/d"), "x").unwrap();
            fs::set_permissions(path.join("a/b"), fs::Permissions::from_mode(0o000)).unwrap();
            assert_eq!(count(), 3, "round {round}");
            runtime.block_on(async { folder.empty().unwrap() });
            assert_eq!(count(), 0, "round {round}");
            for number in 0..2 * Writable::FEW {
                fs::write(path.join(number.to_string()), "").unwrap();
            }
            runtime.block_on(async { folder.empty().unwrap() });
            assert_eq!(count(), 0, "round {round}");
            folder.empty().unwrap();
        }
        assert!(Path::new("/etc").exists());
        fs::remove_dir(&path).unwrap();
        assert_eq!(folder.empty().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_folder_that_an_action_put_in_place_of_its_own_is_emptied_too() {
        let base = tempfile::tempdir().unwrap();
        let program = SlotProgram {
            program: PathBuf::new(),
            arguments: Vec::new(),
            owner: None,
            own_root: false,
            disk_bytes: 0,
        };
        let mut slot = Slot::new(base.path().to_owned(), program, Clock::monotonic());
        slot.make_folders().unwrap();
        fs::rename(slot.build(), base.path().join("moved")).unwrap();
        fs::create_dir(slot.build()).unwrap();
        fs::write(slot.build().join("left"), "x").unwrap();
        slot.clean().unwrap();
        assert_eq!(fs::read_dir(slot.build()).unwrap().count(), 0);
    }

    #[test]
    fn a_tree_is_small_up_to_the_number_of_its_entries() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("a/b")).unwrap();
        fs::write(base.path().join("a/b/c"), "").unwrap();
        assert!(is_small(base.path(), &mut 3) && !is_small(base.path(), &mut 2));
    }
}
