//! The message queue on a disk that is really full: its data's, its log's, or the one that holds
//! both. Who sends is told RESOURCE_EXHAUSTED, receives go on where PostgreSQL can do them, what was
//! answered is there, what was refused is not, and when there is room again all goes on by itself.
//!
//! Each test runs once more, in a mount namespace of its own, where it mounts a small disk and fills
//! it. That takes root, or user namespaces.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::queue_support::{Middleware, at_postgres};
use kendall_message_queue::wire::message_queue_client::MessageQueueClient;
use kendall_protocols::queue::{
    AcknowledgeRequest, CreateQueueRequest, HelloRequest, LeaseRequest, PurgeRequest,
    ReceiveRequest, SendRequest,
};
use kendall_testing::namespace::{Ballast, on_a_small_disk};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

pub(crate) type Client = MessageQueueClient<Channel>;

pub(crate) const SEED: u64 = 20_261_121;
const SENDERS: u64 = 3;
/// Long enough for PostgreSQL to crash and come up again, and for a busy machine.
const CALL: Duration = Duration::from_secs(30);
/// Characters of a message: PostgreSQL keeps so many beside the table, uncompressed.
pub(crate) const CONTENT: usize = 60_000;
/// Refusals after which a disk is taken for full.
const REFUSALS: u32 = 12;

/// What is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Full {
    /// The disk of the data; PostgreSQL's log is elsewhere.
    Data,
    /// The disk of PostgreSQL's log.
    Log,
    /// The only disk.
    Both,
}

/// What all clients saw together.
#[derive(Default)]
struct History {
    /// By content.
    answered: BTreeSet<String>,
    refused: BTreeSet<String>,
    found: BTreeMap<String, u32>,
}

struct Shared {
    history: Mutex<History>,
    endpoint: Endpoint,
    refusals: AtomicU32,
    crashes: AtomicU32,
    /// Sends that were answered.
    sent: AtomicU32,
    done: AtomicBool,
}

impl Shared {
    fn channel(&self) -> Client {
        MessageQueueClient::new(self.endpoint.connect_lazy()).max_decoding_message_size(64 << 20)
    }

    fn found(&self, content: String) {
        *self.history.lock().unwrap().found.entry(content).or_default() += 1;
    }
}

/// What an attempt came to.
enum Attempt<T> {
    Answered(T),
    /// Nothing happened.
    Refused,
    /// Who knows.
    Open,
}

/// One attempt, whose status must be one of those that the documentation names.
async fn attempt<T>(
    shared: &Shared,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Attempt<T> {
    let answer = tokio::time::timeout(CALL, call).await.expect("every call is answered in time");
    let status = match answer {
        Ok(response) => return Attempt::Answered(response.into_inner()),
        Err(status) => status,
    };
    // A refused client tries again a little later.
    tokio::time::interval_at(tokio::time::Instant::now() + PAUSE, PAUSE).tick().await;
    match status.code() {
        Code::ResourceExhausted => {
            assert!(status.message().contains("disk is full"), "{status}");
            shared.refusals.fetch_add(1, Ordering::SeqCst);
            Attempt::Refused
        }
        Code::Unavailable => {
            shared.crashes.fetch_add(1, Ordering::SeqCst);
            Attempt::Open
        }
        _ => panic!("not one of the documented answers: {status}"),
    }
}

pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// Sends until all is done. A send whose outcome is open is repeated with its request id.
async fn send(shared: Arc<Shared>, sender: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED + sender);
    let mut client = shared.channel();
    for number in 0.. {
        if shared.done.load(Ordering::SeqCst) {
            return;
        }
        let request = SendRequest {
            client_id: sender,
            queue_id: 1,
            content: content(&format!("{sender} {number} "), &mut rng),
            request_id: rng.random::<[u8; 16]>().to_vec(),
            ..Default::default()
        };
        let mut open = false;
        loop {
            match attempt(&shared, client.send(request.clone())).await {
                Attempt::Answered(_) => {
                    shared.history.lock().unwrap().answered.insert(label(&request.content));
                    shared.sent.fetch_add(1, Ordering::SeqCst);
                    break;
                }
                // Refused after an attempt that may have gone through: still open.
                Attempt::Refused if !open => {
                    shared.history.lock().unwrap().refused.insert(label(&request.content));
                    break;
                }
                Attempt::Refused => {}
                Attempt::Open => open = true,
            }
        }
    }
}

/// Text that no compression makes smaller, with a label in front.
fn content(label: &str, rng: &mut Xoshiro256PlusPlus) -> String {
    content_of(CONTENT, label, rng)
}

