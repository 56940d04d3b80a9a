//! `kendall design` and `kendall compare` as a user runs them: output, refusals, exit codes.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be done fails it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn kendall(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kendall")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn data(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stats/tests/data");
    folder.join(name).display().to_string()
}

fn write(folder: &Path, name: &str, content: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn the_published_table_is_printed() {
    let file = data("memcached-2k-writes-throughput.csv");
    let output = kendall(&["design", "analyze", &file, "--model", "additive"]);
    assert!(output.status.success());
    let printed = text(&output);
    for figure in ["5221.83", "−580.000", "1538.75", "1966.17", "55.39", "33.93", "0.49"] {
        assert!(printed.contains(figure), "{figure} is missing in\n{printed}");
    }
}

/// The figures of an analysis: residuals against predicted, normal quantiles, interactions, and the
/// shares, in one page that needs no network; and the words of each check.
#[test]
fn an_analysis_has_a_page_with_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("figures").display().to_string();
    let file = data("memcached-2k-writes-throughput.csv");
    let output = kendall(&["design", "analyze", &file, "--model", "additive", "--out", &out]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(Path::new(&out).join("analysis.html")).unwrap();
    for wanted in [
        "Residuals against predicted",
        "Residuals against normal quantiles",
        "Interaction of middlewares and workers",
        "Share of the variation",
        "Equal variance",
        "The data recommend the multiplicative model.",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    let csv = std::fs::read_to_string(Path::new(&out).join("tables/effects-value.csv")).unwrap();
    assert!(csv.contains("5221.83") && csv.contains("1966.1"), "{csv}");
}

#[test]
fn json_holds_what_is_printed() {
    let file = data("queue-2k-latency-ms.csv");
    let output = kendall(&["design", "analyze", &file, "--format", "json"]);
    let analysis: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(analysis["layout"]["cells"], 8);
    assert_eq!(analysis["fit"]["terms"][0]["name"], "A");
}

/// A design that was made, filled in, is analyzed without naming a column.
#[test]
fn a_made_design_comes_back() {
    let factors = ["--factor", "a=1,2", "--factor", "b=x,y", "--factor", "c=5,7"];
    let mut arguments = vec!["design", "new", "--kind", "2kr", "--format", "csv", "--seed", "7"];
    arguments.extend(factors);
    let plan = text(&kendall(&arguments));
    assert_eq!(plan.lines().count(), 1 + 3 * 8);
    let filled: String = plan
        .lines()
        .enumerate()
        .map(|(row, line)| match row {
            0 => format!("{line}\n"),
            _ => format!(
                "{line}{}\n",
                10.0 + kendall_units::exact_f64(row % 5)
                    + f64::from(u8::from(line.contains(",x,"))) * 50.0
            ),
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "measured.csv", &filled);
    let output = kendall(&["design", "analyze", &file.display().to_string(), "--blocks"]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains("B = b (x, y)") || text(&output).contains("B = b (y, x)"));
}

#[test]
fn a_fraction_states_its_confounding() {
    let output = kendall(&[
        "design",
        "new",
        "--kind",
        "fractional",
        "--generator",
        "D=ABC",
        "--factor",
        "a=1,2",
        "--factor",
        "b=1,2",
        "--factor",
        "c=1,2",
        "--factor",
        "d=1,2",
    ]);
    let printed = text(&output);
    assert!(printed.contains("I = ABCD") && printed.contains("resolution IV"), "{printed}");
    assert!(printed.contains("AB + CD"), "{printed}");
}

/// A covariate stands beside what was measured, in words and in JSON, and changes nothing of it; one that
/// has no effect is named as not used.
#[test]
fn effects_at_one_value_of_a_covariate_stand_beside_those_as_measured() {
    let folder = tempfile::tempdir().unwrap();
    let scatter = |row: u32, salt: u32| {
        let mixed = (row * 31 + salt).wrapping_mul(2_654_435_761).rotate_left(13);
        f64::from(mixed.wrapping_mul(0x85eb_ca6b) >> 8) / f64::from(1_u32 << 24) - 0.5
    };
    let mut rows = String::from("workers,cache,rep,throughput,speed_ns,weather\n");
    for row in 0..24_u32 {
        let (a, b) = (row % 2, row / 2 % 2);
        let speed = 1.0 + 0.3 * scatter(row, 7);
        let value = (1_000.0 + 40.0 * f64::from(a)) * speed * (1.0 + 0.01 * scatter(row, 90));
        let weather = 10.0 + scatter(row, 400);
        rows += &format!("{a},{b},{},{value},{},{weather}\n", row / 4, 50e3 / speed);
    }
    let file = write(folder.path(), "drifting.csv", &rows).display().to_string();
    let factors = ["--factors", "workers,cache", "--response", "throughput", "--blocks"];
    let of = |more: &[&str]| {
        let arguments = [&["design", "analyze", &file][..], &factors, more].concat();
        let output = kendall(&arguments);
        assert!(output.status.success(), "{output:?}");
        text(&output)
    };
    let json = |more: &[&str]| -> serde_json::Value {
        serde_json::from_str(&of(&[more, &["--format", "json"]].concat())).unwrap()
    };
    let printed = of(&["--covariate", "speed_ns"]);
    assert!(printed.contains("Effects at one value of `speed_ns`"), "{printed}");
    assert!(printed.contains("All other numbers, shares and tests"), "{printed}");
    let (plain, with) = (json(&[]), json(&["--covariate", "speed_ns"]));
    assert_eq!(plain["fit"], with["fit"]);
    assert!(plain.get("covariate").is_none());
    let used = &with["covariate"]["used"];
    assert!(used["narrower"].as_f64().unwrap() > 5.0, "{used}");
    let not = of(&["--covariate", "weather"]);
    assert!(not.contains("`weather` is not used: it explains no more of the error"), "{not}");
    let holes = format!("{},\n", &rows[..rows.rfind(',').unwrap()]);
    let holes = write(folder.path(), "holes.csv", &holes).display().to_string();
    for (file, column, says) in [
        (&file, "moon", "has no column `moon`"),
        (&file, "cache", "is the response, a factor or the repetition"),
        (&holes, "weather", "line 25: column `weather` is empty"),
    ] {
        let arguments = [&["design", "analyze", file][..], &factors, &["--covariate", column]];
        let refused = kendall(&arguments.concat());
        assert_eq!(refused.status.code(), Some(2), "{column}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(says), "{column}: {said}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let constant = write(folder.path(), "constant.csv", "a,value\n1,5\n2,5\n");
    let ragged = write(folder.path(), "ragged.csv", "a,value\n1,5\n2\n");
    let word = write(folder.path(), "word.csv", "a,value\n1,5\n2,fast\n");
    for (file, says) in [
        (&constant, "the response variable is 5 in all 2 runs"),
        (&ragged, "line 3: 1 cell,"),
        (&word, "`fast` is not a number"),
    ] {
        let output = kendall(&["design", "analyze", &file.display().to_string()]);
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(says), "{error}");
    }
    let missing = kendall(&["design", "analyze", "no-such-file.csv"]);
    assert_eq!(missing.status.code(), Some(2));
    let levels = kendall(&["design", "new", "--kind", "2kr", "--factor", "a=1,2,3"]);
    assert_eq!(levels.status.code(), Some(2));
    let odd = ["design", "power", "--deviation", "5%", "--effect", "5%", "--cells", "3"];
    let odd = kendall(&odd);
    assert_eq!(odd.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&odd.stderr).contains("even number"));
}

/// Exit codes for CI: 4 for a regression beyond the bound, 0 otherwise, 4 when strict and untold.
#[test]
fn a_comparison_has_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let set = |name: &str, values: [f64; 4]| {
        let rows: String = values
            .iter()
            .enumerate()
            .map(|(block, value)| format!("c1,{block},{value}\n"))
            .collect();
        let path = write(folder.path(), name, &format!("configuration,block,value\n{rows}"));
        path.display().to_string()
    };
    let before = set("before.csv", [10.0, 10.2, 9.9, 10.1]);
    let same = set("same.csv", [10.05, 10.15, 9.95, 10.1]);
    let slower = set("slower.csv", [12.0, 12.3, 11.8, 12.1]);
    let noisy = set("noisy.csv", [6.0, 15.0, 9.0, 12.0]);
    let code = |arguments: &[&str]| kendall(arguments).status.code();
    assert_eq!(code(&["compare", &before, &same]), Some(0));
    assert_eq!(code(&["compare", &before, &slower]), Some(4));
    assert_eq!(code(&["compare", &before, &slower, "--higher-is-better"]), Some(0));
    assert_eq!(code(&["compare", &before, &slower, "--bound", "50%"]), Some(0));
    assert_eq!(code(&["compare", &before, &noisy]), Some(0));
    assert_eq!(code(&["compare", &before, &noisy, "--strict"]), Some(4));
    assert_eq!(code(&["compare", &before, "missing.csv"]), Some(2));
    let output = kendall(&["compare", &before, &slower, "--format", "json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["verdict"], "regression");
    assert_eq!(answer["comparisons"][0]["paired"], true);
}
