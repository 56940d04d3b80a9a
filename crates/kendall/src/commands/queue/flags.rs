//! Commands of `kendall queue`, and their flags.

use std::path::PathBuf;

use kendall_loadgen::tls::Tls;
use kendall_units::Seconds;

use super::super::serve::pair;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Registers this client; the same name gets the same id
    #[command(after_help = "Example:\n  kendall queue --as worker hello")]
    Hello,
    /// Deregisters this client; its messages stay
    #[command(after_help = "Example:\n  kendall queue --as worker goodbye")]
    Goodbye,
    /// Creates a queue
    #[command(after_help = "Examples:\n  \
        kendall queue create jobs --if-missing\n  \
        kendall queue create dead\n  \
        kendall queue create mail --max-deliveries 5 --dead-letters dead --retention 24h")]
    Create(Create),
    /// Deletes a queue
    #[command(after_help = "Example:\n  kendall queue delete jobs --with-messages")]
    Delete {
        /// Name of the queue
        queue: String,
        /// Drop its messages too; without this a queue that holds some is kept
        #[arg(long)]
        with_messages: bool,
    },
    /// Lists the queues with a message for this client
    #[command(after_help = "Examples:\n  \
        kendall queue --as worker list\n  \
        kendall queue list --all --format json | jq -r '.queues[].name'")]
    List {
        /// All queues
        #[arg(long)]
        all: bool,
    },
    /// Sends a message
    ///
    /// Repeats the request if the connection breaks; the message is still sent only once.
    #[command(after_help = "Examples:\n  \
        kendall queue --as maker send jobs 'build 17'\n  \
        kendall queue --as maker send jobs --to worker --priority 5 < order.txt\n  \
        jq -c '.[] | {content: .}' list.json | kendall queue --as maker send jobs --lines")]
    Send(Send),
    /// Takes a message away
    ///
    /// Repeats the request if the connection breaks, and then gets the same message.
    #[command(after_help = "Examples:\n  \
        kendall queue --as worker receive jobs --wait 10s\n  \
        kendall queue --as worker receive jobs --format json | jq -er .message.content")]
    Receive {
        #[command(flatten)]
        select: Select,
        #[command(flatten)]
        wait: Wait,
        /// Asks once, without a request id, which a full disk refuses; if the connection breaks, the message may be lost
        #[arg(long)]
        once: bool,
    },
    /// Shows the message that receive would take
    #[command(after_help = "Example:\n  kendall queue --as worker read jobs --by-priority")]
    Read(Select),
    /// Takes a message for a limited time
    ///
    /// Unless it is acknowledged in that time, it is redelivered to any client.
    #[command(after_help = "Example:\n  \
        held=$(kendall queue --as worker lease jobs --for 1min --wait 10s --format json)\n  \
        kendall queue --as worker ack $(jq -r '\"\\(.message.message_id) \\(.lease_id)\"' <<< \"$held\")")]
    Lease {
        #[command(flatten)]
        select: Select,
        #[command(flatten)]
        wait: Wait,
        /// How long it is hidden from others
        #[arg(id = "for", long = "for", value_name = "TIME", default_value = "30s", allow_hyphen_values = true, value_parser = kendall_units::parse_seconds)]
        lease: Seconds,
    },
    /// Acknowledges a leased message: it is done
    #[command(after_help = "Example:\n  kendall queue --as worker ack 17 4")]
    Ack(Held),
    /// Extends a lease
    #[command(after_help = "Example:\n  kendall queue --as worker extend 17 4 --for 5min")]
    Extend {
        #[command(flatten)]
        held: Held,
        /// From now
        #[arg(id = "for", long = "for", value_name = "TIME", default_value = "30s", allow_hyphen_values = true, value_parser = kendall_units::parse_seconds)]
        lease: Seconds,
    },
    /// Gives a leased message back
    #[command(after_help = "Example:\n  kendall queue --as worker return 17 4 --delay 1min")]
    Return {
        #[command(flatten)]
        held: Held,
        /// Becomes visible this much later
        #[arg(long, value_name = "TIME", default_value = "0", allow_hyphen_values = true, value_parser = kendall_units::parse_seconds)]
        delay: Seconds,
        /// Why: kept with a message that becomes a dead letter by it
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Renames a queue, pauses or resumes it, or changes its settings; its messages stay
    #[command(after_help = "Examples:\n  \
        kendall queue change jobs --pause\n  \
        kendall queue change jobs --resume --max-deliveries 10\n  \
        kendall queue change jobs --rename builds")]
    Change(Change),
    /// Lists the dead letters in a queue, and leaves them there
    #[command(after_help = "Examples:\n  \
        kendall queue dead-letters dead\n  \
        kendall queue dead-letters dead --from maker --format json | jq '.dead_letters[].reason'")]
    DeadLetters {
        /// Name of the queue
        queue: String,
        /// Only those that this client sent
        #[arg(long, value_name = "NAME")]
        from: Option<String>,
    },
    /// Moves dead letters back to the queue where they died, as if never leased
    #[command(after_help = "Examples:\n  \
        kendall queue redrive dead\n  \
        kendall queue redrive dead 17 18 --to repaired")]
    Redrive {
        /// Name of the queue that holds the dead letters
        queue: String,
        /// Ids of messages; by default all of them
        messages: Vec<u64>,
        /// Move them to this queue instead
        #[arg(long, value_name = "QUEUE")]
        to: Option<String>,
    },
    /// Lists the received and acknowledged messages of a queue with an archive
    #[command(
        after_help = "Example:\n  kendall queue archived jobs --format json | jq '.archived | length'"
    )]
    Archived {
        /// Name of the queue
        queue: String,
    },
    /// Drops the waiting messages of a queue; leased and delayed ones stay
    #[command(after_help = "Example:\n  kendall queue purge jobs --yes")]
    Purge {
        /// Name of the queue
        queue: String,
        /// Confirms; without this nothing is dropped
        #[arg(long)]
        yes: bool,
    },
    /// Shows the statistics of a queue
    #[command(after_help = "Example:\n  kendall queue stats jobs --format json | jq .waiting")]
    Stats {
        /// Name of the queue
        queue: String,
    },
    /// Shows the statistics of queues every second, until interrupted
    ///
    /// With --format json each line is a JSON object.
    #[command(after_help = "Examples:\n  \
        kendall queue watch jobs mail\n  \
        kendall queue watch jobs --format json | jq --unbuffered '.queues[0].waiting'")]
    Watch {
        /// Names of the queues; by default the first hundred by name
        queues: Vec<String>,
        /// Stops after this many times
        #[arg(long, value_name = "N")]
        times: Option<u64>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// Name of the queue
    pub(crate) queue: String,
    /// Keeps an existing queue of this name as it is
    #[arg(long)]
    pub(crate) if_missing: bool,
    /// A message becomes a dead letter after this many leases without an acknowledgement; 0: never
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) max_deliveries: u32,
    /// Dead-letter queue; without one dead letters are dropped
    #[arg(long, value_name = "QUEUE", requires = "max_deliveries")]
    pub(crate) dead_letters: Option<String>,
    /// Drop messages older than this; 0: never
    #[arg(long, value_name = "TIME", default_value = "0", allow_hyphen_values = true, value_parser = kendall_units::parse_seconds)]
    pub(crate) retention: Seconds,
    /// Keep received and acknowledged messages for this long; 0: no archive
    #[arg(long, value_name = "TIME", default_value = "0", allow_hyphen_values = true, value_parser = kendall_units::parse_seconds)]
    pub(crate) archive: Seconds,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Change {
    /// Name of the queue
    pub(crate) queue: String,
    /// New name
    #[arg(long, value_name = "NAME")]
    pub(crate) rename: Option<String>,
    /// Deliver no messages until it is resumed; new ones are accepted
    #[arg(long, conflicts_with = "resume")]
    pub(crate) pause: bool,
    /// Deliver messages again
    #[arg(long)]
    pub(crate) resume: bool,
    /// A message becomes a dead letter after this many leases without an acknowledgement; 0: never
    #[arg(long, value_name = "N")]
    pub(crate) max_deliveries: Option<u32>,
    /// Dead-letter queue; with an empty name dead letters are dropped
    #[arg(long, value_name = "QUEUE")]
    pub(crate) dead_letters: Option<String>,
    /// Drop messages older than this; 0: never
    #[arg(long, value_name = "TIME", value_parser = kendall_units::parse_seconds)]
    pub(crate) retention: Option<Seconds>,
    /// Keep received and acknowledged messages for this long; 0 drops the archive
    #[arg(long, value_name = "TIME", value_parser = kendall_units::parse_seconds)]
    pub(crate) archive: Option<Seconds>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Send {
    /// Name of the queue
    pub(crate) queue: String,
    /// The content; by default it is read from standard input. Put content that begins with a
    /// hyphen after `--`
    #[arg(conflicts_with = "lines")]
    pub(crate) content: Option<String>,
    /// Send each line of standard input: a JSON object with "content" and optionally "to",
    /// "priority", "delay_ms"; empty lines are skipped
    #[arg(long, conflicts_with_all = ["to", "priority", "delay"])]
    pub(crate) lines: bool,
    /// Standard input is binary: it is sent as it is
    #[arg(long, conflicts_with_all = ["content", "lines"])]
    pub(crate) binary: bool,
    /// A header; repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = pair, conflicts_with = "lines")]
    pub(crate) headers: Vec<(String, String)>,
    /// Only this client may take it
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<String>,
    /// From 0 to 1000; higher is taken first by those who receive by priority
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(0..=1000))]
    pub(crate) priority: i32,
    /// Becomes visible this much later
    #[arg(long, value_name = "TIME", default_value = "0", allow_hyphen_values = true, value_parser = kendall_units::parse_seconds)]
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
}

