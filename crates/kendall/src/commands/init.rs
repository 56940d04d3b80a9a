//! `kendall init`: a commented study for a service that the user has, tried before it is written.

mod command;
mod group;
mod probe;
mod requests;
mod templates;
mod text;
mod write;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use kendall_loadgen::http::Url;
use kendall_study::{LIMITS_ITS_RATE, Options, StudyFile};
use kendall_units::{Seconds, parse_seconds};

use self::command::Looked;
use self::group::RunsAs;
use self::probe::{Attached, Found};
use self::requests::Requests;
#[cfg(feature = "fuzzing")]
pub use self::requests::fuzzing;
use super::run::exit_of;
use crate::exit::{Exit, exit_with, refused};
use crate::output;

/// Writes a commented study for your own service, and tries it
///
/// Finds in the command where the service listens and how many workers it has, starts it on a free
/// port, finds out what it speaks, tries a study of it for a second, and writes the study file.
/// Without a command or a URL it lists templates.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall init -- gunicorn -w 2 -b {address} app:app\n  kendall init -- \
                  python3 -m http.server 8000\n  kendall init --attach http://127.0.0.1:8080/\n  \
                  kendall init --attach http://127.0.0.1:8080/ --unit nginx\n  \
                  kendall init --tier 'db=redis-server --port {port}' \\\n    \
                  --tier 'web=./web --redis {db} --listen {address}'\n  \
                  kendall init --har shop.har -o shop.toml\n  \
                  kendall init --template demo"
)]
pub(crate) struct Init {
    /// A service that is already running, such as http://127.0.0.1:8080/ or 127.0.0.1:11211
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "tier"])]
    attach: Option<String>,

    /// The systemd unit that it runs as: CPU time and memory are read from its control group
    #[arg(long, value_name = "NAME", requires = "attach")]
    unit: Option<String>,

    /// The container that it runs in, by name or id: likewise. Of Compose, the name that `docker compose ps` prints
    #[arg(long, value_name = "NAME", requires = "attach", conflicts_with = "unit")]
    container: Option<String>,

    /// Writes one of the shipped studies; `kendall init` lists them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["command", "attach", "tier"])]
    template: Option<String>,

    /// A tier and its command, for a service of several: in the order of starting, clients talking to the last. A
    /// command names a tier before it as `{NAME}`, which stands for its HOST:PORT
    #[arg(long, value_name = "NAME=COMMAND", conflicts_with = "command")]
    tier: Vec<String>,

    #[command(flatten)]
    requests: Requests,

    /// How long a command may take until it listens, and the service until it answers
    #[arg(long, default_value = "20s", value_name = "TIME", value_parser = parse_seconds)]
    ready_deadline: Seconds,

    /// Path that requests ask for; of gRPC `/SERVICE/METHOD`
    #[arg(long, default_value = "/", value_name = "PATH")]
    path: String,

    /// The study file, which gives the study its name [default: NAME.toml, NAME being the program, with a number where
    /// there is such a file or its results already]
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,

    /// Replaces an existing file
    #[arg(long)]
    force: bool,

    /// The command that starts the service, with `{address}` or `{port}` where it says where to listen
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What a study is to be of.
enum Source<'a> {
    /// A shipped one: its name and its text.
    Template(String, &'static str),
    /// What runs already, by its address.
    Running(&'a str),
    /// Commands to start.
    Commands(Vec<Looked>),
}

impl Source<'_> {
    fn name(&self) -> String {
        match self {
            Self::Template(name, _) => name.clone(),
            Self::Running(target) => of_target(target),
            Self::Commands(tiers) => tiers.last().map(|tier| tier.name.clone()).unwrap_or_default(),
        }
    }
}

