//! The Remote Execution API: a build cache under the operations that build tools send.
//!
//! Before the load, a stock of blobs and of results of actions is stored. A read asks for one of
//! the stock with the stated probability, and for one that nobody stored else; a write stores a
//! blob that is new. What comes back is checked: its length, and the number that it begins with.
//!
//! Left out: execution, whose load is a build.

mod call;
mod stock;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use rand::Rng as _;
use tokio::task::LocalSet;

use crate::distribution::{Distribution, Unit, index_below, unit_interval};
use crate::driver::{ErrorKind, Reply};
use crate::load::{LoadError, LoadPlan, LoadProgress, PacePlan, Start, run_threads};
use crate::random::{Purpose, Random, stream};
use crate::recorder::Recorder;
use crate::tasks;
use crate::turns::furthest_behind;
use call::{Answer, Connection};
use kendall_protocols::load_result::LoadResult;
use stock::Stock;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReapiOperation {
    /// `FindMissingBlobs` of a batch.
    FindMissing,
    /// `GetActionResult`.
    GetResult,
    /// `UpdateActionResult`, whose outputs are of the stock.
    PutResult,
    /// `BatchReadBlobs` of a batch.
    BatchRead,
    /// `BatchUpdateBlobs` of a batch of new blobs.
    BatchUpdate,
    /// `ByteStream.Read` of a blob.
    Read,
    /// `ByteStream.Write` of a new blob.
    Write,
}

impl ReapiOperation {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::FindMissing,
        Self::GetResult,
        Self::PutResult,
        Self::BatchRead,
        Self::BatchUpdate,
        Self::Read,
        Self::Write,
    ];

    /// Name in mixes and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FindMissing => "find-missing",
            Self::GetResult => "get-result",
            Self::PutResult => "put-result",
            Self::BatchRead => "batch-read",
            Self::BatchUpdate => "batch-update",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// What a load of a build cache sends.
#[derive(Debug, Clone)]
pub struct ReapiPlan {
    /// Operations and their weights.
    pub mix: Vec<(ReapiOperation, f64)>,
    /// Length of blobs, in bytes.
    pub blob_size: Distribution,
    /// Digests or blobs of one batch.
    pub batch: usize,
    /// Blobs, and results, that are stored before the load.
    pub stock: u64,
    /// Probability that a read asks for one of the stock.
    pub hit_ratio: f64,
    /// Instance name.
    pub instance: String,
}

/// A plan that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReapiPlanError {
    /// Not a mix.
    #[error(
        "`{text}` is not a mix; write `cold`, `warm`, `get`, `put`, or weights like \
         `read=3,write=1` (find-missing, get-result, put-result, batch-read, batch-update, read, \
         write)"
    )]
    Mix {
        /// What was written.
        text: String,
    },
    /// Not a size.
    #[error("`{text}`: {reason}")]
    Size {
        /// What was written.
        text: String,
        /// What is wrong.
        reason: String,
    },
}

impl ReapiPlan {
    /// Reads `cold` and `warm` (as Bazel 4 makes them of a cache), `get`, `put`, or weights.
    ///
    /// # Errors
    /// [`ReapiPlanError::Mix`] when it is none of these.
    pub fn parse_mix(text: &str) -> Result<Vec<(ReapiOperation, f64)>, ReapiPlanError> {
        use ReapiOperation::{FindMissing, GetResult, PutResult, Read, Write};
        // An action of Bazel 4.2.3 that is built, and one that is found: counted on a server.
        match text {
            "cold" => {
                return Ok(vec![
                    (GetResult, 1.0),
                    (FindMissing, 1.0),
                    (Write, 3.1),
                    (PutResult, 1.0),
                ]);
            }
            "warm" => return Ok(vec![(GetResult, 1.0), (Read, 1.1)]),
            "get" => return Ok(vec![(Read, 1.0)]),
            "put" => return Ok(vec![(Write, 1.0)]),
            _ => {}
        }
        let wrong = || ReapiPlanError::Mix { text: text.to_owned() };
        let mut mix = Vec::new();
        for part in text.split(',') {
            let (name, weight) = part.trim().split_once('=').ok_or_else(wrong)?;
            let named = |operation: &ReapiOperation| operation.name() == name;
            let operation = ReapiOperation::ALL.into_iter().find(named).ok_or_else(wrong)?;
            let weight: f64 = weight.parse().map_err(|_| wrong())?;
            if !(weight > 0.0 && weight.is_finite()) || mix.iter().any(|(o, _)| *o == operation) {
                return Err(wrong());
            }
            mix.push((operation, weight));
        }
        Ok(mix)
    }

