//! `kendall solve` as users meet it: flags, files, sweeps, worked cases, refusals.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::keys::{Documented, quoted};
use serde_json::Value;

fn kendall(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kendall"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("the program runs")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn json(arguments: &[&str]) -> Value {
    let output = kendall(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn refusal(arguments: &[&str]) -> String {
    let output = kendall(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// models.md, published table of M/M/128: half a unit of the last printed place.
#[test]
fn a_station_by_flags_gives_the_published_table() {
    let answer = json(&[
        "solve",
        "mmm",
        "--arrival-rate",
        "7538.59/s",
        "--service-rate",
        "66/s",
        "--servers",
        "128",
        "--percentiles",
        "50,99",
        "--format",
        "json",
    ]);
    assert_eq!(answer["accuracy"], "exact");
    let station = &answer["station"];
    let near = |key: &str, want: f64, half: f64| {
        let have = station[key].as_f64().unwrap();
        assert!((have - want).abs() <= half, "{key}: {have} for {want}");
    };
    near("utilization", 0.89, 0.005);
    near("queueing_probability", 0.14, 0.005);
    near("number_mean", 115.4, 0.05);
    near("response_time_mean_s", 0.015_31, 5e-6);
    let quantiles = answer["response_time_quantiles"].as_array().unwrap();
    assert_eq!(quantiles.len(), 2);
    assert_eq!(quantiles[1]["quantile"], 0.99);
    assert!(quantiles[1]["time_s"].as_f64() > quantiles[0]["time_s"].as_f64());
}

#[test]
fn every_ready_made_model_has_a_solution() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("studies/models")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_str().unwrap();
        let answer = json(&["solve", name, "--format", "json"]);
        let solved = match answer.get("points") {
            Some(points) => {
                points.as_array().unwrap().iter().all(|point| point["throughput_per_s"].is_number())
            }
            None => answer["classes"][0]["throughput_per_s"].as_f64().unwrap() > 0.0,
        };
        assert!(solved, "{name}: {answer}");
        assert!(kendall(&["solve", name]).status.success(), "{name}");
        count += 1;
    }
    assert!(count >= 14, "{count} models");
}

#[test]
fn known_models_have_their_known_answers() {
    let answer = json(&["solve", "studies/models/two-classes.toml", "--format", "json"]);
    let x = answer["classes"][0]["throughput_per_s"].as_f64().unwrap();
    assert!((x - 3.0 / 19.0).abs() < 1e-12);
    let answer = json(&["solve", "studies/models/feedback.toml", "--format", "json"]);
    let r = answer["classes"][0]["system_response_time_mean_s"].as_f64().unwrap();
    assert!((r - 1.544_642_857_142_857_2).abs() < 1e-12);
    // Published: X 3030/s, U 11.42 (of a delay), 1.0 and 0.118, each to its last digit.
    let file = "studies/models/memcached-network.toml";
    let answer = json(&["solve", file, "--format", "json"]);
    let full = answer["points"].as_array().unwrap().last().unwrap();
    for (key, published, digit) in [
        ("throughput_per_s", 3_030.0, 0.5),
        ("network.utilization", 11.42, 0.005),
        ("full device.utilization", 1.0, 0.05),
        ("other device.utilization", 0.118, 0.0005),
    ] {
        assert!((full[key].as_f64().unwrap() - published).abs() < digit, "{key}: {full}");
    }
}

/// The published what-if of the build cluster: cache servers against hit probabilities. Response times by Erlang's
/// formula C: 8.67 ms at four cache servers, 3.75 ms at six; 150.0 ms in a cluster that has 15 of its 32 slots busy,
/// 197.3 ms in one that has 30.
#[test]
fn a_cache_and_its_cluster_are_asked_for_servers_and_hit_probabilities() {
    let file = "studies/models/build-cluster.toml";
    let (servers, misses) = ("stations.cache.servers", "stations.cluster.visits");
    let (by_servers, by_misses) = (format!("{servers}=2:6:1"), format!("{misses}=0.05:0.2:0.05"));
    let sweeps = ["--sweep", &by_servers, "--sweep", &by_misses];
    let answer = json(&[&["solve", file][..], &sweeps, &["--format", "json"]].concat());
    let points = answer["points"].as_array().unwrap();
    assert_eq!(points.len(), 5 * 4);
    let at = |count: f64, share: f64| {
        let is = |point: &&Value, key: &str, value: f64| {
            (point[key].as_f64().unwrap() - value).abs() < 1e-9
        };
        points.iter().find(|p| is(p, servers, count) && is(p, misses, share)).unwrap()
    };
    for count in [2.0, 3.0] {
        assert!(at(count, 0.1)["error"].as_str().unwrap().contains("no steady state"));
    }
    for (count, share, response_s) in [(4.0, 0.1, 0.023_665), (6.0, 0.2, 0.043_202)] {
        let found = at(count, share)["system_response_time_mean_s"].as_f64().unwrap();
        assert!((found - response_s).abs() < 5e-7, "{count} {share}: {found}");
    }
    let busy = at(5.0, 0.2)["cache.utilization"].as_f64().unwrap();
    assert!((busy - 0.7).abs() < 1e-9, "{busy}");
}

/// 500/s at 10 ms each: five servers are busy where there are four.
#[test]
fn a_station_that_is_overloaded_is_found_by_its_demand() {
    let model =
        ["solve", "mmm", "--arrival-rate", "500/s", "--service-time", "10ms", "--servers", "4"];
    let answer = json(&[&model[..], &["--demands-only", "--format", "json"]].concat());
    assert_eq!(answer[0]["utilization"], 1.25);
    assert_eq!(answer[0]["overloaded"], true);
    let answer =
        json(&["solve", "studies/models/build-cluster.toml", "--demands-only", "--format", "json"]);
    assert_eq!(answer[0]["utilization"], 0.875, "{answer}");
}

/// The last rate holds for any number of customers: it decides whether there is a steady state, not the greatest.
#[test]
fn a_station_with_rates_of_its_own_is_asked_for_a_share_of_its_last() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.toml");
    let path = path.to_str().unwrap();
    for (arrivals, utilization) in [(120, 0.8), (165, 1.1)] {
        let text = format!(
            "arrival_rate_per_s = {arrivals}\n[[stations]]\nname = 'lock'\nservice_time_s = 0.01\n\
             rate_multipliers = [1, 1.8, 1.5]\n"
        );
        std::fs::write(path, text).unwrap();
        let answer = json(&["solve", path, "--demands-only", "--format", "json"]);
        let found = answer[0]["utilization"].as_f64().unwrap();
        assert!((found - utilization).abs() < 1e-12, "{answer}");
        assert_eq!(answer[0]["overloaded"], utilization >= 1.0);
        assert_eq!(kendall(&["solve", path]).status.success(), utilization < 1.0);
    }
}

#[test]
fn a_sweep_is_a_table_a_csv_and_a_drawing() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, svg) = (folder.path().join("x.csv"), folder.path().join("x.svg"));
    let answer = json(&[
        "solve",
        "studies/models/three-tier.toml",
        "--sweep",
        "population=100:300:100",
        "--csv",
        csv.to_str().unwrap(),
        "--plot",
        svg.to_str().unwrap(),
        "--format",
        "json",
    ]);
    assert_eq!(answer["points"].as_array().unwrap().len(), 3);
    let text = std::fs::read_to_string(csv).unwrap();
    assert_eq!(text.lines().count(), 4);
    assert!(text.starts_with("population,throughput_per_s,system_response_time_mean_s"), "{text}");
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
    // An unstable point stays in the table, with its reason.
    let answer = json(&[
        "solve",
        "mm1",
        "--arrival-rate",
        "1/s",
        "--service-rate",
        "10/s",
        "--sweep",
        "arrival_rate_per_s=8:12:2",
        "--format",
        "json",
    ]);
    let points = answer["points"].as_array().unwrap();
    assert!(points[0]["throughput_per_s"].is_number());
    assert!(points[2]["error"].as_str().unwrap().contains("no steady state"), "{points:?}");
}

