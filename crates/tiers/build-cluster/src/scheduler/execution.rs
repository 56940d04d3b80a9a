//! The services that clients call: Execution and Operations.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use prost::Message as _;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use super::board::{OperationId, Platform, Stage, Submission};
use super::operation_name::{Asked, OperationName};
use super::shared_board::{Answer, Payload, STOPS, SharedBoard, Watched, response};
use crate::digest::{Digest, Function};
use crate::listen::Access;
use crate::remote::{Remote, RemoteError};
use crate::status;
use crate::time_of_day;
use crate::wire::longrunning as lro;
use crate::wire::re::execution_server::Execution;
use crate::wire::{protobuf, re};

/// The header with the client's `RequestMetadata`.
const METADATA: &str = "build.bazel.remote.execution.v2.requestmetadata-bin";
/// Actions of which it is remembered whether they may be cached.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();
/// Operations on one page of the list.
const PAGE: usize = 1000;
/// Largest actions and commands.
const MESSAGE_BYTES: u64 = crate::remote::SMALL_BYTES;

#[derive(Debug, Clone)]
pub struct ActionLimits {
    /// For actions that state no time limit.
    pub default_time: Duration,
    /// The longest time limit that an action may state.
    pub longest_time: Duration,
    /// How long fetching inputs and uploading outputs may take beside it.
    pub transfer_time: Duration,
    /// Properties that do not decide where an action runs.
    pub ignored_properties: Vec<String>,
}

/// The services. Clones share their state.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) shared_board: Arc<SharedBoard>,
    pub(super) remote: Remote,
    limits: Arc<ActionLimits>,
    /// Whether the action may be cached, by digest.
    cacheable: Arc<Mutex<LruCache<Digest, bool>>>,
}

/// An action that was asked for and its command, as the client stored them.
struct Stored {
    action: re::Action,
    action_bytes: Vec<u8>,
    command: re::Command,
    command_bytes: Vec<u8>,
}

/// An action, and blobs that came with it.
struct Found {
    action: re::Action,
    bytes: Vec<u8>,
    blobs: HashMap<Digest, Vec<u8>>,
}

/// What the cache has of an action that was asked for.
enum Known {
    /// A result that may be used.
    Result(Box<re::ActionResult>),
    /// None; and the action, if that came with the answer.
    Action(Option<Box<Found>>),
}

/// What an action is called in a refusal.
const ACTION: &str = "action";

/// Whether there is anything to read of a message; one that no answer holds is refused.
fn in_one_piece(digest: Digest, what: &str) -> Result<bool, Status> {
    if digest.size > MESSAGE_BYTES {
        let words = format!("the {what} is longer than {MESSAGE_BYTES} bytes");
        return Err(Status::invalid_argument(words));
    }
    Ok(!digest.is_empty())
}

fn malformed(what: &str) -> Status {
    Status::invalid_argument(format!("the {what} is malformed"))
}

impl Service {
    pub(super) fn new(
        shared_board: Arc<SharedBoard>,
        remote: Remote,
        limits: ActionLimits,
    ) -> Self {
        let cacheable = Arc::new(Mutex::new(LruCache::new(REMEMBERED)));
        Self { shared_board, remote, limits: Arc::new(limits), cacheable }
    }

    /// The result in the cache, if it may be used, or the action: failed actions and those that must not be cached
    /// are not answered from there, whichever client put them there.
    async fn known(&self, instance: &str, digest: Digest) -> Result<Known, Status> {
        let cacheable = {
            let mut cacheable = self.cacheable.lock();
            cacheable.get(&digest).copied()
        };
        if cacheable.is_none() && in_one_piece(digest, ACTION)? {
            let known = self.remote.look_up(instance, digest).await.map_err(refused)?;
            if let Some(known) = known {
                let found = self.found(digest, known.blobs)?;
                let usable = !found.action.do_not_cache;
                return Ok(match known.result.filter(|result| usable && result.exit_code == 0) {
                    Some(result) => Known::Result(Box::new(result)),
                    None => Known::Action(Some(Box::new(found))),
                });
            }
        }
        let result = self.remote.result(instance, digest, true).await.map_err(refused)?;
        let Some(result) = result.filter(|result| result.exit_code == 0) else {
            return Ok(Known::Action(None));
        };
        if let Some(cacheable) = cacheable {
            return Ok(match cacheable {
                true => Known::Result(Box::new(result)),
                false => Known::Action(None),
            });
        }
        let found = self.action(instance, digest).await?;
        Ok(match found.action.do_not_cache {
            false => Known::Result(Box::new(result)),
            true => Known::Action(Some(Box::new(found))),
        })
    }

