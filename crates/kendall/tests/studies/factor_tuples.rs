//! Keys that change together: one factor with named levels, from the dry run to the effects.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be done fails it")]

use std::path::Path;
use std::process::Output;

use crate::support::kendall;

const STUDY: &str = "name = 'tuples'\n[system]\nkind = 'synthetic'\n\
    [workload]\nloop = 'closed'\n\
    [measure]\nduration = '1s'\nwarm_up = '0s'\ncool_down = '0s'\nrepetitions = 2\n\
    [factors]\n\
    'system.workers, system.service' = { slow = [1, 'constant:8ms'], fast = [2, 'constant:2ms'] }\n\
    'workload.clients' = [2, 4]\n\
    [design]\nkind = '2kr'\n";

fn run(folder: &Path, arguments: &[&str]) -> Output {
    kendall().current_dir(folder).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

fn written() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tuples.toml"), STUDY).unwrap();
    folder
}

#[test]
fn a_dry_run_shows_the_named_levels_and_what_they_set() {
    let folder = written();
    let human = said(&run(folder.path(), &["run", "tuples.toml", "--dry-run"]));
    assert!(human.contains("system.workers+system.service") && human.contains("slow"), "{human}");
    let output = run(folder.path(), &["run", "tuples.toml", "--dry-run", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 8, "2 × 2 configurations, twice: {json:#}");
    let names = |run: &serde_json::Value| run["levels"][0].as_str().unwrap().to_owned();
    assert_eq!(runs.iter().filter(|run| names(run) == "slow").count(), 4);
    let factor = &json["effective"]["factors"][0];
    assert_eq!(factor["names"], serde_json::json!(["slow", "fast"]));
    assert_eq!(factor["levels"][1], serde_json::json!([2, "constant:2ms"]));
    // One of its keys by itself is varied already.
    let output =
        run(folder.path(), &["run", "tuples.toml", "--dry-run", "--set", "system.workers=3"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("varied together with others"), "{}", said(&output));
}

/// What each level sets is what runs, and the effect is of the factor as a whole: a station of one server
/// of 8 ms does 125 a second, two of 2 ms do 1 000 when clients fill them.
#[test]
fn the_effect_is_of_the_tuple() {
    let folder = written();
    let output = run(folder.path(), &["run", "tuples.toml", "--out", "out"]);
    // A busy machine may make a run of a second unusable (5).
    assert!(matches!(output.status.code(), Some(0 | 5)), "{}", said(&output));
    let results = kendall_store::Results::open(&folder.path().join("out")).unwrap();
    for one in results.runs().unwrap() {
        let level = one.factor("system.workers+system.service").unwrap();
        let (workers, service) =
            if level.text == "slow" { (1, "constant:8ms") } else { (2, "constant:2ms") };
        assert_eq!(level.number, None);
        assert_eq!(one.setting("system.workers").unwrap().as_i64(), Some(workers), "{level:?}");
        assert_eq!(one.setting("system.service").unwrap().as_str(), Some(service), "{level:?}");
    }
    let rates = |name: &str| -> Vec<f64> {
        let runs = results.runs().unwrap().into_iter().filter(kendall_store::Run::is_usable);
        let of = |run: &kendall_store::Run| {
            run.factor("system.workers+system.service").unwrap().text == name
        };
        runs.filter(of).map(|run| results.measured(run.id).unwrap().throughput_per_s).collect()
    };
    let (slow, fast) = (rates("slow"), rates("fast"));
    // In a second one server of 8 ms ends 125 and the one that was under way, and the clients' process may have
    // left the answers to all four of them lie until then.
    let most = 125.0 + 1.0 + 4.0;
    assert!(slow.iter().all(|rate| *rate <= most), "{slow:?}");
    // Eight times as fast: a quarter of that on a machine that does much else.
    let mean =
        |rates: &[f64]| rates.iter().sum::<f64>() / f64::from(u32::try_from(rates.len()).unwrap());
    if !slow.is_empty() && !fast.is_empty() {
        assert!(mean(&fast) > 2.0 * mean(&slow), "{slow:?} and {fast:?}");
    }
    let report = std::fs::read_to_string(folder.path().join("out/report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let text = report.to_string();
    assert!(text.contains("workers+service"), "the factor has its short name");
    let tables = report["sections"].as_array().unwrap().iter().flat_map(|section| {
        section["blocks"].as_array().unwrap().iter().filter(|block| block["kind"] == "table")
    });
    let mut tables = tables.map(|block| &block["content"]);
    let effects = tables.find(|table| table["id"] == "effects-throughput");
    if slow.len() + fast.len() == 8 {
        // From slow to fast it rises: the second level is the high one.
        let rows = effects.unwrap()["rows"].as_array().unwrap();
        let of_tuple = rows.iter().find(|row| row["factors"] == "workers+service").unwrap();
        assert!(of_tuple["effect"]["center"].as_f64().unwrap() > 0.0, "{of_tuple}");
    }
    let answer = report["answer"]["answer"].as_str().unwrap();
    assert!(answer.contains("workers+service") || answer.contains("Cannot tell"), "{answer}");
    asked(folder.path());
}

/// A level is asked about by its name; another name is answered with those that there are.
fn asked(folder: &Path) {
    let what_if = "system.workers+system.service=faster";
    let output = run(folder, &["predict", "out", "--what-if", what_if]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("slow, fast"), "{}", said(&output));
}
