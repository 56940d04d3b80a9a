//! Options and steps that loads of every protocol share.

use std::io::IsTerminal as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroU64;

use kendall_loadgen::arrivals::ArrivalPlan;
use kendall_loadgen::http::Values;
use kendall_loadgen::load::{Limits, LoadError, LoadPlan, LoadProgress, PacePlan};
use kendall_loadgen::stages::{Level, Stages};
use kendall_loadgen::tls::{is_answer_by_tls, is_cut};
use kendall_observations::{Condition, Holds};
use kendall_protocols::load_result::LoadResult;
use kendall_report::document::Table;
use kendall_stats::within_run::WithinRun;
use kendall_study::workload::MOST_CLIENTS;
use kendall_tier::distribution::{Distribution, Unit};
use kendall_units::{QuantityError, Rate, Seconds, parse_rate, parse_seconds, parse_share};
use serde_json::{Value, json};

use super::checks::{self, Check};
use super::human;
use super::intervals;
use super::live::Live;
use super::stages;
use super::summary::Summary;
use crate::exit::{Exit, exit_with, refused};
use crate::live::LiveFlag;
use crate::output::{self, Format};
use crate::paint::Paint;

/// Options of every load.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Closed loop: number of clients; open loop: most connections [default: 64]
    #[arg(long, short = 'c', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CLIENTS)))]
    clients: Option<u32>,

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
    /// `on-off:100ms,400ms`), `mmpp:RATE,TIME,RATE,TIME` (two rates in turn, each for an exponential time, such as
    /// `mmpp:900/s,100ms,50/s,400ms`), `steps:FROM..TO,BY,EVERY` (such as `steps:100/s..1000/s,100/s,5s`),
    /// `poisson-steps:…`, or `trace:PATH` (one moment per line) [default with --rate: poisson]
    #[arg(long, value_name = "KIND", conflicts_with = "think_time")]
    pub(crate) arrivals: Option<String>,

    /// Load in stages, in straight lines from one level to the next, the first from zero: of rates (open loop),
    /// such as `30s:100/s,1m:500/s`, or of clients (closed loop), such as `30s:10,1m:50`; `0s:…` jumps
    #[arg(long, value_name = "TIME:LEVEL,…", value_parser = Stages::parse, conflicts_with_all = ["rate", "duration"])]
    stages: Option<Stages>,

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

    /// Fails (exit code 4) if this holds: `p99 > 10ms`, `mean > 2ms`, `errors > 0.1%`, `throughput < 900/s`; may
    /// be repeated. With the limit inside the interval it cannot be told, which fails only with `--strict`
    #[arg(long, value_name = "CONDITION", value_parser = Condition::parse)]
    fail_if: Vec<Condition>,

    /// Fails also if it cannot be told whether a condition holds
    #[arg(long, requires = "fail_if")]
    strict: bool,

    /// How the result is printed
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: LoadFormat,

    /// Print no progress
    #[arg(long)]
    pub(crate) quiet: bool,

    /// How progress is told on standard error: json is a line a second
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", conflicts_with = "quiet")]
    progress: Format,

    #[command(flatten)]
    live: LiveFlag,
}

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

const USUAL_CLIENTS: u32 = 64;

/// Duration of a load without `--duration`.
const USUAL: Seconds = Seconds::new(10.0);

/// Longest load of a stated number of requests: a day.
const LONGEST: Seconds = Seconds::new(86_400.0);

/// Descriptors beside connections: standard streams, files, one or two a thread.
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
    intervals: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checks: Vec<Value>,
    #[serde(flatten)]
    result: &'a LoadResult,
}

