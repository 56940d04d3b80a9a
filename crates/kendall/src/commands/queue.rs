//! `kendall queue`: a client of the message queue for the command line and for scripts.

mod call;
pub(super) mod flags;
mod letters;
mod lines;
mod show;
mod watch;

use std::net::SocketAddr;

use kendall_units::Seconds;
use tokio::runtime::Runtime;

use self::call::Caller;
use self::flags::{Access, Command};
use crate::exit::Exit;
use crate::output::Format;

/// Talks to a message queue: create, send, receive, lease, watch
///
/// Clients and queues have names; a new name registers a client. No client receives what it sent
/// themselves, so sender and receiver need two names (--as). With --format json every answer is a
/// JSON object, and `send --lines` reads one JSON object per line.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    kendall queue create jobs\n  \
    kendall queue --as maker send jobs 'build 17'\n  \
    kendall queue --as worker receive jobs --wait 10s\n  \
    kendall queue --as worker lease jobs --for 1min --format json\n  \
    kendall queue stats jobs\n\n\
    Exit codes: 0 done (no message is an answer, too), 2 refused, 3 the queue does not answer."
)]
pub(crate) struct Queue {
    /// Address of the queue's middleware
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070", env = "KENDALL_QUEUE_SERVER", global = true, value_parser = super::serve::address)]
    server: SocketAddr,

    #[command(flatten)]
    access: Access,

    /// Name of this client
    #[arg(
        long = "as",
        value_name = "NAME",
        default_value = "command-line",
        env = "KENDALL_QUEUE_CLIENT",
        global = true
    )]
    client: String,

    /// Longest wait for an answer, in addition to --wait
    #[arg(long, value_name = "TIME", default_value = "30s", global = true, value_parser = kendall_units::parse_seconds)]
    timeout: Seconds,

    /// How the answer is printed
    #[arg(long, value_enum, default_value_t, global = true)]
    format: Format,

    #[command(subcommand)]
    command: Command,
}

impl Queue {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let runtime: Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut caller =
                Caller::connect(self.server, &self.access, self.client, self.timeout, self.format)
                    .await?;
            match self.command {
                Command::Watch { queues, times } => watch::watch(caller, queues, times).await,
                Command::Send(send) if send.lines => lines::send(caller, &send.queue).await,
                command => caller.perform(command).await,
            }
        })
    }
}
