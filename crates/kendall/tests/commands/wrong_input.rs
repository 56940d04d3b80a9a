//! Input of a user who does not know the program yet: files of another kind, results that are none, a
//! disk without room, figures that cannot be.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Stdio;

use crate::support::{kendall, repository};

/// Exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = kendall().args(arguments).current_dir(repository()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn refused(arguments: &[&str], says: &str) {
    let (code, _, error) = run(arguments);
    assert_eq!(code, Some(2), "{arguments:?}: {error}");
    assert!(error.contains(says), "{says} is not in {error}");
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A reader of the file must not take an empty one for a result.
#[test]
fn a_result_that_does_not_fit_on_the_disk_is_no_success() {
    let mm1 = ["solve", "mm1", "--arrival-rate", "1/s", "--service-time", "1ms"];
    for arguments in [&mm1[..], &["--help"], &["schema", "study"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = kendall().args(arguments).stdout(Stdio::from(full)).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {error}");
        assert!(error.contains("cannot be written to standard output"), "{error}");
    }
}

/// A link is there, wherever it leads; and what is no file is never replaced.
#[test]
fn a_study_is_not_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("a.toml"), folder.path().join("target"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let link = link.to_str().unwrap();
    refused(&["init", "--template", "demo", "-o", link], "exists");
    let (code, _, error) = run(&["init", "--template", "demo", "--force", "-o", link]);
    assert!(code == Some(3) && error.contains("no regular file"), "{error}");
    assert!(!target.exists());
    let new = file(folder.path(), "b.toml", "old");
    let (code, _, error) = run(&["init", "--template", "demo", "--force", "-o", &new]);
    assert_eq!(code, Some(0), "{error}");
    assert!(std::fs::read_to_string(&new).unwrap().contains("name = \"demo\""));
    refused(&["predict", "results", "--until", "0%"], "above 0%");
}

#[test]
fn results_that_cannot_be_read_are_refused_alike_by_all_commands() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let database = empty.join("results.db");
    std::fs::write(&database, []).unwrap();
    let (empty, missing) = (empty.to_str().unwrap(), folder.path().join("missing"));
    let missing = missing.to_str().unwrap();
    for command in ["report", "predict"] {
        refused(&[command, missing], "there is no results.db");
        refused(&[command, empty], "is empty, or no file");
    }
    assert_eq!(std::fs::metadata(&database).unwrap().len(), 0, "reading made a database");
    std::fs::write(&database, "no database, but more than the head of one has".repeat(9)).unwrap();
    for command in ["report", "predict"] {
        refused(&[command, empty], "put a copy of it back, run the study again with another --out");
    }
    let table = file(folder.path(), "table.csv", "configuration,value\na,1\n");
    for command in ["report", "predict"] {
        refused(&[command, &table], "table.csv is a file; results are a folder");
    }
}

#[test]
fn a_file_of_another_command_says_which_command_takes_it() {
    refused(&["solve", "studies/demo.toml"], "`kendall run studies/demo.toml` runs it");
    refused(&["run", "studies/models/three-tier.toml"], "`kendall solve` takes this file");
}

#[test]
fn a_file_that_is_none_of_its_kind_says_what_it_is_or_where_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("picture.toml");
    std::fs::write(&picture, [0x89, b'P', b'N', b'G', 0xff, 0]).unwrap();
    let picture = picture.to_str().unwrap();
    for arguments in [&["solve", picture][..], &["run", picture], &["observe", picture]] {
        refused(arguments, "it is not a text file");
    }
    let other = folder.path().join("other.jmva");
    std::fs::write(&other, b"<?xml version='1.0' encoding='windows-1252'?><model a='\xFC'/>")
        .unwrap();
    refused(&["solve", other.to_str().unwrap()], "iconv -f windows-1252 -t UTF-8");
    let other = folder.path().join("other.lqn");
    std::fs::write(&other, b"G \"a\" 1e-5 50 5 0.9 -1\n# \xFC\nP 1\n").unwrap();
    refused(&["solve", other.to_str().unwrap()], "line 2: it is not UTF-8");
    refused(&["observe", "studies/demo.toml"], "which `kendall run` takes");
    let misspelt = "name = 'a'\nentry = 'b'\nserver = 2\n[tiers.b]\nqueries.busy = 'x'\n";
    let misspelt = file(folder.path(), "system.toml", misspelt);
    let (_, _, error) = run(&["observe", &misspelt]);
    assert!(error.contains("system.toml: line 3: unknown field `server`"), "{error}");
    assert_eq!(error.trim().lines().count(), 1, "{error}");
    let empty = folder.path().to_str().unwrap();
    let recorded = ["observe", "examples/observed/system.toml", "--recorded", empty];
    refused(&recorded, "has no recording");
    // What is asked for must not be left out without a word.
    let stepped = ["observe", "examples/observed/system.toml", "--step", "7s"];
    refused(&stepped, "has a step of 10 s, which cannot be changed");
    let set = ["run", "--dry-run", "--set", "nothing.at=1", "studies/demo.toml"];
    refused(&set, "--set nothing.at=1");
}

