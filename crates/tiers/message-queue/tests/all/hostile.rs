//! What careless and hostile neighbours do: transactions that stay open, dead letters that have nowhere to go, long
//! contents by the hundred, schemas with SQL in their names, and a connection in an unknown state.

use std::time::Duration;

use kendall_message_queue::Database;
use kendall_protocols::queue::{
    ChangeQueueRequest, HelloRequest, ListDeadLettersRequest, ReceiveBatchRequest, RedriveRequest,
    SendBatchRequest, SendRequest,
};
use tonic::Code;

use crate::support::{
    Client, Folder, Other, connect, create, hello, options, postgres, runtime, start_with,
};

/// Longer than anything here takes on the slowest machine: a test that hangs ends.
const PATIENCE: Duration = Duration::from_secs(60);

const WAITING: &str = "SELECT count(*) FROM message";

fn message(client_id: u64, queue_id: u64, content: &str) -> SendRequest {
    SendRequest { client_id, queue_id, content: content.into(), ..Default::default() }
}

/// A program calls `enqueue` and leaves the transaction open: a request to change the queue, or to be the client
/// that it registers, is refused with the reason, and all others are served.
async fn a_transaction_that_stays_open(client: &mut Client, other: &Other) {
    let (me, queue) = (hello(client, "me").await, create(client, "jobs").await);
    other.run("BEGIN; SELECT kendall_queue.enqueue('jobs', 'order', sender => 'shop')").await;
    let mut refused = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let mut client = client.clone();
        let pause =
            ChangeQueueRequest { queue_id: queue, paused: Some(true), ..Default::default() };
        refused.spawn(async move { client.change_queue(pause).await.map(drop) });
    }
    let mut same = client.clone();
    refused.spawn(async move { same.hello(HelloRequest { name: "shop".into() }).await.map(drop) });
    let served = async {
        client.send(message(me, queue, "x")).await.unwrap();
        while let Some(answer) = refused.join_next().await {
            let status = answer.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::Aborted, "{status}");
            assert!(status.message().contains("enqueue"), "{status}");
        }
        client.send(message(me, queue, "y")).await.unwrap();
    };
    tokio::time::timeout(PATIENCE, served).await.expect("one transaction stops everybody");
    other.run("COMMIT").await;
    let pause = ChangeQueueRequest { queue_id: queue, paused: Some(true), ..Default::default() };
    client.change_queue(pause).await.unwrap();
    hello(client, "shop").await;
    assert_eq!(other.number(WAITING).await, 3);
    other.run("DELETE FROM message").await;
}

/// A thousand letters have nowhere to go, and one behind them has.
async fn letters_that_stay(client: &mut Client, other: &Other) {
    let (jobs, letters) = (create(client, "redriven").await, create(client, "letters").await);
    let put = |origin: u64, count: u32| {
        format!(
            "INSERT INTO message (queue_id, sender_id, priority, sent_at, content, dead_at, dead_reason, \
             origin_queue_id, dead_deliveries) \
             SELECT {letters}, 1, 0, now(), 'x', now(), 'why', {origin}, 1 \
             FROM generate_series(1, {count})"
        )
    };
    other.run(&put(1 << 40, 1001)).await;
    other.run(&put(jobs, 1)).await;
    let all = RedriveRequest { queue_id: letters, ..Default::default() };
    assert_eq!(client.redrive(all).await.unwrap().into_inner().moved, 1);
    assert_eq!(other.number(WAITING).await, 1002, "those that stay are not lost");
    other.run("DELETE FROM message").await;
}

/// Pages of long letters: few at a time are read, and all of them come once.
async fn long_letters(client: &mut Client, other: &Other) {
    let letters = create(client, "long letters").await;
    other
        .run(&format!(
            "INSERT INTO message (queue_id, sender_id, priority, sent_at, content, dead_at, dead_reason, \
             origin_queue_id, dead_deliveries) \
             SELECT {letters}, 1, 0, now(), repeat('x', 1048576), now(), 'why', 1, 1 \
             FROM generate_series(1, 10)"
        ))
        .await;
    let read = format!("SELECT count(*) FROM dead_letters({letters}, NULL, 0, 1000, 4194304)");
    assert_eq!(other.number(&read).await, 4, "as many as have 4 MiB");
    let mut found = Vec::new();
    loop {
        let after_message_id = found.last().copied().unwrap_or_default();
        let list =
            ListDeadLettersRequest { queue_id: letters, after_message_id, ..Default::default() };
        let page = client.list_dead_letters(list).await.unwrap().into_inner().messages;
        if page.is_empty() {
            break;
        }
        found.extend(page.iter().map(|letter| letter.message_id));
    }
    assert_eq!(found.len(), 10);
    assert!(found.is_sorted_by(|one, next| one < next), "{found:?}");
    other.run("DELETE FROM message").await;
}

