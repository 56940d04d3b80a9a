//! PostgreSQL: transactions of prepared statements, with parameters drawn for each.
//!
//! A request is a script: all of its statements, one after the other on one connection; its response
//! time ends with the last answer. The library of PostgreSQL speaks the protocol, so a request
//! costs several times as much processor time as one of the engine's own clients.

mod client;
mod expression;
#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/inside/postgres.rs"]
pub(crate) mod fuzzing;
mod script;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use script::{Script, ScriptError};

use crate::driver::{ErrorKind, Reply};
use crate::http::Values;
use crate::load::{LoadError, LoadPlan, LoadProgress, Place, Start, run_threads};
use crate::random::{Purpose, Random, stream};
use crate::recorder::Recorder;
use crate::refusals::Said;
use crate::tasks::{self, Client, Parts, Timer};
use crate::tls::{Tls, TlsError};
use crate::weighted::Weighted;
use client::{Connection, Connector, Failure, Fault};
use expression::Value;
use kendall_protocols::load_result::LoadResult;
use script::Action;

/// Variables that scripts of pgbench have by themselves: the number of the client, a scale of 1, and the seed.
const AUTOMATIC: [&str; 4] = ["client_id", "scale", "random_seed", expression::DEFAULT_SEED];

/// What a load of PostgreSQL sends, and how.
#[derive(Debug, Clone)]
pub struct PostgresPlan {
    pub user: String,
    pub password: Option<String>,
    pub database: String,
    /// The name in the server's certificate, and who is trusted.
    pub tls: Option<(String, Tls)>,
    pub scripts: Vec<Script>,
    /// Variables that stay the same.
    pub defined: Vec<(String, String)>,
    /// Variables that are drawn for each request.
    pub varied: Vec<(String, Values)>,
}

/// Variables that every script has: those that are defined, those that are varied, then pgbench's own. Of two that
/// have the same name, the first counts.
pub fn given(defined: &[(String, String)], varied: &[(String, Values)]) -> Vec<String> {
    let names = defined.iter().map(|(name, _)| name).chain(varied.iter().map(|(name, _)| name));
    names.cloned().chain(AUTOMATIC.map(str::to_owned)).collect()
}

/// A load of PostgreSQL that did not take place.
#[derive(Debug, thiserror::Error)]
pub enum PostgresLoadError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{script}, line {line}: {target} cannot prepare the statement: {said}")]
    Statement { target: SocketAddr, script: String, line: usize, said: String },
}

/// What the clients of a load share.
struct Shared {
    plan: PostgresPlan,
    seed: u64,
    connector: Connector,
    mix: Weighted,
    said: Said,
}

/// Runs a load test of PostgreSQL.
pub fn run(
    plan: &LoadPlan,
    postgres: &PostgresPlan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, PostgresLoadError> {
    let shared = Arc::new(Shared {
        connector: Connector::new(postgres)?,
        mix: Weighted::new(postgres.scripts.iter().map(|script| script.weight)),
        said: Said::default(),
        seed: plan.seed,
        plan: postgres.clone(),
    });
    check(plan, &shared)?;
    let body = |start: Start<'_>, recorder: Recorder| {
        tasks::run_thread(&start, connect_all(&start.place, &shared), recorder)
    };
    let names: Vec<String> = postgres.scripts.iter().map(|script| script.name.clone()).collect();
    let mut result = run_threads("postgres", plan, names, &body, stop, progress)?;
    shared.said.tell(&mut result);
    Ok(result)
}

/// Draws each script once and prepares it on each target, so that its errors are reported before the load.
fn check(plan: &LoadPlan, shared: &Arc<Shared>) -> Result<(), PostgresLoadError> {
    let mut random = stream(plan.seed, Purpose::Requests, 0);
    let (mut values, mut actions) = (Vec::new(), Vec::new());
    for script in &shared.plan.scripts {
        shared.give(0, &mut values, &mut random);
        script.draw(0, &mut values, &mut random, &mut actions)?;
    }
    shared.plan.varied.iter().for_each(|(_, varied)| varied.restart());
    let opened = tasks::block_on(async {
        for target in &plan.targets {
            match open(*target, shared, plan.timeout_ns).await {
                Ok(_connection) => {}
                Err(Failure::Statement { script, line, said }) => {
                    let target = *target;
                    return Err(PostgresLoadError::Statement { target, script, line, said });
                }
                Err(failure) => return Err(failure.of(*target).into()),
            }
        }
        Ok(())
    });
    opened.map_err(LoadError::Thread)?
}

/// A connection with all statements prepared, within the time-out.
async fn open(target: SocketAddr, shared: &Shared, timeout_ns: u64) -> Result<Connection, Failure> {
    let limit = Duration::from_nanos(timeout_ns);
    let opened = tokio::time::timeout(limit, shared.connector.open(target, &shared.plan.scripts));
    opened.await.unwrap_or_else(|_| Err(Failure::Connect(std::io::ErrorKind::TimedOut.into())))
}

async fn connect_all(
    place: &Place<'_>,
    shared: &Arc<Shared>,
) -> Result<Vec<PostgresClient>, LoadError> {
    let random = place.random();
    let mut clients = Vec::new();
    for (target, number) in place.connections().into_iter().zip(place.clients()) {
        let connection = open(target, shared, place.plan.timeout_ns).await;
        let connection = connection.map_err(|failure| failure.of(target))?;
        clients.push(PostgresClient {
            target,
            number,
            shared: Arc::clone(shared),
            random: Rc::clone(&random),
            connection: Some(connection),
            timer: Timer::new().map_err(LoadError::Thread)?,
            script: 0,
            at: 0,
            values: Vec::new(),
            actions: Vec::new(),
            more_bytes: 0,
            wrong: None,
        });
    }
    Ok(clients)
}

