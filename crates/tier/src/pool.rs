//! Workers that are threads, as many as an experiment says, changeable while they run.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::queue::RequestQueue;

/// What one worker does with a request and the moment at which it was taken from the queue.
type Work<T> = Box<dyn FnMut(T, u64) + Send>;

/// Makes the worker with the number that it is given; runs on the worker's own thread, so that
/// the worker may own what is bound to one.
type Make<T> = dyn Fn(usize) -> Work<T> + Send + Sync;

/// Threads that take requests from a queue, one at a time each.
pub struct WorkerPool<T> {
    name: &'static str,
    queue: RequestQueue<T>,
    make: Arc<Make<T>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<T: Send + 'static> WorkerPool<T> {
    pub fn start(
        name: &'static str,
        queue: RequestQueue<T>,
        workers: usize,
        make: impl Fn(usize) -> Work<T> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let threads = Mutex::new(Vec::new());
        let pool = Self { name, queue, make: Arc::new(make), threads };
        pool.resize(workers)?;
        Ok(pool)
    }

    /// Changes the number of workers. Workers beyond it end after the request that they serve;
    /// returns when they have.
    pub fn resize(&self, workers: usize) -> io::Result<()> {
        let mut threads = self.threads.lock();
        self.queue.set_workers(workers);
        let kept = workers.min(threads.len());
        for ended in threads.drain(kept..) {
            join(ended);
        }
        while threads.len() < workers {
            let index = threads.len();
            let (queue, make) = (self.queue.clone(), Arc::clone(&self.make));
            let started = std::thread::Builder::new().name(format!("{}-{index}", self.name)).spawn(
                move || {
                    let mut work = make(index);
                    let mut next = queue.take(index, false);
                    while let Some((item, dequeued_ns)) = next {
                        work(item, dequeued_ns);
                        next = queue.take(index, true);
                    }
                },
            );
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    self.queue.set_workers(threads.len());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Lets the workers finish what waits, refuses what comes, and returns when all have ended.
    pub fn drain(&self) {
        self.queue.drain();
        let mut threads = self.threads.lock();
        for thread in threads.drain(..) {
            join(thread);
        }
    }
}

/// A worker that panicked is a defect: it must not pass silently.
fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

impl<T> fmt::Debug for WorkerPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").field("name", &self.name).finish_non_exhaustive()
    }
}
