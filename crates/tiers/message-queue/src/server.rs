//! The running middleware: database, workers, listener, housekeeping, gRPC.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kendall_protocols::snapshot::{CountedTime, TierSnapshot};
use kendall_tier::serve::{self, Bounds, ListenError, ListenOptions, Listener, Tls, random_token};
use kendall_tier::{Clock, Instruments, Layout};
use kendall_units::innermost;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_postgres::AsyncMessage;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use crate::console::{self, Console};
use crate::database::{DatabaseError, Databases, PoolOptions, Reach, Session};
use crate::dispatcher::{self, Dispatcher};
use crate::health::Health;
use crate::http2::Http2;
use crate::identity::{self, Tokens};
use crate::operation::{Limits, REQUEST_TYPES};
use crate::postgres_counters::{self, Inside};
use crate::private_postgres::{PrivatePostgres, PrivatePostgresError};
use crate::queue_metrics::QueueMetrics;
use crate::request_limits::{Front, RequestLimits};
use crate::service::Service;
use crate::waiters::{self, Waiters};
use crate::wire::message_queue_server::MessageQueueServer;

/// How often what is due is made ready, and how many of those between two cleanings.
const HOUSEKEEPING: Duration = Duration::from_millis(100);
const CLEANING: u32 = 20;
/// The same while the disk of the log is nearly full: what is received frees space only when it is vacuumed.
const CLEANING_FULL: u32 = 5;
/// Ticks until the times of clients' last requests are stored (ten seconds), until silent clients are removed (a
/// minute), and until the first are (an hour): a middleware that was off received no requests.
const WRITING_DOWN: u32 = 100;
const FORGETTING: u32 = 600;
const FIRST_FORGETTING: u32 = 36_000;
/// How long it may wait for PostgreSQL: a server that went without a word would hold it for ever.
const HOUSEKEEPING_PATIENCE: Duration = Duration::from_secs(60);
/// Wait before the listener connects again.
const LISTEN_AGAIN: Duration = Duration::from_millis(200);
/// How often PostgreSQL is asked whether it answers, and how long its answer may take.
const LOOK: Duration = Duration::from_secs(1);
const HUNG: Duration = Duration::from_secs(5);
/// Time for clients to take their last answers at the stop.
const FAREWELL: Duration = Duration::from_secs(10);
/// Bytes of one request: a full batch of the default content still fits.
const REQUEST_BYTES: usize = 16 << 20;
/// Bytes of answers that clients do not take.
const ANSWER_BYTES: usize = 256 << 20;

/// Where the messages are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    /// A PostgreSQL that exists.
    Url(String),
    /// One of the queue's own, in this folder.
    Private(PathBuf),
}

#[derive(Debug, Clone)]
pub struct QueueOptions {
    pub listen: SocketAddr,
    pub database: Database,
    /// The certificate that PostgreSQL's must come from; without it the URL says, or the system.
    pub root_certificate: Option<PathBuf>,
    /// Workers: operations of as many batches are in service at once.
    pub workers: usize,
    pub connections: usize,
    /// Operations that share a commit; 1 turns batching off.
    pub batch: usize,
    pub queue_capacity: usize,
    pub client_connections: usize,
    /// Longest wait for a connection of the pool.
    pub database_timeout: Duration,
    /// How long PostgreSQL may take for a usual operation; ten times as long for those that go through a
    /// queue's messages.
    pub operation_timeout: Duration,
    pub threads: usize,
    /// Address of the management console, if there shall be one.
    pub console: Option<SocketAddr>,
    /// Bounds that both tiers enforce.
    pub limits: Limits,
    pub access: Access,
}

/// Who may come in, and how they are sure of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// A file of tokens; without one anyone may be any client.
    pub tokens: Option<PathBuf>,
    /// The certificate to show; without it nothing is encrypted.
    pub tls: Option<Tls>,
    /// An address that other hosts reach is served without tokens or without TLS, too.
    pub open_to_anyone: bool,
}

