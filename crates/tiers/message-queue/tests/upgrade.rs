//! A database that an earlier version made is brought up to date at the start, by whichever of
//! the middlewares that start together comes first, with its messages; one that a later version made is
//! refused.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use kendall_message_queue::{Database, DatabaseError, PrivatePostgres, Server, ServerError};
use kendall_protocols::queue::{
    AcknowledgeRequest, LeaseRequest, QueueStatisticsRequest, ReceiveBatchRequest, ReceiveRequest,
};
use kendall_tier::Clock;
use support::{Client, Folder, SEARCH_PATH, connect, hello, options, postgres, runtime};
use tokio_postgres::NoTls;

/// Databases as earlier versions made them, with clients 1 to 3 and queue 1, and messages of every kind:
/// 20 for anyone and 20 for client 3, one delayed, one leased by client 2, one whose lease ran out, one
/// that was sent with a request id. The first as it was when the queue was first published, the second with
/// the last migration that held functions.
const MADE_BY: [(&str, &str); 2] = [
    ("version 2", include_str!("databases/version-2.sql")),
    ("version 7", include_str!("databases/version-7.sql")),
];

/// What a middleware of version 7 does: sends, and takes, by the functions that it knows.
const AS_BEFORE: &str = "SELECT contents[1] FROM \
    (SELECT ids FROM send_together(ARRAY[2], ARRAY[1], '{}', ARRAY[1], ARRAY[2], ARRAY[1]::bigint[], \
        ARRAY['as before'], ARRAY[0], ARRAY[0])) AS sent, \
    LATERAL (SELECT contents FROM take_together(ARRAY[1], 1, ARRAY[1], NULL) WHERE ids IS NOT NULL) AS taken";

async fn session(postgres: &PrivatePostgres) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(
        &format!("{} options='-c search_path=kendall_queue'", postgres.url()),
        NoTls,
    )
    .await
    .unwrap();
    #[expect(clippy::disallowed_methods, reason = "ends with the client")]
    tokio::spawn(connection);
    client
}

async fn make(session: &tokio_postgres::Client, text: &str) {
    let text = format!("BEGIN; SET LOCAL check_function_bodies = off; {text}; COMMIT");
    session.batch_execute(&text).await.unwrap();
}

fn start(postgres: &PrivatePostgres) -> Result<Server, ServerError> {
    Server::start(&options(Database::Url(postgres.url().to_owned())), Clock::monotonic())
}

/// Two that start together.
fn start_two(postgres: &PrivatePostgres) -> Vec<Server> {
    std::thread::scope(|scope| {
        let starting: Vec<_> = (0..2).map(|_| scope.spawn(|| start(postgres))).collect();
        starting.into_iter().map(|started| started.join().unwrap().unwrap()).collect()
    })
}

#[test]
fn a_database_of_an_earlier_version_is_brought_up_to_date_with_its_messages() {
    for (version, text) in MADE_BY {
        println!("{version}");
        let (folder, runtime) = (Folder::new(), runtime());
        let postgres = postgres(&folder);
        let session = runtime.block_on(session(&postgres));
        let (held, before) = runtime.block_on(async {
            make(&session, text).await;
            let held = "SELECT id, lease_id FROM message WHERE due_at > now() AND leased_by = 2";
            let row = session.query_one(held, &[]).await.unwrap();
            let before = session.prepare(AS_BEFORE).await;
            ((row.get(0), row.get(1)), before)
        });
        assert_eq!(before.is_ok(), version == "version 7", "functions that are gone since");
        let servers = start_two(&postgres);
        runtime.block_on(async {
            let twice = "SELECT count(*) FROM schema_history GROUP BY version HAVING count(*) > 1";
            assert!(session.query(twice, &[]).await.unwrap().is_empty(), "each migration once");
            if let Ok(before) = before {
                let row = session.query_one(&before, &[]).await.unwrap();
                assert_eq!(row.get::<_, String>(0), "as before", "who started earlier goes on");
            }
            let mut clients = Vec::new();
            for server in &servers {
                clients.push(connect(server).await);
            }
            assert_eq!(hello(&mut clients[0], "worker").await, 2, "the same name, the same id");
            everything_is_there(&mut clients, held).await;
        });
        servers.into_iter().for_each(Server::stop);
        start(&postgres).unwrap().stop();
        postgres.stop();
    }
}

/// All of them, once each, over both middlewares.
async fn everything_is_there(clients: &mut [Client], (message, lease): (i64, i64)) {
    let mut found = BTreeSet::new();
    let statistics = QueueStatisticsRequest { queue_id: 1 };
    let mut looks = tokio::time::interval(Duration::from_millis(10));
    let before = loop {
        looks.tick().await;
        let now = clients[0].queue_statistics(statistics).await.unwrap().into_inner();
        // The lease that ran out ends with the next housekeeping.
        if now.leased == 1 {
            break now;
        }
        assert_eq!(now.leased, 2);
    };
    assert_eq!((before.delayed, before.waiting), (1, 40));
    let addressed = ReceiveRequest { client_id: 3, queue_id: 1, ..Default::default() };
    let all = ReceiveBatchRequest { client_id: 2, queue_id: 1, limit: 600, ..Default::default() };
    for message in clients[1].receive_batch(all).await.unwrap().into_inner().messages {
        assert!(found.insert(message.content));
    }
    assert_eq!(found.len(), 20, "all for anyone but the one that is leased");
    while let Some(message) =
        clients[0].receive(addressed.clone()).await.unwrap().into_inner().message
    {
        assert!(found.insert(message.content));
    }
    assert_eq!(found.len(), 40);
    // The lease of the earlier version holds.
    let acknowledge = AcknowledgeRequest {
        client_id: 2,
        message_id: u64::try_from(message).unwrap(),
        lease_id: u64::try_from(lease).unwrap(),
        ..Default::default()
    };
    clients[1].acknowledge(acknowledge).await.unwrap();
    let nothing = LeaseRequest { client_id: 2, queue_id: 1, lease_ms: 1000, ..Default::default() };
    assert!(clients[0].lease(nothing).await.unwrap().into_inner().message.is_none());
    let after = clients[0].queue_statistics(statistics).await.unwrap().into_inner();
    assert_eq!((after.waiting, after.leased, after.delayed), (0, 0, 1), "{after:?}");
}

