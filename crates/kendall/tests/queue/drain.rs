//! A queue that fills its disk is emptied whole: by receives, by leases, by a purge, with short and with long messages,
//! and while PostgreSQL and the middleware are killed.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use kendall_protocols::queue::{
    AcknowledgeBatchRequest, AcknowledgeRequest, Acknowledgement, ChangeQueueRequest,
    LeaseBatchRequest, LeaseRequest, LeaseResponse, PurgeRequest, ReceiveBatchRequest,
    ReceiveRequest, SendBatchRequest, SendRequest,
};
use kendall_testing::namespace::{Ballast, on_a_small_disk};
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Pid, Signal, kill_process};
use tonic::Code;

use crate::full_disk::{
    CONTENT, Client, PAUSE, SEED, content_of, endpoint, sender_and_receiver, start, start_with,
    until_accepted,
};

/// Runs a test's steps against a middleware on a small disk that is nearly full of messages; PostgreSQL must not end.
fn on_a_full_queue(
    test: &str,
    (size, characters): (&str, usize),
    steps: impl AsyncFnOnce(&mut Client, u64, &Path),
) {
    let Some(disk) = on_a_small_disk(test, size) else { return };
    let data = disk.join("queue");
    let middleware = start_with(&data, characters);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = sender_and_receiver(&endpoint(&middleware)).await;
        let sent = fill(&mut client, characters).await;
        println!("{sent} sent");
        steps(&mut client, sent, &data).await;
    });
    drop(runtime);
    let said = middleware.stop();
    assert!(!said.contains("PostgreSQL ended"), "{said}");
}

/// Sends numbered messages until they are refused; how many were stored.
async fn fill(client: &mut Client, characters: usize) -> u64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let at_once = (1 << 20) / characters as u64 + 1;
    let mut sent = 0;
    loop {
        let message = |number: u64| {
            let content = content_of(characters, &format!("{number} "), &mut rng);
            SendRequest { client_id: 1, queue_id: 1, content, ..Default::default() }
        };
        let messages = (sent..sent + at_once).map(message).collect();
        match client.send_batch(SendBatchRequest { messages }).await {
            Ok(response) => {
                let results = response.into_inner().results;
                let stored = results.iter().take_while(|result| result.code == 0).count();
                let refused = &results[stored..];
                assert!(refused.iter().all(|one| one.reason == "DISK_FULL"), "{refused:?}");
                sent += stored as u64;
                if !refused.is_empty() {
                    return sent;
                }
            }
            Err(refused) => {
                assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
                return sent;
            }
        }
    }
}

fn number(content: &str) -> u64 {
    content.split(' ').next().unwrap().parse().unwrap()
}

/// The numbers that were found, none of them twice.
#[derive(Default)]
struct Found(BTreeSet<u64>);

impl Found {
    fn add(&mut self, content: &str) {
        let number = number(content);
        assert!(self.0.insert(number), "message {number} twice");
    }

    fn check(&self, sent: u64) {
        let lost: Vec<_> = (0..sent).filter(|number| !self.0.contains(number)).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        assert_eq!(self.0.len() as u64, sent);
    }
}

#[test]
fn short_messages_are_received_in_batches() {
    let test = "drain::short_messages_are_received_in_batches";
    on_a_full_queue(test, ("160m", 2000), async |client, sent, _| {
        let mut found = Found::default();
        loop {
            let batch = ReceiveBatchRequest {
                client_id: 2,
                queue_id: 1,
                limit: 1000,
                ..Default::default()
            };
            let messages = client.receive_batch(batch).await.unwrap().into_inner().messages;
            if messages.is_empty() {
                break;
            }
            messages.iter().for_each(|message| found.add(&message.content));
        }
        found.check(sent);
        until_accepted(client).await;
    });
}

/// Leases store a row again, and acknowledgements with a request id their answer: both are refused before they take what
/// the log needs, and what is acknowledged makes room for more.
#[test]
fn messages_are_leased_and_acknowledged_with_request_ids() {
    let test = "drain::messages_are_leased_and_acknowledged_with_request_ids";
    on_a_full_queue(test, ("160m", 2000), async |client, sent, _| {
        let mut found = Found::default();
        let mut pauses = tokio::time::interval(PAUSE);
        let mut refusals = 0;
        let mut id = 0_u128;
        loop {
            let lease = LeaseBatchRequest {
                client_id: 2,
                queue_id: 1,
                limit: 100,
                lease_ms: 600_000,
                ..Default::default()
            };
            let leases = match client.lease_batch(lease).await {
                Ok(leases) => leases.into_inner().leases,
                Err(refused) => {
                    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
                    refusals += 1;
                    pauses.tick().await;
                    continue;
                }
            };
            if leases.is_empty() {
                break;
            }
            let held = |lease: &LeaseResponse| Acknowledgement {
                message_id: lease.message.as_ref().unwrap().message_id,
                lease_id: lease.lease_id,
            };
            id += 1;
            let done = AcknowledgeBatchRequest {
                client_id: 2,
                messages: leases.iter().map(held).collect(),
                request_id: id.to_be_bytes().to_vec(),
            };
            loop {
                match client.acknowledge_batch(done.clone()).await {
                    Ok(done) => {
                        let results = done.into_inner().results;
                        assert!(results.iter().all(|result| result.code == 0), "{results:?}");
                        break;
                    }
                    Err(refused) => {
                        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
                        refusals += 1;
                        pauses.tick().await;
                    }
                }
            }
            leases.iter().for_each(|lease| found.add(&lease.message.as_ref().unwrap().content));
        }
        println!("{refusals} refused");
        found.check(sent);
        until_accepted(client).await;
    });
}

