//! The Remote Execution API: a build cache under the operations that build tools send.
//!
//! Before the load, a stock of blobs and of results of actions is stored. A read asks for one of
//! the stock with the stated probability, else for one that was never stored; a write stores a
//! blob that is new. What comes back is checked: its length, and the number that it begins with.
//!
//! Actions are executed, each taking a time of a stated distribution: `execute` never takes a result
//! from the cache, and no two clients ever ask for the same action, so that none is merged with
//! another; `execute-cached` asks for one whose result was stored.

mod action;
mod preload;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use kendall_tier::distribution::{Distribution, Unit, index_below, unit_interval};
use rand::Rng as _;

use crate::driver::{ErrorKind, Reply, named};
use crate::grpc::{self, Access, Connection, Refusal};
use crate::keyspace::{Chooser, KeyChoice};
use crate::load::{LoadError, LoadPlan, LoadProgress, Place, Start, run_threads};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::tasks;
use crate::weighted::{furthest_behind, weights};
use kendall_protocols::load_result::LoadResult;
use preload::Stock;

named! {
    /// What a client asks for.
    pub enum ReapiOperation {
        /// `FindMissingBlobs` of a batch.
        FindMissing = "find-missing",
        GetResult = "get-result",
        /// `UpdateActionResult`, whose outputs are of the stock.
        PutResult = "put-result",
        /// `BatchReadBlobs` of a batch.
        BatchRead = "batch-read",
        /// `BatchUpdateBlobs` of a batch of new blobs.
        BatchUpdate = "batch-update",
        /// `ByteStream.Read` of a blob.
        Read = "read",
        /// `ByteStream.Write` of a new blob.
        Write = "write",
        /// `Execute` of an action that is run.
        Execute = "execute",
        /// `Execute` of an action whose result is in the cache.
        ExecuteCached = "execute-cached",
    }
}

/// Operations and their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    pub parts: Vec<(ReapiOperation, f64)>,
    /// Nothing was built before: results and digests that are asked for are always missing.
    pub cold: bool,
}

impl Mix {
    fn has(&self, operation: ReapiOperation) -> bool {
        self.parts.iter().any(|(one, _)| *one == operation)
    }

    pub fn executes(&self) -> bool {
        self.has(ReapiOperation::Execute) || self.has(ReapiOperation::ExecuteCached)
    }
}

/// What a load of a build cache sends.
#[derive(Debug, Clone)]
pub struct ReapiPlan {
    pub mix: Mix,
    /// How long each action takes, in seconds; the distribution's draws belong to the actions.
    pub action_time: Distribution,
    /// Length of blobs, in bytes.
    pub blob_size: Distribution,
    /// Digests or blobs of one batch.
    pub batch: usize,
    /// Blobs, and results, that are stored before the load.
    pub stock: u64,
    /// Probability that a read asks for one of the stock.
    pub hit_ratio: f64,
    /// How such a read chooses among them: those that were stored last are the most popular.
    pub choice: KeyChoice,
    pub instance: String,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReapiPlanError {
    #[error(
        "`{text}` is not a mix; write `cold`, `cold-execution`, `warm`, `get`, `put`, or weights \
         like `read=3,write=1` (find-missing, get-result, put-result, batch-read, batch-update, \
         read, write, execute, execute-cached)"
    )]
    Mix { text: String },
    #[error("`{text}`: {reason}")]
    Size { text: String, reason: String },
}

impl ReapiPlan {
    /// Reads `cold` and `warm` (as Bazel 4 makes them of a cache), `cold-execution` (as it makes them
    /// of a cluster), `get`, `put`, or weights.
    pub fn parse_mix(text: &str) -> Result<Mix, ReapiPlanError> {
        use ReapiOperation::{Execute, FindMissing, GetResult, PutResult, Read, Write};
        let named = |cold, parts: &[(ReapiOperation, f64)]| Mix { parts: parts.to_vec(), cold };
        // An action of Bazel 4.2.3 that is built, here or on the cluster, and one that is found:
        // counted on a server.
        let asked = [(GetResult, 1.0), (FindMissing, 1.0)];
        match text {
            "cold" => {
                return Ok(named(true, &[&asked[..], &[(Write, 3.1), (PutResult, 1.0)]].concat()));
            }
            "cold-execution" => {
                let built = [(Write, 4.9), (Execute, 1.0), (Read, 1.1)];
                return Ok(named(true, &[&asked[..], &built].concat()));
            }
            "warm" => return Ok(named(false, &[(GetResult, 1.0), (Read, 1.1)])),
            "get" => return Ok(named(false, &[(Read, 1.0)])),
            "put" => return Ok(named(false, &[(Write, 1.0)])),
            _ => {}
        }
        let wrong = || ReapiPlanError::Mix { text: text.to_owned() };
        let parts = weights(text, None, ReapiOperation::named).ok_or_else(wrong)?;
        Ok(Mix { parts, cold: false })
    }

