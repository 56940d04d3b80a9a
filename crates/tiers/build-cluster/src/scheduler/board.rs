//! What the scheduler knows: operations that clients wait for, tasks that wait or execute, workers
//! and what they lease. No clock, no input or output: time is an argument (nanoseconds), and what
//! shall be done about a change is a list of [`Effect`]s.
//!
//! An *operation* is one client's request; a *task* is the work behind it, shared by all operations
//! that ask for the same action at the same time; a *lease* is a task in one slot of a worker.

mod listing;
mod operations;
mod platform;
mod shares;
mod workers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

pub use listing::{InvocationLine, OperationLine, QueueLine, Totals, WorkerLine};
pub use platform::{Offer, Platform};
use shares::{Place, Rank, Shares, Waiting};

/// Bounds. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most tasks that wait.
    pub queue_length: usize,
    /// Most operations that are known, finished ones included.
    pub operations: usize,
    /// How often a task is started before it fails because its workers died.
    pub attempts: u32,
    /// A worker that is silent for so long is dead.
    pub silence_ns: u64,
    /// Time for a worker whose connection broke to come back.
    pub reconnect_ns: u64,
    /// How long tasks wait for a worker of their platform when there is none.
    pub no_worker_ns: u64,
    /// An operation that is not watched for so long is cancelled.
    pub unwatched_ns: u64,
    /// How long the result of a finished operation is kept for those who come back for it.
    pub kept_ns: u64,
}

impl Limits {
    pub const USUAL: Self = Self {
        queue_length: 100_000,
        operations: 200_000,
        attempts: 3,
        silence_ns: 10_000_000_000,
        reconnect_ns: 1_000_000_000,
        no_worker_ns: 30_000_000_000,
        unwatched_ns: 60_000_000_000,
        kept_ns: 60_000_000_000,
    };
}

/// One client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// The work behind one or more operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

/// A worker that registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

/// A task in a slot of a worker. The numbers of two schedulers do not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// Name of an action: instance, digest function and digest.
pub type ActionKey = Arc<str>;

/// A request to execute.
#[derive(Debug, Clone)]
pub struct Submission<P> {
    pub key: ActionKey,
    /// Whether equal requests may share one execution.
    pub merge: bool,
    /// Smaller is sooner.
    pub priority: i32,
    /// The build that it belongs to.
    pub invocation: Arc<str>,
    /// What its worker must offer.
    pub platform: Platform,
    /// A lease older than this is taken back and the task fails: a net below the worker's own limit.
    pub time_limit_ns: u64,
    /// What the worker is given.
    pub payload: Arc<P>,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{waiting} actions wait already, which is the most this scheduler allows")]
    QueueFull { waiting: usize },
    #[error("{known} operations are open already, which is the most this scheduler allows")]
    TooManyOperations { known: usize },
    #[error("{}", platform::no_match(asked, offers))]
    NoWorker { asked: Platform, offers: Vec<Offer> },
}

/// How an operation ended.
#[derive(Debug)]
pub enum Ending<R> {
    /// A worker's answer.
    Answer(Arc<R>),
    /// Its workers died, or could not run it; with the number of starts and the last one's words.
    Failed { attempts: u32, last: Arc<str> },
    /// No worker of its platform was there for too long.
    NoWorker(Refusal),
    /// It was cancelled.
    Cancelled,
    /// Its worker did not end it in time.
    TimeLimit,
}

impl<R> Clone for Ending<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Answer(answer) => Self::Answer(Arc::clone(answer)),
            Self::Failed { attempts, last } => {
                Self::Failed { attempts: *attempts, last: Arc::clone(last) }
            }
            Self::NoWorker(refusal) => Self::NoWorker(refusal.clone()),
            Self::Cancelled => Self::Cancelled,
            Self::TimeLimit => Self::TimeLimit,
        }
    }
}

/// The state of an operation that its client gets.
#[derive(Debug)]
pub enum Stage<R> {
    /// It waits for a slot.
    Queued,
    /// A worker has it.
    Executing,
    Completed(Ending<R>),
}

/// What a worker says that it holds when it registers.
#[derive(Debug, Clone)]
pub struct Held {
    /// The lease, of this scheduler or an earlier one.
    pub lease: LeaseId,
    pub key: ActionKey,
    /// Whether equal requests may share it.
    pub merge: bool,
}

