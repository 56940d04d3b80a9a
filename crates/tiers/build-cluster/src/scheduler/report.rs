//! What the scheduler counts. Each change of a task's state is counted once, so the number of tasks
//! in a state is the difference of two counts.

use kendall_tier::{Instruments, Layout, Limit, Moments, Outcome, Recorder, RequestType, Stage};
use prost::Message as _;

use super::board::{Effect, Refusal, Totals};
use crate::instruments::{Counter, Durations, Families};
use crate::wire::{protobuf, re};

const EXECUTE: RequestType = RequestType(0);
const CACHED: Outcome = Outcome(0);
const ANSWERED: Outcome = Outcome(1);
const UNANSWERED: Outcome = Outcome(2);
const DROPPED: Outcome = Outcome(3);
const RETRIED: Outcome = Outcome(4);
const QUEUE_FULL: Limit = Limit(0);
const OPERATIONS: Limit = Limit(1);
const NO_WORKER: Limit = Limit(2);

pub(super) fn layout(cache: String) -> Layout {
    Layout {
        tier: "build-scheduler",
        request_types: &["execute"],
        stages: &["fetching", "running", "uploading"],
        outcomes: &["cached", "answered", "unanswered", "dropped", "retried"],
        limits: &["queue_length", "operations", "no_worker"],
        backends: vec![cache],
    }
}

/// The scheduler's counts.
#[derive(Debug)]
pub(super) struct Report {
    recorder: Recorder,
    instruments: Instruments,
    operations: Counter,
    operations_cached: Counter,
    queued: [Counter; 2],
    executing: Counter,
    completed: [Counter; 4],
    dropped: Counter,
    stages: [Durations; 5],
    waiting: usize,
    busy: usize,
    slots: usize,
}

/// What a result says of its execution.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Answered {
    outcome: usize,
    fetching_ns: Option<u64>,
    running_ns: Option<u64>,
    uploading_ns: Option<u64>,
}

impl Answered {
    /// Of an encoded `ExecuteResponse`.
    pub(super) fn read(response: &[u8]) -> Self {
        let Ok(response) = re::ExecuteResponse::decode(response) else { return Self::default() };
        let refused = response.status.as_ref().is_some_and(|status| status.code != 0);
        let Some(result) = response.result else { return Self { outcome: 2, ..Self::default() } };
        let outcome = match (refused, result.exit_code) {
            (true, _) => 2,
            (false, 0) => 0,
            (false, _) => 1,
        };
        let Some(metadata) = result.execution_metadata else {
            return Self { outcome, ..Self::default() };
        };
        Self {
            outcome,
            fetching_ns: between(
                metadata.input_fetch_start_timestamp.as_ref(),
                metadata.input_fetch_completed_timestamp.as_ref(),
            ),
            running_ns: between(
                metadata.execution_start_timestamp.as_ref(),
                metadata.execution_completed_timestamp.as_ref(),
            ),
            uploading_ns: between(
                metadata.output_upload_start_timestamp.as_ref(),
                metadata.output_upload_completed_timestamp.as_ref(),
            ),
        }
    }
}

fn between(from: Option<&protobuf::Timestamp>, to: Option<&protobuf::Timestamp>) -> Option<u64> {
    let nanoseconds = |stamp: &protobuf::Timestamp| {
        i128::from(stamp.seconds) * 1_000_000_000 + i128::from(stamp.nanos)
    };
    u64::try_from(nanoseconds(to?) - nanoseconds(from?)).ok()
}

