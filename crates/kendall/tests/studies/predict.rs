//! `kendall predict`, end to end: a study of a real process whose truth is known, its model, and
//! questions to it. How well it predicts on an idle machine is measured by `make bench-predict`; here
//! every bound follows from counts and from what the runs themselves measured, so that it holds on a
//! busy machine too.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::{json, kendall};
use kendall_protocols::topology::Role;
use kendall_store::{Results, Run, Status};
use serde_json::Value;

/// The station: every visit holds one of m servers for 25 ms, by a timer, so that X = min(N, m)/S
/// but for what the machine adds to a visit.
const SERVICE_S: f64 = 0.025;
const STUDY: &str = "name = 'known'\n[system]\nkind = 'synthetic'\nservice = 'constant:25ms'\n\
    [workload]\nloop = 'closed'\npath = '/'\n[measure]\nduration = '1s'\nwarm_up = '0s'\n\
    cool_down = '0s'\nrepetitions = 2\n\
    [factors]\n'workload.clients' = [1, 2, 6]\n'system.workers' = [1, 2]\n";

/// Runs a study in a folder; where its results are.
fn measured(folder: &Path, study: &str) -> PathBuf {
    let file = folder.join("known.toml");
    std::fs::write(&file, study).unwrap();
    let out = folder.join("results");
    let output =
        kendall().arg("run").arg(&file).args(["--no-report", "--out"]).arg(&out).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 5)), "{stderr}");
    out
}

/// Runs of a busy machine are no reason to refuse here.
fn predict(folder: &Path, arguments: &[&str]) -> Output {
    let results = folder.join("results");
    let always = ["--most-foreign", "1000"];
    kendall().arg("predict").arg(results).args(always).args(arguments).output().unwrap()
}

/// The longest mean response time of runs in which no request waited for a server.
fn longest_unqueued_s(folder: &Path) -> f64 {
    let results = Results::open(&folder.join("results")).unwrap();
    let mut longest = SERVICE_S;
    for run in results.latest_runs().unwrap().iter().filter(|run| run.is_usable()) {
        let measured = results.measured(run.id).unwrap();
        let workers = run.factor("system.workers").unwrap().number.unwrap();
        if measured.clients <= kendall_units::whole_u64(workers) {
            longest = longest.max(measured.response_time.mean().unwrap() / 1e9);
        }
    }
    longest
}

/// The shortest time that the model may take a visit to hold a server for: the wait for a core is taken off, and part of
/// it was waited before the visit began. None where a busy machine leaves so little that the model may see no hold at all.
fn shortest_held_s(folder: &Path) -> Option<f64> {
    let results = Results::open(&folder.join("results")).unwrap();
    let mut held = SERVICE_S;
    for run in results.latest_runs().unwrap().iter().filter(|run| run.is_usable()) {
        let facts = kendall_observations::run_facts(&results.measured(run.id).unwrap());
        for used in facts.uses.iter().filter(|(part, _)| part.role == Role::Tier).map(|of| of.1) {
            let waited = used.worker_run_queue_wait_s.unwrap_or(used.run_queue_wait_s);
            held = held.min(SERVICE_S - waited - used.cpu_s);
        }
    }
    (held > 0.4 * SERVICE_S).then_some(held)
}