pub(crate) fn content_of(characters: usize, label: &str, rng: &mut Xoshiro256PlusPlus) -> String {
    let letter = |byte: u8| char::from(b'0' + byte % 64);
    let rest = (label.len()..characters).map(|_| letter(rng.random()));
    label.chars().chain(rest).collect()
}

/// The label, which tells messages apart: who sent it, and which of theirs it is.
fn label(content: &str) -> String {
    content.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Takes messages away until there are none, or enough were taken.
async fn receive(
    (shared, client): (&Shared, &mut Client),
    client_id: u64,
    enough: impl Fn() -> bool,
) {
    while !enough() {
        let request = ReceiveRequest { client_id, queue_id: 1, ..Default::default() };
        match attempt(shared, client.receive(request)).await {
            Attempt::Answered(response) => match response.message {
                Some(message) => shared.found(label(&message.content)),
                None => return,
            },
            Attempt::Refused => {}
            Attempt::Open => panic!("PostgreSQL crashed where its log has room"),
        }
    }
}

/// Looks until it is so, with a deadline.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let mut looks = tokio::time::interval(PAUSE);
    for _ in 0..18_000 {
        looks.tick().await;
        if so() {
            return;
        }
    }
    panic!("{what}: not within three minutes");
}

pub(crate) fn endpoint(middleware: &Middleware) -> Endpoint {
    Endpoint::from_shared(format!("http://{}", middleware.address)).unwrap()
}

pub(crate) fn start(data: &Path) -> Middleware {
    start_with(data, CONTENT)
}

pub(crate) fn start_with(data: &Path, characters: usize) -> Middleware {
    let characters = characters.to_string();
    let arguments = ["--content-characters", &characters, "--data", data.to_str().unwrap()];
    Middleware::start(&arguments).unwrap_or_else(|said| panic!("{said}"))
}

/// Puts one part of the cluster on the small disk and the other beside it, by a symbolic link.
fn lay_out(full: Full, disk: &Path) -> (PathBuf, Option<tempfile::TempDir>) {
    if full == Full::Both {
        return (disk.join("queue"), None);
    }
    let other = tempfile::tempdir().unwrap();
    open_to_all(other.path());
    let (data, log) = if full == Full::Data { (disk, other.path()) } else { (other.path(), disk) };
    let data = data.join("queue");
    start(&data).stop();
    let before = data.join("data/pg_wal");
    // It was made for the large disk.
    std::fs::remove_file(before.join("kendall-reserve")).unwrap_or_default();
    let copied = Command::new("cp").arg("--archive").args([&before, &log.join("wal")]).status();
    assert!(copied.unwrap().success());
    std::fs::remove_dir_all(&before).unwrap();
    std::os::unix::fs::symlink(log.join("wal"), &before).unwrap();
    (data, Some(other))
}

fn fill_and_go_on(full: Full, disk: &Path) {
    let (data, _other) = lay_out(full, disk);
    let middleware = start(&data);
    let endpoint = endpoint(&middleware);
    let shared = Arc::new(Shared {
        history: Mutex::default(),
        endpoint,
        refusals: AtomicU32::new(0),
        crashes: AtomicU32::new(0),
        sent: AtomicU32::new(0),
        done: AtomicBool::new(false),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = shared.channel();
        for number in 1..=SENDERS + 1 {
            let request = HelloRequest { name: format!("client {number}") };
            assert_eq!(client.hello(request).await.unwrap().into_inner().client_id, number);
        }
        let request = CreateQueueRequest { name: "jobs".into(), ..Default::default() };
        assert_eq!(client.create_queue(request).await.unwrap().into_inner().queue_id, 1);
        let mut senders = tokio::task::JoinSet::new();
        for sender in 1..=SENDERS {
            senders.spawn(send(Arc::clone(&shared), sender));
        }
        if full == Full::Both {
            // So many that what is received makes room for the reserve.
            until("messages are stored", || shared.sent.load(Ordering::SeqCst) > 700).await;
        }
        // The log takes a new file of 16 MiB: more than that, to see it taken.
        let ballast = Ballast::fill(disk, if full == Full::Data { 6 << 20 } else { 20 << 20 });
        until("the disk is full", || {
            shared.refusals.load(Ordering::SeqCst) + shared.crashes.load(Ordering::SeqCst)
                >= REFUSALS
        })
        .await;
        println!(
            "{full:?}: {} sent, {} refused, {} open when the disk was full",
            shared.sent.load(Ordering::SeqCst),
            shared.refusals.load(Ordering::SeqCst),
            shared.crashes.load(Ordering::SeqCst)
        );
        if full != Full::Log {
            // Receiving makes room: sends are answered again while the disk is as full as it was. Then they may be quicker
            // than the receives, so that these never end.
            let sent = shared.sent.load(Ordering::SeqCst);
            let go_on = || shared.sent.load(Ordering::SeqCst) > sent + 10;
            receive((&shared, &mut client), SENDERS + 1, go_on).await;
            until("there is room where messages were received", go_on).await;
            assert_eq!(shared.crashes.load(Ordering::SeqCst), 0, "nothing crashed");
        }
        ballast.remove();
        let sent = shared.sent.load(Ordering::SeqCst);
        until("all goes on when there is room", || shared.sent.load(Ordering::SeqCst) > sent + 50)
            .await;
        shared.done.store(true, Ordering::SeqCst);
        while let Some(sender) = senders.join_next().await {
            sender.unwrap();
        }
        drain(&shared, &mut client).await;
    });
    check(&shared.history.lock().unwrap());
    // The clients hang up: the stop would wait for them.
    drop(runtime);
    let said = middleware.stop();
    assert!(!said.contains("panicked"), "{said}");
}

