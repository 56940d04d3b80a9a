//! `kendall serve proxy`: the memcached middleware.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use clap::{Arg, ArgMatches};
use kendall_memcached_proxy::{
    ClientTls, Config, ConfigError, Mode, Options, POOL, PlanError, Proxy as Middleware, Reloader,
    SETTINGS, StartError,
};
use kendall_tier::{Clock, Hangups, Routes, Stop};
use toml::{Table, Value};

use super::{PageFlags, Running, TlsFlags, address};
use crate::commands::key_flags::{self, Named};
use crate::exit::{Exit, exit_with, refused};
use crate::output;

/// A network thread that did not come to the end of a turn in this time is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// Longest wait for the network thread at a stop: it gives clients five seconds for their answers.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Runs a memcached proxy in front of several servers
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  kendall serve proxy --listen 127.0.0.1:11211 --server \
    127.0.0.1:11212 --server 127.0.0.1:11213 --placement hash\n  \
    kendall serve proxy --config proxy.toml --metrics 127.0.0.1:9100")]
pub(crate) struct Proxy {
    /// Address for clients; port 0 takes a free one, which the line `ready …` names
    #[arg(long, value_name = "HOST:PORT", value_parser = address, required_unless_present = "config")]
    listen: Option<SocketAddr>,

    #[command(flatten)]
    page: PageFlags,

    /// A TOML file with pools, routes and everything that the flags below set; SIGHUP reloads it
    /// without losing a request
    #[arg(long, value_name = "FILE", conflicts_with = "TlsFlags")]
    config: Option<PathBuf>,

    #[command(flatten)]
    clients: TlsFlags,

    #[command(flatten)]
    settings: Settings,
}

/// What a file says in their place: one pool, and all that needs no table of its own.
#[derive(Debug)]
struct Settings(Table);

/// Keys of the file whose flags have other names.
const NAMED: &[Named] = &[
    ("servers", "server", "HOST:PORT[:WEIGHT]|unix:PATH[:WEIGHT]"),
    ("failover", "failover", "HOST:PORT[:WEIGHT]|unix:PATH[:WEIGHT]"),
    ("authority", "server-ca", "FILE"),
    ("max_clients", "client-connections", "N"),
];

impl clap::Args for Settings {
    fn augment_args(command: clap::Command) -> clap::Command {
        let flags = [SETTINGS, POOL].into_iter().flat_map(|keys| key_flags::args(keys, NAMED));
        let servers = |flag: Arg| match flag.get_id() == "servers" {
            true => flag.required_unless_present("config"),
            false => flag,
        };
        command.args(flags.map(|flag| servers(flag.conflicts_with("config"))))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Settings {
    fn from_arg_matches(flags: &ArgMatches) -> Result<Self, clap::Error> {
        let mut table = key_flags::table(SETTINGS, flags);
        let pool = Value::Table(key_flags::table(POOL, flags));
        table.insert(
            "pools".to_owned(),
            Value::Table([("main".to_owned(), pool)].into_iter().collect()),
        );
        Ok(Self(table))
    }

    fn update_from_arg_matches(&mut self, flags: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(flags)?;
        Ok(())
    }
}

impl Settings {
    /// Names flags that belong to the other mode: a study gives those of both.
    fn note_unused(&self, mode: &Mode) {
        let (name, unused) = match mode {
            Mode::Workers(_) => ("worker", &["connections"][..]),
            Mode::Pipelined { .. } => ("pipelined", &["workers", "queue"][..]),
        };
        for key in unused.iter().filter(|key| self.0.contains_key(**key)) {
            output::note(&format!("--{key} changes nothing in mode {name}"));
        }
    }
}

impl Proxy {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let stop = Stop::on_signals_but_hangups()?;
        let hangups = Hangups::new()?;
        let options = self.options().map_err(refused)?;
        let middleware = Middleware::bind(options, Clock::monotonic()).map_err(|error| {
            let refused = matches!(&error, StartError::Plan(plan) if !matches!(plan, PlanError::Files { .. }));
            exit_with(if refused { Exit::Refused } else { Exit::NotReady }, error)
        })?;
        let instruments = middleware.instruments().clone();
        let listen = vec![middleware.address()];
        let liveness = middleware.liveness();
        let turns = move || liveness.iter().all(|thread| thread.turns_within(STUCK_AFTER));
        let routes = Routes::new().healthy_while(turns);
        let running = Running::start(&self.page, &instruments, routes, &stop, listen)?;
        let reloader = middleware.reloader();
        let asked = stop.clone();
        let (ended, end) = sync_channel(1);
        std::thread::Builder::new().name("network".into()).spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| middleware.run(&asked)));
            // However it ended, the program must not wait for a signal that does not come.
            asked.request();
            // After the deadline there is no receiver.
            ended.send(outcome).unwrap_or_default();
        })?;
        std::thread::Builder::new()
            .name("reload".into())
            .spawn(move || self.reload_at_hangups(hangups, &reloader))?;
        running.wait();
        let exit = match end.recv_timeout(STOP_WITHIN) {
            Ok(Ok(outcome)) => outcome.map(|()| Exit::Done)?,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => {
                output::note("the network thread did not stop; requests in flight are lost");
                Exit::Failure
            }
        };
        running.finish().map(|done| if exit == Exit::Done { done } else { exit })
    }

    /// Reads the file, or what the flags name, at each SIGHUP, for as long as the process lives.
    fn reload_at_hangups(self, mut hangups: Hangups, reloader: &Reloader) {
        let from =
            self.config.as_ref().map_or("the flags".into(), |path| path.display().to_string());
        loop {
            hangups.wait();
            let reloaded = self
                .options()
                .and_then(|options| reloader.reload(options).map_err(anyhow::Error::new));
            match reloaded {
                Ok(()) => output::note(&format!("reloaded {from}")),
                Err(error) => {
                    output::note(&format!("not reloaded, nothing has changed: {error:#}"));
                }
            }
        }
    }

    fn options(&self) -> anyhow::Result<Options> {
        let Some(path) = &self.config else {
            let listen = self.listen.ok_or_else(|| anyhow::anyhow!("--listen is missing"))?;
            let config = Config::of(&self.settings.0).map_err(|error| match error {
                ConfigError::Value(problem) => {
                    let key = problem.key.rsplit('.').next().unwrap_or_default();
                    anyhow::anyhow!("--{}: {}", key_flags::name(key, NAMED), problem.what)
                }
                other => other.into(),
            })?;
            self.settings.note_unused(&config.options.mode);
            let client_tls = self.clients.tls().as_ref().map(ClientTls::new).transpose()?;
            return Ok(Options { listen, client_tls, ..config.options });
        };
        let config = Config::from_file(path)?;
        let listen = self.listen.or(config.listen).ok_or_else(|| {
            anyhow::anyhow!(
                "{}: no address to listen on; write listen = \"127.0.0.1:11211\", or --listen",
                path.display()
            )
        })?;
        Ok(Options { listen, ..config.options })
    }
}