    /// An action with its blob, and its command where the cache sent that too.
    async fn action(&self, instance: &str, digest: Digest) -> Result<Found, Status> {
        let blobs = if in_one_piece(digest, ACTION)? {
            self.remote.read_action(instance, digest).await.map_err(refused)?
        } else {
            HashMap::new()
        };
        self.found(digest, blobs)
    }

    /// An action that came with others.
    fn found(&self, digest: Digest, mut blobs: HashMap<Digest, Vec<u8>>) -> Result<Found, Status> {
        let bytes = blobs.remove(&digest).unwrap_or_default();
        let action = re::Action::decode(bytes.as_slice()).map_err(|_| malformed(ACTION))?;
        let mut cacheable = self.cacheable.lock();
        cacheable.put(digest, !action.do_not_cache);
        Ok(Found { action, bytes, blobs })
    }

    async fn command(
        &self,
        instance: &str,
        digest: Digest,
        mut blobs: HashMap<Digest, Vec<u8>>,
    ) -> Result<(re::Command, Vec<u8>), Status> {
        const WHAT: &str = "command";
        let bytes = if !in_one_piece(digest, WHAT)? {
            Vec::new()
        } else if let Some(bytes) = blobs.remove(&digest) {
            bytes
        } else {
            let mut read = self.remote.read(instance, &[digest]).await.map_err(refused)?;
            read.remove(&digest).ok_or_else(|| status::missing(&[digest]))?
        };
        let command = re::Command::decode(bytes.as_slice()).map_err(|_| malformed(WHAT))?;
        Ok((command, bytes))
    }

    /// What is needed to run an action; `found` is the action, if it came already.
    async fn read(&self, asked: &Asked, found: Option<Box<Found>>) -> Result<Stored, Status> {
        let (instance, digest) = (&asked.instance, asked.action);
        let found = match found {
            Some(found) => *found,
            None => self.action(instance, digest).await?,
        };
        let Found { action, bytes: action_bytes, blobs } = found;
        let command = Digest::required(digest.function, action.command_digest.as_ref())?;
        // Named here, where the client waits for the answer; its content is the worker's matter.
        Digest::required(digest.function, action.input_root_digest.as_ref())?;
        let (command, command_bytes) = self.command(instance, command, blobs).await?;
        Ok(Stored { action, action_bytes, command, command_bytes })
    }

    /// Answers from the cache, or has the action executed.
    async fn begin(
        &self,
        asked: Asked,
        metadata: &[u8],
        peer: &str,
    ) -> Result<Response<Operations>, Status> {
        let mut found = None;
        if !asked.skip_cache_lookup {
            match self.known(&asked.instance, asked.action).await? {
                Known::Result(result) => {
                    return Ok(self.answered(&asked.instance, asked.action, *result));
                }
                Known::Action(action) => found = action,
            }
        }
        let stored = self.read(&asked, found).await?;
        let submission = self.submission(&asked, stored, metadata, peer)?;
        Ok(Response::new(Box::pin(self.watching(self.shared_board.submit(submission, asked)?))))
    }

    /// The answer for an action whose result is in the cache.
    fn answered(
        &self,
        instance: &str,
        digest: Digest,
        result: re::ActionResult,
    ) -> Response<Operations> {
        self.shared_board.cached();
        let slash = if instance.is_empty() { "" } else { "/" };
        let name = format!("{instance}{slash}operations/cached");
        let key = format!("|{}|{digest}", digest.function.name());
        let response = re::ExecuteResponse {
            result: Some(result),
            cached_result: true,
            ..re::ExecuteResponse::default()
        };
        let result = lro::operation::Result::Response(protobuf::Any {
            type_url: "type.googleapis.com/build.bazel.remote.execution.v2.ExecuteResponse"
                .to_owned(),
            value: response.encode_to_vec(),
        });
        let stage = re::execution_stage::Value::Completed;
        let done = operation(name, stage, &key, Some(result));
        Response::new(Box::pin(tokio_stream::once(Ok(done))))
    }

