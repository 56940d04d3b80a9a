//! A build cluster of real processes, and a client of it.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses some of it"
)]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kendall_build_cluster::digest::{Digest, Function};
use kendall_build_cluster::remote::Remote;
use kendall_build_cluster::wire::re::execution_client::ExecutionClient;
use kendall_build_cluster::wire::{longrunning as lro, protobuf, re};
use kendall_tier::Clock;
use prost::Message;
use tonic::transport::Channel;

/// Names the program that is tested, where it is not the one that was built beside the tests.
const UNDER_TEST: &str = "KENDALL_UNDER_TEST";
/// A user without rights, and the group.
const NOBODY: u32 = 65534;

/// The program that is tested.
pub fn program() -> PathBuf {
    std::env::var_os(UNDER_TEST).map_or_else(|| env!("CARGO_BIN_EXE_kendall").into(), PathBuf::from)
}

/// Runs tests of a module once more as a user without rights. Where the tests run as such a user anyway, they
/// just have: nothing is left to do.
pub fn again_as_a_user_without_rights(module: &str, tests: &[&str]) {
    if !rustix::process::getuid().is_root() {
        return;
    }
    // The tests' own names do not have that of their file before them.
    let module = module.split_once("::").unwrap().1;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Where they were built, that user may not reach them.
    let place = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        std::fs::hard_link(from, &to).or_else(|_| std::fs::copy(from, &to).map(drop)).unwrap();
        to
    };
    let own = place(&std::env::current_exe().unwrap(), "tests");
    let program = place(Path::new(env!("CARGO_BIN_EXE_kendall")), "kendall");
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let output = Command::new(own)
        .args(["--exact", "--test-threads=2"])
        .args(tests.iter().map(|test| format!("{module}::{test}")))
        .env(UNDER_TEST, program)
        .env("TMPDIR", &home)
        .current_dir(&home)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = format!("{}{}", text(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let all = format!("test result: ok. {} passed", tests.len());
    assert!(output.status.success() && said.contains(&all), "{said}");
}

/// A tier as a process of its own.
pub struct Process {
    pub child: Child,
    pub listen: String,
    pub metrics: String,
    said: Arc<Mutex<String>>,
}

impl Process {
    pub fn start(arguments: &[&str]) -> Self {
        Self::try_start(arguments).unwrap_or_else(|said| panic!("{arguments:?}: {said}"))
    }

    /// What it said instead of `ready`, if it ended.
    pub fn try_start(arguments: &[&str]) -> Result<Self, String> {
        Self::try_start_by(Command::new(program()), arguments)
    }

    /// With a command that runs the program.
    pub fn try_start_by(mut kendall: Command, arguments: &[&str]) -> Result<Self, String> {
        let mut child = kendall
            .arg("serve")
            .args(arguments)
            .args(["--metrics", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let ready = loop {
            let Some(Ok(line)) = lines.next() else {
                child.wait().unwrap();
                return Err(said);
            };
            if line.starts_with("ready ") {
                break line;
            }
            said.push_str(&line);
        };
        // It must not stop because its output is not read.
        let later = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&later);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                heard.lock().unwrap().push_str(&format!("{line}\n"));
                #[expect(clippy::print_stderr, reason = "a failed test shows what it said")]
                {
                    eprintln!("    {line}");
                }
            }
        });
        let word = |name: &str| {
            let word = ready.split(' ').find_map(|word| word.strip_prefix(name));
            word.unwrap_or_default().to_owned()
        };
        Ok(Self { listen: word("listen="), metrics: word("metrics="), said: later, child })
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What it said on standard error since it was ready.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Asks it to stop; its exit status.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap().code()
    }

    /// Reads a page of its metrics address.
    pub fn page(&self, path: &str) -> String {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(&self.metrics).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A scheduler at a socket that is kept when it ends, as a supervisor does.
pub fn scheduler_at(kept: &std::net::TcpListener, cache: &str) -> Process {
    let script = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(program());
    command.stdin(std::os::fd::OwnedFd::from(kept.try_clone().unwrap()));
    let address = kept.local_addr().unwrap().to_string();
    let mut arguments = vec!["scheduler", "--listen", &address, "--cache", cache];
    arguments.extend(QUICK);
    Process::try_start_by(command, &arguments).unwrap()
}

/// Cache, scheduler and workers.
pub struct Cluster {
    pub folder: tempfile::TempDir,
    pub cache: Process,
    pub scheduler: Process,
    pub workers: Vec<Process>,
}

/// Bounds that tests need not wait long for.
pub const QUICK: &[&str] = &[
    "--worker-silence",
    "5s",
    "--worker-return",
    "300ms",
    "--no-worker",
    "20s",
    "--client-return",
    "2s",
];

pub fn cache(folder: &Path, listen: &str) -> Process {
    let data = folder.join("cache");
    let data = data.to_str().unwrap();
    Process::start(&["cache", "--listen", listen, "--quota", "1GiB", "--data", data])
}

pub fn scheduler(listen: &str, cache: &str) -> Process {
    let mut arguments = vec!["scheduler", "--listen", listen, "--cache", cache];
    arguments.extend(QUICK);
    Process::start(&arguments)
}

impl Cluster {
    pub fn start(slots: u32, workers: usize, more: &[&str]) -> Self {
        Self::start_with(slots, workers, more, |cache| scheduler("127.0.0.1:0", cache))
    }

    /// With the scheduler that is made for the address of the cache.
    pub fn start_with(
        slots: u32,
        workers: usize,
        more: &[&str],
        scheduler: impl FnOnce(&str) -> Process,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), "127.0.0.1:0");
        let scheduler = scheduler(&cache.listen);
        let mut cluster = Self { folder, cache, scheduler, workers: vec![] };
        for _ in 0..workers {
            cluster.add_worker(slots, more);
        }
        cluster
    }

    pub fn add_worker(&mut self, slots: u32, more: &[&str]) {
        let number = self.workers.len();
        let name = format!("worker-{number}");
        let data = self.folder.path().join(&name);
        let slots = slots.to_string();
        let mut arguments = vec!["worker", "--scheduler", &self.scheduler.listen];
        arguments.extend(["--cache", &self.cache.listen, "--slots", &slots, "--name", &name]);
        arguments.extend(["--data", data.to_str().unwrap()]);
        arguments.extend(more);
        self.workers.push(Process::start(&arguments));
    }

    pub async fn client(&self) -> Client {
        Client::new(&self.scheduler.listen, &self.cache.listen).await
    }
}