/// The generator on one host and the station on another, both of them this machine: each has processors of its
/// own in the model, and the station's two workers bound the throughput wherever they are.
#[test]
fn runs_over_two_hosts_are_answered_with_processors_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("known.toml");
    let hosts = "[hosts]\nengine = 'command'\nprefix = ['sh', '-c']\nweb = { address = '127.0.0.1' }\n\
                 load = { address = '127.0.0.1' }\n[place]\nsynthetic = 'web'\nclients = ['load']\n";
    let study = STUDY
        .replace("'system.workers' = [1, 2]\n", "")
        .replace("service =", "workers = 2\nservice =");
    std::fs::write(&file, format!("{study}{hosts}")).unwrap();
    let out = folder.path().join("results");
    let run = kendall()
        .args(["run", file.to_str().unwrap(), "--no-report", "--out"])
        .arg(&out)
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(matches!(run.status.code(), Some(0 | 5)), "{stderr}");
    let asked = ["--what-if", "workload.clients=12", "--format", "json"];
    let answer = json(&predict(folder.path(), &asked))["answers"][0]["predicted"].clone();
    let names: Vec<&str> =
        answer["hosts"].as_array().unwrap().iter().map(|h| h["name"].as_str().unwrap()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["load", "web"], "{answer}");
    assert!(answer["assumed"].to_string().contains("of their host and of no other"), "{answer}");
    let throughput = answer["throughput_per_s"]["center"].as_f64().unwrap();
    // Five percent for the simulated time.
    let most = shortest_held_s(folder.path()).map_or(f64::INFINITY, |held| 2.0 / held);
    assert!(throughput > 0.0 && throughput < 1.05 * most, "{answer}");
    // The station moves to the generator's host, which gets a single core.
    let moved = ["--what-if", "placement.synthetic=load", "--what-if", "hosts.load.cores=1"];
    let output = predict(folder.path(), &[&asked[..], &moved[..]].concat());
    let answer = json(&output)["answers"][0]["predicted"].clone();
    let web =
        answer["hosts"].as_array().unwrap().iter().find(|h| h["name"] == "web").unwrap().clone();
    assert!(web["share"]["center"].as_f64().unwrap() < 1e-9, "{answer}");
    // Whose cores are meant must be said, and of a host that was there.
    for (asked, says) in [
        ("cores=8", "name one by hosts.HOST.cores"),
        ("cpu_speed=2", "name one by hosts.HOST.speed"),
        ("hosts.localhost.cores=8", "`localhost` is not a host of these runs"),
    ] {
        let output = predict(folder.path(), &["--what-if", asked]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{asked}: {said}");
        assert!(said.contains(says), "{asked}: {said}");
    }
}

#[test]
fn a_station_of_known_truth_is_predicted_where_it_was_never_measured() {
    let folder = tempfile::tempdir().unwrap();
    measured(folder.path(), STUDY);
    let asked = ["--what-if", "workload.clients=16", "--what-if", "system.workers=8"];
    let answers = json(&predict(folder.path(), &[&asked[..], &["--format", "json"]].concat()));
    let answer = &answers["answers"][0]["predicted"];
    let throughput = answer["throughput_per_s"]["center"].as_f64().unwrap();
    // Eight servers, always busy: no more than 8/S, and no less than where each visit takes as long as
    // the slowest that was measured without a queue. Five percent for the simulated time.
    let held = shortest_held_s(folder.path());
    let (most, least) =
        (held.map_or(f64::INFINITY, |held| 8.0 / held), 8.0 / longest_unqueued_s(folder.path()));
    assert!(throughput <= 1.05 * most && throughput >= 0.95 * least, "{throughput} {least} {most}");
    // Little's law, of the prediction itself: N = X·R.
    let response = answer["response_mean_s"]["center"].as_f64().unwrap();
    assert!((throughput * response / 16.0 - 1.0).abs() < 0.05, "{throughput} {response}");
    for name in [
        "throughput_per_s",
        "response_mean_s",
        "response_p50_s",
        "response_p90_s",
        "response_p99_s",
    ] {
        let [low, center, high] =
            ["low", "center", "high"].map(|key| answer[name][key].as_f64().unwrap());
        assert!(0.0 < low && low < center && center < high, "{name}: {answer}");
    }
    if held.is_some() {
        assert_eq!(answer["bottleneck"]["name"], "workers of synthetic", "{answer}");
    }
    // Both levels lie outside of what was measured, and it says so.
    let distances = answer["distances"].as_array().unwrap();
    assert_eq!(distances.len(), 2, "{answer}");
    let caveats = answer["caveats"].to_string();
    assert!(caveats.contains("`workload.clients` = 16 lies outside"), "{caveats}");
    let assumed = answer["assumed"].to_string();
    assert!(held.is_none() || assumed.contains("neither computes nor waits"), "{assumed}");

    options_belong_together(folder.path());
    the_highest_load_is_asked_where_none_is(folder.path());
    curves_have_a_knee(folder.path());
    what_no_run_tells_is_refused(folder.path());
    capacity_is_planned(folder.path());
    models_are_scored_on_other_results(folder.path());
    a_verification_joins_the_study(folder.path());
}