#[test]
fn long_messages_are_purged() {
    let test = "drain::long_messages_are_purged";
    on_a_full_queue(test, ("260m", CONTENT), async |client, sent, _| {
        let dropped =
            client.purge(PurgeRequest { queue_id: 1 }).await.unwrap().into_inner().dropped;
        assert_eq!(dropped, sent);
        until_accepted(client).await;
    });
}

/// What an archive keeps takes as much space as the messages: it is refused before the log has none, and without an
/// archive all are received.
#[test]
fn an_archive_does_not_take_the_space_of_the_log() {
    let test = "drain::an_archive_does_not_take_the_space_of_the_log";
    on_a_full_queue(test, ("160m", CONTENT), async |client, sent, _| {
        let archive = |archive_ms| ChangeQueueRequest {
            queue_id: 1,
            archive_ms: Some(archive_ms),
            ..Default::default()
        };
        client.change_queue(archive(3_600_000)).await.unwrap();
        let receive = ReceiveRequest { client_id: 2, queue_id: 1, ..Default::default() };
        let mut found = Found::default();
        let mut refused = 0;
        while refused < 20 {
            match client.receive(receive.clone()).await {
                Ok(answer) => match answer.into_inner().message {
                    Some(message) => found.add(&message.content),
                    None => break,
                },
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                    refused += 1;
                }
            }
        }
        println!("{} received into the archive", found.0.len());
        client.change_queue(archive(0)).await.unwrap();
        while let Some(message) =
            client.receive(receive.clone()).await.unwrap().into_inner().message
        {
            found.add(&message.content);
        }
        found.check(sent);
        until_accepted(client).await;
    });
}

/// Binary contents of four bytes for each of the most characters that `--content-characters` allows.
#[test]
fn the_longest_messages_are_received() {
    const CHARACTERS: usize = 1 << 20;
    let test = "drain::the_longest_messages_are_received";
    let Some(disk) = on_a_small_disk(test, "400m") else { return };
    let middleware = start_with(&disk.join("queue"), CHARACTERS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = sender_and_receiver(&endpoint(&middleware)).await;
        let mut client = client.max_decoding_message_size(16 << 20);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let text = content_of(4 * CHARACTERS - 20, "", &mut rng);
        let mut sent = 0;
        loop {
            let data = format!("{sent} {text}").into_bytes();
            let send = SendRequest { client_id: 1, queue_id: 1, data, ..Default::default() };
            match client.send(send).await {
                Ok(_) => sent += 1,
                Err(refused) => {
                    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
                    break;
                }
            }
        }
        println!("{sent} sent");
        let mut found = Found::default();
        let receive = ReceiveRequest { client_id: 2, queue_id: 1, ..Default::default() };
        while let Some(message) =
            client.receive(receive.clone()).await.unwrap().into_inner().message
        {
            found.add(std::str::from_utf8(&message.data).unwrap());
        }
        found.check(sent);
        until_accepted(&mut client).await;
    });
    drop(runtime);
    let said = middleware.stop();
    assert!(!said.contains("PostgreSQL ended"), "{said}");
}