    fn time_limit(&self, action: &re::Action) -> Result<Duration, Status> {
        let Some(timeout) = &action.timeout else { return Ok(self.limits.default_time) };
        let wrong = || Status::invalid_argument("the action's time limit is negative");
        let seconds = u64::try_from(timeout.seconds).map_err(|_| wrong())?;
        let nanos = u32::try_from(timeout.nanos).map_err(|_| wrong())?;
        let time = Duration::new(seconds, nanos.min(999_999_999));
        let longest = self.limits.longest_time;
        if time > longest {
            let words = format!("the action's time limit of {time:?} is beyond {longest:?}");
            return Err(Status::invalid_argument(words));
        }
        // A limit of zero is none: proto3 clients that set the field without a value mean that.
        Ok(if time.is_zero() { self.limits.default_time } else { time })
    }

    fn submission(
        &self,
        asked: &Asked,
        stored: Stored,
        metadata: &[u8],
        peer: &str,
    ) -> Result<Submission<Payload>, Status> {
        let time_limit = self.time_limit(&stored.action)?;
        let known = re::RequestMetadata::decode(metadata).unwrap_or_default();
        // A client that does not say which build it is at is one by itself.
        let invocation = if known.tool_invocation_id.is_empty() {
            peer
        } else {
            known.tool_invocation_id.as_str()
        };
        #[expect(deprecated, reason = "clients before version 2.2 put the platform there")]
        let platform = stored.action.platform.as_ref().or(stored.command.platform.as_ref());
        let ignored = &self.limits.ignored_properties;
        let properties = platform.into_iter().flat_map(|platform| &platform.properties);
        let properties = properties
            .filter(|property| !ignored.contains(&property.name))
            .map(|property| (property.name.clone(), property.value.clone()));
        let function = asked.action.function;
        let key = format!("{}|{}|{}", asked.instance, function.name(), asked.action);
        let merge = !stored.action.do_not_cache;
        let time_limit_ms = u64::try_from(time_limit.as_millis()).unwrap_or(u64::MAX);
        let whole = time_limit.saturating_add(self.limits.transfer_time).as_nanos();
        let wire = asked.action.to_wire();
        Ok(Submission {
            key: key.as_str().into(),
            merge,
            priority: asked.priority,
            invocation: invocation.into(),
            platform: Platform::new(properties),
            time_limit_ns: u64::try_from(whole).unwrap_or(u64::MAX),
            payload: Arc::new(Payload {
                lease: 0,
                key,
                merge,
                instance: asked.instance.clone(),
                digest_function: function.to_wire(),
                action_hash: wire.hash,
                action_bytes: wire.size_bytes,
                action: stored.action_bytes,
                command: stored.command_bytes,
                time_limit_ms,
                queued_unix_ns: time_of_day::unix_ns(),
                metadata: metadata.to_vec(),
            }),
        })
    }

    /// The operation of that name, if this scheduler gave it.
    fn own(&self, name: &str) -> Result<OperationId, Status> {
        let known = OperationName::parse(name).filter(|name| self.shared_board.gave(name));
        known.map(|name| name.id).ok_or_else(|| unknown(name))
    }

    /// What clients see of an operation.
    fn message_of(&self, name: &str, stage: &Stage<Answer>, key: &str) -> lro::Operation {
        let (number, ended) = match stage {
            Stage::Queued => (re::execution_stage::Value::Queued, None),
            Stage::Executing => (re::execution_stage::Value::Executing, None),
            Stage::Completed(ending) => (re::execution_stage::Value::Completed, Some(ending)),
        };
        let result = ended.map(|ending| {
            lro::operation::Result::Response(protobuf::Any {
                type_url: "type.googleapis.com/build.bazel.remote.execution.v2.ExecuteResponse"
                    .to_owned(),
                value: response(ending),
            })
        });
        operation(name.to_owned(), number, key, result)
    }

    fn watching(&self, watched: Watched) -> Watching {
        let Watched { id, name, changes } = watched;
        let key = self.shared_board.look(|board, _| board.action(id)).unwrap_or_default();
        let changes = WatchStream::new(changes);
        Watching { service: self.clone(), name, id, key, changes, ended: false, shown: None }
    }
}

fn unknown(name: &str) -> Status {
    Status::not_found(format!("no operation is named {name:?}, or no longer: ask again"))
}

