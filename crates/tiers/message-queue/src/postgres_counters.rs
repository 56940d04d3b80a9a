//! What PostgreSQL counts itself: the time that statements execute inside it, apart from all waiting, and
//! what it writes and flushes of its log.
//!
//! It is queried in the background, over a connection of its own, while there are readers: a reader gets the answer to
//! the last query, with its moment. All middlewares of a database would get the same, so one of them queries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kendall_protocols::snapshot::{CountedTime, counted};
use kendall_tier::{Clock, Exposition};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use crate::database::Reach;

/// PostgreSQL is queried as often as the counters are read: at most every 100 ms, and at least every second.
const OFTEN: Duration = Duration::from_millis(100);
const SELDOM_NS: u64 = 1_000_000_000;
/// How long it is queried after the last reading.
const READ_NS: u64 = 60_000_000_000;
/// How long the first reader waits for the first answer. Later readers do not wait.
const FIRST: Duration = Duration::from_millis(700);
/// PostgreSQL cancels slow queries by itself; this limit is for a server that does not answer at all.
const HUNG: Duration = Duration::from_secs(5);
/// The largest number of statements whose text is kept.
const KNOWN: usize = 4096;

/// The advisory lock of the middleware that queries.
const LOCK: i64 = 0x6B65_6E64_616C_6C69;
/// Whether the extension exists, by its schema, since the queue's connections search only their own; PostgreSQL's
/// version; whether this middleware has the lock.
const ABOUT: &str = "SELECT to_regclass('public.pg_stat_statements') IS NOT NULL, \
    current_setting('server_version_num')::int4, pg_try_advisory_lock($1)";
/// Statements of this role in this database, of which a middleware has less than a hundred. Without their texts:
/// PostgreSQL keeps those in a file, which it would read whole each time.
const STATEMENTS: &str = "SELECT s.queryid, sum(s.calls)::int8, sum(s.rows)::int8, \
    (sum(s.total_exec_time) * 1e6)::int8 \
    FROM public.pg_stat_statements(false) AS s \
    JOIN pg_database AS d ON d.oid = s.dbid AND d.datname = current_database() \
    JOIN pg_roles AS r ON r.oid = s.userid AND r.rolname = current_user \
    WHERE s.queryid IS NOT NULL GROUP BY 1 ORDER BY 4 DESC LIMIT 1000";
/// Their beginnings on one line.
const TEXTS: &str = "SELECT s.queryid, left(regexp_replace(s.query, '\\s+', ' ', 'g'), 100) \
    FROM public.pg_stat_statements AS s WHERE s.queryid = ANY($1)";
/// The log of this cluster: flushes and writes. Times are 0 without `track_wal_io_timing`.
const LOG: &str = "SELECT wal_sync, (wal_sync_time * 1e6)::int8, wal_write, \
    (wal_write_time * 1e6)::int8, wal_bytes::int8 FROM pg_stat_wal";
/// The same of PostgreSQL 18 and later.
const LOG_18: &str = "SELECT coalesce(sum(fsyncs), 0)::int8, (coalesce(sum(fsync_time), 0) * 1e6)::int8, \
    coalesce(sum(writes), 0)::int8, (coalesce(sum(write_time), 0) * 1e6)::int8, \
    (SELECT wal_bytes::int8 FROM pg_stat_wal) FROM pg_stat_io WHERE object = 'wal'";

/// The first words of statements that no request waits for, as PostgreSQL stores them: without their constants. A
/// test checks that an idle queue has no others.
const ASIDE: &[&str] = &[
    // Housekeeping.
    "SELECT promote_due(",
    "SELECT keep_house(",
    "SELECT heard_from(",
    "SELECT forget_clients(",
    "SELECT n_dead_tup",
    "SELECT fill_reserve(",
    "VACUUM ",
    "CHECKPOINT",
    "TRUNCATE ",
    "LISTEN ",
    // Monitoring: of this file, of the metrics page, of the console.
    "SELECT to_regclass(",
    "SELECT s.queryid",
    "SELECT wal_sync",
    "SELECT coalesce(sum(fsyncs)",
    "SELECT q.id, q.name, s.waiting",
    "SELECT m.id, $",
    "SELECT id FROM (SELECT id, $",
    "WITH counted AS (",
    "WITH looked AS MATERIALIZED",
    // The start of a middleware, and of each connection.
    "SELECT current_setting(",
    "SELECT pg_advisory_",
    "SELECT pg_try_advisory_",
    "SELECT FROM pg_namespace",
    "SELECT EXISTS (SELECT FROM pg_namespace",
    "SELECT quote_ident(nspname)",
    "SELECT count(*), to_regclass(",
    "SELECT version FROM kendall_queue.schema_version",
    "INSERT INTO schema_version",
    "INSERT INTO limits",
    "INSERT INTO taking",
    "UPDATE limits",
    "BEGIN READ WRITE",
    "SET ",
    "CREATE ",
    "ALTER ",
    "DROP ",
    "DO ",
    "COMMENT ",
    "GRANT ",
    "REVOKE ",
];

