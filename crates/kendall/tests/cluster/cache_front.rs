//! A front over several caches: who has what, what is lost with a cache, and what Bazel makes of it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::bazel_support::Workspace;
use crate::cluster_support::{Client, Server, blob, block_on, cas, digest, result_of, wait_until};
use kendall_build_cluster::digest::Digest;
use kendall_build_cluster::remote::Remote;
use kendall_build_cluster::wire::re;
use kendall_tier::Clock;
use prost::Message as _;
use tonic::Code;

/// Caches behind a front.
struct Cluster {
    folder: tempfile::TempDir,
    caches: Vec<Option<Server>>,
    front: Server,
}

impl Cluster {
    fn start(count: usize, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let caches: Vec<Option<Server>> = (0..count)
            .map(|number| {
                let data = folder.path().join(number.to_string());
                Some(Server::cache(&data, &["--behind-front"]))
            })
            .collect();
        let addresses: Vec<&str> =
            caches.iter().map(|cache| cache.as_ref().unwrap().address.as_str()).collect();
        let front = front(&addresses, arguments);
        Self { folder, caches, front }
    }

    fn kill(&mut self, cache: usize) -> String {
        let cache = self.caches[cache].take().unwrap();
        let address = cache.address.clone();
        cache.kill();
        address
    }

    fn again(&mut self, cache: usize, address: &str) {
        let data = self.folder.path().join(cache.to_string());
        let data = data.to_str().unwrap();
        let arguments = ["--data", data, "--behind-front"];
        self.caches[cache] = Some(Server::start_at("cache", address, &arguments));
    }
}

fn front(caches: &[&str], arguments: &[&str]) -> Server {
    let mut all: Vec<String> = caches.iter().map(|cache| format!("--server={cache}")).collect();
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    Server::start("cache-front", &all.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Of these blobs, by number, those that a cache has.
async fn held(address: &str, numbers: &[u32]) -> Vec<u32> {
    let mut client = cas(address).await.unwrap();
    let mut held = Vec::new();
    for number in numbers {
        if client.missing(&[digest(&blob(*number, 900))]).await.unwrap() == 0 {
            held.push(*number);
        }
    }
    held
}

async fn put_all(client: &mut Client, numbers: std::ops::Range<u32>) {
    for number in numbers {
        // By both ways that content comes.
        let data = blob(number, 900);
        let put = if number % 2 == 0 { client.put(&data).await } else { client.write(&data).await };
        put.unwrap();
    }
}

/// A rolling upgrade under load: caches end by SIGTERM, one after the other, and come back. What was acknowledged meanwhile
/// is there in the end.
#[test]
fn caches_that_are_replaced_one_by_one_lose_nothing() {
    let mut cluster = Cluster::start(3, &[]);
    let front = cluster.front.address.clone();
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let writing = std::thread::spawn(move || {
        block_on(async {
            let mut client = cas(&front).await.unwrap();
            let (mut told, mut refused) = (Vec::new(), 0_u32);
            for number in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                match client.put(&blob(number, 900)).await {
                    Ok(()) => told.push(number),
                    Err(status) => {
                        assert_eq!(status.code(), Code::Unavailable, "{status}");
                        refused += 1;
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            }
            (told, refused)
        })
    });
    for cache in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        let old = cluster.caches[cache].take().unwrap();
        let address = old.address.clone();
        old.stop();
        std::thread::sleep(Duration::from_millis(200));
        cluster.again(cache, &address);
    }
    std::thread::sleep(Duration::from_millis(200));
    done.store(true, Ordering::SeqCst);
    let (told, refused) = writing.join().unwrap();
    println!("{} blobs acknowledged, {refused} refused", told.len());
    let digests: Vec<Digest> = told.iter().map(|number| digest(&blob(*number, 900))).collect();
    let front = cluster.front.address.clone();
    wait_until("all that was acknowledged", || {
        block_on(async {
            let mut client = cas(&front).await.unwrap();
            let mut missing = 0;
            for some in digests.chunks(1_000) {
                missing += client.missing(some).await.unwrap_or(1);
            }
            missing == 0
        })
    });
}

#[test]
fn every_blob_is_on_one_cache_and_the_front_has_all() {
    let cluster = Cluster::start(3, &[]);
    block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        put_all(&mut client, 0..60).await;
        let numbers: Vec<u32> = (0..60).collect();
        let mut all = Vec::new();
        for cache in &cluster.caches {
            let held = held(&cache.as_ref().unwrap().address, &numbers).await;
            assert!(!held.is_empty() && held.len() < 60, "{held:?}");
            all.extend(held);
        }
        all.sort_unstable();
        assert_eq!(all, numbers, "each once");
        let digests: Vec<Digest> = numbers.iter().map(|n| digest(&blob(*n, 900))).collect();
        assert_eq!(client.missing(&digests).await.unwrap(), 0);
        for number in &numbers {
            let data = blob(*number, 900);
            assert_eq!(client.read(&digest(&data)).await.unwrap(), data);
        }
        let absent: Vec<Digest> = (90..100).map(|n| digest(&blob(n, 900))).collect();
        assert_eq!(client.missing(&absent).await.unwrap(), 10);
        assert_eq!(client.read(&absent[0]).await.unwrap_err().code(), Code::NotFound);
    });
}

