//! Every file in `studies/` at toy size, end to end: real servers, real load, on loopback.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};

use crate::support::{kendall, repository, run_toy};
use kendall_protocols::snapshot::counted;
use kendall_stats::estimate::Caveat;
use kendall_store::{Extent, Results, Status};
use kendall_study::StudyFile;

/// Runs a study file at toy size and checks what a study of any kind must leave.
fn runs_at_toy_size(file: &str) -> (tempfile::TempDir, Results) {
    runs_in(tempfile::tempdir().unwrap(), file)
}

fn runs_in(folder: tempfile::TempDir, file: &str) -> (tempfile::TempDir, Results) {
    let path = repository().join("studies").join(file);
    let output = run_toy(&path, folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    // A busy machine may make a run of half a second unfit for use (5); it must never fail.
    assert!(matches!(output.status.code(), Some(0 | 5)), "{file}: {}\n{stderr}", output.status);
    match serde_json::from_slice::<serde_json::Value>(&output.stdout) {
        Ok(summary) => assert_eq!(summary["runs_failed"], 0, "{file}: {stderr}"),
        // Three runs in a row whose generator had no core end the study.
        Err(_) => assert!(
            stderr.contains("use more threads, a lower rate or a less busy"),
            "{file}: {stderr}"
        ),
    }
    let results = Results::open(folder.path()).unwrap();
    for run in results.runs().unwrap() {
        assert_ne!(run.status, Status::Failed, "{file}: {:?}", run.reasons);
        let measured = results.measured(run.id).unwrap();
        // A rejected run may have had no core at all for its second.
        assert!(
            measured.throughput_per_s > 0.0 || run.status == Status::Rejected,
            "{file}: {run:?}"
        );
        assert_eq!(
            measured.response_time.count(),
            measured.operations.values().map(|counts| counts.completed).sum::<u64>()
        );
        assert!(measured.operations.values().all(|counts| counts.misses == 0), "{file}");
        assert!(!measured.processes.is_empty() && !measured.hosts.is_empty());
        let clients = run.setting("workload.clients").unwrap().as_u64();
        assert_eq!(Some(measured.clients), clients, "{file}");
    }
    (folder, results)
}

/// As above, for a system with proxies: what clients and tiers counted must agree.
fn runs_with_proxies(file: &str) {
    let (_folder, results) = runs_at_toy_size(file);
    for run in results.runs().unwrap() {
        let whole = results.record(run.id).unwrap();
        let extent = kendall_store::Extent::Whole;
        let asked: u64 = whole
            .generators
            .iter()
            .flat_map(|generator| &generator.operations)
            .filter(|row| row.extent == extent)
            .map(|row| row.counts.sent)
            .sum();
        let proxies: Vec<_> = whole.tiers.iter().filter(|tier| tier.tier == "proxies").collect();
        let served: u64 = proxies
            .iter()
            .flat_map(|tier| &tier.periods)
            .filter(|period| period.extent == extent)
            .map(kendall_store::TierPeriod::completions)
            .sum();
        let configured = run.setting("system.proxies").unwrap().as_u64().unwrap();
        assert_eq!(u64::try_from(proxies.len()).unwrap(), configured, "{file}");
        let silent = |caveat: &Caveat| matches!(caveat, Caveat::TierContradicts { tier, .. } if tier == "proxies");
        if run.caveats.iter().any(silent) {
            // A proxy had no core for seconds, and the run says so.
            continue;
        }
        // The first snapshot is taken before the first request, the last one after the last answer,
        // which may be counted a little after it was sent: one a client.
        let clients = run.setting("workload.clients").unwrap().as_u64().unwrap();
        assert!(served <= asked, "{file}: {served} served, {asked} sent");
        assert!(served + clients >= asked, "{file}: {served} served, {asked} sent");
        let workers = run.setting("system.workers").unwrap().as_u64().unwrap();
        for period in proxies.iter().flat_map(|tier| &tier.periods) {
            assert!(period.workers_busy.maximum <= workers, "{file}: {period:?}");
        }
    }
}

#[test]
fn baseline_one_server() {
    runs_at_toy_size("memcached/baseline-one-server.toml");
}

#[test]
fn network_of_one_server() {
    let (_folder, results) = runs_at_toy_size("memcached/network.toml");
    for run in results.runs().unwrap() {
        let link = &results.record(run.id).unwrap().graph.edges[0].link.clone().unwrap();
        let limits = (link.bandwidth_bytes_per_s, link.bandwidth_back_bytes_per_s);
        assert_eq!(limits, (Some(27_625_000.0), Some(11_750_000.0)));
    }
}

#[test]
fn baseline_two_servers() {
    runs_at_toy_size("memcached/baseline-two-servers.toml");
}

#[test]
fn baseline_one_proxy() {
    runs_with_proxies("memcached/baseline-one-proxy.toml");
}

#[test]
fn baseline_two_proxies() {
    runs_with_proxies("memcached/baseline-two-proxies.toml");
}

#[test]
fn baseline_two_proxies_expanded() {
    runs_with_proxies("memcached/baseline-two-proxies-expanded.toml");
}

#[test]
fn writes() {
    runs_with_proxies("memcached/writes.toml");
}

#[test]
fn multigets() {
    runs_with_proxies("memcached/multigets.toml");
}

#[test]
fn load_distribution() {
    runs_with_proxies("memcached/load-distribution.toml");
}

#[test]
fn two_level_writes() {
    runs_with_proxies("memcached/2k-writes.toml");
}

#[test]
fn two_level_reads() {
    runs_with_proxies("memcached/2k-reads.toml");
}

#[test]
fn two_level_mixed() {
    runs_with_proxies("memcached/2k-mixed.toml");
}

#[test]
fn saturation() {
    runs_with_proxies("memcached/saturation.toml");
}

/// An adaptive study prints what it found, in its JSON too, and its report has it. A station with
/// two servers of 20 ms saturates at two clients, whatever the machine does meanwhile.
#[test]
fn an_adaptive_study_says_what_it_found() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("adaptive.toml");
    let text = "name = 'adaptive'\n[system]\nkind = 'synthetic'\nworkers = 2\n\
                service = 'constant:20ms'\n[workload]\npath = '/'\n[measure]\nduration = '400ms'\n\
                warm_up = '0s'\ncool_down = '0s'\nrepetitions = 2\nretries = 2\n\
                [factors]\n'workload.clients' = { from = 1, to = 32, step = 1 }\n\
                [design]\nkind = 'adaptive'\nfactor = 'workload.clients'\n";
    std::fs::write(&study, text).unwrap();
    let results = folder.path().join("results");
    let run = |format: &str| {
        let mut command = kendall();
        command.arg("run").arg(&study).arg("--out").arg(&results).args(["--format", format]);
        command.output().unwrap()
    };
    let output = run("human");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 5)), "{output:?}");
    assert!(printed.contains("Found by the search over workload.clients"), "{printed}");
    let found = printed.lines().skip_while(|line| !line.starts_with("Found by the search"));
    assert!(found.take_while(|line| !line.starts_with("N* is")).count() > 4, "{printed}");
    // Paths of the files may be as long as they are.
    let mut lines = printed.lines().filter(|line| !line.contains(results.to_str().unwrap()));
    assert!(lines.all(|line| line.chars().count() <= 80), "{printed}");
    // Nothing is left to run, so the second answer is about the same runs.
    let summary: serde_json::Value = serde_json::from_slice(&run("json").stdout).unwrap();
    let line = &summary["searches"][0];
    assert_eq!((line["grid"].as_u64(), line["sweep_runs"].as_u64()), (Some(32), Some(64)));
    assert!(line["runs"].as_u64().unwrap() < 40, "{line}");
    let found = &line["found"];
    if found.is_null() {
        // A busy machine made a run unfit for use, again and again: then that is what it says.
        assert!(output.status.code() == Some(5), "{line}");
        assert!(line["without"].as_str().unwrap().contains("--retry-failed"), "{line}");
        return;
    }
    assert!(found["maximum_throughput_per_s"]["center"].as_f64().unwrap() > 20.0, "{line}");
    assert!(found["best"].as_f64().unwrap() >= 2.0, "{line}");
    let html = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(html.contains("Maximum found by the adaptive search"));
}

