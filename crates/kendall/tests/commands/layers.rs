//! The dependency rows of `docs/architecture.md`, held by this test: a crate uses only crates on
//! rows below its own, and the pure crates bring no input or output with them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Row of every crate; see `docs/architecture.md`.
const ROWS: &[(&str, u32)] = &[
    ("kendall-testing", 0),
    ("kendall-units", 0),
    ("kendall-keys", 1),
    ("kendall-protocols", 1),
    ("kendall-stats", 1),
    ("kendall-queueing", 2),
    ("kendall-fit", 3),
    ("kendall-store", 3),
    ("kendall-tier", 3),
    ("kendall-build-cluster", 4),
    ("kendall-compute", 4),
    ("kendall-link", 4),
    ("kendall-loadgen", 4),
    ("kendall-memcached-proxy", 4),
    ("kendall-message-queue", 4),
    ("kendall-synthetic", 4),
    ("kendall-textbook", 4),
    ("kendall-observations", 4),
    ("kendall-host", 4),
    ("kendall-study", 5),
    ("kendall-console", 6),
    ("kendall-report", 6),
    ("kendall-observe", 7),
    ("kendall", 8),
    ("kendall-fuzz", 9),
    ("kendall-python", 9),
];

/// Crates that must stay free of input, output, threads of control and clocks.
const PURE: &[&str] = &[
    "kendall-keys",
    "kendall-units",
    "kendall-protocols",
    "kendall-queueing",
    "kendall-stats",
    "kendall-fit",
    "kendall-textbook",
];

/// Libraries that would bring input or output into a pure crate.
const IMPURE: &[&str] =
    &["hyper", "mio", "procfs", "reqwest", "rusqlite", "rustix", "tokio", "tracing"];

/// Every workspace crate, from `cargo metadata`.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Direct dependencies (tests excluded) of every workspace crate.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    packages()
        .iter()
        .map(|package| {
            let uses = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|dependency| dependency["kind"].is_null())
                .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
                .collect();
            (package["name"].as_str().unwrap().to_owned(), uses)
        })
        .collect()
}

#[test]
fn a_crate_uses_only_crates_on_rows_below_its_own() {
    let rows: BTreeMap<&str, u32> = ROWS.iter().copied().collect();
    let dependencies = dependencies();
    for name in dependencies.keys() {
        assert!(rows.contains_key(name.as_str()), "{name} has no row: add it here and in the docs");
    }
    for (name, uses) in &dependencies {
        for used in uses.iter().filter_map(|used| rows.get_key_value(used.as_str())) {
            assert!(
                *used.1 < rows[name.as_str()],
                "{name} (row {}) uses {} (row {})",
                rows[name.as_str()],
                used.0,
                used.1
            );
        }
    }
}

#[test]
fn the_pure_crates_bring_no_input_or_output() {
    let dependencies = dependencies();
    for name in PURE {
        for used in &dependencies[*name] {
            assert!(!IMPURE.contains(&used.as_str()), "{name} is pure and uses {used}");
        }
    }
}

#[test]
fn a_study_links_no_tier_and_a_report_links_no_study() {
    let dependencies = dependencies();
    let links = |name: &str, used: &str| dependencies[name].iter().any(|d| d == used);
    for tier in [
        "kendall-memcached-proxy",
        "kendall-message-queue",
        "kendall-build-cluster",
        "kendall-compute",
        "kendall-link",
        "kendall-synthetic",
    ] {
        assert!(!links("kendall-study", tier), "a study starts {tier} as a process");
    }
    assert!(!links("kendall-report", "kendall-study"), "a report is made from stored rows");
}

/// Whether a file of this folder has an example that rustdoc builds.
fn has_example(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return has_example(&path);
        }
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("/// ```").or_else(|| line.strip_prefix("//! ```"))
        });
        // Every second fence ends a block.
        lines.step_by(2).any(|language| !matches!(language, "text" | "toml" | "json" | "sh"))
    })
}

/// Rustdoc reads a whole library to find out that it has no example.
#[test]
fn documentation_tests_are_on_where_there_are_examples_and_nowhere_else() {
    for package in packages() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let targets = package["targets"].as_array().unwrap();
        for target in targets.iter().filter(|target| target["kind"][0] == "lib") {
            let example = has_example(&folder.join("src"));
            assert_eq!(
                target["doctest"], example,
                "{}: write `doctest = {example}` below [lib] in Cargo.toml",
                package["name"]
            );
        }
    }
}