/// What is to be done about a change.
#[derive(Debug)]
pub enum Effect<P> {
    /// Give a worker a task, which was submitted then.
    Start { worker: WorkerId, lease: LeaseId, payload: Arc<P>, queued_ns: u64 },
    /// Tell a worker to end a lease without a result.
    Stop { worker: WorkerId, lease: LeaseId },
    /// A worker is none any more, and so many leases were taken back from it: should it be heard again, it has to
    /// register anew.
    Lost { worker: WorkerId, name: Arc<str>, loss: Loss, leases: usize },
    /// An operation's action was given to a worker: its watchers read it some time later.
    Began(OperationId),
    /// An operation ended: its watchers must read it.
    Changed(OperationId),
    /// An operation is known no longer.
    Forgotten(OperationId),
    /// For the instruments: a task entered the queue, again after its worker died, or not.
    Queued { again: bool },
    /// For the instruments: a task left the queue for a worker.
    Started { waited_ns: u64 },
    /// For the instruments: a task left the queue without a worker.
    Dropped,
    /// For the instruments: a task ended for good, with a worker's answer or without. It was submitted, and its
    /// last lease began, at these moments.
    Completed { queued_ns: u64, started_ns: u64, answered: bool },
}

#[derive(Debug)]
struct Task<P> {
    key: ActionKey,
    platform: Platform,
    payload: Arc<P>,
    time_limit_ns: u64,
    operations: Vec<OperationId>,
    place: Place,
    lease: Option<LeaseId>,
    attempts: u32,
    queued_ns: u64,
}

#[derive(Debug)]
struct Operation<R> {
    task: Option<TaskId>,
    invocation: Arc<str>,
    priority: i32,
    key: ActionKey,
    ending: Option<Ending<R>>,
    watchers: u32,
    unwatched_since_ns: u64,
}

#[derive(Debug)]
struct Lease {
    worker: WorkerId,
    /// None when the client disconnected, or has not returned yet after a restart of the scheduler.
    task: Option<TaskId>,
    key: ActionKey,
    stopping: bool,
    began_ns: u64,
    deadline_ns: u64,
    stage: &'static str,
}

#[derive(Debug)]
struct Worker {
    name: Arc<str>,
    uid: Arc<str>,
    offer: Offer,
    slots: usize,
    leases: Vec<LeaseId>,
    draining: bool,
    connected: bool,
    heard_ns: u64,
    broke_ns: u64,
    last_start: u64,
}

/// A worker that registers.
#[derive(Debug, Clone)]
pub struct Join {
    /// Name for people.
    pub name: Arc<str>,
    /// Random number of its process: the same when it comes back.
    pub uid: Arc<str>,
    pub slots: usize,
    pub offer: Offer,
    /// Leases that run, or whose result is not acknowledged.
    pub held: Vec<Held>,
    /// Whether it takes no more tasks.
    pub draining: bool,
}

/// Why a worker is one no longer, though it did not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// No message came for so long.
    Silent { for_ns: u64 },
    /// Its connection broke, and it did not come back.
    Away { for_ns: u64 },
}

/// The state; see the module.
#[derive(Debug)]
pub struct Board<P, R> {
    limits: Limits,
    next: u64,
    operations: HashMap<OperationId, Operation<R>>,
    /// Finished operations, and open ones that a client stopped watching, each with the moment from
    /// which its time is counted, as far as was known: none is checked before that time is over.
    finished: Turns,
    left: Turns,
    tasks: HashMap<TaskId, Task<P>>,
    in_flight: HashMap<ActionKey, TaskId>,
    queues: BTreeMap<Platform, Waiting>,
    waiting: usize,
    shares: Shares,
    workers: BTreeMap<WorkerId, Worker>,
    leases: HashMap<LeaseId, Lease>,
    /// Leases without a task, by what they execute.
    orphans: HashMap<ActionKey, LeaseId>,
    /// When a worker of that offer was last there.
    departed: HashMap<Offer, u64>,
    started_ns: u64,
    effects: Vec<Effect<P>>,
}

/// Operations by a moment, the earliest first.
type Turns = BinaryHeap<Reverse<(u64, OperationId)>>;

/// How long an invocation that is idle is remembered.
const INVOCATION_NS: u64 = 60_000_000_000;

impl<P, R> Board<P, R> {
    /// Nothing yet. `first` must differ between schedulers: leases are numbered from it.
    pub fn new(limits: Limits, first: u64, now_ns: u64) -> Self {
        Self {
            limits,
            next: first,
            operations: HashMap::new(),
            finished: Turns::new(),
            left: Turns::new(),
            tasks: HashMap::new(),
            in_flight: HashMap::new(),
            queues: BTreeMap::new(),
            waiting: 0,
            shares: Shares::default(),
            workers: BTreeMap::new(),
            leases: HashMap::new(),
            orphans: HashMap::new(),
            departed: HashMap::new(),
            started_ns: now_ns,
            effects: Vec::new(),
        }
    }