    /// Reads a size or a distribution of sizes, such as `64KiB` or `exponential:20KiB`.
    pub fn parse_size(text: &str) -> Result<Distribution, ReapiPlanError> {
        Self::distribution(text, Unit::Bytes)
    }

    /// Reads how long actions take, such as `100ms` or `exponential:100ms`.
    pub fn parse_time(text: &str) -> Result<Distribution, ReapiPlanError> {
        Self::distribution(text, Unit::Time)
    }

    fn distribution(text: &str, unit: Unit) -> Result<Distribution, ReapiPlanError> {
        Distribution::parse(text, unit).map_err(|error| ReapiPlanError::Size {
            text: text.to_owned(),
            reason: error.to_string(),
        })
    }

    fn operations(&self) -> Vec<String> {
        self.mix.parts.iter().map(|(operation, _)| operation.name().to_owned()).collect()
    }
}

/// A load of a build cache that did not take place.
#[derive(Debug, thiserror::Error)]
pub enum ReapiLoadError {
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Two clients would execute the same action, and the cluster would run it once for both.
    #[error(
        "{clients} clients execute actions of a stock of {stock}; each needs one of its own: use \
         --stock {clients} or more"
    )]
    FewActions { clients: usize, stock: u64 },
    #[error("{target} refused to store what the load reads: {said}")]
    Refused { target: std::net::SocketAddr, said: String },
}

/// Runs a load test of a build cache.
pub fn run(
    plan: &LoadPlan,
    reapi: &ReapiPlan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, ReapiLoadError> {
    if reapi.mix.has(ReapiOperation::Execute) && reapi.stock < plan.clients as u64 {
        return Err(ReapiLoadError::FewActions { clients: plan.clients, stock: reapi.stock });
    }
    let stock = Arc::new(preload::prepare(plan, reapi)?);
    let body = |start: Start<'_>, recorder: Recorder| {
        tasks::run_thread(&start, connect_all(&start.place, &stock), recorder)
    };
    Ok(run_threads("reapi", plan, reapi.operations(), &body, stop, progress)?)
}

struct ReapiClient {
    stock: Arc<Stock>,
    connection: Rc<Connection>,
    random: Rc<RefCell<Random>>,
    /// What each operation of the mix is owed.
    owed: Rc<RefCell<Vec<f64>>>,
    actions: Turn,
    next: Option<Next>,
}

/// The actions that one client executes, one after the other: no other client has them, as long as there is one
/// for each.
#[derive(Debug, Clone, Copy)]
struct Turn {
    next: u64,
    first: u64,
    step: u64,
    stock: u64,
}

impl Turn {
    fn new(client: usize, clients: usize, stock: u64) -> Self {
        // Clients beyond the stock share its actions with others.
        let (first, step) = (client as u64 % stock.max(1), clients as u64);
        Self { next: first, first, step, stock }
    }

    fn take(&mut self) -> u64 {
        let taken = self.next;
        self.next += self.step;
        if self.next >= self.stock {
            self.next = self.first;
        }
        taken
    }
}

/// The request that is sent next, and what its answer must be.
struct Next {
    operation: ReapiOperation,
    body: Bytes,
    expected: Expected,
}

/// What an answer must say.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Expected {
    Done,
    /// These blobs of the stock; `None` for those that were never stored.
    Blobs(Vec<Option<u64>>),
    Missing(usize),
    /// The result of this action of the stock; `None` for one that was never stored.
    Result(Option<u64>),
    /// That an action was run, or that its result was in the cache.
    Executed {
        cached: bool,
    },
}

/// The connected clients of a thread: a connection each.
async fn connect_all(place: &Place<'_>, stock: &Arc<Stock>) -> Result<Vec<ReapiClient>, LoadError> {
    let limit = std::time::Duration::from_nanos(place.plan.timeout_ns);
    let connections = place.connect(None, async |target, _| {
        let connection = Rc::new(connection(target));
        connection.open_within(limit).await.map(|()| connection)
    });
    let (random, owed) = (place.random(), place.owed(stock.plan.mix.parts.len()));
    let clients = place.clients().zip(connections.await?).map(|(client, connection)| ReapiClient {
        stock: Arc::clone(stock),
        connection,
        random: Rc::clone(&random),
        owed: owed(),
        actions: Turn::new(client, place.plan.clients, stock.plan.stock),
        next: None,
    });
    Ok(clients.collect())
}

