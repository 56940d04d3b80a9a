//! Stand-ins for the repositories of rules that the Bazel of Debian would fetch: folders whose rules
//! are the ones built into it, so that no network is needed.

use std::path::Path;

use super::BuildError;

/// Repositories of rules: name, package, and what is loaded from there.
const RULES: [(&str, &str, &[&str]); 3] = [
    (
        "rules_cc",
        "cc",
        &[
            "cc_binary",
            "cc_import",
            "cc_library",
            "cc_proto_library",
            "cc_test",
            "cc_toolchain",
            "cc_toolchain_suite",
            "objc_library",
        ],
    ),
    (
        "rules_java",
        "java",
        &[
            "java_binary",
            "java_import",
            "java_library",
            "java_proto_library",
            "java_runtime",
            "java_toolchain",
        ],
    ),
    ("rules_proto", "proto", &["proto_lang_toolchain", "proto_library"]),
];

const COVERAGE_TOOLS: &str = "remote_coverage_tools";

/// What tests need of the tools for coverage: that they are there.
const COVERAGE: &str = "package(default_visibility = [\"//visibility:public\"])\n\
                        filegroup(name = \"coverage_report_generator\", srcs = [\"none.sh\"])\n\
                        filegroup(name = \"lcov_merger\", srcs = [\"none.sh\"])\n";

/// Where Debian has the repository `platforms`.
const PLATFORMS: &str = "/usr/share/bazel/tools/platforms";

/// Writes them below a folder.
pub fn write_all(root: &Path) -> Result<(), BuildError> {
    for (name, package, rules) in RULES {
        write(&root.join(name).join("WORKSPACE"), &format!("workspace(name = \"{name}\")\n"))?;
        write(&root.join(name).join(package).join("BUILD"), "")?;
        let given: String = rules.iter().map(|rule| format!("{rule} = native.{rule}\n")).collect();
        write(&root.join(name).join(package).join("defs.bzl"), &given)?;
    }
    let coverage = root.join(COVERAGE_TOOLS);
    write(&coverage.join("WORKSPACE"), &format!("workspace(name = \"{COVERAGE_TOOLS}\")\n"))?;
    write(&coverage.join("none.sh"), "exit 1\n")?;
    write(&coverage.join("BUILD"), COVERAGE)
}

/// What makes Bazel take those below a folder.
pub fn options(root: &Path) -> Vec<String> {
    let named = RULES.iter().map(|(name, ..)| *name).chain([COVERAGE_TOOLS]);
    let mut options: Vec<String> = named
        .map(|name| format!("--override_repository={name}={}", root.join(name).display()))
        .collect();
    if Path::new(PLATFORMS).is_dir() {
        options.push(format!("--override_repository=platforms={PLATFORMS}"));
    }
    options
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    let failed = |error| BuildError::file(path, error);
    std::fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    std::fs::write(path, text).map_err(failed)
}
