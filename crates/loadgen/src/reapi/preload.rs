//! What the load stores before it begins, and how its requests are written.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2 as re;
use bazel_remote_apis::google::bytestream as bs;
use bytes::{BufMut as _, Bytes, BytesMut};
use kendall_units::hex;
use prost::Message;
use rand::Rng as _;
use sha2::Digest as _;

use super::{ReapiLoadError, ReapiOperation, ReapiPlan, narrow, path};
use crate::driver::{ErrorKind, Reply};
use crate::grpc::{Connection, Refusal};
use crate::keyspace::Chooser;
use crate::load::{LoadError, LoadPlan, PREPARATION};
use crate::random::{Purpose, Random, stream};
use crate::tasks::block_on;

/// Bytes of one message of an upload: what Bazel's and Go's clients stay below.
const STEP: usize = 1 << 20;
/// Bytes of one batch of the filling.
const BATCH_BYTES: usize = 2 << 20;

/// Actions whose blobs are stored together.
const GROUP: usize = 1_000;

/// The stock: blobs by their numbers.
#[derive(Debug)]
pub(super) struct Stock {
    pub(super) plan: ReapiPlan,
    pub(super) seed: u64,
    pub(super) chooser: Chooser,
    digests: Vec<re::Digest>,
    /// Those that are executed; none where the mix executes none.
    pub(super) actions: Vec<re::Digest>,
}

/// Runs of so many numbers.
fn groups(count: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..count).step_by(GROUP).map(move |first| first..(first + GROUP).min(count))
}

/// Makes the stock, and stores it at each target.
pub(super) fn prepare(plan: &LoadPlan, reapi: &ReapiPlan) -> Result<Stock, ReapiLoadError> {
    let count = usize::try_from(reapi.stock).unwrap_or(usize::MAX);
    let mut stock = Stock {
        plan: reapi.clone(),
        seed: plan.seed,
        chooser: Chooser::new(reapi.choice, count),
        digests: Vec::new(),
        actions: Vec::new(),
    };
    for number in 0..reapi.stock {
        let digest = stock.digest_of(&stock.content(number));
        stock.digests.push(digest);
    }
    if reapi.mix.executes() {
        stock.actions = (0..reapi.stock).map(|number| stock.action_blobs(number).0).collect();
    }
    let mut targets = plan.targets.clone();
    targets.sort_unstable();
    targets.dedup();
    let limit = Duration::from_nanos(plan.timeout_ns);
    let filling = async {
        for target in targets {
            let connection = super::connection(target);
            connection.open_within(limit).await?;
            fill(&stock, &connection, target).await?;
        }
        Ok::<(), ReapiLoadError>(())
    };
    block_on(filling).map_err(LoadError::Thread)??;
    Ok(stock)
}

/// A gRPC status that said no, in words where they help.
fn status(code: i32) -> String {
    let words = match code {
        7 => ", PERMISSION_DENIED: the token may not write",
        8 => ", RESOURCE_EXHAUSTED: it has no room",
        12 => ", UNIMPLEMENTED: it is no cache of remote execution",
        14 => ", UNAVAILABLE: it, or the cache behind it, cannot be reached",
        16 => ", UNAUTHENTICATED: it needs a token",
        _ => "",
    };
    format!("gRPC status {code}{words}")
}