/// The probe of the speed saw every core in every run; a verification is judged at the speed that it
/// saw, its runs stand beside the design, and the next prediction rests on them too.
fn a_verification_joins_the_study(folder: &Path) {
    let asked = ["--what-if", "workload.clients=12", "--what-if", "system.workers=3", "--verify"];
    let verify = |bound: &str| {
        let more = ["--format", "json", "--bound", bound];
        // A busy machine may make a run unfit for use (5): it is stored as such, and made again.
        let mut output = predict(folder, &[&asked[..], &more].concat());
        while output.stdout.is_empty() && output.status.code() == Some(5) {
            output = predict(folder, &[&asked[..], &more].concat());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let verdicts: Value = serde_json::from_slice(&output.stdout).expect(&said);
        (output.status.code(), verdicts[0].clone())
    };
    // What a busy machine disturbed is no verdict.
    let told = |verdict: &Value, code| Some(if verdict["disturbed"].is_null() { code } else { 5 });
    let runs = |answers: &Value| answers["calibration"]["runs"].as_u64().unwrap();
    let before = json(&predict(folder, &["--format", "json"]));
    // A bound that nothing breaks, and one that everything does.
    let (code, verdict) = verify("100000%");
    assert_eq!(code, told(&verdict, 0), "{verdict}");
    // Nor has the probe of a busy machine seen every core.
    let slowness = verdict["slowness"].as_f64();
    let disturbed = !verdict["disturbed"].is_null();
    assert!(slowness.map_or(disturbed, |slowness| slowness > 0.0), "{verdict}");
    assert_eq!(verdict["metrics"].as_array().unwrap().len(), 5);
    let metric = &verdict["metrics"][0];
    let number = |key: &str| metric[key].as_f64().unwrap();
    let predicted = metric["predicted"]["center"].as_f64().unwrap();
    assert!((predicted / number("measured") - 1.0 - number("error")).abs() < 1e-9, "{metric}");
    assert!(verdict["repeated"]["throughput_change"].is_f64(), "{verdict}");
    let (code, verdict) = verify("0%");
    assert_eq!(code, told(&verdict, 4), "{verdict}");
    let results = Results::open(&folder.join("results")).unwrap();
    let beside = results.verifications().unwrap();
    let beside = beside.iter().filter(|run| run.is_usable()).count();
    assert!(beside >= 4, "{beside}");
    let usable = results.latest_runs().unwrap().iter().filter(|run| run.is_usable()).count();
    let kept = results.predictions().unwrap();
    assert_eq!(kept.len(), 2);
    assert!(kept.iter().all(|one| one.run.is_some() && one.verdict.is_some()));
    for run in results.runs().unwrap().iter().filter(|run| run.is_usable()) {
        assert!(!results.speeds(run.id).unwrap().is_empty(), "{run:?}");
    }
    drop(results);
    let after = json(&predict(folder, &["--format", "json"]));
    assert_eq!(runs(&after), runs(&before) + u64::try_from(beside).unwrap());
    // What only stands on the command line cannot be run.
    let output = predict(folder, &["--what-if", "cores=4", "--verify"]);
    assert_eq!(output.status.code(), Some(2));
    // The report shows what was asked, what it was verified by, and the model.
    let output = kendall().arg("report").arg(folder.join("results")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let html = std::fs::read_to_string(folder.join("results/report.html")).unwrap();
    assert!(
        html.contains("id=\"predictions\"") && html.contains("The model as a graph"),
        "chapter"
    );
    let table = folder.join("results/tables/predictions.csv");
    let table = std::fs::read_to_string(table).unwrap();
    assert_eq!(table.lines().count(), 3, "{table}");
    // The study itself is as it was: nothing is left to run.
    let output = kendall()
        .arg("run")
        .arg(folder.join("known.toml"))
        .args(["--no-report", "--format", "json", "--out"])
        .arg(folder.join("results"))
        .output()
        .unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["runs_done"], usable, "{summary}");
}

/// Options that would change nothing are refused.
fn options_belong_together(folder: &Path) {
    for (options, names) in [
        (&["--bound", "5%"][..], "--verify"),
        (&["--cost", "system.workers=1"], "--carry"),
        (&["--objective", "p99 < 1s", "--verify"], "--objective"),
        (&["--objective", "p99 < 1s", "--keep"], "--objective"),
        (&["--objective", "p99 < 1s", "--csv", "x.csv"], "--objective"),
        (&["--points", "3", "--what-if", "workload.clients=3"], "none is asked"),
        (&["--objective", "p99 < 1s", "--carry", "9/s", "--cost", "cores=1"], "--what-if cores="),
        (
            &["--objective", "p99 < 1s", "--carry", "9/s", "--what-if", "workload.clients=4"],
            "leave it out",
        ),
        (&["--objective", "p99 < 1s", "--what-if", "system.workers=1,2"], "one value"),
    ] {
        let output = predict(folder, options);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(names), "{options:?}: {said}");
    }
}

