//! What all methods of the service share: taking messages, and waiting for them.

use std::sync::Arc;
use std::time::Duration;

use kendall_protocols::queue as wire;
use kendall_tier::Clock;
use tokio::sync::watch;
use tonic::Status;
use uuid::Uuid;

use crate::database::Databases;
use crate::dispatcher::{Dispatcher, only};
use crate::operation::{Limits, Selector};
use crate::request::Taking;
use crate::response::messages;
use crate::waiters::Waiters;

/// A waiting client tries again this often even if nothing woke it: a notification can be lost
/// when its sender looked for waiters just before this one was registered.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The service. Clones share all.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) databases: Databases,
    pub(crate) middleware: Uuid,
    pub(crate) clock: Clock,
    /// Turns true when the middleware stops.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Service {
    pub(crate) fn limits(&self) -> &Limits {
        self.databases.limits()
    }

    /// Takes a message, waiting for one as long as was asked.
    pub(crate) async fn take(
        &self,
        taking: Taking,
    ) -> Result<Option<(wire::Message, u64)>, Status> {
        let mut found = self.take_some(taking).await?;
        Ok(found.pop())
    }

    /// Takes what an operation gives, waiting for some as long as was asked.
    pub(crate) async fn take_some(
        &self,
        taking: Taking,
    ) -> Result<Vec<(wire::Message, u64)>, Status> {
        let Taking { operation, selector, wait_ms, due_ns } = taking;
        let end_ns = self.clock.now_ns() + wait_ms.min(self.limits().wait_ms) * 1_000_000;
        let mut registered = false;
        loop {
            // In line before looking, so that a message that comes between wakes.
            let place = if wait_ms == 0 || self.clock.now_ns() >= end_ns {
                None
            } else {
                let most = self.limits().waiting_clients;
                let Selector { client, queue, sender, .. } = selector;
                let place = self.waiters.wait(queue, client, sender, most);
                if place.is_none() {
                    self.dispatcher.refused_to_wait();
                    return Err(Status::resource_exhausted(format!(
                        "{most} clients wait for messages, as many as may; ask without a wait"
                    )));
                }
                place
            };
            if place.is_some() && !registered {
                registered = self.register(selector.queue).await;
            }
            let answers = self.dispatcher.perform_by(vec![operation.clone()], due_ns).await?;
            let found = messages(only(answers)?)?;
            let Some(mut place) = place else { return Ok(found) };
            if !found.is_empty() {
                return Ok(found);
            }
            let left = Duration::from_nanos(end_ns.saturating_sub(self.clock.now_ns()));
            if tokio::time::timeout(left.min(LOOK_AGAIN), place.woken()).await.is_ok() {
                place.used();
            }
        }
    }

    /// Has senders on all middlewares notify this one of messages of `queue`.
    pub(crate) async fn register(&self, queue: i64) -> bool {
        match self.databases.session().await {
            Ok(session) => session.register_waiter(self.middleware, queue).await,
            Err(_) => false,
        }
    }
}
