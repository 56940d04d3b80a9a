//! `kendall completions`: shell completions and the man page.

use clap::CommandFactory as _;

use crate::exit::Exit;
use crate::output;

/// Prints completions for a shell, or the man page
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  kendall completions bash > /etc/bash_completion.d/kendall")]
pub(crate) struct Completions {
    /// bash, elvish, fish, powershell, zsh, or man
    #[arg(value_enum)]
    shell: Target,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Target {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
    Man,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        use clap_complete::Shell;
        let mut command = super::Kendall::command();
        let mut text = Vec::new();
        let shell = match self.shell {
            Target::Bash => Some(Shell::Bash),
            Target::Elvish => Some(Shell::Elvish),
            Target::Fish => Some(Shell::Fish),
            Target::Powershell => Some(Shell::PowerShell),
            Target::Zsh => Some(Shell::Zsh),
            Target::Man => None,
        };
        match shell {
            Some(shell) => clap_complete::generate(shell, &mut command, "kendall", &mut text),
            None => clap_mangen::Man::new(command).render(&mut text)?,
        }
        output::result(&String::from_utf8_lossy(&text));
        Ok(Exit::Done)
    }
}
