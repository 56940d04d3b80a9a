//! What PostgreSQL counts itself, as a middleware tells it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::time::Duration;

use kendall_message_queue::{Database, PrivateOptions, PrivatePostgres, Server, TcpAccess};
use kendall_protocols::queue::SendRequest;
use kendall_protocols::snapshot::{CountedTime, TierSnapshot, counted};
use kendall_testing::free_address;
use kendall_tier::Clock;
use rustix::process::{Pid, Signal, kill_process};
use support::{Folder, connect, create, hello, runtime, start};

/// Nobody waits longer for what must come.
const LIMIT_NS: u64 = 120_000_000_000;

/// A PostgreSQL as studies have it; `None` where its module that counts statements is not installed.
fn counting(folder: &Folder) -> Option<(PrivatePostgres, Database)> {
    let address = free_address();
    let options = PrivateOptions {
        tcp: Some(TcpAccess { address, password: "secret".into() }),
        ..PrivateOptions::default()
    };
    let postgres = PrivatePostgres::start_with(&folder.path().join("queue"), &options).unwrap();
    let above = postgres.programs().parent().unwrap();
    if !above.join("lib/pg_stat_statements.so").exists() {
        eprintln!("skipped: pg_stat_statements is not installed beside {}", above.display());
        postgres.abandon();
        return None;
    }
    let url = format!("postgres://kendall:secret@{address}/kendall?sslmode=disable");
    Some((postgres, Database::Url(url)))
}

fn of<'a>(snapshot: &'a TierSnapshot, kind: &'a str) -> impl Iterator<Item = &'a CountedTime> {
    snapshot.counted.iter().filter(move |one| one.kind == kind)
}

/// The moment of the look that a snapshot tells of.
fn looked_ns(snapshot: &TierSnapshot) -> u64 {
    of(snapshot, counted::LOOK).map(|one| one.time_ns).max().unwrap_or(0)
}

/// Reads until `found`.
fn until(server: &Server, found: impl Fn(&TierSnapshot) -> bool) -> TierSnapshot {
    let (read, clock) = (server.snapshot(), Clock::monotonic());
    let until_ns = clock.now_ns() + LIMIT_NS;
    loop {
        let snapshot = read();
        if found(&snapshot) {
            return snapshot;
        }
        assert!(clock.now_ns() < until_ns, "{:#?}", snapshot.counted);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn calls(snapshot: &TierSnapshot, kind: &str, start: &str) -> u64 {
    of(snapshot, kind).filter(|one| one.name.starts_with(start)).map(|one| one.count).sum()
}

/// Housekeeping, looks and what else goes on while nobody asks for anything is in no exchange of a client.
#[test]
fn an_idle_queue_has_no_statements_of_requests_and_a_send_has_one() {
    let folder = Folder::new();
    let Some((postgres, database)) = counting(&folder) else { return };
    let server = start(database);
    let first = until(&server, |snapshot| looked_ns(snapshot) > 0);
    let housekeeping = |snapshot: &TierSnapshot| calls(snapshot, counted::ASIDE, "SELECT promote");
    let cleaning = |snapshot: &TierSnapshot| calls(snapshot, counted::ASIDE, "SELECT keep_house");
    let (before, cleaned) = (housekeeping(&first), cleaning(&first));
    let last = until(&server, |snapshot| {
        housekeeping(snapshot) >= before + 30 && cleaning(snapshot) > cleaned
    });
    let requests = |snapshot: &TierSnapshot| -> Vec<CountedTime> {
        of(snapshot, counted::STATEMENT).filter(|one| !one.name.is_empty()).cloned().collect()
    };
    assert_eq!(requests(&first), [], "before any request");
    assert_eq!(requests(&last), [], "while nobody asks for anything");
    runtime().block_on(async {
        let mut client = connect(&server).await;
        let me = hello(&mut client, "me").await;
        let queue = create(&mut client, "queue").await;
        let send = SendRequest {
            client_id: me,
            queue_id: queue,
            content: "x".into(),
            ..SendRequest::default()
        };
        client.send(send).await.unwrap();
    });
    until(&server, |snapshot| {
        requests(snapshot).iter().any(|one| one.name.contains("send") && one.count > 0)
    });
    server.stop();
    postgres.abandon();
}

/// All middlewares of a database would tell the same: one does. When it is gone, another.
#[test]
fn one_middleware_of_several_tells() {
    let folder = Folder::new();
    let Some((postgres, database)) = counting(&folder) else { return };
    let (one, other) = (start(database.clone()), start(database));
    until(&one, |snapshot| looked_ns(snapshot) > 0);
    assert_eq!(looked_ns(&other.snapshot()()), 0);
    one.stop();
    until(&other, |snapshot| looked_ns(snapshot) > 0);
    other.stop();
    postgres.abandon();
}

/// A page is read exactly when the database is overloaded, too: it shows what was seen last, and of when.
#[test]
fn a_snapshot_does_not_wait_for_a_database_that_stands_still() {
    let folder = Folder::new();
    let Some((postgres, database)) = counting(&folder) else { return };
    let server = start(database);
    let first = until(&server, |snapshot| looked_ns(snapshot) > 0);
    // A process of the server that stands still answers nobody; what the kernel accepts for it waits.
    let pid = i32::try_from(postgres.pid()).unwrap();
    let all = stand_still(pid);
    let (read, clock) = (server.snapshot(), Clock::monotonic());
    let began_ns = clock.now_ns();
    let mut seen = Vec::new();
    for _ in 0..20 {
        seen.push(looked_ns(&read()));
    }
    let took_ns = clock.now_ns() - began_ns;
    all.into_iter().for_each(go_on);
    // Twenty readings that wait for a look each take 14 s and more.
    assert!(took_ns < 7_000_000_000, "{took_ns}");
    assert!(seen.iter().all(|at| *at >= looked_ns(&first)), "{seen:?}");
    // And it goes on by itself afterwards.
    let last = *seen.last().unwrap();
    until(&server, |snapshot| looked_ns(snapshot) > last);
    server.stop();
    postgres.abandon();
}

/// Stops a process and its children.
fn stand_still(parent: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    let all: Vec<i32> = children.chain([parent]).collect();
    all.iter().for_each(|pid| signal(*pid, Signal::STOP));
    all
}

fn go_on(pid: i32) {
    signal(pid, Signal::CONT);
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap_or_default();
}
