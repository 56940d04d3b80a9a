//! The bounded request queue and the workers that serve what waits together.
//!
//! A worker takes the first request that waits, waits for a connection of the pool, and then adds
//! what has come to wait meanwhile, up to the batch size: under load the time for a connection and
//! for a commit is shared by many, while a lone request is served at once.
//!
//! Requests wait in lanes by what they do: sends, takes, acknowledgements, the rest; a batch is of
//! one lane, and one batch of a lane is executed at a time. So a batch is one statement over many
//! rows, where one of all kinds would be several over few; and sends, which go to the end of a
//! queue, run beside takes, which are at its front, where two batches of takes would only be in each
//! other's way. A lane whose batch would be full does not wait for the one under way.
//!
//! While a batch of sends or takes only waits for its commit, the next of its lane begins when as many
//! wait as are in it: where flushes are slow, clients would else wait for a whole one before their own.
//!
//! While another lane is served, a lane begins when half as many wait as its last batch had: the
//! first request would be a batch of its own otherwise, and many small batches cost more than few
//! large ones. When no batch is under way, or one takes long, waiting requests begin at once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kendall_protocols::queue::Message;
use kendall_protocols::snapshot::{CountedTime, counted};
use kendall_tier::{Clock, Exchange, Instruments, Limit, Moments, Outcome, Recorder, Stage};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tonic::Status;

use crate::database::{Databases, Performed, Session, Undecided};
use crate::operation::{Answer, Operation, PutBack};
use crate::refusal::{stopped, too_late};
use crate::ticket::Ticket;

/// Stages of this tier beside those that all have.
pub(crate) const STAGES: &[&str] = &["connection_wait_time"];
const CONNECTION_WAIT: Stage = Stage(0);

pub(crate) const OUTCOMES: &[&str] =
    &["done", "no-message", "refused", "error", "abandoned", "too-late"];
const DONE: Outcome = Outcome(0);
const NO_MESSAGE: Outcome = Outcome(1);
const REFUSED: Outcome = Outcome(2);
const ERROR: Outcome = Outcome(3);
const ABANDONED: Outcome = Outcome(4);
const TOO_LATE: Outcome = Outcome(5);

/// Bounds of this tier.
pub(crate) const LIMITS: &[&str] = &["request-queue-full", "waiting-clients-full"];
const QUEUE_FULL: Limit = Limit(0);
const WAITING_FULL: Limit = Limit(1);

type Answers = Vec<Result<Answer, Status>>;

/// How long a message waits that could not be put back, before it is tried again.
const PUT_BACK_AGAIN: Duration = Duration::from_millis(500);

/// The log says at most this often how many messages were put back.
const PUT_BACK_LOG: Duration = Duration::from_secs(10);

/// Most clients whose requests are not yet stored in the database.
const MOST_HEARD: usize = 1 << 20;

/// How long requests wait for a batch under way before they start one of their own: several times
/// what a batch takes, so that only one that is stuck is not waited for.
const PATIENCE: Duration = Duration::from_millis(20);

/// Requests that wait, and the workers that serve them.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    state: Mutex<State>,
    work: Notify,
    clock: Clock,
    capacity: usize,
    batch: usize,
    done: Mutex<Done>,
}

/// What was done, and for whom.
#[derive(Debug, Default)]
struct Done {
    /// What went through each queue.
    through: HashMap<i64, Through>,
    /// Clients with requests since the last were stored.
    heard: HashSet<i64>,
}

/// Messages that went through a queue, here.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Through {
    pub(crate) sent: u64,
    /// Received or leased.
    pub(crate) taken: u64,
    /// Taken, and put back because the answer did not reach the client.
    pub(crate) put_back: u64,
}

#[derive(Debug)]
struct State {
    lanes: [Line; Lane::COUNT],
    /// Operations of all that wait.
    requests: usize,
    /// Idle workers that look again in a moment without being woken.
    watching: usize,
    /// Written by the holder of this lock.
    recorder: Recorder,
    draining: bool,
    /// No more requests arrive: workers end when none waits.
    finishing: bool,
    /// What cannot be put back is lost.
    gave_up: bool,
    /// Messages that could not be put back, and when to try again.
    unreturned: Vec<(u64, Pending)>,
    /// Messages to put back since their number was last logged.
    unlogged: usize,
}