/// What only Kendall's caches answer, a front does not: a scheduler asks it for the command by itself.
#[test]
fn an_action_is_read_through_a_front_too() {
    let cluster = Cluster::start(2, &[]);
    block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        let command = blob(1, 900);
        let command_digest = Some(digest(&command).to_wire());
        let action = re::Action { command_digest, ..re::Action::default() }.encode_to_vec();
        let named = digest(&action);
        client.put(&command).await.unwrap();
        client.put(&action).await.unwrap();
        let address: std::net::SocketAddr = cluster.front.address.parse().unwrap();
        let remote = Remote::new(address, Duration::from_secs(10), Clock::monotonic());
        for _ in 0..2 {
            let read = remote.read_action("", named).await.unwrap();
            assert_eq!(read.into_iter().collect::<Vec<_>>(), [(named, action.clone())]);
            assert!(remote.look_up("", named).await.unwrap().is_none());
        }
    });
}

/// A miss is an answer, too: no request stays behind in the front, and the time for which requests were in it is
/// what their response times add up to (Little's law, which `kendall observe` checks).
#[test]
fn what_misses_leaves_the_front_as_well() {
    let cluster = Cluster::start(2, &[]);
    block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        put_all(&mut client, 0..20).await;
        for number in 0..20 {
            client.read(&digest(&blob(number, 900))).await.unwrap();
            let absent = digest(&blob(500 + number, 900));
            assert_eq!(client.read(&absent).await.unwrap_err().code(), Code::NotFound);
            assert_eq!(client.result(number).await.unwrap_err(), Code::NotFound);
        }
    });
    let metrics = cluster.front.metrics.parse().unwrap();
    let counted = |name: &str, of: &str| -> f64 {
        let body = kendall_testing::page(metrics, "/metrics").unwrap().body;
        let lines = body.lines().filter(|line| line.starts_with(name) && line.contains(of));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let came = counted("kendall_request_arrivals_total{", "");
    assert!((came - 80.0).abs() < 0.5, "{came}");
    // The last answer may be with its client before the front has put it away.
    wait_until("all that came was answered", || {
        counted("kendall_request_completions_total{", "") >= came
    });
    let inside = counted("kendall_workers_busy_seconds_total", "");
    let stayed = counted("kendall_request_stage_seconds_sum{", "stage=\"response_time\"");
    assert!(inside > 0.0 && (inside / stayed - 1.0).abs() < 0.01, "{inside} for {stayed}");
    // The caches store results too: each is one backend, and nothing on the page is said twice.
    let body = kendall_testing::page(metrics, "/metrics").unwrap().body;
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    let mut series: Vec<&str> = lines.filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    let all = series.len();
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), all, "{body}");
}

/// A result is served while all that it names is there, wherever that is; and not once it is gone.
#[test]
fn a_result_whose_outputs_were_lost_with_a_cache_is_a_miss() {
    let mut cluster = Cluster::start(3, &[]);
    let (outputs, owners) = block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        let mut outputs = Vec::new();
        for number in 0..30 {
            let data = blob(1_000 + number, 900);
            client.put(&data).await.unwrap();
            client.keep(number, result_of(&data)).await.unwrap();
            assert!(client.result(number).await.is_ok(), "{number}");
            outputs.push(1_000 + number);
        }
        // One whose output is not stored.
        client.keep(99, result_of(&blob(99_999, 10))).await.unwrap();
        assert_eq!(client.result(99).await.unwrap_err(), Code::NotFound);
        let lost = held(&cluster.caches[0].as_ref().unwrap().address, &outputs).await;
        (outputs, lost)
    });
    let address = cluster.kill(0);
    block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        let mut served = 0;
        for (number, output) in (0..30).zip(&outputs) {
            match client.result(number).await {
                Ok(_) => {
                    assert!(!owners.contains(output), "its output was on the cache that is gone");
                    served += 1;
                }
                Err(code) => assert_eq!(code, Code::NotFound),
            }
        }
        assert!(served > 0 && served < 30, "{served}");
        // What would go there is refused with words, and the rest is stored.
        let (mut stored, mut refused) = (0, 0);
        for number in 2_000..2_040 {
            match client.write(&blob(number, 900)).await {
                Ok(()) => stored += 1,
                Err(status) => {
                    assert_eq!(status.code(), Code::Unavailable);
                    assert!(status.message().contains(&address), "{status}");
                    refused += 1;
                }
            }
        }
        assert!(stored > 0 && refused > 0, "{stored} {refused}");
    });
    // It comes back with what it had.
    cluster.again(0, &address);
    wait_until("the front asks it again", || {
        block_on(async {
            let mut client = cas(&cluster.front.address).await.unwrap();
            let mut all = true;
            for number in 0..30 {
                all &= client.result(number).await.is_ok();
            }
            all
        })
    });
}

