//! What the status page, the metrics and the operations list show.

use std::sync::Arc;

use super::{ActionKey, Board, LeaseId, OperationId};

#[derive(Debug, Clone)]
pub struct QueueLine {
    /// What its actions ask for.
    pub platform: String,
    pub waiting: usize,
    /// Workers that could take them.
    pub workers: usize,
}

#[derive(Debug, Clone)]
pub struct InvocationLine {
    pub name: Arc<str>,
    pub waiting: u64,
    /// Tasks that execute.
    pub executing: u64,
    pub slot_time_ns: u128,
}

#[derive(Debug, Clone)]
pub struct WorkerLine {
    pub name: Arc<str>,
    pub offer: String,
    pub slots: usize,
    /// Actions that it runs: their key, stage and age.
    pub actions: Vec<(LeaseId, ActionKey, &'static str, u64)>,
    /// Whether it takes no more.
    pub draining: bool,
    pub connected: bool,
}

#[derive(Debug, Clone)]
pub struct OperationLine {
    pub id: OperationId,
    pub key: ActionKey,
}

/// Sums over everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub waiting: usize,
    /// Leases, those that are being stopped included.
    pub executing: usize,
    pub workers: usize,
    pub slots: usize,
    /// Operations, finished ones included.
    pub operations: usize,
}

impl<P, R> Board<P, R> {
    /// The queues that have tasks.
    pub fn queues(&self) -> Vec<QueueLine> {
        let line = |(platform, queue): (&super::Platform, &super::Waiting)| QueueLine {
            platform: platform.to_string(),
            waiting: queue.len(),
            workers: self.workers.values().filter(|worker| worker.offer.fits(platform)).count(),
        };
        self.queues.iter().map(line).collect()
    }

    pub fn invocations(&self, now_ns: u64) -> Vec<InvocationLine> {
        let line = |(name, waiting, executing, slot_time_ns): (&Arc<str>, u64, u64, u128)| {
            InvocationLine { name: Arc::clone(name), waiting, executing, slot_time_ns }
        };
        let mut lines: Vec<InvocationLine> = self.shares.list(now_ns).map(line).collect();
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        lines
    }

    pub fn workers(&self, now_ns: u64) -> Vec<WorkerLine> {
        let actions = |leases: &[LeaseId]| {
            let known = leases.iter().filter_map(|id| Some((*id, self.leases.get(id)?)));
            known
                .map(|(id, lease)| {
                    let age = now_ns.saturating_sub(lease.began_ns);
                    (id, Arc::clone(&lease.key), lease.stage, age)
                })
                .collect()
        };
        let line = |worker: &super::Worker| WorkerLine {
            name: Arc::clone(&worker.name),
            offer: worker.offer.to_string(),
            slots: worker.slots,
            actions: actions(&worker.leases),
            draining: worker.draining,
            connected: worker.connected,
        };
        self.workers.values().map(line).collect()
    }

    /// Operations after `after`, at most `most`, by number.
    pub fn operations(&self, after: OperationId, most: usize) -> Vec<OperationLine> {
        let mut ids: Vec<OperationId> =
            self.operations.keys().copied().filter(|id| *id > after).collect();
        ids.sort_unstable();
        ids.truncate(most);
        let line = |id: OperationId| {
            let operation = &self.operations[&id];
            OperationLine { id, key: Arc::clone(&operation.key) }
        };
        ids.into_iter().map(line).collect()
    }

    pub fn action(&self, id: OperationId) -> Option<ActionKey> {
        self.operations.get(&id).map(|operation| Arc::clone(&operation.key))
    }

    pub fn totals(&self) -> Totals {
        Totals {
            waiting: self.waiting,
            executing: self.leases.len(),
            workers: self.workers.len(),
            slots: self.workers.values().map(|worker| worker.slots).sum(),
            operations: self.operations.len(),
        }
    }
}