type Told = Vec<CountedTime>;

/// What PostgreSQL answered last; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Inside {
    clock: Clock,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    looked: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Moment of the last reading, and the time between the last two.
    read_ns: Option<u64>,
    between_ns: u64,
    /// When PostgreSQL was queried last, and its last answer.
    looked_ns: u64,
    held: Option<Told>,
    /// The number of answers, and why there is none, or not all of it.
    looks: u64,
    untold: Option<String>,
}

/// What the task does next.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Look,
    NotYet,
    /// The counters are no longer read.
    Nothing,
}

impl Inside {
    /// Starts the task that queries PostgreSQL while there are readers.
    pub(crate) fn start(
        reach: Reach,
        clock: Clock,
        background: &mut JoinSet<()>,
        on: &Handle,
    ) -> Self {
        let inside = Self { clock, shared: Arc::default() };
        background.spawn_on(inside.clone().look(reach), on);
        inside
    }

    /// PostgreSQL's last answer; empty where there is none, or where another middleware queries. The first reader
    /// waits for the first answer, so network threads must not call this.
    pub(crate) fn counted(&self) -> Told {
        let mut state = self.shared.state.lock();
        state.read(self.clock.now_ns());
        self.shared.looked.wait_while_for(&mut state, |state| state.held.is_none(), FIRST);
        state.held.clone().unwrap_or_default()
    }

    /// Why PostgreSQL did not answer, or not to all queries.
    pub(crate) fn untold(&self) -> Option<String> {
        self.shared.state.lock().untold.clone()
    }

    /// Queries PostgreSQL, for ever.
    async fn look(self, reach: Reach) {
        let mut looking = None;
        let mut ticks = tokio::time::interval(OFTEN);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now_ns = self.clock.now_ns();
            let wanted = self.shared.state.lock().wanted(now_ns);
            match wanted {
                Wanted::Look => {}
                Wanted::NotYet => continue,
                Wanted::Nothing => {
                    // Closing the connection releases the lock: another middleware may be read.
                    looking = None;
                    continue;
                }
            }
            let told = match tokio::time::timeout(HUNG, told(&mut looking, &reach)).await {
                Ok(told) => told.map_err(|error| in_words(&error)),
                Err(_) => Err("it does not answer".to_owned()),
            };
            let at_ns = now_ns.midpoint(self.clock.now_ns());
            self.shared.state.lock().looked(at_ns, told);
            self.shared.looked.notify_all();
        }
    }
}

impl State {
    fn read(&mut self, now_ns: u64) {
        let before = self.read_ns.replace(now_ns);
        self.between_ns = before.map_or(u64::MAX, |before| now_ns.saturating_sub(before));
    }

    fn wanted(&mut self, now_ns: u64) -> Wanted {
        let is_read = self.read_ns.is_some_and(|read| now_ns.saturating_sub(read) <= READ_NS);
        if !is_read {
            // Old counts would look like new ones.
            self.held = None;
            return Wanted::Nothing;
        }
        let since_ns = now_ns.saturating_sub(self.looked_ns);
        let due = self.held.is_none() || since_ns >= self.between_ns.min(SELDOM_NS);
        if due { Wanted::Look } else { Wanted::NotYet }
    }

    /// After a query that failed the answer before it stays, with its moment.
    fn looked(&mut self, at_ns: u64, told: Result<Seen, String>) {
        self.looked_ns = at_ns;
        match told {
            Ok(Seen::Elsewhere) => self.held = Some(Told::new()),
            Ok(Seen::Here { mut told, untold }) => {
                self.looks += 1;
                told.push(timed(counted::LOOK, "", (self.looks, 0), at_ns));
                self.held = Some(told);
                self.untold = untold;
            }
            Err(why) => {
                tracing::debug!(%why, "PostgreSQL did not answer a query of its counters");
                self.held.get_or_insert_default();
                if self.looks == 0 {
                    self.untold = Some(why);
                }
            }
        }
    }
}

/// The outcome of one query.
#[derive(Debug)]
enum Seen {
    /// Another middleware has the lock.
    Elsewhere,
    Here {
        told: Told,
        /// Why a part is missing that should be there.
        untold: Option<String>,
    },
}

