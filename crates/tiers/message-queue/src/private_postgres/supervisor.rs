//! Supervises the server's process, and restarts the server when it ends by itself: a disk that was
//! full for its log ends it, and so may the system when memory runs out. Clients get
//! UNAVAILABLE until it runs again.

use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::process::{Pid, Signal, kill_process};

use super::error::PrivatePostgresError;
use super::launch::{self, Launch, STOP};
use super::log_reserve::LogReserve;

/// How often the server and its disk are checked, and the pause before another start after one that failed:
/// from the first to the longest. A fast disk takes megabytes in the first.
const LOOK: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a stop that reached the server first may take to reach this process.
const GRACE: Duration = Duration::from_secs(2);

/// The server's process and the thread that supervises it.
#[derive(Debug)]
pub(super) struct Supervisor {
    kept: Arc<Kept>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Kept {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Debug)]
struct State {
    server: Child,
    stopping: bool,
}

impl Supervisor {
    /// Starts the server, waits until it is up, and supervises it.
    ///
    /// One thread does all of it: the kernel signals the server when the thread has ended that
    /// started it.
    pub(super) fn start(launch: Launch) -> Result<Self, PrivatePostgresError> {
        let (started, up) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("postgres-watch".into())
            .spawn(move || begin(&launch, &started))
            .map_err(PrivatePostgresError::Supervisor)?;
        let kept = up.recv().expect("the thread says how it went")?;
        Ok(Self { kept, thread: Some(thread) })
    }

    /// The server's process, which is another after it was started again.
    pub(super) fn pid(&self) -> u32 {
        self.kept.state.lock().server.id()
    }

    /// Ends the server with `how`; after `patience`, at once.
    pub(super) fn stop(&mut self, how: Signal, patience: Duration) {
        let Some(thread) = self.thread.take() else { return };
        let mut state = self.kept.state.lock();
        state.stopping = true;
        end(&mut state.server, how, patience);
        drop(state);
        self.kept.stopped.notify_all();
        drop(thread.join());
    }
}

fn begin(launch: &Launch, started: &SyncSender<Result<Arc<Kept>, PrivatePostgresError>>) {
    let mut reserve = LogReserve::new(launch.user, Arc::clone(&launch.room));
    // A disk that is full keeps PostgreSQL from starting.
    reserve.check();
    let server = launch.start().and_then(|mut server| match launch.wait_ready(&mut server) {
        Ok(()) => Ok(server),
        Err(error) => {
            end(&mut server, Signal::QUIT, STOP);
            Err(error)
        }
    });
    let kept = server.map(|server| {
        let state = Mutex::new(State { server, stopping: false });
        Arc::new(Kept { state, stopped: Condvar::new() })
    });
    let keeping = kept.as_ref().ok().map(Arc::clone);
    // The caller waits for it.
    started.send(kept).unwrap_or_default();
    if let Some(kept) = keeping {
        kept.keep(launch, reserve);
    }
}

impl Kept {
    fn keep(&self, launch: &Launch, mut reserve: LogReserve) {
        let mut pause = LOOK;
        loop {
            let mut state = self.wait(pause);
            if state.stopping {
                return;
            }
            reserve.check();
            let status = match state.server.try_wait() {
                Ok(Some(status)) => status,
                Ok(None) => {
                    pause = LOOK;
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot supervise PostgreSQL any more");
                    return;
                }
            };
            if status.success() && launch.options.same_group {
                // A signal to the process group ended it, and ends this process too.
                drop(state);
                state = self.wait(GRACE);
                if state.stopping {
                    return;
                }
            }
            let why = launch.last_words();
            tracing::warn!(%status, %why, "PostgreSQL ended; it is started again");
            match launch.start() {
                Ok(server) => state.server = server,
                Err(error) => warn(&error),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for so long, or until it shall stop.
    fn wait(&self, pause: Duration) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        self.stopped.wait_while_for(&mut state, |state| !state.stopping, pause);
        state
    }
}

fn warn(error: &PrivatePostgresError) {
    tracing::warn!(%error, "PostgreSQL cannot be started again; trying later");
}

/// Ends a server with `how`; after `patience`, at once.
pub(super) fn end(server: &mut Child, how: Signal, patience: Duration) {
    signal(server, how);
    let mut left = patience;
    while left > Duration::ZERO {
        if !matches!(server.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(launch::LOOK);
        left = left.saturating_sub(launch::LOOK);
    }
    tracing::warn!(pid = server.id(), "PostgreSQL does not stop; it is ended at once");
    // SIGQUIT: end without a checkpoint; the next start replays the log. Nothing is lost.
    signal(server, Signal::QUIT);
    drop(server.wait());
}

fn signal(server: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(server.id()).ok().and_then(Pid::from_raw) {
        // It may have ended already.
        kill_process(pid, signal).unwrap_or_default();
    }
}