/// Requests of one lane.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Pending>,
    /// Operations of those that wait.
    operations: usize,
    /// Operations of its batch that was put together last.
    last_batch: usize,
    /// Batches that are under way, and those of them that only wait for their commit.
    under_way: usize,
    committing: usize,
    /// Operations of the batches under way.
    in_service: usize,
    /// Batches that PostgreSQL answered, their operations, and the time until it had.
    batches: u64,
    batched: u64,
    batched_ns: u64,
    /// How long its next batch may take: the slowest of the last ones.
    slow_ns: u64,
}

/// What requests do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Sends,
    Takes,
    Acknowledgements,
    Rest,
}

impl Line {
    /// Whether its next batch may begin. `busy`: something is under way.
    fn may_begin(&self, busy: bool, batch: usize) -> bool {
        let enough = match self.under_way {
            0 => self.operations >= self.last_batch.div_ceil(2),
            // Fewer would be a flush for less.
            1 => self.committing == 1 && self.operations >= self.in_service,
            _ => false,
        };
        !busy || enough || self.operations >= batch
    }

    fn ended(&mut self, batch: &UnderWay<'_>) {
        self.under_way -= 1;
        self.committing -= usize::from(batch.committing.load(Ordering::Relaxed));
        self.in_service -= batch.operations.load(Ordering::Relaxed);
    }

    fn answered(&mut self, operations: u64, took_ns: u64) {
        self.batches += 1;
        self.batched += operations;
        self.batched_ns += took_ns;
        self.forget();
        self.slow_ns = self.slow_ns.max(took_ns);
    }

    /// One slow batch is forgotten after some ten others.
    fn forget(&mut self) {
        self.slow_ns -= self.slow_ns.div_ceil(8);
    }
}

struct UnderWay<'a> {
    dispatcher: &'a Dispatcher,
    lane: Lane,
    operations: AtomicUsize,
    committing: AtomicBool,
}

impl<'a> UnderWay<'a> {
    const fn new(dispatcher: &'a Dispatcher, lane: Lane) -> Self {
        let (operations, committing) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { dispatcher, lane, operations, committing }
    }

    /// Its statements were executed, and it waits for its commit: the next of its lane may begin.
    fn commits(&self) {
        if self.committing.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut state = self.dispatcher.state.lock();
        state.lanes[self.lane as usize].committing += 1;
        if state.requests > 0 && state.wakes(self.dispatcher.batch) {
            self.dispatcher.work.notify_one();
        }
    }
}

impl Lane {
    const ALL: [Self; Self::COUNT] = [Self::Sends, Self::Takes, Self::Acknowledgements, Self::Rest];
    const COUNT: usize = 4;

    /// The lane of a request: what came in one call is all of a kind.
    fn of(pending: &Pending) -> Self {
        match pending.operations.first() {
            Some(Operation::Send(_)) => Self::Sends,
            Some(Operation::Take(_)) => Self::Takes,
            Some(Operation::Acknowledge(_)) => Self::Acknowledgements,
            _ => Self::Rest,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Sends => "sends",
            Self::Takes => "takes",
            Self::Acknowledgements => "acknowledgements",
            Self::Rest => "rest",
        }
    }
}

/// What an idle worker finds.
enum First {
    /// The first request of a lane, and when it was taken.
    Taken(Lane, Pending, u64),
    /// Requests that wait for a batch under way.
    Held,
    /// Nothing to do.
    Nothing,
}

#[derive(Debug)]
struct Pending {
    /// What came in one call: performed together, in this order, by one worker.
    operations: Vec<Operation>,
    arrived_ns: u64,
    /// When the answer must leave; where it cannot, nothing is done.
    due_ns: Option<u64>,
    reply: Reply,
}