/// `kind = "processes"`: a well-known server from Debian's packages, its CPU time counted with that
/// of the worker processes below it.
#[test]
fn nginx_as_a_service_of_the_user() {
    let (folder, results) = runs_at_toy_size("processes/nginx.toml");
    for run in results.runs().unwrap() {
        let measured = results.measured(run.id).unwrap();
        let web = measured.processes.iter().find(|process| process.part.name == "web").unwrap();
        assert!(web.cores_busy() > 0.0);
        let workers = run.factor("system.parameters.workers").unwrap().number.unwrap();
        let sample = results.processes(run.id).unwrap();
        let threads =
            sample.iter().find(|process| process.part.name == "web").unwrap().samples[0].threads;
        assert!(kendall_units::exact_f64(threads) >= 1.0 + workers, "{threads} threads");
    }
    assert!(folder.path().join("logs/c000-r00-a0/web-0/nginx.conf").is_file(), "logs are kept");
}

/// The cache by itself, read and written.
#[test]
fn build_cache_rates() {
    let (folder, results) = runs_at_toy_size("build-cluster/cache-rates.toml");
    for run in results.runs().unwrap() {
        let record = results.record(run.id).unwrap();
        let cache = record.tiers.iter().find(|tier| tier.tier == "cache").unwrap();
        let served: u64 = cache.periods.iter().map(kendall_store::TierPeriod::completions).sum();
        assert!(served > 0, "{cache:?}");
        // A thread has requests of many clients under way, so threads are no bound of those in service.
        assert!(cache.periods.iter().all(|period| period.workers == 0), "{cache:?}");
    }
    let data = folder.path().join("logs/c000-r00-a0/cache-0");
    assert!(data.join("log").is_file() && !data.join("data").exists(), "blobs are not kept");
}