/// What version 2 leaves to keys of the tables nobody would refuse once they are gone.
#[test]
fn middlewares_that_cannot_go_on_are_to_be_stopped_first() {
    let (folder, runtime) = (Folder::new(), runtime());
    let postgres = postgres(&folder);
    let session = runtime.block_on(session(&postgres));
    runtime.block_on(make(&session, MADE_BY[0].1));
    let name = |name: &str| {
        runtime
            .block_on(session.batch_execute(&format!("SET application_name = '{name}'")))
            .unwrap();
    };
    name("kendall-queue");
    let error = start(&postgres).unwrap_err();
    let refused =
        matches!(error, ServerError::Database(DatabaseError::Forerunners { connections: 1 }));
    assert!(refused, "{error:?}");
    println!("{error}");
    name("something else");
    start_two(&postgres).into_iter().for_each(Server::stop);
    postgres.stop();
}

/// Two versions have two schemas of functions; one that nobody uses any more goes with the next start.
#[test]
fn functions_stay_as_long_as_a_middleware_uses_them() {
    let (folder, runtime) = (Folder::new(), runtime());
    let postgres = postgres(&folder);
    let session = runtime.block_on(session(&postgres));
    let schemas = || {
        let text =
            "SELECT count(*) FROM pg_namespace WHERE starts_with(nspname, 'kendall_queue_f_')";
        runtime.block_on(session.query_one(text, &[])).unwrap().get::<_, i64>(0)
    };
    let run = |text: &str| runtime.block_on(session.batch_execute(text)).unwrap();
    let server = start(&postgres).unwrap();
    run("CREATE SCHEMA kendall_queue_f_0123456789ab; \
        CREATE FUNCTION kendall_queue_f_0123456789ab.f() RETURNS integer LANGUAGE sql AS 'SELECT 1'; \
        SELECT pg_advisory_lock_shared(x'6B656E64'::int, hashtext('kendall_queue_f_0123456789ab'))");
    start(&postgres).unwrap().stop();
    assert_eq!(schemas(), 2, "the other one is in use");
    // No version gives such a name: it is somebody else's, and may be SQL.
    run("SELECT pg_advisory_unlock_all(); CREATE SCHEMA \"kendall_queue_f_'); DROP\"");
    start(&postgres).unwrap().stop();
    assert_eq!(schemas(), 2, "the one in use and somebody else's");
    run("DROP SCHEMA \"kendall_queue_f_'); DROP\"");
    assert_eq!(schemas(), 1);
    // What is in use and was dropped all the same is made again by the next connection.
    server.stop();
    run(SEARCH_PATH);
    run("SELECT set_config('kendall.gone', current_schema(), false); \
        DO $$ BEGIN EXECUTE 'DROP SCHEMA ' || current_setting('kendall.gone') || ' CASCADE'; END $$");
    let server = start(&postgres).unwrap();
    runtime.block_on(async { assert_eq!(hello(&mut connect(&server).await, "again").await, 1) });
    server.stop();
    postgres.stop();
}

#[test]
fn a_database_of_a_later_version_or_of_another_program_is_refused() {
    let (folder, runtime) = (Folder::new(), runtime());
    let postgres = postgres(&folder);
    start(&postgres).unwrap().stop();
    let session = runtime.block_on(session(&postgres));
    let change = |text: &str| runtime.block_on(session.batch_execute(text)).unwrap();
    change(
        "INSERT INTO schema_history (version, name, applied_on, checksum) \
         SELECT 1000, 'later', applied_on, checksum FROM schema_history WHERE version = 1",
    );
    let error = start(&postgres).unwrap_err();
    let newer = matches!(error, ServerError::Database(DatabaseError::Newer { found: 1000, .. }));
    assert!(newer, "{error:?}");
    println!("{error}");
    change(
        "DELETE FROM schema_history WHERE version = 1000; \
         UPDATE schema_history SET checksum = '1' WHERE version = 3",
    );
    let error = start(&postgres).unwrap_err();
    assert!(
        matches!(error, ServerError::Database(DatabaseError::Altered { version: 3 })),
        "{error:?}"
    );
    println!("{error}");
    change(
        "INSERT INTO schema_history VALUES (1000, 'by hand', 'today', 'x'), (1001, NULL, NULL, NULL)",
    );
    let error = start(&postgres).unwrap_err();
    let history = matches!(error, ServerError::Database(DatabaseError::History { rows: 2 }));
    assert!(history, "{error:?}");
    println!("{error}");
    postgres.stop();
}
