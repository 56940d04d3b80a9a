//! Content: batches stay batches, one call a server.

use std::collections::{HashSet, VecDeque};

use tokio::task::JoinSet;
use tokio_stream::Stream;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use super::Front;
use super::servers::{Operation, forwarded, may_write};
use crate::cache::read::BATCH_BYTES;
use crate::digest::{Digest, Function};
use crate::listen::Room;
use crate::wire::re::content_addressable_storage_server::ContentAddressableStorage;
use crate::wire::{re, rpc};

/// Directories of one tree, and of one message.
const MOST: usize = 1_000_000;
const PAGE: usize = 1000;
/// Bytes of one message: the default limit of clients is four times as much.
const MESSAGE_BYTES: usize = 1 << 20;

/// Bytes of an answer that is made whole.
const ANSWER_BYTES: usize = 4 << 20;

pub(super) type Answers<T> = std::pin::Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Front {
    /// Which of these are not there; UNAVAILABLE where a server cannot be reached that may have some.
    pub(super) async fn missing(
        &self,
        metadata: &MetadataMap,
        instance: &str,
        digests: &[Digest],
    ) -> Result<Vec<Digest>, Status> {
        let Some(first) = digests.first() else { return Ok(Vec::new()) };
        let mut asked = JoinSet::new();
        for (server, places) in self.storage.shares(digests)? {
            let message = re::FindMissingBlobsRequest {
                instance_name: instance.to_owned(),
                blob_digests: places.iter().map(|place| digests[*place].to_wire()).collect(),
                digest_function: first.function.to_wire(),
            };
            let (front, request) = (self.clone(), forwarded(metadata, message));
            asked.spawn(async move {
                let mut client = front.storage.shard(server).storage.clone();
                let call = client.find_missing_blobs(request);
                front.storage.call(server, places.len(), call).await
            });
        }
        let mut missing = Vec::new();
        while let Some(answer) = joined(asked.join_next().await)? {
            for wire in &answer?.missing_blob_digests {
                missing.push(Digest::from_wire(first.function, wire)?);
            }
        }
        Ok(missing)
    }

    /// Whole small blobs in the order of the digests, or why not.
    pub(super) async fn blobs(
        &self,
        metadata: &MetadataMap,
        asked_for: &re::BatchReadBlobsRequest,
        digests: &[Digest],
    ) -> Result<Vec<re::batch_read_blobs_response::Response>, Status> {
        let mut asked = JoinSet::new();
        for (server, places) in self.storage.shares(digests)? {
            let message = re::BatchReadBlobsRequest {
                instance_name: asked_for.instance_name.clone(),
                digests: places.iter().map(|place| digests[*place].to_wire()).collect(),
                acceptable_compressors: asked_for.acceptable_compressors.clone(),
                digest_function: asked_for.digest_function,
            };
            let (front, request) = (self.clone(), forwarded(metadata, message));
            asked.spawn(async move {
                let mut client = front.storage.shard(server).storage.clone();
                let call = client.batch_read_blobs(request);
                (front.storage.call(server, places.len(), call).await, places)
            });
        }
        let absent = |digest: &Digest| re::batch_read_blobs_response::Response {
            digest: Some(digest.to_wire()),
            status: Some(words(Code::NotFound, format!("{digest} is not there"))),
            ..Default::default()
        };
        let mut found: Vec<_> = digests.iter().map(absent).collect();
        while let Some((answer, places)) = joined(asked.join_next().await)? {
            match answer {
                // A server answers in the order in which it was asked.
                Ok(answer) => {
                    for (place, one) in places.into_iter().zip(answer.responses) {
                        found[place] = one;
                    }
                }
                // Of one server: the blobs of the others came.
                Err(status) if status.code() == Code::Unavailable && !places.is_empty() => {
                    for place in places {
                        let said = words(status.code(), status.message().to_owned());
                        found[place].status = Some(said);
                    }
                }
                Err(status) => return Err(status),
            }
        }
        Ok(found)
    }

    /// A message of the storage; `None` where it is not there.
    pub(super) async fn message<M: prost::Message + Default>(
        &self,
        metadata: &MetadataMap,
        instance: &str,
        digest: &Digest,
    ) -> Result<Option<M>, Status> {
        let asked_for = re::BatchReadBlobsRequest {
            instance_name: instance.to_owned(),
            digest_function: digest.function.to_wire(),
            ..Default::default()
        };
        let one = self.blobs(metadata, &asked_for, std::slice::from_ref(digest)).await?.pop();
        let Some(one) = one else { return Ok(None) };
        let status = one.status.unwrap_or_default();
        match Code::from_i32(status.code) {
            Code::Ok => M::decode(one.data.as_slice())
                .map(Some)
                .map_err(|_| Status::data_loss(format!("{digest} is not a message of its kind"))),
            Code::NotFound => Ok(None),
            Code::Unavailable => Err(Status::unavailable(status.message)),
            code => Err(Status::new(code, format!("{digest} cannot be read"))),
        }
    }

    async fn update(
        &self,
        metadata: &MetadataMap,
        mut message: re::BatchUpdateBlobsRequest,
    ) -> Result<re::BatchUpdateBlobsResponse, Status> {
        let function = Function::from_wire(message.digest_function)?;
        let digests = message
            .requests
            .iter()
            .map(|one| Digest::required(function, one.digest.as_ref()))
            .collect::<Result<Vec<Digest>, _>>()?;
        let mut asked = JoinSet::new();
        for (server, places) in self.storage.shares(&digests)? {
            let requests =
                places.iter().map(|place| std::mem::take(&mut message.requests[*place])).collect();
            let message = re::BatchUpdateBlobsRequest {
                instance_name: message.instance_name.clone(),
                requests,
                digest_function: message.digest_function,
            };
            let (front, request) = (self.clone(), forwarded(metadata, message));
            asked.spawn(async move {
                let mut client = front.storage.shard(server).storage.clone();
                let call = client.batch_update_blobs(request);
                (front.storage.call(server, places.len(), call).await, places)
            });
        }
        let mut responses: Vec<_> = digests
            .iter()
            .map(|digest| re::batch_update_blobs_response::Response {
                digest: Some(digest.to_wire()),
                status: Some(words(Code::Internal, "the server gave no answer for it".to_owned())),
            })
            .collect();
        while let Some((answer, places)) = joined(asked.join_next().await)? {
            match answer {
                Ok(answer) => {
                    for (place, one) in places.into_iter().zip(answer.responses) {
                        responses[place] = one;
                    }
                }
                Err(status) if places.is_empty() => return Err(status),
                // Of one server: the blobs of the others are stored.
                Err(status) => {
                    for place in places {
                        let said = words(status.code(), status.message().to_owned());
                        responses[place].status = Some(said);
                    }
                }
            }
        }
        Ok(re::BatchUpdateBlobsResponse { responses })
    }

    async fn tree(
        &self,
        metadata: &MetadataMap,
        message: &re::GetTreeRequest,
    ) -> Result<Vec<re::GetTreeResponse>, Status> {
        let function = Function::from_wire(message.digest_function)?;
        let root = Digest::required(function, message.root_digest.as_ref())?;
        let asked_for = re::BatchReadBlobsRequest {
            instance_name: message.instance_name.clone(),
            digest_function: message.digest_function,
            ..Default::default()
        };
        let (mut seen, mut left) = (HashSet::from([root]), VecDeque::from([root]));
        let mut directories = Vec::new();
        while !left.is_empty() {
            // A level at a time, a call a server.
            let level = batch(&mut left);
            let found = self.blobs(metadata, &asked_for, &level).await?;
            for (digest, one) in level.iter().zip(found) {
                let status = one.status.unwrap_or_default();
                let there = status.code == 0;
                if status.code == Code::Unavailable as i32 {
                    return Err(Status::unavailable(status.message));
                }
                if !there && *digest == root {
                    return Err(Status::not_found(format!("{root} is not there")));
                }
                if !there {
                    continue;
                }
                let directory: re::Directory = prost::Message::decode(one.data.as_slice())
                    .map_err(|_| {
                        Status::invalid_argument(format!("{digest} is not a directory"))
                    })?;
                for child in &directory.directories {
                    let child = Digest::required(function, child.digest.as_ref())?;
                    if seen.insert(child) {
                        left.push_back(child);
                    }
                }
                directories.push(directory);
                if seen.len() > MOST {
                    return Err(Status::resource_exhausted("the tree has too many directories"));
                }
            }
        }
        Ok(pages(directories))
    }
}