#[test]
fn a_solved_model_is_drawn_and_one_class_against_what_loads_it() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("x.svg");
    let plotted = |model: &str| {
        let output = kendall(&["solve", model, "--plot", svg.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (std::fs::read_to_string(&svg).unwrap(), printed)
    };
    let (drawn, printed) = plotted("studies/models/three-tier.toml");
    let titles = [">D = ", ">throughput against population", ">response time against population"];
    assert!(titles.iter().all(|title| drawn.contains(title)), "{drawn}");
    assert!(printed.contains("solver ") && printed.contains(". bounds"), "{printed}");
    // Of several classes there is the network alone.
    let (drawn, printed) = plotted("studies/models/two-classes.toml");
    assert!(drawn.contains(">U = ") && !drawn.contains("against"), "{drawn}");
    assert!(!printed.contains("against"), "{printed}");
    let text = refusal(&["solve", "studies/models/one-queue.toml", "--plot", "x.png"]);
    assert!(text.contains(".svg or .html"), "{text}");
}

#[test]
fn a_model_of_jmts_simulator_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.jsimg");
    let text = r#"<archive><sim seed="5"><userClass name="c" type="open" referenceSource="Source"/>
        <node name="Source"><section className="RandomSource"><parameter name="ServiceStrategy">
        <refClass>c</refClass><subParameter classPath="a.ServiceTimeStrategy"><subParameter
        classPath="a.Exponential"/><subParameter name="distrPar"><subParameter name="lambda">
        <value>4</value></subParameter></subParameter></subParameter></parameter></section></node>
        <node name="Queue"><section className="Queue"/><section className="Server"><parameter
        name="ServiceStrategy"><refClass>c</refClass><subParameter classPath="a.ServiceTimeStrategy">
        <subParameter classPath="a.Exponential"/><subParameter name="distrPar"><subParameter
        name="lambda"><value>5</value></subParameter></subParameter></subParameter></parameter>
        </section><section className="Router"/></node><node name="Sink"><section
        className="JobSink"/></node><connection source="Source" target="Queue"/><connection
        source="Queue" target="Sink"/></sim><results/></archive>"#;
    std::fs::write(&path, text).unwrap();
    let output = kendall(&["solve", path.to_str().unwrap(), "--format", "json"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("<results> is left out"));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let response = answer["classes"][0]["system_response_time_mean_s"].as_f64().unwrap();
    assert!((response - 1.0).abs() < 1e-9, "{answer}");
    let variance = answer["stations"][0]["number_variance"].as_f64().unwrap();
    assert!((variance - 20.0).abs() < 1e-9, "{answer}");
    std::fs::write(&path, text.replace("JobSink", "Fork")).unwrap();
    let text = refusal(&["solve", path.to_str().unwrap()]);
    assert!(text.contains("m.jsimg") && text.contains("`Sink` (Fork)"), "{text}");
}

/// Every model that is shipped and no sweep: written as a model file, it is the same.
#[test]
fn models_are_written_as_model_files() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.toml");
    let copy = copy.to_str().unwrap();
    let mut written = 0;
    for entry in std::fs::read_dir(root().join("studies/models")).unwrap() {
        let path = entry.unwrap().path();
        let path = path.to_str().unwrap();
        let flags = ["--solver", "simulation", "--most-customers", "1000", "--format", "json"];
        let others = ["connection-pool", "three-tier", "layered", "memcached-network"];
        if others.iter().any(|other| path.ends_with(&format!("/{other}.toml"))) {
            continue;
        }
        let answer =
            |path: &str, more: &[&str]| json(&[&["solve", path], &flags[..], more].concat());
        assert_eq!(answer(path, &["--write", copy]), answer(copy, &[]), "{path}");
        written += 1;
    }
    assert!(written > 10);
    let refused = refusal(&[
        "solve",
        "mm1",
        "--arrival-rate",
        "1/s",
        "--service-time",
        "0.5s",
        "--write",
        "x",
    ]);
    assert!(refused.contains(".toml or .jmva"), "{refused}");
}

