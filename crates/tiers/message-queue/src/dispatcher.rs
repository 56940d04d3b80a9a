//! The bounded request queue and the workers that serve what waits together.
//!
//! A worker takes the first request that waits, waits for a connection of the pool, and then adds
//! what has come to wait meanwhile, up to the batch size: under load the time for a connection and
//! for a commit is shared by many, while a lone request is served at once.
//!
//! While a batch is under way the next one starts when as many wait as that one has: the first who
//! comes back would be served alone otherwise, and many small batches cost more than few large
//! ones. When the batch under way ends, or takes long, whoever waits goes at once.
//!
//! A batch leaves half of those who may come for the next one: all who wait and as many as the last
//! batch had, who are about to come back. Without that, all would go together, and then the next
//! batch would begin with the first who is back, alone: large and tiny batches in turns, of which
//! the tiny ones pay a commit each, and PostgreSQL idle while everyone else works.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kendall_tier::{Clock, Exchange, Instruments, Limit, Moments, Outcome, Recorder, Stage};
use tokio::sync::{Notify, oneshot};
use tonic::Status;

use crate::database::{Databases, Session};
use crate::operation::{Answer, Operation};

/// Stages of this tier beside those that all have.
pub(crate) const STAGES: &[&str] = &["connection_wait_time"];
const CONNECTION_WAIT: Stage = Stage(0);

/// Outcomes of operations.
pub(crate) const OUTCOMES: &[&str] = &["done", "no-message", "refused", "error", "abandoned"];
const DONE: Outcome = Outcome(0);
const NO_MESSAGE: Outcome = Outcome(1);
const REFUSED: Outcome = Outcome(2);
const ERROR: Outcome = Outcome(3);
const ABANDONED: Outcome = Outcome(4);

/// Bounds of this tier.
pub(crate) const LIMITS: &[&str] = &["request-queue-full", "waiting-clients-full"];
const QUEUE_FULL: Limit = Limit(0);
const WAITING_FULL: Limit = Limit(1);

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
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Pending>,
    /// Operations of all that wait.
    requests: usize,
    /// Operations of the batch that was put together last.
    last_batch: usize,
    /// Batches that are under way.
    under_way: usize,
    /// Written under this lock, by whoever holds it.
    recorder: Recorder,
    draining: bool,
}

/// What an idle worker finds.
enum First {
    /// The first request that waits, and when it was taken.
    Taken(Pending, u64),
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
    reply: oneshot::Sender<Vec<Result<Answer, Status>>>,
}

