//! A client of the cache, for the scheduler and the workers: whole blobs and files by digest, every
//! content checked against its name, small ones in batches.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::http::uri::PathAndQuery;
use kendall_tier::Clock;
use kendall_tier::serve::pause;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use crate::digest::{Digest, Function};
use crate::peer::{Calls, Peer, Reach};
use crate::wire::bytestream::byte_stream_client::ByteStreamClient;
use crate::wire::re::action_cache_client::ActionCacheClient;
use crate::wire::re::content_addressable_storage_client::ContentAddressableStorageClient;
use crate::wire::{bytestream, re};

/// Largest blob that travels in a batch, and largest batch: every server takes 4 MiB a message.
pub const SMALL_BYTES: u64 = 1 << 20;
const BATCH_BYTES: u64 = 3 << 20;
/// Blobs of one batch, and digests of one question.
const BATCH_BLOBS: usize = 4096;
const ASKED: usize = 10_000;
/// Largest message that is taken from the cache.
const MESSAGE_BYTES: usize = 64 << 20;
/// Bytes of a piece of a stream.
const PIECE_BYTES: usize = 256 << 10;
/// First and longest wait before a call is made again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for the answer to whether it serves.
const ANSWER: Duration = Duration::from_secs(5);

/// A method of Kendall's caches: `BatchReadBlobs` of actions, which are answered with their commands.
pub(crate) const ACTIONS: &str = "/kendall.cache.v1.Actions/BatchRead";

/// Another: `BatchReadBlobs` of one action, which is answered with its result in a field of its own, or else with
/// its command.
pub(crate) const LOOK_UP: &str = "/kendall.cache.v1.Actions/LookUp";
/// That field, far from those of `BatchReadBlobsResponse`.
pub(crate) const RESULT_FIELD: u32 = 100;

/// The answer to [`LOOK_UP`].
#[derive(Clone, PartialEq, prost::Message)]
struct LookedUp {
    #[prost(message, repeated, tag = "1")]
    responses: Vec<re::batch_read_blobs_response::Response>,
    #[prost(message, optional, tag = "100")]
    result: Option<re::ActionResult>,
}

