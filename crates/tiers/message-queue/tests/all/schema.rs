//! The schema: middlewares that start together create it once, tables of another version are refused, functions
//! stay as long as a middleware uses them.

use kendall_message_queue::{Database, DatabaseError, PrivatePostgres, Server, ServerError};
use kendall_tier::Clock;
use tokio_postgres::NoTls;

use crate::support::{Folder, SEARCH_PATH, connect, hello, options, postgres, runtime};

async fn session(postgres: &PrivatePostgres) -> tokio_postgres::Client {
    let url = format!("{} options='-c search_path=kendall_queue'", postgres.url());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "ends with the client")]
    tokio::spawn(connection);
    client
}

fn start(postgres: &PrivatePostgres) -> Result<Server, ServerError> {
    Server::start(&options(Database::Url(postgres.url().to_owned())), Clock::monotonic())
}

#[test]
fn middlewares_that_start_together_create_the_tables_once() {
    let (folder, runtime) = (Folder::new(), runtime());
    let postgres = postgres(&folder);
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..3).map(|_| scope.spawn(|| start(&postgres))).collect();
        starting.into_iter().map(|started| started.join().unwrap().unwrap()).collect()
    });
    runtime.block_on(async {
        for server in &servers {
            assert_eq!(
                hello(&mut connect(server).await, "worker").await,
                1,
                "one table of clients"
            );
        }
    });
    servers.into_iter().for_each(Server::stop);
    postgres.stop();
}

/// A schema whose lock is not held is dropped at the next start; others stay.
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
    // No middleware gives such a name, which could be SQL.
    run("SELECT pg_advisory_unlock_all(); CREATE SCHEMA \"kendall_queue_f_'); DROP\"");
    start(&postgres).unwrap().stop();
    assert_eq!(schemas(), 2, "the one in use and the one of another name");
    run("DROP SCHEMA \"kendall_queue_f_'); DROP\"");
    assert_eq!(schemas(), 1);
    // Dropped although a middleware used it, it is created again by the next connection.
    server.stop();
    run(SEARCH_PATH);
    run("SELECT set_config('kendall.gone', current_schema(), false); \
        DO $$ BEGIN EXECUTE 'DROP SCHEMA ' || current_setting('kendall.gone') || ' CASCADE'; END $$");
    let server = start(&postgres).unwrap();
    runtime.block_on(async { assert_eq!(hello(&mut connect(&server).await, "again").await, 1) });
    server.stop();
    postgres.stop();
}

/// What a start says of tables that it cannot use.
#[test]
fn tables_of_another_version_or_of_another_program_are_refused() {
    let (folder, runtime) = (Folder::new(), runtime());
    let postgres = postgres(&folder);
    start(&postgres).unwrap().stop();
    let session = runtime.block_on(session(&postgres));
    let change = |text: &str| runtime.block_on(session.batch_execute(text)).unwrap();
    let refused = || match start(&postgres).unwrap_err() {
        ServerError::Database(error) => {
            println!("{error}");
            error
        }
        other => panic!("{other:?}"),
    };
    change("UPDATE schema_version SET version = 1000");
    assert!(matches!(refused(), DatabaseError::OtherVersion { found: 1000 }));
    change("DELETE FROM schema_version");
    assert!(matches!(refused(), DatabaseError::OtherVersion { found: 0 }));
    change("DROP TABLE schema_version");
    assert!(matches!(refused(), DatabaseError::Foreign { .. }));
    change("DROP SCHEMA kendall_queue CASCADE; CREATE SCHEMA kendall_queue");
    start(&postgres).unwrap().stop();
    postgres.stop();
}