/// Three caches behind a front: each has its share, and the front counts what it passes on.
#[test]
fn build_cache_servers() {
    let (_folder, results) = runs_at_toy_size("build-cluster/cache-servers.toml");
    for run in results.runs().unwrap() {
        let caches = run.setting("system.caches").unwrap().as_u64().unwrap();
        let record = results.record(run.id).unwrap();
        let served = |tier: &str| -> Vec<u64> {
            let tiers = record.tiers.iter().filter(|one| one.tier == tier);
            let whole = kendall_store::Extent::Whole;
            let periods = tiers.map(|one| one.periods.iter().filter(|p| p.extent == whole));
            periods.map(|all| all.map(kendall_store::TierPeriod::completions).sum()).collect()
        };
        let counts: Vec<u64> = served("cache");
        assert_eq!(counts.len(), usize::try_from(caches).unwrap());
        assert!(counts.iter().all(|count| *count > 0), "each has a share: {counts:?}");
        assert_eq!(served("front").len(), usize::from(caches > 1));
    }
}

#[test]
fn build_cache_vertical() {
    runs_at_toy_size("build-cluster/cache-vertical.toml");
}

#[test]
fn build_cache_size() {
    runs_at_toy_size("build-cluster/cache-size.toml");
}

/// What a study says of cores it holds, or it says why it cannot. A limit from above holds however
/// busy the machine is.
#[test]
fn cores_are_limited_or_the_study_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("limited.toml");
    let text = "name = 'limited'\n[system]\nkind = 'build-cluster'\ncache_cores = 0.4\ncore = '50%'\n\
                [workload]\nclients = 8\nmix = 'get'\nstock = 20\n[measure]\nduration = '1s'\n\
                warm_up = '0s'\ncool_down = '0s'\nrepetitions = 1\n";
    std::fs::write(&study, text).unwrap();
    let out = folder.path().join("results");
    let output = kendall().arg("run").arg(&study).arg("--out").arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        assert!(said.contains("cores cannot be limited"), "{said}");
        return;
    }
    assert!(matches!(output.status.code(), Some(0 | 5)), "{said}");
    let results = Results::open(&out).unwrap();
    let run = &results.runs().unwrap()[0];
    let processes = results.processes(run.id).unwrap();
    let cache = processes.iter().find(|process| process.part.name == "cache").unwrap();
    let (first, last) = (cache.samples.first().unwrap(), cache.samples.last().unwrap());
    let cpu = |s: &kendall_store::ProcessSample| s.cpu_user_ns + s.cpu_system_ns;
    let used = kendall_units::exact_f64(cpu(last) - cpu(first));
    let elapsed = kendall_units::exact_f64(last.at_ns - first.at_ns);
    // A period of 10 ms at each end, and CPU time counted in ticks of as much.
    assert!(used <= 0.2 * elapsed + 40e6, "{used} ns of CPU in {elapsed} ns");
    assert!(used > 0.0);
}