/// Whether it has a blob only its cache knows: nothing but a result, which can be made again, is called missing without
/// asking.
#[test]
fn what_a_cache_has_that_is_away_is_unavailable() {
    let mut cluster = Cluster::start(2, &[]);
    let numbers: Vec<u32> = (0..30).collect();
    let lost = block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        put_all(&mut client, 0..30).await;
        held(&cluster.caches[0].as_ref().unwrap().address, &numbers).await
    });
    let address = cluster.kill(0);
    let named = |status: &tonic::Status| {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        let said = status.message();
        assert!(said.contains(&address) && said.contains("--when-down leave-out"), "{said}");
    };
    block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        for number in &numbers {
            let blob = digest(&blob(*number, 900));
            let (there, read) = (client.missing(&[blob]).await, client.read(&blob).await);
            let request =
                re::BatchReadBlobsRequest { digests: vec![blob.to_wire()], ..Default::default() };
            let batch = client.cas.batch_read_blobs(request).await.unwrap().into_inner();
            let status = batch.responses[0].status.clone().unwrap_or_default();
            if lost.contains(number) {
                named(&there.unwrap_err());
                named(&read.unwrap_err());
                named(&tonic::Status::new(Code::from_i32(status.code), status.message));
                named(&client.tree(&blob).await.unwrap_err());
            } else {
                assert_eq!((there.unwrap(), status.code), (0, 0), "{number}");
                assert_eq!(read.unwrap().len(), 900);
            }
            assert_eq!(client.result(*number).await, Err(Code::NotFound));
        }
        let all: Vec<Digest> = numbers.iter().map(|n| digest(&blob(*n, 900))).collect();
        named(&client.missing(&all).await.unwrap_err());
        // What a worker asks before it takes actions.
        let nothing = re::BatchUpdateBlobsRequest::default();
        named(&client.cas.batch_update_blobs(nothing).await.unwrap_err());
    });
}

/// A directory of one file with a long name: twenty kilobytes.
fn wide(number: u32) -> re::Directory {
    let file = re::FileNode {
        name: format!("{number:020000}"),
        digest: Some(digest(b"").to_wire()),
        ..Default::default()
    };
    re::Directory { files: vec![file], ..Default::default() }
}

/// Directories of which one level is more than a batch, and a tree that is more than one by itself.
#[test]
fn trees_larger_than_a_batch_go_through_a_front() {
    let cluster = Cluster::start(2, &[]);
    block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        let mut root = re::Directory::default();
        for number in 0..400 {
            let below = wide(number).encode_to_vec();
            client.put(&below).await.unwrap();
            let digest = Some(digest(&below).to_wire());
            root.directories.push(re::DirectoryNode { name: number.to_string(), digest });
        }
        let encoded = root.encode_to_vec();
        client.put(&encoded).await.unwrap();
        // No message is larger than what a client takes by default.
        assert_eq!(client.tree(&digest(&encoded)).await.unwrap().len(), 401);
        let children: Vec<re::Directory> = (0..400).map(wide).collect();
        let tree = re::Tree { root: Some(root), children }.encode_to_vec();
        assert!(tree.len() > 6 << 20, "{}", tree.len());
        let directory = re::OutputDirectory {
            tree_digest: Some(digest(&tree).to_wire()),
            ..Default::default()
        };
        let output_directories = vec![directory];
        let result = re::ActionResult { output_directories, ..Default::default() };
        client.keep(1, result.clone()).await.unwrap();
        assert_eq!(client.result(1).await, Err(Code::NotFound));
        client.write(&tree).await.unwrap();
        assert_eq!(client.result(1).await, Ok(result));
    });
}

