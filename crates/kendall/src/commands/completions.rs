//! `kendall completions`: shell completions and manual pages.

use std::path::PathBuf;

use crate::exit::{Exit, exit_with, refused};
use crate::output;

/// Prints completions for a shell, or writes manual pages
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall completions bash > /etc/bash_completion.d/kendall\n  \
                        kendall completions man --out /usr/local/share/man/man1"
)]
pub(crate) struct Completions {
    /// bash, elvish, fish, powershell, zsh, or man
    #[arg(value_enum)]
    shell: Target,

    /// With man: folder for the pages of all commands, instead of printing the first one
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
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
        let mut command = super::Kendall::described();
        let mut text = Vec::new();
        let shell = match self.shell {
            Target::Bash => Some(Shell::Bash),
            Target::Elvish => Some(Shell::Elvish),
            Target::Fish => Some(Shell::Fish),
            Target::Powershell => Some(Shell::PowerShell),
            Target::Zsh => Some(Shell::Zsh),
            Target::Man => None,
        };
        if let Some(folder) = &self.out {
            if shell.is_some() {
                let what = "--out belongs to `man`; completions are printed";
                return Err(refused(what));
            }
            std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(command, folder))
                .map_err(|error| {
                    exit_with(Exit::NotReady, format!("{}: {error}", folder.display()))
                })?;
            return Ok(Exit::Done);
        }
        match shell {
            Some(shell) => clap_complete::generate(shell, &mut command, "kendall", &mut text),
            None => clap_mangen::Man::new(command).render(&mut text)?,
        }
        output::result(&String::from_utf8_lossy(&text));
        Ok(Exit::Done)
    }
}
