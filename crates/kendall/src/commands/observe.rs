//! `kendall observe`: operational analysis of a running system from its monitoring.

mod watch;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use kendall_fit::change::Change;
use kendall_fit::open::{Answer, ChangeError};
use kendall_observations::Objective;
use kendall_observe::{
    Authentication, CsvTable, Grid, Observed, PRESETS, Prometheus, Recorder, Recording, Samples,
    System, analyze, change, discover, fetch, objective, report,
};
use kendall_report::document::Section;

use crate::exit::{Exit, exit_with, refused};
use crate::output::{self, Format};

/// What cannot stand beside `--watch`, nor beside what only it takes.
const NO_WATCH: [&str; 8] =
    ["record", "recorded", "samples", "csv", "out", "what_if", "objective", "to"];

/// What has no place where nothing is analyzed.
const OF_AN_ANALYSIS: [&str; 15] = [
    "system",
    "prometheus",
    "from",
    "to",
    "what_if",
    "objective",
    "record",
    "recorded",
    "samples",
    "csv",
    "step",
    "out",
    "watch",
    "metrics",
    "format",
];

/// The time that is analyzed by default.
const USUAL: &str = "-1h";

/// Analyzes a running system from its monitoring: no load, no agent, no change to it
///
/// The system file lists the tiers, who calls whom, and which queries give their figures;
/// `--presets` lists the exporters with known queries. The analysis finds what saturates first and
/// at which load, checks the monitoring with operational laws, and fits a network of queues to the
/// first part of the time, which is scored on the rest.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  kendall observe examples/observed/system.toml\n  \
                  kendall observe system.toml --prometheus http://127.0.0.1:9090 --from=-6h \
                  --what-if load=2\n  \
                  kendall observe system.toml --prometheus http://127.0.0.1:9090 --record day1\n  \
                  kendall observe system.toml --prometheus http://127.0.0.1:9090 --watch 1min \
                  --metrics 127.0.0.1:9105"
)]
pub(crate) struct Observe {
    /// File that describes the system
    #[arg(value_name = "SYSTEM.toml", required_unless_present_any = ["presets", "discover"])]
    system: Option<PathBuf>,

    /// Address of the Prometheus [default: the file's `prometheus`]
    #[arg(long, value_name = "URL")]
    prometheus: Option<String>,

    /// Begin: a Unix time, or a time before now such as `-6h` [default: -1h]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,

    /// End: Unix time, or a time before now such as `-10min` [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,

    /// A question: `load=2` (twice the present load), `rate=500/s`, `class.NAME=2` (twice as many
    /// requests of a class), `TIER.servers=6`, `TIER.speed=1.5`, `TIER.hit_ratio=0.9`; several with
    /// commas make one question; may be repeated
    #[arg(long, value_name = "QUESTION")]
    what_if: Vec<String>,

    /// An objective such as `p99 < 500ms` or `mean < 20ms`: up to which load was it met? May be repeated
    #[arg(long, value_name = "OBJECTIVE")]
    objective: Vec<String>,

    /// Store every answer in this folder, with the system file: `kendall observe DIR/system.toml` analyzes it elsewhere
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// Analyze a folder that `--record` made, without a server
    #[arg(long, value_name = "DIR", conflicts_with_all = ["prometheus", "record"])]
    recorded: Option<PathBuf>,

    /// Analyze samples: OpenMetrics or Prometheus text with timestamps, what `promtool tsdb dump`
    /// prints, or a folder with pages named JOB/UNIXTIME.txt; without a server
    #[arg(long, value_name = "PATH", conflicts_with_all = ["prometheus", "record", "recorded"])]
    samples: Option<PathBuf>,

    /// Analyze a table with the columns time_s, TIER.QUANTITY, …, without a server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prometheus", "record", "recorded", "samples"])]
    csv: Option<PathBuf>,

    /// File with `USER:PASSWORD` for basic authentication
    #[arg(long, value_name = "FILE", conflicts_with = "bearer_file")]
    basic_file: Option<PathBuf>,

    /// File with a bearer token
    #[arg(long, value_name = "FILE")]
    bearer_file: Option<PathBuf>,

