//! `kendall init`: a commented study for a service that the user has, tried before it is written.

mod command;
mod probe;
mod templates;
mod text;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use kendall_loadgen::http::Url;
use kendall_study::{Options, StudyFile};

use self::command::Looked;
use self::probe::{Attached, Found};
use super::run::exit_of;
use crate::exit::{Exit, exit_with};
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
                  kendall init --template demo"
)]
pub(crate) struct Init {
    /// A service that is already running, such as http://127.0.0.1:8080/ or 127.0.0.1:11211
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    attach: Option<String>,

    /// Writes one of the shipped studies; `kendall init` lists them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["command", "attach"])]
    template: Option<String>,

    /// Path that requests ask for
    #[arg(long, default_value = "/", value_name = "PATH")]
    path: String,

    /// The study file [default: NAME.toml, NAME being the program]
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
    /// A command to start.
    Command(Looked),
}

impl Source<'_> {
    fn name(&self) -> String {
        match self {
            Self::Template(name, _) => name.clone(),
            Self::Running(_) => "service".to_owned(),
            Self::Command(looked) => looked.name.clone(),
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
        let Some(source) = self.source()? else {
            output::result(&templates::list());
            return Ok(Exit::Done);
        };
        let name = source.name();
        let file = self.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.toml")));
        if file.exists() && !self.force {
            let what = format!(
                "{} exists; choose another file with --out, or replace it with --force",
                file.display()
            );
            return Err(exit_with(Exit::Refused, what));
        }
        let text = match source {
            Source::Template(_, text) => text.to_owned(),
            Source::Running(target) => self.attached(target)?,
            Source::Command(looked) => self.started(&looked)?,
        };
        let study = parse(&file, &text, false)?;
        if self.template.is_none() {
            try_it(&parse(&file, &text, true)?)?;
        }
        std::fs::write(&file, &text).map_err(|error| {
            exit_with(Exit::NotReady, format!("{} cannot be written: {error}", file.display()))
        })?;
        let plan = kendall_study::Plan::of(&study)
            .map_err(|problem| exit_with(Exit::Refused, study.refuse(problem)))?;
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

    /// What the study is to be of; `None` where nothing is asked. Nothing is started yet.
    fn source(&self) -> anyhow::Result<Option<Source<'_>>> {
        if let Some(template) = &self.template {
            let (name, text) = templates::text(template)?;
            return Ok(Some(Source::Template(name, text)));
        }
        if let Some(target) = &self.attach {
            return Ok(Some(Source::Running(target)));
        }
        if self.command.is_empty() {
            return Ok(None);
        }
        let looked = Looked::at(&self.command).map_err(|what| exit_with(Exit::Refused, what))?;
        let program = &looked.words[0];
        if !program.contains('{') && !kendall_host::program::is_there(program) {
            let what =
                format!("the program `{program}` is not installed: not in PATH, or no such file");
            return Err(exit_with(Exit::NotReady, what));
        }
        Ok(Some(Source::Command(looked)))
    }

    /// A study that starts the command.
    fn started(&self, looked: &Looked) -> anyhow::Result<String> {
        for note in &looked.notes {
            output::note(note);
        }
        let found = probe::started(looked, &self.path)?;
        note_found(&found);
        Ok(text::processes(&self.command, looked, &found, &self.path))
    }

    /// A study of what runs already.
    fn attached(&self, target: &str) -> anyhow::Result<String> {
        let url =
            if target.contains("://") { target.to_owned() } else { format!("http://{target}/") };
        let url = Url::parse(&url).map_err(|error| exit_with(Exit::Refused, error))?;
        let path = if url.path == "/" { self.path.clone() } else { url.path.clone() };
        let attached = Attached::find(&url)?;
        let found = if url.tls {
            Found::https()
        } else {
            probe::look(&attached.address, &path, "the service")?
        };
        note_found(&found);
        match attached.pid {
            Some(pid) => {
                output::note(&format!("process {pid} listens there: its CPU time is measured"))
            }
            None => output::note(
                "no visible process of this machine listens there: its CPU time is not measured",
            ),
        }
        Ok(text::attached(target, &attached, &found, &path))
    }
}

fn note_found(found: &Found) {
    output::note(&format!("it speaks {}; a request takes about {}", found.speaks(), found.takes()));
}

fn parse(file: &std::path::Path, text: &str, toy: bool) -> anyhow::Result<StudyFile> {
    let study = StudyFile::parse(&file.display().to_string(), text.to_owned(), toy, &[])
        .map_err(|error| exit_with(Exit::Refused, error))?;
    kendall_study::check_programs(&study, &std::env::current_exe()?)
        .map_err(|error| exit_with(exit_of(&error), error))?;
    Ok(study)
}

/// One short run in a folder that is thrown away.
fn try_it(study: &StudyFile) -> anyhow::Result<()> {
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
        return Ok(());
    }
    let what = format!("a short run of the study failed: {}", reasons.join("; "));
    Err(exit_with(Exit::NotReady, what))
}