/// `kind = "attached"`: a server that runs already, its CPU time by its process id.
#[test]
fn a_server_that_runs_already() {
    let folder = tempfile::tempdir().unwrap();
    let port_file = folder.path().join("port");
    let mut server = std::process::Command::new("memcached")
        .args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-u", "root"])
        .env("MEMCACHED_PORT_FILENAME", &port_file)
        .spawn()
        .unwrap();
    let port = || -> Option<String> {
        let text = std::fs::read_to_string(&port_file).ok()?;
        Some(text.lines().next().filter(|_| text.ends_with('\n'))?.rsplit(' ').next()?.to_owned())
    };
    crate::support::wait_until("the server", || port().is_some());
    let study = folder.path().join("attached.toml");
    let text = format!(
        "name = 'attached'\n[[system.tiers]]\nname = 'cache'\naddresses = ['127.0.0.1:{}']\n\
         pids = ['{}']\nfill = true\n[system]\nkind = 'attached'\n[workload]\nprotocol = 'memcached'\n\
         clients = 2\nmix = {{ get = 1 }}\nkeys = 100\n[measure]\nduration = '500ms'\n\
         warm_up = '0s'\ncool_down = '0s'\nrepetitions = 1\n",
        port().unwrap(),
        server.id()
    );
    std::fs::write(&study, text).unwrap();
    let (_results, results) = runs_at_toy_size(study.to_str().unwrap());
    assert!(server.try_wait().unwrap().is_none(), "a study leaves alone what it did not start");
    server.kill().unwrap();
    server.wait().unwrap();
    let run = &results.runs().unwrap()[0];
    let measured = results.measured(run.id).unwrap();
    let cache = measured.processes.iter().find(|process| process.part.name == "cache").unwrap();
    assert!(cache.cores_busy() > 0.0 && cache.resident_bytes_maximum > 0);
}

#[test]
fn the_demo_names_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let output = kendall().args(["demo", "--toy", "--out"]).arg(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(matches!(output.status.code(), Some(0 | 5)), "{output:?}");
    assert!(text.contains("throughput") && text.contains("report.html"), "{text}");
    assert!(folder.path().join("report.html").is_file());
}

fn study_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Models for `kendall solve` lie beside the studies.
        if path.ends_with("models") {
            continue;
        }
        if path.is_dir() {
            study_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
}