/// Takes what is left: half by lease and acknowledgement.
async fn drain(shared: &Shared, client: &mut Client) {
    let client_id = SENDERS + 1;
    for _ in 0..10 {
        let lease =
            LeaseRequest { client_id, queue_id: 1, lease_ms: 600_000, ..Default::default() };
        let held = client.lease(lease).await.unwrap().into_inner();
        let Some(message) = held.message else { break };
        let (message_id, lease_id) = (message.message_id, held.lease_id);
        let done = AcknowledgeRequest { client_id, message_id, lease_id, ..Default::default() };
        client.acknowledge(done).await.unwrap();
        shared.found(label(&message.content));
    }
    receive((shared, client), client_id, || false).await;
    let dropped = client.purge(PurgeRequest { queue_id: 1 }).await.unwrap().into_inner().dropped;
    assert_eq!(dropped, 0, "all were received");
}

fn check(history: &History) {
    let History { answered, refused, found } = history;
    let twice: Vec<_> = found.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "delivered twice: {twice:?}");
    let lost: Vec<_> = answered.iter().filter(|label| !found.contains_key(*label)).collect();
    assert!(lost.is_empty(), "answered and lost: {lost:?}");
    let there: Vec<_> = refused.iter().filter(|label| found.contains_key(*label)).collect();
    assert!(there.is_empty(), "refused and there: {there:?}");
    assert_eq!(found.len(), answered.len(), "all that is there was answered");
    println!("{} answered and found, {} refused", answered.len(), refused.len());
}

#[test]
fn the_disk_of_the_data_is_full() {
    if let Some(disk) = on_a_small_disk("full_disk::the_disk_of_the_data_is_full", "64m") {
        fill_and_go_on(Full::Data, &disk);
    }
}

#[test]
fn the_disk_of_the_log_is_full() {
    if let Some(disk) = on_a_small_disk("full_disk::the_disk_of_the_log_is_full", "80m") {
        fill_and_go_on(Full::Log, &disk);
    }
}

#[test]
fn the_only_disk_is_full() {
    if let Some(disk) = on_a_small_disk("full_disk::the_only_disk_is_full", "400m") {
        fill_and_go_on(Full::Both, &disk);
    }
}

/// Clients 1 (sender) and 2 (receiver), and queue 1.
pub(crate) async fn sender_and_receiver(endpoint: &Endpoint) -> Client {
    let mut client = Client::new(endpoint.connect_lazy());
    for name in ["sender", "receiver"] {
        client.hello(HelloRequest { name: name.into() }).await.unwrap();
    }
    let request = CreateQueueRequest { name: "jobs".into(), ..Default::default() };
    client.create_queue(request).await.unwrap();
    client
}

/// Longer than a vacuum that writes the log slowly, checkpoints and a look at the disk take on a busy machine.
const ACCEPTED_AGAIN: Duration = Duration::from_secs(60);

