//! The Python package as it is installed: its examples, its frames and figures, and the notebook of `examples/`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// A folder with the package as a wheel lays it out: the Python files, and beside them the library that was just built.
static INSTALLED: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("kendall");
    std::fs::create_dir(&package).unwrap();
    for entry in std::fs::read_dir(repository().join("crates/python/python/kendall")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, package.join(path.file_name().unwrap())).unwrap();
        }
    }
    let library = std::env::current_exe().unwrap().with_file_name("libkendall_python.so");
    std::fs::copy(&library, package.join("_native.abi3.so")).unwrap();
    folder
});

/// Folder of the program, which the tests of the whole workspace build.
fn programs() -> PathBuf {
    let folder = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    assert!(
        folder.join("kendall").is_file(),
        "no program in {folder:?}: build it with `cargo build`"
    );
    folder
}

fn python(script: &str, folder: &Path, arguments: &[&str]) {
    let packages = repository().join("target/python-packages");
    assert!(packages.join("installed").is_file(), "install them with `scripts/packages test`");
    let paths = std::env::join_paths([INSTALLED.path(), &packages]).unwrap();
    let old = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(programs()).chain(std::env::split_paths(&old)));
    let output = Command::new("python3")
        .arg(repository().join("crates/python/tests").join(script))
        .args(arguments)
        .current_dir(folder)
        .env("PYTHONPATH", paths)
        .env("PATH", path.unwrap())
        .output()
        .unwrap();
    let (out, error) = (&output.stdout, &output.stderr);
    let said = format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(error));
    assert!(output.status.success(), "{said}");
}

#[test]
fn examples_of_docstrings_and_of_the_documents_page_run() {
    let folder = tempfile::tempdir().unwrap();
    let page = repository().join("docs/python.md");
    python("examples.py", folder.path(), &[page.to_str().unwrap()]);
}

#[test]
fn the_notebook_repeats_a_published_study_and_its_results_are_frames_and_figures() {
    let folder = tempfile::tempdir().unwrap();
    let notebook = repository().join("examples/notebooks/known-station.ipynb");
    python(
        "notebook.py",
        folder.path(),
        &[notebook.to_str().unwrap(), repository().to_str().unwrap()],
    );
}

#[test]
fn errors_have_the_words_of_the_program_and_threads_go_on() {
    let folder = tempfile::tempdir().unwrap();
    python("calls.py", folder.path(), &[]);
}
