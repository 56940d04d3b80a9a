//! The connection pool, the schema, and operations as statements.

mod batch;
mod error;
#[cfg(test)]
mod pages_read;
mod schema;
mod session;
mod tls;

use std::error::Error as _;
use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod,
    Runtime, TimeoutType,
};
use kendall_units::innermost;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use tonic::Status;

use self::batch::Failure;
pub(crate) use self::batch::Undecided;
pub use self::error::DatabaseError;
use self::error::{SCHEMA, status};
use self::session::Full;
pub(crate) use self::session::Session;
use self::tls::Wanted;
use crate::operation::{Answer, Limits, Operation};
use crate::private_postgres::LogRoom;
use crate::refusal::full;

/// Set on every connection, beside the search path. A queue is small one second and a million the next, and its
/// statistics lag behind: access goes by the indexes, whatever they say, and where an index has the
/// order that is asked for, by that one, since to sort what another one gives is to read it all.
const SETTINGS: &str = "-c enable_seqscan=off \
    -c enable_bitmapscan=off -c enable_sort=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off \
    -c plan_cache_mode=force_generic_plan -c client_min_messages=warning";
/// Set on connections for monitoring as well: they read only, and PostgreSQL cancels slow statements.
const LOOKING: &str = "-c default_transaction_read_only=on -c statement_timeout=2000";
/// The time limit of one such statement.
pub(crate) const LOOK_MS: u32 = 2000;
/// Rows of one step of the housekeeping, and steps that follow one another at once.
const HOUSEKEEPING_STEP: i32 = 1000;
const HOUSEKEEPING_STEPS: usize = 50;
/// Where the log's disk is nearly full: vacuums that are canceled, at most, before other housekeeping has its turn.
const SWEEPS: usize = 20;
/// How often the length of the log is checked during a vacuum.
const LOG_LOOK: Duration = Duration::from_millis(20);
/// How long a vacuum may run where no connection is free for that check.
const UNWATCHED: Duration = Duration::from_millis(200);
/// Clients that are forgotten at a time.
const FORGETTING_STEP: i32 = 100;
/// How often PostgreSQL is asked at the start whether it lets anyone in, how many times at most (two
/// minutes), and how many of them pass before it is logged again.
const RECOVERY_LOOK: Duration = Duration::from_millis(250);
const RECOVERY_LOOKS: usize = 480;
const RECOVERY_WORDS: usize = 40;
/// Between its end and its next start nothing listens: for so many looks (10 s) a refused connection may be that.
const RESTART_LOOKS: usize = 40;
/// How often a transaction that PostgreSQL gave up (deadlock, serialization) is tried again.
const RETRIES: u32 = 3;

/// The pool. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Databases {
    pool: Pool,
    limits: Arc<Limits>,
    /// How long PostgreSQL may take for a statement.
    patience: Duration,
    full: Arc<Full>,
    room: Arc<LogRoom>,
}

/// What became of operations.
#[derive(Debug, Default)]
pub(crate) struct Performed {
    pub(crate) answers: Answers,
    /// Messages that may have been removed: the commit was not confirmed.
    pub(crate) undecided: Vec<Undecided>,
}

type Answers = Vec<Result<Answer, Status>>;

impl Performed {
    /// Whether PostgreSQL left some of it unanswered.
    pub(crate) fn is_lost(&self) -> bool {
        let lost = |status: &Status| status.code() == tonic::Code::Unavailable;
        self.answers.iter().any(|answer| answer.as_ref().is_err_and(lost))
    }

    fn refuse(&mut self, operations: usize, status: &Status) {
        self.answers.extend((0..operations).map(|_| Err(status.clone())));
    }
}

/// How to reach PostgreSQL.
#[derive(Clone)]
pub(crate) struct Reach {
    config: Config,
    tls: MakeRustlsConnect,
}

/// A connection, and what drives it.
type Connected = (Client, tokio_postgres::Connection<Socket, TlsStream>);
type TlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

