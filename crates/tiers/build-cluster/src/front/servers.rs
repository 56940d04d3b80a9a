//! The servers behind the front: which has what, which can be reached, and calls to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kendall_tier::{Clock, Exchange, Instruments, Moments, Recorder, RequestType};
use parking_lot::Mutex;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use super::ring::Ring;
use crate::digest::Digest;
use crate::instruments::{Counter, Families};
use crate::listen::Access;
use crate::peer::{Calls, Peer, Trust};
use crate::wire::bytestream::byte_stream_client::ByteStreamClient;
use crate::wire::re;
use crate::wire::re::action_cache_client::ActionCacheClient;
use crate::wire::re::capabilities_client::CapabilitiesClient;
use crate::wire::re::content_addressable_storage_client::ContentAddressableStorageClient;

/// How often a server that is down is asked whether it is back.
const PROBE: Duration = Duration::from_millis(500);

/// Largest message from a server.
const MESSAGE_BYTES: usize = 64 << 20;
/// Headers of a client that its servers see too: who it is, and what it builds.
const FORWARDED: [&str; 2] =
    ["authorization", "build.bazel.remote.execution.v2.requestmetadata-bin"];

/// A cache server, as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// As it was written: its name in the hashing, which must be the same on every front.
    pub name: String,
    pub address: SocketAddr,
    /// Its share beside the weights of the others.
    pub weight: u32,
}

/// What is done with the share of a server that cannot be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenDown {
    /// Results of actions miss, and whatever else is asked of it is UNAVAILABLE.
    #[default]
    Miss,
    /// The others take it over, until it is back.
    LeaveOut,
}

/// Operations that are counted apart: request types of the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    FindMissing,
    BatchRead,
    BatchUpdate,
    GetTree,
    Read,
    Write,
    GetResult,
    PutResult,
}

impl Operation {
    pub(super) const NAMES: &'static [&'static str] = &[
        "find-missing",
        "batch-read",
        "batch-update",
        "get-tree",
        "get-blob",
        "put-blob",
        "get-result",
        "put-result",
    ];
}

/// Servers that share one kind of content.
#[derive(Debug)]
pub(super) struct Servers {
    ring: Ring,
    all: Vec<Shard>,
    when_down: WhenDown,
    patience: Duration,
    clock: Clock,
    recorder: Mutex<Recorder>,
    /// Number of each among the tier's backends.
    numbers: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Shard {
    name: String,
    down: AtomicBool,
    failures: Counter,
    pub(super) storage: ContentAddressableStorageClient<Calls>,
    pub(super) results: ActionCacheClient<Calls>,
    pub(super) streams: ByteStreamClient<Calls>,
    pub(super) capabilities: CapabilitiesClient<Calls>,
}

impl Shard {
    fn new(server: &Server, trust: &Trust, families: &Families) -> Self {
        let channel = Peer { address: server.address, trust: trust.clone() }.calls();
        let failures = families.counter(
            "kendall_cache_front_failures_total",
            "Calls that a server could not be reached for.",
            &[("server", &server.name)],
        );
        Self {
            name: server.name.clone(),
            down: AtomicBool::new(false),
            failures,
            storage: ContentAddressableStorageClient::new(channel.clone())
                .max_decoding_message_size(MESSAGE_BYTES)
                .max_encoding_message_size(MESSAGE_BYTES),
            results: ActionCacheClient::new(channel.clone())
                .max_decoding_message_size(MESSAGE_BYTES)
                .max_encoding_message_size(MESSAGE_BYTES),
            streams: ByteStreamClient::new(channel.clone())
                .max_decoding_message_size(MESSAGE_BYTES)
                .max_encoding_message_size(MESSAGE_BYTES),
            capabilities: CapabilitiesClient::new(channel),
        }
    }
}

/// A request that is under way: in the tier from its arrival until this is dropped, however it ended.
/// One that failed or was given up was answered, too, as the servers count it.
pub(super) struct Timed {
    servers: Arc<Servers>,
    operation: Operation,
    arrived_ns: u64,
}

impl Drop for Timed {
    /// All but a moment of it was waiting for servers.
    fn drop(&mut self) {
        let now_ns = self.servers.clock.now_ns();
        let Self { operation, arrived_ns, .. } = *self;
        let backend = Some(Exchange { sent_ns: arrived_ns, received_ns: now_ns });
        let moments = Moments { arrived_ns, dequeued_ns: arrived_ns, backend, replied_ns: now_ns };
        let mut recorder = self.servers.recorder.lock();
        recorder.workers_busy.subtract(now_ns, 1);
        recorder.completed(RequestType(operation as usize), &moments);
    }
}

impl Servers {
    pub(super) fn new(
        servers: &[Server],
        options: (WhenDown, Duration, &Trust),
        instruments: &Instruments,
        families: &Families,
        numbers: Vec<usize>,
    ) -> Self {
        Self {
            ring: Ring::new(servers.iter().map(|server| (server.name.as_str(), server.weight))),
            all: servers.iter().map(|server| Shard::new(server, options.2, families)).collect(),
            when_down: options.0,
            patience: options.1,
            clock: instruments.clock().clone(),
            recorder: Mutex::new(instruments.recorder()),
            numbers,
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(super) fn shard(&self, index: usize) -> &Shard {
        &self.all[index]
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_up(&self, index: usize) -> bool {
        !self.all[index].down.load(Ordering::Relaxed)
    }

    pub(super) fn name(&self, index: usize) -> &str {
        &self.all[index].name
    }

    /// The server whose share a digest is; an error where none is left.
    pub(super) fn owner(&self, hash: &[u8; 32]) -> Result<usize, Status> {
        self.ring.owner(hash, |index| self.is_asked(index)).ok_or_else(|| {
            Status::unavailable("none of the cache servers behind this front can be reached")
        })
    }

    fn is_asked(&self, index: usize) -> bool {
        self.when_down == WhenDown::Miss || self.is_up(index)
    }

    /// Digests by the server whose share they are, with their places; only servers that have some. Without digests all
    /// servers: the call then asks whether they answer.
    pub(super) fn shares(&self, digests: &[Digest]) -> Result<Vec<(usize, Vec<usize>)>, Status> {
        let mut shares = vec![Vec::new(); self.all.len()];
        if digests.is_empty() {
            self.owner(&[0; 32])?;
            let all = shares.into_iter().enumerate();
            return Ok(all.filter(|(index, _)| self.is_asked(*index)).collect());
        }
        for (place, digest) in digests.iter().enumerate() {
            shares[self.owner(&digest.hash)?].push(place);
        }
        let some = shares.into_iter().enumerate().filter(|(_, places)| !places.is_empty());
        Ok(some.collect())
    }

    /// One call to one server. A server that cannot be reached is not asked again until it answers
    /// the question that is asked of it every half second.
    pub(super) async fn call<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        index: usize,
        keys: usize,
        call: F,
    ) -> Result<T, Status> {
        let answered = Box::pin(async {
            let answered = tokio::time::timeout(self.patience, call).await;
            answered.unwrap_or_else(|_| Err(Status::unavailable("it did not answer in time")))
        });
        self.stream(index, keys, answered).await
    }

    /// As [`call`](Self::call), for an upload, which lasts as long as its client takes.
    pub(super) async fn stream<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        index: usize,
        keys: usize,
        call: F,
    ) -> Result<T, Status> {
        if !self.is_up(index) {
            self.all[index].failures.add(1);
            return Err(self.unreachable(index, "it did not answer a moment ago"));
        }
        self.recorder.lock().backend_sent(self.numbers[index], keys as u64);
        let sent_ns = self.clock.now_ns();
        let outcome = call.await;
        let took = self.clock.now_ns().saturating_sub(sent_ns);
        match outcome {
            Err(status) if is_unreachable(&status) => {
                self.fell(index, &status);
                Err(self.unreachable(index, status.message()))
            }
            answered => {
                self.recorder.lock().backend_answered(self.numbers[index], took);
                answered.map(Response::into_inner)
            }
        }
    }

    /// A server could not be reached.
    pub(super) fn fell(&self, index: usize, status: &Status) {
        let shard = &self.all[index];
        self.recorder.lock().backend_failed(self.numbers[index]);
        shard.failures.add(1);
        if !shard.down.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = shard.name, %status, "a cache server cannot be reached");
        }
    }

