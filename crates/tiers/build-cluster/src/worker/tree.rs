//! The tree of an action's inputs: read from the cache, checked, and made on disk.

use std::collections::HashMap;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use prost::Message as _;

use super::paths::{self, PathError};
use crate::digest::{Digest, DigestError};
use crate::remote::{Remote, RemoteError};
use crate::wire::re;

#[derive(Debug, Clone, Copy)]
pub struct TreeLimits {
    /// Files, directories and links.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Directories below each other.
    pub depth: usize,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    #[error("the directory {0} is malformed")]
    Malformed(Digest),
    #[error(transparent)]
    Digest(#[from] DigestError),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("a directory has two entries named {0:?}")]
    Twice(String),
    #[error("the input root has {what} than the {limit} that this worker allows")]
    Bound { what: &'static str, limit: u64 },
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

#[derive(Debug, Clone)]
pub(super) struct InputFile {
    pub name: String,
    pub digest: Digest,
    /// Whether it can be run.
    pub executable: bool,
    /// Time and mode that it shall have, if any.
    pub properties: Option<re::NodeProperties>,
}

#[derive(Debug, Default)]
pub(super) struct Folder {
    pub files: Vec<InputFile>,
    pub folders: Vec<(String, Digest)>,
    /// Its links and their targets.
    pub links: Vec<(String, String)>,
}

/// The tree below one directory: every different directory once.
#[derive(Debug)]
pub(super) struct Tree {
    pub root: Digest,
    pub folders: HashMap<Digest, Arc<Folder>>,
}

/// Directories that were read before.
#[derive(Debug)]
pub(super) struct Folders {
    known: Mutex<LruCache<Digest, Arc<Folder>>>,
    limits: TreeLimits,
}

impl TreeLimits {
    fn too_deep(&self) -> TreeError {
        TreeError::Bound { what: "deeper directories", limit: self.depth as u64 }
    }
}

impl Folder {
    pub(super) fn parse(digest: Digest, content: &[u8]) -> Result<Self, TreeError> {
        let wire = re::Directory::decode(content).map_err(|_| TreeError::Malformed(digest))?;
        let function = digest.function;
        let mut names = std::collections::HashSet::new();
        let mut once = |name: &str| {
            paths::name(name)?;
            if names.insert(name.to_owned()) {
                Ok(())
            } else {
                Err(TreeError::Twice(name.to_owned()))
            }
        };
        let mut folder = Self::default();
        for file in wire.files {
            once(&file.name)?;
            folder.files.push(InputFile {
                digest: Digest::required(function, file.digest.as_ref())?,
                name: file.name,
                executable: file.is_executable,
                properties: file.node_properties.filter(|properties| {
                    properties.mtime.is_some() || properties.unix_mode.is_some()
                }),
            });
        }
        for sub in wire.directories {
            once(&sub.name)?;
            folder.folders.push((sub.name, Digest::required(function, sub.digest.as_ref())?));
        }
        for link in wire.symlinks {
            once(&link.name)?;
            folder.links.push((link.name, link.target));
        }
        Ok(folder)
    }
}

impl Folders {
    /// Remembers so many directories.
    pub(super) fn new(remembered: std::num::NonZeroUsize, limits: TreeLimits) -> Self {
        Self { known: Mutex::new(LruCache::new(remembered)), limits }
    }

    /// Reads the tree below `root`, level by level, each directory once.
    pub(super) async fn read(
        &self,
        remote: &Remote,
        instance: &str,
        root: Digest,
    ) -> Result<Tree, TreeError> {
        let mut folders: HashMap<Digest, Arc<Folder>> = HashMap::new();
        let mut level = vec![root];
        let mut missing = Vec::new();
        for depth in 0.. {
            if level.is_empty() {
                break;
            }
            // A directory's first level is its least: a tree that is refused here is nowhere less deep, and each
            // level is a question to the cache.
            if depth > self.limits.depth {
                return Err(self.limits.too_deep());
            }
            let mut unknown = Vec::new();
            let mut read = Vec::new();
            for digest in level {
                match self.known(&digest) {
                    Some(folder) => read.push((digest, folder)),
                    None => unknown.push(digest),
                }
            }
            match remote.read(instance, &unknown).await {
                Ok(contents) => {
                    for (digest, content) in contents {
                        read.push((digest, self.learn(digest, &content)?));
                    }
                }
                // Everything else that is missing is collected before the client gets an answer.
                Err(RemoteError::Missing(some)) => missing.extend(some),
                Err(error) => return Err(error.into()),
            }
            level = next_level(read, &mut folders, &missing);
            if folders.len() as u64 + level.len() as u64 > self.limits.entries {
                return Err(self.too_many());
            }
        }
        if !missing.is_empty() {
            return Err(RemoteError::Missing(missing).into());
        }
        let tree = Tree { root, folders };
        tree.check(&self.limits)?;
        Ok(tree)
    }

    fn too_many(&self) -> TreeError {
        TreeError::Bound { what: "more entries", limit: self.limits.entries }
    }

    fn known(&self, digest: &Digest) -> Option<Arc<Folder>> {
        if digest.is_empty() {
            return Some(Arc::default());
        }
        self.known.lock().get(digest).cloned()
    }

    fn learn(&self, digest: Digest, content: &[u8]) -> Result<Arc<Folder>, TreeError> {
        let folder = Arc::new(Folder::parse(digest, content)?);
        let mut known = self.known.lock();
        known.put(digest, Arc::clone(&folder));
        Ok(folder)
    }
}

/// Adds a level to `folders`: the directories that it names and that are not there yet.
fn next_level(
    level: Vec<(Digest, Arc<Folder>)>,
    folders: &mut HashMap<Digest, Arc<Folder>>,
    missing: &[Digest],
) -> Vec<Digest> {
    let named = level.iter().flat_map(|(_, folder)| folder.folders.iter());
    let mut next: Vec<Digest> = named.map(|(_, digest)| *digest).collect();
    folders.extend(level);
    next.sort_unstable();
    next.dedup();
    next.retain(|digest| !folders.contains_key(digest) && !missing.contains(digest));
    next
}

/// Size of the tree below a directory, that of equal directories counted each time.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    entries: u64,
    bytes: u64,
    depth: usize,
}

impl Tree {
    /// Every different file of the tree.
    pub(super) fn files(&self) -> HashMap<(Digest, bool), ()> {
        let files = self.folders.values().flat_map(|folder| &folder.files);
        files.map(|file| ((file.digest, file.executable), ())).collect()
    }

    /// Holds the tree against its bounds. A few directories that name each other many times make a
    /// tree that no disk can hold, so it is weighed without being walked.
    fn check(&self, limits: &TreeLimits) -> Result<(), TreeError> {
        let mut known = HashMap::new();
        let whole = self.weigh(self.root, 0, limits, &mut known)?;
        if whole.entries > limits.entries {
            return Err(TreeError::Bound { what: "more entries", limit: limits.entries });
        }
        if whole.bytes > limits.bytes {
            return Err(TreeError::Bound { what: "more bytes", limit: limits.bytes });
        }
        Ok(())
    }

    fn weigh(
        &self,
        digest: Digest,
        depth: usize,
        limits: &TreeLimits,
        known: &mut HashMap<Digest, Weight>,
    ) -> Result<Weight, TreeError> {
        if let Some(weight) = known.get(&digest) {
            let deep = depth + weight.depth > limits.depth;
            return if deep { Err(limits.too_deep()) } else { Ok(*weight) };
        }
        if depth > limits.depth {
            return Err(limits.too_deep());
        }
        let Some(folder) = self.folders.get(&digest) else { return Ok(Weight::default()) };
        let own = folder.files.len() + folder.folders.len() + folder.links.len();
        let bytes = folder.files.iter().map(|file| file.digest.size);
        let mut weight =
            Weight { entries: own as u64, bytes: bytes.fold(0, u64::saturating_add), depth: 1 };
        for (_, sub) in &folder.folders {
            let sub = self.weigh(*sub, depth + 1, limits, known)?;
            weight.entries = weight.entries.saturating_add(sub.entries);
            weight.bytes = weight.bytes.saturating_add(sub.bytes);
            weight.depth = weight.depth.max(sub.depth + 1);
        }
        known.insert(digest, weight);
        Ok(weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Function;

    const LIMITS: TreeLimits = TreeLimits { entries: 1000, bytes: 1 << 20, depth: 64 };

    fn directory(names: &[(&str, Digest)]) -> (Digest, Arc<Folder>) {
        let directories = names
            .iter()
            .map(|(name, digest)| re::DirectoryNode {
                name: (*name).to_owned(),
                digest: Some(digest.to_wire()),
            })
            .collect();
        let content = re::Directory { directories, ..re::Directory::default() }.encode_to_vec();
        let digest = Function::Sha256.digest(&content);
        (digest, Arc::new(Folder::parse(digest, &content).unwrap()))
    }

    #[test]
    fn a_small_tree_that_unfolds_to_more_than_a_disk_holds_is_refused_without_walking_it() {
        let (mut digest, folder) = directory(&[]);
        let mut folders = HashMap::from([(digest, folder)]);
        for _ in 0..60 {
            let (next, folder) = directory(&[("a", digest), ("b", digest)]);
            folders.insert(next, folder);
            digest = next;
        }
        let error = Tree { root: digest, folders }.check(&LIMITS).unwrap_err();
        assert!(matches!(error, TreeError::Bound { what: "more entries", .. }), "{error}");
    }

    #[test]
    fn a_tree_that_is_too_deep_is_refused() {
        let (mut digest, folder) = directory(&[]);
        let mut folders = HashMap::from([(digest, folder)]);
        for _ in 0..100 {
            let (next, folder) = directory(&[("a", digest)]);
            folders.insert(next, folder);
            digest = next;
        }
        let error = Tree { root: digest, folders }.check(&LIMITS).unwrap_err();
        assert!(matches!(error, TreeError::Bound { what: "deeper directories", .. }), "{error}");
    }

    #[test]
    fn names_that_leave_their_directory_or_come_twice_are_refused() {
        let digest = Function::Sha256.digest(b"x");
        let file = |name: &str| re::FileNode {
            name: name.to_owned(),
            digest: Some(digest.to_wire()),
            ..re::FileNode::default()
        };
        for names in [vec![".."], vec!["a/b"], vec![""], vec!["a", "a"]] {
            let files = names.iter().map(|name| file(name)).collect();
            let content = re::Directory { files, ..re::Directory::default() }.encode_to_vec();
            assert!(Folder::parse(digest, &content).is_err(), "{names:?}");
        }
    }
}
