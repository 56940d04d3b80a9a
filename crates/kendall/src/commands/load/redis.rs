//! `kendall load redis`.

use kendall_loadgen::http::Values;
use kendall_loadgen::load::{self, LoadPlan};
use kendall_loadgen::random::{Purpose, stream};
use kendall_loadgen::redis::{
    PrefillError, PrepareError, Redis, RedisAccess, RedisCommand, RedisLoad, RedisPlan, prefill,
    prepare,
};

use super::common::{Common, load_error, resolve, varied};
use super::keys::Keys;
use super::secure::SecureFlags;
use crate::exit::{Exit, exit_with, refused, stop_at_a_signal};
use crate::output;

/// Loads Redis servers, or a cluster of them
///
/// In a cluster, commands go to the nodes that have their keys, and redirects are followed and counted; one
/// address of it is enough.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall load redis 127.0.0.1:6379 --mix set=1,get=10 --keys 100000 \
                  --key-distribution zipf:0.99 --prefill\n  \
                  kendall load redis 127.0.0.1:6379 --command '9 HGET user:{key} name' --command 'HSET user:{key} \
                  name {value}' --value-size 32B\n  \
                  kendall load redis 127.0.0.1:6379 --pipeline 16 --rate 2000/s\n  \
                  kendall load redis cache.example:6380 --tls --user app"
)]
pub(crate) struct LoadRedis {
    /// Servers; the clients are spread over them in turn
    #[arg(required = true, value_name = "HOST:PORT")]
    targets: Vec<String>,

    /// Weights of get and set [default: set=1,get=10, or none with `--command`]
    #[arg(long, value_name = "COMMAND=WEIGHT,…")]
    mix: Option<String>,

    /// A command with `{key}`, `{value}` and names of `--vary`, such as `LPUSH list:{key} {value}`; a number before
    /// it is its weight; may be repeated
    #[arg(long, value_name = "COMMAND")]
    command: Vec<String>,

    /// Value of `{NAME}`, drawn anew for each command: a whole number (`exponential:20`, `uniform:1..40`,
    /// `zipf:1000,0.99`) or a line of a file (`file:PATH`); may be repeated
    #[arg(long, value_name = "NAME=VALUES", value_parser = varied)]
    vary: Vec<(String, Values)>,

    #[arg(long, value_name = "COMMANDS")]
    pipeline: u32,

    #[command(flatten)]
    keys: Keys,

    /// User
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Password; better from the environment, since others see arguments
    #[arg(long, env = "REDISCLI_AUTH", hide_env_values = true, value_name = "PASSWORD")]
    password: Option<String>,

    /// Number of the database
    #[arg(long, default_value_t = 0, value_name = "N")]
    database: u32,

    /// Store every key on every server, or once in a cluster, before the load
    #[arg(long)]
    prefill: bool,

    /// Store every key, and end
    #[arg(long)]
    prefill_only: bool,

    #[command(flatten)]
    secure: SecureFlags,

    #[command(flatten)]
    common: Common,
}

impl LoadRedis {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let content = self.content()?;
        let keyspace = self.keys.keyspace(self.common.seed)?;
        let mut plan = self
            .common
            .plan(resolve(&self.targets, "127.0.0.1:6379")?, self.common.clients().into())?;
        let stop = stop_at_a_signal()?;
        let timeout = self.common.timeout.as_duration();
        let slots = prepare(&plan.targets, &content.access, timeout, &stop);
        let slots = slots.map_err(|error| match error {
            PrepareError::Connect(error) => load_error(error),
            refused => exit_with(Exit::NotReady, refused),
        })?;
        if !slots.is_empty() {
            // Each client may come to have a connection to each node.
            let connections = u64::from(self.common.clients()) * (1 + slots.nodes() as u64);
            plan = self.common.plan(plan.targets, connections)?;
        }
        let cluster = !slots.is_empty();
        let load = RedisLoad::new(content, keyspace, slots);
        if self.prefill || self.prefill_only {
            let targets = if cluster { &plan.targets[..1] } else { &plan.targets[..] };
            for target in targets {
                let plan = LoadPlan { targets: vec![*target], ..plan.clone() };
                let stored = prefill(&plan, &load, &stop).map_err(prefill_error)?;
                if !self.common.quiet {
                    output::note(&format!("stored {stored} keys on {target}"));
                }
            }
        }
        if self.prefill_only {
            return Ok(Exit::Done);
        }
        let driver = |thread| Redis::new(&load, stream(plan.seed, Purpose::Requests, thread));
        let mut result = load::run("redis", &plan, &driver, &stop, &mut self.common.progress()?)
            .map_err(load_error)?;
        load.tell(&mut result);
        self.common.print(&result)
    }

    fn content(&self) -> anyhow::Result<RedisPlan> {
        let names: Vec<&str> = self.vary.iter().map(|(name, _)| name.as_str()).collect();
        let mut commands = match (&self.mix, &self.command[..]) {
            (None, [_, ..]) => Vec::new(),
            (mix, _) => RedisCommand::parse_mix(mix.as_deref().unwrap_or("set=1,get=10"))
                .map_err(refused)?,
        };
        for text in &self.command {
            commands.push(RedisCommand::parse(text, &names).map_err(refused)?);
        }
        let plan = RedisPlan {
            commands,
            pipeline: self.pipeline as usize,
            expected_misses: self.keys.expected_misses,
            values: self.vary.iter().map(|(_, values)| values.clone()).collect(),
            access: RedisAccess {
                user: self.user.clone(),
                password: self.password.clone(),
                database: self.database,
                secure: self.secure.of(&self.targets)?,
            },
        };
        plan.check(&names).map_err(refused)?;
        Ok(plan)
    }
}

fn prefill_error(error: PrefillError) -> anyhow::Error {
    match error {
        PrefillError::Load(error) => load_error(error),
        failed @ PrefillError::Failed { .. } => failed.into(),
    }
}