impl ReapiClient {
    /// The operation that is furthest behind its share.
    fn in_turn(&self) -> usize {
        let mix = &self.stock.plan.mix.parts;
        furthest_behind(mix.iter().map(|(_, weight)| *weight), &mut self.owed.borrow_mut())
    }

    /// The number of one of the stock, or none, as the hit ratio has it.
    fn pick(&self) -> Option<u64> {
        let random = &mut *self.random.borrow_mut();
        let plan = &self.stock.plan;
        let hit = plan.stock > 0 && unit_interval(random) < plan.hit_ratio;
        hit.then(|| plan.stock - 1 - self.stock.chooser.choose(random))
    }

    /// As [`pick`](Self::pick), for what is asked before anything is built.
    fn pick_asked(&self) -> Option<u64> {
        if self.stock.plan.mix.cold { None } else { self.pick() }
    }

    fn picks(&self) -> Vec<Option<u64>> {
        draw_batch(&mut self.random.borrow_mut(), &self.stock.plan, &self.stock.chooser)
    }

    /// As [`picks`](Self::picks), for what is asked before anything is built.
    fn picks_asked(&self) -> Vec<Option<u64>> {
        let plan = &self.stock.plan;
        if plan.mix.cold { vec![None; plan.batch.max(1)] } else { self.picks() }
    }

    /// A number that no other blob has.
    fn fresh(&self) -> u64 {
        // The stock has the numbers below 2^40; the chance of two of the same is below 2^-20 for a
        // million of them.
        self.random.borrow_mut().next_u64() | 1 << 63
    }

    fn make(&mut self, operation: ReapiOperation) -> Next {
        let stock = Arc::clone(&self.stock);
        let (body, expected) = match operation {
            ReapiOperation::FindMissing => {
                let picks = self.picks_asked();
                let missing = picks.iter().filter(|pick| pick.is_none()).count();
                (stock.find_missing(&picks, || self.fresh()), Expected::Missing(missing))
            }
            ReapiOperation::BatchRead => {
                let picks = self.picks();
                (stock.batch_read(&picks, || self.fresh()), Expected::Blobs(picks))
            }
            ReapiOperation::BatchUpdate => {
                let numbers: Vec<u64> =
                    (0..stock.plan.batch.max(1)).map(|_| self.fresh()).collect();
                (stock.batch_update(&numbers), Expected::Done)
            }
            ReapiOperation::Read => {
                let pick = self.pick();
                (stock.read(pick, || self.fresh()), Expected::Blobs(vec![pick]))
            }
            ReapiOperation::Write => (stock.write(self.fresh()), Expected::Done),
            ReapiOperation::GetResult => {
                let pick = self.pick_asked();
                let number = pick.unwrap_or_else(|| self.fresh());
                (stock.get_result(number), Expected::Result(pick))
            }
            ReapiOperation::PutResult => {
                let number = self.fresh();
                (stock.put_result(number, self.pick().unwrap_or(0)), Expected::Done)
            }
            ReapiOperation::Execute => {
                (stock.execute(self.actions.take(), true), Expected::Executed { cached: false })
            }
            ReapiOperation::ExecuteCached => {
                (stock.execute(self.actions.take(), false), Expected::Executed { cached: true })
            }
        };
        Next { operation, body, expected }
    }
}

impl tasks::Client for ReapiClient {
    fn draw(&mut self) -> (usize, u64) {
        let place = self.in_turn();
        let next = self.make(self.stock.plan.mix.parts[place].0);
        let bytes = next.body.len() as u64;
        self.next = Some(next);
        (place, bytes)
    }

    async fn exchange(&mut self) -> Result<(Reply, u64), ErrorKind> {
        // Nothing was drawn: never asked for.
        let next = self.next.take().ok_or(ErrorKind::ClientError)?;
        let answer = match self.connection.call_many(path(next.operation), next.body).await {
            Ok(messages) => Ok(messages),
            Err(Refusal::Status { code, .. }) => Err(code),
            Err(refusal) => return Err(refusal.kind()),
        };
        let messages = answer.iter().flatten();
        let bytes: u64 = messages.map(|message| (message.len() + grpc::PREFIX_BYTES) as u64).sum();
        let reply = reply(&self.stock, next.operation, &next.expected, answer);
        Ok((reply.unwrap_or_else(Reply::refused), bytes))
    }

