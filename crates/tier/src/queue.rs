//! The request queue between the network side and the workers, for tiers whose workers are
//! threads.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::instruments::{Instruments, Recorder};

/// The queue is full: the request comes back to its owner, who refuses it in the words of its
/// protocol and counts a hit of the limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the request queue is full: {waiting} requests wait")]
pub struct Full<T> {
    /// The request that found no room.
    pub item: T,
    pub waiting: usize,
}

/// First come, first served. Clones share the queue.
#[derive(Debug)]
pub struct RequestQueue<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for RequestQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared<T> {
    capacity: usize,
    clock: Clock,
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    /// Writes queue length and workers busy, under the queue's own lock.
    levels: Recorder,
    /// Workers that may run; those beyond it end when they next ask for work.
    workers: usize,
    /// No more requests come: workers end when nothing waits.
    draining: bool,
}

impl<T> RequestQueue<T> {
    /// An empty queue for at most so many requests that wait, whose length and busy workers `instruments` report.
    pub fn new(capacity: usize, instruments: &Instruments) -> Self {
        let levels = instruments.recorder();
        let state = State { waiting: VecDeque::new(), levels, workers: 0, draining: false };
        let clock = instruments.clock().clone();
        let state = Mutex::new(state);
        Self { shared: Arc::new(Shared { capacity, clock, state, changed: Condvar::new() }) }
    }

    /// Puts a request at the end.
    ///
    /// # Errors
    /// [`Full`] with the request when as many wait as may, or when the queue is being drained.
    pub fn push(&self, item: T) -> Result<(), Full<T>> {
        self.push_within(self.shared.capacity, item)
    }

    /// The same where fewer may wait, or none: those for whom a worker is free do not wait.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_within(&self, most: usize, item: T) -> Result<(), Full<T>> {
        let mut state = self.shared.state.lock();
        let waiting = state.waiting.len();
        let busy = usize::try_from(state.levels.workers_busy.current()).unwrap_or(usize::MAX);
        let most =
            most.min(self.shared.capacity).saturating_add(state.workers.saturating_sub(busy));
        if waiting >= most || state.draining {
            return Err(Full { item, waiting });
        }
        state.waiting.push_back(item);
        let now_ns = self.shared.clock.now_ns();
        state.levels.queue_length.add(now_ns, 1);
        drop(state);
        self.shared.changed.notify_one();
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.shared.state.lock().waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next request and the moment at which worker `index` took it; `None` when the worker
    /// shall end. `busy` is whether the worker comes back from a request.
    pub(crate) fn take(&self, index: usize, busy: bool) -> Option<(T, u64)> {
        let mut state = self.shared.state.lock();
        if busy {
            let now_ns = self.shared.clock.now_ns();
            state.levels.workers_busy.subtract(now_ns, 1);
        }
        loop {
            if index >= state.workers {
                return None;
            }
            if let Some(item) = state.waiting.pop_front() {
                let now_ns = self.shared.clock.now_ns();
                state.levels.queue_length.subtract(now_ns, 1);
                state.levels.workers_busy.add(now_ns, 1);
                return Some((item, now_ns));
            }
            if state.draining {
                return None;
            }
            self.shared.changed.wait(&mut state);
        }
    }

    pub(crate) fn set_workers(&self, workers: usize) {
        self.shared.state.lock().workers = workers;
        self.shared.changed.notify_all();
    }

    pub(crate) fn drain(&self) {
        self.shared.state.lock().draining = true;
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::Layout;

    #[test]
    fn a_full_queue_gives_the_request_back() {
        let instruments = Instruments::new(Layout::default(), Clock::monotonic());
        let queue = RequestQueue::new(1, &instruments);
        queue.push("first").unwrap();
        assert_eq!(queue.push("second"), Err(Full { item: "second", waiting: 1 }));
        assert_eq!(instruments.snapshot().queue_length.current, 1);
    }

    #[test]
    fn where_none_may_wait_free_workers_are_served() {
        let instruments = Instruments::new(Layout::default(), Clock::monotonic());
        let queue = RequestQueue::new(10, &instruments);
        queue.set_workers(1);
        queue.push_within(0, "served").unwrap();
        assert_eq!(queue.push_within(0, "second"), Err(Full { item: "second", waiting: 1 }));
        let served = queue.take(0, false).unwrap();
        assert_eq!(served.0, "served");
        assert_eq!(queue.push_within(0, "second"), Err(Full { item: "second", waiting: 0 }));
    }
}
