//! What goes wrong beside the operations: a database that is slow, full, or encrypted for another;
//! and crowds: many clients on few connections, a million messages.

use std::path::Path;
use std::time::Duration;

use kendall_message_queue::{
    Database, DatabaseError, PrivateOptions, PrivatePostgres, Server, ServerError, TcpAccess,
};
use kendall_protocols::queue::{
    CreateQueueRequest, DeleteQueueRequest, LeaseRequest, QueueStatisticsRequest, ReceiveRequest,
    SendBatchRequest, SendRequest,
};
use kendall_testing::{free_address, openssl};
use kendall_tier::Clock;
use tonic::Code;

use crate::support::{
    Client, Folder, Other, WAITING_FOR_A_LOCK, connect, create, hello, options, postgres, runtime,
    start_with,
};

fn message(client_id: u64, queue_id: u64, content: &str) -> SendRequest {
    SendRequest { client_id, queue_id, content: content.into(), ..Default::default() }
}

async fn waiting_in(client: &mut Client, queue_id: u64) -> u64 {
    let request = QueueStatisticsRequest { queue_id };
    client.queue_statistics(request).await.unwrap().into_inner().waiting
}

/// One connection for many workers and clients: they wait for it, and none goes without.
async fn pool_exhaustion(server: &Server) {
    let mut client = connect(server).await;
    let (me, queue) = (hello(&mut client, "pool").await, create(&mut client, "pool").await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let mut client = client.clone();
        tasks.spawn(async move { client.send(message(me, queue, "x")).await.unwrap() });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(waiting_in(&mut client, queue).await, 200);
}

/// An open transaction holds the queue's row, and with it the only connection: who comes
/// meanwhile is told so in time, and what was answered is there afterwards.
async fn a_stuck_connection(server: &Server, other: &Other) {
    let mut client = connect(server).await;
    let (me, queue) = (hello(&mut client, "stuck").await, create(&mut client, "stuck").await);
    other.run(&format!("BEGIN; SELECT FROM queue WHERE id = {queue} FOR UPDATE")).await;
    let mut held = client.clone();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { held.send(message(me, queue, "held")).await });
    other.until(WAITING_FOR_A_LOCK, 1).await;
    let refused = client.send(message(me, queue, "refused")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let why = "no connection to PostgreSQL: none of the 1 became free within --database-timeout";
    assert!(refused.message().contains(why), "{refused}");
    other.run("COMMIT").await;
    tasks.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(waiting_in(&mut client, queue).await, 1, "answered is committed, refused is not");
}

/// PostgreSQL gives up every transaction but each third: they are tried again, and each message is
/// sent once.
async fn serialization_failures(server: &Server, other: &Other) {
    let mut client = connect(server).await;
    let (me, queue) = (hello(&mut client, "serial").await, create(&mut client, "serial").await);
    other
        .run(
            "CREATE SEQUENCE tries; \
             CREATE FUNCTION give_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 IF nextval('tries') % 3 <> 0 THEN \
                     RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'; \
                 END IF; RETURN NULL; END $$; \
             CREATE TRIGGER give_up AFTER INSERT ON message EXECUTE FUNCTION give_up()",
        )
        .await;
    for number in 0..20 {
        client.send(message(me, queue, &number.to_string())).await.unwrap();
    }
    assert!(other.number("SELECT last_value FROM tries").await >= 60);
    other.run("DROP TRIGGER give_up ON message; DROP FUNCTION give_up; DROP SEQUENCE tries").await;
    assert_eq!(waiting_in(&mut client, queue).await, 20);
}

/// A real deadlock with another session. PostgreSQL ends the session whose wait reaches
/// `deadlock_timeout` first; on a busy machine that may be the other one, and then it is provoked
/// again, until the middleware has been the victim: it tries again.
async fn a_deadlock(server: &Server, other: &Other) {
    let mut client = connect(server).await;
    let me = hello(&mut client, "dead").await;
    let (first, second) = (create(&mut client, "first").await, create(&mut client, "second").await);
    for sent in 1..=10 {
        other.run(&format!("BEGIN; SELECT FROM queue WHERE id = {second} FOR UPDATE")).await;
        let mut sender = client.clone();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let messages = vec![message(me, first, "1"), message(me, second, "2")];
            sender.send_batch(SendBatchRequest { messages }).await
        });
        other.until(WAITING_FOR_A_LOCK, 1).await;
        // Now it holds the first queue and waits for the second.
        let take = format!("SELECT FROM queue WHERE id = {first} FOR UPDATE");
        let taken = other.client.batch_execute(&take).await;
        other.run(if taken.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
        let answer = tasks.join_next().await.unwrap().unwrap().unwrap().into_inner();
        assert!(answer.results.iter().all(|result| result.code == 0), "{answer:?}");
        let counted = (waiting_in(&mut client, first).await, waiting_in(&mut client, second).await);
        assert_eq!(counted, (sent, sent), "each message once");
        match taken {
            Ok(()) => return,
            Err(error) => assert_eq!(error.code().map(|code| code.code()), Some("40P01")),
        }
    }
    panic!("PostgreSQL never chose the middleware");
}

