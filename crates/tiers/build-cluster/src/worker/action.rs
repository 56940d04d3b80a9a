//! One action from its lease to its result: inputs fetched, run, outputs uploaded.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use kendall_units::chain;
use prost::Message as _;
use tokio::sync::watch;
use tonic::{Code, Status};

use super::outputs::{Expected, Finder, Found, OutputError, OutputLimits};
use super::paths;
use super::slot::{Slot, SlotFailure};
use super::slot_process::DEFAULT_PATH;
use super::slot_protocol::{Ended, Order, Variable};
use super::store::{Key, Store};
use super::tree::{Folder, Folders, Tree, TreeError};
use crate::digest::{Digest, Function};
use crate::remote::{Remote, RemoteError};
use crate::status;
use crate::time_of_day::{Ahead, timestamp};
use crate::wire::{protobuf, re};
use crate::work::{Lease, LeaseStage, ResourceUsage};

/// Bytes of a log that are sent within the result; longer ones are blobs.
const INLINE_BYTES: u64 = 16 << 10;

/// What every action of a worker needs.
#[derive(Debug)]
pub(super) struct Kitchen {
    pub name: String,
    pub remote: Remote,
    /// Files on this disk.
    pub store: Store,
    /// Directories in memory.
    pub folders: Folders,
    pub outputs: OutputLimits,
    /// Bytes of each of an action's two logs.
    pub log_bytes: u64,
    /// Where actions see their input root.
    pub seen_at: Option<String>,
    pub clock: kendall_tier::Clock,
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// It has a result, or a reason why it cannot have one.
    Answer(Box<re::ExecuteResponse>),
    /// The worker failed or was stopped; in words.
    Failed(String),
}

/// Moments of an action, on the monotonic clock; 0 when it did not come so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub fetching: (u64, u64),
    pub running: (u64, u64),
    pub uploading: (u64, u64),
}

/// Why there is no result.
#[derive(Debug)]
enum Stopped {
    /// The client's matter.
    Client(Status),
    Worker(String),
}

impl From<RemoteError> for Stopped {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::Missing(digests) => Self::Client(status::missing(&digests)),
            error => Self::Worker(chain(&error)),
        }
    }
}

impl From<TreeError> for Stopped {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Remote(error) => error.into(),
            error => Self::Client(Status::invalid_argument(error.to_string())),
        }
    }
}

impl From<paths::PathError> for Stopped {
    fn from(error: paths::PathError) -> Self {
        Self::Client(Status::invalid_argument(error.to_string()))
    }
}

impl From<OutputError> for Stopped {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::Read { .. } => Self::Worker(chain(&error)),
            error => Self::Client(Status::invalid_argument(error.to_string())),
        }
    }
}

impl From<SlotFailure> for Stopped {
    fn from(error: SlotFailure) -> Self {
        Self::Worker(chain(&error))
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Worker(format!("the worker's disk: {error}"))
    }
}

/// A lease, read.
struct Job<'a> {
    lease: &'a Lease,
    action: re::Action,
    command: re::Command,
    digest: Digest,
    directory: String,
    expected: Expected,
}

impl<'a> Job<'a> {
    fn new(lease: &'a Lease) -> Result<Self, Stopped> {
        let malformed = |what: &str| {
            Stopped::Client(Status::invalid_argument(format!("the {what} is malformed")))
        };
        let wrong = |error: crate::digest::DigestError| Stopped::Client(error.into());
        let function = Function::from_wire(lease.digest_function).map_err(wrong)?;
        let wire = re::Digest { hash: lease.action_hash.clone(), size_bytes: lease.action_bytes };
        let digest = Digest::from_wire(function, &wire).map_err(wrong)?;
        let action =
            re::Action::decode(lease.action.as_slice()).map_err(|_| malformed("action"))?;
        let command =
            re::Command::decode(lease.command.as_slice()).map_err(|_| malformed("command"))?;
        if command.arguments.is_empty() {
            return Err(Stopped::Client(Status::invalid_argument("the command has no arguments")));
        }
        let directory = paths::inside("", &command.working_directory)?;
        let expected = Expected::new(&command, &directory)?;
        Ok(Self { lease, action, command, digest, directory, expected })
    }

    fn order(&self, log_bytes: u64) -> Order {
        let variables = self.command.environment_variables.iter();
        let mut environment: Vec<Variable> = variables
            .map(|one| Variable { name: one.name.clone(), value: one.value.clone() })
            .collect();
        if !environment.iter().any(|variable| variable.name == "PATH") {
            let (name, value) = ("PATH".to_owned(), DEFAULT_PATH.to_owned());
            environment.push(Variable { name, value });
        }
        Order {
            arguments: self.command.arguments.clone(),
            environment,
            directory: self.directory.clone(),
            time_limit_ns: self.lease.time_limit_ms.saturating_mul(1_000_000),
            log_bytes,
            out_of_disk: false,
        }
    }
}