/// Who is to be answered.
#[derive(Debug)]
enum Reply {
    /// A call of its own.
    Caller(oneshot::Sender<Answers>),
    /// One of many on a stream: a single operation.
    Stream(Ticket),
    /// This tier itself.
    Nobody,
}

impl Reply {
    fn is_closed(&self) -> bool {
        match self {
            Self::Caller(caller) => caller.is_closed(),
            Self::Stream(ticket) => ticket.is_closed(),
            Self::Nobody => false,
        }
    }

    /// Answers; returns the answers that no caller will read.
    fn send(self, mut answers: Answers) -> Answers {
        match self {
            Self::Caller(caller) => caller.send(answers).err().unwrap_or_default(),
            Self::Stream(ticket) => {
                let missing = || Err(Status::internal("an operation had no answer"));
                let unread = ticket.answer(answers.pop().unwrap_or_else(missing));
                unread.into_iter().map(|message| Ok(Answer::Message(Some((message, 0))))).collect()
            }
            Self::Nobody => Answers::new(),
        }
    }
}

/// Waits for the answers of a call. Dropped before they were read, it puts back what the call took away.
struct Waiting<'a> {
    dispatcher: &'a Dispatcher,
    answers: oneshot::Receiver<Answers>,
    removes: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Closed first: what is answered from here on is put back by who answers.
        self.answers.close();
        if self.removes
            && let Ok(answers) = self.answers.try_recv()
        {
            self.dispatcher.put_back(messages(answers));
        }
    }
}

/// The answer of a call with one operation.
pub(crate) fn only(mut answers: Answers) -> Result<Answer, Status> {
    answers.pop().unwrap_or_else(|| Err(Status::internal("an operation had no answer")))
}

fn messages(answers: Answers) -> impl Iterator<Item = Message> {
    answers.into_iter().filter_map(Result::ok).filter_map(Answer::into_message)
}

impl Dispatcher {
    pub(crate) fn new(instruments: &Instruments, capacity: usize, batch: usize) -> Arc<Self> {
        let recorder = instruments.recorder();
        Arc::new(Self {
            state: Mutex::new(State {
                lanes: Default::default(),
                requests: 0,
                watching: 0,
                recorder,
                draining: false,
                finishing: false,
                gave_up: false,
                unreturned: Vec::new(),
                unlogged: 0,
            }),
            work: Notify::new(),
            clock: instruments.clock().clone(),
            capacity,
            batch,
            done: Mutex::default(),
        })
    }

    /// Puts operations into the request queue together, where they stay together, and gives their
    /// answers in order.
    pub(crate) async fn perform_all(&self, operations: Vec<Operation>) -> Result<Answers, Status> {
        self.perform_by(operations, None).await
    }