#[test]
fn solvers_stand_side_by_side() {
    let answer = json(&[
        "solve",
        "studies/models/multi-server.toml",
        "--compare",
        "convolution,schweitzer,seidmann",
        "--format",
        "json",
    ]);
    let list = answer["comparison"].as_array().unwrap();
    assert_eq!(list.len(), 3);
    assert_eq!(list[0]["answer"]["accuracy"], "exact");
    assert_eq!(list[1]["answer"]["accuracy"], "approximation");
}

#[test]
fn a_worked_case_is_solved_by_its_short_form() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("case.json");
    let case = r#"{ "model": { "kind": "M/M/1", "arrival_rate_per_s": 125,
        "service_rate_per_s": 500 }, "outputs": { "p_at_least_13": {} } }"#;
    std::fs::write(&path, case).unwrap();
    let answer = json(&["solve", path.to_str().unwrap(), "--format", "json"]);
    assert_eq!(answer["outputs"]["p_at_least_13"]["value"], 1.490_116_119_384_765_6e-8);
    assert_eq!(answer["outputs"]["mean_jobs"]["unit"], "jobs");
}

#[test]
fn refusals_carry_the_numbers_and_the_way_out() {
    let text = refusal(&["solve", "mm1", "--arrival-rate", "592/s", "--service-rate", "334/s"]);
    assert!(text.contains("1.772455") && text.contains("at least 2 are needed"), "{text}");
    let text = refusal(&["solve", "mmx", "--arrival-rate", "1/s", "--service-rate", "2/s"]);
    assert!(text.contains("known are mm1"), "{text}");
    let text = refusal(&["solve", "studies/models/one-queue.toml", "--solver", "magic"]);
    assert!(text.contains("known are auto"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.toml");
    std::fs::write(
        &path,
        "arrival_rate_per_s = 1\nstations = [{ name = \"a\", servers = 0, service_time_s = 1 }]",
    )
    .unwrap();
    let text = refusal(&["solve", path.to_str().unwrap()]);
    assert!(text.contains("stations[0].servers: 0 is refused"), "{text}");
    std::fs::write(&path, "arrival_rate_per_s = 1\nstation = 1\nstations = []").unwrap();
    let text = refusal(&["solve", path.to_str().unwrap()]);
    assert!(text.contains("m.toml:2: station: no such key; did you mean `stations`?"), "{text}");
}

#[test]
fn a_slip_of_the_pen_is_named_once_with_its_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.toml");
    let solve = |text: &str| {
        std::fs::write(&path, text).unwrap();
        refusal(&["solve", path.to_str().unwrap()])
    };
    let station = "stations = [{ name = \"a\", service_time_s = 1 }]";
    let text = solve(&format!("{station}\narrival_rate_per_s = nan"));
    assert!(text.contains("m.toml:2: arrival_rate_per_s: `NaN` is not a finite number"), "{text}");
    let text = solve(&format!("{station}\narrival_rate_per_s = \"4\""));
    assert!(text.contains("m.toml:2: arrival_rate_per_s: "), "{text}");
    let text = solve(&format!("{station}\narrival_rate_per_s = 4"));
    assert_eq!(text.matches("no steady state").count(), 1, "{text}");
    let text = solve("kind = \"M/M/1\"\narrival_rate_per_s = 4\nservice_rate_per_s = 5\nk = 3");
    assert!(text.contains("m.toml:4: k: no such key"), "{text}");
    // A kind with a typing error and a file that is not there.
    let text = refusal(&["solve", "mm7"]);
    assert!(text.contains("`mm7` is not a kind of station") && text.contains("`mm1`"), "{text}");
    let text = refusal(&["solve", "no/such/model"]);
    assert!(text.contains("there is no such file"), "{text}");
    let text = refusal(&[
        "solve",
        "mm1",
        "--arrival-rate",
        "1/s",
        "--service-rate",
        "2/s",
        "--offered-load",
        "3",
    ]);
    assert!(text.contains("--offered-load is for erlang-b"), "{text}");
}

#[test]
fn nobody_arriving_is_an_answer() {
    let arguments = ["solve", "mm1", "--arrival-rate", "0/s", "--service-rate", "5/s"];
    let answer = json(&[&arguments[..], &["--format", "json"]].concat());
    assert_eq!(answer["stations"][0]["utilization"], 0.0, "{answer}");
    // As at any other rate: a script need not ask whether the rate is 0.
    let station = &answer["station"];
    assert_eq!(station["notation"], "M/M/1", "{answer}");
    for (key, value) in
        [("p0", 1.0), ("number_mean", 0.0), ("response_time_mean_s", 0.2), ("ln_p0", 0.0)]
    {
        assert_eq!(station[key].as_f64(), Some(value), "{key}: {answer}");
    }
    let quantiles = json(&[&arguments[..], &["--percentiles", "50", "--format", "json"]].concat());
    let median = quantiles["response_time_quantiles"][0]["time_s"].as_f64().unwrap();
    assert!((median / (0.2 * 2.0_f64.ln()) - 1.0).abs() < 1e-12, "{quantiles}");
    let text = refusal(&[
        "solve",
        "mmmk",
        "--arrival-rate",
        "0/s",
        "--service-rate",
        "5/s",
        "--servers",
        "3",
        "--capacity",
        "2",
    ]);
    assert!(text.contains("capacity"), "{text}");
    // Nor does a limit matter that is never reached: these asked for a simulation.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.json");
    let path = path.to_str().unwrap();
    let solve = |text: &str| {
        std::fs::write(path, text).unwrap();
        json(&["solve", path, "--format", "json"])
    };
    let nobody = r#""arrival_rate_per_s": 0, "service_rate_per_s": 5"#;
    for kind in [
        r#""kind": "M/M/1/5""#,
        r#""kind": "M/G/1/4", "service_scv": 2"#,
        r#""kind": "M/M/3/3""#,
        r#""kind": "M/M/2+M", "patience_time_s": 1"#,
        r#""kind": "M^[x]/M/1", "batch_size": 3"#,
        r#""kind": "M/M/2", "join_probabilities": [1, 0.5]"#,
    ] {
        let answer = solve(&format!("{{ {kind}, {nobody} }}"));
        let outputs = &answer["outputs"];
        assert_eq!(outputs["mean_jobs"]["value"], 0.0, "{kind}: {answer}");
        assert_eq!(outputs["ln_p0"]["value"], 0.0, "{kind}: {answer}");
    }
    // A class without arrivals has the waiting time of a first customer: Cobham with λ = 0 and 0.5, E[S²] =
    // 2, R₀ = 0.5; the first of two waits R₀, the second R₀/(1 − 0.5)².
    for (idle, wait) in [(0, 0.5), (1, 2.0)] {
        let class = |number: usize| {
            let rate = if number == idle { 0.0 } else { 0.5 };
            format!(
                r#"{{ "name": "c{number}", "priority": {}, "arrival_rate_per_s": {rate},
                "service_time_s": 1, "service_scv": 1 }}"#,
                number + 1
            )
        };
        let classes = [class(0), class(1)].join(", ");
        let answer = solve(&format!(r#"{{ "kind": "M/G/1-priority", "classes": [{classes}] }}"#));
        let found = answer["outputs"]["mean_wait_by_class"]["value"][idle].as_f64();
        assert_eq!(found, Some(wait), "{answer}");
    }
}

/// TOML refuses a key that is there twice; JSON took the second in silence.
#[test]
fn a_key_that_is_there_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.json");
    let text = "{ \"kind\": \"M/M/1\", \"arrival_rate_per_s\": 5,\n\"arrival_rate_per_s\": 8,\n\
                \"service_rate_per_s\": 10 }";
    std::fs::write(&path, text).unwrap();
    let text = refusal(&["solve", path.to_str().unwrap()]);
    assert!(text.contains("m.json:2: arrival_rate_per_s: is there twice"), "{text}");
}

