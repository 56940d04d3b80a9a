//! Hidden commands that a study starts, so that nothing it started outlives it.

use kendall_study::keep;

use crate::exit::Exit;

/// Becomes another command, which ends when its parent does
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Guard {
    parent: u32,
    /// Folder of the control group to join
    #[arg(long)]
    group: Option<std::path::PathBuf>,
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Kills what a dead study has left
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Reaper {}

impl Guard {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let error = keep::guard(self.parent, self.group.as_deref(), &self.command);
        let program = self.command.first().map_or("", String::as_str);
        Err(anyhow::anyhow!("`{program}` cannot be started: {error}"))
    }
}

impl Reaper {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        keep::reap(std::io::stdin().lock());
        Ok(Exit::Done)
    }
}
