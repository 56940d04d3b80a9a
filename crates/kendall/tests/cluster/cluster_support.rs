//! Tiers of the build cluster as processes, and a client of a cache.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses a part")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kendall_build_cluster::digest::{Digest, Function};
use kendall_build_cluster::wire::bytestream::byte_stream_client::ByteStreamClient;
use kendall_build_cluster::wire::bytestream::{ReadRequest, WriteRequest};
use kendall_build_cluster::wire::re;
use kendall_build_cluster::wire::re::action_cache_client::ActionCacheClient;
use kendall_build_cluster::wire::re::content_addressable_storage_client::ContentAddressableStorageClient;
use rustix::process::{Pid, Signal, kill_process};
use tonic::transport::Channel;
use tonic::{Code, Status};

#[allow(unused_imports, reason = "each test file uses a part")]
pub use kendall_testing::wait_until;

/// A tier as a process; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub address: String,
    pub metrics: String,
}

impl Server {
    /// `kendall serve cache` on a free port, with its folder.
    pub fn cache(folder: &Path, arguments: &[&str]) -> Self {
        let data = folder.to_str().unwrap();
        Self::start("cache", &[&["--data", data], arguments].concat())
    }

    /// `kendall serve TIER` on a free port.
    pub fn start(tier: &str, arguments: &[&str]) -> Self {
        Self::start_at(tier, "127.0.0.1:0", arguments)
    }

    /// `kendall serve TIER` on this address.
    pub fn start_at(tier: &str, listen: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kendall"))
            .args(["serve", tier, "--listen", listen, "--metrics", "127.0.0.1:0"])
            .args(arguments)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let ready = loop {
            let Some(Ok(line)) = lines.next() else { panic!("it does not get ready: {said}") };
            if line.starts_with("ready ") {
                break line;
            }
            said.push_str(&line);
        };
        // What it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let word = |name: &str| {
            let found = ready.split(' ').find_map(|word| word.strip_prefix(name));
            found.unwrap_or_default().to_owned()
        };
        Self { address: word("listen="), metrics: word("metrics="), child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(mut self) {
        self.end();
    }

    /// Asks it to stop, as a service manager does, and waits for it.
    pub fn stop(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    fn end(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A blob of its own for each number.
pub fn blob(number: u32, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(2_654_435_761) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[1]
        })
        .collect()
}

pub fn digest(content: &[u8]) -> Digest {
    Function::Sha256.digest(content)
}

/// A result whose output is `content`.
pub fn result_of(content: &[u8]) -> re::ActionResult {
    re::ActionResult {
        output_files: vec![re::OutputFile {
            path: "out".to_owned(),
            digest: Some(digest(content).to_wire()),
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[derive(Clone)]
pub struct Client {
    pub cas: ContentAddressableStorageClient<Channel>,
    results: ActionCacheClient<Channel>,
    bytes: ByteStreamClient<Channel>,
}

/// A client; none without an answer there.
pub async fn cas(address: &str) -> Option<Client> {
    let endpoint = tonic::transport::Endpoint::new(format!("http://{address}")).unwrap();
    let channel = endpoint.connect().await.ok()?;
    Some(Client {
        cas: ContentAddressableStorageClient::new(channel.clone()),
        results: ActionCacheClient::new(channel.clone()),
        bytes: ByteStreamClient::new(channel),
    })
}

fn action(number: u32) -> re::Digest {
    digest(&number.to_le_bytes()).to_wire()
}

impl Client {
    pub async fn put(&mut self, data: &[u8]) -> Result<(), Status> {
        let request = re::BatchUpdateBlobsRequest {
            requests: vec![re::batch_update_blobs_request::Request {
                digest: Some(digest(data).to_wire()),
                data: data.to_vec(),
                compressor: 0,
            }],
            ..Default::default()
        };
        let answer = self.cas.batch_update_blobs(request).await?.into_inner();
        match answer.responses[0].status.as_ref().map_or(0, |status| status.code) {
            0 => Ok(()),
            code => Err(Status::new(Code::from(code), "refused")),
        }
    }

    pub async fn write(&mut self, data: &[u8]) -> Result<(), Status> {
        let name = format!("uploads/1/{}", digest(data).resource());
        let step = 100_000;
        let mut requests: Vec<WriteRequest> = data
            .chunks(step)
            .enumerate()
            .map(|(index, part)| WriteRequest {
                resource_name: name.clone(),
                write_offset: i64::try_from(index * step).unwrap(),
                finish_write: false,
                data: part.to_vec(),
            })
            .collect();
        requests.last_mut().unwrap().finish_write = true;
        self.bytes.write(tokio_stream::iter(requests)).await.map(|_| ())
    }

    pub async fn read(&mut self, digest: &Digest) -> Result<Vec<u8>, Status> {
        let request = ReadRequest { resource_name: digest.resource(), ..Default::default() };
        let mut stream = self.bytes.read(request).await?.into_inner();
        let mut content = Vec::new();
        while let Some(part) = stream.message().await? {
            content.extend(part.data);
        }
        Ok(content)
    }

    pub async fn missing(&mut self, digests: &[Digest]) -> Result<usize, Status> {
        let request = re::FindMissingBlobsRequest {
            blob_digests: digests.iter().map(Digest::to_wire).collect(),
            ..Default::default()
        };
        let answer = self.cas.find_missing_blobs(request).await?;
        Ok(answer.into_inner().missing_blob_digests.len())
    }

    pub async fn tree(&mut self, root: &Digest) -> Result<Vec<re::Directory>, Status> {
        let request =
            re::GetTreeRequest { root_digest: Some(root.to_wire()), ..Default::default() };
        let mut stream = self.cas.get_tree(request).await?.into_inner();
        let mut directories = Vec::new();
        while let Some(part) = stream.message().await? {
            directories.extend(part.directories);
        }
        Ok(directories)
    }

    pub async fn keep(&mut self, number: u32, result: re::ActionResult) -> Result<(), Status> {
        let request = re::UpdateActionResultRequest {
            action_digest: Some(action(number)),
            action_result: Some(result),
            ..Default::default()
        };
        self.results.update_action_result(request).await.map(|_| ())
    }

    pub async fn result(&mut self, number: u32) -> Result<re::ActionResult, Code> {
        let request = re::GetActionResultRequest {
            action_digest: Some(action(number)),
            ..Default::default()
        };
        let answer = self.results.get_action_result(request).await;
        answer.map(tonic::Response::into_inner).map_err(|status| status.code())
    }
}
