//! The board with what surrounds it: a clock, those who watch operations, and the workers' streams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kendall_tier::Clock;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::board::{
    Board, Effect, Ending, Join, LeaseId, OperationId, Refusal, Stage, Submission, WorkerId,
};
use super::report::{Answered, Report};
use crate::status;
use crate::wall;
use crate::wire::re;
use crate::work::{FromScheduler, Lease, Received, Stop, from_scheduler};

/// What a worker is given for a task: a lease, but for its number.
pub(super) type Payload = Lease;

/// A finished task's answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// An encoded `ExecuteResponse`.
    pub(super) response: Vec<u8>,
}

/// The board, shared by all requests.
#[derive(Debug)]
pub(super) struct Desk {
    state: Mutex<State>,
    clock: Clock,
    /// Differs between schedulers, so that names of operations do not meet.
    pub(super) session: u64,
}

#[derive(Debug)]
struct State {
    board: Board<Payload, Answer>,
    watchers: HashMap<OperationId, watch::Sender<()>>,
    streams: HashMap<WorkerId, (u64, mpsc::Sender<FromScheduler>)>,
    next_stream: u64,
    /// Operations whose actions began: their clients hear of it at the next tick, unless it ended by then.
    began: Vec<OperationId>,
    report: Report,
}

/// A stream to a worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamId {
    pub(super) worker: WorkerId,
    number: u64,
}

/// Messages that wait for one worker; beyond that its connection is taken for broken.
const OUTGOING: usize = 8192;

impl Desk {
    pub(super) fn new(
        board: Board<Payload, Answer>,
        session: u64,
        report: Report,
        clock: Clock,
    ) -> Self {
        let state = State {
            board,
            watchers: HashMap::new(),
            streams: HashMap::new(),
            next_stream: 0,
            began: Vec::new(),
            report,
        };
        Self { state: Mutex::new(state), clock, session }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the board.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Board<Payload, Answer>, u64) -> T) -> T {
        look(&self.state().board, self.clock.now_ns())
    }

    /// Changes the board and does what follows from it.
    fn change<T>(&self, change: impl FnOnce(&mut Board<Payload, Answer>, u64) -> T) -> T {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        let result = change(&mut state.board, now_ns);
        state.act(now_ns);
        result
    }

    pub(super) fn submit(
        &self,
        submission: Submission<Payload>,
    ) -> Result<(OperationId, watch::Receiver<()>), Refusal> {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        let submitted = state.board.submit(submission, now_ns);
        if let Err(refusal) = &submitted {
            state.report.refused(refusal);
        }
        let id = submitted?;
        let (sender, receiver) = watch::channel(());
        state.watchers.insert(id, sender);
        state.report.submitted();
        state.act(now_ns);
        Ok((id, receiver))
    }

    /// Watches an operation; the caller must [`unwatch`](Self::unwatch) it.
    pub(super) fn watch(&self, id: OperationId) -> Option<watch::Receiver<()>> {
        let mut state = self.state();
        let receiver = state.watchers.get(&id)?.subscribe();
        state.board.watch(id).ok()?;
        Some(receiver)
    }

    pub(super) fn unwatch(&self, id: OperationId) {
        self.change(|board, now_ns| board.unwatch(id, now_ns));
    }

    pub(super) fn cancel(&self, id: OperationId) -> bool {
        self.change(|board, now_ns| board.cancel(id, now_ns)).is_ok()
    }

    pub(super) fn delete(&self, id: OperationId) -> bool {
        self.change(|board, now_ns| board.delete(id, now_ns)).is_ok()
    }

    pub(super) fn tick(&self) {
        self.change(|board, now_ns| board.tick(now_ns));
        let mut state = self.state();
        for id in std::mem::take(&mut state.began) {
            state.wake(id);
        }
    }

    /// A worker registers; messages for it come out of the receiver.
    pub(super) fn join(&self, join: Join) -> (StreamId, mpsc::Receiver<FromScheduler>) {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        let (sender, receiver) = mpsc::channel(OUTGOING);
        let worker = state.board.join(join, now_ns);
        state.next_stream += 1;
        let number = state.next_stream;
        state.streams.insert(worker, (number, sender));
        state.act(now_ns);
        (StreamId { worker, number }, receiver)
    }

    /// Its stream ended, unless it has another one by now.
    pub(super) fn broke(&self, stream: StreamId) {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        if state.streams.get(&stream.worker).is_some_and(|known| known.0 == stream.number) {
            state.streams.remove(&stream.worker);
            state.board.disconnected(stream.worker, now_ns);
        }
        state.act(now_ns);
    }

    pub(super) fn heard(&self, worker: WorkerId, progress: &[(LeaseId, &'static str)]) {
        let now_ns = self.clock.now_ns();
        let board = &mut self.state().board;
        board.heard(worker, now_ns);
        for (lease, stage) in progress {
            board.progress(worker, *lease, stage);
        }
    }

    /// A worker's answer. The worker gets an acknowledgement, whoever the answer was for.
    pub(super) fn finish(&self, worker: WorkerId, lease: LeaseId, response: Vec<u8>) {
        let answered = Answered::read(&response);
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        state.board.heard(worker, now_ns);
        if state.board.finish(worker, lease, Arc::new(Answer { response }), now_ns) {
            state.report.answered(&answered);
        }
        state.tell(worker, from_scheduler::Message::Received(Received { lease: lease.0 }), now_ns);
        state.act(now_ns);
    }

    pub(super) fn give_back(&self, worker: WorkerId, lease: LeaseId, why: &str) {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        state.board.heard(worker, now_ns);
        state.board.give_back(worker, lease, why, now_ns);
        state.tell(worker, from_scheduler::Message::Received(Received { lease: lease.0 }), now_ns);
        state.act(now_ns);
    }

    /// Ends all streams: clients and workers go to the next scheduler.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.streams.clear();
        state.watchers.clear();
    }

    pub(super) fn drain(&self, worker: WorkerId) {
        self.change(|board, _| board.drain(worker));
    }

    pub(super) fn leave(&self, worker: WorkerId) {
        self.change(|board, now_ns| board.leave(worker, now_ns));
    }

    /// The state of an operation as its clients see it; `None` when it is forgotten.
    pub(super) fn stage(&self, id: OperationId) -> Option<Stage<Answer>> {
        self.state().board.stage(id).ok()
    }

    /// The result of an Execute answered from the cache.
    pub(super) fn cached(&self) {
        self.state().report.cached();
    }
}

