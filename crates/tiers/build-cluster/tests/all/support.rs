//! A cache in this process, and the library's own clients of it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use kendall_build_cluster::cache::{Cache, CacheOptions};
use kendall_build_cluster::digest::{Digest, Function};
use kendall_build_cluster::listen::ListenOptions;
use kendall_build_cluster::peer::Peer;
use kendall_build_cluster::scheduler::board::Limits;
use kendall_build_cluster::scheduler::{ActionLimits, Scheduler, SchedulerOptions};
use kendall_build_cluster::wire::bytestream::byte_stream_client::ByteStreamClient;
use kendall_build_cluster::wire::bytestream::{ReadRequest, WriteRequest};
use kendall_build_cluster::wire::re;
use kendall_build_cluster::wire::re::action_cache_client::ActionCacheClient;
use kendall_build_cluster::wire::re::content_addressable_storage_client::ContentAddressableStorageClient;
use kendall_tier::Clock;
use tonic::transport::Channel;
use tonic::{Code, Status};

pub fn options(folder: &Path) -> CacheOptions {
    CacheOptions {
        listen: ListenOptions::new("127.0.0.1:0".parse().unwrap()),
        data: folder.to_owned(),
        quota: 256 << 20,
        instances: std::collections::BTreeMap::new(),
        threads: 2,
        read_only_results: false,
        any_results: false,
        behind_front: false,
    }
}

pub fn start(folder: &Path) -> Cache {
    Cache::start(&options(folder), Clock::monotonic()).unwrap()
}

#[derive(Clone)]
pub struct Client {
    pub cas: ContentAddressableStorageClient<Channel>,
    pub results: ActionCacheClient<Channel>,
    pub bytes: ByteStreamClient<Channel>,
    pub channel: Channel,
}

/// A scheduler that passes what is a cache's on to this one.
pub fn scheduler(cache: SocketAddr) -> Scheduler {
    let options = SchedulerOptions {
        listen: ListenOptions::new("127.0.0.1:0".parse().unwrap()),
        cache: Peer::from(cache),
        front: true,
        limits: Limits::USUAL,
        actions: ActionLimits {
            default_time: Duration::from_secs(1),
            longest_time: Duration::from_secs(1),
            transfer_time: Duration::from_secs(1),
            ignored_properties: Vec::new(),
        },
        beat_ms: 200,
        patience: Duration::ZERO,
        threads: 1,
    };
    Scheduler::start(options, Clock::monotonic()).unwrap()
}

pub async fn client(address: SocketAddr) -> Client {
    client_at(address, [127, 0, 0, 1].into()).await
}

/// One that connects from this address.
pub async fn client_at(address: SocketAddr, from: IpAddr) -> Client {
    let endpoint = tonic::transport::Endpoint::new(format!("http://{address}")).unwrap();
    let channel = endpoint.local_address(Some(from)).connect().await.unwrap();
    Client {
        cas: ContentAddressableStorageClient::new(channel.clone())
            .max_decoding_message_size(64 << 20),
        results: ActionCacheClient::new(channel.clone()),
        bytes: ByteStreamClient::new(channel.clone()),
        channel,
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Content that differs by `seed` and does not compress to nothing.
pub fn content(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            b'a' + state.to_le_bytes()[1] % 16
        })
        .collect()
}

/// Zstd of a content, and after it a frame of so many bytes that are none.
pub fn padded(content: &[u8], length: u32) -> Vec<u8> {
    let frame = [0x50, 0x2a, 0x4d, 0x18].into_iter().chain(length.to_le_bytes());
    let padding = std::iter::repeat_n(0, usize::try_from(length).unwrap());
    zstd::encode_all(content, 3).unwrap().into_iter().chain(frame).chain(padding).collect()
}

