//! The workspace of a build: a test, or generated files in layers.

use std::path::{Path, PathBuf};

use super::stand_ins::{self, write};
use super::{BuildError, BuildPlan, TaskKind};

/// A folder with sources, stand-ins, and what Bazel makes; removed when dropped.
#[derive(Debug)]
pub(super) struct Workspace {
    folder: PathBuf,
}

impl Workspace {
    pub(super) fn write(plan: &BuildPlan, around: &Path) -> Result<Self, BuildError> {
        let around =
            std::path::absolute(around).map_err(|error| BuildError::file(around, error))?;
        let folder = around.join(format!("kendall-build-{}", std::process::id()));
        let workspace = Self { folder };
        let root = &workspace.folder;
        stand_ins::write_all(root)?;
        let main = workspace.sources();
        write(&main.join("WORKSPACE"), "workspace(name = \"main\")\n")?;
        write(&main.join("BUILD"), &build_file(plan))?;
        if plan.kind == TaskKind::Tests {
            let script = main.join("task.sh");
            write(&script, &test_script(plan))?;
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&script, executable)
                .map_err(|error| BuildError::file(&script, error))?;
        }
        Ok(workspace)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn sources(&self) -> PathBuf {
        self.folder.join("main")
    }

    pub(super) fn profile(&self) -> PathBuf {
        self.folder.join("profile.json")
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        writable(&self.folder);
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "a workspace is left");
        }
    }
}

/// Bazel makes output folders unwritable; their files could not be removed.
fn writable(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(entry.path(), mode).unwrap_or_default();
            writable(&entry.path());
        }
    }
}

/// The work of a task, as a shell says it.
fn work(plan: &BuildPlan) -> String {
    let mut script = String::new();
    if plan.work > 0 {
        script.push_str(&format!("i=0; while [ $i -lt {} ]; do i=$((i+1)); done; ", plan.work));
    }
    if plan.sleep_s > 0.0 {
        script.push_str(&format!("sleep {}; ", plan.sleep_s));
    }
    script
}

/// A test that says what it found, so that Bazel runs no further action to say it.
fn test_script(plan: &BuildPlan) -> String {
    format!(
        "#!/bin/sh\n# {}\n{}\necho '<testsuites/>' > \"$XML_OUTPUT_FILE\"\n",
        plan.seed,
        work(plan)
    )
}

fn build_file(plan: &BuildPlan) -> String {
    if plan.kind == TaskKind::Tests {
        return "sh_test(name = \"task\", size = \"medium\", srcs = [\"task.sh\"])\n".to_owned();
    }
    // Bazel takes `$` for itself.
    let work = work(plan).replace('$', "$$");
    let layers = plan.layers.max(1);
    let mut text = String::new();
    for number in 0..plan.tasks {
        let needs: Vec<String> =
            needs(number, plan.tasks, layers).iter().map(|n| format!("\":task_{n}\"")).collect();
        text.push_str(&format!(
            "genrule(name = \"task_{number}\", srcs = [{}], outs = [\"task_{number}.txt\"], \
             cmd = \"{work}echo {} {number} > $@\")\n",
            needs.join(", "),
            plan.seed
        ));
    }
    text
}

/// What a task of a layer needs: two of the layer before, where there is one.
fn needs(number: u32, tasks: u32, layers: u32) -> Vec<u32> {
    let width = tasks.div_ceil(layers).max(1);
    let layer = number / width;
    if layer == 0 {
        return Vec::new();
    }
    // The last layer may be smaller; all before it are full.
    let first = (layer - 1) * width;
    let place = number % width;
    let mut needs = vec![first + place, first + (place + 1) % width];
    needs.dedup();
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_of_the_same_size_and_need_those_before() {
        assert!((0..7).all(|number| needs(number, 7, 1).is_empty()));
        // Seven tasks in three layers: 0 1 2, 3 4 5, 6.
        assert_eq!(needs(2, 7, 3), Vec::<u32>::new());
        assert_eq!(needs(5, 7, 3), [2, 0]);
        assert_eq!(needs(6, 7, 3), [3, 4]);
        assert_eq!(needs(1, 2, 2), [0]);
    }
}
