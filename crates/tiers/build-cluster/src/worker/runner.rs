//! Runs leased actions, each in a slot.

use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::{Semaphore, watch};

use super::action::{Kitchen, Outcome};
use super::connection::{Answer, Execute};
use super::report::Report;
use super::slot::Slot;
use crate::remote::RemoteError;
use crate::work::{Lease, finished};

/// The slots of a worker. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Runner {
    slots: Arc<Slots>,
    kitchen: Arc<Kitchen>,
    report: Arc<Report>,
}

#[derive(Debug)]
struct Slots {
    idle: Mutex<Vec<Slot>>,
    free: Semaphore,
}

impl Runner {
    pub(super) fn new(slots: Vec<Slot>, kitchen: Kitchen, report: Report) -> Self {
        let slots = Slots { free: Semaphore::new(slots.len()), idle: Mutex::new(slots) };
        Self { slots: Arc::new(slots), kitchen: Arc::new(kitchen), report: Arc::new(report) }
    }

    /// An action failed by this worker: where that is the cache's doing, every other one would fail too.
    async fn failed(&self, lease: &Lease, reason: &str, answer: &Answer) {
        match self.served().await {
            Err(error) => answer.pause(&error),
            Ok(()) => {
                let (lease, key) = (lease.lease, &lease.key);
                tracing::warn!(lease, key, reason, "an action could not be run");
            }
        }
    }
}

impl Execute for Runner {
    async fn execute(
        self,
        lease: Lease,
        stage: Arc<AtomicI32>,
        mut stopped: watch::Receiver<bool>,
        answer: Answer,
    ) {
        let arrived_ns = self.report.arrived();
        let Ok(permit) = self.slots.free.acquire().await else { return };
        let slot = self.slots.idle.lock().pop();
        let Some(mut slot) = slot else { return };
        let began_ns = self.report.began();
        let (outcome, times) = self.kitchen.cook(&lease, &mut slot, &stage, &mut stopped).await;
        self.report.ended(&outcome, &times, arrived_ns, began_ns);
        let outcome = match outcome {
            Outcome::Answer(response) => finished::Outcome::Answer(response.encode_to_vec()),
            Outcome::Failed(reason) => {
                if reason != "stopped" {
                    self.failed(&lease, &reason, &answer).await;
                }
                finished::Outcome::Failed(reason)
            }
        };
        answer.give(outcome);
        // After the answer: the client need not wait for it.
        if let Err(error) = slot.clean() {
            tracing::error!(%error, "what an action left cannot be deleted; its slot starts anew");
            slot.end();
        }
        self.slots.idle.lock().push(slot);
        drop(permit);
    }

    async fn served(&self) -> Result<(), RemoteError> {
        self.kitchen.remote.serves().await
    }
}