#[test]
fn a_case_with_a_key_that_nobody_knows_is_not_met() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cases.json");
    let cases = r#"{ "cases": [
        { "id": "spelled", "model": { "kind": "M/M/1", "arrival_rate_per_s": 3,
          "service_rate_per_s": 2 }, "expects": "error" },
        { "id": "tolerance", "model": { "kind": "M/M/1", "arrival_rate_per_s": 1,
          "service_rate_per_s": 2 }, "outputs": { "mean_jobs": { "value": 1, "reltol": 1 } } },
        { "id": "unit", "model": { "kind": "M/M/1", "arrival_rate_per_s": 1,
          "service_rate_per_s": 2 }, "outputs": { "mean_response": { "value": 1, "unit": "ms" } } }
        ] }"#;
    std::fs::write(&path, cases).unwrap();
    let output = kendall(&["solve", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("did you mean `expect`") && text.contains("did you mean `rel_tol`"),
        "{text}"
    );
    assert!(text.contains("0 of 3 cases are met"), "{text}");
}

/// The public cases and other published ones, each output at its tolerance.
#[test]
fn files_of_worked_cases_are_met() {
    for (file, count) in [("crates/textbook/tests/public-model-cases.json", 17), (PUBLISHED, 67)] {
        let output = kendall(&["solve", file]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(text.contains(&format!("{count} of {count} cases are met")), "{text}");
        let page = std::fs::read_to_string(root().join("docs/models.md")).unwrap();
        let said = format!("`{file}` has {count}.");
        assert!(file != PUBLISHED || page.contains(&said), "docs/models.md does not say {said}");
    }
}

const PUBLISHED: &str = "crates/kendall/tests/commands/published-cases.json";

/// A `null` among the cases took the whole file with it.
#[test]
fn a_bad_case_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cases.json");
    let cases = r#"{ "cases": [
        { "id": "null", "model": { "kind": "M/M/1", "arrival_rate_per_s": 1,
          "service_rate_per_s": 2, "capacity": null }, "outputs": ["mean_jobs"] },
        7,
        { "id": "good", "model": { "kind": "M/M/1", "arrival_rate_per_s": 1,
          "service_rate_per_s": 2 }, "outputs": { "mean_jobs": { "value": 1 } } } ] }"#;
    std::fs::write(&path, cases).unwrap();
    let output = kendall(&["solve", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("null: refused: model.capacity: is null"), "{text}");
    assert!(text.contains("1 of 3 cases are met"), "{text}");
}