    /// Reads a size or a distribution of sizes, such as `64KiB` or `exponential:20KiB`.
    ///
    /// # Errors
    /// [`ReapiPlanError::Size`] when it is neither.
    pub fn parse_size(text: &str) -> Result<Distribution, ReapiPlanError> {
        Distribution::parse(text, Unit::Bytes).map_err(|error| ReapiPlanError::Size {
            text: text.to_owned(),
            reason: error.to_string(),
        })
    }

    fn operations(&self) -> Vec<String> {
        self.mix.iter().map(|(operation, _)| operation.name().to_owned()).collect()
    }
}

/// A load of a build cache that did not take place.
#[derive(Debug, thiserror::Error)]
pub enum ReapiLoadError {
    /// No server, or no threads.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The cache would not take the stock.
    #[error("{target} refused to store what the load reads: {said}")]
    Refused {
        /// Its address.
        target: std::net::SocketAddr,
        /// What it said.
        said: String,
    },
}

/// Runs a load test of a build cache.
///
/// # Errors
/// [`ReapiLoadError`] when a target cannot be reached or does not take the stock. What happens
/// later is counted.
pub fn run(
    plan: &LoadPlan,
    reapi: &ReapiPlan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, ReapiLoadError> {
    let stock = Arc::new(stock::prepare(plan, reapi)?);
    let body = |start: Start<'_>, recorder: Recorder| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let random = stream(plan.seed, Purpose::Requests, start.place.thread);
        let load = async {
            let clients = connect_all(&start, &stock, random).await;
            tasks::run_thread(&start, clients, recorder).await
        };
        LocalSet::new().block_on(&runtime, load)
    };
    Ok(run_threads("reapi", plan, reapi.operations(), &body, stop, progress)?)
}

/// One client of the load.
struct ReapiClient {
    stock: Arc<Stock>,
    connection: Rc<Connection>,
    random: Rc<RefCell<Random>>,
    /// What each operation of the mix is owed.
    owed: Rc<RefCell<Vec<f64>>>,
    next: Option<Next>,
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
    /// That it was done.
    Done,
    /// These blobs of the stock; `None` for those that nobody stored.
    Blobs(Vec<Option<u64>>),
    /// So many that are missing.
    Missing(usize),
    /// The result of this action of the stock; `None` for one that nobody stored.
    Result(Option<u64>),
}

/// The connected clients of a thread: a connection each.
async fn connect_all(
    start: &Start<'_>,
    stock: &Arc<Stock>,
    random: Random,
) -> Result<Vec<ReapiClient>, LoadError> {
    let place = &start.place;
    let limit = std::time::Duration::from_nanos(place.plan.timeout_ns);
    let random = Rc::new(RefCell::new(random));
    let nothing = || Rc::new(RefCell::new(vec![0.0; stock.plan.mix.len()]));
    let together = matches!(place.plan.pace, PacePlan::Open { .. }).then(nothing);
    let mut clients = Vec::new();
    for target in place.connections() {
        let connection = Rc::new(Connection::new(target));
        connection.open_within(limit).await?;
        clients.push(ReapiClient {
            stock: Arc::clone(stock),
            connection,
            random: Rc::clone(&random),
            owed: together.clone().unwrap_or_else(nothing),
            next: None,
        });
    }
    Ok(clients)
}

impl ReapiClient {
    /// The operation that is furthest behind its share.
    fn in_turn(&self) -> usize {
        let mix = &self.stock.plan.mix;
        furthest_behind(mix.iter().map(|(_, weight)| *weight), &mut self.owed.borrow_mut())
    }

