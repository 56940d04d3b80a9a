//! What the cache answers: one method a module, found here by its path.

use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Incoming;
use hyper::http::Extensions;
use hyper::{Request, Response};
use kendall_tier::{Clock, Moments, Recorder, RequestType};
use tonic::{Code, Status};

use super::grpc::{self, Answer, Budget, Messages};
use super::instances::{Instances, Partition};
use super::metrics::{Metrics, Operation};
use super::store::{Entry, Key, Kind, PutError, ReadError};
use super::uploads::Uploads;
use super::{assets, blobs, capabilities, http, read, results, tree, write};
use crate::digest::Digest;
use crate::listen::plain::is_grpc;
use crate::listen::{Access, Client, Serve};

/// Everything that answers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) instances: Instances,
    pub(crate) budget: Arc<Budget>,
    pub(crate) uploads: Uploads,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    /// Whether results may be changed by who may write at all.
    pub(crate) read_only_results: bool,
    pub(crate) behind_front: bool,
}

/// The cache's answers on one network thread.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) shared: Arc<Shared>,
    /// Where this thread writes.
    pub(crate) lane: usize,
    recorder: Arc<Mutex<Recorder>>,
}

/// One request, whose end is recorded.
#[derive(Debug)]
pub(crate) struct Call {
    service: Service,
    operation: Operation,
    access: Access,
    pub(crate) client: Client,
    arrived_ns: u64,
    told: bool,
}

pub(crate) type Answered = Result<Response<Answer>, Status>;

impl Service {
    pub(crate) fn new(shared: &Arc<Shared>, lane: usize, recorder: Recorder) -> Self {
        Self { shared: Arc::clone(shared), lane, recorder: Arc::new(Mutex::new(recorder)) }
    }

    fn begin(&self, operation: Operation, extensions: &Extensions) -> Call {
        let arrived_ns = self.shared.clock.now_ns();
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        recorder.arrived(RequestType(operation as usize));
        recorder.workers_busy.add(arrived_ns, 1);
        drop(recorder);
        let (access, client) = (Access::of(extensions), Client::of(extensions));
        Call { service: self.clone(), operation, access, client, arrived_ns, told: false }
    }
}

impl Call {
    pub(crate) fn shared(&self) -> &Shared {
        &self.service.shared
    }

    pub(crate) fn lane(&self) -> usize {
        self.service.lane
    }

    /// Refuses a change by those who may only read.
    pub(crate) fn may_write(&self) -> Result<(), Status> {
        self.access.may_write().map_err(|status| *status)
    }

    /// The partition of an instance.
    pub(crate) fn partition(&self, instance: &str) -> Result<Partition<'_>, Status> {
        self.shared().instances.partition(instance)
    }

    /// Counts lookups that hit, and those that missed.
    pub(crate) fn found(&self, kind: Kind, hits: u64, misses: u64) {
        self.shared().metrics.looked_up(kind, hits, misses);
    }

    /// Counts bytes that came and went.
    pub(crate) fn bytes(&self, read: u64, written: u64) {
        let mut recorder = self.recorder();
        recorder.bytes_in(read);
        recorder.bytes_out(written);
    }

    fn recorder(&self) -> std::sync::MutexGuard<'_, Recorder> {
        self.service.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Told once how it ended.
    pub(crate) fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let replied_ns = self.shared().clock.now_ns();
        let arrived_ns = self.arrived_ns;
        let metrics = &self.service.shared.metrics;
        metrics.ended(self.operation, code, replied_ns.saturating_sub(arrived_ns));
        let mut recorder = self.recorder();
        recorder.workers_busy.subtract(replied_ns, 1);
        let moments = Moments { arrived_ns, dequeued_ns: arrived_ns, backend: None, replied_ns };
        recorder.completed(RequestType(self.operation as usize), &moments);
        let outcome = match code {
            Code::Ok => return,
            Code::NotFound => super::metrics::MISS,
            Code::InvalidArgument | Code::OutOfRange => super::metrics::REFUSED,
            Code::PermissionDenied | Code::Unauthenticated => super::metrics::FORBIDDEN,
            Code::ResourceExhausted => super::metrics::EXHAUSTED,
            Code::Cancelled | Code::DeadlineExceeded => super::metrics::CANCELLED,
            _ => super::metrics::FAILED,
        };
        recorder.outcome(outcome, 1);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

impl Serve for Service {
    type Body = Answer;

    const PLAIN: bool = true;

    async fn serve(&self, request: Request<Incoming>) -> Response<Answer> {
        if !is_grpc(request.headers()) {
            return http::serve(self, request).await;
        }
        let path = request.uri().path();
        let Some((operation, method)) = method(path) else {
            return grpc::refused(&Status::unimplemented(format!("there is no method {path}")));
        };
        let mut call = self.begin(operation, request.extensions());
        let messages = Messages::new(request.into_body(), &self.shared.budget, &call.client);
        match method {
            Served::Read => read::read(call, messages).await,
            Served::Unary(answer) => {
                let mut messages = messages;
                let answered = match messages.only().await {
                    Ok(message) => {
                        call.bytes(messages.read, 0);
                        answer(&call, &message)
                    }
                    Err(status) => Err(status),
                };
                finish(&mut call, answered)
            }
            Served::Write => {
                let answered = write::write(&call, messages).await;
                finish(&mut call, answered)
            }
        }
    }