/// What a cache has of an action.
#[derive(Debug)]
pub struct Known {
    pub result: Option<re::ActionResult>,
    /// The action, and without a result its command, if that is there.
    pub blobs: HashMap<Digest, Vec<u8>>,
}

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("{} blobs are missing from the cache", .0.len())]
    Missing(Vec<Digest>),
    #[error("the cache sent something else for {0}")]
    Wrong(Digest),
    /// The cache refused or could not be reached, after trying again.
    #[error("the cache answered {}: {}", .0.code(), .0.message())]
    Refused(#[source] Box<Status>),
    #[error("cannot keep or read a local file")]
    File(#[from] io::Error),
}

impl From<Status> for RemoteError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// A cache at an address. Clones share its connection.
#[derive(Debug, Clone)]
pub struct Remote {
    storage: ContentAddressableStorageClient<Calls>,
    results: ActionCacheClient<Calls>,
    streams: ByteStreamClient<Calls>,
    actions: tonic::client::Grpc<Calls>,
    /// Methods of Kendall's that the cache does not know.
    no_actions: Arc<AtomicBool>,
    no_look_up: Arc<AtomicBool>,
    clock: Clock,
    patience: Duration,
}

/// Blobs that a cache answered for, and those that it does not have.
#[derive(Debug, Default)]
struct Read {
    found: HashMap<Digest, Vec<u8>>,
    missing: Vec<Digest>,
}

impl Read {
    fn add(
        &mut self,
        function: Function,
        responses: Vec<re::batch_read_blobs_response::Response>,
    ) -> Result<(), RemoteError> {
        for one in responses {
            let digest = Digest::required(function, one.digest.as_ref());
            let digest = digest.map_err(Status::from)?;
            let code = one.status.as_ref().map_or(0, |status| status.code);
            match Code::from_i32(code) {
                Code::Ok if digest.names(&one.data) => {
                    self.found.insert(digest, one.data);
                }
                Code::Ok => return Err(RemoteError::Wrong(digest)),
                Code::NotFound => self.missing.push(digest),
                code => {
                    let words = one.status.map(|status| status.message).unwrap_or_default();
                    return Err(Status::new(code, words).into());
                }
            }
        }
        Ok(())
    }

    /// All that was asked for, and what came with it.
    fn whole(mut self, asked: &[Digest]) -> Result<HashMap<Digest, Vec<u8>>, RemoteError> {
        // What was neither sent nor refused is missing too.
        self.missing.extend(asked.iter().filter(|digest| !self.found.contains_key(digest)));
        self.missing.sort_unstable();
        self.missing.dedup();
        if self.missing.is_empty() {
            Ok(self.found)
        } else {
            Err(RemoteError::Missing(self.missing))
        }
    }
}

impl Remote {
    /// The cache of `peer`, with the longest time for which a call is made again. To be called on
    /// a runtime.
    pub fn new(peer: impl Into<Peer>, patience: Duration, clock: Clock) -> Self {
        let peer: Peer = peer.into();
        Self::over(peer.calls().logged(&Reach::of(peer.address)), patience, clock)
    }

    pub(crate) fn over(channel: Calls, patience: Duration, clock: Clock) -> Self {
        Self {
            storage: ContentAddressableStorageClient::new(channel.clone())
                .max_decoding_message_size(MESSAGE_BYTES)
                .max_encoding_message_size(MESSAGE_BYTES),
            results: ActionCacheClient::new(channel.clone())
                .max_decoding_message_size(MESSAGE_BYTES),
            streams: ByteStreamClient::new(channel.clone())
                .max_decoding_message_size(MESSAGE_BYTES),
            actions: tonic::client::Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES),
            no_actions: Arc::default(),
            no_look_up: Arc::default(),
            clock,
            patience,
        }
    }

    /// Makes a call, again when the cache could not be reached.
    async fn call<T, F: Future<Output = Result<T, Status>>>(
        &self,
        mut make: impl FnMut() -> F,
    ) -> Result<T, Status> {
        let patience = u64::try_from(self.patience.as_nanos()).unwrap_or(u64::MAX);
        let end = self.clock.now_ns().saturating_add(patience);
        let mut wait = FIRST_PAUSE;
        loop {
            match make().await {
                Err(status) if passing(status.code()) && self.clock.now_ns() < end => {
                    tracing::debug!(%status, "the cache did not answer; trying again");
                    pause(wait).await;
                    wait = (wait * 2).min(LONGEST_PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Whether it serves this tier, which may change it: asked once, by storing nothing.
    pub(crate) async fn serves(&self) -> Result<(), RemoteError> {
        let mut storage = self.storage.clone();
        let asked = storage.batch_update_blobs(re::BatchUpdateBlobsRequest::default());
        let late = |_| Err(Status::deadline_exceeded(format!("no answer within {ANSWER:?}")));
        match tokio::time::timeout(ANSWER, asked).await.unwrap_or_else(late) {
            Err(status) if passing(status.code()) || is_unserved(status.code()) => {
                Err(status.into())
            }
            // Another refusal is of this request, which names no instance.
            _ => Ok(()),
        }
    }

    pub async fn missing(
        &self,
        instance: &str,
        digests: &[Digest],
    ) -> Result<Vec<Digest>, RemoteError> {
        let mut missing = Vec::new();
        for some in digests.chunks(ASKED) {
            let function = function_of(some);
            let request = re::FindMissingBlobsRequest {
                instance_name: instance.to_owned(),
                blob_digests: some.iter().map(Digest::to_wire).collect(),
                digest_function: function.to_wire(),
            };
            let answer = self
                .call(|| {
                    let (mut storage, request) = (self.storage.clone(), request.clone());
                    async move { storage.find_missing_blobs(request).await }
                })
                .await?;
            for wire in answer.into_inner().missing_blob_digests {
                missing.push(Digest::from_wire(function, &wire).map_err(Status::from)?);
            }
        }
        Ok(missing)
    }

    /// Whole small blobs, by digest.
    pub async fn read(
        &self,
        instance: &str,
        digests: &[Digest],
    ) -> Result<HashMap<Digest, Vec<u8>>, RemoteError> {
        let mut read = Read::default();
        for some in batches(digests, |digest| digest.size) {
            let request = batch(instance, some);
            let answer = self
                .call(|| {
                    let (mut storage, request) = (self.storage.clone(), request.clone());
                    async move {
                        let responses =
                            storage.batch_read_blobs(request).await?.into_inner().responses;
                        // A front has a part from each of its caches.
                        let said = responses.iter().filter_map(|one| one.status.as_ref());
                        let mut codes = said.map(|status| (Code::from_i32(status.code), status));
                        match codes.find(|(code, _)| passing(*code)) {
                            Some((code, status)) => Err(Status::new(code, &status.message)),
                            None => Ok(responses),
                        }
                    }
                })
                .await?;
            read.add(function_of(some), answer)?;
        }
        read.whole(digests)
    }

    /// An action, and its command if the cache has it and sends both at once.
    pub async fn read_action(
        &self,
        instance: &str,
        action: Digest,
    ) -> Result<HashMap<Digest, Vec<u8>>, RemoteError> {
        let asked = [action];
        let answer: Option<re::BatchReadBlobsResponse> =
            self.own_method(&self.no_actions, ACTIONS, batch(instance, &asked)).await?;
        let Some(answer) = answer else { return self.read(instance, &asked).await };
        with_command(action, answer.responses)
    }

    /// All that the cache has of an action, its result with the small logs in it; `None` when the cache cannot be asked
    /// for all at once.
    pub async fn look_up(
        &self,
        instance: &str,
        action: Digest,
    ) -> Result<Option<Known>, RemoteError> {
        let answer: Option<LookedUp> =
            self.own_method(&self.no_look_up, LOOK_UP, batch(instance, &[action])).await?;
        let Some(answer) = answer else { return Ok(None) };
        let blobs = with_command(action, answer.responses)?;
        Ok(Some(Known { result: answer.result, blobs }))
    }

    /// Calls a method that only Kendall's caches have; `None` when this one has it not, which is remembered.
    async fn own_method<M: prost::Message + Default + Clone + 'static>(
        &self,
        unknown: &AtomicBool,
        path: &'static str,
        request: re::BatchReadBlobsRequest,
    ) -> Result<Option<M>, RemoteError> {
        if unknown.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let answer: Result<tonic::Response<M>, Status> = self
            .call(|| {
                let (mut actions, request) = (self.actions.clone(), request.clone());
                async move {
                    let ready = actions.ready().await;
                    ready.map_err(|error| Status::unavailable(error.to_string()))?;
                    let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::default());
                    actions.unary(tonic::Request::new(request), path, codec).await
                }
            })
            .await;
        match answer {
            Err(status) if status.code() == Code::Unimplemented => {
                unknown.store(true, Ordering::Relaxed);
                Ok(None)
            }
            answer => Ok(Some(answer?.into_inner())),
        }
    }

    /// A blob into a new file.
    ///
    /// # Errors
    /// [`RemoteError`]; the file is not to be used then.
    pub async fn read_file(
        &self,
        instance: &str,
        digest: Digest,
        path: &Path,
    ) -> Result<(), RemoteError> {
        let read = self.call(|| async move {
            match self.stream_file(instance, digest, path).await {
                Ok(()) => Ok(Ok(())),
                Err(RemoteError::Refused(status)) => Err(*status),
                Err(other) => Ok(Err(other)),
            }
        });
        match read.await {
            Ok(read) => read,
            Err(status) if status.code() == Code::NotFound => {
                Err(RemoteError::Missing(vec![digest]))
            }
            Err(status) => Err(status.into()),
        }
    }

    async fn stream_file(
        &self,
        instance: &str,
        digest: Digest,
        path: &Path,
    ) -> Result<(), RemoteError> {
        let request = bytestream::ReadRequest {
            resource_name: prefixed(instance, &digest.resource()),
            read_offset: 0,
            read_limit: 0,
        };
        let mut pieces = self.streams.clone().read(request).await?.into_inner();
        let mut file = File::create(path)?;
        let (mut hasher, mut size) = (digest.function.hasher(), 0);
        while let Some(piece) = pieces.next().await {
            let data = piece?.data;
            size += data.len() as u64;
            if size > digest.size {
                return Err(RemoteError::Wrong(digest));
            }
            hasher.update(&data);
            file.write_all(&data)?;
        }
        if size == digest.size && hasher.finish() == digest.hash {
            Ok(())
        } else {
            Err(RemoteError::Wrong(digest))
        }
    }

    /// Stores small blobs.
    pub async fn write(
        &self,
        instance: &str,
        blobs: &[(Digest, Vec<u8>)],
    ) -> Result<(), RemoteError> {
        for some in batches(blobs, |blob| blob.0.size) {
            let function = some.first().map_or(Function::Sha256, |blob| blob.0.function);
            let one =
                |(digest, data): &(Digest, Vec<u8>)| re::batch_update_blobs_request::Request {
                    digest: Some(digest.to_wire()),
                    data: data.clone(),
                    compressor: 0,
                };
            let request = re::BatchUpdateBlobsRequest {
                instance_name: instance.to_owned(),
                requests: some.iter().map(one).collect(),
                digest_function: function.to_wire(),
            };
            self.call(|| {
                let (mut storage, request) = (self.storage.clone(), request.clone());
                async move {
                    let answer = storage.batch_update_blobs(request).await?.into_inner();
                    let wrong = answer.responses.into_iter().filter_map(|one| one.status);
                    match wrong.into_iter().find(|status| status.code != 0) {
                        Some(status) => {
                            Err(Status::new(Code::from_i32(status.code), status.message))
                        }
                        None => Ok(()),
                    }
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Stores a file. It must not change meanwhile.
    pub async fn write_file(
        &self,
        instance: &str,
        digest: Digest,
        file: &File,
        upload: &str,
    ) -> Result<(), RemoteError> {
        let name = prefixed(instance, &format!("uploads/{upload}/{}", digest.resource()));
        self.call(|| {
            let (mut streams, name) = (self.streams.clone(), name.clone());
            async move {
                let failed = |error: io::Error| Status::internal(error.to_string());
                let pieces = Pieces::new(file.try_clone().map_err(failed)?, digest.size, name);
                let answer = streams.write(tokio_stream::iter(pieces)).await?.into_inner();
                if u64::try_from(answer.committed_size).is_ok_and(|size| size == digest.size) {
                    Ok(())
                } else {
                    Err(Status::data_loss("the cache took another number of bytes"))
                }
            }
        })
        .await?;
        Ok(())
    }

    /// The result of an action, if it is known.
    pub async fn result(
        &self,
        instance: &str,
        action: Digest,
        inline: bool,
    ) -> Result<Option<re::ActionResult>, RemoteError> {
        let request = re::GetActionResultRequest {
            instance_name: instance.to_owned(),
            action_digest: Some(action.to_wire()),
            inline_stdout: inline,
            inline_stderr: inline,
            inline_output_files: Vec::new(),
            digest_function: action.function.to_wire(),
        };
        let answer = self
            .call(|| {
                let (mut results, request) = (self.results.clone(), request.clone());
                async move { results.get_action_result(request).await }
            })
            .await;
        match answer {
            Ok(answer) => Ok(Some(answer.into_inner())),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    pub async fn store_result(
        &self,
        instance: &str,
        action: Digest,
        result: re::ActionResult,
    ) -> Result<(), RemoteError> {
        let request = re::UpdateActionResultRequest {
            instance_name: instance.to_owned(),
            action_digest: Some(action.to_wire()),
            action_result: Some(result),
            results_cache_policy: None,
            digest_function: action.function.to_wire(),
        };
        self.call(|| {
            let (mut results, request) = (self.results.clone(), request.clone());
            async move { results.update_action_result(request).await }
        })
        .await?;
        Ok(())
    }
}

/// An action, and its command if that came with it.
fn with_command(
    action: Digest,
    responses: Vec<re::batch_read_blobs_response::Response>,
) -> Result<HashMap<Digest, Vec<u8>>, RemoteError> {
    let mut read = Read::default();
    read.add(action.function, responses)?;
    // Who needs the command asks for it, and hears then that it is missing.
    read.missing.retain(|digest| *digest == action);
    read.whole(&[action])
}

/// Whether the same call may succeed a moment later.
fn passing(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::Aborted
            | Code::DeadlineExceeded
    )
}

/// Whether a cache that answers so to a request of nothing serves no other one either.
fn is_unserved(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied | Code::Internal)
}

fn batch(instance: &str, digests: &[Digest]) -> re::BatchReadBlobsRequest {
    re::BatchReadBlobsRequest {
        instance_name: instance.to_owned(),
        digests: digests.iter().map(Digest::to_wire).collect(),
        acceptable_compressors: Vec::new(),
        digest_function: function_of(digests).to_wire(),
    }
}

fn function_of(digests: &[Digest]) -> Function {
    digests.first().map_or(Function::Sha256, |digest| digest.function)
}

fn prefixed(instance: &str, resource: &str) -> String {
    if instance.is_empty() { resource.to_owned() } else { format!("{instance}/{resource}") }
}

/// Runs of items that fit one message.
fn batches<T>(all: &[T], size: impl Fn(&T) -> u64) -> Vec<&[T]> {
    let mut batches = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, item) in all.iter().enumerate() {
        let size = size(item).saturating_add(128);
        if index > start && (bytes + size > BATCH_BYTES || index - start >= BATCH_BLOBS) {
            batches.push(&all[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    if start < all.len() {
        batches.push(&all[start..]);
    }
    batches
}

/// A file as the requests of one upload.
struct Pieces {
    file: File,
    name: String,
    offset: u64,
    size: u64,
    done: bool,
}

impl Pieces {
    fn new(file: File, size: u64, name: String) -> Self {
        Self { file, name, offset: 0, size, done: false }
    }
}

impl Iterator for Pieces {
    type Item = bytestream::WriteRequest;

    fn next(&mut self) -> Option<bytestream::WriteRequest> {
        use std::os::unix::fs::FileExt as _;
        if self.done {
            return None;
        }
        let left = usize::try_from(self.size - self.offset).unwrap_or(usize::MAX);
        let mut data = vec![0; left.min(PIECE_BYTES)];
        if self.file.read_exact_at(&mut data, self.offset).is_err() {
            // Shorter than it was: the upload ends early, and the cache refuses it.
            data.clear();
            self.size = self.offset;
        }
        let write_offset = i64::try_from(self.offset).unwrap_or(i64::MAX);
        self.offset += data.len() as u64;
        self.done = self.offset >= self.size;
        let resource_name = std::mem::take(&mut self.name);
        Some(bytestream::WriteRequest {
            resource_name,
            write_offset,
            finish_write: self.done,
            data,
        })
    }
}

/// The digest of a file's content and how long it is.
pub fn digest_file(function: Function, file: &mut File) -> io::Result<Digest> {
    let mut piece = vec![0; PIECE_BYTES];
    let (mut hasher, mut size) = (function.hasher(), 0);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(Digest { function, hash: hasher.finish(), size });
        }
        hasher.update(&piece[..read]);
        size += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_what_fits_a_message_in_order() {
        let sizes = [BATCH_BYTES, 1, 1, BATCH_BYTES - 300, 5 << 20];
        let lengths: Vec<usize> = batches(&sizes, |size| *size).iter().map(|b| b.len()).collect();
        assert_eq!(lengths, [1, 2, 1, 1]);
        assert!(batches(&[] as &[u64], |size| *size).is_empty());
        assert_eq!(batches(&vec![0_u64; 5000], |size| *size).len(), 2);
    }

    #[test]
    fn a_file_is_uploaded_in_pieces_with_their_offsets() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..600_000_u32).map(|i| i.to_le_bytes()[1]).collect();
        file.write_all(&content).unwrap();
        let pieces: Vec<_> = Pieces::new(file, 600_000, "name".into()).collect();
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.data.clone()).collect();
        assert_eq!(whole, content);
        assert_eq!(pieces[0].resource_name, "name");
        assert!(pieces[1].resource_name.is_empty() && pieces[1].write_offset == 262_144);
        assert!(pieces.last().unwrap().finish_write && !pieces[0].finish_write);
        let empty: Vec<_> = Pieces::new(tempfile::tempfile().unwrap(), 0, "e".into()).collect();
        assert!(empty.len() == 1 && empty[0].finish_write);
    }
}