impl Init {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if !self.path.starts_with('/') {
            let what =
                format!("--path `{}` has no leading slash; write it like `/health`", self.path);
            return Err(exit_with(Exit::Refused, what));
        }
        if let Some(exit) = self.requests.write(self.out.as_deref(), self.force)? {
            return Ok(exit);
        }
        let Some(source) = self.source()? else {
            output::result(&templates::list());
            return Ok(Exit::Done);
        };
        let (name, file) = self.place(&source);
        write::refuse_taken(&file, self.force)?;
        let text = match source {
            Source::Template(_, text) => text.to_owned(),
            Source::Running(target) => self.attached(target, &name)?,
            Source::Commands(tiers) => self.started(&tiers, &name)?,
        };
        let study = parse(&file, &text, false)?;
        let limited = match self.template {
            Some(_) => None,
            None => try_it(&parse(&file, &text, true)?)?,
        };
        write::text(&file, self.force, &text)?;
        if let Some(why) = limited {
            let what = format!("wrote {}, though {why}", file.display());
            return Err(exit_with(Exit::NotReady, what));
        }
        let plan = kendall_study::Plan::of(&study).map_err(refused)?;
        let minutes =
            study.base.measure.duration.get() * kendall_units::exact_f64(plan.most()) / 60.0;
        output::result(&format!(
            "wrote {file}\n\n  kendall run {file}          measures it: {}, about {} min\n  \
             kendall run {file} --toy    one short run\n  kendall run {file} --dry-run\n",
            kendall_units::counted(plan.most(), "run"),
            minutes.ceil().max(1.0),
            file = file.display(),
        ));
        Ok(Exit::Done)
    }

    /// What the study is called, and its file: by the file where that is stated, else so that neither the file nor
    /// results of that name are there yet.
    fn place(&self, source: &Source<'_>) -> (String, PathBuf) {
        let base = source.name();
        if let Some(file) = &self.out {
            let stem = file.file_stem().map(|stem| text::as_name(&stem.to_string_lossy()));
            return (stem.filter(|stem| !stem.is_empty()).unwrap_or(base), file.clone());
        }
        let file = |name: &str| PathBuf::from(format!("{name}.toml"));
        let is_taken = |name: &str| {
            file(name).symlink_metadata().is_ok() || Path::new("results").join(name).exists()
        };
        // A template has its name in its text.
        if self.force || self.template.is_some() || !is_taken(&base) {
            let file = file(&base);
            return (base, file);
        }
        let mut numbered = (2_u32..10_000).map(|number| format!("{base}-{number}"));
        let name = numbered.find(|name| !is_taken(name)).unwrap_or(base);
        let file = file(&name);
        (name, file)
    }

    /// What the study is to be of; `None` where nothing is asked. Nothing is started yet.
    fn source(&self) -> anyhow::Result<Option<Source<'_>>> {
        if let Some(template) = &self.template {
            let (name, text) = templates::text(template)?;
            return Ok(Some(Source::Template(name, text)));
        }
        if let Some(target) = &self.attach {
            return Ok(Some(Source::Running(target)));
        }
        if self.command.is_empty() && self.tier.is_empty() {
            return Ok(None);
        }
        let tiers = if self.tier.is_empty() {
            Looked::at(&self.command).map(|looked| vec![looked])
        } else {
            Looked::tiers(&self.tier)
        };
        let tiers = tiers.map_err(|what| exit_with(Exit::Refused, what))?;
        let mut programs = tiers.iter().map(|looked| &looked.words[0]);
        if let Some(program) = programs
            .find(|program| !program.contains('{') && !kendall_host::program::is_there(program))
        {
            let what =
                format!("the program `{program}` is not installed: not in PATH, or no such file");
            return Err(exit_with(Exit::NotReady, what));
        }
        Ok(Some(Source::Commands(tiers)))
    }

    fn started(&self, tiers: &[Looked], study: &str) -> anyhow::Result<String> {
        for note in tiers.iter().flat_map(|looked| &looked.notes) {
            output::note(note);
        }
        let (found, calls) = probe::started(tiers, &self.path, self.ready_deadline)?;
        note_found(&found);
        if let Some(Looked { name, unnamed, .. }) = tiers.last() {
            let seen = |other: &&String| calls.contains(&(name.clone(), (*other).clone()));
            for other in unnamed.iter().filter(|other| !seen(other)) {
                output::note(&format!(
                    "clients talk to {name}, the last tier, which was not seen to call {other}; if they talk to \
                     {other}, give it last"
                ));
            }
        }
        let of_tiers = self.tier.iter().map(|tier| format!("--tier '{tier}'"));
        let arguments = if self.tier.is_empty() {
            format!("-- {}", self.command.join(" "))
        } else {
            of_tiers.collect::<Vec<_>>().join(" ")
        };
        let (path, ready_deadline) = (self.path.as_str(), self.ready_deadline);
        let asked = text::Asked { arguments, study, path, ready_deadline };
        Ok(text::processes(&asked, (tiers, &calls), &found))
    }

    /// A study of what runs already.
    fn attached(&self, target: &str, study: &str) -> anyhow::Result<String> {
        let url = Url::parse(target).map_err(|error| exit_with(Exit::Refused, error))?;
        let path = if url.path == "/" { self.path.clone() } else { url.path.clone() };
        let unit = self.unit.as_deref().map(RunsAs::Unit);
        let runs_as = unit.or_else(|| self.container.as_deref().map(RunsAs::Container));
        let mut attached = Attached::find(&url)?;
        attached.group = runs_as.map(|runs_as| runs_as.group()).transpose()?;
        let before = attached.group_cpu_ns();
        let found = if url.tls {
            Found::https()
        } else {
            probe::look(&attached.address, &path, self.ready_deadline)?
        };
        note_found(&found);
        if let Some(group) = &attached.group
            && !url.tls
            && before.is_some()
            && before == attached.group_cpu_ns()
        {
            let what = format!(
                "{} answered, and the control group {group} used no processor time meanwhile: what serves there runs in \
                 another one; name its unit or container",
                attached.address
            );
            return Err(exit_with(Exit::Refused, what));
        }
        let roots = attached.accounting().roots();
        probe::note_who_serves(study, &roots, kendall_host::waits::called(&roots), &roots);
        match (&attached.group, attached.pid) {
            (Some(group), _) => output::note(&format!(
                "it runs in the control group {group}: its CPU time and memory are measured"
            )),
            (None, Some(pid)) => {
                output::note(&format!("process {pid} listens there: its CPU time is measured"))
            }
            (None, None) => output::note(
                "no visible process of this machine listens there: its CPU time is not measured",
            ),
        }
        Ok(text::attached((target, study), &attached, &found, &path))
    }
}

