//! Results of actions: served only while everything that they name is there.

use std::collections::HashSet;

use bytes::Bytes;
use prost::Message as _;
use tonic::{Code, Status};

use super::context::{Answered, Call};
use super::grpc;
use super::instances::Partition;
use super::outputs;
use super::proto::{self, Fields, Value};
use super::read::{self, parsed};
use super::store::{Content, Kind};
use crate::digest::{Digest, Function};
use crate::wire::re;

/// Bytes that are put into an answer so that the client need not ask for them.
const INLINE_BYTES: u64 = 1 << 20;
/// Directories of one result that are checked, at most, and bytes of its trees and directories.
const DIRECTORIES: usize = 100_000;
const DIRECTORY_BYTES: u64 = 256 << 20;

pub(crate) fn get(call: &Call, message: &Bytes) -> Answered {
    let (mut instance, mut action, mut function) = ("", None, Function::Sha256);
    let mut inline = false;
    for field in Fields(message) {
        match field? {
            (1, Value::Bytes(bytes)) => instance = proto::text(bytes)?,
            (2, Value::Bytes(bytes)) => action = Some(bytes),
            (3 | 4, Value::Number(number)) => inline |= number != 0,
            (5, Value::Bytes(_)) => inline = true,
            (6, Value::Number(number)) => function = proto::function(number)?,
            _ => {}
        }
    }
    let action = action.ok_or(crate::digest::DigestError::Absent)?;
    let action = proto::digest(function, action)?;
    let partition = call.partition(instance)?;
    let Some(result) = usable(call, &partition, &action)? else {
        return Err(Status::not_found(format!("there is no result of {action}")));
    };
    call.bytes(0, result.len() as u64);
    if inline {
        let request = re::GetActionResultRequest::decode(message.clone());
        let request = request.map_err(|_| proto::Malformed)?;
        return Ok(grpc::encoded(&inlined(&partition, &request, function, &result)?));
    }
    let mut answer = grpc::message(result.len());
    answer.extend_from_slice(&result);
    Ok(grpc::unary(answer))
}

/// The result of an action that may be served, if there is one, which is counted.
fn usable(
    call: &Call,
    partition: &Partition<'_>,
    action: &Digest,
) -> Result<Option<Bytes>, Status> {
    let found = match stored(partition, action)? {
        // Over HTTP results of actions that failed can be stored.
        Some(result) if outputs::check(action.function, &result).is_ok() => {
            complete(call, partition, action.function, result)?
        }
        _ => None,
    };
    call.found(Kind::Result, u64::from(found.is_some()), u64::from(found.is_none()));
    if let Some(result) = &found {
        call.shared().metrics.sized(Kind::Result, false, result.len() as u64);
    }
    Ok(found)
}

/// As [`usable`], with what the action wrote to its two outputs as far as that is small.
pub(crate) fn with_logs(
    call: &Call,
    partition: &Partition<'_>,
    action: &Digest,
) -> Result<Option<Bytes>, Status> {
    let Some(result) = usable(call, partition, action)? else { return Ok(None) };
    let elsewhere = |field| matches!(field, Ok((6 | 8, Value::Bytes(_))));
    if !Fields(&result).any(elsewhere) {
        return Ok(Some(result));
    }
    let request = re::GetActionResultRequest {
        inline_stdout: true,
        inline_stderr: true,
        ..re::GetActionResultRequest::default()
    };
    let result = inlined(partition, &request, action.function, &result)?;
    Ok(Some(result.encode_to_vec().into()))
}

pub(crate) fn stored(partition: &Partition<'_>, action: &Digest) -> Result<Option<Bytes>, Status> {
    let key = partition.result(action);
    let Some(entry) = partition.store.get(&key, partition.store.moment()) else { return Ok(None) };
    Ok(partition.store.read(&key, entry)?)
}