#[test]
fn tables_without_a_common_configuration_name_what_they_have() {
    let folder = tempfile::tempdir().unwrap();
    let table = |name: &str, configuration: &str| {
        let rows = format!("configuration,value\n{configuration},1\n{configuration},2\n");
        file(folder.path(), name, &rows)
    };
    let (one, two) = (table("one.csv", "slow path"), table("two.csv", "fast path"));
    refused(&["compare", &one, &two], "one.csv has slow path");
    refused(&["compare", &one, &two], "two.csv has fast path");
    // A slip in a CI's file would pass for ever.
    refused(&["compare", &one, &one], "never differs from itself");
}

/// A shop of 16 servers, and a table of an hour in which the load rises five times.
fn observed(folder: &Path, busy: impl Fn(f64) -> f64) -> (String, String) {
    let system = "name = 'shop'\nentry = 'web'\nstep = '15s'\nscrape = '15s'\nblock = '3min'\n\
        [tiers.web]\nservers = 16\nqueries.throughput = 'x'\n";
    let rows: String = (0..240_u32)
        .map(|row| {
            let load = 50.0 + 8.0 * f64::from(row / 24 % 5);
            format!("{},{load},{}\n", 1_700_000_000 + 15 * row, busy(load))
        })
        .collect();
    let table = format!("time_s,web.throughput,web.busy\n{rows}");
    (file(folder, "system.toml", system), file(folder, "table.csv", &table))
}

/// A load without a server: the windows do not answer, which is no rejected load test.
#[test]
fn an_observation_without_windows_is_a_question_that_is_not_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (system, _) = observed(folder.path(), |load| load);
    let rows: String =
        (0..240_u32).map(|row| format!("{},0,0\n", 1_700_000_000 + 15 * row)).collect();
    let table = format!("time_s,web.throughput,web.busy\n{rows}");
    let table = file(folder.path(), "nothing.csv", &table);
    refused(&["observe", &system, "--csv", &table], "windows of 180 s can be used, 4 are needed");
}

/// Percent in the place of busy servers, say: the regression would take them for servers that are all busy.
#[test]
fn a_tier_that_is_busier_than_its_servers_can_be_has_no_capacity() {
    let folder = tempfile::tempdir().unwrap();
    let (system, table) = observed(folder.path(), |load| 0.25 * load);
    let (code, text, error) = run(&["observe", &system, "--csv", &table]);
    assert_eq!(code, Some(0), "{error}");
    // 0.25 of 82/s are 20.5 servers, of 16.
    assert!(text.contains("% busy, which 16 servers cannot be"), "{text}");
    assert!(!text.contains("saturates first: at"), "{text}");
    // Nothing gives a response time: windows there are.
    assert!(!text.contains("no windows left"), "{text}");

    let (system, table) = observed(folder.path(), |load| 0.05 * load);
    let (_, text, _) = run(&["observe", &system, "--csv", &table]);
    assert!(text.contains("`web` saturates first: at 320"), "{text}");
    assert!(text.contains("nothing gives the response time of `web`"), "{text}");
}

#[test]
fn what_an_observation_does_not_use_is_refused() {
    let example = "examples/observed/system.toml";
    refused(&["observe", example, "--from", "yesterday"], "a recording is analyzed whole");
    refused(&["observe", example, "--to=-1h"], "a recording is analyzed whole");
    refused(&["observe", example, "--prometheus", "host:9090"], "write it like `http://host:9090`");
    refused(&["observe", example, "--record", "again"], "is a recording already");
    refused(&["observe", example, "--entry", "web"], "--discover");
    let discover = ["observe", "--discover", "http://127.0.0.1:1"];
    refused(&[&discover[..], &["--what-if", "load=2"]].concat(), "cannot be used");
    refused(&["observe", "--presets", "--from=-1h"], "cannot be used");
    refused(
        &["observe", example, "--what-if", "load=-1"],
        "above 0, such as 2: twice the present load",
    );
    refused(&["observe", example, "--what-if", "load=1e300"], "`1e300` is refused");
    let folder = tempfile::tempdir().unwrap();
    let (system, table) = observed(folder.path(), |load| 0.05 * load);
    refused(&["observe", &system, "--csv", &table, "--metrics", "127.0.0.1:0"], "cannot be used");
    let said = "block: 180 s is refused; expected a multiple of the step of 7 s";
    refused(&["observe", &system, "--prometheus", "http://127.0.0.1:1", "--step", "7s"], said);
    let (system, table) = observed(folder.path(), |load| 1.0 - load);
    refused(&["observe", &system, "--csv", &table], "is refused; expected a number from 0");
}

