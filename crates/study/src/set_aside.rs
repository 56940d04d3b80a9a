//! Results of a study that was mended before it had measured anything.

use std::path::Path;

/// What the folders are called that hold them.
const ASIDE: &str = "before-mending";

/// Folder of a study's first pass, below its own: what it begins with stays where it was made.
pub const FIRST_PASS: &str = "first-pass";

/// Moves everything in a folder but its lock and first passes into a folder below it.
pub(crate) fn set_aside(folder: &Path) -> std::io::Result<()> {
    let aside = (1..)
        .map(|number: u32| folder.join(format!("{ASIDE}-{number}")))
        .find(|aside| !aside.exists())
        .unwrap_or_else(|| folder.join(ASIDE));
    std::fs::create_dir_all(&aside)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let stays = [ASIDE, FIRST_PASS].iter().any(|one| name.to_string_lossy().starts_with(one));
        if name != "lock" && !stays {
            std::fs::rename(entry.path(), aside.join(&name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_lock_is_moved_and_nothing_is_lost_the_second_time() {
        let folder = tempfile::tempdir().unwrap();
        for round in 1..=2 {
            std::fs::write(folder.path().join("lock"), "").unwrap();
            std::fs::write(folder.path().join("results.db"), round.to_string()).unwrap();
            set_aside(folder.path()).unwrap();
            assert!(folder.path().join("lock").exists());
            assert!(!folder.path().join("results.db").exists());
        }
        for round in 1..=2 {
            let kept = folder.path().join(format!("{ASIDE}-{round}/results.db"));
            assert_eq!(std::fs::read_to_string(kept).unwrap(), round.to_string());
        }
    }
}
