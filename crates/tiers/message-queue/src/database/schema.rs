//! The schema: tables by migrations, functions in a schema of their own.
//!
//! The functions' schema is named by a hash of their text. Whoever connects makes it where it is
//! missing, and holds a shared lock on its name as long as the connection lives: a schema whose lock
//! nobody holds is one that no running middleware uses, and the next start drops it.

use std::sync::LazyLock;

use md5::{Digest as _, Md5};
use refinery::{Migration, Runner};
use tokio_postgres::Client;

use super::DatabaseError;
use crate::operation::Limits;

/// The tables live here.
pub(super) const SCHEMA: &str = "kendall_queue";
/// The application name of the connection that a start uses, which differs from those that serve.
pub(super) const STARTING: &str = "kendall-queue-start";
const FUNCTIONS: &str = include_str!("functions.sql");
/// What other programs call, and what stands in it for the schema of the functions.
const API: &str = include_str!("api.sql");
const API_SCHEMA: &str = "{functions}";
/// Schemas of functions are named so, and by a hash.
const FUNCTIONS_PREFIX: &str = "kendall_queue_f_";
/// Bytes of the hash in a name.
const HASH_BYTES: usize = 6;
/// Serialises what middlewares change that start together.
const MIGRATION_LOCK: i64 = 0x6B65_6E64_616C_6C71;
/// The first half of the locks on the names of functions' schemas.
const FUNCTIONS_LOCK: i32 = 0x6B65_6E64;
/// The table of the migrations that were applied.
const HISTORY: &str = "schema_history";
/// The last version whose migrations also held functions. Middlewares of earlier versions relied on
/// keys of the tables that are gone.
const WITH_FUNCTIONS: u32 = 7;

/// Migrations as they were published with functions in them: databases that have them are as good as
/// those that were made without.
const PUBLISHED: [(u32, &str, u64); 6] = [
    (2, "operations", 15_885_023_545_007_483_032),
    (3, "housekeeping", 14_149_430_007_776_129_746),
    (4, "exchange", 6_716_453_422_152_829_187),
    (5, "access", 5_743_536_092_347_581_855),
    (6, "keys", 6_708_300_190_714_255_944),
    (7, "reserve", 18_400_277_173_245_497_347),
];

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The schema of this program's functions.
pub(super) fn functions_schema() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let hash = Md5::digest(FUNCTIONS);
        let digits = hash.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}"));
        format!("{FUNCTIONS_PREFIX}{}", digits.collect::<String>())
    });
    &NAME
}

/// Version, schema, migrations, functions, limits.
pub(super) async fn prepare(client: &mut Client, limits: &Limits) -> Result<(), DatabaseError> {
    let version: i32 = client
        .query_one("SELECT current_setting('server_version_num')::int", &[])
        .await
        .map_err(DatabaseError::Prepare)?
        .get(0);
    if version < 150_000 {
        return Err(DatabaseError::Version { found: format!("{}", version / 10_000) });
    }
    client
        .execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK])
        .await
        .map_err(DatabaseError::Prepare)?;
    let exists = client
        .query_opt("SELECT FROM pg_namespace WHERE nspname = $1", &[&SCHEMA])
        .await
        .map_err(DatabaseError::Prepare)?;
    if exists.is_none() {
        client
            .batch_execute(&format!("CREATE SCHEMA {SCHEMA}"))
            .await
            .map_err(DatabaseError::Schema)?;
    }
    migrate(client).await?;
    hold_functions(client).await.map_err(DatabaseError::Schema)?;
    let api = API.replace(API_SCHEMA, functions_schema());
    client.batch_execute(&api).await.map_err(DatabaseError::Prepare)?;
    if let Err(error) = drop_unused_functions(client).await {
        tracing::debug!(%error, "functions of other versions stay");
    }
    set_limits(client, limits).await.map_err(DatabaseError::Prepare)?;
    client
        .execute("SELECT pg_advisory_unlock($1)", &[&MIGRATION_LOCK])
        .await
        .map_err(DatabaseError::Prepare)?;
    Ok(())
}

async fn set_limits(client: &Client, limits: &Limits) -> Result<(), tokio_postgres::Error> {
    let bound = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
    let text = "UPDATE limits SET content_characters = $1, queues = $2 \
        WHERE (content_characters, queues) IS DISTINCT FROM ($1, $2)";
    let changed = [bound(limits.content_characters), bound(limits.queues)];
    client.execute(text, &[&changed[0], &changed[1]]).await.map(drop)
}

