//! What the middleware says of itself to those who route clients to it (gRPC health checking).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

/// The services that have a status: all of it, and the queue.
const SERVICES: [&str; 2] = ["", "kendall.queue.v1.MessageQueue"];

/// Whether this middleware serves. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    reporter: HealthReporter,
    /// Whether the last status was reported; locked while one is reported, so that none follows the last.
    ended: Arc<Mutex<bool>>,
    /// The last status.
    last: Arc<AtomicBool>,
}

impl Health {
    /// Serving, and the gRPC service that says so.
    pub(crate) async fn new() -> (Self, HealthServer<HealthService>) {
        let reporter = HealthReporter::new();
        let service = HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
        let health = Self { reporter, ended: Arc::default(), last: Arc::default() };
        health.serves(true).await;
        (health, service)
    }

    /// Reports whether PostgreSQL answers; after the stop it reports nothing, since a check may end late.
    pub(crate) async fn serves(&self, serves: bool) {
        let ended = self.ended.lock().await;
        if !*ended {
            self.tell(serves).await;
        }
    }

    /// Says that it stops, and ends the watches, which would hold it up.
    pub(crate) async fn ends(mut self) {
        let ended = Arc::clone(&self.ended);
        let mut ended = ended.lock().await;
        *ended = true;
        self.tell(false).await;
        for service in SERVICES {
            self.reporter.clear_service_status(service).await;
        }
    }

    /// What was reported last.
    pub(crate) fn last(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    async fn tell(&self, serves: bool) {
        self.last.store(serves, Ordering::Relaxed);
        let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in SERVICES {
            // It cannot fail; and watchers get changes only.
            self.reporter.set_service_status(service, status).await;
        }
    }
}