/// Without a load, at the highest that was run; the hardware that is assumed is the one that is asked.
fn the_highest_load_is_asked_where_none_is(folder: &Path) {
    let cores = 2 * std::thread::available_parallelism().unwrap().get();
    let asked = format!("cores={cores}");
    let twice = ["--what-if", &asked, "--what-if", "system.workers=2", "--format", "json"];
    let answers = json(&predict(folder, &twice));
    let (levels, answer) = (&answers["answers"][0]["levels"], &answers["answers"][0]["predicted"]);
    assert!(levels.to_string().contains("[\"workload.clients\",6.0]"), "{levels}");
    let assumed = answer["assumed"].to_string();
    assert!(assumed.contains("workload.clients = 6, the highest that was run"), "{assumed}");
    assert!(assumed.contains(&format!("share the {cores} cores")), "{assumed}");
}

fn curves_have_a_knee(folder: &Path) {
    let asked = ["--what-if", "workload.clients=1..32", "--what-if", "system.workers=4"];
    let csv = folder.join("curve.csv");
    let path = csv.to_str().unwrap();
    let more = ["--points", "6", "--format", "json", "--csv", path];
    let curve = json(&predict(folder, &[&asked[..], &more].concat()));
    assert_eq!(curve["answers"].as_array().unwrap().len(), 6);
    // One client takes S and what the machine adds, four servers are full with four: N* = 4 but for
    // the part of a visit that is not service, which is spent beside the servers.
    let knee = curve["curve"]["knee"].as_f64().unwrap();
    let held = shortest_held_s(folder);
    let most = held.map_or(f64::INFINITY, |held| 4.0 * longest_unqueued_s(folder) / held);
    assert!(knee > 0.9 * 4.0 && knee < 1.1 * most, "{knee}, at most {most}");
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(lines.lines().count(), 7, "{lines}");
    assert!(lines.starts_with("workload.clients,system.workers,throughput_per_s"), "{lines}");
    let text = predict(folder, &asked);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("knee") && text.contains("based on"), "{text}");
}