/// A cluster whose every connection is encrypted and bears a token.
pub struct Secure {
    pub folder: tempfile::TempDir,
    pub certificate: PathBuf,
    pub cache: Process,
    pub scheduler: Process,
    pub worker: Process,
    /// Files with a token to read, to write, and of a worker.
    pub people: PathBuf,
    pub ci: PathBuf,
    pub w1: PathBuf,
}

impl Secure {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = kendall_testing::certificate(folder.path(), "cluster");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let tokens = file("tokens", "read people\nwrite ci\nwork w1\n");
        let [people, ci, w1] = ["people", "ci", "w1"].map(|name| file(name, name));
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let (tokens, pem, key) = (text(&tokens), text(&certificate), text(&key));
        let listens = ["--tokens", &tokens, "--tls-certificate", &pem, "--tls-key", &key];
        let data = text(&folder.path().join("cache"));
        let cache = ["cache", "--listen", "127.0.0.1:0", "--quota", "1GiB", "--data", &data];
        let cache = Process::start(&[&cache[..], &listens].concat());
        let scheduler = ["scheduler", "--listen", "127.0.0.1:0", "--cache", &cache.listen];
        let token = text(&ci);
        let asks = ["--peer-certificate", &pem, "--peer-token", &token];
        let scheduler = Process::start(&[&scheduler[..], &listens, &asks].concat());
        let (data, token) = (text(&folder.path().join("worker")), text(&w1));
        let worker = ["worker", "--scheduler", &scheduler.listen, "--cache", &cache.listen];
        let asks = ["--data", &data, "--peer-certificate", &pem, "--peer-token", &token];
        let worker = Process::start(&[&worker[..], &asks].concat());
        Self { folder, certificate, cache, scheduler, worker, people, ci, w1 }
    }
}

/// A client.
#[derive(Clone)]
pub struct Client {
    pub remote: Remote,
    pub execution: ExecutionClient<Channel>,
    pub operations: lro::operations_client::OperationsClient<Channel>,
    pub invocation: String,
}

fn address(text: &str) -> std::net::SocketAddr {
    text.parse().unwrap()
}

/// An action to be.
#[derive(Debug, Clone, Default)]
pub struct Job {
    pub command: re::Command,
    pub files: Vec<(String, Vec<u8>)>,
    pub root: Option<re::Directory>,
    pub timeout: Option<Duration>,
    pub do_not_cache: bool,
    pub skip_cache: bool,
    /// Leaves the inputs out of the cache.
    pub withheld: bool,
}

impl Job {
    /// A shell script.
    pub fn shell(script: &str) -> Self {
        let arguments = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        Self { command: re::Command { arguments, ..Default::default() }, ..Self::default() }
    }

    pub fn outputs(mut self, paths: &[&str]) -> Self {
        self.command.output_paths = paths.iter().map(|path| (*path).to_owned()).collect();
        self
    }

    pub fn file(mut self, name: &str, content: &str) -> Self {
        self.files.push((name.to_owned(), content.as_bytes().to_vec()));
        self
    }

