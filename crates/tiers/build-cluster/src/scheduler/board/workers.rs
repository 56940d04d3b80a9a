//! Workers: registered, heard, lost; leases: finished, given back, taken back.

use std::sync::Arc;

use super::{Board, Effect, Ending, Held, Join, Lease, LeaseId, Loss, TaskId, Worker, WorkerId};

impl Worker {
    /// Slots that could take a task.
    pub(super) fn free(&self) -> usize {
        if self.draining { 0 } else { self.slots.saturating_sub(self.leases.len()) }
    }
}

impl<P, R> Board<P, R> {
    /// A worker registers, for the first time or again.
    pub fn join(&mut self, join: Join, now_ns: u64) -> WorkerId {
        let known = self.workers.iter().find(|(_, worker)| worker.uid == join.uid);
        let id = known.map(|(id, _)| *id).unwrap_or_else(|| WorkerId(self.number()));
        let leases = self.workers.get(&id).map(|worker| worker.leases.clone()).unwrap_or_default();
        let worker = Worker {
            name: join.name,
            uid: join.uid,
            offer: join.offer,
            slots: join.slots,
            leases,
            draining: join.draining,
            connected: true,
            heard_ns: now_ns,
            broke_ns: now_ns,
            last_start: 0,
        };
        self.workers.insert(id, worker);
        self.compare(id, &join.held, now_ns);
        self.dispatch(now_ns);
        id
    }

    /// Compares what a worker holds with what it should hold.
    fn compare(&mut self, id: WorkerId, held: &[Held], now_ns: u64) {
        let ours = self.workers[&id].leases.clone();
        for lease in ours.iter().filter(|lease| !held.iter().any(|held| held.lease == **lease)) {
            // It never heard of it, so that was not an attempt.
            self.take_back(*lease, "its worker never received it", false, now_ns);
        }
        for held in held {
            if ours.contains(&held.lease) {
                if self.leases.get(&held.lease).is_some_and(|lease| lease.stopping) {
                    self.effects.push(Effect::Stop { worker: id, lease: held.lease });
                }
            } else {
                self.find(id, held, now_ns);
            }
        }
    }

