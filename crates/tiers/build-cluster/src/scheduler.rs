//! The scheduler (`kendall serve scheduler`): takes actions from clients, gives them to workers, and
//! tells the clients how they go.
//!
//! [`board`] decides, without a clock and without input or output; the rest carries messages to it
//! and from it.

pub mod board;
mod execution;
mod front;
#[cfg(test)]
mod model;
mod operation_name;
mod page;
mod reflection;
mod report;
mod shared_board;
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kendall_tier::serve::threads;
use kendall_tier::{Clock, Instruments, PageRequest, PageResponse, Routes};
use tonic::server::NamedService as _;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use board::{Board, Limits};
pub use execution::ActionLimits;
use execution::Service;
use front::{Cache, CapabilitiesService, Front};
use report::Report;
use shared_board::SharedBoard;
use streams::WorkerService;

use crate::instruments::Families;
use crate::listen::{Guarded, ListenOptions, OpenUploads, Serving, StartError, UploadBounds};
use crate::peer::{Peer, Reach};
use crate::remote::Remote;
use crate::wire::longrunning::operations_server::OperationsServer;
use crate::wire::re::capabilities_client::CapabilitiesClient;
use crate::wire::re::capabilities_server::CapabilitiesServer;
use crate::wire::re::execution_server::ExecutionServer;
use crate::work::workers_server::WorkersServer;

/// How often the board gets the time.
const TICK: Duration = Duration::from_millis(100);
/// Clients that wait for the end of an action.
const EXECUTIONS: usize = 32 << 10;
/// Longest message of a worker: a result.
const MESSAGE_BYTES: usize = 64 << 20;

#[derive(Debug, Clone)]
pub struct SchedulerOptions {
    /// Where it listens, for clients and workers.
    pub listen: ListenOptions,
    pub cache: Peer,
    /// Whether requests to the cache are passed on.
    pub front: bool,
    /// Bounds of queues and waits.
    pub limits: Limits,
    pub actions: ActionLimits,
    /// Longest time between two messages of a worker, in milliseconds.
    pub beat_ms: u32,
    /// How long the cache may be away.
    pub patience: Duration,
    pub threads: usize,
}

#[derive(Debug)]
pub struct Scheduler {
    instruments: Instruments,
    families: Families,
    shared_board: Arc<SharedBoard>,
    health: HealthReporter,
    address: SocketAddr,
    serving: Serving,
}

impl Scheduler {
    pub fn start(mut options: SchedulerOptions, clock: Clock) -> Result<Self, StartError> {
        let runtime = threads("scheduler", options.threads).map_err(StartError::Threads)?;
        options.listen.edge.answers = options.listen.edge.answers.on_one_connection();
        options.listen.edge.lasting = EXECUTIONS;
        let (listener, tokens) = options.listen.bind()?;
        let address = listener.address();
        let layout = report::layout(options.cache.address.to_string());
        let instruments = Instruments::new(layout, clock.clone());
        let families = Families::new();
        let report = Report::new(&instruments, &families);
        // Numbers of leases of two schedulers never meet: each starts somewhere in a wide range.
        let session = shared_board::random();
        let first = (session >> 1) & !0xffff_ffff;
        let board = Board::new(options.limits, first, clock.now_ns());
        let shared_board = Arc::new(SharedBoard::new(board, session, report, clock.clone()));
        let (health, healthy) = tonic_health::server::health_reporter();
        runtime.block_on(health.set_serving::<ExecutionServer<Service>>());
        let front = {
            let _inside = runtime.enter();
            let reach = Reach::of(options.cache.address);
            let calls = || options.cache.calls().logged(&reach);
            let (cache, own) = (calls(), calls());
            let remote = Remote::over(own, options.patience, clock.clone());
            let service = Service::new(Arc::clone(&shared_board), remote, options.actions);
            let capabilities =
                CapabilitiesService { cache: CapabilitiesClient::new(cache.clone()) };
            let own = services(service, options.beat_ms)
                .add_service(CapabilitiesServer::new(capabilities))
                .add_service(healthy);
            let own = reflection::add(own, options.front).map_err(StartError::Reflection)?;
            let own = own.prepare();
            let passed_on = || {
                let uploads = OpenUploads::new(UploadBounds::on_one_connection());
                uploads.describe(&families);
                Cache { calls: cache.for_others(), uploads, clock }
            };
            let service = Front { own, cache: options.front.then(passed_on) };
            Guarded { service, tokens }
        };
        levels(&families, &shared_board);
        let ticking = Arc::clone(&shared_board);
        let ticks = async move {
            let mut ticks = tokio::time::interval(TICK);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                ticking.tick();
            }
        };
        let serving = Serving::start(runtime, listener, front, Some(&instruments), ticks);
        Ok(Self { instruments, families, shared_board, health, address, serving })
    }

    /// The address, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn instruments(&self) -> &Instruments {
        &self.instruments
    }

    /// What its page shows: labelled metrics, and its status: `/` and `/status` for people, `/status.json` for programs.
    pub fn routes(&self) -> Routes {
        let (families, programs) = (self.families.clone(), Arc::clone(&self.shared_board));
        let people = || {
            let shared_board = Arc::clone(&self.shared_board);
            move |_: &PageRequest| PageResponse::html(page::html(&page::status(&shared_board)))
        };
        Routes::new()
            .with_metrics(move || families.text())
            .with("GET", "/", people())
            .with("GET", "/status", people())
            .with("GET", "/status.json", move |_| PageResponse::json(&page::status(&programs)))
    }

    /// Stops: clients of running actions are asked to come back to the next scheduler, which learns
    /// from the workers what they run.
    pub fn stop(mut self) {
        self.serving.close();
        self.serving.block_on(async {
            for service in ["", ExecutionServer::<Service>::NAME] {
                self.health.set_service_status(service, ServingStatus::NotServing).await;
                // Ends the streams of those who watch it, which would hold up the stop.
                self.health.clear_service_status(service).await;
            }
        });
        self.shared_board.close();
        self.serving.stop();
    }
}

/// What clients and workers call, but for what is the cache's.
fn services(service: Service, beat_ms: u32) -> tonic::service::Routes {
    let workers = WorkerService { shared_board: Arc::clone(&service.shared_board), beat_ms };
    tonic::service::Routes::new(ExecutionServer::new(service.clone()))
        .add_service(OperationsServer::new(service))
        .add_service(WorkersServer::new(workers).max_decoding_message_size(MESSAGE_BYTES))
}

fn levels(families: &Families, shared_board: &Arc<SharedBoard>) {
    let level = |name, help, read: fn(&board::Totals) -> usize| {
        let shared_board = Arc::clone(shared_board);
        families.level(name, help, &[], move || {
            let value = shared_board.look(|board, _| read(&board.totals()));
            kendall_units::exact_f64(value as u64)
        });
    };
    level("kendall_build_tasks_waiting", "Tasks in the queues.", |totals| totals.waiting);
    level("kendall_build_slots_busy", "Slots of workers with a task.", |totals| totals.executing);
    level("kendall_build_slots", "Slots of all workers.", |totals| totals.slots);
    level("kendall_build_workers", "Workers.", |totals| totals.workers);
}
