//! Operations: watched, cancelled, ended, forgotten.

use std::cmp::Reverse;

use super::{Board, Effect, Ending, INVOCATION_NS, OperationId, Stage, TaskId};

/// The operation is not known: never was, or forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such operation")]
pub struct Unknown;

impl<P, R> Board<P, R> {
    pub fn stage(&self, id: OperationId) -> Result<Stage<R>, Unknown> {
        let operation = self.operations.get(&id).ok_or(Unknown)?;
        if let Some(ending) = &operation.ending {
            return Ok(Stage::Completed(ending.clone()));
        }
        let task = operation.task.and_then(|task| self.tasks.get(&task));
        let executing = task.is_some_and(|task| task.lease.is_some());
        Ok(if executing { Stage::Executing } else { Stage::Queued })
    }

    pub fn watch(&mut self, id: OperationId) -> Result<(), Unknown> {
        self.operations.get_mut(&id).ok_or(Unknown)?.watchers += 1;
        Ok(())
    }

    /// A client stopped watching it.
    pub fn unwatch(&mut self, id: OperationId, now_ns: u64) {
        if let Some(operation) = self.operations.get_mut(&id) {
            operation.watchers = operation.watchers.saturating_sub(1);
            operation.unwatched_since_ns = now_ns;
            if operation.watchers == 0 && operation.ending.is_none() {
                self.left.push(Reverse((now_ns, id)));
            }
        }
    }

    /// Ends an operation without a result. Its task ends when no other operation waits for it.
    pub fn cancel(&mut self, id: OperationId, now_ns: u64) -> Result<(), Unknown> {
        let operation = self.operations.get(&id).ok_or(Unknown)?;
        if operation.ending.is_some() {
            return Ok(());
        }
        let task = operation.task;
        self.end_operation(id, Ending::Cancelled, now_ns);
        let Some(task) = task else { return Ok(()) };
        let Some(entry) = self.tasks.get_mut(&task) else { return Ok(()) };
        entry.operations.retain(|operation| *operation != id);
        if entry.operations.is_empty() {
            self.abandon(task, now_ns);
        } else {
            self.replace(task, now_ns);
        }
        self.dispatch(now_ns);
        Ok(())
    }

    /// Forgets a finished operation at its client's wish; one that is not is cancelled first.
    pub fn delete(&mut self, id: OperationId, now_ns: u64) -> Result<(), Unknown> {
        self.cancel(id, now_ns)?;
        self.operations.remove(&id);
        self.effects.push(Effect::Forgotten(id));
        Ok(())
    }

    /// Ends a task that no operation waits for.
    fn abandon(&mut self, id: TaskId, now_ns: u64) {
        match self.tasks.get(&id).and_then(|task| task.lease) {
            Some(lease) => {
                self.remove_task(id, now_ns, false);
                self.stop(lease);
            }
            None => {
                self.unqueue(id, now_ns);
                self.effects.push(Effect::Dropped);
                self.forget_task(id);
            }
        }
    }

    pub(super) fn end_operation(&mut self, id: OperationId, ending: Ending<R>, now_ns: u64) {
        if let Some(operation) = self.operations.get_mut(&id)
            && operation.ending.is_none()
        {
            operation.ending = Some(ending);
            operation.task = None;
            operation.unwatched_since_ns = now_ns;
            self.finished.push(Reverse((now_ns, id)));
            self.effects.push(Effect::Changed(id));
        }
    }

    /// Ends a task that has a lease, and its operations.
    pub(super) fn end_task(&mut self, id: TaskId, ending: &Ending<R>, now_ns: u64) {
        let operations = std::mem::take(&mut self.task(id).operations);
        self.remove_task(id, now_ns, matches!(ending, Ending::Answer(_)));
        for operation in operations {
            self.end_operation(operation, ending.clone(), now_ns);
        }
    }

    /// Ends a waiting task, and its operations.
    pub(super) fn end_waiting(&mut self, id: TaskId, ending: &Ending<R>, now_ns: u64) {
        let operations = std::mem::take(&mut self.task(id).operations);
        self.unqueue(id, now_ns);
        self.effects.push(Effect::Dropped);
        self.forget_task(id);
        for operation in operations {
            self.end_operation(operation, ending.clone(), now_ns);
        }
    }

