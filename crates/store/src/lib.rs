//! Results: SQLite schema and typed rows.
//!
//! One folder a study, one file in it: `results.db`. The study writes one [`RunRecord`] when a run
//! ends, in one transaction, so that a program killed at any instant loses at most the run in
//! progress. A reader starts with [`Results::open`], lists [`Results::runs`], and asks for the
//! [`Measured`] view of each run that [is usable](Run::is_usable):
//!
//! ```no_run
//! # fn main() -> Result<(), kendall_store::StoreError> {
//! let results = kendall_store::Results::open("results/demo".as_ref())?;
//! for run in results.latest_runs()?.iter().filter(|run| run.is_usable()) {
//!     let measured = results.measured(run.id)?;
//!     let workers = run.factor("system.workers").and_then(|level| level.number);
//!     let mean_ns = measured.response_time.mean();
//!     assert!(measured.throughput_per_s >= 0.0 && workers.is_some() && mean_ns.is_some());
//!     for tier in &measured.tiers {
//!         let waiting = tier.period.stage("waiting_time").mean();
//!         let queue = tier.period.queue_length.mean;
//!         assert!(waiting.is_some() && queue >= 0.0);
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! What it leaves out: what the numbers mean. `docs/results.md` explains every table.

mod columns;
mod measured;
mod periods;
mod read;
mod rows;
mod schema;
mod tables;
mod write;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

pub use kendall_protocols::load_result::GeneratorThread;
pub use measured::{HostUse, Measured, MeasuredTier, ProcessUse, ThreadUse};
pub use periods::Period;
pub use rows::{
    Extent, FIRST_VERIFICATION, FactorLevel, FittedShape, Generator, HostSample, Level,
    MeasuredWindow, ONE_CLIENT, OperationCounts, OperationPeriod, Process, ProcessSample, Purpose,
    Run, RunId, RunRecord, SearchFound, SearchLine, SpeedSample, Status, StoredPrediction, Study,
    SummaryRow, TUPLE, ThreadSample, Tier, TierBackend, TierPeriod, TierRequests, keys_of,
};
pub use schema::SCHEMA_VERSION;
pub use tables::{Column, Values};

pub const DATABASE_FILE: &str = "results.db";

/// How long to wait for another program that holds the database, such as a report being made.
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// Files that SQLite may put beside the database.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Steps of SQLite for a look at a study, counted in thousands: enough for 100 000 runs, and less than a second.
const LOOK_STEPS: u32 = 10_000;
/// Bytes of a value in such a look; the largest that it reads describes a machine in a few thousand.
const LOOK_BYTES: i32 = 1 << 20;

/// Why results could not be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "no results in {folder}: there is no {DATABASE_FILE}; make them with `kendall run STUDY.toml --out {folder}`"
    )]
    Missing { folder: String },
    #[error(
        "{path} is a file; results are a folder, the one that `kendall run` wrote (a table of measurements is for \
         `kendall compare`, `kendall fit` or `kendall design analyze`)"
    )]
    NoFolder { path: String },
    #[error("{path} cannot be read")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{folder} holds results already; continue them or choose another folder")]
    Exists { folder: String },
    #[error(
        "the results have schema version {found}, this program reads {known}; read them with the kendall that wrote \
         them, or run the study again into another folder"
    )]
    OtherVersion { found: u32, known: u32 },
    #[error(
        "the results have schema version {found}, and opening them changes them to {known}, which is not allowed here: \
         copy their folder to where you may write"
    )]
    NotMigrated { found: u32, known: u32 },
    #[error(
        "the disk of the results is full; runs that were stored before are safe: free some space, and the same command resumes"
    )]
    DiskFull { source: rusqlite::Error },
    #[error("the results hold something that cannot be read: {what}")]
    Corrupt { what: String },
    #[error("{what} is {value}, more than the {limit} that can be stored")]
    TooLarge { what: &'static str, value: u64, limit: i64 },
    #[error("no run {0} in the results")]
    NoSuchRun(i64),
    #[error("run {0} has no measured window: it failed before there was one")]
    NotMeasured(i64),
    #[error("the results cannot be read or written")]
    Database(#[source] rusqlite::Error),
    #[error("the folder {folder} cannot be made")]
    Folder { folder: String, source: std::io::Error },
}

impl From<rusqlite::Error> for StoreError {
    fn from(source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::DiskFull { source },
            Some(rusqlite::ErrorCode::OperationInterrupted | rusqlite::ErrorCode::TooBig) => {
                Self::Corrupt {
                    what: format!(
                        "{DATABASE_FILE} takes too much work: it has more than about 100 000 runs, or views in the \
                         place of tables"
                    ),
                }
            }
            Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => {
                Self::Corrupt {
                    what: format!(
                        "{DATABASE_FILE} is damaged, or no database ({source}); put a copy of it back, \
                         run the study again with another --out, or save what can still be read with \
                         `sqlite3 {DATABASE_FILE} .recover`"
                    ),
                }
            }
            _ => Self::Database(source),
        }
    }
}

/// The results of one study: a folder with `results.db` in it.
#[derive(Debug)]
pub struct Results {
    connection: Connection,
    folder: PathBuf,
}