#[derive(Debug, clap::Args)]
pub(crate) struct Wait {
    /// Wait this long for a message; the server has a limit of its own (a minute, unless it was
    /// told otherwise)
    #[arg(long, value_name = "TIME", default_value = "0", allow_hyphen_values = true, value_parser = kendall_units::parse_seconds)]
    pub(crate) wait: Seconds,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Held {
    /// Id of the message, as printed by lease
    pub(crate) message: u64,
    /// Id of the lease, as printed by lease
    #[arg(value_name = "LEASE")]
    pub(crate) lease: u64,
}

/// Whom a server is shown.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientCertificate {
    /// TLS: file (PEM) of the certificate that the server is shown
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_certificate: Option<PathBuf>,

    /// File (PEM) of its private key
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    client_key: Option<PathBuf>,
}

impl ClientCertificate {
    pub(crate) fn files(&self) -> Option<(PathBuf, PathBuf)> {
        self.client_certificate.clone().zip(self.client_key.clone())
    }
}

/// How a middleware is reached.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("client_certificate", |arg| {
        arg.env("KENDALL_QUEUE_CLIENT_CERTIFICATE").global(true).requires("tls_name")
    }),
    mut_arg("client_key", |arg| arg.env("KENDALL_QUEUE_CLIENT_KEY").global(true))
)]
pub(crate) struct Access {
    /// Access token, if the middleware needs one
    #[arg(
        long,
        value_name = "TOKEN",
        env = "KENDALL_QUEUE_TOKEN",
        hide_env_values = true,
        global = true
    )]
    pub(crate) token: Option<String>,

    /// Use TLS; the middleware's certificate must be issued for this name
    #[arg(long, value_name = "NAME", env = "KENDALL_QUEUE_TLS_NAME", global = true)]
    pub(crate) tls_name: Option<String>,

    /// PEM file with the authority of the middleware's certificate; by default those that the
    /// system trusts
    #[arg(
        long,
        value_name = "FILE",
        env = "KENDALL_QUEUE_TLS_ROOT",
        global = true,
        requires = "tls_name"
    )]
    pub(crate) tls_root: Option<PathBuf>,

    #[command(flatten)]
    shown: ClientCertificate,
}

impl Access {
    /// Whom it trusts, and who it says it is, where it uses TLS.
    pub(crate) fn trust(&self) -> Tls {
        Tls { insecure: false, authority: self.tls_root.clone(), identity: self.shown.files() }
    }
}