/// Where little is left of a small disk, PostgreSQL's log keeps a second file for itself: sends are accepted all the same
/// soon after all was received.
#[test]
fn sends_go_on_where_a_small_disk_has_little_room() {
    let test = "full_disk::sends_go_on_where_a_small_disk_has_little_room";
    let Some(disk) = on_a_small_disk(test, "300m") else { return };
    let middleware = start(&disk.join("queue"));
    let _ballast = Ballast::fill(&disk, 40 << 20);
    let endpoint = endpoint(&middleware);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = sender_and_receiver(&endpoint).await;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        for round in 0..3 {
            let (sent, refused) = send_until_refused(&mut client, &mut rng).await;
            assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
            assert!(sent > 0, "round {round}");
            let receive = ReceiveRequest { client_id: 2, queue_id: 1, ..Default::default() };
            while client.receive(receive.clone()).await.unwrap().into_inner().message.is_some() {}
            let received = tokio::time::Instant::now();
            until_accepted(&mut client).await;
            println!("round {round}: {sent} sent, accepted again after {:?}", received.elapsed());
        }
    });
    drop(runtime);
    middleware.stop();
}

/// A receive with a request id of its own.
fn receive_once(number: u128) -> ReceiveRequest {
    let request_id = number.to_be_bytes().to_vec();
    ReceiveRequest { client_id: 2, queue_id: 1, request_id, ..Default::default() }
}

/// Sends messages until one is refused; how many were stored, and the refusal.
async fn send_until_refused(client: &mut Client, rng: &mut Xoshiro256PlusPlus) -> (u32, Status) {
    for sent in 0..5000 {
        let content = content(&format!("{sent} "), rng);
        let send = SendRequest { client_id: 1, queue_id: 1, content, ..Default::default() };
        if let Err(status) = client.send(send).await {
            return (sent, status);
        }
    }
    panic!("the disk does not get full");
}

/// Sends until one is accepted again, for so long as a vacuum, a checkpoint and a look at the disk take.
pub(crate) async fn until_accepted(client: &mut Client) {
    let send = SendRequest { client_id: 1, queue_id: 1, ..Default::default() };
    let accepted = async {
        let mut attempts = tokio::time::interval(PAUSE);
        while client.send(send.clone()).await.is_err() {
            attempts.tick().await;
        }
    };
    let again = tokio::time::timeout(ACCEPTED_AGAIN, accepted).await;
    again.expect("sends are accepted again");
}

/// Receives whose answers would be kept take nothing of the log's reserve: they are refused, but for those that were
/// answered before; the others empty the queue, which takes several times the reserve as log.
#[test]
fn receives_with_request_ids_leave_the_reserve() {
    let test = "full_disk::receives_with_request_ids_leave_the_reserve";
    let Some(disk) = on_a_small_disk(test, "260m") else { return };
    let middleware = start(&disk.join("queue"));
    let endpoint = endpoint(&middleware);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = sender_and_receiver(&endpoint).await;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let send =
            SendRequest { client_id: 1, queue_id: 1, content: "0".into(), ..Default::default() };
        client.send(send).await.unwrap();
        let first = client.receive(receive_once(0)).await.unwrap().into_inner();
        let (sent, refused) = send_until_refused(&mut client, &mut rng).await;
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        let again = client.receive(receive_once(0)).await.unwrap().into_inner();
        assert_eq!(again, first);
        let plain = ReceiveRequest { request_id: Vec::new(), ..receive_once(0) };
        let mut refusals = 0;
        for number in 1..=u128::from(sent) {
            // The log may take less for a while: an answer or two is kept.
            let answer = match client.receive(receive_once(number)).await {
                Ok(answer) => answer,
                Err(refused) => {
                    assert_eq!(refused.code(), Code::ResourceExhausted, "{number}: {refused}");
                    assert!(refused.message().contains("receive without request_id"), "{refused}");
                    refusals += 1;
                    client.receive(plain.clone()).await.unwrap()
                }
            };
            assert!(answer.into_inner().message.is_some(), "{number} of {sent}");
        }
        println!("{sent} sent, {refusals} receives with a request id refused");
        assert!(refusals > 0);
        until_accepted(&mut client).await;
    });
    drop(runtime);
    let said = middleware.stop();
    assert!(!said.contains("PostgreSQL ended"), "{said}");
}

