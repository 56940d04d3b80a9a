//! Actions that take a stated time, and what their execution must answer.

use bazel_remote_apis::build::bazel::remote::execution::v2 as re;
use bazel_remote_apis::google::longrunning as lro;
use bytes::Bytes;
use prost::Message as _;

use super::preload::{Stock, one};
use crate::driver::{ErrorKind, Reply};
use crate::grpc;

impl Stock {
    /// How long an action takes, in seconds: its own draw, the same in every run of a seed.
    fn seconds(&self, number: u64) -> f64 {
        self.plan.action_time.sample(&mut self.random(number ^ 1 << 61))
    }

    fn command(&self, number: u64) -> re::Command {
        let seconds = self.seconds(number);
        let words = if seconds > 0.0 {
            vec!["/bin/sleep".to_owned(), format!("{seconds:.6}")]
        } else {
            vec!["/bin/true".to_owned()]
        };
        re::Command { arguments: words, ..Default::default() }
    }

    /// The digest of an action, its bytes, and its command's.
    pub(super) fn action_blobs(&self, number: u64) -> (re::Digest, Vec<u8>, Vec<u8>) {
        let command = self.command(number).encode_to_vec();
        let mut salt = self.seed.to_le_bytes().to_vec();
        salt.extend(number.to_le_bytes());
        let action = re::Action {
            command_digest: Some(self.digest_of(&command)),
            input_root_digest: Some(self.digest_of(&[])),
            salt,
            ..Default::default()
        };
        let action = action.encode_to_vec();
        (self.digest_of(&action), action, command)
    }

    /// A request that stores these actions with their commands and their empty input root, and how
    /// many blobs that are.
    pub(super) fn store_actions(&self, numbers: std::ops::Range<usize>) -> (Bytes, usize) {
        let mut blobs = std::collections::BTreeSet::from([Vec::new()]);
        for number in numbers {
            let (_, action, command) = self.action_blobs(number as u64);
            blobs.extend([action, command]);
        }
        let request = |data: Vec<u8>| re::batch_update_blobs_request::Request {
            digest: Some(self.digest_of(&data)),
            data,
            compressor: 0,
        };
        let count = blobs.len();
        let body = one(&re::BatchUpdateBlobsRequest {
            instance_name: self.plan.instance.clone(),
            requests: blobs.into_iter().map(request).collect(),
            digest_function: 0,
        });
        (body, count)
    }

    /// A result without outputs.
    pub(super) fn put_empty_result(&self, action: &re::Digest) -> Bytes {
        one(&re::UpdateActionResultRequest {
            instance_name: self.plan.instance.clone(),
            action_digest: Some(action.clone()),
            action_result: Some(re::ActionResult::default()),
            ..Default::default()
        })
    }

    /// The execution of an action, without a lookup in the cache or with one.
    pub(super) fn execute(&self, number: u64, anew: bool) -> Bytes {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        one(&re::ExecuteRequest {
            instance_name: self.plan.instance.clone(),
            skip_cache_lookup: anew,
            action_digest: self.actions.get(number).cloned(),
            ..Default::default()
        })
    }
}

/// The end of an execution: exit status 0, and from where it was to come.
pub(super) fn check(messages: &[Bytes], cached: bool) -> Result<Reply, ErrorKind> {
    let last = messages.last().ok_or(ErrorKind::ConnectionClosed)?;
    let operation = lro::Operation::decode(last.clone()).map_err(|_| ErrorKind::Garbage)?;
    // A stream that ends before its operation is done: the scheduler went away.
    let any = match operation.result {
        Some(lro::operation::Result::Response(any)) if operation.done => any,
        Some(lro::operation::Result::Error(status)) => return Err(grpc::kind(status.code)),
        _ => return Err(ErrorKind::ConnectionClosed),
    };
    let answer = re::ExecuteResponse::decode(any.value.as_slice());
    let answer = answer.map_err(|_| ErrorKind::Garbage)?;
    if let Some(status) = answer.status.filter(|status| status.code != 0) {
        return Err(grpc::kind(status.code));
    }
    match answer.result {
        Some(result) if result.exit_code == 0 => {}
        _ => return Err(ErrorKind::WrongValue),
    }
    match (cached, answer.cached_result) {
        // It was to be run, and was not.
        (false, true) => Err(ErrorKind::WrongValue),
        (false, false) => Ok(Reply::default()),
        (true, true) => Ok(Reply { hits: 1, ..Reply::default() }),
        // Evicted meanwhile.
        (true, false) => Ok(Reply { misses: 1, ..Reply::default() }),
    }
}

#[cfg(test)]
mod tests {
    use bazel_remote_apis::google::protobuf::Any;

    use super::super::preload::tests::stock;
    use super::*;

    fn answer(done: bool, response: &re::ExecuteResponse) -> Vec<Bytes> {
        let any = Any { value: response.encode_to_vec(), ..Default::default() };
        let operation = lro::Operation {
            done,
            result: done.then_some(lro::operation::Result::Response(any)),
            ..Default::default()
        };
        vec![Bytes::new(), Bytes::from(operation.encode_to_vec())]
    }

    #[test]
    fn an_execution_counts_only_when_it_ran_and_succeeded() {
        let ran = |exit_code, cached_result| re::ExecuteResponse {
            result: Some(re::ActionResult { exit_code, ..Default::default() }),
            cached_result,
            ..Default::default()
        };
        assert_eq!(check(&answer(true, &ran(0, false)), false), Ok(Reply::default()));
        assert_eq!(check(&answer(true, &ran(0, true)), true).unwrap().hits, 1);
        assert_eq!(check(&answer(true, &ran(0, false)), true).unwrap().misses, 1);
        let not_run = check(&answer(true, &ran(0, true)), false);
        assert_eq!(not_run, Err(ErrorKind::WrongValue));
        assert_eq!(check(&answer(true, &ran(1, false)), false), Err(ErrorKind::WrongValue));
        let ended = check(&answer(false, &ran(0, false)), false);
        assert_eq!(ended, Err(ErrorKind::ConnectionClosed));
        assert_eq!(check(&[], false), Err(ErrorKind::ConnectionClosed));
        let failed = re::ExecuteResponse {
            status: Some(bazel_remote_apis::google::rpc::Status { code: 4, ..Default::default() }),
            ..Default::default()
        };
        assert_eq!(check(&answer(true, &failed), false), Err(ErrorKind::TimedOut));
    }

    /// Times belong to the actions: their mean is that of the distribution, and drawing them again
    /// gives the same.
    #[test]
    fn actions_take_times_of_the_stated_distribution() {
        let stock = stock();
        let count = 4_000_u32;
        let sum: f64 = (0..count).map(|number| stock.seconds(u64::from(number))).sum();
        // The mean of 4,000 exponential times has a deviation of 1.6 %; four of them.
        let mean = sum / f64::from(count);
        assert!((mean - 0.1).abs() < 4.0 * 0.1 / f64::from(count).sqrt(), "{mean}");
        assert_eq!(stock.action_blobs(7), stock.action_blobs(7));
        assert_ne!(stock.action_blobs(7).0, stock.action_blobs(8).0);
        let (body, blobs) = stock.store_actions(0..10);
        assert!(!body.is_empty() && blobs == 21, "{blobs}");
    }
}
