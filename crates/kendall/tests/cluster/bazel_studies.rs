//! Studies whose load is a build by real Bazel, at toy size.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support::{kendall, repository, run_toy};
use kendall_protocols::topology::Role;
use kendall_store::{Extent, ProcessUse, Results, Status};

/// Runs a study file at toy size. Whatever else the machine does, the build passes, all tasks are
/// counted, and none of them ran here.
fn builds_at_toy_size(file: &str) -> (tempfile::TempDir, Results) {
    crate::bazel_support::required();
    let folder = tempfile::tempdir().unwrap();
    let path = repository().join("studies/build-cluster").join(file);
    let output = run_toy(&path, folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{file}: {said}");
    let results = Results::open(folder.path()).unwrap();
    for run in results.runs().unwrap() {
        assert_eq!(run.status, Status::Done, "{file}: {:?}", run.reasons);
        let measured = results.measured(run.id).unwrap();
        let tasks = run.setting("workload.tasks").unwrap().as_u64().unwrap();
        assert_eq!(measured.operations["task"].completed, tasks, "{file}");
        assert_eq!(measured.response_time.count(), tasks, "what each task took is known");
        // Its command alone uses 0.01 cores at 20 tasks/s, the server at least 0.1.
        let of_load = measured.processes.iter().filter(|one| one.part.role == Role::Generator);
        let cores: f64 = of_load.map(ProcessUse::cores_busy).sum();
        assert!(cores > 0.05, "the server of Bazel is the load's: {cores}");
        let makespan = measured.window.length_s();
        let product = measured.throughput_per_s * makespan;
        assert!((product - kendall_units::exact_f64(tasks)).abs() < 1e-6, "{file}: {product}");
    }
    (folder, results)
}

/// Actions that the workers of a run completed.
fn executed(results: &Results, run: &kendall_store::Run) -> u64 {
    let record = results.record(run.id).unwrap();
    let workers = record.tiers.iter().filter(|tier| tier.kind == "build-worker");
    let periods = workers.flat_map(|tier| &tier.periods);
    periods.filter(|p| p.extent == Extent::Whole).map(kendall_store::TierPeriod::completions).sum()
}

#[test]
fn test_runs_on_a_cluster_of_two_workers() {
    let (folder, results) = builds_at_toy_size("cluster.toml");
    for run in results.runs().unwrap() {
        let tasks = run.setting("workload.tasks").unwrap().as_u64().unwrap();
        assert_eq!(executed(&results, &run), tasks, "one action a test run, all in the cluster");
    }
    let html = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(html.contains("The job: makespan and throughput") && !html.contains(">NaN"));
    let mut dry = kendall();
    dry.arg("run").arg(repository().join("studies/build-cluster/cluster.toml")).arg("--out");
    dry.arg(folder.path()).args(["--toy", "--dry-run", "--set", "factors.workload.tasks=[6, 12]"]);
    let said = String::from_utf8(dry.output().unwrap().stdout).unwrap();
    assert!(
        said.contains("# 2 runs left, which take about ")
            && said.contains(" by the 1 run in the folder"),
        "{said}"
    );
    let data = folder.path().join("logs/c000-r00-a0");
    assert!(!data.join("cache-0/data").exists(), "what was built is not kept");
}

/// The duration of a job is a limit: what is planned must not be read as how long it takes.
#[test]
fn a_dry_run_says_what_jobs_take_at_most() {
    let path = repository().join("studies/build-cluster/cluster.toml");
    let mut run = kendall();
    run.arg("run").arg(path).arg("--dry-run").args(["--set", "factors.workload.tasks=[100, 200]"]);
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("# 96 runs, in this order"), "{said}");
    assert!(
        said.contains("# measuring takes 96 h 0 min at most; a job ends with its work"),
        "{said}"
    );
}

/// A load of executions: what the report shows of the workers over time.
#[test]
fn stages_and_busy_workers_are_shown_over_time() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("stages.toml");
    let text = "name = 'stages'\n[system]\nkind = 'build-cluster'\nworkers = 1\nconcurrency = 4\n\
                [workload]\nprotocol = 'reapi'\nmix = { execute = 1 }\nclients = 4\nstock = 50\n\
                action_time = 'exponential:20ms'\n[measure]\nduration = '5s'\nwarm_up = '0s'\n\
                cool_down = '0s'\nrepetitions = 1\n";
    std::fs::write(&study, text).unwrap();
    let out = folder.path().join("results");
    let output = kendall().arg("run").arg(&study).arg("--out").arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let results = Results::open(&out).unwrap();
    let run = &results.runs().unwrap()[0];
    assert_ne!(run.status, Status::Failed, "{:?} {said}", run.reasons);
    assert!(executed(&results, run) > 10, "{said}");
    if run.status != Status::Done {
        // A machine that does much else: a rejected run is in no plot.
        return;
    }
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    for plot in
        ["plot-density-workers-running", "plot-density-workers-fetching", "plot-busy-workers"]
    {
        assert!(html.contains(plot), "{plot}");
    }
}

#[test]
fn a_warm_build_takes_its_files_from_the_cache() {
    let (_folder, results) = builds_at_toy_size("layers.toml");
    for run in results.runs().unwrap() {
        let measured = results.measured(run.id).unwrap();
        let task = &measured.operations["task"];
        assert_eq!((task.hits, task.misses), (task.completed, 0), "{task:?}");
    }
}

#[test]
fn jobs_of_one_build() {
    builds_at_toy_size("jobs.toml");
}

#[test]
#[ignore = "minutes: make test-clients"]
fn concurrency_for_the_scalability_law() {
    builds_at_toy_size("concurrency.toml");
}

#[test]
#[ignore = "minutes: make test-clients"]
fn one_task_at_a_time_on_each_of_two_workers() {
    builds_at_toy_size("cluster-two-workers.toml");
}