/// A request of a few kilobytes that would become a hundred times as large.
async fn empty_parts(client: &mut Client) {
    let messages = vec![SendRequest::default(); (1 << 16) + 1];
    let refused = client.send_batch(SendBatchRequest { messages }).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("parts"), "{refused}");
}

/// Has deletions of messages go wrong: the first and the second, as `second` says.
async fn make_trouble(other: &Other, second: &str) {
    other
        .run(&format!(
            "CREATE SEQUENCE calls; \
             CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 CASE nextval('calls') WHEN 1 THEN RAISE EXCEPTION 'no'; \
                     WHEN 2 THEN {second}; ELSE NULL; END CASE; \
                 RETURN OLD; END $$; \
             CREATE TRIGGER trouble BEFORE DELETE ON message FOR EACH ROW EXECUTE FUNCTION trouble()"
        ))
        .await;
}

async fn end_trouble(other: &Other) {
    other.run("DROP TRIGGER trouble ON message; DROP FUNCTION trouble; DROP SEQUENCE calls").await;
    other.run("DELETE FROM message").await;
}

/// Two takes fail together and are tried one by one. Where the first fails again, what the second takes is in the
/// answer; where the outcome of the first is unknown, nothing else is done on its connection.
async fn takes_that_fail(client: &mut Client, other: &Other) {
    let (from, to) = (hello(client, "from").await, hello(client, "to").await);
    let queue_id = create(client, "takes").await;
    let both = ReceiveBatchRequest { client_id: to, queue_id, limit: 2, ..Default::default() };
    for (second, answered, left) in [("RAISE EXCEPTION 'no'", 1, 1), ("PERFORM pg_sleep(7)", 0, 2)]
    {
        for content in ["first", "second"] {
            client.send(message(from, queue_id, content)).await.unwrap();
        }
        make_trouble(other, second).await;
        let answer = client.receive_batch(both.clone()).await;
        let received = answer.map_or(0, |answer| answer.into_inner().messages.len());
        // What PostgreSQL still does is over.
        let quiet = "SELECT (count(*) = 0)::int::bigint FROM pg_stat_activity \
            WHERE application_name = 'kendall-queue' AND (wait_event = 'PgSleep' OR xact_start IS NOT NULL)";
        other.until(quiet, 1).await;
        let waiting = other.number(WAITING).await;
        assert_eq!((received, waiting), (answered, left), "{second}");
        client.send(message(from, queue_id, "third")).await.unwrap();
        assert_eq!(other.number(WAITING).await, left + 1, "answered is committed");
        end_trouble(other).await;
    }
}

#[test]
fn neighbours_are_survived() {
    let folder = Folder::new();
    let database = postgres(&folder);
    let mut options = options(Database::Url(database.url().to_owned()));
    options.operation_timeout = Duration::from_secs(5);
    let server = start_with(options);
    runtime().block_on(async {
        let mut client = connect(&server).await;
        let other = Other::connect(database.url()).await;
        a_transaction_that_stays_open(&mut client, &other).await;
        letters_that_stay(&mut client, &other).await;
        long_letters(&mut client, &other).await;
        empty_parts(&mut client).await;
        takes_that_fail(&mut client, &other).await;
    });
    server.stop();
    database.stop();
}

/// Unused schemas of functions are dropped; whose name only begins like theirs stays, and what stands in it
/// is not run.
#[test]
fn names_of_schemas_are_no_statements() {
    let folder = Folder::new();
    let database = postgres(&folder);
    let runtime = runtime();
    let other = runtime.block_on(async {
        let other = Other::connect_plainly(database.url()).await;
        other
            .run(
                "CREATE SCHEMA \"kendall_queue_f_'))THEN CREATE TABLE hit();END IF;END $$;--\"; \
                 CREATE SCHEMA kendall_queue_f_backup; CREATE SCHEMA kendall_queue_f_0123456789ab",
            )
            .await;
        other
    });
    start_with(options(Database::Url(database.url().to_owned()))).stop();
    runtime.block_on(async {
        let hit = "SELECT count(*) FROM pg_class WHERE relname = 'hit'";
        assert_eq!(other.number(hit).await, 0, "SQL in a name was run");
        let schemas =
            "SELECT count(*) FROM pg_namespace WHERE starts_with(nspname, 'kendall_queue_f_')";
        assert_eq!(
            other.number(schemas).await,
            3,
            "the functions', and two that are not ours to drop"
        );
    });
    database.stop();
}