/// Who asks, and for which build: the client's `RequestMetadata`, and its address.
fn metadata_of<T>(request: &Request<T>) -> (Vec<u8>, String) {
    let metadata = request.metadata().get_bin(METADATA);
    let metadata = metadata.and_then(|value| value.to_bytes().ok()).unwrap_or_default();
    let peer = request.extensions().get::<std::net::SocketAddr>();
    (metadata.to_vec(), peer.map(ToString::to_string).unwrap_or_default())
}

fn operation(
    name: String,
    stage: re::execution_stage::Value,
    key: &str,
    result: Option<lro::operation::Result>,
) -> lro::Operation {
    // A key is `instance|function|hash/size`; an instance may have anything in it.
    let mut parts = key.rsplitn(3, '|');
    let digest = parts.next().and_then(|digest| digest.split_once('/'));
    let function = parts.next().and_then(Function::named).unwrap_or_default();
    let metadata = re::ExecuteOperationMetadata {
        stage: stage as i32,
        action_digest: digest.map(|(hash, size)| re::Digest {
            hash: hash.to_owned(),
            size_bytes: size.parse().unwrap_or(0),
        }),
        digest_function: function.to_wire(),
        ..re::ExecuteOperationMetadata::default()
    };
    lro::Operation {
        name,
        metadata: Some(protobuf::Any {
            type_url:
                "type.googleapis.com/build.bazel.remote.execution.v2.ExecuteOperationMetadata"
                    .to_owned(),
            value: metadata.encode_to_vec(),
        }),
        done: result.is_some(),
        result,
    }
}

/// What the cache did wrong, as the client is to hear it.
fn refused(error: RemoteError) -> Status {
    match error {
        RemoteError::Missing(digests) => status::missing(&digests),
        RemoteError::Refused(status) => {
            Status::new(status.code(), format!("the cache: {}", status.message()))
        }
        error => Status::unavailable(error.to_string()),
    }
}

/// The stream of an operation's states. As long as it is there, its client watches.
#[derive(Debug)]
pub(super) struct Watching {
    service: Service,
    name: Arc<str>,
    id: OperationId,
    key: Arc<str>,
    changes: WatchStream<()>,
    ended: bool,
    /// The stage that was sent last: it is not sent twice.
    shown: Option<bool>,
}

impl Stream for Watching {
    type Item = Result<lro::Operation, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while !self.ended {
            match Pin::new(&mut self.changes).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) => self.ended = true,
            }
            let stopped = self.ended;
            let Some(stage) = self.service.shared_board.stage(self.id) else {
                self.ended = true;
                let words = format!("the operation {:?} was forgotten", self.name);
                return Poll::Ready(Some(Err(Status::not_found(words))));
            };
            let executing = matches!(stage, Stage::Executing);
            if matches!(stage, Stage::Completed(_)) {
                self.ended = true;
            } else if stopped {
                return Poll::Ready(Some(Err(Status::unavailable(STOPS))));
            } else if self.shown == Some(executing) {
                continue;
            }
            self.shown = Some(executing);
            return Poll::Ready(Some(Ok(self.service.message_of(&self.name, &stage, &self.key))));
        }
        Poll::Ready(None)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.service.shared_board.unwatch(self.id);
    }
}

type Operations = Pin<Box<dyn Stream<Item = Result<lro::Operation, Status>> + Send>>;

#[tonic::async_trait]
impl Execution for Service {
    type ExecuteStream = Operations;
    type WaitExecutionStream = Operations;

    async fn execute(
        &self,
        request: Request<re::ExecuteRequest>,
    ) -> Result<Response<Operations>, Status> {
        Access::of(request.extensions()).may_write().map_err(|status| *status)?;
        let (metadata, peer) = metadata_of(&request);
        let request = request.into_inner();
        let function = Function::from_wire(request.digest_function)?;
        let asked = Asked {
            action: Digest::required(function, request.action_digest.as_ref())?,
            instance: request.instance_name,
            priority: request.execution_policy.map_or(0, |policy| policy.priority),
            skip_cache_lookup: request.skip_cache_lookup,
        };
        self.begin(asked, &metadata, &peer).await
    }