/// The connection, and what is known of the server behind it.
#[derive(Debug)]
struct Looking {
    client: Client,
    /// Drives the connection; dropped, it ends.
    _driver: JoinSet<()>,
    /// This middleware has the lock.
    ours: bool,
    /// The extension exists.
    counts: bool,
    version: i32,
    /// Why this server has no counters of statements, and of its log.
    no_statements: Option<String>,
    no_log: Option<String>,
    /// Kinds and texts of statements, by their ids.
    texts: HashMap<i64, (&'static str, String)>,
}

/// Queries once, over a new connection where there is none: the server behind it may be another one.
async fn told(looking: &mut Option<Looking>, reach: &Reach) -> Result<Seen, Error> {
    let mut open = match looking.take() {
        Some(open) => open,
        None => Looking::open(reach).await?,
    };
    let seen = open.look().await;
    if !open.client.is_closed() {
        *looking = Some(open);
    }
    seen
}

impl Looking {
    async fn open(reach: &Reach) -> Result<Self, Error> {
        let (client, connection) = reach.connect().await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection for monitoring ended");
            }
        });
        Ok(Self {
            client,
            _driver: driver,
            ours: false,
            counts: false,
            version: 0,
            no_statements: None,
            no_log: None,
            texts: HashMap::new(),
        })
    }

    async fn look(&mut self) -> Result<Seen, Error> {
        if !self.ours || !self.counts {
            // The other middleware may have stopped, and the extension may have been created.
            let row = self.client.query_one(ABOUT, &[&LOCK]).await?;
            self.counts = row.get(0);
            self.version = row.get(1);
            self.ours |= row.get::<_, bool>(2);
        }
        if !self.ours {
            return Ok(Seen::Elsewhere);
        }
        let mut told = Told::new();
        if self.counts && self.no_statements.is_none() {
            let statements = self.statements().await;
            told.extend(unless_missing(statements, &mut self.no_statements)?);
        }
        if self.no_log.is_none() {
            let log = self.log().await;
            told.extend(unless_missing(log, &mut self.no_log)?);
        }
        let untold = self.no_statements.clone().or_else(|| self.no_log.clone());
        Ok(Seen::Here { told, untold })
    }

    async fn statements(&mut self) -> Result<Told, Error> {
        let rows = self.client.query(STATEMENTS, &[]).await?;
        let ids = || rows.iter().map(|row| row.get::<_, i64>(0));
        let mut new: Vec<i64> = ids().filter(|id| !self.texts.contains_key(id)).collect();
        if self.texts.len() + new.len() > KNOWN {
            self.texts.clear();
            new = ids().collect();
        }
        if !new.is_empty() {
            for row in self.client.query(TEXTS, &[&new]).await? {
                let text: Option<String> = row.get(1);
                let text = text.unwrap_or_default().trim().to_owned();
                self.texts.insert(row.get(0), (kind_of(&text), text));
            }
        }
        let mut sums: BTreeMap<&(&'static str, String), [u64; 3]> = BTreeMap::new();
        for row in &rows {
            // PostgreSQL has dropped a statement without a text meanwhile.
            let Some(key) = self.texts.get(&row.get::<_, i64>(0)) else { continue };
            let sum = sums.entry(key).or_default();
            for (place, sum) in (1_usize..).zip(sum) {
                *sum += count(row.get(place));
            }
        }
        let one = |((kind, text), [calls, rows, ns]): (&(&'static str, String), [u64; 3])| {
            timed(kind, text, (calls, rows), ns)
        };
        // An answer without statements counts too: before the first load there may be none yet.
        let asked = [counted::STATEMENT, counted::ASIDE].map(|kind| timed(kind, "", (0, 0), 0));
        Ok(sums.into_iter().map(one).chain(asked).collect())
    }

    async fn log(&self) -> Result<Told, Error> {
        let text = if self.version >= 180_000 { LOG_18 } else { LOG };
        let row = self.client.query_one(text, &[]).await?;
        let at = |place: usize| count(row.get(place));
        let flushes = timed(counted::LOG, "flush", (at(0), 0), at(1));
        let writes = timed(counted::LOG, "write", (at(2), at(4)), at(3));
        // Without timing both are 0, which is not a time.
        Ok([flushes, writes].into_iter().filter(|one| one.time_ns > 0).collect())
    }
}

/// Counters that do not exist are not queried again, since each time leaves a line in the server's log; after any other
/// failure they are.
fn unless_missing(told: Result<Told, Error>, missing: &mut Option<String>) -> Result<Told, Error> {
    match told {
        Err(error) if error.code().is_some_and(is_missing) => {
            let why = in_words(&error);
            tracing::info!(%why, "PostgreSQL does not have these counters");
            *missing = Some(why);
            Ok(Told::new())
        }
        other => other,
    }
}

fn is_missing(code: &SqlState) -> bool {
    [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::INSUFFICIENT_PRIVILEGE,
        // The extension exists, and its module is not loaded.
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
    ]
    .contains(code)
}

fn in_words(error: &Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

/// The kind of a statement: whether a request waits for it.
fn kind_of(text: &str) -> &'static str {
    let begins = |start: &&str| {
        text.get(..start.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(start))
    };
    // `SELECT 1` checks whether PostgreSQL answers.
    if text == "SELECT $1" || ASIDE.iter().any(begins) {
        counted::ASIDE
    } else {
        counted::STATEMENT
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
    let mut page = Exposition::default();
    for (kind, label, families) in FAMILIES {
        let is_one = |one: &&CountedTime| one.kind == *kind && !one.name.is_empty();
        let of_kind: Vec<&CountedTime> = told.iter().filter(is_one).collect();
        for (name, help, value) in *families {
            if of_kind.is_empty() {
                continue;
            }
            let mut metric = page.metric(name, "counter", help);
            for one in &of_kind {
                metric.sample(&[(label, &one.name)], value(one));
            }
        }
    }
    page.into_text()
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
        counted::ASIDE,
        "statement",
        &[
            (
                "kendall_queue_aside_calls_total",
                "Calls of a statement that no request waits for, such as housekeeping.",
                calls,
            ),
            (
                "kendall_queue_aside_execution_seconds_total",
                "Time that such a statement executed inside PostgreSQL.",
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
    fn statements_that_no_request_waits_for_are_told_apart() {
        for text in [
            "SELECT promote_due($1)",
            "SELECT keep_house($1)",
            "SELECT heard_from($1)",
            "SELECT forget_clients($1)",
            "VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF, PARALLEL 0) kendall_queue.message",
            "SELECT $1",
            "set search_path = kendall_queue_f_0, kendall_queue",
            "SELECT s.queryid, sum(s.calls)::int8",
        ] {
            assert_eq!(kind_of(text), counted::ASIDE, "{text}");
        }
        for text in ["BEGIN", "COMMIT", "SELECT $2, hello($1)", "SELECT codes, ids FROM send_many("]
        {
            assert_eq!(kind_of(text), counted::STATEMENT, "{text}");
        }
    }

    const SECOND: u64 = 1_000_000_000;

    fn seen() -> Result<Seen, String> {
        let told = vec![timed(counted::STATEMENT, "SELECT 2", (1, 1), 1)];
        Ok(Seen::Here { told, untold: None })
    }

    #[test]
    fn it_is_looked_as_often_as_somebody_reads_and_each_second_at_least() {
        let mut state = State::default();
        assert_eq!(state.wanted(SECOND), Wanted::Nothing);
        state.read(SECOND);
        assert_eq!(state.wanted(SECOND), Wanted::Look);
        state.looked(SECOND, seen());
        assert_eq!(state.wanted(SECOND + SECOND / 2), Wanted::NotYet);
        assert_eq!(state.wanted(2 * SECOND), Wanted::Look);
        // A reader of ten times a second gets new counts each time.
        state.read(SECOND + SECOND / 10);
        assert_eq!(state.wanted(SECOND + SECOND / 10), Wanted::Look);
        assert_eq!(state.wanted(62 * SECOND), Wanted::Nothing);
        assert!(state.held.is_none(), "old counts are not shown to who comes later");
    }

    #[test]
    fn a_look_that_fails_leaves_what_was_seen_with_its_moment_and_is_tried_again() {
        let mut state = State::default();
        state.read(SECOND);
        for second in 2..6 {
            state.looked(second * SECOND, Err("canceling statement".to_owned()));
        }
        assert_eq!(state.held, Some(Vec::new()));
        assert_eq!(state.untold.as_deref(), Some("canceling statement"));
        assert_eq!(state.wanted(6 * SECOND), Wanted::Look);
        state.looked(6 * SECOND, seen());
        state.looked(7 * SECOND, Err("canceling statement".to_owned()));
        let held = state.held.clone().unwrap();
        assert!(held.contains(&timed(counted::LOOK, "", (1, 0), 6 * SECOND)), "{held:?}");
        assert_eq!(state.untold, None);
    }

    #[test]
    fn only_what_is_not_there_is_given_up() {
        assert!(is_missing(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE));
        assert!(!is_missing(&SqlState::QUERY_CANCELED));
        assert!(!is_missing(&SqlState::ADMIN_SHUTDOWN));
    }
}