/// The next of these directories: as many as one batch may hold, were all of them on one server.
fn batch(left: &mut VecDeque<Digest>) -> Vec<Digest> {
    let (mut some, mut bytes) = (Vec::new(), 0_u64);
    while let Some(digest) = left.front() {
        bytes = bytes.saturating_add(digest.size);
        if some.len() >= PAGE || (bytes > BATCH_BYTES && !some.is_empty()) {
            break;
        }
        some.extend(left.pop_front());
    }
    some
}

/// Directories in messages of a bounded size.
fn pages(directories: Vec<re::Directory>) -> Vec<re::GetTreeResponse> {
    let mut pages: Vec<re::GetTreeResponse> = Vec::new();
    let mut bytes = MESSAGE_BYTES;
    for directory in directories {
        if bytes >= MESSAGE_BYTES {
            pages.push(re::GetTreeResponse::default());
            bytes = 0;
        }
        bytes += prost::Message::encoded_len(&directory);
        pages.last_mut().expect("one was pushed").directories.push(directory);
    }
    pages
}

#[tonic::async_trait]
impl ContentAddressableStorage for Front {
    async fn find_missing_blobs(
        &self,
        request: Request<re::FindMissingBlobsRequest>,
    ) -> Result<Response<re::FindMissingBlobsResponse>, Status> {
        let _timed = self.storage.begin(Operation::FindMissing);
        let (metadata, _, message) = request.into_parts();
        let function = Function::from_wire(message.digest_function)?;
        let digests = parsed(function, &message.blob_digests)?;
        let missing = self.missing(&metadata, &message.instance_name, &digests).await?;
        let missing_blob_digests = missing.iter().map(Digest::to_wire).collect();
        Ok(Response::new(re::FindMissingBlobsResponse { missing_blob_digests }))
    }