    /// A worker is at something that this scheduler did not give it, or gave up.
    fn find(&mut self, id: WorkerId, held: &Held, now_ns: u64) {
        let key = Arc::clone(&held.key);
        let lease = Lease {
            worker: id,
            task: None,
            key: Arc::clone(&key),
            stopping: false,
            began_ns: now_ns,
            deadline_ns: now_ns.saturating_add(self.limits.unwatched_ns),
            stage: "found",
        };
        if self.leases.contains_key(&held.lease) {
            // Another worker's: one of the two is wrong, and the other one has it.
            self.effects.push(Effect::Stop { worker: id, lease: held.lease });
            return;
        }
        self.leases.insert(held.lease, lease);
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.leases.push(held.lease);
        }
        let task = self.in_flight.get(&key).copied().filter(|_| held.merge);
        let waiting = task.filter(|task| self.tasks[task].lease.is_none());
        if let Some(task) = waiting {
            self.unqueue(task, now_ns);
            self.adopt(task, held.lease, now_ns);
        } else if held.merge && task.is_none() && !self.orphans.contains_key(&key) {
            self.orphans.insert(key, held.lease);
        } else {
            self.stop(held.lease);
        }
    }

    /// Any word from a worker.
    pub fn heard(&mut self, id: WorkerId, now_ns: u64) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.heard_ns = now_ns;
        }
    }

    /// A lease reached another stage, in the worker's words.
    pub fn progress(&mut self, id: WorkerId, lease: LeaseId, stage: &'static str) {
        if let Some(lease) = self.leases.get_mut(&lease)
            && lease.worker == id
        {
            lease.stage = stage;
        }
    }

    /// A worker has a result. Returns whether an operation waited for it.
    pub fn finish(&mut self, id: WorkerId, lease: LeaseId, answer: Arc<R>, now_ns: u64) -> bool {
        let Some(task) = self.release(id, lease) else {
            self.dispatch(now_ns);
            return false;
        };
        let waited = task.is_some();
        if let Some(task) = task {
            self.end_task(task, &Ending::Answer(answer), now_ns);
        }
        self.drop_lease(lease);
        self.dispatch(now_ns);
        waited
    }

    /// A worker cannot give a result: it was stopped, or it failed itself, in its words.
    pub fn give_back(&mut self, id: WorkerId, lease: LeaseId, why: &str, now_ns: u64) {
        if self.release(id, lease).is_some() {
            self.take_back(lease, why, true, now_ns);
        }
        self.dispatch(now_ns);
    }

    /// Frees the slot of a lease; its task, if an operation waits for it. `None` when it is not that worker's.
    #[expect(clippy::option_option, reason = "not its lease, and nobody's task, are two answers")]
    fn release(&mut self, id: WorkerId, lease: LeaseId) -> Option<Option<TaskId>> {
        let task = self.leases.get(&lease).filter(|lease| lease.worker == id)?.task;
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.leases.retain(|held| *held != lease);
        }
        Some(task)
    }

    fn drop_lease(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        if self.orphans.get(&lease.key) == Some(&id) {
            self.orphans.remove(&lease.key);
        }
        Some(lease)
    }

    /// Ends a lease without a result: its task waits again in its old place, or fails when it was
    /// started often enough.
    fn take_back(&mut self, id: LeaseId, why: &str, counts: bool, now_ns: u64) {
        if let Some(worker) = self.leases.get(&id).map(|lease| lease.worker)
            && let Some(worker) = self.workers.get_mut(&worker)
        {
            worker.leases.retain(|held| *held != id);
        }
        let Some(task) = self.leases.get(&id).and_then(|lease| lease.task) else {
            self.drop_lease(id);
            return;
        };
        let most = self.limits.attempts;
        let entry = self.task(task);
        if !counts {
            entry.attempts = entry.attempts.saturating_sub(1);
        }
        if entry.attempts >= most {
            let ending = Ending::Failed { attempts: entry.attempts, last: why.into() };
            self.end_task(task, &ending, now_ns);
            self.drop_lease(id);
            return;
        }
        entry.lease = None;
        let (invocation, operations) = (entry.place.invocation, entry.operations.clone());
        if let Some(lease) = self.drop_lease(id) {
            self.shares.ends(invocation, lease.began_ns, now_ns);
        }
        self.enqueue(task, true, now_ns);
        self.replace(task, now_ns);
        self.effects.extend(operations.into_iter().map(Effect::Changed));
    }

    /// Tells a worker to end a lease; its slot is free when the worker says so.
    pub(super) fn stop(&mut self, id: LeaseId) {
        if let Some(lease) = self.leases.get_mut(&id)
            && !lease.stopping
        {
            lease.stopping = true;
            let worker = lease.worker;
            if self.orphans.get(&lease.key) == Some(&id) {
                self.orphans.remove(&lease.key);
            }
            self.effects.push(Effect::Stop { worker, lease: id });
        }
    }

    /// A worker takes no more tasks.
    pub fn drain(&mut self, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.draining = true;
        }
    }

    /// A worker's connection broke. It may come back.
    pub fn disconnected(&mut self, id: WorkerId, now_ns: u64) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.connected = false;
            worker.broke_ns = now_ns;
        }
    }

    /// A worker goes for good: one that drained and ended.
    pub fn leave(&mut self, id: WorkerId, now_ns: u64) {
        self.remove_worker(id, "its worker left", now_ns);
        self.dispatch(now_ns);
    }

    /// The scheduler itself stood still for so long, and could hear no worker: none was silent then.
    pub fn stood_still(&mut self, for_ns: u64, now_ns: u64) {
        let later = |moment_ns: u64| moment_ns.saturating_add(for_ns).min(now_ns);
        for worker in self.workers.values_mut() {
            worker.heard_ns = later(worker.heard_ns);
            worker.broke_ns = later(worker.broke_ns);
        }
    }

    pub(super) fn lose_workers(&mut self, now_ns: u64) {
        let limits = self.limits;
        let lost = |worker: &Worker| {
            let silent_ns = now_ns.saturating_sub(worker.heard_ns);
            let away_ns = now_ns.saturating_sub(worker.broke_ns);
            if !worker.connected && away_ns >= limits.reconnect_ns {
                Some(Loss::Away { for_ns: away_ns })
            } else if silent_ns >= limits.silence_ns {
                Some(Loss::Silent { for_ns: silent_ns })
            } else {
                None
            }
        };
        let all = self.workers.iter();
        let gone: Vec<(WorkerId, Loss)> =
            all.filter_map(|(id, worker)| Some((*id, lost(worker)?))).collect();
        for (worker, loss) in gone {
            let Some((name, leases)) = self.remove_worker(worker, "its worker died", now_ns) else {
                continue;
            };
            self.effects.push(Effect::Lost { worker, name, loss, leases });
        }
    }

    /// Its name, and how many leases were taken back from it.
    fn remove_worker(&mut self, id: WorkerId, why: &str, now_ns: u64) -> Option<(Arc<str>, usize)> {
        let worker = self.workers.remove(&id)?;
        let why = format!("{why} ({})", worker.name);
        self.departed.insert(worker.offer, now_ns);
        let leases = worker.leases.len();
        for lease in worker.leases {
            self.take_back(lease, &why, true, now_ns);
        }
        Some((worker.name, leases))
    }

    /// Ends leases that are past their time: a net below the worker's own limit.
    pub(super) fn end_late_leases(&mut self, now_ns: u64) {
        let late = self.leases.iter().filter(|(_, lease)| lease.deadline_ns <= now_ns);
        let late: Vec<(LeaseId, Option<TaskId>)> = late
            .filter(|(_, lease)| !lease.stopping)
            .map(|(id, lease)| (*id, lease.task))
            .collect();
        for (id, task) in late {
            if let Some(task) = task {
                self.end_task(task, &Ending::TimeLimit, now_ns);
            }
            self.stop(id);
        }
    }
}