    /// What is to be done since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect<P>> {
        std::mem::take(&mut self.effects)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A client asks for an action; it watches the operation from the start.
    pub fn submit(
        &mut self,
        submission: Submission<P>,
        now_ns: u64,
    ) -> Result<OperationId, Refusal> {
        self.make_room()?;
        let merged = submission.merge.then(|| self.in_flight.get(&submission.key).copied());
        let orphan = submission.merge.then(|| self.orphans.get(&submission.key).copied());
        let id = OperationId(self.number());
        let operation = Operation {
            task: None,
            invocation: Arc::clone(&submission.invocation),
            priority: submission.priority,
            key: Arc::clone(&submission.key),
            ending: None,
            watchers: 1,
            unwatched_since_ns: now_ns,
        };
        let task = match (merged.flatten(), orphan.flatten()) {
            (Some(task), _) => {
                self.operations.insert(id, operation);
                self.merge(task, id, now_ns);
                task
            }
            (None, Some(lease)) => {
                let task = self.new_task(submission, id, now_ns);
                self.operations.insert(id, operation);
                self.effects.push(Effect::Queued { again: false });
                self.adopt(task, lease, now_ns);
                task
            }
            (None, None) => {
                self.room_to_wait(&submission.platform, now_ns)?;
                let task = self.new_task(submission, id, now_ns);
                self.operations.insert(id, operation);
                self.enqueue(task, false, now_ns);
                task
            }
        };
        if let Some(operation) = self.operations.get_mut(&id) {
            operation.task = Some(task);
        }
        self.dispatch(now_ns);
        Ok(id)
    }

    fn make_room(&mut self) -> Result<(), Refusal> {
        if self.operations.len() >= self.limits.operations {
            self.forget_one();
        }
        let known = self.operations.len();
        if known >= self.limits.operations {
            return Err(Refusal::TooManyOperations { known });
        }
        Ok(())
    }

    fn room_to_wait(&self, platform: &Platform, now_ns: u64) -> Result<(), Refusal> {
        if !self.may_come(platform, now_ns) {
            return Err(self.no_worker(platform));
        }
        if self.waiting >= self.limits.queue_length {
            return Err(Refusal::QueueFull { waiting: self.waiting });
        }
        Ok(())
    }

    fn no_worker(&self, platform: &Platform) -> Refusal {
        let workers = self.workers.values().filter(|worker| !worker.draining);
        let mut offers: Vec<Offer> = workers.map(|worker| worker.offer.clone()).collect();
        offers.sort_unstable();
        offers.dedup();
        Refusal::NoWorker { asked: platform.clone(), offers }
    }

    /// Whether a worker for it is there, was there a moment ago, or may not have found us yet.
    fn may_come(&self, platform: &Platform, now_ns: u64) -> bool {
        let recent = |at: u64| now_ns.saturating_sub(at) < self.limits.no_worker_ns;
        self.workers.values().any(|worker| !worker.draining && worker.offer.fits(platform))
            || recent(self.started_ns)
            || self.departed.iter().any(|(offer, at)| offer.fits(platform) && recent(*at))
    }

    fn new_task(&mut self, submission: Submission<P>, first: OperationId, now_ns: u64) -> TaskId {
        let id = TaskId(self.number());
        let invocation = self.shares.named(&submission.invocation, now_ns);
        let place = Place { priority: submission.priority, invocation, order: id.0 };
        if submission.merge {
            self.in_flight.insert(Arc::clone(&submission.key), id);
        }
        let task = Task {
            key: submission.key,
            platform: submission.platform,
            payload: submission.payload,
            time_limit_ns: submission.time_limit_ns,
            operations: vec![first],
            place,
            lease: None,
            attempts: 0,
            queued_ns: now_ns,
        };
        self.tasks.insert(id, task);
        id
    }

    /// One more operation waits for a task.
    fn merge(&mut self, id: TaskId, operation: OperationId, now_ns: u64) {
        let task = self.task(id);
        task.operations.push(operation);
        self.replace(id, now_ns);
    }

