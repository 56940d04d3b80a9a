//! `kendall run`: a study, from its file to its report.

mod checks;
mod dry_run;
mod first;
mod progress;
pub(crate) mod summary;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::error::{ContextKind, ContextValue};
use kendall_store::{Results, StoreError};
use kendall_study::{Options, StudyError, StudyFile, Summary};

pub(super) use self::dry_run::duration;
use self::progress::Progress;
pub(super) use self::progress::what_came;
use self::summary::Told;
use crate::exit::{Exit, exit_with, interrupt_at_the_end_of_input, refused, stop_at_a_signal};
use crate::live::{LiveFlag, LivePage};
use crate::output::{self, Format};
use crate::paint::Paint;

/// Runs a study, or resumes one that was interrupted
///
/// Starts the system, loads it, measures every configuration of the study file, stores each run
/// when it ends, and writes the report. After a kill or Ctrl-C, the same command resumes the study.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall run studies/demo.toml --out results/demo\n  kendall run \
                  studies/demo.toml --dry-run"
)]
pub(crate) struct RunCommand {
    /// The study file
    #[arg(value_name = "STUDY.toml")]
    study: PathBuf,

    #[command(flatten)]
    common: RunFlags,

    /// Replaces a key of the study file, such as measure.duration=5s; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Prints the effective values and the planned runs, and runs nothing
    #[arg(long)]
    dry_run: bool,

    /// Stops as at Ctrl-C when standard input ends: who started it is gone
    #[arg(long, hide = true)]
    until_input_ends: bool,
}

/// Flags of everything that runs a study.
#[derive(Debug, clap::Args)]
pub(crate) struct RunFlags {
    /// Folder of the results [default: results/NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Uses the small sizes of the file's table `toy`
    #[arg(long)]
    pub(crate) toy: bool,

    /// Retries the failed and rejected runs of earlier sessions
    #[arg(long)]
    pub(crate) retry_failed: bool,

    /// Does not write the report
    #[arg(long)]
    pub(crate) no_report: bool,

    /// How the result is printed
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: Format,

    /// How progress is told on standard error: json is a line an event, and one a second of load
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) progress: Format,

    #[command(flatten)]
    pub(crate) live: LiveFlag,
}

impl RunCommand {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let study = StudyFile::read(&self.study, self.common.toy, &self.set).map_err(refused)?;
        let folder =
            self.common.out.clone().unwrap_or_else(|| Path::new("results").join(&study.study));
        if self.dry_run {
            let program = std::env::current_exe()?;
            kendall_study::check_programs(&study, &program)
                .map_err(|error| exit_with(exit_of(&error), error))?;
            let interrupted = stop_at_a_signal()?;
            let hosts = kendall_study::check_hosts(&study, &program, &interrupted)
                .map_err(|error| exit_with(exit_of(&error), error))?;
            return dry_run::print(&study, &folder, &hosts, self.common.format);
        }
        if self.until_input_ends {
            interrupt_at_the_end_of_input()?;
        }
        run_study(&study, &folder, &self.common)
    }
}

/// A refusal of an argument that is a key of study files, with the flag that replaces one.
pub(super) fn with_the_flag_for_keys(mut refusal: clap::Error) -> clap::Error {
    let (flag, why) = match std::env::args().nth(1).as_deref() {
        Some("run") => ("--set", "to replace a key of the study file"),
        Some("compare") => ("--set", "to replace a key of the study files of `--run`"),
        Some("predict") => ("--what-if", "to ask about a changed key"),
        _ => return refusal,
    };
    let argument = match refusal.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.clone(),
        _ => return refusal,
    };
    let argument = argument.trim_start_matches('-');
    let (name, value) = argument.split_once('=').unwrap_or((argument, "…"));
    // A flag that is spelled alike is meant rather than a key.
    let near = refusal.get(ContextKind::SuggestedArg).is_none();
    // The flag of the other command.
    let other = (flag != "--set" && name == "set").then(|| "KEY".to_owned());
    let value = if other.is_some() { "VALUE" } else { value };
    let Some(key) = other.or_else(|| dotted(name, near)) else { return refusal };
    let hint = format!("{why}, write `{flag} {key}={value}`");
    refusal.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    refusal
}

