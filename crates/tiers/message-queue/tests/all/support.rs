//! A middleware over a private PostgreSQL, and clients of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kendall_message_queue::wire::message_queue_client::MessageQueueClient;
use kendall_message_queue::{Database, Limits, PrivatePostgres, QueueOptions, Server};
use kendall_protocols::queue::{CreateQueueRequest, HelloRequest};
use kendall_tier::Clock;
use tokio_postgres::NoTls;
use tonic::transport::{Channel, Endpoint};

pub(crate) type Client = MessageQueueClient<Channel>;

/// A folder that root's PostgreSQL user may enter, removed at the end.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Options of a middleware on a free port.
pub(crate) fn options(database: Database) -> QueueOptions {
    QueueOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        database,
        root_certificate: None,
        workers: 2,
        connections: 2,
        batch: 64,
        queue_capacity: 10_000,
        client_connections: 1000,
        database_timeout: Duration::from_secs(5),
        operation_timeout: Duration::from_secs(30),
        threads: 2,
        console: None,
        limits: Limits::default(),
        access: kendall_message_queue::Access::default(),
    }
}

pub(crate) fn start(database: Database) -> Server {
    start_with(options(database))
}

pub(crate) fn start_with(options: QueueOptions) -> Server {
    Server::start(&options, Clock::monotonic())
        .expect("the tests need PostgreSQL's server programs; `make packages-test` installs them")
}

pub(crate) fn postgres(folder: &Folder) -> PrivatePostgres {
    PrivatePostgres::start(&folder.path().join("queue"))
        .expect("the tests need PostgreSQL's server programs; `make packages-test` installs them")
}

pub(crate) fn private(folder: &Folder) -> Database {
    Database::Private(PathBuf::from(folder.path()).join("queue"))
}

pub(crate) async fn connect(server: &Server) -> Client {
    connect_to(server.address()).await
}

pub(crate) async fn connect_to(address: std::net::SocketAddr) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    MessageQueueClient::new(endpoint.connect().await.unwrap())
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) async fn hello(client: &mut Client, name: &str) -> u64 {
    let request = HelloRequest { name: name.into() };
    client.hello(request).await.unwrap().into_inner().client_id
}

pub(crate) async fn create(client: &mut Client, name: &str) -> u64 {
    let request = CreateQueueRequest { name: name.into(), ..Default::default() };
    client.create_queue(request).await.unwrap().into_inner().queue_id
}

/// The functions of the running middleware and the tables.
pub(crate) const SEARCH_PATH: &str = "SELECT set_config('search_path', (SELECT string_agg(nspname, ',') \
    FROM pg_namespace WHERE starts_with(nspname, 'kendall_queue_f_')) || ',kendall_queue', false)";

/// A session of its own beside the middleware's.
#[derive(Debug)]
pub(crate) struct Other {
    pub(crate) client: tokio_postgres::Client,
    _driver: tokio::task::JoinSet<()>,
}

impl Other {
    pub(crate) async fn connect(url: &str) -> Self {
        let other = Self::connect_plainly(url).await;
        other.run(SEARCH_PATH).await;
        other
    }

    /// To a PostgreSQL that is starting again after a crash.
    pub(crate) async fn connect_again(url: &str) -> Self {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        for _ in 0..3000 {
            looks.tick().await;
            if tokio_postgres::connect(url, NoTls).await.is_ok() {
                return Self::connect(url).await;
            }
        }
        panic!("PostgreSQL does not start again");
    }

    /// To a database that no middleware has seen.
    pub(crate) async fn connect_plainly(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let mut driver = tokio::task::JoinSet::new();
        driver.spawn(async move { connection.await.unwrap_or_default() });
        Self { client, _driver: driver }
    }

    pub(crate) async fn run(&self, text: &str) {
        self.client.batch_execute(text).await.unwrap();
    }

    pub(crate) async fn number(&self, text: &str) -> i64 {
        self.client.query_one(text, &[]).await.unwrap().get(0)
    }

    /// Looks until the number is at least `least`, with a deadline.
    pub(crate) async fn until(&self, text: &str, least: i64) {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        for _ in 0..3000 {
            looks.tick().await;
            if self.number(text).await >= least {
                return;
            }
        }
        panic!("{text} did not become {least}");
    }
}

pub(crate) const WAITING_FOR_A_LOCK: &str = "SELECT count(*) FROM pg_stat_activity \
    WHERE wait_event_type = 'Lock' AND application_name = 'kendall-queue'";
