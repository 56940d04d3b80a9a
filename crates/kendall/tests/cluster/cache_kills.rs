//! The cache is killed at any instant; a checker holds what was acknowledged against what is there.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::cluster_support::{Server, blob, block_on, cas, digest, result_of};
use kendall_build_cluster::digest::Digest;
use kendall_build_cluster::wire::re;
use tonic::Code;

/// Kills of one run; `KENDALL_KILLS` says otherwise.
fn kills() -> u32 {
    std::env::var("KENDALL_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// What was acknowledged: numbers of blobs, and of actions with the number of their output.
#[derive(Default)]
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

#[test]
fn what_was_acknowledged_is_there_after_each_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut told = Acknowledged::default();
    for round in 0..kills() {
        let server = Server::cache(folder.path(), &["--quota", "1GiB"]);
        block_on(check(&server.address, &told));
        let fresh = Arc::new(Mutex::new(Acknowledged::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3_u32)
            .map(|writer| {
                let (stop, fresh) = (Arc::clone(&stop), Arc::clone(&fresh));
                let address = server.address.clone();
                let first = 1_000_000 * (round + 1) + 100_000 * writer;
                std::thread::spawn(move || block_on(write(address, first, stop, fresh)))
            })
            .collect();
        // The instant differs from round to round by how much was written.
        let enough = 3 + (round as usize * 7) % 40;
        crate::cluster_support::wait_until("writes", || {
            fresh.lock().unwrap().blobs.len() >= enough
        });
        server.kill();
        stop.store(true, Ordering::SeqCst);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let fresh = std::mem::take(&mut *fresh.lock().unwrap());
        told.blobs.extend(fresh.blobs);
        told.results.extend(fresh.results);
    }
    let server = Server::cache(folder.path(), &["--quota", "1GiB"]);
    block_on(check(&server.address, &told));
    println!("{} kills, {} blobs, {} results", kills(), told.blobs.len(), told.results.len());
}