#[test]
fn a_flag_of_another_command_leads_to_that_of_this_one() {
    refused(&["predict", "results", "--set", "workload.clients=3"], "write `--what-if KEY=VALUE`");
    let of_key = "files of `--run`, write `--set measure.duration=…`";
    refused(&["compare", "--run", "a.toml", "--measure.duration=3s"], of_key);
    let of_key = "write `--what-if workload.clients=…`";
    refused(&["predict", "results", "--workload.clients=3"], of_key);
}

/// Of the command line, and of what it names.
#[test]
fn long_errors_keep_to_the_columns() {
    for arguments in
        [&["predict", "nowhere"][..], &["run", "studies/models/three-tier.toml"], &["load", "html"]]
    {
        let mut narrow = kendall();
        let output = narrow.args(arguments).current_dir(repository()).env("COLUMNS", "40").output();
        let error = String::from_utf8(output.unwrap().stderr).unwrap();
        let is_short = |line: &str| line.chars().count() <= 40 || !line.trim().contains(' ');
        assert!(error.starts_with("error: ") && error.lines().count() > 1, "{error}");
        assert!(error.lines().all(is_short), "{error}");
    }
}

/// What has no end would be read without end.
#[test]
fn a_device_is_no_file_of_tokens_certificates_or_settings() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, _) = kendall_testing::certificate(folder.path(), "one");
    let (certificate, zero, any) = (certificate.to_str().unwrap(), "/dev/zero", "127.0.0.1:0");
    let (system, _) = observed(folder.path(), |load| load);
    let https = ["load", "http", "https://127.0.0.1:9"];
    let queue = ["load", "queue", "127.0.0.1:9", "--token-file", zero];
    let front = ["serve", "cache-front", "--listen", any, "--server", "127.0.0.1:9"];
    let compute = ["serve", "compute", "--listen", any, "--tls-key", zero, "--tls-certificate"];
    let identity = ["--client-key", zero, "--client-certificate", certificate];
    let call = ["queue", "create", "jobs", "--tls-name", "a", "--tls-root", zero];
    for arguments in [
        &[&compute[..], &[zero]].concat()[..],
        &[&compute[..], &[certificate]].concat(),
        &[&front[..], &["--tokens", zero]].concat(),
        &[&front[..], &["--peer-token", zero]].concat(),
        &["serve", "proxy", "--config", zero],
        &[&https[..], &["--authority", zero]].concat(),
        &[&https[..], &identity].concat(),
        &queue,
        &call,
        &["observe", &system, "--prometheus", "https://127.0.0.1:9", "--ca-file", zero],
    ] {
        refused(arguments, "it is not a regular file");
    }
}

/// Limits and time limits of 0, and Unix sockets without a usable path.
#[test]
fn a_server_that_could_serve_nobody_does_not_start() {
    let any = ["--listen", "127.0.0.1:0"];
    for (tier, option) in [
        ("compute", "--client-connections"),
        ("synthetic", "--client-connections"),
        ("link", "--client-connections"),
        ("scheduler", "--client-connections"),
        ("queue", "--client-connections"),
        ("cache", "--client-connections"),
        ("queue", "--queue-capacity"),
        ("scheduler", "--queue-capacity"),
        ("scheduler", "--operations"),
        ("proxy", "--client-connections"),
    ] {
        refused(&["serve", tier, any[0], any[1], option, "0"], "0 is not in 1..");
    }
    refused(&["serve", "compute", any[0], any[1], "--max-size", "4294967296"], "1..=10000");
    for (tier, option) in [
        ("compute", "--read-limit"),
        ("compute", "--compute-limit"),
        ("queue", "--database-timeout"),
        ("queue", "--operation-timeout"),
        ("scheduler", "--worker-silence"),
        ("scheduler", "--action-time"),
        ("cache-front", "--server-patience"),
    ] {
        refused(&["serve", tier, any[0], any[1], option, "0s"], "write a time above 0");
    }
    let long = format!("unix:/{}", "x".repeat(108));
    refused(&["serve", "proxy", any[0], any[1], "--server", &long], "at most 108 bytes");
    let proxy = ["serve", "proxy", any[0], any[1], "--server", "127.0.0.1:9", "--listen-unix", ""];
    refused(&proxy, "write the path of a socket");
    let twice = ["--instance", "a=100MiB", "--instance", "b=1MiB", "--instance", "a=10MiB"];
    let cache = [&["serve", "cache", any[0], any[1]][..], &twice].concat();
    refused(&cache, "--instance a is there twice");
}