    /// Certificate authorities (PEM) of the server; by default those that browsers trust
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Distance between the queried moments [default: the file's `step`]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["recorded", "csv", "watch"])]
    step: Option<String>,

    /// Write report.html, report.json and tables/*.csv into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Repeat the analysis at this interval: headroom of each tier, and when it saturates if the
    /// load keeps growing
    #[arg(long, value_name = "TIME", conflicts_with_all = NO_WATCH)]
    watch: Option<String>,

    /// With --watch: serve the results as Prometheus metrics
    #[arg(long, value_name = "HOST:PORT", requires = "watch", conflicts_with_all = NO_WATCH)]
    metrics: Option<SocketAddr>,

    /// With --watch: how far back growth is estimated
    #[arg(long, value_name = "TIME", default_value = "28d", requires = "watch")]
    growth: String,

    /// With --watch: end after this many repetitions
    #[arg(long, value_name = "N", requires = "watch", conflicts_with_all = NO_WATCH)]
    looks: Option<u64>,

    /// Lists the exporters with known queries
    #[arg(long, conflicts_with_all = OF_AN_ANALYSIS, conflicts_with_all = ["basic_file", "bearer_file", "ca_file"])]
    presets: bool,

    /// Prints a system file with what Kendall recognizes in a Prometheus
    #[arg(long, value_name = "URL", conflicts_with_all = OF_AN_ANALYSIS, conflicts_with = "presets")]
    discover: Option<String>,

    /// With --discover: the tier that clients call, where it cannot be known
    #[arg(long, value_name = "TIER", requires = "discover")]
    entry: Option<String>,

    /// How the result is printed
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
}

impl Observe {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if self.presets {
            output::result(&presets());
            return Ok(Exit::Done);
        }
        if let Some(url) = &self.discover {
            output::result(&self.discovered(url)?);
            return Ok(Exit::Done);
        }
        // What it requires cannot stand beside a system file, so that the parser of arguments requires it no more.
        if self.entry.is_some() {
            return Err(refused("--entry goes with --discover; a system file says `entry` itself"));
        }
        let path = self.system.clone().unwrap_or_default();
        let text = kendall_tier::read_text(&path, kendall_tier::LARGEST_FILE)
            .map_err(|error| refused(format!("{}: {error}", path.display())))?;
        let refuse = |error| refused(format!("{}: {error}", path.display()));
        let step = self.step.as_ref().map(|step| watch::whole_seconds("--step", step));
        let mut system = System::parse_at(&text, step.transpose()?).map_err(refuse)?;
        if self.csv.is_none() {
            system.queried().map_err(refuse)?;
        }
        if let Some(every) = &self.watch {
            system.whole_windows().map_err(refuse)?;
            return self.watch(&system, &text, every);
        }
        // A stored observation keeps its step, though the file may have changed.
        if let Some(step_s) = self.step_there(&path, &system)? {
            system = System::parse_at(&text, Some(step_s)).map_err(refuse)?;
        }
        system.whole_windows().map_err(refuse)?;
        let changes = self.questions(&system)?;
        let objectives = self.objective.iter().map(|text| Objective::parse(text));
        let objectives = objectives.collect::<Result<Vec<Objective>, String>>().map_err(refused)?;
        let observed = self.observe(&path, &text, &system)?;
        let analysis = analyze(&system, &observed).map_err(refused)?;
        let fitted = analysis.fitted();
        let answers = changes.iter().map(|(text, changes)| fitted.answer(changes, text, 1));
        let (answers, unanswered): (Vec<_>, Vec<_>) = answers.partition(Result::is_ok);
        let answers: Vec<Answer> = answers.into_iter().flatten().collect();
        let unanswered: Vec<ChangeError> = unanswered.into_iter().filter_map(Result::err).collect();
        let mut report = report::report(&system, &observed, &analysis, &answers);
        let met = objectives.iter().map(|asked| objective(&system, &observed, &analysis, asked));
        let not_told = unanswered
            .iter()
            .map(|error| format!("{}: cannot tell: {}.", error.text, error.reason));
        report::add(&mut report, not_told.chain(met).collect());
        if let Some(folder) = &self.out {
            let written = kendall_report::write_as(folder, "report", &report)?;
            output::note(&format!("report {}", written.html.display()));
        }
        output::print(self.format, &report, || human(&report))?;
        match unanswered.into_iter().next() {
            Some(error) => Err(refused(error)),
            None => Ok(Exit::Done),
        }
    }

    fn watch(&self, system: &System, text: &str, every: &str) -> anyhow::Result<Exit> {
        let now_s = self::now_s()?;
        let from_s = moment("--from", self.from.as_deref().unwrap_or(USUAL), now_s)?;
        let watch = watch::Watch {
            text: text.to_owned(),
            every: Duration::from_secs(watch::whole_seconds("--watch", every)?),
            seen_s: now_s.saturating_sub(from_s),
            growth_s: watch::whole_seconds("--growth", &self.growth)?,
            looks: self.looks,
            metrics: self.metrics,
            format: self.format,
        };
        watch.run(self.server(system)?, self::now_s)
    }