impl State {
    /// Does what the board asks for.
    fn act(&mut self, now_ns: u64) {
        // Telling a worker may fail, which changes the board again.
        loop {
            let effects = self.board.take_effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.report.count(&effect, now_ns);
                match effect {
                    Effect::Start { worker, lease, payload, .. } => {
                        let lease = Lease { lease: lease.0, ..Lease::clone(&payload) };
                        self.tell(worker, from_scheduler::Message::Lease(lease), now_ns);
                    }
                    Effect::Stop { worker, lease } => {
                        let stop = Stop { lease: lease.0 };
                        self.tell(worker, from_scheduler::Message::Stop(stop), now_ns);
                    }
                    // A message more for each action, and mostly a stage that is over when it arrives.
                    Effect::Began(id) => self.began.push(id),
                    Effect::Changed(id) => self.wake(id),
                    Effect::Forgotten(id) => {
                        self.watchers.remove(&id);
                    }
                    Effect::Queued { .. }
                    | Effect::Started { .. }
                    | Effect::Dropped
                    | Effect::Ended
                    | Effect::Completed { .. } => {}
                }
            }
        }
        let totals = self.board.totals();
        self.report.levels(&totals, now_ns);
    }

    /// Has the watchers of an operation look at it.
    fn wake(&self, id: OperationId) {
        if let Some(watcher) = self.watchers.get(&id) {
            watcher.send_replace(());
        }
    }

    /// Sends a worker a message. One that does not take its messages is as good as gone: it comes
    /// back with a new stream and says what it holds.
    fn tell(&mut self, worker: WorkerId, message: from_scheduler::Message, now_ns: u64) {
        let Some((_, stream)) = self.streams.get(&worker) else { return };
        if stream.try_send(FromScheduler { message: Some(message) }).is_err() {
            self.streams.remove(&worker);
            self.board.disconnected(worker, now_ns);
        }
    }
}

/// The answer to an operation that ended.
pub(super) fn response(ending: &Ending<Answer>) -> Vec<u8> {
    let failed = |status: Status| {
        prost::Message::encode_to_vec(&re::ExecuteResponse {
            message: status.message().to_owned(),
            status: Some(status::to_wire(&status)),
            ..re::ExecuteResponse::default()
        })
    };
    match ending {
        Ending::Answer(answer) => answer.response.clone(),
        Ending::Failed { attempts, last } => {
            let times = if *attempts == 1 { "once".into() } else { format!("{attempts} times") };
            let words = format!("the action was started {times} and never ended; at last: {last}");
            failed(Status::internal(words))
        }
        Ending::NoWorker(refusal) => failed(refuse(refusal)),
        Ending::Cancelled => failed(Status::cancelled("the operation was cancelled")),
        Ending::TimeLimit => {
            failed(Status::deadline_exceeded("the worker did not end the action in time"))
        }
    }
}

/// A refusal as a status.
pub(super) fn refuse(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::QueueFull { .. } | Refusal::TooManyOperations { .. } => {
            Status::resource_exhausted(refusal.to_string())
        }
        Refusal::NoWorker { .. } => Status::failed_precondition(refusal.to_string()),
    }
}

/// A random number: the standard library seeds its hashing from the kernel.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u64(wall::unix_ns());
    hasher.finish()
}
