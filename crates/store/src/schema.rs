//! Versions of the schema, and the way from each to the next.
//!
//! The version is SQLite's `user_version`. One migration is one transaction, so a program killed
//! in the middle leaves the older version whole.

use rusqlite::Connection;

use crate::StoreError;

/// One script a version, oldest first: `(n, script)` leads from version n − 1 to n.
const MIGRATIONS: &[(u32, &str)] = &[
    (1, include_str!("schema/v1.sql")),
    (2, include_str!("schema/v2.sql")),
    (3, include_str!("schema/v3.sql")),
];

/// The version that this program writes.
pub const SCHEMA_VERSION: u32 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// Brings an older (or new) database to [`SCHEMA_VERSION`], and refuses a newer one.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::Newer { found, known: SCHEMA_VERSION });
    }
    for (version, script) in MIGRATIONS.iter().filter(|(version, _)| *version > found) {
        let transaction =
            connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        transaction.execute_batch(script)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}