    /// An operation of a scheduler before this one is asked for again here, by what its name says. NOT_FOUND
    /// would have the client do the same, but costs it one of its few retries, of which it spent most while
    /// there was no scheduler.
    async fn wait_execution(
        &self,
        request: Request<re::WaitExecutionRequest>,
    ) -> Result<Response<Operations>, Status> {
        let may_write = Access::of(request.extensions()).may_write().is_ok();
        let (metadata, peer) = metadata_of(&request);
        let text = request.into_inner().name;
        let name = OperationName::parse(&text).ok_or_else(|| unknown(&text))?;
        if self.shared_board.gave(&name) {
            let watched = self.shared_board.watch(name.id).ok_or_else(|| unknown(&text))?;
            return Ok(Response::new(Box::pin(self.watching(watched))));
        }
        if !may_write {
            return Err(unknown(&text));
        }
        tracing::debug!(
            operation = text,
            "an operation of an earlier scheduler is asked for again"
        );
        self.begin(name.asked, &metadata, &peer).await
    }
}

#[tonic::async_trait]
impl lro::operations_server::Operations for Service {
    async fn list_operations(
        &self,
        request: Request<lro::ListOperationsRequest>,
    ) -> Result<Response<lro::ListOperationsResponse>, Status> {
        let request = request.into_inner();
        if !request.filter.is_empty() {
            return Err(Status::invalid_argument("operations cannot be filtered"));
        }
        let page = usize::try_from(request.page_size).unwrap_or(0);
        let page = if page == 0 { PAGE } else { page.min(PAGE) };
        let after = if request.page_token.is_empty() {
            OperationId(0)
        } else {
            self.own(&request.page_token)?
        };
        let lines = self.shared_board.look(|board, _| board.operations(after, page));
        let full = lines.len() == page;
        let mut next_page_token = String::new();
        let mut operations = Vec::with_capacity(lines.len());
        for line in lines {
            let Some(name) = self.shared_board.name(line.id) else { continue };
            if full {
                next_page_token = name.to_string();
            }
            if !request.name.is_empty() && !name.starts_with(request.name.as_str()) {
                continue;
            }
            if let Some(stage) = self.shared_board.stage(line.id) {
                operations.push(self.message_of(&name, &stage, &line.key));
            }
        }
        Ok(Response::new(lro::ListOperationsResponse {
            operations,
            next_page_token,
            ..lro::ListOperationsResponse::default()
        }))
    }

    async fn get_operation(
        &self,
        request: Request<lro::GetOperationRequest>,
    ) -> Result<Response<lro::Operation>, Status> {
        let name = request.into_inner().name;
        let id = self.own(&name)?;
        let stage = self.shared_board.stage(id).ok_or_else(|| unknown(&name))?;
        let key = self.shared_board.look(|board, _| board.action(id)).unwrap_or_default();
        Ok(Response::new(self.message_of(&name, &stage, &key)))
    }

    async fn delete_operation(
        &self,
        request: Request<lro::DeleteOperationRequest>,
    ) -> Result<Response<protobuf::Empty>, Status> {
        Access::of(request.extensions()).may_write().map_err(|status| *status)?;
        let name = request.into_inner().name;
        let deleted = self.shared_board.delete(self.own(&name)?);
        deleted.then(|| Response::new(protobuf::Empty {})).ok_or_else(|| unknown(&name))
    }

    async fn cancel_operation(
        &self,
        request: Request<lro::CancelOperationRequest>,
    ) -> Result<Response<protobuf::Empty>, Status> {
        Access::of(request.extensions()).may_write().map_err(|status| *status)?;
        let name = request.into_inner().name;
        let cancelled = self.shared_board.cancel(self.own(&name)?);
        cancelled.then(|| Response::new(protobuf::Empty {})).ok_or_else(|| unknown(&name))
    }

    async fn wait_operation(
        &self,
        request: Request<lro::WaitOperationRequest>,
    ) -> Result<Response<lro::Operation>, Status> {
        let request = request.into_inner();
        let id = self.own(&request.name)?;
        let watched = self.shared_board.watch(id).ok_or_else(|| unknown(&request.name))?;
        let mut watching = self.watching(watched);
        let longest = request.timeout.and_then(|timeout| u64::try_from(timeout.seconds).ok());
        let longest = Duration::from_secs(longest.unwrap_or(60).min(3600));
        let mut last = None;
        let waiting = async {
            while let Some(state) = watching.next().await {
                last = Some(state);
            }
        };
        // Late, the last state that was seen is the answer.
        tokio::time::timeout(longest, waiting).await.unwrap_or_default();
        let state = last.ok_or_else(|| Status::internal("the operation has no state"))?;
        Ok(Response::new(state?))
    }
}