impl Reach {
    /// Reads a URL (or `key=value` text). `root` is the certificate that PostgreSQL's must come
    /// from.
    pub(crate) fn parse(url: &str, root: Option<&Path>) -> Result<Self, DatabaseError> {
        let (rest, wanted) = Wanted::take_from(url)?;
        let mut config = Config::from_str(&rest)
            .map_err(|source| DatabaseError::Url { url: without_password(url), source })?;
        let (mode, tls) = wanted.connector(root)?;
        config.ssl_mode(mode);
        let path = format!("-c search_path={},{SCHEMA}", schema::functions_schema());
        let theirs = config.get_options().unwrap_or_default();
        let options = format!("{path} {SETTINGS} {theirs}");
        config.options(options).application_name("kendall-queue");
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        Ok(Self { config, tls })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The same for connections that only read.
    pub(crate) fn looking(&self) -> Self {
        let mut looking = self.clone();
        let options = format!("{} {LOOKING}", self.config.get_options().unwrap_or_default());
        looking.config.options(options);
        looking
    }

    /// A connection of its own, outside the pool.
    pub(crate) async fn connect(&self) -> Result<Connected, tokio_postgres::Error> {
        self.config.connect(self.tls.clone()).await
    }

    /// The same for a start, driven by a task; waits while PostgreSQL itself starts or recovers.
    async fn start(&self, tasks: &mut tokio::task::JoinSet<()>) -> Result<Client, DatabaseError> {
        let mut config = self.config.clone();
        config.application_name(schema::STARTING);
        let mut looks = tokio::time::interval(RECOVERY_LOOK);
        for look in 0..RECOVERY_LOOKS {
            looks.tick().await;
            let error = match config.connect(self.tls.clone()).await {
                Ok((client, connection)) => {
                    tasks.spawn(async move {
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, "the connection of the start ended");
                        }
                    });
                    return Ok(client);
                }
                Err(error) => error,
            };
            let starts = error.code() == Some(&SqlState::CANNOT_CONNECT_NOW);
            if look + 1 < RECOVERY_LOOKS && (starts || is_down(&error) && look < RESTART_LOOKS) {
                if look % RECOVERY_WORDS == 0 {
                    let said = error.source().map(ToString::to_string);
                    tracing::warn!(said, "PostgreSQL takes no connection yet; waiting for it");
                }
                continue;
            }
            let text = error.source().map(ToString::to_string).unwrap_or_default();
            if text.contains("CaUsedAsEndEntity") {
                return Err(DatabaseError::AuthorityAsServer(error));
            }
            return Err(DatabaseError::Connect(error));
        }
        unreachable!("the last look returns")
    }
}

/// Whether nothing listens there, or ended just now.
fn is_down(error: &tokio_postgres::Error) -> bool {
    let kind = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    error.is_closed()
        || kind.is_some_and(|error| {
            matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset)
        })
}

/// How a pool is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolOptions {
    pub(crate) connections: usize,
    /// Longest wait for one.
    pub(crate) timeout: Duration,
    /// How long PostgreSQL may take for a statement.
    pub(crate) patience: Duration,
    pub(crate) limits: Limits,
}

impl Databases {
    /// Creates what is missing of the schema and opens the pool.
    pub(crate) async fn open(reach: &Reach, options: PoolOptions) -> Result<Self, DatabaseError> {
        let mut tasks = tokio::task::JoinSet::new();
        let client = reach.start(&mut tasks).await?;
        schema::prepare(&client, &options.limits).await?;
        drop(client);
        tasks.join_next().await;
        Self::pool(reach, options)
    }