/// The files are the reference for every key: each is accepted at both sizes.
#[test]
fn every_study_file_is_accepted_at_full_and_at_toy_size() {
    let mut files = Vec::new();
    study_files(&repository().join("studies"), &mut files);
    assert!(files.len() >= 12);
    for file in files {
        for toy in [false, true] {
            let study = StudyFile::read(&file, toy, &[]).unwrap_or_else(|error| panic!("{error}"));
            kendall_study::Plan::of(&study).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// A study that no test runs may be broken for long. Each is named in a call, here or in `bazel_studies.rs`; the demo is
/// run by its command, and `reference` is to copy from.
#[test]
fn every_study_is_run_by_a_test() {
    let tests = ["studies/published.rs", "cluster/bazel_studies.rs"];
    let read = |file| std::fs::read_to_string(repository().join("crates/kendall/tests").join(file));
    let text = tests.map(|file| read(file).unwrap()).concat();
    let is_run = |name: &str| text.contains(&format!("(\"{name}\""));
    let folder = repository().join("studies");
    let mut files = Vec::new();
    study_files(&folder, &mut files);
    for file in files {
        let name = file.strip_prefix(&folder).unwrap().to_str().unwrap();
        let of_bazel = name.trim_start_matches("build-cluster/");
        let is_shown = name == "demo.toml" || name.starts_with("reference/");
        let known = is_shown || is_run(name) || is_run(of_bazel);
        assert!(known, "no test runs studies/{name} at toy size");
    }
}

#[test]
fn races() {
    runs_at_toy_size("races/cache-write.toml");
    runs_at_toy_size("races/http-load.toml");
    runs_at_toy_size("races/trivial-action.toml");
    runs_with_a_queue("races/queue-calls.toml");
    runs_with_proxies("races/proxy-worker.toml");
}

#[test]
fn compute_exponent() {
    runs_at_toy_size("compute/exponent.toml");
}

#[test]
fn compute_matrix_size() {
    runs_at_toy_size("compute/matrix-size.toml");
}

/// Rates that are shares of the capacity: all runs have the one that was measured first, and are
/// sent at their share of it.
#[test]
fn compute_constant_gaps() {
    let (_folder, results) = runs_at_toy_size("compute/constant-gaps.toml");
    let runs = results.runs().unwrap();
    let rate_of = |text: &str| kendall_units::parse_rate(text).unwrap().get();
    let capacity = runs[0].setting("workload.capacity").unwrap().as_str().unwrap().to_owned();
    for run in &runs {
        assert_eq!(run.setting("workload.capacity").unwrap().as_str(), Some(&capacity[..]));
        let share = match run.factors[0].text.as_str() {
            "0.1 of capacity" => 0.1,
            "0.3 of capacity" => 0.3,
            other => panic!("{other}"),
        };
        let rate = share * rate_of(&capacity);
        assert!((run.factors[0].number.unwrap() / rate - 1.0).abs() < 1e-9, "{run:?}");
        let record = results.record(run.id).unwrap();
        let sent: f64 = record.generators.iter().filter_map(|g| g.arrival_rate_per_s).sum();
        assert!((sent / rate - 1.0).abs() < 1e-9, "{sent} instead of {rate}");
    }
}

#[test]
fn compute_mm1() {
    runs_at_toy_size("compute/mm1.toml");
}

/// Connections take the instances in turn, so that each serves its share.
#[test]
fn compute_in_several_instances() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("instances.toml");
    let text = "name = 'instances'\n[system]\nkind = 'compute'\ninstances = 2\n\
                [workload]\npath = '/compute?size=4&exponent=2'\nclients = 4\n\
                [measure]\nduration = '1s'\nrepetitions = 1\nwarm_up = '0s'\ncool_down = '0s'\n";
    std::fs::write(&file, text).unwrap();
    let out = folder.path().join("out");
    let output = kendall().arg("run").arg(&file).arg("--out").arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 5)), "{said}");
    let results = Results::open(&out).unwrap();
    let record = results.record(results.runs().unwrap()[0].id).unwrap();
    let completed: Vec<u64> = record
        .tiers
        .iter()
        .flat_map(|tier| &tier.periods)
        .filter(|period| period.extent == Extent::Whole)
        .map(kendall_store::TierPeriod::completions)
        .collect();
    assert_eq!(completed.len(), 2, "{said}");
    assert!(completed.iter().all(|count| *count > 0), "{completed:?}");
}

#[test]
fn compute_cache() {
    runs_at_toy_size("compute/cache.toml");
}

#[test]
fn compute_threads() {
    runs_at_toy_size("compute/threads.toml");
}

/// U = X·S holds by itself at every station [LZGS84 §3.2]: the time that servers were busy is the
/// sum of the service times, whatever the machine does meanwhile. They may differ by the visits
/// that were under way at both ends of the period, and by what answers left late. Those visits may
/// be counted in another period only, so their longest is that of the whole run.
fn calibrates(file: &str) {
    let (_folder, results) = runs_at_toy_size(file);
    for run in results.runs().unwrap() {
        let record = results.record(run.id).unwrap();
        let tiers = record.tiers.iter().filter(|tier| tier.kind == "synthetic");
        let periods: Vec<_> = tiers.flat_map(|tier| &tier.periods).collect();
        let services = periods.iter().filter_map(|p| p.requests.get("request"));
        let longest = services.filter_map(|visits| visits.stages["service_time"].max()).max();
        for period in periods {
            let Some(visits) = period.requests.get("request") else { continue };
            let (service, lateness) = (&visits.stages["service_time"], &visits.stages["lateness"]);
            let sum = |histogram: &kendall_stats::histogram::Histogram| {
                histogram.mean().unwrap_or(0.0) * kendall_units::exact_f64(histogram.count())
            };
            let elapsed_ns = kendall_units::exact_f64(period.to_ns - period.from_ns);
            let busy_ns = period.workers_busy.mean * elapsed_ns;
            let longest_ns = kendall_units::exact_f64(longest.unwrap_or(0));
            let ends = 2.0 * kendall_units::exact_f64(period.workers) * longest_ns;
            let difference_ns = (busy_ns - (sum(service) - sum(lateness))).abs();
            // Three significant digits of the histograms: 0.1 %.
            let allowed_ns = ends + sum(lateness) + 0.002 * busy_ns;
            assert!(
                service.count() == 0 || difference_ns <= allowed_ns,
                "{file}: busy {busy_ns} ns, served {} ns, allowed {allowed_ns} ns",
                sum(service)
            );
        }
    }
}