    fn refuse(&self, status: Status) -> Response<Answer> {
        grpc::refused(&status)
    }
}

/// Answers, and tells how it ended.
pub(crate) fn finish(call: &mut Call, answered: Answered) -> Response<Answer> {
    match answered {
        Ok(response) => {
            call.end(Code::Ok);
            response
        }
        Err(status) => {
            call.end(status.code());
            grpc::refused(&status)
        }
    }
}

impl Service {
    pub(crate) fn call(&self, operation: Operation, extensions: &Extensions) -> Call {
        self.begin(operation, extensions)
    }
}

type Unary = fn(&Call, &bytes::Bytes) -> Answered;

/// How a method is served.
enum Served {
    Unary(Unary),
    Read,
    Write,
}

/// The method of a path.
fn method(path: &str) -> Option<(Operation, Served)> {
    const RE: &str = "/build.bazel.remote.execution.v2.";
    const ASSET: &str = "/build.bazel.remote.asset.v1.";
    if let Some(name) = path.strip_prefix(RE) {
        let (operation, unary): (Operation, Unary) = match name {
            "ContentAddressableStorage/FindMissingBlobs" => {
                (Operation::FindMissing, blobs::find_missing)
            }
            "ContentAddressableStorage/BatchUpdateBlobs" => {
                (Operation::BatchUpdate, blobs::batch_update)
            }
            "ContentAddressableStorage/BatchReadBlobs" => (Operation::BatchRead, blobs::batch_read),
            "ContentAddressableStorage/GetTree" => (Operation::GetTree, tree::get_tree),
            "ActionCache/GetActionResult" => (Operation::GetResult, results::get),
            "ActionCache/UpdateActionResult" => (Operation::PutResult, results::update),
            "Capabilities/GetCapabilities" => (Operation::Other, capabilities::get),
            _ => return None,
        };
        return Some((operation, Served::Unary(unary)));
    }
    if let Some(name) = path.strip_prefix(ASSET) {
        let (operation, unary): (Operation, Unary) = match name {
            "Fetch/FetchBlob" => (Operation::Fetch, assets::fetch_blob),
            "Fetch/FetchDirectory" => (Operation::Fetch, assets::fetch_directory),
            "Push/PushBlob" => (Operation::Push, assets::push_blob),
            "Push/PushDirectory" => (Operation::Push, assets::push_directory),
            _ => return None,
        };
        return Some((operation, Served::Unary(unary)));
    }
    Some(match path {
        crate::remote::ACTIONS => (Operation::BatchRead, Served::Unary(blobs::read_actions)),
        crate::remote::LOOK_UP => (Operation::GetResult, Served::Unary(blobs::look_up)),
        "/google.bytestream.ByteStream/Read" => (Operation::GetBlob, Served::Read),
        "/google.bytestream.ByteStream/Write" => (Operation::PutBlob, Served::Write),
        "/google.bytestream.ByteStream/QueryWriteStatus" => {
            (Operation::Other, Served::Unary(write::query))
        }
        "/grpc.health.v1.Health/Check" => (Operation::Other, Served::Unary(capabilities::health)),
        _ => return None,
    })
}

/// The name of a blob in the store.
pub(crate) fn blob(digest: &Digest) -> Key {
    Key { kind: Kind::Blob, function: digest.function, hash: digest.hash }
}

/// The entry of a blob, used now; a blob of another size is not the one that is asked for.
pub(crate) fn entry(partition: &Partition<'_>, digest: &Digest, moment: u64) -> Option<Entry> {
    let entry = partition.store.get(&blob(digest), moment)?;
    (entry.size == digest.size).then_some(entry)
}

/// A blob that is not there.
pub(crate) fn not_found(digest: &Digest) -> Status {
    Status::not_found(format!("{} is not here", digest.resource()))
}

impl From<PutError> for Status {
    fn from(error: PutError) -> Self {
        match error {
            PutError::TooLarge { .. } | PutError::Unfinished | PutError::Full(_) => {
                Self::resource_exhausted(error.to_string())
            }
            PutError::Disk(source) => {
                tracing::error!(error = %source, "cannot write to the store");
                Self::unavailable(format!("cannot write to the store: {source}"))
            }
        }
    }
}

impl From<ReadError> for Status {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged => Self::data_loss(error.to_string()),
            ReadError::Disk(source) => {
                tracing::error!(error = %source, "cannot read from the store");
                Self::unavailable(format!("cannot read from the store: {source}"))
            }
        }
    }
}
