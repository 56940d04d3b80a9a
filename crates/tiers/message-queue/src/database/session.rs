//! One connection to PostgreSQL, and what the disk of its log bears.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::Object;
use parking_lot::Mutex;
use tokio::sync::MutexGuard;

use crate::operation::{HEADER_BYTES, Limits};
use crate::private_postgres::LogRoom;

/// Bytes of a page of PostgreSQL.
const PAGE_BYTES: usize = 8192;

/// A disk without space.
#[derive(Debug, Default)]
pub(super) struct Full {
    /// Whether PostgreSQL had none since the last sweep: nothing is sent before the next.
    pub(super) is: AtomicBool,
    /// What takes it, as of that sweep.
    pub(super) taken: Mutex<String>,
    /// Where the log's disk is nearly full: held by who writes, one at a time, so that one's log at most comes after the
    /// look at how long it is.
    writing: tokio::sync::Mutex<()>,
}

/// One connection, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) connection: Object,
    pub(super) limits: Arc<Limits>,
    pub(super) patience: Duration,
    pub(super) full: Arc<Full>,
    pub(super) room: Arc<LogRoom>,
}

impl Session {
    /// The only one who writes, where the log may have so many bytes and has fewer.
    pub(super) async fn turn(
        &self,
        bytes: i64,
    ) -> Result<MutexGuard<'_, ()>, tokio_postgres::Error> {
        let turn = self.full.writing.lock().await;
        self.shorten_log(bytes).await?;
        Ok(turn)
    }

    /// Whether the log's disk is nearly full.
    pub(super) fn is_sparing(&self) -> bool {
        self.room.log_bytes().is_some()
    }

    /// Rows of one step of many: `usual`, and where the log's disk is nearly full as many as it bears, in turn.
    pub(super) async fn step(
        &self,
        usual: i32,
    ) -> Result<(i32, Option<MutexGuard<'_, ()>>), tokio_postgres::Error> {
        let Some(bytes) = self.room.log_bytes() else { return Ok((usual, None)) };
        let rows = i32::try_from(self.rows_at_once(bytes)).unwrap_or(usual).min(usual);
        Ok((rows, Some(self.turn(bytes).await?)))
    }

    /// Messages whose log is a part of so many bytes, however long they are: of the longest content, and of a page of
    /// the table.
    pub(super) fn rows_at_once(&self, bytes: i64) -> usize {
        let longest = 4 * self.limits.content_characters + HEADER_BYTES + PAGE_BYTES;
        (usize::try_from(bytes).unwrap_or_default() / 2 / longest).max(1)
    }

    /// Whether the disk, or that of the log, has no space but what is reserved for what frees some.
    pub(super) fn is_full(&self) -> bool {
        self.full.is.load(Ordering::Relaxed) || self.is_sparing()
    }

    /// Ends the log of so many bytes or more by a checkpoint, after which PostgreSQL deletes or reuses its files: where
    /// the log's disk is nearly full, none may be added. Not on a disk that is full: there a checkpoint ends PostgreSQL.
    pub(crate) async fn shorten_log(&self, bytes: i64) -> Result<(), tokio_postgres::Error> {
        if self.is_log_long(bytes).await? {
            self.connection.batch_execute("CHECKPOINT").await?;
        }
        Ok(())
    }

    /// Whether the log has so many bytes since the beginning of the last checkpoint that has ended.
    pub(super) async fn is_log_long(&self, bytes: i64) -> Result<bool, tokio_postgres::Error> {
        let text = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn) >= $1::bigint \
            FROM pg_control_checkpoint()";
        let statement = self.connection.prepare_cached(text).await?;
        Ok(self.connection.query_one(&statement, &[&bytes]).await?.get(0))
    }
}
