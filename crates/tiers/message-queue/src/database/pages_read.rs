//! What operations read does not grow with the messages that wait, whatever PostgreSQL believes of the
//! table: its planner goes by what the table held when it was analyzed last, which a queue that was
//! empty a minute ago and holds a million now is not.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use tokio_postgres::{Client, SimpleQueryMessage};

use super::{Databases, PoolOptions, Reach};
use crate::PrivatePostgres;
use crate::operation::Limits;

/// Messages of each kind that no receive of the test asks for.
const WAITING: u32 = 50_000;
/// Pages that an operation may read. A message that is sent goes into at most seven indexes of three
/// levels, each read of the first entry costs one such descent, and a client whose own messages are in front reads
/// 32 of them, with the page each is on; three clients in a batch do that. A scan along an index over
/// the messages of one kind reads 190 pages at least (260 entries of 32 bytes in a page), and what waits
/// here is of four kinds: operations that used a wrong index were seen to read 400 and far more.
const PAGES: u64 = 250;

/// What was in the table when PostgreSQL analyzed it, and by which command. Emptied afterwards.
const HISTORIES: [(&str, &str); 7] = [
    ("never looked at", ""),
    ("looked at when empty", "VACUUM ANALYZE message"),
    (
        "full of messages for anyone, then swept",
        "FILL ANYONE; ANALYZE message; EMPTY; VACUUM message",
    ),
    ("full of messages for one, then swept", "FILL ONE; ANALYZE message; EMPTY; VACUUM message"),
    ("full of delayed messages", "FILL DELAYED; ANALYZE message; EMPTY; VACUUM message"),
    ("few messages", "FEW; VACUUM ANALYZE message; EMPTY; VACUUM message"),
    (
        "all that is there",
        "FILL ANYONE; FILL ONE; FILL DELAYED; FILL LEASED; VACUUM ANALYZE message; EMPTY; VACUUM message",
    ),
];

/// Queue 1 and clients 1 to 20. Client 1 has sent all that waits; client 2 is who does not come.
const PEOPLE: &str = "SELECT hello('client ' || n) FROM generate_series(1, 20) AS n; \
    SELECT create_queue('jobs', 5, NULL, NULL, NULL); \
    SELECT create_queue('letters', NULL, NULL, NULL, NULL)";

/// Each in a transaction that is rolled back. Client 1 is among those who take: its own messages are in
/// front.
const OPERATIONS: [&str; 38] = [
    "send_together('{3,4,5}', '{1}', '{6}', '{1,1,1}', '{3,4,5}', '{NULL,NULL,6}', '{a,b,c}', '{0,0,7}', \
        '{0,0,9}', NULL, NULL)",
    "send_many('{3,4}', '{1,1}', '{NULL,5}', '{a,b}', '{0,3}', '{0,0}', NULL, NULL, NULL, NULL)",
    "send_many('{3,4}', '{1,1}', '{NULL,5}', '{a,b}', '{0,3}', '{0,0}', \
        NULL, NULL, ARRAY[gen_random_uuid(), gen_random_uuid()], ARRAY[gen_random_uuid(), gen_random_uuid()])",
    "take_together('{10,11,12}', 1, '{10,11,12}', NULL)",
    "take_together('{10,11,12}', 1, '{10,11,12}', '{1000,1000,1000}')",
    "take_together('{1,11}', 1, '{1,11}', NULL)",
    "take_together('{2,11}', 1, '{2,11}', NULL)",
    "take_together('{3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20}', 1, \
        '{3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20}', NULL)",
    "take_together('{1}', 1, '{1}', NULL)",
    "take_many('{10,11}', '{1,1}', '{NULL,NULL}', '{false,false}', '{0,1000}')",
    "take_many('{10,1}', '{1,1}', '{NULL,NULL}', '{true,true}', '{0,0}')",
    "take_many('{10,11}', '{1,1}', '{3,1}', '{false,true}', '{0,0}')",
    "take_once(10, 1, NULL, false, 0, 1, 1::smallint, gen_random_uuid(), gen_random_uuid(), false)",
    "take_once(1, 1, NULL, true, 1000, 2, 2::smallint, gen_random_uuid(), gen_random_uuid(), false)",
    "acknowledge_once(2, ARRAY(SELECT id FROM message ORDER BY id DESC LIMIT 2), '{49999,50000}', \
        3::smallint, gen_random_uuid(), gen_random_uuid())",
    "put_back(gen_random_uuid(), NULL, 1000000000, 1, 1, NULL, 0, 'x', 0, 0, NULL, NULL)",
    "bury((SELECT max(id) FROM message), 2, 'why')",
    "redrive(1, ARRAY(SELECT id FROM message ORDER BY id LIMIT 10), NULL, 0, 10)",
    "redrive(2, NULL, NULL, 0, 10)",
    "dead_letters(2, NULL, 0, 10, 1000)",
    "dead_letters(1, 1, 0, 10, 1000)",
    "archived(1, 0, 10, 1000)",
    "change_queue(1, 'new', 3, 2, 0, 0, true)",
    "forget_clients(10)",
    "heard_from('{1,2}')",
    "peek(1, 10, NULL, false)",
    "peek(1, 1, NULL, true)",
    "queues_for(10, false, 0, 100)",
    "queues_for(1, false, 0, 100)",
    "queue_statistics(1, 1000)",
    "promote_due(100)",
    "keep_house(1000)",
    "acknowledge_many('{2,2}', ARRAY(SELECT id FROM message ORDER BY id DESC LIMIT 2), '{49999,50000}')",
    "holds_messages(1)",
    "waits_of_others(1, 1)",
    "extend_lease(2, (SELECT max(id) FROM message), 1, 1000)",
    "return_message(2, (SELECT max(id) FROM message), 1, 0, '')",
    "drop_older(ARRAY(SELECT id FROM message ORDER BY id LIMIT 10), now())",
];

