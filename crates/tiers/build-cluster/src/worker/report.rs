//! What a worker counts.

use kendall_tier::{Clock, Instruments, Layout, Moments, Recorder, RequestType, Stage};
use parking_lot::Mutex;

use super::action::{Outcome, Times, is_ok};

const ACTION: RequestType = RequestType(0);
const FETCHING: Stage = Stage(0);
const RUNNING: Stage = Stage(1);
const UPLOADING: Stage = Stage(2);
const SUCCEEDED: kendall_tier::Outcome = kendall_tier::Outcome(0);
const EXIT_STATUS: kendall_tier::Outcome = kendall_tier::Outcome(1);
const REFUSED: kendall_tier::Outcome = kendall_tier::Outcome(2);
const GIVEN_BACK: kendall_tier::Outcome = kendall_tier::Outcome(3);

pub(super) fn layout() -> Layout {
    Layout {
        tier: "build-worker",
        request_types: &["action"],
        stages: &["fetching", "running", "uploading"],
        outcomes: &["succeeded", "exit_status", "refused", "given_back"],
        limits: &[],
        backends: Vec::new(),
    }
}

#[derive(Debug)]
pub(super) struct Report {
    recorder: Mutex<Recorder>,
    clock: Clock,
}

impl Report {
    pub(super) fn new(instruments: &Instruments) -> Self {
        let recorder = Mutex::new(instruments.recorder());
        Self { recorder, clock: instruments.clock().clone() }
    }

    /// A lease came.
    pub(super) fn arrived(&self) -> u64 {
        let now = self.clock.now_ns();
        let mut recorder = self.recorder.lock();
        recorder.arrived(ACTION);
        recorder.queue_length.add(now, 1);
        now
    }

    /// It has a slot.
    pub(super) fn began(&self) -> u64 {
        let now = self.clock.now_ns();
        let mut recorder = self.recorder.lock();
        recorder.queue_length.subtract(now, 1);
        recorder.workers_busy.add(now, 1);
        now
    }

    pub(super) fn ended(&self, outcome: &Outcome, times: &Times, arrived_ns: u64, began_ns: u64) {
        let now = self.clock.now_ns();
        let mut recorder = self.recorder.lock();
        recorder.workers_busy.subtract(now, 1);
        let count = match outcome {
            Outcome::Answer(response) => match &response.result {
                Some(result) if is_ok(response) && result.exit_code == 0 => SUCCEEDED,
                Some(_) if is_ok(response) => EXIT_STATUS,
                _ => REFUSED,
            },
            Outcome::Failed(_) => GIVEN_BACK,
        };
        recorder.outcome(count, 1);
        for (stage, (from, to)) in
            [(FETCHING, times.fetching), (RUNNING, times.running), (UPLOADING, times.uploading)]
        {
            if to > 0 {
                recorder.stage(ACTION, stage, to.saturating_sub(from));
            }
        }
        let moments = Moments { arrived_ns, dequeued_ns: began_ns, backend: None, replied_ns: now };
        recorder.completed(ACTION, &moments);
    }
}
