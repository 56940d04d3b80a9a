//! What PostgreSQL counts itself: the time that statements execute inside it, apart from all waiting, and
//! what it writes and flushes of its log. Read over a connection of its own, when somebody asks.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use kendall_protocols::snapshot::{CountedTime, counted};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::database::Databases;

/// How long PostgreSQL may take to tell, and how long whoever asks waits for it.
const LOOK_MS: u32 = 500;
const PATIENCE: Duration = Duration::from_millis(700);
/// Questions that may wait; a page answers few at once.
const WAITING: usize = 8;
/// Failures in a row after which there are no further queries: each leaves a line in PostgreSQL's log.
const MOST_FAILURES: u32 = 3;

/// Whether the extension exists, by its schema, since the queue's connections search only their own. It may
/// exist without the module: then queries of it fail.
const THERE: &str = "SELECT to_regclass('public.pg_stat_statements') IS NOT NULL";
/// Statements of this role in this database, by their beginning on one line; without queries such as this
/// one, and what made the schema.
const STATEMENTS: &str = "SELECT left(regexp_replace(s.query, '\\s+', ' ', 'g'), 100), \
    sum(s.calls)::int8, sum(s.rows)::int8, (sum(s.total_exec_time) * 1e6)::int8 \
    FROM public.pg_stat_statements AS s \
    JOIN pg_database AS d ON d.oid = s.dbid AND d.datname = current_database() \
    JOIN pg_roles AS r ON r.oid = s.userid AND r.rolname = current_user \
    WHERE s.query NOT LIKE '%pg_stat_%' AND s.query NOT LIKE 'SET LOCAL %' \
    AND s.query NOT LIKE 'START TRANSACTION %' \
    AND s.query !~* '^\\s*(create|alter|drop|do|comment|grant|revoke)\\y' \
    GROUP BY 1 ORDER BY 4 DESC LIMIT 200";
/// The log of this cluster: flushes and writes. Times are 0 without `track_wal_io_timing`.
const LOG: &str = "SELECT wal_sync, (wal_sync_time * 1e6)::int8, wal_write, \
    (wal_write_time * 1e6)::int8, wal_bytes::int8 FROM pg_stat_wal";

type Told = Vec<CountedTime>;

/// Asks the task that queries PostgreSQL; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Inside {
    asked: mpsc::Sender<SyncSender<Told>>,
}

/// Queries PostgreSQL when asked.
#[derive(Debug)]
struct Looker {
    asked: mpsc::Receiver<SyncSender<Told>>,
    statements: Source,
    log: Source,
}

/// Something that may not be there.
#[derive(Debug)]
struct Source {
    what: &'static str,
    /// Failures in a row.
    failures: u32,
}

impl Inside {
    /// Answers from now on, over the pool for monitoring.
    pub(crate) fn start(databases: Databases, background: &mut JoinSet<()>, on: &Handle) -> Self {
        let (inside, looker) = Self::new();
        background.spawn_on(looker.look(databases), on);
        inside
    }

    fn new() -> (Self, Looker) {
        let (ask, asked) = mpsc::channel(WAITING);
        let source = |what| Source { what, failures: 0 };
        let looker =
            Looker { asked, statements: source("pg_stat_statements"), log: source("pg_stat_wal") };
        (Self { asked: ask }, looker)
    }

    /// What PostgreSQL counts; nothing where it does not tell in time. Blocks: not for network threads.
    pub(crate) fn counted(&self) -> Told {
        let (answer, told) = sync_channel(1);
        if self.asked.try_send(answer).is_err() {
            return Told::new();
        }
        told.recv_timeout(PATIENCE).unwrap_or_default()
    }
}

impl Looker {
    /// Answers, for ever.
    async fn look(mut self, databases: Databases) {
        while let Some(answer) = self.asked.recv().await {
            let mut told = self.statements(&databases).await;
            told.extend(self.log(&databases).await);
            // Whoever asked may have gone.
            answer.try_send(told).unwrap_or_default();
        }
    }

    async fn statements(&mut self, databases: &Databases) -> Told {
        let there = self.statements.rows(databases, THERE).await;
        if !there.first().is_some_and(|row| row.get(0)) {
            return Told::new();
        }
        let Some(rows) = self.statements.asked(databases, STATEMENTS).await else {
            return Told::new();
        };
        let one = |row: &tokio_postgres::Row| {
            let (calls, items) = (count(row.get(1)), count(row.get(2)));
            timed(counted::STATEMENT, row.get(0), (calls, items), count(row.get(3)))
        };
        // An answer without statements counts too: before the first load there may be none yet.
        let asked = timed(counted::STATEMENT, "", (0, 0), 0);
        rows.iter().map(one).chain([asked]).collect()
    }

