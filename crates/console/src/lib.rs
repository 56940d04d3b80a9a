//! The web console: a page over a folder of results, and the JSON that it reads.
//!
//! It measures and judges nothing itself. A study, a report, a comparison, a solution and a simulation are the
//! program, started as a process: what the console shows is what the command line would print, and a
//! folder that brings the program down leaves the console standing. A GET or a POST asks; a PUT or a DELETE changes
//! something, and needs a token that may.
//!
//! What it leaves out: printing, and the command line.

mod access;
mod bench;
mod failure;
mod files;
mod live;
mod pages;
mod program;
mod results;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use hyper_util::service::TowerToHyperService;
use kendall_tier::serve::{ForBrowsers, ListenError, ListenOptions, Listener, Serving};
use tokio::sync::Semaphore;

pub use access::{Grant, LINE, OpenError, Tokens, allowed};
pub use bench::{BenchError, bench_answer};
use failure::Failure;
use files::Files;
use live::Live;
use pages::Pages;
use program::Program;
use results::Results;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPTS: [(&str, &str); 3] = [
    ("/chart.js", include_str!("chart.js")),
    ("/page.js", include_str!("page.js")),
    ("/bench.js", include_str!("bench.js")),
];
/// A page by itself that shows the answers of `GET live`, one a second: an object with `title`, `now`, `seconds`
/// (`elapsed_s`, `throughput_per_s`, `response_time_mean_s`, `response_time_p99_s`, `errors`, `hosts`) and `lines`.
pub const LIVE_PAGE: &str = concat!(
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
     content=\"width=device-width, initial-scale=1\"><title>Kendall</title><link rel=\"icon\" href=\"data:,\"><style>",
    include_str!("page.css"),
    "</style></head><body>",
    include_str!("live.html"),
    "<script>",
    include_str!("chart.js"),
    include_str!("live.js"),
    "</script></body></html>",
);
/// Bytes of a request: a study or a model with room to spare.
const BODY_BYTES: usize = 2 << 20;
/// Longest time to an answer; what takes longer is a run, and is watched.
const CALL: Duration = Duration::from_secs(120);
/// How long a study may take to stop when the console stops, and then after each of two harder signals.
const INTERRUPTED: Duration = Duration::from_secs(30);
const ENDED: Duration = Duration::from_secs(5);
/// Models that are solved at a time.
const SOLVING: usize = 4;
/// Connections at a time; a browser keeps about six.
pub const CONNECTIONS: usize = 100;
/// Longest time that a connection stays, whatever it is used for; a browser opens another.
pub const LONGEST: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub struct ConsoleOptions {
    pub listen: ListenOptions,
    pub folder: PathBuf,
    /// Folder of study and model files.
    pub studies: PathBuf,
    /// The program that is started for runs.
    pub program: PathBuf,
    /// Address of a commit, `{}` in the place of its revision.
    pub commits: Option<String>,
    /// Who may come in; `None` for the token that [`Console::address`] has.
    pub tokens: Option<Tokens>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the folder {folder} cannot be read; name one that holds results, such as results/")]
    Folder { folder: PathBuf, source: io::Error },
    #[error("its threads cannot be started")]
    Threads(#[source] io::Error),
}

/// All that its answers are made from. Clones share it.
#[derive(Debug, Clone)]
struct Shared(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    results: Results,
    files: Files,
    live: Live,
    pages: Pages,
    program: Program,
    solving: Arc<Semaphore>,
    tokens: Tokens,
    commits: Option<String>,
}

impl std::ops::Deref for Shared {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

#[derive(Debug)]
pub struct Console {
    serving: Serving,
    shared: Shared,
    address: String,
}

impl Console {
    /// Starts it.
    pub fn start(options: ConsoleOptions) -> Result<Self, ConsoleError> {
        let (own, tokens) = allowed(&options.listen, options.tokens)?;
        let folder = options.folder;
        let root = folder.canonicalize().and_then(|root| root.read_dir().map(|_| root));
        let root = root.map_err(|source| ConsoleError::Folder { folder, source })?;
        let tls = options.listen.tls.is_some();
        let listener = Listener::bind(options.listen)?;
        let listen = listener.address();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(16)
            .thread_name("console")
            .enable_all()
            .build()
            .map_err(ConsoleError::Threads)?;
        let shared = Shared(Arc::new(Parts {
            results: Results::new(root),
            files: Files::new(options.studies),
            live: Live::default(),
            pages: Pages::default(),
            program: Program::new(options.program),
            solving: Arc::new(Semaphore::new(SOLVING)),
            tokens,
            commits: options.commits,
        }));
        let service = TowerToHyperService::new(routes(shared.clone()));
        let service = ForBrowsers::new(service, listen);
        let serving = Serving::start(runtime, listener, service, None, std::future::pending());
        let scheme = if tls { "https" } else { "http" };
        let own = own.map_or_else(String::new, |own| format!("#{own}"));
        let address = format!("{scheme}://{listen}/{own}");
        Ok(Self { serving, shared, address })
    }

    /// The address to open in a browser. A token stands behind the `#`, which browsers do not send.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Stops the study that runs, as Ctrl-C would, waits for it for 40 s at most, and answers no more.
    pub fn stop(self) {
        self.serving.close();
        self.shared.live.stop_all(INTERRUPTED, ENDED);
        self.serving.stop();
    }
}

fn routes(shared: Shared) -> Router {
    let api = Router::new()
        .route("/studies", get(results::list))
        .route("/report", post(pages::report).put(pages::make_report))
        .route("/compare", post(pages::compare))
        .route("/trend", post(pages::trend))
        .route("/measured", get(results::measured))
        .route("/files", get(files::list))
        .route("/file", get(files::read).put(files::save))
        .route("/schema", get(files::schema))
        .route("/plan", post(files::plan))
        .route("/runs", get(live::list).put(live::start))
        .route("/runs/{id}", delete(live::stop))
        .route("/model", post(bench::read))
        .route("/solve", post(bench::solve))
        .route("/simulate", post(bench::simulate))
        .fallback(nothing_there)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn_with_state(shared.clone(), access::authorized));
    let file = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    let mut routes = Router::new()
        .route("/", file("text/html; charset=utf-8", PAGE))
        .route("/page.css", file("text/css; charset=utf-8", STYLE))
        .route("/pages/{key}/{*page}", get(pages::show));
    for (path, text) in SCRIPTS {
        routes = routes.route(path, file("text/javascript; charset=utf-8", text));
    }
    routes
        .nest("/api", api)
        .fallback(nothing_there)
        .layer(middleware::from_fn(timely))
        .with_state(shared)
}

/// Answers in time, whatever a disk does.
async fn timely(request: Request, next: Next) -> Response {
    match tokio::time::timeout(CALL, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Failure::busy("it takes longer than two minutes").into_response(),
    }
}

async fn nothing_there() -> Failure {
    Failure::not_found("nothing is there")
}