/// Keeps the functions from being dropped while this connection lives, and makes them where they are
/// missing.
pub(super) async fn hold_functions(client: &Client) -> Result<(), tokio_postgres::Error> {
    let name = functions_schema();
    let text = "SELECT pg_advisory_lock_shared($1, hashtext($2))";
    client.execute(text, &[&FUNCTIONS_LOCK, &name]).await?;
    if exists(client, name).await? {
        return Ok(());
    }
    // Transactions of connections for monitoring are read-only by default.
    client.batch_execute("BEGIN READ WRITE").await?;
    let made = make_functions(client, name).await;
    client.batch_execute(if made.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    made
}

async fn exists(client: &Client, name: &str) -> Result<bool, tokio_postgres::Error> {
    let text = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";
    Ok(client.query_one(text, &[&name]).await?.get(0))
}

async fn make_functions(client: &Client, name: &str) -> Result<(), tokio_postgres::Error> {
    client.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await?;
    if exists(client, name).await? {
        return Ok(());
    }
    // Their bodies name one another, in no order.
    let text = format!(
        "CREATE SCHEMA {name}; SET LOCAL search_path = {name}, {SCHEMA}; \
         SET LOCAL check_function_bodies = off;\n{FUNCTIONS}"
    );
    client.batch_execute(&text).await
}

/// Drops schemas of functions that no connection holds.
async fn drop_unused_functions(client: &Client) -> Result<(), tokio_postgres::Error> {
    // Other names are not ours, and whoever gave them may have put SQL into them. Nor are other roles' schemas.
    let text = "SELECT nspname FROM pg_namespace \
        WHERE nspname ~ $1 AND nspname <> $2 AND pg_has_role(nspowner, 'USAGE')";
    let ours = format!("^{FUNCTIONS_PREFIX}[0-9a-f]{{{}}}$", 2 * HASH_BYTES);
    for row in client.query(text, &[&ours, &functions_schema()]).await? {
        let name: &str = row.get(0);
        let text = format!(
            "DO $$ BEGIN \
                IF pg_try_advisory_xact_lock({FUNCTIONS_LOCK}, hashtext('{name}')) THEN \
                    EXECUTE 'DROP SCHEMA {name} CASCADE'; \
                END IF; \
             END $$"
        );
        client.batch_execute(&text).await?;
    }
    Ok(())
}

async fn migrate(client: &mut Client) -> Result<(), DatabaseError> {
    // Tables are made in their schema, whatever other schemas there are.
    client
        .batch_execute(&format!("SET search_path = {SCHEMA}"))
        .await
        .map_err(DatabaseError::Prepare)?;
    let begun = check_history(client).await?;
    let known = embedded::migrations::runner().get_migrations().clone();
    let mut applied = Vec::new();
    if begun {
        let mut runner = Runner::new(&[]);
        runner.set_migration_table_name(HISTORY);
        let found = runner.get_applied_migrations_async(client).await;
        applied = found.map_err(|error| DatabaseError::Migrate(Box::new(error)))?;
    }
    check_applied(&applied, &known)?;
    refuse_forerunners(client, &applied).await?;
    // What was published otherwise counts as applied as it is.
    let applied_to = applied.last().map_or(0, Migration::version);
    let new = known.into_iter().filter(|migration| migration.version() > applied_to);
    let all: Vec<Migration> = applied.into_iter().chain(new).collect();
    let ran = Runner::new(&all).set_migration_table_name(HISTORY).run_async(client).await;
    ran.map_err(|error| DatabaseError::Migrate(Box::new(error)))?;
    let path = format!("SET search_path = {}, {SCHEMA}", functions_schema());
    client.batch_execute(&path).await.map_err(DatabaseError::Prepare)
}

/// Refuses a schema that something else than the published migrations has made.
fn check_applied(applied: &[Migration], known: &[Migration]) -> Result<(), DatabaseError> {
    let newest = known.iter().map(Migration::version).max().unwrap_or_default();
    if let Some(newer) = applied.iter().find(|migration| migration.version() > newest) {
        return Err(DatabaseError::Newer { found: newer.version(), known: newest });
    }
    let made_by_us = |migration: &Migration| {
        let published = (migration.version(), migration.name(), migration.checksum());
        PUBLISHED.contains(&published) || known.contains(migration)
    };
    match applied.iter().find(|migration| !made_by_us(migration)) {
        Some(altered) => Err(DatabaseError::Altered { version: altered.version() }),
        None => Ok(()),
    }
}

/// Middlewares from before the last version with functions in its migrations cannot go on beside this
/// one: what they leave to keys of the tables would be refused by nobody.
async fn refuse_forerunners(client: &Client, applied: &[Migration]) -> Result<(), DatabaseError> {
    match applied.last() {
        Some(last) if last.version() < WITH_FUNCTIONS => {}
        _ => return Ok(()),
    }
    let text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND application_name = 'kendall-queue'";
    let row = client.query_one(text, &[]).await.map_err(DatabaseError::Prepare)?;
    match row.get::<_, i64>(0) {
        0 => Ok(()),
        connections => Err(DatabaseError::Forerunners { connections }),
    }
}

/// Whoever runs the migrations takes what the table holds for granted. Says whether it is there.
async fn check_history(client: &Client) -> Result<bool, DatabaseError> {
    let begun = client
        .query_one("SELECT to_regclass('schema_history') IS NOT NULL", &[])
        .await
        .map_err(DatabaseError::Prepare)?;
    if !begun.get::<_, bool>(0) {
        return Ok(false);
    }
    let text = r"SELECT count(*) FROM schema_history
        WHERE (applied_on ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$'
            AND checksum ~ '^\d{1,20}$' AND name IS NOT NULL) IS NOT TRUE";
    let row = client.query_one(text, &[]).await.map_err(DatabaseError::Prepare)?;
    match row.get(0) {
        0 => Ok(true),
        rows => Err(DatabaseError::History { rows }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_a_schema_named_by_their_hash() {
        let name = functions_schema();
        let hash = name.strip_prefix(FUNCTIONS_PREFIX).unwrap();
        assert_eq!(hash.len(), 2 * HASH_BYTES);
        assert!(hash.chars().all(|digit| digit.is_ascii_hexdigit()));
    }
}
