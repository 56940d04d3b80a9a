//! `kendall serve`: runs one tier. One module a tier, and one line here.

mod cache;
mod cache_front;
mod compute;
mod link;
mod proxy;
mod queue;
mod queue_database;
mod scheduler;
mod summary;
mod synthetic;
mod worker;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use kendall_tier::serve::Tls;
use kendall_tier::{
    Announcement, Instruments, OWN_DESCRIPTORS, Page, PageRequest, PageResponse, Routes, SecondLog,
    Stop,
};
use kendall_units::Seconds;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// Runs one tier
///
/// A tier prints `ready …` on standard error when it accepts requests. On SIGTERM or Ctrl-C it
/// answers what it has accepted, prints a summary and stops; a second signal ends it at once.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    kendall serve queue --listen 127.0.0.1:7070\n  \
    kendall serve proxy --listen 127.0.0.1:11211 --server 127.0.0.1:11212 --server 127.0.0.1:11213\n  \
    kendall serve compute --listen 127.0.0.1:8080 --metrics 127.0.0.1:9100"
)]
pub(crate) struct Serve {
    #[command(subcommand)]
    tier: Tier,
}

commands! {
    Tier {
        Cache(cache::CacheFlags),
        CacheFront(cache_front::CacheFrontFlags),
        Compute(compute::ComputeFlags),
        Link(link::LinkFlags),
        Synthetic(synthetic::SyntheticFlags),
        Proxy(proxy::Proxy),
        Queue(queue::QueueFlags),
        QueueDatabase(queue_database::QueueDatabaseFlags),
        Scheduler(scheduler::SchedulerFlags),
        Worker(worker::WorkerFlags),
        WorkerSlot(worker::WorkerSlotFlags),
    }
}

impl Serve {
    /// Whether it must have no other thread when it starts, not even one for its log: the kernel gives
    /// a namespace of users to no process that has two.
    pub(crate) fn needs_one_thread(&self) -> bool {
        matches!(self.tier, Tier::WorkerSlot(_))
    }

    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let limit = kendall_tier::raise_descriptor_limit();
        if !kendall_tier::may_open(OWN_DESCRIPTORS) {
            let text = format!(
                "this process may have {limit} open files, and a server needs {OWN_DESCRIPTORS} beyond those that it \
                 inherits: raise the hard limit (`ulimit -Hn 1024`, or LimitNOFILE= of the service)"
            );
            return Err(exit_with(Exit::NotReady, text));
        }
        self.tier.run()
    }
}

/// Flags that every tier shares.
#[derive(Debug, clap::Args)]
pub(crate) struct TierFlags {
    /// Address for clients; port 0 takes a free one, which the line `ready …` names
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub(crate) listen: SocketAddr,

    #[command(flatten)]
    pub(crate) page: PageFlags,
}

/// How a tier is seen while it runs, and at its end.
#[derive(Debug, clap::Args)]
pub(crate) struct PageFlags {
    /// Address of the metrics page: /metrics, /snapshot, /health, and /control where there is one
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    metrics: Option<SocketAddr>,

    /// Logs one line a second
    #[arg(long)]
    log_seconds: bool,

    /// How the summary at the stop is printed; json is the message of GET /snapshot
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,

    /// Adds the response times in steps of 0.1 ms to the summary at the stop
    #[arg(long)]
    histogram: bool,
}

/// The certificate by which a tier is known, and whether its clients need one.
#[derive(Debug, clap::Args)]
pub(crate) struct TlsFlags {
    /// PEM file with the certificate; only TLS connections are then accepted
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// PEM file with the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// PEM file with the authority of client certificates, which clients then need
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_client_certificate: Option<PathBuf>,
}

impl TlsFlags {
    pub(crate) fn tls(&self) -> Option<Tls> {
        let (certificate, key) = self.tls_certificate.clone().zip(self.tls_key.clone())?;
        Some(Tls { certificate, key, client_certificate: self.tls_client_certificate.clone() })
    }
}

/// A `HOST:PORT`, its name resolved.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    kendall_tier::resolved(text)
        .map_err(|error| format!("{error}; write it as HOST:PORT, such as 127.0.0.1:11211"))
}

/// A `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The bound of what a tier serves or keeps at a time: with none it would turn every client away.
fn at_least_one<N: TryFrom<u64> + Clone + Send + Sync + 'static>() -> RangedU64ValueParser<N> {
    RangedU64ValueParser::new().range(1..)
}