/// A name and what it stands for, which varies.
pub(super) fn varied(text: &str) -> Result<(String, Values), String> {
    Values::parse(text).map_err(|error| kendall_units::chain(&error))
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
                    refused(text)
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
    /// The part of the plan that no protocol changes; `connections` of the clients are open at a time.
    pub(crate) fn plan(
        &self,
        targets: Vec<SocketAddr>,
        connections: u64,
    ) -> anyhow::Result<LoadPlan> {
        self.stages_alone()?;
        let duration = match (&self.stages, self.duration, self.requests) {
            (Some(stages), _, _) => stages.length(),
            (None, Some(duration), _) => duration,
            (None, None, Some(_)) => LONGEST,
            (None, None, None) => USUAL,
        };
        if duration.as_nanos() == 0 || self.timeout.as_nanos() == 0 {
            return Err(refused("--duration and --timeout must be above 0"));
        }
        room_for(connections, kendall_tier::raise_descriptor_limit())?;
        Ok(LoadPlan {
            targets,
            clients: self.clients() as usize,
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

    /// Makes of a plan that of an access log: its arrivals, until its end unless a duration is given.
    pub(super) fn replaying(&self, plan: LoadPlan, moments_ns: Vec<u64>) -> LoadPlan {
        let last_ns = moments_ns.last().copied().unwrap_or(0);
        let whole = self.duration.is_none() && self.requests.is_none();
        let rest_ns = last_ns.saturating_add(self.timeout.as_nanos());
        // All that were answered end it sooner.
        let all = NonZeroU64::new(moments_ns.len() as u64);
        let (duration_ns, requests) =
            if whole { (rest_ns, all) } else { (plan.duration_ns, plan.requests) };
        let pace = PacePlan::Open { arrivals: ArrivalPlan::Trace(moments_ns) };
        LoadPlan { duration_ns, requests, pace, ..plan }
    }

    /// Closed, unless arrivals or a rate are given.
    fn pace(&self) -> anyhow::Result<PacePlan> {
        let stages = |of| self.stages.as_ref().filter(|stages| stages.of == of);
        if let Some(rates) = stages(Level::Rate) {
            let kind = self.arrivals.as_deref().unwrap_or("poisson");
            let arrivals = ArrivalPlan::in_stages(rates.clone(), kind).map_err(refused)?;
            return Ok(PacePlan::Open { arrivals });
        }
        if self.arrivals.is_some() || self.rate.is_some() {
            if self.think_time.is_some() {
                return Err(refused(
                    "--think-time belongs to the closed loop, --rate to the open one",
                ));
            }
            let kind = self.arrivals.as_deref().unwrap_or("poisson");
            let arrivals = ArrivalPlan::parse(kind, self.rate.map(Rate::get)).map_err(refused)?;
            return Ok(PacePlan::Open { arrivals });
        }
        let think_time = self
            .think_time
            .as_deref()
            .map(|text| Distribution::parse(text, Unit::Time))
            .transpose()
            .map_err(refused)?
            .filter(|think_time| think_time.mean() != Some(0.0));
        Ok(match stages(Level::Clients) {
            Some(clients) => PacePlan::Stages { think_time, clients: clients.clone() },
            None => PacePlan::Closed { think_time },
        })
    }

    /// Tells how far the load is, on standard error and on a page where one is asked for.
    ///
    /// On a terminal one picture that is drawn again each second, elsewhere a line a second.
    pub(crate) fn progress(&self) -> anyhow::Result<impl FnMut(&LoadProgress) + use<>> {
        let page = self.live.page("kendall load", self.progress)?;
        let (quiet, json) = (self.quiet, self.progress == Format::Json);
        let draws = !quiet && !json && std::io::stderr().is_terminal();
        let mut live = draws.then(Live::default);
        Ok(move |moment: &LoadProgress| {
            if let Some(page) = &page {
                page.second(second(moment));
            }
            match &mut live {
                _ if quiet => {}
                _ if json => output::note(&second(moment).to_string()),
                Some(live) => output::draw(&live.next(moment)),
                None => output::note(&human::progress(moment)),
            }
        })
    }

    /// Clients, or most connections: of stages of clients as many as their highest level.
    pub(crate) fn clients(&self) -> u32 {
        match self.stages.as_ref().filter(|stages| stages.of == Level::Clients) {
            Some(stages) => u32::try_from(kendall_units::whole_u64(stages.highest())),
            None => Ok(self.clients.unwrap_or(USUAL_CLIENTS)),
        }
        .unwrap_or(u32::MAX)
    }

    /// Refuses what says the same as the stages, or what they leave no place for.
    fn stages_alone(&self) -> anyhow::Result<()> {
        let Some(stages) = &self.stages else { return Ok(()) };
        let what = match stages.of {
            Level::Rate if self.think_time.is_some() => "--think-time belongs to stages of clients",
            Level::Clients if self.arrivals.is_some() => "--arrivals belongs to stages of rates",
            Level::Clients if self.clients.is_some() => "--stages says how many clients there are",
            _ if self.format == LoadFormat::Csv => {
                "--format csv has figures with intervals, and a load in stages has none; use json"
            }
            Level::Clients if self.clients() > MOST_CLIENTS => {
                "--stages has more than 100,000 clients"
            }
            _ => return Ok(()),
        };
        Err(refused(what))
    }

    /// Prints the result; the exit code says whether it may be used, and whether a stated check failed.
    pub(crate) fn print(&self, result: &LoadResult) -> anyhow::Result<Exit> {
        let of_stages = self
            .stages
            .as_ref()
            .map(|stages| stages::of(result, stages).map(|all| stages::table(&all, stages)));
        let of_stages = of_stages.transpose()?;
        // A load that changes has no one rate and no one distribution that an interval could be of.
        let steady = self.stages.is_none();
        let quantiles = self.fail_if.iter().filter_map(|condition| condition.metric.quantile());
        let run = intervals::of(result, &quantiles.collect::<Vec<_>>())?.filter(|_| steady);
        let checks = checks::all(&self.fail_if, result, run.as_ref())?;
        let mut printed = Printed::of(result, run.as_ref())?;
        printed.stages = of_stages.as_ref().map(Table::objects);
        printed.checks = checks.iter().map(Check::json).collect();
        let exit = printed.print(run.as_ref(), of_stages, self.format)?;
        for check in &checks {
            output::note(&check.told(Paint::of_notes()));
        }
        let fails = |check: &Check<'_>| {
            check.holds().fails() || self.strict && check.holds() == Holds::CannotTell
        };
        Ok(if exit == Exit::Done && checks.iter().any(fails) { Exit::CheckFailed } else { exit })
    }
}

/// Each connection is a descriptor: refused where the system allows too few.
fn room_for(connections: u64, descriptors: u64) -> anyhow::Result<()> {
    let needed = connections + OTHER_DESCRIPTORS;
    if descriptors >= needed {
        return Ok(());
    }
    let text = format!(
        "{connections} connections need {needed} descriptors, and the system allows {descriptors}: raise the hard \
         limit (`ulimit -Hn {needed}`, or LimitNOFILE= of the service), or start fewer clients"
    );
    Err(exit_with(Exit::NotReady, text))
}

/// Prints the result of a job, which has a start and an end, and nothing stationary between them.
pub(crate) fn print_job(result: &LoadResult, format: LoadFormat) -> anyhow::Result<Exit> {
    Printed::of(result, None)?.print(None, None, format)
}

impl<'a> Printed<'a> {
    fn of(result: &'a LoadResult, run: Option<&WithinRun>) -> anyhow::Result<Self> {
        let (summary, intervals) = (Summary::of(result)?, run.map(intervals::json));
        Ok(Self { summary, intervals, stages: None, checks: Vec::new(), result })
    }

    /// Prints it; the exit code says whether it may be used.
    fn print(
        &self,
        run: Option<&WithinRun>,
        stages: Option<Table>,
        format: LoadFormat,
    ) -> anyhow::Result<Exit> {
        match format {
            LoadFormat::Json => output::json(self)?,
            LoadFormat::Human => {
                let mut document = human::document(self.result, run)?;
                if let Some(table) = stages {
                    document.table(table);
                    document.text("no intervals: a load in stages is not the same all the time");
                }
                output::document(&document);
            }
            LoadFormat::Csv => {
                let nothing = "nothing was measured that has intervals: no row to print";
                let run = run.ok_or_else(|| exit_with(Exit::RunRejected, nothing))?;
                output::result(&intervals::csv(run));
            }
        }
        let paint = Paint::of_notes();
        for rejection in &self.result.rejections {
            output::note(&paint.bad(&format!("rejected: {rejection}")));
        }
        Ok(if self.result.rejections.is_empty() { Exit::Done } else { Exit::RunRejected })
    }
}

/// A second of load, with the names of a study's.
fn second(moment: &LoadProgress) -> Value {
    json!({
        "event": "live",
        "elapsed_s": moment.elapsed_s,
        "throughput_per_s": moment.completed,
        "errors": moment.errors,
        "response_time_mean_s": moment.response_time_mean_ns.map(|ns| ns / 1e9),
        "response_time_p99_s": moment.response_time_p99_ns.map(|ns| Seconds::from_nanos(ns).get()),
    })
}

/// What a command's flags can do where TLS fails.
pub(crate) struct TlsAdvice {
    /// About a certificate that is not trusted.
    pub(crate) trust: &'static str,
    /// About one of an authority, behind what else can be done.
    pub(crate) authority: &'static str,
    /// How a server without TLS is reached.
    pub(crate) plain: &'static str,
}

pub(crate) fn load_error(error: LoadError) -> anyhow::Error {
    let flags = TlsAdvice {
        trust: "--insecure accepts any certificate",
        authority: ", or use --insecure",
        plain: "http://, or no --tls",
    };
    flags.explain(error)
}

impl TlsAdvice {
    /// A server that is not there is not our failure.
    pub(crate) fn explain(&self, error: LoadError) -> anyhow::Error {
        let Self { trust, authority, plain } = self;
        let (target, source) = match error {
            LoadError::Connect { target, source } => (target, source),
            LoadError::Refused { .. } => return exit_with(Exit::NotReady, error),
            LoadError::Thread(_) => return error.into(),
        };
        let (said, why) = (source.to_string(), kendall_units::chain(&source));
        let what = if is_answer_by_tls(&source) {
            format!("{target}: {said}")
        } else if said.contains("CaUsedAsEndEntity") {
            format!(
                "{target} shows the certificate of an authority as its own, which is not taken; make one that the \
                 authority signs{authority}"
            )
        } else if said.contains("certificate") {
            format!("{target} has a certificate that this machine does not trust ({said}); {trust}")
        } else if said.contains("alert") {
            // Such as by a server that wants a certificate of its clients.
            format!("{target} refused the TLS connection ({said})")
        } else if is_cut(&why) {
            format!(
                "{target} ended the connection as it began ({why}); over TLS it may want a certificate of its clients \
                 (--client-certificate, --client-key)"
            )
        } else if source.kind() == std::io::ErrorKind::InvalidData {
            // What TLS cannot read is another protocol, most often plain HTTP.
            format!("{target} does not answer with TLS ({said}); try it without: {plain}")
        } else {
            return exit_with(Exit::NotReady, LoadError::Connect { target, source });
        };
        exit_with(Exit::NotReady, what)
    }
}