    /// The same; those that take messages away take none where the answer could not leave until `due_ns`.
    pub(crate) async fn perform_by(
        &self,
        operations: Vec<Operation>,
        due_ns: Option<u64>,
    ) -> Result<Answers, Status> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let removes = operations.iter().all(Operation::removes);
        let (reply, answers) = oneshot::channel();
        let arrived_ns = self.clock.now_ns();
        let due_ns = due_ns.filter(|_| removes);
        let pending = Pending { operations, arrived_ns, due_ns, reply: Reply::Caller(reply) };
        let wakes = {
            let mut state = self.state.lock();
            state.enter(pending, self.capacity).map_err(|(status, _)| status)?;
            state.wakes(self.batch)
        };
        if wakes {
            self.work.notify_one();
        }
        let mut waiting = Waiting { dispatcher: self, answers, removes };
        (&mut waiting.answers).await.map_err(|_| stopped())
    }

    /// Puts back messages that were taken for a client that has disconnected. The bound of the queue does not apply:
    /// they are at most as many as the admitted takes.
    pub(crate) fn put_back(&self, messages: impl Iterator<Item = Message>) {
        self.put_back_from(None, messages);
    }

    /// The same, for messages that were taken in a transaction that may have been committed or not.
    fn put_back_from(&self, marker: Option<&str>, messages: impl Iterator<Item = Message>) {
        let arrived_ns = self.clock.now_ns();
        let operation = |message| {
            let (attempt, marker) = (uuid::Uuid::new_v4(), marker.map(str::to_owned));
            Operation::PutBack(Box::new(PutBack { attempt, marker, message }))
        };
        let operations: Vec<_> = messages.map(operation).collect();
        if operations.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.unlogged += operations.len();
        for operation in operations {
            let operations = vec![operation];
            state.admit(Pending { operations, arrived_ns, due_ns: None, reply: Reply::Nobody });
        }
        drop(state);
        self.work.notify_one();
    }

    /// A refused operation of this tier's own: putting a message back is tried again until it succeeds or
    /// the queue is deleted.
    fn not_put_back(&self, operations: Vec<Operation>, arrived_ns: u64, status: &Status) {
        let Some(Operation::PutBack(back)) = operations.first() else { return };
        let (message_id, queue_id) = (back.message.message_id, back.message.queue_id);
        if status.code() == tonic::Code::NotFound {
            tracing::warn!(
                message_id,
                queue_id,
                "a message's queue was deleted before it was put back"
            );
            return;
        }
        let mut state = self.state.lock();
        if state.gave_up {
            tracing::error!(message_id, queue_id, %status, "a message could not be put back: it is lost");
            return;
        }
        if state.unreturned.is_empty() {
            let text = "a message whose taker is gone cannot be put back; trying again";
            tracing::warn!(message_id, queue_id, %status, "{text}");
        }
        let due_ns = self.clock.now_ns() + nanoseconds(PUT_BACK_AGAIN);
        let reply = Reply::Nobody;
        state.unreturned.push((due_ns, Pending { operations, arrived_ns, due_ns: None, reply }));
    }

    /// Tries again, every so often, to put back what could not be.
    pub(crate) async fn put_back_again(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(PUT_BACK_AGAIN / 2);
        let mut log_ns = 0;
        loop {
            ticks.tick().await;
            let now_ns = self.clock.now_ns();
            let mut state = self.state.lock();
            if state.unlogged > 0 && now_ns >= log_ns {
                let messages = std::mem::take(&mut state.unlogged);
                log_ns = now_ns + nanoseconds(PUT_BACK_LOG);
                tracing::info!(
                    messages,
                    "put back: their receivers were gone before they had the answer"
                );
            }
            let mut left = Vec::new();
            let mut due = false;
            for (due_ns, pending) in std::mem::take(&mut state.unreturned) {
                if due_ns <= now_ns {
                    due = true;
                    state.admit(pending);
                } else {
                    left.push((due_ns, pending));
                }
            }
            state.unreturned = left;
            drop(state);
            if due {
                self.work.notify_one();
            }
        }
    }

    /// Gives up what could not be put back; the ids of the messages, which are lost.
    pub(crate) fn give_up(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        state.gave_up = true;
        let unreturned = std::mem::take(&mut state.unreturned);
        let lost = unreturned.iter().flat_map(|(_, pending)| &pending.operations);
        let lost = lost.filter_map(|operation| match operation {
            Operation::PutBack(back) => Some(back.message.message_id),
            _ => None,
        });
        lost.collect()
    }

    /// Puts operations of a stream into the request queue, each for itself.
    pub(crate) fn submit(&self, asked: Vec<(Operation, Ticket)>) {
        if asked.is_empty() {
            return;
        }
        let arrived_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        for (operation, ticket) in asked {
            let reply = Reply::Stream(ticket);
            let operations = vec![operation];
            let pending = Pending { operations, arrived_ns, due_ns: None, reply };
            if let Err((status, pending)) = state.enter(pending, self.capacity) {
                pending.reply.send(vec![Err(status)]);
            }
        }
        let wakes = state.wakes(self.batch);
        drop(state);
        if wakes {
            self.work.notify_one();
        }
    }

    /// Puts one operation into the request queue and gives its answer.
    pub(crate) async fn perform(&self, operation: Operation) -> Result<Answer, Status> {
        only(self.perform_all(vec![operation]).await?)
    }

    fn count_through(&self, operations: &[&Operation], answers: &[Result<Answer, Status>]) {
        let mut done = self.done.lock();
        let Done { through, heard } = &mut *done;
        for (operation, answer) in operations.iter().zip(answers) {
            if answer.is_ok()
                && let Some(client) = operation.client()
                && heard.len() < MOST_HEARD
            {
                heard.insert(client);
            }
            match (operation, answer) {
                (Operation::Send(send), Ok(_)) => through.entry(send.queue).or_default().sent += 1,
                (Operation::Take(take), Ok(Answer::Message(Some(_)))) => {
                    through.entry(take.selector.queue).or_default().taken += 1;
                }
                (Operation::TakeOnce(take, ..), Ok(Answer::Messages(messages)))
                    if !messages.is_empty() =>
                {
                    through.entry(take.selector.queue).or_default().taken += count(messages);
                }
                (Operation::PutBack(back), Ok(_)) => {
                    let queue = i64::try_from(back.message.queue_id).unwrap_or_default();
                    through.entry(queue).or_default().put_back += 1;
                }
                (Operation::DeleteQueue { queue, .. }, Ok(_)) => drop(through.remove(queue)),
                _ => {}
            }
        }
    }

    /// What went through each queue.
    pub(crate) fn through(&self) -> HashMap<i64, Through> {
        self.done.lock().through.clone()
    }

    /// Clients with requests since the last call.
    pub(crate) fn heard(&self) -> Vec<i64> {
        let mut done = self.done.lock();
        done.heard.drain().collect()
    }

    /// Clients with requests that could not be stored.
    pub(crate) fn still_heard(&self, clients: Vec<i64>) {
        self.done.lock().heard.extend(clients);
    }

    /// Batches by lane since the start.
    pub(crate) fn counted(&self) -> Vec<CountedTime> {
        let state = self.state.lock();
        let lanes = Lane::ALL.into_iter().map(|lane| (lane, &state.lanes[lane as usize]));
        lanes
            .map(|(lane, line)| CountedTime {
                kind: counted::BATCH.to_owned(),
                name: lane.name().to_owned(),
                count: line.batches,
                items: line.batched,
                time_ns: line.batched_ns,
            })
            .collect()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().requests
    }

    /// Counts a client that was not allowed to wait for a message.
    pub(crate) fn refused_to_wait(&self) {
        self.state.lock().recorder.limit_hit(WAITING_FULL);
    }

    /// Lets no more requests in.
    pub(crate) fn drain(&self) {
        self.state.lock().draining = true;
    }

    /// Returns when all admitted requests are answered.
    pub(crate) async fn idle(&self) {
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        loop {
            looks.tick().await;
            let state = self.state.lock();
            if state.requests == 0 && state.lanes.iter().all(|line| line.under_way == 0) {
                return;
            }
        }
    }

    /// Lets the workers end, when nothing waits and all is put back.
    pub(crate) fn finish(&self) {
        self.state.lock().finishing = true;
        self.work.notify_waiters();
        self.work.notify_one();
    }

    /// Serves requests until the dispatcher is drained: one worker.
    pub(crate) async fn work(self: Arc<Self>, databases: Databases, mut recorder: Recorder) {
        let mut patient = true;
        loop {
            let waiting = self.work.notified();
            match self.take_first(patient) {
                First::Taken(lane, first, dequeued_ns) => {
                    patient = true;
                    recorder.workers_busy.add(dequeued_ns, 1);
                    let first = (first, dequeued_ns);
                    let batch = UnderWay::new(&self, lane);
                    let answered = self.serve(&batch, first, &databases, &mut recorder).await;
                    let freed_ns = self.clock.now_ns();
                    recorder.workers_busy.subtract(freed_ns, 1);
                    recorder.held(freed_ns.saturating_sub(dequeued_ns));
                    let mut state = self.state.lock();
                    let line = &mut state.lanes[lane as usize];
                    line.ended(&batch);
                    if let Some((operations, took_ns)) = answered {
                        line.answered(operations, took_ns);
                    }
                    if state.requests > 0 {
                        // Two lanes may begin now: this worker sees to one of them.
                        self.work.notify_one();
                    }
                }
                First::Held => {
                    patient = tokio::time::timeout(PATIENCE, waiting).await.is_ok();
                    self.state.lock().watching -= 1;
                }
                First::Nothing if self.drained() => {
                    // Wakes the next worker, which ends too.
                    self.work.notify_one();
                    return;
                }
                First::Nothing => waiting.await,
            }
        }
    }

    /// Serves a batch. Where PostgreSQL answered: its operations, and the time until then.
    async fn serve(
        &self,
        under_way: &UnderWay<'_>,
        first: (Pending, u64),
        databases: &Databases,
        recorder: &mut Recorder,
    ) -> Option<(u64, u64)> {
        let lane = under_way.lane;
        let session = databases.session().await;
        // What came with the first request, and was not read yet, goes with it.
        tokio::task::yield_now().await;
        let connected_ns = self.clock.now_ns();
        let mut batch = vec![first];
        self.take_more(under_way, &mut batch, connected_ns);
        let batch = self.wanted(lane, batch, recorder);
        if batch.is_empty() {
            return None;
        }
        let mut answered = None;
        let sent_ns = self.clock.now_ns();
        let operations: Vec<&Operation> = batch.iter().flat_map(|(p, _)| &p.operations).collect();
        let Performed { answers, undecided } = match session {
            Ok(session) => {
                let performed = perform_batch(session, &operations, under_way, recorder).await;
                let took_ns = self.clock.now_ns().saturating_sub(sent_ns);
                recorder.backend_answered(0, took_ns);
                answered = (!performed.is_lost()).then(|| (count(&operations), took_ns));
                performed
            }
            Err(status) => Performed {
                answers: operations.iter().map(|_| Err(status.clone())).collect(),
                undecided: Vec::new(),
            },
        };
        for Undecided { marker, messages } in undecided {
            let taken = messages.len();
            tracing::warn!(
                taken,
                "the answer to a commit did not arrive; what it took is put back if it was committed"
            );
            self.put_back_from(Some(&marker), messages.into_iter());
        }
        let received_ns = self.clock.now_ns();
        for answer in &answers {
            recorder.outcome(outcome(answer), 1);
        }
        self.count_through(&operations, &answers);
        let exchange = Exchange { sent_ns, received_ns };
        self.answer_all(batch, answers, (exchange, connected_ns), recorder);
        answered
    }

    /// Operations of a batch whose clients can be answered: a client that has left, or will, must not remove a message.
    fn wanted(
        &self,
        lane: Lane,
        batch: Vec<(Pending, u64)>,
        recorder: &mut Recorder,
    ) -> Vec<(Pending, u64)> {
        let answered_ns = self.clock.now_ns() + self.state.lock().lanes[lane as usize].slow_ns;
        let mut wanted = Vec::with_capacity(batch.len());
        for (pending, dequeued_ns) in batch {
            if pending.reply.is_closed() {
                recorder.outcome(ABANDONED, 1);
            } else if pending.due_ns.is_some_and(|due_ns| due_ns < answered_ns) {
                recorder.outcome(TOO_LATE, 1);
                // Takes may be faster by now, and none is tried.
                self.state.lock().lanes[lane as usize].forget();
                pending.reply.send(vec![Err(too_late())]);
            } else {
                wanted.push((pending, dequeued_ns));
            }
        }
        wanted
    }

    /// Answers each request of a batch, and writes down how long it took.
    fn answer_all(
        &self,
        batch: Vec<(Pending, u64)>,
        answers: Answers,
        (exchange, connected_ns): (Exchange, u64),
        recorder: &mut Recorder,
    ) {
        let mut answers = answers.into_iter();
        for (pending, dequeued_ns) in batch {
            let its: Answers = answers.by_ref().take(pending.operations.len()).collect();
            let Pending { operations, arrived_ns, reply, .. } = pending;
            let mut failed = None;
            if let Reply::Nobody = reply {
                failed = its.into_iter().next().and_then(Result::err);
            } else {
                let unread = reply.send(its);
                if operations.iter().all(Operation::removes) {
                    self.put_back(messages(unread));
                }
            }
            let moments = Moments {
                arrived_ns,
                dequeued_ns,
                backend: Some(exchange),
                replied_ns: self.clock.now_ns(),
            };
            for operation in &operations {
                let request = operation.request_type();
                recorder.stage(request, CONNECTION_WAIT, connected_ns.saturating_sub(dequeued_ns));
                recorder.completed(request, &moments);
            }
            if let Some(status) = failed {
                self.not_put_back(operations, arrived_ns, &status);
            }
        }
    }

    /// The first request of the lane that may begin and has waited longest.
    fn take_first(&self, patient: bool) -> First {
        let mut state = self.state.lock();
        let busy = state.is_busy();
        let may_begin = |line: &Line| !patient || line.may_begin(busy, self.batch);
        let front = |line: &Line| line.waiting.front().map(|pending| pending.arrived_ns);
        let first = Lane::ALL
            .into_iter()
            .filter(|lane| may_begin(&state.lanes[*lane as usize]))
            .filter_map(|lane| front(&state.lanes[lane as usize]).map(|arrived| (arrived, lane)))
            .min_by_key(|(arrived, _)| *arrived);
        let Some((_, lane)) = first else {
            if state.requests == 0 {
                return First::Nothing;
            }
            state.watching += 1;
            return First::Held;
        };
        let now_ns = self.clock.now_ns();
        let Some(pending) = state.next(lane, now_ns) else { return First::Nothing };
        state.lanes[lane as usize].under_way += 1;
        if state.requests > 0 && state.watching == 0 {
            // This one may be long: another sees to those that are left.
            self.work.notify_one();
        }
        First::Taken(lane, pending, now_ns)
    }

    /// Adds what waits in the batch's lane.
    fn take_more(&self, under_way: &UnderWay<'_>, batch: &mut Vec<(Pending, u64)>, now_ns: u64) {
        let lane = under_way.lane;
        let mut state = self.state.lock();
        let mut taken: usize = batch.iter().map(|(pending, _)| pending.operations.len()).sum();
        while taken < self.batch
            && let Some(pending) = state.next(lane, now_ns)
        {
            taken += pending.operations.len();
            batch.push((pending, now_ns));
        }
        let line = &mut state.lanes[lane as usize];
        line.last_batch = taken;
        line.in_service += taken;
        under_way.operations.store(taken, Ordering::Relaxed);
        if state.requests > 0 {
            self.work.notify_one();
        }
    }

    fn drained(&self) -> bool {
        let state = self.state.lock();
        state.finishing && state.requests == 0 && state.unreturned.is_empty()
    }
}

