//! The front over several caches: one address for all of them.
//!
//! A blob is on the server whose share it is ([`ring::Ring`]); a batch becomes one call a server, and
//! the calls run side by side. Results of actions are shared out likewise, over the same servers or
//! over others; whether all that a result names is there only the front can tell, so the servers run
//! with `--behind-front`.
//!
//! Left out: replicas, the HTTP cache, and Remote Asset.

mod results;
pub mod ring;
mod servers;
mod storage;
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kendall_tier::serve::threads;
use kendall_tier::{Clock, Instruments, Layout, Routes};
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::instruments::Families;
use crate::listen::{Grpc, Guarded, ListenOptions, OpenUploads, Serving, StartError, UploadBounds};
use crate::peer::Trust;
use crate::wire::bytestream::byte_stream_server::ByteStreamServer;
use crate::wire::re::action_cache_server::ActionCacheServer;
use crate::wire::re::capabilities_server::{Capabilities, CapabilitiesServer};
use crate::wire::re::content_addressable_storage_server::ContentAddressableStorageServer;
use crate::wire::{bytestream, re};
use servers::Servers;
pub use servers::{Server, WhenDown};

/// Largest message of a client.
const MESSAGE_BYTES: usize = 16 << 20;

/// Services that it answers.
const SERVED: [&str; 4] = [
    re::content_addressable_storage_server::SERVICE_NAME,
    re::action_cache_server::SERVICE_NAME,
    re::capabilities_server::SERVICE_NAME,
    bytestream::byte_stream_server::SERVICE_NAME,
];

#[derive(Debug, Clone)]
pub struct FrontOptions {
    pub listen: ListenOptions,
    /// The servers that share the content.
    pub storage: Vec<Server>,
    /// The servers that share the results of actions.
    pub results: Vec<Server>,
    /// How the servers are known, and this front to them.
    pub trust: Trust,
    /// What is done with the share of one that cannot be reached.
    pub when_down: WhenDown,
    /// How long an answer is waited for.
    pub patience: Duration,
    pub threads: usize,
}

#[derive(Debug, Clone)]
struct Front {
    storage: Arc<Servers>,
    results: Arc<Servers>,
    uploads: OpenUploads,
}

#[derive(Debug)]
pub struct CacheFront {
    instruments: Instruments,
    families: Families,
    address: SocketAddr,
    health: HealthReporter,
    serving: Serving,
}

impl CacheFront {
    /// Starts it. The servers need not be there yet.
    pub fn start(mut options: FrontOptions, clock: Clock) -> Result<Self, StartError> {
        let runtime = threads("front", options.threads).map_err(StartError::Threads)?;
        options.listen.edge.answers = options.listen.edge.answers.on_one_connection();
        let (listener, tokens) = options.listen.bind()?;
        let address = listener.address();
        // One that stores results too is one backend: a page may not say two things of it.
        let mut backends: Vec<String> = Vec::new();
        let mut numbers = |servers: &[Server]| -> Vec<usize> {
            let number = |server: &Server| {
                let known = backends.iter().position(|name| *name == server.name);
                known.unwrap_or_else(|| {
                    backends.push(server.name.clone());
                    backends.len() - 1
                })
            };
            servers.iter().map(number).collect()
        };
        let (of_storage, of_results) = (numbers(&options.storage), numbers(&options.results));
        let layout = Layout {
            tier: "build-cache-front",
            request_types: servers::Operation::NAMES,
            backends,
            ..Layout::default()
        };
        let instruments = Instruments::new(layout, clock);
        let families = Families::new();
        let front = {
            let _inside = runtime.enter();
            let known = (options.when_down, options.patience, &options.trust);
            let storage =
                Servers::new(&options.storage, known, &instruments, &families, of_storage);
            let results =
                Servers::new(&options.results, known, &instruments, &families, of_results);
            let uploads = OpenUploads::new(UploadBounds::on_one_connection());
            uploads.describe(&families);
            Front { storage: Arc::new(storage), results: Arc::new(results), uploads }
        };
        levels(&families, &front);
        let (health, healthy) = tonic_health::server::health_reporter();
        for service in SERVED {
            runtime.block_on(health.set_service_status(service, ServingStatus::Serving));
        }
        let routes = routes(&front).add_service(healthy).prepare();
        let service = Guarded { service: Grpc(routes), tokens };
        let probing = async move {
            let mut probes = tokio::task::JoinSet::new();
            for servers in [&front.storage, &front.results] {
                // Each by itself: one that hangs must not delay the return of the others.
                for index in 0..servers.len() {
                    let servers = Arc::clone(servers);
                    probes.spawn(async move { servers.probe(index).await });
                }
            }
            while probes.join_next().await.is_some() {}
        };
        let serving = Serving::start(runtime, listener, service, Some(&instruments), probing);
        Ok(Self { instruments, families, address, health, serving })
    }

    /// The address for clients, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn instruments(&self) -> &Instruments {
        &self.instruments
    }

    /// What its page shows: what it counts, with labels.
    pub fn routes(&self) -> Routes {
        let families = self.families.clone();
        Routes::new().with_metrics(move || families.text())
    }

    /// Answers what was accepted, and stops.
    pub fn stop(mut self) {
        self.serving.close();
        // Ends the streams of those who watch it, which would hold up the stop.
        self.serving.block_on(async {
            for service in SERVED.into_iter().chain([""]) {
                self.health.clear_service_status(service).await;
            }
        });
        self.serving.stop();
    }
}

fn routes(front: &Front) -> tonic::service::Routes {
    tonic::service::Routes::new(
        ContentAddressableStorageServer::new(front.clone())
            .max_decoding_message_size(MESSAGE_BYTES),
    )
    .add_service(ActionCacheServer::new(front.clone()).max_decoding_message_size(MESSAGE_BYTES))
    .add_service(ByteStreamServer::new(front.clone()).max_decoding_message_size(MESSAGE_BYTES))
    .add_service(CapabilitiesServer::new(front.clone()))
}

fn levels(families: &Families, front: &Front) {
    for (shares, servers) in [("storage", &front.storage), ("results", &front.results)] {
        for index in 0..servers.len() {
            let all = Arc::clone(servers);
            let labels = [("shares", shares), ("server", servers.name(index))];
            families.level(
                "kendall_cache_front_server_up",
                "Whether a server is asked: 0 from a failure until it answers again.",
                &labels,
                move || f64::from(u8::from(all.is_up(index))),
            );
        }
    }
}

#[tonic::async_trait]
impl Capabilities for Front {
    /// What the first server can that answers; the servers are to be alike.
    async fn get_capabilities(
        &self,
        request: Request<re::GetCapabilitiesRequest>,
    ) -> Result<Response<re::ServerCapabilities>, Status> {
        let (metadata, _, message) = request.into_parts();
        let mut last = Status::unavailable("there is no cache server");
        for index in 0..self.storage.len() {
            let mut client = self.storage.shard(index).capabilities.clone();
            let call = client.get_capabilities(servers::forwarded(&metadata, message.clone()));
            match self.storage.call(index, 0, call).await {
                Ok(known) => return Ok(Response::new(known)),
                Err(status) => last = status,
            }
        }
        Err(last)
    }
}
