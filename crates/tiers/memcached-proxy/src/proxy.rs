//! The proxy: its listeners, and the threads that serve.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kendall_tier::{Clock, Instruments, Stop};
use parking_lot::Mutex;

use crate::engine::{Engine, Shared};
use crate::listener::Listener;
use crate::liveness::Liveness;
use crate::options::{Mode, Options};
use crate::plan::{PlanError, Planner, Reloader};
use crate::report;
use crate::socket;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen at {address}; choose another with --listen HOST:PORT")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot listen at {}; choose another with --listen-unix PATH", path.display())]
    ListenUnix { path: PathBuf, source: io::Error },
    #[error("cannot make the event queue")]
    Events(#[source] io::Error),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

#[derive(Debug)]
pub struct Proxy {
    engines: Vec<Engine>,
    address: SocketAddr,
    instruments: Instruments,
    reloader: Reloader,
    path: Option<socket::Path>,
}

impl Proxy {
    /// Listens, and connects to the servers. A server that cannot be reached is probed until it
    /// can.
    pub fn bind(options: Options, clock: Clock) -> Result<Self, StartError> {
        kendall_tier::raise_descriptor_limit();
        let address = options.listen;
        let (listener, address) = socket::listener(address)
            .map_err(|error| StartError::Listen { address, source: error.into() })?;
        let tls = options.client_tls.clone();
        let mut listeners = vec![Listener { socket: Arc::new(listener), tls }];
        let mut path = None;
        if let Some(wanted) = &options.listen_unix {
            let (listener, made) = socket::unix_listener(wanted)
                .map_err(|source| StartError::ListenUnix { path: wanted.clone(), source })?;
            listeners.push(Listener { socket: Arc::new(listener), tls: None });
            path = Some(made);
        }
        let instruments = Instruments::new(report::layout(), clock.clone());
        if let Mode::Workers(workers) = options.mode {
            instruments.set_workers(workers);
        }
        let planner = Planner::new(options, instruments.clone())?;
        let shared = Shared { clock, listeners, plan: planner.plan() };
        let engines = (0..shared.plan.shares.len())
            .map(|number| Engine::new(number, &shared, instruments.recorder()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| StartError::Events(error.into()))?;
        let inboxes = engines.iter().map(Engine::inbox).collect();
        let reloader = Reloader { planner: Arc::new(Mutex::new(planner)), inboxes };
        Ok(Self { engines, address, instruments, reloader, path })
    }

    /// Where clients connect, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn instruments(&self) -> &Instruments {
        &self.instruments
    }

    /// Gives it other options while it runs.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Shows of each network thread whether it works on something and does not come to an end of
    /// it.
    pub fn liveness(&self) -> Vec<Liveness> {
        self.engines.iter().map(Engine::liveness).collect()
    }

    /// Serves until the stop is asked for, and then until every request that was read is
    /// answered.
    pub fn run(mut self, stop: &Stop) -> io::Result<()> {
        for engine in &self.engines {
            stop.register(engine.waker());
        }
        let Some((first, others)) = self.engines.split_first_mut() else { return Ok(()) };
        let ended: io::Result<()> = std::thread::scope(|scope| {
            let mut started = Vec::new();
            for (number, engine) in others.iter_mut().enumerate() {
                let thread = std::thread::Builder::new().name(format!("network-{}", number + 2));
                let spawned = thread.spawn_scoped(scope, || {
                    let ended = engine.run(stop);
                    // One that ends by itself must not leave the others alone with its clients.
                    stop.request();
                    ended
                });
                started.push(spawned.inspect_err(|_| stop.request())?);
            }
            let ended = first.run(stop);
            stop.request();
            for thread in started {
                match thread.join() {
                    Ok(ended) => ended?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(ended?)
        });
        // What it leaves behind in the file system is taken away.
        drop(self.path.take());
        ended
    }
}