impl Kitchen {
    /// Runs the action of a lease in a slot.
    pub(super) async fn cook(
        &self,
        lease: &Lease,
        slot: &mut Slot,
        stage: &AtomicI32,
        stop: &mut watch::Receiver<bool>,
    ) -> (Outcome, Times) {
        let began_ns = self.clock.now_ns();
        let mut times = Times::default();
        let answer = match Job::new(lease) {
            Ok(job) => self.run(&job, slot, stage, stop, (began_ns, &mut times)).await,
            Err(stopped) => Err(stopped),
        };
        let outcome = match answer {
            Ok(response) => Outcome::Answer(Box::new(response)),
            Err(Stopped::Client(status)) => Outcome::Answer(Box::new(re::ExecuteResponse {
                message: status.message().to_owned(),
                status: Some(status::to_wire(&status)),
                ..re::ExecuteResponse::default()
            })),
            Err(Stopped::Worker(words)) => Outcome::Failed(words),
        };
        (outcome, times)
    }

    async fn run(
        &self,
        job: &Job<'_>,
        slot: &mut Slot,
        stage: &AtomicI32,
        stop: &mut watch::Receiver<bool>,
        (began_ns, times): (u64, &mut Times),
    ) -> Result<re::ExecuteResponse, Stopped> {
        let ahead = Ahead::at(began_ns);
        stage.store(LeaseStage::Fetching as i32, Ordering::Relaxed);
        times.fetching.0 = self.clock.now_ns();
        tokio::select! {
            fetched = self.fetch(job, slot) => fetched?,
            _ = stop.wait_for(|stop| *stop) => return Err(Stopped::Worker("stopped".to_owned())),
        }
        times.fetching.1 = self.clock.now_ns();
        stage.store(LeaseStage::Running as i32, Ordering::Relaxed);
        let ended = slot.run(&job.order(self.log_bytes), stop).await?;
        if ended.stopped {
            return Err(Stopped::Worker("stopped".to_owned()));
        }
        if !ended.refused.is_empty() {
            return Err(Stopped::Client(Status::invalid_argument(ended.refused)));
        }
        times.running = (ended.began_ns, ended.ended_ns);
        stage.store(LeaseStage::Uploading as i32, Ordering::Relaxed);
        times.uploading.0 = self.clock.now_ns();
        let mut found = self.find(job, slot, &ended)?;
        self.logs(job, slot, &ended, &mut found).await?;
        found.upload(&self.remote, &job.lease.instance, job.lease.lease).await?;
        times.uploading.1 = self.clock.now_ns();
        found.keep(&self.store);
        let mut result = found.result;
        result.exit_code = ended.exit_code;
        result.execution_metadata = Some(self.metadata(job, &ended, began_ns, times, ahead));
        self.answer(job, &ended, result).await
    }

    /// The answer, after a good result went to the action cache.
    async fn answer(
        &self,
        job: &Job<'_>,
        ended: &Ended,
        result: re::ActionResult,
    ) -> Result<re::ExecuteResponse, Stopped> {
        let limit = if ended.out_of_time {
            let limit = Duration::from_millis(job.lease.time_limit_ms);
            Some(Status::deadline_exceeded(format!("the action ran longer than its {limit:?}")))
        } else if ended.out_of_log {
            let limit = self.log_bytes;
            let words = format!("the action wrote more than {limit} bytes to one of its outputs");
            Some(Status::invalid_argument(words))
        } else {
            None
        };
        let mut message =
            limit.as_ref().map_or_else(|| ended.beyond.clone(), |l| l.message().to_owned());
        if limit.is_none() && ended.exit_code == 0 && !job.action.do_not_cache {
            let instance = &job.lease.instance;
            match self.remote.store_result(instance, job.digest, result.clone()).await {
                // The action went well, and to run it again would change nothing.
                Err(RemoteError::Refused(status)) if is_for_good(status.code()) => {
                    message = format!("the cache does not keep the result: {}", status.message());
                }
                stored => stored?,
            }
        }
        Ok(re::ExecuteResponse {
            result: Some(result),
            message,
            status: limit.as_ref().map(status::to_wire),
            ..re::ExecuteResponse::default()
        })
    }

