//! Caveats that a tier states when it ends: lines `remark KIND: TEXT` on its standard output.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use kendall_stats::estimate::Caveat;

/// How much of the end of a tier's output is read.
const LAST_BYTES: u64 = 64 * 1024;
/// Remarks of one tier at most.
const MOST: usize = 20;

/// What the tiers of a run remarked, each with the name of its folder, such as `database-0`.
pub(crate) fn of_run(folder: &Path) -> Vec<Caveat> {
    let mut folders: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    // Folders of loads and links have a dot, which no tier's name has. What a load printed is its result,
    // whatever its lines begin with.
    let of_a_tier = |name: &String| !name.contains('.');
    let named = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    folders
        .iter()
        .filter_map(|path| Some((named(path).filter(of_a_tier)?, path)))
        .filter_map(|(name, path)| Some((name, end_of(&path.join("output"), LAST_BYTES)?)))
        .flat_map(|(name, output)| remarked(&name, &output))
        .collect()
}

/// What a tier remarked in what it printed.
fn remarked(name: &str, output: &str) -> Vec<Caveat> {
    let remarks = output.lines().filter_map(|line| line.strip_prefix("remark ")?.split_once(": "));
    let caveat = |(kind, text): (&str, &str)| Caveat::Remarked {
        generator: None,
        kind: kind.to_owned(),
        text: format!("{name}: {text}"),
    };
    remarks.take(MOST).map(caveat).collect()
}

/// For fuzzing: what a tier prints.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(text: &str) {
    let found = remarked("a-0", text);
    assert!(found.len() <= MOST.min(text.matches("remark ").count()));
}

/// The last bytes of a file, which may grow.
pub(crate) fn end_of(path: &Path, most: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most))).ok()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_of_tiers_are_caveats_of_the_run() {
        let folder = tempfile::tempdir().unwrap();
        for (tier, output) in [
            ("database-0", "requests 7\nremark checkpoints: 3 came too often\n"),
            ("proxies-0", "remark without a kind\nremarkable: no\n"),
            ("generator.0", "remark load: no tier says this\n"),
            ("pgbench.fill", "remark load: nor this\n"),
        ] {
            std::fs::create_dir(folder.path().join(tier)).unwrap();
            std::fs::write(folder.path().join(tier).join("output"), output).unwrap();
        }
        std::fs::create_dir(folder.path().join("generator.1")).unwrap();
        let caveats = of_run(folder.path());
        assert_eq!(
            caveats,
            [Caveat::Remarked {
                generator: None,
                kind: "checkpoints".to_owned(),
                text: "database-0: 3 came too often".to_owned(),
            }]
        );
    }
}
