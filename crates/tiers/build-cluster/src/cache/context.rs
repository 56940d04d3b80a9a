//! What every method of the cache works with: what they share, and the request that is answered.

use std::sync::Arc;

use hyper::Response;
use hyper::http::Extensions;
use kendall_tier::{Clock, Moments, Recorder, RequestType};
use parking_lot::Mutex;
use tonic::{Code, Status};

use super::grpc::{self, Answer, Budget};
use super::instances::{Instances, Partition};
use super::metrics::{Metrics, Operation};
use super::store::{Kind, PutError, ReadError};
use super::uploads::Uploads;
use crate::digest::Digest;
use crate::listen::{Access, Client};

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
    pub(crate) any_results: bool,
    pub(crate) behind_front: bool,
}

/// What the answers on one network thread need.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    /// Where this thread writes.
    lane: usize,
    recorder: Arc<Mutex<Recorder>>,
}

/// One request, whose end is recorded.
#[derive(Debug)]
pub(crate) struct Call {
    context: Context,
    operation: Operation,
    access: Access,
    pub(crate) client: Client,
    arrived_ns: u64,
    told: bool,
}

pub(crate) type Answered = Result<Response<Answer>, Status>;

impl Context {
    pub(crate) fn new(shared: &Arc<Shared>, lane: usize, recorder: Recorder) -> Self {
        Self { shared: Arc::clone(shared), lane, recorder: Arc::new(Mutex::new(recorder)) }
    }

    /// A request that has come.
    pub(crate) fn begin(&self, operation: Operation, extensions: &Extensions) -> Call {
        let arrived_ns = self.shared.clock.now_ns();
        let mut recorder = self.recorder.lock();
        recorder.arrived(RequestType(operation as usize));
        recorder.workers_busy.add(arrived_ns, 1);
        drop(recorder);
        let (access, client) = (Access::of(extensions), Client::of(extensions));
        Call { context: self.clone(), operation, access, client, arrived_ns, told: false }
    }
}

impl Call {
    pub(crate) fn shared(&self) -> &Shared {
        &self.context.shared
    }

    pub(crate) fn lane(&self) -> usize {
        self.context.lane
    }

    /// Refuses a change by those who may only read.
    pub(crate) fn may_write(&self) -> Result<(), Status> {
        self.access.may_write().map_err(|status| *status)
    }

    pub(crate) fn partition(&self, instance: &str) -> Result<Partition<'_>, Status> {
        self.shared().instances.partition(instance)
    }

    /// Counts lookups that hit, and those that missed.
    pub(crate) fn found(&self, kind: Kind, hits: u64, misses: u64) {
        self.shared().metrics.looked_up(kind, hits, misses);
    }

    /// Counts bytes that came and went.
    pub(crate) fn bytes(&self, read: u64, written: u64) {
        let mut recorder = self.context.recorder.lock();
        recorder.bytes_in(read);
        recorder.bytes_out(written);
    }

    /// Called once, with the outcome.
    pub(crate) fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let replied_ns = self.shared().clock.now_ns();
        let arrived_ns = self.arrived_ns;
        let metrics = &self.context.shared.metrics;
        metrics.ended(self.operation, code, replied_ns.saturating_sub(arrived_ns));
        let mut recorder = self.context.recorder.lock();
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