/// The chain against the formula: a station whose exponential service times are waited and not
/// burnt, under Poisson arrivals, must show the response time of M/M/m.
///
/// The allowance has three parts. Sampling: 3.5 standard errors of a mean over n requests, from the
/// asymptotic variance of waiting times in M/M/1, ρ(2 + 5ρ − 4ρ² + ρ³)/((1 − ρ)⁴μ²) [Daley68], with
/// that of the service times added at its worst; M/M/m at the same ρ and μm waits less and varies
/// less. Lateness of the tier: what waits longer than drawn serves longer, so the formula is also
/// taken at the service time with its mean lateness. Lateness of the generator, as it is.
///
/// Where the machine stood still for so long that the station with its lateness has no steady state, nothing follows for
/// the upper bound: the run is made again.
fn matches_mmm(file: &str, workers: u32, rate: f64, service_s: f64) {
    let text = std::fs::read_to_string(repository().join("studies").join(file)).unwrap();
    let toy = text.find("[toy]").unwrap();
    let text = format!(
        "{}[toy]\n\"measure.duration\" = \"12s\"\n\"measure.warm_up\" = \"1s\"\n\
         \"measure.repetitions\" = 1\n\"factors.workload.rate\" = [\"{rate}/s\"]\n{}",
        &text[..toy],
        if workers > 1 {
            format!("\"factors.system.workers\" = [{workers}]\n")
        } else {
            String::new()
        }
    );
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("calibration.toml");
    std::fs::write(&study, text).unwrap();
    let tells = (0..5).any(|_| {
        let (_folder, results) = runs_at_toy_size(study.to_str().unwrap());
        is_as_mmm(file, &results, workers, rate, service_s)
    });
    assert!(tells, "{file}: the machine stood still in five runs");
}

/// Whether the machine was fast enough to tell; then the response time is that of the formula.
fn is_as_mmm(file: &str, results: &Results, workers: u32, rate: f64, service_s: f64) -> bool {
    let run = &results.runs().unwrap()[0];
    let measured = results.measured(run.id).unwrap();
    let record = results.record(run.id).unwrap();
    let late_s = |found: Option<f64>| found.unwrap_or(0.0) / 1e9;
    let tier_late = record.tiers.iter().filter(|tier| tier.kind == "synthetic");
    let tier_late = tier_late
        .flat_map(|tier| &tier.periods)
        .filter_map(|period| period.requests.get("request")?.stages.get("lateness")?.mean());
    let tier_late = late_s(tier_late.reduce(f64::max));
    let sent_late = record.generators.iter().map(|generator| generator.lateness.mean());
    let sent_late = late_s(sent_late.flatten().reduce(f64::max));

    let response = |service_s: f64| {
        let station = kendall_queueing::station::mmm(rate, 1.0 / service_s, workers.into());
        station.ok().map(|station| station.response_time.mean)
    };
    let Some(late) = response(service_s + tier_late) else { return false };
    let n = kendall_units::exact_f64(measured.response_time.count());
    let rho = rate * service_s / f64::from(workers);
    let waits = rho * (2.0 + 5.0 * rho - 4.0 * rho.powi(2) + rho.powi(3)) / (1.0 - rho).powi(4);
    let one_s = service_s / f64::from(workers);
    let standard_error = ((waits / n).sqrt() * one_s) + service_s / n.sqrt();
    let truth = response(service_s).unwrap();
    let found = measured.response_time.mean().unwrap() / 1e9;
    let above = 3.5 * standard_error + late - truth + sent_late;
    assert!(
        found > truth - 3.5 * standard_error && found < truth + above,
        "{file}: {found} s measured, {truth} s by M/M/{workers} at {rate}/s; standard error \
         {standard_error} s, lateness {tier_late} s at the tier and {sent_late} s at the generator"
    );
    true
}

