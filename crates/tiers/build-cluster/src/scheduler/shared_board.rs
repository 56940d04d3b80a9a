//! The board with what surrounds it: a clock, those who watch operations, and the workers' streams.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kendall_tier::Clock;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::board::{
    Board, Effect, Ending, Join, LeaseId, Loss, OperationId, Refusal, Stage, Submission, WorkerId,
};
use super::operation_name::{Asked, OperationName};
use super::report::{Answered, Report};
use crate::status;
use crate::time_of_day;
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

#[derive(Debug)]
pub(super) struct SharedBoard {
    state: Mutex<State>,
    clock: Clock,
    /// Differs between schedulers, so that names of operations do not meet.
    session: u64,
}

#[derive(Debug)]
struct State {
    board: Board<Payload, Answer>,
    known: HashMap<OperationId, Known>,
    streams: HashMap<WorkerId, (u64, mpsc::Sender<Said>)>,
    next_stream: u64,
    /// Operations whose actions began: their clients hear of it at the next tick, unless it ended by then.
    began: Vec<OperationId>,
    report: Report,
    /// When the board last got the time.
    ticked_ns: u64,
    closed: bool,
}

/// An operation, with what the board does not hold.
#[derive(Debug)]
struct Known {
    name: Arc<str>,
    changed: watch::Sender<()>,
}

/// What a worker's stream carries: messages, and at last why it ends.
pub(super) type Said = Result<FromScheduler, Status>;

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) id: OperationId,
    pub(super) name: Arc<str>,
    pub(super) changes: watch::Receiver<()>,
}

/// What a client hears of a scheduler that stops: it comes back to the next one.
pub(super) const STOPS: &str = "the scheduler stops";

/// A stream to a worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamId {
    pub(super) worker: WorkerId,
    number: u64,
}

/// Messages that wait for one worker; beyond that its connection is taken for broken.
const OUTGOING: usize = 8192;
/// Ticks that come so late mean that this process stood still: they are due every 0.1 s.
const LATE_NS: u64 = 1_000_000_000;

impl SharedBoard {
    pub(super) fn new(
        board: Board<Payload, Answer>,
        session: u64,
        report: Report,
        clock: Clock,
    ) -> Self {
        let state = State {
            board,
            known: HashMap::new(),
            streams: HashMap::new(),
            next_stream: 0,
            began: Vec::new(),
            report,
            ticked_ns: clock.now_ns(),
            closed: false,
        };
        Self { state: Mutex::new(state), clock, session }
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Board<Payload, Answer>, u64) -> T) -> T {
        look(&self.state.lock().board, self.clock.now_ns())
    }

    /// Changes the board and does what follows from it.
    fn change<T>(&self, change: impl FnOnce(&mut Board<Payload, Answer>, u64) -> T) -> T {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        let result = change(&mut state.board, now_ns);
        state.act(now_ns);
        result
    }

    /// A new operation, under a name that says what was asked for.
    pub(super) fn submit(
        &self,
        submission: Submission<Payload>,
        asked: Asked,
    ) -> Result<Watched, Status> {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        if state.closed {
            return Err(Status::unavailable(STOPS));
        }
        let submitted = state.board.submit(submission, now_ns);
        if let Err(refusal) = &submitted {
            state.report.refused(refusal);
        }
        let id = submitted.map_err(|refusal| refuse(&refusal))?;
        let name: Arc<str> = OperationName { session: self.session, id, asked }.to_string().into();
        let (changed, changes) = watch::channel(());
        state.known.insert(id, Known { name: Arc::clone(&name), changed });
        state.report.submitted();
        state.act(now_ns);
        Ok(Watched { id, name, changes })
    }

    /// Watches an operation; the caller must [`unwatch`](Self::unwatch) it.
    pub(super) fn watch(&self, id: OperationId) -> Option<Watched> {
        let mut state = self.state.lock();
        let known = state.known.get(&id)?;
        let (name, changes) = (Arc::clone(&known.name), known.changed.subscribe());
        state.board.watch(id).ok()?;
        Some(Watched { id, name, changes })
    }

    /// The name under which an operation was given to its client.
    pub(super) fn name(&self, id: OperationId) -> Option<Arc<str>> {
        self.state.lock().known.get(&id).map(|known| Arc::clone(&known.name))
    }

    /// Whether this scheduler gave the name, and not one before it.
    pub(super) fn gave(&self, name: &OperationName) -> bool {
        name.session == self.session
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
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        let stood_ns = now_ns.saturating_sub(state.ticked_ns);
        if stood_ns >= LATE_NS {
            tracing::warn!(
                stood_still_s = stood_ns / 1_000_000_000,
                "this scheduler stood still; workers that it could not hear keep their leases"
            );
            state.board.stood_still(stood_ns, now_ns);
        }
        state.ticked_ns = now_ns;
        state.board.tick(now_ns);
        state.act(now_ns);
        for id in std::mem::take(&mut state.began) {
            state.wake(id);
        }
    }

    /// Registers a worker; messages to it come out of the receiver.
    pub(super) fn join(&self, join: Join) -> (StreamId, mpsc::Receiver<Said>) {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        let (sender, receiver) = mpsc::channel(OUTGOING);
        let (name, slots, held) = (Arc::clone(&join.name), join.slots, join.held.len());
        let worker = state.board.join(join, now_ns);
        state.next_stream += 1;
        let number = state.next_stream;
        let again = state.streams.insert(worker, (number, sender)).is_some();
        tracing::info!(worker = %name, slots, held, again, "a worker registers");
        state.act(now_ns);
        (StreamId { worker, number }, receiver)
    }

    /// Its stream ended, unless it has another one by now.
    pub(super) fn broke(&self, stream: StreamId) {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        if state.is_current(stream) {
            state.streams.remove(&stream.worker);
            state.board.disconnected(stream.worker, now_ns);
        }
        state.act(now_ns);
    }

    /// Hears a worker, and does what follows. False when this is not a stream of a worker any more: it
    /// was lost, or has another stream; what it says here then comes again there.
    fn hear(&self, stream: StreamId, hear: impl FnOnce(&mut State, WorkerId, u64)) -> bool {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        let current = state.is_current(stream);
        if current {
            state.board.heard(stream.worker, now_ns);
            hear(&mut state, stream.worker, now_ns);
            state.act(now_ns);
        }
        current
    }

    pub(super) fn progress(&self, stream: StreamId, stages: &[(LeaseId, &'static str)]) -> bool {
        self.hear(stream, |state, worker, _| {
            for (lease, stage) in stages {
                state.board.progress(worker, *lease, stage);
            }
        })
    }

    /// A worker's answer. The worker gets an acknowledgement in any case.
    pub(super) fn finish(&self, stream: StreamId, lease: LeaseId, response: Vec<u8>) -> bool {
        let answered = Answered::read(&response);
        self.hear(stream, |state, worker, now_ns| {
            if state.board.finish(worker, lease, Arc::new(Answer { response }), now_ns) {
                state.report.answered(&answered);
            }
            state.tell(worker, received(lease), now_ns);
        })
    }

    pub(super) fn give_back(&self, stream: StreamId, lease: LeaseId, why: &str) -> bool {
        self.hear(stream, |state, worker, now_ns| {
            state.board.give_back(worker, lease, why, now_ns);
            state.tell(worker, received(lease), now_ns);
        })
    }

    /// Ends all streams: clients and workers go to the next scheduler.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.streams.clear();
        state.known.clear();
    }

    pub(super) fn drain(&self, stream: StreamId) -> bool {
        self.hear(stream, |state, worker, _| state.board.drain(worker))
    }

    pub(super) fn leave(&self, stream: StreamId) -> bool {
        self.hear(stream, |state, worker, now_ns| state.board.leave(worker, now_ns))
    }

    /// The state of an operation as its clients see it; `None` when it is forgotten.
    pub(super) fn stage(&self, id: OperationId) -> Option<Stage<Answer>> {
        self.state.lock().board.stage(id).ok()
    }

    /// The result of an Execute answered from the cache.
    pub(super) fn cached(&self) {
        self.state.lock().report.cached();
    }
}