/// Where kept answers take the space, a refusal says so; when they are too old, their space is free again.
#[test]
fn the_space_of_kept_answers_is_freed() {
    let test = "full_disk::the_space_of_kept_answers_is_freed";
    let Some(disk) = on_a_small_disk(test, "260m") else { return };
    let data = disk.join("queue");
    let middleware = start(&data);
    let endpoint = endpoint(&middleware);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = sender_and_receiver(&endpoint).await;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut said = String::new();
        let mut attempts = tokio::time::interval(PAUSE);
        for number in 0.. {
            assert!(number < 5000, "the disk does not get full");
            let content = content(&format!("{number} "), &mut rng);
            let send = SendRequest { client_id: 1, queue_id: 1, content, ..Default::default() };
            if let Err(refused) = client.send(send).await {
                assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
                said = refused.message().to_owned();
                if said.contains("answers kept ten minutes for request ids") {
                    break;
                }
                attempts.tick().await;
            } else if client.receive(receive_once(number)).await.is_err() {
                let plain = ReceiveRequest { request_id: Vec::new(), ..receive_once(0) };
                client.receive(plain).await.unwrap();
            }
        }
        println!("{said}");
        // As after ten minutes.
        let text = "DELETE FROM kendall_queue.answered";
        let deleted = at_postgres("psql", &data).args(["--command", text]).output().unwrap();
        assert!(deleted.status.success(), "{deleted:?}");
        until_accepted(&mut client).await;
    });
    drop(runtime);
    middleware.stop();
}

/// Bytes of PostgreSQL's log since its last checkpoint began.
fn log_bytes(data: &Path) -> u64 {
    let text =
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), redo_lsn) FROM pg_control_checkpoint()";
    let output = at_postgres("psql", data).args(["--tuples-only", "--command", text]).output();
    String::from_utf8(output.unwrap().stdout).unwrap().trim().parse().unwrap()
}

/// While the log's disk is nearly full, the log's keeper gives up its reserve and keeps the log short; when there is room
/// again, so is the reserve.
#[test]
fn the_log_is_short_and_its_reserve_given_up_while_its_disk_is_nearly_full() {
    let test = "full_disk::the_log_is_short_and_its_reserve_given_up_while_its_disk_is_nearly_full";
    let Some(disk) = on_a_small_disk(test, "400m") else { return };
    let data = disk.join("queue");
    let reserve = data.join("data/pg_wal/kendall-reserve");
    let is_held = || std::fs::metadata(&reserve).is_ok_and(|about| about.blocks() > 0);
    let middleware = start(&data);
    assert!(is_held());
    let endpoint = endpoint(&middleware);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = sender_and_receiver(&endpoint).await;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut send = |label: &str| SendRequest {
            client_id: 1,
            queue_id: 1,
            content: content(label, &mut rng),
            ..Default::default()
        };
        for number in 0..200 {
            client.send(send(&number.to_string())).await.unwrap();
        }
        let long = log_bytes(&data);
        assert!(long > 8 << 20, "{long} bytes of log are too few to see them go");
        let ballast = Ballast::fill(&disk, 20 << 20);
        until("the reserve is given up", || !is_held()).await;
        let refused = client.send(send("refused")).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        until("the log is short", || log_bytes(&data) < 1 << 20).await;
        for _ in 0..200 {
            let receive = ReceiveRequest { client_id: 2, queue_id: 1, ..Default::default() };
            assert!(client.receive(receive).await.unwrap().into_inner().message.is_some());
        }
        ballast.remove();
        until("the reserve is there again", is_held).await;
        let again = send("accepted");
        let mut attempts = tokio::time::interval(PAUSE);
        while client.send(again.clone()).await.is_err() {
            attempts.tick().await;
        }
    });
    drop(runtime);
    middleware.stop();
}

/// What the start says of a disk without room, and of a folder that cannot be written.
#[test]
fn a_start_without_room_says_so() {
    let Some(disk) = on_a_small_disk("full_disk::a_start_without_room_says_so", "72m") else {
        return;
    };
    let folder = disk.join("queue");
    let arguments = ["--data", folder.to_str().unwrap()];
    let refused = |part: &str| {
        let said = Middleware::start(&arguments).expect_err("there is no room");
        assert!(said.contains("exit status: 3"), "{said}");
        assert!(said.contains(part), "`{part}` is missing: {said}");
        assert!(!said.contains("panicked"), "{said}");
    };
    let ballast = Ballast::fill(&disk, 1 << 20);
    refused("No space left on device");
    ballast.remove();
    start(&folder).stop();
    let ballast = Ballast::fill(&disk, 0);
    refused("free some");
    ballast.remove();
    start(&folder).stop();
    remount(&disk, "ro");
    refused("Read-only file system");
    refused("--data DIR");
    remount(&disk, "rw");
    let file = disk.join("file");
    std::fs::write(&file, "not a folder").unwrap();
    let said = Middleware::start(&["--data", file.to_str().unwrap()]).expect_err("it is a file");
    assert!(said.contains("exit status: 3") && said.contains("or no folder"), "{said}");
    start(&folder).stop();
}

fn remount(disk: &Path, how: &str) {
    let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(disk).status();
    assert!(done.unwrap().success());
}

fn open_to_all(folder: &Path) {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder, open).unwrap();
}