    /// Separates a task from its lease and forgets it.
    fn remove_task(&mut self, id: TaskId, now_ns: u64, answered: bool) {
        let Some(task) = self.tasks.get(&id) else { return };
        let lease = task.lease.and_then(|lease| self.leases.get_mut(&lease));
        if let Some(lease) = lease {
            lease.task = None;
            let (queued_ns, started_ns) = (task.queued_ns, lease.began_ns);
            self.shares.ends(task.place.invocation, started_ns, now_ns);
            self.effects.push(Effect::Completed { queued_ns, started_ns, answered });
        }
        self.forget_task(id);
    }

    pub(super) fn forget_task(&mut self, id: TaskId) {
        let Some(task) = self.tasks.remove(&id) else { return };
        if self.in_flight.get(&task.key) == Some(&id) {
            self.in_flight.remove(&task.key);
        }
    }

    /// Does what time alone brings about. Call it several times a second.
    pub fn tick(&mut self, now_ns: u64) {
        self.lose_workers(now_ns);
        self.end_late_leases(now_ns);
        self.end_hopeless(now_ns);
        self.cancel_unwatched(now_ns);
        self.forget_finished(now_ns);
        self.shares.forget(now_ns.saturating_sub(INVOCATION_NS));
        let (departed, kept) = (&mut self.departed, self.limits.no_worker_ns);
        departed.retain(|_, at| now_ns.saturating_sub(*at) < kept);
        self.dispatch(now_ns);
    }

    /// Cancels open operations that no client came back to. Only those are checked that a client left so
    /// long ago.
    fn cancel_unwatched(&mut self, now_ns: u64) {
        let limit = self.limits.unwatched_ns;
        while let Some(Reverse((since_ns, id))) = self.left.peek().copied()
            && now_ns.saturating_sub(since_ns) >= limit
        {
            self.left.pop();
            let alone = self.operations.get(&id).is_some_and(|operation| {
                let since = now_ns.saturating_sub(operation.unwatched_since_ns);
                operation.watchers == 0 && operation.ending.is_none() && since >= limit
            });
            if alone {
                // It exists: it was found just now.
                self.cancel(id, now_ns).unwrap_or_default();
            }
        }
    }

    /// Forgets finished operations that were not watched for long enough.
    fn forget_finished(&mut self, now_ns: u64) {
        let limit = self.limits.kept_ns;
        let mut kept = Vec::new();
        while let Some(Reverse((since_ns, id))) = self.finished.peek().copied()
            && now_ns.saturating_sub(since_ns) >= limit
        {
            self.finished.pop();
            let Some(operation) = self.operations.get(&id) else { continue };
            // As long as it is watched its time does not begin.
            let since_ns = match operation.watchers {
                0 => operation.unwatched_since_ns,
                _ => now_ns,
            };
            if now_ns.saturating_sub(since_ns) >= limit && operation.watchers == 0 {
                self.forget(id);
            } else {
                // Put back after the loop: where nothing is kept at all it would come again at once.
                kept.push(Reverse((since_ns, id)));
            }
        }
        self.finished.extend(kept);
    }

    /// Forgets the oldest finished operation that is not watched, if there is one.
    pub(super) fn forget_one(&mut self) {
        let mut watched = Vec::new();
        while let Some(Reverse((since_ns, id))) = self.finished.pop() {
            match self.operations.get(&id) {
                None => {}
                Some(operation) if operation.watchers > 0 => watched.push(Reverse((since_ns, id))),
                Some(_) => {
                    self.forget(id);
                    break;
                }
            }
        }
        self.finished.extend(watched);
    }

    fn forget(&mut self, id: OperationId) {
        self.operations.remove(&id);
        self.effects.push(Effect::Forgotten(id));
    }

    /// Ends tasks that wait for a worker that does not come.
    fn end_hopeless(&mut self, now_ns: u64) {
        let hopeless = self.queues.iter().filter(|(platform, _)| !self.may_come(platform, now_ns));
        let tasks: Vec<(TaskId, Ending<R>)> = hopeless
            .flat_map(|(platform, queue)| {
                let refusal = self.no_worker(platform);
                queue.tasks().map(move |task| (task, Ending::NoWorker(refusal.clone())))
            })
            .collect();
        for (task, ending) in tasks {
            self.end_waiting(task, &ending, now_ns);
        }
    }
}
