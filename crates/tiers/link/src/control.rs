//! State of a running link: how it is read and changed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kendall_tier::Waker;
use kendall_units::QuantityError;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use crate::shape::{Fault, Shape, ShapeChange};

/// The state of a link, as its control address tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// In the order of the command line.
    pub routes: Vec<RouteState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteState {
    pub listen: SocketAddr,
    pub to: SocketAddr,
    pub delay_ns: u64,
    /// Such as `normal:100000ns`.
    pub jitter: String,
    /// Bytes per second toward the server; null is unlimited.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// The same of the way back.
    pub bandwidth_back_bytes_per_s: Option<u64>,
    /// What is broken just now.
    pub fault: Fault,
}

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    #[error("route {route} does not exist; the link has {routes}, counted from 0")]
    NoSuchRoute { route: usize, routes: usize },
}

/// Longest wait for the loop to take a change over.
const TAKEN_OVER: Duration = Duration::from_secs(1);

/// A handle on a running link. Clones share it.
#[derive(Debug, Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    routes: Vec<(SocketAddr, SocketAddr)>,
    shapes: Mutex<Shapes>,
    applied: Condvar,
    waker: Waker,
}

/// What is wanted, and a count of its changes by which the loop sees that there are some.
#[derive(Debug)]
struct Shapes {
    wanted: Vec<Shape>,
    version: u64,
    /// The version that the loop has taken over.
    applied: u64,
}

impl Control {
    pub(crate) fn new(routes: Vec<(SocketAddr, SocketAddr)>, shape: Shape) -> io::Result<Self> {
        let shapes =
            Mutex::new(Shapes { wanted: vec![shape; routes.len()], version: 0, applied: 0 });
        Ok(Self {
            shared: Arc::new(Shared {
                routes,
                shapes,
                applied: Condvar::new(),
                waker: Waker::new()?,
            }),
        })
    }

    /// The state that the link has, or is about to take.
    pub fn state(&self) -> LinkState {
        let shapes = self.shared.shapes.lock();
        let routes = self.shared.routes.iter().zip(&shapes.wanted);
        LinkState {
            routes: routes
                .map(|((listen, to), shape)| RouteState {
                    listen: *listen,
                    to: *to,
                    delay_ns: shape.delay.as_nanos(),
                    jitter: shape.jitter.to_string(),
                    bandwidth_bytes_per_s: shape.bandwidth[0],
                    bandwidth_back_bytes_per_s: shape.bandwidth[1],
                    fault: shape.fault,
                })
                .collect(),
        }
    }

    /// Changes one route or all of them: all that is asked for, or nothing when a part is refused.
    /// When it returns, the running link has taken the change over (or was busy for a second).
    pub fn change(&self, change: &ShapeChange) -> Result<LinkState, ControlError> {
        let mut shapes = self.shared.shapes.lock();
        let mut wanted = shapes.wanted.clone();
        let routes = wanted.len();
        let changed = match change.route {
            None => &mut wanted[..],
            Some(route) if route < routes => &mut wanted[route..=route],
            Some(route) => return Err(ControlError::NoSuchRoute { route, routes }),
        };
        for shape in changed {
            *shape = change.applied_to(*shape)?;
        }
        shapes.wanted = wanted;
        shapes.version += 1;
        let version = shapes.version;
        self.shared.waker.wake();
        self.shared.applied.wait_while_for(&mut shapes, |s| s.applied < version, TAKEN_OVER);
        drop(shapes);
        Ok(self.state())
    }

    /// Woken at every change.
    pub(crate) fn waker(&self) -> &Waker {
        &self.shared.waker
    }

    /// The shapes, when they are newer than `version`, which is brought up to date.
    pub(crate) fn newer_than(&self, version: &mut u64) -> Option<Vec<Shape>> {
        let shapes = self.shared.shapes.lock();
        (shapes.version != *version).then(|| {
            *version = shapes.version;
            shapes.wanted.clone()
        })
    }

    /// The loop has taken over the shapes of `version`.
    pub(crate) fn taken_over(&self, version: u64) {
        self.shared.shapes.lock().applied = version;
        self.shared.applied.notify_all();
    }
}
