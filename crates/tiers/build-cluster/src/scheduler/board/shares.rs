//! Who is next: waiting tasks by priority, then by how much each invocation had so far.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::TaskId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InvocationId(u64);

/// What one invocation (one run of a build tool) has and had.
#[derive(Debug)]
struct Invocation {
    name: Arc<str>,
    waiting: u64,
    executing: u64,
    /// Slot time of the tasks that ended, and what it was lifted by when it came back from idling.
    used_ns: u128,
    /// Sum of the moments at which those that execute began.
    began_ns: u128,
    idle_since_ns: u64,
}

impl Invocation {
    /// Slot time up to now, of those that execute too.
    fn slot_time(&self, now_ns: u64) -> u128 {
        let running = u128::from(self.executing) * u128::from(now_ns);
        self.used_ns + running.saturating_sub(self.began_ns)
    }

    const fn idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0
    }
}

/// All invocations that have tasks, and for a while those that had.
#[derive(Debug, Default)]
pub(super) struct Shares {
    names: HashMap<Arc<str>, InvocationId>,
    invocations: HashMap<InvocationId, Invocation>,
    next: u64,
}

/// The order in which waiting tasks are taken: the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: i32,
    executing: u64,
    slot_time_ns: u128,
    order: u64,
}

/// The waiting tasks of one platform.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_priority: BTreeMap<i32, BTreeMap<InvocationId, BTreeMap<u64, TaskId>>>,
    length: usize,
}

/// Position of a waiting task in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) priority: i32,
    pub(super) invocation: InvocationId,
    /// Smaller for those that came first; kept when a task comes back from a worker that died.
    pub(super) order: u64,
}

impl Shares {
    pub(super) fn named(&mut self, name: &str, now_ns: u64) -> InvocationId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = InvocationId(self.next);
        self.next += 1;
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name), id);
        let invocation = Invocation {
            name,
            waiting: 0,
            executing: 0,
            used_ns: 0,
            began_ns: 0,
            idle_since_ns: now_ns,
        };
        self.invocations.insert(id, invocation);
        id
    }

    fn get(&mut self, id: InvocationId) -> &mut Invocation {
        self.invocations.get_mut(&id).expect("an invocation with tasks is not forgotten")
    }

    /// An invocation that comes back from idling starts level with the one that had least: it
    /// neither saves up what it did not use nor pays for it twice.
    fn wake(&mut self, id: InvocationId, now_ns: u64) {
        if !self.get(id).idle() {
            return;
        }
        let busy = self.invocations.values().filter(|other| !other.idle());
        let floor = busy.map(|other| other.slot_time(now_ns)).min();
        let invocation = self.get(id);
        invocation.used_ns = invocation.used_ns.max(floor.unwrap_or(0));
    }

    /// A task of it begins to wait.
    pub(super) fn waits(&mut self, id: InvocationId, now_ns: u64) {
        self.wake(id, now_ns);
        self.get(id).waiting += 1;
    }

    /// A task of it waits no longer.
    pub(super) fn leaves(&mut self, id: InvocationId, now_ns: u64) {
        let invocation = self.get(id);
        invocation.waiting -= 1;
        invocation.idle_since_ns = now_ns;
    }

    /// A task of it begins to execute.
    pub(super) fn begins(&mut self, id: InvocationId, now_ns: u64) {
        self.wake(id, now_ns);
        let invocation = self.get(id);
        invocation.executing += 1;
        invocation.began_ns += u128::from(now_ns);
    }

    /// A task of it that began at `began_ns` ended.
    pub(super) fn ends(&mut self, id: InvocationId, began_ns: u64, now_ns: u64) {
        let invocation = self.get(id);
        invocation.executing -= 1;
        invocation.began_ns -= u128::from(began_ns);
        invocation.used_ns += u128::from(now_ns.saturating_sub(began_ns));
        invocation.idle_since_ns = now_ns;
    }

    /// Forgets those that were idle before `before_ns`.
    pub(super) fn forget(&mut self, before_ns: u64) {
        let names = &mut self.names;
        self.invocations.retain(|_, invocation| {
            let kept = !invocation.idle() || invocation.idle_since_ns >= before_ns;
            if !kept {
                names.remove(&invocation.name);
            }
            kept
        });
    }

    /// Name, waiting and executing tasks, and slot time of each.
    pub(super) fn list(
        &self,
        now_ns: u64,
    ) -> impl Iterator<Item = (&Arc<str>, u64, u64, u128)> + '_ {
        self.invocations.values().map(move |invocation| {
            let Invocation { name, waiting, executing, .. } = invocation;
            (name, *waiting, *executing, invocation.slot_time(now_ns))
        })
    }
}

impl Waiting {
    pub(super) const fn len(&self) -> usize {
        self.length
    }

    pub(super) fn insert(&mut self, place: Place, task: TaskId) {
        let band = self.by_priority.entry(place.priority).or_default();
        band.entry(place.invocation).or_default().insert(place.order, task);
        self.length += 1;
    }

    pub(super) fn remove(&mut self, place: Place) {
        let Some(band) = self.by_priority.get_mut(&place.priority) else { return };
        let Some(tasks) = band.get_mut(&place.invocation) else { return };
        if tasks.remove(&place.order).is_some() {
            self.length -= 1;
        }
        if tasks.is_empty() {
            band.remove(&place.invocation);
        }
        if band.is_empty() {
            self.by_priority.remove(&place.priority);
        }
    }

    /// The task to take first: highest priority (smallest number), then of the invocation that
    /// executes fewest, then of the one that had least slot time, then the oldest.
    pub(super) fn first(&self, shares: &Shares, now_ns: u64) -> Option<(Rank, TaskId)> {
        let (&priority, band) = self.by_priority.first_key_value()?;
        let candidates = band.iter().filter_map(|(id, tasks)| {
            let (&order, &task) = tasks.first_key_value()?;
            let invocation = shares.invocations.get(id)?;
            let executing = invocation.executing;
            let slot_time_ns = invocation.slot_time(now_ns);
            Some((Rank { priority, executing, slot_time_ns, order }, task))
        });
        candidates.min_by_key(|(rank, _)| *rank)
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.by_priority.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values).copied()
    }
}
