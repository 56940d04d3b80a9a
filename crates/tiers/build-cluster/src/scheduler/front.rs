//! What the scheduler listens for: its own services, and those of the cache, which it passes on
//! untouched, so that a client needs to know one address only.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::{Request, Response};
use kendall_tier::Clock;
use kendall_units::chain;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::service::Routes;
use tonic::{Request as Call, Status};

use crate::cache::SERVICES;
use crate::listen::{Client, Incoming, OpenUploads, PART_BYTES, Room, Serve};
use crate::peer::Calls;
use crate::wire::re::capabilities_client::CapabilitiesClient;
use crate::wire::re::capabilities_server::Capabilities;
use crate::wire::{re, semver};

/// The method of uploads.
const WRITE: &str = "/google.bytestream.ByteStream/Write";

/// Requests to this scheduler.
#[derive(Debug, Clone)]
pub(super) struct Front {
    pub(super) own: Routes,
    /// The cache, when its services are passed on.
    pub(super) cache: Option<Cache>,
}

/// The cache, to which the requests of all clients go over one connection.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    pub(super) calls: Calls,
    /// Those of each client: to the cache they all come from the scheduler.
    pub(super) uploads: OpenUploads,
    pub(super) clock: Clock,
}

impl Serve for Front {
    type Body = Body;

    async fn serve(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().strip_prefix('/');
        let service = path.and_then(|path| path.split_once('/')).map(|(service, _)| service);
        let passed = service.is_some_and(|service| SERVICES.contains(&service));
        match &self.cache {
            Some(cache) if passed && request.uri().path() == WRITE => cache.upload(request).await,
            Some(cache) if passed => cache.ask(request).await,
            _ => {
                let mut own = self.own.clone();
                match own.call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
        }
    }

    fn refuse(&self, status: Status) -> Response<Body> {
        status.into_http()
    }
}

impl Cache {
    /// Passes an upload on as long as it has a place, from its head on: a stream without a message is one of the
    /// connection too.
    async fn upload(&self, request: Request<Incoming>) -> Response<Body> {
        let client = Client::of(request.extensions());
        let place = match self.uploads.begin(&client, self.clock.now_ns()) {
            Ok(place) => Arc::new(place),
            Err(status) => return status.into_http(),
        };
        let (moving, clock, mut bytes) = (Arc::clone(&place), self.clock.clone(), 0);
        let request = request.map(|body| {
            Body::new(body.map_frame(move |frame| {
                bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                // The cache ends what does not move on, with the reason.
                moving.moved(bytes, clock.now_ns());
                frame
            }))
        });
        tokio::select! {
            response = pass(self.calls.clone(), request) => response,
            status = place.taken() => status.into_http(),
        }
    }

    /// Passes a request on when its answer has space, of which some comes before the client takes it.
    async fn ask(&self, request: Request<Incoming>) -> Response<Body> {
        let room = Room::of(request.extensions());
        room.take(2 * PART_BYTES).await;
        let awaited = room.wait();
        let request = request.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _ = &awaited;
                frame
            }))
        });
        pass(self.calls.clone(), request).await
    }
}

async fn pass(mut cache: Calls, request: Request<Body>) -> Response<Body> {
    let unreachable = |error: tonic::transport::Error| {
        let why = chain(&error);
        Status::unavailable(format!("the cache cannot be reached: {why}")).into_http()
    };
    if let Err(error) = std::future::poll_fn(|context| cache.poll_ready(context)).await {
        return unreachable(error);
    }
    match cache.call(request).await {
        Ok(response) => response,
        Err(error) => unreachable(error),
    }
}

/// Capabilities: the cache's, with what the scheduler adds.
#[derive(Debug, Clone)]
pub(super) struct CapabilitiesService {
    pub(super) cache: CapabilitiesClient<Calls>,
}

#[tonic::async_trait]
impl Capabilities for CapabilitiesService {
    async fn get_capabilities(
        &self,
        request: Call<re::GetCapabilitiesRequest>,
    ) -> Result<tonic::Response<re::ServerCapabilities>, Status> {
        let mut cache = self.cache.clone();
        // Also when the cache is down for a moment, a client may learn that this executes.
        let known = match cache.get_capabilities(request.into_inner()).await {
            Ok(known) => known.into_inner(),
            Err(error) => {
                tracing::debug!(%error, "the capabilities of the cache are unknown");
                re::ServerCapabilities::default()
            }
        };
        Ok(tonic::Response::new(with_execution(known)))
    }
}

fn with_execution(mut known: re::ServerCapabilities) -> re::ServerCapabilities {
    let version =
        |minor| Some(semver::SemVer { major: 2, minor, patch: 0, prerelease: String::new() });
    let functions = [re::digest_function::Value::Sha256, re::digest_function::Value::Blake3];
    let range =
        re::priority_capabilities::PriorityRange { min_priority: i32::MIN, max_priority: i32::MAX };
    known.execution_capabilities = Some(re::ExecutionCapabilities {
        digest_function: re::digest_function::Value::Sha256 as i32,
        exec_enabled: true,
        execution_priority_capabilities: Some(re::PriorityCapabilities { priorities: vec![range] }),
        supported_node_properties: vec!["mtime".to_owned(), "unix_mode".to_owned()],
        digest_functions: functions.map(|function| function as i32).to_vec(),
    });
    known.deprecated_api_version = known.deprecated_api_version.or_else(|| version(0));
    known.low_api_version = known.low_api_version.or_else(|| version(0));
    known.high_api_version = known.high_api_version.or_else(|| version(12));
    known
}