fn statements(history: &str) -> impl Iterator<Item = String> {
    let fill = |receiver: &str, due: &str, lease: &str, count: u32| {
        format!(
            "INSERT INTO message (queue_id, sender_id, receiver_id, priority, sent_at, due_at, \
             leased_by, lease_id, content) \
             SELECT 1, 1, {receiver}, n % 2, now(), {due}, {lease}, 'some content' \
             FROM generate_series(1, {count}) AS n"
        )
    };
    history.split("; ").filter(|part| !part.is_empty()).map(move |part| match part {
        "FILL ANYONE" => fill("NULL", "NULL", "NULL, NULL", WAITING),
        "FILL ONE" => fill("2", "NULL", "NULL, NULL", WAITING),
        "FILL DELAYED" => fill("NULL", "now() + interval '1 h'", "NULL, NULL", WAITING),
        "FILL LEASED" => fill("NULL", "now() + interval '1 h'", "2, n", WAITING),
        "FEW" => fill("NULL", "NULL", "NULL, NULL", 60),
        "EMPTY" => "DELETE FROM message".to_owned(),
        other => other.to_owned(),
    })
}

/// Pages that a call reads, in a session that has done it before.
async fn pages(session: &Client, operation: &str) -> u64 {
    let mut pages = 0;
    for _ in 0..2 {
        let text = format!("BEGIN; EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM {operation}; ROLLBACK");
        let lines = session.simple_query(&text).await.unwrap();
        let buffers = lines.iter().find_map(|line| match line {
            SimpleQueryMessage::Row(row) => row.get(0)?.trim().strip_prefix("Buffers: shared "),
            _ => None,
        });
        let count = |part: &str| part.split_once('=').and_then(|(_, n)| n.parse::<u64>().ok());
        let read = |part: &&str| part.starts_with("hit") || part.starts_with("read");
        pages = buffers.unwrap_or_default().split(' ').filter(read).filter_map(count).sum();
    }
    pages
}

async fn look(url: &str) -> Vec<String> {
    let reach = Reach::parse(url, None).unwrap();
    let timeout = Duration::from_secs(10);
    let options =
        PoolOptions { connections: 1, timeout, patience: timeout, limits: Limits::default() };
    Databases::open(&reach, options).await.unwrap();
    let (session, connection) = reach.connect().await.unwrap();
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(connection);
    session.batch_execute(PEOPLE).await.unwrap();
    let mut wrong = Vec::new();
    for (what, history) in HISTORIES {
        for statement in statements(history) {
            session.batch_execute(&statement).await.unwrap();
        }
        // A session that has its plans from before, as those of the pool do.
        for operation in OPERATIONS {
            pages(&session, operation).await;
        }
        for kind in ["FILL ANYONE", "FILL ONE", "FILL DELAYED", "FILL LEASED"] {
            for statement in statements(kind) {
                session.batch_execute(&statement).await.unwrap();
            }
        }
        for operation in OPERATIONS {
            let pages = pages(&session, operation).await;
            if pages > PAGES {
                wrong.push(format!("{what}: {operation}: {pages} pages"));
            }
        }
        session.batch_execute("TRUNCATE message").await.unwrap();
    }
    wrong
}

#[test]
fn operations_read_few_pages_whatever_postgresql_believes() {
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let postgres = PrivatePostgres::start(&folder.path().join("queue"))
        .expect("the tests need PostgreSQL's server programs; `make packages-test` installs them");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let wrong = runtime.block_on(look(postgres.url()));
    postgres.stop();
    assert!(wrong.is_empty(), "more than {PAGES} pages:\n{}", wrong.join("\n"));
}
