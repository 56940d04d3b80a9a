//! `kendall queue`: a client of the message queue for the command line and for scripts.

mod call;
mod watch;

use std::net::SocketAddr;

use kendall_units::Seconds;
use tokio::runtime::Runtime;

use self::call::Caller;
use crate::exit::Exit;
use crate::output::Format;

/// Talks to a message queue: create, send, receive, lease, watch
///
/// Clients and queues go by their names here. With --format json every answer is a JSON object,
/// and `send --lines` reads JSON objects, one a line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    kendall queue create jobs\n  \
    kendall queue --as maker send jobs 'build 17'\n  \
    kendall queue --as worker receive jobs --wait 10s\n  \
    kendall queue --as worker lease jobs --for 1min --format json\n  \
    kendall queue stats jobs")]
pub(crate) struct Queue {
    /// A middleware of the queue
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070", global = true, value_parser = super::serve::address)]
    server: SocketAddr,

    /// Name of the client that asks
    #[arg(long = "as", value_name = "NAME", default_value = "command-line", global = true)]
    client: String,

    /// How the answer is printed
    #[arg(long, value_enum, default_value_t, global = true)]
    format: Format,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes this client known; the same name gets the same id
    Hello,
    /// Says that this client will not come back
    Goodbye,
    /// Creates a queue
    Create(Create),
    /// Deletes a queue
    Delete {
        /// Name of the queue
        queue: String,
        /// Drop its messages too
        #[arg(long)]
        with_messages: bool,
    },
    /// Lists the queues where a message waits for this client
    List {
        /// All queues
        #[arg(long)]
        all: bool,
    },
    /// Sends a message
    Send(Send),
    /// Takes a message away
    Receive(Select),
    /// Shows the message that receive would take
    Read(Select),
    /// Takes a message for a limited time
    Lease {
        #[command(flatten)]
        select: Select,
        /// How long it is hidden from others
        #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = kendall_units::parse_seconds)]
        lease: Seconds,
    },
    /// Acknowledges a leased message: it is done
    Ack(Held),
    /// Extends a lease
    Extend {
        #[command(flatten)]
        held: Held,
        /// From now
        #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = kendall_units::parse_seconds)]
        lease: Seconds,
    },
    /// Gives a leased message back
    Return {
        #[command(flatten)]
        held: Held,
        /// Becomes visible this much later
        #[arg(long, value_name = "TIME", default_value = "0", value_parser = kendall_units::parse_seconds)]
        delay: Seconds,
    },
    /// Drops the messages that wait in a queue
    Purge {
        /// Name of the queue
        queue: String,
        /// Do it: without this nothing is dropped
        #[arg(long)]
        yes: bool,
    },
    /// Shows what a queue holds
    Stats {
        /// Name of the queue
        queue: String,
    },
    /// Shows what the queues hold, every second, until interrupted
    Watch {
        /// Names of the queues; all when none is given
        queues: Vec<String>,
        /// Stop after so many times
        #[arg(long)]
        times: Option<u64>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// Name of the queue
    pub(crate) queue: String,
    /// After so many leases without an acknowledgement a message is a dead letter
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) max_deliveries: u32,
    /// Queue of the dead letters; without one they are dropped
    #[arg(long, value_name = "QUEUE", requires = "max_deliveries")]
    pub(crate) dead_letters: Option<String>,
    /// Drop messages older than this
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = kendall_units::parse_seconds)]
    pub(crate) retention: Seconds,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Send {
    /// Name of the queue
    pub(crate) queue: String,
    /// The content; without it, standard input is the content
    #[arg(conflicts_with = "lines")]
    pub(crate) content: Option<String>,
    /// Send each line of standard input: a JSON object with "content", and where wanted "to",
    /// "priority", "delay_ms"
    #[arg(long)]
    pub(crate) lines: bool,
    /// Only this client may take it
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<String>,
    /// From 0 to 1000; higher is taken first by those who receive by priority
    #[arg(long, default_value_t = 0)]
    pub(crate) priority: i32,
    /// Becomes visible this much later
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = kendall_units::parse_seconds)]
    pub(crate) delay: Seconds,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Select {
    /// Name of the queue
    pub(crate) queue: String,
    /// Highest priority first, instead of first come, first served
    #[arg(long)]
    pub(crate) by_priority: bool,
    /// Only messages of this client
    #[arg(long, value_name = "NAME")]
    pub(crate) from: Option<String>,
    /// Wait this long for a message
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = kendall_units::parse_seconds)]
    pub(crate) wait: Seconds,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Held {
    /// Id of the message, as lease gave it
    pub(crate) message: u64,
    /// Id of the lease, as lease gave it
    pub(crate) lease: u64,
}

impl Queue {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let runtime: Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let caller = Caller::connect(self.server, self.client, self.format).await?;
            match self.command {
                Command::Watch { queues, times } => watch::watch(caller, queues, times).await,
                command => caller.perform(command).await,
            }
        })
    }
}
