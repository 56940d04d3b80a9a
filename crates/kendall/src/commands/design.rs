//! `kendall design`: makes a factorial design, and analyzes one that was measured anywhere.

mod analyze;
mod new;
pub(super) mod tables;

use crate::exit::Exit;

/// Makes a factorial design, or analyzes one from a table of factors and a response
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  kendall design new --kind 2kr --factor servers=2,3 --factor workers=8,32\n  kendall design analyze measured.csv --response value"
)]
pub(crate) struct Design {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    New(new::New),
    Analyze(analyze::Analyze),
}

impl Design {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::New(command) => command.run(),
            Command::Analyze(command) => command.run(),
        }
    }
}
