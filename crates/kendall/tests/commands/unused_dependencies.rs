//! A crate names each of its dependencies somewhere: what it does not use still costs everyone a build.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::path::Path;

use super::sources::{self, Part};

/// Named by code that a build script writes.
const GENERATED: &[(&str, &str)] =
    &[("kendall-protocols", "prost"), ("kendall-message-queue", "tonic-prost")];

/// To be removed from crates that are being rewritten; this list only becomes shorter.
const LEFT: &[(&str, &str)] = &[
    ("kendall-message-queue", "kendall-stats"),
    ("kendall-message-queue", "kendall-units"),
    ("kendall-stats", "proptest"),
];

/// Words of all Rust files in these folders of a crate.
fn named(folder: &Path, within: &[&str], part: Part) -> BTreeSet<String> {
    let files = within.iter().flat_map(|name| sources::files(&folder.join(name)));
    files.flat_map(|file| sources::words(&std::fs::read_to_string(file).unwrap(), part)).collect()
}

#[test]
fn every_dependency_is_used() {
    let metadata = super::layers::metadata();
    let mut unused = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        // Targets of fuzzing are files of their own, wherever the manifest says.
        let sources = ["src", "targets", "fuzz_targets"];
        let own = named(folder, &sources, Part::WithoutTests);
        let tests = named(folder, &["src", "tests", "benches", "examples"], Part::All);
        let build = std::fs::read_to_string(folder.join("build.rs")).unwrap_or_default();
        let build: BTreeSet<String> = sources::words(&build, Part::All).into_iter().collect();
        for dependency in package["dependencies"].as_array().unwrap() {
            let of = dependency["name"].as_str().unwrap();
            let word = match of {
                "md-5" => "md5".to_owned(),
                of => of.replace('-', "_"),
            };
            let kind = dependency["kind"].as_str().unwrap_or("normal");
            let names = match kind {
                "dev" => &tests,
                "build" => &build,
                _ => &own,
            };
            let left_out = GENERATED.contains(&(name, of)) || LEFT.contains(&(name, of));
            if !names.contains(&word) && !left_out {
                unused.push(format!("{name}: {of} ({kind})"));
            }
        }
    }
    assert!(unused.is_empty(), "remove them from Cargo.toml:\n{}", unused.join("\n"));
}