fn received(lease: LeaseId) -> from_scheduler::Message {
    from_scheduler::Message::Received(Received { lease: lease.0 })
}

impl State {
    /// Whether a worker's stream is the one that it has.
    fn is_current(&self, stream: StreamId) -> bool {
        self.streams.get(&stream.worker).is_some_and(|(number, _)| *number == stream.number)
    }

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
                    Effect::Lost { worker, name, loss, leases } => {
                        self.lose(worker, &name, loss, leases);
                    }
                    Effect::Forgotten(id) => {
                        self.known.remove(&id);
                    }
                    Effect::Queued { .. }
                    | Effect::Started { .. }
                    | Effect::Dropped
                    | Effect::Completed { .. } => {}
                }
            }
        }
        let totals = self.board.totals();
        self.report.levels(&totals, now_ns);
    }

    /// Has the watchers of an operation look at it.
    fn wake(&self, id: OperationId) {
        if let Some(known) = self.known.get(&id) {
            known.changed.send_replace(());
        }
    }

    /// Ends the stream of a worker that is none any more: it hears why, and registers anew.
    fn lose(&mut self, worker: WorkerId, name: &str, loss: Loss, leases: usize) {
        let seconds = |nanoseconds: u64| Duration::from_nanos(nanoseconds).as_secs_f64();
        let why = match loss {
            Loss::Silent { for_ns } => {
                let silent_s = seconds(for_ns);
                tracing::warn!(
                    worker = name,
                    silent_s,
                    leases,
                    "a worker is silent and counts as dead"
                );
                format!(
                    "nothing was heard of this worker for {silent_s:.1} s; it is to register anew"
                )
            }
            Loss::Away { for_ns } => {
                let away_s = seconds(for_ns);
                tracing::warn!(worker = name, away_s, leases, "a worker did not come back");
                format!("this worker was away for {away_s:.1} s; it is to register anew")
            }
        };
        if let Some((_, stream)) = self.streams.remove(&worker) {
            // Where there is no space for the reason, the stream ends without it.
            drop(stream.try_send(Err(Status::unavailable(why))));
        }
    }

    /// Sends a worker a message. One that does not take its messages is as good as gone: it comes
    /// back with a new stream and says what it holds.
    fn tell(&mut self, worker: WorkerId, message: from_scheduler::Message, now_ns: u64) {
        let Some((_, stream)) = self.streams.get(&worker) else { return };
        if stream.try_send(Ok(FromScheduler { message: Some(message) })).is_err() {
            self.streams.remove(&worker);
            self.board.disconnected(worker, now_ns);
        }
    }
}

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

fn refuse(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::QueueFull { .. } | Refusal::TooManyOperations { .. } => {
            Status::resource_exhausted(refusal.to_string())
        }
        // Workers come back by themselves, and clients ask again.
        Refusal::NoWorker { offers, .. } if offers.is_empty() => {
            Status::unavailable(refusal.to_string())
        }
        // What these workers lack they do not get by waiting.
        Refusal::NoWorker { .. } => Status::failed_precondition(refusal.to_string()),
    }
}

/// A random number: the standard library seeds its hashing from the kernel.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u64(time_of_day::unix_ns());
    hasher.finish()
}
