//! What an action made: found below its input root without ever following a link out of it, and
//! uploaded.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use prost::Message as _;
use rustix::fs::{AtFlags, FileType, Stat};

use super::paths::{self, PathError};
use super::root::{Root, open_directory, open_file};
use super::store::{Key, Store};
use crate::digest::{Digest, Function};
use crate::remote::{self, Remote, RemoteError};
use crate::wire::{protobuf, re};

/// Files this small are sent without asking first whether they are there.
const UNASKED_BYTES: u64 = 64 << 10;
const UNASKED_BLOBS: usize = 32;

#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("the output {0:?} is neither a file nor a directory nor a link")]
    Kind(String),
    #[error(
        "the output {link:?} is a link to {target:?}, out of the input root; only absolute links may lead there"
    )]
    Link { link: String, target: String },
    #[error("an output below {0:?} has a name that is not UTF-8")]
    Name(String),
    #[error("the action made {what} than the {limit} that this worker allows")]
    Bound { what: &'static str, limit: u64 },
    #[error("cannot read the output {path:?}")]
    Read { path: String, source: io::Error },
}

#[derive(Debug, Clone, Copy)]
pub struct OutputLimits {
    /// Bytes of all files.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
}

/// What a command says of its outputs: paths relative to its working directory, and to the input
/// root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    /// As the command writes it, and from the root.
    pub paths: Vec<(String, String)>,
    /// Whether the command uses `output_paths`.
    pub new_style: bool,
    /// Directories to make before it runs.
    pub folders: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    /// The result with its outputs, and nothing else.
    pub result: re::ActionResult,
    /// Messages and small files to upload.
    pub blobs: Vec<(Digest, Vec<u8>)>,
    /// Where these are: paths of files are below it.
    root: Option<Root>,
    files: Vec<(Digest, String)>,
    /// All files, to be kept for later actions.
    keep: Vec<(Key, String)>,
}

impl Expected {
    pub(super) fn new(command: &re::Command, directory: &str) -> Result<Self, PathError> {
        let new_style = !command.output_paths.is_empty();
        #[expect(deprecated, reason = "clients of version 2.0 use these fields")]
        let (files, folders) = (&command.output_files, &command.output_directories);
        let mut expected = Self { paths: Vec::new(), new_style, folders: Vec::new() };
        let (plain, whole) = if new_style {
            (command.output_paths.iter(), [].iter())
        } else {
            (files.iter(), folders.iter())
        };
        for path in plain {
            let from_root = paths::inside(directory, path)?;
            if let Some((parent, _)) = from_root.rsplit_once('/') {
                expected.folders.push(parent.to_owned());
            }
            expected.paths.push((path.clone(), from_root));
        }
        for path in whole {
            let from_root = paths::inside(directory, path)?;
            expected.folders.push(from_root.clone());
            expected.paths.push((path.clone(), from_root));
        }
        let mut seen = HashSet::new();
        expected.paths.retain(|(_, from_root)| seen.insert(from_root.clone()));
        expected.folders.sort_unstable();
        expected.folders.dedup();
        Ok(expected)
    }

    /// Whether it is a few files that are read and hashed in no time.
    pub(super) fn is_small(&self, root: &Path) -> bool {
        const FILES: usize = 8;
        const BYTES: u64 = 64 << 10;
        let size = |path: &str| match std::fs::symlink_metadata(root.join(path)) {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => BYTES + 1,
            Err(_) => 0,
        };
        self.paths.len() <= FILES
            && self.paths.iter().map(|(_, path)| size(path)).fold(0, u64::saturating_add) <= BYTES
    }
}

#[derive(Debug)]
pub(super) struct Finder {
    root: Root,
    /// Where actions see the root: links to there are made relative.
    seen_at: String,
    function: Function,
    limits: OutputLimits,
    mtime: bool,
    mode: bool,
    trees: bool,
    directories: bool,
    bytes: u64,
    entries: u64,
    found: Found,
}

