//! The schema of `results.db`, and its version, which is SQLite's `user_version`.

use rusqlite::Connection;

use crate::StoreError;

/// The version that this program writes and reads.
pub const SCHEMA_VERSION: u32 = 2;

/// Makes the tables of a new database.
pub(crate) fn create(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(include_str!("schema.sql"))?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(transaction.commit()?)
}

/// Refuses a database of another version.
pub(crate) fn check(connection: &Connection) -> Result<(), StoreError> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == SCHEMA_VERSION {
        return Ok(());
    }
    Err(StoreError::OtherVersion { found, known: SCHEMA_VERSION })
}