#[test]
fn a_known_station_is_measured_as_mm1_says() {
    matches_mmm("calibration/mm1.toml", 1, 100.0, 0.005);
}

#[test]
fn four_known_servers_are_measured_as_mmm_says() {
    matches_mmm("calibration/mmm.toml", 4, 120.0, 0.02);
}

#[test]
fn calibration_mm1() {
    calibrates("calibration/mm1.toml");
}

#[test]
fn calibration_mmm() {
    calibrates("calibration/mmm.toml");
}

/// A folder that PostgreSQL's own user may enter when the tests run as root.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    folder
}

/// As the others, for a system with a message queue: messages were checked, both tiers were seen,
/// and nothing of the database is left.
fn runs_with_a_queue(file: &str) {
    let (folder, results) = runs_in(open_folder(), file);
    let mut told = 0;
    for run in results.runs().unwrap() {
        let record = results.record(run.id).unwrap();
        let operations = || record.generators.iter().flat_map(|generator| &generator.operations);
        let errors: u64 = operations().flat_map(|row| row.counts.errors.values()).sum();
        assert_eq!(errors, 0, "{file}: {run:?}");
        let received = operations().any(|row| row.operation == "receive" && row.counts.hits > 0);
        // Others may have had the cores in all of a toy's time.
        let busy = |caveat: &Caveat| matches!(caveat, Caveat::NoisyNeighbor { .. });
        let is_disturbed = run.status == Status::Rejected || run.caveats.iter().any(busy);
        assert!(received || is_disturbed, "{file}: {run:?}");
        let measured = results.measured(run.id).unwrap();
        for role in ["middlewares", "database"] {
            let process =
                measured.processes.iter().find(|process| process.part.name == role).unwrap();
            assert!(process.resident_bytes_maximum > 0, "{file}: {role}");
        }
        let middlewares = record.tiers.iter().filter(|tier| tier.kind == "message-queue");
        let stages = middlewares
            .flat_map(|tier| &tier.periods)
            .filter_map(|period| period.requests.get("send"))
            .filter(|send| send.stages.contains_key("connection_wait_time"));
        assert!(stages.count() > 0, "{file}");
        batches_are_counted(file, &record);
        told += is_counted_inside(file, &record);
    }
    // A busy PostgreSQL may not tell in time; not in every run.
    if contrib_is_installed(file) {
        assert!(told > 0, "{file}: no statement");
    }
    measured_by_itself(file, &results);
    // A machine that is too busy to stop in time leaves what had to be killed, and says so.
    let caveats = results.runs().unwrap().into_iter().flat_map(|run| run.caveats);
    let killed = caveats.filter(|caveat| matches!(caveat, Caveat::Killed { .. })).count();
    let logs = std::fs::read_dir(folder.path().join("logs")).unwrap();
    let mut left = 0;
    for run in logs.map(|entry| entry.unwrap().path()) {
        assert!(run.join("database-0/log").is_file(), "{}", run.display());
        left += usize::from(run.join("database-0/data").exists());
    }
    assert!(left <= killed, "{left} runs left their data, {killed} were killed");
}

/// Each middleware tells its batches by lane, and the first what PostgreSQL counts of its statements: all
/// operations are in some batch. How many statements were told.
fn is_counted_inside(file: &str, record: &kendall_store::RunRecord) -> usize {
    let middlewares = record.tiers.iter().filter(|tier| tier.kind == "message-queue");
    let whole = middlewares.flat_map(|tier| &tier.periods).filter(|p| p.extent == Extent::Whole);
    let mut inside = Vec::new();
    for period in whole {
        let of = |kind: &'static str| period.counted.iter().filter(move |one| one.kind == kind);
        let [database] = period.backends.as_slice() else { panic!("{file}: one database") };
        let (batches, operations) =
            of(counted::BATCH).fold((0, 0), |sum, one| (sum.0 + one.count, sum.1 + one.items));
        // What is under way when a snapshot is taken is counted by one of the two.
        let under_way = 2 * u64::from(period.workers);
        assert!(batches.abs_diff(database.requests) <= under_way, "{file}: {period:?}");
        assert!(batches > 0 && operations >= batches, "{file}: {batches}, {operations}");
        inside.push(of(counted::STATEMENT).map(|one| (one.count, one.time_ns)).collect::<Vec<_>>());
    }
    let inside: Vec<(u64, u64)> = inside.into_iter().flatten().collect();
    for (calls, time_ns) in &inside {
        assert!(*calls > 0 && *time_ns > 0, "{file}: {calls} calls in {time_ns} ns");
    }
    inside.len()
}