impl Finder {
    /// For the outputs of a command below `root`.
    pub(super) fn new(
        root: &Path,
        seen_at: &str,
        function: Function,
        limits: OutputLimits,
        command: &re::Command,
    ) -> io::Result<Self> {
        let asked = |name: &str| command.output_node_properties.iter().any(|one| one == name);
        let format = command.output_directory_format;
        Ok(Self {
            root: Root::open(root)?,
            seen_at: seen_at.to_owned(),
            function,
            limits,
            mtime: asked("mtime") || asked("MTime"),
            mode: asked("unix_mode") || asked("UnixMode"),
            trees: format != re::command::OutputDirectoryFormat::DirectoryOnly as i32,
            directories: format != re::command::OutputDirectoryFormat::TreeOnly as i32,
            bytes: 0,
            entries: 0,
            found: Found::default(),
        })
    }

    pub(super) fn find(mut self, expected: &Expected) -> Result<Found, OutputError> {
        for (written, from_root) in &expected.paths {
            self.output(written, from_root, expected.new_style)?;
        }
        self.found.root = Some(self.root);
        Ok(self.found)
    }

    fn output(&mut self, written: &str, path: &str, new_style: bool) -> Result<(), OutputError> {
        if path.is_empty() {
            let root = self.open_folder(path)?;
            return self.folder(written, path, &root);
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let failed = |source: rustix::io::Errno| read_error(path, source);
        let parent = match self.open_folder(parent) {
            Ok(parent) => parent,
            Err(OutputError::Read { source, .. }) if absent(&source) => return Ok(()),
            Err(error) => return Err(error),
        };
        let stat = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let (digest, executable) = self.file(&parent, name, path, &stat)?;
                self.found.result.output_files.push(re::OutputFile {
                    path: written.to_owned(),
                    digest: Some(digest.to_wire()),
                    is_executable: executable,
                    contents: Vec::new(),
                    node_properties: self.properties(&stat),
                });
                Ok(())
            }
            FileType::Directory => {
                let folder = open_directory(&parent, name);
                self.folder(written, path, &folder.map_err(failed)?)
            }
            FileType::Symlink => self.link(written, path, &parent, &stat, new_style),
            _ => Err(OutputError::Kind(path.to_owned())),
        }
    }

    fn open_folder(&self, path: &str) -> Result<OwnedFd, OutputError> {
        self.root.folder(path).map_err(|source| read_error(path, source))
    }

    fn count(&mut self, bytes: u64) -> Result<(), OutputError> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > self.limits.entries {
            return Err(OutputError::Bound { what: "more outputs", limit: self.limits.entries });
        }
        if self.bytes > self.limits.bytes {
            return Err(OutputError::Bound { what: "more bytes", limit: self.limits.bytes });
        }
        Ok(())
    }

    /// Digest of a file, and whether it can be run.
    fn file(
        &mut self,
        folder: impl AsFd,
        name: &str,
        path: &str,
        stat: &Stat,
    ) -> Result<(Digest, bool), OutputError> {
        self.count(u64::try_from(stat.st_size).unwrap_or(0))?;
        let failed = |source| OutputError::Read { path: path.to_owned(), source };
        let mut file = open_file(folder, name).map_err(failed)?;
        let executable = stat.st_mode & 0o100 != 0;
        let digest = if u64::try_from(stat.st_size).unwrap_or(0) <= UNASKED_BYTES {
            let mut content = Vec::new();
            io::Read::read_to_end(&mut file, &mut content).map_err(failed)?;
            let digest = self.function.digest(&content);
            self.found.blobs.push((digest, content));
            digest
        } else {
            let digest = remote::digest_file(self.function, &mut file).map_err(failed)?;
            self.found.files.push((digest, path.to_owned()));
            digest
        };
        self.found.keep.push(((digest, executable), path.to_owned()));
        Ok((digest, executable))
    }

    fn link(
        &mut self,
        written: &str,
        path: &str,
        folder: &OwnedFd,
        stat: &Stat,
        new_style: bool,
    ) -> Result<(), OutputError> {
        self.count(0)?;
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let target = self.target(folder, name, path)?;
        let symlink = re::OutputSymlink {
            path: written.to_owned(),
            target,
            node_properties: self.properties(stat),
        };
        let to_folder = self.root.has_folder(path);
        let result = &mut self.found.result;
        if !new_style {
            #[expect(deprecated, reason = "clients before version 2.1 read these fields")]
            if to_folder {
                result.output_directory_symlinks.push(symlink.clone());
            } else {
                result.output_file_symlinks.push(symlink.clone());
            }
        }
        result.output_symlinks.push(symlink);
        Ok(())
    }

    /// Where a link points. Into the root it is relative, wherever the root was; elsewhere it is as the action made
    /// it, which must be absolute.
    fn target(&self, folder: impl AsFd, name: &str, path: &str) -> Result<String, OutputError> {
        let target = rustix::fs::readlinkat(folder, name, Vec::new());
        let target = target.map_err(|source| read_error(path, source))?;
        let target = target.into_string().map_err(|_| OutputError::Name(path.to_owned()))?;
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let below = target.strip_prefix(&self.seen_at).filter(|rest| {
            // Not a folder beside it whose name begins as its own.
            rest.is_empty() || rest.starts_with('/')
        });
        let below = below.and_then(|rest| paths::inside("", rest.trim_start_matches('/')).ok());
        if let Some(below) = below {
            let up = "../".repeat(parent.split('/').filter(|part| !part.is_empty()).count());
            return Ok(if below.is_empty() { format!("{up}.") } else { format!("{up}{below}") });
        }
        match paths::target(parent, &target) {
            Ok(()) => Ok(target),
            Err(_) => Err(OutputError::Link { link: path.to_owned(), target }),
        }
    }

    /// An output that is a directory.
    fn folder(&mut self, written: &str, path: &str, folder: &OwnedFd) -> Result<(), OutputError> {
        let mut below = HashMap::new();
        let root = self.directory(path, folder, &mut below, 0)?;
        let encoded = root.encode_to_vec();
        let root_digest = self.function.digest(&encoded);
        let mut output = re::OutputDirectory {
            path: written.to_owned(),
            is_topologically_sorted: false,
            ..re::OutputDirectory::default()
        };
        if self.directories {
            output.root_directory_digest = Some(root_digest.to_wire());
            self.found.blobs.push((root_digest, encoded));
            let messages = below.iter().map(|(digest, sub)| (*digest, sub.encode_to_vec()));
            self.found.blobs.extend(messages);
        }
        if self.trees {
            let mut children: Vec<(Digest, re::Directory)> = below.into_iter().collect();
            children.sort_unstable_by_key(|child| child.0);
            let children = children.into_iter().map(|child| child.1).collect();
            let tree = re::Tree { root: Some(root), children }.encode_to_vec();
            let digest = self.function.digest(&tree);
            output.tree_digest = Some(digest.to_wire());
            self.found.blobs.push((digest, tree));
        }
        self.found.result.output_directories.push(output);
        Ok(())
    }

    fn directory(
        &mut self,
        path: &str,
        folder: &OwnedFd,
        below: &mut HashMap<Digest, re::Directory>,
        depth: usize,
    ) -> Result<re::Directory, OutputError> {
        if depth > paths::DEPTH {
            let limit = paths::DEPTH as u64;
            return Err(OutputError::Bound { what: "deeper directories", limit });
        }
        self.count(0)?;
        let mut directory = re::Directory::default();
        for name in names(path, folder)? {
            let inner = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            let failed = |source| read_error(&inner, source);
            let stat = rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.map_err(failed)?;
            let node_properties = self.properties(&stat);
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => {
                    let (digest, is_executable) = self.file(folder, &name, &inner, &stat)?;
                    let digest = Some(digest.to_wire());
                    directory.files.push(re::FileNode {
                        name,
                        digest,
                        is_executable,
                        node_properties,
                    });
                }
                FileType::Directory => {
                    let sub = open_directory(folder, &name);
                    let sub = self.directory(&inner, &sub.map_err(failed)?, below, depth + 1)?;
                    let digest = self.function.digest(&sub.encode_to_vec());
                    below.insert(digest, sub);
                    let digest = Some(digest.to_wire());
                    directory.directories.push(re::DirectoryNode { name, digest });
                }
                FileType::Symlink => {
                    self.count(0)?;
                    let target = self.target(folder, &name, &inner)?;
                    directory.symlinks.push(re::SymlinkNode { name, target, node_properties });
                }
                _ => return Err(OutputError::Kind(inner)),
            }
        }
        Ok(directory)
    }

    fn properties(&self, stat: &Stat) -> Option<re::NodeProperties> {
        if !self.mtime && !self.mode {
            return None;
        }
        let mtime = self.mtime.then(|| protobuf::Timestamp {
            seconds: stat.st_mtime,
            nanos: i32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        });
        let unix_mode = self.mode.then_some(protobuf::UInt32Value { value: stat.st_mode & 0o7777 });
        Some(re::NodeProperties { properties: Vec::new(), mtime, unix_mode })
    }
}