impl Results {
    /// Makes a new folder of results for a study.
    pub fn create(folder: &Path, study: &Study) -> Result<Self, StoreError> {
        let shown = || folder.display().to_string();
        std::fs::create_dir_all(folder)
            .map_err(|source| StoreError::Folder { folder: shown(), source })?;
        if Self::exists(folder) {
            return Err(StoreError::Exists { folder: shown() });
        }
        // Made under another name and then moved: a program killed here leaves no database
        // without its study.
        let path = folder.join(DATABASE_FILE);
        let young = folder.join(format!("{DATABASE_FILE}.new"));
        std::fs::remove_file(&young).unwrap_or_default();
        let mut connection = Connection::open(&young)?;
        prepare(&connection)?;
        schema::create(&mut connection)?;
        write::study(&connection, study)?;
        connection.close().map_err(|(_, error)| error)?;
        std::fs::rename(&young, &path)
            .map_err(|source| StoreError::Folder { folder: shown(), source })?;
        Self::open(folder)
    }

    pub fn exists(folder: &Path) -> bool {
        folder.join(DATABASE_FILE).exists()
    }

    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        if folder.is_file() {
            return Err(StoreError::NoFolder { path: folder.display().to_string() });
        }
        let path = folder.join(DATABASE_FILE);
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => return Err(StoreError::Missing { folder: folder.display().to_string() }),
            Err(source) => {
                return Err(StoreError::Unreadable { path: path.display().to_string(), source });
            }
        }
        // SQLite takes an empty file for a new database: reading would make one of it.
        if !std::fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() > 0) {
            let what = format!(
                "{} is empty, or no file: remove it, or name another folder",
                path.display()
            );
            return Err(StoreError::Corrupt { what });
        }
        // At a pipe SQLite would wait for ever.
        for beside in BESIDE.map(|ending| folder.join(format!("{DATABASE_FILE}{ending}"))) {
            if beside.symlink_metadata().is_ok_and(|found| !found.is_file()) {
                let what = format!("{} is no file: remove it", beside.display());
                return Err(StoreError::Corrupt { what });
            }
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        prepare(&connection)?;
        schema::migrate(&mut connection)?;
        Ok(Self { connection, folder: folder.to_owned() })
    }

    /// Opens results of which nothing is known, for a look at the study and its runs: bounded in work and memory,
    /// whatever the file holds.
    pub fn open_for_a_look(folder: &Path) -> Result<Self, StoreError> {
        let mut results = Self::open(folder)?;
        results.connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LOOK_BYTES)?;
        let mut left = LOOK_STEPS;
        let is_enough = move || {
            left = left.saturating_sub(1);
            left == 0
        };
        results.connection.progress_handler(1_000, Some(is_enough))?;
        Ok(results)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stores how far an adaptive design has come, in the place of what was stored before.
    pub fn store_searches(&mut self, lines: &[SearchLine]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        write::searches(&transaction, lines)?;
        Ok(transaction.commit()?)
    }

    /// Stores a run and everything about it in one transaction: all of it or nothing.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], or what SQLite refuses; nothing of this run is stored then, and
    /// nothing that was stored before is lost.
    pub fn store_run(&mut self, record: &RunRecord) -> Result<RunId, StoreError> {
        let transaction = self.connection.transaction()?;
        let id = write::record(&transaction, record)?;
        transaction.commit()?;
        Ok(id)
    }

    /// Stores what a report says of each configuration, in the place of what was stored before, for
    /// the views that join it. `attempts` is how many runs of the design the report knew: where there are
    /// more by now, nothing is stored. A file that holds the same already is left as it is.
    pub fn store_summary(
        &mut self,
        rows: &[SummaryRow],
        attempts: usize,
    ) -> Result<(), StoreError> {
        let mut sorted = rows.to_vec();
        sorted.sort_by(|a, b| (a.configuration, &a.variable).cmp(&(b.configuration, &b.variable)));
        if self.summary()? == sorted {
            return Ok(());
        }
        // Takes the lock before it counts, so that no run comes between.
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let now: i64 = transaction.query_row(
            "SELECT count(*) FROM runs WHERE purpose = ?1",
            [Purpose::Design.as_str()],
            |row| row.get(0),
        )?;
        if i64::try_from(attempts).is_ok_and(|attempts| attempts == now) {
            write::summary(&transaction, &sorted)?;
            transaction.commit()?;
        }
        Ok(())
    }

    pub fn is_read_only(&self) -> Result<bool, StoreError> {
        Ok(self.connection.is_readonly(rusqlite::MAIN_DB)?)
    }

    /// Stores what was asked of the model, and what it answered.
    pub fn store_prediction(&mut self, prediction: &StoredPrediction) -> Result<(), StoreError> {
        write::prediction(&self.connection, prediction)
    }

    /// Limits the size of the file, as a full disk would. For tests.
    #[doc(hidden)]
    pub fn limit_pages_for_test(&self, pages: u32) -> Result<(), StoreError> {
        self.connection.pragma_update(None, "max_page_count", pages)?;
        Ok(())
    }
}

fn prepare(connection: &Connection) -> Result<(), StoreError> {
    connection.busy_timeout(BUSY_WAIT)?;
    // A rollback journal and not a write-ahead log: one file to copy, and durable at each commit.
    connection.pragma_update(None, "journal_mode", "DELETE")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    Ok(())
}