/// A program sends in a transaction of its own: the message is there when that commits, with all that it
/// was given, and wakes waiting clients; of what is rolled back nothing is left.
async fn sends_of_other_programs(server: &Server, url: &str) {
    let mut client = connect(server).await;
    let taker = hello(&mut client, "sql taker").await;
    let queue = create(&mut client, "sql jobs").await;
    let program = Other::connect_plainly(url).await;
    program.run("BEGIN; SELECT kendall_queue.enqueue('sql jobs', 'rolled back'); ROLLBACK").await;
    let receive =
        ReceiveRequest { client_id: taker, queue_id: queue, wait_ms: 50_000, ..Default::default() };
    let mut other = client.clone();
    let mut tasks = tokio::task::JoinSet::new();
    let waiting = receive.clone();
    tasks.spawn(async move { other.receive(waiting).await.unwrap().into_inner().message.unwrap() });
    program
        .run(
            "BEGIN; SELECT kendall_queue.enqueue('sql jobs', 'order 7', sender => 'shop', \
                receiver => 'sql taker', priority => 3, headers => '{\"kind\": \"order\"}'); COMMIT",
        )
        .await;
    let found = tasks.join_next().await.unwrap().unwrap();
    assert_eq!((found.content.as_str(), found.priority, found.receiver_id), ("order 7", 3, taker));
    assert_eq!(found.headers["kind"], "order");
    program.run("SELECT kendall_queue.enqueue('sql jobs', NULL, data => '\\x00ff')").await;
    let found = client.receive(receive).await.unwrap().into_inner().message.unwrap();
    assert_eq!(found.data, [0, 255]);
    for (wrong, said) in [
        ("'nowhere', 'x'", "no queue"),
        ("'sql jobs', repeat('x', 2001)", "longer"),
        ("'sql jobs', 'x', receiver => 'sql'", "itself"),
        ("'sql jobs', 'x', priority => -1", "priority"),
        ("'sql jobs', 'x', data => 'y'", "not both"),
        ("'sql jobs', 'x', headers => '[1]'", "object of texts"),
    ] {
        let text = format!("SELECT kendall_queue.enqueue({wrong})");
        let error = program.client.batch_execute(&text).await.unwrap_err();
        let message = error.as_db_error().unwrap().message().to_owned();
        assert!(message.contains(said), "{wrong}: {message}");
    }
    assert_eq!(waiting_in(&mut client, queue).await, 0);
}

#[test]
fn a_database_that_is_slow_or_gives_up() {
    let (folder, runtime) = (Folder::new(), runtime());
    let postgres = postgres(&folder);
    let mut options = options(Database::Url(postgres.url().to_owned()));
    (options.workers, options.connections) = (16, 1);
    options.database_timeout = Duration::from_millis(500);
    let server = start_with(options);
    runtime.block_on(async {
        let other = Other::connect(postgres.url()).await;
        pool_exhaustion(&server).await;
        a_stuck_connection(&server, &other).await;
        serialization_failures(&server, &other).await;
        a_deadlock(&server, &other).await;
        sends_of_other_programs(&server, postgres.url()).await;
    });
    server.stop();
    postgres.stop();
}