/// What a start finds of the reserve it does not take for space: sends are refused until there is some.
#[test]
fn a_restart_knows_that_the_reserve_was_given_up() {
    let test = "drain::a_restart_knows_that_the_reserve_was_given_up";
    let Some(disk) = on_a_small_disk(test, "260m") else { return };
    let data = disk.join("queue");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let send = SendRequest { client_id: 1, queue_id: 1, ..Default::default() };
    let mut middleware = start(&data);
    let ballast = runtime.block_on(async {
        let mut client = sender_and_receiver(&endpoint(&middleware)).await;
        let ballast = Ballast::fill(&disk, 8 << 20);
        let mut looks = tokio::time::interval(PAUSE);
        while client.send(send.clone()).await.is_ok() {
            looks.tick().await;
        }
        ballast
    });
    middleware.stop();
    middleware = start(&data);
    runtime.block_on(async {
        let mut client = Client::new(endpoint(&middleware).connect_lazy());
        let refused = client.send(send.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        ballast.remove();
        until_accepted(&mut client).await;
    });
    drop(runtime);
    middleware.stop();
}

/// How long messages are leased and acknowledged before the middleware is killed.
const LEASING: Duration = Duration::from_millis(700);

/// What is in `postmaster.pid`.
fn postgres(data: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(data.join("data/postmaster.pid")).ok()?;
    Pid::from_raw(text.lines().next()?.trim().parse().ok()?)
}

/// Receives until `left` numbers are not found. A call that PostgreSQL's end leaves open has put its message back.
async fn receive_until(client: &mut Client, found: &mut Found, (sent, left): (u64, u64)) {
    let mut pauses = tokio::time::interval(PAUSE);
    while sent - found.0.len() as u64 > left {
        let receive =
            ReceiveRequest { client_id: 2, queue_id: 1, wait_ms: 1000, ..Default::default() };
        match client.receive(receive).await {
            Ok(answer) => {
                if let Some(message) = answer.into_inner().message {
                    found.add(&message.content);
                }
            }
            Err(status) => {
                let codes = [Code::Unavailable, Code::ResourceExhausted];
                assert!(codes.contains(&status.code()), "{status}");
                pauses.tick().await;
            }
        }
    }
}

/// Leases and acknowledges, until the middleware is gone; what was acknowledged, or may be.
async fn acknowledge_until_gone(client: &mut Client, found: &mut Found) -> Option<u64> {
    loop {
        let lease =
            LeaseRequest { client_id: 2, queue_id: 1, lease_ms: 1000, ..Default::default() };
        let lease = match client.lease(lease).await {
            Ok(lease) => lease.into_inner(),
            Err(status) if status.code() == Code::ResourceExhausted => continue,
            Err(_) => return None,
        };
        let Some(message) = lease.message else { continue };
        let (message_id, lease_id) = (message.message_id, lease.lease_id);
        let done = AcknowledgeRequest { client_id: 2, message_id, lease_id, ..Default::default() };
        match client.acknowledge(done).await {
            Ok(_) => found.add(&message.content),
            // It ran out: it comes again.
            Err(status) if status.code() == Code::FailedPrecondition => {}
            Err(status) if status.code() == Code::ResourceExhausted => {}
            Err(_) => return Some(number(&message.content)),
        }
    }
}

/// On a full disk, PostgreSQL and then the middleware are killed in the middle of a drain: of what was sent nothing is
/// lost, and nothing comes twice.
#[test]
fn a_drain_goes_on_after_kills() {
    let test = "drain::a_drain_goes_on_after_kills";
    let Some(disk) = on_a_small_disk(test, "260m") else { return };
    let data = disk.join("queue");
    let middleware = start(&data);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = sender_and_receiver(&endpoint(&middleware)).await;
        let sent = fill(&mut client, CONTENT).await;
        let mut found = Found::default();
        for kill in 1..=3 {
            receive_until(&mut client, &mut found, (sent, sent - kill * sent / 6)).await;
            if let Some(pid) = postgres(&data) {
                kill_process(pid, Signal::KILL).unwrap();
            }
        }
        receive_until(&mut client, &mut found, (sent, sent / 3)).await;
        println!("{} of {sent} after PostgreSQL was killed", found.0.len());
        let pid = Pid::from_raw(i32::try_from(middleware.pid()).unwrap()).unwrap();
        let killing = async {
            tokio::time::timeout(LEASING, std::future::pending::<()>()).await.unwrap_err();
            kill_process(pid, Signal::KILL).unwrap();
        };
        let (open, ()) = tokio::join!(acknowledge_until_gone(&mut client, &mut found), killing);
        drop(middleware);
        println!("{} of {sent} when the middleware was killed", found.0.len());
        let middleware = start(&data);
        let mut client = Client::new(endpoint(&middleware).connect_lazy());
        // The acknowledgement that was not answered may have been done.
        let left = open.map_or(0, |_| 1);
        receive_until(&mut client, &mut found, (sent, left)).await;
        let receive =
            ReceiveRequest { client_id: 2, queue_id: 1, wait_ms: 2000, ..Default::default() };
        if let Some(message) = client.receive(receive).await.unwrap().into_inner().message {
            found.add(&message.content);
        }
        found.0.extend(open);
        found.check(sent);
        until_accepted(&mut client).await;
        drop(client);
        let said = middleware.stop();
        assert!(!said.contains("PostgreSQL ended"), "{said}");
    });
}
