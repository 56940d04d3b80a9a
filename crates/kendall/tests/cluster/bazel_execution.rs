//! Bazel builds on the cluster: cold, warm, and with each part of it killed in the middle.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::time::Duration;

use crate::bazel_support::{self, Built, GENERATED, Workspace};
use crate::execution_support::{Cluster, Secure, cache, scheduler, scheduler_at};
use crate::support::wait_until;

/// Actions that the workspace has at least: generated files, their sum, compilations, links, a test.
const LEAST: usize = GENERATED + 5;

fn executor(cluster: &Cluster) -> String {
    format!("--remote_executor=grpc://{}", cluster.scheduler.listen)
}

/// Tasks that left the queue for a slot so far.
fn started(cluster: &Cluster) -> u64 {
    let metrics = cluster.scheduler.page("/metrics");
    let line = metrics.lines().find(|l| l.starts_with("kendall_build_tasks_executing_total "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Builds, and does something to the cluster once a few actions have started.
fn disturbed(cluster: &mut Cluster, seed: u32, disturb: impl FnOnce(&mut Cluster)) -> Built {
    disturbed_with(&["--remote_retries=10"], cluster, seed, disturb).unwrap()
}

fn disturbed_with(
    flags: &[&str],
    cluster: &mut Cluster,
    seed: u32,
    disturb: impl FnOnce(&mut Cluster),
) -> Result<Built, String> {
    let executor = executor(cluster);
    std::thread::scope(|scope| {
        let building = scope.spawn(move || {
            let workspace = Workspace::new(seed);
            workspace.try_test(&[&[&executor, "--jobs=4"], flags].concat())
        });
        wait_until("the build begins", || started(cluster) >= 4 || building.is_finished());
        assert!(!building.is_finished(), "the build ended before anything could happen to it");
        disturb(cluster);
        building.join().unwrap()
    })
}

#[test]
fn bazel_builds_on_the_cluster_cold_and_warm() {
    crate::bazel_support::required();
    let cluster = Cluster::start(2, 2, &[]);
    let workspace = Workspace::new(100);
    let executor = executor(&cluster);
    let cold = workspace.test(&[&executor, "--jobs=8"]);
    assert_eq!((cold.hits, cold.local), (0, 0), "{cold:?}");
    assert!(cold.remote >= LEAST, "{cold:?}");
    workspace.clean();
    // With the cache's own address beside it.
    let cache = format!("--remote_cache=grpc://{}", cluster.cache.listen);
    let warm = workspace.test(&[&executor, &cache, "--jobs=8"]);
    assert_eq!((warm.hits, warm.local, warm.remote), (cold.remote, 0, 0), "{warm:?}");
}

#[test]
#[ignore = "minutes: make test-clients"]
fn a_build_passes_when_a_worker_is_killed_in_the_middle() {
    crate::bazel_support::required();
    let mut cluster = Cluster::start(2, 2, &[]);
    let built = disturbed(&mut cluster, 101, |cluster| {
        cluster.workers[0].kill();
        cluster.add_worker(2, &[]);
    });
    assert!(built.remote >= LEAST && built.local == 0, "{built:?}");
}

#[test]
#[ignore = "minutes: make test-clients"]
fn a_build_passes_when_the_scheduler_is_killed_in_the_middle() {
    crate::bazel_support::required();
    let mut cluster = Cluster::start(2, 2, &[]);
    let built = disturbed(&mut cluster, 102, |cluster| {
        let address = cluster.scheduler.listen.clone();
        cluster.scheduler.kill();
        cluster.scheduler = scheduler(&address, &cluster.cache.listen);
    });
    assert!(built.remote + built.hits >= LEAST && built.local == 0, "{built:?}");
}

/// A build with these flags, in the middle of which the scheduler is gone for so long.
fn without_scheduler(down: Duration, flags: &[&str], seed: u32) -> Result<Built, String> {
    bazel_support::required();
    let mut cluster = Cluster::start(2, 2, &[]);
    let built = disturbed_with(flags, &mut cluster, seed, |cluster| {
        let address = cluster.scheduler.listen.clone();
        cluster.scheduler.kill();
        std::thread::sleep(down);
        cluster.scheduler = scheduler(&address, &cluster.cache.listen);
    });
    if let Ok(built) = &built {
        assert!(built.remote + built.hits >= LEAST && built.local == 0, "{built:?}");
    }
    built
}

/// With its default retries, of which the last comes about 3.1 s after the first failure, Bazel needs each
/// answer of the new scheduler to bring it on. Its connection is tried 1 s and about 2.7 s after the break, each
/// up to a fifth sooner or later: now and then that is after the last retry, and no scheduler can help it.
#[test]
#[ignore = "minutes: make test-clients"]
fn a_build_without_flags_outlasts_a_scheduler_that_is_down_for_two_seconds() {
    let outcomes = (0..3).map(|seed| without_scheduler(Duration::from_secs(2), &[], 110 + seed));
    let failed: Vec<String> = outcomes.filter_map(Result::err).collect();
    println!("{} of 3 builds passed", 3 - failed.len());
    for said in &failed {
        assert!(
            said.contains("UNAVAILABLE: io exception") && !said.contains("NOT_FOUND"),
            "{said}"
        );
    }
    assert!(failed.len() < 3, "none of three builds passed: {failed:#?}");
}

/// Where its socket is kept, no connection is refused, and Bazel waits for longer than its retries last.
#[test]
#[ignore = "minutes: make test-clients"]
fn a_build_without_flags_outlasts_a_scheduler_whose_socket_is_kept() {
    bazel_support::required();
    let kept = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut cluster = Cluster::start_with(2, 2, &[], |cache| scheduler_at(&kept, cache));
    let built = disturbed_with(&[], &mut cluster, 120, |cluster| {
        cluster.scheduler.kill();
        std::thread::sleep(Duration::from_secs(10));
        cluster.scheduler = scheduler_at(&kept, &cluster.cache.listen);
    });
    let built = built.unwrap();
    assert!(built.remote + built.hits >= LEAST && built.local == 0, "{built:?}");
}

#[test]
#[ignore = "minutes: make test-clients"]
fn a_build_with_more_retries_outlasts_a_scheduler_that_is_down_for_twenty_seconds() {
    without_scheduler(Duration::from_secs(20), &["--remote_retries=12"], 107).unwrap();
}

#[test]
#[ignore = "minutes: make test-clients"]
fn a_build_passes_when_the_cache_is_killed_in_the_middle() {
    crate::bazel_support::required();
    let mut cluster = Cluster::start(2, 2, &[]);
    let built = disturbed(&mut cluster, 103, |cluster| {
        let address = cluster.cache.listen.clone();
        cluster.cache.kill();
        cluster.cache = cache(cluster.folder.path(), &address);
    });
    assert!(built.remote + built.hits >= LEAST && built.local == 0, "{built:?}");
}

#[test]
#[ignore = "minutes: make test-clients"]
fn bazel_builds_by_tls_with_a_token_to_write_and_not_with_one_to_read() {
    crate::bazel_support::required();
    let cluster = Secure::start();
    let executor = format!("--remote_executor=grpcs://{}", cluster.scheduler.listen);
    let trusted = format!("--tls_certificate={}", cluster.certificate.display());
    let workspace = Workspace::new(104);
    let token = "--remote_header=authorization=Bearer ci";
    let cold = workspace.test(&[&executor, &trusted, token, "--jobs=8"]);
    assert!(cold.remote >= LEAST && cold.local == 0, "{cold:?}");
    // What is not built yet has to be, and a token to read may not have it built.
    let other = Workspace::new(105);
    let token = "--remote_header=authorization=Bearer people";
    let output = other.bazel("test", &[&executor, &trusted, token, "//..."]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("PERMISSION_DENIED"), "{said}");
    workspace.clean();
    let output = workspace.bazel("test", &[&executor, &trusted, "//..."]);
    assert!(!output.status.success(), "without a token");
}
