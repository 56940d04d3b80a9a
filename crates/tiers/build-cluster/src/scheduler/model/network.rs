//! The network of the model: what is sent arrives later, never, or is known to be lost; and the place
//! where the scheduler of the day is found.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use crate::peer::Calls;

/// Frames that may be under way in one direction.
const UNDER_WAY: usize = 1024;

/// Holds a process: what is frozen does nothing until it is let go.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Gate {
    pub(super) fn freeze(&self, frozen: bool) {
        let mut state = self.0.lock();
        state.0 = frozen;
        if !frozen {
            state.1.drain(..).for_each(Waker::wake);
        }
    }

    /// `inner`, as long as the gate lets it.
    pub(super) fn hold<F: Future + Send + 'static>(
        &self,
        inner: F,
    ) -> impl Future<Output = F::Output> + Send + use<F> {
        let gate = self.clone();
        async move {
            let mut inner = pin!(inner);
            std::future::poll_fn(move |context| {
                let mut state = gate.0.lock();
                if state.0 {
                    state.1.push(context.waker().clone());
                    return Poll::Pending;
                }
                drop(state);
                inner.as_mut().poll(context)
            })
            .await
        }
    }
}

/// Where the scheduler is.
#[derive(Debug, Clone)]
pub(super) struct Site {
    running: Arc<Mutex<Option<Routes>>>,
    frozen: Arc<watch::Sender<bool>>,
    /// Counts schedulers that ended: their connections break.
    ended: Arc<watch::Sender<u64>>,
    /// Counts how often all broken connections were noticed by both sides.
    healed: Arc<watch::Sender<u64>>,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            running: Arc::default(),
            frozen: Arc::new(watch::channel(false).0),
            ended: Arc::new(watch::channel(0).0),
            healed: Arc::new(watch::channel(0).0),
        }
    }
}

impl Site {
    pub(super) fn start(&self, routes: Routes) {
        *self.running.lock() = Some(routes);
    }

    pub(super) fn stop(&self) {
        *self.running.lock() = None;
        self.ended.send_modify(|ended| *ended += 1);
    }

    pub(super) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    pub(super) fn heal(&self) {
        self.healed.send_modify(|healed| *healed += 1);
    }
}

/// One party's way to the scheduler.
#[derive(Debug, Clone)]
pub(super) struct Link {
    site: Site,
    stalled: Arc<watch::Sender<bool>>,
    /// How often it was cut, and whether the scheduler heard of the last cut at once.
    cuts: Arc<watch::Sender<(u64, bool)>>,
}

impl Link {
    pub(super) fn new(site: &Site) -> Self {
        let (stalled, cuts) = (watch::channel(false).0, watch::channel((0, true)).0);
        Self { site: site.clone(), stalled: Arc::new(stalled), cuts: Arc::new(cuts) }
    }

    pub(super) fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    /// Breaks all connections; `both` sides hear of it, or the scheduler's only when all is healed.
    pub(super) fn cut(&self, both: bool) {
        self.cuts.send_modify(|cuts| *cuts = (cuts.0 + 1, both));
    }

    /// New connections over it.
    pub(super) fn calls(&self) -> Calls {
        let link = self.clone();
        Calls::model(move |request| link.clone().call(request))
    }

    async fn flowing(&self) {
        loop {
            let (mut stalled, mut frozen) =
                (self.stalled.subscribe(), self.site.frozen.subscribe());
            if !*stalled.borrow_and_update() && !*frozen.borrow_and_update() {
                return;
            }
            tokio::select! {
                biased;
                changed = stalled.changed() => changed.unwrap(),
                changed = frozen.changed() => changed.unwrap(),
            }
        }
    }

    /// Returns when the connection made at `start` is broken.
    async fn broken(&self, start: (u64, u64)) {
        let (mut cuts, mut ended) = (self.cuts.subscribe(), self.site.ended.subscribe());
        tokio::select! {
            biased;
            cut = cuts.wait_for(|cuts| cuts.0 != start.0) => drop(cut),
            end = ended.wait_for(|ended| *ended != start.1) => drop(end),
        }
    }

    async fn call(self, request: Request<Body>) -> Response<Body> {
        let start = (self.cuts.borrow().0, *self.site.ended.borrow());
        let answering = async {
            self.flowing().await;
            let running = self.site.running.lock().clone();
            let Some(mut routes) = running else {
                return Status::unavailable("nobody listens there").into_http();
            };
            // Only now a scheduler is at the other end.
            let start = (start.0, *self.site.ended.borrow());
            let request = request.map(|body| self.carry(body, start));
            match routes.call(request).await {
                Ok(response) => response.map(|body| self.carry(body, start)),
                Err(never) => match never {},
            }
        };
        tokio::select! {
            biased;
            response = answering => response,
            () = self.broken(start) => Status::unavailable("the connection broke").into_http(),
        }
    }

    /// Carries a body from one side to the other.
    fn carry(&self, mut body: Body, start: (u64, u64)) -> Body {
        let link = self.clone();
        let (there, here) = mpsc::channel::<Result<Frame<Bytes>, Status>>(UNDER_WAY);
        tokio::spawn(async move {
            let broke = || Status::unavailable("the connection broke");
            loop {
                let next = async {
                    link.flowing().await;
                    let frame = body.frame().await;
                    link.flowing().await;
                    frame
                };
                let frame = tokio::select! {
                    biased;
                    () = link.broken(start) => Some(Err(broke())),
                    () = there.closed() => None,
                    frame = next => frame,
                };
                let Some(frame) = frame else { break };
                let last = frame.is_err();
                if there.send(frame).await.is_err() || last {
                    break;
                }
            }
            // The other side has not heard of the end yet.
            let mut healed = link.site.healed.subscribe();
            healed.mark_unchanged();
            let cut = *link.cuts.borrow();
            if cut.0 != start.0 && !cut.1 {
                drop(healed.changed().await);
            }
            drop(body);
        });
        Body::new(StreamBody::new(ReceiverStream::new(here)))
    }
}
