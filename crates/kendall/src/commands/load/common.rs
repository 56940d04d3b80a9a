//! Options and steps that loads of every protocol share.

use std::io::IsTerminal as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kendall_loadgen::arrivals::ArrivalPlan;
use kendall_loadgen::distribution::{Distribution, Unit};
use kendall_loadgen::load::{Limits, LoadError, LoadPlan, LoadProgress, PacePlan};
use kendall_protocols::load_result::{JOB_LOOP, LoadResult};
use kendall_units::{QuantityError, Rate, Seconds, parse_rate, parse_seconds, parse_share};

use super::human;
use super::intervals::{self, Intervals};
use super::live::Live;
use super::summary::Summary;
use crate::exit::{Exit, exit_with};
use crate::output;
use crate::paint::Paint;

/// Options of every load.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Closed loop: number of clients; open loop: most connections
    #[arg(long, short = 'c', default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) clients: u32,

    /// Generator threads
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,

    /// How long requests are sent; a bare number is in seconds [default: 10s, or until all of
    /// `--requests` are answered]
    #[arg(long, short = 'z', value_name = "TIME", value_parser = seconds)]
    pub(crate) duration: Option<Seconds>,

    /// Ends the load when this many requests are answered
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) requests: Option<NonZeroU64>,

    /// Longest wait for a reply
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_seconds)]
    pub(crate) timeout: Seconds,

    /// Closed loop: think time between a reply and the next request, such as `40ms`,
    /// `exponential:40ms`, `uniform:10ms..70ms`, `normal:40ms,5ms` or `file:PATH`
    #[arg(long, value_name = "DISTRIBUTION")]
    pub(crate) think_time: Option<String>,

    /// Open loop: mean arrival rate, such as `250/s` or `250`
    #[arg(long, short = 'q', value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<Rate>,

    /// Open loop: `poisson`, `constant`, `gaps:DISTRIBUTION`, `on-off:ON,OFF` (bursts, such as
    /// `on-off:100ms,400ms`), `steps:FROM..TO,BY,EVERY` (such as `steps:100/s..1000/s,100/s,5s`),
    /// `poisson-steps:…`, or `trace:PATH` (one moment per line) [default with --rate: poisson]
    #[arg(long, value_name = "KIND", conflicts_with = "think_time")]
    pub(crate) arrivals: Option<String>,

    /// Open loop: a request that is sent later than this counts as late
    #[arg(long, default_value = "10ms", value_name = "TIME", value_parser = parse_seconds)]
    pub(crate) lateness_limit: Seconds,

    /// Open loop: a larger share of late requests rejects the run
    #[arg(long, default_value = "1%", value_name = "SHARE", value_parser = parse_share)]
    pub(crate) late_share: f64,

    /// Busy-poll for this long before each request is due, instead of sleeping: more punctual, and
    /// costs up to one core per thread. By default the open loop busy-polls all the time where
    /// arrivals are dense (1,000/s per thread) and another core is free, otherwise for 50 µs; the
    /// closed loop sleeps
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub(crate) spin: Option<Seconds>,

    /// Starts at this moment (nanoseconds of CLOCK_MONOTONIC), so that several loads start
    /// together; at once if it has passed
    #[arg(long, value_name = "NS")]
    pub(crate) start_at: Option<u64>,

    /// Seed of all random draws
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,

    /// How the result is printed
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: LoadFormat,

    /// Print no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// How the result of a load is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LoadFormat {
    /// Tables for people.
    #[default]
    Human,
    /// One JSON document: figures first, then the whole result.
    Json,
    /// Figures with their intervals, a row each.
    Csv,
}

/// How long a load takes that says nothing of it.
const USUAL: Seconds = Seconds::new(10.0);

/// Longest load of a stated number of requests: a day.
const LONGEST: Seconds = Seconds::new(86_400.0);
/// Descriptors besides those of the clients: standard streams, files, one or two a thread.
const OTHER_DESCRIPTORS: u64 = 64;