/// Results may have servers of their own, which hold no content.
#[test]
fn results_and_content_are_kept_apart_where_that_is_asked_for() {
    let cluster = Cluster::start(3, &[]);
    let addresses: Vec<&str> =
        cluster.caches.iter().map(|cache| cache.as_ref().unwrap().address.as_str()).collect();
    let results = format!("--results-server={}", addresses[2]);
    let apart = front(&addresses[..2], &[&results]);
    block_on(async {
        let mut client = cas(&apart.address).await.unwrap();
        for number in 0..20 {
            let data = blob(number, 900);
            client.keep(number, result_of(&data)).await.unwrap();
            assert_eq!(client.result(number).await, Err(Code::NotFound), "its output is not there");
            client.put(&data).await.unwrap();
            assert_eq!(client.result(number).await, Ok(result_of(&data)));
        }
        let numbers: Vec<u32> = (0..20).collect();
        assert!(held(addresses[2], &numbers).await.is_empty());
        let mut content = cas(addresses[0]).await.unwrap();
        let mut results = cas(addresses[2]).await.unwrap();
        for number in numbers {
            assert_eq!(content.result(number).await, Err(Code::NotFound));
            assert_eq!(results.result(number).await, Ok(result_of(&blob(number, 900))));
        }
    });
}

/// Where a connection waits for an acknowledgement before it sends, each answer takes 40 ms; two of them meet here.
#[test]
fn a_serial_loop_through_a_front_waits_for_no_acknowledgement() {
    let cluster = Cluster::start(1, &[]);
    block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        let clock = Clock::monotonic();
        let mut times = Vec::new();
        for _ in 0..51 {
            let before = clock.now_ns();
            client.missing(&[digest(b"x")]).await.unwrap();
            times.push(clock.now_ns() - before);
        }
        times.sort_unstable();
        assert!(times[25] < 20_000_000, "{times:?}");
    });
}

#[test]
fn the_others_take_over_the_share_of_a_cache_that_is_left_out() {
    let mut cluster = Cluster::start(3, &["--when-down", "leave-out"]);
    cluster.kill(1);
    block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        for number in 0..40 {
            let data = blob(number, 900);
            // The first that goes there finds out; from then on nothing does.
            if client.write(&data).await.is_err() {
                client.write(&data).await.unwrap();
            }
            assert_eq!(client.read(&digest(&data)).await.unwrap(), data);
        }
    });
}

#[test]
fn a_cache_that_is_added_takes_its_share_and_the_rest_stays_where_it_is() {
    let cluster = Cluster::start(3, &[]);
    let addresses: Vec<&str> =
        cluster.caches.iter().map(|cache| cache.as_ref().unwrap().address.as_str()).collect();
    let two = front(&addresses[..2], &[]);
    block_on(async {
        let mut before = cas(&two.address).await.unwrap();
        put_all(&mut before, 0..90).await;
        let mut after = cas(&cluster.front.address).await.unwrap();
        let mut moved = 0;
        for number in 0..90 {
            moved += after.missing(&[digest(&blob(number, 900))]).await.unwrap();
        }
        // A third, give or take five standard deviations.
        assert!((8..=52).contains(&moved), "{moved} of 90 moved");
    });
}

/// The front holds changes against its own tokens, and not the caches alone.
#[test]
fn who_may_only_look_changes_nothing_through_the_front() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "write secret\nread *\n").unwrap();
    let cluster = Cluster::start(2, &["--tokens", tokens.to_str().unwrap()]);
    block_on(async {
        let mut client = cas(&cluster.front.address).await.unwrap();
        let data = blob(1, 900);
        for refused in [
            client.put(&data).await.unwrap_err(),
            client.write(&data).await.unwrap_err(),
            client.keep(1, result_of(&data)).await.unwrap_err(),
        ] {
            assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        }
        assert_eq!(client.missing(&[digest(&data)]).await.unwrap(), 1);
    });
}

#[test]
fn bazel_builds_over_a_front_while_a_cache_is_killed() {
    crate::bazel_support::required();
    let mut cluster = Cluster::start(3, &["--when-down", "leave-out"]);
    let workspace = Workspace::new(300);
    let grpc = format!("--remote_cache=grpc://{}", cluster.front.address);
    let cold = workspace.test(&[&grpc]);
    assert_eq!((cold.hits, cold.remote), (0, 0), "{cold:?}");
    workspace.clean();
    let warm = workspace.test(&[&grpc]);
    assert_eq!((warm.hits, warm.local), (cold.local, 0), "{warm:?}");
    cluster.kill(2);
    workspace.clean();
    let less = workspace.test(&[&grpc]);
    assert_eq!(less.hits + less.local, cold.local, "{less:?}");
    assert!(less.local > 0, "what was on the cache that is gone is built again: {less:?}");
    workspace.clean();
    let whole = workspace.test(&[&grpc]);
    assert_eq!((whole.hits, whole.local), (cold.local, 0), "the others have it now: {whole:?}");
}
