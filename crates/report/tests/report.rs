//! The whole way: stored results in, page, tables and JSON out.

#![expect(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a test fails by panicking; levels are compared with themselves"
)]

mod synthetic;

use std::path::PathBuf;

use synthetic::Synthetic;

/// A folder for one test; `KENDALL_REPORT_OUT` names one that is kept, to be looked at.
fn folder(name: &str) -> (PathBuf, Option<tempfile::TempDir>) {
    if let Some(kept) = std::env::var_os("KENDALL_REPORT_OUT") {
        let folder = PathBuf::from(kept).join(name);
        std::fs::remove_dir_all(&folder).unwrap_or_default();
        return (folder, None);
    }
    let temporary = tempfile::tempdir().unwrap();
    (temporary.path().join(name), Some(temporary))
}

#[test]
fn a_study_of_load_curves_becomes_a_page_tables_and_json() {
    let (folder, _guard) = folder("writes");
    Synthetic::writes().store(&folder);
    let (report, written) = kendall_report::write(&folder).unwrap();
    let html = std::fs::read_to_string(&written.html).unwrap();
    for section in &report.sections {
        assert!(html.contains(&format!("id=\"{}\"", section.id)), "{}", section.id);
    }
    assert!(html.contains("Throughput against load"));
    for number in [">NaN", "\"NaN", "MNaN", ">inf"] {
        assert!(!html.contains(number), "a number that is none: {number}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&written.json).unwrap()).unwrap();
    assert_eq!(json["name"], "memcached-writes");
    let csv = std::fs::read_to_string(folder.join("tables/configurations.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 36);
    assert!(csv.starts_with("system.workers,workload.clients,repetitions,throughput_per_s"));
}

#[test]
fn hostile_titles_are_text_everywhere() {
    let (folder, _guard) = folder("hostile");
    let title = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>".to_owned();
    Synthetic { title, repetitions: 1, ..Synthetic::writes() }.store(&folder);
    let (_, written) = kendall_report::write(&folder).unwrap();
    let html = std::fs::read_to_string(written.html).unwrap();
    assert!(!html.contains("<script>alert"));
    assert!(!html.contains("<img"));
}

#[test]
fn no_results_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let error = kendall_report::analyze(folder.path()).unwrap_err();
    assert!(error.to_string().contains("kendall run"), "{error}");
}

#[test]
fn a_two_level_design_gets_its_effects_and_their_shares() {
    let (folder, _guard) = folder("two-level");
    Synthetic::two_level().store(&folder);
    let (report, written) = kendall_report::write(&folder).unwrap();
    let effects = report.sections.iter().find(|section| section.id == "effects").unwrap();
    let table = effects.tables().find(|table| table.id == "effects-throughput").unwrap();
    let json = serde_json::to_value(table).unwrap();
    // The mean, seven terms and the error; their shares are all of the variation.
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 9);
    let shares: f64 = rows.iter().filter_map(|row| row["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let html = std::fs::read_to_string(written.html).unwrap();
    assert!(html.contains("Residuals against normal quantiles"));
}
