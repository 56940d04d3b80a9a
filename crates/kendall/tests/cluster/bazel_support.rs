//! A workspace that the Bazel of Debian builds without a network: C++ with a test, and twenty-one
//! generated files.
//!
//! That Bazel looks for its rules in repositories that it would fetch; `kendall load bazel` has stand-ins
//! for them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::process::{Command, Output};

use kendall_loadgen::bazel::stand_ins;

/// Generated files besides the one made of all of them.
pub const GENERATED: usize = 20;

/// A folder with the workspace, and a Bazel of its own that builds it.
pub struct Workspace {
    folder: tempfile::TempDir,
}

/// What a build said it did.
#[derive(Debug, PartialEq, Eq)]
pub struct Built {
    /// Processes that ran on this machine.
    pub local: usize,
    /// Actions that were answered from the cache.
    pub hits: usize,
    /// Actions that were executed elsewhere.
    pub remote: usize,
}

/// A test that needs Bazel and finds none fails: a skipped test is not evidence.
pub fn required() {
    let there = Path::new("/usr/bin/bazel").exists()
        && Path::new("/usr/share/bazel/tools/platforms").exists();
    assert!(there, "bazel-bootstrap and bazel-platforms are missing: run `make packages-test`");
}

impl Workspace {
    /// Writes it. Content differs by `seed`, so that two workspaces share no action.
    pub fn new(seed: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        stand_ins::write_all(root).unwrap();
        sources(&root.join("main"), seed);
        Self { folder }
    }

    /// Where the sources are.
    pub fn sources(&self) -> std::path::PathBuf {
        self.folder.path().join("main")
    }

    /// Runs Bazel with `arguments`, such as `test //...`.
    pub fn bazel(&self, command: &str, arguments: &[&str]) -> Output {
        let root = self.folder.path();
        let mut bazel = Command::new("bazel");
        bazel
            .current_dir(root.join("main"))
            .env("HOME", root)
            .args(["--nohome_rc", "--host_jvm_args=-Xmx512m"])
            .arg(format!("--output_user_root={}", root.join("output").display()))
            .arg(command);
        if command != "shutdown" {
            bazel.args(stand_ins::options(root)).args(["--curses=no", "--color=no"]);
        }
        bazel.args(arguments).output().unwrap()
    }

    /// Builds and tests everything; fails the test that asked when Bazel does.
    pub fn test(&self, arguments: &[&str]) -> Built {
        self.try_test(arguments).unwrap_or_else(|said| panic!("bazel test {arguments:?}\n{said}"))
    }

    /// Builds and tests everything; what Bazel said when it fails.
    pub fn try_test(&self, arguments: &[&str]) -> Result<Built, String> {
        let output = self.bazel("test", &[arguments, &["//..."]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(built(&said)) } else { Err(said) }
    }

    /// Removes what was built.
    pub fn clean(&self) {
        let output = self.bazel("clean", &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.bazel("shutdown", &[]);
        // Bazel makes what it built unwritable.
        let folder = self.folder.path().join("output");
        Command::new("chmod").arg("-R").arg("u+w").arg(folder).output().unwrap();
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn sources(folder: &Path, seed: u32) {
    write(&folder.join("WORKSPACE"), "workspace(name = \"main\")\n");
    let mut build = String::from(
        "cc_library(name = \"sum\", srcs = [\"sum.cc\"], hdrs = [\"sum.h\"])\n\
         cc_binary(name = \"program\", srcs = [\"program.cc\"], deps = [\":sum\"])\n\
         cc_test(name = \"sum_test\", size = \"small\", srcs = [\"sum_test.cc\"], deps = [\":sum\"])\n",
    );
    for number in 0..GENERATED {
        build.push_str(&format!(
            "genrule(name = \"g{number}\", outs = [\"g{number}.txt\"], \
             cmd = \"echo {seed} {number} > $@\")\n"
        ));
    }
    let parts: Vec<String> = (0..GENERATED).map(|number| format!("\":g{number}\"")).collect();
    build.push_str(&format!(
        "genrule(name = \"all\", srcs = [{}], outs = [\"all.txt\"], cmd = \"cat $(SRCS) > $@\")\n",
        parts.join(", ")
    ));
    write(&folder.join("BUILD"), &build);
    write(&folder.join("sum.h"), &format!("// {seed}\nint sum(int a, int b);\n"));
    write(&folder.join("sum.cc"), "#include \"sum.h\"\nint sum(int a, int b) { return a + b; }\n");
    write(
        &folder.join("program.cc"),
        "#include \"sum.h\"\n#include <cstdio>\nint main() { std::printf(\"%d\\n\", sum(1, 2)); }\n",
    );
    write(
        &folder.join("sum_test.cc"),
        "#include \"sum.h\"\nint main() { return sum(1, 2) == 3 ? 0 : 1; }\n",
    );
}

/// Reads `INFO: 31 processes: 30 remote cache hit, 1 internal.`
pub fn built(said: &str) -> Built {
    let line = said.lines().find(|line| line.contains(" process")).unwrap_or_default();
    let (_, counts) = line.rsplit_once(": ").unwrap_or_default();
    let mut built = Built { local: 0, hits: 0, remote: 0 };
    for count in counts.trim_end_matches('.').split(", ") {
        let (number, kind) = count.split_once(' ').unwrap_or_default();
        let number = number.parse().unwrap_or(0);
        match kind {
            "remote cache hit" => built.hits += number,
            "remote" => built.remote += number,
            "internal" => {}
            _ => built.local += number,
        }
    }
    built
}