/// The names in a directory, sorted, as messages want them.
fn names(path: &str, folder: &OwnedFd) -> Result<Vec<String>, OutputError> {
    let failed = |source| read_error(path, source);
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
        let name = name.to_str().ok_or_else(|| OutputError::Name(path.to_owned()))?;
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn read_error(path: &str, source: rustix::io::Errno) -> OutputError {
    OutputError::Read { path: path.to_owned(), source: source.into() }
}

fn absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl Found {
    /// Uploads what was found: small blobs without a question, larger ones when they are missing.
    pub(super) async fn upload(
        &mut self,
        remote: &Remote,
        instance: &str,
        lease: u64,
    ) -> Result<(), RemoteError> {
        self.blobs.retain(|blob| !blob.0.is_empty());
        self.blobs.sort_unstable_by_key(|blob| blob.0);
        self.blobs.dedup_by_key(|blob| blob.0);
        let all = self.blobs.iter().map(|blob| blob.0).chain(self.files.iter().map(|f| f.0));
        let bytes: u64 = self.blobs.iter().map(|blob| blob.0.size).sum();
        let few = self.blobs.len() <= UNASKED_BLOBS && bytes <= 4 * UNASKED_BYTES;
        if !few || !self.files.is_empty() {
            let mut all: Vec<Digest> = all.collect();
            all.sort_unstable();
            all.dedup();
            let missing: HashSet<Digest> =
                remote.missing(instance, &all).await?.into_iter().collect();
            self.blobs.retain(|blob| missing.contains(&blob.0));
            self.files.retain(|file| missing.contains(&file.0));
        }
        remote.write(instance, &self.blobs).await?;
        let Some(root) = &self.root else { return Ok(()) };
        for (index, (digest, path)) in self.files.iter().enumerate() {
            let file = root.file(path)?;
            // The form of a random number: it only has to differ from other uploads'.
            let (high, low) = (lease >> 32, lease & 0xffff_ffff);
            let upload = format!("{high:08x}-0000-4000-8000-{:012x}", (low << 16) + index as u64);
            remote.write_file(instance, *digest, &file, &upload).await?;
        }
        Ok(())
    }

    /// Takes the files out of the action's folder, for later actions.
    pub(super) fn keep(&self, store: &Store) {
        let Some(root) = &self.root else { return };
        for (key, path) in &self.keep {
            store.keep(*key, root, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::path::PathBuf;

    use super::*;

    /// A root in which `a` is a link to a folder of the machine, and a file of the same path below the
    /// root, so that it is found. Returns the folder of the machine too.
    fn root_with_a_way_out(base: &Path, content: &[u8]) -> (PathBuf, PathBuf) {
        let (build, theirs) = (base.join("build"), base.join("theirs"));
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("file"), "not of the action").unwrap();
        let same = build.join(theirs.strip_prefix("/").unwrap());
        fs::create_dir_all(&same).unwrap();
        fs::write(same.join("file"), content).unwrap();
        std::os::unix::fs::symlink(&theirs, build.join("a")).unwrap();
        (build, theirs)
    }

    fn find(build: &Path) -> Found {
        let command = re::Command { output_paths: vec!["a/file".to_owned()], ..Default::default() };
        let limits = OutputLimits { bytes: 1 << 20, entries: 10 };
        let finder = Finder::new(build, "/build", Function::Sha256, limits, &command).unwrap();
        finder.find(&Expected::new(&command, "").unwrap()).unwrap()
    }

    #[test]
    fn files_are_kept_from_below_the_root_wherever_links_of_the_action_lead() {
        let base = tempfile::tempdir().unwrap();
        let (build, theirs) = root_with_a_way_out(base.path(), b"made");
        let found = find(&build);
        let store = Store::new(base.path().join("files"), 1 << 20, false).unwrap();
        found.keep(&store);
        let is_theirs = || fs::read_to_string(theirs.join("file")).unwrap() == "not of the action";
        assert!(is_theirs(), "it is where it was");
        let key = (Function::Sha256.digest(b"made"), false);
        let placed = base.path().join("placed");
        assert!(store.place(&key, &placed, true).unwrap(), "it was kept");
        assert_eq!(fs::read_to_string(&placed).unwrap(), "made");
        // A file with a second name is copied instead.
        fs::write(build.join("other"), "linked").unwrap();
        let same = build.join(theirs.strip_prefix("/").unwrap()).join("file");
        fs::hard_link(build.join("other"), &same).unwrap();
        fs::hard_link(theirs.join("file"), theirs.join("twice")).unwrap();
        find(&build).keep(&store);
        let key = (Function::Sha256.digest(b"linked"), false);
        fs::remove_file(&placed).unwrap();
        assert!(store.place(&key, &placed, true).unwrap(), "it was kept");
        assert_eq!(fs::read_to_string(&placed).unwrap(), "linked");
        assert!(is_theirs(), "it is where it was");
    }

    /// Root may read every file: as root, the test runs itself again as an ordinary user.
    #[test]
    fn outputs_are_read_whose_permission_the_action_took() {
        use std::os::unix::fs::PermissionsExt as _;
        use std::os::unix::process::CommandExt as _;

        const NOBODY: u32 = 65_534;
        if rustix::process::geteuid().is_root() {
            let name = "outputs_are_read_whose_permission_the_action_took";
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.arg(name).env_remove("TMPDIR").uid(NOBODY).gid(NOBODY);
            assert!(again.status().unwrap().success());
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let (build, inner) = (base.path().join("build"), base.path().join("build/a/file/inner"));
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("made"), "made").unwrap();
        // The folder above the output too.
        for (path, mode) in [("inner/made", 0o300), ("inner", 0), ("", 0o311), ("..", 0)] {
            let path = build.join("a/file").join(path);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let found = find(&build);
        let key = (Function::Sha256.digest(b"made"), true);
        assert_eq!(found.keep, [(key, "a/file/inner/made".to_owned())], "it can still be run");
        assert_eq!(found.result.output_directories.len(), 1);
    }

    #[test]
    fn large_files_are_read_from_below_the_root_wherever_links_of_the_action_lead() {
        let base = tempfile::tempdir().unwrap();
        let large = vec![b'x'; 1 + usize::try_from(UNASKED_BYTES).unwrap()];
        let (build, _) = root_with_a_way_out(base.path(), &large);
        let found = find(&build);
        let [(digest, path)] = found.files.as_slice() else { panic!("{found:?}") };
        let mut content = Vec::new();
        found.root.as_ref().unwrap().file(path).unwrap().read_to_end(&mut content).unwrap();
        assert_eq!(Function::Sha256.digest(&content), *digest);
    }
}