impl Dispatcher {
    pub(crate) fn new(instruments: &Instruments, capacity: usize, batch: usize) -> Arc<Self> {
        let recorder = instruments.recorder();
        Arc::new(Self {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                requests: 0,
                last_batch: 0,
                under_way: 0,
                recorder,
                draining: false,
            }),
            work: Notify::new(),
            clock: instruments.clock().clone(),
            capacity,
            batch,
        })
    }

    /// Puts operations into the request queue together, where they stay together, and gives their
    /// answers in order.
    pub(crate) async fn perform_all(
        &self,
        operations: Vec<Operation>,
    ) -> Result<Vec<Result<Answer, Status>>, Status> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let answers = {
            let arrived_ns = self.clock.now_ns();
            let mut state = self.lock();
            if state.draining {
                return Err(Status::unavailable("the middleware is stopping; try another"));
            }
            if state.requests + operations.len() > self.capacity {
                state.recorder.limit_hit(QUEUE_FULL);
                return Err(Status::resource_exhausted(format!(
                    "{} requests wait, the queue's bound is {}; try again later",
                    state.requests, self.capacity
                )));
            }
            for operation in &operations {
                state.recorder.arrived(operation.request_type());
            }
            state.recorder.queue_length.add(arrived_ns, count(&operations));
            state.requests += operations.len();
            let (reply, answers) = oneshot::channel();
            state.waiting.push_back(Pending { operations, arrived_ns, reply });
            answers
        };
        self.work.notify_one();
        answers.await.map_err(|_| Status::unavailable("the middleware stopped before it answered"))
    }

    /// Puts one operation into the request queue and gives its answer.
    pub(crate) async fn perform(&self, operation: Operation) -> Result<Answer, Status> {
        let mut answers = self.perform_all(vec![operation]).await?;
        answers.pop().unwrap_or_else(|| Err(Status::internal("an operation had no answer")))
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().requests
    }

    /// Counts a client that was not allowed to wait for a message.
    pub(crate) fn refused_to_wait(&self) {
        self.lock().recorder.limit_hit(WAITING_FULL);
    }

    /// Counts a client's connection that opened or closed.
    pub(crate) fn connection(&self, opened: bool) {
        let now_ns = self.clock.now_ns();
        let connections = &mut self.lock().recorder.connections;
        if opened {
            connections.add(now_ns, 1);
        } else {
            connections.subtract(now_ns, 1);
        }
    }

    /// Lets no more requests in; workers end when nothing waits.
    pub(crate) fn drain(&self) {
        self.lock().draining = true;
        self.work.notify_waiters();
        self.work.notify_one();
    }

    /// Serves requests until the dispatcher is drained: one worker.
    pub(crate) async fn work(self: Arc<Self>, databases: Databases, mut recorder: Recorder) {
        let mut patient = true;
        loop {
            let waiting = self.work.notified();
            match self.take_first(patient) {
                First::Taken(first, dequeued_ns) => {
                    patient = true;
                    recorder.workers_busy.add(dequeued_ns, 1);
                    self.serve(first, dequeued_ns, &databases, &mut recorder).await;
                    let freed_ns = self.clock.now_ns();
                    recorder.workers_busy.subtract(freed_ns, 1);
                    recorder.held(freed_ns.saturating_sub(dequeued_ns));
                    self.lock().under_way -= 1;
                }
                First::Held => {
                    patient = tokio::time::timeout(PATIENCE, waiting).await.is_ok();
                }
                First::Nothing if self.drained() => {
                    // Whoever sleeps shall see it too.
                    self.work.notify_one();
                    return;
                }
                First::Nothing => waiting.await,
            }
        }
    }

    async fn serve(
        &self,
        first: Pending,
        dequeued_ns: u64,
        databases: &Databases,
        recorder: &mut Recorder,
    ) {
        let session = databases.session().await;
        let connected_ns = self.clock.now_ns();
        let mut batch = vec![(first, dequeued_ns)];
        self.take_more(&mut batch, connected_ns);
        // A client that is gone must not take a message away.
        batch.retain(|(pending, _)| {
            let abandoned = pending.reply.is_closed();
            if abandoned {
                recorder.outcome(ABANDONED, 1);
            }
            !abandoned
        });
        if batch.is_empty() {
            return;
        }
        let sent_ns = self.clock.now_ns();
        let operations: Vec<&Operation> = batch.iter().flat_map(|(p, _)| &p.operations).collect();
        let answers = match session {
            Ok(session) => {
                let answers = perform_batch(&session, &operations, recorder).await;
                recorder.backend_answered(0, self.clock.now_ns().saturating_sub(sent_ns));
                answers
            }
            Err(status) => operations.iter().map(|_| Err(status.clone())).collect(),
        };
        let received_ns = self.clock.now_ns();
        let exchange = Exchange { sent_ns, received_ns };
        let mut answers = answers.into_iter();
        for (pending, dequeued_ns) in batch {
            let own: Vec<_> = answers.by_ref().take(pending.operations.len()).collect();
            for answer in &own {
                recorder.outcome(outcome(answer), 1);
            }
            // The receiver may have gone meanwhile; what was done stays done.
            drop(pending.reply.send(own));
            let moments = Moments {
                arrived_ns: pending.arrived_ns,
                dequeued_ns,
                backend: Some(exchange),
                replied_ns: self.clock.now_ns(),
            };
            for operation in &pending.operations {
                let request = operation.request_type();
                recorder.stage(request, CONNECTION_WAIT, connected_ns.saturating_sub(dequeued_ns));
                recorder.completed(request, &moments);
            }
        }
    }

    fn take_first(&self, patient: bool) -> First {
        let mut state = self.lock();
        let enough = state.last_batch.min(self.batch);
        if patient && state.under_way > 0 && (1..enough).contains(&state.requests) {
            return First::Held;
        }
        let Some(pending) = state.waiting.pop_front() else { return First::Nothing };
        let now_ns = self.clock.now_ns();
        state.left(&pending, now_ns);
        state.under_way += 1;
        First::Taken(pending, now_ns)
    }

    fn take_more(&self, batch: &mut Vec<(Pending, u64)>, now_ns: u64) {
        let mut state = self.lock();
        let mut taken: usize = batch.iter().map(|(pending, _)| pending.operations.len()).sum();
        let half = (taken + state.requests + state.last_batch).div_ceil(2);
        while taken < self.batch.min(half)
            && let Some(pending) = state.waiting.pop_front()
        {
            taken += pending.operations.len();
            state.left(&pending, now_ns);
            batch.push((pending, now_ns));
        }
        state.last_batch = taken;
        if !state.waiting.is_empty() {
            self.work.notify_one();
        }
    }

    fn drained(&self) -> bool {
        let state = self.lock();
        state.draining && state.waiting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts that `pending` waits no more.
    fn left(&mut self, pending: &Pending, now_ns: u64) {
        self.requests = self.requests.saturating_sub(pending.operations.len());
        self.recorder.queue_length.subtract(now_ns, count(&pending.operations));
    }
}

fn count<T>(operations: &[T]) -> u64 {
    u64::try_from(operations.len()).expect("a usize is no more than a u64")
}

async fn perform_batch(
    session: &Session,
    operations: &[&Operation],
    recorder: &mut Recorder,
) -> Vec<Result<Answer, Status>> {
    recorder.backend_sent(0, count(operations));
    let answers = session.perform(operations).await;
    if answers.iter().any(|a| a.as_ref().is_err_and(|s| s.code() == tonic::Code::Unavailable)) {
        recorder.backend_failed(0);
    }
    answers
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