#[test]
fn a_case_that_is_not_met_has_its_own_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cases.json");
    let cases = r#"{ "cases": [
        { "id": "wrong", "model": { "kind": "M/M/1", "arrival_rate_per_s": 1,
          "service_rate_per_s": 2 }, "outputs": { "mean_jobs": { "value": 1.1 } } },
        { "id": "unknown", "model": { "kind": "M/M/1", "arrival_rate_per_s": 1,
          "service_rate_per_s": 2 }, "outputs": { "color": { "value": 1 } } },
        { "id": "unstable", "model": { "kind": "M/M/1", "arrival_rate_per_s": 3,
          "service_rate_per_s": 2 }, "expect": "error" } ] }"#;
    std::fs::write(&path, cases).unwrap();
    let output = kendall(&["solve", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("wrong: mean_jobs is 1.0, expected 1.1"), "{text}");
    assert!(text.contains("unknown: color is not known"), "{text}");
    assert!(text.contains("unstable: refused, as expected"), "{text}");
    assert!(text.contains("1 of 3 cases are met"), "{text}");
}

/// By formula and by simulation: the interval holds the exact value, the seed repeats it, progress
/// goes to standard error, and differences are to the first solver.
#[test]
fn the_simulator_answers_with_intervals() {
    let arguments = |format: &'static str| {
        [
            "solve",
            "studies/models/three-tier.toml",
            "--sweep",
            "population=50:50:1",
            "--compare",
            "mva,simulation",
            "--until",
            "2%",
            "--seed",
            "7",
            "--format",
            format,
        ]
    };
    let output = kendall(&arguments("json"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(notes.contains("simulation: ") && notes.contains("M customers"), "{notes}");
    let first: Value = serde_json::from_slice(&output.stdout).unwrap();
    let again: Value = serde_json::from_slice(&kendall(&arguments("json")).stdout).unwrap();
    assert_eq!(first, again, "one seed is one answer");
    let points = first["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert_eq!(points[1]["accuracy"], "estimate");
    let x = |index: usize| points[index]["throughput_per_s"].as_f64().unwrap();
    assert!((x(1) / x(0) - 1.0).abs() < 0.04, "{} {}", x(0), x(1));
}

#[test]
fn one_simulation_is_printed_with_its_intervals_and_percentiles() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.toml");
    std::fs::write(
        &path,
        "arrival_rate_per_s = 1\npercentiles = [95]\nstations = [{ name = \"a\", capacity = 6, \
         service_time_s = 0.9 }, { name = \"b\", service_time_s = 0.2 }]",
    )
    .unwrap();
    // A finite buffer in a network has no formula, and the refusal says what has.
    let text = refusal(&["solve", path.to_str().unwrap()]);
    assert!(text.contains("solver = \"simulation\""), "{text}");
    let arguments = ["solve", path.to_str().unwrap(), "--solver", "simulation", "--until", "5%"];
    let answer = json(&[&arguments[..], &["--format", "json"]].concat());
    assert_eq!(answer["accuracy"], "estimate");
    let class = &answer["simulation"]["classes"][0];
    assert!(class["throughput_per_s"]["half_width"].as_f64().unwrap() > 0.0, "{answer}");
    let output = kendall(&arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("estimate, 95 % intervals") && text.contains('±'), "{text}");
    assert!(text.contains("95 %: "), "{text}");
}

#[test]
fn a_layered_model_of_lqns_is_solved_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tower.lqn");
    let text = "G \"tower\" 1e-5 50 5 0.9 -1\nP 2 p a i p b f -1\nT 2 t users r ask -1 a m 2\n\
                t server n answer -1 b -1\nE 2 s ask 1 -1 y ask answer 1 -1 s answer 1 -1 -1\n";
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let copy = folder.path().join("tower.lqnx");
    let copy = copy.to_str().unwrap();
    let answer = json(&["solve", path, "--format", "json", "--write", copy]);
    assert_eq!(answer, json(&["solve", copy, "--format", "json"]));
    assert_eq!(answer["accuracy"], "approximation");
    // Two customers at a delay and a queue of 1 s each: 0.8/s by exact MVA; without waiting 1/s.
    let x = answer["classes"][0]["throughput_per_s"].as_f64().unwrap();
    assert!((x - 0.8).abs() < 0.05, "{x}");
    assert_eq!(answer["processors"][1]["utilization"], answer["tasks"][0]["utilization"]);
    let picture = folder.path().join("tower.svg");
    let picture = picture.to_str().unwrap();
    assert!(kendall(&["solve", path, "--plot", picture]).status.success());
    let drawn = std::fs::read_to_string(picture).unwrap();
    for said in ["users: N = 2", "server", "on b", "unlimited cores", "1 thread"] {
        assert!(drawn.contains(said), "{said}: {drawn}");
    }
    let refused = refusal(&["solve", path, "--sweep", "N=1:2:1"]);
    assert!(refused.contains("--sweep is for model files"), "{refused}");
    // Calls at once, second phases: the same from each kind of file.
    let path = root().join("studies/models/layered.toml");
    let path = path.to_str().unwrap();
    let answer = json(&["solve", path, "--format", "json", "--write", copy]);
    assert_eq!(answer["calls"][2]["kind"], "at once", "{answer}");
    let x = |answer: &Value| answer["classes"][0]["throughput_per_s"].as_f64().unwrap();
    let again = x(&json(&["solve", copy, "--format", "json"]));
    assert!((again / x(&answer) - 1.0).abs() < 1e-6, "{again}: {answer}");
    let copy = folder.path().join("copy.toml");
    let copy = copy.to_str().unwrap();
    assert!(kendall(&["solve", path, "--write", copy]).status.success());
    let again = x(&json(&["solve", copy, "--format", "json"]));
    assert!((again / x(&answer) - 1.0).abs() < 1e-6, "{again}: {answer}");
    let wrong = std::fs::read_to_string(copy).unwrap().replace("page = 1.0", "pag = 1.0");
    std::fs::write(copy, wrong).unwrap();
    let refused = refusal(&["solve", copy]);
    assert!(refused.contains("did you mean `page`?"), "{refused}");
}

