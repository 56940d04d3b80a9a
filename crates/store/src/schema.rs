//! The schema of `results.db`, and its version, which is SQLite's `user_version`.

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::StoreError;

/// The version that this program writes and reads.
pub const SCHEMA_VERSION: u32 = 4;

/// What brings a database of a released version to the next one.
const MIGRATIONS: &[(u32, &str)] = &[
    (
        2,
        "ALTER TABLE graph_edges ADD COLUMN bandwidth_back_bytes_per_s REAL;
         UPDATE graph_edges SET bandwidth_back_bytes_per_s = bandwidth_bytes_per_s;",
    ),
    // Sources that know no threads had written that none waited.
    (
        3,
        "ALTER TABLE process_samples RENAME COLUMN run_queue_wait_ns TO counted;
         ALTER TABLE process_samples ADD COLUMN run_queue_wait_ns INTEGER;
         ALTER TABLE process_samples ADD COLUMN cpu_pressure_ns INTEGER;
         UPDATE process_samples SET run_queue_wait_ns = counted WHERE threads > 0;
         ALTER TABLE process_samples DROP COLUMN counted;",
    ),
];

/// Makes the tables of a new database.
pub(crate) fn create(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(include_str!("schema.sql"))?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(transaction.commit()?)
}

/// Brings a database of an earlier release to this version, and refuses others.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let version = |connection: &Connection| {
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))
    };
    let found = version(connection)?;
    if found == SCHEMA_VERSION {
        return Ok(());
    }
    if MIGRATIONS.iter().all(|(from, _)| *from != found) {
        return Err(StoreError::OtherVersion { found, known: SCHEMA_VERSION });
    }
    let changed = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another program may have done it meanwhile.
    let found = version(&changed)?;
    let steps = MIGRATIONS.iter().filter(|(from, _)| *from >= found);
    let steps: Vec<&str> = steps.map(|(_, steps)| *steps).collect();
    changed.execute_batch(&steps.concat()).map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly) => StoreError::NotMigrated { found, known: SCHEMA_VERSION },
        _ => error.into(),
    })?;
    changed.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(changed.commit()?)
}

#[cfg(test)]
mod tests {
    use rusqlite::OpenFlags;

    use super::*;

    #[test]
    fn a_database_that_may_not_be_changed_is_refused_with_the_way_out() {
        let old = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/results-of-version-2.db");
        let mut connection =
            Connection::open_with_flags(old, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let error = migrate(&mut connection).unwrap_err();
        assert!(error.to_string().contains("copy their folder"), "{error}");
    }
}