    /// Makes the input root.
    async fn fetch(&self, job: &Job<'_>, slot: &mut Slot) -> Result<(), Stopped> {
        let function = job.digest.function;
        let root = Digest::required(function, job.action.input_root_digest.as_ref());
        let root = root.map_err(|error| Stopped::Client(error.into()))?;
        let instance = &job.lease.instance;
        let tree = self.folders.read(&self.remote, instance, root).await;
        let tree = match tree {
            // One answer with everything that is missing, files too, spares the client rounds.
            Err(TreeError::Remote(RemoteError::Missing(missing))) => {
                return Err(RemoteError::Missing(missing).into());
            }
            tree => tree?,
        };
        let files = tree.files();
        let build = slot.build();
        for _ in 0..3 {
            let keys: Vec<Key> = files.keys().copied().collect();
            self.store.fetch(&self.remote, instance, &keys).await?;
            let make = || self.make(&tree, slot, &build);
            // Many system calls would hold up the runtime's other tasks.
            let made = if files.len() > 64 { tokio::task::block_in_place(make) } else { make() };
            if made? {
                for folder in &job.expected.folders {
                    self.make_folder(slot, &build, folder)?;
                }
                return Ok(());
            }
            // A file was evicted in between.
            slot.clean()?;
        }
        Err(Stopped::Worker("the worker's store is too small for the inputs".to_owned()))
    }

    /// Makes the tree on disk; false when the store lost a file meanwhile.
    fn make(&self, tree: &Tree, slot: &Slot, build: &Path) -> Result<bool, Stopped> {
        let mut left = vec![(build.to_owned(), String::new(), tree.root)];
        while let Some((path, inside, digest)) = left.pop() {
            let Some(folder) = tree.folders.get(&digest) else { continue };
            if !self.make_entries(folder, &path, &inside)? {
                return Ok(false);
            }
            for (name, digest) in &folder.folders {
                let path = path.join(name);
                fs::create_dir(&path)?;
                slot.give(&path)?;
                let inside =
                    if inside.is_empty() { name.clone() } else { format!("{inside}/{name}") };
                left.push((path, inside, *digest));
            }
        }
        Ok(true)
    }

    fn make_entries(&self, folder: &Folder, path: &Path, inside: &str) -> Result<bool, Stopped> {
        for file in &folder.files {
            let to = path.join(&file.name);
            let key = (file.digest, file.executable);
            if !self.store.place(&key, &to, file.properties.is_some())? {
                return Ok(false);
            }
            if let Some(properties) = &file.properties {
                dress(&to, properties, file.executable)?;
            }
        }
        for (name, target) in &folder.links {
            paths::target(inside, target)?;
            symlink(target, path.join(name))?;
        }
        Ok(true)
    }