    fn server(&self, system: &System) -> anyhow::Result<Prometheus> {
        let url = self.prometheus.as_ref().or(system.prometheus.as_ref()).ok_or_else(|| {
            refused("which server? give --prometheus URL, or `prometheus = \"URL\"` in the file")
        })?;
        self.server_at(url)
    }

    fn server_at(&self, url: &str) -> anyhow::Result<Prometheus> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let place = url.rsplit_once("//").map_or(url, |(_, rest)| rest);
            // Nobody's password is printed.
            let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
            return Err(refused(format!(
                "an address of a server begins with http:// or https://: write it like `http://{place}`"
            )));
        }
        let server = Prometheus::new(url, &self.authentication()?);
        let Some(path) = &self.ca_file else { return Ok(server) };
        let refuse = |why: String| refused(format!("--ca-file {}: {why}", path.display()));
        let pem = kendall_tier::read_file(path, kendall_tier::LARGEST_FILE)
            .map_err(|error| refuse(error.to_string()))?;
        server.with_authorities(&pem).map_err(refuse)
    }

    fn questions(&self, system: &System) -> anyhow::Result<Vec<(String, Vec<Change>)>> {
        self.what_if
            .iter()
            .map(|text| {
                let changes = text
                    .split(',')
                    .map(|part| change(part.trim(), system).map_err(refused))
                    .collect::<anyhow::Result<Vec<Change>>>()?;
                Ok((text.clone(), changes))
            })
            .collect()
    }

    /// The folder of a recording, where there is one to be analyzed.
    fn folder(&self, path: &Path, system: &System) -> Option<PathBuf> {
        let beside = |folder: &String| path.parent().unwrap_or(Path::new("")).join(folder);
        match (&self.recorded, &self.prometheus, &system.recorded) {
            _ if self.csv.is_some() || self.samples.is_some() => None,
            (Some(folder), ..) => Some(folder.clone()),
            (None, None, Some(folder)) => Some(beside(folder)),
            _ => None,
        }
    }

    /// Distance of the moments of a recording or a table, where the system says another one.
    fn step_there(&self, path: &Path, system: &System) -> anyhow::Result<Option<u64>> {
        let (what, step_s) = if let Some(path) = &self.csv {
            (path.clone(), Some(CsvTable::open(path).map_err(refused)?.step_s()))
        } else if let Some(folder) = self.folder(path, system) {
            let grid = Recording::open(&folder).map_err(refused)?.grid();
            (folder, grid.map(|grid| grid.step_s))
        } else {
            return Ok(None);
        };
        let step_s = step_s.filter(|step_s| *step_s != system.step_s);
        if let (Some(step_s), Some(_)) = (step_s, &self.step) {
            return Err(refused(format!(
                "{} has a step of {step_s} s, which cannot be changed: leave --step out",
                what.display()
            )));
        }
        Ok(step_s)
    }

    fn observe(&self, path: &Path, text: &str, system: &System) -> anyhow::Result<Observed> {
        if let Some(path) = &self.csv {
            let mut table = CsvTable::open(path).map_err(refused)?;
            let own = table.system(system).map_err(refused)?;
            let grid = self.cut(table.grid(system).map_err(refused)?)?;
            return fetch(&own, &mut table, grid).map_err(refused);
        }
        if let Some(path) = &self.samples {
            let mut samples = Samples::open(path).map_err(refused)?;
            let held = samples.span_s();
            let (first, last) =
                held.ok_or_else(|| refused(format!("{} holds no samples", path.display())))?;
            let whole = |seconds: f64| kendall_units::whole_u64(seconds);
            let grid = Grid::new(whole(first.ceil()), whole(last), system.step_s);
            let grid = self.cut(grid.map_err(refused)?)?;
            return fetch(system, &mut samples, grid).map_err(refused);
        }
        if let Some(folder) = self.folder(path, system) {
            if self.record.is_some() {
                return Err(refused(format!(
                    "--record: {} is a recording already; copy its folder, or give --prometheus to record from a server",
                    folder.display()
                )));
            }
            if self.from.is_some() || self.to.is_some() {
                return Err(refused(
                    "a recording is analyzed whole: --from and --to choose a time of a server (then give \
                     --prometheus), of --samples or of --csv",
                ));
            }
            let mut recording = Recording::open(&folder).map_err(refused)?;
            let grid = recording
                .grid()
                .ok_or_else(|| refused(format!("{} holds no answers", folder.display())))?;
            return fetch(system, &mut recording, grid).map_err(refused);
        }
        let mut server = self.server(system)?;
        let grid = self.grid(system.step_s)?;
        match &self.record {
            None => fetch(system, &mut server, grid).map_err(not_ready),
            Some(folder) => {
                let mut recorder = Recorder::new(&mut server, folder).map_err(refused)?;
                let observed = fetch(system, &mut recorder, grid).map_err(not_ready)?;
                recorder.finish(text, system).map_err(|error| exit_with(Exit::NotReady, error))?;
                Ok(observed)
            }
        }
    }

    fn authentication(&self) -> anyhow::Result<Authentication> {
        let read = |path: &PathBuf| {
            kendall_tier::read_text(path, kendall_tier::LARGEST_FILE)
                .map(|text| text.trim().to_owned())
                .map_err(|error| refused(format!("{}: {error}", path.display())))
        };
        if let Some(path) = &self.bearer_file {
            return Ok(Authentication::Bearer(read(path)?));
        }
        let Some(path) = &self.basic_file else { return Ok(Authentication::None) };
        let text = read(path)?;
        let (user, password) = text
            .split_once(':')
            .ok_or_else(|| refused(format!("{} does not hold USER:PASSWORD", path.display())))?;
        Ok(Authentication::Basic { user: user.to_owned(), password: password.to_owned() })
    }

    /// The part of a time that was asked for.
    fn cut(&self, grid: Grid) -> anyhow::Result<Grid> {
        let (from, to) = (self.from.as_deref(), self.to.as_deref());
        let from = from.map_or(Ok(grid.from_s), |text| moment("--from", text, grid.to_s()))?;
        let to = to.map_or(Ok(grid.to_s()), |text| moment("--to", text, grid.to_s()))?;
        Grid::new(from.max(grid.from_s), to.min(grid.to_s()), grid.step_s).map_err(refused)
    }

    fn grid(&self, step_s: u64) -> anyhow::Result<Grid> {
        let now_s = now_s()?;
        let from = moment("--from", self.from.as_deref().unwrap_or(USUAL), now_s)?;
        let to = self.to.as_deref().map_or(Ok(now_s), |to| moment("--to", to, now_s))?;
        Grid::new(from, to, step_s).map_err(refused)
    }

    fn discovered(&self, url: &str) -> anyhow::Result<String> {
        let mut server = self.server_at(url)?;
        let jobs = server.jobs().map_err(|error| exit_with(Exit::NotReady, error))?;
        discover::system_file(url, &jobs, self.entry.as_deref()).map_err(refused)
    }
}

