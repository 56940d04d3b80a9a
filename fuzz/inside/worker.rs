//! For `fuzz/`: what clients name, without a worker around it.

use super::paths;
use super::tree::Folder;
use crate::digest::Function;

/// A directory that a client stored.
///
/// # Panics
/// When an entry of what was accepted has a name that leads elsewhere.
pub fn directory(bytes: &[u8]) {
    let Ok(folder) = Folder::parse(Function::Sha256.digest(bytes), bytes) else { return };
    let files = folder.files.iter().map(|file| file.name.as_str());
    let folders = folder.folders.iter().map(|(name, _)| name.as_str());
    let links = folder.links.iter().map(|(name, _)| name.as_str());
    for name in files.chain(folders).chain(links) {
        assert!(!name.is_empty() && !name.contains(['/', '\0']) && name != "..", "{name:?}");
    }
}

/// A path, and the directory that it is relative to: the first line.
///
/// # Panics
/// When what was accepted leaves the input root.
pub fn path(text: &str) {
    let (directory, path) = text.split_once('\n').unwrap_or(("", text));
    let Ok(directory) = paths::inside("", directory) else { return };
    if let Ok(inside) = paths::inside(&directory, path) {
        assert!(!inside.starts_with('/') && !inside.contains('\0'), "{inside:?}");
        assert!(inside.split('/').all(|part| part != ".." && part != "."), "{inside:?}");
        assert_eq!(paths::inside("", &inside).as_deref(), Ok(inside.as_str()));
    }
    if paths::target(&directory, path).is_ok() && !path.starts_with('/') {
        assert!(paths::inside(&directory, path).is_ok(), "{path:?}");
    }
}