    pub fn property(mut self, name: &str, value: &str) -> Self {
        let property = re::platform::Property { name: name.into(), value: value.into() };
        #[expect(deprecated, reason = "the place where clients of version 2.0 put it")]
        self.command.platform.get_or_insert_default().properties.push(property);
        self
    }
}

impl Client {
    pub async fn new(scheduler: &str, cache: &str) -> Self {
        let remote = Remote::new(address(cache), Duration::from_secs(10), Clock::monotonic());
        let endpoint = Channel::from_shared(format!("http://{scheduler}")).unwrap();
        let channel = endpoint.tcp_nodelay(true).connect_lazy();
        Self {
            remote,
            execution: ExecutionClient::new(channel.clone()),
            operations: lro::operations_client::OperationsClient::new(channel),
            invocation: String::new(),
        }
    }

    pub async fn put(&self, content: Vec<u8>) -> re::Digest {
        let digest = Function::Sha256.digest(&content);
        self.remote.write("", &[(digest, content)]).await.unwrap();
        digest.to_wire()
    }

    pub async fn message(&self, message: &impl Message) -> re::Digest {
        self.put(message.encode_to_vec()).await
    }

    pub async fn get(&self, digest: &re::Digest) -> String {
        let digest = Digest::from_wire(Function::Sha256, digest).unwrap();
        let mut read = self.remote.read("", &[digest]).await.unwrap();
        String::from_utf8(read.remove(&digest).unwrap()).unwrap()
    }

    /// Stores an action.
    pub async fn prepare(&self, job: &Job) -> re::Digest {
        let mut root = job.root.clone().unwrap_or_default();
        for (name, content) in &job.files {
            let digest = if job.withheld {
                Function::Sha256.digest(content).to_wire()
            } else {
                self.put(content.clone()).await
            };
            root.files.push(re::FileNode {
                name: name.clone(),
                digest: Some(digest),
                is_executable: false,
                node_properties: None,
            });
        }
        let action = re::Action {
            command_digest: Some(self.message(&job.command).await),
            input_root_digest: Some(self.message(&root).await),
            timeout: job.timeout.map(|time| protobuf::Duration {
                seconds: i64::try_from(time.as_secs()).unwrap(),
                nanos: i32::try_from(time.subsec_nanos()).unwrap(),
            }),
            do_not_cache: job.do_not_cache,
            ..re::Action::default()
        };
        self.message(&action).await
    }

    pub async fn start(
        &self,
        job: &Job,
    ) -> Result<tonic::Streaming<lro::Operation>, tonic::Status> {
        let request = re::ExecuteRequest {
            action_digest: Some(self.prepare(job).await),
            skip_cache_lookup: job.skip_cache,
            ..re::ExecuteRequest::default()
        };
        let mut request = tonic::Request::new(request);
        let metadata = re::RequestMetadata {
            tool_invocation_id: self.invocation.clone(),
            ..re::RequestMetadata::default()
        };
        let value = tonic::metadata::MetadataValue::from_bytes(&metadata.encode_to_vec());
        let header = "build.bazel.remote.execution.v2.requestmetadata-bin";
        request.metadata_mut().insert_bin(header, value);
        Ok(self.execution.clone().execute(request).await?.into_inner())
    }

    /// Executes to the end, whatever the end.
    pub async fn try_run(&self, job: &Job) -> Result<re::ExecuteResponse, tonic::Status> {
        last(&mut self.start(job).await?).await
    }

    /// Executes to a result.
    pub async fn run(&self, job: &Job) -> re::ActionResult {
        let response = self.try_run(job).await.unwrap();
        assert_eq!(response.status.as_ref().map_or(0, |status| status.code), 0, "{response:?}");
        response.result.unwrap()
    }
}

/// The answer of an operation, which its stream ends with.
pub async fn last(
    stream: &mut tonic::Streaming<lro::Operation>,
) -> Result<re::ExecuteResponse, tonic::Status> {
    while let Some(operation) = stream.message().await? {
        if let Some(answer) = answer(&operation) {
            return Ok(answer);
        }
    }
    Err(tonic::Status::unavailable("the stream ended early"))
}

pub fn answer(operation: &lro::Operation) -> Option<re::ExecuteResponse> {
    match operation.result.as_ref()? {
        lro::operation::Result::Response(any) => {
            Some(re::ExecuteResponse::decode(any.value.as_slice()).unwrap())
        }
        lro::operation::Result::Error(error) => panic!("{error:?}"),
    }
}

pub fn stage(operation: &lro::Operation) -> i32 {
    let metadata = operation.metadata.as_ref().unwrap();
    re::ExecuteOperationMetadata::decode(metadata.value.as_slice()).unwrap().stage
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