impl State {
    /// Lets operations wait together, if they may.
    fn enter(&mut self, pending: Pending, capacity: usize) -> Result<(), (Status, Pending)> {
        if self.draining {
            let status = Status::unavailable("the middleware is stopping; try another");
            return Err((status, pending));
        }
        if self.requests + pending.operations.len() > capacity {
            self.recorder.limit_hit(QUEUE_FULL);
            let status = Status::resource_exhausted(format!(
                "{} requests wait, the queue's bound is {capacity}; try again later",
                self.requests
            ));
            return Err((status, pending));
        }
        self.admit(pending);
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.lanes.iter().any(|line| line.under_way > 0)
    }

    /// Whether a new request wakes a worker: where a lane may begin, or no worker is about to look by itself. Without
    /// it nearly every request under load would wake a worker that goes back to sleep.
    fn wakes(&self, batch: usize) -> bool {
        let busy = self.is_busy();
        let begins = |line: &Line| !line.waiting.is_empty() && line.may_begin(busy, batch);
        self.watching == 0 || self.lanes.iter().any(begins)
    }

    fn admit(&mut self, pending: Pending) {
        for operation in &pending.operations {
            self.recorder.arrived(operation.request_type());
        }
        self.recorder.queue_length.add(pending.arrived_ns, count(&pending.operations));
        self.requests += pending.operations.len();
        let line = &mut self.lanes[Lane::of(&pending) as usize];
        line.operations += pending.operations.len();
        line.waiting.push_back(pending);
    }