/// The result, if all that it names is there. A cache behind a front holds a part of that only: the front checks.
pub(crate) fn complete(
    call: &Call,
    partition: &Partition<'_>,
    function: Function,
    result: Bytes,
) -> Result<Option<Bytes>, Status> {
    if call.shared().behind_front {
        return Ok(Some(result));
    }
    let moment = partition.store.moment();
    let mut check = Check {
        partition,
        function,
        moment,
        trees: HashSet::new(),
        directories: HashSet::new(),
        bytes: 0,
    };
    Ok(check.result(&result)?.then_some(result))
}

/// Checks whether the blobs of a result exist, and marks them as used now.
struct Check<'a> {
    partition: &'a Partition<'a>,
    function: Function,
    moment: u64,
    /// What was looked through: a result of few bytes may name a large tree many times.
    trees: HashSet<Digest>,
    directories: HashSet<Digest>,
    bytes: u64,
}

impl Check<'_> {
    fn result(&mut self, result: &[u8]) -> Result<bool, Status> {
        for field in Fields(result) {
            let there = match field? {
                // A file's digest is its second field.
                (2, Value::Bytes(file)) => self.field(file, 2)?,
                (3, Value::Bytes(directory)) => self.directory(directory)?,
                // Standard output and standard error.
                (6 | 8, Value::Bytes(digest)) => self.there(digest)?,
                _ => true,
            };
            if !there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn there(&self, digest: &[u8]) -> Result<bool, Status> {
        let digest = proto::digest(self.function, digest)?;
        Ok(self.partition.has(&digest, self.moment))
    }

    /// Whether the digests in field `number` of `bytes` are there.
    fn field(&self, bytes: &[u8], number: u32) -> Result<bool, Status> {
        for field in Fields(bytes) {
            if let (found, Value::Bytes(digest)) = field?
                && found == number
                && !self.there(digest)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn directory(&mut self, bytes: &[u8]) -> Result<bool, Status> {
        for field in Fields(bytes) {
            let there = match field? {
                (3, Value::Bytes(tree)) => {
                    let tree = proto::digest(self.function, tree)?;
                    self.tree(&tree)?
                }
                (5, Value::Bytes(root)) => {
                    let root = proto::digest(self.function, root)?;
                    self.below(root)?
                }
                _ => true,
            };
            if !there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts a message that is looked through, and refuses one too many.
    fn count(&mut self, digest: &Digest) -> Result<(), Status> {
        self.bytes = self.bytes.saturating_add(digest.size);
        if self.directories.len() > DIRECTORIES || self.bytes > DIRECTORY_BYTES {
            return Err(Status::resource_exhausted("the result has too many directories"));
        }
        Ok(())
    }

    /// A blob that should be such a message; `None` where it is missing, or something else.
    fn message<M: prost::Message + Default>(&self, digest: &Digest) -> Result<Option<M>, Status> {
        match parsed::<M>(self.partition, digest, self.moment) {
            Err(status) if status.code() == Code::FailedPrecondition => Ok(None),
            other => other,
        }
    }

    fn tree(&mut self, digest: &Digest) -> Result<bool, Status> {
        if !self.trees.insert(*digest) {
            return Ok(true);
        }
        self.count(digest)?;
        let tree = self.message::<outputs::Tree>(digest)?;
        let Some(all) = tree.and_then(|tree| tree.directories(self.function)) else {
            return Ok(false);
        };
        for file in all.iter().flat_map(|directory| &directory.files) {
            let digest = Digest::required(self.function, file.digest.as_ref())?;
            if !self.partition.has(&digest, self.moment) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a directory and all below it is there.
    fn below(&mut self, root: Digest) -> Result<bool, Status> {
        if !self.directories.insert(root) {
            return Ok(true);
        }
        let mut left = vec![root];
        while let Some(digest) = left.pop() {
            self.count(&digest)?;
            let found = self.message::<re::Directory>(&digest)?;
            let sound = |directory: &re::Directory| outputs::is_directory(self.function, directory);
            let Some(directory) = found.filter(sound) else { return Ok(false) };
            for file in &directory.files {
                let digest = Digest::required(self.function, file.digest.as_ref())?;
                if !self.partition.has(&digest, self.moment) {
                    return Ok(false);
                }
            }
            for child in &directory.directories {
                let digest = Digest::required(self.function, child.digest.as_ref())?;
                if self.directories.insert(digest) {
                    left.push(digest);
                }
            }
        }
        Ok(true)
    }
}

/// A result with the contents that the client asked to have in it, as far as they are small.
fn inlined(
    partition: &Partition<'_>,
    request: &re::GetActionResultRequest,
    function: Function,
    result: &Bytes,
) -> Result<re::ActionResult, Status> {
    let damaged = |_| Status::data_loss("the stored result is not a message");
    let mut result = re::ActionResult::decode(result.clone()).map_err(damaged)?;
    let mut left = INLINE_BYTES;
    let mut content = |digest: Option<&re::Digest>| -> Result<Vec<u8>, Status> {
        let Some(digest) = digest else { return Ok(Vec::new()) };
        let digest = Digest::from_wire(function, digest)?;
        if digest.size > left {
            return Ok(Vec::new());
        }
        let moment = partition.store.moment();
        let found = read::whole(partition, &digest, moment)?;
        left -= found.as_ref().map_or(0, |bytes| bytes.len() as u64);
        Ok(found.map(|bytes| bytes.to_vec()).unwrap_or_default())
    };
    if request.inline_stdout && result.stdout_raw.is_empty() {
        result.stdout_raw = content(result.stdout_digest.as_ref())?;
    }
    if request.inline_stderr && result.stderr_raw.is_empty() {
        result.stderr_raw = content(result.stderr_digest.as_ref())?;
    }
    let wanted: HashSet<&str> = request.inline_output_files.iter().map(String::as_str).collect();
    for file in &mut result.output_files {
        if file.contents.is_empty() && wanted.contains(file.path.as_str()) {
            file.contents = content(file.digest.as_ref())?;
        }
    }
    Ok(result)
}

pub(crate) fn update(call: &Call, message: &Bytes) -> Answered {
    call.may_write()?;
    if call.shared().read_only_results {
        return Err(Status::permission_denied("results of actions cannot be changed here"));
    }
    let (mut instance, mut action, mut result, mut function) = ("", None, None, Function::Sha256);
    for field in Fields(message) {
        match field? {
            (1, Value::Bytes(bytes)) => instance = proto::text(bytes)?,
            (2, Value::Bytes(bytes)) => action = Some(bytes),
            (3, Value::Bytes(bytes)) => result = Some(bytes),
            (5, Value::Number(number)) => function = proto::function(number)?,
            _ => {}
        }
    }
    let action = action.ok_or(crate::digest::DigestError::Absent)?;
    let action = proto::digest(function, action)?;
    let result = result.ok_or_else(|| Status::invalid_argument("there is no result"))?;
    let partition = call.partition(instance)?;
    keep(call, &partition, &action, proto::shared(message, result))?;
    let mut answer = grpc::message(result.len());
    answer.extend_from_slice(result);
    Ok(grpc::unary(answer))
}

/// Keeps the result of an action, if it is one, and did not fail.
pub(crate) fn keep(
    call: &Call,
    partition: &Partition<'_>,
    action: &Digest,
    result: Bytes,
) -> Result<(), Status> {
    outputs::check(action.function, &result)?;
    if !partition.store.is_small(result.len() as u64) {
        return Err(Status::invalid_argument("a result of so many bytes is not kept"));
    }
    call.shared().metrics.sized(Kind::Result, true, result.len() as u64);
    let content = Content::plain(partition.result(action), result);
    Ok(partition.store.put(call.lane(), &content)?)
}
