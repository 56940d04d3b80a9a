//! Remote Asset: what was pushed under a URI is fetched by it.
//!
//! Nothing is downloaded here: a fetch of what was not pushed is a miss, and the client goes where
//! the URI points itself. Messages about directories are read and written as those about blobs: their fields
//! have the same numbers and types.

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
    FetchBlobRequest, FetchBlobResponse, PushBlobRequest, PushBlobResponse, Qualifier,
};
use crate::wire::{protobuf, re, rpc};

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

/// `PushBlob` and `PushDirectory`; `what` says which.
pub(crate) fn push(call: &Call, message: &Bytes, what: &str) -> Answered {
    let request: PushBlobRequest = decoded(message)?;
    call.may_write()?;
    let partition = call.partition(&request.instance_name)?;
    let function = Function::from_wire(request.digest_function)?;
    let digest = Digest::required(function, request.blob_digest.as_ref())?;
    bounded(&request.uris)?;
    let moment = partition.store.moment();
    if !partition.has(&digest, moment) {
        return Err(crate::status::missing(&[digest]));
    }
    let asset = Asset {
        digest: Some(digest.to_wire()),
        function: function.to_wire(),
        expires_at: request.expire_at,
        pushed_at: now_s(),
    };
    let bytes = Bytes::from(asset.encode_to_vec());
    let contents: Vec<Content> = request
        .uris
        .iter()
        .map(|uri| {
            let key = partition.asset(key_hash(what, uri, &request.qualifiers));
            Content::plain(key, bytes.clone())
        })
        .collect();
    partition.store.put_all(call.lane(), &contents)?;
    Ok(grpc::encoded(&PushBlobResponse {}))
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
fn find(
    call: &Call,
    partition: &Partition<'_>,
    what: &str,
    request: &FetchBlobRequest,
) -> Result<(String, Asset), Status> {
    bounded(&request.uris)?;
    let moment = partition.store.moment();
    for uri in &request.uris {
        let key = partition.asset(key_hash(what, uri, &request.qualifiers));
        let Some(entry) = partition.store.get(&key, moment) else { continue };
        let Some(bytes) = partition.store.read(&key, entry)? else { continue };
        let Ok(asset) = Asset::decode(bytes) else { continue };
        let expired = asset.expires_at.as_ref().is_some_and(|at| at.seconds <= now_s());
        let oldest = request.oldest_content_accepted.as_ref();
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

/// `FetchBlob` and `FetchDirectory`; `what` says which.
pub(crate) fn fetch(call: &Call, message: &Bytes, what: &str) -> Answered {
    let request: FetchBlobRequest = decoded(message)?;
    let partition = call.partition(&request.instance_name)?;
    let (uri, asset) = find(call, &partition, what, &request)?;
    Ok(grpc::encoded(&FetchBlobResponse {
        status: Some(rpc::Status::default()),
        uri,
        qualifiers: request.qualifiers,
        expires_at: asset.expires_at,
        blob_digest: asset.digest,
        digest_function: asset.function,
    }))
}
