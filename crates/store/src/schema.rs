//! Versions of the schema, and the way from each to the next.
//!
//! The version is SQLite's `user_version`. One migration is one transaction, so a program killed
//! in the middle leaves the older version whole.

mod graph;
mod means;

use rusqlite::Connection;

use crate::StoreError;

/// The way from one version to the next.
struct Migration {
    script: &'static str,
    /// What SQL alone cannot do, afterwards.
    then: fn(&Connection) -> Result<(), StoreError>,
}

const fn script(script: &'static str) -> Migration {
    Migration { script, then: |_| Ok(()) }
}

/// One a version, oldest first: the one at place n leads from version n to n + 1.
const MIGRATIONS: &[Migration] = &[
    script(include_str!("schema/v1.sql")),
    script(include_str!("schema/v2.sql")),
    script(include_str!("schema/v3.sql")),
    Migration { script: include_str!("schema/v4.sql"), then: graph::of_older_runs },
    script(include_str!("schema/v5.sql")),
    script(include_str!("schema/v6.sql")),
    script(include_str!("schema/v7.sql")),
    Migration { script: include_str!("schema/v8.sql"), then: means::of_older_rows },
];

/// The version that this program writes.
#[expect(clippy::cast_possible_truncation, reason = "there are not four billion versions")]
pub const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// Brings an older (or new) database to [`SCHEMA_VERSION`], and refuses a newer one.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::Newer { found, known: SCHEMA_VERSION });
    }
    for (version, migration) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
        let transaction =
            connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        transaction.execute_batch(migration.script)?;
        (migration.then)(&transaction)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}