async fn fill(
    stock: &Stock,
    connection: &Connection,
    target: SocketAddr,
) -> Result<(), ReapiLoadError> {
    let refused = |said: String| ReapiLoadError::Refused { target, said };
    let store = |operation: ReapiOperation, body: Bytes| async move {
        let call = tokio::time::timeout(PREPARATION, connection.call_many(path(operation), body));
        match call.await.unwrap_or(Err(Refusal::Broken(ErrorKind::TimedOut))) {
            Ok(messages) => Ok(messages),
            Err(Refusal::Status { code, .. }) => Err(refused(status(code))),
            Err(refusal) => Err(refused(refusal.kind().name().to_owned())),
        }
    };
    let mut batch = Vec::new();
    let mut bytes = 0;
    for number in 0..stock.plan.stock {
        let size = stock.size(number);
        if size > BATCH_BYTES {
            store(ReapiOperation::Write, stock.write(number)).await?;
            continue;
        }
        bytes += size + 128;
        batch.push(number);
        if bytes >= BATCH_BYTES || number + 1 == stock.plan.stock {
            let answer = store(ReapiOperation::BatchUpdate, stock.batch_update(&batch)).await?;
            batch_done(&answer, batch.len()).map_err(|kind| refused(kind.name().to_owned()))?;
            batch.clear();
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        let answer = store(ReapiOperation::BatchUpdate, stock.batch_update(&batch)).await?;
        batch_done(&answer, batch.len()).map_err(|kind| refused(kind.name().to_owned()))?;
    }
    if stock.plan.mix.has(ReapiOperation::GetResult) {
        for number in 0..stock.plan.stock {
            store(ReapiOperation::PutResult, stock.put_result(number, number)).await?;
        }
    }
    for numbers in groups(stock.actions.len()) {
        let (body, count) = stock.store_actions(numbers);
        let answer = store(ReapiOperation::BatchUpdate, body).await?;
        batch_done(&answer, count).map_err(|kind| refused(kind.name().to_owned()))?;
    }
    if stock.plan.mix.has(ReapiOperation::ExecuteCached) {
        for action in &stock.actions {
            store(ReapiOperation::PutResult, stock.put_empty_result(action)).await?;
        }
    }
    Ok(())
}

/// A message with its prefix.
fn framed(out: &mut BytesMut, message: &impl Message) {
    out.put_u8(0);
    out.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    message.encode(out).expect("a growing buffer takes all");
}

pub(super) fn one(message: &impl Message) -> Bytes {
    let mut out = BytesMut::with_capacity(message.encoded_len() + 5);
    framed(&mut out, message);
    out.freeze()
}

impl Stock {
    /// Draws that belong to one blob.
    pub(super) fn random(&self, number: u64) -> Random {
        stream(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15), Purpose::Sizes, 0)
    }

    /// The length of a blob. It holds its number at least.
    fn size(&self, number: u64) -> usize {
        let size = self.plan.blob_size.sample(&mut self.random(number));
        usize::try_from(kendall_units::whole_u64(size)).unwrap_or(usize::MAX).max(8)
    }

    /// A blob: its number, and noise.
    fn content(&self, number: u64) -> Vec<u8> {
        let size = self.size(number);
        let mut content = Vec::with_capacity(size + 8);
        content.extend(number.to_le_bytes());
        let mut random = self.random(number ^ 1 << 62);
        while content.len() < size {
            content.extend(random.next_u64().to_le_bytes());
        }
        content.truncate(size);
        content
    }

    pub(super) fn digest_of(&self, content: &[u8]) -> re::Digest {
        let hash = hex(sha2::Sha256::digest(content).as_slice());
        re::Digest { hash, size_bytes: i64::try_from(content.len()).unwrap_or(i64::MAX) }
    }

    /// The digest of a blob of the stock, or of one that was never stored.
    fn digest(&self, pick: Option<u64>, fresh: impl Fn() -> u64) -> re::Digest {
        let kept = pick.and_then(|number| self.digests.get(usize::try_from(number).ok()?));
        kept.cloned().unwrap_or_else(|| {
            let mut hash = [0; 32];
            for word in hash.chunks_exact_mut(8) {
                word.copy_from_slice(&fresh().to_le_bytes());
            }
            re::Digest { hash: hex(&hash), size_bytes: 1000 }
        })
    }

    fn action(&self, number: u64) -> re::Digest {
        let name = format!("action {} {number}", self.seed);
        self.digest_of(name.as_bytes())
    }

    pub(super) fn find_missing(&self, picks: &[Option<u64>], fresh: impl Fn() -> u64) -> Bytes {
        one(&re::FindMissingBlobsRequest {
            instance_name: self.plan.instance.clone(),
            blob_digests: picks.iter().map(|pick| self.digest(*pick, &fresh)).collect(),
            digest_function: 0,
        })
    }

    pub(super) fn batch_read(&self, picks: &[Option<u64>], fresh: impl Fn() -> u64) -> Bytes {
        one(&re::BatchReadBlobsRequest {
            instance_name: self.plan.instance.clone(),
            digests: picks.iter().map(|pick| self.digest(*pick, &fresh)).collect(),
            ..Default::default()
        })
    }

    pub(super) fn batch_update(&self, numbers: &[u64]) -> Bytes {
        let requests = numbers
            .iter()
            .map(|number| {
                let data = self.content(*number);
                let digest = Some(self.digest_of(&data));
                re::batch_update_blobs_request::Request { digest, data, compressor: 0 }
            })
            .collect();
        one(&re::BatchUpdateBlobsRequest {
            instance_name: self.plan.instance.clone(),
            requests,
            digest_function: 0,
        })
    }

    fn named(&self, digest: &re::Digest) -> String {
        let blob = format!("blobs/{}/{}", digest.hash, digest.size_bytes);
        match self.plan.instance.as_str() {
            "" => blob,
            instance => format!("{instance}/{blob}"),
        }
    }

    pub(super) fn read(&self, pick: Option<u64>, fresh: impl Fn() -> u64) -> Bytes {
        let resource_name = self.named(&self.digest(pick, fresh));
        one(&bs::ReadRequest { resource_name, read_offset: 0, read_limit: 0 })
    }

    pub(super) fn write(&self, number: u64) -> Bytes {
        let content = self.content(number);
        let digest = self.digest_of(&content);
        let blob = format!("blobs/{}/{}", digest.hash, digest.size_bytes);
        let name = match self.plan.instance.as_str() {
            "" => format!("uploads/{number:x}/{blob}"),
            instance => format!("{instance}/uploads/{number:x}/{blob}"),
        };
        let mut out = BytesMut::with_capacity(content.len() + 300);
        let count = content.len().div_ceil(STEP);
        for (index, part) in content.chunks(STEP).enumerate() {
            let offset = i64::try_from(index * STEP).unwrap_or(i64::MAX);
            framed(
                &mut out,
                &bs::WriteRequest {
                    resource_name: if index == 0 { name.clone() } else { String::new() },
                    write_offset: offset,
                    finish_write: index + 1 == count,
                    data: part.to_vec(),
                },
            );
        }
        out.freeze()
    }

    pub(super) fn get_result(&self, number: u64) -> Bytes {
        one(&re::GetActionResultRequest {
            instance_name: self.plan.instance.clone(),
            action_digest: Some(self.action(number)),
            ..Default::default()
        })
    }

    /// The result of an action with two outputs, which are of the stock.
    pub(super) fn put_result(&self, number: u64, output: u64) -> Bytes {
        let outputs = [output, (output + 1) % self.plan.stock.max(1)];
        let files = outputs
            .iter()
            .filter_map(|number| self.digests.get(usize::try_from(*number).ok()?))
            .enumerate()
            .map(|(index, digest)| re::OutputFile {
                path: format!("bazel-out/k8-fastbuild/bin/package/output-{index}.o"),
                digest: Some(digest.clone()),
                ..Default::default()
            })
            .collect();
        one(&re::UpdateActionResultRequest {
            instance_name: self.plan.instance.clone(),
            action_digest: Some(self.action(number)),
            action_result: Some(re::ActionResult { output_files: files, ..Default::default() }),
            ..Default::default()
        })
    }

    /// Whether `content` is blob `number`: as long, and begins with its number.
    fn check(&self, number: u64, length: usize, first: &[u8]) -> Result<(), ErrorKind> {
        let kept = usize::try_from(number).ok().and_then(|number| self.digests.get(number));
        let size = kept.map(|digest| digest.size_bytes);
        let right =
            size == i64::try_from(length).ok() && first.get(..8) == Some(&number.to_le_bytes());
        if right { Ok(()) } else { Err(ErrorKind::WrongValue) }
    }

    pub(super) fn check_stream(&self, messages: &[Bytes], number: u64) -> Result<(), ErrorKind> {
        let mut length = 0;
        let mut first = Vec::new();
        for message in messages {
            let data = bs::ReadResponse::decode(message.clone()).map_err(|_| ErrorKind::Garbage)?;
            length += data.data.len();
            if first.len() < 8 {
                first.extend(data.data.iter().take(8));
            }
        }
        self.check(number, length, &first)
    }

    /// Each blob that was asked for must be answered for. The API sets no order of the answers, and a blob that is
    /// named twice may be answered for once.
    pub(super) fn check_batch(
        &self,
        messages: &[Bytes],
        picks: &[Option<u64>],
    ) -> Result<Reply, ErrorKind> {
        let [message] = messages else { return Err(ErrorKind::Garbage) };
        let answer = re::BatchReadBlobsResponse::decode(message.clone());
        let answer = answer.map_err(|_| ErrorKind::Garbage)?;
        let asked: BTreeSet<u64> = picks.iter().copied().flatten().collect();
        let (mut found, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for one in &answer.responses {
            if one.status.as_ref().is_some_and(|status| status.code != 0) {
                refused.insert(&one.digest.as_ref().ok_or(ErrorKind::Garbage)?.hash);
                continue;
            }
            let first = one.data.first_chunk().ok_or(ErrorKind::WrongValue)?;
            let number = u64::from_le_bytes(*first);
            if !asked.contains(&number) {
                return Err(ErrorKind::WrongValue);
            }
            self.check(number, one.data.len(), &one.data)?;
            found.insert(number);
        }
        let never_stored = picks.iter().filter(|pick| pick.is_none()).count();
        if found.len() + refused.len() != asked.len() + never_stored {
            return Err(ErrorKind::Garbage);
        }
        let hits = picks.iter().flatten().filter(|number| found.contains(number)).count();
        let misses = picks.len() - hits;
        Ok(Reply { hits: narrow(hits), misses: narrow(misses), ..Reply::default() })
    }
}

/// Whether a batch was stored, all of it.
pub(super) fn batch_done(messages: &[Bytes], count: usize) -> Result<Reply, ErrorKind> {
    let [message] = messages else { return Err(ErrorKind::Garbage) };
    let answer = re::BatchUpdateBlobsResponse::decode(message.clone());
    let answer = answer.map_err(|_| ErrorKind::Garbage)?;
    let stored = |one: &re::batch_update_blobs_response::Response| {
        one.status.as_ref().is_none_or(|status| status.code == 0)
    };
    if answer.responses.len() == count.max(1) && answer.responses.iter().all(stored) {
        Ok(Reply::default())
    } else {
        Err(ErrorKind::ServerError)
    }
}

pub(super) fn count_missing(messages: &[Bytes]) -> Result<usize, ErrorKind> {
    let [message] = messages else { return Err(ErrorKind::Garbage) };
    let answer = re::FindMissingBlobsResponse::decode(message.clone());
    Ok(answer.map_err(|_| ErrorKind::Garbage)?.missing_blob_digests.len())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::keyspace::KeyChoice;
    use crate::reapi::ReapiPlan;

    pub(crate) fn stock() -> Stock {
        let plan = ReapiPlan {
            mix: ReapiPlan::parse_mix("warm").unwrap(),
            blob_size: ReapiPlan::parse_size("uniform:10B..3KiB").unwrap(),
            batch: 3,
            stock: 5,
            hit_ratio: 1.0,
            choice: KeyChoice::Uniform,
            instance: String::new(),
            action_time: ReapiPlan::parse_time("exponential:100ms").unwrap(),
        };
        let chooser = Chooser::new(plan.choice, 5);
        let mut stock = Stock { plan, seed: 1, chooser, digests: Vec::new(), actions: Vec::new() };
        for number in 0..5 {
            let digest = stock.digest_of(&stock.content(number));
            stock.digests.push(digest);
        }
        stock
    }

    #[test]
    fn a_blob_is_right_only_under_its_own_number() {
        let stock = stock();
        let content = stock.content(3);
        assert_eq!(stock.size(3), content.len());
        let message = |data: Vec<u8>| Bytes::from(bs::ReadResponse { data }.encode_to_vec());
        let halves = [message(content[..5].to_vec()), message(content[5..].to_vec())];
        assert_eq!(stock.check_stream(&halves, 3), Ok(()));
        assert_eq!(stock.check_stream(&halves, 2), Err(ErrorKind::WrongValue));
        assert_eq!(stock.check_stream(&halves[..1], 3), Err(ErrorKind::WrongValue));
    }

    #[test]
    fn a_batch_counts_what_is_there_and_what_is_not() {
        use re::batch_read_blobs_response::Response;
        let stock = stock();
        let there = |number| Response { data: stock.content(number), ..Default::default() };
        let gone = |hash: &str| Response {
            digest: Some(re::Digest { hash: hash.to_owned(), size_bytes: 1000 }),
            status: Some(bazel_remote_apis::google::rpc::Status { code: 5, ..Default::default() }),
            ..Default::default()
        };
        let check = |responses: Vec<Response>, picks: &[Option<u64>]| {
            let answer = re::BatchReadBlobsResponse { responses }.encode_to_vec();
            let reply = stock.check_batch(&[Bytes::from(answer)], picks);
            reply.map(|reply| (reply.hits, reply.misses))
        };
        let picks = [Some(1), None, Some(2)];
        assert_eq!(check(vec![there(1), gone("a"), gone("b")], &picks), Ok((1, 2)));
        assert_eq!(check(vec![there(1)], &[None]), Err(ErrorKind::WrongValue));
        // In another order, and once for what was named twice, as proxies do.
        assert_eq!(check(vec![there(2), gone("a"), there(1)], &picks), Ok((2, 1)));
        assert_eq!(check(vec![there(2)], &[Some(2), Some(2)]), Ok((2, 0)));
        assert_eq!(check(vec![there(2), there(2)], &[Some(2), Some(2)]), Ok((2, 0)));
        // A request without a reply, and a reply without a request.
        assert_eq!(check(vec![there(1), there(2)], &picks), Err(ErrorKind::Garbage));
        assert_eq!(check(vec![there(1), there(1)], &[Some(1), Some(2)]), Err(ErrorKind::Garbage));
        assert_eq!(check(vec![there(3)], &[Some(2)]), Err(ErrorKind::WrongValue));
    }
}