/// The middleware cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(
        "{address} can be reached from other hosts, and {missing}: any client there could read and take all \
         messages; give --tokens FILE, --tls-certificate FILE and --tls-key FILE, or say --open-to-anyone"
    )]
    Open { address: SocketAddr, missing: &'static str },
    #[error(transparent)]
    Tokens(#[from] serve::TokensError),
    #[error("cannot start the network threads")]
    Threads(#[source] io::Error),
    #[error(transparent)]
    Private(#[from] PrivatePostgresError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("cannot describe the service")]
    Reflection(#[source] tonic_reflection::server::Error),
}

#[derive(Debug)]
pub struct Server {
    runtime: Runtime,
    instruments: Instruments,
    address: SocketAddr,
    console: Option<String>,
    queue_metrics: Arc<QueueMetrics>,
    inside: Inside,
    dispatcher: Arc<Dispatcher>,
    waiters: Arc<Waiters>,
    workers: JoinSet<()>,
    background: JoinSet<()>,
    health: Health,
    network: JoinSet<()>,
    stopping: watch::Sender<bool>,
    postgres: Option<PrivatePostgres>,
}

impl QueueOptions {
    /// A client may be silent for as long as it likes.
    fn edge(&self) -> ListenOptions {
        ListenOptions {
            connections: self.client_connections,
            answers: Bounds::of(ANSWER_BYTES),
            lasting: self.limits.waiting_clients,
            idle: Duration::MAX,
            farewell: FAREWELL,
            tls: self.access.tls.clone(),
            ..ListenOptions::new(self.listen)
        }
    }

    fn pool(&self) -> PoolOptions {
        PoolOptions {
            connections: self.connections,
            timeout: self.database_timeout,
            patience: self.operation_timeout,
            limits: self.limits,
        }
    }
}

impl Server {
    /// Connects to the database, brings its schema up to date, and serves.
    pub fn start(options: &QueueOptions, clock: Clock) -> Result<Self, ServerError> {
        let tokens = tokens(options)?;
        let listener = Listener::bind(options.edge())?;
        let address = listener.address();
        let (postgres, url) = database(&options.database)?;
        let reach = Reach::parse(&url, options.root_certificate.as_deref())?;
        let runtime = serve::threads("network", options.threads).map_err(ServerError::Threads)?;
        let mut databases = runtime.block_on(Databases::open(&reach, options.pool()))?;
        if let Some(postgres) = &postgres {
            databases = databases.guarded_by(postgres.room());
        }
        let instruments = Instruments::new(layout(&reach), clock.clone());
        instruments.set_workers(u32::try_from(options.workers).unwrap_or(u32::MAX));
        let dispatcher = Dispatcher::new(&instruments, options.queue_capacity, options.batch);
        let waiters = Arc::new(Waiters::default());
        let (stopping, stopped) = watch::channel(false);
        let service = Service {
            dispatcher: Arc::clone(&dispatcher),
            waiters: Arc::clone(&waiters),
            databases: databases.clone(),
            middleware: uuid::Uuid::new_v4(),
            clock,
            stopping: stopped,
        };
        let handle = runtime.handle();
        let mut workers = JoinSet::new();
        for _ in 0..options.workers {
            let work = Arc::clone(&dispatcher).work(databases.clone(), instruments.recorder());
            workers.spawn_on(work, handle);
        }
        let mut background = JoinSet::new();
        let (health, told) = runtime.block_on(Health::new());
        let listening = listen(reach.clone(), Arc::clone(&waiters), health.clone());
        background.spawn_on(listening, handle);
        background.spawn_on(keep_house(service.clone()), handle);
        background.spawn_on(keep_log_short(service.clone()), handle);
        background.spawn_on(Arc::clone(&dispatcher).put_back_again(), handle);
        let queue_metrics = QueueMetrics::new(service.clock.clone(), Arc::clone(&dispatcher));
        let looking = {
            let _inside = runtime.enter();
            Databases::pool(&reach.looking(), PoolOptions { connections: 1, ..options.pool() })?
        };
        background.spawn_on(Arc::clone(&queue_metrics).look(looking), handle);
        let inside = Inside::start(reach.looking(), service.clock.clone(), &mut background, handle);
        let console = match options.console {
            Some(address) => {
                Some(start_console(address, &service, &reach, options, &runtime, &mut background)?)
            }
            None => None,
        };
        let mut network = JoinSet::new();
        let stopped = service.stopping.clone();
        let serving = vec![(handle.clone(), grpc(service, told, tokens)?)];
        let serving = listener.serve(serving, Some(&instruments), stopped);
        network.spawn_on(logged(serving), handle);
        Ok(Self {
            runtime,
            instruments,
            address,
            console,
            queue_metrics,
            inside,
            dispatcher,
            waiters,
            workers,
            background,
            health,
            network,
            stopping,
            postgres,
        })
    }

    /// The figures of each queue, in Prometheus' text format; empty until it has been read once.
    pub fn queue_metrics(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let queues = Arc::clone(&self.queue_metrics);
        let counted = self.counted();
        move || queues.text() + &postgres_counters::text(&counted())
    }

    /// The message of `GET /snapshot`, with the batches of each lane and PostgreSQL's own counters as they were
    /// queried last. Only the first reader waits for PostgreSQL, for less than a second.
    pub fn snapshot(&self) -> impl Fn() -> TierSnapshot + Send + Sync + use<> {
        let counted = self.counted();
        let instruments = self.instruments.clone();
        move || {
            let counted = counted();
            TierSnapshot { counted, ..instruments.snapshot() }
        }
    }

    /// Whether PostgreSQL answers: what the gRPC health service reports.
    pub fn health(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let health = self.health.clone();
        move || health.last()
    }

    fn counted(&self) -> impl Fn() -> Vec<CountedTime> + Send + Sync + use<> {
        let (inside, dispatcher) = (self.inside.clone(), Arc::clone(&self.dispatcher));
        move || {
            let mut all = inside.counted();
            all.extend(dispatcher.counted());
            all
        }
    }

    /// Why PostgreSQL's own counters are not known, though they were requested.
    pub fn untold(&self) -> Option<String> {
        self.inside.untold()
    }

    /// The address for clients, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the console with its access token, to be opened in a browser.
    pub fn console(&self) -> Option<&str> {
        self.console.as_deref()
    }

    pub fn instruments(&self) -> &Instruments {
        &self.instruments
    }

    /// Stops: no new connection, what was accepted is answered, the private PostgreSQL last.
    pub fn stop(self) {
        let Self {
            runtime,
            dispatcher,
            waiters,
            mut workers,
            mut background,
            health,
            mut network,
            stopping,
            postgres,
            ..
        } = self;
        runtime.block_on(health.ends());
        stopping.send_replace(true);
        dispatcher.drain();
        waiters.wake_all();
        runtime.block_on(async {
            dispatcher.idle().await;
            while network.join_next().await.is_some() {}
            // All connections are closed: no message can be put back any more.
            dispatcher.finish();
            let ending = async { while workers.join_next().await.is_some() {} };
            if tokio::time::timeout(FAREWELL, ending).await.is_err() {
                let lost = dispatcher.give_up();
                tracing::error!(
                    count = lost.len(),
                    message_ids = ?lost,
                    "messages whose takers were gone could not be put back before the stop: they are lost"
                );
                dispatcher.finish();
                while workers.join_next().await.is_some() {}
            }
            background.shutdown().await;
        });
        runtime.shutdown_timeout(FAREWELL);
        if let Some(postgres) = postgres {
            postgres.stop();
        }
    }
}

/// The database's URL, and the private PostgreSQL behind it, if it is one.
fn database(database: &Database) -> Result<(Option<PrivatePostgres>, String), ServerError> {
    match database {
        Database::Url(url) => Ok((None, url.clone())),
        Database::Private(folder) => {
            let postgres = PrivatePostgres::start(folder)?;
            let url = postgres.url().to_owned();
            Ok((Some(postgres), url))
        }
    }
}

/// Starts the console; gives the address to open in a browser.
fn start_console(
    address: SocketAddr,
    service: &Service,
    reach: &Reach,
    options: &QueueOptions,
    runtime: &Runtime,
    background: &mut JoinSet<()>,
) -> Result<String, ServerError> {
    let token = random_token();
    let listener = Console::bind(address)?;
    let address = listener.address();
    // A connection of its own: looking must not make the workers wait.
    let _inside = runtime.enter();
    let looking =
        Databases::pool(&reach.looking(), PoolOptions { connections: 1, ..options.pool() })?;
    let console = Console::new(service, looking, &token);
    let serving = console.serve(listener, (runtime.handle().clone(), service.stopping.clone()));
    background.spawn_on(serving, runtime.handle());
    Ok(console::address(address, &token))
}

fn layout(reach: &Reach) -> Layout {
    let database = reach.config().get_dbname().unwrap_or("postgres");
    Layout {
        tier: "message-queue",
        request_types: REQUEST_TYPES,
        stages: dispatcher::STAGES,
        outcomes: dispatcher::OUTCOMES,
        limits: dispatcher::LIMITS,
        backends: vec![format!("postgresql/{database}")],
    }
}

/// What answers gRPC calls.
fn grpc(
    service: Service,
    health: HealthServer<HealthService>,
    tokens: Option<Arc<Tokens>>,
) -> Result<Http2<Front<RequestLimits<MessageQueueServer<Service>>>>, ServerError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(kendall_protocols::queue::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let newer = reflection().build_v1().map_err(ServerError::Reflection)?;
    let older = reflection().build_v1alpha().map_err(ServerError::Reflection)?;
    let (dispatcher, clock) = (Arc::clone(&service.dispatcher), service.clock.clone());
    let queue = MessageQueueServer::new(service)
        .max_decoding_message_size(REQUEST_BYTES)
        .max_encoding_message_size(usize::MAX);
    // Those who route clients have no token.
    let others = Routes::new(RequestLimits::new(health).uncounted())
        .add_service(RequestLimits::new(newer).for_holders(tokens.clone()))
        .add_service(RequestLimits::new(older).for_holders(tokens.clone()))
        .prepare();
    let service = Front { queue: RequestLimits::new(queue).for_holders(tokens), others };
    Ok(Http2 { service, dispatcher, clock })
}

async fn logged(serving: impl Future<Output = io::Result<()>>) {
    if let Err(error) = serving.await {
        tracing::error!(%error, "the listener failed");
    }
}

/// Reads the tokens, and refuses to be open to anyone unless that was asked for.
fn tokens(options: &QueueOptions) -> Result<Option<Arc<Tokens>>, ServerError> {
    let Access { tokens, tls, open_to_anyone } = &options.access;
    let (address, any) = (options.listen, *open_to_anyone || options.listen.ip().is_loopback());
    let missing = match (tokens, tls) {
        (None, None) => Some("there are neither tokens nor TLS"),
        (None, Some(_)) => Some("there are no tokens"),
        (Some(_), None) => Some("there is no TLS, so tokens could be read on the way"),
        (Some(_), Some(_)) => None,
    };
    match missing {
        Some(missing) if !any => return Err(ServerError::Open { address, missing }),
        Some(missing) if !address.ip().is_loopback() => {
            tracing::warn!(%address, missing, "open to all who reach it");
        }
        _ => {}
    }
    let read = |path: &PathBuf| Tokens::read(path, &identity::LINE).map(Arc::new);
    Ok(tokens.as_ref().map(read).transpose()?)
}

/// Listens for notifications, for ever; after every new connection all waiting clients try again. Over the
/// same connection it checks whether PostgreSQL answers, and sets the health status by it.
async fn listen(reach: Reach, waiters: Arc<Waiters>, health: Health) {
    let mut again = tokio::time::interval(LISTEN_AGAIN);
    // Since PostgreSQL answered.
    let mut failures = 0_u32;
    loop {
        again.tick().await;
        match reach.connect().await {
            Ok((client, mut connection)) => {
                let hearing = async {
                    while let Some(Ok(message)) =
                        poll_fn(|context| connection.poll_message(context)).await
                    {
                        if let AsyncMessage::Notification(notification) = message
                            && let Some(arrival) = waiters::parse(notification.payload())
                        {
                            waiters.arrived(arrival);
                        }
                    }
                };
                let asking = async {
                    client.batch_execute("LISTEN kendall_queue").await?;
                    waiters.wake_all();
                    let mut look = tokio::time::interval(LOOK);
                    while let Ok(answered) =
                        tokio::time::timeout(HUNG, client.batch_execute("SELECT 1")).await
                    {
                        answered?;
                        if failures > 0 {
                            tracing::info!("PostgreSQL answers again");
                            failures = 0;
                        }
                        health.serves(true).await;
                        look.tick().await;
                    }
                    Ok::<(), tokio_postgres::Error>(())
                };
                tokio::select! {
                    () = hearing => {}
                    _ = asking => {}
                }
                tracing::warn!("PostgreSQL does not answer; trying again");
            }
            Err(error) => {
                // The first, and ever fewer of the others.
                failures = failures.saturating_add(1);
                if failures.is_power_of_two() {
                    let why = innermost(&error);
                    tracing::warn!(%why, failures, "PostgreSQL takes no connection; trying again");
                }
            }
        }
        health.serves(false).await;
    }
}

/// Makes ready what is due, and every so often cleans up and renews the registration of waiters.
async fn keep_house(service: Service) {
    let mut ticks = tokio::time::interval(HOUSEKEEPING);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for tick in 0_u32.. {
        ticks.tick().await;
        let Ok(session) = service.databases.session().await else { continue };
        let all = tick % CLEANING == 0;
        let patience = HOUSEKEEPING_PATIENCE;
        match tokio::time::timeout(patience, session.keep_house(all)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "housekeeping failed; trying again"),
            Err(_) => {
                tracing::warn!("PostgreSQL does not answer the housekeeping; trying again");
                session.give_up();
                continue;
            }
        }
        if tick % WRITING_DOWN == 0 && write_down(&service.dispatcher, &session).await {
            let forgetting = tick >= FIRST_FORGETTING && tick % FORGETTING == 0;
            if forgetting && let Err(error) = session.forget_clients().await {
                tracing::debug!(%error, "silent clients cannot be forgotten; trying again");
            }
        }
        let nearly_full = service.databases.log_bytes().is_some();
        if all || (tick % CLEANING_FULL == 0 && nearly_full) {
            let watch = if nearly_full { service.databases.session().await.ok() } else { None };
            if let Err(error) = session.sweep(watch.as_ref()).await {
                tracing::debug!(%error, "sweeping failed; trying again");
            }
            drop((session, watch));
            for queue in service.waiters.queues() {
                if !service.register(queue).await {
                    break;
                }
            }
        }
    }
}

/// While the disk of the log is nearly full, shortens the log as often as dead rows are removed, and at once where
/// it is long.
async fn keep_log_short(service: Service) {
    let mut ticks = tokio::time::interval(HOUSEKEEPING);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for tick in 0_u32.. {
        ticks.tick().await;
        let Some(bytes) = service.databases.log_bytes() else { continue };
        let bytes = if tick % CLEANING_FULL == 0 { 0 } else { bytes / 2 };
        let Ok(session) = service.databases.session().await else { continue };
        match tokio::time::timeout(HOUSEKEEPING_PATIENCE, session.shorten_log(bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "no checkpoint; trying again"),
            Err(_) => session.give_up(),
        }
    }
}

/// Stores which clients sent requests; whether it could.
async fn write_down(dispatcher: &Dispatcher, session: &Session) -> bool {
    let heard = dispatcher.heard();
    if heard.is_empty() {
        return true;
    }
    match session.heard_from(&heard).await {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(%error, "the last activity of clients cannot be stored; trying again");
            dispatcher.still_heard(heard);
            false
        }
    }
}