    async fn log(&mut self, databases: &Databases) -> Told {
        let rows = self.log.rows(databases, LOG).await;
        let Some(row) = rows.first() else { return Told::new() };
        let at = |place: usize| count(row.get(place));
        let flushes = timed(counted::LOG, "flush", (at(0), 0), at(1));
        let writes = timed(counted::LOG, "write", (at(2), at(4)), at(3));
        // Without timing there is nothing to say of time.
        [flushes, writes].into_iter().filter(|one| one.time_ns > 0).collect()
    }
}

impl Source {
    async fn rows(&mut self, databases: &Databases, text: &str) -> Vec<tokio_postgres::Row> {
        self.asked(databases, text).await.unwrap_or_default()
    }

    /// `None` where it does not tell.
    async fn asked(
        &mut self,
        databases: &Databases,
        text: &str,
    ) -> Option<Vec<tokio_postgres::Row>> {
        if self.failures >= MOST_FAILURES {
            return None;
        }
        match databases.look(text, &[], LOOK_MS).await {
            Ok(rows) => {
                self.failures = 0;
                Some(rows)
            }
            Err(status) => {
                self.failures += 1;
                tracing::debug!(what = self.what, %status, "PostgreSQL does not tell");
                None
            }
        }
    }
}

fn timed(kind: &str, name: &str, (count, items): (u64, u64), time_ns: u64) -> CountedTime {
    CountedTime { kind: kind.to_owned(), name: name.to_owned(), count, items, time_ns }
}

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// The same as Prometheus' text, with the batches.
pub(crate) fn text(told: &[CountedTime]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (kind, label, families) in FAMILIES {
        let is_one = |one: &&CountedTime| one.kind == *kind && !one.name.is_empty();
        let of_kind: Vec<&CountedTime> = told.iter().filter(is_one).collect();
        for (name, help, value) in *families {
            if of_kind.is_empty() {
                continue;
            }
            // Writing to a string does not fail.
            write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n").unwrap_or_default();
            for one in &of_kind {
                let of = one.name.replace('\\', "\\\\").replace('"', "\\\"");
                writeln!(text, "{name}{{{label}=\"{of}\"}} {}", value(one)).unwrap_or_default();
            }
        }
    }
    text
}

type Value = fn(&CountedTime) -> String;
type Families = &'static [(&'static str, &'static str, Value)];

/// Metrics of each kind, and the label that tells its things apart.
const FAMILIES: &[(&str, &str, Families)] = &[
    (
        counted::STATEMENT,
        "statement",
        &[
            (
                "kendall_queue_statement_calls_total",
                "Calls of a statement, as PostgreSQL counts them.",
                calls,
            ),
            (
                "kendall_queue_statement_execution_seconds_total",
                "Time that a statement executed inside PostgreSQL.",
                seconds,
            ),
        ],
    ),
    (
        counted::LOG,
        "operation",
        &[
            (
                "kendall_queue_log_operations_total",
                "Flushes and writes of PostgreSQL's log.",
                calls,
            ),
            (
                "kendall_queue_log_seconds_total",
                "Time that PostgreSQL spent in flushes and writes of its log.",
                seconds,
            ),
        ],
    ),
    (
        counted::BATCH,
        "lane",
        &[
            ("kendall_queue_batches_total", "Batches that PostgreSQL answered.", calls),
            ("kendall_queue_batched_operations_total", "Operations in those batches.", items),
            (
                "kendall_queue_batch_seconds_total",
                "Time until PostgreSQL had answered them.",
                seconds,
            ),
        ],
    ),
];

fn calls(one: &CountedTime) -> String {
    one.count.to_string()
}

fn items(one: &CountedTime) -> String {
    one.items.to_string()
}

fn seconds(one: &CountedTime) -> String {
    format!("{}.{:09}", one.time_ns / 1_000_000_000, one.time_ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_keeps_its_quotes_and_only_what_is_told_has_a_family() {
        let told = [timed(counted::STATEMENT, "SELECT \"a\"", (2, 3), 1_500_000_000)];
        let page = text(&told);
        assert!(
            page.contains(
                "kendall_queue_statement_calls_total{statement=\"SELECT \\\"a\\\"\"} 2\n"
            ),
            "{page}"
        );
        assert!(page.contains("} 1.500000000\n"), "{page}");
        assert!(!page.contains("lane"), "{page}");
    }

    #[test]
    fn nobody_waits_for_one_who_is_gone() {
        let (inside, looker) = Inside::new();
        drop(looker);
        assert_eq!(inside.counted(), []);
    }
}