/// The dotted key of a study file that is meant: as it is, or by its last part alone; where `near`, also by one
/// that is spelled alike.
fn dotted(name: &str, near: bool) -> Option<String> {
    let parts = ["system", "links", "workload", "measure", "hosts", "place", "factors", "design"];
    if let Some((first, rest)) = name.split_once('.') {
        let known = parts.into_iter().find(|part| *part == first);
        let first = known.or_else(|| kendall_keys::closest(first, parts).filter(|_| near))?;
        return Some(format!("{first}.{rest}"));
    }
    let name = name.replace('-', "_");
    let tables = kendall_study::keys::tables();
    let names = || tables.iter().flat_map(|(_, keys)| keys.iter().copied().flatten());
    let names = || names().map(|key| key.name);
    let known = names().find(|known| *known == name);
    let name = known.or_else(|| kendall_keys::closest(&name, names()).filter(|_| near))?;
    let has = |keys: &Vec<&[kendall_keys::Key]>| {
        keys.iter().any(|some| some.iter().any(|key| key.name == name))
    };
    let (table, _) = tables.iter().find(|(_, keys)| has(keys))?;
    let table = table.strip_prefix("study").unwrap_or(table).trim_start_matches('.');
    // Of `system.processes` and `workload.http` the kind is none of the key's parts.
    let first = table.split('.').next().filter(|first| ["system", "workload"].contains(first));
    let table = first.unwrap_or(table);
    Some(if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") })
}

/// What the runs of a study have come to.
struct Outcome {
    summary: Summary,
    results: Results,
    told: Told,
}

impl Outcome {
    /// Runs a study in a folder, with progress, and writes its report.
    fn of(
        study: &StudyFile,
        folder: &Path,
        flags: &RunFlags,
        page: Option<&LivePage>,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<Self> {
        let options = Options {
            folder: folder.to_owned(),
            program: std::env::current_exe()?,
            retry_failed: flags.retry_failed,
            until_repetition: None,
        };
        let mut progress = Progress::new(study, flags.progress, page);
        let outcome =
            kendall_study::run(study, &options, interrupted, &mut |event| progress.event(&event));
        progress.finish();
        let summary = outcome.map_err(|error| exit_with(exit_of(&error), error))?;
        let results = Results::open(folder)?;
        let told = if flags.no_report || summary.done == 0 {
            Told::of(&results)?
        } else {
            let (report, written) = kendall_report::write(folder)?;
            match report.answer {
                Some(answer) => Told::new(answer, Some(written.html)),
                None => Told::of(&results)?,
            }
        };
        Ok(Self { summary, results, told })
    }

    /// Prints it, and says with which code the program ends.
    fn print(&self, study: &StudyFile, format: Format) -> anyhow::Result<Exit> {
        let checks = checks::all(study, &self.results)?;
        match format {
            Format::Human => {
                output::result(&summary::text(study, &self.results, &self.summary, &self.told)?);
            }
            Format::Json => {
                let mut all = summary::json(study, &self.results, &self.summary, &self.told)?;
                if !checks.is_empty() {
                    all["checks"] = serde_json::to_value(&checks)?;
                }
                output::json(&all)?;
            }
        }
        for check in &checks {
            output::note(&check.told(Paint::of_notes()));
        }
        if self.summary.interrupted {
            let go_on = "interrupted; the same command resumes it";
            return Err(exit_with(Exit::Failure, go_on));
        }
        Ok(match exit_for(&self.summary) {
            Exit::Done if checks.iter().any(checks::Check::fails) => Exit::CheckFailed,
            exit => exit,
        })
    }
}

/// Runs a study in a folder, with progress, summary and report; where it lasts, its first pass before it.
pub(crate) fn run_study(
    study: &StudyFile,
    folder: &Path,
    flags: &RunFlags,
) -> anyhow::Result<Exit> {
    let interrupted = stop_at_a_signal()?;
    let page = flags.live.page(&study.title, flags.progress)?;
    if let Some((pass, place)) = first::due(study, folder)? {
        match Outcome::of(&pass, &place, flags, page.as_ref(), &interrupted) {
            Ok(first) if first.summary.interrupted => return first.print(&pass, flags.format),
            Ok(first) if first.summary.done > 0 => output::note(&first::in_words(&first.told)),
            // Longer runs may be used where short ones are not.
            Ok(_) => {}
            Err(error) if Exit::of(&error) == Exit::RunRejected => {
                output::note(&format!("no first answer: {error:#}"));
            }
            Err(error) => return Err(error),
        }
    }
    let mut outcome = Outcome::of(study, folder, flags, page.as_ref(), &interrupted)?;
    if outcome.summary.interrupted
        && let Some(better) = first::better(study, folder, (&outcome.results, &outcome.told))?
    {
        outcome.told = better;
    }
    outcome.print(study, flags.format)
}

/// A study with failed runs is not done, nor one with rejected ones.
fn exit_for(summary: &Summary) -> Exit {
    if summary.failed > 0 {
        Exit::NotReady
    } else if summary.rejected > 0 {
        Exit::RunRejected
    } else {
        Exit::Done
    }
}

pub(super) fn exit_of(error: &StudyError) -> Exit {
    match error {
        StudyError::Refused(_)
        | StudyError::OtherStudy { .. }
        | StudyError::OtherProtocol(_)
        | StudyError::Store(StoreError::OtherVersion { .. }) => Exit::Refused,
        StudyError::InUse { .. }
        | StudyError::NotInstalled { .. }
        | StudyError::NoProgram { .. }
        | StudyError::Lacking { .. }
        | StudyError::Quota(_)
        | StudyError::Host { .. }
        | StudyError::NoRoom { .. }
        | StudyError::Failing { .. }
        | StudyError::Capacity { .. }
        | StudyError::Store(_)
        | StudyError::System { .. } => Exit::NotReady,
        StudyError::Rejecting { .. } => Exit::RunRejected,
        StudyError::Interrupted => Exit::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_study_files_is_known_by_itself_and_with_its_table() {
        for (typed, key) in [
            ("measure.duratoin", Some("measure.duratoin")),
            ("mesure.duration", Some("measure.duration")),
            ("durration", Some("measure.duration")),
            ("duration", Some("measure.duration")),
            ("think-time", Some("workload.think_time")),
            ("workers", Some("system.workers")),
            ("seed", Some("seed")),
            ("study.toml", None),
            ("verbose", None),
        ] {
            assert_eq!(dotted(typed, true).as_deref(), key, "{typed}");
        }
    }
}
