//! The schema of the queue's database: tables of one version, functions in a schema of their own.
//!
//! The functions' schema is named by a hash of their text. Every connection creates it where it is missing, and
//! holds a shared lock on its name as long as it lives: a schema whose lock is free is used by no running
//! middleware, and the next start drops it.

use std::sync::LazyLock;

use kendall_units::hex;
use md5::{Digest as _, Md5};
use tokio_postgres::Client;

use super::error::{DatabaseError, SCHEMA, VERSION};
use crate::operation::Limits;

/// The application name of the connection that a start uses, which differs from those that serve.
pub(super) const STARTING: &str = "kendall-queue-start";
const TABLES: &str = include_str!("tables.sql");
const FUNCTIONS: &str = include_str!("functions.sql");
/// Functions for other programs, and the placeholder in their text for the schema of the functions.
const API: &str = include_str!("api.sql");
const API_SCHEMA: &str = "{functions}";
/// The name of a functions' schema is this and a hash.
const FUNCTIONS_PREFIX: &str = "kendall_queue_f_";
/// Bytes of the hash in a name.
const HASH_BYTES: usize = 6;
/// Advisory lock: one middleware at a time changes the schema.
const SCHEMA_LOCK: i64 = 0x6B65_6E64_616C_6C71;
/// The first half of the advisory locks on the names of functions' schemas.
const FUNCTIONS_LOCK: i32 = 0x6B65_6E64;

/// The schema of this program's functions.
pub(super) fn functions_schema() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        format!("{FUNCTIONS_PREFIX}{}", hex(&Md5::digest(FUNCTIONS)[..HASH_BYTES]))
    });
    &NAME
}

/// Checks PostgreSQL's version, and creates what is missing: schema, tables, functions.
pub(super) async fn prepare(client: &Client, limits: &Limits) -> Result<(), DatabaseError> {
    let version: i32 = client
        .query_one("SELECT current_setting('server_version_num')::int", &[])
        .await
        .map_err(DatabaseError::Prepare)?
        .get(0);
    if version < 150_000 {
        return Err(DatabaseError::Version { found: format!("{}", version / 10_000) });
    }
    client
        .execute("SELECT pg_advisory_lock($1)", &[&SCHEMA_LOCK])
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
    create_tables(client).await?;
    hold_functions(client).await.map_err(DatabaseError::Schema)?;
    let api = API.replace(API_SCHEMA, functions_schema());
    client.batch_execute(&api).await.map_err(DatabaseError::Prepare)?;
    if let Err(error) = drop_unused_functions(client).await {
        tracing::debug!(%error, "functions of other versions stay");
    }
    set_limits(client, limits).await.map_err(DatabaseError::Prepare)?;
    client
        .execute("SELECT pg_advisory_unlock($1)", &[&SCHEMA_LOCK])
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

/// Begins a connection: locks the functions for as long as it lives, and creates them where they are missing.
pub(super) async fn hold_functions(client: &Client) -> Result<(), tokio_postgres::Error> {
    let name = functions_schema();
    // The taker's id marks the transactions of this connection (`mark_taking`).
    let text = "SELECT pg_advisory_lock_shared($1, hashtext($2)), \
        set_config('kendall_queue.taker', gen_random_uuid()::text, false)";
    client.execute(text, &[&FUNCTIONS_LOCK, &name]).await?;
    if !exists(client, name).await? {
        // Transactions of connections for monitoring are read-only by default.
        client.batch_execute("BEGIN READ WRITE").await?;
        let made = make_functions(client, name).await;
        client.batch_execute(if made.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
        made?;
    }
    // Before a disk is full: then a row can be updated in its page, and not be added. Connections for monitoring
    // may not, and take nothing.
    let text = "INSERT INTO taking (taker, number) \
        VALUES (current_setting('kendall_queue.taker')::uuid, 0)";
    if let Err(error) = client.execute(text, &[]).await {
        tracing::debug!(%error, "a connection has no row for its markers yet");
    }
    Ok(())
}

async fn exists(client: &Client, name: &str) -> Result<bool, tokio_postgres::Error> {
    let text = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";
    Ok(client.query_one(text, &[&name]).await?.get(0))
}

async fn make_functions(client: &Client, name: &str) -> Result<(), tokio_postgres::Error> {
    client.execute("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK]).await?;
    if exists(client, name).await? {
        return Ok(());
    }
    // Their bodies call one another, in no order.
    let text = format!(
        "CREATE SCHEMA {name}; SET LOCAL search_path = {name}, {SCHEMA}; \
         SET LOCAL check_function_bodies = off;\n{FUNCTIONS}"
    );
    client.batch_execute(&text).await
}

/// Drops schemas of functions that no connection holds.
async fn drop_unused_functions(client: &Client) -> Result<(), tokio_postgres::Error> {
    // Only names that a middleware gives (another could contain SQL), and only this role's schemas.
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

/// Creates the tables in an empty schema, and refuses those that another version made.
async fn create_tables(client: &Client) -> Result<(), DatabaseError> {
    let text = "SELECT count(*), to_regclass($1 || '.schema_version') IS NOT NULL \
        FROM pg_class WHERE relnamespace = $1::text::regnamespace AND relkind = 'r'";
    let row = client.query_one(text, &[&SCHEMA]).await.map_err(DatabaseError::Prepare)?;
    let (tables, versioned): (i64, bool) = (row.get(0), row.get(1));
    if tables == 0 {
        let text = format!(
            "BEGIN; SET LOCAL search_path = {SCHEMA}; {TABLES} \
             INSERT INTO schema_version (version) VALUES ({VERSION}); COMMIT"
        );
        return client.batch_execute(&text).await.map_err(DatabaseError::Schema);
    }
    if !versioned {
        return Err(DatabaseError::Foreign { tables });
    }
    let text = format!("SELECT version FROM {SCHEMA}.schema_version");
    let row = client.query_opt(&text, &[]).await.map_err(DatabaseError::Prepare)?;
    match row.map(|row| row.get(0)) {
        Some(VERSION) => Ok(()),
        found => Err(DatabaseError::OtherVersion { found: found.unwrap_or_default() }),
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
