//! Requests without a reply at the end.
//!
//! A closed loop leaves what is in flight at its end. Of a server that answers some clients no more,
//! such requests are all that is to be seen: before their time-out they are neither times nor errors,
//! and the clients that go on leave no silence.

use kendall_protocols::load_result::{Operation, Unanswered};
use kendall_stats::histogram::Histogram;

use crate::clock::MILLISECOND_NS;

/// Those under way at a random moment have waited for as long as the slowest answer only by chance,
/// for twice as long hardly ever: of N exponential times the slowest is about ln N means, and one
/// exceeds twice that with probability 1/N².
const TIMES_THE_SLOWEST: u64 = 2;

/// Shorter waits than this are the machine's own: a core that was taken away.
const SHORTEST_NS: u64 = 10 * MILLISECOND_NS;

/// Those of `waits`, how long each request under way at the end had waited, that are far longer than
/// any that was answered.
pub(super) fn find<'a>(
    waits: impl Iterator<Item = u64>,
    operations: impl Iterator<Item = &'a Operation>,
) -> Option<Unanswered> {
    let slowest = operations
        .filter_map(|operation| Histogram::decode(&operation.response_time.0).ok()?.max())
        .max();
    let limit = slowest.map(|slowest| slowest.saturating_mul(TIMES_THE_SLOWEST).max(SHORTEST_NS));
    let far: Vec<u64> = waits.filter(|wait| limit.is_none_or(|limit| *wait > limit)).collect();
    Some(Unanswered {
        count: far.len() as u64,
        longest_ns: far.iter().copied().max()?,
        slowest_answered_ns: slowest.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use kendall_protocols::snapshot::EncodedHistogram;

    use super::*;

    fn answered(times_ms: &[u64]) -> Operation {
        let mut times = Histogram::new();
        for time in times_ms {
            times.record(time * MILLISECOND_NS);
        }
        Operation { response_time: EncodedHistogram(times.encode()), ..Operation::default() }
    }

    fn found(waits_ms: &[u64], operations: &[Operation]) -> Option<Unanswered> {
        find(waits_ms.iter().map(|wait| wait * MILLISECOND_NS), operations.iter())
    }

    #[test]
    fn only_waits_far_beyond_the_slowest_answer_of_all_operations_count() {
        let operations = [answered(&[5, 20]), answered(&[])];
        assert_eq!(found(&[1, 19, 39], &operations), None);
        let far = found(&[1, 4_000, 39, 3_000], &operations).unwrap();
        assert_eq!((far.count, far.longest_ns), (2, 4_000 * MILLISECOND_NS));
        // Histogram cells are 0.1 % wide.
        assert!(far.slowest_answered_ns.abs_diff(20 * MILLISECOND_NS) <= 40_000, "{far:?}");
        assert_eq!(found(&[9], &[answered(&[1])]), None, "the machine's own");
    }

    #[test]
    fn where_nothing_was_answered_every_request_waits() {
        let far = found(&[0, 7], &[answered(&[])]).unwrap();
        assert_eq!((far.count, far.slowest_answered_ns), (2, 0));
        assert_eq!(found(&[], &[answered(&[])]), None);
    }
}