/// A time; a bare number is in seconds.
fn seconds(text: &str) -> Result<Seconds, QuantityError> {
    parse_seconds(text).or_else(|error| parse_seconds(&format!("{text}s")).map_err(|_| error))
}

/// A rate; a bare number is per second.
fn rate(text: &str) -> Result<Rate, QuantityError> {
    parse_rate(text).or_else(|error| parse_rate(&format!("{text}/s")).map_err(|_| error))
}

/// What `--format json` prints: the figures that scripts ask for first, then the whole result.
#[derive(Debug, serde::Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    summary: Summary,
    intervals: Option<Intervals>,
    #[serde(flatten)]
    result: &'a LoadResult,
}

/// A refusal: exit code 2.
pub(crate) fn refuse(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> anyhow::Error {
    exit_with(Exit::Refused, error)
}

/// Which addresses of a host will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Any,
    V4,
    V6,
}

/// The first address of each target; `example` is one as this protocol writes it.
pub(crate) fn resolve(targets: &[String], example: &str) -> anyhow::Result<Vec<SocketAddr>> {
    resolve_as(targets, example, Family::Any)
}

/// As [`resolve`], of one family.
pub(crate) fn resolve_as(
    targets: &[String],
    example: &str,
    family: Family,
) -> anyhow::Result<Vec<SocketAddr>> {
    targets
        .iter()
        .map(|target| {
            let addresses = target.to_socket_addrs().map_err(|error| {
                let text = format!("target `{target}`: {error}; write it like `{example}`");
                if error.kind() == std::io::ErrorKind::InvalidInput {
                    refuse(text)
                } else {
                    exit_with(Exit::NotReady, text)
                }
            })?;
            let all: Vec<SocketAddr> = addresses.collect();
            let fits = |address: &&SocketAddr| match family {
                Family::Any => true,
                Family::V4 => address.is_ipv4(),
                Family::V6 => address.is_ipv6(),
            };
            all.iter().find(fits).copied().ok_or_else(|| {
                let has: Vec<String> = all.iter().map(|one| one.ip().to_string()).collect();
                let what = if has.is_empty() {
                    format!("target `{target}` has no address")
                } else {
                    let has = has.join(", ");
                    format!("target `{target}` has no address of that family; it has {has}")
                };
                exit_with(Exit::NotReady, what)
            })
        })
        .collect()
}

impl Common {
    /// The part of the plan that no protocol changes.
    pub(crate) fn plan(&self, targets: Vec<SocketAddr>) -> anyhow::Result<LoadPlan> {
        let duration = self.duration.unwrap_or(match self.requests {
            Some(_) => LONGEST,
            None => USUAL,
        });
        if duration.as_nanos() == 0 || self.timeout.as_nanos() == 0 {
            return Err(refuse("--duration and --timeout must be above 0"));
        }
        self.room_for_clients(kendall_tier::raise_descriptor_limit())?;
        Ok(LoadPlan {
            targets,
            clients: self.clients as usize,
            threads: self.threads as usize,
            duration_ns: duration.as_nanos(),
            requests: self.requests,
            timeout_ns: self.timeout.as_nanos(),
            pace: self.pace()?,
            seed: self.seed,
            spin_ns: self.spin.map(Seconds::as_nanos),
            start_at_ns: self.start_at,
            limits: Limits {
                lateness_ns: self.lateness_limit.as_nanos(),
                late_share: self.late_share,
                ..Limits::default()
            },
        })
    }

    /// Each client has a connection, which is a descriptor.
    fn room_for_clients(&self, descriptors: u64) -> anyhow::Result<()> {
        let needed = u64::from(self.clients) + OTHER_DESCRIPTORS;
        if descriptors >= needed {
            return Ok(());
        }
        let text = format!(
            "{} clients need {needed} descriptors, and the system allows {descriptors}: raise the hard limit \
             (`ulimit -Hn {needed}`, or LimitNOFILE= of the service), or start fewer clients",
            self.clients
        );
        Err(exit_with(Exit::NotReady, text))
    }

