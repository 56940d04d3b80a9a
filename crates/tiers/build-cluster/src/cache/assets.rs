//! Remote Asset: what was pushed under a URI is fetched by it.
//!
//! Nothing is downloaded here: a fetch of what was not pushed is a miss, and the client goes where
//! the URI points itself.

use bytes::Bytes;
use prost::Message as _;
use rustix::time::{ClockId, clock_gettime};
use tonic::Status;

use super::context::{Answered, Call};
use super::grpc;
use super::instances::Partition;
use super::proto;
use super::store::{Content, Kind};
use crate::digest::{Digest, Function};
use crate::wire::asset::{
    FetchBlobRequest, FetchBlobResponse, FetchDirectoryRequest, FetchDirectoryResponse,
    PushBlobRequest, PushBlobResponse, PushDirectoryRequest, PushDirectoryResponse, Qualifier,
};
use crate::wire::{protobuf, re, rpc};

/// URIs of one request.
const URIS: usize = 256;

/// What is kept of an asset.
#[derive(Clone, PartialEq, prost::Message)]
struct Asset {
    #[prost(message, optional, tag = "1")]
    digest: Option<re::Digest>,
    #[prost(int32, tag = "2")]
    function: i32,
    #[prost(message, optional, tag = "3")]
    expires_at: Option<protobuf::Timestamp>,
    /// When it was pushed, seconds of the world's clock.
    #[prost(int64, tag = "4")]
    pushed_at: i64,
}

fn now_s() -> i64 {
    clock_gettime(ClockId::Realtime).tv_sec
}

/// The key of an asset: a hash of its kind, its URI and all its qualifiers.
fn key_hash(what: &str, uri: &str, qualifiers: &[Qualifier]) -> [u8; 32] {
    let mut pairs: Vec<(&str, &str)> =
        qualifiers.iter().map(|q| (q.name.as_str(), q.value.as_str())).collect();
    pairs.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    for text in [what, uri].into_iter().chain(pairs.into_iter().flat_map(|(n, v)| [n, v])) {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().into()
}

/// A request to keep something, of either kind.
struct Push<'a> {
    what: &'static str,
    uris: &'a [String],
    qualifiers: &'a [Qualifier],
    expires_at: Option<protobuf::Timestamp>,
    digest: Option<&'a re::Digest>,
    function: i32,
}

fn push(call: &Call, instance: &str, push: &Push<'_>) -> Result<(), Status> {
    call.may_write()?;
    let partition = call.partition(instance)?;
    let function = Function::from_wire(push.function)?;
    let digest = Digest::required(function, push.digest)?;
    bounded(push.uris)?;
    let moment = partition.store.moment();
    if !partition.has(&digest, moment) {
        return Err(crate::status::missing(&[digest]));
    }
    let asset = Asset {
        digest: Some(digest.to_wire()),
        function: function.to_wire(),
        expires_at: push.expires_at,
        pushed_at: now_s(),
    };
    let bytes = Bytes::from(asset.encode_to_vec());
    let contents: Vec<Content> = push
        .uris
        .iter()
        .map(|uri| {
            let key = partition.asset(key_hash(push.what, uri, push.qualifiers));
            Content::plain(key, bytes.clone())
        })
        .collect();
    Ok(partition.store.put_all(call.lane(), &contents)?)
}

fn bounded(uris: &[String]) -> Result<(), Status> {
    if uris.is_empty() {
        return Err(Status::invalid_argument("at least one URI is needed"));
    }
    if uris.len() > URIS {
        return Err(Status::invalid_argument(format!("{URIS} URIs at most")));
    }
    Ok(())
}

/// What was pushed under the first URI that is known, and still holds.
fn fetch(
    call: &Call,
    partition: &Partition<'_>,
    what: &str,
    (uris, qualifiers): (&[String], &[Qualifier]),
    oldest: Option<&protobuf::Timestamp>,
) -> Result<(String, Asset), Status> {
    bounded(uris)?;
    let moment = partition.store.moment();
    for uri in uris {
        let key = partition.asset(key_hash(what, uri, qualifiers));
        let Some(entry) = partition.store.get(&key, moment) else { continue };
        let Some(bytes) = partition.store.read(&key, entry)? else { continue };
        let Ok(asset) = Asset::decode(bytes) else { continue };
        let expired = asset.expires_at.as_ref().is_some_and(|at| at.seconds <= now_s());
        let old = oldest.is_some_and(|oldest| asset.pushed_at < oldest.seconds);
        let function = Function::from_wire(asset.function)?;
        let digest = Digest::required(function, asset.digest.as_ref())?;
        let there = partition.has(&digest, moment);
        if !expired && !old && there {
            call.found(Kind::Asset, 1, 0);
            return Ok((uri.clone(), asset));
        }
    }
    call.found(Kind::Asset, 0, 1);
    Err(Status::not_found("nothing was pushed under these URIs, and nothing is downloaded here"))
}

fn decoded<M: prost::Message + Default>(message: &Bytes) -> Result<M, Status> {
    M::decode(message.clone()).map_err(|_| proto::Malformed.into())
}

/// `FetchBlob`.
pub(crate) fn fetch_blob(call: &Call, message: &Bytes) -> Answered {
    let request: FetchBlobRequest = decoded(message)?;
    let partition = call.partition(&request.instance_name)?;
    let asked = (&request.uris[..], &request.qualifiers[..]);
    let oldest = request.oldest_content_accepted.as_ref();
    let (uri, asset) = fetch(call, &partition, "blob", asked, oldest)?;
    Ok(grpc::encoded(&FetchBlobResponse {
        status: Some(rpc::Status::default()),
        uri,
        qualifiers: request.qualifiers,
        expires_at: asset.expires_at,
        blob_digest: asset.digest,
        digest_function: asset.function,
    }))
}

/// `FetchDirectory`.
pub(crate) fn fetch_directory(call: &Call, message: &Bytes) -> Answered {
    let request: FetchDirectoryRequest = decoded(message)?;
    let partition = call.partition(&request.instance_name)?;
    let asked = (&request.uris[..], &request.qualifiers[..]);
    let oldest = request.oldest_content_accepted.as_ref();
    let (uri, asset) = fetch(call, &partition, "directory", asked, oldest)?;
    Ok(grpc::encoded(&FetchDirectoryResponse {
        status: Some(rpc::Status::default()),
        uri,
        qualifiers: request.qualifiers,
        expires_at: asset.expires_at,
        root_directory_digest: asset.digest,
        digest_function: asset.function,
    }))
}

/// `PushBlob`.
pub(crate) fn push_blob(call: &Call, message: &Bytes) -> Answered {
    let request: PushBlobRequest = decoded(message)?;
    let asked = Push {
        what: "blob",
        uris: &request.uris,
        qualifiers: &request.qualifiers,
        expires_at: request.expire_at,
        digest: request.blob_digest.as_ref(),
        function: request.digest_function,
    };
    push(call, &request.instance_name, &asked)?;
    Ok(grpc::encoded(&PushBlobResponse {}))
}

/// `PushDirectory`.
pub(crate) fn push_directory(call: &Call, message: &Bytes) -> Answered {
    let request: PushDirectoryRequest = decoded(message)?;
    let asked = Push {
        what: "directory",
        uris: &request.uris,
        qualifiers: &request.qualifiers,
        expires_at: request.expire_at,
        digest: request.root_directory_digest.as_ref(),
        function: request.digest_function,
    };
    push(call, &request.instance_name, &asked)?;
    Ok(grpc::encoded(&PushDirectoryResponse {}))
}