fn what_no_run_tells_is_refused(folder: &Path) {
    for (asked, says) in [
        // What a visit costs with another service time was never measured.
        ("system.service=constant:5ms", "no run tells"),
        ("workload.clients=4000", "run it once at 500"),
        ("workload.clients=x", "--what-if workload.clients=x: workload.clients"),
        ("clients=3", "did you mean workload.clients=3"),
        ("system.wrkers=3", "did you mean"),
        ("tiers.cache.speed=2", "no tier `cache`"),
        ("cores=0", "--what-if cores=0: `0` is refused"),
        ("name=other", "changes nothing"),
        ("seed=3", "changes nothing"),
        ("measure.duration=10s", "changes nothing"),
    ] {
        let output = predict(folder, &["--what-if", asked]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{asked}: {said}");
        assert!(said.contains(says), "{asked}: {said}");
    }
}

fn capacity_is_planned(folder: &Path) {
    // What every load of the range meets: its end is the most.
    let asked = ["--what-if", "system.workers=2", "--what-if", "workload.clients=1..16"];
    let more = ["--objective", "mean < 1000s", "--format", "json"];
    let plan = json(&predict(folder, &[&asked[..], &more].concat()));
    assert_eq!(plan["expected"]["value"], 16.0, "{plan}");
    // The cheapest of those that carry a quarter of what one server can.
    let settings = ["--what-if", "system.workers=4,1,2", "--cost", "system.workers=3"];
    let carry = ["--objective", "mean < 1000s", "--carry", "10/s", "--format", "json"];
    let plan = json(&predict(folder, &[&settings[..], &carry].concat()));
    let list = plan["settings"].as_array().unwrap();
    assert_eq!(list.len(), 3);
    assert_eq!((list[0]["cost"].as_f64(), list[0]["meets"].as_bool()), (Some(3.0), Some(true)));
    // Two and a half erlangs are too much for one server.
    let too_much =
        ["--what-if", "system.workers=1", "--objective", "mean < 1s", "--carry", "100/s"];
    assert_eq!(predict(folder, &too_much).status.code(), Some(4));
}

fn one_client_was_measured_before_each_run(out: &Path) {
    let results = Results::open(out).unwrap();
    let runs = results.runs().unwrap();
    let under_load = |run: &&Run| run.status != Status::Failed;
    let alone = results.one_client_runs().unwrap();
    let of: Vec<_> = alone.iter().filter_map(|run| run.one_client_of).collect();
    assert_eq!(of, runs.iter().filter(under_load).map(|run| run.id).collect::<Vec<_>>());
    for run in alone.iter().filter(|run| run.is_usable()) {
        let measured = results.measured(run.id).unwrap();
        assert_eq!(measured.clients, 1, "{run:?}");
        assert!(run.factor("workload.clients").is_none() && run.factor("system.workers").is_some());
        // No request waits for another: each visit takes a service, and the histogram has three digits.
        let response_s = measured.response_time.mean().unwrap() / 1e9;
        assert!(response_s > 0.99 * SERVICE_S, "{response_s}");
        assert!(measured.processes.iter().any(|used| used.part.role == Role::Tier), "{run:?}");
    }
}

/// Calibrated far below the saturation of two servers: a run beyond it comes first, then those that narrow the answer.
/// A visit takes so long that what a busy machine adds to it hides no saturation.
#[test]
fn runs_are_added_until_the_interval_is_as_narrow_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let study = STUDY
        .replace("'system.workers' = [1, 2]\n", "")
        .replace("[1, 2, 6]", "[1, 2]")
        .replace("service = 'constant:25ms'", "workers = 2\nservice = 'constant:250ms'")
        .replace("'1s'", "'2s'");
    let out = measured(folder.path(), &study);
    let asked = ["--what-if", "workload.clients=10", "--format", "json", "--until"];
    let narrowed = |share: &str| {
        let output = predict(folder.path(), &[&asked[..], &[share]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let answers: Value = serde_json::from_slice(&output.stdout).expect(&stderr);
        (output.status.code(), answers)
    };
    // The first is beyond saturation, of at least one and a half times the two clients that fill the servers.
    let (code, answers) = narrowed("100%");
    assert_eq!(code, Some(0), "{answers}");
    let added = answers["added"].as_array().unwrap();
    let clients = |added: &Value| added["asked"][0][1].as_str().unwrap().parse::<f64>().unwrap();
    assert!(!added.is_empty() && added.iter().all(|added| clients(added) >= 3.0), "{answers}");
    let (_, again) = narrowed("100%");
    assert!(again["added"].is_null(), "{again}");
    // Nothing is as narrow as this: it ends all the same, and never runs what is asked.
    let (code, answers) = narrowed("0.0001%");
    assert_eq!(code, Some(4), "{answers}");
    let added = answers["added"].as_array().unwrap();
    assert!((1..=6).contains(&added.len()), "{answers}");
    assert!(added.iter().all(|added| (clients(added) - 10.0).abs() > 0.5), "{answers}");
    let results = Results::open(&out).unwrap();
    assert!(results.verifications().unwrap().len() > added.len());
}

/// A service of which only the operating system tells something, with a semaphore of four inside: the curve answers for
/// another load, the measurement for one that was run, and an inferred station for another structure.
#[test]
fn what_no_counter_shows_follows_from_the_curve() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("known.toml");
    let service = crate::support::repository().join("examples/services/service.py");
    let command =
        format!("['python3', '{}', '--port', '{{port}}', '--kind', 'pool']", service.display());
    let study = format!(
        "name = 'known'\n[system]\nkind = 'processes'\n[[system.tiers]]\nname = 'service'\ncommand = {command}\n\
         ready = {{ http = '/' }}\n[workload]\nprotocol = 'http'\nloop = 'closed'\npath = '/'\n\
         [measure]\nduration = '2s'\nrepetitions = 2\n[factors]\n'workload.clients' = [1, 8]\n"
    );
    std::fs::write(&file, study).unwrap();
    let out = folder.path().join("results");
    // A busy machine may make a run unfit for use (5), and three of the four do not say how they scatter.
    for round in 0.. {
        let more = ["--no-report", "--retry-failed", "--out"];
        let output = kendall().arg("run").arg(&file).args(more).arg(&out).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => break,
            code => assert!(code == Some(5) && round < 10, "{code:?}: {stderr}"),
        }
    }
    let ask = |what: &[&str]| {
        let answers = json(&predict(folder.path(), &[what, &["--format", "json"]].concat()));
        let answer = answers["answers"][0]["predicted"].clone();
        let x = answer["throughput_per_s"]["center"].as_f64().unwrap();
        (answer, x)
    };
    let (there, at_eight) = ask(&["--what-if", "workload.clients=8"]);
    assert_eq!(there["model"], "measured", "{there}");
    let (beyond, at_thirty) = ask(&["--what-if", "workload.clients=30"]);
    // The station that the curve shows, or the curve itself, whichever erred less where it was left out.
    assert!(["curve", "hidden-station"].contains(&beyond["model"].as_str().unwrap()), "{beyond}");
    // Eight clients keep the semaphore full. The interval holds what they carry; a line would carry 3.75 times as
    // much, and a machine that slows one of the two loads down by a third is not that.
    let interval = &beyond["throughput_per_s"];
    let [low, high] = ["low", "high"].map(|end| interval[end].as_f64().unwrap());
    assert!(low < at_eight && at_eight < high, "{at_eight}: {beyond}");
    assert!(at_thirty < 2.5 * at_eight, "{at_eight}: {beyond}");
    assert!(beyond["caveats"].to_string().contains("a run there tells"), "{beyond}");
    // Sixteen clients of two instances: as much again, or the same where they share what is inside.
    let two = ["--what-if", "tiers.service.instances=2", "--what-if", "workload.clients=16"];
    let (two, _) = ask(&two);
    assert_eq!(two["model"], "twin", "{two}");
    assert!(two["throughput_per_s"]["low"].as_f64().unwrap() < 1.1 * at_eight, "{two}");
}

