//! The graceful stop: the first SIGTERM or SIGINT asks for it, a second one ends the process at
//! once. SIGHUP asks for it where it reloads nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use procfs::process::Process;
use rustix::event::{EventfdFlags, eventfd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::watch;

/// Status of a process that a second signal ended, as shells count: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Whether the tier shall stop. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    requested: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
    watched: watch::Sender<bool>,
    changed: Condvar,
}

/// A descriptor that becomes readable when it is woken: for event loops.
#[derive(Debug, Clone)]
pub struct Waker {
    descriptor: Arc<OwnedFd>,
}

impl Waker {
    /// A waker that was not woken yet.
    pub fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { descriptor: Arc::new(descriptor) })
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        // It fails only when the counter is full, and then the descriptor is readable already.
        rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes()).unwrap_or_default();
    }

    /// Makes the descriptor unreadable again.
    pub fn clear(&self) {
        rustix::io::read(&self.descriptor, &mut [0_u8; 8]).unwrap_or_default();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// SIGHUP, which asks a tier to read its configuration again.
#[derive(Debug)]
pub struct Hangups {
    signals: Signals,
}

impl Hangups {
    /// From now on the signal does not end the process.
    pub fn new() -> io::Result<Self> {
        Ok(Self { signals: Signals::new([SIGHUP])? })
    }

    /// Waits for the signal. Several that came meanwhile count as one.
    pub fn wait(&mut self) {
        // What came is taken, so that the next wait is for another one.
        self.signals.wait().for_each(drop);
    }
}

impl Stop {
    /// A stop that only [`request`](Self::request) asks for.
    pub fn new() -> Self {
        Self::default()
    }

    /// A stop that SIGTERM and SIGINT ask for, and SIGHUP, unless who started the process has it ignored. A second
    /// SIGTERM or SIGINT ends the process at once.
    pub fn on_signals() -> io::Result<Self> {
        let signals = [SIGTERM, SIGINT, SIGHUP];
        Self::on(if hangups_are_ignored() { &signals[..2] } else { &signals[..] })
    }

    /// The same without SIGHUP, which is left to [`Hangups`].
    pub fn on_signals_but_hangups() -> io::Result<Self> {
        Self::on(&[SIGTERM, SIGINT])
    }

    fn on(signals: &[i32]) -> io::Result<Self> {
        let stop = Self::new();
        let second = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // Order matters: the second signal finds the flag that the first one set.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                INTERRUPTED,
                Arc::clone(&second),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&second))?;
        }
        let mut signals = Signals::new(signals)?;
        let asked = stop.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            if signals.forever().next().is_some() {
                asked.request();
            }
        })?;
        Ok(stop)
    }

    pub fn request(&self) {
        let wakers = self.shared.wakers.lock();
        self.shared.requested.store(true, Ordering::SeqCst);
        for waker in wakers.iter() {
            waker.wake();
        }
        drop(wakers);
        self.shared.watched.send_replace(true);
        self.shared.changed.notify_all();
    }

    #[inline]
    pub fn requested(&self) -> bool {
        self.shared.requested.load(Ordering::Relaxed)
    }

    pub fn wait(&self) {
        while !self.wait_for(Duration::from_secs(3600)) {}
    }

    /// Waits until the stop is asked for, or for `time`; says whether it was.
    #[must_use]
    pub fn wait_for(&self, time: Duration) -> bool {
        let mut wakers = self.shared.wakers.lock();
        self.shared.changed.wait_while_for(&mut wakers, |_| !self.requested(), time);
        self.requested()
    }

    /// Becomes true when the stop is asked for: for tasks of a runtime.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.shared.watched.subscribe()
    }

    /// A waker that is woken when the stop is asked for.
    pub fn waker(&self) -> io::Result<Waker> {
        let waker = Waker::new()?;
        self.register(&waker);
        Ok(waker)
    }

    /// Has `waker` woken when the stop is asked for.
    pub fn register(&self, waker: &Waker) {
        let mut wakers = self.shared.wakers.lock();
        wakers.push(waker.clone());
        if self.requested() {
            waker.wake();
        }
    }
}

/// Whether the process was started with SIGHUP ignored, as by `nohup`.
fn hangups_are_ignored() -> bool {
    let stat = Process::myself().and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.sigignore & (1 << (SIGHUP - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_wakes_loops_that_registered_before_and_after_it() {
        let stop = Stop::new();
        let before = stop.waker().unwrap();
        assert!(!stop.wait_for(Duration::ZERO));
        stop.request();
        let after = stop.waker().unwrap();
        stop.wait();
        for waker in [before, after] {
            assert_eq!(rustix::io::read(&waker, &mut [0_u8; 8]).unwrap(), 8);
        }
    }
}