    fn failed(&mut self, kind: ErrorKind) {
        if kind != ErrorKind::TimedOut {
            self.connection.forget();
        }
    }
}

/// What a batch asks for, as the hit ratio has it: no blob twice while the stock has enough, as clients of
/// the API ask: then any other. A proxy answers once for a blob that is named twice.
fn draw_batch(random: &mut Random, plan: &ReapiPlan, chooser: &Chooser) -> Vec<Option<u64>> {
    let stock = usize::try_from(plan.stock).unwrap_or(usize::MAX);
    let mut taken = std::collections::HashSet::new();
    let mut draw = || {
        let hit = plan.stock > 0 && unit_interval(random) < plan.hit_ratio;
        hit.then(|| {
            let mut chosen = plan.stock - 1 - chooser.choose(random);
            while (taken.len() as u64) < plan.stock && !taken.insert(chosen) {
                chosen = index_below(random, stock) as u64;
            }
            chosen
        })
    };
    (0..plan.batch.max(1)).map(|_| draw()).collect()
}

/// Bytes that may be under way to a client: more than the largest blob of a usual load.
const WINDOW: u32 = 16 << 20;

fn connection(target: std::net::SocketAddr) -> Connection {
    Connection::new(target, Access::default()).with_window(WINDOW)
}

fn path(operation: ReapiOperation) -> &'static str {
    match operation {
        ReapiOperation::FindMissing => {
            "/build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs"
        }
        ReapiOperation::GetResult => "/build.bazel.remote.execution.v2.ActionCache/GetActionResult",
        ReapiOperation::PutResult => {
            "/build.bazel.remote.execution.v2.ActionCache/UpdateActionResult"
        }
        ReapiOperation::BatchRead => {
            "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchReadBlobs"
        }
        ReapiOperation::BatchUpdate => {
            "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs"
        }
        ReapiOperation::Read => "/google.bytestream.ByteStream/Read",
        ReapiOperation::Write => "/google.bytestream.ByteStream/Write",
        ReapiOperation::Execute | ReapiOperation::ExecuteCached => {
            "/build.bazel.remote.execution.v2.Execution/Execute"
        }
    }
}