impl Shared {
    /// The given variables of one request.
    fn give(&self, client: usize, values: &mut Vec<Value>, random: &mut Random) {
        values.clear();
        let defined = self.plan.defined.iter().map(|(_, value)| Value::Text(value.clone()));
        values.extend(defined);
        for (_, varied) in &self.plan.varied {
            let mut text = Vec::new();
            varied.write(random, &mut text);
            values.push(Value::Text(String::from_utf8_lossy(&text).into_owned()));
        }
        let client = i64::try_from(client).unwrap_or(i64::MAX);
        let seed = self.seed.cast_signed();
        values.extend([client, 1, seed, seed].map(Value::Whole));
    }
}

/// One connection and the transaction that it does next.
struct PostgresClient {
    target: SocketAddr,
    number: usize,
    shared: Arc<Shared>,
    random: Rc<RefCell<Random>>,
    connection: Option<Connection>,
    timer: Timer,
    script: usize,
    /// The step of the script that follows what was drawn.
    at: usize,
    values: Vec<Value>,
    actions: Vec<Action>,
    /// Bytes of what was drawn while the transaction ran.
    more_bytes: u64,
    /// Why the script could not be drawn.
    wrong: Option<ScriptError>,
}

fn bytes_of(actions: &[Action]) -> u64 {
    let bytes = actions.iter().map(|action| match action {
        Action::Sleep(_) => 0,
        Action::Execute(_, parameters) => parameters.iter().map(String::len).sum::<usize>(),
    });
    bytes.sum::<usize>() as u64
}

impl PostgresClient {
    async fn connected(&mut self) -> Result<Connection, ErrorKind> {
        if let Some(connection) = self.connection.take().filter(|known| !known.is_closed()) {
            return Ok(connection);
        }
        let shared = &self.shared;
        let opened = shared.connector.open(self.target, &shared.plan.scripts).await;
        opened.map_err(|failure| {
            let kind = failure.kind();
            let name = &shared.plan.scripts[self.script].name;
            shared.said.note(name, &failure.to_string());
            kind
        })
    }

    /// Does what was drawn, and what its results decide, to the end of the script. Adds the bytes that are read.
    async fn transact(&mut self, on: &Connection, bytes: &mut u64) -> Result<(), Fault> {
        let shared = Arc::clone(&self.shared);
        let script = &shared.plan.scripts[self.script];
        loop {
            for action in &self.actions {
                match action {
                    Action::Sleep(time_ns) => {
                        let until = crate::clock::now_ns().saturating_add(*time_ns);
                        let slept = self.timer.sleep_until(until).await;
                        slept.map_err(|_| Fault::Broken(ErrorKind::TimedOut))?;
                    }
                    Action::Execute(number, parameters) => {
                        let number = (self.script, *number);
                        *bytes += on.execute(number, parameters, &mut self.values).await?;
                    }
                }
            }
            if script.is_over(self.at) {
                return Ok(());
            }
            let mut random = self.random.borrow_mut();
            let drawn = script.draw(self.at, &mut self.values, &mut random, &mut self.actions);
            self.at =
                drawn.map_err(|wrong| Fault::Refused(ErrorKind::ClientError, wrong.to_string()))?;
            self.more_bytes += bytes_of(&self.actions);
        }
    }
}

impl Client for PostgresClient {
    fn draw(&mut self) -> (usize, u64) {
        let mut random = self.random.borrow_mut();
        self.script = self.shared.mix.draw(&mut random);
        self.shared.give(self.number, &mut self.values, &mut random);
        let script = &self.shared.plan.scripts[self.script];
        let drawn = script.draw(0, &mut self.values, &mut random, &mut self.actions);
        (self.at, self.wrong) = drawn.map_or_else(|wrong| (0, Some(wrong)), |at| (at, None));
        (self.script, bytes_of(&self.actions))
    }

    async fn exchange(&mut self) -> Result<(Reply, u64), ErrorKind> {
        let shared = Arc::clone(&self.shared);
        let name = &shared.plan.scripts[self.script].name;
        if let Some(wrong) = self.wrong.take() {
            shared.said.note(name, &wrong.to_string());
            return Ok((Reply::refused(ErrorKind::ClientError), 0));
        }
        let connection = self.connected().await?;
        let mut bytes = 0;
        let reply = match self.transact(&connection, &mut bytes).await {
            Ok(()) => Reply::default(),
            Err(Fault::Broken(kind)) => return Err(kind),
            Err(Fault::Refused(kind, said)) => {
                shared.said.note(name, &said);
                // The next transaction uses this connection.
                if connection.roll_back().await.is_err() {
                    return Ok((Reply::refused(kind), bytes));
                }
                Reply::refused(kind)
            }
        };
        self.connection = Some(connection);
        Ok((reply, bytes))
    }

    async fn perform(
        &mut self,
        parts: &Parts<'_>,
        limit: Duration,
    ) -> Result<(Reply, u64), ErrorKind> {
        let outcome = tokio::time::timeout(limit, self.exchange()).await;
        parts.more_bytes(std::mem::take(&mut self.more_bytes));
        outcome.unwrap_or(Err(ErrorKind::TimedOut))
    }

    fn failed(&mut self, _kind: ErrorKind) {
        self.connection = None;
    }
}