impl Client {
    pub async fn put(&mut self, function: Function, blobs: &[Vec<u8>]) -> Vec<i32> {
        let requests = blobs
            .iter()
            .map(|data| re::batch_update_blobs_request::Request {
                digest: Some(function.digest(data).to_wire()),
                data: data.clone(),
                compressor: 0,
            })
            .collect();
        let request = re::BatchUpdateBlobsRequest {
            requests,
            digest_function: function.to_wire(),
            ..Default::default()
        };
        let answer = self.cas.batch_update_blobs(request).await.unwrap().into_inner();
        answer.responses.iter().map(|one| one.status.as_ref().map_or(0, |s| s.code)).collect()
    }

    /// What came back for each digest, or the code.
    pub async fn get(&mut self, digests: &[Digest]) -> Vec<Result<Vec<u8>, i32>> {
        let function = digests.first().map_or(Function::Sha256, |digest| digest.function);
        let request = re::BatchReadBlobsRequest {
            digests: digests.iter().map(Digest::to_wire).collect(),
            digest_function: function.to_wire(),
            ..Default::default()
        };
        let answer = self.cas.batch_read_blobs(request).await.unwrap().into_inner();
        answer
            .responses
            .into_iter()
            .map(|one| match one.status.map_or(0, |status| status.code) {
                0 => Ok(one.data),
                code => Err(code),
            })
            .collect()
    }

    pub async fn missing(&mut self, digests: &[Digest]) -> Vec<re::Digest> {
        let function = digests.first().map_or(Function::Sha256, |digest| digest.function);
        let request = re::FindMissingBlobsRequest {
            blob_digests: digests.iter().map(Digest::to_wire).collect(),
            digest_function: function.to_wire(),
            ..Default::default()
        };
        self.cas.find_missing_blobs(request).await.unwrap().into_inner().missing_blob_digests
    }

    pub async fn read(&mut self, name: &str, offset: i64, limit: i64) -> Result<Vec<u8>, Status> {
        let request =
            ReadRequest { resource_name: name.to_owned(), read_offset: offset, read_limit: limit };
        let mut stream = self.bytes.read(request).await?.into_inner();
        let mut content = Vec::new();
        while let Some(part) = stream.message().await? {
            content.extend(part.data);
        }
        Ok(content)
    }

    /// Writes in messages of `step` bytes; returns the committed size.
    pub async fn write(&mut self, name: &str, content: &[u8], step: usize) -> Result<i64, Status> {
        let mut requests: Vec<WriteRequest> = content
            .chunks(step)
            .enumerate()
            .map(|(index, part)| WriteRequest {
                resource_name: if index == 0 { name.to_owned() } else { String::new() },
                write_offset: i64::try_from(index * step).unwrap(),
                finish_write: false,
                data: part.to_vec(),
            })
            .collect();
        if requests.is_empty() {
            requests.push(WriteRequest { resource_name: name.to_owned(), ..Default::default() });
        }
        requests.last_mut().unwrap().finish_write = true;
        let answer = self.bytes.write(tokio_stream::iter(requests)).await?;
        Ok(answer.into_inner().committed_size)
    }

    pub async fn result(
        &mut self,
        instance: &str,
        action: &Digest,
    ) -> Result<re::ActionResult, Code> {
        let request = re::GetActionResultRequest {
            instance_name: instance.to_owned(),
            action_digest: Some(action.to_wire()),
            digest_function: action.function.to_wire(),
            ..Default::default()
        };
        self.results
            .get_action_result(request)
            .await
            .map(tonic::Response::into_inner)
            .map_err(|status| status.code())
    }

    pub async fn keep(
        &mut self,
        instance: &str,
        action: &Digest,
        result: re::ActionResult,
    ) -> Result<(), Status> {
        let request = re::UpdateActionResultRequest {
            instance_name: instance.to_owned(),
            action_digest: Some(action.to_wire()),
            action_result: Some(result),
            digest_function: action.function.to_wire(),
            ..Default::default()
        };
        self.results.update_action_result(request).await.map(|_| ())
    }
}