/// What an answer means.
fn reply(
    stock: &Stock,
    operation: ReapiOperation,
    expected: &Expected,
    answer: Result<Vec<Bytes>, i32>,
) -> Result<Reply, ErrorKind> {
    const NOT_FOUND: i32 = 5;
    let miss = Reply { misses: 1, ..Reply::default() };
    let messages = match answer {
        Ok(messages) => messages,
        // One of the stock may have been evicted: a miss as well.
        Err(NOT_FOUND) if !matches!(expected, Expected::Done | Expected::Executed { .. }) => {
            return Ok(miss);
        }
        Err(code) => return Err(grpc::kind(code)),
    };
    match (operation, expected) {
        (ReapiOperation::BatchUpdate, _) => preload::batch_done(&messages, stock.plan.batch),
        (_, Expected::Done) => Ok(Reply::default()),
        (_, Expected::Executed { cached }) => action::check(&messages, *cached),
        (ReapiOperation::FindMissing, Expected::Missing(count)) => {
            let missing = preload::count_missing(&messages)?;
            // Fewer missing than were never stored: it claims blobs that it cannot have.
            if missing < *count {
                return Err(ErrorKind::WrongValue);
            }
            let hits = stock.plan.batch.max(1).saturating_sub(missing);
            Ok(Reply { hits: narrow(hits), misses: narrow(missing), ..Reply::default() })
        }
        (ReapiOperation::BatchRead, Expected::Blobs(picks)) => stock.check_batch(&messages, picks),
        (_, Expected::Blobs(picks)) => {
            let number = picks.first().copied().flatten().ok_or(ErrorKind::WrongValue)?;
            stock.check_stream(&messages, number)?;
            Ok(Reply { hits: 1, ..Reply::default() })
        }
        (_, Expected::Result(Some(_))) => Ok(Reply { hits: 1, ..Reply::default() }),
        _ => Err(ErrorKind::WrongValue),
    }
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, stream};

    #[test]
    fn mixes_are_read_and_nonsense_refused() {
        let mix = ReapiPlan::parse_mix("read=3, write=1").unwrap();
        assert_eq!(mix.parts, [(ReapiOperation::Read, 3.0), (ReapiOperation::Write, 1.0)]);
        let cold = ReapiPlan::parse_mix("cold").unwrap();
        assert!(cold.parts.len() == 4 && cold.cold && !cold.executes());
        let cold = ReapiPlan::parse_mix("cold-execution").unwrap();
        assert!(cold.parts.len() == 5 && cold.cold && cold.executes());
        let warm = ReapiPlan::parse_mix("warm").unwrap();
        assert!(warm.parts.len() == 2 && !warm.cold);
        assert!(ReapiPlan::parse_mix("execute=1").unwrap().executes());
        for nonsense in ["", "hot", "read", "read=0", "read=1,read=2", "run=1", "read=NaN"] {
            assert!(ReapiPlan::parse_mix(nonsense).is_err(), "{nonsense}");
        }
        assert!(ReapiPlan::parse_size("64KiB").is_ok());
        assert!(ReapiPlan::parse_size("64").is_err());
        assert!(ReapiPlan::parse_time("exponential:100ms").is_ok());
        assert!(ReapiPlan::parse_time("5").is_err());
    }

    /// A proxy answers once for a blob that is named twice, so a batch of fewer blobs would count as a full one.
    #[test]
    fn a_batch_names_no_blob_twice_while_the_stock_has_enough() {
        let mut plan = preload::tests::stock().plan;
        let mut random = stream(1, Purpose::Requests, 0);
        let choices = [KeyChoice::Fixed, KeyChoice::Zipf(1.0), KeyChoice::Uniform];
        for (batch, count) in [(3, 5), (50, 50), (50, 1_000), (10, 4)] {
            (plan.batch, plan.stock) = (batch, count);
            for (ratio, choice) in [1.0, 0.5, 0.0].into_iter().zip(choices) {
                plan.hit_ratio = ratio;
                let chooser = Chooser::new(choice, usize::try_from(count).unwrap());
                let picks = draw_batch(&mut random, &plan, &chooser);
                assert_eq!(picks.len(), batch);
                let hits: Vec<u64> = picks.into_iter().flatten().collect();
                let different: std::collections::BTreeSet<u64> = hits.iter().copied().collect();
                assert!(different.iter().all(|one| *one < count));
                assert_eq!(different.len() as u64, (hits.len() as u64).min(count), "{plan:?}");
                assert!(ratio > 0.0 || hits.is_empty());
                assert!(ratio < 1.0 || hits.len() == batch);
            }
        }
    }

    /// Of ten blobs nine reads in ten ask for the last, which a cache that holds a part of them holds.
    #[test]
    fn the_most_popular_blobs_are_those_that_were_stored_last() {
        let mut plan = preload::tests::stock().plan;
        (plan.batch, plan.stock) = (1, 10);
        let choice = KeyChoice::parse("hotspot:10%,90%").unwrap();
        let (mut random, chooser) = (stream(1, Purpose::Requests, 0), Chooser::new(choice, 10));
        let draws = (0..10_000).flat_map(|_| draw_batch(&mut random, &plan, &chooser));
        let last = draws.filter(|pick| *pick == Some(9)).count();
        // Four standard deviations of a binomial: 4·√(10,000·0.9·0.1) = 120.
        assert!((8_880..=9_120).contains(&last), "{last}");
    }

    /// Two that execute the same action at once would be one execution with two answers.
    #[test]
    fn no_two_clients_ever_have_the_same_action() {
        for (clients, stock) in [(3, 3), (3, 10), (4, 8), (1, 2)] {
            let mut owner = std::collections::BTreeMap::new();
            for client in 0..clients {
                let mut turn = Turn::new(client, clients, stock);
                for _ in 0..20 {
                    let action = turn.take();
                    assert!(action < stock, "{action} of {stock}");
                    assert_eq!(*owner.entry(action).or_insert(client), client, "{action}");
                }
            }
        }
    }

    /// Asked for what is in the cache, clients share actions where there are not enough; none asks for one that
    /// was never stored.
    #[test]
    fn more_clients_than_actions_ask_for_those_that_are_there() {
        for (clients, stock) in [(5, 3), (2_000, 1_000), (7, 1)] {
            for client in 0..clients {
                let mut turn = Turn::new(client, clients, stock);
                assert!((0..5).all(|_| turn.take() < stock), "{client} of {clients}");
            }
        }
    }
}