/// What the study of a running service is called: by its host and port.
fn of_target(target: &str) -> String {
    let named = Url::parse(target).map(|url| text::as_name(&format!("{}-{}", url.host, url.port)));
    named.unwrap_or_else(|_| "service".to_owned())
}

fn note_found(found: &Found) {
    let takes =
        found.time.map_or_else(String::new, |time| format!("; a request takes about {time}"));
    output::note(&format!("it speaks {}{takes}", found.speaks()));
}

fn parse(file: &std::path::Path, text: &str, toy: bool) -> anyhow::Result<StudyFile> {
    let study = StudyFile::parse(&file.display().to_string(), text.to_owned(), toy, &[])
        .map_err(|error| exit_with(Exit::Refused, error))?;
    kendall_study::check_programs(&study, &std::env::current_exe()?)
        .map_err(|error| exit_with(exit_of(&error), error))?;
    Ok(study)
}

/// One short run in a folder that is thrown away; why it failed where the service limits its rate, which its study may keep to.
fn try_it(study: &StudyFile) -> anyhow::Result<Option<String>> {
    let folder = tempfile::tempdir()?;
    let options = Options {
        folder: folder.path().join("try"),
        program: std::env::current_exe()?,
        retry_failed: false,
        until_repetition: Some(1),
    };
    let mut reasons = Vec::new();
    let interrupted = AtomicBool::new(false);
    let summary = kendall_study::run(study, &options, &interrupted, &mut |event| {
        if let kendall_study::Event::Ended { run, .. } = event {
            reasons.extend(run.reasons.iter().cloned());
        }
    })
    .map_err(|error| exit_with(exit_of(&error), error))?;
    if summary.done > 0 {
        return Ok(None);
    }
    let what = format!("a short run of the study failed: {}", reasons.join("; "));
    if what.contains(LIMITS_ITS_RATE) {
        Ok(Some(what))
    } else {
        Err(exit_with(Exit::NotReady, what))
    }
}