/// Where the lightest load has several clients, one client alone is a configuration of the model.
#[test]
fn one_client_alone_is_a_configuration_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let text = STUDY
        .replace("25ms", "1ms")
        .replace("repetitions = 2", "repetitions = 1\none_client = '1s'")
        .replace("[1, 2, 6]\n'system.workers' = [1, 2]", "[2, 8]\n'system.workers' = [4]");
    let out = measured(folder.path(), &text);
    let asked = ["--what-if", "workload.clients=4", "--keep", "--format", "json"];
    let answers = json(&predict(folder.path(), &asked));
    let results = Results::open(&out).unwrap();
    let alone = results.one_client_runs().unwrap();
    assert_eq!(alone.len(), 2);
    let answered = |run: &Run| results.measured(run.id).unwrap().response_time.count();
    let rests = &answers["calibration"];
    // A machine so busy that one client gets a tenth of its thousand requests answered tells nothing.
    if alone.iter().all(|run| run.is_usable() && answered(run) >= 100) {
        assert_eq!([&rests["one_client"], &rests["configurations"]], [1, 3], "{rests}");
    }
    let usable = results.runs().unwrap().iter().filter(|run| run.is_usable()).count();
    assert_eq!(rests["runs"], usable, "{rests}");
    drop(results);
    let output = kendall().arg("report").arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = std::fs::read_to_string(out.join("tables/one-client.csv")).unwrap();
    assert!(table.lines().next().unwrap().contains("throughput_per_s"), "{table}");
    let usable = alone.iter().filter(|run| run.is_usable()).count();
    assert_eq!(table.lines().count(), 1 + usable, "{table}");
}