    /// Puts a waiting task where its operations say: the highest of their priorities, the
    /// invocation of the first.
    fn replace(&mut self, id: TaskId, now_ns: u64) {
        let operations = &self.operations;
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let live = || task.operations.iter().filter_map(|operation| operations.get(operation));
        let Some(priority) = live().map(|operation| operation.priority).min() else { return };
        let Some(invocation) = live().next().map(|operation| Arc::clone(&operation.invocation))
        else {
            return;
        };
        if task.lease.is_some() {
            return;
        }
        let invocation = self.shares.named(&invocation, now_ns);
        let place = Place { priority, invocation, order: task.place.order };
        let old = std::mem::replace(&mut task.place, place);
        if old == place {
            return;
        }
        if let Some(queue) = self.queues.get_mut(&task.platform) {
            queue.remove(old);
            queue.insert(place, id);
        }
        self.shares.waits(place.invocation, now_ns);
        self.shares.leaves(old.invocation, now_ns);
    }

    fn task(&mut self, id: TaskId) -> &mut Task<P> {
        self.tasks.get_mut(&id).expect("an operation's task is there until it ends")
    }

    fn enqueue(&mut self, id: TaskId, again: bool, now_ns: u64) {
        let task = self.task(id);
        let (place, platform) = (task.place, task.platform.clone());
        self.queues.entry(platform).or_default().insert(place, id);
        self.waiting += 1;
        self.shares.waits(place.invocation, now_ns);
        self.effects.push(Effect::Queued { again });
    }

    /// Takes a waiting task out of its queue.
    fn unqueue(&mut self, id: TaskId, now_ns: u64) {
        let task = self.task(id);
        let (place, platform) = (task.place, task.platform.clone());
        if let Some(queue) = self.queues.get_mut(&platform) {
            queue.remove(place);
            if queue.len() == 0 {
                self.queues.remove(&platform);
            }
        }
        self.waiting -= 1;
        self.shares.leaves(place.invocation, now_ns);
    }

    /// Gives free slots to waiting tasks until one of both is used up.
    fn dispatch(&mut self, now_ns: u64) {
        while self.waiting > 0 {
            let best = self.queues.iter().filter_map(|(platform, queue)| {
                let worker = self.free_worker(platform)?;
                let (rank, task) = queue.first(&self.shares, now_ns)?;
                Some((rank, task, worker))
            });
            let Some((_, task, worker)) = best.min_by_key(|(rank, _, _): &(Rank, _, _)| *rank)
            else {
                return;
            };
            self.unqueue(task, now_ns);
            self.start(task, worker, now_ns);
        }
    }

    /// The worker with most free slots; of several, the one that waited longest.
    fn free_worker(&self, platform: &Platform) -> Option<WorkerId> {
        let fits = self.workers.iter().filter(|(_, worker)| {
            worker.connected && worker.free() > 0 && worker.offer.fits(platform)
        });
        let key = |worker: &Worker| (Reverse(worker.free()), worker.last_start);
        fits.min_by_key(|(_, worker)| key(worker)).map(|(id, _)| *id)
    }

    fn start(&mut self, id: TaskId, worker: WorkerId, now_ns: u64) {
        let lease = LeaseId(self.number());
        let order = self.next;
        let task = self.task(id);
        task.lease = Some(lease);
        task.attempts += 1;
        let (payload, queued_ns) = (Arc::clone(&task.payload), task.queued_ns);
        let (key, limit) = (Arc::clone(&task.key), task.time_limit_ns);
        let (invocation, operations) = (task.place.invocation, task.operations.clone());
        self.shares.begins(invocation, now_ns);
        self.leases.insert(
            lease,
            Lease {
                worker,
                task: Some(id),
                key,
                stopping: false,
                began_ns: now_ns,
                deadline_ns: now_ns.saturating_add(limit),
                stage: "started",
            },
        );
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.leases.push(lease);
            worker.last_start = order;
        }
        self.effects.push(Effect::Started { waited_ns: now_ns.saturating_sub(queued_ns) });
        self.effects.push(Effect::Start { worker, lease, payload, queued_ns });
        self.effects.extend(operations.into_iter().map(Effect::Began));
    }

    /// A task takes over what a worker is at already.
    fn adopt(&mut self, id: TaskId, lease: LeaseId, now_ns: u64) {
        let Some(held) = self.leases.get_mut(&lease) else { return };
        self.orphans.remove(&held.key);
        held.task = Some(id);
        held.began_ns = now_ns;
        let task = self.tasks.get_mut(&id).expect("it was made by the caller");
        held.deadline_ns = now_ns.saturating_add(task.time_limit_ns);
        task.lease = Some(lease);
        task.attempts += 1;
        self.shares.begins(task.place.invocation, now_ns);
        self.effects.push(Effect::Started { waited_ns: 0 });
        self.effects.extend(task.operations.iter().copied().map(Effect::Began));
    }
}