    /// Closed, unless arrivals or a rate are given.
    fn pace(&self) -> anyhow::Result<PacePlan> {
        if self.arrivals.is_some() || self.rate.is_some() {
            if self.think_time.is_some() {
                return Err(refuse(
                    "--think-time belongs to the closed loop, --rate to the open one",
                ));
            }
            let kind = self.arrivals.as_deref().unwrap_or("poisson");
            let arrivals = ArrivalPlan::parse(kind, self.rate.map(Rate::get)).map_err(refuse)?;
            return Ok(PacePlan::Open { arrivals });
        }
        let think_time = self
            .think_time
            .as_deref()
            .map(|text| Distribution::parse(text, Unit::Time))
            .transpose()
            .map_err(refuse)?
            .filter(|think_time| think_time.mean() != Some(0.0));
        Ok(PacePlan::Closed { think_time })
    }

    /// Tells how far the load is, on standard error.
    ///
    /// On a terminal one picture that is drawn again each second, elsewhere a line a second.
    pub(crate) fn progress(&self) -> impl FnMut(&LoadProgress) + use<> {
        let mut live = (!self.quiet && std::io::stderr().is_terminal()).then(Live::default);
        let quiet = self.quiet;
        move |moment| match &mut live {
            _ if quiet => {}
            Some(live) => output::draw(&live.next(moment)),
            None => output::note(&human::progress(moment)),
        }
    }

    /// Prints the result; the exit code says whether it may be used.
    pub(crate) fn print(&self, result: &LoadResult) -> anyhow::Result<Exit> {
        print(result, self.format)
    }
}

/// Prints a result; the exit code says whether it may be used.
pub(crate) fn print(result: &LoadResult, format: LoadFormat) -> anyhow::Result<Exit> {
    // A job has a start and an end, and nothing stationary between them.
    let run = if result.r#loop == JOB_LOOP { None } else { intervals::of(result)? };
    match format {
        LoadFormat::Json => output::json(&Printed {
            summary: Summary::of(result)?,
            intervals: run.as_ref().map(Intervals::new),
            result,
        })?,
        LoadFormat::Human => {
            output::result(&human::table(result, run.as_ref(), Paint::of_results())?);
        }
        LoadFormat::Csv => {
            let nothing = "nothing was measured: no row to print";
            let run = run.ok_or_else(|| exit_with(Exit::RunRejected, nothing))?;
            output::result(&intervals::csv(&run));
        }
    }
    let paint = Paint::of_notes();
    for rejection in &result.rejections {
        output::note(&paint.bad(&format!("rejected: {rejection}")));
    }
    Ok(if result.rejections.is_empty() { Exit::Done } else { Exit::RunRejected })
}

/// A server that is not there is not our failure.
pub(crate) fn load_error(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::Connect { target, source } if source.to_string().contains("certificate") => {
            exit_with(
                Exit::NotReady,
                format!(
                    "{target} has a certificate that this machine does not trust ({source}); \
                     --insecure accepts any certificate"
                ),
            )
        }
        // What TLS cannot read is another protocol, most often plain HTTP.
        LoadError::Connect { target, source }
            if source.kind() == std::io::ErrorKind::InvalidData =>
        {
            let what = format!("{target} does not answer with TLS ({source}); try http://");
            exit_with(Exit::NotReady, what)
        }
        LoadError::Connect { .. } => exit_with(Exit::NotReady, error),
        LoadError::Thread(_) => error.into(),
    }
}

/// Becomes true at SIGINT or SIGTERM, so that the load ends early and its result is printed; a
/// second signal ends the program at once.
pub(crate) fn stop_at_a_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let code = i32::from(Exit::Failure as u8);
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