    async fn batch_update_blobs(
        &self,
        request: Request<re::BatchUpdateBlobsRequest>,
    ) -> Result<Response<re::BatchUpdateBlobsResponse>, Status> {
        may_write(&request)?;
        let _timed = self.storage.begin(Operation::BatchUpdate);
        let (metadata, _, message) = request.into_parts();
        let answer = self.update(&metadata, message).await?;
        Ok(Response::new(answer))
    }

    async fn batch_read_blobs(
        &self,
        request: Request<re::BatchReadBlobsRequest>,
    ) -> Result<Response<re::BatchReadBlobsResponse>, Status> {
        let _timed = self.storage.begin(Operation::BatchRead);
        Room::of(request.extensions()).take(ANSWER_BYTES).await;
        let (metadata, _, message) = request.into_parts();
        let function = Function::from_wire(message.digest_function)?;
        let digests = parsed(function, &message.digests)?;
        let responses = self.blobs(&metadata, &message, &digests).await?;
        Ok(Response::new(re::BatchReadBlobsResponse { responses }))
    }

    type GetTreeStream = Answers<re::GetTreeResponse>;

    async fn get_tree(
        &self,
        request: Request<re::GetTreeRequest>,
    ) -> Result<Response<Self::GetTreeStream>, Status> {
        let _timed = self.storage.begin(Operation::GetTree);
        Room::of(request.extensions()).take(ANSWER_BYTES).await;
        let (metadata, _, message) = request.into_parts();
        let pages = self.tree(&metadata, &message).await?;
        let pages = tokio_stream::iter(pages.into_iter().map(Ok));
        Ok(Response::new(Box::pin(pages)))
    }

    async fn split_blob(
        &self,
        _: Request<re::SplitBlobRequest>,
    ) -> Result<Response<re::SplitBlobResponse>, Status> {
        Err(Status::unimplemented("blobs are not split here"))
    }

    type GetChunkMappingStream = Answers<re::GetChunkMappingResponse>;

    async fn get_chunk_mapping(
        &self,
        _: Request<re::GetChunkMappingRequest>,
    ) -> Result<Response<Self::GetChunkMappingStream>, Status> {
        Err(Status::unimplemented("blobs are not split here"))
    }

    async fn register_chunk_mapping(
        &self,
        _: Request<tonic::Streaming<re::RegisterChunkMappingRequest>>,
    ) -> Result<Response<re::RegisterChunkMappingResponse>, Status> {
        Err(Status::unimplemented("blobs are not split here"))
    }

    async fn splice_blob(
        &self,
        _: Request<re::SpliceBlobRequest>,
    ) -> Result<Response<re::SpliceBlobResponse>, Status> {
        Err(Status::unimplemented("blobs are not spliced here"))
    }
}

fn parsed(function: Function, wire: &[re::Digest]) -> Result<Vec<Digest>, Status> {
    let digests: Result<Vec<_>, _> =
        wire.iter().map(|digest| Digest::from_wire(function, digest)).collect();
    Ok(digests?)
}

fn words(code: Code, message: String) -> rpc::Status {
    rpc::Status { code: code as i32, message, details: Vec::new() }
}

/// What a task that was waited for made.
fn joined<T>(ended: Option<Result<T, tokio::task::JoinError>>) -> Result<Option<T>, Status> {
    match ended {
        None => Ok(None),
        Some(Ok(made)) => Ok(Some(made)),
        Some(Err(error)) => Err(Status::internal(error.to_string())),
    }
}
