//! What PostgreSQL counts itself, as a middleware tells it.
use std::time::Duration;

use kendall_message_queue::{Database, PrivateOptions, PrivatePostgres, Server, TcpAccess};
use kendall_protocols::queue::SendRequest;
use kendall_protocols::snapshot::{CountedTime, TierSnapshot, counted};
use kendall_testing::free_address;
use kendall_tier::Clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Folder, connect, create, hello, runtime, start};

/// Longest wait for an expected event.
const LIMIT_NS: u64 = 120_000_000_000;

/// A PostgreSQL as studies have it, with its module that counts statements.
fn counting(folder: &Folder) -> (PrivatePostgres, Database) {
    let address = free_address();
    let options = PrivateOptions {
        tcp: Some(TcpAccess { address, password: "secret".into() }),
        ..PrivateOptions::default()
    };
    let postgres = PrivatePostgres::start_with(&folder.path().join("queue"), &options).unwrap();
    let above = postgres.programs().parent().unwrap();
    let module = above.join("lib/pg_stat_statements.so");
    assert!(module.exists(), "{} is missing: run `make packages-test`", module.display());
    let url = format!("postgres://kendall:secret@{address}/kendall?sslmode=disable");
    (postgres, Database::Url(url))
}

fn of<'a>(snapshot: &'a TierSnapshot, kind: &'a str) -> impl Iterator<Item = &'a CountedTime> {
    snapshot.counted.iter().filter(move |one| one.kind == kind)
}

/// The moment of the query that a snapshot reports.
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

/// Housekeeping, monitoring and whatever else happens without a request is in no exchange of a client.
#[test]
fn an_idle_queue_has_no_statements_of_requests_and_a_send_has_one() {
    let folder = Folder::new();
    let (postgres, database) = counting(&folder);
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
    // The start made the tables, in transactions; since then there was nothing.
    assert_eq!(requests(&last), requests(&first));
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
        requests(snapshot).iter().any(|one| one.name.contains("FROM send") && one.count > 0)
    });
    server.stop();
    postgres.abandon();
}

/// All middlewares of a database would report the same: one does. When it has stopped, another.
#[test]
fn one_middleware_of_several_reports() {
    let folder = Folder::new();
    let (postgres, database) = counting(&folder);
    let (one, other) = (start(database.clone()), start(database));
    until(&one, |snapshot| looked_ns(snapshot) > 0);
    assert_eq!(looked_ns(&other.snapshot()()), 0);
    one.stop();
    until(&other, |snapshot| looked_ns(snapshot) > 0);
    other.stop();
    postgres.abandon();
}

/// A page is read when the database is overloaded, too: it shows the last answer, with its moment.
#[test]
fn a_snapshot_does_not_wait_for_a_database_that_stands_still() {
    let folder = Folder::new();
    let (postgres, database) = counting(&folder);
    let server = start(database);
    let first = until(&server, |snapshot| looked_ns(snapshot) > 0);
    // Stopped processes answer nothing.
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
    // Twenty readings that each wait for PostgreSQL take 14 s and more.
    assert!(took_ns < 7_000_000_000, "{took_ns}");
    assert!(seen.iter().all(|at| *at >= looked_ns(&first)), "{seen:?}");
    // Afterwards it continues by itself.
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