/// Before the first run the database is measured by itself, once: every run has the same figures.
fn measured_by_itself(file: &str, results: &Results) {
    let runs = results.runs().unwrap();
    let first = &runs[0].environment["pgbench"];
    assert!(runs.iter().all(|run| run.environment["pgbench"] == *first), "{file}");
    assert_eq!(first["missing"].is_null(), contrib_is_installed(file), "{file}: {first}");
    let told = first["runs"].as_array().into_iter().flatten();
    let clients: Vec<u64> = told
        .map(|run| {
            let of = |key: &str| run[key].as_f64().unwrap();
            assert!(of("transactions_per_s") > 0.0 && of("latency_mean_s") > 0.0, "{file}: {run}");
            run["clients"].as_u64().unwrap()
        })
        .collect();
    assert!(first["runs"].is_null() || clients == [1, 4], "{file}: {first}");
}

/// Whether what comes with PostgreSQL and is no part of it is there: pgbench, and the module that counts
/// statements.
fn contrib_is_installed(file: &str) -> bool {
    let places =
        ["/usr/lib/postgresql", "/usr/pgsql", "/usr/local/pgsql", "/opt/postgresql"].map(Path::new);
    let versions = places.iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten();
    let folders = versions.map(|version| version.unwrap().path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed =
        folders.chain(std::env::split_paths(&path)).any(|bin| bin.join("pgbench").is_file());
    if installed {
        return true;
    }
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    {
        println!("SKIPPED: {file}: there is no pgbench");
    }
    false
}

/// A tier whose workers serve batches counts each one: what was begun and not yet counted is under
/// way, one a worker at most, at either end of a run. Within a run a snapshot reads its counters one
/// after the other while workers go on, for as long as the machine keeps it from its core.
fn batches_are_counted(file: &str, record: &kendall_store::RunRecord) {
    let middlewares = record.tiers.iter().filter(|tier| tier.kind == "message-queue");
    let whole = middlewares.flat_map(|tier| &tier.periods).filter(|p| p.extent == Extent::Whole);
    let mut held = 0;
    for period in whole {
        held += period.held_time.count();
        let under_way = 2 * u64::from(period.workers);
        let [database] = period.backends.as_slice() else { panic!("{file}: one database") };
        let (answered, requests) = (database.backend_time.count(), database.requests);
        assert!(answered.abs_diff(requests) <= under_way, "{file}: {answered} of {requests}");
        let batches = period.held_time.count();
        assert!(batches + under_way >= answered, "{file}: {batches} held, {answered} answered");
        assert!(database.keys >= requests, "{file}: {} in {requests}", database.keys);
    }
    assert!(held > 0, "{file}: no worker was held");
}

#[test]
fn queue_single_client() {
    runs_with_a_queue("message-queue/single-client.toml");
}

#[test]
fn queue_stability() {
    runs_with_a_queue("message-queue/stability.toml");
}

#[test]
fn queue_two_level_middlewares() {
    runs_with_a_queue("message-queue/2k-middlewares.toml");
}

#[test]
fn queue_two_level_threads() {
    runs_with_a_queue("message-queue/2k-threads.toml");
}

#[test]
fn queue_two_level_cores() {
    runs_with_a_queue("message-queue/2k-cores.toml");
}

#[test]
fn queue_message_size() {
    runs_with_a_queue("message-queue/message-size.toml");
}

#[test]
fn queue_clients() {
    runs_with_a_queue("message-queue/clients.toml");
}

#[test]
fn queue_models() {
    runs_with_a_queue("message-queue/models.toml");
}