/// A time that a tier allows for something: with none it would never be enough.
fn some_time(text: &str) -> Result<Seconds, String> {
    let time = kendall_units::parse_seconds(text).map_err(|error| error.to_string())?;
    Some(time).filter(|time| time.get() > 0.0).ok_or_else(|| "write a time above 0".to_owned())
}

/// Changes a tier by a request to its control address, of which `form` is an example.
fn change<C: DeserializeOwned, S: Serialize, E: Display>(
    request: &PageRequest,
    form: &str,
    apply: impl FnOnce(&C) -> Result<S, E>,
) -> PageResponse {
    let wanted = match serde_json::from_slice(&request.body) {
        Ok(wanted) => wanted,
        Err(error) => {
            return PageResponse::text(400, format!("{error}; write it like {form}\n"));
        }
    };
    match apply(&wanted) {
        Ok(state) => PageResponse::json(&state),
        Err(error) => PageResponse::text(400, format!("{error}\n")),
    }
}

/// A tier that runs: its page, its log, and what they need at the end.
#[derive(Debug)]
pub(crate) struct Running {
    instruments: Instruments,
    stop: Stop,
    format: Format,
    histogram: bool,
    announcement: Announcement,
    page: Option<Page>,
    log: Option<SecondLog>,
}

impl Running {
    /// Call it when the tier accepts requests on `listen`: starts the page and the log, and
    /// prints the line that announces the tier on standard error:
    /// `ready tier=NAME listen=HOST:PORT metrics=HOST:PORT pid=N`.
    pub(crate) fn start(
        flags: &PageFlags,
        instruments: &Instruments,
        routes: Routes,
        stop: &Stop,
        listen: Vec<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let page = match flags.metrics {
            Some(address) => Some(
                Page::start("--metrics HOST:PORT", address, instruments.clone(), routes)
                    .map_err(|error| exit_with(Exit::NotReady, error))?,
            ),
            None => None,
        };
        let log = flags
            .log_seconds
            .then(|| SecondLog::start(instruments.clone(), stop.clone()))
            .transpose()?;
        let announcement = Announcement {
            ready: true,
            tier: instruments.tier().to_owned(),
            listen,
            metrics: page.as_ref().map(Page::address),
            pid: std::process::id(),
        };
        if let Some(page) = &page {
            page.announce(announcement.clone());
        }
        output::note(&ready_line(&announcement));
        let (instruments, stop) = (instruments.clone(), stop.clone());
        let PageFlags { format, histogram, .. } = *flags;
        Ok(Self { instruments, stop, format, histogram, announcement, page, log })
    }

    /// Returns when the stop was asked for; `/health` answers 503 from then on.
    pub(crate) fn wait(&self) {
        self.stop.wait();
        if let Some(page) = &self.page {
            page.announce(Announcement { ready: false, ..self.announcement.clone() });
        }
    }

    /// Serves in a thread of its own until the stop was asked for, then prints the summary.
    pub(crate) fn serve<E: Into<anyhow::Error> + Send + 'static>(
        self,
        serve: impl FnOnce(&Stop) -> Result<(), E> + Send + 'static,
    ) -> anyhow::Result<Exit> {
        let stop = self.stop.clone();
        let serving = std::thread::Builder::new().name("network".into()).spawn(move || {
            let outcome = serve(&stop);
            stop.request(); // one that failed ends the process
            outcome
        })?;
        self.wait();
        match serving.join() {
            Ok(outcome) => outcome.map_err(Into::into)?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        self.finish()
    }

    /// Waits until the stop was asked for, and stops the tier, which finishes what it accepted.
    pub(crate) fn until_stopped(self, tier: impl FnOnce()) -> anyhow::Result<Exit> {
        self.wait();
        tier();
        self.finish()
    }

    /// Call it when all that was accepted is finished: prints the summary.
    pub(crate) fn finish(self) -> anyhow::Result<Exit> {
        if let Some(log) = self.log {
            log.join();
        }
        let snapshot = self.instruments.snapshot();
        let document = summary::document(&snapshot, self.histogram)?;
        output::print(self.format, &snapshot, || document)?;
        Ok(Exit::Done)
    }
}

fn ready_line(announcement: &Announcement) -> String {
    let mut line = format!("ready tier={}", announcement.tier);
    for address in &announcement.listen {
        line.push_str(&format!(" listen={address}"));
    }
    if let Some(address) = announcement.metrics {
        line.push_str(&format!(" metrics={address}"));
    }
    line.push_str(&format!(" pid={}", announcement.pid));
    line
}