    /// Takes the first request out of a lane.
    fn next(&mut self, lane: Lane, now_ns: u64) -> Option<Pending> {
        let line = &mut self.lanes[lane as usize];
        let pending = line.waiting.pop_front()?;
        line.operations = line.operations.saturating_sub(pending.operations.len());
        self.requests = self.requests.saturating_sub(pending.operations.len());
        self.recorder.queue_length.subtract(now_ns, count(&pending.operations));
        Some(pending)
    }
}

fn count<T>(operations: &[T]) -> u64 {
    u64::try_from(operations.len()).expect("a usize is no more than a u64")
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

async fn perform_batch(
    session: Session,
    operations: &[&Operation],
    under_way: &UnderWay<'_>,
    recorder: &mut Recorder,
) -> Performed {
    recorder.backend_sent(0, count(operations));
    let performed = session.perform(operations, &|| under_way.commits()).await;
    if performed.is_lost() {
        recorder.backend_failed(0);
    }
    performed
}

fn outcome(answer: &Result<Answer, Status>) -> Outcome {
    match answer {
        Ok(Answer::Message(None)) => NO_MESSAGE,
        Ok(_) => DONE,
        Err(status) => match status.code() {
            tonic::Code::Unavailable | tonic::Code::Internal | tonic::Code::Unknown => ERROR,
            _ => REFUSED,
        },
    }
}

#[cfg(test)]
mod tests {
    use kendall_tier::Layout;

    use super::*;
    use crate::operation::REQUEST_TYPES;

    const BATCH: usize = 8;

    #[test]
    fn a_request_wakes_a_worker_where_one_is_needed() {
        let layout = Layout {
            tier: "message-queue",
            request_types: REQUEST_TYPES,
            stages: STAGES,
            outcomes: OUTCOMES,
            limits: LIMITS,
            backends: vec!["postgresql/test".into()],
        };
        let instruments = Instruments::new(layout, Clock::monotonic());
        let dispatcher = Dispatcher::new(&instruments, 100, BATCH);
        let come = || {
            let operations = vec![Operation::Goodbye { client: 1 }];
            let mut state = dispatcher.state.lock();
            let reply = Reply::Nobody;
            state.admit(Pending { operations, arrived_ns: 0, due_ns: None, reply });
            state.wakes(BATCH)
        };
        assert!(come(), "nothing is under way");
        let First::Taken(lane, ..) = dispatcher.take_first(true) else { panic!("it may begin") };
        dispatcher.state.lock().lanes[lane as usize].last_batch = 4;
        assert!(come(), "nobody looks again by itself");
        assert!(matches!(dispatcher.take_first(true), First::Held));
        for _ in 2..BATCH {
            assert!(!come(), "a worker looks again soon, and nothing may begin");
        }
        assert!(come(), "a full batch waits for nobody");
        // An urgent batch is taken whatever is under way, and another worker is woken for the rest.
        dispatcher.state.lock().watching -= 1;
        assert!(matches!(dispatcher.take_first(false), First::Taken(..)));
        assert!(come());
    }

    #[test]
    fn the_next_batch_begins_while_one_waits_for_its_commit() {
        let mut line = Line { under_way: 1, in_service: 4, operations: 4, ..Line::default() };
        assert!(!line.may_begin(true, BATCH), "its statement runs");
        line.committing = 1;
        assert!(line.may_begin(true, BATCH));
        line.operations = 3;
        assert!(!line.may_begin(true, BATCH), "fewer than are in it");
        (line.under_way, line.committing, line.in_service, line.operations) = (2, 2, 4, 7);
        assert!(!line.may_begin(true, BATCH), "two at most");
    }
}