    /// The number of one of the stock, or none, as the hit ratio has it.
    fn pick(&self) -> Option<u64> {
        let mut random = self.random.borrow_mut();
        let stock = usize::try_from(self.stock.plan.stock).unwrap_or(usize::MAX);
        let hit = stock > 0 && unit_interval(&mut *random) < self.stock.plan.hit_ratio;
        hit.then(|| index_below(&mut *random, stock) as u64)
    }

    fn picks(&self) -> Vec<Option<u64>> {
        (0..self.stock.plan.batch.max(1)).map(|_| self.pick()).collect()
    }

    /// A number that no other blob has.
    fn fresh(&self) -> u64 {
        // The stock has the numbers below 2^40; the chance of two of the same is below 2^-20 for a
        // million of them.
        self.random.borrow_mut().next_u64() | 1 << 63
    }

    fn make(&self, operation: ReapiOperation) -> Next {
        let stock = &self.stock;
        let (body, expected) = match operation {
            ReapiOperation::FindMissing => {
                let picks = self.picks();
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
                let pick = self.pick();
                let number = pick.unwrap_or_else(|| self.fresh());
                (stock.get_result(number), Expected::Result(pick))
            }
            ReapiOperation::PutResult => {
                let number = self.fresh();
                (stock.put_result(number, self.pick().unwrap_or(0)), Expected::Done)
            }
        };
        Next { operation, body, expected }
    }
}

impl tasks::Client for ReapiClient {
    fn draw(&mut self) -> (usize, u64) {
        let place = self.in_turn();
        let next = self.make(self.stock.plan.mix[place].0);
        let bytes = next.body.len() as u64;
        self.next = Some(next);
        (place, bytes)
    }

    async fn exchange(&mut self) -> Result<(Reply, u64), ErrorKind> {
        // Nothing was drawn: never asked for.
        let next = self.next.take().ok_or(ErrorKind::ClientError)?;
        let answer = self.connection.call(path(next.operation), next.body).await?;
        let bytes = answer.bytes();
        let reply = reply(&self.stock, next.operation, &next.expected, answer);
        Ok((reply.unwrap_or_else(Reply::refused), bytes))
    }

    fn failed(&mut self, kind: ErrorKind) {
        if kind != ErrorKind::TimedOut {
            self.connection.close();
        }
    }
}

/// The path of an operation's method.
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
    }
}

/// What an answer means.
fn reply(
    stock: &Stock,
    operation: ReapiOperation,
    expected: &Expected,
    answer: Answer,
) -> Result<Reply, ErrorKind> {
    const NOT_FOUND: i32 = 5;
    let miss = Reply { misses: 1, ..Reply::default() };
    let messages = match answer {
        Answer::Messages(messages) => messages,
        // One of the stock may have been evicted: a miss as well.
        Answer::Refused(NOT_FOUND) if !matches!(expected, Expected::Done) => return Ok(miss),
        Answer::Refused(code) => return Err(call::kind(code)),
    };
    match (operation, expected) {
        (ReapiOperation::BatchUpdate, _) => stock::batch_done(&messages, stock.plan.batch),
        (_, Expected::Done) => Ok(Reply::default()),
        (ReapiOperation::FindMissing, Expected::Missing(count)) => {
            let missing = stock::count_missing(&messages)?;
            // Fewer than nobody stored: it has what it cannot have.
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

    #[test]
    fn mixes_are_read_and_nonsense_refused() {
        let mix = ReapiPlan::parse_mix("read=3, write=1").unwrap();
        assert_eq!(mix, [(ReapiOperation::Read, 3.0), (ReapiOperation::Write, 1.0)]);
        assert_eq!(ReapiPlan::parse_mix("cold").unwrap().len(), 4);
        assert_eq!(ReapiPlan::parse_mix("warm").unwrap().len(), 2);
        for nonsense in ["", "hot", "read", "read=0", "read=1,read=2", "execute=1", "read=NaN"] {
            assert!(ReapiPlan::parse_mix(nonsense).is_err(), "{nonsense}");
        }
        assert!(ReapiPlan::parse_size("64KiB").is_ok());
        assert!(ReapiPlan::parse_size("64").is_err());
    }
}
