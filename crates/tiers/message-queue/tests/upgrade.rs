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
use refinery::{Migration, Runner};
use support::{Client, Folder, connect, hello, options, postgres, runtime};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

/// The schema as it was when the queue was first published.
const FIRST: [(&str, &str); 2] = [
    ("V1__schema", include_str!("../migrations/V1__schema.sql")),
    ("V2__operations", include_str!("../migrations/V2__operations.sql")),
];

/// What a middleware of the first version does, with a statement from before.
const AS_BEFORE: &str = "SELECT content FROM \
    (SELECT send_many(ARRAY[2], ARRAY[1], ARRAY[1]::bigint[], ARRAY['as before'], ARRAY[0], ARRAY[0], \
        NULL)) AS sent, \
    LATERAL (SELECT content FROM take_first(1, ARRAY[1], ARRAY[0], 1) WHERE sent IS NOT NULL) AS taken";

/// What a middleware of the version before does: sends to a queue as client 2, and takes as client 1; in two
/// columns, whether it was done and what was taken.
const EXCHANGE: &str = "SELECT done, message_contents::text FROM exchange(ARRAY[1, 2]::bigint[], \
    ARRAY[$1::bigint], ARRAY[2]::bigint[], ARRAY[NULL]::bigint[], ARRAY['exchanged'], ARRAY[0], \
    ARRAY[0]::bigint[], $2::bigint, ARRAY[1]::bigint[], NULL)";

/// It does what it did, and refuses what it refused, though the keys that refused it are gone.
async fn the_version_before_goes_on(session: &tokio_postgres::Client) {
    let statement = session.prepare(EXCHANGE).await.unwrap();
    let count = "SELECT count(*) FROM message";
    let there: i64 = session.query_one(count, &[]).await.unwrap().get(0);
    let refused = session.query_one(&statement, &[&99_i64, &1_i64]).await.unwrap();
    assert!(!refused.get::<_, bool>(0), "an unknown queue");
    let broken = session.query_one(&statement, &[&1_i64, &99_i64]).await.unwrap_err();
    assert_eq!(broken.code(), Some(&SqlState::FOREIGN_KEY_VIOLATION), "{broken}");
    assert_eq!(session.query_one(count, &[]).await.unwrap().get::<_, i64>(0), there);
    let done = session.query_one(&statement, &[&1_i64, &1_i64]).await.unwrap();
    assert_eq!((done.get(0), done.get(1)), (true, Some("{exchanged}")));
}

async fn session(postgres: &PrivatePostgres) -> tokio_postgres::Client {
    let url = format!("{} options='-c search_path=kendall_queue'", postgres.url());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "ends with the client")]
    tokio::spawn(connection);
    client
}

async fn make_first_version(session: &mut tokio_postgres::Client) {
    session.batch_execute("CREATE SCHEMA kendall_queue").await.unwrap();
    let first = FIRST.map(|(name, text)| Migration::unapplied(name, text).unwrap());
    let mut runner = Runner::new(&first);
    runner.set_migration_table_name("schema_history").run_async(session).await.unwrap();
}

/// Clients 1 to 3 and queue 1, with messages of every kind: for anyone, for client 3, delayed,
/// leased by client 2 with a lease that runs, and with one that ran out.
async fn fill(session: &tokio_postgres::Client) {
    session
        .batch_execute(
            "SELECT hello('sender'), hello('worker'), hello('addressee'); \
             SELECT create_queue('jobs', 5, NULL, NULL); \
             SELECT send_many(ARRAY[1, 1], ARRAY[1, 1], ARRAY[NULL, 3]::bigint[], \
                ARRAY['anyone ' || n, 'addressed ' || n], ARRAY[n % 3, 0], ARRAY[0, 0], NULL) \
                FROM generate_series(1, 500) AS n; \
             SELECT send_many(ARRAY[1], ARRAY[1], ARRAY[NULL]::bigint[], ARRAY['delayed'], ARRAY[0], \
                ARRAY[3600000], NULL); \
             SELECT take_first(1, ARRAY[2], ARRAY[3600000], 1); \
             SELECT take_first(1, ARRAY[2], ARRAY[1], 1)",
        )
        .await
        .unwrap();
}

fn start(postgres: &PrivatePostgres) -> Result<Server, ServerError> {
    Server::start(&options(Database::Url(postgres.url().to_owned())), Clock::monotonic())
}

#[test]
fn a_database_of_the_first_version_is_brought_up_to_date_with_its_messages() {
    let (folder, runtime) = (Folder::new(), runtime());
    let postgres = postgres(&folder);
    let mut session = runtime.block_on(session(&postgres));
    let (held, before) = runtime.block_on(async {
        make_first_version(&mut session).await;
        let before = session.prepare(AS_BEFORE).await.unwrap();
        fill(&session).await;
        let held = "SELECT id, lease_id FROM message WHERE due_at > now() AND leased_by = 2";
        let row = session.query_one(held, &[]).await.unwrap();
        ((row.get(0), row.get(1)), before)
    });
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..2).map(|_| scope.spawn(|| start(&postgres))).collect();
        starting.into_iter().map(|started| started.join().unwrap().unwrap()).collect()
    });
    runtime.block_on(async {
        let versions = "SELECT count(*), max(version)::bigint FROM schema_history";
        let row = session.query_one(versions, &[]).await.unwrap();
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).unwrap();
        let files = i64::try_from(files.count()).unwrap();
        assert_eq!((row.get(0), row.get(1)), (files, files), "each migration once");
        let row = session.query_one(&before, &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), "as before", "who started earlier goes on");
        the_version_before_goes_on(&session).await;
        let mut clients = Vec::new();
        for server in &servers {
            clients.push(connect(server).await);
        }
        assert_eq!(hello(&mut clients[0], "worker").await, 2, "the same name, the same id");
        everything_is_there(&mut clients, held).await;
    });
    servers.into_iter().for_each(Server::stop);
    postgres.stop();
}

/// All thousand and one, once each, over both middlewares.
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
    assert_eq!(before.delayed, 1);
    assert_eq!(before.waiting, 999);
    let addressed = ReceiveRequest { client_id: 3, queue_id: 1, ..Default::default() };
    let all = ReceiveBatchRequest { client_id: 2, queue_id: 1, limit: 600, ..Default::default() };
    for message in clients[1].receive_batch(all).await.unwrap().into_inner().messages {
        assert!(found.insert(message.content));
    }
    assert_eq!(found.len(), 499, "all for anyone but the one that is leased");
    while let Some(message) =
        clients[0].receive(addressed.clone()).await.unwrap().into_inner().message
    {
        assert!(found.insert(message.content));
    }
    assert_eq!(found.len(), 999);
    // The lease of the earlier version holds.
    let acknowledge = AcknowledgeRequest {
        client_id: 2,
        message_id: u64::try_from(message).unwrap(),
        lease_id: u64::try_from(lease).unwrap(),
    };
    clients[1].acknowledge(acknowledge).await.unwrap();
    let nothing = LeaseRequest { client_id: 2, queue_id: 1, lease_ms: 1000, ..Default::default() };
    assert!(clients[0].lease(nothing).await.unwrap().into_inner().message.is_none());
    let after = clients[0].queue_statistics(statistics).await.unwrap().into_inner();
    assert_eq!((after.waiting, after.leased, after.delayed), (0, 0, 1), "{after:?}");
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
         UPDATE schema_history SET checksum = '1' WHERE version = 2",
    );
    let error = start(&postgres).unwrap_err();
    assert!(matches!(error, ServerError::Database(DatabaseError::Altered(_))), "{error:?}");
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