impl Report {
    pub(super) fn new(instruments: &Instruments, families: &Families) -> Self {
        let queued = |again: &str| {
            families.counter(
                "kendall_build_tasks_queued_total",
                "Tasks that entered the queue, again after a worker died or not.",
                &[("again", again)],
            )
        };
        let completed = |result: &str| {
            families.counter(
                "kendall_build_tasks_completed_total",
                "Tasks that left a slot for good, by what came of them.",
                &[("result", result)],
            )
        };
        let stage = |stage: &str| {
            families.durations(
                "kendall_build_stage_duration_seconds",
                "Time of a task in a stage.",
                &[("stage", stage)],
            )
        };
        Self {
            recorder: instruments.recorder(),
            instruments: instruments.clone(),
            operations: families.counter(
                "kendall_build_operations_total",
                "Requests to execute, by where their answer came from.",
                &[("from", "execution")],
            ),
            operations_cached: families.counter(
                "kendall_build_operations_total",
                "Requests to execute, by where their answer came from.",
                &[("from", "cache")],
            ),
            queued: [queued("false"), queued("true")],
            executing: families.counter(
                "kendall_build_tasks_executing_total",
                "Tasks that left the queue for a slot.",
                &[],
            ),
            completed: [
                completed("success"),
                completed("exit_status"),
                completed("error"),
                completed("unanswered"),
            ],
            dropped: families.counter(
                "kendall_build_tasks_dropped_total",
                "Tasks that left the queue without a slot: cancelled, or no worker came.",
                &[],
            ),
            stages: [
                stage("queued"),
                stage("executing"),
                stage("fetching"),
                stage("running"),
                stage("uploading"),
            ],
            waiting: 0,
            busy: 0,
            slots: 0,
        }
    }

    pub(super) fn submitted(&mut self) {
        self.operations.add(1);
    }

    pub(super) fn cached(&mut self) {
        self.operations_cached.add(1);
        self.recorder.outcome(CACHED, 1);
    }

    pub(super) fn refused(&mut self, refusal: &Refusal) {
        self.recorder.limit_hit(match refusal {
            Refusal::QueueFull { .. } => QUEUE_FULL,
            Refusal::TooManyOperations { .. } => OPERATIONS,
            Refusal::NoWorker { .. } => NO_WORKER,
        });
    }

    /// An answer that a client waited for.
    pub(super) fn answered(&mut self, answered: &Answered) {
        self.completed[answered.outcome].add(1);
        let stages = [answered.fetching_ns, answered.running_ns, answered.uploading_ns];
        for (index, time) in stages.into_iter().enumerate() {
            if let Some(time) = time {
                self.stages[index + 2].record(time);
                self.recorder.stage(EXECUTE, Stage(index), time);
            }
        }
    }

    pub(super) fn count<P>(&mut self, effect: &Effect<P>, now_ns: u64) {
        match effect {
            Effect::Queued { again } => {
                self.queued[usize::from(*again)].add(1);
                if *again {
                    self.recorder.outcome(RETRIED, 1);
                } else {
                    self.recorder.arrived(EXECUTE);
                }
            }
            Effect::Started { waited_ns } => {
                self.executing.add(1);
                self.stages[0].record(*waited_ns);
            }
            Effect::Dropped => {
                self.dropped.add(1);
                self.recorder.outcome(DROPPED, 1);
            }
            Effect::Completed { queued_ns, started_ns, answered } => {
                self.stages[1].record(now_ns.saturating_sub(*started_ns));
                self.recorder.outcome(if *answered { ANSWERED } else { UNANSWERED }, 1);
                if !*answered {
                    self.completed[3].add(1);
                }
                let moments = Moments {
                    arrived_ns: *queued_ns,
                    dequeued_ns: *started_ns,
                    backend: None,
                    replied_ns: now_ns,
                };
                self.recorder.completed(EXECUTE, &moments);
            }
            Effect::Start { .. }
            | Effect::Stop { .. }
            | Effect::Lost { .. }
            | Effect::Began(_)
            | Effect::Changed(_)
            | Effect::Forgotten(_) => {}
        }
    }

    pub(super) fn levels(&mut self, totals: &Totals, now_ns: u64) {
        if totals.waiting != self.waiting {
            self.waiting = totals.waiting;
            self.recorder.queue_length.set(now_ns, totals.waiting as u64);
        }
        if totals.executing != self.busy {
            self.busy = totals.executing;
            self.recorder.workers_busy.set(now_ns, totals.executing as u64);
        }
        if totals.slots != self.slots {
            self.slots = totals.slots;
            self.instruments.set_workers(u32::try_from(totals.slots).unwrap_or(u32::MAX));
        }
    }
}
