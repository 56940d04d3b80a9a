//! The cache is killed at any instant; a checker holds what was acknowledged against what is there.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::cluster_support::{Server, blob, block_on, cas, digest, result_of, wait_until};
use kendall_build_cluster::digest::Digest;
use kendall_build_cluster::wire::re;
use tonic::Code;

/// Kills of one run; `KENDALL_KILLS` says otherwise.
fn kills() -> u32 {
    std::env::var("KENDALL_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// What was acknowledged: numbers of blobs, and of actions with the number of their output.
#[derive(Debug, Clone, Default)]
struct Acknowledged {
    blobs: Vec<u32>,
    results: Vec<u32>,
}

/// Length of a blob: most are small, some have a file of their own.
fn length(number: u32) -> usize {
    match number % 17 {
        0 => 700_000,
        1..=4 => 20_000,
        _ => 900,
    }
}

fn content(number: u32) -> Vec<u8> {
    blob(number, length(number))
}

/// Writes until the server is gone; notes what it said yes to.
async fn write(address: String, first: u32, stop: Arc<AtomicBool>, told: Arc<Mutex<Acknowledged>>) {
    let Some(mut client) = cas(&address).await else { return };
    for number in first.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let data = content(number);
        let put =
            if data.len() > 100_000 { client.write(&data).await } else { client.put(&data).await };
        if put.is_err() {
            return;
        }
        told.lock().unwrap().blobs.push(number);
        if client.keep(number, result_of(&data)).await.is_err() {
            return;
        }
        told.lock().unwrap().results.push(number);
    }
}

/// Every blob and every result that was acknowledged is there, whole.
async fn check(address: &str, told: &Acknowledged) {
    let mut client = cas(address).await.unwrap();
    let digests: Vec<Digest> = told.blobs.iter().map(|n| digest(&content(*n))).collect();
    for (number, digest) in told.blobs.iter().zip(&digests) {
        match client.read(digest).await {
            Ok(found) => assert!(found == content(*number), "blob {number} is another"),
            Err(status) => panic!("blob {number} was acknowledged, and now: {status}"),
        }
    }
    for number in &told.results {
        let found: Result<re::ActionResult, Code> = client.result(*number).await;
        assert_eq!(found, Ok(result_of(&content(*number))), "result {number}");
    }
}

/// Three that write, until they are stopped or the server is gone.
struct Writers {
    stop: Arc<AtomicBool>,
    fresh: Arc<Mutex<Acknowledged>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Writers {
    fn start(address: &str, round: u32) -> Self {
        let (stop, fresh) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Acknowledged>>::default());
        let threads = (0..3_u32)
            .map(|writer| {
                let (stop, fresh) = (Arc::clone(&stop), Arc::clone(&fresh));
                let address = address.to_owned();
                let first = 1_000_000 * (round + 1) + 100_000 * writer;
                std::thread::spawn(move || block_on(write(address, first, stop, fresh)))
            })
            .collect();
        Self { stop, fresh, threads }
    }

    fn wait_for(&self, enough: usize) {
        wait_until("writes", || self.fresh.lock().unwrap().blobs.len() >= enough);
    }

    fn stop(self) -> Acknowledged {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|writer| writer.join().unwrap());
        std::mem::take(&mut self.fresh.lock().unwrap())
    }
}

/// A backup made by copying the folder while the cache writes: what was acknowledged before is there, and what came
/// meanwhile is whole or missing.
#[test]
fn a_folder_copied_while_the_cache_writes_is_a_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("cache"), folder.path().join("copy"));
    let server = Server::cache(&data, &["--quota", "1GiB"]);
    let writers = Writers::start(&server.address, 0);
    writers.wait_for(60);
    let before = writers.fresh.lock().unwrap().clone();
    // A file that vanishes meanwhile is no failure of the copy.
    std::process::Command::new("cp").arg("-a").args([&data, &copy]).status().unwrap();
    writers.wait_for(before.blobs.len() + 20);
    let all = writers.stop();
    server.stop();
    let server = Server::cache(&copy, &["--quota", "1GiB"]);
    block_on(async {
        check(&server.address, &before).await;
        let mut client = cas(&server.address).await.unwrap();
        let mut there = 0_u32;
        for number in &all.blobs {
            match client.read(&digest(&content(*number))).await {
                Ok(found) => {
                    assert!(found == content(*number), "blob {number} is another");
                    there += 1;
                }
                Err(status) => assert_eq!(status.code(), Code::NotFound, "blob {number}"),
            }
        }
        println!(
            "{} before the copy, {} in all, {there} in it",
            before.blobs.len(),
            all.blobs.len()
        );
    });
}

#[test]
fn what_was_acknowledged_is_there_after_each_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut told = Acknowledged::default();
    for round in 0..kills() {
        let server = Server::cache(folder.path(), &["--quota", "1GiB"]);
        block_on(check(&server.address, &told));
        let writers = Writers::start(&server.address, round);
        // The instant differs from round to round by how much was written.
        let enough = 3 + (round as usize * 7) % 40;
        writers.wait_for(enough);
        server.kill();
        let fresh = writers.stop();
        told.blobs.extend(fresh.blobs);
        told.results.extend(fresh.results);
    }
    let server = Server::cache(folder.path(), &["--quota", "1GiB"]);
    block_on(check(&server.address, &told));
    println!("{} kills, {} blobs, {} results", kills(), told.blobs.len(), told.results.len());
}