/// Of layered models the table has these keys and no other; of the others every name is on the page.
#[test]
fn documents_list_the_keys_of_answers() {
    let mut documented = Documented::read("docs/models.md");
    let answer = json(&["solve", "studies/models/layered.toml", "--format", "json"]);
    documented.check("layered", &[answer]);
    let page = std::fs::read_to_string(root().join("docs/models.md")).unwrap();
    let (_, rest) = page.split_once("## JSON").unwrap();
    let (section, _) = rest.split_once("## Single stations").unwrap();
    let names: BTreeSet<&str> = quoted(section)
        .flat_map(|keys| keys.split(['.', '[', ']']))
        .filter(|name| !name.is_empty())
        .collect();
    let step = "--step-from=1/s";
    let station = ["mmm", "--arrival-rate", "2/s", "--service-rate", "1/s", "--servers", "3", step];
    let mut models: Vec<Vec<String>> = vec![station.map(str::to_owned).to_vec()];
    for entry in std::fs::read_dir(root().join("studies/models")).unwrap() {
        models.push(vec![entry.unwrap().path().to_str().unwrap().to_owned()]);
    }
    for model in models {
        let model: Vec<&str> = model.iter().map(String::as_str).collect();
        let mut tries = vec![Vec::new()];
        if !model[0].ends_with("layered.toml") {
            tries.push(vec!["--solver", "simulation", "--most-customers", "20000"]);
        }
        for more in tries {
            let arguments = [&["solve"][..], &model[..], &more[..], &["--format", "json"]].concat();
            let output = kendall(&arguments);
            let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else { continue };
            let mut given = BTreeSet::new();
            documented.keys_of(&answer, "", &mut given);
            // A row of a sweep has columns by the name of a station, and a doubt its figures.
            given.retain(|key| !key.contains("points[]") && !key.contains("doubts[]"));
            let parts = given.iter().flat_map(|key| key.split(['.', '[', ']']));
            for name in parts.filter(|name| !name.is_empty()) {
                assert!(names.contains(name), "docs/models.md lacks `{name}` ({model:?} {more:?})");
            }
        }
    }
}