    pub(super) fn unreachable(&self, index: usize, why: &str) -> Status {
        let name = &self.all[index].name;
        let way_out = match self.when_down {
            WhenDown::Miss => {
                "start it again, or let the others take over by --when-down leave-out"
            }
            WhenDown::LeaveOut => "call again: the others take over",
        };
        Status::unavailable(format!("the cache server {name} cannot be reached: {why}; {way_out}"))
    }

    /// Asks one server, whenever it is down, whether it is back. Never ends.
    pub(super) async fn probe(&self, index: usize) {
        let shard = &self.all[index];
        loop {
            kendall_tier::serve::pause(PROBE).await;
            if self.is_up(index) {
                continue;
            }
            let mut capabilities = shard.capabilities.clone();
            let asked = capabilities.get_capabilities(re::GetCapabilitiesRequest::default());
            let answered = tokio::time::timeout(self.patience, asked).await;
            // A refusal is an answer, too.
            if answered.is_ok_and(|answer| !answer.is_err_and(|status| is_unreachable(&status))) {
                shard.down.store(false, Ordering::Relaxed);
                tracing::info!(server = shard.name, "a cache server is back");
            }
        }
    }

    /// A request has arrived; it is counted as answered when what this returns is dropped.
    pub(super) fn begin(self: &Arc<Self>, operation: Operation) -> Timed {
        let arrived_ns = self.clock.now_ns();
        let mut recorder = self.recorder.lock();
        recorder.arrived(RequestType(operation as usize));
        recorder.workers_busy.add(arrived_ns, 1);
        drop(recorder);
        Timed { servers: Arc::clone(self), operation, arrived_ns }
    }
}

/// True for a connection failure, false for a reply.
pub(super) fn is_unreachable(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled)
}

/// Refuses a change by those who may only read by the tokens of the front; the caches may have tokens of
/// their own.
pub(super) fn may_write<T>(request: &Request<T>) -> Result<(), Status> {
    Access::of(request.extensions()).may_write().map_err(|status| *status)
}

/// The message with the headers that servers see.
pub(super) fn forwarded<T>(metadata: &MetadataMap, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let [token, build] = FORWARDED;
    if let Some(value) = metadata.get(token) {
        request.metadata_mut().insert(token, value.clone());
    }
    if let Some(value) = metadata.get_bin(build) {
        request.metadata_mut().insert_bin(build, value.clone());
    }
    request
}
