//! Paths that clients and actions name: only what stays inside the input root.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathError {
    #[error("the path {0:?} is absolute; paths are relative to the working directory")]
    Absolute(String),
    #[error("the path {0:?} leaves the input root")]
    Leaves(String),
    /// It has a character that no path may have, or an empty part.
    #[error("the path {0:?} is malformed")]
    Malformed(String),
    #[error("the path {0:?} has more than {DEPTH} directories below each other")]
    Deep(String),
    #[error("{0:?} is not a file name")]
    Name(String),
}

/// Longest name of an entry, as file systems have it.
const NAME_BYTES: usize = 255;
const PATH_BYTES: usize = 4000;
/// Directories below each other in a path or an output.
pub(super) const DEPTH: usize = 200;

/// `path`, which is relative to `directory`, relative to the input root, without `.` and `..`.
pub(super) fn inside(directory: &str, path: &str) -> Result<String, PathError> {
    if path.starts_with('/') {
        return Err(PathError::Absolute(shown(path)));
    }
    if path.contains('\0') || path.len() > PATH_BYTES {
        return Err(PathError::Malformed(shown(path)));
    }
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return Err(PathError::Leaves(shown(path)));
                }
            }
            part if part.len() > NAME_BYTES => return Err(PathError::Malformed(shown(path))),
            part => parts.push(part),
        }
    }
    if parts.len() > DEPTH {
        return Err(PathError::Deep(shown(path)));
    }
    Ok(parts.join("/"))
}

/// The name of an entry of a directory.
pub(super) fn name(name: &str) -> Result<&str, PathError> {
    let bad = name.is_empty()
        || name == "."
        || name == ".."
        || name.len() > NAME_BYTES
        || name.contains(['/', '\0']);
    if bad { Err(PathError::Name(shown(name))) } else { Ok(name) }
}

/// The target of a link in `directory` (relative to the input root). An absolute one may lead anywhere: only actions
/// follow it, and among what they see; the worker never does.
pub(super) fn target(directory: &str, target: &str) -> Result<(), PathError> {
    if target.is_empty() || target.contains('\0') || target.len() > PATH_BYTES {
        return Err(PathError::Malformed(shown(target)));
    }
    if target.starts_with('/') { Ok(()) } else { inside(directory, target).map(drop) }
}

/// As much of a path as a message may show.
fn shown(path: &str) -> String {
    path.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_as_far_as_they_stay_inside() {
        assert_eq!(inside("", "a/b").as_deref(), Ok("a/b"));
        assert_eq!(inside("a/b", "../c/./d").as_deref(), Ok("a/c/d"));
        assert_eq!(inside("a", "").as_deref(), Ok("a"));
        assert!(matches!(inside("a", "../../x"), Err(PathError::Leaves(_))));
        assert!(matches!(inside("", "/etc/passwd"), Err(PathError::Absolute(_))));
        assert!(matches!(inside("", "a\0b"), Err(PathError::Malformed(_))));
        assert!(matches!(inside("", &"x/".repeat(3000)), Err(PathError::Malformed(_))));
        for bad in ["", ".", "..", "a/b", "a\0", &"x".repeat(256)] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        assert!(target("a/b", "../../c").is_ok());
        assert!(target("a", "../../c").is_err());
        assert!(target("a", "/usr/bin/python3").is_ok());
        for bad in ["", "/a\0", "/a".repeat(3000).as_str()] {
            assert!(matches!(target("a", bad), Err(PathError::Malformed(_))), "{bad:?}");
        }
        assert!(inside("", &"d/".repeat(DEPTH)).is_ok());
        assert!(matches!(inside("d", &"d/".repeat(DEPTH)), Err(PathError::Deep(_))));
    }
}
