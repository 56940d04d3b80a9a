//! Any program as the load of a study, and jobs with an end.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;

use crate::support::kendall;
use kendall_store::{Results, Status};
use serde_json::Value;

/// Runs a study of a synthetic station with this load; what it printed, and its results.
fn study(folder: &Path, workload: &str) -> (std::process::Output, Results) {
    let file = folder.join("study.toml");
    let text = format!(
        "name = 'x'\n[system]\nkind = 'synthetic'\nservice = 'constant:1ms'\n[workload]\n\
         protocol = 'program'\n{workload}\n[measure]\nduration = '60s'\nrepetitions = 2\n\
         warm_up = '0s'\ncool_down = '0s'\n"
    );
    std::fs::write(&file, text).unwrap();
    let out = folder.join("results");
    let output =
        kendall().arg("run").arg(&file).args(["--format", "json", "--out"]).arg(&out).output();
    (output.unwrap(), Results::open(&out).unwrap())
}

fn configuration(output: &std::process::Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let summary: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    summary["configurations"][0].clone()
}

/// The least that a script must say: it is a job, and so many tasks were done. Its life is the job.
#[test]
fn a_script_is_a_job_and_its_life_is_the_makespan() {
    let folder = tempfile::tempdir().unwrap();
    let (output, results) = study(
        folder.path(),
        r#"loop = 'job'
        clients = 3
        parameters = { tasks = 40 }
        command = ['sh', '-c', '''sleep 0.3; echo '{{"version": 2, "loop": "job", "operations":
            {{"task": {{"completed": {workload.parameters.tasks}}}}}}}' ''']"#,
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let runs = results.runs().unwrap();
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!(run.status, Status::Done, "{:?}", run.reasons);
        let measured = results.measured(run.id).unwrap();
        let makespan = measured.window.length_s();
        // No upper bound: the machine may be busy.
        assert!(makespan >= 0.3, "{makespan}");
        assert!((measured.throughput_per_s * makespan - 40.0).abs() < 1e-6, "{measured:?}");
        assert_eq!(measured.window.rule, "the whole job");
    }
    let found = configuration(&output);
    assert!(found["makespan_s"]["center"].as_f64().unwrap() >= 0.3, "{found}");
    // What a task took was not said, and nothing is made up for it.
    assert!(found["response_time_mean_s"].is_null(), "{found}");
    let html = std::fs::read_to_string(folder.path().join("results/report.html")).unwrap();
    assert!(html.contains("The job: makespan and throughput"));
    assert!(!html.contains(">NaN"), "numbers that are none are dashes");
}

#[test]
fn times_of_tasks_may_be_written_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let (output, results) = study(
        folder.path(),
        r#"loop = 'job'
        command = ['sh', '-c', '''echo '{{"version": 2, "loop": "job", "started_ns": 1000000000,
            "ended_ns": 3000000000, "operations": {{"task": {{"completed": 2,
            "response_times_ns": [10000000, 30000000]}}}}}}' ''']"#,
    );
    let found = configuration(&output);
    let mean = found["response_time_mean_s"]["center"].as_f64().unwrap();
    assert!((mean - 0.02).abs() < 0.0001, "{found}");
    assert_eq!(found["makespan_s"]["center"].as_f64(), Some(2.0));
    assert_eq!(found["throughput_per_s"]["center"].as_f64(), Some(1.0));
    assert_eq!(results.runs().unwrap().len(), 2);
}

/// A build that fails has a makespan, too, which must not be used.
#[test]
fn a_job_that_fails_is_no_result() {
    for (script, what) in [
        (
            "echo '{{\"version\": 2, \"loop\": \"job\", \"operations\": {{}}}}'; exit 3",
            "exit status: 3",
        ),
        ("true", "gave no result"),
        ("echo nonsense", "expected"),
        (
            "echo '{{\"version\": 2, \"loop\": \"closed\", \"operations\": {{}}}}'",
            "the loop `closed`",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let workload = format!("loop = 'job'\ncommand = ['sh', '-c', '''{script}''']");
        let (output, results) = study(folder.path(), &workload);
        assert!(!output.status.success(), "{script}");
        let run = &results.runs().unwrap()[0];
        assert_eq!(run.status, Status::Failed, "{script}");
        assert!(run.reasons[0].contains(what), "{script}: {:?}", run.reasons);
    }
}

/// A load of a stated time: here Kendall's own, by its command.
#[test]
fn a_program_may_load_for_a_stated_time() {
    let folder = tempfile::tempdir().unwrap();
    let (output, results) = study(
        folder.path(),
        r#"clients = 2
        command = ['{kendall}', 'load', 'http', 'http://{target}/', '--clients', '{clients}',
            '--duration', '1s', '--seed', '{seed}', '--quiet', '--format', 'json']"#,
    );
    assert!(matches!(output.status.code(), Some(0 | 5)), "{output:?}");
    for run in results.runs().unwrap() {
        let measured = results.measured(run.id).unwrap();
        assert!(measured.response_time.count() > 0 && measured.clients == 2, "{measured:?}");
    }
}

#[test]
fn what_a_load_cannot_be_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (workload, what) in [
        ("protocol = 'program'", "command"),
        ("protocol = 'program'\ncommand = 'load {tarquet}'", "`{tarquet}` is no placeholder"),
        ("protocol = 'http'\nloop = 'job'", "loads that end by themselves"),
        ("protocol = 'bazel'\nloop = 'closed'", "leave this out"),
        ("protocol = 'bazel'\nrate = '5/s'", "is for `loop = \"open\"`"),
        ("protocol = 'bazel'\nwarm = true", "without `reuse = true`"),
    ] {
        let file = folder.path().join("study.toml");
        let text = format!("name = 'x'\n[system]\nkind = 'synthetic'\n[workload]\n{workload}\n");
        std::fs::write(&file, text).unwrap();
        let output = kendall().args(["run", "--dry-run"]).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{workload}: {said}");
        assert!(said.contains(what), "{workload}: {said}");
    }
}
