//! `kendall design`: says how many runs a study needs, makes a design, and analyzes one that was
//! measured anywhere.

mod analyze;
mod new;
mod power;
pub(super) mod tables;

use crate::exit::Exit;

/// Makes a factorial design, says how many runs it needs, or analyzes its results
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall design new --kind 2kr --factor servers=2,3 --factor workers=8,32\n  kendall design analyze measured.csv --response value"
)]
pub(crate) struct Design {
    #[command(subcommand)]
    command: Command,
}

commands! {
    Command {
        New(new::New),
        Analyze(analyze::Analyze),
        Power(power::Power),
    }
}

impl Design {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        self.command.run()
    }
}
