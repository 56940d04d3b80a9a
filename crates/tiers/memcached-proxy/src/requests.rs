//! Requests that are not answered yet, and who serves them: workers, with the queue of those that
//! wait for one; or none of both.

use std::collections::VecDeque;

use slab::Slab;

use crate::options::Mode;
use crate::request::Entry;
use crate::tools::Tools;

/// What becomes of a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is served, by this worker or over this shared connection.
    Lane(usize),
    /// It waits for a worker.
    Queue,
    /// It is refused: too many wait.
    Full,
}

#[derive(Debug)]
pub(crate) struct Requests {
    entries: Slab<Entry>,
    /// Requests that wait for a worker.
    queue: VecDeque<usize>,
    queue_length: usize,
    /// Workers, and those without a request. No workers: requests share connections.
    workers: usize,
    idle: Vec<usize>,
    /// Workers, or requests on shared connections, whose answer is whole in this turn. A worker
    /// writes its answer before it takes the next request: it is busy for the whole of the service
    /// time.
    freed: Vec<usize>,
}

impl Requests {
    pub(crate) fn new(mode: Mode, queue_length: usize) -> Self {
        let workers = match mode {
            Mode::Workers(workers) => workers.max(1) as usize,
            Mode::Pipelined { .. } => 0,
        };
        Self {
            entries: Slab::new(),
            queue: VecDeque::new(),
            queue_length,
            workers,
            idle: (0..workers).rev().collect(),
            freed: Vec::new(),
        }
    }

    /// How many may wait from now on; those that do stay.
    pub(crate) fn bound(&mut self, queue_length: usize) {
        self.queue_length = queue_length;
    }

    pub(crate) fn insert(&mut self, entry: Entry) -> usize {
        self.entries.insert(entry)
    }

    #[inline]
    pub(crate) fn get(&self, id: usize) -> Option<&Entry> {
        self.entries.get(id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: usize) -> Option<&mut Entry> {
        self.entries.get_mut(id)
    }

    pub(crate) fn remove(&mut self, id: usize) -> Option<Entry> {
        self.entries.try_remove(id)
    }

    pub(crate) fn have_workers(&self) -> bool {
        self.workers > 0
    }

    /// Whether no request is left and every worker is free.
    #[cfg(test)]
    pub(crate) fn are_at_rest(&self) -> bool {
        self.entries.is_empty()
            && self.queue.is_empty()
            && self.freed.is_empty()
            && self.idle.len() == self.workers
    }

    /// Gives a new request to a worker, or to the shared connection `shared`, or to the queue,
    /// which keeps its bytes.
    pub(crate) fn place(
        &mut self,
        id: usize,
        shared: usize,
        bytes: &[u8],
        tools: &mut Tools,
    ) -> Place {
        if self.workers == 0 {
            tools.recorder.workers_busy.add(tools.now_ns, 1);
            return Place::Lane(shared);
        }
        // A worker is taken only when no request waits before this one; one that is popped and
        // not used would never work again.
        let worker = if self.queue.is_empty() { self.idle.pop() } else { None };
        if let Some(worker) = worker {
            tools.recorder.workers_busy.add(tools.now_ns, 1);
            return Place::Lane(worker);
        }
        if self.queue.len() >= self.queue_length {
            return Place::Full;
        }
        tools.recorder.queue_length.add(tools.now_ns, 1);
        if let Some(entry) = self.entries.get_mut(id) {
            entry.bytes.extend_from_slice(bytes);
        }
        self.queue.push_back(id);
        Place::Queue
    }

    /// Whether a request waits and a worker has none.
    #[inline]
    pub(crate) fn have_work(&self) -> bool {
        !self.queue.is_empty() && !self.idle.is_empty()
    }

    /// The next request that waits, if a worker has none. Either it is served with
    /// [`assign`](Self::assign), or it is dropped.
    pub(crate) fn next_waiting(&mut self, tools: &mut Tools) -> Option<usize> {
        if self.idle.is_empty() {
            return None;
        }
        let id = self.queue.pop_front()?;
        tools.progress += 1;
        tools.recorder.queue_length.subtract(tools.now_ns, 1);
        Some(id)
    }

    /// Gives a request that waited to a worker; says which, and gives the request's bytes.
    pub(crate) fn assign(&mut self, id: usize, tools: &mut Tools) -> Option<(usize, Vec<u8>)> {
        let entry = self.entries.get_mut(id)?;
        let worker = self.idle.pop()?;
        tools.recorder.workers_busy.add(tools.now_ns, 1);
        entry.dequeued_ns = tools.now_ns;
        Some((worker, std::mem::take(&mut entry.bytes)))
    }

    /// The request's answer is whole: its worker is free at the end of the turn.
    pub(crate) fn ends(&mut self, id: usize) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.done = true;
            self.freed.extend(entry.lane.take());
        }
    }

    /// The answers of the turn are written: their workers are free.
    pub(crate) fn free_workers(&mut self, tools: &mut Tools) {
        if self.freed.is_empty() {
            return;
        }
        tools.recorder.workers_busy.subtract(tools.now_ns, self.freed.len() as u64);
        if self.workers > 0 {
            self.idle.append(&mut self.freed);
        } else {
            self.freed.clear();
        }
    }
}
