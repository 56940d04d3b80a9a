//! What the cache says it can do.

use bytes::{BufMut as _, Bytes};
use prost::Message as _;
use tonic::Status;

use super::blobs::COMPRESSORS;
use super::context::{Answered, Call};
use super::grpc;
use super::proto;
use super::read::BATCH_BYTES;
use crate::digest::Function;
use crate::wire::{re, semver};

pub(crate) fn get(call: &Call, message: &Bytes) -> Answered {
    let request =
        re::GetCapabilitiesRequest::decode(message.clone()).map_err(|_| proto::Malformed)?;
    let partition = call.partition(&request.instance_name)?;
    let update_enabled = !call.shared().read_only_results && call.may_write().is_ok();
    let largest = partition.store.largest();
    Ok(grpc::encoded(&re::ServerCapabilities {
        cache_capabilities: Some(cache(update_enabled, largest)),
        execution_capabilities: None,
        deprecated_api_version: None,
        low_api_version: Some(version(0)),
        high_api_version: Some(version(12)),
    }))
}

/// A version of the Remote Execution API.
pub(crate) fn version(minor: i32) -> semver::SemVer {
    semver::SemVer { major: 2, minor, patch: 0, prerelease: String::new() }
}

/// What a cache can do whose largest blob has `largest` bytes.
pub fn cache(update_enabled: bool, largest: u64) -> re::CacheCapabilities {
    let compressors = COMPRESSORS.map(|compressor| compressor as i32);
    re::CacheCapabilities {
        digest_functions: Function::ALL.map(Function::to_wire).to_vec(),
        action_cache_update_capabilities: Some(re::ActionCacheUpdateCapabilities {
            update_enabled,
        }),
        cache_priority_capabilities: None,
        max_batch_total_size_bytes: i64::try_from(BATCH_BYTES).unwrap_or(i64::MAX),
        symlink_absolute_path_strategy: re::symlink_absolute_path_strategy::Value::Allowed as i32,
        supported_compressors: compressors[1..].to_vec(),
        supported_batch_update_compressors: compressors[1..].to_vec(),
        max_cas_blob_size_bytes: i64::try_from(largest).unwrap_or(i64::MAX),
        ..re::CacheCapabilities::default()
    }
}

/// `grpc.health.v1.Health/Check`: what it serves, it serves as long as it answers.
pub(crate) fn health(_: &Call, message: &Bytes) -> Answered {
    let mut service = "";
    for field in proto::Fields(message) {
        if let (1, proto::Value::Bytes(bytes)) = field? {
            service = proto::text(bytes)?;
        }
    }
    let is_served = ["", re::capabilities_server::SERVICE_NAME].contains(&service);
    if !is_served && !super::SERVICES.contains(&service) {
        return Err(Status::not_found(format!("there is no service {service:?}")));
    }
    let mut answer = grpc::message(2);
    answer.put_slice(&[0x08, 1]);
    Ok(grpc::unary(answer))
}
