//! `kendall console`: studies, live runs, comparisons and models in a browser.

use std::net::SocketAddr;
use std::path::PathBuf;

use kendall_console::{CONNECTIONS, Console, ConsoleError, ConsoleOptions, LINE, LONGEST, Tokens};
use kendall_tier::Stop;
use kendall_tier::serve::{ListenError, ListenOptions};

use super::serve::{TlsFlags, address};
use crate::exit::{Exit, exit_with, refused};
use crate::output;

/// Shows a folder of results in a browser, and runs studies from it
///
/// Prints the address to open, with an access token: studies and their reports, comparisons and trends, a study that
/// runs, and a bench for models. On SIGTERM or Ctrl-C it interrupts a study that it runs, which can be resumed, and
/// stops.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall console results\n  kendall console /var/lib/results --listen 0.0.0.0:7080 --tokens tokens.txt --tls-certificate console.pem --tls-key console.key"
)]
pub(crate) struct ConsoleCommand {
    /// Folder of results
    #[arg(value_name = "DIR", default_value = "results")]
    folder: PathBuf,

    /// Folder of study and model files, which can be edited and run
    #[arg(long, value_name = "DIR", default_value = "studies")]
    studies: PathBuf,

    /// Address for browsers
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7080", value_parser = address)]
    listen: SocketAddr,

    /// File of tokens, one per line: `read TOKEN` to look, `run TOKEN` to start studies and save files as well
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsFlags,

    /// Address of a commit, `{}` in the place of its revision, such as
    /// `https://git.example/shop/commit/{}`
    #[arg(long, value_name = "URL", value_parser = commits)]
    commits: Option<String>,
}

impl ConsoleCommand {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let stop = Stop::on_signals()?;
        let tokens = self.tokens.as_deref().map(|path| Tokens::read(path, &LINE));
        let listen = ListenOptions {
            connections: CONNECTIONS,
            longest: LONGEST,
            tls: self.tls.tls(),
            ..ListenOptions::new(self.listen)
        };
        let console = Console::start(ConsoleOptions {
            listen,
            folder: self.folder,
            studies: self.studies,
            program: std::env::current_exe()?,
            commits: self.commits,
            tokens: tokens.transpose().map_err(refused)?,
        })
        .map_err(|error| exit_with(exit_of(&error), error))?;
        output::note(&format!("console {}", console.address()));
        stop.wait();
        console.stop();
        Ok(Exit::Done)
    }
}

fn commits(text: &str) -> Result<String, String> {
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    if is_web && text.contains("{}") {
        return Ok(text.to_owned());
    }
    Err("write it as https://git.example/shop/commit/{}".to_owned())
}

fn exit_of(error: &ConsoleError) -> Exit {
    match error {
        ConsoleError::Listen(ListenError::Bind { .. }) => Exit::NotReady,
        ConsoleError::Listen(ListenError::Tls(_))
        | ConsoleError::Open(_)
        | ConsoleError::Folder { .. } => Exit::Refused,
        ConsoleError::Threads(_) => Exit::Failure,
    }
}
