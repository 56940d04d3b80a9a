//! `kendall serve compute`: powers of matrices and prime factors over HTTP.

use clap::ArgAction;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kendall_compute::{
    CacheLimits, Change, Compute, ComputeError, ComputeOptions, Control, Limits, QueueBound,
    Recorded, RequestLimits, Unbounded,
};
use kendall_tier::serve::ListenError;
use kendall_tier::{PageResponse, Routes, Stop};
use kendall_units::{Seconds, parse_bytes};

use super::{Running, TierFlags, TlsFlags, at_least_one, change, some_time};
use crate::exit::{Exit, exit_with};

/// Computes powers of matrices and prime factors over HTTP
///
/// GET /compute?size=100&exponent=20 or POST /compute; GET /openapi.json describes both.
///
/// While it runs, GET /control on the metrics address returns its state, and PUT /control changes
/// it: {"workers": 4, "cache": true, "queue": 100}, where keys may be left out. POST
/// /recording/start starts a recording of CPU use per core, network bytes and cache hit rate, GET
/// /recording returns it so far, POST /recording/stop ends and returns it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    kendall serve compute --listen 127.0.0.1:8080 --metrics 127.0.0.1:9100 --workers 2\n  \
    curl 'http://127.0.0.1:8080/compute?size=100&exponent=20'\n  \
    curl -X PUT -d '{\"cache\": true}' http://127.0.0.1:9100/control")]
pub(crate) struct ComputeFlags {
    #[command(flatten)]
    tier: TierFlags,

    #[command(flatten)]
    tls: TlsFlags,

    #[arg(long)]
    workers: u32,

    #[arg(long, value_name = "REQUESTS", value_parser = queue_bound)]
    queue: QueueBound,

    /// Whether whole results are cached
    #[arg(long, default_value = "off", action = ArgAction::Set, value_parser = on_or_off())]
    cache: bool,

    /// Most results in the cache
    #[arg(long, value_name = "RESULTS", default_value_t = CacheLimits::default().entries)]
    cache_entries: usize,

    /// Most bytes in the cache
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = parse_bytes)]
    cache_bytes: u64,

    /// Most rows of a matrix
    #[arg(long, value_name = "ROWS", default_value_t = RequestLimits::default().size, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_size: u32,

    /// Largest exponent
    #[arg(long, value_name = "EXPONENT", default_value_t = RequestLimits::default().exponent)]
    max_exponent: u64,

    /// Most bytes of a body
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = parse_bytes)]
    max_body: u64,

    /// Most connections at a time; a further one replaces the longest idle, or is closed
    #[arg(long = "client-connections", alias = "connections", value_name = "N", default_value_t = Limits::default().connections, value_parser = at_least_one::<usize>())]
    connections: usize,

    /// Time for the head of a request (and between two), and again for its body
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time)]
    read_limit: Seconds,

    /// Time for one computation
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time)]
    compute_limit: Seconds,
}

impl ComputeFlags {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let compute = Compute::bind(&self.options()?).map_err(|error| {
            let exit = match error {
                ComputeError::Options(_) | ComputeError::Listen(ListenError::Tls(_)) => {
                    Exit::Refused
                }
                ComputeError::Listen { .. } | ComputeError::Start(_) => Exit::NotReady,
            };
            exit_with(exit, error)
        })?;
        let stop = Stop::on_signals()?;
        let routes = routes(&compute.control());
        let instruments = compute.instruments();
        let listen = vec![compute.address()];
        Running::start(&self.tier.page, &instruments, routes, &stop, listen)?
            .serve(move |stop| compute.run(stop))
    }

    fn options(&self) -> anyhow::Result<ComputeOptions> {
        Ok(ComputeOptions {
            listen: self.tier.listen,
            change: Change {
                workers: Some(usize::try_from(self.workers)?),
                cache: Some(self.cache),
                queue: Some(self.queue),
            },
            request_limits: RequestLimits {
                size: self.max_size,
                exponent: self.max_exponent,
                body_bytes: usize::try_from(self.max_body)?,
            },
            cache_limits: CacheLimits {
                entries: self.cache_entries,
                bytes: usize::try_from(self.cache_bytes)?,
            },
            limits: Limits {
                connections: self.connections,
                read: self.read_limit.as_duration(),
                compute: self.compute_limit.as_duration(),
                ..Limits::default()
            },
            tls: self.tls.tls(),
        })
    }
}

fn routes(control: &Control) -> Routes {
    let on = || control.clone();
    let (state, changes, start, so_far, stop) = (on(), on(), on(), on(), on());
    let form = r#"{"workers": 4, "cache": true, "queue": 100}"#;
    Routes::new()
        .with("GET", "/control", move |_| PageResponse::json(&state.state()))
        .with("PUT", "/control", move |request| {
            change(request, form, |wanted| changes.change(wanted))
        })
        .with("POST", "/recording/start", move |_| {
            start.start_recording();
            PageResponse::json(&start.state())
        })
        .with("GET", "/recording", move |_| recorded(so_far.recording()))
        .with("POST", "/recording/stop", move |_| recorded(stop.stop_recording()))
}

fn recorded(recorded: Option<Recorded>) -> PageResponse {
    recorded.map_or_else(
        || {
            PageResponse::text(
                409,
                "no recording is running; start one with POST /recording/start\n",
            )
        },
        |recorded| PageResponse::json(&recorded),
    )
}

/// The words of studies and of JSON are taken as well.
fn on_or_off() -> impl TypedValueParser<Value = bool> {
    let [on, off] = [["on", "true"], ["off", "false"]]
        .map(|[word, other]| PossibleValue::new(word).alias(other));
    PossibleValuesParser::new([on, off]).map(|word| matches!(word.as_str(), "on" | "true"))
}

fn queue_bound(text: &str) -> Result<QueueBound, String> {
    if text == "unbounded" {
        return Ok(QueueBound::Unbounded(Unbounded::Unbounded));
    }
    let bound = text.parse().map_err(|_| "write a number or `unbounded`".to_owned())?;
    Ok(QueueBound::Bounded(bound))
}