/// A thousand clients over ten connections, each with a message for the next: all are served, and
/// every message reaches whom it is for.
async fn a_thousand_clients(server: &Server) {
    const CLIENTS: usize = 1000;
    let mut channels = Vec::new();
    for _ in 0..10 {
        channels.push(connect(server).await);
    }
    let queue = create(&mut channels[0], "crowd").await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let mut client = channels[number % channels.len()].clone();
        tasks.spawn(async move { (number, hello(&mut client, &format!("crowd {number}")).await) });
    }
    let mut ids = vec![0; CLIENTS];
    while let Some(done) = tasks.join_next().await {
        let (number, id) = done.unwrap();
        ids[number] = id;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let mut client = channels[number % channels.len()].clone();
        let (me, receiver_id) = (ids[number], ids[(number + 1) % CLIENTS]);
        tasks.spawn(async move {
            let sent = SendRequest { receiver_id, ..message(me, queue, &number.to_string()) };
            client.send(sent).await.unwrap();
            let wait_ms = 60_000;
            let receive =
                ReceiveRequest { client_id: me, queue_id: queue, wait_ms, ..Default::default() };
            let found = client.receive(receive).await.unwrap().into_inner().message.unwrap();
            assert_eq!(found.content, ((number + CLIENTS - 1) % CLIENTS).to_string());
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

/// What a statement reads of the messages: rows by an index, and by walking over the table.
async fn rows_read(other: &Other, statement: &str) -> i64 {
    other.run("BEGIN").await;
    let read = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint \
        FROM pg_stat_xact_user_tables WHERE relname = 'message'";
    let before = other.number(read).await;
    other.run(statement).await;
    let after = other.number(read).await;
    other.run("ROLLBACK").await;
    after - before
}

/// Statements of everyday operations, and how many rows each may look at.
fn looks([me, taker, absent]: [u64; 3], [queue, empty]: [u64; 2]) -> Vec<(String, i64)> {
    vec![
        (format!("SELECT take_together(ARRAY[{taker}], {queue}, ARRAY[{taker}], NULL)"), 20),
        (
            format!(
                "SELECT take_many(ARRAY[{taker}], ARRAY[{queue}], ARRAY[{me}], \
                ARRAY[false], ARRAY[0])"
            ),
            20,
        ),
        (
            format!(
                "SELECT take_many(ARRAY[{taker}], ARRAY[{queue}], ARRAY[NULL]::bigint[], \
                ARRAY[true], ARRAY[0])"
            ),
            40,
        ),
        (format!("SELECT peek({queue}, {taker}, NULL, false)"), 40),
        (format!("SELECT take_together(ARRAY[{absent}], {queue}, ARRAY[{absent}], NULL)"), 40),
        (
            format!(
                "SELECT send_many(ARRAY[{me}], ARRAY[{queue}], ARRAY[NULL]::bigint[], \
                ARRAY['x'], ARRAY[0], ARRAY[0], NULL, NULL, NULL, NULL)"
            ),
            5,
        ),
        (format!("SELECT queues_for({taker}, false, 0, 10)"), 50),
        (format!("SELECT queues_for({me}, false, 0, 10)"), 100),
        (format!("SELECT queue_statistics({empty}, 1000000)"), 10),
        (format!("SELECT delete_queue({queue}, false)"), 5),
        ("SELECT promote_due(1000)".to_owned(), 5),
        ("SELECT keep_house(1000)".to_owned(), 50),
    ]
}

/// A million messages wait for a client that does not come, and another million are not due yet:
/// operations of all others look at few rows, whatever the statistics say of the table.
async fn a_million_messages(server: &Server, other: &Other) {
    let mut client = connect(server).await;
    let me = hello(&mut client, "maker").await;
    let taker = hello(&mut client, "taker").await;
    let absent = hello(&mut client, "absent").await;
    let queue = create(&mut client, "million").await;
    let own = create(&mut client, "own").await;
    let empty = create(&mut client, "empty").await;
    other
        .run(&format!(
            "INSERT INTO message (queue_id, sender_id, receiver_id, priority, sent_at, due_at, content) \
             SELECT {queue}, {me}, CASE WHEN n % 2 = 0 THEN {absent} END, n % 2, now(), \
                CASE WHEN n % 2 = 1 THEN now() + interval '1 day' END, n::text \
             FROM generate_series(1, 2000000) AS n; \
             INSERT INTO message (queue_id, sender_id, priority, sent_at, content) \
             SELECT {own}, {me}, 0, now(), n::text FROM generate_series(1, 100000) AS n; \
             UPDATE queue SET retention = interval '1 day'"
        ))
        .await;
    for statistics in ["", "ANALYZE message"] {
        other.run(statistics).await;
        client.send(message(me, queue, "for anyone")).await.unwrap();
        let settings = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
            SET LOCAL enable_sort = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; \
            SET LOCAL plan_cache_mode = force_generic_plan;";
        for (statement, most) in looks([me, taker, absent], [queue, empty]) {
            let read = rows_read(other, &format!("{settings} {statement}")).await;
            assert!(read <= most, "{statement} read {read} rows, at most {most} expected");
        }
        let receive = ReceiveRequest { client_id: taker, queue_id: queue, ..Default::default() };
        let found = client.receive(receive).await.unwrap().into_inner().message.unwrap();
        assert_eq!(found.content, "for anyone");
    }
    assert_eq!(waiting_in(&mut client, queue).await, 1_000_000);
}

/// A queue, and the dead-letter queue of another one, deleted while clients send to them, lease from
/// them and let leases run out: who comes too late is told, and no message is left without a queue.
async fn queues_deleted_in_use(server: &Server, other: &Other) {
    let mut client = connect(server).await;
    let me = hello(&mut client, "deleting").await;
    let taker = hello(&mut client, "deleted from").await;
    for round in 0..10 {
        let letters = create(&mut client, &format!("letters {round}")).await;
        let queue = CreateQueueRequest {
            name: format!("deleted {round}"),
            max_deliveries: 1,
            dead_letter_queue_id: letters,
            ..Default::default()
        };
        let queue = client.create_queue(queue).await.unwrap().into_inner().queue_id;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..8 {
            let mut client = client.clone();
            tasks.spawn(async move {
                let to = if number % 4 == 0 { letters } else { queue };
                let mut sent = 0;
                loop {
                    let lease = LeaseRequest {
                        client_id: taker,
                        queue_id: queue,
                        lease_ms: 1,
                        ..Default::default()
                    };
                    if number % 2 == 1
                        && let Err(status) = client.lease(lease).await
                    {
                        assert_eq!(status.code(), Code::NotFound, "{status}");
                    }
                    match client.send(message(me, to, "too late?")).await {
                        Ok(_) => sent += 1,
                        Err(status) => {
                            assert_eq!(status.code(), Code::NotFound, "{status}");
                            return sent;
                        }
                    }
                }
            });
        }
        other.until(&format!("SELECT count(*) FROM message WHERE queue_id = {queue}"), 20).await;
        for queue_id in [letters, queue] {
            let delete = DeleteQueueRequest { queue_id, with_messages: true };
            client.delete_queue(delete).await.unwrap();
        }
        let mut sent = 0;
        while let Some(its) = tasks.join_next().await {
            sent += its.unwrap();
        }
        assert!(sent >= 20, "they were in use");
    }
    let orphans = "SELECT count(*) FROM message m \
        WHERE NOT EXISTS (SELECT FROM queue q WHERE q.id = m.queue_id)";
    assert_eq!(other.number(orphans).await, 0);
}

#[test]
fn crowds() {
    let (folder, runtime) = (Folder::new(), runtime());
    let postgres = postgres(&folder);
    let server = start_with(options(Database::Url(postgres.url().to_owned())));
    runtime.block_on(async {
        let other = Other::connect(postgres.url()).await;
        a_thousand_clients(&server).await;
        queues_deleted_in_use(&server, &other).await;
        a_million_messages(&server, &other).await;
    });
    server.stop();
    postgres.abandon();
}

/// A root and a certificate for `localhost` that it signed, readable for PostgreSQL's user.
fn certificates(folder: &Path) {
    let openssl = |arguments: &str| openssl(folder, arguments);
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for root in ["root", "stranger"] {
        openssl(&format!(
            "req -x509 {key} -days 2 -subj /CN={root} -keyout {root}.key -out {root}.pem"
        ));
    }
    openssl(&format!("req -new {key} -subj /CN=localhost -keyout server.key -out server.csr"));
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl(
        "x509 -req -in server.csr -CA root.pem -CAkey root.key -CAcreateserial -days 2 \
         -extfile names -out server.pem",
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one server, asked in every way")]
fn tls_to_postgresql() {
    let folder = Folder::new();
    certificates(folder.path());
    let data = folder.path().join("queue");
    // PostgreSQL wants its key to be its own: the first start tells who that is.
    postgres(&folder).stop();
    let owner = std::fs::metadata(data.join("data/PG_VERSION")).unwrap();
    for name in ["server.key", "server.pem"] {
        let to = data.join(name);
        std::fs::copy(folder.path().join(name), &to).unwrap();
        let (uid, gid) = (
            std::os::unix::fs::MetadataExt::uid(&owner),
            std::os::unix::fs::MetadataExt::gid(&owner),
        );
        std::os::unix::fs::chown(&to, Some(uid), Some(gid)).unwrap();
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&to, own).unwrap();
    }
    let address = free_address();
    let encrypted = |ssl: &str| PrivateOptions {
        tcp: Some(TcpAccess { address, password: "secret".into() }),
        settings: vec![
            format!("ssl={ssl}"),
            format!("ssl_cert_file={}", data.join("server.pem").display()),
            format!("ssl_key_file={}", data.join("server.key").display()),
        ],
        same_group: false,
    };
    let start = |host: &str, query: &str, root: Option<&str>| {
        let port = address.port();
        let url = format!(
            "host={host} hostaddr={} port={port} user=kendall password=secret dbname=kendall {query}",
            address.ip()
        );
        let mut options = options(Database::Url(url));
        options.root_certificate = root.map(|name| folder.path().join(name));
        Server::start(&options, Clock::monotonic())
    };
    let postgres = PrivatePostgres::start_with(&data, &encrypted("on")).unwrap();
    let root = |name: &str| format!("sslrootcert={}", folder.path().join(name).display());
    for (host, query, certificate) in [
        ("localhost", "sslmode=require".to_owned(), None),
        ("localhost", "sslmode=verify-full".to_owned(), Some("root.pem")),
        ("localhost", format!("sslmode=verify-full {}", root("root.pem")), None),
        ("elsewhere", "sslmode=verify-ca".to_owned(), Some("root.pem")),
        ("elsewhere", format!("sslmode=require {}", root("root.pem")), None),
    ] {
        let server = start(host, &query, certificate).unwrap();
        runtime().block_on(async {
            let mut client = connect(&server).await;
            let me = hello(&mut client, "encrypted").await;
            assert!(me > 0);
            let other = Other::connect(postgres.url()).await;
            let plain = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                WHERE application_name = 'kendall-queue' AND NOT ssl";
            assert_eq!(other.number(plain).await, 0, "{query}");
        });
        server.stop();
    }
    for (host, query, certificate) in [
        ("elsewhere", "sslmode=verify-full", "root.pem"),
        ("localhost", "sslmode=verify-full", "stranger.pem"),
        ("localhost", "sslmode=verify-ca", "stranger.pem"),
    ] {
        let error = start(host, query, Some(certificate)).unwrap_err();
        assert!(
            matches!(error, ServerError::Database(DatabaseError::Connect(_))),
            "{host} {query} {certificate}: {error:?}"
        );
    }
    postgres.stop();
    let postgres = PrivatePostgres::start_with(&data, &encrypted("off")).unwrap();
    let error = start("localhost", "sslmode=require", None).unwrap_err();
    assert!(matches!(error, ServerError::Database(DatabaseError::Connect(_))), "{error:?}");
    postgres.stop();
}