    /// Opens a pool over a schema that exists.
    pub(crate) fn pool(reach: &Reach, options: PoolOptions) -> Result<Self, DatabaseError> {
        let PoolOptions { connections, timeout, patience, limits } = options;
        let manager = Manager::from_config(
            reach.config.clone(),
            reach.tls.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let hold = Hook::async_fn(move |client, _| {
            Box::pin(async move {
                match tokio::time::timeout(timeout, schema::hold_functions(client)).await {
                    Ok(held) => held.map_err(HookError::Backend),
                    Err(_) => Err(HookError::message("PostgreSQL does not answer")),
                }
            })
        });
        let pool = Pool::builder(manager)
            .max_size(connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(timeout))
            .create_timeout(Some(timeout))
            .post_create(hold)
            // Those that were used last have in mind what they did: PostgreSQL's processes and this
            // one's core are spared as many as are not needed.
            .queue_mode(QueueMode::Lifo)
            .build()
            .map_err(DatabaseError::Pool)?;
        let (full, room) = Default::default();
        Ok(Self { pool, limits: Arc::new(limits), patience, full, room })
    }

    /// Waits for a connection.
    pub(crate) async fn session(&self) -> Result<Session, Status> {
        let connection = self.pool.get().await.map_err(|error| {
            let why = match &error {
                PoolError::Timeout(TimeoutType::Wait) => {
                    let connections = self.pool.status().max_size;
                    format!("none of the {connections} became free within --database-timeout")
                }
                other => innermost(other),
            };
            Status::unavailable(format!("no connection to PostgreSQL: {why}; try again"))
        })?;
        let (limits, full) = (Arc::clone(&self.limits), Arc::clone(&self.full));
        let room = Arc::clone(&self.room);
        Ok(Session { connection, limits, patience: self.patience, full, room })
    }

    /// The same, sparing the disk of the log where it is nearly full.
    pub(crate) fn guarded_by(self, room: Arc<LogRoom>) -> Self {
        Self { room, ..self }
    }

    /// Where the disk of the log is nearly full: the bytes that the log may have.
    pub(crate) fn log_bytes(&self) -> Option<i64> {
        self.room.log_bytes()
    }

    /// A query that is a transaction by itself.
    pub(crate) async fn look(
        &self,
        text: &str,
        parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>, Status> {
        let session = self.session().await?;
        // PostgreSQL cancels slow ones by itself; this limit is for a server that does not answer at all.
        let patience = Duration::from_millis(u64::from(LOOK_MS)) + self.patience;
        match tokio::time::timeout(patience, session.look(text, parameters)).await {
            Ok(rows) => rows.map_err(|error| status(&error)),
            Err(_) => {
                drop(Object::take(session.connection));
                Err(Status::unavailable("PostgreSQL does not answer"))
            }
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl Session {
    async fn look(
        &self,
        text: &str,
        parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
        let statement = self.connection.prepare_cached(text).await?;
        self.connection.query(&statement, parameters).await
    }

    /// Performs operations together: each succeeds or fails by itself, and all that succeed are
    /// committed when this returns. `executed` is called when only the commit is left.
    ///
    /// Where the log's disk is nearly full, as many at a time as its reserve bears.
    pub(crate) async fn perform(
        self,
        operations: &[&Operation],
        executed: &(dyn Fn() + Sync),
    ) -> Performed {
        let mut performed = Performed::default();
        let sends = || operations.iter().all(|operation| matches!(operation, Operation::Send(_)));
        if self.is_full() && sends() {
            let taken = self.full.taken.lock().clone();
            performed.refuse(operations.len(), &full(&format!("nothing was stored{taken}")));
            return performed;
        }
        let broken = match self.room.log_bytes() {
            None => self.perform_some(operations, executed, &mut performed).await,
            Some(bytes) => {
                self.perform_sparingly(operations, bytes, executed, &mut performed).await
            }
        };
        if broken {
            // It may be within a transaction: what came next would be part of that.
            let text = "the connection to PostgreSQL broke before this was tried; nothing was done";
            let left = operations.len() - performed.answers.len();
            performed.refuse(left, &Status::unavailable(text));
            // No caller waits for a statement that still runs on it.
            drop(Object::take(self.connection));
        }
        performed
    }

    /// Performs these; whether the connection is to be closed, perhaps before all are answered.
    async fn perform_some(
        &self,
        operations: &[&Operation],
        executed: &(dyn Fn() + Sync),
        performed: &mut Performed,
    ) -> bool {
        let mut tries = 0;
        loop {
            let failure = match self.batch(operations, executed).await {
                Ok(answers) => {
                    performed.answers.extend(answers);
                    return false;
                }
                Err(failure) => failure,
            };
            if failure.code() == Some(&SqlState::DISK_FULL) {
                self.full.is.store(true, Ordering::Relaxed);
            }
            if failure.may_repeat() && tries < RETRIES {
                tries += 1;
                continue;
            }
            let broken = self.is_broken(&failure);
            if broken || operations.len() == 1 {
                performed.refuse(operations.len(), &failure.status());
                performed.undecided.extend(failure.undecided);
                return broken;
            }
            break;
        }
        // One of them spoils it for all, and nothing was committed: each by itself then.
        for operation in operations {
            match self.batch(&[operation], executed).await {
                Ok(answer) => performed.answers.extend(answer),
                Err(failure) => {
                    performed.refuse(1, &failure.status());
                    let broken = self.is_broken(&failure);
                    performed.undecided.extend(failure.undecided);
                    if broken {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// The same where the log may have `bytes`: a few at a time.
    async fn perform_sparingly(
        &self,
        operations: &[&Operation],
        bytes: i64,
        executed: &(dyn Fn() + Sync),
        performed: &mut Performed,
    ) -> bool {
        let together = |operation: &&Operation| {
            matches!(operation, Operation::Take(_) | Operation::Acknowledge(_))
        };
        let at_once = if operations.iter().all(together) { self.rows_at_once(bytes) } else { 1 };
        for some in operations.chunks(at_once) {
            // Those that go step by step take turns by themselves.
            let stepwise = some.iter().all(|operation| operation.is_long());
            let turn = async { if stepwise { Ok(None) } else { self.turn(bytes).await.map(Some) } };
            let turn = tokio::time::timeout(self.patience, turn).await;
            let Ok(Ok(_turn)) = turn else {
                if self.connection.is_closed() {
                    return true;
                }
                let text = "nothing was done, until PostgreSQL has shortened its log: try again";
                performed.refuse(some.len(), &full(text));
                if turn.is_err() {
                    return true;
                }
                continue;
            };
            // Answers are in the order of their operations.
            let is_tight = self.room.is_tight();
            for some in some.chunks(if is_tight { 1 } else { at_once }) {
                let why_not = match some {
                    [one] => batch::why_not(&self.connection, one, (bytes, is_tight)).await,
                    _ => None,
                };
                if let Some(why_not) = why_not {
                    performed.refuse(1, &full(why_not));
                } else if self.perform_some(some, executed, performed).await {
                    return true;
                }
            }
        }
        false
    }

    /// Whether the connection must be closed: a statement may still run on it.
    fn is_broken(&self, failure: &Failure) -> bool {
        self.connection.is_closed() || failure.code().is_none() || failure.undecided.is_some()
    }

    async fn batch(
        &self,
        operations: &[&Operation],
        executed: &(dyn Fn() + Sync),
    ) -> Result<Answers, Failure> {
        batch::perform(self, operations, executed).await
    }

    /// Makes ready what is due, and every so often cleans up; says how much was done.
    ///
    /// Step by step, each with a commit of its own, until nothing is left or many steps are done: what
    /// clients make at full speed must be cleaned up as fast.
    pub(crate) async fn keep_house(&self, all: bool) -> Result<i64, tokio_postgres::Error> {
        let text = if all { "SELECT keep_house($1)" } else { "SELECT promote_due($1)" };
        let statement = self.connection.prepare_cached(text).await?;
        let mut done = 0;
        for _ in 0..HOUSEKEEPING_STEPS {
            let (rows, _turn) = self.step(HOUSEKEEPING_STEP).await?;
            let row = self.connection.query_one(&statement, &[&rows]).await?;
            let step: i64 = row.get(0);
            done += step;
            if step < i64::from(rows) {
                break;
            }
        }
        Ok(done)
    }

    /// Closes the connection without waiting for a statement that still runs on it.
    pub(crate) fn give_up(self) {
        drop(Object::take(self.connection));
    }

    /// Stores that these clients sent requests.
    pub(crate) async fn heard_from(&self, clients: &[i64]) -> Result<(), tokio_postgres::Error> {
        let statement = self.connection.prepare_cached("SELECT heard_from($1)").await?;
        self.connection.execute(&statement, &[&clients]).await.map(drop)
    }

    /// Removes clients without requests for long.
    pub(crate) async fn forget_clients(&self) -> Result<(), tokio_postgres::Error> {
        let statement = self.connection.prepare_cached("SELECT forget_clients($1)").await?;
        self.connection.execute(&statement, &[&FORGETTING_STEP]).await.map(drop)
    }

    /// Removes dead rows where there are many: a receive has to step over them, and PostgreSQL's own
    /// vacuum runs once a minute at most, in which a busy queue leaves half a million.
    ///
    /// After a send for which the disk had no space it removes the few as well, and gives back the end of
    /// the tables: that is how receiving frees space. Sends are refused until then, so that they do not
    /// take what the sweep itself needs. `watch` tells how long the log is meanwhile.
    pub(crate) async fn sweep(&self, watch: Option<&Self>) -> Result<(), tokio_postgres::Error> {
        if self.is_full() {
            let swept = self.make_room(watch).await;
            self.full.is.store(false, Ordering::Relaxed);
            return swept;
        }
        // A sweep reads all indexes whole: of a table that holds many, it waits for more to do.
        let text = "SELECT n_dead_tup > 20000 + n_live_tup / 20, NOT EXISTS (SELECT FROM reserve) \
            FROM pg_stat_user_tables WHERE relid = 'kendall_queue.message'::regclass";
        let statement = self.connection.prepare_cached(text).await?;
        let Some(row) = self.connection.query_opt(&statement, &[]).await? else { return Ok(()) };
        if row.get(0) {
            // Another middleware's sweep is not waited for.
            let sweep = "VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF, PARALLEL 0) \
                kendall_queue.message";
            self.connection.batch_execute(sweep).await?;
        }
        if row.get(1) {
            self.connection.batch_execute("SELECT fill_reserve()").await?;
        }
        Ok(())
    }

    async fn make_room(&self, watch: Option<&Self>) -> Result<(), tokio_postgres::Error> {
        if self.full.is.load(Ordering::Relaxed)
            && let Err(error) = self.connection.batch_execute("TRUNCATE reserve").await
        {
            tracing::debug!(%error, "the reserve cannot be released");
        }
        let sweep = "VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE ON, PARALLEL 0) \
            kendall_queue.message, kendall_queue.answered, kendall_queue.archive";
        match self.room.log_bytes() {
            None => self.connection.batch_execute(sweep).await?,
            Some(bytes) => {
                // Of a page that it writes a vacuum counts 20 points; at so many it pauses for 2 ms. So it writes the
                // reserve, four times `bytes`, in no less than 0.8 s.
                let points = (bytes / 40_000).clamp(1, 10_000);
                let pace = format!("SET vacuum_cost_delay = 2; SET vacuum_cost_limit = {points}");
                self.connection.batch_execute(&pace).await?;
                let swept = self.sweep_sparingly(sweep, bytes, watch).await;
                let pace = "RESET vacuum_cost_delay; RESET vacuum_cost_limit";
                self.connection.batch_execute(pace).await?;
                swept?;
            }
        }
        let text = "SELECT format(': messages take %s, answers kept ten minutes for request ids %s, archives %s', \
            pg_size_pretty(pg_total_relation_size('message')), pg_size_pretty(pg_total_relation_size('answered')), \
            pg_size_pretty(pg_total_relation_size('archive')))";
        let taken = self.connection.query_one(text, &[]).await?.get(0);
        *self.full.taken.lock() = taken;
        Ok(())
    }

    /// A vacuum writes each page to the log that it is the first to touch since the last checkpoint: at the first one of
    /// a table, the table. It is stopped where the log gets too long for the next checkpoint, and goes on after that; it
    /// passes over what it has done, so that each time less is left.
    async fn sweep_sparingly(
        &self,
        sweep: &str,
        bytes: i64,
        watch: Option<&Self>,
    ) -> Result<(), tokio_postgres::Error> {
        for _ in 0..SWEEPS {
            watch.unwrap_or(self).shorten_log(bytes / 2).await?;
            let mut sweeping = pin!(self.connection.batch_execute(sweep));
            let long = async {
                match watch {
                    Some(watch) => watch.log_gets_long(2 * bytes).await,
                    None => kendall_tier::serve::pause(UNWATCHED).await,
                }
            };
            let canceled = tokio::select! {
                swept = &mut sweeping => return swept,
                () = long => self.connection.cancel_token().cancel_query(NoTls).await,
            };
            match sweeping.await {
                Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => canceled?,
                swept => return swept,
            }
        }
        Ok(())
    }

    /// Returns when the log has so many bytes, or cannot be looked at.
    async fn log_gets_long(&self, bytes: i64) {
        let mut looks = tokio::time::interval(LOG_LOOK);
        loop {
            looks.tick().await;
            if self.is_log_long(bytes).await.unwrap_or(true) {
                return;
            }
        }
    }

    /// Stores that clients of this middleware wait for messages of a queue; whether it could.
    pub(crate) async fn register_waiter(self, middleware: uuid::Uuid, queue: i64) -> bool {
        let text = "INSERT INTO waiter (middleware, queue_id) VALUES ($1, $2) \
            ON CONFLICT (queue_id, middleware) DO UPDATE SET seen_at = clock_timestamp()";
        let work = async {
            let statement = self.connection.prepare_cached(text).await?;
            self.connection.execute(&statement, &[&middleware, &queue]).await
        };
        match tokio::time::timeout(self.patience, work).await {
            Ok(registered) => registered.is_ok(),
            Err(_) => {
                drop(Object::take(self.connection));
                false
            }
        }
    }
}

/// A URL that can be shown.
fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => {
            let user = url[scheme + 3..at].split(':').next().unwrap_or_default();
            format!("{}{user}{}", &url[..scheme + 3], &url[at..])
        }
        _ => url.split_whitespace().filter(|part| !part.starts_with("password")).collect(),
    }
}