    /// Makes a directory of outputs, as far as inputs have not made it. Links among the inputs are
    /// not followed: none leads out, and outputs below them are found through them.
    fn make_folder(&self, slot: &Slot, build: &Path, folder: &str) -> Result<(), Stopped> {
        let mut path = build.to_owned();
        for part in folder.split('/').filter(|part| !part.is_empty()) {
            path.push(part);
            match fs::create_dir(&path) {
                Ok(()) => slot.give(&path)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if fs::symlink_metadata(&path)?.is_symlink() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                    let words = format!("the output directory {folder:?} is a file of the inputs");
                    return Err(Stopped::Client(Status::invalid_argument(words)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn find(&self, job: &Job<'_>, slot: &Slot, ended: &Ended) -> Result<Found, Stopped> {
        let cut = ended.out_of_time || ended.out_of_log || !ended.beyond.is_empty();
        if cut || job.expected.paths.is_empty() {
            return Ok(Found::default());
        }
        let build = slot.build();
        let own = build.to_string_lossy();
        let seen_at = self.seen_at.as_deref().unwrap_or(&own);
        let function = job.digest.function;
        let finder = Finder::new(&build, seen_at, function, self.outputs, &job.command)?;
        // A few small files are read sooner than another thread takes over.
        if job.expected.is_small(&build) {
            return Ok(finder.find(&job.expected)?);
        }
        Ok(tokio::task::block_in_place(|| finder.find(&job.expected))?)
    }

    /// Adds what the action wrote to its outputs: short texts within the result, long ones as blobs.
    async fn logs(
        &self,
        job: &Job<'_>,
        slot: &Slot,
        ended: &Ended,
        found: &mut Found,
    ) -> Result<(), Stopped> {
        let function = job.digest.function;
        let mut log = |name: &str, bytes: u64| -> Result<_, Stopped> {
            let content = slot.log(name, bytes, self.log_bytes)?;
            if content.is_empty() {
                return Ok((content, None));
            }
            if content.len() as u64 <= INLINE_BYTES {
                return Ok((content, None));
            }
            let digest = function.digest(&content);
            found.blobs.push((digest, content));
            Ok((Vec::new(), Some(digest.to_wire())))
        };
        let (stdout_raw, stdout_digest) = log("stdout", ended.stdout_bytes)?;
        let (stderr_raw, stderr_digest) = log("stderr", ended.stderr_bytes)?;
        let result = &mut found.result;
        (result.stdout_raw, result.stdout_digest) = (stdout_raw, stdout_digest);
        (result.stderr_raw, result.stderr_digest) = (stderr_raw, stderr_digest);
        // Blobs that no batch takes go the way of files.
        let (large, small): (Vec<_>, Vec<_>) = std::mem::take(&mut found.blobs)
            .into_iter()
            .partition(|blob| blob.0.size > crate::remote::SMALL_BYTES);
        found.blobs = small;
        for (digest, content) in large {
            let path = slot.build().with_file_name(format!("log-{}", digest.hash_text()));
            fs::write(&path, content)?;
            let file = fs::File::open(&path)?;
            fs::remove_file(&path)?;
            let lease = job.lease.lease;
            let upload = format!("{:08x}-0000-4000-8000-{:012x}", lease >> 32, digest.size);
            self.remote.write_file(&job.lease.instance, digest, &file, &upload).await?;
        }
        Ok(())
    }

    fn metadata(
        &self,
        job: &Job<'_>,
        ended: &Ended,
        began_ns: u64,
        times: &Times,
        ahead: Ahead,
    ) -> re::ExecutedActionMetadata {
        let usage = ResourceUsage {
            user_us: ended.user_us,
            system_us: ended.system_us,
            memory_bytes: ended.memory_bytes,
            major_faults: ended.major_faults,
        };
        let ran = Duration::from_nanos(ended.ended_ns.saturating_sub(ended.began_ns));
        let stamp = |at_ns: u64| Some(ahead.timestamp(at_ns));
        // The scheduler's time of day may be another than this machine's: never after the start.
        let queued = job.lease.queued_unix_ns.min(ahead.unix_ns(began_ns));
        re::ExecutedActionMetadata {
            worker: self.name.clone(),
            queued_timestamp: Some(timestamp(queued)),
            worker_start_timestamp: stamp(began_ns),
            worker_completed_timestamp: stamp(self.clock.now_ns()),
            input_fetch_start_timestamp: stamp(times.fetching.0),
            input_fetch_completed_timestamp: stamp(times.fetching.1),
            execution_start_timestamp: stamp(times.running.0),
            execution_completed_timestamp: stamp(times.running.1),
            virtual_execution_duration: Some(protobuf::Duration {
                seconds: i64::try_from(ran.as_secs()).unwrap_or(i64::MAX),
                nanos: i32::try_from(ran.subsec_nanos()).unwrap_or(0),
            }),
            output_upload_start_timestamp: stamp(times.uploading.0),
            output_upload_completed_timestamp: stamp(times.uploading.1),
            auxiliary_metadata: vec![
                protobuf::Any {
                    type_url: "type.googleapis.com/kendall.worker.v1.ResourceUsage".to_owned(),
                    value: usage.encode_to_vec(),
                },
                protobuf::Any {
                    type_url: "type.googleapis.com/build.bazel.remote.execution.v2.RequestMetadata"
                        .to_owned(),
                    value: job.lease.metadata.clone(),
                },
            ],
        }
    }
}

/// Gives an input its time and mode.
fn dress(path: &Path, properties: &re::NodeProperties, executable: bool) -> io::Result<()> {
    if let Some(mtime) = &properties.mtime {
        let seconds = u64::try_from(mtime.seconds).unwrap_or(0);
        let nanos = u32::try_from(mtime.nanos).unwrap_or(0).min(999_999_999);
        let since = std::time::SystemTime::UNIX_EPOCH;
        let time = since.checked_add(Duration::new(seconds, nanos)).unwrap_or(since);
        fs::File::open(path)?.set_modified(time)?;
    }
    let mode = match &properties.unix_mode {
        // Bits that change who a program runs as are no matter of inputs.
        Some(mode) => mode.value & 0o777,
        None if executable => 0o555,
        None => 0o444,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Whether a cache that refuses a result would refuse it again: it is too long, or all are refused.
fn is_for_good(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::PermissionDenied | Code::ResourceExhausted)
}

/// Whether a code says that the answer is a result.
pub(super) fn is_ok(response: &re::ExecuteResponse) -> bool {
    response.status.as_ref().is_none_or(|status| status.code == Code::Ok as i32)
}