#[expect(clippy::disallowed_methods, reason = "`now` is where the time of a look ends")]
fn now_s() -> anyhow::Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(now.as_secs())
}

fn not_ready(error: kendall_observe::FetchError) -> anyhow::Error {
    match error {
        kendall_observe::FetchError::Source(
            source @ (kendall_observe::SourceError::Unreachable { .. }
            | kendall_observe::SourceError::Silent { .. }
            | kendall_observe::SourceError::Status { .. }),
        ) => exit_with(Exit::NotReady, source),
        other => refused(other),
    }
}

/// Unix time, or a time before now.
fn moment(option: &str, text: &str, now_s: u64) -> anyhow::Result<u64> {
    let expected = "write Unix time such as `1764000000`, or a time before now such as `-6h`";
    if let Some(before) = text.strip_prefix('-') {
        let before = watch::whole_seconds(option, before)
            .map_err(|error| refused(format!("{error}; {expected}")))?;
        return Ok(now_s.saturating_sub(before));
    }
    text.parse().map_err(|_| refused(format!("{option} {text}: {expected}")))
}

fn presets() -> String {
    let mut lines = vec!["presets of `kendall observe`:".to_owned()];
    for preset in PRESETS.iter() {
        let quantities: Vec<&str> =
            preset.queries().keys().map(|quantity| quantity.name()).collect();
        lines.push(format!("  {:<11} {}", preset.name, preset.what));
        lines.push(format!("  {:<11}   gives {}", "", quantities.join(", ")));
    }
    lines.join("\n")
}

fn human(report: &kendall_report::Report) -> Section {
    let mut document = Section::new("summary", report.title.as_str());
    document.text(format!("{}\n", report.byline));
    document.list(report.summary.clone());
    document
}
