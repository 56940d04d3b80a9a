//! Counts and means of histograms that were stored before version 8.

use kendall_stats::histogram::Histogram;
use rusqlite::{Connection, params};

use crate::StoreError;
use crate::write::int;

/// The key of a row of `operations`: run, extent, generator, start, operation.
type Key = (i64, String, i64, i64, String);

/// Fills in what version 8 stores beside each histogram of clients' times.
pub(super) fn of_older_rows(connection: &Connection) -> Result<(), StoreError> {
    let mut rows = connection.prepare(
        "SELECT run, extent, generator, from_ns, operation, response_time FROM operations",
    )?;
    let mut update = connection.prepare(
        "UPDATE operations SET answered = ?1, mean_ns = ?2
         WHERE run = ?3 AND extent = ?4 AND generator = ?5 AND from_ns = ?6 AND operation = ?7",
    )?;
    // Read first, then written: SQLite does not say what a query gives whose table changes meanwhile.
    let read = rows.query_map([], |row| {
        let key: Key = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
        Ok((key, row.get::<_, Vec<u8>>(5)?))
    })?;
    let mut means = Vec::new();
    for row in read {
        let (key, bytes) = row?;
        let times = Histogram::from_bytes(&bytes)
            .map_err(|error| StoreError::Corrupt { what: error.to_string() })?;
        means.push((key, int("answered", times.count())?, times.mean()));
    }
    for ((run, extent, generator, from_ns, operation), answered, mean_ns) in means {
        update.execute(params![answered, mean_ns, run, extent, generator, from_ns, operation])?;
    }
    Ok(())
}
