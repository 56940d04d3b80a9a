//! Hidden commands that a study starts, so that nothing it started outlives it.

use std::time::Duration;

use kendall_host::keeper;

use crate::exit::Exit;

/// Becomes another command, which ends when its parent does
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Guard {
    parent: u32,
    /// Folder of the control group to join
    #[arg(long)]
    group: Option<std::path::PathBuf>,
    /// A processor to stay on; may be given several times
    #[arg(long = "processor")]
    processors: Vec<usize>,
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Kills what a dead study has left
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Reaper {
    /// Seconds without a word after which the agent and what it started are killed
    #[arg(long, requires_all = ["agent", "folder"], value_parser = seconds)]
    lease: Option<Duration>,
    /// Process of the agent
    #[arg(long)]
    agent: Option<u32>,
    /// Folder that is removed in the end
    #[arg(long)]
    folder: Option<std::path::PathBuf>,
}

/// Starts, watches and ends processes for a study that runs on another host: docs/hosts.md
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Agent {
    /// Seconds without a word of the study after which everything is ended
    #[arg(long, default_value = "7.5", value_parser = seconds)]
    lease: Duration,
}

/// So many seconds, also a part of one.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number of seconds"))?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

impl Agent {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let program = std::env::current_exe()?;
        let input = std::io::BufReader::new(std::io::stdin());
        kendall_host::agent::serve(&program, self.lease, input, std::io::stdout())?;
        Ok(Exit::Done)
    }
}

impl Guard {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let group = self.group.as_deref();
        let error = keeper::guard(self.parent, group, &self.processors, &self.command);
        let program = self.command.first().map_or("", String::as_str);
        Err(anyhow::anyhow!("`{program}` cannot be started: {error}"))
    }
}

impl Reaper {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if let (Some(lease), Some(agent), Some(folder)) = (self.lease, self.agent, &self.folder) {
            let input = std::io::BufReader::new(std::io::stdin());
            keeper::reap_for_agent(input, lease, agent, folder);
        } else {
            keeper::reap(std::io::stdin().lock());
        }
        Ok(Exit::Done)
    }
}
