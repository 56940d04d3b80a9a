//! `kendall export`: every table in every format, read by the programs that it is for.
#![expect(clippy::unwrap_used, reason = "a test: what cannot be done fails it")]

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{kendall, repository};

fn export(results: &Path, words: &[&str]) -> Output {
    kendall().arg("export").arg(results).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn duckdb_and_polars_read_what_is_exported_and_all_formats_hold_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("study.toml");
    let text = "name = 'exported'\n[system]\nkind = 'synthetic'\nservice = 'constant:1ms'\n\
                [workload]\nloop = 'closed'\n\
                [measure]\nduration = '400ms'\nwarm_up = '0s'\ncool_down = '0s'\nrepetitions = 2\n\
                [factors]\n'workload.clients' = [1, 2]\n";
    std::fs::write(&study, text).unwrap();
    let results = folder.path().join("results");
    let run = kendall().arg("run").arg(&study).arg("--out").arg(&results).output().unwrap();
    // A busy machine may make a run unusable; what is stored is enough here.
    assert!(matches!(run.status.code(), Some(0 | 5)), "{}", said(&run));
    for format in ["parquet", "csv", "json"] {
        let out = folder.path().join(format);
        let output = export(&results, &["--format", format, "--out", out.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    }
    let packages = repository().join("target/python-packages");
    assert!(packages.join("installed").is_file(), "install them with `scripts/packages test`");
    let read = Command::new("python3")
        .arg(repository().join("crates/kendall/tests/studies/export.py"))
        .arg(folder.path())
        .env("PYTHONPATH", packages)
        .output()
        .unwrap();
    assert!(read.status.success(), "{}{}", String::from_utf8_lossy(&read.stdout), said(&read));

    let one = export(&results, &["--format", "csv", "--table", "stored/runs"]);
    assert_eq!(one.status.code(), Some(0), "{}", said(&one));
    assert!(results.join("export/stored/runs.csv").is_file());
    assert!(!results.join("export/stored/study.csv").exists());
    let none = export(&results, &["--format", "csv", "--table", "runs"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(said(&none).contains("stored/runs"), "{}", said(&none));
    // Links that another user may have put there: nothing is written where they lead.
    let (linked, other) = (folder.path().join("linked"), folder.path().join("other"));
    std::fs::create_dir_all(linked.join("stored")).unwrap();
    std::fs::write(&other, "mine").unwrap();
    for link in ["runs.csv", "runs.new"] {
        std::os::unix::fs::symlink(&other, linked.join("stored").join(link)).unwrap();
    }
    let words = ["--format", "csv", "--table", "stored/runs", "--out", linked.to_str().unwrap()];
    let output = export(&results, &words);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    std::fs::remove_dir_all(linked.join("stored")).unwrap();
    std::os::unix::fs::symlink(folder.path(), linked.join("stored")).unwrap();
    assert_eq!(export(&results, &words).status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine");
    assert!(!folder.path().join("runs.csv").exists());
    // A folder that cannot be made: its place is taken by a file.
    let taken = export(&results, &["--format", "csv", "--out", study.to_str().unwrap()]);
    assert_eq!(taken.status.code(), Some(3), "{}", said(&taken));
    let missing = export(folder.path(), &["--format", "csv"]);
    assert_eq!(missing.status.code(), Some(2), "{}", said(&missing));
}