fn models_are_scored_on_other_results(folder: &Path) {
    let file = folder.join("known.toml");
    let out = folder.join("calibration");
    let design = ["--set", "design.kind=calibration", "--set", "measure.one_client=400ms"];
    let more = ["--no-report", "--format", "json", "--out"];
    let output =
        kendall().arg("run").arg(&file).args(design).args(more).arg(&out).output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Light, heavy and heavy with all servers for certain; the two knees where they are not among
    // them; each twice.
    let runs = Results::open(&out).unwrap().latest_runs().unwrap().len();
    assert!((6..=10).contains(&runs), "{summary}");
    one_client_was_measured_before_each_run(&out);
    // The factor by which the design chose its runs can be asked about, at a level that it has not.
    let asked = ["--most-foreign", "1000", "--format", "json", "--what-if", "workload.clients=12"];
    let answered = json(&kendall().arg("predict").arg(&out).args(asked).output().unwrap());
    assert!(answered["answers"][0]["predicted"].is_object(), "{answered}");
    let other = folder.join("results");
    let output = kendall()
        .arg("predict")
        .arg(&out)
        .args(["--most-foreign", "1000", "--format", "json", "--against"])
        .arg(&other)
        .output()
        .unwrap();
    let scores = json(&output);
    let usable = Results::open(&other).unwrap().latest_runs().unwrap();
    let usable = usable.iter().filter(|run| run.is_usable()).count();
    assert_eq!(scores["points"].as_array().unwrap().len(), usable, "{scores}");
    // What the calibration has seen is marked and not counted: the light load at least.
    let points = scores["points"].as_array().unwrap();
    let seen: Vec<&Value> = points.iter().filter(|point| point["seen"] == true).collect();
    assert!(!seen.is_empty() && seen.len() < points.len(), "{scores}");
    assert!(seen.iter().all(|point| point["before"].is_array()), "{scores}");
    // Half the processor is hardware that the other results do not say; a key of theirs is not.
    let against = |what_if: &str| {
        let other = other.to_str().unwrap();
        let asked = ["--most-foreign", "1000", "--against", other, "--what-if", what_if];
        kendall().arg("predict").arg(&out).args(asked).output().unwrap()
    };
    assert!(against("cores=1").status.success());
    for several in ["workload.clients=4", "cores=1,2"] {
        let refused = against(several);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
    assert_eq!(scores["summary"].as_array().unwrap().len(), 3);
    for metric in scores["summary"].as_array().unwrap() {
        let [median, worst] = ["median", "worst"].map(|key| metric[key].as_f64().unwrap());
        assert!(0.0 <= median && median <= worst, "{metric}");
    }
}
